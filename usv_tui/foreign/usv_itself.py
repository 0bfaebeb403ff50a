"""usv, and this package's API: the callables of one `do_bench_many` are interleaved."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.foreign.calls import Answer, Call
from usv_tui.foreign.cells import Outcome
from usv_tui.foreign.host import Host

_OWN = ("timer", "lock_clocks", "cache_flush", "flush_mb")
"""Arguments that ask for a way of timing that is not the running loop's."""


def alias(host: Host) -> None:
    """`import usv` gives this package, with its timing done by the running loop."""
    package = _package()
    before = sys.modules.get("usv")
    sys.modules["usv"] = package
    made = {"do_bench": _one(host), "do_bench_many": _many(host)}
    was = {name: vars(package).get(name) for name in made}
    vars(package).update(made)

    def undo() -> None:
        for name, value in was.items():
            if value is None:
                del vars(package)[name]
            else:
                setattr(package, name, value)
        if before is None:
            sys.modules.pop("usv", None)
        else:
            sys.modules["usv"] = before

    host.on_end(undo)


def _one(host: Host) -> Callable[..., Any]:
    many = _many(host)

    def do_bench(fn: Callable[[], object], **options: Any) -> Any:
        """As `usv_tui.do_bench`."""
        if not _is_taken(host, options):
            return _own("do_bench")(fn, **options)
        name = str(options.pop("name", "") or getattr(fn, "__name__", "callable"))
        for work in ("flops", "bytes"):
            if options.get(work) is not None:
                options[work] = {name: options[work]}
        return many({name: fn}, **options)[name]

    return do_bench


def _many(host: Host) -> Callable[..., Any]:
    def do_bench_many(fns: Mapping[str, Callable[[], object]], **options: Any) -> Any:
        """As `usv_tui.do_bench_many`."""
        if not _is_taken(host, options):
            return _own("do_bench_many")(fns, **options)
        bodies = [_body(host, fns, name, options) for name in fns]
        outcomes = dict(zip(fns, host.cells(bodies), strict=True))
        return _results(outcomes, options)

    return do_bench_many


def _package() -> Any:
    """This package, whose names are usv's."""
    return sys.modules[__name__.partition(".")[0]]


def _own(name: str) -> Any:
    """An entry point as it is where no script runs."""
    return _package().__getattr__(name)


def _is_taken(host: Host, options: Mapping[str, Any]) -> bool:
    own = any(options.get(name) not in (None, False, "auto") for name in _OWN)
    return host.is_ours() and not own


def _body(
    host: Host, fns: Mapping[str, Callable[[], object]], name: str, options: Mapping[str, Any]
) -> Callable[[], Answer]:
    group = ", ".join(fns) if len(fns) > 1 else ""
    inner = options.get("inner", 1)
    call = Call(
        fns[name],
        name,
        group=group,
        is_baseline=len(fns) > 1 and name == next(iter(fns)),
        seconds=float(options.get("min_iters_time") or 0.0),
        samples=int(options.get("iters", 100)),
        inner=None if inner == "auto" else max(1, int(inner)),
    )
    return lambda: host.in_place(call)


def _results(outcomes: Mapping[str, Outcome], options: Mapping[str, Any]) -> dict[str, Any]:
    """Measurements by name.

    Raises:
        BenchmarkFailed: a callable raised.
    """
    home = _package()
    found, errors = {}, {}
    for name, outcome in outcomes.items():
        if isinstance(outcome.error, Exception):
            errors[name] = outcome.error
            continue
        answer = outcome.get()
        found[name] = home.Measurement(
            samples=answer.seconds,
            name=name,
            flops=(options.get("flops") or {}).get(name),
            bytes=(options.get("bytes") or {}).get(name),
            timer="usv-tui",
        )
    if errors:
        raise home.BenchmarkFailed(found, errors) from next(iter(errors.values()))
    return found

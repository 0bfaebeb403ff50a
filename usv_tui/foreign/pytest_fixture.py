"""pytest-benchmark: tests of one module that hold nothing of their own are interleaved.

Loaded into pytest as a plugin. The test goes on when its callable was called once; its statistics
follow when the module's last test has run, or when somebody reads them. What depends on a fixture
of the test alone is timed where it stands, since that fixture ends with it. PYTEST_DONT_REWRITE:
it is imported before pytest is.
"""

import functools
import importlib
import time
from collections.abc import Callable
from typing import Any

from usv_tui.foreign.calls import Answer, Call
from usv_tui.foreign.host import Host

_OWN_LOOP = "timed by pytest-benchmark's own loop (its timer, or a profile)"
_FIXTURE = "a fixture of its own ends with the test"
_KEPT = ("module", "package", "session")
"""Scopes of fixtures that are still there when a module's last test has run."""


class _Present:
    """The run that this plugin belongs to, and the test that runs."""

    host: Host | None = None
    item: Any = None


def attach(host: Host | None) -> None:
    """Tests of this process are timed by this host; None: by pytest-benchmark itself."""
    _Present.host = host


def pytest_configure(config: Any) -> None:  # noqa: ARG001  pytest's name for it
    """Replace what the fixture times with."""
    host = _Present.host
    if host is None:
        return
    try:
        module: Any = importlib.import_module("pytest_benchmark.fixture")
    except ImportError:
        return
    fixture = module.BenchmarkFixture
    host.replace(fixture, "_raw", _raw(host, fixture._raw))
    host.replace(fixture, "_raw_pedantic", _pedantic(host, fixture._raw_pedantic))
    fixture.stats = property(_get_stats, _set_stats)
    host.on_end(lambda: delattr(fixture, "stats"))


def pytest_runtest_setup(item: Any) -> None:
    """The test that is about to run."""
    _Present.item = item


def pytest_runtest_teardown(item: Any, nextitem: Any) -> None:
    """Before the last test of a module gives its fixtures back, what waits is timed."""
    host = _Present.host
    is_last = nextitem is None or getattr(nextitem, "module", None) is not item.module
    if host is not None and is_last:
        host.flush()


pytest_runtest_teardown.pytest_impl = {"tryfirst": True}  # type: ignore[attr-defined]


def _get_stats(fixture: Any) -> Any:
    """Statistics that somebody reads are complete."""
    found = fixture.__dict__.get("_stats")
    if fixture.__dict__.pop("_is_waiting", False) and _Present.host is not None:
        _Present.host.flush()
    return found


def _set_stats(fixture: Any, value: Any) -> None:
    fixture.__dict__["_stats"] = value


def _raw(host: Host, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def raw(fixture: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if fixture.disabled or not host.is_ours():
            return original(fixture, function, *args, **kwargs)
        if fixture.cprofile or fixture._timer is not time.perf_counter:
            return _with_own_loop(host, original, fixture, (function, *args), kwargs)
        body = functools.partial(function, *args, **kwargs) if args or kwargs else function
        call = _call(fixture, body, fixture._max_time)
        stats = fixture._make_stats(1)

        def deliver(answer: Answer) -> None:
            if answer.error is not None:
                fixture.has_error = True
            for seconds in answer.seconds:
                stats.update(seconds)

        if _lasts(_Present.item):
            host.later(call, call.group, deliver)
            fixture.__dict__["_is_waiting"] = True
        else:
            deliver(host.in_place(call, _FIXTURE))
        return call.first_result

    return raw


def _pedantic(host: Host, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def pedantic(fixture: Any, target: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if fixture.disabled or not host.is_ours():
            return original(fixture, target, *args, **options)
        return _with_own_loop(host, original, fixture, (target, *args), options, rounds=True)

    return pedantic


def _with_own_loop(
    host: Host,
    original: Callable[..., Any],
    fixture: Any,
    args: tuple[Any, ...],
    kwargs: Any,
    *,
    rounds: bool = False,
) -> Any:
    """Rounds with a set-up each, and clocks of the user's, are the library's own."""
    with host.busy():
        result = original(fixture, *args, **kwargs)
    stats = fixture.__dict__.get("_stats")
    times = [] if stats is None else [float(t) for t in stats.stats.data]
    call = _call(fixture, args[0], 0.0)
    why = "timed by pytest-benchmark's own loop (pedantic)" if rounds else _OWN_LOOP
    host.elsewhere(call, times, why)
    return result


def _call(fixture: Any, fn: Callable[[], object], seconds: float) -> Call:
    name, _, inside = str(fixture.name).partition("[")
    params = fixture.params or {}
    plain = {key: value for key, value in params.items() if isinstance(value, int | float | str)}
    if inside and len(plain) < len(params):
        plain = {"case": inside.removesuffix("]")}
    group = str(fixture.group or getattr(getattr(_Present.item, "module", None), "__name__", ""))
    return Call(fn, name, plain, group=group, seconds=seconds)


def _lasts(item: Any) -> bool:
    """Whether all that a test was given is still there after it."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return False
    given = getattr(getattr(item, "callspec", None), "params", {})
    for name, definitions in info.name2fixturedefs.items():
        if name in ("benchmark", "request") or name in given or not definitions:
            continue
        if definitions[-1].scope not in _KEPT:
            return False
    return True

"""flashinfer.testing: `bench_gpu_time` gives the times of single calls in ms, at once."""

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from usv_tui.foreign.calls import Call
from usv_tui.foreign.host import CELL, Host
from usv_tui.foreign.triton_testing import graph_of

_NAMES = (
    *("bench_gpu_time", "bench_gpu_time_with_cuda_event", "bench_gpu_time_with_cudagraph"),
    "bench_gpu_time_with_cupti",
)
_OWN_LOOP = "timed by flashinfer's own loop ({})"
_OWN = ("aggregate_op",)
"""What only its own loop does: ranks that have to agree call together."""


def install(module: ModuleType, host: Host) -> None:
    """Replace the functions in the package and where it keeps them."""
    home = sys.modules.get("flashinfer.testing.utils", module)
    made: dict[str, Any] = {}
    for owner in {id(module): module, id(home): home}.values():
        for name in _NAMES:
            original = vars(owner).get(name)
            if original is None or getattr(original, "_is_ours", False):
                continue
            made[name] = made.get(name) or _bench(host, name, original)
            host.replace(owner, name, made[name])


def _bench(host: Host, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def bench(*args: Any, **options: Any) -> Any:
        if not host.is_ours():
            return original(*args, **options)
        given = signature.bind(*args, **options)
        given.apply_defaults()
        asked: dict[str, Any] = dict(given.arguments)
        if any(asked.get(own) is not None for own in _OWN):
            return _with_own_loop(host, original, args, options, asked)
        call = _call(host, name, asked)
        return [seconds * 1e3 for seconds in host.in_place(call).seconds]

    bench._is_ours = True  # type: ignore[attr-defined]
    return bench


def _call(host: Host, name: str, asked: dict[str, Any]) -> Call:
    fn, label = asked["fn"], CELL.get()
    positional, named = asked.get("input_args") or (), asked.get("input_kwargs") or {}
    body = functools.partial(fn, *positional, **named) if positional or named else fn
    iters = asked.get("repeat_iters")
    is_graph = bool(asked.get("use_cuda_graph")) or name.endswith("cudagraph")
    call = Call(
        body,
        label.name if label else host.call_site(fn),
        dict(label.params) if label else {},
        group=label.group if label else "",
        seconds=0.0 if iters else float(asked.get("repeat_time_ms") or 100) / 1e3,
        samples=int(iters) if iters else None,
        is_cold=bool(asked.get("cold_l2_cache", asked.get("l2_flush", True))) and not is_graph,
    )
    if is_graph:
        with host.busy():
            call.fn, call.calls = graph_of(body, None)
    return call


def _with_own_loop(
    host: Host, original: Callable[..., Any], args: Any, options: Any, asked: dict[str, Any]
) -> Any:
    with host.busy():
        found = original(*args, **options)
    call = Call(asked["fn"], host.call_site(asked["fn"]))
    why = _OWN_LOOP.format(", ".join(own for own in _OWN if asked.get(own) is not None))
    host.elsewhere(call, [float(ms) / 1e3 for ms in found], why)
    return found

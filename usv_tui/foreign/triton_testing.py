"""triton.testing: the providers of one x of a perf_report are interleaved, and its table has that.

A `do_bench` outside of a perf_report is timed where it stands: its value is needed at once.
"""

import functools
import inspect
import statistics
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from usv_tui.foreign.calls import Call
from usv_tui.foreign.cells import Outcome
from usv_tui.foreign.host import CELL, Host, Label

_PROTON = "timed by Triton's profiler"
_GRAPH_S = 1e-3
"""A graph holds calls for about so long."""
_MOST_IN_GRAPH = 1000


def install(module: ModuleType, host: Host) -> None:
    """Replace the functions that time, and what runs a perf_report."""
    for name, make in (
        ("do_bench", _do_bench),
        ("do_bench_cudagraph", _do_bench_cudagraph),
        ("do_bench_proton", _do_bench_proton),
        ("do_bench_cudagraph_proton", _do_bench_proton),
    ):
        original = getattr(module, name, None)
        if original is not None:
            host.replace(module, name, make(module, host, original))
    mark = getattr(module, "Mark", None)
    if mark is not None and hasattr(mark, "_run"):
        host.replace(mark, "_run", _run(host, mark._run))
    _also_in_parents(module, host)


def _also_in_parents(module: ModuleType, host: Host) -> None:
    """Triton's packages may have taken the functions by name before they were replaced."""
    parent = sys.modules.get(module.__name__.partition(".")[0])
    for name in ("do_bench", "do_bench_cudagraph"):
        if parent is not None and name in vars(parent):
            host.replace(parent, name, getattr(module, name))


def _do_bench(module: Any, host: Host, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def do_bench(fn: Callable[[], object], *args: Any, **options: Any) -> Any:
        if not host.is_ours():
            return original(fn, *args, **options)
        given = inspect.signature(original).bind(fn, *args, **options)
        given.apply_defaults()
        asked = given.arguments
        call = _call(
            host,
            fn,
            float(asked.get("rep", 100)),
            is_cold=True,
            reset=clearing(asked.get("grad_to_none")),
        )
        mode = str(asked.get("return_mode", "mean"))
        return _summary(module, host.in_place(call).seconds, asked.get("quantiles"), mode)

    return do_bench


def _do_bench_cudagraph(
    module: Any, host: Host, original: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def do_bench_cudagraph(
        fn: Callable[[], object],
        rep: float = 20,
        grad_to_none: Any = None,
        quantiles: Any = None,
        return_mode: str = "mean",
    ) -> Any:
        if not host.is_ours():
            return original(fn, rep, grad_to_none, quantiles, return_mode)
        with host.busy():
            replay, calls = graph_of(fn, grad_to_none)
        call = _call(host, replay, rep * 10)  # ten replays of `rep` each, as Triton does
        call.calls = calls
        return _summary(module, host.in_place(call).seconds, quantiles, return_mode)

    return do_bench_cudagraph


def _do_bench_proton(module: Any, host: Host, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def do_bench_proton(fn: Callable[[], object], *args: Any, **options: Any) -> Any:
        if not host.is_ours():
            return original(fn, *args, **options)
        quantiles = options.pop("quantiles", None)
        mode = options.pop("return_mode", "mean")
        with host.busy():
            times_ms = original(fn, *args, quantiles=None, return_mode="all", **options)
        call = _call(host, fn, 0.0)
        host.elsewhere(call, [ms / 1e3 for ms in times_ms], _PROTON)
        return _summary(module, [ms / 1e3 for ms in times_ms], quantiles, mode)

    return do_bench_proton


def _call(host: Host, fn: Callable[[], object], rep_ms: float, **options: Any) -> Call:
    label = CELL.get()
    if label is None:
        return Call(fn, host.call_site(fn), seconds=rep_ms / 1e3, **options)
    return Call(
        fn,
        label.name,
        label.params,
        group=label.group,
        is_baseline=label.is_baseline,
        seconds=rep_ms / 1e3,
        **options,
    )


def clearing(tensors: Any) -> Callable[[], object] | None:
    """What takes these tensors' gradients away; None where there are none."""
    if tensors is None:
        return None

    def clear() -> None:
        for tensor in tensors:
            tensor.grad = None

    return clear


def graph_of(fn: Callable[[], object], tensors: Any) -> tuple[Callable[[], object], int]:
    """A CUDA graph of some calls; without CUDA the callable itself."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return fn, 1
    clear = clearing(tensors) or (lambda: None)
    with torch.cuda.stream(torch.cuda.Stream()):
        fn()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            fn()
        end.record()
        torch.cuda.synchronize()
        once_s = max(begin.elapsed_time(end) / 5e3, 1e-7)
        calls = max(1, min(_MOST_IN_GRAPH, round(_GRAPH_S / once_s)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                clear()
                fn()
        torch.cuda.synchronize()
    return graph.replay, calls


def _summary(module: Any, seconds: list[float], quantiles: Any, mode: str) -> Any:
    """What the function would have returned of these windows, in ms."""
    times = [s * 1e3 for s in seconds]
    summarise = getattr(module, "_summarize_statistics", None)
    if summarise is not None:
        try:
            return summarise(times, quantiles, mode)
        except (AttributeError, TypeError):  # older ones want a tensor
            torch: Any = sys.modules["torch"]
            return summarise(torch.tensor(times, dtype=torch.float), quantiles, mode)
    if quantiles is not None:
        ordered = sorted(times)
        found = [ordered[round(q * (len(ordered) - 1))] for q in quantiles]
        return found[0] if len(found) == 1 else found
    modes: Mapping[str, Callable[[list[float]], Any]] = {
        "min": min,
        "max": max,
        "median": statistics.median,
        "all": list,
    }
    return modes.get(mode, statistics.mean)(times)


# -- perf_report


def _run(host: Host, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(mark: Any, bench: Any, *args: Any, **options: Any) -> Any:
        if not host.is_ours():
            return original(mark, bench, *args, **options)
        own = mark.fn
        mark.fn = _Grid(host, bench, own)
        try:
            return original(mark, bench, *args, **options)
        finally:
            mark.fn = own

    return run


class _Grid:
    """Stands in the place of the function that times one provider at one x."""

    def __init__(self, host: Host, bench: Any, fn: Callable[..., Any]) -> None:
        self._host = host
        self._bench = bench
        self._fn = fn
        self._ahead: deque[tuple[Any, Outcome]] = deque()
        """Of the present x: each provider's outcome, in the order in which they are asked for."""

    def __call__(self, **given: Any) -> Any:
        """At the first provider of an x all of them run; then each has its own."""
        line = self._bench.line_arg
        if not self._ahead:
            vals = list(self._bench.line_vals)
            bodies = [self._body(given, i, val) for i, val in enumerate(vals)]
            self._ahead.extend(zip(vals, self._host.cells(bodies), strict=True))
        val, outcome = self._ahead.popleft()
        if val is not given[line]:
            self._ahead.clear()
            return self._fn(**given)
        return outcome.get()

    def _body(self, given: Mapping[str, Any], i: int, val: Any) -> Callable[[], Any]:
        bench = self._bench
        names = list(getattr(bench, "line_names", ()) or ())
        line_name = names[i] if i < len(names) else val
        sizes = {name: given[name] for name in bench.x_names if name in given}
        title = str(bench.plot_name or getattr(self._fn, "__name__", "") or "perf_report")
        label = Label(
            title.replace("[", "(").replace("]", ")"),
            {**sizes, bench.line_arg: line_name},
            group=", ".join([title, *(f"{key}={value}" for key, value in sizes.items())]),
            is_baseline=i == 0 and len(bench.line_vals) > 1,
        )

        def body() -> Any:
            CELL.set(label)
            return self._fn(**{**given, bench.line_arg: val})

        return body

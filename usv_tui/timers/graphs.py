"""Graph mode: capture a callable once, check the replay against an eager run, or stay eager.

A capture can lose work without a word: launches that are not recorded, results that are stale. So
the captured outputs are poisoned before the replay that is compared, and its time is compared too.
Takes `torch` as an argument and imports nothing of it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.timers.devices import Family

_WARM_CALLS = 3
_TOO_FAST = 0.4
"""A replay below this share of the covered eager time has lost work: gaps are not in either."""
_ENOUGH_NS = 20_000
"""Shorter eager times are mostly spacing between launches, which a graph really saves."""


class Captured(NamedTuple):
    """What to time from now on, and as what."""

    fn: Callable[[], object]
    mode: str
    """graph or eager."""
    findings: list[Finding]
    keep: object = None
    """What the replay reads and writes: to be held for as long as it is called."""


def capture(
    torch: Any,
    family: Family,
    fn: Callable[[], object],
    *,
    reset: Callable[[], object] | None = None,
    covered_ns: Callable[[Callable[[], object]], float],
) -> Captured:
    """Capture `fn` and return its replay; or `fn` itself, with the reason as a finding.

    `covered_ns` times one call behind a spin, so that neither time has a launch gap in it.
    """
    gpu = family.gpu
    prepare = reset or _nothing
    try:
        side = gpu.Stream()
        eager = _warm(gpu, family.kind, side, fn, prepare)
        graph, outputs = _record(gpu, side, fn, prepare)
    except Exception as error:  # noqa: BLE001  whatever it is, the eager callable still works
        return _eager(fn, Code.GRAPH_REFUSED, reason=_first_line(error))
    replay: Callable[[], object] = graph.replay
    problem = _compare(torch, gpu, replay, list(tensors_on(family.kind, outputs)), eager, prepare)
    if problem:
        return _eager(fn, Code.GRAPH_DIFFERS, reason=problem)
    prepare()
    eager_ns = covered_ns(fn)
    prepare()
    replay_ns = covered_ns(replay)
    if eager_ns >= _ENOUGH_NS and replay_ns < _TOO_FAST * eager_ns:
        reason = (
            f"a replay takes {replay_ns / 1e3:.4g} µs, an eager call {eager_ns / 1e3:.4g} µs: "
            "work is missing from the graph"
        )
        return _eager(fn, Code.GRAPH_DIFFERS, reason=reason, eager_ns=eager_ns, replay_ns=replay_ns)
    return Captured(replay, "graph", [], (graph, fn, outputs))


def _nothing() -> None:
    pass


def _eager(fn: Callable[[], object], code: Code, **evidence: Any) -> Captured:
    return Captured(fn, "eager", [finding(code, **evidence)])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class _Eager(NamedTuple):
    """The results of two eager calls."""

    tensors: list[Any]
    """The last ones themselves: while they live, no captured output has their address."""
    last: list[Any]
    """Copies."""
    before: list[Any]


def _warm(
    gpu: Any, kind: str, side: Any, fn: Callable[[], object], prepare: Callable[[], object]
) -> _Eager:
    """Eager calls on the stream of the capture."""
    side.wait_stream(gpu.current_stream())
    copies: list[list[Any]] = []
    tensors: list[Any] = []
    with gpu.stream(side):
        for _ in range(_WARM_CALLS):
            prepare()
            tensors = list(tensors_on(kind, fn()))
            copies.append([tensor.detach().clone() for tensor in tensors])
    gpu.synchronize()
    return _Eager(tensors, copies[-1], copies[-2])


def _record(
    gpu: Any, side: Any, fn: Callable[[], object], prepare: Callable[[], object]
) -> tuple[Any, object]:
    """The graph and what the callable returned while it was captured.

    Raises:
        RuntimeError: something in it cannot be captured. The side stream captures no more.
    """
    make = getattr(gpu, "CUDAGraph", None)
    if make is None:
        raise RuntimeError("this kind of device has no graphs")
    graph, options = _new_graph(make)
    prepare()
    gpu.synchronize()
    with gpu.stream(side):
        # thread_local: what other threads ask of the driver meanwhile is none of our business
        graph.capture_begin(**options)
        try:
            outputs = fn()
        except BaseException as error:
            try:
                graph.capture_end()
            except RuntimeError as second:
                error.add_note(f"and the capture ended with: {_first_line(second)}")
            raise
        graph.capture_end()
    return graph, outputs


def _new_graph(make: Callable[..., Any]) -> tuple[Any, dict[str, str]]:
    """A graph, and what its capture has to be told: generic graphs are told when they are made."""
    mode = {"capture_error_mode": "thread_local"}
    try:
        return make(**mode), {}
    except TypeError:
        return make(), mode


def _compare(
    torch: Any,
    gpu: Any,
    replay: Callable[[], object],
    outputs: list[Any],
    eager: _Eager,
    prepare: Callable[[], object],
) -> str:
    """What is wrong with a replay's results; empty when nothing is, or nothing can be told."""
    if len(outputs) != len(eager.last):
        return f"{len(outputs)} tensors come back from a capture, {len(eager.last)} from a call"
    if not all(_same(torch, a, b) for a, b in zip(eager.last, eager.before, strict=True)):
        return ""  # eager calls differ among themselves
    # A result that is the same memory each time may be an input too: it is left as it is.
    fixed = {tensor.data_ptr() for tensor in eager.tensors}
    for tensor in outputs:
        if tensor.data_ptr() not in fixed:
            tensor.detach().fill_(float("nan") if tensor.is_floating_point() else 0)
    prepare()
    replay()
    gpu.synchronize()
    if all(_same(torch, a, b) for a, b in zip(outputs, eager.last, strict=True)):
        return ""
    return "the results of a replay differ from an eager call's"


def _same(torch: Any, a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    return bool(
        a.is_floating_point() and torch.allclose(a, b, rtol=1e-2, atol=1e-3, equal_nan=True)
    )


def tensors_on(kind: str, value: object, depth: int = 3) -> Iterator[Any]:
    """The tensors in a result that are on a kind of device."""
    if hasattr(value, "data_ptr"):
        if getattr(getattr(value, "device", None), "type", "") == kind:
            yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors_on(kind, item, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from tensors_on(kind, item, depth - 1)

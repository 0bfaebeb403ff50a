"""The lie, measured: one row timed in four ways, of which people take the wrong one.

Without waiting for the device the host's clock sees only the launch: the nod. With one wait it sees
the work and the wait. Events see the work. And a first call pays for compilation and set-up.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from usv_tui import plain
from usv_tui.diagnosis.checks import vet_result
from usv_tui.engine.calibrate import calibrate
from usv_tui.engine.warmup import Levelling
from usv_tui.errors import one_line
from usv_tui.model import Benchmark
from usv_tui.suite.rows import assemble
from usv_tui.timers.wall import Slot, Timer
from usv_tui.timesource import NS_PER_S

_WARM_CALLS = 2
_CALLS = 15
_WINDOW_S = 1e-3
_BUDGET_NS = NS_PER_S
"""Each way of timing stops repeating after this; it never does less than one call."""
_APART = 2.0
_ALIKE_S = 2e-6
"""Less than this is what reading the clock costs."""
_BUSY_NS = 300_000_000
"""A card that idled during a long first call has its clock up again after this."""


class LieRow(NamedTuple):
    """Seconds of one call, four times over. None where the row failed before."""

    name: str
    first_s: float | None = None
    """The very first call, waited for."""
    nod_s: float | None = None
    """Until the call returned, nothing waited for."""
    synced_s: float | None = None
    """Until the device had done it, one call at a time."""
    timed_s: float | None = None
    """By the timer, in windows of about a millisecond."""
    error: str = ""

    @property
    def factor(self) -> float | None:
        """How many times longer the work is than the nod."""
        if not self.nod_s or self.timed_s is None:
            return None
        return self.timed_s / self.nod_s


class Lie(NamedTuple):
    """All rows, and what this device can and cannot show."""

    rows: tuple[LieRow, ...]
    timer: str
    shows: str
    lacks: str = ""
    has_nod: bool = True
    """A call returns before its work is done: what an unsynchronised clock misses can be told."""


def measure_lie(
    benchmarks: Sequence[Benchmark],
    device: str,
    timer: Timer,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Lie:
    """Time each benchmark in the four ways, in the calling thread. A row that fails says why."""
    rows = tuple(_row(benchmark, device, timer, clock) for benchmark in benchmarks)
    if timer.info.name == "wall" and device == "cpu" and not getattr(timer, "is_waiting", False):
        return Lie(
            rows,
            timer.info.name,
            "what a first call costs, and a call by itself against calls in a row",
            f"the nod: on the host a call returns when its work is done{_agreement(rows)}",
            has_nod=False,
        )
    is_simulated = timer.info.name.startswith("sim")
    shows = "how much of the work a host clock misses when nobody waits"
    return Lie(rows, timer.info.name, shows, "a real device: this one is simulated" * is_simulated)


def _agreement(rows: Sequence[LieRow]) -> str:
    """Whether the three times that need no device are alike, as they were measured."""
    apart: list[str] = []
    for row in rows:
        times = [t for t in (row.nod_s, row.synced_s, row.timed_s) if t is not None]
        if times and max(times) > _APART * min(times) and max(times) - min(times) > _ALIKE_S:
            apart.append(f"{plain.name(row.name, 40)} ({max(times) / min(times):.3g}x)")
    if not apart:
        return ", so the three times are alike"
    return (
        f"; where the three differ all the same, {plain.some(apart)}, it is the caches, threads "
        "that have to wake, or other work on the host"
    )


def _row(benchmark: Benchmark, device: str, timer: Timer, clock: Callable[[], int]) -> LieRow:
    row = LieRow(benchmark.name)
    try:
        built = assemble(benchmark, device)
        slot = Slot(0, built.fn, reset=built.reset, stream=built.stream)
        row = row._replace(first_s=_call(timer, slot, clock, waits=True, is_first=True))
        for _ in range(_WARM_CALLS):
            _call(timer, slot, clock, waits=True)
        _warm(timer, slot, clock)
        row = row._replace(nod_s=_typical(timer, slot, clock, waits=False))
        row = row._replace(synced_s=_typical(timer, slot, clock, waits=True))
        return row._replace(timed_s=_timed(timer, slot, benchmark.inner, clock))
    except Exception as error:  # noqa: BLE001  a benchmark may raise anything
        return row._replace(error=one_line(error))


def _call(
    timer: Timer, slot: Slot, clock: Callable[[], int], *, waits: bool, is_first: bool = False
) -> float:
    """Seconds of one call that begins on an idle device."""
    if slot.reset is not None:
        slot.reset()
    timer.synchronize()
    start_ns = clock()
    result = slot.fn()
    if is_first:
        timer.meet(slot, result)
    if waits:
        timer.synchronize()
    took_ns = clock() - start_ns
    fault = vet_result(result)
    if fault is not None:
        raise fault
    return took_ns / NS_PER_S


def _typical(timer: Timer, slot: Slot, clock: Callable[[], int], *, waits: bool) -> float:
    """The median of some calls."""
    began_ns = clock()
    seconds: list[float] = []
    while len(seconds) < _CALLS and (not seconds or clock() - began_ns < _BUDGET_NS):
        seconds.append(_call(timer, slot, clock, waits=waits))
    timer.synchronize()
    return statistics.median(seconds)


def _timed(timer: Timer, slot: Slot, inner: int | None, clock: Callable[[], int]) -> float | None:
    """The median window of the timer, for one call; None when it never saw a positive one."""
    found = calibrate(timer, slot, _WINDOW_S, inner=inner, clock=clock)
    if found.error is not None:
        raise found.error
    slot.inner = found.inner
    _warm(timer, slot, clock)
    windows: list[int] = []
    began_ns = clock()
    while len(windows) < _CALLS and (not windows or clock() - began_ns < _BUDGET_NS):
        windows += _windows(timer, slot, 5)
    good = [w for w in windows if w > 0]
    return statistics.median(good) / slot.inner / NS_PER_S if good else None


def _warm(timer: Timer, slot: Slot, clock: Callable[[], int]) -> None:
    """Keep the device busy until the windows have levelled: the waits before let it idle."""
    levelling = Levelling(_BUSY_NS)
    began_ns = clock()
    while not levelling.is_level and clock() - began_ns < _BUDGET_NS:
        now_ns = clock()
        for window_ns in _windows(timer, slot, 1):
            levelling.add(now_ns, window_ns / slot.inner)


def _windows(timer: Timer, slot: Slot, n: int) -> list[int]:
    """The lengths of `n` windows that were enqueued together."""
    failure = timer.enqueue(0, [slot] * n)
    windows = [w for record in timer.harvest(wait=True) for w in record.window_ns]
    if failure is not None:
        raise failure[1]
    return windows

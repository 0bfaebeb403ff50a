"""The device's clock: pooled events, their place on the session's clock, and the timer's grain.

Takes `torch.cuda` as an argument and imports nothing of it.
"""

import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from usv_tui.errors import TimerError
from usv_tui.timesource import NS_PER_S

_NS_PER_MS = 1_000_000
_ANCHOR_TRIES = 5
_CHECK_NS = 2_000_000
_MAX_RATE = 1e-3
"""Two clocks that differ by more than this are not both clocks: the rate is then left alone."""


class EventPool:
    """Timing events that are used again, so that none is made inside a window."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._is_blocking = True
        self.free: list[Any] = []
        self.made = 0
        """Events that exist because of this pool."""

    def reserve(self, n: int) -> None:
        """Have at least `n` events ready. Each is recorded once: the driver makes it only then."""
        if len(self.free) >= n:
            return
        stream = self._cuda.current_stream()
        while len(self.free) < n:
            event = self._make()
            event.record(stream)
            self.free.append(event)

    def take(self) -> Any:
        """A free event, or a new one when none was reserved."""
        return self.free.pop() if self.free else self._make()

    def give(self, *events: Any) -> None:
        """Put events back; they may still be pending, and are recorded anew before use."""
        self.free.extend(events)

    def _make(self) -> Any:
        self.made += 1
        # blocking: a host that waits for one sleeps instead of burning the core that feeds the GPU
        if self._is_blocking:
            try:
                return self._cuda.Event(enable_timing=True, blocking=True)
            except TypeError:
                self._is_blocking = False
        return self._cuda.Event(enable_timing=True)


class StreamClock:
    """Puts events onto the session's clock, by an anchor: an event whose host time is known.

    An anchor is found without waiting for the device: the host looks at an event again and again
    and notes between which two looks it came. `elapsed_time` is a float32 in milliseconds and
    coarsens with distance, and the two clocks drift, so a new anchor is due every few seconds.
    """

    def __init__(
        self,
        cuda: Any,
        pool: EventPool,
        clock: Callable[[], int],
        every_ns: int = 2 * NS_PER_S,
    ) -> None:
        self._cuda = cuda
        self._pool = pool
        self._clock = clock
        self._every_ns = every_ns
        self._interval_ns = every_ns / 64
        """To the next anchor. Short at first, while it is not known how the two clocks drift."""
        self._rate = 0.0
        """Host seconds per device second, less one."""
        self.event: Any = None
        """The anchor. Its owner is this clock: it must not go back to the pool."""
        self._host_ns = 0
        self._due_ns = 0
        self.anchor_idle()

    def at_ns(self, event: Any) -> int:
        """Session time of an event that has been reached, at or after the anchor."""
        ms: float = self.event.elapsed_time(event)
        if not math.isfinite(ms):
            return self._clock()
        return self._host_ns + round(ms * _NS_PER_MS * (1 + self._rate))

    def is_due(self) -> bool:
        """True when the anchor is old."""
        return self._clock() >= self._due_ns

    def anchor_idle(self) -> None:
        """Take a new anchor while the device has nothing else to do: the best of a few tries."""
        best: tuple[int, int, Any] | None = None
        stream = self._cuda.current_stream()
        for _ in range(_ANCHOR_TRIES):
            event = self._pool.take()
            before_ns = self._clock()
            event.record(stream)
            found = self.watch(event, NS_PER_S)
            if found is None:
                event.synchronize()
            low_ns, high_ns = found or (before_ns, self._clock())
            if best is None or high_ns - low_ns < best[1] - best[0]:
                if best is not None:
                    self._pool.give(best[2])
                best = (low_ns, high_ns, event)
            else:
                self._pool.give(event)
        assert best is not None
        self.move(best[2], best[0], best[1])

    def watch(self, event: Any, budget_ns: int) -> tuple[int, int] | None:
        """Look until an event is reached; the times between which it was, in ns.

        None when it had been reached before the first look, or was not within the budget.
        """
        before_ns = self._clock()
        give_up_ns = before_ns + budget_ns
        low_ns: int | None = None
        while True:
            is_reached = event.query()
            after_ns = self._clock()
            if is_reached:
                return None if low_ns is None else (low_ns, after_ns)
            if after_ns > give_up_ns:
                return None
            low_ns = before_ns
            before_ns = after_ns

    def move(self, event: Any, low_ns: int, high_ns: int) -> None:
        """Make an event the anchor, reached between two host times."""
        host_ns = (low_ns + high_ns) // 2
        if self.event is not None:
            device_ns = self.event.elapsed_time(event) * _NS_PER_MS
            if device_ns > self._interval_ns / 2:
                rate = (host_ns - self._host_ns) / device_ns - 1
                if abs(rate) < _MAX_RATE:
                    self._rate = rate
                self._interval_ns = min(self._every_ns, 4 * self._interval_ns)
            self._pool.give(self.event)
        self.event = event
        self._host_ns = host_ns
        self._due_ns = host_ns + round(self._interval_ns)


class SleepRate(NamedTuple):
    """How long the device's spin kernel spins: `overhead_ns + cycles * ns_per_cycle`."""

    ns_per_cycle: float
    overhead_ns: float

    def cycles(self, ns: float) -> int:
        """Cycles for a spin of about this length, at the clock of the calibration."""
        return max(1, round(ns / self.ns_per_cycle))


def calibrate_sleep(cuda: Any, pool: EventPool) -> SleepRate | None:
    """Time the spin kernel at two lengths; None when this build of torch has none that works."""
    sleep = getattr(cuda, "_sleep", None)
    if sleep is None:
        return None
    short, long = 20_000, 220_000
    try:
        sleep(short)  # the first launch loads the kernel
        took = {cycles: _spins(cuda, pool, sleep, cycles) for cycles in (short, long)}
    except (RuntimeError, TypeError):  # NotImplementedError is a RuntimeError
        # A private function: where it does not work, there is no blocker, and the timer says so.
        return None
    slope = (took[long] - took[short]) / (long - short)
    if slope <= 0:
        return None
    return SleepRate(slope, max(0.0, took[short] - slope * short))


def _spins(cuda: Any, pool: EventPool, sleep: Callable[[int], object], cycles: int) -> float:
    """The shortest of five spins, in ns."""
    pairs = [(pool.take(), pool.take()) for _ in range(5)]
    for start, end in pairs:
        start.record()
        sleep(cycles)
        end.record()
    cuda.synchronize()
    shortest = min(start.elapsed_time(end) for start, end in pairs) * _NS_PER_MS
    for pair in pairs:
        pool.give(*pair)
    return float(shortest)


def check_events(pool: EventPool, clock: Callable[[], int]) -> None:
    """Hold two events some milliseconds apart against the host's clock.

    Raises:
        TimerError: they tell no time.
    """
    start, end = pool.take(), pool.take()
    start.record()
    start.synchronize()
    before_ns = clock()
    while (host_ns := clock() - before_ns) < _CHECK_NS:
        start.query()
    end.record()
    end.synchronize()
    hint = "--timer wall times the host"
    try:
        ms = float(start.elapsed_time(end))
    except (RuntimeError, TypeError, ValueError) as error:
        raise TimerError(f"this device's events tell no time: {error}", hint) from error
    pool.give(start, end)
    if not 0 < ms < math.inf:
        raise TimerError(
            f"this device's events read {ms:g} ms after {host_ns / _NS_PER_MS:.1f} ms: "
            "event timing does not work here",
            hint,
        )


def measure_floor(
    cuda: Any, pool: EventPool, sleep: SleepRate | None, pairs: int = 100
) -> tuple[int | None, int]:
    """(resolution, floor) in ns: smallest step between lengths, and the median empty window.

    The pairs are queued behind a spin where there is one, so that the device takes them in a row.
    The resolution is None when all lengths are equal.
    """
    events = [pool.take() for _ in range(2 * pairs)]
    stream = cuda.current_stream()
    if sleep is not None:
        cuda._sleep(sleep.cycles(2e6))  # noqa: SLF001  torch's own name for the spin kernel
    for event in events:
        event.record(stream)
    cuda.synchronize()
    marks = [events[0].elapsed_time(event) * _NS_PER_MS for event in events]
    empty = [
        start.elapsed_time(end) * _NS_PER_MS
        for start, end in zip(events[::2], events[1::2], strict=True)
    ]
    pool.give(*events)
    lengths = sorted({round(b - a) for a, b in itertools.pairwise(marks)})
    steps = [b - a for a, b in itertools.pairwise(lengths)]
    return (min(steps) if steps else None), round(statistics.median(empty))

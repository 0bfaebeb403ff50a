"""The device's clock: where events are on the session's clock, and the timer's grain.

Takes what times a kind of accelerator as an argument and imports nothing of torch.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from usv_tui.errors import TimerError
from usv_tui.timers.abilities import WALL_HINT
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.spin import Spin, stamped_early
from usv_tui.timesource import NS_PER_S

_NS_PER_MS = 1_000_000
_ANCHOR_TRIES = 5
_CHECK_NS = 2_000_000
_RATES = 0.7, 1.4
"""Both clocks agree within this, or one of them is in other units."""
_CHECKS = 5
_TIGHT = 1.2
"""A host that was held up between the events says little of them."""
_FLOOR_SPIN_NS = 2_000_000
_LONGEST_FLOOR_SPIN_NS = 30_000_000
_MAX_RATE = 1e-3
"""Two clocks that differ by more than this are not both clocks: the rate is then left alone."""


class StreamClock:
    """Puts events onto the session's clock, by an anchor: an event whose host time is known.

    An anchor is found without waiting for the device: the host looks at an event again and again
    and notes between which two looks it came. `elapsed_time` is a float32 in milliseconds and
    coarsens with distance, and the two clocks drift, so a new anchor is due every few seconds.
    """

    def __init__(
        self,
        gpu: Any,
        pool: EventPool,
        clock: Callable[[], int],
        every_ns: int = 2 * NS_PER_S,
    ) -> None:
        self._gpu = gpu
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
        stream = self._gpu.current_stream()
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


def mark(gpu: Any, stream: Any = None) -> Callable[[], bool] | None:
    """Mark what is queued; the answer tells whether the device is past it. None: nothing tells."""
    here = stream
    try:
        here = here or gpu.current_stream()
        event = gpu.Event()
        event.record(here)
        event.query()
    except Exception:  # noqa: BLE001  a backend without such events may raise anything
        return _stream_query(here)
    return lambda: bool(event.query())


def _stream_query(stream: Any) -> Callable[[], bool] | None:
    try:
        stream.query()
    except Exception:  # noqa: BLE001  a backend whose streams do not tell may raise anything
        return None
    return lambda: bool(stream.query())


def holds_back(is_done: Callable[[], bool], wait: Callable[[], object]) -> bool | None:
    """Whether the device is past a mark when `wait` returns; None where it was so before."""
    if is_done():
        return None
    wait()
    return is_done()


def early(wait: str) -> TimerError:
    """What is to wait for the device does not."""
    return TimerError(f"this device's {wait} returns before its work is done", WALL_HINT)


def check_events(gpu: Any, pool: EventPool, clock: Callable[[], int]) -> None:
    """Hold two events some milliseconds apart against the host's clock.

    Raises:
        TimerError: they tell no time, or not in milliseconds.
    """
    looks: list[tuple[int, int, float]] = []
    while len(looks) < _CHECKS and not any(most < _TIGHT * least for least, most, _ in looks):
        looks.append(_bracketed(gpu, pool, clock))
    least_ns, most_ns, ms = min(looks, key=lambda look: look[1] / look[0])
    is_done = mark(gpu)
    if is_done is not None and holds_back(is_done, gpu.synchronize) is False:
        raise early("synchronize")
    if not _RATES[0] * least_ns < ms * _NS_PER_MS < _RATES[1] * most_ns:
        raise TimerError(
            f"this device's events read {ms:g} ms after {most_ns / _NS_PER_MS:.1f} ms: "
            "event timing does not work here",
            WALL_HINT,
        )


def _bracketed(gpu: Any, pool: EventPool, clock: Callable[[], int]) -> tuple[int, int, float]:
    """The least and the most, in ns, that can lie between two events, and the ms that they read."""
    start, end = pool.take(), pool.take()
    stream = gpu.current_stream()
    before_ns = clock()
    start.record(stream)
    start.synchronize()
    reached_ns = clock()
    while clock() - reached_ns < _CHECK_NS:
        start.query()
    least_ns = clock() - reached_ns
    end.record(stream)
    end.synchronize()
    most_ns = clock() - before_ns
    if not end.query():
        raise early("Event.synchronize")
    ms = _elapsed_ms(start, end)
    pool.give(start, end)
    return least_ns, most_ns, ms


def check_waits(gpu: Any, pool: EventPool, spin: Spin, clock: Callable[[], int]) -> None:
    """See whether those who wait do, and whether events are stamped where the device reaches them.

    Raises:
        TimerError: work goes on after a synchronise, or an event's time is that of its launch.
    """
    stream = gpu.current_stream()
    start, end = pool.take(), pool.take()
    waits = ("synchronize", gpu.synchronize), ("Event.synchronize", end.synchronize)
    seen: list[tuple[float, int]] = []
    for name, wait in 2 * waits:
        start.record(stream)
        spin.put(_CHECK_NS)
        end.record(stream)
        put_ns = clock()
        wait()
        is_done, busy_ns = end.query(), clock() - put_ns
        if not is_done:
            raise early(name)
        seen.append((_elapsed_ms(start, end), busy_ns))
    pool.give(start, end)
    # A host that came late makes one look long, and not all of them.
    if all(busy_ns > max(_CHECK_NS / 2, 4 * ms * _NS_PER_MS) for ms, busy_ns in seen):
        raise stamped_early(seen[0][0] * _NS_PER_MS, seen[0][1])


def _elapsed_ms(start: Any, end: Any) -> float:
    try:
        ms = float(start.elapsed_time(end))
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise TimerError(f"this device's events tell no time: {error}", WALL_HINT) from error
    return ms if math.isfinite(ms) else 0.0


class Floor(NamedTuple):
    """What an empty window reads."""

    resolution_ns: int | None
    """Smallest step between lengths; None when all are equal."""
    floor_ns: int
    is_host: bool
    """The device could not be kept busy meanwhile: the pairs came as slowly as the host sends."""


def measure_floor(gpu: Any, pool: EventPool, spin: Spin | None, pairs: int = 100) -> Floor:
    """The median of empty windows, taken while the device is busy before them.

    The pairs are queued behind a spin, a longer one when the host was late, so that the device
    takes them in a row. Where that cannot be had, no pair is known to be shorter than the host's
    way from one event to the next, and the floor is called the host's.
    """
    events = [pool.take() for _ in range(2 * pairs)]
    stream = gpu.current_stream()
    spin_ns, is_ahead, host_ns = _FLOOR_SPIN_NS, False, 0.0
    while True:
        if spin is not None:
            spin.put(spin_ns)
        before_ns = time.perf_counter_ns()
        for event in events:
            event.record(stream)
        host_ns = (time.perf_counter_ns() - before_ns) / len(events)
        is_ahead = spin is not None and not events[0].query()
        gpu.synchronize()
        if is_ahead or spin is None or spin_ns > _LONGEST_FLOOR_SPIN_NS:
            break
        spin_ns *= 4
    marks = [events[0].elapsed_time(event) * _NS_PER_MS for event in events]
    empty = [
        start.elapsed_time(end) * _NS_PER_MS
        for start, end in zip(events[::2], events[1::2], strict=True)
    ]
    pool.give(*events)
    lengths = sorted({round(b - a) for a, b in itertools.pairwise(marks)})
    steps = [b - a for a, b in itertools.pairwise(lengths)]
    floor_ns = statistics.median(empty)
    if not is_ahead:
        floor_ns = max(floor_ns, host_ns)
    return Floor(min(steps) if steps else None, round(floor_ns), not is_ahead)

"""The timer seam, the wall timer, and usv's `GPUTimer` protocol.

The engine hands a timer a whole round at a time, not one sample: the loop over the round's slots is
then the timer's own, with everything bound to locals, and costs less host time a sample than a
method call each would.
"""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from usv_tui.model import TimerInfo
from usv_tui.records import Samples

_NO_CALLS = ()


class Slot:
    """One row as the timer sees it. Built once a row, not once a sample."""

    __slots__ = ("before", "bench", "cold_each", "fn", "flush", "hints", "inner", "reset", "stream")

    def __init__(
        self,
        bench: int,
        fn: Callable[[], object],
        inner: int = 1,
        *,
        reset: Callable[[], object] | None = None,
        flush: Callable[[], object] | None = None,
        cold_each: bool = False,
        stream: Any = None,
    ) -> None:
        self.bench = bench
        self.fn = fn
        self.inner = inner
        self.reset = reset
        self.flush = flush
        self.cold_each = cold_each
        """Flush before each inner call and time each: the only way for inner > 1 to be cold."""
        self.stream = stream
        self.before: tuple[Callable[[], object], ...] = tuple(
            f for f in (reset, flush) if f is not None
        )
        """Untimed, before each sample, in the order reset, flush."""
        self.hints: dict[str, Any] = {}
        """What was learned of the row in priming, such as `synchronises`."""


Failure = tuple[Slot, BaseException]


class Timer(Protocol):
    """Times rounds. One thread calls it, the worker's."""

    info: TimerInfo

    def enqueue(self, round_: int, slots: Sequence[Slot], flag: int = 0) -> list[Failure]:
        """Time one sample of each slot, in this order; `flag` goes onto every sample.

        The order within a sample is: reset, flush, [blocker], start, inner times fn, end. Only fn
        runs between start and end. A slot that raises yields no sample and is returned with its
        exception; the others are timed.
        """
        ...

    def harvest(self, *, wait: bool) -> list[Samples]:
        """The rounds that are complete, oldest first; with `wait`, all that were enqueued."""
        ...

    def queued_ns(self) -> int:
        """About how much device work is queued and not yet done; 0 for a synchronous timer."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        ...

    def examine(self, slot: Slot) -> list[tuple[str, dict[str, Any]]]:
        """Self-diagnosis of one primed row, outside timing: notice codes with their evidence."""
        ...


class WallTimer:
    """`time.perf_counter_ns` around the calls, for work that is synchronous on the host.

    `sync` is called before and after each window when a device is in use.
    """

    def __init__(
        self,
        reason: str = "",
        sync: Callable[[], object] | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._clock = clock
        self._sync = sync
        self._done: list[Samples] = []
        resolution, floor = _measure_clock(clock)
        self.info = TimerInfo(
            name="wall", reason=reason, resolution_ns=resolution, floor_ns=floor
        )

    def enqueue(self, round_: int, slots: Sequence[Slot], flag: int = 0) -> list[Failure]:
        """Time the slots now, one after the other."""
        clock = self._clock
        sync = self._sync
        benches: list[int] = []
        starts: list[int] = []
        windows: list[int] = []
        inners: list[int] = []
        add_bench, add_start = benches.append, starts.append
        add_window, add_inner = windows.append, inners.append
        failures: list[Failure] = []
        t0 = clock()
        for slot in slots:
            fn = slot.fn
            inner = slot.inner
            try:
                if slot.cold_each:
                    start, window = self._cold_each(slot)
                else:
                    for call in slot.before:
                        call()
                    if sync is not None:
                        sync()
                    if inner == 1:
                        start = clock()
                        fn()
                        if sync is not None:
                            sync()
                        window = clock() - start
                    else:
                        calls = repeat(None, inner)
                        start = clock()
                        for _ in calls:
                            fn()
                        if sync is not None:
                            sync()
                        window = clock() - start
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                failures.append((slot, error))
                continue
            add_bench(slot.bench)
            add_start(start - t0)
            add_window(window)
            add_inner(inner)
        if benches:
            self._done.append(
                Samples(round_, t0, benches, starts, windows, inners, [], [], flag)
            )
        return failures

    def _cold_each(self, slot: Slot) -> tuple[int, int]:
        clock, sync, fn, flush = self._clock, self._sync, slot.fn, slot.flush
        if slot.reset is not None:
            slot.reset()
        first = 0
        total = 0
        for i in range(slot.inner):
            if flush is not None:
                flush()
            if sync is not None:
                sync()
            start = clock()
            fn()
            if sync is not None:
                sync()
            total += clock() - start
            if i == 0:
                first = start
        return first, total

    def harvest(self, *, wait: bool) -> list[Samples]:  # noqa: ARG002  always complete
        """Everything that was enqueued."""
        done, self._done = self._done, []
        return done

    def queued_ns(self) -> int:
        """Nothing is ever queued."""
        return 0

    def synchronize(self) -> None:
        """Wait for the device, when there is one."""
        if self._sync is not None:
            self._sync()

    def examine(self, slot: Slot) -> list[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """A wall timer cannot see what a callable leaves running."""
        return []


def _measure_clock(clock: Callable[[], int], n: int = 200) -> tuple[int, int]:
    """Resolution (smallest non-zero step) and floor (median empty window) of a clock, in ns."""
    steps = []
    for _ in range(n):
        start = clock()
        end = clock()
        steps.append(end - start)
    positive = [s for s in steps if s > 0]
    return (min(positive) if positive else 1), int(statistics.median(steps))


class GPUTimer(ABC):
    """usv's timer protocol: enqueue one sample, synchronise, read it.

    Subclass it to time with a clock of your own and pass it as `timer=` to `do_bench`.
    """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until every enqueued sample is complete."""

    @abstractmethod
    def open(
        self,
        fn: Callable[[], object],
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> Any:
        """Enqueue one sample: `before` untimed, then `inner` times `fn`; returns a handle."""

    @abstractmethod
    def value(self, handle: Any) -> float:
        """Seconds per call of a handle; call `synchronize` first."""

    def record_n(
        self,
        fn: Callable[[], object],
        n: int,
        *,
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> np.ndarray:
        """`n` samples of one callable in a row, in seconds per call."""
        handles = [self.open(fn, inner, before) for _ in range(n)]
        self.synchronize()
        return np.array([self.value(handle) for handle in handles], dtype=np.float64)


class WallClock(GPUTimer):
    """The wall clock behind usv's protocol."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def open(
        self,
        fn: Callable[[], object],
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> float:
        """Time one sample at once."""
        if before is not None:
            before()
        start = time.perf_counter_ns()
        for _ in repeat(None, inner):
            fn()
        return (time.perf_counter_ns() - start) / inner * 1e-9

    def value(self, handle: float) -> float:
        """The time that `open` took."""
        return handle


class ForeignTimer:
    """Runs rounds on a user's `GPUTimer` (ours or usv's: anything with open, value, synchronize).

    Handles in flight are bounded by harvesting every `depth` rounds.
    """

    def __init__(self, timer: Any, depth: int = 64) -> None:
        self._timer = timer
        self._depth = depth
        self._rounds: list[tuple[int, int, int, list[tuple[Slot, int, int, Any]]]] = []
        self._done: list[Samples] = []
        self.info = TimerInfo(name=type(timer).__name__, reason="given by the caller")

    def enqueue(self, round_: int, slots: Sequence[Slot], flag: int = 0) -> list[Failure]:
        """Open one handle a slot."""
        clock = time.perf_counter_ns
        failures: list[Failure] = []
        handles: list[tuple[Slot, int, int, Any]] = []
        t0 = clock()
        for slot in slots:
            before = _chain(slot.before)
            try:
                start = clock()
                handle = self._timer.open(slot.fn, slot.inner, before)
                handles.append((slot, start, clock() - start, handle))
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                failures.append((slot, error))
        self._rounds.append((round_, t0, flag, handles))
        if len(self._rounds) >= self._depth:
            self._drain()
        return failures

    def _drain(self) -> None:
        self._timer.synchronize()
        for round_, t0, flag, handles in self._rounds:
            if handles:
                self._done.append(
                    Samples(
                        round_,
                        t0,
                        [slot.bench for slot, *_ in handles],
                        [start - t0 for _, start, _, _ in handles],
                        [
                            round(self._timer.value(handle) * slot.inner * 1e9)
                            for slot, _, _, handle in handles
                        ],
                        [slot.inner for slot, *_ in handles],
                        [host for _, _, host, _ in handles],
                        [],
                        flag,
                    )
                )
        self._rounds.clear()

    def harvest(self, *, wait: bool) -> list[Samples]:
        """Drained rounds; with `wait`, all."""
        if wait:
            self._drain()
        done, self._done = self._done, []
        return done

    def queued_ns(self) -> int:
        """Unknown, so none."""
        return 0

    def synchronize(self) -> None:
        """The user's own."""
        self._timer.synchronize()

    def examine(self, slot: Slot) -> list[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """Nothing is known of a foreign timer."""
        return []


def _chain(calls: tuple[Callable[[], object], ...]) -> Callable[[], object] | None:
    if not calls:
        return None
    if len(calls) == 1:
        return calls[0]

    def before() -> None:
        for call in calls:
            call()

    return before

"""The timer seam, the wall timer, and usv's `GPUTimer` protocol.

The engine hands a timer a whole round at a time, not one sample: the loop over the round's slots is
then the timer's own, with everything bound to locals, and costs less host time a sample than a
method call each would.
"""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from usv_tui.codes import Code
from usv_tui.model import Flag, Notice, TimerInfo
from usv_tui.records import AnyRecord, Mark, Noted, Samples, Timing
from usv_tui.timers.host_clock import HostClock
from usv_tui.timers.phases import PhaseCollector, unwrap
from usv_tui.timesource import MonotonicTime

_RAMP = int(Flag.RAMP)


def _nothing() -> None:
    pass


class Slot:
    """One row as the timer sees it. Built once a row, not once a sample."""

    __slots__ = (
        "before", "bench", "cold_each", "enter", "flush", "fn", "hints", "inner", "is_refilled",
        "refill", "reset", "stream",
    )  # fmt: skip

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
        self.enter: Callable[[], object] | None = None
        """First of all that comes before a window: the state that the row's calls run in."""
        self.refill = 0
        """Untimed calls right before each window, which bring back what neighbours evicted."""
        self.is_refilled = False
        """True when nothing but these calls comes before a window."""
        self.before: tuple[Callable[[], object], ...] = ()
        """Untimed, before each sample: (reset, fn) for each refilling call, then reset, flush."""
        self.hints: dict[str, Any] = {}
        """What was learned of the row in priming, such as `synchronises`; `slow`: call it no more
        than it takes."""
        self.set_refill(0)

    def set_refill(self, calls: int) -> None:
        """Let so many untimed calls of `fn` (as it is now) come before each window."""
        again = self.reset, unwrap(self.fn)
        once = tuple(f for f in again if f is not None)
        last = tuple(f for f in (self.reset, self.flush) if f is not None)
        first = () if self.enter is None else (self.enter,)
        self.refill = calls
        self.is_refilled = calls > 0 and not last
        self.before = first + once * calls + last

    def twin(self, refill: int = 0) -> "Slot":
        """The same row with other calls before its windows, for trials."""
        twin = Slot(
            self.bench,
            self.fn,
            self.inner,
            reset=self.reset,
            flush=self.flush,
            cold_each=self.cold_each,
            stream=self.stream,
        )
        twin.hints = self.hints
        twin.enter = self.enter
        twin.set_refill(refill)
        return twin


Failure = tuple[Slot, BaseException]


class Timer(Protocol):
    """Times blocks of rounds. One thread calls it, the worker's."""

    info: TimerInfo

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> Failure | None:
        """Time one sample of each slot, in this order; `flag` goes onto every sample.

        `slots` are one or several whole rounds one after the other, `size` slots each (0: all of
        them are one round), the first of which has the number `round_`. The order within a sample
        is: [refilling calls, each behind a reset], reset, flush, [blocker], start, inner times fn,
        end. Only fn runs between start and end. When a slot raises, the block ends there: what was
        timed before it is kept, nothing after it runs, and the slot comes back with its exception.
        """
        ...

    def harvest(self, *, wait: bool) -> list[Samples]:
        """The blocks that are complete, oldest first; with `wait`, all that were enqueued."""
        ...

    def queued_ns(self) -> int:
        """About how much device work is queued and not yet done; 0 for a synchronous timer."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        ...

    def examine(self, slot: Slot) -> list[tuple[Code, dict[str, Any]]]:
        """Self-diagnosis of one primed row, outside timing: notice codes with their evidence."""
        ...

    def look_again(self, slot: Slot, codes: Collection[Code]) -> list[Code]:
        """Which of these verdicts on a row further examinations contradict."""
        ...

    def meet(self, slot: Slot, result: object) -> None:
        """See the result of a row's first call, before anything waits for the device.

        Raises:
            BenchFault: this timer would not see what the row does.
        """
        ...

    def beside(self) -> list[AnyRecord]:
        """What was learned beside the samples since the last time: phases, clocks, findings.

        To be asked for after `harvest`.
        """
        ...


Watch = Callable[[Slot, Callable[[], int]], tuple[Code, dict[str, Any]] | None]


class WallTimer:
    """`time.perf_counter_ns` around the calls, for work that is synchronous on the host.

    `sync` is called before and after each window when a device is in use.
    """

    def __init__(
        self,
        reason: str = "",
        sync: Callable[[], object] | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        watch: Watch | None = None,
        host: HostClock | None = None,
    ) -> None:
        """Time on the host's clock.

        `watch` calls a primed row some times and says what it saw; `host` finds out what has to be
        waited for.
        """
        self._host = host
        self._is_asked = reason == "asked for"
        self._notes: list[AnyRecord] = []
        self._clock = clock
        self._watch = watch
        self._sync = sync
        self._done: list[Samples] = []
        self._phases = PhaseCollector(clock if sync is None else self._synced)
        resolution, floor = _measure_clock(clock)
        self.info = TimerInfo(name="wall", reason=reason, resolution_ns=resolution, floor_ns=floor)

    @property
    def is_waiting(self) -> bool:
        """Whether a device is waited for at both ends of a window."""
        return self._sync is not None

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> Failure | None:
        """Time the slots now, one after the other."""
        clock = self._clock
        sync = self._sync
        plain = sync is None
        benches: list[int] = []
        starts: list[int] = []
        windows: list[int] = []
        inners: list[int] = []
        add_bench, add_start = benches.append, starts.append
        add_window, add_inner = windows.append, inners.append
        failure: Failure | None = None
        phases = self._phases
        if phases.calls:
            phases.take()  # of untimed calls since the last block
        t0 = clock()
        for slot in slots:
            fn = slot.fn
            inner = slot.inner
            try:
                if plain and not slot.cold_each:
                    for call in slot.before:
                        call()
                    if inner == 1:
                        start = clock()
                        fn()
                        end = clock()
                    else:
                        calls = repeat(None, inner)
                        start = clock()
                        for _ in calls:
                            fn()
                        end = clock()
                else:
                    start, end = self._prepared(slot)
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                failure = (slot, error)
                break
            add_bench(slot.bench)
            add_start(start - t0)
            add_window(end - start)
            add_inner(inner)
        if benches:
            if self._host is not None and self._look_for_late(self._host):
                flag |= _RAMP  # these windows were not waited for
            block = Samples(
                round_, size or len(slots), t0, benches, starts, windows, inners, [], [], flag
            )
            self._done.append(block)
            if phases.calls:
                phases.settle(phases.take(), block, _between)
        return failure

    def _prepared(self, slot: Slot) -> tuple[int, int]:
        """A sample with untimed work before it, or a device to wait for; (start, end)."""
        if slot.cold_each:
            first, total = self._cold_each(slot)
            return first, first + total
        clock, fn = self._clock, slot.fn
        sync = self._sync or _nothing
        for call in slot.before:
            call()
        calls = repeat(None, slot.inner)
        sync()
        start = clock()
        for _ in calls:
            fn()
        sync()
        return start, clock()

    def _synced(self) -> int:
        """The time when the device has done what was asked of it: a mark of a phase."""
        self.synchronize()
        return self._clock()

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

    def look_again(self, slot: Slot, codes: Collection[Code]) -> list[Code]:  # noqa: ARG002
        """What was waited for, or not, is no matter of chance."""
        return []

    def meet(self, slot: Slot, result: object) -> None:
        """Look at a row's first result: from here on what it leaves running is waited for.

        Raises:
            BenchFault: nothing can wait for it.
        """
        host = self._host
        if host is None:
            return
        at_ns = self._clock()
        for code, evidence in host.look(unwrap(slot.fn), result, slot.before):
            is_wait = code == Code.HOST_CLOCK_WAITS
            # Who asked a program's own call for the wall clock knows what it is.
            is_known = is_wait and self._is_asked and not host.names_loaded
            notice = Notice(
                code=code,
                at_ns=at_ns,
                bench=slot.bench if is_wait else None,
                level="info" if is_known else "warn",
                evidence=evidence,
            )
            self._notes.append(Noted(notice))
            if is_wait:
                self._wait_for(host)

    def _look_for_late(self, host: HostClock) -> bool:
        """What came into use just now is waited for, and an epoch begins."""
        is_late = False
        for code, evidence in host.look_again():
            at_ns = self._clock()
            notice = Notice(code=code, at_ns=at_ns, bench=None, level="warn", evidence=evidence)
            self._notes.append(Noted(notice))
            if evidence.get("is_late"):
                is_late = True
                self._wait_for(host)
                self._notes.append(Mark(self._clock(), "the device is waited for"))
        return is_late

    def _wait_for(self, host: HostClock) -> None:
        """Wait at both ends of every window, and of every phase."""
        self._sync = host.wait
        self._phases.mark = self._synced
        resolution, floor = _measure_clock(self._synced)
        kinds = " and ".join(host.waits)
        why = f"host clock, {kinds} synchronised at both ends"
        self.info = TimerInfo(name="wall", reason=why, resolution_ns=resolution, floor_ns=floor)
        self._notes.append(Timing(self._clock(), self.info))

    def examine(self, slot: Slot) -> list[tuple[Code, dict[str, Any]]]:
        """A wall timer cannot see what a callable leaves running; it sees phases, and memory.

        A callable that raises is left to its first window, which says so.
        """
        self._phases.adopt(slot)
        if self._watch is None or slot.hints.get("slow"):
            return []
        try:
            found = self._watch(slot if self._sync is None else self._waiting(slot), self._clock)
        except Exception:  # noqa: BLE001  the row's first window meets it again and fails the row
            return []
        return [] if found is None else [found]

    def _waiting(self, slot: Slot) -> Slot:
        """The same row, each of whose calls is waited for: nothing piles up on the device."""
        twin = slot.twin()

        def call() -> None:
            slot.fn()
            self.synchronize()

        twin.fn = call
        return twin

    def beside(self) -> list[AnyRecord]:
        """The samples of phases, and what was found at first results."""
        notes, self._notes = self._notes, []
        return [*notes, *self._phases.records()]


def _between(begin_ns: int, end_ns: int) -> tuple[int, int]:
    return begin_ns, end_ns - begin_ns


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

    Handles in flight are bounded by reading them every `depth` samples.
    """

    def __init__(self, timer: Any, depth: int = 1024) -> None:
        self._timer = timer
        self._depth = depth
        self._rounds: list[tuple[int, int, int, int, list[tuple[Slot, int, int, Any]]]] = []
        self._in_flight = 0
        self._done: list[Samples] = []
        self.info = TimerInfo(name=type(timer).__name__, reason="given by the caller")

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> Failure | None:
        """Open one handle a slot."""
        clock = MonotonicTime.now_ns
        failure: Failure | None = None
        handles: list[tuple[Slot, int, int, Any]] = []
        t0 = clock()
        for slot in slots:
            before = _chain(slot.before)
            try:
                start = clock()
                handle = self._timer.open(slot.fn, slot.inner, before)
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                failure = (slot, error)
                break
            handles.append((slot, start - t0, clock() - start, handle))
        self._in_flight += len(handles)
        if handles:
            self._rounds.append((round_, size or len(slots), t0, flag, handles))
        if self._in_flight >= self._depth:
            self._drain()
        return failure

    def _drain(self) -> None:
        self._timer.synchronize()
        value = self._timer.value
        for round_, size, t0, flag, handles in self._rounds:
            self._done.append(
                Samples(
                    round_,
                    size,
                    t0,
                    [slot.bench for slot, *_ in handles],
                    [start for _, start, _, _ in handles],
                    [round(value(handle) * slot.inner * 1e9) for slot, _, _, handle in handles],
                    [slot.inner for slot, *_ in handles],
                    [host for _, _, host, _ in handles],
                    [],
                    flag,
                )
            )
        self._rounds.clear()
        self._in_flight = 0

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

    def examine(self, slot: Slot) -> list[tuple[Code, dict[str, Any]]]:  # noqa: ARG002
        """Nothing is known of a foreign timer."""
        return []

    def look_again(self, slot: Slot, codes: Collection[Code]) -> list[Code]:  # noqa: ARG002
        """Nothing was said."""
        return []

    def meet(self, slot: Slot, result: object) -> None:
        """Ours look at a row's first result; nothing is asked of a foreign timer."""
        look = getattr(self._timer, "meet", None)
        if look is not None:
            look(slot, result)

    def beside(self) -> list[AnyRecord]:
        """Nothing but samples."""
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

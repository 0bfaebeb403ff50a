"""Timing by events in the device's own stream: every accelerator that torch knows.

The host runs ahead: a window is a pair of events around the calls, and is read when the device has
passed it. While the queue is deep, a late host cannot open a gap inside a window; whether it was is
asked of the stream for every window. Nothing here waits for the whole device to read a sample.
"""

import importlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.errors import TimerError, UsvError, one_line
from usv_tui.model import Flag, Notice, TimerInfo
from usv_tui.records import AnyRecord, Noted, ProbeClock, Samples
from usv_tui.timers.abilities import WALL_HINT, ask, lacking, require_events
from usv_tui.timers.devices import Family, current_kind, device_name, family_of
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.examine import EXAMINED, Examiner
from usv_tui.timers.graphs import capture
from usv_tui.timers.host_clock import refuse_early, used_kinds, waits_of
from usv_tui.timers.in_flight import END, MAX_LAUNCHES, Block, Flight, Known, Pairs
from usv_tui.timers.owned import Where, elsewhere
from usv_tui.timers.phases import Calls, PhaseCollector, unwrap
from usv_tui.timers.probe import Probe, find_probe
from usv_tui.timers.spin import Filler, find_spin
from usv_tui.timers.stream_clock import StreamClock, check_events, check_waits, measure_floor
from usv_tui.timers.torch_clock import TorchClock
from usv_tui.timers.wall import Failure, Slot
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

__all__ = ["EventTimer", "TorchClock", "load_torch"]

_NS_PER_MS = 1_000_000
_INFO = (Code.ABILITIES_MISSING, Code.UNPROVEN)
_STARVED = int(Flag.STARVED)
_LONGEST_SPIN_NS = 20_000_000
_HOST_BOUND = 0.9
_MOST_ZEROS = 2000
"""Windows without a length, one after the other, after which nothing is to be hoped for."""
_WATCH_NS = 1_000_000


def load_torch() -> Any:
    """Import torch, with a device that it can use.

    Raises:
        TimerError: there is none; the message says what is there instead.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise TimerError("event timing needs torch, which is not installed") from error
    if current_kind(torch) is None:
        raise TimerError(
            f"event timing needs an accelerator, and torch {torch.__version__} sees none",
            "--timer wall times the host",
        )
    return torch


@contextmanager
def in_one_line(kind: str) -> Iterator[None]:
    """Whatever somebody's backend lacks or raises within is one line.

    Raises:
        TimerError: event timing does not work here, and why.
    """
    try:
        yield
    except UsvError:
        raise
    except Exception as error:
        why = f"event timing does not work on {kind}: {one_line(error)}"
        raise TimerError(why, WALL_HINT) from error


def event_timer(torch: Any, kind: str, **options: Any) -> "EventTimer":
    """An `EventTimer`.

    Raises:
        TimerError: there can be none, and why.
    """
    with in_one_line(kind):
        return EventTimer(torch, kind, **options)


class EventTimer:
    """Times rounds by event pairs; fills the engine's `Timer`.

    Made and used in one thread, on that thread's current device. In flight are at most `depth`
    windows and about `queue_ns` of device work (but always two windows).
    """

    def __init__(
        self,
        torch: Any = None,
        kind: str = "",
        *,
        graph: bool = False,
        blocker: bool = False,
        probe: bool = True,
        reason: str = "",
        time_source: TimeSource | None = None,
        depth: int = 256,
        queue_ns: int = 50_000_000,
        anchor_every_ns: int = 2 * NS_PER_S,
    ) -> None:
        torch = load_torch() if torch is None else torch
        family = family_of(torch, kind or current_kind(torch) or "cuda")
        require_events(torch, family.gpu, family.module)
        self._torch = torch
        self._family = family
        self._gpu = family.gpu
        self._clock: Callable[[], int] = (time_source or MonotonicTime()).now_ns
        self._depth = depth
        self._queue_ns = queue_ns
        self._is_graph = graph
        self._pool = EventPool(self._gpu)
        self._handed = EventPool(self._gpu)
        """Events by which streams wait for each other."""
        self._pool.reserve(2 * min(depth, 64))
        self._gpu.synchronize()
        check_events(self._gpu, self._pool, self._clock)
        self._can_ask = _can_be_asked(self._gpu.current_stream())
        self._spin = find_spin(torch, family.kind, self._gpu, self._pool)
        if self._spin is not None:
            check_waits(self._gpu, self._pool, self._spin, self._clock)
        floor = measure_floor(self._gpu, self._pool, self._spin)
        self._stream_clock = StreamClock(self._gpu, self._pool, self._clock, anchor_every_ns)
        self._examiner = Examiner(
            torch,
            family,
            self._pool,
            self._clock,
            self._spin,
            None if floor.is_host else floor.floor_ns,
        )
        self._phases = PhaseCollector(self._mark)
        self._is_blocking = blocker and self._spin is not None
        self._is_plain = self._can_ask and not self._is_blocking
        self._extra = 2 + (self._spin.launches if self._spin and blocker else 0)
        """Launches of a window beside its calls."""
        self._known: defaultdict[int, Known] = defaultdict(Known)
        self._flight = Flight(self._pool, self._stream_clock, depth=depth, queue_ns=queue_ns)
        self._notes: list[tuple[int | None, Finding]] = []
        self._lost: tuple[Slot, BaseException] | None = None
        self._marks = 0
        self._round = 0
        self._probe: Probe | None = None
        self._probe_left_ns = 0.0
        self.no_probe_reason = "" if probe else "not asked for"
        """Why the clock is not measured by the best probe; empty when it is."""
        self._notes += [(None, found) for found in self._examiner.surroundings()]
        lacks = lacking(self._gpu, family.module, has_filler=isinstance(self._spin, Filler))
        if lacks is not None:
            self._notes.append((None, lacks))
        if family.unproven:
            self._notes.append((None, finding(Code.UNPROVEN, reason=family.unproven)))
        if blocker and self._spin is None:
            why = "this build of torch has no spin kernel"
            self._notes.append((None, finding(Code.NO_BLOCKER, reason=why)))
        if probe:
            rate = getattr(self._spin, "rate", None)
            self._probe, self.no_probe_reason = find_probe(torch, self._pool, rate, family)
        self.info = TimerInfo(
            name="event",
            reason=_reason(reason, family),
            resolution_ns=floor.resolution_ns,
            floor_ns=floor.floor_ns,
            is_floor_host=floor.is_host,
        )

    # -- putting windows into the stream

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> Failure | None:
        """Put one window of each slot into the stream; waits while too much is in flight."""
        if self._lost is not None:
            return self._lost
        block = self._begin_block(round_, slots, size or len(slots), flag)
        flight, clock, known_of = self._flight, self._clock, self._known
        open_, depth, queue_ns = flight.open, self._depth, self._queue_ns
        free, fly = self._pool.free, open_.append
        is_plain, has_probe, extra = self._is_plain, self._probe is not None, self._extra
        stream = self._gpu.current_stream()
        is_drained = getattr(stream, "query", None) or _unknown
        add_host, add_flag = block.host_ns.append, block.flags.append
        is_precise = True
        failure: Failure | None = None
        for slot in slots:
            known = known_of[slot.bench]
            inner = slot.inner
            window_ns = known.per_call_ns * inner
            expected_ns = window_ns + known.lead_ns
            launches = 4 * inner if slot.cold_each else inner + len(slot.before) + extra
            if (
                flight.expected_ns + expected_ns > queue_ns
                or flight.launches + launches > MAX_LAUNCHES
                or len(open_) >= depth
            ) and not self._make_room(expected_ns, launches):
                failure = self._lost
                break
            start, end = free.pop(), free.pop()
            pairs: Pairs | None = None
            fn = slot.fn
            try:
                if is_plain and slot.stream is None and (slot.is_refilled or not slot.before):
                    for call in slot.before:
                        call()
                        is_precise = is_precise or not known.lead_ns
                    is_late = is_drained()
                    if inner == 1:
                        began_ns = clock()
                        start.record(stream)
                        fn()
                        end.record(stream)
                    else:
                        calls = repeat(None, inner)
                        began_ns = clock()
                        start.record(stream)
                        for _ in calls:
                            fn()
                        end.record(stream)
                    host_ns = clock() - began_ns
                    if not is_late and host_ns > _HOST_BOUND * window_ns:
                        is_late = start.query()
                    is_precise = is_precise or is_late
                else:
                    host_ns, is_late, pairs = self._prepared(slot, known, start, end)
                    is_precise = True
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                self._pool.give_each(start, end)
                failure = (slot, error)
                break
            add_host(host_ns)
            add_flag(flag | _STARVED if is_late else flag)
            known.host_ns = host_ns
            fly((block, slot, known, start, end, pairs, expected_ns, launches, is_precise))
            block.end = end
            flight.expected_ns += expected_ns
            flight.launches += launches
            is_precise = has_probe and self._probe_if_due(expected_ns)
        self._end_block(block)
        return failure

    def _make_room(self, expected_ns: float, launches: int) -> bool:
        """Wait until a window of this size may be let in; False when the device is lost."""
        try:
            self._flight.make_room(expected_ns, launches)
        except RuntimeError as error:
            self._lose(error)
        return self._lost is None

    def _begin_block(self, round_: int, slots: Sequence[Slot], size: int, flag: int) -> Block:
        """What is better done before the first window: events made, the anchor renewed."""
        if self._phases.calls:
            # Of untimed calls since the last block: perhaps the device has yet to come there.
            for _, spans in self._phases.take():
                self._pool.give_each(*(mark for span in spans for mark in (span.begin, span.end)))
        if not self._flight.open and self._stream_clock.is_due():
            self._stream_clock.anchor_idle()
        self._pool.reserve(2 * min(len(slots), self._depth) + self._marks + 8)
        block = Block(round_, size, slots, flag, self._clock())
        self._flight.blocks.append(block)
        return block

    def _end_block(self, block: Block) -> None:
        block.is_closed = True
        if self._phases.calls:
            block.calls = self._phases.take()
            self._marks = max(self._marks, 2 * sum(len(spans) for _, spans in block.calls))

    def _probe_if_due(self, expected_ns: float) -> bool:
        """Read the clock in the stream when enough work has gone by; True when that was put in."""
        self._probe_left_ns -= expected_ns
        if self._probe_left_ns > 0 or self._probe is None:
            return False
        self._probe_left_ns = self._probe.every_ns
        self._probe.launch()
        return True

    def _prepared(
        self, slot: Slot, known: Known, start: Any, end: Any
    ) -> tuple[int, bool, Pairs | None]:
        """A window with untimed work before it, on a stream of its own, or behind a blocker.

        Returns the host's time, whether the device was there too early, and the pairs of calls
        that are timed one by one.
        """
        here = self._gpu.current_stream()
        there = slot.stream
        if there is None or there == here:
            return self._window(slot, known, here, start, end)
        # Windows of different streams must not overlap: each waits for the one before it.
        go = self._hand_over(here, there)
        try:
            with self._gpu.stream(there):
                return self._window(slot, known, there, start, end)
        finally:
            back = self._hand_over(there, here)
            passed = self._handed.take()
            passed.record(here)  # when this is reached, nobody waits for the others any more
            self._handed.give_when(passed, go, back, passed)

    def _hand_over(self, here: Any, there: Any) -> Any:
        """Let one stream wait for all that is queued in another; for the event in between."""
        event = self._handed.take()
        event.record(here)
        there.wait_event(event)
        return event

    def _window(
        self, slot: Slot, known: Known, stream: Any, start: Any, end: Any
    ) -> tuple[int, bool, Pairs | None]:
        if slot.cold_each and slot.reset is not None:
            slot.reset()
        if slot.cold_each and slot.inner > 1:
            return self._each(slot, stream, start, end)
        if slot.cold_each and slot.flush is not None:
            slot.flush()
        if not slot.cold_each:
            for call in slot.before:
                call()
        clock, fn = self._clock, slot.fn
        spin_ns = self._arm(slot, known)
        is_late = not spin_ns and self._is_drained(slot, stream)
        calls = repeat(None, slot.inner)
        began_ns = clock()
        start.record(stream)
        for _ in calls:
            fn()
        end.record(stream)
        host_ns = clock() - began_ns
        if spin_ns:
            is_late = start.query()
            self._learn(slot, known, spin_ns, is_late=is_late)
        elif not is_late and host_ns > _HOST_BOUND * known.per_call_ns * slot.inner:
            is_late = start.query()
        return host_ns, is_late, None

    def _each(self, slot: Slot, stream: Any, start: Any, end: Any) -> tuple[int, bool, Pairs]:
        """A window whose calls are flushed and timed one by one."""
        clock, fn, pool = self._clock, slot.fn, self._pool
        last = slot.inner - 1
        pool.reserve(2 * last)
        pairs = [
            (start if i == 0 else pool.take(), end if i == last else pool.take())
            for i in range(slot.inner)
        ]
        host_ns = 0
        is_late = False
        for begin, finish in pairs:
            if slot.flush is not None:
                slot.flush()
            is_late = self._is_drained(slot, stream) or is_late
            began_ns = clock()
            begin.record(stream)
            fn()
            finish.record(stream)
            host_ns += clock() - began_ns
        return host_ns, is_late, pairs

    def _is_drained(self, slot: Slot, stream: Any) -> bool:
        """Whether the device has done all that is queued.

        A stream that cannot be asked is judged by the last window's end; behind untimed work not
        even that is known, and then the host's time alone tells that the device waited.
        """
        if self._can_ask:
            return bool(stream.query())
        if slot.before or slot.flush is not None or not self._flight.open:
            return False
        return bool(self._flight.open[-1][END].query())

    # -- the blocker

    def _arm(self, slot: Slot, known: Known) -> float:
        """Let the device spin while a window is put into the stream; the spin's length in ns."""
        if not self._is_blocking or not known.is_armed or slot.hints.get("synchronises"):
            return 0.0
        assert self._spin is not None
        spin_ns = min(_LONGEST_SPIN_NS, (1.5 * known.host_ns + 20_000) * known.gain)
        self._spin.put(spin_ns)
        return spin_ns

    def _learn(self, slot: Slot, known: Known, spin_ns: float, *, is_late: bool) -> None:
        """A spin that was too short grows; one that cannot be long enough is given up.

        The spin ends by itself, so that a callable that waits for the device is late and not dead.
        """
        if not is_late:
            known.gain = max(1.0, 0.98 * known.gain)
        elif spin_ns < _LONGEST_SPIN_NS:
            known.gain *= 2
        else:
            known.is_armed = False
            why = f"the host needs over {_LONGEST_SPIN_NS / 1e6:.0f} ms to put a window in"
            self._notes.append((slot.bench, finding(Code.NO_BLOCKER, reason=why)))

    # -- reading what the device has passed

    def harvest(self, *, wait: bool) -> list[Samples]:
        """The blocks that are complete, oldest first; with `wait`, all that were enqueued."""
        flight = self._flight
        try:
            if flight.open and wait:
                flight.open[-1][END].synchronize()
            elif flight.open and self._stream_clock.is_due():
                flight.anchor(_WATCH_NS)
            flight.read_blocks()
            if flight.zeros >= _MOST_ZEROS:
                why = f"{flight.zeros} windows in a row read 0 or less: this device's events do not"
                self._lose(RuntimeError(f"{why} resolve them (more --inner, or --timer wall)"))
        except RuntimeError as error:
            self._lose(error)
        done: list[Samples] = []
        blocks = flight.blocks
        while blocks and not blocks[0].unread:
            block = blocks.popleft()
            if not block.window_ns:
                continue
            record = block.samples()
            done.append(record)
            self._round = max(self._round, block.round)
            if block.calls and self._lost is None:
                self._phases.settle(block.calls, record, self._between)
                self._recycle(block.calls)
        return done

    def _between(self, begin: Any, end: Any) -> tuple[int, int]:
        """Start and length between two marks of a phase."""
        return self._stream_clock.at_ns(begin), round(begin.elapsed_time(end) * _NS_PER_MS)

    def _lose(self, error: RuntimeError) -> None:
        """The device's context is gone: keep what was read, and tell at the next enqueue."""
        slots = self._flight.drop()
        error.add_note(f"seen while these rows were in flight: {sorted({s.bench for s in slots})}")
        self._lost = (slots[0] if slots else Slot(0, _nothing), error)

    # -- the rest of the seam

    def queued_ns(self) -> int:
        """Device work that is queued and not yet done, by what windows of these rows took so far.

        Exact to the spread of the rows: of the window that runs, what has passed is taken off.
        """
        try:
            return self._flight.queued_ns(self._clock)
        except RuntimeError as error:
            self._lose(error)
            return 0

    def synchronize(self) -> None:
        """Wait for the whole device."""
        self._gpu.synchronize()

    def examine(self, slot: Slot) -> list[tuple[Code, dict[str, Any]]]:
        """What a primed row does to the device; a row that spoils the others will fail by name."""
        found: list[Finding] = []
        try:
            fault = self._examiner.fault()
            if fault is None and not slot.hints.get("slow"):
                found = self._examiner.look(slot)
                fault = self._examiner.fault()
        except Exception as error:  # noqa: BLE001  a benchmark may raise anything
            slot.fn = _raiser(error)
            return []
        if fault is not None:
            slot.fn = _raiser(fault)
            return []
        if any(f.code == Code.SYNCHRONISES for f in found):
            slot.hints["synchronises"] = True
        if self._is_graph:
            found += self._to_graph(slot)
        self._phases.adopt(slot)
        return [(f.code, f.evidence) for f in found]

    def meet(self, slot: Slot, result: object) -> None:
        """Events see what runs in the stream of this device, and nothing on another one.

        Raises:
            BenchFault: the row's work is elsewhere, or not done when it returns.
        """
        fn = unwrap(slot.fn)
        home = Where(self._family.kind, int(ask(self._gpu, "current_device", default=0)))
        others = elsewhere(home, fn, result)
        if others:
            found = finding(Code.OTHER_DEVICE, devices=[*map(str, others)], home=str(home))
            self._notes.append((slot.bench, found))
        kinds = [Where(kind, 0) for kind in used_kinds(self._torch) if kind != home.kind]
        self._examiner.wait_also(waits_of(self._torch, home, [*others, *kinds]))
        refuse_early(fn, result, slot.before)

    def look_again(self, slot: Slot, codes: Collection[Code]) -> list[Code]:
        """Which of these verdicts on a row two more examinations both contradict."""
        if slot.hints.get("mode") == "graph" or slot.hints.get("slow"):
            return []
        try:
            looks = [{f.code for f in self._examiner.look(slot)} for _ in range(2)]
        except Exception:  # noqa: BLE001  the row's next window meets it and fails the row
            return []
        seen = set.union(*looks)
        gone = [code for code in codes if code in EXAMINED and code not in seen]
        if Code.SYNCHRONISES in gone:
            slot.hints.pop("synchronises", None)
        return gone

    def _to_graph(self, slot: Slot) -> list[Finding]:
        """Time replays of a graph from now on, where one can be had that does the same."""
        captured = capture(
            self._torch,
            self._family,
            unwrap(slot.fn),
            reset=slot.reset,
            covered_ns=self._examiner.covered_ns,
        )
        slot.fn = captured.fn
        slot.hints["mode"] = captured.mode
        slot.hints["graph"] = captured.keep
        found = list(captured.findings)
        if captured.mode == "graph" and self._phases.saw_use():
            found.append(
                finding(Code.PHASES_HIDDEN, reason="phases inside a graph cannot be timed")
            )
        return found

    def beside(self) -> list[AnyRecord]:
        """Phases, clocks measured in the stream, and findings since the last time."""
        records: list[AnyRecord] = list(self._phases.records())
        if self._probe is not None and self._lost is None:
            clocks = self._probe.read(self._stream_clock.at_ns)
            if clocks:
                records.append(
                    ProbeClock(self._round, [at for at, _ in clocks], [mhz for _, mhz in clocks])
                )
        for bench, found in self._notes:
            notice = Notice(
                code=found.code,
                at_ns=self._clock(),
                bench=bench,
                level="info" if found.code in _INFO else "warn",
                evidence=found.evidence,
            )
            records.append(Noted(notice))
        self._notes.clear()
        return records

    def _mark(self) -> Any:
        """A mark of a phase: an event in the current stream."""
        event = self._pool.take()
        event.record()
        return event

    def _recycle(self, calls: Calls) -> None:
        for _, spans in calls:
            for span in spans:
                self._pool.give(span.begin, span.end)


def _nothing() -> None:
    pass


def _unknown() -> bool:
    return False


def _raiser(error: BaseException) -> Callable[[], object]:
    """A callable that fails as a row should: at its next call, by its own error."""

    def fail() -> object:
        raise error

    return fail


def _can_be_asked(stream: Any) -> bool:
    """Whether a stream tells that it is done: Apple's does not."""
    try:
        stream.query()
    except (RuntimeError, AttributeError):
        return False
    return True


def _reason(reason: str, family: Family) -> str:
    """Why this timer, and what its times are where that is not plain CUDA."""
    index = int(ask(family.gpu, "current_device", default=0))
    name = device_name(family, index) or "a device that does not tell its name"
    clock = f"{family.clock} on {name}"
    if not reason:
        return clock
    return reason if family.kind == "cuda" else f"{reason}: {family.clock}"

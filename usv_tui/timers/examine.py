"""What a primed callable does to the device, found out before it is timed.

Takes `torch` as an argument and imports nothing of it. Everything here runs outside timing, with an
idle device, and costs a clean row on a quiet host one call. A look that raises a doubt decides
nothing: it is looked again, beside a baseline that is taken in turn and under the same conditions.
"""

import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.diagnosis.checks import (
    OUTSIDE_LEAST_NS,
    BenchFault,
    DeviceState,
    Longer,
    distortions,
    event_fault,
    host_only,
    is_host_only,
    longer,
    outside_limit,
    outside_stream,
    synchronises,
    vet_state,
)
from usv_tui.diagnosis.vocabulary import Finding
from usv_tui.timers.abilities import ask
from usv_tui.timers.devices import Family
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.host_clock import Wait
from usv_tui.timers.owned import Where
from usv_tui.timers.spin import Spin
from usv_tui.timers.stream_clock import early
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

EXAMINED = (Code.SYNCHRONISES, Code.WORK_OUTSIDE_THE_STREAM, Code.HOST_ONLY)
"""What is found here."""
_SPIN_NS = 2_000_000
"""Long enough to see a wait, too short for the launch queue to fill meanwhile."""
_LONGEST_SPIN_NS = 50_000_000
_BASE_NS = 5_000_000
"""A host that has slept for so long is as cold as it gets."""
_LOOKS = 24
_FEWEST_LOOKS = 6
_CHANCE = 1e-3
"""What shows so seldom by chance is believed: with six looks at either, all of them differ."""
_BUDGET_NS = NS_PER_S // 2
"""Fewer looks are taken at a row whose calls are long."""
_MOST_CALLS = 200
"""In a row, to let what each leaves elsewhere add up; a device takes 1024 launches ahead."""
_EMPTY_LOOKS = 5
_FULL_LOOKS = 3
"""So many windows that all hold work are not a device that was held up."""
_LATE_NS = 500_000
"""A host that comes back so late from the end event may have missed what went on after it."""
_PROMPT_TRIES = 3
_UNLIKELY_LATE_NS = 40_000_000
_MOSTLY = 0.6
"""A host is not late by most of this for every look."""
_BASES = 4
"""Baselines of which the least is what an undisturbed synchronise costs."""
_NS_PER_MS = 1_000_000
_SYNC_WARNING = "called a synchronizing"
"""How torch begins it."""
_PROTOTYPE = "Synchronization debug mode is a prototype"
"""What the mode says of itself, which is no finding."""


class Call(NamedTuple):
    """One call of a row between two events, with everything that was seen of it."""

    host_ns: int
    window_ns: float
    after_end_ns: int
    """How long the device went on after the end event."""
    is_covered: bool = False
    """The device was held until all of it was in the stream: the window holds no gap."""
    bracket_ns: int = 0
    """From before the start event was asked for until the end event was waited for."""

    @property
    def late_ns(self) -> float:
        """How long after the end event the host came back; the way to the device is in it, too."""
        return self.bracket_ns - max(self.host_ns, self.window_ns)


class Examiner:
    """Calls rows and looks. One for each timer, made in the thread that times."""

    def __init__(
        self,
        torch: Any,
        family: Family,
        pool: EventPool,
        clock: Callable[[], int],
        spin: Spin | None,
        floor_ns: int | None = None,
    ) -> None:
        self._torch = torch
        self._kind = family.kind
        self._gpu = family.gpu
        self._pool = pool
        self._clock = clock
        self._spin = spin
        self._floor_ns = floor_ns
        """The device's own; None where it is not known."""
        self._others: dict[Where, Wait] = {}
        """Where else rows have tensors, and how to wait for it."""
        self._home = self.state()
        self._home_stream = self._gpu.current_stream()
        # A mode that cannot be asked for, or not be set, hears nothing.
        mode = ask(self._gpu, "get_sync_debug_mode")
        self._can_listen = mode is not None and hasattr(self._gpu, "set_sync_debug_mode")

    def state(self) -> DeviceState:
        """What is shared by all rows of this thread; what cannot be asked for never changes."""
        gpu = self._gpu
        stream = gpu.current_stream()
        return DeviceState(
            int(ask(gpu, "current_device", default=0)),
            _handle(stream),
            bool(ask(gpu, "is_current_stream_capturing")),
            bool(ask(self._torch, "is_grad_enabled")),
        )

    def wait_also(self, others: Mapping[Where, Wait]) -> None:
        """Whatever of a row goes on there after its end event is outside of the stream, too."""
        self._others |= others

    def surroundings(self) -> list[Finding]:
        """Torch's profiler, which only torch can tell of; see `checks.distortions` for the rest."""
        autograd = getattr(self._torch, "autograd", None)
        is_on = bool(ask(autograd, "_profiler_enabled"))
        return distortions({}, is_profiling=is_on, is_anomaly=False)

    def fault(self) -> BenchFault | None:
        """Whether the calls so far left this thread's state changed; puts it back."""
        found = vet_state(self._home, self.state(), self._kind)
        if found is not None:
            gpu = self._gpu
            ask(gpu, "set_device", self._home.device)
            ask(gpu, "set_stream", self._home_stream)
            ask(self._torch, "set_grad_enabled", self._home.is_grad_enabled)
        return found

    def look(self, slot: Slot) -> list[Finding]:
        """Call a row and see whether it waits for the device, or works elsewhere."""
        heard: list[str] = []
        first = self._call(slot, heard=heard)
        self._vet_times(slot, first)
        waits, outside = self._waits(slot, first, len(heard)), self._outside(slot, first)
        is_known = waits is not None or outside is not None
        found = (waits, outside, None if is_known else self._nothing_there(slot, first))
        return [f for f in found if f is not None]

    def _vet_times(self, slot: Slot, first: Call) -> None:
        """Refuse events whose times cannot be true of calls that the host saw begin and end.

        Raises:
            BenchFault: several calls show it.
        """
        fault = event_fault(first.window_ns, first.host_ns, first.bracket_ns)
        if fault is None:
            return
        if first.window_ns > first.bracket_ns:  # which no host that is late explains
            calls = (self._call(slot) for _ in range(_FEWEST_LOOKS))
            is_false = all(call.window_ns > call.bracket_ns for call in calls)
        else:  # where something holds the device the timer has found out at the start
            is_false = self._spin is None and self._ends_late(slot)
        if is_false:
            raise fault

    def _ends_late(self, slot: Slot) -> bool:
        """Whether the end of many calls comes far later than events say, each time that one looks.

        So many calls that a host which is late for their end does not explain it.
        """
        least_ns = min(self._call(slot).bracket_ns for _ in range(_BASES))
        calls = min(_MOST_CALLS, math.ceil(_UNLIKELY_LATE_NS / least_ns))
        if calls > 1 and slot.reset is not None:
            return False
        looks = (self._call(slot, calls=calls) for _ in range(_FEWEST_LOOKS))
        return all(
            look.bracket_ns > _UNLIKELY_LATE_NS / 2 and look.late_ns > _MOSTLY * look.bracket_ns
            for look in looks
        )

    def covered_ns(self, fn: Callable[[], object]) -> float:
        """Device time of one call that was queued behind a spin, so that it has no launch gap."""
        slot = Slot(-1, fn)
        host_ns = self._call(slot).host_ns
        return self._call(slot, min(_LONGEST_SPIN_NS, 2 * host_ns + 100_000)).window_ns

    # -- does it wait for the device?

    def _waits(self, slot: Slot, first: Call, heard: int) -> Finding | None:
        if heard:
            again = [self._hear(slot) for _ in range(2)]
            if not all(again):  # lazy set-up of a first call, not what every call does
                return None
            return synchronises(heard, first.host_ns, None, 0.0)
        if self._spin is None or first.host_ns < 0.5 * first.window_ns:
            return None
        alone_ns = [first.host_ns, self._call(slot).host_ns]
        spin_ns = max(_SPIN_NS, min(_LONGEST_SPIN_NS, 3 * min(alone_ns)))
        # What a busy host adds may hide a short hold: a doubt that is left is looked at again.
        for hold_ns in (spin_ns, min(_LONGEST_SPIN_NS, 5 * spin_ns)):
            seen = self._waits_behind(slot, hold_ns, alone_ns)
            if isinstance(seen, Finding) or not seen.is_more_often:
                return seen if isinstance(seen, Finding) else None
        return None

    def _waits_behind(self, slot: Slot, spin_ns: int, alone_ns: list[int]) -> Finding | Longer:
        """Whether calls take longer on the host behind a hold of the device than they do alone."""
        behind_ns: list[int] = []
        is_so = self._compare(
            lambda: behind_ns.append(self._call(slot, spin_ns).host_ns),
            lambda: alone_ns.append(self._call(slot).host_ns),
            lambda: longer(behind_ns, alone_ns, 0.7 * spin_ns),
            cost_ns=2 * min(alone_ns) + spin_ns,
        )
        seen = longer(behind_ns, alone_ns, 0.7 * spin_ns)
        if not is_so:
            return seen
        found = synchronises(0, min(alone_ns), statistics.median(behind_ns), spin_ns)
        return found or seen

    def _hear(self, slot: Slot) -> int:
        heard: list[str] = []
        self._call(slot, heard=heard)
        return len(heard)

    # -- does it put anything into the stream?

    def _nothing_there(self, slot: Slot, first: Call) -> Finding | None:
        """Whether a call that takes the host its time leaves the stream as good as empty."""
        floor_ns = self._floor_ns
        spin_ns = 2 * first.host_ns + _SPIN_NS // 20
        if self._spin is None or not floor_ns or spin_ns > _LONGEST_SPIN_NS:
            return None
        if not is_host_only(first.host_ns, floor_ns, floor_ns):
            return None
        empty: list[Call] = []
        others = 0
        for _ in range(_LOOKS):
            seen = self._call(slot, spin_ns)
            if not seen.is_covered:  # a host that came late says nothing of the stream
                spin_ns = min(_LONGEST_SPIN_NS, 2 * spin_ns)
            elif is_host_only(seen.host_ns, seen.window_ns, floor_ns):
                empty.append(seen)
            else:  # a device that was held up between two events looks so, too
                others += 1
            if len(empty) >= max(_EMPTY_LOOKS, 2 * others):
                host_ns = statistics.median(call.host_ns for call in empty)
                window_ns = statistics.median(call.window_ns for call in empty)
                return host_only(host_ns, window_ns, floor_ns)
            if others >= _FULL_LOOKS and not empty:
                return None
        return None

    # -- does it work elsewhere?

    def _outside(self, slot: Slot, first: Call) -> Finding | None:
        """Whether the device goes on after the end event more often than a busy host explains.

        Where a synchronise is slow itself, it may hide what one call leaves elsewhere: then many
        calls are made in a row, so that it adds up.
        """
        for _ in range(_BASES):
            if first.late_ns < _LATE_NS or first.after_end_ns > OUTSIDE_LEAST_NS:
                break
            first = self._call(slot)
        if first.after_end_ns <= OUTSIDE_LEAST_NS:
            return None
        # Any one of these may be a call that the host was late for.
        seen = min((self._call(slot) for _ in range(_BASES)), key=lambda call: call.window_ns)
        found, usual_ns = self._twice(slot, seen, 1)
        if found is None and usual_ns > 2 * OUTSIDE_LEAST_NS and slot.reset is None:
            many = math.ceil(4 * usual_ns / max(1.0, seen.window_ns))
            if 1 < many <= _MOST_CALLS:
                found, _ = self._twice(slot, seen, many)
        return found

    def _twice(self, slot: Slot, seen: Call, calls: int) -> tuple[Finding | None, int]:
        """A verdict only when two series, each beside a baseline of its own, give the same one."""
        found, usual_ns = self._goes_on(slot, seen, calls)
        return (found, usual_ns) if found is None else self._goes_on(slot, seen, calls)

    def _goes_on(self, slot: Slot, seen: Call, calls: int) -> tuple[Finding | None, int]:
        """What is found after so many calls, and what a synchronise takes at least.

        The baseline waits for as long as the calls do: a host that has slept for longer wakes
        otherwise.
        """
        after_ns: list[int] = []
        wait_ns = calls * seen.window_ns
        base_ns = [self._base(slot, wait_ns, calls) for _ in range(_BASES)]
        usual_ns = min(base_ns)
        is_so = self._compare(
            lambda: after_ns.append(_prompt(lambda: self._call(slot, calls=calls))),
            lambda: base_ns.append(self._base(slot, wait_ns, calls)),
            lambda: longer(after_ns, base_ns, outside_limit(base_ns, calls)),
            cost_ns=2 * calls * (seen.window_ns + seen.host_ns) + 2 * base_ns[0],
        )
        found = outside_stream(after_ns, seen.window_ns, base_ns, calls) if is_so else None
        return found, usual_ns

    def _compare(
        self,
        look: Callable[[], object],
        look_at_base: Callable[[], object],
        compare: Callable[[], Longer],
        cost_ns: float,
    ) -> bool:
        """Look in turn at the row and at the baseline until chance explains the difference, or not.

        A look at a faulty row may show nothing (the host was late, and the work was done by then),
        and one at a clean row may show something; what counts is how often, against the baseline.
        """
        most = max(_FEWEST_LOOKS, min(_LOOKS, round(_BUDGET_NS / max(1.0, cost_ns))))
        for i in range(most):
            look()
            look_at_base()
            seen = compare()
            if seen.chance < _CHANCE:
                return True
            if i + 1 >= _FEWEST_LOOKS and not seen.is_more_often:
                return False
        return False

    def _base(self, slot: Slot, window_ns: float, calls: int) -> int:
        """What a synchronise takes after the host has waited for work that is all in the stream.

        The row is called first: a scheduler treats a host by what it has just done.
        """
        if self._spin is None:
            return _prompt(lambda: self._drained(slot))
        self._call(slot, calls=calls)
        spin, spin_ns = Slot(-1, _nothing), round(min(_BASE_NS, max(_SPIN_NS / 20, window_ns)))
        return _prompt(lambda: self._call(spin, spin_ns))

    def _drained(self, slot: Slot) -> Call:
        """The same without a spin kernel: the row's own work, waited for before the end event."""

        def drained() -> None:
            slot.fn()
            self._synchronize()

        return self._call(Slot(-1, drained, reset=slot.reset, stream=slot.stream))

    # -- calls

    def _call(
        self, slot: Slot, spin_ns: int = 0, heard: list[str] | None = None, calls: int = 1
    ) -> Call:
        gpu, clock = self._gpu, self._clock
        start, end = self._pool.take(), self._pool.take()
        if slot.reset is not None:
            slot.reset()
        self._synchronize()
        with (
            gpu.stream(slot.stream) if slot.stream is not None else nullcontext(),
            nullcontext() if heard is None else self._listening(heard),
        ):
            if spin_ns and self._spin is not None:
                self._spin.put(spin_ns)
            asked_ns = clock()
            start.record()
            before_ns = clock()
            for _ in range(calls):
                slot.fn()
            host_ns = clock() - before_ns
            is_covered = spin_ns > 0 and not start.query()
            end.record()
        end.synchronize()
        ended_ns = clock()
        if not end.query():
            raise early("Event.synchronize")
        self._synchronize()
        after_ns = clock() - ended_ns
        window_ns = start.elapsed_time(end) * _NS_PER_MS
        self._pool.give(start, end)
        return Call(host_ns, window_ns, after_ns, is_covered, ended_ns - asked_ns)

    def _synchronize(self) -> None:
        """Wait for the device, and for others that rows work on."""
        self._gpu.synchronize()
        for wait in self._others.values():
            wait()

    @contextmanager
    def _listening(self, heard: list[str]) -> Iterator[None]:
        """Collect what torch's sync-debug mode says of the calls within, where there is one."""
        if not self._can_listen:
            yield
            return
        gpu = self._gpu
        before = gpu.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask(gpu, "set_sync_debug_mode", "warn")
            try:
                yield
            finally:
                ask(gpu, "set_sync_debug_mode", before)
        for warning in caught:
            text = str(warning.message)
            if _SYNC_WARNING in text:
                heard.append(text)
            elif _PROTOTYPE not in text:  # the row's own: somebody else may want to hear it
                warnings.showwarning(
                    warning.message, warning.category, warning.filename, warning.lineno
                )


def _handle(stream: Any) -> int:
    """What tells a stream from another one: its handle on CUDA and ROCm, else its number."""
    for name in ("cuda_stream", "stream_id"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(value)
    return 0


def _nothing() -> None:
    pass


def _prompt(look: Callable[[], Call]) -> int:
    """How long a synchronise took after a call whose end the host was not late for."""
    for _ in range(_PROMPT_TRIES):
        seen = look()
        if seen.late_ns < _LATE_NS:
            break
    return seen.after_end_ns

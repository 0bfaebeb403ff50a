"""Is a row warm beside its neighbours? As warm as alone, or it is not called so.

First each row is called several times behind the others, and each call timed: it gets as many
untimed calls as it takes until the next one's time stops falling. Then its windows, as the run will
time them, are compared with those after many calls of its own. While they take longer, the untimed
calls are doubled. Both are looked at within milliseconds, so that a clock that moves falls on both.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from usv_tui.copies import leave_if_copy
from usv_tui.engine.calibrate import PROBE_ROUND
from usv_tui.stats.basics import madn
from usv_tui.timers.wall import Failure, Slot, Timer

MAX_REFILL = 32
"""Most untimed calls before one window."""
MAX_REFILL_NS = 10_000_000
"""Longest time for several of them; one call may take longer."""
MAX_CALL_NS = 250_000_000
"""A call that takes longer than this does not run untimed before each of its windows."""
FREE_SHARE = 20
"""A twentieth of the calls of a window may always be refilling ones: nobody notices them."""
_FEW = 4
_FEW_NS = 250_000
"""So many calls bring a core's own cache back, where nothing better is known and they are quick."""
_LOOKS = 7
_SURE_LOOKS = 12
_TOLERANCE = 0.01
_SIGMAS = 3.0
_MOST_OF_THEM = 0.75
_STOPPED = 0.015
"""A call's time has stopped falling when it is within this of what it falls to, or in the noise."""
_PROFILE = 16


@dataclass(slots=True, eq=False)
class Patient:
    """One row while it is looked at."""

    slot: Slot
    per_call_ns: float
    wants_warm: bool = True
    """False for a row that is to find what its neighbours left."""
    is_neighbour: bool = False
    """Only there for the others: flushed before each window, or too slow to be looked at."""
    here_ns: list[float] = field(default_factory=list)
    """Of one call, beside the neighbours."""
    alone_ns: list[float] = field(default_factory=list)
    """Of one call, after many of its own."""

    profile_ns: list[list[float]] = field(default_factory=list)
    """Of the calls right behind the neighbours, one list a look."""

    @property
    def cost_ns(self) -> float:
        """About how long one look takes."""
        calls = 1 if self.is_neighbour else 2 * self.slot.inner + self.slot.refill + self.by_itself
        return self.per_call_ns * calls

    @property
    def by_itself(self) -> int:
        """Untimed calls after which a row is taken to be as it is alone."""
        return max(1, min(MAX_REFILL, int(MAX_REFILL_NS / max(1.0, self.per_call_ns))))

    @property
    def falling_calls(self) -> int:
        """How many calls behind the neighbours it takes until the next one's time falls no more."""
        times = np.array([look for look in self.profile_ns if min(look, default=0.0) > 0])
        if len(times) < _LOOKS:
            return 0
        medians = np.median(times, axis=0)
        last = times[:, -max(1, times.shape[1] // 3) :]
        base = float(np.median(last))
        error = 1.2533 * madn(last.ravel()) / math.sqrt(len(times))
        falling = medians > base + max(_STOPPED * base, 2.0 * error)
        # Up to the first that is down: a later one is noise, not the caches'.
        return int(np.argmin(falling)) if not falling.all() else len(falling)

    @property
    def warmth(self) -> tuple[int, int] | None:
        """Medians of a call beside the neighbours and alone, when there were enough looks."""
        if len(self.here_ns) < _LOOKS:
            return None
        return round(np.median(self.here_ns)), round(np.median(self.alone_ns))

    @property
    def excess(self) -> float | None:
        """How much longer a call takes beside neighbours; None when that is within the noise."""
        n = len(self.here_ns)
        if n < _LOOKS:
            return None
        quotients = np.array(self.here_ns) / np.array(self.alone_ns)
        excess = float(np.median(quotients)) - 1.0
        noise = 1.2533 * madn(quotients) / math.sqrt(n)
        is_more = abs(excess) > max(_TOLERANCE, _SIGMAS * noise)
        same_side = np.mean(quotients > 1.0) if excess > 0 else np.mean(quotients < 1.0)
        return excess if is_more and same_side >= _MOST_OF_THEM else None


def first_refill(slot: Slot, per_call_ns: float) -> int:
    """Refilling calls of a row beside neighbours before anything is known; 0: none are bearable."""
    if per_call_ns > MAX_CALL_NS:
        return 0
    few = min(_FEW, int(_FEW_NS / max(1.0, per_call_ns)))
    return max(1, few, min(MAX_REFILL, slot.inner // FREE_SHARE))


def more_refill(slot: Slot, per_call_ns: float) -> int:
    """Twice as many, within the bounds; as many as now when there is no more to be had."""
    return min(2 * slot.refill, _most_refill(slot, per_call_ns))


def _most_refill(slot: Slot, per_call_ns: float) -> int:
    """As many as the bounds of count and time allow, and at least as many as now."""
    return max(slot.refill, min(MAX_REFILL, int(MAX_REFILL_NS / max(1.0, per_call_ns))))


def look(
    timer: Timer,
    patients: Sequence[Patient],
    clock: Callable[[], int],
    *,
    budget_ns: float,
    seed: int = 0,
) -> Failure | None:
    """Compare rows beside each other with each alone, and refill more where that is needed.

    The timer must have been harvested: its records are taken. Rows too slow for the budget take
    part as neighbours of the others, with one call, or not at all.
    """
    looked_at = _affordable(patients, budget_ns)
    if all(p.is_neighbour for p in looked_at):
        return None
    random = Random(seed)
    end_ns = clock() + budget_ns
    for _ in range(_LOOKS):
        failure = _profile_once(timer, _in_new_order(looked_at, random))
        if failure is not None or clock() >= end_ns:
            return failure
    for patient in looked_at:
        if patient.wants_warm:
            _take_profile(patient)
    for turn in itertools.count(1):
        failure = _look_once(timer, _in_new_order(looked_at, random))
        if failure is not None:
            return failure
        needy = [p for p in looked_at if p.wants_warm and _refill_more(p)]
        is_sure = turn >= _SURE_LOOKS or not any(p.excess for p in looked_at)
        if (turn >= _LOOKS and not needy and is_sure and _all_seen(looked_at)) or (
            clock() >= end_ns
        ):
            return None
    return None


def _in_new_order(patients: list[Patient], random: Random) -> list[Patient]:
    """Shuffled in place, so that none follows itself."""
    last = patients[-1]
    random.shuffle(patients)
    if patients[0] is last:
        patients.append(patients.pop(0))
    return patients


def _take_profile(patient: Patient) -> None:
    calls = max(patient.slot.refill, patient.falling_calls)
    patient.slot.set_refill(min(calls, _most_refill(patient.slot, patient.per_call_ns)))


def _affordable(patients: Sequence[Patient], budget_ns: float) -> list[Patient]:
    """The quickest rows first, while some looks at them fit into the budget."""
    found: list[Patient] = []
    left_ns = budget_ns / _LOOKS - sum(p.per_call_ns for p in patients)
    for patient in sorted(patients, key=lambda p: p.cost_ns):
        extra_ns = patient.cost_ns - patient.per_call_ns
        if extra_ns > left_ns:
            patient.is_neighbour = True
        else:
            left_ns -= extra_ns
        found.append(patient)
    return found if left_ns > 0 else []


def _all_seen(patients: Sequence[Patient]) -> bool:
    return all(p.is_neighbour or len(p.here_ns) >= _LOOKS for p in patients)


def _profile_once(timer: Timer, patients: Sequence[Patient]) -> Failure | None:
    """Some calls of each row behind another row's, timed one by one."""
    slots = [_once(p) for p in patients for _ in range(_calls(p))]
    windows, failure = _time(timer, slots)
    if failure is None:
        rest = iter(windows)
        for patient in patients:
            patient.profile_ns.append([next(rest) for _ in range(_calls(patient))])
    return failure


def _calls(patient: Patient) -> int:
    return 1 if patient.is_neighbour else max(2, min(_PROFILE, patient.by_itself))


def _once(patient: Patient) -> Slot:
    once = patient.slot.twin()
    once.inner = 1
    return once


def _time(timer: Timer, slots: Sequence[Slot]) -> tuple[list[int], Failure | None]:
    """The windows of some slots, all of them unless there is a failure."""
    failure = timer.enqueue(PROBE_ROUND, slots)
    leave_if_copy(None if failure is None else failure[1])
    try:
        windows = [w for record in timer.harvest(wait=True) for w in record.window_ns]
    except Exception as error:  # noqa: BLE001  a device's error comes to light when it is read
        return [], failure or (slots[0], error)
    if failure is None and len(windows) != len(slots):
        return [], (slots[0], RuntimeError("the timer lost windows"))
    return windows, failure


def _look_once(timer: Timer, patients: Sequence[Patient]) -> Failure | None:
    """One window of each row behind another row's, and one behind many calls of its own."""
    windows, failure = _time(timer, [s for p in patients for s in _windows(p)])
    if failure is not None:
        return failure
    rest = iter(windows)
    for patient in patients:
        here_ns = next(rest)
        if patient.is_neighbour:
            continue
        alone_ns = next(rest)
        if here_ns > 0 and alone_ns > 0:
            patient.here_ns.append(here_ns / patient.slot.inner)
            patient.alone_ns.append(alone_ns / patient.slot.inner)
    return None


def _windows(patient: Patient) -> list[Slot]:
    if patient.is_neighbour:
        return [_once(patient)]
    return [patient.slot, patient.slot.twin(patient.by_itself)]


def _refill_more(patient: Patient) -> bool:
    """Double the refilling calls of a row that is slower here than alone; True when that is new."""
    excess = patient.excess
    if excess is None or excess <= 0 or not patient.slot.refill:
        return False
    calls = more_refill(patient.slot, patient.per_call_ns)
    if calls == patient.slot.refill:
        return False
    patient.slot.set_refill(calls)
    patient.here_ns.clear()
    patient.alone_ns.clear()
    return True

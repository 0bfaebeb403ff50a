"""Is a row warm beside its neighbours? As warm as alone, or it is not called so.

Each row is timed in turn as the run will time it (behind the others, after its refilling calls) and
after many calls of its own. While the first takes longer, the refilling calls are doubled. Both
are looked at within milliseconds, so that a clock that moves falls on both alike.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from usv_tui.engine.calibrate import PROBE_ROUND
from usv_tui.engine.timers import Failure, Slot, Timer
from usv_tui.stats.basics import madn

MAX_REFILL = 32
"""Most untimed calls before one window."""
MAX_REFILL_NS = 10_000_000
"""Longest time for several of them; one call may take longer."""
MAX_CALL_NS = 250_000_000
"""A call that takes longer than this does not run untimed before each of its windows."""
FREE_SHARE = 20
"""A twentieth of the calls of a window may always be refilling ones: nobody notices them."""
_LOOKS = 7
_SURE_LOOKS = 12
_TOLERANCE = 0.01
_SIGMAS = 3.0
_MOST_OF_THEM = 0.75


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
    return max(1, min(MAX_REFILL, slot.inner // FREE_SHARE))


def more_refill(slot: Slot, per_call_ns: float) -> int:
    """Twice as many, within the bounds; as many as now when there is no more to be had."""
    calls = min(MAX_REFILL, 2 * slot.refill)
    return calls if calls * per_call_ns <= MAX_REFILL_NS else slot.refill


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
    for turn in itertools.count(1):
        last = looked_at[-1:]
        random.shuffle(looked_at)
        if looked_at[0] in last:  # it would follow itself
            looked_at.append(looked_at.pop(0))
        failure = _look_once(timer, looked_at)
        if failure is not None:
            return failure
        needy = [p for p in looked_at if p.wants_warm and _refill_more(p)]
        is_sure = turn >= _SURE_LOOKS or not any(p.excess for p in looked_at)
        if (turn >= _LOOKS and not needy and is_sure and _all_seen(looked_at)) or (
            clock() >= end_ns
        ):
            return None
    return None


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


def _look_once(timer: Timer, patients: Sequence[Patient]) -> Failure | None:
    """One window of each row behind another row's, and one behind many calls of its own."""
    slots = [s for p in patients for s in _windows(p)]
    if not slots:
        return None
    failure = timer.enqueue(PROBE_ROUND, slots)
    try:
        windows = [w for record in timer.harvest(wait=True) for w in record.window_ns]
    except Exception as error:  # noqa: BLE001  a device's error comes to light when it is read
        return failure or (slots[0], error)
    if failure is not None:
        return failure
    at = 0
    for patient in patients:
        if patient.is_neighbour:
            at += 1
            continue
        here_ns, alone_ns = windows[at : at + 2]
        at += 2
        if here_ns > 0 and alone_ns > 0:
            patient.here_ns.append(here_ns / patient.slot.inner)
            patient.alone_ns.append(alone_ns / patient.slot.inner)
    return None


def _windows(patient: Patient) -> list[Slot]:
    if patient.is_neighbour:
        once = patient.slot.twin()
        once.inner = 1
        return [once]
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

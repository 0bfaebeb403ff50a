"""At what clock to lock, and which clock to try after a lock that is held."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from usv_tui.stats.basics import BoolArray, FloatArray
from usv_tui.stats.held import tolerance_mhz
from usv_tui.stats.reading_noise import grain_mhz

X_MARGIN = 0.99
X_MARGIN_CAREFUL = 0.97
CYCLE_MOVES = 12
"""Moves away from its lowest tenth that show that a clock only ever climbs there."""
WANDER_SHARE = 0.16
"""Share of the moves from there that go on down, from which a clock wanders."""
CYCLE_TAIL = 0.1
"""Share of the falls that may go on for more than a reading: sensors that average smear them."""
LOW, LOWEST = 0.05, 0.01
DEEP = 0.985
COARSE = 1.5
"""A sensor that rounds to more than so many steps of the clock is a coarse one."""
STEP_UP = 1.02
"""A lock that is held is followed by one this much higher …"""
CLOSE = 1.005
"""… until the lowest that was not held is this near."""
ABOVE_FREE = 1.03
"""The free clock is never far exceeded: it is what the limits allow on the average."""


def lock_clock(
    low_mhz: float | None,
    supported_mhz: Sequence[int],
    *,
    is_careful: bool = False,
    solo_low_mhz: Mapping[int, float] | None = None,
    cycle_mhz: float | None = None,
) -> int | None:
    """The clock to lock at: the highest at or below 99 % of the low clock that was seen.

    It is 97 % if `is_careful`: under a thermal limit, or where the sensor hides the lowest clocks.

    Solo values, where there are some, speak for the hottest row, which must hold the clock alone.
    `cycle_mhz` is where a limit cycle stays above its falls: a lock takes these away, so that it
    may be higher. None when the device supports nothing that low.
    """
    margin = X_MARGIN_CAREFUL if is_careful else X_MARGIN
    targets = [mhz * margin for mhz in (solo_low_mhz or {}).values()]
    if low_mhz is not None:
        targets.append(margin * (low_mhz if is_careful else max(low_mhz, cycle_mhz or 0.0)))
    return floor_clock(min(targets), supported_mhz) if targets else None


def cycle_clock(mhz: FloatArray, step_mhz: float) -> float | None:
    """The highest clock seen safely below every fall of a limit cycle; None where there is none.

    `mhz` are readings in order of time. A limit cycle climbs until it is over its limit and then
    falls at once by several steps: from its lowest tenth it only ever climbs.
    """
    start, falls, from_low = _moves(mhz, step_mhz)
    if from_low.sum() < CYCLE_MOVES or (falls & from_low).any() or not falls.any():
        return None
    if (falls[1:] & falls[:-1]).sum() > CYCLE_TAIL * falls.sum():
        return None
    safe = mhz[mhz <= X_MARGIN * start[falls].min()]
    return float(safe.max()) if safe.size else None


def wanders(mhz: FloatArray, step_mhz: float) -> bool:
    """A clock that falls on from its lowest tenth as well: a lock there may not hold it."""
    _, falls, from_low = _moves(mhz, step_mhz)
    n = int(from_low.sum())
    return n >= CYCLE_MOVES and int((falls & from_low).sum()) >= WANDER_SHARE * n


def swings(mhz: FloatArray) -> int:
    """How often a clock went from its lower quarter up to its upper one."""
    low, high = np.quantile(mhz, (0.25, 0.75))
    if not high > low:
        return 0
    places = np.where(mhz >= high, 1, np.where(mhz <= low, -1, 0))
    places = places[places != 0]
    return int((np.diff(places) > 0).sum())


def low_to_hold(mhz: FloatArray, step_mhz: float, supported_mhz: Sequence[int]) -> float | None:
    """The low end of the clocks seen, below which a lock has to stay; None without any.

    The 5th percentile, since a limit cycle's falls go with the lock that takes its climbs away; of
    a clock that wanders the first; and half of what the sensor rounds to below it.
    """
    if mhz.size == 0:
        return None
    low = float(np.quantile(mhz, LOWEST if wanders(mhz, step_mhz) else LOW))
    grain = grain_mhz(mhz)
    usual = float(np.median(np.diff(supported_mhz))) if len(supported_mhz) > 1 else 0.0
    return low - grain / 2 if usual and grain > COARSE * usual else low


def may_fall(mhz: FloatArray, step_mhz: float) -> bool:
    """A clock that wanders far below where it usually is lowest: a lock there may not hold."""
    return wanders(mhz, step_mhz) and float(mhz.min()) < DEEP * float(np.quantile(mhz, LOW))


def _moves(mhz: FloatArray, step_mhz: float) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Of each move of the clock: from where, whether down, and whether from its lowest tenth."""
    if mhz.size == 0:
        return mhz, np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    turns = mhz[np.abs(np.diff(mhz, prepend=math.inf)) > step_mhz / 2]
    start = turns[:-1]
    return start, np.diff(turns) < 0, start <= np.quantile(mhz, 0.1) + step_mhz / 2


def floor_clock(target_mhz: float, supported_mhz: Sequence[int]) -> int | None:
    """The highest supported clock at or below a target; whole MHz where the list is unknown."""
    if not supported_mhz:
        return math.floor(target_mhz) or None
    fitting = [mhz for mhz in supported_mhz if mhz <= target_mhz]
    return max(fitting) if fitting else None


def below_share(mhz: FloatArray, locked_mhz: float, step_mhz: float) -> float | None:
    """Share of readings that are below a lock and not at it; None without any."""
    if mhz.size == 0:
        return None
    margin = tolerance_mhz(locked_mhz, step_mhz=step_mhz)
    return float((mhz < locked_mhz - margin).mean())


def next_step(
    held_mhz: Collection[int],
    failed_mhz: Collection[int],
    supported_mhz: Sequence[int],
    free_mhz: float | None = None,
) -> int | None:
    """The clock to try next, from those that were held and those that were not; None at the end.

    Two percent up while nothing has failed, then the middle between the highest that was held and
    the lowest that was not. `free_mhz` is the clock without a lock, beyond which nothing holds.
    """
    if not held_mhz:
        return None
    best = max(held_mhz)
    failed = min((mhz for mhz in failed_mhz if mhz > best), default=None)
    if failed is not None and failed <= best * CLOSE:
        return None
    top = math.inf if free_mhz is None else ABOVE_FREE * free_mhz
    above = [mhz for mhz in supported_mhz if best < mhz <= top and (failed is None or mhz < failed)]
    if not above:
        return None
    if failed is not None:
        return above[len(above) // 2]
    return next((mhz for mhz in above if mhz >= STEP_UP * best), above[-1])


class LockLadder:
    """Remembers which locks were held, and which clock is worth a try after them."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._failed: set[int] = set()
        self.free_mhz: float | None = None
        """Median clock under load without a lock."""

    def update(
        self, locked_mhz: int, supported_mhz: Sequence[int], *, is_held: bool | None
    ) -> int | None:
        """The next clock to try, once the lock in force is known to hold."""
        if is_held is None:
            return None
        (self._held if is_held else self._failed).add(locked_mhz)
        (self._failed if is_held else self._held).discard(locked_mhz)
        if not is_held:
            return None
        return next_step(self._held, self._failed, supported_mhz, self.free_mhz)

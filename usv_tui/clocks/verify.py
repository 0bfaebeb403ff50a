"""Is the clock that was asked for the clock that runs? Answered from readings under load.

No driver says whether a lock is in force, and success only means that the wish was noted, so
`locked` is never claimed from a return code.
"""

import functools
import operator
import statistics
from collections import deque
from collections.abc import Sequence

import numpy as np

from usv_tui.model import POWER_REASONS, THERMAL_REASONS, ClockHold, Reading, Reason
from usv_tui.stats.held import share_at, tolerance_mhz
from usv_tui.stats.inputs import is_stray

NS_PER_S = 1_000_000_000
WINDOW_NS = 10 * NS_PER_S
GRACE_NS = NS_PER_S
"""Readings of the first second still show the clock on its way."""
MIN_READINGS = 20
HELD_SHARE = 0.99
"""A lock counts as held from this share of readings on …"""
LOST_SHARE = 0.95
"""… and as lost below this one, so that the word does not flicker."""
MOSTLY = 0.6
"""A lock with so many readings above it is none: limits only bring a clock down."""
FAR_SHARE = 0.1
"""So many readings far above a lock that the clock is seldom at are no sensor's noise."""
ROUNDED_SHARE = 0.03
"""A driver may round a lock up by so much, and hold it there."""
BOTH_SIDES = 0.2
"""With so many of the stray readings on either side, the clock is neither above nor below."""
IDLE_UTIL_PCT = 5.0
LIMIT_NS_SHARE = 0.01

LIMITING = POWER_REASONS | THERMAL_REASONS | Reason.HW_SLOWDOWN
_THROTTLE_WORDS = {
    "power": "power cap",
    "thermal": "temperature limit",
    "hw_thermal": "temperature limit",
    "brake": "power brake",
}


def is_loaded(reading: Reading) -> bool:
    """True unless the device says that it was idle."""
    if reading.reasons is not None and reading.reasons & Reason.IDLE:
        return False
    return reading.util_pct is None or reading.util_pct >= IDLE_UTIL_PCT


def limit_word(reasons: int) -> str:
    """The limit behind a mask of clock-event reasons, in a word or two; empty for none."""
    if reasons & Reason.HW_POWER_BRAKE:
        return "power brake"
    if reasons & (Reason.SW_POWER_CAP | Reason.BOARD_LIMIT):
        return "power cap"
    if reasons & THERMAL_REASONS:
        return "temperature limit"
    return "hardware slowdown" if reasons & Reason.HW_SLOWDOWN else ""


class HoldWatch:
    """Follows one lock through telemetry readings and tells whether it is held."""

    def __init__(self, locked_mhz: int, supported: Sequence[int] = ()) -> None:
        self.locked_mhz = locked_mhz
        self.hold = ClockHold.PENDING
        self.evidence = "not verified yet: needs 10 s under load"
        self.is_ignored = False
        """The clock runs above the lock: no limit does that, only a driver that ignores it."""
        self._supported = sorted(supported)
        self._tolerance_mhz = tolerance_mhz(locked_mhz, self._supported)
        self._readings: deque[Reading] = deque()
        self._start_ns: int | None = None

    def feed(self, reading: Reading) -> ClockHold:
        """Take one reading into account; those without a clock or without load say nothing."""
        if self._start_ns is None:
            self._start_ns = reading.at_ns
        if (
            reading.at_ns < self._start_ns + GRACE_NS
            or reading.sm_mhz is None
            or "sm_mhz" in reading.ages_ns
            or not is_loaded(reading)
        ):
            return self.hold
        self._readings.append(reading)
        while self._readings[0].at_ns < reading.at_ns - WINDOW_NS:
            self._readings.popleft()
        self._judge(reading.at_ns)
        return self.hold

    def _judge(self, now_ns: int) -> None:
        assert self._start_ns is not None
        n = len(self._readings)
        is_young = now_ns < self._start_ns + GRACE_NS + WINDOW_NS
        if n < MIN_READINGS or (self.hold is ClockHold.PENDING and is_young):
            return
        share = self._share_at_lock()
        self.is_ignored = self._runs_above(share)
        counted = "" if self.is_ignored else self._counted_limit()
        if counted or self.is_ignored or share < LOST_SHARE:
            self.hold = ClockHold.NOT_HELD
        elif share >= HELD_SHARE:
            self.hold = ClockHold.LOCKED
        elif self.hold is ClockHold.PENDING:
            self.hold = ClockHold.NOT_HELD
        self.evidence = self._explain(share, n, counted)

    def _share_at_lock(self) -> float:
        """Share of the readings at the locked clock, nonsense left out.

        A limit's flag takes nothing from it: drivers leave flags stuck, and clock and counters
        show a limit that is real.
        """
        at_lock = np.array([self._is_at_lock(r) for r in self._readings])
        if at_lock.all():
            return 1.0
        clocks = np.array([(r.sm_mhz, _slowest(r)) for r in self._readings], np.float64)
        return share_at(at_lock, is_stray(clocks[:, 0]) | is_stray(clocks[:, 1]))

    def _is_at_lock(self, reading: Reading) -> bool:
        """True when every partition runs at the locked clock, whatever the limits say."""
        assert reading.sm_mhz is not None
        off = max(abs(mhz - self.locked_mhz) for mhz in (reading.sm_mhz, _slowest(reading)))
        return off <= self._tolerance_mhz

    def _runs_above(self, share: float) -> bool:
        """Above the lock most of the time, or seldom at it and far above now and then."""
        if self._is_rounded_up():
            return False
        far = self._share_above(ROUNDED_SHARE * self.locked_mhz)
        return self._share_above() >= MOSTLY or (share < 1 - MOSTLY and far >= FAR_SHARE)

    def _share_above(self, by_mhz: float = 0.0) -> float:
        """Share of the readings above the lock, where no limit can bring a clock."""
        by_mhz = max(by_mhz, self._tolerance_mhz)
        above = sum((r.sm_mhz or 0.0) - self.locked_mhz > by_mhz for r in self._readings)
        return above / len(self._readings)

    def _is_rounded_up(self) -> bool:
        """The clock stands on one value close above the lock: the device's own idea of it."""
        clocks = {reading.sm_mhz or 0.0 for reading in self._readings}
        return len(clocks) == 1 and clocks.pop() <= (1 + ROUNDED_SHARE) * self.locked_mhz

    def _counted_limit(self) -> str:
        """The limit whose counter advanced by more than 1 % of the window; empty when none did."""
        first, last = self._readings[0], self._readings[-1]
        span_ns = last.at_ns - first.at_ns
        for name, word in _THROTTLE_WORDS.items():
            before, after = first.throttle_ns.get(name), last.throttle_ns.get(name)
            if before is None or after is None:
                continue
            if after - before > LIMIT_NS_SHARE * span_ns:
                return word
        return ""

    def _explain(self, share: float, n: int, counted: str) -> str:
        """Clock and limits told apart: each with the share of readings that show it."""
        limited = [r.reasons for r in self._readings if (r.reasons or 0) & LIMITING]
        reasons = functools.reduce(operator.or_, (mask or 0 for mask in limited), 0)
        if self.hold is ClockHold.LOCKED:
            flag = len(limited) / n
            doubt = "" if flag <= 1 - LOST_SHARE else f"; {limit_word(reasons)}: flag stuck?"
            return f"{self.locked_mhz} MHz in {share:.1%} of {n} readings under load{doubt}"
        at_lock = sum(map(self._is_at_lock, self._readings)) / n
        clocks = f"{self.locked_mhz} MHz in {at_lock:.1%} of readings"
        if at_lock < 1:
            clocks = f"{self._median()}, {clocks}"
        if self.is_ignored:
            return f"runs above the lock, the driver ignores it: {clocks}"
        cause = counted or limit_word(reasons)
        if not cause or self._share_above() > BOTH_SIDES:  # no limit brings a clock above a lock
            told = "" if cause else ", no limit reported"
            return f"{self._side()}{told}: {clocks}"
        if at_lock < HELD_SHARE:
            return f"{cause}: {clocks}"
        told = "by its counter" if counted else f"in {len(limited) / n:.1%} of readings"
        return f"{cause} reported {told}, though {clocks}"

    def _median(self) -> str:
        """The clock in the middle; of several partitions the slowest one's too."""
        clocks = [r.sm_mhz for r in self._readings if r.sm_mhz is not None]
        lowest = [r.sm_mhz_min for r in self._readings if r.sm_mhz_min is not None]
        slow = f", slowest partition {statistics.median(lowest):.0f} MHz" if lowest else ""
        return f"median {statistics.median(clocks):.0f} MHz{slow}"

    def _side(self) -> str:
        """Where the readings are that are not at the locked clock."""
        away = [r for r in self._readings if not self._is_at_lock(r)]
        below = sum(_slowest(r) < self.locked_mhz for r in away) / max(1, len(away))
        if BOTH_SIDES < below < 1 - BOTH_SIDES:
            return "runs around the lock"
        return f"runs {'below' if below > 0.5 else 'above'} the lock"


def _slowest(reading: Reading) -> float:
    assert reading.sm_mhz is not None
    return reading.sm_mhz if reading.sm_mhz_min is None else reading.sm_mhz_min


def foreign_lock_hint(readings: Sequence[Reading], supported: Sequence[int]) -> str:
    """Evidence that somebody else has locked the clock, from readings under load without our lock.

    A free clock moves or sits at its maximum. One that stands on a single value well below it,
    with no limit reported, is probably locked. Empty when there is no such evidence.
    """
    loaded = [reading for reading in readings if reading.sm_mhz is not None and is_loaded(reading)]
    clocks = {reading.sm_mhz for reading in loaded}
    if len(loaded) < MIN_READINGS or len(clocks) != 1 or not supported:
        return ""
    if any((reading.reasons or 0) & LIMITING for reading in loaded):
        return ""
    clock = clocks.pop()
    assert clock is not None
    if clock >= 0.97 * max(supported):
        return ""
    return f"the clock stands at {clock:.0f} MHz under load with no limit reported"

"""When a lock that is only advised may be made unasked: once it has stood, at a settled clock."""

from collections.abc import Sequence

import msgspec
import numpy as np

from usv_tui.clocks.verify import is_loaded
from usv_tui.model import Advice, ClockState, Reading, Verdict
from usv_tui.report.wording.advice import advice_line, is_idle
from usv_tui.timesource import NS_PER_S

STANDS_NS, STANDS_UNSURE_NS = 5 * NS_PER_S, 15 * NS_PER_S
"""An advice has to say the same for so long: longer where only trying tells what a lock gains."""
SETTLED_NS = 8 * NS_PER_S
"""Readings of the last so many seconds have to be under load, level, and to bear it out."""
FEWEST = 20
LEVEL = 0.03
"""The medians of both halves of those readings agree within this, or within their spread."""
SAME = 0.02
"""Advised clocks within this of each other are one advice: it has stood since the first."""
NEAR = 0.9
"""The advised clock is at most so far below the readings, unless a row alone asks for less."""
NOTHING = "nothing was advised while this run lasted"


_OF_A_LOCK = ("clock_cost", "lock_from", "worth", "try_mhz", "gain_bench", "needs")
"""What an advice says of the lock that it proposes, or needs to propose one."""


class AdvisedLock:
    """Follows the advice of a run that is to lock as advised."""

    def __init__(self) -> None:
        self.why = NOTHING
        """Why there is no lock yet, for the end of a run that never had one."""
        self._verdict: Verdict | None = None
        self._mhz: int | None = None
        self._since_ns = 0

    def look(self, advice: Advice, readings: Sequence[Reading], now_ns: int) -> int | None:
        """The clock to lock at now; None while nothing is advised, or not surely, or in vain."""
        if not self._is_as_before(advice):
            self._verdict, self._mhz, self._since_ns = advice.verdict, advice.lock_mhz, now_ns
        if advice.lock_mhz is None:
            return None
        self.why = self._doubt(advice, readings, now_ns)
        return None if self.why else advice.lock_mhz

    def _is_as_before(self, advice: Advice) -> bool:
        """The verdict is the one that has stood, and so is its clock, nearly."""
        if advice.verdict is not self._verdict:
            return False
        if advice.lock_mhz is None or self._mhz is None:
            return advice.lock_mhz == self._mhz
        return abs(advice.lock_mhz - self._mhz) <= SAME * self._mhz

    def _doubt(self, advice: Advice, readings: Sequence[Reading], now_ns: int) -> str:
        """Why the advice is not followed yet; empty when it is to be."""
        at = f"{advice.lock_mhz} MHz was advised"
        if is_idle(advice):
            return advice_line(advice)
        recent = [r for r in readings if r.at_ns >= now_ns - SETTLED_NS and r.sm_mhz is not None]
        if not _bears_out(recent, advice):
            return f"{at}, and the clock under load had not settled"
        needed_ns = STANDS_NS if advice.is_gain_known else STANDS_UNSURE_NS
        stood_ns = now_ns - self._since_ns
        doubt = "" if advice.is_gain_known else ", and what it would gain was not known"
        return "" if stood_ns >= needed_ns else f"{at} for {stood_ns // NS_PER_S} s only{doubt}"


def _bears_out(recent: Sequence[Reading], advice: Advice) -> bool:
    """The readings are all under load, their clock is level, and the advice is of that clock."""
    if len(recent) < FEWEST or not all(map(is_loaded, recent)):
        return False
    mhz = np.array([r.sm_mhz if r.sm_mhz_min is None else r.sm_mhz_min for r in recent], np.float64)
    low, middle, high = np.quantile(mhz, (0.05, 0.5, 0.95))
    halves = [float(np.median(half)) for half in np.array_split(mhz, 2)]
    if abs(halves[1] - halves[0]) > max(LEVEL * middle, (high - low) / 2):
        return False
    is_alone = advice.evidence.get("lock_from") == "solo"
    return is_alone or (advice.lock_mhz or 0) >= NEAR * low


def heeding(advice: Advice, clocks: ClockState) -> Advice:
    """The advice where this device's driver ignores locks: then no clock is proposed.

    What needs no lock, or what none would mend, stays as it was.
    """
    if not clocks.is_ignored:
        return advice
    evidence = {k: v for k, v in advice.evidence.items() if k not in _OF_A_LOCK}
    evidence["locks_ignored"] = True
    if advice.lock_mhz is None and advice.verdict is not Verdict.UNKNOWN:
        return msgspec.structs.replace(advice, evidence=evidence)
    return msgspec.structs.replace(
        advice,
        verdict=Verdict.CANNOT_LOCK,
        reason="locks-ignored",
        lock_mhz=None,
        std_locked=None,
        std_locked_low=None,
        evidence=evidence,
    )

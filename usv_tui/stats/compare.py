"""Two saved runs, or two epochs of one: what may be claimed, and at which clock.

An interval from within a run says nothing about the next run (allocation, layout, room): at 0.1 %
between runs it covers in 18 of 100 cases. So only repeated runs get an interval; two single runs
get a difference with a margin, and runs at different clocks an estimate at equal clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from usv_tui.model import Answer, ClockEffect
from usv_tui.stats.basics import FloatArray, median, t_quantile, usable
from usv_tui.stats.pairs import BAND, answer

SINGLE_MARGIN = 0.01
"""Two single runs cannot tell differences below 1 %."""
GROSS_MARGIN = 0.25
"""Beyond what clocks and temperature do to one card; all that unsettled runs can show."""
SAME_CLOCK = 0.005
ALPHA_ERROR = 0.05
MIN_RUNS = 3
THERMAL_SHARE = 0.05


class Claim(StrEnum):
    """How much a comparison is worth, best first (paired rows of one session are better still)."""

    REPEATED = "repeated runs"
    SAME_CLOCK = "single runs, same clock"
    ESTIMATE = "estimate at equal clock"
    NONE = "no comparison"


@dataclass(frozen=True, slots=True)
class SavedRow:
    """One row of one saved run (or epoch), reduced to what a comparison needs."""

    n: int
    median_s: float | None
    mhz: float | None = None
    """Geometric mean of the clock under load; None without telemetry."""
    effect: ClockEffect = ClockEffect()
    is_settled: bool = False
    thermal_share: float | None = None
    lock_mhz: int | None = None
    uuid: str = ""
    driver: str | None = None
    power_limit_mw: int | None = None


def saved_row(
    seconds: FloatArray,
    sm_mhz: FloatArray | None = None,
    *,
    effect: ClockEffect | None = None,
    is_settled: bool = False,
    thermal_share: float | None = None,
    lock_mhz: int | None = None,
    uuid: str = "",
    driver: str | None = None,
    power_limit_mw: int | None = None,
) -> SavedRow:
    """Reduce one row's samples (seconds per call) and the clock readings under its load."""
    x = usable(np.asarray(seconds, np.float64))
    f = usable(np.asarray(sm_mhz, np.float64)) if sm_mhz is not None else np.empty(0)
    return SavedRow(
        n=x.size,
        median_s=median(x) if x.size else None,
        mhz=math.exp(float(np.log(f).mean())) if f.size else None,
        effect=ClockEffect() if effect is None else effect,
        is_settled=is_settled,
        thermal_share=thermal_share,
        lock_mhz=lock_mhz,
        uuid=uuid,
        driver=driver,
        power_limit_mw=power_limit_mw,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The new runs against the old: ratios of times, below 1 is faster."""

    claim: Claim = Claim.NONE
    answer: Answer = Answer.UNDECIDED
    ratio: float | None = None
    """As measured."""
    low: float | None = None
    high: float | None = None
    """95 % interval over runs; None for anything but repeated runs."""
    equal_clock: float | None = None
    """Estimated at the old runs' clock."""
    equal_low: float | None = None
    equal_high: float | None = None
    clock_ratio: float | None = None
    margin: float = SINGLE_MARGIN
    """Differences below this cannot be told; 0 where an interval speaks instead."""
    runs: tuple[int, int] = (0, 0)
    reasons: tuple[str, ...] = ()
    """Codes of what keeps the claim low: unsettled, thermal, no-clock, clock, lock, card, driver,
    power-limit, alpha, few-runs, no-samples."""


def compare(
    old: Sequence[SavedRow],
    new: Sequence[SavedRow],
    *,
    band: float = BAND,
    is_same_session: bool = False,
) -> Comparison:
    """Compare one row over the runs of both sides.

    `is_same_session` is for two epochs of one run, which share allocation and layout: their margin
    is the band.
    """
    old = [row for row in old if row.median_s]
    new = [row for row in new if row.median_s]
    if not old or not new:
        return Comparison(reasons=("no-samples",))
    logs = [np.log([row.median_s for row in side if row.median_s]) for side in (old, new)]
    log_ratio = float(np.median(logs[1]) - np.median(logs[0]))
    runs = (len(old), len(new))
    margin = band if is_same_session else SINGLE_MARGIN
    bad = _unusable(old, new)
    log_clock = _log_clock(old, new)
    clock_ratio = None if log_clock is None else math.exp(log_clock)
    if bad or log_clock is None:
        return Comparison(
            Claim.NONE,
            _beyond(log_ratio, log_ratio, GROSS_MARGIN),
            math.exp(log_ratio),
            clock_ratio=clock_ratio,
            margin=GROSS_MARGIN,
            runs=runs,
            reasons=bad or ("no-clock",),
        )
    differ = _differences(old, new, log_clock)
    estimate = _equal_clock(old, new, log_ratio, log_clock)
    if differ:
        centre, low, high, is_known = estimate
        return Comparison(
            Claim.ESTIMATE,
            _beyond(low, high, margin),
            math.exp(log_ratio),
            equal_clock=math.exp(centre) if is_known else None,
            equal_low=math.exp(low),
            equal_high=math.exp(high),
            clock_ratio=clock_ratio,
            margin=margin,
            runs=runs,
            reasons=differ if is_known else (*differ, "alpha"),
        )
    if min(runs) >= MIN_RUNS:
        low, high = _welch(logs[0], logs[1])
        centre = float(logs[1].mean() - logs[0].mean())
        return Comparison(
            Claim.REPEATED,
            answer(low, high, math.inf, band),
            math.exp(centre),
            math.exp(low),
            math.exp(high),
            clock_ratio=clock_ratio,
            margin=0.0,
            runs=runs,
        )
    return Comparison(
        Claim.SAME_CLOCK,
        _beyond(log_ratio, log_ratio, margin),
        math.exp(log_ratio),
        clock_ratio=clock_ratio,
        margin=margin,
        runs=runs,
        reasons=("few-runs",),
    )


def _unusable(old: Sequence[SavedRow], new: Sequence[SavedRow]) -> tuple[str, ...]:
    """Why these runs describe no lasting state."""
    rows = [*old, *new]
    reasons = []
    if not all(row.is_settled for row in rows):
        reasons.append("unsettled")
    if any((row.thermal_share or 0.0) >= THERMAL_SHARE for row in rows):
        reasons.append("thermal")
    return tuple(reasons)


def _log_clock(old: Sequence[SavedRow], new: Sequence[SavedRow]) -> float | None:
    """Log of the new clock over the old; None when a run has no clock."""
    logs = []
    for side in (old, new):
        clocks = [row.mhz for row in side if row.mhz]
        if len(clocks) < len(side):
            return None
        logs.append(float(np.log(clocks).mean()))
    return logs[1] - logs[0]


def _differences(
    old: Sequence[SavedRow], new: Sequence[SavedRow], log_clock: float
) -> tuple[str, ...]:
    """What else changed between the sides."""
    rows = [*old, *new]
    reasons = []
    if len({row.uuid for row in rows}) > 1:
        reasons.append("card")
    if len({row.driver for row in rows}) > 1:
        reasons.append("driver")
    if len({row.power_limit_mw for row in rows}) > 1:
        reasons.append("power-limit")
    if len({row.lock_mhz for row in rows}) > 1:
        reasons.append("lock")
    if abs(log_clock) > SAME_CLOCK:
        reasons.append("clock")
    return tuple(reasons)


def _equal_clock(
    old: Sequence[SavedRow], new: Sequence[SavedRow], log_ratio: float, log_clock: float
) -> tuple[float, float, float, bool]:
    """(centre, low, high) of the log ratio at equal clock, and whether alpha is known.

    With alpha from a run that could tell it, +-0.05 of error; else anything from 0 to 1.
    """
    known = [
        row.effect.alpha
        for row in (*old, *new)
        if row.effect.status == "ok" and row.effect.alpha is not None
    ]
    if known:
        centre = log_ratio + float(np.mean(known)) * log_clock
        half = ALPHA_ERROR * abs(log_clock)
        return centre, centre - half, centre + half, True
    ends = sorted((log_ratio, log_ratio + log_clock))
    return sum(ends) / 2, ends[0], ends[1], False


def _beyond(low: float, high: float, margin: float) -> Answer:
    """Faster or slower when all that is possible lies beyond the margin."""
    edge = math.log1p(margin)
    if high < -edge:
        return Answer.FASTER
    return Answer.SLOWER if low > edge else Answer.UNDECIDED


def _welch(old: FloatArray, new: FloatArray, alpha: float = 0.05) -> tuple[float, float]:
    """t-interval of the difference of means of two sets of runs with variances of their own."""
    parts = [float(side.var(ddof=1)) / side.size for side in (old, new)]
    centre = float(new.mean() - old.mean())
    total = sum(parts)
    if total <= 0:
        return centre, centre
    weights = [part**2 / (side.size - 1) for part, side in zip(parts, (old, new), strict=True)]
    df = total**2 / sum(weights)
    half = t_quantile(1 - alpha / 2, df) * math.sqrt(total)
    return centre - half, centre + half

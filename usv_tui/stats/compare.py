"""Saved runs against each other: what may be claimed, and at which clock.

An interval from within a run says nothing about the next run (allocation, layout, room): at 0.1 %
between runs it covers in 18 of 100 cases. So only repeated runs get an interval that decides; two
single runs get a difference with a margin. Before either, the two sides must be alike in
everything that changes a time: what is not alike is named, and then no answer is given, only an
estimate at equal clock where the row's exponent is known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from usv_tui.model import Answer, ClockEffect
from usv_tui.stats.basics import FloatArray, median, t_quantile, usable
from usv_tui.stats.long_run import long_run
from usv_tui.stats.pairs import BAND, answer

SINGLE_MARGIN = 0.01
"""Two single runs cannot tell differences below 1 %."""
GROSS_MARGIN = 0.25
"""Beyond what clocks and temperature do: all that single runs show where no clock is told."""
SAME_CLOCK = 0.01
"""Mean and median clock of the two sides may differ by this much."""
MOST_SPREAD = 0.05
"""5th to 95th percentile of the clock within a run, over its median."""
FEWEST_READINGS = 30
ALPHA_ERROR = 0.05
MIN_RUNS = 3
_TWO_SIDED_95 = 1.96


class Claim(StrEnum):
    """How much a comparison is worth, best first (paired rows of one session are better still)."""

    REPEATED = "repeated runs"
    SAME_CLOCK = "single runs, same clock"
    NO_CLOCK = "single runs, clock unknown"
    NONE = "may not be compared"


@dataclass(frozen=True, slots=True)
class RunClock:
    """The clock under a run's load."""

    readings: int
    mean_mhz: float
    """Geometric mean."""
    median_mhz: float
    spread: float
    """5th to 95th percentile over the median."""


def run_clock(sm_mhz: FloatArray) -> RunClock | None:
    """Reduce the clock readings under load (MHz); None without any."""
    f = usable(np.asarray(sm_mhz, np.float64))
    if not f.size:
        return None
    low, middle, high = np.percentile(f, (5, 50, 95))
    mean = math.exp(float(np.log(f).mean()))
    return RunClock(f.size, mean, float(middle), float((high - low) / middle))


@dataclass(frozen=True, slots=True)
class SavedRow:
    """One row of one saved run (or epoch), reduced to what a comparison needs."""

    n: int
    median_s: float | None
    half: float = 0.0
    """Half of the 95 % interval of the log time within the run."""
    clock: RunClock | None = None
    """None where the device tells none."""
    effect: ClockEffect = ClockEffect()
    is_settled: bool = False
    throttled: frozenset[str] = frozenset()
    """Limits that were active for a noteworthy share of the run."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What must be alike on both sides, by code: card, driver, torch, lock, timer, cache …"""


def saved_row(
    seconds: FloatArray,
    clock: RunClock | None = None,
    *,
    effect: ClockEffect | None = None,
    is_settled: bool = False,
    throttled: frozenset[str] = frozenset(),
    facts: Mapping[str, object] | None = None,
) -> SavedRow:
    """Reduce one row's samples (seconds per call, oldest first)."""
    x = usable(np.asarray(seconds, np.float64))
    run = long_run(np.log(x)) if x.size else None
    return SavedRow(
        n=x.size,
        median_s=median(x) if x.size else None,
        half=_TWO_SIDED_95 * math.sqrt(run.variance) + run.shift if run else 0.0,
        clock=clock,
        effect=ClockEffect() if effect is None else effect,
        is_settled=is_settled,
        throttled=throttled,
        facts=facts or {},
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
    """95 % interval: over runs where they were repeated, else within the two runs only."""
    equal_clock: float | None = None
    """Estimated at the old runs' clock."""
    equal_low: float | None = None
    equal_high: float | None = None
    clock_ratio: float | None = None
    margin: float = 0.0
    """Differences below this cannot be told; 0 where the interval speaks instead."""
    runs: tuple[int, int] = (0, 0)
    reasons: tuple[str, ...] = ()
    """Codes of what forbids the comparison: no-samples, unsettled, few-readings, clock-spread,
    clock, throttle, and the names of facts that differ."""


def compare(
    old: Sequence[SavedRow],
    new: Sequence[SavedRow],
    *,
    band: float = BAND,
    across: frozenset[str] = frozenset(),
) -> Comparison:
    """Compare one row over the runs of both sides.

    `across` are reasons that are meant to differ (two drivers, two cards): they forbid nothing.
    """
    old = [row for row in old if row.median_s]
    new = [row for row in new if row.median_s]
    if not old or not new:
        return Comparison(reasons=("no-samples",))
    logs = [np.log([row.median_s for row in side if row.median_s]) for side in (old, new)]
    runs = (len(old), len(new))
    log_clock = _log_clock(old, new)
    clock_ratio = None if log_clock is None else math.exp(log_clock)
    log_ratio = float(np.median(logs[1]) - np.median(logs[0]))
    centre, low, high = _equal_clock(old, new, log_ratio, log_clock)
    half = math.hypot(max(row.half for row in old), max(row.half for row in new))
    found = Comparison(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - half),
        high=math.exp(log_ratio + half),
        equal_clock=None if centre is None else math.exp(centre),
        equal_low=None if low is None else math.exp(low),
        equal_high=None if high is None else math.exp(high),
        clock_ratio=clock_ratio,
        runs=runs,
        reasons=tuple(r for r in _reasons(old, new) if r not in across),
    )
    if found.reasons:
        return found
    if min(runs) >= MIN_RUNS:
        low, high = _welch(logs[0], logs[1])
        return replace(
            found,
            claim=Claim.REPEATED,
            answer=answer(low, high, math.inf, band),
            ratio=math.exp(float(logs[1].mean() - logs[0].mean())),
            low=math.exp(low),
            high=math.exp(high),
        )
    claim = Claim.NO_CLOCK if log_clock is None else Claim.SAME_CLOCK
    margin = GROSS_MARGIN if log_clock is None else SINGLE_MARGIN
    said = _beyond(log_ratio, half, margin)
    if said is Answer.SAME and log_clock is None:
        said = Answer.UNDECIDED  # "the same within 25 %" would be taken for more than it is
    return replace(found, claim=claim, answer=said, margin=margin)


def _reasons(old: Sequence[SavedRow], new: Sequence[SavedRow]) -> list[str]:
    """Why these runs may not be compared, as codes."""
    rows = [*old, *new]
    reasons = [] if all(row.is_settled for row in rows) else ["unsettled"]
    names = sorted({name for row in rows for name in row.facts})
    reasons += [n for n in names if len({repr(row.facts.get(n)) for row in rows}) > 1]
    if not all(row.throttled == rows[0].throttled for row in rows):
        reasons.append("throttle")
    return reasons + _clock_reasons(old, new)


def _clock_reasons(old: Sequence[SavedRow], new: Sequence[SavedRow]) -> list[str]:
    clocks = [[row.clock for row in side if row.clock] for side in (old, new)]
    known = [*clocks[0], *clocks[1]]
    if not known:
        return []  # neither side's device tells one: the margin says so
    reasons = []
    if len(known) < len(old) + len(new) or min(c.readings for c in known) < FEWEST_READINGS:
        reasons.append("few-readings")
    if max(c.spread for c in known) > MOST_SPREAD:
        reasons.append("clock-spread")
    if all(clocks) and _offset(clocks[0], clocks[1]) > math.log1p(SAME_CLOCK):
        reasons.append("clock")
    return reasons


def _offset(old: Sequence[RunClock], new: Sequence[RunClock]) -> float:
    """The larger difference of the two sides' log clock: of their means, or of their medians."""
    means = [np.mean(np.log([c.mean_mhz for c in side])) for side in (old, new)]
    medians = [np.mean(np.log([c.median_mhz for c in side])) for side in (old, new)]
    return float(max(abs(means[1] - means[0]), abs(medians[1] - medians[0])))


def _log_clock(old: Sequence[SavedRow], new: Sequence[SavedRow]) -> float | None:
    """Log of the new clock over the old; None when a run has no clock."""
    logs = []
    for side in (old, new):
        clocks = [row.clock.mean_mhz for row in side if row.clock]
        if len(clocks) < len(side):
            return None
        logs.append(float(np.log(clocks).mean()))
    return logs[1] - logs[0]


def _equal_clock(
    old: Sequence[SavedRow],
    new: Sequence[SavedRow],
    log_ratio: float,
    log_clock: float | None,
) -> tuple[float | None, float | None, float | None]:
    """(centre, low, high) of the log ratio at the old clock; None: clock or exponent unknown.

    The exponents are those of runs that could tell theirs, +-0.05 of error.
    """
    known = [
        row.effect.alpha
        for row in (*old, *new)
        if row.effect.status == "ok" and row.effect.alpha is not None
    ]
    if log_clock is None or not known:
        return None, None, None
    centre = log_ratio + float(np.mean(known)) * log_clock
    half = ALPHA_ERROR * abs(log_clock)
    return centre, centre - half, centre + half


def _beyond(log_ratio: float, half: float, margin: float) -> Answer:
    """Faster or slower when the difference, and what is known of it, lie beyond the margin."""
    edge = math.log1p(margin)
    if log_ratio + half < -edge:
        return Answer.FASTER
    if log_ratio - half > edge:
        return Answer.SLOWER
    return Answer.SAME if abs(log_ratio) + half <= edge else Answer.UNDECIDED


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

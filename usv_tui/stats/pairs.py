"""Is B faster than A? Ratios paired within rounds, with an interval that may be watched live.

Both rows of a round meet the same clock and temperature; what they follow alike leaves their
quotient alone. The mean of the log ratios, stragglers drawn in, is bracketed by its long-run
deviation (`long_run`) times Robbins' normal-mixture boundary: with 95 % probability that is not
crossed at *any* round, so a reader who looks whenever he likes and stops when it suits him is
still right, as far as the rounds have shown all that there is to see.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.model import Answer, Ratio
from usv_tui.stats.basics import (
    FloatArray,
    IntArray,
    correlation_time,
    median,
    normal_quantile,
)
from usv_tui.stats.long_run import LongRun, long_run

BAND = 0.005
"""Relative difference of no practical interest."""
ALPHA = 0.05
MIN_EFFECTIVE = 30.0
"""Independent rounds that an answer needs."""
FEWEST_EFFECTIVE = 20.0
"""Where twice the interval leaves no doubt, so many do."""
MANY_ROUNDS = 200
"""Or so many rounds, however they hang together."""
REACH = 1.5
"""No interval is wider each way than this times the range of the means of eighths of the run."""
FEWEST_ROUNDS = 20
"""An interval needs so many rounds."""
NOTEWORTHY = 0.25
"""A ratio that moves by less than this share of the band does not matter."""
TAU_SAMPLES = 4096
"""The correlation time of a median is taken from so many of the latest samples."""

_TUNED_AT = 200.0
"""Effective rounds at which the boundary is narrowest."""


def boundary(n_eff: float, alpha: float = ALPHA) -> float:
    """Half width, in standard deviations of a mean of `n_eff` values, that holds at all times.

    Robbins' two-sided normal mixture; 3.0 at 100 rounds and 3.6 at 10 000, against 1.96 for a
    single look.
    """
    log_alpha = -2 * math.log(alpha)
    rho = _TUNED_AT / (log_alpha + math.log(1 + log_alpha))
    v = max(n_eff, 1.0)
    return math.sqrt((v + rho) * (math.log((v + rho) / rho) + log_alpha) / v)


class Interval(NamedTuple):
    """An estimate with its bounds; a bound is None where there are too few values for it."""

    centre: float
    low: float | None
    high: float | None
    n: int
    n_eff: float

    @property
    def half_width(self) -> float | None:
        """Half the distance of the bounds."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


def cautious_tau(values: FloatArray) -> float:
    """Correlation time of the ranks, raised by its own standard error for short series."""
    x = values[-TAU_SAMPLES:]
    tau = correlation_time(x)
    error = math.sqrt(2 * (2 * 5 * tau + 1) / max(x.size, 1))
    return min(tau * (1 + error), float(max(values.size, 1)))


def median_interval(
    values: FloatArray,
    *,
    alpha: float = ALPHA,
    tau: float | None = None,
    any_time: bool = True,
) -> Interval | None:
    """The median between order statistics at the effective sample size; None when empty.

    `any_time=False` gives the narrower interval that is right for one look only.
    """
    x = np.asarray(values, np.float64)
    n = x.size
    if n == 0:
        return None
    tau = cautious_tau(x) if tau is None else max(tau, 1.0)
    n_eff = n / tau
    z = boundary(n_eff, alpha) if any_time else normal_quantile(1 - alpha / 2)
    half = z * n / 2 / math.sqrt(n_eff)
    low = math.floor(n / 2 - half)
    high = n + 1 - low
    inside = low >= 1
    middle = [(n - 1) // 2, n // 2]
    part = np.partition(x, [*middle, low - 1, high - 1] if inside else middle)
    centre = float(part[middle[0]] + part[middle[1]]) / 2
    if not inside:
        return Interval(centre, None, None, n, n_eff)
    return Interval(centre, float(part[low - 1]), float(part[high - 1]), n, n_eff)


def answer(low: float | None, high: float | None, n_eff: float, band: float = BAND) -> Answer:
    """Faster or slower when the whole interval (of log ratios) is beyond the band; same inside."""
    if low is None or high is None or n_eff < MIN_EFFECTIVE:
        return Answer.UNDECIDED
    edge = math.log1p(band)
    if high < -edge:
        return Answer.FASTER
    if low > edge:
        return Answer.SLOWER
    return Answer.SAME if -edge <= low and high <= edge else Answer.UNDECIDED


class Estimate(NamedTuple):
    """A log ratio and how well it is known."""

    centre: float
    half: float
    """Half the interval; 0 for rounds that are all alike."""
    n: int
    found: LongRun

    def answer(self, band: float, least: float = MIN_EFFECTIVE) -> Answer:
        """What may be said; while the ratio moves, only what twice its interval leaves no doubt of.

        Few independent rounds have an answer, too, where the difference is far beyond their wander.
        """
        wide = answer(self.centre - 2 * self.half, self.centre + 2 * self.half, math.inf, band)
        is_backed = self.found.n_eff >= FEWEST_EFFECTIVE or self.n >= MANY_ROUNDS
        if is_backed and wide in (Answer.FASTER, Answer.SLOWER):
            return wide
        if self.moves(band):
            return Answer.MOVING
        if self.found.n_eff < least:
            return Answer.UNDECIDED
        return answer(self.centre - self.half, self.centre + self.half, math.inf, band)

    def moves(self, band: float) -> bool:
        """The level changes by more than noise does, and by enough to matter."""
        return self.found.moves and self.found.travel > NOTEWORTHY * band


def estimate(
    log_ratio: FloatArray,
    *,
    alpha: float = ALPHA,
    resolution: float | None = None,
    any_time: bool = True,
) -> Estimate:
    """Mean of the log ratios without stragglers, +- what its long-run variance allows.

    `resolution` is the timer's relative step where it limits: no interval is narrower than 3 / n of
    it (what n equal readings cannot exclude), and none than all of it where all readings are equal.
    """
    found = long_run(log_ratio, resolution or 0.0)
    return bracketed(log_ratio, found, alpha=alpha, resolution=resolution, any_time=any_time)


def bracketed(
    d: FloatArray,
    found: LongRun,
    *,
    alpha: float = ALPHA,
    resolution: float | None = None,
    any_time: bool = True,
) -> Estimate:
    """The estimate from log ratios that have been judged."""
    z = boundary(found.n_eff, alpha) if any_time else normal_quantile(1 - alpha / 2)
    half = z * math.sqrt(found.variance) + found.shift
    if found.travel:
        half = min(half, REACH * found.travel)
    if resolution:
        half = max(half, resolution * (3 / d.size if float(np.ptp(d)) > 0 else 1.0))
    return Estimate(found.mean, half, d.size, found)


def paired_ratio(
    log_ratio: FloatArray,
    *,
    band: float = BAND,
    alpha: float = ALPHA,
    comparisons: int = 1,
    resolution: float | None = None,
    any_time: bool = True,
) -> Ratio:
    """The ratio of times from the log ratios of the rounds, oldest first, with an answer.

    `comparisons` is the number of rows held against one baseline: each gets its share of `alpha`.
    `resolution` is the timer's step relative to the time (the larger of the two rows), given when
    the timer limits. `any_time=False` gives the interval for a single look.
    """
    d = np.asarray(log_ratio, np.float64)
    d = d[np.isfinite(d)]
    if d.size < FEWEST_ROUNDS:
        return without_interval(d, band)
    share = alpha / max(comparisons, 1)
    found = estimate(d, alpha=share, resolution=resolution, any_time=any_time)
    return told_ratio(found, d.size, band, resolution)


def without_interval(d: FloatArray, band: float) -> Ratio:
    """What is told of too few rounds."""
    if d.size == 0:
        return Ratio(band=band, note="no pairs")
    return Ratio(ratio=_exp(median(d)), n=d.size, n_eff=d.size, band=band, note="few rounds")


def told_ratio(found: Estimate, n: int, band: float, resolution: float | None) -> Ratio:
    """An estimate from `n` rounds in the form that is recorded."""
    moves = found.moves(band)
    said = found.answer(band)
    notes = []
    if moves and said is not Answer.MOVING:
        notes.append(str(Answer.MOVING))
    if found.found.n_eff < MIN_EFFECTIVE:
        notes.append("few rounds" if n < 2 * MIN_EFFECTIVE else "low n_eff")
    if resolution is not None:
        notes.append("timer-limited")
    return Ratio(
        answer=said,
        ratio=_exp(found.centre),
        low=_exp(found.centre - found.half),
        high=_exp(found.centre + found.half),
        n=n,
        n_eff=found.found.n_eff,
        band=band,
        note=", ".join(notes),
        moves=moves,
    )


def half_width(ratio: Ratio) -> float | None:
    """Half the interval, in log units (0.005 is +-0.5 %); None when there is none."""
    if not ratio.low or not ratio.high:
        return None
    return math.log(ratio.high / ratio.low) / 2


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(min(max(value, -700.0), 700.0))


def is_control_off(control: Ratio) -> bool:
    """True when a copy of the baseline differs from it: then no ratio of the run can be trusted.

    Half the band suffices, since a difference of its own size could tip any other row.
    """
    if control.low is None or control.high is None or (control.n_eff or 0) < MIN_EFFECTIVE:
        return False
    edge = math.log1p(control.band / 2)
    return control.high < math.exp(-edge) or control.low > math.exp(edge)


def round_means(rounds: IntArray, log_seconds: FloatArray) -> tuple[IntArray, FloatArray]:
    """One value a round: the mean of log t where a row has several samples in it.

    Rounds must not decrease; values that are not finite are left out.
    """
    good = np.isfinite(log_seconds)
    rounds, log_seconds = rounds[good], log_seconds[good]
    if rounds.size == 0:
        return rounds, log_seconds
    fresh = np.concatenate([[True], rounds[1:] != rounds[:-1]])
    if fresh.all():
        return rounds, log_seconds
    starts = np.flatnonzero(fresh)
    counts = np.diff(np.concatenate([starts, [rounds.size]]))
    return rounds[starts], np.add.reduceat(log_seconds, starts) / counts

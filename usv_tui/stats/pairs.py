"""Is B faster than A? Ratios paired within rounds, with an interval that may be watched live.

Both rows of a round meet the same clock and temperature, so their quotient is free of both. The
median of the per-round log ratios is bracketed by order statistics. How far apart they must be is
Robbins' normal-mixture boundary for the count of rounds above the median: with 95 % probability it
is not crossed at *any* round, so a reader who looks after every round and stops when it suits him
is still right. Correlated rounds count for fewer (n_eff).
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from usv_tui.model import Answer, Ratio
from usv_tui.stats.basics import (
    FloatArray,
    IntArray,
    correlation_time,
    madn,
    median,
    normal_quantile,
    row_medians,
    t_quantile,
)

BAND = 0.005
"""Relative difference of no practical interest."""
ALPHA = 0.05
MIN_EFFECTIVE = 30.0
"""Below so many effective rounds every method covers too rarely: no answer."""
CAPACITY = 8192
"""Most rounds kept; then every other one is dropped. At half of it the interval is +-0.06 % for
1 % noise."""
TAU_SAMPLES = 4096
"""The correlation time is taken from so many of the latest rounds."""

WANDER_SAMPLES = 200
WANDER_BATCHES = 24
WANDER_FACTOR = 3.0

_TUNED_AT = 400.0
"""Effective rounds at which the boundary is narrowest."""


def boundary(n_eff: float, alpha: float = ALPHA) -> float:
    """Half width, in standard deviations of a mean of `n_eff` values, that holds at all times.

    Robbins' two-sided normal mixture; 3.0 at 400 rounds and 3.4 at 10 000, against 1.96 for a
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
    return min(tau * (1 + TAU_CAUTION * error), float(max(values.size, 1)))


TAU_CAUTION = 1.0


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


def mean_interval(
    values: FloatArray,
    *,
    resolution: float,
    alpha: float = ALPHA,
    tau: float | None = None,
    any_time: bool = True,
) -> Interval | None:
    """The clipped mean, for times that a coarse timer rounds; None when empty.

    A lattice holds the median still, while the mean of a free-running counter is unbiased. The
    interval is never narrower than `resolution` x 3 / n (what n equal readings cannot exclude),
    and a whole `resolution` when all readings are the same.
    """
    x = np.asarray(values, np.float64)
    n = x.size
    if n == 0:
        return None
    centre = median(x)
    limit = max(6 * madn(x), 4 * resolution)
    x = centre + np.clip(x - centre, -limit, limit)
    tau = cautious_tau(x) if tau is None else max(tau, 1.0)
    n_eff = n / tau
    mean = float(x.mean())
    if n < 20:
        return Interval(mean, None, None, n, n_eff)
    batches = min(20, n // 10)
    size = n // batches
    means = x[n - size * batches :].reshape(batches, size).mean(axis=1)
    between = float(means.var(ddof=1)) * size
    within = float(x.var(ddof=1)) * tau
    sd = math.sqrt(max(between, within) if any_time else between)
    if any_time:
        half = boundary(n_eff, alpha) * sd / math.sqrt(n)
    else:
        half = t_quantile(1 - alpha / 2, batches - 1) * sd / math.sqrt(n)
    floor = resolution * (3 / n if float(np.ptp(x)) > 0 else 1.0)
    half = max(half, floor)
    return Interval(mean, mean - half, mean + half, n, n_eff)


def wander_interval(values: FloatArray) -> Interval | None:
    """Centre +- three times the range of 24 batch medians, for rounds too correlated to count.

    Two rows that follow the clock differently make their ratio wander with it; a difference far
    beyond all its wandering is still one. None below 200 values.
    """
    x = np.asarray(values, np.float64)
    size = x.size // WANDER_BATCHES
    if x.size < WANDER_SAMPLES:
        return None
    levels = row_medians(x[x.size - size * WANDER_BATCHES :].reshape(WANDER_BATCHES, size))
    centre = median(x)
    half = WANDER_FACTOR * float(np.ptp(levels))
    return Interval(centre, centre - half, centre + half, x.size, MIN_EFFECTIVE)


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


def paired_ratio(
    log_ratio: FloatArray,
    *,
    band: float = BAND,
    alpha: float = ALPHA,
    comparisons: int = 1,
    resolution: float | None = None,
    tau: float | None = None,
    any_time: bool = True,
) -> Ratio:
    """The ratio of times from the log ratios of the rounds, oldest first, with an answer.

    `comparisons` is the number of rows held against one baseline: each gets its share of `alpha`.
    `resolution` is the timer's step relative to the time (the larger of the two rows), given when
    the timer limits; the clipped mean then replaces the median. `any_time=False` gives the interval
    for a single look.
    """
    d = np.asarray(log_ratio, np.float64)
    d = d[np.isfinite(d)]
    share = alpha / max(comparisons, 1)
    if resolution is None:
        found = median_interval(d, alpha=share, tau=tau, any_time=any_time)
    else:
        found = mean_interval(d, resolution=resolution, alpha=share, tau=tau, any_time=any_time)
    if found is None:
        return Ratio(band=band, note="no pairs")
    notes = []
    n_eff = found.n_eff
    counted = n_eff
    if n_eff < MIN_EFFECTIVE:
        notes.append("few rounds" if found.n < 2 * MIN_EFFECTIVE else "low n_eff")
        wander = wander_interval(d)
        if wander is not None:
            notes[-1] = "ratio wanders"
            found, counted = wander, wander.n_eff
    if resolution is not None:
        notes.append("timer-limited")
    return Ratio(
        answer=answer(found.low, found.high, counted, band),
        ratio=_exp(found.centre),
        low=_exp(found.low),
        high=_exp(found.high),
        n=found.n,
        n_eff=n_eff,
        band=band,
        note=", ".join(notes),
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


class PairTracker:
    """The log ratios of a whole epoch in bounded memory, and the ratio now.

    At 8192 rounds every other one is dropped, so that the epoch stays covered from its start.
    """

    def __init__(self, phase: int = 0) -> None:
        self._d: FloatArray = np.empty(1024)
        # Trackers that grow together must not all renew their correlation time together.
        self._growth = 1.04 + 0.01 * (phase % 6)
        self._n = 0
        self.total = 0
        """Rounds added, kept or not."""
        self._stride = 1
        self._skip = 0
        self._tau: tuple[int, float] | None = None

    @property
    def values(self) -> FloatArray:
        """The kept log ratios, oldest first. A view: do not write."""
        return self._d[: self._n]

    def add(self, log_ratio: FloatArray) -> None:
        """Append the log ratios of further rounds."""
        fresh = log_ratio[np.isfinite(log_ratio)]
        self.total += fresh.size
        while fresh.size:
            taken = fresh[self._skip :: self._stride]
            room = CAPACITY - self._n
            if taken.size <= room:
                self._skip = (self._skip - fresh.size) % self._stride
                self._append(taken)
                return
            self._append(taken[:room])
            fresh = fresh[self._skip + room * self._stride :]
            self._thin()

    def _append(self, values: FloatArray) -> None:
        need = self._n + values.size
        if need > self._d.size:
            grown = np.empty(min(CAPACITY, max(need, 2 * self._d.size)))
            grown[: self._n] = self._d[: self._n]
            self._d = grown
        self._d[self._n : need] = values
        self._n = need

    def _thin(self) -> None:
        half = self._d[: self._n : 2].copy()
        self._d[: half.size] = half
        self._n = half.size
        self._stride *= 2
        self._skip = 0
        self._tau = None

    def _correlation(self) -> float:
        """The correlation time, taken afresh when the series has grown by a few percent."""
        if self._tau is None or self._n > self._growth * self._tau[0]:
            self._tau = (self._n, cautious_tau(self.values))
        return min(self._tau[1], float(max(self._n, 1)))

    def ratio(
        self,
        *,
        band: float = BAND,
        alpha: float = ALPHA,
        comparisons: int = 1,
        resolution: float | None = None,
    ) -> Ratio:
        """The ratio now; see `paired_ratio`. Its n counts all rounds, dropped ones too."""
        found = paired_ratio(
            self.values,
            band=band,
            alpha=alpha,
            comparisons=comparisons,
            resolution=resolution,
            tau=self._correlation(),
        )
        return msgspec.structs.replace(found, n=self.total)

"""How far the mean of correlated values may be off: one estimate for quick noise and slow wander.

Noise that forgets itself within a few values is measured by its correlation time. What wanders
more slowly shows as means of long stretches that differ by more than that noise allows; the excess
is charged several times, since a wander of which only a few turns were seen has not shown all of
itself. Both parts change smoothly with the data, so an interval built on them does, too.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import MAD_TO_SD, FloatArray, correlation_time, median, row_medians

CLIP_SDS = 5.0
"""Values further out than this count as being there: nearly a mean on normal noise, nearly a median
on stragglers."""
FINEST = 1e-6
"""Deviations (of log ratios) below this are ties: rounding is no scale."""
BESIDE = 7
"""Neighbours whose median is the level that stragglers are told from."""
TAU_CAUTION = 0.9
"""Standard errors by which the correlation time is raised."""
FEW_TURNS = 16.0
"""With so many independent values the time they were told from is twice as long as it looks."""
SHORT = 1.2
"""A correlation time below this is none."""
STRETCHES = 32
SLOW_SCALES = (4, 8)
"""Slow wander is looked for in means of 4/32 and 8/32 of the series."""
SLACK = 1.3
"""Stretches may differ by this times what the noise allows."""
CHARGE = 4.0
"""What they differ by beyond that counts so many times."""
MOVING = 3.0
"""Stretches that differ by this times what noise allows: the level moves."""
GROWING = 2.0
"""So does one whose long stretches differ by this times what its short ones allow, where there are
few independent values."""
ENOUGH = 30.0
"""Independent values from which the correlation time can be told from a moving level."""
TREND_SDS = 2.0
REDDEST = 0.35
"""A spectrum that falls less steeply than the frequency to this power may be flat by chance …"""
RED_CHARGE = 3.0
"""… and one that falls by a power more is charged e to this times the variance …"""
MOST_RED = 0.75
"""… and by so much more at most: the level wanders on times that have not been seen yet."""
_LOG_WAVES = -np.log(np.arange(1, STRETCHES // 2 + 1))
_LOG_WAVES -= _LOG_WAVES.mean()


class LongRun(NamedTuple):
    """The mean of a series, and how well it is known."""

    mean: float
    variance: float
    """Of the mean."""
    shift: float
    """By how much the mean is further off because the level drifts one way."""
    n_eff: float
    """Independent values that would be worth as much."""
    excess: float
    """Variance of long stretches over what the quick noise explains; 1 when there is no wander."""
    growth: float
    """Variance of long stretches over what short ones (of 32) make of it; 1 without wander."""
    travel: float
    """From the lowest to the highest mean of an eighth of the series."""

    @property
    def moves(self) -> bool:
        """The level changes by more than noise does."""
        return self.excess > MOVING or (self.n_eff < ENOUGH and self.growth > GROWING)


def clipped(values: FloatArray, resolution: float = 0.0) -> FloatArray:
    """The values with stragglers drawn in towards the level around them.

    So local that a level which was held only a while is no straggler. Never closer than four timer
    steps.
    """
    deviation = values - _level(values)
    scale = MAD_TO_SD * median(np.abs(deviation))
    if scale < FINEST:
        scale = float(deviation.std())
    limit = max(CLIP_SDS * scale, 4 * resolution)
    return np.asarray(values - deviation + np.clip(deviation, -limit, limit), np.float64)


def _level(values: FloatArray) -> FloatArray:
    """Medians of seven neighbours each, and of three such in a row."""
    size = min(BESIDE, values.size)
    blocks = row_medians(values[: values.size // size * size].reshape(-1, size))
    if blocks.size > 2:
        # The ends have one neighbour; a line through the next two stands in for the other (Tukey).
        before, after = np.empty_like(blocks), np.empty_like(blocks)
        before[1:], after[:-1] = blocks[:-1], blocks[1:]
        before[0] = 3 * blocks[1] - 2 * blocks[2]
        after[-1] = 3 * blocks[-2] - 2 * blocks[-3]
        blocks = np.minimum(
            np.maximum(blocks, np.minimum(before, after)), np.maximum(before, after)
        )
    level = np.repeat(blocks, size)
    return np.concatenate([level, np.full(values.size - level.size, blocks[-1])])


def long_run(values: FloatArray, tau: float | None = None, resolution: float = 0.0) -> LongRun:
    """Judge a non-empty series without NaN, oldest first; `tau`: its correlation time if known."""
    return of_clipped(clipped(values, resolution), tau)


def of_clipped(x: FloatArray, tau: float | None = None) -> LongRun:
    """`long_run` of a series whose stragglers are drawn in already.

    Costs a few passes over the values; the correlation time is the dearest part.
    """
    n = x.size
    mean = float(x.sum()) / n
    x = x - mean
    variance = float(x @ x) / max(n - 1, 1)
    tau = correlation_time(x, ranked=False) if tau is None else max(tau, 1.0)
    own = variance * tau * _caution(n, tau)
    if n < 2 * STRETCHES or own <= 0:
        n_eff = variance * n / own if own > 0 else float(n)
        return LongRun(mean, own / n, 0.0, n_eff, 1.0, 1.0, 0.0)
    size = n // STRETCHES
    y = x[n - size * STRETCHES :].reshape(STRETCHES, size) @ np.full(size, 1 / size)
    y -= float(y.sum()) / STRETCHES
    wander, travel = _wander(y)
    short = float(y @ y) / (STRETCHES - 1)
    excess, growth = size * wander / own, wander / (short or math.inf)
    third = STRETCHES // 3
    change = abs(float(y[-third:].sum() - y[:third].sum())) / third
    noise = math.sqrt(2 * own / (third * size))
    total = own * (1 + CHARGE * max(0.0, excess - SLACK))
    shift = max(0.0, change - TREND_SDS * noise) / 2
    spread = total * _red_charge(y) / n
    return LongRun(mean, spread, shift, n * variance / total, excess, growth, travel)


def _caution(n: int, tau: float) -> float:
    """By how much the variance is raised since the correlation time is an estimate itself.

    With few independent values much of the correlation cannot have been seen.
    """
    factor = 1 + TAU_CAUTION * math.sqrt(2 * (10 * tau + 1) / n)
    return factor + (FEW_TURNS * tau / n) ** 2 * (tau > SHORT)


def _red_charge(y: FloatArray) -> float:
    """By how much the variance is raised where slow waves are the stronger the slower they are.

    `y` are the means of 32 stretches. Where their spectrum is level at its low end (independent
    values, a short correlation) more rounds average it away; noise like 1/f is never averaged away.
    """
    waves = np.fft.rfft(y)[1:]
    power = waves.real**2 + waves.imag**2
    if not power.min() > 0:
        return 1.0
    steepness = float(_LOG_WAVES @ np.log(power)) / float(_LOG_WAVES @ _LOG_WAVES)
    return math.exp(RED_CHARGE * min(max(steepness - REDDEST, 0.0), MOST_RED))


def _wander(y: FloatArray) -> tuple[float, float]:
    """The largest variance (times length in y) of the means of long stretches, and their range.

    `y` has a mean of 0. The stretches overlap, so that it does not matter where they are cut.
    """
    sums = np.zeros(y.size + 1)
    np.cumsum(y, out=sums[1:])
    largest, travel = 0.0, 0.0
    for scale in SLOW_SCALES:
        means = (sums[scale:] - sums[:-scale]) / scale
        spread = float(means @ means) / means.size / (1 - scale / STRETCHES)
        largest = max(largest, scale * spread)
        travel = max(travel, float(means.max() - means.min()))
    return largest, travel

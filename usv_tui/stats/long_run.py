"""How far the mean of correlated values may be off, and whether their level moves.

The noise is measured by its spectrum (`spectrum`), stragglers drawn in. What wanders beyond that
shows as means of long stretches that differ by more than short ones allow.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import MAD_TO_SD, FloatArray, median, row_medians
from usv_tui.stats.spectrum import spread_factor

CLIP_SDS = 5.0
"""Values further out than this count as being there: nearly a mean on normal noise, nearly a median
on stragglers."""
FINEST = 1e-6
"""Deviations (of log ratios) below this are ties: rounding is no scale."""
BESIDE = 7
"""Neighbours whose median is the level that stragglers are told from."""
STRETCHES = 32
SLOW_SCALES = (4, 8)
"""Slow wander is looked for in means of 4/32 and 8/32 of the series."""
GROWING = 2.0
"""A level moves whose long stretches differ by this times what its short ones make of it, where
there are few independent values."""
ENOUGH = 30.0
"""With so many independent values whatever moves is averaged away."""
TREND_SDS = 2.0


class LongRun(NamedTuple):
    """The mean of a series, and how well it is known."""

    mean: float
    variance: float
    """Of the mean."""
    shift: float
    """By how much the mean is further off because the level drifts one way."""
    n_eff: float
    """Independent values that would be worth as much."""
    growth: float
    """Variance of long stretches over what short ones (of 32) make of it; 1 without wander."""
    travel: float
    """From the lowest to the highest mean of an eighth of the series."""

    @property
    def moves(self) -> bool:
        """The level changes by more than noise does."""
        return self.n_eff < ENOUGH and self.growth > GROWING


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


def long_run(values: FloatArray, resolution: float = 0.0) -> LongRun:
    """Judge a non-empty series without NaN, oldest first."""
    return of_clipped(clipped(values, resolution))


def of_clipped(x: FloatArray, factor: float | None = None) -> LongRun:
    """`long_run` of a series whose stragglers are drawn in already.

    `factor` is its `spread_factor` where that is known: it is the dearest part.
    """
    n = x.size
    mean = float(x.sum()) / n
    x = x - mean
    variance = float(x @ x) / max(n - 1, 1)
    factor = spread_factor(x) if factor is None else factor
    spread = variance * factor * _caution(n) / n
    n_eff = n / factor if factor > 0 else float(n)
    if n < 2 * STRETCHES or variance <= 0:
        return LongRun(mean, spread, 0.0, n_eff, 1.0, 0.0)
    size = n // STRETCHES
    y = x[n - size * STRETCHES :].reshape(STRETCHES, size) @ np.full(size, 1 / size)
    y -= float(y.sum()) / STRETCHES
    wander, travel = _wander(y)
    growth = wander / (float(y @ y) / (STRETCHES - 1) or math.inf)
    return LongRun(mean, spread, _drift(y), n_eff, growth, travel)


def _caution(n: int) -> float:
    """The variance is an estimate itself: so much wider is Student's t at 95 %."""
    return 1 + 5 / n


def _drift(y: FloatArray) -> float:
    """Half the change from the first to the last third of the stretches, beyond their noise."""
    third = STRETCHES // 3
    change = abs(float(y[-third:].sum() - y[:third].sum())) / third
    steps = np.diff(y)
    noise = math.sqrt(float(steps @ steps) / steps.size / third)
    return max(0.0, change - TREND_SDS * noise) / 2


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

"""Where a series changed its level: marks for a chart, never part of a verdict."""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import MAD_TO_SD, FloatArray, IntArray, median, usable

MAX_BINS = 400
MIN_BINS = 12
MIN_SIZE = 3
"""Fewest bins of a segment."""
PENALTY = 4.0
"""A change must lower the squared residuals by this times log K noise variances."""
NOTEWORTHY = 0.005
"""Neighbouring segments closer than 0.5 % are one."""


class Change(NamedTuple):
    """A moment at which the level changed."""

    at_ns: int
    change: float
    """Relative: 0.02 is +2 %."""


def change_points(t_ns: IntArray, seconds: FloatArray) -> list[Change]:
    """The best split of log t into levels, over at most 400 equal stretches; 5 ms.

    Penalised least squares by dynamic programming. The noise is taken from the differences of
    neighbouring stretches, so that the changes themselves do not hide in it.
    """
    good = np.isfinite(seconds) & (seconds > 0)
    t, x = t_ns[good], usable(seconds)
    bins = min(MAX_BINS, x.size // 2)
    if bins < MIN_BINS:
        return []
    edges = np.linspace(0, x.size, bins + 1).astype(np.int64)
    sums = np.add.reduceat(np.log(x), edges[:-1])
    y = sums / np.diff(edges)
    steps = np.diff(y)
    noise = MAD_TO_SD * median(np.abs(steps - median(steps))) / math.sqrt(2)
    if noise <= 0:
        noise = float(steps.std()) / math.sqrt(2)
    if noise <= 0:
        return []
    cuts = _merge(y, _split(y / noise, PENALTY * math.log(bins)))
    levels = [float(part.mean()) for part in np.split(y, cuts)]
    return [
        Change(int(t[edges[cut]]), math.expm1(after - before))
        for cut, before, after in zip(cuts, levels, levels[1:], strict=False)
    ]


def _split(y: FloatArray, penalty: float) -> list[int]:
    """First bins of the segments (but the first) that minimise residuals plus penalties."""
    n = y.size
    total = np.concatenate([[0.0], np.cumsum(y)])
    square = np.concatenate([[0.0], np.cumsum(y * y)])
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    source = np.zeros(n + 1, np.int64)
    for end in range(MIN_SIZE, n + 1):
        start = np.arange(end - MIN_SIZE + 1)
        part = total[end] - total[start]
        cost = square[end] - square[start] - part * part / (end - start)
        scores = best[start] + cost + penalty
        source[end] = np.argmin(scores)
        best[end] = scores[source[end]]
    cuts = []
    at = int(source[n])
    while at > 0:
        cuts.append(at)
        at = int(source[at])
    return cuts[::-1]


def _merge(y: FloatArray, cuts: list[int]) -> list[int]:
    """Drop the smallest change until every one that is left is worth a mark."""
    while cuts:
        levels = np.array([part.mean() for part in np.split(y, cuts)])
        changes = np.abs(np.diff(levels))
        smallest = int(np.argmin(changes))
        if changes[smallest] >= NOTEWORTHY:
            return cuts
        cuts = cuts[:smallest] + cuts[smallest + 1 :]
    return cuts

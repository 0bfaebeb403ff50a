"""What rows cost where their buffers lie: the variance between allocations in a ratio.

Equal code in other buffers may differ by a percent or two, stably, and no number of rounds tells.
Where rows were built afresh during a run each stretch between is one draw of that; there are few
of them, so Student's t says how far their mean may be off.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import FloatArray, t_quantile

FEWEST_VALUES = 20
"""A stretch of fewer rounds does not count as an allocation yet."""
ENOUGH = 4
"""Allocations from which a ratio near 1 is told at any look."""
LASTS = 3
"""A stretch so many times as long as the longest one before it: no other allocation comes."""


class Stretches(NamedTuple):
    """A series cut where rows were built afresh, each part at its own level."""

    flat: FloatArray
    """The series with all parts at one level: what goes on within an allocation."""
    levels: FloatArray
    sizes: FloatArray


class Between(NamedTuple):
    """The mean over allocations, and how far it may be off."""

    centre: float
    half: float
    spread: float
    """Standard deviation between allocations beyond what noise explains."""
    is_young: bool
    """There are too few allocations to tell their variance, and more seem to come."""


def stretches(values: FloatArray, cuts: list[int]) -> Stretches | None:
    """Cut a series at these indexes, where that gives two stretches that are long enough.

    One that is too short goes with a neighbour.
    """
    edges = [0]
    for cut in cuts:
        if min(cut - edges[-1], values.size - cut) >= FEWEST_VALUES:
            edges.append(cut)
    if len(edges) < 2:
        return None
    counts = np.diff([*edges, values.size])
    levels = np.add.reduceat(values, edges) / counts
    flat = values - np.repeat(levels, counts) + float(values.mean())
    return Stretches(flat, levels, counts.astype(np.float64))


def between(found: Stretches, variance: float, alpha: float) -> Between:
    """The mean level, allocations weighted alike as far as they differ by more than noise.

    `variance` is that of the mean of the whole series, from the noise within allocations.
    """
    levels, sizes = found.levels, found.sizes
    noise = variance * float(sizes.sum()) / sizes
    excess = max(0.0, float(levels.var(ddof=1)) - float(noise.mean()))
    weights = 1 / np.maximum(excess + noise, 1e-18)
    weights /= weights.sum()
    centre = float(weights @ levels)
    off = levels - centre
    freedom = levels.size - 1
    half = t_quantile(1 - alpha / 2, freedom) * math.sqrt(float(weights @ (off * off)) / freedom)
    is_last = sizes[-1] > LASTS * sizes[:-1].max()
    is_young = bool(levels.size < ENOUGH and not is_last)
    return Between(centre, half, math.sqrt(excess), is_young)

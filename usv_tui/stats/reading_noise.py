"""What clock readings hide: their own noise, and motion that is too quick for the sensor.

Noise in the readings makes a row seem to follow the clock less than it does (errors in variables).
The readings of the bins beside a bin share its clock and not its noise, so they serve as an
instrument. A sensor that averages or is late shows no quick motion at all: then the rows
themselves tell, since a clock moves all of them at once.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import NS_PER_S, FloatArray, IntArray, median

STRONG = 0.35
"""Correlation with the neighbouring bins from which these can stand in for a bin."""
NOISY = 0.9
"""Share of the readings' variance that is the clock's, below which they count as noisy."""
CHANCE = 3.5
"""A correlation of n bins below this over sqrt(n) is chance."""

DENSE = 0.03
"""Neighbouring clocks of a table that is worth the name differ by less."""
OFF_TABLE = 0.15
"""A reading so much of a step away from any clock of the table is none of them …"""
OFTEN = 0.25
"""… and so many of them show that the sensor averages."""


class Instrument(NamedTuple):
    """The neighbours of each bin, and how well they can stand in for it."""

    f: FloatArray
    """Rows x bins, mean log f of the bins beside."""
    correlation: float
    """Of a bin with its neighbours."""

    @property
    def is_strong(self) -> bool:
        """The neighbours can stand in for a bin."""
        return self.correlation >= STRONG

    @property
    def is_white(self) -> bool:
        """Nothing of a bin is found in its neighbours: noise, or motion within a bin."""
        return self.correlation < CHANCE / math.sqrt(max(self.f.shape[1], 1))


def hold_bins(t_ns: IntArray, mhz: FloatArray, width_ns: int) -> int:
    """How many bins further a reading is a new one: sensors repeat a value until they refresh."""
    changed = np.flatnonzero(np.diff(mhz) != 0)
    if changed.size < 8:
        return 1
    hold_ns = median(np.diff(t_ns[changed + 1]).astype(np.float64))
    return 1 + min(3, int(hold_ns / width_ns + 0.3))


def hold_s(t_ns: IntArray, mhz: FloatArray) -> float:
    """How long a sensor repeats a value at least, however often it is asked; 0 if not known."""
    changed = np.flatnonzero(np.diff(mhz) != 0)
    if changed.size < 8:
        return 0.0
    return float(np.quantile(np.diff(t_ns[changed + 1]), 0.1)) / NS_PER_S


def grain_mhz(mhz: FloatArray) -> float:
    """What a sensor rounds to: all of its values are multiples of it; 0 for a single value."""
    values = np.unique(np.rint(mhz).astype(np.int64))
    return float(np.gcd.reduce(values)) if values.size > 1 else 0.0


def is_averaged(mhz: FloatArray, supported_mhz: Sequence[int]) -> bool:
    """Readings between the clocks that the device has: the sensor averages, and hides the lowest.

    Nothing is known of that where the table has only a few clocks, far apart.
    """
    if len(supported_mhz) < 2 or mhz.size == 0 or not np.ptp(mhz) > 0:
        return False
    table = np.asarray(supported_mhz, np.float64)
    at = np.clip(np.searchsorted(table, mhz), 1, table.size - 1)
    steps = table[at] - table[at - 1]
    away = np.minimum(np.abs(table[at] - mhz), np.abs(mhz - table[at - 1]))
    is_dense = float(np.median(steps / table[at])) < DENSE
    return is_dense and float((away > OFF_TABLE * steps).mean()) > OFTEN


def instrument(f: FloatArray, gap: int) -> Instrument:
    """The mean of the bins `gap` before and after each, mirrored at the ends."""
    bins = f.shape[1]
    if bins <= 4 * gap:
        return Instrument(np.zeros_like(f), 0.0)
    index = np.arange(bins)
    before = np.abs(index - gap)
    after = np.minimum(index + gap, 2 * (bins - 1) - index - gap)
    z = (f[:, before] + f[:, after]) / 2
    both = (f - f.mean(axis=1, keepdims=True)) * (z - z.mean(axis=1, keepdims=True))
    size = f.std(axis=1) * z.std(axis=1)
    correlation = np.divide(both.mean(axis=1), size, out=np.zeros_like(size), where=size > 0)
    return Instrument(z, float(correlation.min()))


def through(z: FloatArray, x: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Slope of each row of y on x, found through an instrument z: its noise does not flatten it."""
    w = np.maximum(weight.sum(axis=1, keepdims=True), 1.0)
    z = z - (weight * z).sum(axis=1, keepdims=True) / w
    along = (weight * z * y).sum(axis=1)
    across = (weight * z * x).sum(axis=1)
    slope = np.divide(along, across, out=np.zeros_like(along), where=np.abs(across) > 1e-18)
    return np.asarray(slope, np.float64)


def common_variance(y: FloatArray, weight: FloatArray, white: FloatArray) -> FloatArray:
    """Variance of each row of y (rows x bins) that is not its own: shared with another row.

    A row that is alone shares with itself: what exceeds the variance `white` of bin means that its
    quick noise alone would give.
    """
    n = weight @ weight.T
    n_or_1 = np.maximum(n, 1.0)
    here = (weight * y) @ weight.T / n_or_1
    covariance = (weight * y) @ (weight * y).T / n_or_1 - here * here.T
    spread = np.diag(covariance).copy()
    if spread.size == 1:
        return np.maximum(spread - 2 * white, 0.0)
    size = np.sqrt(np.maximum(np.outer(spread, spread), 1e-300))
    is_real = (n >= 30) & (covariance / size > CHANCE / np.sqrt(n_or_1))
    np.fill_diagonal(is_real, val=False)
    shared = np.where(is_real, covariance**2 / np.maximum(spread, 1e-300)[None, :], 0.0)
    return np.asarray(np.minimum(shared.max(axis=1, initial=0.0), spread), np.float64)

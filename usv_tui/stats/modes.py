"""Shapes that a median and a standard deviation hide: two modes, stalls, results that are cached.

The mode hint asks for a valley between two peaks of a smoothed histogram of log t, deep enough not
to be chance. Unlike a fit of two Gaussians it stays silent on ramps and heavy tails.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import SHORTEST_HALF_TO_SD, FloatArray, IntArray, usable
from usv_tui.stats.basics import median as middle

MIN_SAMPLES = 200
MAX_SAMPLES = 4096
STALL_FACTOR = 20.0
"""A sample this many times the median is a stall."""

_BINS = 256
_REACH = 20.0
"""Bins cover this many robust deviations either side of the centre."""
_SMALLEST_MASS = 0.04
_DEPTH_SDS = 3.0
_PARTS = 8
_MIXED_PARTS = 4
"""Of eight parts of the time at least so many must hold both modes: a level that changes once or
twice is no mode, however far apart the levels are."""
_PRESENT = 0.03
"""Share of a part's samples that shows a mode in it."""


class Modes(NamedTuple):
    """Two modes of one row."""

    low: float
    """Where the faster mode peaks, in the unit of the values."""
    high: float
    share_high: float
    """Share of the samples in the slower mode."""

    @property
    def gap(self) -> float:
        """Relative distance of the modes."""
        return self.high / self.low - 1

    @property
    def minor_share(self) -> float:
        """Share of the samples in the smaller mode."""
        return min(self.share_high, 1 - self.share_high)


def find_modes(
    values: FloatArray, tick: float = 0.0, n_eff: float | None = None, seed: int = 0
) -> Modes | None:
    """Two modes, or None when one describes the values (or there are fewer than 200).

    The values are in the order of time: a mode is a level that is come back to.

    `tick` is the timer's step in the unit of the values: they are dithered by it, so that a
    lattice is not taken for modes. `n_eff` below the number of values asks for a deeper valley.
    """
    x = usable(np.asarray(values, np.float64))[-MAX_SAMPLES:]
    if x.size < MIN_SAMPLES:
        return None
    if tick > 0:
        rng = np.random.default_rng(seed)
        x = usable(x + (rng.random(x.size) - rng.random(x.size)) * tick)
    n = x.size
    if n < MIN_SAMPLES / 2:
        return None
    y = np.sort(np.log(x))
    half = y.size // 2
    widths = y[half:] - y[: y.size - half]
    at = int(np.argmin(widths))
    scale = float(widths[at]) / SHORTEST_HALF_TO_SD
    if scale <= 0:
        return None
    centre = float(y[at + half // 2])
    effective = min(n_eff or n, n)
    # Stragglers stay outside, a second mode does not, however far it is.
    edge = int(_SMALLEST_MASS / 2 * n)
    low = min(centre - _REACH * scale, float(y[edge]))
    high = max(centre + _REACH * scale, float(y[n - 1 - edge]))
    inside = y[(y >= low) & (y <= high)]
    low, high = float(inside[0]), float(inside[-1])
    width = (high - low) / _BINS
    if width <= 2 * np.spacing(max(abs(low), abs(high))):  # what differs is rounding alone
        return None
    counts, _ = np.histogram(inside, bins=_BINS, range=(low, high))
    bandwidth = 0.7 * scale * max(20.0, effective) ** -0.2
    density = _smooth(counts.astype(np.float64), max(bandwidth / width, 0.5))
    found = _valley(density, counts, effective / n, max(bandwidth / width, 0.5))
    if found is None:
        return None
    first, second, share_high = found
    low_t = math.exp(low + (first + 0.5) * width)
    high_t = math.exp(low + (second + 0.5) * width)
    if high_t - low_t < 3 * tick or not _comes_back(x, low_t, high_t):
        return None
    return Modes(low_t, high_t, share_high)


def _comes_back(x: FloatArray, low: float, high: float) -> bool:
    """Both modes are seen all through the samples, which are in the order of time.

    What lies in the middle half between the peaks counts for neither.
    """
    quarter = (high - low) / 4
    mixed = 0
    for part in np.array_split(x, _PARTS):
        shares = (part < low + quarter).mean(), (part > high - quarter).mean()
        mixed += min(shares) >= _PRESENT
    return mixed >= _MIXED_PARTS


def _smooth(counts: FloatArray, sd_bins: float) -> FloatArray:
    reach = max(1, min(math.ceil(4 * sd_bins), _BINS // 2 - 1))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sd_bins) ** 2)
    return np.convolve(counts, kernel / kernel.sum(), mode="same")


def _valley(
    density: FloatArray, counts: IntArray, weight: float, sd_bins: float
) -> tuple[int, int, float] | None:
    """The two peaks around the deepest convincing valley, and the mass above it.

    `weight` scales counts to effective ones; a smoothed bin holds the counts of about 3.5 standard
    deviations of the kernel, which is what its Poisson error is taken from.
    """
    left = np.maximum.accumulate(density)
    right = np.maximum.accumulate(density[::-1])[::-1]
    smaller = np.minimum(left, right)
    total = float(counts.sum())
    below = np.cumsum(counts) / total
    massive = (below >= _SMALLEST_MASS) & (1 - below >= _SMALLEST_MASS)
    pooled = math.sqrt(4 * math.pi) * sd_bins * weight
    depth = (smaller - density) * pooled
    noise = np.sqrt((smaller + density) * pooled)
    good = massive & (density <= smaller / 2) & (depth >= _DEPTH_SDS * noise)
    if not good.any():
        return None
    at = int(np.argmax(np.where(good, depth / np.maximum(noise, 1e-300), -1.0)))
    first = int(np.argmax(density[: at + 1]))
    second = at + int(np.argmax(density[at:]))
    return first, second, float(1 - below[at])


class Implausible(NamedTuple):
    """Samples that look as if no work was done."""

    share_at_floor: float
    """Share of the samples after the first that are within 1.5 times the timer's floor."""
    first_ratio: float
    """The first sample over the median of the others: large when a result is kept and returned."""


def implausible(windows: FloatArray, floor: float) -> Implausible | None:
    """The signs of a cached answer or an empty callable; None when the samples look like work.

    `windows` and `floor` (the median empty window) are in one unit, not divided by inner calls.
    """
    x = np.asarray(windows, np.float64)
    x = x[np.isfinite(x)]
    if x.size < 10 or floor <= 0:
        return None
    rest = x[1:]
    share = float((rest <= 1.5 * floor).mean())
    if share < 0.5:
        return None
    return Implausible(share, float(x[0] / max(middle(rest), floor)))

"""How much further off than of independent values the mean of a series may be: from its spectrum.

Noise that forgets itself is level at the low end of its spectrum, and more values average it away.
Noise like 1/f rises for as far down as one can see, and lies about what one cannot. Neither can be
told by a single number of lags, so shapes of both kinds, and of none, are held against the
periodogram (Whittle's likelihood), and each speaks for its own mean as far as the data bear it out:
while they cannot be told apart the more cautious ones keep their say.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import FloatArray, IntArray

FEWEST = 8
"""Values that have a spectrum worth the name."""
CAUTION = 0.25
"""What is beyond independent values is known less well, and counts by so much more."""
UNSEEN = 16.0
"""Noise that rises by the frequency or more does so down to waves so many times as long as the
series; that which rises less has a mean to come to, however slow the waves."""
_NEVER = 1e-5
FLAT, SHORT, RINGING, LONG, BOTH = 0.88, 0.06, 0.01, 0.045, 0.005
"""What is believed beforehand: independent values; memories that are short, ring, are long, and are
long but have a shortest part as well."""
_SINGLE = 8
"""So many slowest waves count each by itself; beyond them ever more share a bin."""
_BIN_GROWTH = 1.22
MOST_SAY = 10
"""A bin speaks for no more waves than this: no shape is exact, and quick noise matters least."""
_CORNERS = 2.0
"""Corner frequencies are tried in octaves, from this far below the slowest wave …"""
_LOWEST = 0.125
_HEIGHTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5)
"""… with so much power at the low end, over that of independent values."""
_RINGS = tuple((q, c) for q in (1.5, 4.0, 12.0) for c in (1.0, 30.0, 1e3, 3e4))
"""Sharpness and height of noise that rings."""
_SLOWEST_RING = 8.0
_POWERS = (0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0)
"""Exponents of noise that rises towards slow waves."""
_ROUNDED, _ROUNDED_HEIGHTS = (0.5, 0.8, 1.1), (3.0, 30.0, 300.0, 3e3)
"""Exponents and heights of such noise that levels off to independent noise sooner."""


class _Shapes(NamedTuple):
    """Spectra over the bins (waves a series), relative to their level at the quick end."""

    inverse: FloatArray
    logs: FloatArray
    of_mean: FloatArray
    """n times the variance of the mean of n values, for each shape."""
    prior: FloatArray
    """Log of what is believed beforehand."""


def spread_factor(values: FloatArray) -> float:
    """How many times the variance of the mean is that of as many independent values."""
    n = values.size
    x = values - float(values.sum()) / n
    variance = float(x @ x) / n
    if n < FEWEST or not variance > 0:
        return 1.0
    waves = np.fft.rfft(x)[1 : (n + 1) // 2]
    power = (waves.real**2 + waves.imag**2) / n
    edges = _edges(power.size)
    sums = np.add.reduceat(power, edges[:-1] - 1)
    counts = np.diff(edges)
    says = np.minimum(counts, MOST_SAY)
    total = float(says.sum())
    shapes = _shapes(power.size)
    level = shapes.inverse @ (sums * (says / counts)) / total
    fit = shapes.prior - shapes.logs @ says - total * np.log(np.maximum(level, 1e-300))
    weights = np.exp(fit - fit.max())
    factor = float(weights @ (level * shapes.of_mean)) / float(weights.sum()) / variance
    return factor + CAUTION * max(0.0, factor - 1)


@lru_cache(maxsize=256)
def _edges(waves: int) -> IntArray:
    """The first wave of each bin, and one past the last."""
    edges, reach = list(range(1, _SINGLE + 1)), float(_SINGLE)
    while edges[-1] <= waves:
        reach *= _BIN_GROWTH
        edges.append(max(edges[-1] + 1, round(reach)))
    edges = [edge for edge in edges if edge <= waves]
    return np.array([*edges, waves + 1], np.int64)


@lru_cache(maxsize=256)
def _shapes(waves: int) -> _Shapes:
    edges = _edges(waves)
    # A bin that is cut short is as good as its whole: so few shapes serve series of all lengths.
    return _shapes_of(tuple(edges[:-1].tolist()))


@lru_cache(maxsize=64)
def _shapes_of(firsts: tuple[int, ...]) -> _Shapes:
    """Waves are counted a series; slower ones than a whole wave decide where the mean lies."""
    after = (*firsts[1:], round(firsts[-1] * _BIN_GROWTH) + 1)
    middles = np.array(
        [math.exp(np.log(np.arange(a, b)).mean()) for a, b in zip(firsts, after, strict=True)]
    )
    top = float(after[-1])
    near = np.geomspace(_NEVER, 30.0, 400)
    everything = np.concatenate([[0.0], near])
    kinds = [
        (FLAT, _flat_shape, everything),
        (SHORT, _short_shapes, everything),
        (RINGING, _ringing_shapes, everything),
        (LONG, _long_shapes, near),
        (BOTH, _rounded_shapes, near),
    ]
    found = [(share, make(middles, top), _of_mean(make(at, top), at)) for share, make, at in kinds]
    shapes = np.concatenate([shape for _, shape, _ in found])
    of_mean = np.concatenate([mean for _, _, mean in found])
    prior = np.concatenate([np.full(len(s), math.log(share / len(s))) for share, s, _ in found])
    return _Shapes(1 / shapes, np.log(shapes), of_mean / of_mean[0], prior)


def _of_mean(shapes: FloatArray, at: FloatArray) -> FloatArray:
    """Power that is left in the mean of the whole series."""
    return np.asarray(2 * np.trapezoid(shapes * np.sinc(at) ** 2, at, axis=-1), np.float64)


def _flat_shape(at: FloatArray, _top: float) -> FloatArray:
    """Independent noise."""
    return np.ones((1, at.size))


def _short_shapes(at: FloatArray, top: float) -> FloatArray:
    """Independent noise and another that forgets itself."""
    return np.array(
        [
            1 + height / (1 + (at / corner) ** 2)
            for corner in _octaves(_LOWEST, top / 3)
            for height in _HEIGHTS
        ]
    )


def _ringing_shapes(at: FloatArray, top: float) -> FloatArray:
    """Independent noise and another that rings."""
    return np.array(
        [
            1 + height / ((1 - (at / ring) ** 2) ** 2 + (at / (sharp * ring)) ** 2)
            for ring in _octaves(_SLOWEST_RING, max(top / 2, 2 * _SLOWEST_RING), 1.3)
            for sharp, height in _RINGS
        ]
    )


def _long_shapes(at: FloatArray, top: float) -> FloatArray:
    """Noise that rises towards slow waves, from some wave on or at all of them."""
    out = []
    for power in _POWERS:
        seen = (at >= 1 / UNSEEN) | (power < 1)
        out += [1 + seen * (knee / at) ** power for knee in _octaves(0.5, 4 * top)]
        out.append(seen * (top / at) ** power)
    return np.array(out)


def _rounded_shapes(at: FloatArray, top: float) -> FloatArray:
    """Noise of a long memory that has a shortest one as well."""
    out = []
    for power in _ROUNDED:
        seen = (at >= 1 / UNSEEN) | (power < 1)
        for corner in _octaves(4.0, max(top / 2, 8.0), 2.5):
            rise = seen * (corner / at) ** power / (1 + (at / corner) ** 2)
            out += [1 + height * rise for height in _ROUNDED_HEIGHTS]
    return np.array(out)


def _octaves(first: float, last: float, step: float = _CORNERS) -> list[float]:
    count = max(1, math.ceil(math.log(last / first, step)))
    return [first * step**k for k in range(count)]

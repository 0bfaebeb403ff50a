"""Noise whose truth is known: what the statistics are tried on before any device is.

Each generator returns multiplicative noise with median 1 (or as said) around a kernel's time.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Generator = np.random.Generator


def iid(rng: Generator, n: int, sd: float = 0.01) -> FloatArray:
    """Independent lognormal noise."""
    return np.exp(sd * rng.standard_normal(n))


def heavy(rng: Generator, n: int, sd: float = 0.01) -> FloatArray:
    """Student t with 3 degrees of freedom, and 1 % stragglers of up to several times the time."""
    x = np.exp(sd * np.clip(rng.standard_t(3, n), -30, 30) / 1.3)
    late = rng.random(n) < 0.01
    return x * np.where(late, 1 + rng.exponential(0.5, n), 1.0)


def ar1(rng: Generator, n: int, sd: float = 0.01, phi: float = 0.9) -> FloatArray:
    """Stationary first-order autoregressive noise."""
    return np.exp(sd * ar1_normal(rng, n, phi))


def ar1_normal(rng: Generator, n: int, phi: float) -> FloatArray:
    """A stationary AR(1) series with unit variance."""
    steps = rng.standard_normal(n) * np.sqrt(1 - phi * phi)
    x = np.empty(n)
    value = rng.standard_normal()
    for i, step in enumerate(steps.tolist()):
        value = phi * value + step
        x[i] = value
    return x


def bimodal(
    rng: Generator, n: int, sd: float = 0.005, share: float = 0.3, gap: float = 0.04
) -> FloatArray:
    """Two modes, chosen afresh for each sample."""
    return iid(rng, n, sd) * np.where(rng.random(n) < share, 1 + gap, 1.0)


def sticky(
    rng: Generator, n: int, sd: float = 0.005, dwell: int = 20, gap: float = 0.02
) -> FloatArray:
    """Two modes at +- gap, each kept for `dwell` samples on average."""
    switches = rng.random(n) < 1 / dwell
    mode = (np.cumsum(switches) + rng.integers(2)) % 2
    return iid(rng, n, sd) * (1 + gap * (2.0 * mode - 1))


def pink(rng: Generator, n: int, sd: float = 0.01, power: float = 1.0) -> FloatArray:
    """1/f noise around 0, cut from eight times as much, so that it wanders beyond what is seen.

    The only noise here that is added, not multiplied.
    """
    long = 8 * n
    f = np.fft.rfftfreq(long)
    size = np.zeros(f.size)
    size[1:] = f[1:] ** (-power / 2)
    waves = size * (rng.standard_normal(f.size) + 1j * rng.standard_normal(f.size))
    x = np.fft.irfft(waves, long)
    at = int(rng.integers(long - n))
    return np.asarray(sd * (x / x.std())[at : at + n], np.float64)


def quantised(rng: Generator, seconds: FloatArray, tick: float) -> FloatArray:
    """Times as a counter of period `tick` reads them, with a random phase."""
    start = rng.random(seconds.size) * 1000 * tick
    return (np.floor((start + seconds) / tick) - np.floor(start / tick)) * tick


def line(n: int, change: float) -> FloatArray:
    """A linear drift by `change` over the whole series."""
    return 1 + change * np.linspace(0, 1, n)


def saturating(n: int, change: float, tau: float = 0.25) -> FloatArray:
    """A drift that levels off, with a time constant of `tau` of the series."""
    u = np.linspace(0, 1, n)
    return 1 + change * (1 - np.exp(-u / tau))


def step(n: int, change: float, at: float = 0.5) -> FloatArray:
    """A step after the share `at` of the series."""
    return np.where(np.arange(n) < at * n, 1.0, 1 + change)


NoiseMaker = Callable[[Generator, int], FloatArray]

SHAPES: dict[str, NoiseMaker] = {
    "iid": iid,
    "heavy": heavy,
    "AR .9": partial(ar1, phi=0.9),
    "AR .97": partial(ar1, phi=0.97),
    "tick 0.5 us on 10 us": lambda rng, n: quantised(rng, 10e-6 * iid(rng, n), 0.5e-6) / 10e-6,
    "two modes 30 %": bimodal,
    "two modes 50 %": partial(bimodal, share=0.5),
    "sticky 20": sticky,
}
"""The noises of the error-rate tables, by name."""

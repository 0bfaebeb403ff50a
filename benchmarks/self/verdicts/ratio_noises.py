"""Noises of a ratio whose truth is known: families that set thresholds, and families held out.

Each makes the log ratios of rounds, and the noise-free log ratio of each (its long-run mean is 0).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.fakes import noise

Generator = np.random.Generator


class Rounds(NamedTuple):
    """Log ratios, and what they would be without noise."""

    d: np.ndarray
    level: np.ndarray


class Family(NamedTuple):
    """One kind of noise."""

    make: Callable[[Generator, int], Rounds]
    resolution: float | None = None
    """The timer's relative step where it limits."""
    is_limited: bool = False
    """The sensors tell of a power or thermal limit."""


def still(make: Callable[[Generator, int], np.ndarray], **options: float) -> Family:
    """Two rows with the same noise, each its own."""

    def rounds(rng: Generator, n: int) -> Rounds:
        return Rounds(np.log(make(rng, n) / make(rng, n)), np.zeros(n))

    return Family(rounds, **options)


def correlated(path: Callable[[Generator, int], np.ndarray], white: float = 0.0) -> Family:
    """A log ratio that is noise itself, with independent noise (of each row) on it."""

    def rounds(rng: Generator, n: int) -> Rounds:
        return Rounds(path(rng, n) + independent(rng, n, white), np.zeros(n))

    return Family(rounds)


def clocked(
    clock: Callable[[Generator, int], np.ndarray], exponents_apart: float, white: float = 0.003
) -> Family:
    """Rows that follow a common log clock by different exponents."""

    def rounds(rng: Generator, n: int) -> Rounds:
        level = -exponents_apart * clock(rng, n)
        return Rounds(level + independent(rng, n, white), level)

    return Family(rounds, is_limited=True)


def independent(rng: Generator, n: int, sd: float) -> np.ndarray:
    """The difference of two rows' independent noise."""
    return sd * math.sqrt(2) * rng.standard_normal(n)


def common(shape: Callable[[Generator, int], np.ndarray]) -> Family:
    """A disturbance that both rows of a round share."""

    def rounds(rng: Generator, n: int) -> Rounds:
        shared = shape(rng, n)
        a, b = shared * noise.iid(rng, n, 0.003), shared * noise.iid(rng, n, 0.003)
        return Rounds(np.log(b / a), np.zeros(n))

    return Family(rounds)


def ticked(tick_s: float, long_s: float) -> Family:
    """Two rows of a length, as a coarse timer reads them."""

    def make(rng: Generator, n: int) -> np.ndarray:
        return noise.quantised(rng, long_s * noise.iid(rng, n, 0.003), tick_s)

    return still(make, resolution=tick_s / long_s)


def steps(rng: Generator, n: int, dwell: int, sd: float) -> np.ndarray:
    """A level that is drawn afresh after `dwell` rounds on average: a power cap that moves."""
    change = rng.random(n) < 1 / dwell
    return sd * rng.standard_normal(n)[np.maximum.accumulate(np.where(change, np.arange(n), 0))]


def turns(rng: Generator, n: int) -> np.ndarray:
    """A clock that swings by +-2 % within 600 rounds."""
    return 0.02 * np.sin(2 * np.pi * (np.arange(n) / 600 + rng.random()))


def hops(rng: Generator, n: int) -> np.ndarray:
    """A clock that hops between three levels 1.5 % apart."""
    change = np.where(rng.random(n) < 1 / 40, rng.integers(-1, 2, n), 9)
    last = np.maximum.accumulate(np.where(change < 9, np.arange(n), 0))
    return 0.015 * np.where(change[last] < 9, change[last], 0)


def ringing(rng: Generator, n: int) -> np.ndarray:
    """AR(2) noise with a period of 40 rounds."""
    x = np.zeros(n + 200)
    a = 2 * 0.97 * math.cos(2 * math.pi / 40)
    e = rng.standard_normal(n + 200)
    for i in range(2, x.size):
        x[i] = a * x[i - 1] - 0.97**2 * x[i - 2] + e[i]
    return 0.01 * x[200:] / x[200:].std()


def stalling(rng: Generator, n: int) -> np.ndarray:
    """5 % of the calls take up to 30 times as long."""
    late = rng.random(n) < 0.05
    return noise.iid(rng, n, 0.003) * np.where(late, rng.uniform(2, 30, n), 1.0)


def ar(phi: float, sd: float = 0.01) -> Callable[[Generator, int], np.ndarray]:
    """An AR(1) path."""
    return lambda rng, n: sd * noise.ar1_normal(rng, n, phi)


def ou(rounds: float, sd: float = 0.01) -> Callable[[Generator, int], np.ndarray]:
    """An Ornstein-Uhlenbeck path with a time constant of so many rounds."""
    return ar(math.exp(-1 / rounds), sd)


def sawtooth(period: int, swing: float = 0.04) -> Callable[[Generator, int], np.ndarray]:
    """A clock that falls steadily and jumps back."""
    return lambda rng, n: swing * ((np.arange(n) / period + rng.random()) % 1 - 0.5)


def triangle(period: int, swing: float = 0.04) -> Callable[[Generator, int], np.ndarray]:
    """A clock that falls and rises steadily."""
    return lambda rng, n: (
        swing * (np.abs(2 * ((np.arange(n) / period + rng.random()) % 1) - 1) - 0.5)
    )


def telegraph(dwell: int, gap: float) -> Family:
    """A level that jumps between two values."""

    def path(rng: Generator, n: int) -> np.ndarray:
        return gap * ((np.cumsum(rng.random(n) < 1 / dwell) + rng.integers(2)) % 2 - 0.5)

    return correlated(path, 0.003)


def pink(power: float, sd: float = 0.01, white: float = 0.0) -> Family:
    """1/f noise of some exponent, perhaps under independent noise."""
    return correlated(lambda r, n: noise.pink(r, n, sd, power), white)


def changed(at: float, gap: float = 0.02) -> Family:
    """One level up to a share of the run, another after it: only the rounds so far are known."""

    def rounds(rng: Generator, n: int) -> Rounds:
        level = gap * (np.arange(n) >= at * n)
        return Rounds(level + independent(rng, n, 0.003), level)

    return Family(rounds)


def sticky(dwell: int) -> Family:
    """One of two rows has two modes 4 % apart that it keeps for `dwell` rounds on average."""
    return correlated(lambda r, n: np.log(noise.sticky(r, n, 0.003, dwell)), 0.003)


def fractional(hurst: float, sd: float = 0.01, white: float = 0.0) -> Family:
    """Fractional Gaussian noise: a long memory whose spectrum is no exact power."""

    def path(rng: Generator, n: int) -> np.ndarray:
        lags = np.arange(n + 1.0)
        powers = [np.abs(lags + step) ** (2 * hurst) for step in (1, 0, -1)]
        half = 0.5 * (powers[0] - 2 * powers[1] + powers[2])
        spectrum = np.fft.fft(np.concatenate([half, half[-2:0:-1]])).real
        waves = rng.standard_normal(2 * n) + 1j * rng.standard_normal(2 * n)
        return sd * np.fft.fft(np.sqrt(np.maximum(spectrum, 0) / (2 * n)) * waves).real[:n]

    return correlated(path, white)


def moving_mean(rng: Generator, n: int, size: int) -> np.ndarray:
    """What a sensor that averages over `size` rounds would make of independent noise."""
    mean = np.convolve(rng.standard_normal(n + size - 1), np.full(size, 1 / size), "valid")
    return 0.01 * math.sqrt(size) * mean


def pareto_modes(rng: Generator, n: int) -> np.ndarray:
    """Two levels 3 % apart, kept for times of which some are very long."""
    dwells = np.ceil(15 * (1 + rng.pareto(1.5, n))).astype(int)
    switches = np.searchsorted(np.cumsum(dwells), int(rng.integers(20 * n)) + np.arange(n))
    return 0.03 * (switches % 2 - 0.5)


def straggling(rng: Generator, n: int) -> np.ndarray:
    """2 % of the calls take longer by a lognormal factor."""
    late = rng.random(n) < 0.02
    return noise.iid(rng, n, 0.004) * np.where(late, 1 + rng.lognormal(-2, 1, n), 1.0)


TUNED_ON = {
    "iid 0.3 %": still(lambda r, n: noise.iid(r, n, 0.003)),
    "iid 3 %": still(lambda r, n: noise.iid(r, n, 0.03)),
    "heavy tails": still(lambda r, n: noise.heavy(r, n, 0.003)),
    "two modes 30 %": still(lambda r, n: noise.bimodal(r, n, 0.003)),
    "two modes 50 %": still(lambda r, n: noise.bimodal(r, n, 0.003, 0.5)),
    "ramp 5 %": common(lambda _, n: noise.saturating(n, 0.05)),
    "step 4 %": common(lambda _, n: noise.step(n, 0.04, 0.6)),
    "clock dither": common(lambda r, n: noise.ar1(r, n, 0.012, 0.97)),
    "tick 0.5 us on 20 us": ticked(0.5e-6, 20e-6),
    "AR .5": correlated(ar(0.5)),
    "AR .9": correlated(ar(0.9)),
    "AR .97": correlated(ar(0.97)),
    "AR .99": correlated(ar(0.99)),
    "sticky 20": sticky(20),
    "sticky 100": sticky(100),
    "5 % stalls": still(stalling),
    "1/f": correlated(lambda r, n: noise.pink(r, n, 0.01)),
    "exponents .5 apart, slow dither": clocked(ar(0.995, 0.012), 0.5),
    "exponents .5 apart, cap moves": clocked(lambda r, n: steps(r, n, 300, 0.02), 0.5),
    "Laplace": still(lambda r, n: np.exp(r.laplace(0, 0.003, n))),
    "three modes, sticky 40": correlated(hops, 0.003),
    "tick 0.1 us on 3 us": ticked(0.1e-6, 3e-6),
    "AR .95 under as much white": correlated(ar(0.95, 0.005), 0.0035),
    "ringing": correlated(ringing),
    "1/f^0.7 under white": correlated(lambda r, n: noise.pink(r, n, 0.004, 0.7), 0.003),
    "exponents .3 apart, clock swings": clocked(turns, 0.3),
    "exponents .4 apart, clock hops": clocked(hops, 0.4),
    "exponents .9 apart, cap moves fast": clocked(lambda r, n: steps(r, n, 60, 0.02), 0.9),
    "exponents .2 apart, slow dither": clocked(ar(0.998, 0.015), 0.2),
    "sticky 30": sticky(30),
    "sticky 40": sticky(40),
    "sticky 60": sticky(60),
    "sticky 150": sticky(150),
    "1/f^0.8": pink(0.8),
    "1/f^1.2": pink(1.2),
    "1/f under white": pink(1.0, 0.005, 0.005),
    "wander of 0.5 s": correlated(ou(50)),
    "wander of 3 s": correlated(ou(300)),
    "wander of 10 s, 0.5 %": correlated(ou(1000, 0.005), 0.003),
    "telegraph 80, 1 %": telegraph(80, 0.01),
    "telegraph 120, 6 %": telegraph(120, 0.06),
    "exponents .3 apart, sawtooth 4 s": clocked(sawtooth(400), 0.3),
    "exponents .7 apart, sawtooth 9 s": clocked(sawtooth(900), 0.7),
    "exponents .6 apart, cap moves": clocked(lambda r, n: steps(r, n, 150, 0.02), 0.6),
    "Student t, 5": still(lambda r, n: np.exp(0.003 * r.standard_t(5, n))),
    "tick 0.2 us on 9 us": ticked(0.2e-6, 9e-6),
    "AR .8": correlated(ar(0.8)),
    "AR .985 under as much white": correlated(ar(0.985, 0.005), 0.0035),
    "sticky 50": sticky(50),
    "sticky 120": sticky(120),
    "telegraph 90, 3 %": telegraph(90, 0.03),
    "telegraph 25, 5 %": telegraph(25, 0.05),
    "1/f^0.9": pink(0.9),
    "1/f^1.5": pink(1.5),
    "1/f^0.6 under white": pink(0.6, 0.004, 0.003),
    "wander of 1.5 s": correlated(ou(150)),
    "wander of 6 s, 0.6 %": correlated(ou(600, 0.006), 0.003),
    "2 % at a third of the run": changed(1 / 3),
    "exponents .4 apart, triangle 7 s": clocked(triangle(700), 0.4),
    "exponents .7 apart, sawtooth 6 s": clocked(sawtooth(600), 0.7),
    "exponents .8 apart, dither": clocked(ou(80, 0.015), 0.8),
    "exponents .4 apart, cap moves": clocked(lambda r, n: steps(r, n, 200, 0.02), 0.4),
    "2 % lognormal stragglers": still(straggling),
    "tick 0.3 us on 7 us": ticked(0.3e-6, 7e-6),
    "AR .93": correlated(ar(0.93)),
    "mean of 30": correlated(lambda r, n: moving_mean(r, n, 30)),
    "AR .6 and AR .98": correlated(lambda r, n: ar(0.6, 0.007)(r, n) + ar(0.98, 0.005)(r, n)),
    "Hurst 0.7": fractional(0.7),
    "Hurst 0.8 under white": fractional(0.8, 0.004, 0.004),
    "Hurst 0.85": fractional(0.85),
    "Hurst 0.95": fractional(0.95),
    "Hurst 0.95 under white": fractional(0.95, 0.004, 0.003),
    "1/f^0.5": pink(0.5),
    "1/f^0.85 under white": pink(0.85, 0.005, 0.004),
    "1/f^1.1": pink(1.1),
    "1/f^1.7": pink(1.7),
    "wander of 2 s": correlated(ou(200)),
    "wander of 8 s, 0.7 %": correlated(ou(800, 0.007), 0.003),
    "wanders of 0.2, 2 and 20 s": correlated(
        lambda r, n: sum(ou(t, 0.004)(r, n) for t in (20, 200, 2000)), 0.002
    ),
    "swing of 3 s": correlated(lambda r, n: 0.25 * triangle(300)(r, n), 0.003),
    "sticky 130": sticky(130),
    "telegraph 40, 2 %": telegraph(40, 0.02),
    "telegraph 110, 5 %": telegraph(110, 0.05),
    "modes kept for Pareto times": correlated(pareto_modes, 0.003),
    "1.5 % at half of the run": changed(1 / 2, 0.015),
    "exponents .35 apart, wander of 2 s": clocked(ou(200, 0.015), 0.35),
    "exponents .5 apart, cap moves every 1.7 s": clocked(lambda r, n: steps(r, n, 170, 0.02), 0.5),
    "exponents .6 apart, triangle 5 s": clocked(triangle(500), 0.6),
}
"""Families that were looked at while thresholds were chosen."""

HELD_OUT = {
    "gamma noise": still(lambda r, n: 1 + 0.002 * r.standard_gamma(2.0, n)),
    "tick 0.25 us on 6 us": ticked(0.25e-6, 6e-6),
    "AR .96": correlated(ar(0.96)),
    "mean of 50 under white": correlated(lambda r, n: moving_mean(r, n, 50), 0.005),
    "AR .8 and AR .95": correlated(lambda r, n: ar(0.8, 0.006)(r, n) + ar(0.95, 0.006)(r, n)),
    "Hurst 0.65": fractional(0.65),
    "Hurst 0.75 under white": fractional(0.75, 0.005, 0.003),
    "Hurst 0.9": fractional(0.9),
    "Hurst 0.9 under white": fractional(0.9, 0.005, 0.005),
    "1/f^0.4": pink(0.4),
    "1/f^0.75 under white": pink(0.75, 0.006, 0.003),
    "1/f^1.0 under white": pink(1.0, 0.004, 0.004),
    "1/f^1.3 under white": pink(1.3, 0.006, 0.004),
    "1/f^1.9": pink(1.9),
    "wander of 4 s, 0.8 %": correlated(ou(400, 0.008), 0.003),
    "wanders of 0.5 and 5 s": correlated(
        lambda r, n: ou(50, 0.005)(r, n) + ou(500, 0.005)(r, n), 0.003
    ),
    "swing of 2 s": correlated(lambda r, n: 0.4 * turns(r, 3 * n)[::3], 0.003),
    "sticky 90": sticky(90),
    "sticky 140": sticky(140),
    "telegraph 70, 3 %": telegraph(70, 0.03),
    "telegraph 130, 5 %": telegraph(130, 0.05),
    "1 % at two thirds of the run": changed(2 / 3, 0.01),
    "exponents .45 apart, wander of 1 s": clocked(ou(100, 0.015), 0.45),
    "exponents .6 apart, cap moves every 2.5 s": clocked(lambda r, n: steps(r, n, 250, 0.02), 0.6),
}
"""Families that were made when the thresholds stood, and changed none."""

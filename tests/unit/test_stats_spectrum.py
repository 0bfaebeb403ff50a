"""The mean of correlated values: how far off it may be, told from their spectrum."""

import math

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.stats.pairs import MIN_EFFECTIVE, paired_ratio
from usv_tui.stats.spectrum import FEWEST, spread_factor


def factors(make, n: int, runs: int = 40) -> np.ndarray:
    """The factor in a number of runs."""
    return np.array([spread_factor(make(np.random.default_rng(k), n)) for k in range(runs)])


@pytest.mark.parametrize(("n", "most"), [(60, 1.6), (500, 1.3), (4000, 1.2)])
def test_independent_values_pay_little_for_what_might_be(n: int, most: float) -> None:
    """Their mean is believed to be about as well known as it is."""
    found = factors(lambda rng, n: rng.standard_normal(n), n)

    assert 0.95 < np.median(found) < most


@pytest.mark.parametrize(("phi", "n"), [(0.5, 1000), (0.9, 2000), (0.97, 4000)])
def test_a_short_memory_is_measured(phi: float, n: int) -> None:
    """The variance of the mean is that of the theory, and a little more."""
    found = factors(lambda rng, n: noise.ar1_normal(rng, n, phi), n)

    assert 0.9 < np.median(found) / ((1 + phi) / (1 - phi)) < 2


def test_noise_that_rings_is_averaged_away() -> None:
    """A loud wave of 40 rounds does not count as wander."""

    def ringing(rng: np.random.Generator, n: int) -> np.ndarray:
        wave = np.sin(2 * np.pi * (np.arange(n) / 40 + rng.random()))
        return wave * (1 + 0.5 * noise.ar1_normal(rng, n, 0.97)) + 0.1 * rng.standard_normal(n)

    assert np.median(factors(ringing, 2000)) < 2


@pytest.mark.parametrize("power", [0.8, 1.0, 1.3, 1.7])
@pytest.mark.parametrize("white", [0.0, 0.4])
def test_a_long_memory_gets_no_wrong_interval(power: float, white: float) -> None:
    """Of runs under 1/f noise of any exponent few have an interval that misses and is believed."""
    missed = 0
    for run in range(100):
        rng = np.random.default_rng(run)
        d = 0.01 * (noise.pink(rng, 1000, 1.0, power) + white * rng.standard_normal(1000))
        found = paired_ratio(d, any_time=False)
        is_given = (found.n_eff or 0) >= MIN_EFFECTIVE and not found.moves
        missed += is_given and not (found.low or 0) <= 1 <= (found.high or math.inf)

    assert missed <= 8


def test_what_has_no_spectrum_counts_as_independent() -> None:
    """Equal values, and very few."""
    assert spread_factor(np.ones(100)) == 1.0
    assert spread_factor(np.arange(FEWEST - 1.0)) == 1.0

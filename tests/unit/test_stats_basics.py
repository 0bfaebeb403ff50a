"""The small numerical tools, held against scipy and numpy."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.fakes import noise
from usv_tui.stats import basics


@pytest.mark.parametrize("df", [3, 4, 6, 9, 19, 60])
def test_t_quantile_is_scipys(df: float) -> None:
    """The expansion is within 0.4 % of the exact 95 % quantile from 3 degrees of freedom on."""
    assert basics.t_quantile(0.975, df) == pytest.approx(scipy.stats.t.ppf(0.975, df), rel=4e-3)


@pytest.mark.parametrize("df", [3, 5, 14])
@pytest.mark.parametrize("z", [-4.0, -1.0, 0.0, 2.0, 3.3, 4.9])
def test_a_t_value_becomes_the_deviate_that_is_as_unlikely(z: float, df: float) -> None:
    """Wallace's approximation is within 0.2 of the exact normal deviate."""
    t = scipy.stats.t.ppf(scipy.stats.norm.cdf(z), df)

    assert float(basics.normal_deviate(t, df)) == pytest.approx(z, abs=0.2)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 25, 1000])
def test_medians_are_numpys(n: int) -> None:
    """The quick medians equal numpy's, for one array and along rows."""
    x = np.random.default_rng(n).standard_normal((5, n))

    assert basics.median(x[0]) == np.median(x[0])
    np.testing.assert_array_equal(basics.row_medians(x), np.median(x, axis=1))


def test_ties_share_their_rank() -> None:
    """Ranks are scipy's average ranks."""
    x = np.random.default_rng(1).integers(0, 9, 200).astype(float)

    np.testing.assert_array_equal(basics.ranks(x), scipy.stats.rankdata(x))


@pytest.mark.parametrize(("phi", "tau"), [(0.0, 1.0), (0.5, 3.0), (0.9, 19.0)])
def test_correlation_time_of_an_autoregressive_series(phi: float, tau: float) -> None:
    """(1 + phi) / (1 - phi), within 30 % at 4096 samples."""
    rng = np.random.default_rng(3)
    found = [
        basics.correlation_time(
            noise.ar1_normal(rng, 4096, phi) if phi else rng.standard_normal(4096)
        )
        for _ in range(8)
    ]

    assert np.mean(found) == pytest.approx(tau, rel=0.3)


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 50, [1.0, 2.0, 1.0]])
def test_series_without_variation_or_length_have_no_correlation(values: list[float]) -> None:
    """Too few or equal values count one each."""
    assert basics.correlation_time(np.array(values)) == 1.0


def test_quantised_ties_do_not_fake_correlation() -> None:
    """A coarse timer's equal values leave independent samples independent."""
    rng = np.random.default_rng(5)
    x = noise.quantised(rng, 20e-6 * noise.iid(rng, 4000, 0.003), 0.5e-6)

    assert basics.correlation_time(x) < 1.5


def test_tick_is_the_smallest_gap_between_values() -> None:
    """A 32 ns counter is found from its readings; equal values tell nothing."""
    rng = np.random.default_rng(6)
    windows = noise.quantised(rng, 20_000 * noise.iid(rng, 300, 0.01), 32.0)

    assert basics.estimate_tick(windows) == pytest.approx(32.0)
    assert basics.estimate_tick(np.full(300, 20_000.0)) == 0.0
    assert basics.estimate_tick(np.array([math.nan, 1.0])) == 0.0


def test_clip_takes_stragglers_and_leaves_an_excursion_of_the_clock() -> None:
    """A single late sample is cut down; a hundred samples at another level stay."""
    x = np.random.default_rng(7).normal(0, 0.01, 1000)
    x[500:600] += 0.2
    x[100] = 5.0
    clipped = basics.local_clip(x)

    assert clipped[100] < 0.2
    assert np.median(clipped[500:600]) == pytest.approx(0.2, abs=0.01)
    assert basics.local_clip(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_usable_times_are_finite_and_positive() -> None:
    """NaN, infinities, zero and negative values are no times."""
    x = np.array([1.0, math.nan, 0.0, -1.0, math.inf, 2.0])

    assert basics.usable(x).tolist() == [1.0, 2.0]
    assert basics.madn(np.empty(0)) == 0.0

"""Summaries equal numpy, whole-run histograms are good to their bin, and little data says so."""

import math

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.stats.rolling import LogHistogram, Stats, summary

FROM_ONE = {"median_s", "mean_s", "min_s", "max_s"}
SPREADS = {"std_s", "madn_s", "p05_s", "p25_s", "p75_s", "p95_s", "p99_s"}


@pytest.mark.parametrize("n", [20, 100, 101, 999, 5000])
def test_summary_equals_numpy_on_any_prefix(n: int) -> None:
    """Median, mean, std, MAD and quantiles of a window are numpy's on the same values."""
    rng = np.random.default_rng(n)
    x = np.round(1e-3 * noise.heavy(rng, n), 6)
    s = summary(x)
    q1, q3 = np.quantile(x, (0.25, 0.75))

    assert s.n == n
    assert s.median_s == pytest.approx(np.median(x), rel=1e-12)
    assert s.mean_s == pytest.approx(x.mean(), rel=1e-12)
    assert s.std_s == pytest.approx(x.std(ddof=1), rel=1e-9)
    assert s.madn_s == pytest.approx(1.4826 * np.median(np.abs(x - np.median(x))), rel=1e-9)
    assert (s.p25_s, s.p75_s) == pytest.approx((q1, q3), rel=1e-12)
    assert (s.min_s, s.max_s) == (x.min(), x.max())
    assert s.p05_s == pytest.approx(np.quantile(x, 0.05), rel=1e-12)
    assert s.p95_s == pytest.approx(np.quantile(x, 0.95), rel=1e-12)
    assert s.severe == np.sum((x < q1 - 3 * (q3 - q1)) | (x > q3 + 3 * (q3 - q1)))
    assert s.rel_std == pytest.approx(x.std(ddof=1) / np.median(x))


@pytest.mark.parametrize(
    ("n", "missing"),
    [
        (
            0,
            {
                "median_s",
                "mean_s",
                "std_s",
                "madn_s",
                "p25_s",
                "p75_s",
                "min_s",
                "max_s",
                "p05_s",
                "p95_s",
                "p99_s",
            },
        ),
        (1, SPREADS),
        (2, SPREADS),
        (3, {"p25_s", "p75_s", "p05_s", "p95_s", "p99_s"}),
        (19, {"p05_s", "p95_s", "p99_s"}),
        (99, {"p99_s"}),
        (100, set()),
    ],
)
def test_what_n_is_too_small_for_is_none(n: int, missing: set[str]) -> None:
    """No std below 3 samples, no 5 % quantile below 20, no 1 % quantile below 100."""
    x = np.linspace(1.0, 2.0, n)
    found = summary(x)
    whole = LogHistogram()
    whole.add(x)

    for s in (found, whole.summary()):
        fields = {k for k in Stats.__dataclass_fields__ if getattr(s, k) is None}
        assert fields == missing


def test_values_that_are_no_times_are_left_out() -> None:
    """NaN, zero and negative windows never reach a statistic."""
    x = np.array([math.nan, 1.0, 0.0, 3.0, -2.0, 2.0, math.inf])

    assert summary(x) == summary(np.array([1.0, 3.0, 2.0]))
    assert summary(np.array([math.nan])) == Stats()


def test_constant_values_have_no_spread_and_no_outliers() -> None:
    """Equal samples give zeros, not NaN."""
    s = summary(np.full(500, 1.25e-3))

    assert (s.std_s, s.madn_s, s.severe) == (0.0, 0.0, 0)
    assert s.median_s == s.mean_s == s.min_s == s.max_s == 1.25e-3


def test_severe_counts_stragglers_and_not_the_core() -> None:
    """Five samples at five times the median are counted, 995 normal ones are not."""
    x = noise.iid(np.random.default_rng(2), 1000, 0.005)
    x[::200] *= 5

    assert summary(x).severe == 5


def test_whole_run_quantiles_are_good_to_a_tenth_of_a_percent() -> None:
    """Quantiles of 200 000 samples in batches match numpy within 0.15 %; sums are exact."""
    rng = np.random.default_rng(3)
    x = 2e-5 * noise.heavy(rng, 200_000, 0.02)
    h = LogHistogram()
    for part in np.array_split(x, 37):
        h.add(part)
    s = h.summary()

    for q in (0.01, 0.05, 0.5, 0.95, 0.99):
        assert h.quantile(q) == pytest.approx(np.quantile(x, q), rel=1.5e-3)
    assert s.mean_s == pytest.approx(x.mean(), rel=1e-9)
    assert s.std_s == pytest.approx(x.std(ddof=1), rel=1e-6)
    assert s.madn_s == pytest.approx(1.4826 * np.median(np.abs(x - np.median(x))), rel=0.05)
    assert (s.min_s, s.max_s) == (x.min(), x.max())
    assert s.severe == pytest.approx(summary(x).severe, rel=0.02)


def test_an_empty_histogram_says_nothing() -> None:
    """No value, no quantile."""
    h = LogHistogram()
    h.add(np.array([math.nan, 0.0]))

    assert h.quantile(0.5) is None
    assert h.std is None
    assert h.summary() == Stats()


def test_times_beyond_all_reason_do_not_cost_memory() -> None:
    """A picosecond and a month in one histogram stay below 400 kB."""
    h = LogHistogram()
    h.add(np.array([1e-30, 1.0, 1e30]))

    assert h.counts.nbytes < 400_000
    assert (h.min, h.max, h.n) == (1e-30, 1e30, 3)

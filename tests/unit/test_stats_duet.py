"""Ratios of two versions: within a launch, over launches, and of a family of rows."""

import math

import numpy as np
import pytest
from scipy import stats

from usv_tui.model import Answer
from usv_tui.stats.duet import (
    LaunchRatio,
    answer,
    holm,
    launch_ratio,
    over_launches,
    t_cdf,
    tail_quantile,
)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 11, 40])
def test_students_distribution_is_exact_far_out_in_its_tails(df):
    """What a family of many rows needs: the tail beyond one in ten thousand."""
    for t in (-1.0, 0.2, 2.8, 12.0):
        assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), abs=1e-12)
    assert tail_quantile(1 - 1e-4, df) == pytest.approx(stats.t.ppf(1 - 1e-4, df), rel=1e-6)


def test_what_drifts_within_a_pair_leaves_no_bias():
    """A drift adds to one order what it takes from the other, however uneven their numbers."""
    is_first = np.array([1] * 12 + [0] * 8)
    drifting = np.where(is_first == 1, 0.01, -0.01)
    assert launch_ratio(1, drifting, is_first).centre == pytest.approx(0.0, abs=1e-12)


def test_a_launch_of_few_pairs_has_no_ratio():
    """Fewer pairs than can be trusted say nothing rather than anything."""
    assert launch_ratio(1, np.zeros(7), np.ones(7)) is None


def test_a_straggling_pair_moves_a_launch_little():
    """One turn during which the machine was away is drawn in."""
    differences = np.full(40, 0.02)
    differences[7] = 3.0
    assert launch_ratio(1, differences, np.arange(40) % 2).centre == pytest.approx(0.02, abs=1e-9)


def _launches(rng, n, between, within, theta=0.0):
    values = theta + rng.normal(0, between, n) + rng.normal(0, within, n)
    return [LaunchRatio(i, float(v), within, 25) for i, v in enumerate(values)]


def test_the_interval_over_launches_holds_for_the_next_one_and_that_of_one_launch_does_not():
    """With launches that differ, 95 % intervals cover; the pairs of one launch alone do not."""
    rng = np.random.default_rng(3)
    runs = [_launches(rng, 5, 0.01, 0.003) for _ in range(800)]
    covered = [abs(o.centre) <= o.half for o in map(over_launches, runs)]
    alone = [abs(o.centre) <= o.half for o in (over_launches(run[:1]) for run in runs)]
    assert 0.93 <= np.mean(covered) <= 0.98
    assert np.mean(alone) < 0.6


def test_of_many_equal_rows_a_run_rarely_has_one_that_differs():
    """Corrected by Holm, at most one run in twenty has any false row; uncorrected, many have."""
    rng = np.random.default_rng(4)
    runs = [[over_launches(_launches(rng, 5, 0.006, 0.002)) for _ in range(53)] for _ in range(120)]
    corrected = [min(holm([o.p for o in run])) < 0.05 for run in runs]
    raw = [min(o.p for o in run) < 0.05 for run in runs]
    assert np.mean(corrected) <= 0.05
    assert np.mean(raw) > 0.3


def test_launches_that_agree_by_chance_are_no_better_known_than_their_pairs():
    """Equal figures of a coarse timer do not make an interval of no width."""
    over = over_launches([LaunchRatio(i, 0.01, 0.004, 20) for i in range(5)])
    assert over.half == pytest.approx(1.96 * 0.004 / math.sqrt(5), rel=1e-3)


def test_a_difference_that_two_workers_could_make_is_called_the_same():
    """A tenth of a percent, however well it is known, is no news of a version."""
    over = over_launches([LaunchRatio(i, 0.001, 1e-6, 20) for i in range(5)])
    assert answer(over.centre, over.half, over.p) is Answer.SAME


def test_holm_steps_down():
    """The smallest p bears the whole family, the next one less, and none is below one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []

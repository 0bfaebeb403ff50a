"""What may be claimed of two saved runs: never more than they can carry."""

import math
from dataclasses import replace

import numpy as np
import pytest

from usv_tui.model import Answer, ClockEffect
from usv_tui.stats.compare import Claim, SavedRow, compare, saved_row

OK = ClockEffect(status="ok", alpha=0.95, alpha_se=0.01)
RUN = SavedRow(
    n=5000,
    median_s=1e-3,
    mhz=1700.0,
    effect=OK,
    is_settled=True,
    thermal_share=0.0,
    lock_mhz=1635,
    uuid="GPU-1",
    driver="580",
    power_limit_mw=700_000,
)


def slower(by: float, **changes: object) -> SavedRow:
    """The run again, so much slower, with something else changed."""
    return replace(RUN, median_s=1e-3 * (1 + by), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("by", "answer"),
    [(0.02, Answer.SLOWER), (-0.02, Answer.FASTER), (0.009, Answer.UNDECIDED)],
)
def test_two_single_runs_differ_by_more_than_a_percent_or_not_at_all(
    by: float, answer: Answer
) -> None:
    """No interval is given, and differences below 1 % are not told."""
    found = compare([RUN], [slower(by)])

    assert found.claim is Claim.SAME_CLOCK
    assert found.answer is answer
    assert found.ratio == pytest.approx(1 + by)
    assert found.low is None


def test_repeated_runs_get_an_interval_over_runs() -> None:
    """Three a side: Welch's t-interval, within the interval's own error."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        old = [slower(e) for e in rng.normal(0, 0.003, 5)]
        new = [slower(e) for e in rng.normal(0.02, 0.003, 5)]
        found = compare(old, new)
        assert found.claim is Claim.REPEATED
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.02 <= found.high

    assert covered >= 0.9 * 200


def test_repeated_runs_can_be_the_same() -> None:
    """An interval inside the band is the answer `same`."""
    old = [slower(e) for e in (-0.0002, 0.0, 0.0002)]

    assert compare(old, old).answer is Answer.SAME
    assert compare([RUN] * 3, [RUN] * 3).ratio == pytest.approx(1.0)


def test_different_clocks_are_brought_to_one_with_alpha() -> None:
    """9 % slower at a clock 7 % lower is 2 % slower at equal clock, +- alpha's error."""
    low = slower(math.exp(0.95 * 0.072) * 1.02 - 1, mhz=1700 * math.exp(-0.072), lock_mhz=None)
    found = compare([RUN], [low])

    assert found.claim is Claim.ESTIMATE
    assert found.equal_clock == pytest.approx(1.02, abs=1e-6)
    assert found.equal_low == pytest.approx(1.02 * math.exp(-0.05 * 0.072))
    assert found.equal_high == pytest.approx(1.02 * math.exp(0.05 * 0.072))
    assert set(found.reasons) == {"lock", "clock"}


def test_without_alpha_the_truth_lies_somewhere_between() -> None:
    """Memory bound or compute bound: the interval holds both, and the answer waits."""
    unknown = ClockEffect()
    low = slower(0.07, mhz=1700 * 0.93, lock_mhz=None, effect=unknown)
    found = compare([replace(RUN, effect=unknown)], [low])

    assert found.equal_clock is None
    assert (found.equal_low, found.equal_high) == (
        pytest.approx(1.07 * 0.93),
        pytest.approx(1.07),
    )
    assert found.answer is Answer.UNDECIDED
    assert "alpha" in found.reasons


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"uuid": "GPU-2"}, "card"),
        ({"driver": "590"}, "driver"),
        ({"power_limit_mw": 600_000}, "power-limit"),
        ({"lock_mhz": None}, "lock"),
    ],
)
def test_another_card_or_driver_makes_it_an_estimate(
    changes: dict[str, object], reason: str
) -> None:
    """Even at the same clock and repeated."""
    found = compare([RUN] * 3, [slower(0.02, **changes)] * 3)

    assert found.claim is Claim.ESTIMATE
    assert reason in found.reasons


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_settled": False}, "unsettled"),
        ({"thermal_share": 0.1}, "thermal"),
        ({"mhz": None}, "no-clock"),
    ],
)
def test_runs_without_a_lasting_state_are_not_compared(
    changes: dict[str, object], reason: str
) -> None:
    """No comparison, the raw ratio beside it; only gross differences get an answer."""
    small = compare([RUN], [slower(0.1, **changes)])
    gross = compare([RUN], [slower(0.5, **changes)])

    assert small.claim is gross.claim is Claim.NONE
    assert small.reasons == (reason,)
    assert small.ratio == pytest.approx(1.1)
    assert small.answer is Answer.UNDECIDED
    assert gross.answer is Answer.SLOWER


def test_epochs_of_one_session_share_what_runs_do_not() -> None:
    """Their margin is the band instead of 1 %."""
    found = compare([RUN], [slower(0.008)], is_same_session=True)

    assert found.answer is Answer.SLOWER
    assert found.margin == 0.005


def test_nothing_to_compare_is_said() -> None:
    """Empty sides, and rows without a sample."""
    empty = saved_row(np.array([math.nan, 0.0]))

    assert compare([], [RUN]).reasons == ("no-samples",)
    assert compare([RUN], [empty]).reasons == ("no-samples",)


def test_a_row_is_reduced_to_its_median_and_its_clocks_geometric_mean() -> None:
    """NaN and zeros are left out of both."""
    row = saved_row(
        np.array([1.0, 2.0, 4.0, math.nan]), np.array([1000.0, 4000.0, 0.0]), is_settled=True
    )

    assert (row.n, row.median_s) == (3, 2.0)
    assert row.mhz == pytest.approx(2000.0)
    assert saved_row(np.array([1.0])).mhz is None

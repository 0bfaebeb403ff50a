"""What may be claimed of saved runs: never more than they can carry."""

import math
from dataclasses import replace

import numpy as np
import pytest

from usv_tui.model import Answer, ClockEffect
from usv_tui.stats.compare import Claim, RunClock, SavedRow, compare, run_clock, saved_row

OK = ClockEffect(status="ok", alpha=0.95, alpha_se=0.01)
CLOCK = RunClock(readings=200, mean_mhz=1700.0, median_mhz=1700.0, spread=0.01)
FACTS = {"card": "GPU-1", "driver": "580", "lock": 1635, "power-limit": 700_000, "torch": "2.13"}
RUN = SavedRow(
    n=5000,
    median_s=1e-3,
    half=0.0002,
    clock=CLOCK,
    effect=OK,
    is_settled=True,
    facts=FACTS,
)


def slower(by: float, **changes: object) -> SavedRow:
    """The run again, so much slower, with something else changed."""
    return replace(RUN, median_s=1e-3 * (1 + by), **changes)  # type: ignore[arg-type]


def at(mhz: float, **changes: object) -> RunClock:
    """The run's clock, elsewhere."""
    return replace(CLOCK, mean_mhz=mhz, median_mhz=mhz, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("by", "answer"),
    [
        (0.02, Answer.SLOWER),
        (-0.02, Answer.FASTER),
        (0.0099, Answer.UNDECIDED),
        (0.002, Answer.SAME),
    ],
)
def test_two_single_runs_differ_by_more_than_a_percent_or_are_the_same_within_it(
    by: float, answer: Answer
) -> None:
    """Their interval is that within the runs; what lies near the margin is not told."""
    found = compare([RUN], [slower(by)])

    assert found.claim is Claim.SAME_CLOCK
    assert found.answer is answer
    assert found.ratio == pytest.approx(1 + by)
    assert found.low is not None
    assert found.low < 1 + by < (found.high or 0)


def test_noise_within_the_runs_widens_what_cannot_be_told() -> None:
    """A difference of 2 % between runs that are known to 3 % each is no answer."""
    noisy = replace(RUN, half=0.03)

    assert compare([noisy], [slower(0.02, half=0.03)]).answer is Answer.UNDECIDED


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


def test_runs_at_different_clocks_have_no_answer_but_an_estimate_at_equal_clock() -> None:
    """9 % slower at a clock 7 % lower is 2 % slower at equal clock, +- the exponent's error."""
    low = slower(math.exp(0.95 * 0.072) * 1.02 - 1, clock=at(1700 * math.exp(-0.072)))
    found = compare([RUN], [low])

    assert found.claim is Claim.NONE
    assert found.answer is Answer.UNDECIDED
    assert found.reasons == ("clock",)
    assert found.equal_clock == pytest.approx(1.02, abs=1e-6)
    assert found.equal_low == pytest.approx(1.02 * math.exp(-0.05 * 0.072))
    assert found.equal_high == pytest.approx(1.02 * math.exp(0.05 * 0.072))


def test_without_a_known_exponent_there_is_no_estimate() -> None:
    """Memory bound or compute bound: nobody knows what the clock did to it."""
    unknown = ClockEffect()
    low = slower(0.07, clock=at(1580.0), effect=unknown)
    found = compare([replace(RUN, effect=unknown)], [low])

    assert found.equal_clock is None
    assert found.clock_ratio == pytest.approx(1580 / 1700)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"facts": FACTS | {"card": "GPU-2"}}, "card"),
        ({"facts": FACTS | {"driver": "590"}}, "driver"),
        ({"facts": {k: v for k, v in FACTS.items() if k != "lock"}}, "lock"),
        ({"is_settled": False}, "unsettled"),
        ({"throttled": frozenset({"thermal"})}, "throttle"),
        ({"clock": None}, "few-readings"),
        ({"clock": at(1700.0, readings=29)}, "few-readings"),
        ({"clock": at(1700.0, spread=0.06)}, "clock-spread"),
        ({"clock": at(1720.0)}, "clock"),
        ({"clock": replace(CLOCK, median_mhz=1720.0)}, "clock"),
    ],
)
@pytest.mark.parametrize("runs", [1, 3])
def test_what_is_not_alike_forbids_an_answer(
    changes: dict[str, object], reason: str, runs: int
) -> None:
    """However large the difference is, and however often it was repeated; it is named."""
    found = compare([RUN] * runs, [slower(0.5, **changes)] * runs)

    assert found.claim is Claim.NONE
    assert found.answer is Answer.UNDECIDED
    assert found.reasons == (reason,)
    assert found.ratio == pytest.approx(1.5)


def test_what_is_meant_to_differ_forbids_nothing() -> None:
    """Two drivers on purpose: the answer is about them."""
    other = slower(0.02, facts=FACTS | {"driver": "590"})

    found = compare([RUN], [other], across=frozenset({"driver"}))

    assert found.answer is Answer.SLOWER
    assert found.reasons == ()


def test_runs_limited_alike_may_be_compared() -> None:
    """A power cap on both sides at the same clock is a condition, not a difference."""
    capped = frozenset({"power cap"})

    found = compare([replace(RUN, throttled=capped)], [slower(0.02, throttled=capped)])

    assert found.answer is Answer.SLOWER


def test_without_any_clock_single_runs_show_only_gross_differences() -> None:
    """A CPU that tells no clock; repeated runs carry its variance and need none."""
    blind = replace(RUN, clock=None)

    small = compare([blind], [slower(0.1, clock=None)])
    gross = compare([blind], [slower(0.5, clock=None)])
    repeated = compare([blind] * 3, [slower(0.1, clock=None)] * 3)

    assert small.claim is gross.claim is Claim.NO_CLOCK
    assert small.answer is Answer.UNDECIDED
    assert small.margin == 0.25
    assert gross.answer is Answer.SLOWER
    assert repeated.answer is Answer.SLOWER


def test_nothing_to_compare_is_said() -> None:
    """Empty sides, and rows without a sample."""
    empty = saved_row(np.array([math.nan, 0.0]))

    assert compare([], [RUN]).reasons == ("no-samples",)
    assert compare([RUN], [empty]).reasons == ("no-samples",)


def test_a_row_is_reduced_to_its_median_and_how_well_that_is_known() -> None:
    """NaN and zeros are left out; correlated samples are worth less."""
    rng = np.random.default_rng(3)
    white = 1e-3 * np.exp(rng.normal(0, 0.01, 4000))
    slow = 1e-3 * np.exp(np.repeat(rng.normal(0, 0.01, 40), 100))

    row = saved_row(np.array([1.0, 2.0, 4.0, math.nan]), is_settled=True)

    assert (row.n, row.median_s) == (3, 2.0)
    assert saved_row(white).half == pytest.approx(1.96 * 0.01 / math.sqrt(4000), rel=0.3)
    assert saved_row(slow).half > 5 * saved_row(white).half


def test_a_runs_clock_is_its_geometric_mean_median_and_spread() -> None:
    """Readings of nothing are left out; no reading is no clock."""
    found = run_clock(np.array([1000.0, 4000.0, 0.0, math.nan]))

    assert found is not None
    assert found.readings == 2
    assert found.mean_mhz == pytest.approx(2000.0)
    assert found.spread > 1
    assert run_clock(np.array([math.nan])) is None

"""Ratios: right intervals under drift, right answers however often one looks."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.model import Answer, Ratio
from usv_tui.stats import pairs
from usv_tui.stats.pair_tracker import CAPACITY, MOST_CHANGE, PairTracker
from usv_tui.stats.pairs import paired_ratio

RUNS = 150


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """0.3 % noise on each side."""
    return 0.003 * math.sqrt(2) * rng.standard_normal(n)


def differently_clocked(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two rows that follow a dithering clock by 0.5 more or less."""
    return normal(rng, n) + 0.5 * 0.012 * noise.ar1_normal(rng, n, 0.9)


def quantised(rng: np.random.Generator, n: int, ratio: float = 1.0) -> np.ndarray:
    """Two kernels of 20 us under a timer of 0.5 us."""
    a, b = (noise.quantised(rng, 20e-6 * r * noise.iid(rng, n, 0.003), 5e-7) for r in (1.0, ratio))
    return np.log(b) - np.log(a)


DISTURBANCES = {
    "ramp": noise.saturating(1000, 0.05),
    "step": noise.step(1000, 0.04, 0.6),
    "dither": noise.ar1(np.random.default_rng(0), 1000, 0.012, 0.97),
}


@pytest.mark.parametrize("name", DISTURBANCES)
def test_what_both_rows_share_leaves_the_ratio_alone(name: str) -> None:
    """Paired intervals cover under ramp, step and dither, where a change of 0.5 % would show."""
    paired = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        a = DISTURBANCES[name] * noise.iid(rng, 1000, 0.003)
        b = 1.02 * DISTURBANCES[name] * noise.iid(rng, 1000, 0.003)
        paired += covers(paired_ratio(np.log(b / a), any_time=False), 1.02)

    assert paired >= 0.9 * RUNS


def covers(ratio: Ratio, truth: float) -> bool:
    """The interval holds the truth."""
    return ratio.low is not None and ratio.high is not None and ratio.low <= truth <= ratio.high


@pytest.mark.parametrize("any_time", [True, False])
def test_intervals_cover_when_rounds_are_correlated(any_time: bool) -> None:
    """AR .9 at 1000 rounds: at least 90 % of the nominal 95 % intervals hold the truth."""
    rng = np.random.default_rng(1)
    hits = [
        covers(paired_ratio(0.01 * noise.ar1_normal(rng, 1000, 0.9), any_time=any_time), 1.0)
        for _ in range(RUNS)
    ]

    assert np.mean(hits) >= 0.9


def test_a_coarse_timer_gets_no_narrower_than_its_step_allows() -> None:
    """0.5 us on 20 us: a median would be stuck on the lattice, the clipped mean covers 2 %."""
    rng = np.random.default_rng(2)
    hits = []
    for _ in range(RUNS):
        found = paired_ratio(quantised(rng, 1000, 1.02), resolution=0.025, any_time=False)
        hits.append(covers(found, 1.02))

    assert np.mean(hits) >= 0.9
    assert "timer-limited" in found.note


def test_equal_readings_are_never_more_certain_than_one_tick() -> None:
    """A timer that always reads the same cannot exclude a difference of one step."""
    found = paired_ratio(np.zeros(1000), resolution=0.025)

    assert found.low is not None
    assert found.high is not None
    assert found.low <= 1 - 0.024
    assert found.high >= 1 + 0.025
    assert found.answer is Answer.UNDECIDED


@pytest.mark.parametrize(
    ("make", "resolution", "rounds"),
    [(normal, None, 400), (differently_clocked, None, 400), (quantised, 0.025, 160)],
    ids=["iid", "correlated", "quantised"],
)
def test_identical_rows_watched_after_every_round(
    make: noise.NoiseMaker, resolution: float | None, rounds: int
) -> None:
    """200 seeds of A/A, looked at 125 times: at most 5 % are ever faster or slower.

    Without a practical band, so that the interval alone must hold.
    """
    wrong = 0
    for seed in range(200):
        d = make(np.random.default_rng(seed), rounds)
        tracker = PairTracker()
        looks = [*range(20, 60), *range(60, rounds, 4), rounds]
        slow = np.arange(rounds) * 1_000_000_000
        tracker.add(d[:20], None, slow[:20])
        for i, end in pairwise(looks):
            tracker.add(d[i:end], None, slow[i:end])
            found = tracker.ratio(band=0.0, resolution=resolution).answer
            if found in (Answer.FASTER, Answer.SLOWER):
                wrong += 1
                break

    assert wrong <= 10


@pytest.mark.parametrize(
    ("ratio", "answer"),
    [
        (1.0, Answer.SAME),
        (1.002, Answer.SAME),
        (1.02, Answer.SLOWER),
        (0.98, Answer.FASTER),
        (1.005, Answer.UNDECIDED),
    ],
)
def test_the_four_answers(ratio: float, answer: Answer) -> None:
    """Faster and slower beyond the band, same inside it, undecided on its edge."""
    d = math.log(ratio) + normal(np.random.default_rng(5), 1000)

    assert paired_ratio(d).answer is answer


def test_answers_are_found_quickly() -> None:
    """2 % at 0.3 % noise is decided within 100 rounds."""
    d = math.log(1.02) + normal(np.random.default_rng(6), 100)

    assert paired_ratio(d).answer is Answer.SLOWER


@pytest.mark.parametrize(
    "values", [[], [math.nan] * 100, [0.01], [0.01] * 10, list(np.linspace(-0.001, 0.001, 19))]
)
def test_too_few_rounds_have_no_answer(values: list[float]) -> None:
    """Undecided, with a note, and without an interval."""
    found = paired_ratio(np.array(values))

    assert found.answer is Answer.UNDECIDED
    assert found.note
    assert pairs.half_width(found) is None


def test_the_band_is_the_users() -> None:
    """A difference of 1 % is the same within 3 %."""
    d = math.log(1.01) + normal(np.random.default_rng(7), 1000)

    assert paired_ratio(d, band=0.03).answer is Answer.SAME
    assert paired_ratio(d, band=0.001).answer is Answer.SLOWER


def test_more_rows_against_one_baseline_widen_each_interval() -> None:
    """Every comparison gets its share of the error."""
    d = normal(np.random.default_rng(8), 1000)
    one, many = (pairs.half_width(paired_ratio(d, comparisons=k)) for k in (1, 19))

    assert one is not None
    assert many is not None
    assert one < many < 1.5 * one


def test_live_intervals_are_wider_than_for_a_single_look() -> None:
    """Looking at any time costs between 1.3 and 1.9 times the width."""
    d = normal(np.random.default_rng(9), 2000)
    live, once = (pairs.half_width(paired_ratio(d, any_time=k)) for k in (True, False))

    assert live is not None
    assert once is not None
    assert 1.3 * once < live < 1.9 * once


def test_a_huge_difference_is_told_although_the_ratio_wanders() -> None:
    """20 % apart with 1 % of slow wandering: slower, with a wide interval and the reason for it."""
    rng = np.random.default_rng(10)
    d = (
        math.log(1.2)
        + 0.01 * noise.ar1_normal(rng, 1000, 0.999)
        + 0.001 * rng.standard_normal(1000)
    )
    found = paired_ratio(d)

    assert (found.n_eff or 0) < pairs.MIN_EFFECTIVE
    assert found.answer is Answer.SLOWER
    assert found.moves
    assert "still moves" in found.note


def test_wandering_around_equality_stays_undecided() -> None:
    """Few effective rounds and no clear difference give no answer, in at least 19 of 20 runs."""
    rng = np.random.default_rng(11)
    answers = [paired_ratio(0.01 * noise.ar1_normal(rng, 400, 0.995)).answer for _ in range(100)]

    assert sum(a in (Answer.UNDECIDED, Answer.MOVING) for a in answers) >= 95


def test_a_control_that_differs_from_its_baseline_is_off() -> None:
    """Half the band is the limit; a control without data is not accused."""
    rng = np.random.default_rng(12)

    assert pairs.is_control_off(paired_ratio(math.log(1.004) + normal(rng, 2000)))
    assert pairs.is_control_off(paired_ratio(math.log(0.996) + normal(rng, 2000)))
    assert not pairs.is_control_off(paired_ratio(normal(rng, 2000)))
    assert not pairs.is_control_off(paired_ratio(np.full(3, 0.1)))


def test_the_whole_epoch_fits_into_bounded_memory() -> None:
    """100 000 rounds are kept as at most 2048 means of neighbours, and all count."""
    tracker = PairTracker()
    for part in np.array_split(np.arange(100_000.0), 321):
        tracker.add(part)
    kept = tracker.values
    steps = np.diff(kept)

    assert kept.size <= CAPACITY
    assert kept[0] < 32
    assert kept[-1] > 99_900
    assert steps.max() < 1.5 * steps.min()
    assert tracker.ratio().n == 100_000


def test_thinning_does_not_bias_the_ratio() -> None:
    """The median of 60 000 rounds is the same to the interval's width."""
    d = math.log(1.01) + normal(np.random.default_rng(13), 60_000)
    tracker = PairTracker()
    tracker.add(d)
    found = tracker.ratio()

    assert covers(found, 1.01)
    assert found.ratio == pytest.approx(math.exp(np.median(d)), abs=2e-4)


@pytest.mark.parametrize("at_once", [50, 100, 5000])
def test_stalls_leave_the_interval_alone_however_the_rounds_come(at_once: int) -> None:
    """5 % of the calls up to 30 times as long: the same, within 0.1 %, after 5000 rounds."""
    rng = np.random.default_rng(16)
    late = rng.random((2, 5000)) < 0.05
    d = normal(rng, 5000) + np.subtract(*(late * np.log(rng.uniform(2, 30, (2, 5000)))))
    tracker = PairTracker()
    for i in range(0, d.size, at_once):
        tracker.add(d[i : i + at_once])
        found = tracker.ratio()

    assert found.answer is Answer.SAME
    assert (pairs.half_width(found) or math.inf) < 0.001


def test_several_samples_of_a_round_count_once() -> None:
    """The mean of log t stands for a row with more than one sample in a round; NaN are skipped."""
    rounds, means = pairs.round_means(
        np.array([1, 1, 2, 4, 4, 4]), np.array([1.0, 3.0, 5.0, math.nan, 2.0, 4.0])
    )

    assert rounds.tolist() == [1, 2, 4]
    assert means.tolist() == [2.0, 5.0, 3.0]
    assert pairs.round_means(np.array([1]), np.array([math.nan]))[0].size == 0


def test_the_boundary_is_robbins_mixture() -> None:
    """The chance that a fair coin's walk ever leaves it is at most alpha (10 000 steps)."""
    rng = np.random.default_rng(14)
    n = np.arange(20, 10_001)
    limit = np.array([pairs.boundary(float(k)) for k in n]) * np.sqrt(n) / 2
    crossed = sum(
        bool((np.abs(np.cumsum(rng.integers(0, 2, 10_000) - 0.5)[19:]) > limit).any())
        for _ in range(400)
    )

    assert crossed <= 0.05 * 400 + 4


def test_an_interval_knows_its_half_width() -> None:
    """None where a bound is missing."""
    d = normal(np.random.default_rng(15), 500)
    found, short = pairs.median_interval(d), pairs.median_interval(d[:5])

    assert found is not None
    assert short is not None
    assert found.half_width is not None
    assert found.low is not None
    assert found.low + found.half_width == pytest.approx((found.low + (found.high or 0)) / 2)
    assert short.half_width is None
    assert pairs.median_interval(np.empty(0)) is None


NOISES: dict[str, noise.NoiseMaker] = {
    "iid": normal,
    "two modes": lambda r, n: np.log(noise.bimodal(r, n, 0.003) / noise.bimodal(r, n, 0.003)),
    "clocked differently": differently_clocked,
    "AR .97": lambda r, n: 0.01 * noise.ar1_normal(r, n, 0.97),
    "AR .99": lambda r, n: 0.01 * noise.ar1_normal(r, n, 0.99),
    "sticky": lambda r, n: np.log(noise.sticky(r, n, 0.005, 100)),
    "drifting": lambda r, n: normal(r, n) + np.linspace(0, 0.018, n),
}


@pytest.mark.parametrize("name", NOISES)
def test_an_interval_never_jumps(name: str) -> None:
    """From one look to the next, 50 rounds apart, its width changes by half at most."""
    for seed in range(8):
        d = NOISES[name](np.random.default_rng(seed), 6000)
        tracker, widths = PairTracker(), []
        for i in range(0, d.size, 50):
            tracker.add(d[i : i + 50])
            width = pairs.half_width(tracker.ratio())
            widths += [] if width is None else [width]
        changes = np.array(widths[1:]) / np.array(widths[:-1])

        assert len(widths) > 100
        assert changes.max() <= MOST_CHANGE + 1e-9
        assert changes.min() >= 1 / MOST_CHANGE - 1e-9


def test_rows_that_follow_the_clock_differently_get_an_interval_that_says_something() -> None:
    """2500 rounds of a ratio that dithers by 0.6 % over 33 rounds: within 1 %, and it covers."""
    hits, widths = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = paired_ratio(normal(rng, 2500) + 0.006 * noise.ar1_normal(rng, 2500, 0.97))
        hits += covers(found, 1.0)
        widths.append(pairs.half_width(found) or math.inf)

    assert hits >= 38
    assert np.median(widths) < 0.01


def drifting(n: int, change: float = 0.018) -> tuple[np.ndarray, np.ndarray]:
    """A ratio of 0.383 that moves with a clock that falls by 3 %, and the log of that clock."""
    log_mhz = np.log(1800 * np.linspace(1, 0.97, n))
    share = change / float(np.ptp(log_mhz))
    d = math.log(0.383) - share * (log_mhz - log_mhz[0])
    return d + normal(np.random.default_rng(3), n), log_mhz


def test_a_ratio_that_moves_with_the_clock_says_so_and_at_which_clock_it_is_what() -> None:
    """0.383 to 0.390 while the clock falls: its interval holds both, and 1750 MHz is known."""
    tracker = PairTracker()
    tracker.add(*drifting(4000))
    found = tracker.ratio()

    assert found.moves
    assert found.answer is Answer.FASTER
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0.383
    assert found.high >= 0.383 * math.exp(0.018) - 0.001
    assert found.at_clock is not None
    assert found.at_clock.mhz == pytest.approx(1800 * 0.97, rel=0.005)
    assert found.at_clock.low <= 0.383 * math.exp(0.017) <= found.at_clock.high
    assert found.at_clock.high - found.at_clock.low < 0.004


def test_a_small_difference_that_moves_has_no_answer() -> None:
    """From equal to 1.8 % slower: still moves, rather than a mean that held at no time."""
    d, _ = drifting(4000)

    assert paired_ratio(d - d[:100].mean()).answer is Answer.MOVING


def test_a_clock_that_does_not_explain_the_movement_is_not_blamed() -> None:
    """No ratio at one clock where the clock stands still, is unknown, or moves otherwise."""
    d, log_mhz = drifting(4000)
    other = np.log(1800 + 20 * np.sin(np.arange(4000) / 50))

    for clock in (None, np.full(4000, log_mhz[0]), other):
        tracker = PairTracker()
        tracker.add(d, clock)
        assert tracker.ratio().moves
        assert tracker.ratio().at_clock is None


def test_identical_rows_are_seldom_said_to_move() -> None:
    """Independent noise, looked at 40 times: at most 1 look in 100."""
    said = 0
    for seed in range(50):
        d = normal(np.random.default_rng(seed), 4000)
        tracker = PairTracker()
        for i in range(0, d.size, 100):
            tracker.add(d[i : i + 100])
            said += tracker.ratio().moves

    assert said <= 0.01 * 50 * 40


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_rounding_does_not_decide_what_is_a_straggler(share: float) -> None:
    """Rounds of two values have the same interval however they are rounded."""
    rng = np.random.default_rng(17)
    d = np.where(rng.random(1000) < share, 0.02, 0.0)
    exact = paired_ratio(d)

    for size in (1e-134, 1e-17, 1e-12):
        found = paired_ratio(d + size * rng.standard_normal(d.size))
        assert found.ratio == pytest.approx(exact.ratio, abs=1e-8)
        assert pairs.half_width(found) == pytest.approx(pairs.half_width(exact), rel=1e-3)

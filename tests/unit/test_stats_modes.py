"""Two modes are hinted at where there are two, and not where noise is merely ugly."""

import math

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.stats.basics import correlation_time
from usv_tui.stats.modes import find_modes, implausible

RUNS = 100


def hinted(make: noise.NoiseMaker, tick: float = 0.0, n: int = 1000) -> int:
    """In how many of 100 runs two modes are hinted at."""
    hits = 0
    for seed in range(RUNS):
        x = make(np.random.default_rng(seed), n)
        hits += find_modes(x, tick, n / correlation_time(x[-1024:])) is not None
    return hits


@pytest.mark.parametrize(
    "make",
    [
        noise.iid,
        noise.heavy,
        lambda r, n: noise.ar1(r, n, 0.01, 0.97),
        lambda r, n: noise.iid(r, n, 0.005) * noise.line(n, 0.03),
        lambda r, n: noise.bimodal(r, n, 0.005, 0.5, 0.015),
    ],
    ids=["iid", "heavy", "AR .97", "ramp", "3 sd apart"],
)
def test_one_mode_is_not_called_two(make: noise.NoiseMaker) -> None:
    """Never in 100 runs, on heavy tails, ramps, wandering or modes that no eye can part."""
    assert hinted(make) == 0


def test_a_lattice_is_not_called_modes() -> None:
    """A timer of 0.5 us on 20 us leaves two or three values, and one mode."""
    make = lambda r, n: noise.quantised(r, 20e-6 * noise.iid(r, n, 0.005), 5e-7) / 20e-6

    assert hinted(make, tick=0.025) == 0


@pytest.mark.parametrize(("share", "gap"), [(0.5, 0.02), (0.1, 0.04)])
def test_two_modes_are_found(share: float, gap: float) -> None:
    """Evenly at 4 deviates, or a tenth of the samples at 8: in at least 90 of 100 runs."""
    assert hinted(lambda r, n: noise.bimodal(r, n, 0.005, share, gap)) >= 90


@pytest.mark.parametrize("n", [400, 1000, 4000])
@pytest.mark.parametrize(("gap", "at"), [(0.02, 0.5), (0.04, 0.8), (0.1, 0.3)])
def test_a_level_that_changes_once_is_not_called_two_modes(n: int, gap: float, at: float) -> None:
    """One step of 4 to 20 deviates, early or late in the window: never in 100 runs."""
    assert hinted(lambda r, n: noise.iid(r, n, 0.005) * noise.step(n, gap, at), n=n) == 0


def test_a_level_that_goes_and_comes_back_once_is_not_called_two_modes() -> None:
    """A quarter of the samples in between are 4 % slower: a mode is come back to all the time."""
    pulse = lambda n: np.where(abs(np.arange(n) / n - 0.5) < 0.125, 1.04, 1.0)

    assert hinted(lambda r, n: noise.iid(r, n, 0.005) * pulse(n), n=4000) == 0


def test_modes_that_are_kept_for_a_while_are_found() -> None:
    """Each for 50 samples on average, over 4000: in at least 90 of 100 runs."""
    assert hinted(lambda r, n: noise.sticky(r, n, 0.005, 50), n=4000) >= 90


def test_the_modes_and_their_shares_are_told() -> None:
    """Where they are, and how much is in the slower one."""
    x = 1e-3 * noise.bimodal(np.random.default_rng(1), 4000, 0.003, 0.3, 0.05)
    found = find_modes(x)

    assert found is not None
    assert found.low == pytest.approx(1e-3, rel=0.005)
    assert found.gap == pytest.approx(0.05, abs=0.005)
    assert found.share_high == pytest.approx(0.3, abs=0.03)
    assert found.minor_share == found.share_high


@pytest.mark.parametrize("values", [[], [1.0] * 150, [1.0] * 1000, [math.nan] * 500, [0.0] * 500])
def test_no_hint_without_usable_samples(values: list[float]) -> None:
    """Too few, constant, NaN or zero: no hint."""
    assert find_modes(np.array(values)) is None


def test_a_cached_answer_shows() -> None:
    """First slow, the rest at the timer's floor; honest work is not accused."""
    x = np.full(100, 40.0)
    x[0] = 90_000.0
    found = implausible(x, floor=40.0)

    assert found is not None
    assert found.share_at_floor == 1.0
    assert found.first_ratio > 1000
    assert implausible(np.full(100, 5000.0), floor=40.0) is None
    assert implausible(x[:5], floor=40.0) is None
    assert implausible(x, floor=0.0) is None


def test_peaks_closer_than_three_ticks_are_the_timers() -> None:
    """Two lattice points that survive the dither are not two speeds of the kernel."""
    rng = np.random.default_rng(3)
    x = np.where(rng.random(2000) < 0.5, 20e-6, 20.9e-6) + 1e-9 * rng.standard_normal(2000)

    assert find_modes(x) is not None
    assert find_modes(x, tick=0.31e-6) is None


@pytest.mark.parametrize("gap", [0.1, 0.5, 3.0])
def test_modes_far_apart_are_still_two(gap: float) -> None:
    """Hundreds of deviates apart, evenly or one in ten."""
    for share in (0.5, 0.1):
        found = find_modes(noise.bimodal(np.random.default_rng(4), 1000, 0.0005, share, gap))

        assert found is not None
        assert found.gap == pytest.approx(gap, rel=0.1)


def test_a_dither_larger_than_the_times_leaves_nothing_to_say() -> None:
    """A timer coarser than the kernel cannot show modes."""
    assert find_modes(noise.iid(np.random.default_rng(5), 1000), tick=1e6) is None


def test_one_value_with_a_few_others_is_one_mode() -> None:
    """More than half of the samples equal: there is no width to look for a valley in."""
    x = np.full(1000, 1e-3)
    x[:100] = np.linspace(2e-3, 3e-3, 100)

    assert find_modes(x) is None

"""An answer near to 1 waits for time: a slow mode or clock looks like a difference at first."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.model import Answer, Ratio
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.patience import CALM_S, LIMITED_S, Watch, needed_s

S = 1_000_000_000
SECOND = 100
"""Rounds of 10 ms."""
RUNS = 40

Path = Callable[[np.random.Generator, int], np.ndarray]


def white(rng: np.random.Generator, n: int, sd: float = 0.003) -> np.ndarray:
    """Noise of two rows."""
    return sd * math.sqrt(2) * rng.standard_normal(n)


def kept_modes(dwell: int) -> Path:
    """Two modes 4 % apart, each kept for `dwell` rounds on average."""
    return lambda r, n: np.log(noise.sticky(r, n, 0.003, dwell)) + white(r, n)


def wandering(tau: float, sd: float) -> Path:
    """A level that wanders with a correlation time of `tau` rounds."""
    return lambda r, n: sd * noise.ar1_normal(r, n, math.exp(-1 / tau)) + white(r, n)


def redder(power: float) -> Path:
    """1/f noise of some exponent, 1 % in all."""
    return lambda r, n: noise.pink(r, n, 0.01, power)


def steps(dwell: int, sd: float) -> Path:
    """Rows of different exponent under a cap that moves."""

    def path(rng: np.random.Generator, n: int) -> np.ndarray:
        last = np.maximum.accumulate(np.where(rng.random(n) < 1 / dwell, np.arange(n), 0))
        return sd * rng.standard_normal(n)[last] + white(rng, n)

    return path


def sawtooth(period: int, swing: float) -> Path:
    """Rows of different exponent under a clock that falls and jumps back."""
    return lambda r, n: swing * ((np.arange(n) / period + r.random()) % 1 - 0.5) + white(r, n)


NOISES: dict[str, tuple[Path, bool]] = {
    "iid": (white, False),
    "modes kept for 30": (kept_modes(30), False),
    "modes kept for 100": (kept_modes(100), False),
    "1/f": (redder(1.0), False),
    "1/f^1.3": (redder(1.3), False),
    "wander of 0.5 s": (wandering(50, 0.01), False),
    "wander of 3 s": (wandering(300, 0.01), False),
    "cap moves": (steps(300, 0.01), True),
    "cap moves fast": (steps(60, 0.018), True),
    "slow dither": (wandering(200, 0.006), True),
    "sawtooth": (sawtooth(900, 0.028), True),
}


def looked_at(d: np.ndarray, *, is_limited: bool = False, rounds: int = SECOND) -> list[Ratio]:
    """What is said at a look every so many rounds."""
    tracker, told = PairTracker(), []
    for i in range(0, d.size, rounds):
        tracker.add(d[i : i + rounds])
        told.append(tracker.ratio(is_limited=is_limited))
    return told


@pytest.mark.parametrize("name", NOISES)
def test_equal_rows_are_hardly_ever_told_apart(name: str) -> None:
    """Looked at once a second for 20 s: faster or slower at any look in at most 2 of 40 runs."""
    make, is_limited = NOISES[name]
    wrong = 0
    for seed in range(RUNS):
        told = looked_at(make(np.random.default_rng([7, seed]), 2000), is_limited=is_limited)
        wrong += any(r.answer in (Answer.FASTER, Answer.SLOWER) for r in told)

    assert wrong <= 2


@pytest.mark.parametrize(
    ("ratio", "sd", "within_s"),
    [(1.1, 0.003, 1), (0.9, 0.01, 1), (1.04, 0.003, 4), (1.03, 0.003, 7), (1.01, 0.003, 7)],
)
def test_real_differences_are_told_soon(ratio: float, sd: float, within_s: int) -> None:
    """10 % after a second, 4 % after four, 1 % after seven."""
    for seed in range(10):
        d = math.log(ratio) + white(np.random.default_rng(seed), 700, sd)
        told = [r.answer for r in looked_at(d)]

        assert told[within_s - 1] is (Answer.SLOWER if ratio > 1 else Answer.FASTER)


def test_an_answer_that_waits_says_why() -> None:
    """Not enough data, with its interval, until it has been watched; then the answer."""
    early, *_, late = looked_at(math.log(1.01) + white(np.random.default_rng(1), 600))

    assert early.answer is Answer.UNDECIDED
    assert early.is_short
    assert "short run" in early.note
    assert early.low is not None
    assert late.answer is Answer.SLOWER
    assert not late.is_short


def test_the_last_look_answers_and_says_that_the_run_was_short() -> None:
    """A run of one second ends with an answer."""
    tracker = PairTracker()
    tracker.add(math.log(1.01) + white(np.random.default_rng(1), 100))
    last = tracker.ratio(is_last=True)

    assert last.answer is Answer.SLOWER
    assert last.is_short


def test_a_device_at_its_limit_is_watched_for_longer() -> None:
    """Twice as long, told by the sensors or by a clock that moved."""
    d = white(np.random.default_rng(2), 700)
    limited = looked_at(d, is_limited=True)
    tracker = PairTracker()
    tracker.add(d, np.log(1500 + 20 * np.sin(np.arange(700) / 40)))

    assert all(r.is_short for r in limited)
    assert tracker.ratio().is_short
    assert not looked_at(d)[-1].is_short
    assert CALM_S < LIMITED_S
    assert needed_s(0.0, is_limited=False) == CALM_S
    assert needed_s(0.0, is_limited=True) == LIMITED_S
    assert needed_s(0.3, is_limited=True) < 1


def test_time_counts_not_rounds() -> None:
    """20 000 rounds of a second are one second, rounds of 0.2 s as long as they are."""
    tracker = PairTracker()
    tracker.add(white(np.random.default_rng(3), 20_000), None, np.arange(20_000) * (S // 20_000))
    slow = Watch()
    slow.add(30, np.arange(30) * (S // 5))

    assert tracker.ratio().is_short
    assert slow.seconds == pytest.approx(5.8)


def test_a_pause_is_not_watched() -> None:
    """An hour between two bursts counts as half a second, whether or not it is within one look."""
    at_once, apart = Watch(), Watch()
    first, second = np.arange(50) * (S // 100), 3600 * S + np.arange(50) * (S // 100)
    at_once.add(100, np.concatenate([first, second]))
    apart.add(50, first)
    apart.add(50, second)

    assert at_once.seconds == apart.seconds == pytest.approx(0.98 + 0.5)

"""Stalls are judged alike at the start, in the middle and in any number of pieces."""

import numpy as np
import pytest

from usv_tui.stats.stalls import StallFinder


def judged(seconds: np.ndarray, pieces: int = 1) -> list[int]:
    """Numbers of the samples that are stalls in the end."""
    finder, found = StallFinder(), np.empty(0, bool)
    for part in np.array_split(np.asarray(seconds, float), pieces):
        seen = finder.find(part)
        found = np.concatenate([found, seen.is_stall])
        found[seen.revised] ^= True
    return np.flatnonzero(found).tolist()


def noisy(n: int, seed: int = 0) -> np.ndarray:
    """Times around one."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.02, n))


@pytest.mark.parametrize("at", [0, 1, 7, 19, 20, 30, 49, 50, 51, 300, 1100])
def test_a_straggler_is_a_stall_wherever_it_comes(at: int) -> None:
    """The first sample and the thousandth are held against the same median."""
    x = noisy(1500)
    x[at] = 50

    assert judged(x) == [at]


@pytest.mark.parametrize("pieces", [2, 3, 7, 29, 150, 1500])
def test_pieces_make_no_difference(pieces: int) -> None:
    """A session that is read back has the stalls that it had live."""
    x = noisy(1500)
    x[::97] = 40
    x[400:520] = 35

    assert judged(x, pieces) == judged(x)


def test_a_lasting_slowdown_is_no_stall() -> None:
    """When the row has become thirty times slower for good, none of its samples is an accident."""
    x = noisy(3000)
    x[700:] *= 30

    assert judged(x) == []


def test_what_comes_back_is_a_stall() -> None:
    """Twenty slow samples between fast ones stay stalls."""
    x = noisy(3000)
    x[700:720] *= 30

    assert judged(x) == list(range(700, 720))


def test_a_speed_up_does_not_condemn_what_was_before() -> None:
    """When a row becomes thirty times faster, its earlier samples were its time then."""
    x = noisy(3000)
    x[:1500] *= 30

    assert judged(x) == []


def test_few_samples_know_no_stalls() -> None:
    """Below twenty samples nobody can say what is usual; at twenty one can."""
    x = noisy(20)
    x[3] = 50

    assert judged(x[:19]) == []
    assert judged(x) == [3]

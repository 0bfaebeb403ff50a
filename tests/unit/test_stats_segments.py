"""Marks stand where the level changed, and nowhere else."""

import math
import time

import numpy as np
import pytest

from tests.fakes import noise
from usv_tui.stats.segments import Change, change_points

S = 1_000_000_000


def series(shape: np.ndarray, sd: float = 0.003, seed: int = 0) -> list[Change]:
    """The marks of a shape under noise, 100 samples a second."""
    x = shape * noise.iid(np.random.default_rng(seed), shape.size, sd)
    return change_points(np.arange(shape.size) * (S // 100), x)


def test_a_step_gets_one_mark_at_its_place() -> None:
    """2 % at 30 of 60 s: within half a second, with its size."""
    (found,) = series(noise.step(6000, 0.02))

    assert found.at_ns == pytest.approx(30 * S, abs=S // 2)
    assert found.change == pytest.approx(0.02, abs=0.003)


def test_two_steps_get_two_marks() -> None:
    """Up by 3 %, and down again."""
    shape = np.ones(6000)
    shape[2000:4000] = 1.03
    up, down = series(shape)

    assert up.at_ns == pytest.approx(20 * S, abs=S // 2)
    assert down.at_ns == pytest.approx(40 * S, abs=S // 2)
    assert up.change > 0 > down.change


@pytest.mark.parametrize(
    "shape", [noise.line(6000, 0.0), noise.step(6000, 0.003)], ids=["flat", "0.3 %"]
)
def test_noise_and_tiny_steps_get_no_mark(shape: np.ndarray) -> None:
    """In none of 20 runs."""
    assert not any(series(shape, seed=seed) for seed in range(20))


@pytest.mark.parametrize("values", [[], [1.0] * 10, [1.0] * 1000, [math.nan] * 100, [0.0] * 100])
def test_too_few_or_equal_samples_get_no_mark(values: list[float]) -> None:
    """No exception and no mark."""
    assert change_points(np.arange(len(values)) * S, np.array(values)) == []


def test_a_long_run_is_quick() -> None:
    """200 000 samples are reduced to 400 stretches first: far below a second."""
    x = noise.iid(np.random.default_rng(1), 200_000, 0.01)
    begun = time.perf_counter()
    change_points(np.arange(x.size) * 1000, x)

    assert time.perf_counter() - begun < 0.5

"""The variance between allocations in a ratio: rows that were built afresh during a run."""

import numpy as np
import pytest

from usv_tui.model import Answer
from usv_tui.stats.inputs import RowData, TelemetryData
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.placement import between, stretches
from usv_tui.stats.rounds import RatioBook

NO_READINGS = TelemetryData(*np.empty((6, 0)))
ALLOCATIONS = 8
ROUNDS = 300


def aa(rng, effect, allocations=ALLOCATIONS, ratio=0.0, noise=0.003):
    """Log ratios of equal code, each allocation of each row up to `effect` slower or faster."""
    levels = rng.uniform(-effect, effect, (allocations, 2))
    return [ratio + a - b + rng.normal(0, noise * 2**0.5, ROUNDS) for a, b in levels]


def watched(parts):
    """The answers of all looks, a second apart, and the ratio of the last one."""
    tracker = PairTracker()
    said = []
    for part in parts:
        tracker.cut()
        for chunk in np.split(part, len(part) // 100):
            tracker.add(chunk)
            found = tracker.ratio()
            said.append(found.answer)
    return said, tracker.ratio(is_last=True)


def test_equal_code_in_other_buffers_is_no_difference():
    """With up to 1 % of placement each, at most 5 % of runs ever say faster or slower."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(100):
        said, last = watched(aa(rng, 0.01))
        wrong += any(word in (Answer.FASTER, Answer.SLOWER) for word in [*said, last.answer])

    assert wrong <= 5


def test_one_allocation_would_have_called_it_a_difference():
    """What the test above takes for granted: the effect is one that rounds alone do not see."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(50):
        tracker = PairTracker()
        tracker.add(np.tile(aa(rng, 0.01, allocations=1)[0], 4))
        wrong += tracker.ratio(is_last=True).answer in (Answer.FASTER, Answer.SLOWER)

    assert wrong > 10


@pytest.mark.parametrize(("effect", "least"), [(0.0, 0.95), (0.002, 0.9)])
def test_allocations_that_agree_cost_little(effect, least):
    """Where placement does nothing the answer is `same` all the same, nearly as narrow."""
    rng = np.random.default_rng(2)
    last = [watched(aa(rng, effect))[1] for _ in range(60)]

    assert np.mean([found.answer is Answer.SAME for found in last]) >= least


def test_a_difference_beyond_placement_is_told():
    """5 % with 0.5 % of placement: slower, and the interval holds the truth."""
    rng = np.random.default_rng(3)
    last = [watched(aa(rng, 0.005, ratio=np.log(1.05)))[1] for _ in range(60)]

    assert all(found.answer is Answer.SLOWER for found in last)
    held = [found.low < 1.05 < found.high for found in last]
    assert np.mean(held) >= 0.93


def test_placement_is_not_taken_for_a_level_that_moves():
    """Steps where rows were built afresh are not `still moves`, and their size is told."""
    rng = np.random.default_rng(4)
    last = [watched(aa(rng, 0.01))[1] for _ in range(40)]

    assert not any(found.moves for found in last)
    assert 0.004 < np.median([found.placement for found in last]) < 0.013


def test_few_allocations_wait_for_more_unless_none_come():
    """After two or three nothing near 1 is told, until the last has gone on for long."""
    rng = np.random.default_rng(5)
    tracker = PairTracker()
    for _ in range(2):
        tracker.cut()
        tracker.add(rng.normal(0, 0.003, ROUNDS))
    young = tracker.ratio()
    tracker.add(rng.normal(0, 0.003, 4 * ROUNDS))
    old = tracker.ratio()

    assert young.is_short
    assert not old.is_short


def test_levels_that_no_placement_makes_are_something_else():
    """A row that became 20 % slower beside a rebuilding moves: no buffers do that."""
    rng = np.random.default_rng(6)
    tracker = PairTracker()
    for level in (0.0, 0.2, 0.2, 0.2):
        tracker.cut()
        tracker.add(level + rng.normal(0, 0.003, ROUNDS))

    assert tracker.ratio(is_last=True).moves


def test_stretches_too_short_go_with_a_neighbour():
    """Nobody's level is told from a few rounds; without two long stretches there is none."""
    values = np.concatenate([np.zeros(50), np.ones(50)])

    assert stretches(values, [10, 50, 95]).sizes.tolist() == [50, 50]
    assert stretches(values, [5, 95]) is None
    assert stretches(values, []) is None


def test_allocations_weigh_alike_where_they_differ_by_more_than_noise():
    """A long last stretch does not outweigh three others that lie elsewhere."""
    values = np.concatenate([np.full(50, x) for x in (0.0, 0.02, 0.01)] + [np.full(5000, 0.05)])
    found = between(stretches(values, [50, 100, 150]), 1e-12, 0.05)

    assert found.centre == pytest.approx(0.02, abs=1e-4)


def _row(bench, rounds, log_t, built_ns=(), **options):
    n = rounds.size
    return RowData(
        bench=bench,
        t_ns=rounds * 10_000_000,
        window_ns=np.rint(np.exp(log_t) * 1e6).astype(np.int64),
        inner=np.ones(n, np.int64),
        rounds=rounds,
        flags=np.zeros(n, np.int64),
        built_ns=np.array(built_ns, np.int64),
        **options,
    )


def test_a_pair_has_as_many_allocations_as_the_row_that_was_built_less_often():
    """Both rows' buffers matter: built twice and once more is two allocations of the pair."""
    rng = np.random.default_rng(7)
    rounds = np.arange(400)
    noise = rng.normal(0, 0.002, (2, 400))
    base = _row(0, rounds, noise[0], [1_000_000_000, 2_000_000_000])
    row = _row(1, rounds, noise[1], [1_000_000_000], baseline=0)
    book = RatioBook(0.005, 0.05)
    book.feed([base, row], 0, NO_READINGS, is_final=True)

    assert book.ratio(row, 1, None, is_last=True).allocations == 2

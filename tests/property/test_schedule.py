from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usv_tui.engine.schedule import Schedule, spread

QUOTAS = st.dictionaries(st.integers(0, 20), st.integers(1, 5), min_size=1, max_size=8)
BUDGETS = st.dictionaries(st.integers(0, 20), st.integers(0, 60), max_size=6)


@given(QUOTAS, st.integers(0, 2**32))
def test_each_round_has_each_row_once_per_quota(quotas, seed):
    """Every round of the schedule holds every live row exactly as often as its quota says."""
    schedule = Schedule(quotas, seed)

    rounds = [schedule.next_round() for _ in range(4)]

    assert [Counter(order) for order in rounds] == [Counter(quotas)] * 4


@given(QUOTAS, st.integers(0, 2**32), st.integers(0, 5))
def test_the_same_seed_gives_the_same_order(quotas, seed, rounds):
    """Two schedules of one seed agree, and a block is its rounds one after the other."""
    one, two = Schedule(quotas, seed), Schedule(quotas, seed)

    block = one.block(rounds)

    assert block == [row for _ in range(rounds) for row in two.next_round()]
    assert len(block) == rounds * one.size


@given(QUOTAS, st.integers(0, 2**32))
def test_a_retired_row_is_gone_and_the_others_stay(quotas, seed):
    """After a row's quota is set to 0 the rounds hold exactly the others."""
    schedule = Schedule(quotas, seed)
    gone = next(iter(quotas))
    schedule.next_round()

    schedule.set(gone, 0)

    assert Counter(schedule.next_round()) == Counter({r: q for r, q in quotas.items() if r != gone})


@pytest.mark.parametrize("rows", [3, 7])
def test_every_order_comes_equally_often(rows):
    """Each row takes each position of a round about equally often, by either way of shuffling."""
    schedule = Schedule(dict.fromkeys(range(rows), 1), seed=1)
    n = 700 * rows

    seen = Counter((pos, row) for _ in range(n) for pos, row in enumerate(schedule.next_round()))

    expected = n / rows
    assert len(seen) == rows * rows
    assert all(abs(count - expected) < 5 * expected**0.5 for count in seen.values())


def test_another_seed_gives_another_order():
    """The seed decides the order."""
    rows = dict.fromkeys(range(8), 1)

    assert Schedule(rows, 1).block(5) != Schedule(rows, 2).block(5)


def test_a_negative_quota_is_refused():
    """A quota below zero is a mistake of the caller, not a retirement."""
    with pytest.raises(ValueError, match="at least 0"):
        Schedule({"a": -1})


@given(BUDGETS, st.integers(0, 2**32))
def test_budgets_are_met_exactly(budgets, seed):
    """Spreading gives each row its budget to the sample."""
    total = Counter(row for order in spread(budgets, seed) for row in order)

    assert total == Counter({row: n for row, n in budgets.items() if n})


@given(BUDGETS, st.integers(0, 2**32))
def test_every_row_spans_the_whole_run(budgets, seed):
    """Each row with a budget takes part in every round, so that none is alone at the end."""
    live = {row for row, n in budgets.items() if n}

    assert all(set(order) == live for order in spread(budgets, seed))


def test_a_fast_row_keeps_its_pace_over_the_run():
    """4,996 samples beside 50 come as 99 or 100 in each of 50 rounds."""
    counts = [order.count("fast") for order in spread({"fast": 4996, "slow": 50})]

    assert (len(counts), min(counts), max(counts)) == (50, 99, 100)

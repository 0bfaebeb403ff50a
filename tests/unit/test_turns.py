"""The token that two workers hand each other."""

from collections import Counter

from usv_tui.engine.turns import BLOCK_PAIRS, Line, Opening, Token, Turns, is_turn_of, lines
from usv_tui.model import DuetPart


def test_the_order_is_balanced_and_random():
    """In every four pairs each version is first twice, and seeds differ in how."""
    for seed in range(20):
        firsts = [is_turn_of(0, seed, 2 * pair) for pair in range(40)]
        for i in range(0, 40, BLOCK_PAIRS):
            assert Counter(firsts[i : i + BLOCK_PAIRS]) == {True: 2, False: 2}
    assert len({tuple(is_turn_of(0, seed, 2 * p) for p in range(8)) for seed in range(20)}) > 5


def test_every_turn_is_of_exactly_one_version_and_each_pair_has_both():
    """Both workers draw the same order by themselves."""
    for number in range(64):
        assert is_turn_of(0, 7, number) != is_turn_of(1, 7, number)
    for pair in range(32):
        assert is_turn_of(0, 7, 2 * pair) != is_turn_of(0, 7, 2 * pair + 1)


def test_a_worker_whose_partner_is_gone_is_told_and_waits_for_nothing():
    """A closed pipe is the end of taking, and giving to nobody is no error."""
    (take_0, give_0), (take_1, give_1) = lines()
    one, other = Line(take_0, give_0), Line(take_1, give_1)
    assert one.take(0).kind == "prepare"
    other.close()
    assert one.take(0) is None
    assert one.is_cut
    one.give(Token("go"))
    one.close()


def test_a_token_of_many_rows_arrives_whole():
    """Calls a window of hundreds of rows go along."""
    (take_0, give_0), (take_1, give_1) = lines()
    one, other = Line(take_0, give_0), Line(take_1, give_1)
    calls = {f"a row of a long name, number {i}": [i, 4] for i in range(400)}
    one.give(Token("prepare", calls=calls))
    assert other.take(1).calls == calls
    for line in (one, other):
        line.close()


def test_a_launch_ends_only_when_both_orders_were_as_frequent():
    """It is over after whole blocks of pairs, and not before its time and its fewest pairs."""
    (take_0, give_0), (take_1, give_1) = lines()
    now = [0]
    part = DuetPart(side=1, seed=3, launch_s=1e-6, least_pairs=6)
    turns = Turns(part, Line(take_1, give_1), lambda: now[0])
    other = Line(take_0, give_0)
    turns._base, turns._rounds = 100, 5
    turns._go_on(0)
    for number in range(16):
        now[0] += 1000
        if is_turn_of(1, 3, number):
            assert turns.left == 5
            assert turns.first_round == 100 + number // 2 * 5
            turns.spend(5)
            turns.done()
        else:
            turns._number = number
            turns.done()
        assert turns.is_over == (number == 15)
    kinds = []
    while token := other.take(0):
        kinds.append(token.kind)
    assert kinds[-1] == "end"
    for line in (other, turns):
        line.close()


def _opened(offsets):
    opening = Opening()
    for turn in range(12):
        for place in range(12):
            wobble = 1 + 0.001 * ((turn * 7 + place * 3) % 5 - 2)
            opening.add(0, 1e5 * (1 + offsets.get(place, 0.0)) * wobble)
        opening.close()
    return opening


def test_the_first_rounds_of_a_turn_are_flagged_only_where_they_differ():
    """A device that idled is slower at first; a turn that opens like the rest loses no sample."""
    assert _opened({}).rounds == 0
    assert _opened({0: 0.05, 1: 0.02}).rounds == 2
    assert _opened({0: -0.03}).rounds == 1

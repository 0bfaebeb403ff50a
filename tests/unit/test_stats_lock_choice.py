"""Which clock to try after one that was held, and what a lock is said to bring."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.fakes.traces import S, follow
from tests.unit.test_stats_advice import BASE, COOL, FOLLOWS, HOT, MEMORY, inputs
from usv_tui.model import Advice, Verdict
from usv_tui.report.wording.advice import advice_line, all_facts, short_text
from usv_tui.sim.scenarios import SCENARIOS
from usv_tui.sim.trace import trace
from usv_tui.stats.advice import Advisor, advise
from usv_tui.stats.analysis import Analyst
from usv_tui.stats.lock_choice import (
    cycle_clock,
    lock_clock,
    low_to_hold,
    may_fall,
    next_step,
    swings,
    wanders,
)
from usv_tui.stats.reading_noise import hold_s, is_averaged

TABLE = tuple(range(210, 1981, 15))


@pytest.mark.parametrize(
    ("held", "failed", "free", "found"),
    [
        ([], [], None, None),
        ([1740], [], None, 1785),
        ([1740, 1785], [], None, 1830),
        ([1740, 1785, 1830], [1875], None, 1860),
        ([1740, 1845], [1860], None, None),
        ([1740], [1710], None, 1785),
        ([1980], [], None, None),
        ([1740], [], 1600.0, None),
    ],
)
def test_a_lock_that_holds_is_followed_by_a_step_up(
    held: list[int], failed: list[int], free: float | None, found: int | None
) -> None:
    """Two percent up, then halves of what is left; not past the top or far past the free one."""
    assert next_step(held, failed, TABLE, free) == found


def test_no_step_is_tried_where_the_table_is_unknown() -> None:
    """A clock that may not exist is not offered."""
    assert next_step([1740], [], ()) is None


def test_after_a_lock_that_is_held_a_higher_clock_is_offered() -> None:
    """A sawtooth's dither asks for a low clock; held, the advice names the next one to try."""
    free = trace("cap-sawtooth", "h100", 5, 26.0)
    analyst = Analyst()
    *_, found = follow(free, analyst, from_s=20)
    x = found.advice.lock_mhz
    assert x is not None
    locked = trace("cap-sawtooth", "h100", 6, 30.0, lock_mhz=x)
    *_, last = follow(locked, Analyst(), from_s=22, to_s=24, locked_mhz=x, is_held=True)

    assert last.advice.evidence["try_mhz"] > x
    text = f"held for 10 s: `l` then `a` tries {last.advice.evidence['try_mhz']} MHz"
    assert text in all_facts(last.advice, {})


def promise(**evidence: Any) -> Advice:
    """A lock's promise."""
    return Advice(
        verdict=Verdict.THROTTLED_POWER,
        lock_mhz=1635,
        std_now=0.0115,
        std_locked=0.0040,
        std_locked_low=0.0020,
        evidence={"clock_cost": 0.026, "gain_bench": 0, **evidence},
    )


def test_a_promise_is_a_range_and_says_of_which_row() -> None:
    """The row that gains most is named; rows that gain otherwise are listed."""
    rows = [
        {"bench": 0, "std": 0.0115, "std_locked": 0.0040, "std_locked_low": 0.0020},
        {"bench": 1, "std": 0.0021, "std_locked": 0.0020, "std_locked_low": 0.0019},
    ]
    facts = all_facts(promise(rows=rows), {0: "gemm", 1: "copy"})

    assert "gemm std 1.15 % → 0.20 to 0.40 %" in facts[0]
    assert any(fact == "other rows: copy 0.21 → about 0.20 %" for fact in facts)


def test_a_lock_that_costs_more_than_it_brings_is_called_so() -> None:
    """`not worth it` stands before the clock, with what it costs."""
    advice = promise(worth=False)

    assert short_text(advice).startswith("not worth it at 1635 MHz")
    assert "costs 2.6 %" in short_text(advice)
    assert "not worth it" in advice_line(advice)


def test_the_promise_of_a_lock_does_not_jump() -> None:
    """Within a minute no new range lies outside the last one by more than the range is wide."""
    run = trace("cap-sawtooth", "mi300", 8, 60.0)
    seen = [
        (a.advice.std_locked_low or 0.0, a.advice.std_locked or 0.0)
        for a in follow(run, from_s=12)
        if a.advice.lock_mhz is not None
    ]

    assert len(seen) > 30
    for (low, high), (new_low, new_high) in pairwise(seen):
        assert new_low > low - max(high - low, 0.1 * high)
        assert new_high < high + max(high - low, 0.1 * high)


@pytest.mark.parametrize("scenario", ["power-cap", "cap-hopping", "cap-sawtooth", "cap-pi"])
def test_a_promise_is_kept(scenario: str) -> None:
    """Locked where the advice says, every row's std lies in its range, give or take a fifth."""
    *_, found = follow(trace(scenario, "h100", 12, 30.0), from_s=25)
    x = found.advice.lock_mhz
    assert x is not None
    locked = trace(scenario, "h100", 112, 30.0, lock_mhz=x)

    for row in found.advice.evidence["rows"]:
        _, t_ns, seconds = locked.row(row["bench"])
        std = float(np.log(seconds[t_ns > 8 * S]).std())
        assert row["std_locked_low"] / 1.2 <= std <= 1.2 * row["std_locked"], row["bench"]


def sawtooth(every: int = 1) -> np.ndarray:
    """Climbs by 15 MHz from about 1600 to about 1720, then falls at once."""
    rng = np.random.default_rng(3)
    teeth = [np.arange(1605 - 15 * rng.integers(0, 2), 1725.0, 15.0) for _ in range(60)]
    return np.concatenate(teeth)[::every]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_lock_may_be_as_high_as_the_falls_of_a_limit_cycle_allow(every: int) -> None:
    """Above the cycle's bottom, safely below the clocks from which it falls."""
    mhz = sawtooth(every)
    low = float(np.quantile(mhz, 0.05))
    x = lock_clock(low, TABLE, cycle_mhz=cycle_clock(mhz, 15.0))

    assert x is not None
    assert 1605 < x < 0.985 * 1710
    assert x > (lock_clock(low, TABLE) or 0)


def test_a_cycle_between_two_clocks_is_locked_below_the_lower_one() -> None:
    """A clock between two levels was never held: nothing speaks for it."""
    mhz = np.tile(np.repeat([1590.0, 1650.0], 5), 40)

    assert cycle_clock(mhz, 15.0) == 1590


@pytest.mark.parametrize("kind", ["wave", "noise", "flutter", "smeared", "walk", "still"])
def test_what_is_no_limit_cycle_is_taken_for_none(kind: str) -> None:
    """A cap that moves, noise, a sensor that flutters or averages: the low percentile decides."""
    rng = np.random.default_rng(4)
    t = np.arange(400)
    mhz = {
        "wave": 1600 + 15 * np.round(4 * np.sin(t / 8)),
        "noise": 1600 + 15 * np.round(np.convolve(rng.normal(0, 2, 409), np.ones(10) / 3, "valid")),
        "flutter": np.resize(sawtooth(), 400) + 15 * rng.integers(-2, 3, 400),
        "smeared": np.round(np.convolve(sawtooth(), np.ones(6) / 6, "valid") / 15) * 15,
        "walk": 1600 + 15 * np.cumsum(rng.integers(-1, 2, 400)),
        "still": np.full(400, 1600.0),
    }[kind]

    assert cycle_clock(mhz.astype(np.float64), 15.0) is None


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("power-cap", "h100"),
        ("cap-sawtooth", "rtx"),
        ("cap-hopping", "mi300"),
        ("moving-cap", "h100"),
        ("chiplets", "mi300"),
        ("flutter", "rtx"),
    ],
)
def test_a_promise_never_jumps_by_more_than_its_range(name: str, card: str) -> None:
    """Of one row, and from one look to the next; the row that is named changes once at most."""
    plan = SCENARIOS[name]
    said = [a.advice for a in follow(trace(plan, card, 8, 32.0), from_s=8)]
    promised = [
        (one.evidence["gain_bench"], one.std_locked_low, one.std_locked)
        for one in said
        if one.lock_mhz is not None and one.std_locked_low is not None
    ]
    changes = 0
    for (bench, low, high), (next_bench, next_low, next_high) in pairwise(promised):
        if bench != next_bench:
            changes += 1
            continue
        width = max(high - low, next_high - next_low)
        assert abs(next_low - low) <= width
        assert abs(next_high - high) <= width

    assert changes <= 1
    assert len(promised) > 10 or name == "flutter"


def test_the_row_that_is_named_stays_while_it_gains_nearly_as_much() -> None:
    """Two rows that take turns by a hair do not take turns in the advice."""
    advisor = Advisor()
    said = []
    for k in range(1, 12):
        ups = [replace(HOT, bench=b, gain=0.75 + 0.01 * ((k + b) % 2)) for b in (0, 1)]
        said.append(advisor.update(replace(BASE, rows=tuple(ups)), k * S))
    named = {one.evidence["gain_bench"] for one in said if one.verdict is not Verdict.UNKNOWN}

    assert len(named) == 1
    more = (replace(HOT, gain=0.3), replace(HOT, bench=1, gain=0.9))
    assert advisor.update(replace(BASE, rows=more), 20 * S).evidence["gain_bench"] == 1


def test_a_lock_is_weighed_by_the_row_that_it_slows_most() -> None:
    """A row that gains a little does not pay for another that is slowed by percents."""
    little = msgspec.structs.replace(
        FOLLOWS,
        alpha=0.1,
        clock_spread=0.06,
        std_now=0.004,
        std_locked=0.0028,
        std_locked_low=0.0026,
    )
    calm = replace(HOT, effect=little, gain=0.3)
    slowed = replace(COOL, effect=msgspec.structs.replace(MEMORY, alpha=1.0))

    assert advise(inputs((calm, slowed), spread=0.06)).evidence["worth"] is False
    assert "worth" not in advise(inputs((calm,), spread=0.06)).evidence


def test_the_cost_of_a_lock_is_that_of_the_slowest_partition() -> None:
    """The mean of several clocks is above the one that sets the times."""
    slowest_mhz = np.full(100, 1660.0)
    cost = advise(inputs(under_load_mhz=slowest_mhz)).evidence["clock_cost"]

    assert cost == pytest.approx(1 - 1635 / 1660)


def test_a_clock_that_wanders_gets_a_wider_promise_than_one_that_is_held_up() -> None:
    """Where it falls on from its lowest clocks, a lock may leave part of what there is now."""
    rng = np.random.default_rng(6)
    steps = 15.0 * rng.choice([-2, -1, 1, 2], 800)
    walk = np.empty(800)
    at = 1650.0
    for k, step in enumerate(steps):
        at += step if abs(at + step - 1650) <= 90 else -step
        walk[k] = at
    cycle = sawtooth()
    found = {
        name: advise(inputs(under_load_mhz=mhz, low_mhz=float(np.quantile(mhz, 0.05))))
        for name, mhz in (("walk", walk), ("cycle", cycle))
    }

    assert wanders(walk, 15.0)
    assert not wanders(cycle, 15.0)
    assert not wanders(np.empty(0), 15.0)
    assert found["walk"].std_locked > 2 * found["cycle"].std_locked
    assert found["walk"].std_locked_low == found["cycle"].std_locked_low


def test_a_sensor_that_rounds_hides_half_of_what_it_rounds_to() -> None:
    """2300 MHz rounded to hundreds may be 2250; levels 60 MHz apart are levels."""
    rounded = np.repeat([2300.0, 2400.0, 2200.0], 60)
    levels = np.array([2175.0, 2235.0] * 100)

    assert low_to_hold(rounded, 15.0, TABLE) == pytest.approx(2150)
    assert low_to_hold(levels, 15.0, TABLE) == pytest.approx(2175)


def test_readings_between_the_clocks_of_the_table_are_averages() -> None:
    """Not where the clock stands still, or where the table has a few clocks only."""
    rng = np.random.default_rng(0)
    between = rng.integers(1500, 1600, 200).astype(float)
    on_table = rng.choice(np.array(TABLE, float)[60:80], 200)

    assert is_averaged(between, TABLE)
    assert not is_averaged(on_table, TABLE)
    assert not is_averaged(np.full(200, 1507.0), TABLE)
    assert not is_averaged(between, (500, 2100))


def test_how_long_a_sensor_repeats_a_value_is_seen() -> None:
    """Asked fifty times a second, and new twice a second."""
    t_ns = np.arange(1000) * 20_000_000
    values = np.random.default_rng(1).integers(100, 120, 40)
    slow = np.repeat(values, 25).astype(float) + np.repeat(np.arange(40) % 2, 25) * 30

    assert hold_s(t_ns, slow) == pytest.approx(0.5)
    assert hold_s(t_ns, np.random.default_rng(2).integers(100, 120, 1000).astype(float)) < 0.05
    assert hold_s(t_ns, np.full(1000, 100.0)) == 0.0


def test_a_clock_that_falls_on_from_its_lowest_may_not_hold() -> None:
    """A wanderer far below its usual low is told; a limit cycle is not."""
    rng = np.random.default_rng(3)
    walk = 1500 + 15.0 * np.cumsum(rng.integers(-1, 2, 2000))
    saw = np.tile(np.arange(1400.0, 1505.0, 15.0), 200)

    assert may_fall(walk, 15.0)
    assert not may_fall(saw, 15.0)


def test_a_clock_that_swings_comes_back() -> None:
    """A step to a new level is no swing."""
    assert swings(np.tile([1500.0, 1500.0, 1400.0, 1400.0], 10)) == 9
    assert swings(np.repeat([1500.0, 1400.0], 50)) == 0
    assert swings(np.full(50, 1500.0)) == 0

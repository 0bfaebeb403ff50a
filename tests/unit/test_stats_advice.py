"""The rules of the lock advice one by one, X, the check of a lock, and that advice stands still."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.fakes.traces import S
from usv_tui.model import ClockEffect, Verdict
from usv_tui.stats.advice import (
    AdviceInputs,
    Advisor,
    ClockEvidence,
    RowEvidence,
    advise,
)
from usv_tui.stats.drift import Trend
from usv_tui.stats.lock_choice import floor_clock, lock_clock

SUPPORTED = tuple(range(210, 1981, 15))
FLAT = Trend(0.0001, 0.2, 0.0005)
MOVES = Trend(0.02, 8.0, 0.0025)
FOLLOWS = ClockEffect(
    status="ok", alpha=0.95, alpha_se=0.01, clock_spread=0.045, std_now=0.012, std_locked=0.003
)
MEMORY = ClockEffect(
    status="ok", alpha=0.03, alpha_se=0.01, clock_spread=0.045, std_now=0.002, std_locked=0.002
)
STILL = ClockEffect(reason="clock stands still", clock_spread=0.0, std_now=0.002)
NOISE = ClockEffect(reason="the clock's effect is lost in noise", clock_spread=0.03, std_now=0.03)

HOT = RowEvidence(0, FLAT, FOLLOWS, 0.012, gain=0.75, clipped_std=0.012)
COOL = RowEvidence(1, FLAT, MEMORY, 0.002, gain=0.02, clipped_std=0.002)
CLOCK = ClockEvidence(
    readings=400,
    age_s=0.05,
    spread=0.045,
    median_mhz=1700.0,
    low_mhz=1665.0,
    step_mhz=15.0,
    trend=FLAT,
    power_share=0.0,
    thermal_share=0.0,
    temp_change_c=0.0,
    supported_mhz=SUPPORTED,
)
BASE = AdviceInputs(window_s=20.0, rounds=5000, rows=(HOT, COOL), clock=CLOCK)


def inputs(rows: tuple[RowEvidence, ...] | None = None, **clock: Any) -> AdviceInputs:
    """The base case with another clock or other rows."""
    return replace(BASE, rows=BASE.rows if rows is None else rows, clock=replace(CLOCK, **clock))


def test_a_clock_that_moves_a_row_is_to_be_locked() -> None:
    """LOCK with X below the 5th percentile, the std now and after it."""
    advice = advise(BASE)

    assert advice.verdict is Verdict.LOCK
    assert advice.lock_mhz == 1635
    assert (advice.std_now, advice.std_locked) == (0.012, 0.003)
    assert advice.evidence["lock_from"] == "mixture"
    assert advice.evidence["rows"][0]["alpha"] == 0.95
    assert not advice.power_coupled


@pytest.mark.parametrize(
    ("case", "verdict", "reason"),
    [
        (replace(BASE, window_s=7.9), Verdict.UNKNOWN, "short"),
        (replace(BASE, rounds=119), Verdict.UNKNOWN, "few-rounds"),
        (replace(BASE, rows=()), Verdict.UNKNOWN, "no-rows"),
        (inputs(readings=0), Verdict.UNKNOWN, "no-telemetry"),
        (inputs(readings=0, idle=7, apart=3), Verdict.UNKNOWN, "idle-readings"),
        (inputs(readings=0, apart=3), Verdict.UNKNOWN, "readings-apart"),
        (inputs(readings=39), Verdict.UNKNOWN, "few-readings"),
        (inputs(age_s=1.1), Verdict.UNKNOWN, "stale-telemetry"),
        (inputs(thermal_share=0.05), Verdict.THROTTLED_THERMAL, "thermal-limit"),
        (inputs(thermal_share=0.5, temp_change_c=5.0), Verdict.WAIT, "warming"),
        (
            inputs((replace(HOT, trend=MOVES),), thermal_share=0.5, temp_change_c=3.0),
            Verdict.WAIT,
            "drift",
        ),
        (inputs((replace(HOT, trend=MOVES), COOL)), Verdict.WAIT, "drift"),
        (inputs(trend=MOVES), Verdict.WAIT, "clock-drift"),
        (inputs(temp_change_c=4.0), Verdict.WAIT, "warming"),
        (inputs(temp_change_c=4.0, thermal_share=1.0), Verdict.WAIT, "warming"),
        (inputs((replace(HOT, trend=MOVES),), thermal_share=1.0), Verdict.WAIT, "drift"),
        (
            replace(inputs(readings=0, apart=3), window_s=1.0),
            Verdict.UNKNOWN,
            "short",
        ),
        (inputs((COOL,), temp_change_c=4.0), Verdict.WAIT, "warming"),
        (inputs(power_share=0.5), Verdict.THROTTLED_POWER, "power-limit"),
        (inputs((COOL,)), Verdict.NOT_CLOCK, "rows-do-not-follow"),
        (
            inputs((replace(COOL, effect=STILL),), spread=0.001),
            Verdict.STEADY,
            "clock-still",
        ),
        (
            inputs((replace(COOL, effect=STILL, rel_std=0.02),), spread=0.001),
            Verdict.NOT_CLOCK,
            "clock-still",
        ),
        (
            inputs((RowEvidence(0, FLAT, NOISE, 0.03, clipped_std=0.03),), spread=0.03),
            Verdict.NOT_CLOCK,
            "spread-too-small",
        ),
        (
            inputs(
                (RowEvidence(0, FLAT, NOISE, 0.004, clipped_std=0.004),),
                spread=0.0095,
                step_mhz=5.0,
            ),
            Verdict.STEADY,
            "quiet",
        ),
        (
            inputs((RowEvidence(0, FLAT, NOISE, 0.012, clipped_std=0.012),), spread=0.05),
            Verdict.UNKNOWN,
            "cannot-attribute",
        ),
        (
            inputs((RowEvidence(0, FLAT, NOISE, 0.03),), is_shared=True),
            Verdict.NOT_CLOCK,
            "shared",
        ),
    ],
)
def test_the_first_rule_that_matches_decides(
    case: AdviceInputs, verdict: Verdict, reason: str
) -> None:
    """Verdict and the code of the rule."""
    advice = advise(case)

    assert (advice.verdict, advice.reason) == (verdict, reason)


def test_no_clock_is_proposed_while_the_card_warms() -> None:
    """An X taken on a warming card would not hold."""
    assert advise(inputs(temp_change_c=5.0)).lock_mhz is None
    assert advise(inputs((COOL,))).lock_mhz is None


def test_what_is_missing_is_told_with_how_much() -> None:
    """A countdown can be made of it."""
    needs = advise(replace(inputs(readings=10), window_s=2.0, rounds=20)).evidence["needs"]

    assert needs == {"short": 6.0, "few-rounds": 100, "few-readings": 30}


def test_several_rows_under_a_power_cap_are_coupled() -> None:
    """One row alone is not."""
    assert advise(inputs(power_share=0.8)).power_coupled
    assert not advise(inputs((HOT,), power_share=0.8)).power_coupled


def test_causes_other_than_the_clock_are_listed() -> None:
    """Modes, stragglers and the timer stand beside the row they belong to."""
    row = replace(COOL, has_modes=True, severe_share=0.01, is_timer_limited=True)

    assert advise(inputs((row,))).evidence["rows"][0]["causes"] == [
        "two modes",
        "stragglers",
        "timer",
    ]


@pytest.mark.parametrize(
    ("low", "thermal", "solo", "x"),
    [
        (1665.0, False, {}, 1635),
        (1665.0, True, {}, 1605),
        (1665.0, False, {0: 1500.0, 1: 1980.0}, 1485),
        (None, False, {0: 1500.0}, 1485),
        (None, False, {}, None),
        (150.0, False, {}, None),
    ],
)
def test_x_is_the_highest_supported_clock_below_the_lowest_demand(
    low: float | None, thermal: bool, solo: dict[int, float], x: int | None
) -> None:
    """99 % (thermal: 97 %) of the 5th percentile, of the hottest row alone where known."""
    assert lock_clock(low, SUPPORTED, is_careful=thermal, solo_low_mhz=solo) == x


def test_without_a_list_of_clocks_x_is_in_whole_mhz() -> None:
    """AMD's soft maximum takes any."""
    assert floor_clock(1648.9, ()) == 1648
    assert floor_clock(0.5, ()) is None


def test_x_never_is_the_maximum_of_a_card_that_cannot_hold_it() -> None:
    """The device maximum is no lock."""
    assert (advise(inputs(power_share=1.0)).lock_mhz or 0) < 1700


def test_solo_clocks_of_all_rows_make_x_the_hottest_rows() -> None:
    """Then it is no longer the mixture's."""
    advice = advise(replace(BASE, solo_low_mhz={0: 1560.0, 1: 1980.0}))

    assert advice.evidence["lock_from"] == "solo"
    assert advice.lock_mhz == 1530
    assert advise(replace(BASE, rows=(HOT,))).evidence["lock_from"] == "single"


def test_a_new_verdict_must_win_three_of_four() -> None:
    """The first one too: at the third evaluation it stands, with the time since when."""
    advisor = Advisor()
    found = [advisor.update(BASE, k * S).verdict for k in range(1, 5)]

    assert found == [Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.LOCK, Verdict.LOCK]
    assert advisor.update(BASE, 9 * S).since_ns == 3 * S


def test_a_first_no_is_said_only_after_a_whole_window_of_it() -> None:
    """Votes of a window that was not full yet do not count for NOT THE CLOCK."""
    advisor = Advisor()
    no = inputs((replace(COOL, effect=STILL, rel_std=0.02),), spread=0.001)
    found = [
        advisor.update(replace(no, window_s=min(float(k), 20.0)), k * S).verdict
        for k in range(9, 24)
    ]

    assert found.index(Verdict.NOT_CLOCK) == 22 - 9
    assert set(found[: 22 - 9]) == {Verdict.UNKNOWN}


def test_a_single_other_evaluation_changes_nothing() -> None:
    """One look at a steady clock does not end a lock advice."""
    advisor = Advisor()
    for k in range(4):
        advisor.update(BASE, k * S)
    steady = inputs((replace(COOL, effect=STILL),), spread=0.0)

    assert advisor.update(steady, 5 * S).verdict is Verdict.LOCK
    assert advisor.update(BASE, 6 * S).verdict is Verdict.LOCK
    found = [advisor.update(steady, k * S).verdict for k in range(7, 11)]
    assert found[-1] is Verdict.STEADY


def test_a_borderline_clock_does_not_flap() -> None:
    """Gain and effect that hover around their thresholds: at most one change a minute."""
    rng = np.random.default_rng(1)
    advisor = Advisor()
    found = []
    for k in range(300):
        gain = float(rng.normal(0.25, 0.04))
        row = replace(HOT, gain=gain)
        found.append(advisor.update(inputs((row, COOL)), k * S).verdict)
    known = found[3:]
    flips = sum(a is not b for a, b in pairwise(known))
    fresh = [
        advise(inputs((replace(HOT, gain=float(g)), COOL))).verdict
        for g in rng.normal(0.25, 0.04, 300)
    ]
    stateless = sum(a is not b for a, b in pairwise(fresh))

    assert flips <= 5
    assert stateless > 50


def test_x_stands_still_within_two_steps() -> None:
    """A percentile that trembles moves no advice; one that falls does."""
    advisor = Advisor()
    for k in range(4):
        advisor.update(BASE, k * S)

    assert advisor.update(inputs(low_mhz=1690.0), 5 * S).lock_mhz == 1635
    assert advisor.update(inputs(low_mhz=1600.0), 6 * S).lock_mhz == 1575


def test_a_new_epoch_forgets_the_advice() -> None:
    """After a reset nothing is known."""
    advisor = Advisor()
    for k in range(4):
        advisor.update(BASE, k * S)
    advisor.reset()

    assert advisor.update(BASE, 9 * S).verdict is Verdict.UNKNOWN


def test_a_lock_that_is_not_held_is_in_the_evidence() -> None:
    """Locked at the maximum under a cap: throttled, with the share of time below the lock."""
    case = replace(inputs(power_share=1.0), locked_mhz=1980, below_lock_share=1.0)
    advice = advise(case)

    assert advice.verdict is Verdict.THROTTLED_POWER
    assert advice.evidence["below_lock_share"] == 1.0
    assert advice.lock_mhz == 1635


def test_more_readings_of_a_clock_that_is_not_told_are_not_asked_for() -> None:
    """Other sensors are read where the device keeps its clock to itself: waiting brings none."""
    needs = advise(inputs(readings=12, spread=None)).evidence["needs"]

    assert "no-clock" in needs
    assert "few-readings" not in needs

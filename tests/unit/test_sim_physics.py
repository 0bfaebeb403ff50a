"""The simulated card obeys its physics: power, heat, governor, reasons and counters."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from usv_tui.model import Reason
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.physics import Board, equilibrium, nearest_index
from usv_tui.sim.power_loops import _KINDS
from usv_tui.sim.profiles import CARDS, Card, find_card
from usv_tui.sim.scenarios import Scenario, find_scenario
from usv_tui.sim.situation import capped
from usv_tui.sim.trace import Trace, trace

GEMM = SimKernel(name="full gemm", t0_ns=2e6, alpha=0.95, activity=1.0)
THREE = ("h100", "mi300", "rtx")


def full_load(card: str | Card, seconds: float = 20.0, **changes: object) -> Trace:
    """One compute-bound kernel at full activity, by default on a hot card."""
    scenario = Scenario(name="x", summary="", look_for="", kernels=(GEMM,), **changes)
    return trace(scenario, card, 1, seconds)


def quiet(key: str, **changes: object) -> Card:
    """A card without power noise and leakage, so that formulas hold exactly."""
    return replace(find_card(key), power_noise=0.0, leak_w=0.0, **changes)


def run(board: Board, seconds: float, activity: float, busy: float = 1.0) -> list:
    """So many ticks of one load."""
    return [board.step(activity, busy, 0.0) for _ in range(round(seconds / board.dt_s))]


@pytest.mark.parametrize(("card", "mhz"), [("h100", 1680), ("mi300", 1540), ("rtx", 2655)])
def test_a_hot_card_under_full_load_runs_at_its_known_clock(card, mhz):
    """The steady clock of each card under a full GEMM is the one that its data imply."""
    clock = full_load(card).true_mhz

    assert abs(np.median(clock) / mhz - 1) < 0.015


@pytest.mark.parametrize("card", THREE)
@pytest.mark.parametrize("activity", [0.4, 1.0])
def test_equilibrium_is_where_the_simulation_ends(card, activity):
    """The closed form for a lasting load agrees with a minute of governor ticks from cold."""
    board = Board(find_card(card), 0)
    run(board, 5 * board.card.tau_sink_s, activity)
    rows = run(board, 5.0, activity)
    expected = equilibrium(board.card, activity)

    assert abs(np.mean([row.mhz for row in rows]) / expected.mhz - 1) < 0.02
    assert abs(rows[-1].temp_c - expected.temp_c) < 1.5


def test_the_heatsink_warms_with_its_time_constant():
    """After one time constant of constant power the sink has covered 63.2 % of the way."""
    card = quiet("h100")
    board = Board(card, 0)
    board.sink_c = card.ambient_c
    rows = run(board, card.tau_sink_s, 0.3)
    # The clock has settled after a few ticks, so the power is constant.
    final_c = card.ambient_c + rows[-1].power_w * card.r_sink
    share = (rows[-1].sink_c - card.ambient_c) / (final_c - card.ambient_c)

    assert share == pytest.approx(1 - math.exp(-1), abs=0.01)


def test_the_die_warms_with_its_own_faster_time_constant():
    """Above a heatsink that stays cold, the die reaches 63.2 % of P R after one time constant."""
    card = quiet("h100", tau_sink_s=1e9)
    board = Board(card, 0)
    run(board, 0.5, 0.3)
    board.temp_c = board.sink_c
    rows = run(board, card.tau_die_s, 0.3)

    above_c = rows[-1].temp_c - rows[-1].sink_c
    assert above_c == pytest.approx(rows[-1].power_w * card.r_die * (1 - math.exp(-1)), rel=0.01)


@pytest.mark.parametrize("card", THREE)
def test_the_governor_keeps_mean_power_just_under_the_cap(card):
    """Under a cap, mean power is 96 to 100 % of it, and the power bit is on."""
    result = trace("power-cap", card, 2, 30.0)
    power_w = result.true_power_w[len(result.true_power_w) // 4 :]

    assert 0.96 < power_w.mean() / result.card.cap_w < 1.0
    is_capped = (result.true_reasons & Reason.SW_POWER_CAP) > 0
    assert np.mean(is_capped[result.true_mhz < result.card.max_mhz]) > 0.99


@pytest.mark.parametrize("card", THREE)
def test_the_clock_moves_in_steps_of_the_boost_table(card):
    """Every clock that the governor chooses is an entry of the card's table."""
    result = trace("power-cap", card, 0, 5.0)

    assert set(result.true_mhz) <= set(map(float, result.card.supported_mhz))
    assert len(set(result.true_mhz)) > 3


@pytest.mark.parametrize("card", THREE)
def test_the_thermal_limit_holds_the_temperature(card):
    """A badly cooled card stays within a degree of its limit, with the thermal bit set."""
    result = full_load(card, 90.0, adapt=find_scenario("thermal-saturation").adapt, warm=False)

    assert result.true_temp_c.max() < result.card.t_sw_c + 1.5
    late = slice(len(result.true_mhz) // 2, None)
    assert result.true_temp_c[late].min() > result.card.t_sw_c - result.card.t_hyst_c - 1.5
    assert np.mean((result.true_reasons[late] & Reason.SW_THERMAL) > 0) > 0.9


def test_above_the_hardware_limit_the_clock_is_halved():
    """When the heat outruns the software limit, the hardware bit comes and the clock halves."""
    card = quiet("h100", ambient_c=95.0)
    board = Board(card, 0)
    board.temp_c = board.sink_c = 95.0
    rows = run(board, 1.0, 1.0)

    assert rows[-1].reasons & Reason.HW_THERMAL
    assert rows[-1].reasons & Reason.HW_SLOWDOWN
    assert rows[-1].mhz <= card.max_mhz / 2 + card.step_mhz
    assert rows[-1].hw_thermal_ns > 0.9e9


def test_boost_bins_take_one_step_for_every_five_degrees():
    """The consumer card loses a table step for each 5 degrees above 45, with no reason bit."""
    card = quiet("rtx")
    board = Board(card, 0)
    rows = run(board, 60.0, 0.8)
    last = rows[-1]

    lost = int((rows[-2].temp_c - card.boost_t0_c) / card.boost_dt_c)
    assert lost >= 2
    assert last.mhz == card.max_mhz - lost * card.step_mhz
    assert last.reasons == 0


def test_energy_is_the_integral_of_power():
    """The energy counter is the sum of power over time, tick by tick."""
    result = trace("cold-ramp", "mi300", 5, 10.0)
    joules = np.cumsum(result.true_power_w) * result.tick_ns * 1e-9
    board = Board(find_card("h100"), 0)
    rows = run(board, 3.0, 0.7)

    assert sum(r.power_w for r in rows) * board.dt_s == pytest.approx(rows[-1].energy_j)
    assert joules[-1] > 0


@pytest.mark.parametrize("card", THREE)
def test_an_idle_card_drops_its_clock_and_ramps_up_when_woken(card):
    """After a while without work the idle bit comes; work brings the clock back over some ticks."""
    board = Board(quiet(card), 0)
    run(board, 1.0, 0.5)
    idle = run(board, board.card.idle_after_s + 0.5, 0.0, busy=0.0)
    awake = run(board, 1.0, 0.5)

    assert idle[-1].mhz == board.card.idle_mhz
    assert idle[-1].reasons == Reason.IDLE
    clocks = [row.mhz for row in awake]
    assert clocks[0] == board.card.idle_mhz
    assert max(clocks) == clocks[-1] > 0.9 * board.card.max_mhz
    ramp = sum(a < b for a, b in itertools.pairwise(clocks))
    assert ramp * board.dt_s > 0.1


def test_a_short_gap_does_not_make_the_card_idle():
    """A pause shorter than the card's patience leaves the clock where it was."""
    board = Board(quiet("h100"), 0)
    run(board, 1.0, 0.5)
    rows = run(board, 0.8 * board.card.idle_after_s, 0.0, busy=0.0)

    assert rows[-1].mhz == board.card.max_mhz


def test_a_lock_that_can_be_held_is_held_exactly():
    """A clock that fits under cap and temperature limit stands still once it is locked."""
    result = trace("power-cap", "h100", 0, 10.0, lock_mhz=1500)
    late = result.true_mhz[200:]

    assert set(late) == {1500.0}
    assert np.all((result.true_reasons[200:] & Reason.SW_POWER_CAP) == 0)


def test_a_lock_at_the_maximum_does_nothing_under_a_power_cap():
    """Locked at the maximum the clock is below it all the time and spreads as without a lock."""
    free = trace("power-cap", "h100", 0, 20.0)
    locked = trace("power-cap", "h100", 0, 20.0, lock_mhz=1980)

    assert np.mean(locked.true_mhz < 1980) > 0.99
    assert np.std(locked.true_mhz) == pytest.approx(np.std(free.true_mhz), rel=0.1)


def test_a_lock_on_a_nvidia_like_card_holds_when_idle_and_on_an_amd_like_card_it_does_not():
    """The one vendor's lock fixes the clock, the other's only bounds it from above."""
    clocks = {}
    for floor in (True, False):
        board = Board(find_card("h100"), 0)
        board.lock_index, board.lock_is_floor = 80, floor
        clocks[floor] = run(board, 2.0, 0.0, busy=0.0)[-1].mhz

    assert clocks == {True: 210.0 + 80 * 15, False: 345.0}


def test_throttle_counters_count_the_ticks_under_each_reason():
    """The counters are exactly the time for which the bit was set."""
    for name, bit, column in (
        ("power-cap", Reason.SW_POWER_CAP, "power_capped_ns"),
        ("thermal-saturation", Reason.SW_THERMAL, "thermal_ns"),
    ):
        result = trace(name, "h100", 0, 5.0, poll_hz=50.0)
        ticks = np.cumsum((result.true_reasons & bit) > 0) * result.tick_ns
        shown = getattr(result, column)

        assert set(shown) <= set(ticks.astype(float)) | {0.0}
        assert shown[-1] > 4e9


def test_leakage_makes_a_hot_card_slower_than_a_cold_one_under_the_same_cap():
    """Under a power cap the clock falls as the card warms, although the load is the same."""
    result = full_load("mi300", 90.0, warm=False)
    clock = result.true_mhz
    per_s = round(1e9 / result.tick_ns)

    assert np.mean(clock[2 * per_s : 5 * per_s]) > 1.01 * np.mean(clock[-5 * per_s :])
    assert result.true_temp_c[-1] - result.true_temp_c[2 * per_s] > 15


def test_interleaving_couples_kernels_under_a_power_cap():
    """A hot kernel interleaved with a cool one runs faster than alone: they share one clock."""
    hot = SimKernel(name="hot", t0_ns=1e6, alpha=0.95, activity=1.0)
    cool = SimKernel(name="cool", t0_ns=1e6, alpha=0.05, activity=0.45)
    alone = trace("power-cap", "h100", 0, 15.0, kernels=[hot])
    both = trace("power-cap", "h100", 0, 15.0, kernels=[hot, cool])

    gain = 1 - np.median(both.row(0)[2]) / np.median(alone.row(0)[2])
    assert 0.05 < gain < 0.2


@pytest.mark.parametrize("card", sorted(CARDS))
def test_every_card_is_consistent(card):
    """Tables, limits and sensors of each card fit together."""
    data = CARDS[card]

    assert data.supported_mhz[0] == data.min_mhz
    assert data.supported_mhz[-1] == data.max_mhz
    assert {data.idle_mhz, data.base_mhz} <= set(data.supported_mhz)
    assert data.ambient_c < data.t_sw_c - data.t_hyst_c < data.t_sw_c < data.t_hw_c
    assert data.lag_ns >= data.governor_ns


@pytest.mark.parametrize("controller", list(_KINDS))
@pytest.mark.parametrize("card", ["h100", "mi300"])
def test_every_controller_keeps_the_mean_power_near_its_cap(card, controller):
    """Whatever its ways, a power loop neither exceeds the cap on average nor leaves much of it."""
    fitted = replace(capped(find_card(card)), controller=controller)
    board = Board(fitted, 3)
    board.warm(0.9)
    watts = [row.power_w for row in run(board, 12.0, 0.9)][-5 * len(board.table) :]

    assert 0.88 * fitted.cap_w < np.mean(watts) < 1.01 * fitted.cap_w


def test_a_fan_runs_from_one_temperature_down_to_a_lower_one():
    """Between the two it depends on where the card comes from."""
    card = replace(find_card("h100"), fan_on_c=60.0, fan_off_c=50.0, fan_gain=0.8, tau_sink_s=5.0)
    rising = [row.temp_c for row in run(Board(card, 1), 120.0, 0.75)]

    assert max(rising) > 60.0
    assert min(rising[rising.index(max(rising)) :]) < 50.5
    assert max(rising[-3000:]) - min(rising[-3000:]) > 5.0


def test_a_table_of_half_steps_shows_whole_mhz():
    """7.5 MHz apart, as drivers list them, and every entry is found again."""
    card = replace(find_card("h100"), step_mhz=7.5)
    table = card.supported_mhz

    assert table[:4] == [210, 217, 225, 232]
    assert table[-1] == card.max_mhz
    assert [nearest_index(card, mhz) for mhz in table] == list(range(len(table)))

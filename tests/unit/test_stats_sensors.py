"""The advice on clock sensors that lie, are late, slow or noisy, and on flags that stick."""

from dataclasses import replace

import numpy as np
import pytest

from tests.fakes.traces import S, follow, probe_of, telemetry_of
from usv_tui.model import Reason, Verdict
from usv_tui.report.wording.advice import all_facts, short_text
from usv_tui.sim.scenarios import SCENARIOS, Scenario
from usv_tui.sim.situation import capped
from usv_tui.sim.trace import trace
from usv_tui.stats.analysis import Analysis
from usv_tui.stats.inputs import TelemetryData, is_stray, under_load
from usv_tui.stats.witness import witnessed

CARDS = ("h100", "mi300", "rtx")


def capped_with(**changes: object) -> Scenario:
    """The power cap on a card with other sensors or another controller."""
    plan = SCENARIOS["power-cap"]
    return replace(plan, adapt=lambda card: replace(capped(card), **changes))


def told(plan: Scenario, card: str, seed: int = 9) -> Analysis:
    """The analysis after 25 seconds."""
    *_, last = follow(trace(plan, card, seed, 26.0), from_s=22, to_s=25)
    return last


def test_a_reading_far_off_its_neighbours_is_nonsense_and_a_fall_that_lasts_is_not() -> None:
    """Half of the clock once in a while is dropped, also as the latest reading; a step stays."""
    mhz = np.full(200, 1700.0) + 15 * np.random.default_rng(1).integers(-3, 4, 200)
    for at in (0, 50, 51, 130, 199):
        mhz[at] = mhz[at] / 2
    mhz[160:] *= 0.6

    assert np.flatnonzero(is_stray(mhz)).tolist() == [0, 50, 51, 130, 199]
    assert not is_stray(np.full(3, 1700.0)).any()
    assert not is_stray(np.full(50, np.nan)).any()


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("stray_mhz", [0.0, 58.0])
def test_nonsense_readings_change_neither_verdict_nor_exponent(card: str, stray_mhz: float) -> None:
    """One reading in a hundred at half or at the idle clock: still throttled, alpha still true."""
    plan = capped_with(stray_p=0.01, stray_mhz=stray_mhz)
    last = told(plan, card)

    assert last.advice.verdict is Verdict.THROTTLED_POWER
    assert last.rows[0].effect.alpha == pytest.approx(0.95, abs=0.08)
    assert last.advice.lock_mhz is not None
    assert last.advice.lock_mhz > 0.95 * (last.advice.evidence["clock_median_mhz"])


@pytest.mark.parametrize("card", CARDS)
def test_a_sensor_that_is_late_by_0_4_s_is_followed(card: str) -> None:
    """The lag is found, and with it the exponent."""
    last = told(capped_with(lag_ns=400_000_000), card)

    assert last.rows[0].effect.alpha == pytest.approx(0.95, abs=0.1)
    assert last.advice.verdict is Verdict.THROTTLED_POWER


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("controller", ["table", "sawtooth", "pi"])
def test_a_sensor_too_slow_for_the_dither_never_clears_the_clock(
    card: str, controller: str
) -> None:
    """A mean of one second, 0.4 s late: not known, with that reason, or right; never NOT CLOCK."""
    plan = capped_with(
        controller=controller,
        clock_window_ns=S,
        lag_ns=400_000_000,
        refresh_ns=100_000_000,
    )
    advice = told(plan, card).advice

    assert advice.verdict in (Verdict.UNKNOWN, Verdict.THROTTLED_POWER, Verdict.LOCK)
    if advice.verdict is Verdict.UNKNOWN:
        assert advice.reason in ("sensor-slow", "cannot-attribute", "confirming")
        assert any("clock" in fact for fact in all_facts(advice, {}))


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("controller", ["table", "pi"])
def test_noisy_readings_do_not_flatten_the_exponent(card: str, controller: str) -> None:
    """Readings off by two steps: what is called ok is within 0.15 of the truth."""
    last = told(capped_with(flutter_steps=2, controller=controller), card)
    effect = last.rows[0].effect

    assert effect.status == "refused" or effect.alpha == pytest.approx(0.95, abs=0.15)
    assert last.advice.verdict is not Verdict.NOT_CLOCK


def test_a_flag_alone_is_no_throttle() -> None:
    """A thermal bit that is always on at 40 degrees and top clock is called stuck."""
    run = trace("flag-stuck", "h100", 1, 20.0)
    *_, last = follow(run, from_s=16)

    assert last.advice.verdict is Verdict.STEADY
    assert last.advice.lock_mhz is None
    assert last.advice.evidence["stuck"] == ["thermal"]
    assert any("flag stuck" in fact for fact in all_facts(last.advice, {}))


def readings(**changes: object) -> TelemetryData:
    """Ten seconds at the top clock, cool, with the thermal bit on and no counter."""
    n = 200
    nan = np.full(n, np.nan)
    plain = TelemetryData(
        np.arange(n) * (S // 20),
        np.full(n, 1980.0),
        np.full(n, 41.0),
        np.full(n, int(Reason.SW_THERMAL)),
        nan,
        nan,
        supported_mhz=tuple(range(210, 1981, 15)),
        temp_limit_c=83.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # field names, checked by replace


def test_each_second_witness_makes_a_flag_a_throttle() -> None:
    """Temperature at its limit, a moving clock below the ceiling, or a counter that grows."""
    n = 200
    down = 1500.0 + 15 * np.random.default_rng(2).integers(-3, 4, n)

    assert witnessed(readings()).stuck == ("thermal",)
    assert witnessed(readings(temp_c=np.full(n, 82.0))).limits.thermal == 1.0
    assert witnessed(readings(sm_mhz=down)).limits.thermal == 1.0
    assert witnessed(readings(thermal_ns=np.arange(n) * (S / 20))).limits.thermal == 1.0


def test_a_thermal_flag_on_a_cool_card_at_its_power_cap_is_stuck() -> None:
    """The cap holds the clock down, not heat; near the thermal limit the flag is believed."""
    n = 200
    down = 1500.0 + 15 * np.random.default_rng(2).integers(-3, 4, n)
    capped_w = {"sm_mhz": down, "power_mw": np.full(n, 690e3), "cap_w": 700.0}

    assert witnessed(readings(**capped_w)).stuck == ("thermal",)
    assert witnessed(readings(**capped_w, temp_c=np.full(n, 82.0))).limits.thermal == 1.0


def test_a_lock_or_a_foreign_lock_is_no_witness() -> None:
    """A clock that stands still below the top on a cool card is locked, not hot."""
    still = np.full(200, 1500.0)

    assert witnessed(readings(sm_mhz=still)).stuck == ("thermal",)
    assert witnessed(readings(sm_mhz=still), 1500).limits.thermal == 0.0


def test_a_power_flag_wants_its_witness_too() -> None:
    """A power bit at top clock and a third of the cap is stuck; at the cap it is believed."""
    n = 200
    flag = np.full(n, int(Reason.SW_POWER_CAP))
    low = readings(reasons=flag, power_mw=np.full(n, 230e3), cap_w=700.0)
    high = readings(reasons=flag, power_mw=np.full(n, 690e3), cap_w=700.0)

    assert witnessed(low).stuck == ("power",)
    assert witnessed(high).limits.power == 1.0


def test_a_card_that_slows_behind_its_reported_clock_has_a_verdict_of_its_own() -> None:
    """The clock in the stream falls by a third and the reported one stands: said so, no lock."""
    run = trace("hidden-slow", "h100", 1, 34.0)
    said = {a.at_ns // S: a.advice for a in follow(run, probe=probe_of(run), from_s=8)}

    assert all(said[s].verdict is not Verdict.HIDDEN for s in range(8, 16))
    last = said[34]
    assert last.verdict is Verdict.HIDDEN
    assert last.lock_mhz is None
    assert last.evidence["hidden"]["slower"] == pytest.approx(0.33, abs=0.03)
    assert "reported: 1980 MHz" in short_text(last)


def test_both_clocks_falling_together_hide_nothing() -> None:
    """Under a cap the measured and the reported clock dither alike: no hidden state."""
    run = trace("power-cap", "h100", 3, 26.0)
    *_, last = follow(run, probe=probe_of(run), from_s=22)

    assert last.advice.verdict is Verdict.THROTTLED_POWER
    assert telemetry_of(run, probe=probe_of(run)).probe is not None


@pytest.mark.parametrize("scenario", ["power-cap", "sawtooth"])
def test_a_poller_that_comes_rarely_still_sees_the_power_limit(scenario: str) -> None:
    """At two readings a second a proven power limit is told, at a clock that was read."""
    plan = capped_with(controller="sawtooth" if scenario == "sawtooth" else "table")
    run = trace(plan, "rtx", 3, 40.0, poll_hz=2.0)
    *_, last = follow(run, from_s=30, to_s=38)
    advice = last.advice

    assert advice.verdict is Verdict.THROTTLED_POWER
    assert advice.lock_mhz is not None
    if advice.std_locked is None:
        assert advice.reason == "sensor-slow-power"
        assert any("what a lock would leave cannot be told" in f for f in all_facts(advice, {}))


def test_rare_readings_of_a_clock_that_rows_do_not_follow_clear_the_clock() -> None:
    """A capped card and rows bound by memory: no lock is advised, however rarely one looks."""
    plan = SCENARIOS["memory-bound"]
    run = trace(replace(plan, adapt=capped), "rtx", 3, 40.0, poll_hz=2.0)
    *_, last = follow(run, from_s=30, to_s=38)

    assert last.advice.lock_mhz is None


def test_a_card_that_hardly_warms_any_more_is_not_waited_for() -> None:
    """Three degrees in a window keep nobody from the answer that a power limit gives."""
    run = trace(replace(capped_with(), warm=False), "h100", 3, 55.0)
    *_, last = follow(run)

    assert last.advice.verdict is Verdict.THROTTLED_POWER


def climbing(gap_s: float, climb_s: float) -> tuple[TelemetryData, np.ndarray]:
    """Ten seconds of load, a gap without an idle bit, ten more that begin with a climb."""
    t_s = np.arange(0, 20 + gap_s, 0.05)
    again_s = 10 + gap_s
    mhz = np.full(t_s.size, 1650.0)
    mhz[(t_s > 10.1) & (t_s < again_s)] = 345.0
    climb = (t_s >= again_s) & (t_s < again_s + climb_s)
    mhz[climb] = 345 + (1650 - 345) * (t_s[climb] - again_s) / climb_s
    busy_s = np.concatenate([np.arange(0, 10, 0.01), np.arange(again_s, 20 + gap_s, 0.01)])
    nan = np.full(t_s.size, np.nan)
    t_ns = (t_s * S).astype(np.int64)
    told = TelemetryData(t_ns, mhz, nan, np.full(t_s.size, -1), nan, nan)
    return told, (busy_s * S).astype(np.int64)


@pytest.mark.parametrize("gap_s", [0.7, 2.0, 5.0])
@pytest.mark.parametrize("climb_s", [0.1, 0.8, 2.6])
def test_a_climb_after_an_idle_gap_is_no_reading_under_load(gap_s: float, climb_s: float) -> None:
    """Whatever made the gap: of the readings in it and of the climb after it none is admitted."""
    told_by, busy_ns = climbing(gap_s, climb_s)
    loaded = under_load(told_by, busy_ns)

    assert loaded.sm_mhz.min() >= 1640
    assert loaded.t_ns.size > 20 * 17 - 20


def test_a_climb_at_the_beginning_of_an_epoch_is_no_reading_under_load() -> None:
    """Where sampling is known to have begun, its first second does not count."""
    told_by, busy_ns = climbing(3.0, 2.0)
    began_ns = int(13.0 * S)
    late = told_by.cut(began_ns, 30 * S)
    busy_ns = busy_ns[busy_ns >= began_ns]

    assert under_load(late, busy_ns, began_ns=began_ns).sm_mhz.min() >= 1640
    assert under_load(late, busy_ns).sm_mhz.min() < 700


def test_a_clock_that_stays_lower_after_a_gap_is_believed_after_five_seconds() -> None:
    """The wait for the old clock ends."""
    told_by, busy_ns = climbing(3.0, 0.1)
    lower = replace(told_by, sm_mhz=np.where(told_by.t_ns < 13 * S, 1650.0, 1300.0))
    late = under_load(lower, busy_ns).cut(13 * S, 30 * S)

    assert late.t_ns.size == pytest.approx(100, abs=3)
    assert late.t_ns[0] == pytest.approx(18 * S, abs=S // 10)


def test_rows_that_pause_all_the_time_keep_their_readings() -> None:
    """Gaps that are the rule are no interruptions: what is near a sample counts."""
    told_by, _ = climbing(0.0, 0.01)
    busy_ns = np.concatenate([np.arange(k, k + 0.2, 0.01) for k in np.arange(0, 20, 1.5)])
    loaded = under_load(told_by, (busy_ns * S).astype(np.int64))

    assert loaded.t_ns.size > 0.7 * told_by.t_ns.size


@pytest.mark.parametrize("card", ["h100", "rtx"])
@pytest.mark.parametrize("seed", [3, 9])
def test_rows_that_do_not_follow_a_clock_under_a_proven_limit(card: str, seed: int) -> None:
    """The limit moves the clock, so that its spread is no flutter of the sensor: not the clock."""
    last = told(SCENARIOS["memory-bound"], card, seed)

    assert last.advice.verdict is Verdict.NOT_CLOCK
    assert last.advice.reason == "rows-do-not-follow"
    assert "flutters" not in last.advice.evidence

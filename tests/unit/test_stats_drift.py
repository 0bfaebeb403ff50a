"""Drift is seen, noise is not taken for it, and settled asks the thermometer."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.fakes import noise
from tests.fakes.traces import S, follow
from usv_tui.model import StateWord
from usv_tui.sim.trace import trace
from usv_tui.stats import drift
from usv_tui.stats.drift import DriftTracker, Look

RUNS = 200


def stack(make: noise.NoiseMaker, n: int, shape: np.ndarray | float = 1.0, tick: float = 0) -> list:
    """The trends of many runs of one noise times one shape."""
    rng = np.random.default_rng(11)
    rows = [drift.batch_locations(make(rng, n) * shape, tick) for _ in range(RUNS)]
    return drift.trends(np.array(rows))


@pytest.mark.parametrize(
    "name", ["iid", "AR .9", "tick 0.5 us on 10 us", "two modes 30 %", "heavy"]
)
def test_noise_is_not_called_drift(name: str) -> None:
    """At most 2 % of windows of 1000 samples fire, and at most 5 % reach a nominal 1 %."""
    found = stack(noise.SHAPES[name], 1000, tick=0.05 if name.startswith("tick") else 0)

    assert np.mean([drift.fires(t, None) for t in found]) <= 0.02
    assert np.mean([abs(t.z) > 2.58 for t in found]) <= 0.05


@pytest.mark.parametrize(
    "shape",
    [noise.line(2000, 0.02), noise.saturating(2000, 0.02), noise.step(2000, 0.02)],
    ids=["line", "saturating", "step"],
)
def test_two_percent_are_seen_whatever_their_shape(shape: np.ndarray) -> None:
    """At 1 % noise and 2000 samples, 90 % of the windows fire on 2 %."""
    assert np.mean([drift.fires(t, None) for t in stack(noise.SHAPES["iid"], 2000, shape)]) >= 0.9


@pytest.mark.parametrize("name", ["tick 0.5 us on 10 us", "two modes 50 %"])
def test_a_coarse_timer_or_two_modes_do_not_hide_a_drift(name: str) -> None:
    """The clipped mean moves where a median would stand on a lattice or jump."""
    tick = 0.05 if name.startswith("tick") else 0.0
    found = stack(noise.SHAPES[name], 2000, noise.line(2000, 0.02), tick)

    assert np.mean([drift.fires(t, None) for t in found]) >= 0.9


def test_slope_is_theil_sens() -> None:
    """The displayed slope is scipy's, scaled to seconds."""
    rng = np.random.default_rng(2)
    y = np.linspace(0, 0.02, drift.BATCHES) + 0.001 * rng.standard_normal(drift.BATCHES)
    slope = scipy.stats.theilslopes(y, np.arange(drift.BATCHES)).slope

    assert drift.slope_per_s(y, 20.0) == pytest.approx(slope * drift.BATCHES / 20.0)
    assert drift.slope_per_s(y, 0.0) is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 47, [math.nan] * 100, [0.0] * 100])
def test_too_few_usable_samples_have_no_trend(values: list[float]) -> None:
    """Below 48 usable values there is no answer."""
    assert drift.trend(np.array(values)) is None


def test_constant_samples_have_no_trend_and_no_nan() -> None:
    """Equal samples give z = 0 and a finite detection limit."""
    found = drift.trend(np.full(500, 1e-3))

    assert found is not None
    assert (found.change, found.z) == (0.0, 0.0)
    assert 0 <= found.detectable < 1e-6
    assert drift.trends(np.empty((0, drift.BATCHES))) == []


def look(second: float, x: np.ndarray, temp_change_c: float | None, window_s: float = 20.0) -> Look:
    """One evaluation of a window."""
    y = drift.batch_locations(x)
    found = None if y is None else drift.trends(y)[0]
    level = None if y is None else float(y[-8:].mean())
    return Look(int(second * S), window_s, found, level, temp_change_c)


def words(
    shape: np.ndarray, seconds: int, temp_c: float | None, sd: float = 0.003
) -> list[StateWord]:
    """A tracker's word each second, at 100 samples a second."""
    x = noise.iid(np.random.default_rng(4), 100 * seconds, sd) * shape[: 100 * seconds]
    tracker = DriftTracker()
    out = []
    for second in range(1, seconds + 1):
        window = x[max(0, second - 20) * 100 : second * 100]
        out.append(tracker.update(look(second, window, temp_c, min(second, 20))).word)
    return out


@pytest.mark.parametrize("at_s", [0.3, 1.0, 2.0])
def test_a_tight_spread_does_not_hide_an_exponential_approach(at_s: float) -> None:
    """Tau 2 s, noise 0.4 %: 11, 8 and 5 % are still to come, and the word is drifting."""
    rng = np.random.default_rng(int(10 * at_s))
    t = np.linspace(0, at_s, 300)
    x = (1 + 0.13 * np.exp(-t / 2)) * noise.iid(rng, 300, 0.004)
    tracker = DriftTracker()

    assert tracker.update(look(at_s, x, None, at_s)).word is StateWord.DRIFTING


def test_one_weak_evaluation_is_not_enough_but_two_are() -> None:
    """Evidence between 3.3 and 5 deviates must come twice in a row."""
    weak = drift.Trend(0.01, 3.5, 0.01 / 3.5)
    tracker = DriftTracker()
    first = tracker.update(Look(S, 20.0, weak, 0.0, 0.0)).word
    same_moment = tracker.update(Look(S + 1, 20.0, weak, 0.0, 0.0)).word
    second = tracker.update(Look(2 * S, 20.0, weak, 0.0, 0.0)).word

    assert first is not StateWord.DRIFTING
    assert same_moment is not StateWord.DRIFTING
    assert second is StateWord.DRIFTING


def test_a_weak_trend_counts_when_the_thermometer_moves_with_it() -> None:
    """2 deviates and 3 degrees are warming; without the degrees they are nothing."""
    weak = drift.Trend(0.008, 2.2, 0.008 / 2.2)

    assert drift.fires(weak, 3.0)
    assert not drift.fires(weak, 1.0)
    assert not drift.fires(weak, None)


def test_warming_is_drift_while_the_temperature_rises() -> None:
    """The same drift is called warming with a rising temperature."""
    strong = drift.Trend(0.05, 9.0, 0.05 / 9)

    assert DriftTracker().update(Look(S, 20.0, strong, 0.0, 4.0)).word is StateWord.WARMING
    assert DriftTracker().update(Look(S, 20.0, strong, 0.0, 0.0)).word is StateWord.DRIFTING


def test_flat_times_are_settled_only_while_the_temperature_holds() -> None:
    """Level: settled within 80 s; 2 degrees in the window: steady, never settled."""
    level, warming = words(np.ones(8000), 80, 0.0), words(np.ones(8000), 80, 2.0)

    assert level[13] is StateWord.STEADY
    assert level[-1] is StateWord.SETTLED
    assert set(warming) == {StateWord.STEADY}


def test_without_a_thermometer_settled_takes_a_minute() -> None:
    """The level must have held for 60 s when nobody knows the temperature."""
    found = words(np.ones(9000), 90, None)
    first = found.index(StateWord.SETTLED) + 1

    assert 55 <= first <= 70
    assert words(noise.line(9000, 0.02), 90, None)[-1] is not StateWord.SETTLED


def test_a_noisy_row_is_undecided_rather_than_steady() -> None:
    """A window that could not have shown 0.5 % does not call itself steady."""
    assert words(np.ones(1500), 15, 0.0, sd=0.05)[-1] is StateWord.UNDECIDED


def test_settled_is_lost_when_a_step_comes_and_found_again_after_it() -> None:
    """A step of 2 % at 80 s is drifting within 5 s, and settled again 80 s later."""
    found = words(noise.step(16000, 0.02, 0.5), 160, 0.0)

    assert found[78] is StateWord.SETTLED
    assert StateWord.DRIFTING in found[80:86]
    assert found[-1] is StateWord.SETTLED


def test_a_reset_or_an_empty_window_forgets_everything() -> None:
    """After either, the next word is the first word."""
    tracker = DriftTracker()
    strong = drift.Trend(0.05, 9.0, 0.05 / 9)
    flat = drift.Trend(0.0, 0.0, 1e-4)
    tracker.update(Look(S, 20.0, strong, 0.0, 0.0))
    empty = tracker.update(Look(2 * S, 0.0, None, None, None))

    assert empty.word is StateWord.NONE
    assert tracker.update(Look(3 * S, 20.0, flat, 0.0, 0.0)).word is StateWord.STEADY


def test_a_cold_card_is_not_settled_while_drift_is_to_come() -> None:
    """A cold H100-like card under full load settles after a minute with under 0.6 % to come."""
    run = trace("cold-ramp", "h100", 5, 300.0)
    at = next(a.at_ns for a in follow(run, to_s=290) if a.rows[0].is_settled)
    _, t_ns, seconds = run.row(0)
    now = np.median(seconds[(t_ns > at - 10 * S) & (t_ns <= at)])
    end = np.median(seconds[t_ns > t_ns[-1] - 10 * S])

    assert at > 60 * S
    assert abs(math.log(end / now)) < 0.006


@pytest.mark.parametrize("percent_a_minute", [2.0, -2.0, 1.0])
def test_a_drift_slower_than_the_window_is_drifting_and_never_settled(
    percent_a_minute: float,
) -> None:
    """2 % in a minute at 0.3 % noise, with level heat: seen within a minute, never settled."""
    found = words(noise.line(9000, 1.5 * percent_a_minute / 100), 90, 0.0)

    assert StateWord.SETTLED not in found
    assert StateWord.DRIFTING in found[:60]


def test_a_drift_of_minutes_is_not_settled_before_half_a_percent_is_left() -> None:
    """3.5 % with a time constant of 240 s: settled only once the next five minutes hold 0.5 %."""
    t = np.arange(60_000) / 100
    shape = 1.035 - 0.035 * np.exp(-t / 240)
    found = words(shape, 600, 0.0)
    first = found.index(StateWord.SETTLED) if StateWord.SETTLED in found else 600
    left = 0.035 * (math.exp(-first / 240) - math.exp(-(first + 300) / 240))

    assert StateWord.DRIFTING in found[20:90]
    assert left <= 0.005


def test_settled_says_within_what_and_for_how_long() -> None:
    """The range that has held and its time stand beside the word."""
    tracker = DriftTracker()
    flat = drift.Trend(0.0, 0.0, 1e-4)
    told = [tracker.update(Look(s * S, 20.0, flat, 0.001 * (s % 2), 0.0)) for s in range(20, 100)]

    assert told[-1].within is not None
    assert told[-1].within <= 0.0005
    assert told[-1].held_s == pytest.approx(80, abs=12)


def test_temperature_change_is_between_the_outer_thirds() -> None:
    """A rise of one degree a second over 9 s is 6 degrees; a third without readings is unknown."""
    t = np.arange(10) * S
    temp = np.arange(10.0)

    assert drift.temperature_change(t, temp, 0, 9 * S) == pytest.approx(6.0)
    assert drift.temperature_change(t, np.full(10, math.nan), 0, 9 * S) is None
    assert drift.temperature_change(t[:3], temp[:3], 0, 9 * S) is None


def warmed(change: float, tau_s: float, seconds: int) -> tuple[np.ndarray, np.ndarray]:
    """A run of 50 samples a second that approaches its level exponentially."""
    t = np.arange(50 * seconds) / 50
    x = (1 + change * np.exp(-t / tau_s)) * noise.iid(np.random.default_rng(8), t.size, 0.005)
    return (t * S).astype(np.int64), x

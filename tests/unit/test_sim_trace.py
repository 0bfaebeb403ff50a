"""Whole runs with their truth beside them: what every statistic is proven on."""

from dataclasses import fields, replace

import numpy as np
import pytest

from usv_tui.model import Flag, Reason, Verdict
from usv_tui.sim.kernels import KernelNoise, SimKernel
from usv_tui.sim.profiles import CARDS
from usv_tui.sim.scenarios import SCENARIOS, find_scenario
from usv_tui.sim.trace import Trace, trace


def arrays(result: Trace) -> dict[str, bytes]:
    """Every array of a trace, as bytes."""
    values = {f.name: getattr(result, f.name) for f in fields(result)}
    return {name: v.tobytes() for name, v in values.items() if isinstance(v, np.ndarray)}


def per_round(result: Trace, bench: int) -> dict[int, float]:
    """Seconds of one kernel by round."""
    rounds, _, seconds = result.row(bench)
    return dict(zip(rounds.tolist(), seconds.tolist(), strict=True))


@pytest.mark.parametrize("card", ["h100", "mi300", "rtx"])
def test_two_identical_kernels_under_droop_differ_when_sequential_and_not_when_interleaved(card):
    """With 15 % droop sequential blocks are over 5 % apart, interleaved rounds under 0.2 %."""
    sequential = trace("two-identical", card, 1, interleave=False)
    interleaved = trace("two-identical", card, 1)
    droop = 1 - np.percentile(interleaved.true_mhz, 5) / interleaved.true_mhz.max()
    blocks = np.median(sequential.row(1)[2]) / np.median(sequential.row(0)[2])
    a, b = per_round(interleaved, 0), per_round(interleaved, 1)
    paired = np.median([b[r] / a[r] for r in a])

    assert 0.12 < droop < 0.25
    assert abs(blocks - 1) > 0.05
    assert abs(paired - 1) < 0.002


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("card", ["h100", "mi300", "rtx"])
def test_alpha_of_a_kernel_is_recovered_from_clean_data(card, alpha):
    """Regressing log time on the true log clock under cap dither finds the kernel's alpha."""
    hot = SimKernel(name="hot", t0_ns=1e6, alpha=0.9, activity=1.0)
    mine = SimKernel(name="mine", t0_ns=3e6, alpha=alpha, activity=0.8, noise=0.001)
    result = trace("power-cap", card, 0, 40.0, kernels=[hot, mine])
    chosen = result.bench == 1
    slope, _ = np.polyfit(np.log(result.clock_mhz[chosen]), np.log(result.seconds[chosen]), 1)

    assert -slope == pytest.approx(result.local_alpha(1), abs=0.03)


def test_a_locked_sweep_gives_the_kernels_time_at_every_clock():
    """At each locked clock the median time is fixed part + cycles / f, plus the timer's floor."""
    kernel = SimKernel(name="k", t0_ns=1e6, alpha=0.6, activity=0.3)
    for mhz in (900, 1290, 1590, 1980):
        result = trace("steady", "h100", 0, 3.0, kernels=[kernel], lock_mhz=mhz)
        expected_s = kernel.seconds(result.card, mhz) + result.card.event_ns * 1e-9

        assert np.median(result.seconds[200:]) == pytest.approx(expected_s, rel=5e-4)
        assert set(result.clock_mhz[200:].round(6)) == {float(mhz)}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not():
    """A run is a function of scenario, card, seed and length, to the last bit."""
    first, again = (arrays(trace("power-neighbour", "mi300", 7, 3.0)) for _ in range(2))
    other = arrays(trace("power-neighbour", "mi300", 8, 3.0))

    assert first == again
    assert first["window_ns"] != other["window_ns"]


def test_a_longer_run_begins_like_a_shorter_one():
    """How long one looks does not change what happened before."""
    short, long = trace("cold-ramp", "h100", 3, 2.0), trace("cold-ramp", "h100", 3, 4.0)

    assert np.array_equal(short.true_mhz, long.true_mhz[: len(short.true_mhz)])
    assert np.array_equal(short.window_ns, long.window_ns[: len(short.window_ns)])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_runs_on_every_card(name):
    """Each scenario gives whole rounds, positive windows and finite truth on all cards."""
    for card in CARDS:
        result = trace(name, card, 0, 1.5)
        count = len(result.kernels)

        assert len(result.bench) % count == 0
        assert len(result.bench) >= 20 * count
        rounds = result.bench.reshape(-1, count)
        assert np.array_equal(np.sort(rounds, axis=1), np.tile(np.arange(count), (len(rounds), 1)))
        assert np.all(result.window_ns > 0)
        assert np.all(result.window_ns % result.card.tick_ns == 0)
        assert np.all(np.diff(result.t_ns) > 0)
        assert np.isfinite(result.true_power_w).all()


def test_rounds_are_shuffled():
    """The order within a round changes from round to round, and with the seed."""
    order = trace("steady", "h100", 0, 2.0).bench.reshape(-1, 3)
    other = trace("steady", "h100", 1, 2.0).bench.reshape(-1, 3)

    assert len({tuple(row) for row in order.tolist()}) == 6
    assert not np.array_equal(order[:50], other[:50])


def test_sequential_blocks_do_not_interleave():
    """Without interleaving each kernel is measured to its end before the next one begins."""
    result = trace("steady", "h100", 0, 3.0, interleave=False)

    assert np.all(np.diff(result.bench) >= 0)
    assert {len(result.row(b)[0]) for b in range(3)} == {len(result.bench) // 3}
    assert result.row(1)[0].tolist() == list(range(len(result.bench) // 3))


def test_readings_come_late_in_steps_and_rounded():
    """A sensor shows the clock of some 80 ms ago, changes every 20 ms, in whole MHz and degrees."""
    result = trace("power-cap", "h100", 0, 20.0, poll_hz=50.0)
    at_tick = result.read_ns // result.tick_ns
    lags = range(16)
    errors = [
        np.mean(np.abs(result.sm_mhz[20:] - result.true_mhz[at_tick[20:] - lag])) for lag in lags
    ]

    assert 8 <= int(np.argmin(errors)) <= 10
    assert np.all(result.sm_mhz % 1 == 0)
    assert np.all(result.temp_c % 1 == 0)


def test_power_readings_are_means_over_the_boards_window():
    """The dither of power is smaller in the readings than it truly is, and the mean is the same."""
    result = trace("power-cap", "h100", 0, 30.0)

    assert np.std(result.power_w[20:]) < 0.9 * np.std(result.true_power_w[200:])
    assert np.mean(result.power_w[20:]) == pytest.approx(np.mean(result.true_power_w), rel=0.01)


def test_sensors_that_are_lost_or_missing_are_nan_and_never_zero():
    """Lost and unsupported sensors leave gaps; without telemetry there are no readings at all."""
    lost = trace("sensor-loss", "h100", 0, 20.0)
    after = lost.read_ns > 12.1e9
    partial = trace("steady", "partial", 0, 2.0)

    assert np.isnan(lost.sm_mhz[after]).all()
    assert np.isfinite(lost.sm_mhz[~after][:100]).all()
    assert np.isnan(partial.reasons).all()
    assert np.isfinite(partial.sm_mhz).all()
    assert len(trace("no-telemetry", "h100", 0, 2.0).read_ns) == 0


def test_a_contention_neighbour_slows_all_rows_at_once_by_its_gain():
    """While the neighbour is there every row takes 5 % longer, at an unchanged clock."""
    result = trace("noisy-neighbour", "h100", 0, 30.0)
    for bench in range(3):
        seconds = result.row(bench)[2]
        low, high = np.percentile(seconds, [10, 90])

        assert high / low == pytest.approx(1.05, abs=0.005)
    assert set(result.true_mhz) == {1980.0}


def test_a_two_mode_kernel_has_its_share_of_slow_calls():
    """35 % of the calls take 6 % longer; with a dwell the share stays and the runs get longer."""
    base = find_scenario("two-modes").kernels[1]
    for dwell in (0.0, 40.0):
        factor = KernelNoise(replace(base, noise=1e-6, mode_dwell=dwell), 0).take(200_000).factor
        slow = factor > 1.03
        runs = 1 + np.count_nonzero(np.diff(slow))

        assert slow.mean() == pytest.approx(0.35, abs=0.03)
        assert len(slow) / runs == pytest.approx(dwell or 1 / (2 * 0.35 * 0.65), rel=0.1)


def test_correlated_noise_has_the_correlation_that_was_asked_for():
    """AR(1) noise keeps its standard deviation and has phi as its lag-one correlation."""
    kernel = SimKernel(name="k", t0_ns=1e6, noise=0.01, noise_phi=0.9)
    logs = np.log(KernelNoise(kernel, 0).take(100_000).factor)

    assert np.std(logs) == pytest.approx(0.01, rel=0.05)
    assert np.corrcoef(logs[1:], logs[:-1])[0, 1] == pytest.approx(0.9, abs=0.01)


def test_a_non_clock_warmup_decays_at_a_constant_clock():
    """The extra 3 % fade with their time constant while the clock stands still."""
    result = trace("non-clock-warmup", "h100", 0, 30.0)
    _, t_ns, seconds = result.row(0)
    extra = seconds / np.median(seconds[t_ns > 27e9]) - 1
    around_10s = np.median(extra[np.abs(t_ns - 10e9) < 2e8])

    assert set(result.true_mhz) == {1980.0}
    assert np.median(extra[:50]) == pytest.approx(0.03, abs=0.004)
    assert around_10s == pytest.approx(0.03 / np.e, abs=0.003)


def test_a_host_that_is_too_slow_starves_the_device():
    """When launching takes longer than computing, windows hold gaps and are flagged."""
    starved = trace("cpu-bound", "h100", 0, 5.0)
    fed = trace("steady", "h100", 0, 5.0)

    assert np.mean((starved.flags & Flag.STARVED) > 0) > 0.99
    assert np.mean((fed.flags & Flag.STARVED) > 0) < 0.01
    assert np.median(starved.seconds) > 3.9e-4


def test_inner_calls_average_the_noise_and_share_the_floor():
    """A window of 16 calls shows a quarter of the spread and a sixteenth of the floor per call."""
    kernel = SimKernel(name="k", t0_ns=1e5, alpha=0.0, activity=0.1, noise=0.01)
    one, many = (trace("steady", "h100", 0, 2.0, kernels=[kernel], inner=n) for n in (1, 16))

    assert np.std(many.seconds) == pytest.approx(np.std(one.seconds) / 4, rel=0.2)
    floor_s = one.card.event_ns * 1e-9
    assert np.median(one.seconds) - np.median(many.seconds) == pytest.approx(
        15 / 16 * floor_s, rel=0.15
    )


def true_verdict(result: Trace) -> Verdict:
    """The advice that follows from the truth of the last 20 seconds, by the rules of the design."""
    from_ns = result.t_ns[-1] - 20_000_000_000
    ticks = slice(max(0, from_ns // result.tick_ns), None)
    mhz, reasons = result.true_mhz[ticks], result.true_reasons[ticks]
    temps = result.true_temp_c[ticks]
    thermal = np.mean((reasons & (Reason.SW_THERMAL | Reason.HW_THERMAL)) > 0)
    power = np.mean((reasons & Reason.SW_POWER_CAP) > 0)
    low, high = np.percentile(mhz, [2.5, 97.5])
    spread = high / low - 1
    change, rel_std = 0.0, 0.0
    for bench in range(len(result.kernels)):
        _, t_ns, seconds = result.row(bench)
        recent = seconds[t_ns >= from_ns]
        third = len(recent) // 3
        change = max(change, abs(np.median(recent[-third:]) / np.median(recent[:third]) - 1))
        rel_std = max(rel_std, np.std(recent) / np.median(recent))
    effect = max(k.local_alpha(result.card, float(np.median(mhz))) for k in result.kernels) * spread
    third = len(temps) // 3
    if thermal >= 0.05:
        return Verdict.THROTTLED_THERMAL
    if change >= 0.0055 or abs(np.mean(temps[-third:]) - np.mean(temps[:third])) >= 4:
        is_wander = len(result.scenario.neighbours) > 0 and result.scenario.neighbours[0].off_s > 0
        if not is_wander:
            return Verdict.WAIT
    if effect >= 0.005:
        return Verdict.THROTTLED_POWER if power >= 0.5 else Verdict.LOCK
    return Verdict.STEADY if rel_std <= 0.01 and spread < 0.005 else Verdict.NOT_CLOCK


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.verdict != Verdict.UNKNOWN])
def test_the_verdict_that_a_scenario_claims_follows_from_its_truth(name):
    """On every card the true clock, temperature, reasons and times give the claimed verdict."""
    is_waiting = SCENARIOS[name].verdict is Verdict.WAIT
    for card in ("h100", "mi300", "rtx"):
        result = trace(name, card, 4, None if is_waiting else 22.0)

        assert true_verdict(result) == result.scenario.verdict, card

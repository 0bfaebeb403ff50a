"""What the clock does to a row is found on simulated cards, and refused where nobody can tell."""

import math

import numpy as np
import pytest

from tests.fakes import noise
from tests.fakes.traces import S, rows_of, telemetry_of
from usv_tui.model import ClockEffect
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.scenarios import find_scenario
from usv_tui.sim.trace import Trace, trace
from usv_tui.stats.clock_effect import (
    ClockTrace,
    EffectDetail,
    RowTrace,
    clock_effects,
    clock_spread,
    find_lag,
    spread_gate,
)

CARDS = ("h100", "mi300", "rtx")


def details(run: Trace, *, is_shared: bool = False, seconds: int = 20) -> list[EffectDetail]:
    """The effects over the last seconds of a run."""
    end = int(run.t_ns[-1])
    start = end - seconds * S
    cuts = [row.cut(start, end, 4096) for row in rows_of(run)]
    telemetry = telemetry_of(run).cut(start, end)
    clock = ClockTrace(telemetry.t_ns, telemetry.sm_mhz, telemetry.step_mhz)
    return clock_effects(
        [RowTrace(c.t_ns, np.log(c.seconds)) for c in cuts], clock, is_shared=is_shared
    )


@pytest.mark.parametrize("card", CARDS)
def test_alpha_is_found_under_a_power_cap(card: str) -> None:
    """Compute bound, mixed and memory bound: within 0.1 of the truth, with status ok."""
    run = trace("power-cap", card, 21, 30.0)

    for bench, detail in enumerate(details(run)):
        effect = detail.effect
        assert effect.status == "ok"
        assert effect.alpha == pytest.approx(run.local_alpha(bench), abs=0.1)
        assert effect.lag_ns is not None
        assert abs(effect.lag_ns - run.card.lag_ns) <= 60_000_000


@pytest.mark.parametrize("card", CARDS)
def test_the_std_after_a_lock_is_predicted(card: str) -> None:
    """Locking where the advice says leaves a std between 0.6 and 1.1 of the prediction."""
    run = trace("power-cap", card, 22, 30.0)
    effect = details(run)[0].effect
    low = float(np.quantile(run.sm_mhz[run.read_ns > 10 * S], 0.05))
    table = [mhz for mhz in run.card.supported_mhz if mhz <= 0.99 * low]
    locked = trace("power-cap", card, 122, 20.0, lock_mhz=table[-1])
    _, t_ns, seconds = locked.row(0)
    actual = float(np.log(seconds[t_ns > 5 * S]).std())

    assert effect.std_locked is not None
    assert effect.std_now is not None
    assert 0.6 * effect.std_locked < actual < 1.1 * effect.std_locked
    assert actual < 0.35 * effect.std_now
    assert effect.explained == pytest.approx(1 - (effect.std_locked / effect.std_now) ** 2)


@pytest.mark.parametrize("card", CARDS)
def test_a_clock_that_stands_still_explains_nothing(card: str) -> None:
    """Refused, with the reason, and with the std that there is."""
    for detail in details(trace("steady", card, 23, 30.0)):
        assert detail.effect.status == "refused"
        assert detail.effect.reason == "clock stands still"
        assert detail.effect.alpha is None
        assert detail.effect.std_now is not None


@pytest.mark.parametrize("card", CARDS)
def test_a_neighbour_that_takes_power_and_bandwidth_is_not_taken_for_the_clock(card: str) -> None:
    """Confounded or refused on every row but never plainly ok."""
    scenario = find_scenario("power-cap")
    run = trace(
        scenario.__class__(
            **{
                **{f: getattr(scenario, f) for f in scenario.__dataclass_fields__},
                "neighbours": (Neighbour(power=0.1, gain=0.06, on_s=2.0, off_s=3.0),),
            }
        ),
        card,
        24,
        30.0,
    )

    assert {d.effect.status for d in details(run)} <= {"confounded", "refused"}


def test_another_process_on_the_device_refuses_outright() -> None:
    """No regression can part it from the clock."""
    for detail in details(trace("power-cap", "h100", 25, 25.0), is_shared=True):
        assert detail.effect.status == "refused"
        assert "process" in detail.effect.reason


def synthetic(
    alpha: float, lag_s: float, *, n: int = 4000, seconds: int = 20, trend: bool = False
) -> tuple[RowTrace, ClockTrace]:
    """A row that follows a clock exactly, and the clock read 20 times a second, late."""
    rng = np.random.default_rng(26)
    fine = np.linspace(-1, seconds + 1, 100 * (seconds + 2))
    dither = noise.ar1_normal(rng, fine.size, 0.97) if not trend else np.linspace(1, -1, fine.size)
    log_f = math.log(1700) + 0.012 * dither
    t = np.linspace(0, seconds, n)
    log_t = -alpha * np.interp(t, fine, log_f) + 0.002 * rng.standard_normal(n)
    read = np.arange(0, seconds, 0.05)
    mhz = np.exp(np.interp(read - lag_s, fine, log_f))
    return RowTrace((t * S).astype(np.int64), log_t), ClockTrace(
        (read * S).astype(np.int64), mhz, 15.0
    )


@pytest.mark.parametrize("lag_s", [0.0, 0.08, 0.2])
def test_the_lag_of_the_readings_is_found(lag_s: float) -> None:
    """Within 40 ms; a lag that is known is passed through."""
    row, clock = synthetic(0.9, lag_s)

    assert find_lag([row], clock) == pytest.approx(lag_s, abs=0.04)
    assert find_lag([row], ClockTrace(clock.t_ns, clock.mhz, 15.0, lag_s=0.0)) == 0.0


def test_a_clock_taken_inside_the_stream_needs_no_search() -> None:
    """With a known lag of zero alpha comes out and the lag is reported as zero."""
    row, clock = synthetic(0.7, 0.0)
    effect = clock_effects([row], ClockTrace(clock.t_ns, clock.mhz, 15.0, lag_s=0.0))[0].effect

    assert effect.alpha == pytest.approx(0.7, abs=0.05)
    assert effect.lag_ns == 0


def test_a_mere_trend_is_said_to_be_one() -> None:
    """A monotone ramp is consistent with the clock, and marked as no more than that."""
    row, clock = synthetic(0.9, 0.08, trend=True)
    effect = clock_effects([row], clock)[0].effect

    assert effect.status == "ok-trend"
    assert effect.alpha == pytest.approx(0.9, abs=0.1)


def test_a_row_that_moves_against_the_clock_is_no_clock_effect() -> None:
    """Times that rise with the clock are refused or called confounded."""
    row, clock = synthetic(-0.9, 0.08)

    assert clock_effects([row], clock)[0].effect.status in {"refused", "confounded"}


def test_stragglers_stay_after_a_lock() -> None:
    """They are in the predicted std, and do not hide what the clock does to the rest."""
    row, clock = synthetic(0.9, 0.08)
    log_t = row.log_t.copy()
    log_t[::400] += 0.5
    plain, late = (
        clock_effects([RowTrace(row.t_ns, x), row], clock)[0] for x in (row.log_t, log_t)
    )

    assert late.effect.std_locked is not None
    assert plain.effect.std_locked is not None
    assert late.effect.std_locked > 5 * plain.effect.std_locked
    assert late.gain == pytest.approx(plain.gain, abs=0.05)


EMPTY = RowTrace(np.empty(0, np.int64), np.empty(0))


@pytest.mark.parametrize(
    "clock",
    [
        None,
        ClockTrace(np.empty(0, np.int64), np.empty(0)),
        ClockTrace(np.array([S]), np.array([1700.0])),
        ClockTrace(np.arange(400) * S // 20, np.full(400, math.nan)),
        ClockTrace(np.arange(400) * S // 20, np.zeros(400)),
        ClockTrace(np.arange(400) * S // 20, np.full(400, 1700.0)),
    ],
    ids=["none", "empty", "one", "nan", "zero", "constant"],
)
def test_poor_readings_are_refused_with_a_reason(clock: ClockTrace | None) -> None:
    """No exception, no NaN: refused and why."""
    row, _ = synthetic(0.9, 0.08)

    for detail in clock_effects([row, EMPTY, RowTrace(row.t_ns[:1], row.log_t[:1])], clock):
        assert detail.effect.status == "refused"
        assert detail.effect.reason
        assert is_finite(detail.effect)


def is_finite(effect: ClockEffect) -> bool:
    """Every number that is there is one."""
    values = (effect.alpha, effect.alpha_se, effect.clock_spread, effect.std_now, effect.std_locked)
    return all(v is None or math.isfinite(v) for v in values)


def test_constant_or_few_samples_are_refused_beside_good_rows() -> None:
    """Each row gets its own answer; a constant one has alpha 0 or none."""
    row, clock = synthetic(0.9, 0.08)
    constant = RowTrace(row.t_ns, np.zeros(row.t_ns.size))
    few = RowTrace(row.t_ns[:20], row.log_t[:20])
    good, flat, short, none = clock_effects([row, constant, few, EMPTY], clock)

    assert good.effect.status == "ok"
    assert flat.effect.alpha in (None, pytest.approx(0.0, abs=0.02))
    assert short.effect.status == none.effect.status == "refused"
    assert clock_effects([], clock) == []


def test_the_spread_of_the_clock_is_its_inner_95_percent() -> None:
    """Relative; None without a reading."""
    clock = ClockTrace(np.arange(1001) * S, np.linspace(1000, 1100, 1001))

    assert clock_spread(clock) == pytest.approx(math.log(1097.5 / 1002.5), abs=1e-3)
    assert clock_spread(ClockTrace(np.empty(0, np.int64), np.empty(0))) is None


def test_a_lag_that_cannot_be_found_is_the_usual_one() -> None:
    """Few readings, few samples, rows that hardly meet, or rows with a hole: 0.1 s."""
    row, clock = synthetic(0.9, 0.2)
    few = ClockTrace(clock.t_ns[:20], clock.mhz[:20])
    later = RowTrace(row.t_ns + 19 * S, row.log_t)
    ends = np.r_[0:40, 3960:4000]
    hole = RowTrace(row.t_ns[ends], row.log_t[ends])

    assert find_lag([row], few) == 0.1
    assert find_lag([EMPTY], clock) == 0.1
    assert find_lag([row, later], clock) == 0.1
    assert find_lag([hole], clock) == 0.1
    middle = RowTrace(row.t_ns[1000:3000], row.log_t[1000:3000])
    assert find_lag([middle, hole], clock) == pytest.approx(0.2, abs=0.04)
    assert ClockTrace(clock.t_ns[:1], clock.mhz[:1]).period_s == math.inf


def test_readings_that_end_before_the_samples_begin_are_refused() -> None:
    """No time in common, no answer and no exception."""
    row, clock = synthetic(0.9, 0.1)
    early = ClockTrace(clock.t_ns - 100 * S, clock.mhz, 15.0)

    assert clock_effects([row], early)[0].effect.status == "refused"
    assert spread_gate(ClockTrace(np.empty(0, np.int64), np.empty(0))) == 0.005

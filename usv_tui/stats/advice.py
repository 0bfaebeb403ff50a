"""Should the clocks be locked, at what, and what would it buy?

Seven rules, the first that matches decides, each with its evidence. An `Advisor` keeps the answer
still: a new verdict must win three of four evaluations, and the old one is asked again with
softer thresholds before it may lose.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from usv_tui.model import Advice, ClockEffect, Verdict
from usv_tui.stats.basics import FloatArray
from usv_tui.stats.clock_effect import MIN_SPREAD, MIN_SPREAD_STEPS
from usv_tui.stats.drift import Trend, fires
from usv_tui.stats.inputs import TelemetryData, limits

MIN_WINDOW_S = 8.0
MIN_ROUNDS = 120
LONG_WINDOW_S = 240.0
MIN_ROUNDS_LONG = 48
"""Rows of seconds each: after four minutes these have to do."""
MIN_READINGS = 40
MAX_AGE_S = 1.0

THERMAL_SHARE = 0.05
POWER_SHARE = 0.5
MIN_EFFECT = 0.005
"""alpha x clock spread: what the clock does to a row's time."""
MIN_GAIN = 0.25
"""Share of its std that a lock must take from a row to be worth while."""
WARM_C = 3.0
WARMING_C = 4.0
STEADY_STD = 0.01
QUIET_STD = 0.005
QUIET_SPREAD = 0.01

X_QUANTILE = 0.05
X_MARGIN = 0.99
X_MARGIN_THERMAL = 0.97
X_HOLD_STEPS = 2
HELD_SHARE = 0.01
"""A lock is held when at most this share of the readings is below it."""
VERIFY_S = 10.0

SLACK = 0.6
"""Factor on the thresholds under which an old verdict may stay."""
VOTES = 4
WINS = 3
_STICKY = (Verdict.WAIT, Verdict.LOCK, Verdict.THROTTLED_POWER, Verdict.THROTTLED_THERMAL)


@dataclass(frozen=True, slots=True)
class RowEvidence:
    """What the advice knows of one active row."""

    bench: int
    trend: Trend | None
    effect: ClockEffect
    rel_std: float | None
    """std / median over the window."""
    gain: float = 0.0
    """Share of the std, stragglers apart, that a lock would take away."""
    clipped_std: float | None = None
    """Relative std without stragglers."""
    has_modes: bool = False
    severe_share: float = 0.0
    is_timer_limited: bool = False


@dataclass(frozen=True, slots=True)
class ClockEvidence:
    """The clock under load over the window."""

    readings: int = 0
    idle: int = 0
    """Readings of the window that say `idle`: they tell nothing of the clock under load."""
    apart: int = 0
    """Readings of the window that lie far from any sample."""
    age_s: float = math.inf
    """Age of the latest reading."""
    spread: float | None = None
    """Relative, p97.5 - p2.5."""
    median_mhz: float | None = None
    low_mhz: float | None = None
    """5th percentile: of the slowest partition where there are several."""
    step_mhz: float = 0.0
    trend: Trend | None = None
    power_share: float | None = None
    thermal_share: float | None = None
    temp_change_c: float | None = None
    supported_mhz: tuple[int, ...] = ()
    is_shared: bool = False
    stuck: tuple[str, ...] = ()
    """Limits that a flag claims and nothing else bears out: power, thermal."""

    @property
    def gate(self) -> float:
        """The spread below which the clock counts as standing still."""
        if not self.median_mhz:
            return MIN_SPREAD
        return max(MIN_SPREAD, MIN_SPREAD_STEPS * self.step_mhz / self.median_mhz)


@dataclass(frozen=True, slots=True)
class AdviceInputs:
    """Everything one evaluation goes by."""

    window_s: float
    rounds: int
    rows: tuple[RowEvidence, ...]
    clock: ClockEvidence
    solo_low_mhz: Mapping[int, float] = field(default_factory=dict)
    """5th percentile of the clock while a row ran alone, by row, as far as tried."""
    locked_mhz: int | None = None
    """The lock of ours that is in force."""
    below_lock_share: float | None = None
    """Share of the readings more than half a step below that lock."""


class _Gain(NamedTuple):
    """What a lock would do for one row."""

    row: RowEvidence
    effect: float
    gain: float

    def is_over(self, slack: float) -> bool:
        return self.effect >= MIN_EFFECT * slack and self.gain >= MIN_GAIN * slack


def _gain(row: RowEvidence) -> _Gain:
    effect = row.effect
    if effect.alpha is None or effect.clock_spread is None:
        return _Gain(row, 0.0, 0.0)
    return _Gain(row, effect.alpha * effect.clock_spread, row.gain)


def advise(inputs: AdviceInputs, slack: float = 1.0) -> Advice:
    """One evaluation's advice; `slack` below 1 softens the thresholds (to keep an old verdict)."""
    gains = [_gain(row) for row in inputs.rows]
    matter = [g for g in gains if g.is_over(slack)]
    missing = _missing(inputs)
    if missing:
        return _advice(inputs, Verdict.UNKNOWN, next(iter(missing)), gains, needs=missing)
    clock = inputs.clock
    if (clock.thermal_share or 0.0) >= THERMAL_SHARE * slack:
        return _advice(inputs, Verdict.THROTTLED_THERMAL, "thermal-limit", gains)
    moving = _moving(inputs, slack, matters=bool(matter))
    if moving:
        return _advice(inputs, Verdict.WAIT, moving, gains)
    if matter:
        if (clock.power_share or 0.0) >= POWER_SHARE * slack:
            return _advice(inputs, Verdict.THROTTLED_POWER, "power-limit", gains)
        return _advice(inputs, Verdict.LOCK, "clock-moves", gains)
    return _without_gain(inputs, gains)


def _missing(inputs: AdviceInputs) -> dict[str, float]:
    """What is still lacking, by code, as (amount needed); empty when there is enough."""
    clock = inputs.clock
    missing: dict[str, float] = {}
    if not inputs.rows:
        missing["no-rows"] = 1
    if clock.readings == 0:
        missing |= _why_no_reading(clock)
    elif clock.age_s > MAX_AGE_S:
        missing["stale-telemetry"] = clock.age_s
    elif clock.spread is None:
        missing["no-clock"] = 1
    if inputs.window_s < MIN_WINDOW_S:
        missing["short"] = MIN_WINDOW_S - inputs.window_s
    enough = MIN_ROUNDS if inputs.window_s < LONG_WINDOW_S else MIN_ROUNDS_LONG
    if inputs.rounds < enough:
        missing["few-rounds"] = enough - inputs.rounds
    if 0 < clock.readings < MIN_READINGS:
        missing["few-readings"] = MIN_READINGS - clock.readings
    return missing


def _why_no_reading(clock: ClockEvidence) -> dict[str, float]:
    """No reading counts: all were taken idle, or beside the samples, or there is none."""
    if clock.idle:
        return {"idle-readings": clock.idle}
    return {"readings-apart": clock.apart} if clock.apart else {"no-telemetry": MIN_READINGS}


def _moving(inputs: AdviceInputs, slack: float, *, matters: bool) -> str:
    """Why it is too early to say: drift, warming, clock-drift; empty when all is level."""
    clock = inputs.clock
    change_c = clock.temp_change_c
    for row in inputs.rows:
        if row.trend is not None and fires(row.trend, change_c, slack):
            return "drift"
    if matters and clock.trend is not None and fires(clock.trend, None, slack):
        return "clock-drift"
    # A card that warms is on its way to a limit that its flat times do not show yet.
    if change_c is not None and abs(change_c) >= WARMING_C * slack:
        return "warming"
    return ""


def _without_gain(inputs: AdviceInputs, gains: list[_Gain]) -> Advice:
    """Rules 5 to 7: a lock gains nothing, or nobody can tell."""
    clock = inputs.clock
    spread = clock.spread or 0.0
    stds = [row.rel_std for row in inputs.rows if row.rel_std is not None]
    worst = max(stds, default=0.0)
    if spread < clock.gate:
        if worst <= STEADY_STD:
            return _advice(inputs, Verdict.STEADY, "clock-still", gains)
        return _advice(inputs, Verdict.NOT_CLOCK, "clock-still", gains)
    if all(row.effect.alpha is None for row in inputs.rows):
        widest = max((row.clipped_std or row.rel_std or 0.0 for row in inputs.rows), default=0.0)
        if clock.is_shared:
            return _advice(inputs, Verdict.NOT_CLOCK, "shared", gains)
        if spread < 2 * widest:
            return _advice(inputs, Verdict.NOT_CLOCK, "spread-too-small", gains)
        if worst <= QUIET_STD and spread <= QUIET_SPREAD:
            return _advice(inputs, Verdict.STEADY, "quiet", gains)
        return _advice(inputs, Verdict.UNKNOWN, "cannot-attribute", gains)
    return _advice(inputs, Verdict.NOT_CLOCK, "rows-do-not-follow", gains)


def lock_clock(
    low_mhz: float | None,
    supported_mhz: Sequence[int],
    *,
    is_thermal: bool = False,
    solo_low_mhz: Mapping[int, float] | None = None,
) -> int | None:
    """The clock to lock at: the highest at or below 99 % (97 % if thermal) of the 5th percentile.

    Solo values, where there are some, speak for the hottest row, which must hold the clock alone.
    None when the device supports nothing that low.
    """
    lows = list((solo_low_mhz or {}).values())
    if low_mhz is not None:
        lows.append(low_mhz)
    if not lows:
        return None
    target = min(lows) * (X_MARGIN_THERMAL if is_thermal else X_MARGIN)
    return floor_clock(target, supported_mhz)


def floor_clock(target_mhz: float, supported_mhz: Sequence[int]) -> int | None:
    """The highest supported clock at or below a target; whole MHz where the list is unknown."""
    if not supported_mhz:
        return math.floor(target_mhz) or None
    fitting = [mhz for mhz in supported_mhz if mhz <= target_mhz]
    return max(fitting) if fitting else None


def _advice(
    inputs: AdviceInputs,
    verdict: Verdict,
    reason: str,
    gains: list[_Gain],
    needs: dict[str, float] | None = None,
) -> Advice:
    clock = inputs.clock
    is_coupled = (clock.power_share or 0.0) >= POWER_SHARE and len(inputs.rows) > 1
    is_thermal = verdict is Verdict.THROTTLED_THERMAL
    x = None
    if is_thermal or verdict in (Verdict.LOCK, Verdict.THROTTLED_POWER):
        x = lock_clock(
            clock.low_mhz,
            clock.supported_mhz,
            is_thermal=is_thermal,
            solo_low_mhz=inputs.solo_low_mhz,
        )
    best = max(gains, key=lambda g: g.effect * g.gain, default=None)
    shown = best if best is not None and best.gain > 0 else None
    return Advice(
        verdict=verdict,
        lock_mhz=x,
        std_now=shown.row.effect.std_now if shown else _worst_std(inputs),
        std_locked=shown.row.effect.std_locked if shown else None,
        evidence=_evidence(inputs, gains, needs or {}, x),
        reason=reason,
        power_coupled=is_coupled,
    )


def _worst_std(inputs: AdviceInputs) -> float | None:
    stds = [row.rel_std for row in inputs.rows if row.rel_std is not None]
    return max(stds, default=None)


def _evidence(
    inputs: AdviceInputs, gains: list[_Gain], needs: dict[str, float], x: int | None
) -> dict[str, Any]:
    """The numbers behind an advice, plain enough to be saved."""
    clock = inputs.clock
    evidence: dict[str, Any] = {
        "window_s": round(inputs.window_s, 3),
        "rounds": inputs.rounds,
        "readings": clock.readings,
        "clock_spread": clock.spread,
        "clock_gate": clock.gate,
        "clock_median_mhz": clock.median_mhz,
        "clock_low_mhz": clock.low_mhz,
        "step_mhz": clock.step_mhz,
        "power_share": clock.power_share,
        "thermal_share": clock.thermal_share,
        "temp_change_c": clock.temp_change_c,
        "rows": [_row_evidence(gain) for gain in gains],
    }
    if needs:
        evidence["needs"] = needs
    if clock.is_shared:
        evidence["shared"] = True
    if clock.stuck:
        evidence["stuck"] = list(clock.stuck)
    if x is not None:
        evidence["lock_from"] = _basis(inputs)
    if x is not None and clock.median_mhz:
        evidence["clock_cost"] = 1 - x / clock.median_mhz
    if inputs.solo_low_mhz:
        evidence["solo_low_mhz"] = {str(k): v for k, v in inputs.solo_low_mhz.items()}
    if inputs.locked_mhz is not None:
        evidence["locked_mhz"] = inputs.locked_mhz
        evidence["below_lock_share"] = inputs.below_lock_share
    return evidence


def _basis(inputs: AdviceInputs) -> str:
    """Whose clock the lock is taken from: `solo`, `single` row, or the `mixture` of all rows."""
    benches = {row.bench for row in inputs.rows}
    if len(benches) <= 1:
        return "single"
    alone = inputs.solo_low_mhz
    is_lower = bool(alone) and min(alone.values()) < (inputs.clock.low_mhz or math.inf)
    return "solo" if is_lower or benches <= set(alone) else "mixture"


def _row_evidence(gain: _Gain) -> dict[str, Any]:
    row = gain.row
    causes = []
    if row.has_modes:
        causes.append("two modes")
    if row.severe_share >= 0.002:
        causes.append("stragglers")
    if row.is_timer_limited:
        causes.append("timer")
    return {
        "bench": row.bench,
        "std": row.rel_std,
        "std_locked": row.effect.std_locked,
        "alpha": row.effect.alpha,
        "alpha_se": row.effect.alpha_se,
        "status": row.effect.status,
        "gain": gain.gain,
        "change": None if row.trend is None else row.trend.change,
        "z": None if row.trend is None else row.trend.z,
        "causes": causes,
    }


class Advisor:
    """Advice that does not flap: one evaluation a second goes in, the standing advice comes out.

    While a first verdict is being confirmed it is UNKNOWN with the reason `confirming`.
    """

    def __init__(self) -> None:
        self._votes: deque[Verdict] = deque(maxlen=VOTES)
        self._current = Advice()

    def reset(self) -> None:
        """A new epoch: know nothing."""
        self._votes.clear()
        self._current = Advice()

    def update(self, inputs: AdviceInputs, now_ns: int) -> Advice:
        """Take one evaluation into account."""
        fresh = advise(inputs)
        vote = fresh
        current = self._current.verdict
        if fresh.verdict is not current and current in _STICKY:
            again = advise(inputs, SLACK)
            if again.verdict is current:
                vote = again
        self._votes.append(vote.verdict)
        if vote.verdict is current:
            self._current = self._renew(vote)
        elif Counter(self._votes)[vote.verdict] >= WINS:
            self._current = msgspec.structs.replace(vote, since_ns=now_ns)
        elif current is Verdict.UNKNOWN:
            self._current = msgspec.structs.replace(
                self._current, reason="confirming", evidence=vote.evidence
            )
        return self._current

    def _renew(self, advice: Advice) -> Advice:
        """The standing verdict with today's numbers; X moves only by more than two steps."""
        x, old = advice.lock_mhz, self._current.lock_mhz
        if x is not None and old is not None:
            step = float(advice.evidence["step_mhz"])
            if abs(x - old) <= X_HOLD_STEPS * step:
                x = old
        return msgspec.structs.replace(advice, lock_mhz=x, since_ns=self._current.since_ns)


class LockCheck(NamedTuple):
    """Whether a lock is held, from readings under load since it was set."""

    held: bool | None
    """None: too few readings to tell."""
    below_share: float | None
    """Share of the readings more than half a step below the lock."""
    proposed_mhz: int | None
    """A lower clock to try when it is not held."""
    reason: str
    """short, held, below-lock, thermal-limit."""


def check_lock(telemetry: TelemetryData, locked_mhz: int) -> LockCheck:
    """Is the lock held? 10 s of readings under load: 99 % of them at it, and no thermal time."""
    mhz = telemetry.sm_mhz[np.isfinite(telemetry.sm_mhz)]
    share = below_share(mhz, locked_mhz, telemetry.step_mhz)
    span_s = (telemetry.t_ns[-1] - telemetry.t_ns[0]) / 1e9 if telemetry.t_ns.size else 0.0
    if share is None or span_s < 0.9 * VERIFY_S:
        return LockCheck(None, share, None, "short")
    lower = floor_clock(X_MARGIN_THERMAL * locked_mhz, telemetry.supported_mhz)
    if (limits(telemetry).thermal or 0.0) > 0:
        return LockCheck(False, share, lower, "thermal-limit")
    if share > HELD_SHARE:
        return LockCheck(False, share, lower, "below-lock")
    return LockCheck(True, share, None, "held")


def below_share(mhz: FloatArray, locked_mhz: float, step_mhz: float) -> float | None:
    """Share of readings more than half a step (or 0.5 %) below a lock; None without any."""
    if mhz.size == 0:
        return None
    margin = step_mhz / 2 if step_mhz > 0 else 0.005 * locked_mhz
    return float((mhz < locked_mhz - margin).mean())

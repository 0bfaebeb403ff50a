"""Should the clocks be locked, at what, and what would it buy?

Seven rules, the first that matches decides, each with its evidence. An `Advisor` keeps the answer
still: a new verdict must win three of four evaluations, and the old one is asked again with
softer thresholds before it may lose.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from usv_tui.model import Advice, ClockEffect, Verdict
from usv_tui.stats.basics import FloatArray
from usv_tui.stats.clock_effect import MIN_SPREAD, MIN_SPREAD_STEPS, UNSEEN
from usv_tui.stats.drift import DELTA, Trend, fires
from usv_tui.stats.hidden import Hidden
from usv_tui.stats.lock_choice import (
    X_MARGIN,
    cycle_clock,
    lock_clock,
    low_to_hold,
    may_fall,
    swings,
    wanders,
)
from usv_tui.stats.reading_noise import is_averaged

MIN_WINDOW_S = 8.0
MIN_ROUNDS = 120
LONG_WINDOW_S = 240.0
MIN_ROUNDS_LONG = 48
"""Rows of seconds each: after four minutes these have to do."""
MIN_READINGS = 40
MAX_AGE_S = 1.0
FIRST_S = 3.0
"""So soon no word is lost on readings that do not count."""

THERMAL_SHARE = 0.05
POWER_SHARE = 0.5
MIN_EFFECT = 0.005
"""alpha x clock spread: what the clock does to a row's time."""
MIN_GAIN = 0.25
"""Share of its std that a lock must take from a row to be worth while."""
WARM_C = 3.0
WARMING_C = 4.0
SWING_C = 0.5
"""A card whose temperature changes by less is not on its way to another clock."""
FEWEST_SWINGS = 3
"""So often within a window a clock has to come back from its lower quarter to its upper one."""
SWING_REST = 0.3
"""Share of a row's change that may be left when its clock's is taken off."""
STEADY_STD = 0.01
QUIET_STD = 0.005
UNLIMITED_SHARE = 0.05
"""Under a power limit for less of the time, a clock is free."""
UNSEEN_STD = 0.001
"""Quick common motion of less is nothing to worry about."""
RARE_S = 0.3
"""Readings further apart show no quick motion of a clock …"""
TOGETHER = 0.03
"""… so that less of it, common to the rows, has to do as a sign of it."""
WORTH = 0.25
"""A lock has to take this share of the best row's std, and of what it costs in speed."""
FIRST_NO_S = 19.5
"""A first NOT THE CLOCK needs a whole window: it is what too little evidence looks like."""
SAME_ROW = 0.7
"""A row stays the one that is shown while it gains at least this share of what another would."""
HOLD_RANGE_NS = 60_000_000_000
"""A promise keeps everything that was promised within the last minute."""
QUIET_SPREAD = 0.01

X_HOLD_STEPS = 2

SLACK = 0.6
"""Factor on the thresholds under which an old verdict may stay …"""
WARMING_SLACK = 0.8
"""… and on that of the temperature, whose smooth course needs little to be still."""
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
    unseen: float = 0.0
    """Share of the std in quick common motion that the clock readings do not show."""


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
    period_s: float = 0.0
    """Usual distance of two readings."""
    trend: Trend | None = None
    power_share: float | None = None
    thermal_share: float | None = None
    temp_change_c: float | None = None
    supported_mhz: tuple[int, ...] = ()
    is_shared: bool = False
    is_down: bool = False
    """The clock is below the highest that it could be, now and then at least."""
    stuck: tuple[str, ...] = ()
    """Limits that a flag claims and nothing else bears out: power, thermal."""
    flutters: bool = False
    """The readings jump about at random and no row follows: their spread is the sensor's."""
    hidden: Hidden | None = None
    """The device is slower than its reported clock says."""
    under_load_mhz: FloatArray | None = field(default=None, compare=False)
    """The readings themselves, of the slowest partition: what a lock at X would not hold."""

    @property
    def cycle_mhz(self) -> float | None:
        """The highest clock seen safely below every fall of a limit cycle; None without one."""
        mhz = self.under_load_mhz
        return None if mhz is None else cycle_clock(mhz, self.step_mhz)

    @property
    def hold_mhz(self) -> float | None:
        """The low end of the clock, below which a lock has to stay."""
        mhz = self.under_load_mhz
        if mhz is None:
            return self.low_mhz
        return low_to_hold(mhz, self.step_mhz, self.supported_mhz)

    @property
    def is_averaged(self) -> bool:
        """The sensor averages, and so hides the lowest clocks."""
        mhz = self.under_load_mhz
        return mhz is not None and is_averaged(mhz, self.supported_mhz)

    @property
    def may_fall(self) -> bool:
        """It wanders so far down that a lock where it usually is lowest may not hold."""
        mhz = self.under_load_mhz
        return mhz is not None and mhz.size > 0 and may_fall(mhz, self.step_mhz)

    def cost_of(self, lock_mhz: int | None) -> float | None:
        """Share of the usual clock that a lock there takes; None where one of both is not known."""
        usual = self.usual_mhz
        return 1 - lock_mhz / usual if lock_mhz is not None and usual else None

    @property
    def usual_mhz(self) -> float | None:
        """The usual clock, of the slowest partition: it sets the times."""
        mhz = self.under_load_mhz
        return self.median_mhz if mhz is None or mhz.size == 0 else float(np.median(mhz))

    @property
    def gate(self) -> float:
        """The spread below which the clock counts as standing still."""
        if not self.median_mhz:
            return MIN_SPREAD
        return max(MIN_SPREAD, MIN_SPREAD_STEPS * self.step_mhz / self.median_mhz)

    @property
    def is_rare(self) -> bool:
        """The clock is read too rarely to show quick motion."""
        return self.period_s > RARE_S

    @property
    def is_still(self) -> bool:
        """The clock does not move, as far as its sensor can be believed."""
        return (self.spread or 0.0) < self.gate or self.flutters


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
    """Share of the readings below that lock and not at it."""
    try_mhz: int | None = None
    """A higher clock worth a try, since that lock has held."""
    shown_bench: int | None = None
    """The row whose promise was shown last."""


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
    if clock.hidden is not None:
        return _advice(inputs, Verdict.HIDDEN, "hidden-slow", gains)
    # Before any limit: one that the card still warms into lets its clock sink for minutes.
    moving = _moving(inputs, slack, matters=bool(matter))
    if moving:
        return _advice(inputs, Verdict.WAIT, moving, gains)
    if (clock.thermal_share or 0.0) >= THERMAL_SHARE * slack:
        return _advice(inputs, Verdict.THROTTLED_THERMAL, "thermal-limit", gains)
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
        missing |= _why_no_reading(inputs)
    elif clock.age_s > MAX_AGE_S:
        missing["stale-telemetry"] = clock.age_s
    elif clock.spread is None:
        missing["no-clock"] = 1
    if inputs.window_s < MIN_WINDOW_S:
        missing["short"] = MIN_WINDOW_S - inputs.window_s
    enough = MIN_ROUNDS if inputs.window_s < LONG_WINDOW_S else MIN_ROUNDS_LONG
    if inputs.rounds < enough:
        missing["few-rounds"] = enough - inputs.rounds
    if 0 < clock.readings < MIN_READINGS and "no-clock" not in missing:
        missing["few-readings"] = MIN_READINGS - clock.readings
    return missing


def _why_no_reading(inputs: AdviceInputs) -> dict[str, float]:
    """No reading counts: all were taken idle, or beside the samples, or there is none.

    While a clock climbs in the first second, that is nothing to speak of.
    """
    clock = inputs.clock
    if inputs.window_s < FIRST_S and (clock.idle or clock.apart):
        return {"short": MIN_WINDOW_S - inputs.window_s, "few-readings": MIN_READINGS}
    if clock.idle:
        return {"idle-readings": clock.idle}
    return {"readings-apart": clock.apart} if clock.apart else {"no-telemetry": MIN_READINGS}


def _moving(inputs: AdviceInputs, slack: float, *, matters: bool) -> str:
    """Why it is too early to say: drift, warming, clock-drift; empty when all is level."""
    clock = inputs.clock
    change_c = clock.temp_change_c
    is_swing = _swings(clock)
    for row in inputs.rows:
        if row.trend is None or not fires(row.trend, change_c, slack):
            continue
        if not (is_swing and _is_clocks(row, clock)):
            return "drift"
    if matters and not is_swing and clock.trend is not None and fires(clock.trend, None, slack):
        return "clock-drift"
    # A card that warms is on its way to a limit that its flat times do not show yet.
    if change_c is not None and abs(change_c) >= WARMING_C * max(slack, WARMING_SLACK):
        return "warming"
    return ""


def _swings(clock: ClockEvidence) -> bool:
    """A clock that goes up and down under its power limit, on a card that does not warm.

    Waiting does not end that, unlike a step or a fall to a new level.
    """
    change_c = clock.temp_change_c
    if not _is_capped(clock) or change_c is None or abs(change_c) >= SWING_C:
        return False
    return clock.under_load_mhz is not None and swings(clock.under_load_mhz) >= FEWEST_SWINGS


def _is_clocks(row: RowEvidence, clock: ClockEvidence) -> bool:
    """What the row's times have changed by is what its clock has."""
    alpha = row.effect.alpha
    if row.trend is None or clock.trend is None or alpha is None:
        return False
    rest = row.trend.change + alpha * clock.trend.change
    return abs(rest) < max(SWING_REST * abs(row.trend.change), DELTA)


def _without_gain(inputs: AdviceInputs, gains: list[_Gain]) -> Advice:
    """Rules 5 to 7: a lock gains nothing, or nobody can tell."""
    clock = inputs.clock
    spread = clock.spread or 0.0
    if _sensor_fails(inputs, gains):
        if _is_capped(clock):
            return _advice(inputs, Verdict.THROTTLED_POWER, "sensor-slow-power", gains)
        return _advice(inputs, Verdict.UNKNOWN, "sensor-slow", gains)
    stds = [row.rel_std for row in inputs.rows if row.rel_std is not None]
    worst = max(stds, default=0.0)
    if clock.is_still:
        if worst <= STEADY_STD:
            return _advice(inputs, Verdict.STEADY, "clock-still", gains)
        return _advice(inputs, Verdict.NOT_CLOCK, "clock-still", gains)
    if _is_open(inputs):
        widest = max((row.clipped_std or row.rel_std or 0.0 for row in inputs.rows), default=0.0)
        if clock.is_shared:
            return _advice(inputs, Verdict.NOT_CLOCK, "shared", gains)
        if spread < 2 * widest and not _is_capped(clock):
            return _advice(inputs, Verdict.NOT_CLOCK, "spread-too-small", gains)
        if worst <= QUIET_STD and spread <= QUIET_SPREAD:
            return _advice(inputs, Verdict.STEADY, "quiet", gains)
        return _advice(inputs, Verdict.UNKNOWN, "cannot-attribute", gains)
    return _advice(inputs, Verdict.NOT_CLOCK, "rows-do-not-follow", gains)


def _is_open(inputs: AdviceInputs) -> bool:
    """No row's exponent is known, or not that of a row that is restless."""
    lost = [row for row in inputs.rows if row.effect.alpha is None]
    return len(lost) == len(inputs.rows) or any(
        (row.clipped_std or row.rel_std or 0.0) > QUIET_STD for row in lost
    )


def _is_capped(clock: ClockEvidence) -> bool:
    """Power limits the clock most of the time, and the moving clock below its ceiling bears it out.

    That much is known even where the sensor is too slow to tell what a lock would leave.
    """
    is_limited = (clock.power_share or 0.0) >= POWER_SHARE
    return is_limited and clock.is_down and not clock.is_still


def _sensor_fails(inputs: AdviceInputs, gains: list[_Gain]) -> bool:
    """The rows move together, more quickly than the clock sensor shows: nobody can tell why.

    Not where the device says that nothing limits its clock: then it has no reason to move.
    """
    clock = inputs.clock
    is_free = clock.power_share is not None and clock.power_share < UNLIMITED_SHARE
    if is_free or clock.is_shared:
        return False
    needed = POWER_SHARE if len(inputs.rows) == 1 else 0.0
    if (clock.power_share if clock.power_share is not None else needed) < needed:
        return False
    if clock.is_rare:
        return any(g.row.unseen >= TOGETHER or g.effect >= MIN_EFFECT for g in gains)
    return any(
        row.unseen >= UNSEEN and row.unseen * (row.clipped_std or 0.0) >= UNSEEN_STD
        for row in inputs.rows
    )


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
            clock.hold_mhz,
            clock.supported_mhz,
            is_careful=is_thermal or clock.is_averaged,
            solo_low_mhz=inputs.solo_low_mhz,
            cycle_mhz=None if clock.is_rare else clock.cycle_mhz,
        )
    if x is not None:
        # A limit cycle above the lock is gone with it, and so are its falls.
        below = min(float(x), X_MARGIN * (clock.low_mhz or x))
        gains = [_with_misses(gain, clock, below) for gain in gains]
    likely = gains
    if x is not None and clock.may_fall:
        gains = [_with_falls(gain) for gain in gains]
    shown = _shown(gains, inputs.shown_bench)
    is_worth = None if shown is None else _is_worth(shown.row.bench, likely, clock.cost_of(x))
    effect = shown.row.effect if shown else None
    return Advice(
        verdict=verdict,
        lock_mhz=x,
        std_now=effect.std_now if effect else _worst_std(inputs),
        std_locked=effect.std_locked if effect else None,
        std_locked_low=effect.std_locked_low if effect else None,
        evidence=_evidence(inputs, gains, needs or {}, x, shown, is_worth=is_worth),
        reason=reason,
        power_coupled=is_coupled,
    )


def _with_misses(gain: _Gain, clock: ClockEvidence, x: float) -> _Gain:
    """The promise, widened by the time in which the clock was below X and will be again."""
    effect, mhz = gain.row.effect, clock.under_load_mhz
    if mhz is None or mhz.size == 0 or effect.alpha is None or effect.std_locked is None:
        return gain
    # Twice: so few readings of the tail tell its size within a factor, not better.
    missed = 2 * effect.alpha**2 * float(np.log(np.minimum(mhz, x)).var())
    if clock.is_rare or wanders(mhz, clock.step_mhz):
        # It may fall below the lock as it does below its usual clock, or nobody saw that it does.
        lower = mhz[mhz <= np.median(mhz)]
        missed = max(missed, effect.alpha**2 * float(np.log(lower).var()))
    high = math.sqrt(effect.std_locked**2 + missed)
    effect = msgspec.structs.replace(effect, std_locked=min(high, effect.std_now or high))
    return gain._replace(row=replace(gain.row, effect=effect))


def _with_falls(gain: _Gain) -> _Gain:
    """The promise of a lock that may not hold: it may leave all of the std."""
    effect = gain.row.effect
    if effect.std_locked is None or effect.std_now is None:
        return gain
    high = max(effect.std_locked, effect.std_now)
    effect = msgspec.structs.replace(effect, std_locked=high)
    return gain._replace(row=replace(gain.row, effect=effect))


def _shown(gains: list[_Gain], before: int | None) -> _Gain | None:
    """The row that a lock helps most; the one shown before as long as it comes near."""
    best = max(gains, key=lambda g: g.effect * g.gain, default=None)
    if best is None or best.gain <= 0:
        return None
    old = next((g for g in gains if g.row.bench == before), best)
    return old if old.effect * old.gain >= SAME_ROW * best.effect * best.gain else best


def _is_worth(best: int, gains: list[_Gain], clock_cost: float | None) -> bool:
    """Whether a lock brings that row enough for what it costs the slowest one.

    By what is likely: that a lock may not hold shows within seconds of trying it.
    """
    if clock_cost is None:
        return True
    effect = next(g.row.effect for g in gains if g.row.bench == best)
    now, least, most = effect.std_now, effect.std_locked_low, effect.std_locked
    if now is None or least is None or most is None:
        return True
    # A row whose exponent is not known may follow the clock in full.
    alphas = [1.0 if g.row.effect.alpha is None else g.row.effect.alpha for g in gains]
    return now - (least + most) / 2 >= WORTH * max(now, max(alphas) * clock_cost)


def _worst_std(inputs: AdviceInputs) -> float | None:
    stds = [row.rel_std for row in inputs.rows if row.rel_std is not None]
    return max(stds, default=None)


def _evidence(
    inputs: AdviceInputs,
    gains: list[_Gain],
    needs: dict[str, float],
    x: int | None,
    shown: _Gain | None,
    *,
    is_worth: bool | None,
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
        if clock.may_fall:
            evidence["may_fall"] = True
    cost = clock.cost_of(x)
    if cost is not None:
        evidence["clock_cost"] = cost
        if is_worth is False:
            evidence["worth"] = False
    if inputs.solo_low_mhz:
        evidence["solo_low_mhz"] = {str(k): v for k, v in inputs.solo_low_mhz.items()}
    if inputs.locked_mhz is not None:
        evidence["locked_mhz"] = inputs.locked_mhz
        evidence["below_lock_share"] = inputs.below_lock_share
    if inputs.try_mhz is not None:
        evidence["try_mhz"] = inputs.try_mhz
    if shown is not None:
        evidence["gain_bench"] = shown.row.bench
    if clock.hidden is not None:
        evidence["hidden"] = clock.hidden._asdict()
    if clock.flutters:
        evidence["flutters"] = True
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
        "std_locked_low": row.effect.std_locked_low,
        "unseen": row.unseen,
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
        self._promises: deque[_Promise] = deque()

    def reset(self) -> None:
        """A new epoch: know nothing."""
        self._votes.clear()
        self._promises.clear()
        self._current = Advice()

    def update(self, inputs: AdviceInputs, now_ns: int) -> Advice:
        """Take one evaluation into account."""
        if self._current.verdict is not Verdict.UNKNOWN:
            inputs = replace(inputs, shown_bench=self._current.evidence.get("gain_bench"))
        fresh = advise(inputs)
        vote = fresh
        current = self._current.verdict
        if fresh.verdict is not current and current in _STICKY:
            again = advise(inputs, SLACK)
            if again.verdict is current:
                vote = again
        self._votes.append(Verdict.UNKNOWN if _is_early(current, vote, inputs) else vote.verdict)
        if vote.verdict is current:
            self._current = self._renew(vote, now_ns)
        elif Counter(self._votes)[vote.verdict] >= WINS:
            self._promises.clear()
            self._current = self._renew(
                msgspec.structs.replace(vote, since_ns=now_ns), now_ns, is_new=True
            )
        elif current is Verdict.UNKNOWN:
            self._current = msgspec.structs.replace(
                self._current, reason="confirming", evidence=vote.evidence
            )
        return self._current

    def _renew(self, advice: Advice, now_ns: int, *, is_new: bool = False) -> Advice:
        """The standing verdict with today's numbers; X moves only by more than two steps."""
        x, old = advice.lock_mhz, self._current.lock_mhz
        if x is not None and old is not None and not is_new:
            step = float(advice.evidence["step_mhz"])
            if abs(x - old) <= X_HOLD_STEPS * step:
                x = old
        promise = self._promise(advice, now_ns)
        if not is_new and self._is_silent(advice):
            # For now nothing can be told of the row that was promised something: that stands.
            old_row = self._current.evidence["gain_bench"]
            evidence = {**advice.evidence, "gain_bench": old_row}
            advice = msgspec.structs.replace(
                advice, std_now=self._current.std_now, evidence=evidence
            )
            promise = self._promised(old_row, now_ns)
        return msgspec.structs.replace(
            advice,
            lock_mhz=x,
            since_ns=advice.since_ns if is_new else self._current.since_ns,
            std_locked=promise.high,
            std_locked_low=promise.low,
        )

    def _promise(self, advice: Advice, now_ns: int) -> "_Promise":
        """What a lock leaves, as wide as everything promised of that row in the last minute."""
        low, high = advice.std_locked_low, advice.std_locked
        bench = advice.evidence.get("gain_bench")
        if low is None or high is None:
            return _Promise(now_ns, bench, low, high)
        self._promises.append(_Promise(now_ns, bench, low, high))
        while now_ns - self._promises[0].at_ns > HOLD_RANGE_NS:
            self._promises.popleft()
        return self._promised(bench, now_ns)

    def _is_silent(self, advice: Advice) -> bool:
        """The row that was shown is lost in this look, and its last promise is not old."""
        old = self._current.evidence.get("gain_bench")
        lost = [r["bench"] for r in advice.evidence["rows"] if r["std_locked"] is None]
        return old in lost and any(p.bench == old for p in self._promises)

    def _promised(self, bench: int | None, now_ns: int) -> "_Promise":
        same = [p for p in self._promises if p.bench == bench]
        return _Promise(
            now_ns,
            bench,
            min(p.low for p in same if p.low is not None),
            max(p.high for p in same if p.high is not None),
        )


class _Promise(NamedTuple):
    """What a lock was said to leave of one row's std."""

    at_ns: int
    bench: int | None
    low: float | None
    high: float | None


def _is_early(current: Verdict, vote: Advice, inputs: AdviceInputs) -> bool:
    """A first verdict that says no, before there was time for evidence of a yes."""
    is_first = current is Verdict.UNKNOWN and vote.verdict is Verdict.NOT_CLOCK
    return is_first and inputs.window_s < FIRST_NO_S

"""The one entry point: once a second, everything that can be said about a session.

An `Analyst` looks at the last 20 seconds (longer where the rows are slow) and at a bounded number
of samples a row; only the paired ratios go back to the epoch's start, in bounded memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from usv_tui.model import Advice, ClockEffect, Drift, Ratio, StateWord
from usv_tui.stats.advice import (
    POWER_SHARE,
    AdviceInputs,
    Advisor,
    ClockEvidence,
    RowEvidence,
)
from usv_tui.stats.basics import NS_PER_S, IntArray, correlation_time, estimate_tick
from usv_tui.stats.clock_effect import (
    ClockTrace,
    EffectDetail,
    RowTrace,
    clock_effects,
)
from usv_tui.stats.clock_view import age_s, clock_evidence, effect_clock, low_clock
from usv_tui.stats.drift import (
    BATCHES,
    WARM_C,
    DriftTracker,
    Look,
    Trend,
    batch_locations,
    slope_per_s,
    temperature_thirds,
    trends,
)
from usv_tui.stats.hidden import HiddenWatch
from usv_tui.stats.inputs import (
    Cut,
    Limits,
    RowData,
    TelemetryData,
    position,
    under_load,
)
from usv_tui.stats.lock_choice import LockLadder, below_share
from usv_tui.stats.modes import MIN_SAMPLES as MODE_SAMPLES
from usv_tui.stats.modes import Modes, find_modes
from usv_tui.stats.pairs import (
    ALPHA,
    BAND,
    Interval,
    is_control_off,
    median_interval,
)
from usv_tui.stats.rolling import Stats, summary
from usv_tui.stats.rounds import RatioBook, comparisons
from usv_tui.stats.witness import witnessed

WINDOW_S = 20.0
WINDOW_ROUNDS = 160
"""Slow rows get a window that holds so many rounds …"""
WINDOW_READINGS = 64
"""… and a poller that comes rarely one of so many readings."""
LONGEST_WINDOW_S = 300.0
RARE_S = 5.0
"""Readings that ended so long ago do not stretch the window."""
STALLED_S = 60.0
"""A row without a sample for so long does not stretch the window."""
SAMPLE_BUDGET = 25_000
"""Samples looked at in one update, all rows together."""
MOST_SAMPLES = 4096
FEWEST_SAMPLES = 1250
LAG_S = 5.0
"""The lag of the readings is searched for so often."""
MODE_ROWS = 3
"""Rows whose modes are looked for in one update; the others keep their last answer."""
SOLO_S = 3.0
"""A row that ran alone for this long shows the clock that it alone gets."""
TICK_SAMPLES = 200
"""A timer's step is estimated from so many samples."""
TARGET_SAMPLES = 8192
TARGET_LEAD_S = 20.0
"""The median of a settled row is taken from this long before it was found settled."""
LOAD_GAP_S = 0.5
"""A reading this close to a sample was taken under load."""
BUSY_TIMES = 400
"""Moments of a window by which a row shows that it was running."""
THROTTLED_SHARE = 0.5
THERMAL_SHARE = 0.05
LIMITED_SHARE = 0.05


NOTHING = Stats()
UNLIMITED = Limits(None, None)


@dataclass(frozen=True, slots=True)
class RowAnalysis:
    """What can be said of one row now."""

    bench: int
    word: StateWord = StateWord.NONE
    """The state in a word: the drift's, or throttled."""
    drift: Drift = Drift()
    effect: ClockEffect = ClockEffect()
    detail: EffectDetail | None = None
    """Clock and relative time in equal bins, for the evidence plots."""
    ratio: Ratio | None = None
    """Against the baseline; None for a baseline."""
    modes: Modes | None = None
    window: Stats = NOTHING
    """Statistics of the window, seconds per call."""
    is_timer_limited: bool = False
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Analysis:
    """What can be said of the session now."""

    at_ns: int = 0
    rows: Mapping[int, RowAnalysis] = field(default_factory=dict)
    advice: Advice = Advice()
    limits: Limits = UNLIMITED
    untrusted: tuple[int, ...] = ()
    """Control rows that differ from the baseline they copy: no ratio of the run can be trusted."""
    solo_low_mhz: Mapping[int, float] = field(default_factory=dict)
    """5th percentile of the unlocked clock while a row ran alone, as far as tried."""


class _Known:
    """What is remembered of one row between updates."""

    def __init__(self) -> None:
        self.tracker = DriftTracker()
        self.modes: Modes | None = None
        self.tick_ns = 0.0


class _Seen(NamedTuple):
    """One row in the current window."""

    row: RowData
    cut: Cut
    tick_s: float
    window: Stats


class Analyst:
    """Turns a session's columns into answers: `update` once a second, `reset` at a mark."""

    def __init__(self, *, band: float = BAND, alpha: float = ALPHA) -> None:
        self.band = band
        self.alpha = alpha
        self._known: dict[int, _Known] = {}
        self._book = RatioBook(band, alpha)
        self._advisor = Advisor()
        self._hidden = HiddenWatch()
        self._ladder = LockLadder()
        self._solo: dict[int, float] = {}
        self._turn = 0
        self._epoch_ns = 0
        self._lag: tuple[float, int] | None = None
        """How late the readings are, and when that was found."""

    def reset(self) -> None:
        """A new epoch begins: forget all but the clocks that rows got alone."""
        self._known.clear()
        self._book.reset()
        self._advisor.reset()

    def update(
        self,
        rows: Sequence[RowData],
        telemetry: TelemetryData,
        now_ns: int,
        *,
        epoch_ns: int = 0,
        locked_mhz: int | None = None,
        is_held: bool | None = None,
        whole: TelemetryData | None = None,
    ) -> Analysis:
        """Everything about the epoch that began at `epoch_ns`.

        `locked_mhz` is the lock of ours in force, and whether it `is_held` is what whoever locked
        says of it (None: not known yet). The readings of the `whole` epoch are given when
        no sample will follow: then the last round is complete, and the ratios are told from all
        rounds at once, so that they do not depend on when one looked before; of an epoch whose
        first samples are no longer kept, from what was taken in while they were.
        """
        self._epoch_ns = epoch_ns
        is_final = whole is not None
        if is_final and not any(row.n_before for row in rows):
            self._forget_looks()
        from_ns = max(epoch_ns, _window_start(rows, telemetry, now_ns))
        most = max(FEWEST_SAMPLES, min(MOST_SAMPLES, SAMPLE_BUDGET // max(len(rows), 1)))
        seen = [self._see(row, from_ns, now_ns + 1, most) for row in rows]
        busy = _busy_times(seen)
        readings = telemetry.cut(from_ns, now_ns + 1)
        gap_s = LOAD_GAP_S + max(map(_window_s, seen), default=0.0)
        loaded = under_load(readings, busy, gap_s, epoch_ns if from_ns <= epoch_ns else None)
        witness = witnessed(loaded, locked_mhz)
        limited = witness.limits
        row_trends, drifts = self._drifts(seen, readings, now_ns)
        clock = self._with_lag(effect_clock(telemetry, loaded, from_ns, now_ns), now_ns)
        details = clock_effects(
            [RowTrace(s.cut.t_ns, np.log(s.cut.seconds), _window_s(s)) for s in seen],
            clock,
            is_shared=telemetry.is_shared,
        )
        self._keep_lag(clock, details, now_ns)
        self._find_modes(seen, len(seen) if is_final else MODE_ROWS)
        if locked_mhz is None:
            self._note_solo(seen, telemetry, now_ns)
        self._book.feed(rows, epoch_ns, whole or telemetry, is_final=is_final)
        ratios = self._ratios(rows, seen, is_limited=_is_limiting(limited), is_final=is_final)
        out: dict[int, RowAnalysis] = {}
        for s, drift, detail in zip(seen, drifts, details, strict=True):
            bench = s.row.bench
            known = self._known[bench]
            out[bench] = RowAnalysis(
                bench=bench,
                word=_word(drift, limited),
                drift=drift,
                effect=detail.effect,
                detail=detail,
                ratio=ratios.get(bench),
                modes=known.modes,
                window=s.window,
                is_timer_limited=_is_limited(s),
                is_settled=known.tracker.settled_since_ns is not None,
            )
        told = clock_evidence(loaded, witness, age_s(readings, now_ns), readings)
        told = replace(
            told,
            # Under a limit that is proven the clock has a reason to move, if no row follows it.
            flutters=any(detail.flutters for detail in details)
            and max(limited.power or 0.0, limited.thermal or 0.0) < POWER_SHARE,
            hidden=self._hidden.update(loaded, from_ns, now_ns),
        )
        inputs = self._inputs(seen, row_trends, details, told, from_ns, now_ns)
        inputs = self._with_lock(inputs, loaded, locked_mhz, is_held=is_held)
        return Analysis(
            at_ns=now_ns,
            rows=out,
            advice=self._advisor.update(inputs, now_ns),
            limits=limited,
            untrusted=_untrusted(rows, ratios, is_final=is_final),
            solo_low_mhz=dict(self._solo),
        )

    def settled_median(self, row: RowData, now_ns: int) -> Interval | None:
        """Interval of a settled row's log median, from 20 s before it settled; None if it is not.

        This is what `--until ±x%` asks for: a median before that would converge on a wrong value.
        """
        known = self._known.get(row.bench)
        if known is None or known.tracker.settled_since_ns is None:
            return None
        lead_ns = int(TARGET_LEAD_S * NS_PER_S)
        from_ns = max(self._epoch_ns, known.tracker.settled_since_ns - lead_ns)
        cut = row.cut(from_ns, now_ns + 1, TARGET_SAMPLES)
        return median_interval(np.log(cut.seconds), alpha=self.alpha)

    def _drifts(
        self, seen: list[_Seen], readings: TelemetryData, now_ns: int
    ) -> tuple[list[Trend | None], list[Drift]]:
        located = [batch_locations(s.cut.seconds, s.tick_s) for s in seen]
        stack = [y for y in located if y is not None]
        found = iter(trends(np.stack(stack)) if stack else [])
        row_trends = [None if y is None else next(found) for y in located]
        drifts = []
        changes: dict[tuple[int, int], tuple[float, float] | None] = {}
        for s, y, row_trend in zip(seen, located, row_trends, strict=True):
            t = s.cut.t_ns
            span_s = float(t[-1] - t[0]) / NS_PER_S if t.size > 1 else 0.0
            change_c = temp_c = None
            if t.size > 1:
                # Rows of one session share their window, and so their temperature.
                span = int(t[0]) >> 28, int(t[-1]) >> 28
                if span not in changes:
                    changes[span] = temperature_thirds(
                        readings.t_ns, readings.temp_c, float(t[0]), float(t[-1])
                    )
                thirds = changes[span]
                if thirds is not None:
                    change_c, temp_c = thirds[1] - thirds[0], thirds[1]
            look = Look(
                now_ns=now_ns,
                window_s=span_s,
                trend=row_trend,
                level=None if y is None else float(y[-BATCHES // 3 :].mean()),
                temp_change_c=change_c,
                slope_per_s=None if y is None else slope_per_s(y, span_s),
                temp_c=temp_c,
            )
            drifts.append(self._of(s.row).tracker.update(look))
        return row_trends, drifts

    def _see(self, row: RowData, from_ns: int, to_ns: int, most: int) -> _Seen:
        cut = row.cut(from_ns, to_ns, most)
        known = self._of(row)
        if not known.tick_ns and cut.seconds.size >= TICK_SAMPLES:
            known.tick_ns = estimate_tick(np.rint(cut.seconds * cut.inner * NS_PER_S))
        # Both are upper limits: a clock cannot be read often enough, nor do samples fill all steps.
        tick_ns = min(filter(None, (row.tick_ns, known.tick_ns)), default=0.0)
        return _Seen(row, cut, tick_ns / NS_PER_S / cut.inner, summary(cut.seconds))

    def _with_lag(self, clock: ClockTrace | None, now_ns: int) -> ClockTrace | None:
        """The clock with the lag found lately: it belongs to driver and poller, not to a window."""
        if clock is None or clock.lag_s is not None or self._lag is None:
            return clock
        lag_s, at_ns = self._lag
        if now_ns - at_ns >= LAG_S * NS_PER_S:
            return clock
        return ClockTrace(clock.t_ns, clock.mhz, clock.step_mhz, lag_s)

    def _keep_lag(self, clock: ClockTrace | None, details: list[EffectDetail], now_ns: int) -> None:
        if clock is None or clock.lag_s is not None:
            return
        told = [d.effect.lag_ns for d in details if d.effect.alpha is not None]
        lag_ns = next((lag_ns for lag_ns in told if lag_ns is not None), None)
        self._lag = None if lag_ns is None else (lag_ns / NS_PER_S, now_ns)

    def _forget_looks(self) -> None:
        """Intervals are eased from look to look, and a timer's step is taken from the first one."""
        self._book.reset()
        for known in self._known.values():
            known.tick_ns = 0.0

    def _of(self, row: RowData) -> _Known:
        known = self._known.get(row.bench)
        if known is None:
            known = self._known[row.bench] = _Known()
        return known

    def _find_modes(self, seen: list[_Seen], most: int) -> None:
        """A few rows each time, in turn."""
        count = len(seen)
        for k in range(min(most, count)):
            s = seen[(self._turn + k) % count]
            values = s.cut.seconds
            known = self._of(s.row)
            if values.size < MODE_SAMPLES:
                known.modes = None
                continue
            n_eff = values.size / correlation_time(values[-MOST_SAMPLES // 4 :])
            known.modes = find_modes(values, s.tick_s, n_eff)
        self._turn = (self._turn + MODE_ROWS) % max(count, 1)

    def _note_solo(self, seen: list[_Seen], telemetry: TelemetryData, now_ns: int) -> None:
        """While one row runs alone, the clock is what that row can get."""
        from_ns = now_ns - int(SOLO_S * NS_PER_S)
        running = [s.row for s in seen if s.row.is_active and _ran_since(s.row, from_ns, now_ns)]
        if len(running) != 1 or sum(s.row.is_active for s in seen) < 2:
            return
        row = running[0]
        cut = row.cut(from_ns, now_ns + 1, MOST_SAMPLES)
        if cut.t_ns.size < 2 or cut.t_ns[-1] - cut.t_ns[0] < 0.8 * SOLO_S * NS_PER_S:
            return
        # The clock needs a moment to follow the change of load.
        low = low_clock(under_load(telemetry.cut(from_ns + int(NS_PER_S), now_ns + 1), cut.t_ns))
        if low is not None:
            self._solo[row.bench] = low

    def _with_lock(
        self,
        inputs: AdviceInputs,
        loaded: TelemetryData,
        locked_mhz: int | None,
        *,
        is_held: bool | None,
    ) -> AdviceInputs:
        """How the lock in force is held, and what to try after it."""
        if locked_mhz is None:
            self._ladder.free_mhz = inputs.clock.median_mhz or self._ladder.free_mhz
            return inputs
        mhz = loaded.sm_mhz[np.isfinite(loaded.sm_mhz)]
        return replace(
            inputs,
            locked_mhz=locked_mhz,
            below_lock_share=below_share(mhz, locked_mhz, loaded.step_mhz),
            try_mhz=self._ladder.update(locked_mhz, loaded.supported_mhz, is_held=is_held),
        )

    def _ratios(
        self,
        rows: Sequence[RowData],
        seen: list[_Seen],
        *,
        is_limited: bool,
        is_final: bool,
    ) -> dict[int, Ratio]:
        counts = comparisons(rows)
        by_bench = {s.row.bench: s for s in seen}
        out = {}
        for row in rows:
            base = None if row.baseline is None else by_bench.get(row.baseline)
            if base is None:
                continue
            ratio = self._book.ratio(
                row,
                1 if row.is_control else counts.get(base.row.bench, 1),
                _resolution(by_bench[row.bench], base),
                is_limited=is_limited,
                is_last=is_final,
            )
            if ratio is not None:
                out[row.bench] = ratio
        return out

    def _inputs(
        self,
        seen: list[_Seen],
        row_trends: list[Trend | None],
        details: list[EffectDetail],
        clock: ClockEvidence,
        from_ns: int,
        now_ns: int,
    ) -> AdviceInputs:
        evidence = []
        window_s = 0.0
        rounds = 0
        for s, row_trend, detail in zip(seen, row_trends, details, strict=True):
            t = s.cut.t_ns
            if not s.row.is_active or t.size == 0:
                continue
            window_s = max(window_s, float(t[-1] - t[0]) / NS_PER_S)
            rounds = max(rounds, _rounds_between(s.row, from_ns, now_ns))
            window = s.window
            evidence.append(
                RowEvidence(
                    bench=s.row.bench,
                    trend=row_trend,
                    effect=detail.effect,
                    rel_std=window.rel_std,
                    gain=detail.gain,
                    clipped_std=detail.clipped_std,
                    has_modes=self._of(s.row).modes is not None,
                    severe_share=window.severe / window.n if window.n else 0.0,
                    is_timer_limited=_is_limited(s),
                    unseen=detail.unseen,
                )
            )
        return AdviceInputs(
            window_s=window_s,
            rounds=rounds,
            rows=tuple(evidence),
            clock=clock,
            solo_low_mhz=dict(self._solo),
        )


def _window_start(rows: Sequence[RowData], telemetry: TelemetryData, now_ns: int) -> int:
    """20 s ago, or when the last 64 readings or the slowest row's last 160 rounds began."""
    start = now_ns - int(WINDOW_S * NS_PER_S)
    end = position(telemetry.t_ns, now_ns + 1)
    if end and now_ns - telemetry.t_ns[end - 1] < RARE_S * NS_PER_S:
        start = min(start, int(telemetry.t_ns[max(0, end - WINDOW_READINGS)]))
    for row in rows:
        end = position(row.t_ns, now_ns + 1)
        if row.is_active and end and now_ns - row.t_ns[end - 1] < STALLED_S * NS_PER_S:
            start = min(start, int(row.t_ns[max(0, end - WINDOW_ROUNDS)]))
    return max(start, now_ns - int(LONGEST_WINDOW_S * NS_PER_S))


def _window_s(s: _Seen) -> float:
    """How long one sample of the row usually takes."""
    return s.cut.inner * (s.window.median_s or 0.0)


def _is_limited(s: _Seen) -> bool:
    """The timer's step hides the row's noise."""
    return s.tick_s > 0 and s.window.madn_s is not None and s.tick_s >= 0.5 * s.window.madn_s


def _resolution(row: _Seen, base: _Seen) -> float | None:
    """The coarser relative timer step of two rows when it limits either of them."""
    if not (_is_limited(row) or _is_limited(base)):
        return None
    steps = [s.tick_s / s.window.median_s for s in (row, base) if s.window.median_s]
    return max(steps, default=None)


def _busy_times(seen: list[_Seen]) -> IntArray:
    """When samples were taken, ascending; thinned, since gaps of half a second are what counts."""
    times = [t[:: 1 + t.size // BUSY_TIMES] for t in (s.cut.t_ns for s in seen) if t.size] + [
        s.cut.t_ns[-1:] for s in seen
    ]
    return np.sort(np.concatenate(times)) if times else np.empty(0, np.int64)


def _word(drift: Drift, limited: Limits) -> StateWord:
    """Moving comes before throttled, throttled before steady: settled is kept apart."""
    if drift.word is StateWord.UNDECIDED and (drift.temp_change_c or 0.0) >= WARM_C:
        return StateWord.WARMING
    if drift.word in (StateWord.NONE, StateWord.WARMING, StateWord.DRIFTING):
        return drift.word
    power, thermal = limited.power or 0.0, limited.thermal or 0.0
    if thermal >= THERMAL_SHARE or power >= THROTTLED_SHARE:
        return StateWord.THROTTLED
    return drift.word


def _untrusted(
    rows: Sequence[RowData], ratios: Mapping[int, Ratio], *, is_final: bool
) -> tuple[int, ...]:
    """Controls that differ, as far as they have been watched for long enough to say so."""
    controls = (row.bench for row in rows if row.is_control)
    told = {b: ratios[b] for b in controls if b in ratios and (is_final or not ratios[b].is_short)}
    return tuple(bench for bench, ratio in told.items() if is_control_off(ratio))


def _is_limiting(limited: Limits) -> bool:
    """The device's power or temperature has held its clock down, be it seldom."""
    return max(limited.power or 0.0, limited.thermal or 0.0) >= LIMITED_SHARE


def _ran_since(row: RowData, from_ns: int, now_ns: int) -> bool:
    return position(row.t_ns, now_ns + 1) > position(row.t_ns, from_ns)


def _rounds_between(row: RowData, from_ns: int, now_ns: int) -> int:
    a, b = position(row.t_ns, from_ns), position(row.t_ns, now_ns + 1)
    return int(row.rounds[b - 1]) - int(row.rounds[a]) + 1 if b > a else 0

"""The fold: records in, `Snapshot` and series out. Owned by one thread, the front end's.

All that is shown follows from the records alone, in whatever lots they come and however often one
looks: what the statistics say is asked at beats of the session's own clock, as the records tell it.
So a session says the same live, when it is exported, and in a fold that stops at any record.

Raw samples are kept whole; everything that is shown is derived from bounded state, so that a frame
costs the same after an hour as after a second.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from usv_tui import plain
from usv_tui.model import (
    EXCLUDED,
    Advice,
    ClockState,
    DeviceInfo,
    Flag,
    Notice,
    Reading,
    RowState,
    RunConfig,
    RunPhase,
    Skipped,
    TimerInfo,
    reason_words,
)
from usv_tui.records import (
    Advised,
    AnyRecord,
    Baseline,
    Bench,
    BenchError,
    Calibrated,
    Chosen,
    Clocks,
    Device,
    End,
    Fault,
    Gap,
    Headway,
    Mark,
    Noted,
    Output,
    Paced,
    ProbeClock,
    Progress,
    Samples,
    Skip,
    Start,
    State,
    Telemetry,
    Timing,
    Visit,
    Watching,
    Window,
    time_of,
)
from usv_tui.report.wording.advice import is_idle
from usv_tui.report.wording.notices import sentence
from usv_tui.report.wording.rows import clock_words, cost_words
from usv_tui.session.advised import heeding
from usv_tui.session.columns import Bins, Column, TelemetryColumns
from usv_tui.session.row_store import BIN_NS, MAX_WINDOW, RowStore
from usv_tui.session.snapshot import (
    BinSeries,
    EpochView,
    FloatArray,
    IntArray,
    RowView,
    Series,
    Snapshot,
)
from usv_tui.session.sweep import StepAt, steps_of
from usv_tui.session.told import Log
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.inputs import Probe, TelemetryData
from usv_tui.stats.pairs import Interval
from usv_tui.stats.rolling import Stats
from usv_tui.suite.discovery import NO_BENCHMARK
from usv_tui.telemetry.energy import energy_per_call
from usv_tui.telemetry.sensors import confirmed_reasons
from usv_tui.timesource import NS_PER_S
from usv_tui.vendor.kinds import Vendor

DEFAULT_WINDOW = 1_000
_RATE_NS = 2 * NS_PER_S
_ENERGY_NS = 60 * NS_PER_S
_ENERGY_ROWS = 4
_PROBE_NEAR_NS = NS_PER_S // 5
_LOOK_BACK_NS = 60 * NS_PER_S
BEAT_NS = NS_PER_S
"""How often one looks at what moves slowly, and the statistics are asked …"""
_SLOWER = 600
"""… or every 600th of an epoch's age, when that is longer: a day is read back in minutes …"""
_SLOWEST_NS = 5 * NS_PER_S
"""… and at least this often."""
_NOT_IN_THE_BANNER = ("journal",)
_PACE_LABEL = "pace "


NOT_WHOLE = ("damaged session", "joined sessions")
"""Codes of notices after which a file is no whole session."""


class Store:
    """All that is known of a session. `apply` folds records in; the rest reads."""

    def __init__(self, on_fault: Callable[[str, Exception], object] | None = None) -> None:
        """`on_fault` is told of errors of ours in the statistics; without it they are raised."""
        self._on_fault = on_fault
        self.rows: dict[int, RowStore] = {}
        self.telemetry_columns = TelemetryColumns()
        self.probe_t_ns = Column(np.int64)
        self.probe_mhz = Column(np.float64)
        """The clock measured inside the stream, where there is a probe."""
        self.window = DEFAULT_WINDOW
        self.baseline: int | None = None
        self.failed = False
        self.fatal = ""
        self._fault = ""
        self._distortion = ""
        self.progress = ""
        self.looks = 0
        """How often the statistics were asked."""
        self._telemetry_state: str | None = None
        """What the watcher says of itself, while there is one."""
        self._beat_ns = self._look_ns = 0
        """When to look at what moves slowly, and when to ask the statistics."""
        self._concluded: tuple[object, ...] = ()
        """What had been measured when the end's figures were made."""
        self._told_advice = (Advice().verdict, Advice().lock_mhz)
        self._has_told_untrusted = False
        self.visits: list[Visit] = []
        """Of a clock sweep."""
        self._steps: list[StepAt] = []
        self.last_sample_ns = 0
        self.last_ns = 0
        """The latest time that any record tells of."""
        self._start: Start | None = None
        self._end: End | None = None
        self._chosen: Chosen | None = None
        self._timer: TimerInfo | None = None
        self._device: DeviceInfo | None = None
        self._reading: Reading | None = None
        self._clocks = ClockState()
        self._clocks_during = ClockState()
        """The last state of a lock of ours in this epoch."""
        self._advice = Advice()
        self._phase: tuple[str, str] = (RunPhase.STARTING, "")
        self._last_phase: str = RunPhase.STARTING
        self._pace: str | None = None
        self.is_whole = True
        """False for a file that lacks a part of its session, or holds more than one."""
        self._skipped: list[Skipped] = []
        self._log = Log()
        self._threads: dict[str, Any] = {}
        """How many threads the framework computes with: known to the worker alone."""
        self._epochs: list[EpochView] = []
        self._gaps: list[tuple[int, int, str]] = []
        self._marks: list[tuple[int, str]] = []
        self._rounds = 0
        self._samples = 0
        self._first_sample_ns: int | None = None
        self._reasons = _Reasons()
        self._energy_turn = 0
        self._analyst = Analyst()
        self._analysis = Analysis()

    # -- records in

    def apply(self, records: Iterable[AnyRecord]) -> None:
        """Fold records in, in the order in which they came."""
        blocks: list[Samples] = []
        for record in records:
            if isinstance(record, Samples):
                if record.bench:
                    blocks.append(record)
                if record.end_ns < self._beat_ns:
                    continue
            if blocks:
                self._add_samples(blocks)
                blocks = []
            if not isinstance(record, Samples):
                self._apply_one(record)
                self.last_ns = max(self.last_ns, time_of(record))
            if self.last_ns >= self._beat_ns:
                self._beat()
        if blocks:
            self._add_samples(blocks)

    def _beat(self) -> None:
        """Look at what moves slowly; the beats are even, on the session's clock."""
        now_ns = self.last_ns
        self._beat_ns = now_ns - (now_ns - self.start_ns) % BEAT_NS + BEAT_NS
        self._refresh()
        if now_ns < self._look_ns or self.phase != RunPhase.MEASURING:
            return
        age_ns = now_ns - self._epoch_ns
        self._look_ns = self._beat_ns - BEAT_NS + min(max(BEAT_NS, age_ns // _SLOWER), _SLOWEST_NS)
        self._ask(now_ns, is_final=False)

    def _refresh(self) -> None:
        for row in self.rows.values():
            row.refresh(self.last_ns, self.start_ns)

    def _ask(self, now_ns: int, *, is_final: bool) -> None:
        """Ask the statistics; an error of ours there costs this answer and nothing else."""
        self.looks += 1
        try:
            self.analyse(now_ns, is_final=is_final)
        except Exception as error:
            if self._on_fault is None:
                raise
            self._on_fault("the statistics", error)

    def conclude(self) -> None:
        """Nothing more will be measured: the figures of everything, as of the last sample.

        Happens by itself when the run ends; again when something has changed since.
        """
        if not self.last_sample_ns:
            return
        self.reopen_epoch()
        known = (self.last_sample_ns, self._samples, len(self._marks), self.baseline)
        if known != self._concluded:
            self._concluded = known
            self._refresh()
            self._ask(self.last_sample_ns, is_final=True)

    def _add_samples(self, blocks: Sequence[Samples]) -> None:
        bench, t_ns, window, inner, flags, host = [], [], [], [], [], []
        rounds: list[NDArray[np.int64]] = []
        has_host = any(block.host_ns for block in blocks)
        for block in blocks:
            n = len(block.bench)
            bench += block.bench
            t_ns.append(np.array(block.dt_ns, dtype=np.int64) + block.t0_ns)
            window += block.window_ns
            inner += block.inners()
            flags += block.all_flags()
            rounds.append(block.round + np.arange(n) // block.size)
            if has_host:
                host += block.host_ns or block.window_ns
        ids = np.array(bench)
        order = np.argsort(ids, kind="stable")
        edges = np.flatnonzero(np.diff(ids[order])) + 1
        times = np.concatenate(t_ns)
        windows, inners = np.array(window, dtype=np.int64), np.array(inner, dtype=np.int64)
        all_flags, all_rounds = np.array(flags, dtype=np.int64), np.concatenate(rounds)
        hosts = np.array(host, dtype=np.int64) if has_host else None
        for index in np.split(order, edges):
            row = self.rows.get(int(ids[index[0]]))
            if row is None:
                continue
            if row.info.parent is None:
                self._samples += len(index)
            row.add(
                times[index],
                windows[index],
                inners[index],
                all_rounds[index],
                all_flags[index],
                None if hosts is None else hosts[index],
            )
        if self._first_sample_ns is None:
            self._first_sample_ns = int(times.min())
        self._rounds = max(self._rounds, int(all_rounds.max()) + 1)
        self.last_sample_ns = max(self.last_sample_ns, int((times + windows).max()))
        self.last_ns = max(self.last_ns, self.last_sample_ns)

    def _apply_one(self, record: AnyRecord) -> None:
        handle = self._HANDLERS.get(type(record))
        if handle is not None:
            handle(self, record)

    def _on_start(self, record: Start) -> None:
        self._start = record
        self._epochs = [EpochView(0, "start", record.at_ns, None)]
        self._pace = record.config.pace
        self._beat_ns = record.at_ns + BEAT_NS

    def _on_output(self, record: Output) -> None:
        self._log.line(record.at_ns, "out", record.text)

    def _on_chosen(self, record: Chosen) -> None:
        self._chosen = record
        self._log.line(record.at_ns, "event", f"device {record.device}: {record.reason}")

    def _on_timing(self, record: Timing) -> None:
        self._timer = record.info

    def _on_device(self, record: Device) -> None:
        if self._device is None and not self.has_ended:
            self._log.line(record.at_ns, "event", _device_line(record.info))
        self._device = record.info

    def _on_visit(self, record: Visit) -> None:
        self.visits.append(record)
        self._steps = steps_of(self, self.visits)

    def _on_bench(self, record: Bench) -> None:
        self.rows[record.info.bench] = RowStore(record.info)

    def _on_state(self, record: State) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.state, row.detail, row.state_ns = record.state, record.detail, record.at_ns

    def _on_calibrated(self, record: Calibrated) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.calibrated = record

    def _on_gap(self, record: Gap) -> None:
        self._gaps.append((record.from_ns, record.to_ns, record.reason))

    def _on_advised(self, record: Advised) -> None:
        self._advise(record.at_ns, record.advice)

    def _on_window(self, record: Window) -> None:
        self.window = max(3, min(record.samples, MAX_WINDOW))

    def _on_paced(self, record: Paced) -> None:
        self._pace = record.spec

    def _on_headway(self, record: Headway) -> None:
        self.progress = record.words

    def _on_watching(self, record: Watching) -> None:
        self._telemetry_state = record.state

    def _on_probe(self, record: ProbeClock) -> None:
        self.probe_t_ns.extend(np.array(record.at_ns, dtype=np.int64))
        self.probe_mhz.extend(np.array(record.sm_mhz, dtype=np.float64))

    def _on_fault_record(self, record: Fault) -> None:
        self._fault = record.message
        hint = f" ({record.hint})" if record.hint else ""
        evidence = {"exit_code": record.exit_code, "message": record.message}
        self._log.tell(record.at_ns, "error", "fault", f"{record.message}{hint}", evidence)

    def _on_end(self, record: End) -> None:
        self._end = record
        self.conclude()

    def _on_skip(self, record: Skip) -> None:
        skipped = Skipped(record.name, record.reason, record.is_refused)
        self._skipped.append(skipped)
        name = plain.name(record.name)
        if record.is_refused:
            self._log.line(record.at_ns, "error", f"not timed: {name}: {record.reason}")
        elif not record.reason.startswith(NO_BENCHMARK):
            self._log.line(record.at_ns, "event", f"skipped {name}: {record.reason}")

    @property
    def refused(self) -> list[Skipped]:
        """What was asked for and cannot be timed."""
        return [skipped for skipped in self._skipped if skipped.is_refused]

    def _on_clocks(self, record: Clocks) -> None:
        state = record.state
        if state.is_ours:
            self._clocks_during = state
            if state.locked_mhz != self._clocks.in_force_mhz:
                self._log.notes.take_back("lock refused", "")
        self._clocks = state
        if state.is_unmet:
            return  # a notice has said why
        if self._phase[0] != RunPhase.ENDED or self._clocks_during.locked_mhz is not None:
            evidence = f" ({state.evidence})" if state.evidence else ""
            words = f"{clock_words(state)}{evidence}{cost_words(state)}"
            self._log.line(record.at_ns, "event", f"clocks: {words}")

    def _on_progress(self, record: Progress) -> None:
        if record.phase != self._phase[0] and not (record.phase == RunPhase.ENDED and self._fault):
            self._log.line(record.at_ns, "event", f"{record.phase} {record.detail}".strip())
        self._phase = (record.phase, record.detail)
        self.failed = self.failed or record.is_failure
        if record.phase == RunPhase.ENDED:
            self.conclude()
        else:
            self._last_phase = record.phase
            self._refresh()

    def _on_baseline(self, record: Baseline) -> None:
        self.baseline = record.bench
        row = self.rows.get(record.bench) if record.bench is not None else None
        whom = plain.name(row.info.name) if row else "each group's own"
        words = f"ratios refer to {whom}"
        self._log.line(record.at_ns, "event", words)
        if self.has_ended:
            self.conclude()

    def _on_notice(self, record: Noted) -> None:
        notice = record.notice
        row = None if notice.bench is None else self.rows.get(notice.bench)
        if notice.code in NOT_WHOLE:
            self.is_whole = False
        if notice.code == "device lost":
            self.fatal = sentence(notice)
        elif notice.level == "error" and row is None and notice.code not in _NOT_IN_THE_BANNER:
            self._distortion = sentence(notice)
        if notice.code == "fresh worker":
            self._fault = ""
        if notice.code == "tried again" and row is not None:
            row.error = row.traceback = ""
            self.failed = any(other.error for other in self.rows.values())
        if notice.code == "threads":
            self._threads = dict(notice.evidence)
        if notice.evidence.get("withdrawn"):
            self._log.notes.take_back(notice.code, row.info.name if row else "")
            if row is not None:
                row.take_back(notice.code)
        if row is not None and notice.evidence.get("badge") is not False:
            badge = str(notice.evidence.get("badge") or notice.code)
            row.told(notice.code, badge, notice.at_ns if notice.of_epoch else None)
        name = row.info.name if row else ""
        kind = "event" if notice.level == "info" else notice.level
        self._log.line(notice.at_ns, kind, sentence(notice, plain.name(name) if row else ""))
        if notice.level != "info":
            self._log.notes.add_notice(notice, name)

    def _on_error(self, record: BenchError) -> None:
        self.failed = True
        row = self.rows.get(record.bench)
        name = plain.name(row.info.name) if row else "the worker"
        if row is not None:
            row.error, row.traceback = record.message, record.traceback
        if record.fatal:
            self.fatal = f"the device's context is lost after {name}: restart the measurement"
            self._log.tell(record.at_ns, "error", "context lost", self.fatal, {"row": name})
        if row is None:
            self._log.tell(record.at_ns, "error", record.kind, f"{name}: {record.message}", {})
        else:
            self._log.line(record.at_ns, "error", f"{name}: {record.message}")

    def _on_mark(self, record: Mark) -> None:
        self._marks.append((record.at_ns, record.label))
        self._forget()
        label = record.label or "mark"
        self._log.line(record.at_ns, "mark", label)
        if self._start and self._start.schema < 2 and label.startswith(_PACE_LABEL):
            self._pace = label.removeprefix(_PACE_LABEL)
        if record.bench is not None:
            row = self.rows.get(record.bench)
            if row is not None:
                row.start_epoch(record.at_ns)
            return
        if self._epochs:
            last = self._epochs[-1]
            self._epochs[-1] = EpochView(last.number, last.label, last.from_ns, record.at_ns)
        self._epochs.append(EpochView(len(self._epochs), label, record.at_ns, None))
        if not self._clocks.is_ours:
            self._clocks_during = ClockState()
        self._reasons.clear()
        for row in self.rows.values():
            row.start_epoch(record.at_ns)
        if self.has_ended:
            self.conclude()

    def _forget(self) -> None:
        """What the statistics said was of the epoch before."""
        self._look_ns = 0
        self._analyst.reset()
        self._analysis = Analysis(solo_low_mhz=self._analysis.solo_low_mhz)
        self._advice = Advice()
        self._has_told_untrusted = False

    def _on_reading(self, record: Telemetry) -> None:
        self.telemetry_columns.add(record.reading)
        self._reading = self._reasons.confirmed(record.reading)

    def reopen_epoch(self) -> None:
        """At the end: an epoch too young to have a counted sample gives way to the one before it.

        Somebody who locks the clocks and quits within the ramp keeps the figures of before.
        """
        while len(self._epochs) > 1 and not any(row.has_counted for row in self.rows.values()):
            empty = self._epochs.pop()
            before = self._epochs[-1]
            self._clocks_during = ClockState()
            self._forget()
            for row in self.rows.values():
                row.reopen(before.from_ns)
            self._log.tell(
                self.last_ns,
                "warn",
                "epoch reopened",
                f"nothing was counted since {empty.label!r}: the figures are from before it",
                {"label": empty.label},
            )

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Advised: _on_advised,
        Baseline: _on_baseline,
        Bench: _on_bench,
        BenchError: _on_error,
        Calibrated: _on_calibrated,
        Chosen: _on_chosen,
        Clocks: _on_clocks,
        Device: _on_device,
        End: _on_end,
        Fault: _on_fault_record,
        Gap: _on_gap,
        Headway: _on_headway,
        Mark: _on_mark,
        Noted: _on_notice,
        Output: _on_output,
        Paced: _on_paced,
        ProbeClock: _on_probe,
        Progress: _on_progress,
        Skip: _on_skip,
        Start: _on_start,
        State: _on_state,
        Telemetry: _on_reading,
        Timing: _on_timing,
        Visit: _on_visit,
        Watching: _on_watching,
        Window: _on_window,
    }

    # -- what the statistics say

    def analyse(self, now_ns: int, *, is_final: bool = False) -> Analysis:
        """Ask the statistics; once a second is enough. The answers stand in the next snapshot."""
        tick_ns = float(self._timer.resolution_ns or 0) if self._timer else 0.0
        against: dict[int, int | None] = {}
        for bench, row in self.rows.items():
            base = self.baseline_of(row)
            against[bench] = None if base is None else base.info.bench
        rows = [row.data(against[bench], tick_ns) for bench, row in self.rows.items()]
        locked = self._clocks.in_force_mhz
        epoch_ns = self._epoch_ns
        analysis = self._analyst.update(
            rows,
            self.readings(now_ns, now_ns - _LOOK_BACK_NS),
            now_ns,
            epoch_ns=epoch_ns,
            locked_mhz=locked,
            whole=self.readings(now_ns, epoch_ns) if is_final else None,
        )
        self._weigh_energy(now_ns, everything=is_final)
        for bench, found in analysis.rows.items():
            row = self.rows[bench]
            row.word, row.drift, row.effect = found.word, found.drift, found.effect
            row.ratio, row.ratio_to = found.ratio, against[bench]
            row.found = {}
            if found.modes is not None:
                row.found["two modes"] = "2 modes"
            if row.starved_words:
                row.found["starved"] = row.starved_words
            if found.ratio is not None and found.ratio.moves:
                row.found["ratio moves"] = "ratio moves"
            if found.is_timer_limited:
                row.found["timer limited"] = "timer-limited"
        analysis = dataclasses.replace(analysis, advice=heeding(analysis.advice, self._clocks))
        self._analysis = analysis
        self._advise(now_ns, analysis.advice)
        if analysis.untrusted and not self._has_told_untrusted:
            self._has_told_untrusted = True
            self._tell_untrusted(analysis.untrusted[0], now_ns)
        return analysis

    def _advise(self, at_ns: int, advice: Advice) -> None:
        """The log tells when it changes."""
        self._advice = advice
        told = (advice.verdict, advice.lock_mhz)
        if told != self._told_advice:
            self._told_advice = told
            at = f" at {advice.lock_mhz} MHz" if advice.lock_mhz is not None else ""
            at += ", not worth it" if is_idle(advice) else ""
            self._log.line(at_ns, "event", f"advice: {advice.verdict}{at}")

    def _tell_untrusted(self, bench: int, at_ns: int) -> None:
        """A control row differs from what it copies."""
        ratio = self.rows[bench].ratio
        values = {} if ratio is None else {"low": ratio.low, "high": ratio.high}
        self._on_notice(
            Noted(
                Notice(
                    code="control differs",
                    at_ns=at_ns,
                    bench=bench,
                    level="error",
                    evidence=values,
                    of_epoch=True,
                )
            )
        )

    def _weigh_energy(self, now_ns: int, *, everything: bool) -> None:
        """Energy per call of a few rows in turn (of all at the end), from the last minute."""
        columns, device = self.telemetry_columns, self._device
        if device is None or not columns.t_ns.n:
            return
        rows = [row for row in self.rows.values() if row.info.parent is None and row.t_ns.n]
        count = len(rows) if everything else min(_ENERGY_ROWS, len(rows))
        part = columns.between(now_ns - _ENERGY_NS, now_ns + 1)
        for k in range(count):
            row = rows[(self._energy_turn + k) % len(rows)]
            row.energy = energy_per_call(
                row.windows(now_ns - _ENERGY_NS),
                columns.t_ns.view()[part],
                columns.fields["energy_mj"].view()[part],
                columns.fields["power_mw"].view()[part],
                device.sensors.get("energy_mj"),
                device.sensors.get("power_mw"),
            )
        self._energy_turn += count

    @property
    def analysis(self) -> Analysis:
        """The latest answers, with the evidence behind them."""
        return self._analysis

    def settled_interval(self, bench: int, now_ns: int) -> Interval | None:
        """Interval of a settled row's log median; None while it has not settled."""
        row = self.rows[bench]
        return self._analyst.settled_median(row.data(None, 0.0), now_ns)

    def sample_clock(self, t_ns: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The clock of samples that started at these times, and where it is the stream's own.

        In-stream where a probe measured within 0.2 s, else the last polled reading of the second
        before; NaN where neither is known.
        """
        polled_t = self.telemetry_columns.t_ns.view()
        polled = self.telemetry_columns.fields["sm_mhz"].view()
        mhz = np.full(len(t_ns), np.nan)
        if len(polled_t):
            index = np.searchsorted(polled_t, t_ns, side="right") - 1
            known = (index >= 0) & (t_ns - polled_t[index.clip(0)] <= NS_PER_S)
            mhz[known] = polled[index[known]]
        in_stream = np.zeros(len(t_ns), bool)
        probe_t = self.probe_t_ns.view()
        if len(probe_t):
            right = np.searchsorted(probe_t, t_ns).clip(0, len(probe_t) - 1)
            left = (right - 1).clip(0)
            nearer = np.abs(probe_t[left] - t_ns) <= np.abs(probe_t[right] - t_ns)
            nearest = np.where(nearer, left, right)
            in_stream = np.abs(probe_t[nearest] - t_ns) <= _PROBE_NEAR_NS
            mhz[in_stream] = self.probe_mhz.view()[nearest[in_stream]]
        return mhz, in_stream

    def readings(self, now_ns: int, from_ns: int) -> TelemetryData:
        """Readings since then; the clock is the stream's own where it was measured."""
        columns = self.telemetry_columns
        part = columns.between(from_ns, now_ns + 1)
        t_ns = columns.t_ns.view()[part]
        if not len(t_ns):
            return TelemetryData.none()
        fields = {name: column.view()[part] for name, column in columns.fields.items()}
        probe = None
        if self.probe_t_ns.n:
            times = self.probe_t_ns.view()
            first = int(np.searchsorted(times, from_ns))
            probe = Probe(times[first:], self.probe_mhz.view()[first:])
        reading, device = self._reading, self._device
        sensor = device.sensors.get("sm_mhz") if device is not None else None
        if sensor is not None and "nominal" in sensor.label:
            # A figure from a table, not a measurement: nothing may be concluded from its standing.
            fields["sm_mhz"] = np.full(len(t_ns), np.nan)
        return TelemetryData(
            t_ns=t_ns,
            sm_mhz=fields["sm_mhz"],
            probe=probe,
            temp_c=fields["temp_c"],
            reasons=columns.reasons.view()[part],
            power_ns=columns.throttle_ns["power"].view()[part],
            thermal_ns=columns.throttle_ns["thermal"].view()[part],
            low_mhz=fields["sm_mhz_min"] if columns.has_low else None,
            supported_mhz=tuple(self._clocks.supported_mhz)
            or (tuple(device.supported_sm_mhz) if device else ()),
            is_shared=bool(reading and reading.others),
            power_mw=fields["power_mw"],
            cap_w=_watts(reading, device),
            temp_limit_c=_slowdown_c(device),
            max_mhz=device.max_sm_mhz if device else None,
        )

    # -- views out

    @property
    def start_ns(self) -> int:
        """The session's beginning."""
        return self._start.at_ns if self._start else 0

    @property
    def device(self) -> DeviceInfo | None:
        """The watched device."""
        return self._device

    def steps(self) -> list[StepAt]:
        """What a clock sweep has found so far; worked out when a visit has come on."""
        return self._steps

    @property
    def advice(self) -> Advice:
        """Whether to lock the clocks."""
        return self._advice

    @property
    def _epoch_ns(self) -> int:
        """When the epoch began."""
        return self._epochs[-1].from_ns if self._epochs else 0

    @property
    def clocks(self) -> ClockState:
        """What is known of the clocks."""
        return self._clocks

    @property
    def is_starved(self) -> bool:
        """Every row that is timed leaves the device waiting for the host."""
        running = [row for row in self.rows.values() if row.has_counted and not row.info.parent]
        return bool(running) and all(row.is_told("CPU-bound") for row in running)

    @property
    def phase(self) -> str:
        """What the worker is doing; see `Snapshot.phase`."""
        return self._phase[0]

    @property
    def where_it_stands(self) -> str:
        """Why it ended before the first sample, and what the worker was at."""
        busy = [
            f"{plain.name(row.info.name)} {row.state}"
            for row in self.rows.values()
            if row.state in (RowState.PREPARING, RowState.COMPILING)
        ]
        at = ", ".join(busy) or self._last_phase
        why = self.stop_reason or "the run was ended"
        return f": {why} (while {at}{', which had not returned' if busy else ''})"

    @property
    def unsampled(self) -> list[str]:
        """Rows that were to be timed, did not fail, and have no sample that counts."""
        return [
            row.info.name
            for row in self.rows.values()
            if row.info.parent is None
            and not row.is_sampled
            and row.state not in (RowState.OFF, RowState.FAILED)
        ]

    @property
    def phase_detail(self) -> str:
        """More of what the worker does: the file that it imports."""
        return self._phase[1]

    @property
    def has_ended(self) -> bool:
        """True after the worker's last record, or the session's."""
        return self._end is not None or self._phase[0] == RunPhase.ENDED

    @property
    def is_complete(self) -> bool:
        """It came to its own end, and all of it is here."""
        return self._end is not None and self._end.complete and self.is_whole

    @property
    def stop_reason(self) -> str:
        """Why it ended."""
        if self._end is not None:
            return self._end.reason
        return self._phase[1] if self._phase[0] == RunPhase.ENDED else ""

    def series(self, bench: int, from_ns: int, to_ns: int, limit: int = 20_000) -> Series:
        """The samples of a row in a stretch of time; evenly thinned to about `limit` points."""
        row = self.rows.get(bench)
        if row is None:
            return Series(np.empty(0, np.int64), np.empty(0), np.empty(0, bool))
        times = row.t_ns.view()
        a, b = (int(i) for i in np.searchsorted(times, (from_ns, to_ns)))
        step = max(1, -(-(b - a) // limit))
        window = row.window_ns.view()[a:b:step]
        inner = row.inner.view()[a:b:step]
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(window > 0, window / (inner * 1e9), np.nan)
        flags = row.flags.view()[a:b:step]
        return Series(times[a:b:step], seconds, (flags & int(EXCLUDED | Flag.STALL)) != 0)

    def bins(self, bench: int, from_ns: int, to_ns: int) -> BinSeries:
        """The row's closed bins of `BIN_NS` in a stretch of time."""
        row = self.rows.get(bench)
        return (row.bins if row else Bins(BIN_NS)).series(from_ns, to_ns)

    def telemetry(self, field: str, from_ns: int, to_ns: int) -> tuple[IntArray, FloatArray]:
        """Times and values of one telemetry field; NaN where it was not reported."""
        part = self.telemetry_columns.between(from_ns, to_ns)
        times = self.telemetry_columns.t_ns.view()[part]
        return times, self.telemetry_columns.fields[field].view()[part]

    def marks(self, from_ns: int, to_ns: int) -> list[tuple[int, str]]:
        """Epoch marks within a stretch of time."""
        return [(t, label) for t, label in self._marks if from_ns <= t < to_ns]

    def changes(self, bench: int, from_ns: int, to_ns: int) -> list[tuple[int, str]]:
        """Moments of the epoch at which a row's level changed, and by how much."""
        row = self.rows.get(bench)
        changes = [] if row is None else row.changes()
        return [
            (c.at_ns, f"{c.change * 100:+.1f} %") for c in changes if from_ns <= c.at_ns < to_ns
        ]

    def gaps(self, from_ns: int, to_ns: int) -> list[tuple[int, int, str]]:
        """Times of standing still that touch a stretch of time."""
        found = []
        for gap in reversed(self._gaps):
            if gap[1] <= from_ns:
                break
            if gap[0] < to_ns:
                found.append(gap)
        return found[::-1]

    def baseline_of(self, row: RowStore) -> RowStore | None:
        """The row that this one is compared with; None for a baseline and for phases."""
        if row.info.parent is not None:
            return None
        if row.info.control_of is not None:
            return self.rows.get(row.info.control_of)
        if self.baseline is not None:
            chosen = self.rows.get(self.baseline)
            return None if chosen is row else chosen
        tops = [
            r for r in self.rows.values() if r.info.parent is None and r.info.control_of is None
        ]
        group = [r for r in tops if r.info.group == row.info.group]
        base = next((r for r in group if r.info.is_baseline), None)
        if base is None and len(group) > 1:
            # The first that was timed, so that one failure does not take all ratios with it.
            base = next((r for r in group if r.is_sampled or r.state is not RowState.FAILED), None)
        return None if base is row else base

    def snapshot(self, now_ns: int) -> Snapshot:
        """Everything a front end shows, now."""
        start = self._start
        end_ns = self._end.at_ns if self._end is not None else now_ns
        config = start.config if start else RunConfig()
        if self._chosen is not None:
            config = _with_device(config, self._chosen)
        return Snapshot(
            at_ns=now_ns,
            start_ns=self.start_ns,
            wall_unix_ns=start.wall_unix_ns if start else 0,
            suite=start.suite if start else "",
            config=config,
            environment={**start.environment, **self._threads} if start else {},
            simulated=start.simulated if start else "",
            timer=self._timer,
            device=self._device,
            reading=self._reading,
            telemetry_state=self._telemetry_words(),
            clocks=self._clocks,
            clocks_during=self._clocks_during,
            phase=self._phase[0],
            phase_detail=self._phase[1],
            pace=self._pace or config.pace,
            elapsed_s=max(0, end_ns - self.start_ns) / NS_PER_S if start else 0.0,
            rounds=self._rounds,
            samples=self._samples,
            samples_per_s=self._sample_rate(now_ns),
            window=self.window,
            rows=tuple(self._row_views()),
            baseline=self.baseline,
            advice=self._advice,
            untrusted=self._analysis.untrusted,
            solo_low_mhz=dict(self._analysis.solo_low_mhz),
            log=tuple(self._log.lines),
            log_total=self._log.total,
            told=self._log.notes.told,
            not_told=self._log.notes.left_out,
            neighbours=self._log.notes.neighbours,
            epochs=tuple(self._epochs),
            skipped=tuple(self._skipped),
            progress=self.progress,
            stop_reason=self.stop_reason,
            complete=self.is_complete,
            banner=self._banner(),
        )

    def _banner(self) -> str:
        """The worst of what a user must not overlook."""
        if self.fatal or self._fault:
            return self.fatal or self._fault
        if self._analysis.untrusted:
            return "the control row differs from its baseline: no ratio of this run can be trusted"
        return self._distortion

    def _telemetry_words(self) -> str:
        if self._telemetry_state is not None:
            return self._telemetry_state
        if self.telemetry_columns.t_ns.n:
            return ""
        return "no readings" if self.has_ended else "not read yet"

    def _sample_rate(self, now_ns: int) -> float:
        """Samples a second over the last two, or since the first one; 0 after as long a rest."""
        first_ns = self._first_sample_ns
        if first_ns is None:
            return 0.0
        # What is newer than the last sample is on its way, unless it has been for long.
        to_ns = self.last_sample_ns if now_ns - self.last_sample_ns < NS_PER_S // 2 else now_ns
        from_ns = max(first_ns, to_ns - _RATE_NS)
        tops = (row for row in self.rows.values() if row.info.parent is None)
        n = sum(row.count_between(from_ns, to_ns) for row in tops)
        return n * NS_PER_S / (to_ns - from_ns) if to_ns > from_ns else 0.0

    def _row_views(self) -> Iterable[RowView]:
        shares = self._reasons.shares
        children: dict[int, list[RowStore]] = {}
        for row in self.rows.values():
            if row.info.parent is not None:
                children.setdefault(row.info.parent, []).append(row)
        for row in self.rows.values():
            if row.info.parent is None:
                yield from self._with_phases(row, children, shares)

    def _with_phases(
        self,
        row: RowStore,
        children: Mapping[int, list[RowStore]],
        shares: tuple[tuple[str, float], ...],
    ) -> Iterable[RowView]:
        """A row, its phases below it, and what none of them accounts for."""
        view = self._row_view(row, shares)
        yield view
        parts = children.get(row.info.bench)
        if not parts:
            return
        for part in parts:
            yield from self._with_phases(part, children, shares)
        rest = _rest([part.statistics(self.window) for part in parts], view)
        yield RowView(
            bench=-1 - row.info.bench,
            name="unaccounted",
            parent=row.info.bench,
            state=row.state,
            rolling=rest[0],
            whole=rest[1],
        )

    def _row_view(self, row: RowStore, shares: tuple[tuple[str, float], ...]) -> RowView:
        info = row.info
        rolling, whole = row.statistics(self.window)
        base = self.baseline_of(row)
        cal = row.calibrated
        return RowView(
            bench=info.bench,
            name=info.name,
            group=info.group,
            parent=info.parent,
            control_of=info.control_of,
            state=row.state,
            detail=row.detail,
            rolling=rolling,
            whole=whole,
            n_all=row.t_ns.n,
            n_excluded=row.n_excluded,
            left_out=row.left_out,
            stalls=row.stalls,
            trend=row.trend,
            word=row.word,
            drift=row.drift,
            effect=row.effect,
            ratio=row.ratio if base is not None and row.ratio_to == base.info.bench else None,
            is_baseline=base is None and info.parent is None,
            baseline_name=base.info.name if base is not None else "",
            flops=info.flops,
            bytes=info.bytes,
            inner=cal.inner if cal else 1,
            cache=cal.cache if cal else str(self._cache_wanted()),
            refill=cal.refill if cal else 0,
            here_s=cal.here_ns / NS_PER_S if cal and cal.here_ns else None,
            alone_s=cal.alone_ns / NS_PER_S if cal and cal.alone_ns else None,
            mode=cal.mode if cal else "eager",
            badges=row.all_badges,
            energy_j=row.energy.joules,
            energy_label=row.energy.label,
            throttled=shares,
            error=row.error,
            traceback=row.traceback,
        )

    def _cache_wanted(self) -> Any:
        return self._start.config.cache if self._start else "warm"


class _Reasons:
    """Why the clock was held back: as two readings confirm it, counted over an epoch."""

    def __init__(self) -> None:
        self._raw: int | None = None
        self._counts: Counter[str] = Counter()
        self._total = 0

    def confirmed(self, reading: Reading) -> Reading:
        """A reading with the reasons that are shown; the raw mask is kept elsewhere."""
        if reading.reasons is None:
            return reading
        seen = confirmed_reasons(self._raw, reading.reasons)
        self._raw = reading.reasons
        self._total += 1
        self._counts.update(reason_words(seen))
        return reading if seen == reading.reasons else replace(reading, reasons=seen)

    def clear(self) -> None:
        """A new epoch."""
        self._counts.clear()
        self._total = 0

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """Each reason with its share of the readings, the most frequent first."""
        return tuple(
            (word, count / self._total)
            for word, count in self._counts.most_common()
            if word not in ("idle", "app clocks")
        )


def _rest(parts: Sequence[tuple[Stats, Stats]], row: RowView) -> tuple[Stats, Stats]:
    """What is left of a row's mean time without its phases: means add up, medians need not."""

    def left(total: Stats, means: Iterable[float | None]) -> Stats:
        known = [mean for mean in means if mean is not None]
        if total.mean_s is None or len(known) < len(parts):
            return Stats()
        rest_s = max(0.0, total.mean_s - sum(known))
        return Stats(n=total.n, median_s=rest_s, mean_s=rest_s)

    return (
        left(row.rolling, (rolling.mean_s for rolling, _ in parts)),
        left(row.whole, (whole.mean_s for _, whole in parts)),
    )


def _watts(reading: Reading | None, device: DeviceInfo | None) -> float | None:
    """The power limit in force."""
    limit = reading.power_limit_mw if reading is not None else None
    limit = limit or (device.power_limit_mw if device is not None else None)
    return None if limit is None else limit * 1e-3


def _slowdown_c(device: DeviceInfo | None) -> float | None:
    """Where the device begins to slow down for its temperature: the lowest limit it tells."""
    return min(device.temp_limits_c.values(), default=None) if device is not None else None


def _device_line(info: DeviceInfo) -> str:
    uuid = info.slice or info.uuid if info.kind in (Vendor.NVIDIA, Vendor.AMD) else ""
    parts = [info.name, uuid, info.driver or ""]
    return " ".join(part for part in parts if part)


def _with_device(config: RunConfig, chosen: Chosen) -> RunConfig:
    values = {name: getattr(config, name) for name in config.__struct_fields__}
    values.update(device=chosen.device, device_reason=chosen.reason)
    return RunConfig(**values)

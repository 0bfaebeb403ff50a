"""The fold: records in, `Snapshot` and series out. Owned by one thread, the front end's.

Raw samples are kept whole; everything that is shown is derived from bounded state, so that a frame
costs the same after an hour as after a second.
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from usv_tui import plain
from usv_tui.model import (
    EXCLUDED,
    Advice,
    ClockState,
    DeviceInfo,
    Flag,
    Reading,
    RowState,
    RunConfig,
    Skipped,
    TimerInfo,
    reason_words,
)
from usv_tui.records import (
    Advised,
    AnyRecord,
    Bench,
    BenchError,
    Calibrated,
    Chosen,
    Clocks,
    Device,
    End,
    Fault,
    Gap,
    Mark,
    Noted,
    Output,
    ProbeClock,
    Progress,
    Samples,
    Skip,
    Start,
    State,
    Telemetry,
    Timing,
    Visit,
    time_of,
)
from usv_tui.report.wording import clock_words, cost_words
from usv_tui.session.advised import heeding
from usv_tui.session.columns import Bins, Column, TelemetryColumns
from usv_tui.session.row_store import BIN_NS, RowStore
from usv_tui.session.snapshot import (
    BinSeries,
    EpochView,
    FloatArray,
    IntArray,
    LogLine,
    RowView,
    Series,
    Snapshot,
)
from usv_tui.session.sweep import StepAt, steps_of
from usv_tui.session.told import Notes
from usv_tui.session.wording import sentence
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.inputs import Probe, TelemetryData
from usv_tui.stats.pairs import Interval
from usv_tui.stats.rolling import Stats
from usv_tui.stats.segments import change_points
from usv_tui.suite.discovery import NO_BENCHMARK
from usv_tui.telemetry.energy import energy_per_call
from usv_tui.telemetry.sensors import confirmed_reasons
from usv_tui.timesource import NS_PER_S

DEFAULT_WINDOW = 1_000
_LOG_LINES = 2_000
_RATE_NS = 2 * NS_PER_S
_ENERGY_NS = 60 * NS_PER_S
_ENERGY_ROWS = 4
_CHANGES_NS = 2 * NS_PER_S
_PROBE_NEAR_NS = NS_PER_S // 5
_LOOK_BACK_NS = 60 * NS_PER_S


NOT_WHOLE = ("damaged session", "joined sessions")
"""Codes of notices after which a file is no whole session."""


class Store:
    """All that is known of a session. `apply` folds records in; the rest reads."""

    def __init__(self) -> None:
        self.rows: dict[int, RowStore] = {}
        self.telemetry_columns = TelemetryColumns()
        self.probe_t_ns = Column(np.int64)
        self.probe_mhz = Column(np.float64)
        """The clock measured inside the stream, where there is a probe."""
        self.window = DEFAULT_WINDOW
        self.baseline: int | None = None
        self.failed = False
        """What was asked for by name and cannot be timed, with the reasons."""
        self.fatal = ""
        self.journal_failure = ""
        self._fault = ""
        self._distortion = ""
        self.progress = ""
        self.telemetry_state: str | None = None
        """What the watcher says of itself, while there is one."""
        self.visits: list[Visit] = []
        """Of a clock sweep."""
        self._steps: list[StepAt] = []
        self._steps_n = 0
        self.overheads: dict[str, float] = {}
        self.last_sample_ns = 0
        self.last_ns = 0
        """The latest time that any record tells of."""
        self._start: Start | None = None
        self._end: End | None = None
        self._chosen: Chosen | None = None
        self._timer: TimerInfo | None = None
        self._device: DeviceInfo | None = None
        self._reading: Reading | None = None
        self._raw_reasons: int | None = None
        self._clocks = ClockState()
        self._clocks_during = ClockState()
        """The last state of a lock of ours in this epoch."""
        self._advice = Advice()
        self._phase = ("starting", "")
        self._last_phase = "starting"
        self._pace: str | None = None
        self.is_whole = True
        """False for a file that lacks a part of its session, or holds more than one."""
        self._skipped: list[Skipped] = []
        self._log: deque[LogLine] = deque(maxlen=_LOG_LINES)
        self._log_total = 0
        self._threads: dict[str, Any] = {}
        """How many threads the framework computes with: known to the worker alone."""
        self._notes = Notes()
        self._epochs: list[EpochView] = []
        self._gaps: list[tuple[int, int, str]] = []
        self._marks: list[tuple[int, str]] = []
        self._rounds = 0
        self._samples = 0
        self._rate: deque[tuple[int, int]] = deque()
        self._reason_counts: Counter[str] = Counter()
        self._reason_total = 0
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
                continue
            if blocks:
                self._add_samples(blocks)
                blocks = []
            self._apply_one(record)
            self.last_ns = max(self.last_ns, time_of(record))
        if blocks:
            self._add_samples(blocks)

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
        self._rounds = max(self._rounds, int(all_rounds.max()) + 1)
        self.last_sample_ns = int((times + windows).max())
        self.last_ns = max(self.last_ns, self.last_sample_ns)

    def _apply_one(self, record: AnyRecord) -> None:
        if isinstance(record, Telemetry):
            self._add_reading(record.reading)
        elif isinstance(record, Output):
            self.log(record.at_ns, "out", record.text)
        elif isinstance(record, Start):
            self._start = record
            self._epochs = [EpochView(0, "start", record.at_ns, None)]
            self._pace = record.config.pace
        elif isinstance(record, Chosen):
            self._chosen = record
            self.log(record.at_ns, "event", f"device {record.device}: {record.reason}")
        elif isinstance(record, Progress):
            self._on_progress(record)
        elif isinstance(record, Timing):
            self._timer = record.info
        elif isinstance(record, Device):
            if self._device is None and not self.has_ended:
                self.log(record.at_ns, "event", _device_line(record.info))
            self._device = record.info
        elif isinstance(record, Visit):
            self.visits.append(record)
        elif isinstance(record, Bench):
            self.rows[record.info.bench] = RowStore(record.info)
        elif isinstance(record, Skip):
            self._on_skip(record)
        elif isinstance(record, State):
            row = self.rows.get(record.bench)
            if row is not None:
                row.state, row.detail, row.state_ns = record.state, record.detail, record.at_ns
        elif isinstance(record, Calibrated):
            row = self.rows.get(record.bench)
            if row is not None:
                row.calibrated = record
        elif isinstance(record, Noted):
            self._on_notice(record)
        elif isinstance(record, BenchError):
            self._on_error(record)
        elif isinstance(record, Mark):
            self._on_mark(record)
        elif isinstance(record, Gap):
            self._gaps.append((record.from_ns, record.to_ns, record.reason))
        elif isinstance(record, Clocks):
            self._on_clocks(record)
        elif isinstance(record, Advised):
            self._advice = advice = record.advice
            at = f" at {advice.lock_mhz} MHz" if advice.lock_mhz is not None else ""
            self.log(record.at_ns, "event", f"advice: {advice.verdict}{at}")
        elif isinstance(record, ProbeClock):
            self.probe_t_ns.extend(np.array(record.at_ns, dtype=np.int64))
            self.probe_mhz.extend(np.array(record.sm_mhz, dtype=np.float64))
        elif isinstance(record, Fault):
            self._fault = record.message
            hint = f" ({record.hint})" if record.hint else ""
            evidence = {"exit_code": record.exit_code, "message": record.message}
            self.tell(record.at_ns, "error", "fault", f"{record.message}{hint}", evidence)
        elif isinstance(record, End):
            self._end = record

    def _on_skip(self, record: Skip) -> None:
        skipped = Skipped(record.name, record.reason, record.is_refused)
        self._skipped.append(skipped)
        name = plain.name(record.name)
        if record.is_refused:
            self.log(record.at_ns, "error", f"not timed: {name}: {record.reason}")
        elif not record.reason.startswith(NO_BENCHMARK):
            self.log(record.at_ns, "event", f"skipped {name}: {record.reason}")

    @property
    def refused(self) -> list[Skipped]:
        """What was asked for and cannot be timed."""
        return [skipped for skipped in self._skipped if skipped.is_refused]

    def _on_clocks(self, record: Clocks) -> None:
        state = record.state
        if state.is_ours:
            self._clocks_during = state
            self._notes.take_back("lock refused", "")
        self._clocks = state
        if state.is_unmet:
            return  # a notice has said why
        if self._phase[0] != "ended" or self._clocks_during.locked_mhz is not None:
            evidence = f" ({state.evidence})" if state.evidence else ""
            words = f"{clock_words(state)}{evidence}{cost_words(state)}"
            self.log(record.at_ns, "event", f"clocks: {words}")

    def _on_progress(self, record: Progress) -> None:
        if record.phase != self._phase[0] and not (record.phase == "ended" and self._fault):
            self.log(record.at_ns, "event", f"{record.phase} {record.detail}".strip())
        self._phase = (record.phase, record.detail)
        if record.phase != "ended":
            self._last_phase = record.phase

    def _on_notice(self, record: Noted) -> None:
        notice = record.notice
        row = None if notice.bench is None else self.rows.get(notice.bench)
        if notice.code in NOT_WHOLE:
            self.is_whole = False
        if notice.code == "device lost":
            self.fatal = sentence(notice)
        elif notice.level == "error" and row is None:
            self._distortion = sentence(notice)
        if notice.code == "fresh worker":
            self._fault = ""
        if notice.code == "tried again" and row is not None:
            row.error = row.traceback = ""
            self.failed = any(other.error for other in self.rows.values())
        if notice.code == "threads":
            self._threads = dict(notice.evidence)
        if notice.evidence.get("withdrawn"):
            self._notes.take_back(notice.code, row.info.name if row else "")
            if row is not None:
                row.badges.pop(notice.code, None)
        if row is not None and notice.evidence.get("badge") is not False:
            row.badges[notice.code] = str(notice.evidence.get("badge") or notice.code)
        name = row.info.name if row else ""
        kind = "event" if notice.level == "info" else notice.level
        self.log(notice.at_ns, kind, sentence(notice, name))
        if notice.level != "info":
            self._notes.add_notice(notice, name)

    def _on_error(self, record: BenchError) -> None:
        self.failed = True
        row = self.rows.get(record.bench)
        name = row.info.name if row else "the worker"
        if row is not None:
            row.error, row.traceback = record.message, record.traceback
        if record.fatal:
            self.fatal = f"the device's context is lost after {name}: restart the measurement"
            self.tell(record.at_ns, "error", "context lost", self.fatal, {"row": name})
        if row is None:
            self.tell(record.at_ns, "error", record.kind, f"{name}: {record.message}")
        else:
            self.log(record.at_ns, "error", f"{name}: {record.message}")

    def _on_mark(self, record: Mark) -> None:
        self._marks.append((record.at_ns, record.label))
        self._analyst.reset()
        label = record.label or "mark"
        self.log(record.at_ns, "mark", label)
        if label.startswith("pace "):
            self._pace = label.removeprefix("pace ")
        if record.bench is not None:
            row = self.rows.get(record.bench)
            if row is not None:
                row.start_epoch()
            return
        if self._epochs:
            last = self._epochs[-1]
            self._epochs[-1] = EpochView(last.number, last.label, last.from_ns, record.at_ns)
        self._epochs.append(EpochView(len(self._epochs), label, record.at_ns, None))
        if not self._clocks.is_ours:
            self._clocks_during = ClockState()
        self._reason_counts.clear()
        self._reason_total = 0
        for row in self.rows.values():
            row.start_epoch()

    def _add_reading(self, reading: Reading) -> None:
        self.telemetry_columns.add(reading)
        if reading.reasons is not None:
            # The raw mask is kept; shown and counted is what two witnesses confirm.
            seen = confirmed_reasons(self._raw_reasons, reading.reasons)
            self._raw_reasons = reading.reasons
            if seen != reading.reasons:
                reading = msgspec.structs.replace(reading, reasons=seen)
            self._reason_total += 1
            self._reason_counts.update(reason_words(seen))
        self._reading = reading

    def log(self, at_ns: int, kind: str, text: str) -> None:
        """One more line in the event log."""
        self._log.append(LogLine(at_ns, kind, plain.cut(text)))
        self._log_total += 1

    def tell(
        self,
        at_ns: int,
        level: str,
        code: str,
        text: str,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """What nobody may overlook: a line in the log now, and a note under the final table."""
        self.log(at_ns, level, text)
        self._notes.add(at_ns, level, code, text, evidence or {})

    def reopen_epoch(self) -> None:
        """At the end: an epoch too young to have a counted sample gives way to the one before it.

        Somebody who locks the clocks and quits within the ramp keeps the figures of before.
        """
        while len(self._epochs) > 1 and not any(row.has_counted for row in self.rows.values()):
            empty = self._epochs.pop()
            before = self._epochs[-1]
            self._clocks_during = ClockState()
            self._analyst.reset()
            for row in self.rows.values():
                row.reopen(before.from_ns)
            self.tell(
                self.last_ns,
                "warn",
                "epoch reopened",
                f"nothing was counted since {empty.label!r}: the figures are from before it",
                {"label": empty.label},
            )

    # -- what the statistics say

    def analyse(self, now_ns: int, *, is_final: bool = False) -> Analysis:
        """Ask the statistics; once a second is enough. The answers stand in the next snapshot."""
        tick_ns = float(self._timer.resolution_ns or 0) if self._timer else 0.0
        rows = []
        for row in self.rows.values():
            base = self.baseline_of(row)
            rows.append(row.data(base.info.bench if base else None, tick_ns))
        locked = self._clocks.in_force_mhz
        epoch_ns = self._epochs[-1].from_ns if self._epochs else 0
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
            row.ratio = found.ratio
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
        self._advice = analysis.advice
        return analysis

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
        if self._steps_n != len(self.visits):
            self._steps_n, self._steps = len(self.visits), steps_of(self, self.visits)
        return self._steps

    @property
    def clocks(self) -> ClockState:
        """What is known of the clocks."""
        return self._clocks

    @property
    def is_starved(self) -> bool:
        """Every row that is timed leaves the device waiting for the host."""
        running = [row for row in self.rows.values() if row.has_counted and not row.info.parent]
        return bool(running) and all("CPU-bound" in row.badges for row in running)

    @property
    def phase(self) -> str:
        """What the worker is doing; see `Snapshot.phase`."""
        return self._phase[0]

    @property
    def where_it_stands(self) -> str:
        """Why it ended before the first sample, and what the worker was at."""
        busy = [
            f"{row.info.name} {row.state}"
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
        return self._end is not None or self._phase[0] == "ended"

    @property
    def stop_reason(self) -> str:
        """Why it ended."""
        if self._end is not None:
            return self._end.reason
        return self._phase[1] if self._phase[0] == "ended" else ""

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
        """Moments at which a row's level changed, and by how much; looked for every two seconds."""
        row = self.rows.get(bench)
        if row is None or not self._epochs:
            return []
        if self.last_ns - row.changes_ns > _CHANGES_NS:
            row.changes_ns = self.last_ns
            bins = row.bins.series(self._epochs[-1].from_ns, self.last_ns)
            row.changes = change_points(bins.t_ns, bins.median_s)
        return [
            (c.at_ns, f"{c.change * 100:+.1f} %") for c in row.changes if from_ns <= c.at_ns < to_ns
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
            rows=tuple(self._row_views(now_ns)),
            baseline=self.baseline,
            advice=self._advice,
            untrusted=self._analysis.untrusted,
            solo_low_mhz=dict(self._analysis.solo_low_mhz),
            log=tuple(self._log),
            log_total=self._log_total,
            told=self._notes.told,
            not_told=self._notes.left_out,
            neighbours=self._notes.neighbours,
            epochs=tuple(self._epochs),
            skipped=tuple(self._skipped),
            progress=self.progress,
            stop_reason=self.stop_reason,
            complete=self._end is not None and self._end.complete and self.is_whole,
            banner=self._banner(),
            overheads=dict(self.overheads),
        )

    def _banner(self) -> str:
        """The worst of what a user must not overlook."""
        if self.fatal or self._fault:
            return self.fatal or self._fault
        if self._analysis.untrusted:
            return "the control row differs from its baseline: no ratio of this run can be trusted"
        return self._distortion

    def _telemetry_words(self) -> str:
        if self.telemetry_state is not None:
            return self.telemetry_state
        if self.telemetry_columns.t_ns.n:
            return ""
        return "no readings" if self.has_ended else "not read yet"

    def _sample_rate(self, now_ns: int) -> float:
        self._rate.append((now_ns, self._samples))
        while len(self._rate) > 2 and now_ns - self._rate[1][0] >= _RATE_NS:
            self._rate.popleft()
        (t0, n0), (t1, n1) = self._rate[0], self._rate[-1]
        return (n1 - n0) * NS_PER_S / (t1 - t0) if t1 > t0 else 0.0

    def _row_views(self, now_ns: int) -> Iterable[RowView]:
        shares = tuple(
            (word, count / self._reason_total)
            for word, count in self._reason_counts.most_common()
            if word not in ("idle", "app clocks")
        )
        children: dict[int, list[RowStore]] = {}
        for row in self.rows.values():
            if row.info.parent is not None:
                children.setdefault(row.info.parent, []).append(row)
        for row in self.rows.values():
            if row.info.parent is None:
                yield from self._with_phases(row, children, now_ns, shares)

    def _with_phases(
        self,
        row: RowStore,
        children: Mapping[int, list[RowStore]],
        now_ns: int,
        shares: tuple[tuple[str, float], ...],
    ) -> Iterable[RowView]:
        """A row, its phases below it, and what none of them accounts for."""
        view = self._row_view(row, now_ns, shares)
        yield view
        parts = children.get(row.info.bench)
        if not parts:
            return
        for part in parts:
            yield from self._with_phases(part, children, now_ns, shares)
        rest = _rest([part.statistics(self.window, now_ns) for part in parts], view)
        yield RowView(
            bench=-1 - row.info.bench,
            name="unaccounted",
            parent=row.info.bench,
            state=row.state,
            rolling=rest[0],
            whole=rest[1],
        )

    def _row_view(
        self, row: RowStore, now_ns: int, shares: tuple[tuple[str, float], ...]
    ) -> RowView:
        info = row.info
        rolling, whole = row.statistics(self.window, now_ns, is_final=self.has_ended)
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
            trend=row.trend(now_ns, self.start_ns),
            word=row.word,
            drift=row.drift,
            effect=row.effect,
            ratio=row.ratio if base is not None else None,
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
            badges=(*row.badges.values(), *row.found.values()),
            energy_j=row.energy.joules,
            energy_label=row.energy.label,
            throttled=shares,
            error=row.error,
            traceback=row.traceback,
        )

    def _cache_wanted(self) -> Any:
        return self._start.config.cache if self._start else "warm"


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
    uuid = info.slice or info.uuid if info.kind in ("nvidia", "amd") else ""
    parts = [info.name, uuid, info.driver or ""]
    return " ".join(part for part in parts if part)


def _with_device(config: RunConfig, chosen: Chosen) -> RunConfig:
    values = {name: getattr(config, name) for name in config.__struct_fields__}
    values.update(device=chosen.device, device_reason=chosen.reason)
    return RunConfig(**values)

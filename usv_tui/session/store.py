"""The fold: records in, `Snapshot` and series out. Owned by one thread, the front end's.

All that is shown follows from the records alone, in whatever lots they come and however often one
looks: what the statistics say is asked at beats of the session's own clock, as the records tell it.
So a session says the same live, when it is exported, and in a fold that stops at any record.

Everything that is shown is derived from bounded state, so that a frame costs the same after an hour
as after a second. Raw samples are kept as far as there is room for them; what is older is read from
the file again (`session/raw.py`) where somebody asks for it.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from usv_tui import plain
from usv_tui.diagnosis.growth import LOADED
from usv_tui.diagnosis.vocabulary import badge_of
from usv_tui.model import (
    EXCLUDED,
    LOCKED_AT,
    Advice,
    ClockState,
    DeviceInfo,
    Flag,
    Notice,
    Reading,
    RowState,
    RunPhase,
    Skipped,
    TimerInfo,
    Verdict,
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
    Ghosts,
    Headway,
    Launch,
    Launched,
    Mark,
    Noted,
    Output,
    Paced,
    ProbeClock,
    Progress,
    Rebuilt,
    Samples,
    Skip,
    Start,
    State,
    Telemetry,
    Timing,
    Version,
    Visit,
    Watching,
    Window,
    time_of,
)
from usv_tui.report.wording.advice import is_idle
from usv_tui.report.wording.notices import sentence
from usv_tui.report.wording.rows import clock_words, cost_words, std_change
from usv_tui.session import readings, views
from usv_tui.session.advised import heeding
from usv_tui.session.columns import Bins, Column, Raw, TelemetryColumns, thin
from usv_tui.session.lane import Lane, Stretch
from usv_tui.session.launches import Launches
from usv_tui.session.row_store import BIN_NS, MAX_WINDOW, RowStore
from usv_tui.session.snapshot import (
    BinSeries,
    EpochView,
    FloatArray,
    IntArray,
    Series,
    Snapshot,
)
from usv_tui.session.sweep import StepAt, steps_of
from usv_tui.session.told import Log
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.inputs import TelemetryData
from usv_tui.stats.pairs import Interval
from usv_tui.telemetry.energy import energy_per_call
from usv_tui.telemetry.sensors import confirmed_reasons
from usv_tui.timesource import NS_PER_S
from usv_tui.vendor.kinds import BACKENDS

DEFAULT_WINDOW = 1_000
_ENERGY_NS = 60 * NS_PER_S
_ENERGY_ROWS = 4
_LOOK_BACK_NS = 60 * NS_PER_S
ROOM = 3 << 20
"""Raw samples of all rows that are kept in memory: 33 bytes each …"""
_LEAST_ROOM = 1 << 16
"""… but of a row never fewer than so many …"""
_LEAST_SPILL = 1 << 10
"""… or so many where they are only brought to a file."""
_MOST_PROBED = 1 << 18
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

    _has_script = False
    script_exit: int | None = None
    """How a script ended that was run as it is."""

    def __init__(
        self,
        on_fault: Callable[[str, Exception], object] | None = None,
        *,
        spill: Callable[[int, Raw], object] | None = None,
        room: int = ROOM,
        only: int | None = None,
    ) -> None:
        """`on_fault` is told of errors of ours in the statistics; without it they are raised.

        `room` is for how many raw samples there is. `spill` takes a row's number and those that it
        must give up; then nothing but samples is wanted (of the row `only`), no statistics.
        """
        self._on_fault, self._spill, self._room, self._only = on_fault, spill, room, only
        self.archive: Path | None = None
        """The file in which everything is, if there is one."""
        self.rows: dict[int, RowStore] = {}
        self.telemetry_columns = TelemetryColumns()
        self.probe_t_ns = Column(np.int64)
        self.probe_mhz = Column(np.float64)
        """The clock measured inside the stream, where there is a probe."""
        self.window = DEFAULT_WINDOW
        self.baseline: int | None = None
        self.ghosts = Ghosts(0, "", {})
        self.duet = Launches()
        """Where two versions are compared: what each launch says of each row."""
        self.has_loaded = self.failed = False
        """Code came into the worker while it measured; a row or the device failed."""
        self.fatal = self.fault = self.distortion = self.progress = ""
        self.looks = self._energy_turn = 0
        """How often the statistics were asked."""
        self.watching: str | None = None
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
        self.last_sample_ns = self.last_ns = 0
        """The latest time that any record tells of."""
        self.start: Start | None = None
        self.end: End | None = None
        self.chosen: Chosen | None = None
        self.timer: TimerInfo | None = None
        self.device: DeviceInfo | None = None
        self.reading: Reading | None = None
        self.clocks = self.clocks_during = ClockState()
        """Now, and the last state of a lock of ours in this epoch."""
        self.advice = Advice()
        self._phase: tuple[str, str] = (RunPhase.STARTING, "")
        self._last_phase: str = RunPhase.STARTING
        self.pace: str | None = None
        self.is_whole = True
        self.is_written = False
        """The run that writes these records goes on, in another process."""
        """False for a file that lacks a part of its session, or holds more than one."""
        self.skipped: list[Skipped] = []
        self.log = Log()
        self.threads: dict[str, Any] = {}
        """How many threads the framework computes with: known to the worker alone."""
        self.epochs: list[EpochView] = []
        self._marks: list[tuple[int, str]] = []
        self.rounds = self.samples = 0
        self.first_sample_ns: int | None = None
        self.reasons = _Reasons()
        self.lane = Lane()
        self._analyst = Analyst()
        self.analysis = Analysis()

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
        self._make_room()
        if self._spill or now_ns < self._look_ns or self.phase != RunPhase.MEASURING:
            return
        age_ns = now_ns - self._epoch_ns
        self._look_ns = self._beat_ns - BEAT_NS + min(max(BEAT_NS, age_ns // _SLOWER), _SLOWEST_NS)
        self._ask(now_ns, is_final=False)

    def _refresh(self) -> None:
        for row in self.rows.values():
            row.refresh(self.last_ns, self.start_ns)

    def _make_room(self) -> None:
        least = _LEAST_ROOM if self._spill is None else _LEAST_SPILL
        most = max(least, self._room // max(1, len(self.rows)))
        for bench, row in self.rows.items():
            dropped = row.make_room(most)
            if dropped is not None and self._spill is not None:
                self._spill(bench, dropped)

    @property
    def n_dropped(self) -> int:
        """Samples that are no longer in memory."""
        return sum(row.t_ns.first for row in self.rows.values())

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
        if self._spill is not None:
            return
        self.reopen_epoch()
        known = (self.last_sample_ns, self.samples, len(self._marks), self.baseline)
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
            if row is None or self._only not in (None, row.info.bench):
                continue
            if row.info.parent is None:
                self.samples += len(index)
            row.add(
                times[index],
                windows[index],
                inners[index],
                all_rounds[index],
                all_flags[index],
                None if hosts is None else hosts[index],
            )
            if self.duet.is_duet:
                self.duet.add(
                    row.info.bench,
                    times[index],
                    windows[index],
                    inners[index],
                    all_rounds[index],
                    all_flags[index],
                )
        if self.first_sample_ns is None:
            self.first_sample_ns = int(times.min())
        self.rounds = max(self.rounds, int(all_rounds.max()) + 1)
        self.last_sample_ns = max(self.last_sample_ns, int((times + windows).max()))
        self.last_ns = max(self.last_ns, self.last_sample_ns)

    def _apply_one(self, record: AnyRecord) -> None:
        handle = self._HANDLERS.get(type(record))
        if handle is not None:
            handle(self, record)

    def _on_start(self, record: Start) -> None:
        self.start = record
        self.epochs = [EpochView(0, "start", record.at_ns, None)]
        self.pace = record.config.pace
        self._beat_ns = record.at_ns + BEAT_NS

    def _on_output(self, record: Output) -> None:
        self.log.line(record.at_ns, "out", record.text)

    def _on_chosen(self, record: Chosen) -> None:
        self.chosen = record
        self.log.line(record.at_ns, "event", f"device {record.device}: {record.reason}")

    def _on_timing(self, record: Timing) -> None:
        self.timer = record.info

    def _on_device(self, record: Device) -> None:
        if self.device is None and not self.has_ended:
            self.log.line(record.at_ns, "event", _device_line(record.info))
        self.device = record.info

    def _on_visit(self, record: Visit) -> None:
        self.visits.append(record)
        self._steps = steps_of(self, self.visits)

    def _on_bench(self, record: Bench) -> None:
        self.rows[record.info.bench] = RowStore(record.info)
        self.duet.apply(record)

    def _on_version(self, record: Version) -> None:
        self.duet.apply(record)
        part = "HEAD" if record.index else "BASE"
        self.log.line(record.at_ns, "event", f"{part} {record.label}: {record.what}")

    def _on_launch(self, record: Launch) -> None:
        self.duet.apply(record)
        turn = f"turns of {record.rounds} round{'s' if record.rounds > 1 else ''}"
        self.log.line(record.at_ns, "event", f"launch {record.number}: {turn}")

    def _on_launched(self, record: Launched) -> None:
        self.duet.apply(record)
        cost = f"handing over cost {record.handover_ns / 1e3:.1f} us"
        self.log.line(
            record.at_ns,
            "event",
            f"launch {record.number} ended: {record.turns} turns, {cost}, {record.share:.2%}",
        )

    def _on_state(self, record: State) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.state, row.detail, row.state_ns = record.state, record.detail, record.at_ns

    def _on_calibrated(self, record: Calibrated) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.calibrated = record

    def _on_rebuilt(self, record: Rebuilt) -> None:
        rows = [self.rows[bench] for bench in record.benches if bench in self.rows]
        for row in rows:
            row.built_ns.append(record.at_ns)
        names = ", ".join(plain.name(row.info.name) for row in rows[:3])
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        self.log.line(record.at_ns, "event", f"fresh buffers: {names}{more}")

    def _on_gap(self, record: Gap) -> None:
        self.lane.on_gap(record.from_ns, record.to_ns, record.reason)

    def _on_advised(self, record: Advised) -> None:
        self._advise(record.at_ns, record.advice)

    def _on_window(self, record: Window) -> None:
        self.window = max(3, min(record.samples, MAX_WINDOW))

    def _on_paced(self, record: Paced) -> None:
        self.pace = record.spec

    def _on_headway(self, record: Headway) -> None:
        self.progress = record.words

    def _on_watching(self, record: Watching) -> None:
        self.watching = record.state

    def _on_probe(self, record: ProbeClock) -> None:
        self.probe_t_ns.extend(np.array(record.at_ns, dtype=np.int64))
        self.probe_mhz.extend(np.array(record.sm_mhz, dtype=np.float64))
        thin([self.probe_t_ns, self.probe_mhz], _MOST_PROBED)

    def _on_fault_record(self, record: Fault) -> None:
        self.fault = record.message
        hint = f" ({record.hint})" if record.hint else ""
        evidence = {"exit_code": record.exit_code, "message": record.message}
        self.log.tell(record.at_ns, "error", "fault", f"{record.message}{hint}", evidence)

    def _on_end(self, record: End) -> None:
        self.end = record
        self.duet.apply(record)
        self.conclude()

    def _on_skip(self, record: Skip) -> None:
        skipped = Skipped(record.name, record.reason, record.is_refused)
        self.skipped.append(skipped)
        name = plain.name(record.name)
        if record.is_refused:
            self.log.line(record.at_ns, "error", f"not timed: {name}: {record.reason}")
        elif skipped.is_meant:
            self.log.line(record.at_ns, "event", f"skipped {name}: {record.reason}")

    @property
    def refused(self) -> list[Skipped]:
        """What was asked for and cannot be timed."""
        return [skipped for skipped in self.skipped if skipped.is_refused]

    def _on_clocks(self, record: Clocks) -> None:
        state = record.state
        if state.is_ours:
            self.clocks_during = state
            if state.locked_mhz != self.clocks.in_force_mhz:
                self.log.notes.take_back("lock refused", "")
        if state.in_force_mhz != self.clocks.in_force_mhz:
            self.lane.on_clocks(record.at_ns, state)
        is_news = state.is_held is True and self.clocks.is_held is None
        self.clocks = state
        if is_news and self.lane.before_lock:
            self.log.line(record.at_ns, "event", self._since_lock())
        if state.is_unmet:
            return  # a notice has said why
        if self._phase[0] != RunPhase.ENDED or self.clocks_during.locked_mhz is not None:
            evidence = f" ({state.evidence})" if state.evidence else ""
            words = f"{clock_words(state)}{evidence}{cost_words(state)}"
            self.log.line(record.at_ns, "event", f"clocks: {words}")

    def _on_progress(self, record: Progress) -> None:
        is_news = record.phase != self._phase[0] and not self._is_of_script(record)
        if is_news and not (record.phase == RunPhase.ENDED and self.fault):
            self.log.line(record.at_ns, "event", f"{record.phase} {record.detail}".strip())
        self._phase = (record.phase, record.detail)
        self.failed = self.failed or record.is_failure
        if record.phase == RunPhase.ENDED:
            self.conclude()
        else:
            self._last_phase = record.phase
            self._refresh()

    def _is_of_script(self, record: Progress) -> bool:
        """A script warms up and measures group after group: that is no news but the first time."""
        self._has_script = self._has_script or record.phase == RunPhase.SCRIPT
        return self._has_script and not record.detail and record.phase != RunPhase.ENDED

    def _on_ghosts(self, record: Ghosts) -> None:
        self.ghosts = record

    def _on_baseline(self, record: Baseline) -> None:
        self.baseline = record.bench
        row = self.rows.get(record.bench) if record.bench is not None else None
        whom = plain.name(row.info.name) if row else "each group's own"
        words = f"ratios refer to {whom}"
        self.log.line(record.at_ns, "event", words)
        if self.has_ended:
            self.conclude()

    def _on_notice(self, record: Noted) -> None:
        notice = record.notice
        self.lane.on_notice(notice)
        row = None if notice.bench is None else self.rows.get(notice.bench)
        if notice.code in NOT_WHOLE:
            self.is_whole = False
        if notice.code == "device lost":
            self.fatal = sentence(notice)
        elif notice.level == "error" and row is None and notice.code not in _NOT_IN_THE_BANNER:
            self.distortion = sentence(notice)
        if notice.code == "fresh worker":
            self.fault = ""
        if notice.code == "tried again" and row is not None:
            row.error = row.error_kind = row.traceback = ""
            self.failed = any(other.error for other in self.rows.values())
        self.has_loaded |= notice.code == LOADED
        if notice.code == "script ended":
            self.script_exit = int(notice.evidence.get("exit", 0))
        if notice.code == "threads":
            self.threads = dict(notice.evidence)
        if notice.is_withdrawn:
            self.log.notes.take_back(notice.code, row.info.name if row else "")
            if row is not None:
                row.take_back(notice.code)
        elif row is not None and (badge := badge_of(notice.code)):
            row.told(notice.code, badge, notice.at_ns if notice.of_epoch else None)
        name = row.info.name if row else ""
        kind = "event" if notice.level == "info" else notice.level
        self.log.notice(notice, kind, sentence(notice, plain.name(name) if row else ""))
        if notice.level != "info":
            self.log.notes.add_notice(notice, name)

    def _on_error(self, record: BenchError) -> None:
        self.failed = True
        row = self.rows.get(record.bench)
        name = plain.name(row.info.name) if row else "the worker"
        if row is not None:
            row.error, row.traceback = record.message, record.traceback
            row.error_kind = record.kind
        if record.fatal:
            self.fatal = (
                f"the device's context is lost after {name}: "
                "end this run, and start the command again"
            )
            self.log.tell(record.at_ns, "error", "context lost", self.fatal, {"row": name})
        if row is None:
            self.log.tell(record.at_ns, "error", record.kind, f"{name}: {record.message}", {})
        else:
            self.log.line(record.at_ns, "error", f"{name}: {record.message}")

    def _on_mark(self, record: Mark) -> None:
        self._marks.append((record.at_ns, record.label))
        self._forget()
        label = record.label or "mark"
        self.log.line(record.at_ns, "mark", label)
        if self.start and self.start.schema < 2 and label.startswith(_PACE_LABEL):
            self.pace = label.removeprefix(_PACE_LABEL)
        if record.bench is not None:
            row = self.rows.get(record.bench)
            if row is not None:
                row.start_epoch(record.at_ns)
            return
        self._on_epoch(label)
        if self.epochs:
            last = self.epochs[-1]
            self.epochs[-1] = EpochView(last.number, last.label, last.from_ns, record.at_ns)
        self.epochs.append(EpochView(len(self.epochs), label, record.at_ns, None))
        if not self.clocks.is_ours:
            self.clocks_during = ClockState()
        self.reasons.clear()
        for row in self.rows.values():
            row.start_epoch(record.at_ns)
        if self.has_ended:
            self.conclude()

    def _on_epoch(self, label: str) -> None:
        """Keep what the spread was before a lock, while its epoch lasts."""
        if not label.startswith(LOCKED_AT):
            self.lane.before_lock = {}
        elif not self.lane.before_lock:
            stats = {b: row.statistics(self.window)[0].rel_std for b, row in self.rows.items()}
            self.lane.before_lock = {bench: std for bench, std in stats.items() if std is not None}

    def _since_lock(self) -> str:
        """What the lock did to the row that it did most to."""
        pairs = [
            (before, now, row.info.name)
            for bench, row in self.rows.items()
            if row.info.parent is None
            and (before := self.lane.before_lock.get(bench))
            and (now := row.statistics(self.window)[0].rel_std)
        ]
        if not pairs:
            return "the lock is held"
        before, now, name = max(pairs, key=lambda pair: pair[0] / pair[1])
        return f"the lock is held: {plain.name(name)} {std_change(before, now)}"

    def _forget(self) -> None:
        """What the statistics said was of the epoch before."""
        self._look_ns = 0
        self._analyst.reset()
        self.analysis = Analysis(solo_low_mhz=self.analysis.solo_low_mhz)
        self.advice = Advice()
        self._has_told_untrusted = False

    def _on_reading(self, record: Telemetry) -> None:
        self.telemetry_columns.add(record.reading)
        self.reading = self.reasons.confirmed(record.reading)
        self.lane.on_reading(self.reading)

    def reopen_epoch(self) -> None:
        """At the end: an epoch too young to have a counted sample gives way to the one before it.

        Somebody who locks the clocks and quits within the ramp keeps the figures of before.
        """
        while len(self.epochs) > 1 and not any(row.has_counted for row in self.rows.values()):
            empty = self.epochs.pop()
            before = self.epochs[-1]
            self.clocks_during = ClockState()
            self._forget()
            for row in self.rows.values():
                row.reopen(before.from_ns)
            self.log.tell(
                self.last_ns,
                "warn",
                "epoch reopened",
                f"nothing was counted since {empty.label!r}: the figures are from before it",
                {"label": empty.label},
            )

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Advised: _on_advised,
        Baseline: _on_baseline,
        Ghosts: _on_ghosts,
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
        Launch: _on_launch,
        Launched: _on_launched,
        Mark: _on_mark,
        Noted: _on_notice,
        Output: _on_output,
        Paced: _on_paced,
        ProbeClock: _on_probe,
        Progress: _on_progress,
        Rebuilt: _on_rebuilt,
        Skip: _on_skip,
        Start: _on_start,
        State: _on_state,
        Telemetry: _on_reading,
        Timing: _on_timing,
        Version: _on_version,
        Visit: _on_visit,
        Watching: _on_watching,
        Window: _on_window,
    }

    # -- what the statistics say

    def analyse(self, now_ns: int, *, is_final: bool = False) -> Analysis:
        """Ask the statistics; once a second is enough. The answers stand in the next snapshot."""
        tick_ns = float(self.timer.resolution_ns or 0) if self.timer else 0.0
        against: dict[int, int | None] = {}
        for bench, row in self.rows.items():
            base = self.baseline_of(row)
            against[bench] = None if base is None else base.info.bench
        rows = [row.data(against[bench], tick_ns) for bench, row in self.rows.items()]
        locked = self.clocks.in_force_mhz
        epoch_ns = self._epoch_ns
        analysis = self._analyst.update(
            rows,
            self.readings(now_ns, now_ns - _LOOK_BACK_NS),
            now_ns,
            epoch_ns=epoch_ns,
            locked_mhz=locked,
            is_held=self.clocks.is_held,
            whole=self.readings(now_ns, epoch_ns) if is_final else None,
        )
        self._weigh_energy(now_ns, everything=is_final)
        for bench, found in analysis.rows.items():
            row = self.rows[bench]
            row.word, row.drift, row.effect = found.word, found.drift, found.effect
            row.ratio, row.ratio_to = found.ratio, against[bench]
            row.found = {}
            if row.info.version is not None:
                versus = self.duet.report().get(bench)
                row.ratio = None if versus is None else versus.ratio
            if row.starved_words:
                row.found["starved"] = row.starved_words
            if row.ratio is not None and row.ratio.moves:
                row.found["ratio moves"] = "ratio moves"
            if found.is_timer_limited:
                row.found["timer limited"] = "timer-limited"
        analysis = dataclasses.replace(analysis, advice=heeding(analysis.advice, self.clocks))
        self.analysis = analysis
        self._advise(now_ns, analysis.advice)
        if analysis.untrusted and not self._has_told_untrusted:
            self._has_told_untrusted = True
            self._tell_untrusted(analysis.untrusted[0], now_ns)
        return analysis

    def _advise(self, at_ns: int, advice: Advice) -> None:
        """The log tells when it changes."""
        self.advice = advice
        told = (advice.verdict, advice.lock_mhz)
        if told != self._told_advice:
            self._told_advice = told
            lock = "" if advice.verdict is Verdict.LOCK else ", lock"
            at = f"{lock} at {advice.lock_mhz} MHz" if advice.lock_mhz is not None else ""
            at += ", not worth it" if is_idle(advice) else ""
            self.log.line(at_ns, "event", f"advice: {advice.verdict}{at}")

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
        columns, device = self.telemetry_columns, self.device
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

    def sample_clock(self, t_ns: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The clock of samples that started at these times, and where it is the stream's own."""
        return readings.sample_clock(self, t_ns)

    def readings(self, now_ns: int, from_ns: int) -> TelemetryData:
        """The device's readings of a stretch of time."""
        return readings.since(self, now_ns, from_ns)

    def settled_interval(self, bench: int, now_ns: int) -> Interval | None:
        """Interval of a settled row's log median; None while it has not settled."""
        row = self.rows[bench]
        return self._analyst.settled_median(row.data(None, 0.0), now_ns)

    # -- what is asked of it

    @property
    def start_ns(self) -> int:
        """The session's beginning."""
        return self.start.at_ns if self.start else 0

    def steps(self) -> list[StepAt]:
        """What a clock sweep has found so far; worked out when a visit has come on."""
        return self._steps

    @property
    def _epoch_ns(self) -> int:
        """When the epoch began."""
        return self.epochs[-1].from_ns if self.epochs else 0

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
        return self.end is not None or self._phase[0] == RunPhase.ENDED

    @property
    def is_complete(self) -> bool:
        """It came to its own end, and all of it is here."""
        return self.end is not None and self.end.complete and self.is_whole

    @property
    def stop_reason(self) -> str:
        """Why it ended."""
        if self.end is not None:
            return self.end.reason
        if self._phase[0] == RunPhase.ENDED:
            return self._phase[1]
        return "it is still being written" if self.is_written else ""

    def series(self, bench: int, from_ns: int, to_ns: int, limit: int = 20_000) -> Series:
        """The samples of a row in a stretch of time; evenly thinned to about `limit` points.

        Those that are no longer in memory come as thin as they are kept.
        """
        row = self.rows.get(bench)
        if row is None:
            return Series(np.empty(0, np.int64), np.empty(0), np.empty(0, bool))
        times = row.t_ns.view()
        a, b = (int(i) for i in np.searchsorted(times, (from_ns, to_ns)))
        old_t, old_s, old_flags = row.old.between(from_ns, to_ns)
        stride = row.old.stride if len(old_t) else 1
        step = max(stride, -(-(b - a + len(old_t) * stride) // limit))
        skip = slice(None, None, max(1, step // stride))
        part = slice(a + row.t_ns.first, b + row.t_ns.first)
        raw = row.raw(part.start, part.stop)
        flags = np.concatenate([old_flags[skip], raw.flags[::step]])
        return Series(
            np.concatenate([old_t[skip], raw.t_ns[::step]]),
            np.concatenate([old_s[skip], raw.seconds[::step]]),
            (flags & int(EXCLUDED | Flag.STALL)) != 0,
        )

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
        return self.lane.gaps(from_ns, to_ns)

    def limits(self, from_ns: int, to_ns: int) -> list[Stretch]:
        """What held the numbers back in a stretch of time, and when."""
        return self.lane.between(from_ns, to_ns)

    def baseline_of(self, row: RowStore) -> RowStore | None:
        """The row that this one is compared with; None for a baseline and for phases."""
        if row.info.parent is not None:
            return None
        if row.info.version is not None:
            return None if row.info.rival is None else self.rows.get(row.info.rival)
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
        return views.snapshot(self, now_ns)


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


def _device_line(info: DeviceInfo) -> str:
    uuid = info.slice or info.uuid if info.kind in set(BACKENDS) else ""
    parts = [info.name, uuid, info.driver or ""]
    return " ".join(part for part in parts if part)

"""The fold: records in, `Snapshot` and series out. Owned by one thread, the front end's.

All that is shown follows from the records alone, in whatever lots they come and however often one
looks: what the statistics say is asked at beats of the session's own clock, as the records tell it.
So a session says the same live, when it is exported, and in a fold that stops at any record.

Everything that is shown is derived from bounded state, so that a frame costs the same after an hour
as after a second. Raw samples are kept as far as there is room for them; what is older is read from
the file again (`session/raw.py`) where somebody asks for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.diagnosis.growth import LOADED
from usv_tui.diagnosis.vocabulary import badge_of
from usv_tui.model import (
    LOCKED_AT,
    ClockState,
    DeviceInfo,
    Notice,
    Reading,
    RowState,
    RunPhase,
    Skipped,
    TimerInfo,
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
from usv_tui.report.wording.notices import sentence
from usv_tui.session import readings, views
from usv_tui.session.blocks import joined
from usv_tui.session.columns import Column, Raw, TelemetryColumns, thin
from usv_tui.session.course import Course
from usv_tui.session.curves import Curves
from usv_tui.session.faults import undisturbed
from usv_tui.session.lane import Lane
from usv_tui.session.launches import Launches
from usv_tui.session.narration import lost_words, narrate, since_lock
from usv_tui.session.reasons import Reasons
from usv_tui.session.row_store import MAX_WINDOW, RowStore
from usv_tui.session.snapshot import (
    EpochView,
    FloatArray,
    IntArray,
    Snapshot,
)
from usv_tui.session.sweep import StepAt, steps_of
from usv_tui.session.told import Log
from usv_tui.session.verdicts import Verdicts
from usv_tui.stats.inputs import TelemetryData
from usv_tui.timesource import NS_PER_S

DEFAULT_WINDOW = 1_000
ROOM = 3 << 20
"""Raw samples of all rows that are kept in memory: 33 bytes each …"""
_LEAST_ROOM = 1 << 16
"""… but of a row never fewer than so many …"""
_LEAST_SPILL = 1 << 10
"""… or so many where they are only brought to a file."""
_MOST_PROBED = 1 << 18
BEAT_NS = NS_PER_S
"""How often one looks at what moves slowly."""
_NOT_IN_THE_BANNER = (Code.JOURNAL,)
_PACE_LABEL = "pace "


NOT_WHOLE = (Code.DAMAGED_SESSION, Code.JOINED_SESSIONS)
"""Codes of notices after which a file is no whole session."""


class Store:
    """All that is known of a session. `apply` folds records in; the rest reads."""

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
        self.watching: str | None = None
        """What the watcher says of itself, while there is one."""
        self._beat_ns = 0
        """When to look at what moves slowly."""
        self.course = Course()
        self.verdicts = Verdicts()
        self.has_loaded = False
        """Code came into the worker while it measured."""
        self.visits: list[Visit] = []
        """Of a clock sweep."""
        self._steps: list[StepAt] = []
        self.last_sample_ns = 0
        self.last_ns = 0
        """The latest time that any record tells of."""
        self.start: Start | None = None
        self.chosen: Chosen | None = None
        self.timer: TimerInfo | None = None
        self.device: DeviceInfo | None = None
        self.reading: Reading | None = None
        self.clocks = self.clocks_during = ClockState()
        """Now, and the last state of a lock of ours in this epoch."""
        self.pace: str | None = None
        self.skipped: list[Skipped] = []
        self.log = Log()
        self.threads: dict[str, Any] = {}
        """How many threads the framework computes with: known to the worker alone."""
        self.epochs: list[EpochView] = []
        self.all_marks: list[tuple[int, str]] = []
        self.rounds = self.samples = 0
        self.first_sample_ns: int | None = None
        self.reasons = Reasons()
        self.lane = Lane()

    def on_fault(self, tell: Callable[[str, Exception], object]) -> None:
        """Whom to tell of errors of ours in the statistics."""
        self._on_fault = tell

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
                narrate(self, record)
                handle = self._HANDLERS.get(type(record))
                if handle is not None:
                    handle(self, record)
                self.last_ns = max(self.last_ns, time_of(record))
            if self.last_ns >= self._beat_ns:
                self._beat()
        if blocks:
            self._add_samples(blocks)

    def _beat(self) -> None:
        """Look at what moves slowly; the beats are even, on the session's clock."""
        now_ns = self.last_ns
        at_ns = now_ns - (now_ns - self.start_ns) % BEAT_NS
        self._beat_ns = at_ns + BEAT_NS
        self._refresh()
        self._make_room()
        if self._spill or self.course.phase != RunPhase.MEASURING:
            return
        if self.verdicts.is_due(now_ns, at_ns, now_ns - self.epoch_ns):
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
        try:
            undisturbed(lambda: self.verdicts.ask(self, now_ns, is_final=is_final))
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
        known = (self.last_sample_ns, self.samples, len(self.all_marks), self.baseline)
        if not self.verdicts.are_concluded(known):
            self._refresh()
            self._ask(self.last_sample_ns, is_final=True)

    def _add_samples(self, blocks: Sequence[Samples]) -> None:
        part = joined(blocks)
        for bench, index in part.by_row():
            row = self.rows.get(bench)
            if row is None or self._only not in (None, bench):
                continue
            if row.info.parent is None:
                self.samples += len(index)
            row.add(
                part.t_ns[index],
                part.window_ns[index],
                part.inner[index],
                part.rounds[index],
                part.flags[index],
                None if part.host_ns is None else part.host_ns[index],
            )
            if self.duet.is_duet:
                self.duet.add(
                    bench,
                    part.t_ns[index],
                    part.window_ns[index],
                    part.inner[index],
                    part.rounds[index],
                    part.flags[index],
                )
        if self.first_sample_ns is None:
            self.first_sample_ns = int(part.t_ns.min())
        self.rounds = max(self.rounds, int(part.rounds.max()) + 1)
        self.last_sample_ns = max(self.last_sample_ns, int((part.t_ns + part.window_ns).max()))
        self.last_ns = max(self.last_ns, self.last_sample_ns)

    def _on_start(self, record: Start) -> None:
        self.start = record
        self.epochs = [EpochView(0, "start", record.at_ns, None)]
        self.pace = record.config.pace
        self._beat_ns = record.at_ns + BEAT_NS

    def _on_chosen(self, record: Chosen) -> None:
        self.chosen = record

    def _on_timing(self, record: Timing) -> None:
        self.timer = record.info

    def _on_device(self, record: Device) -> None:
        self.device = record.info

    def _on_visit(self, record: Visit) -> None:
        self.visits.append(record)
        self._steps = steps_of(self, self.visits)

    def _on_bench(self, record: Bench) -> None:
        self.rows[record.info.bench] = RowStore(record.info)
        self.duet.apply(record)

    def _on_launches(self, record: Version | Launch | Launched) -> None:
        self.duet.apply(record)

    def _on_state(self, record: State) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.state, row.detail, row.state_ns = record.state, record.detail, record.at_ns

    def _on_calibrated(self, record: Calibrated) -> None:
        row = self.rows.get(record.bench)
        if row is not None:
            row.calibrated = record

    def _on_rebuilt(self, record: Rebuilt) -> None:
        for bench in record.benches:
            if bench in self.rows:
                self.rows[bench].built_ns.append(record.at_ns)

    def _on_gap(self, record: Gap) -> None:
        self.lane.on_gap(record.from_ns, record.to_ns, record.reason)

    def _on_advised(self, record: Advised) -> None:
        self.verdicts.advise(self, record.at_ns, record.advice)

    def _on_window(self, record: Window) -> None:
        self.window = max(3, min(record.samples, MAX_WINDOW))

    def _on_paced(self, record: Paced) -> None:
        self.pace = record.spec

    def _on_headway(self, record: Headway) -> None:
        self.course.headway = record.words

    def _on_watching(self, record: Watching) -> None:
        self.watching = record.state

    def _on_probe(self, record: ProbeClock) -> None:
        self.probe_t_ns.extend(np.array(record.at_ns, dtype=np.int64))
        self.probe_mhz.extend(np.array(record.sm_mhz, dtype=np.float64))
        thin([self.probe_t_ns, self.probe_mhz], _MOST_PROBED)

    def _on_fault_record(self, record: Fault) -> None:
        self.course.fault = record.message

    def _on_end(self, record: End) -> None:
        self.course.end = record
        self.duet.apply(record)
        self.conclude()

    def _on_skip(self, record: Skip) -> None:
        self.skipped.append(Skipped(record.name, record.reason, record.is_refused))

    @property
    def refused(self) -> list[Skipped]:
        """What was asked for and cannot be timed."""
        return [skipped for skipped in self.skipped if skipped.is_refused]

    def _on_clocks(self, record: Clocks) -> None:
        state = record.state
        if state.is_ours:
            self.clocks_during = state
            if state.locked_mhz != self.clocks.in_force_mhz:
                self.log.notes.take_back(Code.LOCK_REFUSED, "")
        if state.in_force_mhz != self.clocks.in_force_mhz:
            self.lane.on_clocks(record.at_ns, state)
        is_news = state.is_held is True and self.clocks.is_held is None
        self.clocks = state
        if is_news and self.lane.before_lock:
            self.log.line(record.at_ns, "event", since_lock(self))

    def _on_progress(self, record: Progress) -> None:
        self.course.on_progress(record)
        if record.phase == RunPhase.ENDED:
            self.conclude()
        else:
            self._refresh()

    def _on_ghosts(self, record: Ghosts) -> None:
        self.ghosts = record

    def _on_baseline(self, record: Baseline) -> None:
        self.baseline = record.bench
        if self.course.has_ended:
            self.conclude()

    def _on_notice(self, record: Noted) -> None:
        self.notice(record.notice)

    def notice(self, notice: Notice) -> None:
        """Something that was found, by the worker or by the fold's own statistics."""
        self.lane.on_notice(notice)
        row = None if notice.bench is None else self.rows.get(notice.bench)
        if notice.code in NOT_WHOLE:
            self.course.is_whole = False
        if notice.code == Code.DEVICE_LOST:
            self.course.fatal = sentence(notice)
        elif notice.level == "error" and row is None and notice.code not in _NOT_IN_THE_BANNER:
            self.course.distortion = sentence(notice)
        if notice.code == Code.FRESH_WORKER:
            self.course.fault = ""
        if notice.code == Code.TRIED_AGAIN and row is not None:
            row.error = row.error_kind = row.traceback = ""
            self.course.has_failed = any(other.error for other in self.rows.values())
        self.has_loaded |= notice.code == LOADED
        if notice.code == Code.SCRIPT_ENDED:
            self.course.script_exit = int(notice.evidence.get("exit", 0))
        if notice.code == Code.THREADS:
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
        self.course.has_failed = True
        row = self.rows.get(record.bench)
        if row is not None:
            row.error, row.traceback = record.message, record.traceback
            row.error_kind = record.kind
        if record.fatal:
            self.course.fatal = lost_words(plain.name(row.info.name) if row else "the worker")

    def _on_mark(self, record: Mark) -> None:
        self.all_marks.append((record.at_ns, record.label))
        self.verdicts.forget()
        label = record.label or "mark"
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
        if self.course.has_ended:
            self.conclude()

    def _on_epoch(self, label: str) -> None:
        """Keep what the spread was before a lock, while its epoch lasts."""
        if not label.startswith(LOCKED_AT):
            self.lane.before_lock = {}
        elif not self.lane.before_lock:
            stats = {b: row.statistics(self.window)[0].rel_std for b, row in self.rows.items()}
            self.lane.before_lock = {bench: std for bench, std in stats.items() if std is not None}

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
            self.verdicts.forget()
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
        Launch: _on_launches,
        Launched: _on_launches,
        Mark: _on_mark,
        Noted: _on_notice,
        Paced: _on_paced,
        ProbeClock: _on_probe,
        Progress: _on_progress,
        Rebuilt: _on_rebuilt,
        Skip: _on_skip,
        Start: _on_start,
        State: _on_state,
        Telemetry: _on_reading,
        Timing: _on_timing,
        Version: _on_launches,
        Visit: _on_visit,
        Watching: _on_watching,
        Window: _on_window,
    }

    def sample_clock(self, t_ns: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The clock of samples that started at these times, and where it is the stream's own."""
        return readings.sample_clock(self, t_ns)

    def readings(self, now_ns: int, from_ns: int) -> TelemetryData:
        """The device's readings of a stretch of time."""
        return readings.since(self, now_ns, from_ns)

    # -- what is asked of it

    @property
    def curves(self) -> Curves:
        """Its series over time."""
        return Curves(self)

    @property
    def start_ns(self) -> int:
        """The session's beginning."""
        return self.start.at_ns if self.start else 0

    def steps(self) -> list[StepAt]:
        """What a clock sweep has found so far; worked out when a visit has come on."""
        return self._steps

    @property
    def epoch_ns(self) -> int:
        """When the epoch began."""
        return self.epochs[-1].from_ns if self.epochs else 0

    @property
    def is_starved(self) -> bool:
        """Every row that is timed leaves the device waiting for the host."""
        running = [row for row in self.rows.values() if row.has_counted and not row.info.parent]
        return bool(running) and all(row.is_told(Code.CPU_BOUND) for row in running)

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
        return undisturbed(lambda: views.snapshot(self, now_ns))

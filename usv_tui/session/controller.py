"""A live session: worker, poller, output, store and journal, folded together by one thread.

A front end calls `pump` a few times a second and reads the store; everything a user may do is a
method here, so that the screen and the headless front end do the same things.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.diagnosis.roofline import Roofline, roofline_from
from usv_tui.diagnosis.while_running import Diagnosis
from usv_tui.errors import ExitCode
from usv_tui.gate import Gate
from usv_tui.model import Notice, RunConfig, RunPhase
from usv_tui.records import (
    SCHEMA,
    AnyRecord,
    Baseline,
    Chosen,
    Command,
    Device,
    End,
    Fault,
    Ghosts,
    Headway,
    Mark,
    Noted,
    Output,
    Progress,
    Start,
    Telemetry,
    Watching,
    Window,
)
from usv_tui.session import image
from usv_tui.session.capture import OutputCapture
from usv_tui.session.desk import ClockDesk
from usv_tui.session.evidence import watched
from usv_tui.session.faults import Faults
from usv_tui.session.goal import Goal, Outcome
from usv_tui.session.journal import Journal
from usv_tui.session.placement import PlacementAsk
from usv_tui.session.relay import Relay
from usv_tui.session.row_store import MAX_WINDOW
from usv_tui.session.shown import ShownSession
from usv_tui.session.snapshot import Snapshot
from usv_tui.session.store import ROOM, Store
from usv_tui.session.sweep import Sweep
from usv_tui.session.watchdog import Watchdog
from usv_tui.stats.stopping import Block
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

_FLUSH_NS = NS_PER_S // 2
IMAGES_IN = 12
"""A file is so many times the images in it, at least while it is written."""
IMAGE_BYTES = 1 << 22
"""About what one takes."""
IMAGE_NS = 300 * NS_PER_S
"""An image of the fold comes into the file at most so often."""
_SAVE_GATE_NS = NS_PER_S // 4
"""After so long in one window what is new is saved all the same."""
_ROWS_A_LOOK = 4
"""Rows diagnosed in one analysis."""
_REST_NS = 60 * NS_PER_S
"""Measuring paused for so long lets the sensors rest, too: polling keeps an idle device awake."""
_OUTPUT_LINES = 200
"""Lines of user output taken into the log at one pump; the file keeps all."""


MakeWatcher = Callable[[Chosen, Callable[[AnyRecord], object], Gate], Poller | None]


class LiveSession(ShownSession):
    """One measurement in progress. All methods belong to the front end's thread."""

    def __init__(
        self,
        source: Relay,
        *,
        suite: str,
        config: RunConfig,
        gate: Gate,
        journal: Journal | None = None,
        capture: OutputCapture | None = None,
        make_watcher: MakeWatcher | None = None,
        desk: ClockDesk | None = None,
        environment: Mapping[str, Any] | None = None,
        simulated: str = "",
        wall_unix_ns: int = 0,
        time_source: TimeSource | None = None,
    ) -> None:
        self.faults = Faults(self._tell_fault)
        """What went wrong around the measurement."""
        self.store = Store(self.faults.note)
        self.store.archive = None if journal is None else journal.path
        self.gate = gate
        self.fault: Fault | None = None
        """Why the worker could not go on, when that is so."""
        self.capture = capture
        self.journal = journal
        self.desk = desk
        self.telemetry_on = True
        self.goal: Goal | None = None
        """What `--until` asks for."""
        self.outcome: Outcome | None = None
        """How the goal ended."""
        self.beat: Callable[[], object] = lambda: None
        """Called at every `pump`: this thread lives."""
        self.sweep: Sweep | None = None
        """The clock sweep that this session is made for."""
        self._time = time_source or MonotonicTime()
        self._source = source
        self._make_watcher = make_watcher
        self._watcher: Poller | None = None
        self._watched: deque[AnyRecord] = deque()
        self._flushed_ns = 0
        self._image_ns = self._time.now_ns()
        self._image_bytes = 0
        """When the fold was brought to the file, and what that has taken in all."""
        self._looks = 0
        """How many of the statistics' answers have been acted upon."""
        self._goal_ns = 0
        self._watching = Watching(0, "")
        self._diagnosis = Diagnosis()
        self._placement = PlacementAsk(config)
        self._roofline: Roofline | None = None
        self._temp_sent: float | None = None
        self._watchdog = Watchdog(self.store, source, config, self._time.now_ns())
        self._is_paused = False
        self._paused_ns = 0
        self._is_resting = False
        self._has_ended = False
        self._wanted_baseline: str | None = None
        self._journal_failed = self._has_told_dropped = False
        self._told_faults: list[AnyRecord] = []
        self._fresh: list[AnyRecord] = []
        self._said: list[AnyRecord] = []
        """Those of them that the worker said."""
        self._fresh_total = 0
        self._collecting = threading.Lock()
        self._saver: threading.Thread | None = None
        self._stop_saving = threading.Event()
        self._take(
            [
                Start(
                    SCHEMA,
                    self._time.now_ns(),
                    wall_unix_ns,
                    suite,
                    config,
                    dict(environment or {}),
                    simulated,
                )
            ]
        )

        if journal is not None:
            journal.flush()  # so that even a session that is cut short at once can be read
        if desk is not None:
            desk.begin()

    # -- the fold

    def pump(self) -> bool:
        """Take in everything new; True when there was something."""
        self.beat()
        now_ns = self._time.now_ns()
        seen = self._fresh_total
        self._take(())
        derived = self._output(now_ns)
        with self.faults.around("the clocks' desk"):
            derived += self._from_desk()
        with self.faults.around("the watchdog"):
            derived += self._watchdog.look(
                now_ns, is_paused=self._is_paused, is_due=self.outcome is not None
            )
        self._take(derived)
        with self.faults.around("the sweep"):
            self._go_on_sweeping(now_ns)
        with self.faults.around("the baseline"):
            self._find_baseline(now_ns)
        self._act(now_ns)
        with self.faults.around("the target"):
            self._look_at_goal(now_ns)
        if self._watcher is not None:
            self._let_rest(self._watcher, now_ns)
            self._tell_watching(self._watcher.state(), now_ns)
        self.save()
        if self._is_image_due(now_ns):
            self._keep_image()
        self._look_at_journal()
        told, self._told_faults = self._told_faults, []
        self._take(told)
        return bool(derived) or self._fresh_total > seen

    def _fold(self, records: Sequence[AnyRecord]) -> None:
        """What the worker and the sensors say, and what follows from it at once."""
        for record in records:
            if isinstance(record, Chosen):
                self._watch(record)
                self._roofline = roofline_from(record.identity)
            elif isinstance(record, Fault):
                self.fault = self.fault or record
            elif isinstance(record, Noted) and record.notice.code == Code.ROOFLINE_MEASURED:
                self._roofline = roofline_from(record.notice.evidence) or self._roofline
            elif isinstance(record, Noted) and record.notice.code == Code.FRESH_WORKER:
                self.fault = None  # it was the end of the worker before
            elif isinstance(record, Telemetry):
                self._tell_temperature(record.reading.temp_c)
                if self.desk is not None:
                    with self.faults.around("the clocks' desk"):
                        self.desk.on_reading(record.reading)
            elif isinstance(record, Device) and self.desk is not None:
                self.desk.on_device(record.info)
            elif isinstance(record, Noted) and self.desk is not None:
                self.desk.on_notice(record.notice)
        self._apply(records)

    def _apply(self, records: Sequence[AnyRecord]) -> None:
        try:
            self.store.apply(records)
        except Exception as error:  # noqa: BLE001  the rest of them must not be lost with one
            self.faults.note("the fold of records", error)

    def _tell_fault(self, part: str, reason: str, where: str) -> None:
        evidence = {"part": part, "reason": reason, "where": where}
        notice = Notice(
            code=Code.OWN_FAULT, at_ns=self._time.now_ns(), level="error", evidence=evidence
        )
        self._told_faults.append(Noted(notice))

    # -- the file

    def save(self, now_ns: int | None = None) -> bool:
        """Bring what is new to the file, if that is due; True when it was. From any thread."""
        now_ns = self._time.now_ns() if now_ns is None else now_ns
        if self.journal is None or now_ns - self._flushed_ns <= _FLUSH_NS:
            return False
        self._flushed_ns = now_ns
        with self._collecting:
            self._collect()
        self.journal.flush()
        return True

    def _is_image_due(self, now_ns: int) -> bool:
        """So that a run which is killed opens soon, too; images are a twelfth of a file at most."""
        return (
            self.journal is not None
            and now_ns - self._image_ns > IMAGE_NS
            and self.journal.bytes_written >= IMAGES_IN * (self._image_bytes + IMAGE_BYTES)
            and image.is_worth_it(self.store)
        )

    def _keep_image(self) -> None:
        """Bring the fold to the file, where it is of all that is in it."""
        journal = self.journal
        with self._collecting, self.faults.around("the image of the session"):
            if journal is None or self._fresh:
                return
            parts = image.records_of(self.store)
            journal.flush()
            journal.add(parts)
            journal.flush()
            self._image_ns = self._time.now_ns()
            self._image_bytes += sum(len(part.state) for part in parts)

    def keep_saving(self, stop: threading.Event) -> None:
        """Save by a clock of its own, however busy the front end is, until told to stop."""
        while not self._time.wait(stop, self._flushed_ns + _FLUSH_NS - self._time.now_ns() + 1):
            if self._time.now_ns() - self._flushed_ns > _FLUSH_NS:
                with self.gate.hold(_SAVE_GATE_NS), self.faults.around("the journal"):
                    self.save()

    def start_saving(self) -> None:
        """Have a thread see to `keep_saving`."""
        if self.journal is not None and self._saver is None:
            self._saver = threading.Thread(
                target=self.keep_saving, args=(self._stop_saving,), name="usv-journal", daemon=True
            )
            self._saver.start()

    def _collect(self) -> None:
        """What is new goes to the journal at once, and waits for the front end's next look."""
        fresh = self._source.drain()
        self._said += fresh
        fresh = fresh + [self._watched.popleft() for _ in range(len(self._watched))]
        self._fresh += fresh
        self._fresh_total += len(fresh)
        if self.journal is not None:
            self.journal.add(fresh)

    def _go_on_sweeping(self, now_ns: int) -> None:
        sweep, desk = self.sweep, self.desk
        if sweep is None or desk is None or sweep.is_over or self.store.course.has_ended:
            return
        self._take(list(sweep.look(self.store, desk, now_ns)))
        self._tell_headway(sweep.progress, now_ns)
        if not sweep.is_over:
            return
        error = sweep.fault()
        if error is not None:
            fault = Fault(now_ns, int(error.exit_code), error.message, error.hint)
            self.fault = self.fault or fault
            self._take([fault])
        self._source.command(Command("stop", "the sweep is done" if error is None else str(error)))

    def _let_rest(self, watcher: Poller, now_ns: int) -> None:
        if not self.telemetry_on:
            return
        rests = self._is_paused and now_ns - self._paused_ns > _REST_NS
        if rests != self._is_resting:
            self._is_resting = rests
            (watcher.pause if rests else watcher.resume)()

    def _act(self, now_ns: int, *, is_final: bool = False) -> None:
        """Do what follows from the statistics' latest answer."""
        if self.store.verdicts.looks == self._looks and not is_final:
            return
        self._looks = self.store.verdicts.looks
        with self.faults.around("the diagnosis"):
            rows = len(self.store.rows) if is_final else _ROWS_A_LOOK
            found = self._diagnosis.look(now_ns, watched(self.store, self._roofline), rows)
            if found:
                self._take([Noted(notice) for notice in found])
        with self.faults.around("the placement"):
            for bench in self._placement.wanted(self.store):
                self._source.command(Command("realloc", bench=bench))
        with self.faults.around("the advice"):
            if self.desk is not None and not self.store.course.has_ended:
                self.desk.is_starved = self.store.is_starved
                self.desk.on_advice(self.store.verdicts.advice)

    def _look_at_goal(self, now_ns: int) -> None:
        is_due = now_ns - self._goal_ns > NS_PER_S and self.store.course.phase == RunPhase.MEASURING
        if self.goal is None or self.outcome is not None or not is_due:
            return
        self._goal_ns = now_ns
        self.outcome = self.goal.look(self.store, now_ns)
        self._tell_headway(self.goal.progress, now_ns)
        if self.outcome is not None:
            self._source.command(Command("stop", self.outcome.reason))

    def _tell_headway(self, words: str, now_ns: int) -> None:
        if words != self.store.course.headway:
            self._take([Headway(now_ns, words)])

    def _tell_watching(self, state: str, now_ns: int) -> None:
        """A change at once, an age that grows once a second."""
        told = self._watching
        is_news = not (state and told.state) or now_ns - told.at_ns >= NS_PER_S
        if (state != told.state and is_news) or not told.at_ns:
            self._watching = Watching(now_ns, state)
            self._take([self._watching])

    def _take(self, records: Sequence[AnyRecord]) -> None:
        """Fold records in behind all that came before: in the order in which they are saved."""
        with self._collecting:
            self._collect()
            fresh, self._fresh = self._fresh, []
            said, self._said = self._said, []
            if self.journal is not None:
                self.journal.add(records)
        for record in said:
            self._watchdog.hear(record, self._time.now_ns())
        self._fold(fresh)
        self._apply(records)

    def _output(self, now_ns: int) -> list[AnyRecord]:
        if self.capture is None:
            return []
        lines = self.capture.tail()
        hidden = len(lines) - _OUTPUT_LINES
        if hidden > 0:
            lines = [*lines[:_OUTPUT_LINES], f"… {hidden} lines more in {self.capture.path}"]
        return [Output(now_ns, line) for line in lines]

    def _from_desk(self) -> list[AnyRecord]:
        if self.desk is None:
            return []
        records, commands = self.desk.drain()
        for command in commands:
            self._source.command(command)
        return records

    def _watch(self, chosen: Chosen) -> None:
        if self._watcher is None and self._make_watcher is not None:
            self._watcher = self._make_watcher(chosen, self._watched.append, self.gate)
            if self._watcher is not None:
                self._watcher.start()

    def _tell_temperature(self, temp_c: float | None) -> None:
        """The loop needs it for `--pace cool`."""
        if temp_c is not None and temp_c != self._temp_sent:
            self._temp_sent = temp_c
            self._source.command(Command("temp", f"{temp_c:g}"))

    def _look_at_journal(self) -> None:
        if self.journal is None:
            self._tell_dropped()
        elif self.journal.full and not self._journal_failed:
            self._journal_failed = True
            self.tell(Code.KEEP_REACHED, self.journal.full, "warn")
        elif self.journal.failure and not self._journal_failed:
            self._journal_failed = True
            self.tell(Code.JOURNAL, self.journal.failure, "error")

    def _tell_dropped(self) -> None:
        """No file, and no more room: what is older than that is in the statistics alone."""
        if self.store.n_dropped and not self._has_told_dropped:
            self._has_told_dropped = True
            self.tell(
                Code.SAMPLES_DROPPED,
                f"no file is kept: from now on only about the last {ROOM:,} raw samples are (the "
                "statistics go on over all); run without --no-save to have them all",
            )

    # -- what a user may do

    @property
    def has_ended(self) -> bool:
        """True when the worker has said its last word."""
        return self.store.course.has_ended

    @property
    def is_paused(self) -> bool:
        """True while measuring is paused on request."""
        return self._is_paused

    def command(self, command: Command) -> None:
        """Pass a command on to the worker."""
        if command.verb in ("pause", "resume"):
            self._is_paused = command.verb == "pause"
            self._paused_ns = self._time.now_ns()
        self._source.command(command)

    def toggle_pause(self) -> bool:
        """Pause or resume measuring; True when it is paused now."""
        self.command(Command("resume" if self._is_paused else "pause"))
        return self._is_paused

    def set_baseline(self, bench: int | None) -> None:
        """Compare all rows with this one; None: with their group's own."""
        self._take([Baseline(self._time.now_ns(), bench)])

    def show_ghosts(self, ghosts: Ghosts) -> None:
        """Show another session's values beside."""
        self._take([Ghosts(self._time.now_ns(), ghosts.source, ghosts.medians_s)])

    def set_window(self, samples: int) -> None:
        """Size of the rolling window."""
        self._take([Window(self._time.now_ns(), max(3, min(samples, MAX_WINDOW)))])

    def want_baseline(self, name: str | None) -> None:
        """Compare all rows with the row of this name as soon as it is known.

        A name that no row has becomes a warning in the log, with the names there are.
        """
        self._wanted_baseline = name

    def _find_baseline(self, now_ns: int) -> None:
        wanted = self._wanted_baseline
        if wanted is None or self.store.course.phase in (RunPhase.STARTING, RunPhase.IMPORTING):
            return
        self._wanted_baseline = None
        names = {row.info.name: bench for bench, row in self.store.rows.items()}
        if wanted in names:
            self.set_baseline(names[wanted])
        else:
            known = plain.some(names, 20)
            fault = Fault(
                now_ns,
                int(ExitCode.USAGE),
                f"--baseline {wanted}: no such row",
                f"there is {known}",
            )
            self.fault = self.fault or fault
            self._take([fault])
            self._source.command(Command("stop", fault.message))

    def tell(self, code: Code, reason: str, level: str = "info") -> None:
        """Something to be said of the session, in words already."""
        notice = Notice(
            code=code, at_ns=self._time.now_ns(), level=level, evidence={"reason": reason}
        )
        self._take([Noted(notice)])

    def no_telemetry(self, why: str) -> None:
        """There will be none."""
        self._tell_watching(why, self._time.now_ns())

    def mark(self, label: str) -> None:
        """Begin a new epoch."""
        self._take([Mark(self._time.now_ns(), label)])

    def toggle_telemetry(self) -> bool:
        """Stop or resume polling, to see whether it disturbs; True when it is on now."""
        if self._watcher is not None:
            self.telemetry_on = not self.telemetry_on
            (self._watcher.resume if self.telemetry_on else self._watcher.pause)()
        return self.telemetry_on

    @property
    def can_renew(self) -> bool:
        """True when `renew` would start a fresh worker."""
        return not self._source.why_not_renew()

    def renew(self) -> str:
        """Try lost rows again in a fresh worker; returns why not, else an empty string."""
        with self._collecting:
            return self._source.renew()

    # -- the end

    def close(
        self, reason: str, *, timeout_s: float = 0.6, hurry: threading.Event | None = None
    ) -> bool:
        """Stop everything, take in the rest, write the end; True when no thread was left behind.

        Within about `timeout_s`, even when a benchmark hangs, and some seconds more when the clocks
        cannot be given back; once `hurry` is set those are not waited for.
        """
        if self._has_ended:
            return True
        self._has_ended = True
        self._stop_saving.set()
        if reason:
            self._source.command(Command("stop", reason))
        is_over = self._source.close(timeout_s)
        if self._watcher is not None:
            self._watcher.stop()
        gave_back = self.desk is None or self.desk.close(hurry=hurry)
        try:
            with self.faults.around("the end"):
                self.pump()
        finally:
            complete = self.store.course.has_ended and self.fault is None and is_over and not reason
            why = reason or self.store.course.stop_reason or "quit"
            if not self.store.course.has_ended:
                self._take([Progress(self._time.now_ns(), RunPhase.ENDED, why)])
            if self.has_samples:
                self._act(self._time.now_ns(), is_final=True)
            self._take(self._told_faults)
            self._take([End(self._time.now_ns(), self._as_it_ended(why), complete)])
            if self.journal is not None:
                if image.is_worth_it(self.store):
                    self._keep_image()
                self.journal.close()
            self._look_at_journal()
        return is_over and gave_back

    def _as_it_ended(self, why: str) -> str:
        """A target is not met where the last look, at all rounds at once, finds the control off."""
        if (
            self.outcome is None
            or not self.outcome.is_met
            or not self.store.verdicts.analysis.untrusted
        ):
            return why
        width = self.outcome.reason.removeprefix("target met: ")
        self.outcome = Outcome(f"{width}, {Block.CONTROL}, not met", is_met=False)
        return self.outcome.reason

    def final_snapshot(self) -> Snapshot:
        """The session as it ended."""
        return self.store.snapshot(self.store.last_ns)

    @property
    def journal_failure(self) -> str:
        """Why the session is not saved to its end; empty while it is."""
        return "" if self.journal is None else self.journal.failure

    @property
    def has_samples(self) -> bool:
        """True when anything was timed."""
        return any(row.t_ns.n for row in self.store.rows.values())

    def exit_code(self) -> int:
        """What this session is worth to a script; that of a script is its own."""
        if self.desk is not None and self.desk.failure:
            return ExitCode.CLOCKS_NOT_RESTORED
        if self.fault is not None:
            return _named(self.fault.exit_code)
        if self.store.course.fatal:
            return ExitCode.WORKER_LOST
        if self.journal_failure:
            return ExitCode.USAGE
        store = self.store
        if store.course.script_exit is not None:
            return _named(store.course.script_exit)
        if store.course.has_failed or store.refused or store.unsampled or not self.has_samples:
            return ExitCode.BENCH_FAILED
        if self.desk is not None and self.desk.unmet:
            return ExitCode.CLOCKS_REFUSED
        if self.is_inconclusive:
            return ExitCode.INCONCLUSIVE
        return ExitCode.OK

    @property
    def is_inconclusive(self) -> bool:
        """True when a target was asked for and not met, or a control row differs."""
        unmet = self.goal is not None and not (self.outcome is not None and self.outcome.is_met)
        return unmet or bool(self.store.verdicts.analysis.untrusted)


def _named(code: int) -> int:
    """One of ours where it is one; a script may have any."""
    return ExitCode(code) if code in ExitCode._value2member_map_ else code

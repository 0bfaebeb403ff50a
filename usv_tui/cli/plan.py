"""The composition root: the only place that builds the parts of a run.

Heavy imports happen inside functions: the screen is up before numpy and torch are imported.
"""

import argparse
import contextlib
import importlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from usv_tui import descriptors
from usv_tui.cli.outcome import Outcome, leave_at_once
from usv_tui.cli.voice import say
from usv_tui.codes import Code
from usv_tui.errors import UsageError

_LATE = (
    "csv",
    "linecache",
    "numpy.fft",
    "numpy.ma",
    "resource",
    "tokenize",
    "unicodedata",
    "usv_tui.cli.ending",
    "usv_tui.cli.headless",
    "usv_tui.report.table",
    "usv_tui.session.export",
    "usv_tui.session.goal",
    "usv_tui.session.outputs",
)
"""Needed when a run ends: imported before it begins, since then there may be no descriptor left."""


def script_of(args: argparse.Namespace) -> list[str] | None:
    """The arguments of a script that is run as it is; None for a suite."""
    found: list[str] | None = getattr(args, "script", None)
    return found


class Plan:
    """One run from its arguments to its exit code."""

    def __init__(
        self,
        args: argparse.Namespace,
        suite: str,
        config: dict[str, Any],
        simulation: Any,
    ) -> None:
        self._args = args
        self._suite = suite
        self._config = config
        self._simulation = simulation
        self._versions = getattr(args, "versions", None)
        """Two versions that are compared, or None."""
        self._title = suite if self._versions is None else self._versions.title
        if further := len(getattr(args, "more", ())):
            self._title += f" and {further} more"
        self._session: Any = None
        self._capture: Any = None
        self._journal: Any = None
        self._output: Any = None
        """What a script writes to its standard output."""
        self._save_note = ""
        self._target: Any = None
        self._has_screen = False
        self._reserve = descriptors.Reserve()
        self._board: Any = None
        self._taken: Any = None
        """The terminal and its keeper."""
        self._ghosts: Any = None
        if Path(args.baseline or "").suffix == ".usv":
            from usv_tui.session.comparison import ghosts_of

            self._ghosts = ghosts_of(Path(args.baseline))
        if args.until is not None:
            from usv_tui.session.goal import target_of

            self._target = target_of(args.until)
            config["max_time_s"] = None
        self._open_journal()

    def leave(self) -> None:
        """Everything is said: nobody needs to speak for this program any more."""
        if self._taken is not None:
            self._taken.dismiss_keeper()

    def _open_journal(self) -> None:
        """Before anything is shown: a path that cannot be written is the user's to mend now."""
        if self._args.no_save:
            return
        from usv_tui.session import journal

        if self._args.save is not None:
            path = Path(self._args.save)
            if not path.parent.is_dir():
                raise UsageError(f"cannot write {path}: there is no directory {path.parent}")
            self._journal = journal.Journal(path, self._args.keep)
            return
        stem = Path(self._suite).stem or "session"
        now = time.strftime("%Y%m%d-%H%M%S", time.localtime())
        path = journal.sessions_dir() / f"{now}-{stem}-{os.getpid()}.usv"
        try:
            self._journal = journal.Journal(path, self._args.keep)
        except UsageError as error:
            # The default place is not the user's choice: say it and measure all the same.
            self._save_note = f"this session is not saved: {error.message} (--save PATH)"

    def connect(self) -> Any:
        """Build the live session and start the worker. Called when the screen is up."""
        from usv_tui import environment, model
        from usv_tui.cli import terminal, watch
        from usv_tui.clocks.controllers import controller_for
        from usv_tui.engine import where
        from usv_tui.gate import Gate
        from usv_tui.session import controller, goal, live, relay, sweep
        from usv_tui.session import desk as desk_module

        args = self._args
        for name in _LATE:
            importlib.import_module(name)
        terminal.leave_terminal(has_screen=self._has_screen)
        gate = Gate()
        config = model.RunConfig(**(self._config | {"cache": model.CacheMode(args.cache)}))
        request = model.WorkRequest(
            path=self._suite,
            more=getattr(args, "more", []),
            device=args.device,
            select=args.select,
            config=config,
            script=script_of(args),
        )
        simulation = self._simulation
        prepared, card = (None, None) if simulation is None else simulation.start()
        pids: list[int] = []
        log_fd = 1 if self._capture else 2

        def make(asked: model.WorkRequest) -> live.ThreadSource | live.ChildSource:
            if not args.isolate:
                place = None
                if self._board is not None:
                    place = where.Outside(self._board.row_cells, self._board.meet)
                return live.ThreadSource(asked, gate, prepared=prepared, where=place)
            out_fd = None if self._output is None else self._output.fd
            child = live.ChildSource(asked, log_fd, out_fd=out_fd)
            pids.append(child.pid)
            return child

        source: Any
        if self._versions is None:
            source = relay.Relay(make, request, is_process=args.isolate)
        else:
            source = self._versions.source(request, log_fd, pids, card)
        make_watcher = None
        if not args.no_telemetry:
            make_watcher = watch.watcher_for(None if card is None else card.telemetry, pids)
        session = controller.LiveSession(
            source,
            suite=self._title,
            config=config,
            gate=gate,
            journal=self._journal,
            capture=self._capture,
            make_watcher=make_watcher,
            desk=desk_module.ClockDesk(
                lambda info: controller_for(info, sim=None if card is None else card.clocks),
                wanted=args.lock or ("" if simulation is None else simulation.initial_lock),
                keep=args.keep_lock,
                force=args.force,
            ),
            environment=environment.describe(Path(self._suite) if simulation is None else None),
            simulated=simulation.label if simulation is not None else "",
            wall_unix_ns=time.time_ns(),
        )
        if args.no_telemetry:
            session.no_telemetry("off (--no-telemetry)")
        session.set_window(args.window)
        if self._ghosts is not None:
            session.show_ghosts(self._ghosts)
        else:
            session.want_baseline(args.baseline)
        if hasattr(args, "visits"):
            plan = sweep.Plan(args.from_mhz, args.to_mhz, args.steps, args.visits, args.seconds)
            session.sweep = sweep.Sweep(plan, config.seed)
        if self._target is not None:
            session.goal = goal.Goal(self._target, args.max_time)
        if simulation is not None:
            session.tell(Code.LOOK_FOR, simulation.look_for)
        if self._save_note:
            session.tell(Code.NOT_SAVED, self._save_note, "warn")
        if session.desk is not None:
            session.desk.on_wait = self._tell_wait
        if self._board is not None:
            session.beat = self._board.beat
            self._capture.know_ways(self._taken.stream(1), self._taken.stream(2))
        source.start()
        session.start_saving()
        self._session = session
        return session

    def _tell_wait(self) -> None:
        """The end takes long: on the real stderr, while that of the process is still captured."""
        line = b"usv-tui: waiting for the driver to give the clocks back (Ctrl-C: do not wait)\n"
        with contextlib.suppress(OSError):  # nobody reads
            os.write(self._capture.real_stderr, line)

    # -- without a screen

    def headless(self) -> int:
        """Narration on stderr, data on stdout."""
        from usv_tui.cli import headless as front
        from usv_tui.signals import Signals
        from usv_tui.tui.taken import taken

        signals = Signals()
        with signals.watch():
            self._start_capture()
            if not self._args.isolate:  # else no code of the user's can hold or crash this process
                self._be_kept(signals)
                taken.keep()
            voice = self._voice()
            narration = front.Narration(voice)
            is_over = True
            late: list[str] = []
            try:
                session = self.connect()
                front.run(session, narration, signals)
            finally:
                try:
                    if self._session is not None:
                        signals.on_first()
                        self._reserve.release()
                        is_over = self._session.close(
                            _signal_name(signals.number), hurry=signals.hurry
                        )
                finally:
                    # Whatever went wrong, what is said from here on must reach the user.
                    late = self._capture.stop()
            narration.tell_rest(session, late)
            with contextlib.suppress(OSError, ValueError):
                # A reader that is gone, or a full disk under stderr, loses the narration only.
                voice.close()
        return self._finish(signals.number, is_over=is_over, is_told=True)

    def _start_capture(self) -> None:
        import tempfile

        from usv_tui.session import capture

        try:
            if self._journal is not None:
                path = self._journal.path.with_suffix(".log")
            else:
                path = Path(tempfile.gettempdir()) / f"usv-tui-{secrets.token_hex(8)}.log"
            self._capture = capture.OutputCapture(path)
            self._capture.start()
            if script_of(self._args) is not None:
                from usv_tui.session.script_output import ScriptOutput

                self._output = self._capture.aside = ScriptOutput()
        except OSError as error:
            raise UsageError(
                f"no file for what the benchmarks print: {error.strerror or error}",
                "--save PATH, or set TMPDIR to a writable directory",
            ) from None

    def _be_kept(self, signals: Any, slowest_tick_s: float = 0.0) -> None:
        """Have somebody say the last words of a program that cannot; see `tui.keeper`."""
        from usv_tui.tui.board import Board
        from usv_tui.tui.taken import Last, taken

        self._taken = taken
        with contextlib.suppress(OSError, AttributeError):
            self._board = Board()
            signals.on_first = self._board.say_ending
            capture = self._capture
            session = "" if self._journal is None else str(self._journal.path)
            taken.last = Last(
                self._board,
                capture.real_stdout,
                capture.real_stderr,
                session,
                str(capture.path),
                slowest_tick_s,
            )

    # -- with the screen

    def on_screen(self) -> int:
        """The Textual app; the table stays on stdout when it is gone."""
        from usv_tui.signals import Signals
        from usv_tui.tui.app import ScreenOptions, run_screen

        self._start_capture()
        self._has_screen = True
        args = self._args
        options_ = ScreenOptions(
            title=self._title,
            fps=args.fps,
            ascii_only=True if args.ascii else None,
            mouse=args.mouse,
            close_at_end=self._config["iters"] is not None
            or args.max_time is not None
            or args.until is not None
            or hasattr(args, "visits")
            or (self._versions is not None and not args.watch),
        )
        is_over = True
        late: list[str] = []
        with Signals().watch() as signals:
            self._be_kept(signals, 1 / max(args.fps, 0.1))
            try:
                end = run_screen(self.connect, options_, signals=signals)
                signals.number = max(0, end.exit_code - 128)
            except Exception as error:
                if self._session is None:
                    raise
                self._go_on_without_screen(error, signals)
            finally:
                try:
                    if self._session is not None:
                        signals.on_first()
                        signals.event.set()  # one that comes now wants it quick
                        self._reserve.release()
                        is_over = self._session.close(
                            _signal_name(signals.number), hurry=signals.hurry
                        )
                finally:
                    late = self._capture.stop()
        for line in late[-20:]:
            say(f"| {line}")
        return self._finish(signals.number, is_over=is_over)

    def _voice(self) -> TextIO:
        """The caller's stderr, while that of this process is the benchmarks'."""
        encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
        fd = self._capture.duplicate_stderr()
        return os.fdopen(fd, "w", encoding=encoding, errors="replace")

    def _go_on_without_screen(self, error: Exception, signals: Any) -> None:
        """The screen failed; what is measured is not lost with it."""
        from usv_tui.cli import headless as front

        session = self._session
        session.faults.note("the screen", error)
        with contextlib.suppress(OSError, ValueError), self._voice() as voice:
            if not session.has_ended:
                print("usv-tui: going on without the screen; Ctrl-C ends the run", file=voice)
            front.run(session, front.Narration(voice), signals)

    def _finish(self, signal_number: int, *, is_over: bool, is_told: bool = False) -> int:
        outcome = Outcome(self._args, self._session, self._journal, self._output)
        code = outcome.tell(signal_number, is_told=is_told)
        if self._session is not None and not is_over:
            self.leave()
            leave_at_once(code)
        return code


def _signal_name(number: int) -> str:
    if not number:
        return ""
    return str(signal.Signals(number).name)

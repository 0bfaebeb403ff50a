"""The composition root: the only place that builds concrete things, and that knows exit codes.

Heavy imports happen inside functions: arguments are parsed and checked first, and the screen is up
before numpy and torch are imported.
"""

import argparse
import contextlib
import importlib
import io
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from usv_tui import __version__, descriptors, plain
from usv_tui.cli import options
from usv_tui.errors import ClockRefused, ExitCode, SuiteError, UsageError, UsvError, closest

HEADLESS_MAX_TIME_S = 10.0
_LATE = (
    "csv",
    "linecache",
    "numpy.fft",
    "numpy.ma",
    "resource",
    "tokenize",
    "unicodedata",
    "usv_tui.cli.headless",
    "usv_tui.report.table",
    "usv_tui.session.export",
    "usv_tui.session.goal",
    "usv_tui.session.outputs",
)
"""Needed when a run ends: imported before it begins, since then there may be no descriptor left."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Errors of the user's are one line on stderr."""
    _secure_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, rest = options.split_command(arguments)
    try:
        return _COMMANDS[command](rest)
    except UsvError as error:
        say(f"usv-tui: {plain.line(str(error))}")
        return int(error.exit_code)
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`): nothing is wrong, nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return int(ExitCode.OK)
    except KeyboardInterrupt:
        return 130
    except FileNotFoundError:
        try:
            Path.cwd()
        except OSError:
            say("usv-tui: the current directory is gone (cd to one that is there)")
            return int(ExitCode.USAGE)
        raise


def _secure_streams() -> None:
    """Closed standard streams lead nowhere; a character that one does not know is a `?`.

    Else the first file that is opened would take a closed stream's number, and get its output.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """A line on stderr; one that has gone away hears nothing."""
    try:
        print(plain.lines(text), file=sys.stderr, flush=True)  # noqa: T201  the program's voice
    except (OSError, ValueError):
        return


_STDOUT_LINE = 100_000
"""A table may be wide; its cells are bounded already."""


def _print(text: str) -> None:
    _to_stdout(lambda out: out.write(plain.lines(text, most=_STDOUT_LINE) + "\n"))


def _to_stdout(write: Callable[[TextIO], object]) -> None:
    """Data for whoever reads stdout; one that has gone away (`| head`) wants no more.

    Raises:
        UsageError: it cannot be written, for instance to a full disk.
    """
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer must not be tried again when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            raise UsageError(f"cannot write to stdout: {error.strerror}") from None


# -- usv-tui FILE


def _run(argv: list[str]) -> int:
    if "--version" in argv:
        _print(f"usv-tui {__version__}")
        return int(ExitCode.OK)
    if not argv:
        from usv_tui.cli import welcome

        _print(welcome.text())
        return int(ExitCode.OK)
    if argv and Path(argv[0]).suffix == ".usv":
        return _show("show", argv)
    from usv_tui.cli import script

    at = script.file_at(argv)
    if at is not None:
        if argv[at] == "pytest" and not Path("pytest").exists():
            return _measure(script.pytest(argv, at), suite="pytest")
        if not at:
            _check_file(argv[at])  # before its arguments: it may be a command that was misspelt
        if script.is_script(argv, at):
            _check_file(argv[at])
            return _start(script.parse(argv, at))
    return _start(options.run_parser().parse_args(argv))


def _start(args: argparse.Namespace) -> int:
    """Measure what was asked for, on a real or a simulated device."""
    if args.file is not None:
        _check_file(args.file)
    if args.device.partition(":")[0] == "sim":
        from usv_tui.sim import parse_spec

        card, scenario = parse_spec(args.device)
        return _simulate(args, card, scenario)
    if args.file is None:
        raise UsageError("which benchmark file?", "usv-tui FILE, or usv-tui demo")
    return _measure(args, suite=args.file)


def _simulate(args: argparse.Namespace, card: str, scenario: str) -> int:
    from usv_tui.cli.simulate import Simulation

    for flag, is_on in (("--isolate", args.isolate), ("--graph", args.graph)):
        if is_on:
            raise UsageError(f"{flag} means nothing on a simulated GPU", "leave it out")
    args.seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    simulation = Simulation(
        card, scenario, args.seed, getattr(args, "file", None) or "", blocker=args.blocker
    )
    args.device = simulation.device
    return _measure(args, suite=simulation.title, simulation=simulation)


def _check_file(name: str) -> None:
    """What can be told of a benchmark file without running it."""
    path = Path(name)
    if not name or not path.exists():
        raise SuiteError(f"{name or repr(name)}: no such file", _meant(path, name))
    if path.is_dir():
        raise SuiteError(f"{name} is a directory", "give one of its Python files")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise SuiteError(f"cannot read {name}: {error.strerror}") from None
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SuiteError(
            f"{name}:{error.lineno or 1}: {error.msg}", "the file is not valid Python"
        ) from None
    except ValueError as error:
        raise SuiteError(f"{name} is not a Python file: {error}") from None


def _meant(path: Path, name: str) -> str:
    """The command or the file that a wrong name may stand for."""
    if not path.suffix and (like := closest(name, options.COMMANDS)):
        return f"{like} usv-tui --help lists the commands"
    try:
        beside = [p.name for p in path.parent.iterdir() if p.suffix in (".py", ".usv")]
    except OSError:
        beside = []
    return closest(path.name, beside) or "give the path of a Python file with benchmarks"


def _measure(args: argparse.Namespace, suite: str, simulation: Any = None) -> int:
    """Build the session, run a front end over it, print what remains."""
    config = _config(args)
    why_headless = ""
    if not args.headless:
        from usv_tui.cli.terminal import why_no_screen

        why_headless = why_no_screen()
    is_headless = args.headless or bool(why_headless)
    is_open = args.iters is None and args.max_time is None and args.until is None
    if is_headless and is_open and not hasattr(args, "visits") and _script_of(args) is None:
        config["max_time_s"] = HEADLESS_MAX_TIME_S
    on_stdout = [name for name, target in _data(args).items() if target == "-"]
    if len(on_stdout) > 1:
        options_ = " and ".join(f"--{name} -" for name in on_stdout)
        raise UsageError(f"{options_} both want stdout", "give one of them a file")
    _check_outputs(args)
    _fix_outputs(args)
    plan = _Plan(args, suite, config, simulation)
    if why_headless:
        say(f"usv-tui: no screen ({why_headless}): running headless")
    try:
        return plan.headless() if is_headless else plan.on_screen()
    finally:
        plan.leave()


def _script_of(args: argparse.Namespace) -> list[str] | None:
    """The arguments of a script that is run as it is; None for a suite."""
    found: list[str] | None = getattr(args, "script", None)
    return found


def _data(args: argparse.Namespace) -> dict[str, str | None]:
    """Where the data of a run go, by kind."""
    return {"json": args.json, "csv": args.csv, "json-lines": args.json_lines}


def _check_outputs(args: argparse.Namespace) -> None:
    """What is to be written at the end can be, and in nobody's place: told before measuring."""
    from usv_tui.session import outputs

    wanted = {f"--{kind}": target for kind, target in _data(args).items()}
    paths = {option: Path(name) for option, name in wanted.items() if name not in (None, "-")}
    for option, path in paths.items():
        outputs.check(path, option[2:])
    saved = {} if args.save is None else {"--save": Path(args.save)}
    outputs.check_apart(paths | saved)


def _fix_outputs(args: argparse.Namespace) -> None:
    """They go where the user stood, whatever directory the benchmarks change to."""
    for option in ("json", "csv"):
        name = getattr(args, option)
        if name not in (None, "-"):
            setattr(args, option, str(Path(name).absolute()))


def _config(args: argparse.Namespace) -> dict[str, Any]:
    """The values of `RunConfig`; a dict, so that model need not be imported yet."""
    from usv_tui.engine import pace

    pace.Pace.parse(args.pace)
    return {
        "device": args.device,
        "timer": args.timer,
        "iters": args.iters,
        "max_time_s": args.max_time,
        "inner": args.inner,
        "target_window_s": args.target_window,
        "row_timeout_s": args.row_timeout,
        "warmup_max_s": args.warmup,
        "seed": secrets.randbelow(1 << 31) if args.seed is None else args.seed,
        "cache": args.cache,
        "flush_mb": args.flush_mb,
        "pace": args.pace,
        "graph": args.graph,
        "blocker": args.blocker,
        "control": args.control,
        "realloc": args.realloc,
        "gate": not args.no_gate,
    }


class _Plan:
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
            device=args.device,
            select=args.select,
            config=config,
            script=_script_of(args),
        )
        simulation = self._simulation
        prepared, card = (None, None) if simulation is None else simulation.start()
        pids: list[int] = []

        def make(asked: model.WorkRequest) -> live.ThreadSource | live.ChildSource:
            if not args.isolate:
                place = None
                if self._board is not None:
                    place = where.Outside(self._board.row_cells, self._board.meet)
                return live.ThreadSource(asked, gate, prepared=prepared, where=place)
            out_fd = None if self._output is None else self._output.fd
            child = live.ChildSource(asked, 1 if self._capture else 2, out_fd)
            pids.append(child.pid)
            return child

        source = relay.Relay(make, request, is_process=args.isolate)
        make_watcher = None
        if not args.no_telemetry:
            make_watcher = watch.watcher_for(None if card is None else card.telemetry, pids)
        session = controller.LiveSession(
            source,
            suite=self._suite,
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
            session.tell("look for", simulation.look_for)
        if self._save_note:
            session.tell("not saved", self._save_note, "warn")
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
            if _script_of(self._args) is not None:
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
            title=self._suite,
            fps=args.fps,
            ascii_only=True if args.ascii else None,
            mouse=args.mouse,
            close_at_end=self._config["iters"] is not None
            or args.max_time is not None
            or args.until is not None
            or hasattr(args, "visits"),
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

    def _say_no_table(self, error: Exception, kind: str = "result") -> int:
        """A fault of our own at the very end; what was measured is in the file."""
        from usv_tui.errors import one_line
        from usv_tui.session.faults import place_of

        where = f"at {place_of(error)}: {one_line(error)}"
        kept = "" if self._journal is None else f" (the samples are in {self._journal.path})"
        say(f"usv-tui: no {kind}: a fault of usv-tui's own {where}{kept}")
        return int(ExitCode.WORKER_LOST)

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

    # -- what remains

    def _give_output(self, session: Any) -> None:
        """What a script wrote, where stdout is not for data."""
        if self._output is None or self._output.is_empty or "-" in _data(self._args).values():
            return
        _to_stdout(lambda _: self._output.copy_to(sys.stdout.buffer))
        if session.has_samples:
            _print("")

    def _finish(self, signal_number: int, *, is_over: bool, is_told: bool = False) -> int:
        """Data, table and the way back to them; never waits for a worker that hangs.

        `is_told` when stderr has had all warnings already; else they are said where no table is.
        """
        from usv_tui.cli import headless as front
        from usv_tui.report import table
        from usv_tui.session import export

        session = self._session
        if session is None:
            return 128 + signal_number if signal_number else int(ExitCode.WORKER_LOST)
        try:
            snapshot = session.final_snapshot()
        except Exception as error:  # noqa: BLE001  a fault of ours must not be the last word
            return self._say_no_table(error)
        args = self._args
        code = front.exit_code(session, signal_number)
        self._give_output(session)
        for kind, target in (("table", "-"), *_data(args).items()):
            try:
                if target not in (None, "-"):
                    export.write_file(Path(target), session.store, snapshot, kind)
                elif kind == "table" and "-" not in _data(args).values() and session.has_samples:
                    _print(table.render(snapshot, markdown=args.markdown, width=_terminal_width()))
                    found = export.sweep_text(session.store, markdown=args.markdown)
                    if session.sweep is not None and not found:
                        _print("\nclock sweep: no clock was visited to its end")
                    elif found:
                        _print(f"\n(the table above holds for the last clock alone)\n\n{found}")
                elif kind != "table" and target == "-":
                    _to_stdout(partial(export.write, kind, session.store, snapshot))
            except UsageError as error:
                say(f"usv-tui: {error}")
                code = code or int(error.exit_code)
            except Exception as error:  # noqa: BLE001  the other results can still be had
                code = code or self._say_no_table(error, kind)
        if not is_told and ("-" in _data(args).values() or not session.has_samples):
            for label, text in table.told_facts(snapshot, without=("fault",)):
                say(f"usv-tui: {label}: {plain.line(text)}")
        if session.fault is not None:
            fault = session.fault
            say(f"usv-tui: {fault.message}" + (f" ({fault.hint})" if fault.hint else ""))
            if fault.traceback:
                say(fault.traceback)
        if session.desk is not None and session.desk.failure:
            say(f"usv-tui: CLOCKS NOT GIVEN BACK: {session.desk.failure}")
        if session.journal_failure:
            say(f"usv-tui: {session.journal_failure}")
        elif self._journal is not None:
            mistake = session.fault is not None and code in (ExitCode.USAGE, ExitCode.NO_DEVICE)
            if mistake and not session.has_samples and args.save is None:
                # The user's own mistake, and nothing was timed: there is nothing to keep.
                self._journal.path.unlink(missing_ok=True)
            else:
                say(f"session saved: {args.save or self._journal.path}")
        if session.store.refused and session.fault is None:
            for item in session.store.refused:
                say(f"usv-tui: not timed: {plain.name(item.name)}: {plain.line(item.reason)}")
        if not session.has_samples and session.fault is None:
            say(f"usv-tui: nothing was timed{session.store.where_it_stands}")
        elif session.store.unsampled and session.fault is None:
            why = session.store.stop_reason or "the run was ended"
            say(f"usv-tui: not timed: {', '.join(session.store.unsampled)} ({why})")
        if not is_over:
            # A call that hangs holds the worker's thread: leave without waiting for it.
            self.leave()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code


def _terminal_width() -> int | None:
    """The width that a table on stdout may take; None when it is no terminal."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return None


def _signal_name(number: int) -> str:
    if not number:
        return ""
    return str(signal.Signals(number).name)


# -- the other commands


def _list(argv: list[str]) -> int:
    args = options.list_parser().parse_args(argv)
    _check_file(args.file)
    from usv_tui import timesource
    from usv_tui.engine import worker
    from usv_tui.suite import discovery

    device, reason, _, _ = worker.choose_device(
        args.device, lambda _record: None, timesource.MonotonicTime()
    )
    suite = discovery.load_suite(args.file, device, args.select or None)
    say(f"device {device}: {reason}")
    for name, note in discovery.summary(suite, everything=args.all):
        _print(f"{plain.name(name)}  {plain.line(note)}".rstrip())
    is_refused = any(skipped.is_refused for skipped in suite.skipped)
    return int(ExitCode.BENCH_FAILED if is_refused else ExitCode.OK)


def _export(argv: list[str]) -> int:
    args = options.export_parser().parse_args(argv)
    from usv_tui.report import formats, table
    from usv_tui.session import export, opened, outputs
    from usv_tui.session import store as store_module

    session = opened.open_session(Path(args.session))
    store, snapshot = session.store, session.snapshot
    if args.to in ("table", "markdown"):
        text = table.render(snapshot, markdown=args.to == "markdown")
        found = export.sweep_text(store, markdown=args.to == "markdown")
        text += f"\n\n{found}" if found else ""
        if args.output == "-":
            _print(text)
        else:
            shown = plain.lines(text, _STDOUT_LINE)
            outputs.write_whole(Path(args.output), args.to, lambda out: out.write(shown + "\n"))
    elif args.to in formats.FORMATS:
        path = None if args.output == "-" else Path(args.output)
        _to_stdout(lambda out: formats.write(args.to, session, path, out))
    elif args.output == "-":
        _to_stdout(partial(export.write, args.to, store, snapshot))
    else:
        export.write_file(Path(args.output), store, snapshot, args.to)
    if not store.is_whole:
        for told in snapshot.told:
            if told.code in store_module.NOT_WHOLE:
                say(f"usv-tui: {args.session}: {told.text}")
        return int(ExitCode.USAGE)
    if not snapshot.complete:
        say(f"usv-tui: {args.session} is partial: {snapshot.stop_reason or 'it has no end'}")
    return int(ExitCode.OK)


def _show(verb: str, argv: list[str]) -> int:
    from usv_tui.cli import replay

    args = replay.parser(verb).parse_args(argv)

    def as_table(why: str) -> int:
        say(f"usv-tui: no screen ({why}): the table instead")
        return _export([args.session, "--to", "table"])

    return replay.run(args, verb, as_table)


def _init(argv: list[str]) -> int:
    from usv_tui.cli import starter

    _print(starter.write(starter.parser().parse_args(argv)))
    return int(ExitCode.OK)


def _compare(argv: list[str]) -> int:
    from usv_tui.cli import compare

    args = compare.parser().parse_args(argv)
    width = None if args.to == "markdown" or args.output != "-" else _terminal_width()
    return compare.run(args, width, _print)


def _history(argv: list[str]) -> int:
    from usv_tui.cli import history

    return history.run(history.parser().parse_args(argv), _terminal_width(), _print)


def _demo(argv: list[str]) -> int:
    args = options.demo_parser().parse_args(argv)
    from usv_tui.sim import DEFAULT_CARD, DEFAULT_SCENARIO

    if args.show_list:
        from usv_tui.cli.simulate import listing

        _print(listing())
        return int(ExitCode.OK)
    if args.device != "auto":
        raise UsageError(
            f"the demo brings its own device, not {args.device}", "--card chooses another one"
        )
    return _simulate(args, args.card or DEFAULT_CARD, args.scenario or DEFAULT_SCENARIO)


def _doctor(argv: list[str]) -> int:
    args = options.doctor_parser().parse_args(argv)
    from usv_tui.cli import doctor as commands

    return int(commands.run(args.device, as_json=args.json, out=sys.stdout))


def _clocks(argv: list[str]) -> int:
    if argv[:1] == ["sweep"]:
        return _sweep(argv[1:])
    from usv_tui.cli import clocks as commands

    return int(commands.main(argv))


def _sweep(argv: list[str]) -> int:
    args = options.sweep_parser().parse_args(argv)
    for flag in ("lock", "until", "iters", "max_time", "keep_lock"):
        if getattr(args, flag):
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(f"{name} means nothing in a sweep", "see usv-tui clocks sweep --help")
    if args.from_mhz and args.to_mhz and args.from_mhz > args.to_mhz:
        raise UsageError(
            f"--from {args.from_mhz} is above --to {args.to_mhz}",
            "from the lower to the higher clock",
        )
    if args.file is not None:
        _check_file(args.file)
    from usv_tui.engine import worker

    if args.device == "cpu" or (args.device == "auto" and not worker.sees_gpu()):
        from usv_tui.clocks.controllers import CPU_CLOCK

        why = "no GPU is seen here, and " if args.device == "auto" else ""
        raise ClockRefused(f"nothing to sweep: {why}{CPU_CLOCK}", "--device sim:h100 is a try-out")
    return _start(args)


def _lie(argv: list[str]) -> int:
    args = options.lie_parser().parse_args(argv)
    if args.file is not None and not args.device.startswith("sim"):
        _check_file(args.file)
    from usv_tui.cli import lie as commands

    return int(commands.run(args))


def _explain(argv: list[str]) -> int:
    from usv_tui.cli import explain

    return explain.run(explain.parser().parse_args(argv), _print)


def _judge(argv: list[str]) -> int:
    from usv_tui.cli import judge

    return _start(judge.parse(argv))


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": _run,
    "list": _list,
    "export": _export,
    "replay": partial(_show, "replay"),
    "watch": partial(_show, "watch"),
    "init": _init,
    "compare": _compare,
    "history": _history,
    "demo": _demo,
    "doctor": _doctor,
    "clocks": _clocks,
    "lie": _lie,
    "explain": _explain,
    "judge": _judge,
}

"""A script while it runs as `__main__`: what it imports is patched, what it asks for is timed."""

import atexit
import builtins
import contextlib
import contextvars
import functools
import importlib
import importlib.util
import math
import os
import runpy
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.errors import SuiteError, one_line
from usv_tui.foreign.calls import Answer, Call, Conductor, Stopped
from usv_tui.foreign.cells import Cell, Outcome
from usv_tui.foreign.finder import LIBRARIES, Finder
from usv_tui.foreign.freeze import freeze
from usv_tui.foreign.held import held_bytes
from usv_tui.foreign.surroundings import Surroundings

AUTOTUNERS = (
    *("triton.runtime", "triton.compiler", "torch._inductor", "torch._dynamo", "helion"),
    *("tilelang.autotuner", "tilelang.profiler", "flashinfer.autotuner", "flashinfer.tuning"),
)
"""Whose trials are none of the script's benchmarks."""
_JOIN_S = 0.2
_LONGEST_S = 20.0
"""Calls that wait for so much time are timed, so that whoever looks on sees some."""
ALONE = "no other call was known when its value was needed"


class Ending(NamedTuple):
    """How a script ended."""

    code: int
    said: str = ""
    """What it died of, in a line; empty where it ended in order."""
    hint: str = ""
    is_own: bool = False
    """It left by itself, with `sys.exit`."""


class Label(NamedTuple):
    """What the calls that a cell makes are called."""

    name: str
    params: Mapping[str, Any] = {}
    group: str = ""
    is_baseline: bool = False


CELL: contextvars.ContextVar[Label | None] = contextvars.ContextVar("cell", default=None)
"""Of the cell that runs, where its rows have a name."""


@dataclass(eq=False)
class Waiting:
    """A call that was met, and waits for its group."""

    call: Call
    group: object
    """Calls of equal groups are interleaved."""
    deliver: Callable[[Answer], object]


class Host:
    """One script. Its calls come through `in_place`, `later` and `cells`."""

    def __init__(self, conductor: Conductor, path: Path, arguments: Sequence[str] = ()) -> None:
        self.conductor = conductor
        self._path = path
        self._file = os.path.abspath(path)  # noqa: PTH100  as Python names it, links and all
        self._arguments = list(arguments)
        self._undo: list[Callable[[], object]] = []
        self._pid = os.getpid()
        self._busy = 0
        self._has_called = False
        self._names: dict[str, int] = {}
        self._waiting: list[Waiting] = []
        self._cells: dict[int, Cell] = {}
        self._thread = 0
        self._skipped: list[float] = []
        self._real_sleep: Callable[[float], object] = lambda _: None
        self._register: Callable[..., object] = lambda _: None
        self._exits: list[Callable[[], object]] = []
        self._threads_before = set(threading.enumerate())

    # -- running

    def run(self, name: str = "") -> Ending:
        """Run the script to its end; `name` is that of a module to be run instead (pytest)."""
        self._thread = threading.get_ident()
        with self._surrounded(), self._patched():
            try:
                self._execute(name)
                self.flush()
                ending = Ending(0)
            except Stopped:
                ending = Ending(0)
            except SystemExit as error:
                ending = self._exited(error)
            except KeyboardInterrupt:
                ending = Ending(130, "KeyboardInterrupt")
            except BaseException as error:  # noqa: BLE001  a script may raise anything
                ending = self._died(error)
            if os.getpid() != self._pid:
                _leave(ending.code)
            self._end_of_waiting()
            self._last_things()
        if self._skipped:
            evidence = {"count": len(self._skipped), "seconds": sum(self._skipped)}
            self.conductor.tell(Code.SLEEPS_SKIPPED, evidence)
        return ending

    def _execute(self, name: str) -> None:
        if name:
            self._run_module(name)
            return
        source = self._path.read_bytes()
        code = compile(source, self._file, "exec", dont_inherit=True)
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102  running the script is the purpose

    def _run_module(self, name: str) -> None:
        """`python -m name`; pytest gets the plugin that times for its benchmark fixture."""
        if name == "pytest":
            plugin = importlib.import_module("usv_tui.foreign.pytest_fixture")
            plugin.attach(self)
            self.on_end(lambda: plugin.attach(None))
            sys.argv[1:1] = ["-p", plugin.__name__]
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    @contextlib.contextmanager
    def _surrounded(self) -> Iterator[None]:
        """argv, the search path and `__main__`, as when Python runs the script."""
        module = types.ModuleType("__main__")
        module.__dict__.update(
            __file__=self._file,
            __builtins__=builtins,
            __cached__=None,
            __spec__=None,
            __loader__=SourceFileLoader("__main__", self._file),
        )
        before = sys.argv, list(sys.path), sys.modules.get("__main__")
        sys.argv = [str(self._path), *self._arguments]
        sys.path.insert(0, str(self._path.resolve().parent))
        sys.modules["__main__"] = module
        try:
            yield
        finally:
            sys.argv, sys.path[:] = before[0], before[1]
            if before[2] is not None:
                sys.modules["__main__"] = before[2]

    def _exited(self, error: SystemExit) -> Ending:
        """As Python takes what `sys.exit` was given."""
        with contextlib.suppress(Stopped):
            self.flush()
        if error.code is None or isinstance(error.code, int):
            return Ending(int(error.code or 0) & 0xFF, is_own=True)
        print(error.code, file=sys.stderr)  # noqa: T201  as Python does
        return Ending(1)

    def _died(self, error: BaseException) -> Ending:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == self._file]
        where = f"{self._path}:{lines[-1]}" if lines else str(self._path)
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = f"install it for {sys.executable}"
        else:
            text = traceback.format_exception(error.with_traceback(_own_part(error, self._file)))
            print("".join(text), end="", file=sys.stderr)  # noqa: T201  as Python does
        return Ending(1, f"{where}: {one_line(error)}", hint)

    # -- patching

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        self._real_sleep = self.replace(time, "sleep", self._sleep)
        self._register = self.replace(atexit, "register", self._at_exit)
        finder = Finder(self._install)
        sys.meta_path.insert(0, finder)
        try:
            for name in LIBRARIES:
                if name in sys.modules:
                    self._install(sys.modules[name])
            self._alias()
            yield
        finally:
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)
            for undo in reversed(self._undo):
                undo()
            self._undo.clear()

    def _at_exit(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What is to be done at the script's end, which is before that of this program."""
        if os.getpid() != self._pid:
            return self._register(function, *args, **kwargs)
        self._exits.append(functools.partial(function, *args, **kwargs))
        return function

    def _last_things(self) -> None:
        """As Python does at its end: threads are waited for, then what was registered is called."""
        for thread in set(threading.enumerate()) - self._threads_before:
            if not thread.daemon and thread is not threading.current_thread():
                self._wait_for(thread)
        while self._exits:
            try:
                self._exits.pop()()
            except Exception:  # noqa: BLE001  as Python: it is shown, and the others are called
                traceback.print_exc()

    def _wait_for(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            thread.join(_JOIN_S)
            if self.conductor.is_stopped:
                return

    def _alias(self) -> None:
        """Where the script asks for usv it gets the API of the same names here."""
        usv_itself = importlib.import_module("usv_tui.foreign.usv_itself")
        usv_itself.alias(self)

    def _install(self, module: types.ModuleType) -> None:
        adapter = importlib.import_module(f"usv_tui.foreign.{LIBRARIES[module.__name__]}")
        adapter.install(module, self)

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Put something in the place of an attribute until the script ends; what was there."""
        old = getattr(owner, name)
        raw = vars(owner).get(name, old) if hasattr(owner, "__dict__") else old
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, raw))
        return old

    def on_end(self, undo: Callable[[], object]) -> None:
        """Called when the script has ended."""
        self._undo.append(undo)

    # -- who calls

    def is_ours(self) -> bool:
        """Whether a call of an entry point is a benchmark of the script's.

        Those of autotuners are not, nor those within a callable that is being timed, nor those of
        other threads and of forked processes.
        """
        if self._busy or os.getpid() != self._pid:
            return False
        if threading.get_ident() != self._thread and threading.get_ident() not in self._cells:
            return False
        return not self._caller().startswith(AUTOTUNERS)

    def _caller(self) -> str:
        """The module that called an entry point."""
        frame = sys._getframe(1)
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if not name.startswith("usv_tui.foreign") and name not in LIBRARIES:
                return name
            frame = frame.f_back  # type: ignore[assignment]
        return ""

    def call_site(self, fn: Callable[[], object]) -> str:
        """A name for what has none: its function's, or the line that asked."""
        name = str(getattr(fn, "__name__", ""))
        if name and "<" not in name:
            return name
        frame = sys._getframe(1)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if not module.startswith("usv_tui.") and module not in LIBRARIES:
                where = frame.f_code.co_name.strip("<>")
                return f"{where if where != 'module' else self._path.stem}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return self._path.stem

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Within, what is called is being timed."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def _sleep(self, seconds: float, /) -> None:
        """People let a card rest between measurements, for which there is no need here."""
        frame = sys._getframe(1)
        if self._is_rest(frame.f_globals):
            self._skipped.append(float(seconds))
            return
        self._real_sleep(seconds)

    def _is_rest(self, names: dict[str, Any]) -> bool:
        if self._busy or not self._has_called or os.getpid() != self._pid:
            return False
        name, file = str(names.get("__name__", "")), str(names.get("__file__", ""))
        is_library = name.startswith(("flashinfer.", "tritonbench.", "triton.testing"))
        folder = str(self._path.resolve().parent)
        return name == "__main__" or is_library or os.path.realpath(file).startswith(folder + "/")

    # -- timing

    def in_place(self, call: Call, why: str = ALONE) -> Answer:
        """Time a call now, or with those of the other cells where it is made in one.

        Raises:
            BaseException: what the callable raises.
        """
        cell = self._cells.get(threading.get_ident())
        if cell is None:
            call.group, call.is_baseline = "", False  # nothing is timed beside it
        else:
            call.fn = freeze(call.fn)
        self._meet(call)
        answer = self._measure([call], why)[0] if cell is None else cell.park(call)
        if answer.error is not None:
            raise answer.error
        return answer

    def later(
        self,
        call: Call,
        group: object,
        deliver: Callable[[Answer], object],
    ) -> None:
        """Time a call when its group is complete, at the latest when its value is asked for.

        Raises:
            BaseException: what the callable raises.
        """
        self._meet(call)
        self._waiting.append(Waiting(call, group, deliver))
        held = held_bytes([item.call for item in self._waiting])
        if held > self.conductor.room_bytes:
            evidence = {"held_bytes": held, "rows": len(self._waiting)}
            self.conductor.tell(Code.GROUP_CLOSED, evidence, call)
            self.flush()
        beside = [item.call.seconds for item in self._waiting if item.group == group]
        if math.fsum(beside) > _LONGEST_S:
            told = {"seconds": math.fsum(beside), "rows": len(beside)}
            self.conductor.tell(Code.GROUP_CLOSED, told, call)
            self.flush()

    def elsewhere(self, call: Call, windows_s: Sequence[float], why: str) -> None:
        """Windows that the library's own timer has timed."""
        self._has_called = True
        call.group, call.is_baseline = "", False
        self._number(call)
        self.conductor.timed_elsewhere(call, windows_s, why)

    def flush(self) -> None:
        """Time everything that waits, a group at a time."""
        while self._waiting:
            group = self._waiting[0].group
            state = self._waiting[0].call.surroundings
            is_inference = state is not None and state.is_inference
            members = [
                item
                for item in self._waiting
                if item.group == group
                and (s := item.call.surroundings, s is not None and s.is_inference)[1]
                == is_inference
            ]
            self._waiting = [item for item in self._waiting if item not in members]
            why = ALONE if len(members) == 1 else ""
            answers = self._measure([item.call for item in members], why)
            for item, answer in zip(members, answers, strict=True):
                item.deliver(answer)

    def _meet(self, call: Call) -> None:
        self._has_called = True
        own = call.surroundings
        call.surroundings = own or Surroundings.now()
        self._number(call)
        with self.busy(), own.entered() if own else contextlib.nullcontext():
            error = self.conductor.meet(call)
        if error is not None:
            raise error

    def _measure(self, calls: Sequence[Call], why: str = "") -> list[Answer]:
        with self.busy():
            return self.conductor.measure(calls, sequential=why)

    def _number(self, call: Call) -> None:
        """Names are told apart, also of what is timed again."""
        name = call.full_name
        self._names[name] = count = self._names.get(name, 0) + 1
        if count > 1:
            call.params = {**call.params, "run": count}
            call.group = call.group and f"{call.group} run {count}"

    def cells(self, bodies: Sequence[Callable[[], Any]]) -> list[Outcome]:
        """Run pieces of the script side by side: each stands at its call until all do.

        Only one of them runs at a time, in a thread of its own with the state of this one; their
        calls are interleaved. Where what they hold passes the budget, those that stand are timed
        before the next one begins.
        """
        outcomes: list[Outcome] = []
        batch: list[Cell] = []
        for body in bodies:
            cell = Cell(body, self._cells)
            cell.go_on()
            batch.append(cell)
            held = held_bytes([c.call for c in batch if c.call is not None])
            if held > self.conductor.room_bytes:
                parked = [c.call for c in batch if c.call is not None]
                evidence = {"held_bytes": held, "rows": len(parked)}
                self.conductor.tell(Code.GROUP_CLOSED, evidence, parked[-1])
                outcomes += self._work_off(batch)
                batch = []
        return outcomes + self._work_off(batch)

    def _work_off(self, cells: list[Cell]) -> list[Outcome]:
        try:
            while parked := [cell for cell in cells if cell.call is not None]:
                calls = [cell.call for cell in parked if cell.call is not None]
                why = ALONE if len(calls) == 1 else ""
                answers = self._measure(calls, why)
                for cell, answer in zip(parked, answers, strict=True):
                    cell.answer(answer)
        except Stopped:
            for cell in cells:
                cell.abandon()
            raise
        return [cell.outcome for cell in cells]

    def _end_of_waiting(self) -> None:
        for cell in list(self._cells.values()):
            cell.abandon()


def _own_part(error: BaseException, file: str) -> Any:
    """The traceback from the script's first frame on."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename != file:
        step = step.tb_next
    return step or error.__traceback__


def _leave(code: int) -> None:
    """A copy of this process, forked by the script, that has come to the script's end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def takes() -> str:
    """What a script can be timed by, for a message."""
    return (
        "triton.testing, torch.utils.benchmark, tritonbench, flashinfer.testing, cuda.bench, usv "
        "or pytest-benchmark"
    )


def nothing_called(path: str) -> SuiteError:
    """A script that ran to its end and asked for nothing."""
    return SuiteError(
        f"{path}: no benchmarks in it, and it called nothing of {takes()}",
        "@usv_tui.benchmark, functions named bench_…, or one of these libraries",
    )

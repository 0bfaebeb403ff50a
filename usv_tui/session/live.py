"""A running measurement as a source of records: a worker thread, or a child process.

Both carry the same records and take the same commands; see `engine.worker`.
"""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import msgspec

from usv_tui.codes import Code
from usv_tui.engine.choice import Emit
from usv_tui.engine.stage import LeftBehind
from usv_tui.engine.turns import Turns
from usv_tui.engine.where import Where, row_of, stack_of
from usv_tui.engine.worker import Prepared, work
from usv_tui.errors import ExitCode
from usv_tui.gate import Gate
from usv_tui.model import Notice, RunPhase, WorkRequest
from usv_tui.records import AnyRecord, Command, Fault, Noted, Output, Progress
from usv_tui.session.bracket import Bracket
from usv_tui.shelter import sheltered
from usv_tui.timesource import MonotonicTime, TimeSource

_BOOT = """\
import importlib.util, sys
root = sys.argv.pop()
sys.path.append(root)
spec = importlib.util.spec_from_file_location("usv_tui", root + "/usv_tui/__init__.py")
package = sys.modules["usv_tui"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from usv_tui.session.child import main
sys.exit(main())
"""
"""The folder that the program is run from is no place of modules; that of this package is one, and
no other copy of this package measures, whatever the interpreter has."""
_LAST_WORDS_S = 0.3
WHERE_BYTES = mmap.PAGESIZE
_LENGTH = struct.Struct("<I")
_records = msgspec.msgpack.Decoder(list[AnyRecord])
_encoder = msgspec.msgpack.Encoder()


Ends = tuple[int, int] | tuple[()]


class Place(NamedTuple):
    """Where a measuring process runs, if it is not where this one does."""

    python: str = sys.executable
    folder: str = ""
    environment: Mapping[str, str] = MappingProxyType({})
    """What it has beside this process's own."""
    card_fd: int = -1
    """Where it has a simulated card that this process keeps; this process's end goes."""


class Loss(NamedTuple):
    """How a worker was lost, and in which row's code."""

    kind: str
    """SIGSEGV, exit, hang …"""
    what: str
    """In words."""
    bench: int | None = None
    hint: str = ""
    exit_code: int = int(ExitCode.WORKER_LOST)
    code: int | None = None
    """What it left with, where it left by itself."""


def _work_here(request: WorkRequest, emit: Emit, *arguments: Any) -> None:
    """The loop in this process, which a row must not end."""

    def tell(what: str) -> None:
        evidence, at_ns = {"what": what}, MonotonicTime.now_ns()
        emit(Noted(Notice(code=Code.THREAD_EXIT, at_ns=at_ns, level="warn", evidence=evidence)))

    with sheltered(tell):
        work(request, emit, *arguments)


class ThreadSource:
    """The loop in a raw daemon thread of this process: it never keeps the process alive."""

    def __init__(
        self,
        request: WorkRequest,
        gate: Gate,
        time_source: TimeSource | None = None,
        prepared: Prepared | None = None,
        where: Where | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`where` hears of rows and of long calls, for somebody outside."""
        self._queue: deque[AnyRecord] = deque()
        self._commands: deque[Command] = deque()
        self._wake = threading.Event()
        self.loss: Loss | None = None
        """Set when the worker was given up."""
        self._thread = threading.Thread(
            target=_work_here,
            args=(
                request,
                self._emit,
                self._commands,
                self._wake,
                gate,
                time_source,
                prepared,
                where,
                turns,
            ),
            name="usv-worker",
            daemon=True,
        )

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def drain(self) -> list[AnyRecord]:
        """Everything new, in order."""
        queue = self._queue
        return [queue.popleft() for _ in range(len(queue))]

    def command(self, command: Command) -> None:
        """Taken by the loop between two blocks."""
        self._commands.append(command)
        self._wake.set()

    def _emit(self, record: AnyRecord) -> None:
        if self.loss is not None:
            raise LeftBehind
        self._queue.append(record)

    def current(self) -> tuple[int, ...] | None:
        """Looks at the thread's stack: costs the timed path nothing."""
        bench = row_of(self._thread.ident or -1)
        return None if bench is None else (bench,)

    def tell_stack(self) -> None:
        """Look at the thread's stack."""
        now_ns = MonotonicTime.now_ns()
        self._queue.extend(Output(now_ns, line) for line in stack_of(self._thread.ident or -1))

    def give_up(self, loss: Loss) -> None:
        """It ends when its call returns, if ever, and says nothing more."""
        self.loss = loss

    def close(self, timeout_s: float) -> bool:
        """Ask it to stop; a call that hangs is left behind."""
        self.command(Command("stop", "quit"))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class ChildSource:
    """The loop in a process of its own: survives a segfault and a lost device context."""

    def __init__(
        self,
        request: WorkRequest,
        log_fd: int,
        place: Place | None = None,
        ends: Ends = (),
        out_fd: int | None = None,
    ) -> None:
        """`ends` are those of the pipes on which the turn is handed over; this process's go.

        `out_fd` is its standard output, where that is not part of the log.
        """
        self.loss: Loss | None = None
        """Set when the process is gone before its last word, and nobody asked it to go."""
        self._time = MonotonicTime()
        self._queue: deque[AnyRecord] = deque()
        self._bracket = Bracket()
        self._has_ended = False
        """The loop has said its last word: how the process leaves does not matter any more."""
        self._is_closing = False
        read_fd, write_fd = os.pipe()
        where_file, self._where = _shared_where()
        where_fd = where_file.fileno()
        place = place or Place()
        environment = dict(
            os.environ | place.environment,
            USV_TUI_RECORDS_FD=str(write_fd),
            USV_TUI_WHERE_FD=str(where_fd),
            USV_TUI_TURNS=",".join(map(str, ends)),
        )
        given = [write_fd, where_fd, *ends]
        if place.card_fd >= 0:
            environment["USV_TUI_CARD"] = str(place.card_fd)
            given.append(place.card_fd)
        self._process = subprocess.Popen(
            [place.python, "-P", "-u", "-c", _BOOT, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=log_fd if out_fd is None else out_fd,
            stderr=log_fd,
            pass_fds=given,
            env=environment,
            cwd=place.folder or None,
        )
        where_file.close()
        for fd in given:
            if fd != where_fd:
                os.close(fd)
        self._pipe = os.fdopen(read_fd, "rb")
        self._send(_encoder.encode(request))
        self._reader = threading.Thread(target=self._read, name="usv-records", daemon=True)

    @property
    def pid(self) -> int:
        """The measuring process."""
        return self._process.pid

    def start(self) -> None:
        """Begin to take its records."""
        self._reader.start()

    def _send(self, data: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            pipe.write(_LENGTH.pack(len(data)) + data)
            pipe.flush()

    def _read(self) -> None:
        """Take records until the process is gone; whatever goes wrong here is told."""
        try:
            self._read_all()
        except Exception as error:  # noqa: BLE001  a reader that dies silently would hang the run
            self._is_closing = True
            self._process.kill()
            self._fail(
                f"a record of the measuring process cannot be read: {error}",
                "please report this with the traceback",
                traceback.format_exc(),
            )

    def _fail(self, message: str, hint: str, text: str = "") -> None:
        now_ns = self._time.now_ns()
        code = int(ExitCode.WORKER_LOST)
        self._queue.append(Fault(now_ns, code, message, hint, text))
        self._queue.append(Progress(now_ns, RunPhase.ENDED, message))

    def _read_all(self) -> None:
        while True:
            data = read_frame(self._pipe)
            if data is None:
                break
            records = _records.decode(data)
            self._has_ended |= any(isinstance(r, Progress) and r.is_end for r in records)
            self._queue.extend(records)
            self._queue.extend(self._bracket.look(records, self._time.now_ns()))
        code = self._process.wait()
        if not self._has_ended and not self._is_closing and self.loss is None:
            self.loss = _loss_of(code, self._where)

    def drain(self) -> list[AnyRecord]:
        """Everything new, in order."""
        queue = self._queue
        return [queue.popleft() for _ in range(len(queue))]

    def command(self, command: Command) -> None:
        """Written to the child's standard input."""
        self._send(_encoder.encode(command))

    def current(self) -> tuple[int, ...] | None:
        """It is written where it can be read from here."""
        bench = self._where.bench
        return None if bench is None else (bench,)

    def tell_stack(self) -> None:
        """The process looks at its own stack, as far as its interpreter is free."""
        self.command(Command("stack"))

    def give_up(self, loss: Loss) -> None:
        """It is ended: with its stacks in the log where it still can, by force where not."""
        self.loss = loss
        self._process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_S)
        self._process.kill()

    def close(self, timeout_s: float) -> bool:
        """Ask it to stop, then kill it: one that does not answer is inside a call that hangs.

        True when the loop ended in order.
        """
        self._is_closing = True
        self.command(Command("stop", "quit"))
        for stop in (None, self._process.kill):
            if stop is not None:
                stop()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                continue
            break
        self._reader.join(timeout_s)
        if not self._reader.is_alive():
            self._pipe.close()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self._has_ended


def _shared_where() -> tuple[IO[bytes], Where]:
    """A piece of memory that two processes share, and that outlives either."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed when the child has it
    file.truncate(WHERE_BYTES)
    return file, Where(memoryview(mmap.mmap(file.fileno(), WHERE_BYTES)).cast("i"))


def _loss_of(code: int, where: Where) -> Loss:
    """How a process ended, from its exit status and what it left behind."""
    bench = where.bench
    if where.is_closed:
        return Loss("descriptors", "it closed file descriptors that are not its own", where.closer)
    if code >= 0:
        return Loss("exit", f"exit code {code}", bench, code=code)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "from outside, or for want of memory" if name == "SIGKILL" else ""
    return Loss(name, f"signal {name}", bench, hint)


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """One length-prefixed frame; None at the end of the pipe."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """The inverse of `read_frame`."""
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()

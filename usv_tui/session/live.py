"""A running measurement as a source of records: a worker thread, or a child process.

Both carry the same records and take the same commands; see `engine.worker`.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections import deque
from pathlib import Path
from typing import IO, Protocol

import msgspec

from usv_tui.engine.gate import Gate
from usv_tui.engine.worker import Prepared, work
from usv_tui.errors import ExitCode
from usv_tui.model import WorkRequest
from usv_tui.records import AnyRecord, Command, Fault, Progress
from usv_tui.timesource import MonotonicTime, TimeSource

_BOOT = """\
import sys
sys.path.append(sys.argv.pop())
from usv_tui.session.child import main
sys.exit(main())
"""
"""The folder that the program is run from is no place of modules; that of this package is one."""
_LENGTH = struct.Struct("<I")
_records = msgspec.msgpack.Decoder(list[AnyRecord])
_encoder = msgspec.msgpack.Encoder()


class RecordSource(Protocol):
    """Where records come from."""

    def drain(self) -> list[AnyRecord]:
        """Everything new, in order."""
        ...

    def command(self, command: Command) -> None:
        """Ask something of the worker."""
        ...

    def current(self) -> tuple[int, ...] | None:
        """Ids of the rows whose callable is running now; None when nothing can be told."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Stop; True when the worker has ended within the time."""
        ...


class ThreadSource:
    """The loop in a raw daemon thread of this process: it never keeps the process alive."""

    def __init__(
        self,
        request: WorkRequest,
        gate: Gate,
        time_source: TimeSource | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self._queue: deque[AnyRecord] = deque()
        self._commands: deque[Command] = deque()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=work,
            args=(
                request,
                self._queue.append,
                self._commands,
                self._wake,
                gate,
                time_source,
                prepared,
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

    def current(self) -> tuple[int, ...] | None:
        """Looks at the thread's stack: costs the timed path nothing."""
        frame = sys._current_frames().get(self._thread.ident or -1)  # noqa: SLF001  documented
        while frame is not None:
            slot = frame.f_locals.get("slot")
            if slot is not None and hasattr(slot, "bench"):
                return (int(slot.bench),)
            frame = frame.f_back
        return None

    def close(self, timeout_s: float) -> bool:
        """Ask it to stop; a call that hangs is left behind."""
        self.command(Command("stop", "quit"))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class ChildSource:
    """The loop in a process of its own: survives a segfault and a lost device context."""

    def __init__(self, request: WorkRequest, log_fd: int) -> None:
        self._time = MonotonicTime()
        self._queue: deque[AnyRecord] = deque()
        self._has_ended = False
        """The loop has said its last word: how the process leaves does not matter any more."""
        self._is_closing = False
        read_fd, write_fd = os.pipe()
        environment = dict(os.environ, USV_TUI_RECORDS_FD=str(write_fd))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", _BOOT, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(write_fd,),
            env=environment,
        )
        os.close(write_fd)
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
        self._queue.append(Progress(now_ns, "ended", message))

    def _read_all(self) -> None:
        while True:
            data = read_frame(self._pipe)
            if data is None:
                break
            records = _records.decode(data)
            self._has_ended |= any(isinstance(r, Progress) and r.phase == "ended" for r in records)
            self._queue.extend(records)
        code = self._process.wait()
        if not self._has_ended and not self._is_closing:
            now_ns = self._time.now_ns()
            what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self._queue.append(
                Fault(
                    now_ns,
                    int(ExitCode.WORKER_LOST),
                    f"the measuring process died: {what}",
                    "the samples until then are kept; its last output is in the log",
                )
            )
            self._queue.append(Progress(now_ns, "ended", f"worker lost: {what}"))

    def drain(self) -> list[AnyRecord]:
        """Everything new, in order."""
        queue = self._queue
        return [queue.popleft() for _ in range(len(queue))]

    def command(self, command: Command) -> None:
        """Written to the child's standard input."""
        self._send(_encoder.encode(command))

    def current(self) -> tuple[int, ...] | None:
        """The child does not tell."""
        return None

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

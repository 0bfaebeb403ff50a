"""The measuring process of `--isolate`: commands on stdin, records on a private pipe.

Its standard output and error are the session's log from the first instruction on, so even what a
library prints at import is kept. Records are written between rounds.
"""

import contextlib
import ctypes
import errno
import faulthandler
import mmap
import os
import signal
import sys
import threading
from collections import deque
from functools import partial

import msgspec

from usv_tui import signals
from usv_tui.codes import Code
from usv_tui.copies import no_copies
from usv_tui.descriptors import Identity
from usv_tui.engine.turns import Line, Turns
from usv_tui.engine.where import Where, stack_of
from usv_tui.engine.worker import work
from usv_tui.gate import Gate
from usv_tui.model import Notice, WorkRequest
from usv_tui.records import AnyRecord, Command, Noted, Output, Samples, encode_batch
from usv_tui.session.capture import NoKeyboard
from usv_tui.session.card import shared
from usv_tui.session.live import WHERE_BYTES, read_frame, write_frame
from usv_tui.timesource import MonotonicTime

_FLUSH_NS = 10_000_000
"""Samples that a crash may cost: those of this time."""
_PR_SET_PDEATHSIG = 1


class _Sender:
    """Batches records, so that a round costs no system call of its own."""

    def __init__(self, fd: int, where: Where) -> None:
        os.set_inheritable(fd, False)
        self._where = where
        self._identity = Identity(fd)
        self._fd = fd
        self.heard: deque[AnyRecord] = deque()
        """From signal handlers, which may have interrupted this very code."""
        self._pipe = os.fdopen(fd, "wb")
        self._batch: list[AnyRecord] = []
        self._sent_ns = 0
        self._now_ns = MonotonicTime.now_ns
        self._lock = threading.Lock()

    def emit(self, record: AnyRecord) -> None:
        """Keep samples until the last sending was long enough ago; send all else at once."""
        with self._lock:
            self._batch.append(record)
            while self.heard:
                self._batch.append(self.heard.popleft())
        now_ns = self._now_ns()
        if now_ns - self._sent_ns > _FLUSH_NS or not isinstance(record, Samples):
            self._sent_ns = now_ns
            self.flush()

    def flush(self) -> None:
        """Send what is kept. A parent that is gone, or a closed pipe, ends this process."""
        with self._lock:
            batch, self._batch = self._batch, []
            if not batch:
                return
            try:
                self._check()
                write_frame(self._pipe, encode_batch(batch))
            except BrokenPipeError:
                os._exit(0)
            except OSError:
                self._where.blame()
                os._exit(1)

    def _check(self) -> None:
        """Its number may be another file's by now. Raises OSError."""
        if not self._identity.holds(self._fd):
            raise OSError(errno.EBADF, "the pipe was closed")

    def watch_closing(self) -> None:
        """From now on the row that closes the pipe is known exactly, where Python closes it."""
        close = os.closerange

        def closerange(low: int, high: int, /) -> None:
            close(low, high)
            if not self._identity.holds(self._fd):
                self._where.blame()

        os.closerange = closerange


def _on_signal(sender: _Sender, where: Where, number: int, _: object) -> None:
    """One that came to the group ends the run, and the parent has it; any is on record."""
    evidence = {"signal": signal.Signals(number).name}
    at_ns, bench = MonotonicTime.now_ns(), where.bench
    notice = Notice(code=Code.SIGNALLED, at_ns=at_ns, bench=bench, evidence=evidence)
    sender.heard.append(Noted(notice))


def main() -> int:
    """Measure what the parent asks for."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A crash leaves the Python stack that it happened in at the end of the session's log.
    faulthandler.enable()
    # Those to the whole group are the parent's to decide on, and it has them; those of this process
    # alone it must be told. No SIG_IGN: programs that a benchmark starts would inherit it.
    signals.take(signals.TO_ONE, lambda number, _: os.kill(os.getppid(), number))
    records_fd = int(os.environ.pop("USV_TUI_RECORDS_FD"))
    where_fd = int(os.environ.pop("USV_TUI_WHERE_FD"))
    where = Where(memoryview(mmap.mmap(where_fd, WHERE_BYTES)).cast("i"))
    os.close(where_fd)
    sender = _Sender(records_fd, where)
    signals.take(signals.TO_THE_GROUP, partial(_on_signal, sender, where))
    commands_pipe = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin = NoKeyboard()
    first = read_frame(commands_pipe)
    if first is None:
        return 0
    request = msgspec.msgpack.decode(first, type=WorkRequest)
    measuring = threading.get_ident()
    commands: deque[Command] = deque()
    wake = threading.Event()

    def listen() -> None:
        while (data := read_frame(commands_pipe)) is not None:
            command = msgspec.msgpack.decode(data, type=Command)
            if command.verb == "stack":
                for line in stack_of(measuring):
                    sender.emit(Output(MonotonicTime.now_ns(), line))
                continue
            commands.append(command)
            wake.set()
            if command.verb == "stop":
                sender.flush()  # the loop may be inside a call that never returns
        commands.append(Command("stop", "the front end is gone"))
        wake.set()

    threading.Thread(target=listen, name="usv-commands", daemon=True).start()
    sender.watch_closing()
    turns = None
    ends = os.environ.pop("USV_TUI_TURNS", "")
    if request.duet is not None:
        take_fd, give_fd = map(int, ends.split(","))
        line = Line(take_fd, give_fd)
        turns = Turns(request.duet, line, MonotonicTime.now_ns)
    prepared = None
    card = os.environ.pop("USV_TUI_CARD", "")
    if card:
        fd = int(card)
        os.set_inheritable(fd, False)
        prepared = shared(request.device, fd, blocker=request.config.blocker)
    with no_copies(records_fd):
        work(
            request,
            sender.emit,
            commands,
            wake,
            Gate(),
            prepared=prepared,
            where=where,
            turns=turns,
        )
    sender.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

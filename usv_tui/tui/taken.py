"""The terminal while it is taken: what must be put back, by this process or by its keeper."""

import ctypes
import faulthandler
import fcntl
import marshal
import os
import signal
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from usv_tui import signals
from usv_tui.descriptors import Identity, out_of_the_way
from usv_tui.tui import keeper
from usv_tui.tui.board import Board

_DUMP = signal.SIGRTMAX - 2
"""Asks for all stacks in the log: the handler is C's and needs no interpreter."""
_FROZEN_S = 10.0


class Last(NamedTuple):
    """What the keeper needs to say the last words of a program."""

    board: Board
    out: int
    err: int
    """The caller's streams."""
    session: str = ""
    log: str = ""
    slowest_tick_s: float = 0.0


class Keeper:
    """A running keeper process."""

    def __init__(self, terminal: int | None, attributes: list[Any] | None, last: Last) -> None:
        """Start it.

        Raises:
            OSError, NotImplementedError: it cannot be started.
        """
        theirs, ours = os.pipe()
        theirs, self._pipe = map(out_of_the_way, (theirs, ours))
        self._identity = Identity(self._pipe)
        os.set_blocking(theirs, False)
        os.set_blocking(self._pipe, False)
        words = [
            "-I",
            "-S",
            keeper.__file__,
            str(_FROZEN_S + 2 * last.slowest_tick_s),
            str(int(_DUMP)),
            last.session,
            last.log,
            f"{Path(__file__).parents[1]}{os.sep}",
            str(os.getpid()),
            marshal.dumps(attributes).hex(),
        ]
        given = {
            keeper.PIPE_FD: theirs,
            keeper.BOARD_FD: last.board.fd,
            keeper.OUT_FD: last.out,
            keeper.ERR_FD: last.err,
        }
        if terminal is not None:
            given[keeper.TERMINAL_FD] = terminal
        # Numbers that are not those of the other side already.
        given = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for number, fd in given.items()}
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *words],
                os.environ,
                file_actions=[
                    *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)),
                    *((os.POSIX_SPAWN_DUP2, fd, number) for number, fd in given.items()),
                ],
                setsid=True,
            )
        finally:
            for fd in (theirs, *given.values()):
                os.close(fd)
        signals.forget_at_fork(self._let_go)
        self._prepare_for_the_worst()

    def _prepare_for_the_worst(self) -> None:
        """What the keeper relies on when the interpreter is held, or is no more."""
        with suppress(ValueError, OSError, RuntimeError, AttributeError):
            # A crash, and the keeper's question, leave the stacks in the log.
            faulthandler.enable(2)
            faulthandler.register(_DUMP, 2, all_threads=True)
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
            leave = ctypes.cast(libc._exit, ctypes.c_void_p)  # noqa: SLF001  its name in C
            libc.signal(keeper.LAST_RESORT, leave)
            signals.forget_at_fork(lambda: libc.signal(keeper.LAST_RESORT, None))
            signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)

    def stream(self, number: int) -> str:
        """The way to the caller's stdout or stderr, should user code close ours."""
        return f"/proc/{self.pid}/fd/{keeper.OUT_FD if number == 1 else keeper.ERR_FD}"

    def tell(self, word: bytes) -> None:
        """Say whether the terminal is taken."""
        if self._identity.holds(self._pipe):
            try:
                os.write(self._pipe, word)
            except OSError:
                return  # it is gone: from here on the terminal has no keeper

    def dismiss(self) -> None:
        """Everything is said, and the terminal is given back."""
        with suppress(ValueError):  # not in the main thread
            signal.set_wakeup_fd(-1)
        self.tell(keeper.GIVEN)
        self._let_go()
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except OSError:
            return  # user code has waited for it

    def _let_go(self) -> None:
        if self._identity.holds(self._pipe):
            os.close(self._pipe)


class Taken:
    """The terminal that the screen has, if it has one."""

    def __init__(self) -> None:
        self.fd: int | None = None
        self.attributes: list[Any] | None = None
        """Those from before; None for a terminal without any."""
        self._identity: Identity | None = None
        self._keeper: Keeper | None = None
        self.last: Last | None = None
        """What a keeper is to know; without it there is none."""

    def take(self, fd: int) -> None:
        """It is going to be changed."""
        with suppress(termios.error):
            self.attributes = termios.tcgetattr(fd)
        self.fd, self._identity = fd, Identity(fd)
        signals.forget_at_fork(self.forget)
        if self._keeper is not None:
            self._keeper.tell(keeper.TAKEN)

    def keep(self) -> None:
        """Have a process of its own put it back, should this one die with it."""
        if self.last is None or self._keeper is not None:
            return
        with suppress(OSError, NotImplementedError):  # then such a death leaves it as it is
            self._keeper = Keeper(self.fd, self.attributes, self.last)
            if self.fd is not None:
                self._keeper.tell(keeper.TAKEN)

    def give_back(self) -> None:
        """Put it back as it was; does nothing when it is not taken.

        Safe from a signal handler, `atexit` or a last resort, any number of times; waits only
        shortly for a terminal that does not read. Where user code has closed it, the keeper sees
        to it.
        """
        fd, self.fd = self.fd, None
        if fd is None or self._identity is None or not self._identity.holds(fd):
            return
        keeper.restore(fd, self.attributes)
        if self._keeper is not None:
            self._keeper.tell(keeper.GIVEN)

    def was_written_over(self) -> bool:
        """True when the keeper has written on the screen since the last time."""
        return self.last is not None and self.last.board.was_written_over()

    def stream(self, number: int) -> str:
        """Another way to the caller's stdout (1) or stderr (2); empty where there is none."""
        return "" if self._keeper is None else self._keeper.stream(number)

    def dismiss_keeper(self) -> None:
        """Everything is said."""
        process, self._keeper = self._keeper, None
        if self.last is not None:
            self.last.board.say_done()
            self.last = None
        if process is not None:
            process.dismiss()

    def forget(self) -> None:
        """In a forked child it is not ours."""
        self.fd = self._keeper = None


taken = Taken()

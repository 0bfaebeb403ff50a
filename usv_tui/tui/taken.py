"""The terminal while it is taken: what must be put back, by this process or by its keeper."""

import marshal
import os
import sys
import termios
from contextlib import suppress
from typing import Any

from usv_tui import signals
from usv_tui.descriptors import Identity, out_of_the_way
from usv_tui.tui import keeper


class Keeper:
    """A running keeper process."""

    def __init__(self, terminal: int, attributes: list[Any] | None) -> None:
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
            "3",
            "4",
            str(os.getpid()),
            marshal.dumps(attributes).hex(),
        ]
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *words],
                os.environ,
                file_actions=[
                    *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)),
                    (os.POSIX_SPAWN_DUP2, theirs, 3),
                    (os.POSIX_SPAWN_DUP2, terminal, 4),
                ],
                setsid=True,
            )
        finally:
            os.close(theirs)
        signals.forget_at_fork(self._let_go)

    def tell(self, word: bytes) -> None:
        """Say whether the terminal is taken."""
        if self._identity.holds(self._pipe):
            try:
                os.write(self._pipe, word)
            except OSError:
                return  # it is gone: from here on the terminal has no keeper

    def dismiss(self) -> None:
        """The terminal is given back for good."""
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
        if self.fd is None or self._keeper is not None:
            return
        with suppress(OSError, NotImplementedError):  # then such a death leaves it as it is
            self._keeper = Keeper(self.fd, self.attributes)
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

    def dismiss_keeper(self) -> None:
        """It is given back for good."""
        process, self._keeper = self._keeper, None
        if process is not None:
            process.dismiss()

    def forget(self) -> None:
        """In a forked child it is not ours."""
        self.fd = self._keeper = None


taken = Taken()

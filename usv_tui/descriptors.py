"""File descriptors of ours, beside user code that may close all of them or use up the rest."""

import fcntl
import os
from contextlib import suppress

HIGH = 600
"""`closerange(3, 256)` is a habit, and few programs have more descriptors than this."""
_SPARE = 8


def out_of_the_way(fd: int) -> int:
    """The same file under a number that user code is unlikely to close; it ends at an exec."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except OSError:  # the limit is lower than that
        if fd > 2:
            return fd
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return high


class Identity:
    """Which file a descriptor led to, to notice when its number has gone to somebody else."""

    def __init__(self, fd: int) -> None:
        status = os.fstat(fd)
        self._file = (status.st_dev, status.st_ino, status.st_rdev)

    def holds(self, fd: int) -> bool:
        """True while the descriptor still leads there."""
        try:
            status = os.fstat(fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino, status.st_rdev) == self._file


class Reserve:
    """Descriptors held back for the end of a run, when user code may have used up all others."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        with suppress(OSError):
            while len(self._fds) < _SPARE:
                fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                self._fds.append(out_of_the_way(fd))

    def release(self) -> None:
        """The end has come: they may be used."""
        while self._fds:
            with suppress(OSError):
                os.close(self._fds.pop())

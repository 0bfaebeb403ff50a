"""User code's streams: descriptors 1 and 2 go to an append-only file while a session runs.

On descriptor 0 there is nothing to read: the keyboard is the screen's.

A file and not a pipe: a pipe that nobody drains would block the benchmark. It works for Python,
C and child processes alike, and for a logging handler made before the session began.
"""

import contextlib
import ctypes
import errno
import io
import os
import re
import sys
from pathlib import Path
from typing import Protocol, TextIO

from usv_tui.descriptors import Identity, out_of_the_way

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
MAX_LINE = 500
"""Longer lines are cut; the file keeps them whole."""
_NAMES_TRIED = 100
_MOST_UNREAD = 1 << 20
"""Output that is further ahead of the log than this is left in the file."""


def clean_line(raw: str) -> str:
    """One line for the log: escapes gone, carriage returns folded to what a terminal would show."""
    shown = raw.rstrip("\r").rsplit("\r", 1)[-1]
    shown = _CONTROL.sub("", _ESCAPES.sub("", shown)).expandtabs(4).rstrip()
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 1] + "…"


class NoKeyboard(io.TextIOWrapper):
    """Standard input at its end; who asks for a line of it hears why there is none."""

    def __init__(self) -> None:
        raw = io.FileIO(0, "rb", closefd=False)
        super().__init__(io.BufferedReader(raw), encoding="utf-8", errors="replace")

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """The next line, which is what `input` wants."""
        line = super().readline(size)
        if not line:
            raise EOFError("it read from the keyboard: benchmarks have no stdin")
        return line

    def __next__(self) -> str:  # type: ignore[override]
        """A loop over the lines has none to do."""
        line = super().readline()
        if not line:
            raise StopIteration
        return line


class Aside(Protocol):
    """Where more lines come from."""

    def lines(self, *, is_end: bool = False) -> list[str]:
        """Those that are new."""
        ...


class OutputCapture:
    """Sends fds 1 and 2 to a file from `start` until `stop`; `tail` gives the new lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.real_stdout: int = -1
        """A private duplicate of the caller's stdout."""
        self.real_stderr: int = -1
        self._real_stdin = -1
        self._read_fd = -1
        self._identities: dict[int, Identity] = {}
        """User code may close what is ours, and get its number for a file of its own."""
        self._terminals: list[str] = []
        self._partial = b""
        self.aside: Aside | None = None
        """Lines from elsewhere: the standard output of a script."""
        self._saved_streams: tuple[TextIO, TextIO, TextIO] | None = None

    def start(self) -> None:
        """Redirect. Raises OSError when the file cannot be made."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd, self.path = _new_file(self.path)
        self._read_fd = _open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _flush_everything()
        self._real_stdin = _duplicate(0)
        self.real_stdout = _duplicate(1)
        self.real_stderr = _duplicate(2)
        for private in (self._real_stdin, self.real_stdout, self.real_stderr, self._read_fd):
            self._identities[private] = Identity(private)
        self._terminals = [_terminal_of(standard) for standard in range(3)]
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
        null = _open(Path(os.devnull), os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.close(null)
        self.point_streams()

    def point_streams(self) -> None:
        """Give user code real text streams on fds 1 and 2 (fileno, encoding, not a tty)."""
        if self._saved_streams is None:
            self._saved_streams = (sys.stdin, sys.stdout, sys.stderr)
        sys.stdin = NoKeyboard()
        sys.stdout = _text_stream(1)
        sys.stderr = _text_stream(2)

    def know_ways(self, out: str, err: str) -> None:
        """Names of the caller's streams, for the case that user code closes the way back."""
        for fd, name in ((1, out), (2, err)):
            self._terminals[fd] = self._terminals[fd] or name

    def duplicate_stderr(self) -> int:
        """A descriptor of the caller's stderr for somebody who closes it. Raises OSError."""
        if self._identities[self.real_stderr].holds(self.real_stderr):
            return os.dup(self.real_stderr)
        return os.open(self._terminals[2] or os.devnull, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)

    def _point_back(self, fd: int, saved: int) -> None:
        """Undo a redirection; where user code has closed the way back, by the terminal's name."""
        if self._identities[saved].holds(saved):
            os.dup2(saved, fd)
            return
        again = os.open(self._terminals[fd] or os.devnull, os.O_RDWR | os.O_NOCTTY)
        if again != fd:
            os.dup2(again, fd)
            os.close(again)

    def tail(self, limit: int = 1 << 16) -> list[str]:
        """New complete lines, cleaned; at most `limit` bytes a call.

        When the user's code writes faster than anybody can read, the log says how much it leaves
        out, and goes on with the latest.
        """
        if self._read_fd < 0 or not self._identities[self._read_fd].holds(self._read_fd):
            return []
        beside = [] if self.aside is None else self.aside.lines()
        return beside + self._skip_flood(limit) + (self._take(limit) or [])

    def _skip_flood(self, limit: int) -> list[str]:
        at = os.lseek(self._read_fd, 0, os.SEEK_CUR)
        unread = os.fstat(self._read_fd).st_size - at
        if unread <= _MOST_UNREAD:
            return []
        os.lseek(self._read_fd, unread - limit, os.SEEK_CUR)
        self._partial = "…".encode()
        return [f"… {unread - limit:,} bytes more in {self.path}"]

    def _take(self, limit: int) -> list[str] | None:
        """The lines in the next `limit` bytes; None when there is nothing more."""
        data = os.read(self._read_fd, limit)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > limit:
            lines.append(self._partial)
            self._partial = b""
        cleaned = (clean_line(line.decode("utf-8", "replace")) for line in lines if line)
        return [line for line in cleaned if line]

    def stop(self) -> list[str]:
        """Undo the redirection; returns the lines that were not tailed yet, the partial one too."""
        if self.real_stdout < 0:
            return []
        _flush_everything()
        if self._saved_streams is not None:
            sys.stdin, sys.stdout, sys.stderr = self._saved_streams
            self._saved_streams = None
        for fd, saved in enumerate((self._real_stdin, self.real_stdout, self.real_stderr)):
            self._point_back(fd, saved)
        lines = [] if self.aside is None else self.aside.lines(is_end=True)
        if self._identities[self._read_fd].holds(self._read_fd):
            lines += self._skip_flood(1 << 16)
            while (chunk := self._take(1 << 16)) is not None:
                lines += chunk
        if self._partial:
            lines.append(clean_line(self._partial.decode("utf-8", "replace")))
            self._partial = b""
        for fd in (self._real_stdin, self.real_stdout, self.real_stderr, self._read_fd):
            if self._identities[fd].holds(fd):
                os.close(fd)
        self._real_stdin = self.real_stdout = self.real_stderr = self._read_fd = -1
        with contextlib.suppress(OSError):
            if self.path.stat().st_size == 0:
                self.path.unlink()
        return lines


def _duplicate(fd: int) -> int:
    """A private copy of a standard descriptor; /dev/null where it is closed."""
    try:
        return out_of_the_way(os.dup(fd))
    except OSError:
        return _open(Path(os.devnull), os.O_RDWR | os.O_CLOEXEC)


def _terminal_of(fd: int) -> str:
    try:
        return os.ttyname(fd)
    except OSError:
        return ""


def _new_file(wanted: Path) -> tuple[int, Path]:
    """A file that nobody had before, ours alone: what is there already is somebody else's.

    Raises:
        OSError: it cannot be made.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
    for number in range(1, _NAMES_TRIED):
        name = wanted if number == 1 else wanted.with_suffix(f".{number}{wanted.suffix}")
        with contextlib.suppress(FileExistsError):
            return out_of_the_way(os.open(name, flags, 0o600)), name
    raise FileExistsError(errno.EEXIST, "all names for the log are taken", str(wanted))


def _open(path: Path, flags: int) -> int:
    return out_of_the_way(os.open(path, flags))


def _text_stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True
    )


def _flush_everything() -> None:
    """Python's streams and C's: the latter are fully buffered once fd 1 is no terminal."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)

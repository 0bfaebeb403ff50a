"""What the program says on stderr, and the data that it gives on stdout."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TextIO

from usv_tui import plain
from usv_tui.errors import UsageError

STDOUT_LINE = 100_000
"""A table may be wide; its cells are bounded already."""


def secure_streams() -> None:
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


def say(text: str, file: IO[str] | None = None) -> None:
    """A line on stderr; one that has gone away hears nothing."""
    try:
        print(plain.lines(text), file=file or sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def put(text: str) -> None:
    """A text on stdout, with nothing in it that moves a terminal's cursor."""
    to_stdout(lambda out: out.write(plain.lines(text, most=STDOUT_LINE) + "\n"))


def to_stdout(write: Callable[[TextIO], object]) -> None:
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


def terminal_width() -> int | None:
    """The width that a table on stdout may take; None when it is no terminal."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return None

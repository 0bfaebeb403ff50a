"""What a script writes to its standard output: for the log while it runs, and whole at its end."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from usv_tui.descriptors import out_of_the_way
from usv_tui.session.capture import clean_line

_MOST_A_LOOK = 1 << 16


class ScriptOutput:
    """A file without a name that a process writes and this one reads."""

    def __init__(self) -> None:
        file, path = tempfile.mkstemp(prefix="usv-script-")
        os.close(file)
        self.fd = out_of_the_way(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        """For the process that writes."""
        self._read_fd = out_of_the_way(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        Path(path).unlink()
        self._at = 0
        self._partial = b""

    def lines(self, *, is_end: bool = False) -> list[str]:
        """New complete lines for the log; at the end the last one too."""
        found: list[bytes] = []
        while data := os.pread(self._read_fd, _MOST_A_LOOK, self._at):
            self._at += len(data)
            *lines, self._partial = (self._partial + data).split(b"\n")
            found += lines
            if not is_end:
                break
        if is_end and self._partial:
            found.append(self._partial)
            self._partial = b""
        cleaned = (clean_line(line.decode("utf-8", "replace")) for line in found)
        return [line for line in cleaned if line]

    def copy_to(self, out: BinaryIO) -> None:
        """Everything, byte for byte."""
        with os.fdopen(os.dup(self._read_fd), "rb") as source:
            source.seek(0)
            shutil.copyfileobj(source, out)
            out.flush()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return os.fstat(self._read_fd).st_size == 0

"""Runs the program in a real pseudo-terminal: shared by the benchmarks of this folder."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Seen(NamedTuple):
    """What one run wrote to its terminal, and when."""

    output: bytes
    exit_status: int
    first_text_s: float | None
    """From the start of the process until `marker` was on the screen."""
    wall_s: float


def run(
    arguments: Sequence[str],
    *,
    size: tuple[int, int] = (120, 40),
    marker: bytes = b"usv-tui",
    environment: Mapping[str, str] | None = None,
    stop_after_marker: bool = False,
    timeout_s: float = 120.0,
) -> Seen:
    """Run `python -m usv_tui` with arguments until it ends."""
    columns, lines = size
    start = time.perf_counter()
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", **(environment or {})})
        os.execv(sys.executable, [sys.executable, "-m", "usv_tui", *arguments])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    output = bytearray()
    first: float | None = None
    while time.perf_counter() - start < timeout_s:
        if select.select([fd], [], [], 0.05)[0]:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:
                break
            if not data:
                break
            output += data
            if first is None and marker in output:
                first = time.perf_counter() - start
                if stop_after_marker:
                    os.write(fd, b"q")
    else:
        os.kill(pid, 9)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return Seen(
        bytes(output), os.waitstatus_to_exitcode(status), first, time.perf_counter() - start
    )

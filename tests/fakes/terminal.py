"""A program in a pseudo-terminal of its own, with an emulator that reads it."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
LEFT = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1004l", b"\x1b[?2004l", b"\x1b[?7h")
"""What the screen undoes when it leaves."""
PATIENCE_S = 30.0


class Terminal:
    """A program on a pseudo-terminal of its own, and an emulator that reads it."""

    def __init__(self, folder, size=(120, 40), environment=None, **how):
        self.result = folder / "result.json"
        self.output = bytearray()
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            self._become(size, environment or {}, **how)
        self.resize(*size)

    def _become(self, size, environment, redirect=None, options=None, program=None):
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.chdir(ROOT)
        os.environ.update(
            {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "33", "LINES": "7"}
        )
        os.environ.pop("NO_COLOR", None)
        os.environ.update(environment, RESULT=str(self.result), OPTIONS=json.dumps(options or {}))
        if redirect is not None:
            os.set_inheritable(os.dup(0), True)  # the terminal stays somebody's
            null = os.open(os.devnull, os.O_RDONLY)
            file = os.open(redirect, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(null, 0)
            os.dup2(file, 1)
            os.dup2(file, 2)
        program = program or [sys.executable, "-m", "tests.fakes.screen_program"]
        os.execv(program[0], program)

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, wait_s=0.02):
        """Take in what is there; False at the end."""
        if not select.select([self.fd], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.output += data
        self.stream.feed(data)
        return bool(data)

    def until(self, words):
        """Read until the words are on the screen."""
        end = time.monotonic() + PATIENCE_S
        while words not in "\n".join(self.screen.display):
            assert time.monotonic() < end, "\n".join(self.screen.display)
            assert self.read(), "\n".join(self.screen.display)

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self):
        """Read to the end; the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.read():
            assert time.monotonic() < end
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def told(self):
        """What the program wrote down."""
        return json.loads(self.result.read_text(encoding="utf-8"))


def terminals(folder):
    """For a fixture: gives what starts programs; those that still run at the end are killed."""
    running = []

    def start(**options):
        running.append(Terminal(folder, **options))
        return running[-1]

    yield start
    for terminal in running:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        with suppress(OSError):
            os.close(terminal.fd)

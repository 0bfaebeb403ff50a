"""The screen in a real terminal: every way out, every redirection, and what a frame costs."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pyte
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.pty
LEFT = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1004l", b"\x1b[?2004l", b"\x1b[?7h")
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


@pytest.fixture
def launch(tmp_path):
    """Start programs; those that still run at the end are killed."""
    running = []

    def start(**options):
        running.append(Terminal(tmp_path, **options))
        return running[-1]

    yield start
    for terminal in running:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        with suppress(OSError):
            os.close(terminal.fd)


@pytest.mark.parametrize(
    ("leave", "reason", "code"),
    [
        (lambda t: t.press(b"q"), "quit", 0),
        (lambda t: t.press(b"\x03"), "interrupt", 130),
        (lambda t: os.kill(t.pid, signal.SIGINT), "interrupt", 130),
        (lambda t: os.kill(t.pid, signal.SIGTERM), "terminated", 143),
        (lambda t: os.kill(t.pid, signal.SIGHUP), "hangup", 129),
    ],
    ids=["q", "ctrl-c", "INT", "TERM", "HUP"],
)
def test_every_way_out_restores_the_terminal(launch, leave, reason, code):
    """U5, U7: the screen ends within a second, all modes are undone, and the code says how."""
    terminal = launch()
    terminal.until("LIVE")
    began = time.monotonic()
    leave(terminal)

    assert terminal.end() == code
    assert time.monotonic() - began < 2
    assert terminal.told()["end"] == [reason, code]
    tail = bytes(terminal.output[terminal.output.rindex(b"\x1b\\") :])
    assert all(mode in tail for mode in LEFT)
    assert tail.rstrip().endswith(f"['{reason}', {code}]".encode())


def test_a_lost_terminal_ends_the_run_without_spinning(launch):
    """An ssh drop: the program notices by itself, even where the signal is ignored, and ends."""
    terminal = launch()
    terminal.until("LIVE")
    os.close(terminal.fd)

    end = time.monotonic() + PATIENCE_S
    while os.waitpid(terminal.pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < end
        time.sleep(0.02)

    told = terminal.told()
    assert told["end"] == ["hangup", 129]
    assert told["cpu_s"] < 5


def test_redirected_streams_leave_the_screen_alone(launch, tmp_path):
    """`</dev/null >log 2>&1`: the screen is on the terminal, the user's output in the file."""
    log = tmp_path / "log.txt"
    terminal = launch(redirect=log)
    terminal.until("LIVE")
    terminal.press(b"q")

    assert terminal.end() == 0
    assert b"a print of the user's code" not in terminal.output
    assert log.read_text() == "a print of the user's code\n['quit', 0]\n"


def test_the_terminal_is_asked_for_its_size(launch):
    """COLUMNS=33 and LINES=7 in the environment change nothing; a resize reflows."""
    terminal = launch(size=(100, 30))
    terminal.until("LIVE")
    terminal.until("? help")
    assert "q quit" in terminal.screen.display[29]

    terminal.press(b"jj")
    terminal.resize(60, 12)
    os.kill(terminal.pid, signal.SIGWINCH)
    terminal.until("▸■ matmul[n=2048]")
    end = time.monotonic() + PATIENCE_S
    while "q quit" not in terminal.screen.display[11]:
        assert time.monotonic() < end
        terminal.read()
    terminal.press(b"q")
    assert terminal.end() == 0


def test_without_colour_and_without_unicode(launch):
    """NO_COLOR and LC_ALL=C: no colour sequence, and every byte is ASCII."""
    terminal = launch(environment={"NO_COLOR": "1", "LC_ALL": "C"})
    terminal.until("LIVE")
    terminal.until("q quit")
    terminal.press(b"q")

    assert terminal.end() == 0
    assert terminal.output.isascii()
    codes = re.findall(rb"\x1b\[([0-9;]*)m", terminal.output)
    used = {int(part) for code in codes for part in code.split(b";") if part}
    assert not {c for c in used if 30 <= c <= 49 and c not in (39, 49)}
    assert not {c for c in used if c >= 90}


def test_a_terminal_that_stops_reading_does_not_hold_the_program(launch):
    """Frames are dropped, not queued, and a signal still ends the run in order."""
    terminal = launch(options={"fps": 10})
    terminal.until("LIVE")
    time.sleep(1.0)
    began = time.monotonic()
    os.kill(terminal.pid, signal.SIGTERM)

    assert terminal.end() == 143
    assert time.monotonic() - began < 3
    assert len(terminal.output) < 400_000


def test_it_can_be_stopped_and_continued(launch):
    """Ctrl-Z gives the terminal back to the shell; `fg` paints the screen anew."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash to stop a job with")
    terminal = launch(environment={"PS1": "ready> "}, program=[bash, "--norc", "-i"])
    terminal.until("ready>")
    terminal.press(f"{sys.executable} -m tests.fakes.screen_program\n".encode())
    terminal.until("LIVE")
    terminal.press(b"\x1a")
    terminal.until("Stopped")
    assert all(mode in terminal.output for mode in LEFT)

    before = len(terminal.output)
    terminal.screen.reset()
    terminal.press(b"fg\n")
    terminal.until("LIVE")
    terminal.until("q quit")
    assert b"\x1b[?1049h" in terminal.output[before:]
    terminal.press(b"q")
    terminal.until("['quit', 0]")
    terminal.press(b"exit\n")
    assert terminal.end() == 0


def test_a_frame_is_cheap(launch):
    """U12: bytes and CPU a frame, asserted loosely; the benchmark has the figures."""
    terminal = launch(size=(120, 40), options={"fps": 4})
    terminal.until("LIVE")
    began, first = time.monotonic(), len(terminal.output)
    while time.monotonic() - began < 3:
        terminal.read()
    per_s = (len(terminal.output) - first) / (time.monotonic() - began)
    terminal.press(b"q")

    assert terminal.end() == 0
    assert per_s < 60_000
    assert terminal.told()["cpu_s"] < 3


def test_numpy_and_torch_come_after_the_first_paint(launch):
    """The skeleton is on the screen before anything heavy is imported."""
    import subprocess

    code = (
        "import sys; import usv_tui.tui.app; "
        "print([m for m in ('numpy', 'torch', 'usv_tui.engine', 'usv_tui.device') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

    terminal = launch()
    terminal.until("LIVE")
    skeleton = terminal.output.index(b"usv-tui  attn.py  starting")
    assert skeleton < terminal.output.index(b"LIVE")
    terminal.press(b"q")
    assert terminal.end() == 0

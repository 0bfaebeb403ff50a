"""The screen in a real terminal: every way out, every redirection, and what a frame costs."""

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.terminal import LEFT, PATIENCE_S, terminals

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.pty


@pytest.fixture
def launch(tmp_path):
    """Start programs on terminals of their own."""
    yield from terminals(tmp_path)


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
    """The screen ends within a second, all modes are undone, and the code says how."""
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
    terminal.until("▸■  2048")
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
    """Bytes and CPU a frame, asserted loosely; the benchmark has the figures."""
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
        "rooms = ('usv_tui.engine', 'usv_tui.telemetry', 'usv_tui.clocks', 'usv_tui.vendor'); "
        "print([m for m in ('numpy', 'torch', *rooms) if m in sys.modules])"
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

"""Whatever a benchmark does to the process it runs in, the terminal is the user's afterwards."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.program import QUICK, Program, wait_until
from tests.fakes.terminal import LEFT, terminals

pytestmark = pytest.mark.pty
HEAD = "import ctypes, os, resource, signal, sys, threading, time\n"
TWO = "def bench_good():\n    return lambda: sum(range(5000))\n"
BROKEN = {
    "kill -9": "os.kill(os.getpid(), signal.SIGKILL)",
    "_exit of C": "ctypes.CDLL(None)._exit(3)",
    "SIGSEGV": "ctypes.string_at(0)",
    "SIGABRT": "os.abort()",
    "SIGBUS": "os.kill(os.getpid(), signal.SIGBUS)",
    "an unhandled real-time signal": "os.kill(os.getpid(), signal.SIGRTMIN + 3)",
    "exec": "os.execv('/bin/true', ['true'])",
    "kill -9 with children": "os.fork() or time.sleep(5); os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.fixture
def launch(tmp_path):
    """Start programs on terminals of their own."""
    yield from terminals(tmp_path)


@pytest.fixture
def run(tmp_path, launch):
    """Run a benchmark file on a screen, under a shell that looks at the terminal afterwards."""
    program = Program(tmp_path)

    def go(source, *arguments):
        file = tmp_path / program.write(HEAD + source)
        words = " ".join([*QUICK, "--max-time", "100", "--no-telemetry", *arguments])
        command = (
            f"trap : INT; {sys.executable} -m usv_tui {file} {words}; echo code $?; "
            "sleep 0.3; stty -a; echo the end"
        )
        return launch(
            environment=program.environment | {"TERM": "xterm-256color"},
            program=["/bin/sh", "-c", command],
        )

    return go


def late(action):
    """A row that works for a while and then does something, in the measuring thread."""
    return (
        f"{TWO}\ndef bench_bad():\n    began = time.monotonic()\n    def fn():\n"
        f"        if time.monotonic() - began > 1.5:\n            {action}\n    return fn\n"
    )


def check_restored(terminal):
    """All modes are undone, and the shell's terminal takes lines and Ctrl-C again."""
    terminal.until("the end")
    tail = bytes(terminal.output[terminal.output.rindex(b"\x1b[?1049h") :])
    assert all(mode in tail for mode in LEFT)
    shown = "\n".join(terminal.screen.display)
    for flag in ("isig", "icanon", "echo", "opost", "icrnl"):
        assert re.search(rf"(?<![-\w]){flag}\b", shown), shown


@pytest.mark.parametrize("how", BROKEN)
def test_a_death_without_a_word_leaves_the_terminal_as_it_was(run, how):
    """Killed, crashed, or left by `_exit` or `exec`: another process gives the terminal back."""
    terminal = run(late(BROKEN[how]))
    terminal.until("good")

    check_restored(terminal)


def test_closed_descriptors_end_neither_the_terminal_nor_the_run(run):
    """Descriptors closed by user code: the run ends with its table, and the terminal is back."""
    terminal = run(late("os.closerange(3, 256)"), "--max-time", "5")
    terminal.until("good")

    check_restored(terminal)
    assert "code 0" in "\n".join(terminal.screen.display)


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
@pytest.mark.parametrize(
    "ask",
    [
        "input()",
        "breakpoint()",
        "__import__('getpass').getpass()",
        "open('/dev/tty').readline()",
        "os.system('read x </dev/tty')",
        "__import__('readline').parse_and_bind('tab: complete'); input()",
        "__import__('curses').wrapper(lambda screen: screen.getch())",
    ],
)
def test_the_keyboard_is_ours(run, ask, isolate):
    """User code that asks for the keyboard gets none; `q` ends the run."""
    terminal = run(late(ask), *isolate)
    terminal.until("good")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        terminal.read()
    terminal.press(b"q")

    check_restored(terminal)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_a_hanging_import_is_left_by_a_key(run, key):
    """The file has not even said which rows it has: the keys are heard all the same."""
    terminal = run(f"time.sleep(600)\n{TWO}")
    terminal.until("importing")

    terminal.press(key)

    check_restored(terminal)


def test_the_keeper_does_not_linger(run):
    """When the run is over nothing of it is left."""
    terminal = run(TWO)
    terminal.until("good")
    terminal.press(b"q")
    check_restored(terminal)

    wait_until(lambda: not keepers())


def keepers():
    """Processes that watch one that is gone."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"keeper.py") for word in words):
            found.append(words)
    return [words for words in found if not Path(f"/proc/{words[-3].decode()}").exists()]


def test_a_frozen_screen_says_so_and_ctrl_c_twice_leaves_it(run):
    """A call that holds the interpreter: the keeper names the row, hears the keys, and ends it."""
    terminal = run(late("ctypes.PyDLL(None).sleep(600)"))
    terminal.until("frozen for")
    assert "bench_bad" in "\n".join(terminal.screen.display)

    terminal.press(b"\x03")
    terminal.press(b"\x03")

    check_restored(terminal)
    shown = "\n".join(terminal.screen.display)
    assert "code 4" in shown
    assert "held the interpreter" in shown


def test_a_screen_that_thaws_is_painted_anew(run):
    """What the keeper wrote on it is gone when the call has returned."""
    once = "'once' in globals() or (globals().update(once=1), ctypes.PyDLL(None).sleep(13))"
    terminal = run(late(once))
    terminal.until("frozen for")
    terminal.until("q quit")

    terminal.press(b"q")
    check_restored(terminal)


def test_a_stop_from_outside_gives_the_terminal_to_the_shell(run):
    """`kill -TSTP` leaves the screen as Ctrl-Z does, and CONT paints it anew."""
    terminal = run(TWO)
    terminal.until("good")
    [pid] = [
        int(word)
        for word in Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
    ]
    before = len(terminal.output)
    os.kill(pid, signal.SIGTSTP)
    end = time.monotonic() + 10
    while b"\x1b[?1049l" not in terminal.output[before:]:
        assert time.monotonic() < end
        terminal.read()
    os.kill(pid, signal.SIGCONT)
    terminal.screen.reset()
    terminal.until("good")
    terminal.press(b"q")

    check_restored(terminal)

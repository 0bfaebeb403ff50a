"""The screen in a browser: packets, whose page may speak, and what is refused."""

import os
import pty
import subprocess
import sys
import threading

import pytest

from usv_tui.cli import serve
from usv_tui.cli.main import main
from usv_tui.tui import browser


def packets(data):
    """What a server reads."""
    return browser.Packets().feed(data)


def test_packets_come_whole_however_they_were_cut():
    """A byte at a time, two at once, and an empty one."""
    sent = [(b"D", b"j"), (b"M", b"{}"), (b"D", b"")]
    data = b"".join(browser.packet(*each) for each in sent)
    piecewise = browser.Packets()

    found = [each for at in range(len(data)) for each in piecewise.feed(data[at : at + 1])]

    assert found == packets(data) == sent


def test_a_browsers_size_focus_and_keys_reach_the_terminal():
    """And `quit` is told apart."""
    master, slave = pty.openpty()
    try:
        sent = [
            (b"M", b'{"type": "resize", "width": 99, "height": 33}'),
            (b"M", b'{"type": "focus"}'),
            (b"D", b"w\n"),
        ]
        assert all(browser._take(kind, content, master) for kind, content in sent)
        assert os.get_terminal_size(slave) == (99, 33)
        assert os.read(slave, 100) == b"\x1b[Iw\n"
        assert not browser._take(b"M", b'{"type": "quit"}', master)
    finally:
        os.close(master)
        os.close(slave)


def test_a_screen_that_ends_says_so(tmp_path):
    """What it wrote comes first, then that it is over; its exit code is the bridge's."""
    command = [sys.executable, "-m", "usv_tui.tui.browser", "open", str(tmp_path / "no.usv")]

    code, out = _run(command)

    found = packets(out.removeprefix(browser.PRELUDE))
    assert out.startswith(browser.PRELUDE)
    assert b"no such file" in b"".join(content for kind, content in found if kind == b"D")
    assert found[-1] == (b"M", b'{"type": "exit"}')
    assert code == 2


def _run(command):
    """With a standard input that stays open, as a server's does."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        out = process.stdout.read()
        return process.wait(), out
    finally:
        timer.cancel()
        process.stdin.close()
        process.stdout.close()


def test_only_its_own_page_may_speak():
    """Both names of this machine, at this port; no other page."""
    known = serve._origins("127.0.0.1", 8000)

    assert {"http://127.0.0.1:8000", "http://localhost:8000"} <= known
    assert not known & {"http://127.0.0.1:8001", "http://evil.example", "null", None}
    assert serve._origins("10.0.0.7", 80) == {"http://10.0.0.7:80", "http://10.0.0.7"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["x.py", "--itres", "3"], "did you mean --iters?"),
        (["--port", "0", "x.py"], "not a whole number above 0"),
        ([], "required"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_is_served(argv, said, capsys):
    """One line, exit code 2."""
    assert main(["serve", *argv]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_without_textual_serve_it_says_how_to_get_it(monkeypatch, capsys):
    """The extra's name."""
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert main(["serve", "x.py"]) == 2
    assert "usv-tui[web]" in capsys.readouterr().err

import asyncio
import fcntl
import os
import pty
import select
import struct
import termios
from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.geometry import Size

from usv_tui.tui import driver as driver_module
from usv_tui.tui.driver import Hangup, TtyDriver
from usv_tui.tui.taken import taken


class App:
    """Takes what the driver tells."""

    def __init__(self):
        self.messages = []

    def post_message(self, message):
        self.messages.append(message)

    def keys(self):
        return [m.key for m in self.messages if isinstance(m, events.Key)]

    def sizes(self):
        return [m.size for m in self.messages if isinstance(m, events.Resize)]


def set_size(fd, columns, lines):
    """What a terminal emulator does when its window changes."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@pytest.fixture
def terminal(monkeypatch):
    """A pseudo-terminal that the driver takes for its own; gives the emulator's end."""
    master, slave = pty.openpty()
    monkeypatch.setattr(driver_module, "TTY", os.ttyname(slave))
    set_size(master, 91, 17)
    ends = [master]
    yield ends
    taken.give_back()
    for fd in (*ends, slave):
        os.close(fd)


@asynccontextmanager
async def started(app=None, **options):
    """A driver in application mode."""
    made = TtyDriver(app or App(), **options)
    made.start_application_mode()
    try:
        yield made
    finally:
        made.close()


def seen(master, wait_s=0.5):
    """What the driver has written until now."""
    out = b""
    while select.select([master], [], [], wait_s if not out else 0.02)[0]:
        out += os.read(master, 1 << 16)
    return out


async def settle(condition, seconds=5.0):
    """Let the loop run until something is so; fails when it never is."""
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    assert condition()


def test_the_size_is_the_terminals(terminal, monkeypatch):
    """Exported COLUMNS and LINES are somebody else's: the terminal itself is asked."""
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("LINES", "7")

    async def main():
        app = App()
        async with started(app) as made:
            assert made._size == (91, 17)
            set_size(terminal[0], 120, 40)
            made._send_size()
            assert app.sizes() == [Size(91, 17), Size(120, 40)]

    asyncio.run(main())


def test_keys_arrive_without_a_thread(terminal):
    """Keys, escape sequences and a lone escape are read in the loop's own thread."""
    import threading

    async def main():
        app = App()
        before = threading.active_count()
        async with started(app):
            os.write(terminal[0], b"qN \x03[\x1b[A\x1b[5~")
            await settle(lambda: len(app.keys()) >= 7)
            assert app.keys() == [
                "q",
                "N",
                "space",
                "ctrl+c",
                "left_square_bracket",
                "up",
                "pageup",
            ]
            os.write(terminal[0], b"\x1b")
            await settle(lambda: app.keys()[-1] == "escape")
            assert threading.active_count() == before

    asyncio.run(main())


def test_the_terminal_is_as_before(terminal):
    """Modes that were set are unset, the attributes are the old ones, and twice is harmless."""
    fd = os.open(driver_module.TTY, os.O_RDWR | os.O_NOCTTY)
    before = termios.tcgetattr(fd)

    async def main():
        async with started() as made:
            made.flush()
            assert termios.tcgetattr(fd) != before
            entered = seen(terminal[0])
            for mode in (b"?1049h", b"?25l", b"?7l", b"?1004h", b"?2004h"):
                assert mode in entered
            assert b"?1003" not in entered
            assert b"?1000h" in entered
        left = seen(terminal[0])
        for mode in (b"?1049l", b"?25h", b"?7h", b"?1004l", b"?2004l", b"?1000l"):
            assert mode in left
        assert termios.tcgetattr(fd) == before
        taken.give_back()
        assert seen(terminal[0], 0.05) == b""

    asyncio.run(main())
    os.close(fd)


def test_no_mouse_unless_asked_for(terminal):
    """Without the wish no mouse mode is set, so the terminal's own selection works."""

    async def main():
        async with started(mouse=False):
            assert b"?1000h" not in seen(terminal[0])

    asyncio.run(main())


def test_the_plain_restore_works_without_a_loop(terminal):
    """The last resort needs no driver, no loop, and nobody who reads."""

    async def main():
        made = TtyDriver(App())
        made.start_application_mode()
        made.disable_input()

    asyncio.run(main())
    seen(terminal[0])

    taken.give_back()

    assert b"?1049l" in seen(terminal[0])


def test_a_stalled_terminal_blocks_nobody(terminal):
    """What the terminal does not take is kept in order and drained when it reads again."""

    async def main():
        async with started() as made:
            seen(terminal[0])
            text = "".join(f"{i:06d}" for i in range(40_000))
            made.write(text)
            made.flush()
            assert made.stalled
            assert not made.finish(0.01)
            got = b""
            for _ in range(4000):
                if select.select([terminal[0]], [], [], 0)[0]:
                    got += os.read(terminal[0], 1 << 16)
                if not made.stalled and not select.select([terminal[0]], [], [], 0)[0]:
                    break
                await asyncio.sleep(0.001)
            assert got.decode() == text
            assert not made.stalled
            assert made.finish(0.01)

    asyncio.run(main())


def test_a_terminal_that_never_reads_holds_a_bounded_amount(terminal):
    """Output to a dead link does not pile up without end."""

    async def main():
        async with started() as made:
            for _ in range(200):
                made.write("x" * 65536)
                made.flush()
            assert len(made._pending) <= driver_module.MAX_PENDING_BYTES + 65536

    asyncio.run(main())


def test_a_write_without_a_flush_leaves_by_itself(terminal):
    """A clipboard sequence is written when the loop is next idle."""

    async def main():
        async with started() as made:
            seen(terminal[0])
            made.write("\x1b]52;c;YQ==\x07")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert seen(terminal[0]) == b"\x1b]52;c;YQ==\x07"

    asyncio.run(main())


def test_a_lost_terminal_is_told_once_and_does_not_spin(terminal):
    """EOF or hang-up: one message, no reader left that would be called for ever."""

    async def main():
        app = App()
        async with started(app) as made:
            os.close(terminal.pop())
            await settle(lambda: made.is_lost)
            made.write("more")
            made.flush()
            made.finish(0.01)
            assert [type(m) for m in app.messages if isinstance(m, Hangup)] == [Hangup]
            assert not asyncio.get_running_loop().remove_reader(made._fd)
            assert not made.stalled

    asyncio.run(main())


def test_without_a_terminal_the_driver_refuses(monkeypatch):
    """No controlling terminal is an error that can be told, not a screen on stderr."""
    monkeypatch.setattr(driver_module, "TTY", "/nonexistent/tty")

    async def main():
        with pytest.raises(OSError, match="No such file"):
            TtyDriver(App())

    asyncio.run(main())


def test_surrogates_do_not_break_the_output(terminal):
    """A file name that is no UTF-8 is shown with a replacement."""

    async def main():
        async with started() as made:
            seen(terminal[0])
            made.write("a\udcffb")
            made.flush()
            assert seen(terminal[0]) == b"a?b"

    asyncio.run(main())

"""The terminal: one driver on `/dev/tty`, read and written in the screen's own thread.

Standard streams are left to the user's code, so output may be redirected in any way. There is no
input thread and no writer thread: a thread that wakes takes the interpreter lock from a timed
window, and a queue in front of a stalled terminal would block the screen.
"""

import asyncio
import codecs
import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import threading
import time
from pathlib import Path
from typing import Any

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.geometry import Size
from textual.message import Message

from usv_tui import signals
from usv_tui.descriptors import Identity, out_of_the_way
from usv_tui.tui.taken import taken

TTY = "/dev/tty"
READ_BYTES = 1 << 16
MAX_PENDING_BYTES = 1 << 20
"""What a stalled terminal may have waiting; beyond it, output is dropped and painted anew later."""
FALLBACK_SIZE = (80, 24)
_FOREGROUND_S = 0.1

_ENTER = (
    "\x1b[?1049h"  # the alternate screen
    "\x1b[22;2t"  # keep the title
    "\x1b[?25l"  # no cursor
    "\x1b[?7l"  # no line wrap
    "\x1b[?1004h"  # tell about focus
    "\x1b[?2004h"  # a paste is a paste, not keys
    "\x1b[?2026$p"  # can frames be atomic?
)
_MOUSE_ON = "\x1b[?1000h\x1b[?1006h"
"""Clicks and the wheel; never motion, which would cost a wake-up a cell."""


def _write_within(fd: int, data: bytes, seconds: float) -> bytes:
    """Write to a non-blocking fd for at most so long; returns what could not be written."""
    deadline = time.monotonic() + seconds
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll(left_s * 1000)
    return bytes(rest)


def wait_for_foreground() -> None:
    """Stay stopped, as the terminal would have it, while this job is in the background."""
    never = threading.Event()
    while not _is_foreground():
        os.kill(0, signal.SIGTTOU)
        never.wait(_FOREGROUND_S)  # where nobody could continue us, stopping is ignored


def _is_foreground() -> bool:
    """As the leader of our session sees it: this process may have left the terminal itself."""
    try:
        stat = Path(f"/proc/{os.getsid(0)}/stat").read_text(encoding="utf-8", errors="replace")
        foreground = int(stat.rpartition(")")[2].split()[5])
    except (OSError, ValueError, IndexError):
        return True
    return foreground in (-1, os.getpgrp())


class Hangup(Message):
    """The terminal is gone."""


class TtyDriver(Driver):
    """Reads keys from and paints on the controlling terminal.

    Raises:
        OSError: there is no controlling terminal.
    """

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        fd = os.open(TTY, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._fd = out_of_the_way(fd)
        self._identity = Identity(self._fd)
        self._size = size or self._terminal_size()
        self._parser = XTermParser()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unflushed: list[str] = []
        self._pending = bytearray()
        self._is_draining = False
        self._is_flush_planned = False
        self._is_active = False
        self._is_lost = False
        self._told_size = Size(0, 0)
        self._parser_timer: asyncio.TimerHandle | None = None
        self.bytes_written = 0

    @property
    def stalled(self) -> bool:
        """True while the terminal has not taken all of what was written."""
        return bool(self._pending)

    @property
    def is_lost(self) -> bool:
        """True once the terminal is gone."""
        return self._is_lost

    @property
    def can_suspend(self) -> bool:
        """The program can be stopped and continued from the shell."""
        return True

    def write(self, data: str) -> None:
        """Queue text; it leaves with the next `flush`, at the latest when the loop is idle."""
        self._unflushed.append(data)
        if self._is_active and not self._is_flush_planned:
            self._is_flush_planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand everything to the terminal without waiting; the rest drains as it can take it."""
        self._is_flush_planned = False
        if self._unflushed:
            if len(self._pending) < MAX_PENDING_BYTES:
                self._pending += "".join(self._unflushed).encode("utf-8", "replace")
            self._unflushed.clear()
        self._drain()

    def finish(self, seconds: float) -> bool:
        """Wait at most so long until the terminal has taken everything; True when it has."""
        self.flush()
        if self._pending and not self._is_lost:
            try:
                rest = _write_within(self._fd, bytes(self._pending), seconds)
            except OSError:
                self._lose()
                return False
            self.bytes_written += len(self._pending) - len(rest)
            self._pending = bytearray(rest)
            self._watch_writable(wanted=bool(rest))
        return not self._pending

    def _drain(self) -> None:
        """Write what the terminal takes now and watch for room for the rest."""
        if not self._is_lost and not self._identity.holds(self._fd):
            self._lose()  # closed by user code; the number may be a file of the user's by now
        if self._is_lost:
            self._pending.clear()
            return
        while self._pending:
            try:
                written = os.write(self._fd, self._pending)
            except BlockingIOError:
                break
            except OSError:
                self._lose()
                return
            self.bytes_written += written
            del self._pending[:written]
        self._watch_writable(wanted=bool(self._pending))

    def _watch_writable(self, *, wanted: bool) -> None:
        if wanted and not self._is_draining:
            self._loop.add_writer(self._fd, self._drain)
        elif self._is_draining and not wanted:
            self._loop.remove_writer(self._fd)
        self._is_draining = wanted

    def _lose(self) -> None:
        """The terminal is gone: stop watching it (it would spin) and tell the app, once."""
        if self._is_lost:
            return
        self._is_lost = True
        self._pending.clear()
        self._watch_writable(wanted=False)
        self._loop.remove_reader(self._fd)
        self._app.post_message(Hangup())

    def _terminal_size(self) -> tuple[int, int]:
        """Columns and lines of the terminal itself, whatever the environment says."""
        try:
            answer = fcntl.ioctl(self._fd, termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return FALLBACK_SIZE
        lines, columns = struct.unpack("HHHH", answer)[:2]
        return (columns or FALLBACK_SIZE[0], lines or FALLBACK_SIZE[1])

    def _send_size(self) -> None:
        size = Size(*self._terminal_size())
        self._told_size = size
        self._app.post_message(events.Resize(size, size))

    def look_at_size(self) -> None:
        """Tell of a size that no signal told: a terminal without a session sends none."""
        if self._is_active and self._terminal_size() != self._told_size:
            self._send_size()

    def start_application_mode(self) -> None:
        """Take the terminal: raw keys, alternate screen, no cursor."""
        if taken.fd is None:
            taken.take(self._fd)
        self._is_active = True
        self._loop.add_reader(self._fd, self._on_readable)
        signals.take([signal.SIGWINCH], lambda *_: self._loop.call_soon_threadsafe(self._send_size))
        self.take_again()

    def take_again(self) -> None:
        """Set all modes, whatever the terminal's are; nothing when it is not taken."""
        if not self._is_active:
            return
        self._set_raw()
        self.write(_ENTER + (_MOUSE_ON if self._mouse else ""))
        self.flush()
        self._send_size()

    def _set_raw(self) -> None:
        """Keys one by one, unechoed, Ctrl-C as a key; output goes out as it is."""
        if taken.attributes is None:
            return
        raw = list(taken.attributes)
        raw[6] = list(raw[6])
        raw[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        raw[1] &= ~termios.OPOST
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        raw[6][termios.VMIN] = 1
        raw[6][termios.VTIME] = 0
        with contextlib.suppress(termios.error):  # a lost terminal shows at the next read
            termios.tcsetattr(self._fd, termios.TCSANOW, raw)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for message in self._parser.feed(self._decoder.decode(data)):
            self.process_message(message)
        if self._parser_timer is not None:
            self._parser_timer.cancel()
        self._parser_timer = self._loop.call_later(
            constants.ESCAPE_DELAY + 0.01, self._end_sequence
        )

    def _end_sequence(self) -> None:
        """An escape that nothing followed was the key."""
        self._parser_timer = None
        for message in self._parser.tick():
            self.process_message(message)

    def send_message(self, message: Message) -> None:
        """To the app, from its own thread."""
        self._app.post_message(message)

    def disable_input(self) -> None:
        """No more keys."""
        if not self._is_active:
            return
        self._is_active = False
        self._loop.remove_reader(self._fd)
        signals.give_back([signal.SIGWINCH])
        if self._parser_timer is not None:
            self._parser_timer.cancel()
            self._parser_timer = None

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was."""
        self.disable_input()
        self._watch_writable(wanted=False)
        self._unflushed.clear()
        self._pending.clear()
        taken.give_back()

    def close(self) -> None:
        """Give the terminal back and let go of it."""
        self.stop_application_mode()
        if self._fd >= 0 and self._identity.holds(self._fd):
            os.close(self._fd)
        self._fd = -1

    def suspend_application_mode(self) -> None:
        """Give the terminal to the shell until `resume_application_mode`."""
        self.stop_application_mode()

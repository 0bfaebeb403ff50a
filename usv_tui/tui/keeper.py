"""The keeper: a tiny process that gives the terminal back when the one that took it dies.

It is started as a script, without the package and without `site`, so that it costs a few
milliseconds of another core and is there before any code of the user's runs. It sits in a session
of its own, where no signal of the terminal reaches it, and reads a pipe that tells whether the
terminal is taken. The end of the pipe, or of the process that wrote to it, while it is taken means
that nobody else will give it back.
"""

import _signal  # type: ignore[import-not-found]  # `signal` would import enum, for longer than all the rest takes
import marshal
import os
import select
import sys
import termios

TAKEN = b"+"
GIVEN = b"-"
LEAVE = (
    b"\x1b\\"  # ends a clipboard string that was cut off
    b"\x1b[0m"
    b"\x1b[?2026l"
    b"\x1b[?1000l\x1b[?1006l"
    b"\x1b[?2004l"
    b"\x1b[?1004l"
    b"\x1b[?7h"
    b"\x1b[?25h"
    b"\x1b[?1049l"
)
"""Undoes every mode of the screen."""
RESTORE_WAIT_S = 0.2
_LOOK_MS = 500
"""How often to look for the other process where the system cannot tell of its end."""


def restore(fd: int, attributes: "list | None", *, is_late: bool = False) -> None:  # type: ignore[type-arg]
    """Leave the screen and its modes, on a terminal that may read slowly or be gone.

    With `is_late` the attributes are put back only while they are the screen's: a shell that has
    the terminal again has set its own.
    """
    try:
        rest = memoryview(LEAVE)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                if not select.select([], [fd], [], RESTORE_WAIT_S)[1]:
                    break
        now = termios.tcgetattr(fd)
        is_ours = not (now[1] & termios.OPOST or now[3] & termios.ISIG)
        if attributes and (is_ours or not is_late):
            termios.tcflush(fd, termios.TCIFLUSH)
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
    except (OSError, termios.error):
        return  # a terminal that is gone has no state to put back


def _is_left_taken(pipe: int, parent: int) -> bool:
    """Wait for the other process's last word, or its end without one."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    timeout_ms = None
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
    except OSError:
        timeout_ms = _LOOK_MS
    is_taken = False
    while True:
        ready = poll.poll(timeout_ms)
        try:
            words = os.read(pipe, 4096)
        except BlockingIOError:
            words = None
        if words:
            is_taken = words.endswith(TAKEN)
        # Children that it forked may hold the pipe open after its end.
        is_over = os.getppid() != parent or any(fd != pipe for fd, _ in ready)
        if words == b"" or (words is None and is_over):
            return is_taken


def main(arguments: "list[str]") -> None:
    """Wait, and restore where it is needed; arguments: pipe, terminal, process, attributes."""
    for name in ("HUP", "INT", "QUIT", "TERM", "TSTP", "USR1", "USR2"):
        _signal.signal(getattr(_signal, f"SIG{name}"), _signal.SIG_IGN)
    pipe, terminal, parent = map(int, arguments[:3])
    if _is_left_taken(pipe, parent):
        restore(terminal, marshal.loads(bytes.fromhex(arguments[3])), is_late=True)  # noqa: S302  ours


if __name__ == "__main__":
    main(sys.argv[1:])

"""The controlling terminal: may a screen be drawn on it, and the user's code kept away from it."""

import fcntl
import os
import signal
import termios


def why_no_screen() -> str:
    """Why the screen cannot be shown here; empty when it can.

    The screen is drawn on the controlling terminal, whatever stdout and stderr are; but a process
    in the background, or one whose three standard streams all lead elsewhere, was not started to
    be looked at.
    """
    if os.environ.get("TERM", "dumb") == "dumb":
        return "TERM is not set to a terminal that can be drawn on"
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return "there is no terminal"
    try:
        if not any(_is_tty(n) for n in (0, 1, 2)):
            return "stdin, stdout and stderr are all redirected"
        if os.tcgetpgrp(fd) != os.getpgrp():
            return "this process is in the background"
    except OSError:
        return "the terminal is gone"
    finally:
        os.close(fd)
    return ""


def leave_terminal(*, has_screen: bool) -> None:
    """Let go of the controlling terminal: `getpass`, curses and children find none to read from.

    Descriptors that are open already work as before, and the terminal still sends its signals to
    our process group. Where we lead the session it would not: then it is left for a screen only,
    which reads Ctrl-C as a key and the end of the terminal as such.
    """
    is_leader = os.getsid(0) == os.getpid()
    if is_leader and not has_screen:
        return
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return  # there is none to leave
    # The leader's farewell hangs up on its whole group, and that is us.
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN) if is_leader else None
    try:
        fcntl.ioctl(fd, termios.TIOCNOTTY)
    finally:
        if handler is not None:
            signal.signal(signal.SIGHUP, handler)
        os.close(fd)


def _is_tty(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False

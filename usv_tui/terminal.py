"""Is there a terminal that a screen may be drawn on?"""

import os


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


def _is_tty(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False

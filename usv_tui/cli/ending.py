"""The end of the process, in bounded time: a library that was loaded may hang while it ends.

What runs then is C, long after Python has ended: so is what ends it. A timer of the C library's own
calls `warnx` with a line, and another one `_exit` with the code.
"""

import ctypes
import sys

_SIGEV_THREAD = 2
_CLOCK_MONOTONIC = 1
_LINE = (
    "the process did not end by itself: a library that was loaded hangs in its last steps "
    "(atexit, threads); all results had been written"
)
PATIENCE_S = 10.0
"""A driver and a profiler that write their last need less."""


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("rest", ctypes.c_char * 32),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`: an interval, and when; each in s and ns."""

    _fields_ = (
        ("interval", ctypes.c_long * 2),
        ("value", ctypes.c_long * 2),
    )


def bound(code: int, patience_s: float = PATIENCE_S) -> bool:
    """End this process with `code` and a line when it has not ended by itself after a while.

    False where the C library has no such timers.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    libc = ctypes.CDLL(None)
    try:
        ctypes.c_void_p.in_dll(libc, "__progname").value = _kept(libc, "usv-tui")
        _call_after(libc, libc.warnx, _kept(libc, _LINE), patience_s)
        _call_after(libc, libc._exit, code, patience_s + 0.1)  # noqa: SLF001  C's own name
    except (AttributeError, ValueError, OSError):
        return False
    return True


def _kept(libc: ctypes.CDLL, text: str) -> int:
    """A string that outlives Python."""
    libc.strdup.restype = ctypes.c_void_p
    return int(libc.strdup(text.encode()))


def _call_after(libc: ctypes.CDLL, function: object, value: int, seconds: float) -> None:
    """Let a thread of C's call a function with one argument.

    Raises:
        OSError: there is no such timer.
    """
    address = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    event = _Event(value=value, notify=_SIGEV_THREAD, function=address)
    timer = ctypes.c_void_p()
    whole, part = divmod(seconds, 1.0)
    times = _Times(value=(int(whole), int(part * 1e9)))
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError("no timer")
    if libc.timer_settime(timer, 0, ctypes.byref(times), None):
        raise OSError("no time for it")

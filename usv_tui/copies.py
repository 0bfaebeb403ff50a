"""Copies of the measuring thread: user code that forks, and returns in the child.

Such a copy would go on to measure, beside the original and into the same pipe. It is marked when it
is born, its loop runs dry, and it ends where the program would: with the exit code of its fork.
"""

import contextlib
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from types import FrameType

_is_copy = False
_is_watching = False
_workers: set[int] = set()
"""Threads of this process that measure."""
_closed_at_fork: list[int] = []
"""Descriptors through which a process must not speak for its parent."""
_OURS = "usv_tui.engine."


@contextlib.contextmanager
def no_copies(*descriptors: int) -> Iterator[None]:
    """Within, a fork in this thread makes a copy that is silent and ends.

    No forked process keeps the `descriptors`: it must not speak for its parent.
    """
    global _is_watching  # noqa: PLW0603  a hook cannot be taken back
    if not _is_watching:
        _is_watching = True
        os.register_at_fork(after_in_child=_after_fork)
    thread = threading.get_ident()
    _workers.add(thread)
    _closed_at_fork.extend(descriptors)
    try:
        yield
    finally:
        _workers.discard(thread)


def leave_if_copy(error: BaseException | None = None) -> None:
    """End this process if it is a copy: its `error` is nobody's failure here."""
    if _is_copy:
        os._exit(_exit_code(error))


def _after_fork() -> None:
    global _is_copy  # noqa: PLW0603  a fact about the process
    for descriptor in _closed_at_fork:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _closed_at_fork.clear()
    if threading.get_ident() not in _workers:
        return
    _is_copy = True
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  documented
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            _run_dry(frame)
        frame = frame.f_back


def _run_dry(frame: FrameType) -> None:
    """Leave a loop over windows nothing to go on with; it is asked nothing while it measures."""
    calls, slots = frame.f_locals.get("calls"), frame.f_locals.get("slots")
    if isinstance(calls, repeat):
        deque(calls, maxlen=0)
    if isinstance(slots, list):
        slots.clear()


def _exit_code(error: BaseException | None) -> int:
    """What Python would end with."""
    code = 0
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            given = error.code
            code = given if isinstance(given, int) else int(given is not None)
            if isinstance(given, str):
                print(given, file=sys.stderr)  # noqa: T201  as Python does
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    return code & 0xFF

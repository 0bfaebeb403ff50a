"""What a benchmark in our own process must not do to it: leave it, stop it, close what is ours.

Only calls through Python's `os` and `signal` can be met; the keeper sees to what C code does.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from usv_tui.descriptors import HIGH

Tell = Callable[[str], object]
"""Takes what a thread of the user's did that had no consequence."""
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_OURS = "usv-"
"""Names of our own threads begin with this."""


class SuddenExit(Exception):
    """User code would have ended or stopped the run, its table and the terminal with itself."""


@contextlib.contextmanager
def sheltered(tell: Tell) -> Iterator[None]:
    """Within, such calls of user code in this process raise, or spare what is ours.

    Entered by the measuring thread. Forked children do as they like.
    """
    shelter = _Shelter(tell)
    with contextlib.ExitStack() as stack:
        for module, name in ((os, "_exit"), (os, "closerange"), (os, "kill")):
            stack.enter_context(_replaced(module, name, getattr(shelter, name.strip("_"))))
        stack.enter_context(_replaced(signal, "raise_signal", shelter.raise_signal))
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


class _Shelter:
    """Stands in for functions of `os` and `signal`."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._process = os.getpid()
        self._measuring = threading.get_ident()
        self._exit, self._closerange = os._exit, os.closerange
        self._kill, self._raise = os.kill, signal.raise_signal
        self._ours = _open_now()

    def _is_theirs(self) -> bool:
        """True in the measuring thread, and in threads that user code made."""
        if os.getpid() != self._process:
            return False
        thread = threading.current_thread()
        is_ours = thread is threading.main_thread() or thread.name.startswith(_OURS)
        return threading.get_ident() == self._measuring or not is_ours

    def _refuse(self, what: str) -> None:
        if threading.get_ident() != self._measuring:
            self._tell(what)
        raise SuddenExit(f"it {what}; --isolate lets it, and costs its row")

    def exit(self, status: int) -> None:
        """`os._exit`."""
        if self._is_theirs():
            self._refuse(f"called os._exit({status})")
        self._exit(status)

    def closerange(self, low: int, high: int, /) -> None:
        """`os.closerange`, sparing what the file found open, and our high ones."""
        if not self._is_theirs():
            self._closerange(low, high)
            return
        at, high = low, min(high, HIGH)
        for fd in sorted(self._ours):
            if at <= fd < high:
                self._closerange(at, fd)
                at = fd + 1
        self._closerange(at, high)

    def kill(self, pid: int, number: int, /) -> None:
        """`os.kill`: whoever stops its own process is never continued."""
        if number in _STOPS and pid in (0, self._process) and self._is_theirs():
            self._refuse(f"stopped its own process ({signal.Signals(number).name})")
        self._kill(pid, number)

    def raise_signal(self, number: int, /) -> None:
        """`signal.raise_signal`."""
        if number in _STOPS and self._is_theirs():
            self._refuse(f"stopped its own process ({signal.Signals(number).name})")
        self._raise(number)


def _open_now() -> set[int]:
    try:
        return {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    except OSError:
        return set(range(HIGH))

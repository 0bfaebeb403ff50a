"""Signals that end a run in order, and what of ours a forked child must not keep.

A child that user code forks is the user's: a handler of ours in it would swallow the TERM that is
to end it, and a lock or a terminal of ours would be given back twice.
"""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], object]

ENDING = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
)
"""They would kill the process: users, shells, batch systems and timers send them."""
TO_THE_GROUP = ENDING[:6]
"""Those that come to every process of a group or job."""
TO_ONE = ENDING[6:]
"""Those of a process's own timers and limits."""
_ALWAYS = (signal.SIGINT, signal.SIGTERM)
"""Handled even where whoever started us had them ignored, as shells do in the background."""

_taken: dict[int, tuple[Handler, Any]] = {}
"""Our handlers, and what was there before."""
_forgotten: list[Callable[[], object]] = []
_saved = threading.local()
_is_registered: list[bool] = []


def take(numbers: Iterable[int], handler: Handler) -> None:
    """Handle signals until `give_back`.

    One that is ignored on purpose (`nohup`), or that a library handles, stays as it is.
    """
    _register()
    for number in numbers:
        before = signal.getsignal(number)
        if before in (signal.SIG_IGN, None) and number not in _ALWAYS:
            continue
        if number in _taken:
            before = _taken[number][1]
        _taken[number] = (handler, before)
        signal.signal(number, handler)


def give_back(numbers: Iterable[int]) -> None:
    """Put back what was there; a handler that somebody else has set since then stays."""
    for number in numbers:
        found = _taken.pop(number, None)
        if found is not None:
            _put_back(number, *found)


def _put_back(number: int, handler: Handler, before: Any) -> None:
    if signal.getsignal(number) == handler:
        signal.signal(number, signal.SIG_DFL if before is None else before)


def forget_at_fork(forget: Callable[[], object]) -> None:
    """Have `forget` called in every forked child."""
    _register()
    if forget not in _forgotten:
        _forgotten.append(forget)


def _register() -> None:
    if not _is_registered:
        _is_registered.append(True)
        os.register_at_fork(
            before=_before_fork, after_in_parent=_unblock, after_in_child=_after_in_child
        )


def _before_fork() -> None:
    """A signal that comes before the child has its own handlers waits until it has."""
    _saved.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _taken.keys())


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _saved.mask)


def _after_in_child() -> None:
    signal.set_wakeup_fd(-1)
    for number, (handler, before) in _taken.items():
        _put_back(number, handler, before)
    _taken.clear()
    try:
        for forget in _forgotten:
            forget()
        _unblock()
    except KeyboardInterrupt:
        # Raised here it would be reported and lost: the child ends as by an unhandled Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


class Flag(threading.Event):
    """An event that a signal handler may set, even one that interrupts a `wait` for it.

    The lock of an ordinary one is not for that: the handler would wait for the code below it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._words: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_up = False

    def is_set(self) -> bool:
        """True once it was set."""
        return self._is_up

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._is_up = True
        self._words.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """True when it is set, at the latest after `timeout` seconds."""
        if not self._is_up:
            with suppress(queue.Empty):
                self._words.get(timeout=timeout)
        return self._is_up


class Signals:
    """What ends the program ends the run in order; the number is kept for the exit code.

    The second one makes the end wait for nobody, the third one ends the process as it is: the
    guardian puts the clocks back.
    """

    def __init__(self) -> None:
        self.number = 0
        self.event = Flag()
        self.hurry = Flag()
        self.on_end: Callable[[int], object] | None = None
        """Called from the handler."""
        self.on_first: Callable[[], object] = lambda: None
        """Called from the handler, before all else: the program hears."""

    @contextmanager
    def watch(self) -> Iterator["Signals"]:
        """Handle the signals for as long as the context lasts."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        """Handle them from now on."""
        take(ENDING, self._take)

    def stop(self) -> None:
        """Handle them no longer."""
        give_back(ENDING)

    def _take(self, number: int, _frame: object) -> None:
        self.on_first()
        self.number = self.number or number
        if self.hurry.is_set():
            os._exit(128 + self.number)
        if self.event.is_set():
            self.hurry.set()
        self.event.set()
        if self.on_end is not None:
            self.on_end(number)

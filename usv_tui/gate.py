"""The gate: no Python of ours runs while a timed window is open.

The worker owns the gate. The screen (and the poller) ask for it; the worker opens it between
rounds, waits until everybody who asked is done, or until a bound has passed, and shuts it again.
The only cost in the timed path is one attribute read a round.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

STOOD_NS = NS_PER_S
"""Those who ask for the gate come several times a second: silence for so long is a standstill."""


class Gate:
    """Mutual exclusion with a worker that must never be made to wait for long."""

    def __init__(self, time_source: TimeSource | None = None) -> None:
        self.wanted = 0
        """How many ask for the gate now; the worker reads this without a lock."""
        self.forced: list[tuple[int, int]] = []
        """Intervals in which somebody ran without the gate, for the worker to flag and clear."""
        self.intruders: dict[object, int] = {}
        """Since when somebody is running without the gate now; the worker flags these as well."""
        self.asked_ns = 0
        """When the gate was last asked for; 0 where nobody does."""
        self.stood: tuple[int, int] | None = None
        """The last time that nobody asked for long: the whole program stood still."""
        self._condition = threading.Condition()
        self._open = False
        self._holders: set[object] = set()
        self._is_manned = False
        self._time = time_source or MonotonicTime()

    @property
    def is_manned(self) -> bool:
        """True while a worker measures: the gate is shut except when it opens it."""
        return self._is_manned

    def man(self) -> None:
        """A worker starts to measure: from now on the gate is shut until it opens it."""
        with self._condition:
            self._is_manned = True
            self._open = False

    def unman(self) -> None:
        """The worker stands still or is gone: everybody may pass at any time."""
        with self._condition:
            self._is_manned = False
            self._condition.notify_all()

    @contextmanager
    def hold(self, timeout_ns: int) -> Iterator[bool]:
        """Hold the gate; yields True when held, False when the timeout passed first.

        With False the body may still run; the interval is then noted in `forced` and the worker
        flags the samples that it fell into.
        """
        ticket = object()
        now_ns = self._time.now_ns()
        if self.asked_ns and now_ns - self.asked_ns > STOOD_NS:
            self.stood = (self.asked_ns, now_ns)
        self.asked_ns = now_ns
        with self._condition:
            self.wanted += 1
            try:
                held = self._condition.wait_for(
                    lambda: self._open or not self._is_manned, timeout_ns / NS_PER_S
                )
            finally:
                self.wanted -= 1
            start_ns = self._time.now_ns()
            if held:
                self._holders.add(ticket)
            else:
                self.intruders[ticket] = start_ns
        try:
            yield held
        finally:
            with self._condition:
                if held:
                    self._holders.discard(ticket)
                else:
                    self.forced.append((start_ns, self._time.now_ns()))
                    del self.intruders[ticket]
                self._condition.notify_all()

    def standstill(self, from_ns: int, to_ns: int) -> tuple[int, int] | None:
        """When the program stood still within this time; None when it did not, or nobody tells."""
        if not self.asked_ns:
            return None
        for begin_ns, end_ns in (self.stood or (0, 0), (self.asked_ns, to_ns)):
            begin_ns, end_ns = max(begin_ns, from_ns), min(end_ns, to_ns)  # noqa: PLW2901
            if end_ns - begin_ns > STOOD_NS // 2:
                return begin_ns, end_ns
        return None

    def serve(self, bound_ns: int) -> bool:
        """The worker's side: let those who asked pass; True when it did open.

        Returns when nobody holds or wants the gate, or after `bound_ns`.
        """
        if not self.wanted:
            return False
        start_ns = self._time.now_ns()
        with self._condition:
            self._open = True
            self._condition.notify_all()
            done = self._condition.wait_for(
                lambda: not self._holders and not self.wanted, bound_ns / NS_PER_S
            )
            self._open = False
            if not done and self._holders:
                # Somebody is slow; what it does from now on falls into windows. Nobody waits for
                # it again: a holder may hang for ever (a driver call).
                self._holders.clear()
                self.forced.append((start_ns, self._time.now_ns() + bound_ns))
        return True

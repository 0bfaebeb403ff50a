"""The time seam: everything that reads a clock or waits takes a `TimeSource`.

Real runs use `MonotonicTime`; tests and the simulated device in virtual time use `ManualTime`,
where a wait advances the clock instead of spending it.
"""

import threading
import time
from typing import Protocol

NS_PER_S = 1_000_000_000


class TimeSource(Protocol):
    """A monotonic clock in nanoseconds and a way to wait on it."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary origin; never decreases."""
        ...

    def wait(self, event: threading.Event, timeout_ns: int) -> bool:
        """Wait until `event` is set or `timeout_ns` has passed; True if the event is set."""
        ...


class MonotonicTime:
    """`time.perf_counter_ns`: comparable across threads and processes of one machine."""

    now_ns = staticmethod(time.perf_counter_ns)

    def wait(self, event: threading.Event, timeout_ns: int) -> bool:
        """Wait in real time."""
        return event.wait(max(timeout_ns, 0) / NS_PER_S)


class ManualTime:
    """A clock that moves only when told: `advance`, or a `wait`, which advances by its timeout."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        """The current virtual time."""
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Move the clock forward by `ns` (>= 0)."""
        if ns < 0:
            raise ValueError("time does not go backwards")
        with self._lock:
            self._now_ns += ns

    def wait(self, event: threading.Event, timeout_ns: int) -> bool:
        """Return at once; the clock moves by `timeout_ns` unless the event is set already."""
        if event.is_set():
            return True
        self.advance(max(timeout_ns, 0))
        return event.is_set()

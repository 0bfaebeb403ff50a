"""Timing events that are used again. Imports nothing of torch."""

from collections import deque
from typing import Any


class EventPool:
    """Timing events that are used again, so that none is made inside a window.

    An event is free only when the device has passed it, and whatever waits for it in another
    stream has, too: there are backends whose waiters wait for an event's newest record, and would
    then wait for what comes after themselves.
    """

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._is_blocking = True
        self._is_mixing = bool(getattr(gpu, "may_mix_records", False))
        self.free: list[Any] = []
        self._late: deque[tuple[Any, tuple[Any, ...]]] = deque()
        """Events that are free when the first one of their entry has been reached."""
        self.made = 0
        """Events that exist because of this pool."""

    def reserve(self, n: int) -> None:
        """Have at least `n` events ready. Each is recorded once: the driver makes it only then."""
        if self._late:
            self._reap()
        if len(self.free) >= n:
            return
        stream = self._gpu.current_stream()
        while len(self.free) < n:
            event = self._make()
            event.record(stream)
            self.free.append(event)
        if self._is_mixing:
            self.free[-1].synchronize()

    def take(self) -> Any:
        """A free event, or a new one when none was reserved."""
        if not self.free and self._late:
            self._reap()
        return self.free.pop() if self.free else self._make()

    def give(self, *events: Any) -> None:
        """Put back events that the device has passed."""
        self.free.extend(events)

    def give_when(self, reached: Any, *events: Any) -> None:
        """Put events back as soon as `reached` is; that one is the caller's, or among them."""
        self._late.append((reached, events))

    def give_each(self, *events: Any) -> None:
        """Put events back, each when it is reached."""
        for event in events:
            self._late.append((event, (event,)))

    def _reap(self) -> None:
        """Free what has been reached by now."""
        for _ in range(len(self._late)):
            reached, events = self._late.popleft()
            try:
                is_reached = reached.query()
            except RuntimeError:  # the device is lost, of which others tell; they are of no use
                continue
            if is_reached:
                self.free.extend(events)
            else:
                self._late.append((reached, events))

    def _make(self) -> Any:
        self.made += 1
        # blocking: a host that waits for one sleeps instead of burning the core that feeds the GPU
        if self._is_blocking:
            try:
                return self._gpu.Event(enable_timing=True, blocking=True)
            except TypeError:
                self._is_blocking = False
        return self._gpu.Event(enable_timing=True)

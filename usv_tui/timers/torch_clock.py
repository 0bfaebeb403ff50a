"""Event timing behind usv's `GPUTimer` protocol: `get_timer("torch")`."""

from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from usv_tui.timers.abilities import ask, require_events
from usv_tui.timers.devices import current_kind, family_of
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.host_clock import refuse_early
from usv_tui.timers.owned import Where, elsewhere
from usv_tui.timers.phases import unwrap
from usv_tui.timers.spin import find_spin
from usv_tui.timers.stream_clock import check_events, check_waits
from usv_tui.timers.wall import GPUTimer, Slot
from usv_tui.timesource import MonotonicTime, TimeSource


class _Handle:
    """One sample of `TorchClock`: two events until it is read, then a number."""

    __slots__ = ("end", "inner", "seconds", "start")

    def __init__(self, start: Any, end: Any, inner: int) -> None:
        self.start = start
        self.end = end
        self.inner = inner
        self.seconds: float | None = None


class TorchClock(GPUTimer):
    """Event timing behind usv's protocol; the events of read samples are used again."""

    def __init__(
        self,
        torch: Any,
        kind: str = "",
        *,
        depth: int = 256,
        time_source: TimeSource | None = None,
    ) -> None:
        family = family_of(torch, kind or current_kind(torch) or "cuda")
        require_events(torch, family.gpu, family.module)
        self._kind = family.kind
        self._gpu = family.gpu
        self._pool = EventPool(self._gpu)
        self._pool.reserve(64)
        now_ns = (time_source or MonotonicTime()).now_ns
        check_events(self._gpu, self._pool, now_ns)
        spin = find_spin(torch, family.kind, self._gpu, self._pool)
        if spin is not None:
            check_waits(self._gpu, self._pool, spin, now_ns)
        self._depth = depth
        self._gpu.synchronize()

    def meet(self, slot: Slot, result: object) -> None:
        """Look at a row's first result.

        Raises:
            BenchFault: its work is on another device, or not done when it returns.
        """
        home = Where(self._kind, int(ask(self._gpu, "current_device", default=0)))
        fn = unwrap(slot.fn)
        elsewhere(home, fn, result)
        refuse_early(fn, result, slot.before)

    def synchronize(self) -> None:
        """Wait for the whole device."""
        self._gpu.synchronize()

    def open(
        self,
        fn: Callable[[], object],
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> _Handle:
        """Enqueue one sample on the current stream."""
        handle = _Handle(self._pool.take(), self._pool.take(), inner)
        if before is not None:
            before()
        stream = self._gpu.current_stream()
        handle.start.record(stream)
        for _ in repeat(None, inner):
            fn()
        handle.end.record(stream)
        return handle

    def value(self, handle: _Handle) -> float:
        """Seconds per call; may be asked for again."""
        if handle.seconds is None:
            handle.seconds = handle.start.elapsed_time(handle.end) / 1e3 / handle.inner
            self._pool.give(handle.start, handle.end)
            handle.start = handle.end = None
        return handle.seconds

    def record_n(
        self,
        fn: Callable[[], object],
        n: int,
        *,
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> np.ndarray:
        """`n` samples in a row, at most `depth` of them in flight."""
        seconds: list[float] = []
        flying: deque[_Handle] = deque()
        for _ in range(n):
            if len(flying) >= self._depth:
                flying[self._depth // 4].end.synchronize()
                while flying and flying[0].end.query():
                    seconds.append(self.value(flying.popleft()))
            flying.append(self.open(fn, inner, before))
        self.synchronize()
        seconds += [self.value(handle) for handle in flying]
        return np.array(seconds, dtype=np.float64)

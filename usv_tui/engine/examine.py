"""What a primed callable does to the device, found out before it is timed.

Takes `torch` as an argument and imports nothing of it. Everything here runs outside timing, with an
idle device, and costs a row one to a few calls.
"""

import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from usv_tui.engine.checks import (
    BenchFault,
    DeviceState,
    distortions,
    memory_grows,
    outside_stream,
    synchronises,
    vet_state,
)
from usv_tui.engine.findings import Finding
from usv_tui.engine.stream_clock import EventPool, SleepRate
from usv_tui.engine.timers import Slot

_SPIN_NS = 2_000_000
"""Long enough to see a wait, too short for the launch queue to fill meanwhile."""
_LONGEST_SPIN_NS = 50_000_000
_MEMORY_CALLS = 4
_NS_PER_MS = 1_000_000
_SYNC_WARNING = "called a synchronizing"
"""How torch begins it; the mode also warns that it is a prototype, which is no finding."""


class Call(NamedTuple):
    """One call of a row between two events, with everything that was seen of it."""

    host_ns: int
    window_ns: float
    after_end_ns: int
    """How long the device went on after the end event."""


class Examiner:
    """Calls rows and looks. One for each timer, made in the thread that times."""

    def __init__(
        self,
        torch: Any,
        pool: EventPool,
        clock: Callable[[], int],
        sleep: SleepRate | None,
    ) -> None:
        self._torch = torch
        self._cuda = torch.cuda
        self._pool = pool
        self._clock = clock
        self._sleep = sleep
        self._home = self.state()
        self._home_stream = self._cuda.current_stream()
        self._idle_sync_ns = self._measure_idle_sync()

    def state(self) -> DeviceState:
        """What is shared by all rows of this thread."""
        stream = self._cuda.current_stream()
        return DeviceState(
            self._cuda.current_device(),
            int(stream.cuda_stream),
            bool(self._cuda.is_current_stream_capturing()),
            bool(self._torch.is_grad_enabled()),
        )

    def surroundings(self) -> list[Finding]:
        """Torch's profiler, which only torch can tell of; see `checks.distortions` for the rest."""
        profiling = getattr(self._torch.autograd, "_profiler_enabled", None)
        is_on = bool(profiling()) if profiling is not None else False
        return distortions({}, is_profiling=is_on, is_anomaly=False)

    def fault(self) -> BenchFault | None:
        """Whether the calls so far left this thread's state changed; puts it back."""
        found = vet_state(self._home, self.state())
        if found is not None:
            self._cuda.set_device(self._home.device)
            self._cuda.set_stream(self._home_stream)
            self._torch.set_grad_enabled(self._home.is_grad_enabled)
        return found

    def look(self, slot: Slot) -> list[Finding]:
        """Call a row and see whether it waits for the device, works elsewhere, or keeps memory."""
        heard: list[str] = []
        first = self._call(slot, heard=heard)
        behind: Call | None = None
        spin_ns = max(_SPIN_NS, min(_LONGEST_SPIN_NS, first.host_ns // 2))
        may_wait = not heard and first.host_ns >= 0.8 * first.window_ns
        if may_wait and self._sleep is not None:
            behind = self._call(slot, spin_ns)
        found = (
            synchronises(
                len(heard), first.host_ns, behind.host_ns if behind else None, float(spin_ns)
            ),
            outside_stream(first.after_end_ns, first.window_ns, self._idle_sync_ns),
            self._memory(slot),
        )
        return [f for f in found if f is not None]

    def covered_ns(self, fn: Callable[[], object]) -> float:
        """Device time of one call that was queued behind a spin, so that it has no launch gap."""
        slot = Slot(-1, fn)
        host_ns = self._call(slot).host_ns
        return self._call(slot, min(_LONGEST_SPIN_NS, 2 * host_ns + 100_000)).window_ns

    def _call(self, slot: Slot, spin_ns: int = 0, heard: list[str] | None = None) -> Call:
        cuda, clock = self._cuda, self._clock
        start, end = self._pool.take(), self._pool.take()
        if slot.reset is not None:
            slot.reset()
        cuda.synchronize()
        with cuda.stream(slot.stream) if slot.stream is not None else nullcontext():
            if spin_ns and self._sleep is not None:
                cuda._sleep(self._sleep.cycles(spin_ns))  # noqa: SLF001  torch's own name
            start.record()
            with nullcontext() if heard is None else self._listening(heard):
                before_ns = clock()
                slot.fn()
                host_ns = clock() - before_ns
            end.record()
        end.synchronize()
        ended_ns = clock()
        cuda.synchronize()
        after_ns = clock() - ended_ns
        window_ns = start.elapsed_time(end) * _NS_PER_MS
        self._pool.give(start, end)
        return Call(host_ns, window_ns, after_ns)

    @contextmanager
    def _listening(self, heard: list[str]) -> Iterator[None]:
        """Collect what torch's sync-debug mode says of the calls within."""
        cuda = self._cuda
        before = cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                cuda.set_sync_debug_mode(before)
        heard += [str(w.message) for w in caught if _SYNC_WARNING in str(w.message)]

    def _memory(self, slot: Slot) -> Finding | None:
        """Allocated bytes over a few calls; only a row that grew with the first is called on."""
        read = self._cuda.memory_allocated
        allocated = [read()]
        for _ in range(_MEMORY_CALLS):
            if slot.reset is not None:
                slot.reset()
            slot.fn()
            allocated.append(read())
            if allocated[-1] <= allocated[-2]:
                return None
        self._cuda.synchronize()
        return memory_grows(allocated)

    def _measure_idle_sync(self) -> float:
        """What a device-wide sync costs when there is nothing to wait for."""
        took = []
        self._cuda.synchronize()
        for _ in range(5):
            before_ns = self._clock()
            self._cuda.synchronize()
            took.append(self._clock() - before_ns)
        return statistics.median(took)

"""The core clock measured inside the stream: no driver call, no lag, at the samples themselves.

Two ways. A one-thread Triton kernel writes the cycle counter and a timer of constant rate; the
quotient of two of its readings is the mean clock between them. Where Triton is missing, torch's
spin kernel spins a known number of cycles between two events. Takes `torch` as an argument and
imports nothing of it.
"""

import importlib
import importlib.util
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from usv_tui.timers.abilities import ask, is_hip
from usv_tui.timers.devices import Family
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.spin import SleepRate

At = Callable[[Any], int]
"""Session time of an event."""
Clock = tuple[int, float]
"""(session time in ns, core clock in MHz)."""

_NS_PER_MS = 1_000_000
_SPIN_NS = 50_000
_SPIN_EVERY_NS = 20e6
_KERNEL_EVERY_NS = 1e6
_RING = 1024
_COLUMNS = 4
_SHORTEST_NS = 200_000
"""Between two readings: the constant timer steps by up to 1 us, so that this is 0.5 %."""
_LONGEST_NS = 250_000_000
_READ_AT_ONCE = 64
_AMD_KERNEL = ("gfx942", "gfx950")
_NO_CYCLES = ("gfx10", "gfx11", "gfx12")
"""AMD chips on which the spin kernel counts a constant clock, or where nobody has looked."""


class Probe(Protocol):
    """Measures the clock by work that it puts between windows."""

    source: str
    """kernel or spin."""
    every_ns: float
    """Device work to let pass between two launches."""

    def launch(self) -> None:
        """Put one reading into the current stream."""
        ...

    def read(self, at_ns: At, *, all_: bool = False) -> list[Clock]:
        """The clocks that are complete; few of them may be held back unless `all_`."""
        ...


def find_probe(
    torch: Any, pool: EventPool, sleep: SleepRate | None, family: Family | None = None
) -> tuple[Probe | None, str]:
    """The best probe that works here, and why there is no better one (empty: it is the best)."""
    if family is not None and family.kind != "cuda":
        return None, f"there is no clock kernel for {family.kind}, and no spin kernel"
    arch = _arch(torch)
    kernel, why = _kernel_probe(torch, pool, arch)
    if kernel is not None:
        return kernel, ""
    if sleep is None:
        return None, f"{why}; this build of torch has no spin kernel"
    if arch.startswith(_NO_CYCLES):
        return None, f"{why}; the spin kernel does not count core cycles on {arch}"
    return SpinProbe(torch.cuda, pool, sleep), why


def _arch(torch: Any) -> str:
    """gfx942, … on AMD; empty elsewhere."""
    if not is_hip(torch):
        return ""
    properties = ask(torch.cuda, "get_device_properties", ask(torch.cuda, "current_device"))
    return str(getattr(properties, "gcnArchName", "")).partition(":")[0]


def _kernel_probe(torch: Any, pool: EventPool, arch: str) -> tuple[Probe | None, str]:
    if importlib.util.find_spec("triton") is None:
        return None, "triton is not installed"
    if is_hip(torch) and arch not in _AMD_KERNEL:
        return None, f"no clock kernel for {arch or 'this chip'}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Triton's on its own defaults are not the user's
            kernels = importlib.import_module("usv_tui.timers.probe_kernels")
            read = kernels.read_amd if is_hip(torch) else kernels.read_nvidia
            tick_ns = 10 if is_hip(torch) else 1
            probe = KernelProbe(torch, pool, lambda out: read[(1,)](out, num_warps=1), tick_ns)
            probe.launch()  # compiles
            torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  Triton fails in many ways where it cannot compile
        return None, f"the clock kernel does not work: {type(error).__name__}: {error}"
    return probe, ""


class Mark(NamedTuple):
    """One reading of the counters."""

    cycles: int
    ns: int
    unit: int
    """Multiprocessor or chiplet: counters of two of them have nothing in common."""


def mean_mhz(a: Mark, b: Mark) -> float | None:
    """The clock between two readings; None when they do not belong together or lie too close."""
    span_ns = b.ns - a.ns
    cycles = b.cycles - a.cycles
    if a.unit != b.unit or cycles <= 0 or not _SHORTEST_NS <= span_ns <= _LONGEST_NS:
        return None
    return cycles / span_ns * 1e3


class KernelProbe:
    """Readings by a kernel into a ring in device memory, copied out beside the stream."""

    source = "kernel"
    every_ns = _KERNEL_EVERY_NS

    def __init__(
        self, torch: Any, pool: EventPool, run: Callable[[Any], object], tick_ns: int
    ) -> None:
        self._torch = torch
        self._pool = pool
        self._run = run
        self._tick_ns = tick_ns
        self._ring = torch.zeros((_RING, _COLUMNS), dtype=torch.int64, device="cuda")
        self._slots = [self._ring[i] for i in range(_RING)]
        """Made once: a view a launch would cost host time between windows."""
        self._side = torch.cuda.Stream()
        self._next = 0
        self._pending: deque[tuple[int, Any]] = deque()
        self._last: tuple[Mark, int] | None = None

    def launch(self) -> None:
        """One reading; none when the ring is full of unread ones."""
        if len(self._pending) >= _RING - 1:
            return
        slot = self._next
        self._next = (slot + 1) % _RING
        self._run(self._slots[slot])
        event = self._pool.take()
        event.record()
        self._pending.append((slot, event))

    def read(self, at_ns: At, *, all_: bool = False) -> list[Clock]:
        """Clocks between readings, in batches: a copy costs more than its bytes."""
        pending = self._pending
        if len(pending) < _READ_AT_ONCE and not all_:
            return []
        done: list[tuple[int, Any]] = []
        while pending and pending[0][1].query():
            done.append(pending.popleft())
        if not done:
            return []
        with self._torch.cuda.stream(self._side):
            # On a stream of its own the copy waits for nothing: what it reads is complete.
            rows: Sequence[Sequence[int]] = self._ring.cpu().tolist()
        marks = [(self._mark(rows[slot]), at_ns(event)) for slot, event in done]
        self._pool.give(*(event for _, event in done))
        if self._last is not None:
            marks.insert(0, self._last)
        self._last = marks[-1]
        clocks = [((at_a + at_b) // 2, mean_mhz(a, b)) for (a, at_a), (b, at_b) in pairwise(marks)]
        return [(at, mhz) for at, mhz in clocks if mhz is not None]

    def _mark(self, row: Sequence[int]) -> Mark:
        return Mark(row[0], row[1] * self._tick_ns, row[2])


class SpinProbe:
    """Spins of a known number of cycles, timed by events."""

    source = "spin"
    every_ns = _SPIN_EVERY_NS

    def __init__(self, cuda: Any, pool: EventPool, sleep: SleepRate) -> None:
        self._cuda = cuda
        self._pool = pool
        self._cycles = sleep.cycles(_SPIN_NS)
        self._overhead_ns = sleep.overhead_ns
        self._pending: deque[tuple[Any, Any]] = deque()

    def launch(self) -> None:
        """One spin; it does not count when the device was there before it: a gap is in it."""
        start, end = self._pool.take(), self._pool.take()
        start.record()
        self._cuda._sleep(self._cycles)  # noqa: SLF001  torch's own name for the spin kernel
        end.record()
        if start.query():
            self._pool.give_each(start, end)
        else:
            self._pending.append((start, end))

    def read(self, at_ns: At, *, all_: bool = False) -> list[Clock]:  # noqa: ARG002  never held back
        """One clock a spin."""
        clocks: list[Clock] = []
        pending = self._pending
        while pending and pending[0][1].query():
            start, end = pending.popleft()
            took_ns = start.elapsed_time(end) * _NS_PER_MS - self._overhead_ns
            if took_ns > 0:
                at = at_ns(start) + round(took_ns / 2)
                clocks.append((at, self._cycles / took_ns * 1e3))
            self._pool.give(start, end)
        return clocks

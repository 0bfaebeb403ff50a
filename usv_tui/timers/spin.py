"""Work of a known length to hold a device with: torch's spin kernel, else a filler of additions.

Takes what times a kind of accelerator (`devices.Family.gpu`) and imports nothing of torch.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from usv_tui.errors import TimerError
from usv_tui.timers.abilities import WALL_HINT
from usv_tui.timers.event_pool import EventPool

_NS_PER_MS = 1_000_000
_BUFFERS_BYTES = (8 << 20, 32 << 20, 128 << 20, 512 << 20)
_ENOUGH_NS = 100_000
"""An addition this long keeps the launches few."""
_ADDITIONS = 12
_AHEAD = 3.0
"""The device must need so many times what the host takes to ask for it: else nothing is held."""
_LOOKS = 4
_CLEAR_NS = 1_000_000
_MOST_ADDITIONS = 60
"""In one hold: a device takes 1024 launches ahead, and windows need theirs."""


class Spin(Protocol):
    """Holds the device for a while."""

    launches: int
    """Most launches of one hold."""

    def put(self, ns: float) -> None:
        """Put about so much work into the current stream."""
        ...


class SleepRate(NamedTuple):
    """How long the device's spin kernel spins: `overhead_ns + cycles * ns_per_cycle`."""

    ns_per_cycle: float
    overhead_ns: float

    def cycles(self, ns: float) -> int:
        """Cycles for a spin of about this length, at the clock of the calibration."""
        return max(1, round(ns / self.ns_per_cycle))


class SleepSpin:
    """Torch's spin kernel."""

    launches = 1

    def __init__(self, gpu: Any, rate: SleepRate) -> None:
        self._gpu = gpu
        self.rate = rate

    def put(self, ns: float) -> None:
        """One spin."""
        self._gpu._sleep(self.rate.cycles(ns))  # noqa: SLF001  torch's own name


class Filler:
    """Additions on a large buffer: each takes the device longer than it takes the host to ask."""

    launches = _MOST_ADDITIONS

    def __init__(self, add: Callable[[], object], add_ns: float) -> None:
        self._add = add
        self._add_ns = add_ns

    def put(self, ns: float) -> None:
        """As many additions as it takes."""
        for _ in range(min(_MOST_ADDITIONS, math.ceil(ns / self._add_ns))):
            self._add()


def find_spin(torch: Any, kind: str, gpu: Any, pool: EventPool) -> Spin | None:
    """What holds the device here; None when neither way works."""
    if hasattr(gpu, "_sleep"):
        rate = calibrate_sleep(gpu, pool)
        return None if rate is None else SleepSpin(gpu, rate)
    return _find_filler(torch, kind, gpu, pool) if kind != "cuda" else None


def calibrate_sleep(gpu: Any, pool: EventPool) -> SleepRate | None:
    """Time the spin kernel at two lengths; None when this build of torch has none that works."""
    sleep = getattr(gpu, "_sleep", None)
    if sleep is None:
        return None
    short, long = 20_000, 220_000
    try:
        sleep(short)  # the first launch loads the kernel
        took = {cycles: _spins(gpu, pool, sleep, cycles) for cycles in (short, long)}
    except (RuntimeError, TypeError):  # NotImplementedError is a RuntimeError
        # A private function: where it does not work, there is no blocker, and the timer says so.
        return None
    slope = (took[long] - took[short]) / (long - short)
    if slope <= 0:
        return None
    return SleepRate(slope, max(0.0, took[short] - slope * short))


def _spins(gpu: Any, pool: EventPool, sleep: Callable[[int], object], cycles: int) -> float:
    """The shortest of five spins, in ns."""
    pairs = [(pool.take(), pool.take()) for _ in range(5)]
    for start, end in pairs:
        start.record()
        sleep(cycles)
        end.record()
    gpu.synchronize()
    shortest = min(start.elapsed_time(end) for start, end in pairs) * _NS_PER_MS
    for pair in pairs:
        pool.give(*pair)
    return float(shortest)


def _find_filler(torch: Any, kind: str, gpu: Any, pool: EventPool) -> Filler | None:
    """The smallest buffer that does; None where the host does not run ahead of any."""
    best: Filler | None = None
    for size in _BUFFERS_BYTES:
        try:
            buffer = torch.zeros(size // 4, dtype=torch.float32, device=kind)
            buffer.add_(1)  # the first launch loads the kernel
            gpu.synchronize()
            add = partial(buffer.add_, 1)
            add_ns, is_ahead = _additions(gpu, pool, add)
        except (RuntimeError, AttributeError, TypeError):  # no memory, or no kernel for it
            break
        if is_ahead:
            best = Filler(add, add_ns)
            if add_ns >= _ENOUGH_NS:
                break
    return best


def _additions(gpu: Any, pool: EventPool, add: Callable[[], object]) -> tuple[float, bool]:
    """Device time of one addition, and whether the host asks for them much faster than that.

    Raises:
        TimerError: events are stamped when they are launched, as the host's time shows.
    """
    start, end = pool.take(), pool.take()
    for _ in range(_LOOKS):
        before_ns = time.perf_counter_ns()
        start.record()
        for _ in range(_ADDITIONS):
            add()
        host_ns = (time.perf_counter_ns() - before_ns) / _ADDITIONS
        end.record()
        is_busy = not end.query()
        put_ns = time.perf_counter_ns()
        gpu.synchronize()
        busy_ns = time.perf_counter_ns() - put_ns
        add_ns = start.elapsed_time(end) * _NS_PER_MS / _ADDITIONS
        # A host that came late makes one look long, and not all of them.
        if not (is_busy and busy_ns > max(_CLEAR_NS, 4 * add_ns * _ADDITIONS)):
            break
    else:
        raise stamped_early(add_ns * _ADDITIONS, busy_ns)
    pool.give(start, end)
    return add_ns, is_busy and add_ns > _AHEAD * host_ns


def stamped_early(read_ns: float, busy_ns: float) -> TimerError:
    """Events that tell when they were put into the stream, and nothing of the work between."""
    return TimerError(
        f"this device's events read {read_ns / _NS_PER_MS:.3g} ms around "
        f"{busy_ns / _NS_PER_MS:.1f} ms of work: they are stamped when they are launched",
        WALL_HINT,
    )

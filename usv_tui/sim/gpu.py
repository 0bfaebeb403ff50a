"""The simulated GPU on a session's clock: launches, streams, waiting, locks, and the truth."""

import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from usv_tui.errors import UsageError
from usv_tui.sim.kernels import KernelNoise, SimKernel
from usv_tui.sim.machine import Item, Stream
from usv_tui.sim.physics import TickRow, nearest_index
from usv_tui.sim.profiles import Card
from usv_tui.sim.scenarios import Scenario
from usv_tui.sim.sensors import Sensed, Sensors
from usv_tui.sim.trace import build_machine
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.kinds import Vendor

MAIN, SIDE = 0, 1
"""The streams: the one that is timed by default, and the other one."""
_SPIN_NS = 200_000
"""Shorter waits than this are spun: a sleeping thread wakes up too late for them."""
_MIN_WAIT_NS = 1_000
_FLUSH_FACTOR = 2
_FLUSH_ACTIVITY = 0.4
_SPIN_ACTIVITY = 0.02


class ContextLost(RuntimeError):
    """The simulated card has fallen off the bus; every call fails from then on."""


class Truth(NamedTuple):
    """What no real card tells."""

    at_ns: int
    mhz: float
    temp_c: float
    sink_c: float
    power_w: float
    energy_j: float
    reasons: int
    lock_mhz: int | None
    """The lock in force, whoever set it."""


class _Cache:
    """Who holds how much of the last-level cache; the least recently used makes room."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held: dict[str, float] = {}
        self._is_flushed = False

    def flush(self) -> None:
        """Nothing of anybody's is left."""
        self._held.clear()
        self._is_flushed = True

    def missing(self, kernel: SimKernel) -> float:
        """The share of its data that a call does not find, before it brings some of it back."""
        was_flushed, self._is_flushed = self._is_flushed, False
        if not kernel.footprint_bytes:
            return float(was_flushed)
        held = self._held.pop(kernel.name, 0.0)
        whole = min(kernel.footprint_bytes, self._size_bytes)
        self._held[kernel.name] = min(whole, held + whole / kernel.refill_calls)
        excess = sum(self._held.values()) - self._size_bytes
        for name in list(self._held):
            if excess <= 0:
                break
            gone = min(excess, self._held[name])
            self._held[name] -= gone
            excess -= gone
        return 1.0 - held / kernel.footprint_bytes


class _Pending:
    """What is queued on one stream and how much work it is."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.items: deque[Item] = deque()
        self.fixed_s = 0.0
        self.cycles = 0.0
        self.last: Item | None = None

    def push(self, item: Item) -> None:
        self.last = item
        self.items.append(item)
        self.stream.queue.append(item)
        self.fixed_s += item.fixed_s
        self.cycles += item.cycles

    def left_s(self, now_s: float, per_mhz: float, gain: float) -> float:
        """From now until all of it is done, if the clock stays and nothing waits for the host."""
        items = self.items
        while items and items[0].end_s >= 0.0:
            done = items.popleft()
            self.fixed_s -= done.fixed_s
            self.cycles -= done.cycles
        if not items:
            self.fixed_s = self.cycles = 0.0
            return 0.0
        head = items[0]
        done_part = 1.0 - head.left
        work_s = (self.fixed_s - done_part * head.fixed_s) + (
            self.cycles - done_part * head.cycles
        ) * per_mhz
        start_s = max(self.stream.cursor_s, head.ready_s)
        # The last stamp is ready only when the host has recorded it.
        return max(start_s + work_s * gain, items[-1].ready_s) - now_s


def _longest(queues: Sequence[_Pending]) -> int:
    return max(len(queue.items) for queue in queues)


class SimGpu:
    """One simulated card. Any thread may call it; the session's clock drives it."""

    def __init__(
        self,
        card: Card,
        scenario: Scenario,
        seed: int = 0,
        time_source: TimeSource | None = None,
    ) -> None:
        """Put the card into the scenario's initial state; its time starts now.

        Args:
            card: as fitted to the scenario.
            scenario: initial state, neighbours, faults, and what locking does.
            seed: of all noise.
            time_source: the session's clock; virtual time needs no sleeping.
        """
        self.card = card
        self.scenario = scenario
        self.seed = seed
        self.time = time_source or MonotonicTime()
        self.launches = 0
        """Kernels launched so far."""
        self.origin_ns = self.time.now_ns()
        self._machine = build_machine(card, scenario, seed)
        self._machine.streams.append(Stream())
        self._pending = [_Pending(stream) for stream in self._machine.streams]
        self._sensors = Sensors(card, seed)
        self._noise: dict[str, KernelNoise] = {}
        self._calls: dict[str, int] = {}
        self._cache = _Cache(card.l2_bytes)
        self._guard = threading.RLock()
        self._never = threading.Event()
        self._is_moving = _moves_by_itself(self.time)

    # -- the host's side: launching and waiting

    def launch(self, kernel: SimKernel) -> None:
        """Enqueue one call; costs host time and returns before the device has done it.

        Where the launch queue is full the host waits until half of it is free, as drivers do.

        Raises:
            ContextLost: the card is gone.
            RuntimeError: the kernel is one that fails, and it is time.
        """
        start_ns = self.time.now_ns()
        card = self.card
        host_ns = card.launch_ns if kernel.host_ns is None else kernel.host_ns
        queue = self._pending[SIDE if kernel.side_stream else MAIN]
        if len(queue.items) >= card.queue_depth:
            self._wait_for(sys.maxsize, card.queue_depth // 2, [queue])
            start_ns = self.time.now_ns()
        if kernel.name not in self._calls:
            host_ns += kernel.compile_ns
        self.put(kernel, start_ns + host_ns)
        self.spend(start_ns, host_ns)
        if kernel.synchronises:
            self._wait_for(0, 0, [queue])

    def put(self, kernel: SimKernel, at_ns: int) -> None:
        """What `launch` leaves on the device when the host is done at `at_ns`; no time passes.

        Raises:
            ContextLost: the card is gone.
            RuntimeError: the kernel is one that fails, and it is time.
        """
        card = self.card
        queue = self._pending[SIDE if kernel.side_stream else MAIN]
        with self._guard:
            self._check(at_ns)
            count = self._calls.get(kernel.name, 0)
            self._calls[kernel.name] = count + 1
            if kernel.raises_at is not None and count >= kernel.raises_at:
                raise RuntimeError(f"{kernel.name}: simulated failure at call {count}")
            if count == 0:
                self._noise[kernel.name] = KernelNoise(kernel, self.seed)
            factor, extra_s = self._noise[kernel.name].next()
            factor *= 1.0 + kernel.cold_gain * self._cache.missing(kernel)
            fixed_s, cycles = kernel.split(card)
            item = Item(
                self._ready_s(at_ns),
                fixed_s * factor + extra_s,
                cycles * factor,
                kernel.activity,
                (kernel.warm_gain, kernel.warm_tau_s) if kernel.warm_gain else None,
            )
            queue.push(item)
            self.launches += 1

    def record(self, stream: int = MAIN) -> Item:
        """Enqueue a time stamp; its `start_s` is the time, once the device has passed it."""
        start_ns = self.time.now_ns()
        item = self.stamp(stream, start_ns)
        self.spend(start_ns, self.card.record_ns)
        return item

    def stamp(self, stream: int, start_ns: int) -> Item:
        """What `record` leaves on the device; no time passes."""
        card = self.card
        with self._guard:
            self._check(start_ns)
            item = Item(self._ready_s(start_ns + card.record_ns), card.event_ns * 1e-9)
            self._pending[stream].push(item)
        return item

    def flush(self) -> None:
        """Enqueue a write of twice the cache: the next kernel finds nothing of its own in it."""
        start_ns = self.time.now_ns()
        self.put_flush(start_ns)
        self.spend(start_ns, self.card.launch_ns)

    def put_flush(self, start_ns: int) -> None:
        """What `flush` leaves on the device; no time passes."""
        self._work(self.flush_bytes / self.card.peak_bytes_per_s, _FLUSH_ACTIVITY, start_ns)
        with self._guard:
            self._cache.flush()

    @property
    def flush_bytes(self) -> int:
        """How much `flush` writes."""
        return _FLUSH_FACTOR * self.card.l2_bytes

    def spin(self, span_ns: int) -> None:
        """Enqueue a kernel that only holds the device."""
        start_ns = self.time.now_ns()
        self.put_spin(span_ns, start_ns)
        self.spend(start_ns, self.card.launch_ns)

    def put_spin(self, span_ns: int, start_ns: int) -> None:
        """What `spin` leaves on the device; no time passes."""
        self._work(span_ns * 1e-9, _SPIN_ACTIVITY, start_ns)

    def _work(self, span_s: float, activity: float, start_ns: int) -> None:
        with self._guard:
            self._check(start_ns)
            ready_s = self._ready_s(start_ns + self.card.launch_ns)
            self._pending[MAIN].push(Item(ready_s, span_s, 0.0, activity))

    def synchronize(self) -> None:
        """Wait until every stream is empty.

        Raises:
            ContextLost: the card is gone.
        """
        self._wait_for(0, 0, self._pending)

    def make_room(self, depth_ns: int) -> None:
        """Wait while more than `depth_ns` of work is queued, or more launches than fit.

        Raises:
            ContextLost: the card is gone.
        """
        queue_depth = self.card.queue_depth
        if self.queued_ns() > depth_ns or _longest(self._pending) >= queue_depth:
            # Down to half at once: waking up for every sample would cost more than it waits for.
            self._wait_for(depth_ns // 2, queue_depth // 2, self._pending)

    def depth(self) -> tuple[int, int]:
        """(work that is queued, ns; items on the fullest stream), now."""
        return self.queued_ns(), _longest(self._pending)

    def queued_ns(self) -> int:
        """About how much work is queued on the fullest stream."""
        return self._left_ns(self._pending)

    def _left_ns(self, queues: Sequence[_Pending]) -> int:
        with self._guard:
            now_s = self._advance(self.time.now_ns())
            machine = self._machine
            per_mhz = 1.0 / machine.board.mhz
            left_s = max(queue.left_s(now_s, per_mhz, machine.gain) for queue in queues)
        return max(0, round(left_s * 1e9))

    def _wait_for(self, most_ns: int, most_items: int, queues: Sequence[_Pending]) -> None:
        """Wait until none of the streams has more than that queued."""
        while True:
            with self._guard:
                left_ns = self._left_ns(queues)
                items = _longest(queues)
                if not items or (left_ns <= most_ns and items <= most_items):
                    return
                self._check(self.time.now_ns())
            share = 1.0 - most_items / items if items > most_items else 0.0
            wait_ns = max(left_ns - most_ns, round(left_ns * share))
            self._pause(max(wait_ns, _MIN_WAIT_NS))

    def finished_ns(self) -> int:
        """When the last work of all streams ended, on the session's clock; call when idle."""
        return self.on_clock_ns(max(p.last.end_s for p in self._pending if p.last is not None))

    def settle(self) -> None:
        """Bring the device up to now, so that stamps it has passed show their times."""
        with self._guard:
            self._advance(self.time.now_ns())

    def spend(self, since_ns: int, span_ns: int) -> None:
        """Let the host be busy until `span_ns` after `since_ns`."""
        left_ns = since_ns + span_ns - self.time.now_ns()
        if left_ns > 0:
            self._pause(left_ns)

    def _pause(self, span_ns: int) -> None:
        if not self._is_moving:
            self.time.wait(self._never, span_ns)
            return
        wait_on_host(self.time, span_ns)

    # -- the device's side

    def lost_at_ns(self) -> int | None:
        """When the card falls off the bus, on the session's clock; None if it never does."""
        lost_s = self.scenario.faults.gpu_lost_s
        return None if lost_s is None else self.origin_ns + round(lost_s * 1e9)

    @property
    def is_lost(self) -> bool:
        """True once the card has fallen off the bus."""
        lost_ns = self.lost_at_ns()
        return lost_ns is not None and self.time.now_ns() >= lost_ns

    def _check(self, now_ns: int) -> None:
        lost_ns = self.lost_at_ns()
        if lost_ns is not None and now_ns >= lost_ns:
            api = "HIP" if self.card.vendor == Vendor.AMD else "CUDA"
            raise ContextLost(
                f"{api} error: unspecified launch failure (simulated: the card fell off the bus)"
            )

    def _ready_s(self, host_ns: int) -> float:
        return (host_ns - self.origin_ns + self.card.latency_ns) * 1e-9

    def _advance(self, now_ns: int) -> float:
        lost_ns = self.lost_at_ns()
        if lost_ns is not None:
            now_ns = min(now_ns, lost_ns)
        now_s = (now_ns - self.origin_ns) * 1e-9
        self._machine.advance(now_s)
        return now_s

    def elapsed_s(self) -> float:
        """Since the scenario began."""
        return (self.time.now_ns() - self.origin_ns) * 1e-9

    def on_clock_ns(self, device_s: float) -> int:
        """A device time on the session's clock."""
        return self.origin_ns + round(device_s * 1e9)

    def sense(self) -> tuple[Sensed, float, list[int]]:
        """(what the sensors show, utilisation in percent, pids of others) now."""
        with self._guard:
            now_s = self._advance(self.time.now_ns())
            machine = self._machine
            rows: list[TickRow] = machine.rows or [machine.board.look()]
            sensed = self._sensors.sense(rows, machine.first_row, now_s)
            util_pct = self._sensors.utilisation(rows)
            pids = [n.pid for n in machine.neighbours_now() if n.pid is not None]
        return sensed, util_pct, pids

    # -- clock control

    def set_lock(self, mhz: int | None) -> None:
        """Fix the clock at a table entry, or let it go; the governor may still go below."""
        with self._guard:
            self._advance(self.time.now_ns())
            board = self._machine.board
            board.lock_index = None if mhz is None else nearest_index(self.card, mhz)
            board.lock_is_floor = (
                self.scenario.lock_policy == "honours" and self.card.vendor == Vendor.NVIDIA
            )

    # -- the truth

    def truth(self) -> Truth:
        """The true state at the last tick before now."""
        with self._guard:
            now_ns = self.time.now_ns()
            self._advance(now_ns)
            board = self._machine.board
            lock = board.lock_index
            return Truth(
                now_ns,
                board.mhz,
                board.temp_c,
                board.sink_c,
                board.power_w,
                board.energy_j,
                board.reasons,
                None if lock is None else int(board.table[lock]),
            )

    def true_alpha(self, name: str, mhz: float | None = None) -> float:
        """-d log t / d log f of a kernel of the scenario at a clock (default: the one now)."""
        return self.kernel(name).local_alpha(self.card, mhz or self.truth().mhz)

    def true_ratio(self, name: str, baseline: str, mhz: float | None = None) -> float:
        """Noise-free time of one kernel over another's at one clock (default: the one now)."""
        at_mhz = mhz or self.truth().mhz
        one, other = self.kernel(name), self.kernel(baseline)
        return one.seconds(self.card, at_mhz) / other.seconds(self.card, at_mhz)

    def kernel(self, name: str) -> SimKernel:
        """A kernel of the scenario by its name.

        Raises:
            KeyError: there is none.
        """
        for kernel in self.scenario.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)


def wait_on_host(time_source: TimeSource, span_ns: int) -> None:
    """Spend real time to the microsecond; less than nothing is none."""
    now = time_source.now_ns
    end_ns = now() + span_ns
    if span_ns > _SPIN_NS:
        time_source.wait(threading.Event(), span_ns - _SPIN_NS // 2)
    while now() < end_ns:
        pass


def _moves_by_itself(time_source: TimeSource) -> bool:
    """True for a clock that goes on while nobody waits, so that short waits may be spun."""
    first_ns = time_source.now_ns()
    return any(time_source.now_ns() != first_ns for _ in range(2000))


class Launcher(Protocol):
    """What a kernel can be launched on: a card here, or one that another process keeps."""

    def launch(self, kernel: SimKernel) -> None:
        """Enqueue one call."""
        ...


_active: Launcher | None = None
"""The GPU that unbound calls go to: one per process, as a device is."""


def activate(gpu: Launcher | None) -> None:
    """Make a GPU the one that calls of `kernel` go to."""
    global _active  # noqa: PLW0603  benchmark files cannot be handed a GPU
    _active = gpu


class SimCall:
    """A timed callable: each call launches its kernel on a simulated GPU."""

    __slots__ = ("_gpu", "kernel")

    def __init__(self, kernel: SimKernel, gpu: Launcher | None = None) -> None:
        self.kernel = kernel
        self._gpu = gpu

    def __call__(self) -> None:
        """Launch once.

        Raises:
            UsageError: it was made by a file and there is no simulated device.
        """
        gpu = self._gpu or _active
        if gpu is None:
            raise UsageError(
                f"{self.kernel.name} is a simulated kernel and needs a simulated GPU",
                "run it with --device sim:h100",
            )
        gpu.launch(self.kernel)


def kernel(
    name: str,
    *,
    us: float,
    alpha: float = 0.95,
    activity: float = 1.0,
    noise: float = 0.002,
    footprint_mb: float = 0.0,
    cold_gain: float = 0.0,
) -> SimCall:
    """A callable for a benchmark file that is to run on a simulated GPU.

    Args:
        name: of the kernel; equal names share their noise.
        us: microseconds of one call at the card's base clock.
        alpha: share of that time which goes with the clock (1 compute bound, 0 memory bound).
        activity: share of the card's maximum dynamic power that it draws.
        noise: standard deviation of log time from call to call.
        footprint_mb: MiB that it touches: what neighbours evict of it, and it of them.
        cold_gain: a call that finds nothing of it takes 1 + gain times as long.
    """
    return SimCall(
        SimKernel(
            name=name,
            t0_ns=us * 1e3,
            alpha=alpha,
            activity=activity,
            noise=noise,
            footprint_bytes=round(footprint_mb * (1 << 20)),
            cold_gain=cold_gain,
        )
    )

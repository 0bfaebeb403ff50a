"""A `torch` whose `cuda` is a device in virtual time, after the documented semantics.

Streams are queues that the host runs ahead of; events are marks in them; the current stream and
device are per thread; `elapsed_time` is a float32 in milliseconds and an error before completion;
a sync-debug mode warns or raises at what it covers; a capturing stream records and does not run.
Every call costs host time, so starvation, run-ahead and blocking arise by themselves. Nothing
sleeps: the clock is a `ManualTime` that the calls move.
"""

import threading
import warnings
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from usv_tui.timesource import ManualTime

NOT_DONE = "Both events must be completed before calculating elapsed time."
CAPTURING = "CUDA error: operation not permitted when stream is capturing"
BROKEN_CAPTURE = "CUDA error: operation failed due to a previous error during capture"
PROTOTYPE_WARNING = (
    "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing "
    "operations"
)
SYNC_WARNING = "called a synchronizing CUDA operation"


@dataclass
class Costs:
    """Host time of the calls and the device's own delays, nanoseconds."""

    create_ns: int = 1100
    record_ns: int = 1200
    query_ns: int = 500
    elapsed_ns: int = 900
    launch_ns: int = 4000
    stream_ns: int = 300
    """Looking up the current stream."""
    latency_ns: int = 2500
    """From the end of a launch until an idle device begins it."""
    event_ns: int = 1300
    """Device time that an event takes: the floor of an empty pair."""
    wake_ns: int = 6000
    """From the end of the work until a host that waits for it goes on."""
    sync_ns: int = 0
    """A device-wide synchronise that has nothing to wait for."""


@dataclass
class Node:
    """One thing that a captured graph does."""

    ns: int
    effect: Callable[[], object] | None


class FakeStream:
    """A queue: whatever is put into it begins when all before it has ended."""

    def __init__(self, torch: "FakeTorch", device: int = 0) -> None:
        self._torch = torch
        self.device_index = device
        self.device = SimpleNamespace(type="cuda", index=device)
        self.cuda_stream = torch.next_id()
        self.stream_id = self.cuda_stream
        self.free_ns = 0
        """Virtual time at which everything queued so far is done."""
        self.capture: FakeGraph | None = None
        self.pending: deque[int] = deque()

    def wait_event(self, event: "FakeEvent") -> None:
        """Let later work wait for the event."""
        event.wait(self)

    def wait_stream(self, other: "FakeStream") -> None:
        """Let later work wait for all that is queued in another stream."""
        self._torch.spend("wait_stream", self._torch.costs.record_ns)
        self.free_ns = max(self.free_ns, other.free_ns)

    def record_event(self, event: "FakeEvent | None" = None) -> "FakeEvent":
        """Record an event here."""
        event = event or self._torch.cuda.Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """True when all queued work is done."""
        self._torch.spend("query", self._torch.costs.query_ns)
        return self.free_ns <= self._torch.now_ns()

    def synchronize(self) -> None:
        """Wait for all queued work; the sync-debug mode covers this one."""
        self._torch.on_sync(warns=True)
        self._torch.wait_until(self.free_ns)


class FakeEvent:
    """A mark in a stream."""

    def __init__(
        self, torch: "FakeTorch", *, enable_timing: bool, blocking: bool, interprocess: bool
    ) -> None:
        torch.spend("create", torch.costs.create_ns)
        torch.events_alive += 1
        weakref.finalize(self, torch.forget_event)
        self._torch = torch
        self._timing = enable_timing
        self.blocking = blocking
        self.interprocess = interprocess
        self.at_ns: int | None = None
        self._device: int | None = None
        self._captured = False

    def record(self, stream: FakeStream | None = None) -> None:
        """Put the mark behind all that is queued."""
        torch = self._torch
        if stream is None:
            stream = torch.cuda.current_stream()
        if self._device is None:
            self._device = stream.device_index
        elif self._device != stream.device_index:
            raise RuntimeError(
                f"Event device {self._device} does not match recording stream's device "
                f"{stream.device_index}."
            )
        torch.spend("record", torch.costs.record_ns)
        if stream.capture is not None:
            stream.capture.nodes.append(Node(0, None))
            self._captured = True
            return
        self._captured = False
        self.at_ns = torch.enqueue(stream, torch.costs.event_ns)

    def query(self) -> bool:
        """True when the mark has been reached, or was never recorded."""
        self._torch.spend("query", self._torch.costs.query_ns)
        self._torch.raise_if_lost()
        return self.at_ns is None or self.at_ns <= self._torch.now_ns()

    def wait(self, stream: FakeStream | None = None) -> None:
        """Let later work of a stream wait for the mark."""
        stream = stream or self._torch.cuda.current_stream()
        self._torch.spend("wait_event", self._torch.costs.record_ns)
        if self.at_ns is not None:
            stream.free_ns = max(stream.free_ns, self.at_ns)

    def synchronize(self) -> None:
        """Wait for the mark."""
        self._torch.on_sync(warns=False)
        self._torch.wait_until(self.at_ns or 0)

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Milliseconds between two reached marks, as a float32."""
        torch = self._torch
        torch.spend("elapsed", torch.costs.elapsed_ns)
        torch.raise_if_lost()
        if not self._timing or not end._timing:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.at_ns is None or end.at_ns is None or self._captured or end._captured:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if max(self.at_ns, end.at_ns) > torch.now_ns():
            raise RuntimeError(NOT_DONE)
        ns = torch.stamp(end.at_ns) - torch.stamp(self.at_ns)
        return torch.read_event(float(np.float32(ns * 1e-6)))


class FakeGraph:
    """A captured sequence that one launch replays."""

    def __init__(self, torch: "FakeTorch") -> None:
        self._torch = torch
        self.nodes: list[Node] = []
        self.is_broken = False
        self._stream: FakeStream | None = None

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """From now on the current stream records and does not run."""
        stream = self._torch.cuda.current_stream()
        if stream is self._torch.default_stream(stream.device_index):
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                "it's ok to replay them on the default stream.)"
            )
        stream.capture = self
        self._stream = stream

    def capture_end(self) -> None:
        """Finish; an error when something in between was not allowed."""
        assert self._stream is not None
        self._stream.capture = None
        if self.is_broken:
            raise RuntimeError(BROKEN_CAPTURE)

    def replay(self) -> None:
        """Run the whole sequence with one launch."""
        torch = self._torch
        torch.spend("launch", torch.costs.launch_ns)
        stream = torch.cuda.current_stream()
        for node in self.nodes:
            torch.enqueue(stream, node.ns, node.effect)

    def reset(self) -> None:
        """Forget what was captured."""
        self.nodes.clear()


class FakeTensor:
    """Numbers on the device; what is done with them is queued."""

    def __init__(self, torch: "FakeTorch", data: np.ndarray, *, on_device: bool = True) -> None:
        self._torch = torch
        self.data = data
        self.is_cuda = on_device
        self.device = SimpleNamespace(type="cuda" if on_device else "cpu", index=0)
        self.shape = data.shape
        self.dtype = data.dtype
        if on_device and data.base is None:
            torch.allocate(data.nbytes)
            weakref.finalize(self, torch.free, data.nbytes)

    def is_floating_point(self) -> bool:
        """True for numbers with a fraction."""
        return self.data.dtype.kind == "f"

    def __getitem__(self, at: int) -> "FakeTensor":
        return FakeTensor(self._torch, self.data[at])

    def cpu(self) -> "FakeTensor":
        """A copy on the host, which waits for the current stream."""
        self._torch.on_sync(warns=True)
        self._torch.wait_until(self._torch.cuda.current_stream().free_ns)
        return FakeTensor(self._torch, self.data.copy(), on_device=False)

    def tolist(self) -> Any:
        """Plain numbers."""
        return self.data.tolist()

    def numel(self) -> int:
        """Elements."""
        return int(self.data.size)

    def element_size(self) -> int:
        """Bytes of one."""
        return int(self.data.itemsize)

    def data_ptr(self) -> int:
        """An address that no other living tensor has."""
        return id(self.data)

    def untyped_storage(self) -> Any:
        """The memory behind it."""
        return SimpleNamespace(nbytes=lambda: int(self.data.nbytes), data_ptr=self.data_ptr)

    def _write(self, value: float) -> "FakeTensor":
        def effect() -> None:
            self.data.fill(value)

        self._torch.kernel(0, touches=[self], effect=effect)
        return self

    def zero_(self) -> "FakeTensor":
        """Write zeros."""
        return self._write(0)

    def fill_(self, value: float) -> "FakeTensor":
        """Write a value."""
        return self._write(value)

    def clone(self) -> "FakeTensor":
        """A copy, queued like any other work."""
        copy = FakeTensor(self._torch, np.zeros_like(self.data))

        def effect() -> None:
            copy.data[...] = self.data

        self._torch.kernel(1000, effect=effect)
        return copy

    def detach(self) -> "FakeTensor":
        """Itself: there is no autograd here."""
        return self

    def item(self) -> float:
        """The only element; the host waits for it."""
        self._torch.on_sync(warns=True)
        self._torch.wait_until(self._torch.cuda.current_stream().free_ns)
        return float(self.data.reshape(-1)[0])


class FakeTorch:
    """What the engine uses of torch, and the hands to play the device with."""

    __version__ = "2.6.0+fake"
    Tensor = FakeTensor
    uint8 = np.uint8
    float32 = np.float32
    int64 = np.int64

    class OutOfMemoryError(RuntimeError):
        """The device has no memory left."""

    def __init__(
        self,
        time: ManualTime | None = None,
        *,
        costs: Costs | None = None,
        tick_ns: int = 32,
        drift_ppm: float = 0.0,
        sm_mhz: Callable[[int], float] | float = 1500.0,
        l2_bytes: int = 50 << 20,
        memory_bytes: int = 80 << 30,
        bytes_per_ns: float = 3000.0,
        launch_queue: int = 1024,
        devices: int = 1,
        hip: str | None = None,
        arch: str = "",
        has_sleep: bool = True,
        keeps_history: bool = True,
        disturb: Callable[[], int] | None = None,
    ) -> None:
        self.disturb = disturb or (lambda: 0)
        """Host time that a busy machine takes away at a call."""
        self.read_event: Callable[[float], float] = lambda ms: ms
        """What an interval of events reads, in ms."""
        self.time = time or ManualTime(10**9)
        self.costs = costs or Costs()
        self.calls: Counter[str] = Counter()
        """How often each kind of call was made."""
        self.launched: list[tuple[int, int]] = []
        """Begin and end of everything that ran and took time, in the order of queueing."""
        self.events_alive = 0
        self.allocated_bytes = 0
        self.anomaly = False
        self.profiling = False
        self.grad = True
        self.version = SimpleNamespace(cuda=None if hip else "12.8", hip=hip)
        self.autograd = SimpleNamespace(_profiler_enabled=lambda: self.profiling)
        self._tick_ns = tick_ns
        self._drift = drift_ppm * 1e-6
        self._sm_mhz = sm_mhz if callable(sm_mhz) else lambda _ns: float(sm_mhz)
        self._bytes_per_ns = bytes_per_ns
        self._memory_bytes = memory_bytes
        self._launch_queue = launch_queue
        self._l2: OrderedDict[int, int] = OrderedDict()
        self._l2_bytes = l2_bytes
        self._ids = 1
        self._lost: str | None = None
        self._keeps_history = keeps_history
        self._defaults = [FakeStream(self, i) for i in range(devices)]
        self._streams: list[FakeStream] = list(self._defaults)
        props = SimpleNamespace(
            name="Fake GPU",
            L2_cache_size=l2_bytes,
            multi_processor_count=132,
            clock_rate=1_980_000,
            memory_clock_rate=2_619_000,
            memory_bus_width=5120,
            major=9,
            minor=0,
            gcnArchName=arch,
            total_memory=memory_bytes,
        )
        self.cuda = FakeCuda(self, props, has_sleep=has_sleep)

    # -- the clock

    def now_ns(self) -> int:
        """Virtual host time."""
        return self.time.now_ns()

    def spend(self, kind: str, ns: int) -> None:
        """A call of this kind takes host time."""
        self.calls[kind] += 1
        self.time.advance(ns + self.disturb())

    def host_work(self, ns: int) -> None:
        """Python that the callable runs between launches."""
        self.time.advance(ns)

    def wait_until(self, at_ns: int) -> None:
        """The host stands still until the device has got there."""
        now_ns = self.now_ns()
        if at_ns > now_ns:
            self.time.advance(at_ns - now_ns + self.costs.wake_ns + self.disturb())
        self.raise_if_lost()

    def stamp(self, at_ns: int) -> int:
        """The device's own clock at a virtual time: another rate, coarser."""
        return int(at_ns * (1 + self._drift) / self._tick_ns) * self._tick_ns

    # -- the device

    def next_id(self) -> int:
        """A handle that is not used twice."""
        self._ids += 1
        return self._ids

    def default_stream(self, device: int) -> FakeStream:
        """The stream that a thread begins with."""
        return self._defaults[device]

    def new_stream(self, device: int) -> FakeStream:
        """Another queue of a device."""
        stream = FakeStream(self, device)
        self._streams.append(stream)
        return stream

    def streams(self) -> Sequence[FakeStream]:
        """All queues."""
        return self._streams

    def enqueue(
        self, stream: FakeStream, ns: int, effect: Callable[[], object] | None = None
    ) -> int:
        """Put work into a stream; returns the time at which it will be done."""
        pending = stream.pending
        now_ns = self.now_ns()
        while pending and pending[0] <= now_ns:
            pending.popleft()
        if len(pending) >= self._launch_queue:
            # A full launch queue holds the host until an entry is free.
            self.time.advance(pending.popleft() - now_ns)
        begin_ns = max(stream.free_ns, self.now_ns() + self.costs.latency_ns)
        stream.free_ns = begin_ns + ns
        pending.append(stream.free_ns)
        if self._keeps_history:
            self.launched.append((begin_ns, stream.free_ns))
        if effect is not None:
            effect()
        return stream.free_ns

    def kernel(
        self,
        ns: int,
        *,
        stream: FakeStream | None = None,
        touches: Sequence[FakeTensor] = (),
        effect: Callable[[], object] | None = None,
        is_capturable: bool = True,
    ) -> None:
        """Launch a kernel of this length plus the time to fetch what is not in the L2 cache."""
        self.spend("launch", self.costs.launch_ns)
        self.raise_if_lost()
        stream = stream or self.cuda.current_stream()
        if stream.capture is not None:
            if is_capturable:
                stream.capture.nodes.append(Node(ns, effect))
            return
        missed = sum(self._fetch(tensor) for tensor in touches)
        self.enqueue(stream, ns + round(missed / self._bytes_per_ns), effect)

    def _fetch(self, tensor: FakeTensor) -> int:
        """Bytes of a tensor that the L2 does not hold; least recently used tensors make room."""
        key, size = tensor.data_ptr(), int(tensor.data.nbytes)
        held = self._l2.pop(key, 0)
        self._l2[key] = min(size, self._l2_bytes)
        while sum(self._l2.values()) > self._l2_bytes:
            self._l2.popitem(last=False)
        return size - held

    def on_sync(self, *, warns: bool) -> None:
        """A call that waits for the device."""
        self.calls["sync"] += 1
        capture = self.cuda.current_stream().capture
        if capture is not None:
            capture.is_broken = True
            raise RuntimeError(CAPTURING)
        if warns and self.cuda.sync_debug == 1:
            warnings.warn(SYNC_WARNING, UserWarning, stacklevel=3)
        if warns and self.cuda.sync_debug == 2:
            raise RuntimeError(SYNC_WARNING)

    def lose(self, message: str) -> None:
        """A sticky error: from now on every call that looks at the device raises it."""
        self._lost = message

    def raise_if_lost(self) -> None:
        """Raise the sticky error, if there is one."""
        if self._lost is not None:
            raise RuntimeError(self._lost)

    def idle_gaps(self) -> list[tuple[int, int]]:
        """Stretches between the first and the last work in which the device had nothing to do."""
        gaps: list[tuple[int, int]] = []
        end_ns = None
        for begin, end in sorted(self.launched):
            if end_ns is not None and begin > end_ns:
                gaps.append((end_ns, begin))
            end_ns = end if end_ns is None else max(end_ns, end)
        return gaps

    def sm_mhz(self, at_ns: int) -> float:
        """The true clock."""
        return self._sm_mhz(at_ns)

    # -- memory

    def allocate(self, n: int) -> None:
        """Take memory.

        Raises:
            OutOfMemoryError: there is not so much left.
        """
        if self.allocated_bytes + n > self._memory_bytes:
            raise self.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {n} bytes.")
        self.allocated_bytes += n

    def free(self, n: int) -> None:
        """Give memory back."""
        self.allocated_bytes -= n

    def forget_event(self) -> None:
        """An event object is gone."""
        self.events_alive -= 1

    # -- torch's names

    def empty(self, n: Any, dtype: Any = np.float32, device: str = "cuda") -> FakeTensor:
        """Uninitialised memory: here, zeros that only look allocated."""
        size = np.dtype(dtype).itemsize * int(np.prod(n))
        if device.startswith("cuda") and self.allocated_bytes + size > self._memory_bytes:
            raise self.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        return FakeTensor(self, np.zeros(n, dtype=dtype), on_device=device.startswith("cuda"))

    zeros = empty

    def is_tensor(self, value: object) -> bool:
        """True for a tensor."""
        return isinstance(value, FakeTensor)

    def allclose(
        self, a: FakeTensor, b: FakeTensor, rtol: float = 1e-5, equal_nan: bool = False, **_: Any
    ) -> bool:
        """Compare two tensors; the host waits for both."""
        self.wait_until(self.cuda.current_stream().free_ns)
        return bool(np.allclose(a.data, b.data, rtol=rtol, equal_nan=equal_nan))

    def manual_seed(self, seed: int) -> None:
        """Nothing here draws numbers."""

    def is_anomaly_enabled(self) -> bool:
        """Autograd's anomaly detection."""
        return self.anomaly

    def equal(self, a: FakeTensor, b: FakeTensor) -> bool:
        """Compare two tensors exactly; the host waits for both."""
        self.wait_until(self.cuda.current_stream().free_ns)
        return bool(np.array_equal(a.data, b.data))

    def is_grad_enabled(self) -> bool:
        """Autograd's grad mode."""
        return self.grad

    def set_grad_enabled(self, mode: bool) -> None:
        """Switch autograd's grad mode."""
        self.grad = mode


class FakeCuda:
    """The `torch.cuda` module."""

    def __init__(self, torch: FakeTorch, props: Any, *, has_sleep: bool) -> None:
        self._torch = torch
        self._props = props
        self._local = threading.local()
        self.sync_debug = 0
        self.OutOfMemoryError = torch.OutOfMemoryError
        if has_sleep:
            self._sleep = self.__sleep

    def is_available(self) -> bool:
        """There is always one here."""
        return True

    def device_count(self) -> int:
        """Devices."""
        return len(self._torch._defaults)

    def current_device(self) -> int:
        """This thread's device."""
        return self._index()

    def _index(self) -> int:
        return getattr(self._local, "device", 0)

    def set_device(self, device: Any) -> None:
        """Choose this thread's device."""
        index = device if isinstance(device, int) else int(str(device).rpartition(":")[2])
        self._local.device = index

    def get_device_properties(self, device: object = None) -> Any:
        """What the card is."""
        return self._props

    def Event(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> FakeEvent:
        """A new event."""
        return FakeEvent(
            self._torch,
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )

    def Stream(self, device: Any = None) -> FakeStream:
        """A new stream that waits for no other."""
        return self._torch.new_stream(self._index() if device is None else int(device))

    def CUDAGraph(self) -> FakeGraph:
        """A new graph."""
        return FakeGraph(self._torch)

    def current_stream(self, device: object = None) -> FakeStream:
        """This thread's stream."""
        self._torch.spend("current_stream", self._torch.costs.stream_ns)
        stream = getattr(self._local, "stream", None)
        return stream or self._torch.default_stream(self._index())

    def set_stream(self, stream: FakeStream) -> None:
        """Choose this thread's stream."""
        self._local.stream = stream

    @contextmanager
    def stream(self, stream: FakeStream | None) -> Iterator[None]:
        """Work on another stream for a while."""
        before = getattr(self._local, "stream", None)
        if stream is not None:
            self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def synchronize(self, device: object = None) -> None:
        """Wait for all streams; the sync-debug mode does not cover this one."""
        self._torch.on_sync(warns=False)
        self._torch.spend("synchronize", self._torch.costs.sync_ns)
        self._torch.wait_until(max(s.free_ns for s in self._torch.streams()))

    def is_current_stream_capturing(self) -> bool:
        """True between a capture's begin and end."""
        return self.current_stream().capture is not None

    def set_sync_debug_mode(self, mode: int | str) -> None:
        """default, warn or error."""
        warnings.warn(PROTOTYPE_WARNING, UserWarning, stacklevel=2)
        self.sync_debug = {"default": 0, "warn": 1, "error": 2}.get(str(mode), 0)
        if isinstance(mode, int):
            self.sync_debug = mode

    def get_sync_debug_mode(self) -> int:
        """0, 1 or 2."""
        return self.sync_debug

    def memory_allocated(self, device: object = None) -> int:
        """Bytes in tensors."""
        return self._torch.allocated_bytes

    def memory_stats(self, device: object = None) -> dict[str, int]:
        """The allocator's counters."""
        return {"segment.all.current": 1, "allocated_bytes.all.current": self.memory_allocated()}

    def __sleep(self, cycles: int) -> None:
        torch = self._torch
        torch.spend("launch", torch.costs.launch_ns)
        torch.raise_if_lost()
        stream = self.current_stream()
        begin_ns = max(stream.free_ns, torch.now_ns())
        torch.enqueue(stream, round(cycles * 1e3 / torch.sm_mhz(begin_ns)) + 900)

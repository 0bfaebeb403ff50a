"""A torch whose accelerator is none of its own kinds: asynchronous for real, and with a true log.

Each stream is a worker thread that takes what is queued in order, in real time: `query` is true
only when its worker has got there. What the device did and when is kept in `log`, on a timeline of
its own (a task begins when the one before it has ended and it was asked for), so that a worker that
the machine wakes late changes what the host sees and not what the device did.

The events are as unhelpful as a backend's may be: whoever waits for one waits for its newest record
(also for one that was made after the wait was queued), and a pending older record answers for a
newer one.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np

LATENCY_NS = 4_000
"""From the call until an idle device begins."""
EVENT_NS = 800
"""What an event costs the device."""
BYTES_PER_NS = 100.0
NO_QUERY = "Backend doesn't support querying streams."
NOT_DONE = "Both events must be completed before calculating elapsed time."


class Task(NamedTuple):
    """What the device did."""

    name: str
    stream: int
    begin_ns: int
    end_ns: int

    @property
    def took_ns(self) -> int:
        """How long it really took."""
        return self.end_ns - self.begin_ns


class Event:
    """A mark in a stream; its time is the device's."""

    def __init__(self, torch: "FakeTorch", *, enable_timing: bool) -> None:
        self._torch = torch
        self._is_timing = enable_timing
        self.recorded = 0
        """How often it was put into a stream."""
        self.reached = 0
        """The newest record that the device has passed."""
        self.stamp_ns = 0

    def record(self, stream: "Stream | None" = None) -> None:
        """Put the mark behind all that is queued."""
        self.recorded += 1
        record = self.recorded
        (stream or self._torch.accelerator.current_stream()).put(
            "event", EVENT_NS, lambda at_ns: self._reach(record, at_ns)
        )

    def _reach(self, record: int, at_ns: int) -> None:
        # A pending older record answers, too: that is how such a backend counts.
        self.reached, self.stamp_ns = record, at_ns

    def query(self) -> bool:
        """True when it was reached, or was never recorded."""
        with self._torch.changed:
            return self.reached == self.recorded

    def wait(self, stream: "Stream | None" = None) -> None:
        """Let later work of a stream wait for the newest record."""
        (stream or self._torch.accelerator.current_stream()).put_wait(self)

    def synchronize(self) -> None:
        """Wait for it."""
        self._torch.until(lambda: self.reached == self.recorded)

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds between two marks, as a float32."""
        with self._torch.changed:
            if not (self._is_timing and end._is_timing):
                raise RuntimeError("Both events must be created with enable_timing=True.")
            if self.reached != self.recorded or end.reached != end.recorded:
                raise RuntimeError(NOT_DONE)
            return float(np.float32((end.stamp_ns - self.stamp_ns) * 1e-6))


class Stream:
    """A queue with a worker."""

    def __init__(self, torch: "FakeTorch", number: int) -> None:
        self._torch = torch
        self.stream_id = number
        self.device_index = 0
        self.device = SimpleNamespace(type=torch.kind, index=0)
        self._queue: deque[tuple[str, int, int, Any, Any]] = deque()
        self._free_ns = 0
        self._before: Stream | None = None
        self.pending = 0
        """What is queued and not done."""
        threading.Thread(target=self._work, daemon=True, name=f"fake-stream-{number}").start()

    def put(self, name: str, ns: int, done: Callable[[int], object] | None = None) -> None:
        """Queue work of a length."""
        self._append((name, ns, time.perf_counter_ns() + LATENCY_NS, done, None))

    def put_wait(self, event: Event) -> None:
        """Queue a wait for an event."""
        self._append(("wait", 0, time.perf_counter_ns(), None, event))

    def _append(self, item: tuple[str, int, int, Any, Any]) -> None:
        with self._torch.changed:
            self._torch.is_used = True
            self._queue.append(item)
            self.pending += 1
            self._torch.most_pending = max(self._torch.most_pending, self.pending)
            self._torch.changed.notify_all()

    def _is_reached(self, event: Any) -> Callable[[], bool]:
        return lambda: event.reached == event.recorded or self._torch.is_over

    def _work(self) -> None:
        changed = self._torch.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._queue or self._torch.is_over)
                if self._torch.is_over:
                    return
                name, ns, asked_ns, done, event = self._queue.popleft()
                if event is not None:
                    changed.wait_for(self._is_reached(event))
                    self._free_ns = max(self._free_ns, event.stamp_ns)
            begin_ns = max(self._free_ns, asked_ns)
            self._free_ns = end_ns = begin_ns + ns
            left_ns = end_ns - time.perf_counter_ns()
            if left_ns > 0:
                time.sleep(left_ns / 1e9)
            with changed:
                if name not in ("event", "wait"):
                    self._torch.log.append(Task(name, self.stream_id, begin_ns, end_ns))
                if done is not None:
                    done(end_ns)
                self.pending -= 1
                changed.notify_all()

    def query(self) -> bool:
        """True when all is done."""
        if not self._torch.has_stream_query:
            raise RuntimeError(NO_QUERY)
        with self._torch.changed:
            return not self.pending

    def synchronize(self) -> None:
        """Wait for all that is queued here."""
        self._torch.until(lambda: not self.pending)

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event."""
        self.put_wait(event)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event here."""
        event = event or self._torch.Event()
        event.record(self)
        return event

    def wait_stream(self, other: "Stream") -> None:
        """Let later work wait for all that is queued in another stream."""
        self.wait_event(other.record_event())

    def is_capturing(self) -> bool:
        """There are no graphs here."""
        return False

    def __enter__(self) -> Self:
        self._before = self._torch.accelerator.current_stream()
        self._torch.accelerator.set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._before is not None
        self._torch.accelerator.set_stream(self._before)


class Tensor:
    """Bytes on the device; only how many there are matters."""

    def __init__(self, torch: "FakeTorch", nbytes: int, kind: str) -> None:
        self._torch = torch
        self.nbytes = nbytes
        self.device = SimpleNamespace(type=kind, index=0)

    def data_ptr(self) -> int:
        """An address."""
        return id(self)

    def untyped_storage(self) -> Any:
        """The memory behind it."""
        return SimpleNamespace(nbytes=lambda: self.nbytes, data_ptr=self.data_ptr)

    def add_(self, _: float) -> "Tensor":
        """Add a number: as long as its bytes take."""
        self._torch.task("add", round(2 * self.nbytes / BYTES_PER_NS))
        return self

    def zero_(self) -> "Tensor":
        """Write zeros."""
        self._torch.task("zero", round(self.nbytes / BYTES_PER_NS))
        return self

    def item(self) -> float:
        """A number on the host, which waits for it."""
        self._torch.accelerator.current_stream().synchronize()
        return 0.0


class Accelerator:
    """The module `torch.accelerator`."""

    def __init__(self, torch: "FakeTorch") -> None:
        self._torch = torch
        self._local = threading.local()

    def is_available(self) -> bool:
        """There is always one here."""
        return True

    def current_accelerator(self, check_available: bool = False) -> Any:
        """Its kind."""
        return SimpleNamespace(type=self._torch.kind, index=None)

    def device_count(self) -> int:
        """One device."""
        return 1

    def current_device_index(self) -> int:
        """This thread's device."""
        return 0

    def set_device_index(self, device: int) -> None:
        """Choose a device."""
        if device != 0:
            raise RuntimeError(f"no device {device}")

    def current_stream(self, device: object = None) -> Stream:
        """This thread's stream."""
        return getattr(self._local, "stream", None) or self._torch.default

    def set_stream(self, stream: Stream) -> None:
        """Choose this thread's stream."""
        self._local.stream = stream

    def synchronize(self, device: object = None) -> None:
        """Wait for all streams."""
        self._torch.calls["synchronize"] += 1
        self._torch.until(lambda: not any(s.pending for s in self._torch.streams))

    def memory_allocated(self, device: object = None) -> int:
        """Bytes in tensors."""
        return self._torch.allocated_bytes


class FakeTorch:
    """What is used of torch, and the hands to play the device with."""

    __version__ = "2.13.0+fake"
    uint8 = np.uint8
    float32 = np.float32
    int64 = np.int64

    def __init__(
        self,
        kind: str = "fakeacc",
        *,
        has_stream_query: bool = True,
        has_adds: bool = True,
        tells_use: bool = True,
    ) -> None:
        self.is_used = False
        """Something was asked of the device."""
        self.most_pending = 0
        """The longest that a queue has been."""
        self.kind = kind
        self.has_stream_query = has_stream_query
        self.has_adds = has_adds
        self.is_over = False
        self.changed = threading.Condition()
        self.log: list[Task] = []
        """What the device did, in the order in which it was done."""
        self.calls: Counter[str] = Counter()
        self.allocated_bytes = 0
        self.streams: list[Stream] = []
        self.default = self.Stream()
        self.accelerator = Accelerator(self)
        self.version = SimpleNamespace(cuda=None, hip=None)
        self.autograd = SimpleNamespace(_profiler_enabled=lambda: False)
        self.cuda = SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
        module = SimpleNamespace(get_device_name=lambda _=None: "Fake accelerator")
        if tells_use:
            module.is_initialized = lambda: self.is_used
        setattr(self, kind, module)

    def close(self) -> None:
        """End the workers."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def until(self, is_so: Callable[[], bool]) -> None:
        """The host stands still until something is so."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_over or is_so())

    def task(self, name: str, ns: int, stream: Stream | None = None) -> None:
        """Launch work of this length."""
        (stream or self.accelerator.current_stream()).put(name, ns)

    def took_ns(self, name: str) -> list[int]:
        """How long the tasks of a name really took."""
        with self.changed:
            return [task.took_ns for task in self.log if task.name == name]

    # -- torch's names

    def Event(self, device: object = None, *, enable_timing: bool = False, **_: Any) -> Event:
        """A new event."""
        return Event(self, enable_timing=enable_timing)

    def Stream(self, device: object = None) -> Stream:
        """A new stream."""
        stream = Stream(self, len(self.streams))
        self.streams.append(stream)
        return stream

    def empty(self, n: Any, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
        """Memory on the device."""
        kind = str(device).partition(":")[0]
        if kind == self.kind and not self.has_adds:
            raise NotImplementedError("Could not run 'aten::empty' on this backend")
        nbytes = int(np.dtype(dtype).itemsize * np.prod(n))
        self.allocated_bytes += nbytes if kind == self.kind else 0
        return Tensor(self, nbytes, kind)

    zeros = empty

    def is_tensor(self, value: object) -> bool:
        """True for a tensor."""
        return isinstance(value, Tensor)

    def is_grad_enabled(self) -> bool:
        """Autograd's grad mode."""
        return True

    def is_anomaly_enabled(self) -> bool:
        """Autograd's anomaly detection."""
        return False

    def get_num_threads(self) -> int:
        """Threads of the CPU."""
        return 1

    def manual_seed(self, seed: int) -> None:
        """Nothing here draws numbers."""


@contextmanager
def accelerator(**options: Any) -> Iterator[FakeTorch]:
    """A torch with such a device, whose workers end with it."""
    torch = FakeTorch(**options)
    try:
        yield torch
    finally:
        torch.close()

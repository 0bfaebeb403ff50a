"""Host cost per sample of our event timer against usv's, on the same fake `torch.cuda`, in one run.

No GPU is needed, so the driver's part is counted and not felt: each kind of call is given the time
that it takes on a card (`tests/fakes/fake_cuda.py`, assumed), and our Python is timed on a device
whose calls do nothing. `driver` is the former, `python` the latter, both ns a sample; usv makes two
events a sample and looks up the stream twice, we ask the stream whether the device was too early.

Memory: what the timer keeps after so many samples, and the bytes of their records in a journal.

    PYTHONPATH=. python benchmarks/self/event_cost.py
"""

import statistics
import sys
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

from usv.timer import _TorchTimer

from tests.fakes.fake_cuda import FakeTorch
from usv_tui.records import encode
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot

SAMPLES = 20_000
BLOCK = 20
ROWS = 4
TURNS = 7
KERNEL_NS = 40_000
MEMORY_SAMPLES = 200_000
RECORD_BYTES = 40


class _Event:
    """An event that has always been reached."""

    def record(self, stream: Any = None) -> None:
        if stream is None:
            _NOTHING.cuda.current_stream()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, _end: "_Event") -> float:
        return 0.04


class _Stream:
    cuda_stream = 0

    def query(self) -> bool:
        return False


def _null_torch() -> Any:
    """A torch whose calls do nothing: what is left is the timer's own Python."""
    stream = _Stream()
    cuda = SimpleNamespace(
        Event=lambda **_: _Event(),
        current_stream=lambda: stream,
        current_device=lambda: 0,
        synchronize=lambda: None,
        is_current_stream_capturing=lambda: False,
        get_device_properties=lambda _device: SimpleNamespace(name="none", gcnArchName=""),
        get_sync_debug_mode=lambda: 0,
        set_sync_debug_mode=lambda _mode: None,
        memory_allocated=lambda: 0,
    )
    return SimpleNamespace(
        cuda=cuda,
        version=SimpleNamespace(hip=None),
        autograd=SimpleNamespace(),
        is_anomaly_enabled=lambda: False,
        is_grad_enabled=lambda: True,
    )


_NOTHING = _null_torch()


def _ours(torch: Any, fn: Any, samples: int, time_source: Any = None) -> Any:
    timer = EventTimer(torch, probe=False, time_source=time_source)
    slots = [Slot(i, fn) for i in range(ROWS)]
    rounds = BLOCK // ROWS

    def go() -> int:
        n = 0
        for i in range(samples // BLOCK):
            timer.enqueue(i * rounds, slots * rounds, ROWS)
            n += sum(len(r.bench) for r in timer.harvest(wait=False))
        return n + sum(len(r.bench) for r in timer.harvest(wait=True))

    return go


def _theirs(torch: Any, fn: Any, samples: int) -> Any:
    timer = _TorchTimer.__new__(_TorchTimer)
    timer._torch = torch  # noqa: SLF001  its own constructor imports the real one

    def go() -> int:
        handles = [timer.open(fn) for _ in range(samples)]
        timer.synchronize()
        return len([timer.value(handle) for handle in handles])

    return go


def driver(make: Any) -> tuple[float, dict[str, float]]:
    """Driver time a sample in ns, without waits and launches, and how often each call is made."""
    torch = FakeTorch(keeps_history=False)
    go = make(torch, lambda: torch.kernel(KERNEL_NS), SAMPLES)
    before = dict(torch.calls)
    n = go()
    costs = torch.costs
    price = {
        "create": costs.create_ns,
        "record": costs.record_ns,
        "query": costs.query_ns,
        "elapsed": costs.elapsed_ns,
        "current_stream": costs.stream_ns,
    }
    calls = {kind: (torch.calls[kind] - before.get(kind, 0)) / n for kind in price}
    calls["current_stream"] -= 1  # the kernel's own
    return sum(price[kind] * k for kind, k in calls.items()), calls


def python(make: Any) -> float:
    """Our Python a sample, in ns."""
    go = make(_NOTHING, lambda: None, SAMPLES)
    start = time.perf_counter_ns()
    n = go()
    return (time.perf_counter_ns() - start) / n


def memory() -> tuple[float, float]:
    """Bytes a sample that stay in the timer, and bytes a sample of the encoded records."""
    torch = FakeTorch(keeps_history=False)
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    slots = [Slot(i, lambda: torch.kernel(KERNEL_NS)) for i in range(ROWS)]
    encoded = n = 0
    grown = 0
    for i in range(MEMORY_SAMPLES // BLOCK):
        if i == 500:
            tracemalloc.start()
            grown = tracemalloc.get_traced_memory()[0]
        timer.enqueue(i * 5, slots * 5, ROWS)
        for record in timer.harvest(wait=False):
            n += len(record.bench)
            encoded += len(encode(record))
    grown = tracemalloc.get_traced_memory()[0] - grown
    tracemalloc.stop()
    return max(0, grown) / n, encoded / n


def main() -> int:
    """Print the table; exit 1 when a claim does not hold."""
    timers = {"usv-tui": lambda t, f, n: _ours(t, f, n, getattr(t, "time", None)), "usv": _theirs}
    took: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(TURNS):
        for name, make in timers.items():
            took[name].append(python(make))
    print(f"{'timer':<8} {'driver ns':>9} {'python ns':>9} {'together':>9}   calls a sample")
    totals = {}
    for name, make in timers.items():
        ns, calls = driver(make)
        own = statistics.median(took[name])
        totals[name] = ns + own
        kinds = ", ".join(f"{kind} {k:.2f}" for kind, k in calls.items() if k > 0.005)
        print(f"{name:<8} {ns:>9.0f} {own:>9.0f} {totals[name]:>9.0f}   {kinds}")
    ratio = totals["usv-tui"] / totals["usv"]
    print(f"\nratio {ratio:.2f}   claim: at most 1.00")
    kept, encoded = memory()
    print(f"kept in the timer {kept:.2f} bytes a sample, in a journal {encoded:.1f}")
    print(f"claim: nothing and at most {RECORD_BYTES}")
    return 0 if ratio <= 1.0 and kept < 1 and encoded <= RECORD_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())

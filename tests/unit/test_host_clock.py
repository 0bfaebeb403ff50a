"""The host's clock: what it waits for, what it refuses, and what it names."""

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fakes.fake_accelerator import FakeTorch, accelerator
from usv_tui import do_bench
from usv_tui.diagnosis.checks import BenchFault
from usv_tui.engine.worker import work
from usv_tui.gate import Gate
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import AnyRecord, BenchError, Mark, Noted, Samples, Timing
from usv_tui.report.wording.notices import sentence
from usv_tui.timers.host_clock import HostClock

US = 1_000
FILE = """
import torch
x = torch.zeros(4, device="fakeacc")
def fn():
    torch.task("work", 2_000_000)
    return x
BENCHMARKS = {"row": fn}
"""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    """The only torch of this process."""
    with accelerator() as fake:
        monkeypatch.setitem(sys.modules, "torch", fake)
        yield fake


def run(tmp_path: Path, text: str, device: str = "cpu", iters: int = 5) -> list[AnyRecord]:
    """A whole run on the host's clock; its records."""
    path = tmp_path / "bench.py"
    path.write_text(text, encoding="utf-8")
    config = RunConfig(iters=iters, warmup_max_s=0.01, max_time_s=20.0)
    records: list[AnyRecord] = []
    request = WorkRequest(path=str(path), device=device, config=config)
    work(request, records.append, deque(), threading.Event(), Gate())
    return records


def said(records: list[AnyRecord]) -> list[str]:
    """What was noticed, in words."""
    return [sentence(r.notice) for r in records if isinstance(r, Noted)]


@pytest.mark.parametrize(
    "row",
    [
        "def fn():\n    torch.task('work', 2_000_000)\n    return x",  # a result
        "def fn(y=x):\n    torch.task('work', 2_000_000)",  # an argument
        "import functools\nfn = functools.partial(lambda y: torch.task('work', 2_000_000), x)",
        "class M:\n    w = [x]\n    def go(self): torch.task('work', 2_000_000)\nfn = M().go",
        "def fn():\n    torch.task('work', 2_000_000)",  # nothing to be seen but that it is up
    ],
    ids=["result", "argument", "partial", "method", "in use"],
)
def test_a_host_clock_waits_for_an_accelerator_that_a_row_uses(
    torch: FakeTorch, tmp_path: Path, row: str
) -> None:
    """On `--device cpu`, too: 2 ms of device work read as 2 ms, and the run says why."""
    text = (
        f'import torch\nx = torch.zeros(4, device="fakeacc")\n{row}\nBENCHMARKS = {{"row": fn}}\n'
    )
    records = run(tmp_path, text)
    times = [s.window_ns / s.inner for r in records if isinstance(r, Samples) for s in r.samples()]
    timings = [r.info.reason for r in records if isinstance(r, Timing)]
    assert min(times) >= 2000 * US
    assert any("the host's clock waits for it" in line for line in said(records))
    assert "fakeacc synchronised at both ends" in timings[-1]


def test_an_accelerator_that_cannot_tell_whether_it_is_used_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where one exists, a host clock without waiting might be a lie."""
    with accelerator(tells_use=False) as torch:
        monkeypatch.setitem(sys.modules, "torch", torch)
        row = "lambda: torch.task('work', 2_000_000)"
        records = run(tmp_path, f"import torch\nBENCHMARKS = {{'row': {row}}}\n")
    times = [s.window_ns / s.inner for r in records if isinstance(r, Samples) for s in r.samples()]
    assert min(times) >= 2000 * US


def test_a_row_on_a_device_that_nothing_waits_for_is_refused(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No figure is better than that of a launch."""
    monkeypatch.setattr(type(torch.accelerator), "synchronize", None)
    records = run(tmp_path, FILE)
    [failed] = [r for r in records if isinstance(r, BenchError)]
    assert failed.kind == "host clock"
    assert "its work is on fakeacc" in failed.message


def test_an_accelerator_that_is_not_used_costs_a_row_nothing(
    torch: FakeTorch, tmp_path: Path
) -> None:
    """A row on the host is timed without waiting for a device that has nothing to do."""
    records = run(tmp_path, "import torch\nBENCHMARKS = {'row': lambda: sum(range(1000))}\n")
    assert torch.calls["synchronize"] == 0
    assert not any("waits for" in line for line in said(records))


class Queue:
    """Somebody's queue, and what was done to it."""

    def __init__(self) -> None:
        self.finished = 0

    def finish(self) -> None:
        """Wait for all of it."""
        self.finished += 1


Queue.__module__ = "pyopencl"


class Array:
    """An array that knows its queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue


Array.__module__ = "pyopencl.array"


@pytest.mark.parametrize("holds", [lambda queue: queue, Array])
def test_an_opencl_queue_that_a_row_holds_is_waited_for(holds: Any) -> None:
    """Its array knows its queue; before and after each window it is finished."""
    queue = Queue()
    held = holds(queue)
    host = HostClock(names_loaded=False)
    [found] = host.look(lambda: held, None)
    assert found.code == "host clock waits"
    host.wait()
    assert queue.finished == 1


def test_an_array_of_a_library_that_can_wait_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CuPy's arrays, beside a torch that knows nothing of the device."""
    waited: list[int] = []
    cupy = ModuleType("cupy")
    runtime = SimpleNamespace(deviceSynchronize=lambda: waited.append(1))
    cupy.cuda = SimpleNamespace(runtime=runtime)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array = type("ndarray", (), {"__module__": "cupy"})()
    measured = do_bench(lambda: array, timer="wall", iters=3, warmup=0)
    assert measured.n == 3
    assert len(waited) >= 6


class Lazy:
    """An array that is there only after a while, as JAX's are."""

    def __init__(self, seconds: float, *, is_waited: bool = False, tells: bool = True) -> None:
        self.at = time.perf_counter() + seconds
        if tells:
            self.is_ready = lambda: time.perf_counter() >= self.at
        if is_waited:
            self.block_until_ready()

    def block_until_ready(self) -> "Lazy":
        """Wait for it."""
        time.sleep(max(0.0, self.at - time.perf_counter()))
        return self


Lazy.__module__ = "jax.array"


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": [x, 1]}], ids=["plain", "nested"])
def test_a_result_that_is_not_there_yet_is_refused(wrap: Any, *, tells: bool) -> None:
    """The call took microseconds, the work milliseconds: the reason says what to call."""

    def fn() -> object:
        return wrap(Lazy(0.02, tells=tells))

    with pytest.raises(BenchFault, match="not ready") as caught:
        HostClock().look(fn, fn())
    assert "jax" in str(caught.value)
    assert "block_until_ready" in caught.value.hint


def test_a_result_that_was_waited_for_is_timed() -> None:
    """The same array, after `block_until_ready`, is a result like any other."""

    def fn() -> object:
        return Lazy(0.005, is_waited=True)

    codes = [f.code for f in HostClock(names_loaded=False).look(fn, fn())]
    assert codes == ["asynchronous library"]


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("jax", "block_until_ready()"),
        ("pyopencl", "finish()"),
        ("cupy", "deviceSynchronize()"),
        ("mlx", "eval()"),
        ("tensorflow", "numpy()"),
        ("paddle", "synchronize()"),
        ("cuda", "cudaDeviceSynchronize()"),
    ],
)
def test_libraries_that_return_early_are_named_when_a_file_loads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, call: str
) -> None:
    """Once a run, with what has to be called."""
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    records = run(tmp_path, f"import {library}\nBENCHMARKS = {{'a': lambda: 1, 'b': lambda: 2}}\n")
    lines = [line for line in said(records) if f"{library} is loaded" in line]
    assert len(lines) == 1
    assert call in lines[0]


def test_what_torch_brings_along_is_not_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch imports NVIDIA's bindings where they are installed: no file has used them for that."""
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    records = run(tmp_path, "BENCHMARKS = {'a': lambda: 1}\n")
    assert not any("cuda is loaded" in line for line in said(records))


def test_the_library_names_only_what_a_callable_touches(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """A notebook that has loaded JAX for something else is not bothered."""
    jax = ModuleType("jax")
    monkeypatch.setitem(sys.modules, "jax", jax)
    do_bench(lambda: np.zeros(3), timer="wall", iters=2, warmup=0)
    assert not [w for w in recwarn if "jax" in str(w.message)]
    do_bench(lambda: jax, timer="wall", iters=2, warmup=0)
    assert [w for w in recwarn if "jax is loaded" in str(w.message)]


def test_do_bench_refuses_a_result_that_is_not_there_yet() -> None:
    """What the callable raises is what the caller gets."""
    with pytest.raises(BenchFault, match="not ready"):
        do_bench(lambda: Lazy(0.02), timer="wall", iters=2, warmup=0)


def test_what_a_row_names_is_looked_through_without_an_end() -> None:
    """Containers that hold themselves, and large ones, take no time."""
    loop: list[Any] = []
    loop.append(loop)
    many = {i: [i] for i in range(100_000)}
    held = SimpleNamespace(loop=loop)
    start = time.perf_counter()
    assert HostClock(names_loaded=False).look(lambda: (loop, many, held), None) == []
    assert time.perf_counter() - start < 5


def test_a_row_that_seems_to_leak_does_not_pile_its_work_up_on_the_device(
    torch: FakeTorch, tmp_path: Path
) -> None:
    """Every call that looks for a leak is waited for, so that the run ends when it should."""
    row = "kept.append(bytearray(1 << 20))\n    torch.task('work', 4_000_000)"
    text = f"import torch\nkept = []\ndef fn():\n    {row}\nBENCHMARKS = {{'row': fn}}\n"
    records = run(tmp_path, text)
    assert any(isinstance(r, Samples) for r in records)
    assert torch.most_pending < 50


def test_a_device_whose_synchronise_waits_for_nothing_is_refused(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, it returns at once, and the work goes on: no figure, and the reason."""
    monkeypatch.setattr(type(torch.accelerator), "synchronize", lambda *_: None)
    records = run(tmp_path, FILE)
    [failed] = [r for r in records if isinstance(r, BenchError)]
    assert failed.kind == "host clock"
    assert "synchronize returns before the device is done" in failed.message


LATE = """
import torch
calls = 0
def fn():
    global calls
    calls += 1
    if calls > 40:
        torch.task("work", 2_000_000)
BENCHMARKS = {"row": fn}
"""


def test_an_accelerator_that_comes_into_use_later_is_waited_for_from_then_on(
    torch: FakeTorch, tmp_path: Path
) -> None:
    """What was timed before is left out by a new epoch, and the run says why."""
    records = run(tmp_path, LATE, iters=200)
    [mark] = [i for i, r in enumerate(records) if isinstance(r, Mark)]
    after = [s for r in records[mark:] if isinstance(r, Samples) for s in r.samples()]
    assert after
    assert min(s.window_ns / s.inner for s in after) >= 2000 * US
    assert any("what was timed before is left out" in line for line in said(records))


HIDDEN = """
import dataclasses, torch
x = torch.zeros(4, device="fakeacc")
torch.fakeacc.is_initialized = lambda: False
@dataclasses.dataclass
class Held:
    layers: list
class Model:
    def __init__(self, held): self.held = held
    def __call__(self): torch.task("work", 2_000_000)
class Outer:
    inner = Model(Held([{"weight": x}]))
    def run(self): self.inner()
outer = Outer()
BENCHMARKS = {"object": Model(Held([x])), "method": outer.run, "lambda": lambda: outer.run()}
"""


def test_tensors_inside_objects_are_found(torch: FakeTorch, tmp_path: Path) -> None:
    """Behind dataclasses, attributes, class attributes and what a method calls."""
    records = run(tmp_path, HIDDEN)
    times = [s.window_ns / s.inner for r in records if isinstance(r, Samples) for s in r.samples()]
    assert min(times) >= 2000 * US

"""What can only be seen on a real GPU, as one table. Reads the card, never changes it.

    PYTHONPATH=. python tests/gpu/run.py [NAME ...]     all in under five minutes; --list names them

Each check measures, says what it saw and what would be right. Exit 0 when all are right, 1 when one
is not, 77 where there is no GPU.
"""

import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "self")]

from usv_tui.engine.calibrate import calibrate  # noqa: E402
from usv_tui.model import EXCLUDED, Flag  # noqa: E402
from usv_tui.records import Bench, ProbeClock, Samples  # noqa: E402
from usv_tui.timers.cache import make_flusher  # noqa: E402  after the path
from usv_tui.timers.event_pool import EventPool  # noqa: E402
from usv_tui.timers.events import EventTimer  # noqa: E402
from usv_tui.timers.phases import phase  # noqa: E402
from usv_tui.timers.probe import find_probe  # noqa: E402
from usv_tui.timers.spin import calibrate_sleep  # noqa: E402
from usv_tui.timers.wall import Slot, WallTimer  # noqa: E402

NO_GPU = 77


class Result(NamedTuple):
    """One line of the table."""

    name: str
    seen: str
    right: str
    is_right: bool


class Place:
    """torch and its device, with the callables that the checks time."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.cuda = torch.cuda
        torch.manual_seed(0)
        self.a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        self.b = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        self.small = torch.randn(1024, device="cuda")

    def timer(self, **options: Any) -> EventTimer:
        """A timer of this device."""
        return EventTimer(self.torch, **options)

    def matmul(self) -> Any:
        """Some hundred microseconds of tensor cores."""
        return self.a @ self.b

    def tiny(self) -> Any:
        """A kernel that is shorter than its launch."""
        return self.small.add_(1e-9)

    def windows(self, timer: Any, slot: Slot, n: int = 200) -> tuple[list[int], list[int]]:
        """Windows and flags of `n` samples, enqueued as a loop would."""
        windows: list[int] = []
        flags: list[int] = []
        for i in range(n // 10):
            failure = timer.enqueue(i, [slot] * 10, 1)
            if failure is not None:
                raise failure[1]
            for record in timer.harvest(wait=i == n // 10 - 1):
                windows += record.window_ns
                flags += record.all_flags()
        return windows, flags


def has_gpu() -> bool:
    """True where torch sees one."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def floor(place: Place) -> Result:
    """Empty windows are short, and their steps finer than a microsecond."""
    info = place.timer().info
    seen = f"floor {info.floor_ns} ns, resolution {info.resolution_ns} ns"
    fine = info.resolution_ns is not None and info.resolution_ns <= 1000
    return Result("floor and resolution", seen, "< 20 us, <= 1 us", fine and info.floor_ns < 20_000)


def event_against_wall(place: Place) -> Result:
    """On long windows events and a synchronised host clock agree."""
    slot = Slot(0, place.matmul)
    timers = (place.timer(), WallTimer("", place.cuda.synchronize))
    medians = []
    for timer in timers:
        slot.inner = 20
        windows, _ = place.windows(timer, slot, 60)
        medians.append(statistics.median(windows) / 20 / 1e3)
    ratio = medians[1] / medians[0]
    seen = f"event {medians[0]:.2f} us, wall {medians[1]:.2f} us, ratio {ratio:.3f}"
    return Result("event against wall", seen, "0.99 .. 1.1", 0.99 < ratio < 1.1)


def flush_is_visible(place: Place) -> Result:
    """Data of a quarter of the cache take longer to read behind a flush."""
    flusher = make_flusher("cuda", torch=place.torch)
    n = (flusher.l2_bytes or 32 << 20) // 4
    data = place.torch.ones(n // 4, device="cuda")
    timer = place.timer(blocker=True)
    warm, _ = place.windows(timer, Slot(0, data.sum))
    cold, _ = place.windows(timer, Slot(1, data.sum, flush=flusher.flush))
    ratio = statistics.median(cold) / statistics.median(warm)
    seen = f"{n >> 20} MiB of {(flusher.l2_bytes or 0) >> 20}: cold / warm {ratio:.2f}"
    return Result("flush is visible", seen, "> 1.1", flusher.flush is not None and ratio > 1.1)


def starvation(place: Place) -> Result:
    """Without depth each window is starved and longer; with depth none is."""
    timer = place.timer(probe=False)
    slot = Slot(0, place.matmul)
    deep, deep_flags = place.windows(timer, slot)
    shallow: list[int] = []
    shallow_flags: list[int] = []
    for i in range(50):
        timer.enqueue(i, [slot])
        (record,) = timer.harvest(wait=True)
        shallow += record.window_ns
        shallow_flags += record.all_flags()
    shares = [
        np.mean([bool(f & Flag.STARVED) for f in x]) for x in (deep_flags[10:], shallow_flags)
    ]
    longer = statistics.median(shallow) - statistics.median(deep)
    seen = f"starved {shares[0]:.0%} deep, {shares[1]:.0%} shallow; a gap of {longer / 1e3:.1f} us"
    return Result("starvation", seen, "< 5 %, > 95 %", shares[0] < 0.05 and shares[1] > 0.95)


def blocker(place: Place) -> Result:
    """Behind a spin a tiny kernel shows its own length, not its launch."""
    medians = []
    for is_blocking in (False, True):
        timer = place.timer(blocker=is_blocking, probe=False)
        windows, flags = place.windows(timer, Slot(0, place.tiny), 400)
        medians.append(statistics.median(windows[100:]) / 1e3)
    share = np.mean([bool(f & Flag.STARVED) for f in flags[100:]])
    seen = f"{medians[0]:.2f} us free, {medians[1]:.2f} us blocked, {share:.0%} starved"
    return Result("blocker", seen, "not longer, < 5 %", medians[1] <= medians[0] and share < 0.05)


def sync_detection(place: Place) -> Result:
    """A read-back and a device-wide wait are found, a plain kernel is not."""
    timer = place.timer()

    def waits() -> None:
        place.matmul()
        place.cuda.synchronize()

    def reads_back() -> None:
        place.matmul()
        place.small[0].item()

    callables = {
        "matmul": place.matmul,
        "item": reads_back,
        "synchronize": waits,
    }
    found = {
        name: "synchronises" in dict(timer.examine(Slot(i, fn)))
        for i, (name, fn) in enumerate(callables.items())
    }
    right = {"matmul": False, "item": True, "synchronize": True}
    return Result("sync detection", str(found), str(right), found == right)


def side_stream(place: Place) -> Result:
    """Work on another stream is found; timed there it has its true length."""
    side = place.cuda.Stream()

    def elsewhere() -> None:
        with place.cuda.stream(side):
            for _ in range(20):
                place.matmul()

    timer = place.timer(probe=False)
    found = "work outside the stream" in dict(timer.examine(Slot(0, elsewhere)))
    there, _ = place.windows(timer, Slot(1, elsewhere, stream=side), 50)
    here, _ = place.windows(timer, Slot(2, place.matmul, 20), 50)
    ratio = statistics.median(there) / statistics.median(here)
    seen = f"found {found}; timed on its stream, {ratio:.3f} of the same work"
    return Result(
        "work on a side stream", seen, "True, 0.95 .. 1.05", found and 0.95 < ratio < 1.05
    )


def phases(place: Place) -> Result:
    """Forward and backward add up to the step."""
    torch = place.torch
    weight = torch.randn(2048, 2048, device="cuda", requires_grad=True)
    x = torch.randn(2048, 2048, device="cuda")

    def step() -> None:
        weight.grad = None
        with phase("forward"):
            loss = torch.relu(x @ weight).square().mean()
        with phase("backward"):
            loss.backward()

    timer = place.timer(probe=False)
    slot = Slot(0, step)
    step()
    timer.examine(slot)
    windows, _ = place.windows(timer, slot, 100)
    sums: dict[int, list[int]] = {}
    names = {}
    for record in timer.beside():
        if isinstance(record, Bench):
            names[record.info.bench] = record.info.name
        elif isinstance(record, Samples):
            for sample in record.samples():
                sums.setdefault(sample.bench, []).append(sample.window_ns)
    parts = {names[row]: statistics.median(values) for row, values in sums.items()}
    share = sum(parts.values()) / statistics.median(windows)
    seen = ", ".join(f"{k} {v / 1e3:.0f} us" for k, v in parts.items()) + f": {share:.1%}"
    return Result("phases", seen, "85 .. 101 %", 0.85 < share < 1.01)


def graph_against_eager(place: Place) -> Result:
    """A chain of tiny kernels is captured, and its replay is not slower."""

    def chain() -> Any:
        x = place.small
        for _ in range(20):
            x = x * 1.0001
        return x

    medians, modes = [], []
    for is_graph in (False, True):
        timer = place.timer(graph=is_graph, probe=False)
        slot = Slot(0, chain)
        chain()
        findings = timer.examine(slot)
        modes.append(str(slot.hints.get("mode", "eager")))
        windows, _ = place.windows(timer, slot)
        medians.append(statistics.median(windows) / 1e3)
    seen = f"{modes[0]} {medians[0]:.1f} us, {modes[1]} {medians[1]:.1f} us {findings or ''}"
    is_right = modes == ["eager", "graph"] and medians[1] <= medians[0]
    return Result("graph against eager", seen, "graph, not slower", is_right)


def probe_against_nvml(place: Place) -> Result:
    """The clock in the stream agrees with the driver's, and every probe here works."""
    source = _telemetry(place)
    from usv_tui.seams import Tier

    pool = EventPool(place.cuda)
    best, why = find_probe(place.torch, pool, calibrate_sleep(place.cuda, pool))
    timer = place.timer()
    slot = Slot(0, place.matmul, 10)
    driver: list[float] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(0.05):
            mhz = source.read(Tier.FAST).sm_mhz
            if mhz is not None:
                driver.append(mhz)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    stream: list[float] = []
    end = time.perf_counter() + 4
    i = 0
    while time.perf_counter() < end:
        timer.enqueue(i, [slot] * 4, 1)
        timer.harvest(wait=False)
        stream += [m for r in timer.beside() if isinstance(r, ProbeClock) for m in r.sm_mhz]
        i += 1
    stop.set()
    thread.join()
    source.close()
    if not stream or len(driver) < 20:
        seen = f"{len(stream)} and {len(driver)} readings ({why})"
        return Result("probe against NVML", seen, "both read", is_right=False)
    ratio = statistics.median(stream[len(stream) // 2 :]) / statistics.median(driver[20:] or driver)
    seen = (
        f"{best.source if best else 'none'} x{len(stream)}: {statistics.median(stream):.0f} MHz, "
        f"ratio {ratio:.3f} {why}"
    )
    return Result("probe against NVML", seen, "0.97 .. 1.03", 0.97 < ratio < 1.03)


def _telemetry(place: Place) -> Any:
    """The device's telemetry, opened."""
    from usv_tui.telemetry.identity import device_facts, find_telemetry

    ordinal = place.cuda.current_device()
    source, _ = find_telemetry(f"cuda:{ordinal}", device_facts(ordinal, place.torch))
    source.open()
    return source


def telemetry_cost(place: Place) -> Result:
    """One look at the fast sensors costs well below a tick, with the device at work."""
    from usv_tui.seams import Tier

    source = _telemetry(place)
    took = {}
    for tier in (Tier.FAST, Tier.REASONS, Tier.SLOW):
        times = []
        for _ in range(40):
            place.matmul()
            start = time.perf_counter_ns()
            source.read(tier)
            times.append(time.perf_counter_ns() - start)
        place.cuda.synchronize()
        took[tier.name] = statistics.median(times) / 1e3
    source.close()
    seen = ", ".join(f"{name} {us:.0f} us" for name, us in took.items())
    return Result("telemetry cost", seen, "FAST < 5 ms", took["FAST"] < 5000)


KERNELS = """
import torch

def bench_add(device):
    x = torch.randn(1 << 20, device=device)
    return lambda: x.add_(1e-9)

def bench_matmul(device):
    a = torch.randn(1024, 1024, device=device, dtype=torch.float16)
    return lambda: a @ a
"""


def gate(_place: Place) -> Result:
    """Under the real screen, with the gate and without: spread of the samples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = folder / "kernels.py"
        suite.write_text(KERNELS, encoding="utf-8")
        spreads = {}
        for mode, options in (("gated", []), ("ungated", ["--no-gate"])):
            path = folder / f"{mode}.usv"
            _screen([str(suite), "--max-time", "12", "--fps", "10", "--save", str(path), *options])
            spreads[mode] = [
                float(np.std(times, ddof=1) / np.median(times)) for times in _times(path).values()
            ]
    seen = ", ".join(
        f"{mode} " + " ".join(f"{value:.2%}" for value in values)
        for mode, values in spreads.items()
    )
    is_right = all(a <= 1.3 * b for a, b in zip(*spreads.values(), strict=True))
    return Result("gate on and off", seen, "gated not wider", is_right)


def screen_minute(_place: Place) -> Result:
    """A minute of the real screen on the attention benchmarks, and its journal."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "attn.usv"
        seen = _screen(
            [str(ROOT / "benchmarks" / "attn.py"), "--max-time", "60", "--save", str(path)]
        )
        times = _times(path)
        size = path.stat().st_size
    n = sum(len(values) for values in times.values())
    text = f"exit {seen.exit_status}, {len(times)} rows, {n} samples, {size / max(n, 1):.0f} B each"
    return Result(
        "a minute of the screen", text, "exit 0, samples", seen.exit_status == 0 and n > 0
    )


def _screen(arguments: list[str]) -> Any:
    from pty_run import run

    return run([*arguments, "--device", "cuda"], size=(120, 40), timeout_s=150)


def _times(path: Path) -> dict[int, np.ndarray]:
    """Seconds a call of each row, as a journal has them."""
    from usv_tui.session.journal import read

    times: dict[int, list[float]] = {}
    for record in read(path):
        if isinstance(record, Samples):
            for sample in record.samples():
                if not sample.flags & EXCLUDED:
                    times.setdefault(sample.bench, []).append(sample.window_ns / sample.inner / 1e9)
    return {bench: np.array(values) for bench, values in times.items() if len(values) > 10}


def calibration(place: Place) -> Result:
    """Calibrated windows of a tiny kernel are as long as asked for."""
    timer = place.timer(probe=False)
    slot = Slot(0, place.tiny)
    found = calibrate(timer, slot, 1e-3)
    slot.inner = found.inner
    windows, _ = place.windows(timer, slot, 100)
    ms = statistics.median(windows) / 1e6
    return Result("calibration", f"inner {found.inner}: {ms:.2f} ms", "0.5 .. 2 ms", 0.5 < ms < 2)


CHECKS: dict[str, Callable[[Place], Result]] = {
    check.__name__: check
    for check in (
        floor,
        event_against_wall,
        calibration,
        flush_is_visible,
        starvation,
        blocker,
        sync_detection,
        side_stream,
        phases,
        graph_against_eager,
        probe_against_nvml,
        telemetry_cost,
        gate,
        screen_minute,
    )
}


def results(names: list[str]) -> Iterator[Result]:
    """The checks one after the other; one that raises is a wrong line, and the others go on."""
    place = Place()
    for name in names or list(CHECKS):
        try:
            yield CHECKS[name](place)
        except Exception as error:
            traceback.print_exc()
            yield Result(name, f"{type(error).__name__}: {error}", "no exception", is_right=False)


def main(arguments: list[str]) -> int:
    """Print the table as it comes."""
    if arguments == ["--list"]:
        print("\n".join(CHECKS))
        return 0
    unknown = [name for name in arguments if name not in CHECKS]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there is {', '.join(CHECKS)}")
        return 2
    if not has_gpu():
        print("skipped: torch sees no GPU here")
        return NO_GPU
    began = time.perf_counter()
    failed = 0
    for result in results(arguments):
        mark = "ok  " if result.is_right else "FAIL"
        failed += not result.is_right
        print(f"{mark} {result.name:<24} {result.seen}   [{result.right}]", flush=True)
    print(f"{failed} wrong, {time.perf_counter() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

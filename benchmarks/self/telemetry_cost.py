"""What telemetry costs: one look at each kind of device, and what it does to the measured samples.

The vendor libraries are fakes (a C library for NVML, a sysfs tree for AMD), so a look's cost is
ours, without the driver's. The disturbance is that of a poller at 10 Hz on numpy products of about
50 us, timed by the real engine; blocks with and without it take turns in one run.

    python benchmarks/self/telemetry_cost.py
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one core for the work, one for us
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.fakes.amd_card import FakeCard, metrics_v1_7  # noqa: E402  after the path is set
from tests.fakes.nvml_fake import H100, SOURCE  # noqa: E402
from usv_tui.engine.runner import Runner  # noqa: E402
from usv_tui.gate import Gate  # noqa: E402
from usv_tui.model import Benchmark, Flag, RunConfig, Suite  # noqa: E402
from usv_tui.records import Samples  # noqa: E402
from usv_tui.seams import TelemetrySource, Tier  # noqa: E402
from usv_tui.telemetry.amd import AmdTelemetry  # noqa: E402
from usv_tui.telemetry.host import HostTelemetry  # noqa: E402
from usv_tui.telemetry.nvidia import NvmlTelemetry  # noqa: E402
from usv_tui.telemetry.poller import Poller  # noqa: E402
from usv_tui.timers.wall import WallTimer  # noqa: E402

LOOKS = 3000
TURNS = 24
ITERS = 8000
"""Samples of a block: some 0.3 s, three looks of the poller."""
STOLEN = 10
"""Windows beyond this many medians are time slices that somebody else took: counted apart."""
MAX_MEDIAN_CHANGE = 0.002
MAX_STD_RATIO = 1.2


def build_nvml(folder: Path) -> Path | None:
    """The fake NVML library; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    path = folder / "libnvidia-ml.so.1"
    flags = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(path), str(SOURCE)], check=True)
    return path


def quantile(values: list[int], q: float) -> float:
    """A quantile in microseconds."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] / 1000


def cost_of(source: TelemetrySource, tiers: Tier, between: Callable[[], None]) -> list[int]:
    """Durations of looks, nanoseconds; `between` moves the fake on, untimed."""
    source.open()
    for _ in range(50):
        source.read(Tier.ALL)
    costs = []
    for _ in range(LOOKS):
        between()
        start = time.perf_counter_ns()
        source.read(tiers)
        costs.append(time.perf_counter_ns() - start)
    source.close()
    return costs


def print_costs(folder: Path, nvml: Path | None) -> None:
    """The table of looks."""
    card = FakeCard(folder / "sys")
    card.metrics(metrics_v1_7())
    stamps = itertools.count(1000)
    table = os.open(card.device / "gpu_metrics", os.O_WRONLY)

    def move() -> None:
        os.pwrite(table, metrics_v1_7(stamp=next(stamps)), 0)

    def stay() -> None:
        pass

    sources: list[tuple[str, Callable[[], TelemetrySource], Callable[[], None]]] = [
        ("cpu (this machine)", HostTelemetry, stay),
        ("amd (sysfs tree, MI300)", lambda: AmdTelemetry(card.pci, card.root), move),
    ]
    if nvml is None:
        print("nvidia: skipped, the fake library needs a C compiler (gcc)")
    else:
        sources.append(("nvidia (fake NVML)", lambda: NvmlTelemetry(H100, nvml), stay))
    print(
        f"{'one look, us':<26}{'fast p50':>9}{'p99':>8}{'all p50':>9}{'p99':>8}{'  a second':>11}"
    )
    for name, make, between in sources:
        fast = cost_of(make(), Tier.FAST, between)
        full = cost_of(make(), Tier.ALL, between)
        share = 10 * quantile(fast, 0.5) / 1e6
        print(
            f"{name:<26}{quantile(fast, 0.5):>9.1f}{quantile(fast, 0.99):>8.1f}"
            f"{quantile(full, 0.5):>9.1f}{quantile(full, 0.99):>8.1f}{share:>11.3%}"
        )
    os.close(table)


class Block(NamedTuple):
    """One block of samples: median and standard deviation in us, and the windows left out."""

    median: float
    std: float
    stolen: int


def block(gate: Gate, watch: Callable[[], AbstractContextManager[None]]) -> Block:
    """Time one block while `watch` is in force."""
    a = np.random.default_rng(0).random((100, 100))
    out = np.empty_like(a)
    suite = Suite("work", (Benchmark("dot", lambda _: lambda: np.dot(a, a, out=out)),))
    records: list[object] = []
    runner = Runner(
        suite,
        RunConfig(iters=ITERS, warmup_max_s=0, inner=1),
        WallTimer(),
        records.append,
        gate=gate,
    )
    with watch():
        runner.run()
    windows = np.array(
        [
            sample.window_ns
            for record in records
            if isinstance(record, Samples)
            for sample in record.samples()
            if not Flag(sample.flags).is_excluded
        ]
    )
    median = float(np.median(windows))
    kept = windows[windows < STOLEN * median]
    return Block(median / 1000, float(kept.std()) / 1000, len(windows) - len(kept))


@contextmanager
def nobody() -> Iterator[None]:
    """No telemetry."""
    yield


def watcher(
    source: TelemetrySource, gate: Gate | None
) -> Callable[[], AbstractContextManager[None]]:
    """A poller at 10 Hz while a block runs."""

    @contextmanager
    def watch() -> Iterator[None]:
        poller = Poller(source, [].append, gate=gate, learn_s=0)
        poller.start()
        wait = threading.Event()
        while poller.state() or not poller.costs():
            wait.wait(0.01)  # it is running: the second look has been made
        yield
        poller.stop(5)

    return watch


def print_disturbance(source: Callable[[], TelemetrySource], what: str) -> bool:
    """The table of blocks; True when the claim holds."""
    results: dict[str, list[Block]] = {"off": [], "on": [], "ungated": []}
    for turn in range(TURNS):
        gate = Gate()
        ways = [
            ("off", nobody),
            ("on", watcher(source(), gate)),
            ("ungated", watcher(source(), None)),
        ]
        # Each way comes first in a third of the turns: a drift falls on all of them.
        for name, watch in ways[turn % 3 :] + ways[: turn % 3]:
            results[name].append(block(gate, watch))
    print(f"\n{what}, {TURNS} blocks of {ITERS} samples each way")
    print(
        f"{'poller at 10 Hz':<20}{'median us':>10}{'change':>9}{'std us':>9}{'ratio':>8}"
        f"{f'> {STOLEN} medians':>14}"
    )
    holds = True
    off = results["off"]
    for name, words in (("off", "none"), ("on", "behind the gate"), ("ungated", "without gate")):
        # Blocks of one turn are compared with each other: what the machine does is in both.
        pairs = list(zip(results[name], off, strict=True))
        change = statistics.median(mine.median / other.median - 1 for mine, other in pairs)
        ratio = statistics.median(mine.std / other.std for mine, other in pairs)
        median = statistics.median(b.median for b in results[name])
        std = statistics.median(b.std for b in results[name])
        stolen = sum(b.stolen for b in results[name]) / (TURNS * ITERS)
        print(f"{words:<20}{median:>10.3f}{change:>+9.2%}{std:>9.3f}{ratio:>7.2f}x{stolen:>14.4%}")
        if name == "on":
            holds = abs(change) <= MAX_MEDIAN_CHANGE and ratio <= MAX_STD_RATIO
    verdict = "holds" if holds else "DOES NOT HOLD"
    print(f"claim: median within {MAX_MEDIAN_CHANGE:.1%}, std within {MAX_STD_RATIO}x: {verdict}")
    return holds


def main() -> int:
    """Print the tables; exit 1 when the claim does not hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nvml = build_nvml(folder)
        print_costs(folder, nvml)
        if nvml is None:
            return int(not print_disturbance(HostTelemetry, "telemetry of the host"))
        return int(not print_disturbance(lambda: NvmlTelemetry(H100, nvml), "fake NVML"))


if __name__ == "__main__":
    sys.exit(main())

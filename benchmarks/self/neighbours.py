"""Does a ratio depend on what else is in the file? With real torch on the CPU, in one run.

`sum` adds up 2 MB, `spin` counts in Python for about as long. Their ratio alone is compared with
their ratio beside an unrelated row: one that streams through 128 MB, one that multiplies matrices,
one that allocates and frees. Runs take turns, so that a slow moment of the machine falls on all.
`as-is` shows what comes of it when nothing brings a row's caches back.

    python benchmarks/self/neighbours.py [TURNS]
"""

import statistics
import sys
from collections.abc import Callable

import torch

from usv_tui.engine.cache import make_flusher
from usv_tui.engine.runner import Runner
from usv_tui.engine.timers import WallTimer
from usv_tui.model import Benchmark, CacheMode, RunConfig, Suite
from usv_tui.records import Samples

SECONDS = 6.0
CLAIM = 0.02
Build = Callable[[str], Callable[[], object]]


def adds_up(_device: str) -> Callable[[], object]:
    """2 MB that a core's own cache may hold."""
    x = torch.randn(1 << 19)
    return x.sum


def spins(_device: str) -> Callable[[], object]:
    """Needs no memory at all."""

    def spin() -> int:
        total = 0
        for i in range(2000):
            total += i
        return total

    return spin


def streams(_device: str) -> Callable[[], object]:
    """128 MB: more than any cache keeps."""
    y = torch.zeros(1 << 25)
    return lambda: y.add_(1.0)


def multiplies(_device: str) -> Callable[[], object]:
    """Much arithmetic on little memory."""
    a = torch.randn(512, 512)
    return lambda: a @ a


def allocates(_device: str) -> Callable[[], object]:
    """Fresh memory at every call."""
    return lambda: torch.zeros(1 << 22)


NEIGHBOURS: dict[str, Build | None] = {
    "alone": None,
    "streams 128 MB": streams,
    "multiplies": multiplies,
    "allocates 16 MB": allocates,
}


def ratio(neighbour: Build | None, cache: CacheMode) -> float:
    """Median of `spin` over `sum` within rounds."""
    rows = [
        Benchmark("sum", adds_up, group="small", is_baseline=True),
        Benchmark("spin", spins, group="small"),
    ]
    if neighbour is not None:
        rows.append(Benchmark("neighbour", neighbour, group="other"))
    records: list[object] = []
    config = RunConfig(max_time_s=SECONDS, warmup_max_s=2.0, cache=cache)
    Runner(
        Suite("neighbours", tuple(rows)),
        config,
        WallTimer(),
        records.append,
        make_flusher=lambda: make_flusher("cpu", torch=torch),
    ).run()
    rounds: dict[int, dict[int, float]] = {}
    for block in records:
        if isinstance(block, Samples):
            for s in block.samples():
                if not s.flags:
                    rounds.setdefault(s.round, {})[s.bench] = s.window_ns / s.inner
    return statistics.median(t[1] / t[0] for t in rounds.values() if 0 in t and 1 in t)


def main() -> int:
    """Print the table; exit 1 when the claim does not hold."""
    torch.set_num_threads(1)
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    worst = 0.0
    print(f"{'cache':>6}  {'beside':<16}  {'spin / sum':>10}  {'to alone':>8}")
    for cache in (CacheMode.WARM, CacheMode.AS_IS):
        found: dict[str, list[float]] = {name: [] for name in NEIGHBOURS}
        for _ in range(turns):
            for name, build in NEIGHBOURS.items():
                found[name].append(ratio(build, cache))
        alone = statistics.median(found["alone"])
        for name, values in found.items():
            change = statistics.median(values) / alone - 1.0
            print(f"{cache:>6}  {name:<16}  {statistics.median(values):>10.4f}  {change:>+8.2%}")
            if cache is CacheMode.WARM:
                worst = max(worst, abs(change))
    print(f"claim: warm within {CLAIM:.0%} of alone; found {worst:.2%}")
    return int(worst > CLAIM)


if __name__ == "__main__":
    sys.exit(main())

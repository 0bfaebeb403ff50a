"""Host cost per sample of our live engine and library against usv's `do_bench_many`, in one run.

No-op callables, wall timer, interleaved: what is left is what each engine itself costs. They
take turns, so that a slow moment of the machine falls on both; the ratio is of medians.

    python benchmarks/self/host_cost.py
"""

import statistics
import sys
import time
from collections.abc import Callable

import usv

import usv_tui
from usv_tui.engine.runner import Runner
from usv_tui.model import Benchmark, RunConfig, Suite
from usv_tui.records import Samples
from usv_tui.timers.wall import WallTimer

ITERS = 20_000
TURNS = 9


def _nothing() -> None:
    pass


def ours(rows: int) -> float:
    """Nanoseconds a sample: the whole run from priming to the last record, divided by samples."""
    suite = Suite("noop", tuple(Benchmark(f"n{i}", lambda _: _nothing) for i in range(rows)))
    records: list[object] = []
    config = RunConfig(iters=ITERS, warmup_max_s=0, inner=1)
    runner = Runner(suite, config, WallTimer(), records.append)
    start = time.perf_counter_ns()
    runner.run()
    took = time.perf_counter_ns() - start
    return took / sum(len(r.bench) for r in records if isinstance(r, Samples))


def theirs(rows: int) -> float:
    """The same work by usv."""
    return _called(usv.do_bench_many, rows)


def _called(do_bench_many: Callable[..., object], rows: int) -> float:
    fns = {f"n{i}": _nothing for i in range(rows)}
    start = time.perf_counter_ns()
    do_bench_many(fns, warmup=1, iters=ITERS, interleave=True, timer="wall")
    return (time.perf_counter_ns() - start) / (ITERS * rows)


def library(rows: int) -> float:
    """The same call by our own library."""
    return _called(usv_tui.do_bench_many, rows)


def main() -> int:
    """Print the table; exit 1 when the claim does not hold."""
    print(f"{'rows':>4}  {'loop':>8}  {'usv-tui ns':>10}  {'usv ns':>8}  {'ratio':>6}  claim")
    worst = 0.0
    for rows in (2, 8):
        turns = [(ours(rows), library(rows), theirs(rows)) for _ in range(TURNS)]
        *mine, other = (statistics.median(column) for column in zip(*turns, strict=True))
        for name, cost in zip(("live", "library"), mine, strict=True):
            worst = max(worst, cost / other)
            print(
                f"{rows:>4}  {name:>8}  {cost:>10.0f}  {other:>8.0f}  {cost / other:>5.2f}x"
                "  at most 1.0x"
            )
    return int(worst > 1.0)


if __name__ == "__main__":
    sys.exit(main())

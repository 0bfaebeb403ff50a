"""Does a ratio depend on what else is in the file? With real torch on the CPU, in one run.

`sum` adds up 2 MB, `spin` counts in Python for about as long. An unrelated row is switched on and
off four times a second: one that streams through 128 MB, one that multiplies matrices, one that
allocates and frees. The ratio in the rounds with it is compared with that in the rounds without,
so that a slow moment of the machine falls on both. `as-is` shows what comes of it when nothing
brings a row's caches back.

    python benchmarks/self/neighbours.py [SECONDS]
"""

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from usv_tui.engine.runner import Runner
from usv_tui.model import Benchmark, CacheMode, RunConfig, Suite
from usv_tui.records import AnyRecord, Command, Samples
from usv_tui.stats.basics import madn
from usv_tui.timers.cache import make_flusher
from usv_tui.timers.wall import WallTimer

TURN_NS = 250_000_000
QUICK = 0.25
FEWEST = 4
"""Samples of each row in a turn that counts."""
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


NEIGHBOURS: dict[str, Build] = {
    "streams 128 MB": streams,
    "multiplies": multiplies,
    "allocates 16 MB": allocates,
}


class Switch:
    """Takes the records of a run, and switches the neighbour off and on as time goes by."""

    def __init__(self) -> None:
        self.commands: deque[Command] = deque()
        self.turns: list[tuple[bool, dict[int, list[float]]]] = [(True, {})]
        """With the neighbour or without, and the times of a call by row."""
        self._since_ns = 0

    def emit(self, record: AnyRecord) -> None:
        """Keep the samples that count, by turn."""
        if not isinstance(record, Samples):
            return
        is_on, times = self.turns[-1]
        for s in record.samples():
            if not s.flags:
                times.setdefault(s.bench, []).append(s.window_ns / s.inner)
        if record.t0_ns - self._since_ns > TURN_NS:
            self._since_ns = record.t0_ns
            self.turns.append((not is_on, {}))
            self.commands.append(Command("off" if is_on else "on", "", 2))

    def log_ratios(self) -> list[tuple[bool, float]]:
        """Spin over sum of each whole turn: of quick calls, which others disturb least."""
        return [
            (is_on, math.log(np.quantile(times[1], QUICK) / np.quantile(times[0], QUICK)))
            for is_on, times in self.turns[1:]
            if min(len(times.get(0, [])), len(times.get(1, []))) >= FEWEST
        ]


def change(neighbour: Build, cache: CacheMode, seconds: float) -> tuple[float, float, float]:
    """(ratio alone, relative change beside the neighbour, its standard error)."""
    rows = (
        Benchmark("sum", adds_up, group="small", is_baseline=True),
        Benchmark("spin", spins, group="small"),
        Benchmark("neighbour", neighbour, group="other"),
    )
    switch = Switch()
    runner = Runner(
        Suite("neighbours", rows),
        RunConfig(max_time_s=seconds + 2.0, warmup_max_s=4.0, cache=cache),
        WallTimer(),
        switch.emit,
        commands=switch.commands,
        make_flusher=lambda: make_flusher("cpu", torch=torch),
    )
    runner.run()
    turns = switch.log_ratios()
    steps = np.array(
        [a - b if is_on else b - a for (is_on, a), (was_on, b) in itertools.pairwise(turns)
         if is_on != was_on]
    )  # fmt: skip
    alone = float(np.median([ratio for is_on, ratio in turns if not is_on]))
    error = 1.2533 * madn(steps) / math.sqrt(len(steps))
    return math.exp(alone), math.expm1(float(np.median(steps))), error


def main() -> int:
    """Print the table; exit 1 when the claim does not hold."""
    torch.set_num_threads(1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    worst = 0.0
    print(f"{'cache':>6}  {'beside':<16}  {'spin / sum':>10}  {'changes by':>10}  std error")
    for cache in (CacheMode.WARM, CacheMode.AS_IS):
        for name, build in NEIGHBOURS.items():
            ratio, by, error = change(build, cache, seconds)
            print(f"{cache:>6}  {name:<16}  {ratio:>10.4f}  {by:>+10.2%}  {error:.2%}", flush=True)
            if cache is CacheMode.WARM:
                worst = max(worst, abs(by) - 2.0 * error)
    print(f"claim: warm, it changes by at most {CLAIM:.0%}, within two standard errors")
    return int(worst > CLAIM)


if __name__ == "__main__":
    sys.exit(main())

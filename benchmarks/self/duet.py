"""Is `usv-tui ab` right? Known truth in virtual time, by the protocol itself; and its own cost.

Launches differ by 1 % as measured between real ones, and the machine slows in a ramp beside them,
by 20 % in a minute. Proofs 1 to 4 need no quiet machine: only who has the turn lets time pass. Part
5 measures this machine: two processes against one.

    python benchmarks/self/duet.py [RUNS] [--only N] > benchmarks/self/duet.md
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.fakes.duet import DuetRun
from usv_tui.model import Answer
from usv_tui.session.launches import Versus
from usv_tui.sim import SimCall, SimKernel, load
from usv_tui.stats.duet import answer, over_launches, tail_quantile
from usv_tui.timesource import ManualTime

MS = 1_000_000
TURNS = 5
BETWEEN = 0.01
SCENARIO = "attention"
CARD = f"h100:{SCENARIO}"
"""A cold card with a small heatsink, under its cap: its clock falls for half a minute."""
WRONG = (Answer.FASTER, Answer.SLOWER)


def ramp(seconds: float) -> float:
    """A load beside the run that grows for a minute."""
    return 1.0 + 0.2 * min(seconds, 60.0) / 60.0


def line(*cells: object) -> None:
    """A row of the table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def share(hits: Sequence[bool]) -> str:
    """How many of them, in percent."""
    return f"{np.mean(hits):.1%} of {len(hits)}"


def runs(count: int, head: float, **options: object) -> list[tuple[Versus, float]]:
    """One row in so many comparisons, and the virtual seconds that each took."""
    found = []
    for seed in range(count):
        made = DuetRun(
            ({"row": MS}, {"row": head * MS}), seed=seed, between=BETWEEN, drift=ramp, **options
        )
        versus = made.run()["row"]
        found.append((versus, made.time.now_ns() / 1e9 - 100))
    return found


def same_commit(count: int) -> None:
    """1: a version against itself."""
    found = [versus for versus, _ in runs(count, 1.0)]
    wrong = [versus.answer in WRONG for versus in found]
    covered = [versus.over.low <= 1 <= versus.over.high for versus in found]
    line("1. A/A under a ramp: runs that say faster or slower", share(wrong), "at most 5 %")
    line("1. … their intervals that hold 1", share(covered), "93 to 98 %")
    firsts = [over_launches(versus.launches[:1]) for versus in found]
    alone = [answer(one.centre, one.half, one.p) in WRONG for one in firsts]
    inside = [abs(one.centre) <= one.half for one in firsts]
    line("1. … with `--launches 1`: say faster or slower", share(alone), "seen to be worse")
    line("1. … with `--launches 1`: intervals that hold 1", share(inside), "seen to be worse")


def two_percent(count: int) -> None:
    """2: what is there is found."""
    found = runs(count, 1.02)
    hits = [versus.answer is Answer.SLOWER for versus, _ in found]
    line("2. +2 % of work in HEAD is found", share(hits), "at least 95 %")
    seconds = statistics.median(s for _, s in found)
    launches = statistics.mean(versus.over.launches for versus, _ in found)
    line("2. … median time to decide", f"{seconds:.0f} s at 1 s a launch", "printed")
    line("2. … launches that it took on the mean", f"{launches:.1f}", "printed")


def many_rows(count: int) -> None:
    """3: a family of rows."""
    rows = {f"row {i}": MS / 50 for i in range(53)}
    corrected, raw = [], []
    for seed in range(count):
        made = DuetRun(
            (rows, rows), seed=seed, between=BETWEEN, drift=ramp, launches=5, launch_s=0.2
        )
        found = made.run().values()
        corrected.append(any(versus.answer in WRONG for versus in found))
        raw.append(any(versus.raw in WRONG for versus in found))
    line("3. 53 equal rows: RUNS with any false row", share(corrected), "at most 5 %")
    line("3. … without the correction", share(raw), "seen to be worse")


def shared_card(count: int) -> None:
    """4: one card, one governor, one cap; its clock ramps and dithers under both."""
    inside, one_after_other, spread, drawn = [], [], [], []
    for seed in range(count):
        options = {"card": CARD, "inner": 10, "seed": seed, "between": 0.002}
        made = DuetRun(({"gemm": MS / 10}, {"gemm": 1.02 * MS / 10}), launches=5, **options)
        versus = made.run()["gemm"]
        over = versus.over
        drawn.append(is_inside([made.drawn(one.number, "gemm") for one in versus.launches]))
        inside.append(over.low <= 1.02 <= over.high)
        spread.append(over.half)
        one_after_other.append(a_then_b(seed))
    line(f"4. shared simulated card ({CARD}), HEAD 1.02x: in its interval", share(inside), "93 %")
    line("4. … Student's interval on what the launches drew, and no device", share(drawn), "93 %")
    line("4. … half an interval, median", f"{statistics.median(spread):.2%}", "printed")
    off = [abs(value / 1.02 - 1) for value in one_after_other]
    line("4. … A, then B on the same seeds is off by", f"{statistics.median(off):.2%}", "wrong")


def is_inside(values: Sequence[float]) -> bool:
    """Whether Student's interval of these holds the zero that they were drawn around."""
    half = tail_quantile(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return abs(statistics.mean(values)) <= half


def a_then_b(seed: int) -> float:
    """The same kernels, one version after the other: what people do."""
    clock = ManualTime(100 * 10**9)
    gpu = load(SCENARIO, "h100", seed, clock).gpu
    medians = []
    for cost_ns in (MS / 10, 1.02 * MS / 10):
        call = SimCall(SimKernel(name="gemm", t0_ns=cost_ns), gpu)
        begun_ns, times = clock.now_ns(), []
        while clock.now_ns() - begun_ns < 5 * 10**9:
            begin = gpu.record()
            for _ in range(50):
                call()
            end = gpu.record()
            gpu.synchronize()
            times.append(end.start_s - begin.start_s)
        medians.append(statistics.median(times))
    return medians[1] / medians[0]


FILE = """
def work(n):
    return lambda: sum(range(n))

BENCHMARKS = {"short": work(2000), "long": work(60000)}
"""


def own_cost() -> None:
    """5: what handing over costs here, and what it does to a row."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("one.py", "two.py"):
            (root / name).write_text(FILE)
        common = ["--headless", "--device", "cpu", "--no-save", "--json", "out.json"]
        pairs = []
        for _ in range(TURNS):  # in turn, since the machine is not the same all the time
            both = _json(root, "ab", "one.py", "two.py", "--launches", "2", *common)
            pairs.append((both, _json(root, "one.py", "--isolate", "--max-time", "4", *common)))
    costs = [both["versions"]["handover_ns"] for both, _ in pairs]
    shares = [both["versions"]["handover_share"] for both, _ in pairs]
    line("5. one handover, median", f"{statistics.median(costs) / 1e3:.0f} µs", "printed")
    line("5. … share of the time", f"{statistics.median(shares):.2%}", "below 1 %")
    for name in ("short", "long"):
        duets = [_figures(both, f"{name} @one.py") for both, _ in pairs]
        alones = [_figures(alone, name) for _, alone in pairs]
        ratios = [a["median_s"] / b["median_s"] for a, b in zip(duets, alones, strict=True)]
        found = f"{statistics.median(ratios):.3f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        line(f"5. `{name}` in a duet over alone: median", found, "printed")
        stds = [statistics.median(s["madn_s"] / s["median_s"] for s in x) for x in (duets, alones)]
        said = f"{stds[0]:.1%} against {stds[1]:.1%}"
        line(f"5. `{name}`: spread (MAD) in a duet against alone", said, "printed")


def _figures(data: dict, name: str) -> dict:
    return next(row["statistics"] for row in data["rows"] if row["name"] == name)


def _json(root: Path, *arguments: str) -> dict:
    subprocess.run(
        [sys.executable, "-m", "usv_tui", *arguments], cwd=root, check=False, capture_output=True
    )
    return json.loads((root / "out.json").read_text())


def main(arguments: Sequence[str]) -> None:
    """All of them as a table."""
    words = list(arguments)
    only = 0
    if "--only" in words:
        at = words.index("--only")
        only = int(words[at + 1])
        del words[at : at + 2]
    count = int(words[0]) if words else 60
    begun = time.monotonic()
    print(f"<!-- python benchmarks/self/duet.py {' '.join(arguments)} -->\n")
    line("proof", "found", "asked for")
    line(":---", ":---", ":---")
    proofs = {
        1: lambda: same_commit(count),
        2: lambda: two_percent(count),
        3: lambda: many_rows(max(1, math.ceil(count * 2 / 3))),
        4: lambda: shared_card(count),
        5: own_cost,
    }
    for number, proof in proofs.items():
        if only in (0, number):
            proof()
    print(f"\nMade in {time.monotonic() - begun:.0f} s.")


if __name__ == "__main__":
    main(sys.argv[1:])

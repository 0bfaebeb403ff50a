"""Does watching change what is watched? The same torch kernels headless and under the screen.

Kernels of about 50 us, 500 us and 5 ms, one call a window. Each is run headless, under the running
screen at 10 frames a second in a real pseudo-terminal, and under the screen without the gate (what
a plain thread beside the screen would do to the samples). They take turns with a second headless
run, whose ratio to the first shows how much two equal runs differ on this machine; the table has
the median over the turns of each figure's ratio to headless.

    python benchmarks/self/observer.py [SECONDS [TURNS]]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from pty_run import run

from usv_tui.model import EXCLUDED
from usv_tui.session.journal import read
from usv_tui.session.store import Store

SUITE = """
import torch
torch.set_num_threads(1)

def bench_kernel(device):
    a = torch.zeros(64)
    b = torch.ones(64)
    def work():
        for _ in range({launches}):
            torch.add(a, b, out=a)
    return work
"""


def launches_for(us: int) -> int:
    """How many small launches take so long here; asked once, so that all modes time the same."""
    torch.set_num_threads(1)
    a, b = torch.zeros(64), torch.ones(64)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(1000):
            torch.add(a, b, out=a)
        best = min(best, time.perf_counter() - start)
    return max(1, round(us * 1e-6 * 1000 / best))


MODES = {
    "headless": ["--headless"],
    "again": ["--headless"],
    "screen": ["--fps", "10"],
    "ungated": ["--fps", "10", "--no-gate"],
}


def one(mode: str, suite: Path, folder: Path, seconds: float) -> dict[str, float]:
    """Median, std, p99 of one run in seconds, and its sample count."""
    path = folder / "run.usv"
    path.unlink(missing_ok=True)
    arguments = [str(suite), *MODES[mode], "--device", "cpu", "--inner", "1"]
    arguments += ["--max-time", f"{seconds:g}", "--save", str(path), "--warmup", "1"]
    if "--headless" in MODES[mode]:
        command = [sys.executable, "-m", "usv_tui", *arguments]
        subprocess.run(command, check=True, capture_output=True)
    else:
        seen = run(arguments, size=(120, 40))
        if seen.exit_status:
            raise SystemExit(f"{mode}: exit {seen.exit_status}: {seen.output[-400:]!r}")
    store = Store()
    store.apply(read(path))
    row = store.rows[0]
    kept = (row.flags.view() & int(EXCLUDED)) == 0
    times = row.seconds()[kept]
    return {
        "median": float(np.median(times)),
        "std": float(times.std(ddof=1)),
        "p99": float(np.quantile(times, 0.99)),
        "p99.9": float(np.quantile(times, 0.999)),
        "n": float(len(times)),
    }


def main() -> int:
    """Print the table; exit 1 when the screen's claim does not hold."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    failed = False
    print(f"{turns} turns of {seconds:g} s; ratios to headless of the same turn, median of turns")
    print(f"{'kernel':>8} {'mode':>9} {'median':>8} {'std':>7} {'p99':>7} {'p99.9':>7} {'n':>7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        for us in (50, 500, 5000):
            suite = folder / f"kernel_{us}.py"
            suite.write_text(SUITE.format(launches=launches_for(us)), encoding="utf-8")
            ratios: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
            for turn in range(turns):
                order = list(MODES) if turn % 2 else list(MODES)[::-1]
                found = {mode: one(mode, suite, folder, seconds) for mode in order}
                for mode in MODES:
                    ratios[mode].append(
                        {key: found[mode][key] / found["headless"][key] for key in found[mode]}
                    )
            for mode in MODES:
                middle = {
                    key: statistics.median(r[key] for r in ratios[mode]) for key in ratios[mode][0]
                }
                print(
                    f"{us:>5} us {mode:>9} {middle['median']:>7.4f}x {middle['std']:>6.2f}x "
                    f"{middle['p99']:>6.2f}x {middle['p99.9']:>6.2f}x {middle['n']:>6.2f}x"
                )
                if mode == "screen":
                    failed |= abs(middle["median"] - 1) > 0.005
                    failed |= middle["std"] > 1.2 or middle["p99"] > 1.2
    print("claim: under the screen median within 0.5 %, std and p99 within 1.2x of headless")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Cost of one refresh of all statistics: 20 rows, from a thousand to a million samples each.

`analyse` (drift, clock effect, paired ratios, modes, advice: once a second) and `snapshot` (rolling
and whole-epoch values: every frame), each after new samples have come for every row.

    python benchmarks/self/refresh_cost.py
"""

import statistics
import sys
import time

import numpy as np

from usv_tui.model import BenchInfo, Reading, RunConfig
from usv_tui.records import SCHEMA, Bench, Progress, Start, Telemetry
from usv_tui.session.store import Store

ROWS = 20
LOOKS = 15
PERIOD_NS = 20_000_000
"""A round of twenty rows."""
NS_PER_S = 1_000_000_000
CLAIM_MS = 20.0


def feed(store: Store, first: int, rounds: int, rng: np.random.Generator) -> int:
    """So many rounds of every row, straight into its columns; the time after them."""
    index = np.arange(first, first + rounds)
    swing = 1 + 0.01 * np.sin(index / 3000)
    for bench, row in store.rows.items():
        window = (1e6 * swing * rng.normal(1, 0.003, rounds)).astype(np.int64)
        row.add(
            index * PERIOD_NS + bench * NS_PER_S // 1000,
            window,
            np.ones(rounds, np.int64),
            index,
            np.zeros(rounds, np.int64),
            None,
        )
    return int(index[-1] + 1) * PERIOD_NS


def main() -> int:
    """Print the table; exit 1 when the claim does not hold."""
    rng = np.random.default_rng(0)
    print(f"{ROWS} rows, CPU ms (median of {LOOKS})")
    print(f"{'samples a row':>13}  {'analyse':>8}  {'snapshot':>8}")
    worst = 0.0
    for n in (1_000, 10_000, 100_000, 1_000_000):
        store = Store()
        store.apply([Start(SCHEMA, 0, 0, "made", RunConfig()), Progress(0, "measuring")])
        store.apply([Bench(0, BenchInfo(bench=i, name=f"row {i}", group="g")) for i in range(ROWS)])
        now_ns = feed(store, 0, n, rng)
        # The last minute of readings at 10 Hz; older ones are not looked at.
        start_ns = max(0, now_ns - 60 * NS_PER_S)
        store.apply(
            Telemetry(
                Reading(device="d", at_ns=t, sm_mhz=float(1700 + 15 * rng.integers(-2, 3)),
                        temp_c=60.0, power_mw=500_000, reasons=4)
            )
            for t in range(start_ns, now_ns, NS_PER_S // 10)
        )  # fmt: skip
        store.verdicts.ask(store, now_ns)
        store.snapshot(now_ns)
        analyse_ms, snapshot_ms = [], []
        done = n
        for _ in range(LOOKS):
            now_ns = feed(store, done, 50, rng)
            done += 50
            a = time.process_time_ns()
            store.verdicts.ask(store, now_ns)
            b = time.process_time_ns()
            store.snapshot(now_ns)
            c = time.process_time_ns()
            analyse_ms.append((b - a) / 1e6)
            snapshot_ms.append((c - b) / 1e6)
        one, two = statistics.median(analyse_ms), statistics.median(snapshot_ms)
        worst = max(worst, one)
        print(f"{n:>13,}  {one:>8.1f}  {two:>8.1f}")
    print(f"claim: analyse at most {CLAIM_MS:g} ms, flat in the number of samples")
    return int(worst > CLAIM_MS)


if __name__ == "__main__":
    sys.exit(main())

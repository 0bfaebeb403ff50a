"""Memory of a long session: ten minutes at 10 000 samples a second through store and journal.

The samples are made, not measured; the store keeps them all, as it does live, and takes a snapshot
and an analysis a second. The growth of the process over the samples must be what they need.

    python benchmarks/self/memory.py [MINUTES]
"""

import gc
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

from usv_tui.model import BenchInfo, Reading, RunConfig
from usv_tui.records import SCHEMA, Bench, Progress, Samples, Start, Telemetry
from usv_tui.session.journal import Journal
from usv_tui.session.store import Store

RATE = 10_000
ROWS = 8
BLOCK = 400
NS_PER_S = 1_000_000_000
CLAIM = 40.0


def resident_bytes() -> int:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def block(number: int, rng: np.random.Generator) -> Samples:
    """Rounds of eight rows as the loop emits them for an asynchronous timer."""
    order = rng.permuted(np.tile(np.arange(ROWS), (BLOCK // ROWS, 1)), axis=1).ravel()
    windows = (rng.normal(90_000, 900, BLOCK)).astype(np.int64)
    starts = np.arange(BLOCK) * (NS_PER_S // RATE)
    return Samples(
        number * (BLOCK // ROWS),
        ROWS,
        number * BLOCK * (NS_PER_S // RATE),
        order.tolist(),
        starts.tolist(),
        windows.tolist(),
        [1],
        (windows // 9).tolist(),
    )


def main() -> int:
    """Print the figures; exit 1 when the claim does not hold."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rng = np.random.default_rng(0)
    store = Store()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "long.usv")
        head = [Start(SCHEMA, 0, 0, "made", RunConfig()), Progress(0, "measuring")]
        head += [Bench(0, BenchInfo(bench=i, name=f"row {i}", group="g")) for i in range(ROWS)]
        store.apply(head)
        journal.add(head)
        blocks_a_second = RATE // BLOCK
        warm = 0
        for second in range(round(minutes * 60)):
            records = [block(second * blocks_a_second + i, rng) for i in range(blocks_a_second)]
            readings = [
                Telemetry(Reading(device="d", at_ns=second * NS_PER_S + k * NS_PER_S // 10,
                                  sm_mhz=1700.0, temp_c=60.0, power_mw=500_000, reasons=0))
                for k in range(10)
            ]  # fmt: skip
            store.apply([*records, *readings])
            journal.add([*records, *readings])
            journal.flush()
            now_ns = (second + 1) * NS_PER_S
            store.analyse(now_ns)
            store.snapshot(now_ns)
            if second == 4:
                gc.collect()
                warm = resident_bytes()
        journal.close()
        on_disk = journal.bytes_written
    gc.collect()
    samples = sum(row.t_ns.n for row in store.rows.values())
    grown = (resident_bytes() - warm) / (samples - 5 * RATE)
    print(f"{samples:,} samples: {grown:.1f} B each in memory (claim: at most {CLAIM:g}), "
          f"{on_disk / samples:.1f} B each on disk")  # fmt: skip
    return int(grown > CLAIM)


if __name__ == "__main__":
    sys.exit(main())

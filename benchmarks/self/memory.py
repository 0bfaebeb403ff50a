"""Memory of a long session, in virtual time: 24 hours, and an hour at 100 000 samples a second.

The samples are made, not measured; they go through store and journal as they do live, with a
snapshot each second. Once all there is room for is taken, nothing grows any more: resident memory,
descriptors, threads. With an argument, the hours and samples a second of one soak.

    python benchmarks/self/memory.py [HOURS RATE]
"""

import gc
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from usv_tui.model import BenchInfo, Reading, RunConfig
from usv_tui.records import SCHEMA, AnyRecord, Bench, Progress, Samples, Start, Telemetry
from usv_tui.session.journal import Journal
from usv_tui.session.store import ROOM, Store

ROWS = 8
BLOCK = 400
NS_PER_S = 1_000_000_000
SOAKS = ((24.0, 100), (1.0, 100_000))
KEEP_BYTES = 1 << 30
MOST_GROWTH = 24 << 20
"""What may be added after the warm-up: the file's cache of numpy's allocator, fragments."""


class Held(NamedTuple):
    """What a process holds."""

    rss_bytes: int
    descriptors: int
    threads: int


def held() -> Held:
    """Now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Held(
        pages * resource.getpagesize(),
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
    )


def blocks(rate: int) -> list[Samples]:
    """A second of rounds of eight rows as the loop emits them for an asynchronous timer."""
    rng = np.random.default_rng(0)
    made = []
    for first in range(0, rate, BLOCK):
        n = min(BLOCK, rate - first) // ROWS * ROWS
        order = rng.permuted(np.tile(np.arange(ROWS), (n // ROWS, 1)), axis=1).ravel()
        windows = rng.normal(0.9, 0.009, n) * NS_PER_S / rate
        starts = np.arange(n) * (NS_PER_S // rate)
        made.append(
            Samples(first // ROWS, ROWS, first * (NS_PER_S // rate), order.tolist(),
                    starts.tolist(), windows.astype(int).tolist(), [1],
                    (windows / 9).astype(int).tolist())
        )  # fmt: skip
    return made


def a_second(pattern: list[Samples], second: int, rate: int) -> Iterator[AnyRecord]:
    """The same second again, later, with ten readings."""
    t0_ns = (second + 1) * NS_PER_S
    for one in pattern:
        yield Samples(
            one.round + second * (rate // ROWS), ROWS, one.t0_ns + t0_ns, one.bench, one.dt_ns,
            one.window_ns, one.inner, one.host_ns,
        )  # fmt: skip
    for k in range(10):
        at_ns = t0_ns + k * NS_PER_S // 10
        yield Telemetry(Reading(device="d", at_ns=at_ns, sm_mhz=1700.0 + k, temp_c=60.0,
                                power_mw=500_000, reasons=0))  # fmt: skip


def soak(hours: float, rate: int, folder: Path) -> tuple[list[Held], Store, Journal]:
    """What is held at ten moments, the first when all room is taken (or after a tenth)."""
    store, journal = Store(), Journal(folder / f"{rate}.usv", KEEP_BYTES)
    head: list[AnyRecord] = [Start(SCHEMA, 1, 0, "made", RunConfig()), Progress(1, "measuring")]
    head += [Bench(1, BenchInfo(bench=i, name=f"row {i}", group="g")) for i in range(ROWS)]
    store.apply(head)
    journal.add(head)
    pattern, seconds = blocks(rate), round(hours * 3600)
    seen: list[Held] = []
    for second in range(seconds):
        records = list(a_second(pattern, second, rate))
        store.apply(records)
        journal.add(records)
        journal.flush()
        store.snapshot(store.last_ns)
        if (second + 1) % (seconds // 10) == 0:
            seen.append(held())
    journal.close()
    return seen, store, journal


def main() -> int:
    """Print the figures; exit 1 when anything grows."""
    given = [float(x) for x in sys.argv[1:3]]
    grows = False
    for hours, rate in [(given[0], int(given[1]))] if given else SOAKS:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            seen, store, journal = soak(hours, rate, Path(folder))
        # A day at a low rate fills the room for raw samples late: they are no growth of the rest.
        settled = seen[len(seen) // 2 :]
        most = max(x.rss_bytes for x in settled) - settled[0].rss_bytes
        steady = len({(x.descriptors, x.threads) for x in seen}) == 1
        grows |= most > MOST_GROWTH or not steady
        print(
            f"{hours:g} h at {rate:,}/s: {store.samples:,} samples, {store.n_dropped:,} of them "
            f"no longer in memory (room for {ROOM:,}), {journal.bytes_written / 1e9:.2f} GB on disk"
        )
        print("  resident MB at each tenth: " + " ".join(f"{x.rss_bytes / 1e6:.0f}" for x in seen))
        print(
            f"  growth over the second half {most / 1e6:.1f} MB; descriptors and threads "
            f"{'steady' if steady else 'NOT STEADY'}; took {time.perf_counter() - begin:.0f} s"
        )
    return int(grows)


if __name__ == "__main__":
    sys.exit(main())

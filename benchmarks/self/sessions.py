"""What session files cost: writing, size, reading (beside JSON lines and SQLite), opening, replay.

The samples are made, not measured: eight rows with host times beside, as a device gives them, and
ten readings a second. One session is written as a run does it, a flush each half second, with the
image at its end; the same samples go into JSON lines and into SQLite rows.

    python benchmarks/self/sessions.py [SAMPLES]      (10 million)
"""

import json
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from usv_tui.model import BenchInfo, Reading, RunConfig
from usv_tui.records import SCHEMA, AnyRecord, Bench, End, Progress, Samples, Start, Telemetry
from usv_tui.session import image, journal
from usv_tui.session.controller import IMAGE_BYTES, IMAGE_NS, IMAGES_IN
from usv_tui.session.opened import open_session
from usv_tui.session.replay import Playhead, ReplaySession
from usv_tui.session.store import Store

NS_PER_S = 1_000_000_000
ROWS = 8
RATE = 2_800
BLOCK = 400
COMPARED = 400_000
"""So many samples are written and read in each form."""
MOST_BYTES = 12.0
MOST_OPENING_S = 2.0


def block(number: int, rng: np.random.Generator) -> Samples:
    """Rounds of eight rows as the loop emits them for an asynchronous timer."""
    order = rng.permuted(np.tile(np.arange(ROWS), (BLOCK // ROWS, 1)), axis=1).ravel()
    windows = rng.normal(330_000, 3_000, BLOCK).astype(np.int64)
    starts = np.cumsum(windows + rng.integers(9_000, 12_000, BLOCK))
    host = rng.normal(9_000, 500, BLOCK).astype(np.int64)
    return Samples(
        number * (BLOCK // ROWS), ROWS, number * BLOCK * NS_PER_S // RATE, order.tolist(),
        starts.tolist(), windows.tolist(), [1], host.tolist(),
    )  # fmt: skip


def batches(samples: int) -> Iterator[list[AnyRecord]]:
    """What comes between two flushes."""
    rng = np.random.default_rng(0)
    head: list[AnyRecord] = [Start(SCHEMA, 1, 0, "made", RunConfig()), Progress(0, "measuring")]
    head += [Bench(0, BenchInfo(bench=i, name=f"row {i}", group="g")) for i in range(ROWS)]
    yield head
    made, number, t_ns = 0, 0, 0
    while made < samples:
        batch: list[AnyRecord] = []
        for _ in range(5):
            batch.append(Telemetry(Reading(device="d", at_ns=t_ns, sm_mhz=1700.0, temp_c=60.0,
                                           power_mw=500_000 + number % 97, reasons=0)))  # fmt: skip
            t_ns += NS_PER_S // 10
        while number * BLOCK * NS_PER_S // RATE < t_ns:
            batch.append(block(number, rng))
            number += 1
            made += BLOCK
        yield batch
    yield [End(t_ns, "done")]


def timed(do: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what came of it."""
    start = time.perf_counter()
    result = do()
    return time.perf_counter() - start, result


def rows_of(records: list[AnyRecord]) -> Iterator[tuple[int, ...]]:
    """One tuple a sample."""
    for record in records:
        if isinstance(record, Samples):
            for s in record.samples():
                yield s.bench, s.round, s.slot, s.start_ns, s.window_ns, s.inner, s.host_ns, s.flags


def write_session(path: Path, parts: Iterable[list[AnyRecord]]) -> None:
    """As a run does."""
    out = journal.Journal(path)
    for part in parts:
        out.add(part)
        out.flush()
    out.close()


def write_lines(path: Path, parts: list[list[AnyRecord]]) -> None:
    """An object a sample, with short names."""
    names = ("bench", "round", "slot", "t_ns", "window_ns", "inner", "host_ns", "flags")
    with path.open("w") as out:
        for part in parts:
            out.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n"
                           for row in rows_of(part))  # fmt: skip
            out.flush()


def write_sqlite(path: Path, parts: list[list[AnyRecord]]) -> None:
    """A row a sample, a transaction a flush."""
    with sqlite3.connect(path) as base:
        base.execute("create table s (bench, round, slot, t_ns, window_ns, inner, host_ns, flags)")
        for part in parts:
            base.executemany("insert into s values (?,?,?,?,?,?,?,?)", rows_of(part))
            base.commit()


def read_lines(path: Path) -> int:
    """Every object."""
    with path.open() as lines:
        return sum(1 for line in lines if json.loads(line))


def read_sqlite(path: Path) -> int:
    """Every row."""
    with sqlite3.connect(path) as base:
        return sum(1 for _ in base.execute("select * from s"))


def read_session(path: Path) -> int:
    """Every record."""
    return sum(len(r.bench) for r in journal.read(path) if isinstance(r, Samples))


def compare(folder: Path) -> float:
    """The three forms, one after the other; bytes a sample of ours."""
    parts = list(batches(COMPARED))
    n = sum(len(r.bench) for part in parts for r in part if isinstance(r, Samples))
    forms = {
        "session": (write_session, read_session),
        "JSON lines": (write_lines, read_lines),
        "SQLite": (write_sqlite, read_sqlite),
    }
    ours = 0.0
    for name, (write, read) in forms.items():
        path = folder / name
        write_s, _ = timed(lambda write=write, path=path: write(path, parts))
        read_s, found = timed(lambda read=read, path=path: read(path))
        assert found == n, (found, n)
        size = path.stat().st_size / n
        ours = ours or size
        print(f"{name:10}  write {write_s / n * 1e6:6.2f} us a sample   "
              f"read {n / read_s / 1e6:5.2f} M samples/s   {size:5.1f} B a sample")  # fmt: skip
    return ours


def big(path: Path, samples: int) -> Store:
    """A session with images as a run makes them, and the fold that the last is of."""
    store, images, due_ns = Store(), 0, 0
    out = journal.Journal(path)
    for part in batches(samples):
        store.apply(part)
        out.add(part)
        out.flush()
        if store.last_ns > due_ns + IMAGE_NS and out.bytes_written >= IMAGES_IN * (
            images + IMAGE_BYTES
        ):
            due_ns = store.last_ns
            made = image.records_of(store)
            images += sum(len(record.state) for record in made)
            out.add(made)
            out.flush()
    shutil.copyfile(path, path.with_name("killed"))
    os.truncate(path.with_name("killed"), out.bytes_written - 9)
    image_s, kept = timed(lambda: image.records_of(store))
    out.add(kept)  # type: ignore[arg-type]
    out.close()
    size = sum(len(record.state) for record in kept)  # type: ignore[attr-defined]
    each = out.bytes_written / store.samples
    print(f"{store.samples:,} samples: {each:.1f} B each with its images")
    print(f"the image: {size / 1e6:.1f} MB, made in {image_s:.2f} s")
    return store


def frame_cost(of: Callable[[], object]) -> float:
    """Milliseconds a frame's snapshot takes, the median of many."""
    return float(np.median([timed(of)[0] for _ in range(50)])) * 1e3


def without_images(path: Path, samples: int) -> Path:
    """The same, as another version of usv-tui leaves it to this one."""
    write_session(path, batches(samples))
    return path


def opening(path: Path) -> float:
    """Seconds until the screen has something to show, and what it takes to come to the end."""
    head = Playhead()
    first_s, replay = timed(lambda: ReplaySession(path, head))
    rest_s, _ = timed(lambda: catch_up(replay))  # type: ignore[arg-type]
    seek_s, _ = timed(lambda: replay.seek("back"))  # type: ignore[attr-defined]
    again_s, _ = timed(lambda: replay.seek("back"))  # type: ignore[attr-defined]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"  {path.name:9} shown in {first_s:.2f} s, whole {rest_s:.1f} s later; 10 s back takes "
          f"{seek_s:.2f} s, again {again_s:.2f} s; {rss:.0f} MB at most")  # fmt: skip
    return first_s


def catch_up(replay: ReplaySession) -> None:
    """As the screen does, look by look."""
    while replay.snapshot(0).progress.startswith("reading"):
        replay.pump()


def main() -> int:
    """Print the figures; exit 1 when a claim does not hold."""
    samples = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = compare(folder)
        path = folder / "big.usv"
        store = big(path, samples)
        opening_s, opened = timed(lambda: open_session(path))
        assert opened.store.samples == store.samples  # type: ignore[attr-defined]
        replay_s, replay = timed(lambda: ReplaySession(path, Playhead()))
        live_ms = frame_cost(lambda: store.snapshot(store.last_ns))
        replay_ms = frame_cost(lambda: replay.snapshot(0))  # type: ignore[attr-defined]
        print(f"opened in {opening_s:.2f} s, under the screen in {replay_s:.2f} s")
        bare = without_images(folder / "no image", samples)
        shown_s = [opening(each) for each in (path, folder / "killed", bare)]
        print(f"a frame's snapshot: {live_ms:.2f} ms live, {replay_ms:.2f} ms in the replay")
    return int(size > MOST_BYTES or max(opening_s, replay_s, *shown_s) > MOST_OPENING_S)


if __name__ == "__main__":
    sys.exit(main())

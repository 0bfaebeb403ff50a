"""Cache truth: sizes, a flush that evicts, and badges that do not flatter."""

import functools
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.fake_cuda import FakeTorch
from usv_tui.timers import cache
from usv_tui.timers.cache import cpu_cache_bytes, distinct_bytes, make_flusher, rotation_badge
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot

MIB = 1 << 20


def shortest_sum_ns(numbers: np.ndarray, flush: object) -> int:
    """The shortest of several reads of an array that was just read, or flushed since."""
    took = []
    for _ in range(15):
        numbers.sum()
        if flush is not None:
            flush()
        start = time.perf_counter_ns()
        numbers.sum()
        took.append(time.perf_counter_ns() - start)
    return min(took)


def test_flush_on_the_cpu_really_evicts() -> None:
    """Data that fit into a core's own cache take far longer to read after the flush."""
    flusher = make_flusher("cpu")
    numbers = np.zeros(256 * 1024 // 8, dtype=np.int64)

    warm = shortest_sum_ns(numbers, None)
    cold = shortest_sum_ns(numbers, flusher.flush)

    assert flusher.flush is not None
    assert cold > 1.5 * warm


def test_flush_reads_and_writes_every_line() -> None:
    """Each flush changes all of its buffer: nothing is written around the caches or skipped."""
    flush = cache._cpu_flush(1 << 16, None)
    numbers = next(
        c.cell_contents
        for c in flush.__closure__
        if isinstance(c.cell_contents, np.ndarray) and c.cell_contents.ndim
    )

    flush()
    flush()

    assert numbers.nbytes == 1 << 16
    assert (numbers == 2).all()


def test_flush_is_larger_than_the_last_level_cache() -> None:
    """By default twice the cache is written; a size in MB is taken as it is, and doubted."""
    torch = FakeTorch(l2_bytes=50 * MIB)

    default = make_flusher("cuda:0", torch=torch)
    small = make_flusher("cuda:0", flush_mb=8, torch=torch)

    assert (default.flush_bytes, default.l2_bytes) == (100 * MIB, 50 * MIB)
    assert default.doubt(1, is_cold_each=False) is None
    assert small.flush_bytes == 8 * MIB
    doubt = small.doubt(1, is_cold_each=False)
    assert doubt is not None
    assert doubt.code == "cold that is warm"


def test_flush_between_several_calls_is_doubted_unless_each_is_flushed() -> None:
    """One flush for fifty calls leaves forty-nine warm."""
    flusher = make_flusher("cuda", torch=FakeTorch())

    doubt = flusher.doubt(50, is_cold_each=False)

    assert doubt is not None
    assert doubt.evidence["reason"] == "1 of 50 calls is flushed"
    assert flusher.doubt(50, is_cold_each=True) is None


def test_flush_that_cannot_be_had_says_why() -> None:
    """No memory, no torch, no size, no such device: no flush, and a reason."""
    full = FakeTorch(memory_bytes=10 * MIB)

    for flusher, word in (
        (make_flusher("cuda", torch=full), "out of memory"),
        (make_flusher("cuda"), "torch is needed"),
        (make_flusher("cpu", flush_mb=0), "is none"),
        (make_flusher("sim:h100"), "no cache"),
    ):
        assert flusher.flush is None
        assert word in flusher.reason


def test_flush_on_a_gpu_is_visible_in_the_times() -> None:
    """A kernel that reads 20 MiB takes longer behind a flush, and the flush is in no window."""
    torch = FakeTorch(l2_bytes=50 * MIB)
    timer = EventTimer(torch, time_source=torch.time)
    data = torch.empty(20 * MIB, dtype=np.uint8)
    flusher = make_flusher("cuda", torch=torch)

    def read() -> None:
        torch.kernel(2000, touches=[data])

    medians = []
    for bench, flush in ((0, None), (1, flusher.flush)):
        slot = Slot(bench, read, flush=flush)
        timer.enqueue(0, [slot] * 21)
        windows = [w for r in timer.harvest(wait=True) for w in r.window_ns]
        medians.append(float(np.median(windows)))

    assert medians[0] == pytest.approx(3300, abs=64)
    assert medians[1] == pytest.approx(3300 + 20 * MIB / 3000, rel=0.02)


def test_infinity_cache_counts_on_chips_that_have_one() -> None:
    """On MI300 the cache to be emptied is the one behind the L2, which torch does not list."""
    torch = FakeTorch(l2_bytes=4 * MIB, hip="6.4", arch="gfx942:sramecc+:xnack-")

    assert make_flusher("cuda", torch=torch).l2_bytes == 256 * MIB


def write_caches(root: Path, cpu: int, caches: list[tuple[int, str, str, str]]) -> None:
    """A sysfs tree: level, type, size, who shares it."""
    for i, (level, kind, size, shared) in enumerate(caches):
        index = root / f"cpu{cpu}" / "cache" / f"index{i}"
        index.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (index / name).write_text(f"{text}\n")
        (index / "shared_cpu_list").write_text(f"{shared}\n")


def test_cpu_cache_size_is_that_of_the_last_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last level counts, once for each group of cores that threads may run on."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2})
    levels = [(1, "Data", "32K", "{0}"), (1, "Instruction", "32K", "{0}"), (2, "Unified", "1M", "")]
    write_caches(tmp_path, 0, [*levels, (3, "Unified", "32768K", "0-1")])
    write_caches(tmp_path, 1, [*levels, (3, "Unified", "32768K", "0-1")])
    write_caches(tmp_path, 2, [*levels, (3, "Unified", "16M", "2-3")])

    assert cpu_cache_bytes(1, tmp_path) == 32 * MIB
    assert cpu_cache_bytes(8, tmp_path) == 48 * MIB


def test_cpu_cache_size_is_unknown_where_nobody_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sysfs and sysconf the size is None, and the flush takes a size above any cache."""
    monkeypatch.setattr("os.sysconf", lambda _name: 0)
    monkeypatch.setattr(cache, "_CPU_CACHES", tmp_path)

    assert cpu_cache_bytes(1, tmp_path) is None
    assert cache._flush_bytes(None, None) == 256 * MIB


def test_rotation_that_fits_in_the_cache_is_called_warm() -> None:
    """A set below twice the cache stays in it: the badge says warm, the notice says why."""
    sets = [[np.zeros(MIB, np.uint8) for _ in range(4)]]

    badge, doubt = rotation_badge(sets, 50 * MIB)

    assert badge == "warm"
    assert doubt is not None
    assert doubt.code == "fits in cache"
    assert doubt.evidence["rotated_bytes"] == 4 * MIB


def test_rotation_that_exceeds_the_cache_keeps_its_badge() -> None:
    """Twice the cache or more is a rotation; without a size there is nothing to say against it."""
    sets = [[np.zeros(MIB, np.uint8) for _ in range(4)]]

    assert rotation_badge(sets, 2 * MIB) == ("rotating(4)", None)
    assert rotation_badge([["a", "b", "c"]], 2 * MIB) == ("rotating(3)", None)
    assert rotation_badge([], 2 * MIB) == ("warm", None)


def test_rotation_counts_each_memory_once() -> None:
    """The same tensor four times, and views of one buffer, are no larger than the buffer."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(MIB, dtype=torch.uint8)
    array = np.zeros(MIB, np.uint8)

    assert distinct_bytes([tensor] * 4) == MIB
    assert distinct_bytes([tensor[: MIB // 2], tensor[MIB // 2 :]]) == MIB
    assert distinct_bytes([array[:10], array[10:]]) == MIB
    assert distinct_bytes([(tensor, {"a": array})]) == 2 * MIB
    assert distinct_bytes(["x", 3, None]) is None


def test_memory_is_seen_through_what_a_callable_holds():
    """The buffers that a function or a partial call closes over are what it rotates through."""
    a, b = np.zeros(1000), np.zeros(500)

    def closes():
        return a

    held = functools.partial(closes, b)  # type: ignore[call-arg]
    assert distinct_bytes([closes, held]) == a.nbytes + b.nbytes

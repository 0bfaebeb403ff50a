"""Memory that a callable on the host leaves behind, told from what only grows for a while."""

import gc
import mmap

import numpy as np
import pytest

from usv_tui.engine.memory import resident_bytes, watch_memory
from usv_tui.engine.worker import make_timer
from usv_tui.model import RunConfig
from usv_tui.timers.wall import Slot, WallTimer
from usv_tui.timesource import ManualTime

KB = 1000
MS = 1_000_000


class Process:
    """A process whose size is a number, and a row that changes it by the bytes of each call."""

    def __init__(self, grows, call_ns=0):
        self.calls = 0
        self.bytes = 500 << 20
        self.time = ManualTime(1)
        self._grows = grows
        self._call_ns = call_ns

    def fn(self):
        """One call."""
        self.bytes += self._grows(self.calls)
        self.calls += 1
        self.time.advance(self._call_ns)

    def watch(self):
        """What is said of the row."""
        return watch_memory(Slot(0, self.fn), self.time.now_ns, lambda: self.bytes)


def test_a_leak_is_found_with_its_bytes_a_call():
    """A row that leaves 100 kB with every call is told so, after a few hundred calls at most."""
    process = Process(lambda _: 100 * KB, MS)

    found = process.watch()

    assert found is not None
    assert found.code == "memory grows"
    assert found.evidence["bytes_per_call"] == 100 * KB
    assert process.calls < 300


def test_a_large_leak_is_found_before_it_hurts():
    """Looking at a row that leaves 50 MB with each call leaves under a gigabyte."""
    process = Process(lambda _: 50_000 * KB)

    assert process.watch() is not None
    assert process.bytes < 1500 << 20


@pytest.mark.parametrize(
    "grows",
    [
        lambda _: 0,
        lambda _: 4 * KB,
        lambda call: 4_000 * KB if call < 4 else 0,
        lambda call: 500 * KB if call < 64 else 0,
        lambda call: 900 * KB if call % 2 else -900 * KB,
        lambda call: 2_000 * KB if call in (7, 15, 23, 31, 39) else 0,
        lambda call: 5_000 * KB if call < 8 else 40 * KB,
    ],
    ids=["none", "pages", "start", "buffers", "in and out", "pool", "uneven"],
)
def test_growth_that_stops_is_no_leak(grows):
    """Allocators fill pools and buffers are touched for the first time: that ends."""
    assert Process(grows).watch() is None


def test_a_clean_row_costs_one_chunk_of_calls():
    """Nothing grows, so nothing more is looked at."""
    process = Process(lambda _: 0)
    process.watch()

    assert process.calls == 8


def test_a_long_call_is_not_repeated():
    """A row of 20 ms is called once and left alone."""
    process = Process(lambda _: 100 * KB, 20 * MS)

    assert process.watch() is None
    assert process.calls == 1


def test_reset_comes_before_each_call():
    """A row that needs its reset gets it here, too."""
    seen = []
    slot = Slot(0, lambda: seen.append("call"), reset=lambda: seen.append("reset"))
    watch_memory(slot, ManualTime(1).now_ns, lambda: 0)

    assert seen == ["reset", "call"] * 8


def test_what_waits_for_the_collector_is_no_leak():
    """Cyclic garbage is given back when it is collected."""
    size = [0]

    class Garbage:
        def __init__(self):
            size[0] += 100 * KB
            self.me = self

        def __del__(self):
            size[0] -= 100 * KB

    gc.disable()
    try:
        found = watch_memory(
            Slot(0, lambda: Garbage() and None), ManualTime(1).now_ns, lambda: size[0]
        )
    finally:
        gc.enable()

    assert found is None


def test_the_size_of_this_process_is_read():
    """A block of 64 MiB that is written to shows in it."""
    before = resident_bytes()
    block = np.ones(8 << 20)
    after = resident_bytes()

    assert after - before > 50 << 20
    assert block.nbytes == 64 << 20


def test_the_timer_of_the_cpu_looks_for_it():
    """A row that really keeps 128 KiB a call gets the finding from the timer that a run uses."""
    kept = []
    timer = make_timer(RunConfig(device="cpu"), None)

    def leak():
        # Straight from the system: an allocator may have pages left from before.
        block = mmap.mmap(-1, 128 << 10)
        block.write(b"x" * (128 << 10))
        kept.append(block)

    slot = Slot(0, leak)
    leak()

    found = [code for code, _ in timer.examine(slot)]
    clean = timer.examine(Slot(1, lambda: np.ones(12_500).sum()))

    assert found == ["memory grows"]
    assert clean == []


def test_a_row_that_raises_meanwhile_is_left_to_its_first_window():
    """The examination says nothing of it and raises nothing."""

    def broken():
        raise ValueError

    assert WallTimer(watch=watch_memory).examine(Slot(0, broken)) == []

"""Memory over the whole run: leaks are found wherever they begin, and nothing else is one."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from usv_tui.engine.memory import MemoryWatch, Said
from usv_tui.model import Notice
from usv_tui.report.wording.notices import sentence
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S, ManualTime

KB, MB = 1000, 1_000_000
MS = 1_000_000
Extra = Callable[[float], float]


class Process:
    """Rows that take turns, each leaving some bytes a call, in a process with a life of its own."""

    def __init__(
        self,
        leaks: list[Callable[[float], float]],
        call_s: list[float],
        extra: Extra = lambda _: 0.0,
        *,
        samples_per_call: int = 0,
        noise: float = 64 * KB,
    ) -> None:
        self.time = ManualTime(1)
        self.left = 0.0
        self._extra = extra
        self._rng = np.random.default_rng(1)
        self._noise = noise
        self.samples = 0
        self._samples_per_call = samples_per_call
        self.slots = [Slot(i, self._row(leaks[i], call_s[i])) for i in range(len(leaks))]
        self.watch = MemoryWatch(self.time.now_ns, self.size)
        self.said: list[tuple[float, Said]] = []

    def seconds(self) -> float:
        """Since the start."""
        return self.time.now_ns() / NS_PER_S

    def _row(self, leak: Callable[[float], float], call_s: float) -> Callable[[], object]:
        def fn() -> None:
            self.left += leak(self.seconds())
            self.time.advance(round(call_s * NS_PER_S))

        return fn

    def size(self) -> int:
        """What the kernel says."""
        jitter = self._rng.normal(0, self._noise)
        own = 34 * self.samples
        return round((500 << 20) + self.left + self._extra(self.seconds()) + own + jitter)

    def run(self, seconds: float, *, is_final: bool = False) -> list[tuple[float, Said]]:
        """Rounds of all rows."""
        end = self.seconds() + seconds
        while self.seconds() < end:
            for slot in self.slots:
                slot.fn()
                self.samples += self._samples_per_call
            self._look()
        if is_final:
            self._look(is_final=True)
        return self.said

    def _look(self, *, is_final: bool = False) -> None:
        found = self.watch.look(self.samples, self.slots, is_final=is_final)
        self.said += [(self.seconds(), said) for said in found]


def never(_: float) -> float:
    """No leak."""
    return 0.0


def after(begin_s: float, size: float) -> Callable[[float], float]:
    """A leak that begins late."""
    return lambda t: size if t >= begin_s else 0.0


@pytest.mark.parametrize("begin_s", [0.0, 7.0, 61.0])
@pytest.mark.parametrize(
    ("size", "call_s"), [(10 * KB, 0.01), (MB, 0.5), (8 * MB, 2.0), (60 * MB, 4.0)]
)
def test_a_leak_is_found_within_thirty_seconds_and_its_row_named(
    begin_s: float, size: float, call_s: float
) -> None:
    """Late or early, in a quick row or a slow one, the row that leaks is the one that is told."""
    process = Process([never, after(begin_s, size)], [0.01, call_s])

    process.run(begin_s + 31)

    told = [(at, bench, e) for at, (code, bench, e) in process.said if code == "memory grows"]
    assert len(told) == 1
    at, bench, evidence = told[0]
    assert begin_s < at < begin_s + 30 + call_s
    assert bench == 1
    assert evidence["bytes_per_call"] == pytest.approx(size, rel=0.5)


CLEAN: dict[str, Extra] = {
    "flat": lambda _: 0.0,
    "a cache that fills once": lambda t: 400 * MB * (1 - np.exp(-t / 3)),
    "a cache that fills evenly for eight seconds": lambda t: 30 * MB * min(t, 8),
    "allocator steps": lambda t: 40 * MB * (t // 45),
    "a step a minute": lambda t: 200 * MB * (t // 61),
    "a saw of five seconds": lambda t: 12 * MB * (t % 5),
    "a saw of eleven seconds": lambda t: 6 * MB * (t % 11),
    "warm-up of libraries": lambda t: 180 * MB * (t > 0.5) + 60 * MB * (t > 2) + 20 * MB * (t > 5),
    "a slow creep": lambda t: 60 * KB * t,
}


@pytest.mark.parametrize("name", list(CLEAN))
@pytest.mark.parametrize("samples_per_call", [0, 100])
def test_what_fills_steps_or_comes_back_is_no_leak(name: str, samples_per_call: int) -> None:
    """Pools, saws and our own samples (ten thousand a second) make no notice in two minutes."""
    process = Process([never], [0.01], CLEAN[name], samples_per_call=samples_per_call)

    assert process.run(120, is_final=True) == []


def test_garbage_is_collected_before_a_row_is_blamed() -> None:
    """Cycles that only the collector frees are garbage while it is off, not a leak."""
    process = Process([after(0, 100 * KB)], [0.01])

    def collected(phase: str, _info: object) -> None:
        if phase == "start":
            process.left = 0.0

    gc.callbacks.append(collected)
    gc.disable()
    try:
        said = process.run(60)
    finally:
        gc.enable()
        gc.callbacks.remove(collected)

    assert said == []


def test_growth_that_no_row_makes_is_said_of_the_process() -> None:
    """A thread that leaks by itself, beside rows that do not: no row is blamed."""
    process = Process([never, never], [0.01, 0.02])
    grown = [0.0]

    def size() -> int:
        return round(500 * MB + grown[0])

    watch = MemoryWatch(process.time.now_ns, size)
    said = []
    for _ in range(3000):
        process.time.advance(10 * MS)
        grown[0] += MB / 100
        said += watch.look(0, process.slots)

    assert [(code, bench) for code, bench, _ in said] == [("memory grows", None)]
    assert "none of the 2 rows" in sentence(Notice(code=said[0][0], at_ns=0, evidence=said[0][2]))


def test_a_verdict_is_taken_back_when_the_growth_ends() -> None:
    """A pool that took forty seconds to fill was no leak: the notice is withdrawn."""
    process = Process([lambda t: 100 * KB if t < 40 else 0.0], [0.01])

    process.run(100)

    assert [(code, e.get("withdrawn", False)) for _, (code, _, e) in process.said] == [
        ("memory grows", False),
        ("memory grows", True),
    ]


def test_a_short_run_is_looked_at_when_it_ends() -> None:
    """Ten seconds that grow evenly from end to end are told at the end."""
    leaking = Process([after(0, 200 * KB)], [0.01]).run(9, is_final=True)
    clean = Process([never], [0.01], lambda t: 30 * MB * min(t, 3)).run(9, is_final=True)

    assert [(code, bench) for _, (code, bench, _) in leaking] == [("memory grows", 0)]
    assert clean == []


def test_a_rest_is_no_growth() -> None:
    """What has grown while measuring stood still says nothing of the rows."""
    process = Process([never], [0.01])
    process.run(30)
    process.left += 300 * MB
    process.time.advance(120 * NS_PER_S)

    assert process.run(40) == []


def test_looking_at_a_great_leak_leaves_little() -> None:
    """A row that leaves 50 MB a call is called alone twice, not for a quarter of a second."""
    process = Process([after(0, 50 * MB)], [0.001])
    process.run(0.05)
    before = process.left

    grown, calls, _ = process.watch._alone(process.watch._series[0], process.slots[0])

    assert calls <= 2
    assert grown == pytest.approx(process.left - before, abs=2 * MB)


def test_the_device_is_watched_by_its_allocator() -> None:
    """A few hundred bytes a call on the device are exact, and enough."""
    time = ManualTime(1)
    allocated = [0]

    def fn() -> None:
        allocated[0] += 512
        time.advance(10 * MS)

    slots = [Slot(0, lambda: time.advance(10 * MS)), Slot(1, fn)]
    watch = MemoryWatch(time.now_ns, lambda: 500 * MB, lambda: allocated[0])
    said: list[Said] = []
    for _ in range(3000):
        for slot in slots:
            slot.fn()
        said += watch.look(0, slots)

    assert [(code, bench, e["where"]) for code, bench, e in said] == [("memory grows", 1, "device")]
    assert said[0][2]["bytes_per_call"] == 512

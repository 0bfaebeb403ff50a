"""A row that is called warm is as warm beside its neighbours as it is alone."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from tests.fakes.fake_cuda import FakeTorch
from tests.fakes.loop import MS, Loop
from usv_tui.engine.runner import Runner
from usv_tui.engine.warmth import MAX_CALL_NS, MAX_REFILL
from usv_tui.model import Benchmark, CacheMode, RunConfig, Suite
from usv_tui.records import Bench, BenchError, Calibrated, Noted, Samples
from usv_tui.sim.gpu import SimCall, SimGpu
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.profiles import find_card
from usv_tui.sim.scenarios import Scenario
from usv_tui.sim.timer import SimTimer
from usv_tui.timers.cache import Flusher
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot, WallTimer
from usv_tui.timesource import ManualTime

MIB = 1 << 20
US = 1_000


def kernel(name: str, us: float, footprint_mib: int = 0, **more: object) -> SimKernel:
    """A kernel that the clock does not touch, so that only the caches can change its time."""
    settings = {"alpha": 0.0, "activity": 0.1, "noise": 0.002} | more
    return SimKernel(name=name, t0_ns=us * US, footprint_bytes=footprint_mib * MIB, **settings)


BASE = kernel("base", 200, 8, cold_gain=0.1)
MINE = kernel("mine", 180, 30, cold_gain=0.4)
STREAM = kernel("stream", 900, 400)
COMPUTE = kernel("compute", 5000, alpha=1.0, activity=0.3)
SMALL = kernel("small", 50, 1)


class SimRun:
    """The real runner on a simulated card of 50 MiB cache, in virtual time."""

    def __init__(self, kernels: list[SimKernel], reset: SimKernel | None = None, **config: object):
        time = ManualTime(1000)
        plan = Scenario(name="x", summary="", look_for="", kernels=tuple(kernels))
        self.gpu = gpu = SimGpu(find_card("h100"), plan, 0, time)
        self.records: list = []
        rows = tuple(self._row(k, reset if k is SMALL else None) for k in kernels)
        settings = {"iters": 120, "warmup_max_s": 10.0, "target_window_s": 1e-3} | config
        flusher = Flusher(gpu.flush, flush_bytes=gpu.flush_bytes, l2_bytes=gpu.card.l2_bytes)
        Runner(
            Suite("x.py", rows),
            RunConfig(device="sim", **settings),
            SimTimer(gpu),
            self.records.append,
            time_source=time,
            make_flusher=lambda: flusher,
        ).run()
        self.names = {r.info.name: r.info.bench for r in self.records if isinstance(r, Bench)}

    def _row(self, what: SimKernel, reset: SimKernel | None) -> Benchmark:
        call = SimCall(what, self.gpu)
        return Benchmark(
            what.name,
            lambda _: call,
            group="g" if what in (BASE, MINE) else what.name,
            is_baseline=what is BASE,
            reset=None if reset is None else SimCall(reset, self.gpu),
        )

    def median_ns(self, name: str) -> float:
        """Of one call, after warm-up."""
        bench = self.names[name]
        return statistics.median(
            s.window_ns / s.inner
            for r in self.records
            if isinstance(r, Samples)
            for s in r.samples()
            if s.bench == bench and not s.flags
        )

    @property
    def ratio(self) -> float:
        """Of the group's medians."""
        return self.median_ns("mine") / self.median_ns("base")

    def calibrated(self, name: str) -> Calibrated:
        """What was last said of a row."""
        found = [r for r in self.records if isinstance(r, Calibrated)]
        return [r for r in found if r.bench == self.names[name]][-1]

    def notices(self, name: str) -> list[str]:
        """Codes that were noticed of a row."""
        notices = [r.notice for r in self.records if isinstance(r, Noted)]
        return [n.code for n in notices if n.bench == self.names[name]]


def neighbours(kind: str) -> tuple[list[SimKernel], SimKernel | None]:
    """Rows of no business of the group's, and what their reset does."""
    return {
        "a big streaming buffer": ([STREAM], None),
        "heavy compute": ([COMPUTE], None),
        "a reset that fills the cache": ([SMALL], kernel("reset", 300, 200)),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["a big streaming buffer", "heavy compute", "a reset that fills the cache"]
)
def test_the_ratio_inside_a_group_is_not_changed_by_rows_outside_of_it(kind):
    """With neighbours that evict everything a warm group has the ratio that it has by itself."""
    others, reset = neighbours(kind)
    alone = SimRun([BASE, MINE])
    beside = SimRun([BASE, MINE, *others], reset)

    assert beside.ratio == pytest.approx(alone.ratio, rel=0.003)
    assert beside.ratio == pytest.approx(0.9, rel=0.01)
    assert {alone.calibrated(n).cache for n in ("base", "mine")} == {"warm"}
    assert {beside.calibrated(n).cache for n in ("base", "mine")} == {"warm"}


def test_as_is_keeps_what_the_neighbours_left_and_says_so():
    """The mode of its own: the ratio depends on the neighbours, and the solo value stands by."""
    alone = SimRun([BASE, MINE], cache=CacheMode.AS_IS)
    beside = SimRun([BASE, MINE, STREAM], cache=CacheMode.AS_IS)

    assert beside.ratio > 1.02 * alone.ratio
    found = beside.calibrated("mine")
    assert (found.cache, found.refill) == ("as-is", 0)
    assert found.alone_ns == pytest.approx(180 * US, rel=0.02)
    assert found.here_ns > 1.02 * found.alone_ns
    assert "not as alone" in beside.notices("mine")


@pytest.mark.parametrize("calls", [1, 3, 8])
def test_as_many_untimed_calls_as_it_takes_come_before_a_window(calls):
    """A kernel whose data come back over several calls gets these calls, and is then warm."""
    slow = kernel("slow", 900, 30, cold_gain=0.5, refill_calls=calls)

    run = SimRun([slow, STREAM])

    assert calls <= run.calibrated("slow").refill <= 2 * calls
    assert run.median_ns("slow") == pytest.approx(900 * US, rel=0.01)
    assert run.calibrated("slow").cache == "warm"


def test_a_row_that_cannot_be_made_warm_says_so():
    """Where the bound does not suffice the row is not called warm, and says what it is alone."""
    sluggish = kernel("sluggish", 1500, 30, cold_gain=1.0, refill_calls=40)

    run = SimRun([sluggish, STREAM])

    assert run.calibrated("sluggish").cache == "not warm"
    assert "cache not warm" in run.notices("sluggish")
    assert run.calibrated("sluggish").refill <= MAX_REFILL


def test_a_row_alone_is_warm_by_itself():
    """Nobody evicts what a single row left: no untimed calls."""
    run = SimRun([kernel("only", 900, 30, cold_gain=0.5)])
    launched = run.gpu.launches

    assert run.calibrated("only").cache == "warm"
    assert run.median_ns("only") == pytest.approx(900 * US, rel=0.01)
    timed = sum(len(r.bench) for r in run.records if isinstance(r, Samples) and r.round >= 0)
    assert launched < timed + 40


# -- the wall timer


def beside_others(loop: Loop, name: str, warm: int, cold: int, calls: int = 1) -> Callable:
    """What a call costs that finds its own data only after so many calls of its own."""

    def cost(_call: int) -> int:
        return warm if loop.calls[-1 - calls : -1] == [name] * calls else cold

    return cost


def test_a_warm_row_runs_untimed_right_before_each_window():
    """On the wall clock: every window holds the warm time, though each follows another row."""
    loop = Loop(iters=20, warmup_max_s=10.0)
    loop.add("a", beside_others(loop, "a", MS, 2 * MS))
    loop.add("b", MS)

    loop.run()

    assert {s.window_ns for s in loop.counted()} == {MS}


def test_as_is_runs_nothing_before_a_window():
    """The same rows as they come: each follows another row, and pays for it."""
    loop = Loop(iters=20, warmup_max_s=10.0, cache=CacheMode.AS_IS)
    loop.add("a", beside_others(loop, "a", MS, 2 * MS))
    loop.add("b", MS)

    loop.run()

    assert statistics.mean(s.window_ns for s in loop.counted(0)) > 1.4 * MS
    assert "not as alone" in [r.notice.code for r in loop.of(Noted)]


def test_a_destructive_row_is_reset_before_each_call():
    """With `reset`: reset, untimed call, reset, timed call; the row says where a reset lies."""
    loop = Loop(iters=5, inner=None)
    loop.add("in place", MS, reset=loop.spend("reset", MS // 10))
    loop.add("other", MS)

    loop.run()

    mine = [c for c in loop.calls if c != "other"]
    assert mine == ["reset", "in place"] * (len(mine) // 2)
    assert loop.of(Calibrated)[0].cache == "warm+reset"
    assert {s.window_ns for s in loop.counted(0)} == {MS}


def test_a_very_slow_row_is_not_run_twice_for_each_sample():
    """Beyond the bound no call goes untimed, and the row is not called warm."""
    loop = Loop(iters=3)
    loop.add("slow", 2 * MAX_CALL_NS)
    loop.add("quick", MS)

    loop.run()

    slow, quick = loop.of(Calibrated)
    assert (slow.cache, slow.refill, quick.cache, quick.refill) == ("not warm", 0, "warm", 1)


def test_solo_and_back_changes_what_runs_before_a_window():
    """A row alone needs no untimed calls; with the others back it has them again."""
    loop = Loop(max_time_s=3.0)
    loop.add("a", beside_others(loop, "a", MS, 2 * MS))
    loop.add("b", MS)
    loop.at(1.0, "solo", "", 0)
    loop.at(2.0, "all")

    loop.run()

    assert {s.window_ns for s in loop.counted(0)} == {MS}
    alone = [s for s in loop.samples(0) if 1.1 < (s.start_ns - 100e9) * 1e-9 < 1.9]
    assert len(alone) > 700


def test_a_row_that_fails_while_it_is_looked_at_costs_only_itself():
    """An exception in the look for caches retires its row; the others are measured."""
    loop = Loop(iters=20, warmup_max_s=10.0)
    loop.add("good", MS)

    def fail(_call: int) -> None:
        if loop.time.seconds > 1.15:
            raise RuntimeError("broken")

    loop.add("bad", MS, result=fail)

    loop.run()

    assert [e.bench for e in loop.of(BenchError)] == [1]
    assert len(loop.counted(0)) == 20


def test_refilling_calls_are_in_no_phase():
    """A callable with phases is called without its listener before a window."""
    seen = []
    slot = Slot(0, lambda: seen.append(1), 2)
    slot.set_refill(3)
    timer = WallTimer()

    timer.enqueue(0, [slot])

    assert len(seen) == 5
    assert [s.inner for r in timer.harvest(wait=True) for s in r.samples()] == [2]


# -- device events


@pytest.mark.parametrize("inner", [1, 4])
def test_under_events_a_warm_row_is_warm_beside_a_big_one(inner):
    """A kernel whose 20 MiB a neighbour evicts is timed warm, and the start times stay right."""
    torch = FakeTorch(l2_bytes=50 * MIB)
    data, big = (torch.empty(n * MIB, dtype=np.uint8) for n in (20, 200))
    small = Benchmark("small", lambda _: lambda: torch.kernel(300 * US, touches=[data]))
    large = Benchmark("large", lambda _: lambda: torch.kernel(300 * US, touches=[big]))

    def windows(mode: CacheMode) -> list[int]:
        records: list = []
        Runner(
            Suite("x.py", (small, large)),
            RunConfig(device="cuda:0", iters=50, warmup_max_s=0.0, inner=inner, cache=mode),
            EventTimer(torch, time_source=torch.time, probe=False),
            records.append,
            time_source=torch.time,
        ).run()
        samples = [s for r in records if isinstance(r, Samples) for s in r.samples()]
        assert [s.start_ns for s in samples] == sorted(s.start_ns for s in samples)
        return [s.window_ns for s in samples if s.bench == 0]

    assert statistics.median(windows(CacheMode.WARM)) == pytest.approx(inner * 300 * US, rel=0.006)
    cold = windows(CacheMode.AS_IS)
    assert statistics.median(cold) == pytest.approx(inner * 300 * US + 20 * MIB / 3000, rel=0.006)

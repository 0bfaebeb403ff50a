"""`lie`: the four times of a call side by side, and what a device can show of them."""

import pytest

from tests.fakes.fake_cuda import FakeTorch
from usv_tui.engine.lie import measure_lie
from usv_tui.model import Benchmark
from usv_tui.sim.device import load
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import WallTimer
from usv_tui.timesource import ManualTime

US = 1_000
MS = 1_000_000


def test_on_a_gpu_the_nod_is_the_launch() -> None:
    """Without a wait the host sees microseconds, with one the kernel and the wait, events it."""
    torch = FakeTorch()
    calls = iter(range(10_000))

    def build(_device: str) -> object:
        def fn() -> None:
            if next(calls) == 0:
                torch.host_work(200 * MS)
            torch.kernel(1360 * US)

        return fn

    timer = EventTimer(torch, time_source=torch.time)
    lie = measure_lie([Benchmark("matmul", build)], "cuda:0", timer, torch.now_ns)
    (row,) = lie.rows

    assert row.error == ""
    assert row.nod_s < 10e-6
    assert row.synced_s == pytest.approx(1.375e-3, rel=0.01)
    assert row.timed_s == pytest.approx(1.361e-3, rel=0.001)
    assert row.first_s > 0.2
    assert row.factor > 100
    assert lie.lacks == ""


def test_on_a_cpu_there_is_no_nod_to_show() -> None:
    """All three agree on the host, and the result says that this device cannot show more."""
    time = ManualTime()
    timer = WallTimer(clock=time.now_ns)
    build = lambda _device: lambda: time.advance(250 * US)
    lie = measure_lie([Benchmark("work", build)], "cpu", timer, time.now_ns)
    (row,) = lie.rows

    assert row.nod_s == row.synced_s == row.timed_s == 250e-6
    assert "on the host" in lie.lacks
    assert "the three times are alike" in lie.lacks
    assert "first call" in lie.shows
    assert not lie.has_nod


def test_three_times_that_differ_on_a_cpu_are_not_called_alike() -> None:
    """What was measured is told: a call by itself that takes far longer than one of many."""
    time = ManualTime()
    call_us = [10_000]

    class InARow(WallTimer):
        def enqueue(self, *arguments: object) -> object:
            call_us[:] = [24]
            return super().enqueue(*arguments)

        def synchronize(self) -> None:
            call_us[:] = [10_000]

    timer = InARow(clock=time.now_ns)
    build = lambda _device: lambda: time.advance(call_us[0] * US)
    lie = measure_lie([Benchmark("work", build)], "cpu", timer, time.now_ns)

    assert "alike" not in lie.lacks
    assert "work (417x)" in lie.lacks


def test_the_simulator_shows_the_factor() -> None:
    """On the simulated card the nod is far below the work, and it is called simulated."""
    session = load("steady", "h100", 0, ManualTime(10**9))

    lie = measure_lie(session.suite.benchmarks[:2], "cpu", session.timer, session.gpu.time.now_ns)

    assert all(row.error == "" for row in lie.rows)
    assert all(row.factor > 2 for row in lie.rows)
    assert "simulated" in lie.lacks


@pytest.mark.parametrize("card", ["h100", "mi300", "rtx"])
def test_a_card_that_idled_is_warm_again_before_it_is_timed(card) -> None:
    """Long first calls let the clock fall; the rows still rank as they do in a long run."""
    session = load("attention", card, 0, ManualTime(10**9))

    lie = measure_lie(session.suite.benchmarks, "cpu", session.timer, session.gpu.time.now_ns)

    truth = [k.seconds(session.card, session.card.base_mhz) for k in session.scenario.kernels]
    timed = [row.timed_s for row in lie.rows]
    synced = [row.synced_s for row in lie.rows]
    order = sorted(range(len(truth)), key=truth.__getitem__)
    assert sorted(range(len(timed)), key=timed.__getitem__) == order
    assert sorted(range(len(synced)), key=synced.__getitem__) == order
    assert timed == pytest.approx(truth, rel=0.2)


def test_a_row_that_fails_says_why_and_the_others_are_measured() -> None:
    """An exception, or a coroutine instead of work, costs only its own row."""
    time = ManualTime()

    async def sleepy() -> None:
        """Runs nothing."""

    def broken() -> None:
        raise ValueError("bad shape\nmore")

    lie = measure_lie(
        [
            Benchmark("broken", lambda _d: broken),
            Benchmark("lazy", lambda _d: sleepy),
            Benchmark("good", lambda _d: lambda: time.advance(MS)),
        ],
        "cpu",
        WallTimer(clock=time.now_ns),
        time.now_ns,
    )

    assert [row.error for row in lie.rows] == [
        "ValueError: bad shape",
        "fn returned a coroutine: nothing ran (run it inside fn)",
        "",
    ]
    assert lie.rows[2].timed_s == 1e-3


def test_a_slow_row_is_called_few_times() -> None:
    """A call of two seconds is repeated once for each way, not fifteen times."""
    time = ManualTime()
    calls: list[int] = []

    def fn() -> None:
        calls.append(1)
        time.advance(2 * 10**9)

    benchmark = Benchmark("slow", lambda _d: fn, inner=1)
    measure_lie([benchmark], "cpu", WallTimer(clock=time.now_ns), time.now_ns)

    assert len(calls) <= 15

"""Graph mode: a replay that does the same, or eager with the label changed."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.fakes.fake_cuda import FakeTensor, FakeTorch
from usv_tui.timers.events import EventTimer
from usv_tui.timers.phases import PhaseCollector, phase
from usv_tui.timers.wall import Slot

US = 1_000


@pytest.fixture(autouse=True)
def _no_phase_was_used() -> None:
    """What other tests did with `phase` is forgotten."""
    PhaseCollector(lambda: 0).saw_use()


class Bench:
    """A device, a timer in graph mode, and an output that kernels fill."""

    def __init__(self) -> None:
        self.torch = FakeTorch()
        self.timer = EventTimer(self.torch, time_source=self.torch.time, graph=True, probe=False)

    def fresh(self, value: float, ns: int = 100 * US, *, is_capturable: bool = True) -> FakeTensor:
        """A new tensor, filled by a kernel."""
        out = FakeTensor(self.torch, np.zeros(8, np.float32))
        self.torch.kernel(ns, effect=lambda: out.data.fill(value), is_capturable=is_capturable)
        return out

    def windows(self, slot: Slot) -> list[int]:
        """Twenty windows of a slot."""
        assert self.timer.enqueue(0, [slot] * 20) is None
        return [w for r in self.timer.harvest(wait=True) for w in r.window_ns]


def test_a_replay_that_does_the_same_is_timed() -> None:
    """Launches are saved, results agree, and the row says graph."""
    bench = Bench()

    def fn() -> FakeTensor:
        for _ in range(10):
            bench.torch.kernel(20 * US)
        return bench.fresh(3.0)

    slot = Slot(0, fn)

    assert bench.timer.examine(slot) == []
    assert slot.hints["mode"] == "graph"
    launches = bench.torch.calls["launch"]
    windows = bench.windows(slot)
    assert bench.torch.calls["launch"] - launches <= 22
    assert min(windows) > 300 * US


def refused_by_a_read_back(bench: Bench) -> Callable[[], object]:
    """Waits for the device in the middle."""
    x = bench.torch.empty(1)
    return lambda: (bench.torch.kernel(50 * US), x.item())


def loses_its_result(bench: Bench) -> Callable[[], object]:
    """The launch that writes the result is not recorded."""
    return lambda: (bench.torch.kernel(100 * US), bench.fresh(3.0, is_capturable=False))[1]


def loses_most_of_its_work(bench: Bench) -> Callable[[], object]:
    """Returns nothing to compare, and most of the launches are not recorded."""

    def fn() -> None:
        bench.torch.kernel(10 * US)
        bench.torch.kernel(190 * US, is_capturable=False)

    return fn


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (refused_by_a_read_back, "graph refused", "not permitted when stream is capturing"),
        (loses_its_result, "graph differs", "results of a replay differ"),
        (loses_most_of_its_work, "graph differs", "work is missing"),
    ],
)
def test_a_graph_that_cannot_be_trusted_stays_eager(
    make: Callable[[Bench], Callable[[], object]], code: str, words: str
) -> None:
    """The callable itself is timed, the label says eager, and the notice says why."""
    bench = Bench()
    fn = make(bench)
    slot = Slot(0, fn)

    found = dict(bench.timer.examine(slot))

    assert words in found[code]["reason"]
    assert slot.fn is fn
    assert slot.hints["mode"] == "eager"
    assert not bench.torch.cuda.is_current_stream_capturing()
    assert len(bench.windows(slot)) == 20


def test_an_output_that_is_always_the_same_memory_is_not_spoiled() -> None:
    """A callable that works in place keeps its numbers: they are compared, never overwritten."""
    bench = Bench()
    x = FakeTensor(bench.torch, np.full(8, 2.0, np.float32))

    def relu() -> FakeTensor:
        bench.torch.kernel(100 * US, effect=lambda: np.maximum(x.data, 0, out=x.data))
        return x

    slot = Slot(0, relu)

    assert bench.timer.examine(slot) == []
    assert slot.hints["mode"] == "graph"
    assert (x.data == 2.0).all()


def test_results_that_differ_by_themselves_are_not_compared() -> None:
    """A callable whose eager results vary is captured; there is nothing to compare them with."""
    bench = Bench()
    counter = iter(range(1000))
    x = FakeTensor(bench.torch, np.zeros(8, np.float32))

    def counts() -> FakeTensor:
        bench.torch.kernel(100 * US, effect=lambda: x.data.fill(next(counter)))
        return x

    slot = Slot(0, counts)

    assert bench.timer.examine(slot) == []
    assert slot.hints["mode"] == "graph"


def test_reset_runs_before_every_call_of_the_comparison() -> None:
    """A callable that accumulates is right only after its reset: eager and replayed alike."""
    bench = Bench()
    x = FakeTensor(bench.torch, np.zeros(8, np.float32))

    def add() -> FakeTensor:
        out = FakeTensor(bench.torch, np.zeros(8, np.float32))

        def effect() -> None:
            x.data += 1
            out.data[...] = x.data

        bench.torch.kernel(100 * US, effect=effect)
        return out

    slot = Slot(0, add, reset=lambda: x.data.fill(0))

    assert bench.timer.examine(slot) == []
    assert slot.hints["mode"] == "graph"


def test_phases_inside_a_graph_are_said_to_be_hidden() -> None:
    """A captured callable shows no phases, and a notice says so."""
    bench = Bench()

    def step() -> None:
        with phase("forward"):
            bench.torch.kernel(100 * US)

    slot = Slot(0, step)
    step()

    assert [code for code, _ in bench.timer.examine(slot)] == ["phases hidden"]
    assert len(bench.windows(slot)) == 20
    assert bench.timer.beside() == []

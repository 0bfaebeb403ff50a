"""Phases of a step: sub-rows that add up, on the wall clock and on a stream."""

import threading
from collections.abc import Callable

import pytest

from tests.fakes.fake_cuda import FakeTorch
from usv_tui.records import Bench, Samples
from usv_tui.sim import kernel
from usv_tui.sim.device import load
from usv_tui.sim.gpu import SimCall
from usv_tui.timers.events import EventTimer
from usv_tui.timers.phases import (
    FIRST_ROW,
    PhaseBook,
    PhaseCollector,
    PhasedCall,
    PhaseSample,
    phase,
    unwrap,
)
from usv_tui.timers.wall import Slot, Timer, WallTimer
from usv_tui.timesource import ManualTime

US = 1_000


class Host:
    """Work on a host in virtual time, under the wall timer."""

    def __init__(self) -> None:
        time = ManualTime()
        self.timer: Timer = WallTimer(clock=time.now_ns)
        self.work: Callable[[int], object] = time.advance
        self.slack_ns = 0


class Device:
    """Work on a device in virtual time, under the event timer."""

    def __init__(self) -> None:
        torch = FakeTorch()
        self.timer: Timer = EventTimer(torch, time_source=torch.time, probe=False)
        self.work: Callable[[int], object] = torch.kernel
        self.slack_ns = 6 * US  # an event, and a launch where the device was idle


class Simulated:
    """Work on the simulated card, under its timer."""

    def __init__(self) -> None:
        session = load("steady", "h100", 0, ManualTime(10**9))
        calls: dict[int, SimCall] = {}
        timer = session.timer
        timer.phases = PhaseCollector(timer.mark)
        self.timer: Timer = timer

        def work(ns: int) -> None:
            if ns not in calls:
                calls[ns] = kernel(f"work {ns}", us=ns / US, alpha=0.0, noise=0.0)
            calls[ns]()

        self.work: Callable[[int], object] = work
        self.slack_ns = 8 * US  # its launches, and what its memory-bound kernels vary by


@pytest.fixture(params=[Host, Device, Simulated], ids=["wall", "events", "simulated"])
def place(request: pytest.FixtureRequest) -> Host | Device | Simulated:
    """Where the work is."""
    phase("forget what earlier tests used")
    found = request.param()
    found.timer.examine(Slot(99, lambda: None))
    return found


def measured(
    place: Host | Device | Simulated, slots: list[Slot], rounds: int
) -> list[Samples | Bench]:
    """Prime, examine and time; everything that comes beside the samples."""
    for slot in slots:
        slot.fn()
        place.timer.examine(slot)
    for i in range(3):
        place.timer.enqueue(i, slots)
    place.timer.harvest(wait=True)
    place.timer.beside()
    place.timer.enqueue(3, slots * rounds, len(slots))
    place.timer.harvest(wait=True)
    return place.timer.beside()


def rows(place: Host | Device | Simulated, slot: Slot) -> dict[int, Bench]:
    """Rows of a slot's phases, by their name path."""
    slot.fn()
    place.timer.examine(slot)
    place.timer.enqueue(0, [slot])
    place.timer.harvest(wait=True)
    return {r.info.bench: r for r in place.timer.beside() if isinstance(r, Bench)}


def test_phases_become_samples_of_sub_rows(place: Host | Device | Simulated) -> None:
    """Each phase is a row under the step, with one window for each of the step's."""

    def step() -> None:
        with phase("forward"):
            place.work(300 * US)
        with phase("backward"):
            place.work(600 * US)
        place.work(100 * US)

    slot = Slot(0, step)
    named = {r.info.name: r.info for r in rows(place, slot).values()}
    records = measured(place, [slot], 10)

    assert {name: info.parent for name, info in named.items()} == {"forward": 0, "backward": 0}
    assert all(info.bench >= FIRST_ROW for info in named.values())
    samples = [s for r in records for s in r.samples()]
    assert [s.round for s in samples] == [3 + i // 2 for i in range(20)]
    for name, ns in (("forward", 300 * US), ("backward", 600 * US)):
        mine = [s.window_ns for s in samples if s.bench == named[name].bench]
        assert mine == [pytest.approx(ns, abs=place.slack_ns)] * 10


def test_what_repeats_is_added_up_and_inner_calls_too(place: Host | Device | Simulated) -> None:
    """Three layers in a call and four calls in a window are one sample of twelve occurrences."""

    def step() -> None:
        for _ in range(3):
            with phase("layer"):
                place.work(50 * US)

    slot = Slot(0, step)
    rows(place, slot)
    slot.inner = 4
    (record,) = measured(place, [slot], 5)

    assert record.inners() == [4] * 5
    assert record.window_ns == [pytest.approx(600 * US, abs=12 * place.slack_ns)] * 5


def test_nested_phases_are_sub_rows_of_their_phase(place: Host | Device | Simulated) -> None:
    """A phase inside another one has that one's row as its parent, and lies within it."""

    def step() -> None:
        with phase("forward"):
            with phase("attention"):
                place.work(200 * US)
            place.work(100 * US)

    slot = Slot(0, step)
    named = {r.info.name: r.info for r in rows(place, slot).values()}
    records = measured(place, [slot], 4)

    assert named["forward"].parent == 0
    assert named["attention"].parent == named["forward"].bench
    first = {s.bench: s for r in records for s in list(r.samples())[:2]}
    outer, inner = first[named["forward"].bench], first[named["attention"].bench]
    assert outer.window_ns == pytest.approx(300 * US, abs=2 * place.slack_ns)
    assert inner.window_ns == pytest.approx(200 * US, abs=place.slack_ns)
    assert outer.start_ns <= inner.start_ns
    assert inner.start_ns + inner.window_ns <= outer.start_ns + outer.window_ns


def test_only_rows_with_phases_have_sub_rows(place: Host | Device | Simulated) -> None:
    """Beside a phased row a plain one is called as it is, and has no samples of phases."""

    def step() -> None:
        with phase("forward"):
            place.work(100 * US)

    def plain() -> object:
        return place.work(100 * US)

    slots = [Slot(0, step), Slot(1, plain)]
    records = measured(place, slots, 6)

    assert slots[1].fn is plain
    assert isinstance(slots[0].fn, PhasedCall)
    assert unwrap(slots[0].fn) is step
    assert sum(len(r.bench) for r in records if isinstance(r, Samples)) == 6


def test_untimed_calls_leave_no_phases(place: Host | Device | Simulated) -> None:
    """Calls between blocks, such as those that warm the caches, belong to no window."""

    def step() -> None:
        with phase("forward"):
            place.work(100 * US)

    slot = Slot(0, step)
    rows(place, slot)
    for _ in range(5):
        slot.fn()
    place.timer.enqueue(1, [slot] * 3, 1)
    place.timer.harvest(wait=True)

    (record,) = place.timer.beside()
    assert len(record.bench) == 3


def test_a_failing_call_drops_only_its_own_phases(place: Host | Device | Simulated) -> None:
    """The call that raises has no sample, and its phases have none; those before it do."""
    calls = iter(range(100))

    def step() -> None:
        with phase("forward"):
            place.work(100 * US)
            if next(calls) == 8:
                raise ValueError("no")

    slot = Slot(0, step)
    rows(place, slot)
    failure = place.timer.enqueue(1, [slot] * 10, 1)
    (block,) = place.timer.harvest(wait=True)

    assert failure is not None
    (record,) = place.timer.beside()
    assert len(record.bench) == len(block.bench) > 0


def test_flags_of_the_window_are_flags_of_its_phases(place: Host | Device | Simulated) -> None:
    """A warm-up window makes warm-up phases."""

    def step() -> None:
        with phase("forward"):
            place.work(100 * US)

    slot = Slot(0, step)
    rows(place, slot)
    place.timer.enqueue(1, [slot] * 3, 1, 1)
    place.timer.harvest(wait=True)

    (record,) = place.timer.beside()
    assert all(flag & 1 for flag in record.all_flags())


def test_phase_costs_nothing_when_nobody_times() -> None:
    """Outside a timed call `phase` is one shared object that does nothing."""
    assert phase("a") is phase("b")
    with phase("a") as nothing:
        assert nothing is None


def test_other_threads_have_no_phases(place: Host | Device | Simulated) -> None:
    """A phase that another thread opens during a timed call is not taken for the call's own."""
    seen: list[object] = []

    def step() -> None:
        thread = threading.Thread(target=lambda: seen.append(phase("loader")))
        thread.start()
        thread.join()
        with phase("forward"):
            place.work(100 * US)

    slot = Slot(0, step)
    names = {r.info.name for r in rows(place, slot).values()}

    assert names == {"forward"}
    assert set(map(type, seen)) == {type(phase("x"))}


def test_rounds_with_other_counts_become_records_of_their_own() -> None:
    """A phase that is only entered now and then does not shift the rounds of the others."""
    book = PhaseBook()
    samples = [
        PhaseSample(0, (name,), round_, 1000 * round_ + i, 10, 1, 0)
        for round_, names in enumerate(["a", "ab", "ab", "a"])
        for i, name in enumerate(names)
    ]

    records = book.records(samples)

    blocks = [r for r in records if isinstance(r, Samples)]
    assert [(b.round, b.size, len(b.bench)) for b in blocks] == [(0, 1, 1), (1, 2, 4), (3, 1, 1)]
    assert [s.round for b in blocks for s in b.samples()] == [0, 1, 1, 2, 2, 3]

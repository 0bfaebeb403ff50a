"""Examining a primed row on a busy host: no verdict from one look, and none that one look hides."""

import itertools
import random
from collections.abc import Callable

import pytest

from tests.fakes.fake_cuda import Costs, FakeTorch
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot

US = 1_000
MS = 1_000_000
SEEDS = range(40)
OUTSIDE, SYNCS = "work outside the stream", "synchronises"


def busy(seed: int, share: float = 0.15) -> Callable[[], int]:
    """A host from which every so many calls some milliseconds are taken."""
    rng = random.Random(seed)
    return lambda: round(rng.uniform(0.2, 4) * MS) if rng.random() < share else 0


def found(
    make: Callable[[FakeTorch], Callable[[], object]],
    seed: int | None = None,
    costs: Costs | None = None,
    *,
    has_sleep: bool = True,
    share: float = 0.15,
) -> set[str]:
    """What is said of a row, on a quiet host or a busy one."""
    torch = FakeTorch(costs=costs, has_sleep=has_sleep, keeps_history=False)
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    fn = make(torch)
    fn()
    torch.cuda.synchronize()
    if seed is not None:
        torch.disturb = busy(seed, share)
    return {code for code, _ in timer.examine(Slot(0, fn))}


def elsewhere(here_ns: int, there_ns: int) -> Callable[[FakeTorch], Callable[[], object]]:
    """Rows with a part of their work in a stream of their own."""

    def make(torch: FakeTorch) -> Callable[[], object]:
        side = torch.cuda.Stream()

        def fn() -> None:
            torch.kernel(here_ns)
            side.wait_stream(torch.cuda.current_stream())
            torch.kernel(there_ns, stream=side)

        return fn

    return make


def clean(ns: int, host_ns: int = 0) -> Callable[[FakeTorch], Callable[[], object]]:
    """Rows that launch one kernel, after some Python."""
    return lambda torch: lambda: (torch.host_work(host_ns), torch.kernel(ns))


def waits(torch: FakeTorch) -> Callable[[], object]:
    """A row that waits for the whole device."""
    return lambda: (torch.kernel(300 * US), torch.cuda.synchronize())


@pytest.mark.parametrize("has_sleep", [True, False])
@pytest.mark.parametrize(
    "make", [clean(20 * US), clean(200 * US), clean(5 * MS), clean(50 * US, host_ns=3 * MS)]
)
def test_a_busy_host_condemns_no_clean_row(
    make: Callable[[FakeTorch], Callable[[], object]], has_sleep: bool
) -> None:
    """However often the host is late, rows that do all their work in the stream stay clean."""
    alarms = {s: f for s in SEEDS if (f := found(make, s, has_sleep=has_sleep))}

    assert alarms == {}


@pytest.mark.parametrize("sync_ns", [400 * US, MS, 3 * MS])
def test_a_slow_synchronise_is_no_work_elsewhere(sync_ns: int) -> None:
    """A host whose synchronise always takes long is told from work that goes on."""
    costs = Costs(sync_ns=sync_ns)

    assert found(clean(200 * US), costs=costs) == set()
    assert all(found(clean(200 * US), seed, costs) == set() for seed in SEEDS)


@pytest.mark.parametrize("has_sleep", [True, False])
@pytest.mark.parametrize("sync_ns", [0, 400 * US, MS, 3 * MS])
def test_work_elsewhere_is_not_hidden_by_a_slow_synchronise(sync_ns: int, has_sleep: bool) -> None:
    """A millisecond of work in another stream is found whatever an idle synchronise takes."""
    costs = Costs(sync_ns=sync_ns)

    assert found(elsewhere(200 * US, MS), costs=costs, has_sleep=has_sleep) == {OUTSIDE}


def test_faults_are_found_on_a_busy_host() -> None:
    """A millisecond elsewhere, and a wait for the device, are missed in few of forty rows."""
    work = elsewhere(200 * US, MS)
    missed = [s for s in SEEDS if OUTSIDE not in found(work, s, share=0.04)]
    unheard = [s for s in SEEDS if SYNCS not in found(waits, s, share=0.04)]

    assert len(missed) <= 3
    assert len(unheard) <= 3


def test_a_wait_that_only_the_first_call_makes_is_no_fault() -> None:
    """Lazy set-up that reads back once is not what every window of the row contains."""

    def make(torch: FakeTorch) -> Callable[[], object]:
        x = torch.empty(1)
        calls = iter(range(10**6))

        def fn() -> None:
            torch.kernel(MS)
            if next(calls) == 1:
                x.item()

        return fn

    assert found(make) == set()


def test_a_verdict_that_two_more_examinations_contradict_is_taken_back() -> None:
    """A row that only waited while it was new is cleared; one that goes on waiting is not."""
    torch = FakeTorch()
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    is_new = [True]

    def fn() -> None:
        torch.kernel(300 * US)
        if is_new[0]:
            torch.cuda.synchronize()

    slot = Slot(0, fn)
    assert [code for code, _ in timer.examine(slot)] == [SYNCS]

    kept = timer.look_again(slot, [SYNCS, "graph refused"])
    is_new[0] = False
    gone = timer.look_again(slot, [SYNCS, "graph refused"])

    assert kept == []
    assert gone == [SYNCS]
    assert "synchronises" not in slot.hints


def test_a_clean_row_costs_one_look() -> None:
    """On a quiet host a row without a fault is called once."""
    torch = FakeTorch()
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    calls = []

    timer.examine(Slot(0, lambda: (calls.append(1), torch.kernel(200 * US))))

    assert len(calls) == 1


def test_warnings_of_the_row_are_passed_on(recwarn: pytest.WarningsRecorder) -> None:
    """Listening for synchronises does not swallow what the row itself warns of."""
    import warnings

    found(lambda torch: lambda: (torch.kernel(MS), warnings.warn("mine", stacklevel=1)))

    assert "mine" in {str(w.message) for w in recwarn}
    assert not any("prototype" in str(w.message) for w in recwarn)


HOST_ONLY = "host only"


def python(host_ns: int, kernel_ns: int = 0) -> Callable[[FakeTorch], Callable[[], object]]:
    """Rows of Python, with a kernel after it or none."""

    def make(torch: FakeTorch) -> Callable[[], object]:
        def fn() -> None:
            torch.host_work(host_ns)
            if kernel_ns:
                torch.kernel(kernel_ns)

        return fn

    return make


@pytest.mark.parametrize("host_us", [60, 300, 5000])
def test_a_row_that_puts_nothing_into_the_stream_is_told_by_its_host_time(host_us: int) -> None:
    """However long its Python takes, also on a busy host, which never makes it of other rows."""
    assert found(python(host_us * US)) == {HOST_ONLY}
    assert all(found(python(host_us * US), seed) <= {HOST_ONLY} for seed in SEEDS[:15])
    assert all(HOST_ONLY not in found(python(host_us * US, 2 * US), seed) for seed in SEEDS[:15])


def test_an_empty_row_is_not_called_the_host_s() -> None:
    """Nothing in the stream and nothing on the host: that is an empty call."""
    assert found(python(500)) == set()


def test_without_anything_to_hold_the_device_nothing_is_said_of_its_stream() -> None:
    """The gap that the host leaves in the window cannot be told from work."""
    assert found(python(300 * US), has_sleep=False) == set()


def test_what_the_host_s_row_is_said_to_be_has_both_times() -> None:
    """Host time beside device time, of one call."""
    torch = FakeTorch(keeps_history=False)
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    [(_, evidence)] = timer.examine(Slot(0, python(300 * US)(torch)))
    assert evidence["host_ns"] == pytest.approx(300 * US, rel=0.05)
    assert evidence["floor_ns"] == pytest.approx(torch.costs.event_ns, abs=64)
    assert evidence["window_ns"] == pytest.approx(torch.costs.event_ns, abs=64)


@pytest.mark.parametrize("late", [(1,), (2,), (0,)])
def test_a_device_that_is_held_up_between_two_events_does_not_hide_the_host_s_row(
    late: tuple[int, ...],
) -> None:
    """Some of the empty windows read longer than an empty one."""
    torch = FakeTorch(keeps_history=False)
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    empty = itertools.count(1)
    torch.read_event = lambda ms: ms + 0.005 if ms < 0.1 and next(empty) % 4 in late else ms
    assert [code for code, _ in timer.examine(Slot(0, python(300 * US)(torch)))] == [HOST_ONLY]

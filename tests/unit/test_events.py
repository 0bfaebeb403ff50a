"""The event timer on a device in virtual time."""

import itertools
import random

import numpy as np
import pytest

from tests.fakes.fake_cuda import Costs, FakeStream, FakeTensor, FakeTorch
from usv_tui.diagnosis.checks import BenchFault, RowEvidence, diagnose
from usv_tui.errors import TimerError
from usv_tui.model import Flag, Sample
from usv_tui.records import Noted, ProbeClock
from usv_tui.timers.events import EventTimer, TorchClock
from usv_tui.timers.wall import Slot

MS = 1_000_000
US = 1_000
STARVED = int(Flag.STARVED)


def make(torch: FakeTorch, **options: object) -> EventTimer:
    """A timer on the fake's clock."""
    return EventTimer(torch, time_source=torch.time, **options)


def with_small_cache() -> tuple[FakeTorch, FakeTensor]:
    """A device with 1 MiB of cache, and a buffer whose flush takes 100 to 140 us."""
    torch = FakeTorch(l2_bytes=1 << 20, bytes_per_ns=30.0)
    return torch, torch.empty(4 << 20, dtype=torch.uint8)


def run(timer: EventTimer, slots: list[Slot], rounds: int, *, first: int = 0) -> list[Sample]:
    """Enqueue rounds one by one, harvesting as a loop would; the samples of all."""
    records = []
    for i in range(rounds):
        assert timer.enqueue(first + i, slots) is None
        records += timer.harvest(wait=False)
    records += timer.harvest(wait=True)
    return [sample for record in records for sample in record.samples()]


def seen_rate(samples: list[Sample]) -> float:
    """Share of the samples that are flagged as starved."""
    return sum(bool(s.flags & STARVED) for s in samples) / len(samples)


# -- windows and times


def test_a_window_is_the_device_time_of_the_calls() -> None:
    """A window is what the kernels took, plus one event, as soon as the host is ahead."""
    torch = FakeTorch()
    timer = make(torch)
    slots = [Slot(0, lambda: torch.kernel(200 * US)), Slot(1, lambda: torch.kernel(10 * US), 20)]

    samples = run(timer, slots, 100)

    for sample in samples[2:]:
        assert sample.window_ns == pytest.approx(200 * US + torch.costs.event_ns, abs=64)


def test_floor_and_resolution_are_measured_at_the_start() -> None:
    """Empty pairs give the floor (one event) and the step of the device's clock."""
    torch = FakeTorch(tick_ns=100, costs=Costs(event_ns=1330))

    info = make(torch).info

    assert info.name == "event"
    assert info.resolution_ns == 100
    assert info.floor_ns == pytest.approx(1330, abs=100)


def test_floor_does_not_need_a_spin_kernel() -> None:
    """Where torch has no spin kernel the floor is measured all the same, and a blocker refused."""
    torch = FakeTorch(has_sleep=False)

    timer = make(torch, blocker=True)

    assert 0 < timer.info.floor_ns < 20 * torch.costs.event_ns  # a busy host takes its time
    notices = [r.notice for r in timer.beside() if isinstance(r, Noted)]
    assert [n.code for n in notices] == ["abilities missing", "no blocker"]


@pytest.mark.parametrize("drift_ppm", [0.0, 60.0, -60.0])
def test_start_times_stay_on_the_session_clock(drift_ppm: float) -> None:
    """A minute of a drifting device clock puts no sample more than 10 us beside its true start."""
    torch = FakeTorch(drift_ppm=drift_ppm)
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(3 * MS))

    records = []
    for i in range(20_000):
        timer.enqueue(i, [slot])
        records += timer.harvest(wait=False)
    records += timer.harvest(wait=True)
    kernels = [begin for begin, end in torch.launched if end - begin == 3 * MS][-20_000:]
    starts = [s.start_ns for record in records for s in record.samples()]
    worst = max(abs(a - b) for a, b in zip(starts, kernels, strict=True))

    assert worst < 10 * US
    assert starts == sorted(starts)


def test_start_times_of_short_windows_are_added_up_between_looks() -> None:
    """One look a block, not one a window: starts are in order and right to a few us."""
    torch = FakeTorch()
    timer = make(torch, probe=False)
    stalls = random.Random(1)

    def fn() -> None:
        torch.host_work(5 * MS if stalls.random() < 0.002 else 0)
        torch.kernel(25 * US)

    slots = [Slot(0, fn), Slot(1, fn)]
    run(timer, slots, 20)
    first = len(torch.launched)
    reads = torch.calls["elapsed"]
    samples = run(timer, slots, 1500, first=20)

    kernels = [b for b, e in torch.launched[first:] if e - b == 25 * US]
    errors = [abs(s.start_ns - b) for s, b in zip(samples, kernels, strict=True)]
    assert max(errors) < 15 * US
    assert [s.start_ns for s in samples] == sorted(s.start_ns for s in samples)
    assert torch.calls["elapsed"] - reads < 1.6 * len(samples)


def test_start_times_follow_the_device_and_not_the_enqueue() -> None:
    """Behind a deep queue a sample starts when the device gets there, not when it was put in."""
    torch = FakeTorch()
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(2 * MS))
    run(timer, [slot], 3)

    timer.enqueue(3, [slot] * 10)
    put_in_ns = torch.now_ns()
    samples = [s for record in timer.harvest(wait=True) for s in record.samples()]

    assert samples[-1].start_ns > put_in_ns + 15 * MS


def test_zero_windows_are_flagged() -> None:
    """A clock coarser than the window gives zeros: flagged, and no part of the row's estimate."""
    torch = FakeTorch(tick_ns=50 * US)
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(300))

    samples = run(timer, [slot], 200)

    zeros = [s for s in samples if s.window_ns <= 0]
    assert zeros
    assert all(s.flags & Flag.NONPOSITIVE for s in zeros)
    assert not any(s.flags & Flag.NONPOSITIVE for s in samples if s.window_ns > 0)


# -- the queue


def test_harvest_never_waits_and_never_reads_too_early() -> None:
    """A window that the device has not passed is not read, and nobody waits for it."""
    torch = FakeTorch()
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(5 * MS))
    run(timer, [slot], 2)
    syncs, now_ns = torch.calls["sync"], torch.now_ns()

    timer.enqueue(2, [slot])
    early = timer.harvest(wait=False)

    assert early == []
    assert torch.calls["sync"] == syncs
    assert torch.now_ns() - now_ns < MS
    torch.time.advance(6 * MS)
    assert len(timer.harvest(wait=False)) == 1


def test_events_are_made_once_and_used_again() -> None:
    """A hundred thousand windows make no more events than are in flight."""
    torch = FakeTorch(keeps_history=False)
    timer = make(torch, depth=128)
    slots = [Slot(i, lambda: torch.kernel(3 * US)) for i in range(4)]
    run(timer, slots, 200)
    made = torch.calls["create"]

    run(timer, slots, 25_000)

    assert torch.calls["create"] == made
    assert torch.events_alive <= 2 * 128 + 32


def test_queue_is_bounded_by_time() -> None:
    """The host does not run further ahead than the bound, plus the window that crosses it."""
    torch = FakeTorch()
    timer = make(torch, queue_ns=20 * MS)
    slot = Slot(0, lambda: torch.kernel(1 * MS))
    run(timer, [slot], 3)

    deepest = 0
    for i in range(100):
        timer.enqueue(i, [slot] * 4)
        deepest = max(deepest, torch.default_stream(0).free_ns - torch.now_ns())

    assert 15 * MS < deepest <= 22 * MS


def test_host_never_fills_the_launch_queue() -> None:
    """Windows of many launches are held back before the driver would hold the host in a call."""
    torch = FakeTorch(launch_queue=1024)
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(20 * US), 100)

    samples = run(timer, [slot], 100)

    spent_ns = 100 * torch.costs.launch_ns + 2 * torch.costs.record_ns
    assert max(s.host_ns for s in samples) <= 2 * spent_ns
    assert seen_rate(samples[1:]) == 0


def test_device_never_runs_dry_below_long_windows() -> None:
    """Windows longer than the queue's bound still overlap with the host: one runs, one waits."""
    torch = FakeTorch()
    timer = make(torch, queue_ns=10 * MS, probe=False)
    slot = Slot(0, lambda: torch.kernel(40 * MS))
    run(timer, [slot], 2)
    first = len(torch.launched)

    samples = run(timer, [slot], 20, first=2)

    assert seen_rate(samples[1:]) == 0
    kernels = [(b, e) for b, e in torch.launched[first:] if e - b == 40 * MS]
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(kernels)]
    assert len(gaps) == 19
    assert max(gaps) == 2 * torch.costs.event_ns


@pytest.mark.parametrize("seed", range(5))
def test_queued_work_is_known_to_a_few_per_cent(seed: int) -> None:
    """What `queued_ns` says agrees with the device's true backlog, flushes included."""
    torch, scratch = with_small_cache()
    timer = make(torch)
    rng = random.Random(seed)
    slots = [
        Slot(0, lambda: torch.kernel(round(900 * US * rng.uniform(0.97, 1.03)))),
        Slot(1, lambda: torch.kernel(60 * US), 4),
        Slot(2, lambda: torch.kernel(30 * US), flush=scratch.zero_),
    ]
    run(timer, slots, 30)

    for i in range(40):
        timer.enqueue(i, slots)
        torch.time.advance(rng.randrange(900 * US))
        said_ns = timer.queued_ns()
        true_ns = max(0, torch.default_stream(0).free_ns - torch.now_ns())
        assert said_ns == pytest.approx(true_ns, rel=0.05, abs=60 * US)


def test_nothing_is_queued_on_an_idle_device() -> None:
    """An idle device has a backlog of zero, before and after work."""
    torch = FakeTorch()
    timer = make(torch)
    assert timer.queued_ns() == 0

    run(timer, [Slot(0, lambda: torch.kernel(MS))], 3)

    assert timer.queued_ns() == 0


# -- starvation


def test_a_deep_queue_hides_a_late_host() -> None:
    """A host that stalls for 2 ms inside a window opens no gap in it while work is queued."""
    torch = FakeTorch()
    timer = make(torch)
    stall = {50: 2 * MS}
    count = iter(range(10_000))

    def late() -> None:
        torch.host_work(stall.get(next(count), 0))
        torch.kernel(300 * US)

    slot = Slot(0, late)
    samples = run(timer, [slot], 100)

    assert max(s.host_ns for s in samples) > 2 * MS
    assert max(s.window_ns for s in samples[1:]) < 302 * US
    assert seen_rate(samples[1:]) == 0


def test_without_depth_every_window_is_starved() -> None:
    """Waiting for each sample empties the queue: the same kernel is longer, and flagged."""
    torch = FakeTorch()
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(20 * US))
    deep = run(timer, [slot], 50)

    shallow = [s for i in range(50) for s in run(timer, [slot], 1, first=i)]

    assert seen_rate(deep[5:]) == 0
    assert seen_rate(shallow) == 1
    assert np.median([s.window_ns for s in shallow]) > np.median([s.window_ns for s in deep[5:]])


def test_short_kernels_are_called_cpu_bound() -> None:
    """When the host cannot keep up most windows are starved, and the diagnosis says CPU-bound."""
    torch = FakeTorch()
    timer = make(torch)

    def slow_host() -> None:
        torch.host_work(30 * US)
        torch.kernel(5 * US)

    samples = run(timer, [Slot(0, slow_host)], 200)

    codes = [f.code for f in diagnose(evidence_of(samples, timer))]
    assert seen_rate(samples) > 0.9
    assert "CPU-bound" in codes


def test_a_flush_covers_the_launch_of_a_short_kernel() -> None:
    """Behind a flush the device is busy while the kernel is launched: no gap and no flag."""
    torch, scratch = with_small_cache()
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(5 * US), flush=scratch.zero_)

    samples = [s for i in range(50) for s in run(timer, [slot], 1, first=i)]

    assert seen_rate(samples) == 0
    assert max(s.window_ns for s in samples) < 8 * US


def evidence_of(samples: list[Sample], timer: EventTimer) -> RowEvidence:
    """The samples as the checks take them."""
    columns = np.array([(s.window_ns, s.inner, s.host_ns, s.flags) for s in samples]).T
    return RowEvidence(
        window_ns=columns[0],
        inner=columns[1],
        host_ns=columns[2],
        flags=columns[3],
        floor_ns=timer.info.floor_ns,
        resolution_ns=timer.info.resolution_ns,
    )


# -- the blocker


def test_blocker_closes_the_gap() -> None:
    """Behind a spin the window holds the kernel alone, though the host is far slower."""
    torch = FakeTorch()
    timer = make(torch, blocker=True, probe=False)

    def slow_host() -> None:
        torch.host_work(30 * US)
        torch.kernel(5 * US)

    samples = run(timer, [Slot(0, slow_host)], 100)

    tail = samples[20:]
    assert seen_rate(tail) == 0
    assert max(s.window_ns for s in tail) < 7 * US


def test_blocker_is_not_armed_for_a_callable_that_waits() -> None:
    """A callable that was found to synchronise is timed without a spin before it."""
    torch = FakeTorch()
    timer = make(torch, blocker=True, probe=False)
    x = torch.empty(1)

    def waits() -> None:
        torch.kernel(50 * US)
        x.item()

    slot = Slot(0, waits)
    codes = [code for code, _ in timer.examine(slot)]
    samples = run(timer, [slot], 20)

    assert codes == ["synchronises"]
    assert max(s.host_ns for s in samples) < 100 * US


def test_blocker_is_given_up_when_it_cannot_be_long_enough() -> None:
    """A wait that priming did not see ends the spin by itself, then disarms it with a notice."""
    torch = FakeTorch()
    timer = make(torch, blocker=True, probe=False)

    def waits() -> None:
        torch.kernel(50 * US)
        torch.cuda.synchronize()

    samples = run(timer, [Slot(7, waits)], 60)

    notices = [r.notice for r in timer.beside() if isinstance(r, Noted)]
    assert [(n.code, n.bench) for n in notices] == [("no blocker", 7)]
    assert samples[-1].host_ns < 200 * US


# -- streams


def test_a_row_with_its_own_stream_is_timed_there() -> None:
    """Events go onto the row's stream; windows of different streams do not overlap."""
    torch = FakeTorch()
    timer = make(torch)
    side = torch.cuda.Stream()
    slots = [
        Slot(0, lambda: torch.kernel(100 * US)),
        Slot(1, lambda: torch.kernel(250 * US, stream=side), stream=side),
    ]

    samples = run(timer, slots, 30)

    mine = [s.window_ns for s in samples if s.bench == 1]
    assert max(mine) < 252 * US
    assert min(mine) > 250 * US
    ordered = sorted(samples, key=lambda s: s.start_ns)
    for a, b in itertools.pairwise(ordered):
        assert a.start_ns + a.window_ns <= b.start_ns + 100


def test_flush_comes_before_the_window_of_another_stream() -> None:
    """The flush runs to its end before a row's own stream starts its window."""
    torch, scratch = with_small_cache()
    timer = make(torch)
    side = torch.cuda.Stream()
    slot = Slot(0, lambda: torch.kernel(10 * US), flush=scratch.zero_, stream=side)

    samples = run(timer, [slot], 10)

    flushes = sorted(end for begin, end in torch.launched if 100 * US < end - begin < 150 * US)
    for sample, flushed_ns in zip(samples, flushes[-10:], strict=True):
        assert sample.start_ns >= flushed_ns - US


def test_work_on_another_stream_is_found_in_priming() -> None:
    """Work that goes on after the end event is named, with how long it went on."""
    torch = FakeTorch()
    timer = make(torch)
    side = torch.cuda.Stream()
    slot = Slot(0, lambda: torch.kernel(5 * MS, stream=side))

    found = dict(timer.examine(slot))

    assert found["work outside the stream"]["after_end_ns"] > 4 * MS


# -- the order of one sample


def test_order_of_one_sample() -> None:
    """Reset, flush, spin, start, calls, end: and nothing of ours between start and end."""
    torch = FakeTorch()
    timer = make(torch, blocker=True, probe=False)
    log: list[str] = []
    record, sleep = type(torch.cuda.Event()).record, torch.cuda._sleep

    def logged_record(self: object, stream: FakeStream | None = None) -> None:
        log.append("event")
        record(self, stream)

    def logged_sleep(cycles: int) -> None:
        log.append("spin")
        sleep(cycles)

    slot = Slot(
        0,
        lambda: log.append("fn"),
        3,
        reset=lambda: log.append("reset"),
        flush=lambda: log.append("flush"),
    )
    run(timer, [slot], 2)
    event_type = type(torch.cuda.Event())
    torch.cuda._sleep = logged_sleep
    event_type.record = logged_record  # type: ignore[method-assign]
    log.clear()
    try:
        timer.enqueue(2, [slot])
    finally:
        event_type.record = record  # type: ignore[method-assign]

    assert log == ["reset", "flush", "spin", "event", "fn", "fn", "fn", "event"]


def test_cold_each_flushes_and_times_every_call() -> None:
    """With several cold calls a window, each is flushed and timed; flushes are in no window."""
    torch, scratch = with_small_cache()
    timer = make(torch)
    flushed: list[int] = []

    def flush() -> None:
        flushed.append(torch.now_ns())
        scratch.zero_()

    slot = Slot(0, lambda: torch.kernel(20 * US), 5, flush=flush, cold_each=True)
    samples = run(timer, [slot], 4)

    assert len(flushed) == 20
    assert all(s.inner == 5 for s in samples)
    for sample in samples:
        assert sample.window_ns == pytest.approx(5 * (20 * US + torch.costs.event_ns), rel=0.02)
    run(timer, [slot], 1000)
    assert torch.events_alive <= 600


# -- failures


def test_a_row_that_raises_ends_the_block_and_loses_nothing_before_it() -> None:
    """What was enqueued before the failure is kept; the slot comes back with its exception."""
    torch = FakeTorch()
    timer = make(torch)
    good = Slot(0, lambda: torch.kernel(50 * US))

    def broken() -> None:
        torch.kernel(50 * US)
        raise ValueError("no")

    bad = Slot(1, broken)
    failure = timer.enqueue(0, [good, bad, good])
    records = timer.harvest(wait=True)

    assert failure is not None
    assert failure[0] is bad
    assert str(failure[1]) == "no"
    assert [r.bench for r in records] == [[0]]
    assert len(run(timer, [good], 5, first=1)) == 5


def test_a_lost_context_keeps_what_was_read_and_names_who_was_in_flight() -> None:
    """After a sticky error nothing more is timed; samples read before it come back."""
    torch = FakeTorch()
    timer = make(torch)
    slots = [Slot(0, lambda: torch.kernel(MS)), Slot(3, lambda: torch.kernel(MS))]
    run(timer, slots, 5)
    timer.enqueue(5, slots)
    torch.time.advance(round(1.5 * MS))
    timer.queued_ns()

    torch.lose("CUDA error: an illegal memory access was encountered")
    records = timer.harvest(wait=False)
    failure = timer.enqueue(6, slots)

    assert [r.bench for r in records] == [[0]]
    assert failure is not None
    assert failure[0].bench == 3
    assert "illegal memory access" in str(failure[1])
    assert "[3]" in failure[1].__notes__[0]
    assert timer.enqueue(7, slots) == failure


# -- events that tell no time


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_events_that_tell_no_time_are_refused_at_once(ms: float) -> None:
    """A timer whose events read zero, less, or no number is an error in words before any row."""
    torch = FakeTorch()
    torch.read_event = lambda _: ms

    with pytest.raises(TimerError, match="event timing does not work here") as caught:
        make(torch)

    assert "--timer wall" in caught.value.hint


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan")])
def test_events_that_stop_telling_time_end_the_run(ms: float) -> None:
    """Thousands of windows without a length are not gathered: the next block fails with why."""
    torch = FakeTorch()
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(20 * US))
    assert len(run(timer, [slot], 10)) == 10
    torch.read_event = lambda _: ms

    failure = None
    for i in range(300):
        failure = timer.enqueue(i, [slot] * 10)
        if failure is not None:
            break
        samples = [s for r in timer.harvest(wait=True) for s in r.samples()]
        assert all(s.flags & Flag.NONPOSITIVE for s in samples)

    assert failure is not None
    assert "read 0 or less" in str(failure[1])


# -- examining a primed row


def test_a_clean_row_has_no_findings() -> None:
    """Ordinary kernels, short and long, one and many, are found to do nothing strange."""
    torch = FakeTorch()
    timer = make(torch)

    def many() -> None:
        for _ in range(300):
            torch.kernel(8 * US)

    for fn in (lambda: torch.kernel(2 * US), lambda: torch.kernel(20 * MS), many):
        assert timer.examine(Slot(0, fn)) == []


def test_a_read_back_is_named_by_the_debug_mode() -> None:
    """`.item()` inside the callable is heard of from torch itself, and the mode is put back."""
    torch = FakeTorch()
    timer = make(torch)
    x = torch.empty(1)

    found = dict(timer.examine(Slot(0, lambda: (torch.kernel(MS), x.item()))))

    assert found["synchronises"]["seen_by"] == "torch's sync debug mode"
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_wait_that_the_debug_mode_misses_is_seen_behind_a_spin() -> None:
    """A device-wide synchronise is found by the host's time behind a spin."""
    torch = FakeTorch()
    timer = make(torch)

    def waits() -> None:
        torch.kernel(300 * US)
        torch.cuda.synchronize()

    found = dict(timer.examine(Slot(0, waits)))

    assert found["synchronises"]["seen_by"] == "host time behind a spin"


def test_a_slow_host_is_not_taken_for_a_wait() -> None:
    """Python that takes longer than the kernel, but waits for nothing, is not `synchronises`."""
    torch = FakeTorch()
    timer = make(torch)

    def slow() -> None:
        torch.host_work(3 * MS)
        torch.kernel(50 * US)

    assert timer.examine(Slot(0, slow)) == []


def bad_callables(torch: FakeTorch) -> dict[str, object]:
    """Callables that spoil what the other rows depend on, by the kind of their failure."""
    side = torch.cuda.Stream()

    def leaves_capture() -> None:
        with torch.cuda.stream(side):
            torch.cuda.CUDAGraph().capture_begin()
        torch.cuda.set_stream(side)

    return {
        "changes device": lambda: torch.cuda.set_device(1),
        "changes stream": lambda: torch.cuda.set_stream(side),
        "changes grad mode": lambda: torch.set_grad_enabled(False),
        "leaves a capture open": leaves_capture,
    }


@pytest.mark.parametrize("kind", list(bad_callables(FakeTorch(devices=2))))
def test_a_callable_that_changes_shared_state_fails_by_name(kind: str) -> None:
    """State of the thread is put back; the row fails at its next call and the others go on."""
    torch = FakeTorch(devices=2)
    timer = make(torch)
    before = timer._examiner.state()
    slot = Slot(0, bad_callables(torch)[kind])
    slot.fn()

    timer.examine(slot)
    failure = timer.enqueue(0, [slot])

    assert failure is not None
    assert isinstance(failure[1], BenchFault)
    assert failure[1].kind == kind
    assert timer._examiner.state() == before
    assert len(run(timer, [Slot(1, lambda: torch.kernel(MS))], 5)) == 5


def test_a_callable_that_cannot_be_called_twice_fails_by_its_own_error() -> None:
    """Inputs that the first call used up make the second one raise: the row fails with that."""
    torch = FakeTorch()
    timer = make(torch)
    inputs = [torch.empty(4)]
    slot = Slot(0, inputs.pop)
    slot.fn()

    assert timer.examine(slot) == []
    failure = timer.enqueue(0, [slot])

    assert failure is not None
    assert isinstance(failure[1], IndexError)


def test_an_active_profiler_of_torch_is_told() -> None:
    """The numbers then include it: one notice for the session, none for a row."""
    torch = FakeTorch()
    torch.profiling = True

    notices = [r.notice for r in make(torch).beside() if isinstance(r, Noted)]

    assert [(n.code, n.bench) for n in notices] == [("profiler on", None)]


# -- the clock inside the stream


def test_spin_probe_follows_the_clock() -> None:
    """Spins in the stream show a clock that falls from 1.9 to 1.4 GHz, within half a per cent."""

    def sm_mhz(at_ns: int) -> float:
        return 1900 - 500 * min(1.0, max(0, at_ns - 10**9) / 2e9)

    torch = FakeTorch(sm_mhz=sm_mhz)
    timer = make(torch)
    slot = Slot(0, lambda: torch.kernel(MS))
    clocks: list[tuple[int, float]] = []
    for i in range(2500):
        timer.enqueue(i, [slot])
        timer.harvest(wait=False)
        for record in timer.beside():
            assert isinstance(record, ProbeClock)
            clocks += zip(record.at_ns, record.sm_mhz, strict=True)

    assert timer.no_probe_reason == "triton is not installed" or "clock kernel" in (
        timer.no_probe_reason
    )
    assert len(clocks) > 80
    assert clocks[0][1] > 1850
    assert clocks[-1][1] < 1450
    for at_ns, mhz in clocks:
        assert mhz == pytest.approx(sm_mhz(at_ns), rel=0.005)


def test_probe_work_is_in_no_window() -> None:
    """Rows are as long with probes between their windows as without."""
    with_probe, without = FakeTorch(), FakeTorch()
    medians = []
    for torch, probe in ((with_probe, True), (without, False)):
        timer = make(torch, probe=probe)
        samples = run(timer, [Slot(0, lambda torch=torch: torch.kernel(MS))], 300)
        medians.append(np.median([s.window_ns for s in samples]))

    assert medians[0] == medians[1]
    assert with_probe.calls["launch"] > without.calls["launch"]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201:sramecc+"])
def test_no_spin_probe_where_the_spin_counts_no_cycles(arch: str) -> None:
    """On chips whose spin kernel counts a constant clock there is no probe, and a reason."""
    torch = FakeTorch(hip="6.4", arch=arch)

    timer = make(torch)

    run(timer, [Slot(0, lambda: torch.kernel(MS))], 100)
    assert not any(isinstance(r, ProbeClock) for r in timer.beside())
    assert "does not count core cycles" in timer.no_probe_reason


# -- usv's protocol


def test_torch_clock_gives_what_a_plain_pair_of_events_gives() -> None:
    """`open`, `synchronize`, `value` agree with events recorded by hand, also when asked twice."""
    torch = FakeTorch()
    clock = TorchClock(torch)
    befores: list[int] = []

    handle = clock.open(lambda: torch.kernel(50 * US), 4, lambda: befores.append(1))
    clock.synchronize()

    assert befores == [1]
    assert clock.value(handle) == pytest.approx(50e-6, rel=0.35)
    assert clock.value(handle) == clock.value(handle)


def test_torch_clock_bounds_what_is_in_flight() -> None:
    """Ten thousand samples in a row keep a few hundred events alive, not twenty thousand."""
    torch = FakeTorch(keeps_history=False)
    clock = TorchClock(torch)

    seconds = clock.record_n(lambda: torch.kernel(30 * US), 10_000)

    assert seconds.shape == (10_000,)
    assert np.median(seconds) == pytest.approx(31.3e-6, rel=0.02)
    assert torch.events_alive <= 600

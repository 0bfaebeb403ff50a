"""The simulated stream behind the timer's seam: asynchronous, quantised, starved, honest."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from usv_tui.engine.runner import Runner
from usv_tui.errors import UsageError
from usv_tui.model import CacheMode, Flag, RowState, RunConfig
from usv_tui.records import BenchError, Noted, ProbeClock, Samples, State, encode
from usv_tui.sim.device import load
from usv_tui.sim.gpu import SIDE, ContextLost, SimCall, SimGpu, activate, kernel
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.profiles import find_card
from usv_tui.sim.scenarios import SCENARIOS, Faults, Scenario
from usv_tui.sim.timer import SimTimer
from usv_tui.sim.trace import trace
from usv_tui.suite.discovery import load_suite
from usv_tui.timers.cache import Flusher
from usv_tui.timers.phases import PhaseCollector, phase
from usv_tui.timers.wall import Slot
from usv_tui.timesource import ManualTime, MonotonicTime

PLAIN = SimKernel(name="plain", t0_ns=1e6, alpha=0.0, activity=0.1, noise=1e-9)
SHORT = SimKernel(name="short", t0_ns=2e4, alpha=0.0, activity=0.1, noise=1e-9)


class Bench:
    """A timer on a quiet card in virtual time."""

    def __init__(self, card: str = "h100", *, blocker: bool = False, **scenario: object) -> None:
        plan = Scenario(name="x", summary="", look_for="", kernels=(PLAIN,), **scenario)
        self.time = ManualTime(1_000_000)
        self.gpu = SimGpu(find_card(card), plan, 0, self.time)
        self.timer = SimTimer(self.gpu, blocker=blocker)

    def slot(self, what: SimKernel, bench: int = 0, inner: int = 1, **more: object) -> Slot:
        """A row of one kernel."""
        return Slot(bench, SimCall(what, self.gpu), inner, **more)

    def time_all(self, slots: list[Slot], size: int = 0) -> list:
        """Enqueue, wait, and return the samples."""
        assert self.timer.enqueue(0, slots, size) is None
        return [s for record in self.timer.harvest(wait=True) for s in record.samples()]


def run_scenario(name: str, card: str = "h100", seed: int = 0, **config: object) -> list:
    """All records of a run in virtual time."""
    time = ManualTime(77)
    session = load(name, card, seed, time)
    records: list = []
    settings = {"iters": 200, "warmup_max_s": 0.5} | config
    runner = Runner(
        session.suite,
        RunConfig(device=session.spec, **settings),
        session.timer,
        records.append,
        time_source=time,
        make_flusher=lambda: Flusher(
            session.gpu.flush,
            flush_bytes=session.gpu.flush_bytes,
            l2_bytes=session.card.l2_bytes,
        ),
    )
    runner.run()
    return records


def samples_of(records: list) -> list:
    """The samples among records that are not probes of calibration."""
    return [s for r in records if isinstance(r, Samples) and r.round >= 0 for s in r.samples()]


@pytest.mark.parametrize(
    ("scenario", "card"),
    [
        ("power-cap", "h100"),
        ("cold-ramp", "mi300"),
        ("noisy-neighbour", "rtx"),
        ("cpu-bound", "h100"),
    ],
)
def test_the_timer_and_the_fast_trace_tell_the_same_story_to_the_nanosecond(scenario, card):
    """The same order of samples gives the same windows and starts live and as a trace."""
    fast = trace(scenario, card, 3, 1.5)
    session = load(scenario, card, 3, ManualTime(123))
    slots = [Slot(i, b.build("sim")) for i, b in enumerate(session.suite.benchmarks)]
    order = [slots[bench] for bench in fast.bench.tolist()]
    live: list = []
    for first in range(0, len(order), 30):
        assert session.timer.enqueue(first, order[first : first + 30], len(slots)) is None
        live += session.timer.harvest(wait=False)
    live += session.timer.harvest(wait=True)
    samples = [s for record in live for s in record.samples()]

    assert [s.window_ns for s in samples] == fast.window_ns.tolist()
    assert [s.start_ns - 123 for s in samples] == fast.t_ns.tolist()
    assert [bool(s.flags & Flag.STARVED) for s in samples] == (fast.flags > 0).tolist()


def test_a_whole_run_is_the_same_twice_byte_for_byte():
    """Seed, time and work decide every window, calibration and notice of a run in virtual time."""

    def bytes_of(seed: int) -> bytes:
        # The runner times a row's first call by the host's own clock, which its state tells.
        records = run_scenario("attention", "mi300", seed)
        return b"".join(encode(r) for r in records if not isinstance(r, State))

    first, again, other = bytes_of(5), bytes_of(5), bytes_of(6)

    assert first == again
    assert first != other


def test_a_window_is_the_kernels_time_plus_the_floor_in_whole_ticks():
    """Fed windows are 1 ms + the floor to within a tick, and multiples of the timer's quantum."""
    for card in ("h100", "mi300", "rtx"):
        bench = Bench(card)
        data = bench.gpu.card
        samples = bench.time_all([bench.slot(PLAIN)] * 20)[1:]
        expected_ns = PLAIN.t0_ns * data.time_scale + data.event_ns

        for sample in samples:
            assert abs(sample.window_ns - expected_ns) <= data.tick_ns
            assert sample.window_ns % data.tick_ns == 0


def test_enqueueing_returns_before_the_device_is_done():
    """Launches cost the host microseconds; nothing is complete until device time has passed."""
    bench = Bench()
    before_ns = bench.time.now_ns()
    assert bench.timer.enqueue(0, [bench.slot(PLAIN)] * 10) is None
    host_ns = bench.time.now_ns() - before_ns

    assert host_ns == 10 * (bench.gpu.card.launch_ns + 2 * bench.gpu.card.record_ns)
    assert bench.timer.harvest(wait=False) == []
    assert bench.timer.queued_ns() == pytest.approx(10 * 1e6, rel=0.03)
    bench.time.advance(20_000_000)
    assert len(bench.timer.harvest(wait=False)) == 1
    assert bench.timer.queued_ns() == 0


def test_only_complete_blocks_are_harvested_oldest_first():
    """A block comes when its last window has passed, and blocks keep their order."""
    bench = Bench()
    for round_ in range(3):
        bench.timer.enqueue(round_, [bench.slot(PLAIN)] * 4)
    bench.time.advance(5_000_000)
    early = bench.timer.harvest(wait=False)
    late = bench.timer.harvest(wait=True)

    assert [r.round for r in early] == [0]
    assert [r.round for r in late] == [1, 2]


def test_samples_start_on_the_sessions_clock_in_order():
    """Starts lie between the enqueueing and the end, one window after the other."""
    bench = Bench()
    enqueued_ns = bench.time.now_ns()
    samples = bench.time_all([bench.slot(PLAIN)] * 5)
    starts = [s.start_ns for s in samples]

    assert enqueued_ns < starts[0]
    assert starts == sorted(starts)
    assert all(b - a >= 1_000_000 for a, b in itertools.pairwise(starts))
    assert starts[-1] < bench.time.now_ns()


def test_the_queue_is_bounded_by_time():
    """However much is asked for, little more than the depth is ever queued."""
    bench = Bench()
    deepest = 0
    for round_ in range(40):
        bench.timer.enqueue(round_, [bench.slot(PLAIN)] * 10)
        deepest = max(deepest, bench.timer.queued_ns())

    assert 30_000_000 < deepest < 53_000_000


def test_the_queue_is_bounded_by_launches():
    """Very short kernels block the host when the launch queue is full, as drivers do."""
    bench = Bench()
    tiny = replace(SHORT, t0_ns=8e3)
    for round_ in range(30):
        bench.timer.enqueue(round_, [bench.slot(tiny)] * 100)

    assert len(bench.gpu._pending[0].items) <= bench.gpu.card.queue_depth + 3


def test_a_full_launch_queue_makes_the_host_wait():
    """Ten thousand launches in a row take the host as long as the device, less one queue."""
    bench = Bench()
    call = SimCall(SHORT, bench.gpu)
    start_ns = bench.time.now_ns()
    for _ in range(10_000):
        call()
    took_ns = bench.time.now_ns() - start_ns

    assert len(bench.gpu._pending[0].items) <= bench.gpu.card.queue_depth
    assert 0.88 * 10_000 * SHORT.t0_ns < took_ns < 10_000 * SHORT.t0_ns


def test_a_window_on_a_drained_device_holds_a_launch_gap_and_says_starved():
    """The first window after a pause waits for its launch: longer, and flagged; later ones not."""
    bench = Bench()
    samples = bench.time_all([bench.slot(SHORT)] * 4 + [bench.slot(PLAIN)] * 4)
    bench.time.advance(10_000_000)
    again = bench.time_all([bench.slot(PLAIN)] * 3)

    assert again[0].flags & Flag.STARVED
    assert not again[2].flags & Flag.STARVED
    assert again[0].window_ns > again[2].window_ns + 1_000
    assert samples[0].flags & Flag.STARVED


def test_a_blocker_keeps_the_launch_gap_out():
    """With a blocker even a kernel far shorter than its launch shows its own time."""
    slow_host = replace(SHORT, host_ns=60_000)
    with_gap, without = Bench(), Bench(blocker=True)
    gap = with_gap.time_all([with_gap.slot(slow_host)] * 5)
    slot = without.slot(slow_host)
    without.timer.examine(slot)
    clean = without.time_all([slot] * 5)

    assert all(s.flags & Flag.STARVED and s.window_ns > 55_000 for s in gap)
    assert all(not s.flags & Flag.STARVED for s in clean)
    assert all(abs(s.window_ns - 20_000 - 1_600) <= 32 for s in clean)


def test_a_callable_that_synchronises_is_found_and_never_blocked():
    """Waiting for the device inside is seen in priming, and the blocker is left out for it."""
    bench = Bench(blocker=True)
    slot = bench.slot(replace(PLAIN, synchronises=True))
    codes = dict(bench.timer.examine(slot))
    samples = bench.time_all([slot] * 3)

    assert set(codes) == {"synchronises"}
    assert slot.hints["synchronises"] is True
    assert all(s.host_ns >= 1_000_000 for s in samples)
    assert all(s.window_ns < 1_020_000 for s in samples)


def test_a_slow_host_is_not_taken_for_a_synchronising_callable():
    """A callable whose launch takes longer than its kernel does not wait for the device."""
    bench = Bench()

    assert bench.timer.examine(bench.slot(replace(SHORT, host_ns=300_000))) == []


def test_work_on_another_stream_is_nearly_free_in_the_window_and_is_found():
    """Events see only the floor, and priming reports what went on after the end stamp."""
    bench = Bench()
    slot = bench.slot(replace(PLAIN, side_stream=True))
    found = dict(bench.timer.examine(slot))
    sample = bench.time_all([slot] * 4)[-1]

    assert set(found) == {"work outside the stream"}
    assert found["work outside the stream"]["after_end_ns"] > 900_000
    assert sample.window_ns < 10_000


def test_recording_on_the_stream_that_works_sees_the_work():
    """A row that names its stream is timed on it."""
    bench = Bench()
    slot = bench.slot(replace(PLAIN, side_stream=True), stream=SIDE)
    sample = bench.time_all([slot] * 4)[-1]

    assert sample.window_ns == pytest.approx(1_001_600, abs=32)


def test_a_clean_row_is_found_clean():
    """No scenario kernel without a fault is accused of one."""
    for card in ("h100", "mi300", "rtx"):
        session = load("attention", card, 0, ManualTime())
        for i, benchmark in enumerate(session.suite.benchmarks):
            assert session.timer.examine(Slot(i, benchmark.build("sim"))) == []


def test_reset_and_flush_run_before_the_window_and_are_not_in_it():
    """The order is reset, flush, start, calls, end; the flush costs device time outside."""
    bench = Bench()
    calls: list[str] = []
    run = SimCall(PLAIN, bench.gpu)

    def note(word: str) -> None:
        calls.append(word)

    slot = Slot(
        0,
        lambda: (note("fn"), run())[1],
        2,
        reset=lambda: note("reset"),
        flush=lambda: (note("flush"), bench.gpu.flush())[1],
    )
    samples = bench.time_all([slot] * 2)

    assert calls == ["reset", "flush", "fn", "fn"] * 2
    assert samples[1].window_ns == pytest.approx(2_001_600, abs=64)
    assert samples[1].start_ns - samples[0].start_ns > 2_001_600 + 20_000


def test_cold_each_flushes_before_every_call_and_times_each():
    """Each of several calls in a window is cold, and none of the flushes counts."""
    bench = Bench()
    cold = replace(PLAIN, cold_gain=0.5)
    warm = bench.slot(cold, inner=4, flush=bench.gpu.flush)
    each = bench.slot(cold, inner=4, flush=bench.gpu.flush, cold_each=True)
    bench.time_all([bench.slot(PLAIN)])
    once, always = bench.time_all([warm, each])

    assert once.window_ns == pytest.approx(4_500_000 + 1_600, abs=64)
    assert always.window_ns == pytest.approx(6_000_000 + 4 * 1_600, abs=256)


def test_a_row_that_raises_ends_its_block_and_keeps_what_was_timed_before():
    """The slot comes back with its exception; earlier samples of the block are complete."""
    bench = Bench()
    good, bad = bench.slot(PLAIN, 0), bench.slot(replace(SHORT, raises_at=1), 1)
    failure = bench.timer.enqueue(0, [good, bad, good, bad, good, bad], 2)
    (record,) = bench.timer.harvest(wait=True)

    assert failure is not None
    assert failure[0] is bad
    assert "simulated failure at call 1" in str(failure[1])
    assert record.bench == [0, 1, 0]


def test_ordinary_code_cannot_be_timed_on_a_simulated_gpu():
    """A callable that launches nothing fails with a line that says what works instead."""
    bench = Bench()
    failure = bench.timer.enqueue(0, [Slot(0, lambda: sum(range(10)))])

    assert failure is not None
    assert isinstance(failure[1], UsageError)
    assert "usv-tui demo" in failure[1].hint


def test_a_file_kernel_needs_a_simulated_device():
    """A kernel made by a file runs on the device that was loaded, and fails where there is none."""
    activate(None)
    call = kernel("k", us=100.0)
    with pytest.raises(UsageError, match="needs a simulated GPU"):
        call()

    session = load("steady", "h100", 0, ManualTime())
    assert session.timer.enqueue(0, [Slot(0, call)]) is None
    assert session.gpu.launches == 1


def test_a_lost_card_gives_back_what_it_completed_and_then_fails_everything():
    """After the loss complete windows come back, calls raise, and nothing hangs."""
    bench = Bench(faults=Faults(gpu_lost_s=0.01))
    slot = bench.slot(PLAIN)
    assert bench.timer.enqueue(0, [slot] * 20) is None
    samples = [s for r in bench.timer.harvest(wait=True) for s in r.samples()]
    failure = bench.timer.enqueue(1, [slot])

    assert len(samples) == 9
    assert failure is not None
    assert isinstance(failure[1], ContextLost)
    assert bench.timer.harvest(wait=True) == []
    with pytest.raises(ContextLost):
        bench.timer.synchronize()


def test_a_lost_card_ends_a_run_as_a_fatal_error():
    """The runner stops with one fatal error and keeps every sample taken before."""
    records = run_scenario("gpu-lost", iters=None, max_time_s=60.0)
    errors = [r for r in records if isinstance(r, BenchError)]

    assert len(errors) == 1
    assert errors[0].fatal
    assert 4_500 < len(samples_of(records)) < 5_500


def test_a_failing_row_retires_and_the_others_go_on():
    """The scenario's failing row turns failed; the other rows reach all their samples."""
    records = run_scenario("one-fails", iters=500)
    states = {r.bench: r.state for r in records if isinstance(r, State)}
    counts = np.bincount([s.bench for s in samples_of(records) if not s.flags & Flag.WARMUP])

    assert states[1] is RowState.FAILED
    assert counts[0] >= 500
    assert counts[2] >= 500


def test_the_faults_of_streams_reach_the_log_of_a_run():
    """The notices of the scenario are there, each on its row."""
    records = run_scenario("sync-and-streams", iters=20)
    notes = {(r.notice.code, r.notice.bench) for r in records if isinstance(r, Noted)}

    assert ("synchronises", 1) in notes
    assert ("work outside the stream", 2) in notes


def test_a_cold_run_really_is_cold():
    """With the cache flushed before each window the first call pays for it, and only then."""
    kernels = tuple(replace(k, cold_gain=0.3) for k in SCENARIOS["steady"].kernels)
    medians = {}
    for mode in (CacheMode.WARM, CacheMode.COLD):
        bench = Bench(warm=True)
        flush = bench.gpu.flush if mode is CacheMode.COLD else None
        samples = bench.time_all([bench.slot(kernels[0], flush=flush)] * 20)
        medians[mode] = np.median([s.window_ns for s in samples])

    assert medians[CacheMode.COLD] / medians[CacheMode.WARM] == pytest.approx(1.3, abs=0.01)


def test_phases_become_sub_rows_that_add_up():
    """Marks inside a callable bracket its parts on the device."""
    bench = Bench()
    bench.timer.phases = PhaseCollector(bench.timer.mark)
    first, second = SimCall(PLAIN, bench.gpu), SimCall(replace(SHORT, t0_ns=5e5), bench.gpu)

    def step() -> None:
        with phase("forward"):
            first()
        with phase("backward"):
            second()

    slot = Slot(0, step)
    step()
    bench.timer.examine(slot)
    whole = bench.time_all([slot] * 5)
    parts = [s for r in bench.timer.beside() if isinstance(r, Samples) for s in r.samples()]
    windows = np.array([s.window_ns for s in parts]).reshape(5, 2)

    assert windows[1:, 0] == pytest.approx(1_001_600, abs=64)
    assert windows[1:, 1] == pytest.approx(501_600, abs=64)
    assert whole[2].window_ns - windows[2].sum() < 6 * bench.gpu.card.event_ns


def test_in_real_time_a_run_takes_as_long_as_the_simulated_work():
    """On the monotonic clock forty windows of 1 ms are complete after 40 ms, and not before."""
    plan = Scenario(name="x", summary="", look_for="", kernels=(PLAIN,))
    time = MonotonicTime()
    gpu = SimGpu(find_card("h100"), plan, 0, time)
    timer = SimTimer(gpu)
    start_ns = time.now_ns()
    assert timer.enqueue(0, [Slot(0, SimCall(PLAIN, gpu))] * 40) is None
    (record,) = timer.harvest(wait=True)

    assert time.now_ns() - start_ns >= 40_000_000
    assert len(record.window_ns) == 40
    assert record.t0_ns >= start_ns


def test_the_example_file_runs_on_a_simulated_card():
    """The shipped example's rows are all timed on whichever simulated device is loaded."""
    path = Path(__file__).parents[2] / "benchmarks" / "sim_demo.py"
    for card in ("h100", "mi300"):
        time = ManualTime()
        session = load("steady", card, 0, time)
        suite = load_suite(str(path), session.spec, None)
        records: list = []
        settings = RunConfig(device=session.spec, iters=20, warmup_max_s=0.0)
        Runner(suite, settings, session.timer, records.append, time_source=time).run()
        counts = np.bincount([s.bench for s in samples_of(records)])

        assert len(counts) == len(suite.benchmarks) == 7
        assert counts.min() >= 20
        assert not [r for r in records if isinstance(r, BenchError)]


def test_a_scenario_can_measure_the_clock_inside_the_stream() -> None:
    """Where it does, each round tells the true clock; elsewhere there is none."""
    told = [r for r in run_scenario("hidden-slow", iters=20) if isinstance(r, ProbeClock)]

    assert told
    assert {mhz for r in told for mhz in r.sm_mhz} == {1980.0}
    assert not [r for r in run_scenario("steady", iters=20) if isinstance(r, ProbeClock)]

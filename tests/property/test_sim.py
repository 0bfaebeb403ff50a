"""Laws of the simulated GPU that hold for any kernels, seeds and ways of looking at it."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from usv_tui.sim.gpu import SimCall, SimGpu
from usv_tui.sim.kernels import KernelNoise, SimKernel
from usv_tui.sim.machine import Item, Machine
from usv_tui.sim.physics import Board, equilibrium
from usv_tui.sim.profiles import CARDS
from usv_tui.sim.scenarios import Scenario
from usv_tui.sim.timer import SimTimer
from usv_tui.timers.wall import Slot
from usv_tui.timesource import ManualTime

cards = st.sampled_from(sorted(CARDS)).map(CARDS.__getitem__)
kernels = st.builds(
    SimKernel,
    name=st.sampled_from(["a", "b", "c"]),
    t0_ns=st.floats(5e3, 5e6),
    alpha=st.floats(0.0, 1.0),
    activity=st.floats(0.05, 1.0),
    noise=st.floats(0.0, 0.02),
    noise_phi=st.sampled_from([0.0, 0.9]),
    straggler_p=st.sampled_from([0.0, 0.05]),
    straggler_gain=st.just(0.5),
    mode_p=st.sampled_from([0.0, 0.3]),
    mode_gain=st.just(0.05),
    mode_dwell=st.sampled_from([0.0, 10.0]),
)
few = settings(max_examples=40, deadline=None)


def gpu_with(card, kernel, seed) -> tuple[SimGpu, ManualTime]:
    """A GPU in virtual time."""
    time = ManualTime(0)
    plan = Scenario(name="x", summary="", look_for="", kernels=(kernel,))
    return SimGpu(card, plan, seed, time), time


@few
@given(
    card=cards,
    kernel=kernels,
    seed=st.integers(0, 99),
    waits=st.lists(st.integers(0, 30_000_000), min_size=1, max_size=25),
    looks=st.lists(st.booleans(), min_size=25, max_size=25),
)
def test_looking_leaves_no_trace(card, kernel, seed, waits, looks):
    """Reading sensors, queue and truth at any moments changes no window by a nanosecond."""
    results = []
    for is_watched in (False, True):
        gpu, time = gpu_with(card, kernel, seed)
        timer = SimTimer(gpu)
        slot = Slot(0, SimCall(kernel, gpu), 2)
        for wait_ns, look in zip(waits, looks, strict=False):
            timer.enqueue(0, [slot])
            parts = 3 if is_watched and look else 1
            for part in range(parts):
                if parts > 1:
                    gpu.sense()
                    gpu.truth()
                time.advance(wait_ns // parts + (wait_ns % parts if part == 0 else 0))
        samples = [s for r in timer.harvest(wait=True) for s in r.samples()]
        results.append([(s.window_ns, s.start_ns, s.host_ns, s.flags) for s in samples])

    assert results[0] == results[1]


@few
@given(card=cards, kernel=kernels, seed=st.integers(0, 99), mhz=st.integers(300, 2000))
def test_a_window_is_the_sum_of_its_calls_at_the_clock(card, kernel, seed, mhz):
    """At a fixed clock a window is floor + sum of (fixed + cycles / f) x noise, to one tick."""
    gpu, _ = gpu_with(replace(card, cap_w=1e6, boost_dt_c=0.0), kernel, seed)
    gpu.set_lock(mhz)
    clock = gpu.truth().lock_mhz
    gpu._machine.board.index = gpu._machine.board.lock_index
    timer = SimTimer(gpu)
    slot = Slot(0, SimCall(replace(kernel, t0_ns=max(kernel.t0_ns, 1e5)), gpu), 3)
    assert timer.enqueue(0, [slot] * 4) is None
    windows = np.array([w for r in timer.harvest(wait=True) for w in r.window_ns])
    draws = KernelNoise(kernel, seed).take(12)
    one_s = slot.fn.kernel.seconds(card, clock)
    expected = (draws.factor * one_s + draws.extra_s).reshape(4, 3).sum(axis=1) * 1e9

    assert np.all(np.abs(windows[1:] - card.event_ns - expected[1:]) <= card.tick_ns + 1)


@few
@given(kernel=kernels, seed=st.integers(0, 99), n=st.integers(1, 5000))
def test_noise_comes_one_by_one_as_it_comes_all_at_once(kernel, seed, n):
    """The noise of call i is the same whether calls are drawn singly or together."""
    together = KernelNoise(kernel, seed).take(n)
    single = KernelNoise(kernel, seed)
    alone = [single.next() for _ in range(n)]

    assert together.factor.tolist() == [factor for factor, _ in alone]
    assert together.extra_s.tolist() == [extra for _, extra in alone]
    assert np.all(together.factor > 0)


@few
@given(
    card=cards,
    work=st.lists(
        st.tuples(st.floats(0, 0.2), st.floats(0, 0.05), st.floats(0, 60), st.floats(0, 1)),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 9),
)
def test_a_stream_is_first_in_first_out_and_never_faster_than_ready(card, work, seed):
    """Items start in order, after they are ready and after the one before has ended."""
    machine = Machine(card, seed, keep_all=True)
    ready_s = 0.0
    items = []
    for wait_s, fixed_s, cycles, activity in work:
        ready_s += wait_s
        items.append(Item(ready_s, fixed_s, cycles, activity))
    machine.streams[0].queue.extend(items)
    machine.advance(ready_s + sum(f + c / card.min_mhz for _, f, c, _ in work) + 0.1)
    last_end_s = 0.0
    for item in items:
        assert item.end_s >= item.start_s >= max(item.ready_s, last_end_s)
        last_end_s = item.end_s

    joules = sum(row.power_w for row in machine.rows) * machine.dt_s
    assert np.isclose(joules, machine.rows[-1].energy_j)
    busy_s = sum(row.busy for row in machine.rows) * machine.dt_s
    assert np.isclose(busy_s, sum(item.end_s - item.start_s for item in items), atol=1e-6)


@few
@given(
    card=cards,
    activities=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8),
    seed=st.integers(0, 99),
    lock=st.none() | st.integers(100, 3000),
)
def test_whatever_the_load_the_card_stays_within_its_bounds(card, activities, seed, lock):
    """Clock on the table, temperature above the room and below ruin, power above idle."""
    board = Board(card, seed)
    if lock is not None:
        board.lock_index = min(max((lock - card.min_mhz) // card.step_mhz, 0), board.top)
    allowed = set(board.table)
    for activity in activities:
        for _ in range(200):
            row = board.step(activity, 1.0 if activity else 0.0, 0.0)

            assert row.mhz in allowed
            assert card.ambient_c - 1e-6 <= row.temp_c <= card.t_hw_c + 10
            assert row.power_w > card.idle_w


@few
@given(card=cards, activity=st.floats(0.05, 1.0), more=st.floats(0.0, 0.5))
def test_more_load_never_raises_the_lasting_clock(card, activity, more):
    """The clock that lasts falls, or stays, as activity grows; a lock is an upper bound on it."""
    light, heavy = (equilibrium(card, min(a, 1.0)) for a in (activity, activity + more))
    locked = equilibrium(card, activity, lock_mhz=card.base_mhz)

    assert heavy.entry <= light.entry
    assert locked.mhz <= card.base_mhz

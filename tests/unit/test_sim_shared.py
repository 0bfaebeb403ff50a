"""One simulated card for two processes: what one does to it, the other one meets."""

import pytest

from usv_tui.sim import ContextLost, SimKernel, SimTimer, load
from usv_tui.sim.shared import CardServer, RemoteGpu
from usv_tui.timers.wall import Slot

GEMM = SimKernel(name="gemm", t0_ns=200_000, noise=0.0)


@pytest.fixture
def card():
    """A card in real time, and what keeps it."""
    session = load("steady", "h100", seed=1)
    server, made = CardServer(session.gpu), []

    def connect():
        made.append(RemoteGpu(server.connect()))
        return made[-1]

    yield session.gpu, connect
    for remote in made:
        remote.close()


def timed(gpu, rounds=20):
    """Medians of windows of four calls, as the timer of a measuring process sees them."""
    timer = SimTimer(gpu)
    slot = Slot(0, lambda: gpu.launch(GEMM))
    slot.inner = 4
    for round_ in range(rounds):
        assert timer.enqueue(round_, [slot]) is None
    blocks = timer.harvest(wait=True)
    windows = sorted(w for block in blocks for w in block.window_ns)
    assert len(windows) == rounds
    return windows[len(windows) // 2] / 4


def test_a_remote_card_times_as_the_card_itself(card):
    """The same kernel takes as long over there, to a percent of what its clock allows."""
    gpu, connect = card
    remote = connect()
    there = timed(remote)
    truth = GEMM.seconds(gpu.card, gpu.truth().mhz) * 1e9
    assert there == pytest.approx(truth, rel=0.03)


def test_two_processes_share_one_clock_and_one_stream(card):
    """Work of one is in the way of the other's, and a lock holds for both."""
    gpu, connect = card
    one, other = connect(), connect()
    free = timed(one)
    gpu.set_lock(gpu.card.supported_mhz[len(gpu.card.supported_mhz) // 2])
    timed(one, 60)
    locked = timed(one), timed(other)
    assert min(locked) > 1.05 * free
    assert locked[0] == pytest.approx(locked[1], rel=0.03)
    for _ in range(200):
        one.launch(GEMM)
    one.settle()
    assert other.queued_ns() > 3 * GEMM.t0_ns
    other.synchronize()
    assert one.queued_ns() == 0


def test_a_kernel_that_fails_there_fails_here(card):
    """Its error is raised at the next look at the device."""
    remote = card[1]()
    remote.launch(SimKernel(name="bad", t0_ns=1e5, raises_at=0))
    with pytest.raises(RuntimeError, match="simulated failure"):
        remote.synchronize()


def test_a_card_whose_keeper_is_gone_is_lost(card):
    """A measuring process does not wait for it for ever."""
    remote = card[1]()
    remote._channel.shutdown(2)
    with pytest.raises(ContextLost):
        remote.settle()

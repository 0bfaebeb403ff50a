"""What a worker needs of a simulated card: one of its own process, or one that it shares."""

from usv_tui.engine.worker import Prepared
from usv_tui.model import Suite
from usv_tui.sim.gpu import SimGpu, activate
from usv_tui.sim.shared import RemoteGpu
from usv_tui.sim.timer import SimTimer
from usv_tui.timers.cache import Flusher
from usv_tui.timers.phases import PhaseCollector


def prepared(
    device: str, gpu: SimGpu | RemoteGpu, timer: SimTimer, suite: Suite | None = None
) -> Prepared:
    """The worker's part of it; `suite` is its own, None that of a file."""
    timer.phases = PhaseCollector(timer.mark)
    card = gpu.card
    flusher = Flusher(gpu.flush, flush_bytes=gpu.flush_bytes, l2_bytes=card.l2_bytes)
    identity = {
        "name": card.name,
        "peak_flops_per_s": card.peak_flops,
        "peak_bytes_per_s": card.peak_bytes_per_s,
    }
    reason = "ground truth is known"
    return Prepared(device, reason, identity, suite, timer, flusher)


def shared(device: str, fd: int, *, blocker: bool = False) -> Prepared:
    """The same on a card that another process keeps, over this descriptor."""
    gpu = RemoteGpu(fd)
    activate(gpu)
    return prepared(device, gpu, SimTimer(gpu, blocker=blocker))

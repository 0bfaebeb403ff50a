"""Apple's GPUs: one device, one stream, and events whose stamps the host makes. Unproven, too."""

from typing import Any

from usv_tui.timers.families.generic import Generic

KIND = "mps"
CLOCK = "torch.Event on mps, whose stamps are host times of a callback"
UNPROVEN = "event timing on mps is written after torch's sources and was never run on a real one"


class Mps(Generic):
    """There is a default stream only: none can be made, chosen or asked whether it is done."""

    def __init__(self, torch: Any) -> None:
        super().__init__(torch, KIND)
        module = getattr(torch, KIND, None)
        self._take("memory_allocated", module, "current_allocated_memory")


def api(torch: Any) -> Mps:
    """`torch.accelerator`, with `torch.mps` for what is allocated."""
    return Mps(torch)

"""Intel's GPUs: generic, and their module knows the device and its cache. Unproven."""

from typing import Any

from usv_tui.timers.families.generic import Generic

KIND = "xpu"
UNPROVEN = "event timing on xpu is written after torch's sources and was never run on a real one"


def api(torch: Any) -> Generic:
    """`torch.accelerator`, with `torch.xpu` where that has more."""
    return Generic(torch, KIND)


def cache_bytes(properties: Any) -> int:
    """The last-level cache; 0 when it is not told."""
    return int(getattr(properties, "last_level_cache_size", 0) or 0)

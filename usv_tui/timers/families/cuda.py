"""CUDA and ROCm: `torch.cuda` as it is."""

from typing import Any

KIND = "cuda"
CLOCK = "torch.cuda events"


def api(torch: Any) -> Any:
    """The module itself: nothing lies between the timer and torch."""
    return torch.cuda

"""Any accelerator that torch knows: `torch.accelerator`, `torch.Event` and the kind's own module.

What a kind does not have is not an attribute here, as in a `torch.cuda` that lacks it. Nothing is
emulated. Takes `torch` as an argument and imports nothing of it.
"""

from typing import Any

_OF_ACCELERATOR = {
    "current_stream": "current_stream",
    "set_stream": "set_stream",
    "synchronize": "synchronize",
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "device_count": "device_count",
    "memory_allocated": "memory_allocated",
    "CUDAGraph": "Graph",
}
"""Names of `torch.cuda`, and what `torch.accelerator` calls them (by version, not all are here)."""
_OF_MODULE = (
    "current_stream",
    "set_stream",
    "synchronize",
    "current_device",
    "set_device",
    "device_count",
    "memory_allocated",
    "get_device_properties",
    "get_device_name",
    "is_initialized",
)
"""What the kind's own module may have where `torch.accelerator` has it not."""


class Generic:
    """One kind of accelerator under the names of `torch.cuda`, as far as it goes."""

    current_stream: Any
    """Always here; the others may be missing."""
    may_mix_records = True
    """Whether an event that is recorded anew may still answer for its last record: who can tell."""

    def __init__(self, torch: Any, kind: str) -> None:
        self._torch = torch
        self._kind = kind
        accelerator = getattr(torch, "accelerator", None)
        module = getattr(torch, kind, None)
        for name in _OF_MODULE:
            self._take(name, module, name)
        for name, theirs in _OF_ACCELERATOR.items():
            self._take(name, accelerator, theirs)

    def _take(self, name: str, owner: object, theirs: str) -> None:
        found = getattr(owner, theirs, None)
        if found is not None:
            setattr(self, name, found)

    def Event(self, enable_timing: bool = False) -> Any:  # noqa: N802  torch's name
        """An event of this kind; there is no way to choose how the host waits for one."""
        return self._torch.Event(device=self._kind, enable_timing=enable_timing)

    def Stream(self) -> Any:  # noqa: N802  torch's name
        """Another stream of the current device."""
        return self._torch.Stream(device=self._kind)

    def stream(self, stream: Any) -> Any:
        """A context in which a stream is the current one: a generic stream is one itself."""
        return stream

    def is_current_stream_capturing(self) -> bool:
        """Whether a graph is being captured; False where a stream cannot tell."""
        is_capturing = getattr(self.current_stream(), "is_capturing", None)
        return bool(is_capturing()) if is_capturing is not None else False


def clock(kind: str) -> str:
    """What the times come from."""
    return f"torch.Event on {kind}"


def api(torch: Any, kind: str) -> Generic:
    """A kind that nothing special is known of."""
    return Generic(torch, kind)

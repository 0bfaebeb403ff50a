"""What this build of torch can do beside timing: each ability is optional, and says what it costs.

Takes `torch` as an argument and imports nothing of it. What times a kind of accelerator goes by the
names of `torch.cuda`; it may lack any of its functions, or have one that raises.
"""

from collections.abc import Mapping
from typing import Any

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding
from usv_tui.errors import TimerError

WALL_HINT = "--timer wall takes the host's clock, which waits for the device"
"""What is left where events do not time."""
ESSENTIAL = ("Event", "current_stream", "synchronize")
"""Without these there is no timing by events."""
OPTIONAL: Mapping[str, str] = {
    "_sleep": "no spin kernel: no blocker, no clock by spins, and the floor is the host's",
    "get_sync_debug_mode": "a call that waits for the device is found by the host's time alone",
    "set_sync_debug_mode": "a call that waits for the device is found by the host's time alone",
    "is_current_stream_capturing": "a capture that is left open is not noticed",
    "current_device": "a changed device is not noticed",
    "set_device": "a changed device is not put back",
    "set_stream": "a changed stream is not put back",
    "stream": "a benchmark with a stream of its own cannot be timed",
    "memory_allocated": "memory on the device is not watched",
    "get_device_properties": "neither the device's name nor its cache and peak rates are known",
}
"""What else is used, by its name in `torch.cuda`, and what is lost without it."""


_FILLED = "no spin kernel: additions hold the device instead, and there is no clock by spins"


def require_events(torch: Any, gpu: Any, module: str = "torch.cuda") -> None:
    """Refuse a torch that cannot time by events.

    Raises:
        TimerError: it names what is missing.
    """
    missing = [name for name in ESSENTIAL if not hasattr(gpu, name)]
    if missing:
        names = ", ".join(f"{module}.{name}" for name in missing)
        version = getattr(torch, "__version__", "here")
        raise TimerError(
            f"event timing needs {names}, and torch {version} has no such thing",
            "no other clock waits for the device" if "synchronize" in missing else WALL_HINT,
        )


def lacking(gpu: Any, module: str = "torch.cuda", *, has_filler: bool = False) -> Finding | None:
    """What is optional and not here, in one finding."""
    lost: dict[str, list[str]] = {}
    for name, loss in OPTIONAL.items():
        if not hasattr(gpu, name):
            is_filled = name == "_sleep" and has_filler
            lost.setdefault(_FILLED if is_filled else loss, []).append(name)
    if not lost:
        return None
    reasons = [f"no {module}.{' and '.join(names)}: {loss}" for loss, names in lost.items()]
    return Finding(Code.ABILITIES_MISSING, {"reasons": reasons})


def ask(owner: Any, name: str, *arguments: Any, default: Any = None) -> Any:
    """What a function of a module answers: `default` where it is missing or refuses."""
    try:
        return getattr(owner, name)(*arguments)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return default


def is_hip(torch: Any) -> bool:
    """True for a build for AMD."""
    return bool(getattr(getattr(torch, "version", None), "hip", None))

"""What of torch's state decides which kernel a call runs: kept at capture, entered before windows.

Grad mode, autocast, the kinds of attention, precisions, threads, modes and streams belong to a
thread or to the process, and a script changes them between its calls.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class _Part(NamedTuple):
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], object]


def _sdp(kind: str) -> _Part:
    return _Part(
        lambda t: getattr(t.backends.cuda, f"{kind}_sdp_enabled")(),
        lambda t, v: getattr(t.backends.cuda, f"enable_{kind}_sdp")(v),
    )


def _flag(place: str, name: str) -> _Part:
    def module(torch: Any) -> Any:
        for part in place.split("."):
            torch = getattr(torch, part)
        return torch

    return _Part(lambda t: getattr(module(t), name), lambda t, v: setattr(module(t), name, v))


def _autocast(device: str) -> _Part:
    return _Part(
        lambda t: (t.is_autocast_enabled(device), t.get_autocast_dtype(device)),
        lambda t, v: (t.set_autocast_enabled(device, v[0]), t.set_autocast_dtype(device, v[1])),
    )


def _stream(torch: Any) -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_initialized() else None


def _device(torch: Any) -> Any:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


_PARTS: dict[str, _Part] = {
    "grad": _Part(lambda t: t.is_grad_enabled(), lambda t, v: t._C._set_grad_enabled(v)),
    "autocast": _autocast("cuda"),
    "autocast cpu": _autocast("cpu"),
    "autocast cache": _Part(
        lambda t: t.is_autocast_cache_enabled(), lambda t, v: t.set_autocast_cache_enabled(v)
    ),
    "flash": _sdp("flash"),
    "mem_efficient": _sdp("mem_efficient"),
    "math": _sdp("math"),
    "cudnn": _sdp("cudnn"),
    "matmul": _Part(
        lambda t: t.get_float32_matmul_precision(),
        lambda t, v: t.set_float32_matmul_precision(v),
    ),
    "cudnn benchmark": _flag("backends.cudnn", "benchmark"),
    "mkldnn": _flag("backends.mkldnn", "enabled"),
    "deterministic": _Part(
        lambda t: t.are_deterministic_algorithms_enabled(),
        lambda t, v: t.use_deterministic_algorithms(v),
    ),
    "threads": _Part(lambda t: t.get_num_threads(), lambda t, v: t.set_num_threads(v)),
    "dtype": _Part(lambda t: t.get_default_dtype(), lambda t, v: t.set_default_dtype(v)),
    "device": _Part(_device, lambda t, v: v is None or t.cuda.set_device(v)),
    "stream": _Part(_stream, lambda t, v: v is None or t.cuda.set_stream(v)),
}


class Surroundings:
    """The state at one moment; `enter` brings it back, in whatever thread."""

    def __init__(self, values: dict[str, Any], is_inference: bool, modes: tuple[Any, ...]) -> None:
        self._values = values
        self._is_inference = is_inference
        self._modes = modes

    @classmethod
    def now(cls, **other: Any) -> "Surroundings | None":
        """The state of this thread, with some of it replaced; None without torch."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "is_grad_enabled"):
            return None
        values = {}
        for name, part in _PARTS.items():
            try:
                values[name] = part.get(torch)
            except (AttributeError, RuntimeError):
                continue  # a torch that has none of it
        return cls(values | other, torch.is_inference_mode_enabled(), _modes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Surroundings):
            return False
        same = self._values == other._values and self._is_inference == other._is_inference
        return same and [*map(id, self._modes)] == [*map(id, other._modes)]

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_inference(self) -> bool:
        """Whether it is inference mode, which only a block can enter."""
        return self._is_inference

    def enter(self) -> None:
        """Make it this thread's state, as far as it differs."""
        torch: Any = sys.modules["torch"]
        for name, value in self._values.items():
            part = _PARTS[name]
            if part.get(torch) != value:
                part.put(torch, value)
        _set_modes(self._modes)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within, it is the state of this thread."""
        before = Surroundings.now()
        torch: Any = sys.modules["torch"]
        with torch.inference_mode(self._is_inference):
            self.enter()
            try:
                yield
            finally:
                if before is not None:
                    before.enter()


def _modes() -> tuple[Any, ...]:
    """Function modes (a default device is one) and dispatch modes, outermost first."""
    overrides, dispatch = _mode_modules()
    try:
        function = overrides._get_current_function_mode_stack()
        return (*function, *dispatch._get_current_dispatch_mode_stack())
    except AttributeError:
        return ()


def _mode_modules() -> tuple[Any, Any]:
    return sys.modules.get("torch.overrides"), sys.modules.get("torch.utils._python_dispatch")


def _set_modes(wanted: tuple[Any, ...]) -> None:
    present = _modes()
    if [*map(id, present)] == [*map(id, wanted)]:
        return
    overrides, dispatch = _mode_modules()
    for mode in reversed(present):
        is_function = isinstance(mode, overrides.TorchFunctionMode)
        (overrides if is_function else dispatch)._pop_mode()
    for mode in wanted:
        is_function = isinstance(mode, overrides.TorchFunctionMode)
        (overrides if is_function else dispatch)._push_mode(mode)

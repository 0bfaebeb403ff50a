"""What a benchmark file must not replace: clocks, waits, events and comparisons.

They are noted before the file is imported (those of torch and numpy when these are), looked at
again between windows, and put back. A library that brings its own, as those of other accelerators
do, is let be.
"""

import functools
import sys
import time
from collections.abc import Mapping
from typing import Any

from usv_tui.timers.wall import WallTimer

_TIME = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
_WATCHED: Mapping[str, tuple[str, ...]] = {
    "torch": ("allclose", "equal", "Event", "manual_seed"),
    "torch.cuda": ("synchronize", "Event", "current_stream", "Stream", "is_available"),
    "torch.cuda.Event": ("record", "elapsed_time", "synchronize", "query"),
    "torch.cuda.Stream": ("synchronize",),
    "torch.accelerator": ("synchronize", "current_stream"),
    "torch.testing": ("assert_close",),
    "numpy": ("allclose", "array_equal"),
    "numpy.testing": ("assert_allclose", "assert_array_equal"),
}


class References:
    """The originals."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, str, Any]] = {}
        self._keep("time", time, _TIME)
        self._keep("usv_tui.WallTimer", WallTimer, ("enqueue", "harvest"))
        self.take()

    def take(self) -> None:
        """Note those of the libraries that are loaded by now."""
        for path, names in _WATCHED.items():
            module, *rest = path.split(".")
            owner = functools.reduce(
                lambda o, name: getattr(o, name, None), rest, sys.modules.get(module)
            )
            if owner is not None:
                self._keep(path, owner, names)

    def _keep(self, path: str, owner: Any, names: tuple[str, ...]) -> None:
        for name in names:
            if hasattr(owner, name):
                self._kept.setdefault(f"{path}.{name}", (owner, name, getattr(owner, name)))

    def mend(self) -> list[str]:
        """Put back what was replaced; the names of that, usually none."""
        replaced = []
        for path, (owner, name, original) in self._kept.items():
            now = getattr(owner, name, None)
            if now is original or now == original or _is_of_a_library(now):
                continue
            replaced.append(path)
            setattr(owner, name, original)
        return replaced


def _is_of_a_library(replacement: Any) -> bool:
    module = sys.modules.get(getattr(replacement, "__module__", "") or "")
    return "site-packages" in (getattr(module, "__file__", "") or "")

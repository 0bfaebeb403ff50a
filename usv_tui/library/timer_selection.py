"""Which timer a caller of the library gets, and where the work that it times is.

Nothing falls back in silence: what was asked for is had, or an error or a warning says why not.
"""

import importlib
import importlib.util
import itertools
import runpy
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from usv_tui import plain
from usv_tui.engine.choice import choose_device
from usv_tui.engine.worker import make_flusher
from usv_tui.errors import DeviceError, TimerError
from usv_tui.library.arguments import BadValue
from usv_tui.model import RunConfig
from usv_tui.records import AnyRecord
from usv_tui.timers.abilities import ask
from usv_tui.timers.devices import family_of, waits_for
from usv_tui.timers.host_clock import HostClock, used_kinds
from usv_tui.timers.wall import ForeignTimer, GPUTimer, Slot, Timer, WallClock, WallTimer
from usv_tui.timesource import MonotonicTime
from usv_tui.vendor.kinds import Vendor

_TIMERS = "auto, torch or wall, or an object with open, value and synchronize"


class NoDevice(TimerError, RuntimeError):
    """No device for the timer, also for programs that catch usv's RuntimeError."""


class Place(NamedTuple):
    """Where the work is."""

    device: str
    torch: Any = None
    sync: Callable[[], object] | None = None

    @property
    def kind(self) -> str:
        """What kind of device: cpu, cuda, xpu, mps or another accelerator of torch's."""
        return self.device.partition(":")[0]

    @property
    def ordinal(self) -> int:
        """The number that torch gives the GPU; 0 for a CPU."""
        return int(self.device.partition(":")[2] or 0)


_said_wall = False


def get_timer(backend: str = "auto") -> GPUTimer:
    """A timer by name: "torch" (device events), "wall", or "auto" for the better of the two.

    Raises:
        TimerError: "torch" without a GPU.
        UsageError: no such name.
    """
    if backend not in ("auto", "torch", "wall"):
        raise BadValue(f"no timer is named {backend!r}", _TIMERS)
    if backend != "wall":
        place = _gpu_or_none(backend)
        if place is not None:
            events = importlib.import_module("usv_tui.timers.events")
            with events.in_one_line(place.kind):
                clock: GPUTimer = events.TorchClock(place.torch, place.kind)
            return clock
    return DeviceWallClock()


def device_sync() -> Callable[[], object] | None:
    """What waits for the accelerators that this process uses; None when it uses none (yet)."""
    waits = _waits()
    return HostClock(waits).wait if waits else None


def _waits() -> dict[str, Callable[[], object]]:
    """What waits for each kind of accelerator in use."""
    torch = sys.modules.get("torch")  # who has work on a device has imported torch already
    waits = {kind: waits_for(torch, kind) for kind in used_kinds(torch)}
    return {kind: wait for kind, wait in waits.items() if wait is not None}


class DeviceWallClock(WallClock):
    """The wall clock behind usv's protocol; it waits for a GPU in use at both ends of a window."""

    def meet(self, slot: Slot, result: object) -> None:
        """Look at a row's first result.

        Raises:
            BenchFault: nothing waits for what it leaves running.
        """
        HostClock(_waits(), names_loaded=False).look(slot.fn, result, slot.before)

    def synchronize(self) -> None:
        """Wait for the device, when one is in use."""
        (device_sync() or _nothing)()

    def open(
        self,
        fn: Callable[[], object],
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> float:
        """Time one sample at once."""
        sync = device_sync()
        if sync is None:
            took = super().open(fn, inner, before)
            if device_sync() is None:
                return took
            return self.open(fn, inner, before)  # it was brought up, and not waited for
        if before is not None:
            before()
        sync()
        start = time.perf_counter_ns()
        for _ in itertools.repeat(None, inner):
            fn()
        sync()
        return (time.perf_counter_ns() - start) / inner * 1e-9


def gpu_vendor() -> str | None:
    """The vendor that torch was built for, else whose tool is installed: nvidia, amd or None."""
    build = _torch_build()
    if build.get("hip"):
        return Vendor.AMD.value
    if build.get("cuda") or shutil.which("nvidia-smi"):
        return Vendor.NVIDIA.value
    return Vendor.AMD.value if shutil.which("amd-smi") or shutil.which("rocm-smi") else None


def _torch_build() -> dict[str, Any]:
    """`torch.version` without importing torch, which would take a second and start a device."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    file = Path(spec.origin).with_name("version.py")
    return runpy.run_path(str(file)) if file.is_file() else {}


def _choose(wanted: str) -> Place:
    device, _, _, torch = choose_device(wanted, _ignore, MonotonicTime())
    return Place(device, torch)


def _ignore(record: AnyRecord) -> None:
    """There is no session to tell."""


def _nothing() -> None:
    pass


def _gpu_or_none(backend: str) -> Place | None:
    """The GPU for "torch" and "auto"; for "auto" None and a warning when there is none."""
    if backend == "torch":
        try:
            found = _choose("auto")
            return _choose("cuda") if found.device == "cpu" else found
        except DeviceError as error:
            raise NoDevice(f"timer='torch': {error.message}", error.hint) from error
    place = _choose("auto")
    if place.device != "cpu":
        return place
    global _said_wall  # noqa: PLW0603  once a process is enough
    if not _said_wall:
        _said_wall = True
        warn("no GPU in use: timing with the wall clock (timer='wall' says so without warning)")
    return None


def engine_timer(timer: Any) -> tuple[Timer, Place]:
    """The engine's timer for what the caller asked for, and where the work is.

    Raises:
        UsageError: no such timer.
        TimerError: it cannot be had here.
    """
    if isinstance(timer, str) and timer in ("auto", "torch"):
        place = _gpu_or_none(timer)
        if place is not None:
            events = importlib.import_module("usv_tui.timers.events")
            try:
                return events.event_timer(place.torch, place.kind, probe=False), place
            except TimerError as error:
                wait = waits_for(place.torch, place.kind)
                if timer == "torch" or place.kind == "cuda" or wait is None:
                    raise
                host = HostClock({**_waits(), place.kind: wait}, names_loaded=False)
                why = f"no events on {place.kind}: {error.message}"
                return WallTimer(why, host.wait, host=host), place
        host = HostClock(_waits(), names_loaded=False)
        sync = host.wait if host.waits else None
        return WallTimer("no GPU: the work is on the host", sync, host=host), Place("cpu")
    here = _place_in_use()
    if timer == "wall":
        return WallTimer("asked for", here.sync, host=HostClock(_waits(), names_loaded=False)), here
    if all(hasattr(timer, name) for name in ("enqueue", "harvest", "info")):
        return timer, here
    if all(hasattr(timer, name) for name in ("open", "value", "synchronize")):
        return ForeignTimer(timer), here
    raise BadValue(f"no timer is {timer!r}", _TIMERS)


def _place_in_use() -> Place:
    sync = device_sync()
    if sync is None:
        return Place("cpu")
    torch = sys.modules["torch"]
    kind = next(iter(_waits()))
    index = ask(family_of(torch, kind).gpu, "current_device", default=0)
    return Place(f"{kind}:{index}", torch, sync)


def flusher(place: Place, flush_mb: int | None) -> tuple[Callable[[], object] | None, str]:
    """What evicts the caches, or None and the word `unavailable` with a warning why."""
    torch = place.torch or sys.modules.get("torch")  # its threads have caches of their own
    found = make_flusher(RunConfig(device=place.device, flush_mb=flush_mb), torch)
    if found.flush is None:
        warn(f"caches are not flushed: {found.reason}")
        return None, "unavailable"
    return found.flush, "cold"


def warn(message: str) -> None:
    """A UserWarning at the line that called into this package."""
    level = 2
    frame = sys._getframe(1)  # noqa: SLF001  the only way to find the caller's line before 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("usv_tui."):
        frame = frame.f_back
        level += 1
    warnings.warn(plain.line(message), UserWarning, stacklevel=level)

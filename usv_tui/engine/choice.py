"""Which device a run measures: what was asked for, or what torch would take by itself."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from usv_tui import plain
from usv_tui.diagnosis.roofline import facts_of, roofline_of
from usv_tui.errors import DeviceError, UsageError, one_line
from usv_tui.model import RunPhase
from usv_tui.records import AnyRecord, Progress
from usv_tui.telemetry.identity import FRAMEWORKS, device_facts
from usv_tui.timers.abilities import ask, is_hip
from usv_tui.timers.devices import (
    Family,
    count,
    current_kind,
    device_name,
    family_of,
    is_here,
    is_known,
)
from usv_tui.timesource import TimeSource
from usv_tui.vendor.nvml import silence_deprecation

Emit = Callable[[AnyRecord], object]
LIBRARY = "torch"
"""Its import takes long, and is not the benchmark file's."""


_Choice = tuple[str, str, dict[str, Any], Any]


class UnknownKind(UsageError):
    """Torch has never heard of such a device, so far."""


class DeviceChoice:
    """A run's device, which only the import of its file may make known to torch."""

    device: str
    """`cpu` as long as torch has nothing else."""

    def __init__(self, wanted: str, emit: Emit, clock: TimeSource) -> None:
        """Choose by what torch knows now.

        Raises:
            UsageError: not the name of a device.
            DeviceError: not here, with what torch says of it.
        """
        self._again: Callable[[], _Choice] = lambda: choose_device(wanted, emit, clock)
        self._error: UnknownKind | None = None
        self.device, self.reason = "cpu", ""
        self.identity: dict[str, Any] = {}
        self.torch: Any = None
        try:
            self._take()
        except UnknownKind as error:
            self._error = error
        self._is_open = wanted == "auto" and self.device == "cpu"

    @property
    def is_made(self) -> bool:
        """False for a kind that torch does not know, and that the file may bring."""
        return self._error is None

    def after_import(self) -> str:
        """The device, now that the file is imported.

        Raises:
            UsageError: torch does not know it even now.
            DeviceError: not here, with what torch says of it.
        """
        torch = sys.modules.get(LIBRARY)
        is_new = self._is_open and torch is not None and current_kind(torch) is not None
        if is_new or self._error is not None:
            self._take()
            self._error = None
        return self.device

    def _take(self) -> None:
        self.device, self.reason, self.identity, self.torch = self._again()


def choose_device(wanted: str, emit: Emit, clock: TimeSource) -> _Choice:
    """The device, the reason for it, what identifies it, and torch (None when not needed).

    Raises:
        UsageError: not the name of a device.
        DeviceError: not here, with what torch says of it.
    """
    if wanted == "cpu":
        return "cpu", "asked for", {}, None
    kind, colon, number = wanted.partition(":")
    if not _IS_KIND(kind) or (colon and not number.isdecimal()) or kind in _NO_KINDS:
        raise UsageError(*_no_such_words(wanted))
    emit(Progress(clock.now_ns(), RunPhase.IMPORTING, LIBRARY))
    silence_deprecation()
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        if wanted == "auto":
            return "cpu", f"torch cannot be imported ({type(error).__name__})", {}, None
        raise DeviceError(
            f"--device {wanted}: torch cannot be imported: {error}", "install torch"
        ) from error
    version = str(getattr(torch, "__version__", "of no known version"))
    found = _kind(wanted, kind, torch, version)
    if found is None:
        return "cpu", _no_accelerator(torch, version), {"torch": version}, torch
    family = family_of(torch, found)
    index = int(number) if number else _current_index(family)
    total = count(family)
    if index >= total:
        there = ", ".join(f"{found}:{i} {device_name(family, i)}".strip() for i in range(total))
        raise DeviceError(f"--device {wanted}: no such device", f"there is {there}")
    _set_device(index, family)
    reason = "asked for"
    if wanted == "auto":
        what = "GPU" if found == "cuda" else f"{found} device"
        reason = f"torch {version} sees {total} {what}(s)"
    return f"{found}:{index}", reason, {"torch": version} | _facts(index, family, torch), torch


def sees_gpu() -> bool:
    """Whether torch shows an accelerator to this process."""
    silence_deprecation()
    try:
        torch = importlib.import_module("torch")
    except Exception:  # noqa: BLE001  whatever is wrong with it, it shows none
        return False
    return current_kind(torch) is not None


_IS_KIND = re.compile(r"[a-z_][a-z0-9_]*").fullmatch
_NO_KINDS = ("meta", "sim", "gpu", "rocm", "hip", "nvidia", "amd", "intel", "metal")
"""What people write and torch has no device of."""


def _no_such_words(wanted: str) -> tuple[str, str]:
    return (
        f"--device {plain.line(wanted, 40).strip() or repr(wanted)}: no such device",
        "cpu, cuda, cuda:N, xpu, mps, another accelerator of torch's, or sim:CARD (demo --list)",
    )


def _kind(wanted: str, kind: str, torch: Any, version: str) -> str | None:
    """The kind of accelerator to use; None for the CPU.

    Raises:
        UsageError: torch has never heard of it.
        DeviceError: it is not here.
    """
    if wanted == "auto":
        return current_kind(torch)
    if kind != "cuda" and not is_known(torch, kind):
        load_backend(kind)
        if not is_known(torch, kind):
            raise UnknownKind(*_no_such_words(wanted))
    if is_here(torch, kind):
        return kind
    current = current_kind(torch)
    if kind == "cuda" or current is None:
        hint = "use --device cpu, or install a torch build for your GPU"
        raise DeviceError(f"--device {wanted}: {_no_accelerator(torch, version)}", hint)
    raise DeviceError(f"--device {wanted}: torch {version} sees none", f"there is {current}")


def load_backend(kind: str) -> None:
    """Load a backend from outside of torch, where torch has not done so by itself.

    It is what a package has entered for torch under this name, else a package `torch_<kind>`.

    Raises:
        DeviceError: it is there, and cannot be loaded.
    """
    package = f"torch_{kind}"
    entered = [e for e in entry_points(group="torch.backends") if e.name in (kind, package)]
    try:
        for entry in entered:
            entry.load()()
        if not entered and importlib.util.find_spec(package) is not None:
            importlib.import_module(package)
    except Exception as error:
        raise DeviceError(
            f"--device {kind}: {package} cannot be loaded: {one_line(error)}",
            f"`python -c 'import {package}'` shows where it fails; or --device cpu",
        ) from error


def _no_accelerator(torch: Any, version: str) -> str:
    has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
    build = "ROCm" if is_hip(torch) else "CUDA" if has_cuda else "CPU-only"
    return f"torch {version} is a {build} build and sees no GPU"


def _facts(index: int, family: Family, torch: Any) -> dict[str, Any]:
    """What identifies a device, and its peak rates where they are known."""
    if family.kind != "cuda":
        facts: dict[str, Any] = {"ordinal": index, "kind": family.kind}
        name = device_name(family, index)
        if family.kind in FRAMEWORKS:
            facts = device_facts(index, torch, family.kind) | facts
        return facts | ({"name": name} if name else {})
    properties = ask(family.gpu, "get_device_properties", index)
    return device_facts(index, torch) | facts_of(roofline_of(properties, is_amd=is_hip(torch)))


def _current_index(family: Family) -> int:
    return int(ask(family.gpu, "current_device", default=0))


def _set_device(index: int, family: Family) -> None:
    """Make a device the thread's own, where it is not already."""
    try:
        family.gpu.set_device(index)
    except (AttributeError, RuntimeError) as error:
        if index == _current_index(family):
            return
        raise DeviceError(
            f"--device {family.kind}:{index}: {family.module} does not choose it: {error}",
            f"make it the only one with CUDA_VISIBLE_DEVICES={index}"
            if family.kind == "cuda"
            else f"make it the only {family.kind} device that torch sees",
        ) from error

"""What all doors to drivers agree on: whose device it is, how it is reached, how a driver says no.

`BACKENDS` is where a vendor is made known: everything else finds its parts through it.
"""

import importlib
import re
from enum import StrEnum
from typing import Any, NamedTuple


class Vendor(StrEnum):
    """The kind of a device: the word that identities, sensors, controllers and undos agree on."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"
    CPU = "cpu"
    SIM = "sim"


class Backend(NamedTuple):
    """Where the parts of a vendor are; they are loaded where they are needed."""

    framework: str
    """The kind of device that frameworks call its GPUs."""
    door: str
    """Module with `Undoer`, `lock_command` and `unlock_command`; the guardian loads it too, so it
    imports little."""
    telemetry: str
    """`module:name` of what makes a `TelemetrySource` of an identity, an access, a clock and the
    pids of our own processes."""
    controller: str
    """`module:name` of what makes a `ClockController` of a device and an access."""
    devices: str
    """`module:name` of what lists the devices of an access."""
    told_by: str
    """What the sensors are read from."""
    unproven: str = ""
    """Why its figures deserve a second look; empty for those that were tried on real devices."""


BACKENDS = {
    Vendor.NVIDIA: Backend(
        "cuda", "vendor.nvml", "telemetry.nvidia:watch", "clocks.controllers:NvidiaClocks",
        "clocks.inventory:nvidia_devices", "NVML",
    ),
    Vendor.AMD: Backend(
        "cuda", "vendor.amdgpu", "telemetry.amd:watch", "clocks.controllers:AmdClocks",
        "clocks.inventory:amd_devices", "amdgpu sysfs",
    ),
    Vendor.INTEL: Backend(
        "xpu", "vendor.intel", "telemetry.intel:watch", "clocks.intel:IntelClocks",
        "clocks.intel:intel_devices", "xe or i915 sysfs",
        "sensors and clock control of Intel GPUs are written after the kernel's documentation and"
        " were never run on a real one",
    ),
}  # fmt: skip
"""In the order in which their devices are listed."""


def load(where: str) -> Any:
    """A module of this package, or what has the name after the colon in it."""
    module, _, name = where.partition(":")
    found = importlib.import_module(f"usv_tui.{module}")
    return getattr(found, name) if name else found


UUID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
PCI_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Access(NamedTuple):
    """How to reach the devices; only tests differ from the defaults."""

    sysfs: str = "/sys"
    nvml_library: str | None = None
    """Path of the NVML library; None lets pynvml find it."""


DIRECT = Access()


class VendorError(Exception):
    """A vendor library or the kernel said no: its code and its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

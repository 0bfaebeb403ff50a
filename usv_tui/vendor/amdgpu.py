"""The amdgpu driver's files: which ones belong to a GPU, and how they are read."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from usv_tui.errors import TelemetryOff
from usv_tui.seams import Identity

AMD_VENDOR = "0x1002"


class SysFile:
    """A sysfs attribute that stays open; every read asks the driver anew."""

    def __init__(self, path: Path, scale: float = 1.0) -> None:
        self.path = path
        self.scale = scale
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int = 4096) -> bytes:
        """The attribute's bytes now.

        Raises:
            OSError: the driver refuses.
        """
        return os.pread(self._fd, size, 0)

    def number(self) -> float:
        """The attribute's number, scaled.

        Raises:
            OSError, ValueError: there is none now.
        """
        return float(self.read(64)) * self.scale

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)


class StarFile(SysFile):
    """A `pp_dpm_*` table: the line with the star is the current clock, MHz."""

    def number(self) -> float:
        """The current clock.

        Raises:
            OSError, ValueError: there is none now.
        """
        for line in self.read().decode("ascii", "replace").splitlines():
            if line.rstrip().endswith("*"):
                return float(first_mhz(line))
        raise ValueError("no current level")


def read_text(path: Path) -> str | None:
    """A file's text without blanks around it; None when it cannot be read or is empty."""
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def uevent(device: Path) -> dict[str, str]:
    """What the kernel says about a device, as in `PCI_SLOT_NAME`."""
    lines = (read_text(device / "uevent") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def first_mhz(line: str) -> int:
    """The clock in a line of a DPM table, MHz; 0 when there is none."""
    match = re.search(r"(\d+)\s*M[Hh]z", line)
    return int(match.group(1)) if match else 0


def hwmon_temperatures(hwmon: Path) -> dict[str, Path]:
    """The temperature files by their label: edge, junction, mem."""
    found = {}
    for path in sorted(hwmon.glob("temp*_label")):
        found[read_text(path) or ""] = path.with_name(path.name.replace("_label", "_input"))
    return found


def label_of(path: Path) -> str:
    """The label of a hwmon input."""
    return read_text(path.with_name(path.name.replace("_input", "_label"))) or ""


def hwmon_limits(hwmon: Path) -> dict[str, float]:
    """Critical and emergency temperatures, by sensor."""
    limits = {}
    for label, path in hwmon_temperatures(hwmon).items():
        for kind in ("crit", "emergency"):
            text = read_text(path.with_name(path.name.replace("_input", f"_{kind}")))
            if text and text.isdigit() and int(text) > 0:
                limits[f"{label} {kind}"] = int(text) / 1000
    return limits


def gpu_devices(sys_root: Path) -> dict[str, Path]:
    """The device folders of all AMD GPUs, by PCI address."""
    devices: dict[str, Path] = {}
    for node in sorted((sys_root / "class/drm").glob("renderD*")):
        device = node / "device"
        if read_text(device / "vendor") == AMD_VENDOR:
            pci = uevent(device).get("PCI_SLOT_NAME")
            if pci:
                devices.setdefault(pci.lower(), device)
    return devices


def find_device(sys_root: Path, identity: Identity) -> tuple[Path, str]:
    """The device folder of exactly this GPU, and what it was found by.

    By PCI address, then by its unique number.

    Raises:
        TelemetryOff: it is not there, or it cannot be told which one is meant.
    """
    devices = gpu_devices(sys_root)
    if not devices:
        raise TelemetryOff("no AMD GPU in /sys", "the amdgpu driver is not loaded, or not mounted")
    if identity.pci and identity.pci.strip("0:."):
        wanted = identity.pci.lower()
        # In a partitioned card the function number is the partition's, not the card's.
        for pci, device in devices.items():
            if pci == wanted or pci.rpartition(".")[0] == wanted.rpartition(".")[0]:
                return device, "PCI address"
    if identity.uuid:
        unique = identity.uuid.lower().removeprefix("gpu-").replace("-", "")
        for device in devices.values():
            text = (read_text(device / "unique_id") or "").lower().removeprefix("0x")
            if text and text == unique:
                return device, "UUID"
    if identity.is_only and len(devices) == 1 and not identity.pci and not identity.uuid:
        return next(iter(devices.values())), "being the only GPU"
    raise TelemetryOff(
        f"cannot tell which AMD GPU is device {identity.ordinal}",
        f"it is at {identity.pci or 'no known address'}, /sys has {', '.join(devices)}",
    )


def kfd_ids(sys_root: Path, pci: str) -> Iterable[str]:
    """The compute driver's numbers of a GPU and its partitions."""
    try:
        domain, bus, rest = pci.split(":")
        where = (int(domain, 16), int(bus, 16), int(rest.split(".")[0], 16))
    except ValueError:
        return
    for node in sorted((sys_root / "class/kfd/kfd/topology/nodes").glob("*")):
        number = read_text(node / "gpu_id")
        if number in (None, "0"):
            continue
        lines = (read_text(node / "properties") or "").splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines if " " in line)
        location = int(facts.get("location_id", "0"))
        if (int(facts.get("domain", "0")), location >> 8, location >> 3 & 0x1F) == where:
            yield str(number)


def kfd_processes(sys_root: Path, ids: Iterable[str]) -> list[tuple[int, int | None]]:
    """Pids and bytes of the processes that hold memory on these GPUs."""
    rows: list[tuple[int, int | None]] = []
    wanted = [f"vram_{number}" for number in ids]
    for folder in (sys_root / "class/kfd/kfd/proc").glob("[0-9]*"):
        texts = [read_text(folder / name) for name in wanted]
        used = sum(int(text) for text in texts if text and text.isdigit())
        if used:
            rows.append((int(folder.name), used))
    return rows

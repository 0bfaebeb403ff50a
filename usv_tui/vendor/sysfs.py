"""The kernel's files of a PCI device: found by its address, read and written one value at a time.

Standard library only at import time: the guardian reads and writes through it too.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from usv_tui.errors import TelemetryOff
from usv_tui.vendor.kinds import PCI_PATTERN, VendorError

if TYPE_CHECKING:
    from usv_tui.seams import Identity

RIGHTS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Codes that more rights, or a writable mount, would mend."""
FINAL = RIGHTS | {errno.ENOENT, errno.ENODEV}
"""Codes for which a second try is of no use."""
GONE = (errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.EIO)
"""Codes of a device that no longer answers."""


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


class PciDevice:
    """The folder of one PCI device in sysfs."""

    def __init__(self, pci: str, sysfs: str = "/sys") -> None:
        if not PCI_PATTERN.fullmatch(pci):
            raise VendorError(errno.EINVAL, f"{pci!r} is not a PCI address")
        self.path = f"{sysfs}/bus/pci/devices/{pci}"

    def read(self, name: str) -> str:
        """A file's text, stripped.

        Raises:
            VendorError: with the errno.
        """
        try:
            with open(f"{self.path}/{name}", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                return file.read().strip()
        except OSError as error:
            raise VendorError(error.errno or errno.EIO, f"{name}: {error.strerror}") from error

    def word(self, name: str) -> str:
        """The same; empty where it cannot be read."""
        try:
            return self.read(name)
        except VendorError:
            return ""

    def write(self, name: str, text: str) -> None:
        """Write a file in one system call: sysfs takes each write as one command.

        Raises:
            VendorError: with the errno.
        """
        try:
            fd = os.open(
                f"{self.path}/{name}", os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            )
            try:
                os.write(fd, f"{text}\n".encode("ascii"))
            finally:
                os.close(fd)
        except OSError as error:
            raise VendorError(error.errno or errno.EIO, f"{name}: {error.strerror}") from error

    def is_writable(self, name: str) -> bool:
        """True when this process may write the file; false on a read-only mount, also for root."""
        return os.access(f"{self.path}/{name}", os.W_OK)


def read_text(path: Path) -> str | None:
    """A file's text without blanks around it; None when it cannot be read or is empty."""
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def uevent(device: Path) -> dict[str, str]:
    """What the kernel says about a device, as in `DRIVER`."""
    lines = (read_text(device / "uevent") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def hwmon_of(device: Path, name: str = "") -> Path | None:
    """The folder of a device's own sensors: the one of this name, where a driver has several."""
    folders = sorted((device / "hwmon").glob("hwmon*"))
    return next((f for f in folders if not name or read_text(f / "name") == name), None)


def hwmon_inputs(hwmon: Path, kind: str) -> dict[str, Path]:
    """The inputs of a kind (temp, energy, power …) by their label."""
    return {
        read_text(path) or "": path.with_name(path.name.replace("_label", "_input"))
        for path in sorted(hwmon.glob(f"{kind}*_label"))
    }


def label_of(path: Path) -> str:
    """The label of a hwmon input."""
    return read_text(path.with_name(path.name.replace("_input", "_label"))) or ""


def hwmon_limits(hwmon: Path) -> dict[str, float]:
    """Critical and emergency temperatures, by sensor."""
    limits = {}
    for label, path in hwmon_inputs(hwmon, "temp").items():
        for kind in ("crit", "emergency"):
            text = read_text(path.with_name(path.name.replace("_input", f"_{kind}")))
            if text and text.isdigit() and int(text) > 0:
                limits[f"{label} {kind}"] = int(text) / 1000
    return limits


def graphics_devices(sys_root: Path, vendor: str) -> dict[str, Path]:
    """The folders of a vendor's PCI devices that have a graphics driver, by PCI address."""
    folders = sorted((sys_root / "bus/pci/devices").glob("*/drm"))
    return {
        found.parent.name.lower(): found.parent
        for found in folders
        if read_text(found.parent / "vendor") == vendor
    }


def find_device(devices: Mapping[str, Path], identity: "Identity", maker: str) -> tuple[Path, str]:
    """The folder of exactly this GPU among those of its maker, and what it was found by.

    By PCI address, then by its unique number, then by being the only one.

    Raises:
        TelemetryOff: it is not there, or it cannot be told which one is meant.
    """
    if identity.pci and identity.pci.strip("0:."):
        wanted = identity.pci.lower()
        if wanted in devices:
            return devices[wanted], "PCI address"
        # In a partitioned card the function number is the partition's, not the card's.
        for pci, device in devices.items():
            if pci.rpartition(".")[0] == wanted.rpartition(".")[0]:
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
        f"cannot tell which {maker} GPU is device {identity.ordinal}",
        f"it is at {identity.pci or 'no known address'}, /sys has {', '.join(devices) or 'none'}",
    )

"""Intel's GPUs: the files of the kernel's drivers xe and i915, by PCI address.

Standard library only at import time: the guardian puts clocks back through it. Names and meanings
are those of the kernel's documentation; none of it was tried on a real device.
"""

import errno
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from usv_tui.errors import TelemetryOff
from usv_tui.vendor import sysfs
from usv_tui.vendor.kinds import Access, VendorError
from usv_tui.vendor.sysfs import PciDevice, graphics_devices, read_text, uevent

if TYPE_CHECKING:
    from usv_tui.model import DeviceInfo
    from usv_tui.seams import Identity

INTEL_VENDOR = "0x8086"
DRIVERS = ("xe", "i915")
GRID_MHZ = 50
"""The firmware counts in 50/3 MHz, so only multiples of 50 come back as they were written."""
TOLERANCE_MHZ = 17
"""By so much may a limit that was written read differently."""
_GT_PATTERN = re.compile(r"tile\d{1,2}/gt\d{1,2}|drm/card\d{1,3}(/gt/gt\d{1,2})?")

Span = tuple[int, int]
"""Lowest and highest core clock, MHz."""


class Gt(NamedTuple):
    """The files of one graphics unit that computes, as paths below the device's folder."""

    name: str
    folder: str
    """What each file's name begins with."""
    words: tuple[str, str, str, str, str, str]
    """Actual clock, lower and upper limit, what these may be at least and at most, boost."""
    throttle: str
    """What the names of the files of throttle reasons begin with."""

    @property
    def actual(self) -> str:
        """The clock now; 0 while the unit sleeps."""
        return self.folder + self.words[0]

    @property
    def low(self) -> str:
        """The lower limit."""
        return self.folder + self.words[1]

    @property
    def high(self) -> str:
        """The upper limit."""
        return self.folder + self.words[2]

    @property
    def floor(self) -> str:
        """The lowest clock that there is."""
        return self.folder + self.words[3]

    @property
    def top(self) -> str:
        """The highest clock that there is."""
        return self.folder + self.words[4]

    @property
    def boost(self) -> str:
        """The clock while somebody waits for the GPU; empty where the driver has no such thing."""
        return self.folder + self.words[5] if self.words[5] else ""


def gt_of(name: str) -> Gt:
    """The files of a unit of this name, in the form of its driver and kernel."""
    if name.startswith("tile"):
        words = ("act_freq", "min_freq", "max_freq", "rpn_freq", "rp0_freq", "")
        return Gt(name, f"{name}/freq0/", words, f"{name}/freq0/throttle/")
    prefix, kind = (f"{name}/rps_", "throttle_") if "/gt/" in name else (f"{name}/gt_", "throttle_")
    words = (
        "act_freq_mhz", "min_freq_mhz", "max_freq_mhz", "RPn_freq_mhz", "RP0_freq_mhz",
        "boost_freq_mhz",
    )  # fmt: skip
    return Gt(name, prefix, words, f"{name}/{kind}")


def gts(device: Path) -> list[Gt]:
    """The units that compute: one in each tile of xe, the first of i915.

    A unit that lists its engines and has none for rendering or computing is for media.
    """
    found = []
    for tile in sorted(device.glob("tile*")):
        units = [unit for unit in sorted(tile.glob("gt*")) if (unit / "freq0/act_freq").exists()]
        computing = [unit for unit in units if _computes(unit)]
        found += [gt_of(f"{tile.name}/{unit.name}") for unit in (computing or units)[:1]]
    for card in sorted(device.glob("drm/card*")) if not found else ():
        names = [f"drm/{card.name}/gt/gt0", f"drm/{card.name}"]
        units_of_card = [gt_of(name) for name in names if (device / gt_of(name).actual).exists()]
        found += units_of_card[:1]
    return found


def _computes(unit: Path) -> bool:
    engines = unit / "engines"
    return not engines.is_dir() or any((engines / name).exists() for name in ("ccs", "rcs"))


class IntelCard(PciDevice):
    """The clock files of one Intel GPU."""

    def gts(self) -> list[Gt]:
        """The units that compute."""
        return gts(Path(self.path))

    def mhz(self, name: str) -> int:
        """A clock.

        Raises:
            VendorError: it cannot be read.
        """
        text = self.read(name)
        if not text.isdecimal():
            raise VendorError(errno.EIO, f"{name} reads {text!r}")
        return int(text)

    def limits(self, gt: Gt) -> Span:
        """The limits in force."""
        return self.mhz(gt.low), self.mhz(gt.high)

    def bounds(self, gt: Gt) -> Span:
        """What the limits may be."""
        return self.mhz(gt.floor), self.mhz(gt.top)

    def boost_mhz(self, gt: Gt) -> int | None:
        """The boost clock; None where there is none."""
        if not gt.boost or not self.word(gt.boost):
            return None
        return self.mhz(gt.boost)

    def set_limits(self, gt: Gt, span: Span, boost_mhz: int | None) -> None:
        """Write the limits where they differ, and read them back.

        i915 takes no lower limit above the upper one, so the one that makes room goes first.

        Raises:
            VendorError: a write was refused, or a file reads differently afterwards.
        """
        steps = [(gt.low, span[0]), (gt.high, span[1])]
        if span[0] > self.mhz(gt.high):
            steps.reverse()
        if boost_mhz is not None:
            steps.append((gt.boost, boost_mhz))
        for name, mhz in steps:
            if self.mhz(name) != mhz:
                self.write(name, str(mhz))
        for name, mhz in steps:
            if abs(self.mhz(name) - mhz) > TOLERANCE_MHZ:
                raise VendorError(errno.EIO, f"{name} reads {self.mhz(name)}, not {mhz}")

    def why_not_writable(self) -> str:
        """The first file that this process may not write; empty when it may write all."""
        files = [name for gt in self.gts() for name in (gt.low, gt.high)]
        return next((name for name in files if not self.is_writable(name)), "")


def grid(card: IntelCard) -> list[int]:
    """The clocks that every unit takes, ascending; empty when there are none."""
    try:
        bounds = [card.bounds(gt) for gt in card.gts()]
    except VendorError:
        return []
    if not bounds:
        return []
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    first = -(-low // GRID_MHZ) * GRID_MHZ
    return sorted({low, *range(first, high, GRID_MHZ), high}) if low <= high else []


def device_name(device: Path) -> str:
    """What a GPU can be called that has no name in /sys."""
    return f"Intel GPU {(read_text(device / 'device') or '').removeprefix('0x')}".strip()


def gpu_devices(sys_root: Path) -> dict[str, Path]:
    """The device folders of the GPUs of Intel's drivers, by PCI address."""
    return {
        pci: device
        for pci, device in graphics_devices(sys_root, INTEL_VENDOR).items()
        if uevent(device).get("DRIVER") in DRIVERS
    }


def find_device(sys_root: Path, identity: "Identity") -> tuple[Path, str]:
    """The device folder of exactly this GPU, and what it was found by.

    Raises:
        TelemetryOff: it is not there, or it cannot be told which one is meant.
    """
    devices = gpu_devices(sys_root)
    if not devices:
        raise TelemetryOff("no Intel GPU in /sys", "neither xe nor i915 is loaded, or not mounted")
    return sysfs.find_device(devices, identity, "Intel")


class Undoer:
    """Puts the limits of a unit back: `range UNIT LOW HIGH BOOST`, the boost empty where none."""

    FINAL = sysfs.FINAL
    NEEDS_PCI = True

    def __init__(self, uuid: str, pci: str | None, access: Access) -> None:  # noqa: ARG002  by PCI
        self._card = IntelCard(pci or "", access.sysfs)

    @staticmethod
    def knows(action: Sequence[str]) -> bool:
        """True for a step that is understood."""
        if len(action) != 5 or action[0] != "range" or not _GT_PATTERN.fullmatch(action[1]):
            return False
        numbers = [*action[2:4], action[4] or "0"]
        return all(n.isascii() and n.isdigit() for n in numbers)

    def prepare(self) -> None:
        """See that it could be undone from here.

        Raises:
            VendorError: it could not.
        """
        for gt in self._card.gts():
            self._card.limits(gt)
        if name := self._card.why_not_writable():
            raise VendorError(errno.EACCES, f"{self._card.path}/{name} is not writable")

    def step(self, action: Sequence[str]) -> Callable[[], None]:
        """What carries a step out."""
        _, name, low, high, boost = action
        span, boost_mhz = (int(low), int(high)), int(boost) if boost else None
        return lambda: self._card.set_limits(gt_of(name), span, boost_mhz)

    def close(self) -> None:
        """Nothing is held."""


def undo_command(uuid: str, pci: str | None, actions: Sequence[Sequence[str]]) -> str:  # noqa: ARG001  one form for all
    """The shell line that does what `actions` say."""
    return "; ".join(
        line for action in actions if Undoer.knows(action) for line in _undo_lines(pci, action)
    )


def _undo_lines(pci: str | None, action: Sequence[str]) -> Iterable[str]:
    gt = gt_of(action[1])
    # The upper limit once more: where the lower one is above it, the first write is refused.
    pairs = [(gt.high, action[3]), (gt.low, action[2]), (gt.high, action[3])]
    if action[4]:
        pairs.append((gt.boost, action[4]))
    for name, mhz in pairs:
        yield f"echo {mhz} | sudo tee /sys/bus/pci/devices/{pci}/{name}"


def _files(info: "DeviceInfo", *words: str) -> str:
    """The files of these words, for a shell."""
    folder = f"/sys/bus/pci/devices/{info.pci}"
    if info.driver == "xe":
        return f"{folder}/tile0/gt0/freq0/{{{','.join(f'{word}_freq' for word in words)}}}"
    return f"{folder}/drm/card*/gt_{{{','.join(words)}}}_freq_mhz"


def lock_command(info: "DeviceInfo", mhz: int) -> str:
    """What somebody with root rights types to lock the core clock."""
    return f"echo {mhz} | sudo tee {_files(info, 'max', 'min')}"


def unlock_command(info: "DeviceInfo") -> str:
    """What somebody with root rights types to let the core clock go; empty where it is unknown."""
    if not info.supported_sm_mhz:
        return ""
    low, high = info.supported_sm_mhz[0], info.supported_sm_mhz[-1]
    folder = _files(info, "max").replace("{", "").replace("}", "")
    below = _files(info, "min").replace("{", "").replace("}", "")
    return f"echo {high} | sudo tee {folder}; echo {low} | sudo tee {below}"

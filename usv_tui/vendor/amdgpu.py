"""The amdgpu driver's files: which ones belong to a GPU, how they are read, and how clocks are set.

Standard library only at import time: the guardian puts clocks back through it.
"""

import errno
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from usv_tui.errors import TelemetryOff
from usv_tui.vendor import sysfs
from usv_tui.vendor.kinds import Access, VendorError
from usv_tui.vendor.sysfs import PciDevice, SysFile, graphics_devices, read_text

if TYPE_CHECKING:
    from usv_tui.model import DeviceInfo
    from usv_tui.seams import Identity

AMD_VENDOR = "0x1002"
LEVEL_FILE = "power_dpm_force_performance_level"
TABLE_FILE = "pp_od_clk_voltage"
LEVEL_PATTERN = re.compile(r"[a-z_]{2,24}")

_TABLE_LINE = re.compile(r"\s*\d+:\s*(\d+)\s*mhz", re.IGNORECASE)
_RANGE_LINE = re.compile(r"\s*sclk:\s*(\d+)\s*mhz\s+(\d+)\s*mhz", re.IGNORECASE)

Span = tuple[int, int]
"""Lowest and highest core clock, MHz."""


class AmdCard(PciDevice):
    """The clock files of one AMD device in sysfs, by PCI address."""

    def level(self) -> str:
        """The performance level."""
        return self.read(LEVEL_FILE)

    def table(self) -> Span | None:
        """Core clock limits in force; None when the card has no (readable) table."""
        try:
            text = self.read(TABLE_FILE)
        except VendorError:
            return None
        section = ""
        values: list[int] = []
        for line in text.splitlines():
            if line.rstrip().endswith(":") and not _TABLE_LINE.match(line):
                section = line.strip().rstrip(":").upper()
            elif section in {"OD_SCLK", "GFXCLK"} and (found := _TABLE_LINE.match(line)):
                values.append(int(found.group(1)))
        # Older kernels list the current clock between the two limits.
        return (values[0], values[-1]) if len(values) >= 2 else None

    def span(self) -> Span | None:
        """Core clocks that the kernel accepts, from OD_RANGE or else the DPM steps."""
        for name, pattern in ((TABLE_FILE, _RANGE_LINE), ("pp_dpm_sclk", _TABLE_LINE)):
            try:
                text = self.read(name)
            except VendorError:
                continue
            found = [match for line in text.splitlines() if (match := pattern.match(line))]
            if found and pattern is _RANGE_LINE:
                return int(found[0].group(1)), int(found[0].group(2))
            if len(found) >= 2:
                steps = sorted(int(match.group(1)) for match in found)
                return steps[0], steps[-1]
        return None

    def set_table(self, low_mhz: int | None, high_mhz: int) -> None:
        """Write the limits and commit them."""
        if low_mhz is not None:
            self.write(TABLE_FILE, f"s 0 {low_mhz}")
        self.write(TABLE_FILE, f"s 1 {high_mhz}")
        self.write(TABLE_FILE, "c")

    def put_back(self, level: str, table: Span | None) -> None:
        """Restore level and limits, and read both back.

        Level first, table after: the kernel takes table writes only in `manual` and
        `perf_determinism`, and resets the table on the way to the other levels.

        Raises:
            VendorError: a write was refused, or a file reads differently afterwards.
        """
        self.write(LEVEL_FILE, level)
        if table is not None and self.table() not in {table, None}:
            if level == "perf_determinism":
                self.set_table(None, table[1])
            else:
                if level != "manual":
                    self.write(LEVEL_FILE, "manual")
                self.set_table(*table)
                if level != "manual":
                    self.write(LEVEL_FILE, level)
        if self.level() != level:
            raise VendorError(errno.EIO, f"{LEVEL_FILE} reads {self.level()!r}, not {level!r}")
        if table is not None and self.table() not in {table, None}:
            raise VendorError(errno.EIO, f"core clock limits read {self.table()}, not {table}")


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


def first_mhz(line: str) -> int:
    """The clock in a line of a DPM table, MHz; 0 when there is none."""
    match = re.search(r"(\d+)\s*M[Hh]z", line)
    return int(match.group(1)) if match else 0


def gpu_devices(sys_root: Path) -> dict[str, Path]:
    """The device folders of all AMD GPUs, by PCI address."""
    return graphics_devices(sys_root, AMD_VENDOR)


def find_device(sys_root: Path, identity: "Identity") -> tuple[Path, str]:
    """The device folder of exactly this GPU, and what it was found by.

    Raises:
        TelemetryOff: it is not there, or it cannot be told which one is meant.
    """
    devices = gpu_devices(sys_root)
    if not devices:
        raise TelemetryOff("no AMD GPU in /sys", "the amdgpu driver is not loaded, or not mounted")
    return sysfs.find_device(devices, identity, "AMD")


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


class Undoer:
    """Puts level and limits of a card back: `level WORD LOW HIGH`, the limits empty if unknown."""

    FINAL = sysfs.FINAL
    NEEDS_PCI = True

    def __init__(self, uuid: str, pci: str | None, access: Access) -> None:  # noqa: ARG002  by PCI
        self._card = AmdCard(pci or "", access.sysfs)

    @staticmethod
    def knows(action: Sequence[str]) -> bool:
        """True for a step that is understood."""
        if len(action) != 4 or action[0] != "level":
            return False
        return LEVEL_PATTERN.fullmatch(action[1]) is not None and all(
            n == "" or (n.isascii() and n.isdigit()) for n in action[2:]
        )

    def prepare(self) -> None:
        """See that it could be undone from here.

        Raises:
            VendorError: it could not.
        """
        self._card.level()
        if not self._card.is_writable(LEVEL_FILE):
            raise VendorError(errno.EACCES, f"{self._card.path}/{LEVEL_FILE} is not writable")

    def step(self, action: Sequence[str]) -> Callable[[], None]:
        """What carries a step out."""
        _, level, low, high = action
        table = (int(low), int(high)) if low and high else None
        return lambda: self._card.put_back(level, table)

    def close(self) -> None:
        """Nothing is held."""


def undo_command(uuid: str, pci: str | None, actions: Sequence[Sequence[str]]) -> str:  # noqa: ARG001  one form for all
    """The shell line that does what `actions` say."""
    level, low, high = next((a[1:4] for a in actions if a and a[0] == "level"), ("auto", "", ""))
    card = f"/sys/bus/pci/devices/{pci}"
    lines = [f"echo {shlex.quote(level)} | sudo tee {card}/{LEVEL_FILE}"]
    if level in {"manual", "perf_determinism"} and low and high:
        steps = [f"s 0 {low}"] * (level == "manual") + [f"s 1 {high}", "c"]
        lines += [f"echo {shlex.quote(step)} | sudo tee {card}/{TABLE_FILE}" for step in steps]
    return "; ".join(lines)


def lock_command(info: "DeviceInfo", mhz: int) -> str:
    """What somebody with root rights types to lock the core clock."""
    return f"sudo amd-smi set --gpu {info.pci} --clk-limit sclk max {mhz}"


def unlock_command(info: "DeviceInfo") -> str:
    """What somebody with root rights types to let the core clock go."""
    return f"sudo amd-smi reset --gpu {info.pci} --clocks"

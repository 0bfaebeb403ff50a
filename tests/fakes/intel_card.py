"""A sysfs tree with an Intel GPU, as the kernel's drivers xe and i915 show it."""

import errno
import os
from pathlib import Path

import pytest

from usv_tui.vendor.intel import IntelCard, gt_of
from usv_tui.vendor.kinds import VendorError

REASONS = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
FORMS = ("xe", "xe two tiles", "i915", "i915 old", "i915 integrated")


class FakeCard:
    """One GPU in a tree; the kernel's rules for clock limits live in `write`."""

    def __init__(self, sys_root: Path, form: str = "xe", pci: str = "0000:03:00.0") -> None:
        self.root = sys_root
        self.pci = pci
        self.driver = form.partition(" ")[0]
        self.device = sys_root / "bus/pci/devices" / pci
        self.bounds = (300, 2400)
        self.refuse: dict[str, int] = {}
        """The end of a file's name, and the errno of writing it."""
        self.energy_uj = 5_000_000
        self.file("vendor", "0x8086")
        self.file("device", "0xe20b" if self.driver == "xe" else "0x56a0")
        self.file("uevent", f"DRIVER={self.driver}\nPCI_SLOT_NAME={pci}")
        self.file("power/runtime_status", "active")
        (self.device / "drm/card0").mkdir(parents=True)
        (self.device / "drm/renderD128").mkdir()
        self.units = self._units(form)
        for gt in map(gt_of, self.units):
            self._clocks(gt, boost=self.driver == "i915")
            for reason in () if form == "i915 old" else ("status", *REASONS):
                self.file(f"{gt.throttle}reason_{reason}", 0)
        if form != "i915 integrated":
            self._sensors()

    def _units(self, form: str) -> list[str]:
        if form.startswith("xe"):
            tiles = 2 if "two" in form else 1
            media = gt_of("tile0/gt1")
            for name in ("gt0/engines/ccs", "gt0/engines/rcs", "gt1/engines/vcs"):
                (self.device / "tile0" / name).mkdir(parents=True)
            self._clocks(media, boost=False, mhz=700)
            return [f"tile{tile}/gt{2 * tile}" for tile in range(tiles)]
        return ["drm/card0"] if "old" in form else ["drm/card0/gt/gt0"]

    def _clocks(self, gt, *, boost: bool, mhz: int = 2000) -> None:
        self.file(gt.actual, mhz)
        for name, value in zip((gt.floor, gt.top), self.bounds, strict=True):
            self.file(name, value)
        self.file(gt.low, self.bounds[0])
        self.file(gt.high, self.bounds[1])
        if boost:
            self.file(gt.boost, self.bounds[1])

    def _sensors(self) -> None:
        is_xe = self.driver == "xe"
        files = {"name": self.driver, "energy1_input": self.energy_uj, "power1_max": 190_000_000}
        if is_xe:
            files |= {
                "energy1_label": "card", "power1_label": "card", "temp2_input": 61_000,
                "temp2_label": "pkg", "temp3_input": 70_000, "temp3_label": "vram",
                "temp2_crit": 105_000, "fan1_input": 1200,
            }  # fmt: skip
        for name, value in files.items():
            self.file(f"hwmon/hwmon3/{name}", value)

    def file(self, name: str, value: object) -> None:
        """Write a file in place, so that open descriptors see it."""
        path = self.device / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            file.write(f"{value}\n")

    def work(self, watts: float, seconds: float) -> None:
        """Use energy for a while."""
        self.energy_uj += round(watts * seconds * 1e6)
        self.file("hwmon/hwmon3/energy1_input", self.energy_uj)

    def number(self, name: str) -> int:
        """The number in a file; -1 where one is being written."""
        return int((self.device / name).read_text() or -1)

    def limits(self) -> list[tuple[int, ...]]:
        """Of every unit the limits, and the boost clock where there is one."""
        return [
            tuple(self.number(name) for name in (gt.low, gt.high, gt.boost) if name)
            for gt in map(gt_of, self.units)
        ]

    def set(self, low: int, high: int) -> None:
        """Put the limits somewhere, as somebody else would have done before."""
        for gt in map(gt_of, self.units):
            self.file(gt.low, low)
            self.file(gt.high, high)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the kernel's rules behind every write to a GPU's files."""
        monkeypatch.setattr(IntelCard, "write", lambda _card, name, text: self.write(name, text))

    def write(self, name: str, text: str) -> None:
        """A write as the kernel takes it, or its refusal."""
        code = next((code for end, code in self.refuse.items() if name.endswith(end)), 0)
        mhz = int(text)
        if not code and not self.bounds[0] <= mhz <= self.bounds[1]:
            code = errno.EINVAL
        gt = gt_of(next(unit for unit in self.units if name.startswith(unit)))
        if not code and self.driver == "i915":
            is_crossed = (name == gt.low and mhz > self.number(gt.high)) or (
                name == gt.high and mhz < self.number(gt.low)
            )
            code = errno.EINVAL if is_crossed else 0
        if code:
            raise VendorError(code, f"{name}: {os.strerror(code)}")
        self.file(name, mhz)

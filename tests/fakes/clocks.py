"""Devices with lockable clocks and their state in files: an NVIDIA board and an AMD card."""

import atexit
import errno
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from usv_tui.model import DeviceInfo
from usv_tui.vendor.amdgpu import AmdCard
from usv_tui.vendor.kinds import VendorError

UUID = "GPU-00000000-1111-2222-3333-444444444444"
PCI = "0000:03:00.0"
NVIDIA = DeviceInfo(uuid=UUID, name="NVIDIA Fake 100", kind="nvidia", driver="570.86.10")
AMD = DeviceInfo(uuid=f"amd-{PCI}", name="AMD Fake 300", kind="amd", pci=PCI)
FREE = "sm 0 0\nmem 0 0\npersistence 1\n"


@functools.cache
def nvml_library() -> Path:
    """The fake NVML, built once; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake NVML with")
    folder = tempfile.mkdtemp(prefix="fake-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_clocks.c")
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
    return library


class FakeBoard:
    """The NVIDIA board of `nvml_clocks.c`, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_text(FREE)

    @property
    def state(self) -> str:
        return (self.folder / "state").read_text()

    @property
    def is_free(self) -> bool:
        return self.state == FREE

    def script(self, **values: int) -> None:
        """Make functions fail with a code, or set the values that getters return."""
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        temporary = self.folder / "script.new"
        temporary.write_text(text)
        temporary.rename(self.folder / "script")

    @property
    def calls(self) -> list[str]:
        """Setting calls so far, without the pids."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.partition(" ")[2].removeprefix("nvmlDevice") for line in lines]

    def environment(self, state_home: Path) -> dict[str, str]:
        """For a process that is to find this board, and keep its journal in `state_home`."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(nvml_library().parent),
            "FAKE_CLOCKS": str(self.folder),
            "XDG_STATE_HOME": str(state_home),
        }


class FakeCard:
    """An AMD card in a sysfs tree, with the kernel's rules for level and table.

    The rules live in `write`, so they hold in this process only; the files can be read by all.
    """

    def __init__(
        self, sysfs: Path, *, has_determinism: bool = True, has_table: bool = True
    ) -> None:
        self.sysfs = sysfs
        self.folder = sysfs / "bus/pci/devices" / PCI
        (self.folder / "drm").mkdir(parents=True)
        self.has_determinism = has_determinism
        self.range = (500, 2100)
        self.refuse: dict[str, int] = {}
        """Text that the kernel refuses (or a whole file), with the errno."""
        self.writes: list[str] = []
        self._pending = self.range
        (self.folder / "vendor").write_text("0x1002\n")
        (self.folder / "pp_dpm_sclk").write_text("0: 500Mhz\n1: 1432Mhz *\n2: 2100Mhz\n")
        self.set("auto", self.range if has_table else None)

    def set(self, level: str, table: tuple[int, int] | None) -> None:
        """Put the card into a state, as somebody else would have done before."""
        (self.folder / "power_dpm_force_performance_level").write_text(level + "\n")
        if table is None:
            return
        self._pending = table
        (self.folder / "pp_od_clk_voltage").write_text(
            f"OD_SCLK:\n0: {table[0]}Mhz\n1: {table[1]}Mhz\nOD_MCLK:\n0: 97Mhz\n1: 1200Mhz\n"
            f"OD_RANGE:\nSCLK:     {self.range[0]}Mhz       {self.range[1]}Mhz\n"
        )

    @property
    def level(self) -> str:
        return (self.folder / "power_dpm_force_performance_level").read_text().strip()

    @property
    def table(self) -> tuple[int, int]:
        text = (self.folder / "pp_od_clk_voltage").read_text()
        low, high = re.findall(r"[01]: (\d+)Mhz", text)[:2]
        return int(low), int(high)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the kernel's rules behind every write to a card's files."""
        monkeypatch.setattr(AmdCard, "write", lambda _card, name, text: self.write(name, text))

    def write(self, name: str, text: str) -> None:
        self.writes.append(text)
        for refused in (name, text):
            if refused in self.refuse:
                code = self.refuse[refused]
                raise VendorError(code, f"{name}: {os.strerror(code)}")
        if name == "power_dpm_force_performance_level":
            self._write_level(text)
        else:
            self._write_table(text)

    def _write_level(self, level: str) -> None:
        known = {"auto", "manual", "low", "high", "profile_standard"}
        if level not in known | ({"perf_determinism"} if self.has_determinism else set()):
            raise VendorError(errno.EINVAL, "level: Invalid argument")
        has_table = (self.folder / "pp_od_clk_voltage").exists()
        table = self.table if level == "manual" and has_table else self.range
        self.set(level, table if has_table else None)

    def _write_table(self, text: str) -> None:
        if self.level not in {"manual", "perf_determinism"}:
            raise VendorError(errno.EINVAL, "table: Invalid argument")
        if text == "c":
            low, high = self._pending
            if low > high or (low == high and self.level == "manual"):
                raise VendorError(errno.EINVAL, "table: Invalid argument")
            self.set(self.level, self._pending)
            return
        _, side, mhz = text.split()
        if not self.range[0] <= int(mhz) <= self.range[1]:
            raise VendorError(errno.EINVAL, "table: Invalid argument")
        low, high = self._pending
        self._pending = (int(mhz), high) if side == "0" else (low, int(mhz))

"""What telemetry from the kernel's files has in common, whoever makes the GPU."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import msgspec

from usv_tui.model import DeviceInfo
from usv_tui.seams import Identity
from usv_tui.telemetry.sensors import MonotonicCounter, SensorBoard
from usv_tui.telemetry.silence import Silence
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.kinds import Vendor
from usv_tui.vendor.sysfs import SysFile


class SysfsTelemetry(ABC):
    """One GPU whose sensors are files. `sys_root` is where sysfs is found."""

    vendor: ClassVar[Vendor]
    _board: SensorBoard

    def __init__(
        self,
        identity: Identity | str,
        sys_root: str | Path = "/sys",
        time_source: TimeSource | None = None,
    ) -> None:
        """Watch the device of this identity (or PCI address); nothing is opened before `open`."""
        if isinstance(identity, str):
            identity = Identity(vendor=self.vendor, ordinal=0, pci=identity)
        self._identity = identity
        self._sys = Path(sys_root)
        self._time = time_source or MonotonicTime()
        self._reset()

    def _reset(self) -> None:
        self._info: DeviceInfo | None = None
        self._device, self._found_by = Path(), ""
        self._is_described = False
        self._status_file: SysFile | None = None
        self._energy = MonotonicCounter()
        self._silence = Silence()

    def info(self) -> DeviceInfo:
        """The device and what is known of its sensors now."""
        info = self._info or DeviceInfo(uuid="", name="", kind=self.vendor, pci=self._identity.pci)
        return msgspec.structs.replace(info, sensors=self._board.infos())

    def close(self) -> None:
        """Give all descriptors back. Never raises."""
        for file in (self._status_file, *self._sensor_files()):
            if file is not None:
                file.close()
        self._reset()

    @abstractmethod
    def _sensor_files(self) -> Iterable[SysFile]:
        """The open files that sensors are read from."""

    def _open(self, path: Path, scale: float = 1.0) -> SysFile | None:
        try:
            return SysFile(path, scale)
        except OSError:
            return None

    def _is_asleep(self) -> bool:
        try:
            return self._status_file is not None and self._status_file.read(32).startswith(b"susp")
        except OSError:
            return False

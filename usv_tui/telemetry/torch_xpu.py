"""Telemetry of an Intel GPU as torch tells it: where the kernel's files are not to be seen.

Torch asks Level Zero Sysman, for which the package pyzes is needed. Never tried on a real device.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from usv_tui.errors import DeviceLost, SensorGap, TelemetryError, TelemetryOff, one_line
from usv_tui.model import DeviceInfo, Reading
from usv_tui.seams import Identity, TelemetrySource, Tier
from usv_tui.telemetry.sensors import SensorBoard
from usv_tui.telemetry.silence import LOST_AFTER_NS, LOST_LOOKS
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.kinds import BACKENDS, Vendor

_ASKED = {"sm_mhz": ("clock_rate", "MHz", Tier.FAST), "temp_c": ("temperature", "°C", Tier.SLOW)}
"""A sensor, what tells it in `torch.xpu`, its unit, and how often it is asked."""
_UNTOLD = (
    *("sm_mhz_min", "mem_mhz", "energy_mj", "power_limit_mw", "mem_temp_c", "reasons"),
    *("util_pct", "steal_pct", "fan_pct", "pstate", "others"),
)
_POWER = "torch.xpu.power_draw takes 0.1 s a look, for which no window may wait"


class TorchXpuTelemetry:
    """A GPU by the number that torch has for it."""

    name = "torch.xpu"

    def __init__(self, identity: Identity, time_source: TimeSource | None = None) -> None:
        """Nothing is asked before `open`."""
        self._identity = identity
        self._time = time_source or MonotonicTime()
        self._board = SensorBoard([*_ASKED, "power_mw", *_UNTOLD])
        self._info: DeviceInfo | None = None
        self._xpu: Any = None
        self._silent: list[int] = []
        """When looks without any answer began, since the last answer."""

    def open(self) -> DeviceInfo:
        """Ask for everything once.

        Raises:
            TelemetryOff: torch is not in this process, or tells nothing of the device.
        """
        self.close()
        xpu = getattr(sys.modules.get("torch"), "xpu", None)
        offered = [name for name, (call, _, _) in _ASKED.items() if hasattr(xpu, call)]
        if not offered:
            raise TelemetryOff("torch.xpu tells no sensors in this process")
        self._board = SensorBoard([*_ASKED, "power_mw", *_UNTOLD])
        failures = []
        for name, (call, unit, _) in _ASKED.items():
            try:
                getattr(xpu, call)(self._identity.ordinal)
            except Exception as error:  # noqa: BLE001  Sysman, pyzes and torch raise many kinds
                failures.append(f"torch.xpu.{call}: {one_line(error)}")
                self._board.never(name, failures[-1])
            else:
                self._board.declare(name, f"torch.xpu.{call}", unit)
        if len(failures) == len(_ASKED):
            raise TelemetryOff("; ".join(failures))
        self._board.never("power_mw", _POWER)
        for name in _UNTOLD:
            self._board.never(name, "torch.xpu does not tell it")
        self._xpu = xpu
        ordinal = self._identity.ordinal
        self._info = DeviceInfo(
            uuid=self._identity.pci or f"xpu:{ordinal}",
            name=self._identity.name or f"xpu:{ordinal}",
            kind=Vendor.INTEL,
            pci=self._identity.pci,
            found_by=f"torch's number {ordinal}",
            note=BACKENDS[Vendor.INTEL].unproven,
        )
        self._board.know(self._info)
        return self.info()

    def info(self) -> DeviceInfo:
        """The device and what is known of its sensors now."""
        info = self._info or DeviceInfo(uuid="", name="", kind=Vendor.INTEL, pci=self._identity.pci)
        return msgspec.structs.replace(info, sensors=self._board.infos())

    def close(self) -> None:
        """Nothing is held."""
        self._info, self._xpu, self._silent = None, None, []

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers.

        Raises:
            SensorGap: not open.
            DeviceLost: nothing has answered, look after look.
        """
        if self._info is None:
            raise SensorGap("the telemetry of torch.xpu is not open")
        start_ns = self._time.now_ns()
        self._board.begin(start_ns)
        asked = answered = 0
        for name, (call, _, tier) in _ASKED.items():
            if tiers & tier and self._board.wants(name, start_ns):
                asked += 1
                answered += self._read(name, getattr(self._xpu, call), start_ns)
        self._judge(start_ns, asked=asked, answered=answered)
        at_ns = (start_ns + self._time.now_ns()) // 2
        return self._board.reading(self._info.uuid, at_ns)

    def _read(self, name: str, call: Callable[[int], float], now_ns: int) -> bool:
        try:
            value = float(call(self._identity.ordinal))
        except Exception as error:  # noqa: BLE001  Sysman, pyzes and torch raise many kinds
            self._board.failed(name, one_line(error), now_ns)
            return False
        self._board.put(name, round(value, 1) if name == "temp_c" else round(value))
        return True

    def _judge(self, now_ns: int, *, asked: int, answered: int) -> None:
        if answered:
            self._silent = []
        elif asked:
            self._silent.append(now_ns)
            if len(self._silent) >= LOST_LOOKS and now_ns - self._silent[0] >= LOST_AFTER_NS:
                raise DeviceLost("torch.xpu no longer tells anything of the GPU")


class FirstThatOpens:
    """The better of two ways to a device's sensors, where it is to be had."""

    def __init__(self, best: TelemetrySource, other: TelemetrySource) -> None:
        self._sources = best, other
        self._open: TelemetrySource = best

    @property
    def name(self) -> str:
        """Of the one that is open."""
        return self._open.name

    def open(self) -> DeviceInfo:
        """Open the first that can be.

        Raises:
            TelemetryOff: neither can, and why.
        """
        reasons = []
        for source in self._sources:
            try:
                info = source.open()
            except TelemetryError as error:
                reasons.append(str(error))
            else:
                self._open = source
                return info
        raise TelemetryOff("; ".join(reasons))

    def info(self) -> DeviceInfo:
        """Of the one that is open."""
        return self._open.info()

    def read(self, tiers: Tier) -> Reading:
        """Of the one that is open."""
        return self._open.read(tiers)

    def close(self) -> None:
        """Both."""
        for source in self._sources:
            source.close()

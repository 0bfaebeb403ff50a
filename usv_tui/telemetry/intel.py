"""Telemetry of an Intel GPU from the files of the kernel's drivers xe and i915.

Clocks and throttle reasons are the driver's, energy, temperatures and limits its hwmon's. Power is
what the energy counter gained between two looks. Never tried on a real device.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from usv_tui.errors import SensorGap
from usv_tui.model import DeviceInfo, Reading, Reason
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.plausible import sane_info
from usv_tui.telemetry.sensors import S, SensorBoard
from usv_tui.telemetry.sysfs import SysfsTelemetry
from usv_tui.telemetry.torch_xpu import FirstThatOpens, TorchXpuTelemetry
from usv_tui.timesource import TimeSource
from usv_tui.vendor.intel import IntelCard, device_name, find_device, grid, gts
from usv_tui.vendor.kinds import BACKENDS, Access, Vendor
from usv_tui.vendor.sysfs import SysFile, hwmon_inputs, hwmon_limits, hwmon_of, read_text, uevent

STALE_NS = 2 * S
"""An energy counter that has not moved for so long is no measurement of power."""
ASLEEP, OFF = "the graphics unit is asleep", "the GPU is runtime-suspended"

_SLOW = ("temp_c", "mem_temp_c", "power_limit_mw")
_UNITS = {
    "sm_mhz": "MHz", "sm_mhz_min": "MHz", "energy_mj": "mJ", "power_mw": "mW", "temp_c": "°C",
    "mem_temp_c": "°C", "power_limit_mw": "mW", "reasons": "",
}  # fmt: skip
_NEVER = {
    "mem_mhz": "Intel's drivers tell no memory clock",
    "util_pct": "Intel's drivers tell no utilisation in /sys",
    "steal_pct": "a GPU reports none",
    "fan_pct": "Intel's drivers tell a fan's turns only, not their share",
    "pstate": "an Intel GPU reports none",
    "others": "unknown (Intel's drivers list no processes)",
}
_REASONS = {
    "pl1": Reason.SW_POWER_CAP, "pl2": Reason.SW_POWER_CAP, "pl4": Reason.SW_POWER_CAP,
    "psys_pl1": Reason.SW_POWER_CAP, "psys_pl2": Reason.SW_POWER_CAP,
    "psys_crit": Reason.HW_POWER_BRAKE, "thermal": Reason.SW_THERMAL,
    "soc_thermal": Reason.SW_THERMAL, "soc_avg_thermal": Reason.SW_THERMAL,
    "mem_thermal": Reason.SW_THERMAL, "ratl": Reason.SW_THERMAL, "vr_thermal": Reason.SW_THERMAL,
    "vr_thermalert": Reason.SW_THERMAL, "prochot": Reason.HW_THERMAL,
    "vr_tdc": Reason.BOARD_LIMIT, "iccmax": Reason.BOARD_LIMIT, "fastvmode": Reason.BOARD_LIMIT,
}  # fmt: skip
_UNKNOWN_REASON = 1 << 24
"""Shown as hexadecimal: the driver says that it throttles, for a reason that is not known here."""


class IntelTelemetry(SysfsTelemetry):
    """One Intel GPU as a watched device. `sys_root` is where sysfs is found."""

    name = "intel"
    vendor = Vendor.INTEL

    def _reset(self) -> None:
        super()._reset()
        self._board = SensorBoard([*_UNITS, *_NEVER])
        self._files: dict[str, SysFile] = {}
        """The file of each quantity that has one."""
        self._clocks: list[SysFile] = []
        """The actual clock of each unit that computes."""
        self._throttles: list[tuple[SysFile, int]] = []
        """A file for each reason, and what it stands for."""
        self._gain: tuple[int, int] | None = None
        """The energy counter in µJ and when it was last seen to move."""

    def open(self) -> DeviceInfo:
        """Find the device's files and what they offer.

        Raises:
            TelemetryOff: no Intel GPU here, or it cannot be told which one is meant.
        """
        self.close()
        self._device, self._found_by = find_device(self._sys, self._identity)
        self._status_file = self._open(self._device / "power/runtime_status")
        units = gts(self._device)
        clocks = (self._open(self._device / gt.actual) for gt in units)
        self._clocks = [file for file in clocks if file is not None]
        for gt in units:
            self._throttles += self._find_throttles(gt.throttle)
        hwmon = self._hwmon()
        if hwmon is not None:
            self._find_sensors(hwmon)
        self._info = self._describe(is_asleep=self._is_asleep())
        self._declare(hwmon)
        return self.info()

    def _sensor_files(self) -> list[SysFile]:
        return [*self._clocks, *self._files.values(), *(file for file, _ in self._throttles)]

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers.

        Raises:
            SensorGap: not open.
            DeviceLost: the device's files no longer answer.
        """
        if self._info is None:
            raise SensorGap("the Intel GPU's telemetry is not open")
        start_ns = self._time.now_ns()
        self._board.begin(start_ns)
        self._silence.begin()
        if self._is_asleep():
            # Reading would wake it.
            self._all_absent(OFF)
        else:
            self._read_awake(tiers, start_ns)
        at_ns = (start_ns + self._time.now_ns()) // 2
        return self._board.reading(self._info.uuid, at_ns)

    def _read_awake(self, tiers: Tier, now_ns: int) -> None:
        if not self._is_described:
            self._info = self._describe(is_asleep=False)
        if tiers & Tier.FAST:
            self._read_clocks(now_ns)
            self._read_energy(now_ns)
        if tiers & Tier.REASONS:
            self._read_reasons(now_ns)
        if tiers & Tier.SLOW:
            for name in _SLOW:
                self._read_file(name, now_ns)
            self._board.watch_stuck()
        self._silence.judge(now_ns, self._sensor_files(), "Intel GPU")

    # --- finding things

    def _hwmon(self) -> Path | None:
        """The card's; i915 has one more for each of its units."""
        return hwmon_of(self._device, uevent(self._device).get("DRIVER", ""))

    def _find_throttles(self, begin: str) -> Iterable[tuple[SysFile, int]]:
        for path in sorted(self._device.glob(f"{begin}reason_*")):
            word = path.name.partition("reason_")[2]
            file = None if word == "status" else self._open(path)
            if file is not None:
                yield file, int(_REASONS.get(word, _UNKNOWN_REASON))

    def _find_sensors(self, hwmon: Path) -> None:
        """The card's own sensors where it has them, else the package's."""
        temperatures = hwmon_inputs(hwmon, "temp")
        wanted = [
            ("energy_mj", hwmon / "energy1_input", 1.0),
            ("energy_mj", hwmon / "energy2_input", 1.0),
            ("temp_c", temperatures.get("pkg", hwmon / "temp2_input"), 1e-3),
            ("mem_temp_c", temperatures.get("vram", hwmon / "temp3_input"), 1e-3),
            ("power_limit_mw", hwmon / "power1_max", 1e-3),
            ("power_limit_mw", hwmon / "power2_max", 1e-3),
            ("power_limit_mw", hwmon / "power1_crit", 1e-3),
        ]
        for name, path, scale in wanted:
            if name not in self._files and (file := self._open(path, scale)) is not None:
                self._files[name] = file

    def _declare(self, hwmon: Path | None) -> None:
        for name, why in _NEVER.items():
            self._board.never(name, why)
        count = len(self._clocks)
        if count:
            label = f"fastest of {count} tiles" if count > 1 else ""
            self._board.declare("sm_mhz", self._clocks[0].path.name, "MHz", label=label)
        else:
            self._board.never("sm_mhz", "the driver shows no clock (a virtual function has none)")
        if count > 1:
            label = f"slowest of {count} tiles"
            self._board.declare("sm_mhz_min", self._clocks[0].path.name, "MHz", label=label)
        else:
            self._board.never("sm_mhz_min", "one clock for the whole GPU")
        if self._throttles:
            self._board.declare("reasons", "throttle reasons", "")
        else:
            self._board.never("reasons", "this driver tells no throttle reasons")
        why = "no file for it" if hwmon is not None else "no hwmon (integrated GPUs have none)"
        for name in ("energy_mj", *_SLOW):
            self._declare_file(name, why)
        if "energy_mj" in self._files:
            self._board.declare("power_mw", "energy counter", "mW", label="mean between two looks")
        else:
            self._board.never("power_mw", why)

    def _declare_file(self, name: str, why: str) -> None:
        file = self._files.get(name)
        if file is None:
            self._board.never(name, why)
        else:
            part = read_text(file.path.with_name(file.path.name.partition("_")[0] + "_label"))
            label = part or ("critical" if file.path.name.endswith("_crit") else "")
            self._board.declare(name, file.path.name, _UNITS[name], label=label)

    def _describe(self, *, is_asleep: bool) -> DeviceInfo:
        """What the GPU is. One that sleeps is not asked for anything that would wake it."""
        self._is_described = not is_asleep
        pci = self._device.name
        steps = [] if is_asleep else grid(IntelCard(pci, str(self._sys)))
        hwmon = None if is_asleep else self._hwmon()
        info = DeviceInfo(
            uuid=f"intel-{pci}",
            name=self._identity.name or device_name(self._device),
            kind=Vendor.INTEL,
            pci=pci,
            driver=uevent(self._device).get("DRIVER"),
            memory_bytes=self._identity.memory_bytes,
            power_limit_mw=None if is_asleep else self._limit_mw(),
            max_sm_mhz=steps[-1] if steps else None,
            supported_sm_mhz=steps,
            temp_limits_c=hwmon_limits(hwmon) if hwmon is not None else {},
            found_by=self._found_by,
            note=BACKENDS[Vendor.INTEL].unproven,
        )
        info = msgspec.structs.replace(info, **sane_info(info))
        self._board.know(info)
        return info

    def _limit_mw(self) -> int | None:
        try:
            return round(self._files["power_limit_mw"].number()) or None
        except (KeyError, OSError, ValueError):
            return None

    # --- reading

    def _all_absent(self, why: str) -> None:
        self._gain = None
        for name in _UNITS:
            if self._board.is_offered(name):
                self._board.absent(name, why)

    def _number(self, name: str, file: SysFile, now_ns: int) -> float | None:
        """A file's number; None, with the reason noted, when there is none now."""
        start_ns = self._time.now_ns()
        try:
            value = file.number()
        except (OSError, ValueError) as error:
            self._silence.failed(error)
            why = (error.strerror if isinstance(error, OSError) else "") or str(error)
            self._board.gap(name, f"{file.path.name}: {why}", now_ns)
            return None
        self._silence.answered()
        self._board.cost(name, self._time.now_ns() - start_ns)
        return value

    def _read_clocks(self, now_ns: int) -> None:
        if not self._clocks or not self._board.wants("sm_mhz", now_ns):
            return
        read = [self._number("sm_mhz", file, now_ns) for file in self._clocks]
        clocks = [mhz for mhz in read if mhz]
        for name, pick in (("sm_mhz", max), ("sm_mhz_min", min)):
            if not self._board.is_offered(name) or None in read:
                continue
            if clocks:
                self._board.put(name, pick(clocks))
            else:
                self._board.absent(name, ASLEEP)

    def _read_energy(self, now_ns: int) -> None:
        """The counter, and the power that it means."""
        file = self._files.get("energy_mj")
        if file is None or not self._board.wants("energy_mj", now_ns):
            return
        value = self._number("energy_mj", file, now_ns)
        if value is None:
            self._gain = None
            self._board.absent("power_mw", "the energy counter does not answer")
            return
        count_uj = int(value)
        self._board.put("energy_mj", count_uj // 1000, None, self._energy)
        if self._gain is None or count_uj < self._gain[0]:
            self._gain = (count_uj, now_ns)
            self._board.absent("power_mw", "two looks at the energy counter are needed")
            return
        before_uj, before_ns = self._gain
        if count_uj > before_uj and now_ns > before_ns:
            self._gain = (count_uj, now_ns)
            # µJ/ns are kW.
            self._board.put("power_mw", round((count_uj - before_uj) * 1e6 / (now_ns - before_ns)))
        elif now_ns - before_ns > STALE_NS:
            self._board.absent("power_mw", "stale: the energy counter stands still")

    def _read_reasons(self, now_ns: int) -> None:
        if not self._throttles or not self._board.wants("reasons", now_ns):
            return
        mask = 0
        for file, bit in self._throttles:
            value = self._number("reasons", file, now_ns)
            if value is None:
                return
            mask |= bit if value else 0
        self._board.put("reasons", mask)

    def _read_file(self, name: str, now_ns: int) -> None:
        file = self._files.get(name)
        if file is None or not self._board.wants(name, now_ns):
            return
        value = self._number(name, file, now_ns)
        if value is None:
            return
        if name == "power_limit_mw" and not value:
            self._board.absent(name, "the power limit is switched off")
        else:
            self._board.put(name, round(value) if name.endswith("_mw") else round(value, 1))


def watch(
    identity: Identity,
    access: Access,
    time_source: TimeSource | None,
    own_pids: Iterable[int],  # noqa: ARG001  the driver lists no processes
) -> FirstThatOpens:
    """The telemetry of the GPU of this identity: the kernel's files, else what torch tells."""
    return FirstThatOpens(
        IntelTelemetry(identity, access.sysfs, time_source),
        TorchXpuTelemetry(identity, time_source),
    )

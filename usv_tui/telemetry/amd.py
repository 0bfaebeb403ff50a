"""Telemetry of an AMD GPU from the amdgpu driver's files in sysfs.

One read of the binary `gpu_metrics` table a look, hwmon and the DPM tables for what it lacks. No
library, no init, no ABI: `amdsmi` is needed for none of it (see `vendor.amd_smi`).
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from usv_tui.errors import SensorGap
from usv_tui.model import DeviceInfo, Reading, Reason
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.plausible import BUSY_PCT, EnergyWitness, sane_info
from usv_tui.telemetry.sensors import S, SensorBoard
from usv_tui.telemetry.sysfs import SysfsTelemetry
from usv_tui.timesource import TimeSource
from usv_tui.vendor.amd_metrics import Metrics, MetricsError, decode
from usv_tui.vendor.amdgpu import StarFile, find_device, first_mhz, kfd_ids, kfd_processes
from usv_tui.vendor.kinds import Access, Vendor
from usv_tui.vendor.processes import Others, foreign_pids
from usv_tui.vendor.sysfs import (
    SysFile,
    hwmon_inputs,
    hwmon_limits,
    hwmon_of,
    label_of,
    read_text,
)

STALE_NS = S
"""A table whose time stamp has not moved for so long is not a measurement any more."""
RECHECK_NS = 5 * S
"""What a card does not offer is looked for again after so long, then twice as long, and so on."""

_FIELDS = (
    "sm_mhz", "sm_mhz_min", "mem_mhz", "power_mw", "temp_c", "mem_temp_c", "energy_mj",
    "util_pct", "steal_pct", "fan_pct", "power_limit_mw", "pstate", "reasons",
    "throttle_ns.power", "throttle_ns.thermal", "throttle_ns.hw_thermal", "others",
)  # fmt: skip
_FROM_METRICS = (
    "sm_mhz", "sm_mhz_min", "mem_mhz", "power_mw", "temp_c", "mem_temp_c", "energy_mj",
    "util_pct", "reasons", "throttle_ns.power", "throttle_ns.thermal", "throttle_ns.hw_thermal",
)  # fmt: skip

# Bits of the ASIC-independent throttle status, first and last, and the reason they stand for.
_THROTTLE_BITS = (
    (0, 7, Reason.SW_POWER_CAP),
    (16, 23, Reason.BOARD_LIMIT),
    (32, 43, Reason.SW_THERMAL),
    (44, 47, Reason.HW_THERMAL),
    (57, 57, Reason.RELIABILITY),
)
_UNKNOWN_THROTTLE = 1 << 24
"""Shown as hexadecimal: the driver sets a throttle bit that is not known here."""


class AmdTelemetry(SysfsTelemetry):
    """One AMD GPU as a watched device. `sys_root` is where sysfs is found."""

    name = "amdgpu"
    vendor = Vendor.AMD

    def __init__(
        self,
        identity: Identity | str,
        sys_root: str | Path = "/sys",
        time_source: TimeSource | None = None,
        own_pids: Iterable[int] = (),
    ) -> None:
        """Watch the device of this identity (or PCI address); nothing is opened before `open`."""
        self._own_pids = own_pids
        super().__init__(identity, sys_root, time_source)

    def _reset(self) -> None:
        super()._reset()
        self._board = SensorBoard(_FIELDS)
        self._hwmon: Path | None = None
        self._partition = "SPX"
        self._whole = ""
        self._metrics_file: SysFile | None = None
        self._fallbacks: dict[str, SysFile] = {}
        self._kfd_ids: list[str] = []
        self._tabled: set[str] = set()
        """The quantities that the table gives."""
        self._chosen_ns: int | None = None
        self._recheck_ns = RECHECK_NS
        self._stamp: tuple[int | None, int] = (None, 0)
        self._witness = EnergyWitness(factor=2.0, periods=1)
        self._residency: tuple[tuple[int, int, int, int], int] | None = None
        self._throttled_ns = [0, 0, 0]

    def open(self) -> DeviceInfo:
        """Find the device's files and what they offer.

        Raises:
            TelemetryOff: no amdgpu device here, or it cannot be told which one is meant.
        """
        self.close()
        self._device, self._found_by = find_device(self._sys, self._identity)
        self._status_file = self._open(self._device / "power/runtime_status")
        self._metrics_file = self._open(self._device / "gpu_metrics")
        self._hwmon = hwmon_of(self._device)
        self._fallbacks = dict(self._find_fallbacks(self._hwmon))
        self._partition = self._text("current_compute_partition") or "SPX"
        self._whole = "" if self._partition == "SPX" else f"whole socket ({self._partition})"
        self._kfd_ids = list(kfd_ids(self._sys, self._pci()))
        self._info = self._describe(is_asleep=self._is_asleep())
        for name in ("pstate", "steal_pct"):
            self._board.never(name, "an AMD GPU reports none")
        if self._kfd_ids:
            self._board.declare("others", "kfd/proc", "pid")
        else:
            self._board.never("others", "unknown (no KFD process list)")
        return self.info()

    def _sensor_files(self) -> Iterable[SysFile]:
        return filter(None, (self._metrics_file, *self._fallbacks.values()))

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers.

        Raises:
            SensorGap: not open, or the driver refuses for the moment.
            DeviceLost: the device's files no longer answer.
        """
        if self._info is None:
            raise SensorGap("the AMD GPU's telemetry is not open")
        start_ns = self._time.now_ns()
        self._board.begin(start_ns)
        self._silence.begin()
        if self._is_asleep():
            # Reading would wake it, and its first values after that are latched.
            for name in _FIELDS[:-1]:
                if self._board.is_offered(name):
                    self._board.absent(name, "the GPU is runtime-suspended")
        else:
            if not self._is_described:
                self._info = self._describe(is_asleep=False)
            if tiers & Tier.FAST:
                self._read_fast(start_ns)
            if tiers & Tier.SLOW:
                self._read_slow(start_ns)
            self._silence.judge(start_ns, self._sensor_files(), "AMD GPU")
        if tiers & Tier.RARE and self._kfd_ids:
            self._read_others()
        at_ns = (start_ns + self._time.now_ns()) // 2
        return self._board.reading(self._info.uuid, at_ns)

    # --- finding things

    def _open(self, path: Path, scale: float = 1.0) -> SysFile | None:
        try:
            return StarFile(path) if path.name.startswith("pp_dpm") else super()._open(path, scale)
        except OSError:
            return None

    def _text(self, name: str) -> str | None:
        return read_text(self._device / name)

    def _pci(self) -> str:
        return self._device.name

    def _find_fallbacks(self, hwmon: Path | None) -> Iterable[tuple[str, SysFile]]:
        """What hwmon and the DPM tables offer, by quantity; the first that opens is taken."""
        labels = hwmon_inputs(hwmon, "temp") if hwmon is not None else {}
        wanted: list[tuple[str, Path | None, float]] = []
        if hwmon is not None:
            wanted = [
                ("sm_mhz", hwmon / "freq1_input", 1e-6),
                ("mem_mhz", hwmon / "freq2_input", 1e-6),
                ("power_mw", hwmon / "power1_average", 1e-3),
                ("power_mw", hwmon / "power1_input", 1e-3),
                ("power_limit_mw", hwmon / "power1_cap", 1e-3),
                ("temp_c", labels.get("edge"), 1e-3),
                ("temp_c", labels.get("junction"), 1e-3),
                ("mem_temp_c", labels.get("mem"), 1e-3),
                ("fan_pct", hwmon / "pwm1", 100 / 255),
            ]
        wanted += [
            ("sm_mhz", self._device / "pp_dpm_sclk", 1.0),
            ("mem_mhz", self._device / "pp_dpm_mclk", 1.0),
            ("util_pct", self._device / "gpu_busy_percent", 1.0),
        ]
        found: set[str] = set()
        for name, path, scale in wanted:
            if path is None or name in found:
                continue
            if (file := self._open(path, scale)) is not None:
                found.add(name)
                yield name, file

    def _describe(self, *, is_asleep: bool) -> DeviceInfo:
        """What the card is. A card that sleeps is not asked for anything that would wake it."""
        self._is_described = not is_asleep
        pci = self._pci()
        unique = self._text("unique_id")
        table = "" if is_asleep else self._text("pp_dpm_sclk") or ""
        levels = sorted({first_mhz(line) for line in table.splitlines() if line})
        is_part = self._partition != "SPX"
        notes = [f"compute partition {self._partition}: one of several"] if is_part else []
        level = None if is_asleep else self._text("power_dpm_force_performance_level")
        if level not in (None, "auto"):
            notes.append(f"performance level {level}")
        memory = self._text("mem_info_vram_total")
        limits = hwmon_limits(self._hwmon) if self._hwmon is not None and not is_asleep else {}
        info = DeviceInfo(
            uuid=f"GPU-{unique}" if unique else f"amd-{pci}",
            name=self._text("product_name") or self._identity.name or "AMD GPU",
            kind=Vendor.AMD,
            pci=pci,
            driver=read_text(self._sys / "module/amdgpu/version") or "amdgpu",
            memory_bytes=int(memory) if memory and memory.isdigit() else None,
            power_limit_mw=self._limit_mw() if not is_asleep else None,
            max_sm_mhz=levels[-1] if levels else None,
            supported_sm_mhz=levels,
            temp_limits_c=limits,
            found_by=self._found_by,
            note=", ".join(notes),
        )
        info = msgspec.structs.replace(info, **sane_info(info))
        self._board.know(info)
        return info

    def _limit_mw(self) -> int | None:
        file = self._fallbacks.get("power_limit_mw")
        try:
            return round(file.number()) if file is not None else None
        except (OSError, ValueError):
            return None

    def _choose_sources(self, metrics: Metrics | None, why_not: str, *, is_first: bool) -> None:
        """Take every quantity from the table where it has it, else from a file, else say why."""
        table = f"gpu_metrics {metrics.version}" if metrics is not None else ""
        offered = _offered(metrics) if metrics is not None else {}
        units = {
            "sm_mhz": "MHz", "sm_mhz_min": "MHz", "mem_mhz": "MHz", "power_mw": "mW",
            "temp_c": "°C", "mem_temp_c": "°C", "energy_mj": "mJ", "util_pct": "%",
            "fan_pct": "%", "power_limit_mw": "mW",
        }  # fmt: skip
        for name in (*_FROM_METRICS, "fan_pct", "power_limit_mw"):
            if not is_first and self._board.is_offered(name):
                continue
            unit = units.get(name, "ns" if "throttle" in name else "")
            if name in offered:
                label = ", ".join(word for word in (self._whole, offered[name]) if word)
                self._board.declare(name, table, unit, label=label)
                self._tabled.add(name)
            elif name in self._fallbacks:
                path = self._fallbacks[name].path
                label = "junction" if name == "temp_c" and "edge" not in label_of(path) else ""
                self._board.declare(name, path.name, unit, label=label or self._whole)
            else:
                reason = f"not in {table}" if table else why_not or "no file for it"
                self._board.never(name, reason)

    # --- reading

    def _read_fast(self, now_ns: int) -> None:
        metrics, why_not = self._read_metrics()
        if self._chosen_ns is None or now_ns - self._chosen_ns > self._recheck_ns:
            is_first = self._chosen_ns is None
            if is_first or metrics is not None:
                self._choose_sources(metrics, why_not, is_first=is_first)
            self._recheck_ns = RECHECK_NS if is_first else 2 * self._recheck_ns
            self._chosen_ns = now_ns
        if metrics is not None:
            why_not = self._why_stale(metrics, now_ns)
        if metrics is None or why_not:
            for name in _FROM_METRICS:
                if name in self._tabled:
                    self._board.absent(name, why_not)
        else:
            self._take(metrics, now_ns)
        for name in ("sm_mhz", "power_mw"):
            self._read_file(name, now_ns)

    def _read_metrics(self) -> tuple[Metrics | None, str]:
        """The decoded table, or why there is none."""
        if self._metrics_file is None:
            return None, "this kernel offers no gpu_metrics"
        start_ns = self._time.now_ns()
        try:
            data = self._metrics_file.read()
        except OSError as error:
            self._silence.failed(error)
            return None, f"gpu_metrics: {error.strerror}"
        self._silence.answered()
        self._board.cost("sm_mhz", self._time.now_ns() - start_ns)
        try:
            return decode(data), ""
        except MetricsError as error:
            return None, str(error)

    def _why_stale(self, metrics: Metrics, now_ns: int) -> str:
        """Why the table is no measurement: the driver repeats an old one with success."""
        stamp, since_ns = self._stamp
        if metrics.stamp_ns is None or metrics.stamp_ns != stamp:
            self._stamp = (metrics.stamp_ns, now_ns)
            return ""
        if now_ns - since_ns > STALE_NS:
            return "stale: the driver repeats an old gpu_metrics"
        return ""

    def _take(self, metrics: Metrics, now_ns: int) -> None:
        """The values of a fresh table."""
        put = self._put
        activity = metrics.activity_pct
        put("util_pct", activity, metrics)
        is_busy = bool(activity)
        clocks = [mhz for mhz in metrics.gfx_mhz if mhz]
        why = "reads 0 MHz while the GPU works" if is_busy else "the graphics engine is off"
        put("sm_mhz", max(clocks, default=None), metrics, why)
        if len(metrics.gfx_mhz) > 1:
            put("sm_mhz_min", min(clocks, default=None), metrics, why)
        put("mem_mhz", metrics.mem_mhz or None, metrics, "reads 0")
        is_double = "MI250" in (self._info.name if self._info is not None else "")
        why = "the package's other die reports it" if is_double else "reads 0 W"
        rests = activity is not None and activity < BUSY_PCT and not is_double
        power_w = metrics.power_w or (metrics.power_w if rests else None)
        put("power_mw", None if power_w is None else power_w * 1000, metrics, why)
        edge, hotspot = _celsius(metrics.edge_c), _celsius(metrics.hotspot_c)
        put("temp_c", hotspot if edge is None else edge, metrics)
        put("mem_temp_c", _celsius(metrics.mem_c), metrics)
        self._take_energy(metrics, now_ns)
        self._take_throttling(metrics, now_ns)

    def _put(self, name: str, value: object, metrics: Metrics, why_not: str = "no value") -> None:
        if name not in self._tabled:
            return
        if value is None:
            self._board.absent(name, why_not)
        else:
            counter = self._energy if name == "energy_mj" else None
            self._board.put(name, value, metrics.stamp_ns, counter)

    def _take_energy(self, metrics: Metrics, now_ns: int) -> None:
        """Energy, as long as it agrees with the power reading to a factor of two."""
        count = metrics.energy_count
        self._put("energy_mj", count * 1000 >> 16 if count else None, metrics, "reads 0")
        if "energy_mj" not in self._tabled:
            return
        energy, power = self._board.value("energy_mj"), self._board.value("power_mw")
        if why := self._witness.feed(energy, power, now_ns):
            self._tabled.discard("energy_mj")
            self._board.never("energy_mj", why)

    def _take_throttling(self, metrics: Metrics, now_ns: int) -> None:
        """Reasons from the status bits, or from the cycles that were spent under a limit."""
        if metrics.residency is None:
            mask = None if metrics.throttle is None else reason_mask(metrics.throttle)
            self._put("reasons", mask, metrics)
            return
        last, self._residency = self._residency, (metrics.residency, now_ns)
        if last is None:
            self._put("reasons", 0, metrics)
            return
        then, then_ns = last
        # Counters of 32 bits that wrap.
        spent = [(new - old) & 0xFFFFFFFF for new, old in zip(metrics.residency, then, strict=True)]
        mask = 0
        bits = (Reason.SW_POWER_CAP, Reason.SW_THERMAL, Reason.HW_THERMAL)
        for index, bit in enumerate(bits):
            share = min(1.0, spent[index + 1] / spent[0]) if spent[0] else 0.0
            self._throttled_ns[index] += round(share * (now_ns - then_ns))
            mask |= int(bit) if share else 0
        self._put("reasons", mask, metrics)
        for part, total_ns in zip(
            ("power", "thermal", "hw_thermal"), self._throttled_ns, strict=True
        ):
            self._put(f"throttle_ns.{part}", total_ns, metrics)

    def _read_slow(self, now_ns: int) -> None:
        for name in ("mem_mhz", "temp_c", "mem_temp_c", "util_pct", "fan_pct", "power_limit_mw"):
            self._read_file(name, now_ns)
        self._board.watch_stuck()

    def _read_file(self, name: str, now_ns: int) -> None:
        """A quantity that comes from a file of its own."""
        file = self._fallbacks.get(name)
        if file is None or name in self._tabled or not self._board.wants(name, now_ns):
            return
        start_ns = self._time.now_ns()
        try:
            value = file.number()
        except (OSError, ValueError) as error:
            self._silence.failed(error)
            why = (error.strerror if isinstance(error, OSError) else "") or str(error)
            self._board.gap(name, f"{file.path.name}: {why}", now_ns)
            return
        self._silence.answered()
        self._board.cost(name, self._time.now_ns() - start_ns)
        self._board.put(name, round(value) if name.endswith("_mw") else round(value, 1))

    def _read_others(self) -> None:
        rows = kfd_processes(self._sys, self._kfd_ids)
        memory = self._info.memory_bytes if self._info is not None else None
        found, reason = foreign_pids(rows, frozenset((os.getpid(), *self._own_pids)), memory)
        if found is None:
            self._board.absent("others", reason)
        else:
            self._board.put("others", Others.of(found, rows))


def watch(
    identity: Identity, access: Access, time_source: TimeSource | None, own_pids: Iterable[int]
) -> AmdTelemetry:
    """The telemetry of the card of this identity."""
    return AmdTelemetry(identity, access.sysfs, time_source, own_pids)


def _offered(metrics: Metrics) -> dict[str, str]:
    """The quantities that a table has, with the words that belong beside them."""
    offered: dict[str, str] = {}
    dies = len(metrics.gfx_mhz)
    if dies:
        mean = "firmware average" if metrics.is_clock_average else ""
        offered["sm_mhz"] = f"fastest of {dies} dies" if dies > 1 else mean
    if dies > 1:
        offered["sm_mhz_min"] = f"slowest of {dies} dies"
    if metrics.mem_mhz is not None:
        offered["mem_mhz"] = ""
    if metrics.power_w is not None:
        offered["power_mw"] = "firmware average" if metrics.is_power_average else "socket"
    if metrics.edge_c is not None or metrics.hotspot_c is not None:
        offered["temp_c"] = "hotspot" if metrics.edge_c is None else "edge"
    if metrics.mem_c:
        offered["mem_temp_c"] = "memory"
    if metrics.energy_count:
        offered["energy_mj"] = "since power-on"
    if metrics.activity_pct is not None:
        offered["util_pct"] = ""
    if metrics.throttle is not None or metrics.residency is not None:
        offered["reasons"] = ""
    if metrics.residency is not None:
        for part in ("power", "thermal", "hw_thermal"):
            offered[f"throttle_ns.{part}"] = "share of firmware cycles"
    return offered


def reason_mask(status: int) -> int:
    """The driver's ASIC-independent throttle bits as `Reason` bits; unknown ones keep a bit."""
    mask = 0
    for first, last, reason in _THROTTLE_BITS:
        part = ((1 << (last - first + 1)) - 1) << first
        if status & part:
            mask |= int(reason)
            status &= ~part
    return mask | (_UNKNOWN_THROTTLE if status else 0)


def _celsius(value: int | None) -> float | None:
    """Degrees; drivers have mixed them with thousandths, and 0 stands for absent."""
    if not value:
        return None
    degrees = value / 1000 if value > 1000 else float(value)
    return degrees if -50 < degrees < 150 else None

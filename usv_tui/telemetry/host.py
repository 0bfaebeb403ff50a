"""Telemetry of the CPU: clock, temperature, power where the machine shows them (Linux).

Only files are read, through descriptors that stay open, so that one look costs microseconds.
Virtual machines and containers show little of this; what is missing says why.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from usv_tui.errors import SensorGap, TelemetryOff
from usv_tui.model import NOMINAL, DeviceInfo, Reading
from usv_tui.seams import Tier
from usv_tui.telemetry.sensors import MS, MonotonicCounter, SensorBoard
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.kinds import Vendor

MAX_CORES_READ = 32
"""More cores than this are sampled evenly: each one read costs a few microseconds."""
CONSTANT_LOOKS = 100
"""After so many equal values a clock is called nominal: no governor holds it to the hertz."""
MIN_TEMP_C, MAX_TEMP_C = -50.0, 150.0
MIN_POWER_SPAN_NS = 5 * MS
"""Shorter differences of an energy counter that ticks every millisecond are mostly rounding."""

_FIELDS = (
    "sm_mhz", "sm_mhz_min", "mem_mhz", "power_mw", "temp_c", "mem_temp_c", "energy_mj",
    "util_pct", "steal_pct", "fan_pct", "power_limit_mw", "pstate", "reasons", "throttle_ns",
    "others",
)  # fmt: skip
_GPU_ONLY = {
    "mem_mhz": "a CPU does not report its memory clock",
    "mem_temp_c": "a CPU does not report its memory's temperature",
    "fan_pct": "fans of the host are not related to one device",
    "pstate": "a CPU has no performance state of this kind",
    "reasons": "a CPU does not report why its clock is low",
    "others": "other processes on a CPU are normal; see steal and utilisation",
}
_HWMON_LABELS = (
    ("coretemp", "Package id 0"),
    ("k10temp", "Tctl"),
    ("k10temp", "Tdie"),
    ("zenpower", "Tdie"),
    ("cpu_thermal", ""),
    ("cpu", ""),
)
_ZONE_TYPES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal", "acpitz")


class _OpenFile:
    """A small file that is read again and again through one descriptor."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it is not there or may not be read.
        """
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def text(self, size: int = 4096) -> str:
        """What the file says now.

        Raises:
            OSError: the kernel refuses, for example while a core is offline.
        """
        return os.pread(self._fd, size, 0).decode("ascii", "replace")

    def number(self) -> int:
        """The file's one number.

        Raises:
            OSError: the kernel refuses.
            ValueError: it holds no number.
        """
        return int(self.text(64))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Package:
    """One RAPL package: an energy counter in microjoules that wraps."""

    def __init__(self, file: _OpenFile, range_uj: int | None) -> None:
        self.file = file
        self._counter = MonotonicCounter(range_uj, from_zero=True)

    def total_uj(self) -> int:
        """Energy since the first call."""
        return self._counter.feed(self.file.number())


class HostTelemetry:
    """The CPU as a watched device. `root` is where `/proc` and `/sys` are found."""

    name = "host"

    def __init__(self, root: str | Path = "/", time_source: TimeSource | None = None) -> None:
        self._root = Path(root)
        self._time = time_source or MonotonicTime()
        self._board = SensorBoard(_FIELDS)
        self._uuid = ""
        self._info: DeviceInfo | None = None
        self._files: list[_OpenFile] = []
        self._clock_files: list[_OpenFile] = []
        self._cpuinfo: _OpenFile | None = None
        self._stat: _OpenFile | None = None
        self._temp: _OpenFile | None = None
        self._packages: list[_Package] = []
        self._power_limit_mw: int | None = None
        self._throttles: list[_OpenFile] = []
        self._last_energy: tuple[int, int] | None = None
        self._last_ticks: list[int] | None = None
        self._clock_label = ""
        self._equal_looks = 0
        self._is_virtual = False
        self._has_moved = False

    def open(self) -> DeviceInfo:
        """Find out what this machine shows.

        Raises:
            TelemetryOff: there is no `/proc` to read.
        """
        self.close()
        cpuinfo = self._read("proc/cpuinfo")
        if cpuinfo is None:
            raise TelemetryOff("no CPU telemetry", "it needs Linux with /proc")
        self._is_virtual = "hypervisor" in (_cpuinfo_value(cpuinfo, "flags") or "").split()
        for field, reason in _GPU_ONLY.items():
            self._board.never(field, reason)
        self._open_clock(cpuinfo)
        self._open_temperature()
        self._open_power()
        self._open_load()
        self._open_throttle()
        self._info = self._describe(cpuinfo)
        self._uuid = self._info.uuid
        return self.info()

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers.

        Raises:
            SensorGap: the telemetry is closed.
        """
        if self._info is None:
            raise SensorGap("the CPU's telemetry is not open")
        start_ns = self._time.now_ns()
        self._board.begin(start_ns)
        # A clock that has shown itself to be constant is worth a look a second, not ten.
        if tiers & (Tier.SLOW if self._is_nominal() else Tier.FAST):
            self._read_clock()
        if tiers & Tier.FAST:
            self._read_power()
        if tiers & Tier.SLOW:
            self._read_temperature()
            self._read_load()
            self._read_throttle()
        end_ns = self._time.now_ns()
        return self._board.reading(self._uuid, (start_ns + end_ns) // 2)

    def info(self) -> DeviceInfo:
        """The CPU and what is known of its sensors now."""
        info = self._info or DeviceInfo(uuid="cpu", name="CPU", kind=Vendor.CPU)
        return msgspec.structs.replace(info, sensors=self._board.infos())

    def close(self) -> None:
        """Give all descriptors back. Never raises."""
        for file in self._files:
            file.close()
        self._files.clear()
        self._clock_files.clear()
        self._packages.clear()
        self._throttles.clear()
        self._cpuinfo = self._stat = self._temp = None
        self._last_energy = self._last_ticks = self._power_limit_mw = None
        self._info = None

    # --- finding things

    def _read(self, name: str) -> str | None:
        try:
            return (self._root / name).read_text("utf-8", "replace").strip()
        except OSError:
            return None

    def _number(self, name: str) -> int | None:
        text = self._read(name)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def _keep(self, path: Path) -> _OpenFile:
        file = _OpenFile(path)
        self._files.append(file)
        return file

    def _try_keep(self, path: Path) -> _OpenFile | None:
        try:
            return self._keep(path)
        except OSError:
            return None

    def _open_clock(self, cpuinfo: str) -> None:
        cores = self._cores()
        step = -(-len(cores) // MAX_CORES_READ) if cores else 1
        for core in cores[::step]:
            file = self._try_keep(self._cpu_dir / f"cpu{core}/cpufreq/scaling_cur_freq")
            if file is not None:
                self._clock_files.append(file)
        if self._clock_files:
            sampled = f"{len(self._clock_files)} cores"
            self._clock_label = f"fastest of {sampled}"
            self._board.declare("sm_mhz", "scaling_cur_freq", "MHz", label=self._clock_label)
            self._board.declare(
                "sm_mhz_min", "scaling_cur_freq", "MHz", label=f"slowest of {sampled}"
            )
            return
        self._board.never("sm_mhz_min", "no clock per core here")
        if _clocks_mhz(cpuinfo):
            self._cpuinfo = self._try_keep(self._root / "proc/cpuinfo")
            self._clock_label = NOMINAL if self._is_virtual else "from cpuinfo"
            self._board.declare("sm_mhz", "/proc/cpuinfo", "MHz", label=self._clock_label)
        else:
            self._board.never("sm_mhz", "this kernel shows no CPU clock")

    @property
    def _cpu_dir(self) -> Path:
        return self._root / "sys/devices/system/cpu"

    def _cores(self) -> list[int]:
        """The cores that this process may run on and that the tree has."""
        present = sorted(
            int(path.name[3:]) for path in self._cpu_dir.glob("cpu[0-9]*") if path.is_dir()
        )
        if self._root != Path("/"):
            return present
        allowed = os.sched_getaffinity(0)
        return [core for core in present if core in allowed]

    def _open_temperature(self) -> None:
        found = self._find_hwmon() or self._find_zone()
        if found is None:
            why = "virtual machines show no" if self._is_virtual else "this machine shows no"
            self._board.never("temp_c", f"{why} CPU temperature")
            return
        self._temp, label = found
        self._board.declare("temp_c", str(self._temp.path), "°C", label=label)

    def _find_hwmon(self) -> tuple[_OpenFile, str] | None:
        chips: dict[str, Path] = {}
        for chip in sorted((self._root / "sys/class/hwmon").glob("hwmon*")):
            name = self._read(str(chip.relative_to(self._root) / "name"))
            if name:
                chips.setdefault(name, chip)
        for chip_name, wanted in _HWMON_LABELS:
            if chip_name not in chips:
                continue
            for path in sorted(chips[chip_name].glob("temp*_input")):
                label_path = path.with_name(path.name.replace("_input", "_label"))
                label = self._read(str(label_path.relative_to(self._root))) or ""
                if label == wanted and (file := self._try_keep(path)) is not None:
                    return file, label or chip_name
        return None

    def _find_zone(self) -> tuple[_OpenFile, str] | None:
        zones: dict[str, Path] = {}
        for zone in sorted((self._root / "sys/class/thermal").glob("thermal_zone*")):
            kind = self._read(str(zone.relative_to(self._root) / "type"))
            if kind:
                zones.setdefault(kind, zone / "temp")
        for kind in _ZONE_TYPES:
            if kind in zones and (file := self._try_keep(zones[kind])) is not None:
                return file, kind
        return None

    def _open_power(self) -> None:
        domains = self._rapl_packages()
        reason = "no RAPL counters" + (" in a virtual machine" if self._is_virtual else " here")
        for path in domains:
            try:
                file = self._keep(path / "energy_uj")
            except PermissionError:
                reason = "RAPL counters are readable by root only (chmod a+r energy_uj, or root)"
                continue
            except OSError:
                continue
            name = path.relative_to(self._root)
            self._packages.append(_Package(file, self._number(f"{name}/max_energy_range_uj")))
        if not self._packages:
            for field in ("power_mw", "energy_mj", "power_limit_mw"):
                self._board.never(field, reason)
            return
        source = f"RAPL, {len(self._packages)} package" + "s" * (len(self._packages) > 1)
        self._board.declare("power_mw", source, "mW", label="mean since the last look")
        self._board.declare("energy_mj", source, "mJ", label="since start")
        limits = [
            self._number(f"{path.relative_to(self._root)}/constraint_0_power_limit_uw")
            for path in domains
        ]
        known = [limit for limit in limits if limit]
        if known and len(known) == len(domains):
            self._board.declare("power_limit_mw", source, "mW", label="long-term limit")
            self._power_limit_mw = round(sum(known) / 1000)
        else:
            self._board.never("power_limit_mw", "RAPL shows no long-term limit")

    def _rapl_packages(self) -> list[Path]:
        """Packages only: their parts are in them, and `psys` may hold them all."""
        base = self._root / "sys/class/powercap"
        return [
            path
            for path in sorted(base.glob("intel-rapl:*"))
            if path.name.count(":") == 1
            and (self._read(str(path.relative_to(self._root) / "name")) or "").startswith("package")
        ]

    def _open_load(self) -> None:
        self._stat = self._try_keep(self._root / "proc/stat")
        if self._stat is None:
            self._board.never("util_pct", "no /proc/stat")
            self._board.never("steal_pct", "no /proc/stat")
            return
        self._board.declare("util_pct", "/proc/stat", "%", label="all cores")
        if self._is_virtual:
            self._board.declare("steal_pct", "/proc/stat", "%", label="taken by the hypervisor")
        else:
            self._board.never("steal_pct", "not a virtual machine")

    def _open_throttle(self) -> None:
        seen: set[int | None] = set()
        for core in self._cores():
            # The cores of one package all show the package's figure.
            cpu = f"sys/devices/system/cpu/cpu{core}"
            package = self._number(f"{cpu}/topology/physical_package_id")
            if package in seen:
                continue
            seen.add(package)
            path = self._root / cpu / "thermal_throttle/package_throttle_total_time_ms"
            if (file := self._try_keep(path)) is not None:
                self._throttles.append(file)
        if self._throttles:
            self._board.declare("throttle_ns", "package_throttle_total_time_ms", "ns")
        else:
            self._board.never("throttle_ns", "this CPU counts no throttled time")

    def _describe(self, cpuinfo: str) -> DeviceInfo:
        model = (
            _cpuinfo_value(cpuinfo, "model name")
            or _cpuinfo_value(cpuinfo, "Hardware")
            or _cpuinfo_value(cpuinfo, "CPU part")
            or "CPU"
        )
        identity = f"usv-tui {self._read('etc/machine-id') or ''} {model}"
        first = "sys/devices/system/cpu/cpu0/cpufreq"
        driver = self._read(f"{first}/scaling_driver")
        governor = self._read(f"{first}/scaling_governor")
        top_khz = self._number(f"{first}/cpuinfo_max_freq")
        base_khz = self._number(f"{first}/base_frequency")
        memory = self._read("proc/meminfo") or ""
        total = next((line for line in memory.splitlines() if line.startswith("MemTotal:")), "")
        return DeviceInfo(
            uuid="cpu-" + hashlib.sha256(identity.encode()).hexdigest()[:16],
            name=model,
            kind=Vendor.CPU,
            driver=f"{driver}/{governor}" if driver and governor else driver,
            memory_bytes=int(total.split()[1]) * 1024 if total else None,
            power_limit_mw=self._power_limit_mw,
            max_sm_mhz=top_khz // 1000 if top_khz else None,
            base_sm_mhz=base_khz // 1000 if base_khz else None,
            note="virtual machine" if self._is_virtual else "",
        )

    # --- reading things

    def _is_nominal(self) -> bool:
        return self._clock_label == NOMINAL

    def _read_clock(self) -> None:
        start_ns = self._time.now_ns()
        clocks = list(self._core_clocks())
        if not clocks:
            if self._board.is_offered("sm_mhz"):
                self._board.gap("sm_mhz", "no core answered", start_ns)
            return
        self._board.cost("sm_mhz", self._time.now_ns() - start_ns)
        fastest = max(clocks)
        self._learn_nominal(fastest)
        self._board.put("sm_mhz", fastest)
        if self._clock_files:
            self._board.put("sm_mhz_min", min(clocks))

    def _core_clocks(self) -> Iterable[float]:
        for file in self._clock_files:
            try:
                yield file.number() / 1000
            except (OSError, ValueError):
                continue  # an offline core has no clock
        if self._cpuinfo is not None:
            yield from _clocks_mhz(self._cpuinfo.text(1 << 20))

    def _learn_nominal(self, mhz: float) -> None:
        """A figure that has never moved in a hundred looks is a rating, not a measurement."""
        last = self._board.value("sm_mhz")
        if last is not None and mhz != last:
            self._has_moved = True
        self._equal_looks = 0 if self._has_moved else self._equal_looks + 1
        if self._has_moved and self._is_nominal():
            self._clock_label = "from cpuinfo" if self._cpuinfo else "fastest core"
            self._board.label("sm_mhz", self._clock_label)
        elif self._equal_looks >= CONSTANT_LOOKS and not self._is_nominal():
            self._clock_label = NOMINAL
            self._board.label("sm_mhz", NOMINAL)

    def _read_power(self) -> None:
        if not self._packages:
            return
        now_ns = self._time.now_ns()
        if self._last_energy and now_ns - self._last_energy[0] < MIN_POWER_SPAN_NS:
            return
        try:
            total_uj = sum(package.total_uj() for package in self._packages)
        except (OSError, ValueError) as error:
            for field in ("power_mw", "energy_mj"):
                self._board.gap(field, f"RAPL: {error}", now_ns)
            self._last_energy = None
            return
        self._board.cost("energy_mj", self._time.now_ns() - now_ns)
        self._board.put("energy_mj", total_uj // 1000)
        if self._power_limit_mw is not None:
            self._board.put("power_limit_mw", self._power_limit_mw)
        if self._last_energy is not None:
            then_ns, then_uj = self._last_energy
            # 1 µJ/ns is 1 kW is 1e6 mW.
            self._board.put(
                "power_mw", round((total_uj - then_uj) * 1_000_000 / (now_ns - then_ns))
            )
        self._last_energy = (now_ns, total_uj)

    def _read_temperature(self) -> None:
        if self._temp is None:
            return
        now_ns = self._time.now_ns()
        try:
            temp_c = self._temp.number() / 1000
        except (OSError, ValueError) as error:
            self._board.gap("temp_c", str(error), now_ns)
            return
        self._board.cost("temp_c", self._time.now_ns() - now_ns)
        if MIN_TEMP_C < temp_c < MAX_TEMP_C:
            self._board.put("temp_c", temp_c)
        else:
            self._board.gap("temp_c", f"implausible: {temp_c:g} °C", now_ns)

    def _read_load(self) -> None:
        if self._stat is None:
            return
        start_ns = self._time.now_ns()
        ticks = [int(word) for word in self._stat.text(512).split("\n", 1)[0].split()[1:9]]
        self._board.cost("util_pct", self._time.now_ns() - start_ns)
        last, self._last_ticks = self._last_ticks, ticks
        if last is None or len(ticks) < 8:
            return
        spent = [now - then for now, then in zip(ticks, last, strict=True)]
        total = sum(spent)
        if total <= 0 or min(spent) < 0:
            return  # less than a tick has passed, or a core went offline
        idle, steal = spent[3] + spent[4], spent[7]
        self._board.put("util_pct", round(100 * (total - idle - steal) / total, 1))
        if self._is_virtual:
            self._board.put("steal_pct", round(100 * steal / total, 1))

    def _read_throttle(self) -> None:
        if not self._throttles:
            return
        try:
            total_ms = sum(file.number() for file in self._throttles)
        except (OSError, ValueError) as error:
            self._board.gap("throttle_ns", str(error), self._time.now_ns())
            return
        self._board.put("throttle_ns", {"thermal": total_ms * MS})


def _cpuinfo_value(cpuinfo: str, key: str) -> str | None:
    """The first value of a key of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, separator, value = line.partition(":")
        if separator and name.strip() == key:
            return value.strip()
    return None


def _clocks_mhz(cpuinfo: str) -> list[float]:
    """The `cpu MHz` lines (x86 only), MHz."""
    return [
        float(line.partition(":")[2]) for line in cpuinfo.splitlines() if line.startswith("cpu MHz")
    ]

"""CPU telemetry over /proc and /sys trees in a temporary folder."""

from pathlib import Path

import pytest

from usv_tui.errors import SensorGap, TelemetryOff
from usv_tui.seams import Tier
from usv_tui.telemetry.host import HostTelemetry
from usv_tui.timesource import ManualTime

MS = 1_000_000
S = 1_000_000_000


class FakeHost:
    """A machine's files; everything is optional except /proc/cpuinfo."""

    def __init__(self, root, *, is_virtual=False, cores=2):
        self.root = root
        self.cores = cores
        flags = "fpu sse2 hypervisor" if is_virtual else "fpu sse2"
        self.flags = flags
        self.write("etc/machine-id", "0123")
        self.write("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n")
        for core in range(cores):
            self.write(f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id", "0")
        self.clocks_in_cpuinfo(2600.0)

    def write(self, name, text):
        """Write a file in place, so that open descriptors see it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            file.write(f"{text}\n")

    def clocks_in_cpuinfo(self, mhz):
        """The kernel's own text, with or without clocks."""
        line = f"cpu MHz\t\t: {mhz}\n" if mhz else ""
        self.write(
            "proc/cpuinfo",
            "".join(
                f"processor\t: {i}\nmodel name\t: Test CPU 9000\n{line}flags\t\t: {self.flags}\n\n"
                for i in range(self.cores)
            ),
        )

    def clocks(self, *khz):
        """The scaling driver's clock of each core."""
        for core, value in enumerate(khz):
            folder = f"sys/devices/system/cpu/cpu{core}/cpufreq"
            self.write(f"{folder}/scaling_cur_freq", value)
            self.write(f"{folder}/cpuinfo_max_freq", 4_000_000)
            self.write(f"{folder}/base_frequency", 2_000_000)
            self.write(f"{folder}/scaling_driver", "intel_pstate")
            self.write(f"{folder}/scaling_governor", "performance")

    def rapl(self, number, energy_uj, name="package-0", top_uj=1_000_000_000):
        """One RAPL domain."""
        folder = f"sys/class/powercap/intel-rapl:{number}"
        self.write(f"{folder}/name", name)
        self.write(f"{folder}/energy_uj", energy_uj)
        self.write(f"{folder}/max_energy_range_uj", top_uj)
        self.write(f"{folder}/constraint_0_power_limit_uw", 125_000_000)

    def stat(self, user, idle, steal=0):
        """Ticks since boot of all cores together."""
        self.write("proc/stat", f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3 4")


@pytest.fixture
def time():
    """Virtual time."""
    return ManualTime(start_ns=100 * S)


@pytest.fixture
def host(tmp_path):
    """A bare-metal machine without sensors."""
    return FakeHost(tmp_path)


def look(source, time, tiers=Tier.ALL, wait_ns=100 * MS):
    """One look, a tenth of a second later."""
    time.advance(wait_ns)
    return source.read(tiers)


def opened(host, time):
    """Open the telemetry of this machine."""
    source = HostTelemetry(host.root, time)
    source.open()
    return source


def test_a_machine_with_everything_shows_everything(host, time):
    """Clock, temperature, power, energy, load, throttled time, and what the CPU is."""
    host.clocks(3_100_000, 2_400_000)
    host.write("sys/class/hwmon/hwmon3/name", "coretemp")
    host.write("sys/class/hwmon/hwmon3/temp1_input", "61500")
    host.write("sys/class/hwmon/hwmon3/temp1_label", "Package id 0")
    host.write("sys/class/hwmon/hwmon3/temp2_input", "40000")
    host.write("sys/class/hwmon/hwmon3/temp2_label", "Core 0")
    host.rapl("0", 10_000_000)
    host.stat(100, 100)
    throttled = "thermal_throttle/package_throttle_total_time_ms"
    for core in range(2):
        host.write(f"sys/devices/system/cpu/cpu{core}/{throttled}", 40)
    source = opened(host, time)
    look(source, time)
    host.rapl("0", 16_500_000)
    host.stat(175, 125)
    reading = look(source, time)
    info = source.info()

    assert (reading.sm_mhz, reading.sm_mhz_min, reading.temp_c) == (3100, 2400, 61.5)
    assert (reading.power_mw, reading.energy_mj) == (65_000, 6_500)
    assert (reading.util_pct, reading.power_limit_mw) == (75, 125_000)
    assert reading.throttle_ns == {"thermal": 40 * MS}
    assert (info.name, info.driver) == ("Test CPU 9000", "intel_pstate/performance")
    assert (info.max_sm_mhz, info.base_sm_mhz, info.memory_bytes) == (4000, 2000, 1 << 20)
    assert info.sensors["sm_mhz"].label == "fastest of 2 cores"
    assert info.sensors["temp_c"].label == "Package id 0"
    assert reading.device == info.uuid
    assert info.uuid.startswith("cpu-")


def test_a_machine_without_sensors_says_why_for_each(tmp_path, time):
    """A virtual machine: a nominal clock, and a reason beside every missing quantity."""
    host = FakeHost(tmp_path, is_virtual=True)
    source = opened(host, time)
    reading = look(source, time)
    sensors = source.info().sensors

    assert reading.sm_mhz == 2600
    assert sensors["sm_mhz"].label == "nominal"
    assert sensors["temp_c"].reason == "virtual machines show no CPU temperature"
    assert sensors["power_mw"].reason == "no RAPL counters in a virtual machine"
    assert all(
        sensor.reason for name, sensor in sensors.items() if getattr(reading, name) in (None, {})
    )


def test_a_clock_that_never_changes_is_called_nominal(host, time):
    """A hundred equal looks: a rating, not a measurement; then it is read once a second only."""
    source = opened(host, time)
    for _ in range(99):
        look(source, time, Tier.FAST)
    before = source.info().sensors["sm_mhz"].label
    for _ in range(2):
        look(source, time, Tier.FAST)
    host.clocks_in_cpuinfo(1300.0)
    fast = look(source, time, Tier.FAST)
    slow = look(source, time, Tier.SLOW)

    assert before == "from cpuinfo"
    assert fast.sm_mhz == 2600
    assert slow.sm_mhz == 1300
    assert source.info().sensors["sm_mhz"].label == "from cpuinfo"


def test_a_clock_that_has_moved_is_never_nominal(host, time):
    """One change is proof that it is measured."""
    source = opened(host, time)
    look(source, time, Tier.FAST)
    host.clocks_in_cpuinfo(2601.0)
    for _ in range(150):
        look(source, time, Tier.FAST)

    assert source.info().sensors["sm_mhz"].label == "from cpuinfo"


def test_a_kernel_without_clocks_says_so(host, time):
    """No cpufreq and no `cpu MHz` (ARM): unavailable with the reason."""
    host.clocks_in_cpuinfo(None)
    source = opened(host, time)

    assert look(source, time).sm_mhz is None
    assert source.info().sensors["sm_mhz"].reason == "this kernel shows no CPU clock"


def test_many_cores_are_sampled(tmp_path, time):
    """Of 128 cores 32 are read, evenly, and the label says how many."""
    host = FakeHost(tmp_path, cores=128)
    host.clocks(*[1_000_000 + 1000 * core for core in range(128)])
    source = opened(host, time)
    reading = look(source, time)

    assert source.info().sensors["sm_mhz"].label == "fastest of 32 cores"
    assert (reading.sm_mhz, reading.sm_mhz_min) == (1124, 1000)


def test_the_energy_counter_wraps_around(host, time):
    """RAPL passes its range: the difference goes on."""
    host.rapl("0", 999_000_000)
    source = opened(host, time)
    look(source, time)
    host.rapl("0", 2_000_000)
    reading = look(source, time)

    assert (reading.energy_mj, reading.power_mw) == (3_000, 30_000)


def test_packages_are_added_and_their_parts_are_not(host, time):
    """Two sockets count; core, dram and psys do not."""
    host.rapl("0", 0)
    host.rapl("1", 0, name="package-1")
    host.rapl("0:0", 0, name="core")
    host.rapl("2", 0, name="psys")
    source = opened(host, time)
    look(source, time)
    for number in ("0", "1", "0:0", "2"):
        host.rapl(number, 5_000_000, name={"0": "package-0", "1": "package-1"}.get(number, "x"))
    reading = look(source, time)

    assert reading.power_mw == 100_000
    assert source.info().sensors["power_mw"].source == "RAPL, 2 packages"
    assert reading.power_limit_mw == 250_000


def test_counters_that_only_root_may_read_say_so(host, time, monkeypatch):
    """Permission denied: the reason names the file and the right."""
    host.rapl("0", 0)
    real = HostTelemetry._keep

    def denied(self, path):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(self, path)

    monkeypatch.setattr(HostTelemetry, "_keep", denied)
    source = opened(host, time)

    assert "root only" in source.info().sensors["power_mw"].reason


def test_stolen_time_is_told_in_a_virtual_machine_only(tmp_path, time):
    """Steal is apart from utilisation; on bare metal there is none."""
    host = FakeHost(tmp_path, is_virtual=True)
    host.stat(100, 100, 0)
    source = opened(host, time)
    look(source, time)
    host.stat(150, 125, 25)
    reading = look(source, time)

    assert (reading.util_pct, reading.steal_pct) == (50, 25)


def test_ticks_that_did_not_move_keep_the_last_figure_and_its_age(host, time):
    """Two looks within one tick: no division by zero, the old value ages."""
    host.stat(100, 100)
    source = opened(host, time)
    look(source, time)
    host.stat(150, 150)
    look(source, time)
    reading = look(source, time)

    assert reading.util_pct == 50
    assert reading.ages_ns["util_pct"] == 100 * MS


def test_a_zone_stands_in_for_a_missing_chip(host, time):
    """Without hwmon the thermal zone of the package is read."""
    host.write("sys/class/thermal/thermal_zone0/type", "acpitz")
    host.write("sys/class/thermal/thermal_zone0/temp", "30000")
    host.write("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp")
    host.write("sys/class/thermal/thermal_zone1/temp", "47000")
    source = opened(host, time)

    assert look(source, time).temp_c == 47
    assert source.info().sensors["temp_c"].label == "x86_pkg_temp"


def test_an_implausible_temperature_is_no_value(host, time):
    """Absolute zero is a driver's word for nothing."""
    host.write("sys/class/thermal/thermal_zone0/type", "acpitz")
    host.write("sys/class/thermal/thermal_zone0/temp", "-273150")
    source = opened(host, time)

    assert look(source, time).temp_c is None
    assert source.info().sensors["temp_c"].reason == "implausible: -273.15 °C"


def test_values_that_were_not_read_this_time_carry_their_age(host, time):
    """A fast look repeats the temperature of the last slow one and how old it is."""
    host.write("sys/class/thermal/thermal_zone0/type", "acpitz")
    host.write("sys/class/thermal/thermal_zone0/temp", "40000")
    source = opened(host, time)
    look(source, time)
    reading = look(source, time, Tier.FAST, 300 * MS)

    assert reading.temp_c == 40
    assert reading.ages_ns["temp_c"] == 300 * MS
    assert "sm_mhz" not in reading.ages_ns


def test_no_proc_means_no_telemetry(tmp_path, time):
    """Another system than Linux: one line."""
    with pytest.raises(TelemetryOff, match="needs Linux"):
        HostTelemetry(tmp_path, time).open()


def descriptors():
    """How many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_closed_source_gives_a_gap_and_leaks_no_descriptor(host, time):
    """After `close` a read is a gap; opening and closing a hundred times leaves nothing open."""
    host.clocks(1_000_000, 1_000_000)
    source = HostTelemetry(host.root, time)
    before = descriptors()
    for _ in range(100):
        source.open()
        source.close()
    source.close()

    assert descriptors() == before
    with pytest.raises(SensorGap):
        source.read(Tier.ALL)


def test_the_real_machine_can_be_read():
    """Whatever this machine has: a reading comes, and every missing field has its reason."""
    source = HostTelemetry()
    info = source.open()
    reading = source.read(Tier.ALL)
    source.close()

    assert info.kind == "cpu"
    assert info.name
    for name, sensor in source.info().sensors.items():
        assert getattr(reading, name, None) not in (None, {}) or sensor.reason

"""NVML telemetry over a fake library written in C; no driver, no GPU, virtual time."""

import ctypes
import subprocess
import sys
import tracemalloc
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fakes.nvml_fake import A10, H100, FakeNvml, forget_library
from usv_tui.errors import SensorGap, TelemetryError, TelemetryOff
from usv_tui.records import Noted, Telemetry
from usv_tui.report.wording.notices import sentence
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.nvidia import NvmlTelemetry
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import ManualTime
from usv_tui.vendor.nvml import Nvml
from usv_tui.vendor.processes import foreign_pids, in_container

ROOT = Path(__file__).parents[2]
NOWHERE = "00000000-0000-0000-0000-000000000000"
MS = 1_000_000
S = 1_000_000_000


@pytest.fixture
def fake():
    """The fake library, reset before and forgotten after."""
    yield FakeNvml()
    forget_library()


@pytest.fixture
def time():
    """Virtual time."""
    return ManualTime(start_ns=100 * S)


def opened(fake, time, uuid=H100):
    """Open telemetry of one GPU."""
    source = NvmlTelemetry(uuid, fake.path, time)
    source.open()
    return source


def look(source, time, tiers=Tier.ALL, wait_ns=100 * MS):
    """One look, a tenth of a second later."""
    time.advance(wait_ns)
    return source.read(tiers)


COLUMNS = (
    "sm_mhz", "power_mw", "energy_mj", "throttle_ns", "reasons", "temp_c", "mem_temp_c", "mem_mhz",
    "pstate", "util_pct", "power_limit_mw",
)  # fmt: skip


def test_all_quantities_are_read(fake, time):
    """A full look at an H100 has every column, and the device knows what it is."""
    source = opened(fake, time)
    reading = look(source, time)
    info = source.info()

    assert reading.device == H100
    assert (reading.sm_mhz, reading.power_mw, reading.temp_c) == (1410, 305123, 61)
    assert (reading.mem_mhz, reading.mem_temp_c, reading.pstate) == (1593, 70, 0)
    assert (reading.energy_mj, reading.util_pct, reading.power_limit_mw) == (5000000, 97, 350000)
    assert reading.throttle_ns == {"power": 0, "thermal": 0, "hw_thermal": 0, "brake": 0}
    assert reading.reasons == 0
    assert reading.fan_pct is None
    assert (info.name, info.pci, info.driver) == ("NVIDIA H100 PCIe", "0000:17:00.0", "550.163.01")
    assert info.supported_sm_mhz[0] == 210
    assert info.supported_sm_mhz[-1] == info.max_sm_mhz == 1755
    assert info.temp_limits_c["slowdown"] == 92
    source.close()


def test_every_reading_names_its_source_unit_label_and_cost(fake, time):
    """Sensors say where they come from; power says that it is instant and how much it sees."""
    source = opened(fake, time)
    look(source, time)
    sensors = source.info().sensors

    assert sensors["power_mw"].source == "nvml field 186"
    assert sensors["power_mw"].unit == "mW"
    assert sensors["power_mw"].label == "instant, sees 25 % of the time"
    assert sensors["power_mw"].cost_ns == 12000
    assert sensors["fan_pct"].reason == "nvmlDeviceGetFanSpeed_v2: not supported by this GPU"


FUNCTIONS = {
    "nvmlDeviceGetCurrentClocksEventReasons": None,
    "nvmlDeviceGetTemperatureV": None,
    "nvmlDeviceGetPerformanceState": "pstate",
    "nvmlDeviceGetUtilizationRates": "util_pct",
    "nvmlDeviceGetEnforcedPowerLimit": None,
    "nvmlDeviceGetComputeRunningProcesses_v3": None,
    "field.186": None,
    "field.83": None,
    "field.74": None,
    "field.82": "mem_temp_c",
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_missing_quantity_leaves_all_others_alive(fake, time, function):
    """NOT_SUPPORTED from one function: the others go on, and it is not asked again."""
    source = opened(fake, time)
    fake(f"{function}=3")
    before = fake.calls(function)
    readings = [look(source, time) for _ in range(20)]

    assert fake.calls(function) - before <= 1
    missing = {name for name in COLUMNS if getattr(readings[-1], name) in (None, {})}
    assert missing == ({FUNCTIONS[function]} if FUNCTIONS[function] else set())
    if FUNCTIONS[function]:
        assert "not supported" in source.info().sensors[FUNCTIONS[function]].reason


def test_with_everything_missing_the_run_goes_on(fake, time):
    """A board that supports nothing gives empty readings, and each sensor its reason."""
    source = opened(fake, time)
    every = [
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetViolationStatus",
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", "nvmlDeviceGetPerformanceState",
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFanSpeed_v2",
        "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceRegisterEvents",
    ]  # fmt: skip
    fake(",".join(f"{name}=3" for name in every))
    for _ in range(10):
        reading = look(source, time)

    assert all(getattr(reading, name) in (None, {}) for name in COLUMNS)
    assert all(sensor.reason for sensor in source.info().sensors.values())


@pytest.mark.parametrize("code", [13, 25, 3])
def test_a_newer_call_falls_back_on_the_older_one(fake, time, code):
    """TemperatureV absent, of another version or unsupported: the old call, chosen once."""
    source = opened(fake, time)
    fake(f"nvmlDeviceGetTemperatureV={code}")
    readings = [look(source, time) for _ in range(5)]

    assert [r.temp_c for r in readings] == [61] * 5
    assert fake.calls("nvmlDeviceGetTemperatureV") == 1
    assert fake.calls("nvmlDeviceGetTemperature") == 5


def test_a_symbol_that_the_library_lacks_is_a_fall_back_too(time):
    """An old driver has neither TemperatureV nor the new name of the reasons."""
    fake = FakeNvml("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    try:
        source = opened(fake, time)
        fake("0.reasons=4")
        reading = look(source, time)
        sensors = source.info().sensors
    finally:
        forget_library()

    assert (reading.temp_c, reading.reasons) == (61, 4)
    assert sensors["reasons"].source == "nvmlDeviceGetCurrentClocksThrottleReasons"


def test_power_falls_back_field_by_field_and_says_which_it_is(fake, time):
    """No field 186: the 1 s mean; no field at all: the old call, labelled by architecture."""
    source = opened(fake, time, A10)
    assert look(source, time).power_mw == 61000
    fake("field.186=3")
    [look(source, time) for _ in range(3)]
    mean = source.info().sensors["power_mw"]
    fake("field.185=3")
    readings = [look(source, time) for _ in range(3)]
    legacy = source.info().sensors["power_mw"]

    assert (mean.source, mean.label, mean.window_ns) == ("nvml field 185", "1 s mean", S)
    assert readings[-1].power_mw == 61000
    assert (legacy.source, legacy.label, legacy.window_ns) == (
        "nvmlDeviceGetPowerUsage", "1 s mean", S,
    )  # fmt: skip


def test_the_old_power_call_is_instant_up_to_ga100(fake, time):
    """On an A100 (compute capability 8.0) the old call is no mean."""
    fake("0.major=8,0.minor=0,field.186=3,field.185=3")
    source = opened(fake, time)
    for _ in range(4):
        look(source, time)

    sensor = source.info().sensors["power_mw"]
    assert sensor.source == "nvmlDeviceGetPowerUsage"
    assert sensor.label.startswith("instant")
    assert sensor.window_ns is None


@pytest.mark.parametrize("value_type", range(7))
def test_field_values_are_decoded_by_their_type(fake, time, value_type):
    """All seven value types give the same number."""
    fake(f"0.power=61234,type.186={value_type}")
    assert look(opened(fake, time), time).power_mw == 61234


def test_an_unknown_value_type_is_no_value(fake, time):
    """A type from the future is skipped, and the quantity moves on to its next source."""
    fake("type.186=9")
    source = opened(fake, time)
    look(source, time)
    look(source, time)

    assert source.info().sensors["power_mw"].source == "nvml field 185"


def test_field_values_without_time_stamps_are_read_all_the_same(fake, time):
    """A stamp of 0 means none: the look's own time stands in."""
    fake("stamps=0")
    source = opened(fake, time)
    first = look(source, time)
    second = look(source, time)

    assert second.power_mw == first.power_mw
    assert "power_mw" not in second.ages_ns


@pytest.mark.parametrize("code", [10, 19, 21, 27, 999, 12345])
def test_passing_trouble_is_a_gap_with_back_off_and_ends_by_itself(fake, time, code):
    """Busy, no data, unknown: None in the series, asked ever more rarely, then back."""
    source = opened(fake, time)
    assert look(source, time).util_pct == 97
    fake(f"nvmlDeviceGetUtilizationRates={code}")
    asked = []
    for _ in range(100):
        before = fake.calls("nvmlDeviceGetUtilizationRates")
        assert look(source, time).util_pct is None
        if fake.calls("nvmlDeviceGetUtilizationRates") > before:
            asked.append(time.now_ns())
    spans = [b - a for a, b in pairwise(asked)]
    fake("nvmlDeviceGetUtilizationRates=0")
    values = [look(source, time).util_pct for _ in range(110)]

    assert len(asked) <= 7
    assert spans == sorted(spans)
    assert values[-1] == 97
    assert 0 not in values


@pytest.mark.parametrize("code", [15, 16])
def test_a_lost_gpu_ends_its_own_telemetry_only(fake, time, code):
    """GPU_IS_LOST: this device stops at once, the other one goes on."""
    records = deque()
    lost = Poller(NvmlTelemetry(H100, fake.path, time), records.append, time, learn_s=0)
    lost.tick()
    time.advance(100 * MS)
    lost.tick()
    other = opened(fake, time, A10)
    fake(f"nvmlDeviceGetClockInfo={code}*1")
    time.advance(200 * MS)
    lost.tick()
    calls = fake.calls("nvmlDeviceGetClockInfo")
    time.advance(10 * S)
    lost.tick()

    assert lost.is_gone
    assert fake.calls("nvmlDeviceGetClockInfo") == calls
    assert [r.notice.code for r in records if isinstance(r, Noted)] == ["device lost"]
    assert look(other, time).sm_mhz == 885


def test_a_foreign_shutdown_is_undone_once(fake, time):
    """UNINITIALIZED after another component's shutdown: one re-init, then off."""
    source = opened(fake, time)
    look(source, time)
    fake.foreign_shutdown()
    inits = fake.calls("nvmlInitWithFlags")
    with pytest.raises(SensorGap, match="opened again"):
        look(source, time)
    assert fake.calls("nvmlInitWithFlags") == inits + 1
    assert look(source, time).sm_mhz == 1410

    fake.foreign_shutdown()
    with pytest.raises(TelemetryOff, match="shut down again"):
        look(source, time)
    assert fake.calls("nvmlInitWithFlags") == inits + 1


def test_when_every_sensor_fails_the_library_is_lost_and_comes_back(fake, time):
    """A container that loses its devices answers "unknown" to all: lost, re-init, back."""
    records = deque()
    poller = Poller(NvmlTelemetry(H100, fake.path, time), records.append, time, learn_s=0)

    def run(seconds):
        end_ns = time.now_ns() + seconds * S
        while time.now_ns() < end_ns:
            time.advance(max(1, min(poller.tick(), end_ns - time.now_ns())))

    run(2)
    functions = [f for f in FUNCTIONS if f.startswith("nvml")]
    broken = [*functions, "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues"]
    broken += ["nvmlDeviceGetTotalEccErrors"]
    fake(",".join(f"{name}=999" for name in broken))
    run(60)
    assert poller.state().startswith("lost: every sensor fails")
    fake(",".join(f"{name}=0" for name in broken))
    run(40)

    codes = [r.notice.code for r in records if isinstance(r, Noted)]
    codes = [code for code in codes if not code.startswith("sensors ")]  # one by one, too
    assert codes == ["telemetry lost", "telemetry recovered"]
    assert poller.state() == ""
    assert [r for r in records if isinstance(r, Telemetry)][-1].reading.sm_mhz == 1410


def test_a_counter_that_was_reset_never_goes_backwards(fake, time):
    """Energy and throttled time after a driver reload: the difference restarts."""
    source = opened(fake, time)
    totals = []
    for energy, throttled in ((5_000_000, 10**9), (5_000_300, 2 * 10**9), (40, 5), (100, 1005)):
        fake(f"0.energy={energy},0.policy_power={throttled}")
        reading = look(source, time)
        totals.append((reading.energy_mj, reading.throttle_ns["power"]))

    assert totals == [
        (5_000_000, 10**9), (5_000_300, 2 * 10**9), (5_000_300, 2 * 10**9),
        (5_000_360, 2 * 10**9 + 1000),
    ]  # fmt: skip


def test_the_throttled_time_falls_back_on_the_violation_status(fake, time):
    """Drivers without the newer counters: field 75, then the old call, in nanoseconds."""
    fake("0.policy_power=7000,0.policy_thermal=9000,field.74=3,field.269=2,field.75=3")
    source = opened(fake, time)
    for _ in range(4):
        reading = look(source, time)

    assert reading.throttle_ns["power"] == 7000
    assert reading.throttle_ns["thermal"] == 9000


def test_repeated_stamps_are_no_new_measurement_and_give_the_refresh_period(fake, time):
    """The fake refreshes every 100 ms; looks every 20 ms learn that to 20 %."""
    fake("clock_us=1700000000000000,step_us=20000")
    source = opened(fake, time)
    readings = [look(source, time, Tier.FAST, 20 * MS) for _ in range(150)]
    sensor = source.info().sensors["power_mw"]

    assert sensor.refresh_ns == pytest.approx(100 * MS, rel=0.2)
    repeats = sum("power_mw" in r.ages_ns for r in readings)
    assert 115 <= repeats <= 125


def test_a_power_value_that_the_driver_no_longer_refreshes_is_no_value(fake, time):
    """The same stamp for over 2 s: None with the reason, until a new one comes."""
    fake("clock_us=1700000000000000")
    source = opened(fake, time)
    assert look(source, time).power_mw is not None
    readings = [look(source, time) for _ in range(30)]
    assert readings[-1].power_mw is None
    assert source.info().sensors["power_mw"].reason == "not refreshed by the driver any more"
    fake("clock_us=1700000009000000")

    assert look(source, time).power_mw is not None


def test_power_that_never_moves_under_load_is_called_stuck(fake, time):
    """The same milliwatts for over 10 s of full load are doubted, until they move."""
    fake("stamps=0")
    source = opened(fake, time)
    for _ in range(120):
        look(source, time)
    stuck = source.info().sensors["power_mw"].doubt
    fake("0.power=301000")
    look(source, time)

    assert stuck == "stuck: the same for 10 s under load"
    assert source.info().sensors["power_mw"].doubt == ""


def test_sentinels_and_nonsense_are_no_values(fake, time):
    """All ones, 0 °C of memory, 0 W, 0 MHz under load, 200 %: None, each with its reason."""
    fake(f"0.power=0,0.memtemp=0,0.sm=0,0.temp=200,0.pstate=32,0.mem={2**32 - 1}")
    source = opened(fake, time)
    look(source, time)
    reading = look(source, time)
    fake("0.util=200")
    second = look(source, time)
    reasons = {name: sensor.reason for name, sensor in source.info().sensors.items()}

    assert reading.power_mw is None
    assert reading.mem_temp_c is None
    assert reading.temp_c is None
    assert reading.pstate is None
    assert reading.mem_mhz is None
    assert reading.sm_mhz is None
    assert second.util_pct is None
    assert reasons["mem_temp_c"] == "reads 0: this board has no memory sensor"
    assert reasons["sm_mhz"] == "implausible: 0 MHz while the device works"
    assert reasons["mem_mhz"] == "the driver says: no value"


def test_bits_that_the_device_cannot_report_are_named(fake, time):
    """A supported mask without the hardware bits: the label says what cannot be told."""
    fake("0.supported=0x127")
    source = opened(fake, time)
    look(source, time)

    assert source.info().sensors["reasons"].label == (
        "cannot tell: hw slowdown, sync boost, hw thermal, power brake"
    )


# --- which device


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (Identity("nvidia", 0, uuid=A10[4:]), A10),
        (Identity("nvidia", 0, uuid=A10), A10),
        (Identity("nvidia", 1, uuid=H100[4:], name="NVIDIA H100 PCIe"), H100),
        (Identity("nvidia", 0, pci="0000:65:00.0"), A10),
        (Identity("nvidia", 0, uuid=NOWHERE, pci="0000:17:00.0"), H100),
    ],
)  # fmt: skip
def test_the_device_is_found_by_uuid_then_by_pci(fake, time, identity, expected):
    """By the framework's UUID, else by its PCI address, never by the ordinal."""
    source = NvmlTelemetry(identity, fake.path, time)
    assert source.open().uuid == expected
    source.close()


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (Identity("nvidia", 0), "cannot tell which GPU is device 0"),
        (Identity("nvidia", 7, uuid="77777777-0000-0000-0000-000000000000"), "cannot tell"),
        (Identity("nvidia", 0, uuid="x", is_only=True), "cannot tell"),
        (Identity("nvidia", 0, is_only=True), "cannot tell which GPU is measured"),
        (Identity("nvidia", 0, uuid=H100, name="NVIDIA A10"), "where the framework has NVIDIA A10"),
        (Identity("nvidia", 0, uuid=H100, memory_bytes=24 << 30), "bytes where the framework has"),
    ],
)
def test_a_device_that_cannot_be_told_is_refused(fake, time, identity, words):
    """No telemetry rather than another GPU's."""
    with pytest.raises(TelemetryOff, match=words):
        NvmlTelemetry(identity, fake.path, time).open()


def test_a_mig_slice_shows_the_board_and_says_so(fake, time):
    """A MIG UUID: clock, power, temperature of the parent, labelled; no utilisation."""
    fake("0.mig=1")
    identity = Identity("nvidia", 0, uuid=f"MIG-{H100[4:]}", name="NVIDIA H100 PCIe MIG 1g.10gb")
    source = NvmlTelemetry(identity, fake.path, time)
    info = source.open()
    reading = look(source, time)
    sensors = source.info().sensors

    assert "whole board" in info.note
    assert (info.uuid, info.slice) == (H100, f"MIG-{H100[4:]}")
    assert info.name == "NVIDIA H100 PCIe MIG 1g.10gb"
    assert sensors["power_mw"].label.startswith("whole board")
    assert reading.util_pct is None
    assert sensors["util_pct"].reason == "not reported under MIG"


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("0.ecc=3", "memory errors", "2 UNCORRECTED MEMORY ERRORS"),
        ("0.xid=79", "driver error", "Xid 79"),
    ],
)
def test_errors_of_memory_and_driver_during_a_run_are_told(fake, time, script, code, words):
    """What was counted before is no news; what comes is an error, once."""
    fake("0.ecc=1")
    records = deque()
    poller = Poller(NvmlTelemetry(H100, fake.path, time), records.append, time, learn_s=0)
    for look_number in range(600):
        if look_number == 200:
            fake(script)
        time.advance(S // 10)
        poller.tick()
    notices = [r.notice for r in records if isinstance(r, Noted)]
    (notice,) = [
        n for n in notices if n.level == "error"
    ]  # the fake's power stands still: a warning

    assert (notice.code, notice.level) == (code, "error")
    assert words in sentence(notice)


def test_what_was_not_supported_once_is_asked_for_once_more(fake, time):
    """A board that was waking up or resetting at the first look."""
    fake("nvmlDeviceGetPerformanceState=3")
    source = opened(fake, time)
    first = look(source, time)
    fake("nvmlDeviceGetPerformanceState=0")
    readings = [look(source, time) for _ in range(620)]

    assert (first.pstate, readings[300].pstate, readings[-1].pstate) == (None, None, 0)


def test_memory_that_waits_for_a_reset_is_in_the_note(fake, time):
    """Rows to be remapped are a fact about the board that a run should carry."""
    fake("0.remap=1")

    assert "faulty memory waits" in opened(fake, time).info().note


def test_without_events_or_ecc_the_reason_is_told(fake, time):
    """A consumer board, or an old driver."""
    fake("nvmlDeviceRegisterEvents=3,nvmlDeviceGetTotalEccErrors=3")
    source = opened(fake, time)
    reading = look(source, time)
    sensors = source.info().sensors

    assert (reading.uncorrected, reading.xids) == (None, [])
    assert "not supported" in sensors["xids"].reason
    assert "not supported" in sensors["uncorrected"].reason
    assert sensors["sm_mhz_min"].reason == "NVML tells one clock for the whole GPU"


def test_a_gpu_that_may_not_be_opened_does_not_hide_the_others(fake):
    """NO_PERMISSION for index 0: index 1 is found all the same."""
    fake("index.0=4")
    nvml = Nvml(fake.path)
    nvml.open()

    assert [index for index, _ in nvml.handles()] == [1]
    nvml.close()


# --- the library


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (9, TelemetryOff, "NVIDIA driver not loaded"),
        (12, TelemetryOff, "NVML library not found"),
        (18, TelemetryOff, "the driver was updated: reboot"),
        (4, TelemetryOff, "no permission"),
        (17, TelemetryOff, "the operating system blocks NVML"),
        (28, TelemetryOff, "no NVIDIA GPU found"),
        (999, TelemetryError, "NVML does not start"),
    ],
)
def test_a_library_that_does_not_start_says_why_and_how_to_mend_it(fake, time, code, error, words):
    """Each return code of the init is one clear line; nothing is left open."""
    fake(f"nvmlInitWithFlags={code}")
    with pytest.raises(error, match=words):
        NvmlTelemetry(H100, fake.path, time).open()


def test_a_driver_that_is_not_loaded_is_asked_for_once(fake, time):
    """One init attempt, however long the run."""
    fake("nvmlInitWithFlags=9")
    poller = Poller(NvmlTelemetry(H100, fake.path, time), deque().append, time)
    for _ in range(100):
        poller.tick()
        time.advance(S)

    assert fake.calls("nvmlInitWithFlags") == 1
    assert poller.state().startswith("NVIDIA driver not loaded")


def has_real_nvml():
    """True where a real library would be found."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_real_nvml(), reason="this machine has a real NVML library")
def test_without_a_library_nothing_is_printed():
    """No libnvidia-ml.so.1: the state says so; not a byte on stdout or stderr."""
    program = (
        "import sys\n"
        "from usv_tui.telemetry.nvidia import NvmlTelemetry\n"
        "from usv_tui.telemetry.poller import Poller\n"
        "poller = Poller(NvmlTelemetry('GPU-x'), [].append)\n"
        "poller.tick()\n"
        "sys.exit(0 if poller.state().startswith('NVML library not found') else 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_file_that_is_no_library_is_refused(tmp_path, time):
    """A path to something else: one line with the loader's words."""
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("not a library")
    with pytest.raises(TelemetryOff, match="NVML library not found"):
        NvmlTelemetry(H100, path, time).open()


def test_importing_the_module_loads_no_vendor_library():
    """The vendor's module is imported by `open`, not by the import of ours."""
    program = (
        "import sys, usv_tui.telemetry.nvidia, usv_tui.telemetry.poller, usv_tui.telemetry.amd\n"
        "sys.exit(any(m in sys.modules for m in ('pynvml', 'amdsmi', 'torch', 'textual')))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT).returncode == 0


def run_with_module(tmp_path, source, name="pynvml"):
    """Open NVML telemetry where `pynvml` is this source, warnings being errors."""
    (tmp_path / f"{name}.py").write_text(source)
    program = (
        "import sys\n"
        "from usv_tui.telemetry.nvidia import NvmlTelemetry\n"
        "from usv_tui.telemetry.poller import Poller\n"
        "poller = Poller(NvmlTelemetry('GPU-x'), [].append)\n"
        "poller.tick()\n"
        "print(poller.state())\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", program],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_old_fork_of_pynvml_is_recognised(tmp_path):
    """A module `pynvml` without field values is refused with the cure, not used."""
    done = run_with_module(tmp_path, "def nvmlInit(): pass\n")

    assert done.stderr == ""
    assert done.stdout.startswith("unsuitable pynvml")
    assert "pip install nvidia-ml-py" in done.stdout


def test_the_deprecated_distribution_warns_nobody(tmp_path):
    """Its FutureWarning reaches neither the screen nor an `-W error` run."""
    source = (
        "import warnings\n"
        "warnings.warn('The pynvml package is deprecated. Please install nvidia-ml-py instead.',"
        " FutureWarning, stacklevel=2)\n"
        "class NVMLError(Exception):\n"
        "    value = 9\n"
        "def nvmlInit(): raise NVMLError\n"
        "_nvmlGetFunctionPointer = nvmlDeviceGetFieldValues = nvmlDeviceGetHandleByUUID = None\n"
    )
    done = run_with_module(tmp_path, source)

    assert done.stderr == ""
    assert done.stdout.startswith("NVIDIA driver not loaded")


@pytest.mark.parametrize("raised", ["KeyError('x')", "AttributeError('y')", "OSError('z')"])
def test_a_pynvml_that_raises_on_import_is_a_reason(tmp_path, raised):
    """Whatever the import raises ends in one line."""
    done = run_with_module(tmp_path, f"raise {raised}\n")

    assert done.stderr == ""
    assert done.stdout.startswith("pynvml cannot be imported")


def test_a_binding_that_raises_anything_loses_only_that_sensor(fake, time, monkeypatch):
    """ZeroDivisionError out of the binding: that sensor fails, the others are read."""
    import pynvml

    def broken(*_):
        raise ZeroDivisionError("boom")

    source = opened(fake, time)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPerformanceState", broken)
    reading = look(source, time)

    assert reading.pstate is None
    assert reading.sm_mhz == 1410
    assert source.info().sensors["pstate"].reason == "ZeroDivisionError: boom"


# --- who else is there


def test_foreign_processes_are_named_and_ours_are_not(fake, time):
    """Pids beside ours are the others."""
    fake("0.pids=2,0.pid=4711,0.pidmem=1000000")
    source = NvmlTelemetry(H100, fake.path, time, own_pids=[4712])
    source.open()

    assert look(source, time).others == [4711]


def test_a_list_that_grows_between_the_two_calls_is_asked_again(fake, time):
    """INSUFFICIENT_SIZE once or twice is a race; after four times it is a gap."""
    fake("0.pids=1,0.pid=4711,0.pidmem=1000,race=7*2")
    source = NvmlTelemetry(H100, fake.path, time, own_pids=[4711])
    source.open()
    assert look(source, time).others == []
    fake("race=7")

    assert look(source, time).others is None


def test_no_process_list_entry_is_an_empty_list(fake, time, monkeypatch):
    """NOT_FOUND means nobody, where pids can be seen at all."""
    monkeypatch.setattr("usv_tui.vendor.processes.in_container", lambda: False)
    fake("nvmlDeviceGetComputeRunningProcesses_v3=6")

    assert look(opened(fake, time), time).others == []


def test_in_a_container_an_empty_list_means_unknown(fake, time, monkeypatch):
    """Pids of the host cannot be told from nobody: unknown, never none."""
    monkeypatch.setattr("usv_tui.vendor.processes.in_container", lambda: True)
    source = opened(fake, time)

    assert look(source, time).others is None
    assert source.info().sensors["others"].reason == "unknown (container)"


@pytest.mark.parametrize(
    ("rows", "is_contained", "expected"),
    [
        ([(10, None), (20, 5)], False, [20]),
        ([(10, None)], False, []),
        ([], False, []),
        ([], True, None),
        ([(20, 5)], True, None),
        ([(10, 5), (20, 5)], True, [20]),
        ([(0, 5)], False, None),
        ([(1 << 30, 5)], False, None),
        ([(20, 1 << 50)], False, None),
    ],
)
def test_foreign_pids(rows, is_contained, expected):
    """Garbage rows (a driver with a shifted struct) make the list unknown; ours prove it good."""
    found, reason = foreign_pids(rows, {10}, 1 << 40, is_contained=is_contained)

    assert found == expected
    assert bool(reason) == (expected is None)


def test_the_first_pid_namespace_is_no_container(tmp_path):
    """The kernel's own number of the first pid namespace tells it from a container's."""
    first, other = tmp_path / "first", tmp_path / "other"
    first.symlink_to("pid:[4026531836]")
    other.symlink_to("pid:[4026532222]")

    assert not in_container(str(first))
    assert in_container(str(other))
    assert in_container(str(tmp_path / "absent"))


def test_thousands_of_looks_grow_nothing(fake, time):
    """Memory after 3000 looks is what it was after 1000."""
    fake("clock_us=1700000000000000,step_us=100000")
    ours = [tracemalloc.Filter(True, "*/usv_tui/*")]
    tracemalloc.start()
    source = opened(fake, time)
    for _ in range(1000):
        look(source, time)
    before = tracemalloc.take_snapshot().filter_traces(ours)
    for _ in range(2000):
        look(source, time)
    after = tracemalloc.take_snapshot().filter_traces(ours)
    tracemalloc.stop()
    grown = sum(d.size_diff for d in after.compare_to(before, "filename"))

    assert grown < 300_000


def test_opening_and_closing_leaves_the_library_balanced(fake, time):
    """Each `open` is one init, each first `close` one shutdown."""
    for _ in range(20):
        source = opened(fake, time)
        look(source, time)
        source.close()
        source.close()

    assert fake.calls("nvmlShutdown") == 20

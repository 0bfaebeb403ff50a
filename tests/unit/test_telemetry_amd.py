"""AMD telemetry over a sysfs tree in a temporary folder, and the hostile amdsmi over a stub."""

import errno
import os
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from tests.fakes.amd_card import (
    NONE16,
    NONE64,
    FakeCard,
    metrics_v1_3,
    metrics_v1_7,
    metrics_v1_9,
)
from usv_tui.errors import TelemetryOff
from usv_tui.model import Reason
from usv_tui.records import Noted
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.amd import AmdTelemetry, reason_mask
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import ManualTime
from usv_tui.vendor.amd_metrics import TABLES, MetricsError, decode, layout_of
from usv_tui.vendor.sysfs import SysFile

ROOT = Path(__file__).parents[2]
MS = 1_000_000
S = 1_000_000_000


@pytest.fixture
def card(tmp_path):
    """A tree with one card."""
    return FakeCard(tmp_path)


@pytest.fixture
def time():
    """Virtual time."""
    return ManualTime(start_ns=100 * S)


def opened(card, time, **options):
    """Open telemetry of the card."""
    source = AmdTelemetry(Identity("amd", 0, pci=card.pci), card.root, time, **options)
    source.open()
    return source


def look(source, time, tiers=Tier.ALL, wait_ns=100 * MS):
    """One look, a tenth of a second later."""
    time.advance(wait_ns)
    return source.read(tiers)


def test_one_table_gives_nearly_everything(card, time):
    """A Radeon or MI200: clock, power, temperatures, energy, load and reasons from one read."""
    source = opened(card, time)
    reading = look(source, time)
    info = source.info()

    assert reading.device == "GPU-fedcba9876543210"
    assert (reading.sm_mhz, reading.mem_mhz, reading.power_mw) == (1700, 1600, 250_000)
    assert (reading.temp_c, reading.mem_temp_c, reading.util_pct) == (55, 62, 97)
    assert reading.energy_mj == (1 << 20) * 1000 >> 16
    assert (reading.reasons, reading.power_limit_mw, reading.fan_pct) == (0, 300_000, 20)
    assert info.sensors["power_mw"].source == "gpu_metrics 1.3"
    assert info.sensors["power_mw"].label == "firmware average"
    assert info.temp_limits_c == {"edge crit": 100, "junction crit": 110, "mem emergency": 115}
    assert info.supported_sm_mhz == [500, 1200, 1700]
    assert (info.name, info.pci, info.memory_bytes) == (
        "AMD Instinct MI210", "0000:03:00.0", 64 << 30,
    )  # fmt: skip


def test_an_mi300_shows_its_slowest_die_and_its_hotspot(card, time):
    """Six dies: the fastest and the slowest clock; no edge sensor, so the hotspot, labelled."""
    card.metrics(metrics_v1_7())
    (card.hwmon / "power1_cap").write_text("750000000\n")
    source = opened(card, time)
    reading = look(source, time)
    sensors = source.info().sensors

    assert (reading.sm_mhz, reading.sm_mhz_min) == (2100, 1990)
    assert sensors["sm_mhz"].label == "fastest of 6 dies"
    assert (reading.temp_c, sensors["temp_c"].label) == (71, "hotspot")
    assert (reading.power_mw, sensors["power_mw"].label) == (700_000, "socket")


def test_throttled_time_is_the_share_of_cycles_under_a_limit(card, time):
    """Half of the cycles under the power limit for 100 ms: 50 ms, and the reason is set."""
    card.metrics(metrics_v1_7(stamp=1000, residency=(1000, 0, 0, 0, 0, 0)))
    source = opened(card, time)
    look(source, time)
    card.metrics(metrics_v1_7(stamp=1100, residency=(1100, 0, 50, 0, 0, 0)))
    reading = look(source, time)

    assert reading.throttle_ns == {"power": 50 * MS, "thermal": 0, "hw_thermal": 0}
    assert reading.reasons == Reason.SW_POWER_CAP


def test_cycle_counters_wrap_around(card, time):
    """The 32-bit counters pass zero: the share stays right."""
    top = 2**32
    card.metrics(metrics_v1_7(stamp=1000, residency=(top - 50, 0, 0, 0, top - 10, 0)))
    source = opened(card, time)
    look(source, time)
    card.metrics(metrics_v1_7(stamp=1100, residency=(50, 0, 0, 0, 15, 0)))
    reading = look(source, time)

    assert reading.throttle_ns["thermal"] == 25 * MS
    assert reading.reasons == Reason.SW_THERMAL


@pytest.mark.parametrize(
    ("status", "mask"),
    [
        (0, 0),
        (1, Reason.SW_POWER_CAP),
        (1 << 17, Reason.BOARD_LIMIT),
        (1 << 36, Reason.SW_THERMAL),
        (1 << 47, Reason.HW_THERMAL),
        (1 << 57, Reason.RELIABILITY),
        (1 | 1 << 36, Reason.SW_POWER_CAP | Reason.SW_THERMAL),
        (1 << 60, 1 << 24),
    ],
)
def test_throttle_bits_become_reasons(status, mask):
    """The driver's common bits map to NVML's reasons; an unknown one keeps a bit of its own."""
    assert reason_mask(status) == mask


def test_the_attribute_form_of_the_table_is_read(card, time):
    """gpu_metrics 1.9, a list of typed attributes: unknown ones are passed over."""
    card.metrics(metrics_v1_9())
    (card.hwmon / "power1_cap").write_text("750000000\n")
    source = opened(card, time)
    reading = look(source, time)

    assert (reading.sm_mhz, reading.sm_mhz_min, reading.power_mw) == (2100, 2000, 650_000)
    assert (reading.temp_c, reading.mem_mhz, reading.util_pct) == (66, 1300, 90)
    assert source.info().sensors["sm_mhz"].source == "gpu_metrics 1.9"


@pytest.mark.parametrize("cut", range(0, 130, 7))
def test_a_cut_table_is_refused_at_any_byte(cut):
    """Truncated tables are errors with a reason, never zeros."""
    for data in (metrics_v1_9(), metrics_v1_3()):
        with pytest.raises(MetricsError, match="gpu_metrics"):
            decode(data[: min(cut, len(data) - 1)])


def test_a_table_of_an_unknown_size_is_refused():
    """The same version with another size is another struct."""
    data = bytearray(metrics_v1_3()) + b"\0" * 8
    data[0] = 128
    with pytest.raises(MetricsError, match=r"gpu_metrics 1\.3 of 128 bytes is not known here"):
        decode(bytes(data))


SIZES = {
    (1, 0): [80], (1, 1): [96], (1, 2): [104], (1, 3): [120], (1, 4): [288], (1, 5): [360],
    (1, 6): [384, 1664], (1, 7): [2208], (1, 8): [3872], (2, 0): [120], (2, 1): [120],
    (2, 2): [128], (2, 3): [152], (2, 4): [168], (3, 0): [264],
}  # fmt: skip
"""What a C compiler makes of the kernel's structs."""


def test_every_table_has_the_size_of_the_kernels_struct():
    """The layouts are computed from field lists; their totals are the compiler's."""
    sizes = {}
    for form, content, fields in TABLES:
        sizes.setdefault((form, content), []).append(layout_of(fields).size)

    assert sizes == SIZES


@pytest.mark.parametrize(
    ("content", "size", "offsets"),
    [
        (4, 288, {"energy": 24, "clock": 32, "firmware": 232, "gfx": 240, "uclk": 280}),
        (5, 360, {"energy": 88, "clock": 96, "firmware": 304, "gfx": 312, "uclk": 352}),
        (8, 3872, {"energy": 24, "clock": 32, "firmware": 288, "gfx": 296, "uclk": 336}),
    ],
)
def test_the_tables_of_an_mi300_are_read_where_the_kernel_writes(content, size, offsets):
    """Clocks, energy and time stamps come from their places in each version."""
    data = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", data, 0, size, 1, content)
    struct.pack_into("<HHHHH", data, 4, 70, 60, 50, 700, 99)
    struct.pack_into("<QQ", data, offsets["energy"], 1 << 20, 10_000)
    struct.pack_into("<Q8H", data, offsets["firmware"], 777, *range(2000, 2008))
    struct.pack_into("<H", data, offsets["uclk"], 1300)
    metrics = decode(bytes(data))

    assert (metrics.hotspot_c, metrics.mem_c, metrics.power_w) == (70, 60, 700)
    assert (metrics.energy_count, metrics.stamp_ns) == (1 << 20, 7770)
    assert metrics.gfx_mhz == tuple(range(2000, 2008))
    assert metrics.mem_mhz == 1300


@pytest.mark.parametrize(
    ("form", "content", "size", "gfx", "clock"), [(2, 0, 120, 80, 8), (2, 3, 152, 76, 32)]
)
def test_an_apus_table_gives_clocks_and_leaves_the_rest_to_hwmon(form, content, size, gfx, clock):
    """Its temperatures and powers have other units on every chip."""
    data = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", data, 0, size, form, content)
    struct.pack_into("<Q", data, clock, 123)
    struct.pack_into("<H", data, gfx, 1600)
    metrics = decode(bytes(data))

    assert (metrics.gfx_mhz, metrics.stamp_ns, metrics.is_clock_average) == ((1600,), 123, False)
    assert (metrics.edge_c, metrics.power_w, metrics.activity_pct) == (None, None, None)


@pytest.mark.parametrize("data", [b"", b"\0" * 120, b"\x80\x00\x07\x07" + b"x" * 200])
def test_without_a_usable_table_the_files_are_read(card, time, data):
    """Files of hwmon and the DPM tables stand in, each sensor naming its own."""
    card.metrics(data)
    source = opened(card, time)
    reading = look(source, time)
    sensors = source.info().sensors

    assert (reading.sm_mhz, reading.mem_mhz, reading.power_mw) == (1650, 1600, 245_000)
    assert (reading.temp_c, reading.mem_temp_c, reading.util_pct) == (61, 66, 96)
    assert sensors["sm_mhz"].source == "freq1_input"
    assert sensors["energy_mj"].reason


def test_the_starred_line_is_the_current_clock(card, time):
    """Without hwmon clocks the DPM table tells."""
    card.metrics(b"")
    (card.hwmon / "freq1_input").unlink()

    assert look(opened(card, time), time).sm_mhz == 1200


def test_a_truncated_table_ends_in_no_value_at_once(card, time):
    """A table that was whole and is cut now gives None with the reason, not zeros."""
    source = opened(card, time)
    look(source, time)
    card.metrics(metrics_v1_3()[:60])
    reading = look(source, time)

    assert (reading.sm_mhz, reading.power_mw, reading.temp_c) == (None, None, None)
    assert source.info().sensors["sm_mhz"].reason == "gpu_metrics is truncated (60 bytes)"


def test_a_repeated_table_goes_stale_within_two_seconds(card, time):
    """The driver repeats old values with success: their age grows, then they are gone."""
    source = opened(card, time)
    look(source, time)
    young = look(source, time, wait_ns=500 * MS)
    old = [look(source, time) for _ in range(15)][-1]
    card.metrics(metrics_v1_3(stamp=2000))
    fresh = look(source, time)

    assert young.power_mw == 250_000
    assert young.ages_ns["power_mw"] == 500 * MS
    assert old.power_mw is None
    assert fresh.power_mw == 250_000
    assert "power_mw" not in fresh.ages_ns


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"power": NONE16}, "power_mw"),
        ({"power": 0}, "power_mw"),
        ({"activity": 65535}, "util_pct"),
        ({"activity": 120}, "util_pct"),
        ({"mem": NONE16}, "mem_temp_c"),
        ({"mem": 0}, "mem_temp_c"),
        ({"gfx": 0}, "sm_mhz"),
        ({"uclk": 0}, "mem_mhz"),
        ({"energy": NONE64}, "energy_mj"),
        ({"energy": 0}, "energy_mj"),
    ],
)
def test_sentinels_and_nonsense_are_no_values(card, time, values, missing):
    """All ones, 0 W, 120 %, 0 MHz under load: None with a reason, the others alive."""
    source = opened(card, time)
    look(source, time)
    card.metrics(metrics_v1_3(stamp=2000, **values))
    reading = look(source, time)

    assert getattr(reading, missing) is None
    assert source.info().sensors[missing].reason
    assert reading.temp_c == 55


def test_thousandths_of_a_degree_are_recognised(card, time):
    """Values over 1000 are m°C: some releases mixed them up."""
    card.metrics(metrics_v1_3(edge=61000))
    assert look(opened(card, time), time).temp_c == 61


def test_an_energy_counter_that_disagrees_with_power_is_dropped(card, time):
    """250 W for 10 s while the counter says 25 W: not offered any more, with both figures."""
    source = opened(card, time)
    energy = 1 << 30
    for index in range(130):
        energy += round(2.5 * 65536)
        card.metrics(metrics_v1_3(stamp=1000 + index, energy=energy))
        reading = look(source, time)

    assert reading.energy_mj is None
    assert source.info().sensors["energy_mj"].reason == (
        "the counter says 25 W where power reads 250 W"
    )


def test_an_energy_counter_that_agrees_is_kept_and_survives_a_reset(card, time):
    """250 W: kept; a counter that falls back restarts the difference."""
    source = opened(card, time)
    energy, totals = 1 << 30, []
    for index in range(130):
        energy = 100 if index == 65 else energy + 25 * 65536
        card.metrics(metrics_v1_3(stamp=1000 + index, energy=energy))
        totals.append(look(source, time).energy_mj)

    assert None not in totals
    assert totals == sorted(totals)
    assert totals[64] == totals[65]
    assert totals[129] - totals[65] == pytest.approx(64 * 25_000, abs=2)


def test_the_odd_die_of_an_mi250_says_who_reports_its_power(tmp_path, time):
    """A package's second die reports 0 W: unavailable, and why."""
    card = FakeCard(tmp_path, name="AMD Instinct MI250X")
    source = opened(card, time)
    look(source, time)
    card.metrics(metrics_v1_3(stamp=2000, power=0))
    look(source, time)

    assert source.info().sensors["power_mw"].reason == "the package's other die reports it"


def test_a_sleeping_card_is_not_woken(card, time):
    """Runtime-suspended: no table, no DPM read; once awake everything is learned."""
    card.write("power/runtime_status", "suspended\n")
    source = opened(card, time)
    asleep = look(source, time)
    assert asleep.sm_mhz is None
    assert source.info().supported_sm_mhz == []
    assert source.info().sensors["sm_mhz"].reason == "the GPU is runtime-suspended"
    card.write("power/runtime_status", "active\n")
    awake = look(source, time)

    assert awake.sm_mhz == 1700
    assert source.info().supported_sm_mhz == [500, 1200, 1700]


def test_what_a_card_did_not_offer_at_first_is_asked_for_once_more(card, time):
    """A table that was without power at first has it after five seconds."""
    card.metrics(metrics_v1_3(power=NONE16))
    (card.hwmon / "power1_average").unlink()
    source = opened(card, time)
    look(source, time)
    assert source.info().sensors["power_mw"].reason == "not in gpu_metrics 1.3"
    for index in range(60):
        card.metrics(metrics_v1_3(stamp=2000 + index))
        reading = look(source, time)

    assert reading.power_mw == 250_000


def test_a_partitioned_card_says_so(card, time):
    """CPX: the figures are the whole socket's, and the function number is the partition's."""
    card.write("current_compute_partition", "CPX\n")
    source = AmdTelemetry(Identity("amd", 3, pci="0000:03:00.5"), card.root, time)
    info = source.open()
    look(source, time)

    assert "one of several" in info.note
    assert source.info().sensors["power_mw"].label == "whole socket (CPX), firmware average"


def test_a_level_that_is_not_automatic_is_in_the_note(card, time):
    """Clocks that somebody has set by hand are told."""
    card.write("power_dpm_force_performance_level", "manual\n")
    assert opened(card, time).info().note == "performance level manual"


def failing(monkeypatch, number, files=None):
    """Let the driver refuse to fill files: all of them, or those whose name is given."""
    real = SysFile.read

    def read(self, size=4096):
        is_status = self.path.name == "runtime_status"
        if not is_status and (files is None or self.path.name in files):
            raise OSError(number, os.strerror(number))
        return real(self, size)

    monkeypatch.setattr(SysFile, "read", read)


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO])
@pytest.mark.parametrize("has_table", [True, False])
def test_a_device_none_of_whose_files_answers_is_lost(card, time, monkeypatch, number, has_table):
    """Every file fails for two seconds: lost, and the poller says so once."""
    if not has_table:
        (card.device / "gpu_metrics").unlink()
    records = deque()
    source = AmdTelemetry(card.pci, card.root, time)
    poller = Poller(source, records.append, time, learn_s=0)
    poller.tick()
    poller.tick()
    failing(monkeypatch, number)
    for _ in range(60):
        time.advance(150 * MS)
        poller.tick()

    assert poller.is_gone
    codes = [r.notice.code for r in records if isinstance(r, Noted)]
    assert [code for code in codes if code != "sensors lost"] == ["device lost"]


def test_a_device_that_was_lost_and_reset_comes_back(card, time, monkeypatch):
    """It is looked for every 30 s, and its return is told."""
    records = deque()
    poller = Poller(AmdTelemetry(card.pci, card.root, time), records.append, time, learn_s=0)
    with monkeypatch.context() as broken:
        failing(broken, errno.ENODEV)
        for _ in range(60):
            time.advance(150 * MS)
            poller.tick()
    assert poller.is_gone
    for _ in range(40):
        time.advance(S)
        card.metrics(metrics_v1_3(stamp=time.now_ns() // 1000))
        poller.tick()

    assert not poller.is_gone
    codes = [r.notice.code for r in records if isinstance(r, Noted)]
    codes = [code for code in codes if not code.startswith("sensors ")]
    assert codes == ["device lost", "telemetry recovered"]


@pytest.mark.parametrize("files", [{"power1_average"}, {"freq1_input", "pwm1"}])
def test_a_file_that_fails_for_ever_is_not_a_lost_device(card, time, monkeypatch, files):
    """The others go on; the one that fails says why."""
    (card.device / "gpu_metrics").unlink()
    source = opened(card, time)
    look(source, time)
    failing(monkeypatch, errno.EIO, files)
    readings = [look(source, time) for _ in range(100)]

    assert readings[-1].temp_c == 61
    reasons = [sensor.reason or "" for sensor in source.info().sensors.values()]
    assert any("Input/output error" in reason for reason in reasons)


def test_a_table_that_fails_while_other_files_answer_is_not_a_lost_device(card, time, monkeypatch):
    """Fans and limits still answer: the table's quantities are missing, and that is all."""
    source = opened(card, time)
    look(source, time)
    failing(monkeypatch, errno.EIO, {"gpu_metrics"})
    readings = [look(source, time, Tier.FAST) for _ in range(100)]

    assert readings[-1].sm_mhz is None
    assert "Input/output error" in source.info().sensors["sm_mhz"].reason


def test_a_reset_in_between_is_only_a_gap(card, time, monkeypatch):
    """EPERM while the driver resets the card: None meanwhile, and back by itself."""
    source = opened(card, time)
    look(source, time)
    real = source._metrics_file.read
    monkeypatch.setattr(
        source._metrics_file, "read", lambda *_: (_ for _ in ()).throw(OSError(1, "no"))
    )
    values = [look(source, time).sm_mhz for _ in range(10)]
    monkeypatch.setattr(source._metrics_file, "read", real)
    card.metrics(metrics_v1_3(stamp=2000))

    assert values == [None] * 10
    assert look(source, time).sm_mhz == 1700


# --- which device


@pytest.mark.parametrize(
    ("identity", "pci"),
    [
        (Identity("amd", 0, pci="0000:83:00.0"), "0000:83:00.0"),
        (Identity("amd", 1, uuid="fedcba9876543210"), "0000:03:00.0"),
        (Identity("amd", 0, uuid="GPU-fedcba9876543211"), "0000:83:00.0"),
        (Identity("amd", 0, uuid="fedcba9876543211", pci="0000:00:00.0"), "0000:83:00.0"),
    ],
)
def test_the_card_is_found_by_address_then_by_its_number(tmp_path, time, identity, pci):
    """Never by ordinal; an address of zeros means unknown."""
    FakeCard(tmp_path, 0, "0000:03:00.0")
    FakeCard(tmp_path, 1, "0000:83:00.0")

    assert AmdTelemetry(identity, tmp_path, time).open().pci == pci


@pytest.mark.parametrize(
    "identity",
    [
        Identity("amd", 0),
        Identity("amd", 0, is_only=True),
        Identity("amd", 0, pci="0000:99:00.0"),
        Identity("amd", 0, uuid="0000000000000000"),
    ],
)
def test_a_card_that_cannot_be_told_is_refused(tmp_path, time, identity):
    """Two cards and no usable identity: no telemetry rather than the other card's."""
    FakeCard(tmp_path, 0, "0000:03:00.0")
    FakeCard(tmp_path, 1, "0000:83:00.0")
    with pytest.raises(TelemetryOff, match="cannot tell which AMD GPU is device 0"):
        AmdTelemetry(identity, tmp_path, time).open()


def test_the_only_card_of_the_only_device_is_taken(card, time):
    """One card, one device, nothing that narrows: no doubt which is meant."""
    source = AmdTelemetry(Identity("amd", 0, is_only=True), card.root, time)
    assert source.open().pci == card.pci


def test_no_card_at_all_is_one_line(tmp_path, time):
    """No amdgpu device in the tree."""
    with pytest.raises(TelemetryOff, match="no AMD GPU in /sys"):
        AmdTelemetry("0000:03:00.0", tmp_path, time).open()


# --- who else is there


def test_processes_on_the_card_are_read_from_the_compute_driver(card, time, monkeypatch):
    """Pids with memory on this card that are not ours."""
    monkeypatch.setattr("usv_tui.vendor.processes.in_container", lambda: False)
    card.kfd_node()
    card.process(4711, 1 << 30)
    card.process(4712, 1 << 30)
    card.process(4713, 0)
    source = opened(card, time, own_pids=[4712])

    assert look(source, time).others == [4711]


def test_without_the_compute_driver_others_are_unknown(card, time):
    """No KFD: unknown, not nobody."""
    source = opened(card, time)
    assert look(source, time).others is None
    assert source.info().sensors["others"].reason == "unknown (no KFD process list)"


# --- the hostile package


def load(tmp_path, words, **more):
    """Load amdsmi in a fresh process where it is the stub; its real stdout must stay ours."""
    program = (
        "from usv_tui.vendor.amd_smi import load_amdsmi\n"
        "try:\n"
        "    smi = load_amdsmi()\n"
        "except Exception as error:\n"
        "    print(f'{type(error).__name__}: {error}')\n"
        "else:\n"
        "    print('ok', smi.library_major, repr(smi.said))\n"
        "    smi.close()\n"
    )
    calls = tmp_path / "calls"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PYTHONPATH": f"{ROOT / 'tests/fakes/amdsmi'}:{ROOT}",
            "PATH": os.environ["PATH"],
            "FAKE_AMDSMI": words,
            "FAKE_AMDSMI_CALLS": str(calls),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **more,
    )
    return done, calls.read_text().split() if calls.exists() else []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("keyerror", "TelemetryOff: amdsmi cannot be used: KeyError: 'libamd_smi.so'"),
        ("keyerror print", "TelemetryOff: amdsmi cannot be used: write to 1"),
        ("attributeerror", "TelemetryOff: amdsmi and libamd_smi do not match: undefined symbol"),
        ("oserror", "TelemetryOff: amdsmi cannot be used: OSError: libamd_smi.so"),
        ("importerror", "TelemetryOff: amdsmi cannot be used: ImportError: bad magic"),
        ("code=34", "TelemetryOff: amdgpu driver not loaded"),
        ("code=34 print", "TelemetryOff: amdgpu driver not loaded"),
        ("code=8", "TelemetryError: amdsmi does not start: Error code: 8 (8)"),
    ],
)
def test_a_hostile_import_writes_nothing_and_ends_in_one_line(tmp_path, words, line):
    """Any exception, prints at every level, a child's output: stdout holds our line only."""
    done, _ = load(tmp_path, words)

    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith(line)


@pytest.mark.parametrize("words", ["major=27", "major=25", "major=26 old", "major=26 package=6.3"])
def test_a_library_of_another_release_gets_no_struct_call(tmp_path, words):
    """ABI mismatch: refused with the cure before any call that fills a struct."""
    done, calls = load(tmp_path, words)

    assert "does not fit libamd_smi" in done.stdout
    assert calls == ["shut_down"]
    assert done.returncode == 0


@pytest.mark.parametrize("words", ["print", "major=27 package=10.1 print"])
def test_a_fitting_pair_is_used_and_what_it_printed_is_kept_apart(tmp_path, words):
    """The library is there; the prints are in `said`, not on the terminal."""
    done, calls = load(tmp_path, words)

    assert done.stdout.startswith("ok 2")
    assert "write to 1" in done.stdout
    assert "Exception caught: rsmi_init." in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert calls[-1] == "shut_down"

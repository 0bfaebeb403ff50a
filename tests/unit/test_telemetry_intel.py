"""Telemetry of Intel GPUs over a sysfs tree in a temporary folder, and how one is found."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes.intel_card import FORMS, FakeCard
from usv_tui.cli import machine as doctor
from usv_tui.cli.machine_report import to_text
from usv_tui.clocks.controllers import controller_for
from usv_tui.clocks.inventory import list_devices
from usv_tui.errors import TelemetryOff
from usv_tui.model import Reading, Reason
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.identity import device_facts, find_telemetry, identity_from
from usv_tui.telemetry.intel import IntelTelemetry
from usv_tui.timesource import ManualTime
from usv_tui.vendor.intel import gts
from usv_tui.vendor.kinds import BACKENDS, Access, Vendor

MS, S = 1_000_000, 1_000_000_000
UUID = "86800be2-0000-0000-0300-000000000000"
"""As Intel's driver makes it: maker 8086, device e20b, at 0000:03:00.0."""


@pytest.fixture
def time() -> ManualTime:
    """Virtual time."""
    return ManualTime(100 * S)


def opened(card: FakeCard, time: ManualTime) -> IntelTelemetry:
    """Open telemetry of the card."""
    source = IntelTelemetry(card.pci, card.root, time)
    source.open()
    return source


def look(
    source: IntelTelemetry, time: ManualTime, tiers: Tier = Tier.ALL, wait_ns: int = 100 * MS
) -> Reading:
    """One look, a tenth of a second later."""
    time.advance(wait_ns)
    return source.read(tiers)


def why(source: IntelTelemetry, name: str) -> str:
    """Why a sensor has no value."""
    return source.info().sensors[name].reason or ""


def test_a_card_of_xe_has_clock_energy_temperatures_and_limits(tmp_path: Path, time) -> None:
    """In MHz, mJ, °C and mW."""
    card = FakeCard(tmp_path, "xe")
    source = opened(card, time)
    reading = look(source, time)

    assert (reading.sm_mhz, reading.energy_mj) == (2000, 5000)
    assert (reading.temp_c, reading.mem_temp_c, reading.power_limit_mw) == (61, 70, 190_000)
    assert reading.reasons == 0
    info = source.info()
    assert (info.max_sm_mhz, info.supported_sm_mhz[0], info.driver) == (2400, 300, "xe")
    assert info.temp_limits_c == {"pkg crit": 105}
    assert info.note == BACKENDS[Vendor.INTEL].unproven


def test_power_is_what_the_energy_counter_gained(tmp_path: Path, time) -> None:
    """150 W over a tenth of a second and over a second; from two looks on."""
    card = FakeCard(tmp_path)
    source = opened(card, time)
    assert look(source, time).power_mw is None
    assert "two looks" in why(source, "power_mw")
    for wait_ns in (100 * MS, S):
        card.work(150.0, wait_ns / S)
        assert look(source, time, Tier.FAST, wait_ns).power_mw == 150_000


def test_an_energy_counter_that_stands_still_is_no_measurement(tmp_path: Path, time) -> None:
    """Its last power for two seconds, then none and why; a counter that fell begins anew."""
    card = FakeCard(tmp_path)
    source = opened(card, time)
    look(source, time)
    card.work(150.0, 0.1)
    look(source, time)
    assert look(source, time, wait_ns=S).power_mw == 150_000
    assert look(source, time, wait_ns=2 * S).power_mw is None
    assert "stands still" in why(source, "power_mw")
    card.energy_uj = 0
    card.work(0.0, 0.0)
    assert look(source, time).power_mw is None
    card.work(80.0, 0.1)
    assert look(source, time).power_mw == 80_000


@pytest.mark.parametrize("form", [form for form in FORMS if form != "i915 old"])
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("pl1", Reason.SW_POWER_CAP), ("thermal", Reason.SW_THERMAL),
        ("prochot", Reason.HW_THERMAL), ("vr_tdc", Reason.BOARD_LIMIT),
    ],
)  # fmt: skip
def test_a_throttle_reason_is_told_in_everybodys_words(
    tmp_path: Path, time, form: str, word: str, reason: Reason
) -> None:
    """Of every unit that computes."""
    card = FakeCard(tmp_path, form)
    source = opened(card, time)
    card.file(f"{gts(card.device)[-1].throttle}reason_{word}", 1)

    assert look(source, time).reasons == int(reason)


def test_a_reason_that_is_not_known_is_shown_all_the_same(tmp_path: Path, time) -> None:
    """A newer kernel's."""
    card = FakeCard(tmp_path)
    card.file("tile0/gt0/freq0/throttle/reason_moon_phase", 1)

    assert look(opened(card, time), time).reasons == 1 << 24


def test_a_unit_that_sleeps_has_no_clock(tmp_path: Path, time) -> None:
    """The driver writes 0 then."""
    card = FakeCard(tmp_path)
    card.file("tile0/gt0/freq0/act_freq", 0)
    source = opened(card, time)

    assert look(source, time).sm_mhz is None
    assert why(source, "sm_mhz") == "the graphics unit is asleep"


def test_a_card_that_is_suspended_is_not_woken(tmp_path: Path, time) -> None:
    """No file of its sensors is read, and everything is missing for one reason."""
    card = FakeCard(tmp_path)
    card.file("power/runtime_status", "suspended")
    source = opened(card, time)
    reading = look(source, time)

    assert (reading.sm_mhz, reading.energy_mj, reading.temp_c) == (None, None, None)
    assert why(source, "sm_mhz") == "the GPU is runtime-suspended"
    assert source.info().supported_sm_mhz == []
    card.file("power/runtime_status", "active")
    assert look(source, time).sm_mhz == 2000
    assert source.info().supported_sm_mhz[-1] == 2400


def test_the_clock_of_media_is_not_taken_for_the_one_that_computes(tmp_path: Path, time) -> None:
    """A tile has a unit of each; two tiles have two clocks."""
    one, two = FakeCard(tmp_path / "one"), FakeCard(tmp_path / "two", "xe two tiles")
    assert [gt.name for gt in gts(one.device)] == ["tile0/gt0"]
    assert [gt.name for gt in gts(two.device)] == ["tile0/gt0", "tile1/gt2"]
    two.file("tile1/gt2/freq0/act_freq", 1800)
    source = opened(two, time)
    reading = look(source, time)

    assert (reading.sm_mhz, reading.sm_mhz_min) == (2000, 1800)
    assert source.info().sensors["sm_mhz"].label == "fastest of 2 tiles"


def test_an_integrated_gpu_has_a_clock_and_says_why_it_has_no_power(tmp_path: Path, time) -> None:
    """No hwmon; and a limit that is switched off is no limit of 0 W."""
    source = opened(FakeCard(tmp_path, "i915 integrated"), time)
    assert look(source, time).sm_mhz == 2000
    assert why(source, "power_mw") == "no hwmon (integrated GPUs have none)"
    off = FakeCard(tmp_path / "off")
    off.file("hwmon/hwmon3/power1_max", 0)
    source = opened(off, time)
    assert look(source, time).power_limit_mw is None
    assert why(source, "power_limit_mw") == "the power limit is switched off"


def test_the_sensors_are_the_cards_and_not_those_of_one_of_its_units(tmp_path: Path, time) -> None:
    """i915 registers an energy counter for each unit beside the card's."""
    card = FakeCard(tmp_path, "i915")
    card.file("hwmon/hwmon2/name", "i915_gt0")
    card.file("hwmon/hwmon2/energy1_input", 1_000)

    assert look(opened(card, time), time).energy_mj == 5000


def properties(**facts: object) -> SimpleNamespace:
    """A torch whose xpu:0 tells this."""
    told = SimpleNamespace(name="Intel(R) Arc(TM) B580", total_memory=12 << 30, **facts)
    return SimpleNamespace(xpu=SimpleNamespace(get_device_properties=lambda _ordinal: told))


@pytest.mark.parametrize("uuid", [UUID, "00000000-0000-0003-0000-0000e20b8086"])
def test_the_address_of_a_gpu_is_read_from_its_uuid(uuid: str) -> None:
    """Also where a tool has turned its bytes round."""
    identity = identity_from(device_facts(0, properties(uuid=uuid), "xpu"))

    assert identity.vendor == Vendor.INTEL
    assert identity.uuid is None
    assert identity.pci == "0000:03:00.0"


def test_the_gpu_that_is_measured_is_the_one_that_is_watched(tmp_path: Path) -> None:
    """By its address; without one, only where there is no other."""
    card, _ = FakeCard(tmp_path), FakeCard(tmp_path, "i915", pci="0000:00:02.0")
    facts = device_facts(0, properties(uuid=UUID), "xpu")
    source, how = find_telemetry("xpu:0", facts, sys_root=tmp_path, time_source=ManualTime())
    info = source.open()

    assert how == "xe or i915 sysfs"
    assert (info.pci, info.found_by, info.name) == (
        card.pci,
        "PCI address",
        "Intel(R) Arc(TM) B580",
    )
    source, _ = find_telemetry("xpu:0", {"ordinal": 0, "kind": "xpu"}, sys_root=tmp_path)
    with pytest.raises(TelemetryOff, match="cannot tell which Intel GPU"):
        source.open()
    only = IntelTelemetry(Identity(Vendor.INTEL, 0, is_only=True), tmp_path / "one")
    FakeCard(tmp_path / "one")
    assert only.open().found_by == "being the only GPU"


def test_the_doctor_shows_a_card_that_torch_has_not_and_that_it_is_unproven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensors, ranges, what may be locked, and that nobody has seen it work."""
    FakeCard(tmp_path)
    access = Access(sysfs=str(tmp_path), nvml_library="/nonexistent")
    monkeypatch.setattr(doctor, "_libraries", lambda *_: [])
    report = doctor.diagnose(
        torch_loader=lambda: None,
        controller=lambda info: controller_for(info, access=access),
        time_source=ManualTime(),
        access=access,
    )
    text = to_text(report)

    assert "telemetry of Intel GPU e20b (0000:03:00.0)" in text
    assert "2000 MHz" in text
    assert "300 to 2400 MHz" in text
    assert BACKENDS[Vendor.INTEL].unproven in text
    assert [info.uuid for info in list_devices(access)] == ["intel-0000:03:00.0"]

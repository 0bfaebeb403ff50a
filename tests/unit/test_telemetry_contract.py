"""What every source of telemetry promises, whatever it reads: NVML, the kernel's files, a model."""

import errno
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.fakes import amd_card, intel_card
from tests.fakes.nvml_fake import H100, FakeNvml, forget_library
from tests.unit.test_telemetry_host import FakeHost
from usv_tui.errors import DeviceLost, SensorGap, TelemetryError
from usv_tui.model import DeviceInfo, Reading
from usv_tui.seams import Identity, TelemetrySource, Tier
from usv_tui.sim.device import load
from usv_tui.telemetry.amd import AmdTelemetry
from usv_tui.telemetry.host import HostTelemetry
from usv_tui.telemetry.identity import find_telemetry, watch
from usv_tui.telemetry.intel import IntelTelemetry
from usv_tui.telemetry.nvidia import NvmlTelemetry
from usv_tui.telemetry.torch_xpu import TorchXpuTelemetry
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import BACKENDS, Access, Vendor
from usv_tui.vendor.sysfs import SysFile

MS, S = 1_000_000, 1_000_000_000
UNITS = {
    "sm_mhz": "MHz", "sm_mhz_min": "MHz", "mem_mhz": "MHz", "power_mw": "mW",
    "power_limit_mw": "mW", "temp_c": "°C", "mem_temp_c": "°C", "energy_mj": "mJ",
    "util_pct": "%", "steal_pct": "%", "fan_pct": "%",
}  # fmt: skip
PLAUSIBLE = {
    "sm_mhz": (50, 6000), "sm_mhz_min": (50, 6000), "mem_mhz": (50, 20_000),
    "power_mw": (100, 2_000_000), "power_limit_mw": (5_000, 2_000_000), "temp_c": (5, 120),
    "mem_temp_c": (5, 120), "util_pct": (0, 100), "fan_pct": (0, 200), "steal_pct": (0, 100),
}  # fmt: skip
"""Of a device that works; a sensor that does not answer would read 0."""


@dataclass
class Place:
    """A source over a fake device, and what can happen to that device."""

    source: TelemetrySource
    kind: Vendor
    pass_time: Callable[[int], None]
    """So much time goes by while the device works."""
    lose: Callable[[], None] | None
    """The device falls off the bus; None for one that cannot."""
    elsewhere: TelemetrySource
    """The same kind of source where there is no such device."""


Make = Callable[[Path, pytest.MonkeyPatch, ManualTime], Place]


def _nvidia(tmp_path: Path, _: pytest.MonkeyPatch, time: ManualTime) -> Place:
    fake = FakeNvml()
    fake("0.fans=1,0.fan=31")
    return Place(
        NvmlTelemetry(H100, fake.path, time),
        Vendor.NVIDIA,
        time.advance,
        lambda: (
            [fake(f"{name}=15") for name in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues")]
            and None
        ),
        NvmlTelemetry("GPU-none", fake.path, time),
    )


def _gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: SysFile, _size: int = 0) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(SysFile, "read", fail)


def _amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: ManualTime) -> Place:
    card = amd_card.FakeCard(tmp_path)

    def pass_time(ns: int) -> None:
        time.advance(ns)
        card.metrics(amd_card.metrics_v1_3(stamp=time.now_ns() // 10))

    return Place(
        AmdTelemetry(card.pci, tmp_path, time),
        Vendor.AMD,
        pass_time,
        lambda: _gone(monkeypatch),
        AmdTelemetry(card.pci, tmp_path / "nowhere", time),
    )


def _intel(form: str) -> Make:
    def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: ManualTime) -> Place:
        card = intel_card.FakeCard(tmp_path, form)

        def pass_time(ns: int) -> None:
            time.advance(ns)
            if form != "i915 integrated":
                card.work(150.0, ns / S)

        return Place(
            IntelTelemetry(card.pci, tmp_path, time),
            Vendor.INTEL,
            pass_time,
            lambda: _gone(monkeypatch),
            IntelTelemetry(card.pci, tmp_path / "nowhere", time),
        )

    return make


class FakeXpu:
    """What torch tells of its device 1, in the order in which it is asked."""

    def __init__(self) -> None:
        self.is_lost = False

    def _tell(self, device: int, value: float) -> float:
        if self.is_lost or device != 1:
            raise RuntimeError("Can't get Level Zero Sysman handle (rc=0x70000001)\nmore")
        return value

    def clock_rate(self, device: int) -> float:
        """MHz."""
        return self._tell(device, 2050.4)

    def temperature(self, device: int) -> float:
        """Degrees."""
        return self._tell(device, 61.5)


def _torch_xpu(_: Path, monkeypatch: pytest.MonkeyPatch, time: ManualTime) -> Place:
    xpu = FakeXpu()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(xpu=xpu))
    return Place(
        TorchXpuTelemetry(Identity(vendor=Vendor.INTEL, ordinal=1), time),
        Vendor.INTEL,
        time.advance,
        lambda: setattr(xpu, "is_lost", True),
        TorchXpuTelemetry(Identity(vendor=Vendor.INTEL, ordinal=2), time),
    )


def _host(tmp_path: Path, _: pytest.MonkeyPatch, time: ManualTime) -> Place:
    host = FakeHost(tmp_path)
    host.clocks(2_000_000, 3_000_000)
    return Place(
        HostTelemetry(tmp_path, time),
        Vendor.CPU,
        time.advance,
        None,
        HostTelemetry(tmp_path / "nowhere", time),
    )


def _sim(card: str) -> Make:
    def make(_: Path, __: pytest.MonkeyPatch, time: ManualTime) -> Place:
        session, none = load("gpu-lost", card, 0, time), load("no-telemetry", card, 0, time)
        lost_s = session.scenario.faults.gpu_lost_s or 0.0
        return Place(
            session.telemetry,
            Vendor.SIM,
            time.advance,
            lambda: time.advance(round(lost_s * S)),
            none.telemetry,
        )

    return make


MAKERS: dict[str, Make] = {
    "nvidia": _nvidia,
    "amd": _amd,
    **{form: _intel(form) for form in intel_card.FORMS},
    "torch.xpu": _torch_xpu,
    "host": _host,
    "sim h100": _sim("h100"),
    "sim mi300": _sim("mi300"),
}


@pytest.fixture
def time() -> ManualTime:
    """Virtual time."""
    return ManualTime(100 * S)


@pytest.fixture(params=MAKERS)
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    time: ManualTime,
) -> Iterator[Place]:
    """Every source in turn, over a device that works."""
    made = MAKERS[request.param](tmp_path, monkeypatch, time)
    yield made
    monkeypatch.undo()
    made.source.close()
    forget_library()


def look(place: Place, tiers: Tier = Tier.ALL, wait_ns: int = 100 * MS) -> Reading:
    """One look, a tenth of a second later."""
    place.pass_time(wait_ns)
    return place.source.read(tiers)


def values(reading: Reading, info: DeviceInfo) -> dict[str, object]:
    """Every sensor's value; None where there is none."""
    found: dict[str, object] = {}
    for name in info.sensors:
        field, _, part = name.partition(".")
        value = getattr(reading, field)
        found[name] = (value or {}).get(part) if part else None if value == {} else value
    return found


def test_every_kind_of_device_is_held_to_the_contract(tmp_path: Path) -> None:
    """A backend that is registered and has no fake here has not shown that it keeps its word."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        kinds = {
            MAKERS[name](tmp_path / name.replace(" ", "-"), monkeypatch, ManualTime(S)).kind
            for name in MAKERS
        }

    assert kinds >= set(BACKENDS)
    assert kinds == set(Vendor)


def test_a_source_says_what_it_watches(place: Place) -> None:
    """Kind, identity and name from the start, and the same for ever."""
    info = place.source.open()

    assert info.kind == place.kind
    assert info.uuid
    assert info.name
    assert info.sensors
    look(place)
    later = place.source.info()
    assert (later.uuid, later.kind, later.name) == (info.uuid, info.kind, info.name)
    assert msgspec.json.decode(msgspec.json.encode(later), type=DeviceInfo) == later


def test_every_sensor_has_a_value_or_a_reason(place: Place) -> None:
    """Never both, never neither, and never "not read yet" after everything was read."""
    place.source.open()
    for _ in range(4):
        reading = look(place)

    info = place.source.info()
    for name, value in values(reading, info).items():
        reason = info.sensors[name].reason
        assert (value is None) == bool(reason), f"{name}: {value!r}, {reason!r}"
        assert reason != "not read yet", name


def test_values_have_the_units_that_everybody_counts_on_and_can_be_true(place: Place) -> None:
    """A clock in MHz is no kHz, and what is absent is None and not 0."""
    place.source.open()
    for _ in range(4):
        reading = look(place)

    info = place.source.info()
    seen = values(reading, info)
    for name, value in seen.items():
        if value is None:
            continue
        assert info.sensors[name].source, name
        assert info.sensors[name].unit == UNITS.get(name, info.sensors[name].unit), name
        low, high = PLAUSIBLE.get(name, (-1, float("inf")))
        if isinstance(value, int | float):
            assert low <= value <= high, f"{name} {value}"
    assert seen["sm_mhz"] is not None


def test_a_tier_that_is_not_read_repeats_its_values_with_their_age(place: Place) -> None:
    """A temperature of two seconds ago is told as one."""
    place.source.open()
    for _ in range(3):
        before = look(place)
    for _ in range(2):
        after = look(place, Tier.FAST, S)

    assert after.at_ns > before.at_ns
    assert "sm_mhz" not in after.ages_ns
    assert after.temp_c == before.temp_c
    if "temp_c" in after.ages_ns:  # some read it with the clock
        assert 2 * S <= after.ages_ns["temp_c"] <= after.at_ns - before.at_ns + S
    assert all(age > 0 for age in after.ages_ns.values())


def test_readings_are_of_the_device_and_go_on_in_time(place: Place) -> None:
    """One device, times that grow, counters that never fall."""
    info = place.source.open()
    readings = [look(place) for _ in range(5)]

    assert {reading.device for reading in readings} == {info.uuid}
    times = [reading.at_ns for reading in readings]
    assert times == sorted(set(times))
    counts = [reading.energy_mj for reading in readings if reading.energy_mj is not None]
    assert counts == sorted(counts)


def test_a_source_can_be_closed_at_any_time_and_opened_again(place: Place) -> None:
    """Closing never raises, also twice or before it was open."""
    place.source.close()
    first = place.source.open()
    look(place)
    place.source.close()
    place.source.close()

    assert place.source.open().uuid == first.uuid
    assert look(place).device == first.uuid


def test_a_source_that_is_not_open_has_a_gap_and_no_values(place: Place) -> None:
    """What was closed is not read; a model has nothing to open."""
    if place.kind is Vendor.SIM:
        return
    with pytest.raises(SensorGap, match="not open"):
        place.source.read(Tier.ALL)


def test_where_there_is_no_such_device_opening_says_so_in_a_line(place: Place) -> None:
    """A reason, not a device without sensors."""
    with pytest.raises(TelemetryError) as caught:
        place.elsewhere.open()

    assert caught.value.message
    assert "\n" not in str(caught.value)
    place.elsewhere.close()


def test_a_device_that_falls_off_the_bus_is_lost_and_no_zeros_are_told(place: Place) -> None:
    """At once or after a few looks; until then, values are missing with a reason."""
    if place.lose is None:
        return
    place.source.open()
    look(place)
    place.lose()

    def watch_on() -> None:
        for _ in range(40):
            try:
                reading = look(place, wait_ns=S // 2)
            except SensorGap:
                continue
            assert reading.sm_mhz is None
            assert place.source.info().sensors["sm_mhz"].reason

    with pytest.raises(DeviceLost) as caught:
        watch_on()
    assert caught.value.message


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_registered_vendor_is_found_by_the_device_of_its_framework(
    kind: Vendor, tmp_path: Path
) -> None:
    """`--device` and the doctor come to it without knowing its name."""
    facts = {"vendor": str(kind), "ordinal": 0, "pci": "0000:03:00.0"}
    name = f"{BACKENDS[kind].framework}:0"

    source, how = find_telemetry(name, facts, sys_root=tmp_path)
    same, _ = watch(Identity(kind, 0), Access(sysfs=str(tmp_path)))

    assert how == BACKENDS[kind].told_by
    assert type(source) is type(same)


def test_torch_tells_of_an_intel_gpu_whose_files_are_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: ManualTime
) -> None:
    """As in many containers; where neither is to be had, both reasons are given."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(xpu=FakeXpu()))
    access = Access(str(tmp_path / "nowhere"))
    source, _ = watch(Identity(vendor=Vendor.INTEL, ordinal=1), access, time)
    info = source.open()
    reading = source.read(Tier.ALL)
    assert (source.name, reading.sm_mhz, reading.temp_c) == ("torch.xpu", 2050, 61.5)
    assert reading.power_mw is None
    assert "0.1 s" in info.sensors["power_mw"].reason
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    with pytest.raises(TelemetryError, match=r"Intel.*; torch.xpu tells no sensors"):
        watch(Identity(vendor=Vendor.INTEL, ordinal=1), access, time)[0].open()

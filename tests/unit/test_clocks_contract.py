"""What every control of clocks promises, whatever it sets: NVML, the kernel's files, a model."""

import errno
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.fakes import clocks as fakes
from tests.fakes import intel_card
from usv_tui.cli.clocks import main
from usv_tui.clocks import controllers
from usv_tui.clocks.controllers import HardwareClocks, controller_for
from usv_tui.clocks.inventory import list_devices, match
from usv_tui.clocks.target import lock_command, unlock_command
from usv_tui.errors import ClockError, ClockRefused, ExitCode
from usv_tui.model import ClockHold, ClockState, ClockUndo, DeviceInfo
from usv_tui.seams import ClockController, Identity
from usv_tui.sim.device import load
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import BACKENDS, Access, Vendor
from usv_tui.vendor.restore import Restorer
from usv_tui.vendor.sysfs import PciDevice


@dataclass
class Place:
    """A control over a fake device, and that device as it is seen from outside."""

    control: ClockController
    kind: Vendor
    seen: Callable[[], object]
    """Everything that a lock may change."""
    forbid: Callable[[], None]
    """Take the rights away."""
    preset: Callable[[], None] | None = None
    """Somebody else sets other limits before us; None where that cannot be read back."""
    access: Access | None = None
    """How the device is listed; None for one that is not."""


Make = Callable[[Path, pytest.MonkeyPatch], Place]


def _nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    board = fakes.FakeBoard(tmp_path / "board")
    access = Access(sysfs=str(tmp_path), nvml_library=str(fakes.nvml_library()))
    monkeypatch.setattr(controllers, "has_capability", lambda _: True)

    def forbid() -> None:
        monkeypatch.setattr(controllers, "has_capability", lambda _: False)
        board.script(nvmlDeviceSetGpuLockedClocks=4)

    control = controllers.NvidiaClocks(fakes.NVIDIA, access, ManualTime())
    return Place(control, Vendor.NVIDIA, lambda: board.state, forbid, access=access)


def _amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    card = fakes.FakeCard(tmp_path)
    card.install(monkeypatch)
    access = Access(sysfs=str(tmp_path), nvml_library="/nonexistent")
    return Place(
        controllers.AmdClocks(fakes.AMD, access),
        Vendor.AMD,
        lambda: (card.level, card.table),
        lambda: _read_only(monkeypatch),
        lambda: card.set("manual", (700, 1400)),
        access,
    )


def _read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PciDevice, "is_writable", lambda _card, _name: False)


def _intel(form: str) -> Make:
    def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
        card = intel_card.FakeCard(tmp_path, form)
        card.install(monkeypatch)
        access = Access(sysfs=str(tmp_path), nvml_library="/nonexistent")
        (info,) = list_devices(access)
        return Place(
            controller_for(info, access=access),
            Vendor.INTEL,
            card.limits,
            lambda: _read_only(monkeypatch),
            lambda: card.set(500, 900),
            access,
        )

    return make


def _sim(card: str) -> Make:
    def make(_: Path, __: pytest.MonkeyPatch) -> Place:
        session = load("steady", card, 0, ManualTime())
        refused = load("lock-refused", card, 0, ManualTime())
        gpu = session.gpu

        def forbid() -> None:
            gpu.scenario = refused.scenario

        return Place(
            session.clocks,
            Vendor.SIM,
            lambda: gpu.truth().lock_mhz,
            forbid,
            (lambda: gpu.set_lock(session.card.supported_mhz[3])) if card == "mi300" else None,
        )

    return make


MAKERS: dict[str, Make] = {
    "nvidia": _nvidia,
    "amd": _amd,
    **{form: _intel(form) for form in intel_card.FORMS},
    "sim h100": _sim("h100"),
    "sim mi300": _sim("mi300"),
}


@pytest.fixture(params=MAKERS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Every control in turn, over a free device."""
    made = MAKERS[request.param](tmp_path, monkeypatch)
    yield made
    if isinstance(made.control, HardwareClocks):
        made.control.close()


def some_mhz(place: Place) -> list[int]:
    """The lowest, a middle and the highest clock."""
    offered = list(place.control.supported_mhz())
    return [offered[0], offered[len(offered) // 2], offered[-1]]


def test_every_kind_of_device_is_held_to_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that is registered and has no fake here has not shown that it keeps its word."""
    kinds = {
        make(tmp_path / name.replace(" ", "-"), monkeypatch).kind for name, make in MAKERS.items()
    }

    assert kinds == set(Vendor) - {Vendor.CPU}
    assert kinds >= set(BACKENDS)


def test_a_device_without_clock_control_is_refused_with_its_reason() -> None:
    """A CPU's clock is the governor's."""
    with pytest.raises(ClockRefused, match="governor"):
        controller_for(DeviceInfo(uuid="cpu", name="CPU", kind=Vendor.CPU))


def test_looking_and_planning_touch_nothing(place: Place) -> None:
    """Only `lock` and `undo` set anything."""
    before = place.seen()
    first = place.control.state()
    place.control.plan_undo()
    place.control.supported_mhz()

    assert place.seen() == before
    assert place.control.state() == first


def test_the_state_says_what_can_be_asked_for_and_that_it_may_be(place: Place) -> None:
    """Clocks in MHz, ascending, once each; with the rights there is no reason left."""
    state = place.control.state()

    assert place.control.kind == place.kind
    assert state.supported_mhz == sorted(set(state.supported_mhz))
    assert list(place.control.supported_mhz()) == state.supported_mhz
    assert all(50 <= mhz <= 6000 for mhz in state.supported_mhz)
    assert state.supported_mhz
    assert (state.can_lock, state.reason) == (True, "")
    assert state.hold in (ClockHold.FREE, ClockHold.UNKNOWN)
    assert state.evidence
    assert msgspec.json.decode(msgspec.json.encode(state), type=ClockState) == state


def test_an_undo_puts_back_exactly_what_was(place: Place) -> None:
    """After each clock that there is to choose; written down and read again, and twice over."""
    before = place.seen()
    for mhz in some_mhz(place):
        text = msgspec.json.encode(place.control.plan_undo())
        place.control.lock(mhz)
        assert place.seen() != before
        for _ in range(2):
            place.control.undo(msgspec.json.decode(text, type=ClockUndo))
            assert place.seen() == before


def test_what_somebody_else_had_set_comes_back_and_not_the_default(place: Place) -> None:
    """Where it can be read; above, within and below of what was set."""
    if place.preset is None:
        return
    place.preset()
    before = place.seen()
    assert place.control.state().hold is ClockHold.FOREIGN
    for mhz in some_mhz(place):
        undo = place.control.plan_undo()
        place.control.lock(mhz)
        assert place.seen() != before
        place.control.undo(undo)
        assert place.seen() == before


def test_what_the_guardian_carries_out_is_the_same_undo(place: Place) -> None:
    """From what was written down alone."""
    if place.access is None:
        return
    before = place.seen()
    undo = place.control.plan_undo()
    place.control.lock(some_mhz(place)[1])

    restorer = Restorer(undo.kind, undo.uuid, undo.pci, undo.actions, place.access)
    restorer.prepare()
    restorer.run()
    restorer.close()

    assert place.seen() == before
    assert restorer.command().startswith(("echo ", "sudo "))


@pytest.mark.parametrize(
    "actions",
    [[], [["rm", "-rf"]], [[]], [["range", "../../x", "1", "2", ""]], [["reset-sm", "1"]]],
)
def test_an_undo_that_is_not_understood_is_refused_whole(
    place: Place, actions: list[list[str]]
) -> None:
    """What comes from a file is checked before any of it is done."""
    if place.access is None:
        return
    undo = place.control.plan_undo()
    before = place.seen()

    with pytest.raises(ClockError, match="cannot undo"):
        place.control.undo(msgspec.structs.replace(undo, actions=actions))

    assert place.seen() == before


def test_without_rights_there_is_one_reason_and_nothing_is_changed(place: Place) -> None:
    """The state and the lock say the same, and what to type where there is a command."""
    before = place.seen()
    mhz = some_mhz(place)[1]
    place.forbid()
    state = place.control.state()

    assert not state.can_lock
    assert "root" in state.reason
    with pytest.raises(ClockRefused) as caught:
        place.control.lock(mhz)
    assert "\n" not in str(caught.value)
    assert "root" in str(caught.value)
    assert place.seen() == before
    if place.access is not None:
        assert caught.value.hint.startswith("type: ")


def test_a_memory_clock_that_cannot_be_locked_leaves_the_core_lock(place: Place) -> None:
    """Refused or done, but never without a word."""
    before = place.seen()
    undo = place.control.plan_undo()
    place.control.lock(some_mhz(place)[1], 1)
    refusal = getattr(place.control, "mem_refusal", "")

    assert refusal.startswith("memory clock not locked") or place.kind is Vendor.NVIDIA
    place.control.undo(undo)
    assert place.seen() == before


def test_a_listed_device_is_told_by_the_command_line_and_has_commands(place: Place) -> None:
    """`usv-tui clocks`, by its address or identity, and what somebody with rights would type."""
    if place.access is None:
        return
    (info, *_) = [i for i in list_devices(place.access) if i.kind == place.kind]
    out = io.StringIO()

    code = main(["status", "--device", info.uuid, "--json"], out=out, access=place.access)

    told = json.loads(out.getvalue())[0]
    assert code is ExitCode.OK
    assert told["device"]["kind"] == place.kind
    assert told["clocks"]["can_lock"]
    assert lock_command(info, 1500)
    assert unlock_command(info)
    if info.pci:
        assert match(Identity(place.kind, 0, pci=info.pci), [info]) is info


@pytest.mark.parametrize("file", ["min_freq", "max_freq", "min_freq_mhz", "max_freq_mhz"])
@pytest.mark.parametrize("form", intel_card.FORMS)
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EACCES])
def test_an_intel_lock_that_fails_halfway_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, file: str, code: int
) -> None:
    """One limit taken and the other one refused."""
    card = intel_card.FakeCard(tmp_path, form)
    card.install(monkeypatch)
    access = Access(sysfs=str(tmp_path), nvml_library="/nonexistent")
    (info,) = list_devices(access)
    control = controller_for(info, access=access)
    before = card.limits()
    card.refuse[f"/{file}" if card.driver == "xe" else f"_{file}"] = code
    if not any(str(path).endswith(tuple(card.refuse)) for path in card.device.rglob("*")):
        return  # the other driver's name

    with pytest.raises(ClockRefused) as caught:
        control.lock(1500)

    assert card.limits() == before
    assert ("root" in str(caught.value)) == (code == errno.EACCES)


def test_a_card_of_another_maker_is_not_touched(tmp_path: Path) -> None:
    """And neither is a device of Intel's that is no GPU of these drivers."""
    card = intel_card.FakeCard(tmp_path)
    card.file("uevent", "DRIVER=vfio-pci")
    access = Access(sysfs=str(tmp_path), nvml_library="/nonexistent")

    assert list_devices(access) == []

"""The device that is locked is the one that is measured, or none."""

import pytest

from tests.fakes.clocks import PCI, UUID
from usv_tui.clocks.inventory import match, select
from usv_tui.errors import DeviceError
from usv_tui.library import fixed
from usv_tui.model import DeviceInfo
from usv_tui.seams import Identity
from usv_tui.telemetry import identity

OTHER = "GPU-99999999-1111-2222-3333-444444444444"
FIRST = DeviceInfo(uuid=OTHER, name="NVIDIA Fake 100", kind="nvidia", pci="0000:17:00.0", index=0)
SECOND = DeviceInfo(uuid=UUID, name="NVIDIA Fake 100", kind="nvidia", pci="0000:65:00.0", index=1)
CARD = DeviceInfo(uuid="GPU-1a2b3c4d5e6f7788", name="AMD Fake", kind="amd", pci=PCI, index=0)
ALL = [FIRST, SECOND, CARD]


def who(vendor: str = "nvidia", **facts: object) -> Identity:
    """What a framework tells of its device 0."""
    return Identity(vendor=vendor, ordinal=0, **facts)  # type: ignore[arg-type]


def test_a_uuid_without_prefix_finds_its_device_whatever_the_order() -> None:
    """Torch's device 0 may be the second one of the driver."""
    assert match(who(uuid=UUID.removeprefix("GPU-")), ALL) is SECOND


def test_an_amd_unique_number_finds_its_card() -> None:
    """With or without the kernel's prefix."""
    assert match(who("amd", uuid="1a2b3c4d5e6f7788"), ALL) is CARD


def test_the_pci_address_is_used_where_there_is_no_uuid() -> None:
    """Older frameworks tell nothing else."""
    assert match(who(pci="0000:65:00.0"), ALL) is SECOND
    assert match(who("amd", pci=PCI), ALL) is CARD


def test_a_slice_of_a_board_is_not_taken_for_the_board() -> None:
    """It is found by the board's address and keeps its name; the controller asks for consent."""
    found = match(who(uuid="01234567-aaaa-bbbb-cccc-0123456789ab", pci="0000:17:00.0"), ALL)

    assert found.slice == "MIG-01234567-aaaa-bbbb-cccc-0123456789ab"
    assert found.pci == "0000:17:00.0"


def test_the_only_device_is_taken_when_the_framework_tells_nothing() -> None:
    """And refused when there are two: the ordinal says nothing."""
    assert match(who(is_only=True), [FIRST, CARD]) is FIRST
    with pytest.raises(DeviceError, match="cannot tell which GPU"):
        match(who(is_only=True), ALL)


@pytest.mark.parametrize("pci", ["0000:00:00.0", "0000:99:00.0"])
def test_an_unknown_address_is_no_device(pci: str) -> None:
    """All zeros is what some releases answer when they do not know."""
    with pytest.raises(DeviceError, match="cannot tell which GPU"):
        match(who(pci=pci), ALL)


def test_a_device_is_selected_by_uuid_beginning_or_address() -> None:
    """What `--device` takes."""
    assert select(UUID, ALL) is SECOND
    assert select(UUID.lower()[:12], ALL) is SECOND
    assert select("99999999-1111", ALL) is FIRST
    assert select("0000:65:00.0", ALL) is SECOND
    assert select("", [CARD]) is CARD
    for text in ("GPU-", "0", "GPU-7", ""):
        with pytest.raises(DeviceError):
            select(text, ALL)


@pytest.mark.parametrize("device", [0, "0", "cuda", "cuda:0"])
def test_an_ordinal_is_resolved_through_the_framework(
    monkeypatch: pytest.MonkeyPatch, device: int | str
) -> None:
    """CUDA_VISIBLE_DEVICES=1 makes the driver's second device number 0."""
    facts = {"ordinal": 0, "vendor": "nvidia", "uuid": UUID.removeprefix("GPU-")}
    monkeypatch.setattr(identity, "device_facts", lambda _ordinal: facts)
    monkeypatch.setattr(fixed, "list_devices", lambda: ALL)

    assert fixed._resolve(device) is SECOND
    assert fixed._resolve(UUID) is SECOND


def test_without_a_gpu_the_block_runs_unlocked_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The framework raises many kinds of things."""

    def fail(_ordinal: int) -> dict[str, object]:
        raise AssertionError("Torch not compiled with CUDA enabled\nmore")

    monkeypatch.setattr(identity, "device_facts", fail)

    with fixed.clocks_locked_if_possible(device=0) as state:
        assert state.locked_mhz is None
        assert state.reason.endswith("device 0 is: Torch not compiled with CUDA enabled")

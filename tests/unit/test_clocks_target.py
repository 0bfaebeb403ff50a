"""Which clock is locked, and what somebody with rights would type."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.fakes.clocks import AMD, NVIDIA, UUID
from usv_tui.clocks.target import (
    concerns_of,
    lock_command,
    nearest_supported,
    offered_mhz,
    parse_target,
    sustainable,
    unlock_command,
)
from usv_tui.errors import ClockRefused, UsageError
from usv_tui.model import Advice, ClockHold, ClockState, DeviceInfo
from usv_tui.tui.screens.lock import LockDialog

STEPS = list(range(345, 1981, 15))


def test_a_step_of_the_device_is_taken_as_it_is() -> None:
    """A supported clock needs no note."""
    assert nearest_supported(1410, STEPS) == (1410, "")


def test_a_clock_between_two_steps_is_rounded_down_and_says_so() -> None:
    """Rounding up could ask for what the device cannot hold."""
    choice = nearest_supported(1417, STEPS)

    assert choice.mhz == 1410
    assert "1417" in choice.note
    assert "rounded down to 1410 MHz" in choice.note


@pytest.mark.parametrize("mhz", [0, -1, 300, 1_000_000])
def test_a_clock_that_no_device_has_is_refused_in_one_line(mhz: int) -> None:
    """0 MHz, 10^6 MHz and everything outside the range is refused before anything is touched."""
    with pytest.raises(ClockRefused) as caught:
        nearest_supported(mhz, STEPS)

    assert str(mhz) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_device_that_lists_no_clocks_gets_a_plausible_one_with_a_note() -> None:
    """Without a list the wish is passed on, absurd ones excepted."""
    assert "does not list" in nearest_supported(1410, []).note
    with pytest.raises(ClockRefused, match="no plausible clock"):
        nearest_supported(1_000_000, [])


def test_the_proposal_comes_from_the_run_then_the_base_clock_then_a_share_of_the_maximum() -> None:
    """Never the maximum, and always with its reason."""
    based = DeviceInfo(uuid=UUID, name="x", kind="nvidia", base_sm_mhz=1597)

    assert sustainable(NVIDIA, STEPS, Advice(lock_mhz=1665))[0] == 1665
    assert sustainable(based, STEPS) == (1590, "the base clock")
    share = sustainable(NVIDIA, STEPS)
    assert share.mhz == 1485
    assert "75%" in share.note
    assert "1980 MHz" in share.note


def test_nothing_is_proposed_for_a_device_that_tells_nothing() -> None:
    """A number is not made up."""
    with pytest.raises(ClockRefused, match="say how many MHz"):
        sustainable(NVIDIA, [])


def test_a_target_is_a_number_base_or_advice() -> None:
    """What `--lock` takes."""
    based = DeviceInfo(uuid=UUID, name="x", kind="nvidia", base_sm_mhz=1590)

    assert parse_target("1410", based, STEPS).mhz == 1410
    assert parse_target(" 1410 MHz ", based, STEPS).mhz == 1410
    assert parse_target("base", based, STEPS).mhz == 1590
    assert parse_target("advice", based, STEPS, Advice(lock_mhz=1605)).mhz == 1605


@pytest.mark.parametrize("text", ["", "max", "14.5", "١٤١٠", "1410;reboot"])
def test_a_target_that_is_neither_is_a_usage_error(text: str) -> None:
    """A typing mistake is told from a clock that the device refuses."""
    with pytest.raises(UsageError, match="number of MHz, base or advice"):
        parse_target(text, NVIDIA, STEPS)


def test_base_and_advice_are_refused_while_they_are_unknown() -> None:
    """An unknown clock is not replaced by another one."""
    with pytest.raises(ClockRefused, match="base clock"):
        parse_target("base", NVIDIA, STEPS)
    with pytest.raises(ClockRefused, match="no advised clock yet"):
        parse_target("advice", NVIDIA, STEPS, Advice())


def test_the_commands_name_the_device_by_uuid_or_pci_address() -> None:
    """An ordinal would be another GPU under CUDA_VISIBLE_DEVICES."""
    assert lock_command(NVIDIA, 1410) == f"sudo nvidia-smi -i {UUID} -lgc 1410,1410"
    assert unlock_command(NVIDIA) == f"sudo nvidia-smi -i {UUID} -rgc"
    assert lock_command(AMD, 1700) == (
        "sudo amd-smi set --gpu 0000:03:00.0 --clk-limit sclk max 1700"
    )
    assert unlock_command(AMD) == "sudo amd-smi reset --gpu 0000:03:00.0 --clocks"


def test_a_hostile_uuid_stays_one_word_of_the_command() -> None:
    """A command to paste must not carry another one."""
    info = DeviceInfo(uuid="GPU-1; reboot", name="x", kind="nvidia")

    assert "-i 'GPU-1; reboot' -lgc" in lock_command(info, 1410)


def test_a_foreign_lock_is_a_concern_only_where_it_cannot_be_read() -> None:
    """AMD's level can be put back; what NVML was told before cannot."""
    unreadable = ClockState(hold=ClockHold.FOREIGN, evidence="idle at 1410 MHz", concerns=["x"])
    readable = ClockState(hold=ClockHold.FOREIGN, evidence="level manual", level="manual")

    assert len(concerns_of(unreadable)) == 2
    assert "idle at 1410 MHz" in concerns_of(unreadable)[0]
    assert concerns_of(readable) == []


def test_a_card_that_lists_no_clocks_can_still_be_locked_from_the_dialog() -> None:
    """Any clock up to its maximum may be tried, in steps."""

    class Desk:
        asked: ClassVar[list[int]] = []

        def lock(self, sm_mhz: int) -> None:
            self.asked.append(sm_mhz)

    snapshot: Any = SimpleNamespace(
        clocks=ClockState(can_lock=True),
        advice=Advice(),
        device=DeviceInfo(uuid="GPU-1", name="Card", kind="nvidia", max_sm_mhz=1800),
    )
    desk: Any = Desk()
    dialog = LockDialog(desk)
    for action in ("more", "more", "less", "lock"):
        dialog.act(action, snapshot)

    assert Desk.asked == [1065]
    assert offered_mhz(snapshot.device, [])[-1] == 1800
    assert list(offered_mhz(snapshot.device, [300, 600])) == [300, 600]

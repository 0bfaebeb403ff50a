"""Clock control through NVML, over the fake board."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.clocks import AMD, FREE, NVIDIA, FakeBoard, nvml_library
from usv_tui.clocks.controllers import NvidiaClocks, controller_for
from usv_tui.clocks.inventory import list_devices
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockUndo, DeviceInfo
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import Access


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    """A free board."""
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    return FakeBoard(tmp_path / "board")


def control(info: DeviceInfo = NVIDIA) -> NvidiaClocks:
    """A controller over the fake library, in virtual time."""
    return NvidiaClocks(info, Access(nvml_library=str(nvml_library())), ManualTime())


def test_the_core_clock_is_locked_and_given_back_by_uuid(board: FakeBoard) -> None:
    """Memory and persistence stay untouched."""
    clocks = control()
    undo = clocks.plan_undo()

    clocks.lock(1410)

    assert board.state == "sm 1410 1410\nmem 0 0\npersistence 1\n"
    clocks.undo(ClockUndo(uuid=undo.uuid, kind=undo.kind, actions=[["reset-sm"]]))
    assert board.calls == ["SetGpuLockedClocks 1410 1410", "ResetGpuLockedClocks"]
    assert board.is_free


def test_planning_an_undo_and_looking_at_the_state_touch_nothing(board: FakeBoard) -> None:
    """Only `lock` and `undo` set anything."""
    clocks = control()

    clocks.state()
    clocks.plan_undo()
    clocks.supported_mhz()

    assert board.calls == []


def test_a_refused_memory_lock_leaves_the_core_lock_and_says_which_failed(
    board: FakeBoard,
) -> None:
    """The memory clock is optional and needs Ampere."""
    board.script(nvmlDeviceSetMemoryLockedClocks=3)
    clocks = control()

    clocks.lock(1410, 2619)

    assert board.state.startswith("sm 1410 1410\nmem 0 0")
    assert clocks.mem_refusal == "memory clock not locked: this GPU or driver does not offer it"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "needs root (CAP_SYS_ADMIN) (type: sudo nvidia-smi -i GPU-00000000"),
        (17, "needs root"),
        (3, "the driver says 'not supported'"),
        (2, "does not take 1410 MHz (it supports 345-1980 MHz)"),
        (24, "does not take 1410 MHz"),
        (15, "is lost"),
        (19, "did not lock: In use by another client"),
        (12345, "did not lock: Unknown Error"),
    ],
)
def test_every_refusal_is_one_line_with_what_to_do(board: FakeBoard, code: int, words: str) -> None:
    """NO_PERMISSION, NOT_SUPPORTED and the rest, without a traceback."""
    board.script(nvmlDeviceSetGpuLockedClocks=code)

    with pytest.raises(ClockRefused) as caught:
        control().lock(1410)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert board.is_free


def test_an_undo_without_rights_is_loud_and_names_the_command(board: FakeBoard) -> None:
    """NO_PERMISSION at unlock; nothing is retried that cannot succeed."""
    clocks = control()
    clocks.lock(1410)
    board.script(nvmlDeviceResetGpuLockedClocks=4)

    with pytest.raises(ClockError) as caught:
        clocks.undo(clocks.plan_undo())

    assert "could not be put back" in str(caught.value)
    assert f"sudo nvidia-smi -i {NVIDIA.uuid} -rgc" in str(caught.value)
    assert board.calls.count("ResetGpuLockedClocks") == 1


def test_passing_trouble_at_undo_is_tried_again_and_the_other_step_is_still_done(
    board: FakeBoard,
) -> None:
    """A busy driver is asked three times, and the memory clock is reset all the same."""
    clocks = control()
    clocks.lock(1410, 2619)
    board.script(nvmlDeviceResetGpuLockedClocks=19)

    with pytest.raises(ClockError, match="In use"):
        clocks.undo(clocks.plan_undo())

    assert board.calls.count("ResetGpuLockedClocks") == 3
    assert board.state == "sm 1410 1410\nmem 0 0\npersistence 1\n"


def test_a_foreign_shutdown_is_survived_by_initialising_once_more(board: FakeBoard) -> None:
    """Another component may have shut NVML down in this process."""
    import pynvml

    clocks = control()
    clocks.state()
    pynvml.nvmlShutdown()

    clocks.lock(1410)

    assert board.state.startswith("sm 1410 1410")


def test_the_steps_are_ascending_and_come_from_the_highest_memory_clock(board: FakeBoard) -> None:
    """Compute work runs at the top memory clock."""
    steps = control().supported_mhz()

    assert (steps[0], steps[-1], len(steps)) == (345, 1980, 110)
    assert control().supported_mem_mhz() == [1593, 2619]


def test_a_free_device_is_unknown_because_nvml_cannot_read_a_lock_back(board: FakeBoard) -> None:
    """Never a claim from a return code."""
    state = control().state()

    assert state.hold is ClockHold.UNKNOWN
    assert "cannot read a lock back" in state.evidence
    assert state.supported_mhz[-1] == 1980
    assert state.concerns == []


def test_an_idle_device_that_does_not_drop_its_clock_is_suspected_of_a_foreign_lock(
    board: FakeBoard,
) -> None:
    """The only sign that NVML gives."""
    board.script(sm=1410)

    state = control().state()

    assert state.hold is ClockHold.FOREIGN
    assert state.evidence == "idle at 1410 MHz, lowest 345 MHz"


@pytest.mark.parametrize(
    "values", [{"sm": 1410, "reasons": 0}, {"sm": 1980}, {"sm": 360}, {"sm": 1410, "reasons": 5}]
)
def test_a_busy_boosting_low_or_limited_clock_is_no_suspicion(
    board: FakeBoard, values: dict[str, int]
) -> None:
    """A context keeps a free idle device at its maximum."""
    board.script(**values)

    assert control().state().hold is ClockHold.UNKNOWN


def test_a_foreign_compute_process_is_a_concern_and_our_own_is_not(board: FakeBoard) -> None:
    """Locking would change somebody else's work."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as child:
        board.script(pid=child.pid)
        assert control().state().concerns == []
        board.script(pid=os.getppid())
        if os.getppid() > 1:
            assert control().state().concerns == [
                f"other processes compute on it (pid {os.getppid()})"
            ]
        child.communicate(b"\n")


def test_a_pid_of_another_namespace_says_nothing(board: FakeBoard) -> None:
    """In a container the listed pid may be our own under another number."""
    board.script(pid=4_194_000)

    assert control().state().concerns == []


def test_a_mig_instance_locks_the_whole_board_which_is_a_concern(board: FakeBoard) -> None:
    """Its neighbours share the clock."""
    clocks = control(DeviceInfo(uuid="MIG-1", name="slice", kind="nvidia"))

    assert clocks.state().concerns == ["a MIG instance shares its clock with the whole board"]
    clocks.lock(1410)
    assert board.state.startswith("sm 1410 1410")


def test_an_unknown_uuid_is_refused_and_no_other_device_is_locked(board: FakeBoard) -> None:
    """The measured device or none."""
    clocks = control(DeviceInfo(uuid="GPU-other", name="other", kind="nvidia"))

    with pytest.raises(ClockRefused, match="GPU-other: Not Found"):
        clocks.lock(1410)

    assert board.calls == []


def test_without_driver_or_library_there_is_a_reason_and_no_traceback(
    board: FakeBoard, tmp_path: Path
) -> None:
    """A machine without the driver refuses in a line."""
    board.script(nvmlInitWithFlags=9)

    assert "NVIDIA driver not loaded" in control().state().reason
    with pytest.raises(ClockRefused, match="NVIDIA driver not loaded"):
        control().lock(1410)


def test_devices_are_listed_with_those_skipped_that_may_not_be_opened(board: FakeBoard) -> None:
    """The second fake device answers NO_PERMISSION."""
    access = Access(sysfs="/nonexistent", nvml_library=str(nvml_library()))

    devices = list_devices(access)

    assert [(d.uuid, d.name, d.driver) for d in devices] == [
        (NVIDIA.uuid, "NVIDIA Fake 100", "570.86.10")
    ]


def test_each_kind_of_device_gets_its_controller_or_a_reason() -> None:
    """A CPU's clock and an unknown device are refused in words."""
    assert controller_for(NVIDIA).kind == "nvidia"
    assert controller_for(AMD).kind == "amd"
    for kind, words in [("cpu", "governor"), ("sim", "without its clocks"), ("tpu", "tpu")]:
        with pytest.raises(ClockRefused, match=words):
            controller_for(DeviceInfo(uuid="x", name="thing", kind=kind))


def test_the_fake_starts_free(board: FakeBoard) -> None:
    """The tests above compare with this."""
    assert board.state == FREE

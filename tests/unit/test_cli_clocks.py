"""`usv-tui clocks` on the fake board, with a real guardian."""

import io
import json
import threading
from pathlib import Path

import pytest

from tests.fakes.clocks import UUID, FakeBoard, FakeCard, nvml_library
from usv_tui.cli.clocks import main
from usv_tui.errors import ClockRefused, DeviceError, ExitCode, UsageError, UsvError
from usv_tui.vendor.kinds import Access


class Program:
    """The command with its fakes."""

    def __init__(self, board: FakeBoard, folder: Path) -> None:
        self.board = board
        self.journal = folder / "state" / "clocks"
        self.access = Access(sysfs=str(folder / "sys"), nvml_library=str(nvml_library()))

    def __call__(self, *argv: str) -> tuple[ExitCode, str]:
        out = io.StringIO()
        code = main(argv, out=out, access=self.access, path=self.journal)
        return code, out.getvalue()


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """One free board, nothing locked."""
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    return Program(FakeBoard(tmp_path / "board"), tmp_path)


def test_status_tells_what_is_known_and_what_to_type(clocks: Program) -> None:
    """Nothing is touched, not even by looking."""
    code, text = clocks()

    assert code is ExitCode.OK
    assert text.splitlines()[0] == f"NVIDIA Fake 100  {UUID}"
    assert "unknown: NVML cannot read a lock back" in text
    assert "345-1980 MHz in 110 steps" in text
    assert f"sudo nvidia-smi -i {UUID} -lgc 1170,1170   (for 1170 MHz)" in text
    assert clocks.board.calls == []
    assert not clocks.journal.exists()


def test_a_lock_stays_after_the_command_and_unlock_takes_it_away(clocks: Program) -> None:
    """The whole life of a lock from the command line."""
    code, text = clocks("lock", "1417")
    assert code is ExitCode.OK
    assert clocks.board.state.startswith("sm 1410 1410")
    assert "rounded down to 1410 MHz" in text
    assert f"usv-tui clocks unlock --device {UUID}" in text

    text = clocks("status")[1]
    assert "locked at 1410 MHz by usv-tui and left so" in text
    assert "sudo" not in text
    code, text = clocks("restore")
    assert code is ExitCode.OK
    assert text.startswith("kept: NVIDIA Fake 100 is kept at 1410 MHz, as it was left")

    code, text = clocks("unlock")
    assert code is ExitCode.OK
    assert text == "NVIDIA Fake 100: unlocked from 1410 MHz\n"
    assert clocks.board.is_free
    assert clocks("restore") == (ExitCode.OK, "nothing to restore\n")


def test_every_answer_can_be_had_as_json(clocks: Program) -> None:
    """Data for other programs."""
    (row,) = json.loads(clocks("status", "--json")[1])
    assert row["device"]["uuid"] == UUID
    assert row["clocks"]["hold"] == "unknown"
    assert json.loads(clocks("lock", "1410", "--json")[1])["clocks"]["locked_mhz"] == 1410
    assert [r["outcome"] for r in json.loads(clocks("restore", "--json")[1])] == ["kept"]
    assert "unlocked" in json.loads(clocks("unlock", "--json")[1])["done"]


def test_a_lock_without_rights_is_one_line_with_the_command(clocks: Program) -> None:
    """Nothing is left behind."""
    clocks.board.script(nvmlDeviceSetGpuLockedClocks=4)

    with pytest.raises(ClockRefused, match=f"sudo nvidia-smi -i {UUID} -lgc 1410,1410"):
        clocks("lock", "1410")

    assert clocks.board.is_free
    assert clocks("restore")[1] == "nothing to restore\n"


def test_a_restore_that_fails_has_exit_code_5_and_keeps_the_record(clocks: Program) -> None:
    """The lock of a dead run that may not be undone from here."""
    clocks("lock", "1410")
    entry = clocks.journal / f"{UUID}.json"
    text = entry.read_text().replace('"keep": true', '"keep": false')
    entry.write_text(text.replace('"pid_start": ', '"pid_start": 1'))
    clocks.board.script(nvmlDeviceResetGpuLockedClocks=4)

    code, out = clocks("restore")

    assert code is ExitCode.CLOCKS_NOT_RESTORED
    assert out.startswith("failed: clocks of GPU-")
    assert entry.exists()
    clocks.board.script()
    assert clocks("restore")[1].startswith("restored: NVIDIA Fake 100 was left locked at 1410 MHz")


def test_with_two_devices_one_must_be_named_to_lock_and_all_are_shown(
    clocks: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never simply the first one."""
    FakeCard(tmp_path / "sys").install(monkeypatch)

    with pytest.raises(DeviceError, match="which device"):
        clocks("lock", "1410")
    text = clocks("status")[1]
    assert "NVIDIA Fake 100" in text
    assert "AMD GPU 0000:03:00.0" in text
    assert "performance level auto, limits 500-2100 MHz" in text
    assert clocks("status", "--device", "0000:03:00.0")[1].startswith("AMD GPU")
    assert clocks("status", "--device", UUID[:12])[1].startswith("NVIDIA")
    with pytest.raises(DeviceError, match=r"names no device.*GPU-0000"):
        clocks("status", "--device", "GPU-ffff")
    assert clocks.board.calls == []


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["lock"], UsageError),
        (["lock", "fast"], UsageError),
        (["lock", "0"], ClockRefused),
        (["lock", "1000000"], ClockRefused),
        (["lock", "base"], ClockRefused),
        (["lock", "advice"], ClockRefused),
        (["frobnicate"], UsageError),
        (["--json"], UsageError),
        (["status", "--device", "sim:h100"], UsageError),
    ],
)
def test_bad_input_is_an_error_of_one_line_and_touches_nothing(
    clocks: Program, argv: list[str], error: type[Exception]
) -> None:
    """0 MHz, 10^6 MHz, words, a simulated device."""
    with pytest.raises(error) as caught:
        clocks(*argv)

    assert "\n" not in str(caught.value)
    assert clocks.board.calls == []


def test_a_machine_without_gpus_says_so(tmp_path: Path) -> None:
    """No traceback, and nothing to lock."""
    out = io.StringIO()
    access = Access(sysfs=str(tmp_path), nvml_library=str(tmp_path / "none.so"))

    code = main(["status"], out=out, access=access, path=tmp_path / "clocks")

    assert code is ExitCode.OK
    assert "no GPU with clocks to control" in out.getvalue()
    with pytest.raises(DeviceError, match="no GPU with clocks"):
        main(["lock", "1410"], out=out, access=access, path=tmp_path / "clocks")


@pytest.mark.parametrize(("action", "code"), [("status", 3), ("lock", 5), ("unlock", 5)])
def test_a_driver_that_hangs_ends_in_one_line(
    clocks: Program, monkeypatch: pytest.MonkeyPatch, action: str, code: int
) -> None:
    """The command gives up, and the thread that hangs keeps nobody."""
    never = threading.Event()
    monkeypatch.setattr("usv_tui.cli.clocks.list_devices", lambda _: never.wait())
    argv = [action, "1410"] if action == "lock" else [action]
    with pytest.raises(UsvError, match=r"the driver hangs: no answer within 0\.05 s") as caught:
        main(argv, out=io.StringIO(), access=clocks.access, path=clocks.journal, answer_s=0.05)
    never.set()

    assert caught.value.exit_code == code


def test_a_divided_board_is_locked_only_when_told_to(clocks: Program) -> None:
    """Its other instances would run at the same clock."""
    clocks.board.script(mig=1)
    with pytest.raises(ClockRefused, match="the board is divided"):
        clocks("lock", "1410")

    assert clocks("lock", "1410", "--force")[0] is ExitCode.OK

"""However the locking process ends, the clocks are free within two seconds or at the next start."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.clocks import AMD, NVIDIA, PCI, UUID, FakeBoard, nvml_library
from tests.fakes.intel_card import FakeCard
from usv_tui.clocks.controllers import NvidiaClocks
from usv_tui.clocks.guardian import arm
from usv_tui.clocks.lease import acquire, restore_all
from usv_tui.errors import ClockRefused
from usv_tui.vendor.kinds import BACKENDS, Access

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 2.0

LOCK = f"""
import contextlib, os, signal, sys
from usv_tui.clocks.controllers import AmdClocks, NvidiaClocks
from usv_tui.clocks.lease import acquire
from usv_tui.vendor.kinds import Access
from usv_tui.model import DeviceInfo

nvidia = DeviceInfo(uuid="{UUID}", name="NVIDIA Fake 100", kind="nvidia")
lease = acquire(NvidiaClocks(nvidia), 1410)
print("locked", lease._paper.guard.pid, flush=True)
"""


class Holder:
    """A process that has locked the board."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:1] == ["locked"], f"the holder did not lock: {line}"
        self.guardian = int(line[1])

    def tell(self) -> None:
        """Let the program go on after its first line of input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


Start = Callable[..., Holder]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    """A free board, for this process and its guardians too."""
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    return FakeBoard(tmp_path / "board")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the holder keeps its journal."""
    return tmp_path / "state" / "usv-tui" / "clocks"


@pytest.fixture
def start(board: FakeBoard, tmp_path: Path) -> Iterator[Start]:
    """Starts a program that locks the board and then does `body`."""
    with contextlib.ExitStack() as stack:

        def run(body: str, program: str = LOCK, **options: object) -> Holder:
            environment = board.environment(tmp_path / "state") | {"PYTHONPATH": str(ROOT)}
            process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-P", "-c", program + body],
                **{  # type: ignore[call-overload]  # options of the test
                    "stdin": subprocess.PIPE,
                    "stdout": subprocess.PIPE,
                    "stderr": subprocess.DEVNULL,
                    "text": True,
                    "env": environment,
                    "start_new_session": True,
                    "cwd": tmp_path,
                    **options,
                },
            )
            stack.callback(_finish, process)
            return Holder(process)

        yield run


def _finish(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # its children too, also after a failure
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def frees(condition: Callable[[], bool]) -> bool:
    """True when the condition comes true within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def is_gone(pid: int) -> bool:
    """True when the process has ended, as a zombie too."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def is_settled(board: FakeBoard, journal: Path) -> bool:
    """The clocks are free and nothing is left on record."""
    return board.is_free and not list(journal.glob("*.json"))


# --- The crash table -----------------------------------------------------------------------------

ENDS = {
    "normal end": "with lease: input()",
    "end without release": "input()",
    "sys.exit": "input(); sys.exit(3)",
    "exception": "with lease: input(); 1 / 0",
    "exec": "input(); os.execv('/bin/sleep', ['sleep', '30'])",
    "os._exit": "input(); os._exit(0)",
}


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS.keys())
def test_however_a_program_ends_by_itself_the_clocks_are_free(
    start: Start, board: FakeBoard, journal: Path, body: str
) -> None:
    """Normal end, exception, exit with and without cleaning up, another program."""
    holder = start(body)
    assert not board.is_free
    assert list(journal.glob("*.json"))

    holder.tell()

    assert frees(lambda: is_settled(board, journal))
    assert frees(lambda: is_gone(holder.guardian))


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
    ],
)
def test_whatever_signal_ends_the_process_the_clocks_are_free(
    start: Start, board: FakeBoard, journal: Path, number: signal.Signals
) -> None:
    """Ctrl-C, TERM, HUP of a dropped connection, KILL and crashes."""
    holder = start("with lease: input()")

    holder.process.send_signal(number)

    assert frees(lambda: is_settled(board, journal))
    holder.process.wait()
    assert frees(lambda: is_gone(holder.guardian))


def test_killing_the_whole_process_group_does_not_reach_the_guardian(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """A session of its own."""
    holder = start("input()")
    assert os.getsid(holder.guardian) == holder.guardian

    os.killpg(holder.process.pid, signal.SIGKILL)

    assert frees(lambda: is_settled(board, journal))


def test_closing_the_terminal_frees_the_clocks(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """The window is closed or the connection drops."""
    master, slave = pty.openpty()
    take = f"import fcntl\nfcntl.ioctl(0, {termios.TIOCSCTTY}, 0)\n"
    start("signal.pause()", take + LOCK, stdin=slave)
    os.close(slave)
    assert not board.is_free

    os.close(master)

    assert frees(lambda: is_settled(board, journal))


def test_a_forked_child_that_lives_on_does_not_keep_the_lock_on(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """It holds the same socket and the same file lock open."""
    holder = start("child = os.fork()\nsignal.pause() if child == 0 else (print(child), input())")

    holder.process.kill()

    assert frees(lambda: is_settled(board, journal))
    assert frees(lambda: is_gone(holder.guardian))
    with acquire(control(), 1305, path=journal):
        assert board.state.startswith("sm 1305 1305")


def test_the_guardian_ignores_the_signals_that_end_others(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """A service manager that ends a run sends TERM to all of it."""
    holder = start("input()")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        os.kill(holder.guardian, number)

    holder.process.kill()

    assert frees(lambda: is_settled(board, journal))


def test_after_a_power_cut_the_next_start_repairs_and_says_so(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """Both processes are killed at once, as with a control group; only the journal is left."""
    holder = start("input()")
    os.kill(holder.guardian, signal.SIGSTOP)
    holder.process.kill()
    os.kill(holder.guardian, signal.SIGKILL)
    holder.process.wait()
    assert frees(lambda: is_gone(holder.guardian))
    assert not board.is_free

    (result,) = restore_all(path=journal, access=reach())

    assert result.outcome == "restored"
    assert f"by a run that died (pid {holder.process.pid})" in result.message
    assert is_settled(board, journal)


def test_an_amd_card_is_freed_too(tmp_path: Path, start: Start) -> None:
    """Through the kernel's files, with the previous level."""
    card = tmp_path / "sys/bus/pci/devices" / PCI
    card.mkdir(parents=True)
    (card / "power_dpm_force_performance_level").write_text("high\n")
    (card / "pp_od_clk_voltage").write_text("OD_SCLK:\n0: 500Mhz\n1: 2100Mhz\n")
    (card / "pp_dpm_sclk").write_text("0: 500Mhz\n1: 2100Mhz\n")
    program = LOCK.replace(
        "lease = acquire(NvidiaClocks(nvidia), 1410)",
        f'card = DeviceInfo(uuid="{AMD.uuid}", name="AMD", kind="amd", pci="{PCI}")\n'
        f'lease = acquire(AmdClocks(card, Access(sysfs="{tmp_path}/sys")), 1700)',
    )
    holder = start("input()", program)
    level = card / "power_dpm_force_performance_level"
    assert level.read_text() == "perf_determinism\n"

    holder.process.kill()

    assert frees(lambda: level.read_text() == "high\n")


def test_an_intel_gpu_is_freed_too(tmp_path: Path, start: Start) -> None:
    """Through the kernel's files, with the limits that were there before."""
    card = FakeCard(tmp_path / "sys", "i915")
    card.set(500, 1200)
    before = card.limits()
    program = LOCK.replace(
        "lease = acquire(NvidiaClocks(nvidia), 1410)",
        "from usv_tui.clocks.intel import IntelClocks, intel_devices\n"
        f'access = Access(sysfs="{tmp_path}/sys")\n'
        "lease = acquire(IntelClocks(intel_devices(access)[0], access), 1700)",
    )
    holder = start("input()", program)
    assert card.limits() == [(1700, 1700, 1700)]

    holder.process.kill()

    assert frees(lambda: card.limits() == before)


# --- What else the guardian promises -------------------------------------------------------------


def control() -> NvidiaClocks:
    """A controller in this process."""
    return NvidiaClocks(NVIDIA, reach())


def reach() -> Access:
    """The fake library."""
    return Access(nvml_library=str(nvml_library()))


def test_a_new_lock_waits_for_the_guardian_of_the_run_before(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """Otherwise the old undo would take the new lock away."""
    holder = start("input()")
    board.script(slow_ms=400)
    holder.process.kill()
    holder.process.wait()

    with acquire(control(), 1305, path=journal) as lease:
        assert is_gone(holder.guardian)
        assert board.state.startswith("sm 1305 1305")
        assert lease.is_guarded
        board.script()

    assert is_settled(board, journal)
    setting = [call for call in board.calls if not call.endswith("1410")]
    assert setting == [
        "ResetGpuLockedClocks",
        "SetGpuLockedClocks 1305 1305",
        "ResetGpuLockedClocks",
    ]


def test_the_guardian_puts_back_what_the_process_may_not_any_more(
    board: FakeBoard, journal: Path
) -> None:
    """It has the device open since before rights were dropped."""

    class Dropped(NvidiaClocks):
        def undo(self, undo: object) -> None:
            raise ClockRefused("rights were dropped")

    lease = acquire(Dropped(NVIDIA, reach()), 1410, path=journal)
    assert not board.is_free

    lease.release()

    assert is_settled(board, journal)
    assert lease.notes == ["put back by the guardian, because: rights were dropped"]


def test_a_guardian_that_fails_leaves_its_reason_for_the_next_start(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """NO_PERMISSION at unlock: the journal stays, and both failures are told."""
    holder = start("input()")
    board.script(nvmlDeviceResetGpuLockedClocks=4)
    holder.process.kill()
    holder.process.wait()
    assert frees(lambda: is_gone(holder.guardian))

    (result,) = restore_all(path=journal, access=reach())

    assert result.is_failure
    assert result.message.count("Insufficient Permissions") == 2
    assert "the guardian had failed too" in result.message
    board.script()
    assert [r.outcome for r in restore_all(path=journal, access=reach())] == ["restored"]
    assert is_settled(board, journal)


def test_a_guardian_that_cannot_open_the_device_refuses_the_lock(
    board: FakeBoard, journal: Path, tmp_path: Path
) -> None:
    """It must be able to undo before anything is done."""
    journal.mkdir(parents=True, mode=0o700)
    folder = os.open(journal, os.O_RDONLY)
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    undo = {"kind": "nvidia", "uuid": "GPU-other", "pci": None, "actions": [["reset-sm"]]}

    with pytest.raises(ClockRefused, match="GPU-other: Not Found"):
        arm(undo, reach(), lock, folder, "GPU-other.json")

    os.close(folder)
    os.close(lock)
    assert board.calls == []


def test_a_parent_that_ends_before_it_locked_is_none_of_the_guardians_business(
    board: FakeBoard, tmp_path: Path
) -> None:
    """A foreign lock must not be reset because somebody merely planned one."""
    order = {
        "undo": {"kind": "nvidia", "uuid": UUID, "pci": None, "actions": [["reset-sm"]]},
        "access": reach()._asdict(),
        "entry": f"{UUID}.json",
        "parent": os.getpid(),
    }
    program = f"""
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
lock = os.open({str(tmp_path / "lock")!r}, os.O_CREAT | os.O_RDWR)
folder = os.open({str(tmp_path)!r}, os.O_RDONLY)
fds = (theirs.fileno(), lock, folder)
child = subprocess.Popen(
    [sys.executable, "-P", "-m", "usv_tui.clocks.guardian", *map(str, fds)], pass_fds=fds
)
theirs.close()
ours.sendall({json.dumps(order).encode()!r}.replace(b'"parent": {os.getpid()}',
    b'"parent": %d' % os.getpid()) + b"\\n")
assert ours.recv(16) == b"ready\\n"
ours.close()
sys.exit(child.wait())
"""
    environment = board.environment(tmp_path) | {"PYTHONPATH": str(ROOT)}

    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)

    assert done.returncode == 0
    assert board.calls == []


def test_the_guardian_starts_with_almost_nothing_imported() -> None:
    """It must be ready at once, and must not hold a framework's memory for a whole run."""
    program = "import sys, usv_tui.clocks.guardian; print('\\n'.join(sys.modules))"

    out = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(out.stdout.split())
    heavy = {"torch", "textual", "numpy", "msgspec", "pynvml", "amdsmi", "asyncio", "rich"}
    assert not loaded & heavy
    ours = {name for name in loaded if name.startswith("usv_tui")}
    assert ours == {
        "usv_tui",
        "usv_tui.clocks",
        "usv_tui.clocks.guardian",
        "usv_tui.vendor",
        "usv_tui.vendor.kinds",
        "usv_tui.vendor.restore",
        "usv_tui.errors",
    }


@pytest.mark.parametrize("kind", BACKENDS)
def test_what_the_guardian_loads_for_a_device_is_light_too(kind: str) -> None:
    """The door of a vendor brings the standard library and its own room."""
    program = (
        "import sys; from usv_tui.vendor.restore import door\n"
        f"door({str(kind)!r}); print('\\n'.join(sys.modules))"
    )

    out = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {name.partition(".")[0] for name in out.stdout.split()}
    assert not loaded & {"torch", "textual", "numpy", "msgspec", "pynvml", "amdsmi", "asyncio"}
    ours = {name for name in out.stdout.split() if name.startswith("usv_tui.")}
    assert {name.split(".")[1] for name in ours} == {"vendor", "errors"}


def test_a_file_in_the_current_directory_is_not_run_with_our_rights(
    start: Start, board: FakeBoard, journal: Path, tmp_path: Path
) -> None:
    """A privileged process in a folder of somebody else's making."""
    for name in ("json", "pynvml", "select"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'trap')!r}, 'w').close()\n")
    holder = start("input()")

    holder.process.kill()

    assert frees(lambda: is_settled(board, journal))
    assert not (tmp_path / "trap").exists()


def test_the_guardian_holds_the_devices_file_lock(
    start: Start, board: FakeBoard, journal: Path
) -> None:
    """While it may still act, nobody else can lock the device."""
    holder = start("input()")
    os.kill(holder.guardian, signal.SIGSTOP)
    holder.process.kill()
    holder.process.wait()

    fd = os.open(journal / f"{UUID}.lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.kill(holder.guardian, signal.SIGCONT)
    assert frees(lambda: is_settled(board, journal))
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)

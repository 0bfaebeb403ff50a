"""The lease: nothing is locked without its undo on disk and a guardian; nothing stays locked."""

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.clocks import AMD, FREE, NVIDIA, UUID, FakeBoard, FakeCard, nvml_library
from usv_tui.clocks.controllers import AmdClocks, NvidiaClocks
from usv_tui.clocks.lease import ClockLease, acquire, known_state, restore_all, unlock
from usv_tui.clocks.lease_files import Entry, LeaseDirectory, Owner, owner_of, process_start
from usv_tui.errors import ClockBusy, ClockError, ClockRefused
from usv_tui.library.fixed import clocks_locked_if_possible, fixed_clocks
from usv_tui.model import ClockHold, ClockState, ClockUndo, DeviceInfo, Reading
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import Access

LOCKED = "sm 1410 1410\nmem 0 0\npersistence 1\n"


class FakeGuard:
    """Remembers what it was told; fires through the controller's undo."""

    def __init__(self, undo: Mapping[str, Any], *, can_fire: bool = True) -> None:
        self.undo = undo
        self.dismissed = 0
        self.fired = 0
        self.can_fire = can_fire
        self.alive = True

    def dismiss(self) -> None:
        self.dismissed += 1

    def fire(self) -> bool:
        self.fired += 1
        return self.can_fire

    def leave(self) -> None:
        """Act without being waited for."""
        self.fire()

    def is_alive(self) -> bool:
        return self.alive


class Arming:
    """Stands in for `guardian.arm`."""

    def __init__(self, board: FakeBoard, journal: Path, refusal: str = "") -> None:
        self.board = board
        self.journal = journal
        self.refusal = refusal
        self.guards: list[FakeGuard] = []

    def __call__(
        self, undo: Mapping[str, Any], access: Access, lock_fd: int, folder_fd: int, name: str
    ) -> FakeGuard:
        assert self.board.is_free, "armed before the deed"
        assert (self.journal / name).exists(), "on disk before the guardian"
        if self.refusal:
            raise ClockRefused(self.refusal)
        self.guards.append(FakeGuard(undo))
        return self.guards[-1]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    """A free board."""
    monkeypatch.setenv("FAKE_CLOCKS", str(tmp_path / "board"))
    return FakeBoard(tmp_path / "board")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the journal is kept."""
    return tmp_path / "state" / "clocks"


@pytest.fixture
def arming(board: FakeBoard, journal: Path) -> Arming:
    """A guardian factory that checks the order of steps."""
    return Arming(board, journal)


def control(info: DeviceInfo = NVIDIA) -> NvidiaClocks:
    """A controller over the fake library."""
    return NvidiaClocks(info, Access(nvml_library=str(nvml_library())), ManualTime())


def access() -> Access:
    """How `restore_all` reaches the fake."""
    return Access(nvml_library=str(nvml_library()))


def entries(journal: Path) -> list[str]:
    """Names of journal entries."""
    return sorted(p.name for p in journal.glob("*.json"))


def write_entry(journal: Path, **changes: Any) -> Entry:
    """An entry as a run that died would have left it, or a variation of it."""
    undo = ClockUndo(uuid=UUID, kind="nvidia", actions=[["reset-sm"]])
    entry = Entry.of_this_process(NVIDIA, undo, 1410, None)
    entry = msgspec.structs.replace(entry, **{"pid": 4_194_000, **changes})
    directory = LeaseDirectory.open(journal)
    with contextlib.closing(directory):
        directory.write(entry)
    return entry


def locked(board: FakeBoard) -> None:
    """Lock the board as a dead process would have left it."""
    (board.folder / "state").write_text(LOCKED)


# --- The order of steps --------------------------------------------------------------------------


def test_a_lease_locks_and_gives_back_and_leaves_no_trace(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """plan, journal, guardian, lock; undo, forget, dismiss."""
    with acquire(control(), 1410, path=journal, arm=arming) as lease:
        assert board.state == LOCKED
        assert entries(journal) == [f"{UUID}.json"]
        assert lease.state.hold is ClockHold.PENDING
        assert lease.state.locked_mhz == 1410
        assert lease.is_guarded

    assert board.is_free
    assert entries(journal) == []
    assert arming.guards[0].dismissed == 1
    assert board.calls == ["SetGpuLockedClocks 1410 1410", "ResetGpuLockedClocks"]
    assert lease.state.hold is ClockHold.FREE


def test_the_journal_holds_who_what_and_the_undo(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Enough for another process to undo it, and nothing that can be mistaken for another boot."""
    with acquire(control(), 1410, path=journal, arm=arming):
        text = json.loads((journal / f"{UUID}.json").read_text())

    assert text["pid"] == os.getpid()
    assert text["pid_start"] == process_start(os.getpid())
    assert text["driver"] == "570.86.10"
    assert text["requested_mhz"] == 1410
    assert text["undo"]["actions"] == [["reset-sm"]]
    assert text["boot_id"]


def test_the_journal_is_private(board: FakeBoard, journal: Path, arming: Arming) -> None:
    """0700 for the directory, 0600 for its files."""
    with acquire(control(), 1410, path=journal, arm=arming):
        modes = {stat.S_IMODE(p.stat().st_mode) for p in journal.iterdir()}

    assert modes == {0o600}
    assert stat.S_IMODE(journal.stat().st_mode) == 0o700


def test_an_exception_in_the_block_gives_the_clocks_back(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The exception is the one that is seen."""
    with (
        pytest.raises(ZeroDivisionError),
        acquire(control(), 1410, path=journal, arm=arming),
    ):
        1 / 0  # noqa: B018

    assert board.is_free
    assert entries(journal) == []


def test_a_second_release_does_nothing(board: FakeBoard, journal: Path, arming: Arming) -> None:
    """A key press and the end of the program may both release."""
    lease = acquire(control(), 1410, path=journal, arm=arming)

    lease.release()
    lease.release()

    assert board.calls.count("ResetGpuLockedClocks") == 1
    with pytest.raises(ClockRefused, match="given back"):
        lease.change(1305)


def test_a_forked_child_does_not_give_the_clocks_back(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """A data loader's worker that unwinds must not unlock its parent's device."""
    lease = acquire(control(), 1410, path=journal, arm=arming)
    lease._pid += 1

    lease.release()

    assert board.state == LOCKED
    lease._pid -= 1
    lease.release()
    assert board.is_free


def test_the_memory_clock_is_locked_and_reset_only_when_asked_for(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Off by default, and an unlock must not remove an admin's memory lock."""
    with acquire(control(), 1410, 2619, path=journal, arm=arming) as lease:
        assert board.state.startswith("sm 1410 1410\nmem 2619 2619")
        assert lease.state.mem_locked_mhz == 2619

    assert board.is_free
    assert "ResetMemoryLockedClocks" in board.calls


def test_a_refused_memory_lock_is_a_note_of_the_lease(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The core lock stands and is given back."""
    board.script(nvmlDeviceSetMemoryLockedClocks=3)

    with acquire(control(), 1417, 2619, path=journal, arm=arming) as lease:
        assert lease.notes == [
            "1417 MHz is not a step of this device: rounded down to 1410 MHz",
            "memory clock not locked: this GPU or driver does not offer it",
        ]
        assert lease.state.mem_locked_mhz is None

    assert board.is_free


# --- Failing at every step -----------------------------------------------------------------------


def test_a_refused_lock_leaves_neither_journal_nor_guardian_nor_undo(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Nothing was changed, so nothing is undone: the undo would need the same rights."""
    board.script(nvmlDeviceSetGpuLockedClocks=4)

    with pytest.raises(ClockRefused, match="needs root"):
        acquire(control(), 1410, path=journal, arm=arming)

    assert board.is_free
    assert board.calls == ["SetGpuLockedClocks 1410 1410"]
    assert entries(journal) == []
    assert arming.guards[0].dismissed == 1


def test_without_a_guardian_nothing_is_locked(board: FakeBoard, journal: Path) -> None:
    """A lock that could outlive us is not made."""
    with pytest.raises(ClockRefused, match="no fork"):
        acquire(control(), 1410, path=journal, arm=Arming(board, journal, "no fork"))

    assert board.calls == []
    assert entries(journal) == []


def test_without_a_journal_nothing_is_locked(
    board: FakeBoard, tmp_path: Path, arming: Arming
) -> None:
    """A directory that cannot be made refuses in one line."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ClockRefused, match="cannot keep a journal"):
        acquire(control(), 1410, path=tmp_path / "file" / "clocks", arm=arming)

    assert board.calls == []


class Stumbling(NvidiaClocks):
    """Locks, and is then interrupted."""

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        super().lock(sm_mhz, mem_mhz)
        raise KeyboardInterrupt


def test_an_interrupt_between_deed_and_lease_is_undone(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Ctrl-C at the worst moment."""
    clocks = Stumbling(NVIDIA, access(), ManualTime())

    with pytest.raises(KeyboardInterrupt):
        acquire(clocks, 1410, path=journal, arm=arming)

    assert board.is_free
    assert entries(journal) == []
    assert arming.guards[0].dismissed == 1


def test_an_interrupt_whose_undo_fails_leaves_it_to_the_guardian_or_is_loud(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The journal stays for the next start."""

    class Stuck(Stumbling):
        def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
            board.script(nvmlDeviceResetGpuLockedClocks=4)
            arming.guards[0].can_fire = False
            super().lock(sm_mhz, mem_mhz)

    with pytest.raises(ClockError, match="could not be put back"):
        acquire(Stuck(NVIDIA, access(), ManualTime()), 1410, path=journal, arm=arming)

    assert arming.guards[0].fired == 1
    assert entries(journal) == [f"{UUID}.json"]


def test_an_undo_that_fails_falls_back_on_the_guardians_rights(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Rights may have been dropped since the guardian was started."""
    lease = acquire(control(), 1410, path=journal, arm=arming)
    board.script(nvmlDeviceResetGpuLockedClocks=4)

    lease.release()

    assert arming.guards[0].fired == 1
    assert "put back by the guardian" in lease.notes[-1]


def test_an_undo_that_fails_for_both_is_loud_and_keeps_the_journal(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The exact command is in the message, and the next start knows."""
    lease = acquire(control(), 1410, path=journal, arm=arming)
    board.script(nvmlDeviceResetGpuLockedClocks=4)
    arming.guards[0].can_fire = False

    with pytest.raises(ClockError, match=f"sudo nvidia-smi -i {UUID} -rgc"):
        lease.release()

    assert entries(journal) == [f"{UUID}.json"]
    board.script()
    locked(board)
    assert unlock(control(), path=journal).startswith("NVIDIA Fake 100 was left locked at 1410")
    assert board.is_free


def test_a_dead_guardian_shows_in_the_state(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """From then on only the journal stands behind the lock."""
    with acquire(control(), 1410, path=journal, arm=arming) as lease:
        arming.guards[0].alive = False

        assert not lease.is_guarded
        assert "guardian died" in lease.state.evidence


# --- Changing and keeping ------------------------------------------------------------------------


def test_a_change_moves_lock_and_journal_and_starts_verifying_afresh(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The undo stays that of the first lock."""
    with acquire(control(), 1410, path=journal, arm=arming) as lease:
        for i in range(130):
            lease.feed(Reading(device=UUID, at_ns=i * 100_000_000, sm_mhz=1410, util_pct=99))
        assert lease.state.hold is ClockHold.LOCKED

        lease.change(1310)

        assert board.state.startswith("sm 1305 1305")
        assert "1305 MHz" in lease.notes[-1]
        assert lease.state.hold is ClockHold.PENDING
        assert json.loads((journal / f"{UUID}.json").read_text())["requested_mhz"] == 1305
    assert board.is_free


def test_a_refused_change_leaves_the_old_lock_in_force(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """And the journal says so."""
    with acquire(control(), 1410, path=journal, arm=arming) as lease:
        board.script(nvmlDeviceSetGpuLockedClocks=19)

        with pytest.raises(ClockRefused):
            lease.change(1305)

        assert board.state == LOCKED
        assert lease.sm_mhz == 1410
        assert json.loads((journal / f"{UUID}.json").read_text())["requested_mhz"] == 1410


def test_readings_of_another_device_do_not_verify_this_one(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Two watched devices must not be mixed up."""
    with acquire(control(), 1410, path=journal, arm=arming) as lease:
        for i in range(200):
            lease.feed(Reading(device="GPU-b", at_ns=i * 100_000_000, sm_mhz=1410, util_pct=99))

        assert lease.state.hold is ClockHold.PENDING


def test_a_kept_lock_stays_is_on_record_and_says_how_to_undo_it(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """--keep-lock."""
    with acquire(control(), 1410, keep=True, path=journal, arm=arming) as lease:
        assert json.loads((journal / f"{UUID}.json").read_text())["keep"] is False

    assert board.state == LOCKED
    assert arming.guards[0].dismissed == 1
    assert f"sudo nvidia-smi -i {UUID} -rgc" in lease.state.evidence
    assert json.loads((journal / f"{UUID}.json").read_text())["keep"] is True
    assert [r.outcome for r in restore_all(path=journal, access=access())] == ["kept"]
    assert board.state == LOCKED
    assert unlock(control(), path=journal) == "NVIDIA Fake 100: unlocked from 1410 MHz"
    assert board.is_free
    assert entries(journal) == []


def test_a_kept_lock_is_moved_by_another_kept_one_without_asking(
    board: FakeBoard, journal: Path
) -> None:
    """Its clock that shows is ours, so no foreign lock is suspected."""
    quiet = Arming(board, journal)
    acquire(control(), 1410, 2619, keep=True, path=journal, arm=quiet).release()
    assert control().state().hold is ClockHold.FOREIGN

    acquire(control(), 1305, keep=True, path=journal, arm=_any_arm).release()

    assert board.state.startswith("sm 1305 1305\nmem 2619 2619")
    assert unlock(control(), path=journal) == "NVIDIA Fake 100: unlocked from 1305 MHz"
    assert board.is_free, "the memory lock of the first one goes too"


def test_a_kept_memory_lock_is_not_forgotten_by_any_number_of_core_locks(
    board: FakeBoard, journal: Path
) -> None:
    """The undo of a kept lock is handed on whole."""
    acquire(control(), 1410, 2619, keep=True, path=journal, arm=_any_arm).release()
    for mhz in (1305, 1200, 1005):
        acquire(control(), mhz, keep=True, path=journal, arm=_any_arm).release()

    unlock(control(), path=journal)

    assert board.is_free


def test_a_guardian_that_does_not_start_leaves_the_record_of_a_kept_lock(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Otherwise nobody would know of it any more."""
    acquire(control(), 1410, keep=True, path=journal, arm=arming).release()

    def refuse(*_: object) -> FakeGuard:
        raise ClockRefused("no fork")

    with pytest.raises(ClockRefused, match="no fork"):
        acquire(control(), 1305, force=True, path=journal, arm=refuse)

    assert json.loads((journal / f"{UUID}.json").read_text())["requested_mhz"] == 1410
    assert board.state == LOCKED


def test_a_lock_that_cannot_be_kept_on_record_is_undone(
    board: FakeBoard, journal: Path, arming: Arming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the end of a run with --keep-lock."""
    lease = acquire(control(), 1410, keep=True, path=journal, arm=arming)

    def full(*_: object) -> None:
        raise ClockRefused("No space left on device")

    monkeypatch.setattr(LeaseDirectory, "write", full)
    with pytest.raises(ClockRefused, match="undone, not kept: No space left"):
        lease.release()

    assert board.is_free
    assert lease.state.hold is ClockHold.FREE


def test_an_interrupt_of_the_undo_leaves_it_to_the_guardian(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """A second Ctrl-C while the clocks are given back."""

    class Interrupted(NvidiaClocks):
        def undo(self, undo: ClockUndo) -> None:
            raise KeyboardInterrupt

    lease = acquire(Interrupted(NVIDIA, access(), ManualTime()), 1410, path=journal, arm=arming)

    with pytest.raises(KeyboardInterrupt):
        lease.release()

    assert arming.guards[0].fired == 1


def _any_arm(undo: Mapping[str, Any], *_: object) -> FakeGuard:
    return FakeGuard(undo)


def test_a_run_over_a_kept_lock_asks_and_a_refusal_leaves_the_kept_one(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Otherwise the end of the run would silently remove it."""
    acquire(control(), 1410, keep=True, path=journal, arm=arming).release()

    with pytest.raises(ClockRefused, match="usv-tui left it locked at 1410 MHz"):
        acquire(control(), 1305, path=journal, arm=_any_arm)
    board.script(nvmlDeviceSetGpuLockedClocks=4)
    with pytest.raises(ClockRefused, match="needs root"):
        acquire(control(), 1305, force=True, path=journal, arm=_any_arm)

    assert json.loads((journal / f"{UUID}.json").read_text())["keep"] is True
    assert board.state == LOCKED


# --- Whom a lock would disturb -------------------------------------------------------------------


def test_a_suspected_foreign_lock_is_refused_without_force(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """It cannot be read, hence not be put back."""
    board.script(sm=1410)

    with pytest.raises(ClockRefused, match=r"somebody else may have locked it.*--force"):
        acquire(control(), 1305, path=journal, arm=arming)
    assert board.calls == []
    with acquire(control(), 1305, force=True, path=journal, arm=arming):
        assert board.state.startswith("sm 1305 1305")


def test_a_foreign_lock_seen_in_the_runs_readings_is_refused_too(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Under load it does not show in one look."""
    seen = "the clock stands at 1410 MHz under load with no limit reported"

    with pytest.raises(ClockRefused, match="stands at 1410 MHz under load"):
        acquire(control(), 1305, foreign=seen, path=journal, arm=arming)


def test_foreign_compute_processes_are_refused_without_force(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The lock would change somebody else's results."""
    board.script(pid=max(1, os.getppid()))

    with pytest.raises(ClockRefused, match="other processes compute on it"):
        acquire(control(), 1410, path=journal, arm=arming)
    with acquire(control(), 1410, force=True, path=journal, arm=arming):
        assert board.state == LOCKED


def test_two_monitors_do_not_fight_over_one_device(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The second one is told who holds it, in one line."""
    with acquire(control(), 1410, path=journal, arm=arming):
        with pytest.raises(ClockBusy) as caught:
            acquire(control(), 1305, path=journal, arm=arming)
        assert f"(pid {os.getpid()}, 1410 MHz)" in str(caught.value)
        with pytest.raises(ClockBusy):
            unlock(control(), path=journal)
        assert [r.outcome for r in restore_all(path=journal, access=access())] == ["live"]
        assert board.state == LOCKED

    assert board.is_free


# --- What crashes leave --------------------------------------------------------------------------


def test_a_lock_of_a_dead_process_is_put_back_with_a_clear_message(
    board: FakeBoard, journal: Path
) -> None:
    """The machine lost power to the whole control group: only the journal is left."""
    locked(board)
    write_entry(journal)

    (result,) = restore_all(path=journal, access=access())

    assert board.is_free
    assert result.outcome == "restored"
    assert result.message == (
        "NVIDIA Fake 100 was left locked at 1410 MHz by a run that died (pid 4194000);"
        " its clocks were put back"
    )
    assert entries(journal) == []


def test_a_reused_pid_is_not_taken_for_the_run_that_locked(board: FakeBoard, journal: Path) -> None:
    """The start time tells them apart."""
    locked(board)
    write_entry(journal, pid=os.getppid(), pid_start=1)

    assert [r.outcome for r in restore_all(path=journal, access=access())] == ["restored"]
    assert board.is_free


def test_a_lock_of_a_live_process_is_respected(board: FakeBoard, journal: Path) -> None:
    """Even where its file lock cannot be seen."""
    locked(board)
    pid = os.getppid() or 1
    write_entry(journal, pid=pid, pid_start=process_start(pid))

    assert [r.outcome for r in restore_all(path=journal, access=access())] == ["live"]
    with pytest.raises(ClockBusy, match=f"pid {pid}"):
        acquire(control(), 1305, path=journal, arm=_any_arm)
    assert board.state == LOCKED


def test_an_entry_of_an_earlier_boot_is_dropped_without_action(
    board: FakeBoard, journal: Path
) -> None:
    """A reboot unlocked the device; a lock that is there now is somebody else's."""
    locked(board)
    write_entry(journal, boot_id="an earlier one")

    (result,) = restore_all(path=journal, access=access())

    assert result.outcome == "discarded"
    assert board.calls == []
    assert entries(journal) == []


def test_an_entry_of_another_machine_is_left_alone(board: FakeBoard, journal: Path) -> None:
    """Home directories are shared between machines."""
    write_entry(journal, boot_id="its own", host="elsewhere")

    assert [r.outcome for r in restore_all(path=journal, access=access())] == ["live"]
    assert entries(journal) == [f"{UUID}.json"]


def test_a_failing_restore_is_reported_keeps_its_journal_and_does_not_stop_the_others(
    board: FakeBoard, journal: Path
) -> None:
    """A later start tries again; the guardian's own failure is told too."""
    locked(board)
    other = "GPU-ffffffff-0000-0000-0000-000000000000"
    undo = ClockUndo(uuid=other, kind="nvidia", actions=[["reset-sm"]])
    write_entry(journal)
    write_entry(journal, uuid=other, undo=undo)
    log = journal / f"{other}.log"
    log.write_text("it was busy\n")
    log.chmod(0o600)

    results = {r.uuid: r for r in restore_all(path=journal, access=access())}

    assert results[UUID].outcome == "restored"
    assert results[other].is_failure
    assert "Not Found" in results[other].message
    assert "the guardian had failed too: it was busy" in results[other].message
    assert f"sudo nvidia-smi -i {other} -rgc" in results[other].message
    assert entries(journal) == [f"{other}.json"]
    assert board.is_free


def test_a_new_lock_first_repairs_what_a_crash_left(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """And tells so; the clock of the crash is not taken for a foreign lock."""
    locked(board)
    write_entry(journal)

    with acquire(control(), 1305, path=journal, arm=arming) as lease:
        assert board.state.startswith("sm 1305 1305")
        assert "by a run that died" in lease.notes[0]

    assert board.is_free


def test_nothing_to_restore_is_an_empty_list_and_makes_no_directory(journal: Path) -> None:
    """Called at every start."""
    assert restore_all(path=journal) == []
    assert not journal.exists()


def test_the_known_state_tells_whose_lock_it_is(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Ours and running, kept, left by a crash, or none of ours."""
    assert known_state(control(), path=journal).hold is ClockHold.UNKNOWN
    with acquire(control(), 1410, path=journal, arm=arming):
        assert "by usv-tui, pid" in known_state(control(), path=journal).evidence
    write_entry(journal)
    state = known_state(control(), path=journal)
    assert state.locked_mhz == 1410
    assert "clocks restore" in state.evidence
    write_entry(journal, keep=True)
    assert "clocks unlock" in known_state(control(), path=journal).evidence
    write_entry(journal, boot_id="x")
    assert known_state(control(), path=journal).locked_mhz is None


# --- Whose files are believed --------------------------------------------------------------------


def _open_to_others(journal: Path) -> None:
    journal.chmod(0o777)


def _readable_entry(journal: Path) -> None:
    (journal / f"{UUID}.json").chmod(0o644)


def _symlink(journal: Path) -> None:
    (journal / f"{UUID}.json").rename(journal.parent / "elsewhere.json")
    (journal / f"{UUID}.json").symlink_to(journal.parent / "elsewhere.json")


def _second_name(journal: Path) -> None:
    os.link(journal / f"{UUID}.json", journal.parent / "elsewhere.json")


def _fifo(journal: Path) -> None:
    (journal / f"{UUID}.json").unlink()
    os.mkfifo(journal / f"{UUID}.json", 0o600)


def _garbage(journal: Path) -> None:
    (journal / f"{UUID}.json").write_text("{")


def _huge(journal: Path) -> None:
    (journal / f"{UUID}.json").write_text(" " * 200_000)


def _another_device(journal: Path) -> None:
    path = journal / f"{UUID}.json"
    path.write_text(path.read_text().replace(f'"uuid": "{UUID}"', '"uuid": "GPU-b"', 1))


def _unknown_field(journal: Path) -> None:
    path = journal / f"{UUID}.json"
    path.write_text(path.read_text().replace('"schema"', '"library": "/tmp/x.so",\n"schema"'))


@pytest.mark.parametrize(
    "spoil",
    [
        _readable_entry,
        _symlink,
        _second_name,
        _fifo,
        _garbage,
        _huge,
        _another_device,
        _unknown_field,
    ],
)
def test_an_entry_that_is_not_ours_or_not_one_is_reported_and_not_acted_on(
    board: FakeBoard, journal: Path, spoil: Any
) -> None:
    """Owner, mode, links and content are checked on the open file."""
    locked(board)
    write_entry(journal)
    spoil(journal)

    (result,) = restore_all(path=journal, access=access())

    assert result.is_failure
    assert board.calls == []
    with pytest.raises(ClockRefused):
        acquire(control(), 1305, path=journal, arm=_any_arm)


def test_a_directory_that_others_may_use_is_refused(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Somebody could put an undo of his own into it."""
    write_entry(journal)
    _open_to_others(journal)

    with pytest.raises(ClockRefused, match="can be used by others"):
        acquire(control(), 1410, path=journal, arm=arming)
    with pytest.raises(ClockRefused, match="can be used by others"):
        restore_all(path=journal)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_directory_of_somebody_else_is_refused(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Root must not believe a user's files."""
    write_entry(journal)
    os.chown(journal, 12345, 12345)

    with pytest.raises(ClockRefused, match="belongs to somebody else"):
        acquire(control(), 1410, path=journal, arm=arming)


def test_a_symlink_in_place_of_the_directory_is_refused(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """The last part of the path is not followed."""
    journal.parent.mkdir()
    (journal.parent / "real").mkdir(mode=0o700)
    journal.symlink_to("real")

    with pytest.raises(ClockRefused, match="cannot keep a journal"):
        acquire(control(), 1410, path=journal, arm=arming)


@pytest.mark.parametrize("uuid", ["../x", "", "a b", ".hidden", "x" * 200, "a\nb"])
def test_a_uuid_that_is_no_file_name_is_refused(journal: Path, uuid: str) -> None:
    """It comes from a driver or a file and ends up in a path."""
    with (
        contextlib.closing(LeaseDirectory.open(journal)) as directory,
        pytest.raises(ClockRefused, match="not a device's UUID"),
    ):
        directory.take(uuid)


def test_a_failed_write_leaves_the_old_entry_whole(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk refuses the lock; the record of the present one stays."""
    write_entry(journal, requested_mhz=1410)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClockRefused, match="No space left"):
        write_entry(journal, requested_mhz=1305)
    monkeypatch.undo()

    with contextlib.closing(LeaseDirectory.open(journal)) as directory:
        entry = directory.read(UUID)
    assert entry is not None
    assert entry.requested_mhz == 1410
    assert owner_of(entry) is Owner.DEAD


def test_the_guardian_of_a_run_that_just_died_is_waited_for(journal: Path) -> None:
    """Its file lock outlives the run; a new lock must not be undone by it."""
    write_entry(journal)
    time_source = ManualTime()
    with contextlib.closing(LeaseDirectory.open(journal)) as theirs:
        held = theirs.take(UUID)
        fd = os.open(journal, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.closing(LeaseDirectory(journal, fd, time_source)) as ours:
            with pytest.raises(ClockBusy):
                ours.take(UUID)
            assert time_source.now_ns() >= 3_000_000_000
            fcntl.flock(held, fcntl.LOCK_UN)
            os.close(ours.take(UUID))
        os.close(held)


# --- AMD and simulated devices -------------------------------------------------------------------


def test_an_amd_lease_asks_nobody_about_a_level_it_can_put_back(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manual 1400 before, manual 1400 after."""
    card = FakeCard(tmp_path / "sys")
    card.install(monkeypatch)
    card.set("manual", (500, 1400))
    clocks = AmdClocks(AMD, Access(sysfs=str(card.sysfs)))

    with acquire(clocks, 1700, path=journal, arm=_any_arm):
        assert (card.level, card.table) == ("perf_determinism", (500, 1700))

    assert (card.level, card.table) == ("manual", (500, 1400))


def test_a_crashed_amd_run_is_restored_to_what_it_found(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo in the journal is the previous state, not a reset."""
    card = FakeCard(tmp_path / "sys")
    card.install(monkeypatch)
    card.set("manual", (500, 1400))
    reach = Access(sysfs=str(card.sysfs))
    undo = AmdClocks(AMD, reach).plan_undo()
    AmdClocks(AMD, reach).lock(1700)
    write_entry(journal, uuid=AMD.uuid, kind="amd", pci=AMD.pci, name=AMD.name, undo=undo)

    (result,) = restore_all(path=journal, access=reach)

    assert result.outcome == "restored"
    assert (card.level, card.table) == ("manual", (500, 1400))


def test_unlocking_an_amd_card_without_a_record_goes_to_auto_and_says_so(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before cannot be known then."""
    card = FakeCard(tmp_path / "sys")
    card.install(monkeypatch)
    card.set("manual", (500, 1400))

    text = unlock(AmdClocks(AMD, Access(sysfs=str(card.sysfs))), path=journal)

    assert card.level == "auto"
    assert text == "AMD Fake 300: nothing of ours was locked; reset all the same"


class SimulatedClocks:
    """The smallest thing that fills the seam."""

    uuid = "sim-h100"
    kind = "sim"

    def __init__(self, hold: ClockHold = ClockHold.FREE) -> None:
        self.locked: int | None = None
        self.hold = hold

    def state(self) -> ClockState:
        return ClockState(hold=self.hold, evidence="as simulated")

    def plan_undo(self) -> ClockUndo:
        return ClockUndo(uuid=self.uuid, kind=self.kind)

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        self.locked = sm_mhz

    def undo(self, undo: ClockUndo) -> None:
        self.locked = None

    def supported_mhz(self) -> list[int]:
        return list(range(345, 1981, 15))


def test_a_simulated_device_needs_neither_journal_nor_guardian(journal: Path) -> None:
    """Its lock ends with the process."""
    clocks = SimulatedClocks()

    with acquire(clocks, 1410, path=journal) as lease:
        assert clocks.locked == 1410
        assert lease.is_guarded

    assert clocks.locked is None
    assert not journal.exists()


def test_a_simulated_foreign_lock_is_refused_without_force() -> None:
    """The same rules, so that the demo shows them."""
    with pytest.raises(ClockRefused, match="somebody else may have locked it"):
        acquire(SimulatedClocks(ClockHold.FOREIGN), 1410)


# --- The library's face --------------------------------------------------------------------------


@pytest.fixture
def real_face(
    board: FakeBoard, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeBoard]:
    """The fake library and a journal of the test's own behind `fixed_clocks`."""

    def fake_controller(info: DeviceInfo) -> NvidiaClocks:
        return control(info)

    def fake_acquire(clocks: NvidiaClocks, sm_mhz: int, *, force: bool) -> ClockLease:
        return acquire(clocks, sm_mhz, force=force, path=journal, arm=_any_arm)

    monkeypatch.setattr("usv_tui.library.fixed.controller_for", fake_controller)
    monkeypatch.setattr("usv_tui.library.fixed.acquire", fake_acquire)
    return board


def test_fixed_clocks_locks_a_sustainable_clock_and_says_which(real_face: FakeBoard) -> None:
    """Usv takes the maximum."""
    with fixed_clocks(device=0, resolver=lambda _: NVIDIA) as lease:
        assert real_face.state.startswith("sm 1485 1485")
        assert lease.notes == [
            "locked at 1485 MHz: base clock unknown: 75% of the maximum 1980 MHz"
        ]

    assert real_face.is_free


def test_fixed_clocks_takes_a_clock_and_checks_the_vendor(real_face: FakeBoard) -> None:
    """Usv's keyword stays, and means what it says."""
    with fixed_clocks(sm_mhz=1410, vendor="nvidia", resolver=lambda _: NVIDIA):
        assert real_face.state == LOCKED
    with (
        pytest.raises(ClockRefused, match="is nvidia, not amd"),
        fixed_clocks(vendor="amd", resolver=lambda _: NVIDIA),
    ):
        pass

    assert real_face.is_free


def test_without_rights_the_block_runs_unlocked_and_is_marked(real_face: FakeBoard) -> None:
    """One clear line with the command; no partial state."""
    real_face.script(nvmlDeviceSetGpuLockedClocks=4)
    ran = False

    with clocks_locked_if_possible(sm_mhz=1410, resolver=lambda _: NVIDIA) as state:
        ran = True

    assert ran
    assert state.locked_mhz is None
    assert state.evidence == "not locked"
    assert f"sudo nvidia-smi -i {UUID} -lgc 1410,1410" in state.reason
    assert real_face.state == FREE


def test_with_rights_the_same_block_runs_locked(real_face: FakeBoard) -> None:
    """And is given back at its end."""
    with clocks_locked_if_possible(sm_mhz=1410, resolver=lambda _: NVIDIA) as state:
        assert state.locked_mhz == 1410
        assert real_face.state == LOCKED

    assert real_face.is_free


# --- A journal's place that fails ---------------------------------------------------------------

FAILING = ("unlink", "rename", "fsync", "listdir")


def _break(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """From here on nothing can be changed in any directory."""

    def fail(*_args: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    for name in FAILING:
        monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_where_no_record_can_be_kept_the_card_is_not_touched(
    board: FakeBoard, journal: Path, arming: Arming, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Full, read-only, forbidden or broken: one line, and no call that sets anything."""
    LeaseDirectory.open(journal).close()
    _break(monkeypatch, code)

    with pytest.raises(ClockRefused) as refusal:
        acquire(control(), 1410, path=journal, arm=arming)

    assert "\n" not in str(refusal.value)
    assert os.strerror(code) in str(refusal.value)
    assert board.calls == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_a_place_that_fails_during_the_lock_does_not_keep_the_clocks(
    board: FakeBoard, journal: Path, arming: Arming, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The clocks are given back, and a note says what is left to remove."""
    lease = acquire(control(), 1410, path=journal, arm=arming)
    _break(monkeypatch, code)

    with pytest.raises(ClockRefused, match="cannot be written"):
        lease.change(1305)
    lease.release()

    assert board.is_free
    assert lease.state.hold is ClockHold.FREE
    assert any("cannot be removed" in note for note in lease.notes)


def test_a_lock_that_cannot_be_kept_on_record_is_undone_and_called_so(
    board: FakeBoard, journal: Path, arming: Arming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`keep` without a record is no failure to give the clocks back."""
    lease = acquire(control(), 1410, keep=True, path=journal, arm=arming)
    _break(monkeypatch, errno.EROFS)

    with pytest.raises(ClockRefused, match="undone, not kept"):
        lease.release()

    assert board.is_free
    assert lease.state.hold is ClockHold.FREE


def test_a_directory_that_was_removed_is_a_line(board: FakeBoard, journal: Path) -> None:
    """No traceback for a place that went away between two looks."""
    directory = LeaseDirectory.open(journal)
    journal.rmdir()

    with contextlib.closing(directory), pytest.raises(ClockRefused, match="is gone"):
        directory.take(UUID)


def test_what_becomes_of_a_lock_is_told_from_its_outcome(
    board: FakeBoard, journal: Path, arming: Arming
) -> None:
    """Refused and no guardian that could: not given back; by the guardian: free, and why."""
    lease = acquire(control(), 1410, path=journal, arm=arming)
    board.script(nvmlDeviceResetGpuLockedClocks=4)
    arming.guards[0].can_fire = False
    arming.guards[0].alive = False
    with pytest.raises(ClockError):
        lease.release()
    assert lease.state.hold is ClockHold.STUCK
    assert lease.state.locked_mhz == 1410

    (board.folder / "state").write_text(FREE)
    (journal / f"{UUID}.json").unlink()
    again = acquire(control(), 1410, path=journal, arm=arming)
    again.release()
    assert again.state.hold is ClockHold.FREE
    assert "by the guardian" in again.state.evidence

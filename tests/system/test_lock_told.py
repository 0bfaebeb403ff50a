"""What a run says of its lock at the end is what became of it, whatever the driver does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.fakes.clocks import NVIDIA, UUID, FakeBoard
from usv_tui.clocks.lease_files import Entry, LeaseDirectory
from usv_tui.model import ClockUndo

ROOT = Path(__file__).resolve().parents[2]
FILE = 'import time\nBENCHMARKS = {"a": lambda: time.sleep(2e-4), "b": lambda: time.sleep(3e-4)}\n'
LOCK = "nvmlDeviceSetGpuLockedClocks"
RESET = "nvmlDeviceResetGpuLockedClocks"
NO_RIGHTS = 4


class Run:
    """A headless run that locks the fake board, seen from outside."""

    def __init__(self, folder: Path, *options: str, lock: str = "1410") -> None:
        self.folder = folder
        self.board = FakeBoard(folder / "board")
        self.err = folder / "stderr"
        self.journal = folder / "state" / "usv-tui" / "clocks"
        (folder / "file.py").write_text(FILE)
        self.command = [sys.executable, "-m", "tests.fakes.locked_program", "file.py"]
        self.command += ["--headless", "--device", "cpu", "--warmup", "0.1", "--inner", "1"]
        self.command += ["--lock", lock] if lock else []
        self.command += ["--json", "out.json", *options]
        self.process: subprocess.Popen[str] | None = None

    def start(self, until: str = "clocks: locking 1410 MHz") -> "Run":
        """Start it and wait for these words on stderr."""
        environment = self.board.environment(self.folder / "state")
        environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder), "LANG": "C.UTF-8"}
        with self.err.open("w") as err:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.wait_for(until)
        return self

    def wait_for(self, words: str, timeout_s: float = 30) -> None:
        """Until these words are on stderr."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while words not in self.err.read_text():
            assert time.monotonic() < deadline, self.err.read_text()
            assert self.process.poll() is None, self.err.read_text()
            time.sleep(0.02)

    def send(self, number: int) -> None:
        """A signal to the program alone."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def finish(self, timeout_s: float = 30) -> "Ended":
        """Wait for the end; what it left."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=timeout_s)
        data = json.loads((self.folder / "out.json").read_text())
        return Ended(self.process.returncode, out, self.err.read_text(), data)

    def guardian(self) -> int:
        """Its guardian's pid: the child that runs that module."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        found = [f.read_text().split() for f in tasks.glob("*/children")]
        for pid in [pid for pids in found for pid in pids]:
            if b"usv_tui.clocks.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError("no guardian")


class Ended(NamedTuple):
    """What a run left behind."""

    code: int
    out: str
    err: str
    data: dict[str, Any]

    @property
    def clocks(self) -> str:
        """The line of the table."""
        [line] = [line for line in self.out.splitlines() if line.startswith("clocks")]
        return line


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Run]]:
    """Runs that are ended with the test, whatever became of it."""
    started: list[Run] = []
    yield started
    for run in started:
        if run.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, signal.SIGKILL)
            run.process.communicate()


def started(runs: list[Run], folder: Path, *options: str, until: str = "locking 1410") -> Run:
    """A run whose lock is in force."""
    runs.append(Run(folder, *options))
    return runs[-1].start(until)


def test_a_lock_that_is_given_back_is_said_to_be(runs: list[Run], tmp_path: Path) -> None:
    """The ordinary end: exit 0, free, and so it says."""
    run = started(runs, tmp_path, "--max-time", "3")

    end = run.finish()

    assert end.code == 0
    assert run.board.is_free
    assert end.clocks.endswith("given back at the end")
    assert end.data["clocks"]["hold"] == "free"


def test_a_refused_reset_is_never_called_a_success(runs: list[Run], tmp_path: Path) -> None:
    """Neither narration nor table nor JSON says that the clocks were given back."""
    run = started(runs, tmp_path, "--max-time", "2")
    run.board.script(**{RESET: NO_RIGHTS})

    end = run.finish()

    assert end.code == 5
    assert not run.board.is_free
    assert "given back at the end" not in end.out
    assert "free" not in end.clocks
    assert "NOT GIVEN BACK" in end.clocks
    assert "ERROR" in end.out
    assert "clocks: free" not in end.err
    assert "usv-tui: CLOCKS NOT GIVEN BACK" in end.err
    assert end.data["clocks"]["hold"] == "not given back"
    assert [n["code"] for n in end.data["notices"] if n["level"] == "error"] == ["unlock failed"]


@pytest.mark.parametrize(
    ("lock", "file", "code", "said"),
    [
        ("1410", FILE, 7, "refused: "),
        ("advice", FILE, 7, "nothing was advised"),
        ("1410", f"{FILE}BENCHMARKS['bad'] = lambda: 1 / 0\n", 1, "refused: "),
    ],
    ids=["refused", "no advice", "and a row that fails"],
)
def test_a_lock_that_was_asked_for_and_did_not_happen_is_no_success(
    runs: list[Run], tmp_path: Path, lock: str, file: str, code: int, said: str
) -> None:
    """The run is measured to its end; table and JSON say why, once, and so does the exit code."""
    run = Run(tmp_path, "--max-time", "1", lock=lock)
    runs.append(run)
    run.board.script(**{LOCK: NO_RIGHTS})
    (tmp_path / "file.py").write_text(file)

    end = run.start("measuring").finish()

    assert end.code == code
    assert run.board.is_free
    assert f"unlocked ({said}" in end.clocks
    assert f"unlocked ({said}" in end.data["clocks_words"]
    assert "not locked" not in end.out
    codes = [n["code"] for n in end.data["notices"]]
    assert ("lock refused" in codes, "not advised" in codes) == (lock != "advice", lock == "advice")
    assert end.data["rows"][0]["statistics"]["n"] > 0


def test_after_a_signal_a_refused_lock_is_no_news(runs: list[Run], tmp_path: Path) -> None:
    """Somebody who ends the run by hand is told that it was ended by hand."""
    run = Run(tmp_path, lock="advice")
    runs.append(run)

    run.start("measuring").send(signal.SIGINT)

    assert run.finish().code == 130


def test_a_killed_guardian_is_told_and_replaced(runs: list[Run], tmp_path: Path) -> None:
    """The run goes on under a new guardian, which does its work after a kill -9."""
    run = started(runs, tmp_path, "--max-time", "60")
    first = run.guardian()

    os.kill(first, signal.SIGKILL)
    run.wait_for("the guardian of the lock at 1410 MHz died")
    run.wait_for("the lock has a guardian again")
    assert run.guardian() != first
    run.send(signal.SIGKILL)

    deadline = time.monotonic() + 10
    while not run.board.is_free and time.monotonic() < deadline:
        time.sleep(0.02)
    assert run.board.is_free


@pytest.mark.parametrize("is_hurried", [False, True])
def test_a_driver_that_hangs_in_the_reset_does_not_hold_the_end(
    runs: list[Run], tmp_path: Path, *, is_hurried: bool
) -> None:
    """Some seconds, or a second Ctrl-C: exit 5, table, JSON, and the guardian goes on trying."""
    run = started(runs, tmp_path, "--max-time", "60")
    run.board.script(slow_ms=60_000)

    begin = time.monotonic()
    run.send(signal.SIGINT)
    if is_hurried:
        time.sleep(1)
        run.send(signal.SIGINT)
    end = run.finish()

    took_s = time.monotonic() - begin
    assert took_s < (4 if is_hurried else 12)
    assert end.code == 5
    assert "NOT GIVEN BACK" in end.clocks
    assert "the guardian goes on trying" in end.clocks
    assert is_hurried or end.err.count("waiting for the driver to give the clocks back") == 1
    assert "given back at the end" not in end.out


def test_a_record_that_cannot_be_removed_costs_a_note_only(runs: list[Run], tmp_path: Path) -> None:
    """The journal's place fails during the lock: clocks back, table, JSON, exit 0."""
    run = started(runs, tmp_path, "--max-time", "3")
    entry = run.journal / f"{UUID}.json"
    entry.unlink()
    entry.mkdir()

    end = run.finish()

    assert end.code == 0
    assert run.board.is_free
    assert end.clocks.endswith("given back at the end")
    assert "cannot be removed" in end.out
    assert "Traceback" not in end.err


def test_no_journal_no_lock(runs: list[Run], tmp_path: Path) -> None:
    """Where no record can be kept, the card is not touched: one line, the run goes on, exit 7."""
    place = tmp_path / "state" / "usv-tui"
    place.mkdir(parents=True)
    (place / "clocks").write_text("not a directory")
    run = started(runs, tmp_path, "--max-time", "1", until="clocks not locked")

    end = run.finish()

    assert end.code == 7
    assert run.board.calls == []
    assert "cannot keep a journal of locks" in end.out
    assert "Traceback" not in end.err


def test_a_left_over_lock_that_cannot_be_repaired_is_told_to_the_end(
    runs: list[Run], tmp_path: Path
) -> None:
    """What a dead run left locked: said at once, and under the table and in the JSON."""
    run = Run(tmp_path, "--max-time", "1", lock="")
    runs.append(run)
    run.board.script(**{RESET: NO_RIGHTS})
    undo = ClockUndo(uuid=UUID, kind="nvidia", actions=[["reset-sm"]])
    entry = Entry.of_this_process(NVIDIA, undo, 1410, None)
    with contextlib.closing(LeaseDirectory.open(run.journal)) as directory:
        directory.write(msgspec.structs.replace(entry, pid=4_194_000))

    end = run.start("could not be put back").finish()

    assert "ERROR" in end.out
    assert "could not be put back" in end.out
    assert any(n["level"] == "error" for n in end.data["notices"])

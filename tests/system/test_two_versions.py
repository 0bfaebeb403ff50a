"""`usv-tui ab` with real processes: whatever one version does costs its own rows, by name."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

OLD = """
def work(n):
    return lambda: sum(range(n))

BENCHMARKS = {"good": work(2000), "crash": work(2000), "was": work(500), "loud": work(500)}
"""
NEW = """
import os

calls = 0

def crash():
    global calls
    calls += 1
    if calls > 40:
        os.abort()

def loud():
    os.write(1, b"hello\\n" * 2000 if calls < 40 else b"")

def good():
    return sum(range(3000))

BENCHMARKS = {"good": good, "crash": crash, "is": lambda: sum(range(500)), "loud": loud}
"""


def test_a_version_that_crashes_prints_and_renames_costs_its_own_rows_alone(tmp_path):
    """The others are compared, what is lost is told with its reason, and the exit code is 1."""
    for name, text in (("old.py", OLD), ("new.py", NEW)):
        (tmp_path / name).write_text(text)
    options = [
        "--headless",
        "--launches",
        "2",
        "--launch-time",
        "0.4",
        "--warmup",
        "0.3",
        "--device",
        "cpu",
    ]
    options += ["--save", "s.usv", "--json", "r.json", "--fail-on", "slower>5%"]
    done = subprocess.run(
        [sys.executable, "-m", "usv_tui", "ab", "old.py", "new.py", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    data = json.loads((tmp_path / "r.json").read_text())
    rows = {row["name"]: row for row in data["rows"]}
    assert rows["good @new.py"]["versus"]["ratio"] > 1.2
    assert "SIGABRT" in rows["crash @new.py"]["error"]
    assert rows["was @old.py"]["state"] == rows["is @new.py"]["state"] == "off"
    codes = {(notice["code"], notice["row"]) for notice in data["notices"]}
    assert {("only in one", "was @old.py"), ("only in one", "is @new.py")} <= codes
    assert data["versions"]["done"] == 2
    opened = subprocess.run(
        [sys.executable, "-m", "usv_tui", "export", "s.usv", "--to", "markdown"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "| `good` |" in opened.stdout
    assert "BASE: old.py" in opened.stdout


def test_two_environments_with_different_versions_of_a_library(tmp_path):
    """Each version imports the library of its own interpreter; the file is one and the same."""
    for name, n in (("old", 2000), ("new", 3000)):
        venv.create(tmp_path / name, with_pip=False, symlinks=True)
        (packages,) = (tmp_path / name / "lib").glob("python3*/site-packages")
        (packages / "somelib.py").write_text(f"def f():\n    return sum(range({n}))\n")
        (packages / "rest.pth").write_text("\n".join(path for path in sys.path if path))
    (tmp_path / "b.py").write_text("import somelib\nBENCHMARKS = {'f': somelib.f}\n")
    options = ["--headless", "--launches", "1", "--launch-time", "0.3", "--warmup", "0.2"]
    options += ["--device", "cpu", "--no-save", "--json", "r.json"]
    done = subprocess.run(
        [sys.executable, "-m", "usv_tui", "ab", "old", "new", "b.py", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["versions"]["labels"] == ["old", "new"]
    (row,) = [row for row in data["rows"] if row["name"] == "f @new"]
    assert row["versus"]["ratio"] > 1.25


CARD = """
from usv_tui.sim import kernel

BENCHMARKS = {"one": kernel("one", us=100.0), "two": kernel("two", us=100.0)}
"""
LIMIT_S = 25.0


@contextlib.contextmanager
def compared(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A measuring comparison with a checked out version, on a simulated card that is locked."""
    (folder / "tmp").mkdir()
    project = folder / "project"
    project.mkdir()
    (project / "b.py").write_text(CARD)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
    options = ["--device", "sim:h100:steady", "--headless", "--lock", "1200", "--warmup", "0.2"]
    options += ["--launches", "1", "--launch-time", "1", "--json", str(folder / "r.json")]
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "usv_tui", "ab", "HEAD", "b.py", *options],
            cwd=project,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            stdout=subprocess.DEVNULL,
            stderr=err,
            text=True,
            start_new_session=True,
        )
        try:
            told = folder / "err"
            assert comes(lambda: "* measuring" in told.read_text() or process.poll() is not None)
            assert process.poll() is None, told.read_text()
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def comes(condition) -> bool:
    """True when it comes true within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def workers_of(pid: int) -> list[int]:
    """Its measuring processes, as they were started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                if b"spec_from_file_location" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return sorted(found)


@pytest.mark.parametrize("side", [0, 1])
def test_a_worker_that_is_killed_costs_the_row_that_it_was_in(tmp_path, side):
    """A fresh launch takes its place, the row is named if it was in one, no worktree is left."""
    with compared(tmp_path) as process:
        os.kill(workers_of(process.pid)[side], signal.SIGKILL)
        code = process.wait(LIMIT_S)

    data = json.loads((tmp_path / "r.json").read_text())
    lost = [row["error"] for row in data["rows"] if row["error"]]
    assert code == (1 if lost else 0)
    assert len(lost) <= 1
    assert all("SIGKILL" in error for error in lost)
    assert any(row.get("versus") for row in data["rows"])
    assert data["versions"]["done"] == 1
    assert "fresh worker" in {notice["code"] for notice in data["notices"]}
    assert "given back" in (tmp_path / "err").read_text()
    assert not list((tmp_path / "tmp").glob("usv-tui-ab-*"))


def test_of_a_parent_that_is_killed_nothing_is_left(tmp_path):
    """Its workers end, and the one that watches removes the worktrees."""
    with compared(tmp_path) as process:
        workers = workers_of(process.pid)
        assert list((tmp_path / "tmp").glob("usv-tui-ab-*"))
        process.kill()
        process.wait()
        assert comes(lambda: not list((tmp_path / "tmp").glob("usv-tui-ab-*")))
        assert comes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    listed = subprocess.run(
        ["git", "worktree", "list"],
        cwd=tmp_path / "project",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usv-tui-ab" not in listed.stdout

"""`usv-tui ab` with real processes: whatever one version does costs its own rows, by name."""

import json
import subprocess
import sys
import venv

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

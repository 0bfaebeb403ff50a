"""What is named as a version, and the folder that other versions lie in."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from usv_tui.errors import UsageError
from usv_tui.session import versions
from usv_tui.session.versions import Finder, split
from usv_tui.session.worktrees import PREFIX, Den, clean_up

BENCH = "benchmarks/attn.py"


def git(folder, *arguments):
    """Run git there; what it says."""
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository of two commits: `first` without the benchmark, `v1` and main with it."""
    root = tmp_path_factory.mktemp("project")
    git(root, "init", "-q", "-b", "main")
    (root / "lib.py").write_text("x = 1\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "the library")
    git(root, "tag", "first")
    (root / "benchmarks").mkdir()
    (root / BENCH).write_text("import lib\nBENCHMARKS = {}\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a benchmark")
    git(root, "tag", "v1")
    return root


@pytest.fixture
def den(tmp_path, monkeypatch):
    """A den in a temporary place of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Den()
    yield made
    made.close()


def found(den, folder, *words, base_python="", head_python="", monkeypatch=None):
    """Base and head, as `usv-tui ab` finds them in that folder."""
    monkeypatch.chdir(folder)
    named, file = split(words)
    return Finder(den, file).base_and_head(named, base_python, head_python)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["main", "b.py"], (["main"], "b.py")),
        (["v1", "v2", "b.py"], (["v1", "v2"], "b.py")),
        (["old.py", "new.py"], (["old.py", "new.py"], "")),
        (["main..", "b.py"], (["main", "HEAD"], "b.py")),
        (["main..topic", "b.py"], (["main", "topic"], "b.py")),
        (["..topic", "b.py"], (["HEAD", "topic"], "b.py")),
        (["main...topic", "b.py"], (["main...topic", "topic"], "b.py")),
        (["b.py"], ([], "b.py")),
        (["v1.2", "b.py"], (["v1.2"], "b.py")),
    ],
)
def test_words_are_split_into_versions_and_a_file(words, expected):
    """A range names both; two Python files are the versions themselves."""
    assert split(words) == expected


@pytest.mark.parametrize("words", [["a", "b", "c", "d.py"], ["a..b", "c", "d.py"]])
def test_too_many_versions_are_told(words):
    """Three versions, or a range and another one, are a mistake with a hint."""
    with pytest.raises(UsageError):
        split(words)


def test_the_working_tree_is_compared_with_a_revision(den, project, monkeypatch):
    """One is checked out elsewhere, the other is where it lies; both bring their own modules."""
    base, head = found(den, project, "v1", BENCH, monkeypatch=monkeypatch)
    assert Path(base.path).is_relative_to(den.path)
    assert Path(base.path).read_text() == (project / BENCH).read_text()
    assert base.environment["PYTHONPATH"].startswith(base.root)
    assert head.path == str(project / BENCH)
    assert (base.label, head.label) == ("v1", "working tree")
    assert base.foreign == head.root
    assert base.commit == head.commit
    assert not head.is_dirty


def test_a_dirty_tree_is_allowed_and_said(den, project, monkeypatch):
    """What is in no commit is measured, and the words say how many files that is."""
    lib = project / "lib.py"
    lib.write_text("x = 2\n")
    try:
        base, head = found(den, project, "main", BENCH, monkeypatch=monkeypatch)
    finally:
        lib.write_text("x = 1\n")
    assert head.is_dirty
    assert "1 files changed" in head.what
    assert (Path(base.root) / "lib.py").read_text() == "x = 1\n"


def test_a_revision_without_the_file_runs_that_of_the_working_tree(den, project, monkeypatch):
    """A new benchmark can be tried on old code, and the words say so."""
    base, _ = found(den, project, "first", BENCH, monkeypatch=monkeypatch)
    assert base.path == str(project / BENCH)
    assert "is not in it" in base.what
    assert (Path(base.root) / "lib.py").exists()


def test_files_folders_and_interpreters_are_versions(den, project, tmp_path, monkeypatch):
    """Each kind by itself; a folder's own benchmark file comes before that which is here."""
    copy = tmp_path / "copy"
    (copy / "benchmarks").mkdir(parents=True)
    (copy / BENCH).write_text("BENCHMARKS = {}\n")
    base, head = found(den, project, str(copy), BENCH, monkeypatch=monkeypatch)
    assert base.path == str(copy / BENCH)
    assert head.path == str(project / BENCH)
    one, other = tmp_path / "a.py", tmp_path / "b.py"
    for path in (one, other):
        path.write_text("")
    base, head = found(den, tmp_path, "a.py", "b.py", monkeypatch=monkeypatch)
    assert (base.path, head.path) == (str(one.resolve()), str(other.resolve()))
    venv = tmp_path / "venv-new"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("")
    (venv / "bin" / "python").symlink_to(sys.executable)
    base, head = found(den, project, BENCH, head_python=str(venv), monkeypatch=monkeypatch)
    assert base.python == sys.executable
    assert head.python == str(venv / "bin" / "python")
    assert "venv-new" in head.label


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such", BENCH], "no-such is no revision"),
        ([BENCH], "which version?"),
        (["main"], "which benchmark file?"),
        (["main", "benchmarks/none.py"], "no such file"),
        ([".", BENCH], "same"),
    ],
)
def test_what_is_no_version_is_told_in_one_line(den, project, monkeypatch, words, says):
    """With what there would be."""
    with pytest.raises(UsageError, match=re.escape(says)):
        found(den, project, *words, monkeypatch=monkeypatch)


def test_equal_names_are_told_apart(den, project, monkeypatch):
    """A revision against itself, as for a try of the method, has two labels."""
    base, head = found(den, project, "v1", "v1", BENCH, monkeypatch=monkeypatch)
    assert base.label != head.label


def test_an_environment_without_what_measures_is_told(tmp_path):
    """Before anything is measured, with the package that it lacks."""
    lacking = tmp_path / "python"
    lacking.write_text("#!/bin/sh\necho \"No module named 'msgspec'\" >&2; exit 1\n")
    lacking.chmod(0o755)
    one = versions.Resolved("old", "", "x.py", python=str(lacking))
    with pytest.raises(UsageError, match="msgspec"):
        versions.probe_python(one)


def gone(path, most_s=20.0):
    """It has been removed, within the time."""
    until = time.monotonic() + most_s
    while path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return not path.exists()


def test_worktrees_are_removed_with_their_entry_in_the_repository(project, tmp_path, monkeypatch):
    """After a normal end nothing is left, in the temporary place or in the repository."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    den = Den()
    found(den, project, "v1", BENCH, monkeypatch=monkeypatch)
    assert str(den.path) in git(project, "worktree", "list")
    den.close()
    assert not den.path.exists()
    assert str(den.path) not in git(project, "worktree", "list")


def test_worktrees_are_removed_when_their_owner_is_killed(project, tmp_path):
    """`kill -9`: the process that watches removes them."""
    code = (
        "import sys, os, time\n"
        "from usv_tui.session.versions import Finder\n"
        "from usv_tui.session.worktrees import Den\n"
        f"den = Den(); Finder(den, {BENCH!r}).base_and_head(['v1'], '', '')\n"
        "print(den.path, flush=True); time.sleep(60)\n"
    )
    here = str(Path(versions.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": here},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        den = Path(owner.stdout.readline().strip())
        assert den.is_dir()
        owner.send_signal(signal.SIGKILL)
    assert gone(den)
    assert "usv-tui-ab" not in git(project, "worktree", "list")


def test_what_nobody_removed_goes_at_the_next_start(tmp_path, monkeypatch):
    """A power cut took owner and watcher; a folder whose owner lives stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "owner").write_text("")
    den = Den()
    assert not left.exists()
    clean_up()
    assert den.path.exists()
    den.close()

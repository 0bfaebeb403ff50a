import os
import subprocess

import pytest

from usv_tui import environment
from usv_tui.cli import terminal


def git(folder, *arguments):
    """A git command with an author."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_what_travels_with_the_numbers(monkeypatch):
    """interpreter, packages, CPU and the variables that change timings, none invented."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    found = environment.describe()

    assert found["variables"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "OMP_NUM_THREADS" not in found["variables"]
    assert found["packages"]["numpy"]
    assert found["cpus"] >= 1
    assert all(isinstance(found[key], str) for key in ("python", "system", "machine", "cpu"))


def test_a_dirty_tree_is_told(tmp_path):
    """The commit, and whether what ran is what was committed."""
    git(tmp_path, "init", "-q")
    (tmp_path / "f.py").write_text("x = 1\n")
    git(tmp_path, "add", "f.py")
    git(tmp_path, "commit", "-q", "-m", "one")

    clean = environment.git_state(tmp_path)
    (tmp_path / "f.py").write_text("x = 2\n")
    dirty = environment.git_state(tmp_path)

    assert clean["dirty"] is False
    assert dirty["dirty"] is True
    assert clean["commit"] == dirty["commit"]
    assert len(clean["commit"]) == 40


def test_the_commit_is_that_of_the_benchmark_file(tmp_path, monkeypatch):
    """Neither the current folder's nor that of a repository named in the environment."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "f.py").write_text(f"# {folder.name}\n")
        git(folder, "add", "f.py")
        git(folder, "commit", "-q", "-m", folder.name)
    monkeypatch.chdir(theirs)
    monkeypatch.setenv("GIT_DIR", str(theirs / ".git"))

    found = environment.describe(ours / "f.py")["git"]

    assert found["commit"] == environment.git_state(ours)["commit"]
    assert found["commit"] != environment.git_state(theirs)["commit"]
    assert environment.describe()["git"] is None


@pytest.mark.parametrize("how", ["core.fsmonitor", "filter", "process", "hooks"])
def test_no_program_of_the_repository_is_run(tmp_path, how):
    """Looking at a stranger's repository executes nothing that it names."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitattributes").write_text("*.py filter=evil\n")
    (tmp_path / "f.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    trap, ran = tmp_path / "trap.sh", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    trap.chmod(0o755)
    if how == "hooks":
        for name in ("post-index-change", "pre-commit", "reference-transaction"):
            (tmp_path / ".git" / "hooks" / name).symlink_to(trap)
    else:
        key = {"filter": "filter.evil.clean", "process": "filter.evil.process"}.get(how, how)
        git(tmp_path, "config", key, str(trap))
    (tmp_path / "f.py").write_text("x = 2\n")

    found = environment.git_state(tmp_path)

    assert found["dirty"] is True
    assert not ran.exists()


def test_a_git_that_takes_its_time_is_not_waited_for(tmp_path, monkeypatch):
    """A status that never returns costs about a second, and only the word `dirty`."""
    monkeypatch.setattr(environment, "_GIT_S", 0.2)
    fake = tmp_path / "bin"
    fake.mkdir()
    script = '#!/bin/sh\ncase "$*" in *rev-parse*) echo abc;; *status*) exec sleep 60;; esac\n'
    (fake / "git").write_text(script)
    (fake / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")

    assert environment.git_state(tmp_path) == {"commit": "abc", "dirty": None}


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    """No repository, or no git at all: None, never a made-up state."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.git_state(tmp_path) is None
    monkeypatch.setenv("PATH", "/nowhere")

    assert environment.git_state(tmp_path) is None


def test_without_a_terminal_the_reason_is_told(monkeypatch):
    """A dumb terminal and none at all are told apart."""
    monkeypatch.setenv("TERM", "dumb")
    assert "TERM" in terminal.why_no_screen()
    monkeypatch.setenv("TERM", "xterm-256color")

    def no_terminal(path, flags):
        raise OSError(6, "No such device or address")

    monkeypatch.setattr(terminal.os, "open", no_terminal)

    assert terminal.why_no_screen() == "there is no terminal"


def test_redirected_streams_are_no_screen(monkeypatch):
    """A controlling terminal alone is not enough: something must lead to it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    fd = os.open(os.devnull, os.O_RDWR)
    monkeypatch.setattr(terminal.os, "open", lambda path, flags: fd)
    monkeypatch.setattr(terminal.os, "isatty", lambda n: False)

    assert terminal.why_no_screen() == "stdin, stdout and stderr are all redirected"

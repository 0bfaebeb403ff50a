"""The command line's small helps: what was perhaps meant, a file to start from, a first page."""

import subprocess
import sys

import pytest

from usv_tui.cli import starter
from usv_tui.cli.main import main
from usv_tui.errors import closest


def said(capsys, *argv):
    """The exit code, stdout and stderr."""
    code = main(list(map(str, argv)))
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["exprot", "x.usv"], "did you mean export?"),
        (["bnch.py"], "did you mean bench.py?"),
        (["bench.py", "--max-tme", "3"], "did you mean --max-time?"),
        (["demo", "power-cpa"], "did you mean power-cap?"),
        (["demo", "--card", "h10"], "did you mean h100?"),
        (["demo", "--lok", "1500"], "did you mean --lock?"),
        (["init", "x", "--from", "atn"], "did you mean attn?"),
    ],
)
def test_a_misspelt_word_is_told_what_it_is_like(argv, meant, tmp_path, monkeypatch, capsys):
    """Commands, files, options, scenarios, cards and suites: one line, exit code 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text("BENCHMARKS = {'a': print}")

    code, out, err = said(capsys, *argv)

    assert code == 2
    assert out == ""
    assert meant in err
    assert err.count("\n") == 1


def test_a_word_like_nothing_gets_no_guess():
    """No guess is better than a wild one."""
    assert closest("xyzzy", ["export", "list"]) == ""


def test_a_first_page_names_the_commands_and_the_last_sessions(tmp_path, monkeypatch, capsys):
    """Newest first, none where there are none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert said(capsys)[0] == 0
    main(["demo", "steady", "--headless", "--iters", "3"])
    capsys.readouterr()

    code, out, _ = said(capsys)

    assert code == 0
    assert "usv-tui init" in out
    assert "demo-steady" in out.splitlines()[-1]


def test_a_starter_file_runs_and_is_never_replaced(tmp_path, monkeypatch, capsys):
    """Its rows are listed, its check holds, and a second `init` keeps it."""
    monkeypatch.chdir(tmp_path)
    code, out, _ = said(capsys, "init", "mine")
    assert code == 0
    assert "mine.py" in out
    before = (tmp_path / "mine.py").read_text()

    code, out, _ = said(capsys, "list", "mine.py", "--device", "cpu")
    assert code == 0
    assert "total[kind=builtin]" in out
    assert said(capsys, "init", "mine.py")[0] == 2
    assert (tmp_path / "mine.py").read_text() == before
    done = subprocess.run(
        [sys.executable, "-m", "usv_tui", "mine.py", "--headless", "--iters", "5", "--no-save"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", starter.SHIPPED)
def test_a_shipped_suite_can_be_had(name, tmp_path, monkeypatch, capsys):
    """As it is in the repository."""
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "init", name, "--from", name)[0] == 0
    compile((tmp_path / f"{name}.py").read_text(), name, "exec")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    """With the reason."""
    code, _, err = said(capsys, "init", tmp_path / "none" / "x.py")
    assert code == 2
    assert "cannot write" in err

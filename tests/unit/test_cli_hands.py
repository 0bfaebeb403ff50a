"""The command line's small helps: what was perhaps meant, a file to start from, a first page."""

import shutil
import subprocess
import sys

import pytest

from usv_tui.cli import completion, options, replay, starter
from usv_tui.cli.main import main
from usv_tui.errors import closest
from usv_tui.suite.discovery import load_suite


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


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["bench.py", "--timer", "trch"], "did you mean torch?"),
        (["completion", "bsh"], "did you mean bash?"),
        (["open", "runn.usv"], "did you mean run.usv?"),
        (["bench.py", "run.py"], "run.py: no such file"),
        (["run"], "run what?"),
        (["empty"], "no Python file with benchmarks"),
    ],
)
def test_values_sessions_and_folders_are_named_when_they_are_wrong(
    argv, meant, tmp_path, monkeypatch, capsys
):
    """One line that says what was perhaps meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text("BENCHMARKS = {'a': print}")
    (tmp_path / "run.usv").write_bytes(b"")
    (tmp_path / "empty").mkdir()

    code, _, err = said(capsys, *argv)

    assert code == 2
    assert meant in err
    assert err.count("\n") == 1


def test_several_files_and_a_folder_are_one_suite(tmp_path, monkeypatch, capsys):
    """Names that two files share have the file's before them; what has none is left out, aloud."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    for name in ("one", "two"):
        (tmp_path / "more" / f"{name}.py").write_text(
            f"BENCHMARKS = {{'same': print, 'only_{name}': print}}"
        )
    (tmp_path / "more" / "other.py").write_text("x = 1")

    code, out, err = said(capsys, "list", "more", "more/one.py", "--device", "cpu")

    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names[:4] == ["one:same", "only_one", "two:same", "only_two"]
    assert "left out of more: other.py" in err


def test_rows_of_several_files_are_compared_within_their_own(tmp_path):
    """Two files' dictionaries are two groups; a pattern chooses from both."""
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("BENCHMARKS = {'x': print, 'y': print}")

    suite = load_suite(files, "cpu", ["x"])

    assert [row.name for row in suite.benchmarks] == ["a:x", "b:x"]
    assert len({row.group for row in suite.benchmarks}) == 2


def test_the_verbs_are_what_they_say():
    """`run` and nothing are one; `open` and `show` are one."""
    assert options.split_command(["run", "x.py"]) == ("run", ["x.py"])
    assert replay.parser("open").parse_args(["a.usv"]) == replay.parser("show").parse_args(
        ["a.usv"]
    )


def test_a_shipped_suites_name_is_enough(tmp_path, monkeypatch, capsys):
    """`init attn` is that suite, not a starter that is named so."""
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "init", "attn")[0] == 0
    assert "def total" not in (tmp_path / "attn.py").read_text()


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_is_told_every_command_option_and_value(shell):
    """And accepts the script, where it is installed."""
    text = completion.script(shell)

    for word in (*options.COMMANDS, "power-cap", "stale-result", "json-lines", "max-time"):
        assert word in text
    if shutil.which(shell):
        done = subprocess.run(
            [shell, "-n"], input=text, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("usv-tui comp", "compare completion"),
        ("usv-tui demo power-c", "power-cap"),
        ("usv-tui x.py --timer t", "torch"),
        ("usv-tui export x.usv --to cs", "csv"),
        ("usv-tui x.py --max-", "--max-time"),
    ],
)
def test_bash_completes_words(words, found, tmp_path):
    """Asked as the shell asks."""
    ask = (
        f"{completion.script('bash')}\nCOMP_WORDS=({words}); "
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _usv_tui; echo ${COMPREPLY[*]}"
    )
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == found.split()

"""Runs of the whole program without a screen, to their end."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.program import QUICK, Program, differences, finish, measured, samples
from tests.fakes.suites import HEAD, TWO

TABLE_HEAD = "benchmark"


@pytest.fixture
def program(tmp_path):
    """The program in an empty folder."""
    return Program(tmp_path)


def names(text):
    """The first words of the table's lines."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def test_the_table_is_on_stdout_and_the_story_on_stderr(program):
    """Exit 0; every row in the table; phases, progress and the saved file on stderr."""
    file = program.write(TWO)

    done = program.run(file, "--headless", *QUICK, "--iters", "60")

    assert done.code == 0
    assert done.complaints == []
    assert names(done.out)[0] == TABLE_HEAD
    assert {"good", "total[n=3000]", "total[n=6000]"} <= set(names(done.out))
    assert "measuring" not in done.out
    assert "\x1b" not in done.out + done.err
    for word in ("priming", "warming", "measuring", "ended 60 samples a row"):
        assert any(f"* {word}" in line for line in done.err.splitlines())
    assert f"session saved: {program.sessions()[0]}" in done.err


def test_json_on_stdout_is_the_only_thing_there(program):
    """`--json -` gives one JSON document, with exactly the samples asked for."""
    file = program.write(TWO)

    done = program.run(file, "--headless", *QUICK, "--iters", "60", "--json", "-")

    data = json.loads(done.out, parse_constant=pytest.fail)
    assert done.code == 0
    assert [row["name"] for row in data["rows"]] == ["good", "total[n=3000]", "total[n=6000]"]
    assert measured(data) == [60, 60, 60]
    assert data["complete"]
    assert data["reason"] == "60 samples a row"
    assert (data["timer"], data["config"]["device"]) == ("wall", "cpu")
    assert data["rows"][2]["baseline_name"] == "total[n=3000]"
    assert data["rows"][1]["flops"] == 3000


def test_what_is_exported_later_is_what_the_run_gave(program):
    """The session on disk holds the run: rows, samples and statistics are the same."""
    file = program.write(TWO)
    done = program.run(file, "--headless", *QUICK, "--iters", "400", "--json", "-")

    live, later = json.loads(done.out), program.export()

    assert differences(live, later) == []
    for data in (live, later):
        ratio = data["rows"][2]["ratio"]
        assert ratio["n"] > 380
        assert ratio["answer"] == "slower"
        assert 1.5 < ratio["ratio"] < 2.5
    for key in ("config", "environment", "reason", "complete", "telemetry", "gaps", "epochs"):
        assert live[key] == later[key]


def test_files_are_written_beside_the_table(program):
    """`--json FILE --csv FILE`: both agree with each other and with the table's counts."""
    file = program.write(TWO)

    done = program.run(
        file, "--headless", *QUICK, "--iters", "60", "--json", "a.json", "--csv", "a.csv"
    )

    data = json.loads((program.folder / "a.json").read_text())
    lines = list(csv.DictReader(io.StringIO((program.folder / "a.csv").read_text())))
    assert done.code == 0
    assert names(done.out)[0] == TABLE_HEAD
    assert len(lines) == sum(samples(data, row["name"]) for row in data["rows"])
    [good] = [line.split() for line in done.out.splitlines() if line.startswith("good ")]
    assert good[1] == str(data["rows"][0]["statistics"]["n"])


def test_a_session_can_be_exported_in_every_form(program):
    """`export --to` gives JSON, CSV, the table and Markdown of a finished session."""
    file = program.write(TWO)
    run = program.run(file, "--headless", *QUICK, "--iters", "60", "--save", "my.usv")
    assert run.code == 0

    out = {
        kind: program.run("export", "my.usv", "--to", kind)
        for kind in ("json", "csv", "table", "markdown")
    }

    assert {done.code for done in out.values()} == {0}
    assert json.loads(out["json"].out)["complete"]
    assert out["csv"].out.startswith("name,round,t_s,seconds,")
    assert out["table"].out == run.out
    assert out["markdown"].out.lstrip().startswith("|")
    assert program.run("export", "my.usv", "-o", "x.json").code == 0
    assert (program.folder / "x.json").read_text() == out["json"].out


def test_rows_can_be_selected(program):
    """`-k` times only what matches."""
    file = program.write(TWO)

    done = program.run(file, "--headless", *QUICK, "--iters", "20", "-k", "n=6000", "--json", "-")

    assert [row["name"] for row in json.loads(done.out)["rows"]] == ["total[n=6000]"]


def test_user_output_is_narrated_and_never_data(program):
    """Prints, raw writes, children and import-time output are on stderr, marked, once."""
    source = f"""{HEAD}
print("at import")

@benchmark
def chatty():
    print("in set-up")
    os.write(1, b"fd 1\\n")
    os.write(2, b"fd 2\\n")
    os.system("echo from the shell")
    sys.stderr.write("to stderr\\n")
    return lambda: None
"""
    file = program.write(source)

    done = program.run(file, "--headless", *QUICK, "--iters", "20", "--json", "-")

    json.loads(done.out)
    told = [line.partition("| ")[2] for line in done.err.splitlines() if "] | " in line]
    assert told == ["at import", "in set-up", "fd 1", "fd 2", "from the shell", "to stderr"]
    log = program.sessions()[0].with_suffix(".log")
    assert log.read_text().splitlines() == told


def test_nothing_is_left_behind_without_saving(program):
    """`--no-save` writes no session and leaves no empty log."""
    file = program.write(TWO)

    done = program.run(file, "--headless", *QUICK, "--iters", "20", "--no-save")

    assert done.code == 0
    assert "session saved" not in done.err
    assert not list(program.folder.glob("*.log"))
    assert not list(program.folder.glob("**/*.usv"))


def test_a_process_of_its_own_gives_the_same_rows(program):
    """`--isolate`: the same loop in a child process, the same records, the same table."""
    file = program.write(TWO)

    done = program.run(file, "--headless", *QUICK, "--iters", "60", "--isolate", "--json", "-")

    data = json.loads(done.out)
    assert done.code == 0
    assert measured(data) == [60, 60, 60]
    assert data["complete"]


def test_the_benchmark_files_output_is_kept_when_isolated(program):
    """What a child process of ours prints is narrated as well."""
    file = program.write(HEAD + 'print("at import", flush=True)\nos.write(2, b"raw\\n")\n')

    done = program.run(file, "--headless", *QUICK, "--iters", "20", "--isolate")

    assert "| at import" in done.err
    assert "| raw" in done.err


# -- without a terminal


def test_without_any_terminal_it_runs_headless_by_itself(program):
    """Nothing is a terminal: one line says why, the table is on stdout, and it ends."""
    file = program.write(TWO)

    done = program.run(file, *QUICK, "--iters", "30")

    assert done.code == 0
    [line] = done.complaints
    assert "running headless" in line
    assert names(done.out)[0] == TABLE_HEAD
    assert "\x1b" not in done.out + done.err


def test_with_every_stream_closed_or_nowhere_it_still_ends(program):
    """Stdin, stdout and stderr at /dev/null: it measures, saves and exits."""
    file = program.write(TWO)
    null = subprocess.DEVNULL

    done = program.run(file, *QUICK, "--iters", "30", stdout=null, stderr=null)

    assert done.code == 0
    assert program.export()["complete"]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cost_neither_the_run_nor_the_file(program, closed):
    """A closed descriptor is not reused for the session: the file reads, the exit code is 0."""
    file = program.write(HEAD + 'print("hello")\n')
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *_command(file, "--iters", "30")],
        cwd=program.folder,
        env=program.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )

    done = finish(process)

    assert done.code == 0
    assert samples(program.export(), "good") >= 30
    assert "hello" in program.sessions()[0].with_suffix(".log").read_text()
    assert names(done.out)[:1] == ([TABLE_HEAD] if closed == "2>&-" else [])


def _command(file, *arguments):
    return [sys.executable, "-m", "usv_tui", file, "--headless", *QUICK, *arguments]


@pytest.mark.slow
def test_without_a_limit_it_stops_by_itself(program):
    """Finite by default: nobody is there to quit, so it ends after ten seconds."""
    file = program.write(TWO)

    done = program.run(file, *QUICK)

    assert done.code == 0
    assert "* ended max time 10 s" in done.err


def test_a_reader_that_leaves_is_no_error(program):
    """`usv-tui FILE | head -1`: no traceback, and the session is whole."""
    file = program.write(TWO)
    read, write = os.pipe()
    process = program.start(file, "--headless", *QUICK, "--iters", "30", stdout=write)
    os.close(write)
    os.close(read)

    done = finish(process)

    assert done.code == 0
    assert "Traceback" not in done.err
    assert "session saved" in done.err
    assert program.export()["complete"]


def test_a_full_stdout_is_one_clear_line(program):
    """`> /dev/full`: the line says so, the exit code tells, and the session is saved."""
    file = program.write(TWO)
    with Path("/dev/full").open("w") as full:
        done = program.run(file, "--headless", *QUICK, "--iters", "30", stdout=full)

    assert done.code == 2
    assert done.complaints == ["usv-tui: cannot write to stdout: No space left on device"]
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err
    assert program.export()["complete"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stdout_that_knows_few_characters_gets_question_marks(program, encoding):
    """A locale without the table's characters is no reason for a traceback."""
    file = program.write(TWO.replace("def good", "def größe"))
    program.environment |= {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}

    done = program.run(file, "--headless", *QUICK, "--iters", "30", encoding=encoding)

    assert done.code == 0
    assert "Traceback" not in done.err
    assert TABLE_HEAD in done.out
    assert "gr??e" in done.out or "größe" in done.out


def test_a_file_name_that_is_no_text_works(program):
    """A benchmark file whose name holds a byte that is no UTF-8 is timed and saved."""
    name = os.fsdecode(b"b\xff.py")
    program.write(TWO, name)

    done = program.run(name, "--headless", *QUICK, "--iters", "30", "--json", "out.json")

    assert done.code == 0
    assert "Traceback" not in done.err
    assert json.loads((program.folder / "out.json").read_text())["complete"]


def test_odd_parameters_do_not_spoil_the_session(program):
    """A huge integer, an infinity and half a character as parameters: measured, saved, exported."""
    source = f"""{HEAD}
@benchmark(params={{"x": [2**70, float("inf"), float("nan"), "half \\udc80"]}})
def odd(x):
    return lambda: None
"""
    file = program.write(source)

    done = program.run(file, "--headless", *QUICK, "--iters", "20", "--json", "-")

    data = json.loads(done.out, parse_constant=pytest.fail)
    assert done.code == 0
    assert "Traceback" not in done.err
    assert len(data["rows"]) == 5
    assert len(program.export()["rows"]) == 5


def test_the_list_of_what_would_be_timed(program):
    """`usv-tui list FILE` prints the rows, and what is skipped with its reason."""
    source = (
        TWO
        + """
@benchmark(skip="needs two GPUs")
def later():
    return lambda: None
"""
    )
    done = program.run("list", program.write(source), "--device", "cpu")

    assert done.code == 0
    assert names(done.out)[:3] == ["good", "total[n=3000]", "total[n=6000]"]
    assert "needs two GPUs" in done.out + done.err


def test_the_version(program):
    """`usv-tui --version` tells it, on stdout, at once."""
    done = program.run("--version")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("usv-tui 0.")

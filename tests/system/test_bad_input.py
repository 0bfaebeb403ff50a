"""What a user gets wrong: each one clear line on stderr, its exit code, and no traceback."""

import resource

import pytest

from tests.fakes.program import QUICK, Program
from tests.fakes.suites import HEAD, TWO

CPU = ("--headless", "--device", "cpu", "--iters", "5", "--warmup", "0")


@pytest.fixture
def program(tmp_path):
    """The program in a folder with a good file, and something of every bad kind."""
    program = Program(tmp_path)
    program.write(TWO, "good.py")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x00\x01\x02")
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "text.txt").write_text("not a session")
    return program


def complaint(done, code):
    """The one line, after checking that it is one and that nothing else went wrong."""
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    [line] = done.complaints
    return line


IMPORT = "from usv_tui import benchmark\n"
SOURCES = {
    "empty": ("", "no benchmarks"),
    "only functions": ("def f(n):\n    return n\n", "no benchmarks"),
    "syntax": ("def f(:\n    pass\n", "file.py:1: "),
    "indentation": ("if True:\nx = 1\n", "file.py:2: "),
    "import": ("import surely_not_installed\n", "file.py:1: ModuleNotFoundError"),
    "raises": ("x = 1\nraise ValueError('one\\ntwo')\n", "file.py:2: ValueError: one"),
    "exits": ("import sys\nsys.exit(3)\n", "exit while it was imported"),
    "no values": (
        IMPORT + "@benchmark(params={'n': []})\ndef f(n):\n    return f\n",
        "parameter 'n' has no values",
    ),
    "baseline": (
        IMPORT + "@benchmark(params={'n': [1]}, baseline={'n': 7})\ndef f(n):\n    return f\n",
        "matches no row",
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_bad_file_is_one_clear_line(program, kind, isolate):
    """Whatever is wrong with a benchmark file: exit 2, and a line that says where and what."""
    source, words = SOURCES[kind]
    file = program.write(source)

    line = complaint(program.run(file, *CPU, *isolate), 2)

    assert words in line
    assert "file.py" in line


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("missing.py", "missing.py: no such file"),
        ("folder.py", "folder.py has no Python file with benchmarks"),
        ("binary.py", "binary.py"),
        ("latin.py", "latin.py"),
        ("", "no such file"),
    ],
)
@pytest.mark.parametrize("command", [(), ("list",)], ids=["run", "list"])
def test_a_file_that_is_none_is_one_clear_line(program, file, words, command):
    """A missing file, a directory and bytes that are no Python: exit 2, at once."""
    options = CPU if not command else ("--device", "cpu")

    assert words in complaint(program.run(*command, file, *options), 2)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--device", "cuda"), 3, "--device cuda: torch "),
        (("--device", "cuda:7"), 3, "--device cuda:7: torch "),
        (("--device", "banana"), 2, "--device banana: no such device"),
        (("--device", "cuda:x"), 2, "--device cuda:x: no such device"),
        (("--timer", "torch"), 3, "--timer torch needs a GPU"),
        (("-k", "nothing"), 2, "no benchmark of good.py matches 'nothing' (it has good, total"),
        (("--pace", "nonsense"), 2, "--pace nonsense: no such pace (steady, burst:"),
        (("--pace", "burst:5"), 2, "--pace burst:5: no such pace"),
        (("--pace", "burst:0,5"), 2, "--pace burst:0,5: no such pace"),
        (("--json", "gone/out.json"), 2, "cannot write gone/out.json: there is no directory gone"),
        (("--csv", "folder.py"), 2, "cannot write folder.py"),
        (("--json", "-", "--csv", "-"), 2, "both want stdout"),
        (("--save", "good.py"), 2, "good.py exists already (sessions are never overwritten"),
        (("--save", "text.txt/x.usv"), 2, "cannot write text.txt/x.usv"),
        (("--save", "/proc/nowhere/x.usv"), 2, "cannot write /proc/nowhere/x.usv"),
        (("--iters", "0"), 2, "--iters: 0 is not a whole number above 0"),
        (("--until", "soon"), 2, "--until: not a target: 'soon'"),
        (("--fast",), 2, "unrecognized arguments: --fast"),
    ],
)
def test_a_bad_option_is_one_clear_line(program, arguments, code, words):
    """Device, selection, pace, paths and numbers: the line names the option and its value."""
    assert words in complaint(program.run("good.py", *CPU, *arguments), code)


def test_options_without_a_file_say_what_is_wanted(program):
    """A file, or the demo."""
    assert complaint(program.run("--headless"), 2) == (
        "usv-tui: which benchmark file? (usv-tui FILE, or usv-tui demo)"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.usv",), "cannot read missing.usv: No such file"),
        (("folder.py",), "cannot read folder.py: Is a directory"),
        (("text.txt",), "text.txt is not a usv-tui session"),
        (("good.py", "--to", "xml"), "invalid choice: 'xml'"),
        ((), "the following arguments are required: session"),
    ],
)
def test_a_bad_export_is_one_clear_line(program, arguments, words):
    """What is not a session is named as such; nothing reaches stdout."""
    assert words in complaint(program.run("export", *arguments), 2)


def test_an_export_to_nowhere_is_one_clear_line(program):
    """The target's directory must exist, for every form."""
    program.run("good.py", *CPU, "--save", "ok.usv")

    for form in ("json", "csv", "table"):
        done = program.run("export", "ok.usv", "--to", form, "-o", "gone/out")
        assert "cannot write gone/out: " in complaint(done, 2)


def test_a_disk_that_fills_up_does_not_end_the_run(program):
    """The session file may grow to 16 kB: one line says so, and the table is whole."""

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))

    # Compiled modules that were cut at the limit would be read by every run after this one.
    program.environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = program.run("good.py", "--headless", *QUICK, "--iters", "2000", preexec_fn=small_files)

    [line] = done.complaints
    assert line.startswith("usv-tui: the session is no longer saved to ")
    assert line.endswith(": File too large")
    assert done.code == 2
    assert "total[n=6000]" in done.out
    assert "Traceback" not in done.err
    assert not program.export()["complete"]


def test_an_unwritable_state_directory_is_a_warning(program):
    """The default place is not the user's choice: the run goes on, and says what is not saved."""
    (program.folder / "state").write_text("in the way")

    done = program.run("good.py", *CPU)

    assert done.code == 0
    assert "this session is not saved: cannot write" in done.err
    assert "good" in done.out
    assert "Traceback" not in done.err


def test_a_wrong_baseline_ends_the_run_with_the_names(program):
    """A row that does not exist cannot be the baseline: exit 2, and the rows there are."""
    done = program.run("good.py", *CPU, "--baseline", "nothing")

    assert done.code == 2
    assert (
        "--baseline nothing: no such row (there is good, total[n=3000], total[n=6000])" in done.err
    )


def test_a_row_that_only_skips_is_said(program):
    """A file whose every row is skipped here has nothing to time: exit 2 with the reasons."""
    file = program.write(
        "from usv_tui import benchmark\n@benchmark(skip='needs two GPUs')\ndef f():\n    return f\n"
    )

    line = complaint(program.run(file, *CPU), 2)

    assert "needs two GPUs" in line


def test_a_file_that_shadows_a_library_module_is_timed(program):
    """A benchmark file named like a module of the standard library is the one that is loaded."""
    file = program.write(HEAD, "statistics.py")

    done = program.run(file, *CPU)

    assert done.code == 0
    assert "good" in done.out

import io
import os
import subprocess
import sys
import textwrap

import pytest

from usv_tui.session.capture import MAX_LINE, OutputCapture, clean_line


@pytest.fixture
def capture(tmp_path):
    """A capture that is undone whatever happens.

    The tests start it: pytest points descriptors 1 and 2 anew between a fixture and its test.
    """
    capture = OutputCapture(tmp_path / "logs" / "run.log")
    yield capture
    capture.stop()


def run(code, *, redirect=""):
    """Run a script with a capture in a process of its own; (its stdout, its stderr, the log)."""
    head = """
        import logging, os, subprocess, sys
        from pathlib import Path
        from usv_tui.session.capture import OutputCapture
        log = Path(sys.argv[1])
        capture = OutputCapture(log)
    """
    script = textwrap.dedent(head) + textwrap.dedent(code)
    command = f'exec "$0" -c "$1" "$2" {redirect}'

    def go(log):
        return subprocess.run(
            ["sh", "-c", command, sys.executable, script, str(log)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return go


# -- one line


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("windows\r", "windows"),
        (" 10 %\r 55 %\r100 %", "100 %"),
        (" 10 %\r 55 %\r", " 55 %"),
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;200mpink\x1b[m", "red and pink"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[H\x1b[?1049hscreen", "screen"),
        ("a\tb", "a   b"),
        ("bell\x07 and\x08 back", "bell and back"),
        ("[bold]matmul[N=512][/bold]", "[bold]matmul[N=512][/bold]"),
        ("trailing   ", "trailing"),
        ("日本 µs", "日本 µs"),
    ],
)
def test_a_line_is_what_a_terminal_would_show(raw, shown):
    """Escapes and control characters never reach the screen, progress bars fold to the last."""
    assert clean_line(raw) == shown


def test_a_very_long_line_is_cut():
    """A megabyte on one line shows its beginning and an ellipsis."""
    line = clean_line("x" * 1_000_000)

    assert len(line) == MAX_LINE
    assert line.endswith("…")


# -- what is caught


def test_prints_become_lines(capture):
    """What user code prints is in the log once its line is complete."""
    capture.start()
    print("hello")
    print("wor", end="")
    sys.stdout.flush()
    assert capture.tail() == ["hello"]

    print("ld")

    assert capture.tail() == ["world"]
    assert capture.tail() == []


def test_writes_below_python_are_caught(capture):
    """Descriptors 1 and 2, a child process and a C library's printf all go to the log."""
    capture.start()
    os.write(1, b"fd 1\n")
    os.write(2, b"fd 2\n")
    subprocess.run(["echo", "child"], check=True)
    subprocess.run(["sh", "-c", "echo child error >&2"], check=True)

    assert capture.tail() == ["fd 1", "fd 2", "child", "child error"]


def test_streams_that_were_saved_before_are_caught(tmp_path):
    """A logging handler made before, and a saved `sys.stdout`, write to the log as well."""
    done = run("""
        handler = logging.StreamHandler()
        saved = sys.stdout
        capture.start()
        logging.getLogger().addHandler(handler)
        logging.warning("from the handler")
        print("from the saved stream", file=saved, flush=True)
        os.system("echo from the shell")
        print("from print")
        lines = capture.tail()
        rest = capture.stop()
        print(lines, rest)
    """)(tmp_path / "log")

    assert done.stderr == ""
    assert done.stdout == (
        "['from the handler', 'from the saved stream', 'from the shell', 'from print'] []\n"
    )


def test_afterwards_everything_is_as_before(tmp_path):
    """The session over, prints, handlers and children reach the terminal again."""
    done = run("""
        before = sys.stdout, sys.stderr
        capture.start()
        print("inside")
        late = capture.stop()
        assert (sys.stdout, sys.stderr) == before
        print("outside", late)
        os.system("echo child outside")
        print("error outside", file=sys.stderr)
    """)(tmp_path / "log")

    assert done.stdout == "outside ['inside']\nchild outside\n"
    assert done.stderr == "error outside\n"


def test_the_real_streams_can_still_be_written_to(tmp_path):
    """While user code writes to the log, the program itself speaks to the caller's streams."""
    done = run("""
        capture.start()
        print("user")
        os.write(capture.real_stdout, b"data\\n")
        os.write(capture.real_stderr, b"narration\\n")
        capture.stop()
    """)(tmp_path / "log")

    assert (done.stdout, done.stderr) == ("data\n", "narration\n")


def test_a_child_that_outlives_the_session_keeps_none_of_our_descriptors(tmp_path):
    """A program that a benchmark starts inherits the log as its output, and nothing else."""
    done = run("""
        capture.start()
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        subprocess.run([sys.executable, "-c", code], close_fds=False)
        print(capture.stop())
    """)(tmp_path / "log")

    assert "'0', '1', '2', '3'" in done.stdout
    assert "'4'" not in done.stdout


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-", "2>&-"])
def test_closed_streams_are_no_obstacle(tmp_path, closed):
    """Started with stdout or stderr closed, user code's output is still in the log."""
    log = tmp_path / "log"
    run(
        """
        capture.start()
        print("printed")
        os.write(1, b"fd 1\\n")
        os.write(2, b"fd 2\\n")
        lines = capture.tail()
        capture.stop()
        Path(sys.argv[1] + ".lines").write_text(repr(lines))
        """,
        redirect=closed,
    )(log)

    assert (tmp_path / "log.lines").read_text() == "['printed', 'fd 1', 'fd 2']"


# -- the stand-ins


def test_the_stand_ins_are_real_streams(capture):
    """`fileno`, `isatty`, `encoding` and `flush` work as code in the field expects."""
    capture.start()
    assert (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    assert not sys.stdout.isatty()
    assert not sys.stderr.isatty()
    assert sys.stdout.encoding == "utf-8"
    assert isinstance(sys.stdout, io.TextIOBase)
    sys.stdout.flush()
    subprocess.run(["sh", "-c", "echo to stderr >&2"], stderr=sys.stderr, check=True)
    sys.stdout.buffer.write(b"bytes\n")
    sys.stdout.buffer.flush()

    assert capture.tail() == ["to stderr", "bytes"]


def test_text_that_is_not_unicode_is_no_error(capture):
    """Half a character printed, or raw bytes written, become replacement characters."""
    capture.start()
    print("half \udc80 character")
    os.write(1, b"raw \xff byte\n")

    assert capture.tail() == ["half ? character", "raw \N{REPLACEMENT CHARACTER} byte"]


def test_an_interleaved_progress_bar_is_one_line(capture):
    """Carriage returns in several writes fold to the last state of the bar."""
    capture.start()
    for percent in range(0, 101, 20):
        print(f"\r{percent:3d} %", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    assert capture.tail() == ["100 %"]


# -- a lot of it


def test_what_is_not_taken_yet_comes_at_the_end(tmp_path):
    """Stopping gives the lines that nobody has taken, an unfinished one too."""
    capture = OutputCapture(tmp_path / "log")
    capture.start()
    print("first")
    print("second")
    print("half", end="")

    assert capture.stop() == ["first", "second", "half"]
    assert capture.stop() == []


def test_blank_lines_do_not_end_the_reading(tmp_path):
    """Pages of nothing before the last word do not hide it."""
    capture = OutputCapture(tmp_path / "log")
    capture.start()
    os.write(1, b"\n" * 900_000 + b"the last word\n")

    assert capture.stop()[-1] == "the last word"


def test_a_flood_is_bounded_and_kept_in_the_file(tmp_path):
    """Of ten megabytes the log shows a bounded part, says what it left out, and ends right."""
    path = tmp_path / "log"
    capture = OutputCapture(path)
    capture.start()
    line = b"0123456789abcdef" * 6 + b"end\n"
    for _ in range(100):
        os.write(1, line * 1000)
    first = capture.tail()
    os.write(1, b"the last word\n")
    rest = capture.stop()

    assert len(b"\n".join(text.encode() for text in first)) <= 1 << 17
    assert rest[-1] == "the last word"
    assert sum(map(len, rest)) < 3 << 20
    assert any("more in" in text and str(path) in text for text in [*first, *rest])
    assert path.stat().st_size == 100 * 1000 * len(line) + len(b"the last word\n")


def test_a_line_without_an_end_is_shown_in_pieces(tmp_path):
    """Half a megabyte without a newline is neither waited for nor held in memory for ever."""
    capture = OutputCapture(tmp_path / "log")
    capture.start()
    os.write(1, b"x" * 500_000)

    lines = [line for _ in range(12) for line in capture.tail()]

    assert lines
    assert {len(line) for line in lines} == {MAX_LINE}
    capture.stop()


# -- the file


def test_a_silent_session_leaves_no_file(tmp_path):
    """When nothing was written there is no empty log lying about."""
    capture = OutputCapture(tmp_path / "log")
    capture.start()
    capture.stop()

    assert not (tmp_path / "log").exists()


def test_a_log_that_cannot_be_made_leaves_the_streams_alone(tmp_path):
    """Where the file cannot be made the error comes before anything is redirected."""
    (tmp_path / "file").write_text("")
    capture = OutputCapture(tmp_path / "file" / "log")
    before = (os.fstat(1), os.fstat(2), sys.stdout)

    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        capture.start()

    assert (os.fstat(1), os.fstat(2), sys.stdout) == before
    assert capture.tail() == []
    assert capture.stop() == []


@pytest.mark.parametrize("kind", ["file", "symlink", "dangling", "fifo", "directory"])
def test_what_is_there_already_is_left_alone(tmp_path, kind):
    """A file, link, pipe or folder of the log's name is somebody else's: the log takes another."""
    path, other = tmp_path / "run.log", tmp_path / "other"
    if kind == "file":
        path.write_text("before")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(other)
        if kind == "symlink":
            other.write_text("before")
    capture = OutputCapture(path)
    capture.start()
    print("new")

    assert capture.stop() == ["new"]
    assert capture.path == tmp_path / "run.2.log"
    assert capture.path.read_text() == "new\n"
    assert capture.path.stat().st_mode & 0o777 == 0o600
    assert path.is_symlink() or path.exists()
    assert not other.exists() or other.read_text() == "before"


# -- nothing to read


def test_there_is_no_keyboard(tmp_path):
    """`input` says so, whoever reads on is at the end, and afterwards stdin is the caller's."""
    done = run(
        """
        capture.start()
        said = []
        try:
            input("name? ")
        except EOFError as error:
            said.append(str(error))
        said += [os.read(0, 10), sys.stdin.read(), list(sys.stdin), sys.stdin.isatty()]
        said.append(subprocess.run(["cat"], capture_output=True).stdout)
        capture.stop()
        print(said, input())
        """,
        redirect=f"< {_lines(tmp_path)}",
    )(tmp_path / "log")

    assert done.stderr == ""
    assert done.stdout == (
        "['it read from the keyboard: benchmarks have no stdin', b'', '', [], False, b''] typed\n"
    )


def _lines(folder):
    path = folder / "typed.txt"
    path.write_text("typed\n")
    return path

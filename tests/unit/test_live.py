import io
import os
import threading

import pytest

from tests.fakes.program import wait_until
from usv_tui.gate import Gate
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import Command, Fault, Progress, Samples
from usv_tui.session.live import ChildSource, ThreadSource, read_frame, write_frame
from usv_tui.session.relay import Relay


def request(path, **config):
    """A short request for the CPU."""
    config = RunConfig(**({"warmup_max_s": 0.0, "inner": 1} | config))
    return WorkRequest(path=str(path), device="cpu", config=config)


def isolated(path, **config):
    """A source that measures in processes of its own."""

    def make(asked):
        return ChildSource(asked, log_fd=os.open(os.devnull, os.O_WRONLY))

    return Relay(make, request(path, **config), is_process=True)


@pytest.fixture
def quick(tmp_path):
    """A file with one quick row."""
    path = tmp_path / "quick.py"
    path.write_text("BENCHMARKS = {'f': lambda: sum(range(5_000))}\n")
    return path


@pytest.fixture
def hanging(tmp_path):
    """A file whose row hangs in its 501st call, until the test is over."""
    path = tmp_path / "hanging.py"
    path.write_text(
        "import itertools, pathlib, time\n"
        "count = itertools.count()\n"
        "def f():\n"
        "    sum(range(5_000))\n"
        "    if next(count) == 500:\n"
        "        marker = pathlib.Path(__file__).with_suffix('.hangs')\n"
        "        marker.touch()\n"
        "        while marker.exists():\n"
        "            time.sleep(0.02)\n"
        "BENCHMARKS = {'f': f}\n"
    )
    yield path
    path.with_suffix(".hangs").unlink(missing_ok=True)
    for thread in threading.enumerate():
        if thread.name == "usv-worker":
            thread.join(20)  # it leaves the garbage collector as it found it


@pytest.fixture(params=["thread", "process"])
def open_source(request):
    """Either carrier of the loop."""

    def open_source(asked):
        if request.param == "thread":
            return ThreadSource(asked, Gate())
        return ChildSource(asked, log_fd=os.open(os.devnull, os.O_WRONLY))

    return open_source


def all_of(source, into):
    """Take everything new in; what there is so far."""
    into.extend(source.drain())
    return into


def count(records):
    """How many samples there are."""
    return sum(len(r.bench) for r in records if isinstance(r, Samples))


def ended(records):
    """True when the loop has said its last word."""
    return any(isinstance(r, Progress) and r.phase == "ended" for r in records)


def test_both_carriers_bring_the_same_records(quick, open_source):
    """In a thread or in a process: the same kinds of records in order, up to the reason."""
    source = open_source(request(quick, iters=20))
    records = []

    source.start()
    wait_until(lambda: ended(all_of(source, records)))

    assert count(records) == 20
    phases = [r.phase for r in records if isinstance(r, Progress)]
    assert list(dict.fromkeys(phases)) == ["importing", "priming", "measuring", "ended"]
    assert source.close(5) is True


def test_commands_reach_the_loop(quick, open_source):
    """A pause stops the samples and a resume brings them back."""
    source = open_source(request(quick))
    records = []
    source.start()
    wait_until(lambda: any(isinstance(r, Samples) for r in all_of(source, records)))

    source.command(Command("pause"))
    wait_until(
        lambda: "paused" in [r.phase for r in all_of(source, records) if type(r) is Progress]
    )
    before = len(records)
    source.command(Command("resume"))
    wait_until(lambda: any(isinstance(r, Samples) for r in all_of(source, records)[before:]))

    assert source.close(5) is True
    all_of(source, records)
    assert ended(records)
    assert not any(isinstance(r, Fault) for r in records)


def test_a_hanging_call_is_left_behind(hanging, open_source):
    """Closing takes about as long as was given, and all samples until then are there."""
    source = open_source(request(hanging))
    records = []
    source.start()
    wait_until(hanging.with_suffix(".hangs").exists)

    assert source.close(0.5) is False

    assert count(all_of(source, records)) > 350


def test_the_row_inside_a_call_can_be_told(hanging):
    """A hang is blamed on the row whose callable is running."""
    source = ThreadSource(request(hanging), Gate())
    assert source.current() is None
    source.start()

    wait_until(lambda: source.current() == (0,))

    source.close(0.1)


def test_a_process_that_dies_is_a_fault_that_says_how(tmp_path):
    """Killed from outside, the child's end is a record: the front end goes on."""
    path = tmp_path / "dies.py"
    path.write_text("import os\nos._exit(9)\n")
    source = isolated(path)
    records = []

    source.start()
    wait_until(lambda: ended(all_of(source, records)))

    [fault] = [r for r in records if isinstance(r, Fault)]
    assert fault.message == "the measuring process died: exit code 9"
    assert records[-1].detail == "worker lost: exit code 9"
    source.close(1)


def test_a_command_to_a_dead_process_is_no_error(tmp_path):
    """A key pressed after the child has died does nothing."""
    path = tmp_path / "dies.py"
    path.write_text("import os\nos._exit(3)\n")
    source = isolated(path)
    records = []
    source.start()
    wait_until(lambda: ended(all_of(source, records)))

    source.command(Command("pause"))

    source.close(1)

    assert [r.exit_code for r in records if isinstance(r, Fault)] == [4]


def test_frames_come_whole_or_not_at_all():
    """A frame that was cut when its writer died is not half a record."""
    pipe = io.BytesIO()
    write_frame(pipe, b"first")
    write_frame(pipe, b"second")
    data = pipe.getvalue()

    for cut in range(len(data) + 1):
        part = io.BytesIO(data[:cut])
        frames = []
        while (frame := read_frame(part)) is not None:
            frames.append(frame)
        assert frames == [b"first", b"second"][: (cut >= 9) + (cut >= len(data))]


def test_a_worker_thread_never_keeps_the_program():
    """The loop's thread is a daemon: an interpreter that ends does not wait for it."""
    source = ThreadSource(request("nowhere.py"), Gate())

    source.start()

    workers = [t for t in threading.enumerate() if t.name == "usv-worker"]
    assert all(thread.daemon for thread in workers)
    assert source.close(10) is True


def test_a_record_that_cannot_be_read_ends_the_run(tmp_path):
    """No reader dies silently: the fault is told, with exit code 4, and the run is over."""
    path = tmp_path / "babble.py"
    path.write_text(
        "import gc, io, os, struct\n"
        "[sender] = [o for o in gc.get_objects() if type(o).__name__ == '_Sender']\n"
        "sender._pipe.write(struct.pack('<I', 5) + b'hello')\n"
        "BENCHMARKS = {'f': lambda: sum(range(5_000))}\n"
    )
    source = ChildSource(request(path), log_fd=os.open(os.devnull, os.O_WRONLY))
    records = []

    source.start()
    wait_until(lambda: ended(all_of(source, records)))

    [fault] = [r for r in records if isinstance(r, Fault)]
    assert fault.exit_code == 4
    assert fault.message.startswith("a record of the measuring process cannot be read")
    source.close(5)


def test_the_working_directory_is_no_place_of_modules(tmp_path, quick, monkeypatch):
    """Files named like libraries, there where it is started, are not executed."""
    proof = tmp_path / "executed"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in (
        "msgspec",
        "numpy",
        "usv_tui",
        "ctypes",
        "json",
        "struct",
        "selectors",
        "statistics",
    ):
        (elsewhere / f"{name}.py").write_text(f"open({str(proof)!r}, 'w')\n")
    monkeypatch.chdir(elsewhere)
    source = ChildSource(request(quick, iters=5), log_fd=os.open(os.devnull, os.O_WRONLY))
    records = []

    source.start()
    wait_until(lambda: ended(all_of(source, records)))

    assert count(records) == 5
    assert not proof.exists()
    source.close(5)

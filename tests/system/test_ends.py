"""How a run ends that does not end by itself: signals, a hang, a kill; what can be exported."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.fakes.program import QUICK, Program, differences, finish, samples, wait_until
from tests.fakes.suites import HANG, HEAD, TWO, late

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
OTHERS = [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM]
"""What batch systems and timers send."""
SOON_S = 3
"""About 0.7 s on a quiet machine, a hang included; a busy one may take a while to start to end."""
ENDLESS = ("--headless", *QUICK, "--max-time", "100")


class Running:
    """A run in progress, with its output in files that can be looked at."""

    def __init__(self, program, *arguments):
        self.program = program
        self.out = program.folder / "stdout.txt"
        self.err = program.folder / "stderr.txt"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = program.start(*arguments, stdout=out, stderr=err)

    def says(self, text):
        """Wait until stderr holds a text."""
        wait_until(lambda: text in self.err.read_text())

    def end(self, number):
        """Send a signal; (the program's remains, seconds that it took)."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = finish(self.process, 30).code
        return code, time.monotonic() - began

    def stop(self):
        """Never outlive the test."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def program(tmp_path):
    """The program in an empty folder."""
    return Program(tmp_path)


@pytest.fixture
def start(program):
    """Start runs that are over when the test is."""
    running = []

    def start(*arguments):
        running.append(Running(program, *arguments))
        return running[-1]

    yield start
    for run in running:
        run.stop()


@pytest.mark.parametrize("number", [*SIGNALS, *OTHERS], ids=lambda n: n.name)
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_signal_in_the_middle_keeps_everything(program, start, number, isolate):
    """The table, a whole session that says it is partial and why, 128+n, soon."""
    run = start(program.write(TWO), *ENDLESS, *isolate, "--json", "out.json")
    run.says("measuring  round ")

    code, seconds = run.end(number)

    assert code == 128 + number
    assert seconds < SOON_S
    assert "total[n=6000]" in run.out.read_text()
    assert "Traceback" not in run.err.read_text()
    data = program.export()
    assert (data["complete"], data["reason"]) == (False, number.name)
    assert differences(data, json.loads((program.folder / "out.json").read_text())) == []
    assert samples(data, "good") > 10


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_signal_gets_through_to_a_hanging_benchmark(program, start, isolate):
    """Inside a call that never returns, TERM brings the table and the shell back soon."""
    run = start(program.write(late(HANG)), *ENDLESS, *isolate)
    run.says("hanging")

    code, seconds = run.end(signal.SIGTERM)

    assert code == 143
    assert seconds < SOON_S
    assert "good" in run.out.read_text()
    data = program.export()
    assert not data["complete"]
    assert samples(data, "good") > 10
    assert samples(data, "bad") > 10


def test_a_hang_that_holds_the_interpreter_is_survived_by_isolation(program, start):
    """A C call that keeps the interpreter's lock for ever: isolated, the program goes on."""
    hang = 'print("hanging", flush=True)\nctypes.PyDLL(None).sleep(600)'
    run = start(program.write(late(hang)), *ENDLESS, "--isolate")
    run.says("hanging")

    code, seconds = run.end(signal.SIGTERM)

    assert code == 143
    assert seconds < SOON_S
    assert samples(program.export(), "good") > 10


def test_a_hang_that_holds_the_interpreter_can_be_ended(program, start):
    """TERM ends what no longer listens: exit code 4, the row named, the session readable."""
    hang = 'time.sleep(1.5)\nprint("hanging", flush=True)\nctypes.PyDLL(None).sleep(600)'
    run = start(program.write(late(hang, at=3000)), *ENDLESS)
    wait_until(program.sessions)
    [path] = program.sessions()
    log = path.with_suffix(".log")
    wait_until(lambda: log.exists() and "hanging" in log.read_text())

    code, seconds = run.end(signal.SIGTERM)

    assert code == 4
    assert seconds < 20
    run.says("ended: a call of bad (file.py:")
    assert samples(program.export(), "good") > 10


def test_a_signal_while_the_file_is_imported_ends_the_program(program, start):
    """A file that sleeps at import time, and an impatient user: 143, no traceback, soon."""
    file = program.write('print("importing", flush=True)\nimport time\ntime.sleep(600)\n')
    run = start(file, *ENDLESS)
    run.says("| importing")

    code, seconds = run.end(signal.SIGTERM)

    assert code == 143
    assert seconds < SOON_S
    assert "Traceback" not in run.err.read_text()


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_timer_of_the_users_ends_the_run_in_order(program, start, isolate):
    """An alarm that nobody handles, and a limit of CPU time: the table comes, and 128+n."""
    run = start(program.write(f"import signal; signal.alarm(2)\n{TWO}"), *ENDLESS, *isolate)

    assert finish(run.process, 30).code == 128 + signal.SIGALRM
    assert "good" in run.out.read_text()


def test_a_handler_of_the_users_is_respected(program, start):
    """A signal that the file handles is the file's, and the run goes on."""
    action = "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))"
    file = program.write(f"{action}\n{TWO}")
    run = start(file, *ENDLESS, "--isolate")
    run.says("measuring  round ")
    [child] = children(run.process.pid)

    os.kill(child, signal.SIGUSR1)
    run.says("| mine")
    assert run.end(signal.SIGTERM)[0] == 143


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGUSR1], ids=lambda n: n.name)
def test_a_signal_to_the_whole_group_ends_the_run_in_order(program, start, number):
    """Ctrl-C or a hang-up reaches isolated user code as well: it neither dies nor hides it."""
    run = start(program.write(TWO), *ENDLESS, "--isolate")
    run.says("round ")

    began = time.monotonic()
    os.killpg(run.process.pid, number)
    code = finish(run.process, 30).code

    assert code == 128 + number
    assert time.monotonic() - began < SOON_S
    assert program.export()["reason"] == number.name


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_after_kill_9_the_session_reads_up_to_a_second_before(program, start, isolate):
    """Killed without a chance, all but the last second is there, marked as partial."""
    run = start(program.write(TWO), *ENDLESS, *isolate)
    run.says("measuring  round ")
    [path] = program.sessions()
    size = path.stat().st_size
    wait_until(lambda: path.stat().st_size > size + 2000)
    child = children(run.process.pid)

    killed_ns = time.time_ns()
    run.process.kill()
    run.process.wait()

    done = program.run("export", str(path))
    data = json.loads(done.out)
    last_ns = data["started_unix_ns"] + max(row["samples"]["t_s"][-1] for row in data["rows"]) * 1e9
    assert done.code == 0
    assert done.complaints == [f"usv-tui: {path} is partial: it has no end"]
    assert not data["complete"]
    assert samples(data, "good") > 10
    assert 0 < (killed_ns - last_ns) / 1e9 < 1.0
    wait_until(lambda: not any(is_alive(pid) for pid in child), timeout=5)


def children(pid):
    """The child processes of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid):
    """False for a process that is gone or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_of_a_dead_parent_ends(program, start):
    """The measuring process never outlives the program, even when it hangs."""
    run = start(program.write(late(HANG)), *ENDLESS, "--isolate")
    run.says("hanging")
    [child] = children(run.process.pid)

    run.process.kill()
    run.process.wait()

    wait_until(lambda: not is_alive(child), timeout=5)


def test_a_torn_session_is_exported_as_far_as_it_goes(program):
    """A file cut in the middle of a frame gives its whole frames, and says that it is partial."""
    file = program.write(HEAD)
    program.run(file, "--headless", *QUICK, "--max-time", "1")
    [path] = program.sessions()
    whole = samples(program.export(path), "good")
    content = path.read_bytes()
    torn = program.folder / "torn.usv"
    torn.write_bytes(content[: len(content) * 2 // 3])

    done = program.run("export", "torn.usv")

    assert done.code == 0
    assert done.complaints == ["usv-tui: torn.usv is partial: it has no end"]
    assert 0 < samples(json.loads(done.out), "good") < whole


@pytest.mark.parametrize("bytes_", [0, 4, 30])
def test_a_session_cut_before_its_first_frame_is_one_clear_line(program, bytes_):
    """Killed in its first moment, a session says so instead of giving an empty table."""
    file = program.write(HEAD)
    program.run(file, "--headless", *QUICK, "--iters", "5", "--save", "whole.usv")
    (program.folder / "cut.usv").write_bytes((program.folder / "whole.usv").read_bytes()[:bytes_])

    done = program.run("export", "cut.usv")

    assert done.code == 2
    assert done.out == ""
    [line] = done.err.splitlines()
    assert line.startswith("usv-tui: cut.usv holds no session yet")

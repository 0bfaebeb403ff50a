"""Benchmarks that misbehave while they are timed, in the whole program."""

import json
import signal
import time

import pytest

from tests.fakes.program import QUICK, Program, measured, samples
from tests.fakes.suites import HANG, HEAD, late

RUN = ("--headless", *QUICK, "--iters", "300")


@pytest.fixture
def program(tmp_path):
    """The program in an empty folder."""
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ('raise ValueError("it broke\\nbadly")', "ValueError: it broke"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("assert call < 0, 'no'", "AssertionError: no"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: maximum recursion depth exceeded"),
    ],
)
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_row_that_raises_costs_only_itself(program, action, message, isolate):
    """Exit 1, the row FAILED in table and data with its traceback, the other one whole."""
    file = program.write(late(action))

    done = program.run(file, *RUN, *isolate, "--json", "out.json")

    data = json.loads((program.folder / "out.json").read_text())
    bad = data["rows"][1]
    assert done.code == 1
    assert bad["error"].startswith(message)
    assert "in fn" in bad["traceback"]
    assert bad["state"] == "failed"
    assert measured(data)[0] == 300
    assert f"FAILED: {message}" in done.out
    assert "Traceback" not in done.err
    assert data["complete"]


def test_when_all_rows_fail_the_run_fails(program):
    """Nothing measured is exit 1, with the reason on every row."""
    file = program.write(
        "from usv_tui import benchmark\n"
        "@benchmark(params={'n': [1, 2]})\n"
        "def broken(n):\n"
        "    raise OSError(n, 'no such thing')\n"
    )

    done = program.run(file, *RUN)

    assert done.code == 1
    assert done.err.count("no such thing") >= 2
    assert "Traceback" not in done.err
    assert program.export()["reason"] == "every benchmark failed"


def test_output_of_every_kind_inside_a_call_is_no_data(program):
    """Prints, raw writes and children from inside the timed call never reach stdout."""
    action = """
if call < 153:
    print("printed")
    os.write(1, b"fd 1\\n")
    os.write(2, b"fd 2\\n")
    os.system("echo shell")
    subprocess.run(["echo", "child"])
"""
    file = program.write(late(action))

    done = program.run(file, *RUN, "--json", "-")

    json.loads(done.out)
    told = {line.partition("| ")[2] for line in done.err.splitlines() if "] | " in line}
    assert told == {"printed", "fd 1", "fd 2", "shell", "child"}
    assert done.code == 0


def test_a_flood_of_output_costs_neither_memory_nor_the_end(program):
    """A megabyte a call for a hundred calls: the run ends in time, stderr stays bounded."""
    file = program.write(late('print(("x" * 99 + "\\n") * 10_000)', at=250))

    done = program.run(file, *RUN, "--json", "-")

    json.loads(done.out)
    assert done.code == 0
    assert len(done.err) < 4 << 20
    assert "more in" in done.err
    log = program.sessions()[0].with_suffix(".log")
    assert log.stat().st_size > 40 << 20


def test_a_callable_that_forks_is_timed_in_the_parent_only(program):
    """A child that a benchmark forks and that exits changes nothing for its parent."""
    action = """
if call < 155:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
"""
    done = program.run(program.write(late(action)), *RUN, "--json", "-")

    data = json.loads(done.out)
    assert done.code == 0
    assert measured(data) == [300, 300]


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
@pytest.mark.parametrize(
    "end", ["return None", "raise SystemExit(3)", "sys.exit()", "raise ValueError('of the copy')"]
)
def test_a_forked_copy_is_silent_and_ends(program, end, isolate):
    """User code that forks and comes back in the child, however: one run, each sample once."""
    action = f"""
if call in (150, 170):
    pid = os.fork()
    if pid == 0:
        {end}
    os.waitpid(pid, 0)
return sum(range(5_000))
"""
    done = program.run(program.write(late(action)), *RUN, *isolate, "--json", "-", timeout=30)

    data = json.loads(done.out)
    assert (done.code, measured(data)) == (0, [300, 300])
    assert not [row["error"] for row in data["rows"] if row["error"]]


def test_a_copy_ends_as_its_own_program_would(program):
    """The exit code of a child that comes back is that of its exception; the parent can read it."""
    action = """
if call == 150:
    pid = os.fork()
    if pid == 0:
        raise SystemExit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
return sum(range(5_000))
"""
    done = program.run(program.write(late(action)), *RUN)

    assert "| child 7" in done.err


def test_a_fork_in_set_up_or_first_call_is_silent_too(program):
    """Wherever the measuring thread is copied, only the original goes on."""
    fork = "os.fork() == 0 and print('copy', flush=True)"
    source = f"""{HEAD}
{fork}

@benchmark
def forks():
    {fork}
    calls = itertools.count()
    return lambda: {fork} if next(calls) < 3 else sum(range(5_000))
"""
    done = program.run(program.write(source), *RUN, "--json", "-", timeout=30)

    data = json.loads(done.out)
    assert (done.code, measured(data)) == (0, [300, 300])
    assert done.err.count("| copy") == 5


def test_threads_of_a_benchmark_do_not_keep_the_program(program):
    """A thread that a benchmark leaves running, and even waits for, does not delay the end."""
    source = f"""{HEAD}
@benchmark
def leaves_a_thread():
    threading.Thread(target=lambda: threading.Event().wait(600), daemon=True).start()
    return lambda: None
"""
    done = program.run(program.write(source), *RUN, timeout=20)

    assert done.code == 0


@pytest.mark.parametrize(
    ("action", "how"),
    [
        ("os._exit(7)", "exit code 7"),
        ("ctypes.string_at(0)", "signal SIGSEGV"),
        ("os.abort()", "signal SIGABRT"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(9)", "exit code 0"),
        ("os.closerange(3, 200)", "it closed file descriptors"),
    ],
)
def test_isolated_a_worker_that_dies_costs_one_row(program, action, how):
    """The row that was in its window is told and retired, the other goes on in a fresh process."""
    file = program.write(late(f'print("last words", flush=True)\n{action}', at=1000))

    done = program.run(file, "--headless", *QUICK, "--iters", "2000", "--isolate")

    assert done.code == 1
    assert done.complaints == []
    assert "| last words" in done.err
    data = program.export()
    good, bad = data["rows"]
    assert bad["error"].startswith(how)
    assert not good["error"]
    assert measured(data)[0] == 2000
    assert samples(data, "bad") > 30


def test_isolated_a_signal_that_a_row_sends_itself_is_on_record(program):
    """It ends nothing, and the log says in which row it came."""
    file = program.write(late("os.kill(os.getpid(), 15) if call == 150 else None"))

    done = program.run(file, *RUN, "--isolate")

    assert done.code == 0
    assert "bad: SIGTERM came to the measuring process alone, which goes on" in done.err


@pytest.mark.parametrize(
    ("action", "code", "told"),
    [
        ("os.closerange(3, 10_000)", 0, ""),
        ("threading.Thread(target=os._exit, args=(0,)).start()", 0, "called os._exit(0): that"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 1, "it stopped its own process (SIGSTOP)"),
    ],
)
def test_a_row_does_not_end_the_process_that_it_shares(program, action, code, told):
    """In the thread the others are measured to the end, and what happened is told."""
    file = program.write(late(f"import signal\nif call == 150: {action}"))

    done = program.run(file, *RUN, "--json", "out.json")

    data = json.loads((program.folder / "out.json").read_text())
    assert done.code == code
    assert measured(data)[0] == 300
    assert told in done.out


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_emptied_imports_are_put_back(program, isolate):
    """The run goes on to its table without a traceback, and the rows in question are named."""
    clear = "call != 150 or (sys.modules.clear(), sys.path.clear())"
    file = program.write(late(clear))

    done = program.run(file, *RUN, *isolate)

    assert done.code == 0
    assert "emptied sys.modules and sys.path: it was put back" in done.out
    assert "Traceback" not in done.err


def test_a_target_with_a_slow_row_and_a_slow_set_up_is_bounded(program):
    """`--until` counts from measuring on, ends by its time, and every row has its samples."""
    source = f"""{HEAD}
@benchmark
def slow():
    time.sleep(1)
    return lambda: time.sleep(0.7)
"""
    file = program.write(source)

    done = program.run(
        file, "--headless", *QUICK, "--until", "ratio±0.001%", "--max-time", "4", timeout=60
    )

    assert done.code == 6
    assert all(n > 0 for n in measured(program.export()))


def test_isolated_a_hang_costs_one_row(program):
    """A call that never returns is given up with its process, and its stack is in the log."""
    file = program.write(late(HANG, at=300))

    done = program.run(
        file, "--headless", *QUICK, "--iters", "300", "--isolate", "--row-timeout", "2", timeout=60
    )

    data = program.export()
    assert done.code == 1
    assert measured(data)[0] == 300
    assert "did not end within 2 s" in data["rows"][1]["error"]
    assert "threading.py" in done.err


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_set_up_or_first_call_that_never_returns_costs_one_row(program, isolate):
    """After `--row-timeout` the row has failed and the others are measured, in either carrier."""
    source = f"""{HEAD}
@benchmark
def sets_up_for_ever():
    threading.Event().wait(600)

@benchmark
def calls_for_ever():
    return lambda: threading.Event().wait(600)
"""
    file = program.write(source)

    done = program.run(file, *RUN, *isolate, "--row-timeout", "2", "--json", "-", timeout=60)

    data = json.loads(done.out)
    assert done.code == 1
    assert measured(data)[0] == 300
    assert "its set-up did not end within 2 s" in data["rows"][1]["error"]
    assert "its first call did not end within 2 s" in data["rows"][2]["error"]


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_an_import_that_never_returns_ends_in_one_line(program, isolate):
    """The file's own mistake: exit 2, with what to do."""
    file = program.write("import threading\nthreading.Event().wait(600)\n")

    done = program.run(file, "--headless", *QUICK, *isolate, "--row-timeout", "2", timeout=60)

    assert done.code == 2
    assert done.complaints[-1].startswith(f"usv-tui: the import of {file} did not end within 2 s")


def test_without_isolation_a_crash_still_leaves_a_session(program):
    """A segfault takes the program with it; what was measured until a second before can be read."""
    file = program.write(late("time.sleep(1.5)\nctypes.string_at(0)", at=2000))

    done = program.run(file, "--headless", *QUICK, "--iters", "4000")

    assert done.code == -11
    [line] = done.complaints
    assert "crashed (Segmentation fault) in bad (file.py:" in line
    assert "usv-tui export" in line
    assert "--isolate" in line
    [log] = program.state.glob("usv-tui/sessions/*.log")
    assert "in string_at" in log.read_text()
    data = program.export()
    assert not data["complete"]
    assert samples(data, "good") > 50


def test_a_closed_standard_stream_in_user_code_is_its_own_affair(program):
    """A benchmark that closes descriptors 1 and 2 loses its output, not the run's."""
    file = program.write(late("os.close(1) if call == 150 else None"))

    done = program.run(file, *RUN, "--json", "-")

    json.loads(done.out)
    assert done.code == 0


def test_a_coroutine_is_a_named_error(program):
    """`async def` without `asyncio.run` ran nothing: the row says so, the others are timed."""
    source = f"""{HEAD}
async def work():
    return 1

@benchmark
def lazy():
    return lambda: work()
"""
    done = program.run(program.write(source), *RUN)

    assert done.code == 1
    assert "coroutine" in done.out
    assert "never awaited" not in done.err


def test_what_was_asked_for_by_name_and_did_not_run_is_no_success(program):
    """A value in BENCHMARKS that cannot be timed: the others are, exit 1, with the reason."""
    file = program.write("BENCHMARKS = {'a': lambda: sum(range(5_000)), 'typo': 5}\n")

    done = program.run(file, *RUN)

    assert done.code == 1
    assert "usv-tui: not timed: typo: a int, which cannot be called" in done.complaints


@pytest.mark.parametrize("marked", [True, False])
def test_a_failed_baseline_is_said_or_replaced(program, marked):
    """One that the file names is said in each ratio; else the next row is compared with."""
    base = "baseline={'k': 0}" if marked else ""
    file = program.write(
        "from usv_tui import benchmark\n"
        f"@benchmark(params={{'k': [0, 1, 2]}}, {base})\n"
        "def f(k):\n"
        "    1 / k\n"
        "    return lambda: sum(range(5_000))\n"
    )

    done = program.run(file, *RUN)

    assert done.code == 1
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("f[")}
    if marked:
        assert "— baseline failed" in lines["f[k=1]"]
        assert "— baseline failed" in lines["f[k=2]"]
    else:
        assert "not enough data" not in lines["f[k=1]"]


def test_a_row_that_calls_os_exit_fails_alone(tmp_path):
    """No table lost, no exit code 0: the row failed, the others were measured."""
    program = Program(tmp_path)
    file = program.write(
        "import os\nBENCHMARKS = {'good': lambda: sum(range(100)), 'exits': lambda: os._exit(0)}\n"
    )

    done = program.run(file, "--headless", *QUICK, "--iters", "20")

    assert done.code == 1
    assert "it called os._exit(0)" in done.out
    assert "good" in done.out


def test_a_stopped_program_counts_no_cold_sample(tmp_path):
    """STOP and CONT: a gap is told, and what follows it is ramp."""
    program = Program(tmp_path)
    process = program.start(
        "demo", "steady", "--headless", "--max-time", "8", "--warmup", "1", "--json", "out.json"
    )
    while "* measuring" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    found = json.loads((tmp_path / "out.json").read_text())

    assert [g["reason"] for g in found["gaps"]] == ["the program stood still"]
    assert all(row["statistics"]["rel_std"] < 0.02 for row in found["rows"])

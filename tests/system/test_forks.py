"""Processes that user code starts are the user's: nothing of ours lives on in them."""

import json
import tempfile

import pytest

from tests.fakes.program import QUICK, Program, measured

ISOLATE = pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
HEAD = """
import json, multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path


def report(**what):
    with Path("told.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\\n")


def sleep():
    time.sleep(60)


def twice(value):
    return 2 * value

"""


@pytest.fixture
def run(tmp_path):
    """Run a benchmark file; (what is left of the run, what its code reported)."""
    program = Program(tmp_path)
    # The address of a fork server's socket must fit into a hundred characters.
    program.environment["TMPDIR"] = tempfile.gettempdir()

    def go(source, *arguments):
        file = program.write(HEAD + source)
        done = program.run(file, "--headless", *QUICK, "--iters", "3", *arguments)
        told = tmp_path / "told.jsonl"
        lines = told.read_text().splitlines() if told.exists() else []
        return done, [json.loads(line) for line in lines]

    return go


@ISOLATE
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_can_be_terminated(run, method, isolate):
    """`Process.terminate()` ends it at once, by the signal."""
    done, told = run(
        f"""
def bench_terminate():
    process = multiprocessing.get_context({method!r}).Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    began = time.monotonic()
    process.join(30)
    report(code=process.exitcode, seconds=time.monotonic() - began)
    return lambda: None
""",
        *isolate,
    )

    assert done.code == 0, done.err
    assert [(one["code"], one["seconds"] < 5) for one in told] == [(-15, True)]


@ISOLATE
def test_pools_end(run, isolate):
    """A pool that is left again and again never hangs, whenever its TERM comes."""
    done, told = run(
        """
def bench_pool():
    for _ in range(10):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(abs, [1, 2])
    report(pools=10)
    return lambda: None
""",
        *isolate,
    )

    assert done.code == 0, done.err
    assert told == [{"pools": 10}]


@ISOLATE
def test_a_forked_child_has_the_handlers_from_before(run, isolate):
    """Every signal that ends a run ends a forked child as if we were not there."""
    done, told = run(
        """
def bench_handlers():
    numbers = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
               signal.SIGXCPU, signal.SIGALRM, signal.SIGCONT, signal.SIGTSTP, signal.SIGWINCH]
    child = os.fork()
    if child == 0:
        names = [str(signal.getsignal(n)) for n in numbers]
        mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        report(handlers=sorted(set(names)), blocked=mask, wakeup=signal.set_wakeup_fd(-1))
        os._exit(0)
    os.waitpid(child, 0)
    return lambda: None
""",
        *isolate,
    )

    assert done.code == 0, done.err
    assert told == [{"handlers": ["0"], "blocked": [], "wakeup": -1}]


@ISOLATE
def test_a_signal_to_a_child_is_not_ours(run, isolate):
    """The run goes on while its children are killed by what would end it."""
    done, told = run(
        """
def bench_kill():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        child = os.fork()
        if child == 0:
            signal.pause()
        os.kill(child, number)
        report(status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return lambda: None
""",
        *isolate,
    )

    assert done.code == 0, done.err
    assert [one["status"] for one in told] == [-15, -1, -10]


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["thread", "process"])
def test_a_loader_with_workers_is_timed_like_anything_else(tmp_path, isolate):
    """A DataLoader of torch forks workers anew in every call, and the run comes to its end."""
    source = """
from torch.utils.data import DataLoader

def bench_load():
    data = DataLoader(list(range(8)), batch_size=4, num_workers=2)
    return lambda: list(data)
"""
    program = Program(tmp_path)
    file = program.write(source)

    done = program.run(
        file, "--headless", *QUICK, *isolate, "--iters", "3", "--json", "-", timeout=60
    )

    data = json.loads(done.out)
    assert done.code == 0
    assert measured(data) == [3]
    assert data["config"]["row_timeout_s"] == 300

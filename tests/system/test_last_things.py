"""What a run needs at its end is there before user code runs, which may use up all there is."""

import json
import sys

import pytest

from tests.fakes.program import QUICK, Program, samples
from tests.fakes.terminal import terminals

NEW = """
import atexit, json, sys
seen = []

def tell():
    rooms = ("usv_tui", "numpy", "textual", "rich")
    new = sorted(m for m in set(sys.modules) - seen[0] if m.split(".")[0] in rooms)
    open("new.json", "w").write(json.dumps(new))

atexit.register(tell)

def bench_a():
    def fn():
        if not seen:
            seen.append(set(sys.modules))
        return sum(range(2000))
    return fn

def bench_b():
    return lambda: sum(range(2100))
"""
LEAK = """
import itertools, os
kept = []

def bench_good():
    return lambda: sum(range(5_000))

def bench_leak():
    count = itertools.count()
    def fn():
        if next(count) == 50:
            while True:
                try:
                    kept.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
        return sum(range(5_000))
    return fn
"""


@pytest.fixture
def program(tmp_path):
    """The program in an empty folder."""
    return Program(tmp_path)


@pytest.fixture
def launch(tmp_path):
    """Start programs on terminals of their own."""
    yield from terminals(tmp_path)


@pytest.fixture
def on_screen(program, launch):
    """Run with the screen to the end; what stands on the terminal then."""

    def go(*arguments):
        words = " ".join(arguments)
        command = f"cd {program.folder}; {sys.executable} -m usv_tui {words}; echo exit-$?"
        environment = program.environment | {"TERM": "xterm-256color"}
        terminal = launch(environment=environment, program=["/bin/sh", "-c", command])
        terminal.until("exit-")
        terminal.read()
        return "\n".join(terminal.screen.display)

    return go


def test_nothing_is_imported_once_measuring_has_begun(program):
    """Headless: neither while it runs nor for the table, the data and the end."""
    file = program.write(NEW)
    done = program.run(
        file, "--headless", *QUICK, "--max-time", "2", "--control", "--json", "o.json"
    )

    assert "bench_b" in done.out
    assert json.loads((program.folder / "new.json").read_text()) == []


@pytest.mark.pty
def test_nothing_is_imported_once_the_screen_shows_it(program, on_screen):
    """The same with the screen."""
    file = program.write(NEW)
    shown = on_screen(file, *QUICK, "--max-time", "3")

    assert "bench_b" in shown
    assert json.loads((program.folder / "new.json").read_text()) == []


def test_a_run_without_descriptors_ends_with_its_table(program):
    """A benchmark that leaks descriptors to the limit loses neither table, data nor session."""
    file = program.write(LEAK)
    done = program.run(file, "--headless", *QUICK, "--max-time", "2", "--json", "o.json")

    assert done.code == 0, done.err
    assert "bench_good" in done.out
    assert "Traceback" not in done.err
    assert samples(json.loads((program.folder / "o.json").read_text()), "bench_good") > 50
    assert program.export()["complete"]


@pytest.mark.pty
def test_a_screen_without_descriptors_ends_with_its_table(program, on_screen):
    """The same with the screen."""
    file = program.write(LEAK)
    shown = on_screen(file, *QUICK, "--max-time", "3", "--json", "o.json")

    assert "bench_leak" in shown
    assert "exit-0" in shown
    assert "Traceback" not in shown

"""Other people's scripts as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / "tests" / "fakes" / "libraries"


def _run(folder, source, *words, name="script.py", timeout=60, **streams):
    (folder / name).write_text(textwrap.dedent(source))
    # A pytest that is started is no worker of the one that runs these tests.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "usv_tui", "--no-save", "--device", "cpu", *words],
        cwd=folder,
        env=own | {"PYTHONPATH": f"{ROOT}:{LIBRARIES}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **streams,
    )


def test_a_script_runs_with_its_arguments_and_its_exit_code(tmp_path):
    """Its output and our table are on stdout, its rows in the JSON; our option is not its own."""
    done = _run(
        tmp_path,
        """
        import argparse, os, sys
        import triton

        parser = argparse.ArgumentParser()
        parser.add_argument("--json")
        args = parser.parse_args()
        report = triton.testing.perf_report(
            triton.testing.Benchmark(["n"], [10, 1000], "who", ["a", "b"], ["a", "b"], "sum", {})
        )(lambda n, who: triton.testing.do_bench(lambda: sum(range(n)), rep=5))
        report.run(print_data=True)
        os.system("echo from a child")
        print("its own:", args.json)
        sys.exit(9)
        """,
        *("script.py", "--headless", "--json", "mine.txt", "--csv", "rows.csv"),
    )
    assert done.returncode == 9, done.stderr
    own, _, table = done.stdout.partition("its own: mine.txt\n")
    assert "sum 10 " in own
    assert "from a child" in own
    assert "sum[n=1000,who=b]" in table
    assert not (tmp_path / "mine.txt").exists()
    assert "sum[n=10,who=a]" in (tmp_path / "rows.csv").read_text()
    assert "exit code 9, 4 rows" in done.stderr


def test_data_on_stdout_is_data_alone(tmp_path):
    """With `--json -` what the script prints is in the narration."""
    done = _run(
        tmp_path,
        "import triton\nprint('talk')\n"
        "for n in (1, 2):\n    triton.testing.do_bench(lambda: sum(range(n)), rep=2)\n",
        *("--headless", "--json", "-", "script.py"),
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == ["script:4", "script:4[run=2]"]
    assert "| talk" in done.stderr


@pytest.mark.parametrize(
    ("source", "words", "code", "said"),
    [
        ("import triton.testing\n", (), 2, "it called nothing of triton.testing"),
        (
            "import triton.testing, argparse\np = argparse.ArgumentParser()\np.parse_args()\n",
            ("--wrong",),
            2,
            "unrecognized arguments: --wrong",
        ),
    ],
)
def test_what_is_wrong_with_a_script_is_said_in_a_line(tmp_path, source, words, code, said):
    """Without a traceback of ours, and with its exit code."""
    done = _run(tmp_path, source, "--headless", "script.py", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_that_runs_for_ever_ends_with_its_time_or_a_signal(tmp_path):
    """`--max-time` bounds its own code too; Ctrl-C ends it at once."""
    forever = "import triton\ntriton.testing.do_bench(lambda: 1, rep=1)\n"
    forever += "print('looping', flush=True)\nwhile True: pass\n"
    done = _run(tmp_path, forever, "--headless", "--max-time", "1", "script.py")
    assert done.returncode == 0, done.stderr
    assert "max time 1 s" in done.stdout

    program = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "usv_tui",
            "--no-save",
            "--device",
            "cpu",
            "--headless",
            "script.py",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{LIBRARIES}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    while "looping" not in (line := program.stderr.readline()):
        assert line, "it ended before it had measured"
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "script:2" in out


SUITE = """
    def test_fast(benchmark):
        assert benchmark(sum, [1, 2]) == 3

    def test_slow(benchmark):
        benchmark(lambda: sum(range(20_000)))

    def test_pedantic(benchmark):
        benchmark.pedantic(sorted, args=([3, 1],), rounds=7, iterations=5)

    def test_wrong(benchmark):
        benchmark(lambda: 1)
        assert False, "wrong"

    def test_without():
        pass
    """


def test_a_suite_of_pytest_benchmark_runs_with_its_own_table(tmp_path):
    """Its report holds our numbers, its exit code is the program's, its tests are our rows."""
    pytest.importorskip("pytest_benchmark")
    words = (
        "--headless",
        "--json",
        "out.json",
        "pytest",
        "test_it.py",
        "-q",
        "-p",
        "no:cacheprovider",
    )
    done = _run(tmp_path, SUITE, *words, "--benchmark-max-time=0.1", name="test_it.py")

    assert done.returncode == 1, done.stderr
    assert "1 failed, 4 passed" in done.stdout
    assert "benchmark: 4 tests" in done.stdout
    rows = {row["name"]: row for row in json.loads((tmp_path / "out.json").read_text())["rows"]}
    assert set(rows) == {"test_fast", "test_slow", "test_pedantic", "test_wrong"}
    assert rows["test_pedantic"]["statistics"]["n"] + rows["test_pedantic"]["stalls"] == 7
    assert rows["test_slow"]["statistics"]["median_s"] > rows["test_fast"]["statistics"]["median_s"]


def test_an_option_of_ours_behind_the_word_is_told(tmp_path):
    """It is pytest's there, which does not know it."""
    done = _run(tmp_path, SUITE, "pytest", "--headless", "test_it.py", name="test_it.py")

    assert done.returncode == 4
    assert "--headless is its own argument there: usv-tui's go before it" in done.stderr

"""What a file is, and whose the words of its command line are."""

import textwrap

import pytest

from usv_tui.cli import script
from usv_tui.errors import UsageError
from usv_tui.foreign.recognise import Kind, is_problem, kind_of, own_options

SUITES = {
    "decorated": "from usv_tui import benchmark\n@benchmark\ndef a(): ...",
    "decorated by attribute": "import usv_tui\n@usv_tui.benchmark(params={})\ndef a(): ...",
    "by name": "import triton.testing\ndef bench_add(device): ...",
    "by dict": "import torch.utils.benchmark\nBENCHMARKS = {}",
    "both": "from triton.testing import do_bench\nfrom usv_tui import benchmark\n"
    "@benchmark\ndef a(): ...\nif __name__ == '__main__': do_bench(a)",
    "neither": "import os\ndef helper(): ...",
    "empty": "",
    "not Python": "def (",
}
SCRIPTS = {
    "triton": "import triton\n@triton.testing.perf_report([])\ndef bench_add(n): ...",
    "by from": "from torch.utils.benchmark import Timer",
    "by parts": "from torch.utils import benchmark",
    "within a function": "def main():\n    import flashinfer.testing\nmain()",
    "usv": "import usv",
    "nvbench": "import cuda.bench as bench",
    "guarded": "def main(): ...\nif __name__ == '__main__':\n    main()",
    "own bench_ that it calls": "import triton.testing\ndef bench_all(): ...\nbench_all()",
    "through a helper": "import helper\nhelper.go()",
}


@pytest.mark.parametrize("source", SUITES.values(), ids=SUITES)
def test_a_file_with_benchmarks_of_this_program_is_a_suite(tmp_path, source):
    """Whatever else is in it; what is neither is left to the suite's own words."""
    (tmp_path / "file.py").write_text(source)
    assert kind_of(tmp_path / "file.py") is Kind.SUITE


@pytest.mark.parametrize("source", SCRIPTS.values(), ids=SCRIPTS)
def test_a_file_that_times_with_a_library_is_a_script(tmp_path, source):
    """Also where the library is imported late, or by a file beside it."""
    (tmp_path / "helper.py").write_text("from triton.testing import do_bench\ndef go(): ...")
    (tmp_path / "file.py").write_text(source)
    assert kind_of(tmp_path / "file.py") is Kind.SCRIPT


def test_files_that_import_each_other_are_told_all_the_same(tmp_path):
    """The look ends."""
    (tmp_path / "a.py").write_text("import b")
    (tmp_path / "b.py").write_text("import a")
    assert kind_of(tmp_path / "a.py") is Kind.SUITE


def test_problems_are_folders_of_gpu_mode_and_references_of_kernelbench(tmp_path):
    """A script that has such a class and runs it is none."""
    folder = tmp_path / "problem"
    folder.mkdir()
    assert not is_problem(folder)
    for name in ("task.yml", "reference.py"):
        (folder / name).write_text("")
    assert is_problem(folder)
    reference = tmp_path / "reference.py"
    reference.write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...")
    assert is_problem(reference)
    reference.write_text(reference.read_text() + "\nif __name__ == '__main__': Model()")
    assert not is_problem(reference)


SOURCE = """
import argparse
import torch.utils.benchmark
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("-n")
"""


@pytest.mark.parametrize(
    ("words", "ours", "theirs"),
    [
        ("FILE", "FILE", ""),
        ("--headless FILE -n 3", "--headless FILE", "-n 3"),
        ("FILE -n 3 --headless", "--headless FILE", "-n 3"),
        ("--device cpu FILE --device cuda", "--device cpu FILE", "--device cuda"),
        ("FILE --max-time 5 x --unknown", "--max-time 5 FILE", "x --unknown"),
        ("FILE --max-time=5", "--max-time=5 FILE", ""),
        ("FILE -- --headless", "FILE", "--headless"),
        ("FILE --help", "FILE", "--help"),
        ("--iters 7 --as script FILE a b", "--iters 7 --as script FILE", "a b"),
    ],
)
def test_options_of_the_scripts_text_are_the_scripts(tmp_path, words, ours, theirs):
    """What stands before it, and behind it what only we know, is ours."""
    path = str(tmp_path / "file.py")
    (tmp_path / "file.py").write_text(textwrap.dedent(SOURCE))
    argv = [path if word == "FILE" else word for word in words.split()]
    at = script.file_at(argv)
    assert at is not None
    assert argv[at] == path
    assert script.is_script(argv, at)
    args = script.parse(argv, at)
    wanted = script.run_parser().parse_args(ours.replace("FILE", path).split())
    assert args.script == theirs.split()
    assert args.isolate
    told = ("headless", "device", "max_time", "iters", "file")
    assert {n: getattr(args, n) for n in told} == {n: getattr(wanted, n) for n in told}


def test_options_that_cannot_be_told_from_the_text_are_all_the_scripts(tmp_path):
    """Where a library makes them of a function's arguments."""
    (tmp_path / "file.py").write_text("import fire\nimport usv\nfire.Fire(print)")
    argv = [str(tmp_path / "file.py"), "--headless", "--n=3"]
    assert own_options(tmp_path / "file.py") is None
    assert script.parse(argv, 0).script == ["--headless", "--n=3"]


@pytest.mark.parametrize(
    "words", ["--control", "--until ratio±1%", "--realloc 3", "-k a", "--device sim:h100"]
)
def test_what_means_nothing_for_a_script_is_refused(tmp_path, words):
    """Before anything runs."""
    (tmp_path / "file.py").write_text(SOURCE)
    argv = [*words.split(), str(tmp_path / "file.py")]
    with pytest.raises(UsageError):
        script.parse(argv, len(argv) - 1)


def test_a_kind_may_be_chosen(tmp_path):
    """Also behind the file."""
    (tmp_path / "file.py").write_text(SOURCE)
    path = str(tmp_path / "file.py")
    assert not script.is_script([path, "--as", "suite"], 0)
    (tmp_path / "file.py").write_text("x = 1")
    assert script.is_script(["--as=script", path], 1)

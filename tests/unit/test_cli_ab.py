"""`usv-tui ab` on the command line: what is refused, and what `--fail-on` makes of the answers."""

import argparse
from types import SimpleNamespace

import pytest

from usv_tui.cli import ab
from usv_tui.cli.main import main
from usv_tui.errors import ExitCode, UsageError
from usv_tui.model import Answer, Ratio


def judged(*ratios, fail_on="slower>2%", code=0):
    """The exit code of a run whose rows have these ratios against BASE."""
    args = ab.parser().parse_args(["main", "f.py", *(["--fail-on", fail_on] if fail_on else [])])
    versions = ab.Versions.__new__(ab.Versions)
    versions._args = args
    rows = [SimpleNamespace(rival=0, parent=None, ratio=ratio, error="") for ratio in ratios]
    base = SimpleNamespace(rival=None, parent=None, ratio=None, error="")
    return versions.judge(SimpleNamespace(rows=[base, *rows]), code)


def ratio(answer, value, low, high):
    """Over launches."""
    return Ratio(answer=answer, ratio=value, low=low, high=high, n=5)


SLOWER = ratio(Answer.SLOWER, 1.05, 1.03, 1.07)
SLIGHTLY = ratio(Answer.SLOWER, 1.01, 1.005, 1.015)
SAME = ratio(Answer.SAME, 1.0, 0.995, 1.005)
OPEN = ratio(Answer.UNDECIDED, 1.01, 0.97, 1.05)
CLEAR = ratio(Answer.UNDECIDED, 1.0, 0.985, 1.015)
"""No answer, but it cannot be slower by 2 %."""


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([SAME], ExitCode.OK),
        ([SAME, SLOWER], ExitCode.BENCH_FAILED),
        ([OPEN, SLOWER], ExitCode.BENCH_FAILED),
        ([SLIGHTLY], ExitCode.OK),
        ([OPEN, SAME], ExitCode.INCONCLUSIVE),
        ([None], ExitCode.INCONCLUSIVE),
        ([], ExitCode.INCONCLUSIVE),
        ([CLEAR], ExitCode.OK),
    ],
)
def test_the_exit_code_says_whether_a_row_is_slower_may_be_or_is_not(ratios, expected):
    """1 when one is by more than allowed, 6 when one may be and there is no answer, else 0."""
    assert judged(*ratios) == expected


def test_faster_is_judged_the_other_way_round():
    """`faster>2%` looks at the lower end of the interval."""
    faster = ratio(Answer.FASTER, 0.95, 0.93, 0.97)
    assert judged(faster, fail_on="faster>2%") == ExitCode.BENCH_FAILED
    assert judged(CLEAR, fail_on="faster>2%") == ExitCode.OK
    assert judged(OPEN, fail_on="faster>2%") == ExitCode.INCONCLUSIVE


def test_without_a_condition_answers_are_no_failure():
    """And what went wrong with the run itself is worse than any answer."""
    assert judged(SLOWER, fail_on="") == ExitCode.OK
    assert judged(SLOWER, code=int(ExitCode.WORKER_LOST)) == ExitCode.WORKER_LOST
    assert judged(SAME, code=int(ExitCode.BENCH_FAILED)) == ExitCode.BENCH_FAILED


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--until", "ratio±1%"], "--until means nothing"),
        (["--iters", "5"], "--iters means nothing"),
        (["--control"], "--control means nothing"),
        (["--baseline", "x"], "--baseline means nothing"),
        (["--launches", "0"], "0 is not a whole number"),
        (["--launches", "many"], "many"),
        (["--fail-on", "odd"], "odd"),
    ],
)
def test_options_that_mean_nothing_between_versions_are_refused(capsys, options, says):
    """In one line, before anything is checked out."""
    assert main(["ab", "main", "f.py", *options]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert says in line


def test_launches_are_a_number_or_auto():
    """Auto is the default: as many as it takes."""
    parse = ab.parser().parse_args
    assert parse(["a", "b.py"]).launches is None
    assert parse(["a", "b.py", "--launches", "auto"]).launches is None
    assert parse(["a", "b.py", "--launches", "7"]).launches == 7


def test_a_watch_needs_a_file_and_takes_one_base(tmp_path, monkeypatch):
    """Two versions and a watch are one too many."""
    monkeypatch.chdir(tmp_path)
    for words in (["v1", "v2", "f.py"], ["v1"], ["none.py"]):
        with pytest.raises(UsageError):
            ab.parse([*words, "--watch"])


def test_the_parser_is_one_of_runs():
    """What every way of measuring takes, this one does."""
    args = ab.parser().parse_args(["main", "f.py", "--headless", "--lock", "base", "-k", "x"])
    assert isinstance(args, argparse.Namespace)
    assert (args.headless, args.lock, args.select) == (True, "base", ["x"])

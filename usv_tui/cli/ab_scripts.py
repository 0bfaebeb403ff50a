"""`usv-tui ab` of scripts: whole runs of both versions in turn, row by row over the launches."""

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from usv_tui import plain
from usv_tui.errors import ExitCode, UsageError, UsvError
from usv_tui.library.sessions import SessionRow, load
from usv_tui.model import Answer
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.stats import duet
from usv_tui.units import DASH, percent

_LAUNCHES = 5
_ALPHA = 0.05
_MEDIAN = 1.2533
"""The standard error of a median over that of a mean."""
_PASSED_ON = ("device", "timer", "warmup", "cache", "pace", "lock")


class Verdict(NamedTuple):
    """One row of HEAD against BASE."""

    name: str
    over: duet.OverLaunches
    answer: Answer


class ScriptEnded(UsvError):
    """A launch that ended with an error: its exit code is the comparison's."""

    def __init__(self, label: str, code: int, said: str) -> None:
        super().__init__(f"{label} ended with exit code {code}: {said}")
        self.exit_code = code  # type: ignore[assignment]


def run(args: argparse.Namespace, put: Callable[[str], object]) -> int:
    """Run both in turn, put the table, and give the exit code by `--fail-on`.

    Raises:
        UsvError: a version's run failed, or no row is in both.
    """
    versions, folder = args.versions, Path(args.versions.folder)
    sides = (versions.base, versions.head)
    if any(side.python != sys.executable for side in sides):
        raise UsageError("two environments with a script", "compare two runs with --save")
    rows: list[dict[str, list[duet.LaunchRatio]]] = []
    launches = args.launches or _LAUNCHES
    for number in range(launches):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found: dict[int, Mapping[str, SessionRow]] = {}
        for side in order:
            found[side] = _launch(sides[side], folder / f"{number}-{side}.usv", args)
        _say(f"launch {number + 1} of {launches}")
        rows.append(_ratios(number, found[0], found[1]))
    verdicts = _verdicts(rows)
    if not verdicts:
        raise UsageError("no row is in both versions", "names and parameters must be the same")
    put(_table(verdicts, f"{sides[1].label} against {sides[0].label}"))
    return _exit_code(verdicts, args.fail_on)


def _say(text: str) -> None:
    print(f"usv-tui: {text}", file=sys.stderr, flush=True)  # noqa: T201  the program's voice


def _launch(side: Any, path: Path, args: argparse.Namespace) -> Mapping[str, SessionRow]:
    words = [f"--{name}={v}" for name in _PASSED_ON if (v := getattr(args, name)) is not None]
    program = [sys.executable, "-P", "-m", "usv_tui", "--headless", f"--save={path}"]
    done = subprocess.run(
        [*program, *words, "--as=script", side.path],
        cwd=side.folder or None,
        env=os.environ | dict(side.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ScriptEnded(side.label, done.returncode, plain.line(said[-1]))
    return load(path).rows


def _ratios(
    number: int, base: Mapping[str, SessionRow], head: Mapping[str, SessionRow]
) -> dict[str, list[duet.LaunchRatio]]:
    found = {}
    for name in base:
        if name in head and base[name].measurement.n and head[name].measurement.n:
            one, other = base[name].measurement, head[name].measurement
            centre = math.log(other.median / one.median)
            error = math.hypot(*(_MEDIAN * m.std / m.mean / math.sqrt(m.n) for m in (one, other)))
            pairs = min(one.n, other.n)
            found[name] = [duet.LaunchRatio(number, centre, error, pairs)]
    return found


def _verdicts(launches: Sequence[Mapping[str, list[duet.LaunchRatio]]]) -> list[Verdict]:
    names = [name for name in launches[0] if all(name in one for one in launches)]
    over = [duet.over_launches([one[name][0] for one in launches]) for name in names]
    known = [(name, o) for name, o in zip(names, over, strict=True) if o is not None]
    ps = duet.holm([o.p for _, o in known])
    return [Verdict(name, o, _answer(o, p)) for (name, o), p in zip(known, ps, strict=True)]


def _answer(over: duet.OverLaunches, p: float) -> Answer:
    if p >= _ALPHA or over.half is None:
        return Answer.UNDECIDED
    return Answer.SLOWER if over.centre > 0 else Answer.FASTER


def _table(verdicts: Sequence[Verdict], title: str) -> str:
    halves = [v.over.half for v in verdicts]
    columns = [
        Column("row", [plain.name(v.name) for v in verdicts], is_code=True),
        Column("ratio", [f"{v.over.ratio:.4f}x" for v in verdicts], is_number=True),
        Column(
            "95 %",
            [DASH if h is None else f"±{percent(math.expm1(h), 2)} %" for h in halves],
            is_number=True,
        ),
        Column("answer", [str(v.answer) for v in verdicts]),
    ]
    runs = verdicts[0].over.launches
    return f"{title}, {runs} launches of each in turn\n\n{grid.text(columns, None)}"


def _exit_code(verdicts: Sequence[Verdict], fail_on: Any) -> int:
    if fail_on is None:
        return int(ExitCode.OK)
    answer, least = fail_on
    bad = [v for v in verdicts if v.answer is answer and abs(v.over.ratio - 1) >= least]
    is_open = any(v.answer is Answer.UNDECIDED and v.over.half and v.over.half > least
                  for v in verdicts)  # fmt: skip
    return int(ExitCode.BENCH_FAILED if bad else ExitCode.INCONCLUSIVE if is_open else ExitCode.OK)

"""`usv-tui compare`: saved sessions against the first of them."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from usv_tui import plain
from usv_tui.cli.options import Parser, form
from usv_tui.errors import ExitCode, UsageError
from usv_tui.model import Answer

FACTS = ("card", "driver", "torch", "lock", "power cap", "cache", "timer", "mode", "pace")
_CONDITION = re.compile(r"\s*(slower|faster)\s*(?:>\s*(\d+(?:\.\d+)?)\s*%\s*)?")


def parser() -> Parser:
    """`usv-tui compare`."""
    made = Parser(
        prog="usv-tui compare",
        description="Saved sessions against the first: row by row, and only where they may be "
        "compared at all. A folder stands for repeated runs of one side: three a side get an "
        "interval that holds for the next run.",
    )
    made.add_argument("sessions", nargs="+", metavar="FILE.usv|FOLDER", help="two or more")
    made.add_argument("--to", type=form, choices=("table", "markdown", "json"), default="table")
    made.add_argument("-o", "--output", default="-", metavar="FILE", help="- is stdout")
    made.add_argument(
        "--fail-on",
        type=condition,
        metavar="'slower>2%%'",
        help="exit 1 when a row is, 6 when a row has no answer",
    )
    made.add_argument(
        "--across",
        type=_across,
        default=frozenset(),
        metavar="FACT,...",
        help=f"what is meant to differ: {', '.join(FACTS)}",
    )
    return made


def condition(value: str) -> tuple[Answer, float]:
    """`slower>2%`: the answer, and how much of it."""
    found = _CONDITION.fullmatch(value)
    if found is None:
        raise argparse.ArgumentTypeError(f"{value!r} is not like slower>2% or slower")
    return Answer(found[1]), float(found[2] or 0) / 100


def _across(value: str) -> frozenset[str]:
    names = frozenset(part.strip() for part in value.split(",") if part.strip())
    if unknown := sorted(names - set(FACTS)):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(FACTS)}")
    return names


def run(args: argparse.Namespace, width: int | None, show: Callable[[str], object]) -> int:
    """Compare, show, and say by the exit code what `--fail-on` asks.

    Raises:
        UsageError: fewer than two sides, or one that cannot be read.
    """
    from usv_tui.report import comparison as report
    from usv_tui.session import comparison, opened, outputs

    if len(args.sessions) < 2:
        raise UsageError("one session has nothing to be compared with", "give two or more")
    paths = [Path(text) for text in args.sessions]
    sides = [
        comparison.Side(label, [opened.open_session(file) for file in opened.session_files(path)])
        for label, path in zip(_labels(paths), paths, strict=True)
    ]
    made = comparison.compare_sides(sides, across=args.across)
    failed = None
    if args.fail_on is not None:
        limit = comparison.Condition(*args.fail_on)
        failed = [row for row in made.rows if limit.fails(row.found)]
    if args.to == "json":
        text = json.dumps(report.as_data(made, failed), allow_nan=False)
    else:
        text = report.render(made, is_markdown=args.to == "markdown", width=width)
    if args.output == "-":
        show(text)
    else:
        lines = plain.lines(text, most=1_000_000) + "\n"
        outputs.write_whole(Path(args.output), args.to, lambda out: out.write(lines))
    if failed is None:
        return int(ExitCode.OK)
    if failed:
        return int(ExitCode.BENCH_FAILED)
    is_open = not made.rows or any(r.found.answer is Answer.UNDECIDED for r in made.rows)
    return int(ExitCode.INCONCLUSIVE if is_open else ExitCode.OK)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Short names that tell the sides apart."""
    stems = [path.stem or str(path) for path in paths]
    return [
        stem if stems.count(stem) == 1 else str(path)
        for stem, path in zip(stems, paths, strict=True)
    ]

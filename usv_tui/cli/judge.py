"""`usv-tui judge`: submissions against a problem's reference, as a run like any other."""

import argparse
import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from usv_tui.cli.options import Parser, add_run_options
from usv_tui.errors import UsageError


def parser() -> Parser:
    """`usv-tui judge`."""
    made = Parser(
        prog="usv-tui judge",
        description="Submissions against a problem's reference: a folder with task.yml and "
        "reference.py (GPU MODE; submissions define custom_kernel), or a file with Model and "
        "get_inputs (KernelBench; submissions define ModelNew). Fresh inputs, the problem's own "
        "check during the run, verdicts with --json-lines -.",
    )
    made.add_argument("problem", metavar="DIR_OR_REF")
    made.add_argument("submissions", nargs="+", metavar="SUBMISSION")
    made.add_argument(
        "-k", dest="select", action="append", default=[], metavar="PATTERN", help="only such rows"
    )
    add_run_options(made)
    return made


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, as those of a run of a file that declares the problem.

    Raises:
        UsageError: a file is missing, or the problem is none.
    """
    args = parser().parse_args(argv)
    problem = Path(args.problem)
    if problem.is_dir() and not all((problem / f).is_file() for f in ("task.yml", "reference.py")):
        raise UsageError(f"{problem} is no problem", "it has task.yml and reference.py")
    for path in (problem, *map(Path, args.submissions)):
        if not path.exists():
            raise UsageError(f"{path}: no such file")
    submissions = [str(Path(p).resolve()) for p in args.submissions]
    folder = Path(tempfile.mkdtemp(prefix="usv-judge-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / f"judge_{problem.resolve().stem}.py"
    file.write_text(
        "from usv_tui.suite.problems import declare\n\n"
        f"declare(__name__, {str(problem.resolve())!r}, {submissions!r})\n",
        encoding="utf-8",
    )
    args.file, args.version = str(file), False
    return args

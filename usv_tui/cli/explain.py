"""`usv-tui explain`: what a code of a verdict means, and what to do about it."""

import argparse
import difflib
from collections.abc import Callable

from usv_tui.cli.options import Parser
from usv_tui.errors import ExitCode, UsageError


def parser() -> Parser:
    """`usv-tui explain`."""
    made = Parser(
        prog="usv-tui explain", description="What a code means, and what to do. Without one: all."
    )
    made.add_argument("code", nargs="*", help="as in a verdict or under a table: stale-result")
    made.add_argument("--schema", action="store_true", help="the JSON schema of --json-lines")
    return made


def run(args: argparse.Namespace, show: Callable[[str], object]) -> int:
    """Explain.

    Raises:
        UsageError: there is no such code.
    """
    from importlib import resources

    from usv_tui.report.wording.codes import CODES, NOT_BELIEVABLE, code_of

    if args.schema:
        folder = resources.files("usv_tui.report.formats")
        show(folder.joinpath("verdicts.schema.json").read_text(encoding="utf-8"))
        return int(ExitCode.OK)
    wanted = code_of(" ".join(args.code))
    if wanted and wanted not in CODES:
        near = difflib.get_close_matches(wanted, CODES, 3)
        hint = f"near: {', '.join(near)}" if near else "usv-tui explain lists all"
        raise UsageError(f"no code is named {wanted!r}", hint)
    for name, code in CODES.items():
        if wanted in ("", name):
            kind = " (not believable)" if name in NOT_BELIEVABLE else ""
            show(f"{name}{kind}: {code.meaning}. What to do: {code.remedy}.")
    return int(ExitCode.OK)

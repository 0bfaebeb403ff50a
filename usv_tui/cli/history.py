"""`usv-tui history`: the sessions that are kept, one benchmark over them, and pruning."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from usv_tui.cli.options import Parser, positive_int
from usv_tui.errors import ExitCode, UsageError


def parser() -> Parser:
    """`usv-tui history`."""
    made = Parser(
        prog="usv-tui history",
        description="The sessions that are kept, newest first. None is ever deleted by itself.",
    )
    made.add_argument("folder", nargs="?", default=None, help="default: where runs are kept")
    made.add_argument("-n", type=positive_int, default=20, metavar="N", help="how many (20)")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--plot", metavar="NAME", help="one benchmark over the sessions, as a plot")
    what.add_argument(
        "--prune", metavar="LIMIT", help="list those older than 30d, or beyond 2GB in all"
    )
    made.add_argument("--yes", action="store_true", help="with --prune: delete them")
    return made


def run(args: argparse.Namespace, width: int | None, show: Callable[[str], object]) -> int:
    """Show, or delete what was asked for.

    Raises:
        UsageError: no such folder, a limit that is none, or nothing to show.
    """
    from usv_tui.report import history as report
    from usv_tui.session import history, journal
    from usv_tui.units import bytes_text

    if args.yes and not args.prune:
        raise UsageError("--yes goes with --prune", "usv-tui history --prune 30d --yes")
    folder = journal.sessions_dir() if args.folder is None else Path(args.folder)
    kept = history.kept_in(folder)
    if args.prune:
        ours = history.prunable(kept)
        old = history.to_prune(ours, args.prune, time.time_ns())
        for each in old:
            show(f"{report.when(each.changed_unix_ns)}  {each.path}")
            if args.yes:
                _delete(each.path)
                if each.log is not None:
                    _delete(each.log)
        size = bytes_text(sum(each.size_bytes for each in old))
        did = "deleted" if args.yes else "would be deleted (--yes deletes them)"
        show(f"{len(old)} of {len(ours)} sessions, {size}, {did}")
        if len(kept) > len(ours):
            show(f"{len(kept) - len(ours)} more stay: being written, or no session")
        return int(ExitCode.OK)
    if not kept:
        raise UsageError(f"{folder} holds no session", "usv-tui FILE keeps one a run")
    if args.plot is None:
        show(report.table([history.tell(each) for each in kept[: args.n]], width))
        if len(kept) > args.n:
            show(f"and {len(kept) - args.n} older: -n {len(kept)}")
        return int(ExitCode.OK)
    points = history.points(kept[: args.n], args.plot)
    if not points:
        raise UsageError(
            f"none of the {min(len(kept), args.n)} newest sessions times {args.plot!r}",
            "names as in the table, with their parameters",
        )
    show(report.plot(args.plot, points, width))
    return int(ExitCode.OK)


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot delete {path}: {error.strerror}") from None

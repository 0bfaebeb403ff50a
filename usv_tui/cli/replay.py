"""`usv-tui [open] FILE.usv`, `show`, `replay` and `watch`: the screen over a saved session."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from usv_tui.cli.options import Parser
from usv_tui.cli.terminal import why_no_screen
from usv_tui.errors import UsageError, closest


def parser(verb: str) -> Parser:
    """`usv-tui open`, `show`, `replay` and `watch`."""
    words = {
        "open": "A saved session on the screen, at its end.",
        "replay": "A saved session on the screen, played from its first sample.",
        "watch": "A session that is being written, on a second screen; it is only read.",
        "show": "A saved session on the screen, at its end.",
    }
    made = Parser(prog=f"usv-tui {verb}", description=words[verb])
    made.add_argument("session", metavar="FILE.usv")
    made.add_argument("--baseline", metavar="OLD.usv", help="show another session's values beside")
    made.add_argument("--fps", type=float, default=4.0, metavar="N", help="frames a second (4)")
    made.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    made.add_argument("--mouse", action="store_true", help="take the mouse")
    return made


def _meant(path: Path) -> str:
    """The session that a wrong name may stand for: beside it, or among those that are kept."""
    from usv_tui.session import journal

    kept = [p for folder in (path.parent, journal.sessions_dir()) for p in _sessions_in(folder)]
    meant = closest(path.name, [p.name for p in kept])
    return meant or "usv-tui history lists those that are kept"


def _sessions_in(folder: Path) -> list[Path]:
    try:
        return list(folder.glob("*.usv"))
    except OSError:
        return []


def run(args: argparse.Namespace, verb: str, without_screen: Callable[[str], int]) -> int:
    """Show it; returns the exit code. Without a terminal, its table.

    Raises:
        UsageError: it cannot be read, or is no session.
    """
    from usv_tui.session import journal

    path = Path(args.session)
    if not os.path.lexists(path):
        raise UsageError(f"{path}: no such file", _meant(path))
    journal.check(path)
    why = why_no_screen()
    if why:
        return without_screen(why)
    from usv_tui.session.comparison import ghosts_of
    from usv_tui.session.replay import Playhead, ReplaySession
    from usv_tui.tui.app import ScreenOptions, run_screen

    playhead = Playhead()
    options = ScreenOptions(
        title=path.name,
        fps=args.fps,
        ascii_only=True if args.ascii else None,
        mouse=args.mouse,
    )

    def connect() -> ReplaySession:
        session = ReplaySession(
            path, playhead, at_end=verb in ("open", "show"), follow=verb == "watch"
        )
        if args.baseline is not None:
            session.show_ghosts(ghosts_of(Path(args.baseline)))
        return session

    return run_screen(connect, options, playhead).exit_code

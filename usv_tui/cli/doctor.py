"""`usv-tui doctor`: the terminal's part of the report, and how it is printed."""

import locale
import os
import shutil
from typing import TextIO

from usv_tui import plain
from usv_tui.cli.machine import diagnose
from usv_tui.cli.machine_report import Check, Status, to_json, to_text
from usv_tui.cli.options import Parser
from usv_tui.cli.terminal import why_no_screen
from usv_tui.session.journal import sessions_dir


def parser() -> Parser:
    """`usv-tui doctor`."""
    made = Parser(prog="usv-tui doctor", description="What this machine offers.")
    made.add_argument("--json", action="store_true")
    made.add_argument("--device", default="auto", metavar="D")
    return made


def run(device: str, *, as_json: bool, out: TextIO) -> int:
    """Print the report; 0 when the main job can run."""
    report = diagnose(device, terminal=terminal_checks(), state_dir=sessions_dir().parent)
    out.write(to_json(report).decode() if as_json else plain.lines(to_text(report)))
    out.flush()
    return int(report.exit_code)


def terminal_checks() -> list[Check]:
    """Can the screen be shown, in which colours and characters."""
    why = why_no_screen()
    columns, lines = shutil.get_terminal_size((0, 0))
    encoding = locale.getpreferredencoding(do_setlocale=False)
    is_utf8 = encoding.lower().replace("-", "") == "utf8"
    checks = [
        Check(
            name="screen",
            status=Status.NOTE if why else Status.OK,
            value="headless only" if why else f"{columns}x{lines}",
            why=why,
            mend="run it in an interactive terminal (ssh -t, tmux)" if why else "",
        ),
        Check(
            name="characters",
            status=Status.OK if is_utf8 else Status.NOTE,
            value=encoding,
            why="" if is_utf8 else "braille and blocks need UTF-8: drawn in ASCII",
            mend="" if is_utf8 else "export LC_ALL=C.UTF-8",
        ),
    ]
    if "NO_COLOR" in os.environ:
        colours = "none (NO_COLOR)"
    elif os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        colours = "24 bit"
    else:
        colours = "256" if "256" in os.environ.get("TERM", "") else "16"
    checks.append(Check(name="colours", status=Status.OK, value=colours))
    if "TMUX" in os.environ:
        checks.append(
            Check(
                name="tmux",
                status=Status.OK,
                value="yes",
                why="focus-events on lets the screen rest while you look elsewhere",
            )
        )
    return checks

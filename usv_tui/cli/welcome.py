"""`usv-tui` alone: what it can do, and the sessions that were measured last."""

import time

from usv_tui import plain
from usv_tui.session import journal

_RECENT = 5
_HEAD = """\
usv-tui times a file of callables, interleaved, beside the device's clock, temperature and power.

  usv-tui FILE.py            time it on the screen      usv-tui init       a file to start from
  usv-tui demo               a simulated GPU            usv-tui doctor     what this machine offers
  usv-tui compare A B        two saved sessions         usv-tui --help     everything else
"""


def text() -> str:
    """The page."""
    try:
        found = journal.sessions_dir().glob("*.usv")
        kept = [(path.stat().st_mtime, path) for path in found]
    except OSError:
        kept = []
    if not kept:
        return _HEAD.rstrip()
    lines = ["last sessions (usv-tui FILE.usv shows one, usv-tui history all):"]
    for at_s, path in sorted(kept, reverse=True)[:_RECENT]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
        lines.append(f"  {when}  {plain.line(str(path))}")
    return _HEAD + "\n" + "\n".join(lines)

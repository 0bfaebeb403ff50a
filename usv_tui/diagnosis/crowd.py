"""Who has the processors: load, cores, and the programs that run at this moment."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from usv_tui import plain

_MOST_NAMES = 4
_MOST_PROCESSES = 4096


def crowd(root: Path = Path("/proc")) -> dict[str, Any]:
    """Load of the last minute, cores for us, and names of others that run now, as far as known."""
    has_mask = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1
    found: dict[str, Any] = {"cores": cores}
    try:
        found["load"] = float((root / "loadavg").read_text().split()[0])
        names = _running(root)
    except (OSError, ValueError, IndexError):
        return found
    if names:
        found["running"] = names
    return found


def _running(root: Path) -> list[str]:
    """The programs in the state `running` but ours, those of most processes first."""
    own, counts = str(os.getpid()), Counter[str]()
    with os.scandir(root) as entries:
        pids = [entry.name for entry in entries if entry.name.isdigit()]
    for pid in pids[:_MOST_PROCESSES]:
        name, state = _stat(root / pid / "stat")
        if state == "R" and pid != own:
            counts[name] += 1
    return [plain.cut(plain.line(name), 40) for name, _ in counts.most_common(_MOST_NAMES)]


def _stat(path: Path) -> tuple[str, str]:
    """A process's name and state; empty for one that is gone."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return "", ""
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()[0] if rest.split() else ""

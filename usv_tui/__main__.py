"""`usv-tui` and `python -m usv_tui`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` searches the current directory first: it may hold a module of any name.
    sys.path.append(sys.path.pop(0))

import os
import threading
import time

from usv_tui.cli import main as cli
from usv_tui.cli.voice import say

_PATIENCE_S = 3.0
"""How long threads and processes that a benchmark file left running may take to end."""

_MAY_HANG = ("torch", "usv_tui.engine.worker")
"""Who has run a benchmark file, or loaded a driver, may not come to an end."""


def main() -> int:
    """Run the command line; returns the exit code, and leaves whatever still runs behind."""
    code = cli.main()
    left = _left_behind()
    if any(name in sys.modules for name in _MAY_HANG):
        from usv_tui.cli import ending  # noqa: PLC0415  the others need no ctypes

        ending.bound(code)
    if left:
        threading.Thread(target=_leave, args=(code, left), daemon=True).start()
    return code


def _left_behind() -> list[str]:
    """What Python would wait for before it ends: the file's threads and processes."""
    here = threading.main_thread()
    names = [t.name for t in threading.enumerate() if t is not here and not t.daemon]
    processes = sys.modules.get("multiprocessing")
    if processes is not None:
        names += [p.name for p in processes.active_children() if not p.daemon]
    return names


def _leave(code: int, left: list[str]) -> None:
    time.sleep(_PATIENCE_S)  # noqa: TID251  the interpreter is ending: there is no time source
    say(f"usv-tui: not waited for: {', '.join(left[:5])}, still running in the benchmark file")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())

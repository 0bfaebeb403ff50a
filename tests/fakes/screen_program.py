"""A program with the screen in it, for tests that give it a real terminal.

Shows the synthetic session of `tests.fakes.screen` as if it ran now. What came of it is written as
JSON to the file named by RESULT; options for the screen come as JSON in OPTIONS.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from usv_tui.tui.app import ScreenOptions, run_screen

BEGAN_NS = time.perf_counter_ns()


class ShiftedTime:
    """Real time, beginning a minute into the session."""

    def now_ns(self):
        return 1060 * 10**9 + time.perf_counter_ns() - BEGAN_NS

    def wait(self, event, timeout_ns):
        return event.wait(timeout_ns / 1e9)


def connect():
    """The session, and a note whether numpy was there already."""
    result["numpy_before_connect"] = "numpy" in sys.modules
    from tests.fakes import screen

    controller = screen.session()
    controller.store.is_moving = True
    print("a print of the user's code")
    return controller


result: dict[str, Any] = {}


def main():
    """Show it, and write down how it went."""
    options = json.loads(os.environ.get("OPTIONS", "{}"))
    began = time.thread_time()
    try:
        end = run_screen(connect, ScreenOptions(title="attn.py", **options), ShiftedTime())
        result["end"] = list(end)
    except OSError as error:
        result["error"] = str(error)
    result["cpu_s"] = time.thread_time() - began
    Path(os.environ["RESULT"]).write_text(json.dumps(result), encoding="utf-8")
    print(result.get("end"))
    sys.exit(result["end"][1] if "end" in result else 99)


if __name__ == "__main__":
    main()

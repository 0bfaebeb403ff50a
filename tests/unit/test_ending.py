"""The process ends, whatever a library does while it should."""

import subprocess
import sys
import time

import pytest

PROGRAM = """
import atexit, ctypes, sys, time
from usv_tui.cli import ending
print("the table")
assert ending.bound(6, 0.3)
{hang}
sys.exit(6)
"""
HANGS = {
    "nothing hangs": "",
    "Python": "atexit.register(time.sleep, 60)",
    "Python, which gives nobody a turn": "atexit.register(lambda: [0 for _ in iter(int, 1)])",
    "C": "libc = ctypes.CDLL(None); libc.__cxa_atexit(libc.pause, None, None)",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_process_ends_with_its_code_and_says_what_it_did_not_wait_for(name: str) -> None:
    """Also long after Python has ended; what was printed before is not lost."""
    start = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(hang=HANGS[name])],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.returncode == 6
    assert ran.stdout == "the table\n"
    assert time.monotonic() - start < 40
    said = "usv-tui: the process did not end by itself"
    assert ran.stderr.startswith(said) if HANGS[name] else not ran.stderr

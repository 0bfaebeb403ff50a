"""A stand-in for AMD's package that is as hostile as the real one; put its folder on the path.

FAKE_AMDSMI holds words: print, keyerror, attributeerror, oserror, importerror (at import);
code=N (init fails), major=N (library version), old (version keys of release 6), hang.
FAKE_AMDSMI_CALLS names a file that gets a line for every struct-filling call.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

_words = os.environ.get("FAKE_AMDSMI", "").split()
_facts = dict(word.split("=") for word in _words if "=" in word)

if "print" in _words:
    print("print from Python")
    print("to stderr", file=sys.stderr)
    os.write(1, b"write to 1\n")
    os.write(2, b"write to 2\n")
    subprocess.run(["echo", "from a child"], check=False)
for _word, _error in (
    ("keyerror", KeyError("libamd_smi.so")),
    ("attributeerror", AttributeError("undefined symbol: amdsmi_free_name_value_pairs")),
    ("oserror", OSError("libamd_smi.so: cannot open shared object file")),
    ("importerror", ImportError("bad magic")),
):
    if _word in _words:
        raise _error

__version__ = _facts.get("package", "7.0.2")


class AmdSmiLibraryException(Exception):
    def __init__(self, err_code):
        super().__init__(f"Error code: {err_code}")
        self.err_code = err_code


class AmdSmiInitFlags:
    INIT_AMD_GPUS = 2


def amdsmi_init(flags):
    """Start, or fail with the code that was asked for."""
    if "hang" in _words:
        threading.Event().wait(30)
    if "print" in _words:
        os.write(2, b"Exception caught: rsmi_init.\n")
    if "code" in _facts:
        raise AmdSmiLibraryException(int(_facts["code"]))


def amdsmi_shut_down():
    """Stop; noted in the calls file."""
    _called("shut_down")


def amdsmi_get_lib_version():
    """The library's version in the keys of its release."""
    major = int(_facts.get("major", 26))
    if "old" in _words:
        return {"year": 24, "major": major, "minor": 1}
    return {"major": major, "minor": 1, "release": 0, "build": "2"}


def _called(name):
    path = os.environ.get("FAKE_AMDSMI_CALLS")
    if path:
        with Path(path).open("a") as file:
            file.write(f"{name}\n")

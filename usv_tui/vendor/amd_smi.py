"""Loads AMD's `amdsmi` package without letting it hurt, for the doctor to say what is there.

Importing it without its library prints to the terminal and raises KeyError; a binding and a
library of different releases disagree about the sizes of structs, which ends in an abort that no
`except` catches. So it is imported with the descriptors 1 and 2 turned away, and no call that
fills a struct is made before the pair of versions is known to fit.
"""

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from usv_tui.errors import TelemetryError, TelemetryOff

FITTING = {26: ("7.0",), 27: ("10.",)}
"""Library majors and the releases of the Python package that were built for them."""
DRIVER_NOT_LOADED = (34, 51)

_only_one = threading.Lock()


@contextlib.contextmanager
def turned_away() -> Iterator[Callable[[], str]]:
    """Send what anybody writes to descriptors 1 and 2, or prints, into a file meanwhile.

    Both the C library and Python code print, so both levels are redirected. It is process-wide:
    keep it short. Yields a function that tells what was written so far.
    """
    with _only_one, tempfile.TemporaryFile() as sink:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        kept = [_duplicate(number) for number in (1, 2)]
        text = os.fdopen(os.dup(sink.fileno()), "w", errors="replace")

        def said() -> str:
            text.flush()
            return os.pread(sink.fileno(), 1 << 16, 0).decode("utf-8", "replace").strip()

        try:
            for number in (1, 2):
                os.dup2(sink.fileno(), number)
            with text, contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                yield said
        finally:
            # What C code has printed into its own buffer would come out later, on the terminal.
            ctypes.CDLL(None).fflush(None)
            for number, copy in zip((1, 2), kept, strict=True):
                if copy is None:
                    os.close(number)
                else:
                    os.dup2(copy, number)
                    os.close(copy)


def _duplicate(number: int) -> int | None:
    """A copy of a descriptor; None when it is closed."""
    try:
        return os.dup(number)
    except OSError:
        return None


class AmdSmi:
    """An initialised `amdsmi`, known to fit its library."""

    def __init__(self, api: Any, version: str, library_major: int, said: str) -> None:
        self.api = api
        self.version = version
        self.library_major = library_major
        self.said = said
        """What the import and the init wrote to the terminal that they were not given."""

    def close(self) -> None:
        """Shut the library down. Never raises."""
        with turned_away(), contextlib.suppress(Exception):
            self.api.amdsmi_shut_down()


def load_amdsmi() -> AmdSmi:
    """Import, check and initialise `amdsmi`.

    Raises:
        TelemetryOff: not installed, without its library, of another release than its library,
            or no driver; the message says which, and how to mend it.
        TelemetryError: it failed now.
    """
    with turned_away() as written:
        try:
            api, failure = importlib.import_module("amdsmi"), None
            api.amdsmi_init(api.AmdSmiInitFlags.INIT_AMD_GPUS)
        except Exception as error:  # noqa: BLE001  KeyError, AttributeError, OSError, its own
            failure = error
        said = written()
    if failure is not None:
        raise _translated(failure, said) from failure
    version = _package_version(api)
    major = _library_major(api)
    smi = AmdSmi(api, version, major, said)
    if not any(version.startswith(release) for release in FITTING.get(major, ())):
        smi.close()
        raise TelemetryOff(
            f"amdsmi {version} does not fit libamd_smi {major}",
            "install the Python half that came with your ROCm: pip install /opt/rocm/share/amd_smi",
        )
    return smi


def _translated(error: Exception, said: str) -> TelemetryError:
    code = getattr(error, "err_code", None)
    if isinstance(error, ModuleNotFoundError):
        return TelemetryOff("amdsmi is not installed", "sysfs is read without it")
    if code in DRIVER_NOT_LOADED:
        return TelemetryOff("amdgpu driver not loaded", "modprobe amdgpu, or reboot")
    if code is not None:
        return TelemetryError(f"amdsmi does not start: {error} ({code})")
    if isinstance(error, AttributeError):
        return TelemetryOff(f"amdsmi and libamd_smi do not match: {error}", "reinstall both")
    first = said.splitlines()[0] if said else f"{type(error).__name__}: {error}"
    return TelemetryOff(f"amdsmi cannot be used: {first}", "sysfs is read without it")


def _package_version(api: Any) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("amdsmi")
    return str(getattr(api, "__version__", "unknown"))


def _library_major(api: Any) -> int:
    """The library's major version, 0 when it does not tell (releases before 7)."""
    try:
        version = api.amdsmi_get_lib_version()
        return int(version.get("major", 0)) if "release" in version else 0
    except Exception:  # noqa: BLE001  no answer is an answer: it does not fit
        return 0

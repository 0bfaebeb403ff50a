"""What can go wrong, and the exit code of each.

UsvError
├── UsageError         2  a flag, a file or a value of the user's
│   └── SuiteError     2  the benchmark file
├── DeviceError        3  no such device
│   └── TimerError     3  the timer that was asked for cannot be had here
├── ClockError         5  clocks could not be restored
│   ├── ClockRefused   7  the driver or the rights say no; nothing was changed
│   └── ClockBusy      7  somebody else holds the lease; nothing was changed
└── TelemetryError     -  a sensor layer; never ends a run
    ├── SensorGap      -  transient: ask again
    ├── TelemetryOff   -  off for the rest of the run
    └── DeviceLost     -  the device is gone: its numbers end here
"""

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The program's exit codes; 128+n means that signal n ended the run."""

    OK = 0
    BENCH_FAILED = 1
    USAGE = 2
    NO_DEVICE = 3
    WORKER_LOST = 4
    CLOCKS_NOT_RESTORED = 5
    INCONCLUSIVE = 6
    CLOCKS_REFUSED = 7


def closest(word: str, known: Iterable[str]) -> str:
    """`did you mean X?` for a word that is like one of the known ones; else an empty string."""
    like = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"did you mean {like[0]}?" if like else ""


class UsvError(Exception):
    """An error with one line for the user: what is wrong, where, and how to mend it."""

    exit_code = ExitCode.BENCH_FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        # Some quote an error of somebody else's, which may have lines.
        self.message = " ".join(line.strip() for line in message.splitlines())
        self.hint = " ".join(line.strip() for line in hint.splitlines())
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(UsvError):
    """The command line or a value in it."""

    exit_code = ExitCode.USAGE


class SuiteError(UsageError):
    """The benchmark file."""


class DeviceError(UsvError):
    """The device that was asked for is not here."""

    exit_code = ExitCode.NO_DEVICE


class TimerError(DeviceError):
    """The timer that was asked for cannot be had on this machine."""


class ClockError(UsvError):
    """Clocks could not be restored."""

    exit_code = ExitCode.CLOCKS_NOT_RESTORED


class ClockRefused(ClockError):
    """The clocks could not be set; the device is as it was before."""

    exit_code = ExitCode.CLOCKS_REFUSED


class ClockBusy(ClockError):
    """Another process holds the lease on this device's clocks; nothing was changed."""

    exit_code = ExitCode.CLOCKS_REFUSED


class TelemetryError(UsvError):
    """A sensor layer failed; measuring goes on without it."""


class SensorGap(TelemetryError):
    """Nothing to read this time; ask again later."""


class TelemetryOff(TelemetryError):
    """There is no telemetry here, and asking again by ourselves would not help."""


class DeviceLost(TelemetryError):
    """The device fell off the bus or needs a reset."""


def one_line(error: BaseException) -> str:
    """An exception in a line: its class and the first line of its text; of ours its text alone."""
    name = type(error).__name__
    if name == "BdbQuit":
        return "BdbQuit: the debugger found no keyboard: benchmarks have no stdin"
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  the text is made by the user's class
        text = f"its text raises {type(failure).__name__}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "only works in main thread" in lines[0]:
        lines[0] += " (with --isolate the benchmarks have one)"
    if lines and isinstance(error, UsvError):
        return lines[0]
    return f"{name}: {lines[0]}" if lines else name

"""The command line: what may be asked for, checked before anything heavy is imported."""

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from usv_tui import plain
from usv_tui.errors import UsageError, closest

COMMANDS = (
    *("run", "list", "init", "export", "compare", "ab", "history", "open", "show", "replay"),
    *("watch", "demo", "doctor", "clocks", "lie", "explain", "judge", "completion", "serve"),
)

_EPILOG = """\
commands:
  usv-tui [run] FILE|DIR ...   time the benchmarks of files on the screen (or headless)
  usv-tui SCRIPT [ITS ARGS]    a script that times with triton, torch, … as it is, live
  usv-tui pytest [ITS ARGS]    a pytest-benchmark suite
  usv-tui init [NAME]          a commented benchmark file to start from, or a shipped one
  usv-tui list FILE            what FILE would time, and what it would not, and why
  usv-tui demo [SCENARIO]      the same screen on a simulated GPU (demo --list)
  usv-tui lie FILE             what timing without synchronising would have told
  usv-tui judge DIR|REF FILE   submissions against a problem's reference
  usv-tui explain CODE         what a verdict's code means, and what to do
  usv-tui export FILE.usv      a saved session as JSON or CSV
  usv-tui compare A B          saved sessions against the first, where they may be compared
  usv-tui ab BASE [HEAD] FILE  is this version faster? two of them, turn by turn
  usv-tui history [FOLDER]     the sessions that are kept; --plot NAME, --prune 30d
  usv-tui [open] FILE.usv      a saved session on the same screen, at its end (also: show)
  usv-tui replay FILE.usv      the same, played from its first sample
  usv-tui watch FILE.usv       a session that is being written, on a second screen
  usv-tui clocks               clock state, lock, unlock, restore
  usv-tui clocks sweep FILE    which clock to lock at, found by measuring at each
  usv-tui serve FILE|FILE.usv  the same screen in a browser of this machine
  usv-tui completion SHELL     what bash, zsh or fish need to complete all this
  usv-tui doctor               what this machine offers, what is missing, how to mend it

exit codes: 0 ok, 1 a benchmark failed, 2 usage or bad file, 3 no such device,
4 the measuring worker was lost, 5 clocks not restored, 6 inconclusive,
7 clocks not locked as asked, 128+n signal n
"""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        """One line with what is wrong, what was perhaps meant, and where to read more."""
        known = self._option_string_actions
        words = (word.partition("=")[0] for word in message.split() if word.startswith("--"))
        meant = next((closest(word, known) for word in words if word not in known), "")
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            meant = closest(choice[1], re.findall(r"[\w:-]+", choice[2]))
        raise UsageError(message, f"{meant} {self.prog} --help".lstrip())


_LONGEST_S = 1e9
"""Thirty years, which nanoseconds in 64 bits can count."""
_LEAST_KEPT = 1 << 16
_MOST = 1 << 62
"""A larger whole number could not be saved."""


def form(text: str) -> str:
    """The name of a form of export; some have a short one."""
    return {"md": "markdown"}.get(text, text)


def positive_float(text: str) -> float:
    """A finite number above zero."""
    value = _number(text)
    if not value > 0 or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return _bounded(value, _LONGEST_S, text)


def _bounded(value: float, most: float, text: str) -> float:
    if value > most:
        raise argparse.ArgumentTypeError(f"{_short(text)} is too large: at most {most:g}")
    return value


def non_negative_float(text: str) -> float:
    """A finite number of at least zero."""
    value = _number(text)
    if value < 0 or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return _bounded(value, _LONGEST_S, text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a number") from None


def positive_int(text: str) -> int:
    """A whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a whole number above 0")
    _bounded(value, _MOST, text)
    return value


def whole_number(text: str) -> int:
    """A whole number of at least zero."""
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a whole number of at least 0")
    return 0 if not int(text) else positive_int(text)


def data_size(text: str) -> int:
    """Bytes, from a number with K, M, G or T behind it."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a size such as 500M or 2G")
    size = float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")
    _bounded(size, _MOST, text)
    if size < _LEAST_KEPT:
        raise argparse.ArgumentTypeError(f"{_short(text)} is less than 64K, a session's beginning")
    return int(size)


def seed(text: str) -> int:
    """A whole number that can be saved."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a whole number") from None
    _bounded(abs(value), _MOST, text)
    return value


def _short(text: str) -> str:
    return plain.line(text, 40) or "''"


def inner_count(text: str) -> int | None:
    """Calls a window; `auto` is None."""
    return None if text == "auto" else positive_int(text)


def window_s(text: str) -> float:
    """Seconds that a window may be meant to last."""
    value = positive_float(text)
    if value > 10:
        raise argparse.ArgumentTypeError(f"{text} s is too long for one window: at most 10")
    return value


def lock_target(text: str) -> str:
    """A clock in MHz, `base` or `advice`."""
    word = text.strip().lower()
    number = word.removesuffix("mhz").strip()
    is_mhz = number.isascii() and number.isdigit() and len(number) < 7 and int(number)
    if word in ("base", "advice") or is_mhz:
        return word
    raise argparse.ArgumentTypeError(f"{_short(text)} is not a clock: MHz, base or advice")


def _frames(text: str) -> float:
    value = positive_float(text)
    if value > 10:
        raise argparse.ArgumentTypeError(f"{text} is too many: at most 10 frames a second")
    return value


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What every way of measuring takes."""
    how = parser.add_argument_group("how to measure")
    add: Callable[..., object] = how.add_argument
    add(
        "--device",
        default="auto",
        metavar="D",
        help="cpu, cuda[:N], xpu, mps, another accelerator of torch's, sim:CARD[:SCENARIO]",
    )
    add(
        "--timer",
        choices=("auto", "torch", "wall"),
        default="auto",
        help="torch = device events, wall = host clock (default: events on a GPU, else wall)",
    )
    add(
        "--inner",
        type=inner_count,
        default=None,
        metavar="N",
        help="calls a window; auto (default) fills --target-window",
    )
    add(
        "--target-window",
        type=window_s,
        default=None,
        metavar="S",
        help="seconds a window should last (default: 0.001, or what gives the narrowest ratio)",
    )
    add(
        "--warmup",
        type=non_negative_float,
        default=10.0,
        metavar="S",
        help="warm-up ends when the rows have levelled, at the latest after S (default 10)",
    )
    add(
        "--seed",
        type=seed,
        default=None,
        metavar="N",
        help="seed of the shuffle (default: a new one, shown and saved)",
    )
    add(
        "--cache",
        choices=("warm", "as-is", "cold"),
        default="warm",
        help="warm: the row runs untimed right before its window; as-is: whatever its neighbours "
        "left; cold: the last-level cache is flushed before every sample",
    )
    add("--flush-mb", type=positive_int, default=None, metavar="MB", help="size of the flush")
    add("--pace", default="steady", metavar="P", help="steady, burst:ON_MS,OFF_MS or cool:C")
    add("--graph", action="store_true", help="time replays of a CUDA/HIP graph")
    add("--blocker", action="store_true", help="hold the device while a window is enqueued")
    add(
        "--control",
        action="store_true",
        help="time the baseline twice: a control row that must not differ",
    )
    add(
        "--realloc",
        type=whole_number,
        default=None,
        metavar="N",
        help="build the rows afresh at most N times in a run, so that ratios cover where buffers "
        "lie (default: 7 with --control, and for rows with a quick set-up and a ratio within 3 %%; "
        "0: never)",
    )
    add("--isolate", action="store_true", help="measure in a process of its own")
    add("--no-telemetry", action="store_true", help="do not read any sensor")
    add(
        "--lock",
        type=lock_target,
        default=None,
        metavar="MHZ",
        help="lock the clock for this run: MHZ, base or advice",
    )
    add("--keep-lock", action="store_true", help="leave the clock locked at the end")
    add(
        "--force",
        action="store_true",
        help="lock in spite of a suspected foreign lock or other processes on the device",
    )
    stop = parser.add_argument_group("when to stop")
    add = stop.add_argument
    add("--iters", type=positive_int, default=None, metavar="N", help="samples a row")
    add(
        "--row-timeout",
        type=positive_float,
        default=300.0,
        metavar="S",
        help="seconds for the import, and for each set-up and call, after which that row is given "
        "up and the others go on (default 300)",
    )
    add("--max-time", type=positive_float, default=None, metavar="S", help="seconds of measuring")
    add(
        "--until",
        default=None,
        metavar="T",
        help="a precision: 'ratio±0.5%%' or '±0.5%%' of every median (+- works too)",
    )
    out = parser.add_argument_group("what to show and keep")
    add = out.add_argument
    add(
        "--headless",
        action="store_true",
        help="no screen: narration on stderr, table on stdout (stops after 10 s unless told)",
    )
    add("--json", default=None, metavar="FILE", help="data of the run as JSON; - is stdout")
    add("--csv", default=None, metavar="FILE", help="one line a sample as CSV; - is stdout")
    add(
        "--json-lines",
        default=None,
        metavar="FILE",
        help="a verdict a row, and one of the run, as JSON lines; - is stdout",
    )
    add("--markdown", action="store_true", help="the final table in Markdown")
    add("--save", default=None, metavar="PATH", help="where the session is kept")
    add(
        "--keep",
        type=data_size,
        default=None,
        metavar="SIZE",
        help="the session's file grows to this size and no further (500M, 2G); the run goes on",
    )
    add("--no-save", action="store_true", help="keep no session file")
    add(
        "--window",
        type=positive_int,
        default=1000,
        metavar="N",
        help="size of the rolling window in samples (default 1000)",
    )
    add(
        "--baseline",
        default=None,
        metavar="ROW|FILE.usv",
        help="compare all rows with this one; or show a saved session's values beside",
    )
    add("--fps", type=_frames, default=4.0, metavar="F", help="frames a second (default 4)")
    add("--ascii", action="store_true", help="no braille and no block characters")
    add("--mouse", action="store_true", help="take the mouse")
    add("--no-gate", action="store_true", help=argparse.SUPPRESS)


def run_parser() -> Parser:
    """`usv-tui FILE`."""
    parser = Parser(
        prog="usv-tui",
        description="Times a file of callables, interleaved, beside the device's clock, "
        "temperature and power.",
        epilog=textwrap.dedent(_EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", default=None, help="a Python file with benchmarks")
    parser.add_argument(
        "more", nargs="*", metavar="FILE", help="further ones; a folder stands for those in it"
    )
    parser.add_argument(
        "-k",
        dest="select",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only rows whose name holds or matches PATTERN; may be repeated",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument(
        "--as",
        dest="taken_as",
        choices=("script", "suite"),
        default=None,
        help="run FILE as the script that it is, or as a file of benchmarks (default: as a suite "
        "where it has benchmarks of its own)",
    )
    add_run_options(parser)
    return parser


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command and its arguments; empty: a file (or an option) comes first."""
    if argv and argv[0] in COMMANDS:
        return argv[0], list(argv[1:])
    return "", list(argv)

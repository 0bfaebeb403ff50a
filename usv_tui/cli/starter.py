"""`usv-tui init`: a benchmark file to start from."""

import argparse
from pathlib import Path

import usv_tui
from usv_tui.cli.options import Parser
from usv_tui.errors import UsageError, closest

_STARTER = '''\
"""Benchmarks for usv-tui: every callable below is timed in turn, in every round.

    usv-tui {name}
    usv-tui {name} --headless --max-time 20 --until "ratio±1%"
"""

from usv_tui import benchmark

N = 100_000


@benchmark(
    params={{"kind": ["loop", "builtin"]}},     # one row for each; or a list of dicts
    baseline={{"kind": "loop"}},                # what the others are compared with
    check=lambda mine, base: mine == base,      # a wrong result is never "faster"
    # flops=..., bytes=...                      # of one call: TFLOP/s and GB/s columns
)
def total(kind, device):                        # set-up, untimed; device is "cuda:0", "cpu", ...
    numbers = list(range(N))
    if kind == "builtin":
        return lambda: sum(numbers)             # what is timed

    def loop():
        found = 0
        for number in numbers:
            found += number
        return found

    return loop


# Plain callables work, too:
BENCHMARKS = {{"sorted": lambda: sorted(range(N, 0, -1))}}
'''
SHIPPED = ("attn", "matmul", "memory", "train_step", "sim_demo")
_PACKAGE = Path(usv_tui.__file__).parent
_HOMES = (_PACKAGE / "suites", _PACKAGE.parent / "benchmarks")
"""In a wheel, and in a checkout."""


def parser() -> Parser:
    """`usv-tui init`."""
    made = Parser(
        prog="usv-tui init",
        description="Writes a benchmark file to start from; nothing is ever replaced.",
    )
    made.add_argument(
        "name", nargs="?", default="bench.py", help="the file (bench.py), or a shipped suite's name"
    )
    made.add_argument(
        "--from", dest="shipped", metavar="SUITE", help=f"a shipped one: {', '.join(SHIPPED)}"
    )
    return made


def write(args: argparse.Namespace) -> str:
    """Write the file; returns what to do with it.

    Raises:
        UsageError: no such suite, the file exists, or it cannot be written.
    """
    path = Path(args.name)
    if path.suffix != ".py":
        path = path.with_name(f"{path.name}.py")
    shipped = args.shipped or (args.name if args.name in SHIPPED else None)
    text = _STARTER.format(name=path) if shipped is None else _shipped(shipped)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already: it is not replaced", "another name") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return f"{path} written. Next: usv-tui {path}"


def _shipped(name: str) -> str:
    if name not in SHIPPED:
        known = f"{closest(name, SHIPPED)} there are: {', '.join(SHIPPED)}".lstrip()
        raise UsageError(f"no shipped suite {name!r}", known)
    for home in _HOMES:
        file = home / f"{name}.py"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise UsageError(f"the suite {name} is not in this installation", "usv-tui init")

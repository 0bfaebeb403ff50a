"""`usv-tui ab`: two versions of a project against each other, turn by turn, launch after launch."""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from usv_tui.cli import ab_scripts
from usv_tui.cli.compare import condition
from usv_tui.cli.measure import start
from usv_tui.cli.options import Parser, add_run_options, positive_float, positive_int
from usv_tui.cli.voice import put
from usv_tui.errors import ExitCode, UsageError
from usv_tui.foreign.recognise import Kind, kind_of
from usv_tui.model import Answer

_SCOUT_NICE = 10
_FORBIDDEN = ("until", "iters", "control", "isolate", "baseline", "target_window")


def parser() -> Parser:
    """`usv-tui ab`."""
    made = Parser(
        prog="usv-tui ab",
        usage="usv-tui ab BASE [HEAD] [FILE] [options]",
        description="Is HEAD faster than BASE? A version is a git revision (or a range: main..), a "
        "folder, a file or an environment; without HEAD it is the working tree. Both run at the "
        "same time, each in a process of its own, and hand each other the turn, in several "
        "launches with fresh processes: the ratio's interval holds for the next launch.",
    )
    made.add_argument(
        "versions",
        nargs="*",
        metavar="BASE [HEAD] [FILE]",
        help="as in: ab main FILE; ab v1 v2 FILE; ab main.. FILE; ab OLD.py NEW.py; ab DIR1 DIR2 "
        "FILE; ab .venv-old .venv-new FILE",
    )
    made.add_argument(
        "-k", dest="select", action="append", default=[], metavar="PATTERN", help="only such rows"
    )
    group = made.add_argument_group("the comparison")
    add: Callable[..., object] = group.add_argument
    add(
        "--launches",
        type=_launches,
        default=None,
        metavar="N|auto",
        help="launches with fresh processes (default auto: 5, and up to 12 until every row's "
        "interval is within 1 %%)",
    )
    add(
        "--launch-time",
        type=positive_float,
        default=4.0,
        metavar="S",
        help="seconds that both together measure in a launch (default 4)",
    )
    add(
        "--watch",
        action="store_true",
        help="edit, save, see: each save of FILE or of a module of the project that it imports is "
        "frozen, tried while the one before is measured, and then compared with BASE",
    )
    add("--python", default="", metavar="PATH", help="interpreter or environment of both")
    add("--base-python", default="", metavar="PATH", help="that of BASE")
    add("--head-python", default="", metavar="PATH", help="that of HEAD")
    add(
        "--fail-on",
        type=condition,
        default=None,
        metavar="'slower>2%%'",
        help="exit 1 when a row is, 6 when it may be and there is no answer",
    )
    add_run_options(made)
    return made


def _launches(text: str) -> int | None:
    if text == "auto":
        return None
    value = positive_int(text)
    if value > 1000:
        raise argparse.ArgumentTypeError(f"{text} launches are too many: at most 1000")
    return value


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, as those of a run, with the versions found and checked out.

    Raises:
        UsageError: a version is none, or an option means nothing here.
    """
    args = parser().parse_args(argv)
    for name in _FORBIDDEN:
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} means nothing between versions", "see usv-tui ab --help")
    args.version, args.realloc = False, 0
    args.isolate = args.device.partition(":")[0] != "sim"
    args.versions = Versions(args)
    args.file = args.versions.head.path
    return args


def run(argv: Sequence[str]) -> int:
    """Compare them; nothing of them is left behind."""
    args = parse(argv)
    try:
        if not args.watch and kind_of(Path(args.file)) is Kind.SCRIPT:
            return ab_scripts.run(args, put)
        return start(args)
    finally:
        args.versions.close()


class Versions:
    """Both versions of a run, ready to be measured."""

    def __init__(self, args: argparse.Namespace) -> None:
        from usv_tui.session import versions
        from usv_tui.session.worktrees import Den

        words, file = versions.split(args.versions)
        if file and not Path(file).parent.is_dir():
            raise UsageError(f"{file}: no such file")
        self._args = args
        self._den = Den()
        try:
            finder = versions.Finder(self._den, file)
            pythons = (args.base_python or args.python, args.head_python or args.python)
            self._saves: Any = None
            if args.watch:
                self._saves = self._watched(finder, file, words)
                self.base, self.head = finder.watched(words, self._saves, *pythons)
            else:
                self.base, self.head = finder.base_and_head(words, *pythons)
            self._pythons = [versions.probe_python(one) for one in (self.base, self.head)]
        except BaseException:
            self.close()
            raise

    def _watched(self, finder: Any, file: str, words: list[str]) -> Any:
        from usv_tui.session.frozen import Project
        from usv_tui.session.saves import Saves
        from usv_tui.timesource import MonotonicTime

        if not file or len(words) > 1:
            raise UsageError("--watch compares what is saved with one BASE", "ab [BASE] FILE")
        if not Path(file).is_file():
            raise UsageError(f"{file}: no such file")
        root = finder.repository() or Path(file).resolve().parent
        saves = Saves(Project(Path(file), root), self._den.path, MonotonicTime.now_ns)
        if saves.first is None:
            raise UsageError(f"{file} never holds still")
        return saves

    @property
    def title(self) -> str:
        """What stands where a file's name would."""
        head = self.head.label if self._saves is None else "what is saved"
        return f"{Path(self.head.path).name}: {self.base.label} vs {head}"

    @property
    def folder(self) -> str:
        """Where results may lie until the end."""
        return str(self._den.path)

    def close(self) -> None:
        """Worktrees and results are removed."""
        self._den.close()

    def source(self, request: Any, log_fd: int, pids: list[int], card: Any = None) -> Any:
        """The source of the session's records; `card` is a simulated one that both share."""
        from msgspec.structs import replace

        from usv_tui.session import duet, live

        results = self._den.path / "results"
        results.mkdir(mode=0o700, exist_ok=True)
        sides = (self.base, self.head)
        server = None
        if card is not None:
            from usv_tui.sim.shared import CardServer

            server = CardServer(card.gpu)

        def begin(side: int, asked: Any, ends: Any) -> Any:
            one = self._frozen(sides[side], asked.path)
            card_fd = -1 if server is None else server.connect()
            place = live.Place(one.python, one.folder, one.environment, card_fd)
            child = live.ChildSource(asked, log_fd, place, ends)
            pids.append(child.pid)
            return child

        def scout(asked: Any) -> Any:
            child = begin(1, asked, ())
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _SCOUT_NICE)
            return child

        plan = duet.Plan(
            self._records(),
            (replace(request, path=self.base.path), replace(request, path=self.head.path)),
            launches=self._args.launches,
            launch_s=self._args.launch_time,
            results=str(results),
            foreign=(self.base.foreign, self.head.foreign),
        )
        made = duet.Duet(begin, plan)
        if self._saves is not None:
            from usv_tui.session.saves import Scouted
            from usv_tui.timesource import MonotonicTime

            send = scout if card is None else None
            made.saves = Scouted(self._saves, plan.requests[1], send, MonotonicTime.now_ns)
        return made

    def _frozen(self, one: Any, path: str) -> Any:
        """The version that a file belongs to: of a saved one its own copy comes first."""
        if self._saves is None or not one.is_frozen or path == one.path:
            return one
        return dataclasses.replace(one, path=path, root=str(self._den.root_of(path)))

    def _records(self) -> Any:
        from usv_tui.records import Version

        def what(one: Any, python: str) -> str:
            is_own = one.python == sys.executable
            return one.what if is_own else f"{one.what}; Python {python} of {one.python}"

        return tuple(
            Version(0, i, one.label, what(one, python), one.commit, one.is_dirty, python)
            for i, (one, python) in enumerate(
                zip((self.base, self.head), self._pythons, strict=True)
            )
        )

    def judge(self, snapshot: Any, code: int) -> int:
        """The exit code, by what `--fail-on` asks."""
        if self._args.fail_on is None or code not in (ExitCode.OK, ExitCode.BENCH_FAILED):
            return code
        from usv_tui.session.comparison import Condition

        fails = Condition(*self._args.fail_on)
        rows = [row for row in snapshot.rows if row.rival is not None and row.parent is None]
        ratios = [row.ratio for row in rows if not row.error]
        if any(ratio is not None and fails.fails(ratio) for ratio in ratios):
            return int(ExitCode.BENCH_FAILED)
        is_open = not ratios or any(r is None or _may_fail(r, fails) for r in ratios)
        return code or int(ExitCode.INCONCLUSIVE if is_open else ExitCode.OK)


def _may_fail(ratio: Any, fails: Any) -> bool:
    """No answer, and the interval holds what the condition names."""
    if ratio.answer is not Answer.UNDECIDED:
        return False
    bound = ratio.high if fails.answer is Answer.SLOWER else ratio.low
    if not bound:
        return True
    return bool((bound if fails.answer is Answer.SLOWER else 1 / bound) - 1 > fails.least)

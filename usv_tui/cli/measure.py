"""A run from its arguments: what is checked before anything heavy is imported."""

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usv_tui.cli import options
from usv_tui.cli.outcome import data_of
from usv_tui.cli.plan import Plan, script_of
from usv_tui.cli.voice import say
from usv_tui.errors import SuiteError, UsageError, closest

if TYPE_CHECKING:
    pass

HEADLESS_MAX_TIME_S = 10.0


def start(args: argparse.Namespace) -> int:
    """Measure what was asked for, on a real or a simulated device."""
    for name in (args.file, *getattr(args, "more", ())):
        if name is not None:
            check_file(name)
    if args.device.partition(":")[0] == "sim":
        from usv_tui.sim import parse_spec

        card, scenario = parse_spec(args.device)
        return simulate(args, card, scenario)
    if args.file is None:
        raise UsageError("which benchmark file?", "usv-tui FILE, or usv-tui demo")
    return measure(args, suite=args.file)


def simulate(args: argparse.Namespace, card: str, scenario: str) -> int:
    """Measure on a simulated device."""
    from usv_tui.cli.simulate import Simulation

    for flag, is_on in (("--isolate", args.isolate), ("--graph", args.graph)):
        if is_on:
            raise UsageError(f"{flag} means nothing on a simulated GPU", "leave it out")
    args.seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    simulation = Simulation(
        card, scenario, args.seed, getattr(args, "file", None) or "", blocker=args.blocker
    )
    args.device = simulation.device
    return measure(args, suite=simulation.title, simulation=simulation)


def check_file(name: str) -> None:
    """What can be told of a benchmark file without running it."""
    path = Path(name)
    if not name or not os.path.lexists(path):
        raise SuiteError(f"{name or repr(name)}: no such file", _meant(path, name))
    if path.is_dir():
        raise SuiteError(f"{name} is a directory", "give one of its Python files")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise SuiteError(f"cannot read {name}: {error.strerror}") from None
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SuiteError(
            f"{name}:{error.lineno or 1}: {error.msg}", "the file is not valid Python"
        ) from None
    except ValueError as error:
        raise SuiteError(f"{name} is not a Python file: {error}") from None


def _meant(path: Path, name: str) -> str:
    """The command or the file that a wrong name may stand for."""
    if not path.suffix and (like := closest(name, options.COMMANDS)):
        return f"{like} usv-tui --help lists the commands"
    try:
        beside = {p.stem: p.name for p in path.parent.iterdir() if p.suffix in (".py", ".usv")}
    except OSError:
        beside = {}
    meant = closest(path.stem, beside)
    for stem, file in beside.items():
        meant = meant.replace(f" {stem}?", f" {file}?")
    return meant or "give the path of a Python file with benchmarks"


def measure(args: argparse.Namespace, suite: str, simulation: Any = None) -> int:
    """Build the session, run a front end over it, print what remains."""
    config = _config(args)
    why_headless = ""
    if not args.headless:
        from usv_tui.cli.terminal import why_no_screen

        why_headless = why_no_screen()
    is_headless = args.headless or bool(why_headless)
    is_open = args.iters is None and args.max_time is None and args.until is None
    has_end = any(hasattr(args, name) for name in ("visits", "versions"))
    if is_headless and is_open and not has_end and script_of(args) is None:
        config["max_time_s"] = HEADLESS_MAX_TIME_S
    on_stdout = [name for name, target in data_of(args).items() if target == "-"]
    if len(on_stdout) > 1:
        options_ = " and ".join(f"--{name} -" for name in on_stdout)
        raise UsageError(f"{options_} both want stdout", "give one of them a file")
    _check_outputs(args)
    _fix_outputs(args)
    plan = Plan(args, suite, config, simulation)
    if why_headless:
        say(f"usv-tui: no screen ({why_headless}): running headless")
    try:
        return plan.headless() if is_headless else plan.on_screen()
    finally:
        plan.leave()


def _check_outputs(args: argparse.Namespace) -> None:
    """What is to be written at the end can be, and in nobody's place: told before measuring."""
    from usv_tui.session import outputs

    wanted = {f"--{kind}": target for kind, target in data_of(args).items()}
    paths = {option: Path(name) for option, name in wanted.items() if name not in (None, "-")}
    for option, path in paths.items():
        outputs.check(path, option[2:])
    saved = {} if args.save is None else {"--save": Path(args.save)}
    outputs.check_apart(paths | saved)


def _fix_outputs(args: argparse.Namespace) -> None:
    """They go where the user stood, whatever directory the benchmarks change to."""
    for option in ("json", "csv"):
        name = getattr(args, option)
        if name not in (None, "-"):
            setattr(args, option, str(Path(name).absolute()))


def _config(args: argparse.Namespace) -> dict[str, Any]:
    """The values of `RunConfig`; a dict, so that model need not be imported yet."""
    from usv_tui.engine import pace

    pace.Pace.parse(args.pace)
    return {
        "device": args.device,
        "timer": args.timer,
        "iters": args.iters,
        "max_time_s": args.max_time,
        "inner": args.inner,
        "target_window_s": args.target_window,
        "row_timeout_s": args.row_timeout,
        "warmup_max_s": args.warmup,
        "seed": secrets.randbelow(1 << 31) if args.seed is None else args.seed,
        "cache": args.cache,
        "flush_mb": args.flush_mb,
        "pace": args.pace,
        "graph": args.graph,
        "blocker": args.blocker,
        "control": args.control,
        "realloc": args.realloc,
        "gate": not args.no_gate,
    }

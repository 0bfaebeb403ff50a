"""`usv-tui lie`: each row timed in four ways, side by side."""

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Sequence

from usv_tui import plain
from usv_tui.cli import script
from usv_tui.cli.measure import check_file
from usv_tui.cli.options import Parser
from usv_tui.cli.simulate import Simulation
from usv_tui.cli.voice import say
from usv_tui.engine.choice import DeviceChoice
from usv_tui.engine.lie import Lie, LieRow, measure_lie
from usv_tui.engine.worker import make_timer
from usv_tui.errors import ExitCode, UsageError
from usv_tui.model import RunConfig, Skipped
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.sim import parse_spec
from usv_tui.suite.discovery import load_suite, select_rows
from usv_tui.timesource import MonotonicTime
from usv_tui.units import DASH, fixed, in_unit, time_unit


def parser() -> Parser:
    """`usv-tui lie`."""
    made = Parser(
        prog="usv-tui lie",
        description="Each row's time without synchronising, with one synchronise, with events, "
        "and of a first cold call, side by side.",
    )
    made.add_argument("file", nargs="?", default=None)
    made.add_argument("-k", dest="select", action="append", default=[], metavar="PATTERN")
    made.add_argument("--device", default="auto", metavar="D")
    made.add_argument("--json", action="store_true")
    return made


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 when a row failed.

    Raises:
        UsvError: no file, no device, nothing to time.
    """
    if args.file is not None and not args.device.startswith("sim"):
        check_file(args.file)
        script.refuse(args.file, "its callables are known when it runs")
    lie, device, reason, skipped = _measure(args)
    refused = [item for item in skipped if item.is_refused]
    if args.json:
        rows = [row._asdict() | {"factor": row.factor if lie.has_nod else None} for row in lie.rows]
        body = lie._asdict() | {"rows": rows, "device": device, "device_reason": reason}
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        sys.stdout.write(plain.lines(text(lie, device, reason)) + "\n")
    sys.stdout.flush()
    for item in refused:
        say(f"usv-tui: not timed: {plain.name(item.name)}: {plain.line(item.reason)}")
    failed = refused or any(row.error for row in lie.rows)
    return int(ExitCode.BENCH_FAILED if failed else ExitCode.OK)


def _measure(args: argparse.Namespace) -> tuple[Lie, str, str, Sequence[Skipped]]:
    if args.device.partition(":")[0] == "sim":
        card, scenario = parse_spec(args.device)
        seed = secrets.randbelow(1 << 31)
        prepared, session = Simulation(card, scenario, seed, args.file or "").start()
        suite = prepared.suite or load_suite(args.file, prepared.device, args.select or None)
        suite = select_rows(suite, args.select) if args.select else suite
        lie = measure_lie(suite.benchmarks, prepared.device, session.timer)
        return lie, prepared.device, "SIMULATED", suite.skipped
    if args.file is None:
        raise UsageError("which benchmark file?", "usv-tui lie FILE, or --device sim:h100")
    chosen = DeviceChoice(args.device, lambda _: None, MonotonicTime())
    suite = load_suite(args.file, chosen.after_import, args.select or None)
    timer = make_timer(RunConfig(device=chosen.device), chosen.torch)
    lie = measure_lie(suite.benchmarks, chosen.device, timer)
    return lie, chosen.device, chosen.reason, suite.skipped


def text(lie: Lie, device: str, reason: str) -> str:
    """The table, and what this device can and cannot show."""
    rows = lie.rows
    unit = time_unit(t for row in rows for t in (row.nod_s, row.timed_s))

    def times(pick: Callable[[LieRow], float | None]) -> list[str]:
        return [in_unit(pick(row), unit) for row in rows]

    columns = [
        Column("benchmark", [row.name for row in rows], is_code=True),
        Column(f"no sync {unit.name}", times(lambda row: row.nod_s), is_number=True),
        Column(f"one sync {unit.name}", times(lambda row: row.synced_s), is_number=True),
        Column(f"{lie.timer} {unit.name}", times(lambda row: row.timed_s), is_number=True),
        Column(f"first call {unit.name}", times(lambda row: row.first_s), is_number=True),
        Column("missed", [_missed(row) for row in rows if lie.has_nod], is_number=True),
        Column("", [row.error for row in rows], drop=1),
    ]
    lines = [
        grid.text([column for column in columns if any(column.cells)], None),
        "",
        f"device  {plain.line(f'{device} ({reason})')}",
        f"shows   {plain.line(lie.shows)}",
    ]
    if lie.lacks:
        lines.append(f"lacks   {plain.line(lie.lacks)}")
    return "\n".join(lines)


def _missed(row: LieRow) -> str:
    """How many times longer the work is than what an unsynchronised clock saw."""
    return DASH if row.factor is None else f"{fixed(row.factor, 1)}x"

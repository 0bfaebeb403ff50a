"""`usv-tui list`: what a file would time."""

from usv_tui import plain
from usv_tui.cli import files, script
from usv_tui.cli.options import Parser
from usv_tui.cli.voice import put, say
from usv_tui.errors import ExitCode


def parser() -> Parser:
    """`usv-tui list`."""
    made = Parser(prog="usv-tui list", description="What files would time.")
    made.add_argument("file", help="a Python file with benchmarks, or a folder of such files")
    made.add_argument("more", nargs="*", metavar="FILE")
    made.add_argument("-k", dest="select", action="append", default=[], metavar="PATTERN")
    made.add_argument("--device", default="auto", metavar="D")
    made.add_argument(
        "--all", action="store_true", help="name everything in the file that is no benchmark, too"
    )
    return made


def run(argv: list[str]) -> int:
    """Name the rows on stdout; 1 when one was refused."""
    args = parser().parse_intermixed_args(argv)
    named = files.named(args)
    for name in named:
        script.refuse(name, "its rows are known when it runs")
    from usv_tui import timesource
    from usv_tui.engine import choice
    from usv_tui.suite import discovery

    chosen = choice.DeviceChoice(args.device, lambda _record: None, timesource.MonotonicTime())
    suite = discovery.load_suite(named, chosen.after_import, args.select or None)
    say(f"device {chosen.device}: {chosen.reason}")
    for name, note in discovery.summary(suite, everything=args.all):
        put(f"{plain.name(name)}  {plain.line(note)}".rstrip())
    is_refused = any(skipped.is_refused for skipped in suite.skipped)
    return int(ExitCode.BENCH_FAILED if is_refused else ExitCode.OK)

"""`usv-tui clocks sweep`: a run that visits clock after clock."""

from collections.abc import Callable

from usv_tui.cli import script
from usv_tui.cli.measure import check_file, start
from usv_tui.cli.options import Parser, add_run_options, positive_float, positive_int
from usv_tui.errors import ClockRefused, UsageError


def parser() -> Parser:
    """`usv-tui clocks sweep`."""
    made = Parser(
        prog="usv-tui clocks sweep",
        description="Locks clock after clock, in random order and again, measures the rows at each "
        "one and at the free clock, and says which clock holds, is calm, and saves energy. "
        "The clocks are given back in any end.",
    )
    made.add_argument("file", nargs="?", default=None, help="a Python file with benchmarks")
    made.add_argument(
        "-k", dest="select", action="append", default=[], metavar="PATTERN", help="only such rows"
    )
    group = made.add_argument_group("the sweep")
    add: Callable[..., object] = group.add_argument
    add("--from", dest="from_mhz", type=positive_int, default=None, metavar="MHZ", help="lowest")
    add("--to", dest="to_mhz", type=positive_int, default=None, metavar="MHZ", help="highest")
    add("--steps", type=positive_int, default=8, metavar="N", help="clocks to visit (default 8)")
    add("--visits", type=positive_int, default=3, metavar="N", help="visits to each (default 3)")
    add(
        "--seconds",
        type=positive_float,
        default=5.0,
        metavar="S",
        help="of each visit, after the clock has settled (default 5)",
    )
    add_run_options(made)
    return made


def run(argv: list[str]) -> int:
    """Measure at each clock."""
    args = parser().parse_args(argv)
    for flag in ("lock", "until", "iters", "max_time", "keep_lock"):
        if getattr(args, flag):
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(f"{name} means nothing in a sweep", "see usv-tui clocks sweep --help")
    if args.from_mhz and args.to_mhz and args.from_mhz > args.to_mhz:
        raise UsageError(
            f"--from {args.from_mhz} is above --to {args.to_mhz}",
            "from the lower to the higher clock",
        )
    if args.file is not None:
        check_file(args.file)
        script.refuse(args.file, "a sweep visits rows that stay")
    from usv_tui.engine import choice

    if args.device == "cpu" or (args.device == "auto" and not choice.sees_gpu()):
        from usv_tui.clocks.controllers import CPU_CLOCK

        why = "no GPU is seen here, and " if args.device == "auto" else ""
        raise ClockRefused(f"nothing to sweep: {why}{CPU_CLOCK}", "--device sim:h100 is a try-out")
    return start(args)

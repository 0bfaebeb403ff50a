"""`usv-tui demo`: the screen on a simulated GPU."""

from usv_tui.cli.measure import simulate
from usv_tui.cli.options import Parser, add_run_options
from usv_tui.cli.voice import put
from usv_tui.errors import ExitCode, UsageError


def parser() -> Parser:
    """`usv-tui demo`."""
    made = Parser(prog="usv-tui demo", description="The screen on a simulated GPU.")
    made.add_argument("scenario", nargs="?", default=None, help="see --list")
    made.add_argument("--card", default=None, help="which simulated card")
    made.add_argument(
        "--list",
        action="store_true",
        dest="show_list",
        help="the scenarios, a line each, and what to look for",
    )
    made.add_argument(
        "-k",
        dest="select",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only rows whose name holds or matches PATTERN",
    )
    add_run_options(made)
    return made


def run(argv: list[str]) -> int:
    """Show it, or the list of scenarios."""
    args = parser().parse_args(argv)
    from usv_tui.sim import DEFAULT_CARD, DEFAULT_SCENARIO

    if args.show_list:
        from usv_tui.cli.simulate import listing

        put(listing())
        return int(ExitCode.OK)
    if args.device != "auto":
        raise UsageError(
            f"the demo brings its own device, not {args.device}", "--card chooses another one"
        )
    return simulate(args, args.card or DEFAULT_CARD, args.scenario or DEFAULT_SCENARIO)

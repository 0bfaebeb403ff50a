"""`usv-tui export`: a saved session in another form."""

from functools import partial
from pathlib import Path

from usv_tui import plain
from usv_tui.cli.options import Parser, form
from usv_tui.cli.voice import STDOUT_LINE, put, say, to_stdout
from usv_tui.errors import ExitCode

EXPORTS = (
    *("json", "csv", "table", "markdown", "html", "svg", "parquet"),
    *("nvbench", "pytest-benchmark", "bencher", "action", "usv", "json-lines"),
)


def parser() -> Parser:
    """`usv-tui export`."""
    made = Parser(
        prog="usv-tui export",
        description="A saved session as JSON or CSV, or as neighbours read it.",
    )
    made.add_argument("session", help="a .usv file, finished or not")
    made.add_argument("--to", type=form, choices=EXPORTS, default="json")
    made.add_argument("-o", "--output", default="-", metavar="FILE", help="- is stdout")
    return made


def run(argv: list[str]) -> int:
    """Write it; 2 for a file that is no whole session."""
    args = parser().parse_args(argv)
    from usv_tui.report import formats, table
    from usv_tui.session import export, opened, outputs
    from usv_tui.session import store as store_module

    session = opened.open_session(Path(args.session))
    store, snapshot = session.store, session.snapshot
    if args.to in ("table", "markdown"):
        text = table.render(snapshot, markdown=args.to == "markdown")
        found = export.sweep_text(store, markdown=args.to == "markdown")
        text += f"\n\n{found}" if found else ""
        if args.output == "-":
            put(text)
        else:
            shown = plain.lines(text, STDOUT_LINE)
            outputs.write_whole(Path(args.output), args.to, lambda out: out.write(shown + "\n"))
    elif args.to in formats.FORMATS:
        path = None if args.output == "-" else Path(args.output)
        to_stdout(lambda out: formats.write(args.to, session, path, out))
    elif args.output == "-":
        to_stdout(partial(export.write, args.to, store, snapshot))
    else:
        export.write_file(Path(args.output), store, snapshot, args.to)
    if not store.course.is_whole:
        for told in snapshot.told:
            if told.code in store_module.NOT_WHOLE:
                say(f"usv-tui: {args.session}: {told.text}")
        return int(ExitCode.USAGE)
    if not snapshot.complete:
        say(f"usv-tui: {args.session} is partial: {snapshot.stop_reason or 'it has no end'}")
    return int(ExitCode.OK)

"""The commands, and how a mistake of the user's becomes a line and an exit code.

Arguments are parsed and checked before anything heavy is imported: each command imports its own.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from usv_tui import __version__, plain
from usv_tui.cli import options
from usv_tui.cli.measure import check_file, measure, start
from usv_tui.cli.voice import put, say, secure_streams, terminal_width
from usv_tui.errors import ExitCode, UsageError, UsvError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Errors of the user's are one line on stderr."""
    secure_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, rest = options.split_command(arguments)
    try:
        return _COMMANDS[command](rest)
    except UsvError as error:
        say(f"usv-tui: {plain.line(str(error))}")
        return int(error.exit_code)
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`): nothing is wrong, nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return int(ExitCode.OK)
    except KeyboardInterrupt:
        return 130
    except FileNotFoundError:
        try:
            Path.cwd()
        except OSError:
            say("usv-tui: the current directory is gone (cd to one that is there)")
            return int(ExitCode.USAGE)
        raise


def _run(argv: list[str]) -> int:
    from usv_tui.cli import files, script
    from usv_tui.foreign.recognise import is_problem

    at = script.file_at(argv)
    if "--version" in argv[:at]:
        put(f"usv-tui {__version__}")
        return int(ExitCode.OK)
    if not argv:
        from usv_tui.cli import welcome

        put(welcome.text())
        return int(ExitCode.OK)
    if at is not None and Path(argv[at]).suffix == ".usv":
        return _show("open", argv)
    if at is not None:
        if is_problem(Path(argv[at])):
            return _judge([*argv, *script.own_submission(argv, at)])
        if argv[at] == "pytest" and not Path("pytest").exists():
            return measure(script.pytest(argv, at), suite="pytest")
        if not at and not (argv[at] and Path(argv[at]).is_dir()):
            check_file(argv[at])  # before its arguments: it may be a command that was misspelt
        if script.is_script(argv, at):
            check_file(argv[at])
            return start(script.parse(argv, at))
    return start(files.found_in(options.run_parser().parse_intermixed_args(argv)))


def _run_verb(argv: list[str]) -> int:
    """`usv-tui run`, which wants something to run."""
    if not argv:
        raise UsageError("run what?", "usv-tui run FILE.py, or usv-tui demo")
    return _run(argv)


def _export(argv: list[str]) -> int:
    from usv_tui.cli import export

    return export.run(argv)


def _list(argv: list[str]) -> int:
    from usv_tui.cli import listing

    return listing.run(argv)


def _show(verb: str, argv: list[str]) -> int:
    from usv_tui.cli import replay

    args = replay.parser(verb).parse_args(argv)

    def as_table(why: str) -> int:
        say(f"usv-tui: no screen ({why}): the table instead")
        return _export([args.session, "--to", "table"])

    return replay.run(args, verb, as_table)


def _init(argv: list[str]) -> int:
    from usv_tui.cli import starter

    put(starter.write(starter.parser().parse_args(argv)))
    return int(ExitCode.OK)


def _compare(argv: list[str]) -> int:
    from usv_tui.cli import compare

    args = compare.parser().parse_args(argv)
    width = None if args.to == "markdown" or args.output != "-" else terminal_width()
    return compare.run(args, width, put)


def _ab(argv: list[str]) -> int:
    from usv_tui.cli import ab

    return ab.run(argv)


def _history(argv: list[str]) -> int:
    from usv_tui.cli import history

    return history.run(history.parser().parse_args(argv), terminal_width(), put)


def _demo(argv: list[str]) -> int:
    from usv_tui.cli import demo

    return demo.run(argv)


def _doctor(argv: list[str]) -> int:
    from usv_tui.cli import doctor

    args = doctor.parser().parse_args(argv)
    return doctor.run(args.device, as_json=args.json, out=sys.stdout)


def _clocks(argv: list[str]) -> int:
    if argv[:1] == ["sweep"]:
        from usv_tui.cli import sweep

        return sweep.run(argv[1:])
    from usv_tui.cli import clocks

    return int(clocks.main(argv))


def _lie(argv: list[str]) -> int:
    from usv_tui.cli import lie

    return lie.run(lie.parser().parse_args(argv))


def _explain(argv: list[str]) -> int:
    from usv_tui.cli import explain

    return explain.run(explain.parser().parse_args(argv), put)


def _completion(argv: list[str]) -> int:
    from usv_tui.cli import completion

    put(completion.script(completion.parser().parse_args(argv).shell))
    return int(ExitCode.OK)


def _serve(argv: list[str]) -> int:
    from usv_tui.cli import serve

    return serve.run(argv)


def _judge(argv: list[str]) -> int:
    from usv_tui.cli import judge

    return start(judge.parse(argv))


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": _run_verb,
    "": _run,
    "list": _list,
    "export": _export,
    "replay": partial(_show, "replay"),
    "open": partial(_show, "open"),
    "show": partial(_show, "show"),
    "watch": partial(_show, "watch"),
    "init": _init,
    "compare": _compare,
    "ab": _ab,
    "history": _history,
    "demo": _demo,
    "doctor": _doctor,
    "clocks": _clocks,
    "lie": _lie,
    "explain": _explain,
    "judge": _judge,
    "completion": _completion,
    "serve": _serve,
}

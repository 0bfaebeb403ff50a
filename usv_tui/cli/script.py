"""`usv-tui SCRIPT [its arguments]`: which words of the command line are whose."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from usv_tui.cli.options import run_parser
from usv_tui.errors import UsageError
from usv_tui.foreign.recognise import Kind, kind_of, own_options

_MEANINGLESS = {
    "control": "--control",
    "until": "--until",
    "realloc": "--realloc",
    "select": "-k",
    "baseline": "--baseline",
}
"""What a script does not leave to be chosen."""


def file_at(argv: Sequence[str]) -> int | None:
    """Where the file stands among options; None when there is none."""
    takes = _value_counts(run_parser())
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return at + 1 if at + 1 < len(argv) else None
        if not word.startswith("-") or word == "-":
            return at
        at += 1 if "=" in word else 1 + takes.get(word, 0)
    return None


def _value_counts(parser: argparse.ArgumentParser) -> dict[str, int]:
    """How many words behind each of our options are its value."""
    return {
        option: 0 if action.nargs == 0 else 1
        for option, action in parser._option_string_actions.items()  # noqa: SLF001  no other way
    }


def is_script(argv: Sequence[str], at: int) -> bool:
    """Whether the file is a script, or is said to be one."""
    ours, _ = _divide(argv, at)
    chosen = _chosen(ours)
    kind = Kind(chosen) if chosen in tuple(Kind) else kind_of(Path(argv[at]))
    return kind is Kind.SCRIPT


def _chosen(words: Sequence[str]) -> str:
    for i, word in enumerate(words):
        if word == "--as" and i + 1 < len(words):
            return words[i + 1]
        if word.startswith("--as="):
            return word.removeprefix("--as=")
    return ""


def _divide(argv: Sequence[str], at: int) -> tuple[list[str], list[str]]:
    """Our words and the script's: what stands before it is ours, and behind it an option of ours.

    One that the script's own text names too is the script's, and so is all behind `--`.
    """
    takes = _value_counts(run_parser())
    its = own_options(Path(argv[at]))
    ours = [word for word in argv[:at] if word != "--"]
    theirs: list[str] = []
    words = list(argv[at + 1 :])
    while words:
        word = words.pop(0)
        name = word.partition("=")[0]
        if word == "--":
            return ours, theirs + words
        if its is None or name not in takes or name in its or name in ("-h", "--help"):
            theirs.append(word)
            continue
        ours.append(word)
        if "=" not in word and takes[name] and words:
            ours.append(words.pop(0))
    return ours, theirs


def parse(argv: Sequence[str], at: int) -> argparse.Namespace:
    """The arguments of a script's run.

    Raises:
        UsageError: an option that means nothing for a script.
    """
    ours, theirs = _divide(argv, at)
    args = run_parser().parse_args([*ours, argv[at]])
    return check(args, theirs)


def check(args: argparse.Namespace, theirs: list[str]) -> argparse.Namespace:
    """A script's run, in a process of its own."""
    for name, option in _MEANINGLESS.items():
        if getattr(args, name, None) not in (None, False, []):
            raise UsageError(f"{option} means nothing for a script", "its own code chooses")
    if args.device.partition(":")[0] == "sim":
        raise UsageError(
            f"a script cannot run on {args.device}", "usv-tui demo shows a simulated GPU"
        )
    args.script, args.isolate = theirs, True
    return args


def own_submission(argv: Sequence[str], at: int) -> list[str]:
    """The submission that lies in a problem's own folder, where none is named."""
    beside = Path(argv[at]) / "submission.py"
    return [str(beside)] if file_at(argv[at + 1 :]) is None and beside.is_file() else []


def misplaced(args: argparse.Namespace) -> str:
    """A hint where options of ours stand among a script's arguments; else empty."""
    theirs = (word.partition("=")[0] for word in getattr(args, "script", None) or ())
    known = run_parser()._option_string_actions  # noqa: SLF001  argparse has no other list of them
    ours = [word for word in theirs if word.startswith("--") and word in known]
    return f" ({ours[0]} is its own argument there: usv-tui's go before it)" if ours else ""


def refuse(file: str | None, what: str) -> None:
    """Say that a command needs rows that are known beforehand.

    Raises:
        UsageError: the file is a script.
    """
    if file is not None and kind_of(Path(file)) is Kind.SCRIPT:
        raise UsageError(f"{file} is a script: {what}", f"usv-tui {file} runs it as it is")


def pytest(argv: Sequence[str], at: int) -> argparse.Namespace:
    """`usv-tui [options] pytest [its arguments]`: what is behind the word is pytest's."""
    args = run_parser().parse_args(list(argv[:at]))
    return check(args, list(argv[at + 1 :]))

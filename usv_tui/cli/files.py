"""Several benchmark files and folders of them on one command line."""

import argparse
from pathlib import Path

from usv_tui.cli.measure import check_file
from usv_tui.cli.voice import say
from usv_tui.errors import UsageError
from usv_tui.foreign.recognise import Kind, has_benchmarks, kind_of


def found_in(args: argparse.Namespace) -> argparse.Namespace:
    """A run's arguments with the files behind what was named.

    Raises:
        UsageError: one is not there, is a script among others, or a folder holds no benchmarks.
    """
    files = named(args)
    scripts = [name for name in files if kind_of(Path(name)) is Kind.SCRIPT]
    if len(files) > 1 and scripts and args.taken_as != "suite":
        raise UsageError(f"{scripts[0]} is a script, which runs alone", f"usv-tui {scripts[0]}")
    if len(files) > 1 and args.device.partition(":")[0] == "sim":
        raise UsageError("a simulated GPU takes one file", f"usv-tui {files[0]}")
    args.file, args.more = (files[0], files[1:]) if files else (None, [])
    return args


def named(args: argparse.Namespace) -> list[str]:
    """The files that `file` and `more` name, folders taken apart."""
    found: list[str] = []
    for name in (args.file, *args.more):
        if name is None:
            continue
        if name and Path(name).is_dir():
            found += _of_folder(Path(name))
        else:
            check_file(name)
            found.append(name)
    return list(dict.fromkeys(found))


def _of_folder(folder: Path) -> list[str]:
    """The files of a folder that have benchmarks of this program's, by name."""
    try:
        there = sorted(p for p in folder.glob("*.py") if p.is_file())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from None
    found = [path for path in there if has_benchmarks(path)]
    if not found:
        what = f"{len(there)} Python files, none with" if there else "no Python file with"
        raise UsageError(f"{folder} has {what} benchmarks of its own", "usv-tui init")
    left = [path.name for path in there if path not in found]
    if left:
        say(f"usv-tui: without benchmarks, left out of {folder}: {', '.join(left)}")
    return [str(path) for path in found]

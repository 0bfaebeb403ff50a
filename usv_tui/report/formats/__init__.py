"""Neighbours' files: a session as other tools read it. A file a format; `FORMATS` lists them."""

import importlib
from pathlib import Path
from typing import IO, NamedTuple

from usv_tui.errors import UsageError
from usv_tui.session import outputs
from usv_tui.session.opened import Opened


class Format(NamedTuple):
    """How a format is written. What its files begin with stands in `session.outputs`."""

    module: str
    suffix: str
    is_binary: bool = False
    has_folders: bool = False
    """It writes folders beside the file, so that it cannot go to stdout."""


FORMATS = {
    "nvbench": Format("nvbench", ".json", has_folders=True),
    "pytest-benchmark": Format("pytest_benchmark", ".json"),
    "bencher": Format("bencher", ".json"),
    "action": Format("action", ".json"),
    "usv": Format("usv", ".json"),
    "parquet": Format("parquet", ".parquet", is_binary=True),
    "svg": Format("svg", ".svg"),
    "html": Format("html", ".html"),
    "json-lines": Format("verdicts", ".jsonl"),
}


def write(kind: str, session: Opened, path: Path | None, stdout: IO[str]) -> None:
    """Write a session to a file, or to stdout (`path` None).

    Raises:
        UsageError: stdout cannot hold it, the path cannot be written or holds something else, or a
            library is missing.
    """
    chosen = FORMATS[kind]
    module = importlib.import_module(f"usv_tui.report.formats.{chosen.module}")
    if path is None:
        if chosen.is_binary or chosen.has_folders:
            raise UsageError(f"{kind} cannot be written to stdout", f"-o FILE{chosen.suffix}")
        stdout.write(module.text(session))
        return
    outputs.check(path, kind)
    if chosen.is_binary:
        outputs.write_bytes(path, kind, module.data(session))
        return
    made = module.files(session, path) if chosen.has_folders else module.text(session)
    outputs.write_whole(path, kind, lambda out: out.write(made))

"""Results of `do_bench` in JSON files: usv's `save_results` and `load_results`.

A file is never written over: the next one of the same name gets a number.
"""

import itertools
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from usv_tui.environment import git_state
from usv_tui.errors import UsageError
from usv_tui.library import arguments
from usv_tui.library.measurement import Measurement

_UNKNOWN = "unknown"


def save_results(
    all_results: Mapping[str, Any],
    *misplaced: object,
    label: str | None = None,
    results_dir: str | None = None,
) -> str:
    """Write results to `<results_dir>/<commit>[-<label>][-<number>].json`; returns the path.

    Args:
        all_results: by name; measurements and arrays are written with every digit of every sample,
            anything else as JSON has it, with null for what is not a finite number.
        misplaced: nothing; who gives a file's name here is told where it comes from.
        label: becomes part of the file's name.
        results_dir: default: `results` in the current folder; made when it is not there.

    Raises:
        OSError: the file cannot be written.
        TypeError: a value that JSON cannot hold.
    """
    if misplaced:
        raise arguments.BadKind(
            f"save_results got {misplaced[0]!r} as well",
            "it takes a dict, label= and results_dir=, and names the file by the commit",
        )
    arguments.results("all_results", all_results)
    arguments.text("label", label, "give a text")
    arguments.text("results_dir", results_dir, "give a path")
    state = git_state() or {"commit": _UNKNOWN, "dirty": None}
    commit = state["commit"]
    data = {
        "commit_hash": commit,
        "dirty": state["dirty"],
        "timestamp": time.time_ns() // 1_000_000_000,
        "results": _plain(dict(all_results)),
    }
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    folder = Path(results_dir) if results_dir else Path.cwd() / "results"
    folder.mkdir(parents=True, exist_ok=True)
    words = re.sub(r"[^A-Za-z0-9._-]+", "_", label).strip("_") if label else ""
    stem = commit[:8] + (f"-{words}" if words else "")
    for number in itertools.count(1):
        path = folder / (f"{stem}-{number}.json" if number > 1 else f"{stem}.json")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return str(path)
    raise AssertionError


def load_results(path: str) -> dict[str, Any]:
    """What `save_results` (ours or usv's) wrote.

    Raises:
        OSError: the file cannot be read.
        UsageError: it holds something else.
    """
    if not path or isinstance(path, int):
        raise arguments.BadKind(f"path is {path!r}", "give the path of a results file")
    arguments.text("path", path, "give the path of a results file")
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not a results file: {error}") from error
    if not isinstance(data, dict) or "results" not in data:
        raise UsageError(f"{path} is not a results file: it has no 'results'")
    return data


def _plain(value: Any) -> Any:
    """The value as JSON can hold it; a number that is not finite becomes null."""
    if isinstance(value, Measurement):
        return _plain(vars(value))
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is not None and not isinstance(value, str | int):
        raise arguments.BadKind(
            f"a {type(value).__name__} is in the results", "give measurements, numbers and texts"
        )
    return value

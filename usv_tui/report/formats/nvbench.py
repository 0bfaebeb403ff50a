"""nvbench's JSON 1.0.0 with its bulk files of sample times and clocks (float32, little endian).

Read by nvbench's own comparers and histograms. One benchmark a callable, one state a set of its
parameters; seconds and hertz; summary values are strings, as nvbench writes them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usv_tui.errors import UsageError
from usv_tui.report.formats.rows import Timed, timed
from usv_tui.session.opened import Opened

_VERSION = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}
_TIME = "nv/cold/time/gpu"


def files(session: Opened, path: Path) -> str:
    """Write the bulk folders beside `path`; returns the text of the JSON that belongs there.

    Raises:
        UsageError: a folder cannot be made, or holds something that is not ours.
    """
    rows = list(timed(session))
    bins = [_folder(path, word) for word in ("bin", "freqs-bin")]
    states: dict[str, list[dict[str, Any]]] = {}
    axes: dict[str, dict[str, list[Any]]] = {}
    for number, row in enumerate(rows):
        kept = [*_summaries(row), *_bulk(row, bins, path, number)]
        state = {
            "name": _state_name(row),
            "min_samples": 1,
            "device": 0,
            "type_config_index": 0,
            "axis_values": [_axis_value(k, v) for k, v in row.params.items()],
            "summaries": kept,
            "is_skipped": bool(row.view.error),
            "skip_reason": row.view.error,
        }
        states.setdefault(row.base, []).append(state)
        for key, value in row.params.items():
            values = axes.setdefault(row.base, {}).setdefault(key, [])
            values += [] if value in values else [value]
    benchmarks = [
        {
            "name": name,
            "index": index,
            "min_samples": 1,
            "devices": [0],
            "axes": [_axis(key, values) for key, values in axes.get(name, {}).items()],
            "states": found,
        }
        for index, (name, found) in enumerate(states.items())
    ]
    data = {
        "meta": {"argv": _argv(session), "version": {"json": _VERSION, "nvbench": _VERSION}},
        "devices": [_device(session)],
        "benchmarks": benchmarks,
    }
    return json.dumps(data, allow_nan=False) + "\n"


def _argv(session: Opened) -> list[str]:
    argv = session.snapshot.environment.get("argv")
    return [str(part) for part in argv] if isinstance(argv, list) else []


def _device(session: Opened) -> dict[str, Any]:
    device = session.snapshot.device
    return {
        "id": 0,
        "name": device.name if device else str(session.snapshot.environment.get("cpu")),
        "sm_version": 0,
        "sm_default_clock_rate": (device.max_sm_mhz or 0) * 1_000_000 if device else 0,
        "global_memory_size": (device.memory_bytes or 0) if device else 0,
    }


def _folder(path: Path, word: str) -> Path:
    """`FILE-bin` beside the file, with nothing in it but what an earlier export wrote."""
    folder = path.with_name(f"{path.name}-{word}")
    try:
        folder.mkdir(exist_ok=True)
        strangers = [p for p in folder.iterdir() if not _is_bulk(p)]
        if strangers:
            raise UsageError(f"{folder} holds {strangers[0].name}", "give another name with -o")
        for old in folder.iterdir():
            old.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
    return folder


def _is_bulk(path: Path) -> bool:
    return path.suffix == ".bin" and path.stem.isdecimal() and path.is_file()


def _state_name(row: Timed) -> str:
    return " ".join(["Device=0", *(f"{k}={v}" for k, v in row.params.items())])


def _kind(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "string"
    return "int64" if isinstance(value, int) else "float64"


def _axis_value(name: str, value: Any) -> dict[str, str]:
    return {"name": name, "type": _kind(value), "value": str(value)}


def _axis(name: str, values: Sequence[Any]) -> dict[str, Any]:
    kinds = {_kind(value) for value in values}
    is_text = kinds not in ({"int64"}, {"float64"})
    return {
        "name": name,
        "type": "string" if is_text else kinds.pop(),
        "flags": "",
        "values": [
            {
                "input_string": str(v),
                "description": "",
                "value": v if _kind(v) != "string" else str(v),
            }
            for v in values
        ],
    }


def _summaries(row: Timed) -> Iterator[dict[str, Any]]:
    x = row.seconds
    low, high = row.quartiles
    mean, middle = float(x.mean()), float(np.median(x))
    yield _number("nv/cold/sample_size", "Samples", x.size, "sample_size")
    for word, value in (
        ("min", float(x.min())),
        ("q1", low),
        ("median", middle),
        ("q3", high),
        ("max", float(x.max())),
        ("mean", mean),
        ("stdev/absolute", row.std_s),
        ("iqr/absolute", high - low),
    ):
        yield _number(f"{_TIME}/{word}", f"GPU Time {word}", value, "duration")
    yield _number(f"{_TIME}/stdev/relative", "Noise", row.std_s / mean, "percentage")
    yield _number(f"{_TIME}/iqr/relative", "IQR", (high - low) / middle, "percentage")
    known = row.sm_mhz[np.isfinite(row.sm_mhz)]
    if known.size:
        yield _number("nv/cold/sm_clock_rate/mean", "Clock", float(known.mean()) * 1e6, "item_rate")


def _number(tag: str, name: str, value: float, hint: str) -> dict[str, Any]:
    kind = "int64" if isinstance(value, int) else "float64"
    data = [{"name": "value", "type": kind, "value": repr(value)}]
    return {"tag": tag, "name": name, "hint": hint, "data": data}


def _bulk(
    row: Timed, folders: Sequence[Path], path: Path, number: int
) -> Iterator[Mapping[str, Any]]:
    """The sample times and, where all are known, their clocks, in files of their own."""
    tags = ("nv/json/bin:nv/cold/sample_times", "nv/json/freqs-bin:nv/cold/sample_freqs")
    columns = (row.seconds, row.sm_mhz * 1e6)
    for tag, folder, values in zip(tags, folders, columns, strict=True):
        if not np.isfinite(values).all():
            continue
        file = folder / f"{number}.bin"
        file.write_bytes(values.astype("<f4").tobytes())
        yield {
            "tag": tag,
            "name": tag.rpartition("/")[2],
            "hint": "file/sample_times" if values is row.seconds else "file/sample_freqs",
            "description": "little-endian float32",
            "hide": "",
            "data": [
                {"name": "filename", "type": "string", "value": str(file.relative_to(path.parent))},
                {"name": "size", "type": "int64", "value": str(values.size)},
            ],
        }

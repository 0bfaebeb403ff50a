"""A session as JSON or CSV: raw samples in full doubles, null where something was not reported."""

import csv
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from usv_tui import plain
from usv_tui.report import sweep, versions
from usv_tui.report.columns import OF_ROWS, STATISTICS, Column
from usv_tui.report.formats import verdicts
from usv_tui.report.wording.rows import clocks_line
from usv_tui.session import outputs, raw, samples
from usv_tui.session.columns import READING_FIELDS
from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.session.store import Store
from usv_tui.stats.rolling import Stats

JSON_SCHEMA = 1
_SPOOLED_BYTES = 1 << 18
_EXACT = 1 << 53
"""Whole numbers below it are written without a point."""


def as_dict(store: Store, snapshot: Snapshot) -> dict[str, Any]:
    """The session as plain data, but for its samples and readings: those are streamed.

    Times in seconds count from the session's start.
    """
    start_ns = snapshot.start_ns
    return {
        "schema": JSON_SCHEMA,
        "complete": snapshot.complete,
        "reason": snapshot.stop_reason,
        "started_unix_ns": snapshot.wall_unix_ns,
        "elapsed_s": snapshot.elapsed_s,
        "suite": snapshot.suite,
        "simulated": snapshot.simulated,
        "timer": None if snapshot.timer is None else snapshot.timer.name,
        "timer_info": msgspec.to_builtins(snapshot.timer),
        "config": msgspec.to_builtins(snapshot.config),
        "environment": snapshot.environment,
        "device": msgspec.to_builtins(snapshot.device),
        "telemetry_state": snapshot.telemetry_state,
        "clocks": msgspec.to_builtins(snapshot.clocks),
        "clocks_during": msgspec.to_builtins(snapshot.clocks_during),
        "clocks_words": clocks_line(snapshot.clocks_during, snapshot.clocks),
        "advice": msgspec.to_builtins(snapshot.advice),
        "rounds": snapshot.rounds,
        "rows": [_row(store, view) for view in _real(snapshot, store)],
        "telemetry": {},
        "epochs": [
            {"label": e.label, "from_s": _seconds(e.from_ns, start_ns)} for e in snapshot.epochs
        ],
        "gaps": [
            {"from_s": _seconds(a, start_ns), "to_s": _seconds(b, start_ns), "reason": reason}
            for a, b, reason in store.curves.gaps(0, 1 << 62)
        ],
        "versions": versions.as_data(snapshot),
        "sweep": sweep.as_data(store.steps(), _names(store)),
        "skipped": [
            {"name": item.name, "reason": item.reason, "is_refused": item.is_refused}
            for item in snapshot.skipped
        ],
        "notices": [
            {
                "code": told.code,
                "level": told.level,
                "row": told.row or None,
                "t_s": _seconds(told.at_ns, start_ns),
                "count": told.times,
                "text": told.text,
                "evidence": msgspec.to_builtins(told.evidence, enc_hook=str, str_keys=True),
            }
            for told in snapshot.told
        ],
        "neighbours": msgspec.to_builtins(snapshot.neighbours, enc_hook=str),
        "notices_left_out": snapshot.not_told,
        "log": [
            {"t_s": _seconds(line.at_ns, start_ns), "kind": line.kind, "text": line.text}
            for line in snapshot.log
        ],
    }


def _names(store: Store) -> dict[int, str]:
    return {bench: row.info.name for bench, row in store.rows.items()}


def sweep_text(store: Store, *, markdown: bool = False) -> str:
    """What a session's clock sweep found; empty when it made none."""
    if not store.visits:
        return ""
    tops = {b: row.info.name for b, row in store.rows.items() if row.info.parent is None}
    found = sweep.render(store.steps(), tops, markdown=markdown)
    why = (
        ""
        if store.course.is_complete
        else f"\nNOT FINISHED: {store.course.stop_reason or 'it has no end'}"
    )
    return found + why


def _real(snapshot: Snapshot, store: Store) -> Iterator[RowView]:
    return (view for view in snapshot.rows if view.bench in store.rows)


def _row(store: Store, view: RowView) -> dict[str, Any]:
    row = store.rows[view.bench]
    info = row.info
    return {
        "name": info.name,
        "bench": info.bench,
        "group": info.group,
        "parent": info.parent,
        "control_of": info.control_of,
        "params": info.params,
        "flops": info.flops,
        "bytes": info.bytes,
        "baseline": view.is_baseline,
        "baseline_name": view.baseline_name,
        "state": str(view.state),
        "error": view.error or None,
        "traceback": view.traceback or None,
        "inner": view.inner,
        "cache": view.cache,
        "refill": view.refill,
        "here_s": view.here_s,
        "alone_s": view.alone_s,
        "mode": view.mode,
        "badges": list(view.badges),
        "stalls": view.stalls,
        "n_excluded": view.n_excluded,
        "left_out": dict(view.left_out),
        "statistics": _figures(STATISTICS, view, view.whole),
        "rolling": _figures(STATISTICS, view, view.rolling),
        **_figures(OF_ROWS, view, view.rolling),
        "word": str(view.word),
        "drift": msgspec.to_builtins(view.drift),
        "clock_effect": msgspec.to_builtins(view.effect),
        "ratio": msgspec.to_builtins(view.ratio),
        **(versions.row_data(view) if view.version is not None else {}),
        "energy_j": view.energy_j,
        "energy_label": view.energy_label or None,
        "samples_not_kept": 0 if store.archive is not None else row.t_ns.first,
    }


def _samples(store: Store, bench: int) -> Iterator[dict[str, list[Any]]]:
    """Columns of a row's samples, some thousands at a time."""
    for piece in raw.pieces(store, bench):
        of = piece.raw
        mhz, in_stream = piece.beside.sample_clock(of.t_ns)
        yield {
            "t_s": ((of.t_ns - np.int64(store.start_ns)) / 1e9).tolist(),
            "seconds": _nullable(of.seconds),
            "window_ns": of.window_ns.tolist(),
            "inner": of.inner.tolist(),
            "host_ns": of.host_ns.tolist(),
            "round": of.rounds.tolist(),
            "flags": [samples.flag_names(int(f)) for f in of.flags],
            "sm_mhz": _nullable(mhz),
            "sm_source": samples.clock_sources(mhz, in_stream),
        }


_SAMPLES = (
    *("t_s", "seconds", "window_ns", "inner", "host_ns", "round", "flags"),
    *("sm_mhz", "sm_source"),
)


def _figures(columns: Sequence[Column], view: RowView, stats: Stats) -> dict[str, Any]:
    return {c.json: c.pick(view, stats) for c in columns if c.json}


def _seconds(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / 1e9


def _nullable(values: np.ndarray) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values.tolist()]


def _telemetry(store: Store) -> Iterator[dict[str, list[Any]]]:
    for columns in raw.readings(store):
        data: dict[str, Any] = {
            "t_s": ((columns.t_ns.view() - np.int64(store.start_ns)) / 1e9).tolist(),
            "reasons": [None if r < 0 else r for r in columns.reasons.view().tolist()],
        }
        for name, column in columns.fields.items():
            data[name] = _nullable(column.view())
        yield data


def write_json(store: Store, snapshot: Snapshot, out: IO[str]) -> None:
    """The session as one JSON object, in pieces: the memory it takes does not grow with it."""
    data = as_dict(store, snapshot)
    benches = [view.bench for view in _real(snapshot, store)]
    for i, (key, value) in enumerate(data.items()):
        out.write(f"{', ' if i else '{'}{json.dumps(key)}: ")
        if key == "telemetry":
            _write_lists(out, ("t_s", "reasons", *READING_FIELDS), _telemetry(store))
        elif key == "rows":
            _write_rows(store, out, zip(benches, value, strict=True))
        else:
            out.write(_json(value))
    out.write("}\n")


def _write_rows(store: Store, out: IO[str], rows: Iterable[tuple[int, dict[str, Any]]]) -> None:
    out.write("[")
    for i, (bench, row) in enumerate(rows):
        out.write(", " if i else "")
        out.write(f'{_json(row)[:-1]}, "samples": ')
        _write_lists(out, _SAMPLES, _samples(store, bench))
        out.write("}")
    out.write("]")


def _write_lists(
    out: IO[str], names: Sequence[str], parts: Iterable[Mapping[str, Sequence[Any]]]
) -> None:
    """Lists under their names, which come side by side and stand one after the other.

    Where they are long they wait in files of their own.
    """
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(
                tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, "w+", encoding="ascii")
            )
            for name in names
        }
        is_first = True
        for part in parts:
            if not len(part[names[0]]):
                continue
            for name, file in waiting.items():
                file.write(("" if is_first else ", ") + json.dumps(part[name])[1:-1])
            is_first = False
        for i, (name, file) in enumerate(waiting.items()):
            out.write(f"{', ' if i else '{'}{json.dumps(name)}: [")
            file.seek(0)
            shutil.copyfileobj(file, out, _SPOOLED_BYTES)
            out.write("]")
    out.write("}")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        # Something of the user's (or of a file's) is not finite, or no value that JSON has.
        return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def write_csv(store: Store, out: IO[str]) -> None:
    """One line a sample; see `session.samples` for the columns. Numbers keep every digit."""
    writer = csv.writer(out, lineterminator="\n")
    parameters = [f"{samples.PARAMETER}{name}" for name in samples.parameter_names(store)]
    head = [
        *("name", "round", "t_s", "seconds", "window_ns", "inner", "host_ns", "flags"),
        *(*samples.SENSORS, "telemetry_age_s", "sm_source"),
        *(samples.OF_VERSIONS if store.duet.is_duet else ()),
        *parameters,
    ]
    writer.writerow([plain.cell(name) for name in head])
    for columns in samples.parts(store):
        writer.writerows(zip(*(_cells(columns[name]) for name in head), strict=True))


def _cells(values: Any) -> Iterator[Any]:
    """A column as text: repr of numbers, nothing for what is not known."""
    if not isinstance(values, np.ndarray):
        return ("" if v is None else plain.cell(str(v)) for v in values)
    if values.dtype.kind == "f":
        return (_digits(v) for v in values.tolist())
    return iter(values.tolist())


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return ""
    return repr(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)


def write(kind: str, store: Store, snapshot: Snapshot, out: IO[str]) -> None:
    """Write `json`, `csv` or `json-lines`."""
    if kind == "json":
        write_json(store, snapshot, out)
    elif kind == "json-lines":
        out.write(verdicts.text_of(snapshot))
    else:
        write_csv(store, out)


def write_file(path: Path, store: Store, snapshot: Snapshot, kind: str) -> None:
    """Write JSON or CSV, whole or not at all, and never over anything but its like.

    Raises:
        UsageError: the path cannot be written, or holds something else.
    """
    outputs.write_whole(path, kind, lambda out: write(kind, store, snapshot, out))

"""A session as JSON or CSV: raw samples in full doubles, null where something was not reported."""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from usv_tui import plain
from usv_tui.report import sweep
from usv_tui.report.columns import OF_ROWS, STATISTICS, Column
from usv_tui.report.wording.rows import clocks_line
from usv_tui.session import outputs, samples
from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.session.store import Store
from usv_tui.stats.rolling import Stats

JSON_SCHEMA = 1
_EXACT = 1 << 53
"""Whole numbers below it are written without a point."""


def as_dict(store: Store, snapshot: Snapshot) -> dict[str, Any]:
    """The whole session as plain data. Times in seconds count from the session's start."""
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
        "rows": [_row(store, view, start_ns) for view in _real(snapshot, store)],
        "telemetry": _telemetry(store, start_ns),
        "epochs": [
            {"label": e.label, "from_s": _seconds(e.from_ns, start_ns)} for e in snapshot.epochs
        ],
        "gaps": [
            {"from_s": _seconds(a, start_ns), "to_s": _seconds(b, start_ns), "reason": reason}
            for a, b, reason in store.gaps(0, 1 << 62)
        ],
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
    why = "" if store.is_complete else f"\nNOT FINISHED: {store.stop_reason or 'it has no end'}"
    return found + why


def _real(snapshot: Snapshot, store: Store) -> Iterator[RowView]:
    return (view for view in snapshot.rows if view.bench in store.rows)


def _row(store: Store, view: RowView, start_ns: int) -> dict[str, Any]:
    row = store.rows[view.bench]
    info = row.info
    mhz, in_stream = store.sample_clock(row.t_ns.view())
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
        "energy_j": view.energy_j,
        "energy_label": view.energy_label or None,
        "samples": {
            "t_s": ((row.t_ns.view() - np.int64(start_ns)) / 1e9).tolist(),
            "seconds": _nullable(row.seconds()),
            "window_ns": row.window_ns.view().tolist(),
            "inner": row.inner.view().tolist(),
            "host_ns": (row.host_ns or row.window_ns).view().tolist(),
            "round": row.round.view().tolist(),
            "flags": [samples.flag_names(int(f)) for f in row.flags.view()],
            "sm_mhz": _nullable(mhz),
            "sm_source": samples.clock_sources(mhz, in_stream),
        },
    }


def _figures(columns: Sequence[Column], view: RowView, stats: Stats) -> dict[str, Any]:
    return {c.json: c.pick(view, stats) for c in columns if c.json}


def _seconds(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / 1e9


def _nullable(values: np.ndarray) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values.tolist()]


def _telemetry(store: Store, start_ns: int) -> dict[str, Any]:
    columns = store.telemetry_columns
    data: dict[str, Any] = {
        "t_s": ((columns.t_ns.view() - np.int64(start_ns)) / 1e9).tolist(),
        "reasons": [None if r < 0 else r for r in columns.reasons.view().tolist()],
    }
    for name, column in columns.fields.items():
        data[name] = _nullable(column.view())
    return data


def write_json(store: Store, snapshot: Snapshot, out: IO[str]) -> None:
    """The session as one JSON object."""
    data = as_dict(store, snapshot)
    try:
        text = json.dumps(data, allow_nan=False)
    except (ValueError, TypeError):
        # Something of the user's (or of a file's) is not finite, or no value that JSON has.
        text = json.dumps(_plain(data), allow_nan=False)
    out.write(text + "\n")


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
    columns = samples.columns(store)
    parameters = [name for name in columns if name.startswith(samples.PARAMETER)]
    head = [
        *("name", "round", "t_s", "seconds", "window_ns", "inner", "host_ns", "flags"),
        *(*samples.SENSORS, "telemetry_age_s", "sm_source"),
        *parameters,
    ]
    writer.writerow([plain.cell(name) for name in head])
    if columns:
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
    """Write `json` or `csv`."""
    if kind == "json":
        write_json(store, snapshot, out)
    else:
        write_csv(store, out)


def write_file(path: Path, store: Store, snapshot: Snapshot, kind: str) -> None:
    """Write JSON or CSV, whole or not at all, and never over anything but its like.

    Raises:
        UsageError: the path cannot be written, or holds something else.
    """
    outputs.write_whole(path, kind, lambda out: write(kind, store, snapshot, out))

"""Every sample of a session in columns, with the sensors beside it: CSV, Parquet and frames."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from usv_tui.model import Flag
from usv_tui.session import raw
from usv_tui.session.row_store import RowStore
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.session.store import Store

SENSORS = ("sm_mhz", "temp_c", "power_mw")
OF_VERSIONS = ("version", "launch")
"""Columns of a session that compares versions."""
PARAMETER = "param:"
"""Before the name of a parameter's column."""


def flag_names(flags: int) -> list[str]:
    """The set flags in lower case."""
    return [str(flag.name).lower() for flag in Flag if flags & flag]


def clock_sources(mhz: FloatArray, in_stream: np.ndarray) -> list[str]:
    """Where each sample's clock comes from: in-stream, polled, or nowhere."""
    words: list[str] = np.where(
        np.isfinite(mhz), np.where(in_stream, "in-stream", "polled"), ""
    ).tolist()
    return words


def columns(store: Store) -> dict[str, Any]:
    """One entry a sample, rows one after the other; NaN where something is not known.

    `sm_mhz` is the stream's own clock where a probe measured it (`sm_source` in-stream). Parameters
    have columns of their own, named `param:NAME`, None where a row has no such parameter.
    """
    return _joined(list(parts(store)))


def parts(store: Store) -> Iterator[dict[str, Any]]:
    """The same, some thousands of samples at a time."""
    names = parameter_names(store)
    for row in _rows(store):
        for piece in raw.pieces(store, row.info.bench):
            yield _of_piece(store, row, piece, names)


def _joined(found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found:
        return {}
    return {
        name: np.concatenate([part[name] for part in found])
        if isinstance(found[0][name], np.ndarray)
        else [value for part in found for value in part[name]]
        for name in found[0]
    }


def parameter_names(store: Store) -> list[str]:
    """Of all rows, in order of their first use."""
    return list(dict.fromkeys(name for row in _rows(store) for name in row.info.params))


def _rows(store: Store) -> Iterator[RowStore]:
    return (row for row in store.rows.values() if row.t_ns.n)


def of_row(store: Store, row: RowStore) -> dict[str, Any]:
    """`columns` of one row."""
    found = [_of_piece(store, row, piece, ()) for piece in raw.pieces(store, row.info.bench)]
    return _joined(found or [_of_piece(store, row, raw.Piece(0, row.raw(), store), ())])


def _of_piece(
    store: Store, row: RowStore, piece: raw.Piece, names: Sequence[str]
) -> dict[str, Any]:
    of = piece.raw
    n = len(of.t_ns)
    flags = of.flags.tolist()
    words = {value: "|".join(flag_names(value)) for value in set(flags)}
    made: dict[str, Any] = {
        "name": [row.info.name] * n,
        "round": np.array(of.rounds),
        "t_s": (of.t_ns - np.int64(store.start_ns)) / 1e9,
        "seconds": of.seconds,
        "window_ns": np.array(of.window_ns),
        "inner": np.array(of.inner),
        "host_ns": np.array(of.host_ns),
        "flags": [words[value] for value in flags],
    }
    if store.duet.is_duet:
        made["version"] = [store.duet.label_of(row.info.version)] * n
        made["launch"] = store.duet.numbers(of.rounds, (of.flags & int(Flag.WARMUP)) != 0)
    made |= _sensors(piece.beside, np.asarray(of.t_ns, np.int64))
    return made | {f"{PARAMETER}{name}": [row.info.params.get(name)] * n for name in names}


def _sensors(store: Store, times: IntArray) -> dict[str, Any]:
    """The latest reading before each sample, its age, and where the clock comes from."""
    telemetry = store.telemetry_columns
    read_ns = np.asarray(telemetry.t_ns.view(), np.int64)
    nearest = np.searchsorted(read_ns, times, side="right") - 1
    known = nearest >= 0
    made: dict[str, Any] = {}
    for name in SENSORS:
        made[name] = np.full(times.size, np.nan)
        made[name][known] = telemetry.fields[name].view()[nearest[known]]
    made["telemetry_age_s"] = np.full(times.size, np.nan)
    made["telemetry_age_s"][known] = (times[known] - read_ns[nearest[known]]) / 1e9
    clock, in_stream = store.sample_clock(times)
    made["sm_source"] = clock_sources(np.where(in_stream, clock, made["sm_mhz"]), in_stream)
    made["sm_mhz"] = np.where(in_stream, clock, made["sm_mhz"])
    return made

"""Every sample of a session in columns, with the sensors beside it: CSV, Parquet and frames."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from usv_tui.model import Flag
from usv_tui.session.row_store import RowStore
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.session.store import Store

SENSORS = ("sm_mhz", "temp_c", "power_mw")
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
    names = parameter_names(store)
    parts = [of_row(store, row, names) for row in _rows(store)]
    if not parts:
        return {}
    return {
        name: np.concatenate([part[name] for part in parts])
        if isinstance(parts[0][name], np.ndarray)
        else [value for part in parts for value in part[name]]
        for name in parts[0]
    }


def parameter_names(store: Store) -> list[str]:
    """Of all rows, in order of their first use."""
    return list(dict.fromkeys(name for row in _rows(store) for name in row.info.params))


def _rows(store: Store) -> Iterator[RowStore]:
    return (row for row in store.rows.values() if row.t_ns.n)


def of_row(store: Store, row: RowStore, names: Sequence[str] = ()) -> dict[str, Any]:
    """The same of one row, with columns for the named parameters."""
    times = np.asarray(row.t_ns.view(), np.int64)
    n = times.size
    words = {flags: "|".join(flag_names(flags)) for flags in set(row.flags.view().tolist())}
    made: dict[str, Any] = {
        "name": [row.info.name] * n,
        "round": np.asarray(row.round.view()),
        "t_s": (times - store.start_ns) / 1e9,
        "seconds": row.seconds(),
        "window_ns": np.asarray(row.window_ns.view()),
        "inner": np.asarray(row.inner.view()),
        "host_ns": np.asarray((row.host_ns or row.window_ns).view()),
        "flags": [words[flags] for flags in row.flags.view().tolist()],
    }
    made |= _sensors(store, times)
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

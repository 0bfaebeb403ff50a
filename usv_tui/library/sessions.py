"""Saved sessions in Python: `load` gives rows, samples, readings, ratios and the advice."""

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usv_tui.errors import UsageError
from usv_tui.library.measurement import Measurement
from usv_tui.model import EXCLUDED, Advice, DeviceInfo, Flag, Ratio
from usv_tui.session import raw, samples
from usv_tui.session.columns import READING_FIELDS
from usv_tui.session.opened import Opened, open_session
from usv_tui.session.store import NOT_WHOLE

_FRAMES = ("pandas", "polars")


@dataclass(frozen=True)
class SessionRow:
    """One row of a saved session."""

    name: str
    group: str
    params: Mapping[str, Any]
    state: str
    """steady, settled, drifting … in one word; empty when nothing could be said."""
    ratio: Ratio | None
    """Against its baseline, paired within rounds, with the interval; None for a baseline."""
    baseline: str
    """The name of the row that `ratio` refers to."""
    badges: tuple[str, ...]
    error: str
    """Why it failed; empty where it did not."""
    columns: Mapping[str, Any]
    """Every sample, also those that statistics leave out: t_s, seconds, window_ns, inner, host_ns,
    round, flags (words), sm_mhz, temp_c, power_mw, telemetry_age_s. NaN where unknown."""
    counted: NDArray[np.bool_]
    """Which samples the statistics take: not those of the warm-up, of a ramp or without a time."""
    measurement: Measurement
    """The counted samples, with the names of `do_bench`'s result."""


@dataclass(frozen=True)
class Session:
    """What a session file says, at its end."""

    path: Path
    suite: str
    complete: bool
    stop_reason: str
    started_unix_ns: int
    device: DeviceInfo | None
    environment: Mapping[str, Any]
    advice: Advice
    rows: Mapping[str, SessionRow]
    """By name, in the table's order."""
    readings: Mapping[str, NDArray[np.float64]]
    """Of the device's sensors: t_s and one array a sensor; NaN where it was not read."""
    _opened: Opened

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Each row's ratio against its baseline, by name; baselines have none."""
        return {name: row.ratio for name, row in self.rows.items() if row.ratio is not None}

    def frame(self, library: str = "") -> Any:
        """Every sample as a data frame of pandas or polars, whichever is there (or the named one).

        Columns as in CSV; parameters are named `param:NAME`.

        Raises:
            UsageError: the library is not installed, or another was named.
        """
        data = samples.columns(self._opened.store)
        for name in (library,) if library else _FRAMES:
            if name not in _FRAMES:
                raise UsageError(f"no frames of {name!r}", f"one of {', '.join(_FRAMES)}")
            try:
                frames: Any = importlib.import_module(name)
            except ImportError:
                continue
            return frames.DataFrame(data)
        wanted = library or " or ".join(_FRAMES)
        raise UsageError(f"a frame needs {wanted}", f"pip install {library or _FRAMES[0]}")


def load(path: str | Path) -> Session:
    """Read a session file, finished or not. One of which a part is missing warns.

    Raises:
        UsageError: it cannot be read, is no session, or is from a newer version.
    """
    opened = open_session(Path(path))
    snapshot, store = opened.snapshot, opened.store
    for notice in snapshot.told:
        if notice.code in NOT_WHOLE:
            warnings.warn(f"{path}: {notice.text}", stacklevel=2)
    told = list(raw.readings(store))
    t_s = np.concatenate([(part.t_ns.view() - store.start_ns) / 1e9 for part in told])
    readings = {
        name: np.concatenate([part.fields[name].view() for part in told]) for name in READING_FIELDS
    }
    return Session(
        path=Path(path),
        suite=snapshot.suite,
        complete=snapshot.complete,
        stop_reason=snapshot.stop_reason,
        started_unix_ns=snapshot.wall_unix_ns,
        device=snapshot.device,
        environment=snapshot.environment,
        advice=snapshot.advice,
        rows={row.name: row for row in _rows(opened)},
        readings={"t_s": t_s} | readings,
        _opened=opened,
    )


def _rows(opened: Opened) -> list[SessionRow]:
    made = []
    for view in opened.rows:
        row = opened.store.rows[view.bench]
        columns = samples.of_row(opened.store, row)
        excluded = {str(flag.name).lower() for flag in Flag if flag & EXCLUDED}
        words = [excluded.isdisjoint(flags.split("|")) for flags in columns["flags"]]
        counted = np.array(words, bool) & np.isfinite(columns["seconds"])
        counted[: row.epoch_start] = False
        timer = opened.snapshot.timer
        measurement = Measurement(
            columns["seconds"][counted],
            name=view.name,
            inner=view.inner,
            flops=view.flops,
            bytes=view.bytes,
            timer=timer.name if timer else "",
            cache=view.cache,
            seed=opened.snapshot.config.seed,
        )
        made.append(
            SessionRow(
                view.name,
                view.group,
                row.info.params,
                str(view.word),
                view.ratio,
                view.baseline_name,
                view.badges,
                view.error,
                columns,
                counted,
                measurement,
            )
        )
    return made

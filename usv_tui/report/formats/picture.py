"""What a picture of a session shows: each row's time over the run, and the sensors beneath."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from usv_tui import plain
from usv_tui.session.opened import Opened
from usv_tui.session.snapshot import FloatArray
from usv_tui.units import Unit, time_unit

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D00", "#666666")
"""Told apart by most colour-blind people (Okabe and Ito), readable on white."""
MOST_BINS = 1500
_HOLE_BINS = 5
"""Bins without a sample in a row across which no line is drawn."""


class Line(NamedTuple):
    """One row over time, in bins."""

    name: str
    colour: str
    t_s: FloatArray
    low: FloatArray
    median: FloatArray
    high: FloatArray
    """In the picture's unit. NaN in all of them where nothing was measured for a while."""


class Strip(NamedTuple):
    """One sensor over time."""

    title: str
    t_s: FloatArray
    values: FloatArray


def unit_of(session: Opened) -> Unit:
    """The unit of time in which the smallest median is at least 1."""
    return time_unit(view.whole.median_s for view in session.rows)


def lines(session: Opened) -> Iterator[Line]:
    """The rows that have samples."""
    store, unit = session.store, unit_of(session)
    number = 0
    for view in session.rows:
        bins = store.curves.bins(view.bench, 0, store.last_ns + 1)
        if not len(bins.t_ns):
            continue
        step = -(-len(bins.t_ns) // MOST_BINS)
        starts = np.arange(0, len(bins.t_ns), step)
        t_s = (bins.t_ns[starts] - store.start_ns) / 1e9
        holes = np.flatnonzero(np.diff(t_s) > _HOLE_BINS * step * bins.width_ns / 1e9) + 1
        yield Line(
            plain.name(view.name),
            COLOURS[number % len(COLOURS)],
            np.insert(t_s, holes, np.nan),
            *(
                np.insert(np.asarray(part) / unit.seconds, holes, np.nan)
                for part in (
                    np.minimum.reduceat(bins.low_s, starts),
                    [np.nanmedian(bins.median_s[i : i + step]) for i in starts],
                    np.maximum.reduceat(bins.high_s, starts),
                )
            ),
        )
        number += 1


def strips(session: Opened) -> Iterator[Strip]:
    """Clock, temperature and power, as far as the device tells them."""
    store = session.store
    for field, title, scale in (
        ("sm_mhz", "clock MHz", 1.0),
        ("temp_c", "temperature °C", 1.0),
        ("power_mw", "power W", 1e-3),
    ):
        t_ns, values = store.curves.telemetry(field, 0, store.last_ns + 1)
        good = np.isfinite(values)
        if good.any():
            t_s = (t_ns[good] - store.start_ns) / 1e9
            yield Strip(title, t_s, np.asarray(values[good] * scale, np.float64))


def marks(session: Opened) -> Iterator[tuple[float, str]]:
    """Marks, locks and other beginnings of an epoch, in seconds since the start."""
    store = session.store
    for at_ns, label in store.curves.marks(0, store.last_ns + 1):
        yield (at_ns - store.start_ns) / 1e9, plain.name(label)

"""Series to columns of a time axis, without a loop over samples."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.tui.view import TimeAxis

Index = NDArray[np.intp]


class Columns(NamedTuple):
    """Which part of a series falls into which column; only columns that hold something."""

    x: Index
    start: Index
    end: Index
    """One past the column's last element."""

    def smallest(self, values: FloatArray) -> FloatArray:
        """The least value of each column."""
        return np.minimum.reduceat(values[: self.end[-1]], self.start)

    def largest(self, values: FloatArray) -> FloatArray:
        """The greatest value of each column."""
        return np.maximum.reduceat(values[: self.end[-1]], self.start)


def by_column(t_ns: IntArray, axis: TimeAxis) -> Columns:
    """Split ascending times into the axis' columns."""
    edges = axis.from_ns + axis.step_ns * np.arange(axis.columns + 1, dtype=np.int64)
    cuts = np.searchsorted(t_ns, edges)
    x = np.flatnonzero(cuts[1:] > cuts[:-1])
    return Columns(x, cuts[x], cuts[x + 1])


def trailing_medians(values: FloatArray, ends: Index, width: int) -> FloatArray:
    """The median of the last `width` (odd) values before each end; fewer only when there are fewer.

    Near the beginning the window is the first `width` values, so that it never shrinks to one.
    """
    width = min(width, len(values))
    first = np.maximum(ends - width, 0)
    windows = values[first[:, None] + np.arange(width)]
    return np.partition(windows, width // 2, axis=1)[:, width // 2]


def quantiles(values: FloatArray, *parts: float) -> list[float]:
    """Order statistics nearest to the given parts of a non-empty array."""
    ranks = [round(p * (len(values) - 1)) for p in parts]
    ordered = np.partition(values, sorted(set(ranks)))
    return [float(ordered[r]) for r in ranks]


def joined(
    x: FloatArray, y: FloatArray, is_broken: NDArray[np.bool_], steps: int = 8
) -> tuple[FloatArray, FloatArray]:
    """Points of the polyline through (x, y), `steps` a column, none across a break.

    Args:
        x: ascending positions.
        y: values there.
        is_broken: for each point but the last, that no line leads to the next one.
        steps: points a column.
    """
    if len(x) < 2:
        return x, y
    dense = np.arange(int(x[0]) * steps, int(x[-1]) * steps + 1) / steps
    segment = np.minimum(np.searchsorted(x, dense, side="right") - 1, len(x) - 2)
    keep = ~is_broken[segment] | (dense == x[segment]) | (dense == x[segment + 1])
    dense = dense[keep]
    return dense, np.interp(dense, x, y)


def filled(low: Index, high: Index, x: Index, rows: int) -> tuple[Index, Index]:
    """Dots of vertical bars from row `low` to row `high` (top first) at each x."""
    grid = np.arange(rows)[:, None]
    y, column = np.nonzero((grid >= low) & (grid <= high))
    return x[column], y

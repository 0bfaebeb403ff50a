"""Series of a session over time, as charts and exports take them."""

from typing import TYPE_CHECKING

import numpy as np

from usv_tui.model import EXCLUDED, Flag
from usv_tui.session.columns import Bins
from usv_tui.session.lane import Stretch
from usv_tui.session.row_store import BIN_NS
from usv_tui.session.snapshot import BinSeries, FloatArray, IntArray, Series

if TYPE_CHECKING:
    from usv_tui.session.store import Store


class Curves:
    """A look at the fold; it has no state of its own."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def series(self, bench: int, from_ns: int, to_ns: int, limit: int = 20_000) -> Series:
        """The samples of a row in a stretch of time; evenly thinned to about `limit` points.

        Those that are no longer in memory come as thin as they are kept.
        """
        row = self._store.rows.get(bench)
        if row is None:
            return Series(np.empty(0, np.int64), np.empty(0), np.empty(0, bool))
        times = row.t_ns.view()
        a, b = (int(i) for i in np.searchsorted(times, (from_ns, to_ns)))
        old_t, old_s, old_flags = row.old.between(from_ns, to_ns)
        stride = row.old.stride if len(old_t) else 1
        step = max(stride, -(-(b - a + len(old_t) * stride) // limit))
        skip = slice(None, None, max(1, step // stride))
        part = slice(a + row.t_ns.first, b + row.t_ns.first)
        raw = row.raw(part.start, part.stop)
        flags = np.concatenate([old_flags[skip], raw.flags[::step]])
        return Series(
            np.concatenate([old_t[skip], raw.t_ns[::step]]),
            np.concatenate([old_s[skip], raw.seconds[::step]]),
            (flags & int(EXCLUDED | Flag.STALL)) != 0,
        )

    def bins(self, bench: int, from_ns: int, to_ns: int) -> BinSeries:
        """The row's closed bins of `BIN_NS` in a stretch of time."""
        row = self._store.rows.get(bench)
        return (row.bins if row else Bins(BIN_NS)).series(from_ns, to_ns)

    def telemetry(self, field: str, from_ns: int, to_ns: int) -> tuple[IntArray, FloatArray]:
        """Times and values of one telemetry field; NaN where it was not reported."""
        part = self._store.telemetry_columns.between(from_ns, to_ns)
        times = self._store.telemetry_columns.t_ns.view()[part]
        return times, self._store.telemetry_columns.fields[field].view()[part]

    def marks(self, from_ns: int, to_ns: int) -> list[tuple[int, str]]:
        """Epoch marks within a stretch of time."""
        return [(t, label) for t, label in self._store.all_marks if from_ns <= t < to_ns]

    def changes(self, bench: int, from_ns: int, to_ns: int) -> list[tuple[int, str]]:
        """Moments of the epoch at which a row's level changed, and by how much."""
        row = self._store.rows.get(bench)
        changes = [] if row is None else row.changes()
        return [
            (c.at_ns, f"{c.change * 100:+.1f} %") for c in changes if from_ns <= c.at_ns < to_ns
        ]

    def gaps(self, from_ns: int, to_ns: int) -> list[tuple[int, int, str]]:
        """Times of standing still that touch a stretch of time."""
        return self._store.lane.gaps(from_ns, to_ns)

    def limits(self, from_ns: int, to_ns: int) -> list[Stretch]:
        """What held the numbers back in a stretch of time, and when."""
        return self._store.lane.between(from_ns, to_ns)

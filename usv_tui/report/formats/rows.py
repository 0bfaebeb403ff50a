"""What every format needs of a row: its counted samples and what they come to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from usv_tui.model import EXCLUDED
from usv_tui.session import raw
from usv_tui.session.opened import Opened
from usv_tui.session.snapshot import FloatArray, IntArray, RowView


@dataclass(frozen=True, slots=True)
class Timed:
    """One row with samples."""

    view: RowView
    params: Mapping[str, Any]
    base: str
    """The name without its parameters."""
    seconds: FloatArray
    """Per call, oldest first; what statistics leave out is not in it."""
    t_ns: IntArray
    inner: int
    sm_mhz: FloatArray
    """Beside each sample; NaN where it is not known."""

    @property
    def quartiles(self) -> tuple[float, float]:
        """25th and 75th percentile of the seconds."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float(low), float(high)

    @property
    def std_s(self) -> float:
        """Sample standard deviation; 0 for fewer than two samples."""
        return float(self.seconds.std(ddof=1)) if self.seconds.size > 1 else 0.0


def timed(session: Opened) -> Iterator[Timed]:
    """The rows that have samples, in the table's order."""
    for view in session.rows:
        row = session.store.rows[view.bench]
        data = raw.whole(session.store, view.bench)
        good = ((data.flags & int(EXCLUDED)) == 0) & (data.window_ns > 0)
        if not good.any():
            continue
        t_ns = np.asarray(data.t_ns[good], np.int64)
        mhz, _ = session.store.sample_clock(t_ns)
        seconds = np.asarray(data.window_ns[good] / (data.inner[good] * 1e9), np.float64)
        inner = int(np.median(data.inner[good]))
        base = view.name.partition("[")[0] if row.info.params else view.name
        yield Timed(view, row.info.params, base, seconds, t_ns, inner, mhz)

"""Columns: raw samples, time bins made on arrival, telemetry. One owner, the store.

None grows for ever: raw samples are dropped behind the newest, the rest is thinned with its age.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import Reading
from usv_tui.session.snapshot import BinSeries, FloatArray, IntArray

T = TypeVar("T", bound=np.generic)

_BIG_STEP = 1 << 19
"""From this many elements on, capacity grows by steps, so that little of it stands empty."""

_MOST_THINNED = 1 << 15
_MOST_BINS = 20_000
"""Over half an hour of tenths of a second; then the older half is merged in pairs."""
_MOST_READINGS = 72_000
"""Two hours at ten a second; then of the older half every other is kept."""
_BITS = (1 << 63) - 1
"""What a column of clock-event bits can hold."""


class Column(Generic[T]):
    """An append-only array; `view` costs nothing and stays valid until the next append.

    Its oldest elements may be dropped: indices count all that ever came.
    """

    def __init__(self, dtype: type[T], capacity: int = 256) -> None:
        self._data: NDArray[T] = np.empty(capacity, dtype=dtype)
        self.n = 0
        """How many came."""
        self.first = 0
        """Index of the first that is kept."""

    def extend(self, values: NDArray[Any]) -> None:
        """Append an array; its values become the column's type."""
        kept = self.n - self.first
        end = kept + len(values)
        if end > len(self._data):
            step = min(max(len(self._data), len(values)), _BIG_STEP)
            grown = np.empty(max(end, len(self._data) + step), dtype=self._data.dtype)
            grown[:kept] = self._data[:kept]
            self._data = grown
        self._data[kept:end] = values
        self.n += len(values)

    def append(self, value: float) -> None:
        """Append one value, without the detour of an array."""
        kept = self.n - self.first
        if kept == len(self._data):
            self.extend(np.array([value]))
            return
        self._data[kept] = value
        self.n += 1

    def view(self, start: int = 0, stop: int | None = None) -> NDArray[T]:
        """The elements from `start` on, as far as they are kept, without a copy."""
        end = self.n if stop is None else min(stop, self.n)
        return self._data[max(0, start - self.first) : max(0, end - self.first)]

    def drop(self, upto: int) -> None:
        """Forget the elements before an index."""
        kept = self._data[upto - self.first : self.n - self.first].copy()
        self._data[: len(kept)] = kept
        self.first = upto

    def put(self, values: NDArray[Any]) -> None:
        """Have these elements instead of all."""
        self.first, self.n = 0, 0
        self.extend(values)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._data.nbytes


def thin(columns: Sequence[Column[Any]], most: int) -> None:
    """Where columns of one length have come to `most`, of the older half every other stays."""
    n = columns[0].n
    if n < most:
        return
    for column in columns:
        values = column.view()
        column.put(np.concatenate([values[: n // 2 : 2], values[n // 2 :]]))


class Raw(NamedTuple):
    """Raw samples of one row, oldest first."""

    t_ns: IntArray
    window_ns: IntArray
    inner: NDArray[Any]
    rounds: NDArray[Any]
    flags: NDArray[Any]
    host_ns: IntArray

    @property
    def seconds(self) -> FloatArray:
        """Seconds per call; NaN for windows of zero or less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.window_ns > 0, self.window_ns / (self.inner * 1e9), np.nan)


class Thinned:
    """Samples that are no longer kept raw: every k-th of them, in bounded memory."""

    def __init__(self) -> None:
        self.stride = 1
        self._seen = 0
        self._t_ns, self._seconds = Column(np.int64), Column(np.float64)
        self._flags = Column(np.uint8)

    def add(self, raw: Raw) -> None:
        """The next samples."""
        part = slice(-self._seen % self.stride, None, self.stride)
        self._seen += len(raw.t_ns)
        columns: tuple[Column[Any], ...] = (self._t_ns, self._seconds, self._flags)
        for column, values in zip(columns, (raw.t_ns, raw.seconds, raw.flags), strict=True):
            column.extend(values[part])
        while self._t_ns.n > _MOST_THINNED:
            self.stride *= 2
            for column in columns:
                column.put(column.view()[::2].copy())

    def between(self, from_ns: int, to_ns: int) -> tuple[IntArray, FloatArray, NDArray[Any]]:
        """Times, seconds per call and flags of a stretch of time."""
        a, b = np.searchsorted(self._t_ns.view(), (from_ns, to_ns))
        return self._t_ns.view()[a:b], self._seconds.view()[a:b], self._flags.view()[a:b]


class Bins:
    """Equal time bins of one row: lowest, highest, median and count, closed as time goes on."""

    def __init__(self, width_ns: int) -> None:
        self.width_ns = width_ns
        self._t = Column(np.int64)
        self._low = Column(np.float64)
        self._high = Column(np.float64)
        self._median = Column(np.float64)
        self._n = Column(np.int64)
        self._width = Column(np.int64)
        self._open_id = -1
        self._open: list[FloatArray] = []

    def extend(self, t_ns: IntArray, seconds: FloatArray) -> None:
        """Samples in time order; NaN are skipped."""
        usable = np.isfinite(seconds)
        if not usable.all():
            t_ns, seconds = t_ns[usable], seconds[usable]
        if not len(t_ns):
            return
        ids = t_ns // self.width_ns
        if ids[0] == ids[-1] == self._open_id:
            self._open.append(seconds)
            return
        edges = np.flatnonzero(np.diff(ids)) + 1
        starts = np.concatenate(([0], edges))
        stops = np.concatenate((edges, [len(ids)]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            bin_id = int(ids[start])
            if bin_id != self._open_id:
                self._close()
                self._open_id = bin_id
            self._open.append(seconds[start:stop])

    def _close(self) -> None:
        if not self._open:
            return
        values = np.concatenate(self._open)
        self._open = []
        values.sort()
        middle = len(values) // 2
        median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
        self._t.append(self._open_id * self.width_ns)
        self._low.append(values[0])
        self._high.append(values[-1])
        self._median.append(median)
        self._n.append(len(values))
        self._width.append(self.width_ns)

    def age(self) -> None:
        """Merge the older half in pairs where there are very many bins.

        A median is then the mean of two, weighted by their counts.
        """
        half = self._t.n // 2 & ~1
        if self._t.n < _MOST_BINS:
            return
        t, low, high = self._t.view(), self._low.view(), self._high.view()
        median, n, width = self._median.view(), self._n.view(), self._width.view()
        old = slice(0, half)
        total = n[old].reshape(-1, 2).sum(axis=1)
        merged: list[tuple[Column[Any], NDArray[Any]]] = [
            (self._low, low[old].reshape(-1, 2).min(axis=1)),
            (self._high, high[old].reshape(-1, 2).max(axis=1)),
            (self._median, (median[old] * n[old]).reshape(-1, 2).sum(axis=1) / total),
            (self._width, t[1:half:2] + width[1:half:2] - t[0:half:2]),
            (self._t, t[0:half:2]),
            (self._n, total),
        ]
        for column, values in merged:
            column.put(np.concatenate([values, column.view()[half:]]))

    @property
    def closed(self) -> int:
        """How many bins are closed."""
        return self._t.n

    def series(self, from_ns: int, to_ns: int, most: int | None = None) -> BinSeries:
        """The closed bins that start within [from_ns, to_ns), of the first `most` of all."""
        t = self._t.view()
        a, b = np.searchsorted(t[:most], (from_ns, to_ns))
        return BinSeries(
            t[a:b],
            self._low.view()[a:b],
            self._high.view()[a:b],
            self._median.view()[a:b],
            self._n.view()[a:b],
            int(self._width.view()[a:b].max(initial=self.width_ns)),
        )


READING_FIELDS = (
    "sm_mhz",
    "sm_mhz_min",
    "mem_mhz",
    "power_mw",
    "temp_c",
    "mem_temp_c",
    "energy_mj",
    "util_pct",
    "fan_pct",
    "power_limit_mw",
)


class TelemetryColumns:
    """Readings as arrays; NaN where a field was not reported."""

    def __init__(self) -> None:
        self.t_ns = Column(np.int64)
        self.reasons = Column(np.int64)
        """Clock-event bits; -1 when unknown."""
        self.fields = {name: Column(np.float64) for name in READING_FIELDS}
        self.has_low = False
        """True when the device has several clocks and tells the slowest."""
        self.n_all = 0
        """How many readings came: of the older ones some may be left out."""
        self.throttle_ns = {name: Column(np.float64) for name in ("power", "thermal")}
        """Accumulated counters, NaN where there are none."""

    def add(self, reading: Reading) -> None:
        """One reading."""
        self.t_ns.extend(np.array([reading.at_ns]))
        self.reasons.extend(np.array([-1 if reading.reasons is None else reading.reasons & _BITS]))
        for name, column in self.fields.items():
            value = getattr(reading, name)
            column.extend(np.array([np.nan if value is None else float(value)]))
        self.has_low = self.has_low or reading.sm_mhz_min is not None
        counters = reading.throttle_ns
        power = counters.get("power")
        thermal = [counters[k] for k in ("thermal", "hw_thermal", "brake") if k in counters]
        for name, total in (("power", power), ("thermal", sum(thermal) if thermal else None)):
            self.throttle_ns[name].extend(np.array([np.nan if total is None else float(total)]))
        self.n_all += 1
        thin(
            [self.t_ns, self.reasons, *self.fields.values(), *self.throttle_ns.values()],
            _MOST_READINGS,
        )

    @property
    def is_thinned(self) -> bool:
        """Whether older readings have been left out."""
        return self.n_all > self.t_ns.n

    def between(self, from_ns: int, to_ns: int) -> slice:
        """The readings of a stretch of time."""
        a, b = np.searchsorted(self.t_ns.view(), (from_ns, to_ns))
        return slice(int(a), int(b))

"""Columns that grow: raw samples, time bins made on arrival, telemetry. One owner, the store."""

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import Reading
from usv_tui.session.snapshot import BinSeries, FloatArray, IntArray

T = TypeVar("T", bound=np.generic)

_BIG_STEP = 1 << 19
"""From this many elements on, capacity grows by steps, so that little of it stands empty."""

_BITS = (1 << 63) - 1
"""What a column of clock-event bits can hold."""


class Column(Generic[T]):
    """An append-only array; `view` costs nothing and stays valid until the next append."""

    def __init__(self, dtype: type[T], capacity: int = 256) -> None:
        self._data: NDArray[T] = np.empty(capacity, dtype=dtype)
        self.n = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Append an array; its values become the column's type."""
        end = self.n + len(values)
        if end > len(self._data):
            step = min(max(len(self._data), len(values)), _BIG_STEP)
            grown = np.empty(max(end, len(self._data) + step), dtype=self._data.dtype)
            grown[: self.n] = self._data[: self.n]
            self._data = grown
        self._data[self.n : end] = values
        self.n = end

    def append(self, value: float) -> None:
        """Append one value, without the detour of an array."""
        if self.n == len(self._data):
            self.extend(np.array([value]))
            return
        self._data[self.n] = value
        self.n += 1

    def view(self, start: int = 0) -> NDArray[T]:
        """The elements from `start` on, without a copy."""
        return self._data[start : self.n]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._data.nbytes


class Recent:
    """The last `capacity` values in order, contiguous, at constant cost."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._data = np.empty(2 * capacity, dtype=np.float64)
        self._end = 0

    def extend(self, values: FloatArray) -> None:
        """Append; the oldest fall out."""
        if len(values) > self._capacity:
            values = values[-self._capacity :]
        if self._end + len(values) > len(self._data):
            kept = min(self._end, self._capacity)
            self._data[:kept] = self._data[self._end - kept : self._end]
            self._end = kept
        self._data[self._end : self._end + len(values)] = values
        self._end += len(values)

    def last(self, n: int) -> FloatArray:
        """Up to the last `n` values, oldest first: a view."""
        return self._data[max(0, self._end - min(n, self._capacity)) : self._end]

    def clear(self) -> None:
        """Forget everything."""
        self._end = 0


class Bins:
    """Equal time bins of one row: lowest, highest, median and count, closed as time goes on."""

    def __init__(self, width_ns: int) -> None:
        self.width_ns = width_ns
        self._t = Column(np.int64)
        self._low = Column(np.float64)
        self._high = Column(np.float64)
        self._median = Column(np.float64)
        self._n = Column(np.int64)
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
            self.width_ns,
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

    def between(self, from_ns: int, to_ns: int) -> slice:
        """The readings of a stretch of time."""
        a, b = np.searchsorted(self.t_ns.view(), (from_ns, to_ns))
        return slice(int(a), int(b))

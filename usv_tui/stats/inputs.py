"""What the statistics are given: raw columns as the session keeps them, by reference.

Nothing is copied or converted until a window has been cut out, so a million samples cost no more
than the last twenty seconds of them.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from usv_tui.model import EXCLUDED, POWER_REASONS, THERMAL_REASONS, Reason
from usv_tui.stats.basics import (
    NS_PER_S,
    BoolArray,
    FloatArray,
    IntArray,
    madn,
    median,
    row_medians,
)

STRAY_SHARE = 0.12
STRAY_MADN = 8.0
_STRAY_WINDOW = 13

AnyInts = NDArray[np.signedinteger] | NDArray[np.unsignedinteger]

STARVED_SHARE = 0.5
"""From this share of windows on that waited for the host, that is what a row is: its statistics
are made of them. Where they are fewer they are left out."""


def _never() -> IntArray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RowData:
    """All samples of one row, oldest first. The arrays are views and are not written."""

    bench: int
    t_ns: IntArray
    """Start of each window."""
    window_ns: IntArray
    inner: AnyInts
    rounds: AnyInts
    """Never decreasing; a row may have several samples in a round."""
    flags: AnyInts
    """`model.Flag` bits; excluded samples are left out."""
    baseline: int | None = None
    """The row that this one is held against; None for a baseline itself."""
    is_control: bool = False
    """The row is a copy of its baseline."""
    tick_ns: float = 0.0
    """Smallest step between two windows; 0 lets it be estimated."""
    is_active: bool = True
    """False for a row that is off, failed or a phase: it is described, but gives no advice."""
    n_before: int = 0
    """How many older samples of the epoch are not kept."""
    built_ns: IntArray = field(default_factory=_never)
    """When it was built afresh, with other buffers: ascending."""

    def cut(self, from_ns: int, to_ns: int, most: int) -> "Cut":
        """The usable samples that start in [from, to), thinned evenly to at most `most`."""
        a, b = position(self.t_ns, from_ns), position(self.t_ns, to_ns)
        # Thinning counts from the end of the run's indices, so that a sample stays in or out.
        stride = max(1, -(-(b - a) // most))
        a += -(a + self.n_before) % stride
        inner = self.inner[a:b:stride].astype(np.int64)
        window = self.window_ns[a:b:stride]
        good = ((self.flags[a:b:stride] & int(EXCLUDED)) == 0) & (window > 0) & (inner > 0)
        inner, window = inner[good], window[good]
        seconds = window / (inner * NS_PER_S)
        t_ns = self.t_ns[a:b:stride][good] + window // 2
        return Cut(np.asarray(t_ns, np.int64), seconds, stride, _typical(inner), b - a)


def position(ascending: AnyInts, value: int) -> int:
    """Index of the first element that is at least `value`.

    The value takes the array's type: `numpy.searchsorted` would convert the whole array instead.
    """
    if ascending.size == 0 or value > ascending[-1]:
        return int(ascending.size)
    if value <= ascending[0]:
        return 0
    return int(np.searchsorted(ascending, ascending.dtype.type(value)))


class Cut(NamedTuple):
    """One row's usable samples in a window of time."""

    t_ns: IntArray
    """Middle of each sample."""
    seconds: FloatArray
    """Per call."""
    stride: int
    inner: int
    """The usual number of calls in a window."""
    n_all: int
    """Samples in the window before thinning."""


def _typical(inner: IntArray) -> int:
    return int(np.partition(inner, inner.size // 2)[inner.size // 2]) if inner.size else 1


class Probe(NamedTuple):
    """The clock as measured inside the stream, oldest first."""

    t_ns: IntArray
    mhz: FloatArray


@dataclass(frozen=True, slots=True)
class TelemetryData:
    """All readings of the watched device, oldest first; NaN where a value was not reported."""

    t_ns: IntArray
    sm_mhz: FloatArray
    temp_c: FloatArray
    reasons: IntArray
    """`model.Reason` bits, -1 when unknown."""
    power_ns: FloatArray
    """Counter: time under a power limit."""
    thermal_ns: FloatArray
    """Counter: time under a thermal or hardware limit."""
    low_mhz: FloatArray | None = None
    """Slowest partition, where a device has several clocks; it is what a lock must respect."""
    supported_mhz: tuple[int, ...] = ()
    """Ascending; empty when the device does not tell."""
    is_shared: bool = False
    """Another process computes on the device."""
    probe: Probe | None = None
    power_mw: FloatArray | None = None
    """Board power; None where it is not kept."""
    cap_w: float | None = None
    """The power limit in force."""
    temp_limit_c: float | None = None
    """Where the device begins to slow down for its temperature."""
    max_mhz: float | None = None
    """The highest clock, where the device tells it without a table."""

    @classmethod
    def none(cls) -> "TelemetryData":
        """No telemetry at all."""
        empty = np.empty(0)
        return cls(np.empty(0, np.int64), empty, empty, np.empty(0, np.int64), empty, empty)

    def cut(self, from_ns: int, to_ns: int) -> "TelemetryData":
        """The readings of a stretch of time."""
        return self._where(slice(position(self.t_ns, from_ns), position(self.t_ns, to_ns)))

    def only(self, mask: BoolArray) -> "TelemetryData":
        """The readings that a mask selects."""
        return self._where(mask)

    def _where(self, which: slice | BoolArray) -> "TelemetryData":
        return replace(
            self,
            t_ns=self.t_ns[which],
            sm_mhz=self.sm_mhz[which],
            temp_c=self.temp_c[which],
            reasons=self.reasons[which],
            power_ns=self.power_ns[which],
            thermal_ns=self.thermal_ns[which],
            low_mhz=None if self.low_mhz is None else self.low_mhz[which],
            power_mw=None if self.power_mw is None else self.power_mw[which],
        )

    @property
    def ceiling_mhz(self) -> float | None:
        """The highest clock that the device can run at; None where it does not tell."""
        return self.supported_mhz[-1] if self.supported_mhz else self.max_mhz

    @property
    def step_mhz(self) -> float:
        """Distance of two clocks the device can run at: typical of the list, or as seen; 0 unknown.

        The smallest difference of distinct readings stands in where there is no list.
        """
        if len(self.supported_mhz) > 1:
            return float(np.median(np.diff(self.supported_mhz)))
        seen = np.unique(self.sm_mhz[np.isfinite(self.sm_mhz)])
        return float(np.diff(seen).min()) if seen.size > 1 else 0.0


class Limits(NamedTuple):
    """Shares of a window under a limit; None when the device does not tell."""

    power: float | None
    thermal: float | None


def limits(telemetry: TelemetryData) -> Limits:
    """Shares of the readings' time under a power and under a thermal limit.

    From the accumulating counters where there are some, since a bit that is polled misses short
    events; else from the bits.
    """
    power = _counter_share(telemetry.t_ns, telemetry.power_ns)
    thermal = _counter_share(telemetry.t_ns, telemetry.thermal_ns)
    known = telemetry.reasons[telemetry.reasons >= 0]
    if known.size:
        if power is None:
            power = float(((known & int(POWER_REASONS)) != 0).mean())
        if thermal is None:
            thermal = float(((known & int(THERMAL_REASONS)) != 0).mean())
    return Limits(power, thermal)


def _counter_share(t_ns: IntArray, counter: FloatArray) -> float | None:
    good = np.flatnonzero(np.isfinite(counter))
    if good.size < 2:
        return None
    first, last = good[0], good[-1]
    span = float(t_ns[last] - t_ns[first])
    if span <= 0:
        return None
    return min(max(float(counter[last] - counter[first]) / span, 0.0), 1.0)


def is_idle(telemetry: TelemetryData) -> BoolArray:
    """Which readings say themselves that the device was idle."""
    known = telemetry.reasons >= 0
    return np.asarray(known & ((telemetry.reasons & int(Reason.IDLE)) != 0), np.bool_)


def is_stray(mhz: FloatArray) -> BoolArray:
    """Which clock readings are nonsense: far off the 13 around them, which agree among themselves.

    Drivers report half of the clock or the idle clock once in a while. A clock that really falls
    stays down for more than a few readings, and is kept.
    """
    stray = np.zeros(mhz.size, np.bool_)
    good = np.flatnonzero(np.isfinite(mhz) & (mhz > 0))
    reach = min(_STRAY_WINDOW // 2, (good.size - 1) // 2)
    if reach < 2:
        return stray
    x = mhz[good]
    # Mirrored ends: the last reading must not vote for itself.
    around = sliding_window_view(np.pad(x, reach, mode="reflect"), 2 * reach + 1)
    off = x / row_medians(around) - 1
    stray[good] = np.abs(off) > max(STRAY_SHARE, STRAY_MADN * madn(off))
    return stray


CLIMB_S = 1.0
"""So long after an idle gap a clock is still climbing, or its sensor late …"""
CLIMB_MOST_S = 5.0
"""… and at most so long, while it has not yet been as high as it usually is."""
TAIL_S = 0.1
"""So soon after the last sample before a gap the clock is still that of the load."""


def under_load(
    telemetry: TelemetryData,
    busy_ns: IntArray,
    gap_s: float = 0.5,
    began_ns: int | None = None,
) -> TelemetryData:
    """The readings taken while samples were: no more than `gap_s` from one, not idle, not nonsense.

    `busy_ns` are the times of any row's samples, ascending; `began_ns` is when sampling began, if
    that is known. Where it begins anew after a gap, the climb of the clock from idle is left out.
    """
    if telemetry.t_ns.size == 0 or busy_ns.size == 0:
        return telemetry.only(np.zeros(telemetry.t_ns.size, np.bool_))
    loaded = telemetry.only(_between(telemetry, busy_ns, gap_s, began_ns) & ~is_idle(telemetry))
    stray = is_stray(loaded.sm_mhz)
    if loaded.low_mhz is not None:
        stray |= is_stray(loaded.low_mhz)
    return loaded.only(~stray) if stray.any() else loaded


def _between(
    telemetry: TelemetryData, busy_ns: IntArray, gap_s: float, began_ns: int | None
) -> BoolArray:
    """Which readings lie within a stretch of samples without a gap, and after its climb.

    Where gaps are the rule, as with rows that prepare for long, what is near a sample counts.
    """
    t_ns, gap_ns = telemetry.t_ns, int(gap_s * NS_PER_S)
    # Thinned samples of a long window lie further apart than real ones.
    usual_ns = median(np.diff(busy_ns).astype(np.float64)) if busy_ns.size > 1 else 0.0
    breaks = np.flatnonzero(np.diff(busy_ns) > gap_ns + 2 * usual_ns)
    is_rule = breaks.size * CLIMB_MOST_S * NS_PER_S > busy_ns[-1] - busy_ns[0]
    firsts = busy_ns[np.concatenate([[0], breaks + 1])].tolist()
    lasts = busy_ns[np.concatenate([breaks, [busy_ns.size - 1]])].tolist()
    fresh = [not is_rule] * len(firsts)
    fresh[0] = began_ns is not None and firsts[0] - began_ns <= gap_ns
    tails = [gap_ns if is_rule else int(TAIL_S * NS_PER_S)] * len(lasts)
    tails[-1] = gap_ns
    spans = [
        slice(position(t_ns, a if new else a - gap_ns), position(t_ns, b + tail + 1))
        for a, b, tail, new in zip(firsts, lasts, tails, fresh, strict=True)
    ]
    inside = np.zeros(t_ns.size, np.bool_)
    for span in spans:
        inside[span] = True
    usual = telemetry.sm_mhz[inside & np.isfinite(telemetry.sm_mhz)]
    for span, new in zip(spans, fresh, strict=True):
        if new and usual.size:
            start = span.start
            inside[start : start + _climb(telemetry, span, median(usual))] = False
    return inside


def _climb(telemetry: TelemetryData, span: slice, usual_mhz: float) -> int:
    """How many of a stretch's first readings belong to the climb of a clock that was idle."""
    mhz, t_ns = telemetry.sm_mhz[span], telemetry.t_ns[span]
    if mhz.size == 0:
        return 0
    least, most = (position(t_ns, int(t_ns[0] + x * NS_PER_S)) for x in (CLIMB_S, CLIMB_MOST_S))
    arrived = mhz >= usual_mhz
    return min(max(least, int(np.argmax(arrived)) if arrived.any() else mhz.size), most)

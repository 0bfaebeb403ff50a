"""Energy of one call of a row, from the counter where that is honest, else from power.

A counter that moves every 100 ms cannot be split between rows that take turns every millisecond:
it is used only over stretches in which one row ran alone, much longer than its period. Otherwise
power times time stands in, and the label says whether that power belongs to the row alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import SensorInfo

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

S = 1_000_000_000
MIN_STRETCH_NS = 2 * S
"""Shorter stretches are no use: instant power sensors see a part of the time only."""
PERIODS = 20
"""A stretch is this many counter periods or more, so that the ends weigh 5 % or less."""
DEFAULT_REFRESH_NS = S // 10
"""Taken for a sensor whose refresh period is not known: the usual one."""
ALONE = 0.95
"""Share of a stretch that the row's own windows must fill for its energy to be the row's."""
MAX_GAP_NS = 2 * S
"""A window without a power reading this near has no known power."""


class EnergyPerCall(NamedTuple):
    """Joules of one call, and in words what they are made of (or why there are none)."""

    joules: float | None
    label: str


class RowWindows(NamedTuple):
    """The windows of one row that count, oldest first."""

    start_ns: IntArray
    window_ns: IntArray
    inner: IntArray


def energy_per_call(
    row: RowWindows,
    t_ns: IntArray,
    energy_mj: FloatArray,
    power_mw: FloatArray,
    energy: SensorInfo | None = None,
    power: SensorInfo | None = None,
) -> EnergyPerCall:
    """Joules a call of a row.

    Args:
        row: its windows.
        t_ns: times of the readings, ascending.
        energy_mj: the energy counter at these times, NaN where it was not reported.
        power_mw: the power at these times, NaN where it was not reported.
        energy: what is known of the counter.
        power: what is known of the power sensor: its averaging window, lag and words.
    """
    if not len(row.start_ns):
        return EnergyPerCall(None, "no samples")
    by_counter = _from_counter(row, t_ns, energy_mj, energy)
    if by_counter is not None:
        return EnergyPerCall(by_counter, "counter")
    return _from_power(row, t_ns, power_mw, power)


def _from_counter(
    row: RowWindows, t_ns: IntArray, energy_mj: FloatArray, energy: SensorInfo | None
) -> float | None:
    known = np.isfinite(energy_mj)
    if known.sum() < 2:
        return None
    times, joules = t_ns[known], energy_mj[known] / 1000
    refresh_ns = (energy.refresh_ns if energy is not None else None) or DEFAULT_REFRESH_NS
    shortest_ns = max(MIN_STRETCH_NS, PERIODS * refresh_ns)
    spent, calls = 0.0, 0
    for first, last in _stretches(row):
        begin_ns = int(row.start_ns[first])
        end_ns = int(row.start_ns[last] + row.window_ns[last])
        if end_ns - begin_ns < shortest_ns or begin_ns < times[0] or end_ns > times[-1]:
            continue
        a, b = np.searchsorted(times, (begin_ns, end_ns))
        if (np.diff(joules[max(a - 1, 0) : b + 1]) < 0).any():
            continue  # the counter was reset in between
        at_begin, at_end = np.interp([begin_ns, end_ns], times, joules)
        spent += at_end - at_begin
        calls += int(row.inner[first : last + 1].sum())
    return spent / calls if calls else None


def _stretches(row: RowWindows) -> list[tuple[int, int]]:
    """First and last index of every run of windows that follow each other almost without a gap."""
    ends = row.start_ns[:-1] + row.window_ns[:-1]
    gaps = row.start_ns[1:] - ends
    allowed = (1 / ALONE - 1) * np.maximum(row.window_ns[:-1], row.window_ns[1:])
    breaks = np.flatnonzero(gaps > allowed)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [len(row.start_ns) - 1]))
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _from_power(
    row: RowWindows, t_ns: IntArray, power_mw: FloatArray, power: SensorInfo | None
) -> EnergyPerCall:
    known = np.isfinite(power_mw)
    if not known.any():
        reason = power.reason if power is not None and power.reason else "no power readings"
        return EnergyPerCall(None, reason)
    if power is not None and power.doubt:
        return EnergyPerCall(None, f"power is {power.doubt}")
    window_ns = (power.window_ns if power is not None else None) or 0
    lag_ns = (power.lag_ns if power is not None else None) or 0
    # A mean over the last second describes the middle of that second.
    times = t_ns[known] - window_ns // 2 - lag_ns
    watts = power_mw[known] / 1000
    middle_ns = row.start_ns + row.window_ns // 2
    nearest = _distance(middle_ns, times)
    usable = nearest <= MAX_GAP_NS + row.window_ns // 2
    if usable.sum() * 2 < len(usable):
        return EnergyPerCall(None, "too few power readings")
    seconds = row.window_ns[usable] / S
    joules = float((np.interp(middle_ns[usable], times, watts) * seconds).sum())
    words = ["power x time"]
    if window_ns:
        words.append(f"{window_ns / S:g} s mean")
    if not _is_own(row, max(window_ns, _refresh(power))):
        words.append("of all rows together")
    return EnergyPerCall(joules / int(row.inner[usable].sum()), ", ".join(words))


def _refresh(sensor: SensorInfo | None) -> int:
    return (sensor.refresh_ns if sensor is not None else None) or DEFAULT_REFRESH_NS


def _distance(at_ns: IntArray, times: IntArray) -> IntArray:
    """Time from each moment to the nearest reading."""
    right = np.clip(np.searchsorted(times, at_ns), 0, len(times) - 1)
    left = np.clip(right - 1, 0, len(times) - 1)
    nearest: IntArray = np.minimum(np.abs(times[right] - at_ns), np.abs(times[left] - at_ns))
    return nearest


def _is_own(row: RowWindows, period_ns: int) -> bool:
    """True when one power reading describes this row alone.

    Either its windows outlast the sensor's period, or it ran all the time.
    """
    if float(np.median(row.window_ns)) >= 2 * period_ns:
        return True
    span_ns = int(row.start_ns[-1] + row.window_ns[-1] - row.start_ns[0])
    return int(row.window_ns.sum()) >= ALONE * span_ns

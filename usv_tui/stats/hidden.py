"""Is the device slower than its reported clock says? The clock measured in the stream tells.

Some cards drop to a slow state that no sensor shows: the reported clock, the reasons and the
temperature stay, and every kernel takes longer.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import NS_PER_S, FloatArray, IntArray
from usv_tui.stats.inputs import TelemetryData, position

APART = math.log(1.05)
"""Two clocks this far apart (log) are not the same."""
BIN_S = 1.0
MIN_BINS = 3
"""Seconds of a slow state before a word is said of it."""


class Hidden(NamedTuple):
    """A slow state that the reported clock does not show."""

    slower: float
    """By how much the measured clock is below what it was beside the same reported clock."""
    share: float
    """Of the window."""
    measured_mhz: float
    reported_mhz: float


class HiddenWatch:
    """Follows the measured clock beside the reported one, over the whole session."""

    def __init__(self) -> None:
        self._best = -APART
        """Highest log ratio of both so far; an unknown scale of a few percent is allowed for."""

    def update(self, loaded: TelemetryData, from_ns: int, now_ns: int) -> Hidden | None:
        """The slow state of a window; None without one, or without a clock from the stream."""
        bins = _bins(loaded, from_ns, now_ns)
        if bins is None:
            return None
        measured, reported = bins
        ratio = np.log(measured) - np.log(reported)
        if ratio.size >= MIN_BINS:
            # Several seconds have to agree on a better ratio than any before.
            self._best = max(self._best, float(np.sort(ratio)[-MIN_BINS]))
        slow = ratio < self._best - APART
        if slow.sum() < MIN_BINS:
            return None
        return Hidden(
            slower=1 - math.exp(float(np.median(ratio[slow])) - self._best),
            share=float(slow.mean()),
            measured_mhz=float(np.median(measured[slow])),
            reported_mhz=float(np.median(reported[slow])),
        )


def _bins(loaded: TelemetryData, from_ns: int, now_ns: int) -> tuple[FloatArray, FloatArray] | None:
    """Medians of measured and reported clock in each second that has both."""
    probe = loaded.probe
    if probe is None or loaded.t_ns.size == 0:
        return None
    a, b = position(probe.t_ns, from_ns), position(probe.t_ns, now_ns + 1)
    measured = _medians(probe.t_ns[a:b], probe.mhz[a:b], from_ns)
    reported = _medians(loaded.t_ns, loaded.sm_mhz, from_ns)
    both = sorted(measured.keys() & reported.keys())
    if not both:
        return None
    return np.array([measured[k] for k in both]), np.array([reported[k] for k in both])


def _medians(t_ns: IntArray, mhz: FloatArray, from_ns: int) -> dict[int, float]:
    """The median of each second that has a reading, by its number."""
    good = np.isfinite(mhz) & (mhz > 0)
    second = ((t_ns[good] - from_ns) // int(BIN_S * NS_PER_S)).astype(np.int64)
    values = mhz[good]
    edges = np.flatnonzero(np.diff(second)) + 1
    parts = np.split(values, edges)
    firsts = second[np.concatenate([[0], edges])] if second.size else []
    return {int(k): float(np.median(part)) for k, part in zip(firsts, parts, strict=False)}

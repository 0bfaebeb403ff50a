"""What `held` means of a lock, wherever it is asked: readings at it, a few of nonsense left out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TOLERATED_SHARE = 0.01
"""Deviation that still counts as the locked clock, where the device's steps are finer."""
STRAY_MOST = 0.02
"""Readings far off their neighbours are nonsense while they are as few as this, or only one."""


def tolerance_mhz(mhz: float, supported: Sequence[float] = (), step_mhz: float = 0.0) -> float:
    """How far from `mhz` a clock may be and still be it: one step, and at least 1 %."""
    steps = [abs(other - mhz) for other in supported if other != mhz]
    return max(min(steps, default=step_mhz), TOLERATED_SHARE * mhz)


def share_at(at_lock: NDArray[np.bool_], stray: NDArray[np.bool_]) -> float:
    """Share of the readings at a lock, a few that are nonsense left out."""
    if stray.sum() > max(1, STRAY_MOST * stray.size):
        stray = np.zeros(stray.size, np.bool_)
    return float(at_lock[~stray].mean())

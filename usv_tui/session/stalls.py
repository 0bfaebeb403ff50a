"""Which samples are accidents: a recompile, a page of swap, a pause of the machine (asks M11)."""

import numpy as np
from numpy.typing import NDArray

from usv_tui.session.columns import Recent
from usv_tui.session.snapshot import FloatArray
from usv_tui.stats.modes import STALL_FACTOR

_USUAL = 256
"""Samples that say what is usual."""
_FIRST = 50
_MANY = 1000
_SPARSE = 200


class StallFinder:
    """Tells stalls apart by the median of the samples before them.

    That median counts stalls too, so that a row which has become thirty times slower for good is
    soon measured again. It is taken anew after every 50th sample (every 200th, later on), by count
    and not by time: a session that is read back has the stalls that it had live.
    """

    def __init__(self) -> None:
        self._last = Recent(_USUAL)
        self._n = 0
        self._limit = np.inf

    def find(self, seconds: FloatArray) -> NDArray[np.bool_]:
        """Which of the next samples, in time order and all positive, are stalls."""
        found = np.zeros(len(seconds), dtype=np.bool_)
        at = 0
        while at < len(seconds):
            every = _FIRST if self._n < _MANY else _SPARSE
            end = min(len(seconds), at + every - self._n % every)
            part = seconds[at:end]
            found[at:end] = part > self._limit
            self._last.extend(part)
            self._n += end - at
            if self._n % every == 0:
                self._limit = STALL_FACTOR * float(np.median(self._last.last(_USUAL)))
            at = end
        return found

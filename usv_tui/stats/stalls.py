"""Which samples are accidents: a recompile, a page of swap, a pause of the machine."""

from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import BoolArray, FloatArray, IntArray
from usv_tui.stats.modes import STALL_FACTOR

_USUAL = 256
"""Samples that say what is usual."""
TAIL = 2 * _USUAL
"""So many of the latest samples are looked at again."""
_FIRST = 20
"""Fewer say nothing."""
_EARLY = 50
"""The first samples are judged by those after them: there are none before."""
_MANY = 1000
_SPARSE = 200


class Judged(NamedTuple):
    """What is known of stalls after some more samples."""

    is_stall: BoolArray
    """Of each new sample."""
    revised: IntArray
    """Numbers of earlier samples, counted from the first, of which now the opposite holds."""


class StallFinder:
    """Tells stalls by the median around them: of the samples before, and again of those after.

    A sample that is 20 times the median before it is a stall, unless the median after it has come
    to the same level: then the row has become slower for good. The first samples, which have
    nothing before them, are judged by what follows. Looked at by count and not by time: a session
    that is read back has the stalls that it had live.
    """

    def __init__(self) -> None:
        self._seconds: FloatArray = np.empty(0)
        self._is_stall: BoolArray = np.empty(0, np.bool_)
        self._n = 0
        self._limit = np.inf

    def find(self, seconds: FloatArray) -> Judged:
        """Judge the next samples, in time order and all positive."""
        found = np.zeros(len(seconds), dtype=np.bool_)
        start, at = self._n, 0
        revised: set[int] = set()
        while at < len(seconds):
            due = self._next_look()
            end = min(len(seconds), at + due - self._n)
            part = seconds[at:end]
            found[at:end] = part > self._limit
            self._seconds = np.concatenate([self._seconds, part])[-TAIL:]
            self._is_stall = np.concatenate([self._is_stall, found[at:end]])[-TAIL:]
            self._n += end - at
            at = end
            if self._n == due:
                for number in self._look_again():
                    if number >= start:
                        found[number - start] ^= True
                    else:
                        revised ^= {number}
        return Judged(found, np.array(sorted(revised), np.int64))

    def _next_look(self) -> int:
        """The number of samples at which the median is taken anew."""
        if self._n < _FIRST:
            return _FIRST
        every = _EARLY if self._n < _MANY else _SPARSE
        return self._n + every - self._n % every

    def _look_again(self) -> list[int]:
        """Take the median anew; numbers of samples whose judgement it changes."""
        self._limit = STALL_FACTOR * float(np.median(self._seconds[-_USUAL:]))
        is_long = self._seconds > self._limit
        first = self._n - len(self._seconds)
        is_early = np.arange(first, self._n) < _EARLY
        again = np.where(is_early, is_long, self._is_stall & is_long)
        changed = np.flatnonzero(again != self._is_stall) + first
        self._is_stall = again
        return [int(number) for number in changed]

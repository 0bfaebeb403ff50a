"""One row's figures of an epoch, in bounded memory: counts by flags, and histograms.

A sample is taken into the histograms once its judgement is final: whether it was a stall is looked
at again for as many samples as `StallFinder` keeps.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import EXCLUDED, Flag
from usv_tui.session.columns import Column
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.stats.basics import BoolArray
from usv_tui.stats.inputs import STARVED_SHARE
from usv_tui.stats.rolling import LogHistogram, Stats
from usv_tui.stats.stalls import TAIL, StallFinder

_FLAG_SETS = 256
_SETS = np.arange(_FLAG_SETS)


def is_aside(flags: NDArray[Any], *, starved: bool) -> BoolArray:
    """Stalls, and where few are starved the gaps that the host made: in the mean alone."""
    return np.asarray((flags & int(Flag.STALL | Flag.STARVED if starved else Flag.STALL)) != 0)


class EpochStats:
    """What all samples of an epoch come to."""

    def __init__(self, from_ns: int, start: int) -> None:
        """Of an epoch that begins at a time, and with the sample of an index."""
        self.from_ns = from_ns
        self.start = start
        self.final = start
        """Index of the first sample that is not in the histograms yet."""
        self.stalls = StallFinder()
        self._by_flags = np.zeros(_FLAG_SETS, np.int64)
        """How many samples have each combination of flags."""
        self._n_final = 0
        """Those in the histograms that are not excluded."""
        self._plain, self._starved = LogHistogram(), LogHistogram()
        self._stall_s = 0.0

    def count(self, flags: NDArray[Any]) -> None:
        """Further samples."""
        self._by_flags += np.bincount(flags, minlength=_FLAG_SETS)

    def revise(self, numbers: IntArray, flags: Column[np.uint8]) -> None:
        """Samples, by their number among those that count, are stalls after all, or not."""
        kept = flags.view(self.final)
        counted = np.flatnonzero((kept & int(EXCLUDED)) == 0)
        at = counted[numbers - self._n_final]
        self._by_flags -= np.bincount(kept[at], minlength=_FLAG_SETS)
        kept[at] ^= int(Flag.STALL)
        self._by_flags += np.bincount(kept[at], minlength=_FLAG_SETS)

    def take(self, flags: NDArray[Any], seconds: FloatArray) -> None:
        """Let in all but the last of the samples from `final` on: those may yet be revised."""
        counted = np.flatnonzero((flags & int(EXCLUDED)) == 0)
        if len(counted) > TAIL:
            upto = int(counted[-TAIL])
            self.final += upto
            self._n_final += len(counted) - TAIL
            self._add(flags[:upto], seconds[:upto])

    def _add(self, flags: NDArray[Any], seconds: FloatArray) -> None:
        counted = (flags & int(EXCLUDED)) == 0
        stalled, starved = ((flags & int(flag)) != 0 for flag in (Flag.STALL, Flag.STARVED))
        self._plain.add(seconds[counted & ~stalled & ~starved])
        self._starved.add(seconds[counted & ~stalled & starved])
        self._stall_s += float(seconds[counted & stalled].sum())

    def summary(self, flags: NDArray[Any], seconds: FloatArray) -> Stats:
        """Of all samples, those from `final` on being given."""
        all_ = EpochStats(self.from_ns, self.start)
        all_._plain, all_._starved = self._plain.copy(), self._starved.copy()
        all_._stall_s = self._stall_s
        all_._add(flags, seconds)
        n_stalls = self.count_of(Flag.STALL, int(EXCLUDED))
        if self.is_mostly_starved:
            all_._plain.merge(all_._starved)
            return all_._plain.summary().with_more(n_stalls, all_._stall_s)
        late = all_._starved
        total_s = all_._stall_s + late.mean * late.n
        return all_._plain.summary().with_more(n_stalls + late.n, total_s)

    def count_of(self, flag: Flag, but: int = 0) -> int:
        """Samples with a flag, without those that have one of `but`."""
        return int(self._by_flags[((_SETS & int(flag)) != 0) & ((_SETS & but) == 0)].sum())

    @property
    def n_starved(self) -> int:
        """Samples for which the host was late."""
        return self.count_of(Flag.STARVED, int(EXCLUDED))

    @property
    def n_counted(self) -> int:
        """Samples that a statistic takes."""
        return int(self._by_flags[(_SETS & int(EXCLUDED)) == 0].sum())

    @property
    def starved_share(self) -> float:
        """Share of those for which the host was late."""
        return self.n_starved / max(1, self.n_counted)

    @property
    def is_mostly_starved(self) -> bool:
        """The host is late so often that this is what the row is."""
        return self.starved_share >= STARVED_SHARE

    @property
    def has_shown(self) -> bool:
        """Any sample is in more than the mean."""
        aside = is_aside(_SETS, starved=not self.is_mostly_starved)
        return bool(self._by_flags[((_SETS & int(EXCLUDED)) == 0) & ~aside].any())

"""Keeps the log ratios of a whole epoch, with the clock they met, and tells the ratio at any look.

Where the rows follow the clock differently their ratio moves with it: the tracker then also tells
what it is at one clock.
"""

import math

import msgspec
import numpy as np

from usv_tui.model import PLACEMENT, Answer, ClockRatio, Ratio
from usv_tui.stats.basics import FloatArray, IntArray
from usv_tui.stats.long_run import clipped, long_run, of_clipped
from usv_tui.stats.pairs import (
    ALPHA,
    BAND,
    FEWEST_ROUNDS,
    Estimate,
    boundary,
    bracketed,
    told_ratio,
    without_interval,
)
from usv_tui.stats.patience import Watch, needed_s
from usv_tui.stats.placement import Between, between, stretches
from usv_tui.stats.spectrum import spread_factor

CAPACITY = 2048
"""Most values kept; then neighbours are averaged."""
MOST_CHANGE = 1.5
"""An interval that jumps is not believed: from look to look it changes by at most this."""
ALWAYS_FRESH = 500
"""Below so many values the spectrum is taken afresh at every look."""
CLOCK_STRETCHES = 64
"""The clock's part in a ratio is read off so many stretches of the run."""
LEAST_CLOCK_SPREAD = 0.005
LEAST_CLOCK_SD = 0.005
"""A clock that has moved by so much may move on."""
SAID = (Answer.FASTER, Answer.SLOWER, Answer.SAME)
SHORT_RUN = "short run"
LEAST_SHARE = 0.5
"""Of the movement that the clock must explain."""
STEEPEST = 1.2
"""Two rows' exponents differ by at most one; anything steeper is not the clock's doing."""


class PairTracker:
    """The log ratios of a whole epoch in bounded memory, and the ratio now.

    When there are too many values neighbours are averaged, so that every round keeps its weight.
    """

    def __init__(self, phase: int = 0) -> None:
        self._kept = np.empty((2, 256))
        # Trackers that grow together must not all renew their spectrum together.
        self._growth = 1.04 + 0.01 * (phase % 6)
        self._n = 0
        self._rest: FloatArray = np.empty((2, 0))
        """Rounds that do not fill a value yet."""
        self.total = 0
        """Rounds added."""
        self._stride = 1
        self._gain = 1.0
        """How much averaging has lowered the variance: independent rounds that a value stands for,
        had it been one of them."""
        self._factors: dict[bool, tuple[int, float]] = {}
        """Size when taken, and factor: of the values, and of allocations put at one level."""
        self._told = 0.0, 1
        """Half the interval that was told last, and of how many rounds."""
        self._watch = Watch()
        self._cuts: list[int] = []
        """Rounds that there were each time when the rows were built afresh."""

    @property
    def values(self) -> FloatArray:
        """The log ratios, oldest first, each the mean of as many rounds. A view: do not write."""
        return self._kept[0, : self._n]

    @property
    def log_mhz(self) -> FloatArray:
        """The log of the clock at each value; NaN where it is not known. A view."""
        return self._kept[1, : self._n]

    def add(
        self,
        log_ratio: FloatArray,
        log_mhz: FloatArray | None = None,
        t_ns: IntArray | None = None,
    ) -> None:
        """Append the log ratios of further rounds, the log of the clock they met, and their times.

        Rounds without times count as a hundredth of a second each.
        """
        clock = np.full(log_ratio.size, math.nan) if log_mhz is None else log_mhz
        good = np.isfinite(log_ratio)
        if not good.any():
            return
        count = int(good.sum())
        self.total += count
        self._watch.add(count, None if t_ns is None else t_ns[good])
        rounds = np.stack([log_ratio[good], clock[good]])
        if self._stride > 1:
            rounds[0] = clipped(rounds[0])
        rounds = np.concatenate([self._rest, rounds], axis=1)
        while True:
            # No more at once than what is thinned next holds.
            most = (CAPACITY - self._n) * self._stride
            now, rounds = rounds[:, :most], rounds[:, most:]
            whole = now.shape[1] // self._stride * self._stride
            self._append(_averaged(now[:, :whole], self._stride))
            self._rest = now[:, whole:]
            if self._n < CAPACITY:
                return
            if self._stride == 1 and rounds.shape[1]:
                rounds[0] = clipped(rounds[0])
            self._thin()

    def cut(self) -> None:
        """The rows have other buffers from the next round on."""
        if self.total and self.total not in self._cuts[-1:]:
            self._cuts.append(self.total)
            self._factors.clear()

    def _append(self, values: FloatArray) -> None:
        need = self._n + values.shape[1]
        if need > self._kept.shape[1]:
            grown = np.empty((2, min(CAPACITY, max(need, 2 * self._kept.shape[1]))))
            grown[:, : self._n] = self._kept[:, : self._n]
            self._kept = grown
        self._kept[:, self._n : need] = values
        self._n = need

    def _thin(self) -> None:
        before = self._kept[:, : self._n].copy()
        before[0] = clipped(before[0])
        after = _averaged(before, 2)
        variances = float(before[0].var()), float(after[0].var())
        self._gain *= min(max(variances[0] / variances[1], 1.0), 2.0) if variances[1] else 1.0
        self._n = after.shape[1]
        self._kept[:, : self._n] = after
        self._stride *= 2
        self._factors.clear()

    def _factor_of(self, values: FloatArray, *, is_flat: bool) -> float:
        """Its `spread_factor`, taken afresh when the series has grown by a few percent."""
        size, factor = self._factors.get(is_flat, (0, 1.0))
        if self._n < ALWAYS_FRESH or self._n > self._growth * size:
            factor = spread_factor(values)
            self._factors[is_flat] = self._n, factor
        return factor

    def ratio(
        self,
        *,
        band: float = BAND,
        alpha: float = ALPHA,
        comparisons: int = 1,
        resolution: float | None = None,
        is_limited: bool = False,
        is_last: bool = False,
    ) -> Ratio:
        """The ratio now; see `paired_ratio`. Its n counts all rounds.

        From one look to the next the interval that is told changes by at most half, and an answer
        stands on the wider of what is told and what is known. One near to 1 waits until the rows
        have been watched for long enough, longer while the device `is_limited` or its clock moves,
        unless this look `is_last`.
        """
        d = self.values
        if d.size < FEWEST_ROUNDS:
            return without_interval(d, band)
        # Means of several rounds are of rounds whose stragglers were drawn in when they came.
        values = clipped(d, resolution or 0.0) if self._stride == 1 else d
        found, builds = self._judge(values, alpha / max(comparisons, 1), resolution)
        told = self._eased(found.half)
        safe = found._replace(half=max(found.half, told))
        at_clock = clock_ratio(d, self.log_mhz, safe) if found.moves(band) else None
        ratio = told_ratio(found._replace(half=told), self.total, band, resolution)
        said = safe.answer(band)
        is_short = not self._watch.is_enough and self._is_early(found.centre, is_limited=is_limited)
        if builds is not None and builds.is_young and abs(found.centre) < PLACEMENT:
            is_short = True
        if is_short and not is_last and said in SAID:
            said = Answer.UNDECIDED
        short = SHORT_RUN if is_short and said is Answer.UNDECIDED else ""
        note = ", ".join(filter(None, (ratio.note, short)))
        return msgspec.structs.replace(
            ratio,
            answer=said,
            at_clock=at_clock,
            is_short=is_short,
            note=note,
            placement=None if builds is None else builds.spread,
        )

    def _judge(
        self, values: FloatArray, alpha: float, resolution: float | None
    ) -> tuple[Estimate, Between | None]:
        """The estimate, and what allocations add to it where the rows were built afresh."""
        parts = stretches(values, [-(-cut // self._stride) for cut in self._cuts])
        if parts is None:
            return self._bracket(values, alpha, resolution), None
        within = self._bracket(parts.flat, alpha, resolution, is_flat=True)
        told = between(parts, within.found.variance, alpha)
        if told.spread > PLACEMENT:
            # No buffers do that: the rows' times have changed with something else.
            return self._bracket(values, alpha, resolution), told
        half = max(within.half, min(told.half, PLACEMENT))
        return within._replace(centre=told.centre, half=half), told

    def _bracket(
        self, values: FloatArray, alpha: float, resolution: float | None, *, is_flat: bool = False
    ) -> Estimate:
        known = of_clipped(values, self._factor_of(values, is_flat=is_flat))
        found = bracketed(values, known, alpha=alpha, resolution=resolution)
        return found._replace(found=known._replace(n_eff=known.n_eff * self._gain))

    def _is_early(self, log_ratio: float, *, is_limited: bool) -> bool:
        """So near to 1, where slow modes and clocks may fake it, more time must have passed."""
        moves = float(self.log_mhz.std()) > LEAST_CLOCK_SD
        return self._watch.seconds < needed_s(log_ratio, is_limited=is_limited or moves)

    def _eased(self, half: float) -> float:
        """At most half as much again, or as much less as the new rounds can bring about."""
        last, before = self._told
        if last and half:
            least = last / max(MOST_CHANGE, math.sqrt(self.total / before))
            half = min(max(half, least), last * MOST_CHANGE)
        self._told = half, self.total
        return half


def _averaged(values: FloatArray, size: int) -> FloatArray:
    """Means of `size` neighbours along the last axis, which must be a multiple of it."""
    if size == 1:
        return values
    return np.asarray(values.reshape(2, -1, size).mean(axis=2), np.float64)


def clock_ratio(log_ratio: FloatArray, log_mhz: FloatArray, known: Estimate) -> ClockRatio | None:
    """The ratio at the clock of the latest eighth, where the clock explains how it moved.

    A straight line of the log ratio on the log of the clock, over 64 stretches of the run; None
    where the clock is unknown, hardly moved, or leaves half of the movement unexplained.
    """
    size = log_ratio.size // CLOCK_STRETCHES
    if size == 0:
        return None
    cut = slice(log_ratio.size - size * CLOCK_STRETCHES, None)
    y, f = (v[cut].reshape(CLOCK_STRETCHES, size).mean(axis=1) for v in (log_ratio, log_mhz))
    if not np.isfinite(f).all() or float(np.ptp(f)) < LEAST_CLOCK_SPREAD:
        return None
    off = f - f.mean()
    slope = float(off @ y / (off @ off))
    left = y - y.mean() - slope * off
    if abs(slope) > STEEPEST or float(left.var()) > (1 - LEAST_SHARE) * float(y.var()):
        return None
    rest = log_ratio - slope * (log_mhz - f.mean())
    rest = rest[np.isfinite(rest)]
    found = long_run(rest)
    now = float(f[-CLOCK_STRETCHES // 8 :].mean())
    away = now - float(f.mean())
    # The line is known as well as the level, and its error grows with the distance from the middle.
    reach = math.sqrt(1 + (away / float(f.std())) ** 2)
    half = (boundary(found.n_eff) * math.sqrt(found.variance) + found.shift) * reach
    if half >= known.half:
        return None
    centre = found.mean + slope * away
    return ClockRatio(
        mhz=math.exp(now),
        ratio=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
    )

"""One row's samples and what is derived from them: the part of the fold that knows no other row."""

from dataclasses import replace

import numpy as np

from usv_tui.model import (
    EXCLUDED,
    BenchInfo,
    ClockEffect,
    Drift,
    Flag,
    Ratio,
    RowState,
    StateWord,
)
from usv_tui.records import Calibrated
from usv_tui.session.columns import Bins, Column, Recent
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.stats.inputs import RowData
from usv_tui.stats.rolling import LogHistogram, Stats, summary
from usv_tui.stats.segments import Change, change_points
from usv_tui.stats.stalls import StallFinder
from usv_tui.telemetry.energy import EnergyPerCall, RowWindows
from usv_tui.timesource import NS_PER_S

MAX_WINDOW = 10_000
_FLAG_SETS = 256
BIN_NS = NS_PER_S // 10
TREND_BINS = 48
TREND_NS = 60 * NS_PER_S
_ENERGY_SAMPLES = 4096


class RowStore:
    """One row's samples and state."""

    def __init__(self, info: BenchInfo) -> None:
        self.info = info
        self.state = RowState.WAITING
        self.state_ns = 0
        self.detail = ""
        self.error = ""
        self.traceback = ""
        self.calibrated: Calibrated | None = None
        self.badges: dict[str, str] = {}
        """Self-diagnosis by code, as long as the row lives."""
        self._of_epoch: dict[str, tuple[str, int]] = {}
        """Badges of an epoch, and when they were told."""
        self.epoch_ns = 0
        """When the epoch began."""
        self.t_ns = Column(np.int64)
        self.window_ns = Column(np.int64)
        self.round = Column(np.int32)
        self.inner = Column(np.int32)
        self.flags = Column(np.uint8)
        self.host_ns: Column[np.int64] | None = None
        """None while the host's time equals the window, as with a wall timer."""
        self.recent = Recent(MAX_WINDOW)
        self.bins = Bins(BIN_NS)
        self.histogram = LogHistogram()
        self.epoch_start = 0
        """Index of the epoch's first sample."""
        self.is_sampled = False
        """Whether any sample of the whole session counts."""
        self._by_flags = np.zeros(_FLAG_SETS, np.int64)
        """How many of the epoch's samples have each combination of flags."""
        self._stalls = StallFinder()
        self._aside = Recent(MAX_WINDOW)
        """Stalls and gaps: in the mean, and in nothing else."""
        self._aside_at = Recent(MAX_WINDOW)
        """How many samples were shown before each of them."""
        self._n_shown = self._n_aside = 0
        self._aside_s = 0.0
        self.drift = Drift()
        self.effect = ClockEffect()
        self.ratio: Ratio | None = None
        self.ratio_to: int | None = None
        """The row that this ratio was found against."""
        self.word = StateWord.NONE
        self.energy = EnergyPerCall(None, "")
        self.found: dict[str, str] = {}
        """Badges of the statistics, by code."""
        self._stats_key: tuple[int, int] | None = None
        self._rolling = Stats()
        self._whole = Stats()
        self._is_refreshed = False
        """Whether `refresh` has seen anything of this epoch."""
        self._uncounted: list[FloatArray] = []
        """Values that the histogram has not taken in yet."""
        self._changes: tuple[tuple[int, int], list[Change]] = ((0, 0), [])
        """Where the level changed, and what of the row that was looked for in."""
        self._bins_seen = 0
        """Closed bins in which changes of level are looked for."""
        self.trend: tuple[float, ...] = ()
        """Medians of the last minute in equal bins, NaN where nothing was measured."""

    def add(
        self,
        t_ns: IntArray,
        window_ns: IntArray,
        inner: IntArray,
        round_: IntArray,
        flags: IntArray,
        host_ns: IntArray | None,
    ) -> None:
        """Samples in time order, raw."""
        flags = np.where(window_ns <= 0, flags | Flag.NONPOSITIVE, flags)
        seconds = np.where(window_ns > 0, window_ns / (inner * 1e9), np.nan)
        counted = (flags & int(EXCLUDED)) == 0
        self.is_sampled = self.is_sampled or bool(counted.any())
        judged = self._stalls.find(seconds[counted])
        stalled = np.zeros(len(flags), dtype=np.bool_)
        stalled[counted] = judged.is_stall
        flags = np.where(stalled, flags | Flag.STALL, flags)
        if host_ns is not None and self.host_ns is None:
            self.host_ns = Column(np.int64)
            self.host_ns.extend(self.window_ns.view())
        if self.host_ns is not None:
            self.host_ns.extend(window_ns if host_ns is None else host_ns)
        self.t_ns.extend(t_ns)
        self.window_ns.extend(window_ns)
        self.inner.extend(inner)
        self.round.extend(round_)
        self.flags.extend(flags)
        self.bins.extend(t_ns, seconds)
        was_majority = self._is_mostly_starved
        self._by_flags += np.bincount(flags, minlength=_FLAG_SETS)
        if len(judged.revised):
            self._revise(judged.revised)
        if len(judged.revised) or self._is_mostly_starved != was_majority:
            self._take_again()
        else:
            self._take(flags, seconds)

    def _take(self, flags: IntArray, seconds: FloatArray) -> None:
        """Let samples into the statistics: all, or the mean alone."""
        counted = (flags & int(EXCLUDED)) == 0
        aside = (flags & int(Flag.STALL)) != 0
        if not self._is_mostly_starved:
            # A few windows hold a gap that the host made: counted on the row, in no spread.
            aside |= (flags & int(Flag.STARVED)) != 0
        values = seconds[counted & ~aside]
        if len(values):
            self.recent.extend(values)
            self._uncounted.append(values)
        at = np.flatnonzero(counted & aside)
        if len(at):
            before = np.cumsum(counted & ~aside)[at] + self._n_shown
            self._aside.extend(seconds[at])
            self._aside_at.extend(before.astype(np.float64))
            self._n_aside += len(at)
            for value in seconds[at].tolist():  # one by one: in whatever lots they come
                self._aside_s += value
        self._n_shown += len(values)

    def _take_again(self) -> None:
        """What counts has changed: the epoch's statistics are made anew from its samples."""
        start = self.epoch_start
        flags = self.flags.view(start).astype(np.int64)
        self.recent.clear()
        self._aside.clear()
        self._aside_at.clear()
        self._n_shown = self._n_aside = 0
        self._aside_s = 0.0
        self.histogram = LogHistogram()
        self._uncounted = []
        self._by_flags = np.bincount(flags, minlength=_FLAG_SETS)
        self._take(flags, self.seconds(start))

    def _revise(self, numbers: IntArray) -> None:
        """Earlier samples, by their number among those that count, are stalls after all, or not."""
        flags = self.flags.view(self.epoch_start)
        counted = np.flatnonzero((flags & int(EXCLUDED)) == 0)
        at = counted[numbers]
        flags[at] = flags[at].astype(np.int64) ^ int(Flag.STALL)

    # -- what is left out, and why

    def _count(self, flag: Flag, but: int = 0) -> int:
        """The epoch's samples with a flag, without those that have one of `but`."""
        sets = np.arange(_FLAG_SETS)
        return int(self._by_flags[((sets & int(flag)) != 0) & ((sets & but) == 0)].sum())

    @property
    def _n_starved(self) -> int:
        return self._count(Flag.STARVED, int(EXCLUDED))

    @property
    def _is_mostly_starved(self) -> bool:
        sets = np.arange(_FLAG_SETS)
        return 2 * self._n_starved >= int(self._by_flags[(sets & int(EXCLUDED)) == 0].sum())

    @property
    def n_excluded(self) -> int:
        """The epoch's samples that no statistic takes."""
        return self._count(EXCLUDED)

    @property
    def stalls(self) -> int:
        """The epoch's samples that are over 20 times as long as those around them."""
        return self._count(Flag.STALL)

    @property
    def left_out(self) -> dict[str, int]:
        """The epoch's samples that are left out, by cause; each once, none where there are none.

        The last two are in the mean all the same.
        """
        zero = int(Flag.NONPOSITIVE)
        counts = {
            "zero or negative": self._count(Flag.NONPOSITIVE),
            "warm-up": self._count(Flag.WARMUP, zero),
            "ramp": self._count(Flag.RAMP, zero | int(Flag.WARMUP)),
            "stalls": self.stalls,
            "starved": 0
            if self._is_mostly_starved
            else self._count(Flag.STARVED, int(EXCLUDED | Flag.STALL)),
        }
        return {cause: n for cause, n in counts.items() if n}

    @property
    def has_counted(self) -> bool:
        """True when the epoch has samples that count."""
        return bool(len(self.recent.last(1)))

    @property
    def starved_words(self) -> str:
        """How many windows the host was late for; empty for none."""
        return f"{self._n_starved} starved" if self._n_starved else ""

    def start_epoch(self, at_ns: int) -> None:
        """Statistics forget; the samples stay."""
        self.epoch_ns = at_ns
        self.epoch_start = self.t_ns.n
        self.recent.clear()
        self.histogram = LogHistogram()
        self._uncounted = []
        self._by_flags = np.zeros(_FLAG_SETS, np.int64)
        self._stalls = StallFinder()
        self._aside.clear()
        self._aside_at.clear()
        self._n_shown = self._n_aside = 0
        self._aside_s = 0.0
        self.drift, self.effect, self.ratio = Drift(), ClockEffect(), None
        self.word = StateWord.NONE
        self.found = {}
        self.energy = EnergyPerCall(None, "")
        self._stats_key = None
        self._rolling = self._whole = Stats()
        self._is_refreshed = False
        self._bins_seen = 0

    def reopen(self, from_ns: int) -> None:
        """Take the statistics up again from an earlier moment."""
        self.start_epoch(from_ns)
        self.epoch_start = int(np.searchsorted(self.t_ns.view(), from_ns))
        self._by_flags = np.bincount(
            self.flags.view(self.epoch_start).astype(np.int64), minlength=_FLAG_SETS
        )
        self._take_again()

    def data(self, baseline: int | None, tick_ns: float) -> RowData:
        """The epoch's columns as the statistics take them: views."""
        start = self.epoch_start
        is_phase = self.info.parent is not None
        return RowData(
            bench=self.info.bench,
            t_ns=self.t_ns.view(start),
            window_ns=self.window_ns.view(start),
            inner=self.inner.view(start),
            rounds=self.round.view(start),
            flags=self.flags.view(start),
            baseline=baseline,
            is_control=self.info.control_of is not None,
            tick_ns=tick_ns,
            is_active=not is_phase and self.state not in (RowState.OFF, RowState.FAILED),
        )

    def windows(self, from_ns: int) -> RowWindows:
        """The epoch's counted windows since `from_ns`, the newest few thousand of them."""
        times = self.t_ns.view(self.epoch_start)
        start = max(int(np.searchsorted(times, from_ns)), len(times) - _ENERGY_SAMPLES)
        start += self.epoch_start
        good = (self.flags.view(start) & int(EXCLUDED)) == 0
        return RowWindows(
            self.t_ns.view(start)[good],
            self.window_ns.view(start)[good],
            self.inner.view(start)[good].astype(np.int64),
        )

    def statistics(self, window: int) -> tuple[Stats, Stats]:
        """Rolling statistics, and those of the whole epoch as of the last `refresh`.

        Until the first of them in an epoch they are of what there is.
        """
        key = (self.t_ns.n, window)
        if key != self._stats_key:
            self._stats_key = key
            self._rolling = self._with_asides(summary(self.recent.last(window)), window)
            if not self._is_refreshed:
                self._whole = self._of_all(LogHistogram())
        return self._rolling, self._whole

    def count_between(self, from_ns: int, to_ns: int) -> int:
        """How many samples began within [from, to)."""
        a, b = np.searchsorted(self.t_ns.view(), (from_ns, to_ns))
        return int(b - a)

    def refresh(self, now_ns: int, start_ns: int) -> None:
        """Look at what moves slowly: the whole epoch's statistics, the trend, changes of level."""
        if self._uncounted:
            self._is_refreshed = True
            self._whole = self._of_all(self.histogram)
            self._uncounted = []
        self._draw_trend(now_ns, start_ns)
        self._bins_seen = self.bins.closed

    def _of_all(self, histogram: LogHistogram) -> Stats:
        """What a histogram holds together with what it does not hold yet."""
        if self._uncounted:
            histogram.add(np.concatenate(self._uncounted))
        return self._with_asides(histogram.summary())

    def changes(self) -> list[Change]:
        """Moments of the epoch at which the level changed."""
        key = (self.epoch_ns, self._bins_seen)
        if key != self._changes[0]:
            bins = self.bins.series(self.epoch_ns, 1 << 62, self._bins_seen)
            self._changes = key, change_points(bins.t_ns, bins.median_s)
        return self._changes[1]

    # -- badges

    def told(self, code: str, badge: str, at_ns: int | None) -> None:
        """Self-diagnosis has found something; with a time it holds for the epoch alone."""
        if at_ns is None:
            self.badges[code] = badge
        else:
            self._of_epoch[code] = badge, at_ns

    def take_back(self, code: str) -> None:
        """What was found has not shown again."""
        self.badges.pop(code, None)
        self._of_epoch.pop(code, None)

    def is_told(self, code: str) -> bool:
        """Self-diagnosis says so of the row, or of its epoch."""
        of_epoch = self._of_epoch.get(code)
        return code in self.badges or (of_epoch is not None and of_epoch[1] >= self.epoch_ns)

    @property
    def all_badges(self) -> tuple[str, ...]:
        """Of the row, of the epoch, and of the statistics."""
        of_epoch = [badge for badge, at_ns in self._of_epoch.values() if at_ns >= self.epoch_ns]
        return (*self.badges.values(), *of_epoch, *self.found.values())

    def _with_asides(self, of: Stats, window: int | None = None) -> Stats:
        """Statistics whose mean counts everything: of the last `window` samples, or the epoch."""
        if window is None:
            n, total_s = self._n_aside, self._aside_s
        else:
            is_in = self._aside_at.last(MAX_WINDOW) > self._n_shown - of.n
            n, total_s = int(is_in.sum()), float(self._aside.last(MAX_WINDOW)[is_in].sum())
        if not n:
            return of
        mean_s = ((of.mean_s or 0.0) * of.n + total_s) / (of.n + n)
        return replace(of, mean_s=mean_s)

    def seconds(self, start: int = 0) -> FloatArray:
        """Seconds per call from index `start` on; NaN for windows of zero or less."""
        window = self.window_ns.view(start)
        inner = self.inner.view(start)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(window > 0, window / (inner * 1e9), np.nan)

    def _draw_trend(self, now_ns: int, start_ns: int) -> None:
        from_ns = max(start_ns, now_ns - TREND_NS)
        n = min(TREND_BINS, max(1, int((now_ns - from_ns) // BIN_NS)))
        bins = self.bins.series(from_ns - from_ns % BIN_NS, now_ns)
        if not len(bins.t_ns):
            self.trend = ()
            return
        slot = np.minimum((bins.t_ns - from_ns).clip(0) * n // max(1, now_ns - from_ns), n - 1)
        total = np.bincount(slot, weights=bins.median_s, minlength=n)
        count = np.bincount(slot, minlength=n)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(count > 0, total / count, np.nan)
        self.trend = tuple(means.tolist())

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
from usv_tui.stats.segments import Change
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
        self.word = StateWord.NONE
        self.energy = EnergyPerCall(None, "")
        self.found: dict[str, str] = {}
        """Badges of the statistics, by code."""
        self._stats_key: tuple[int, int] | None = None
        self._rolling = Stats()
        self._whole = Stats()
        self._uncounted: list[FloatArray] = []
        """Values that the histogram has not taken in yet."""
        self._whole_at = (0, 0)
        """Time and sample count of the last look at the whole epoch."""
        self.changes: list[Change] = []
        """Where the level changed, as far as looked for."""
        self.changes_ns = 0
        self._trend: tuple[float, ...] = ()
        self._trend_ns = 0

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
            self._aside_s += float(seconds[at].sum())
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
        self._whole_at = (0, 0)
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

    def start_epoch(self) -> None:
        """Statistics forget; the samples stay."""
        self.epoch_start = self.t_ns.n
        self.recent.clear()
        self.histogram = LogHistogram()
        self._uncounted = []
        self._whole_at = (0, 0)
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

    def reopen(self, from_ns: int) -> None:
        """Take the statistics up again from an earlier moment."""
        self.start_epoch()
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

    def statistics(
        self, window: int, now_ns: int, *, is_final: bool = False
    ) -> tuple[Stats, Stats]:
        """Rolling and whole-epoch statistics; computed only when there is something new.

        The whole epoch moves slowly: it is looked at when 2 % of samples or half a second came on.
        """
        key = (self.t_ns.n, window)
        if key != self._stats_key:
            self._stats_key = key
            self._rolling = self._with_asides(summary(self.recent.last(window)), window)
        looked_ns, n = self._whole_at
        grown = self.t_ns.n - n
        if self._uncounted and (is_final or grown * 50 >= n or now_ns - looked_ns >= NS_PER_S // 2):
            self._whole_at = (now_ns, self.t_ns.n)
            self.histogram.add(np.concatenate(self._uncounted))
            self._uncounted = []
            self._whole = self._with_asides(self.histogram.summary())
        return self._rolling, self._whole

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

    def trend(self, now_ns: int, start_ns: int) -> tuple[float, ...]:
        """Medians of the last minute in equal bins, NaN where nothing was measured."""
        from_ns = max(start_ns, now_ns - TREND_NS)
        n = min(TREND_BINS, max(1, int((now_ns - from_ns) // BIN_NS)))
        # Nothing is seen of a shift by less than half a bin.
        if self._trend and abs(now_ns - self._trend_ns) < (now_ns - from_ns) // (2 * n):
            return self._trend
        bins = self.bins.series(from_ns - from_ns % BIN_NS, now_ns)
        if not len(bins.t_ns):
            return ()
        slot = np.minimum((bins.t_ns - from_ns).clip(0) * n // max(1, now_ns - from_ns), n - 1)
        total = np.bincount(slot, weights=bins.median_s, minlength=n)
        count = np.bincount(slot, minlength=n)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(count > 0, total / count, np.nan)
        self._trend, self._trend_ns = tuple(means.tolist()), now_ns
        return self._trend

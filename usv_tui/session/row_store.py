"""One row's samples and what is derived from them: the part of the fold that knows no other row."""

import numpy as np

from usv_tui.device.energy import EnergyPerCall, RowWindows
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
from usv_tui.session.snapshot import FloatArray, IntArray, Stats
from usv_tui.session.stalls import StallFinder
from usv_tui.stats.inputs import RowData
from usv_tui.stats.rolling import LogHistogram, Summary, summary
from usv_tui.stats.segments import Change
from usv_tui.timesource import NS_PER_S

MAX_WINDOW = 10_000
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
        self.host_ns: Column | None = None
        """None while the host's time equals the window, as with a wall timer."""
        self.recent = Recent(MAX_WINDOW)
        self.bins = Bins(BIN_NS)
        self.histogram = LogHistogram()
        self.epoch_start = 0
        """Index of the epoch's first sample."""
        self.n_excluded = 0
        self.is_sampled = False
        """Whether any sample of the whole session counts."""
        self.stalls = 0
        self._stalls = StallFinder()
        self._n_starved = self._n_counted = 0
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
        stalled = np.zeros(len(flags), dtype=np.bool_)
        stalled[counted] = self._stalls.find(seconds[counted])
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
        self.stalls += int(np.count_nonzero(stalled))
        self.n_excluded += int(np.count_nonzero(~counted))
        starved = (flags & int(Flag.STARVED)) != 0
        self._n_starved += int(np.count_nonzero(starved & counted))
        self._n_counted += int(np.count_nonzero(counted))
        shown = counted & ~stalled
        if 2 * self._n_starved < self._n_counted:
            # A few windows hold a gap that the host made: kept, counted on the row, no spread.
            shown &= ~starved
        values = seconds[shown]
        if len(values):
            self.recent.extend(values)
            self._uncounted.append(values)

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
        self.n_excluded = 0
        self.stalls = 0
        self._stalls = StallFinder()
        self._n_starved = self._n_counted = 0
        self.drift, self.effect, self.ratio = Drift(), ClockEffect(), None
        self.word = StateWord.NONE
        self.found = {}
        self.energy = EnergyPerCall(None, "")
        self._stats_key = None
        self._rolling = self._whole = Stats()

    def reopen(self, from_ns: int) -> None:
        """Take the statistics up again from an earlier moment."""
        self.start_epoch()
        self.epoch_start = start = int(np.searchsorted(self.t_ns.view(), from_ns))
        flags = self.flags.view(start)
        counted = (flags & int(EXCLUDED)) == 0  # type: ignore[operator]
        stalled = (flags & int(Flag.STALL)) != 0  # type: ignore[operator]
        self.n_excluded = int(np.count_nonzero(~counted))
        self.stalls = int(np.count_nonzero(stalled))
        starved = (flags & int(Flag.STARVED)) != 0  # type: ignore[operator]
        self._n_starved = int(np.count_nonzero(starved & counted))
        self._n_counted = int(np.count_nonzero(counted))
        shown = counted & ~stalled
        if 2 * self._n_starved < self._n_counted:
            shown &= ~starved
        values = self.seconds(start)[shown]
        if len(values):
            self.recent.extend(values)
            self._uncounted.append(values)

    def data(self, baseline: int | None, tick_ns: float) -> RowData:
        """The epoch's columns as the statistics take them: views."""
        start = self.epoch_start
        is_phase = self.info.parent is not None
        return RowData(
            bench=self.info.bench,
            t_ns=self.t_ns.view(start),  # type: ignore[arg-type]
            window_ns=self.window_ns.view(start),  # type: ignore[arg-type]
            inner=self.inner.view(start),  # type: ignore[arg-type]
            rounds=self.round.view(start),  # type: ignore[arg-type]
            flags=self.flags.view(start),  # type: ignore[arg-type]
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
        good = (self.flags.view(start) & int(EXCLUDED)) == 0  # type: ignore[operator]
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
            self._rolling = _stats(summary(self.recent.last(window)))
        looked_ns, n = self._whole_at
        grown = self.t_ns.n - n
        if self._uncounted and (is_final or grown * 50 >= n or now_ns - looked_ns >= NS_PER_S // 2):
            self._whole_at = (now_ns, self.t_ns.n)
            self.histogram.add(np.concatenate(self._uncounted))
            self._uncounted = []
            self._whole = _stats(self.histogram.summary())
        return self._rolling, self._whole

    def seconds(self, start: int = 0) -> FloatArray:
        """Seconds per call from index `start` on; NaN for windows of zero or less."""
        window = self.window_ns.view(start)
        inner = self.inner.view(start)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(window > 0, window / (inner * 1e9), np.nan)  # type: ignore[operator]

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


def _stats(s: Summary) -> Stats:
    return Stats(
        n=s.n,
        median_s=s.median,
        mean_s=s.mean,
        std_s=s.std,
        madn_s=s.madn,
        min_s=s.min,
        max_s=s.max,
        p05_s=s.p05,
        p95_s=s.p95,
        p99_s=s.p99,
        severe=s.severe,
    )

"""One row's samples and what is derived from them: the part of the fold that knows no other row."""

import copy
from typing import Any

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
from usv_tui.session.columns import Bins, Column, Raw, Thinned
from usv_tui.session.epoch_stats import EpochStats, is_aside
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.stats.inputs import RowData
from usv_tui.stats.rolling import Stats, summary
from usv_tui.stats.segments import Change, change_points
from usv_tui.telemetry.energy import EnergyPerCall, RowWindows
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
        self.error_kind = ""
        self.traceback = ""
        self.calibrated: Calibrated | None = None
        self.badges: dict[str, str] = {}
        """Self-diagnosis by code, as long as the row lives."""
        self._of_epoch: dict[str, tuple[str, int]] = {}
        """Badges of an epoch, and when they were told."""
        self.epoch_ns = 0
        """When the epoch began."""
        self.t_ns = Column(np.int64)
        self.built_ns = Column(np.int64, 8)
        """When it was built afresh, with other buffers."""
        self.window_ns = Column(np.int64)
        self.round = Column(np.int32)
        self.inner = Column(np.int32)
        self.flags = Column(np.uint8)
        self.host_ns: Column[np.int64] | None = None
        """None while the host's time equals the window, as with a wall timer."""
        self.old = Thinned()
        """Of the samples that are no longer kept."""
        self.bins = Bins(BIN_NS)
        self._epoch = EpochStats(0, 0)
        self._before = self._epoch
        """The last epoch that had counted samples before this one."""
        self.is_sampled = False
        """Whether any sample of the whole session counts."""
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
        self._refreshed_n = -1
        """How many samples `refresh` had seen of this epoch; none yet when negative."""
        self._changes: tuple[tuple[int, int], list[Change]] = ((0, 0), [])
        """Where the level changed, and what of the row that was looked for in."""
        self._bins_seen = 0
        """Closed bins in which changes of level are looked for."""
        self.visited: dict[int, Any] = {}
        """What a clock sweep found at its visits, by when they began."""
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
        judged = self._epoch.stalls.find(seconds[counted])
        stalled = np.zeros(len(flags), dtype=np.bool_)
        stalled[counted] = judged.is_stall
        flags = np.where(stalled, flags | Flag.STALL, flags)
        if host_ns is not None and self.host_ns is None:
            self.host_ns = Column(np.int64)
            self.host_ns.extend(self.window_ns.view())
            self.host_ns.first, self.host_ns.n = self.window_ns.first, self.window_ns.n
        if self.host_ns is not None:
            self.host_ns.extend(window_ns if host_ns is None else host_ns)
        self.t_ns.extend(t_ns)
        self.window_ns.extend(window_ns)
        self.inner.extend(inner)
        self.round.extend(round_)
        self.flags.extend(flags)
        self.bins.extend(t_ns, seconds)
        self._epoch.count(flags)
        if len(judged.revised):
            self._epoch.revise(judged.revised, self.flags)

    @property
    def epoch_start(self) -> int:
        """Index of the epoch's first sample."""
        return self._epoch.start

    # -- raw samples

    def raw(self, start: int = 0, stop: int | None = None) -> Raw:
        """The samples with these indices, as far as they are kept: views."""
        host = self.host_ns or self.window_ns
        return Raw(
            self.t_ns.view(start, stop),
            self.window_ns.view(start, stop),
            self.inner.view(start, stop),
            self.round.view(start, stop),
            self.flags.view(start, stop),
            host.view(start, stop),
        )

    def make_room(self, most: int, slack: float = 0.25) -> Raw | None:
        """Drop the oldest samples when there are many more than so many; what was dropped."""
        first, n = self.t_ns.first, self.t_ns.n
        upto = min(n - most, self._epoch.final)
        if n - first <= most * (1 + slack) or upto <= first:
            return None
        raw = Raw(*(values.copy() for values in self.raw(first, upto)))
        self.old.add(raw)
        columns = (self.t_ns, self.window_ns, self.inner, self.round, self.flags, self.host_ns)
        for column in columns:
            if column is not None:
                column.drop(upto)
        return raw

    def shortened(self, most: int) -> "RowStore":
        """The same row, with no more than its last so many raw samples; the others thinned."""
        made = copy.copy(self)
        upto = min(self.t_ns.n - most, self._epoch.final)
        if upto <= self.t_ns.first:
            return made
        for name in ("t_ns", "window_ns", "inner", "round", "flags", "host_ns", "old"):
            setattr(made, name, copy.deepcopy(getattr(self, name)))
        made.make_room(most, slack=0)
        return made

    # -- what is left out, and why

    @property
    def n_counted(self) -> int:
        """The epoch's samples that a statistic takes."""
        return self._epoch.n_counted

    @property
    def starved_share(self) -> float:
        """Share of those for which the host was late."""
        return self._epoch.starved_share

    @property
    def n_excluded(self) -> int:
        """The epoch's samples that no statistic takes."""
        return self._epoch.count_of(EXCLUDED)

    @property
    def stalls(self) -> int:
        """The epoch's samples that are over 20 times as long as those around them."""
        return self._epoch.count_of(Flag.STALL)

    @property
    def left_out(self) -> dict[str, int]:
        """The epoch's samples that are left out, by cause; each once, none where there are none.

        The last two are in the mean all the same.
        """
        zero = int(Flag.NONPOSITIVE)
        counts = {
            "zero or negative": self._epoch.count_of(Flag.NONPOSITIVE),
            "warm-up": self._epoch.count_of(Flag.WARMUP, zero),
            "ramp": self._epoch.count_of(Flag.RAMP, zero | int(Flag.WARMUP)),
            "stalls": self.stalls,
            "starved": 0
            if self._epoch.is_mostly_starved
            else self._epoch.count_of(Flag.STARVED, int(EXCLUDED | Flag.STALL)),
        }
        return {cause: n for cause, n in counts.items() if n}

    @property
    def has_counted(self) -> bool:
        """True when the epoch has samples that count."""
        return self._epoch.has_shown

    @property
    def starved_words(self) -> str:
        """How many windows the host was late for, or which part where they are the most."""
        epoch = self._epoch
        n = epoch.n_starved
        if not n:
            return ""
        return f"{n / epoch.n_counted:.0%} starved" if epoch.is_mostly_starved else f"{n:,} starved"

    def start_epoch(self, at_ns: int) -> None:
        """Statistics forget; the samples stay."""
        self.epoch_ns = at_ns
        if self._epoch.has_shown:
            self._before = self._epoch
        self._epoch = EpochStats(at_ns, self.t_ns.n)
        self.drift, self.effect, self.ratio = Drift(), ClockEffect(), None
        self.word = StateWord.NONE
        self.found = {}
        self.energy = EnergyPerCall(None, "")
        self._stats_key = None
        self._rolling = self._whole = Stats()
        self._refreshed_n = -1
        self._bins_seen = 0

    def reopen(self, from_ns: int) -> None:
        """Take the statistics up again from an earlier moment."""
        before = self._before
        self.start_epoch(from_ns)
        if before.from_ns != from_ns:
            start = int(np.searchsorted(self.t_ns.view(), from_ns)) + self.t_ns.first
            before = EpochStats(from_ns, start)
            before.count(np.asarray(self.flags.view(start)))
        self._epoch = before

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
            n_before=max(0, self.t_ns.first - start),
            built_ns=self.built_ns.view(),
        )

    def windows(self, from_ns: int) -> RowWindows:
        """The epoch's counted windows since `from_ns`, the newest few thousand of them."""
        times = self.t_ns.view(self.epoch_start)
        start = max(int(np.searchsorted(times, from_ns)), len(times) - _ENERGY_SAMPLES)
        start += max(self.epoch_start, self.t_ns.first)
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
            self._rolling = self._of_last(window)
            if self._refreshed_n < 0:
                self._whole = self._of_all()
        return self._rolling, self._whole

    def _of_last(self, window: int) -> Stats:
        """The last so many samples that are shown, and in the mean what lies among them."""
        first, reach = max(self.epoch_start, self.t_ns.first), window + window // 4
        while True:
            start = max(first, self.t_ns.n - reach)
            flags = np.asarray(self.flags.view(start))
            counted = (flags & int(EXCLUDED)) == 0
            aside = counted & is_aside(flags, starved=not self._epoch.is_mostly_starved)
            at = np.flatnonzero(counted & ~aside)[-window:]
            if start == first or len(at) == window:
                break
            reach *= 4
        if not len(at):
            return Stats()
        seconds = self.seconds(start)
        among = seconds[at[0] :][aside[at[0] :]]
        return summary(seconds[at]).with_more(len(among), float(among.sum()))

    def _of_all(self) -> Stats:
        start = self._epoch.final
        return self._epoch.summary(np.asarray(self.flags.view(start)), self.seconds(start))

    def count_between(self, from_ns: int, to_ns: int) -> int:
        """How many samples began within [from, to)."""
        a, b = np.searchsorted(self.t_ns.view(), (from_ns, to_ns))
        return int(b - a)

    def refresh(self, now_ns: int, start_ns: int) -> None:
        """Look at what moves slowly: the whole epoch's statistics, the trend, changes of level."""
        if self.t_ns.n != max(self._refreshed_n, self.epoch_start):
            self._refreshed_n = self.t_ns.n
            start = self._epoch.final
            self._epoch.take(np.asarray(self.flags.view(start)), self.seconds(start))
            self._whole = self._of_all()
        self._draw_trend(now_ns, start_ns)
        self.bins.age()
        self._bins_seen = self.bins.closed

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

    def seconds(self, start: int = 0) -> FloatArray:
        """Seconds per call from index `start` on; NaN for windows of zero or less."""
        return self.raw(start).seconds

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

"""The one table of columns: what a row can show, by whatever shows it.

The live table, the detail page, the final table, the copied row, the help and JSON follow from it:
a new figure is one entry here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from usv_tui.session.snapshot import RowView
from usv_tui.stats.rolling import Stats
from usv_tui.units import DASH, RowUnit, count, fixed, scaled, share_text

WINDOW, WHOLE, TAILS = SETS = ("window", "whole", "tails")
"""What the live table can show: the last window, all since the mark, or the last window's tails."""


class Kind(Enum):
    """How a value is written. What is not a number is written by each table in its own way."""

    COUNT = auto()
    TIME = auto()
    """Seconds, in the table's unit."""
    SHARE = auto()
    """A part of one, in percent."""
    FACTOR = auto()
    RATE = auto()
    """Work per second; meaningless where the row's time is not that of its work."""
    TREND = auto()
    RATIO = auto()
    AGAINST = auto()
    STATE = auto()

    @property
    def is_number(self) -> bool:
        """True for what is right-aligned."""
        return self in (Kind.COUNT, Kind.TIME, Kind.SHARE, Kind.FACTOR, Kind.RATE)


@dataclass(frozen=True, slots=True)
class Column:
    """One column, wherever it stands."""

    key: str
    heading: str
    kind: Kind
    pick: Callable[[RowView, Stats], Any]
    """The value, of a row and of the set of its samples that is shown; None: there is none."""
    help: str
    live: Mapping[str, int] = field(default_factory=dict)
    """The sets of the live table that have it, with its rank: the lower, the longer it stays."""
    final: int | None = None
    """Its place in the final table: the highest is left out first, 0 stays; None: none."""
    title: str = ""
    """What the final table calls it, where that is another word."""
    json: str = ""
    """Its name in JSON; empty where another field holds it."""
    may_lack: bool = False
    """The live table leaves it out while no row has a value; the final one does so with all."""
    scale: float = 1.0
    """Of a rate: operations or bytes a second in a value of 1."""

    @property
    def head(self) -> str:
        """The heading with its unit; times have theirs in each row."""
        return f"{self.heading} %" if self.kind is Kind.SHARE else self.heading

    def text(self, value: Any, unit: RowUnit, dash: str = DASH, *, with_unit: bool = True) -> str:
        """A number in the column's kind; a dash for what is not there."""
        if value is None:
            return dash
        if self.kind is Kind.COUNT:
            return count(value)
        if self.kind is Kind.SHARE:
            return share_text(value, dash)
        if self.kind is Kind.RATE:
            return scaled(value * self.scale, dash=dash)
        if self.kind is Kind.TIME:
            return unit.text(value, dash) if with_unit else unit.bare(value, dash)
        return fixed(value, 3, dash)


def _every(rank: int) -> dict[str, int]:
    return dict.fromkeys(SETS, rank)


def _part(part: float | None, whole: float | None, scale: float = 1.0) -> float | None:
    return None if part is None or not whole else part / whole / scale


STATISTICS: tuple[Column, ...] = (
    Column(
        "n",
        "n",
        Kind.COUNT,
        lambda _, s: s.n,
        "Samples behind the figures in this row.",
        live=_every(5),
        final=4,
        json="n",
    ),
    Column(
        "median",
        "median",
        Kind.TIME,
        lambda _, s: s.median_s,
        "Half of the samples took longer, half shorter; time of one call.",
        live=_every(1),
        final=0,
        json="median_s",
    ),
    Column(
        "mean",
        "mean",
        Kind.TIME,
        lambda _, s: s.mean_s,
        "Total time over calls: it alone counts stalls and starved windows.",
        json="mean_s",
    ),
    Column(
        "sd",
        "std",
        Kind.TIME,
        lambda _, s: s.std_s,
        "Sample standard deviation.",
        json="std_s",
    ),
    Column(
        "std",
        "std",
        Kind.SHARE,
        lambda _, s: s.rel_std,
        "Standard deviation in percent of the median.",
        live=_every(4),
        final=3,
        json="rel_std",
    ),
    Column(
        "min",
        "min",
        Kind.TIME,
        lambda _, s: s.min_s,
        "The shortest sample; a lower bound, not an estimate.",
        live={WINDOW: 7, WHOLE: 7},
        final=5,
        json="min_s",
    ),
    Column(
        "p05",
        "p05",
        Kind.TIME,
        lambda _, s: s.p05_s,
        "5 % of the samples were shorter.",
        json="p05_s",
    ),
    Column(
        "p95",
        "p95",
        Kind.TIME,
        lambda _, s: s.p95_s,
        "5 % of the samples took longer.",
        live={TAILS: 4},
        json="p95_s",
    ),
    Column(
        "p99",
        "p99",
        Kind.TIME,
        lambda _, s: s.p99_s,
        "1 % of the samples took longer.",
        live={TAILS: 6},
        json="p99_s",
    ),
    Column(
        "max",
        "max",
        Kind.TIME,
        lambda _, s: s.max_s,
        "The longest sample.",
        live={TAILS: 7},
        json="max_s",
    ),
    Column(
        "mad",
        "MAD x 1.48",
        Kind.TIME,
        lambda _, s: s.madn_s,
        "Median absolute deviation, scaled to a standard deviation: stragglers do not move it.",
        json="madn_s",
    ),
    Column(
        "iqr",
        "IQR",
        Kind.TIME,
        lambda _, s: None if s.p25_s is None or s.p75_s is None else s.p75_s - s.p25_s,
        "Interquartile range: the middle half of the samples lies within it.",
        live={TAILS: 10},
        final=9,
        json="iqr_s",
    ),
    Column(
        "tail",
        "p95/median",
        Kind.FACTOR,
        lambda _, s: _part(s.p95_s, s.median_s),
        "The tail against the middle: 1.1 says that 5 % of the samples took over 10 % longer.",
        live={TAILS: 11},
        final=10,
        json="p95_over_median",
    ),
    Column(
        "severe",
        "outliers",
        Kind.COUNT,
        lambda _, s: s.severe,
        "Samples far outside the bulk: beyond three quartile ranges from the quartiles.",
        live={TAILS: 8},
        json="severe",
    ),
)
"""Figures of a set of samples: the last window, or all since the mark."""

OF_VERSIONS: tuple[Column, ...] = (
    Column(
        "base",
        "BASE",
        Kind.TIME,
        lambda row, s: _beside(row, s).median_s if row.rival is not None else None,
        "Median of the same row in the version that is compared with.",
        live=_every(2),
        final=1,
        json="base_median_s",
        may_lack=True,
    ),
    Column(
        "base std",
        "BASE std",
        Kind.SHARE,
        lambda row, s: _beside(row, s).rel_std if row.rival is not None else None,
        "Its standard deviation in percent of its median.",
        live=_every(6),
        final=3,
        json="base_rel_std",
        may_lack=True,
    ),
    Column(
        "launch",
        "x launch",
        Kind.FACTOR,
        lambda row, _: None if row.launch_ratio is None else row.launch_ratio.ratio,
        "Time over BASE's in the launch that runs, from pairs of turns: another launch differs.",
        live=_every(5),
        final=4,
        json="launch_ratio",
        may_lack=True,
    ),
    Column(
        "launches",
        "launches",
        Kind.COUNT,
        lambda row, _: None if row.rival is None else _launches(row),
        "Launches in fresh processes that the ratio is over: its interval is for the next one.",
        live=_every(6),
        final=4,
        json="launches",
        may_lack=True,
    ),
)
"""What a row of one version has of the same row of another."""


def _beside(row: RowView, shown: Stats) -> Stats:
    return row.base_whole if shown is row.whole else row.base_rolling


def _launches(row: RowView) -> int:
    return 0 if row.versus is None else len(row.versus.launches)


OF_ROWS: tuple[Column, ...] = (
    *OF_VERSIONS,
    Column(
        "whole",
        "all",
        Kind.TIME,
        lambda row, _: row.whole.median_s,
        "Median of every sample since the last mark, beside that of the last window.",
        live={WINDOW: 10},
    ),
    Column(
        "now",
        "now",
        Kind.TIME,
        lambda row, _: row.rolling.median_s,
        "Median of the last window, beside that of the whole run.",
        live={WHOLE: 7},
    ),
    Column(
        "ghost",
        "before",
        Kind.TIME,
        lambda row, _: row.ghost_s,
        "Median in the session that --baseline names: another run, not paired with this one.",
        live=_every(5),
        final=2,
        json="before_s",
        may_lack=True,
    ),
    Column(
        "change",
        "x before",
        Kind.FACTOR,
        lambda row, s: _part(s.median_s, row.ghost_s),
        "Median over that of the session before. Clock, heat and room may differ: `usv-tui "
        "compare` says whether the two may be compared.",
        live=_every(5),
        final=2,
        json="over_before",
        may_lack=True,
    ),
    Column(
        "trend",
        "trend",
        Kind.TREND,
        lambda row, _: row.trend or None,
        "Medians over the last minute, newest on the right, from this row's lowest to highest.",
        live=_every(6),
    ),
    Column(
        "tflops",
        "FLOP/s",
        Kind.RATE,
        lambda row, s: _part(row.flops, s.median_s, 1e12),
        "The operations that the benchmark declares, per median time.",
        live=_every(8),
        final=6,
        json="tflops",
        may_lack=True,
        scale=1e12,
    ),
    Column(
        "gbps",
        "B/s",
        Kind.RATE,
        lambda row, s: _part(row.bytes, s.median_s, 1e9),
        "The bytes that the benchmark declares, per median time.",
        live=_every(9),
        final=7,
        json="gbps",
        may_lack=True,
        scale=1e9,
    ),
    Column(
        "ratio",
        "vs NAME",
        Kind.RATIO,
        lambda row, _: row.ratio or row.is_baseline or None,
        "Time over the baseline's in the same rounds (below 1 is faster), half its interval's "
        "width behind it; valid however often you look. `invalid`: the time is not that of the "
        "work; the badge beside it says why.",
        live=_every(3),
        final=1,
        title="ratio",
        may_lack=True,
    ),
    Column(
        "against",
        "against",
        Kind.AGAINST,
        lambda row, _: row.baseline_name or None,
        "In the final table: the baseline, or the parameters in which it differs.",
        final=8,
    ),
    Column(
        "state",
        "state",
        Kind.STATE,
        lambda row, _: row.state,
        "What the row is doing, and what was found about it.",
        live=_every(2),
        final=2,
        title="notes",
    ),
)
"""What belongs to the row itself."""

COLUMNS = STATISTICS + OF_ROWS
RATES = tuple(column for column in COLUMNS if column.kind is Kind.RATE)

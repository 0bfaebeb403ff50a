"""Who gets which lines: a pure function of the terminal's size and of what there is to show.

Wishes are granted in the order of their weight until the lines are used up, so that every size
from 1x1 on shows the most important things: rows first, then what they mean, then charts.
"""

from dataclasses import dataclass
from typing import NamedTuple

WIDE = 130
"""From this width on, advice and log stand beside the charts."""
CHART_LEAST_WIDTH = 44
PLOT_LEAST = 5
ROOMY = 30
"""Below so many lines only the first quantities are drawn."""
FEW_QUANTITIES = 3
MOST_LIMITS = 2


class Contents(NamedTuple):
    """What there is to show."""

    rows: int
    quantities: int
    """Telemetry quantities with values."""
    has_missing: bool
    """Some quantities are missing, which takes a line to say."""
    advice: int
    """Lines of the whole advice panel."""
    limits: int = 0
    """Lines of the lane of limits."""
    wants_pane: bool = False
    """The user asked for a lower pane in the charts' place."""


@dataclass(slots=True)
class Layout:
    """Lines of each part; in a wide terminal `advice` and `pane` stand on the right."""

    width: int
    height: int
    header: int = 0
    heading: int = 0
    rows: int = 0
    telemetry: int = 0
    """One line of numbers or of reasons."""
    plot: int = 0
    """The chart without its title; 0 hides the charts."""
    strip: int = 0
    """Lines of each telemetry strip."""
    quantities: int = 0
    limits: int = 0
    """Lines of what held the numbers back."""
    advice: int = 0
    pane: int = 0
    footer: int = 0
    left: int = 0
    """Width of the charts."""
    right: int = 0
    """Width of the right column; 0 when there is none."""
    is_pane_large: bool = False
    """The lower pane stands in the charts' place."""

    @property
    def charts(self) -> int:
        """Lines of title, plot, strips and time axis."""
        return self.plot + self.strip * self.quantities + self.limits + 2 if self.plot else 0

    @property
    def used(self) -> int:
        """Lines that are given away."""
        lower = self.charts + self.telemetry
        if self.right:
            lower = max(lower, self.advice + self.pane)
        else:
            lower += self.advice + self.pane
        return self.header + self.heading + self.rows + lower + self.footer


def arrange(width: int, height: int, contents: Contents) -> Layout:
    """Give every part its lines."""
    if height < ROOMY:
        contents = contents._replace(quantities=min(contents.quantities, FEW_QUANTITIES))
    layout = Layout(width, height, left=width, quantities=contents.quantities)
    _grant_basics(layout, contents)
    if contents.wants_pane and layout.right == 0 and width < WIDE:
        _grant_large_pane(layout, contents)
        return layout
    has_charts = width >= CHART_LEAST_WIDTH and contents.rows > 0
    if has_charts and width >= WIDE and height - layout.used >= 12:
        _grant_wide(layout, contents)
        return layout
    if has_charts:
        _grant_charts(layout, contents)
    _grant_rest(layout, contents)
    return layout


def _take(layout: Layout, name: str, upto: int, least: int = 1) -> None:
    """Let a part grow to `upto` lines as far as there is room; not at all below `least`."""
    have = getattr(layout, name)
    free = layout.height - layout.used
    more = min(upto - have, free)
    if more > 0 and have + more >= least:
        setattr(layout, name, have + more)


def _grant_basics(layout: Layout, contents: Contents) -> None:
    """What every screen must have, down to one line."""
    rows = max(1, contents.rows)
    _take(layout, "rows", 1)
    _take(layout, "heading", 1)
    _take(layout, "header", 1)
    _take(layout, "rows", min(rows, 3))
    _take(layout, "footer", 1)
    _take(layout, "advice", 1)
    _take(layout, "rows", min(rows, 6))
    if contents.quantities == 0 or contents.has_missing or layout.height < 20:
        _take(layout, "telemetry", 1)


def _grant_large_pane(layout: Layout, contents: Contents) -> None:
    layout.is_pane_large = True
    _take(layout, "rows", min(max(1, contents.rows), max(6, layout.height // 3)))
    _take(layout, "pane", layout.height)


def _grant_charts(layout: Layout, contents: Contents) -> None:
    free = layout.height - layout.used
    if free < PLOT_LEAST + 2:
        return
    layout.plot = PLOT_LEAST
    if contents.quantities and layout.height - layout.used >= contents.quantities:
        layout.strip = 1
        if not contents.has_missing:
            layout.telemetry = 0
    elif not layout.telemetry:
        _take(layout, "telemetry", 1)
    _take(layout, "limits", min(contents.limits, 1))
    _take(layout, "pane", 1)


def _grant_rest(layout: Layout, contents: Contents) -> None:
    """Share out what is left: more rows, the whole advice, the log, and the chart."""
    rows = max(1, contents.rows)
    if layout.plot:
        _take(layout, "plot", 8)
    _take(layout, "rows", min(rows, max(6, layout.height // 3)))
    if layout.height >= 30:
        _take(layout, "header", 2)
        if layout.plot:
            _take(layout, "plot", 10)
        _take(layout, "pane", 2)
        _take(layout, "advice", min(contents.advice, 6))
        _take(layout, "pane", 4)
        if layout.plot:
            _take(layout, "limits", min(contents.limits, MOST_LIMITS))
        if layout.plot and layout.quantities and layout.height - layout.used >= 9:
            layout.strip = 2
    if layout.plot:
        _take(layout, "plot", max(8, layout.height * 2 // 5))
    _take(layout, "rows", rows)
    _take(layout, "pane", max(4, layout.height // 8))
    _take(layout, "plot" if layout.plot else "pane", layout.height)


def _grant_wide(layout: Layout, contents: Contents) -> None:
    """Charts on the left, advice and lower pane on the right."""
    layout.advice = 0
    layout.header = 2 if layout.height >= 30 else 1
    layout.telemetry = int(contents.has_missing or contents.quantities == 0)
    layout.limits = min(contents.limits, MOST_LIMITS)
    least = PLOT_LEAST + 2 + contents.quantities + layout.limits + layout.telemetry
    around = layout.header + layout.heading + layout.footer
    most = max(1, min(layout.height - around - least, max(6, layout.height // 2)))
    layout.rows = min(max(1, contents.rows), most)
    lower = layout.height - around - layout.rows
    layout.right = max(48, min(72, layout.width * 2 // 5))
    layout.left = layout.width - layout.right - 1
    spare = lower - layout.telemetry - layout.limits - 2 - PLOT_LEAST
    if contents.quantities:
        layout.strip = max(1, min(4, spare // (3 * contents.quantities)))
    layout.plot = lower - layout.telemetry - layout.limits - 2
    layout.plot -= layout.strip * contents.quantities
    layout.advice = min(contents.advice, 8, lower // 3)
    layout.pane = lower - layout.advice

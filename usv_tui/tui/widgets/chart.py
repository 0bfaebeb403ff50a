"""The chart: every sample of the selected row over time, with a rolling median through them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.style import Style
from textual.strip import Strip

from usv_tui.model import LOCKED_AT, RunPhase
from usv_tui.report.wording.rows import std_change
from usv_tui.session.snapshot import BinSeries, FloatArray, RowView, Series
from usv_tui.tui import text
from usv_tui.tui.view import Scene, TimeAxis
from usv_tui.tui.widgets.columns import (
    Index,
    by_column,
    filled,
    joined,
    quantiles,
    trailing_medians,
)
from usv_tui.tui.widgets.raster import Raster, RowCache
from usv_tui.tui.widgets.scale import Scale, decimals_for
from usv_tui.units import Unit, fixed, time_unit

GUTTER = 12
"""Cells for labels and axis on the left of all charts."""
LIMIT = 6000
"""Samples that are drawn one by one; beyond it, bins are drawn."""
CROWDED = 5.0
"""Samples an occupied cell, beyond which shades tell more than dots."""
KEPT = 0.6
"""Below this part of its limit another style gives way again."""
WIDEST_MEDIAN = 101
BINS_A_POINT = 9
"""Bins whose medians make one point of the line, where bins are drawn."""
RANGE_PART = 0.025
"""Part of the samples that may lie beyond the value axis on either side; a second mode that holds
more than this is always on the chart."""
FENCE = 3.0
"""Up to so many quartile ranges beyond the quartiles, nearly all samples are on the chart."""
_NONE, _SERIES, _DIM, _MEDIAN, _ALERT, _CURSOR = range(6)


@dataclass(slots=True)
class Picture:
    """What the plot shows, for its title."""

    unit: Unit
    above: int = 0
    below: int = 0
    median_of: int = 0
    """Samples behind one point of the median; 0 without one."""
    crowded: float = CROWDED
    """Samples an occupied cell, beyond which shades are drawn."""
    is_shaded: bool = False
    is_binned: bool = False
    samples: int = 0


@dataclass(slots=True)
class _Points:
    """The samples to draw, finite ones only."""

    t_ns: NDArray[np.int64]
    seconds: FloatArray
    excluded: NDArray[np.bool_]
    counted: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.counted = self.seconds[~self.excluded]


class Chart:
    """Draws the selected row; keeps each row's value axis so that it stands still."""

    def __init__(self) -> None:
        self._scales: dict[tuple[int, int | None], Scale] = {}
        self._manners: dict[tuple[int, int | None], str] = {}
        self._cache = RowCache()
        self._styles: tuple[object, tuple[Style, ...]] = (None, ())

    def plot(
        self, scene: Scene, axis: TimeAxis, width: int, height: int
    ) -> tuple[list[Strip], Picture]:
        """The plot's lines, value labels included; the title needs the second part."""
        look = scene.look
        row = scene.row
        picture = Picture(time_unit([None if row is None else row.rolling.median_s]))
        raster = Raster(max(1, width - GUTTER), height)
        scale = Scale()
        if row is not None:
            scale = self._scales.setdefault(
                (row.bench, scene.view.span_s), Scale(least_part=2e-3, bottom=0.0)
            )
            self._draw(scene, row, axis, raster, scale, picture)
            picture.unit = _axis_unit(scale, picture.unit)
            _draw_before(scene, row, scale, raster)
        _draw_times(scene, axis, raster)
        heads = _labels(scale, picture.unit, height, scene, min(width, GUTTER))
        if width <= GUTTER:
            return [text.strip([head], width, look.base) for head in heads], picture
        styles = self._styles_of(scene, row)
        lines = self._cache.strips(heads, raster, styles, look.glyphs)
        return lines, picture

    def _styles_of(self, scene: Scene, row: RowView | None) -> tuple[Style, ...]:
        look = scene.look
        series = look.base if row is None else look.of_series(row.name)
        key = (look, series)
        if self._styles[0] != key:
            self._styles = (
                key,
                (look.base, series, look.dim, look.median, look.warn, look.strong),
            )
        return self._styles[1]

    def _draw(
        self,
        scene: Scene,
        row: RowView,
        axis: TimeAxis,
        raster: Raster,
        scale: Scale,
        picture: Picture,
    ) -> None:
        bins = scene.store.curves.bins(row.bench, axis.from_ns, axis.to_ns)
        key = (row.bench, scene.view.span_s)
        before = self._manners.get(key, "")
        # What it was drawn as it stays, until it is clearly the other: a chart has one style.
        if int(bins.n.sum()) > LIMIT * (KEPT if before == "range" else 1):
            self._manners[key] = "range"
            _draw_bins(scene, bins, axis, raster, scale, picture)
            return
        series = scene.store.curves.series(row.bench, axis.from_ns, axis.to_ns, 4 * LIMIT)
        picture.crowded = CROWDED * (KEPT if before == "shades" else 1)
        _draw_samples(scene, _usable(series), axis, raster, scale, picture)
        self._manners[key] = "shades" if picture.is_shaded else "dots"


def _usable(series: Series) -> _Points:
    fine = np.isfinite(series.seconds)
    if fine.all():
        return _Points(series.t_ns, series.seconds, series.excluded)
    return _Points(series.t_ns[fine], series.seconds[fine], series.excluded[fine])


def _rows_of(values: FloatArray, scale: Scale, rows: int) -> Index:
    """Dot rows from the top; outside the plot for values beyond the limits."""
    part = (scale.high - values) / (scale.high - scale.low)
    return np.minimum(np.maximum(np.floor(part * rows), -1e6), 1e6).astype(np.intp)


def _draw_samples(
    scene: Scene,
    points: _Points,
    axis: TimeAxis,
    raster: Raster,
    scale: Scale,
    picture: Picture,
) -> None:
    picture.samples = len(points.t_ns)
    if not picture.samples:
        return
    shown = points.counted if len(points.counted) else points.seconds
    scale.fit(*_shown_range(shown))
    dots_high = 4 * raster.height
    x = ((points.t_ns - axis.from_ns) // axis.step_ns).astype(np.intp)
    y = _rows_of(points.seconds, scale, dots_high)
    inside = (y >= 0) & (y < dots_high)
    counts = ~points.excluded
    picture.above = int(np.count_nonzero((y < 0) & counts))
    picture.below = int(np.count_nonzero((y >= dots_high) & counts))
    _draw_cloud(scene, x[inside], y[inside], points.excluded[inside], raster, picture)
    _draw_beyond(scene, x[~counts], y[~counts], raster, _DIM)
    _draw_beyond(scene, x[counts], y[counts], raster, _ALERT)
    _draw_median(scene, points, axis, raster, scale, picture)


def _shown_range(values: FloatArray) -> tuple[float, float]:
    """What must be on the value axis: the bulk, any second mode, but not every straggler."""
    least, first, third, most = quantiles(values, 0.005, 0.25, 0.75, 0.995)
    low, high = quantiles(values, RANGE_PART, 1 - RANGE_PART)
    reach = FENCE * (third - first)
    return min(low, max(least, first - reach)), max(high, min(most, third + reach))


def _draw_cloud(
    scene: Scene,
    x: Index,
    y: Index,
    excluded: NDArray[np.bool_],
    raster: Raster,
    picture: Picture,
) -> None:
    """Dots, or shades where there are too many for dots."""
    if not len(x):
        return
    counts = raster.counts(x, y)
    occupied = int(np.count_nonzero(counts))
    if occupied and len(x) / occupied > picture.crowded:
        picture.is_shaded = True
        _draw_shades(scene, counts, raster)
        raster.owner[(counts > 0) & (raster.counts(x[~excluded], y[~excluded]) == 0)] = _DIM
        return
    raster.dots(x[excluded], y[excluded], _DIM)
    raster.dots(x[~excluded], y[~excluded], _SERIES)


def _draw_shades(scene: Scene, counts: Index, raster: Raster) -> None:
    """Each cell by how many samples it holds, on a logarithmic scale."""
    shades = scene.look.glyphs.shades
    level = np.log2(np.maximum(counts, 1)) / max(1.0, float(np.log2(counts.max())))
    index = np.minimum((level * len(shades)).astype(np.intp), len(shades) - 1)
    codes = np.array([ord(c) for c in shades], dtype="<u2")[index]
    filled_cells = counts > 0
    raster.over[filled_cells] = codes[filled_cells]
    raster.owner[filled_cells] = _SERIES


def _draw_beyond(scene: Scene, x: Index, y: Index, raster: Raster, owner: int) -> None:
    """Marks on the edge rows where samples lie beyond the limits."""
    glyphs = scene.look.glyphs
    cell = x >> 1
    above = cell[y < 0]
    below = cell[y >= 4 * raster.height]
    raster.put(above, np.zeros_like(above), ord(glyphs.over), owner)
    raster.put(below, np.full_like(below, raster.height - 1), ord(glyphs.under), owner)


def _draw_median(
    scene: Scene,
    points: _Points,
    axis: TimeAxis,
    raster: Raster,
    scale: Scale,
    picture: Picture,
) -> None:
    values = points.counted
    if len(values) < 3:
        return
    t_ns = points.t_ns[~points.excluded]
    width = min(max(len(values) // 12, 5), WIDEST_MEDIAN, scene.snapshot.window) | 1
    columns = by_column(t_ns, axis)
    if not len(columns.x):
        return
    medians = trailing_medians(values, columns.end, width)
    picture.median_of = min(width, len(values))
    _draw_line(scene, columns.x, medians, axis, raster, scale)


def _draw_line(
    scene: Scene,
    x: Index,
    values: FloatArray,
    axis: TimeAxis,
    raster: Raster,
    scale: Scale,
) -> None:
    """The median, broken where nothing was measured."""
    usual = float(np.median(np.diff(x))) if len(x) > 1 else 1.0
    broken = np.diff(x) > max(6.0, 3 * usual)
    for gap in scene.store.curves.gaps(axis.from_ns, axis.to_ns):
        first = (gap[0] - axis.from_ns) / axis.step_ns
        last = (gap[1] - axis.from_ns) / axis.step_ns
        broken |= (x[:-1] <= last) & (x[1:] >= first)
    dense_x, dense_v = joined(x.astype(np.float64), values, broken)
    line_x = dense_x.astype(np.intp)
    line_y = _rows_of(dense_v, scale, 4 * raster.height)
    if scene.look.no_color or scene.look.glyphs.is_ascii:
        raster.put(line_x >> 1, line_y >> 2, ord(scene.look.glyphs.median), _MEDIAN)
        return
    raster.clear_crowded(line_y.clip(0, 4 * raster.height - 1) >> 2, line_x >> 1)
    raster.dots(line_x, line_y, _MEDIAN)


def _draw_bins(
    scene: Scene,
    bins: BinSeries,
    axis: TimeAxis,
    raster: Raster,
    scale: Scale,
    picture: Picture,
) -> None:
    """Crowded stretches: the range of each column, and the medians through it."""
    picture.is_binned = True
    fine = np.isfinite(bins.median_s)
    t_ns, low_s, high_s = bins.t_ns[fine], bins.low_s[fine], bins.high_s[fine]
    median_s = bins.median_s[fine]
    picture.samples = int(bins.n.sum())
    columns = by_column(t_ns, axis)
    if not len(columns.x):
        return
    least, most = columns.smallest(low_s), columns.largest(high_s)
    middle = trailing_medians(median_s, columns.end, BINS_A_POINT)
    low, high = quantiles(least, 0.02, 0.5)[0], quantiles(most, 0.5, 0.9)[1]
    scale.fit(min(low, float(middle.min())), max(high, float(middle.max())))
    rows = 4 * raster.height
    top, bottom = _rows_of(most, scale, rows), _rows_of(least, scale, rows)
    picture.above = int(np.count_nonzero(top < 0))
    picture.below = int(np.count_nonzero(bottom >= rows))
    repeat = max(1, round(bins.width_ns / axis.step_ns))
    for shift in range(repeat):
        x, y = filled(top, bottom, columns.x + shift, rows)
        textured = (x + y) % 2 == 0
        raster.dots(x[textured], y[textured], _SERIES)
    _draw_beyond(scene, columns.x, top, raster, _ALERT)
    _draw_line(scene, columns.x, middle, axis, raster, scale)


def _draw_before(scene: Scene, row: RowView, scale: Scale, raster: Raster) -> None:
    """The median of the session before, as a dotted line where the plot is empty."""
    before = row.ghost_s
    if before is None or not scale.is_set or not scale.low <= before <= scale.high:
        return
    line = min(int((1 - scale.part(before)) * raster.height), raster.height - 1)
    free = (raster.bits[line] == 0) & (raster.over[line] == 0)
    raster.over[line, free] = ord(scene.look.glyphs.dotted)
    raster.owner[line, free] = _DIM


def _draw_times(scene: Scene, axis: TimeAxis, raster: Raster) -> None:
    """Marks, gaps and the cursor as vertical lines where the plot is empty."""
    glyphs = scene.look.glyphs
    moments = [at for at, _ in scene.store.curves.marks(axis.from_ns, axis.to_ns)]
    for gap in scene.store.curves.gaps(axis.from_ns, axis.to_ns):
        moments.extend(gap[:2])
    for at in moments:
        _draw_vertical(raster, axis.cell_of(at), ord(glyphs.mark), _DIM)
    cursor = scene.view.cursor_ns
    if cursor is not None:
        _draw_vertical(raster, axis.cell_of(cursor), ord(glyphs.axis), _CURSOR)


def _draw_vertical(raster: Raster, cell: int, code: int, owner: int) -> None:
    if not 0 <= cell < raster.width:
        return
    empty = (raster.bits[:, cell] == 0) & (raster.over[:, cell] == 0)
    raster.over[empty, cell] = code
    raster.owner[empty, cell] = owner


def _axis_unit(scale: Scale, fallback: Unit) -> Unit:
    return time_unit([scale.high]) if scale.is_set and scale.high > 0 else fallback


def _labels(
    scale: Scale, unit: Unit, height: int, scene: Scene, width: int
) -> list[tuple[str, Style]]:
    """Value labels on the rows that hold a round value, and the axis."""
    at_row: dict[int, str] = {}
    ticks = scale.ticks(max(2, height // 3))
    decimals = decimals_for((ticks[1] - ticks[0]) / unit.seconds) if len(ticks) > 1 else 2
    for tick in ticks:
        row = min(int((1 - scale.part(tick)) * height), height - 1)
        at_row[row] = fixed(tick / unit.seconds, decimals)
    style = scene.look.dim
    axis = scene.look.glyphs.axis
    return [
        (text.right(at_row.get(row, ""), width - 1) + axis if width > 1 else "", style)
        for row in range(height)
    ]


def title(scene: Scene, picture: Picture, axis: TimeAxis, width: int) -> Strip:
    """What is drawn: name, signs, unit, span, and how much lies beyond the limits."""
    look = scene.look
    row = scene.row
    if row is None:
        return text.blank(width, look.base)
    glyphs = look.glyphs
    colour = look.of_series(row.name)
    name = text.clip_middle(scene.name(row), max(8, width // 3), glyphs.ellipsis)
    runs: list[text.Run] = [(f"{look.mark_of_series(row.name)} ", colour), (name, look.strong)]
    if picture.samples == 0:
        runs.append(("  no samples in this stretch", look.dim))
        return text.strip(runs, width, look.base)
    runs.extend(_legend(scene, picture))
    span = "whole run" if scene.view.span_s is None else f"last {span_text(axis.span_s)}"
    runs.append((f"  {look.own(picture.unit.name)}, {span}", look.dim))
    beyond = [
        f"{count:,} {word} scale"
        for count, word in ((picture.above, "above"), (picture.below, "below"))
        if count
    ]
    if beyond:
        runs.append((f"  {', '.join(beyond)}", look.warn))
    return text.strip(runs, width, look.base)


def _legend(scene: Scene, picture: Picture) -> list[text.Run]:
    look, row = scene.look, scene.row
    colour = look.base if row is None else look.of_series(row.name)
    if picture.is_binned:
        what = "range"
    elif picture.is_shaded:
        what = f"samples {look.glyphs.shades}"
    else:
        what = f"samples {look.glyphs.dot}"
    runs: list[text.Run] = [("  ", look.base), (what, colour)]
    if picture.is_binned:
        runs += [(" and median ", look.dim), (look.glyphs.median, look.median)]
    elif picture.median_of:
        runs += [
            (f" and median of {picture.median_of} ", look.dim),
            (look.glyphs.median, look.median),
        ]
    return runs


def span_text(seconds: float) -> str:
    """A stretch of time in the largest unit that keeps it short."""
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    if seconds >= 120:
        return f"{seconds / 60:g} min"
    return f"{seconds:g} s"


def time_axis(scene: Scene, axis: TimeAxis, width: int) -> Strip:
    """Times under the charts, `now` at the right edge, labels of marks and gaps between them."""
    look = scene.look
    room = width - GUTTER
    if room < 4:
        return text.blank(width, look.base)
    cells = [" "] * room
    is_ended = scene.snapshot.phase == RunPhase.ENDED
    now = "end" if is_ended else "frozen" if scene.is_frozen else "now"
    _place(cells, room - len(now), now)
    _place(cells, 0, f"-{span_text(axis.span_s)}")
    for at, label in scene.store.curves.marks(axis.from_ns, axis.to_ns):
        cell = axis.cell_of(at)
        words = look.text(label)
        before = scene.row.before_lock if scene.row is not None else None
        now_std = scene.row.rolling.rel_std if scene.row is not None else None
        if label.startswith(LOCKED_AT) and before and now_std:
            words += f" {look.own(std_change(before, now_std))}"
        if not _place(cells, cell, f"{look.glyphs.pointer}{words}"):
            _place(cells, cell - len(words), f"{words}{look.glyphs.pointer}")
    row = scene.row
    if row is not None:
        for at, label in scene.store.curves.changes(row.bench, axis.from_ns, axis.to_ns):
            _place(cells, axis.cell_of(at), f"{look.glyphs.pointer}step {look.own(label)}")
    for gap in scene.store.curves.gaps(axis.from_ns, axis.to_ns):
        first, last = max(0, axis.cell_of(gap[0])), axis.cell_of(gap[1])
        if last - first >= 6:
            _place(cells, first + (last - first - 6) // 2, "paused")
    if room > 40:
        half = f"-{span_text(axis.span_s / 2)}"
        _place(cells, room // 2 - len(half) // 2, half)
    return text.strip([(" " * GUTTER + "".join(cells), look.dim)], width, look.base)


def _place(cells: list[str], at: int, words: str) -> bool:
    """Write words into free cells, all or nothing, with a blank before and after."""
    if at < 0 or at + len(words) > len(cells) or text.width_of(words) != len(words):
        return False
    if any(c != " " for c in cells[max(0, at - 1) : at + len(words) + 1]):
        return False
    cells[at : at + len(words)] = words
    return True


def value_at(scene: Scene, axis: TimeAxis, at_ns: int) -> float | None:
    """The selected row's sample nearest to a moment; None when there is none within a cell."""
    row = scene.row
    if row is None:
        return None
    reach = 2 * axis.step_ns
    series = scene.store.curves.series(row.bench, at_ns - reach, at_ns + reach + 1, LIMIT)
    fine = np.isfinite(series.seconds)
    if not fine.any():
        return None
    nearest = np.argmin(np.abs(series.t_ns[fine] - at_ns))
    return float(series.seconds[fine][nearest])

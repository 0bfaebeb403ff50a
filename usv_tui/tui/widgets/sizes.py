"""Time against a parameter, both on logarithmic scales: a line for each variant, and crossings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.style import Style
from textual.strip import Strip

from usv_tui.report.parameters import Group, number
from usv_tui.report.wording.rows import has_valid_time
from usv_tui.session.snapshot import FloatArray, RowView
from usv_tui.tui import text
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.cells import stats_of
from usv_tui.tui.widgets.pivot import NO_PARAMETERS, group_of, title
from usv_tui.tui.widgets.raster import Raster, RowCache
from usv_tui.units import significant, time_text, time_unit

GUTTER = 10
MOST_LINES = 8
_MARGIN = 0.04
_CROSS, _AXIS = 1, 2
_FIRST = 3
"""The owners of cells: base, crossings, dim, and from here on one for each line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One variant over the sizes, ascending; times in seconds."""

    name: str
    row: RowView
    x: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where one variant overtakes another, between two measured sizes."""

    x: float
    seconds: float
    before: str
    after: str
    """The faster ones below and above."""


def axis_of(group: Group) -> str:
    """The parameter to draw over: a size of numbers, with two and more of them above 0."""
    for key in (*group.sizes, *group.keys):
        values = [number(value) for value in group.values_of(key)]
        if len(values) > 1 and all(value is not None and value > 0 for value in values):
            return key
    return ""


def lines_of(scene: Scene, group: Group, key: str) -> list[Line]:
    """A line for each combination of the other parameters."""
    found: dict[str, list[tuple[float, RowView]]] = {}
    others = tuple(k for k in group.keys if k != key)
    for values, row in group.rows.items():
        at = number(group.picked(values, (key,))[0])
        is_told = stats_of(row, scene).median_s and not row.error and has_valid_time(row)
        if at is not None and is_told:
            found.setdefault(" ".join(group.picked(values, others)), []).append((at, row))
    return [_line(scene, name or group.base, points) for name, points in found.items()]


def _line(scene: Scene, name: str, points: list[tuple[float, RowView]]) -> Line:
    points.sort(key=lambda point: point[0])
    every = [stats_of(row, scene) for _, row in points]
    median = np.array([s.median_s for s in every], dtype=float)
    low = np.array([s.p05_s or s.median_s for s in every], dtype=float)
    high = np.array([s.p95_s or s.median_s for s in every], dtype=float)
    return Line(name, points[0][1], np.array([x for x, _ in points]), median, low, high)


def crossings(lines: Sequence[Line]) -> list[Crossing]:
    """Where two lines cross, straight between sizes that both have."""
    found = []
    for index, one in enumerate(lines):
        for other in lines[index + 1 :]:
            found += _between(one, other)
    return sorted(found, key=lambda crossing: crossing.x)


def _between(one: Line, other: Line) -> list[Crossing]:
    common, at, its = np.intersect1d(one.x, other.x, return_indices=True)
    if len(common) < 2:
        return []
    gap = np.log(one.median[at]) - np.log(other.median[its])
    out = []
    for i in np.flatnonzero(gap[:-1] * gap[1:] < 0):
        part = gap[i] / (gap[i] - gap[i + 1])
        x = math.exp(float(np.interp(part, (0, 1), np.log(common[i : i + 2]))))
        ends = np.log(one.median[at][i : i + 2])
        first, then = (one, other) if gap[i] < 0 else (other, one)
        seconds = math.exp(float(np.interp(part, (0, 1), ends)))
        out.append(Crossing(x, seconds, first.name, then.name))
    return out


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """Title, plot, values below, and who is who."""
    look = scene.look
    group = group_of(scene)
    key = "" if group is None else axis_of(group)
    if group is None or not key:
        told = NO_PARAMETERS if group is None else "no parameter with numbers to draw over"
        words = text.clip(f" {look.own(told)}", width, look.glyphs.ellipsis)
        return text.exactly(
            [text.strip([(words, look.dim)], width, look.base)], width, height, look.base
        )
    drawn = lines_of(scene, group, key)
    what = f"time over {key}, both logarithmic; shaded: 5 to 95 % of the samples"
    out = title(scene, group, width, what)
    crossed = crossings(drawn[:MOST_LINES])
    out += _legend(scene, drawn, crossed[: max(1, (height - 8) // 4)][:3], key, width)
    rows = max(1, height - len(out) - 1)
    return text.exactly(
        [*out, *_plot(scene, drawn, crossed, width, rows)], width, height, look.base
    )


def _legend(
    scene: Scene, drawn: Sequence[Line], crossed: Sequence[Crossing], key: str, width: int
) -> list[Strip]:
    look = scene.look
    runs: list[text.Run] = [(" ", look.base)]
    for line in drawn[:MOST_LINES]:
        mark = look.mark_of_series(line.row.name)
        runs += [
            (f"{mark} ", look.of_series(line.row.name)),
            (f"{_name(scene, line.name)}  ", look.base),
        ]
    if len(drawn) > MOST_LINES:
        runs.append((f"{len(drawn) - MOST_LINES} more lines are not drawn", look.warn))
    out = [text.strip(runs, width, look.base)]
    for crossing in crossed:
        before, after = (_name(scene, name) for name in (crossing.before, crossing.after))
        at = significant(crossing.x, 3)
        words = f" x {before} is faster below {key} {at} or so, {after} above"
        out.append(text.strip([(look.own(words), look.warn)], width, look.base))
    return out


def _name(scene: Scene, name: str) -> str:
    return scene.look.plain_name(name)


class _Frame:
    """The plot's limits, in logarithms."""

    def __init__(self, drawn: Sequence[Line], width: int, height: int) -> None:
        x = np.log(np.concatenate([line.x for line in drawn]))
        y = np.log(np.concatenate([np.minimum(line.low, line.median) for line in drawn]))
        top = np.log(np.concatenate([np.maximum(line.high, line.median) for line in drawn]))
        self.x0, self.x1 = _padded(float(x.min()), float(x.max()))
        self.y0, self.y1 = _padded(float(y.min()), float(top.max()))
        self.across, self.up = 2 * width, 4 * height

    def x(self, values: FloatArray) -> FloatArray:
        """Dot columns."""
        return (np.log(values) - self.x0) / (self.x1 - self.x0) * (self.across - 1)

    def y(self, values: FloatArray) -> FloatArray:
        """Dot rows from the top."""
        return (self.y1 - np.log(values)) / (self.y1 - self.y0) * (self.up - 1)


def _padded(low: float, high: float) -> tuple[float, float]:
    extent = max(high - low, 1e-3)
    return low - _MARGIN * extent, high + _MARGIN * extent


def _plot(
    scene: Scene, drawn: Sequence[Line], crossed: Sequence[Crossing], width: int, height: int
) -> list[Strip]:
    look, shown = scene.look, drawn[:MOST_LINES]
    if not shown or width <= GUTTER + 4:
        return []
    frame = _Frame(shown, width - GUTTER, height)
    raster = Raster(width - GUTTER, height)
    for index, line in enumerate(shown):
        _draw_line(scene, frame, raster, line, _FIRST + index)
    for crossing in crossed:
        at = np.array([crossing.x]), np.array([crossing.seconds])
        x, y = frame.x(at[0]).astype(np.intp), frame.y(at[1]).astype(np.intp)
        raster.put(x >> 1, y >> 2, ord("x"), _CROSS)
    styles: list[Style] = [look.base, look.warn, look.dim]
    styles += [look.of_series(line.row.name) for line in shown]
    plot = RowCache().strips(_labels(scene, frame, height), raster, styles, look.glyphs)
    return [*plot, _axis(scene, shown, frame, width)]


def _draw_line(scene: Scene, frame: _Frame, raster: Raster, line: Line, owner: int) -> None:
    x = frame.x(line.x)
    if len(x) > 1:
        every = np.arange(int(x[0]), int(x[-1]) + 1, dtype=float)
        low, high = (np.interp(every, x, frame.y(v)) for v in (line.low, line.high))
        middle = np.interp(every, x, frame.y(line.median))
        column, top, bottom = every.astype(np.intp), high.astype(np.intp), low.astype(np.intp)
        grid = np.arange(frame.up)[:, None]
        y, at = np.nonzero((grid >= top) & (grid <= bottom) & ((grid + column) % 3 == 0))
        raster.dots(column[at], y, owner)
        steps = np.arange(int(x[0]) * 4, int(x[-1]) * 4 + 1) / 4
        raster.dots(steps.astype(np.intp), np.interp(steps, every, middle).astype(np.intp), owner)
    mark = ord(scene.look.mark_of_series(line.row.name))
    raster.put(x.astype(np.intp) >> 1, frame.y(line.median).astype(np.intp) >> 2, mark, owner)


def _labels(scene: Scene, frame: _Frame, height: int) -> list[tuple[str, Style]]:
    """Times on a logarithmic scale: 1, 2, 5 of each decade, as far as there is room."""
    look = scene.look
    labels: dict[int, str] = {}
    low, high = math.exp(frame.y0), math.exp(frame.y1)
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in (1, 5, 2):
            value = digit * 10.0**exponent
            row = int(frame.y(np.array([value]))[0]) >> 2
            near = any(abs(row - other) < 2 for other in labels)
            if low <= value <= high and 0 <= row < height and not near:
                labels[row] = look.own(
                    f"{digit * 10.0**exponent / time_unit([value]).seconds:g} "
                    f"{time_unit([value]).name}"
                )
    if len(labels) < 2:
        for row, value in ((0, high), (height - 1, low)):
            labels[row] = look.own(time_text(value, 3))
    return [
        (text.right(labels.get(row, ""), GUTTER - 1) + look.glyphs.axis, look.dim)
        for row in range(height)
    ]


def _axis(scene: Scene, drawn: Sequence[Line], frame: _Frame, width: int) -> Strip:
    """The sizes that were measured, below where they lie."""
    look, room = scene.look, width - GUTTER
    cells = [" "] * room
    for value in np.unique(np.concatenate([line.x for line in drawn])):
        words = f"{value:g}"
        at = int(frame.x(np.array([value]))[0]) >> 1
        start = max(0, min(at - len(words) // 2, room - len(words)))
        span = cells[max(0, start - 1) : start + len(words) + 1]
        if start >= 0 and len(words) <= room and all(c == " " for c in span):
            cells[start : start + len(words)] = words
    return text.strip([(" " * GUTTER + "".join(cells), look.dim)], width, look.base)

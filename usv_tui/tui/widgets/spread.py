"""The distribution of the selected row's last window, as upright bars."""

import numpy as np
from numpy.typing import NDArray
from textual.strip import Strip

from usv_tui.session.snapshot import FloatArray, RowView
from usv_tui.tui import text
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.columns import quantiles
from usv_tui.units import Unit, in_unit, percent, time_unit

RESOLUTION = 600
"""Columns of the stretch that is looked at: its ends are on whole columns."""
_ASCII_STEPS = " .:#"
_FEWEST_BINS, _MOST_BINS = 16, 60
_NEAR = 1.5
"""A baseline so many times slower or faster would squeeze both on one axis."""


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """Title, bars and the values under them."""
    look, row = scene.look, scene.row
    if row is None:
        return text.exactly([], width, height, look.base)
    values = _last_window(scene, row)
    if len(values) < 3:
        words = f" {scene.name(row)}: too few samples for a distribution"
        return text.exactly(
            [text.strip([(words, look.dim)], width, look.base)], width, height, look.base
        )
    unit = time_unit([row.rolling.median_s])
    out = [_title(scene, values, unit, width)]
    out += _bars(scene, values, unit, width, height - 1)
    return text.exactly(out, width, height, look.base)


def _last_window(scene: Scene, row: RowView) -> FloatArray:
    snapshot = scene.snapshot
    axis = scene.axis(RESOLUTION)
    series = scene.store.curves.series(row.bench, axis.from_ns, axis.to_ns, 10_000)
    fine = np.isfinite(series.seconds) & ~series.excluded
    return series.seconds[fine][-snapshot.window :]


def _title(scene: Scene, values: FloatArray, unit: Unit, width: int) -> Strip:
    look, row = scene.look, scene.row
    assert row is not None
    std = percent(float(np.std(values, ddof=1)) / float(np.median(values)))
    runs: list[text.Run] = [
        (f" {look.mark_of_series(row.name)} ", look.of_series(row.name)),
        (
            text.clip_middle(scene.name(row), max(8, width // 2), look.glyphs.ellipsis),
            look.strong,
        ),
        (f"  distribution, {look.own(unit.name)}  last {len(values):,}  std {std} %", look.dim),
    ]
    if _baseline(scene) is not None:
        runs += [("  baseline ", look.dim), (look.glyphs.median, look.median)]
    return text.strip(runs, width, look.base)


def _bars(scene: Scene, values: FloatArray, unit: Unit, width: int, height: int) -> list[Strip]:
    look, row = scene.look, scene.row
    assert row is not None
    room = max(1, width - 2)
    low, middle, high = quantiles(values, 0.005, 0.5, 0.995)
    base = _baseline(scene)
    if base is not None:
        ends = quantiles(base, 0.005, 0.995)
        low, high = min(low, ends[0]), max(high, ends[1])
    if high <= low:
        low, high = middle * 0.999, middle * 1.001
    bins = _bins(values, low, high, room)
    rows = height - 1
    blocks = _ASCII_STEPS if look.glyphs.is_ascii else " " + look.glyphs.blocks
    steps = len(blocks) - 1
    filled = _heights(values, low, high, bins, room) * rows * steps
    over = None if base is None else _heights(base, low, high, bins, room) * rows
    out: list[Strip] = []
    for line in range(rows):
        below = rows - 1 - line
        level = np.clip(np.ceil(filled) - below * steps, 0, steps).astype(int)
        cells = [blocks[i] for i in level.tolist()]
        runs: list[text.Run] = [(" ", look.base)]
        outline = set() if over is None else set(np.flatnonzero(_meets(over, below)).tolist())
        for index, cell in enumerate(cells):
            is_over = index in outline
            style = look.median if is_over else look.of_series(row.name)
            runs.append((look.glyphs.median if is_over else cell, style))
        out.append(text.strip(runs, width, look.base))
    out.append(_values(scene, (low, middle, high), unit, room, width))
    return out


def _bins(values: FloatArray, low: float, high: float, room: int) -> int:
    """As many as the samples bear out (Freedman and Diaconis), on whole cells."""
    first, third = quantiles(values, 0.25, 0.75)
    step = 2 * (third - first) / len(values) ** (1 / 3)
    wanted = (high - low) / step if step > 0 else _FEWEST_BINS
    return int(min(max(wanted, _FEWEST_BINS), _MOST_BINS, room))


def _heights(values: FloatArray, low: float, high: float, bins: int, room: int) -> FloatArray:
    """The height of every cell, 1 at the highest, over the whole width."""
    counts, _ = np.histogram(values, bins=bins, range=(low, high))
    cells = counts[np.arange(room) * bins // room]
    return cells / max(1, int(cells.max()))


def _meets(heights: FloatArray, below: int) -> NDArray[np.bool_]:
    """Where the outline of a distribution runs through a line."""
    return (heights > below) & (heights <= below + 1)


def _baseline(scene: Scene) -> FloatArray | None:
    """The last window of the row's baseline, where both fit on one axis."""
    row = scene.row
    name = "" if row is None else row.baseline_name
    found = (r for r in scene.snapshot.rows if r.parent is None and r.name == name)
    base = next(found, None) if name else None
    if row is None or base is None or not base.rolling.median_s or not row.rolling.median_s:
        return None
    if not 1 / _NEAR <= row.rolling.median_s / base.rolling.median_s <= _NEAR:
        return None
    values = _last_window(scene, base)
    return values if len(values) >= 3 else None


def _values(
    scene: Scene, shown: tuple[float, float, float], unit: Unit, room: int, width: int
) -> Strip:
    """Ends of the axis and the median below where they lie."""
    look = scene.look
    low, middle, high = (in_unit(v, unit) for v in shown)
    cells = [" "] * room
    at = int((shown[1] - shown[0]) / (shown[2] - shown[0]) * room)
    median = f"p50 {middle}"
    start = min(max(at - len(median) // 2, 0), max(0, room - len(median)))
    for words, place in ((low, 0), (high, room - len(high)), (median, start)):
        span = range(max(0, place - 1), min(room, place + len(words) + 1))
        if place >= 0 and place + len(words) <= room and all(cells[i] == " " for i in span):
            cells[place : place + len(words)] = words
    return text.strip([(" " + "".join(cells), look.dim)], width, look.base)

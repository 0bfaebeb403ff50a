"""The distribution of the selected row's last window, as upright bars."""

import numpy as np
from textual.strip import Strip

from usv_tui.session.snapshot import FloatArray
from usv_tui.tui import text
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.columns import quantiles
from usv_tui.units import Unit, in_unit, percent, time_unit

RESOLUTION = 600
"""Columns of the stretch that is looked at: its ends are on whole columns."""
_ASCII_STEPS = " .:#"


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """Title, bars and the values under them."""
    look, row = scene.look, scene.row
    if row is None:
        return text.exactly([], width, height, look.base)
    values = _last_window(scene)
    if len(values) < 3:
        words = f" {scene.name(row)}: too few samples for a distribution"
        return text.exactly(
            [text.strip([(words, look.dim)], width, look.base)], width, height, look.base
        )
    unit = time_unit([row.rolling.median_s])
    out = [_title(scene, values, unit, width)]
    out += _bars(scene, values, unit, width, height - 1)
    return text.exactly(out, width, height, look.base)


def _last_window(scene: Scene) -> FloatArray:
    row, snapshot = scene.row, scene.snapshot
    if row is None:
        return np.empty(0)
    axis = scene.axis(RESOLUTION)
    series = scene.store.series(row.bench, axis.from_ns, axis.to_ns, 10_000)
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
    return text.strip(runs, width, look.base)


def _bars(scene: Scene, values: FloatArray, unit: Unit, width: int, height: int) -> list[Strip]:
    look, row = scene.look, scene.row
    assert row is not None
    room = max(1, width - 2)
    low, middle, high = quantiles(values, 0.005, 0.5, 0.995)
    if high <= low:
        low, high = middle * 0.999, middle * 1.001
    inside = values[(values >= low) & (values <= high)]
    counts, _ = np.histogram(inside, bins=min(room, 60), range=(low, high))
    cells = np.repeat(counts, max(1, room // len(counts)))
    rows = height - 1
    out: list[Strip] = []
    blocks = _ASCII_STEPS if look.glyphs.is_ascii else " " + look.glyphs.blocks
    steps = len(blocks) - 1
    filled = np.ceil(cells / max(1, int(cells.max())) * rows * steps).astype(int)
    for line in range(rows):
        level = np.clip(filled - (rows - 1 - line) * steps, 0, steps)
        bar = "".join(blocks[i] for i in level.tolist())
        out.append(text.strip([(f" {bar}", look.of_series(row.name))], width, look.base))
    out.append(_values(scene, (low, middle, high), unit, min(len(cells), room), width))
    return out


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

"""The advice with all its evidence: every fact, time against clock, and what the clock leaves."""

from collections.abc import Sequence

import numpy as np
from rich.style import Style
from textual.strip import Strip

from usv_tui.report.wording.advice import advice_text, all_facts
from usv_tui.report.wording.rows import clocks_line
from usv_tui.session.snapshot import FloatArray, RowView
from usv_tui.tui import text
from usv_tui.tui.screens.page import Paragraph
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets import noise
from usv_tui.tui.widgets.advice import names_of, verdict_style
from usv_tui.tui.widgets.columns import quantiles
from usv_tui.tui.widgets.raster import Raster, RowCache
from usv_tui.tui.widgets.scale import Scale, decimals_for
from usv_tui.units import Unit, fixed, time_unit

RESOLUTION = 600
POINTS = 4000
GUTTER = 10
PLOT_HEIGHT = 10
MIN_POINTS = 10


def write(scene: Scene, width: int) -> Sequence[Paragraph]:
    """The page's content."""
    look, advice = scene.look, scene.snapshot.advice
    names = names_of(scene)
    said = advice_text(advice, names)
    out: list[Paragraph] = [
        text.strip(
            [
                (f" {said.word}", verdict_style(advice.verdict, look)),
                (f"  {look.own(said.meaning)}", look.base),
            ],
            width,
            look.base,
        )
    ]
    out += [(f"  {look.own(fact)}", look.base) for fact in all_facts(advice, names)]
    clocks = scene.snapshot.clocks
    if clocks.is_ours or clocks.is_unmet or clocks.is_ignored:
        line = clocks_line(scene.snapshot.clocks_during, clocks)
        out.append((f"  clocks {look.own(look.text(line))}", look.base))
    if scene.command:
        out += [
            ("", look.base),
            ("What to type with the rights to do it:", look.dim),
            (f"  {look.text(scene.command)}", look.strong),
        ]
    out += [("", look.base), *noise.paragraphs(scene)]
    row = scene.row
    if row is not None:
        out += [("", look.base), *_plots(scene, row, width)]
    return out


def _plots(scene: Scene, row: RowView, width: int) -> list[Paragraph]:
    """Time against clock, and the times with the clock's effect taken out."""
    look = scene.look
    t_ns, seconds, mhz = _pairs(scene, row)
    name = scene.name(row)
    if len(seconds) < MIN_POINTS:
        return [(f"{name}: no times with a clock reading beside them to plot", look.dim)]
    unit = time_unit([float(np.median(seconds))])
    shown = look.own(unit.name)
    room = max(4, min(width - GUTTER - 1, 100))
    effect = row.effect
    told = "effect of the clock not told: " + effect.reason
    if effect.alpha is not None:
        told = f"exponent {effect.alpha:.2f}"
        if effect.explained is not None:
            told += f", explains {effect.explained * 100:.0f} % of the variance"
    out: list[Paragraph] = [
        (
            f"{name}: time ({shown}) against clock (MHz); {look.own(look.text(told))}",
            look.strong,
        )
    ]
    style = look.of_series(row.name)
    out += _scatter(scene, mhz, seconds, unit, room, width, style)
    if effect.alpha is not None:
        flat = seconds * (mhz / float(np.median(mhz))) ** effect.alpha
        out += [
            ("", look.base),
            (
                f"{name}: the same times at the median clock ({shown}), over time (s ago)",
                look.strong,
            ),
        ]
        ago = (t_ns - scene.now_ns) / 1e9
        out += _scatter(scene, ago, flat, unit, room, width, style, is_ago=True)
    return out


def _pairs(scene: Scene, row: RowView) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times of the shown stretch with the clock read nearest to each."""
    axis = scene.axis(RESOLUTION)
    series = scene.store.curves.series(row.bench, axis.from_ns, axis.to_ns, POINTS)
    clock_ns, clock = scene.store.curves.telemetry("sm_mhz", axis.from_ns, axis.to_ns)
    known = np.isfinite(clock)
    clock_ns, clock = clock_ns[known], clock[known]
    fine = np.isfinite(series.seconds) & ~series.excluded
    empty = np.empty(0)
    if len(clock) < 2 or not fine.any():
        return empty, empty, empty
    t_ns = series.t_ns[fine].astype(np.float64)
    lag_ns = row.effect.lag_ns or 0
    mhz = np.interp(t_ns + lag_ns, clock_ns.astype(np.float64), clock)
    return t_ns, series.seconds[fine], mhz


def _scatter(
    scene: Scene,
    x: FloatArray,
    y: FloatArray,
    unit: Unit,
    room: int,
    width: int,
    style: Style,
    *,
    is_ago: bool = False,
) -> list[Strip]:
    look = scene.look
    across, up = Scale(), Scale(least_part=2e-3)
    across.fit(float(x.min()), float(x.max()))
    if is_ago:  # nothing lies in the future
        across.high = min(across.high, 0.0)
    up.fit(*quantiles(y, 0.01, 0.99))
    raster = Raster(room, PLOT_HEIGHT)
    column = np.clip((x - across.low) / (across.high - across.low) * 2 * room, -9, 1e6)
    line = np.clip((up.high - y) / (up.high - up.low) * 4 * PLOT_HEIGHT, -9, 1e6)
    raster.dots(np.floor(column).astype(np.intp), np.floor(line).astype(np.intp), 1)
    ticks = up.ticks(4)
    decimals = decimals_for((ticks[1] - ticks[0]) / unit.seconds) if len(ticks) > 1 else 2
    labels = {
        min(int((1 - up.part(t)) * PLOT_HEIGHT), PLOT_HEIGHT - 1): fixed(t / unit.seconds, decimals)
        for t in ticks
    }
    heads = [
        (text.right(labels.get(i, ""), GUTTER - 1) + look.glyphs.axis, look.dim)
        for i in range(PLOT_HEIGHT)
    ]
    plot = RowCache().strips(heads, raster, (look.base, style), look.glyphs)
    ends = (across.low, across.high)
    low, high = (f"{abs(end) if is_ago else end:.0f}" for end in ends)
    axis = " " * GUTTER + low + " " * max(1, room - len(low) - len(high)) + high
    return [
        *(
            text.strip([(s.text, s.style or look.base) for s in line], width, look.base)
            for line in plot
        ),
        text.strip([(axis, look.dim)], width, look.base),
    ]

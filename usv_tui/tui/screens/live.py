"""The main screen: rows on top, what they mean below."""

from textual.strip import Strip

from usv_tui.model import is_usable
from usv_tui.tui import text
from usv_tui.tui.keys import LIVE, RUNNING, SAVED, Key
from usv_tui.tui.layout import Contents, Layout, arrange
from usv_tui.tui.view import PANES, Scene, TimeAxis
from usv_tui.tui.widgets import bar, chart, lane, noise, pivot, setup, sizes, spread, sweep
from usv_tui.tui.widgets.advice import AdvicePanel
from usv_tui.tui.widgets.chart import GUTTER, Chart
from usv_tui.tui.widgets.log import Log
from usv_tui.tui.widgets.strips import HOLD_NS, Strips, drawn, missing_text
from usv_tui.tui.widgets.table import Table
from usv_tui.units import duration, time_text

ROOMY = 20
"""From so many lines on, the lower pane shows the distribution above the log."""
Line = tuple[Strip, ...]
"""A line of the screen: strips side by side."""


PICTURES = {"pivot": pivot.lines, "sizes": sizes.lines}
PANE_LINES = {
    "noise": noise.lines,
    "spread": spread.lines,
    "setup": setup.lines,
    "sweep": sweep.lines,
}


class LiveScreen:
    """Draws the main screen; its panes keep what must stand still between frames."""

    def __init__(self) -> None:
        self.table = Table()
        self.chart = Chart()
        self.strips = Strips()
        self.log = Log()
        self.advice = AdvicePanel()
        self.layout = Layout(0, 0)
        self._keys: tuple[tuple[int, bool, bool, bool], Strip] | None = None
        self.footer_keys: tuple[Key, ...] = ()
        """The keys that the footer chooses from."""
        self.axis: TimeAxis | None = None
        """The time axis of the last frame; None while no chart is shown."""

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The whole screen."""
        layout = self.layout = arrange(width, height, self._contents(scene))
        rows = layout.heading + layout.rows
        is_headed = layout.heading > 0
        upper = scene.part(
            "header", lambda: bar.header(scene, width, layout.header), width, layout.header
        ) + scene.part(
            "table",
            lambda: self.table.lines(scene, width, rows, headed=is_headed),
            width,
            rows,
        )
        out: list[Line] = [(line,) for line in upper]
        self.axis = None
        out += self._wide(scene, layout) if layout.right else self._narrow(scene, layout)
        while len(out) < height - layout.footer:
            out.append((text.blank(width, scene.look.base),))
        if layout.footer:
            out += [
                (line,)
                for line in scene.part("keys", lambda: [self._footer(scene, width)], width, 1)
            ]
        if scene.snapshot.simulated and not layout.header and out:
            out[0] = (bar.with_sim(out[0][0], scene.look), *out[0][1:])
        return out[:height]

    def _narrow(self, scene: Scene, layout: Layout) -> list[Line]:
        width = layout.width
        parts: list[Strip] = []
        if layout.telemetry:
            parts += self._telemetry(scene, layout, width)
        if layout.plot:
            parts += self._charts(scene, layout, width)
        if layout.advice:
            parts += self._advice(scene, width, layout.advice)
        if layout.pane:
            parts += self._pane(scene, width, layout.pane)
        return [(line,) for line in parts]

    def _wide(self, scene: Scene, layout: Layout) -> list[Line]:
        look = scene.look
        left = self._charts(scene, layout, layout.left)
        if layout.telemetry:
            left += self._telemetry(scene, layout, layout.left)
        right = [
            *self._advice(scene, layout.right, layout.advice),
            *self._pane(scene, layout.right, layout.pane),
        ]
        lines = max(len(left), len(right))
        left = text.exactly(left, layout.left, lines, look.base)
        right = text.exactly(right, layout.right, lines, look.base)
        between = text.strip([(look.glyphs.axis, look.dim)], 1, look.base)
        return [(a, between, b) for a, b in zip(left, right, strict=True)]

    def _contents(self, scene: Scene) -> Contents:
        try:
            return _contents(scene, self.table.lines_wanted(scene), self.advice.lines_wanted(scene))
        except Exception as error:  # noqa: BLE001  the parts will say it in their places
            scene.faults.note("layout", error)
            return Contents(len(scene.snapshot.lines), 0, has_missing=False, advice=1)

    def _telemetry(self, scene: Scene, layout: Layout, width: int) -> list[Strip]:
        is_drawn = layout.strip > 0
        return scene.part(
            "sensors", lambda: [bar.telemetry_line(scene, width, is_drawn=is_drawn)], width, 1
        )

    def _advice(self, scene: Scene, width: int, height: int) -> list[Strip]:
        return scene.part(
            "advice", lambda: list(self.advice.lines(scene, width, height)), width, height
        )

    def _charts(self, scene: Scene, layout: Layout, width: int) -> list[Strip]:
        return scene.part(
            "chart", lambda: self._draw_charts(scene, layout, width), width, layout.charts
        )

    def _draw_charts(self, scene: Scene, layout: Layout, width: int) -> list[Strip]:
        draw = PICTURES.get(scene.view.picture)
        if draw is not None:
            return draw(scene, width, layout.charts)
        axis = self.axis = scene.axis(2 * max(1, width - GUTTER))
        plot, picture = self.chart.plot(scene, axis, width, layout.plot)
        if scene.view.cursor_ns is None:
            title = chart.title(scene, picture, axis, width)
        else:
            title = _cursor_title(scene, axis, width)
        out = [title, *plot]
        if layout.strip:
            out += scene.part(
                "strips",
                lambda: self.strips.lines(scene, axis, width, layout.strip, layout.quantities),
                width,
                layout.strip * layout.quantities,
            )
        if layout.limits:
            out += scene.part(
                "limits",
                lambda: lane.lines(scene, axis, width, layout.limits),
                width,
                layout.limits,
            )
        out.append(chart.time_axis(scene, axis, width))
        return out

    def _pane(self, scene: Scene, width: int, height: int) -> list[Strip]:
        return scene.part(
            "lower pane", lambda: self._draw_pane(scene, width, height), width, height
        )

    def _draw_pane(self, scene: Scene, width: int, height: int) -> list[Strip]:
        draw = PICTURES.get(scene.view.picture) if not self.layout.charts else None
        draw = draw or PANE_LINES.get(scene.view.pane)
        if draw is not None and height >= 4:
            return draw(scene, width, height)
        row = scene.row
        is_told = row is not None and row.rolling.n >= 3
        if scene.view.log_end is None and height >= ROOMY and is_told:
            shown = spread.lines(scene, width, height // 3)
            return shown + self.log.lines(scene, width, height - len(shown))
        return self.log.lines(scene, width, height)

    def _footer(self, scene: Scene, width: int) -> Strip:
        view, look = scene.view, scene.look
        if view.editing:
            return bar.prompt("/", view.pattern, look, width)
        if view.message and scene.now_ns < view.message_until_ns:
            return bar.message(view.message, look, width)
        kind = (width, scene.can_renew, scene.is_replay, scene.is_over)
        if self._keys is None or self._keys[0] != kind:
            shown = [key for key in LIVE if key.action != "renew" or scene.can_renew]
            if scene.is_over:
                shown = [key for key in shown if key.action not in RUNNING]
            if scene.is_replay:
                shown = list(SAVED)
            self.footer_keys = tuple(shown)
            self._keys = (kind, bar.footer(shown, look, width))
        return self._keys[1]

    def moment_at(self, x: int) -> int | None:
        """The moment below a cell of the charts; None where there is none."""
        axis = self.axis
        if axis is None or x < GUTTER:
            return None
        at_ns = axis.from_ns + (2 * (x - GUTTER) + 1) * axis.step_ns
        return min(at_ns, axis.to_ns - 1)


def _contents(scene: Scene, table_lines: int, advice_lines: int) -> Contents:
    snapshot = scene.snapshot
    return Contents(
        rows=table_lines,
        quantities=len(drawn(scene)),
        has_missing=bool(missing_text(snapshot)),
        advice=advice_lines,
        limits=lane.lines_wanted(scene),
        wants_pane=scene.view.picture != ""
        or scene.view.pane != PANES[0]
        or scene.view.log_end is not None,
    )


def _cursor_title(scene: Scene, axis: TimeAxis, width: int) -> Strip:
    """All values at the cursor's moment."""
    look, at_ns = scene.look, scene.view.cursor_ns
    assert at_ns is not None
    row = scene.row
    since = duration((at_ns - scene.snapshot.start_ns) / 1e9)
    runs: list[text.Run] = [(f" at {since}  ", look.strong)]
    value = chart.value_at(scene, axis, at_ns)
    if row is not None:
        shown = "no sample" if value is None else look.own(time_text(value))
        runs.append(
            (
                f"{text.clip_middle(scene.name(row), 30, look.glyphs.ellipsis)} {shown}",
                look.of_series(row.name),
            )
        )
    for quantity in drawn(scene):
        held = _held_value(scene, quantity.field, at_ns)
        if held is not None:
            held_text = look.own(f"  {held * quantity.factor:.0f} {quantity.unit}")
            runs.append((held_text, look.base))
    return text.strip(runs, width, look.base)


def _held_value(scene: Scene, field: str, at_ns: int) -> float | None:
    """The last value read before a moment, if it is not too old."""
    t_ns, values = scene.store.curves.telemetry(field, at_ns - HOLD_NS, at_ns + 1)
    known = [v for v in values.tolist()[-20:] if is_usable(v)] if len(t_ns) else []
    return known[-1] if known else None

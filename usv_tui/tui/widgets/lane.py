"""What held the numbers back, as bars on the charts' time axis."""

from rich.style import Style
from textual.strip import Strip

from usv_tui.session import lane
from usv_tui.session.lane import Stretch
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene, TimeAxis
from usv_tui.tui.widgets.chart import GUTTER

_SLOWING = (lane.OTHER, lane.NEIGHBOUR, lane.POWER, lane.THERMAL)
_MEANT = (lane.PAUSE, lane.LOCK)
"""In the order in which they are drawn: the last stays visible."""


def lines_wanted(scene: Scene) -> int:
    """None before anything was held back; one for what slows, one for what is meant."""
    start_ns, now_ns = scene.snapshot.start_ns, scene.now_ns
    kinds = {stretch.kind for stretch in scene.store.curves.limits(start_ns, now_ns + 1)}
    return sum(not kinds.isdisjoint(of) for of in (_SLOWING, _MEANT))


def lines(scene: Scene, axis: TimeAxis, width: int, height: int) -> list[Strip]:
    """So many lines; on a single one what slows goes before what is meant."""
    found = scene.store.curves.limits(axis.from_ns, axis.to_ns)
    groups = [(*_MEANT, *_SLOWING)] if height == 1 else [_SLOWING, _MEANT]
    drawn = [_line(scene, axis, found, kinds, width) for kinds in groups]
    return text.exactly(drawn, width, height, scene.look.base)


def _line(
    scene: Scene, axis: TimeAxis, found: list[Stretch], kinds: tuple[str, ...], width: int
) -> Strip:
    look, room = scene.look, width - GUTTER
    head = text.right("limits" if lane.POWER in kinds else "", GUTTER - 1) + look.glyphs.axis
    if room < 1:
        return text.strip([(head, look.dim)], width, look.base)
    cells: list[tuple[str, Style]] = [(" ", look.base)] * room
    for kind in kinds:
        for stretch in found:
            if stretch.kind == kind:
                _draw(look, cells, stretch, axis)
    return text.strip([(head, look.dim), *cells], width, look.base)


def _draw(look: Look, cells: list[tuple[str, Style]], stretch: Stretch, axis: TimeAxis) -> None:
    """A bar with its name on it, where that fits."""
    first = max(0, axis.cell_of(stretch.from_ns))
    last = min(len(cells) - 1, axis.cell_of(stretch.to_ns - 1))
    style = _style_of(stretch.kind, look)
    name = look.text(f"{stretch.kind} {stretch.detail}".strip())
    room = last - first + 1
    word = next((w for w in (name, stretch.kind) if text.width_of(w) + 2 <= room), "")
    word = f" {word} " if word and text.width_of(word) == len(word) else ""
    bar = word + look.glyphs.bar * (room - len(word))
    for offset, sign in enumerate(bar):
        cells[first + offset] = (sign, style)


def _style_of(kind: str, look: Look) -> Style:
    return {
        lane.POWER: look.warn,
        lane.THERMAL: look.bad,
        lane.OTHER: look.bad,
        lane.NEIGHBOUR: look.warn,
        lane.LOCK: look.good,
    }.get(kind, look.dim)

"""The picture of the answer: one parameter down, one across, the best of each size in bold."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from textual.strip import Strip

from usv_tui.report import parameters
from usv_tui.report.parameters import Group, Values, Winner
from usv_tui.session.snapshot import RowView
from usv_tui.tui import text
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.cells import ratio_cell, stats_of
from usv_tui.units import row_unit

_GAP = 2
NO_PARAMETERS = "rows have no parameters to set against each other: name them `f[n=1,kind=a]`"


@dataclass(frozen=True, slots=True)
class _Cell:
    """One crossing: the time, and the ratio beneath."""

    time: str
    time_style: Style
    ratio: str
    ratio_style: Style
    mark: str = ""


def group_of(scene: Scene) -> Group | None:
    """The group of the selected row, else the first one."""
    found = parameters.groups(scene.snapshot.rows)
    chosen = scene.row
    own = (g for g in found if chosen and any(r.bench == chosen.bench for r in g.rows.values()))
    return next(own, found[0] if found else None)


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """Title, heads of the columns, and two lines a size: times, and ratios beneath."""
    look = scene.look
    group = group_of(scene)
    if group is None:
        told = text.clip(f" {look.own(NO_PARAMETERS)}", width, look.glyphs.ellipsis)
        return text.exactly(
            [text.strip([(told, look.dim)], width, look.base)], width, height, look.base
        )
    out = [*title(scene, group, width)]
    out += _body(scene, group, width, height - len(out))
    return text.exactly(out, width, height, look.base)


def title(scene: Scene, group: Group, width: int, what: str = "") -> list[Strip]:
    """What is set against what, and who is the fastest of each size."""
    look = scene.look
    sizes, variant = ", ".join(group.sizes), group.variant
    told = what or (f"{sizes} down, {variant} across" if sizes and variant else variant or sizes)
    runs: list[text.Run] = [
        (f" {look.plain_name(group.base)}", look.strong),
        (f"  {look.plain_name(told)}, medians of the {_window(scene)}", look.dim),
    ]
    out = [text.strip(runs, width, look.base)]
    rows = list(group.rows.values())
    for line in parameters.fastest_lines(rows, lambda row: stats_of(row, scene)):
        words = text.clip(look.own(line), width - 12, look.glyphs.ellipsis)
        runs = [(f" {look.glyphs.winner} fastest ", look.good), (words, look.base)]
        out.append(text.strip(runs, width, look.base))
    return out


def _window(scene: Scene) -> str:
    return "whole run" if scene.view.columns == "whole" else f"last {scene.snapshot.window:,}"


def _body(scene: Scene, group: Group, width: int, height: int) -> list[Strip]:
    look = scene.look
    best = parameters.winners(group, lambda row: stats_of(row, scene))
    variants = group.values_of(group.variant) if group.variant else ("",)
    sizes = group.by_size()
    down = [look.plain_name(" ".join(size)) for size in sizes]
    head = max([text.width_of(" ".join(group.sizes)), *map(text.width_of, down)]) + 1
    cells = {
        (size, variant): _cell(scene, sizes[size].get(variant), best.get(size))
        for size in sizes
        for variant in variants
    }
    widths = [
        max(
            text.width_of(look.plain_name(variant)),
            *(
                max(text.width_of(c.mark + c.time), text.width_of(c.ratio))
                for size in sizes
                if (c := cells[size, variant]) is not None
            ),
        )
        for variant in variants
    ]
    shown = _fitting(widths, width - head - 1, variants, _chosen_variant(scene, group))
    out = [_heads(scene, group, head, [(variants[i], widths[i]) for i in shown], width)]
    each = 2 if any(c.ratio for c in cells.values()) and 2 * len(sizes) < height else 1
    for size, label in _visible(
        scene, group, list(zip(sizes, down, strict=True)), height - 1, each
    ):
        row = [(cells[size, variants[i]], widths[i]) for i in shown]
        out += _two_lines(scene, text.right(label, head), row, width)[:each]
    if len(shown) < len(variants):
        more = f" {len(variants) - len(shown)} more to the right: select a row of theirs"
        out[0] = text.strip([(out[0].text.rstrip(), look.dim), (more, look.warn)], width, look.base)
    return out


def _visible(
    scene: Scene, group: Group, found: list[tuple[Values, str]], height: int, each: int
) -> list[tuple[Values, str]]:
    """As many sizes as fit, that of the selected row among them."""
    fit = max(1, height // each)
    chosen = scene.row
    at = 0
    for values, row in group.rows.items():
        if chosen is not None and row.bench == chosen.bench:
            own = group.picked(values, group.sizes)
            at = next((i for i, (size, _) in enumerate(found) if size == own), 0)
    first = max(0, min(at - fit // 2, len(found) - fit))
    return found[first : first + fit]


def _chosen_variant(scene: Scene, group: Group) -> str:
    chosen = scene.row
    for values, row in group.rows.items():
        if chosen is not None and row.bench == chosen.bench and group.variant:
            return group.picked(values, (group.variant,))[0]
    return ""


def _fitting(widths: Sequence[int], room: int, variants: Values, chosen: str) -> list[int]:
    """The columns that fit side by side, from the first or up to the chosen one."""
    last = variants.index(chosen) if chosen in variants else 0
    first = 0
    while first < last and sum(w + _GAP for w in widths[first : last + 1]) > room:
        first += 1
    taken: list[int] = []
    for index in range(first, len(widths)):
        if taken and widths[index] + _GAP > room:
            break
        taken.append(index)
        room -= widths[index] + _GAP
    return taken


def _heads(
    scene: Scene, group: Group, head: int, shown: Sequence[tuple[str, int]], width: int
) -> Strip:
    look = scene.look
    names = "".join(
        " " * _GAP + text.right(look.plain_name(variant) or "time", cells)
        for variant, cells in shown
    )
    label = text.right(look.plain_name(" ".join(group.sizes)), head)
    return text.strip([(label, look.dim), (names, look.strong)], width, look.base)


def _two_lines(
    scene: Scene, label: str, row: Sequence[tuple[_Cell, int]], width: int
) -> list[Strip]:
    look = scene.look
    above: list[text.Run] = [(label, look.strong)]
    below: list[text.Run] = [(" " * text.width_of(label), look.base)]
    for cell, cells in row:
        pad = cells - text.width_of(cell.mark) - text.width_of(cell.time) + _GAP
        above += [(" " * pad, look.base), (cell.mark, look.good), (cell.time, cell.time_style)]
        below.append((" " * _GAP + text.right(cell.ratio, cells), cell.ratio_style))
    return [text.strip(runs, width, look.base) for runs in (above, below)]


def _cell(scene: Scene, row: RowView | None, best: Winner | None) -> _Cell:
    look = scene.look
    if row is None:
        return _Cell(look.glyphs.dash, look.dim, "", look.dim)
    if row.error:
        return _Cell("failed", look.bad, "", look.dim)
    chosen = scene.row
    median_s = stats_of(row, scene).median_s
    time = look.own(row_unit(median_s).text(median_s, look.glyphs.dash))
    is_best = best is not None and best.row.bench == row.bench
    is_chosen = chosen is not None and chosen.bench == row.bench
    style = look.strong if is_best else look.base
    if is_chosen:
        time = f"{look.glyphs.cursor}{time}"
    mark = f"{look.glyphs.winner} " if is_best and best is not None and best.is_clear else ""
    ratio = ratio_cell(row, scene.snapshot.rows, look)
    return _Cell(time, style, ratio.text, ratio.style, mark)

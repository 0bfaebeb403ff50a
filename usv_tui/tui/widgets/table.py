"""The live table: one row a benchmark, one unit a row, figures that do not dance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from textual.strip import Strip

from usv_tui.model import RowState
from usv_tui.report import columns, parameters
from usv_tui.report.columns import COLUMNS, WHOLE, Kind
from usv_tui.session.snapshot import RowView
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.cells import Cell, Sparkline, cell_of, ratio_heading, stats_of
from usv_tui.tui.widgets.names import Labels, branch
from usv_tui.units import RowUnit, Unit, row_unit

NAME_LEAST = 6
NAME_MOST = 40
HEADING_LEAST = 17
HEADING_MOST = 22
"""What the name column's own heading takes where there is room."""
TREND_LEAST = 10
TREND_MOST = 40
STATE_LEAST, STATE_NARROW, STATE_WIDE = 8, 14, 24
"""What the state takes at first, in narrow and in wide terminals."""
WORTHY = 4
"""Columns up to this rank are worth more than letters of a name."""
_WIDE = 110
_SAME_N = 0.05
"""Counts that differ by less are told once, in the heading."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: how it is headed and what it shows. The lower its rank, the longer it stays."""

    key: str
    rank: int
    heading: str
    cell: Callable[[RowView], Cell]
    is_left: bool = False


@dataclass(slots=True)
class Filled:
    """A column that is shown: its width, and its cells for the shown rows."""

    column: Column
    width: int
    cells: list[Cell]

    @property
    def widest(self) -> int:
        """What its cells and heading would take."""
        cells = (text.width_of(cell.text) + text.width_of(cell.tail) for cell in self.cells)
        return max(text.width_of(self.column.heading), max(cells, default=0))


class Table:
    """Draws the rows. Units and column widths are kept once chosen, so that nothing jumps."""

    def __init__(self) -> None:
        self._units: dict[int, Unit] = {}
        self._widths: dict[str, int] = {}
        self._width_key: object = None
        self._top = 0
        self._shown: list[RowView | None] = []
        self._labels = Labels()
        self._trends = Sparkline()
        self._strips: dict[int, tuple[list[text.Run], Strip]] = {}
        self._heads: list[tuple[int, int, str]] = []

    def row_at(self, index: int) -> RowView | None:
        """The row on the table's line `index`, counted below the heading."""
        return self._shown[index] if 0 <= index < len(self._shown) else None

    def column_at(self, x: int) -> str:
        """The column whose heading is at a cell of the heading's line; empty for none."""
        return next((key for start, end, key in self._heads if start <= x < end), "")

    def lines_wanted(self, scene: Scene) -> int:
        """How many lines all rows take, the headings of groups among them."""
        rows = scene.view.visible(scene.snapshot)
        self._labels.look_at(scene, rows, is_grouped=_is_grouped(scene, rows))
        return len(rows) + self._labels.titles(rows)

    def lines(self, scene: Scene, width: int, height: int, *, headed: bool = True) -> list[Strip]:
        """The heading (where wanted) and as many rows as fit, the selected one among them."""
        look, snapshot = scene.look, scene.snapshot
        rows = scene.view.visible(snapshot)
        look.meet(snapshot.rows)
        body = height - headed
        grouped = body > 2 and _is_grouped(scene, rows)
        self._labels.look_at(scene, rows, is_grouped=grouped)
        items = self._shown = self._scroll(rows, scene, max(0, body))
        shown = [row for row in items if row is not None]
        fitted, name_width = self._arrange(scene, rows, shown, width)
        out = [self._heading(scene, rows, shown, fitted, name_width, width)] if headed else []
        best = parameters.clear_winners(rows, lambda row: row.whole)
        index = 0
        for item in items:
            if item is None:
                title = self._labels.of(shown[index]).title
                words = text.clip(f" {title}", width, look.glyphs.ellipsis)
                out.append(text.strip([(words, look.strong)], width, look.base))
                continue
            mark = look.glyphs.winner if item.bench in best else " "
            out.append(self._row(scene, item, index, fitted, (name_width, width), mark))
            index += 1
        if not rows and body > 0:
            out.append(text.strip([(_empty_text(scene), look.dim)], width, look.base))
        return text.exactly(out, width, height, look.base)

    def _row(
        self,
        scene: Scene,
        row: RowView,
        index: int,
        filled: Sequence[Filled],
        widths: tuple[int, int],
        mark: str,
    ) -> Strip:
        """One row's line; `widths` are those of the name and of the table."""
        chosen = scene.row
        is_chosen = chosen is not None and row.bench == chosen.bench
        runs = self._name_runs(scene, row, widths[0], mark, is_chosen=is_chosen)
        is_failed = row.state is RowState.FAILED
        for column in _figures_before(filled, row) if is_failed else filled:
            runs += self._cell_runs(scene, row, column, index, is_chosen=is_chosen)
        if is_failed:
            taken = sum(text.width_of(words) for words, _ in runs)
            runs.append(_failure(scene, row, widths[1] - taken))
        return self._strip(row.bench, runs, widths[1], scene.look)

    def _scroll(self, rows: Sequence[RowView], scene: Scene, body: int) -> list[RowView | None]:
        """What each line shows, None for a group's heading; moved only as far as need be."""
        chosen = scene.row
        index = next((i for i, r in enumerate(rows) if chosen and r.bench == chosen.bench), 0)
        top = max(0, min(self._top, index))
        items = self._from(rows, top, body)
        while top < index and rows[index] not in items:
            top += 1
            items = self._from(rows, top, body)
        while top > 0 and len(more := self._from(rows, top - 1, body + 1)) <= body:
            top, items = top - 1, more
        self._top = top
        return items

    def _from(self, rows: Sequence[RowView], top: int, body: int) -> list[RowView | None]:
        """The rows from one on, with their groups' headings, as many as there are lines."""
        items: list[RowView | None] = []
        last = ""
        for row in rows[top : top + body]:
            title = self._labels.of(row).title
            if row.parent is None:
                if title and title != last:
                    items.append(None)
                last = title
            items.append(row)
        if len(items) > body:
            items = items[:body]
        return items[:-1] if items and items[-1] is None else items

    def _unit_of(self, row: RowView) -> RowUnit:
        """The unit of a row's times; changed only when its median no longer reads well in it."""
        found = row_unit(row.rolling.median_s or row.whole.median_s, self._units.get(row.bench))
        if row.rolling.n:
            self._units[row.bench] = found.unit
        return found

    def _arrange(
        self, scene: Scene, rows: Sequence[RowView], shown: Sequence[RowView], width: int
    ) -> tuple[list[Filled], int]:
        """The columns that fit, filled and with their widths, and the name's width."""
        offered = self._columns(scene, rows)
        key = (scene.view.columns, width)
        if key != self._width_key:
            self._width_key, self._widths = key, {}
        ellipsis = scene.look.glyphs.ellipsis
        longest = max((self._name_cells(r, scene) for r in rows), default=0)
        wanted = min(max(longest, NAME_LEAST if width < 80 else HEADING_LEAST), NAME_MOST)
        room = width - 3  # cursor, swatch and a blank
        told_apart = self._labels.telling_width(wanted, ellipsis)
        least = max(NAME_LEAST, min(wanted, max(HEADING_LEAST, told_apart), room // 4))
        if told_apart > least:
            least = min(told_apart, room // 2)
        ranked = sorted(offered, key=lambda c: c.rank)
        worthy = [c for c in ranked if c.rank <= WORTHY]
        taken, left = self._take(worthy, shown, room - least - 1, is_wide=width >= _WIDE)
        more = min(max(0, left), wanted - least)
        name, left = least + max(0, more), left - max(0, more)
        left = _widen(taken, "state", left)
        if len(taken) == len(worthy) and name >= wanted:
            rest = [c for c in ranked if c.rank > WORTHY]
            others, left = self._take(rest, shown, left, is_wide=width >= _WIDE)
            taken += others
        spare = min(max(0, left), max(0, HEADING_MOST - name))
        name, left = name + spare, left - spare
        order = {column.key: index for index, column in enumerate(offered)}
        taken.sort(key=lambda filled: order[filled.column.key])
        for filled in taken:
            if filled.column.key == "trend":  # it takes what nobody else wants
                filled.width += min(max(0, left), TREND_MOST - filled.width)
        return taken, max(1, name)

    def _take(
        self, wished: Sequence[Column], shown: Sequence[RowView], left: int, *, is_wide: bool
    ) -> tuple[list[Filled], int]:
        """The first columns that fit into so many cells, and what is left of these."""
        taken: list[Filled] = []
        for column in wished:
            cells = [column.cell(row) for row in shown]
            filled = Filled(column, 0, cells)
            filled.width = self._width_of(filled, is_wide=is_wide)
            if filled.width + 1 > left:
                if column.key not in ("median", "state"):
                    break
                filled.width = left - 1
            if filled.width > 0:
                taken.append(filled)
                left -= filled.width + 1
        return taken, left

    def _width_of(self, filled: Filled, *, is_wide: bool) -> int:
        key = filled.column.key
        if key == "trend":
            return TREND_LEAST
        width = max(9 if key == "ratio" else 0, filled.widest, self._widths.get(key, 0))
        if key == "state":
            width = min(max(width, STATE_LEAST), STATE_WIDE if is_wide else STATE_NARROW)
        self._widths[key] = width
        return width

    def _columns(self, scene: Scene, rows: Sequence[RowView]) -> list[Column]:
        """The columns of the chosen set that have something to show, in the table's order."""
        look, shown = scene.look, scene.view.columns
        found = []
        for column in COLUMNS:
            is_told = column.key == "n" and _common_n(scene, rows)  # in the heading
            if shown not in column.live or is_told or _lacks(column, scene, rows):
                continue
            heading = column.head
            if column.kind is Kind.RATIO:
                heading = ratio_heading(
                    rows, look, lambda name: text.clip_middle(name, 11, look.glyphs.ellipsis)
                )
            heading += scene.sign_of_order(column.key)
            cell = cell_of(column, scene, rows, self._unit_of)
            is_left = column.kind is Kind.STATE
            found.append(Column(column.key, column.live[shown], heading, cell, is_left))
        return found

    def _heading(
        self,
        scene: Scene,
        rows: Sequence[RowView],
        shown: Sequence[RowView],
        taken: Sequence[Filled],
        name_width: int,
        width: int,
    ) -> Strip:
        look = scene.look
        name = _name_heading(scene, rows, shown, name_width)
        runs: list[text.Run] = [(f"   {text.left(name, name_width)}", look.dim)]
        at = 3 + name_width
        self._heads = [(0, at, "name")]
        for filled in taken:
            column, cells = filled.column, filled.width
            heading = text.clip(column.heading, cells, look.glyphs.ellipsis)
            fitted = text.left(heading, cells) if column.is_left else text.right(heading, cells)
            runs.append((f" {fitted}", look.dim))
            self._heads.append((at, at + cells + 1, column.key))
            at += cells + 1
        return text.strip(runs, width, look.base)

    def _strip(self, bench: int, runs: list[text.Run], width: int, look: Look) -> Strip:
        """The row's strip; the same one as long as nothing in it changes."""
        known = self._strips.get(bench)
        if known is not None and known[0] == runs and known[1].cell_length == width:
            return known[1]
        strip = text.strip(runs, width, look.base)
        self._strips[bench] = (runs, strip)
        return strip

    def _name_cells(self, row: RowView, scene: Scene) -> int:
        return text.width_of(self._labels.of(row).text) + len(branch(row, scene))

    def _name_runs(
        self, scene: Scene, row: RowView, width: int, mark: str, *, is_chosen: bool
    ) -> list[text.Run]:
        look, label = scene.look, self._labels.of(row).text
        glyphs = look.glyphs
        indent = branch(row, scene)
        room = max(0, width - len(indent))
        if row.parent is None:
            head = self._labels.head(width, glyphs.ellipsis)
            name = text.clip_name(label, room, glyphs.ellipsis, head)
        else:
            name = text.clip_middle(label, room, glyphs.ellipsis)
        style = look.dim if row.state is RowState.OFF else look.strong if is_chosen else look.base
        return [
            (glyphs.cursor if is_chosen else " ", look.strong),
            (look.mark_of_series(row.name), look.of_series(row.name)),
            (mark, look.good),
            (indent, look.dim),
            (text.left(name, room), style),
        ]

    def _cell_runs(
        self, scene: Scene, row: RowView, filled: Filled, index: int, *, is_chosen: bool
    ) -> list[text.Run]:
        look, width = scene.look, filled.width
        if filled.column.key == "trend":
            drawn = self._trends.text(row.bench, row.trend, width, look.glyphs.blocks)
            return [(f" {drawn}", look.of_series(row.name))]
        cell, ellipsis = filled.cells[index], look.glyphs.ellipsis
        whole = text.width_of(cell.text) <= width
        words = text.clip(cell.text if whole else cell.short or cell.text, width, ellipsis)
        style = look.strong if is_chosen and cell.style is look.base else cell.style
        if not filled.column.is_left:
            return [(f" {text.right(words, width)}", style)]
        room = width - text.width_of(words)
        tail = text.clip(cell.tail, room, ellipsis) if room > 1 else ""
        runs = [(f" {words}", style), (text.left(tail, room), cell.tail_style or look.base)]
        return runs if tail else [(f" {text.left(words, width)}", style)]


def _widen(taken: Sequence[Filled], key: str, left: int) -> int:
    """Let a column have what its cells want; returns what is left."""
    for filled in taken:
        if filled.column.key == key:
            more = min(max(0, left), max(0, filled.widest - filled.width))
            filled.width += more
            left -= more
    return left


def _is_grouped(scene: Scene, rows: Sequence[RowView]) -> bool:
    """Rows in an order of the user's keep their groups only where there is one."""
    if not scene.view.order:
        return True
    found = [parameters.split(row.name) for row in rows if row.parent is None]
    return len({None if n is None else (n.base, n.keys) for n in found}) == 1


def _common_n(scene: Scene, rows: Sequence[RowView]) -> int:
    """The samples behind every row's figures, where they are about the same; 0 where not."""
    tops = (row for row in rows if row.parent is None and row.state is not RowState.OFF)
    counts = [stats_of(row, scene).n for row in tops]
    if not counts or not min(counts) or max(counts) - min(counts) > _SAME_N * max(counts):
        return 0
    return min(counts)


def _lacks(column: columns.Column, scene: Scene, rows: Sequence[RowView]) -> bool:
    """No row has a value in it, and the column may be without."""
    return column.may_lack and all(column.pick(r, stats_of(r, scene)) is None for r in rows)


def _figures_before(taken: Sequence[Filled], row: RowView) -> list[Filled]:
    """The first figures of a row that failed, where it has any: its error takes the rest."""
    of_times = takewhile(lambda filled: filled.column.key in ("n", "median", "std"), taken)
    return list(of_times) if row.whole.n else []


def _failure(scene: Scene, row: RowView, room: int) -> text.Run:
    """What went wrong, in the place of the other figures."""
    look = scene.look
    error = look.text(row.error or row.detail or "see the traceback")
    words = f" {look.glyphs.bad} failed: {error}"
    return (text.clip(words, room, look.glyphs.ellipsis), look.bad)


def _name_heading(
    scene: Scene, rows: Sequence[RowView], shown: Sequence[RowView], width: int
) -> str:
    look, view = scene.look, scene.view
    parts = [("benchmark" if width >= 9 else "name") + scene.sign_of_order("name")]
    if len(shown) < len(rows) and shown:
        first = rows.index(shown[0]) + 1
        parts.append(f"{first}-{first + len(shown) - 1}/{len(rows)}")
    if view.pattern:
        parts.append(f"/{look.text(view.pattern)}")
    elif scene.store.steps():  # of a sweep, whose panel shows them all
        parts.append("last visit")
    else:
        n = _common_n(scene, rows) or scene.snapshot.window
        parts.append(f"whole {n:,}" if view.columns == WHOLE else f"last {n:,}")
    while len(parts) > 1 and len(" ".join(parts)) > width:
        parts.pop()
    return text.clip(" ".join(parts), width, look.glyphs.ellipsis)


def _empty_text(scene: Scene) -> str:
    """Why there is no row."""
    snapshot = scene.snapshot
    if scene.view.pattern:
        return f"  no benchmark's name holds {scene.look.text(scene.view.pattern)!r}"
    detail = scene.look.text(snapshot.phase_detail)
    return f"  {snapshot.phase}{scene.look.glyphs.ellipsis} {detail}".rstrip()

"""The live table: one row a benchmark, one unit a column, figures that do not dance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.style import Style
from textual.strip import Strip

from usv_tui.model import Answer, Ratio, RowState, StateWord
from usv_tui.report import columns
from usv_tui.report.columns import COLUMNS, TAILS, WHOLE, WINDOW, Kind
from usv_tui.report.wording.rows import (
    Cut,
    best_cut,
    depth_of,
    has_valid_time,
    invalid_reason,
    missing_baseline,
    state_words,
    undecided_words,
)
from usv_tui.session.snapshot import RowView
from usv_tui.stats.rolling import Stats
from usv_tui.tui import text
from usv_tui.tui.look import Glyphs, Look
from usv_tui.tui.view import Scene
from usv_tui.units import MS, NS, US, S, Unit, significant, time_unit, times

NAME_LEAST = 6
NAME_MOST = 40
HEADING_LEAST = 17
HEADING_MOST = 22
"""What the name column's own heading takes where there is room."""
TREND_LEAST = 10
TREND_MOST = 40
FLAT_BELOW = 1e-2
"""A trend whose relative extent is below this is drawn flat: it would be noise, blown up."""
_UNITS = (NS, US, MS, S)
_WIDEST_VALUE = 9_999_999.0


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and style."""

    text: str
    style: Style


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


class Sparkline:
    """Trends as block glyphs; the same values give the same text without work."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[float, ...], int, str, str]] = {}

    def text(self, bench: int, values: tuple[float, ...], width: int, blocks: str) -> str:
        """The newest values, one cell each, flush right; blank where there was no sample."""
        known = self._known.get(bench)
        if known is not None and known[1] == width and known[2] == blocks and known[0] == values:
            return known[3]
        drawn = sparkline(values, width, blocks)
        self._known[bench] = (values, width, blocks, drawn)
        return drawn


def sparkline(values: Sequence[float], width: int, blocks: str) -> str:
    """Values as blocks from lowest to highest; a blank for what is not a number."""
    shown = list(values)[-width:] if width > 0 else []
    usable = [v for v in shown if math.isfinite(v)]
    if not usable:
        return " " * max(0, width)
    low, high = min(usable), max(usable)
    middle = (low + high) / 2
    extent = max(high - low, abs(middle) * FLAT_BELOW)
    base = middle - extent / 2
    last = len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return blocks[round((value - base) / extent * last)] if extent > 0 else blocks[last // 2]

    return "".join(map(block, shown)).rjust(width)


class Table:
    """Draws the rows. Units and column widths are kept once chosen, so that nothing jumps."""

    def __init__(self) -> None:
        self._unit: Unit | None = None
        self._widths: dict[str, int] = {}
        self._width_key: object = None
        self._top = 0
        self._told_apart: tuple[tuple[str, ...], int] = ((), 0)
        self._head: tuple[tuple[str, ...], int, int] = ((), 0, 0)
        self._shown: tuple[RowView, ...] = ()
        self._trends = Sparkline()
        self._strips: dict[int, tuple[list[text.Run], Strip]] = {}

    @property
    def unit(self) -> Unit:
        """The unit of all times in the table."""
        return self._unit or US

    def row_at(self, index: int) -> RowView | None:
        """The row on the table's line `index`, counted below the heading."""
        return self._shown[index] if 0 <= index < len(self._shown) else None

    def lines(self, scene: Scene, width: int, height: int, *, headed: bool = True) -> list[Strip]:
        """The heading (where wanted) and as many rows as fit, the selected one among them."""
        look, snapshot = scene.look, scene.snapshot
        rows = scene.view.visible(snapshot)
        body = height - headed
        first = self._scroll(rows, scene, body)
        shown = self._shown = rows[first : first + max(0, body)]
        self._choose_unit(rows)
        columns, name_width = self._arrange(scene, rows, shown, width)
        out = [self._heading(scene, rows, shown, columns, name_width, width)] if headed else []
        chosen = scene.row
        head = self._head_of_names(scene, rows, name_width)
        for index, row in enumerate(shown):
            is_chosen = chosen is not None and row.bench == chosen.bench
            runs = _name_runs(scene, row, name_width, head, is_chosen=is_chosen)
            is_failed = row.state is RowState.FAILED
            for column in _figures_before(columns, row) if is_failed else columns:
                runs.append(self._cell_run(scene, row, column, index, is_chosen=is_chosen))
            if is_failed:
                taken = sum(text.width_of(words) for words, _ in runs)
                runs.append(_failure(scene, row, width - taken))
            out.append(self._strip(row.bench, runs, width, look))
        if not rows and body > 0:
            out.append(text.strip([(_empty_text(scene), look.dim)], width, look.base))
        return text.exactly(out, width, height, look.base)

    def _scroll(self, rows: Sequence[RowView], scene: Scene, body: int) -> int:
        """The first row to show: moved only as far as the selected one needs."""
        chosen = scene.row
        index = next((i for i, r in enumerate(rows) if chosen and r.bench == chosen.bench), 0)
        top = min(max(self._top, index - body + 1), index)
        self._top = max(0, min(top, len(rows) - body))
        return self._top

    def _choose_unit(self, rows: Sequence[RowView]) -> None:
        """One unit for all times; changed only when a figure no longer reads well in it."""
        medians = [m for r in rows if (m := r.rolling.median_s) and math.isfinite(m)]
        if not medians:
            return
        low, high = min(medians), max(medians)
        kept = self._unit
        if kept and low >= 0.05 * kept.seconds and high <= _WIDEST_VALUE * kept.seconds:
            return
        unit = time_unit(medians)
        while high > _WIDEST_VALUE * unit.seconds and unit is not S:
            unit = _UNITS[_UNITS.index(unit) + 1]
        self._unit = unit

    def _arrange(
        self, scene: Scene, rows: Sequence[RowView], shown: Sequence[RowView], width: int
    ) -> tuple[list[Filled], int]:
        """The columns that fit, filled and with their widths, and the name's width."""
        columns = self._columns(scene, rows)
        key = (self.unit, scene.view.columns, width)
        if key != self._width_key:
            self._width_key, self._widths = key, {}
        longest = max((_name_cells(r, scene) for r in rows), default=0)
        wanted = min(max(longest, NAME_LEAST if width < 80 else HEADING_LEAST), NAME_MOST)
        room = width - 3  # cursor, swatch and a blank
        told_apart = self._telling_width(scene, rows, wanted)
        least = max(NAME_LEAST, min(wanted, max(HEADING_LEAST, told_apart), room // 4))
        if told_apart > least:
            least = min(told_apart, room // 2)
        taken: list[Filled] = []
        left = room - least - 1
        for column in sorted(columns, key=lambda c: c.rank):
            cells = [column.cell(row) for row in shown]
            cell_width = self._width_of(column, cells, wide=width >= 110)
            if cell_width + 1 > left:
                if column.key not in ("median", "state"):
                    break
                cell_width = left - 1
            if cell_width > 0:
                taken.append(Filled(column, cell_width, cells))
                left -= cell_width + 1
        name = min(max(wanted, HEADING_MOST), least + max(0, left))
        left -= name - least
        order = {column.key: index for index, column in enumerate(columns)}
        taken.sort(key=lambda filled: order[filled.column.key])
        for filled in taken:
            if filled.column.key == "trend":  # it takes what nobody else wants
                filled.width += min(max(0, left), TREND_MOST - filled.width)
        return taken, max(1, name)

    def _telling_width(self, scene: Scene, rows: Sequence[RowView], wanted: int) -> int:
        """The fewest cells at which no two cut names look alike."""
        names = _top_names(scene, rows)
        if self._told_apart[0] != names:
            ellipsis = scene.look.glyphs.ellipsis
            low, high = NAME_LEAST, max(NAME_LEAST, wanted)
            while low < high:  # what is told apart in some width is so in a larger one
                width = (low + high) // 2
                if _best_cut(names, width, ellipsis).is_clear:
                    high = width
                else:
                    low = width + 1
            self._told_apart = (names, low)
        return self._told_apart[1]

    def _head_of_names(self, scene: Scene, rows: Sequence[RowView], width: int) -> int:
        """Where names are cut: where they agree."""
        names = _top_names(scene, rows)
        if self._head[:2] != (names, width):
            self._head = (names, width, _best_cut(names, width, scene.look.glyphs.ellipsis).head)
        return self._head[2]

    def _width_of(self, column: Column, cells: Sequence[Cell], *, wide: bool) -> int:
        if column.key == "trend":
            return TREND_LEAST
        widest = max((text.width_of(cell.text) for cell in cells), default=0)
        heading = 9 if column.key == "ratio" else text.width_of(column.heading)
        width = max(heading, widest, self._widths.get(column.key, 0))
        if column.key == "state":
            width = min(max(width, 8), 24 if wide else 13)
        self._widths[column.key] = width
        return width

    def _columns(self, scene: Scene, rows: Sequence[RowView]) -> list[Column]:
        """The columns of the chosen set that have something to show, in the table's order."""
        look, shown = scene.look, scene.view.columns
        decimals = _decimals(rows, self.unit)
        columns = []
        for column in COLUMNS:
            lacks = column.may_lack and all(column.pick(r, _stats(r, scene)) is None for r in rows)
            if shown in column.live and not lacks:
                is_ratio = column.kind is Kind.RATIO
                heading = _ratio_heading(rows, look) if is_ratio else ""
                heading = heading or column.heading_in(self.unit.name)
                cell = self._cell_of(column, scene, rows, decimals)
                is_left = column.kind is Kind.STATE
                columns.append(Column(column.key, column.live[shown], heading, cell, is_left))
        return columns

    def _cell_of(
        self, column: columns.Column, scene: Scene, rows: Sequence[RowView], decimals: int
    ) -> Callable[[RowView], Cell]:
        """What a column shows of a row."""
        look, unit = scene.look, self.unit

        def number(row: RowView) -> Cell:
            value, kept = column.pick(row, _stats(row, scene)), 3
            if column.kind is Kind.TIME:
                kept = max(decimals, _own_decimals(row, unit))
            style = look.dim if column.key == "n" else look.base
            return Cell(column.text(value, unit, kept, look.glyphs.dash), style)

        return {
            Kind.TREND: lambda _: Cell("", look.base),
            Kind.RATE: lambda row: _rate(row, column.pick(row, _stats(row, scene)), look),
            Kind.RATIO: lambda row: ratio_cell(row, rows, look),
            Kind.STATE: lambda row: state_cell(row, look),
        }.get(column.kind, number)

    def _heading(
        self,
        scene: Scene,
        rows: Sequence[RowView],
        shown: Sequence[RowView],
        columns: Sequence[Filled],
        name_width: int,
        width: int,
    ) -> Strip:
        look = scene.look
        name = _name_heading(scene, rows, shown, name_width)
        runs: list[text.Run] = [(f"   {text.left(name, name_width)}", look.dim)]
        for filled in columns:
            column, cells = filled.column, filled.width
            heading = text.clip(column.heading, cells, look.glyphs.ellipsis)
            fitted = text.left(heading, cells) if column.is_left else text.right(heading, cells)
            runs.append((f" {fitted}", look.dim))
        return text.strip(runs, width, look.base)

    def _strip(self, bench: int, runs: list[text.Run], width: int, look: Look) -> Strip:
        """The row's strip; the same one as long as nothing in it changes."""
        known = self._strips.get(bench)
        if known is not None and known[0] == runs and known[1].cell_length == width:
            return known[1]
        strip = text.strip(runs, width, look.base)
        self._strips[bench] = (runs, strip)
        return strip

    def _cell_run(
        self, scene: Scene, row: RowView, filled: Filled, index: int, *, is_chosen: bool
    ) -> text.Run:
        look, width = scene.look, filled.width
        if filled.column.key == "trend":
            drawn = self._trends.text(row.bench, row.trend, width, look.glyphs.blocks)
            return (f" {drawn}", look.of_series(row.name))
        cell = filled.cells[index]
        words = text.clip(cell.text, width, look.glyphs.ellipsis)
        fitted = text.left(words, width) if filled.column.is_left else text.right(words, width)
        return (f" {fitted}", look.strong if is_chosen and cell.style is look.base else cell.style)


def _figures_before(columns: Sequence[Filled], row: RowView) -> list[Filled]:
    """The first figures of a row that failed, where it has any: its error takes the rest."""
    of_times = takewhile(lambda filled: filled.column.key in ("n", "median", "std"), columns)
    return list(of_times) if row.whole.n else []


def _failure(scene: Scene, row: RowView, room: int) -> text.Run:
    """What went wrong, in the place of the other figures."""
    look = scene.look
    error = look.text(row.error or row.detail or "see the traceback")
    words = f" {look.glyphs.bad} failed: {error}"
    return (text.clip(words, room, look.glyphs.ellipsis), look.bad)


def _stats(row: RowView, scene: Scene) -> Stats:
    return row.whole if scene.view.columns == WHOLE else row.rolling


def _decimals(rows: Sequence[RowView], unit: Unit) -> int:
    """As many decimals as the largest time leaves room for: the same for the whole column."""
    largest = max((m / unit.seconds for r in rows if (m := r.rolling.median_s)), default=0.0)
    if not math.isfinite(largest) or largest < 1000:
        return 3
    return 2 if largest < 10_000 else 1 if largest < 100_000 else 0


def _own_decimals(row: RowView, unit: Unit) -> int:
    """As many as give a row beside much slower ones its three digits."""
    median = row.rolling.median_s or 0.0
    if not math.isfinite(median) or median <= 0:
        return 0
    return min(6, max(0, 2 - math.floor(math.log10(median / unit.seconds))))


def _rate(row: RowView, value: float | None, look: Look) -> Cell:
    return _number(value if has_valid_time(row) else None, look)


def _number(value: float | None, look: Look) -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(look.glyphs.dash, look.dim)
    return Cell(significant(value, 3) if value < 1000 else f"{value:,.0f}", look.base)


def _name_cells(row: RowView, scene: Scene) -> int:
    return text.width_of(scene.name(row)) + len(_branch(row, scene))


def _branch(row: RowView, scene: Scene) -> str:
    """What stands before a phase's name: deeper for a phase within a phase."""
    if row.parent is None:
        return ""
    branch = scene.look.glyphs.branch
    return " " * len(branch) * (depth_of(row, scene.snapshot.rows) - 1) + branch


def _top_names(scene: Scene, rows: Sequence[RowView]) -> tuple[str, ...]:
    return tuple(scene.look.plain_name(row.name) for row in rows if row.parent is None)


def _best_cut(names: Sequence[str], width: int, ellipsis: str) -> Cut:
    return best_cut(
        names,
        max(0, width - text.width_of(ellipsis)),
        lambda name, head: text.clip_name(name, width, ellipsis, head),
    )


def _name_runs(
    scene: Scene, row: RowView, width: int, head: int, *, is_chosen: bool
) -> list[text.Run]:
    look = scene.look
    glyphs = look.glyphs
    branch = _branch(row, scene)
    room = max(0, width - len(branch))
    shown = scene.name(row)
    if row.parent is None:
        name = text.clip_name(shown, room, glyphs.ellipsis, head)
    else:
        name = text.clip_middle(shown, room, glyphs.ellipsis)
    style = look.strong if is_chosen else look.base
    if row.state is RowState.OFF:
        style = look.dim
    return [
        (glyphs.cursor if is_chosen else " ", look.strong),
        (glyphs.swatch, look.of_series(row.name)),
        (" " + branch, look.dim),
        (text.left(name, room), style),
    ]


def _name_heading(
    scene: Scene, rows: Sequence[RowView], shown: Sequence[RowView], width: int
) -> str:
    look, view = scene.look, scene.view
    parts = ["benchmark" if width >= 9 else "name"]
    if len(shown) < len(rows) and shown:
        first = rows.index(shown[0]) + 1
        parts.append(f"{first}-{first + len(shown) - 1}/{len(rows)}")
    if view.pattern:
        parts.append(f"/{look.text(view.pattern)}")
    elif scene.store.steps():  # of a sweep, whose panel shows them all
        parts.append("last visit")
    else:
        words = {
            WINDOW: f"last {scene.snapshot.window:,}",
            WHOLE: "whole run",
            TAILS: f"last {scene.snapshot.window:,}",
        }
        parts.append(words[view.columns])
    while len(parts) > 1 and len(" ".join(parts)) > width:
        parts.pop()
    return text.clip(" ".join(parts), width, look.glyphs.ellipsis)


def _ratio_heading(rows: Sequence[RowView], look: Look) -> str:
    names = {r.baseline_name for r in rows if r.baseline_name}
    if len(names) != 1:
        return "vs base"
    return f"vs {text.clip_middle(look.plain_name(names.pop()), 11, look.glyphs.ellipsis)}"


def ratio_cell(row: RowView, rows: Sequence[RowView], look: Look) -> Cell:
    """The ratio of times to the baseline with half its interval, behind the answer's sign."""
    if invalid_reason(row, rows) and (row.is_baseline or row.ratio is not None):
        return Cell("invalid", look.warn)
    if row.is_baseline:
        return Cell("base", look.dim)
    ratio = row.ratio
    if missing_baseline(row, rows):
        return Cell("base failed", look.warn)
    if ratio is None or ratio.ratio is None or not math.isfinite(ratio.ratio):
        return Cell("", look.base)
    sign, style = answer_sign(ratio, look)
    return Cell(f"{sign} {times(ratio.ratio)}{interval_text(ratio, look.glyphs)}", style)


def interval_text(ratio: Ratio, glyphs: Glyphs) -> str:
    """Half the interval's width in percent of the ratio; empty without an interval."""
    if ratio.low is None or ratio.high is None or not ratio.ratio:
        return ""
    half = (ratio.high - ratio.low) / 2 / ratio.ratio * 100
    if not math.isfinite(half):
        return ""
    if half >= 99.95:
        words = ">99%"
    elif half >= 0.095:
        words = f"{half:.1f}%"
    else:
        # Two decimals in the same width: a paired interval is often below 0.1 %.
        words = f"{max(half, 0.01):.2f}%".removeprefix("0")
    return f" {glyphs.plus_minus}{words}"


def answer_sign(ratio: Ratio, look: Look) -> tuple[str, Style]:
    """The answer as a sign and a style."""
    glyphs = look.glyphs
    return {
        Answer.FASTER: (glyphs.faster, look.good),
        Answer.SLOWER: (glyphs.slower, look.bad),
        Answer.SAME: (glyphs.same, look.base),
        Answer.MOVING: (glyphs.moving, look.info),
        Answer.UNDECIDED: (glyphs.unsure, look.dim),
    }[ratio.answer]


def state_cell(row: RowView, look: Look) -> Cell:
    """The row's state in a sign and a word, its badges behind it."""
    sign, word, style = _state(row, look)
    badges = "".join(f" {look.text(b)}" for b in dict.fromkeys(row.badges))
    return Cell(f"{sign} {word}{badges}".strip(), style if not row.badges else look.warn)


def _state(row: RowView, look: Look) -> tuple[str, str, Style]:
    glyphs = look.glyphs
    detail = f" {look.text(row.detail)}" if row.detail else ""
    if row.state is RowState.FAILED:
        return glyphs.bad, "failed", look.bad
    if row.state is RowState.STUCK:
        return glyphs.alert, f"stuck{detail}", look.bad
    if row.state is RowState.OFF:
        return glyphs.dash, f"off{detail}", look.dim
    if row.state is not RowState.RUNNING:
        return glyphs.wait, f"{row.state.value}{detail}", look.info
    return _running(row, look)


def _running(row: RowView, look: Look) -> tuple[str, str, Style]:
    glyphs, word = look.glyphs, row.word
    if word is StateWord.DRIFTING:
        change = row.drift.change
        rising = change is None or change >= 0
        size = "" if change is None or not math.isfinite(change) else f" {change * 100:+.1f}%"
        return glyphs.up if rising else glyphs.down, f"drifting{size}", look.warn
    if word is StateWord.THROTTLED:
        reason = max(row.throttled, key=lambda r: r[1], default=("", 0.0))[0]
        return glyphs.alert, f"throttled {look.text(reason)}".rstrip(), look.bad
    if word is StateWord.UNDECIDED:
        words = undecided_words(row)
        # The words of a known limit hold the question mark already.
        return glyphs.unsure if words == word.value else "", words, look.dim
    return {
        StateWord.SETTLED: (glyphs.good, state_words(row, glyphs.plus_minus), look.good),
        StateWord.STEADY: (glyphs.steady, "steady", look.good),
        StateWord.WARMING: (glyphs.wait, "warming", look.info),
    }.get(word, (glyphs.dot, "running", look.base))


def _empty_text(scene: Scene) -> str:
    """Why there is no row."""
    snapshot = scene.snapshot
    if scene.view.pattern:
        return f"  no benchmark's name holds {scene.look.text(scene.view.pattern)!r}"
    detail = scene.look.text(snapshot.phase_detail)
    return f"  {snapshot.phase}{scene.look.glyphs.ellipsis} {detail}".rstrip()

"""What stands in the table's name column: parameters under their group's name, or whole names."""

from collections.abc import Sequence
from typing import NamedTuple

from usv_tui.report import parameters
from usv_tui.report.wording.rows import Cut, best_cut, depth_of
from usv_tui.session.snapshot import RowView
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene

_GAP = "  "


class Label(NamedTuple):
    """A row in the name column."""

    text: str
    title: str = ""
    """The heading that it stands under; rows of one heading are neighbours."""


class Labels:
    """Makes the labels of rows; the same rows give the same ones without work."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._labels: dict[int, Label] = {}
        self._told_apart: tuple[tuple[str, ...], int] = ((), 0)
        self._head: tuple[tuple[str, ...], int, int] = ((), 0, 0)
        self.names: tuple[str, ...] = ()
        """The labels of rows that are no phases."""

    def look_at(self, scene: Scene, rows: Sequence[RowView], *, is_grouped: bool) -> None:
        """Take the rows in their order."""
        seen = (scene.look, is_grouped, *((row.bench, row.name) for row in rows))
        if seen != self._seen:
            self._seen = seen
            self._labels = _labels(scene, rows, is_grouped=is_grouped)
            tops = (row.bench for row in rows if row.parent is None)
            self.names = tuple(self._labels[bench].text for bench in tops)

    def of(self, row: RowView) -> Label:
        """A row's label."""
        return self._labels[row.bench]

    def titles(self, rows: Sequence[RowView]) -> int:
        """How many headings stand above these rows."""
        found, last = 0, ""
        for row in rows:
            title = self._labels[row.bench].title
            found += bool(title) and title != last
            last = title
        return found

    def telling_width(self, wanted: int, ellipsis: str) -> int:
        """The fewest cells at which no two cut labels look alike."""
        if self._told_apart[0] != self.names:
            low, high = 6, max(6, wanted)
            while low < high:  # what is told apart in some width is so in a larger one
                width = (low + high) // 2
                if _best_cut(self.names, width, ellipsis).is_clear:
                    high = width
                else:
                    low = width + 1
            self._told_apart = (self.names, low)
        return self._told_apart[1]

    def head(self, width: int, ellipsis: str) -> int:
        """Where labels are cut: where they agree."""
        if self._head[:2] != (self.names, width):
            self._head = (self.names, width, _best_cut(self.names, width, ellipsis).head)
        return self._head[2]


def branch(row: RowView, scene: Scene) -> str:
    """What stands before a phase's name: deeper for a phase within a phase."""
    if row.parent is None:
        return ""
    sign = scene.look.glyphs.branch
    return " " * len(sign) * (depth_of(row, scene.snapshot.rows) - 1) + sign


def _labels(scene: Scene, rows: Sequence[RowView], *, is_grouped: bool) -> dict[int, Label]:
    found = {row.bench: Label(scene.name(row)) for row in rows}
    if is_grouped:
        for run in _runs(rows):
            found.update(_grouped(scene.look, run))
    return found


def _runs(rows: Sequence[RowView]) -> list[list[RowView]]:
    """Neighbours of one name and the same parameters, phases left out, two and more of them."""
    runs: list[list[RowView]] = []
    last: object = None
    for row in rows:
        if row.parent is not None:
            continue
        named = parameters.split(row.name) if row.control_of is None else None
        key = None if named is None else (named.base, named.keys)
        if key is not None and key == last:
            runs[-1].append(row)
        else:
            runs.append([row])
        last = key
    return [run for run in runs if len(run) > 1]


def _grouped(look: Look, run: Sequence[RowView]) -> dict[int, Label]:
    """The rows of a group by their parameters, one column each, under the common name."""
    named = [n for row in run if (n := parameters.split(row.name)) is not None]
    base, keys, _ = named[0]
    title = f"{look.plain_name(base)}[{look.plain_name(', '.join(keys))}]"
    columns: list[list[str]] = []
    for values in zip(*(n.values for n in named), strict=True):
        shown = [look.plain_name(value) for value in values]
        width = max(map(text.width_of, shown))
        is_number = all(parameters.number(value) is not None for value in values)
        fit = text.right if is_number else text.left
        columns.append([fit(cell, width) for cell in shown])
    lines = [" " + _GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return {row.bench: Label(line, title) for row, line in zip(run, lines, strict=True)}


def _best_cut(names: Sequence[str], width: int, ellipsis: str) -> Cut:
    return best_cut(
        names,
        max(0, width - text.width_of(ellipsis)),
        lambda name, head: text.clip_name(name, width, ellipsis, head),
    )

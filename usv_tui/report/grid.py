"""Cells to aligned text or to a Markdown table. Knows nothing of what is in the cells."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

from usv_tui import plain
from usv_tui.report.wording.rows import best_cut
from usv_tui.units import DASH

_GAP = "  "
_MIN_CELL = 8
_LESSER = 4
"""Columns with this `drop` or more are worth less than a whole text cell."""
_MOST = 500
"""Characters of one cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, its cells, and how it gives way when there is no room."""

    title: str
    cells: Sequence[str]
    is_number: bool = False
    """Right-aligned."""
    drop: int = 0
    """Columns with a higher number are left out first; 0 stays."""
    least: int = 0
    """Cells may be cut to this width before any column is left out; 0: they may not."""
    wish: int = 0
    """Lesser columns are left out before cells are cut below this."""
    wraps: bool = False
    """Cells that are too long go on in further lines instead of being cut."""
    is_code: bool = False
    """Names: set in code spans in Markdown, so that nothing in them is markup."""

    def __post_init__(self) -> None:
        # A line break or an escape sequence in somebody's name or error stays in its cell.
        object.__setattr__(self, "cells", [plain.line(cell, _MOST) for cell in self.cells])

    @property
    def is_empty(self) -> bool:
        """True when no cell has anything in it."""
        return all(cell in ("", DASH) for cell in self.cells)

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(len(self.title), *(len(cell) for cell in self.cells), 0)


def text(columns: Sequence[Column], width: int | None = None) -> str:
    """Aligned columns under a rule; within `width`, columns go and long cells are cut."""
    shown = list(columns)
    if width is not None:
        for column in sorted((c for c in columns if c.drop), key=lambda c: -c.drop):
            if _total(shown, is_wished=column.drop >= _LESSER) <= width:
                break
            shown.remove(column)
    widths = [column.width for column in shown]
    if width is not None:
        _cut(shown, widths, width)
    fitted = [_fit(column, w) for column, w in zip(shown, widths, strict=True)]
    lines = [_line([_clip(c.title, w) for c, w in zip(shown, widths, strict=True)], shown, widths)]
    lines.append("-" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    for cells in zip(*fitted, strict=True):
        parts = [cell.split("\n") for cell in cells]
        lines += [_line(part, shown, widths) for part in zip_longest(*parts, fillvalue="")]
    return "\n".join(lines)


def _total(columns: Sequence[Column], *, is_wished: bool) -> int:
    """The room that the columns need when all that may be cut is, to its least or its wish."""
    least = [max(c.least, c.wish) if is_wished else c.least for c in columns]
    needed = sum(min(c.width, w) if w else c.width for c, w in zip(columns, least, strict=True))
    return needed + len(_GAP) * (len(columns) - 1)


def _cut(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Narrow text columns from the last one on, to their least width and then to a few letters."""
    texts = [i for i in reversed(range(len(columns))) if not columns[i].is_number]
    for floors in ([c.least or c.width for c in columns], [_MIN_CELL] * len(columns)):
        for i in texts:
            excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
            widths[i] = max(min(widths[i], floors[i]), widths[i] - max(0, excess))


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(w) if c.is_number else cell.ljust(w)
        for cell, c, w in zip(cells, columns, widths, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _fit(column: Column, width: int) -> list[str]:
    """Cells that are too long are cut: sentences at their end, names where they agree."""
    if column.is_number:
        return list(column.cells)
    if column.wraps:
        return ["\n".join(wrap(cell, width)) for cell in column.cells]
    if not column.is_code:
        return [_clip(cell, width) for cell in column.cells]
    head = best_cut(column.cells, max(0, width - 1), lambda c, h: cut_name(c, width, h)).head
    return [cut_name(cell, width, head) for cell in column.cells]


def _clip(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}~"


def cut_name(name: str, width: int, head: int) -> str:
    """At most `width` characters: the first `head` (behind its indentation) and the end."""
    if len(name) <= width:
        return name
    indent = len(name) - len(name.lstrip())
    kept = min(indent + head, width - 1)
    return f"{name[:kept]}~{name[len(name) - (width - 1 - kept) :]}"


def markdown(columns: Sequence[Column]) -> str:
    """A Markdown table; pipes are escaped and names are code."""
    rows = [[c.title for c in columns]]
    rows.append(["---:" if c.is_number else ":---" for c in columns])
    rows += [
        [code(cell) if c.is_code else escape(cell) for cell, c in zip(cells, columns, strict=True)]
        for cells in zip(*(c.cells for c in columns), strict=True)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def code(cell: str) -> str:
    """A code span for a table cell; indentation stays in front of it."""
    inner = cell.strip()
    if not inner:
        return ""
    indent = "&nbsp;" * (len(cell) - len(cell.lstrip()))
    if "|" in inner and "\\" in inner:
        return indent + escape(inner)  # a pipe behind a backslash has no spelling in a code span
    runs = [len(run) for run in re.findall("`+", inner)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if runs else ""
    return f"{indent}{fence}{pad}{inner.replace('|', chr(92) + '|')}{pad}{fence}"


def escape(cell: str) -> str:
    """Text without markup in it."""
    for mark in ("\\", "|", "*", "_", "`", "<", "[", "~"):
        cell = cell.replace(mark, f"\\{mark}")
    return cell.replace("&", "&amp;")

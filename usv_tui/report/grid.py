"""Cells to aligned text or to a Markdown table. Knows nothing of what is in the cells."""

from collections.abc import Sequence
from dataclasses import dataclass

from usv_tui.units import DASH

_GAP = "  "
_MIN_CELL = 8
_CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], " ")


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
    is_code: bool = False
    """Names: set in code spans in Markdown, so that nothing in them is markup."""

    def __post_init__(self) -> None:
        # A line break or an escape sequence in somebody's name or error stays in its cell.
        object.__setattr__(self, "cells", [cell.translate(_CONTROLS) for cell in self.cells])

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
            if _total(shown) <= width:
                break
            shown.remove(column)
    widths = [column.width for column in shown]
    if width is not None:
        _cut(shown, widths, width)
    lines = [_line([c.title for c in shown], shown, widths)]
    lines.append("-" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    lines += [_line(cells, shown, widths) for cells in zip(*(c.cells for c in shown), strict=True)]
    return "\n".join(lines)


def _total(columns: Sequence[Column]) -> int:
    """The room that the columns need when all that may be cut is."""
    needed = sum(min(c.width, c.least) if c.least else c.width for c in columns)
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
        cell.rjust(w) if c.is_number else _fit(cell, w, in_middle=c.is_code).ljust(w)
        for cell, c, w in zip(cells, columns, widths, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _fit(cell: str, width: int, *, in_middle: bool) -> str:
    """A cell that is too long is cut; names in their middle, since both ends tell them apart."""
    if len(cell) <= width:
        return cell
    tail = (width - 1) // 2 if in_middle else 0
    return f"{cell[: width - 1 - tail]}~{cell[len(cell) - tail :]}"


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
    fence = "``" if "`" in inner else "`"
    pad = " " if "`" in inner else ""
    return f"{indent}{fence}{pad}{inner.replace('|', chr(92) + '|')}{pad}{fence}"


def escape(cell: str) -> str:
    """Text without markup in it."""
    for mark in ("\\", "|", "*", "_", "`", "<", "["):
        cell = cell.replace(mark, f"\\{mark}")
    return cell

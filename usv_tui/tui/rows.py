"""Which rows are shown, and in which order: the filter's words, and a sort that does not jump."""

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from usv_tui.model import RowState
from usv_tui.report.columns import COLUMNS, WHOLE, Column, Kind
from usv_tui.session.snapshot import RowView

_CLEARLY = 0.03
"""Neighbours that stand in the wrong order by less keep their places."""
_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Every word must be found in a name, as a regular expression; `!word` must not be."""
    words = [(word[1:], False) if word[:1] == "!" else (word, True) for word in pattern.split()]
    tests = [(_expression(word), wanted) for word, wanted in words if word]

    def matches(name: str) -> bool:
        return all((test.search(name) is not None) is wanted for test, wanted in tests)

    return matches


def _expression(word: str) -> re.Pattern[str]:
    """What is no regular expression, perhaps not yet, is looked for as it is."""
    try:
        return re.compile(word, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return re.compile(re.escape(word), re.IGNORECASE)


def sortable(columns: str) -> list[Column]:
    """The columns of a set of the live table that rows can be sorted by."""
    return [c for c in COLUMNS if columns in c.live and c.kind is not Kind.TREND]


class Order:
    """The rows' order by a column; kept until neighbours stand clearly wrong."""

    def __init__(self) -> None:
        self._key: object = None
        self._ranks: dict[int, int] = {}

    def sorted(
        self, rows: Sequence[RowView], column: str, columns: str, *, is_reversed: bool
    ) -> tuple[RowView, ...]:
        """Rows by a column (`name` or a column's key), those without a value last.

        Args:
            rows: all rows, phases behind their owners: there they stay.
            column: what to sort by.
            columns: the set of columns that is shown.
            is_reversed: the largest first.
        """
        tops = [row for row in rows if row.parent is None]
        values = {row.bench: _value(row, column, columns) for row in tops}
        key = (column, columns, is_reversed, frozenset(values))
        if key != self._key or self._is_wrong(tops, values, is_reversed=is_reversed):
            self._key = key
            told = sorted(
                (row for row in tops if values[row.bench] is not None),
                key=lambda row: values[row.bench],
                reverse=is_reversed,
            )
            untold = [row for row in tops if values[row.bench] is None]
            self._ranks = {row.bench: rank for rank, row in enumerate([*told, *untold])}
        return _with_phases(rows, sorted(tops, key=lambda row: self._ranks[row.bench]))

    def _is_wrong(
        self, tops: Sequence[RowView], values: dict[int, Any], *, is_reversed: bool
    ) -> bool:
        ordered = [values[row.bench] for row in sorted(tops, key=lambda r: self._ranks[r.bench])]
        for one, other in pairwise(ordered):
            if one is None and other is not None:
                return True
            if isinstance(one, float) and isinstance(other, float):
                first, then = (other, one) if is_reversed else (one, other)
                if first - then > _CLEARLY * abs(then):
                    return True
        return False


def _value(row: RowView, column: str, columns: str) -> Any:
    if column == "name":
        return tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold())
            for part in _DIGITS.split(row.name[:200])
            if part
        )
    found = next((c for c in COLUMNS if c.key == column), None)
    if found is None:
        return None
    if found.kind is Kind.STATE:
        return str(row.word or row.state) if row.state is RowState.RUNNING else row.state.value
    if found.kind is Kind.RATIO:
        value = 1.0 if row.is_baseline else row.ratio.ratio if row.ratio is not None else None
    else:
        value = found.pick(row, row.whole if columns == WHOLE else row.rolling)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number and value is not None else None


def _with_phases(rows: Sequence[RowView], tops: Sequence[RowView]) -> tuple[RowView, ...]:
    """Each row with what stands below it."""
    behind: dict[int, list[RowView]] = {}
    owner = 0
    for row in rows:
        if row.parent is None:
            owner = row.bench
        else:
            behind.setdefault(owner, []).append(row)
    return tuple(r for top in tops for r in (top, *behind.get(top.bench, ())))

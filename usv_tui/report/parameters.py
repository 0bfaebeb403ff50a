"""Rows that differ in parameters alone: a group with a name, a table of two of them, its winners.

A row `attention[seq=1024,kind=flash]` says of itself what it is called and what sets it apart; what
the parameters mean is read from the rows: the one that a row and its baseline differ in is the
variant, the others are the size.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from usv_tui import plain
from usv_tui.model import Answer, Ratio
from usv_tui.report.wording.rows import has_valid_time
from usv_tui.session.snapshot import RowView
from usv_tui.stats.rolling import Stats

MOST_SIZES = 12
"""Of more, the line of winners counts the rest."""
_SURE = 3.0
"""Medians so many joint standard errors apart differ, where there is no ratio of them."""
_PIECE = re.compile(r",(?=[^\W\d]\w*=)")
_PAIR = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)
Values = tuple[str, ...]


class Named(NamedTuple):
    """A row's name in parts."""

    base: str
    keys: Values
    values: Values


@lru_cache(maxsize=4096)
def split(name: str) -> Named | None:
    """`f[n=1,k=x]` in parts; None for a name without parameters."""
    base, bracket, inside = name.partition("[")
    if not base or not bracket or not inside.endswith("]"):
        return None
    found = [_PAIR.fullmatch(piece) for piece in _PIECE.split(inside[:-1])]
    pairs = [match.groups() for match in found if match is not None]
    if len(pairs) < len(found):
        return None
    return Named(base, tuple(key for key, _ in pairs), tuple(value for _, value in pairs))


def number(value: str) -> float | None:
    """A parameter's value as a number; None for what is none."""
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one name and the same parameters, by their values."""

    base: str
    keys: Values
    rows: dict[Values, RowView]
    variant: str = ""
    """The parameter to compare by; empty where every row is a size of its own."""

    @property
    def sizes(self) -> Values:
        """The other parameters."""
        return tuple(key for key in self.keys if key != self.variant)

    def values_of(self, key: str) -> Values:
        """Its values, each once: numbers ascending, others as they come."""
        at = self.keys.index(key)
        return _ordered(values[at] for values in self.rows)

    def picked(self, values: Values, keys: Values) -> Values:
        """The values of some of the keys."""
        return tuple(values[self.keys.index(key)] for key in keys)

    def by_size(self) -> dict[Values, dict[str, RowView]]:
        """Rows by the values of their size, then by that of the variant."""
        found: dict[Values, dict[str, RowView]] = {}
        for values, row in self.rows.items():
            variant = self.picked(values, (self.variant,))[0] if self.variant else ""
            found.setdefault(self.picked(values, self.sizes), {})[variant] = row
        order = {key: index for index, key in enumerate(_sorted_tuples(found))}
        return dict(sorted(found.items(), key=lambda item: order[item[0]]))


def _ordered(values: Iterable[str]) -> Values:
    once = list(dict.fromkeys(values))
    numbers = [number(value) for value in once]
    if any(n is None for n in numbers):
        return tuple(once)
    return tuple(sorted(once, key=lambda value: number(value) or 0.0))


def _sorted_tuples(found: Iterable[Values]) -> list[Values]:
    """In the order of the values of their first part, then of the second, and so on."""
    every = list(found)
    ranks = [
        {value: rank for rank, value in enumerate(_ordered(column))}
        for column in zip(*every, strict=True)
    ]
    return sorted(every, key=lambda values: [r[v] for r, v in zip(ranks, values, strict=True)])


def groups(rows: Sequence[RowView]) -> list[Group]:
    """The groups of two and more rows, in the order of their first rows."""
    found: dict[tuple[str, Values], dict[Values, RowView]] = {}
    for row in rows:
        named = split(row.name) if row.parent is None and row.control_of is None else None
        if named is not None:
            found.setdefault((named.base, named.keys), {})[named.values] = row
    return [
        Group(base, keys, members, _variant(keys, members))
        for (base, keys), members in found.items()
        if len(members) > 1
    ]


def _variant(keys: Values, members: dict[Values, RowView]) -> str:
    """What rows and their baselines differ in; else the first parameter that is no number."""
    differing: dict[str, int] = {}
    for values, row in members.items():
        base = split(row.baseline_name) if row.baseline_name else None
        if base is not None and base.keys == keys:
            for key, own, other in zip(keys, values, base.values, strict=True):
                differing[key] = differing.get(key, 0) + (own != other)
    told = [key for key in keys if differing.get(key)]
    words = [
        key
        for index, key in enumerate(keys)
        if any(number(values[index]) is None for values in members)
    ]
    several = [
        key for index, key in enumerate(keys) if len({values[index] for values in members}) > 1
    ]
    of_words = [key for key in words if key in several]
    if len(told) == 1:
        return told[0]
    return next(iter([k for k in told if k in of_words] or of_words or told[:1]), "")


# -- winners


class Winner(NamedTuple):
    """The fastest of the variants of one size."""

    row: RowView
    variant: str
    is_clear: bool
    """The next one is slower beyond doubt."""
    next: str
    """The variant that comes second."""


def winner(variants: dict[str, RowView], pick: Callable[[RowView], Stats]) -> Winner | None:
    """The fastest of one size; None where fewer than two can be compared.

    Args:
        variants: the rows of one size by their variant.
        pick: which of a row's statistics count.
    """
    ranked = sorted(
        (median, name)
        for name, row in variants.items()
        if has_valid_time(row) and not row.error and (median := pick(row).median_s)
    )
    if len(ranked) < 2:
        return None
    first, second = ranked[0][1], ranked[1][1]
    best, other = variants[first], variants[second]
    return Winner(best, first, _is_faster(best, other, pick), second)


def _is_faster(best: RowView, other: RowView, pick: Callable[[RowView], Stats]) -> bool:
    own, its = best.ratio, other.ratio
    if other.is_baseline and _is_told(own):
        return own is not None and own.answer is Answer.FASTER
    if best.is_baseline and _is_told(its):
        return its is not None and its.answer is Answer.SLOWER
    if _is_told(own) and _is_told(its) and best.baseline_name == other.baseline_name:
        assert own is not None
        assert its is not None
        return own.high is not None and its.low is not None and own.high < its.low
    if best.baseline_name or other.baseline_name:
        return False
    one, two = pick(best), pick(other)
    errors = [(s.std_s or 0.0) ** 2 / s.n for s in (one, two) if s.n > 1]
    gap = (two.median_s or 0.0) - (one.median_s or 0.0)
    return len(errors) == 2 and gap > _SURE * math.sqrt(sum(errors))


def _is_told(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.ratio is not None


def winners(group: Group, pick: Callable[[RowView], Stats]) -> dict[Values, Winner]:
    """The fastest of every size that has two variants and more."""
    if not group.variant:
        return {}
    found = {size: winner(variants, pick) for size, variants in group.by_size().items()}
    return {size: best for size, best in found.items() if best is not None}


def clear_winners(rows: Sequence[RowView], pick: Callable[[RowView], Stats]) -> frozenset[int]:
    """The rows that win their size beyond doubt."""
    return frozenset(
        best.row.bench
        for group in groups(rows)
        for best in winners(group, pick).values()
        if best.is_clear
    )


def fastest_lines(rows: Sequence[RowView], pick: Callable[[RowView], Stats]) -> list[str]:
    """One line for each group with variants: who is the fastest at which size."""
    lines = []
    found = [(group, best) for group in groups(rows) if (best := winners(group, pick))]
    for group, best in found:
        head = f"{plain.name(group.base)} " if len(found) > 1 else ""
        lines.append(head + _fastest(group, best))
    return lines


def _fastest(group: Group, best: dict[Values, Winner]) -> str:
    sizes = list(best)
    who = {b.variant for b in best.values() if b.is_clear}
    everywhere = len(who) == 1 and all(b.is_clear for b in best.values())
    keys = ", ".join(group.sizes)
    if everywhere and (len(sizes) > 1 or not keys):
        where = f" at every {keys} ({_size(sizes[0])} to {_size(sizes[-1])})" if keys else ""
        return plain.line(f"{group.variant}={who.pop()}{where}")
    parts = [f"{_size(size)} {_words(best[size])}".strip() for size in sizes[:MOST_SIZES]]
    more = f", {len(sizes) - MOST_SIZES} more" if len(sizes) > MOST_SIZES else ""
    return plain.line(f"{keys} {', '.join(parts)}{more}".strip(), 1000)


def _size(size: Values) -> str:
    return "x".join(size)


def _words(best: Winner) -> str:
    return best.variant if best.is_clear else f"{best.variant} or {best.next} (not told apart)"

"""The checks over a running session: each row is looked at in its turn, and told of once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from usv_tui.codes import Code
from usv_tui.diagnosis.checks import IS_LASTING, RowEvidence, diagnose
from usv_tui.diagnosis.vocabulary import Finding
from usv_tui.model import WITHDRAWN, Notice

KEEP = 2000
"""Windows of a row that are looked at."""
_FIRST = 60
_FRESH = 200
"""New windows of a row before it is looked at again."""
_ABSENT = 2
_WORSE = 4
"""A count that has grown by this factor is news."""


class Watched(NamedTuple):
    """A row that may be looked at."""

    bench: int
    epoch: tuple[int, int]
    """Another one: what was seen before says nothing of what comes, and is told anew."""
    n: int
    """Windows of the epoch that count."""
    look: Callable[[], RowEvidence]


@dataclass(slots=True)
class _Row:
    epoch: tuple[int, int]
    n: int = 0
    """Windows that there were at the last look."""
    absent: dict[Code, int] = field(default_factory=dict)
    """In how many looks, one after the other, what was told did not show."""
    told: dict[Code, float] = field(default_factory=dict)
    """Codes that were noticed, with their count then."""


class Diagnosis:
    """Ask it now and then; it remembers what was said."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._turn = 0

    def look(self, now_ns: int, rows: Sequence[Watched], most: int = 1) -> list[Notice]:
        """Look at the next rows that have new windows; what was not said of them yet."""
        notices: list[Notice] = []
        for _ in range(len(rows)):
            if most <= 0:
                break
            watched = rows[self._turn % len(rows)]
            self._turn += 1
            row = self._of(watched)
            fresh = watched.n - row.n
            if watched.n < _FIRST or (fresh < _FRESH and row.told) or not fresh:
                continue
            most -= 1
            row.n = watched.n
            found = diagnose(watched.look())
            news = [f for f in found if _is_news(row, f)] + _taken_back(row, found)
            notices += [
                Notice(
                    code=code,
                    at_ns=now_ns,
                    bench=watched.bench,
                    level="info" if WITHDRAWN in evidence else "warn",
                    evidence=evidence,
                    of_epoch=True,
                )
                for code, evidence in news
            ]
        return notices

    def _of(self, watched: Watched) -> _Row:
        row = self._rows.get(watched.bench)
        if row is None or row.epoch != watched.epoch or watched.n < row.n:
            row = self._rows[watched.bench] = _Row(watched.epoch)
        return row


def _is_news(row: _Row, found: Finding) -> bool:
    """The first of its code, or one whose count has grown much since."""
    count = float(found.evidence.get("count", 1))
    before = row.told.get(found.code)
    if before is not None and count < _WORSE * before:
        return False
    row.told[found.code] = count
    return True


def _taken_back(row: _Row, found: list[Finding]) -> list[Finding]:
    """What was said of a row and did not show in two looks at new windows, one after the other."""
    seen = {f.code for f in found}
    gone: list[Finding] = []
    for code in [c for c in row.told if c in IS_LASTING]:
        row.absent[code] = 0 if code in seen else row.absent.get(code, 0) + 1
        if row.absent[code] >= _ABSENT:
            del row.told[code], row.absent[code]
            gone.append(Finding(code, {WITHDRAWN: True}))
    return gone

"""The checks over a running session: a fold over its records that gives a notice once.

Bounded in memory and in time: the last windows of each row, and one row a look.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from usv_tui.diagnosis.checks import IS_LASTING, IntArray, RowEvidence, diagnose
from usv_tui.diagnosis.growth import LOADED
from usv_tui.diagnosis.roofline import Roofline
from usv_tui.diagnosis.vocabulary import Finding
from usv_tui.model import EXCLUDED, BenchInfo, Flag, Notice, TimerInfo
from usv_tui.records import AnyRecord, Bench, Calibrated, Mark, Noted, Samples, Timing
from usv_tui.stats.stalls import StallFinder

_KEEP = 2000
"""Windows of a row that are looked at."""
_FIRST = 60
_FRESH = 200
"""New windows of a row before it is looked at again."""
_ABSENT = 2
_WORSE = 4
"""A count that has grown by this factor is news."""
_COLUMNS = 4
_STALL = int(Flag.STALL)


@dataclass(slots=True)
class _Row:
    info: BenchInfo
    calibrated: Calibrated | None = None
    windows: IntArray = field(default_factory=lambda: np.empty((0, _COLUMNS), np.int64))
    """Length, calls, host time and flags of each."""
    n: int = 0
    """Windows that count, since the start or the last mark."""
    fresh: int = 0
    stalls: StallFinder = field(default_factory=StallFinder)
    absent: dict[str, int] = field(default_factory=dict)
    """In how many looks, one after the other, what was told did not show."""
    told: dict[str, float] = field(default_factory=dict)
    """Codes that were noticed, with their count then."""


class Diagnosis:
    """Give it every record, and ask it now and then."""

    def __init__(self, roofline: Roofline | None = None) -> None:
        self._roofline = roofline
        self._timer = TimerInfo(name="wall")
        self._rows: dict[int, _Row] = {}
        self._blocks: deque[Samples] = deque()
        self._turn = 0
        self._has_loaded = False

    def know(self, roofline: Roofline | None) -> None:
        """The ceilings of the card, when they become known."""
        self._roofline = roofline

    def apply(self, record: AnyRecord) -> None:
        """Take in a record; what is none of its business is let pass."""
        if isinstance(record, Samples):
            self._blocks.append(record)
        elif isinstance(record, Timing):
            self._timer = record.info
        elif isinstance(record, Bench):
            if record.info.parent is None:
                self._rows[record.info.bench] = _Row(record.info)
        elif isinstance(record, Calibrated):
            row = self._rows.get(record.bench)
            if row is not None:
                row.calibrated = record
        elif isinstance(record, Noted):
            self._has_loaded |= record.notice.code == LOADED
        elif isinstance(record, Mark):
            self._restart(record.bench)

    def look(self, now_ns: int, rows: int = 1) -> list[Notice]:
        """Look at the next rows that have new windows; what was not said of them yet."""
        self._take_in()
        ids = list(self._rows)
        notices: list[Notice] = []
        for _ in range(len(ids)):
            if rows <= 0:
                break
            row = self._rows[ids[self._turn % len(ids)]]
            self._turn += 1
            if row.n < _FIRST or (row.fresh < _FRESH and row.told) or not row.fresh:
                continue
            rows -= 1
            row.fresh = 0
            found = diagnose(self._evidence(row))
            news = [f for f in found if _is_news(row, f)] + _taken_back(row, found)
            notices += [
                Notice(
                    code=code,
                    at_ns=now_ns,
                    bench=row.info.bench,
                    level="info" if "withdrawn" in evidence else "warn",
                    evidence=evidence,
                    of_epoch=True,
                )
                for code, evidence in news
            ]
        return notices

    def _take_in(self) -> None:
        """Sort the blocks since the last look into rows."""
        if not self._blocks:
            return
        blocks, self._blocks = self._blocks, deque()
        ids = np.array([bench for block in blocks for bench in block.bench])
        columns = np.array(
            [
                [w for block in blocks for w in block.window_ns],
                [k for block in blocks for k in block.inners()],
                [h for block in blocks for h in (block.host_ns or block.window_ns)],
                [f for block in blocks for f in block.all_flags()],
            ],
            dtype=np.int64,
        ).T
        for bench in np.unique(ids):
            row = self._rows.get(int(bench))
            if row is None:
                continue
            mine = columns[(ids == bench) & ((columns[:, 3] & int(EXCLUDED)) == 0)]
            mine = mine[mine[:, 0] > 0]
            row.n += len(mine)
            row.fresh += len(mine)
            judged = row.stalls.find(mine[:, 0] / mine[:, 1])
            mine[judged.is_stall, 3] |= _STALL
            row.windows = np.concatenate([row.windows, mine])[-_KEEP:]
            revised = judged.revised - (row.n - len(row.windows))
            row.windows[revised[revised >= 0], 3] ^= _STALL

    def _restart(self, bench: int | None) -> None:
        """A new epoch: what was seen before says nothing of what comes, and is told anew."""
        self._take_in()
        for row in self._rows.values():
            if bench is None or row.info.bench == bench:
                row.windows = row.windows[:0]
                row.n = row.fresh = 0
                row.stalls = StallFinder()
                row.told.clear()
                row.absent.clear()

    def _evidence(self, row: _Row) -> RowEvidence:
        window_ns, inner, host_ns, flags = row.windows.T
        calibrated = row.calibrated
        return RowEvidence(
            window_ns=window_ns,
            inner=inner,
            host_ns=host_ns,
            flags=flags,
            is_async="event" in self._timer.name,
            is_start=row.n <= _KEEP,
            floor_ns=self._timer.floor_ns,
            resolution_ns=self._timer.resolution_ns,
            flops=row.info.flops,
            bytes=row.info.bytes,
            roofline=self._roofline,
            cache=calibrated.cache if calibrated is not None else "warm",
            cache_bytes=calibrated.l2_bytes if calibrated is not None else None,
            has_loaded=self._has_loaded,
        )


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
            gone.append(Finding(code, {"withdrawn": True}))
    return gone

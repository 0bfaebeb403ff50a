"""The fold of launches: what two versions' samples say of each row, launch by launch and over all.

Records in, ratios out; used by the store for what is shown, and by the duet to know when the
launches suffice. A sample's round says of which turn it is: those of a pair have the same rounds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import EXCLUDED, Answer, BenchInfo, Flag, Ratio
from usv_tui.records import AnyRecord, Bench, End, Launch, Launched, Samples, Version
from usv_tui.stats import duet
from usv_tui.stats.basics import FloatArray, IntArray

_LEFT_OUT = int(EXCLUDED | Flag.STALL)


class Turned(NamedTuple):
    """One row's turns of one launch."""

    pair: IntArray
    start_ns: IntArray
    log_s: FloatArray
    """Median of the turn."""


@dataclass(frozen=True, slots=True)
class Versus:
    """A row of the later version against the same one of the earlier version."""

    launch: duet.LaunchRatio | None
    """Of the launch that runs, or of the last one."""
    over: duet.OverLaunches | None
    """Over all launches that have ended."""
    raw: Answer
    """The answer if this were the only row."""
    answer: Answer
    """The answer as one of all rows (Holm)."""
    p: float
    """As one of all rows."""
    family: tuple[float, float] | None
    """The interval that holds for all rows together (Bonferroni)."""
    launches: tuple[duet.LaunchRatio, ...]

    @property
    def ratio(self) -> Ratio | None:
        """As a row's ratio: over launches, with the corrected answer."""
        over = self.over
        if over is None:
            return None
        note = "one launch" if over.launches == 1 else ""
        if self.raw is not self.answer:
            note = f"alone: {self.raw}"
        return Ratio(
            answer=self.answer,
            ratio=over.ratio,
            low=over.low,
            high=over.high,
            n=over.launches,
            n_eff=float(over.launches),
            band=duet.BAND,
            note=note,
            allocations=over.launches,
            placement=over.between,
        )


class _Row:
    """What is known of a pair of rows."""

    def __init__(self) -> None:
        self.done: list[duet.LaunchRatio] = []


class Launches:
    """The fold."""

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.launch: Launch | None = None
        """That which runs, or ran last."""
        self.ended: list[Launched] = []
        self._rivals: dict[int, int] = {}
        self._beside: set[int] = set()
        self._rows: dict[int, _Row] = {}
        self._version_of: dict[int, int] = {}
        self._bases: dict[int, int] = {}
        """The number of each launch, by its first round."""
        self._samples: dict[int, list[tuple[IntArray, IntArray, FloatArray]]] = {}
        self._is_running = False
        self._known: tuple[int, dict[int, Versus]] = (-1, {})
        self._closes = 0

    @property
    def is_duet(self) -> bool:
        """Two versions are compared in this session."""
        return bool(self.versions)

    @property
    def done(self) -> int:
        """Launches that have come to their end."""
        return len(self.ended)

    def label_of(self, version: int | None) -> str:
        """What a version is called."""
        found = None if version is None else self.versions.get(version)
        return "" if found is None else found.label

    def numbers(self, rounds: IntArray, is_warmup: NDArray[np.bool_]) -> IntArray:
        """The launches that these rounds are of; 0 before the first."""
        bases, numbers = [0, *self._bases], np.array([0, *self._bases.values()], np.int64)
        at = np.searchsorted(bases, rounds, side="right") - 1 + is_warmup
        return np.asarray(numbers[at.clip(0, len(numbers) - 1)])

    @property
    def is_plain(self) -> bool:
        """There are only two versions, so that a row needs no other name."""
        return len(self.versions) <= 2

    def rows_of(self, version: int) -> int:
        """Rows of a version that can be compared."""
        return sum(of == version for of in self._version_of.values())

    @property
    def beside(self) -> set[int]:
        """Rows of the earlier version that the later one has, too."""
        return self._beside

    def apply(self, record: AnyRecord) -> None:
        """Take a record in; those that say nothing here are passed by."""
        if isinstance(record, Samples):
            self._take(record)
        elif isinstance(record, Version):
            self.versions[record.index] = record
        elif isinstance(record, Bench):
            self._meet(record.info)
        elif isinstance(record, Launch):
            self.close()
            self.launch, self._is_running = record, True
            self._bases[record.base] = record.number
        elif isinstance(record, Launched):
            self.ended.append(record)
            self.close()
        elif isinstance(record, End):
            self.close()

    def _meet(self, info: BenchInfo) -> None:
        if info.rival is not None:
            self._beside.add(info.rival)
        if info.rival is not None and info.parent is None:
            self._rivals[info.bench] = info.rival
            self._rows[info.bench] = _Row()
            self._version_of[info.bench] = info.version or 1
            self._samples.setdefault(info.bench, [])
            self._samples.setdefault(info.rival, [])

    def _take(self, block: Samples) -> None:
        if not self._is_running:
            return
        benches = np.array(block.bench)
        times = np.array(block.dt_ns, np.int64) + block.t0_ns
        rounds = block.round + np.arange(benches.size) // block.size
        windows, inners = np.array(block.window_ns), np.array(block.inners())
        flags = np.array(block.all_flags())
        for bench in set(block.bench):
            own = benches == bench
            self.add(bench, times[own], windows[own], inners[own], rounds[own], flags[own])

    def add(
        self,
        bench: int,
        times: IntArray,
        windows: IntArray,
        inners: IntArray,
        rounds: IntArray,
        flags: IntArray,
    ) -> None:
        """Samples of one row, in order."""
        kept, launch = self._samples.get(bench), self.launch
        if kept is None or launch is None or not self._is_running:
            return
        good = ((flags & _LEFT_OUT) == 0) & (windows > 0) & (rounds >= launch.base)
        if good.any():
            pairs = (rounds[good] - launch.base) // launch.rounds
            kept.append((pairs, times[good], np.log(windows[good] / inners[good])))

    def close(self) -> None:
        """The launch is over: what it says of each row is kept, and its samples are not."""
        if not self._is_running:
            return
        self._is_running = False
        self._closes += 1
        for bench, row in self._rows.items():
            found = self._of_launch(bench)
            if found is not None:
                row.done.append(found)
        for kept in self._samples.values():
            kept.clear()

    def _of_launch(self, bench: int) -> duet.LaunchRatio | None:
        """The launch that runs, as far as it goes."""
        mine, base = self._turns(bench), self._turns(self._rivals[bench])
        if mine is None or base is None or self.launch is None:
            return None
        _, at_mine, at_base = np.intersect1d(mine.pair, base.pair, return_indices=True)
        differences = mine.log_s[at_mine] - base.log_s[at_base]
        is_first = (base.start_ns[at_base] < mine.start_ns[at_mine]).astype(np.int64)
        return duet.launch_ratio(self.launch.number, differences, is_first)

    def _turns(self, bench: int) -> Turned | None:
        kept = self._samples.get(bench)
        if not kept:
            return None
        pairs, times, logs = (np.concatenate(part) for part in zip(*kept, strict=True))
        starts = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
        medians = [float(np.median(part)) for part in np.split(logs, starts[1:])]
        return Turned(pairs[starts], times[starts], np.array(medians))

    # -- what they say

    def report(self) -> dict[int, Versus]:
        """Every row that is in both versions, by its number in the later one."""
        if self._known[0] != self._closes:
            self._known = self._closes, self._over()
        return self._known[1]

    def _over(self) -> dict[int, Versus]:
        found: dict[int, Versus] = {}
        for version in sorted(set(self._version_of.values())):
            found |= self._of_version(version)
        return found

    def _of_version(self, version: int) -> dict[int, Versus]:
        """A family: the rows of one version."""
        rows = {b: row for b, row in self._rows.items() if self._version_of[b] == version}
        overs = {bench: duet.over_launches(row.done) for bench, row in rows.items()}
        known = {bench: over for bench, over in overs.items() if over is not None}
        ps = dict(zip(known, duet.holm([over.p for over in known.values()]), strict=True))
        share = duet.ALPHA / max(1, len(known))
        return {
            bench: self._versus(row, overs[bench], ps.get(bench, 1.0), share)
            for bench, row in rows.items()
        }

    @staticmethod
    def _versus(row: _Row, over: duet.OverLaunches | None, p: float, share: float) -> Versus:
        last = row.done[-1] if row.done else None
        wide = duet.over_launches(row.done, share)
        if over is None or wide is None or wide.half is None:
            none = Answer.UNDECIDED
            return Versus(last, over, none, none, p, None, tuple(row.done))
        return Versus(
            last,
            over,
            duet.answer(over.centre, over.half, over.p),
            duet.answer(wide.centre, wide.half, p),
            p,
            (wide.low or 0.0, wide.high or 0.0),
            tuple(row.done),
        )

    def now(self, bench: int) -> duet.LaunchRatio | None:
        """The ratio in the launch that runs; that of the last one between two of them."""
        if self._is_running and self._samples.get(bench):
            return self._of_launch(bench)
        done = self._rows[bench].done if bench in self._rows else []
        return done[-1] if done else None

    def is_narrow(self, half: float, version: int) -> bool:
        """Every interval of a version's rows is at most this half wide, in log units."""
        found = self.report().items()
        overs = [versus.over for bench, versus in found if self._version_of[bench] == version]
        return all(o is None or (o.half is not None and o.half <= half) for o in overs)

    def fold(self, records: Iterable[AnyRecord]) -> None:
        """Several."""
        for record in records:
            self.apply(record)

"""Sessions against each other: rows matched by name, and whether they may be compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from usv_tui.errors import UsageError
from usv_tui.model import EXCLUDED, Answer, ClockHold, Flag, Ratio, StateWord
from usv_tui.records import Ghosts
from usv_tui.report.wording.rows import clock_words
from usv_tui.session import raw
from usv_tui.session.opened import Opened, open_session
from usv_tui.session.snapshot import RowView
from usv_tui.stats.compare import Comparison, RunClock, SavedRow, compare, run_clock, saved_row
from usv_tui.stats.inputs import RowData, under_load
from usv_tui.vendor.kinds import Vendor

THROTTLED_SHARE = 0.05
"""A limit that was active for less is no condition of the run."""
_LASTING = {StateWord.STEADY, StateWord.SETTLED}


def saved_rows(session: Opened) -> dict[str, SavedRow]:
    """What a session says of each of its rows, by name; controls apart."""
    clocks = _Clocks(session)
    views = (view for view in session.rows if view.control_of is None)
    return {view.name: _saved(session, view, clocks) for view in views}


@dataclass(frozen=True, slots=True)
class Side:
    """One or several sessions that stand for the same state of things."""

    label: str
    sessions: Sequence[Opened]

    def rows(self) -> Mapping[str, list[SavedRow]]:
        """Each row's runs, by name; a row that failed in a run has none there."""
        found: dict[str, list[SavedRow]] = {}
        for session in self.sessions:
            for name, row in saved_rows(session).items():
                found.setdefault(name, []).append(row)
        return found


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of one side against the first side's."""

    name: str
    side: str
    old_s: float | None
    new_s: float | None
    found: Comparison
    differing: Mapping[str, tuple[str, str]]
    """For each fact that differs, its values on both sides."""


@dataclass(frozen=True, slots=True)
class Report:
    """All rows of all sides against the first side."""

    labels: Sequence[str]
    rows: Sequence[Compared]
    unmatched: Mapping[str, Sequence[str]]
    """`only in SIDE` and `lacking in SIDE`, beside the first side, with the rows' names."""
    caveats: Sequence[str]
    """What differs without forbidding anything."""


def compare_sides(sides: Sequence[Side], *, across: frozenset[str] = frozenset()) -> Report:
    """Every later side against the first; `across`: reasons that are meant to differ."""
    tables = [side.rows() for side in sides]
    rows = list(_pairs(sides, tables, across))
    unmatched = {}
    for side, table in zip(sides[1:], tables[1:], strict=True):
        unmatched[f"lacking in {side.label}"] = [n for n in tables[0] if n not in table]
        unmatched[f"only in {side.label}"] = [n for n in table if n not in tables[0]]
    caveats = [c for side in sides[1:] for c in _caveats(sides[0], side)]
    return Report(
        [s.label for s in sides], rows, {k: v for k, v in unmatched.items() if v}, caveats
    )


def _pairs(
    sides: Sequence[Side], tables: Sequence[Mapping[str, list[SavedRow]]], across: frozenset[str]
) -> Iterator[Compared]:
    for name, old in tables[0].items():
        for side, table in zip(sides[1:], tables[1:], strict=True):
            if name not in table:
                continue
            new = table[name]
            found = compare(old, new, across=across)
            yield Compared(
                name,
                side.label,
                _middle(old),
                _middle(new),
                found,
                {
                    code: (str(old[0].facts.get(code)), str(new[0].facts.get(code)))
                    for code in found.reasons
                    if code in old[0].facts or code in new[0].facts
                },
            )


def _middle(rows: Sequence[SavedRow]) -> float | None:
    known = [row.median_s for row in rows if row.median_s]
    return float(np.median(known)) if known else None


class _Clocks:
    """The clock under load of one session's rows."""

    def __init__(self, session: Opened) -> None:
        store = session.store
        self._readings = store.readings(store.last_ns, 0)

    def of(self, data: RowData) -> RunClock | None:
        """While this row was measured."""
        if not data.t_ns.size:
            return None
        between = (self._readings.t_ns >= data.t_ns[0]) & (self._readings.t_ns <= data.t_ns[-1])
        return run_clock(under_load(self._readings.only(between), data.t_ns).sm_mhz)


def _saved(session: Opened, view: RowView, clocks: _Clocks) -> SavedRow:
    data = raw.whole(session.store, view.bench)
    good = ((data.flags & int(EXCLUDED | Flag.STALL)) == 0) & (data.window_ns > 0)
    seconds = data.window_ns[good] / (data.inner[good] * 1e9)
    return saved_row(
        seconds if not view.error else np.empty(0),
        clocks.of(data),
        effect=view.effect,
        is_settled=view.drift.word in _LASTING,
        throttled=frozenset(word for word, share in view.throttled if share >= THROTTLED_SHARE),
        facts=facts_of(session, view),
    )


def facts_of(session: Opened, view: RowView) -> dict[str, object]:
    """What must be alike for a comparison, by code; None where it is not known."""
    snapshot, device = session.snapshot, session.snapshot.device
    packages = snapshot.environment.get("packages")
    versions = packages if isinstance(packages, dict) else {}
    clocks = snapshot.clocks_during
    return {
        "card": _card(session),
        "driver": device.driver if device else None,
        "torch": versions.get("torch"),
        "lock": clocks.locked_mhz if clocks.hold is not ClockHold.FREE else None,
        "power cap": device.power_limit_mw if device else None,
        "cache": view.cache,
        "timer": snapshot.timer.name if snapshot.timer else None,
        "mode": view.mode,
        "pace": snapshot.pace,
    }


def _card(session: Opened) -> object:
    """The device that was measured: its own number, or the processor's name and the host."""
    snapshot, device = session.snapshot, session.snapshot.device
    if snapshot.simulated and device is not None:
        return device.name  # every simulated card of a kind is the same card
    if device is not None and device.uuid and device.kind != Vendor.CPU:
        return device.uuid
    return f"{snapshot.environment.get('cpu')} of {snapshot.environment.get('host')}"


def _caveats(old: Side, new: Side) -> Iterator[str]:
    one, other = (side.sessions[0].snapshot.environment for side in (old, new))
    for key, words in (("boot", "another boot"), ("python", "another Python")):
        if one.get(key) and other.get(key) and one[key] != other[key]:
            yield f"{new.label}: {words} than {old.label}"
    for side in (old, new):
        if any(not s.store.course.is_whole for s in side.sessions):
            yield f"{side.label} is damaged: a part of its samples is missing"
        elif any(not s.snapshot.complete for s in side.sessions):
            yield f"{side.label} is partial"


def ghosts_of(path: Path) -> Ghosts:
    """What a session says of its rows, to be shown beside another run.

    Raises:
        UsageError: it cannot be read, is no session, or timed nothing.
    """
    session = open_session(path)
    medians = {name: row.median_s for name, row in saved_rows(session).items() if row.median_s}
    if not medians:
        raise UsageError(f"{path} has no times to compare with", "another session")
    snapshot = session.snapshot
    device = snapshot.device.name if snapshot.device else snapshot.config.device
    said = [path.name, snapshot.simulated or device, clock_words(snapshot.clocks_during)]
    return Ghosts(0, f"{', '.join(said)}; another run, not paired with this one", medians)


@dataclass(frozen=True, slots=True)
class Condition:
    """`slower>2%`: what makes a comparison fail."""

    answer: Answer
    least: float

    def fails(self, found: Comparison | Ratio) -> bool:
        """True when the answer is the named one and the difference is larger than allowed."""
        if found.answer is not self.answer or found.ratio is None:
            return False
        ratio = found.ratio if self.answer is Answer.SLOWER else 1 / found.ratio
        return ratio - 1 > self.least

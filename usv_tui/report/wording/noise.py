"""Why is it noisy: who is to blame for a spread, and what to do about it."""

from collections.abc import Sequence
from typing import NamedTuple

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import badge_of
from usv_tui.model import StateWord
from usv_tui.report.wording.codes import CODES, code_of
from usv_tui.report.wording.rows import name_of
from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.vendor.processes import words as process_words

_LEAST_SHARE = 0.01
_MUCH = 0.2
"""From this part of the variance on, the clock is to blame."""
_BLAMED = (
    *(
        Code.HOST_BUSY,
        Code.OFF_THE_CPU,
        Code.PAGE_FAULTS,
        Code.CPU_BOUND,
        Code.SYNCHRONISES,
        Code.STALLS,
    ),
    *(
        Code.TWO_MODES,
        Code.BELOW_TIMER_FLOOR,
        Code.MEMORY_GROWS,
        Code.COMPILING_INSIDE,
        Code.NOT_AS_ALONE,
    ),
    *(
        Code.LAUNCH_BLOCKING,
        Code.PROFILER_ON,
        Code.ANOMALY_DETECTION,
        Code.CACHE_NOT_WARM,
        Code.NOT_WARMED_UP,
    ),
)
"""Findings that explain a spread, the weightiest first."""
NOBODY = "nothing outside the rows is found to blame: the spread is their own"


class Culprit(NamedTuple):
    """Who or what, with its figures; and what to do."""

    what: str
    remedy: str


def culprits(snapshot: Snapshot) -> list[Culprit]:
    """Everything that is known to make times spread, the outside world first."""
    return [
        *_limits(snapshot),
        *_neighbours(snapshot),
        *_findings(snapshot),
        *_clock(snapshot),
        *_moving(snapshot),
    ]


def _limits(snapshot: Snapshot) -> list[Culprit]:
    shares = next((row.throttled for row in snapshot.rows if row.throttled), ())
    mhz = snapshot.advice.lock_mhz
    lock = f"lock at {mhz} MHz" if mhz is not None else "lock the clocks lower"
    return [
        Culprit(
            f"{word}: {share:.0%} of the readings",
            f"cool the card, or {lock}" if "thermal" in word else lock,
        )
        for word, share in shares
        if share >= _LEAST_SHARE
    ]


def _neighbours(snapshot: Snapshot) -> list[Culprit]:
    now = set(snapshot.reading.others or ()) if snapshot.reading is not None else set()
    found = []
    for process in snapshot.neighbours:
        when = "uses the device now" if process.get("pid") in now else "used the device"
        remedy = "wait until it ends, ask its user, or take another device"
        found.append(Culprit(f"neighbour: {process_words(process)} {when}", remedy))
    return found


def _findings(snapshot: Snapshot) -> list[Culprit]:
    """One line a finding, with the rows that it is told of."""
    found = []
    for code in _BLAMED:
        told = [t for t in snapshot.told if t.code == code]
        badge = badge_of(code)
        marked = [name_of(r, snapshot.rows) for r in _tops(snapshot) if badge in r.badges]
        known = CODES.get(code_of(code))
        names = [plain.name(t.row) for t in told if t.row] or marked
        if (told or marked) and known is not None:
            whom = f"{plain.some(names, 3)}: " if names else ""
            remedy = "" if known.remedy == "nothing" else known.remedy
            said = told[0].text if told else known.meaning
            found.append(Culprit(f"{whom}{said}", _REMEDIES.get(code, remedy)))
    return found


_REMEDIES = {
    Code.HOST_BUSY: "wait, stop the others, pin to a free core (taskset), or --inner 3",
    Code.STALLS: "an idle machine; pin to a free core (taskset)",
}


def _clock(snapshot: Snapshot) -> list[Culprit]:
    told = [(r.effect.explained or 0.0, r) for r in _tops(snapshot)]
    share, row = max(told, key=lambda pair: pair[0], default=(0.0, None))
    if row is None or share < _MUCH:
        return []
    mhz = snapshot.advice.lock_mhz
    lock = f"lock at {mhz} MHz" if mhz is not None else "lock the clocks"
    name = name_of(row, snapshot.rows)
    return [Culprit(f"the clock: {share:.0%} of the variance of {name}", lock)]


def _moving(snapshot: Snapshot) -> list[Culprit]:
    drifting = [
        (abs(r.drift.change or 0.0), r)
        for r in _tops(snapshot)
        if r.word in (StateWord.DRIFTING, StateWord.WARMING)
    ]
    if not drifting:
        return []
    size, row = max(drifting, key=lambda pair: pair[0])
    name = name_of(row, snapshot.rows)
    said = f"{name} still moves" + (f", by {size * 100:.1f} % in the window" if size else "")
    return [Culprit(said, "wait until it has settled; ratios may be compared before")]


def _tops(snapshot: Snapshot) -> Sequence[RowView]:
    return [row for row in snapshot.rows if row.parent is None and not row.error]

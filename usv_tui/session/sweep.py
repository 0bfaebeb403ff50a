"""Clocks searched by measuring: lock step after step, in random order, coming back to each.

Order and revisits share out what drifts (temperature above all) among the clocks. A visit is a
record; what the visits say is worked out from the session's samples and readings alone.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from usv_tui.clocks.target import nearest_supported
from usv_tui.errors import ClockError, ClockRefused, UsageError
from usv_tui.model import EXCLUDED, Flag, RunPhase
from usv_tui.records import Visit
from usv_tui.session.row_store import RowStore
from usv_tui.session.snapshot import FloatArray
from usv_tui.stats.held import share_at, tolerance_mhz
from usv_tui.stats.inputs import is_stray
from usv_tui.telemetry.energy import RowWindows, energy_per_call
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.session.desk import ClockDesk
    from usv_tui.session.store import Store

SETTLE_NS = 3 * NS_PER_S // 2
"""After a change of clock: the ramp, and a sensor that averages."""
HELD = 0.99
"""Share of a visit's readings at the clock that was asked for, from which on it held."""
_LOWEST_SHARE = 0.5
"""Of the highest clock: where a sweep begins unless told otherwise."""
_LATE_NS = NS_PER_S // 2
"""Samples and readings of a visit have arrived so long after its end."""
_CLOSER = 3
"""So many clocks are tried between the highest one that held and the next that did not."""
_ALIKE = 1.1
"""Spreads within this factor are called the same."""
_PATIENCE_NS = 30 * NS_PER_S
"""A lock that has not come by then is not waited for."""


class Plan(NamedTuple):
    """What a sweep was asked for."""

    from_mhz: int | None = None
    to_mhz: int | None = None
    steps: int = 8
    visits: int = 3
    seconds: float = 5.0
    """Of each visit, after the clock has settled."""


def clocks_of(plan: Plan, supported: Sequence[int]) -> list[int]:
    """The clocks to visit, ascending and even, on steps of the device.

    Raises:
        UsageError: no range is known, or an empty one was asked for.
        ClockRefused: a clock that the device does not have.
    """
    top = plan.to_mhz or (max(supported) if supported else None)
    if top is None or (plan.from_mhz is None and not supported):
        raise UsageError("the device does not list its clocks", "give --from MHZ and --to MHZ")
    low = plan.from_mhz or min((s for s in supported if s >= _LOWEST_SHARE * top), default=top)
    if low > top:
        raise UsageError(f"--from {low} is above --to {top}", "from the lower to the higher clock")
    wanted = np.linspace(low, top, plan.steps).round().astype(int).tolist()
    return sorted({nearest_supported(mhz, supported).mhz for mhz in wanted})


class Sweep:
    """Goes from clock to clock; `look` is called by whoever pumps the session."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.failure = ""
        """Why it could not be done; empty when it was, or still may be."""
        self.is_over = False
        self._random = random.Random(seed)
        self._queue: list[int | None] = []
        self._planned = 0
        self._closer = _CLOSER
        self._target: int | None = None
        self._look: Callable[[Store, ClockDesk, int], list[Visit]] = self._begin
        self._since_ns = 0

    @property
    def progress(self) -> str:
        """Where it is, in a few words."""
        if self.is_over or not self._planned:
            return ""
        at = self._planned - len(self._queue)
        left_s = (len(self._queue) + 1) * (self.plan.seconds + SETTLE_NS / NS_PER_S)
        return f"sweep {at}/{self._planned}: {words(self._target)}, about {left_s:.0f} s left"

    def look(self, store: "Store", clocks: "ClockDesk", now_ns: int) -> list[Visit]:
        """Go on as far as can be gone; returns the visits that are done."""
        return [] if self.is_over else self._look(store, clocks, now_ns)

    def _begin(self, store: "Store", clocks: "ClockDesk", now_ns: int) -> list[Visit]:
        state = store.clocks
        if clocks.is_busy:
            return []
        if not state.can_lock:
            if state.reason or store.course.has_ended:
                self._give_up(state.reason or "nothing is known of the clocks")
            return []
        if store.course.phase != RunPhase.MEASURING:
            return []
        try:
            steps = clocks_of(self.plan, state.supported_mhz)
        except (UsageError, ClockError) as error:
            self._give_up(str(error))
            return []
        for _ in range(self.plan.visits):
            turn: list[int | None] = [*steps, None]
            self._random.shuffle(turn)
            self._queue += turn
        self._planned = len(self._queue)
        return self._next(store, clocks, now_ns)

    def _between(self, store: "Store") -> list[int | None]:
        """Visits to a clock between the highest one that held and the next, which did not."""
        locked = [step for step in store.steps() if step.mhz is not None]
        held = [step.mhz or 0 for step in locked if (step.held or 0.0) >= HELD]
        lost = [s.mhz or 0 for s in locked if s.held is not None and s.mhz not in held]
        above = [mhz for mhz in lost if held and mhz > max(held)]
        if not above or self._closer == 0:
            return []
        self._closer -= 1
        middle = (max(held) + min(above)) // 2
        mhz = nearest_supported(middle, store.clocks.supported_mhz).mhz
        if mhz in held or mhz in lost:
            return []
        turn: list[int | None] = [mhz] * self.plan.visits + [None]
        self._random.shuffle(turn)
        return turn

    def _next(self, store: "Store", clocks: "ClockDesk", now_ns: int) -> list[Visit]:
        if not self._queue:
            self._queue = self._between(store)
            self._planned += len(self._queue)
        if not self._queue:
            self.is_over = True
            return []
        self._target = self._queue.pop(0)
        self._since_ns, self._look = now_ns, self._wait
        try:
            if self._target is not None:
                clocks.lock(self._target)
            elif store.clocks.locked_mhz is not None:
                clocks.unlock()
        except ClockError as error:
            self._give_up(str(error))
        return []

    def _wait(self, store: "Store", clocks: "ClockDesk", now_ns: int) -> list[Visit]:
        if clocks.is_busy and now_ns - self._since_ns < _PATIENCE_NS:
            return []
        if store.clocks.locked_mhz != self._target:
            self._give_up(store.clocks.evidence or f"{words(self._target)} could not be set")
            return []
        self._since_ns, self._look = now_ns + SETTLE_NS, self._stay
        return []

    def _stay(self, _store: "Store", _clocks: "ClockDesk", now_ns: int) -> list[Visit]:
        end_ns = self._since_ns + round(self.plan.seconds * NS_PER_S)
        if now_ns < end_ns + _LATE_NS:
            return []
        done = Visit(self._since_ns, end_ns, self._target)
        self._look = self._next
        return [done]

    def _give_up(self, why: str) -> None:
        self.failure, self.is_over = why, True

    def fault(self) -> ClockRefused | None:
        """What a sweep that could not be done ends with."""
        return ClockRefused(f"the sweep stopped: {self.failure}") if self.failure else None


def words(mhz: int | None) -> str:
    """A clock, or that it is free."""
    return "free" if mhz is None else f"{mhz} MHz"


# -- what the visits say


class RowAt(NamedTuple):
    """A row at one clock, over its visits."""

    n: int
    time_s: float
    """Median over the visits of their medians, seconds a call."""
    apart: float
    """Half of the range of the visits' medians, relative: what a difference must exceed."""
    rel_std: float
    """Within visits."""
    energy_j: float | None
    """Joules a call."""
    energy_label: str


class StepAt(NamedTuple):
    """One clock of a sweep; `mhz` is None for the free clock."""

    mhz: int | None
    visits: int
    held: float | None
    """Share of the readings at this clock, nonsense left out; None where there are none."""
    ran_mhz: float | None
    power_mw: float | None
    temp_c: float | None
    rows: dict[int, RowAt]


def steps_of(store: "Store", visits: Sequence[Visit]) -> list[StepAt]:
    """The clocks that were visited, ascending, the free one last."""
    found: dict[int | None, list[Visit]] = {}
    for visit in visits:
        found.setdefault(visit.mhz, []).append(visit)
    order = sorted(found, key=lambda mhz: (mhz is None, mhz or 0))
    return [_step(store, mhz, found[mhz]) for mhz in order]


def _step(store: "Store", mhz: int | None, visits: list[Visit]) -> StepAt:
    rows = {}
    for bench, row in store.rows.items():
        if row.info.parent is None and (at := _row_at(store, row, visits)) is not None:
            rows[bench] = at
    columns = store.telemetry_columns
    parts = [columns.between(visit.from_ns, visit.to_ns) for visit in visits]
    clock = _joined([columns.fields["sm_mhz"].view()[part] for part in parts])
    return StepAt(
        mhz,
        len(visits),
        None if mhz is None else _held(mhz, clock, store.clocks.supported_mhz),
        _mean(clock),
        _mean(_joined([columns.fields["power_mw"].view()[part] for part in parts])),
        _mean(_joined([columns.fields["temp_c"].view()[part] for part in parts])),
        rows,
    )


def _joined(parts: Sequence[object]) -> FloatArray:
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def _mean(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _held(mhz: int, clock: FloatArray, supported: Sequence[int]) -> float | None:
    known = clock[np.isfinite(clock)]
    if not len(known):
        return None
    near = np.abs(known - mhz) <= tolerance_mhz(mhz, supported)
    return 1.0 if near.all() else share_at(near, is_stray(known))


def _row_at(store: "Store", row: RowStore, visits: Sequence[Visit]) -> RowAt | None:
    medians, variances, joules, label, n = [], [], [], "", 0
    for visit in visits:
        at = _visit_at(store, row, visit)
        if at is None:
            continue
        medians.append(at.time_s)
        variances.append(at.rel_std**2)
        n += at.n
        label = at.energy_label
        joules += [] if at.energy_j is None else [at.energy_j]
    if not medians:
        return None
    time_s = float(np.median(medians))
    return RowAt(
        n,
        time_s,
        (max(medians) - min(medians)) / 2 / time_s,
        float(np.sqrt(np.mean(variances))),
        float(np.mean(joules)) if joules else None,
        label,
    )


def _visit_at(store: "Store", row: RowStore, visit: Visit) -> RowAt | None:
    """One visit of a row; None for too few samples. Kept for when they are not kept any more."""
    times = row.t_ns.view()
    if row.t_ns.first and len(times) and visit.from_ns <= times[0]:
        return row.visited.get(visit.from_ns)
    windows, seconds = _windows(row, visit)
    if len(seconds) < 2:
        return None
    median = float(np.median(seconds))
    spread = float(np.std(seconds, ddof=1)) / median
    at = RowAt(len(seconds), median, 0.0, spread, *_energy(store, windows, visit))
    row.visited[visit.from_ns] = at
    return at


def _windows(row: RowStore, visit: Visit) -> tuple[RowWindows, FloatArray]:
    times = row.t_ns.view()
    a, b = (int(i) for i in np.searchsorted(times, (visit.from_ns, visit.to_ns)))
    good = (row.flags.view()[a:b] & int(EXCLUDED | Flag.STALL)) == 0
    windows = RowWindows(
        times[a:b][good],
        row.window_ns.view()[a:b][good],
        row.inner.view()[a:b][good].astype(np.int64),
    )
    return windows, windows.window_ns / (windows.inner * float(NS_PER_S))


def _energy(store: "Store", windows: RowWindows, visit: Visit) -> tuple[float | None, str]:
    columns, device = store.telemetry_columns, store.device
    if device is None:
        return None, ""
    part = columns.between(visit.from_ns, visit.to_ns)
    return energy_per_call(
        windows,
        columns.t_ns.view()[part],
        columns.fields["energy_mj"].view()[part],
        columns.fields["power_mw"].view()[part],
        device.sensors.get("energy_mj"),
        device.sensors.get("power_mw"),
    )


class Point(NamedTuple):
    """A clock against the reference, over all rows (or one): 1 is equal, below 1 is less."""

    step: StepAt
    time: float
    apart: float
    std: float
    energy: float | None


def points(steps: Sequence[StepAt], bench: int | None = None) -> list[Point]:
    """Each clock against the free one, or against the highest where that was not visited.

    Times and energies are geometric means over the rows that were timed at both.
    """
    if not steps:
        return []
    reference = steps[-1]
    found = []
    for step in steps:
        shared = [b for b in step.rows if b in reference.rows and bench in (None, b)]
        if not shared:
            continue
        mine, base = [step.rows[b] for b in shared], [reference.rows[b] for b in shared]
        pairs = [
            (m.energy_j, b.energy_j)
            for m, b in zip(mine, base, strict=True)
            if m.energy_j and b.energy_j
        ]
        found.append(
            Point(
                step,
                _geometric([m.time_s / b.time_s for m, b in zip(mine, base, strict=True)]),
                max(m.apart for m in mine),
                float(np.sqrt(np.mean([m.rel_std**2 for m in mine]))),
                _geometric([m / b for m, b in pairs]) if len(pairs) == len(shared) else None,
            )
        )
    return found


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


class Marks(NamedTuple):
    """The three clocks that a sweep looks for; None where none qualifies."""

    fastest: Point | None
    """The fastest one that holds."""
    calmest: Point | None
    """The one with the least spread, of those that hold."""
    thriftiest: Point | None
    """The one with the least energy a call, of those that hold."""


def marks(found: Sequence[Point]) -> Marks:
    """Which clocks stand out."""
    held = [p for p in found if p.step.mhz is not None and (p.step.held or 0.0) >= HELD]
    known = [p for p in held if p.energy is not None]
    return Marks(
        min(held, key=lambda p: (p.time, p.step.mhz), default=None),
        _calmest(held),
        min(known, key=lambda p: (p.energy, p.step.mhz), default=None),
    )


def _calmest(held: Sequence[Point]) -> Point | None:
    """The fastest of those whose spread is as small as the least, within noise."""
    least = min((p.std for p in held), default=0.0)
    alike = [p for p in held if p.std <= _ALIKE * least]
    return min(alike, key=lambda p: (p.time, p.step.mhz), default=None)

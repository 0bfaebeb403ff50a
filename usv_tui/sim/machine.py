"""Work on streams, run through the governor's ticks: the exact core of the simulated GPU.

`Machine.advance` moves on lazily. It only ever handles whole pieces (an item up to its end or to
the end of a tick), so that where callers happen to look leaves no trace in the numbers.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usv_tui.sim.physics import Board, TickRow
from usv_tui.sim.profiles import Card

_KEEP_S = 8.0
"""How much history is kept for the sensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Somebody else on the card, or on its power budget, at irregular times."""

    power: float = 0.0
    """What they draw, as a share of the card's power cap."""
    gain: float = 0.0
    """Our work takes 1 + gain times as long while they run."""
    hidden: float = 0.0
    """Share of the clock that is lost while they run, without any sensor showing it."""
    start_s: float = 0.0
    on_s: float = math.inf
    """Mean length of a burst, and of the pause after it."""
    off_s: float = 0.0
    pid: int | None = None
    """Visible to the driver as another process."""


class Presence:
    """When a neighbour is there: bursts and pauses of 0.5 to 1.5 times their mean, seeded."""

    def __init__(self, neighbour: Neighbour, seed: int, index: int) -> None:
        self.neighbour = neighbour
        self._rng = np.random.default_rng([seed, 3, index])
        self._edges = deque([neighbour.start_s])
        self._is_on = False

    def at(self, time_s: float) -> bool:
        """True while they run; times must not go back."""
        while time_s >= self._edges[0]:
            edge_s = self._edges.popleft()
            self._is_on = not self._is_on
            mean_s = self.neighbour.on_s if self._is_on else self.neighbour.off_s
            self._edges.append(edge_s + mean_s * float(self._rng.uniform(0.5, 1.5)))
        return self._is_on


class Item:
    """A piece of device work in a stream's queue; a length of zero makes it a time stamp."""

    __slots__ = (
        "activity", "busy_s", "cycles", "end_s", "fixed_s", "left", "ready_s", "start_s", "warm",
    )  # fmt: skip

    def __init__(
        self,
        ready_s: float,
        fixed_s: float,
        cycles: float = 0.0,
        activity: float = 0.0,
        warm: tuple[float, float] | None = None,
    ) -> None:
        self.ready_s = ready_s
        self.fixed_s = fixed_s
        self.cycles = cycles
        """MHz times seconds."""
        self.activity = activity
        self.warm = warm
        """(gain, tau_s) of a start that is slow for another reason than the clock."""
        self.left = 1.0
        self.start_s = -1.0
        self.end_s = -1.0
        """Negative until it is done."""
        self.busy_s = 0.0
        """How long its stream had worked, all in all, when it was done."""


class Stream:
    """A first-in first-out queue of work on the device."""

    def __init__(self) -> None:
        self.queue: deque[Item] = deque()
        self.cursor_s = 0.0
        """Up to here everything has been decided."""
        self.busy_s = 0.0
        """How long it has worked, all in all."""
        self.active_s = 0.0
        """Activity times seconds, in this tick."""

    def run(self, until_s: float, tick_end_s: float, per_mhz: float, gain: float) -> None:
        """Do what ends by `until_s`, within one tick of constant clock."""
        queue = self.queue
        now_s = self.cursor_s
        is_whole = until_s == tick_end_s
        while queue:
            item = queue[0]
            start_s = item.ready_s
            if start_s < now_s:  # noqa: PLR1730  a call costs three times the branch
                start_s = now_s
            if start_s >= tick_end_s or start_s > until_s:
                break
            whole_s = (item.fixed_s + item.cycles * per_mhz) * gain
            if item.warm is not None:
                began_s = start_s if item.start_s < 0.0 else item.start_s
                whole_s *= 1.0 + item.warm[0] * math.exp(-began_s / item.warm[1])
            span_s = whole_s * item.left
            end_s = start_s + span_s
            if end_s <= until_s:
                if item.start_s < 0.0:
                    item.start_s = start_s
                item.end_s = end_s
                now_s = end_s
                self.active_s += span_s * item.activity
                self.busy_s += span_s
                item.busy_s = self.busy_s
                queue.popleft()
            elif is_whole:
                if item.start_s < 0.0:
                    item.start_s = start_s
                span_s = tick_end_s - start_s
                item.left -= span_s / whole_s
                self.active_s += span_s * item.activity
                self.busy_s += span_s
                break
            else:
                break
        if is_whole:
            now_s = tick_end_s
        self.cursor_s = now_s


class Machine:
    """A board, its streams and its neighbours on one time line that starts at 0."""

    def __init__(
        self,
        card: Card,
        seed: int,
        neighbours: Sequence[Neighbour] = (),
        *,
        keep_all: bool = False,
    ) -> None:
        self.card = card
        self.board = Board(card, seed)
        self.streams = [Stream()]
        self.rows: list[TickRow] = []
        """One per tick that has passed, from number `first_row` on."""
        self.first_row = 0
        self._presences = [Presence(n, seed, i) for i, n in enumerate(neighbours)]
        self._keep = 0 if keep_all else math.ceil(_KEEP_S / self.board.dt_s)
        self._tick = 0
        self._tick_end_s = self.board.dt_s
        self._total_s = 0.0
        self._gain = 1.0
        self._extra_w = 0.0
        self._look_around(0.0)

    @property
    def dt_s(self) -> float:
        """Length of a tick."""
        return self.board.dt_s

    @property
    def gain(self) -> float:
        """How much longer everything takes now because of neighbours."""
        return self._gain

    def neighbours_now(self) -> list[Neighbour]:
        """Who else is on the card in the current tick."""
        at_s = self._tick * self.board.dt_s
        return [p.neighbour for p in self._presences if p.at(at_s)]

    def advance(self, until_s: float) -> None:
        """Let time pass up to `until_s`; no work may be added before that afterwards."""
        while until_s >= self._tick_end_s:
            self._run(self._tick_end_s)
            self._close_tick()
        self._run(until_s)

    def _run(self, until_s: float) -> None:
        board = self.board
        per_mhz = 1.0 / board.mhz
        for stream in self.streams:
            stream.run(until_s, self._tick_end_s, per_mhz, self._gain)

    def _close_tick(self) -> None:
        dt_s = self.board.dt_s
        active_s = total_s = 0.0
        for stream in self.streams:
            active_s += stream.active_s
            total_s += stream.busy_s
            stream.active_s = 0.0
        activity, busy = active_s / dt_s, (total_s - self._total_s) / dt_s
        if len(self.streams) > 1:
            activity, busy = min(activity, 1.0), min(busy, 1.0)
        self._total_s = total_s
        rows = self.rows
        rows.append(self.board.step(activity, busy, self._extra_w))
        self._tick += 1
        # From the number, not by adding up: the grid must not depend on how long it has run.
        self._tick_end_s = (self._tick + 1) * dt_s
        if self._presences:
            self._look_around(self._tick * dt_s)
        if self._keep and len(rows) > 2 * self._keep:
            del rows[: -self._keep]
            self.first_row = self._tick - self._keep

    def _look_around(self, at_s: float) -> None:
        gain, extra_w, hidden = 1.0, 0.0, 0.0
        for presence in self._presences:
            if presence.at(at_s):
                gain *= 1.0 + presence.neighbour.gain
                extra_w += presence.neighbour.power * self.card.cap_w
                hidden = max(hidden, presence.neighbour.hidden)
        self._gain, self._extra_w, self.board.hidden = gain, extra_w, hidden

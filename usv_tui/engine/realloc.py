"""Rows built afresh in the midst of a run, so that their times are not those of one placement.

The new buffers are made while the old ones are still there, so they lie elsewhere, and whatever
goes wrong with them leaves the row as it was. Happens between rounds, in the thread that measures.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from usv_tui.model import RunConfig
from usv_tui.suite.reach import is_array, objects
from usv_tui.timers.cache import storages
from usv_tui.timers.phases import unwrap
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.engine.row import Row

USUAL = 7
"""Times, where nothing is said: eight allocations tell their variance."""
CHEAP_NS = NS_PER_S // 10
"""Set-up and first call of a row that is built afresh without being asked for …"""
AFFORDABLE_NS = 5 * NS_PER_S
"""… and where the user has asked."""
_SHARE = 0.15
"""Of the time between, spent on building without being asked for."""
_SHORTEST_NS = NS_PER_S
_LONGEST_NS = 3 * NS_PER_S
_FEWEST_ROUNDS = 30
_LEAST_BYTES = 64
"""A smaller array is a number."""
_MOST_OF_FREE = 0.25
"""Of the memory that is free, a second copy of a row's buffers may take."""
_MOST_HELD = 128 << 20
"""Old buffers are kept up to this size, so that new ones do not fall into their places."""


class Attempt(NamedTuple):
    """A row built afresh, or why it was not."""

    slot: Slot | None
    reason: str = ""
    took_ns: int = 0
    is_failure: bool = False
    """It raised."""


class Reallocation:
    """When rows are built afresh in a run, and which of them."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.is_asked = config.realloc is not None
        is_on = self.is_asked or config.control
        self.left = config.realloc if config.realloc is not None else USUAL
        self._wanted: set[int] | None = None if is_on else set()
        """None: every row."""
        self._next: tuple[int, int] | None = None
        """Time and round before which nothing is done."""
        self._spacing_ns = _LONGEST_NS
        self._given_up: set[int] = set()
        self._held: list[tuple[int, object]] = []

    def want(self, benches: Sequence[int]) -> None:
        """These rows, too: their ratio is so near to 1 that placement may be all there is to it."""
        if self._wanted is not None:
            self._wanted.update(benches)

    def is_due(self, now_ns: int, round_: int, left_ns: int | None, done: int) -> bool:
        """Whether it is time, given the time that is left and the samples that all rows have."""
        if not self.left or self._wanted == set():
            return False
        if self._next is None:
            self._plan(now_ns, round_, left_ns, done)
        assert self._next is not None
        return now_ns >= self._next[0] and round_ >= self._next[1]

    def _plan(self, now_ns: int, round_: int, left_ns: int | None, done: int) -> None:
        iters = self._config.iters
        rounds = _FEWEST_ROUNDS
        if iters is not None:
            rounds = max(rounds, (iters - done) // (self.left + 1))
            self._spacing_ns = 0
        elif left_ns is not None:
            even_ns = left_ns // (self.left + 1)
            self._spacing_ns = max(_SHORTEST_NS, min(_LONGEST_NS, even_ns))
        self._next = now_ns + self._spacing_ns, round_ + rounds

    def done(self) -> None:
        """One time is used up; the next is planned when it is asked for."""
        self.left -= 1
        self._next = None

    def choose(self, rows: Sequence["Row"], bases: set[int]) -> list["Row"]:
        """Those to be built now: baselines first, as far as building is cheap."""
        left_ns = float("inf") if self.is_asked else _SHARE * max(self._spacing_ns, _SHORTEST_NS)
        found = []
        for row in sorted(rows, key=lambda r: r.bench not in bases and r.control_of is None):
            is_wanted = self._wanted is None or row.bench in self._wanted
            if not is_wanted or row.bench in self._given_up or row.build_ns > left_ns:
                continue
            left_ns -= row.build_ns
            found.append(row)
        return found

    def obstacle(self, row: "Row", free_bytes: int | None) -> str:
        """Why this row is not to be built once more; empty where it may be."""
        slot = row.slot
        assert slot is not None
        most_ns = AFFORDABLE_NS if self.is_asked else CHEAP_NS
        if row.build_ns > most_ns:
            return f"its set-up takes {row.build_ns / NS_PER_S:.2g} s"
        if unwrap(slot.fn) is not slot.fn or "graph" in slot.hints:
            return "it is timed in phases or as a graph"
        if row.subject is not None and row.subject.inputs is not None:
            return "its inputs come from a factory of their own"
        if not _memory(slot.fn):
            return "no array or tensor of its own was found"
        if free_bytes is not None and row.built_bytes > _MOST_OF_FREE * free_bytes:
            return "a second copy of its buffers may not fit"
        return ""

    def give_up(self, row: "Row") -> None:
        """This row stays as it is from now on."""
        self._given_up.add(row.bench)

    def hold(self, old: object, size: int) -> None:
        """Keep what was replaced, as long as it is small."""
        self._held.append((size, old))
        while self._held and sum(size for size, _ in self._held) > _MOST_HELD:
            self._held.pop(0)

    def release(self) -> None:
        """Let go of all that is held."""
        self._held.clear()


def is_elsewhere(old: Callable[[], object], new: Callable[[], object]) -> bool:
    """Whether a callable uses memory that another one does not."""
    return bool(_memory(new).keys() - _memory(old).keys())


def _memory(fn: Callable[[], object]) -> dict[int, int]:
    """Where the arrays and tensors lie that a callable holds."""
    arrays = filter(is_array, objects(fn))
    return {at: size for at, size in storages(arrays).items() if size >= _LEAST_BYTES}

"""How long should a window be? As long as gives the narrowest ratio in the same time.

On a quiet machine a millisecond is good: what the timer costs is spread over many calls. Where
others take the CPU now and then, long windows nearly all hold such a gap, and shorter ones answer.
"""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from usv_tui.copies import leave_if_copy
from usv_tui.engine.calibrate import PROBE_ROUND
from usv_tui.stats.basics import madn
from usv_tui.timers.wall import Failure, Slot, Timer

DEFAULT_S = 1e-3
LENGTHS_S = (0.25e-3, DEFAULT_S, 4e-3)
"""The window lengths that are tried."""
_BATCH_S = 8e-3
"""About how much of each row's time one batch of a length holds."""
_LEAST_ROUNDS = 20
_ENOUGH_ROUNDS = 60
_LEAST_SPREAD = 1e-5
_BETTER = 0.75
"""Another length is taken when its ratios are this much narrower: below is the luck of the draw."""


class Trial(NamedTuple):
    """What one length gave."""

    window_s: float
    spread: float
    """Robust standard deviation of the log of one round's ratio, geometric mean over pairs."""
    round_s: float
    """Time of one round, all told."""
    rounds: int

    @property
    def width(self) -> float:
        """Spread of a ratio after a second of rounds."""
        return self.spread * math.sqrt(self.round_s)


class Choice(NamedTuple):
    """The length to take, and what it was chosen by."""

    window_s: float
    trials: tuple[Trial, ...] = ()
    failure: Failure | None = None

    @property
    def is_news(self) -> bool:
        """True when it is not the default."""
        return self.window_s != DEFAULT_S


def choose(trials: Sequence[Trial]) -> float:
    """The length whose ratio is narrowest for its time; the default unless that is clearly worse.

    Lengths with too few rounds decide nothing, nor does a ratio that hardly varies as it is.
    """
    known = [t for t in trials if t.rounds >= _LEAST_ROUNDS]
    usual = next((t for t in known if t.window_s == DEFAULT_S), None)
    if usual is None or usual.spread <= _LEAST_SPREAD:
        return DEFAULT_S
    best = min(known, key=lambda t: t.width)
    return best.window_s if best.width < _BETTER * usual.width else DEFAULT_S


Inners = dict[int, int]
"""Calls a window by row."""


def try_lengths(
    timer: Timer,
    slots: Sequence[Slot],
    pairs: Sequence[tuple[int, int]],
    inners: dict[float, Inners],
    clock: Callable[[], int],
    *,
    budget_ns: float,
    seed: int = 0,
) -> Choice:
    """Time the pairs at each length in turn, batch after batch, and choose.

    `pairs` are (row, its baseline); `inners` gives each row's calls for each length. Lengths that
    make the same windows as a shorter one are not tried. The slots' own calls are left as they
    were; the timer must have been harvested.
    """
    lengths = _different(inners)
    trials = {length: _Tally(pairs) for length in lengths}
    if len(lengths) < 2:
        return Choice(DEFAULT_S)
    twins = {length: _at(slots, inners[length]) for length in lengths}
    random = Random(seed)
    end_ns = clock() + budget_ns
    while clock() < end_ns and min(t.rounds for t in trials.values()) < _ENOUGH_ROUNDS:
        for length in random.sample(lengths, len(lengths)):
            order = [
                slot
                for _ in range(max(1, round(_BATCH_S / length)))
                for slot in random.sample(twins[length], len(slots))
            ]
            failure = trials[length].time(timer, order, len(slots), clock)
            if failure is not None:
                return Choice(DEFAULT_S, failure=failure)
    done = tuple(trials[length].trial(length) for length in lengths)
    return Choice(choose(done), done)


def _different(inners: dict[float, Inners]) -> list[float]:
    """The lengths, without those that give the default's windows."""
    usual = inners[DEFAULT_S]
    return [s for s, calls in inners.items() if s == DEFAULT_S or calls != usual]


def _at(slots: Sequence[Slot], inners: Inners) -> list[Slot]:
    twins = [slot.twin(slot.refill) for slot in slots]
    for twin in twins:
        twin.inner = inners[twin.bench]
    return twins


class _Tally:
    """The rounds of one length."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = pairs
        self._logs: list[list[float]] = [[] for _ in pairs]
        self._took_ns = 0
        self.rounds = 0

    def time(
        self, timer: Timer, order: Sequence[Slot], size: int, clock: Callable[[], int]
    ) -> Failure | None:
        """One batch of rounds."""
        start_ns = clock()
        failure = timer.enqueue(PROBE_ROUND, order, size)
        leave_if_copy(None if failure is None else failure[1])
        try:
            blocks = timer.harvest(wait=True)
        except Exception as error:  # noqa: BLE001  a device's error comes to light when it is read
            return failure or (order[0], error)
        self._took_ns += clock() - start_ns
        samples = [
            (bench, window_ns / inner)
            for block in blocks
            for bench, window_ns, inner in zip(
                block.bench, block.window_ns, block.inners(), strict=True
            )
        ]
        for first in range(0, len(samples) - size + 1, size):
            self.rounds += 1
            times = dict(samples[first : first + size])
            for (row, base), logs in zip(self._pairs, self._logs, strict=True):
                if times[row] > 0 and times[base] > 0:
                    logs.append(math.log(times[row] / times[base]))
        return failure

    def trial(self, window_s: float) -> Trial:
        """What came of it."""
        spreads = [max(_LEAST_SPREAD, madn(np.array(logs))) for logs in self._logs]
        spread = math.exp(sum(map(math.log, spreads)) / len(spreads))
        round_s = self._took_ns * 1e-9 / max(1, self.rounds)
        return Trial(window_s, spread, round_s, min(map(len, self._logs), default=0))

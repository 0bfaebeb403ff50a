"""Fresh inputs of a row: several sets, handed to its callable in turn.

The sets are drawn and renewed outside of every window; inside it is the callable alone, which
`starmap` calls with the arguments of the next set.
"""

import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from usv_tui.suite import values

COUNT = 3
_LARGE_BYTES = 1 << 30
"""A set that is larger is made twice only."""


def seed_generators(seed: int) -> None:
    """Seed the generators that a benchmark draws its inputs from, where they are loaded."""
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))
    if hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)  # type: ignore[union-attr]


class Inputs:
    """The sets of one row, and its callable bound to them."""

    def __init__(self, make: Callable[[], Any], fn: Callable[..., object], seed: int) -> None:
        self._make = make
        self.fn = fn
        first = self.draw(seed)
        count = COUNT if values.size_bytes(first) < _LARGE_BYTES else 2
        self.sets = [first, *(self.draw(seed + i) for i in range(1, count))]
        self._current = list(first)
        self._pristine: list[list[Any]] = []
        self._turn = 0
        self.own_reset: Callable[[], object] | None = None
        """The row's, where putting its inputs back has taken its place."""
        results = itertools.starmap(fn, itertools.cycle(self.sets))
        self.first: Callable[[], object] = results.__next__
        """The callable with the next set's arguments; returns the result."""
        self.call = self._dropping(results)
        """The same as it is timed."""

    def _dropping(self, results: Iterator[object]) -> Callable[[], object]:
        """Results go where an audit would keep them, so that neither is told from the other."""
        return map(deque[Any](maxlen=0).append, results).__next__

    @property
    def is_restored(self) -> bool:
        """Whether the callable changes its arguments, so that each call gets them anew."""
        return bool(self._pristine)

    def draw(self, seed: int) -> list[Any]:
        """A set that nobody has seen, the same for every row that draws alike."""
        seed_generators(seed)
        made = self._make()
        return list(made) if isinstance(made, tuple | list) else [made]

    def renew(self, which: int, fresh: list[Any]) -> list[Any]:
        """Put new content into a set, in its own memory where it fits; returns the set."""
        held = self.sets[which]
        held[:] = (
            [values.overwrite(a, b) for a, b in zip(held, fresh, strict=True)]
            if len(held) == len(fresh)
            else fresh
        )
        if self._pristine:
            self._pristine[which] = values.clone(held)
        return held

    def calls_up_to(self, which: int, count: int) -> Iterator[object]:
        """Results of calls with the sets in their turn, of which the last of `count` has this."""
        total = len(self.sets)
        turns = itertools.islice(itertools.cycle(self.sets), (which + 1 - count) % total, None)
        return itertools.starmap(self.fn, turns)

    def put_back_always(self, pristine: list[list[Any]]) -> None:
        """From here on each call is handed what the sets were before the callable changed them."""
        self._pristine = pristine
        self.call = self._dropping(itertools.starmap(self.fn, itertools.repeat(self._current)))
        self.put_back()

    def put_back(self) -> None:
        """The next set as it was drawn: untimed, before each call."""
        self._turn = (self._turn + 1) % len(self.sets)
        held = self.sets[self._turn]
        fresh = values.clone(self._pristine[self._turn])
        held[:] = [values.overwrite(a, b) for a, b in zip(held, fresh, strict=True)]
        self._current[:] = held

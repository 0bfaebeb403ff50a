"""In which order the rows are timed: shuffled rounds in which every live row takes part.

A row that is faster than the others takes more samples in each round, so that all rows span the
whole run and nobody is measured alone at its end.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import permutations
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_MOST_LISTED = 6
"""Rounds up to this size are drawn from a list of all their orders (6! = 720)."""


class Schedule(Generic[T]):
    """Endless shuffled rounds; a row with quota q appears q times in each of them.

    The same quotas, changes and seed give the same order. Rows may be anything hashable: ids, or
    the timer's slots themselves.
    """

    def __init__(self, quotas: Mapping[T, int], seed: int = 0) -> None:
        self.seed = seed
        self._random = Random(seed)
        self._quotas: dict[T, int] = {}
        self._round: list[T] = []
        self._orders: list[tuple[T, ...]] = []
        for row, quota in quotas.items():
            self.set(row, quota)

    @property
    def quotas(self) -> dict[T, int]:
        """Samples a round of each live row."""
        return dict(self._quotas)

    @property
    def size(self) -> int:
        """Samples in one round; 0 when no row is live."""
        return len(self._round)

    def set(self, row: T, quota: int) -> None:
        """Let a row take `quota` samples a round from now on; 0 retires it.

        Raises:
            ValueError: a negative quota.
        """
        if quota < 0:
            raise ValueError(f"a quota is at least 0, not {quota}")
        if quota:
            self._quotas[row] = quota
        else:
            self._quotas.pop(row, None)
        self._round = [r for r, q in self._quotas.items() for _ in range(q)]
        listed = len(self._round) <= _MOST_LISTED
        self._orders = list(permutations(self._round)) if listed else []

    def next_round(self) -> list[T]:
        """The next round's order; empty when no row is live."""
        return self.block(1)

    def block(self, rounds: int) -> list[T]:
        """The next so many rounds, one after the other: `size` slots each."""
        # Drawn between windows for every sample, so cheaply: one random number a round while its
        # orders can be listed, else a sort by random keys, half the price of Random.shuffle.
        draw = self._random.random
        order: list[T] = []
        if self._orders:
            orders, n = self._orders, len(self._orders)
            for _ in range(rounds):
                order += orders[int(draw() * n)]
        else:
            for _ in range(rounds):
                order += _shuffled(self._round, self._random)
        return order


def spread(budgets: Mapping[T, int], seed: int = 0) -> Iterator[list[T]]:
    """Finite shuffled rounds that give each row exactly its budget of samples.

    There are as many rounds as the smallest budget above zero has samples, and every row takes
    its share of each, even to one sample: at least one, and no row ends before the others do.
    """
    live = {row: budget for row, budget in budgets.items() if budget > 0}
    rounds = min(live.values(), default=0)
    if all(budget % rounds == 0 for budget in live.values()):
        # Every round is like the others: the cheap draw of the endless schedule.
        quotas = {row: budget // rounds for row, budget in live.items()}
        next_round = Schedule(quotas, seed).next_round
        yield from (next_round() for _ in range(rounds))
        return
    random = Random(seed)
    for i in range(rounds):
        order = [
            row
            for row, budget in live.items()
            for _ in range((i + 1) * budget // rounds - i * budget // rounds)
        ]
        yield _shuffled(order, random)


def _shuffled(order: Sequence[T], random: Random) -> list[T]:
    """The order sorted by random keys: every permutation equally likely."""
    key = random.random
    return sorted(order, key=lambda _: key())

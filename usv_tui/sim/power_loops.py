"""Ways in which a governor keeps the power under its cap: each makes another kind of dither."""

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from usv_tui.sim.profiles import Card

_UP_S = 0.05
_SAW_UP_S = 0.03
_SAW_DOWN = 8
_HOP_STEPS = 5


class PowerLoop(Protocol):
    """Chooses the table entry of the next tick."""

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """The entry to go to, at most `limit`; may be negative far above the cap."""
        ...


def power_loop(card: Card, seed: int) -> PowerLoop:
    """The loop that a card's governor runs."""
    return _KINDS[card.controller](card, seed)


class TableLoop:
    """Fast down, slow up, and free while far below the cap."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._ramp = card.ramp_steps
        self._dt_s = card.governor_ns * 1e-9
        self._since_up_s = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._since_up_s += self._dt_s
        if mean_w > cap_w:
            down = math.ceil(25.0 * (mean_w / cap_w - 1.0))
            return min(index, limit) - min(down, 6)
        if index < limit:
            if mean_w < 0.9 * cap_w:
                index = min(limit, index + self._ramp)
            elif mean_w < 0.98 * cap_w and self._since_up_s >= _UP_S - 1e-9:
                index += 1
                self._since_up_s = 0.0
        return min(index, limit)


class PiLoop:
    """Proportional and integral control at 97 % of the cap: smooth, without a limit cycle."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._top = card.top
        self._dt_s = card.governor_ns * 1e-9
        self._place: float | None = None
        self._before = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        error = 0.97 - mean_w / cap_w
        place = float(index) if self._place is None else self._place
        place += self._top * (0.15 * (error - self._before) + 0.8 * error * self._dt_s)
        self._before = error
        self._place = min(max(place, 0.0), float(limit))
        return min(round(self._place), limit)


class SawtoothLoop:
    """Climbs step by step until it is over the cap, then falls by a lot: a limit cycle."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._since_s = 0.0
        self._down = max(int(_SAW_DOWN * 15 // card.step_mhz), _SAW_DOWN)
        self._up = card.entries_of_15_mhz

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._since_s += self._dt_s
        if self._since_s < _SAW_UP_S - 1e-9:
            return min(index, limit)
        self._since_s = 0.0
        if mean_w > cap_w:
            return min(index, limit) - self._down
        return min(index + self._up, limit)


class HoppingLoop:
    """Stands on one of a few coarse levels and hops to a neighbour after a random stay."""

    def __init__(self, card: Card, seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._grid = _HOP_STEPS * card.entries_of_15_mhz
        self._stay_s = 0.0
        self._rng = np.random.default_rng([seed, 6])

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._stay_s -= self._dt_s
        if self._stay_s > 0.0 and mean_w < 1.1 * cap_w:
            return min(index, limit)
        self._stay_s = float(self._rng.uniform(0.2, 1.2))
        level = index // self._grid
        if mean_w > 0.985 * cap_w:
            level -= 1
        elif mean_w < 0.95 * cap_w:
            level += 1
        return min(max(level, 0) * self._grid, limit)


class BangLoop:
    """Two clocks a few steps apart: the lower once over the cap, the upper once well below it."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._jump = 4 * card.entries_of_15_mhz
        self._base: int | None = None
        self._since_s = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._since_s += self._dt_s
        if self._base is None or mean_w > 1.06 * cap_w or index < self._base:
            self._base = max(index - self._jump, 0)
        if mean_w > cap_w and self._since_s > 0.1:
            self._since_s = 0.0
            return min(self._base if index > self._base else index - 1, limit)
        if mean_w < 0.97 * cap_w and self._since_s > 0.25:
            self._since_s = 0.0
            return min(index + self._jump, limit)
        return min(index, limit)


class WalkLoop:
    """Takes random steps, down when over the cap and up when below: a clock that wanders."""

    def __init__(self, card: Card, seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._step = card.entries_of_15_mhz
        self._since_s = 0.0
        self._rng = np.random.default_rng([seed, 9])

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._since_s += self._dt_s
        if self._since_s < 0.08:
            return min(index, limit)
        self._since_s = 0.0
        size = int(self._rng.integers(0, 4)) * self._step
        up = self._rng.random() < (0.15 if mean_w > 0.98 * cap_w else 0.75)
        return min(index + (size if up else -size), limit)


class PredictLoop:
    """Goes, ten times a second, straight to the clock that it reckons to draw 96 % of the cap."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._every = max(round(0.1 / (card.governor_ns * 1e-9)), 1)
        self._count = 0
        self._mean = 0.0
        self._most = 12 * card.entries_of_15_mhz

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._count += 1
        self._mean += mean_w / cap_w / self._every
        if self._count < self._every:
            return min(index, limit)
        # Power grows with about the square of the clock.
        wanted = index * math.sqrt(0.96 / max(self._mean, 0.1))
        self._count, self._mean = 0, 0.0
        move = max(-self._most, min(self._most, math.floor(wanted) - index))
        return min(index + move, limit)


class StairsLoop:
    """Stands for 0.7 s, then goes one coarse step by how the power was on average meanwhile."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._every = round(0.7 / (card.governor_ns * 1e-9))
        self._grid = 2 * card.entries_of_15_mhz
        self._count = 0
        self._mean = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move; at once only far over the cap."""
        self._count += 1
        self._mean += mean_w / cap_w / self._every
        if self._count < self._every and mean_w < 1.15 * cap_w:
            return min(index, limit)
        mean = self._mean * self._every / self._count
        self._count, self._mean = 0, 0.0
        fast = 4 if mean < 0.8 else 1
        move = -1 if mean > 0.99 else fast if mean < 0.955 else 0
        return min(index + move * self._grid, limit)


class PatientLoop:
    """Down a few steps once over the cap for 50 ms on end, up one after 0.4 s well below it."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._step = card.entries_of_15_mhz
        self._over_s = self._under_s = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._over_s = self._over_s + self._dt_s if mean_w > cap_w else 0.0
        self._under_s = self._under_s + self._dt_s if mean_w < 0.96 * cap_w else 0.0
        if self._over_s > 0.05:
            self._over_s = 0.0
            return min(index, limit) - 3 * self._step
        if mean_w < 0.8 * cap_w:
            return min(index + self._step, limit)
        if self._under_s > 0.4:
            self._under_s = 0.0
            return min(index + self._step, limit)
        return min(index, limit)


class DutyLoop:
    """Shares the time between two neighbouring coarse clocks, as the power asks for."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._grid = 3 * card.entries_of_15_mhz
        self._place: float | None = None
        self._phase_s = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move: the share follows slowly, the turns come every 0.12 s."""
        place = index / self._grid if self._place is None else self._place
        place += 0.6 * (0.975 - mean_w / cap_w) * limit / self._grid * self._dt_s
        self._place = min(max(place, 0.0), limit / self._grid)
        self._phase_s = (self._phase_s + self._dt_s) % 0.12
        level = math.floor(self._place)
        level += self._phase_s < 0.12 * (self._place - level)
        return min(level * self._grid, limit)


class DeadbandLoop:
    """Stands between 94 and 100 % of the cap; two steps down above it, one up below."""

    def __init__(self, card: Card, _seed: int) -> None:
        self._dt_s = card.governor_ns * 1e-9
        self._step = card.entries_of_15_mhz
        self._since_s = 0.0

    def next(self, index: int, limit: int, mean_w: float, cap_w: float) -> int:
        """One move."""
        self._since_s += self._dt_s
        if mean_w > cap_w and self._since_s > 0.03:
            self._since_s = 0.0
            return min(index, limit) - 2 * self._step
        if mean_w < 0.94 * cap_w and self._since_s > 0.06:
            self._since_s = 0.0
            return min(index + self._step, limit)
        return min(index, limit)


_KINDS: Mapping[str, Callable[[Card, int], PowerLoop]] = {
    "table": TableLoop,
    "pi": PiLoop,
    "sawtooth": SawtoothLoop,
    "hopping": HoppingLoop,
    "bang": BangLoop,
    "walk": WalkLoop,
    "predict": PredictLoop,
    "stairs": StairsLoop,
    "patient": PatientLoop,
    "duty": DutyLoop,
    "deadband": DeadbandLoop,
}

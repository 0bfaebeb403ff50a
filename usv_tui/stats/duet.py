"""Is version B faster than version A? A ratio a launch, and over launches what the next one tells.

Within a launch, pairs of turns are compared; they tell how well this launch is known. Another
launch has its memory elsewhere and its tuner's choice may differ: the variance between launches is
most often the larger one, and the one that a verdict on a version answers for. So the interval is
Student's over launches, and never narrower than what the pairs within them allow.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from usv_tui.model import Answer
from usv_tui.stats.basics import FloatArray, IntArray, correlation_time, normal_quantile

ALPHA = 0.05
BAND = 0.002
"""Two workers cannot be told apart by less: neither is called faster for it."""
SAME = 0.01
"""The whole interval within this is called the same."""
FEWEST_PAIRS = 8
"""A launch of fewer pairs of turns tells nothing of a row."""
_TRIM = 0.25
"""The middle half of the pairs counts: on a busy host many turns are interrupted."""


class LaunchRatio(NamedTuple):
    """One row in one launch: log of B's time over A's, and the standard error of its pairs."""

    number: int
    centre: float
    error: float
    pairs: int

    @property
    def ratio(self) -> float:
        """B's time over A's."""
        return math.exp(self.centre)


def launch_ratio(
    number: int, differences: FloatArray, is_first: IntArray | FloatArray
) -> LaunchRatio | None:
    """From the pairs of one launch: log B - log A, and whether A's turn was the first.

    Both orders have the same say, so that what drifts within a pair leaves nothing behind.
    """
    n = differences.size
    if n < FEWEST_PAIRS:
        return None
    parts = [differences[is_first == 1], differences[is_first == 0]]
    parts = [part for part in parts if part.size]
    centre = float(np.mean([_trimmed(part) for part in parts]))
    variance = sum(_variance(part) / part.size for part in parts) / len(parts) ** 2
    tau = max(1.0, correlation_time(differences - centre)) if n >= 2 * FEWEST_PAIRS else 1.0
    return LaunchRatio(number, centre, math.sqrt(variance * tau), n)


def _trimmed(values: FloatArray) -> float:
    cut = int(values.size * _TRIM)
    ordered = np.sort(values)
    return float(np.mean(ordered[cut : values.size - cut]))


def _variance(values: FloatArray) -> float:
    """Of what the trimmed mean sees: the outermost are drawn in."""
    cut = int(values.size * _TRIM)
    ordered = np.sort(values)
    drawn = np.clip(values, ordered[cut], ordered[values.size - cut - 1])
    return float(np.var(drawn, ddof=1)) / (1 - 2 * _TRIM) ** 2 if values.size > 1 else 0.0


class OverLaunches(NamedTuple):
    """One row over all launches: logs of B's time over A's."""

    centre: float
    half: float | None
    """Half the 95 % interval; None where there is none."""
    p: float
    """Of a difference as large by chance; 1 where there is no interval."""
    between: float | None
    """Standard deviation between launches; None with one."""
    within: float
    """Standard error of one launch, from its pairs."""
    launches: int

    @property
    def ratio(self) -> float:
        """B's time over A's."""
        return math.exp(self.centre)

    @property
    def low(self) -> float | None:
        """Where the interval begins."""
        return None if self.half is None else math.exp(self.centre - self.half)

    @property
    def high(self) -> float | None:
        """Where it ends."""
        return None if self.half is None else math.exp(self.centre + self.half)


def over_launches(launches: Sequence[LaunchRatio], alpha: float = ALPHA) -> OverLaunches | None:
    """The two levels together; of a single launch its pairs alone, which is too narrow."""
    if not launches:
        return None
    values = np.array([one.centre for one in launches])
    n = values.size
    centre = float(values.mean())
    within = math.sqrt(float(np.mean([one.error**2 for one in launches])))
    floor = within / math.sqrt(n)
    if n == 1:
        half = normal_quantile(1 - alpha / 2) * floor
        return OverLaunches(centre, half, _p_normal(centre, floor), None, within, 1)
    between = float(values.std(ddof=1))
    error = between / math.sqrt(n)
    half = max(tail_quantile(1 - alpha / 2, n - 1) * error, normal_quantile(1 - alpha / 2) * floor)
    p = max(_p_t(centre, error, n - 1), _p_normal(centre, floor))
    return OverLaunches(centre, half, p, between, within, n)


def _beyond(centre: float) -> float:
    """By how much a difference is beyond what no two workers can be told apart by."""
    return max(0.0, abs(centre) - math.log1p(BAND))


def _p_normal(centre: float, error: float) -> float:
    beyond = _beyond(centre)
    if not beyond:
        return 1.0
    return math.erfc(beyond / error / math.sqrt(2)) if error else 0.0


def _p_t(centre: float, error: float, df: int) -> float:
    beyond = _beyond(centre)
    if not beyond:
        return 1.0
    return 2 * (1 - t_cdf(beyond / error, df)) if error else 0.0


def answer(centre: float, half: float | None, p: float, alpha: float = ALPHA) -> Answer:
    """What may be said at this level."""
    if half is None:
        return Answer.UNDECIDED
    if p < alpha:
        return Answer.FASTER if centre < 0 else Answer.SLOWER
    edge = math.log1p(SAME)
    is_inside = -edge <= centre - half and centre + half <= edge
    return Answer.SAME if is_inside else Answer.UNDECIDED


def holm(ps: Sequence[float]) -> list[float]:
    """The p of each member of a family when all of them are looked at (Holm's step-down)."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, largest = [1.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted


# -- Student's t for whole degrees of freedom: that of `basics` is not for tails as far out as
# those of a family of many rows


def t_cdf(t: float, df: int) -> float:
    """P(T <= t) with so many degrees of freedom."""
    theta = math.atan(t / math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    if df % 2:
        total, term = 0.0, math.cos(theta)
        for k in range(1, df - 1, 2):
            total += term
            term *= cos2 * (k + 1) / (k + 2)
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, df - 1, 2):
            total += term
            term *= cos2 * (k + 1) / (k + 2)
        inside = math.sin(theta) * total
    return 0.5 + inside / 2


def tail_quantile(share: float, df: int) -> float:
    """The t below which this share (above one half) lies."""
    low, high = 0.0, 1.0
    while t_cdf(high, df) < share:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < share else (low, middle)
    return (low + high) / 2

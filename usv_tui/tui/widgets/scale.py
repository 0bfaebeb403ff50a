"""Axes: limits that hold still, and round numbers on them."""

import math

SLACK = 0.15
"""Room above and below what must be seen, as a part of its extent."""
SHRINK_BELOW = 0.35
"""Zoom in only when what must be seen fills less than this part of the axis."""


def nice_step(extent: float) -> float:
    """The largest of 1, 2, 5 x 10^k that is at most `extent`."""
    exponent = math.floor(math.log10(extent))
    base = 10.0**exponent
    return next(m * base for m in (5.0, 2.0, 1.0) if m * base <= extent * (1 + 1e-9))


class Scale:
    """Limits of a value axis; they move in steps and late, so that a chart stands still."""

    def __init__(
        self, *, least: float = 0.0, least_part: float = 0.0, bottom: float = -math.inf
    ) -> None:
        """An axis without limits yet.

        Args:
            least: smallest extent, in the values' unit.
            least_part: smallest extent as a part of the values.
            bottom: what the axis never goes below, where values cannot.
        """
        self.low = 0.0
        self.high = 0.0
        self._least = least
        self._least_part = least_part
        self._bottom = bottom

    @property
    def is_set(self) -> bool:
        """True once there were values."""
        return self.high > self.low

    def fit(self, low: float, high: float) -> None:
        """Make sure that `low` … `high` is on the axis, moving the limits only when needed."""
        if not (math.isfinite(low) and math.isfinite(high)):
            return
        extent = max(high - low, self._least, self._least_part * abs(high + low) / 2)
        if extent <= 0:
            extent = abs(high) * 1e-3 or 1.0
        middle = (low + high) / 2
        low, high = min(low, middle - extent / 2), max(high, middle + extent / 2)
        fits = self.is_set and self.low <= low and high <= self.high
        if fits and high - low >= SHRINK_BELOW * (self.high - self.low):
            return
        slack = SLACK * (high - low)
        step = nice_step((high - low + 2 * slack) / 4)
        self.low = max(math.floor((low - slack) / step) * step, self._bottom)
        self.high = math.ceil((high + slack) / step) * step

    def part(self, value: float) -> float:
        """Where a value lies: 0 at the lower limit, 1 at the upper."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, lowest first: as many as `most` allows, at least two."""
        if not self.is_set or most < 1:
            return []
        step = nice_step(self.high - self.low)
        ticks = self._multiples(step)
        while len(ticks) < 2 or len(finer := self._multiples(nice_step(step / 2))) <= most:
            step = nice_step(step / 2)
            ticks = self._multiples(step) if len(ticks) < 2 else finer
        return ticks

    def _multiples(self, step: float) -> list[float]:
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def decimals_for(step: float) -> int:
    """Decimals that tell neighbouring ticks apart."""
    return max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0

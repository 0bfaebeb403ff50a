"""What a window of 20 seconds cannot see: the slow part of a drift, over up to five minutes.

A chassis takes minutes to warm. A line through the levels of the last minutes tells how much may
still come; the thermometer tells it sooner, where there is one.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from usv_tui.stats.basics import NS_PER_S, FloatArray, normal_deviate, t_quantile

MEMORY_S = 300.0
HORIZON_S = 300.0
"""What settled promises is about so long."""
FEWEST = 4
"""Levels a line takes at least."""
Z_SLOW = 3.3
"""Evidence that keeps a row from being settled."""
Z_MOVING = 4.5
FEWEST_MOVING = 6
"""Evidence to call it drifting: a line is looked for at many lengths, every few seconds."""
TEMP_SPAN_S = 90.0
"""A temperature has to have been flat for so long, where the times alone do not suffice."""
TEMP_C_PER_MIN = 0.9
"""A device that warms by more is not settled, whatever its times say."""
FLAT_C_PER_MIN = 0.25
"""By so little a device that is as warm as it gets seems to warm; then noisy times may do."""


class Level(NamedTuple):
    """Where a row stood during one stretch of time."""

    from_ns: int
    to_ns: int
    log_t: float
    temp_c: float | None


class Line(NamedTuple):
    """A line through the last levels."""

    span_s: float
    slope_per_s: float
    se: float
    z: float

    @property
    def change(self) -> float:
        """Along the line, over its span."""
        return self.slope_per_s * self.span_s


class Outlook(NamedTuple):
    """What the slow memory says of one row now."""

    to_come: float | None
    """Bound of the change within the next five minutes, if the slope stays as it is."""
    creep: float
    """The same for the line that is surest, 0 where none is sure."""
    drifts: float
    """Change along a line that is sure and lasts to the end, 0 where there is none."""
    within: float | None
    """Half of the range of the levels held in memory."""
    held_s: float
    warms_c_per_min: float | None
    """Slope of the temperature over the last 90 s; None without a thermometer."""


class SlowMemory:
    """The levels of a row that do not overlap, over the last five minutes."""

    def __init__(self) -> None:
        self._levels: deque[Level] = deque()
        self._outlook: Outlook | None = None
        """Of the levels as they are; None when there are others since."""

    def clear(self) -> None:
        """Forget everything."""
        self._levels.clear()
        self._outlook = None

    def forget_before(self, at_ns: int) -> None:
        """A step has come: what was before it says nothing of what follows."""
        while self._levels and self._levels[0].from_ns < at_ns:
            self._levels.popleft()
            self._outlook = None

    def add(self, level: Level) -> None:
        """Take a level into account, unless it overlaps the last one."""
        if self._levels and level.from_ns < self._levels[-1].to_ns:
            return
        self._levels.append(level)
        self._outlook = None
        while level.to_ns - self._levels[0].from_ns > MEMORY_S * NS_PER_S:
            self._levels.popleft()

    def outlook(self) -> Outlook:
        """What may come, and what has held."""
        if self._outlook is None:
            self._outlook = self._look()
        return self._outlook

    def _look(self) -> Outlook:
        if len(self._levels) < FEWEST:
            return Outlook(None, 0.0, 0.0, None, 0.0, None)
        t = np.array([(one.from_ns + one.to_ns) / 2 for one in self._levels])
        t = (t - t[-1]) / NS_PER_S
        y = np.array([one.log_t for one in self._levels])
        lines = _lines(t, y)
        sure = [line for line in lines if abs(line.z) >= Z_SLOW]
        moving = [x for x in lines[FEWEST_MOVING - FEWEST :] if abs(x.z) >= Z_MOVING]
        creeps = [line.slope_per_s * HORIZON_S for line in sure]
        return Outlook(
            to_come=min(_bound(line, k + FEWEST) for k, line in enumerate(lines)),
            creep=max(creeps, key=abs, default=0.0),
            drifts=max((x.change for x in moving if _lasts(x, lines)), key=abs, default=0.0),
            within=float(y.max() - y.min()) / 2,
            held_s=(self._levels[-1].to_ns - self._levels[0].from_ns) / NS_PER_S,
            warms_c_per_min=self._warming(t),
        )

    def _warming(self, t: FloatArray) -> float | None:
        temps = [one.temp_c for one in self._levels]
        known = [k for k, temp in enumerate(temps) if temp is not None and t[k] >= -TEMP_SPAN_S]
        if len(known) < 3:
            return None
        x = t[known]
        y = np.array([temps[k] for k in known], np.float64)
        x = x - x.mean()
        return 60.0 * float(x @ y) / float(x @ x)


def _lines(t: FloatArray, y: FloatArray) -> list[Line]:
    """A line through the last 4, 5, 6 … levels, all at once."""
    ones = np.ones_like(t)
    n, st, sy, stt, sty, syy = np.cumsum(
        np.stack([ones, t, y - y[-1], t * t, t * (y - y[-1]), (y - y[-1]) ** 2])[:, ::-1], axis=1
    )[:, FEWEST - 1 :]
    vertical = np.maximum(stt - st * st / n, 1e-12)
    level = sty - st * sy / n
    slope = level / vertical
    rest = np.maximum(syy - sy * sy / n - slope * level, 1e-18)
    se = np.sqrt(rest / (n - 2) / vertical)
    z = normal_deviate(slope / se, n - 2)
    span = t[-1] - t[::-1][FEWEST - 1 :]
    return [Line(*row) for row in np.stack([span, slope, se, z], axis=1).tolist()]


def _bound(line: Line, n: int) -> float:
    """The change to come, at most: 95 % of the slope's own error included."""
    return HORIZON_S * (abs(line.slope_per_s) + t_quantile(0.975, n - 2) * line.se)


def _lasts(line: Line, lines: list[Line]) -> bool:
    """The later half still moves the same way: a step that is over does not drift."""
    half = next((x for x in lines if x.span_s >= line.span_s / 2), line)
    same = half.slope_per_s * line.slope_per_s > 0
    return same and abs(half.slope_per_s) >= abs(line.slope_per_s) / 3 and abs(half.z) >= 1.0

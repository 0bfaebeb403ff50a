"""How long a ratio must be watched before it is told that it is small, or that there is none.

A mode that a row keeps for a second, or a clock that stands still for one, looks like a difference
of a few percent, and no interval knows what has not happened yet. So an answer so near to 1 waits
for time, not for rounds. What is far from 1 no such wander explains: it is told at once.
"""

import numpy as np

from usv_tui.stats.basics import NS_PER_S, IntArray

CALM_S = 6.0
"""Modes kept, and other wander, are seldom slower than a fifth of this."""
CALM_REACH = 0.031
"""By so much (log ratio) such wander may fake a difference; twice as much needs a quarter."""
LIMITED_S = 12.0
"""Clocks under a power or thermal limit move as slowly as that …"""
LIMITED_REACH = 0.06
"""… and as far."""
LONGEST_GAP_S = 0.5
"""Between two rounds so much counts as watched, however long the gap is."""
ROUND_S = 0.01
"""A round whose time is not known counts as this long."""


def needed_s(log_ratio: float, *, is_limited: bool) -> float:
    """Seconds that a ratio must have been watched before it has an answer."""
    seconds, reach = (LIMITED_S, LIMITED_REACH) if is_limited else (CALM_S, CALM_REACH)
    return seconds * min(1.0, (reach / max(abs(log_ratio), 1e-9)) ** 2)


class Watch:
    """The time for which rounds have been watched, gaps in it not counted.

    Once it suffices for every answer it is counted no further.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last_ns: int | None = None

    @property
    def is_enough(self) -> bool:
        """No answer needs to be watched for longer."""
        return self.seconds >= LIMITED_S

    def add(self, rounds: int, t_ns: IntArray | None) -> None:
        """So many further rounds, and when each began if that is known."""
        if self.is_enough:
            return
        if t_ns is None:
            self.seconds += rounds * ROUND_S
        elif rounds:
            before = t_ns[0] if self._last_ns is None else self._last_ns
            gaps = np.diff(t_ns, prepend=before)
            self.seconds += float(np.minimum(gaps, LONGEST_GAP_S * NS_PER_S).sum()) / NS_PER_S
            self._last_ns = int(t_ns[-1])

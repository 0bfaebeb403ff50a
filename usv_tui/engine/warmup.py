"""When is a row warm? By its timings, not by a count (and not longer than a cap)."""

import math
import statistics

from usv_tui.timesource import NS_PER_S

MIN_NS = NS_PER_S
"""A card may take half a second to raise its clock: flat times before that prove nothing."""
_MIN_SAMPLES = 12
_QUARTERS = 4
_TOLERANCE = 0.01
"""Two neighbouring quarters of the warm-up may differ by this much, or by their own noise."""


class Levelling:
    """Collects warm-up samples of one row and says when they have stopped moving.

    The medians of the last two quarters of what was seen must agree within 1 %, or within three
    standard errors where the row is noisier than that. At least a second (or `min_ns`, where the
    whole warm-up may not last that long) and 12 samples are looked at.
    """

    def __init__(self, min_ns: int = MIN_NS) -> None:
        self._min_ns = min_ns
        self._t_ns: list[int] = []
        self._value: list[float] = []
        self._look_at = _MIN_SAMPLES
        self._was_level = False

    def add(self, start_ns: int, per_call_ns: float) -> None:
        """One warm-up sample; not-positive ones are no evidence."""
        if per_call_ns > 0:
            self._t_ns.append(start_ns)
            self._value.append(math.log(per_call_ns))

    @property
    def is_level(self) -> bool:
        """True when the last half shows no trend; looked at again after 6 % more samples."""
        n = len(self._value)
        if n < self._look_at or self._t_ns[-1] - self._t_ns[0] < self._min_ns:
            return self._was_level
        # Not after each block: the medians of a long warm-up would cost more than its windows.
        self._look_at = n + n // 16 + 1
        self._was_level = self._look(n // _QUARTERS)
        return self._was_level

    def _look(self, quarter: int) -> bool:
        third = self._value[-2 * quarter : -quarter]
        last = self._value[-quarter:]
        difference = abs(statistics.median(last) - statistics.median(third))
        noise = 1.2533 * math.hypot(_standard_error(third), _standard_error(last))
        return difference <= max(_TOLERANCE, 3 * noise)


def _standard_error(values: list[float]) -> float:
    """Of the mean, from the MAD so that a straggler does not end a warm-up early."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(v - middle) for v in values)
    return spread / math.sqrt(len(values))

"""A worker's clock, held against this process's: what it says has happened, has, and by now.

A file can bend the clock of the process that times it in ways that nobody there sees. Between two
arrivals of its samples as much time went by here as there, and none of them is from the future.
"""

from collections import deque
from collections.abc import Iterable

from usv_tui.codes import Code
from usv_tui.model import Notice
from usv_tui.records import AnyRecord, Bench, Noted, Samples
from usv_tui.timesource import NS_PER_S

_SPAN_NS = 3 * NS_PER_S
"""The least delay within so long is none of a busy host."""
_FEWEST = 5
_SLACK_NS, _SLACK = NS_PER_S, 0.02
"""Delays may grow by so much, or by this share of the time."""
_AHEAD_NS = NS_PER_S // 4


class Bracket:
    """One worker's: fed with its records as they come, it says once what does not fit."""

    def __init__(self) -> None:
        self._delays: deque[tuple[int, int]] = deque()
        """When samples came, and how long after their end."""
        self._began_ns = 0
        self._least_ns: int | None = None
        self._benches: list[int] = []
        self._has_told = False

    def look(self, records: Iterable[AnyRecord], now_ns: int) -> list[AnyRecord]:
        """Records that came now; a notice a row when the clocks have parted."""
        ends = []
        for record in records:
            if isinstance(record, Bench):
                self._benches.append(record.info.bench)
            elif isinstance(record, Samples):
                ends.append(record.end_ns)
        if not ends or self._has_told:
            return []
        apart_ns = self._apart_ns(now_ns - max(ends), now_ns)
        if not apart_ns:
            return []
        self._has_told = True
        evidence = {"apart_s": apart_ns / NS_PER_S, "in_s": (now_ns - self._began_ns) / NS_PER_S}
        return [
            Noted(Notice(code=Code.CLOCK_PARTED, at_ns=now_ns, bench=bench, level="error",
                         evidence=evidence))
            for bench in self._benches
        ]  # fmt: skip

    def _apart_ns(self, delay_ns: int, now_ns: int) -> int:
        """By how much the clocks have parted: behind is positive; 0 while they go together."""
        if delay_ns < -_AHEAD_NS:
            return delay_ns
        self._began_ns = self._began_ns or now_ns
        self._delays.append((now_ns, delay_ns))
        while now_ns - self._delays[0][0] > _SPAN_NS:
            self._delays.popleft()
        span_ns = now_ns - self._delays[0][0]
        if len(self._delays) < _FEWEST or span_ns < _SPAN_NS // 2:
            return 0
        least_ns = min(delay for _, delay in self._delays)
        if self._least_ns is None or least_ns < self._least_ns:
            self._least_ns = least_ns
        apart_ns = least_ns - self._least_ns
        slack_ns = max(_SLACK_NS, _SLACK * (now_ns - self._began_ns))
        return apart_ns if apart_ns > slack_ns else 0

"""Does a callable on the host leave memory behind? Seen from the process's resident size.

An allocator that fills its pools, or a set of buffers that is touched for the first time, grows for
a while and stops; a leak goes on, in even steps. Runs outside timing and costs a row that does not
grow one chunk of calls.
"""

import gc
import itertools
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import memory_grows
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.model import WITHDRAWN
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

_STATM = Path("/proc/self/statm")
_MEMINFO = Path("/proc/meminfo")
_CHUNK = 8
"""Calls between two looks."""
_CHUNKS = 5
_LONGEST_CALL_NS = NS_PER_S // 100
"""Longer calls are not repeated only to watch memory."""
_FLOOR_BYTES = 256 << 10
"""Growth of a chunk below this is noise: the kernel counts pages in batches of each CPU."""
_EVEN = 0.5
"""A leak's smallest step is at least this share of its median one."""
_MOST_MORE = 192
"""Calls that a suspected leak must go on through."""
_MOST_MORE_NS = NS_PER_S // 4
_MOST_MORE_BYTES = 64 << 20
_CHUNK_BYTES = 16 << 20
"""A row that leaves more with each call is looked at after fewer calls."""


def resident_bytes() -> int:
    """Resident size of this process."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except FileNotFoundError:
        import psutil  # noqa: PLC0415  only where there is no /proc

        return int(psutil.Process().memory_info().rss)
    import resource  # noqa: PLC0415  there is none without /proc either

    return pages * resource.getpagesize()


def free_bytes() -> int | None:
    """What this machine has left for us, as far as it tells."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found[1]) << 10


def watch_memory(
    slot: Slot, clock: Callable[[], int], read: Callable[[], int] = resident_bytes
) -> Finding | None:
    """Call a row some times and say whether every call leaves memory behind.

    Silent for rows whose calls are long or leave less than 32 KiB. Exceptions of the row are let
    through.
    """
    sizes = [read()]
    began_ns = clock()
    _call(slot, 1)
    took_ns = clock() - began_ns
    if took_ns > _LONGEST_CALL_NS:
        return None
    first_bytes = max(1, read() - sizes[0])
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // first_bytes))
    _call(slot, chunk - 1)
    sizes.append(read())
    while sizes[-1] - sizes[-2] >= _FLOOR_BYTES and len(sizes) <= _CHUNKS:
        _call(slot, chunk)
        sizes.append(read())
    steps = [b - a for a, b in itertools.pairwise(sizes)]
    if not _is_leak(steps):
        return None
    each = statistics.median(steps) / chunk
    if not _goes_on(slot, each, int(_MOST_MORE_NS // max(1, took_ns)), read):
        return None
    return memory_grows([0, *itertools.accumulate(steps)], chunk)


def _goes_on(slot: Slot, each_bytes: float, most_calls: int, read: Callable[[], int]) -> bool:
    """Whether many more calls leave as much, once what waits for the collector is collected."""
    calls = max(_CHUNK, min(_MOST_MORE, most_calls, int(_MOST_MORE_BYTES / each_bytes)))
    gc.collect()
    before = read()
    _call(slot, calls)
    gc.collect()
    return read() - before >= _EVEN * each_bytes * calls


def _is_leak(steps: list[int]) -> bool:
    least = max(_FLOOR_BYTES, _EVEN * statistics.median(steps))
    return len(steps) >= _CHUNKS and min(steps) >= least


def _call(slot: Slot, times: int) -> None:
    for _ in range(times):
        if slot.reset is not None:
            slot.reset()
        slot.fn()
        leave_if_copy()


def _nothing() -> None:
    pass


# -- over the whole run

_EVERY_NS = NS_PER_S // 4
_WINDOW_NS = 20 * NS_PER_S
_SHORTEST_NS = 6 * NS_PER_S
"""At the end of a run that is shorter than the window."""
_PARTS = 5
_FEWEST_READINGS = 6
_OWN_BYTES = 100
"""What one of our samples takes, in this process or until it is written: generous on purpose."""
_LEAST_BYTES = 3 << 20
"""A process grows by as much in a window without anybody's fault."""
_LEAST_ON_DEVICE = 256 << 10
_GOES_ON = 0.3
"""A leak grows in a part of the window by at least this share of the usual."""
_STEP = 0.6
"""More of the growth in one part of the window is a step."""
_TRIAL_NS = NS_PER_S // 4
"""For calling one row alone, to see whether it is the one."""
_LEAST_ALONE = 64 << 10
_LEAST_A_CALL = 256
_REST_NS = 5 * NS_PER_S
_STOPPED = 0.2


class Growth(NamedTuple):
    """Memory that has grown over a window without an end."""

    where: str
    """process or device."""
    bytes_per_s: float
    error: float
    """Standard error of that, from the window's parts."""
    seconds: float


class Series:
    """Readings of one size, our own samples taken off."""

    def __init__(self, where: str, read: Callable[[], int], least: int, own: int) -> None:
        self.where = where
        self.read = read
        self._least = least
        self._own = own
        self._readings: deque[tuple[int, int]] = deque()

    def add(self, now_ns: int, samples: int) -> None:
        """Read once. After a rest, in which nobody looked, it begins anew."""
        readings = self._readings
        window_ns = _WINDOW_NS
        try:
            size = self.read()
        except OSError:
            return  # the benchmark has used up all descriptors: there is nothing to read it with
        if len(readings) > 1:
            gap_ns = now_ns - readings[-1][0]
            usual_ns = (readings[-1][0] - readings[0][0]) / (len(readings) - 1)
            if gap_ns > max(_REST_NS, 4 * usual_ns):
                readings.clear()
            window_ns = max(_WINDOW_NS, round(_FEWEST_READINGS * usual_ns))
        readings.append((now_ns, size - self._own * samples))
        while len(readings) > 2 and readings[1][0] <= now_ns - window_ns:
            readings.popleft()

    def growth(self, *, is_final: bool = False) -> Growth | None:
        """Growth that goes on through the window: no step, no pool that has filled, no saw."""
        if len(self._readings) < _FEWEST_READINGS:
            return None
        times, sizes = np.array(self._readings, np.float64).T
        span = float(times[-1] - times[0])
        if span < (_SHORTEST_NS if is_final else 0.95 * _WINDOW_NS):
            return None
        ends = np.interp(np.linspace(times[0], times[-1], _PARTS + 1), times, sizes)
        parts = np.diff(ends)
        total = float(parts.sum())
        usual = total / _PARTS
        if total < self._least or parts.max() > _STEP * total or parts[-1] < _GOES_ON * usual:
            return None
        if parts.min() < -usual / 2:
            return None  # it comes back: a saw
        if int((parts >= _GOES_ON * usual).sum()) < (_PARTS if is_final else _PARTS - 1):
            return None
        per_s = NS_PER_S * _PARTS / span
        error = float(parts.std(ddof=1)) * per_s / _PARTS**0.5
        return Growth(self.where, usual * per_s, error, span / NS_PER_S)

    def forget(self) -> None:
        """Begin anew: what comes is another regime."""
        self._readings.clear()

    def last_bytes(self) -> int:
        """The last reading."""
        return self._readings[-1][1] if self._readings else 0


Said = tuple[Code, int | None, dict[str, Any]]
"""Code, row and evidence of a notice."""


class MemoryWatch:
    """The process and the device over the whole run: a few readings a second, between windows.

    Growth that does not end is first held against the garbage collector, then each row is called
    alone to see which one it is; where none is, that is said.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        read: Callable[[], int] = resident_bytes,
        read_device: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._series = [Series("process", read, _LEAST_BYTES, _OWN_BYTES)]
        if read_device is not None:
            self._series.append(Series("device", read_device, _LEAST_ON_DEVICE, 0))
        self._due_ns = 0
        self._settle: Callable[[], object] = _nothing
        self._told: dict[str, tuple[Growth, int | None, int, int]] = {}
        """What was said, of which row, when, and at what size."""

    def size(self) -> int:
        """Bytes in use now, of the process and the device."""
        return sum(series.read() for series in self._series)

    def forget(self) -> None:
        """Begin anew: the rows have other buffers from here on."""
        for series in self._series:
            series.forget()

    def look(
        self,
        samples: int,
        slots: Sequence[Slot],
        *,
        is_final: bool = False,
        settle: Callable[[], object] = _nothing,
    ) -> list[Said]:
        """Read when it is time, and say what is new. Rows may be called: never inside a window.

        `settle` waits until what a call has asked of a device is done.
        """
        self._settle = settle
        now_ns = self._clock()
        if now_ns < self._due_ns and not is_final:
            return []
        self._due_ns = now_ns + _EVERY_NS
        said: list[Said] = []
        for series in self._series:
            series.add(now_ns, samples)
            if series.where in self._told:
                said += self._still(series, now_ns)
                continue
            growth = series.growth(is_final=is_final)
            if growth is not None:
                said += self._confirm(series, growth, slots, samples)
        return said

    def _confirm(
        self, series: Series, growth: Growth, slots: Sequence[Slot], samples: int
    ) -> list[Said]:
        before = series.read()
        gc.collect()
        if before - series.read() > _EVEN * growth.bytes_per_s * growth.seconds:
            series.forget()  # it was garbage, of which the collector had not been asked
            return []
        culprit, per_call = self._culprit(series, growth, slots)
        now_ns = self._clock()
        series.add(now_ns, samples)
        self._told[series.where] = (growth, culprit, now_ns, series.last_bytes())
        evidence: dict[str, Any] = {
            "where": growth.where,
            "bytes_per_s": round(growth.bytes_per_s),
            "error": round(growth.error),
            "seconds": growth.seconds,
        }
        if culprit is None:
            evidence["rows"] = len(slots)
        elif per_call:
            evidence["bytes_per_call"] = per_call
        code, evidence = finding(Code.MEMORY_GROWS, **evidence)
        return [(code, culprit, evidence)]

    def _culprit(
        self, series: Series, growth: Growth, slots: Sequence[Slot]
    ) -> tuple[int | None, int]:
        """The row that grows by most when it is called alone, if by enough; bytes a call."""
        best: tuple[int | None, int] = (None, 0)
        most = _EVEN * growth.bytes_per_s
        for slot in slots:
            grown, calls, took_ns = self._alone(series, slot)
            rate = grown * NS_PER_S / max(1, took_ns)
            least = calls * _LEAST_A_CALL if series.where == "device" else _LEAST_ALONE
            if calls and grown >= least and rate > most:
                most, best = rate, (slot.bench, grown // calls)
        if best[0] is None and len(slots) == 1:
            return slots[0].bench, 0
        return best

    def _alone(self, series: Series, slot: Slot) -> tuple[int, int, int]:
        """Bytes, calls and time of a row that is called alone; what raises says nothing."""
        before, began_ns, calls, grown = series.read(), self._clock(), 0, 0
        try:
            while self._clock() - began_ns < _TRIAL_NS and grown < _MOST_MORE_BYTES:
                _call(slot, 1)
                self._settle()  # a host that runs ahead would queue minutes of work
                calls += 1
                grown = series.read() - before
        except Exception:  # noqa: BLE001  the row's next window meets it and fails the row
            return 0, 0, 1
        return grown, calls, self._clock() - began_ns

    def _still(self, series: Series, now_ns: int) -> list[Said]:
        """Take back what has not gone on: a pool that was large, and is full."""
        growth, bench, since_ns, at_bytes = self._told[series.where]
        seconds = (now_ns - since_ns) / NS_PER_S
        if seconds * NS_PER_S < _WINDOW_NS:
            return []
        grown = series.last_bytes() - at_bytes
        if grown >= _STOPPED * growth.bytes_per_s * seconds:
            self._told[series.where] = (growth, bench, now_ns, series.last_bytes())
            return []
        del self._told[series.where]
        series.forget()
        return [(Code.MEMORY_GROWS, bench, {WITHDRAWN: True})]

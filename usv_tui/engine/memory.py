"""Does a callable on the host leave memory behind? Seen from the process's resident size.

An allocator that fills its pools, or a set of buffers that is touched for the first time, grows for
a while and stops; a leak goes on, in even steps. Runs outside timing and costs a row that does not
grow one chunk of calls.
"""

import gc
import itertools
import statistics
from collections.abc import Callable
from pathlib import Path

from usv_tui.engine.checks import memory_grows
from usv_tui.engine.copies import leave_if_copy
from usv_tui.engine.findings import Finding
from usv_tui.engine.timers import Slot
from usv_tui.timesource import NS_PER_S

_STATM = Path("/proc/self/statm")
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
    except OSError:
        import psutil  # noqa: PLC0415  only where there is no /proc

        return int(psutil.Process().memory_info().rss)
    import resource  # noqa: PLC0415  there is none without /proc either

    return pages * resource.getpagesize()


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

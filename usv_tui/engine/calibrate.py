"""Before a row is timed: its first call, and how many calls one window needs.

Shared by the live runner and by `do_bench`. Both functions use the timer alone: harvest what was
enqueued before, since they harvest everything.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from usv_tui.copies import leave_if_copy
from usv_tui.records import Samples
from usv_tui.timers.wall import Failure, Slot, Timer

PROBE_ROUND = -1
"""The round number of windows that serve only to calibrate."""
MAX_INNER = 100_000
"""Most calls in one window that calibration chooses by itself."""
MOST_SPREAD = 16.0
"""Rows whose calls differ by more than this factor need not share their calls a window."""
_MOST_OVER = 4.0
"""A row that follows its group's calls has windows of at most this many targets."""
_NS_PER_S = 1_000_000_000
_ENOUGH_STEPS = 20
"""A window this many timer steps long is known to 5 %."""
_MAX_TRIAL_NS = _NS_PER_S // 5
"""Host time of one trial after which no larger one is tried."""


class PrimeResult(NamedTuple):
    """What the first call of a row cost (compilation, autotuning, lazy set-up) and returned."""

    seconds: float
    error: BaseException | None = None
    result: object = None
    """What the callable returned, for `check` and for telling coroutines from results."""
    start_ns: int = 0
    window_ns: int = 0
    """The callable alone, without what has to come before it."""


class Calibration(NamedTuple):
    """How many calls make a window, and what one call takes."""

    inner: int
    per_call_ns: float
    """0 when the timer never showed a positive window."""
    error: BaseException | None = None
    cost_ns: int = 0
    """Host time of the first window of the last trial, with all that comes before a window."""
    first: Samples | None = None
    """That window itself, where it was the only one."""


def prime(timer: Timer, slot: Slot, clock: Callable[[], int] = time.perf_counter_ns) -> PrimeResult:
    """Call a row once, untimed, and wait for the device: JIT and lazy loading happen here."""
    result: object = None
    error: BaseException | None = None
    start = fn_start = clock()
    try:
        for call in slot.before:
            call()
        fn_start = clock()
        result = slot.fn()
        leave_if_copy()
        timer.meet(slot, result)
        timer.synchronize()
    except BaseException as caught:  # noqa: BLE001  a benchmark may raise anything
        leave_if_copy(caught)
        error = caught
    end = clock()
    return PrimeResult((end - start) / _NS_PER_S, error, result, fn_start, end - fn_start)


def calibrate(
    timer: Timer,
    slot: Slot,
    target_window_s: float,
    *,
    inner: int | None = None,
    slow_ns: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Calibration:
    """Choose the calls of a window so that it lasts about `target_window_s`.

    With `inner` given only the time of a call is estimated. One call a window is kept for a row
    with `reset` (the second call would not find what the first one did) and for one that is
    flushed before each call (more calls do not make its windows longer). The estimate is a median,
    from windows long enough for the timer; the slot's own `inner` is left as it was. A window that
    costs more than `slow_ns` is the last one: it comes back as `first`, to be a sample.
    """
    fixed = fixed_inner(slot, inner)
    target_ns = target_window_s * _NS_PER_S
    enough_ns = max(target_ns / 8, _ENOUGH_STEPS * (timer.info.resolution_ns or 1))
    calls = fixed or 1
    before = slot.inner
    try:
        while True:
            slot.inner = calls
            start = clock()
            first = try_window(timer, slot, clock)
            if first.error is not None:
                return first._replace(inner=fixed or 1)
            if slow_ns is not None and first.cost_ns > slow_ns:
                return first._replace(inner=calls)
            window_ns, failure = _median_window(timer, slot, first.per_call_ns * calls)
            if failure is not None:
                return Calibration(fixed or 1, 0.0, failure[1])
            is_long = clock() - start > _MAX_TRIAL_NS
            if fixed or is_long or window_ns >= enough_ns or calls >= MAX_INNER:
                break
            growth = enough_ns / window_ns if window_ns > 0 else 10.0
            calls = min(MAX_INNER, round(calls * max(2.0, min(10.0, growth * 1.5))))
    finally:
        slot.inner = before
    per_call_ns = max(0.0, window_ns / calls)
    if fixed or per_call_ns == 0:
        return Calibration(fixed or 1, per_call_ns, None, first.cost_ns)
    fill = max(1, min(MAX_INNER, round(target_ns / per_call_ns)))
    return Calibration(fill, per_call_ns, None, round(per_call_ns * fill))


def fixed_inner(slot: Slot, inner: int | None) -> int | None:
    """Calls of a window where they cannot be chosen."""
    if inner is None and (slot.reset is not None or slot.flush is not None):
        return 1
    return inner


def try_window(timer: Timer, slot: Slot, clock: Callable[[], int]) -> Calibration:
    """One window of the slot as it is, and what it costs the run."""
    start = clock()
    windows, failure = _windows(timer, slot, 1)
    cost_ns = clock() - start
    if failure is not None:
        return Calibration(slot.inner, 0.0, failure[1], cost_ns)
    window_ns = max(0, windows[0].window_ns[0]) if windows else 0
    first = windows[0] if windows else None
    return Calibration(slot.inner, window_ns / slot.inner, None, cost_ns, first)


def _windows(timer: Timer, slot: Slot, count: int) -> tuple[list[Samples], Failure | None]:
    try:
        failure = timer.enqueue(PROBE_ROUND, [slot] * count)
        found = timer.harvest(wait=True)
    except Exception as error:  # noqa: BLE001  a device's error comes to light when it is read
        return [], (slot, error)
    if failure is not None:
        leave_if_copy(failure[1])
    leave_if_copy()
    return [record for record in found if record.round == PROBE_ROUND], failure


def _median_window(timer: Timer, slot: Slot, first_ns: float) -> tuple[float, Failure | None]:
    """The median of five windows, of three when they are long; zero counts, negative is zero."""
    windows = [first_ns]
    for batch in (2, 2):
        records, failure = _windows(timer, slot, batch)
        if failure is not None:
            return 0.0, failure
        windows += [float(w) for record in records for w in record.window_ns]
        if sum(windows) > _MAX_TRIAL_NS // 10:
            break
    return max(0.0, statistics.median(windows)), None


def shared_inner(
    per_call_ns: Sequence[float],
    pinned: Sequence[int | None],
    target_window_s: float,
    *,
    groups: Sequence[Hashable] = (),
    fewest_ns: float = 0.0,
) -> list[int]:
    """Calls in a window of each row: the same number for rows of about the same speed.

    What a window costs beside its calls (the first call, the timer itself) is divided by the calls:
    identical code at two numbers of calls would differ. So rows whose calls take within
    `MOST_SPREAD` of each other share one number, for windows of the target in the geometric middle.
    A number that is pinned (by the user, by `reset` or by a flush) is kept, and the rest of its
    group follows where its own windows then last `fewest_ns` or more and not far above the target.
    """
    target_ns = target_window_s * _NS_PER_S
    inners = [pin or 1 for pin in pinned]
    free = [i for i, pin in enumerate(pinned) if pin is None and per_call_ns[i] > 0]
    for alike in _alike(sorted(free, key=lambda i: per_call_ns[i]), per_call_ns):
        middle_ns = math.sqrt(per_call_ns[alike[0]] * per_call_ns[alike[-1]])
        calls = max(1, min(MAX_INNER, round(target_ns / middle_ns)))
        for i in alike:
            inners[i] = calls
    for group in dict.fromkeys(groups):
        members = [i for i, g in enumerate(groups) if g == group]
        pins = {pinned[i] for i in members} - {None}
        for i in members if len(pins) == 1 else ():
            pin = next(iter(pins))
            window_ns = (pin or 1) * per_call_ns[i]
            if pinned[i] is None and fewest_ns <= window_ns <= _MOST_OVER * target_ns:
                inners[i] = pin or 1
    return inners


def _alike(ordered: list[int], per_call_ns: Sequence[float]) -> list[list[int]]:
    """Rows in the order of speed, split at the widest gaps until none is too wide a group."""
    if len(ordered) < 2:
        return [ordered] if ordered else []
    if per_call_ns[ordered[-1]] <= MOST_SPREAD * per_call_ns[ordered[0]]:
        return [ordered]
    gaps = [per_call_ns[b] / per_call_ns[a] for a, b in itertools.pairwise(ordered)]
    at = 1 + gaps.index(max(gaps))
    return _alike(ordered[:at], per_call_ns) + _alike(ordered[at:], per_call_ns)


def fewest_window_ns(timer: Timer) -> float:
    """The shortest window whose length the timer still tells well."""
    info = timer.info
    return max(_ENOUGH_STEPS * (info.resolution_ns or 1), _ENOUGH_STEPS * (info.floor_ns or 0))

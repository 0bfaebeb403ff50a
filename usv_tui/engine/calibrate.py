"""Before a row is timed: its first call, and how many calls one window needs.

Shared by the live runner and by `do_bench`. Both functions use the timer alone: harvest what was
enqueued before, since they harvest everything.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from usv_tui.engine.timers import Failure, Slot, Timer

PROBE_ROUND = -1
"""The round number of windows that serve only to calibrate."""
MAX_INNER = 100_000
"""Most calls in one window that calibration chooses by itself."""
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


class Calibration(NamedTuple):
    """How many calls make a window, and what one call takes."""

    inner: int
    per_call_ns: float
    """0 when the timer never showed a positive window."""
    error: BaseException | None = None


def prime(timer: Timer, slot: Slot, clock: Callable[[], int] = time.perf_counter_ns) -> PrimeResult:
    """Call a row once, untimed, and wait for the device: JIT and lazy loading happen here."""
    result: object = None
    error: BaseException | None = None
    start = clock()
    try:
        for call in slot.before:
            call()
        result = slot.fn()
        timer.synchronize()
    except BaseException as caught:  # noqa: BLE001  a benchmark may raise anything
        error = caught
    return PrimeResult((clock() - start) / _NS_PER_S, error, result)


def calibrate(
    timer: Timer,
    slot: Slot,
    target_window_s: float,
    *,
    inner: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Calibration:
    """Choose the calls of a window so that it lasts about `target_window_s`.

    With `inner` given only the time of a call is estimated. One call a window is kept for a row
    with `reset` (the second call would not find what the first one did) and for one that is
    flushed before each call (more calls do not make its windows longer). The estimate is a median,
    from windows long enough for the timer; the slot's own `inner` is left as it was.
    """
    fixed = inner
    if fixed is None and (slot.reset is not None or slot.flush is not None):
        fixed = 1
    target_ns = target_window_s * _NS_PER_S
    enough_ns = max(target_ns / 8, _ENOUGH_STEPS * (timer.info.resolution_ns or 1))
    calls = fixed or 1
    before = slot.inner
    try:
        while True:
            slot.inner = calls
            start = clock()
            window_ns, failure = _median_window(timer, slot)
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
    if fixed:
        return Calibration(fixed, per_call_ns)
    if per_call_ns == 0:
        return Calibration(1, 0.0)
    return Calibration(max(1, min(MAX_INNER, round(target_ns / per_call_ns))), per_call_ns)


def _median_window(timer: Timer, slot: Slot) -> tuple[float, Failure | None]:
    """The median of five windows, of three when they are long; zero counts, negative is zero."""
    windows: list[int] = []
    for batch in (3, 2):
        try:
            failure = timer.enqueue(PROBE_ROUND, [slot] * batch)
            windows += [w for record in timer.harvest(wait=True) for w in record.window_ns]
        except Exception as error:  # noqa: BLE001  a device's error comes to light when it is read
            failure = (slot, error)
        if failure is not None:
            return 0.0, failure
        if sum(windows) > _MAX_TRIAL_NS // 10:
            break
    return max(0.0, statistics.median(windows)) if windows else 0.0, None

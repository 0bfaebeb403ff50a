"""What a row's times show in their order: work in every k-th call, a sudden end, no growth."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding, finding

FloatArray = NDArray[np.float64]

_HIGH = 3.0
"""Times the median: a window that carries the work of others."""
_TURNS = 10
_REGULAR = 0.6
"""Share of distances between such windows that are the same number of windows: looks shift some."""
_MOST_OF_IT = 0.5
"""Of a row's time lies in such windows: its median is no time of its work."""
_LONGEST = 64
_FALL = 4.0
"""Nearly all windows before a fall are so many times as long as nearly all after it."""
_BEFORE, _AFTER = 15, 40
_WORK = 16.0
"""So many times the work in no more time is no growth, while the baseline's time grew."""
_NO_MORE = 1.1
_BASE_GREW = 4.0
_LEAST_NS = 2_000
"""Shorter calls are all overhead."""


def works_in_turns(per_call: FloatArray) -> Finding | None:
    """Every k-th window is long, and most of the row's time lies in these."""
    median = float(np.median(per_call))
    high = np.flatnonzero(per_call > _HIGH * median)
    if high.size < _TURNS or median <= 0:
        return None
    gaps = np.diff(high)
    period = int(np.median(gaps))
    # Of stragglers the usual height counts: they are the machine's.
    work = high.size * float(np.median(per_call[high]))
    share = work / (work + (per_call.size - high.size) * median)
    is_regular = float((gaps == period).mean()) >= _REGULAR
    if not 2 <= period <= _LONGEST or not is_regular or share < _MOST_OF_IT:
        return None
    return finding(
        Code.WORKS_IN_TURNS,
        period=period,
        share=share,
        median_ns=round(median),
        mean_ns=round(float(per_call.mean())),
    )


def time_falls(per_call: FloatArray) -> Finding | None:
    """From one window to the next the row takes a fraction of its time, and stays there."""
    n = per_call.size
    if n < _BEFORE + _AFTER or np.any(per_call <= 0):
        return None
    logs = np.log(per_call)
    sums, at = np.cumsum(logs), np.arange(1, n)
    means = sums[:-1] / at - (sums[-1] - sums[:-1]) / (n - at)
    weights = means * np.sqrt(at * (n - at) / n)
    cut = 1 + int(np.argmax(weights))
    if cut < _BEFORE or n - cut < _AFTER:
        return None
    before = float(np.quantile(per_call[:cut], 0.1))
    after = float(np.quantile(per_call[cut:], 0.9))
    if before < _FALL * after:
        return None
    return finding(
        Code.TIME_FALLS,
        window=cut,
        before_ns=round(float(np.median(per_call[:cut]))),
        after_ns=round(float(np.median(per_call[cut:]))),
    )


class Size(NamedTuple):
    """One row of several that do the same at different sizes."""

    bench: int
    work: float
    """Operations or bytes of one call, as stated."""
    per_call_ns: float
    base_ns: float
    """Of its baseline on the same inputs."""


def no_growth(sizes: Sequence[Size]) -> list[tuple[int, Finding]]:
    """Rows that take as long as one with a fraction of their work, while the baseline does not."""
    found: dict[int, Finding] = {}
    for small, large in itertools.permutations(sizes, 2):
        if (
            large.work >= _WORK * small.work > 0
            and min(small.per_call_ns, small.base_ns) >= _LEAST_NS
            and large.per_call_ns <= _NO_MORE * small.per_call_ns
            and large.base_ns >= _BASE_GREW * small.base_ns
        ):
            found[large.bench] = finding(
                Code.NO_GROWTH,
                work=large.work / small.work,
                time=large.per_call_ns / small.per_call_ns,
                base=large.base_ns / small.base_ns,
            )
    return list(found.items())

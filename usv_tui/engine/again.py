"""Is a call on inputs that were seen before faster than on fresh ones? Then its result was kept."""

import statistics
from collections.abc import Sequence

Pairs = Sequence[tuple[int, int]]
"""ns of a call on fresh inputs, and of the next one on the same."""

_STEPS = ((3, 6.0, 20_000, 0.5), (6, 2.5, 10_000, 0.5), (9, 1.7, 5_000, 0.5), (12, 1.7, 5_000, 0.2))
"""With so many pairs, fresh inputs must take so many times as long, and so many ns longer, than
this quantile of the others: what forgets now and then is fast on the same inputs now and then.

A result that is kept leaves no work at all, so a row that is faster for it takes at least twice as
long on fresh inputs.
"""


def has_no_work(mine: Pairs, base: Pairs) -> bool:
    """Even the fastest call on fresh inputs is far above the usual one on the same again.

    What the baseline shows in such pairs, too, is no sign: caches of the machine, say.
    """
    least = min((fresh for fresh, _ in mine), default=0)
    for pairs, factor, least_ns, quantile in _STEPS:
        if len(mine) < pairs:
            break
        usual = max(1.0, _quotient(base, quantile)) if len(base) >= _STEPS[0][0] else 1.0
        is_longer = least - _again(mine, quantile) >= least_ns
        if is_longer and _quotient(mine, quantile) >= factor * usual:
            return True
    return False


def _again(pairs: Pairs, quantile: float) -> float:
    again = sorted(a for _, a in pairs)
    return statistics.median(again) if quantile == 0.5 else again[int(quantile * len(again))]


def _quotient(pairs: Pairs, quantile: float) -> float:
    return min(fresh for fresh, _ in pairs) / max(1.0, _again(pairs, quantile))


def medians(pairs: Pairs) -> tuple[int, int]:
    """Of fresh inputs, and of the same again."""
    fresh, again = zip(*pairs, strict=True)
    return round(statistics.median(fresh)), round(statistics.median(again))

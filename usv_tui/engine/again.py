"""Is a call on inputs that were seen before faster than on fresh ones? Then its result was kept."""

import statistics
from collections.abc import Sequence

Pairs = Sequence[tuple[int, int]]
"""ns of a call on fresh inputs, and of the next one on the same."""

_STEPS = ((3, 6.0, 20_000), (6, 2.5, 10_000), (9, 1.7, 5_000))
"""With so many pairs, fresh inputs must take so many times as long, and so many ns longer.

A result that is kept leaves no work at all, so a row that is faster for it takes at least twice as
long on fresh inputs.
"""


def has_no_work(mine: Pairs, base: Pairs) -> bool:
    """Even the fastest call on fresh inputs is far above the usual one on the same again.

    What the baseline shows in such pairs, too, is no sign: caches of the machine, say.
    """
    usual = max(1.0, _quotient(base)) if len(base) >= _STEPS[0][0] else 1.0
    found = False
    for pairs, factor, least_ns in _STEPS:
        if len(mine) >= pairs:
            again_ns = statistics.median(again for _, again in mine)
            least = min(fresh for fresh, _ in mine)
            found = found or (_quotient(mine) >= factor * usual and least - again_ns >= least_ns)
    return found


def _quotient(pairs: Pairs) -> float:
    return min(fresh for fresh, _ in pairs) / max(1.0, statistics.median(a for _, a in pairs))


def medians(pairs: Pairs) -> tuple[int, int]:
    """Of fresh inputs, and of the same again."""
    fresh, again = zip(*pairs, strict=True)
    return round(statistics.median(fresh)), round(statistics.median(again))

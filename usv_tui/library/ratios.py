"""Ratios with intervals, of results that the library measured."""

from collections.abc import Mapping

import numpy as np

from usv_tui.errors import UsageError
from usv_tui.library.measurement import Measurement
from usv_tui.model import Ratio
from usv_tui.stats.pairs import paired_ratio

_SEQUENTIAL = "not interleaved: no interval"


def ratios(
    results: Mapping[str, Measurement], baseline: str | None = None, *, band: float = 0.005
) -> dict[str, Ratio]:
    """Each result against one of them: the ratio of times (below 1 is faster) and its interval.

    Args:
        results: what `do_bench_many(..., interleave=True)` gave. Sample i of each was taken in the
            same round, so a drift of the clock falls on both and the ratio is paired. Results that
            were not interleaved get the ratio of their medians and no interval.
        baseline: the name of the one to compare with; default: the first.
        band: relative differences within it count as `same`.

    Raises:
        UsageError: no such baseline, or it has no samples.
    """
    if not results:
        return {}
    name = next(iter(results)) if baseline is None else baseline
    if name not in results:
        raise UsageError(f"no result is named {name!r}", f"one of {', '.join(map(str, results))}")
    base = results[name]
    if not base.n:
        raise UsageError(f"the baseline {name!r} has no samples")
    others = {key: result for key, result in results.items() if key != name}
    return {key: _ratio(result, base, len(others), band) for key, result in others.items()}


def _ratio(result: Measurement, base: Measurement, comparisons: int, band: float) -> Ratio:
    if not result.n:
        return Ratio(band=band, note="no samples")
    if result.seed is None or result.seed != base.seed or result.n != base.n:
        return Ratio(ratio=result.median / base.median, n=0, band=band, note=_SEQUENTIAL)
    logs = np.log(result.samples) - np.log(base.samples)
    return paired_ratio(logs, band=band, comparisons=comparisons, any_time=False)

"""Feeds the paired ratios: finds the rounds that two rows share, as they are completed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from usv_tui.model import EXCLUDED, Ratio
from usv_tui.stats.basics import NS_PER_S, FloatArray, IntArray
from usv_tui.stats.inputs import RowData, TelemetryData, position
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.pairs import round_means

CLOCK_REACH_S = 1.0
"""A round's clock is read off readings no further away than this from the rounds beside it."""


class _Part(NamedTuple):
    """The rounds of one row in a stretch of the epoch."""

    rounds: IntArray
    values: FloatArray
    """Mean log t of each."""
    t_ns: IntArray
    """When each began."""

    def only(self, which: IntArray | slice) -> "_Part":
        return _Part(self.rounds[which], self.values[which], self.t_ns[which])


class _Shared:
    """What the rows of one look have in common, worked out once."""

    def __init__(self, telemetry: TelemetryData) -> None:
        self.telemetry = telemetry
        self.means: dict[tuple[int, int], _Part] = {}
        """By row and first round."""
        self._clocks: dict[tuple[int, int, int], FloatArray | None] = {}

    def log_mhz(self, t_ns: IntArray) -> FloatArray | None:
        """Log of the device's clock at the times of a baseline's rounds; None: not read."""
        if t_ns.size == 0:
            return None
        key = int(t_ns[0]), int(t_ns[-1]), t_ns.size
        if key not in self._clocks:
            self._clocks[key] = _log_mhz(self.telemetry, t_ns)
        return self._clocks[key]


class _Pair:
    """One row against one baseline."""

    def __init__(self, row: int, baseline: int) -> None:
        self.baseline = baseline
        self.allocations = 1
        """How often both of them were built in this epoch."""
        self.tracker = PairTracker(row)
        self.next_round = -1
        """The first round that has not been paired yet."""
        self.last_ns = 0
        """When the last one that has began."""


class RatioBook:
    """The paired ratios of a session's rows, each against its own baseline."""

    def __init__(self, band: float, alpha: float) -> None:
        self._band = band
        self._alpha = alpha
        self._pairs: dict[int, _Pair] = {}

    def reset(self) -> None:
        """A new epoch: forget all rounds."""
        self._pairs.clear()

    def feed(
        self,
        rows: Sequence[RowData],
        epoch_ns: int,
        telemetry: TelemetryData,
        *,
        is_final: bool = False,
    ) -> None:
        """Pair the rounds completed since the last time; a new baseline starts at the epoch.

        The latest round may still be growing, so it waits, unless `is_final`.
        """
        by_bench = {row.bench: row for row in rows}
        shared = _Shared(telemetry)
        for row in rows:
            base = None if row.baseline is None else by_bench.get(row.baseline)
            if base is None or base.bench == row.bench:
                self._pairs.pop(row.bench, None)
                continue
            pair = self._pairs.get(row.bench)
            if pair is None or pair.baseline != base.bench:
                pair = self._pairs[row.bench] = _Pair(row.bench, base.bench)
            _consume(pair, row, base, epoch_ns, shared, is_final=is_final)
            builds = [int(np.count_nonzero(r.built_ns > epoch_ns)) for r in (row, base)]
            pair.allocations = 1 + min(builds)

    def ratio(
        self,
        row: RowData,
        comparisons: int,
        resolution: float | None,
        *,
        is_limited: bool = False,
        is_last: bool = False,
    ) -> Ratio | None:
        """The row's ratio now; None when it has no baseline here."""
        pair = self._pairs.get(row.bench)
        if pair is None:
            return None
        found = pair.tracker.ratio(
            band=self._band,
            alpha=self._alpha,
            comparisons=comparisons,
            resolution=resolution,
            is_limited=is_limited,
            is_last=is_last,
        )
        return replace(found, allocations=pair.allocations)


def comparisons(rows: Sequence[RowData]) -> dict[int, int]:
    """How many rows are held against each baseline, controls apart."""
    counts: dict[int, int] = {}
    for row in rows:
        if row.baseline is not None and not row.is_control:
            counts[row.baseline] = counts.get(row.baseline, 0) + 1
    return counts


def _consume(
    pair: _Pair,
    row: RowData,
    base: RowData,
    epoch_ns: int,
    shared: _Shared,
    *,
    is_final: bool,
) -> None:
    if row.rounds.size == 0 or base.rounds.size == 0:
        return
    last = min(int(row.rounds[-1]), int(base.rounds[-1])) + is_final
    if last <= pair.next_round:
        return
    ours = _means(row, pair.next_round, last, epoch_ns, shared)
    theirs = _means(base, pair.next_round, last, epoch_ns, shared)
    if not np.array_equal(ours.rounds, theirs.rounds):
        _, i, j = np.intersect1d(
            ours.rounds, theirs.rounds, assume_unique=True, return_indices=True
        )
        ours, theirs = ours.only(i), theirs.only(j)
    clock = shared.log_mhz(theirs.t_ns)
    for part in _between_builds(row, base, pair.last_ns, theirs.t_ns):
        log_mhz = None if clock is None else clock[part]
        pair.tracker.add((ours.values - theirs.values)[part], log_mhz, theirs.t_ns[part])
        if part.stop is not None:
            pair.tracker.cut()
    pair.next_round = last
    if theirs.t_ns.size:
        pair.last_ns = int(theirs.t_ns[-1])


def _between_builds(row: RowData, base: RowData, from_ns: int, t_ns: IntArray) -> list[slice]:
    """The rounds in parts that end where one of the rows was built afresh; the last goes on."""
    if t_ns.size == 0 or row.built_ns.size + base.built_ns.size == 0:
        return [slice(None)]
    builds = np.union1d(row.built_ns, base.built_ns)
    builds = builds[(builds > from_ns) & (builds <= t_ns[-1])]
    ends = np.searchsorted(t_ns, builds).tolist()
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, None], strict=True)]


def _log_mhz(telemetry: TelemetryData, t_ns: IntArray) -> FloatArray | None:
    margin_ns = int(CLOCK_REACH_S * NS_PER_S)
    near = telemetry.cut(int(t_ns[0]) - margin_ns, int(t_ns[-1]) + margin_ns)
    good = np.isfinite(near.sm_mhz) & (near.sm_mhz > 0)
    if not good.any():
        return None
    return np.asarray(np.interp(t_ns, near.t_ns[good], np.log(near.sm_mhz[good])), np.float64)


def _means(row: RowData, first: int, last: int, epoch_ns: int, shared: _Shared) -> _Part:
    """Mean log t of each round in [first, last) of the epoch; kept for the rows that share it."""
    found = shared.means.get((row.bench, first))
    if found is None:
        a = max(position(row.rounds, first), position(row.t_ns, epoch_ns))
        window, inner, rounds = row.window_ns[a:], row.inner[a:], row.rounds[a:]
        t_ns = row.t_ns[a:]
        good = ((row.flags[a:] & int(EXCLUDED)) == 0) & (window > 0) & (inner > 0)
        if not good.all():
            window, inner, rounds = window[good], inner[good], rounds[good]
        values = np.log(window / (inner * NS_PER_S))
        kept, values = round_means(rounds.astype(np.int64), values)
        if kept.size < t_ns.size:
            t_ns = t_ns[np.searchsorted(row.rounds[a:], kept)]
        found = _Part(kept, values, t_ns)
        shared.means[row.bench, first] = found
    return found.only(slice(position(found.rounds, last)))

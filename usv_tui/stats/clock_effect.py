"""How much of a row's spread is the clock? log t = c - alpha log f, and when not to answer.

Alignment matters more than the regression: a reading is late by the driver's lag and the poller's
phase, so the lag is searched for, and both sides are averaged over bins before they are compared.
A second estimate on the fast part of both (a slow trend removed) exposes what only happens to
share the clock's trend, such as a neighbour that takes power and bandwidth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from usv_tui.model import ClockEffect
from usv_tui.stats.basics import (
    NS_PER_S,
    FloatArray,
    IntArray,
    local_clip,
    median,
    row_medians,
    sd,
)
from usv_tui.stats.inputs import position
from usv_tui.stats.reading_noise import (
    NOISY,
    Instrument,
    common_variance,
    hold_bins,
    instrument,
    through,
)

MIN_SPREAD = 0.005
"""A clock that moves by less explains nothing worth a lock."""
MIN_SPREAD_STEPS = 1.5
FAST_SPREAD = 0.008
FAST_SPREAD_STEPS = 2.5
MIN_BINS = 30
UNSEEN = 0.12
"""Share of its std that a row moves in quick common motion, from which the sensor is too slow."""
TOO_SLOW = "the clock sensor is too slow, late or noisy for how quickly the times move"
SEEN = 0.93
"""Share of the rows' common motion that readings account for, below which alpha is corrected …"""
SEEN_TOO_LITTLE = 0.6
"""… and below which it is refused."""
QUIET = 0.75
"""The quick noise of thinned samples holds some of the clock's quick steps."""
FOLLOWS = 0.1
"""An exponent below this is none to speak of …"""
HARMLESS = 0.0025
"""… and so is a clock that cannot do more than this to the times, where its readings are noise."""
MAX_SE = 0.15
BIN_S = 0.1
DEFAULT_LAG_S = 0.1
MAX_LAG_S = 1.0
_LAG_STEP_S = 0.02
_LATE_S = 0.3
"""From here on the lag is searched for in steps of a bin."""
_LAG_BIN_S = 0.05
_LAGS_S = (
    *(k * _LAG_STEP_S for k in range(round(_LATE_S / _LAG_STEP_S) + 1)),
    *(
        k * _LAG_BIN_S
        for k in range(round(_LATE_S / _LAG_BIN_S) + 1, 1 + round(MAX_LAG_S / _LAG_BIN_S))
    ),
)
_MIN_CORRELATION = 0.3
_JACKKNIFE = 10
_HIGH_PASS = 11
_TRIM_PASSES = 4
_TRIM = 0.1
_SE_FACTOR = 1.5
_SE_FLOOR = 0.01
_ATTENUATION = 0.02
"""Most of alpha that readings which are late by half a poll can hide."""
_LONG_S = 0.05
"""Samples longer than a bin's grain are set against the clock over their own windows."""
_WINDOW_POINTS = 16
_LOWER_QUARTILE = 0.3186
"""Lower quartile of |x| for a standard normal x."""


@dataclass(frozen=True, slots=True)
class ClockTrace:
    """The clock over one window, as it was read."""

    t_ns: IntArray
    mhz: FloatArray
    step_mhz: float = 0.0
    """Distance of two clocks that the device can run at; 0 when unknown."""
    lag_s: float | None = None
    """How late the readings are, where it is known (0 for a clock taken inside the stream)."""

    @property
    def period_s(self) -> float:
        """Median distance of two readings; infinite for fewer than two."""
        if self.t_ns.size < 2:
            return math.inf
        return median(np.diff(self.t_ns)) / NS_PER_S


class RowTrace(NamedTuple):
    """One row's samples over the same window."""

    t_ns: IntArray
    """Middle of each sample."""
    log_t: FloatArray
    window_s: float = 0.0
    """How long a sample takes: a long one meets the clock's mean over it."""


@dataclass(frozen=True, slots=True)
class EffectDetail:
    """A row's clock effect and what the evidence plots need of it."""

    effect: ClockEffect
    clock_mhz: FloatArray
    """Mean clock of each bin."""
    relative: FloatArray
    """Mean time of each bin over the row's mean, NaN where there was no sample."""
    gain: float = 0.0
    """Share of the std, stragglers apart, that a lock would take away."""
    unseen: float = 0.0
    """Share of the std, stragglers apart, that moves with other rows too quickly for the clock
    readings to show: a lock might take it away, nobody can tell."""
    clipped_std: float | None = None
    """Relative std without stragglers."""
    flutters: bool = False
    """The clock readings jump about at random and no row follows: the clock may well stand."""


def clock_spread(clock: ClockTrace) -> float | None:
    """Relative spread of the clock, p97.5 - p2.5; None without readings."""
    good = clock.mhz[np.isfinite(clock.mhz) & (clock.mhz > 0)]
    if good.size == 0:
        return None
    low, high = np.quantile(np.log(good), (0.025, 0.975))
    return float(high - low)


def spread_gate(
    clock: ClockTrace, share: float = MIN_SPREAD, steps: float = MIN_SPREAD_STEPS
) -> float:
    """The spread below which the clock counts as standing still: a share, or so many steps."""
    good = clock.mhz[np.isfinite(clock.mhz) & (clock.mhz > 0)]
    if good.size == 0:
        return share
    return max(share, steps * clock.step_mhz / median(good))


def find_lag(rows: Sequence[RowTrace], clock: ClockTrace) -> float:
    """How late the readings are, in seconds: the shift at which times and clock agree best.

    0.1 s where they do not agree anywhere; known lags are passed through.
    """
    if clock.lag_s is not None:
        return clock.lag_s
    good = np.isfinite(clock.mhz) & (clock.mhz > 0)
    filled = [row for row in rows if row.t_ns.size >= MIN_BINS]
    if good.sum() < MIN_BINS or not filled:
        return DEFAULT_LAG_S
    start = max(int(row.t_ns[0]) for row in filled)
    stop = min(int(row.t_ns[-1]) for row in filled)
    bins = int((stop - start) / (_LAG_BIN_S * NS_PER_S))
    if bins < MIN_BINS:
        return DEFAULT_LAG_S
    y = _equal_weight_bins(filled, start, bins)
    usable = np.isfinite(y)
    if usable.sum() < MIN_BINS:
        return DEFAULT_LAG_S
    y = y[usable] - y[usable].mean()
    size = float(y @ y)
    t = (clock.t_ns[good] - start) / NS_PER_S
    log_f = np.log(clock.mhz[good])
    # Four points a bin, so that a bin's mean of the interpolated clock is one.
    points = (np.arange(bins * 4) + 0.5) * (_LAG_BIN_S / 4)
    best, best_lag = _MIN_CORRELATION, DEFAULT_LAG_S
    quarter = np.full(4, 0.25)
    for lag in _LAGS_S:
        f = (np.interp(points + lag, t, log_f).reshape(bins, 4) @ quarter)[usable]
        f -= float(f.sum()) / f.size
        power = float(f @ f) * size
        correlation = -float(f @ y) / math.sqrt(power) if power > 0 else 0.0
        if correlation > best:
            best, best_lag = correlation, lag
    return best_lag


def _equal_weight_bins(rows: Sequence[RowTrace], start: int, bins: int) -> FloatArray:
    """Mean over rows of each row's centred bin means; NaN where a row has none."""
    total = np.zeros(bins)
    for row in rows:
        counts, sums = _binned_sums(row.t_ns, row.log_t, start, int(_LAG_BIN_S * NS_PER_S), bins)
        held = counts > 0
        if not held.any():
            continue
        means = np.where(held, sums / np.maximum(counts, 1), math.nan)
        total += means - means[held].mean()
    return total / len(rows)


def _binned_sums(
    t_ns: IntArray, values: FloatArray, start: int, width: int, bins: int
) -> tuple[IntArray, FloatArray]:
    """How many of the samples (in order of time) lie in each bin, and their sum."""
    inside = slice(position(t_ns, start), position(t_ns, start + bins * width))
    at = (t_ns[inside] - start) // width
    sums = np.bincount(at, weights=values[inside], minlength=bins)
    return np.asarray(np.bincount(at, minlength=bins), np.int64), np.asarray(sums, np.float64)


@dataclass(frozen=True, slots=True)
class _Binned:
    """Rows and clock in the same bins of time."""

    clock: FloatArray
    """Mean log f of each bin."""
    f: FloatArray
    """Rows x bins, mean log f that the row's samples met, centred."""
    y: FloatArray
    """Rows x bins, mean log t, 0 where there was no sample."""
    weight: FloatArray
    """Rows x bins, 1 where the row has samples and the clock was read, else 0."""
    variance: FloatArray
    """Of the log f that the single samples of a row met."""
    lag_s: float
    has_fast: bool
    """The fast part of the clock moves enough to be a check."""
    near: Instrument
    """The bins beside each, free of its reading noise."""
    is_white: bool
    """The readings of a bin tell nothing of those a little later."""
    white: FloatArray
    """Of each row, the variance of bin means that its quick noise alone gives."""
    is_seen: bool
    """The clock was taken inside the stream: nothing is too quick for it."""


def clock_effects(
    rows: Sequence[RowTrace], clock: ClockTrace | None, *, is_shared: bool = False
) -> list[EffectDetail]:
    """The clock's effect on each row over one window (20 s is meant), in the order of the rows.

    `is_shared` says that another process computes on the device: then nothing can be attributed.
    """
    spreads = [_spreads(row) for row in rows]
    refuse = _reason_to_refuse(rows, clock, is_shared=is_shared)
    if refuse or clock is None:
        spread = None if clock is None else clock_spread(clock)
        return [_refused(s, refuse, spread) for s in spreads]
    lag_s = find_lag(rows, clock)
    binned = _bin(spreads, clock, lag_s)
    spread = _bin_spread(binned.clock)
    if spread < spread_gate(clock):
        return _still(spreads, binned, spread)
    return _attribute(spreads, binned, spread)


def _reason_to_refuse(
    rows: Sequence[RowTrace], clock: ClockTrace | None, *, is_shared: bool
) -> str:
    if clock is None or (np.isfinite(clock.mhz) & (clock.mhz > 0)).sum() < 2:
        return "no clock reading under load"
    if is_shared:
        return "another process computes on the device"
    if not any(row.t_ns.size >= MIN_BINS for row in rows):
        return "too few samples"
    return ""


class _Spreads(NamedTuple):
    """A row's spread, split: clipped log t, what the stragglers add, and the quick noise."""

    x: FloatArray
    t_ns: IntArray
    window_s: float
    total: float | None
    """Standard deviation of log t with everything in it."""
    clipped: float
    floor: float
    """Noise from one sample to the next, which no clock can explain."""
    cut: float
    """Variance of what was clipped off: the stragglers' at least."""


def _spreads(row: RowTrace) -> _Spreads:
    n = row.log_t.size
    if n < 3:
        return _Spreads(row.log_t, row.t_ns, row.window_s, None, 0.0, 0.0, 0.0)
    x = local_clip(row.log_t)
    floor = _quick_noise(np.diff(x))
    total, clipped = sd(row.log_t), sd(x)
    cut = sd(row.log_t - x, 0) ** 2
    return _Spreads(x, row.t_ns, row.window_s, total, clipped, floor, cut)


def _quick_noise(steps: FloatArray) -> float:
    """Noise of one sample from the lower quartile of the steps between neighbours.

    The upper ones hold the clock's own steps.
    """
    size = np.abs(steps - median(steps))
    at = size.size // 4
    return float(np.partition(size, at)[at]) / _LOWER_QUARTILE / math.sqrt(2)


def _spacing_s(t_ns: IntArray) -> float:
    """Median distance of a row's samples; 0 for fewer than two."""
    return median(np.diff(t_ns)) / NS_PER_S if t_ns.size > 1 else 0.0


def _bin(rows: Sequence[_Spreads], clock: ClockTrace, lag_s: float) -> _Binned:
    good = np.isfinite(clock.mhz) & (clock.mhz > 0)
    t_clock = clock.t_ns[good] - int(lag_s * NS_PER_S)
    log_f = np.log(clock.mhz[good])
    filled = [row for row in rows if row.t_ns.size]
    start = max(min(int(row.t_ns[0]) for row in filled), int(t_clock[0]))
    stop = min(max(int(row.t_ns[-1]) for row in filled), int(t_clock[-1]))
    spacing_s = min(_spacing_s(row.t_ns) for row in filled)
    width_s = max(BIN_S, 2 * clock.period_s, 1.5 * spacing_s)
    width = int(width_s * NS_PER_S)
    bins = max(0, (stop - start) // width)
    points = 8
    grid = start + (np.arange(bins * points) + 0.5) * (width / points)
    f = np.interp(grid, t_clock, log_f).reshape(bins, points).mean(axis=1)
    y = np.zeros((len(rows), bins))
    weight = np.zeros((len(rows), bins))
    met = np.tile(f, (len(rows), 1))
    variance = np.full(len(rows), float(log_f.var()))
    white = np.zeros(len(rows))
    for i, row in enumerate(rows):
        if row.t_ns.size < MIN_BINS or bins == 0:
            continue
        counts, sums = _binned_sums(row.t_ns, row.x, start, width, bins)
        y[i] = sums / np.maximum(counts, 1)
        weight[i] = counts > 0
        white[i] = row.floor**2 / max(float(counts[counts > 0].mean()) if counts.any() else 1, 1)
        if row.window_s > _LONG_S:
            own = _clock_over(row, t_clock, log_f)
            _, sums = _binned_sums(row.t_ns, own, start, width, bins)
            met[i] = np.where(counts > 0, sums / np.maximum(counts, 1), f)
            variance[i] = float(own.var())
    has_fast = bins > _HIGH_PASS and _bin_spread(_high_pass(f[None, :])[0]) >= spread_gate(
        clock, FAST_SPREAD, FAST_SPREAD_STEPS
    )
    centred = met - met.mean(axis=1, keepdims=True) if bins else met
    gap = hold_bins(t_clock, log_f, width)
    near = instrument(centred, gap)
    # A bin more, since the clock is interpolated from one bin's readings into the next.
    is_white = instrument(centred, gap + 1).is_white
    return _Binned(
        f,
        centred,
        y,
        weight,
        variance,
        lag_s,
        has_fast,
        near,
        is_white,
        white,
        is_seen=clock.lag_s == 0.0,
    )


def _clock_over(row: _Spreads, t_clock: IntArray, log_f: FloatArray) -> FloatArray:
    """Mean log f over each sample's own window."""
    share = (np.arange(_WINDOW_POINTS) + 0.5) / _WINDOW_POINTS - 0.5
    offsets = (share * row.window_s * NS_PER_S).astype(np.int64)
    moments = row.t_ns[:, None] + offsets
    met = np.interp(moments.ravel(), t_clock, log_f).reshape(moments.shape)
    return np.asarray(met.mean(axis=1), np.float64)


def _bin_spread(f: FloatArray) -> float:
    if f.size == 0:
        return 0.0
    low, high = np.quantile(f, (0.025, 0.975))
    return float(high - low)


def _high_pass(x: FloatArray) -> FloatArray:
    """Minus a running median of 11 bins along the last axis; the ends lean on the nearest one."""
    reach = _HIGH_PASS // 2
    padded = np.pad(x, ((0, 0), (reach, reach)), mode="edge")
    medians = row_medians(sliding_window_view(padded, _HIGH_PASS, axis=1))
    return np.asarray(x - medians, np.float64)


class _Fit(NamedTuple):
    alpha: FloatArray
    se: FloatArray


def _least_squares(f: FloatArray, y: FloatArray, weight: FloatArray) -> _Fit:
    """-slope of each row of y on f, with 1.5 x the delete-a-block jackknife's standard error."""
    blocks = np.array_split(np.arange(f.shape[1]), _JACKKNIFE)
    starts = np.array([block[0] for block in blocks if block.size])
    terms = np.stack([weight, weight * f, weight * f * f, weight * y, weight * f * y])
    parts = np.add.reduceat(terms, starts, axis=2)
    total = parts.sum(axis=2, keepdims=True)
    alpha = -_slope(total)[:, 0]
    without = -_slope(total - parts)
    k = without.shape[1]
    centred = without - without.mean(axis=1, keepdims=True)
    se = _SE_FACTOR * np.sqrt((k - 1) / k * (centred * centred).sum(axis=1))
    return _Fit(alpha, np.maximum(se, _SE_FLOOR))


def _slope(sums: FloatArray) -> FloatArray:
    """Slopes from the sums of (w, wf, wff, wy, wfy); 0 where f does not vary."""
    w, wf, wff, wy, wfy = sums
    w = np.maximum(w, 1e-300)
    vertical = wff - wf * wf / w
    level = wfy - wf * wy / w
    flat = vertical <= 1e-18 * np.maximum(wff, 1e-300)
    return np.asarray(np.where(flat, 0.0, level / np.where(flat, 1.0, vertical)), np.float64)


@cache
def _pairs(bins: int) -> tuple[IntArray, IntArray]:
    """Pairs of bins at a few distances: enough for the median of slopes, few enough to be quick."""
    distances = [d for d in (1, 2, 3, 5, 8, 13, 21) if d < bins]
    first = np.concatenate([np.arange(bins - d) for d in distances])
    second = np.concatenate([np.arange(bins - d) + d for d in distances])
    return first, second


def _fast_alpha(f: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Alpha on the fast scale: weighted median of slopes, then trimmed least squares."""
    f = _high_pass(f)
    y = _high_pass(y)
    i, j = _pairs(f.shape[1])
    run = f[:, j] - f[:, i]
    moved = run != 0
    slopes = np.where(moved, y[:, j] - y[:, i], 0.0) / np.where(moved, run, 1.0)
    w = np.abs(run) * weight[:, i] * weight[:, j]
    order = np.argsort(slopes, axis=1)
    cumulative = np.cumsum(np.take_along_axis(w, order, axis=1), axis=1)
    middle = (cumulative < cumulative[:, -1:] / 2).sum(axis=1)
    middle = np.minimum(middle, slopes.shape[1] - 1)
    at = np.take_along_axis(order, middle[:, None], axis=1)
    slope = np.take_along_axis(slopes, at, axis=1)
    for _ in range(_TRIM_PASSES):
        residual = y - slope * f
        residual = residual - row_medians(residual)[:, None]
        size = np.where(weight > 0, np.abs(residual), np.inf)
        allowed = np.quantile(np.abs(residual), 1 - _TRIM, axis=1, keepdims=True)
        kept = (size <= allowed) * 1.0
        terms = np.stack([kept, kept * f, kept * f * f, kept * y, kept * f * y])
        slope = _slope(terms.sum(axis=2, keepdims=True))
    return np.asarray(-slope[:, 0], np.float64)


def _still(spreads: list[_Spreads], binned: _Binned, spread: float) -> list[EffectDetail]:
    """A clock that stands, by its readings; the rows may tell that it does not."""
    hidden = 1 - np.sqrt(1 - _unseen(spreads, binned, _filled(binned), None))
    return [
        replace(_refused(s, "clock stands still", spread, binned), unseen=float(hidden[i]))
        for i, s in enumerate(spreads)
    ]


def _filled(binned: _Binned) -> FloatArray:
    """Times in bins; one without a sample takes its row's mean, as running medians need a value."""
    y, weight = binned.y, binned.weight
    means = (y * weight).sum(axis=1, keepdims=True) / np.maximum(
        weight.sum(axis=1, keepdims=True), 1
    )
    return np.where(weight > 0, y, means)


class _Slopes(NamedTuple):
    """What the regressions say of all rows."""

    plain: FloatArray
    """-slope as read: too flat where the readings are noisy."""
    alpha: FloatArray
    """The same, freed from the readings' noise where that can be done."""
    se: FloatArray
    fast: FloatArray
    """On the fast scale; NaN where there is no such check."""
    reliability: float
    """Share of the readings' variance that is the clock's."""
    is_noisy: bool


def _slopes(binned: _Binned, filled: FloatArray) -> _Slopes:
    f, y, weight = binned.f, binned.y, binned.weight
    fit = _least_squares(f, y, weight)
    nothing = np.full(len(y), np.nan)
    fast = _fast_alpha(f, filled, weight) if binned.has_fast else nothing
    if binned.is_seen or not binned.near.is_strong:
        return _Slopes(fit.alpha, fit.alpha, fit.se, fast, 1.0, is_noisy=False)
    free = -through(binned.near.f, f, filled, weight)
    # One figure for all rows, from those that follow: the readings' noise is the same for each.
    size = fit.alpha / fit.se
    best = int(np.argmax(np.abs(size)))
    share = fit.alpha[best] / free[best] if free[best] and abs(size[best]) > 3 else 1.0
    share = float(min(max(share, 0.05), 1.0))
    if share >= NOISY:
        return _Slopes(fit.alpha, fit.alpha, fit.se, fast, 1.0, is_noisy=False)
    # Noise flattens the fast slopes most: they are no check any more.
    return _Slopes(fit.alpha, fit.alpha / share, fit.se / share, nothing, share, is_noisy=True)


def _attribute(spreads: list[_Spreads], binned: _Binned, spread: float) -> list[EffectDetail]:
    y, weight = binned.y, binned.weight
    counts = weight.sum(axis=1)
    means = (y * weight).sum(axis=1, keepdims=True) / np.maximum(counts, 1)[:, None]
    filled = _filled(binned)
    slopes = _slopes(binned, filled)
    enough = counts >= MIN_BINS
    at_most = np.abs(slopes.plain) + 2 * slopes.se
    # Readings that barely move cannot rule a slope out, but what it would do to the times.
    surely_none = (at_most < FOLLOWS) | (at_most * spread < HARMLESS)
    flutters = binned.is_white and bool(surely_none[enough].all())
    overshoots = bool((enough & (slopes.alpha - 2 * slopes.se > 1.2)).any())
    unseen = _unseen(spreads, binned, filled, slopes)
    slopes, is_lost = _corrected(spreads, binned, filled, slopes)
    details = []
    for i, parts in enumerate(spreads):
        relative = np.where(weight[i] > 0, np.exp(y[i] - means[i]), np.nan)
        if not enough[i] or parts.total is None:
            details.append(_refused(parts, "too few samples", spread, binned, relative))
            continue
        judged = _judge(
            float(slopes.alpha[i]),
            float(slopes.se[i]),
            float(slopes.fast[i]),
            overshoots=overshoots,
        )
        blind = 1 - math.sqrt(1 - float(unseen[i])) >= UNSEEN
        if judged[0].startswith("ok") and (blind or is_lost):
            judged = "refused", TOO_SLOW, None
        elif slopes.is_noisy and judged[0].startswith("ok"):
            judged = "ok", "the clock readings are noisy: corrected for", judged[2]
        details.append(
            replace(
                _detail(judged, slopes, spread, binned, i, parts, relative, float(unseen[i])),
                flutters=flutters,
            )
        )
    return details


def _corrected(
    spreads: list[_Spreads], binned: _Binned, filled: FloatArray, slopes: _Slopes
) -> tuple[_Slopes, bool]:
    """Slopes freed from what the rows have in common and the readings lack; True if that is most.

    What two rows share is the clock's, so the share of it that the readings account for tells how
    much they flatten every slope: by noise, by a late refresh, by averaging.
    """
    lacking = _unseen(spreads, binned, filled, slopes, is_quick=False)
    if not lacking.any():
        return slopes, False
    total = np.array([parts.clipped**2 for parts in spreads])
    lacking = lacking * total
    shared = common_variance(filled, binned.weight, binned.white)
    best = int(np.argmax(shared))
    seen = 1 - float(lacking[best] / shared[best])
    if seen >= SEEN:
        return slopes, False
    if seen < SEEN_TOO_LITTLE or float(slopes.alpha[best]) / seen > 1.1:
        return slopes, seen < SEEN_TOO_LITTLE
    return slopes._replace(
        alpha=slopes.alpha / seen,
        se=slopes.se / seen,
        fast=np.full_like(slopes.fast, np.nan),
        is_noisy=True,
    ), False


def _unseen(
    spreads: list[_Spreads],
    binned: _Binned,
    filled: FloatArray,
    slopes: _Slopes | None,
    *,
    is_quick: bool = True,
) -> FloatArray:
    """Share of each row's variance in motion common to the rows that the readings lack.

    Quicker than a second with `is_quick`, else of any speed.
    """
    rows, bins = filled.shape
    # A row alone cannot tell its own slow moves from the clock's.
    if binned.is_seen or bins <= _HIGH_PASS or (rows == 1 and not is_quick):
        return np.zeros(rows)
    y = _high_pass(filled) if is_quick else filled
    found = common_variance(y, binned.weight, binned.white)
    if slopes is not None:
        f = _high_pass(binned.f) if is_quick else binned.f
        y = y - y.mean(axis=1, keepdims=True)
        both = -(f - f.mean(axis=1, keepdims=True)) * y * binned.weight
        along = both.sum(axis=1) / np.maximum(binned.weight.sum(axis=1), 1)
        found = np.maximum(found - np.clip(slopes.alpha, 0, 1) * np.maximum(along, 0.0), 0.0)
    total = np.array([max(parts.clipped, 1e-12) ** 2 for parts in spreads])
    return np.asarray(np.minimum(found / total, 1.0), np.float64)


def _judge(
    alpha: float, se: float, fast: float, *, overshoots: bool
) -> tuple[str, str, float | None]:
    """Status, reason and the alpha to go by (None when refused)."""
    if se > MAX_SE:
        return "refused", "the clock's effect is lost in noise", None
    has_fast = math.isfinite(fast)
    disagree = has_fast and abs(alpha - fast) > max(0.2, 3 * se)
    if disagree or alpha < -0.2 or overshoots:
        if has_fast and -0.2 <= fast <= 1.2:
            return "confounded", "something else moves with the clock", min(max(fast, 0.0), 1.0)
        return "refused", "something else moves with the clock", None
    alpha = min(max(alpha, 0.0), 1.0)
    if not has_fast:
        return "ok-trend", "only a slow trend to go by", alpha
    return "ok", "", alpha


def _detail(
    judged: tuple[str, str, float | None],
    slopes: _Slopes,
    spread: float,
    binned: _Binned,
    row: int,
    parts: _Spreads,
    relative: FloatArray,
    unseen: float,
) -> EffectDetail:
    status, reason, alpha = judged
    explained = locked = least = None
    gain = 0.0
    if alpha is not None and parts.total:
        variance = float(binned.variance[row]) * slopes.reliability
        slope = float(slopes.alpha[row]) + min(float(slopes.se[row]), _ATTENUATION)
        left = _left(alpha, slope, variance, parts)
        stragglers = max(0.0, parts.total**2 - parts.clipped**2)
        locked = math.sqrt(left + stragglers)
        least = math.sqrt(min(left, (QUIET * parts.floor) ** 2) + min(stragglers, parts.cut))
        explained = min(max(1 - (locked / parts.total) ** 2, 0.0), 1.0)
        gain = 1 - math.sqrt(left) / parts.clipped if parts.clipped > 0 else 0.0
    effect = ClockEffect(
        status=status,
        reason=reason,
        alpha=alpha,
        alpha_se=float(slopes.se[row]),
        clock_spread=spread,
        lag_ns=round(binned.lag_s * NS_PER_S),
        explained=explained,
        std_now=parts.total,
        std_locked=locked,
        std_locked_low=least,
    )
    hidden = 1 - math.sqrt(1 - unseen)
    return EffectDetail(effect, np.exp(binned.clock), relative, gain, hidden, parts.clipped)


def _left(alpha: float, slope: float, clock_variance: float, parts: _Spreads) -> float:
    """Variance that a lock leaves: that of log t + alpha log f, but never below the quick noise.

    The clock's own variance is taken from the single readings: late or held ones have the right
    spread, where bin means smooth the quick part away. `slope` is the trend's -slope plus what
    late readings hide of it, since 2 % of the clock's variance would outweigh what a lock leaves.
    """
    removed = clock_variance * (2 * alpha * slope - alpha * alpha)
    total = parts.clipped**2
    return max(total - max(removed, 0.0), min(parts.floor**2, total))


def _refused(
    parts: _Spreads,
    reason: str,
    spread: float | None,
    binned: _Binned | None = None,
    relative: FloatArray | None = None,
) -> EffectDetail:
    lag_ns = None if binned is None else round(binned.lag_s * NS_PER_S)
    effect = ClockEffect(
        status="refused", reason=reason, clock_spread=spread, lag_ns=lag_ns, std_now=parts.total
    )
    empty = np.empty(0)
    return EffectDetail(
        effect,
        empty if binned is None else np.exp(binned.clock),
        empty if relative is None else relative,
        clipped_std=None if parts.total is None else parts.clipped,
    )

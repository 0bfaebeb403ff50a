"""Is a row's time still moving? Trend of one window, steady and settled, and the warm-up cut.

The window is cut into 24 batches. The difference between its outer thirds is judged by the noise
around the best of four simple shapes, so that neither a curve nor a step inflates its own noise
and hides. Slow warm-up hides from any window of 20 s: "settled" asks the thermometer and the
levels of the last minutes.
"""

import math
from collections import deque
from functools import cache
from typing import NamedTuple

import numpy as np

from usv_tui.model import Drift, StateWord
from usv_tui.stats.basics import (
    MAD_TO_SD,
    NS_PER_S,
    FloatArray,
    IntArray,
    median,
    normal_deviate,
    row_medians,
    usable,
)
from usv_tui.stats.settling import (
    FLAT_C_PER_MIN,
    HORIZON_S,
    TEMP_C_PER_MIN,
    TEMP_SPAN_S,
    Level,
    Outlook,
    SlowMemory,
)

NO_OUTLOOK = Outlook(None, 0.0, 0.0, None, 0.0, None)
BATCHES = 24
THIRD = BATCHES // 3
MIN_SAMPLES = 2 * BATCHES
"""Two samples a batch: below that there is no trend to speak of."""

DELTA = 0.005
"""Changes below 0.5 % between the outer thirds are of no practical interest."""
Z_FIRE = 3.3
Z_AT_ONCE = 5.0
"""Evidence that needs no second evaluation."""
Z_WARM = 2.0
"""Evidence enough when the thermometer moves as well."""
WARM_C = 3.0
"""Temperature change that counts as moving."""
SETTLED_C = 1.0
"""Largest temperature change of a settled device (sensors count whole degrees)."""
SETTLED_WINDOW_S = 15.0
BLIND_WINDOW_S = 60.0
"""Without a thermometer the level must have held for this long."""
CALM_EVALUATIONS = 3
EVALUATION_S = 0.5
"""Evaluations closer together than this do not count as two."""

_FLOOR = 1e-9
"""Relative noise below which numbers differ only by rounding."""


def batch_locations(values: FloatArray, tick: float = 0.0) -> FloatArray | None:
    """Log of the clipped mean of 24 consecutive batches; None below 48 usable values.

    Each batch is clipped around its own median at max(6 robust sd, 3 ticks): stragglers go, a
    moving clock stays, and a coarse timer or two modes still move the mean where they would hold
    the median still.
    """
    x = usable(np.asarray(values, np.float64))
    size = x.size // BATCHES
    if x.size < MIN_SAMPLES:
        return None
    batches = x[x.size - size * BATCHES :].reshape(BATCHES, size)
    medians = row_medians(batches)[:, None]
    deviation = batches - medians
    limit = max(6 * MAD_TO_SD * median(np.abs(deviation).ravel()), 3 * tick)
    if limit > 0:
        deviation = np.clip(deviation, -limit, limit)
    return np.asarray(np.log(medians[:, 0] + deviation.mean(axis=1)), np.float64)


class Trend(NamedTuple):
    """The trend test of one series of 24 batches."""

    change: float
    """Mean of the last third minus that of the first, of log t."""
    z: float
    """The change as a normal deviate."""
    se: float
    """Standard error of the change."""

    @property
    def detectable(self) -> float:
        """The smallest change that would have been called one."""
        return Z_FIRE * self.se


class _Shape(NamedTuple):
    basis: FloatArray
    """Orthonormal columns, batches x parameters."""
    parameters: int


@cache
def _shapes() -> tuple[_Shape, ...]:
    """Line, parabola, steps with four batches a side, exponentials, ramps that begin or end.

    A step's or corner's place and an exponential's time constant count as a parameter each.
    Without the corners a ramp that has just begun leaves residuals that hide it for 15 s.
    """
    u = np.linspace(0.0, 1.0, BATCHES)
    one = np.ones(BATCHES)
    designs: list[tuple[list[FloatArray], int]] = [([one, u], 2), ([one, u, u * u], 3)]
    designs += [
        ([one, (np.arange(BATCHES) >= at).astype(np.float64)], 3) for at in range(4, BATCHES - 3)
    ]
    designs += [([one, np.exp(-u / tau)], 3) for tau in (0.1, 0.2, 0.4)]
    for corner in (0.2, 0.35, 0.5, 0.65, 0.8, 0.9):
        designs += [([one, np.maximum(u - corner, 0.0)], 3), ([one, np.minimum(u, corner)], 3)]
    return tuple(
        _Shape(np.linalg.qr(np.stack(columns, axis=1))[0], parameters)
        for columns, parameters in designs
    )


@cache
def _lag_weights() -> FloatArray:
    """1 - i/h of the lags i = 1 .. h-1."""
    return np.asarray(1 - np.arange(1, THIRD) / THIRD, np.float64)


def trends(y: FloatArray) -> list[Trend]:
    """The trend test of each row of `y` (rows x 24 batches of log t), all at once."""
    y = np.atleast_2d(np.asarray(y, np.float64))
    if y.shape[0] == 0:
        return []
    change = y[:, -THIRD:].mean(axis=1) - y[:, :THIRD].mean(axis=1)
    centred = y - y.mean(axis=1, keepdims=True)
    best = np.full(y.shape[0], np.inf)
    residual = np.zeros_like(y)
    parameters = np.full(y.shape[0], 2.0)
    for shape in _shapes():
        e = centred - (centred @ shape.basis) @ shape.basis.T
        rss = np.maximum((e * e).sum(axis=1), BATCHES * _FLOOR**2)
        score = BATCHES * np.log(rss / BATCHES) + shape.parameters * math.log(BATCHES)
        better = score < best
        best = np.where(better, score, best)
        residual[better] = e[better]
        parameters[better] = shape.parameters
    power = np.maximum((residual * residual).sum(axis=1), BATCHES * _FLOOR**2)
    variance = power / (BATCHES - parameters)
    lag1 = (residual[:, 1:] * residual[:, :-1]).sum(axis=1) / power
    r = np.clip((BATCHES * lag1 + parameters) / (BATCHES - parameters - 2), 0.0, 0.95)
    inflation = 1 + 2 * (_lag_weights() * r[:, None] ** np.arange(1, THIRD)).sum(axis=1)
    se = np.sqrt(variance * 2 * inflation / THIRD)
    df = np.maximum(3.0, 2 * THIRD / inflation - 2)
    z = normal_deviate(change / se, df)
    return [Trend(*row) for row in np.stack([change, z, se], axis=1).tolist()]


def trend(values: FloatArray, tick: float = 0.0) -> Trend | None:
    """The trend of one series of times; None below 48 usable values."""
    y = batch_locations(values, tick)
    return None if y is None else trends(y)[0]


def slope_per_s(y: FloatArray, span_s: float) -> float | None:
    """Theil-Sen slope of 24 equally spaced batches over `span_s` seconds, relative per second."""
    if span_s <= 0:
        return None
    i, j = _all_pairs(y.size)
    return median((y[j] - y[i]) / (j - i)) * y.size / span_s


@cache
def _all_pairs(n: int) -> tuple[IntArray, IntArray]:
    i, j = np.triu_indices(n, 1)
    return i.astype(np.int64), j.astype(np.int64)


def temperature_change(
    t_ns: IntArray, temp_c: FloatArray, from_ns: float, to_ns: float
) -> float | None:
    """Mean temperature of the last third of a stretch of time minus that of the first third.

    None when either third has no reading.
    """
    thirds = temperature_thirds(t_ns, temp_c, from_ns, to_ns)
    return None if thirds is None else thirds[1] - thirds[0]


def temperature_thirds(
    t_ns: IntArray, temp_c: FloatArray, from_ns: float, to_ns: float
) -> tuple[float, float] | None:
    """Mean temperatures of the first and the last third of a stretch of time; None without both."""
    good = np.isfinite(temp_c) & (t_ns >= from_ns) & (t_ns <= to_ns)
    if not good.any():
        return None
    t, c = t_ns[good], temp_c[good]
    third = (to_ns - from_ns) / 3
    first, last = c[t <= from_ns + third], c[t >= to_ns - third]
    if first.size == 0 or last.size == 0:
        return None
    return float(first.mean()), float(last.mean())


class Look(NamedTuple):
    """What one evaluation sees of one row."""

    now_ns: int
    window_s: float
    """Time from the first to the last sample of the window."""
    trend: Trend | None
    level: float | None
    """log t at the end of the window, for the memory beyond it."""
    temp_change_c: float | None
    slope_per_s: float | None = None
    temp_c: float | None = None
    """Mean temperature of the window's last third."""


def fires(trend: Trend, temp_change_c: float | None, slack: float = 1.0) -> bool:
    """One evaluation's opinion that the row moves; `slack` below 1 holds on to an old opinion."""
    if abs(trend.change) < DELTA * slack:
        return False
    if abs(trend.z) >= Z_FIRE * slack:
        return True
    moving = temp_change_c is not None and abs(temp_change_c) >= WARM_C * slack
    return moving and abs(trend.z) >= Z_WARM * slack


def _ahead(look: Look) -> float:
    """How many times the change between the outer thirds fits into five minutes."""
    return HORIZON_S / (look.window_s * 2 / 3) if look.window_s > 0 else 0.0


def _to_come(look: Look, trend: Trend) -> float:
    """Bound of the change within the next five minutes as far as the window tells."""
    return (abs(trend.change) + 2 * trend.se) * _ahead(look)


class DriftTracker:
    """Remembers a row's last evaluations: drift needs two in a row, settled three.

    Overwhelming evidence counts at once, and so does any in a row's first 15 s.

    `Drift.word` is NONE with too few samples, WARMING or DRIFTING when the row moves, UNDECIDED
    when the window could not have shown 0.5 %, STEADY when flat so far, SETTLED when flat while
    the temperature holds (or, with no thermometer, flat for 60 s) and the last minutes leave no
    more than 0.5 % for the next five. `within` and `held_s` say what has held, and for how long.
    """

    def __init__(self) -> None:
        self._fired = 0
        self._calm = 0
        self._is_drifting = False
        self._last_ns: int | None = None
        self._levels: deque[tuple[int, int, float]] = deque()
        """(when, since when, log t) of each evaluation of the last minute."""
        self._slow = SlowMemory()
        self._outlook = NO_OUTLOOK
        self.settled_since_ns: int | None = None
        """When the current settled state began; None when not settled."""

    def reset(self) -> None:
        """Forget everything: a new epoch."""
        self._fired = self._calm = 0
        self._is_drifting = False
        self._last_ns = self.settled_since_ns = None
        self._levels.clear()
        self._slow.clear()
        self._outlook = NO_OUTLOOK

    def update(self, look: Look) -> Drift:
        """Take one more evaluation (1 Hz is meant) into account."""
        trend = look.trend
        if trend is None or look.level is None:
            self.reset()
            return Drift(window_s=look.window_s, temp_change_c=look.temp_change_c)
        if self._last_ns is None or look.now_ns - self._last_ns >= EVALUATION_S * NS_PER_S:
            self._last_ns = look.now_ns
            self._count(look, trend, look.level)
        return Drift(
            word=self._word(look, trend),
            change=math.expm1(trend.change),
            z=trend.z,
            detectable=math.expm1(min(trend.detectable, 5.0)),
            window_s=look.window_s,
            temp_change_c=look.temp_change_c,
            slope_per_s=look.slope_per_s,
            within=self._outlook.within,
            held_s=self._outlook.held_s,
            to_come=self._bound(look, trend),
        )

    def _bound(self, look: Look, trend: Trend) -> float | None:
        """What `settled` stands for: at least what it asks for, more where less cannot be told."""
        if self.settled_since_ns is None:
            return None
        return max(DELTA, min(self._outlook.to_come or math.inf, _to_come(look, trend)))

    def _remember(self, look: Look, level: float) -> Outlook:
        third_ns = int(look.window_s * NS_PER_S / 3)
        self._slow.add(Level(look.now_ns - third_ns, look.now_ns, level, look.temp_c))
        return self._slow.outlook()

    def _count(self, look: Look, trend: Trend, level: float) -> None:
        outlook = self._outlook = self._remember(look, level)
        is_slow = abs(outlook.drifts) >= DELTA
        fired = fires(trend, look.temp_change_c) or is_slow
        self._fired = self._fired + 1 if fired else 0
        began_ns = look.now_ns - int(look.window_s * NS_PER_S)
        self._levels.append((look.now_ns, began_ns, level))
        while look.now_ns - self._levels[0][0] > BLIND_WINDOW_S * 1.05 * NS_PER_S:
            self._levels.popleft()
        calm = not fired and abs(trend.change) < DELTA and self._is_level(look, trend)
        self._calm = self._calm + 1 if calm else 0
        # A row that has just begun is expected to move: one evaluation will do.
        at_once = abs(trend.z) >= Z_AT_ONCE or look.window_s < SETTLED_WINDOW_S
        if self._fired >= 2 or (fired and at_once):
            self._is_drifting = True
            if abs(trend.change) >= DELTA:
                # What was before a change says nothing of how the row goes on after it.
                self._slow.forget_before(look.now_ns - int(look.window_s * NS_PER_S / 3))
        elif self._is_drifting and not is_slow and not fires(trend, look.temp_change_c, 0.6):
            self._is_drifting = False
        if self._calm >= CALM_EVALUATIONS:
            self.settled_since_ns = self.settled_since_ns or look.now_ns
        elif self._is_drifting or not self._keeps_settled(look, trend):
            self.settled_since_ns = None

    def _is_level(self, look: Look, trend: Trend) -> bool:
        """What the window cannot see holds still: times and temperature of the last minutes."""
        outlook = self._outlook
        if self._creeps(look, trend):
            return False
        to_come = min(outlook.to_come or math.inf, _to_come(look, trend))
        if look.temp_change_c is None:
            span = (look.now_ns - self._levels[0][1]) / NS_PER_S
            return span >= BLIND_WINDOW_S and self._range() < DELTA
        if look.window_s < SETTLED_WINDOW_S or abs(look.temp_change_c) > SETTLED_C:
            return False
        # A line overstates what is to come of a drift that levels off, by half or more.
        if to_come <= 2 * DELTA:
            return self._warms(look) <= TEMP_C_PER_MIN
        is_flat = outlook.held_s >= TEMP_SPAN_S and self._warms(look) <= FLAT_C_PER_MIN
        return is_flat and to_come <= 3 * DELTA

    def _warms(self, look: Look) -> float:
        """How fast the temperature changes, degrees a minute, whichever way."""
        slow = self._outlook.warms_c_per_min
        if slow is None and look.temp_change_c is not None and look.window_s > 0:
            slow = look.temp_change_c * 60 / (look.window_s * 2 / 3)
        return abs(slow or 0.0)

    def _creeps(self, look: Look, trend: Trend, slack: float = 1.0) -> bool:
        """Slow enough to be no drift yet, and sure to pass 0.5 % within the next five minutes."""
        if abs(self._outlook.creep) > DELTA * slack:
            return True
        ahead = abs(trend.change) * _ahead(look)
        return abs(trend.z) >= Z_AT_ONCE and ahead > 2 * DELTA * slack

    def _keeps_settled(self, look: Look, trend: Trend) -> bool:
        if self._creeps(look, trend, slack=2.0):
            return False
        if look.temp_change_c is not None:
            is_near = abs(look.temp_change_c) <= 2 * SETTLED_C
            return is_near and abs(self._outlook.warms_c_per_min or 0.0) <= 2 * TEMP_C_PER_MIN
        return self._range() < 2 * DELTA

    def _range(self) -> float:
        """How far the level has moved within the last minute."""
        levels = [level for _, _, level in self._levels]
        return max(levels) - min(levels)

    def _word(self, look: Look, trend: Trend) -> StateWord:
        if self._is_drifting:
            warms = look.temp_change_c is not None and look.temp_change_c >= SETTLED_C
            return StateWord.WARMING if warms else StateWord.DRIFTING
        if self.settled_since_ns is not None:
            return StateWord.SETTLED
        if trend.detectable > DELTA:
            return StateWord.UNDECIDED
        return StateWord.STEADY

"""Is a limit real? A flag alone is no throttle: a second witness has to say the same.

Drivers leave bits stuck. A bit counts when a counter grows with it, when the clock is below what
it could be, when the power is at its cap or the temperature at its limit.
"""

from typing import NamedTuple

import numpy as np

from usv_tui.model import POWER_REASONS, THERMAL_REASONS
from usv_tui.stats.basics import FloatArray
from usv_tui.stats.clock_effect import MIN_SPREAD
from usv_tui.stats.inputs import Limits, TelemetryData, limits

STUCK_SHARE = 0.05
"""A bit that is on for less of the time is not worth a word."""
AT_CAP = 0.9
"""Share of the power limit from which the power counts as at it."""
NEAR_C = 5.0
"""So near to its limit a temperature counts as at it."""
COOL_C = 65.0
"""No card slows down below this temperature, where it does not tell its limit."""
BELOW = 0.98
"""Share of the highest clock below which a clock counts as held down."""


class Witnessed(NamedTuple):
    """The limits that may be believed, and the flags that may not."""

    limits: Limits
    stuck: tuple[str, ...] = ()
    """power, thermal: flags that no second witness bears out."""
    is_down: bool = False
    """The clock is below the highest that it could be, now and then at least."""


def witnessed(loaded: TelemetryData, locked_mhz: int | None = None) -> Witnessed:
    """The limits of the readings under load, as far as more than a flag speaks for them.

    `locked_mhz` is a lock of ours in force: a clock that stands there is not held down by a limit.
    """
    told = limits(loaded)
    is_down = _is_held_down(loaded, locked_mhz)
    stuck = []
    power, thermal = told.power, told.thermal
    if _bits(loaded, int(POWER_REASONS)) >= STUCK_SHARE and not (
        _grows(loaded.power_ns) or is_down or _is_at_cap(loaded)
    ):
        stuck.append("power")
        power = 0.0
    if _bits(loaded, int(THERMAL_REASONS)) >= STUCK_SHARE and not (
        _grows(loaded.thermal_ns) or _is_hot(loaded) or (is_down and not _is_other(loaded))
    ):
        stuck.append("thermal")
        thermal = 0.0
    return Witnessed(Limits(power, thermal), tuple(stuck), is_down)


def _bits(loaded: TelemetryData, mask: int) -> float:
    known = loaded.reasons[loaded.reasons >= 0]
    return float(((known & mask) != 0).mean()) if known.size else 0.0


def _grows(counter: FloatArray) -> bool:
    good = counter[np.isfinite(counter)]
    return bool(good.size > 1 and good[-1] > good[0])


def _clock(loaded: TelemetryData) -> FloatArray:
    mhz = loaded.sm_mhz if loaded.low_mhz is None else loaded.low_mhz
    return mhz[np.isfinite(mhz) & (mhz > 0)]


def _is_held_down(loaded: TelemetryData, locked_mhz: int | None) -> bool:
    """The clock is below the highest that it could be, now and then at least."""
    mhz = _clock(loaded)
    ceilings = [c for c in (loaded.ceiling_mhz, locked_mhz) if c is not None]
    ceiling = min(ceilings) if ceilings else max(mhz, default=0.0)
    return bool(mhz.size and np.quantile(mhz, 0.05) < BELOW * ceiling)


def _is_at_cap(loaded: TelemetryData) -> bool:
    if loaded.power_mw is None or not loaded.cap_w:
        return False
    power = loaded.power_mw[np.isfinite(loaded.power_mw)]
    return bool(power.size and np.median(power) >= AT_CAP * 1e3 * loaded.cap_w)


def _temperature(loaded: TelemetryData) -> float | None:
    good = loaded.temp_c[np.isfinite(loaded.temp_c)]
    return float(good.max()) if good.size else None


def _is_hot(loaded: TelemetryData) -> bool:
    hottest, limit = _temperature(loaded), loaded.temp_limit_c
    return hottest is not None and limit is not None and hottest >= limit - NEAR_C


def _is_other(loaded: TelemetryData) -> bool:
    """Far from any thermal limit, and something else holds the clock down.

    A power cap that is reached, or somebody's lock: then the clock does not move.
    """
    hottest, mhz = _temperature(loaded), _clock(loaded)
    if hottest is None or mhz.size == 0:
        return False
    limit = COOL_C if loaded.temp_limit_c is None else loaded.temp_limit_c - 2 * NEAR_C
    low, high = np.quantile(mhz, (0.025, 0.975))
    return bool(hottest < limit and (high / low - 1 < MIN_SPREAD or _is_at_cap(loaded)))

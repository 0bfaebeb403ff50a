"""Can this be true? Every reading of every sensor is held against what a device can do.

Drivers hand out sentinels, uninitialised memory and left-overs with a code of success. Three
witnesses judge a value: the device's own limits, what it read before, and another sensor. What is
refused has a reason and is counted; rare but true values pass: power well over its limit for a
moment, clocks a little over the listed maximum, the cold of an unheated room.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from usv_tui.model import DeviceInfo
from usv_tui.vendor.kinds import Vendor

S = 1_000_000_000

CLOCK_SLACK: dict[str, float] = {Vendor.NVIDIA: 1.25, Vendor.AMD: 1.6}
"""Over the listed maximum: boost bins beyond it, and AMD's list that ends below the boost clock."""
ANY_CLOCK_MHZ = 10_000
"""Of a device that lists no clocks."""
ANY_MEMORY_MHZ = 40_000
EXCURSION = 2.0
"""Power over the enforced limit that real boards show for milliseconds, and a sensor with them."""
ANY_POWER_MW = 5_000_000
"""Of a device that tells no limit: several times the largest board."""
LIMIT_KEPT_NS = 10 * S
"""A lowered limit counts only after so long: means over a second still hold the time before."""
TEMPERATURES_C = (-40.0, 130.0)
OVER_SHUTDOWN_C = 10.0
FASTEST_C = 50.0
"""Largest step between two readings: a die's sensor jumps by a few tens when load comes or goes."""
FORGET_NS = 10 * S
"""After so long without a reading, anything may have happened in between."""
FREEZING_STEP_C = 10.0
"""At or below 0 °C, where sensors that do not exist read 0, only a slow way there is believed."""
BUSY_PCT = 5.0
COUNTER_LEAD_NS = S
"""How far a counter may run ahead of its rate: it moves in steps."""
CONSISTENT = 3
"""What jumped and then goes on as it should is believed after so many looks."""

_PERCENT_LIMITS = {"util_pct": 100.0, "steal_pct": 100.0, "fan_pct": 200.0}
"""A fan's speed is told as a share of the intended one, and may be above it."""


class _Last(NamedTuple):
    """What was last believed of a sensor."""

    value: float
    at_ns: int


class Judge:
    """Remembers one device's limits and readings, and refuses what cannot be."""

    def __init__(self) -> None:
        self._kind = ""
        self._max_mhz: float | None = None
        self._shutdown_c: float | None = None
        self._limits: list[tuple[int, float]] = []
        """Enforced power limits, mW, with the time from which each was seen."""
        self._last: dict[str, _Last] = {}
        self._doubted: dict[str, tuple[_Last, int]] = {}
        """A refused counter value, and how many followed it consistently."""

    def know(self, info: DeviceInfo) -> None:
        """Take over a device's own limits, as far as they can be true themselves."""
        self._kind = info.kind
        listed = [info.max_sm_mhz, *info.supported_sm_mhz[-1:]]
        self._max_mhz = max((mhz for mhz in listed if mhz and sane_mhz(mhz)), default=None)
        # AMD's critical and emergency limits, NVIDIA's slowdown and shutdown: the highest counts.
        limits = [c for c in info.temp_limits_c.values() if 50 <= c <= TEMPERATURES_C[1]]
        self._shutdown_c = max(limits, default=None)
        if sane_mw(info.power_limit_mw):
            self._limits = [(0, float(info.power_limit_mw or 0))]

    def refuse(self, name: str, value: Any, now_ns: int, others: Mapping[str, Any]) -> str:
        """Why a value cannot be true; empty when it can, and it is remembered then.

        Args:
            name: the sensor, a field of `Reading` (or `field.part`).
            value: what the driver says; what is no number is not judged.
            now_ns: when it was read.
            others: the last believed values of the device's other sensors.
        """
        if not isinstance(value, int | float) or isinstance(value, bool):
            return ""
        why = self._why(name, float(value), now_ns, others)
        if not why:
            self._last[name] = _Last(float(value), now_ns)
            if name == "power_limit_mw":
                self._note_limit(float(value), now_ns)
        return f"implausible: {why}" if why else ""

    def _why(self, name: str, value: float, now_ns: int, others: Mapping[str, Any]) -> str:
        if name in ("sm_mhz", "sm_mhz_min"):
            return self._clock(value, others)
        if name == "mem_mhz":
            return "" if 0 < value <= ANY_MEMORY_MHZ else f"{value:.0f} MHz"
        if name == "power_mw":
            return self._power(value, now_ns, others)
        if name in ("temp_c", "mem_temp_c"):
            return self._temperature(name, value, now_ns)
        if name in _PERCENT_LIMITS:
            return "" if 0 <= value <= _PERCENT_LIMITS[name] else f"{value:g} %"
        if name == "power_limit_mw":
            return "" if sane_mw(value) else f"a limit of {value / 1000:g} W"
        if name == "pstate":
            return "" if 0 <= value <= 15 else f"P{value:.0f}"
        if name == "energy_mj":
            return self._counter(name, value, now_ns, self._most_mw(now_ns)[0] / S)
        if name.startswith("throttle_ns"):
            return self._counter(name, value, now_ns, 1.0)
        return ""

    def _clock(self, mhz: float, others: Mapping[str, Any]) -> str:
        if mhz <= 0:
            busy = (others.get("util_pct") or 0) > 0
            return "0 MHz while the device works" if busy else f"{mhz:g} MHz"
        if self._max_mhz is None:
            return "" if mhz <= ANY_CLOCK_MHZ else f"{mhz:.0f} MHz"
        most = self._max_mhz * CLOCK_SLACK.get(self._kind, 2.0)
        return "" if mhz <= most else f"{mhz:.0f} MHz, the device's maximum is {self._max_mhz:.0f}"

    def _power(self, mw: float, now_ns: int, others: Mapping[str, Any]) -> str:
        if mw < 0 or (mw == 0 and not self._may_rest(others)):
            return f"{mw / 1000:g} W"
        most, limit = self._most_mw(now_ns)
        if mw <= most:
            return ""
        return f"{mw / 1000:.0f} W" + (f", the limit is {limit / 1000:.0f} W" if limit else "")

    def _may_rest(self, others: Mapping[str, Any]) -> bool:
        """Whole watts, as AMD's tables have them, round a sleeping chip to none."""
        util = others.get("util_pct")
        return self._kind == Vendor.AMD and util is not None and util < BUSY_PCT

    def _most_mw(self, now_ns: int) -> tuple[float, float | None]:
        """The largest power that can be true, and the limit behind it."""
        if not self._limits:
            return ANY_POWER_MW, None
        limit = max(mw for _, mw in self._limits_now(now_ns))
        return limit * EXCURSION, limit

    def _limits_now(self, now_ns: int) -> list[tuple[int, float]]:
        """The limit in force and those that it replaced a moment ago."""
        if not self._limits:
            return []
        ends = [start for start, _ in self._limits[1:]] + [now_ns]
        pairs = zip(self._limits, ends, strict=True)
        return [pair for pair, end in pairs if end >= now_ns - LIMIT_KEPT_NS]

    def _note_limit(self, mw: float, now_ns: int) -> None:
        if not self._limits or self._limits[-1][1] != mw:
            self._limits = [*self._limits_now(now_ns), (now_ns, mw)]

    def _temperature(self, name: str, celsius: float, now_ns: int) -> str:
        low, high = TEMPERATURES_C
        if self._shutdown_c is not None and name == "temp_c":
            high = self._shutdown_c + OVER_SHUTDOWN_C
        if not low <= celsius <= high:
            return f"{celsius:g} °C"
        last = self._last.get(name)
        is_known = last is not None and now_ns - last.at_ns <= FORGET_NS
        step = abs(celsius - last.value) if last is not None and is_known else None
        if celsius <= 0 and (step is None or step > FREEZING_STEP_C):
            return f"{celsius:g} °C"
        if last is not None and step is not None and step > FASTEST_C:
            return self._jump(name, celsius, now_ns, last)
        self._doubted.pop(name, None)
        return ""

    def _jump(self, name: str, celsius: float, now_ns: int, last: _Last) -> str:
        """A jump is believed when the readings after it stay where it went."""
        doubted, looks = self._doubted.get(name, (None, 0))
        stays = doubted is not None and abs(celsius - doubted.value) <= FREEZING_STEP_C
        looks = looks + 1 if stays else 1
        self._doubted[name] = (_Last(celsius, now_ns), looks)
        if looks < CONSISTENT:
            return f"{celsius:g} °C, a moment after {last.value:g} °C"
        del self._doubted[name]
        return ""

    def _counter(self, name: str, value: float, now_ns: int, per_ns: float) -> str:
        """A counter cannot grow faster than what it counts; one that falls was reset."""
        last = self._last.get(name)
        if value < 0 or (value == 0 and name == "energy_mj" and self._kind in CLOCK_SLACK):
            return f"reads {value:g}"
        if last is None or _can_follow(last, value, now_ns, per_ns):
            self._doubted.pop(name, None)
            return ""
        doubted, looks = self._doubted.get(name, (None, 0))
        follows = doubted is not None and _can_follow(doubted, value, now_ns, per_ns)
        looks = looks + 1 if follows else 1
        self._doubted[name] = (_Last(value, now_ns), looks)
        return f"it grew by {value - last.value:.3g} in {(now_ns - last.at_ns) / S:.3g} s"

    def is_new_start(self, name: str) -> bool:
        """True once a refused counter has counted on consistently: what was before is void."""
        doubted, looks = self._doubted.get(name, (None, 0))
        if doubted is None or looks < CONSISTENT:
            return False
        del self._doubted[name]
        self._last[name] = doubted
        return True


def _can_follow(last: _Last, value: float, now_ns: int, per_ns: float) -> bool:
    return value - last.value <= per_ns * (now_ns - last.at_ns + COUNTER_LEAD_NS)


def sane_mhz(mhz: float | None) -> bool:
    """True for a number that can be a processor's highest clock."""
    return mhz is not None and 100 <= mhz <= ANY_CLOCK_MHZ


def sane_mw(mw: float | None) -> bool:
    """True for a number that can be a device's power limit."""
    return mw is not None and 1000 <= mw <= ANY_POWER_MW


def sane_info(info: DeviceInfo) -> dict[str, Any]:
    """The limits of a device without those that cannot be true; for `structs.replace`."""
    low, high = TEMPERATURES_C
    return {
        "max_sm_mhz": info.max_sm_mhz if sane_mhz(info.max_sm_mhz) else None,
        "power_limit_mw": info.power_limit_mw if sane_mw(info.power_limit_mw) else None,
        "supported_sm_mhz": [mhz for mhz in info.supported_sm_mhz if 0 < mhz <= ANY_CLOCK_MHZ],
        "temp_limits_c": {n: c for n, c in info.temp_limits_c.items() if low < c <= high + 20},
    }


class EnergyWitness:
    """Holds an energy counter against the power sensor; either alone may lie."""

    PERIOD_NS = 10 * S
    MIN_READINGS = 10

    def __init__(self, factor: float, periods: int) -> None:
        """Disagree when they differ by more than `factor` in so many periods in a row."""
        self._factor, self._periods = factor, periods
        self._start: tuple[int, float] | None = None
        self._power_sum, self._n = 0.0, 0
        self._misses = 0

    def feed(self, energy_mj: float | None, power_mw: float | None, now_ns: int) -> str:
        """Take one look; returns how they disagree, or nothing."""
        if energy_mj is None or power_mw is None:
            return ""
        self._power_sum, self._n = self._power_sum + power_mw, self._n + 1
        if self._start is None:
            self._start = (now_ns, energy_mj)
        then_ns, then_mj = self._start
        if now_ns - then_ns < self.PERIOD_NS or self._n < self.MIN_READINGS:
            return ""
        counter_w = (energy_mj - then_mj) / ((now_ns - then_ns) / S) / 1000
        power_w = self._power_sum / self._n / 1000
        self._start, self._power_sum, self._n = (now_ns, energy_mj), 0.0, 0
        agree = power_w / self._factor <= counter_w <= power_w * self._factor
        self._misses = 0 if agree else self._misses + 1
        if self._misses < self._periods:
            return ""
        return f"the counter says {counter_w:.0f} W where power reads {power_w:.0f} W"

"""One card's power, heat and clock, advanced in governor ticks.

A tick is a pure step: (state, activity of the tick, outside power) to the next state. All noise
comes from one seeded stream with a fixed draw per tick, so equal work gives equal states, bit for
bit.
"""

import math
from typing import NamedTuple

import numpy as np

from usv_tui.model import Reason
from usv_tui.sim.power_loops import power_loop
from usv_tui.sim.profiles import Card

_NOISE_CHUNK = 4096
_THERMAL_DOWN_S = 0.1
_THERMAL_UP_S = 0.5
_UTIL_UP_S = 0.05
_UTIL_TAU_S = 0.5
_UTIL_BUSY = 0.6
_UTIL_FLOOR = 0.6
_IDLE, _POWER, _THERMAL = int(Reason.IDLE), int(Reason.SW_POWER_CAP), int(Reason.SW_THERMAL)
_HW_THERMAL = int(Reason.HW_THERMAL)
_HALVED = _HW_THERMAL | int(Reason.HW_SLOWDOWN)


class TickRow(NamedTuple):
    """What was true during one governor tick, or (temperature, counters) at its end."""

    mhz: float
    temp_c: float
    sink_c: float
    power_w: float
    energy_j: float
    busy: float
    """Share of the tick in which the device worked."""
    reasons: int
    power_capped_ns: int
    thermal_ns: int
    hw_thermal_ns: int
    shown_mhz: float
    """The clock that the driver knows of: higher than `mhz` while something hidden slows it."""


class Equilibrium(NamedTuple):
    """Where a card ends up under a load that lasts."""

    entry: int
    """Index into the boost table."""
    mhz: int
    temp_c: float
    sink_c: float
    power_w: float


def dynamic_w(card: Card) -> list[float]:
    """Dynamic power at activity 1 for each entry of the boost table: f V(f)^2, scaled."""
    powers = []
    for mhz in card.supported_mhz:
        above = max(0.0, (mhz - card.knee_mhz) / (card.max_mhz - card.knee_mhz))
        volt = card.v_min + (card.v_max - card.v_min) * above
        powers.append(card.dyn_w * (mhz / card.max_mhz) * (volt / card.v_max) ** 2)
    return powers


def power_at(card: Card, dynamic: float, temp_c: float, extra_w: float = 0.0) -> float:
    """Board power for a dynamic part at a die temperature, watts."""
    return card.idle_w + card.leak_w * math.exp(card.leak_k * (temp_c - 60.0)) + dynamic + extra_w


def heat(card: Card, dynamic: float, extra_w: float = 0.0) -> tuple[float, float, float]:
    """Steady die temperature, sink temperature and power for a dynamic part, by iteration."""
    temp_c = card.ambient_c
    for _ in range(60):
        power_w = power_at(card, dynamic, temp_c, extra_w)
        outside_c = card.ambient_c + power_w * (card.r_case + card.r_sink)
        temp_c = min(outside_c + power_w * card.r_die, card.t_hw_c + 50.0)
    return temp_c, outside_c, power_w


def equilibrium(
    card: Card, activity: float, lock_mhz: int | None = None, extra_w: float = 0.0
) -> Equilibrium:
    """The highest table entry that power cap, thermal limit, boost bins and lock let last."""
    table = card.supported_mhz
    dynamic = dynamic_w(card)
    top = len(table) - 1 if lock_mhz is None else nearest_index(card, lock_mhz)

    def lasts(index: int) -> bool:
        temp_c, _, power_w = heat(card, dynamic[index] * activity, extra_w)
        bins = max(0, int((temp_c - card.boost_t0_c) / card.boost_dt_c)) if card.boost_dt_c else 0
        return (
            power_w <= 0.99 * card.cap_w
            and temp_c <= card.t_sw_c - card.t_hyst_c / 2
            and index <= len(table) - 1 - bins
        )

    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if lasts(middle) else (low, middle - 1)
    temp_c, sink_c, power_w = heat(card, dynamic[low] * activity, extra_w)
    return Equilibrium(low, table[low], temp_c, sink_c, power_w)


def nearest_index(card: Card, mhz: float) -> int:
    """Index of the table entry nearest to a clock."""
    index = round((mhz - card.min_mhz) / card.step_mhz)
    return min(max(index, 0), card.top)


class Board:
    """The state of one card between governor ticks."""

    def __init__(self, card: Card, seed: int) -> None:
        self.card = card
        self.table = [float(mhz) for mhz in card.supported_mhz]
        self.dynamic = dynamic_w(card)
        self.dt_s = card.governor_ns * 1e-9
        self.top = len(self.table) - 1
        self.idle_index = nearest_index(card, card.idle_mhz)
        self.index = self.idle_index
        self.lock_index: int | None = None
        self.lock_is_floor = True
        """False where a lock only bounds the clock from above."""
        temp_c, sink_c, power_w = heat(card, 0.0)
        self.temp_c = temp_c
        self.sink_c = sink_c
        self.case_c = card.ambient_c + card.r_case * power_w
        """Of the air that reaches the heatsink."""
        self.hidden = 0.0
        """Share of the clock that is lost and that no sensor shows."""
        self.power_w = power_w
        self.ema_w = power_w
        self.energy_j = 0.0
        self.reasons = _IDLE
        self.idle_s = card.idle_after_s
        self.power_capped_ns = 0
        self.thermal_ns = 0
        self.hw_thermal_ns = 0
        self._thermal_cut = 0
        self._since_thermal_s = 0.0
        self._util = 1.0
        self._util_cut = 0.0
        dt_s = self.dt_s
        self._a_power = 1.0 - math.exp(-dt_s / card.tau_power_s)
        self._a_die = 1.0 - math.exp(-dt_s / card.tau_die_s)
        self._a_sink = 1.0 - math.exp(-dt_s / card.tau_sink_s)
        self._a_case = 1.0 - math.exp(-dt_s / card.tau_case_s)
        self._cap_w = card.cap_w
        self._is_fan_on = False
        self._power_loop = power_loop(card, seed)
        self._ticks = 0
        self._phi = math.exp(-dt_s / card.power_noise_tau_s)
        self._eta = 0.0
        self._kick = card.power_noise * math.sqrt(1.0 - self._phi**2)
        self._rng = np.random.default_rng([seed, 1])
        self._noise: list[float] = []

    @property
    def mhz(self) -> float:
        """The clock of the tick to come."""
        return self.table[self.index] * (1.0 - self.hidden)

    def warm(self, activity: float, extra_w: float = 0.0) -> None:
        """Start hot: as if a load of this activity had run for ever."""
        lock = None if self.lock_index is None else int(self.table[self.lock_index])
        state = equilibrium(self.card, activity, lock, extra_w)
        self.index = state.entry
        self.temp_c, self.sink_c = state.temp_c, state.sink_c
        self.case_c = self.card.ambient_c + state.power_w * self.card.r_case
        self.power_w = self.ema_w = state.power_w
        self.idle_s = 0.0
        self.reasons = 0
        if state.temp_c > self.card.t_sw_c - self.card.t_hyst_c:
            self._thermal_cut = self.top - state.entry
            self.reasons = _THERMAL
        elif state.entry < self.top and state.power_w > 0.9 * self.card.cap_w:
            self.reasons = _POWER

    def step(self, activity: float, busy: float, extra_w: float) -> TickRow:
        """End one tick of mean `activity` and `busy` share; returns what it was like."""
        card = self.card
        dt_s = self.dt_s
        noise = self._noise
        if not noise:
            noise = self._noise = self._rng.standard_normal(_NOISE_CHUNK).tolist()
        self._eta = eta = self._phi * self._eta + self._kick * noise.pop()
        index = self.index
        power_w = (
            card.idle_w
            + card.leak_w * math.exp(card.leak_k * (self.temp_c - 60.0))
            + self.dynamic[index] * activity * (1.0 + eta)
            + extra_w
        )
        self.power_w = power_w
        self.ema_w += (power_w - self.ema_w) * self._a_power
        self.temp_c += (self.sink_c + power_w * card.r_die - self.temp_c) * self._a_die
        r_sink = card.r_sink
        if card.fan_on_c:
            limit_c = card.fan_off_c if self._is_fan_on else card.fan_on_c
            self._is_fan_on = self.temp_c > limit_c
            r_sink *= 1.0 - card.fan_gain * self._is_fan_on
        self.sink_c += (self.case_c + power_w * r_sink - self.sink_c) * self._a_sink
        if card.r_case:
            self.case_c += (card.ambient_c + power_w * card.r_case - self.case_c) * self._a_case
        if card.cap_swing:
            self._ticks += 1
            turn = math.sin(2.0 * math.pi * self._ticks * dt_s / card.cap_period_s)
            if card.cap_jumps:
                turn = math.copysign(1.0, turn)
            self._cap_w = card.cap_w * (1.0 + card.cap_swing * turn)
        self.energy_j += power_w * dt_s
        reasons = self.reasons
        if reasons & (_POWER | _THERMAL | _HW_THERMAL):
            self._count(reasons)
        row = self.look(busy)
        self._govern(busy)
        return row

    def look(self, busy: float = 0.0) -> TickRow:
        """The state as it is."""
        return TickRow(
            self.mhz,
            self.temp_c,
            self.sink_c,
            self.power_w,
            self.energy_j,
            busy,
            self.reasons,
            self.power_capped_ns,
            self.thermal_ns,
            self.hw_thermal_ns,
            self.table[self.index],
        )

    def _count(self, reasons: int) -> None:
        tick_ns = self.card.governor_ns
        if reasons & _POWER:
            self.power_capped_ns += tick_ns
        if reasons & _THERMAL:
            self.thermal_ns += tick_ns
        if reasons & _HW_THERMAL:
            self.hw_thermal_ns += tick_ns

    def _govern(self, busy: float) -> None:
        """Choose the clock of the next tick and say why."""
        card = self.card
        limit = self.top
        locked = self.lock_index
        if locked is not None and locked < limit:
            limit = locked
        if busy > 0.0:
            self.idle_s = 0.0
        else:
            self.idle_s += self.dt_s
            if self.idle_s >= card.idle_after_s:
                is_pinned = locked is not None and self.lock_is_floor
                self.index = limit if is_pinned else min(self.idle_index, limit)
                self.reasons = _IDLE
                self._cool()
                return
        if card.boost_dt_c and self.temp_c > card.boost_t0_c:
            limit = min(limit, self.top - int((self.temp_c - card.boost_t0_c) / card.boost_dt_c))
        if card.util_governor:
            limit = min(limit, self._util_limit(busy))
        reasons = 0
        if self._cool():
            ceiling = self.top - self._thermal_cut
            if ceiling < limit:
                limit = ceiling
                reasons = _THERMAL
        index = self._power_loop.next(self.index, limit, self.ema_w, self._cap_w)
        if index < limit and self.ema_w > 0.9 * self._cap_w:
            reasons |= _POWER
        if self.temp_c > card.t_hw_c:
            index = min(index, nearest_index(card, card.max_mhz / 2))
            reasons |= _HALVED
        self.index = max(index, 0)
        self.reasons = reasons

    def _cool(self) -> bool:
        """Move the thermal ceiling; True while it is below the top of the table."""
        card = self.card
        if not self._thermal_cut and self.temp_c <= card.t_sw_c:
            return False
        self._since_thermal_s += self.dt_s
        since_s = self._since_thermal_s + 1e-9
        if self.temp_c > card.t_sw_c:
            if since_s >= _THERMAL_DOWN_S:
                # Starting from where the clock is, not from the top: the cut must bite at once.
                self._thermal_cut = max(self._thermal_cut, self.top - self.index) + 1
                self._thermal_cut = min(self._thermal_cut, self.top)
                self._since_thermal_s = 0.0
        elif self.temp_c < card.t_sw_c - card.t_hyst_c and since_s >= _THERMAL_UP_S:
            self._thermal_cut -= 1
            self._since_thermal_s = 0.0
        return self._thermal_cut > 0

    def _util_limit(self, busy: float) -> int:
        self._util += (busy - self._util) * min(1.0, self.dt_s / _UTIL_TAU_S)
        move = -self.dt_s / _THERMAL_DOWN_S if self._util >= _UTIL_BUSY else self.dt_s / _UTIL_UP_S
        floor = self.top - nearest_index(self.card, _UTIL_FLOOR * self.card.max_mhz)
        self._util_cut = min(max(self._util_cut + move, 0.0), float(floor))
        return self.top - int(self._util_cut)

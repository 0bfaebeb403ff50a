"""What the card's sensors show of its true state: late, refreshed in steps, averaged, rounded."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from usv_tui.model import Reason
from usv_tui.sim.physics import TickRow
from usv_tui.sim.profiles import Card

_MEM_HOTTER_C = 6.0
_UTIL_WINDOW_S = 0.25


class Sensed(NamedTuple):
    """One look at the sensors, before anything that is missing has been taken out."""

    sm_mhz: float
    power_mw: int
    temp_c: float
    mem_temp_c: float
    energy_mj: int
    fan_pct: float
    pstate: int
    reasons: int
    power_capped_ns: int
    thermal_ns: int
    hw_thermal_ns: int


class Sensors:
    """Reads the history of a card as its sensors would."""

    def __init__(self, card: Card) -> None:
        if card.lag_ns < card.governor_ns:
            raise ValueError("sensors must lag by at least a governor tick")
        self._lag_s = card.lag_ns * 1e-9
        self._refresh_s = card.refresh_ns * 1e-9
        self._window_s = card.power_window_ns * 1e-9
        self._dt_s = card.governor_ns * 1e-9
        self._card = card

    def sense(self, rows: Sequence[TickRow], first_row: int, at_s: float) -> Sensed:
        """What the sensors show at a time that the card has reached.

        `rows[i]` is the tick of number `first_row + i`.
        """
        true_s = math.floor((at_s - self._lag_s) / self._refresh_s + 1e-9) * self._refresh_s
        last = first_row + len(rows) - 1
        tick = min(max(math.floor(true_s / self._dt_s + 1e-9), first_row), last)
        row = rows[tick - first_row]
        start_s = max(true_s - self._window_s, first_row * self._dt_s)
        stop_s = max(true_s, start_s + self._dt_s)
        energy_j = self._energy(rows, first_row, stop_s)
        spent_j = energy_j - self._energy(rows, first_row, start_s)
        card = self._card
        fan = min(max((row.temp_c - 40.0) * 2.2, 0.0), 100.0)
        return Sensed(
            row.mhz,
            round(spent_j / (stop_s - start_s) * 1e3),
            float(round(row.temp_c)),
            float(round(row.sink_c + _MEM_HOTTER_C)),
            round(energy_j * 1e3),
            float(round(fan)),
            8 if row.reasons & Reason.IDLE else (2 if card.key in {"rtx", "partial"} else 0),
            row.reasons,
            row.power_capped_ns,
            row.thermal_ns,
            row.hw_thermal_ns,
        )

    def utilisation(self, rows: Sequence[TickRow]) -> float:
        """Busy share of the last quarter of a second, percent."""
        last = rows[-max(1, round(_UTIL_WINDOW_S / self._dt_s)) :]
        return float(round(100.0 * sum(row.busy for row in last) / len(last)))

    def _energy(self, rows: Sequence[TickRow], first_row: int, at_s: float) -> float:
        """Joules spent up to a time, interpolated within its tick."""
        position = at_s / self._dt_s - first_row
        index = math.floor(position + 1e-9)
        if index < 0:
            return rows[0].energy_j - rows[0].power_w * self._dt_s
        if index >= len(rows):
            return rows[-1].energy_j
        row = rows[index]
        return row.energy_j - row.power_w * (index + 1 - position) * self._dt_s

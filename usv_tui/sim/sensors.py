"""What the card's sensors show of its true state: late, refreshed in steps, averaged, rounded."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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
    sm_mhz_min: float
    """Of the slowest chiplet."""


class Sensors:
    """Reads the history of a card as its sensors would."""

    def __init__(self, card: Card, seed: int = 0) -> None:
        if card.lag_ns < card.governor_ns:
            raise ValueError("sensors must lag by at least a governor tick")
        self._lag_s = card.lag_ns * 1e-9
        self._refresh_s = card.refresh_ns * 1e-9
        self._window_s = card.power_window_ns * 1e-9
        self._dt_s = card.governor_ns * 1e-9
        self._card = card
        self._seed = seed
        self._clock_ticks = max(1, round(card.clock_window_ns / card.governor_ns))

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
        mhz = self._clock(rows, tick - first_row)
        flutter_mhz, above_mhz, stray_mhz = self._clock_faults(true_s, at_s, mhz)
        shown_mhz = mhz + flutter_mhz
        grain_mhz = card.clock_grain_mhz
        if grain_mhz:
            shown_mhz = float(grain_mhz * round(shown_mhz / grain_mhz))
        fan = min(max((row.temp_c - 40.0) * 2.2, 0.0), 100.0)
        return Sensed(
            shown_mhz + above_mhz if stray_mhz is None else stray_mhz,
            round(spent_j / (stop_s - start_s) * 1e3),
            float(round(row.temp_c)),
            float(round(row.sink_c + _MEM_HOTTER_C)),
            round(energy_j * 1e3),
            float(round(fan)),
            8 if row.reasons & Reason.IDLE else (2 if card.key in {"rtx", "partial"} else 0),
            row.reasons | card.stuck_reasons,
            row.power_capped_ns,
            row.thermal_ns,
            row.hw_thermal_ns,
            shown_mhz if stray_mhz is None else stray_mhz,
        )

    def _clock(self, rows: Sequence[TickRow], index: int) -> float:
        """The clock of a tick, or its mean over the sensor's window up to there."""
        if self._clock_ticks == 1:
            return rows[index].shown_mhz
        window = rows[max(0, index + 1 - self._clock_ticks) : index + 1]
        return float(round(sum(row.shown_mhz for row in window) / len(window)))

    def _clock_faults(
        self, true_s: float, at_s: float, mhz: float
    ) -> tuple[float, float, float | None]:
        """(flutter, how far the chiplets' mean is above the slowest, a nonsense reading)."""
        card = self._card
        flutter_mhz = above_mhz = 0.0
        if card.flutter_steps or card.chiplets > 1:
            rng = np.random.default_rng([self._seed, 7, max(0, round(true_s * 1e6))])
            steps = card.flutter_steps
            flutter_mhz = float(rng.integers(-steps, steps + 1) * card.step_mhz)
            others = rng.integers(0, card.chiplet_steps + 1, card.chiplets - 1)
            above_mhz = float(others.sum() * card.step_mhz / card.chiplets)
        stray_mhz = None
        if card.stray_p:
            rng = np.random.default_rng([self._seed, 8, round(at_s * 1e6)])
            if rng.random() < card.stray_p:
                stray_mhz = card.stray_mhz or float(round(mhz / 2))
        return flutter_mhz, above_mhz, stray_mhz

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

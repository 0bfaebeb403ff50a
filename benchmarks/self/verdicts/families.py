"""Families of simulated runs, each drawn anew for every case, and which may set a threshold.

TRIED were looked at while rules and thresholds were made, the later ones of them only after the
first had set most. HELD_OUT have controllers and sensors that no rule was tried on, and are
run when a version is finished. No two cases share their load, cap, noise, poll rate and seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from usv_tui.model import Reason
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.odd_scenarios import chassis, no_counters
from usv_tui.sim.physics import heat
from usv_tui.sim.profiles import Card, find_card
from usv_tui.sim.scenarios import SCENARIOS, Scenario
from usv_tui.sim.situation import badly_cooled, capped
from usv_tui.sim.trace import Trace, trace

Rng = np.random.Generator
CARDS = ("h100", "mi300", "rtx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: everything that has to be the same when it is run again under a lock."""

    plan: Scenario
    card: str
    seed: int
    span_s: float
    poll_hz: float
    has_reasons: bool = True

    def run(self, seed: int = 0, lock_mhz: int | None = None) -> Trace:
        """The run, with another seed or a lock where one is given."""
        told = trace(
            self.plan,
            self.card,
            seed or self.seed,
            self.span_s,
            poll_hz=self.poll_hz,
            lock_mhz=lock_mhz,
        )
        if self.has_reasons:
            return told
        nan = np.full_like(told.reasons, np.nan)
        return replace(told, reasons=nan, power_capped_ns=nan, thermal_ns=nan, hw_thermal_ns=nan)


Adapt = Callable[[Card], Card]


def _case(
    rng: Rng,
    *,
    adapt: Adapt | None = capped,
    activity: tuple[float, float] = (0.8, 1.0),
    warm: bool = True,
    neighbour: Neighbour | None = None,
    kernel: dict[str, Any] | None = None,
    memory_bound: bool = False,
    has_reasons: bool = True,
    **card: Any,
) -> Case:
    """A run with a drawn load, noise, cap, poll rate and length; `card` changes its figures."""
    scale, cap = float(rng.uniform(*activity)), float(rng.uniform(0.75, 1.0))
    noise = float(np.exp(rng.uniform(np.log(0.001), np.log(0.006))))
    base = SCENARIOS["memory-bound" if memory_bound else "power-cap"].kernels
    rows = base[: int(rng.integers(2, 4))]
    kernels = tuple(
        replace(
            k,
            noise=noise,
            activity=k.activity * scale,
            t0_ns=k.t0_ns * float(rng.uniform(0.5, 2.0)),
            **(kernel or {}),
        )
        for k in rows
    )

    def fit(plain: Card) -> Card:
        fitted = plain if adapt is None else adapt(plain)
        return replace(fitted, cap_w=cap * fitted.cap_w if adapt else 2 * fitted.cap_w, **card)

    plan = Scenario(
        name="drawn",
        summary="",
        look_for="",
        kernels=kernels,
        adapt=fit,
        warm=warm,
        neighbours=() if neighbour is None else (neighbour,),
    )
    return Case(
        plan=plan,
        card=str(rng.choice(CARDS)),
        seed=int(rng.integers(1_000_000, 2_000_000)),
        span_s=float(rng.uniform(24.0, 40.0)),
        poll_hz=float(rng.choice([10.0, 20.0, 50.0])),
        has_reasons=has_reasons,
    )


def _fanned(card: Card) -> Card:
    """A capped card whose fan starts and stops around where the load would take it."""
    card = capped(card)
    still_c = heat(card, card.cap_w - card.idle_w - card.leak_w)[0]
    return replace(card, fan_on_c=still_c - 4.0, fan_off_c=still_c - 9.0, fan_gain=0.4)


def _light(rng: Rng, **more: Any) -> Case:
    return _case(rng, adapt=None, activity=(0.2, 0.35), boost_dt_c=0.0, **more)


TRIED: dict[str, Callable[[Rng], Case]] = {
    "cap, table": _case,
    "cap, no reasons": lambda r: _case(r, has_reasons=False),
    "cap, pi": lambda r: _case(r, controller="pi"),
    "cap, sawtooth": lambda r: _case(r, controller="sawtooth"),
    "cap, hopping": lambda r: _case(r, controller="hopping"),
    "cold": lambda r: _case(r, warm=False),
    "blocked air": lambda r: _case(r, adapt=badly_cooled),
    "light": _light,
    "memory bound": lambda r: _case(r, memory_bound=True),
    "two modes": lambda r: _light(r, kernel={"mode_p": 0.35, "mode_gain": 0.06}),
    "stragglers": lambda r: _light(r, kernel={"straggler_p": 0.01, "straggler_gain": 0.6}),
    "slow start": lambda r: _light(r, kernel={"warm_gain": 0.04, "warm_tau_s": 12.0}),
    "neighbour": lambda r: _light(r, neighbour=Neighbour(gain=0.05, on_s=3.0, off_s=4.0, pid=7)),
    "power neighbour": lambda r: _case(r, neighbour=Neighbour(power=0.11, on_s=2.5, off_s=3.5)),
    "stray readings": lambda r: _case(r, stray_p=1 / 400),
    "slow sensor": lambda r: _case(
        r, clock_window_ns=1_000_000_000, lag_ns=400_000_000, refresh_ns=100_000_000
    ),
    "fluttering sensor": lambda r: _case(r, flutter_steps=2),
    "stuck flag": lambda r: _light(
        r, stuck_reasons=int(Reason.SW_THERMAL), missing=no_counters(find_card("h100")).missing
    ),
    "cap, bang-bang": lambda r: _case(r, controller="bang"),
    "cap, random walk": lambda r: _case(r, controller="walk"),
    "cap, moving": lambda r: _case(
        r, cap_swing=float(r.uniform(0.02, 0.08)), cap_period_s=float(r.uniform(1.0, 4.0))
    ),
    "chassis": lambda r: _case(r, adapt=chassis, warm=False),
    "coarse sensor": lambda r: _case(r, clock_grain_mhz=100),
    "late, fluttering": lambda r: _case(r, lag_ns=300_000_000, flutter_steps=1),
    "half-second mean": lambda r: _case(r, clock_window_ns=500_000_000, controller="bang"),
    "slow refresh": lambda r: _case(r, refresh_ns=500_000_000, controller="walk"),
    "chiplets, strays": lambda r: _case(r, chiplets=6, stray_p=1 / 150, stray_mhz=58.0),
    "stuck flag, cap": lambda r: _case(
        r, stuck_reasons=int(Reason.SW_THERMAL), missing=no_counters(find_card("h100")).missing
    ),
    "light, fluttering": lambda r: _light(r, flutter_steps=2),
    "light, cold": lambda r: _light(r, warm=False),
    "cap, predicted": lambda r: _case(r, controller="predict"),
    "cap, stairs": lambda r: _case(r, controller="stairs"),
    "cap, patient, steps of 7.5 MHz": lambda r: _case(r, controller="patient", step_mhz=7.5),
    "steps of 25 MHz": lambda r: _case(r, step_mhz=25),
    "power averaged for a second": lambda r: _case(
        r, tau_power_s=float(r.uniform(0.5, 1.5)), power_window_ns=1_000_000_000
    ),
    "two sinks": lambda r: _case(
        r,
        adapt=chassis,
        warm=bool(r.random() < 0.5),
        tau_sink_s=float(r.uniform(10, 50)),
        tau_case_s=float(r.uniform(90, 400)),
    ),
    "fan on and off": lambda r: _case(r, adapt=_fanned, controller="patient"),
    "cap jumps": lambda r: _case(
        r,
        cap_jumps=True,
        cap_swing=float(r.uniform(0.03, 0.08)),
        cap_period_s=float(r.uniform(2.0, 9.0)),
    ),
    "chiplets, fluttering": lambda r: _case(
        r, chiplets=4, chiplet_steps=5, flutter_steps=1, controller="predict"
    ),
    "glitches to 58 MHz": lambda r: _case(r, stray_p=1 / 80, stray_mhz=58.0, controller="patient"),
    "light, cold, coarse": lambda r: _light(
        r, warm=False, refresh_ns=300_000_000, clock_grain_mhz=25
    ),
    "neighbour, long": lambda r: _light(
        r, neighbour=Neighbour(gain=0.06, power=0.1, start_s=5.0, on_s=6.0, off_s=9.0, pid=7)
    ),
    "power neighbour, long": lambda r: _case(
        r, neighbour=Neighbour(power=0.14, start_s=3.0, on_s=7.0, off_s=5.0)
    ),
    "late quarter-second mean": lambda r: _case(
        r, clock_window_ns=250_000_000, lag_ns=250_000_000, controller="predict"
    ),
}

HELD_OUT: dict[str, Callable[[Rng], Case]] = {
    "cap, duty": lambda r: _case(r, controller="duty"),
    "cap, deadband": lambda r: _case(r, controller="deadband"),
    "cap, deadband, steps of 10 MHz": lambda r: _case(r, controller="deadband", step_mhz=10),
    "steps of 30 MHz, late": lambda r: _case(r, step_mhz=30, lag_ns=200_000_000),
    "duty, fluttering": lambda r: _case(r, controller="duty", flutter_steps=1),
    "rounds to 50 MHz": lambda r: _case(r, clock_grain_mhz=50, controller="deadband"),
    "mean of 0.7 s": lambda r: _case(r, clock_window_ns=700_000_000, controller="patient"),
    "refresh of 0.35 s": lambda r: _case(r, refresh_ns=350_000_000, controller="predict"),
    "strays to 300 MHz": lambda r: _case(r, stray_p=1 / 60, stray_mhz=300.0, controller="deadband"),
    "chiplets, duty": lambda r: _case(r, chiplets=8, chiplet_steps=3, controller="duty"),
    "cap swings slowly": lambda r: _case(
        r,
        cap_swing=float(r.uniform(0.03, 0.07)),
        cap_period_s=float(r.uniform(4.0, 7.0)),
        controller="deadband",
    ),
    "power neighbour, short": lambda r: _case(
        r, neighbour=Neighbour(power=0.09, start_s=1.0, on_s=1.2, off_s=1.7)
    ),
    "slow sinks, cold": lambda r: _case(
        r,
        adapt=chassis,
        warm=False,
        tau_sink_s=float(r.uniform(20, 60)),
        tau_case_s=float(r.uniform(150, 500)),
    ),
    "light, three modes": lambda r: _light(r, kernel={"mode_p": 0.2, "mode_gain": 0.1}),
    "light, stuck power flag": lambda r: _light(
        r, stuck_reasons=int(Reason.SW_POWER_CAP), missing=no_counters(find_card("h100")).missing
    ),
    "memory bound, refresh of 0.2 s": lambda r: _case(r, memory_bound=True, refresh_ns=200_000_000),
}

"""The simulated GPU: ground truth for everything, and a card for people without one."""

from usv_tui.sim.device import SimClocks, SimSession, SimTelemetry, load
from usv_tui.sim.gpu import ContextLost, SimCall, SimGpu, Truth, kernel
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.profiles import CARDS, DEFAULT_CARD, Card, find_card
from usv_tui.sim.scenarios import (
    DEFAULT_SCENARIO,
    SCENARIOS,
    Scenario,
    describe,
    find_scenario,
    parse_spec,
)
from usv_tui.sim.timer import SimTimer
from usv_tui.sim.trace import Trace, trace

__all__ = [
    "CARDS",
    "DEFAULT_CARD",
    "DEFAULT_SCENARIO",
    "SCENARIOS",
    "Card",
    "ContextLost",
    "Scenario",
    "SimCall",
    "SimClocks",
    "SimGpu",
    "SimKernel",
    "SimSession",
    "SimTelemetry",
    "SimTimer",
    "Trace",
    "Truth",
    "describe",
    "find_card",
    "find_scenario",
    "kernel",
    "load",
    "parse_spec",
    "trace",
]

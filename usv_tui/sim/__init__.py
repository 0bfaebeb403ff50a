"""The simulated GPU: ground truth for everything."""

from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.profiles import CARDS, Card, find_card
from usv_tui.sim.scenarios import SCENARIOS, Scenario, describe, find_scenario, parse_spec
from usv_tui.sim.trace import Trace, trace

__all__ = [
    "CARDS",
    "SCENARIOS",
    "Card",
    "Scenario",
    "SimKernel",
    "Trace",
    "describe",
    "find_card",
    "find_scenario",
    "parse_spec",
    "trace",
]

"""The simulated GPU as the command line builds it: its ceilings, and the locks of scenarios."""

import pytest

from usv_tui.cli.simulate import Simulation
from usv_tui.diagnosis.roofline import Roofline, faster_than_roofline
from usv_tui.sim import CARDS, SCENARIOS, Scenario, find_card


def rates(scenario: Scenario, key: str, *, aside: bool) -> list[object]:
    """What the roofline says of a scenario's kernels, as fast as the card can run them."""
    prepared, session = Simulation(key, scenario.name, 0).start()
    facts = prepared.identity
    roofline = Roofline(facts["peak_flops_per_s"], facts["peak_bytes_per_s"], facts["name"])
    card = session.card
    return [
        faster_than_roofline(
            4.5e-6 if aside else kernel.seconds(card, card.max_mhz) * 0.95,
            flops=kernel.flops,
            bytes_=kernel.bytes,
            roofline=roofline,
            cache_bytes=card.l2_bytes,
        )
        for kernel in scenario.kernels
        if kernel.side_stream == aside
    ]


@pytest.mark.parametrize("key", CARDS)
def test_no_honest_kernel_is_faster_than_its_card(key):
    """The ceilings of a simulated card are above what its scenarios do on it."""
    found = [
        fault for scenario in SCENARIOS.values() for fault in rates(scenario, key, aside=False)
    ]

    assert len(found) > 50
    assert set(found) == {None}


def test_work_beside_the_timed_stream_is_faster_than_the_card():
    """Timed as its launch alone, a copy would need many times the card's bandwidth."""
    (fault,) = rates(SCENARIOS["sync-and-streams"], "h100", aside=True)

    assert fault is not None
    assert fault.code == "faster than roofline"
    assert fault.evidence["source"] == "H100-like"


@pytest.mark.parametrize(
    ("name", "mhz"),
    [("steady", ""), ("lock-not-held", "1980"), ("lock-refused", "1590"), ("lock-ignored", "1590")],
)
def test_scenarios_about_a_lock_ask_for_one(name, mhz):
    """What a scenario promises of a lock shows without a key being pressed."""
    assert Simulation("h100", name, 0).initial_lock == mhz


def test_the_lock_of_a_scenario_is_one_that_the_fitted_card_has():
    """It is chosen for the card as the scenario has it."""
    simulation = Simulation("mi300", "locked", 0)

    assert int(simulation.initial_lock) in find_card("mi300").supported_mhz

"""What a demo's description tells one to look for is there to be seen."""

import re

import pytest

from tests.fakes.virtual_run import BEGIN_NS, VirtualRun
from usv_tui.model import ClockHold
from usv_tui.records import Command
from usv_tui.report import table
from usv_tui.sim import CARDS, SCENARIOS
from usv_tui.timesource import NS_PER_S

PATIENCE_S = 60.0
ELSEWHERE = [
    (name, card)
    for name in ("cpu-bound", "memory-bound", "slow-sensor", "stragglers", "foreign-lock")
    for card in ("mi300", "rtx")
]
HALF_BLIND = [("cpu-bound", "partial"), ("gpu-lost", "partial")]


def promised(name: str) -> list[str]:
    """The words in backquotes."""
    return re.findall("`([^`]+)`", SCENARIOS[name].look_for)


def seen(run: VirtualRun) -> str:
    """The table as it would be now, and the log."""
    snapshot = run.session.store.snapshot(run.time.now_ns())
    return "\n".join([table.render(snapshot), *(line.text for line in snapshot.log)])


def words_missing(name: str, card: str) -> list[str]:
    """Those that a run of the demo does not show; it ends as soon as it has shown all."""
    seconds = min(SCENARIOS[name].duration_s, PATIENCE_S)
    run = VirtualRun(name, seconds, card=card)
    words = promised(name)

    def look() -> None:
        text = seen(run)
        words[:] = [word for word in words if word not in text]
        if not words:
            run.session.command(Command("stop", "all seen"))

    for second in range(4, int(seconds)):
        run.at(second, look)
    run.run()
    text = seen(run)
    return [word for word in words if word not in text]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_demo_promises_a_word(name):
    """A description that promises none could not be held to it."""
    assert promised(name)


@pytest.mark.parametrize(
    ("name", "card"), [*((name, "h100") for name in SCENARIOS), *ELSEWHERE, *HALF_BLIND]
)
def test_what_one_is_to_look_for_can_be_seen(name, card):
    """In the table, its notes or the log, while the demo is as long as it says."""
    assert card in CARDS
    assert words_missing(name, card) == []


@pytest.mark.parametrize("card", ["h100", "mi300"])
def test_a_lock_as_advised_comes_within_40_s_and_is_held(card):
    """The demo of a power cap under `--lock advice`: at the advised clock, and verified there."""
    run = VirtualRun("power-cap", PATIENCE_S, card=card, lock="advice")
    locked_s: list[float] = []
    held: list[int | None] = []

    def look() -> None:
        clocks = run.session.store.clocks
        if clocks.locked_mhz is not None and not locked_s:
            locked_s.append((run.time.now_ns() - BEGIN_NS) / NS_PER_S)
        if clocks.hold is ClockHold.LOCKED and not held:
            held.append(clocks.locked_mhz)
            run.session.command(Command("stop", "held"))

    for second in range(4, int(PATIENCE_S)):
        run.at(second, look)
    run.run()

    assert locked_s
    assert locked_s[0] <= 40.0
    assert held

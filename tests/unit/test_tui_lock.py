"""The lock dialog says what is so, once, and compares only with what was before a lock."""

import pytest

from tests.fakes import screen as fake
from usv_tui.model import ClockHold, ClockState
from usv_tui.tui.look import make_look
from usv_tui.tui.screens.lock import LockDialog
from usv_tui.tui.view import Scene, ViewState

STEPS = [1500, 1590, 1695]


class Desk:
    """Takes every wish; what comes of it is told later."""

    def lock(self, sm_mhz):
        """Asked for."""

    def unlock(self):
        """Asked for."""

    def command(self, _sm_mhz):
        """Nothing to type."""
        return ""


def state(hold=ClockHold.UNKNOWN, **changes):
    """A state of clocks that can be locked."""
    return ClockState(hold=hold, supported_mhz=STEPS, **{"can_lock": True, **changes})


def shown(dialog, clocks, width=100):
    """The dialog's text beside these clocks."""
    look = make_look({}, is_ansi=True, is_dark=True, ascii_only=False, no_color=False)
    snapshot = fake.snapshot(clocks=clocks)
    scene = Scene(snapshot, fake.FakeStore(), ViewState(), look, snapshot.at_ns)
    return "\n".join(line.text for (line,) in dialog.lines(scene, width, 40))


def asked(clocks):
    """A dialog in which Enter was pressed beside these clocks."""
    dialog = LockDialog(Desk())
    dialog.act("lock", fake.snapshot(clocks=clocks))
    return dialog


@pytest.mark.parametrize(
    "before",
    [
        state(),
        state(ClockHold.FOREIGN),
        state(ClockHold.LOCKED, locked_mhz=1590),
    ],
    ids=["free", "foreign", "locked"],
)
def test_a_refused_wish_is_followed_by_no_comparison(before):
    """Nothing has changed since, so there is no `since the lock`."""
    dialog = asked(before)
    after = state(before.hold, locked_mhz=before.locked_mhz, evidence="refused: no", is_unmet=True)

    assert "since the lock" not in shown(dialog, after)


@pytest.mark.parametrize("before", [state(), state(ClockHold.LOCKED, locked_mhz=1590)])
def test_a_lock_is_followed_by_a_comparison_until_it_is_undone(before):
    """With what was before it; a refusal after it does not hide it."""
    dialog = asked(before)
    locked = state(ClockHold.PENDING, locked_mhz=1695)

    assert "since the lock" in shown(dialog, locked)
    dialog.act("lock", fake.snapshot(clocks=locked))
    assert "since the lock" in shown(dialog, locked)
    assert "since the lock" not in shown(dialog, state(ClockHold.FREE))


def test_the_reason_of_a_refusal_stands_there_once():
    """Not as the state, the obstacle and the answer."""
    why = "refused: the driver refuses to lock clocks (needs root)"
    before = state(reason="needs root", can_lock=False)
    after = state(reason="needs root", can_lock=False, evidence=why, is_unmet=True)
    words = shown(asked(before), after)

    assert words.count("needs root") == 1
    assert "unlocked" in words


@pytest.mark.parametrize("width", [24, 40, 60, 100])
def test_the_range_of_clocks_stays_on_its_line(width):
    """On a narrow terminal the bar is shorter, and is left out where nothing of it fits."""
    lines = shown(LockDialog(Desk()), state(), width).splitlines()

    ends = [line for line in lines if "1695 MHz" in line and "\u2500" in line]
    assert len(ends) == 1
    assert ends[0].strip().startswith("1500 ")

import pytest

from tests.fakes import screen as fake
from usv_tui.model import ClockHold, ClockState, Ratio
from usv_tui.tui.look import make_look
from usv_tui.tui.view import Scene, ViewState
from usv_tui.tui.widgets.bar import header
from usv_tui.tui.widgets.cells import interval_text


def scene(**changes):
    """A snapshot as the header is given it."""
    look = make_look({}, is_ansi=True, is_dark=True, ascii_only=False, no_color=False)
    snapshot = fake.snapshot(**changes)
    return Scene(snapshot, fake.FakeStore(), ViewState(), look, snapshot.at_ns)


def test_what_makes_the_numbers_worthless_stands_under_the_title():
    """A lost worker, a lost device or a control row that differs is the second line, in alarm."""
    lines = header(scene(banner="the measuring process died: signal SIGSEGV"), 80, 2)

    assert "died: signal SIGSEGV" in lines[1].text
    assert lines[1].cell_length == 80


@pytest.mark.parametrize("width", [1, 3, 10, 200])
def test_a_banner_fits_any_width(width):
    """It is cut, never wrapped, and never raises."""
    lines = header(scene(banner="x" * 100), width, 2)

    assert [line.cell_length for line in lines] == [width, width]


@pytest.mark.parametrize(
    ("half", "words"),
    [(0.5, "±50.0%"), (0.003, "±0.3%"), (0.0004, "±.04%"), (1e-6, "±<0.01%"), (2.0, "±>99%")],
)
def test_an_interval_is_never_shown_as_nothing(half, words):
    """Half the width in percent: two decimals where one would read 0.0."""
    look = make_look({}, is_ansi=True, is_dark=True, ascii_only=False, no_color=False)
    ratio = Ratio(ratio=1.0, low=1.0 - half, high=1.0 + half)

    assert interval_text(ratio, look.glyphs).strip() == words


@pytest.mark.parametrize(("width", "height"), [(80, 1), (80, 2), (160, 2)])
def test_a_lock_that_was_refused_reads_unlocked_with_the_reason(width, height):
    """Not `unknown`: what is known is that no lock of ours is on, and why."""
    why = "refused: the driver refuses to lock clocks (needs root)"
    clocks = ClockState(evidence=why, is_unmet=True)

    lines = [line.text for line in header(scene(clocks=clocks), width, height)]

    assert "unlocked" in lines[-1]
    if height == 2:
        assert f"clocks unlocked (refused{': the driver' * (width > 80)}" in lines[-1]


@pytest.mark.parametrize("hold", [ClockHold.LOCKED, ClockHold.NOT_HELD, ClockHold.PENDING])
def test_a_lock_is_in_the_header_of_the_smallest_screen(hold):
    """Whether it is held is told where there is one line only, too."""
    clocks = ClockState(hold=hold, locked_mhz=1605)

    assert "1605 MHz" in header(scene(clocks=clocks), 80, 1)[0].text

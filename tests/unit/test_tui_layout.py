from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import screen as fake
from usv_tui.model import RunConfig
from usv_tui.tui.layout import CHART_LEAST_WIDTH, Contents, arrange
from usv_tui.tui.widgets import setup

CONTENTS = st.builds(
    Contents,
    rows=st.integers(0, 60),
    quantities=st.integers(0, 3),
    has_missing=st.booleans(),
    advice=st.integers(1, 6),
    wants_pane=st.booleans(),
)
FULL = Contents(rows=6, quantities=3, has_missing=False, advice=6)


@given(st.integers(1, 250), st.integers(1, 70), CONTENTS)
def test_no_size_gives_away_more_lines_than_there_are(width, height, contents):
    """Every part has a sane size, and all of them together fit, from 1x1 on."""
    layout = arrange(width, height, contents)

    assert layout.used <= height
    for name in ("header", "heading", "plot", "strip", "telemetry", "advice", "pane", "footer"):
        assert getattr(layout, name) >= 0
    assert layout.rows >= 1
    assert layout.left + layout.right + (1 if layout.right else 0) == width


@given(st.integers(44, 250), st.integers(24, 70), CONTENTS)
def test_no_line_of_a_usual_terminal_is_left_over(width, height, contents):
    """Where there is room for everything, all lines are used, but for a few at most."""
    layout = arrange(width, height, contents)

    assert layout.used >= height - 1


def test_the_order_in_which_parts_go():
    """A lower terminal loses charts first, then telemetry, then all but rows."""
    seen = {h: arrange(80, h, FULL) for h in range(1, 41)}

    assert seen[1].rows == 1
    assert not seen[1].heading
    assert seen[2].heading == 1
    assert seen[5].footer == 0
    assert seen[8].advice == 1
    assert next(h for h in seen if seen[h].plot) == 18
    assert all(seen[h].telemetry == 1 for h in range(12, 18))
    assert next(h for h in seen if seen[h].strip) <= 20
    assert all(seen[h].rows == 6 for h in range(10, 41))


def test_eighty_by_twentyfour_shows_everything():
    """The usual terminal has rows, chart, three strips, advice, log and keys."""
    layout = arrange(80, 24, FULL)

    assert (layout.header, layout.heading, layout.rows) == (1, 1, 6)
    assert (layout.plot, layout.strip, layout.quantities) == (8, 1, 3)
    assert (layout.advice, layout.pane, layout.footer) == (1, 1, 1)
    assert layout.used == 24


def test_many_rows_leave_room_for_the_chart():
    """Twenty rows do not push the chart off a usual terminal."""
    layout = arrange(80, 24, FULL._replace(rows=20))

    assert layout.rows >= 6
    assert layout.plot >= 5


def test_a_wide_terminal_puts_advice_and_log_beside_the_charts():
    """From 130 columns on there are two columns, and no line is lost to the panels."""
    layout = arrange(160, 45, FULL)

    assert layout.right >= 48
    assert layout.plot >= 12
    assert layout.strip >= 2
    assert layout.advice + layout.pane == layout.charts


def test_a_narrow_terminal_has_no_chart():
    """Too few columns for a chart leave more lines for the rest."""
    assert arrange(CHART_LEAST_WIDTH - 1, 40, FULL).plot == 0
    assert arrange(CHART_LEAST_WIDTH, 40, FULL).plot > 0


def test_missing_sensors_take_one_line():
    """What is missing is said in one line; strips that do not exist take none."""
    layout = arrange(80, 24, FULL._replace(quantities=1, has_missing=True))

    assert layout.telemetry == 1
    assert layout.strip * layout.quantities == 1


def test_the_lower_pane_can_take_the_charts_place():
    """On a usual terminal, tab shows log, distribution or setup where the chart was."""
    layout = arrange(80, 24, FULL._replace(wants_pane=True))

    assert layout.is_pane_large
    assert layout.plot == 0
    assert layout.pane >= 10


def test_the_time_limits_stand_in_the_setup():
    """Nobody has to guess how long a row may hang, or when the run ends."""
    limits = {"row_timeout_s": 30.0, "max_time_s": 90.0}
    told = dict(setup.facts(fake.snapshot(config=RunConfig(**limits))))

    assert told["time limit"] == "of an import, set-up or call 30 s, of the run 90 s"

"""What held the numbers back, when, and who is to blame."""

from dataclasses import replace

import numpy as np
import pytest

from tests.fakes import screen as fake
from usv_tui.diagnosis.crowd import crowd
from usv_tui.model import ClockHold, ClockState, Notice, Reading, Reason
from usv_tui.report.wording.noise import culprits
from usv_tui.session import lane
from usv_tui.session.lane import Lane, Stretch
from usv_tui.session.snapshot import Told
from usv_tui.tui.look import make_look
from usv_tui.tui.view import Scene, ViewState
from usv_tui.tui.widgets import lane as drawn
from usv_tui.tui.widgets.chart import GUTTER
from usv_tui.tui.widgets.strips import Strips

S = fake.S


def reading(at_s, reasons=0, **values):
    """A look at the card."""
    return Reading(device="G", at_ns=int(at_s * S), reasons=int(reasons), **values)


def kinds(found):
    """Kinds with their ends in whole seconds."""
    return [(s.kind, round(s.from_ns / S), round(s.to_ns / S)) for s in found]


def test_power_and_heat_are_stretches_of_their_readings():
    """One bit over many readings is one stretch; it ends with the last reading that had it."""
    found = Lane()
    for t in range(100):
        mask = Reason.SW_POWER_CAP * (20 <= t < 50) | Reason.SW_THERMAL * (t >= 90)
        found.on_reading(reading(t / 10, mask))

    assert kinds(found.between(0, 20 * S)) == [("power cap", 2, 5), ("thermal", 9, 10)]
    assert found.between(6 * S, 8 * S) == []


def test_a_limit_that_is_no_longer_read_is_over():
    """Sensors that fall silent do not draw a limit to the end of the run."""
    found = Lane()
    found.on_reading(reading(1, Reason.SW_POWER_CAP))
    found.on_reading(reading(60, Reason.SW_POWER_CAP))

    assert [s.to_ns < 2 * S for s in found.between(0, 30 * S)] == [True]


def test_a_lock_lasts_until_it_is_given_back():
    """And a second one at another clock begins a stretch of its own."""
    found = Lane()
    found.on_clocks(2 * S, ClockState(hold=ClockHold.PENDING, locked_mhz=1500))
    found.on_clocks(5 * S, ClockState(hold=ClockHold.LOCKED, locked_mhz=1400))
    found.on_clocks(8 * S, ClockState(hold=ClockHold.FREE))

    assert kinds(found.between(0, 20 * S)) == [("lock", 2, 5), ("lock", 5, 8)]
    assert [s.detail for s in found.between(0, 20 * S)] == ["1500 MHz", "1400 MHz"]


def test_a_neighbour_is_named_while_it_is_there():
    """From the notice that it came to the one that it went, whatever the evidence holds."""
    found = Lane()
    came = {"processes": [{"pid": 4711}, {"pid": 12}], "more": 0}
    found.on_notice(Notice(code="shared device", at_ns=S, evidence=came))
    found.on_notice(Notice(code="no longer shared", at_ns=3 * S))
    found.on_notice(Notice(code="shared device", at_ns=5 * S, evidence={"processes": "odd"}))

    assert found.between(0, 6 * S) == [
        Stretch(S, 3 * S, "neighbour", "pid 4711, pid 12"),
        Stretch(5 * S, 6 * S, "neighbour", ""),
    ]


def test_pauses_and_the_lane_are_bounded():
    """A day of flicker keeps its latest hours."""
    found = Lane()
    for t in range(10_000):
        found.on_gap(t * S, t * S + 1, "pause")

    assert len(found.between(0, 10_000 * S)) <= 2000
    assert found.gaps(9_998 * S, 9_999 * S) == [(9_998 * S, 9_998 * S + 1, "pause")]


def scene(limits, **changes):
    """A session of two minutes with so many limits."""
    controller = fake.session(**changes)
    controller.store.limit_list = limits
    snapshot = controller.store.given
    look = make_look({}, is_ansi=True, is_dark=True, ascii_only=False, no_color=False)
    return Scene(snapshot, controller.store, ViewState(), look, snapshot.at_ns)


def test_the_lane_names_its_bars():
    """A bar with a word where it fits; nothing anywhere else; no line before the first limit."""
    start, end = fake.START_NS, fake.START_NS + 120 * S
    made = scene([Stretch(end - 50 * S, end - 20 * S, lane.POWER)])

    (line,) = drawn.lines(made, made.axis(2 * 60), 60 + GUTTER, 1)

    assert line.text.startswith("     limits│")
    bar = line.text[GUTTER:]
    assert " power cap ▬" in bar
    assert bar[:9].strip() == bar[42:].strip() == ""
    assert drawn.lines_wanted(scene([])) == 0
    both = [Stretch(start, end, lane.POWER), Stretch(start, end, lane.LOCK, "1500 MHz")]
    assert drawn.lines_wanted(scene(both)) == 2


@pytest.mark.parametrize("width", [1, GUTTER, GUTTER + 1, 40])
def test_no_width_breaks_the_lane(width):
    """Stretches outside, of no length, and of hostile names."""
    end = fake.START_NS + 120 * S
    odd = [
        Stretch(0, 1, lane.PAUSE),
        Stretch(end, end * 2, "\x1b[31m", "x"),
        Stretch(end, end, "y"),
    ]
    made = scene([*odd, Stretch(0, 2 * end, lane.LOCK, "中文")])

    lines = drawn.lines(made, made.axis(max(2, 2 * (width - GUTTER))), width, 2)

    assert [line.cell_length for line in lines] == [width, width]


def test_limits_stand_beside_the_values_and_dotted_in_the_strips():
    """`551 / 600 W`; the line is drawn where the values come near it, not where they do not."""
    device = replace_limits(power=600_000, temp=87.0)
    made = scene([], device=device, reading=fake.snapshot().reading)

    lines = [line.text for line in Strips().lines(made, made.axis(120), 60 + GUTTER, 3)]

    assert lines[3].startswith(" 62 / 87 °C│")
    assert lines[6].startswith("551 / 600 W│")
    assert not any("┈" in line for line in lines[3:6])
    assert any("┈" in line for line in lines[6:9])


def replace_limits(power, temp):
    """The fake's device with limits."""
    import msgspec

    changes = {"power_limit_mw": power, "temp_limits_c": {"slowdown": temp}}
    return msgspec.structs.replace(fake.device(), **changes)


def test_utilisation_has_a_strip_of_its_own_where_there_is_room():
    """A fourth strip from thirty lines on; its absence is no loss to be told."""
    controller = fake.session()
    t_ns, _ = controller.store.sensors["temp_c"]
    controller.store.sensors["util_pct"] = (t_ns, np.full(len(t_ns), 97.0))
    snapshot = replace(controller.store.given, reading=reading(0, util_pct=97.0, sm_mhz=1900.0))
    made = replace(scene([]), store=controller.store, snapshot=snapshot)

    lines = [line.text for line in Strips().lines(made, made.axis(120), 60 + GUTTER, 1)]

    assert lines[-1].startswith("       97 %│")


def test_the_culprits_are_named_with_what_to_do():
    """Power with its share, a neighbour with pid, name and user, the host with who runs there."""
    busy = Told(
        "host busy", "warn", "copy", 0, 1, "the host is busy, load 6 on 2 cores: cc1plus", {}
    )
    rows = tuple(replace(r, throttled=(("power cap", 0.34),)) for r in fake.rows(("copy", "gemm")))
    who = ({"pid": 4711, "name": "python3", "user": "bob"},)
    snapshot = fake.snapshot(rows=rows, told=(busy,), neighbours=who)

    said = {c.what: c.remedy for c in culprits(snapshot)}

    assert said["power cap: 34% of the readings"] == "lock at 1890 MHz"
    neighbour = next(what for what in said if what.startswith("neighbour"))
    for part in ("python3", "4711", "bob"):
        assert part in neighbour
    host = next(what for what in said if "cc1plus" in what)
    assert "--inner 3" in said[host]
    assert any(what.startswith("the clock: 64%") for what in said)


def test_a_quiet_run_blames_nobody():
    """Nothing found is said as such, and no list."""
    rows = tuple(replace(r, effect=type(r.effect)()) for r in fake.rows(("copy",)))

    assert culprits(fake.snapshot(rows=rows)) == []


def test_the_crowd_is_who_runs_now(tmp_path):
    """Load, cores and the running programs but ours; odd names and gone processes do no harm."""
    (tmp_path / "loadavg").write_text("6.02 5 4 9/800 7\n")
    for pid, name, state in ((7, "cc1plus", "R"), (8, "cc1plus", "R"), (9, "a) R (b\x1b", "R")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {state} 1 1")
    (tmp_path / "10").mkdir()
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "stat").write_text("11 (sleeper) S 1 1")

    found = crowd(tmp_path)

    assert found["load"] == 6.02
    assert found["cores"] >= 1
    assert found["running"][0] == "cc1plus"
    assert len(found["running"]) == 2
    assert all(name.isprintable() for name in found["running"])
    assert set(crowd(tmp_path / "nowhere")) == {"cores"}

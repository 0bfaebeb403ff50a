"""A saved session under the screen says at t what it said at t; it is sought and watched."""

import io
import shutil

import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.cli.main import main
from usv_tui.errors import UsageError
from usv_tui.gate import Gate
from usv_tui.model import DeviceInfo
from usv_tui.records import Device, End, Mark, Progress
from usv_tui.report import table
from usv_tui.session.journal import Journal
from usv_tui.session.replay import Playhead, ReplaySession
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S, ManualTime
from usv_tui.tui.look import make_look
from usv_tui.tui.presenter import Presenter

SECONDS = 30


def records():
    """Half a minute of two rows, with a mark in the middle and an end."""
    rng = np.random.default_rng(0)
    made = [
        fake.start(),
        Device(BEGIN_NS, DeviceInfo(uuid="GPU-1", name="card", kind="nvidia")),
        fake.timing("event"),
        fake.row(0, "a", group="g", is_baseline=True),
        fake.row(1, "b", group="g"),
        Progress(BEGIN_NS, "measuring"),
    ]
    at_ns = BEGIN_NS
    is_marked = False
    for round_ in range(10**6):
        if at_ns > BEGIN_NS + SECONDS * NS_PER_S:
            break
        if at_ns > BEGIN_NS + 15 * NS_PER_S and not is_marked:
            is_marked = True
            made.append(Mark(at_ns, "half"))
        a, b = (int(20 * MS * w) for w in rng.normal(1, 0.002, 2))
        made.append(fake.block([(0, a), (1, b)], at_ns, round_=round_))
        at_ns += a + b + MS
        made.append(fake.reading(at_ns, sm_mhz=1500.0, temp_c=50.0))
    return [*made, End(at_ns, "asked to")]


RECORDS = records()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However slow the machine is, a fold comes to its end at once."""
    monkeypatch.setattr("usv_tui.session.replay._OPENING_S", 60.0)
    monkeypatch.setattr("usv_tui.session.replay._LOOK_S", 60.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The session as a file."""
    journal = Journal(tmp_path_factory.mktemp("replay") / "s.usv")
    journal.add(RECORDS)
    journal.close()
    return journal.path


@pytest.fixture
def clock():
    """The time of the day."""
    return ManualTime(7 * NS_PER_S)


@pytest.fixture
def playing(path, clock):
    """From the first sample, and its playhead."""
    playhead = Playhead(clock)
    return ReplaySession(path, playhead, at_end=False), playhead


def look():
    """As on a dark terminal."""
    from textual.app import App

    colours = App().get_css_variables()
    return make_look(colours, is_ansi=False, is_dark=True, ascii_only=False, no_color=False)


def pass_(session, clock, seconds):
    """Frames for so long."""
    for _ in range(int(seconds * 4)):
        clock.advance(NS_PER_S // 4)
        session.pump()


def words(store, at_ns):
    """All that the table says."""
    return table.render(store.snapshot(at_ns))


def test_it_opens_at_its_end(path, clock):
    """With what the finished session said."""
    playhead = Playhead(clock)
    session = ReplaySession(path, playhead)
    whole = Store()
    whole.apply(RECORDS)
    whole.conclude()

    assert words(session.store, playhead.now_ns()) == words(whole, whole.last_ns)
    assert "stopped 00:30 of 00:30" in session.snapshot(playhead.now_ns()).progress


@pytest.mark.parametrize("way", ["played", "sought", "sought back"])
def test_at_any_moment_it_says_what_the_run_said_then(playing, clock, way):
    """However one came there."""
    session, playhead = playing
    if way == "played":
        pass_(session, clock, 20)
    elif way == "sought":
        session.seek("forward")
        session.seek("forward")
    else:
        session.seek("end")
        session.seek("back")
        session.toggle_pause()
        session.toggle_pause()
    at_ns = playhead.now_ns()
    then = Store()
    then.apply([r for r in RECORDS if _time(r) <= at_ns])

    assert at_ns == pytest.approx(BEGIN_NS + 20 * NS_PER_S, abs=NS_PER_S)
    assert words(session.store, at_ns) == words(then, at_ns)


def _time(record):
    from usv_tui.records import time_of

    return time_of(record) or getattr(record, "t0_ns", 0)


def test_it_plays_at_a_speed_and_stops_at_its_end(playing, clock):
    """Space at the end plays it again."""
    session, playhead = playing
    session.seek("faster")
    session.seek("faster")
    pass_(session, clock, 5)
    assert playhead.now_ns() == BEGIN_NS + 20 * NS_PER_S

    pass_(session, clock, 5)
    assert not playhead.is_playing
    assert session.store.course.has_ended

    assert session.toggle_pause() is False
    pass_(session, clock, 1)
    assert playhead.now_ns() == BEGIN_NS + 4 * NS_PER_S
    assert not session.store.course.has_ended


def test_paused_it_stands(playing, clock):
    """And goes on where it stood."""
    session, playhead = playing
    pass_(session, clock, 3)
    assert session.toggle_pause() is True
    pass_(session, clock, 9)
    assert playhead.now_ns() == BEGIN_NS + 3 * NS_PER_S
    assert session.toggle_pause() is False
    pass_(session, clock, 1)
    assert playhead.now_ns() == BEGIN_NS + 4 * NS_PER_S


def test_events_can_be_jumped_to(playing):
    """The mark in the middle, from both sides."""
    session, playhead = playing
    session.seek("next_event")  # measuring begins
    session.seek("next_event")
    after = playhead.now_ns()
    session.seek("end")
    session.seek("previous_event")

    assert after == playhead.now_ns() == pytest.approx(BEGIN_NS + 15 * NS_PER_S, abs=NS_PER_S // 4)
    assert [e.label for e in session.store.snapshot(after).epochs][-1] == "half"


def test_a_viewers_baseline_and_window_last_through_a_seek(playing):
    """Though the file knows nothing of them."""
    session, playhead = playing
    session.seek("forward")
    session.set_baseline(1)
    session.set_window(100)
    session.seek("back")
    session.seek("forward")
    shown = session.snapshot(playhead.now_ns())

    assert (shown.baseline, shown.window) == (1, 100)


def test_a_growing_file_is_followed(path, tmp_path, clock):
    """What is appended appears; paused it stays, and the end leads back to the edge."""
    data = path.read_bytes()
    file = tmp_path / "growing.usv"
    half = Journal(tmp_path / "parts.usv")
    sizes = []
    for start in range(0, len(RECORDS), 100):
        half.add(RECORDS[start : start + 100])
        half.flush()
        sizes.append(half.bytes_written)
    half.close()
    data = half.path.read_bytes()
    file.write_bytes(data[: sizes[3]])
    playhead = Playhead(clock)
    session = ReplaySession(file, playhead, follow=True)
    first = session.store.snapshot(playhead.now_ns()).samples

    file.write_bytes(data[: sizes[6] - 7])  # the last frame is not whole yet
    pass_(session, clock, 1)
    second = session.store.snapshot(playhead.now_ns()).samples
    session.toggle_pause()
    file.write_bytes(data)
    pass_(session, clock, 2)
    still = session.store.snapshot(playhead.now_ns()).samples
    session.seek("end")
    pass_(session, clock, 1)

    assert 0 < first < second <= still < session.store.snapshot(playhead.now_ns()).samples
    assert session.store.course.has_ended
    assert session.snapshot(playhead.now_ns()).progress == "watching"


def test_the_screen_plays_it_with_its_keys(path, clock):
    """Speed, seek and pause are keys; what needs a device says that there is none."""
    playhead = Playhead(clock)
    session = ReplaySession(path, playhead, at_end=False)
    presenter = Presenter(session, look())
    presenter.refresh(playhead.now_ns())

    for key in (
        "full_stop",
        "L",
        "e",
        "E",
        "H",
        "home",
        "end",
        "space",
        "comma",
        "b",
        "enter",
        "q",
    ):
        presenter.press(key, None, playhead.now_ns())
        pass_(session, clock, 0.5)
        presenter.refresh(playhead.now_ns())
        lines = presenter.lines(playhead.now_ns(), 120, 40)
        assert len(lines) == 40
    assert session.faults.parts == set()
    for key in ("l", "s", "t"):
        presenter.press(key, None, playhead.now_ns())
        assert presenter.view.message == session.why_fixed


def test_a_message_goes_away_while_the_playhead_stands(path, clock):
    """It does not wait for a clock that does not go."""
    playhead = Playhead(clock)
    presenter = Presenter(ReplaySession(path, playhead), look())
    presenter.press("l", None, playhead.now_ns())
    for _ in range(20):
        presenter.refresh(playhead.now_ns())

    assert presenter.view.message == ""


def test_the_gate_is_open(path, clock):
    """Nobody measures: nobody is to be kept from anything."""
    session = ReplaySession(path, Playhead(clock))
    assert isinstance(session.gate, Gate)
    with session.gate.hold(0) as held:
        assert held


def test_what_is_no_session_is_refused(tmp_path, clock, capsys):
    """By the command as by the class; without a terminal the table is printed."""
    bad = tmp_path / "bad.usv"
    bad.write_text("hello")
    with pytest.raises(UsageError, match="is not a usv-tui session"):
        ReplaySession(bad, Playhead(clock))
    assert main([str(bad)]) == 2
    assert main(["replay", str(tmp_path / "none.usv")]) == 2
    assert main(["watch"]) == 2
    capsys.readouterr()


def test_without_a_terminal_it_is_the_table(path, capsys, monkeypatch):
    """On stdout, and why on stderr."""
    monkeypatch.setenv("TERM", "dumb")
    assert main([str(path)]) == 0
    out, err = capsys.readouterr()
    assert "the table instead" in err
    assert "median" in out


def test_a_session_is_the_same_under_another_name(path, tmp_path, clock):
    """Copied while it was written: what is there plays."""
    cut = tmp_path / "cut.usv"
    shutil.copy(path, cut)
    with cut.open("r+b") as file:
        file.seek(-100, io.SEEK_END)
        file.truncate()
    with pytest.raises(UsageError, match="holds no session yet"):
        ReplaySession(cut, Playhead(clock))  # one frame was all there was


def test_a_simulated_card_is_called_so_once():
    """Its name says it; its driver is none."""
    store = Store()
    info = DeviceInfo(
        uuid="x", name="card (simulated)", kind="sim", driver="simulated", simulated=True
    )
    store.apply([fake.start(), Device(BEGIN_NS, info)])

    assert [line.text for line in store.log.lines] == ["card (simulated)"]

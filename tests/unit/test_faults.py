import asyncio
import gc

import pytest

from tests.fakes import screen as fake
from tests.fakes import session as records
from tests.fakes.live import BEGIN_NS, open_session
from tests.unit.test_tui_app import running, screen
from usv_tui.diagnosis.while_running import Diagnosis
from usv_tui.model import Notice
from usv_tui.records import End, Noted, Progress
from usv_tui.report.wording.notices import sentence
from usv_tui.session.faults import Faults, undisturbed
from usv_tui.session.journal import Journal, read
from usv_tui.session.store import Store
from usv_tui.session.verdicts import Verdicts
from usv_tui.stats import analysis as statistics
from usv_tui.timesource import NS_PER_S
from usv_tui.tui.presenter import Presenter
from usv_tui.tui.screens import live as live_screen
from usv_tui.tui.screens.page import Page
from usv_tui.tui.widgets import bar, chart
from usv_tui.tui.widgets.advice import AdvicePanel
from usv_tui.tui.widgets.chart import Chart
from usv_tui.tui.widgets.log import Log
from usv_tui.tui.widgets.strips import Strips
from usv_tui.tui.widgets.table import Table

DRAWN = [
    (Table, "lines", "table"),
    (Chart, "plot", "chart"),
    (chart, "title", "chart"),
    (Strips, "lines", "strips"),
    (Log, "lines", "lower pane"),
    (AdvicePanel, "lines", "advice"),
    (bar, "header", "header"),
    (live_screen.LiveScreen, "_footer", "keys"),
    (live_screen, "_contents", "layout"),
    (live_screen, "arrange", "this page"),
]


def broken(*_, **__):
    """Something of ours that fails."""
    raise ZeroDivisionError("a bug\n\x1b[31m")


@pytest.mark.parametrize(("where", "name", "part"), DRAWN, ids=lambda x: str(x)[:30])
@pytest.mark.parametrize("size", [(120, 40), (200, 50), (80, 24)])
def test_what_cannot_be_drawn_says_so_in_its_place(monkeypatch, where, name, part, size):
    """A part that fails costs a line of the screen; the fault is told once, with its place."""

    async def main():
        controller = fake.session()
        async with running(controller, size=size) as (app, _, pilot):
            before = screen(app).splitlines()
            monkeypatch.setattr(where, name, broken)
            for _ in range(3):
                await pilot.press("j")
                after = screen(app)
            assert app.failure is None
            assert len(after.splitlines()) == len(before)
            assert "\x1b" not in after
            if part in ("table", "this page", "header"):
                assert f"{part}: ZeroDivisionError: a bug" in after
            told = [words for words in controller.told if words[0] == part]
            assert len(told) <= 1
            assert controller.told
            assert controller.told[0][2].startswith("test_faults.py:")

    asyncio.run(main())


@pytest.mark.parametrize("key", ["enter", "w", "question_mark"])
def test_a_page_that_fails_can_be_left(monkeypatch, key):
    """Whatever a page does, escape brings the main screen back."""

    async def main():
        controller = fake.session()
        async with running(controller) as (app, _, pilot):
            monkeypatch.setattr(Page, "lines", broken)
            await pilot.press(key)
            assert "this page: ZeroDivisionError" in screen(app)
            await pilot.press("escape")
            assert "this page" not in screen(app)
            assert app.failure is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("where", "name"), [(Presenter, "do_mark"), (Presenter, "do_pause"), (Presenter, "do_zoom")]
)
def test_a_key_that_fails_costs_the_key(monkeypatch, where, name):
    """The screen stays, and the other keys go on."""

    async def main():
        controller = fake.session()
        async with running(controller) as (app, _, pilot):
            monkeypatch.setattr(where, name, broken)
            await pilot.press("m", "space", "z")
            assert app.failure is None
            assert [words[0][:7] for words in controller.told] == ["the key"]

    asyncio.run(main())


def test_a_snapshot_that_fails_does_not_keep_the_screen_for_ever(monkeypatch):
    """A session that ends behind a broken snapshot closes the screen all the same."""

    async def main():
        controller = fake.session()
        async with running(controller, close_at_end=True) as (app, _, pilot):
            controller.store.snapshot = broken
            controller.store.course.has_ended = True
            app._tick()
            await pilot.pause()
            assert app.failure is None
            assert app._exit

    asyncio.run(main())


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Verdicts, "ask"),
        (Store, "apply"),
        (Diagnosis, "look"),
        (statistics, "_untrusted"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_a_fault_in_the_statistics_costs_the_statistics(monkeypatch, tmp_path, where, name):
    """The measurement goes on, every record is in the file, and the fault is told once."""
    journal = Journal(tmp_path / "run.usv")
    session, source, clock = open_session(journal=journal)
    said = [*records.two_rows(10)[1:], Progress(BEGIN_NS, "measuring")]
    monkeypatch.setattr(where, name, broken)
    for record in said:
        source.queue.append(record)
        clock.advance(2 * NS_PER_S)
        session.pump()
    source.queue.append(Progress(BEGIN_NS, "ended", "done"))
    session.close("")

    saved = list(read(journal.path))
    assert [record for record in saved if record in said] == said
    assert isinstance(saved[-1], End)
    told = [r.notice for r in saved if isinstance(r, Noted) and r.notice.code == "own fault"]
    assert len({notice.evidence["part"] for notice in told}) == len(told) > 0


def test_a_fault_is_told_once_for_each_place():
    """However often it happens; and never more than a page of them."""
    told = []
    faults = Faults(lambda *words: told.append(words))
    for _ in range(5):
        with faults.around("here"):
            broken()
    for number in range(100):
        with faults.around(f"part {number}"):
            broken()

    assert told[0][:2] == ("here", "ZeroDivisionError: a bug")
    assert 10 < len(told) < 50
    assert len(set(told)) == len(told)


def test_a_descriptor_that_was_closed_is_not_called_a_fault_of_ours():
    """A benchmark that closes what is not its own is told as that; any other error as ours."""

    def said(reason):
        evidence = {"part": "the screen", "reason": reason, "where": "socket.py:497"}
        return sentence(Notice(code="own fault", at_ns=0, level="error", evidence=evidence))

    closed = said("OSError: [Errno 9] Bad file descriptor")
    assert "a benchmark closed a descriptor" in closed
    assert "usv-tui's own" not in closed
    assert "usv-tui's own, at socket.py:497: ValueError: no" in said("ValueError: no")


def test_a_tuple_that_a_callable_holds_is_made_once_more():
    """What `gc.get_objects` in another thread spoils is no fault of ours, and is tried again."""
    held = []

    def numbers():
        if len(held) < 2:
            held.append([o for o in gc.get_objects() if type(o) is tuple])
        yield from range(20)

    with pytest.raises(SystemError):
        tuple(numbers())
    assert undisturbed(lambda: tuple(numbers())) == tuple(range(20))

    told = []
    Faults(lambda *words: told.append(words)).note(
        "a part", SystemError("bad argument to internal function")
    )
    assert told == []

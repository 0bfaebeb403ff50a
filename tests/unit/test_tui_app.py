import asyncio
import re
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest

from tests.fakes import screen as fake
from tests.golden import test_screens as golden
from usv_tui.errors import ClockRefused, SuiteError
from usv_tui.model import Advice, ClockHold, ClockState, RowState, Verdict
from usv_tui.records import Command
from usv_tui.report.columns import COLUMNS
from usv_tui.session.snapshot import LogLine
from usv_tui.timesource import ManualTime
from usv_tui.tui.app import ScreenOptions, UsvApp
from usv_tui.tui.keys import LIVE, LOCK, PAGE

S = fake.S
SIZES = ((200, 50), (80, 24), (60, 8), (30, 5), (10, 3), (1, 1), (250, 70), (120, 40))


@asynccontextmanager
async def running(controller=None, size=(120, 40), **options):
    """The app with a session, without ticks: frames come when keys are pressed or asked for."""
    controller = controller or fake.session()
    time = ManualTime(controller.store.given.at_ns)
    app = UsvApp(lambda: controller, ScreenOptions(ticks=False, **options), time)
    app.manual = time
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, controller, pilot


def screen(app):
    """The screen as text, after a frame."""
    app.frame()
    return "\n".join(s.text for s in app.screen._compositor.render_strips())


def shows(app, words):
    """True when the words are on the screen."""
    return words in screen(app)


def run(test):
    """Run a coroutine to its end."""
    asyncio.run(test)


def test_every_key_of_the_main_screen_does_something_and_breaks_nothing():
    """Each key but those that leave is pressed twice, on a full session and on an empty one."""

    async def main():
        leaving = ("quit", "interrupt", "suspend", "screenshot")
        for controller in (fake.session(), fake.FakeController()):
            async with running(controller) as (app, _, _pilot):
                for key in LIVE:
                    if key.action in leaving:
                        continue
                    for name in (key.keys[0], *key.keys, "escape", "escape", "escape"):
                        app._on_key_press(name, name)
                        app.frame()
                assert app.failure is None

    run(main())


def test_no_key_clashes_with_the_multiplexers():
    """Ctrl-A and Ctrl-B belong to screen and tmux; a key means one thing on a screen."""
    for table in (LIVE, PAGE, LOCK):
        names = [name for key in table for name in key.keys]
        assert len(names) == len(set(names))
        assert not {"ctrl+a", "ctrl+b"} & set(names)


def test_selection_moves_and_sticks_to_the_name():
    """j, k and the arrows move; when rows change their places, the selection goes with its name."""

    async def main():
        async with running() as (app, controller, pilot):
            await pilot.press("j", "down", "j", "k")
            assert app.presenter.view.selected == "matmul[n=2048]"

            given = controller.store.given
            controller.store.given = replace(given, rows=given.rows[::-1])
            assert shows(app, "2048 ")

            await pilot.press("k")
            assert app.presenter.view.selected == "softmax[4096]"

    run(main())


def test_space_pauses_measuring_and_f_only_the_picture():
    """Two different things, and both are labelled."""

    async def main():
        async with running() as (app, controller, pilot):
            await pilot.press("space")
            assert controller.calls == ["pause"]
            controller.store.given = replace(controller.store.given, phase="paused")
            assert shows(app, "PAUSED, space goes on")
            await pilot.press("space")
            assert controller.calls == ["pause", "resume"]

            controller.store.given = replace(controller.store.given, phase="measuring")
            screen(app)
            await pilot.press("f")
            before = controller.store.given
            controller.store.given = replace(before, samples=before.samples + 1240, rounds=9999)
            frozen = screen(app)
            assert "FROZEN +1,240 samples" in frozen
            assert "9,999" not in frozen
            await pilot.press("f")
            assert shows(app, "9,999")

    run(main())


def test_baseline_window_mark_solo_and_telemetry_reach_the_session():
    """What the user decides is asked of the session, by the row's id."""

    async def main():
        async with running() as (app, controller, pilot):
            await pilot.press("j", "b")
            app.frame()
            await pilot.press("b")
            assert controller.calls == [("baseline", 1), ("baseline", None)]
            controller.calls.clear()

            await pilot.press("left_square_bracket")
            app.frame()
            await pilot.press("right_square_bracket", "m", "s")
            await pilot.press("s", "t")
            assert controller.calls == [
                ("window", 300),
                ("window", 1000),
                ("mark", "mark 1"),
                Command("solo", bench=1),
                Command("all"),
                "telemetry",
            ]

    run(main())


def test_a_failed_row_is_neither_measured_alone_nor_compared_with():
    """Nothing is asked of the session, and a line says why; the others' figures stay."""

    async def main():
        controller = fake.session()
        given = controller.store.given
        rows = (given.rows[0], replace(given.rows[1], error="ValueError: no"), *given.rows[2:])
        controller.store.given = replace(given, rows=rows)
        async with running(controller) as (app, _, pilot):
            await pilot.press("j", "s")
            assert shows(app, "has failed: there is nothing to measure alone")
            await pilot.press("b")
            assert shows(app, "has failed: nothing can be compared with it")
            assert controller.calls == []

    run(main())


def test_lost_rows_are_tried_again_on_request():
    """The footer offers it where it can be done, and a refusal says why."""

    async def main():
        async with running() as (app, controller, pilot):
            assert "retry lost" not in screen(app)
            await pilot.press("R")
            assert shows(app, "not tried again: no row was lost")

            app.presenter.view.message = ""
            controller.is_lost = True
            app.frame()
            assert "R retry lost" in screen(app)
            await pilot.press("R")
            assert shows(app, "a fresh process starts")

    run(main())


def test_time_goes_on_with_a_fresh_worker():
    """What stood still at the end moves again when measuring does."""

    async def main():
        async with running() as (app, controller, _):
            controller.store.course.has_ended = True
            app.frame()
            assert app.presenter._ended_ns is not None

            controller.store.course.has_ended = False
            app.frame()
            assert app.presenter._ended_ns is None

    run(main())


def test_a_page_is_left_by_the_key_that_opens_help():
    """`?` opens help and closes it again."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("question_mark")
            assert shows(app, "Not begun; building its inputs.") or shows(app, "Keys")
            assert app.presenter._page is not None
            await pilot.press("question_mark")
            assert app.presenter._page is None

    run(main())


def test_the_filter_is_typed_kept_and_dropped():
    """Letters belong to the filter while it is typed; enter keeps it, escape drops it."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("slash", *"MATq", "backspace", "enter")
            assert app.presenter.view.pattern == "MAT"
            shown = screen(app)
            assert "matmul[n=512]" in shown
            assert "softmax" not in shown
            assert app.is_running

            await pilot.press("escape")
            assert shows(app, "softmax")

    run(main())


def test_zoom_columns_and_panes_go_round():
    """z, c and tab go through their choices and come back."""

    async def main():
        async with running() as (app, _, pilot):
            view = app.presenter.view
            spans = []
            for _ in range(4):
                await pilot.press("z")
                spans.append(view.span_s)
            assert sorted(spans, key=str) == [10, 300, 60, None]
            assert view.span_s == 60

            seen = []
            for _ in range(15):
                await pilot.press("c", "tab")
                app.frame()
                seen.append((view.columns, view.pane))
            assert seen[-1] == ("window", "log")
            assert {pane for _, pane in seen} == {"log", "output", "noise", "spread", "setup"}

    run(main())


def test_enter_shows_the_traceback_of_a_failed_row():
    """What went wrong can be read whole, brackets and all, and scrolled."""

    async def main():
        controller = fake.session()
        given = controller.store.given
        lines = "\n".join(f"  File [a.py], line {i}" for i in range(60))
        failed = replace(
            given.rows[1], state=RowState.FAILED, error="ValueError: [bad]", traceback=lines
        )
        controller.store.given = replace(given, rows=(given.rows[0], failed))
        async with running(controller, size=(80, 24)) as (app, _, pilot):
            await pilot.press("j", "enter")
            shown = screen(app)
            assert "ValueError: [bad]" in shown
            assert "File [a.py], line 3" in shown
            await pilot.press("pagedown", "pagedown")
            assert shows(app, "File [a.py], line 45")
            await pilot.press("end", "home", "q")
            assert shows(app, " 512 ")
            assert app.is_running

    run(main())


def test_two_parameters_stand_against_each_other():
    """v: a table with the fastest in each size; g: time over the size, and where lines cross."""

    async def main():
        async with running(golden.sizes(), size=(120, 40)) as (app, _, pilot):
            await pilot.press("v")
            shown = screen(app)
            assert "seq down, kind across" in shown
            assert "★ fastest seq 128 naive, 512 flash, 2048 flash, 8192 flash" in shown
            assert "★ 561.1 µs" in shown
            await pilot.press("v")
            assert not shows(app, "kind across")
            app.manual.advance(2 * S)
            await pilot.press("g")
            assert shows(app, "time over seq, both logarithmic")
            assert shows(app, "x math is faster below seq 481 or so, flash above")
            await pilot.press("escape")
            assert not shows(app, "both logarithmic")

    run(main())


def test_the_lock_is_made_over_the_living_chart():
    """Chart and table stay; the verification's progress and the std are there at once."""

    async def main():
        for size in ((80, 24), (120, 40), (160, 45)):
            controller = golden.locking()
            controller.desk = Desk(None)
            async with running(controller, size=size) as (app, _, pilot):
                await pilot.press("l")
                shown = screen(app)
                assert "4 of 10 s" in shown
                assert "3.35 % → 0.6" in shown
                assert "samples" in shown
                await pilot.press("q")
                assert "locked at 1890 MHz std 3.35 % → 0.6" in screen(app)

    run(main())


def test_g_twice_is_the_first_row():
    """As in many a pager; the graph does not stay behind."""

    async def main():
        async with running(golden.sizes()) as (app, _, pilot):
            await pilot.press("j", "j", "j", "g", "g")
            assert app.presenter.view.selected == "attention[seq=128,kind=naive]"
            assert app.presenter.view.picture == ""

    run(main())


def test_without_parameters_pivot_and_graph_say_what_they_need():
    """No empty picture: one line that says how rows get parameters."""

    async def main():
        async with running(fake.session(names=("a", "b"))) as (app, _, pilot):
            for key in ("v", "g"):
                await pilot.press(key)
                assert shows(app, "rows have no parameters")
                assert app.presenter.view.picture == ""

    run(main())


@pytest.mark.parametrize("keys", [["v"], ["g"]])
@pytest.mark.parametrize(
    "names",
    [
        tuple(f"f[n={n}]" for n in (1, 2, 4)),
        tuple(f"f[kind={k}]" for k in "abc"),
        tuple(f"f[n={n},k={k},m={m}]" for n in (0, -1) for k in "ab" for m in (1e300, 1e-300)),
        ("f[n=1]", "f[n=\x1b[31m]", "f[n=nan]", "f[n=\u4e2d\u6587]"),
        tuple(f"f[n={n},k={k}]" for n in range(50) for k in range(12)),
    ],
    ids=["one number", "one word", "three, some at the ends", "hostile", "600 rows"],
)
def test_no_parameters_break_the_pictures(names, keys):
    """One parameter or three, zeros, control characters, hundreds of rows: at every size."""

    async def main():
        async with running(fake.session(names=names, seconds=3)) as (app, _, pilot):
            await pilot.press(*keys)
            for width, height in ((40, 10), (80, 24), (160, 45), (200, 60)):
                await pilot.resize_terminal(width, height)
                shown = screen(app)
                assert "\x1b" not in shown
            assert app.failure is None
            assert app.presenter._controller.told == []

    run(main())


def test_events_and_what_the_code_printed_are_two_panes():
    """A chatty benchmark does not push the events away; each pane says what the other holds."""

    async def main():
        async with running(size=(160, 45)) as (app, _, pilot):
            assert shows(app, "events 4  output 1  tab: the other")
            assert not shows(app, "compiling with max-autotune")
            await pilot.press("tab")
            assert shows(app, "compiling with max-autotune")
            assert not shows(app, "warm-up done")

    run(main())


def test_help_begins_with_what_is_on_the_screen():
    """Every badge and state of this run, with its rows, stands before all others."""

    async def main():
        controller = fake.session()
        given = controller.store.given
        odd = replace(given.rows[2], badges=("CPU-bound", "3 stragglers"))
        controller.store.given = replace(given, rows=(*given.rows[:2], odd, *given.rows[3:]))
        async with running(controller, size=(160, 120)) as (app, _, pilot):
            await pilot.press("question_mark")
            shown = screen(app)
            head = shown[: shown.index(" Keys")]
            for words in ("CPU-bound", "stragglers", "On matmul[n=2048].", "steady", "all rows."):
                assert words in head

    run(main())


def test_every_badge_has_its_sentence_in_the_help():
    """No word on a row is without an explanation."""
    from usv_tui.diagnosis.vocabulary import BADGES
    from usv_tui.report.wording.codes import badge_words

    assert [badge for badge in BADGES.values() if not badge_words(badge)] == []


def test_the_environment_reads_as_words():
    """No braces, quotes, None or True of Python's."""
    from usv_tui.tui.widgets.setup import facts

    environment = {"packages": {"torch": "2.8", "usv": None}, "flags": [True, "x"], "none": {}}
    found = dict(facts(fake.snapshot(environment=environment)))

    assert found["packages"] == "torch 2.8, usv unknown"
    assert found["flags"] == "yes, x"
    assert found["none"] == "none"


def test_help_explains_every_column_and_every_key():
    """Each column and key has its sentence."""

    async def main():
        async with running(size=(100, 200)) as (app, _, pilot):
            await pilot.press("question_mark")
            shown = screen(app)
            for column in COLUMNS:
                assert f" {column.heading} " in shown
            assert "settled" in shown
            for key in LIVE:
                assert f" {key.display} " in shown or not key.help
            assert "Select the next / the previous row." in shown
            assert "A shorter / a longer rolling window." in shown

    run(main())


def test_why_shows_the_evidence_with_plots():
    """The advice's facts, the time against the clock, and what the clock leaves."""

    async def main():
        async with running(size=(120, 50)) as (app, _, pilot):
            await pilot.press("w")
            shown = screen(app)
            assert " LOCK  the clock moves" in shown
            assert "limited by power cap 12 % of the time" in shown
            assert "time (µs) against clock (MHz)" in shown
            assert "at the median clock" in shown
            assert sum("⠀" < c <= "⣿" for c in shown) > 60

    run(main())


def test_how_long_ago_is_never_negative():
    """The time axis of the plot ends now: seconds ago fall to 0 on the right."""

    async def main():
        async with running(size=(120, 60)) as (app, _, pilot):
            await pilot.press("w")
            shown = screen(app).split("(s ago)")[1]
            assert re.search(r"\n {10}\d+ +0 *\n", shown)

    run(main())


@pytest.mark.parametrize("size", [(3, 10), (160, 2), (160, 1), (5, 1), (2, 2), (11, 4), (80, 24)])
def test_a_simulated_card_is_never_taken_for_a_real_one(size):
    """However small the terminal, as much of SIMULATED as it holds is on it."""

    async def main():
        async with running(fake.session(simulated="h100 steady"), size=size) as (app, _, _pilot):
            assert shows(app, "SIM"[: size[0]])

    run(main())


def test_why_without_telemetry_says_so():
    """No readings: no plot, and the reason."""

    async def main():
        async with running(fake.session(has_sensors=False, advice=Advice())) as (app, _, pilot):
            await pilot.press("w")
            assert shows(app, "no times with a clock reading beside them")

    run(main())


class Desk:
    """Locks on paper."""

    def __init__(self, error=None):
        self.error = error
        self.asked = []

    def lock(self, sm_mhz):
        if self.error is not None:
            raise self.error
        self.asked.append(sm_mhz)

    def unlock(self):
        self.asked.append(None)

    def command(self, sm_mhz):
        return f"sudo nvidia-smi -i GPU-1234 -lgc {sm_mhz},{sm_mhz}"


def test_the_lock_dialog_says_why_it_cannot():
    """Without clock control the dialog opens, and tells the reason instead of failing."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("l")
            assert shows(app, "clock control is not available in this session")
            await pilot.press("enter", "u", "q")
            assert shows(app, "ADVICE")

    run(main())


def test_the_lock_dialog_chooses_among_supported_clocks():
    """It begins at the advised clock, moves in supported steps, and asks only on enter."""

    async def main():
        ready = fake.session()
        desk = ready.desk = Desk()
        async with running(ready) as (app, controller, pilot):
            await pilot.press("l")
            assert shows(app, "lock at  1890 MHz")
            await pilot.press("left", "left", "right")
            assert shows(app, "lock at  1875 MHz")
            assert shows(app, "sudo nvidia-smi -i GPU-1234 -lgc 1875,1875")
            assert desk.asked == []
            await pilot.press("enter")
            assert desk.asked == [1875]

            locked = ClockState(hold=ClockHold.LOCKED, locked_mhz=1875, can_lock=True)
            controller.store.given = replace(controller.store.given, clocks=locked)
            shown = screen(app)
            assert "now      locked 1875 MHz" in shown
            assert "since the lock" in shown
            assert "1950 → 1950" in shown
            assert "asked for 1875 MHz" not in shown
            await pilot.press("u")
            assert desk.asked == [1875, None]

    run(main())


def test_a_refused_lock_is_a_sentence():
    """What the driver says, and what to type with the rights."""

    async def main():
        ready = fake.session()
        ready.desk = Desk(ClockRefused("locking needs root", "type: sudo …"))
        async with running(ready) as (app, _, pilot):
            await pilot.press("l", "enter")
            assert shows(app, "locking needs root (type: sudo …)")

    run(main())


def test_a_row_is_copied():
    """The y key puts the selected row on the clipboard as Markdown."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("y")
            assert app.clipboard.startswith("| benchmark | n | median |")
            assert "matmul[n=512]" in app.clipboard

    run(main())


def test_a_screenshot_is_saved_or_the_reason_told(tmp_path, monkeypatch):
    """S writes an SVG file; an unwritable place is one line, not a crash."""
    monkeypatch.setattr("usv_tui.tui.picture.converter", lambda _: None)

    async def main():
        async with running(screenshots=tmp_path) as (app, _, pilot):
            await pilot.press("S")
            saved = list(tmp_path.glob("*.svg"))
            assert len(saved) == 1
            assert "matmul[n=512]" in saved[0].read_text().replace("&#160;", " ")
        async with running(screenshots=tmp_path / "nowhere") as (app, _, pilot):
            await pilot.press("S")
            assert shows(app, "no picture: No such file or directory")

    run(main())


def test_the_cursor_reads_all_values_at_a_moment():
    """The sample, the clock, the temperature and the power at one instant."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("left", "left", "left")
            shown = screen(app)
            assert " at 01:5" in shown
            assert "MHz" in shown.split(" at 01:5")[1].split("\n")[0]
            await pilot.press("escape")
            assert " at 01:5" not in screen(app)

    run(main())


def test_outliers_can_be_jumped_through():
    """The keys n and N put the cursor on the outliers, and say how far off they are."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("n")
            first = app.presenter.view.cursor_ns
            await pilot.press("n")
            assert app.presenter.view.cursor_ns < first
            assert shows(app, "outlier ")
            await pilot.press("N")
            assert app.presenter.view.cursor_ns == first

    run(main())


def test_the_log_follows_until_it_is_scrolled():
    """Scrolled back it stays put and counts what is new; at the end it follows again."""

    async def main():
        controller = fake.session()
        lines = [LogLine(fake.START_NS + i * S, "event", f"event {i}") for i in range(100)]

        def show(count):
            given = controller.store.given
            controller.store.given = replace(given, log=tuple(lines[:count]), log_total=count)

        show(80)
        async with running(controller, size=(160, 45)) as (app, _, pilot):
            assert "event 79" in screen(app)
            await pilot.press("K")
            assert "event 79" not in screen(app)
            show(92)
            still = screen(app)
            assert "new ↓" in still
            assert "event 91" not in still
            await pilot.press("J", "J", "J", "J")
            assert "event 91" in screen(app)

    run(main())


def test_any_size_keeps_selection_and_breaks_nothing():
    """Through all sizes and back, with the selection where it was."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("j", "j")
            for width, height in (*SIZES, *SIZES[::-1]):
                await pilot.resize_terminal(width, height)
                app.frame()
                lines = app.screen._compositor.render_strips()
                assert [line.cell_length for line in lines] == [width] * height
                assert app.presenter.view.selected == "matmul[n=2048]"
                for page in ("question_mark", "w", "enter", "l"):
                    app._on_key_press(page, None)
                    app.frame()
                    app._on_key_press("q", "q")
            assert app.failure is None
            assert shows(app, "2048 ")

    run(main())


@pytest.mark.parametrize(
    ("key", "reason", "code"), [("q", "quit", 0), ("ctrl+c", "interrupt", 130)]
)
def test_leaving_says_how(key, reason, code):
    """The result of the screen is the reason and the exit code."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press(key)
            await pilot.pause()
            assert app.return_value == (reason, code)

    run(main())


def test_keys_that_leave_work_before_the_session_is_there():
    """While a file is still being imported, q already quits."""

    async def main():
        app = UsvApp(fake.session, ScreenOptions(ticks=False))
        app._begin = lambda: None
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("x", "q")
            assert app.return_value == ("quit", 0)

    run(main())


def test_a_session_that_cannot_be_made_ends_the_screen():
    """An error of the user's is handed to the caller, with its exit code."""

    async def main():
        error = SuiteError("no such file: x.py")

        def connect():
            raise error

        app = UsvApp(connect, ScreenOptions(ticks=False))
        async with app.run_test() as pilot:
            await pilot.pause()
        assert app.failure is error
        assert app.return_value.exit_code == 2

    run(main())


def test_an_error_in_a_frame_ends_the_screen_and_is_kept():
    """A bug of ours leaves in order; the caller gets the exception itself."""

    async def main():
        controller = fake.session()
        async with running(controller) as (app, _, pilot):
            app.canvas.changes = lambda console: 1 / 0
            app._tick()
            await pilot.pause()
            assert isinstance(app.failure, ZeroDivisionError)
            app._exception = None

    run(main())


def test_a_session_that_ends_by_itself_closes_the_screen_when_asked_to():
    """`--iters` ends the screen; without the wish, the end stays to be looked at."""

    async def main():
        ended = fake.session(phase="ended", stop_reason="target met")
        async with running(ended) as (app, _, _pilot):
            assert shows(app, "ENDED: target met")
            app._tick()
            assert app.return_value is None
        async with running(ended, close_at_end=True) as (app, _, _pilot):
            app._tick()
            assert app.return_value == ("ended", 0)

    run(main())


def test_after_the_end_nothing_is_offered_that_needs_a_run():
    """The footer drops pause, solo, mark and lock, and their keys say how to measure again."""

    async def main():
        async with running(fake.session(phase="ended")) as (app, controller, _pilot):
            footer = screen(app).splitlines()[-1]
            assert "quit" in footer
            assert not any(word in footer for word in ("pause", "solo", "mark", "lock"))
            for key in ("space", "s", "m", "l"):
                app._on_key_press(key, None)
                assert shows(app, "the run is over: q keeps its results")
            assert controller.calls == []

    run(main())


def test_time_stands_still_after_the_end():
    """An ended session's charts do not run off the screen."""

    async def main():
        async with running(fake.session(phase="ended")) as (app, _, _pilot):
            before = screen(app)
            app.manual.advance(3600 * S)
            assert screen(app) == before

    run(main())


class WatchedGate:
    """Notes what happens while it is held."""

    def __init__(self):
        self.is_held = False
        self.holds = 0
        self.timeouts = []

    @contextmanager
    def hold(self, timeout_ns):
        self.timeouts.append(timeout_ns)
        self.holds += 1
        self.is_held = True
        try:
            yield True
        finally:
            self.is_held = False


def test_a_frame_is_wholly_behind_the_gate():
    """Decision 2: fold, snapshot, drawing and writing happen while the gate is held, or never."""

    async def main():
        controller = fake.session()
        gate = controller.gate = WatchedGate()
        outside = []

        def watched(obj, name):
            inner = getattr(obj, name)

            def call(*args, **kwargs):
                if not gate.is_held:
                    outside.append(name)
                return inner(*args, **kwargs)

            setattr(obj, name, call)

        watched(controller, "pump")
        watched(controller.store, "snapshot")
        watched(controller.store, "series")
        async with running(controller) as (app, _, pilot):
            watched(app, "_write")
            watched(app.presenter, "lines")
            for _ in range(3):
                app.frame()
            await pilot.press("j", "z")
            await pilot.pause(0.1)
            assert outside == []
            assert gate.holds >= 4
            assert set(gate.timeouts) == {250_000_000}

    run(main())


def test_a_key_lives_while_the_gate_stays_shut():
    """With a worker inside one long call the frame comes when the timeout has passed."""

    async def main():
        controller = fake.session()
        async with running(controller) as (app, _, _pilot):
            controller.gate.man()
            frames = app.frames
            began = threading.Event()
            app.frame()
            assert app.frames == frames + 1
            assert len(controller.gate.forced) == 1
            assert not began.is_set()
            controller.gate.unman()

    run(main())


def test_unchanged_lines_are_not_written():
    """Nothing new: nothing is written. One row's figure changes: one line is."""

    async def main():
        controller = fake.session()
        written = []
        async with running(controller) as (app, _, _pilot):
            app.frame()
            app._write = written.append
            app.frame()
            app.frame()
            assert written == ["", ""]

            given = controller.store.given
            row = given.rows[3]
            changed = replace(row, rolling=replace(row.rolling, min_s=row.rolling.min_s * 0.9))
            rows = (*given.rows[:3], changed, *given.rows[4:])
            controller.store.given = replace(given, rows=rows)
            app.frame()
            assert written[-1].count("\x1b[8;1H") == 1
            assert len(written[-1]) < 400

    run(main())


def test_what_the_terminal_was_told_is_what_the_screen_shows():
    """The changes written frame by frame give the same screen as the lines themselves."""
    pyte = pytest.importorskip("pyte")

    async def main():
        controller = fake.session()
        controller.store.is_moving = True
        terminal = pyte.Screen(120, 40)
        stream = pyte.Stream(terminal)
        async with running(controller) as (app, _, pilot):
            app.manual._now_ns = fake.START_NS + 30 * S
            app.canvas.forget()
            app._write = stream.feed
            for key in ("", "j", "z", "tab", "w", "q", "f", "f"):
                app.manual.advance(S // 4)
                if key:
                    await pilot.press(key)
                app.frame()
                expected = [s.text for s in app.screen._compositor.render_strips()]
                assert terminal.display == expected

    run(main())


def test_textual_repaints_nothing_by_itself():
    """Pinned: after the first paint the compositor only asks; our frame writes all lines."""

    async def main():
        async with running() as (app, _, _pilot):
            app.frame()
            written = []
            app._write = written.append
            app._display(app.screen, object())
            assert app._must_forget
            app.frame()
            assert written[0].count("\x1b[") > 80

    run(main())


def test_ticks_slow_down_without_focus_and_with_dear_frames():
    """1 Hz when nobody looks; dear frames come so rarely that they stay below 2 % of a core."""

    async def main():
        async with running(fps=10) as (app, _, _pilot):
            waits = []
            loop = asyncio.get_running_loop()

            def call_later(seconds, callback, *args):
                waits.append(seconds)
                return loop.call_soon(lambda: None)

            app.frame_cpu_ns = 1_000_000
            original, loop.call_later = loop.call_later, call_later
            try:
                app._plan_tick()
                app.frame_cpu_ns = 8_000_000
                app._plan_tick()
                app.frame_cpu_ns = 90_000_000
                app._plan_tick()
                app.frame_cpu_ns = 1_000_000
                app._is_blurred = True
                app._plan_tick()
            finally:
                loop.call_later = original
            assert waits == [0.1, 0.4, 1.0, 1.0]

    run(main())


def test_a_paste_is_not_a_series_of_keys():
    """Pasted text with a q in it does not quit; it belongs to a filter that is being typed."""
    from textual import events

    async def main():
        async with running() as (app, _, pilot):
            await app.on_event(events.Paste("quit\n"))
            await pilot.pause()
            assert app.is_running
            assert app.presenter.view.pattern == ""
            await pilot.press("slash")
            await app.on_event(events.Paste("soft\nmax"))
            assert app.presenter.view.pattern == "softmax"

    run(main())


def test_the_mouse_selects_and_scrolls():
    """With `--mouse` a click selects a row and the wheel moves."""
    from textual import events

    def mouse(kind, y):
        return kind(None, 5, y, 0, 0, 1, False, False, False)

    async def main():
        async with running() as (app, _, _pilot):
            app.frame()
            await app.on_event(mouse(events.MouseDown, 6))
            assert app.presenter.view.selected == "matmul[n=2048]"
            await app.on_event(mouse(events.MouseScrollDown, 5))
            assert app.presenter.view.selected == "softmax[4096]"
            await app.on_event(mouse(events.MouseDown, 38))
            assert app.presenter.view.selected == "softmax[4096]"

    run(main())


def test_the_mouse_sorts_reads_the_chart_zooms_and_presses_keys():
    """A heading sorts, the chart gives a moment, its wheel zooms, the footer acts."""
    from textual import events

    def mouse(kind, x, y):
        return kind(None, x, y, 0, 0, 1, False, False, False)

    async def main():
        async with running() as (app, controller, _pilot):
            lines = screen(app).split("\n")
            view = app.presenter.view
            heading = next(i for i, line in enumerate(lines) if "median" in line)
            x = lines[heading].index("median")
            await app.on_event(mouse(events.MouseDown, x, heading))
            assert (view.order, view.is_reversed) == ("median", False)
            await app.on_event(mouse(events.MouseDown, x, heading))
            assert (view.order, view.is_reversed) == ("median", True)
            y = app.presenter.live.layout.header + 12
            await app.on_event(mouse(events.MouseDown, 60, y))
            assert view.cursor_ns is not None
            await app.on_event(mouse(events.MouseScrollDown, 60, y))
            assert view.span_s == 300
            lines = screen(app).split("\n")
            app.presenter.view.message = ""
            lines = screen(app).split("\n")
            await app.on_event(mouse(events.MouseDown, lines[39].index("pause"), 39))
            assert controller.is_paused

    run(main())


def test_rows_are_reached_by_the_keys_of_pagers():
    """G twice, G, home, end, page and half page keys; j and k go round."""

    async def main():
        names = [f"row{i}" for i in range(50)]
        async with running(fake.session(names=names, seconds=3)) as (app, _, pilot):
            view = app.presenter.view
            for keys, name in (
                (["G"], "row49"),
                (["j"], "row0"),
                (["k"], "row49"),
                (["g", "g"], "row0"),
                (["end"], "row49"),
                (["home"], "row0"),
            ):
                await pilot.press(*keys)
                assert view.selected == name
            await pilot.press("pagedown")
            page = int(view.selected[3:])
            assert 2 < page < 49
            await pilot.press("ctrl+d", "ctrl+u", "pageup")
            assert view.selected == "row0"

    run(main())


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("MAT", ["matmul[n=512]", "matmul[n=1024]", "matmul[n=2048]"]),
        ("mat 2048", ["matmul[n=2048]"]),
        ("!mat", ["softmax[4096]", "layernorm", "flash_attn[seq=2048,causal=True]"]),
        ("2048 !mat", ["flash_attn[seq=2048,causal=True]"]),
        ("^s|^l", ["softmax[4096]", "layernorm"]),
        ("[n=5", ["matmul[n=512]"]),
        ("!", list(fake.NAMES)),
        ("  ", list(fake.NAMES)),
        ("(((", []),
    ],
)
def test_a_filter_is_words_of_which_each_may_be_an_expression(pattern, names):
    """All words must match, `!word` must not; half-typed expressions are looked for as they are."""
    from usv_tui.tui.view import ViewState

    found = ViewState(pattern=pattern).visible(fake.session().store.given)

    assert [row.name for row in found] == names


def test_sorted_rows_do_not_jump():
    """Equal rows keep their places while they change a little; a clear change moves them."""
    from usv_tui.stats.rolling import Stats
    from usv_tui.tui.view import ViewState

    def snapshot(*medians):
        made = fake.rows(("a", "b", "c"))
        stats = [Stats(n=9, median_s=m) for m in medians]
        rows = tuple(replace(r, rolling=s) for r, s in zip(made, stats, strict=True))
        return fake.snapshot(rows=rows)

    view = ViewState(order="median")

    def order(*medians):
        return "".join(row.name for row in view.visible(snapshot(*medians)))

    assert order(3e-6, 1e-6, 1.01e-6) == "bca"
    assert order(3e-6, 1.02e-6, 1.01e-6) == "bca"
    assert order(3e-6, 1.2e-6, 1.01e-6) == "cba"
    view.is_reversed = True
    assert order(3e-6, 1.2e-6, 1.01e-6) == "abc"
    view.order, view.is_reversed = "name", True
    assert order(1e-6, 1e-6, None) == "cba"
    view.order, view.is_reversed = "median", False
    assert order(1e-6, None, 2e-6) == "acb"


def test_a_sort_says_by_what_and_turns_round():
    """< and > go through the columns, r turns the order, the heading has an arrow."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("greater_than_sign", "greater_than_sign")
            assert shows(app, "sorted by n")
            while app.presenter.view.order != "median":
                await pilot.press("greater_than_sign")
            assert "median↑" in screen(app)
            await pilot.press("r")
            assert "median↓" in screen(app)
            first = app.presenter.view.visible(app.presenter.shown)[0]
            assert first.name == "flash_attn[seq=2048,causal=True]"
            while app.presenter.view.order:
                await pilot.press("less_than_sign")
            assert shows(app, "in the order of the file")

    run(main())


def test_a_key_that_does_nothing_says_so():
    """Silence would leave open whether it was heard."""

    async def main():
        async with running() as (app, _, pilot):
            await pilot.press("x")
            assert shows(app, "x does nothing here; ? lists the keys")
            await pilot.press("f7")
            assert shows(app, "f7 does nothing here")

    run(main())


def test_standard_streams_stay_the_callers():
    """Textual's capture does not sit in front of what the user's code writes to."""
    import sys

    async def main():
        before = (sys.stdout, sys.stderr)
        async with running() as (_app, _, _pilot):
            assert (sys.stdout, sys.stderr) == before

    run(main())


def test_the_verdict_of_a_row_is_copied_as_one_line():
    """Row, ratio with interval, baseline, device, clocks, state, rounds and version."""

    async def main():
        async with running() as (app, _, _pilot):
            copied = []
            app.copy_to_clipboard = copied.append
            app._on_key_press("j", "j")
            app._on_key_press("Y", "Y")
            [words] = copied
            assert "\n" not in words
            for part in ("`", "x ±", "against", "clocks", "rounds", "usv-tui"):
                assert part in words

    run(main())


def test_news_reach_who_looks_elsewhere():
    """A new advice rings the bell and notifies while the pane has no focus, and only then."""

    async def main():
        async with running(title="dir/bench.py") as (app, controller, _pilot):
            heard = []
            app._driver.write = heard.append
            advices = [
                Advice(verdict=Verdict.STEADY),
                Advice(verdict=Verdict.THROTTLED_POWER, lock_mhz=1500),
            ]
            app.frame()
            for advice, is_blurred in ((advices[0], False), (advices[1], True)):
                app._is_blurred = is_blurred
                controller.store.given = replace(controller.store.given, advice=advice)
                app.frame()
            rung = [words for words in heard if "\a" in words]
            assert len(rung) == 1
            assert rung[0].startswith("\a\x1b]9;usv-tui bench.py: lock at 1500 MHz")
            assert rung[0].endswith("\x07")
            titles = [words for words in heard if words.startswith("\x1b]2;")]
            assert [title[4:-2] for title in titles] == [
                "STEADY - bench.py",
                "THROTTLED: POWER, lock at 1500 MHz - bench.py",
            ]

    run(main())


def typed(line):
    """Keys that type a line after the colon."""
    names = {" ": "space", ".": "full_stop", "!": "exclamation_mark", "/": "slash", "_": "_"}
    return ["colon", *(names.get(c, c) for c in line)]


def test_commands_are_typed():
    """Each verb does what it says, and says so."""

    async def main():
        controller = fake.session()
        controller.desk = Desk()
        async with running(controller) as (app, _, pilot):
            view = app.presenter.view
            for line, words in (
                ("lock 1600", "asked for 1600 MHz"),
                ("lock", "asked for 1890 MHz"),
                ("unlock", "asked to unlock"),
                ("window 300", "rolling window of 300 samples"),
                ("base soft", "ratios refer to softmax[4096]"),
                ("base", "each group's own baseline"),
                ("sort std", "sorted by std %"),
                ("mark before", "before: statistics begin afresh"),
            ):
                await pilot.press(*typed(line), "enter")
                assert shows(app, words), line
            assert controller.desk.asked == [1600, 1890, None]
            assert ("mark", "before") in controller.calls
            await pilot.press(*typed("filter mat !512"), "enter", *typed("zoom 10"), "enter")
            assert (view.pattern, view.span_s) == ("mat !512", 10)
            await pilot.press(*typed("columns tails"), "enter", *typed("pane setup"), "enter")
            assert (view.columns, view.pane) == ("tails", "setup")
            await pilot.press(*typed("solo"), "enter")
            assert view.solo

    run(main())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lokc 1600", "did you mean :lock?"),
        ("lock fast", "fast is not a clock in MHz"),
        ("window 1", "from 10 to 10,000 samples"),
        ("window", "nothing is not a number of samples"),
        ("base nobody", "0 rows are named like nobody"),
        ("base matmul", "3 rows are named like matmul"),
        ("sort colour", "no column colour"),
        ("zoom 0", "from 1 s to 30 days"),
        ("pane x", "one of log, output"),
        ("export docx", "no format docx"),
        ("save a", "not kept in a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(line, words):
    """What was typed wrongly, and what would be right."""

    async def main():
        async with running() as (app, controller, pilot):
            controller.desk = None if "save" in line else Desk()
            app.presenter._controller.desk = controller.desk
            await pilot.press(*typed(line), "enter")
            assert shows(app, words)
            assert app.failure is None

    run(main())


def test_the_command_line_is_the_palette():
    """Every action is offered with its key; tab completes, up recalls, escape leaves."""

    async def main():
        async with running(size=(120, 40)) as (app, _, pilot):
            await pilot.press("colon")
            assert shows(app, "lock the clocks, at the advised clock")
            await pilot.press(*"out")
            assert shows(app, "next-outlier")
            assert shows(app, "[n] Put the cursor on the next outlier")
            await pilot.press("escape", *typed("wind"), "tab", "space", *"300", "enter")
            assert shows(app, "rolling window of 300 samples")
            await pilot.press("colon", "up")
            assert shows(app, ":window 300_")
            await pilot.press("ctrl+u", *"export s", "tab")
            assert shows(app, ":export svg_")
            await pilot.press("ctrl+c")
            assert app.is_running
            assert not shows(app, "tab completes")
            await pilot.press(*typed("freez"), "enter")
            assert shows(app, "FROZEN")

    run(main())


def test_a_session_is_exported_and_copied_from_the_screen(tmp_path):
    """Markdown and a copy of the file, neither in the place of somebody else's file."""

    async def main():
        controller = fake.session()
        controller.store.archive = tmp_path / "run.usv"
        controller.store.archive.write_bytes(b"frames")
        (tmp_path / "mine.md").write_text("notes")
        async with running(controller, size=(250, 40)) as (app, _, pilot):
            await pilot.press("colon")
            app.presenter.paste("export md")
            await pilot.press("enter")
            assert "| benchmark |" in (tmp_path / "run.md").read_text()
            for line in (f"save {tmp_path}/copy.usv", f"export md {tmp_path}/mine.md"):
                await pilot.press("colon")
                app.presenter.paste(line)
                await pilot.press("enter")
            assert (tmp_path / "copy.usv").read_bytes() == b"frames"
            assert (tmp_path / "mine.md").read_text() == "notes"
            assert shows(app, "is not replaced")

    run(main())


def test_a_picture_lies_beside_the_session(tmp_path, monkeypatch):
    """P: an SVG named after the session, never in the place of another, and a PNG of it."""
    from usv_tui.tui import picture

    made = []
    monkeypatch.setattr(picture, "converter", lambda svg: ["converter", str(svg)])
    monkeypatch.setattr(
        picture, "to_png", lambda _, svg: made.append(svg) or svg.with_suffix(".png")
    )

    async def main():
        controller = fake.session()
        controller.store.archive = tmp_path / "run.usv"
        async with running(controller, size=(250, 40)) as (app, _, pilot):
            await pilot.press("P", "P")
            for thread in threading.enumerate():
                if thread.name == "usv-picture":
                    thread.join(10)
            await pilot.pause()
            names = sorted(path.name for path in tmp_path.glob("run-*.svg"))
            assert len(names) == 2
            assert sorted(svg.name for svg in made) == names
            assert "matmul" in (tmp_path / names[0]).read_text()
            assert shows(app, " and .svg")

    run(main())


def test_a_converter_is_chosen_among_those_installed(tmp_path, monkeypatch):
    """A browser first, with the picture's size; none is no error, nor is one that fails."""
    from usv_tui.tui import picture

    svg = tmp_path / "a.svg"
    svg.write_text('<svg viewBox="0 0 994.6 513.2">')
    installed = {"chromium", "rsvg-convert"}
    monkeypatch.setattr(picture.shutil, "which", lambda name: name if name in installed else None)
    assert "--window-size=995,513" in picture.converter(svg)
    installed.remove("chromium")
    assert picture.converter(svg) == ["rsvg-convert", str(svg), "-o", str(tmp_path / "a.png")]
    installed.clear()
    assert picture.converter(svg) is None
    assert picture.to_png(["/nowhere/converter"], svg) is None

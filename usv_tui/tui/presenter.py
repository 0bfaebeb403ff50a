"""From a session to lines, and from keys to deeds, without a terminal.

The app owns the terminal, the loop and the gate; everything that depends on what is measured is
here, and is imported only after the first paint.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from textual.strip import Strip

from usv_tui import plain
from usv_tui.gate import Gate
from usv_tui.model import RunPhase, Verdict
from usv_tui.records import Command
from usv_tui.report import parameters
from usv_tui.report.columns import COLUMNS, SETS, TAILS, WHOLE, WINDOW
from usv_tui.report.table import one_row, verdict
from usv_tui.report.wording.advice import advice_text, is_idle, short_text
from usv_tui.report.wording.rows import name_of
from usv_tui.session.desk import ClockDesk
from usv_tui.session.shown import ShownSession
from usv_tui.session.snapshot import FloatArray, IntArray, RowView, Snapshot
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S
from usv_tui.tui import keys
from usv_tui.tui.command import MOST_SHOWN, Candidate, CommandLine, candidates, palette
from usv_tui.tui.deeds import Deeds
from usv_tui.tui.look import Look
from usv_tui.tui.rows import sortable
from usv_tui.tui.screens import detail, why
from usv_tui.tui.screens import help as help_page
from usv_tui.tui.screens.live import LiveScreen
from usv_tui.tui.screens.lock import LockDialog
from usv_tui.tui.screens.page import Page
from usv_tui.tui.view import (
    PANES,
    SPANS_S,
    WINDOWS,
    Scene,
    ViewState,
    key_of,
)
from usv_tui.tui.widgets.bar import key_at
from usv_tui.tui.widgets.columns import quantiles
from usv_tui.tui.widgets.log import is_of_output, scroll
from usv_tui.tui.widgets.pivot import NO_PARAMETERS
from usv_tui.units import time_text

T = TypeVar("T")
Line = tuple[Strip, ...]
MESSAGE_NS = 4 * NS_PER_S
MESSAGE_LOOKS = 12
TWICE_NS = NS_PER_S // 2
"""A key pressed again within this time is one that was pressed twice."""
_OF_THE_APP = ("quit", "interrupt", "suspend", "screenshot", "copy", "copy_verdict")
_IS_OVER = "the run is over: q keeps its results; to measure again, start the command again"
_FENCE = 3.0
"""Quartile ranges beyond the quartiles that make an outlier."""


class Presenter:
    """Holds the user's view of a session, draws it, and does what keys say."""

    def __init__(self, controller: ShownSession, look: Look) -> None:
        self.view = ViewState()
        self.look = look
        self.live = LiveScreen()
        self.ui_share = 0.0
        self.snapshot = Snapshot()
        """The latest one, even while the picture is frozen."""
        self._controller = controller
        self._store = controller.store
        self._dialog = LockDialog(controller.desk)
        self.command_line = CommandLine()
        self._deeds = Deeds(self)
        self._page: Page | None = None
        self._is_locking = False
        self._frozen: Snapshot | None = None
        self._ended_ns: int | None = None
        self._log_height = 1
        self._has_swept = False
        """A clock sweep has been shown by itself once."""
        self._sizes_ns = -TWICE_NS
        self._picture_before = ""
        self._told: tuple[str, int | None, str] | None = None
        """Advice and end as they were told last."""
        self._message_looks = 0
        """How often one has looked since something was told; a replay's clock may stand."""

    @property
    def shown(self) -> Snapshot:
        """The snapshot on the screen."""
        return self._frozen or self.snapshot

    @property
    def has_ended(self) -> bool:
        """True when nothing more will be measured."""
        return self.snapshot.phase == RunPhase.ENDED or self._controller.store.course.has_ended

    def refresh(self, now_ns: int) -> None:
        """Take a new snapshot."""
        with self._controller.faults.around("the snapshot"):
            self.snapshot = self._controller.snapshot(now_ns)
        self._message_looks += 1
        if self._controller.why_fixed and self._message_looks > MESSAGE_LOOKS:
            self.view.message = ""
        if self._store is not self._controller.store:
            # One went back in a replay: what was drawn from the other fold is of no use.
            self._store, self.live = self._controller.store, LiveScreen()
        self._ended_ns = (self._ended_ns or now_ns) if self.has_ended else None
        if not self._has_swept and self._controller.store.steps():
            self._has_swept, self.view.pane = True, "sweep"

    def lines(self, now_ns: int, width: int, height: int) -> list[Line]:
        """The whole screen, from the last snapshot."""
        scene = self.scene(now_ns)
        try:
            if self._is_locking:
                lines = self.live.lines(scene, width, height)
                return self._dialog.over(lines, scene, self.live.layout)
            if self._page is not None:
                return self._page.lines(scene, width, height)
            lines = self.live.lines(scene, width, height)
            if self.command_line.is_open:
                lines = self._with_command(lines, width)
        except Exception as error:  # noqa: BLE001  the keys must live on, to leave this page
            return [(line,) for line in scene.instead("this page", error, width, height)]
        self._log_height = max(1, self.live.layout.pane)
        return lines

    def _with_command(self, lines: list[Line], width: int) -> list[Line]:
        """The line that is typed at the foot, what it may become above it."""
        stem = self.command_line.stem
        most = min(MOST_SHOWN, max(0, len(lines) // 2 - 1))
        over = self.command_line.lines(self.look, width, self._complete(stem), most)
        kept = lines[: max(0, len(lines) - len(over))]
        return [*kept, *((line,) for line in over[-len(lines) :])]

    def scene(self, now_ns: int) -> Scene:
        """What panes draw from; time stands still while frozen and after the end."""
        shown = self.shown
        if self._frozen is not None:
            now_ns = self._frozen.at_ns
        elif self._ended_ns is not None:
            now_ns = self._ended_ns
        mhz, desk = shown.advice.lock_mhz, self._controller.desk
        return Scene(
            snapshot=shown,
            store=self._controller.store,
            view=self.view,
            look=self.look,
            now_ns=now_ns,
            ui_share=self.ui_share,
            faults=self._controller.faults,
            is_frozen=self._frozen is not None,
            waiting=self.snapshot.samples - shown.samples,
            can_renew=self._controller.can_renew,
            is_replay=bool(self._controller.why_fixed),
            command=desk.command(mhz) if desk is not None and mhz else "",
        )

    def say(self, words: str, now_ns: int) -> None:
        """Tell something in the footer for a few seconds."""
        at_ns = self.shown.at_ns if self._frozen is not None else now_ns
        self.view.message, self.view.message_until_ns = words, at_ns + MESSAGE_NS
        self._message_looks = 0

    def resume(self) -> None:
        """The program was stopped and goes on: the clock has idled, so the next second is ramp."""
        self._controller.command(Command("ramp"))

    # -- keys

    def press(self, key: str, character: str | None, now_ns: int) -> str:
        """Do what a key says; returns what only the app can do, else an empty string.

        That is one of quit, interrupt, suspend, screenshot, copy, copy_verdict.
        """
        if self.view.editing and self._type(key, character):
            return ""
        if self.command_line.is_open:
            return self._press_command(key, character, now_ns)
        if self._is_locking:
            action = keys.actions(keys.LOCK).get(key, "")
            if action == "interrupt":
                return action
            self._is_locking = not action or self._dialog.act(action, self.snapshot)
            return ""
        if self._page is not None:
            action = keys.actions(keys.PAGE).get(key, "")
            if action == "interrupt":
                return action
            if action and not self._page.act(action):
                self._page = None
            return ""
        action = keys.actions(keys.REPLAY).get(key, "") if self._controller.why_fixed else ""
        if action:
            self.say(self._controller.seek(action), now_ns)
            self.refresh(self._controller.at_ns(now_ns))
            return ""
        action = keys.actions(keys.LIVE).get(key, "")
        if not action:
            self._say_unknown(key, character, now_ns)
            return ""
        if key == "less_than_sign":
            self.do_sort(now_ns, -1)
            return ""
        why_not = self.why_not(action)
        if why_not:
            self.say(why_not, now_ns)
            return ""
        if action in _OF_THE_APP:
            return action
        deed: Callable[[int], None] = getattr(self, f"do_{action}")
        deed(now_ns)
        return ""

    def why_not(self, action: str) -> str:
        """Why an action cannot be done now; empty when it can."""
        fixed = self._controller.why_fixed
        if fixed:
            return fixed if action in keys.MEASURING else ""
        return _IS_OVER if action in keys.RUNNING and self._is_past(action) else ""

    def _press_command(self, key: str, character: str | None, now_ns: int) -> str:
        """A key while a command is being typed."""
        if key == "ctrl+c":
            self.command_line.is_open = False
            return ""
        line = self.command_line.press(key, character, self._complete)
        return self._deeds.run(line, now_ns) if line else ""

    def _complete(self, line: str) -> Sequence[Candidate]:
        return candidates(line, palette(keys.LIVE), self._deeds.arguments)

    @property
    def desk(self) -> ClockDesk | None:
        """Who locks, where anybody can."""
        return self._controller.desk

    @property
    def gate(self) -> Gate:
        """What keeps us out of a timed window."""
        return self._controller.gate

    @property
    def store(self) -> Store:
        """The fold of the session."""
        return self._controller.store

    def _say_unknown(self, key: str, character: str | None, now_ns: int) -> None:
        """A key that does nothing says so."""
        is_seen = character is not None and character.isprintable() and not character.isspace()
        name = character if is_seen else key.replace("_", " ")
        self.say(
            f"{plain.cut(plain.line(str(name)), 20)} does nothing here; ? lists the keys", now_ns
        )

    def _is_past(self, action: str) -> bool:
        """Nothing is left to do it to: the run is over, and no lock of ours is in force."""
        shown = self.snapshot
        is_locked = action == "lock" and shown.clocks.in_force_mhz is not None
        return shown.phase == RunPhase.ENDED and not is_locked

    def _type(self, key: str, character: str | None) -> bool:
        """A key while the filter is being typed; False for those that are never text."""
        view = self.view
        if key == "enter":
            view.editing = False
        elif key == "escape":
            view.editing, view.pattern = False, ""
        elif key in ("backspace", "ctrl+h"):
            view.pattern = view.pattern[:-1]
        elif key == "ctrl+c" or key in ("up", "down"):
            view.editing = key in ("up", "down")
            return False
        elif character and character.isprintable():
            view.pattern += character
        return True

    def paste(self, words: str) -> None:
        """Pasted text belongs to the filter while it is being typed, and to nothing else."""
        if self.view.editing:
            self.view.pattern += "".join(c for c in words if c.isprintable())
        elif self.command_line.is_open:
            self.command_line.paste(words)

    def click(self, x: int, y: int, now_ns: int) -> str:
        """A row is selected, a heading sorts, the chart is read; the footer gives its key."""
        layout = self.live.layout
        if y == layout.height - 1:
            return self._key_at(x)
        if self._page is not None or self._is_locking:
            return ""
        line = y - layout.header
        if 0 <= line < layout.heading:
            self._sort_at(x, now_ns)
        elif 0 <= line - layout.heading < layout.rows:
            row = self.live.table.row_at(line - layout.heading)
            if row is not None:
                self.view.selected = key_of(row, self.shown)
        elif self._is_on_chart(x, y):
            self.view.cursor_ns = self.live.moment_at(x)
        return ""

    def _key_at(self, x: int) -> str:
        """The key whose label is at a cell of the footer."""
        table = (
            keys.LOCK if self._is_locking else keys.PAGE if self._page else self.live.footer_keys
        )
        return key_at(table, self.live.layout.width, x)

    def _sort_at(self, x: int, now_ns: int) -> None:
        """By the column that was clicked; again: the other way round."""
        key = self.live.table.column_at(x)
        if key not in ("name", *(c.key for c in sortable(self.view.columns))):
            return
        if key == self.view.order:
            self.do_reverse(now_ns)
        else:
            self.sort_by(key, now_ns)

    def _is_on_chart(self, x: int, y: int) -> bool:
        layout = self.live.layout
        first = layout.header + layout.heading + layout.rows
        is_below = first <= y < first + layout.charts + layout.telemetry
        return is_below and x < layout.left and self.live.axis is not None

    def wheel(self, steps: int, y: int, now_ns: int) -> None:
        """Scroll the page; zoom over the charts, elsewhere move the selection."""
        if self._page is not None:
            for _ in range(3 * abs(steps)):
                self._page.act("line_down" if steps > 0 else "line_up")
        elif not self._is_locking:
            if self._is_on_chart(0, y):
                self._zoom_by(steps, now_ns)
            else:
                self.view.move(self.shown, steps)

    def _zoom_by(self, steps: int, now_ns: int) -> None:
        """A longer or a shorter stretch of time, as far as there is one."""
        at = SPANS_S.index(self.view.span_s) if self.view.span_s in SPANS_S else 0
        self.view.span_s = SPANS_S[min(max(at + steps, 0), len(SPANS_S) - 1)]
        self.view.cursor_ns = None
        span_s = self.view.span_s
        self.say("the whole run" if span_s is None else f"the last {span_s} s", now_ns)

    def news(self) -> str:
        """What somebody who looks elsewhere should hear, once: an advice, or the end."""
        shown = self.snapshot
        now = (str(shown.advice.verdict), shown.advice.lock_mhz, shown.stop_reason)
        before, self._told = self._told, now
        if before is None or now == before or self._controller.why_fixed:
            return ""
        if shown.stop_reason and shown.stop_reason != before[2]:
            return f"ended: {shown.stop_reason}"
        return "" if shown.advice.verdict == Verdict.UNKNOWN else short_text(shown.advice)

    def headline(self) -> str:
        """The run in a few words, for the title of a terminal that is looked at from afar."""
        shown = self.snapshot
        if shown.stop_reason:
            return f"ended: {shown.stop_reason}"
        if shown.advice.verdict == Verdict.UNKNOWN:
            return str(shown.phase)
        word, mhz = advice_text(shown.advice).word, shown.advice.lock_mhz
        if mhz is None or is_idle(shown.advice):
            return word
        return f"{word} at {mhz} MHz" if word == "LOCK" else f"{word}, lock at {mhz} MHz"

    def verdict(self) -> str:
        """The selected row's answer in a line, for the clipboard; empty without a row."""
        row = self.view.selected_row(self.shown)
        return "" if row is None else verdict(row, self.shown)

    def markdown(self) -> str:
        """The selected row for the clipboard; empty without one."""
        row = self.view.selected_row(self.shown)
        shown = self.shown
        return "" if row is None else one_row(row, shown.rows, plain.name(key_of(row, shown)))

    # -- deeds, one for each action in keys.LIVE

    def do_pause(self, now_ns: int) -> None:
        """Pause or resume measuring."""
        is_paused = self._controller.toggle_pause()
        what = "the replay" if self._controller.why_fixed else "measuring"
        self.say(f"{what} is paused" if is_paused else f"{what} goes on", now_ns)

    def do_freeze(self, _now_ns: int) -> None:
        """Hold the picture, or let it go on."""
        self._frozen = None if self._frozen is not None else self.snapshot

    def do_next_row(self, _now_ns: int) -> None:
        """Select the row below."""
        self.view.move(self.shown, 1, wraps=True)

    def do_previous_row(self, _now_ns: int) -> None:
        """Select the row above."""
        self.view.move(self.shown, -1, wraps=True)

    def do_first_row(self, _now_ns: int) -> None:
        """Select the first row."""
        self.view.move(self.shown, -len(self.shown.rows))

    def do_last_row(self, _now_ns: int) -> None:
        """Select the last row."""
        self.view.move(self.shown, len(self.shown.rows))

    def do_page_down(self, _now_ns: int) -> None:
        """A page of rows down."""
        self.view.move(self.shown, max(1, self.live.layout.rows - 1))

    def do_page_up(self, _now_ns: int) -> None:
        """A page of rows up."""
        self.view.move(self.shown, -max(1, self.live.layout.rows - 1))

    def do_sort(self, now_ns: int, step: int = 1) -> None:
        """Sort by the next column."""
        keys_ = ("", "name", *(column.key for column in sortable(self.view.columns)))
        at = keys_.index(self.view.order) if self.view.order in keys_ else 0
        self.sort_by(keys_[(at + step) % len(keys_)], now_ns)

    def sort_by(self, key: str, now_ns: int) -> None:
        """Sort by a column; an empty key: as in the file."""
        self.view.order = key
        head = next((c.head for c in COLUMNS if c.key == key), key)
        self.say(
            f"sorted by {head}, r turns it round" if key else "in the order of the file", now_ns
        )

    def do_reverse(self, now_ns: int) -> None:
        """Turn the order round."""
        self.view.is_reversed = not self.view.is_reversed
        if self.view.order:
            self.say("largest first" if self.view.is_reversed else "smallest first", now_ns)
        else:
            self.say("rows are not sorted: > sorts them by a column", now_ns)

    def do_detail(self, _now_ns: int) -> None:
        """Everything about the selected row."""
        row = self.view.selected_row(self.shown)
        if row is not None:
            self.view.selected = key_of(row, self.shown)
            self._page = Page(f"Detail  {name_of(row, self.shown.rows)}", detail.write)

    def do_help(self, _now_ns: int) -> None:
        """Columns, signs and keys."""
        self._page = Page("Help", help_page.write)

    def do_why(self, _now_ns: int) -> None:
        """The advice with its evidence."""
        self._page = Page("Why: should the clocks be locked?", why.write)

    def do_lock(self, _now_ns: int) -> None:
        """Open the lock dialog."""
        self._dialog.open()
        self._is_locking = True

    def do_baseline(self, now_ns: int) -> None:
        """Compare with the selected row; again: with each group's own."""
        row = self.view.selected_row(self.shown)
        if row is None:
            return
        self.compare_with(None if self.snapshot.baseline == row.bench else row, now_ns)

    def compare_with(self, row: RowView | None, now_ns: int) -> None:
        """Let ratios refer to a row; None: to each group's own baseline."""
        if row is None:
            self._controller.set_baseline(None)
            self.say("ratios refer to each group's own baseline", now_ns)
        elif row.error:
            self.say(f"{plain.name(row.name)} has failed: nothing can be compared with it", now_ns)
        else:
            self._controller.set_baseline(row.bench)
            self.say(f"ratios refer to {plain.name(row.name)}", now_ns)

    def do_pivot(self, now_ns: int) -> None:
        """Parameters against each other, or the charts again."""
        self._show("pivot", now_ns)

    def do_sizes(self, now_ns: int) -> None:
        """Time over a parameter, or the charts again."""
        is_twice = now_ns - self._sizes_ns < TWICE_NS
        self._sizes_ns = -TWICE_NS if is_twice else now_ns
        if is_twice:
            self.view.picture = self._picture_before
            self.do_first_row(now_ns)
            return
        self._picture_before = self.view.picture
        self._show("sizes", now_ns)

    def _show(self, picture: str, now_ns: int) -> None:
        if self.view.picture == picture:
            self.view.picture = ""
        elif not parameters.groups(self.shown.rows):
            self.say(f"no {'graph' if picture == 'sizes' else 'pivot'}: {NO_PARAMETERS}", now_ns)
        else:
            self.view.picture = picture

    def do_columns(self, now_ns: int) -> None:
        """The next set of columns."""
        self.view.columns = _next(SETS, self.view.columns)
        words = {WINDOW: "last window", WHOLE: "since the last mark", TAILS: "tails"}
        self.say(f"figures: {words[self.view.columns]}", now_ns)

    def do_window_less(self, now_ns: int) -> None:
        """A shorter window."""
        fewer = [w for w in WINDOWS if w < self.snapshot.window]
        self.set_window(fewer[-1] if fewer else WINDOWS[0], now_ns)

    def do_window_more(self, now_ns: int) -> None:
        """A longer window."""
        more = [w for w in WINDOWS if w > self.snapshot.window]
        self.set_window(more[0] if more else WINDOWS[-1], now_ns)

    def set_window(self, samples: int, now_ns: int) -> None:
        """The rolling window."""
        self._controller.set_window(samples)
        self.say(f"rolling window of {samples:,} samples", now_ns)

    def do_zoom(self, _now_ns: int) -> None:
        """The next span of time."""
        self.view.span_s = _next(SPANS_S, self.view.span_s)
        self.view.cursor_ns = None

    def do_mark(self, now_ns: int) -> None:
        """A new epoch."""
        self.mark("", now_ns)

    def mark(self, label: str, now_ns: int) -> None:
        """A new epoch, with a name or a number."""
        label = label or f"mark {max(1, len(self.snapshot.epochs))}"
        self._controller.mark(label)
        self.say(f"{label}: statistics begin afresh", now_ns)

    def do_renew(self, now_ns: int) -> None:
        """A fresh process for lost rows."""
        why_not = self._controller.renew()
        self.say(f"not tried again: {why_not}" if why_not else "a fresh process starts", now_ns)

    def do_solo(self, now_ns: int) -> None:
        """The selected row alone, or all rows again."""
        row = self.view.selected_row(self.shown)
        if self.view.solo or row is None:
            self.view.solo = ""
            self._controller.command(Command("all"))
            self.say("all rows are measured again", now_ns)
            return
        bench = row.bench if row.parent is None else row.parent
        owner = self.shown.row(bench) or row
        if owner.error:
            self.say(
                f"{plain.name(owner.name)} has failed: there is nothing to measure alone", now_ns
            )
            return
        self.view.solo = owner.name
        self._controller.command(Command("solo", bench=bench))
        self.say(f"{owner.name} is measured alone", now_ns)

    def do_telemetry(self, now_ns: int) -> None:
        """Stop or resume reading the sensors."""
        self.view.quiet = not self._controller.toggle_telemetry()
        self.say("the sensors rest" if self.view.quiet else "the sensors are read", now_ns)

    def do_next_pane(self, _now_ns: int) -> None:
        """What the lower pane shows."""
        self.view.log_end = None
        lacking = set() if self._controller.store.steps() else {"sweep"}
        if all(line.kind != "out" for line in self.shown.log):
            lacking.add("output")
        panes = tuple(pane for pane in PANES if pane not in lacking)
        self.view.pane = _next(panes, self.view.pane if self.view.pane in panes else panes[0])

    def do_command(self, _now_ns: int) -> None:
        """Begin to type a command."""
        self.command_line.open()

    def do_filter(self, _now_ns: int) -> None:
        """Begin to type a filter."""
        self.view.editing = True

    def do_log_up(self, now_ns: int) -> None:
        """Back in the log."""
        if not is_of_output(self.scene(now_ns)):
            self.view.pane = PANES[0]
        scroll(self.scene(now_ns), -max(1, self._log_height - 1))

    def do_log_down(self, now_ns: int) -> None:
        """Forward in the log."""
        scroll(self.scene(now_ns), max(1, self._log_height - 1))

    def do_back(self, _now_ns: int) -> None:
        """Leave what is special: cursor, scrolled log, filter."""
        view = self.view
        if view.picture:
            view.picture = ""
        elif view.cursor_ns is not None:
            view.cursor_ns = None
        elif view.log_end is not None:
            view.log_end = None
        elif view.pattern:
            view.pattern = ""

    def do_cursor_left(self, now_ns: int) -> None:
        """The cursor to an earlier moment."""
        self._move_cursor(now_ns, -1)

    def do_cursor_right(self, now_ns: int) -> None:
        """The cursor to a later moment."""
        self._move_cursor(now_ns, 1)

    def _move_cursor(self, now_ns: int, cells: int) -> None:
        axis = self.live.axis
        if axis is None:
            return
        step_ns = 2 * axis.step_ns
        at_ns = self.view.cursor_ns
        at_ns = self.scene(now_ns).now_ns if at_ns is None else at_ns + cells * step_ns
        self.view.cursor_ns = min(max(at_ns, axis.from_ns), axis.to_ns - 1)

    def do_next_outlier(self, now_ns: int) -> None:
        """The cursor on the nearest outlier before it."""
        self._jump(now_ns, back=True)

    def do_previous_outlier(self, now_ns: int) -> None:
        """The cursor on the nearest outlier after it."""
        self._jump(now_ns, back=False)

    def _jump(self, now_ns: int, *, back: bool) -> None:
        scene, axis, row = self.scene(now_ns), self.live.axis, self.view.selected_row(self.shown)
        if axis is None or row is None:
            return
        series = scene.store.curves.series(row.bench, axis.from_ns, axis.to_ns, 100_000)
        t_ns, values, middle = _outliers(series.t_ns, series.seconds, ~series.excluded)
        here = self.view.cursor_ns if self.view.cursor_ns is not None else axis.to_ns
        reach = 2 * axis.step_ns
        beyond = t_ns < here - reach if back else t_ns > here + reach
        if not beyond.any():
            self.say("no outlier further on this chart", now_ns)
            return
        index = np.flatnonzero(beyond)[-1 if back else 0]
        self.view.cursor_ns = int(t_ns[index])
        value = float(values[index])
        change = (value / middle - 1) * 100
        self.say(f"outlier {time_text(value)} ({change:+.0f} %)", now_ns)


def _outliers(
    t_ns: IntArray, seconds: FloatArray, counted: NDArray[np.bool_]
) -> tuple[IntArray, FloatArray, float]:
    """Counted samples outside the outer fences, and the median."""
    fine = np.isfinite(seconds) & counted
    t_ns, seconds = t_ns[fine], seconds[fine]
    if len(seconds) < 8:
        return t_ns[:0], seconds[:0], 0.0
    first, middle, third = quantiles(seconds, 0.25, 0.5, 0.75)
    reach = _FENCE * (third - first)
    outside = (seconds > third + reach) | (seconds < first - reach)
    return t_ns[outside], seconds[outside], middle


def _next(values: tuple[T, ...], current: T) -> T:
    """The value after the current one, round and round."""
    index = values.index(current) if current in values else -1
    return values[(index + 1) % len(values)]

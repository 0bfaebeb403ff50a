"""The keys: one table that the screen obeys, the footer shows and the help explains."""

from typing import NamedTuple


class Key(NamedTuple):
    """What a key does."""

    keys: tuple[str, ...]
    """Names as the terminal layer gives them; the first one is shown."""
    action: str
    label: str
    """One or two words for the footer; empty keeps it out."""
    help: str
    """Empty: another key's sentence covers it."""
    shown: str = ""
    """How the key is written, where its name reads badly."""
    rank: int = 9
    """Who stays in a narrow footer: lower stays longer."""

    @property
    def display(self) -> str:
        """The key as the user reads it."""
        return self.shown or self.keys[0]


LIVE: tuple[Key, ...] = (
    Key(
        ("space",),
        "pause",
        "pause",
        "Stop and go on measuring; the stretch is marked as a gap.",
        rank=2,
    ),
    Key(("f",), "freeze", "freeze", "Hold the picture still while measuring goes on.", rank=7),
    Key(("j", "down"), "next_row", "select", "Select the next / the previous row.", "j/k", rank=3),
    Key(("k", "up"), "previous_row", "", "", "k"),
    Key(("G", "end"), "last_row", "", "The last row; g twice, or home: the first one.", "G"),
    Key(("home",), "first_row", "", "", "home"),
    Key(("pagedown", "ctrl+d"), "page_down", "", "A page of rows down / up.", "page down/up"),
    Key(("pageup", "ctrl+u"), "page_up", "", "", "page up"),
    Key(
        ("greater_than_sign", "less_than_sign"),
        "sort",
        "sort",
        "Sort by the next / the previous column, at last by none.",
        "< >",
        rank=8,
    ),
    Key(("r",), "reverse", "", "Turn the order of sorted rows round."),
    Key(
        ("enter",),
        "detail",
        "detail",
        "All values of the selected row, and its error if it failed.",
        rank=5,
    ),
    Key(
        ("b",),
        "baseline",
        "base",
        "Make the selected row the one that ratios refer to; again: undo.",
        rank=4,
    ),
    Key(
        ("v",),
        "pivot",
        "pivot",
        "One parameter down, one across, the best in bold; again: the charts.",
        rank=5,
    ),
    Key(
        ("g",),
        "sizes",
        "graph",
        "Time over a parameter, a line for each variant; again: the charts. Twice at once: the "
        "first row.",
        rank=5,
    ),
    Key(("c",), "columns", "columns", "Columns: last window, whole run, tails.", rank=8),
    Key(
        ("left_square_bracket",),
        "window_less",
        "window",
        "A shorter / a longer rolling window.",
        "[ ]",
        rank=9,
    ),
    Key(("right_square_bracket",), "window_more", "", "", "]"),
    Key(("z",), "zoom", "zoom", "Time on the charts: 10 s, 1 min, 5 min, all.", rank=6),
    Key(
        ("left",), "cursor_left", "", "Read the chart at an earlier moment; escape leaves.", "left"
    ),
    Key(("right",), "cursor_right", "", "Read the chart at a later moment.", "right"),
    Key(("n",), "next_outlier", "", "Put the cursor on the next outlier back in time.", "n"),
    Key(("N",), "previous_outlier", "", "Put the cursor on the next outlier forward in time.", "N"),
    Key(("m",), "mark", "mark", "Start a new epoch: statistics begin afresh.", rank=8),
    Key(("s",), "solo", "solo", "Measure the selected row alone; again: all rows.", rank=8),
    Key(("l",), "lock", "lock", "Lock or unlock the clocks.", rank=4),
    Key(
        ("R",),
        "renew",
        "retry lost",
        "Under --isolate: a fresh process for rows that crashed, hung or were killed.",
        rank=1,
    ),
    Key(("w",), "why", "why", "The advice with its evidence.", rank=5),
    Key(("t",), "telemetry", "", "Stop and go on reading the sensors.", rank=9),
    Key(("tab",), "next_pane", "pane", "What the lower pane shows.", rank=6),
    Key(
        ("slash",),
        "filter",
        "filter",
        "Rows whose names hold all words, each a regular expression; not a `!word`.",
        "/",
        rank=7,
    ),
    Key(
        ("colon", "ctrl+p"),
        "command",
        "command",
        "Type a command, or choose one: tab completes, up and down recall.",
        ":",
        rank=6,
    ),
    Key(("y",), "copy", "", "Copy the selected row as a Markdown table row.", rank=9),
    Key(("Y",), "copy_verdict", "", "Copy the selected row's answer as a line of Markdown.", "Y"),
    Key(
        ("P", "S"),
        "screenshot",
        "",
        "A picture of the screen beside the session: SVG, and PNG where a converter is there.",
        "P",
    ),
    Key(("K", "shift+pageup"), "log_up", "", "Scroll back in the log.", "K"),
    Key(("J", "shift+pagedown"), "log_down", "", "Scroll forward in the log.", "J"),
    Key(
        ("escape", "backspace"),
        "back",
        "",
        "Leave the cursor, the filter or a scrolled log.",
        "esc",
    ),
    Key(("ctrl+z",), "suspend", "", "Stop the program and return to the shell; `fg` continues."),
    Key(("question_mark", "f1"), "help", "help", "This page.", "?", rank=1),
    Key(("q",), "quit", "quit", "End the run; results are kept.", rank=0),
    Key(("ctrl+c",), "interrupt", "", "The same, with exit code 130."),
)
"""Keys of the main screen."""

MEASURING = ("lock", "solo", "telemetry", "renew")
"""Actions that a saved session has no use for."""

RUNNING = ("pause", "solo", "mark", "lock", "telemetry")
"""Actions that mean nothing once the run is over."""

REPLAY: tuple[Key, ...] = (
    Key(("H", "shift+left"), "back", "10 s", "In a replay: 10 s back / forward.", "H/L", rank=1),
    Key(("L", "shift+right"), "forward", "", "", "L"),
    Key(("e",), "next_event", "event", "In a replay: to the next event, E: back.", rank=1),
    Key(("E",), "previous_event", "", "", "E"),
    Key(("comma",), "slower", "speed", "In a replay: play slower / faster.", ", .", rank=2),
    Key(("full_stop",), "faster", "", "", "."),
    Key(("home", "0"), "start", "", "In a replay: to its beginning.", "home"),
    Key(("end", "G"), "end", "", "In a replay: to its end.", "end"),
)
"""Keys of the main screen over a saved session, before the others."""

SAVED = (*REPLAY, *(key for key in LIVE if key.action not in MEASURING))
"""All keys of the main screen over a saved session."""

PAGE: tuple[Key, ...] = (
    Key(("j", "down"), "line_down", "scroll", "One line down.", "j/k", rank=2),
    Key(("k", "up"), "line_up", "", "One line up."),
    Key(("pagedown", "space"), "page_down", "", "One page down.", "page down"),
    Key(("pageup",), "page_up", "", "One page up.", "page up"),
    Key(("home", "g"), "top", "", "To the top."),
    Key(("end", "G"), "bottom", "", "To the end."),
    Key(
        ("q", "escape", "backspace", "enter", "question_mark"),
        "close",
        "back",
        "Back to the main screen.",
        rank=0,
    ),
    Key(("ctrl+c",), "interrupt", "", "End the run."),
)
"""Keys of a page of text."""

LOCK: tuple[Key, ...] = (
    Key(
        ("right", "up", "k"), "more", "higher", "The next higher supported clock.", "right", rank=2
    ),
    Key(("left", "down", "j"), "less", "lower", "The next lower supported clock.", "left", rank=2),
    Key(("a",), "advised", "advised", "The advised clock.", rank=4),
    Key(("enter",), "lock", "lock", "Lock at this clock.", rank=1),
    Key(("u",), "unlock", "unlock", "Give the clocks back.", rank=3),
    Key(("q", "escape", "backspace", "l"), "close", "back", "Back to the main screen.", rank=0),
    Key(("ctrl+c",), "interrupt", "", "End the run."),
)
"""Keys of the lock dialog."""


def actions(table: tuple[Key, ...]) -> dict[str, str]:
    """Key name to action."""
    return {name: key.action for key in table for name in key.keys}

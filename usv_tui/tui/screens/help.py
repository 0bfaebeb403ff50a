"""The help: every column and sign in one sentence, every key with what it does."""

from collections.abc import Sequence

from usv_tui import plain
from usv_tui.diagnosis.vocabulary import BADGES
from usv_tui.model import RowState
from usv_tui.report.columns import COLUMNS
from usv_tui.report.wording.codes import badge_words
from usv_tui.session.snapshot import RowView
from usv_tui.tui.keys import LIVE, REPLAY, SAVED
from usv_tui.tui.screens.page import Paragraph, pairs
from usv_tui.tui.view import Scene

_MOST_NAMES = 4
STATES: tuple[tuple[str, str], ...] = (
    ("waiting, preparing", "Not begun; building its inputs."),
    ("compiling", "The first calls: compilers and autotuners run; never part of the figures."),
    ("warming", "Samples are kept but not counted until times and clock have levelled."),
    ("drifting", "The times move, by how much is beside it; wait, or compare ratios only."),
    ("steady", "Flat so far; not proven to last."),
    ("settled ±N%", "Flat, the temperature too: at most N % expected in the next 5 minutes."),
    ("throttled", "The device says that power or heat limits its clock."),
    ("undecided", "Too few samples, or times too unsteady, to tell whether they drift."),
    ("no drift seen above N %", "One of N % and more would have shown; a smaller one not yet."),
    ("ratio moves", "The rows follow the clock differently: their ratio holds for no one clock."),
    ("failed", "It raised an error; the others go on. Enter shows the traceback."),
    ("stuck", "No sample for a while: it is still inside one call."),
)


def write(scene: Scene, width: int) -> Sequence[Paragraph]:
    """The page's content: what this run shows first, then all there is."""
    look = scene.look
    out = _of_this_run(scene, width)
    out.append(("Keys", look.strong))
    shown = SAVED if scene.is_replay else (*LIVE, *REPLAY)
    out += pairs(scene, [(key.display, key.help) for key in shown if key.help], width)
    columns = [(column.heading, column.help) for column in COLUMNS]
    badges = [(b, f"{badge_words(b)}.") for b in dict.fromkeys(BADGES.values())]
    for title, terms in (
        ("Columns", columns),
        ("Signs", _signs(scene)),
        ("States", STATES),
        ("Badges", badges),
    ):
        out += [("", look.base), (title, look.strong), *pairs(scene, terms, width)]
    return out


def _signs(scene: Scene) -> Sequence[tuple[str, str]]:
    glyphs = scene.look.glyphs
    return (
        (glyphs.faster, "faster than the baseline"),
        (glyphs.slower, "slower"),
        (glyphs.same, "the same within the practical band"),
        (glyphs.moving, "the ratio still moves; Enter shows it at the present clock"),
        (glyphs.unsure, "not enough data to say"),
        (glyphs.winner, "the fastest of its size, beyond doubt"),
        (f"{glyphs.good} {glyphs.steady}", "before a state: settled, steady"),
        (f"{glyphs.up} {glyphs.down}", "before a state: drifts up, drifts down"),
        (
            f"{glyphs.wait} {glyphs.dot}",
            "before a state: not yet counted; counted, nothing told yet",
        ),
        (f"{glyphs.alert} {glyphs.bad}", "held back by power or heat, or stuck; failed"),
        (f"{glyphs.over} {glyphs.under}", "on the chart: samples above or below its scale"),
        (glyphs.mark, "on the chart: a mark, or the ends of a gap"),
        (f"{glyphs.pointer}step", "under the chart: the row's level changed by so much there"),
        ("! x ^ |", "in the log: a warning, an error, a mark, what your code printed"),
    )


def _of_this_run(scene: Scene, width: int) -> list[Paragraph]:
    """Badges and states that are on the screen now, with the rows that they stand on."""
    look, rows = scene.look, scene.snapshot.rows
    where: dict[str, list[RowView]] = {}
    for row in rows:
        state = row.word.value if row.state is RowState.RUNNING else row.state.value
        for word in (state, *row.badges):
            if word:
                where.setdefault(word, []).append(row)
    terms = [
        (look.text(word), f"{_meaning(word)} On {_names(scene, found)}.")
        for word, found in where.items()
    ]
    if not terms:
        return []
    return [("On the screen now", look.strong), *pairs(scene, terms, width), ("", look.base)]


def _meaning(word: str) -> str:
    """The sentence of a state or a badge."""
    found = next((words for states, words in STATES if word in states.split(", ")), "")
    found = found or next((words for states, words in STATES if states.startswith(word)), "")
    told = badge_words(word)
    return found or (f"{told[:1].upper()}{told[1:]}." if told else "")


def _names(scene: Scene, found: Sequence[RowView]) -> str:
    tops = [row for row in scene.snapshot.rows if row.parent is None]
    if len(found) >= len(tops) > 1:
        return "all rows"
    return plain.some([scene.name(row) for row in found], _MOST_NAMES)

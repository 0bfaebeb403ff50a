"""The help: every column and sign in one sentence, every key with what it does."""

from collections.abc import Sequence

from usv_tui.report.columns import COLUMNS
from usv_tui.tui.keys import LIVE, REPLAY
from usv_tui.tui.screens.page import Paragraph, pairs
from usv_tui.tui.view import Scene

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
    """The page's content."""
    look = scene.look
    glyphs = look.glyphs
    signs = (
        (glyphs.faster, "faster than the baseline"),
        (glyphs.slower, "slower"),
        (glyphs.same, "the same within the practical band"),
        (glyphs.moving, "the ratio still moves; Enter shows it at the present clock"),
        (glyphs.unsure, "not enough data to say"),
        (f"{glyphs.over} {glyphs.under}", "on the chart: samples above or below its scale"),
    )
    out: list[Paragraph] = [("Keys", look.strong)]
    out += pairs(scene, [(key.display, key.help) for key in (*LIVE, *REPLAY) if key.help], width)
    columns = [(column.heading, column.help) for column in COLUMNS]
    out += [("", look.base), ("Columns", look.strong), *pairs(scene, columns, width)]
    out += [("", look.base), ("Signs", look.strong), *pairs(scene, signs, width)]
    out += [("", look.base), ("States", look.strong), *pairs(scene, STATES, width)]
    return out

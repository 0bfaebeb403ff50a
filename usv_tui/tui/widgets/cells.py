"""What stands in the table's cells: figures, the ratio's sign, the state's word and badges."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.style import Style

from usv_tui.model import Answer, Ratio, RowState, StateWord
from usv_tui.report.columns import WHOLE, Column, Kind
from usv_tui.report.wording.rows import (
    common_badges,
    has_valid_time,
    interval_words,
    invalid_reason,
    missing_baseline,
    state_words,
    undecided_words,
)
from usv_tui.session.snapshot import RowView
from usv_tui.stats.rolling import Stats
from usv_tui.tui.look import Glyphs, Look
from usv_tui.tui.view import Scene
from usv_tui.units import RowUnit, scaled, times

FLAT_BELOW = 1e-2
"""A trend whose relative extent is below this is drawn flat: it would be noise, blown up."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and style."""

    text: str
    style: Style
    short: str = ""
    """What to say where there is no room for the text."""
    tail: str = ""
    """Behind the text, in a style of its own."""
    tail_style: Style | None = None


class Sparkline:
    """Trends as block glyphs; the same values give the same text without work."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[float, ...], int, str, str]] = {}

    def text(self, bench: int, values: tuple[float, ...], width: int, blocks: str) -> str:
        """The newest values, one cell each, flush right; blank where there was no sample."""
        known = self._known.get(bench)
        if known is not None and known[1] == width and known[2] == blocks and known[0] == values:
            return known[3]
        drawn = sparkline(values, width, blocks)
        self._known[bench] = (values, width, blocks, drawn)
        return drawn


def sparkline(values: Sequence[float], width: int, blocks: str) -> str:
    """Values as blocks from lowest to highest; a blank for what is not a number."""
    shown = list(values)[-width:] if width > 0 else []
    usable = [v for v in shown if math.isfinite(v)]
    if not usable:
        return " " * max(0, width)
    low, high = min(usable), max(usable)
    middle = (low + high) / 2
    extent = max(high - low, abs(middle) * FLAT_BELOW)
    base = middle - extent / 2
    last = len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return blocks[round((value - base) / extent * last)] if extent > 0 else blocks[last // 2]

    return "".join(map(block, shown)).rjust(width)


def stats_of(row: RowView, scene: Scene) -> Stats:
    """The set of the row's samples that the user looks at."""
    return row.whole if scene.view.columns == WHOLE else row.rolling


def cell_of(
    column: Column, scene: Scene, rows: Sequence[RowView], unit_of: Callable[[RowView], RowUnit]
) -> Callable[[RowView], Cell]:
    """What a column shows of a row."""
    look = scene.look
    common = common_badges(rows)

    def number(row: RowView) -> Cell:
        value = column.pick(row, stats_of(row, scene))
        # The unit stands once in a row, beside its median.
        is_told = column.key == "median"
        words = column.text(value, unit_of(row), look.glyphs.dash, with_unit=is_told)
        return Cell(look.own(words), look.dim if column.key == "n" else look.base)

    return {
        Kind.TREND: lambda _: Cell("", look.base),
        Kind.RATE: lambda row: _rate(row, column, scene),
        Kind.RATIO: lambda row: ratio_cell(row, rows, look),
        Kind.STATE: lambda row: state_cell(row, look, common),
    }.get(column.kind, number)


def _rate(row: RowView, column: Column, scene: Scene) -> Cell:
    look, value = scene.look, column.pick(row, stats_of(row, scene))
    if value is None or not math.isfinite(value) or not has_valid_time(row):
        return Cell(look.glyphs.dash, look.dim)
    return Cell(scaled(value * column.scale), look.base)


def ratio_heading(rows: Sequence[RowView], look: Look, clip: Callable[[str], str]) -> str:
    """Against whom: one name, or each group's own."""
    names = {r.baseline_name for r in rows if r.baseline_name}
    return f"vs {clip(look.plain_name(names.pop()))}" if len(names) == 1 else "vs base"


def ratio_cell(row: RowView, rows: Sequence[RowView], look: Look) -> Cell:
    """The ratio of times to the baseline with half its interval, behind the answer's sign."""
    if invalid_reason(row, rows) and (row.is_baseline or row.ratio is not None):
        return Cell("invalid", look.warn)
    if row.is_baseline:
        return Cell("base", look.dim)
    ratio = row.ratio
    if missing_baseline(row, rows):
        return Cell("base failed", look.warn)
    if ratio is None or ratio.ratio is None or not math.isfinite(ratio.ratio):
        return Cell("", look.base)
    sign, style = answer_sign(ratio, look)
    return Cell(f"{sign} {times(ratio.ratio)}{interval_text(ratio, look.glyphs)}", style)


def interval_text(ratio: Ratio, glyphs: Glyphs) -> str:
    """Half the interval's width in percent of the ratio; empty without an interval."""
    # Two decimals in the width of one: a paired interval is often below 0.1 %.
    words = interval_words(ratio)
    words = words[1:] if words.startswith("0.0") else words
    return f" {glyphs.plus_minus}{words}" if words else ""


def answer_sign(ratio: Ratio, look: Look) -> tuple[str, Style]:
    """The answer as a sign and a style."""
    glyphs = look.glyphs
    return {
        Answer.FASTER: (glyphs.faster, look.good),
        Answer.SLOWER: (glyphs.slower, look.bad),
        Answer.SAME: (glyphs.same, look.base),
        Answer.MOVING: (glyphs.moving, look.info),
        Answer.UNDECIDED: (glyphs.unsure, look.dim),
    }[ratio.answer]


def state_cell(row: RowView, look: Look, common: Sequence[str] = ()) -> Cell:
    """The row's state in a sign and a word; badges behind it, but those that all rows have."""
    sign, word, style = _state(row, look)
    own = [badge for badge in dict.fromkeys(row.badges) if badge not in common]
    badges = "".join(f" {look.text(badge)}" for badge in own)
    short = ""
    if row.state is RowState.RUNNING and row.word is StateWord.UNDECIDED:
        short = undecided_words(row, is_short=True)
    return Cell(f"{sign} {word}".strip(), style, short, badges, look.warn)


def _state(row: RowView, look: Look) -> tuple[str, str, Style]:
    glyphs = look.glyphs
    detail = f" {look.text(row.detail)}" if row.detail else ""
    if row.state is RowState.FAILED:
        return glyphs.bad, "failed", look.bad
    if row.state is RowState.STUCK:
        return glyphs.alert, f"stuck{detail}", look.bad
    if row.state is RowState.OFF:
        return glyphs.dash, f"off{detail}", look.dim
    if row.state is not RowState.RUNNING:
        return glyphs.wait, f"{row.state.value}{detail}", look.info
    return _running(row, look)


def _running(row: RowView, look: Look) -> tuple[str, str, Style]:
    glyphs, word = look.glyphs, row.word
    if word is StateWord.DRIFTING:
        change = row.drift.change
        rising = change is None or change >= 0
        size = "" if change is None or not math.isfinite(change) else f" {change * 100:+.1f}%"
        return glyphs.up if rising else glyphs.down, f"drifting{size}", look.warn
    if word is StateWord.THROTTLED:
        reason = max(row.throttled, key=lambda r: r[1], default=("", 0.0))[0]
        return glyphs.alert, f"throttled {look.text(reason)}".rstrip(), look.bad
    if word is StateWord.UNDECIDED:
        words = undecided_words(row)
        # Where a limit is known, the words say what was seen.
        return glyphs.unsure if words == word.value else "", words, look.dim
    return {
        StateWord.SETTLED: (glyphs.good, state_words(row, glyphs.plus_minus), look.good),
        StateWord.STEADY: (glyphs.steady, "steady", look.good),
        StateWord.WARMING: (glyphs.wait, "warming", look.info),
    }.get(word, (glyphs.dot, "running", look.base))

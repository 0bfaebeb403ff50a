"""What the screen looks at: the user's view of a session, and what a pane is given to draw."""

from collections.abc import Callable
from dataclasses import dataclass, field

from textual.strip import Strip

from usv_tui.errors import one_line
from usv_tui.model import RunPhase
from usv_tui.report.columns import WINDOW
from usv_tui.session.faults import Faults, place_of
from usv_tui.session.snapshot import (
    RowView,
    Snapshot,
)
from usv_tui.session.store import Store
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.rows import Order, matcher

SPANS_S: tuple[int | None, ...] = (10, 60, 300, None)
"""The zoom steps; None is the whole run."""
WINDOWS = (100, 300, 1000, 3000, 10_000)
"""Rolling windows to choose from, in samples."""
PANES = ("log", "output", "noise", "spread", "setup", "sweep")
"""What the lower pane can show."""
_WHOLE_SPANS_S = (5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


def key_of(row: RowView, snapshot: Snapshot) -> str:
    """A row's identity for the user: its name, behind those of the rows that it is a phase of."""
    names, seen = [row.name], {row.bench}
    parent = None if row.parent is None else snapshot.row(row.parent)
    while parent is not None and parent.bench not in seen:
        names.append(parent.name)
        seen.add(parent.bench)
        parent = None if parent.parent is None else snapshot.row(parent.parent)
    return "/".join(reversed(names))


@dataclass(slots=True)
class ViewState:
    """What the user has chosen. Selection is by name, so that it survives any change of rows."""

    selected: str | None = None
    pattern: str = ""
    """Filter: words that must be in a row's name, as regular expressions; `!word` must not."""
    editing: bool = False
    """The filter is being typed."""
    order: str = ""
    """The column that the rows are sorted by; empty for the session's order."""
    is_reversed: bool = False
    sorter: Order = field(default_factory=Order)
    columns: str = WINDOW
    span_s: int | None = 60
    picture: str = ""
    """What stands in the charts' place: pivot or sizes; empty for the charts."""
    pane: str = PANES[0]
    log_end: int | None = None
    """Number of the line after the last shown one; None follows."""
    cursor_ns: int | None = None
    """The moment that the chart is read at."""
    solo: str = ""
    quiet: bool = False
    """The sensors are not read."""
    message: str = ""
    message_until_ns: int = 0

    def visible(self, snapshot: Snapshot) -> tuple[RowView, ...]:
        """The rows that pass the filter, in the session's order or sorted."""
        rows = snapshot.lines
        if self.pattern.strip():
            matches = matcher(self.pattern)
            rows = tuple(r for r in rows if matches(key_of(r, snapshot)))
        if not self.order:
            return rows
        return self.sorter.sorted(rows, self.order, self.columns, is_reversed=self.is_reversed)

    def selected_row(self, snapshot: Snapshot) -> RowView | None:
        """The selected row; the first visible one when it is not there."""
        rows = self.visible(snapshot)
        found = next((r for r in rows if key_of(r, snapshot) == self.selected), None)
        return found or (rows[0] if rows else None)

    def move(self, snapshot: Snapshot, steps: int, *, wraps: bool = False) -> None:
        """Select the row so many steps below (negative: above), stopping at the ends or not."""
        rows = self.visible(snapshot)
        if not rows:
            return
        current = self.selected_row(snapshot)
        index = rows.index(current) if current in rows else 0
        index = (index + steps) % len(rows) if wraps else min(max(index + steps, 0), len(rows) - 1)
        self.selected = key_of(rows[index], snapshot)


class TimeAxis:
    """The stretch of time that all charts share; its right end is now.

    Columns are fixed steps of time, so that a picture moves by whole columns and most of it can be
    kept from one frame to the next.
    """

    __slots__ = ("columns", "from_ns", "span_s", "step_ns", "to_ns")

    def __init__(self, now_ns: int, start_ns: int, span_s: int | None, columns: int) -> None:
        self.columns = max(2, columns)
        """Dot columns: two a cell."""
        whole_s = _whole_span_s(now_ns - start_ns)
        self.span_s = whole_s if span_s is None else min(span_s, whole_s)
        self.step_ns = max(1, self.span_s * 1_000_000_000 // self.columns)
        self.to_ns = -(-now_ns // self.step_ns) * self.step_ns
        self.from_ns = self.to_ns - self.columns * self.step_ns

    def cell_of(self, at_ns: int) -> int:
        """The cell of a moment; may lie outside."""
        return (at_ns - self.from_ns) // (2 * self.step_ns)


def _whole_span_s(elapsed_ns: int) -> int:
    """The smallest round span that holds the whole run."""
    elapsed_s = max(0, elapsed_ns) / 1e9
    round_span = next((s for s in _WHOLE_SPANS_S if s >= elapsed_s), None)
    return round_span or (int(elapsed_s) // 86400 + 1) * 86400


@dataclass(slots=True)
class Scene:
    """What a pane draws from: one frozen snapshot, the series behind it, and the user's view."""

    snapshot: Snapshot
    store: Store
    view: ViewState
    look: Look
    now_ns: int
    """The session's clock when the frame began; the snapshot's own time while frozen."""
    ui_share: float = 0.0
    """CPU time of the screen per second of run."""
    is_frozen: bool = False
    waiting: int = 0
    """Samples that came since the picture was frozen."""
    can_renew: bool = False
    """Lost rows can be tried again in a fresh process."""
    is_replay: bool = False
    """A saved session: nothing is measured."""
    command: str = ""
    """What to type for the advised lock."""
    faults: Faults = field(default_factory=lambda: Faults(lambda *_: None))
    """Who is told what cannot be drawn."""

    def part(
        self, name: str, draw: Callable[[], list[Strip]], width: int, lines: int
    ) -> list[Strip]:
        """A part of the picture; in place of one that cannot be drawn a line says so."""
        try:
            return draw()
        except Exception as error:  # noqa: BLE001  no part may take the others with it
            return self.instead(name, error, width, lines)

    def instead(self, name: str, error: BaseException, width: int, lines: int) -> list[Strip]:
        """What stands in the place of a part that cannot be drawn."""
        self.faults.note(name, error)
        words = self.look.text(f" {name}: {one_line(error)} ({place_of(error)})")
        said = text.strip([(words, self.look.bad)], width, self.look.base)
        return text.exactly([said], width, lines, self.look.base)

    @property
    def is_over(self) -> bool:
        """Nothing is measured any more."""
        return self.snapshot.phase == RunPhase.ENDED

    @property
    def row(self) -> RowView | None:
        """The selected row."""
        return self.view.selected_row(self.snapshot)

    def sign_of_order(self, key: str) -> str:
        """An arrow behind the heading of the column that the rows are sorted by."""
        if key != self.view.order:
            return ""
        return self.look.glyphs.down if self.view.is_reversed else self.look.glyphs.up

    def name(self, row: RowView) -> str:
        """A row's name, safe to show."""
        return self.look.name(row, self.snapshot.rows)

    def axis(self, columns: int) -> TimeAxis:
        """The charts' time axis with so many dot columns."""
        snapshot = self.snapshot
        return TimeAxis(self.now_ns, snapshot.start_ns, self.view.span_s, columns)

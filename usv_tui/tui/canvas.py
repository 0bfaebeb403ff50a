"""The one widget on the screen: lines go in, and only those that changed are painted.

Painting happens at once and in one go, so that it can be done while the gate is open. Textual's
own refresh waits for a timer of its own; `paint` does synchronously what that timer would do.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rich.style import Style
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

Line = tuple[Strip, ...]


class Canvas(Widget):
    """Holds the screen's lines, each a row of strips side by side."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, first_line: Callable[[int], Strip], fill: Style) -> None:
        super().__init__()
        self.fill = fill
        self._first_line = first_line
        self._lines: list[Line] = []
        self.lines_changed = 0
        """How many lines differed in the last `show`."""

    def render_line(self, y: int) -> Strip:
        """The line that was shown last; before that a skeleton of one line."""
        width = self.size.width
        if y < len(self._lines):
            line = self._lines[y]
            strip = line[0] if len(line) == 1 else Strip.join(line)
            return strip.adjust_cell_length(width, self.fill)
        if y == 0 and not self._lines:
            return self._first_line(width)
        return Strip.blank(width, self.fill)

    def show(self, lines: Sequence[Line]) -> None:
        """Take new lines and mark those that differ; equal strips are recognised by identity."""
        old = self._lines
        self._lines = list(lines)
        regions: list[Region] = []
        for y, line in enumerate(self._lines):
            before = old[y] if y < len(old) else ()
            changed = _changed(before, line)
            if changed is not None:
                regions.append(Region(changed[0], y, changed[1] - changed[0], 1))
        width = self.size.width
        regions.extend(Region(0, y, width, 1) for y in range(len(self._lines), len(old)))
        self.lines_changed = len(regions)
        if regions:
            self._set_dirty(*regions)

    def forget(self) -> None:
        """Everything must be painted anew: the terminal shows something else."""
        self._lines = []
        self._set_dirty()

    def paint(self) -> None:
        """Paint what is dirty, now."""
        screen: Screen[Any] = self.screen
        screen._dirty_widgets.add(self)  # noqa: SLF001  pinned by a test
        screen._on_timer_update()  # noqa: SLF001  what the screen's own update timer calls


def _changed(before: Line, line: Line) -> tuple[int, int] | None:
    """From and to which cell a line differs; None when it is the same."""
    if len(before) != len(line):
        return (0, sum(strip.cell_length for strip in line))
    x = 0
    first = last = -1
    for old, new in zip(before, line, strict=True):
        width = new.cell_length
        if old is not new and (old.cell_length != width or old != new):
            first = x if first < 0 else first
            last = x + width
        x += width
    return None if first < 0 else (first, last)


class Stage(Screen[None], inherit_bindings=False):
    """The one screen; keys are the app's business."""

    DEFAULT_CSS = "Stage { layout: vertical; overflow: hidden; }"

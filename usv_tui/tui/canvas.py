"""The one widget on the screen: lines go in, and only those that changed are written.

Textual repaints when a timer of its own says so. Frames must be painted at once, while the gate is
open, so the app takes the escape sequences of the changes from here and writes them itself; the
compositor gets the same lines when it asks (at the first paint, and for screenshots).
"""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.control import Control
from rich.style import Style
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

Line = tuple[Strip, ...]
"""A line of the screen: strips side by side."""


class Canvas(Widget):
    """Holds the screen's lines and knows which of them are on the terminal."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, first_line: Callable[[int], Strip], fill: Style) -> None:
        super().__init__()
        self.fill = fill
        self._first_line = first_line
        self._lines: list[Line] = []
        self._painted: list[Line] = []

    def render_line(self, y: int) -> Strip:
        """The line that was shown last; before that a skeleton of one line."""
        width = self.size.width
        if y < len(self._lines):
            return Strip.join(self._lines[y]).adjust_cell_length(width, self.fill)
        if y == 0 and not self._lines:
            return self._first_line(width)
        return Strip.blank(width, self.fill)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they are: no borders, no cache, no filter (`Look` has seen to colour)."""
        lines = [self.render_line(y) for y in crop.line_range]
        if crop.column_span == (0, self.size.width):
            return lines
        return [line.crop(*crop.column_span) for line in lines]

    def show(self, lines: Sequence[Line]) -> None:
        """The screen's new lines."""
        self._lines = list(lines)

    def changes(self, console: Console) -> str:
        """What to write so that the terminal shows the lines; they count as painted then."""
        out: list[str] = []
        painted = self._painted
        for y, line in enumerate(self._lines):
            before = painted[y] if y < len(painted) else ()
            x = 0
            for index, strip in enumerate(line):
                old = before[index] if index < len(before) else None
                if old is not strip and (old is None or old != strip):
                    out.append(Control.move_to(x, y).segment.text)
                    out.append(strip.render(console))
                x += strip.cell_length
        self._painted = self._lines
        return "".join(out)

    def forget(self) -> None:
        """The terminal shows something else: everything must be written again."""
        self._painted = []


class Stage(Screen[None], inherit_bindings=False):
    """The one screen; keys are the app's business."""

    DEFAULT_CSS = "Stage { layout: vertical; overflow: hidden; }"

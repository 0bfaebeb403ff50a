"""Pages of text that take the whole screen: help, a row's details, the advice with its evidence."""

from collections.abc import Callable, Sequence

from rich.style import Style
from textual.strip import Strip

from usv_tui.tui import text
from usv_tui.tui.keys import PAGE
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets import bar

Paragraph = tuple[str, Style] | Strip
"""A text to be wrapped, or a line that is ready."""
Write = Callable[[Scene, int], Sequence[Paragraph]]
"""Gives the page's content for a width."""


class Page:
    """Scrolls through what `write` gives; the content is written anew for every frame."""

    def __init__(self, title: str, write: Write) -> None:
        self.title = title
        self.top = 0
        self._write = write
        self._height = 1
        self._count = 1

    def lines(self, scene: Scene, width: int, height: int) -> list[tuple[Strip, ...]]:
        """The page with its title and keys."""
        look = scene.look
        body = max(0, height - 2)
        content = _wrapped(self._write(scene, width), width, look.base)
        self._height, self._count = max(1, body), len(content)
        self.top = max(0, min(self.top, len(content) - body))
        shown = content[self.top : self.top + body]
        last = min(self.top + body, len(content))
        place = f"{self.top + 1}-{last} of {len(content)}" if len(content) > body else ""
        title = text.clip(f" {look.text(self.title)}", width - len(place) - 2, look.glyphs.ellipsis)
        pad = max(1, width - text.width_of(title) - len(place) - 1)
        head = text.strip([(f"{title}{' ' * pad}{place}", look.bar)], width, look.bar)
        out = [head, *text.exactly(shown, width, body, look.base)]
        out.append(bar.footer(PAGE, look, width))
        return [(line,) for line in out[:height]]

    def act(self, action: str) -> bool:
        """Do what a key says; False when it says to leave."""
        steps = {
            "line_down": 1,
            "line_up": -1,
            "page_down": self._height - 1,
            "page_up": 1 - self._height,
            "top": -self._count,
            "bottom": self._count,
        }
        if action in steps:
            self.top = max(0, min(self.top + steps[action], self._count - self._height))
            return True
        return action != "close"


def _wrapped(content: Sequence[Paragraph], width: int, fill: Style) -> list[Strip]:
    out: list[Strip] = []
    for paragraph in content:
        if isinstance(paragraph, Strip):
            out.append(paragraph)
            continue
        words, style = paragraph
        wrapped = text.wrap(words, max(1, width - 2))
        out.extend(text.strip([(f" {line}", style)], width, fill) for line in wrapped)
    return out


def pairs(
    scene: Scene, terms: Sequence[tuple[str, str]], width: int, term_width: int = 18
) -> list[Paragraph]:
    """A term and its sentence side by side, or below each other where it is narrow."""
    look = scene.look
    if width < 60:
        term_width = 0
    out: list[Paragraph] = []
    for term, sentence in terms:
        words = text.wrap(look.own(sentence), max(10, width - term_width - 5))
        if not term_width:
            out.append((f"  {term}", look.key))
        for index, line in enumerate(words):
            label = term if index == 0 and term_width else ""
            runs = [(f"   {text.left(label, term_width)} ", look.key), (line, look.base)]
            out.append(text.strip(runs, width, look.base))
    return out

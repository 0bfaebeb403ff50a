"""Text to cells: cleaning, fitting and joining. The only place where text becomes strips.

Names, log lines and error messages come from users. Nothing of theirs may reach the terminal as a
control sequence, and no markup is ever parsed.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from usv_tui import plain

Run = tuple[str, Style]
"""A stretch of text in one style."""


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Somebody's text on one line, safe to show."""
    return plain.line(text)


def width_of(text: str) -> int:
    """Cells that the text takes."""
    return len(text) if text.isascii() else cell_len(text)


def clip(text: str, width: int, ellipsis: str) -> str:
    """At most `width` cells; what is cut off is marked at the end."""
    if width_of(text) <= width:
        return text
    if width <= width_of(ellipsis):
        return set_cell_size(text, max(0, width))
    return set_cell_size(text, width - width_of(ellipsis)) + ellipsis


def clip_middle(text: str, width: int, ellipsis: str) -> str:
    """At most `width` cells, cut in the middle: parameters at a name's end tell rows apart."""
    if width_of(text) <= width:
        return text
    room = width - width_of(ellipsis)
    if room < 6:
        return clip(text, width, ellipsis)
    tail = room - room // 2
    return set_cell_size(text, room // 2) + ellipsis + _last_cells(text, tail)


def clip_name(text: str, width: int, ellipsis: str, head: int) -> str:
    """At most `width` cells: the first `head` of a name that is longer, and its end."""
    if width_of(text) <= width:
        return text
    room = width - width_of(ellipsis)
    if room < 1:
        return clip(text, width, ellipsis)
    kept = min(head, room)
    return set_cell_size(text, kept) + ellipsis + _last_cells(text, room - kept)


def _last_cells(text: str, width: int) -> str:
    """The end of the text, exactly `width` cells."""
    start = len(text)
    while start > 0 and width_of(text[start - 1 :]) <= width:
        start -= 1
    tail = text[start:]
    return " " * (width - width_of(tail)) + tail


def left(text: str, width: int) -> str:
    """Padded or cut to exactly `width` cells, flush left."""
    return (
        text.ljust(width) if text.isascii() and len(text) <= width else set_cell_size(text, width)
    )


def right(text: str, width: int) -> str:
    """Padded or cut to exactly `width` cells, flush right."""
    missing = width - width_of(text)
    return " " * missing + text if missing >= 0 else set_cell_size(text, max(0, width))


def strip(runs: Iterable[Run], width: int, fill: Style) -> Strip:
    """One line of exactly `width` cells; neighbours of one style share one escape sequence."""
    segments: list[Segment] = []
    used = 0
    texts: list[str] = []
    current = fill
    for text, style in runs:
        if not text:
            continue
        cells = width_of(text)
        if used + cells > width:
            text, cells = set_cell_size(text, width - used), width - used  # noqa: PLW2901  cut
        if style is not current and texts:
            segments.append(Segment("".join(texts), current))
            texts = []
        current = style
        texts.append(text)
        used += cells
        if used >= width:
            break
    if used < width:
        if current is not fill and texts:
            segments.append(Segment("".join(texts), current))
            texts = []
        current = fill
        texts.append(" " * (width - used))
    if texts:
        segments.append(Segment("".join(texts), current))
    return Strip(segments, width)


def blank(width: int, fill: Style) -> Strip:
    """An empty line."""
    return Strip.blank(width, fill)


def exactly(lines: Sequence[Strip], width: int, height: int, fill: Style) -> list[Strip]:
    """The first `height` lines, blank ones added where there are fewer."""
    shown = list(lines[:height])
    shown.extend(blank(width, fill) for _ in range(height - len(shown)))
    return shown


def wrap(text: str, width: int) -> list[str]:
    """Break at spaces into lines of at most `width` cells; words that are too long are cut."""
    if width <= 0:
        return []
    lines: list[str] = []
    for paragraph in text.split("\n"):
        if width_of(paragraph) <= width:
            lines.append(paragraph)
            continue
        indent = paragraph[: len(paragraph) - len(paragraph.lstrip(" "))][: width // 2]
        line = ""
        for word in paragraph.split():
            rest = word
            while rest:
                candidate = f"{line} {rest}" if line else indent + rest
                if width_of(candidate) <= width:
                    line, rest = candidate, ""
                elif line:
                    lines.append(line)
                    line = ""
                else:
                    room = width - len(indent)
                    lines.append(indent + set_cell_size(rest, room).rstrip())
                    rest = rest[_characters_in(rest, room) :]
        lines.append(line)
    return lines


def _characters_in(text: str, width: int) -> int:
    """How many leading characters fit into `width` cells, at least one."""
    count = used = 0
    for character in text:
        used += width_of(character)
        if used > width:
            break
        count += 1
    return max(1, count)

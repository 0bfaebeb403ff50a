"""The one door for foreign text on its way to a terminal, a report or a spreadsheet.

Names, messages, reasons and a driver's words come from others. What cannot be seen in them
(controls, escapes, bidi overrides, zero-width and blank-looking characters) is written out as in a
Python string, so that it neither steers a terminal nor makes two names look alike. JSON needs no
door but its own escapes: it keeps the text as it is.
"""

import re
import reprlib
from collections.abc import Callable, Iterable

MOST = 1_000
"""Characters of one line; what is longer is cut, and says how long it was."""
NAME = 100
"""Characters of a name; of a longer one the middle is left out, since names differ at the ends."""
_TAB = "    "
_HIDDEN = re.compile(
    "[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)
"""Printable to Python, and yet nothing is seen of them."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def line(text: str, most: int = MOST) -> str:
    """One line: breaks and tabs become blanks, whatever else cannot be seen is escaped."""
    return _shown(text, most, _blank_or_escaped)


def lines(text: str, most: int = MOST) -> str:
    """Text of several lines, each as `line` makes it; only its line feeds stay."""
    return "\n".join(line(part, most) for part in text.split("\n"))


def name(text: str, most: int = NAME) -> str:
    """A name: breaks and tabs are escaped too, and one that is all blank is quoted."""
    if not text.strip():
        text = repr(text)
    if len(text) > most:
        tail = most // 3
        text = f"{text[: most - tail - 1]}…{text[-tail:]}"
    return _shown(text, most, _visible)


def cell(text: str, most: int = MOST) -> str:
    """A text cell of a CSV file: what a spreadsheet would take for a formula is quoted."""
    shown = _shown(text, most, _visible) if text.strip() else repr(text) if text else ""
    is_formula = text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{shown}" if is_formula else shown


def value(item: object, most: int = 80) -> str:
    """A value as Python writes it, in one short line, whatever its own `repr` does."""
    try:
        return line(_REPR.repr(item), most)
    except Exception:  # noqa: BLE001  a stranger's repr may raise anything
        return f"<{type(item).__name__}>"


def some(items: Iterable[object], most: int = 5, more: int = 0) -> str:
    """The first few of a list, and how many there are more (besides those in `more`)."""
    known = [str(item) for item in items]
    more += max(0, len(known) - most)
    return ", ".join([*known[:most], *([f"and {more:,} more"] if more else [])])


def cut(text: str, most: int = MOST, of: int = 0) -> str:
    """The text as it is, but no longer than that; a cut one says how long it (or `of`) was."""
    if len(text) <= most:
        return text
    tail = f"… ({of or len(text):,} characters)"
    return text[: max(0, most - len(tail))] + tail


def _is_plain(text: str) -> bool:
    return text.isprintable() and (text.isascii() or not _HIDDEN.search(text))


def _visible(character: str) -> str:
    if _is_plain(character):
        return character
    return character.encode("unicode_escape").decode("ascii")


def _blank_or_escaped(character: str) -> str:
    if character == "\t":
        return _TAB
    return (
        " " if character.isspace() and character not in "\x1c\x1d\x1e\x1f" else _visible(character)
    )


def _shown(text: str, most: int, show: Callable[[str], str]) -> str:
    if _is_plain(text):
        return cut(text, most)
    return cut("".join(map(show, text[: most + 1])), most, of=len(text))

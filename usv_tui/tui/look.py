"""How things look: glyphs, styles and the colour of each series.

Colour never carries a meaning alone: every state has a word or a sign as well, so the screen reads
the same with `NO_COLOR`, on a light background and without Unicode.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.color import Color, ColorParseError
from rich.style import Style

from usv_tui import plain
from usv_tui.report.wording.rows import name_of
from usv_tui.tui.text import clean

if TYPE_CHECKING:  # numpy behind it must not be imported before the first paint
    from usv_tui.session.snapshot import RowView

DEFAULT_THEME = "ansi-dark"
"""The terminal's own colours on the terminal's own background: right on dark and light ones."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs on the screen; `UNICODE` and `ASCII` are the two sets."""

    is_ascii: bool
    cursor: str
    ellipsis: str
    dash: str
    blocks: str
    """Sparkline steps, lowest first."""
    shades: str
    """Density steps, thinnest first."""
    faster: str
    slower: str
    same: str
    moving: str
    unsure: str
    up: str
    down: str
    good: str
    bad: str
    alert: str
    wait: str
    steady: str
    axis: str
    """Between labels and plot."""
    mark: str
    """A vertical line at a mark."""
    pointer: str
    """Under a mark, on the time axis."""
    over: str
    under: str
    branch: str
    """Before a phase's name."""
    dot: str
    plus_minus: str
    arrow: str
    median: str
    winner: str
    """Beside the fastest of its size."""
    bar: str
    """A stretch of time on the lane of limits."""
    dotted: str
    """A limit in a strip."""
    swatches: str
    """Marks of series beyond the colours: another shape for every round of colours."""


UNICODE = Glyphs(
    is_ascii=False,
    cursor="▸",
    ellipsis="…",
    dash="—",
    blocks="▁▂▃▄▅▆▇█",
    shades="░▒▓█",
    faster="▼",
    slower="▲",
    same="=",
    moving="~",
    unsure="?",
    up="↑",
    down="↓",
    good="✓",
    bad="✗",
    alert="!",
    wait="…",
    steady="≈",
    axis="│",
    mark="┊",
    pointer="┴",
    over="▲",
    under="▼",
    branch="└ ",
    dot="·",
    plus_minus="±",
    arrow="→",
    median="─",
    winner="★",
    bar="▬",
    dotted="┈",
    swatches="■●◆▲▼◖◗○◇□",
)
ASCII = Glyphs(
    is_ascii=True,
    cursor=">",
    ellipsis="~",
    dash="-",
    blocks="_.-=+*%#",
    shades=".:*#",
    faster="v",
    slower="^",
    same="=",
    moving="~",
    unsure="?",
    up="^",
    down="v",
    good="+",
    bad="x",
    alert="!",
    wait=".",
    steady="=",
    axis="|",
    mark="'",
    pointer="^",
    over="^",
    under="v",
    branch="` ",
    dot="|",
    plus_minus="+-",
    arrow="->",
    median="-",
    winner="*",
    bar="=",
    dotted=".",
    swatches="#o&@%$+=xa",
)

_ANSI_SERIES = ("bright_blue", "magenta", "white", "blue", "bright_magenta")
_ANSI_LIGHT_SERIES = ("bright_magenta", "cyan", "bright_black", "bright_blue", "black")
_DARK_SERIES = ("#cc79a7", "#9a8cff", "#e6e6e6", "#6f9fd8", "#dcb8dc", "#8a8f98")
_LIGHT_SERIES = ("#a8407f", "#4b2fb0", "#303030", "#2f5f9e", "#7a4f7a", "#6a6f78")
"""Colours of rows that red-green blindness tells apart, none of them a meaning's: green is faster,
red slower, amber a warning, cyan a sensor."""


@dataclass(slots=True)
class Look:
    """Everything that a pane needs to draw: glyphs, styles, colours of the series."""

    glyphs: Glyphs
    base: Style
    dim: Style
    strong: Style
    good: Style
    bad: Style
    warn: Style
    info: Style
    bar: Style
    """Header and footer."""
    key: Style
    """A key in the footer."""
    median: Style
    """The line through the samples."""
    series: tuple[Style, ...]
    no_color: bool = False
    _taken: dict[str, int] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A user's text, safe to show; only ASCII where only ASCII can be shown."""
        safe = clean(text)
        if not self.glyphs.is_ascii or safe.isascii():
            return safe
        return safe.translate(_PLAIN).encode("ascii", "replace").decode("ascii")

    def name(self, row: "RowView", rows: "Sequence[RowView]") -> str:
        """A row's name, safe to show; what cannot be seen in it is escaped."""
        return self.text(name_of(row, rows))

    def plain_name(self, name: str) -> str:
        """A name alone, in the same way."""
        return self.text(plain.name(name))

    def own(self, text: str) -> str:
        """Text of ours, with the few signs it may hold replaced in ASCII mode."""
        return text.translate(_PLAIN) if self.glyphs.is_ascii else text

    def meet(self, rows: "Sequence[RowView]") -> None:
        """Give rows their colours in the session's order, whatever is drawn first."""
        for row in rows:
            self._index(row.name)

    def of_series(self, name: str) -> Style:
        """The colour of a benchmark: the next one for every new name, round and round."""
        return self.series[self._index(name) % len(self.series)]

    def mark_of_series(self, name: str) -> str:
        """Its mark: after each round of colours another shape."""
        marks = self.glyphs.swatches
        return marks[self._index(name) // max(1, self._rounds()) % len(marks)]

    def _rounds(self) -> int:
        """Without colours, every row has a shape of its own."""
        return 1 if self.no_color else len(self.series)

    def _index(self, name: str) -> int:
        return self._taken.setdefault(name, len(self._taken))


_PLAIN = str.maketrans(
    {
        "±": "+-",
        "µ": "u",
        "μ": "u",
        "°": "",
        "→": "->",
        "·": "|",
        "—": "-",
        "\N{EN DASH}": "-",
        "…": "~",
        "\N{MULTIPLICATION SIGN}": "x",
        "²": "^2",
        "≤": "<=",
        "≥": ">=",
        "≈": "=",
        "\N{MINUS SIGN}": "-",
        "Δ": "d",
        "\N{GREEK SMALL LETTER ALPHA}": "alpha",
    }
)


def wants_ascii(environ: Mapping[str, str] | None = None) -> bool:
    """True where braille and block glyphs cannot be shown: a non-UTF-8 locale or a bare console."""
    environ = _asked_for() if environ is None else environ
    if environ.get("TERM", "") in {"linux", "dumb", "vt100", "vt220"}:
        return True
    locale = next(
        (v for name in ("LC_ALL", "LC_CTYPE", "LANG") if (v := environ.get(name, ""))), ""
    )
    return bool(locale) and "utf" not in locale.lower()


def _asked_for() -> dict[str, str]:
    """The environment without the locale that Python sets by itself where the user's is C."""
    asked = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return asked
    if not any(variable.startswith(b"LC_CTYPE=") for variable in given):
        asked.pop("LC_CTYPE", None)
    return asked


def make_look(
    variables: Mapping[str, str], *, is_ansi: bool, is_dark: bool, ascii_only: bool, no_color: bool
) -> Look:
    """The look of a theme.

    Args:
        variables: the theme's colour variables (`foreground`, `background`, `success` …).
        is_ansi: True for themes that use the terminal's own palette.
        is_dark: True on dark backgrounds.
        ascii_only: no glyph outside ASCII.
        no_color: attributes only.
    """
    glyphs = ASCII if ascii_only else UNICODE
    if no_color:
        return _plain_look(glyphs)
    if is_ansi:
        return _ansi_look(glyphs, is_dark=is_dark)
    return _colour_look(glyphs, variables, is_dark=is_dark)


def _plain_look(glyphs: Glyphs) -> Look:
    base, strong = Style(), Style(bold=True)
    return Look(
        glyphs=glyphs,
        base=base,
        dim=Style(dim=True),
        strong=strong,
        good=strong,
        bad=strong,
        warn=strong,
        info=base,
        bar=Style(reverse=True),
        key=strong,
        median=strong,
        series=(base,),
        no_color=True,
    )


def _ansi_look(glyphs: Glyphs, *, is_dark: bool) -> Look:
    series = _ANSI_SERIES if is_dark else _ANSI_LIGHT_SERIES
    return Look(
        glyphs=glyphs,
        base=Style(),
        dim=Style(dim=True),
        strong=Style(bold=True),
        good=Style(color="green"),
        bad=Style(color="red", bold=True),
        warn=Style(color="yellow" if is_dark else "magenta", bold=True),
        info=Style(color="cyan" if is_dark else "blue"),
        bar=Style(reverse=True),
        key=Style(bold=True),
        median=Style(bold=True),
        series=tuple(Style(color=name) for name in series),
    )


def _colour_look(glyphs: Glyphs, variables: Mapping[str, str], *, is_dark: bool) -> Look:
    back = _colour(variables, "background", "#101010" if is_dark else "#f8f8f8")
    fore = _colour(variables, "foreground", "#e0e0e0" if is_dark else "#202020")

    def on(colour: Color, *, bold: bool = False) -> Style:
        return Style(color=colour, bgcolor=back, bold=bold or None)

    def told(name: str, fallback: str, *, bold: bool = False) -> Style:
        """A theme's signal colour, darkened on light backgrounds until it can be read."""
        colour = _colour(variables, name, fallback)
        return on(colour if is_dark else _between(colour, fore), bold=bold)

    panel = _colour(variables, "panel", "#303030" if is_dark else "#d8d8d8")
    series = _DARK_SERIES if is_dark else _LIGHT_SERIES
    return Look(
        glyphs=glyphs,
        base=on(fore),
        dim=on(_between(fore, back)),
        strong=on(fore, bold=True),
        good=told("success", "green"),
        bad=told("error", "red", bold=True),
        warn=told("warning", "yellow", bold=True),
        info=told("primary", "cyan"),
        bar=Style(color=fore, bgcolor=panel),
        key=on(fore, bold=True),
        median=on(fore, bold=True),
        series=tuple(on(Color.parse(name)) for name in series),
    )


def _colour(variables: Mapping[str, str], name: str, fallback: str) -> Color:
    """A theme's colour; the fallback where the theme's value is no plain colour."""
    try:
        return Color.parse(variables.get(name, fallback)[:7])
    except ColorParseError:
        return Color.parse(fallback)


def _between(one: Color, other: Color) -> Color:
    """The colour in the middle: readable, but quieter than the text."""
    a, b = one.get_truecolor(), other.get_truecolor()
    return Color.from_rgb(*(0.55 * x + 0.45 * y for x, y in zip(a, b, strict=True)))

"""Dots to text: braille (or ASCII density) rows with one colour a run of cells."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from usv_tui.tui.look import Glyphs

Bits = NDArray[np.uint8]
Owners = NDArray[np.uint8]

_BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
_POPCOUNT = np.array([i.bit_count() for i in range(256)], dtype=np.uint8)
_SPACE = 0x20
_BRAILLE_TEXT = np.arange(0x2800, 0x2900, dtype="<u2")
_BRAILLE_TEXT[0] = _SPACE
_ASCII_TEXT = np.array([ord(c) for c in " .:+*%%@@"], dtype="<u2")[_POPCOUNT]


class Raster:
    """A grid of cells, each 2 dots wide and 4 high; a cell has one owner, which is its colour.

    Row 0 is the top; dot rows count from the top as well.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.bits: Bits = np.zeros((height, width), dtype=np.uint8)
        self.owner: Owners = np.zeros((height, width), dtype=np.uint8)
        self.over: NDArray[np.uint16] = np.zeros((height, width), dtype="<u2")
        """Code points that are shown instead of the dots where they are not 0."""

    def dots(self, x: NDArray[np.intp], y: NDArray[np.intp], owner: int) -> None:
        """Set dots; those outside are left out. Later owners take a cell over."""
        inside = (x >= 0) & (x < 2 * self.width) & (y >= 0) & (y < 4 * self.height)
        x, y = x[inside], y[inside]
        cell = (y >> 2) * self.width + (x >> 1)
        grid = np.zeros((self.height * self.width, 8), dtype=bool)
        grid[cell, ((x & 1) << 2) | (y & 3)] = True
        packed = grid @ _ORDERED
        self.bits |= packed.reshape(self.height, self.width)
        self.owner.reshape(-1)[cell] = owner

    def put(self, x: NDArray[np.intp], y: NDArray[np.intp], code: int, owner: int) -> None:
        """Put a character into cells; those outside are left out."""
        inside = (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        self.over[y[inside], x[inside]] = code
        self.owner[y[inside], x[inside]] = owner

    def counts(self, x: NDArray[np.intp], y: NDArray[np.intp]) -> NDArray[np.intp]:
        """How many of the dots fall into each cell."""
        inside = (x >= 0) & (x < 2 * self.width) & (y >= 0) & (y < 4 * self.height)
        cell = (y[inside] >> 2) * self.width + (x[inside] >> 1)
        flat = np.bincount(cell, minlength=self.height * self.width)
        return flat.reshape(self.height, self.width)

    def texts(self, glyphs: Glyphs) -> list[str]:
        """The rows as text."""
        table = _ASCII_TEXT if glyphs.is_ascii else _BRAILLE_TEXT
        codes = np.where(self.over != 0, self.over, table[self.bits])
        text = codes.astype("<u2").tobytes().decode("utf-16-le")
        return [text[i * self.width : (i + 1) * self.width] for i in range(self.height)]


_ORDERED = _BRAILLE.T.reshape(-1)


class RowCache:
    """Rows of text with owners to strips; a row that did not change keeps its strip."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, Strip]] = []

    def strips(
        self,
        heads: Sequence[tuple[str, Style]],
        texts: Sequence[str],
        owner: Owners,
        styles: Sequence[Style],
    ) -> list[Strip]:
        """One strip a row: its head (label and axis), then its cells in their owners' styles."""
        rows = self._rows
        out: list[Strip] = []
        for index, (head, text) in enumerate(zip(heads, texts, strict=True)):
            owners = owner[index]
            key = (head, text, owners.tobytes(), styles)
            if index < len(rows) and rows[index][0] == key:
                out.append(rows[index][1])
                continue
            strip = _row_strip(head, text, owners, styles)
            if index < len(rows):
                rows[index] = (key, strip)
            else:
                rows.append((key, strip))
            out.append(strip)
        return out


def _row_strip(
    head: tuple[str, Style], text: str, owners: Owners, styles: Sequence[Style]
) -> Strip:
    """Runs of one owner; a blank cell belongs to whatever is on its left, so runs stay few."""
    segments = [Segment(*head)] if head[0] else []
    blank = np.frombuffer(text.encode("utf-16-le"), dtype="<u2") == _SPACE
    if blank.any():
        index = np.where(blank, 0, np.arange(len(owners)))
        np.maximum.accumulate(index, out=index)
        owners = owners[index]
    edges = np.flatnonzero(np.diff(owners)) + 1
    start = 0
    for end in (*edges.tolist(), len(text)):
        segments.append(Segment(text[start:end], styles[owners[start]]))
        start = end
    return Strip(segments, len(head[0]) + len(text))

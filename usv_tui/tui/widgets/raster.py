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

    def clear_crowded(self, y: NDArray[np.intp], x: NDArray[np.intp]) -> None:
        """Make room for a line in cells where characters or many dots would hide it."""
        self.over[y, x] = 0
        bits = self.bits[y, x]
        self.bits[y, x] = np.where(_POPCOUNT[bits] > 2, 0, bits)

    def counts(self, x: NDArray[np.intp], y: NDArray[np.intp]) -> NDArray[np.intp]:
        """How many of the dots fall into each cell."""
        inside = (x >= 0) & (x < 2 * self.width) & (y >= 0) & (y < 4 * self.height)
        cell = (y[inside] >> 2) * self.width + (x[inside] >> 1)
        flat = np.bincount(cell, minlength=self.height * self.width)
        return flat.reshape(self.height, self.width)

    def owners_for_runs(self) -> Owners:
        """Owners of cells, where a blank cell belongs to what is on its left: runs stay few."""
        blank = (self.bits == 0) & ((self.over == 0) | (self.over == _SPACE))
        index = np.where(blank, 0, np.arange(self.width))
        np.maximum.accumulate(index, axis=1, out=index)
        return np.take_along_axis(self.owner, index, axis=1)

    def texts(self, glyphs: Glyphs) -> list[str]:
        """The rows as text."""
        table = _ASCII_TEXT if glyphs.is_ascii else _BRAILLE_TEXT
        codes = np.where(self.over != 0, self.over, table[self.bits])
        text = codes.tobytes().decode("utf-16-le")
        return [text[i * self.width : (i + 1) * self.width] for i in range(self.height)]


_ORDERED = _BRAILLE.T.reshape(-1)


class RowCache:
    """Rows of text with owners to strips; a row that did not change keeps its strip."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, Strip]] = []
        self._styles: Sequence[Style] = ()

    def strips(
        self,
        heads: Sequence[tuple[str, Style]],
        raster: Raster,
        styles: Sequence[Style],
        glyphs: Glyphs,
    ) -> list[Strip]:
        """One strip a row: its head (label and axis), then its cells in their owners' styles."""
        texts = raster.texts(glyphs)
        owners = raster.owners_for_runs()
        if styles is not self._styles:
            self._styles, self._rows = styles, []
        known = self._rows
        edges = np.flatnonzero(np.diff(owners, axis=1, append=255)).tolist()
        flat = owners.reshape(-1)[edges].tolist()
        width, cursor = raster.width, 0
        rows: list[tuple[object, Strip]] = []
        for index, (head, text) in enumerate(zip(heads, texts, strict=True)):
            first = cursor
            last_edge = (index + 1) * width - 1
            while edges[cursor] < last_edge:
                cursor += 1
            cursor += 1
            ends = edges[first:cursor]
            key = (head, text, tuple(ends), tuple(flat[first:cursor]))
            if index < len(known) and known[index][0] == key:
                rows.append(known[index])
                continue
            base = index * width - 1
            segments = [Segment(*head)] if head[0] else []
            start = 0
            for end, owner in zip(ends, flat[first:cursor], strict=True):
                segments.append(Segment(text[start : end - base], styles[owner]))
                start = end - base
            rows.append((key, Strip(segments, len(head[0]) + width)))
        self._rows = rows
        return [strip for _, strip in rows]

"""What the keeper may know of the program at any time: a piece of memory that both have."""

import json
import os
from typing import Any

from usv_tui.descriptors import out_of_the_way
from usv_tui.tui import keeper

_MOST_ROWS = 100
"""Of further ones the keeper knows the function only."""


class Board:
    """The program's side. Writing costs no system call, and needs no descriptor."""

    def __init__(self) -> None:
        """Raises OSError where there is no shared memory."""
        import mmap  # noqa: PLC0415  a screen is up before it is needed

        self.fd = out_of_the_way(os.memfd_create("usv-tui", os.MFD_CLOEXEC))
        os.truncate(self.fd, keeper.BOARD_BYTES)
        self._memory = mmap.mmap(self.fd, keeper.BOARD_BYTES)
        self.cells = memoryview(self._memory).cast("i")
        self._rows: dict[int, tuple[str, str, str, int]] = {}
        self._told = 0

    @property
    def row_cells(self) -> memoryview:
        """Where the row is told that the worker is in."""
        return self.cells[keeper.ROW : keeper.ROW + 1]

    def beat(self) -> None:
        """The program lives."""
        self.cells[keeper.BEATS] = self.cells[keeper.BEATS] % (1 << 30) + 1

    def was_written_over(self) -> bool:
        """True when the keeper has written on the screen since the last time."""
        told, self._told = self._told, self.cells[keeper.TOLD]
        return told != self._told

    def say_ending(self) -> None:
        """It ends in order, and that may take its time. Safe from a signal handler."""
        self.cells[keeper.PHASE] = max(self.cells[keeper.PHASE], keeper.ENDING)

    def say_done(self) -> None:
        """Everything has been said."""
        self.cells[keeper.PHASE] = keeper.DONE

    def meet(self, bench: int, name: str, code: Any = None) -> None:
        """A row, and the code of its function as soon as that is known."""
        if len(self._rows) >= _MOST_ROWS and bench not in self._rows:
            return
        place = ("", "", 0)
        if code is not None:
            place = (code.co_filename, code.co_name, code.co_firstlineno)
        self._rows[bench] = (name, *place)
        text = json.dumps(self._rows).encode()
        if len(text) <= keeper.BOARD_BYTES - keeper.TEXT:
            self._memory[keeper.TEXT : keeper.TEXT + len(text)] = text
            self.cells[keeper.LENGTH] = len(text)

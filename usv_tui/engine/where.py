"""Where the worker is: told to whoever watches it from outside, also after its death."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from usv_tui.timers.wall import Slot

Cells = list[int] | memoryview
_OURS = ("usv_tui.engine.", "usv_tui.suite.")
_MOST_FRAMES = 12


class Where:
    """The row in whose code the worker is, and was: integers, which may lie in shared memory.

    It is written between windows, never inside one.
    """

    def __init__(self, cells: Cells | None = None) -> None:
        self._cells: Cells = [0] * 3 if cells is None else cells

    @property
    def bench(self) -> int | None:
        """The row; None when the worker is in no row's code."""
        return self._cells[0] - 1 if self._cells[0] > 0 else None

    @property
    def last(self) -> int | None:
        """The row in whose code it was last."""
        return self.bench if self._cells[0] > 0 or self._cells[1] == 0 else self._cells[1] - 1

    @property
    def is_closed(self) -> bool:
        """True when somebody closed what the worker speaks through."""
        return self._cells[2] > 0

    @property
    def closer(self) -> int | None:
        """The row that did."""
        return self._cells[2] - 2 if self._cells[2] > 1 else None

    def at(self, bench: int | None) -> None:
        """The worker enters a row's code, or leaves it."""
        if bench is None:
            self._cells[1] = self._cells[0] or self._cells[1]
        self._cells[0] = 0 if bench is None else bench + 1

    def blame(self) -> None:
        """What the worker speaks through is closed: by the row that it is in, or was in last."""
        if not self._cells[2]:
            self._cells[2] = 1 if self.last is None else self.last + 2

    def along(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        """The same slots; going through them tells where one is."""
        return _Told(slots, self._cells)

    def meet(self, bench: int, name: str, fn: object = None) -> None:
        """A row there is, and its function as soon as it is built."""


class Outside(Where):
    """In a thread nothing is told between two windows: a stack shows what the keeper must know."""

    def __init__(self, cells: Cells, meet: Callable[[int, str, CodeType | None], object]) -> None:
        super().__init__(cells)
        self._meet = meet

    def along(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        """The same slots."""
        return slots

    def at(self, bench: int | None) -> None:
        """The worker enters a row's code, or leaves it."""
        self._cells[0] = 0 if bench is None else bench + 1

    def meet(self, bench: int, name: str, fn: object = None) -> None:
        """Told with the code that a stack will show."""
        self._meet(bench, name, None if fn is None else _code_of(fn))


def _code_of(fn: Any) -> CodeType | None:
    """What a callable runs first, as far as that is Python."""
    for inner in (fn, getattr(fn, "func", None), vars(type(fn)).get("__call__")):
        code = getattr(inner, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


class _Told(list[Slot]):
    def __init__(self, slots: Sequence[Slot], cells: Cells) -> None:
        super().__init__(slots)
        self._cells = cells

    def __iter__(self) -> Iterator[Slot]:
        cells = self._cells
        for slot in super().__iter__():
            cells[0] = slot.bench + 1
            yield slot


def row_of(thread: int) -> int | None:
    """The row that a thread of this process is in, by its stack: costs that thread nothing."""
    frame = _frame(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            for name in ("slot", "row"):
                bench = getattr(frame.f_locals.get(name), "bench", None)
                if isinstance(bench, int):
                    return bench
        frame = frame.f_back
    return None


def stack_of(thread: int) -> list[str]:
    """What a thread is in beyond our own code, the outermost call first; a line each."""
    frame = _frame(thread)
    theirs: list[FrameType] = []
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            break
        if not str(frame.f_globals.get("__name__", "")).startswith("importlib"):
            theirs.append(frame)  # how an import is done explains nothing
        frame = frame.f_back
    lines = []
    for part in reversed(theirs[:_MOST_FRAMES]):
        [found] = traceback.extract_stack(part, limit=1)
        source = f": {found.line}" if found.line else ""
        lines.append(f"  in {found.name}, {found.filename}:{found.lineno}{source}")
    return lines


def _frame(thread: int) -> FrameType | None:
    return sys._current_frames().get(thread)  # noqa: SLF001  documented

"""Warnings that a row's code gives while it runs reach the row: Python's, and what torch logs.

Which row it is, is seen from the stack of the thread that warns: the timed path pays nothing.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_MOST_OF_A_ROW = 5
_MOST = 40
_LONGEST = 300

Tell = Callable[[int | None, dict[str, Any]], object]
"""Row (None: not known) and evidence."""


def row_of(frame: FrameType | None) -> int | None:
    """The row whose callable runs in this stack."""
    while frame is not None:
        slot = frame.f_locals.get("slot")
        bench = getattr(slot, "bench", None)
        if isinstance(bench, int):
            return bench if bench >= 0 else None
        frame = frame.f_back
    return None


class _Ear(logging.Handler):
    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._heard: dict[int | None, set[str]] = {}

    def hear(self, text: str, kind: str) -> None:
        """Tell a row's warning once, and of each row no more than a few."""
        bench = row_of(sys._getframe(1))  # noqa: SLF001  the only way to the caller's frames
        text = " ".join(text.split())[:_LONGEST]
        heard = self._heard.setdefault(bench, set())
        is_full = len(heard) >= _MOST_OF_A_ROW or sum(map(len, self._heard.values())) >= _MOST
        if bench is None or text in heard or is_full:
            return
        heard.add(text)
        self._tell(bench, {"kind": kind, "text": text})

    def emit(self, record: logging.LogRecord) -> None:
        """A line that torch logs."""
        self.hear(record.getMessage(), record.name)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Hear warnings for as long as the context lasts; whoever heard them before still does."""
    ear = _Ear(tell)
    show = warnings.showwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        ear.hear(str(message), category.__name__)
        show(message, category, filename, lineno, file, line)

    warnings.showwarning = shown
    loggers = _torch_loggers()
    for logger in loggers:
        logger.addHandler(ear)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(ear)
        if warnings.showwarning is shown:
            warnings.showwarning = show


def _torch_loggers() -> list[logging.Logger]:
    """Torch's own logger, and those below it that do not hand on what they are told."""
    known = list(logging.root.manager.loggerDict.items())
    return [logging.getLogger("torch")] + [
        logger
        for name, logger in known
        if name.startswith("torch.") and isinstance(logger, logging.Logger) and not logger.propagate
    ]

"""A boundary around what surrounds a measurement: statistics, advice, drawing.

An error of ours there costs that part only. It is told once, with the line where it came up, and
the measurement goes on.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TypeVar

from usv_tui.errors import one_line

_MOST = 20
"""Different faults told of one session."""

_TRIES = 50
T = TypeVar("T")
Tell = Callable[[str, str, str], None]
"""Takes the part, the error in a line, and the place."""


class Faults:
    """Which faults there were, each told once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._seen: set[tuple[str, str, str]] = set()
        self.parts: set[str] = set()
        """Those that failed at least once."""

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Whatever goes wrong inside ends the part, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  this is the boundary
            self.note(part, error)

    def note(self, part: str, error: BaseException) -> None:
        """Tell of an error, unless it was told before or is a callable's doing."""
        if _is_disturbed(error):
            return
        self.parts.add(part)
        where = place_of(error)
        key = (part, type(error).__name__, where)
        if key not in self._seen and len(self._seen) < _MOST:
            self._seen.add(key)
            self._tell(part, one_line(error), where)


def undisturbed(make: Callable[[], T]) -> T:
    """What this makes, once more where a callable disturbed it.

    While a callable holds what `gc.get_objects` gave it, a tuple that another thread is making may
    be among that, and cannot be finished.
    """
    for _ in range(_TRIES):
        try:
            return make()
        except SystemError as error:
            if not _is_disturbed(error):
                raise
    return make()


def _is_disturbed(error: BaseException) -> bool:
    return isinstance(error, SystemError) and "bad argument to internal function" in str(error)


def place_of(error: BaseException) -> str:
    """File and line where an error came up."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"

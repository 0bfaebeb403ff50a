"""A piece of a script that stands still at a call, until those beside it stand at theirs."""

import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from usv_tui.foreign.calls import Answer, Call, Stopped
from usv_tui.foreign.surroundings import Surroundings


class Outcome(NamedTuple):
    """What a piece of the script returned, or raised."""

    value: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """As if it had been called now."""
        if self.error is not None:
            raise self.error
        return self.value


class Cell:
    """A piece of the script that stands still at its call."""

    def __init__(self, body: Callable[[], Any], standing: dict[int, "Cell"]) -> None:
        self.call: Call | None = None
        """Where it stands; None when it has ended."""
        self.outcome = Outcome()
        self._body = body
        self._standing = standing
        self._given: Answer | None = None
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._state = Surroundings.now()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="usv-cell", daemon=True
        )
        self._has_begun = False

    def _run(self) -> None:
        self._mine.acquire()
        ident = threading.get_ident()
        self._standing[ident] = self
        try:
            with contextlib.ExitStack() as stack:
                if self._state is not None:
                    stack.enter_context(self._state.entered())
                self.outcome = Outcome(self._body())
        except BaseException as error:  # noqa: BLE001  raised again where the script called it
            self.outcome = Outcome(error=error)
        finally:
            self._standing.pop(ident, None)
            self._theirs.release()

    def go_on(self) -> None:
        """Run until its next call, or its end."""
        self.call = None
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        self._mine.release()
        self._theirs.acquire()

    def park(self, call: Call) -> Answer:
        """In the cell: stand still until the call was timed."""
        self.call = call
        self._theirs.release()
        self._mine.acquire()
        if self._given is None:
            raise Stopped
        given, self._given = self._given, None
        return given

    def answer(self, answer: Answer) -> None:
        """Give it what it waits for, and let it go on."""
        self._given = answer
        self.go_on()

    def abandon(self) -> None:
        """The run is to end."""
        if self.call is not None:
            self.go_on()

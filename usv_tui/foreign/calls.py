"""What a script asks to be timed, and who times it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from usv_tui.codes import Code
from usv_tui.foreign.surroundings import Surroundings


class Stopped(BaseException):
    """Raised within a script when its run is to end; no script catches it by accident."""


@dataclass(eq=False)
class Call:
    """One thing to be timed, as the script named it."""

    fn: Callable[[], object]
    name: str
    """Without parameters."""
    params: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    """Rows of one group are compared with each other."""
    is_baseline: bool = False
    seconds: float = 0.1
    """Of the callable's own time, as the script asked for."""
    samples: int | None = None
    """So many windows, where the script says so."""
    calls: int = 1
    """How often `fn` does what is to be timed."""
    inner: int | None = None
    """Calls of `fn` in a window; None leaves it to the run."""
    is_cold: bool = False
    """The script's own timer empties the cache before each call."""
    reset: Callable[[], object] | None = None
    stream: Any = None
    surroundings: Surroundings | None = None
    first_result: Any = None
    """What its first call returned."""
    bench: int = -1
    """The row that it became."""

    @property
    def full_name(self) -> str:
        """With its parameters, as rows of suites are named."""
        inside = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}[{inside}]" if inside else self.name


class Answer(NamedTuple):
    """What was measured of a call."""

    seconds: list[float]
    """Of each window, per call."""
    error: BaseException | None = None


class Conductor(Protocol):
    """The measuring loop, as libraries' entry points see it."""

    def meet(self, call: Call) -> BaseException | None:
        """Call it for the first time, in place, and look how long it takes; its error, if any."""
        ...

    def measure(self, calls: Sequence[Call], *, sequential: str = "") -> list[Answer]:
        """Time calls that were met, interleaved; `sequential` says why one of them is alone.

        Raises:
            Stopped: the run is to end.
        """
        ...

    def timed_elsewhere(self, call: Call, windows_s: Sequence[float], reason: str) -> None:
        """Put windows of another timer on record, in seconds per call."""
        ...

    def tell(self, code: Code, evidence: Mapping[str, Any], call: Call | None = None) -> None:
        """Something that a reader should know."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the run is to end."""
        ...

    @property
    def room_bytes(self) -> int:
        """How much memory calls that wait to be timed may hold."""
        ...

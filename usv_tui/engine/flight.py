"""Windows in flight: put into a stream, not yet read, and what was learned of their rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from usv_tui.engine.phases import Calls
from usv_tui.engine.timers import Slot
from usv_tui.records import Samples


class Known:
    """What was learned of a row from its windows."""

    __slots__ = ("gain", "host_ns", "is_armed", "lead_ns", "per_call_ns")

    def __init__(self) -> None:
        self.per_call_ns = 0.0
        self.lead_ns = 0.0
        """Device time before a window: the flush."""
        self.host_ns = 0.0
        self.gain = 1.0
        """By how much a blocker is longer than the host needed last."""
        self.is_armed = True


class Window(NamedTuple):
    """A window in flight."""

    block: "Block"
    slot: Slot
    known: Known
    start: Any
    end: Any
    pairs: list[tuple[Any, Any]] | None
    """Event pairs of each call, where each is timed for itself."""
    expected_ns: float
    launches: int


class Block:
    """Rounds that were enqueued together; windows are read in order, so it fills from the left."""

    __slots__ = (
        "calls",
        "flag",
        "flags",
        "host_ns",
        "is_closed",
        "round",
        "size",
        "slots",
        "start_ns",
        "t0_ns",
        "window_ns",
    )

    def __init__(
        self, round_: int, size: int, slots: Sequence[Slot], flag: int, t0_ns: int
    ) -> None:
        self.round = round_
        self.size = size
        self.slots = slots
        self.flag = flag
        self.t0_ns = t0_ns
        self.host_ns: list[int] = []
        self.flags: list[int] = []
        self.start_ns: list[int] = []
        self.window_ns: list[int] = []
        self.calls: Calls = []
        self.is_closed = False

    @property
    def is_read(self) -> bool:
        """True when nothing more will come."""
        return self.is_closed and len(self.window_ns) == len(self.host_ns)

    def samples(self) -> Samples:
        """What was read, as a record."""
        n = len(self.window_ns)
        slots = self.slots[:n]
        inners = [slot.inner for slot in slots]
        if len(set(inners)) == 1:
            del inners[1:]
        flags = self.flags[:n]
        if all(flag == self.flag for flag in flags):
            flags = []
        t0_ns = self.t0_ns
        return Samples(
            self.round,
            self.size,
            t0_ns,
            [slot.bench for slot in slots],
            [start - t0_ns for start in self.start_ns],
            self.window_ns,
            inners,
            self.host_ns[:n],
            flags,
            self.flag,
        )

"""Windows in flight: put into a stream, not yet read, and what was learned of their rows."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from usv_tui.model import Flag
from usv_tui.records import Samples
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.phases import Calls
from usv_tui.timers.stream_clock import StreamClock
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

FEWEST = 2
"""Windows that are always let in: one runs, one waits, so that the device never runs dry."""
MAX_LAUNCHES = 900
"""A device takes about 1024 launches ahead; a host that fills that hangs in a call, GIL in hand."""

END: Final = 4
"""Where in a window its end event is."""

_NS_PER_MS = 1_000_000
_STARVED = int(Flag.STARVED)
_NONPOSITIVE = int(Flag.NONPOSITIVE)
_ABSURD_MS = 1e10
"""No window is as long: NaN and infinity are no lengths either."""
_PRECISE_NS = 1_000_000
"""Starts of windows that follow each other closer are added up, not looked up: half the reads."""


class Known:
    """What was learned of a row from its windows."""

    __slots__ = ("gain", "host_ns", "is_armed", "lead_ns", "per_call_ns")

    def __init__(self) -> None:
        self.per_call_ns = 0.0
        self.lead_ns = 0.0
        """Device time before a window: refilling calls, reset, flush."""
        self.host_ns = 0.0
        self.gain = 1.0
        """By how much a blocker is longer than the host needed last."""
        self.is_armed = True


class Block:
    """Rounds that were enqueued together; windows are read in order, so it fills from the left."""

    __slots__ = (
        "calls",
        "end",
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
        self.end: Any = None
        """The last window's end: when it is reached, all before it are."""
        self.is_closed = False

    @property
    def unread(self) -> int:
        """Windows that are still in flight."""
        return len(self.host_ns) - len(self.window_ns)

    def cut(self) -> None:
        """What was not read so far never will be."""
        del self.host_ns[len(self.window_ns) :]
        self.is_closed = True

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


Pairs = list[tuple[Any, Any]]
Window = tuple[Block, Slot, Known, Any, Any, Pairs | None, float, int, bool]
"""Block, slot, what is known, start, end, pairs of single calls, expected ns, launches, and whether
its start must be looked up. A plain tuple: one is made for every sample."""


class Flight:
    """The windows between enqueueing and reading, oldest first, and how much work they are."""

    def __init__(
        self, pool: EventPool, stream_clock: StreamClock, *, depth: int, queue_ns: int
    ) -> None:
        self._pool = pool
        self._stream_clock = stream_clock
        self._depth = depth
        self._queue_ns = queue_ns
        self.open: deque[Window] = deque()
        self.blocks: deque[Block] = deque()
        self.expected_ns = 0.0
        """Device time of the open windows, by what windows of their rows took so far."""
        self.launches = 0
        self.zeros = 0
        """Windows without a length since the last one that had one."""
        self._last_end_ns = 0
        self._gap_ns = 0
        self._since_ns = 0

    def is_full(self, expected_ns: float, launches: int) -> bool:
        """True when a window of this size has to wait."""
        n = len(self.open)
        return n >= FEWEST and (
            n >= self._depth
            or self.expected_ns + expected_ns > self._queue_ns
            or self.launches + launches > MAX_LAUNCHES
        )

    def make_room(self, expected_ns: float, launches: int) -> None:
        """Wait until a window of this size may be let in: for an old one, never for the last.

        Raises:
            RuntimeError: the device's context is lost.
        """
        self.read_blocks()
        while self.is_full(expected_ns, launches):
            if self._stream_clock.is_due() and self.anchor(NS_PER_S):
                continue
            # A quarter of the queue at once: waking up costs more than reading.
            at = len(self.open) // 4
            end = self.open[at][END]
            if not end.query():
                end.synchronize()
            self.read(at + 1)

    def anchor(self, budget_ns: int) -> bool:
        """Look at the oldest window until it ends; True when that gave a new anchor."""
        end = self.open[0][END]
        found = self._stream_clock.watch(end, budget_ns)
        if found is None:
            return False
        self.read(1, keep_end=True)
        self._stream_clock.move(end, *found)
        return True

    def read_blocks(self) -> None:
        """Read the blocks that the device has passed: one look a block."""
        for block in self.blocks:
            if block.unread and block.is_closed:
                if not block.end.query():
                    return
                self.read(block.unread)

    def read_passed(self) -> None:
        """Read every window that the device has passed."""
        self.read_blocks()
        open_ = self.open
        while open_ and open_[0][END].query():
            self.read(1)

    def read(self, n: int, *, keep_end: bool = False) -> None:
        """Read the `n` oldest windows, which the device has passed; their events are free again.

        With `keep_end` the last one's end is not: it is to become the anchor.
        """
        popleft, free = self.open.popleft, self._pool.free
        give, gap_ns = free.append, self._gap_ns
        since_ns, last_end_ns = self._since_ns, self._last_end_ns
        expected_sum, launched, zeros = 0.0, 0, 0
        for _ in range(n):
            block, slot, known, start, end, pairs, expected_ns, launches, is_precise = popleft()
            expected_sum += expected_ns
            launched += launches
            if pairs is None:
                ms = start.elapsed_time(end)
                window_ns = round(ms * _NS_PER_MS) if -_ABSURD_MS < ms < _ABSURD_MS else 0
            else:
                window_ns = self._read_pairs(pairs, end)
            if is_precise or since_ns > _PRECISE_NS:
                start_ns = self._stream_clock.at_ns(start)
                if not block.flags[len(block.window_ns)] & _STARVED:
                    gap_ns = self._learn_gap(start_ns - last_end_ns, slot, known)
                since_ns = 0
            else:
                start_ns = last_end_ns + (round(known.lead_ns) if slot.before else gap_ns)
            since_ns += window_ns
            last_end_ns = start_ns + window_ns
            if window_ns <= 0:
                zeros += 1
                block.flags[len(block.window_ns)] |= _NONPOSITIVE
            elif known.per_call_ns:
                known.per_call_ns += 0.25 * (window_ns / slot.inner - known.per_call_ns)
            else:
                known.per_call_ns = window_ns / slot.inner
            block.start_ns.append(start_ns)
            block.window_ns.append(window_ns)
            give(start)
            give(end)
        self._since_ns, self._last_end_ns = since_ns, last_end_ns
        self.zeros = self.zeros + zeros if zeros == n else 0
        self.launches -= launched
        self.expected_ns = self.expected_ns - expected_sum if self.open else 0.0
        if keep_end:
            free.pop()

    def _learn_gap(self, gap_ns: int, slot: Slot, known: Known) -> int:
        """A start that was looked up tells what lies between windows: nothing, or untimed work.

        The shortest is kept: in a longer one there is idle time, which nothing covers.
        """
        gap_ns = max(0, gap_ns)
        if not slot.before:
            self._gap_ns = min(gap_ns, round(1.05 * self._gap_ns) + 100)
        else:
            known.lead_ns = min(gap_ns, 1.05 * known.lead_ns) if known.lead_ns else gap_ns
        return self._gap_ns

    def _read_pairs(self, pairs: Pairs, end: Any) -> int:
        """The sum of calls that were timed one by one; frees all events but the outermost."""
        total_ms = sum(a.elapsed_time(b) for a, b in pairs)
        total_ns = round(total_ms * _NS_PER_MS) if -_ABSURD_MS < total_ms < _ABSURD_MS else 0
        first_end = pairs[0][1]
        for a, b in pairs[1:]:
            self._pool.give(a, first_end if b is end else b)
        return total_ns

    def queued_ns(self, clock: Callable[[], int]) -> int:
        """Device work of the open windows that is still to do.

        Raises:
            RuntimeError: the device's context is lost.
        """
        self.read_passed()
        if not self.open:
            return 0
        _, slot, known, start, _, _, expected_ns, _, _ = self.open[0]
        left_ns = self.expected_ns
        if start.query():
            ran_ns = clock() - self._stream_clock.at_ns(start)
            left_ns += max(0.0, known.per_call_ns * slot.inner - ran_ns) - expected_ns
        return round(max(0.0, left_ns))

    def drop(self) -> list[Slot]:
        """Give up all open windows; their slots. Blocks keep what was read of them."""
        slots = [window[1] for window in self.open]
        self.open.clear()
        self.expected_ns, self.launches = 0.0, 0
        for block in self.blocks:
            block.cut()
        return slots

"""The timer of the simulated GPU: pairs of stamps on its stream, read when it has passed them."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.errors import UsageError
from usv_tui.model import Flag, TimerInfo
from usv_tui.records import ProbeClock, Samples
from usv_tui.sim.gpu import MAIN, ContextLost, SimGpu
from usv_tui.sim.machine import Item
from usv_tui.sim.shared import RemoteGpu
from usv_tui.timers.phases import PhaseCollector
from usv_tui.timers.wall import Slot

DEPTH_NS = 50_000_000
"""Work that the timer keeps queued at most."""
_SYNC_SHARE = 0.9
_HOLD_NS = 100_000
_OUTSIDE_FLOORS = 3
"""Work after the end stamp is told from this many stamps on."""


class _Window:
    """One sample while it is on the device: a pair of stamps around each part."""

    __slots__ = ("bench", "host_ns", "inner", "parts")

    def __init__(self, bench: int, inner: int) -> None:
        self.bench = bench
        self.inner = inner
        self.host_ns = 0
        self.parts: list[tuple[Item, Item]] = []


class _Block:
    """Rounds that were enqueued together."""

    __slots__ = ("calls", "flag", "round", "size", "windows")

    def __init__(self, round_: int, size: int, flag: int, windows: list[_Window]) -> None:
        self.round = round_
        self.size = size
        self.flag = flag
        self.windows = windows
        self.calls: Any = None


class SimTimer:
    """Event pairs on a simulated stream: asynchronous, quantised, with a floor, as on a card."""

    def __init__(
        self, gpu: SimGpu | RemoteGpu, *, blocker: bool = False, depth_ns: int = DEPTH_NS
    ) -> None:
        """Time on a GPU.

        Args:
            gpu: where the callables launch.
            blocker: hold the device while a window is enqueued, so that no launch gap is in it.
            depth_ns: how much work may be queued before `enqueue` waits.
        """
        self.phases: PhaseCollector | None = None
        """Collector of `phase` brackets, made for `mark`; set by who wants sub-rows."""
        self._round = 0
        self._gpu = gpu
        self._blocker = blocker
        self._depth_ns = depth_ns
        self._blocks: deque[_Block] = deque()
        card = gpu.card
        self.info = TimerInfo(
            name="sim-event",
            reason=f"simulated {card.name}: event pairs on its stream",
            resolution_ns=card.tick_ns,
            floor_ns=round(card.event_ns / card.tick_ns) * card.tick_ns,
        )

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> tuple[Any, BaseException] | None:
        """Enqueue one sample of each slot; waits only while more than the depth is queued."""
        windows: list[_Window] = []
        failure: tuple[Any, BaseException] | None = None
        if self.phases is not None:
            self.phases.take()  # of untimed calls since the last block
        for slot in slots:
            try:
                self._gpu.make_room(self._depth_ns)
                windows.append(self._open(slot))
            except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                failure = (slot, error)
                break
        if windows:
            block = _Block(round_, size or len(slots), flag, windows)
            if self.phases is not None:
                block.calls = self.phases.take()
            self._blocks.append(block)
        return failure

    def _open(self, slot: Slot) -> _Window:
        """Enqueue one window, whole or call by call."""
        gpu, fn = self._gpu, slot.fn
        launched = gpu.launches
        window = _Window(slot.bench, slot.inner)
        if slot.cold_each:
            if slot.reset is not None:
                slot.reset()
            for _ in range(slot.inner):
                if slot.flush is not None:
                    slot.flush()
                self._bracket(window, slot, fn, 1)
        else:
            for call in slot.before:
                call()
            self._bracket(window, slot, fn, slot.inner)
        if gpu.launches == launched:
            raise UsageError(
                "the callable launches no simulated kernel: "
                "a simulated GPU cannot run ordinary code",
                "run `usv-tui demo`, return usv_tui.sim.kernel(...) from the factory, "
                "or leave out --device sim",
            )
        return window

    def _bracket(self, window: _Window, slot: Slot, fn: Callable[[], object], inner: int) -> None:
        gpu = self._gpu
        now = gpu.time.now_ns
        stream = MAIN if slot.stream is None else int(slot.stream)
        if self._blocker and not slot.hints.get("synchronises"):
            gpu.spin(self._cover_ns(slot, inner))
        calls = repeat(None, inner)
        start_ns = now()
        begin = gpu.record(stream)
        for _ in calls:
            fn()
        end = gpu.record(stream)
        window.host_ns += now() - start_ns
        window.parts.append((begin, end))

    def _cover_ns(self, slot: Slot, inner: int) -> int:
        """How long the device must be held for a window to be enqueued meanwhile."""
        card = self._gpu.card
        host_ns = int(slot.hints.get("host_ns", card.launch_ns))
        return round(1.2 * (inner * host_ns + 2 * card.record_ns) + card.latency_ns)

    def harvest(self, *, wait: bool) -> list[Samples]:
        """The complete blocks, oldest first.

        When the card is lost, the windows that it still completed come back and the others never.
        """
        gpu = self._gpu
        blocks = self._blocks
        if wait and blocks:
            try:
                gpu.synchronize()
            except ContextLost:
                return self._salvage()
        gpu.settle()
        done: list[Samples] = []
        while blocks and blocks[0].windows[-1].parts[-1][1].end_s >= 0.0:
            done += self._close(blocks.popleft())
        if gpu.is_lost:
            done += self._salvage()
        return done

    def _salvage(self) -> list[Samples]:
        self._gpu.settle()
        done: list[Samples] = []
        while self._blocks:
            done += self._close(self._blocks.popleft())
        return done

    def _close(self, block: _Block) -> list[Samples]:
        """A block as a record: its windows up to the first one that never ended."""
        complete: list[_Window] = []
        for window in block.windows:
            if window.parts[-1][1].end_s < 0.0:
                break
            complete.append(window)
        if not complete:
            return []
        gpu = self._gpu
        self._round = block.round
        tick_s = gpu.card.tick_ns * 1e-9
        starts = [gpu.on_clock_ns(w.parts[0][0].start_s) for w in complete]
        windows = [sum(self._length_ns(*part) for part in w.parts) for w in complete]
        flags = [
            block.flag
            | (Flag.STARVED if any(self._gap_s(*part) > tick_s for part in w.parts) else 0)
            | (Flag.NONPOSITIVE if length <= 0 else 0)
            for w, length in zip(complete, windows, strict=True)
        ]
        record = Samples(
            block.round,
            block.size,
            starts[0],
            [w.bench for w in complete],
            [start - starts[0] for start in starts],
            windows,
            [w.inner for w in complete],
            [w.host_ns for w in complete],
            [int(f) for f in flags] if any(f != block.flag for f in flags) else [],
            block.flag,
        )
        if self.phases is not None and block.calls is not None:
            self.phases.settle(block.calls, record, self.read)
        return [record]

    def look_again(self, slot: Slot, codes: Collection[Code]) -> list[Code]:  # noqa: ARG002
        """The simulation is examined once."""
        return []

    def meet(self, slot: Slot, result: object) -> None:
        """Nothing runs that could not be seen."""

    def beside(self) -> list[Any]:
        """Records of phases since the last time, and the clock where the scenario measures it."""
        records: list[Any] = [] if self.phases is None else list(self.phases.records())
        if self._gpu.scenario.probe and isinstance(self._gpu, SimGpu):
            truth = self._gpu.truth()
            records.append(ProbeClock(self._round, [truth.at_ns], [truth.mhz]))
        return records

    def mark(self) -> Item:
        """A stamp in the timed stream: one end of a phase."""
        return self._gpu.record(MAIN)

    def read(self, begin: Item, end: Item) -> tuple[int, int]:
        """(start on the session's clock, length) between two stamps that have passed."""
        return self._gpu.on_clock_ns(begin.start_s), self._length_ns(begin, end)

    def _length_ns(self, begin: Item, end: Item) -> int:
        """A difference of two counters that tick."""
        tick_ns = self._gpu.card.tick_ns
        tick_s = tick_ns * 1e-9
        return (int(end.start_s / tick_s) - int(begin.start_s / tick_s)) * tick_ns

    def queued_ns(self) -> int:
        """About how much device work is queued and not yet done."""
        return self._gpu.queued_ns()

    def synchronize(self) -> None:
        """Wait until the device has done everything.

        Raises:
            ContextLost: the card is gone.
        """
        self._gpu.synchronize()

    def examine(self, slot: Slot) -> list[tuple[Code, dict[str, Any]]]:
        """Does it wait for the device, or work elsewhere than in the timed stream?

        Two calls: one on an idle device, and one while the device is held for longer than the
        first one kept the host. `hints` learns the host time and whether it synchronises. A
        callable that raises is left to its first window, which says so.
        """
        if self.phases is not None:
            self.phases.adopt(slot)
        try:
            free = self._try(slot, 0)
            held_ns = 2 * free.host_ns + _HOLD_NS
            held = self._try(slot, held_ns)
        except Exception:  # noqa: BLE001  the row's first window meets it again and fails the row
            return []
        finally:
            if self.phases is not None:
                self.phases.take()
        slot.hints["host_ns"] = min(free.host_ns, held.host_ns)
        found: list[tuple[Code, dict[str, Any]]] = []
        if held.host_ns >= _SYNC_SHARE * held_ns:
            slot.hints["synchronises"] = True
            found.append(
                (
                    Code.SYNCHRONISES,
                    {
                        "seen_by": "it waited for a device that was held",
                        "host_ns": held.host_ns,
                        "held_ns": held_ns,
                    },
                )
            )
        if free.after_end_ns > _OUTSIDE_FLOORS * self._gpu.card.event_ns:
            found.append(
                (
                    Code.WORK_OUTSIDE_THE_STREAM,
                    {
                        "after_end_ns": free.after_end_ns,
                        "window_ns": free.window_ns,
                    },
                )
            )
        return found

    def _try(self, slot: Slot, held_ns: int) -> "_Trial":
        """One call on its own, optionally behind a kernel that holds the device."""
        gpu = self._gpu
        now = gpu.time.now_ns
        gpu.synchronize()
        if held_ns:
            gpu.spin(held_ns)
        begin = gpu.record()
        start_ns = now()
        slot.fn()
        host_ns = now() - start_ns
        end = gpu.record()
        gpu.synchronize()
        after_end_ns = gpu.finished_ns() - gpu.on_clock_ns(end.end_s)
        return _Trial(host_ns, self._length_ns(begin, end), after_end_ns)

    @staticmethod
    def _gap_s(begin: Item, end: Item) -> float:
        """How long the stream stood still between two stamps."""
        return (end.end_s - begin.end_s) - (end.busy_s - begin.busy_s)


class _Trial(NamedTuple):
    host_ns: int
    window_ns: int
    after_end_ns: int
    """Work that went on after the end stamp."""

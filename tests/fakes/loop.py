"""The measuring loop in virtual time: callables say what they cost, commands come at set times."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from usv_tui.engine.runner import Runner
from usv_tui.gate import Gate
from usv_tui.model import Benchmark, Flag, RunConfig, Sample, Skipped, Suite, TimerInfo
from usv_tui.records import AnyRecord, Command, Samples
from usv_tui.timers.cache import Flusher
from usv_tui.timers.wall import Failure, Slot, Timer, WallTimer
from usv_tui.timesource import NS_PER_S, ManualTime

BEGIN_NS = 100 * NS_PER_S
MS = 1_000_000


class ScriptedTime(ManualTime):
    """Virtual time in which things happen at set moments, whoever lets it pass."""

    def __init__(self) -> None:
        super().__init__(BEGIN_NS)
        self.script: list[tuple[int, Callable[[], object]]] = []

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something so many seconds after the beginning."""
        self.script.append((BEGIN_NS + round(seconds * NS_PER_S), action))
        self.script.sort(key=lambda entry: entry[0])

    def advance(self, ns: int) -> None:
        """Move on, and do what is due by then."""
        super().advance(ns)
        while self.script and self.script[0][0] <= self.now_ns():
            self.script.pop(0)[1]()

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return (self.now_ns() - BEGIN_NS) / NS_PER_S


class Loop:
    """A runner over callables that spend virtual time, with what it emitted."""

    def __init__(self, **config: Any) -> None:
        self.time = ScriptedTime()
        self.config = RunConfig(**({"warmup_max_s": 0.0, "inner": 1} | config))
        self.records: list[AnyRecord] = []
        self.calls: list[str] = []
        """Every call of anything of the user's, in order."""
        self.benchmarks: list[Benchmark] = []
        self.skipped: list[Skipped] = []
        self.commands: deque[Command] = deque()
        self.gate = Gate(self.time)
        self.timer: Timer = WallTimer("virtual", clock=self.time.now_ns)
        self.flush_ns: int | None = None
        """What a flush costs; None: none can be had."""

    def add(
        self,
        name: str,
        cost: int | Callable[[int], int] = MS,
        *,
        result: Callable[[int], Any] = lambda _call: None,
        **options: Any,
    ) -> None:
        """A row whose n-th call (from 1) costs so many nanoseconds and returns `result(n)`."""
        count = 0

        def fn() -> object:
            nonlocal count
            count += 1
            self.calls.append(name)
            self.time.advance(cost(count) if callable(cost) else cost)
            return result(count)

        self.benchmarks.append(Benchmark(name=name, build=lambda _device: fn, **options))

    def spend(self, name: str, ns: int) -> Callable[[], None]:
        """A callable that is logged and costs so much."""

        def call() -> None:
            self.calls.append(name)
            self.time.advance(ns)

        return call

    def at(self, seconds: float, verb: str, argument: str = "", bench: int | None = None) -> None:
        """A command of the user's at a moment."""
        self.time.at(seconds, lambda: self.commands.append(Command(verb, argument, bench)))

    def run(self) -> str:
        """Measure until it ends; the reason why it did."""
        runner = Runner(
            Suite("file.py", tuple(self.benchmarks), tuple(self.skipped)),
            self.config,
            self.timer,
            self.records.append,
            commands=self.commands,
            gate=self.gate,
            time_source=self.time,
            make_flusher=self._make_flusher,
        )
        return runner.run()

    def _make_flusher(self) -> Flusher:
        if self.flush_ns is None:
            return Flusher(None, reason="nothing to flush here")
        return Flusher(self.spend("flush", self.flush_ns), flush_bytes=1 << 20, l2_bytes=1 << 19)

    # -- what came out

    def of(self, kind: type[Any]) -> list[Any]:
        """All records of one kind."""
        return [record for record in self.records if type(record) is kind]

    def samples(self, bench: int | None = None) -> list[Sample]:
        """Every sample, in the order of time."""
        found = [sample for block in self.of(Samples) for sample in block.samples()]
        return [s for s in found if bench is None or s.bench == bench]

    def counted(self, bench: int | None = None) -> list[Sample]:
        """The samples that statistics take."""
        return [s for s in self.samples(bench) if not Flag(s.flags).is_excluded]


class QueueTimer:
    """A device that works through a queue in virtual time; the host runs at most 50 ms ahead."""

    def __init__(self, time: ManualTime, cost_ns: int, enqueue_ns: int = 1000) -> None:
        self.info = TimerInfo(name="queue")
        self.time = time
        self.cost_ns = cost_ns
        self.enqueue_ns = enqueue_ns
        self.free_ns = 0
        """When the device will have done everything."""
        self.idle_ns = 0
        """How long it had nothing to do between its first and its last window."""
        self._blocks: list[tuple[int, Samples]] = []

    def enqueue(
        self, round_: int, slots: Sequence[Slot], size: int = 0, flag: int = 0
    ) -> Failure | None:
        """Queue the windows; the host spends `enqueue_ns` on each."""
        starts = []
        for _ in slots:
            self.time.advance(max(self.enqueue_ns, self.queued_ns() - 50 * MS))
            start = max(self.time.now_ns(), self.free_ns)
            if self.free_ns:
                self.idle_ns += start - self.free_ns
            starts.append(start)
            self.free_ns = start + self.cost_ns
        block = Samples(
            round_,
            size or len(slots),
            starts[0],
            [slot.bench for slot in slots],
            [start - starts[0] for start in starts],
            [self.cost_ns] * len(slots),
            [1],
            [self.enqueue_ns] * len(slots),
            [],
            flag,
        )
        self._blocks.append((self.free_ns, block))
        return None

    def harvest(self, *, wait: bool) -> list[Samples]:
        """What is done by now."""
        if wait:
            self.synchronize()
        done = [block for end, block in self._blocks if end <= self.time.now_ns()]
        self._blocks = self._blocks[len(done) :]
        return done

    def queued_ns(self) -> int:
        """Work that is not done yet."""
        return max(0, self.free_ns - self.time.now_ns())

    def synchronize(self) -> None:
        """Wait for the device."""
        self.time.advance(self.queued_ns())

    def examine(self, slot: Slot) -> list[tuple[str, dict[str, Any]]]:
        """Nothing to say."""
        return []

    def look_again(self, slot: Slot, codes: Collection[str]) -> list[str]:
        """Nothing was said."""
        return []

    def meet(self, slot: Slot, result: object) -> None:
        """Nothing to see."""

    def beside(self) -> list[AnyRecord]:
        """Nothing but samples."""
        return []

"""A whole simulated run in virtual time: worker, sensors, session and file, with what was shown."""

import contextlib
import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from tests.fakes.live import FakeSource
from usv_tui.engine.runner import Runner
from usv_tui.errors import UsvError
from usv_tui.gate import Gate
from usv_tui.model import RunConfig
from usv_tui.records import AnyRecord, Command, decode, encode
from usv_tui.report import table
from usv_tui.session import export
from usv_tui.session.controller import LiveSession
from usv_tui.session.desk import ClockDesk
from usv_tui.session.store import Store
from usv_tui.sim import find_scenario
from usv_tui.sim.device import load
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import NS_PER_S, ManualTime

BEGIN_NS = 100 * NS_PER_S
PUMP_NS = NS_PER_S // 5


class KeptJournal:
    """What a file would hold, in memory."""

    bytes_written = 0

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.path = None
        self.failure = self.full = ""
        self.path = None
        """No file: nothing can be read back from it."""

    def add(self, records: Iterable[AnyRecord]) -> None:
        """As they would be written."""
        self.frames += [encode(record) for record in records]

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing to close."""

    def read(self, count: int | None = None) -> list[AnyRecord]:
        """The first so many records."""
        return [decode(frame) for frame in self.frames[:count]]


class Shown(NamedTuple):
    """What a front end could show at one moment."""

    records: int
    """How many were in the file."""
    at_ns: int
    facts: tuple[str, ...]


def facts(store: Store, at_ns: int) -> tuple[str, ...]:
    """Everything that a screen, a table and an export say."""
    snapshot = store.snapshot(at_ns)
    out = io.StringIO()
    export.write("json", store, snapshot, out)
    rows = [row for row in store.rows if row < 8]
    return (
        repr(msgspec.to_builtins(snapshot, enc_hook=str, str_keys=True)),
        table.render(snapshot),
        out.getvalue(),
        repr([store.curves.changes(row, 0, 1 << 62) for row in rows]),
        repr([store.curves.bins(row, 0, 1 << 62) for row in rows]),
        repr((store.curves.marks(0, 1 << 62), store.curves.gaps(0, 1 << 62), store.steps())),
    )


class _Source(FakeSource):
    """Passes commands on to the loop, and tells what it would have waited for."""

    def __init__(self, commands: deque[Command]) -> None:
        super().__init__()
        self._to_worker = commands

    def command(self, command: Command) -> None:
        """To the worker."""
        super().command(command)
        self._to_worker.append(command)


class _Time(ManualTime):
    """Virtual time in which the rest of the session goes on while the loop waits."""

    def __init__(self, start_ns: int) -> None:
        super().__init__(start_ns)
        self.on_wait: Callable[[], object] = lambda: None

    def wait(self, event: threading.Event, timeout_ns: int) -> bool:
        """Wait, and let happen what is due by then."""
        was_set = super().wait(event, timeout_ns)
        self.on_wait()
        return was_set


class VirtualRun:
    """One run; `at` and `look_at` say beforehand what happens when."""

    def __init__(
        self,
        scenario: str,
        seconds: float,
        *,
        card: str = "h100",
        seed: int = 3,
        lock: str = "",
        **config: object,
    ) -> None:
        self.time = _Time(BEGIN_NS)
        self.time.on_wait = self._go_on
        self.sim = load(scenario, card, seed, self.time)
        self.config = RunConfig(
            device=self.sim.spec,
            max_time_s=seconds,
            seed=seed,
            **config,  # type: ignore[arg-type]
        )
        self.journal = KeptJournal()
        self.shown: list[Shown] = []
        self._commands: deque[Command] = deque()
        self.source = _Source(self._commands)
        locked = find_scenario(scenario).initial_lock_mhz(self.sim.card)
        self.desk = ClockDesk(
            lambda _: self.sim.clocks,
            wanted=lock or ("" if locked is None else str(locked)),
            time_source=self.time,
        )
        self.session = LiveSession(
            self.source,  # type: ignore[arg-type]
            suite=scenario,
            config=self.config,
            gate=Gate(self.time),
            journal=self.journal,  # type: ignore[arg-type]
            simulated=self.sim.label,
            time_source=self.time,
            desk=self.desk,
        )
        self._script: list[tuple[int, Callable[[], object]]] = []
        self._poller = Poller(self.sim.telemetry, self._sense, self.time, learn_s=0)
        self._pump_ns = 0
        self._is_busy = False

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something then."""
        self._script.append((BEGIN_NS + round(seconds * NS_PER_S), action))
        self._script.sort(key=lambda entry: entry[0])

    def look_at(self, moments: Sequence[float]) -> None:
        """Keep what is shown at these moments."""
        for seconds in moments:
            self.at(seconds, self.look)

    def look(self) -> None:
        """Keep what is shown now."""
        self._pump()
        now_ns = self.time.now_ns()
        count = len(self.journal.frames)
        self.shown.append(Shown(count, now_ns, facts(self.session.store, now_ns)))

    def unlock(self) -> None:
        """As a user would."""
        self.desk.unlock()

    def lock(self, mhz: int) -> None:
        """As a user would; a device may refuse, and the session then says so."""
        with contextlib.suppress(UsvError):
            self.desk.lock(mhz)

    def run(self) -> Store:
        """Measure to the end; the store as it is when the session is closed."""
        Runner(
            self.sim.suite,
            self.config,
            self.sim.timer,
            self._emit,
            commands=self._commands,
            time_source=self.time,
        ).run()
        self.session.close("")
        return self.session.store

    def _sense(self, record: AnyRecord) -> None:
        self.source.queue.append(record)

    def _emit(self, record: AnyRecord) -> None:
        self.source.queue.append(record)
        self._go_on()

    def _go_on(self) -> None:
        """What the other threads of a real run would do by now."""
        if self._is_busy:
            return
        self._is_busy = True
        now_ns = self.time.now_ns()
        self._poller.tick()
        if now_ns >= self._pump_ns:
            self._pump_ns = now_ns + PUMP_NS
            self._pump()
            self.session.store.snapshot(now_ns)
        while self._script and self._script[0][0] <= now_ns:
            self._script.pop(0)[1]()
        self._is_busy = False

    def _pump(self) -> None:
        """The front end's look; a job at the clocks' desk takes no virtual time."""
        self.session.pump()
        job = self.desk._job
        if job is not None:
            job.join(30)

"""A whole simulated run in virtual time: worker, sensors, session and file, with what was shown."""

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
from usv_tui.model import ClockHold, ClockState, ClockUndo, Notice, RunConfig
from usv_tui.records import AnyRecord, Clocks, Command, Device, Noted, Telemetry, decode, encode
from usv_tui.report import table
from usv_tui.seams import Tier
from usv_tui.session import export
from usv_tui.session.controller import LiveSession
from usv_tui.session.store import Store
from usv_tui.sim.device import load
from usv_tui.timesource import NS_PER_S, ManualTime

BEGIN_NS = 100 * NS_PER_S
POLL_NS = NS_PER_S // 10
PUMP_NS = NS_PER_S // 5


class KeptJournal:
    """What a file would hold, in memory."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.failure = ""

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
        repr([store.changes(row, 0, 1 << 62) for row in rows]),
        repr([store.bins(row, 0, 1 << 62) for row in rows]),
        repr((store.marks(0, 1 << 62), store.gaps(0, 1 << 62), store.steps())),
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
        self, scenario: str, seconds: float, *, card: str = "h100", seed: int = 3, **config: object
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
        self.session = LiveSession(
            self.source,  # type: ignore[arg-type]
            suite=scenario,
            config=self.config,
            gate=Gate(self.time),
            journal=self.journal,  # type: ignore[arg-type]
            simulated=self.sim.label,
            time_source=self.time,
        )
        self._script: list[tuple[int, Callable[[], object]]] = []
        self._poll_ns = self._pump_ns = 0
        self._is_busy = False
        self._undo: ClockUndo | None = None

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
        self.session.pump()
        now_ns = self.time.now_ns()
        count = len(self.journal.frames)
        self.shown.append(Shown(count, now_ns, facts(self.session.store, now_ns)))

    def unlock(self) -> None:
        """As a user would."""
        if self._undo is not None:
            self.sim.clocks.undo(self._undo)
            self._undo = None
            self.source.queue.append(Clocks(self.time.now_ns(), ClockState(hold=ClockHold.FREE)))
            self._commands.append(Command("ramp", "unlocked"))

    def lock(self, mhz: int) -> None:
        """As a user would, without a guardian; a device may refuse."""
        undo = self.sim.clocks.plan_undo()
        try:
            self.sim.clocks.lock(mhz)
        except UsvError as error:
            self._note("lock refused", error)
            return
        self._undo = undo
        state = ClockState(hold=ClockHold.LOCKED, locked_mhz=mhz, can_lock=True)
        self.source.queue.append(Clocks(self.time.now_ns(), state))
        self._commands.append(Command("ramp", f"locked at {mhz} MHz"))

    def run(self) -> Store:
        """Measure to the end; the store as it is when the session is closed."""
        try:
            self.source.queue.append(Device(self.time.now_ns(), self.sim.telemetry.open()))
        except UsvError as error:
            self._note("telemetry off", error)
            self._poll_ns = 1 << 62
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

    def _emit(self, record: AnyRecord) -> None:
        self.source.queue.append(record)
        self._go_on()

    def _go_on(self) -> None:
        """What the other threads of a real run would do by now."""
        if self._is_busy:
            return
        self._is_busy = True
        now_ns = self.time.now_ns()
        if now_ns >= self._poll_ns:
            self._poll_ns = now_ns + POLL_NS
            self._poll()
        if now_ns >= self._pump_ns:
            self._pump_ns = now_ns + PUMP_NS
            self.session.pump()
            self.session.store.snapshot(now_ns)
        while self._script and self._script[0][0] <= now_ns:
            self._script.pop(0)[1]()
        self._is_busy = False

    def _poll(self) -> None:
        try:
            self.source.queue.append(Telemetry(self.sim.telemetry.read(Tier.ALL)))
        except UsvError as error:
            self._note("telemetry lost", error)

    def _note(self, code: str, error: UsvError) -> None:
        evidence = {"reason": str(error)}
        notice = Notice(code=code, at_ns=self.time.now_ns(), level="warn", evidence=evidence)
        self.source.queue.append(Noted(notice))

"""What all parts of a run share: its rows, its timer and clock, and its voice."""

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import failure_kind
from usv_tui.engine.attendant import Attendant
from usv_tui.engine.imports import Imports
from usv_tui.engine.row import Resumed, Row
from usv_tui.engine.schedule import Schedule
from usv_tui.engine.turns import Turns
from usv_tui.engine.where import Where
from usv_tui.errors import one_line
from usv_tui.gate import Gate
from usv_tui.model import (
    CacheMode,
    Flag,
    Notice,
    RowState,
    RunConfig,
    Suite,
)
from usv_tui.records import (
    AnyRecord,
    BenchError,
    Noted,
    ProbeClock,
    Progress,
    Samples,
    State,
)
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

_INTRUSION_NS = NS_PER_S
"""For how long a frame without the gate is taken to go on: a call to a driver may never return."""
_UNTIMED_CALLS = 3
_UNTIMED_BUDGET_NS = 5_000_000
RAMP_NS = NS_PER_S
"""After a change the first windows do not count."""
_SLOW_NS = NS_PER_S // 2
"""A row whose window costs more is not called untimed: its first calls are its samples."""
_FATAL_WORDS = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "misaligned address",
    "illegal instruction",
    "hardware stack error",
)


class LeftBehind(SystemExit):
    """Raised by `emit` in a worker that was given up: whatever it was in, it ends silently."""


class Stage(ABC):
    """A suite that is being timed."""

    def __init__(
        self,
        suite: Suite,
        config: RunConfig,
        timer: Timer,
        emit: Callable[[AnyRecord], object],
        *,
        gate: Gate | None = None,
        time_source: TimeSource | None = None,
        where: Where | None = None,
        resumed: Resumed | None = None,
        attendant: Attendant | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.suite = suite
        self.config = config
        self.timer = timer
        self.emit = emit
        self.gate = gate or Gate()
        self.time = time_source or MonotonicTime()
        self.where = where
        self.resumed = resumed or Resumed()
        self.attendant = attendant or Attendant()
        self.turns = turns
        self.rows: list[Row] = []
        self.schedule: Schedule[Slot] = Schedule({}, config.seed)
        self.solo: int | None = None
        self.round = self.resumed.first_round
        self.round_ns = 0.0
        self.work_ns = 0.0
        """Time of one round's calls, as calibrated."""
        self.stop_reason = ""
        self.is_paused = False
        self.is_warming = False
        self.is_measuring = False
        self.ramp_until_ns = 0
        self.extra_flag = 0
        self.began_ns = 0
        self.limit_ns: int | None = None
        """When the present phase is over."""
        self.sampled_ns = 0
        """Time of samples that were taken before measuring began."""
        most_s = config.max_time_s
        self.slow_ns = _SLOW_NS if most_s is None else min(_SLOW_NS, round(most_s * NS_PER_S / 10))
        self.unsampled: set[int] = set()
        """Rows without a sample that counts."""
        self.uncounted: set[int] = set()
        """Rows that have windows of the warm-up or a ramp."""
        self._imports = Imports()
        self._forced: deque[tuple[int, int]] = deque(maxlen=64)
        self.retry_at: dict[int, int] = {}

    @abstractmethod
    def take_commands(self) -> None:
        """Do what the user has asked for by now."""
        ...

    def progress(self, phase: str, detail: str = "") -> None:
        """Say what the run is at."""
        self.emit(Progress(self.time.now_ns(), phase, detail))

    def enter(self, row: Row | None) -> None:
        """From here on the code of this row runs."""
        if self.where is not None:
            self.where.at(None if row is None else row.bench)

    def state(self, row: Row, state: RowState, detail: str = "") -> None:
        """Say what a row is at."""
        self.emit(State(self.time.now_ns(), row.bench, state, detail))

    def note(
        self, code: Code, row: Row | None, evidence: dict[str, Any], level: str = "info"
    ) -> None:
        """A finding, of a row where there is one."""
        notice = Notice(
            code=code,
            at_ns=self.time.now_ns(),
            bench=None if row is None else row.bench,
            level=level,
            evidence=evidence,
        )
        self.emit(Noted(notice))

    def live_rows(self) -> list[Row]:
        """The rows that take part now: all, the quick ones while it warms up, or one alone."""
        rows = [row for row in self.rows if row.is_live]
        if self.is_warming:
            rows = [row for row in rows if not row.is_slow]
        if self.solo is not None:
            rows = [row for row in rows if row.bench == self.solo] or rows
        return rows

    def reschedule(self) -> None:
        """Rounds are of the live rows from here on."""
        wanted = [row.slot for row in self.live_rows() if row.slot is not None]
        for slot in list(self.schedule.quotas):
            if slot not in wanted:
                self.schedule.set(slot, 0)
        for slot in wanted:
            self.schedule.set(slot, 1)
            # A row alone follows its own windows: its caches are its own.
            slot.set_refill(self.rows[slot.bench].refill if len(wanted) > 1 else 0)
        self.work_ns = sum(
            self.rows[slot.bench].per_call_ns * (slot.inner + slot.refill) for slot in wanted
        )
        self.round_ns = 0.0

    def cache_mode(self, row: Row) -> CacheMode:
        """As the user chose while it runs, as its file says, or as the run says."""
        return row.cache or row.benchmark.cache or self.config.cache

    def left_ns(self) -> int | None:
        """Time to the end of the present phase; None where it has none."""
        return None if self.limit_ns is None else self.limit_ns - self.time.now_ns()

    def drain(self, *, wait: bool) -> None:
        """Pass on what the timer has measured; with `wait`, all that was put in."""
        for record in self.timer.harvest(wait=wait):
            if record.round < 0:
                continue
            if self.gate.forced or self.gate.intruders or self._forced:
                record = self._flag_frames(record)  # noqa: PLW2901  the flagged copy
            if self.extra_flag:
                record = msgspec.structs.replace(  # noqa: PLW2901  the flagged copy
                    record,
                    flag=record.flag | self.extra_flag,
                    flags=[flag | self.extra_flag for flag in record.flags],
                )
            self._count(record)
            self.emit(record)
        for extra in self.timer.beside():
            if isinstance(extra, Samples | ProbeClock) and extra.round < 0:
                continue  # of calls that are no round
            self.emit(extra)

    def _count(self, record: Samples) -> None:
        """Keep each row's count, or feed its levelling."""
        if self.is_warming:
            for sample in record.samples():
                self.rows[sample.bench].levelling.add(
                    sample.start_ns, sample.window_ns / sample.inner
                )
            return
        if self.turns is not None and self.turns.opening.is_open and self.turns.has_begun:
            for sample in record.samples():
                self.turns.opening.add(sample.bench, sample.window_ns / sample.inner)
        if record.flag & Flag.RAMP:
            return
        if self.config.iters is None:
            return
        rows = self.rows
        for bench in record.bench:
            if bench < len(rows):
                rows[bench].n += 1

    def _flag_frames(self, record: Samples) -> Samples:
        """Mark the windows that a forced frame fell into."""
        forced = self.gate.forced
        while forced:
            self._forced.append(forced.pop(0))
        running = [(t, t + _INTRUSION_NS) for t in list(self.gate.intruders.values())]
        intervals = [*self._forced, *running]
        flags = list(record.all_flags())
        hit = False
        for i, (dt, window) in enumerate(zip(record.dt_ns, record.window_ns, strict=True)):
            start = record.t0_ns + dt
            if any(a < start + window and start < b for a, b in intervals):
                flags[i] |= Flag.FRAME
                hit = True
        if not hit:
            return record
        return Samples(
            record.round,
            record.size,
            record.t0_ns,
            record.bench,
            record.dt_ns,
            record.window_ns,
            record.inner,
            record.host_ns,
            flags,
            record.flag,
        )

    def recall_caches(self) -> None:
        """A few untimed calls of the quick rows, so that the CPU's caches are theirs again."""
        left_ns = float(_UNTIMED_BUDGET_NS)
        for slot in self.schedule.quotas:
            row = self.rows[slot.bench]
            cost_ns = row.per_call_ns * _UNTIMED_CALLS
            if cost_ns > left_ns:
                continue
            left_ns -= cost_ns
            for _ in range(_UNTIMED_CALLS):
                try:
                    if slot.reset is not None:
                        slot.reset()
                    slot.fn()
                    leave_if_copy()
                except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
                    self.on_failure((slot, error))
                    return

    def mend(self, slots: Sequence[Slot]) -> None:
        """What we import by is put back at once, and one of these rows has emptied it."""
        lost = self._imports.mend()
        if lost:
            benches = sorted({slot.bench for slot in slots})
            row = self.rows[benches[0]] if len(benches) == 1 else None
            names = " or ".join(self.rows[bench].name for bench in benches)
            evidence = {"what": lost, "rows": names}
            self.note(Code.IMPORTS_EMPTIED, row, evidence, level="warn")

    def on_failure(self, failure: Failure) -> None:
        """A window failed: its row is retired, or tried again once memory may be there."""
        slot, error = failure
        row = self.rows[slot.bench]
        if _is_out_of_memory(error) and row.retries:
            row.retries -= 1
            self.retry_at[row.bench] = self.round + 1
            self.schedule.set(slot, 0)
            self.note(Code.OUT_OF_MEMORY_RETRYING, row, {"message": one_line(error)}, level="warn")
            return
        self.fail(row, error)

    def retry_rows(self) -> None:
        """Rows that ran out of memory come back."""
        for bench, round_ in list(self.retry_at.items()):
            if self.round >= round_ or not self.schedule.size:
                del self.retry_at[bench]
                self.reschedule()

    def fail(self, row: Row, error: BaseException, kind: str = "") -> None:
        """Retire a row with its traceback; the others go on, unless the device is lost."""
        leave_if_copy(error)
        row.is_failed = True
        message = one_line(error)
        fatal = any(word in message for word in _FATAL_WORDS)
        if not kind:
            kind = failure_kind(error, 0 if row.slot is None else 1)
        if kind == "check" and not isinstance(error, AssertionError):
            message = f"check raised {message}"
        text = "".join(traceback.format_exception(error))
        self.emit(BenchError(self.time.now_ns(), row.bench, kind, message, text, fatal))
        self.state(row, RowState.FAILED, message)
        if fatal:
            self.stop_reason = f"the device's context is lost after {plain.name(row.name)}"
        self.reschedule()


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__

"""The loop: prime, calibrate, warm up by state, then interleaved rounds until told to stop.

It runs in one thread, the one that imported the benchmark file, because torch keeps its device,
grad mode and autocast per thread. It emits records and takes commands; it knows no screen, file or
vendor library.
"""

import dataclasses
import gc
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from usv_tui import plain
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import BenchFault, failure_kind, vet_result
from usv_tui.diagnosis.difference import difference, hint
from usv_tui.diagnosis.growth import LOADED
from usv_tui.diagnosis.vocabulary import DISBELIEVED
from usv_tui.engine.agreement import fetch, leave
from usv_tui.engine.attendant import Attendant
from usv_tui.engine.audit import Asking, Auditor, Subject, Window, Wrong
from usv_tui.engine.calibrate import Calibration, calibrate, fixed_inner, prime, try_window
from usv_tui.engine.imports import Imports
from usv_tui.engine.memory import free_bytes
from usv_tui.engine.pace import Pace
from usv_tui.engine.realloc import Attempt, Reallocation, is_elsewhere
from usv_tui.engine.references import References
from usv_tui.engine.schedule import Schedule
from usv_tui.engine.tuning import (
    begin_warm,
    budget_ns,
    choose_window,
    different_inner,
    look_warm,
    share_inner,
    warmth_finding,
    window_finding,
)
from usv_tui.engine.turns import Turns
from usv_tui.engine.warmup import MIN_NS, Levelling
from usv_tui.engine.where import Where
from usv_tui.engine.window import DEFAULT_S
from usv_tui.errors import UsageError, one_line
from usv_tui.gate import STOOD_NS, Gate
from usv_tui.model import (
    WITHDRAWN,
    BenchInfo,
    Benchmark,
    CacheMode,
    DuetPart,
    Flag,
    Notice,
    RowState,
    RunConfig,
    RunPhase,
    Suite,
)
from usv_tui.records import (
    AnyRecord,
    Bench,
    BenchError,
    Calibrated,
    Command,
    Gap,
    Launch,
    Mark,
    Noted,
    Paced,
    ProbeClock,
    Progress,
    Rebuilt,
    Samples,
    Skip,
    State,
    Timing,
)
from usv_tui.suite import values
from usv_tui.suite.rows import Built, assemble
from usv_tui.timers.cache import Flusher, rotation_badge
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

_BLOCK_NS = 2_000_000
"""Rounds are put into blocks of about this length: longer blocks answer keys later."""
_MAX_BLOCK = 512
_COVER_NS = 30_000_000
"""Device work to be queued before the gate opens, so that the device never waits for a frame."""
_GATE_BOUND_NS = 250_000_000
_INTRUSION_NS = NS_PER_S
"""For how long a frame without the gate is taken to go on: a call to a driver may never return."""
_RAMP_NS = NS_PER_S
_SHORT_RAMP_NS = NS_PER_S // 20
"""After rows were built afresh, and twice as long as that took."""
_FAR_LONGER = 10
"""A block that takes so many times as long as usual was held up."""
_UNTIMED_CALLS = 3
_UNTIMED_BUDGET_NS = 5_000_000
_COLLECT_NS = NS_PER_S
_TOLD_REST_NS = 5 * NS_PER_S
_SLOW_NS = NS_PER_S // 2
"""A row whose window costs more is not called untimed: its first calls are its samples."""
_LOOK_AGAIN_NS = 5 * NS_PER_S
"""A shorter run is not spent on looking again."""
_LONG_CALL_NS = 2 * NS_PER_S
"""A row whose window is longer is not called only to see whether it is the one that grows."""
_LONG_ROUND_NS = NS_PER_S // 10
"""Between the windows of a longer round there is time for commands, limits and the screen."""
_CALIBRATION_S = 30.0
"""Rows whose turn comes later than this are taken to cost what their first call did."""
_AUDIT_SHARE = 0.1
"""Of the time that is left, which one round of looks takes at most."""
_COOL_LIMIT_NS = 120 * NS_PER_S
_LAUNCH_OVER = "the launch is over"
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


class Row:
    """One benchmark while it is measured."""

    def __init__(self, bench: int, benchmark: Benchmark, control_of: int | None = None) -> None:
        self.bench = bench
        self.benchmark = benchmark
        self.control_of = control_of
        self.name = benchmark.name if control_of is None else f"{benchmark.name} (control)"
        self.slot: Slot | None = None
        self.check: Callable[[Any, Any], object] | None = None
        self.subject: Subject | None = None
        """What is audited of it; None: nothing can be."""
        self.rotated: list[Sequence[object]] = []
        """The sets of inputs that it takes in turn."""
        self.n = 0
        """Samples after warm-up."""
        self.is_on = True
        self.is_failed = False
        self.retries = 1
        """How often it may still come back after running out of memory."""
        self.per_call_ns = 0.0
        self.cost_ns = 0
        """Host time of one window with all that comes before it, as far as it is known."""
        self.is_slow = False
        """Too slow for untimed calls: no warm-up, and its first calls are its samples."""
        self.first_call: Samples | None = None
        """Its first call as a sample, for a run that ends before there is another one."""
        self.pinned: int | None = None
        """Calls a window that are not for the run to choose."""
        self.refill = 0
        """Untimed calls before each of its windows while other rows take part."""
        self.warmth: tuple[int, int] | None = None
        """ns of one call beside the others, and alone; None: not looked at."""
        self.is_unlike_alone = False
        self.not_warm = ""
        """Why it is not called warm although it was to be."""
        self.doubts: set[str] = set()
        """What its examination found."""
        self.cache: CacheMode | None = None
        """What the user chose while it runs; None: as its file or the run says."""
        self.levelling = Levelling()
        self.build_ns = 0
        """Of its last set-up with the first call."""
        self.built_bytes = 0
        """By how much memory grew in it."""

    @property
    def is_live(self) -> bool:
        """True when it takes part in rounds."""
        return self.slot is not None and self.is_on and not self.is_failed


class Resumed(NamedTuple):
    """What a worker before this one, which died or hung, leaves to it."""

    retired: frozenset[int] = frozenset()
    done: Mapping[int, int] = MappingProxyType({})
    first_round: int = 0


class Runner:
    """Times one suite. `run` returns the reason why it stopped."""

    def __init__(
        self,
        suite: Suite,
        config: RunConfig,
        timer: Timer,
        emit: Callable[[AnyRecord], object],
        *,
        commands: deque[Command] | None = None,
        wake: threading.Event | None = None,
        gate: Gate | None = None,
        time_source: TimeSource | None = None,
        make_flusher: Callable[[], Flusher] | None = None,
        where: Where | None = None,
        resumed: Resumed | None = None,
        attendant: Attendant | None = None,
        references: References | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._references = references
        self._turns = turns
        self._attendant = attendant or Attendant()
        self._suite = suite
        self._config = config
        self._timer = timer
        self._emit = emit
        self._commands = commands if commands is not None else deque()
        self._wake = wake or threading.Event()
        self._gate = gate or Gate()
        self._time = time_source or MonotonicTime()
        self._make_flusher = make_flusher
        self._flusher: Flusher | None = None
        self._rows: list[Row] = []
        self._schedule: Schedule[Slot] = Schedule({}, config.seed)
        self._solo: int | None = None
        self._pace = Pace.parse(config.pace)
        self._where = where
        self._resumed = resumed or Resumed()
        self._imports = Imports()
        self._round = self._resumed.first_round
        self._round_ns = 0.0
        self._window_s = DEFAULT_S
        self._work_ns = 0.0
        """Time of one round's calls, as calibrated."""
        self._is_paused = False
        self._stop_reason = ""
        self._ramp_until_ns = 0
        self._extra_flag = 0
        self._forced: deque[tuple[int, int]] = deque(maxlen=64)
        self._temp_c: float | None = None
        self._told_no_temp = False
        self._began_ns = 0
        self._collected_ns = 0
        self._is_warming = False
        self._is_measuring = False
        self._retry_at: dict[int, int] = {}
        self._has_told_launch = False
        self._realloc = Reallocation(config)
        most_s = config.max_time_s
        self._slow_ns = _SLOW_NS if most_s is None else min(_SLOW_NS, round(most_s * NS_PER_S / 10))
        self._unsampled: set[int] = set()
        self._uncounted: set[int] = set()
        """Rows that have windows of the warm-up or a ramp."""
        """Rows without a sample that counts."""
        self._sampled_ns = 0
        """Time of samples that were taken before measuring began."""
        self._limit_ns: int | None = None
        """When the present phase is over."""
        self._auditor = Auditor(timer, self._time.now_ns, self._wait, config.seed)
        self._looks: Asking | None = None
        """The round of looks that is under way."""
        self._wanted: Slot | None = None
        """The window that it wants next."""

    # -- the whole run

    def run(self) -> str:
        """Measure until stopped; returns why it ended. Never raises for a benchmark's fault."""
        now = self._time.now_ns
        self._emit(Timing(now(), self._timer.info))
        for skipped in self._suite.skipped:
            self._emit(Skip(now(), str(skipped.name), skipped.reason, skipped.is_refused))
        was_enabled = gc.isenabled()
        try:
            if self._turns is not None:
                self._wait_to_prepare(self._turns)
            if not self._stop_reason:
                self._prepare()
            if not self._stop_reason:
                self._began_ns = began_ns = now() - self._used_ns()
                self._warm_up(began_ns)
                self._tune()
                self._measure(began_ns)
        except LeftBehind:
            # Another worker measures by now: its gate and its collector are none of ours.
            self._gate, was_enabled = Gate(), False
            raise
        finally:
            self._gate.unman()
            if was_enabled:
                gc.enable()
            gc.unfreeze()
        self._drain(wait=True)
        if self._is_measuring:
            self._give_first_calls()
        self._progress(RunPhase.ENDED, self._stop_reason)
        return self._stop_reason

    def _used_ns(self) -> int:
        """How much of the time to measure went by while slow rows were prepared.

        Half of it at most, where there are quick rows, which have no sample yet.
        """
        most_s = self._config.max_time_s
        if most_s is None or all(row.is_slow for row in self._live_rows()):
            return self._sampled_ns
        return min(self._sampled_ns, round(most_s * NS_PER_S / 2))

    def _give_first_calls(self) -> None:
        """A row that has no other sample keeps its first call, and says so."""
        for row in self._rows:
            first = row.first_call
            if first is None or row.bench not in self._unsampled or not row.is_live:
                continue
            if row.bench in self._uncounted:
                # Its first call may hold compiling; its warm-up is known to hold none.
                why = {"why": self._stop_reason}
                self._note("only warm-up samples", row, why, level="error")
                continue
            self._emit(msgspec.structs.replace(first, round=self._round))
            self._round += 1
            evidence = {"seconds": first.window_ns[0] / NS_PER_S, "why": self._stop_reason}
            self._note("only a first call", row, evidence, level="warn")

    def _progress(self, phase: str, detail: str = "") -> None:
        self._emit(Progress(self._time.now_ns(), phase, detail))

    # -- set-up, first calls, calibration

    def _prepare(self) -> None:
        self._announce()
        self._mend_references()
        self._progress(RunPhase.PRIMING)
        results: dict[int, Any] = {}
        for row in self._rows:
            self._take_commands()
            if self._stop_reason:
                return
            if row.is_failed:
                continue
            self._enter(row)
            result = self._prime(row)
            self._enter(None)
            # Only what a check will look at stays in memory.
            if row.check is not None or row.benchmark.is_baseline:
                results[row.bench] = result
            del result
        self._check_results(results)
        if self._turns is not None and self._turns.part.results:
            self._check_versions(self._turns.part, results)
        results.clear()
        self._tell_fixed_inputs()
        self._mend_references()
        most_s = self._config.max_time_s
        budget_s = _CALIBRATION_S if most_s is None else most_s / 2
        until_ns = self._time.now_ns() + round(budget_s * NS_PER_S)
        for row in self._rows:
            self._take_commands()
            if self._stop_reason:
                return
            if row.slot is not None and not row.is_failed:
                self._enter(row)
                self._calibrate(row, is_hurried=self._time.now_ns() > until_ns)
                self._enter(None)
        self._set_inner(self._target_s)
        self._reschedule()
        if not any(row.slot is not None and not row.is_failed for row in self._rows):
            self._stop_reason = "every benchmark failed"

    def _announce(self) -> None:
        """Rows get their ids; a control row doubles the first baseline."""
        for benchmark in self._suite.benchmarks:
            self._rows.append(Row(len(self._rows), benchmark))
        if self._config.control and self._rows:
            base = next((r for r in self._rows if r.benchmark.is_baseline), self._rows[0])
            self._rows.append(Row(len(self._rows), base.benchmark, control_of=base.bench))
        self._tell_rows(self._rows)

    def _tell_rows(self, rows: Sequence[Row]) -> None:
        """They are on record from here on."""
        enough_ns = min(MIN_NS, round(self._config.warmup_max_s * NS_PER_S) // 2)
        for row in rows:
            row.levelling = Levelling(enough_ns)
            b = row.benchmark
            info = BenchInfo(
                bench=row.bench,
                name=str(row.name),
                group=str(b.group),
                params={k: _plain(v) for k, v in b.params.items()},
                flops=b.flops,
                bytes=b.bytes,
                is_baseline=b.is_baseline and row.control_of is None,
                control_of=row.control_of,
            )
            self._emit(Bench(self._time.now_ns(), info))
            if self._where is not None:
                self._where.meet(row.bench, row.name)
            row.is_failed = row.bench in self._resumed.retired
            if self._turns is not None:
                row.is_failed = row.is_failed or row.name in self._turns.part.without
            row.n = self._resumed.done.get(row.bench, 0)

    def _enter(self, row: Row | None) -> None:
        """From here on the code of this row runs."""
        if self._where is not None:
            self._where.at(None if row is None else row.bench)

    def _state(self, row: Row, state: RowState, detail: str = "") -> None:
        self._emit(State(self._time.now_ns(), row.bench, state, detail))

    def _prime(self, row: Row) -> Any:
        """Build a row and call it once; returns what the callable returned."""
        self._state(row, RowState.PREPARING)
        begun_ns, size_before = self._time.now_ns(), self._attendant.size()
        try:
            built = assemble(row.benchmark, self._config.device, self._config.seed)
            if not callable(built.fn):
                raise TypeError(
                    f"the set-up returned {type(built.fn).__name__}: "
                    "return the callable to be timed"
                )
            row.check = built.check
            row.rotated = [rotation.items for rotation in built.rotations]
            slot = self._make_slot(row, built)
            row.subject = Subject(slot, built.inputs, built.check)
            self._auditor.meet(row.subject)
            before = self._inputs_before(row)
            if self._where is not None:
                self._where.meet(row.bench, row.name, built.fn)
            leave_if_copy()
        except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
            self._fail(row, error)
            return None
        self._state(row, RowState.COMPILING)
        first = prime(self._timer, slot, self._time.now_ns)
        if first.error is not None:
            self._fail(row, first.error)
            return None
        fault = vet_result(first.result)
        if fault is not None:
            self._fail(row, fault)
            return None
        _as_timed(slot, built)
        row.slot = slot
        self._mend([slot])
        self._keep_inputs(row, built, before)
        if row.subject is not None:
            row.subject.is_watched = bool(values.places(first.result))
        self._unsampled.add(row.bench)
        row.build_ns = self._time.now_ns() - begun_ns
        row.built_bytes = max(0, (self._attendant.size() or 0) - (size_before or 0))
        row.cost_ns = round(first.seconds * NS_PER_S)
        row.first_call = Samples(
            0, 1, first.start_ns, [row.bench], [0], [first.window_ns], [1], flag=int(Flag.FIRST)
        )
        self._state(row, RowState.WAITING, f"first call {first.seconds:.3g} s")
        if row.cost_ns <= self._slow_ns:
            self._examine(row, slot)
        return first.result

    def _examine(self, row: Row, slot: Slot) -> None:
        found = self._timer.examine(slot)
        leave_if_copy()
        for code, evidence in found:
            self._note(code, row, evidence, level="warn")
            row.doubts.add(code)

    def _look_again(self) -> None:
        """What was said of rows at their first calls is looked at once more, warm."""
        for row in self._live_rows():
            if row.doubts and row.slot is not None and row.cost_ns < _LONG_CALL_NS:
                for code in self._timer.look_again(row.slot, sorted(row.doubts)):
                    self._note(code, row, {WITHDRAWN: True})

    def _make_slot(self, row: Row, built: Built) -> Slot:
        flush = None
        if self._cache_mode(row) is CacheMode.COLD:
            flusher = self._get_flusher()
            flush = flusher.flush
            if flush is None:
                self._note("flush unavailable", row, {"reason": flusher.reason}, level="warn")
        return Slot(row.bench, built.fn, reset=built.reset, flush=flush, stream=built.stream)

    def _cache_mode(self, row: Row) -> CacheMode:
        return row.cache or row.benchmark.cache or self._config.cache

    def _get_flusher(self) -> Flusher:
        if self._flusher is None:
            if self._make_flusher is None:
                self._flusher = Flusher(None, reason="this timer has no cache to flush")
            else:
                self._flusher = self._make_flusher()
        return self._flusher

    def _check_results(self, results: dict[int, Any]) -> None:
        """Each row with `check` against its group's baseline, once, outside timing."""
        bases = {
            r.benchmark.group: r
            for r in self._rows
            if r.benchmark.is_baseline and r.control_of is None and not r.is_failed
        }
        for row in self._rows:
            check = row.check
            base = bases.get(row.benchmark.group)
            if check is None or base is None or row is base or row.slot is None:
                continue
            if row.subject is not None and row.subject.inputs is not None:
                self._begin_looks(self._look_at(row, row.subject, self._rows))
                while self._wanted is not None:
                    failure = self._timer.enqueue(self._round, [self._wanted])
                    self._hand_back(failure)
                continue
            mine, wanted = results.get(row.bench), results.get(base.bench)
            try:
                self._enter(row)
                verdict = check(mine, wanted)
                leave_if_copy()
                self._enter(None)
                if verdict is False:
                    raise AssertionError(f"check: the result differs from {base.name}'s")
            except BaseException as error:  # noqa: BLE001  a check may raise anything
                self._fail(row, _told_apart(error, mine, wanted), kind="check")

    def _calibrate(self, row: Row, *, is_hurried: bool = False) -> None:
        """Find a row's window; of a slow row the window that was tried is a sample already."""
        slot = row.slot
        assert slot is not None
        wanted = self._wanted_inner(row)
        if row.cost_ns > self._slow_ns:
            # Perhaps it only compiled: one more call tells, before it is called untimed.
            slot.inner = fixed_inner(slot, wanted) or 1
            if is_hurried:
                found = Calibration(slot.inner, row.cost_ns, None, row.cost_ns * slot.inner)
            else:
                found = try_window(self._timer, slot, self._time.now_ns)
            row.is_slow = found.error is None and found.cost_ns > self._slow_ns
            if row.is_slow:
                slot.hints["slow"] = True
            if found.error is None:
                self._examine(row, slot)
            if row.is_slow or found.error is not None:
                self._settle(row, slot, found)
                return
        elif is_hurried:
            self._settle(row, slot, self._guess(row, fixed_inner(slot, wanted)))
            return
        found = calibrate(
            self._timer,
            slot,
            self._target_s,
            inner=wanted,
            slow_ns=self._slow_ns,
            clock=self._time.now_ns,
        )
        self._settle(row, slot, found)

    def _wanted_inner(self, row: Row) -> int | None:
        """Calls a window that are not for the run to choose."""
        known = self._turns.calls.get(row.name) if self._turns is not None else None
        return known[0] if known else row.benchmark.inner or self._config.inner

    @property
    def _target_s(self) -> float:
        """How long a window should last, before any choice."""
        wanted_s, most_s = self._config.target_window_s or DEFAULT_S, self._config.max_time_s
        return wanted_s if most_s is None else min(wanted_s, most_s / 10)

    def _guess(self, row: Row, fixed: int | None) -> Calibration:
        """There is no time to try: what the first call cost."""
        per_call_ns = max(1, row.cost_ns)
        inner = fixed or max(1, round(self._target_s * NS_PER_S / per_call_ns))
        return Calibration(inner, per_call_ns, None, per_call_ns * inner)

    def _settle(self, row: Row, slot: Slot, found: Calibration) -> None:
        if found.error is not None:
            self._fail(row, found.error)
            return
        slot.inner = found.inner
        slot.cold_each = slot.flush is not None and found.inner > 1
        row.pinned = fixed_inner(slot, self._wanted_inner(row))
        row.per_call_ns = found.per_call_ns
        row.cost_ns = found.cost_ns
        row.is_slow = found.cost_ns > self._slow_ns
        if row.is_slow and row.n == 0:
            self._note("slow row", row, {"seconds": row.cost_ns / NS_PER_S})
        if row.is_slow and found.first is not None:
            begin_warm(row, slot, self._cache_mode(row))
            self._emit_calibrated(row)
            sample = msgspec.structs.replace(
                found.first, round=self._round, flag=int(Flag.FIRST), flags=[]
            )
            self._round += 1
            self._sampled_ns += found.cost_ns
            self._unsampled.discard(row.bench)
            row.n += 1
            self._emit(sample)

    def _set_inner(self, target_window_s: float, only: Row | None = None) -> None:
        """Calls a window of all rows together (or of one among them), and what comes before it."""
        self._window_s = target_window_s
        rows = [row for row in self._rows if row.slot is not None and not row.is_failed]
        inners = share_inner(self._timer, rows, target_window_s)
        changed = rows if only is None else [only]
        for row in changed:
            slot = row.slot
            assert slot is not None
            slot.inner = inners[row.bench]
            slot.cold_each = slot.flush is not None and slot.inner > 1
            begin_warm(row, slot, self._cache_mode(row))
            if row.refill and self._turns is not None and row.name in self._turns.calls:
                row.refill = self._turns.calls[row.name][1]
        bases = self._bases(rows)
        for row in changed:
            if not (row.is_slow and row.n):  # of which it was said, with its first sample
                self._emit_calibrated(row)
            found = different_inner(row, self._rows[bases.get(row.bench, row.bench)])
            if found is not None:
                self._note(found.code, row, found.evidence)

    def _bases(self, rows: list[Row]) -> dict[int, int]:
        """The baseline of each row that has one among these."""
        by_group = {
            r.benchmark.group: r.bench
            for r in rows
            if r.benchmark.is_baseline and r.control_of is None
        }
        found = {
            r.bench: by_group[r.benchmark.group] for r in rows if r.benchmark.group in by_group
        }
        found |= {r.bench: r.control_of for r in rows if r.control_of is not None}
        return {row: base for row, base in found.items() if row != base}

    def _tune(self) -> None:
        """After warm-up: the length of a window, and whether rows are as warm as alone."""
        rows = self._live_rows()
        config = self._config
        longest_ns = budget_ns(config.warmup_max_s, config.max_time_s)
        is_settled = self._turns is not None and bool(self._turns.calls)
        if self._stop_reason or longest_ns <= 0 or is_settled:
            return
        self._gate.unman()
        if config.target_window_s is None and config.inner is None:
            self._progress(RunPhase.TUNING, "the length of a window")
            choice = choose_window(
                self._timer,
                rows,
                self._bases(rows),
                self._time.now_ns,
                longest_ns=longest_ns,
                seed=config.seed,
            )
            if choice.failure is not None:
                self._on_failure(choice.failure)
            elif choice.trials:
                found = window_finding(choice)
                self._note(found.code, None, found.evidence)
            if choice.is_news:
                self._set_inner(choice.window_s)
                self._reschedule()
        self._look_warm(longest_ns)

    def _look_warm(self, longest_ns: float) -> None:
        """Is each row beside the others as it is alone? Refill it until it is, or say so."""
        rows = self._live_rows()
        failure = look_warm(
            self._timer,
            rows,
            self._cache_mode,
            self._time.now_ns,
            longest_ns=longest_ns,
            seed=self._config.seed,
        )
        if failure is not None:
            self._on_failure(failure)
        for row in rows:
            if row.is_failed or len(rows) < 2:
                continue
            if row.warmth is not None:
                self._emit_calibrated(row)
            found = warmth_finding(row)
            if found is not None:
                self._note(found.code, row, found.evidence)

    def _emit_calibrated(self, row: Row) -> None:
        slot = row.slot
        assert slot is not None
        mode = self._cache_mode(row)
        if mode is CacheMode.COLD and slot.flush is None:
            mode = CacheMode.UNAVAILABLE
        flusher = self._flusher
        badge = str(mode)
        if mode is CacheMode.WARM and row.not_warm:
            badge = "not warm"
        elif mode is CacheMode.WARM and slot.reset is not None:
            badge = "warm+reset"
        elif mode in (CacheMode.WARM, CacheMode.ROTATING) and row.rotated:
            badge, doubt = rotation_badge(row.rotated, self._get_flusher().l2_bytes)
            flusher = self._flusher
            if doubt is not None:
                self._note(doubt.code, row, doubt.evidence, level="warn")
        elif mode is CacheMode.COLD and flusher is not None:
            doubt = flusher.doubt(slot.inner, is_cold_each=slot.cold_each)
            if doubt is not None:
                self._note(doubt.code, row, doubt.evidence, level="warn")
        self._emit(
            Calibrated(
                self._time.now_ns(),
                row.bench,
                slot.inner,
                round(row.per_call_ns),
                badge,
                flusher.flush_bytes if flusher and slot.flush else 0,
                flusher.l2_bytes if flusher else None,
                str(slot.hints.get("mode", "eager")),
                row.refill,
                *(row.warmth or (None, None)),
            )
        )

    # -- rounds

    def _live_rows(self) -> list[Row]:
        rows = [row for row in self._rows if row.is_live]
        if self._is_warming:
            rows = [row for row in rows if not row.is_slow]
        if self._solo is not None:
            rows = [row for row in rows if row.bench == self._solo] or rows
        return rows

    def _reschedule(self) -> None:
        wanted = [row.slot for row in self._live_rows() if row.slot is not None]
        for slot in list(self._schedule.quotas):
            if slot not in wanted:
                self._schedule.set(slot, 0)
        for slot in wanted:
            self._schedule.set(slot, 1)
            # A row alone follows its own windows: its caches are its own.
            slot.set_refill(self._rows[slot.bench].refill if len(wanted) > 1 else 0)
        self._work_ns = sum(
            self._rows[slot.bench].per_call_ns * (slot.inner + slot.refill) for slot in wanted
        )
        self._round_ns = 0.0

    def _warm_up(self, began_ns: int) -> None:
        """Until the quick rows have levelled; a slow row's one call warms as long as it lasts."""
        self._is_warming = True
        if self._config.warmup_max_s > 0 and self._live_rows():
            self._warm_up_rows(began_ns)
        self._is_warming = False
        self._reschedule()

    def _warm_up_rows(self, began_ns: int) -> None:
        self._progress(RunPhase.WARMING)
        self._reschedule()
        for row in self._live_rows():
            self._state(row, RowState.WARMING)
        # At most half of a bounded run: it must not end with nothing but its warm-up.
        most_s = self._config.warmup_max_s
        if self._config.max_time_s is not None:
            used_s = (self._time.now_ns() - began_ns) / NS_PER_S
            most_s = min(most_s, (self._config.max_time_s - used_s) / 2)
        now_ns = self._time.now_ns
        self._limit_ns = end_ns = now_ns() + round(most_s * NS_PER_S)
        self._gate.man()
        while not self._stop_reason and now_ns() < end_ns:
            rows = self._live_rows()
            if not rows or all(row.levelling.is_level for row in rows):
                break
            if self._is_over_time(began_ns):
                break
            self._step()
        self._drain(wait=True)
        restless = [row for row in self._live_rows() if not row.levelling.is_level]
        for row in restless:
            self._note("not warmed up", row, {"warmup_max_s": most_s})

    def _measure(self, began_ns: int) -> None:
        if self._stop_reason:
            return
        self._is_measuring = True
        self._progress(RunPhase.MEASURING)
        limit_s = self._config.max_time_s
        self._limit_ns = None if limit_s is None else began_ns + round(limit_s * NS_PER_S)
        for row in self._live_rows():
            self._state(row, RowState.RUNNING)
        if (self._left_ns() or _LOOK_AGAIN_NS) >= _LOOK_AGAIN_NS:
            self._look_again()
        self._gate.man()
        self._audit(is_first=True)
        while self._looks is not None and not self._stop_reason:
            self._step()
        self._gate.unman()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._gate.man()
        is_last_due = limit_s is not None
        turns = self._turns
        if turns is not None:
            self._say_ready(turns)
        while not self._stop_reason:
            if turns is not None and not self._has_turn(turns):
                continue
            if self._looks is not None:
                self._step()
            elif is_last_due and self._is_nearly_over():
                is_last_due = False
                self._audit(is_final=True)
            elif self._is_over_time(began_ns) or not self._has_time_for_any():
                self._stop_reason = f"max time {limit_s:g} s"
            elif not self._schedule.size:
                self._idle()
            elif self._has_all_iters():
                self._stop_reason = f"{self._config.iters} samples a row"
            elif self._is_to_be_rebuilt():
                self._rebuild()
            else:
                self._step()
        self._realloc.release()
        if self._is_over_time(began_ns) or self._has_all_iters():
            self._drain(wait=True)
            self._attend(is_final=True)
        if limit_s is None and self._has_all_iters():
            self._stop_reason, reason = "", self._stop_reason
            self._audit(is_final=True)
            while self._looks is not None and not self._stop_reason:
                self._step()
            self._stop_reason = self._stop_reason or reason

    def _is_over_time(self, began_ns: int) -> bool:
        limit = self._config.max_time_s
        return limit is not None and self._time.now_ns() - began_ns >= limit * NS_PER_S

    def _left_ns(self) -> int | None:
        return None if self._limit_ns is None else self._limit_ns - self._time.now_ns()

    def _has_time_for_any(self) -> bool:
        """Drop slow rows that do not fit any more; False when they were the last ones."""
        left_ns = self._left_ns()
        if left_ns is None:
            return True
        late = [slot for slot in self._schedule.quotas if not self._fits(slot, left_ns)]
        for slot in late:
            self._schedule.set(slot, 0)
        return not late or self._schedule.size > 0

    def _fits(self, slot: Slot, left_ns: int) -> bool:
        """A slow call is not begun that would outlast the run: its row has its first one."""
        row = self._rows[slot.bench]
        return not row.is_slow or row.cost_ns <= left_ns

    def _has_all_iters(self) -> bool:
        iters = self._config.iters
        return iters is not None and all(row.n >= iters for row in self._live_rows())

    def _step(self) -> None:
        """Commands, the gate, one block of rounds, pace."""
        if self._commands:
            self._take_commands()
        if self._is_paused:
            self._pause()
            return
        if self._gate.wanted:
            self._serve_gate()
        if self._retry_at:
            self._retry_rows()
        if self._pace.cool_c is not None and self._temp_c is None and not self._told_no_temp:
            self._told_no_temp = True
            self._note("no thermometer", None, {"pace": self._pace.spec}, level="warn")
        wait_ns = self._pace.rest_ns(self._time.now_ns(), self._temp_c)
        if wait_ns and self._pace.cool_c is not None:
            self._cool_down()
        elif wait_ns:
            self._rest(wait_ns)
        elif self._wanted is not None or self._schedule.size:
            is_look = self._wanted is not None
            self._run_block()
            if not is_look:
                self._drain(wait=False)
                self._attend()
                if self._is_measuring and self._auditor.is_due(self._time.now_ns()):
                    self._audit()
        now_ns = self._time.now_ns()
        if now_ns - self._collected_ns > _COLLECT_NS:
            self._collected_ns = now_ns
            if not gc.isenabled():
                gc.collect(1)

    def _attend(self, *, is_final: bool = False) -> None:
        """Say what is seen beside the windows."""
        slots = [s for s in self._schedule.quotas if self._rows[s.bench].cost_ns < _LONG_CALL_NS]
        for code, bench, evidence in self._attendant.look(
            slots, self._timer.synchronize, is_final=is_final
        ):
            row = None if bench is None else self._rows[bench]
            is_over = bool(evidence.get(WITHDRAWN))
            self._note(code, row, evidence, level="info" if is_over or code == LOADED else "warn")

    # -- whether rows do their work

    def _wait(self, ns: int) -> None:
        self._time.wait(threading.Event(), ns)

    def _inputs_before(self, row: Row) -> list[Any] | None:
        """What a row's inputs are before its first call, to see whether it changes them."""
        inputs = row.subject.inputs if row.subject is not None else None
        return None if inputs is None else values.clone(inputs.sets)

    def _keep_inputs(self, row: Row, built: Built, before: list[Any] | None) -> None:
        """A callable that changes its arguments is handed them anew before each call."""
        inputs, slot = built.inputs, row.slot
        if inputs is None or before is None or slot is None or values.equal(inputs.sets, before):
            return
        inputs.put_back_always(before)
        inputs.own_reset = own = slot.reset

        def put_back() -> None:
            inputs.put_back()
            if own is not None:
                own()

        slot.fn, slot.reset = inputs.call, put_back
        slot.set_refill(0)
        self._note("inputs restored", row, {})

    def _tell_fixed_inputs(self) -> None:
        """Rows whose results are checked on the same inputs throughout."""
        for row in self._rows:
            subject = row.subject
            if subject is not None and subject.check is not None and subject.inputs is None:
                self._note("inputs fixed", row, {})

    def _mend_references(self) -> None:
        """What the file has replaced is put back; no row is believed then."""
        if self._references is None:
            return
        found = self._references.mend()
        codes = ("clock replaced", "library replaced", "interpreter watched")
        for code, what in zip(codes, found, strict=True):
            for row in self._rows if what else ():
                self._note(code, row, {"what": what[:8]}, level="error")

    def _audit(self, *, is_first: bool = False, is_final: bool = False) -> None:
        """Look at the rows' results and times in windows that nobody counts, from here on."""
        if self._looks is None:
            self._mend_references()
            self._begin_looks(self._look_at_all(is_first=is_first, is_final=is_final))

    def _begin_looks(self, looks: Asking) -> None:
        self._drain(wait=True)
        self._looks = looks
        self._wanted = next(looks, None)
        if self._wanted is None:
            self._looks = None

    def _hand_back(self, failure: Failure | None) -> None:
        """Hand a look the window that it asked for; its samples go nowhere else."""
        ended_ns = self._time.now_ns()
        leave_if_copy(None if failure is None else failure[1])
        asked, looks = self._wanted, self._looks
        assert asked is not None
        assert looks is not None
        found = self._timer.harvest(wait=True)
        window_ns = max(0, found[-1].window_ns[-1]) if found and found[-1].window_ns else 0
        for extra in self._timer.beside():
            if not isinstance(extra, Samples | ProbeClock):
                self._emit(extra)
        try:
            self._wanted = looks.send(Window(window_ns, ended_ns, failure))
            self._enter(self._rows[self._wanted.bench])
        except StopIteration:
            self._wanted = self._looks = None
            self._enter(None)

    def _look_at_all(self, *, is_first: bool, is_final: bool) -> Asking:
        """Each row once; as often as it needs at the start, and where something lacks at the end.

        Who was looked at least comes first, where there is no time for all.
        """
        auditor = self._auditor
        rows = sorted(self._live_rows(), key=lambda r: r.subject.looks if r.subject else 0)
        most_ns = self._time.now_ns() + (self._left_ns() or NS_PER_S * 10) * _AUDIT_SHARE
        for turn in range(max((auditor.missing(r.subject) for r in rows if r.subject), default=0)):
            for row in rows:
                subject = row.subject
                is_late = not is_final and self._time.now_ns() > most_ns
                if subject is None or row.is_failed or is_late:
                    continue
                is_needed = turn == 0 or ((is_first or is_final) and auditor.missing(subject) > 1)
                if is_needed and self._has_time_to_audit(row):
                    yield from self._look_at(row, subject, rows)
        auditor.plan()
        if is_final and auditor.looks:
            evidence = {"looks": auditor.looks, "seconds": auditor.spent_ns / NS_PER_S}
            self._note("audited", None, evidence)

    def _is_nearly_over(self) -> bool:
        left_ns = self._left_ns()
        return left_ns is not None and left_ns < self._auditor.last_ns(len(self._live_rows()))

    def _has_time_to_audit(self, row: Row) -> bool:
        """A slow row is looked at only while a call of it is a small part of the run."""
        now_ns, left_ns = self._time.now_ns(), self._left_ns()
        if left_ns is not None and left_ns < 5 * row.per_call_ns:
            return False
        return not row.is_slow or row.cost_ns * 5 < (now_ns - self._began_ns) / 10

    def _look_at(self, row: Row, subject: Subject, rows: Sequence[Row]) -> Asking:
        """Look once, where there is something to look for."""
        assert row.slot is not None
        subject.slot = row.slot
        base = next(
            (
                r.subject
                for r in rows
                if r.benchmark.is_baseline
                and r.control_of is None
                and r.benchmark.group == row.benchmark.group
                and r is not row
                and r.subject is not None
                and (r.subject.inputs is None) == (subject.inputs is None)
            ),
            None,
        )
        if not self._auditor.can_tell(subject, base):
            return
        found, failure = yield from self._auditor.look(subject, base)
        for said in found:
            if isinstance(said, Wrong):
                self._fail(row, BenchFault(said.code, f"{said.code}: {said.message}"))
            else:
                code, evidence = said
                self._note(code, row, evidence, level="error" if code in DISBELIEVED else "warn")
        if failure is not None:
            self._on_failure(failure)

    def _run_block(self) -> None:
        schedule = self._schedule
        now = self._time.now_ns
        start_ns = now()
        asked = self._wanted
        is_watched = asked is None and self._attendant.wants_windows(start_ns)
        rounds = 1 if is_watched or asked is not None else self._block_rounds()
        flag = 0
        if self._is_warming:
            flag = int(Flag.WARMUP)
        elif start_ns < self._ramp_until_ns or self._is_opening():
            flag = int(Flag.RAMP)
        slots: Sequence[Slot] = schedule.block(rounds) if asked is None else [asked]
        self._attendant.count(0 if asked is not None else len(slots))
        if self._where is not None:
            slots = self._where.along(slots)
        whole = slots if asked is None else list(schedule.quotas)
        if rounds == 1 and (is_watched or self._is_long_round(whole)):
            failure = self._run_long_round(slots, flag)
        else:
            failure = self._timer.enqueue(self._round, slots, schedule.size, flag)
            leave_if_copy(None if failure is None else failure[1])
            if self._unsampled and failure is None and asked is None:
                done = [slot.bench for slot in slots]
                if flag:
                    self._uncounted.update(done)
                else:
                    self._unsampled.difference_update(done)
        if asked is not None:
            self._hand_back(failure)
            return
        if self._where is not None and not self._timer.queued_ns():
            self._enter(None)
        self._mend(slots)
        self._round += rounds
        if self._turns is not None and self._is_measuring:
            self._turns.spend(rounds)
        self._look_for_standstill(start_ns, now(), rounds)
        took = (now() - start_ns) / rounds
        self._round_ns = took if not self._round_ns else 0.7 * self._round_ns + 0.3 * took
        if failure is not None:
            self._on_failure(failure)

    def _look_for_standstill(self, start_ns: int, end_ns: int, rounds: int) -> None:
        """After a stop (ctrl+z, SIGSTOP) the device is cold: a gap, and the block is ramp too."""
        took_ns = end_ns - start_ns
        if took_ns < STOOD_NS or not 0 < _FAR_LONGER * rounds * self._round_ns < took_ns:
            return
        stood = self._gate.standstill(start_ns, end_ns)
        if stood is None:
            return
        self._extra_flag = int(Flag.RAMP)
        self._drain(wait=True)
        self._extra_flag = 0
        self._emit(Gap(*stood, "the program stood still"))
        self._ramp_until_ns = end_ns + _RAMP_NS
        self._round_ns = 0.0

    def _is_long_round(self, slots: Sequence[Slot]) -> bool:
        return sum(self._rows[slot.bench].cost_ns for slot in slots) > _LONG_ROUND_NS

    def _run_long_round(self, slots: Sequence[Slot], flag: int) -> Failure | None:
        """One window at a time; between them the user is heard and the limit is kept."""
        now, size = self._time.now_ns, len(slots)
        for i, slot in enumerate(slots):
            if i and not self._may_go_on(slot):
                continue
            row = self._rows[slot.bench]
            start_ns = now()
            self._enter(row)
            self._attendant.begin()
            failure = self._timer.enqueue(self._round, [slot], size, flag)
            if self._wanted is not None:
                return failure
            self._attendant.end(slot)
            leave_if_copy(None if failure is None else failure[1])
            if failure is not None:
                return failure
            if not flag:
                self._unsampled.discard(slot.bench)
            self._drain(wait=row.is_slow)
            if row.is_slow:
                self._weigh(row, now() - start_ns)
        return None

    def _may_go_on(self, slot: Slot) -> bool:
        """Between two windows of a long round: whether this one is still wanted."""
        if self._commands:
            self._take_commands()
        if self._gate.wanted and not self._timer.queued_ns():
            self._gate.serve(_GATE_BOUND_NS)
        if self._stop_reason or self._is_paused or slot not in self._schedule.quotas:
            return False
        left_ns = self._left_ns()
        return left_ns is None or (left_ns > 0 and self._fits(slot, left_ns))

    def _weigh(self, row: Row, cost_ns: int) -> None:
        """What a slow row's window costs now; one that only compiled for long is slow no more."""
        was_ns, row.cost_ns = row.cost_ns, cost_ns
        if cost_ns * 4 > min(was_ns, self._slow_ns):
            return
        slot = row.slot
        assert slot is not None
        row.is_slow = False
        slot.hints.pop("slow", None)
        self._emit(
            Mark(self._time.now_ns(), f"{plain.name(row.name)} is no longer slow", row.bench)
        )
        self._calibrate(row)
        if not row.is_failed:
            self._set_inner(self._window_s, row)
            self._reschedule()

    def _block_rounds(self) -> int:
        if not self._round_ns:
            return 1
        # What the host took says little while a device works off what was queued.
        took_ns = max(self._round_ns, self._work_ns)
        rounds = max(1, min(_MAX_BLOCK, int(_BLOCK_NS / took_ns)))
        iters = self._config.iters
        if iters is not None and not self._is_warming:
            missing = [iters - row.n for row in self._live_rows() if row.n < iters]
            rounds = max(1, min(rounds, max(missing, default=1)))
        turns = self._turns
        if turns is not None and self._is_measuring:
            opening = turns.opening.rounds - turns.index
            rounds = max(1, min(rounds, turns.left, opening if opening > 0 else rounds))
        return rounds

    def _drain(self, *, wait: bool) -> None:
        for record in self._timer.harvest(wait=wait):
            if record.round < 0:
                continue
            if self._gate.forced or self._gate.intruders or self._forced:
                record = self._flag_frames(record)  # noqa: PLW2901  the flagged copy
            if self._extra_flag:
                record = msgspec.structs.replace(  # noqa: PLW2901  the flagged copy
                    record,
                    flag=record.flag | self._extra_flag,
                    flags=[flag | self._extra_flag for flag in record.flags],
                )
            self._count(record)
            self._emit(record)
        for extra in self._timer.beside():
            if isinstance(extra, Samples | ProbeClock) and extra.round < 0:
                continue  # of calls that are no round
            self._emit(extra)

    def _count(self, record: Samples) -> None:
        """Keep each row's count, or feed its levelling."""
        if self._is_warming:
            for sample in record.samples():
                self._rows[sample.bench].levelling.add(
                    sample.start_ns, sample.window_ns / sample.inner
                )
            return
        if self._turns is not None and self._turns.opening.is_open and self._turns.has_begun:
            for sample in record.samples():
                self._turns.opening.add(sample.bench, sample.window_ns / sample.inner)
        if record.flag & Flag.RAMP:
            return
        if self._config.iters is None:
            return
        rows = self._rows
        for bench in record.bench:
            if bench < len(rows):
                rows[bench].n += 1

    def _flag_frames(self, record: Samples) -> Samples:
        """Mark the windows that a forced frame fell into."""
        forced = self._gate.forced
        while forced:
            self._forced.append(forced.pop(0))
        running = [(t, t + _INTRUSION_NS) for t in list(self._gate.intruders.values())]
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

    def _serve_gate(self) -> None:
        """Let the screen paint: under cover of queued work, or between rounds."""
        queued = self._timer.queued_ns()
        if queued:
            for _ in range(_MAX_BLOCK):
                if queued >= _COVER_NS or not self._schedule.size or self._stop_reason:
                    break
                before = queued
                self._run_block()
                queued = self._timer.queued_ns()
                if queued <= before:
                    break  # short kernels or a slow host: more cover than this cannot be had
        opened = self._gate.serve(_GATE_BOUND_NS)
        if opened and not queued:
            self._recall_caches()

    def _recall_caches(self) -> None:
        """A few untimed calls of the quick rows, so that the CPU's caches are theirs again."""
        left_ns = float(_UNTIMED_BUDGET_NS)
        for slot in self._schedule.quotas:
            row = self._rows[slot.bench]
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
                    self._on_failure((slot, error))
                    return

    # -- fresh buffers

    def _is_to_be_rebuilt(self) -> bool:
        if self._is_paused or not self._realloc.left:
            return False
        done = min((row.n for row in self._live_rows()), default=0)
        now_ns = self._time.now_ns()
        return self._realloc.is_due(now_ns, self._round, self._left_ns(), done)

    def _rebuild(self) -> None:
        """Between rounds: quick rows get other buffers, and go on."""
        self._drain(wait=True)
        begun_ns = self._time.now_ns()
        self._gate.unman()
        rows = [row for row in self._live_rows() if not row.is_slow]
        bases = set(self._bases(rows).values())
        built = [row.bench for row in self._realloc.choose(rows, bases) if self._renew(row)]
        self._enter(None)
        self._realloc.done()
        self._gate.man()
        if not built:
            return
        gc.collect(1)
        self._attendant.rebuilt()
        self._reschedule()
        self._recall_caches()
        now_ns = self._time.now_ns()
        took_ns = now_ns - begun_ns
        self._ramp_until_ns = max(
            self._ramp_until_ns, now_ns + min(_RAMP_NS, 2 * took_ns + _SHORT_RAMP_NS)
        )
        self._emit(Rebuilt(now_ns, built, took_ns))
        if took_ns > _RAMP_NS:
            self._emit(Gap(begun_ns, now_ns, "rows built afresh"))

    def _renew(self, row: Row) -> bool:
        """Build a row once more; where that fails it goes on as it is, and is not tried again."""
        old = row.slot
        assert old is not None
        before = self._attendant.size()
        try:
            attempt = self._try_afresh(row, old)
        except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
            leave_if_copy(error)
            attempt = Attempt(None, one_line(error), is_failure=True)
        if attempt.slot is None:
            self._realloc.give_up(row)
            if attempt.is_failure or self._realloc.is_asked:
                level = "warn" if attempt.is_failure else "info"
                self._note("not built afresh", row, {"reason": attempt.reason}, level=level)
            return False
        self._schedule.set(old, 0)
        row.slot = attempt.slot
        row.build_ns = attempt.took_ns
        if before is not None:
            self._realloc.hold(old, max(0, (self._attendant.size() or 0) - before))
        return True

    def _try_afresh(self, row: Row, old: Slot) -> Attempt:
        reason = self._realloc.obstacle(row, free_bytes())
        if reason:
            return Attempt(None, reason)
        begun_ns = self._time.now_ns()
        self._enter(row)
        built = assemble(row.benchmark, self._config.device, self._config.seed)
        leave_if_copy()
        if not callable(built.fn) or not is_elsewhere(old.fn, built.fn):
            return Attempt(None, "its set-up gives the same buffers again")
        slot = old.twin()
        slot.fn, slot.reset, slot.stream = built.fn, built.reset, built.stream
        slot.set_refill(0)
        subject = row.subject
        if subject is not None:
            subject = dataclasses.replace(subject, slot=slot, check=built.check, kept=None)
            self._auditor.meet(subject)
        first = prime(self._timer, slot, self._time.now_ns)
        fault = first.error or vet_result(first.result)
        if fault is not None:
            raise fault
        _as_timed(slot, built)
        row.subject = subject
        row.rotated = [rotation.items for rotation in built.rotations]
        if self._where is not None:
            self._where.meet(row.bench, row.name, built.fn)
        return Attempt(slot, took_ns=self._time.now_ns() - begun_ns)

    # -- taking turns with the other version's worker

    def _wait_to_prepare(self, turns: Turns) -> None:
        turns.poll = self._hears
        self._progress(RunPhase.STARTING, "waits for the device")
        if not turns.wait_to_prepare():
            self._stop_reason = self._stop_reason or _LAUNCH_OVER

    def _hears(self) -> bool:
        self._take_commands()
        return not self._stop_reason

    def _say_ready(self, turns: Turns) -> None:
        """All is warm: the other one prepares, or the first turn begins."""
        rows = [row for row in self._rows if row.slot is not None and not row.is_failed]
        calls = {row.name: [row.slot.inner, row.refill] for row in rows if row.slot is not None}
        self._drain(wait=True)
        turns.ready(calls, self._round, self._work_ns)
        if turns.left:
            self._begin_turn(turns)

    def _has_turn(self, turns: Turns) -> bool:
        """Whether the device is mine; a turn that is over is handed on when it is idle."""
        if turns.left > 0:
            return True
        if turns.is_mine:
            self._drain(wait=True)
            if turns.opening.close() and turns.opening.rounds:
                self._note("turn opens", None, {"rounds": turns.opening.rounds})
            turns.done()
        if not turns.left:
            self._enter(None)
            turns.next()
        if turns.is_over:
            self._end_launch(turns)
        if turns.left > 0:
            self._begin_turn(turns)
        return turns.left > 0

    def _begin_turn(self, turns: Turns) -> None:
        self._round = turns.first_round
        if not self._has_told_launch:
            self._has_told_launch = True
            part = turns.part
            now_ns = self._time.now_ns()
            self._emit(Launch(now_ns, part.number, turns.base, turns.rounds, part.seed))

    def _end_launch(self, turns: Turns) -> None:
        self._stop_reason = self._stop_reason or _LAUNCH_OVER
        found = turns.handovers()
        if found is not None:
            evidence = {**found._asdict(), "opening": turns.opening.rounds}
            self._note("handover", None, evidence)

    def _is_opening(self) -> bool:
        """The first rounds of a turn, where these are known to differ from the others."""
        turns = self._turns
        return turns is not None and self._is_measuring and turns.index < turns.opening.rounds

    def _check_versions(self, part: DuetPart, results: Mapping[int, Any]) -> None:
        """What the other version's rows return is what this one's must agree with."""
        for row in self._rows:
            check = row.check
            if check is None or row.slot is None or row.is_failed or row.control_of is not None:
                continue
            mine = results.get(row.bench)
            try:
                if part.side == 0:
                    leave(part.results, row.name, mine)
                    continue
                found = fetch(part.results, row.name)
            except Exception as error:  # noqa: BLE001  a result may be anything
                leave_if_copy(error)
                self._note("not compared", row, {"reason": one_line(error)}, level="warn")
                continue
            if found:
                self._check_one(row, check, mine, found[0])

    def _check_one(
        self, row: Row, check: Callable[[Any, Any], object], mine: Any, wanted: Any
    ) -> None:
        try:
            self._enter(row)
            verdict = check(mine, wanted)
            leave_if_copy()
            self._enter(None)
            if verdict is False:
                raise AssertionError("check: the result differs from the other version's")
        except BaseException as error:  # noqa: BLE001  a check may raise anything
            self._fail(row, _told_apart(error, mine, wanted), kind="check")

    # -- standing still

    def _idle(self) -> None:
        """No row is live: wait for a command (a row may be switched on again)."""
        if self._retry_at:
            self._retry_rows()
            return
        if all(row.is_failed or row.slot is None for row in self._rows):
            self._stop_reason = "every benchmark failed"
            return
        self._gate.unman()
        self._wake.clear()
        if not self._commands:
            self._time.wait(self._wake, NS_PER_S // 10)
        self._take_commands()
        self._gate.man()

    def _pause(self) -> None:
        self._drain(wait=True)
        start_ns = self._time.now_ns()
        self._progress(RunPhase.PAUSED)
        self._gate.unman()
        while self._is_paused and not self._stop_reason:
            self._wake.clear()
            if not self._commands:
                self._time.wait(self._wake, NS_PER_S // 2)
            self._take_commands()
        self._gate.man()
        now_ns = self._time.now_ns()
        self._emit(Gap(start_ns, now_ns, "paused"))
        self._ramp_until_ns = now_ns + _RAMP_NS
        if not self._stop_reason:
            self._progress(RunPhase.WARMING if self._is_warming else RunPhase.MEASURING)

    def _rest(self, wait_ns: int) -> None:
        """The pace's idle time; commands and the end of the run cut it short."""
        self._drain(wait=True)
        left_ns = self._left_ns()
        if left_ns is not None:
            wait_ns = max(0, min(wait_ns, left_ns))
        start_ns = self._time.now_ns()
        self._gate.unman()
        self._wake.clear()
        is_long = wait_ns > _TOLD_REST_NS
        if is_long:
            self._progress("resting", f"{wait_ns / NS_PER_S:.3g} s")
        if not self._commands:
            self._time.wait(self._wake, wait_ns)
        self._gate.man()
        self._emit(Gap(start_ns, self._time.now_ns(), f"pace {self._pace.spec}"))
        if is_long:
            self._progress(RunPhase.WARMING if self._is_warming else RunPhase.MEASURING)

    def _cool_down(self) -> None:
        """Stand still until it is cool, and say what is waited for; give up after two minutes."""
        self._drain(wait=True)
        now = self._time.now_ns
        start_ns = now()
        limit_c = self._pace.cool_c
        self._gate.unman()
        while not self._stop_reason and not self._is_paused and self._pace.rest_ns(0, self._temp_c):
            if self._is_over_time(self._began_ns):
                break
            if now() - start_ns > _COOL_LIMIT_NS:
                evidence = {"temp_c": self._temp_c, "limit_c": limit_c}
                self._note("does not cool", None, evidence, level="warn")
                self._set_pace("steady", now())
                break
            self._progress("cooling", f"{self._temp_c:g} C, waits for {limit_c:g} C")
            self._wake.clear()
            if not self._commands:
                self._time.wait(self._wake, NS_PER_S // 2)
            self._take_commands()
        self._gate.man()
        self._emit(Gap(start_ns, now(), f"pace {self._pace.spec}"))
        self._progress(RunPhase.WARMING if self._is_warming else RunPhase.MEASURING)

    # -- commands

    def _take_commands(self) -> None:
        while self._commands:
            self._obey(self._commands.popleft())

    def _obey(self, command: Command) -> None:
        verb, argument, bench = command.verb, command.argument, command.bench
        now_ns = self._time.now_ns()
        if bench is not None and not 0 <= bench < len(self._rows):
            return  # a phase of a row, or a row of another run: not one that is scheduled
        if verb == "stop":
            self._stop_reason = self._stop_reason or argument or "quit"
        elif verb == "pause":
            self._is_paused = True
        elif verb == "resume":
            self._is_paused = False
        elif verb == "mark":
            self._emit(Mark(now_ns, argument))
        elif verb == "ramp":
            self._ramp_until_ns = now_ns + _RAMP_NS
            if argument:
                self._emit(Mark(now_ns, argument))
        elif verb == "temp":
            self._temp_c = float(argument) if argument else None
        elif verb == "pace":
            self._set_pace(argument, now_ns)
        elif verb in ("solo", "all"):
            self._solo = bench if verb == "solo" else None
            self._ramp_until_ns = now_ns + _RAMP_NS
            name = self._rows[bench].name if verb == "solo" and bench is not None else ""
            self._emit(Mark(now_ns, f"solo {plain.name(name)}" if name else "all rows"))
            self._reschedule()
        elif verb in ("on", "off") and bench is not None:
            self._switch(self._rows[bench], is_on=verb == "on")
        elif verb == "realloc" and bench is not None:
            self._realloc.want([bench])
        elif verb == "cache" and bench is not None:
            self._set_cache(self._rows[bench], CacheMode(argument))

    def _set_pace(self, spec: str, now_ns: int) -> None:
        try:
            self._pace = Pace.parse(spec)
        except UsageError as error:
            self._note("bad pace", None, {"reason": str(error)}, level="warn")
            return
        self._ramp_until_ns = now_ns + _RAMP_NS
        self._emit(Paced(now_ns, spec))
        self._emit(Mark(now_ns, f"pace {spec}"))

    def _switch(self, row: Row, *, is_on: bool) -> None:
        row.is_on = is_on
        if not row.is_failed:
            self._state(row, RowState.RUNNING if is_on else RowState.OFF)
            if is_on:
                self._emit(Mark(self._time.now_ns(), f"{plain.name(row.name)} on", row.bench))
        self._reschedule()

    def _set_cache(self, row: Row, mode: CacheMode) -> None:
        """Another cache mode for a row; only its own statistics start afresh."""
        slot = row.slot
        if slot is None:
            return
        row.cache = mode
        fresh = slot.twin()
        fresh.flush = self._get_flusher().flush if mode is CacheMode.COLD else None
        fresh.cold_each = fresh.flush is not None and slot.inner > 1
        begin_warm(row, fresh, mode)
        self._schedule.set(slot, 0)
        row.slot = fresh
        self._emit(Mark(self._time.now_ns(), f"{plain.name(row.name)} {mode}", row.bench))
        self._emit_calibrated(row)
        self._reschedule()
        self._drain(wait=True)
        self._look_warm(budget_ns(self._config.warmup_max_s, self._config.max_time_s))

    def _mend(self, slots: Sequence[Slot]) -> None:
        """What we import by is put back at once, and one of these rows has emptied it."""
        lost = self._imports.mend()
        if lost:
            benches = sorted({slot.bench for slot in slots})
            row = self._rows[benches[0]] if len(benches) == 1 else None
            names = " or ".join(self._rows[bench].name for bench in benches)
            evidence = {"what": lost, "rows": names}
            self._note("imports emptied", row, evidence, level="warn")

    # -- failures

    def _note(
        self, code: str, row: Row | None, evidence: dict[str, Any], level: str = "info"
    ) -> None:
        notice = Notice(
            code=code,
            at_ns=self._time.now_ns(),
            bench=None if row is None else row.bench,
            level=level,
            evidence=evidence,
        )
        self._emit(Noted(notice))

    def _on_failure(self, failure: Failure) -> None:
        slot, error = failure
        row = self._rows[slot.bench]
        if _is_out_of_memory(error) and row.retries:
            row.retries -= 1
            self._retry_at[row.bench] = self._round + 1
            self._schedule.set(slot, 0)
            self._note("out of memory, retrying", row, {"message": one_line(error)}, level="warn")
            return
        self._fail(row, error)

    def _retry_rows(self) -> None:
        for bench, round_ in list(self._retry_at.items()):
            if self._round >= round_ or not self._schedule.size:
                del self._retry_at[bench]
                self._reschedule()

    def _fail(self, row: Row, error: BaseException, kind: str = "") -> None:
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
        self._emit(BenchError(self._time.now_ns(), row.bench, kind, message, text, fatal))
        self._state(row, RowState.FAILED, message)
        if fatal:
            self._stop_reason = f"the device's context is lost after {plain.name(row.name)}"
        self._reschedule()


def _as_timed(slot: Slot, built: Built) -> None:
    """From its second call on a row with inputs drops its results."""
    if built.inputs is not None and slot.fn is built.fn:
        slot.fn = built.inputs.call
        slot.set_refill(0)


def _plain(value: Any) -> Any:
    """A parameter as the journal can keep it."""
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__


def _told_apart(error: BaseException, mine: Any, wanted: Any) -> BaseException:
    """A failed check, with how much the results differ and what may be behind it."""
    if not isinstance(error, AssertionError):
        return error
    words = difference(mine, wanted)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "check failed")
    told = AssertionError(f"{said}: {words} ({hint(mine, wanted)})" if words else said)
    told.__cause__ = error
    return told

"""Set-up, first calls, calibration, and what is chosen after the warm-up."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import vet_result
from usv_tui.engine.agreement import told_apart
from usv_tui.engine.audit import Subject
from usv_tui.engine.auditing import Auditing
from usv_tui.engine.calibrate import Calibration, calibrate, fixed_inner, prime, try_window
from usv_tui.engine.row import Row, bases_of
from usv_tui.engine.stage import Stage
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
from usv_tui.engine.turning import Turning
from usv_tui.engine.warmup import MIN_NS, Levelling
from usv_tui.engine.window import DEFAULT_S
from usv_tui.model import (
    WITHDRAWN,
    BenchInfo,
    CacheMode,
    Flag,
    RowState,
    RunPhase,
)
from usv_tui.records import (
    Bench,
    Calibrated,
    Mark,
    Samples,
)
from usv_tui.suite import values
from usv_tui.suite.rows import Built, assemble
from usv_tui.timers.cache import Flusher, rotation_badge
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

_CALIBRATION_S = 30.0
"""Rows whose turn comes later than this are taken to cost what their first call did."""
_LONG_CALL_NS = 2 * NS_PER_S
"""A row whose window is longer is not called only to see whether it is the one that grows."""


class Preparation:
    """Gets the rows of one run ready."""

    def __init__(
        self,
        stage: Stage,
        auditing: Auditing,
        turning: Turning,
        make_flusher: Callable[[], Flusher] | None,
    ) -> None:
        self._stage = stage
        self._auditing = auditing
        self._turning = turning
        self._make_flusher = make_flusher
        self._flusher: Flusher | None = None
        self.window_s = DEFAULT_S

    def prepare(self) -> None:
        """All rows built, called, checked and calibrated."""
        self._announce()
        self._auditing.mend_references()
        self._stage.progress(RunPhase.PRIMING)
        results: dict[int, Any] = {}
        for row in self._stage.rows:
            self._stage.take_commands()
            if self._stage.stop_reason:
                return
            if row.is_failed:
                continue
            self._stage.enter(row)
            result = self._prime(row)
            self._stage.enter(None)
            # Only what a check will look at stays in memory.
            if row.check is not None or row.benchmark.is_baseline:
                results[row.bench] = result
            del result
        self._check_results(results)
        if self._stage.turns is not None and self._stage.turns.part.results:
            self._turning.check_versions(self._stage.turns.part, results)
        results.clear()
        self._auditing.tell_fixed_inputs()
        self._auditing.mend_references()
        most_s = self._stage.config.max_time_s
        budget_s = _CALIBRATION_S if most_s is None else most_s / 2
        until_ns = self._stage.time.now_ns() + round(budget_s * NS_PER_S)
        for row in self._stage.rows:
            self._stage.take_commands()
            if self._stage.stop_reason:
                return
            if row.slot is not None and not row.is_failed:
                self._stage.enter(row)
                self.calibrate(row, is_hurried=self._stage.time.now_ns() > until_ns)
                self._stage.enter(None)
        self.set_inner(self.target_s)
        self._stage.reschedule()
        if not any(row.slot is not None and not row.is_failed for row in self._stage.rows):
            self._stage.stop_reason = "every benchmark failed"

    def _announce(self) -> None:
        """Rows get their ids; a control row doubles the first baseline."""
        for benchmark in self._stage.suite.benchmarks:
            self._stage.rows.append(Row(len(self._stage.rows), benchmark))
        if self._stage.config.control and self._stage.rows:
            base = next(
                (r for r in self._stage.rows if r.benchmark.is_baseline), self._stage.rows[0]
            )
            self._stage.rows.append(
                Row(len(self._stage.rows), base.benchmark, control_of=base.bench)
            )
        self.tell_rows(self._stage.rows)

    def tell_rows(self, rows: Sequence[Row]) -> None:
        """They are on record from here on."""
        enough_ns = min(MIN_NS, round(self._stage.config.warmup_max_s * NS_PER_S) // 2)
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
            self._stage.emit(Bench(self._stage.time.now_ns(), info))
            if self._stage.where is not None:
                self._stage.where.meet(row.bench, row.name)
            row.is_failed = row.bench in self._stage.resumed.retired
            if self._stage.turns is not None:
                row.is_failed = row.is_failed or row.name in self._stage.turns.part.without
            row.n = self._stage.resumed.done.get(row.bench, 0)

    def _prime(self, row: Row) -> Any:
        """Build a row and call it once; returns what the callable returned."""
        self._stage.state(row, RowState.PREPARING)
        begun_ns, size_before = self._stage.time.now_ns(), self._stage.attendant.size()
        try:
            built = assemble(row.benchmark, self._stage.config.device, self._stage.config.seed)
            if not callable(built.fn):
                raise TypeError(
                    f"the set-up returned {type(built.fn).__name__}: "
                    "return the callable to be timed"
                )
            row.check = built.check
            row.rotated = [rotation.items for rotation in built.rotations]
            slot = self.make_slot(row, built)
            row.subject = Subject(slot, built.inputs, built.check)
            self._auditing.auditor.meet(row.subject)
            before = self._auditing.inputs_before(row)
            if self._stage.where is not None:
                self._stage.where.meet(row.bench, row.name, built.fn)
            leave_if_copy()
        except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
            self._stage.fail(row, error)
            return None
        self._stage.state(row, RowState.COMPILING)
        first = prime(self._stage.timer, slot, self._stage.time.now_ns)
        if first.error is not None:
            self._stage.fail(row, first.error)
            return None
        fault = vet_result(first.result)
        if fault is not None:
            self._stage.fail(row, fault)
            return None
        as_timed(slot, built)
        row.slot = slot
        self._stage.mend([slot])
        self._auditing.keep_inputs(row, built, before)
        if row.subject is not None:
            row.subject.is_watched = bool(values.places(first.result))
        self._stage.unsampled.add(row.bench)
        row.build_ns = self._stage.time.now_ns() - begun_ns
        row.built_bytes = max(0, (self._stage.attendant.size() or 0) - (size_before or 0))
        row.cost_ns = round(first.seconds * NS_PER_S)
        row.first_call = Samples(
            0, 1, first.start_ns, [row.bench], [0], [first.window_ns], [1], flag=int(Flag.FIRST)
        )
        self._stage.state(row, RowState.WAITING, f"first call {first.seconds:.3g} s")
        if row.cost_ns <= self._stage.slow_ns:
            self.examine(row, slot)
        return first.result

    def examine(self, row: Row, slot: Slot) -> None:
        """Look at what a primed row does."""
        found = self._stage.timer.examine(slot)
        leave_if_copy()
        for code, evidence in found:
            self._stage.note(code, row, evidence, level="warn")
            row.doubts.add(code)

    def look_again(self) -> None:
        """What was said of rows at their first calls is looked at once more, warm."""
        for row in self._stage.live_rows():
            if row.doubts and row.slot is not None and row.cost_ns < _LONG_CALL_NS:
                for code in self._stage.timer.look_again(row.slot, sorted(row.doubts)):
                    self._stage.note(code, row, {WITHDRAWN: True})

    def make_slot(self, row: Row, built: Built) -> Slot:
        """A row as the timer sees it."""
        flush = None
        if self._stage.cache_mode(row) is CacheMode.COLD:
            flusher = self._get_flusher()
            flush = flusher.flush
            if flush is None:
                self._stage.note(
                    Code.FLUSH_UNAVAILABLE, row, {"reason": flusher.reason}, level="warn"
                )
        return Slot(row.bench, built.fn, reset=built.reset, flush=flush, stream=built.stream)

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
            for r in self._stage.rows
            if r.benchmark.is_baseline and r.control_of is None and not r.is_failed
        }
        for row in self._stage.rows:
            check = row.check
            base = bases.get(row.benchmark.group)
            if check is None or base is None or row is base or row.slot is None:
                continue
            if row.subject is not None and row.subject.inputs is not None:
                look = self._auditing.look_at(row, row.subject, self._stage.rows, is_timed=False)
                self._auditing.begin(look)
                while self._auditing.wanted is not None:
                    failure = self._stage.timer.enqueue(self._stage.round, [self._auditing.wanted])
                    self._auditing.hand_back(failure)
                continue
            mine, wanted = results.get(row.bench), results.get(base.bench)
            try:
                self._stage.enter(row)
                verdict = check(mine, wanted)
                leave_if_copy()
                self._stage.enter(None)
                if verdict is False:
                    raise AssertionError(f"check: the result differs from {base.name}'s")
            except BaseException as error:  # noqa: BLE001  a check may raise anything
                self._stage.fail(row, told_apart(error, mine, wanted), kind="check")

    def calibrate(self, row: Row, *, is_hurried: bool = False) -> None:
        """Find a row's window; of a slow row the window that was tried is a sample already."""
        slot = row.slot
        assert slot is not None
        wanted = self._wanted_inner(row)
        if row.cost_ns > self._stage.slow_ns:
            # Perhaps it only compiled: one more call tells, before it is called untimed.
            slot.inner = fixed_inner(slot, wanted) or 1
            if is_hurried:
                found = Calibration(slot.inner, row.cost_ns, None, row.cost_ns * slot.inner)
            else:
                found = try_window(self._stage.timer, slot, self._stage.time.now_ns)
            row.is_slow = found.error is None and found.cost_ns > self._stage.slow_ns
            if row.is_slow:
                slot.hints["slow"] = True
            if found.error is None:
                self.examine(row, slot)
            if row.is_slow or found.error is not None:
                self._settle(row, slot, found)
                return
        elif is_hurried:
            self._settle(row, slot, self._guess(row, fixed_inner(slot, wanted)))
            return
        found = calibrate(
            self._stage.timer,
            slot,
            self.target_s,
            inner=wanted,
            slow_ns=self._stage.slow_ns,
            clock=self._stage.time.now_ns,
        )
        self._settle(row, slot, found)

    def _wanted_inner(self, row: Row) -> int | None:
        """Calls a window that are not for the run to choose."""
        known = self._stage.turns.calls.get(row.name) if self._stage.turns is not None else None
        return known[0] if known else row.benchmark.inner or self._stage.config.inner

    @property
    def target_s(self) -> float:
        """How long a window should last, before any choice."""
        wanted_s, most_s = (
            self._stage.config.target_window_s or DEFAULT_S,
            self._stage.config.max_time_s,
        )
        return wanted_s if most_s is None else min(wanted_s, most_s / 10)

    def _guess(self, row: Row, fixed: int | None) -> Calibration:
        """There is no time to try: what the first call cost."""
        per_call_ns = max(1, row.cost_ns)
        inner = fixed or max(1, round(self.target_s * NS_PER_S / per_call_ns))
        return Calibration(inner, per_call_ns, None, per_call_ns * inner)

    def _settle(self, row: Row, slot: Slot, found: Calibration) -> None:
        if found.error is not None:
            self._stage.fail(row, found.error)
            return
        slot.inner = found.inner
        slot.cold_each = slot.flush is not None and found.inner > 1
        row.pinned = fixed_inner(slot, self._wanted_inner(row))
        row.per_call_ns = found.per_call_ns
        row.cost_ns = found.cost_ns
        row.is_slow = found.cost_ns > self._stage.slow_ns
        if row.is_slow and row.n == 0:
            self._stage.note(Code.SLOW_ROW, row, {"seconds": row.cost_ns / NS_PER_S})
        if row.is_slow and found.first is not None:
            begin_warm(row, slot, self._stage.cache_mode(row))
            self.emit_calibrated(row)
            sample = msgspec.structs.replace(
                found.first, round=self._stage.round, flag=int(Flag.FIRST), flags=[]
            )
            self._stage.round += 1
            self._stage.sampled_ns += found.cost_ns
            self._stage.unsampled.discard(row.bench)
            row.n += 1
            self._stage.emit(sample)

    def set_inner(self, target_window_s: float, only: Row | None = None) -> None:
        """Calls a window of all rows together (or of one among them), and what comes before it."""
        self.window_s = target_window_s
        rows = [row for row in self._stage.rows if row.slot is not None and not row.is_failed]
        inners = share_inner(self._stage.timer, rows, target_window_s)
        changed = rows if only is None else [only]
        for row in changed:
            slot = row.slot
            assert slot is not None
            slot.inner = inners[row.bench]
            slot.cold_each = slot.flush is not None and slot.inner > 1
            begin_warm(row, slot, self._stage.cache_mode(row))
            if row.refill and self._stage.turns is not None and row.name in self._stage.turns.calls:
                row.refill = self._stage.turns.calls[row.name][1]
        bases = bases_of(rows)
        for row in changed:
            if not (row.is_slow and row.n):  # of which it was said, with its first sample
                self.emit_calibrated(row)
            found = different_inner(row, self._stage.rows[bases.get(row.bench, row.bench)])
            if found is not None:
                self._stage.note(found.code, row, found.evidence)

    def tune(self) -> None:
        """After warm-up: the length of a window, and whether rows are as warm as alone."""
        rows = self._stage.live_rows()
        config = self._stage.config
        longest_ns = budget_ns(config.warmup_max_s, config.max_time_s)
        is_settled = self._stage.turns is not None and bool(self._stage.turns.calls)
        if self._stage.stop_reason or longest_ns <= 0 or is_settled:
            return
        self._stage.gate.unman()
        if config.target_window_s is None and config.inner is None:
            self._stage.progress(RunPhase.TUNING, "the length of a window")
            choice = choose_window(
                self._stage.timer,
                rows,
                bases_of(rows),
                self._stage.time.now_ns,
                longest_ns=longest_ns,
                seed=config.seed,
            )
            if choice.failure is not None:
                self._stage.on_failure(choice.failure)
            elif choice.trials:
                found = window_finding(choice)
                self._stage.note(found.code, None, found.evidence)
            if choice.is_news:
                self.set_inner(choice.window_s)
                self._stage.reschedule()
        self.look_warm(longest_ns)

    def look_warm(self, longest_ns: float) -> None:
        """Is each row beside the others as it is alone? Refill it until it is, or say so."""
        rows = self._stage.live_rows()
        failure = look_warm(
            self._stage.timer,
            rows,
            self._stage.cache_mode,
            self._stage.time.now_ns,
            longest_ns=longest_ns,
            seed=self._stage.config.seed,
        )
        if failure is not None:
            self._stage.on_failure(failure)
        for row in rows:
            if row.is_failed or len(rows) < 2:
                continue
            if row.warmth is not None:
                self.emit_calibrated(row)
            found = warmth_finding(row)
            if found is not None:
                self._stage.note(found.code, row, found.evidence)

    def emit_calibrated(self, row: Row) -> None:
        """Put on record how a row is called."""
        slot = row.slot
        assert slot is not None
        mode = self._stage.cache_mode(row)
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
                self._stage.note(doubt.code, row, doubt.evidence, level="warn")
        elif mode is CacheMode.COLD and flusher is not None:
            doubt = flusher.doubt(slot.inner, is_cold_each=slot.cold_each)
            if doubt is not None:
                self._stage.note(doubt.code, row, doubt.evidence, level="warn")
        self._stage.emit(
            Calibrated(
                self._stage.time.now_ns(),
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

    def set_cache(self, row: Row, mode: CacheMode) -> None:
        """Another cache mode for a row; only its own statistics start afresh."""
        slot = row.slot
        if slot is None:
            return
        row.cache = mode
        fresh = slot.twin()
        fresh.flush = self._get_flusher().flush if mode is CacheMode.COLD else None
        fresh.cold_each = fresh.flush is not None and slot.inner > 1
        begin_warm(row, fresh, mode)
        self._stage.schedule.set(slot, 0)
        row.slot = fresh
        self._stage.emit(
            Mark(self._stage.time.now_ns(), f"{plain.name(row.name)} {mode}", row.bench)
        )
        self.emit_calibrated(row)
        self._stage.reschedule()
        self._stage.drain(wait=True)
        self.look_warm(budget_ns(self._stage.config.warmup_max_s, self._stage.config.max_time_s))


def as_timed(slot: Slot, built: Built) -> None:
    """From its second call on a row with inputs drops its results."""
    if built.inputs is not None and slot.fn is built.fn:
        slot.fn = built.inputs.call
        slot.set_refill(0)


def _plain(value: Any) -> Any:
    """A parameter as the journal can keep it."""
    return value if isinstance(value, bool | int | float | str | None) else str(value)

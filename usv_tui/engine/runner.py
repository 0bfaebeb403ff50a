"""The loop: prime, calibrate, warm up by state, then interleaved rounds until told to stop.

It runs in one thread, the one that imported the benchmark file, because torch keeps its device,
grad mode and autocast per thread. It emits records and takes commands; it knows no screen, file or
vendor library.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.growth import LOADED
from usv_tui.engine.attendant import Attendant
from usv_tui.engine.auditing import Auditing
from usv_tui.engine.pace import Pace
from usv_tui.engine.preparation import Preparation
from usv_tui.engine.rebuilding import Rebuilding
from usv_tui.engine.references import References
from usv_tui.engine.row import Resumed, Row
from usv_tui.engine.stage import RAMP_NS, LeftBehind, Stage
from usv_tui.engine.turning import Turning
from usv_tui.engine.turns import Turns
from usv_tui.engine.where import Where
from usv_tui.errors import UsageError
from usv_tui.gate import STOOD_NS, Gate
from usv_tui.model import (
    WITHDRAWN,
    CacheMode,
    Flag,
    RowState,
    RunConfig,
    RunPhase,
    Suite,
)
from usv_tui.records import (
    AnyRecord,
    Command,
    Gap,
    Mark,
    Paced,
    Skip,
    Timing,
)
from usv_tui.timers.cache import Flusher
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S, TimeSource

_BLOCK_NS = 2_000_000
"""Rounds are put into blocks of about this length: longer blocks answer keys later."""
_MAX_BLOCK = 512
_COVER_NS = 30_000_000
"""Device work to be queued before the gate opens, so that the device never waits for a frame."""
_GATE_BOUND_NS = 250_000_000
_FAR_LONGER = 10
"""A block that takes so many times as long as usual was held up."""
_COLLECT_NS = NS_PER_S
_TOLD_REST_NS = 5 * NS_PER_S
_LOOK_AGAIN_NS = 5 * NS_PER_S
"""A shorter run is not spent on looking again."""
_LONG_CALL_NS = 2 * NS_PER_S
"""A row whose window is longer is not called only to see whether it is the one that grows."""
_LONG_ROUND_NS = NS_PER_S // 10
"""Between the windows of a longer round there is time for commands, limits and the screen."""
_COOL_LIMIT_NS = 120 * NS_PER_S


class Runner(Stage):
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
        super().__init__(
            suite,
            config,
            timer,
            emit,
            gate=gate,
            time_source=time_source,
            where=where,
            resumed=resumed,
            attendant=attendant,
            turns=turns,
        )
        self._commands = commands if commands is not None else deque()
        self._wake = wake or threading.Event()
        self._pace = Pace.parse(config.pace)
        self._temp_c: float | None = None
        self._told_no_temp = False
        self._collected_ns = 0
        self.auditing = Auditing(self, references)
        self.turning = Turning(self)
        self.preparation = Preparation(self, self.auditing, self.turning, make_flusher)
        self.rebuilding = Rebuilding(self, self.auditing, self.preparation)

    def run(self) -> str:
        """Measure until stopped; returns why it ended. Never raises for a benchmark's fault."""
        now = self.time.now_ns
        self.emit(Timing(now(), self.timer.info))
        for skipped in self.suite.skipped:
            self.emit(Skip(now(), str(skipped.name), skipped.reason, skipped.is_refused))
        was_enabled = gc.isenabled()
        try:
            if self.turns is not None:
                self.turning.wait_to_prepare(self.turns)
            if not self.stop_reason:
                self.preparation.prepare()
            if not self.stop_reason:
                self.began_ns = began_ns = now() - self._used_ns()
                self._warm_up(began_ns)
                self.preparation.tune()
                self._measure(began_ns)
        except LeftBehind:
            # Another worker measures by now: its gate and its collector are none of ours.
            self.gate, was_enabled = Gate(), False
            raise
        finally:
            self.gate.unman()
            if was_enabled:
                gc.enable()
            gc.unfreeze()
        self.drain(wait=True)
        if self.is_measuring:
            self._give_first_calls()
        self.progress(RunPhase.ENDED, self.stop_reason)
        return self.stop_reason

    def _used_ns(self) -> int:
        """How much of the time to measure went by while slow rows were prepared.

        Half of it at most, where there are quick rows, which have no sample yet.
        """
        most_s = self.config.max_time_s
        if most_s is None or all(row.is_slow for row in self.live_rows()):
            return self.sampled_ns
        return min(self.sampled_ns, round(most_s * NS_PER_S / 2))

    def _give_first_calls(self) -> None:
        """A row that has no other sample keeps its first call, and says so."""
        for row in self.rows:
            first = row.first_call
            if first is None or row.bench not in self.unsampled or not row.is_live:
                continue
            if row.bench in self.uncounted:
                # Its first call may hold compiling; its warm-up is known to hold none.
                why = {"why": self.stop_reason}
                self.note(Code.ONLY_WARM_UP_SAMPLES, row, why, level="error")
                continue
            self.emit(msgspec.structs.replace(first, round=self.round))
            self.round += 1
            evidence = {"seconds": first.window_ns[0] / NS_PER_S, "why": self.stop_reason}
            self.note(Code.ONLY_A_FIRST_CALL, row, evidence, level="warn")

    def _warm_up(self, began_ns: int) -> None:
        """Until the quick rows have levelled; a slow row's one call warms as long as it lasts."""
        self.is_warming = True
        if self.config.warmup_max_s > 0 and self.live_rows():
            self._warm_up_rows(began_ns)
        self.is_warming = False
        self.reschedule()

    def _warm_up_rows(self, began_ns: int) -> None:
        self.progress(RunPhase.WARMING)
        self.reschedule()
        for row in self.live_rows():
            self.state(row, RowState.WARMING)
        # At most half of a bounded run: it must not end with nothing but its warm-up.
        most_s = self.config.warmup_max_s
        if self.config.max_time_s is not None:
            used_s = (self.time.now_ns() - began_ns) / NS_PER_S
            most_s = min(most_s, (self.config.max_time_s - used_s) / 2)
        now_ns = self.time.now_ns
        self.limit_ns = end_ns = now_ns() + round(most_s * NS_PER_S)
        self.gate.man()
        while not self.stop_reason and now_ns() < end_ns:
            rows = self.live_rows()
            if not rows or all(row.levelling.is_level for row in rows):
                break
            if self._is_over_time(began_ns):
                break
            self._step()
        self.drain(wait=True)
        restless = [row for row in self.live_rows() if not row.levelling.is_level]
        for row in restless:
            self.note(Code.NOT_WARMED_UP, row, {"warmup_max_s": most_s})

    def _measure(self, began_ns: int) -> None:
        if self.stop_reason:
            return
        self.is_measuring = True
        self.progress(RunPhase.MEASURING)
        limit_s = self.config.max_time_s
        self.limit_ns = None if limit_s is None else began_ns + round(limit_s * NS_PER_S)
        for row in self.live_rows():
            self.state(row, RowState.RUNNING)
        if (self.left_ns() or _LOOK_AGAIN_NS) >= _LOOK_AGAIN_NS:
            self.preparation.look_again()
        self.gate.man()
        self.auditing.audit(is_first=True)
        while self.auditing.looks is not None and not self.stop_reason:
            self._step()
        self.gate.unman()
        gc.collect()
        gc.freeze()
        gc.disable()
        self.gate.man()
        is_last_due = limit_s is not None
        turns = self.turns
        if turns is not None:
            self.turning.say_ready(turns)
        while not self.stop_reason:
            if turns is not None and not self.turning.has_turn(turns):
                continue
            if self.auditing.looks is not None:
                self._step()
            elif is_last_due and self.auditing.is_nearly_over():
                is_last_due = False
                self.auditing.audit(is_final=True)
            elif self._is_over_time(began_ns) or not self._has_time_for_any():
                self.stop_reason = f"max time {limit_s:g} s"
            elif not self.schedule.size:
                self._idle()
            elif self._has_all_iters():
                self.stop_reason = f"{self.config.iters} samples a row"
            elif self.rebuilding.is_due():
                self.rebuilding.rebuild()
            else:
                self._step()
        self.rebuilding.plan.release()
        if self._is_over_time(began_ns) or self._has_all_iters():
            self.drain(wait=True)
            self._attend(is_final=True)
        if limit_s is None and self._has_all_iters():
            self.stop_reason, reason = "", self.stop_reason
            self.auditing.audit(is_final=True)
            while self.auditing.looks is not None and not self.stop_reason:
                self._step()
            self.stop_reason = self.stop_reason or reason

    def _is_over_time(self, began_ns: int) -> bool:
        limit = self.config.max_time_s
        return limit is not None and self.time.now_ns() - began_ns >= limit * NS_PER_S

    def _has_time_for_any(self) -> bool:
        """Drop slow rows that do not fit any more; False when they were the last ones."""
        left_ns = self.left_ns()
        if left_ns is None:
            return True
        late = [slot for slot in self.schedule.quotas if not self._fits(slot, left_ns)]
        for slot in late:
            self.schedule.set(slot, 0)
        return not late or self.schedule.size > 0

    def _fits(self, slot: Slot, left_ns: int) -> bool:
        """A slow call is not begun that would outlast the run: its row has its first one."""
        row = self.rows[slot.bench]
        return not row.is_slow or row.cost_ns <= left_ns

    def _has_all_iters(self) -> bool:
        iters = self.config.iters
        return iters is not None and all(row.n >= iters for row in self.live_rows())

    def _step(self) -> None:
        """Commands, the gate, one block of rounds, pace."""
        if self._commands:
            self.take_commands()
        if self.is_paused:
            self._pause()
            return
        if self.gate.wanted:
            self._serve_gate()
        if self.retry_at:
            self.retry_rows()
        if self._pace.cool_c is not None and self._temp_c is None and not self._told_no_temp:
            self._told_no_temp = True
            self.note(Code.NO_THERMOMETER, None, {"pace": self._pace.spec}, level="warn")
        wait_ns = self._pace.rest_ns(self.time.now_ns(), self._temp_c)
        if wait_ns and self._pace.cool_c is not None:
            self._cool_down()
        elif wait_ns:
            self._rest(wait_ns)
        elif self.auditing.wanted is not None or self.schedule.size:
            is_look = self.auditing.wanted is not None
            self._run_block()
            if not is_look:
                self.drain(wait=False)
                self._attend()
                if self.is_measuring and self.auditing.auditor.is_due(self.time.now_ns()):
                    self.auditing.audit()
        now_ns = self.time.now_ns()
        if now_ns - self._collected_ns > _COLLECT_NS:
            self._collected_ns = now_ns
            if not gc.isenabled():
                gc.collect(1)

    def _attend(self, *, is_final: bool = False) -> None:
        """Say what is seen beside the windows."""
        slots = [s for s in self.schedule.quotas if self.rows[s.bench].cost_ns < _LONG_CALL_NS]
        for code, bench, evidence in self.attendant.look(
            slots, self.timer.synchronize, is_final=is_final
        ):
            row = None if bench is None else self.rows[bench]
            is_over = bool(evidence.get(WITHDRAWN))
            self.note(code, row, evidence, level="info" if is_over or code == LOADED else "warn")

    def _run_block(self) -> None:
        schedule = self.schedule
        now = self.time.now_ns
        start_ns = now()
        asked = self.auditing.wanted
        is_watched = asked is None and self.attendant.wants_windows(start_ns)
        rounds = 1 if is_watched or asked is not None else self._block_rounds()
        flag = 0
        if self.is_warming:
            flag = int(Flag.WARMUP)
        elif start_ns < self.ramp_until_ns or self.turning.is_opening():
            flag = int(Flag.RAMP)
        slots: Sequence[Slot] = schedule.block(rounds) if asked is None else [asked]
        self.attendant.count(0 if asked is not None else len(slots))
        if self.where is not None:
            slots = self.where.along(slots)
        whole = slots if asked is None else list(schedule.quotas)
        if rounds == 1 and (is_watched or self._is_long_round(whole)):
            failure = self._run_long_round(slots, flag)
        else:
            failure = self.timer.enqueue(self.round, slots, schedule.size, flag)
            leave_if_copy(None if failure is None else failure[1])
            if self.unsampled and failure is None and asked is None:
                done = [slot.bench for slot in slots]
                if flag:
                    self.uncounted.update(done)
                else:
                    self.unsampled.difference_update(done)
        if asked is not None:
            self.auditing.hand_back(failure)
            return
        if self.where is not None and not self.timer.queued_ns():
            self.enter(None)
        self.mend(slots)
        self.round += rounds
        if self.turns is not None and self.is_measuring:
            self.turns.spend(rounds)
        self._look_for_standstill(start_ns, now(), rounds)
        took = (now() - start_ns) / rounds
        self.round_ns = took if not self.round_ns else 0.7 * self.round_ns + 0.3 * took
        if failure is not None:
            self.on_failure(failure)

    def _look_for_standstill(self, start_ns: int, end_ns: int, rounds: int) -> None:
        """After a stop (ctrl+z, SIGSTOP) the device is cold: a gap, and the block is ramp too."""
        took_ns = end_ns - start_ns
        if took_ns < STOOD_NS or not 0 < _FAR_LONGER * rounds * self.round_ns < took_ns:
            return
        stood = self.gate.standstill(start_ns, end_ns)
        if stood is None:
            return
        self.extra_flag = int(Flag.RAMP)
        self.drain(wait=True)
        self.extra_flag = 0
        self.emit(Gap(*stood, "the program stood still"))
        self.ramp_until_ns = end_ns + RAMP_NS
        self.round_ns = 0.0

    def _is_long_round(self, slots: Sequence[Slot]) -> bool:
        return sum(self.rows[slot.bench].cost_ns for slot in slots) > _LONG_ROUND_NS

    def _run_long_round(self, slots: Sequence[Slot], flag: int) -> Failure | None:
        """One window at a time; between them the user is heard and the limit is kept."""
        now, size = self.time.now_ns, len(slots)
        for i, slot in enumerate(slots):
            if i and not self._may_go_on(slot):
                continue
            row = self.rows[slot.bench]
            start_ns = now()
            self.enter(row)
            self.attendant.begin()
            failure = self.timer.enqueue(self.round, [slot], size, flag)
            if self.auditing.wanted is not None:
                return failure
            self.attendant.end(slot)
            leave_if_copy(None if failure is None else failure[1])
            if failure is not None:
                return failure
            if not flag:
                self.unsampled.discard(slot.bench)
            self.drain(wait=row.is_slow)
            if row.is_slow:
                self._weigh(row, now() - start_ns)
        return None

    def _may_go_on(self, slot: Slot) -> bool:
        """Between two windows of a long round: whether this one is still wanted."""
        if self._commands:
            self.take_commands()
        if self.gate.wanted and not self.timer.queued_ns():
            self.gate.serve(_GATE_BOUND_NS)
        if self.stop_reason or self.is_paused or slot not in self.schedule.quotas:
            return False
        left_ns = self.left_ns()
        return left_ns is None or (left_ns > 0 and self._fits(slot, left_ns))

    def _weigh(self, row: Row, cost_ns: int) -> None:
        """What a slow row's window costs now; one that only compiled for long is slow no more."""
        was_ns, row.cost_ns = row.cost_ns, cost_ns
        if cost_ns * 4 > min(was_ns, self.slow_ns):
            return
        slot = row.slot
        assert slot is not None
        row.is_slow = False
        slot.hints.pop("slow", None)
        self.emit(Mark(self.time.now_ns(), f"{plain.name(row.name)} is no longer slow", row.bench))
        self.preparation.calibrate(row)
        if not row.is_failed:
            self.preparation.set_inner(self.preparation.window_s, row)
            self.reschedule()

    def _block_rounds(self) -> int:
        if not self.round_ns:
            return 1
        # What the host took says little while a device works off what was queued.
        took_ns = max(self.round_ns, self.work_ns)
        rounds = max(1, min(_MAX_BLOCK, int(_BLOCK_NS / took_ns)))
        iters = self.config.iters
        if iters is not None and not self.is_warming:
            missing = [iters - row.n for row in self.live_rows() if row.n < iters]
            rounds = max(1, min(rounds, max(missing, default=1)))
        turns = self.turns
        if turns is not None and self.is_measuring:
            opening = turns.opening.rounds - turns.index
            rounds = max(1, min(rounds, turns.left, opening if opening > 0 else rounds))
        return rounds

    def _serve_gate(self) -> None:
        """Let the screen paint: under cover of queued work, or between rounds."""
        queued = self.timer.queued_ns()
        if queued:
            for _ in range(_MAX_BLOCK):
                if queued >= _COVER_NS or not self.schedule.size or self.stop_reason:
                    break
                before = queued
                self._run_block()
                queued = self.timer.queued_ns()
                if queued <= before:
                    break  # short kernels or a slow host: more cover than this cannot be had
        opened = self.gate.serve(_GATE_BOUND_NS)
        if opened and not queued:
            self.recall_caches()

    def _idle(self) -> None:
        """No row is live: wait for a command (a row may be switched on again)."""
        if self.retry_at:
            self.retry_rows()
            return
        if all(row.is_failed or row.slot is None for row in self.rows):
            self.stop_reason = "every benchmark failed"
            return
        self.gate.unman()
        self._wake.clear()
        if not self._commands:
            self.time.wait(self._wake, NS_PER_S // 10)
        self.take_commands()
        self.gate.man()

    def _pause(self) -> None:
        self.drain(wait=True)
        start_ns = self.time.now_ns()
        self.progress(RunPhase.PAUSED)
        self.gate.unman()
        while self.is_paused and not self.stop_reason:
            self._wake.clear()
            if not self._commands:
                self.time.wait(self._wake, NS_PER_S // 2)
            self.take_commands()
        self.gate.man()
        now_ns = self.time.now_ns()
        self.emit(Gap(start_ns, now_ns, "paused"))
        self.ramp_until_ns = now_ns + RAMP_NS
        if not self.stop_reason:
            self.progress(RunPhase.WARMING if self.is_warming else RunPhase.MEASURING)

    def _rest(self, wait_ns: int) -> None:
        """The pace's idle time; commands and the end of the run cut it short."""
        self.drain(wait=True)
        left_ns = self.left_ns()
        if left_ns is not None:
            wait_ns = max(0, min(wait_ns, left_ns))
        start_ns = self.time.now_ns()
        self.gate.unman()
        self._wake.clear()
        is_long = wait_ns > _TOLD_REST_NS
        if is_long:
            self.progress("resting", f"{wait_ns / NS_PER_S:.3g} s")
        if not self._commands:
            self.time.wait(self._wake, wait_ns)
        self.gate.man()
        self.emit(Gap(start_ns, self.time.now_ns(), f"pace {self._pace.spec}"))
        if is_long:
            self.progress(RunPhase.WARMING if self.is_warming else RunPhase.MEASURING)

    def _cool_down(self) -> None:
        """Stand still until it is cool, and say what is waited for; give up after two minutes."""
        self.drain(wait=True)
        now = self.time.now_ns
        start_ns = now()
        limit_c = self._pace.cool_c
        self.gate.unman()
        while not self.stop_reason and not self.is_paused and self._pace.rest_ns(0, self._temp_c):
            if self._is_over_time(self.began_ns):
                break
            if now() - start_ns > _COOL_LIMIT_NS:
                evidence = {"temp_c": self._temp_c, "limit_c": limit_c}
                self.note(Code.DOES_NOT_COOL, None, evidence, level="warn")
                self._set_pace("steady", now())
                break
            self.progress("cooling", f"{self._temp_c:g} C, waits for {limit_c:g} C")
            self._wake.clear()
            if not self._commands:
                self.time.wait(self._wake, NS_PER_S // 2)
            self.take_commands()
        self.gate.man()
        self.emit(Gap(start_ns, now(), f"pace {self._pace.spec}"))
        self.progress(RunPhase.WARMING if self.is_warming else RunPhase.MEASURING)

    def take_commands(self) -> None:
        """Do what was asked for by now."""
        while self._commands:
            self._obey(self._commands.popleft())

    def _obey(self, command: Command) -> None:
        verb, argument, bench = command.verb, command.argument, command.bench
        now_ns = self.time.now_ns()
        if bench is not None and not 0 <= bench < len(self.rows):
            return  # a phase of a row, or a row of another run: not one that is scheduled
        if verb == "stop":
            self.stop_reason = self.stop_reason or argument or "quit"
        elif verb == "pause":
            self.is_paused = True
        elif verb == "resume":
            self.is_paused = False
        elif verb == "mark":
            self.emit(Mark(now_ns, argument))
        elif verb == "ramp":
            self.ramp_until_ns = now_ns + RAMP_NS
            if argument:
                self.emit(Mark(now_ns, argument))
        elif verb == "temp":
            self._temp_c = float(argument) if argument else None
        elif verb == "pace":
            self._set_pace(argument, now_ns)
        elif verb in ("solo", "all"):
            self.solo = bench if verb == "solo" else None
            self.ramp_until_ns = now_ns + RAMP_NS
            name = self.rows[bench].name if verb == "solo" and bench is not None else ""
            self.emit(Mark(now_ns, f"solo {plain.name(name)}" if name else "all rows"))
            self.reschedule()
        elif verb in ("on", "off") and bench is not None:
            self._switch(self.rows[bench], is_on=verb == "on")
        elif verb == "realloc" and bench is not None:
            self.rebuilding.plan.want([bench])
        elif verb == "cache" and bench is not None:
            self.preparation.set_cache(self.rows[bench], CacheMode(argument))

    def _set_pace(self, spec: str, now_ns: int) -> None:
        try:
            self._pace = Pace.parse(spec)
        except UsageError as error:
            self.note(Code.BAD_PACE, None, {"reason": str(error)}, level="warn")
            return
        self.ramp_until_ns = now_ns + RAMP_NS
        self.emit(Paced(now_ns, spec))
        self.emit(Mark(now_ns, f"pace {spec}"))

    def _switch(self, row: Row, *, is_on: bool) -> None:
        row.is_on = is_on
        if not row.is_failed:
            self.state(row, RowState.RUNNING if is_on else RowState.OFF)
            if is_on:
                self.emit(Mark(self.time.now_ns(), f"{plain.name(row.name)} on", row.bench))
        self.reschedule()

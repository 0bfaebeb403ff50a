"""Somebody else's script in the measuring loop: its calls become rows while it runs.

The script has the thread; at each of its calls, or groups of calls, the loop runs until these have
what the script asked for, and the script goes on with the numbers.
"""

import contextlib
import ctypes
import gc
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from usv_tui.codes import Code
from usv_tui.diagnosis.checks import vet_result
from usv_tui.engine.auditing import Auditing
from usv_tui.engine.calibrate import prime, try_window
from usv_tui.engine.memory import free_bytes
from usv_tui.engine.row import Row
from usv_tui.engine.runner import Runner
from usv_tui.engine.window import DEFAULT_S
from usv_tui.foreign.calls import Answer, Call, Stopped
from usv_tui.foreign.host import Ending
from usv_tui.foreign.surroundings import Surroundings
from usv_tui.model import EXCLUDED, Benchmark, CacheMode, Notice, RowState, RunConfig, RunPhase
from usv_tui.records import AnyRecord, Calibrated, Command, Mark, Noted, Samples, Timing
from usv_tui.suite.rows import Built
from usv_tui.timers.abilities import ask
from usv_tui.timesource import NS_PER_S

AGREEMENT = 1.3
"""A call's time beside its group, and in place where the script made it, may differ by this."""
_SPAN = 1.1
_LOOKS = 5
"""Windows in place, before a call waits for its group."""
_SPARE = 3.0
"""A group may take so many times what its script asked for: refilling, flushing, warming up."""
_LEAST_S = 0.05
_LEAST_WINDOWS = 12
_MOST_FOR_LEAST_S = 5.0
"""So long a group may take for windows enough to tell their spread, whatever the script asked."""
_FIRST_WARM_S = 1.0
"""An idle card needs about so long to raise its clock; later groups find it raised."""
_MEMORY_SHARE = 4
_WARNS = (Code.SLEEPS_SKIPPED, Code.GROUP_CLOSED)
_TIDY_NS = 5 * NS_PER_S
_GRACE_S = 2.0
"""A group that is being timed ends by itself when the time is over."""


class _Unaudited(Auditing):
    """A script's results are its own matter."""

    def audit(self, *, is_first: bool = False, is_final: bool = False) -> None:
        """Nothing is looked at."""


class GuestRunner(Runner):
    """A `foreign.Conductor`: the loop, a group of a script's calls at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._send: Callable[[AnyRecord], object] = self.emit
        self.emit = self._pass_on
        self.auditing = _Unaudited(self, None)
        self._asked: RunConfig = self.config
        self._calls: dict[int, Call] = {}
        self._block: dict[int, int] = {}
        self._windows: dict[int, list[float]] = {}
        self._errors: dict[int, BaseException] = {}
        self._in_place: dict[int, list[Samples]] = {}
        self._is_over = False
        self._tidied_ns = 0
        self.counted = 0
        """Rows that were timed."""
        most_s = self._asked.max_time_s
        self._end_ns = None if most_s is None else self.time.now_ns() + round(most_s * NS_PER_S)

    @property
    def is_stopped(self) -> bool:
        """Whether the user, or the time, ended it."""
        return self._is_over or (self._end_ns is not None and self.time.now_ns() > self._end_ns)

    @property
    def stop_words(self) -> str:
        """Why it was stopped."""
        is_late = not self._is_over and self._asked.max_time_s is not None
        return f"max time {self._asked.max_time_s:g} s" if is_late else self.stop_reason or "quit"

    # -- records on their way out

    def _pass_on(self, record: AnyRecord) -> None:
        """Windows hold the script's calls, of which one of ours may be many."""
        if isinstance(record, Samples):
            record = self._scaled(record)
            flags = record.all_flags()
            columns = zip(record.bench, record.window_ns, record.inners(), flags, strict=True)
            for bench, window_ns, inner, flag in columns:
                if bench in self._windows and not flag & EXCLUDED:
                    self._windows[bench].append(window_ns / inner / NS_PER_S)
        elif isinstance(record, Calibrated) and record.bench in self._block:
            times = self._block[record.bench]
            record = msgspec.structs.replace(
                record, inner=record.inner * times, per_call_ns=round(record.per_call_ns / times)
            )
        self._send(record)

    def _scaled(self, record: Samples) -> Samples:
        if self._block.keys().isdisjoint(record.bench):
            return record
        times = [self._block.get(bench, 1) for bench in record.bench]
        inner = [i * k for i, k in zip(record.inners(), times, strict=True)]
        return msgspec.structs.replace(record, inner=inner)

    # -- the conductor

    @property
    def room_bytes(self) -> int:
        """A part of what is free: on the device, where there is one."""
        torch: Any = sys.modules.get("torch")
        free = free_bytes() or 1 << 33
        if self._asked.device.startswith("cuda") and torch is not None:
            info = ask(torch.cuda, "mem_get_info")
            free = min(free, info[0]) if info else free
        return int(free) // _MEMORY_SHARE

    def tell(self, code: Code, evidence: Mapping[str, Any], call: Call | None = None) -> None:
        """A notice, of a row where there is one."""
        bench = None if call is None or call.bench < 0 else call.bench
        at_ns, level = self.time.now_ns(), "warn" if code in _WARNS else "info"
        notice = Notice(code=code, at_ns=at_ns, bench=bench, level=level, evidence=dict(evidence))
        self._send(Noted(notice))

    def meet(self, call: Call) -> BaseException | None:
        """Announce a call, make it once in place, and look how long it takes there."""
        self._heed()
        row = self._row_of(call)
        self.enter(row)
        self.state(row, RowState.PREPARING)
        slot = self.preparation.make_slot(row, Built(call.fn, call.reset, None, call.stream, ()))
        first = prime(self.timer, slot, self.time.now_ns)
        call.first_result = first.result
        error = first.error or vet_result(first.result)
        if error is None:
            row.slot = slot
            row.cost_ns = round(first.seconds * NS_PER_S)
            self.unsampled.add(row.bench)
            self.preparation.calibrate(row)
            error = self._errors.get(row.bench)
        if error is not None:
            self.fail(row, error)
        else:
            self._look_in_place(row)
            if self._asked.device != "cpu" and not row.is_slow:
                self.preparation.examine(row, slot)
            self.state(row, RowState.WAITING, "in place")
        self.enter(None)
        return error

    def _row_of(self, call: Call) -> Row:
        call.bench = bench = len(self.rows)
        benchmark = Benchmark(
            name=call.full_name,
            build=lambda _: call.fn,
            group=call.group or call.full_name,
            params=call.params,
            is_baseline=call.is_baseline,
            inner=call.inner,
            cache=CacheMode.COLD if call.is_cold else None,
        )
        row = Row(bench, benchmark)
        row.is_on = False
        self.rows.append(row)
        self._calls[bench] = call
        if call.calls != 1:
            self._block[bench] = call.calls
        self._windows[bench] = []
        self.config = self._asked
        self.preparation.tell_rows([row])
        return row

    def _look_in_place(self, row: Row) -> None:
        """Some windows where the script made the call; a slow one has had a window already."""
        slot, kept = row.slot, self._in_place.setdefault(row.bench, [])
        assert slot is not None
        for _ in range(0 if row.is_slow else _LOOKS):
            found = try_window(self.timer, slot, self.time.now_ns)
            if found.first is not None:
                kept.append(found.first)

    def measure(self, calls: Sequence[Call], *, sequential: str = "") -> list[Answer]:
        """Interleave calls that were met until each has what its script asked for."""
        rows = [self.rows[call.bench] for call in calls if call.bench >= 0]
        live = [row for row in rows if row.slot is not None and not row.is_failed]
        if sequential:
            for row in live:
                self.note(Code.SEQUENTIAL, row, {"reason": sequential})
        before = Surroundings.now()
        try:
            if live:
                self._measure_rows(live)
        finally:
            if before is not None:
                before.enter()
        answers = [self._answer(call) for call in calls]
        for row in rows:
            row.slot = None
            row.is_on = False
            self._in_place.pop(row.bench, None)
        self.reschedule()
        self._heed()
        return answers

    def _measure_rows(self, rows: list[Row]) -> None:
        calls = [self._calls[row.bench] for row in rows]
        self._settle_state(rows, calls)
        for row in rows:
            row.is_on = True
        self.config = config = self._config_of(calls, rows)
        self.slow_ns = NS_PER_S // 2
        self.is_measuring, self.stop_reason, self.limit_ns = False, "", None
        self.preparation.set_inner(self.preparation.target_s)
        self.reschedule()
        self.began_ns = self.time.now_ns()
        states = [call.surroundings for call in calls]
        is_inference = any(s is not None and s.is_inference for s in states)
        with _inference(is_on=is_inference):
            try:
                self._tidy()
                self._warm_up(self.began_ns)
                self.began_ns = self.time.now_ns()
                if not self.stop_reason:
                    self.preparation.look_warm(
                        config.max_time_s * NS_PER_S / 10 if config.max_time_s else 0
                    )
                    self._measure(self.began_ns)
                self.drain(wait=True)
            finally:
                self.gate.unman()
                gc.enable()
                gc.unfreeze()
        self.counted += len(rows)
        for row in rows:
            if not row.is_failed:
                self.state(row, RowState.DONE)
        self.progress(RunPhase.SCRIPT)

    def _tidy(self) -> None:
        """Nothing is left to be collected within a group's time, of which that would take much."""
        now_ns = self.time.now_ns()
        gc.collect(2 if now_ns - self._tidied_ns > _TIDY_NS else 1)
        self._tidied_ns = now_ns
        gc.freeze()
        self.began_ns = self.time.now_ns()

    def _settle_state(self, rows: Sequence[Row], calls: Sequence[Call]) -> None:
        """One state for all is entered once; where they differ, before each window."""
        states = [call.surroundings for call in calls]
        first = states[0]
        is_one = all(state == first for state in states)
        for row, state in zip(rows, states, strict=True):
            assert row.slot is not None
            row.slot.enter = None if is_one or state is None else state.enter
            row.slot.set_refill(0)
        if first is not None:
            first.enter()

    def _config_of(self, calls: Sequence[Call], rows: Sequence[Row]) -> RunConfig:
        """What the script asked for, within what the user asked for."""
        asked = self._asked
        own_s = sum(max(call.seconds, _LEAST_S) for call in calls)
        slowest_s = max(row.cost_ns for row in rows) / NS_PER_S
        least = asked.iters or max((call.samples or 0 for call in calls), default=0) or None
        max_s = _SPARE * own_s + len(rows) * slowest_s
        warm_s = min(asked.warmup_max_s, own_s / 4)
        if not self.counted and asked.device != "cpu":
            warm_s = min(asked.warmup_max_s, _FIRST_WARM_S + warm_s)
        per_round_s = sum(row.cost_ns for row in rows) / NS_PER_S
        max_s = max(max_s, min(1.25 * _LEAST_WINDOWS * per_round_s, _MOST_FOR_LEAST_S))
        if least is None:
            least = max(_LEAST_WINDOWS, round(own_s / max(per_round_s, 1e-9)))
        if self._end_ns is not None:
            max_s = min(max_s, max(_LEAST_S, (self._end_ns - self.time.now_ns()) / NS_PER_S))
        return msgspec.structs.replace(
            asked, iters=least, max_time_s=max_s, warmup_max_s=warm_s, realloc=0,
            target_window_s=asked.target_window_s or DEFAULT_S,
        )  # fmt: skip

    def _answer(self, call: Call) -> Answer:
        bench = call.bench
        windows = self._windows.pop(bench, [])
        if bench in self._errors:
            return Answer(windows, self._errors[bench])
        place = self._place_of(bench)
        if place and windows and not _agree(windows, place):
            evidence = {"beside_s": statistics.median(windows), "place_s": statistics.median(place)}
            row = self.rows[bench]
            self.note(Code.IN_PLACE, row, evidence, level="warn")
            self._send(Mark(self.time.now_ns(), "in place", bench))
            self._give_in_place(bench)
            return Answer(place)
        if not windows and place:
            self._give_in_place(bench)
            windows = place
        return Answer(windows)

    def _place_of(self, bench: int) -> list[float]:
        times = self._block.get(bench, 1)
        return [
            window_ns / inner / times / NS_PER_S
            for record in self._in_place.get(bench, ())
            for window_ns, inner in zip(record.window_ns, record.inners(), strict=True)
        ]

    def _give_in_place(self, bench: int) -> None:
        for record in self._in_place.get(bench, ()):
            self._send(self._scaled(msgspec.structs.replace(record, round=self.round)))
            self.unsampled.discard(bench)
            self.round += 1

    def timed_elsewhere(self, call: Call, windows_s: Sequence[float], reason: str) -> None:
        """Windows that the library's own timer has timed, as they are."""
        if call.bench < 0:
            row = self._row_of(call)
            self.note(Code.SEQUENTIAL, row, {"reason": reason})
            self.state(row, RowState.RUNNING)
            self.counted += 1
        now_ns = self.time.now_ns()
        for seconds in windows_s:
            window_ns = max(1, round(seconds * call.calls * NS_PER_S))
            self._send(Samples(self.round, 1, now_ns, [call.bench], [0], [window_ns], [call.calls]))
            self.round += 1

    def run_script(self, run: Callable[["GuestRunner"], Ending], path: str) -> Ending:
        """Let a script run to its end, and say how it ended."""
        self._send(Timing(self.time.now_ns(), self.timer.info))
        self.progress(RunPhase.SCRIPT, path)
        with _until(self._end_ns, self.time.now_ns):
            ending = run(self)
        self.drain(wait=True)
        self.tell(Code.SCRIPT_ENDED, {"exit": ending.code, "rows": self.counted})
        return ending

    # -- what a suite has and a script has not

    def fail(self, row: Row, error: BaseException, kind: str = "") -> None:
        """The script gets the error where it made the call."""
        self._errors[row.bench] = error
        super().fail(row, error, kind)

    def note(
        self, code: Code, row: Row | None, evidence: dict[str, Any], level: str = "info"
    ) -> None:
        """How long to warm up is the script's choice."""
        if code != Code.NOT_WARMED_UP:
            super().note(code, row, evidence, level)

    def _obey(self, command: Command) -> None:
        self._is_over = self._is_over or command.verb == "stop"
        super()._obey(command)

    def _switch(self, row: Row, *, is_on: bool) -> None:
        """A row that has what it was asked for is not timed again."""
        if row.slot is not None and row.is_on != is_on:
            super()._switch(row, is_on=is_on)

    def _heed(self) -> None:
        """Between the script's own doings.

        Raises:
            Stopped: the run is to end.
        """
        self.take_commands()
        if self.is_stopped:
            raise Stopped


def _agree(beside: Sequence[float], place: Sequence[float]) -> bool:
    """Within a factor, or within what the windows of either themselves span."""
    one, other = statistics.median(beside), statistics.median(place)
    if max(one, other) <= AGREEMENT * min(one, other):
        return True
    ordered = sorted(beside)
    low, high = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
    return low <= max(place) * _SPAN and min(place) <= high * _SPAN


@contextlib.contextmanager
def _until(end_ns: int | None, now_ns: Callable[[], int]) -> Iterator[None]:
    """A script that does not come to its end in time is stopped wherever its Python code is."""
    if end_ns is None:
        yield
        return
    thread = threading.get_ident()

    def stop() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(Stopped)
        )

    timer = threading.Timer(max(0.0, (end_ns - now_ns()) / NS_PER_S + _GRACE_S), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _inference(*, is_on: bool) -> Iterator[None]:
    if not is_on:
        yield
        return
    torch: Any = sys.modules["torch"]
    with torch.inference_mode():
        yield

"""Calls that do not return: told while they last, and given up when they have lasted too long."""

from usv_tui.codes import Code
from usv_tui.engine.choice import LIBRARY
from usv_tui.errors import ExitCode
from usv_tui.model import AT_WORK, Notice, RowState, RunConfig, RunPhase
from usv_tui.records import AnyRecord, BenchError, Gap, Noted, Output, Progress, State
from usv_tui.session.live import Loss
from usv_tui.session.relay import Relay
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S

STUCK_NS = 10 * NS_PER_S
"""A call is told when it has lasted this long, and again whenever that has doubled."""
_OVERDUE_NS = 3 * NS_PER_S
"""How long after its limit a run waits for the call that it is in."""
_LIBRARY_S = 300.0
"""The import of what measures is not the file's: at least so long may it take."""
_SCRIPT_NS = 6 * NS_PER_S
"""Its own Python code is stopped before that; a call that waits in C is not."""
_OVER = "--max-time S gives it more"
_HINT = "--row-timeout S gives it more"


class Watchdog:
    """Looks at a worker through what it says and, when it says nothing, where it is."""

    def __init__(self, store: Store, source: Relay, config: RunConfig, now_ns: int) -> None:
        self._store = store
        self._source = source
        self._max_time_s = config.max_time_s
        self._timeout_s = config.row_timeout_s
        self._heard_ns = now_ns
        self._busy_since_ns = 0
        """Since when samples can be expected: not while measuring stood still on purpose."""
        self._next_ns = STUCK_NS
        self._stuck: set[int] = set()
        self._began_ns: int | None = None
        self._due_ns: int | None = None

    def hear(self, record: AnyRecord, now_ns: int) -> None:
        """Something that the worker said: it is alive."""
        if isinstance(record, Output):
            return
        self._heard_ns, self._next_ns = now_ns, STUCK_NS
        if isinstance(record, Gap | Progress):
            self._busy_since_ns = now_ns

    def look(self, now_ns: int, *, is_paused: bool, is_due: bool) -> list[AnyRecord]:
        """What there is to say; `is_due` when the run has its goal."""
        phase = self._store.course.phase
        if phase in AT_WORK and not is_paused:
            return self._at_hang(now_ns) + self._at_overdue(now_ns, is_due=is_due)
        records = self._back(now_ns)
        quiet_ns = now_ns - self._heard_ns
        if phase == RunPhase.IMPORTING:
            return records + self._at_import(now_ns, quiet_ns)
        if phase == RunPhase.PRIMING:
            return records + self._at_preparing(now_ns, quiet_ns)
        if phase == RunPhase.SCRIPT:
            self._at_script(now_ns)
        return records

    def _at_script(self, now_ns: int) -> None:
        """A script is given up that goes on with something of its own when the time is over."""
        self._began_ns = self._began_ns or now_ns
        limit_s = self._max_time_s
        if limit_s is not None and now_ns - self._began_ns > limit_s * NS_PER_S + _SCRIPT_NS:
            loss = Loss("hang", f"the script did not end within {limit_s:g} s", None, _OVER)
            self._source.give_up(loss)

    def _is_news(self, quiet_ns: int) -> bool:
        if quiet_ns < self._next_ns:
            return False
        if self._next_ns == STUCK_NS:
            self._source.tell_stack()
        while self._next_ns <= quiet_ns:
            self._next_ns *= 2
        return True

    def _give_up(
        self, bench: int | None, what: str, quiet_ns: int, code: ExitCode, least_s: float = 0.0
    ) -> None:
        timeout_s = max(self._timeout_s, least_s)
        if quiet_ns >= timeout_s * NS_PER_S:
            what = f"{what} did not end within {timeout_s:g} s"
            if self._next_ns == STUCK_NS:
                self._source.tell_stack()
            self._heard_ns += quiet_ns
            self._source.give_up(Loss("hang", what, bench, _HINT, int(code)))

    # -- before measuring

    def _at_import(self, now_ns: int, quiet_ns: int) -> list[AnyRecord]:
        detail = self._store.course.detail
        is_device = detail.startswith("the timer")
        what = detail if is_device else f"the import of {detail}"
        records: list[AnyRecord] = []
        if self._is_news(quiet_ns):
            records.append(_note(Code.LONG_IMPORT, now_ns, None, quiet_ns, what=what))
        code = ExitCode.NO_DEVICE if is_device else ExitCode.USAGE
        self._give_up(None, what, quiet_ns, code, _LIBRARY_S if detail == LIBRARY else 0.0)
        return records

    def _at_preparing(self, now_ns: int, quiet_ns: int) -> list[AnyRecord]:
        """A first call may compile for minutes: say so, row by row, and again as it gets longer."""
        bench = self._prepared()
        if bench is None:
            return []
        records: list[AnyRecord] = []
        state = self._store.rows[bench].state
        if self._is_news(quiet_ns):
            words = "in its trial calls" if state is RowState.WAITING else str(state)
            records.append(_note(Code.LONG_FIRST_CALL, now_ns, bench, quiet_ns, state=words))
        self._give_up(bench, _call(state), quiet_ns, ExitCode.WORKER_LOST)
        return records

    def _prepared(self) -> int | None:
        rows = self._store.rows
        for bench, row in rows.items():
            if row.state in (RowState.PREPARING, RowState.COMPILING):
                return bench
        return next((bench for bench in self._source.current() or () if bench in rows), None)

    # -- while measuring

    def _back(self, now_ns: int) -> list[AnyRecord]:
        """Rows that were stuck and are no more."""
        back: list[AnyRecord] = [
            State(now_ns, bench, RowState.RUNNING)
            for bench in self._stuck
            if self._store.rows[bench].state is RowState.STUCK
        ]
        self._stuck.clear()
        return back

    def _at_hang(self, now_ns: int) -> list[AnyRecord]:
        quiet_ns = now_ns - max(self._store.last_sample_ns, self._busy_since_ns)
        if quiet_ns < STUCK_NS:
            self._next_ns = STUCK_NS
            return self._back(now_ns)
        current = self._source.current()
        rows = [bench for bench in current or () if bench in self._store.rows]
        if current is not None and not rows:
            return []
        records: list[AnyRecord] = []
        if self._is_news(quiet_ns):
            benches: list[int | None] = [*rows] or [None]
            records += [_note(Code.STUCK, now_ns, b, quiet_ns, level="warn") for b in benches]
        seconds = quiet_ns / NS_PER_S
        self._stuck.update(rows)
        records += [State(now_ns, b, RowState.STUCK, f"{seconds:.0f} s") for b in rows]
        if rows:
            self._give_up(rows[0], _call(RowState.RUNNING), quiet_ns, ExitCode.WORKER_LOST)
        return records

    def _at_overdue(self, now_ns: int, *, is_due: bool) -> list[AnyRecord]:
        """A call that hangs must not outlive the run's limit: the session ends without it."""
        if self._began_ns is None:
            self._began_ns = now_ns
        limit_s = self._max_time_s
        over = limit_s is not None and now_ns - self._began_ns > limit_s * NS_PER_S
        if not (is_due or over):
            self._due_ns = None
            return []
        self._due_ns = self._due_ns or now_ns
        quiet_ns = now_ns - max(self._due_ns, self._store.last_sample_ns, self._busy_since_ns)
        if quiet_ns < _OVERDUE_NS:
            return []
        what = "still inside one call when its time was over"
        records: list[AnyRecord] = [
            BenchError(now_ns, bench, "hang", f"hang: {what}")
            for bench in self._source.current() or ()
        ]
        return [*records, Progress(now_ns, RunPhase.ENDED, f"time over, {what}", is_failure=True)]


def _call(state: RowState) -> str:
    if state is RowState.PREPARING:
        return "its set-up"
    return "its first call" if state is RowState.COMPILING else "one of its calls"


def _note(
    code: Code, now_ns: int, bench: int | None, quiet_ns: int, level: str = "info", **more: str
) -> Noted:
    evidence = {"seconds": quiet_ns / NS_PER_S, **more}
    return Noted(Notice(code=code, at_ns=now_ns, bench=bench, level=level, evidence=evidence))

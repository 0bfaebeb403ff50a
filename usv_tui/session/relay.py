"""A measurement that outlives its workers: one that dies or hangs is followed by a fresh one.

The row in whose code it was lost is retired as failed; the samples of all stay, the others go on in
the next worker, and the break stands in the session as a gap.
"""

import math
from collections import Counter
from collections.abc import Callable

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.errors import ExitCode
from usv_tui.model import AT_WORK, EXCLUDED, BenchInfo, Notice, RowState, RunPhase, WorkRequest
from usv_tui.records import (
    AnyRecord,
    Bench,
    BenchError,
    Chosen,
    Command,
    Fault,
    Gap,
    Noted,
    Progress,
    Samples,
    Skip,
    State,
    Timing,
)
from usv_tui.session.live import ChildSource, Loss, ThreadSource
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

MOST_WORKERS = 10
"""One that dies more often is not worth another one, unless somebody asks for it."""
_RENEW_S = 0.5
"""How long a worker that is replaced on request may take to leave in order."""
_KEPT = ("pace", "temp")
_STAGES = {RowState.PREPARING: "its set-up", RowState.COMPILING: "its first call"}


class Relay:
    """A source of records, whatever becomes of the workers behind it."""

    def __init__(
        self,
        make: Callable[[WorkRequest], ThreadSource | ChildSource],
        request: WorkRequest,
        *,
        is_process: bool = False,
        time_source: TimeSource | None = None,
    ) -> None:
        """`make` starts a worker; only in a process of its own a lost device may come back."""
        self._make = make
        self._request = request
        self._is_process = is_process
        self._time = time_source or MonotonicTime()
        self._carrier = make(request)
        self._workers = 1
        self._most_workers = MOST_WORKERS
        self._rows: dict[int, BenchInfo] = {}
        self._states: dict[int, RowState] = {}
        self._retired: set[int] = set()
        self._lost: set[int] = set()
        """Those of the retired that took their worker with them, or did not return."""
        self._is_given_up = False
        """Ended for want of a worker, not because it was done."""
        self._heard: set[type] = set()
        self._known: set[type] = set()
        """What earlier workers have said of themselves; all of them say it."""
        self._more: list[AnyRecord] = []
        self._ids: dict[int, int] = {}
        """Phases of a later worker, and what they were called by an earlier one."""
        self._done: Counter[int] = Counter()
        self._round = 0
        self._began_ns: int | None = None
        self._gap: tuple[int, str] | None = None
        self._fatal: Loss | None = None
        self._is_over = self._is_stopped = False
        self._standing: dict[tuple[str, int | None], Command] = {}

    def start(self) -> None:
        """Begin to measure."""
        self._carrier.start()

    # -- what it passes on

    def drain(self) -> list[AnyRecord]:
        """Everything new, in order, and what became of the worker."""
        loss = self._carrier.loss
        records, self._more = self._more, []
        for record in self._carrier.drain():
            records += self._pass_on(record)
        loss = loss or self._fatal
        if loss is not None and not self._is_over:
            records += self._follow(loss)
        return records

    def _pass_on(self, record: AnyRecord) -> list[AnyRecord]:
        if isinstance(record, Samples):
            return [self._count(record)]
        if isinstance(record, Bench):
            return self._meet(record)
        if isinstance(record, State):
            self._states[record.bench] = record.state
        elif isinstance(record, BenchError):
            self._retired.add(record.bench)
            if record.fatal and self._is_process:
                self._fatal = Loss("device", record.message, None)
                self._lost.add(record.bench)
                return [msgspec.structs.replace(record, fatal=False)]
        elif isinstance(record, Progress):
            return self._progress(record)
        elif (
            isinstance(record, Noted) and record.notice.code == Code.SIGNALLED and self._is_stopped
        ):
            return []  # it came to all of us
        elif isinstance(record, Timing | Chosen | Skip):
            self._heard.add(type(record))
            return [] if type(record) in self._known else [record]
        return [record]

    def _progress(self, record: Progress) -> list[AnyRecord]:
        before: list[AnyRecord] = []
        if record.phase in AT_WORK:
            self._began_ns = self._began_ns or record.at_ns
            if self._gap is not None:
                (from_ns, why), self._gap = self._gap, None
                before.append(Gap(from_ns, record.at_ns, why))
        elif record.phase == RunPhase.ENDED:
            if self._fatal is not None:
                return []
            self._is_over = True
            most_s = self._request.config.max_time_s
            if most_s is not None and record.detail.startswith("max time"):
                record = msgspec.structs.replace(record, detail=f"max time {most_s:g} s")
        return [*before, record]

    def _count(self, block: Samples) -> Samples:
        n = len(block.bench)
        self._round = max(self._round, block.round + math.ceil(n / block.size))
        if self._request.config.iters is not None:
            flags = block.all_flags()
            self._done.update(
                b for b, f in zip(block.bench, flags, strict=True) if not f & EXCLUDED
            )
        if self._ids:
            ids = [self._ids.get(bench, bench) for bench in block.bench]
            return msgspec.structs.replace(block, bench=ids)
        return block

    def _meet(self, record: Bench) -> list[AnyRecord]:
        """A row, or a phase of one, which may have had another number in an earlier worker."""
        info = record.info
        parent = None if info.parent is None else self._ids.get(info.parent, info.parent)
        for bench, known in self._rows.items():
            if (known.name, known.parent, known.control_of) == (info.name, parent, info.control_of):
                if bench != info.bench:
                    self._ids[info.bench] = bench
                return []
        bench = info.bench
        if bench in self._rows:
            bench = max(self._rows) + 1
            self._ids[info.bench] = bench
        info = msgspec.structs.replace(info, bench=bench, parent=parent)
        self._rows[bench] = info
        return [msgspec.structs.replace(record, info=info)]

    # -- when a worker is lost

    def _follow(self, loss: Loss) -> list[AnyRecord]:
        now_ns = self._time.now_ns()
        self._fatal = None
        self._carrier.close(0)
        records = self._retire(loss, now_ns)
        left_s = self._left_s(now_ns)
        live = [b for b, info in self._rows.items() if info.parent is None]
        if self._is_stopped:
            return records + self._end(now_ns, "stopped")
        if self._request.script is not None:
            return records + self._leave(now_ns, loss)
        if not records and loss.kind != "device":
            return self._fail(now_ns, loss)
        if all(bench in self._retired for bench in live):
            return records + self._end(now_ns, "every benchmark failed")
        if left_s is not None and left_s <= 0:
            return records + self._end(now_ns, f"max time {self._request.config.max_time_s:g} s")
        if self._workers >= self._most_workers:
            times = f"{MOST_WORKERS} times, the last time: "
            return records + self._fail(now_ns, loss._replace(what=times + loss.what))
        name = "" if loss.bench is None else f" in {plain.name(self._rows[loss.bench].name)}"
        why = f"a fresh worker after {loss.what}{name}"
        return [*records, self._restart(why, now_ns, left_s, "warn")]

    def _retire(self, loss: Loss, now_ns: int) -> list[AnyRecord]:
        """The row in whose code it happened, and its double."""
        row = None if loss.bench is None else self._rows.get(loss.bench)
        if row is None:
            return []
        base = row.bench if row.control_of is None else row.control_of
        stage = _STAGES.get(self._states.get(row.bench, RowState.RUNNING), "one of its calls")
        why = f" ({loss.hint})" if loss.hint else ""
        message = f"{loss.what}{why}: the measuring {self._noun} was lost in {stage}"
        if loss.kind == "hang":
            message = f"{loss.what}: given up{why}"
            if not self._is_process:
                message += "; it still runs and costs the others time (--isolate ends it)"
        records: list[AnyRecord] = []
        for bench, info in self._rows.items():
            if bench in self._retired or base not in (bench, info.control_of):
                continue
            self._retired.add(bench)
            self._lost.add(bench)
            records.append(BenchError(now_ns, bench, loss.kind, message))
            records.append(State(now_ns, bench, RowState.FAILED, message))
        return records

    @property
    def _noun(self) -> str:
        return "process" if self._is_process else "thread"

    def _left_s(self, now_ns: int) -> float | None:
        most_s = self._request.config.max_time_s
        if most_s is None or self._began_ns is None:
            return most_s
        return most_s - (now_ns - self._began_ns) / NS_PER_S

    def _restart(self, why: str, now_ns: int, left_s: float | None, level: str) -> Noted:
        self._workers += 1
        self._gap = (now_ns, why)
        self._known |= self._heard
        request = msgspec.structs.replace(
            self._request,
            retired=sorted(self._retired),
            done=dict(self._done),
            first_round=self._round + 1,
            config=msgspec.structs.replace(self._request.config, max_time_s=left_s),
        )
        self._ids = {}
        self._carrier = self._make(request)
        for command in self._standing.values():
            self._carrier.command(command)
        self._carrier.start()
        evidence = {"why": why}
        return Noted(Notice(code=Code.FRESH_WORKER, at_ns=now_ns, level=level, evidence=evidence))

    def _end(self, now_ns: int, reason: str) -> list[AnyRecord]:
        self._is_over = True
        return [Progress(now_ns, RunPhase.ENDED, reason)]

    def _leave(self, now_ns: int, loss: Loss) -> list[AnyRecord]:
        """A script that left without a word is not run once more: what it did, it did."""
        if loss.code is None:
            return self._fail(now_ns, loss)
        reason = f"the script left with exit code {loss.code}"
        evidence = {"exit": loss.code, "rows": len(self._rows)}
        ended = Notice(code=Code.SCRIPT_ENDED, at_ns=now_ns, evidence=evidence)
        return [Noted(ended), *self._end(now_ns, reason)]

    def _fail(self, now_ns: int, loss: Loss) -> list[AnyRecord]:
        self._is_given_up = True
        what, hint = loss.what, loss.hint
        if loss.exit_code == ExitCode.WORKER_LOST:
            what = f"the measuring {self._noun} died: {what}"
            hint = hint or "the samples until then are kept; its last output is in the log"
        fault = Fault(now_ns, loss.exit_code, what, hint)
        return [fault, *self._end(now_ns, f"worker lost: {loss.what}")]

    # -- a fresh one on request

    def why_not_renew(self) -> str:
        """Why no fresh worker can be had on request; empty when one can."""
        left_s = self._left_s(self._time.now_ns())
        if self._request.script is not None:
            return "a script is not run once more"
        if not self._is_process:
            return "only under --isolate can lost rows be tried again"
        if self._is_stopped:
            return "the run has been ended"
        if not self._lost and not self._is_given_up:
            return "no row was lost"
        return "" if left_s is None or left_s > 0 else "the time of the run is over"

    def renew(self) -> str:
        """Give lost rows, or a run that was given up, a fresh worker; returns why not."""
        why_not = self.why_not_renew()
        if why_not:
            return why_not
        self._carrier.close(_RENEW_S)
        for record in self._carrier.drain():
            if not (isinstance(record, Progress) and record.is_end):
                self._more += self._pass_on(record)
        now_ns = self._time.now_ns()
        self._fatal, self._is_over, self._is_given_up = None, False, False
        lost, self._lost = self._lost, set()
        self._retired -= lost
        self._most_workers = self._workers + MOST_WORKERS
        left_s = self._left_s(now_ns)
        self._more.append(self._restart("a fresh worker on request", now_ns, left_s, "info"))
        for bench in sorted(lost):
            self._more.append(Noted(Notice(code=Code.TRIED_AGAIN, at_ns=now_ns, bench=bench)))
            self._more.append(State(now_ns, bench, RowState.WAITING))
        return ""

    # -- what it takes

    def command(self, command: Command) -> None:
        """To the worker; what stays so is told to the next one as well."""
        verb, bench = command.verb, command.bench
        self._is_stopped = self._is_stopped or verb == "stop"
        if verb in _KEPT:
            self._standing[verb, None] = command
        elif verb in ("pause", "resume"):
            self._standing["pause", None] = command
        elif verb in ("solo", "all"):
            self._standing["solo", None] = command
        elif verb in ("on", "off"):
            self._standing["on", bench] = command
        elif verb == "cache":
            self._standing["cache", bench] = command
        self._carrier.command(command)

    def current(self) -> tuple[int, ...] | None:
        """The rows in whose code the worker is."""
        return self._carrier.current()

    def tell_stack(self) -> None:
        """Let the worker's stack come as output."""
        self._carrier.tell_stack()

    def give_up(self, loss: Loss) -> None:
        """Leave the worker behind, in the call that does not return."""
        self._carrier.give_up(loss)

    def close(self, timeout_s: float) -> bool:
        """Stop the worker; True when it has ended within the time."""
        self._is_stopped = True
        return self._carrier.close(timeout_s)

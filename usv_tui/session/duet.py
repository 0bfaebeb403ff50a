"""Two versions measured as one session: two workers a launch, launch after launch, one stream.

Takes the place of a `Relay`: it starts both workers of a launch, gives their rows numbers of the
session's own, and follows a launch with the next one until there are enough. A row that takes its
worker with it, or fails in one version, is lost in both, and named; the others go on in a fresh
launch. The workers hand the turn to each other (`engine.turns`); here nobody is waited for.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.engine import turns
from usv_tui.errors import ExitCode
from usv_tui.model import BenchInfo, DuetPart, Notice, RowState, RunPhase, WorkRequest
from usv_tui.records import (
    AnyRecord,
    Bench,
    BenchError,
    Calibrated,
    Chosen,
    Command,
    Fault,
    Headway,
    Launch,
    Launched,
    Mark,
    Noted,
    Output,
    Progress,
    Rebuilt,
    Samples,
    Skip,
    State,
    Timing,
    Version,
)
from usv_tui.session.launches import Launches
from usv_tui.session.live import ChildSource, Ends, Loss, ThreadSource
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

FEWEST, MOST = 5, 12
"""Launches when nobody says how many."""
NARROW = math.log1p(0.01)
"""Half an interval: no more launches are made once every row's is as narrow."""
MOST_LOST = 10
"""Launches that may be broken off …"""
MOST_UNEXPLAINED = 2
"""… and for no row's sake."""
_LEAVE_S = 2.0
"""How long a worker whose launch is over may take to leave."""
BOTH = (0, 1)
_BOTH_HELD = " (both versions hold their inputs at once: fewer rows with -k, or smaller ones)"
_NO_ROW = "no row is left that both versions have"

Carrier = ThreadSource | ChildSource
Make = Callable[[int, WorkRequest, Ends], Carrier]


class Plan(NamedTuple):
    """What is compared, and how often."""

    versions: tuple[Version, Version]
    requests: tuple[WorkRequest, WorkRequest]
    launches: int | None = None
    """None: from `FEWEST` to `MOST`, until the intervals are narrow."""
    launch_s: float = 4.0
    results: str = ""
    """Folder for what rows return."""
    foreign: tuple[str, str] = ("", "")
    """For each version, a folder from which nothing of it may come."""
    first_warmup_s: float = 10.0
    warmup_s: float = 1.0
    """Of all workers but the first: the device is warm by then."""


class Head(NamedTuple):
    """A version that is to take the later one's place."""

    version: Version
    request: WorkRequest


class SavedVersions(Protocol):
    """What is saved while a comparison runs, as far as it can be measured."""

    def look(self) -> tuple[list[AnyRecord], Head | None]:
        """What there is to say, and the next version once it is known to be one."""
        ...

    def close(self) -> None:
        """Nothing more is wanted."""
        ...


class _Side:
    """One version's worker, and what the session calls its rows."""

    def __init__(self) -> None:
        self.carrier: Carrier | None = None
        self.ids: dict[int, int] = {}
        self.local: dict[int, int] = {}
        self.has_ended = self.is_imported = self.is_ready = False
        self.rows: dict[int, BenchInfo] = {}
        """Its rows by the session's numbers."""
        self.chosen: Chosen | None = None


class Duet:
    """A source of records, as a `Relay` is."""

    def __init__(self, make: Make, plan: Plan, time_source: TimeSource | None = None) -> None:
        """`make` starts a worker of version 0 or 1 that has these ends of the token's pipes."""
        self._make, self._plan = make, plan
        self._time = time_source or MonotonicTime()
        self._sides = (_Side(), _Side())
        self._versions, self._requests = list(plan.versions), list(plan.requests)
        self._foreign = list(plan.foreign)
        self._done_before = 0
        """Launches of earlier heads."""
        self.saves: SavedVersions | None = None
        """Where new heads come from, in a run that watches the file."""
        self._next: Head | None = None
        self._is_waiting = False
        self.launches = Launches()
        """What they say so far."""
        self._number = 0
        self._lost = self._unexplained = 0
        self._round = 0
        self._names: dict[tuple[str, int | None], int] = {}
        """A row's number in version 0, by its name and the row around it."""
        self._next_id = 0
        self._without: dict[str, str] = {}
        """Rows that cannot be compared, and why."""
        self._calls: dict[str, list[int]] = {}
        self._more: list[AnyRecord] = []
        self._standing: dict[tuple[str, int | None], Command] = {}
        self._passed: set[tuple[object, ...]] = set()
        self._is_over = self._is_stopped = self._is_measuring = False
        self._told_handover: dict[int, Noted] = {}
        self._began_ns: int | None = None
        self._handover_ns = self._launched_ns = 0

    @property
    def wanted(self) -> int:
        """Launches that there are to be, as far as known."""
        return self._plan.launches or max(FEWEST, self._of_head + 1)

    @property
    def _of_head(self) -> int:
        """Launches of this head that have ended."""
        return self.launches.done - self._done_before

    def label(self, side: int) -> str:
        """What a version is called."""
        return self._versions[side].label

    def rows(self, side: int) -> list[BenchInfo]:
        """Those that a version has told of."""
        return list(self._sides[side].rows.values())

    @property
    def _is_first(self) -> bool:
        """This launch is the first one of its head."""
        return self._of_head == 0

    # -- launches

    def start(self) -> None:
        """Begin with the first launch."""
        now_ns = self._time.now_ns()
        self._say([msgspec.structs.replace(v, at_ns=now_ns) for v in self._versions])
        self._begin()

    def _say(self, records: list[AnyRecord]) -> None:
        self.launches.fold(records)
        self._more += records

    def _begin(self) -> None:
        """A launch: both workers, and the token on its way to the first."""
        self._number += 1
        self._is_measuring = self._is_waiting = False
        self._launched_ns = self._time.now_ns()
        self._told_handover.clear()
        ends = turns.lines()
        for side in BOTH:
            one = self._sides[side]
            one.ids, one.local = {}, {}
            one.has_ended = one.is_imported = one.is_ready = False
            one.carrier = self._make(side, self._request(side), ends[side])
        for side in BOTH:
            self._carrier(side).start()
        for command in list(self._standing.values()):
            self._pass_down(command)

    def _request(self, side: int) -> WorkRequest:
        plan, first = self._plan, self._requests[side]
        is_first = self._is_first
        most_s = first.config.warmup_max_s if self._number == 1 and side == 0 else plan.warmup_s
        part = DuetPart(
            side=side,
            number=self._number,
            seed=first.config.seed + self._number,
            launch_s=plan.launch_s,
            handover_ns=self._handover_ns,
            calls=self._calls,
            without=list(self._without),
            results=plan.results if is_first else "",
            foreign=self._foreign[side],
        )
        config = msgspec.structs.replace(
            first.config,
            warmup_max_s=min(first.config.warmup_max_s, most_s),
            max_time_s=None,
            iters=None,
            realloc=0,
        )
        return msgspec.structs.replace(first, duet=part, config=config, first_round=self._round + 1)

    def _carrier(self, side: int) -> Carrier:
        carrier = self._sides[side].carrier
        assert carrier is not None
        return carrier

    # -- what it passes on

    def drain(self) -> list[AnyRecord]:
        """Everything new, and what follows from it."""
        records, self._more = self._more, []
        if self._is_over or not self._number:
            return records
        if self.saves is not None:
            records += self._heed_saves(self.saves)
        if self._is_waiting:
            return records
        for side in BOTH:
            loss = self._carrier(side).loss
            for record in self._carrier(side).drain():
                said = self._pass_on(side, record)
                self.launches.fold(said)
                records += said
            if loss is not None and not self._sides[side].has_ended and not self._is_over:
                records += self._on_loss(side, loss)
                return records
        self._mind_the_time()
        self._mind_the_imports()
        if not self._is_over and all(one.has_ended for one in self._sides):
            records += self._on_end()
        return records

    def _mind_the_time(self) -> None:
        """The run's limit ends a launch as well."""
        most_s = self._plan.requests[0].config.max_time_s
        if most_s is None or self._began_ns is None or self._is_stopped or not self._is_measuring:
            return
        if self._time.now_ns() - self._began_ns >= most_s * NS_PER_S:
            self.command(Command("stop", f"max time {most_s:g} s"))

    def _mind_the_imports(self) -> None:
        """An import that does not end is that of one version, whatever the other one does."""
        most_s = self._requests[0].config.row_timeout_s
        if self._time.now_ns() - self._launched_ns < most_s * NS_PER_S:
            return
        for side in BOTH:
            one = self._sides[side]
            carrier = self._carrier(side)
            if not (one.is_imported or one.has_ended or carrier.loss is not None):
                what = f"the import of {Path(self._requests[side].path).name}"
                hint = "--row-timeout S gives it more"
                carrier.give_up(
                    Loss(
                        "hang",
                        f"{what} did not end within {most_s:g} s",
                        None,
                        hint,
                        int(ExitCode.USAGE),
                    )
                )

    def _on_end(self) -> list[AnyRecord]:
        """Both workers of a launch have said their last word."""
        now_ns = self._time.now_ns()
        records: list[AnyRecord] = []
        if self._told_handover:
            records.append(self._launched(now_ns))
            self.launches.fold(records)
        for side in BOTH:
            self._carrier(side).close(_LEAVE_S)
        why = self._why_enough(now_ns)
        if self.saves is not None and not self._is_stopped and not why.startswith("max time"):
            return records + self._go_on_watching(why)
        if why:
            return records + self._end(why, is_failure=why == _NO_ROW or not self.launches.ended)
        self._begin()
        return records

    def _launched(self, now_ns: int) -> Launched:
        told = [note.notice.evidence for note in self._told_handover.values()]
        longest = max(told, key=lambda e: e["elapsed_ns"])
        total_ns = sum(e["total_ns"] for e in told)
        self._handover_ns = round(total_ns / max(1, *(e["turns"] for e in told)))
        return Launched(
            now_ns,
            self._number,
            max(e["turns"] for e in told),
            longest["rounds"],
            round(max(e["median_ns"] for e in told)),
            round(max(e["p99_ns"] for e in told)),
            total_ns / max(1, longest["elapsed_ns"]),
            max(e["opening"] for e in told),
        )

    def _why_enough(self, now_ns: int) -> str:
        plan, done = self._plan, self._of_head
        most_s = plan.requests[0].config.max_time_s
        began_ns = now_ns if self._began_ns is None else self._began_ns
        if most_s is not None and now_ns - began_ns >= most_s * NS_PER_S:
            return f"max time {most_s:g} s"
        if all(one.rows for one in self._sides) and not self._comparable():
            return _NO_ROW
        if self._is_stopped:
            return "stopped"
        if self._began_ns is None:
            return "nothing was measured"
        if not self._told_handover:
            return "a launch ended before its first turn"
        if plan.launches is not None:
            return f"{done} launches" if done >= plan.launches else ""
        if done >= MOST:
            return f"{done} launches, the most that are made unasked"
        is_enough = done >= FEWEST and self.launches.is_narrow(NARROW, self._versions[1].index)
        return f"{done} launches" if is_enough else ""

    def _comparable(self) -> list[str]:
        mine, theirs = (
            {i.plain_name for i in one.rows.values() if i.parent is None} for one in self._sides
        )
        return [name for name in mine & theirs if name not in self._without]

    def _end(self, reason: str, *, is_failure: bool = False) -> list[AnyRecord]:
        self._is_over = True
        return [Progress(self._time.now_ns(), RunPhase.ENDED, reason, is_failure)]

    def _pass_on(self, side: int, record: AnyRecord) -> list[AnyRecord]:
        one = self._sides[side]
        if isinstance(record, Samples):
            return [self._samples(one, record)]
        if isinstance(record, Bench):
            return self._meet(side, record)
        if isinstance(record, Progress):
            return self._progress(side, record)
        if isinstance(record, BenchError):
            return self._on_error(side, record)
        if isinstance(record, Fault) and side == 1 and self.saves is not None:
            return [self._refused(record.message)]
        if isinstance(record, Fault):
            message = f"{self.label(side)}: {record.message}"
            return [msgspec.structs.replace(record, message=message)]
        if isinstance(record, Noted):
            return self._noted(side, record)
        if isinstance(record, State):
            return self._state(side, record)
        if isinstance(record, Calibrated):
            bench = one.ids.get(record.bench, record.bench)
            info = one.rows.get(bench)
            if info is not None and side == 0:
                self._calls[info.plain_name] = [record.inner, record.refill]
            return [msgspec.structs.replace(record, bench=bench)]
        if isinstance(record, Launch):
            return self._launch(record)
        if isinstance(record, Chosen):
            return self._chosen(side, record)
        if isinstance(record, Rebuilt):
            return []
        if isinstance(record, Timing):
            return self._once(type(record), record)
        if isinstance(record, Skip):
            return self._once((record.name, record.reason), record)
        if isinstance(record, Output):
            return [msgspec.structs.replace(record, text=f"{self.label(side)}| {record.text}")]
        if isinstance(record, Mark) and record.bench is not None:
            bench = one.ids.get(record.bench, record.bench)
            return [msgspec.structs.replace(record, bench=bench)]
        return [record]

    def _once(self, key: object, record: AnyRecord) -> list[AnyRecord]:
        if (key,) in self._passed:
            return []
        self._passed.add((key,))
        return [record]

    def _samples(self, one: _Side, block: Samples) -> Samples:
        self._round = max(self._round, block.round + math.ceil(len(block.bench) / block.size))
        ids = one.ids
        return msgspec.structs.replace(block, bench=[ids.get(b, b) for b in block.bench])

    def _meet(self, side: int, record: Bench) -> list[AnyRecord]:
        one, info = self._sides[side], record.info
        parent = None if info.parent is None else one.ids.get(info.parent)
        for bench, known in one.rows.items():
            if (known.plain_name, known.parent) == (info.name, parent):
                one.ids[info.bench], one.local[bench] = bench, info.bench
                return []
        bench, rival = self._next_id, None
        self._next_id += 1
        around = parent
        if side == 1 and parent is not None:
            around = one.rows[parent].rival
        if side == 0:
            self._names[info.name, around] = bench
        else:
            rival = self._names.get((info.name, around))
        one.ids[info.bench], one.local[bench] = bench, info.bench
        known = msgspec.structs.replace(
            info,
            bench=bench,
            name=f"{info.name} @{self.label(side)}",
            plain_name=info.name,
            parent=parent,
            control_of=None,
            is_baseline=side == 0,
            version=self._versions[side].index,
            rival=rival,
        )
        one.rows[bench] = known
        said: list[AnyRecord] = [msgspec.structs.replace(record, info=known)]
        if info.name in self._without and parent is None:
            self._switch_off(side, bench)
            said += self._put_off(bench, self._without[info.name])
        return said

    def _put_off(self, bench: int, why: str) -> list[AnyRecord]:
        return [State(self._time.now_ns(), bench, RowState.OFF, why)]

    def _state(self, side: int, record: State) -> list[AnyRecord]:
        bench = self._sides[side].ids.get(record.bench, record.bench)
        info = self._sides[side].rows.get(bench)
        if info is not None and info.plain_name in self._without:
            return []
        return [msgspec.structs.replace(record, bench=bench)]

    def _progress(self, side: int, record: Progress) -> list[AnyRecord]:
        """One phase of both: they measure when the first turn has begun."""
        one = self._sides[side]
        if record.is_end:
            one.has_ended = True
            return self._on_early_end(side, record)
        if record.phase == RunPhase.STARTING:
            one.is_imported = True
            return []
        is_first = record.phase == RunPhase.MEASURING and not one.is_ready
        if is_first:
            one.is_ready = True
            return self._tell_unmatched()
        if self._is_measuring and record.phase not in (RunPhase.PAUSED, RunPhase.MEASURING):
            return []
        if not self._is_first and record.phase != RunPhase.IMPORTING and not self._is_measuring:
            return []
        detail = record.detail
        path = self._requests[side].path
        if detail == path:
            detail = f"{Path(path).name} ({self.label(side)}, launch {self._number})"
        return [msgspec.structs.replace(record, detail=detail)]

    def _on_early_end(self, side: int, record: Progress) -> list[AnyRecord]:
        """A version that cannot be measured ends the other one's part, too."""
        other = self._sides[1 - side]
        if not self._is_measuring and not other.has_ended and not self._is_stopped:
            self._carrier(1 - side).command(Command("stop", record.detail))
            is_vain = not self._sides[side].rows and (side == 0 or self.saves is None)
            self._is_stopped = self._is_stopped or is_vain
        return []

    def _launch(self, record: Launch) -> list[AnyRecord]:
        """The first turn has begun; both say so."""
        if self._is_measuring:
            return []
        self._is_measuring = True
        self._began_ns = self._began_ns or record.at_ns
        at_least = "" if self._plan.launches else " or more"
        words = f"launch {self._of_head + 1} of {self.wanted}{at_least}"
        return [
            record,
            Progress(record.at_ns, RunPhase.MEASURING, words),
            Headway(record.at_ns, words),
        ]

    def _chosen(self, side: int, record: Chosen) -> list[AnyRecord]:
        self._sides[side].chosen = record
        other = self._sides[1 - side].chosen
        if other is not None and other.device != record.device:
            devices = [one.chosen.device for one in self._sides if one.chosen is not None]
            said = " and ".join(f"{self.label(i)} on {d}" for i, d in enumerate(devices))
            message = f"the versions would be measured on different devices: {said}"
            self._is_stopped = True
            for one in BOTH:
                self._carrier(one).command(Command("stop", message))
            hint = "--device says which, and both environments must see it"
            return [Fault(record.at_ns, int(ExitCode.NO_DEVICE), message, hint)]
        return self._once(Chosen, record)

    def _noted(self, side: int, record: Noted) -> list[AnyRecord]:
        notice, one = record.notice, self._sides[side]
        if notice.code == Code.HANDOVER:
            self._told_handover[side] = record
            return []
        if notice.code == Code.SIGNALLED and self._is_stopped:
            return []
        bench = None if notice.bench is None else one.ids.get(notice.bench, notice.bench)
        if not self._is_first and notice.level == "info" and not notice.is_withdrawn:
            return []  # the first launch has said it
        return [Noted(msgspec.structs.replace(notice, bench=bench))]

    # -- versions that are saved while it runs

    def _heed_saves(self, saves: "SavedVersions") -> list[AnyRecord]:
        """A new head breaks the launch off, once it is known that it can be imported."""
        records, head = saves.look()
        self.launches.fold(records)
        if head is not None:
            self._next = head
            for side in BOTH if not self._is_waiting else ():
                self._carrier(side).command(Command("stop", "a new version was saved"))
        if self._is_waiting and self._next is not None:
            records = records + self._take_next()
            self._begin()
        return records

    def _refused(self, why: str) -> Noted:
        """A version that was saved and cannot be measured."""
        evidence = {"number": self._versions[1].index - 1, "why": why}
        at_ns = self._time.now_ns()
        return Noted(
            Notice(code=Code.VERSION_REFUSED, at_ns=at_ns, level="error", evidence=evidence)
        )

    def _take_next(self) -> list[AnyRecord]:
        """The next head takes the place of the last one, whose verdicts stay."""
        head, self._next = self._next, None
        assert head is not None
        now_ns = self._time.now_ns()
        why = "an earlier version"
        records: list[AnyRecord] = []
        for bench, info in self._sides[1].rows.items():
            if info.parent is None and info.plain_name not in self._without:
                records.append(State(now_ns, bench, RowState.OFF, why))
        self._sides[1].rows = {}
        self._without.clear()
        self._done_before = self.launches.done
        self._versions[1], self._requests[1] = head.version, head.request
        records.append(msgspec.structs.replace(head.version, at_ns=now_ns))
        self.launches.fold(records)
        return records

    def _go_on_watching(self, why: str) -> list[AnyRecord]:
        """After a launch: the next version, another launch, or a wait for a save."""
        if self._next is not None:
            records = self._take_next()
            self._begin()
            return records
        if not why:
            self._begin()
            return []
        self._is_waiting = True
        return [Progress(self._time.now_ns(), RunPhase.PAUSED, f"{why}: waits for a save")]

    # -- rows that cannot be compared

    def _tell_unmatched(self) -> list[AnyRecord]:
        """Once both have told their rows: those that only one of them has are left out."""
        if not self._is_first or not all(one.is_ready for one in self._sides):
            return []
        names = [
            {i.plain_name: b for b, i in one.rows.items() if i.parent is None}
            for one in self._sides
        ]
        said: list[AnyRecord] = []
        for i in BOTH:
            for name, bench in names[i].items():
                if name not in names[1 - i] and name not in self._without:
                    said += self._leave_out(i, name, bench)
        self._stop_without_rows()
        return said

    def _stop_without_rows(self) -> None:
        if all(one.rows for one in self._sides) and not self._comparable():
            for side in BOTH:
                self._carrier(side).command(Command("stop", _NO_ROW))

    def _leave_out(self, side: int, name: str, bench: int) -> list[AnyRecord]:
        now_ns = self._time.now_ns()
        why = f"only in {self.label(side)}"
        self._without[name] = why
        self._switch_off(side, bench)
        evidence = {"version": self.label(side), "other": self.label(1 - side)}
        notice = Notice(
            code=Code.ONLY_IN_ONE, at_ns=now_ns, bench=bench, level="warn", evidence=evidence
        )
        return [Noted(notice), *self._put_off(bench, why)]

    def _switch_off(self, side: int, bench: int) -> None:
        local = self._sides[side].local.get(bench)
        if local is not None:
            self._carrier(side).command(Command("off", bench=local))

    def _partner(self, side: int, bench: int) -> int | None:
        if side == 1:
            return self._sides[1].rows[bench].rival
        return next((b for b, i in self._sides[1].rows.items() if i.rival == bench), None)

    def _lose(self, side: int, bench: int) -> list[AnyRecord]:
        """A row is lost in one version: the other one's has nothing to be compared with."""
        info = self._sides[side].rows.get(bench)
        if info is None or info.parent is not None or info.plain_name in self._without:
            return []
        why = f"it failed in {self.label(side)}"
        self._without[info.plain_name] = why
        partner = self._partner(side, bench)
        if partner is None:
            return []
        self._switch_off(1 - side, partner)
        self._stop_without_rows()
        return self._put_off(partner, why)

    def _on_error(self, side: int, record: BenchError) -> list[AnyRecord]:
        bench = self._sides[side].ids.get(record.bench, record.bench)
        message = record.message + (_BOTH_HELD if record.kind == "oom" else "")
        told = msgspec.structs.replace(record, bench=bench, message=message, fatal=False)
        said: list[AnyRecord] = [told, State(record.at_ns, bench, RowState.FAILED, message)]
        said += self._lose(side, bench)
        if record.fatal:
            self._carrier(side).give_up(Loss("device", record.message, record.bench))
        return said

    def _on_loss(self, side: int, loss: Loss) -> list[AnyRecord]:
        """A worker is gone: its row is lost, and the launch is begun afresh without it."""
        now_ns = self._time.now_ns()
        one = self._sides[side]
        for i in BOTH:
            self._carrier(i).close(0 if i == side else _LEAVE_S)
        bench = None if loss.bench is None else one.ids.get(loss.bench, loss.bench)
        records: list[AnyRecord] = []
        if bench is not None and bench in one.rows:
            hint = f" ({loss.hint})" if loss.hint else ""
            message = f"{loss.what}{hint}: the process of {self.label(side)} was lost in it"
            if loss.kind == "hang":
                message = f"{loss.what}: given up{hint}"
            records.append(BenchError(now_ns, bench, loss.kind, message))
            records.append(State(now_ns, bench, RowState.FAILED, message))
            records += self._lose(side, bench)
        if self._is_stopped:
            return records + self._end("stopped")
        self._lost += 1
        self._unexplained += bench is None
        is_hopeless = bench is None and (loss.kind == "hang" or not one.rows)
        if is_hopeless and side == 1 and self.saves is not None:
            self._unexplained -= 1
            return [*records, self._refused(loss.what), *self._go_on_watching("nothing to measure")]
        if is_hopeless or self._unexplained > MOST_UNEXPLAINED or self._lost > MOST_LOST:
            code = loss.exit_code
            message = f"{self.label(side)}: the measuring process died: {loss.what}"
            if code != ExitCode.WORKER_LOST:
                message = f"{self.label(side)}: {loss.what}"
            fault = Fault(now_ns, code, message, loss.hint)
            return [*records, fault, *self._end(f"worker lost: {loss.what}")]
        if not self._comparable():
            return records + self._end(_NO_ROW, is_failure=True)
        where = self.label(side) if bench is None else plain.name(one.rows[bench].name)
        why = f"a fresh launch after {loss.what} in {where}"
        notice = Notice(code=Code.FRESH_WORKER, at_ns=now_ns, level="warn", evidence={"why": why})
        self._number -= 1
        self._begin()
        return [*records, Noted(notice)]

    # -- what it takes

    def command(self, command: Command) -> None:
        """To both workers; what stays so is told to the next ones as well."""
        verb = command.verb
        self._is_stopped = self._is_stopped or verb == "stop"
        if self._is_waiting:
            self._more += self._end(command.argument or "quit") if verb == "stop" else []
            return
        if verb in ("pace", "temp"):
            self._standing[verb, None] = command
        elif verb in ("pause", "resume"):
            self._standing["pause", None] = command
        elif verb in ("solo", "all"):
            self._standing["solo", None] = command
        elif verb in ("on", "off", "cache"):
            self._standing["on" if verb != "cache" else verb, command.bench] = command
        self._pass_down(command)

    def _pass_down(self, command: Command) -> None:
        for side in BOTH:
            one = self._sides[side]
            if one.carrier is None or (command.verb == "mark" and side):
                continue
            told = command
            if command.verb == "ramp" and side:
                told = Command("ramp")  # one mark is enough
            if command.bench is not None:
                bench = self._in_side(side, command.bench)
                if bench is None:
                    continue
                told = msgspec.structs.replace(told, bench=bench)
            one.carrier.command(told)

    def _in_side(self, side: int, bench: int) -> int | None:
        """A row's own number in a worker: the same row in both, whichever is named."""
        if bench not in self._sides[side].rows:
            named = next((i for i in BOTH if bench in self._sides[i].rows), None)
            if named is None:
                return None
            partner = self._partner(named, bench)
            if partner is None:
                return None
            bench = partner
        return self._sides[side].local.get(bench)

    def current(self) -> tuple[int, ...] | None:
        """The rows in whose code the workers are."""
        found: list[int] = []
        is_known = False
        for one in self._sides:
            here = None if one.carrier is None else one.carrier.current()
            is_known = is_known or here is not None
            found += [one.ids[bench] for bench in here or () if bench in one.ids]
        return tuple(found) if is_known else None

    def tell_stack(self) -> None:
        """Let the workers' stacks come as output."""
        for one in self._sides:
            if one.carrier is not None:
                one.carrier.tell_stack()

    def give_up(self, loss: Loss) -> None:
        """Leave the worker behind in whose call the row is; else the one that has not got far."""
        side = next((i for i in BOTH if loss.bench in self._sides[i].rows), None)
        if side is None:
            side = 0 if len(self._sides[0].ids) <= len(self._sides[1].ids) else 1
            self._carrier(side).give_up(loss)
            return
        bench = None if loss.bench is None else self._sides[side].local.get(loss.bench)
        self._carrier(side).give_up(loss._replace(bench=bench))

    def close(self, timeout_s: float) -> bool:
        """Stop both workers; True when they have ended within the time."""
        self._is_stopped = True
        if self.saves is not None:
            self.saves.close()
        if self._is_waiting:
            return True
        for one in self._sides:
            if one.carrier is not None:
                one.carrier.command(Command("stop", "quit"))
        ended = [one.carrier.close(timeout_s) for one in self._sides if one.carrier is not None]
        return all(ended) or self._is_over

    def why_not_renew(self) -> str:
        """Lost rows are not tried again: the launches before lack them."""
        return "a comparison of versions does not take rows up again"

    def renew(self) -> str:
        """See `why_not_renew`."""
        return self.why_not_renew()

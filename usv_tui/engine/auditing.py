"""Whether rows do their work: looks at their results and times, between rounds."""

import threading
from collections.abc import Sequence
from typing import Any

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import BenchFault
from usv_tui.diagnosis.series import Size, no_growth
from usv_tui.diagnosis.vocabulary import DISBELIEVED
from usv_tui.engine.audit import Asking, Auditor, Subject, Window, Wrong
from usv_tui.engine.references import References
from usv_tui.engine.row import Row, bases_of
from usv_tui.engine.stage import Stage
from usv_tui.records import (
    ProbeClock,
    Samples,
)
from usv_tui.suite import values
from usv_tui.suite.rows import Built
from usv_tui.timers.wall import Failure, Slot
from usv_tui.timesource import NS_PER_S

_AUDIT_SHARE = 0.1
"""Of the run's time, which the first round of looks takes at most, and the last."""
_LOOKS_BETWEEN_NS = NS_PER_S // 50
"""What a round of looks between these two takes, or a little more."""
_SAME_SIZE = 0.75
"""Inputs with a smaller share of the baseline's figures are less work."""
_UNLIMITED_NS = 30 * NS_PER_S
"""A run without a limit, for that."""


def _elements(row: Row) -> int | None:
    """How many figures a row's inputs have; None: it is not handed any."""
    return None if row.subject is None or row.is_failed else row.subject.elements


class Auditing:
    """The looks of one run."""

    def __init__(self, stage: Stage, references: References | None) -> None:
        self._stage = stage
        self._references = references
        self.auditor = Auditor(stage.timer, stage.time.now_ns, self._wait, stage.config.seed)
        self.looks: Asking | None = None
        """The round of looks that is under way."""
        self.wanted: Slot | None = None
        """The window that it wants next."""

    def _wait(self, ns: int) -> None:
        self._stage.time.wait(threading.Event(), ns)

    def inputs_before(self, row: Row) -> list[Any] | None:
        """What a row's inputs are before its first call, to see whether it changes them."""
        inputs = row.subject.inputs if row.subject is not None else None
        return None if inputs is None else values.clone(inputs.sets)

    def keep_inputs(self, row: Row, built: Built, before: list[Any] | None) -> None:
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
        self._stage.note(Code.INPUTS_RESTORED, row, {})

    def tell_fixed_inputs(self) -> None:
        """Rows whose results are checked on the same inputs throughout."""
        for row in self._stage.rows:
            subject = row.subject
            if subject is not None and subject.check is not None and subject.inputs is None:
                self._stage.note(Code.INPUTS_FIXED, row, {})
        for bench, base in bases_of(self._stage.rows).items():
            mine, wanted = (_elements(self._stage.rows[i]) for i in (bench, base))
            if mine is not None and wanted is not None and mine < _SAME_SIZE * wanted:
                evidence = {"elements": mine, "base": wanted}
                row = self._stage.rows[bench]
                self._stage.note(Code.INPUTS_DIFFER, row, evidence, level="error")

    def mend_references(self) -> None:
        """What the file has replaced is put back; no row is believed then."""
        if self._references is None:
            return
        found = self._references.mend()
        codes = (Code.CLOCK_REPLACED, Code.LIBRARY_REPLACED, Code.INTERPRETER_WATCHED)
        for code, what in zip(codes, found, strict=True):
            for row in self._stage.rows if what else ():
                self._stage.note(code, row, {"what": what[:8]}, level="error")

    def audit(self, *, is_first: bool = False, is_final: bool = False) -> None:
        """Look at the rows' results and times in windows that nobody counts, from here on."""
        if self.looks is None:
            self.mend_references()
            self.begin(self._look_at_all(is_first=is_first, is_final=is_final))

    def begin(self, looks: Asking) -> None:
        """Take up a round of looks."""
        self._stage.drain(wait=True)
        self.looks = looks
        self.wanted = next(looks, None)
        if self.wanted is None:
            self.looks = None

    def hand_back(self, failure: Failure | None) -> None:
        """Hand a look the window that it asked for; its samples go nowhere else."""
        ended_ns = self._stage.time.now_ns()
        leave_if_copy(None if failure is None else failure[1])
        asked, looks = self.wanted, self.looks
        assert asked is not None
        assert looks is not None
        found = self._stage.timer.harvest(wait=True)
        window_ns = max(0, found[-1].window_ns[-1]) if found and found[-1].window_ns else 0
        for extra in self._stage.timer.beside():
            if not isinstance(extra, Samples | ProbeClock):
                self._stage.emit(extra)
        try:
            self.wanted = looks.send(Window(window_ns, ended_ns, failure))
            self._stage.enter(self._stage.rows[self.wanted.bench])
        except StopIteration:
            self.wanted = self.looks = None
            self._stage.enter(None)

    def _look_at_all(self, *, is_first: bool, is_final: bool) -> Asking:
        """As often as each row needs it at the start and at the end; a few of them in between.

        Who was looked at least comes first, where there is no time for all.
        """
        auditor, now_ns = self.auditor, self._stage.time.now_ns
        began_ns, rows = now_ns(), self._stage.live_rows()
        auditor.shuffle(rows)
        is_whole = is_first or is_final
        most_ns = began_ns + (self._most_ns() if is_whole else _LOOKS_BETWEEN_NS)
        for turn in range(max((auditor.missing(r.subject) for r in rows if r.subject), default=0)):
            for row in sorted(rows, key=lambda r: r.subject.looks if r.subject else 0):
                subject = row.subject
                if subject is None or row.is_failed or now_ns() > most_ns:
                    continue
                is_needed = turn == 0 or (is_whole and auditor.missing(subject) > 1)
                if is_needed and self._has_time_to_audit(row):
                    yield from self.look_at(row, subject, rows)
        auditor.plan(now_ns() - began_ns)
        if is_first:
            self._tell_no_growth(rows)
        if is_final and auditor.looks:
            evidence = {"looks": auditor.looks, "seconds": auditor.spent_ns / NS_PER_S}
            self._stage.note(Code.AUDITED, None, evidence)
            for row in rows:
                if row.subject is not None and auditor.lacks(row.subject) and not row.is_failed:
                    self._stage.note(
                        Code.FEW_LOOKS, row, {"looks": row.subject.looks}, level="warn"
                    )

    def _tell_no_growth(self, rows: Sequence[Row]) -> None:
        """Rows of one declaration whose results nobody checks, at several sizes."""
        bases = bases_of(rows)
        families: dict[str, list[Size]] = {}
        for row in rows:
            work, base = row.benchmark.flops or row.benchmark.bytes, bases.get(row.bench)
            if work and base is not None and row.check is None and row.control_of is None:
                base_ns = self._stage.rows[base].per_call_ns
                size = Size(row.bench, float(work), row.per_call_ns, base_ns)
                families.setdefault(str(row.name).partition("[")[0], []).append(size)
        for sizes in families.values():
            for bench, found in no_growth(sizes):
                self._stage.note(found.code, self._stage.rows[bench], found.evidence, level="error")

    def _most_ns(self) -> float:
        """What the first round of looks, and the last, may take."""
        most_s = self._stage.config.max_time_s
        return _AUDIT_SHARE * (_UNLIMITED_NS if most_s is None else most_s * NS_PER_S)

    def is_nearly_over(self) -> bool:
        """Whether there is just time enough left for the last looks."""
        left_ns = self._stage.left_ns()
        wanted_ns = min(self._most_ns(), self.auditor.last_ns(len(self._stage.live_rows())))
        return left_ns is not None and left_ns < wanted_ns

    def _has_time_to_audit(self, row: Row) -> bool:
        """A slow row is looked at only while a call of it is a small part of the run."""
        now_ns, left_ns = self._stage.time.now_ns(), self._stage.left_ns()
        if left_ns is not None and left_ns < 5 * row.per_call_ns:
            return False
        return not row.is_slow or row.cost_ns * 5 < (now_ns - self._stage.began_ns) / 10

    def look_at(
        self, row: Row, subject: Subject, rows: Sequence[Row], *, is_timed: bool = True
    ) -> Asking:
        """Look once, where there is something to look for; `is_timed`: at its times, too."""
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
        if not self.auditor.can_tell(subject, base):
            return
        found, failure = yield from self.auditor.look(subject, base, is_timed=is_timed)
        for said in found:
            if isinstance(said, Wrong):
                self._stage.fail(row, BenchFault(said.code, f"{said.code}: {said.message}"))
            else:
                code, evidence = said
                self._stage.note(
                    code, row, evidence, level="error" if code in DISBELIEVED else "warn"
                )
        if failure is not None:
            self._stage.on_failure(failure)

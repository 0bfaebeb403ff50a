"""Rows built afresh while they are measured, so that ratios cover where buffers lie."""

import dataclasses
import gc

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import vet_result
from usv_tui.engine.auditing import Auditing
from usv_tui.engine.calibrate import prime
from usv_tui.engine.memory import free_bytes
from usv_tui.engine.preparation import Preparation, as_timed
from usv_tui.engine.realloc import Attempt, Reallocation, is_elsewhere
from usv_tui.engine.row import Row, bases_of
from usv_tui.engine.stage import RAMP_NS, Stage
from usv_tui.errors import one_line
from usv_tui.records import (
    Gap,
    Rebuilt,
)
from usv_tui.suite.rows import assemble
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S

_SHORT_RAMP_NS = NS_PER_S // 20
"""After rows were built afresh, and twice as long as that took."""


class Rebuilding:
    """Fresh buffers for the rows of one run."""

    def __init__(self, stage: Stage, auditing: Auditing, preparation: Preparation) -> None:
        self._stage = stage
        self._auditing = auditing
        self._preparation = preparation
        self.plan = Reallocation(stage.config)

    def is_due(self) -> bool:
        """Whether rows are to be built afresh now."""
        if self._stage.is_paused or not self.plan.left:
            return False
        done = min((row.n for row in self._stage.live_rows()), default=0)
        now_ns = self._stage.time.now_ns()
        return self.plan.is_due(now_ns, self._stage.round, self._stage.left_ns(), done)

    def rebuild(self) -> None:
        """Between rounds: quick rows get other buffers, and go on."""
        self._stage.drain(wait=True)
        begun_ns = self._stage.time.now_ns()
        self._stage.gate.unman()
        rows = [row for row in self._stage.live_rows() if not row.is_slow]
        bases = set(bases_of(rows).values())
        built = [row.bench for row in self.plan.choose(rows, bases) if self._renew(row)]
        self._stage.enter(None)
        self.plan.done()
        self._stage.gate.man()
        if not built:
            return
        gc.collect(1)
        self._stage.attendant.rebuilt()
        self._stage.reschedule()
        self._stage.recall_caches()
        now_ns = self._stage.time.now_ns()
        took_ns = now_ns - begun_ns
        self._stage.ramp_until_ns = max(
            self._stage.ramp_until_ns, now_ns + min(RAMP_NS, 2 * took_ns + _SHORT_RAMP_NS)
        )
        self._stage.emit(Rebuilt(now_ns, built, took_ns))
        if took_ns > RAMP_NS:
            self._stage.emit(Gap(begun_ns, now_ns, "rows built afresh"))

    def _renew(self, row: Row) -> bool:
        """Build a row once more; where that fails it goes on as it is, and is not tried again."""
        old = row.slot
        assert old is not None
        before = self._stage.attendant.size()
        try:
            attempt = self._try_afresh(row, old)
        except BaseException as error:  # noqa: BLE001  a benchmark may raise anything
            leave_if_copy(error)
            attempt = Attempt(None, one_line(error), is_failure=True)
        if attempt.slot is None:
            self.plan.give_up(row)
            if attempt.is_failure or self.plan.is_asked:
                level = "warn" if attempt.is_failure else "info"
                self._stage.note(
                    Code.NOT_BUILT_AFRESH, row, {"reason": attempt.reason}, level=level
                )
            return False
        self._stage.schedule.set(old, 0)
        row.slot = attempt.slot
        row.build_ns = attempt.took_ns
        if before is not None:
            self.plan.hold(old, max(0, (self._stage.attendant.size() or 0) - before))
        return True

    def _try_afresh(self, row: Row, old: Slot) -> Attempt:
        reason = self.plan.obstacle(row, free_bytes())
        if reason:
            return Attempt(None, reason)
        begun_ns = self._stage.time.now_ns()
        self._stage.enter(row)
        built = assemble(row.benchmark, self._stage.config.device, self._stage.config.seed)
        leave_if_copy()
        if not callable(built.fn) or not is_elsewhere(old.fn, built.fn):
            return Attempt(None, "its set-up gives the same buffers again")
        slot = old.twin()
        slot.fn, slot.reset, slot.stream = built.fn, built.reset, built.stream
        slot.set_refill(0)
        subject = row.subject
        if subject is not None:
            subject = dataclasses.replace(subject, slot=slot, check=built.check, kept=None)
            self._auditing.auditor.meet(subject)
        first = prime(self._stage.timer, slot, self._stage.time.now_ns)
        fault = first.error or vet_result(first.result)
        if fault is not None:
            raise fault
        as_timed(slot, built)
        row.subject = subject
        row.rotated = [rotation.items for rotation in built.rotations]
        if self._stage.where is not None:
            self._stage.where.meet(row.bench, row.name, built.fn)
        return Attempt(slot, took_ns=self._stage.time.now_ns() - begun_ns)

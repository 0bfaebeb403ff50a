"""A run that takes turns with the other version's worker."""

from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.engine.agreement import fetch, leave, told_apart
from usv_tui.engine.row import Row
from usv_tui.engine.stage import Stage
from usv_tui.engine.turns import Turns
from usv_tui.errors import one_line
from usv_tui.model import (
    DuetPart,
    RunPhase,
)
from usv_tui.records import (
    Launch,
)

_LAUNCH_OVER = "the launch is over"


class Turning:
    """One worker's side of a comparison."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._has_told_launch = False

    def wait_to_prepare(self, turns: Turns) -> None:
        """Until it is my turn to warm up."""
        turns.poll = self._hears
        self._stage.progress(RunPhase.STARTING, "waits for the device")
        if not turns.wait_to_prepare():
            self._stage.stop_reason = self._stage.stop_reason or _LAUNCH_OVER

    def _hears(self) -> bool:
        self._stage.take_commands()
        return not self._stage.stop_reason

    def say_ready(self, turns: Turns) -> None:
        """All is warm: the other one prepares, or the first turn begins."""
        rows = [row for row in self._stage.rows if row.slot is not None and not row.is_failed]
        calls = {row.name: [row.slot.inner, row.refill] for row in rows if row.slot is not None}
        self._stage.drain(wait=True)
        turns.ready(calls, self._stage.round, self._stage.work_ns)
        if turns.left:
            self._begin_turn(turns)

    def has_turn(self, turns: Turns) -> bool:
        """Whether the device is mine; a turn that is over is handed on when it is idle."""
        if turns.left > 0:
            return True
        if turns.is_mine:
            self._stage.drain(wait=True)
            if turns.opening.close() and turns.opening.rounds:
                self._stage.note(Code.TURN_OPENS, None, {"rounds": turns.opening.rounds})
            turns.done()
        if not turns.left:
            self._stage.enter(None)
            turns.next()
        if turns.is_over:
            self._end_launch(turns)
        if turns.left > 0:
            self._begin_turn(turns)
        return turns.left > 0

    def _begin_turn(self, turns: Turns) -> None:
        self._stage.round = turns.first_round
        if not self._has_told_launch:
            self._has_told_launch = True
            part = turns.part
            now_ns = self._stage.time.now_ns()
            self._stage.emit(Launch(now_ns, part.number, turns.base, turns.rounds, part.seed))

    def _end_launch(self, turns: Turns) -> None:
        self._stage.stop_reason = self._stage.stop_reason or _LAUNCH_OVER
        found = turns.handovers()
        if found is not None:
            evidence = {**found._asdict(), "opening": turns.opening.rounds}
            self._stage.note(Code.HANDOVER, None, evidence)

    def is_opening(self) -> bool:
        """The first rounds of a turn, where these are known to differ from the others."""
        turns = self._stage.turns
        return turns is not None and self._stage.is_measuring and turns.index < turns.opening.rounds

    def check_versions(self, part: DuetPart, results: Mapping[int, Any]) -> None:
        """What the other version's rows return is what this one's must agree with."""
        for row in self._stage.rows:
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
                self._stage.note(Code.NOT_COMPARED, row, {"reason": one_line(error)}, level="warn")
                continue
            if found:
                self._check_one(row, check, mine, found[0])

    def _check_one(
        self, row: Row, check: Callable[[Any, Any], object], mine: Any, wanted: Any
    ) -> None:
        try:
            self._stage.enter(row)
            verdict = check(mine, wanted)
            leave_if_copy()
            self._stage.enter(None)
            if verdict is False:
                raise AssertionError("check: the result differs from the other version's")
        except BaseException as error:  # noqa: BLE001  a check may raise anything
            self._stage.fail(row, told_apart(error, mine, wanted), kind="check")

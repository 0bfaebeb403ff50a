"""What nobody may overlook of a run: each warning, error and fault once, and who else was there."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from usv_tui import plain
from usv_tui.model import Notice
from usv_tui.report.wording.notices import sentence
from usv_tui.session.snapshot import LogLine, Told

_MOST = 200
_MOST_NEIGHBOURS = 32
_LINES = 2_000


class Notes:
    """Bounded however long and however bad a run is; a code and a row once, with its count."""

    def __init__(self) -> None:
        self.left_out = 0
        """How many more there were than are kept."""
        self._told: dict[tuple[str, str], Told] = {}
        self._neighbours: dict[str, dict[str, Any]] = {}
        self._more_neighbours = 0

    @property
    def told(self) -> tuple[Told, ...]:
        """All of them, in the order in which they first came."""
        return tuple(self._told.values())

    @property
    def neighbours(self) -> tuple[Mapping[str, Any], ...]:
        """Every other process that was seen on the device."""
        return tuple(self._neighbours.values())

    def add_notice(self, notice: Notice, row: str) -> None:
        """A notice of level warn or error."""
        if notice.code == "shared device" and _is_sound(notice.evidence):
            notice = self._with_earlier_neighbours(notice)
        code, text = notice.code, sentence(notice)
        self.add(notice.at_ns, notice.level, code, text, notice.evidence, row)

    def add(
        self,
        at_ns: int,
        level: str,
        code: str,
        text: str,
        evidence: Mapping[str, Any],
        row: str = "",
    ) -> None:
        """Something in words already; the latest words and evidence of a code and a row stay."""
        before = self._told.get((code, row))
        if before is None and len(self._told) >= _MOST:
            self.left_out += 1
            return
        times = before.times + 1 if before else 1
        first_ns = before.at_ns if before else at_ns
        worst = "error" if before is not None and before.level == "error" else level
        self._told[code, row] = Told(
            code, worst, row, first_ns, times, plain.cut(text), dict(evidence)
        )

    def take_back(self, code: str, row: str) -> None:
        """What later looks have contradicted."""
        self._told.pop((code, row), None)

    def _with_earlier_neighbours(self, notice: Notice) -> Notice:
        """The news are who is there now; the note is everybody who ever was."""
        for process in notice.evidence["processes"]:
            pid = str(process["pid"])
            known = self._neighbours.get(pid)
            if known is not None or len(self._neighbours) < _MOST_NEIGHBOURS:
                self._neighbours[pid] = (known or {}) | process
        self._more_neighbours = max(self._more_neighbours, int(notice.evidence["more"]))
        evidence = {"processes": list(self._neighbours.values()), "more": self._more_neighbours}
        return msgspec.structs.replace(notice, evidence=evidence)


def _is_sound(evidence: Mapping[str, Any]) -> bool:
    """A session may come from anywhere: only what a poller writes is taken for neighbours."""
    processes = evidence.get("processes")
    return (
        isinstance(evidence.get("more"), int)
        and isinstance(processes, list)
        and all(isinstance(process, dict) and "pid" in process for process in processes)
    )


class Log:
    """The newest lines of the event log, and the notes."""

    def __init__(self) -> None:
        self.lines: deque[LogLine] = deque(maxlen=_LINES)
        self.total = 0
        self.notes = Notes()

    def line(self, at_ns: int, kind: str, text: str) -> None:
        """One more line."""
        self.lines.append(LogLine(at_ns, kind, plain.cut(text)))
        self.total += 1

    def tell(
        self, at_ns: int, level: str, code: str, text: str, evidence: Mapping[str, Any]
    ) -> None:
        """What nobody may overlook: a line in the log now, and a note under the final table."""
        self.line(at_ns, level, text)
        self.notes.add(at_ns, level, code, text, evidence)

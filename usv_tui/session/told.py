"""What nobody may overlook of a run: each warning, error and fault once, and who else was there."""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.model import Notice
from usv_tui.report.wording.notices import sentence
from usv_tui.session.snapshot import LogLine, Told

_MOST = 200
_MOST_NEIGHBOURS = 32
_LINES = 2_000
_FIGURES = re.compile(r"[0-9][0-9.,]*")
_SPACED = (Code.STUCK, Code.LONG_IMPORT, Code.LONG_FIRST_CALL, Code.FRESH_WORKER)
"""Codes that are told at growing intervals, or change what runs: each time is a line of its own."""
_RECENT = 12
"""Among so many last lines one that repeats is counted, not written again."""


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
        if notice.code == Code.SHARED_DEVICE and _is_sound(notice.evidence):
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
        self._repeated: dict[tuple[str, str], tuple[LogLine, int]] = {}
        """The line of what repeats, by code and words without figures, and how often it was said.
        """
        self.total = 0
        self.notes = Notes()

    def line(self, at_ns: int, kind: str, text: str) -> None:
        """One more line."""
        self.lines.append(LogLine(at_ns, kind, plain.cut(text)))
        self.total += 1

    def notice(self, notice: Notice, kind: str, text: str) -> None:
        """A line for it; where only its figures are new, it is counted on the line before.

        Such a line comes anew when it was said 10, 100 … times.
        """
        key = (notice.code, _FIGURES.sub("#", text))
        before, times = self._repeated.get(key, (None, 0))
        recent = [self.lines[-n] for n in range(1, min(len(self.lines), _RECENT) + 1)]
        is_apart = kind == "event" or notice.code in _SPACED
        if before is None or is_apart or before not in recent:
            self.line(notice.at_ns, kind, text)
            if len(self._repeated) > _LINES:
                self._repeated.clear()
            self._repeated[key] = (self.lines[-1], 1)
            return
        times += 1
        words = f"{plain.cut(text)} ({times:,} times)"
        if str(times).strip("0") == "1":
            self.lines.remove(before)
            self.line(notice.at_ns, kind, words)
            self._repeated[key] = (self.lines[-1], times)
            return
        line = LogLine(before.at_ns, kind, words)
        self.lines[len(self.lines) - 1 - recent.index(before)] = line
        self._repeated[key] = (line, times)

    def tell(
        self, at_ns: int, level: str, code: str, text: str, evidence: Mapping[str, Any]
    ) -> None:
        """What nobody may overlook: a line in the log now, and a note under the final table."""
        self.line(at_ns, level, text)
        self.notes.add(at_ns, level, code, text, evidence)

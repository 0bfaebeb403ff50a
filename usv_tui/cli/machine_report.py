"""The doctor's report: what was looked at, how it stands, and how that is printed."""

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from usv_tui import plain
from usv_tui.errors import ExitCode


class Status(StrEnum):
    """How a thing stands."""

    OK = "ok"
    NOTE = "note"
    """It works, and there is something to know."""
    MISSING = "none"
    """It is not here; a run does without it."""
    FAIL = "FAIL"
    """The main job cannot run."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    status: Status
    value: str = ""
    why: str = ""
    mend: str = ""
    facts: dict[str, Any] = {}
    """The same as plain values, for programs."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one subject."""

    title: str
    checks: list[Check]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found."""

    sections: list[Section]

    @property
    def exit_code(self) -> ExitCode:
        """OK when the main job can run here."""
        failed = any(c.status is Status.FAIL for s in self.sections for c in s.checks)
        return ExitCode.NO_DEVICE if failed else ExitCode.OK


def to_text(report: Report) -> str:
    """The report for people: a line a check, its reason and its cure below where there are any."""
    width = max((len(c.name) for s in report.sections for c in s.checks), default=0)
    lines: list[str] = []
    for section in report.sections:
        lines += ["", section.title] if lines else [section.title]
        for check in section.checks:
            lines += _lines(check, width)
    verdict = "the main job can run here" if report.exit_code is ExitCode.OK else "see FAIL above"
    return "\n".join([*lines, "", verdict]) + "\n"


def _lines(check: Check, width: int) -> Iterable[str]:
    head = f"  {check.status:<5} {check.name:<{width}}  {check.value or '—'}"
    if check.why:
        head += f"  ({check.why})"
    yield plain.line(head).rstrip()
    if check.mend:
        yield plain.line(f"  {'':<5} {'':<{width}}  -> {check.mend}")


def to_json(report: Report) -> bytes:
    """The report for programs."""
    body = {
        "ok": report.exit_code is ExitCode.OK,
        "exit_code": int(report.exit_code),
        "sections": msgspec.to_builtins(report.sections),
    }
    # ASCII: also this goes to terminals, and a name may be half a character.
    return json.dumps(body, indent=2).encode("ascii") + b"\n"

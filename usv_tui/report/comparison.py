"""A comparison of sessions as a table, Markdown or plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from usv_tui.model import Answer
from usv_tui.report.grid import Column, markdown, text
from usv_tui.session.comparison import Compared, Report
from usv_tui.stats.compare import Claim
from usv_tui.units import DASH, fixed, in_unit, time_unit

SCHEMA = 1
_REASONS = {
    "no-samples": "one side has no sample of it",
    "unsettled": "a run was still moving",
    "few-readings": "fewer than 30 clock readings under load in a run",
    "clock-spread": "the clock spreads by more than 5 % within a run",
    "clock": "the clocks differ by more than 1 %",
    "throttle": "a limit was active in one only",
}
"""The other codes are names of facts that differ."""


def reason_words(row: Compared, code: str) -> str:
    """One thing that forbids the comparison, in words."""
    if code in row.differing:
        old, new = (_value(code, value) for value in row.differing[code])
        return f"another {code} ({old} against {new})"
    ratio = row.found.clock_ratio
    if code == "clock" and ratio is not None:
        return f"the clock is {_percent(ratio - 1, 1, sign='+')} off"
    return _REASONS.get(code, code)


def answer_words(row: Compared) -> str:
    """The answer, or why there is none."""
    found = row.found
    if found.claim is Claim.NONE:
        return f"may not be compared: {', '.join(found.reasons)}"
    if found.answer is Answer.SAME and found.margin:
        return f"same within {_percent(found.margin, 0)}"
    if found.answer is Answer.UNDECIDED and found.margin:
        return f"not enough data: single runs cannot tell less than {_percent(found.margin, 0)}"
    return str(found.answer)


def _value(code: str, value: str) -> str:
    return f"{int(value) // 1000} W" if code == "power cap" and value.isdecimal() else value


def _percent(share: float, decimals: int = 2, sign: str = "") -> str:
    return f"{share * 100:{sign}.{decimals}f} %"


def render(report: Report, *, is_markdown: bool = False, width: int | None = None) -> str:
    """The table and what to know about it."""
    rows = report.rows
    unit = time_unit([s for row in rows for s in (row.old_s, row.new_s)])
    many = len(report.labels) > 2
    columns = [
        Column("name", [row.name for row in rows], is_code=True, least=16),
        *([Column("session", [row.side for row in rows], least=12)] if many else []),
        Column(f"{report.labels[0]} ({unit.name})", [in_unit(r.old_s, unit) for r in rows], True),
        Column(
            f"{'new' if many else report.labels[1]} ({unit.name})",
            [in_unit(r.new_s, unit) for r in rows],
            is_number=True,
        ),
        Column("ratio", [_times(r.found.ratio) for r in rows], is_number=True),
        Column("95 %", [_half(r) for r in rows], is_number=True, drop=2),
        Column("at equal clock", [_equal(r) for r in rows], is_number=True, drop=1),
        Column("answer", [answer_words(r) for r in rows], least=24),
    ]
    shown = [c for c in columns if not c.is_empty]
    lines = [markdown(shown) if is_markdown else text(shown, width)]
    return "\n".join([*lines, "", *_notes(report)])


def _notes(report: Report) -> list[str]:
    notes = [f"{label}: {', '.join(names)}" for label, names in report.unmatched.items()]
    reasons = {reason_words(r, c): r.side for r in report.rows for c in r.found.reasons}
    many = len(report.labels) > 2
    notes += [f"{side}: {words}" if many else words for words, side in reasons.items()]
    notes += report.caveats
    claims = {row.found.claim for row in report.rows}
    if claims & {Claim.SAME_CLOCK, Claim.NO_CLOCK}:
        notes.append(
            "one run a side: the interval is within these runs and says nothing of the next; "
            "give folders of three sessions a side for one that does"
        )
    if Claim.REPEATED in claims:
        notes.append("95 % interval over runs (Welch)")
    if Claim.NO_CLOCK in claims:
        notes.append("the device told no clock: only differences beyond 25 % can be its code's")
    return notes if report.rows else [*notes, "no row is in both"]


def _times(ratio: float | None) -> str:
    return DASH if ratio is None else f"{fixed(ratio, 4)}x"


def _half(row: Compared) -> str:
    found = row.found
    if found.ratio is None or found.low is None or found.high is None:
        return DASH
    return f"±{_percent((found.high - found.low) / 2 / found.ratio)}"


def _equal(row: Compared) -> str:
    found = row.found
    if found.equal_clock is None or found.equal_low is None or "clock" not in found.reasons:
        return DASH
    half = (found.equal_high or found.equal_clock) - found.equal_clock
    return f"{_times(found.equal_clock)} ±{_percent(half)}"


def as_data(report: Report, failed: Sequence[Compared] | None) -> dict[str, Any]:
    """Plain data for a bot."""
    return {
        "schema": SCHEMA,
        "sessions": list(report.labels),
        "rows": [_row(row) for row in report.rows],
        "unmatched": {label: list(names) for label, names in report.unmatched.items()},
        "caveats": list(report.caveats),
        "failed": None if failed is None else [row.name for row in failed],
    }


def _row(row: Compared) -> Mapping[str, Any]:
    found = row.found
    return {
        "name": row.name,
        "session": row.side,
        "old_s": row.old_s,
        "new_s": row.new_s,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "equal_clock": found.equal_clock,
        "equal_clock_low": found.equal_low,
        "equal_clock_high": found.equal_high,
        "clock_ratio": found.clock_ratio,
        "answer": str(found.answer),
        "claim": str(found.claim),
        "margin": found.margin,
        "runs": list(found.runs),
        "reasons": list(found.reasons),
        "words": answer_words(row),
        "differing": {code: list(values) for code, values in row.differing.items()},
    }

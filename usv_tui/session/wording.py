"""Notices in words: the only place where a code becomes a sentence."""

from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.model import Notice

Words = Callable[[Mapping[str, Any]], str]


def _ratio(value: Any) -> str:
    return "?" if value is None else f"{float(value):.4f}x"


_SENTENCES: dict[str, Words] = {
    "not warmed up": lambda e: (
        f"still moving after {e.get('warmup_max_s', '?')} s of warm-up: see its state word"
    ),
    "flush unavailable": lambda e: f"cold was asked for, but no flush: {e.get('reason', '')}",
    "out of memory, retrying": lambda e: (
        f"out of memory, tried once more later ({e.get('message', '')})"
    ),
    "bad pace": lambda e: str(e.get("reason", "")),
    "stuck": lambda e: f"no sample for {float(e.get('seconds', 0)):.0f} s: still inside one call",
    "control differs": lambda e: (
        "the control row is the baseline again, and differs from it "
        f"({_ratio(e.get('low'))} to {_ratio(e.get('high'))}): no ratio of this run can be trusted"
    ),
    "lock refused": lambda e: f"clocks not locked: {e.get('reason', '')}",
    "lock note": lambda e: str(e.get("reason", "")),
    "unlock failed": lambda e: f"CLOCKS NOT GIVEN BACK: {e.get('reason', '')}",
    "journal": lambda e: str(e.get("reason", "")),
    "no thermometer": lambda e: f"pace {e.get('pace', '')} needs a temperature, and there is none",
}


def register(sentences: Mapping[str, Words]) -> None:
    """More codes, from the room that makes them."""
    _SENTENCES.update(sentences)


def sentence(notice: Notice, row_name: str = "") -> str:
    """One line for a notice; unknown codes show their evidence as it is."""
    words = _SENTENCES.get(notice.code)
    if words is not None:
        text = words(notice.evidence)
    else:
        facts = ", ".join(f"{key} {_fact(value)}" for key, value in notice.evidence.items())
        text = f"{notice.code}: {facts}" if facts else notice.code
    return f"{row_name}: {text}" if row_name else text


def _fact(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

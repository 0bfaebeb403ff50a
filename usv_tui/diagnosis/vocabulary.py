"""The vocabulary of self-diagnosis: findings and their badges; `report.wording` has the lines."""

from collections.abc import Mapping
from typing import Any, NamedTuple

BADGES: Mapping[str, str] = {
    "not warmed up": "start differs",
    "compiling inside": "compiling?",
    "CPU-bound": "CPU-bound",
    "synchronises": "synchronises",
    "work outside the stream": "outside stream",
    "below timer floor": "at floor",
    "faster than roofline": "implausible",
    "cold that is warm": "not cold",
    "fits in cache": "fits in cache",
    "memory grows": "memory grows",
    "stalls": "stalls",
    "two modes": "2 modes",
    "cached result": "cached?",
    "launch blocking": "launch blocking",
    "profiler on": "profiler",
    "anomaly detection": "anomaly mode",
    "flush unavailable": "no flush",
    "no blocker": "no blocker",
    "graph refused": "graph refused",
    "graph differs": "graph differs",
    "phases hidden": "no phases",
    "abilities missing": "torch lacks",
    "cache not warm": "cache colder",
    "not as alone": "not as alone",
    "inner differs": "other inner",
    "window chosen": "window",
    "off the CPU": "off the CPU",
    "host busy": "host busy",
    "page faults": "page faults",
    "warned": "warned",
    "unproven": "unproven",
    "host only": "host only",
    "host clock waits": "waits",
    "asynchronous library": "asynchronous?",
    "other device": "other device",
    "not waited for": "not waited for",
    "inputs fixed": "inputs fixed",
    "nothing written": "nothing written",
    "faster again": "keeps results",
    "unfinished result": "unfinished",
    "lazy result": "lazy",
    "no result": "no result",
    "work outside the window": "outside window",
    "library replaced": "patched",
    "interpreter watched": "traced",
    "not audited": "not audited",
    "few looks": "few looks",
    "works in turns": "in turns",
    "time falls": "time falls",
    "no growth": "no growth",
    "roofline measured": "measured",
    "clock replaced": "clock replaced",
    "sequential": "sequential",
    "in place": "in place",
}
"""A word or two for the row, by code; a code that is not here is its own badge."""
SILENT = frozenset(
    {
        "imports emptied",
        "signalled",
        "stuck",
        "long import",
        "long first call",
        "code loaded",
        "group closed",
    }
)
"""Codes without a badge: the row's state says it, or it is news and no property of the row."""


def badge_of(code: str) -> str:
    """What a row shows of a notice; empty for nothing."""
    return "" if code in SILENT else BADGES.get(code, code)


DISBELIEVED = (
    *("work outside the stream", "faster than roofline", "nothing written", "faster again"),
    *("unfinished result", "lazy result", "no result", "work outside the window"),
    *("works in turns", "time falls", "no growth"),
    *("clock replaced", "library replaced", "interpreter watched", "not waited for"),
)
"""Codes under which a row's time is no time of its work: it has no ratio."""


class Finding(NamedTuple):
    """A notice in the making."""

    code: str
    evidence: dict[str, Any]


def finding(code: str, **evidence: Any) -> Finding:
    """A finding with its evidence."""
    return Finding(code, evidence)

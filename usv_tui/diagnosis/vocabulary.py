"""The vocabulary of self-diagnosis: findings and their badges; `report.wording` has the lines."""

from collections.abc import Mapping
from typing import Any, NamedTuple

BADGES: Mapping[str, str] = {
    "not warmed up": "not warm",
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
    "stuck": "stuck",
    "abilities missing": "torch lacks",
    "cache not warm": "not warm",
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
}
"""A word or two for the row, by code."""


class Finding(NamedTuple):
    """A notice in the making: its code and the evidence, `badge` among it."""

    code: str
    evidence: dict[str, Any]


def finding(code: str, **evidence: Any) -> Finding:
    """A finding with its badge."""
    return Finding(code, {**evidence, "badge": BADGES[code]})

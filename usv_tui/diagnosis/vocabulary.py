"""The vocabulary of self-diagnosis: findings and their badges; `report.wording` has the lines."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from usv_tui.codes import Code

BADGES: Mapping[Code, str] = {
    Code.NOT_WARMED_UP: "start differs",
    Code.COMPILING_INSIDE: "compiling?",
    Code.CPU_BOUND: "CPU-bound",
    Code.SYNCHRONISES: "synchronises",
    Code.WORK_OUTSIDE_THE_STREAM: "outside stream",
    Code.BELOW_TIMER_FLOOR: "at floor",
    Code.FASTER_THAN_ROOFLINE: "implausible",
    Code.COLD_THAT_IS_WARM: "not cold",
    Code.FITS_IN_CACHE: "fits in cache",
    Code.MEMORY_GROWS: "memory grows",
    Code.STALLS: "stalls",
    Code.TWO_MODES: "2 modes",
    Code.CACHED_RESULT: "cached?",
    Code.LAUNCH_BLOCKING: "launch blocking",
    Code.PROFILER_ON: "profiler",
    Code.ANOMALY_DETECTION: "anomaly mode",
    Code.FLUSH_UNAVAILABLE: "no flush",
    Code.NO_BLOCKER: "no blocker",
    Code.GRAPH_REFUSED: "graph refused",
    Code.GRAPH_DIFFERS: "graph differs",
    Code.PHASES_HIDDEN: "no phases",
    Code.ABILITIES_MISSING: "torch lacks",
    Code.CACHE_NOT_WARM: "cache colder",
    Code.NOT_AS_ALONE: "not as alone",
    Code.INNER_DIFFERS: "other inner",
    Code.WINDOW_CHOSEN: "window",
    Code.OFF_THE_CPU: "off the CPU",
    Code.HOST_BUSY: "host busy",
    Code.PAGE_FAULTS: "page faults",
    Code.WARNED: "warned",
    Code.UNPROVEN: "unproven",
    Code.HOST_ONLY: "host only",
    Code.HOST_CLOCK_WAITS: "waits",
    Code.ASYNCHRONOUS_LIBRARY: "asynchronous?",
    Code.OTHER_DEVICE: "other device",
    Code.NOT_WAITED_FOR: "not waited for",
    Code.INPUTS_FIXED: "inputs fixed",
    Code.NOTHING_WRITTEN: "nothing written",
    Code.FASTER_AGAIN: "keeps results",
    Code.UNFINISHED_RESULT: "unfinished",
    Code.LAZY_RESULT: "lazy",
    Code.NO_RESULT: "no result",
    Code.WORK_OUTSIDE_THE_WINDOW: "outside window",
    Code.LIBRARY_REPLACED: "patched",
    Code.CLOCK_PARTED: "clock parted",
    Code.INTERPRETER_WATCHED: "traced",
    Code.NOT_AUDITED: "not audited",
    Code.FEW_LOOKS: "few looks",
    Code.WORKS_IN_TURNS: "in turns",
    Code.TIME_FALLS: "time falls",
    Code.NO_GROWTH: "no growth",
    Code.INPUTS_DIFFER: "other inputs",
    Code.ROOFLINE_MEASURED: "measured",
    Code.CLOCK_REPLACED: "clock replaced",
    Code.SEQUENTIAL: "sequential",
    Code.IN_PLACE: "in place",
}
"""A word or two for the row, by code; a code that is not here is its own badge."""
SILENT = frozenset(
    {
        Code.IMPORTS_EMPTIED,
        Code.SIGNALLED,
        Code.STUCK,
        Code.LONG_IMPORT,
        Code.LONG_FIRST_CALL,
        Code.CODE_LOADED,
        Code.GROUP_CLOSED,
    }
)
"""Codes without a badge: the row's state says it, or it is news and no property of the row."""


def badge_of(code: str) -> str:
    """What a row shows of a notice; empty for nothing."""
    known = Code(code)
    return "" if known in SILENT else BADGES.get(known, code)


DISBELIEVED = (
    *(
        Code.WORK_OUTSIDE_THE_STREAM,
        Code.FASTER_THAN_ROOFLINE,
        Code.NOTHING_WRITTEN,
        Code.FASTER_AGAIN,
    ),
    *(Code.UNFINISHED_RESULT, Code.LAZY_RESULT, Code.NO_RESULT, Code.WORK_OUTSIDE_THE_WINDOW),
    *(Code.WORKS_IN_TURNS, Code.TIME_FALLS, Code.NO_GROWTH, Code.INPUTS_DIFFER),
    Code.CLOCK_PARTED,
    *(Code.CLOCK_REPLACED, Code.LIBRARY_REPLACED, Code.INTERPRETER_WATCHED, Code.NOT_WAITED_FOR),
)
"""Codes under which a row's time is no time of its work: it has no ratio."""


class Finding(NamedTuple):
    """A notice in the making."""

    code: Code
    evidence: dict[str, Any]


def finding(code: Code, **evidence: Any) -> Finding:
    """A finding with its evidence."""
    return Finding(code, evidence)

"""Records of small sessions, written by hand: what a store, a journal and an export are fed."""

from collections.abc import Sequence
from typing import Any

from usv_tui.codes import Code
from usv_tui.model import BenchInfo, Notice, Reading, RunConfig, TimerInfo
from usv_tui.records import (
    SCHEMA,
    AnyRecord,
    Bench,
    Mark,
    Noted,
    Progress,
    Samples,
    Start,
    Telemetry,
    Timing,
)
from usv_tui.timesource import NS_PER_S

BEGIN_NS = 5 * NS_PER_S
MS = 1_000_000
US = 1_000


def start(**config: Any) -> Start:
    """The head of a session that began at `BEGIN_NS`."""
    return Start(SCHEMA, BEGIN_NS, 1_700_000_000 * NS_PER_S, "file.py", RunConfig(**config))


def row(bench: int, name: str, **info: Any) -> Bench:
    """A row exists."""
    return Bench(BEGIN_NS, BenchInfo(bench=bench, name=name, **info))


def block(
    windows: Sequence[tuple[int, int]],
    at_ns: int = BEGIN_NS,
    *,
    round_: int = 0,
    size: int = 0,
    inner: int | list[int] = 1,
    flag: int = 0,
    flags: list[int] | None = None,
    host_ns: list[int] | None = None,
) -> Samples:
    """Windows (row, ns) one after the other from `at_ns` on, without a pause between them."""
    starts, t = [], 0
    for _, window in windows:
        starts.append(t)
        t += max(0, window)
    return Samples(
        round_,
        size or len(windows),
        at_ns,
        [bench for bench, _ in windows],
        starts,
        [window for _, window in windows],
        inner if isinstance(inner, list) else [inner],
        host_ns or [],
        flags or [],
        flag,
    )


def series(
    bench: int, windows: Sequence[int], at_ns: int = BEGIN_NS, **options: Any
) -> list[AnyRecord]:
    """One block: rounds of one row."""
    return [block([(bench, w) for w in windows], at_ns, size=1, **options)]


def reading(at_ns: int = BEGIN_NS, **values: Any) -> Telemetry:
    """One look at a device."""
    return Telemetry(Reading(device="gpu-0", at_ns=at_ns, **values))


def phase(name: str, at_ns: int = BEGIN_NS, detail: str = "") -> Progress:
    """What the worker does from now on."""
    return Progress(at_ns, name, detail)


def note(code: str, bench: int | None = None, level: str = "warn", **evidence: Any) -> Noted:
    """Self-diagnosis."""
    return Noted(
        Notice(code=Code(code), at_ns=BEGIN_NS, bench=bench, level=level, evidence=evidence)
    )


def mark(label: str, at_ns: int = BEGIN_NS, bench: int | None = None) -> Mark:
    """A new epoch."""
    return Mark(at_ns, label, bench)


def timing(name: str = "wall", **info: Any) -> Timing:
    """The timer."""
    return Timing(BEGIN_NS, TimerInfo(name=name, **info))


def two_rows(rounds: int = 10) -> list[AnyRecord]:
    """A complete little session: rows `a` (1 ms) and `b` (2 ms), interleaved."""
    head: list[AnyRecord] = [start(), timing(), row(0, "a"), row(1, "b"), phase("measuring")]
    pairs = [(0, MS), (1, 2 * MS)] * rounds
    return [*head, block(pairs, BEGIN_NS, size=2)]

"""What the event log says of a record, told before the record is folded in."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from usv_tui import plain
from usv_tui.model import DeviceInfo, RunPhase, Skipped
from usv_tui.records import (
    AnyRecord,
    Baseline,
    BenchError,
    Chosen,
    Clocks,
    Device,
    Fault,
    Launch,
    Launched,
    Mark,
    Output,
    Progress,
    Rebuilt,
    Skip,
    Version,
)
from usv_tui.report.wording.rows import clock_words, cost_words, std_change
from usv_tui.vendor.kinds import BACKENDS

if TYPE_CHECKING:
    from usv_tui.session.store import Store


def narrate(store: "Store", record: AnyRecord) -> None:
    """A line for what a user would want to know of."""
    tell = _TELLERS.get(type(record))
    if tell is not None:
        tell(store, record)


def lost_words(name: str) -> str:
    """What is to be done when the device's context is lost."""
    return f"the device's context is lost after {name}: end this run, and start the command again"


def _output(store: "Store", record: Output) -> None:
    store.log.line(record.at_ns, "out", record.text)


def _chosen(store: "Store", record: Chosen) -> None:
    store.log.line(record.at_ns, "event", f"device {record.device}: {record.reason}")


def _device(store: "Store", record: Device) -> None:
    if store.device is None and not store.course.has_ended:
        store.log.line(record.at_ns, "event", _device_line(record.info))


def _device_line(info: DeviceInfo) -> str:
    uuid = info.slice or info.uuid if info.kind in set(BACKENDS) else ""
    parts = [info.name, uuid, "" if info.simulated else info.driver or ""]
    return " ".join(part for part in parts if part)


def _rebuilt(store: "Store", record: Rebuilt) -> None:
    rows = [store.rows[bench] for bench in record.benches if bench in store.rows]
    names = ", ".join(plain.name(row.info.name) for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    store.log.line(record.at_ns, "event", f"fresh buffers: {names}{more}")


def _fault(store: "Store", record: Fault) -> None:
    hint = f" ({record.hint})" if record.hint else ""
    evidence = {"exit_code": record.exit_code, "message": record.message}
    store.log.tell(record.at_ns, "error", "fault", f"{record.message}{hint}", evidence)


def _skip(store: "Store", record: Skip) -> None:
    name = plain.name(record.name)
    if record.is_refused:
        store.log.line(record.at_ns, "error", f"not timed: {name}: {record.reason}")
    elif Skipped(record.name, record.reason, record.is_refused).is_meant:
        store.log.line(record.at_ns, "event", f"skipped {name}: {record.reason}")


def _clocks(store: "Store", record: Clocks) -> None:
    state = record.state
    if state.is_unmet:
        return  # a notice has said why
    during = state if state.is_ours else store.clocks_during
    if store.course.phase != RunPhase.ENDED or during.locked_mhz is not None:
        evidence = f" ({state.evidence})" if state.evidence else ""
        words = f"{clock_words(state)}{evidence}{cost_words(state)}"
        store.log.line(record.at_ns, "event", f"clocks: {words}")


def _progress(store: "Store", record: Progress) -> None:
    is_news = record.phase != store.course.phase and not store.course.is_within_script(record)
    if is_news and not (record.phase == RunPhase.ENDED and store.course.fault):
        store.log.line(record.at_ns, "event", f"{record.phase} {record.detail}".strip())


def _baseline(store: "Store", record: Baseline) -> None:
    row = store.rows.get(record.bench) if record.bench is not None else None
    whom = plain.name(row.info.name) if row else "each group's own"
    store.log.line(record.at_ns, "event", f"ratios refer to {whom}")


def _error(store: "Store", record: BenchError) -> None:
    row = store.rows.get(record.bench)
    name = plain.name(row.info.name) if row else "the worker"
    log, at_ns = store.log, record.at_ns
    if record.fatal:
        log.tell(at_ns, "error", "context lost", lost_words(name), {"row": name})
    if row is None:
        log.tell(at_ns, "error", record.kind, f"{name}: {record.message}", {})
    else:
        log.line(at_ns, "error", f"{name}: {record.message}")


def since_lock(store: "Store") -> str:
    """What the lock did to the row that it did most to."""
    pairs = [
        (before, now, row.info.name)
        for bench, row in store.rows.items()
        if row.info.parent is None
        and (before := store.lane.before_lock.get(bench))
        and (now := row.statistics(store.window)[0].rel_std)
    ]
    if not pairs:
        return "the lock is held"
    before, now, name = max(pairs, key=lambda pair: pair[0] / pair[1])
    return f"the lock is held: {plain.name(name)} {std_change(before, now)}"


def _version(store: "Store", record: Version) -> None:
    part = "HEAD" if record.index else "BASE"
    store.log.line(record.at_ns, "event", f"{part} {record.label}: {record.what}")


def _launch(store: "Store", record: Launch) -> None:
    turn = f"turns of {record.rounds} round{'s' if record.rounds > 1 else ''}"
    store.log.line(record.at_ns, "event", f"launch {record.number}: {turn}")


def _launched(store: "Store", record: Launched) -> None:
    cost = f"handing over cost {record.handover_ns / 1e3:.1f} µs"
    words = f"launch {record.number} ended: {record.turns} turns, {cost}, {record.share:.2%}"
    store.log.line(record.at_ns, "event", words)


def _mark(store: "Store", record: Mark) -> None:
    store.log.line(record.at_ns, "mark", record.label or "mark")


_TELLERS: Mapping[type, Callable[[Any, Any], None]] = {
    Baseline: _baseline,
    BenchError: _error,
    Chosen: _chosen,
    Clocks: _clocks,
    Device: _device,
    Fault: _fault,
    Launch: _launch,
    Launched: _launched,
    Mark: _mark,
    Output: _output,
    Progress: _progress,
    Rebuilt: _rebuilt,
    Skip: _skip,
    Version: _version,
}

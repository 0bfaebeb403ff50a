"""Notices in words: a sentence for each code."""

import errno
from collections.abc import Callable, Mapping
from typing import Any

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.model import Notice
from usv_tui.report.wording.findings import SENTENCES
from usv_tui.vendor.processes import MOST, words

Words = Callable[[Mapping[str, Any]], str]


def _ratio(value: Any) -> str:
    return "?" if value is None else f"{float(value):.4f}x"


def _others(e: Mapping[str, Any]) -> str:
    processes = e.get("processes") or [{"pid": pid} for pid in e.get("pids") or ()]
    return plain.some(map(words, processes), MOST, int(e.get("more") or 0)) or "?"


def _stalled(e: Mapping[str, Any]) -> str:
    if "seconds" in e:
        return f"telemetry stalled: one {e.get('during', 'call')} took {float(e['seconds']):.1f} s"
    return f"telemetry stalled: {e.get('reason', 'a call hangs')}"


def _own_fault(evidence: Mapping[str, Any]) -> str:
    """A part of ours that failed; a descriptor that is gone was closed by somebody else."""
    if f"[Errno {errno.EBADF}]" in str(evidence["reason"]):
        why = "a benchmark closed a descriptor that is not its own"
    else:
        why = f"a fault of usv-tui's own, at {evidence['where']}: {evidence['reason']}"
    return f"{evidence['part']}: {why} (the measurement goes on)"


def _roofline(evidence: Mapping[str, Any]) -> str:
    """What the device was seen to do, once."""
    if "reason" in evidence:
        return f"what this device can do was not measured ({evidence['reason']})"
    return (
        f"this device does {evidence['flops'] / 1e9:.4g} GFLOP/s in a product of matrices"
        f"{' (one core)' if evidence['cache_bytes'] else ''} and copies "
        f"{evidence['dram_bytes'] / 1e9:.3g} GB/s; more than "
        f"{evidence['peak_flops_per_s'] / 1e9:.4g} GFLOP/s is not believed"
    )


_SENTENCES: dict[Code, Words] = {
    **SENTENCES,
    Code.INPUTS_RESTORED: lambda _: (
        "the callable changes its arguments: they are put back, untimed, before each call"
    ),
    Code.AUDITED: lambda e: (
        f"{e['looks']} look(s) at results and times outside the timed windows took "
        f"{float(e['seconds']):.3g} s"
    ),
    Code.ROOFLINE_MEASURED: _roofline,
    Code.TELEMETRY_LOST: lambda e: f"telemetry lost (the timing goes on): {e.get('reason', '')}",
    Code.TELEMETRY_RECOVERED: lambda _: "telemetry is back",
    Code.TELEMETRY_STALLED: _stalled,
    Code.TELEMETRY_OFF: lambda e: (
        f"no telemetry: {str(e.get('reason', '')).removeprefix('no telemetry: ')}"
    ),
    Code.SENSORS_LOST: lambda e: (
        f"no longer reported: {', '.join(e['sensors'])} ({e['reason']}); the timing goes on"
    ),
    Code.SENSORS_BACK: lambda e: f"reported again: {', '.join(e['sensors'])}",
    Code.MEMORY_ERRORS: lambda e: (
        f"THE DEVICE HAD {e.get('errors', '?')} UNCORRECTED MEMORY ERRORS during the run: its "
        "results cannot be trusted (nvidia-smi -q -d ECC)"
    ),
    Code.DRIVER_ERROR: lambda e: f"the driver reports Xid {e.get('xid', '?')} (dmesg says more)",
    Code.SENSOR_REFUSED: lambda e: (
        f"{e.get('sensor', 'a sensor')} gives values that cannot be true, and they are left out "
        f"({e.get('reason', '')})"
    ),
    Code.SENSOR_DOUBTED: lambda e: f"{e.get('sensor', 'a sensor')} is {e.get('reason', '')}",
    Code.DEVICE_LOST: lambda e: f"THE DEVICE IS LOST: {e.get('reason', '')}",
    Code.HANDOVER: lambda e: (
        f"handing the turn over took {float(e['median_ns']) / 1e3:.1f} µs (median of "
        f"{e['turns']} turns)"
    ),
    Code.SHARED_DEVICE: lambda e: f"others use this device: {_others(e)}",
    Code.NO_LONGER_SHARED: lambda _: "the device is ours alone again",
    Code.NOT_WARMED_UP: lambda e: (
        f"still moving after {e['warmup_max_s']:g} s of warm-up: see its state word"
        if "warmup_max_s" in e
        else f"its first {e['windows']} windows differ by {float(e['difference']):+.2%} "
        "from the rest: a longer --warmup"
    ),
    Code.FLUSH_UNAVAILABLE: lambda e: f"cold was asked for, but no flush: {e.get('reason', '')}",
    Code.OUT_OF_MEMORY_RETRYING: lambda e: (
        f"out of memory, tried once more later ({e.get('message', '')})"
    ),
    Code.NOT_BUILT_AFRESH: lambda e: f"its buffers stay where they are: {e.get('reason', '')}",
    Code.BAD_PACE: lambda e: str(e.get("reason", "")),
    Code.SLOW_ROW: lambda e: (
        f"{float(e['seconds']):.3g} s a window: its first calls are its samples, without a warm-up"
    ),
    Code.ONLY_A_FIRST_CALL: lambda e: (
        f"its only sample is its first call, {float(e['seconds']):.3g} s, which may hold compiling "
        f"({e.get('why', '')})"
    ),
    Code.STUCK: lambda e: (
        f"no sample for {float(e.get('seconds', 0)):.0f} s: still inside one call"
    ),
    Code.CONTROL_DIFFERS: lambda e: (
        "the control row is the baseline again, and differs from it "
        f"({_ratio(e.get('low'))} to {_ratio(e.get('high'))}): no ratio of this run can be trusted"
    ),
    Code.LOCK_REFUSED: lambda e: f"clocks not locked: {e.get('reason', '')}",
    Code.NOT_ADVISED: lambda e: f"clocks not locked: {e.get('reason', '')}",
    Code.LOCK_NOTE: lambda e: str(e.get("reason", "")),
    Code.CLOCKS: lambda e: f"clock control failed ({e.get('reason', '')})",
    Code.GUARDIAN_DIED: lambda e: (
        f"the guardian of the lock {e.get('reason', '')} died: while it has none, a "
        "crash leaves it on"
    ),
    Code.GUARDIAN_RENEWED: lambda _: "the lock has a guardian again",
    Code.NO_GUARDIAN: lambda e: (
        "no guardian could be started: a crash would leave the clocks locked until "
        f"`usv-tui clocks restore` ({e.get('reason', '')})"
    ),
    Code.UNLOCK_FAILED: lambda e: f"CLOCKS NOT GIVEN BACK: {e.get('reason', '')}",
    Code.DAMAGED_SESSION: lambda e: (
        f"THE FILE IS DAMAGED: {e['bytes']} bytes at byte {e['at_byte']} are missing here, "
        f"{e['reason']}"
    ),
    Code.JOINED_SESSIONS: lambda e: (
        f"ANOTHER SESSION FOLLOWS IN THE FILE at byte {e['at_byte']}: its {e['bytes']} bytes are "
        "not read (one file holds one session; compare takes several)"
    ),
    Code.NOT_KEPT: lambda e: f"a record of kind {e['kind']} is not kept: {e['reason']}",
    Code.OWN_FAULT: _own_fault,
    Code.KEEP_REACHED: lambda e: str(e.get("reason", "")),
    Code.SAMPLES_DROPPED: lambda e: str(e.get("reason", "")),
    Code.JOURNAL: lambda e: str(e.get("reason", "")),
    Code.NOT_SAVED: lambda e: str(e.get("reason", "")),
    Code.LOOK_FOR: lambda e: f"look for: {e.get('reason', '')}",
    Code.LONG_IMPORT: lambda e: f"{e['what']} has not returned for {float(e['seconds']):.0f} s",
    Code.ONLY_IN_ONE: lambda e: (
        f"only {e['version']} has it, not {e['other']}: there is nothing to compare it with"
    ),
    Code.FOREIGN_CODE: lambda e: (
        f"THIS IS NOT ONLY THE OTHER VERSION'S CODE: {e['count']} module(s) come from "
        f"{e['folder']} ({', '.join(e['modules'])})"
    ),
    Code.VERSION_SAVED: lambda e: f"save {e['number']}: {e['files']}",
    Code.VERSION_REFUSED: lambda e: (
        f"save {e['number']} is not measured, the one before goes on: {e['why']}"
    ),
    Code.TURN_OPENS: lambda e: (
        f"the first {e['rounds']} round(s) of a turn differ from its others: flagged as ramp"
    ),
    Code.NOT_COMPARED: lambda e: (
        f"its result cannot be held against the other version's: {e['reason']}"
    ),
    Code.FRESH_WORKER: lambda e: f"measuring goes on in {e['why']}",
    Code.IMPORTS_EMPTIED: lambda e: (
        f"{e.get('rows', 'a row')} emptied {e.get('what', 'sys.modules')}: it was put back"
    ),
    Code.CODE_LOADED: lambda e: (
        f"code came in while it was measured: {e.get('modules', '?')} modules, "
        f"{e.get('graphs', '?')} compiled graphs"
    ),
    Code.THREAD_EXIT: lambda e: (
        f"a thread of the benchmark file {e.get('what', '?')}: that thread ended, and nothing else"
    ),
    Code.SIGNALLED: lambda e: (
        f"{e.get('signal', 'a signal')} came to the measuring process alone, which goes on"
    ),
    Code.TRIED_AGAIN: lambda _: "tried again, on request",
    Code.ONLY_WARM_UP_SAMPLES: lambda e: (
        f"all its samples are of the warm-up ({e['why']}): a longer run, or a shorter --warmup"
    ),
    Code.LONG_FIRST_CALL: lambda e: (
        f"{e['state']} for {float(e['seconds']):.0f} s: a call has not returned"
    ),
    Code.DOES_NOT_COOL: lambda e: (
        f"still {float(e['temp_c']):g} C after two minutes, not {float(e['limit_c']):g} C: "
        "measuring goes on at a steady pace"
    ),
    Code.THREADS: lambda e: (
        f"torch computes with {e.get('torch_threads', '?')} threads "
        f"({e.get('torch_interop_threads', '?')} between operators)"
    ),
    Code.SEQUENTIAL: lambda e: (
        f"timed by itself, not interleaved with others: {e.get('reason', '')}"
    ),
    Code.IN_PLACE: lambda e: (
        f"{_apart(e)} beside its group as where the script called it: the value is the latter"
    ),
    Code.GROUP_CLOSED: lambda e: (
        f"{e.get('rows', '?')} calls that wait "
        + (
            f"hold {float(e['held_bytes']) / 1e9:.3g} GB"
            if "held_bytes" in e
            else f"want {float(e['seconds']):.3g} s"
        )
        + ": they are timed now, before the rest of their group"
    ),
    Code.SLEEPS_SKIPPED: lambda e: (
        f"{e['count']} sleeps between its benchmarks, {float(e['seconds']):.3g} s, were skipped"
    ),
    Code.SCRIPT_ENDED: lambda e: (
        f"the script ended with exit code {e.get('exit', '?')}, {e.get('rows', 0)} rows timed"
    ),
    Code.NO_THERMOMETER: lambda e: (
        f"pace {e.get('pace', '')} needs a temperature, and there is none"
    ),
}


def _apart(e: Mapping[str, Any]) -> str:
    ratio = float(e["beside_s"]) / float(e["place_s"])
    return f"{ratio:.2f} times as long"


CODES = frozenset(_SENTENCES)
"""Every code that has words of its own."""


def sentence(notice: Notice, row_name: str = "") -> str:
    """One line for a notice; what is not known of its code or evidence is shown as it is."""
    head = f"{plain.name(row_name)}: " if row_name else ""
    words = _SENTENCES.get(notice.code, _as_it_is(notice.code))
    if notice.is_withdrawn:
        return f"{head}no longer so, taken back: {notice.code}"
    try:
        text = words(notice.evidence)
    except (AttributeError, KeyError, TypeError, ValueError):
        text = _as_it_is(notice.code)(notice.evidence)
    return head + text


def _as_it_is(code: str) -> Words:
    def words(evidence: Mapping[str, Any]) -> str:
        facts = ", ".join(f"{k} {_fact(v)}" for k, v in evidence.items() if k != "badge")
        return f"{code}: {facts}" if facts else code

    return words


def _fact(value: Any) -> str:
    if isinstance(value, list | tuple):
        return plain.some(map(_fact, value), MOST)
    return f"{value:.4g}" if isinstance(value, float) else str(value)

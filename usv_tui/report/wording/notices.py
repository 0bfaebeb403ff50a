"""Notices in words: a sentence for each code."""

import errno
from collections.abc import Callable, Mapping
from typing import Any

from usv_tui import plain
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


_SENTENCES: dict[str, Words] = {
    **SENTENCES,
    "inputs restored": lambda _: (
        "the callable changes its arguments: they are put back, untimed, before each call"
    ),
    "audited": lambda e: (
        f"{e['looks']} look(s) at results and times outside the timed windows took "
        f"{float(e['seconds']):.3g} s"
    ),
    "roofline measured": _roofline,
    "telemetry lost": lambda e: f"telemetry lost (the timing goes on): {e.get('reason', '')}",
    "telemetry recovered": lambda _: "telemetry is back",
    "telemetry stalled": _stalled,
    "telemetry off": lambda e: (
        f"no telemetry: {str(e.get('reason', '')).removeprefix('no telemetry: ')}"
    ),
    "sensors lost": lambda e: (
        f"no longer reported: {', '.join(e['sensors'])} ({e['reason']}); the timing goes on"
    ),
    "sensors back": lambda e: f"reported again: {', '.join(e['sensors'])}",
    "memory errors": lambda e: (
        f"THE DEVICE HAD {e.get('errors', '?')} UNCORRECTED MEMORY ERRORS during the run: its "
        "results cannot be trusted (nvidia-smi -q -d ECC)"
    ),
    "driver error": lambda e: f"the driver reports Xid {e.get('xid', '?')} (dmesg says more)",
    "sensor refused": lambda e: (
        f"{e.get('sensor', 'a sensor')} gives values that cannot be true, and they are left out "
        f"({e.get('reason', '')})"
    ),
    "sensor doubted": lambda e: f"{e.get('sensor', 'a sensor')} is {e.get('reason', '')}",
    "device lost": lambda e: f"THE DEVICE IS LOST: {e.get('reason', '')}",
    "handover": lambda e: (
        f"handing the turn over took {float(e['median_ns']) / 1e3:.1f} µs (median of "
        f"{e['turns']} turns)"
    ),
    "shared device": lambda e: f"others use this device: {_others(e)}",
    "no longer shared": lambda _: "the device is ours alone again",
    "not warmed up": lambda e: (
        f"still moving after {e['warmup_max_s']:g} s of warm-up: see its state word"
        if "warmup_max_s" in e
        else f"its first {e['windows']} windows differ by {float(e['difference']):+.2%} "
        "from the rest: a longer --warmup"
    ),
    "flush unavailable": lambda e: f"cold was asked for, but no flush: {e.get('reason', '')}",
    "out of memory, retrying": lambda e: (
        f"out of memory, tried once more later ({e.get('message', '')})"
    ),
    "not built afresh": lambda e: f"its buffers stay where they are: {e.get('reason', '')}",
    "bad pace": lambda e: str(e.get("reason", "")),
    "slow row": lambda e: (
        f"{float(e['seconds']):.3g} s a window: its first calls are its samples, without a warm-up"
    ),
    "only a first call": lambda e: (
        f"its only sample is its first call, {float(e['seconds']):.3g} s, which may hold compiling "
        f"({e.get('why', '')})"
    ),
    "stuck": lambda e: f"no sample for {float(e.get('seconds', 0)):.0f} s: still inside one call",
    "control differs": lambda e: (
        "the control row is the baseline again, and differs from it "
        f"({_ratio(e.get('low'))} to {_ratio(e.get('high'))}): no ratio of this run can be trusted"
    ),
    "lock refused": lambda e: f"clocks not locked: {e.get('reason', '')}",
    "not advised": lambda e: f"clocks not locked: {e.get('reason', '')}",
    "lock note": lambda e: str(e.get("reason", "")),
    "clocks": lambda e: f"clock control failed ({e.get('reason', '')})",
    "guardian died": lambda e: (
        f"the guardian of the lock {e.get('reason', '')} died: while it has none, a "
        "crash leaves it on"
    ),
    "guardian renewed": lambda _: "the lock has a guardian again",
    "no guardian": lambda e: (
        "no guardian could be started: a crash would leave the clocks locked until "
        f"`usv-tui clocks restore` ({e.get('reason', '')})"
    ),
    "unlock failed": lambda e: f"CLOCKS NOT GIVEN BACK: {e.get('reason', '')}",
    "damaged session": lambda e: (
        f"THE FILE IS DAMAGED: {e['bytes']} bytes at byte {e['at_byte']} are missing here, "
        f"{e['reason']}"
    ),
    "joined sessions": lambda e: (
        f"ANOTHER SESSION FOLLOWS IN THE FILE at byte {e['at_byte']}: its {e['bytes']} bytes are "
        "not read (one file holds one session; compare takes several)"
    ),
    "not kept": lambda e: f"a record of kind {e['kind']} is not kept: {e['reason']}",
    "own fault": _own_fault,
    "keep reached": lambda e: str(e.get("reason", "")),
    "samples dropped": lambda e: str(e.get("reason", "")),
    "journal": lambda e: str(e.get("reason", "")),
    "not saved": lambda e: str(e.get("reason", "")),
    "look for": lambda e: f"look for: {e.get('reason', '')}",
    "long import": lambda e: f"{e['what']} has not returned for {float(e['seconds']):.0f} s",
    "only in one": lambda e: (
        f"only {e['version']} has it, not {e['other']}: there is nothing to compare it with"
    ),
    "foreign code": lambda e: (
        f"THIS IS NOT ONLY THE OTHER VERSION'S CODE: {e['count']} module(s) come from "
        f"{e['folder']} ({', '.join(e['modules'])})"
    ),
    "version saved": lambda e: f"save {e['number']}: {e['files']}",
    "version refused": lambda e: (
        f"save {e['number']} is not measured, the one before goes on: {e['why']}"
    ),
    "turn opens": lambda e: (
        f"the first {e['rounds']} round(s) of a turn differ from its others: flagged as ramp"
    ),
    "not compared": lambda e: (
        f"its result cannot be held against the other version's: {e['reason']}"
    ),
    "fresh worker": lambda e: f"measuring goes on in {e['why']}",
    "imports emptied": lambda e: (
        f"{e.get('rows', 'a row')} emptied {e.get('what', 'sys.modules')}: it was put back"
    ),
    "code loaded": lambda e: (
        f"code came in while it was measured: {e.get('modules', '?')} modules, "
        f"{e.get('graphs', '?')} compiled graphs"
    ),
    "thread exit": lambda e: (
        f"a thread of the benchmark file {e.get('what', '?')}: that thread ended, and nothing else"
    ),
    "signalled": lambda e: (
        f"{e.get('signal', 'a signal')} came to the measuring process alone, which goes on"
    ),
    "tried again": lambda _: "tried again, on request",
    "only warm-up samples": lambda e: (
        f"all its samples are of the warm-up ({e['why']}): a longer run, or a shorter --warmup"
    ),
    "long first call": lambda e: (
        f"{e['state']} for {float(e['seconds']):.0f} s: a call has not returned"
    ),
    "does not cool": lambda e: (
        f"still {float(e['temp_c']):g} C after two minutes, not {float(e['limit_c']):g} C: "
        "measuring goes on at a steady pace"
    ),
    "threads": lambda e: (
        f"torch computes with {e.get('torch_threads', '?')} threads "
        f"({e.get('torch_interop_threads', '?')} between operators)"
    ),
    "sequential": lambda e: f"timed by itself, not interleaved with others: {e.get('reason', '')}",
    "in place": lambda e: (
        f"{_apart(e)} beside its group as where the script called it: the value is the latter"
    ),
    "group closed": lambda e: (
        f"{e.get('rows', '?')} calls that wait "
        + (
            f"hold {float(e['held_bytes']) / 1e9:.3g} GB"
            if "held_bytes" in e
            else f"want {float(e['seconds']):.3g} s"
        )
        + ": they are timed now, before the rest of their group"
    ),
    "sleeps skipped": lambda e: (
        f"{e['count']} sleeps between its benchmarks, {float(e['seconds']):.3g} s, were skipped"
    ),
    "script ended": lambda e: (
        f"the script ended with exit code {e.get('exit', '?')}, {e.get('rows', 0)} rows timed"
    ),
    "no thermometer": lambda e: f"pace {e.get('pace', '')} needs a temperature, and there is none",
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

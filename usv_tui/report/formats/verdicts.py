"""Verdicts for machines: a JSON line a row, and one of the run at the end.

`verdicts.schema.json` beside this file is the schema; `VERSION` moves when a field changes its
meaning or goes. New fields may come at any time.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from usv_tui.model import Answer, Ratio
from usv_tui.report.wording.codes import CODES, NOT_BELIEVABLE, code_of
from usv_tui.session.opened import Opened
from usv_tui.session.snapshot import RowView, Snapshot

VERSION = 1
_UNEVEN = 3.0
"""A mean so many times the median is made by a few windows."""
_ANSWERS = {
    Answer.FASTER: ("faster", "measured"),
    Answer.SLOWER: ("slower", "measured"),
    Answer.SAME: ("same", "measured"),
    Answer.MOVING: ("not_enough_data", "still-moves"),
    Answer.UNDECIDED: ("not_enough_data", "undecided"),
}


def text(session: Opened) -> str:
    """The lines of a saved session."""
    return text_of(session.snapshot)


def text_of(snapshot: Snapshot) -> str:
    """All lines: the rows in their order, then the run."""
    return "".join(
        json.dumps(_finite(msgspec.to_builtins(line, enc_hook=str, str_keys=True))) + "\n"
        for line in (*_rows(snapshot), _run(snapshot))
    )


def _rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    rows = [row for row in snapshot.rows if row.parent is None]
    for row in rows:
        verdict, code, evidence = verdict_of(row, snapshot)
        ratio = row.ratio if verdict in ("faster", "same", "slower") else None
        yield {
            "schema": VERSION,
            "kind": "row",
            "name": row.name,
            "group": row.group,
            "baseline": row.baseline_name or None,
            "is_control": row.control_of is not None,
            "verdict": verdict,
            "ratio": None if ratio is None else ratio.ratio,
            "interval": _interval(ratio),
            "code": code,
            "meaning": CODES[code].meaning,
            "evidence": evidence,
            "findings": sorted(_findings(row, snapshot)),
            "n": row.whole.n,
            "median_s": row.whole.median_s,
            "drift": {"word": str(row.word), "change": row.drift.change},
            "throttled": dict(row.throttled),
        }


def _run(snapshot: Snapshot) -> dict[str, Any]:
    clocks, advice = snapshot.clocks_during, snapshot.advice
    return {
        "schema": VERSION,
        "kind": "run",
        "suite": snapshot.suite,
        "complete": snapshot.complete,
        "reason": snapshot.stop_reason,
        "trusted": not snapshot.untrusted and not snapshot.banner,
        "banner": snapshot.banner or None,
        "rounds": snapshot.rounds,
        "elapsed_s": snapshot.elapsed_s,
        "device": snapshot.config.device,
        "timer": None if snapshot.timer is None else snapshot.timer.name,
        "lock": {"state": str(clocks.hold), "mhz": clocks.locked_mhz},
        "advice": {"verdict": str(advice.verdict), "lock_mhz": advice.lock_mhz},
        "warnings": sorted({code_of(told.code) for told in snapshot.told if not told.row}),
    }


def verdict_of(row: RowView, snapshot: Snapshot) -> tuple[str, str, dict[str, Any]]:
    """The answer, the code of its reason, and the evidence."""
    bad = _disbelief(row, snapshot)
    if bad is not None:
        return "not_believable", *bad
    if row.error:
        return "not_enough_data", "failed", {"error": row.error}
    if row.is_baseline:
        return (
            ("same" if row.whole.n else "not_enough_data"),
            ("baseline" if row.whole.n else "no-sample"),
            {},
        )
    if not row.whole.n:
        return "not_enough_data", "no-sample", {"state": str(row.state)}
    base = next((r for r in snapshot.rows if r.name == row.baseline_name), None)
    if base is not None:
        doubt = _disbelief(base, snapshot)
        if doubt is not None:
            return "not_believable", "baseline-not-believable", {"code": doubt[0], **doubt[1]}
        if base.error:
            return "not_enough_data", "baseline-failed", {"error": base.error}
    if snapshot.untrusted:
        return "not_enough_data", "control-differs", {}
    if row.ratio is None:
        return "not_enough_data", "no-baseline", {}
    unseen = sorted({"few-looks", "not-audited"} & _findings(row, snapshot))
    if row.ratio.answer is Answer.FASTER and unseen:
        return "not_enough_data", unseen[0], {"n": row.ratio.n}
    if row.ratio.answer is Answer.FASTER and base is not None and _is_mean_against(row, base):
        means = {"mean_s": row.whole.mean_s, "median_s": row.whole.median_s}
        return "not_enough_data", "mean-disagrees", {**means, "base_mean_s": base.whole.mean_s}
    return *_ANSWERS[row.ratio.answer], {"n": row.ratio.n, "n_eff": row.ratio.n_eff}


def _is_mean_against(row: RowView, base: RowView) -> bool:
    """Whether most of a row's time is in few of its windows, and in all it is not faster."""
    mean, median, base_mean = row.whole.mean_s, row.whole.median_s, base.whole.mean_s
    if mean is None or median is None or base_mean is None:
        return False
    return mean > _UNEVEN * median and mean > base_mean


def _disbelief(row: RowView, snapshot: Snapshot) -> tuple[str, dict[str, Any]] | None:
    kind = code_of(row.error_kind)
    if row.error and kind in NOT_BELIEVABLE:
        return kind, {"error": row.error}
    for told in snapshot.told:
        code = code_of(told.code)
        if code in NOT_BELIEVABLE and told.row in ("", row.name):
            return code, {k: v for k, v in told.evidence.items() if k != "badge"}
    return None


def _findings(row: RowView, snapshot: Snapshot) -> set[str]:
    """Codes of everything that was told of this row."""
    return {code_of(told.code) for told in snapshot.told if told.row == row.name}


def _interval(ratio: Ratio | None) -> list[float] | None:
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return [ratio.low, ratio.high]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value

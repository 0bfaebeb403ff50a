"""github-action-benchmark's `customSmallerIsBetter`: a list of names, values and what is known."""

import json

from usv_tui.report.formats.rows import Timed, timed
from usv_tui.session.opened import Opened
from usv_tui.stats.compare import saved_row
from usv_tui.units import fixed


def text(session: Opened) -> str:
    """Medians in nanoseconds; `range` is half the 95 % interval of this run, `extra` the answer."""
    return json.dumps([_entry(row) for row in timed(session)], allow_nan=False) + "\n"


def _entry(row: Timed) -> dict[str, object]:
    saved = saved_row(row.seconds)
    value = (saved.median_s or 0.0) * 1e9
    return {
        "name": row.view.name,
        "value": value,
        "unit": "ns",
        "range": f"± {fixed(value * saved.half)}",
        "extra": _extra(row),
    }


def _extra(row: Timed) -> str:
    view, ratio = row.view, row.view.ratio
    words = [f"n {row.seconds.size}", str(view.word), f"cache {view.cache}", *view.badges]
    if ratio is not None and ratio.ratio is not None:
        words.append(f"{ratio.answer} {fixed(ratio.ratio, 4)}x of {view.baseline_name}")
    return ", ".join(word for word in words if word)

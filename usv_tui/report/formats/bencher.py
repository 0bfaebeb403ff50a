"""Bencher Metric Format (adapter `json`): nanoseconds, with an interval of their own."""

import json

from usv_tui.report.formats.rows import timed
from usv_tui.session.opened import Opened
from usv_tui.stats.compare import saved_row


def text(session: Opened) -> str:
    """Each row's median with the 95 % interval of this run."""
    data = {}
    for row in timed(session):
        saved = saved_row(row.seconds)
        value = (saved.median_s or 0.0) * 1e9
        data[row.view.name] = {
            "latency": {
                "value": value,
                "lower_value": value * (1 - saved.half),
                "upper_value": value * (1 + saved.half),
            }
        }
    return json.dumps(data, allow_nan=False) + "\n"

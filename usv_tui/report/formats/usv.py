"""usv's results file: what its `load_results` reads, with every sample of every row."""

import json

from usv_tui.report.columns import OF_ROWS
from usv_tui.report.formats.rows import Timed, timed
from usv_tui.session.opened import Opened


def text(session: Opened) -> str:
    """Commit, date and one measurement a row."""
    snapshot = session.snapshot
    git = snapshot.environment.get("git")
    state = git if isinstance(git, dict) else {}
    data = {
        "commit_hash": state.get("commit", "unknown"),
        "dirty": state.get("dirty"),
        "timestamp": snapshot.wall_unix_ns // 1_000_000_000,
        "results": {row.view.name: _result(row, session) for row in timed(session)},
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _result(row: Timed, session: Opened) -> dict[str, object]:
    view, snapshot = row.view, session.snapshot
    x = row.seconds
    figures = {column.json: column.pick(view, view.whole) for column in OF_ROWS}
    return {
        "n": int(x.size),
        "median": view.whole.median_s,
        "mean": float(x.mean()),
        "std": row.std_s,
        "min": float(x.min()),
        "max": float(x.max()),
        "tflops": figures["tflops"],
        "gbps": figures["gbps"],
        "times": x.tolist(),
        "timer": snapshot.timer.name if snapshot.timer else None,
        "cache": view.cache,
        "clocks": str(snapshot.clocks_during.hold),
        "params": {key: str(value) for key, value in row.params.items()},
    }

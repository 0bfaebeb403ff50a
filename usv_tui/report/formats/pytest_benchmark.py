"""pytest-benchmark's JSON: read by its `compare`, and by services that read it.

A reader of `ops` sees one over the mean, not the median.
"""

import datetime as dt
import json
import platform
from typing import Any

import numpy as np

from usv_tui.report.formats.rows import Timed, timed
from usv_tui.session.opened import Opened


def text(session: Opened) -> str:
    """The session as one JSON object, all samples in `data`."""
    snapshot = session.snapshot
    env = snapshot.environment
    git = env.get("git")
    state = git if isinstance(git, dict) else {}
    when = dt.datetime.fromtimestamp(snapshot.wall_unix_ns / 1e9, dt.UTC).isoformat()
    data = {
        "machine_info": {
            "node": env.get("host"),
            "processor": env.get("cpu"),
            "machine": env.get("machine"),
            "python_compiler": "",
            "python_implementation": platform.python_implementation(),
            "python_version": env.get("python"),
            "python_build": ["", ""],
            "release": env.get("system"),
            "system": str(env.get("system", "")).partition(" ")[0],
            "cpu": {"brand_raw": env.get("cpu"), "count": env.get("cpus")},
            "device": snapshot.device.name if snapshot.device else None,
        },
        "commit_info": {
            "id": state.get("commit", "unknown"),
            "time": when,
            "author_time": when,
            "dirty": bool(state.get("dirty")),
            "project": snapshot.suite,
            "branch": "(unknown)",
        },
        "benchmarks": [_benchmark(row, snapshot.suite) for row in timed(session)],
        "datetime": when,
        "version": "5.0.0",
    }
    return json.dumps(data, allow_nan=False) + "\n"


def _benchmark(row: Timed, suite: str) -> dict[str, Any]:
    view = row.view
    return {
        "group": view.group or None,
        "name": view.name,
        "fullname": f"{suite}::{view.name}",
        "params": {key: str(value) for key, value in row.params.items()} or None,
        "param": "-".join(str(value) for value in row.params.values()) or None,
        "extra_info": {
            "cache": view.cache,
            "state": str(view.word),
            "answer": None if view.ratio is None else str(view.ratio.answer),
            "ratio": None if view.ratio is None else view.ratio.ratio,
        },
        "options": {
            "disable_gc": True,
            "timer": "usv-tui",
            "min_rounds": 1,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": _stats(row),
    }


def _stats(row: Timed) -> dict[str, Any]:
    x = row.seconds
    low, high = row.quartiles
    iqr, mean = high - low, float(x.mean())
    fences = low - 1.5 * iqr, high + 1.5 * iqr
    outside = int(((x < fences[0]) | (x > fences[1])).sum())
    beyond = int((np.abs(x - mean) > row.std_s).sum())
    inside = x[(x >= fences[0]) & (x <= fences[1])]
    return {
        "min": float(x.min()),
        "max": float(x.max()),
        "mean": mean,
        "stddev": row.std_s,
        "rounds": int(x.size),
        "median": float(np.median(x)),
        "iqr": iqr,
        "q1": low,
        "q3": high,
        "iqr_outliers": outside,
        "stddev_outliers": beyond,
        "outliers": f"{beyond};{outside}",
        "ld15iqr": float(inside.min()),
        "hd15iqr": float(inside.max()),
        "ops": 1 / mean,
        "total": float(x.sum()),
        "iterations": row.inner,
        "data": x.tolist(),
    }

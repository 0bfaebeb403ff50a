"""Time GPU kernels in an interleaved loop beside live clock, temperature and power.

The names are those of usv 2026.1, with `benchmark`, `phase` and a few more. Importing this package
costs neither torch nor numpy nor textual: a name brings its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usv_tui.device.fixed import fixed_clocks
    from usv_tui.engine.api import do_bench, do_bench_many
    from usv_tui.engine.choice import get_timer, gpu_vendor
    from usv_tui.engine.measurement import BenchmarkFailed, Measurement
    from usv_tui.engine.phases import phase
    from usv_tui.engine.timers import GPUTimer
    from usv_tui.report.measurements import format_table
    from usv_tui.results import load_results, save_results
    from usv_tui.suite.authoring import benchmark, rotating

_HOMES = {
    "BenchmarkFailed": "usv_tui.engine.measurement",
    "GPUTimer": "usv_tui.engine.timers",
    "Measurement": "usv_tui.engine.measurement",
    "benchmark": "usv_tui.suite.authoring",
    "do_bench": "usv_tui.engine.api",
    "do_bench_many": "usv_tui.engine.api",
    "fixed_clocks": "usv_tui.device.fixed",
    "format_table": "usv_tui.report.measurements",
    "get_timer": "usv_tui.engine.choice",
    "gpu_vendor": "usv_tui.engine.choice",
    "load_results": "usv_tui.results",
    "phase": "usv_tui.engine.phases",
    "rotating": "usv_tui.suite.authoring",
    "save_results": "usv_tui.results",
}

__all__ = [
    "BenchmarkFailed",
    "GPUTimer",
    "Measurement",
    "benchmark",
    "do_bench",
    "do_bench_many",
    "fixed_clocks",
    "format_table",
    "get_timer",
    "gpu_vendor",
    "load_results",
    "phase",
    "rotating",
    "save_results",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

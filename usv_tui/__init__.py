"""Time GPU kernels in an interleaved loop beside live clock, temperature and power.

The names are those of usv 2026.1, with `benchmark`, `phase` and a few more. Importing this package
costs neither torch nor numpy nor textual: a name brings its module when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usv_tui.library.api import do_bench, do_bench_many
    from usv_tui.library.fixed import fixed_clocks
    from usv_tui.library.measurement import BenchmarkFailed, Measurement
    from usv_tui.library.ratios import ratios
    from usv_tui.library.results import load_results, save_results
    from usv_tui.library.sessions import load
    from usv_tui.library.table import format_table
    from usv_tui.library.timer_selection import get_timer, gpu_vendor
    from usv_tui.suite.authoring import benchmark, rotating
    from usv_tui.timers.phases import phase
    from usv_tui.timers.wall import GPUTimer

__version__ = "0.1.0"

_HOMES = {
    "BenchmarkFailed": "usv_tui.library.measurement",
    "GPUTimer": "usv_tui.timers.wall",
    "Measurement": "usv_tui.library.measurement",
    "benchmark": "usv_tui.suite.authoring",
    "do_bench": "usv_tui.library.api",
    "do_bench_many": "usv_tui.library.api",
    "fixed_clocks": "usv_tui.library.fixed",
    "format_table": "usv_tui.library.table",
    "get_timer": "usv_tui.library.timer_selection",
    "gpu_vendor": "usv_tui.library.timer_selection",
    "load": "usv_tui.library.sessions",
    "load_results": "usv_tui.library.results",
    "phase": "usv_tui.timers.phases",
    "ratios": "usv_tui.library.ratios",
    "rotating": "usv_tui.suite.authoring",
    "save_results": "usv_tui.library.results",
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
    "load",
    "load_results",
    "phase",
    "ratios",
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

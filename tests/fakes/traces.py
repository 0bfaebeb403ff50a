"""Simulated runs as the statistics are given them, and advice followed second by second."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from usv_tui.sim.trace import Trace
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.inputs import Probe, RowData, TelemetryData, position

S = 1_000_000_000


def rows_of(trace: Trace, baseline: int = 0) -> list[RowData]:
    """Every kernel of a trace as a row."""
    rows = []
    for bench in range(len(trace.kernels)):
        mine = np.flatnonzero(trace.bench == bench)
        rows.append(
            RowData(
                bench,
                trace.t_ns[mine],
                trace.window_ns[mine],
                trace.inner[mine],
                trace.round[mine],
                trace.flags[mine],
                None if bench == baseline else baseline,
                tick_ns=trace.card.tick_ns,
            )
        )
    return rows


def probe_of(trace: Trace) -> Probe:
    """The clock of every sample as a probe inside the stream would measure it."""
    return Probe(trace.t_ns, trace.clock_mhz)


def telemetry_of(
    trace: Trace, *, is_shared: bool | None = None, probe: Probe | None = None
) -> TelemetryData:
    """A trace's readings; `is_shared` defaults to whether a neighbour's process can be seen."""
    if is_shared is None:
        is_shared = any(n.pid is not None for n in trace.scenario.neighbours)
    return TelemetryData(
        trace.read_ns,
        trace.sm_mhz,
        trace.temp_c,
        np.where(np.isfinite(trace.reasons), trace.reasons, -1).astype(np.int64),
        trace.power_capped_ns,
        trace.thermal_ns + trace.hw_thermal_ns,
        trace.low_mhz if trace.card.chiplets > 1 else None,
        tuple(trace.card.supported_mhz),
        is_shared,
        probe,
        trace.power_w * 1e3,
        trace.card.cap_w,
        trace.card.t_sw_c,
    )


def until(row: RowData, now_ns: int) -> RowData:
    """The samples that had been taken by then."""
    end = position(row.t_ns, now_ns)
    while end and row.t_ns[end - 1] + row.window_ns[end - 1] > now_ns:
        end -= 1
    return replace(
        row,
        t_ns=row.t_ns[:end],
        window_ns=row.window_ns[:end],
        inner=row.inner[:end],
        rounds=row.rounds[:end],
        flags=row.flags[:end],
    )


def follow(
    trace: Trace,
    analyst: Analyst | None = None,
    *,
    from_s: int = 1,
    to_s: int | None = None,
    locked_mhz: int | None = None,
    is_held: bool | None = None,
    is_shared: bool | None = None,
    probe: Probe | None = None,
) -> Iterator[Analysis]:
    """The analysis at each full second of a trace."""
    analyst = Analyst() if analyst is None else analyst
    rows, telemetry = rows_of(trace), telemetry_of(trace, is_shared=is_shared, probe=probe)
    end_s = int(trace.t_ns[-1] // S) + 1 if to_s is None else to_s
    for second in range(from_s, end_s + 1):
        now_ns = second * S
        yield analyst.update(
            [until(row, now_ns) for row in rows],
            telemetry.cut(0, now_ns),
            now_ns,
            locked_mhz=locked_mhz,
            is_held=is_held,
        )

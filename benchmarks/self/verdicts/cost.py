"""The cost of one update of everything."""

import time
from dataclasses import replace

import numpy as np

from benchmarks.self.verdicts.tables import Size, rng_for, table
from tests.fakes import noise
from tests.fakes.traces import S
from usv_tui.model import Reason
from usv_tui.stats.analysis import Analyst
from usv_tui.stats.inputs import RowData, TelemetryData


def million(rows: int = 20, n: int = 1_000_000, span_s: int = 100) -> list[RowData]:
    """Rows of a million samples each."""
    rng = rng_for(10)
    t = np.linspace(0, span_s * S, n).astype(np.int64)
    rounds, inner, flags = np.arange(n, dtype=np.int32), np.full(n, 10, np.int32), np.zeros(n, "u1")
    noises = [rng.standard_normal(n) for _ in range(2)]
    return [
        RowData(
            b,
            t,
            (1e6 * (1 + 0.003 * noises[b % 2])).astype(np.int64) + b,
            inner,
            rounds,
            flags,
            None if b == 0 else 0,
            tick_ns=32,
        )
        for b in range(rows)
    ]


def readings(span_s: int) -> TelemetryData:
    """A clock that dithers under a power cap, 20 readings a second."""
    n = 20 * span_s
    mhz = 1700 * np.exp(0.01 * noise.ar1_normal(rng_for(11), n, 0.97))
    return TelemetryData(
        np.linspace(0, span_s * S, n).astype(np.int64),
        np.round(mhz / 15) * 15,
        np.full(n, 60.0),
        np.full(n, int(Reason.SW_POWER_CAP), np.int64),
        np.linspace(0, span_s * S, n),
        np.zeros(n),
        None,
        tuple(range(210, 1981, 15)),
    )


def cost(_size: Size) -> None:
    """Time of one update of everything, for 20 rows."""
    rows = []
    for n in (10_000, 100_000, 1_000_000):
        data, telemetry = million(n=n), readings(100)
        analyst = Analyst()
        times = []
        for second in range(70, 95):
            now = second * S
            k = n * second // 100
            part = [
                replace(
                    r,
                    t_ns=r.t_ns[:k],
                    window_ns=r.window_ns[:k],
                    inner=r.inner[:k],
                    rounds=r.rounds[:k],
                    flags=r.flags[:k],
                )
                for r in data
            ]
            cut = telemetry.cut(0, now)
            start = time.perf_counter()
            analyst.update(part, cut, now)
            times.append(1e3 * (time.perf_counter() - start))
        quick, typical, slow = np.quantile(times[1:], (0.1, 0.5, 0.9))
        rows.append((f"{n:,}", f"{quick:.1f} ms", f"{typical:.1f} ms", f"{slow:.1f} ms"))
    print("### One update of everything, 20 rows, clock dithering, 24 updates\n")
    table(("samples a row", "10 %", "median", "90 %"), rows)

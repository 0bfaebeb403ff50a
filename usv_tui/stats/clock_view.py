"""The clock of one window, as the clock's effect and the advice need it."""

import math

import numpy as np

from usv_tui.stats.advice import MIN_READINGS, ClockEvidence
from usv_tui.stats.basics import NS_PER_S, FloatArray
from usv_tui.stats.clock_effect import ClockTrace, clock_spread
from usv_tui.stats.drift import batch_locations, temperature_change, trends
from usv_tui.stats.inputs import TelemetryData, is_idle, position
from usv_tui.stats.reading_noise import hold_s
from usv_tui.stats.witness import Witnessed

PROBES = 2000
"""Most in-stream clock readings looked at."""


def effect_clock(
    telemetry: TelemetryData, loaded: TelemetryData, from_ns: int, now_ns: int
) -> ClockTrace | None:
    """The clock to tell effects by: taken inside the stream where there is enough of that."""
    probe = telemetry.probe
    if probe is not None:
        a, b = position(probe.t_ns, from_ns), position(probe.t_ns, now_ns + 1)
        stride = max(1, (b - a) // PROBES)
        t_ns, mhz = probe.t_ns[a:b:stride], probe.mhz[a:b:stride]
        good = np.isfinite(mhz) & (mhz > 0)
        if good.sum() >= MIN_READINGS:
            return ClockTrace(t_ns[good], mhz[good], loaded.step_mhz, lag_s=0.0)
    return clock_trace(loaded)


def clock_trace(loaded: TelemetryData) -> ClockTrace | None:
    """The clock as telemetry tells it; None without a reading."""
    good = np.isfinite(loaded.sm_mhz) & (loaded.sm_mhz > 0)
    if not good.any():
        return None
    return ClockTrace(loaded.t_ns[good], loaded.sm_mhz[good], loaded.step_mhz)


def slowest(loaded: TelemetryData) -> FloatArray:
    """The clock under load, of the slowest partition where there are several."""
    mhz = loaded.sm_mhz if loaded.low_mhz is None else loaded.low_mhz
    return mhz[np.isfinite(mhz) & (mhz > 0)]


def low_clock(loaded: TelemetryData) -> float | None:
    """5th percentile of the clock under load."""
    good = slowest(loaded)
    return float(np.quantile(good, 0.05)) if good.size else None


def age_s(readings: TelemetryData, now_ns: int) -> float:
    """Age of the latest reading, of the clock where there is one; infinite without any."""
    good = readings.t_ns[np.isfinite(readings.sm_mhz)]
    latest = good if good.size else readings.t_ns
    return float(now_ns - latest[-1]) / NS_PER_S if latest.size else math.inf


def clock_evidence(
    loaded: TelemetryData, told: Witnessed, age_s: float, readings: TelemetryData
) -> ClockEvidence:
    """What the advice goes by, from the readings under load and the age of the latest of all."""
    trace = clock_trace(loaded)
    limited = told.limits
    if trace is None:
        idle = int(np.count_nonzero(is_idle(readings)))
        return ClockEvidence(
            readings=int(loaded.t_ns.size),
            idle=idle,
            apart=int(readings.t_ns.size) - idle,
            age_s=age_s,
            power_share=limited.power,
            thermal_share=limited.thermal,
            is_shared=loaded.is_shared,
            stuck=told.stuck,
        )
    y = batch_locations(trace.mhz)
    t = loaded.t_ns
    return ClockEvidence(
        readings=int(trace.mhz.size),
        age_s=age_s,
        spread=clock_spread(trace),
        median_mhz=float(np.median(trace.mhz)),
        low_mhz=low_clock(loaded),
        step_mhz=trace.step_mhz,
        period_s=max(trace.period_s, hold_s(trace.t_ns, trace.mhz)),
        trend=None if y is None else trends(y)[0],
        power_share=limited.power,
        thermal_share=limited.thermal,
        temp_change_c=temperature_change(t, loaded.temp_c, float(t[0]), float(t[-1])),
        supported_mhz=loaded.supported_mhz,
        under_load_mhz=slowest(loaded),
        is_shared=loaded.is_shared,
        is_down=told.is_down,
        stuck=told.stuck,
    )

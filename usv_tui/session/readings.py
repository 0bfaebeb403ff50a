"""The device's readings, as the statistics and the exports take them."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import DeviceInfo, Reading
from usv_tui.session.snapshot import FloatArray, IntArray
from usv_tui.stats.inputs import Probe, TelemetryData
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.session.store import Store

_PROBE_NEAR_NS = NS_PER_S // 5


def sample_clock(store: "Store", t_ns: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The clock of samples that started at these times, and where it is the stream's own.

    In-stream where a probe measured within 0.2 s, else the last polled reading of the second
    before; NaN where neither is known.
    """
    polled_t = store.telemetry_columns.t_ns.view()
    polled = store.telemetry_columns.fields["sm_mhz"].view()
    mhz = np.full(len(t_ns), np.nan)
    if len(polled_t):
        index = np.searchsorted(polled_t, t_ns, side="right") - 1
        known = (index >= 0) & (t_ns - polled_t[index.clip(0)] <= NS_PER_S)
        mhz[known] = polled[index[known]]
    in_stream = np.zeros(len(t_ns), bool)
    probe_t = store.probe_t_ns.view()
    if len(probe_t):
        right = np.searchsorted(probe_t, t_ns).clip(0, len(probe_t) - 1)
        left = (right - 1).clip(0)
        nearer = np.abs(probe_t[left] - t_ns) <= np.abs(probe_t[right] - t_ns)
        nearest = np.where(nearer, left, right)
        in_stream = np.abs(probe_t[nearest] - t_ns) <= _PROBE_NEAR_NS
        mhz[in_stream] = store.probe_mhz.view()[nearest[in_stream]]
    return mhz, in_stream


def since(store: "Store", now_ns: int, from_ns: int) -> TelemetryData:
    """Readings since then; the clock is the stream's own where it was measured."""
    columns = store.telemetry_columns
    part = columns.between(from_ns, now_ns + 1)
    t_ns = columns.t_ns.view()[part]
    if not len(t_ns):
        return TelemetryData.none()
    fields = {name: column.view()[part] for name, column in columns.fields.items()}
    probe = None
    if store.probe_t_ns.n:
        times = store.probe_t_ns.view()
        first = int(np.searchsorted(times, from_ns))
        probe = Probe(times[first:], store.probe_mhz.view()[first:])
    reading, device = store.reading, store.device
    sensor = device.sensors.get("sm_mhz") if device is not None else None
    if sensor is not None and sensor.is_nominal:
        # A figure from a table, not a measurement: nothing may be concluded from its standing.
        fields["sm_mhz"] = np.full(len(t_ns), np.nan)
    return TelemetryData(
        t_ns=t_ns,
        sm_mhz=fields["sm_mhz"],
        probe=probe,
        temp_c=fields["temp_c"],
        reasons=columns.reasons.view()[part],
        power_ns=columns.throttle_ns["power"].view()[part],
        thermal_ns=columns.throttle_ns["thermal"].view()[part],
        low_mhz=fields["sm_mhz_min"] if columns.has_low else None,
        supported_mhz=tuple(store.clocks.supported_mhz)
        or (tuple(device.supported_sm_mhz) if device else ()),
        is_shared=bool(reading and reading.others),
        power_mw=fields["power_mw"],
        cap_w=_watts(reading, device),
        temp_limit_c=_slowdown_c(device),
        max_mhz=device.max_sm_mhz if device else None,
    )


def _watts(reading: Reading | None, device: DeviceInfo | None) -> float | None:
    """The power limit in force."""
    limit = reading.power_limit_mw if reading is not None else None
    limit = limit or (device.power_limit_mw if device is not None else None)
    return None if limit is None else limit * 1e-3


def _slowdown_c(device: DeviceInfo | None) -> float | None:
    """Where the device begins to slow down for its temperature: the lowest limit it tells."""
    return min(device.temp_limits_c.values(), default=None) if device is not None else None

"""Energy a call: the counter where one row ran alone for long, else power times time, labelled."""

import numpy as np
import pytest

from usv_tui.model import SensorInfo
from usv_tui.telemetry.energy import RowWindows, energy_per_call

MS = 1_000_000
S = 1_000_000_000


def row(start_ns, window_ns, count, gap_ns=0, inner=1):
    """Equal windows with equal gaps."""
    starts = start_ns + np.arange(count, dtype=np.int64) * (window_ns + gap_ns)
    windows = np.full(count, window_ns, dtype=np.int64)
    return RowWindows(starts, windows, np.full(count, inner, dtype=np.int64))


def telemetry(seconds, watts):
    """Readings ten times a second: times, a counter that is the integral of power, and power."""
    t_ns = np.arange(0, seconds * 10 + 1, dtype=np.int64) * 100 * MS
    power = np.array([watts(t / S) for t in t_ns], dtype=float)
    steps = (power[1:] + power[:-1]) / 2 * 0.1
    energy = np.concatenate(([0.0], np.cumsum(steps)))
    return t_ns, energy * 1000, power * 1000


def test_a_row_alone_is_measured_by_the_counter():
    """300 W for 10 s of 1 ms calls back to back: 0.3 J each."""
    t_ns, energy, power = telemetry(12, lambda t: 300)
    result = energy_per_call(row(S, MS, 10_000), t_ns, energy, power)

    assert result.joules == pytest.approx(0.3, rel=1e-3)
    assert result.label == "counter"


def test_inner_calls_share_a_window():
    """Ten calls a window: a tenth each."""
    t_ns, energy, power = telemetry(12, lambda t: 300)
    result = energy_per_call(row(S, 10 * MS, 1000, inner=10), t_ns, energy, power)

    assert result.joules == pytest.approx(0.3, rel=1e-3)


def test_rows_that_take_turns_get_power_times_time_and_the_label_says_so():
    """Interleaved 1 ms windows: the counter cannot be split, the power is the mix's."""
    t_ns, energy, power = telemetry(12, lambda t: 300)
    result = energy_per_call(row(S, MS, 5_000, gap_ns=MS), t_ns, energy, power)

    assert result.joules == pytest.approx(0.3)
    assert result.label == "power x time, of all rows together"


def test_a_stretch_that_is_too_short_for_the_counter_uses_power():
    """One second of work alone, with a counter of 100 ms: power, and it is the row's own."""
    t_ns, energy, power = telemetry(4, lambda t: 200)
    result = energy_per_call(row(S, MS, 1000), t_ns, energy, power)

    assert result.joules == pytest.approx(0.2)
    assert result.label == "power x time"


def test_an_averaged_sensor_is_shifted_by_half_its_window():
    """A 1 s mean that lags half a second: the step of power lands where it was."""
    t_ns, _, _ = telemetry(20, lambda t: 0)
    averaged = np.clip((t_ns / S - 10.0) / 1.0, 0, 1) * 100_000 + 100_000
    none = np.full(len(t_ns), np.nan)
    info = SensorInfo(window_ns=S)
    before = energy_per_call(row(9 * S, 10 * MS, 40), t_ns, none, averaged, None, info)
    after = energy_per_call(row(round(10.6 * S), 10 * MS, 40), t_ns, none, averaged, None, info)

    assert before.joules == pytest.approx(1.0, rel=0.01)
    assert after.joules == pytest.approx(2.0, rel=0.01)
    assert "1 s mean" in after.label


def test_a_reset_counter_is_not_used_across_the_reset():
    """A counter that fell in between says nothing about that stretch."""
    t_ns, energy, power = telemetry(12, lambda t: 300)
    energy[60:] -= energy[60]
    result = energy_per_call(row(S, MS, 10_000), t_ns, energy, power)

    assert result.label == "power x time"
    assert result.joules == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("power", "info", "label"),
    [
        (np.nan, None, "no power readings"),
        (np.nan, SensorInfo(reason="not supported by this GPU"), "not supported by this GPU"),
    ],
)
def test_without_power_there_is_no_energy_and_the_reason_is_told(power, info, label):
    """Neither counter nor power: None, with the sensor's own reason."""
    t_ns, _, _ = telemetry(4, lambda t: 300)
    none = np.full(len(t_ns), power)
    result = energy_per_call(row(S, MS, 10), t_ns, none, none, None, info)

    assert result == (None, label)


def test_windows_far_from_any_reading_do_not_count():
    """Telemetry that ended a minute ago says nothing about now."""
    t_ns, _, power = telemetry(4, lambda t: 300)
    none = np.full(len(t_ns), np.nan)
    result = energy_per_call(row(60 * S, MS, 10), t_ns, none, power)

    assert result == (None, "too few power readings")


def test_no_samples_no_energy():
    """An empty row has none."""
    t_ns, energy, power = telemetry(4, lambda t: 300)
    assert energy_per_call(row(S, MS, 0), t_ns, energy, power) == (None, "no samples")

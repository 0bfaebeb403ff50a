import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usv_tui.model import Reading
from usv_tui.session.columns import READING_FIELDS, Bins, Column, Raw, TelemetryColumns, Thinned

CHUNKS = st.lists(st.lists(st.floats(1e-6, 1.0), max_size=40), max_size=12)


def join(chunks):
    """All values, one after the other."""
    return [value for chunk in chunks for value in chunk]


@given(CHUNKS)
def test_a_column_is_what_was_appended(chunks):
    """However the values came in, the view holds all of them in order."""
    column = Column(np.float64, capacity=2)
    for chunk in chunks:
        column.extend(np.array(chunk))

    assert column.view().tolist() == join(chunks)
    assert column.view(3).tolist() == join(chunks)[3:]
    assert column.n == len(join(chunks))


def test_a_column_keeps_whole_nanoseconds():
    """Large integers do not pass through a float."""
    column = Column(np.int64)
    column.extend(np.array([2**62 + 1]))

    assert column.view().tolist() == [2**62 + 1]


def test_a_large_column_grows_without_much_slack():
    """Beyond half a million values the empty part stays below one step, not half of all."""
    column = Column(np.int64)
    for _ in range(30):
        column.extend(np.zeros(100_000, np.int64))

    assert column.nbytes <= (3_000_000 + (1 << 19)) * 8


@given(CHUNKS, st.integers(0, 30))
def test_indices_count_what_was_dropped(chunks, dropped):
    """A column that has forgotten its oldest values goes on counting from the first of all."""
    column = Column(np.float64)
    everything = join(chunks)
    for chunk in chunks:
        column.extend(np.array(chunk))
        if column.first < dropped <= column.n:
            column.drop(dropped)

    assert column.n == len(everything)
    assert column.view().tolist() == everything[column.first :]
    start = column.first + 2
    assert column.view(start).tolist() == everything[start:]
    assert column.view(start, start + 1).tolist() == everything[start : start + 1]


def test_what_is_thinned_is_every_kth_of_all():
    """Dropped samples stay as an even selection, in whatever lots they were dropped."""
    rng = np.random.default_rng(1)
    n = 300_000
    times, old = np.arange(n), Thinned()
    for part in np.split(times, np.sort(rng.integers(0, n, 40))):
        old.add(Raw(part, part + 1, np.ones(len(part), np.int64), part, part % 2, part))

    kept, seconds, _ = old.between(0, n)
    assert old.stride == 16
    assert kept.tolist() == times[:: old.stride].tolist()
    assert seconds[1] == pytest.approx(17e-9)


def test_very_many_bins_are_merged_and_lose_nothing_but_detail():
    """Counts add up, extremes stay, and no more than so many bins are kept, oldest first."""
    bins = Bins(width_ns=10)
    times = np.arange(0, 600_000, 5)
    values = np.random.default_rng(2).uniform(1, 2, len(times))
    for first in range(0, len(times), 997):
        bins.extend(times[first : first + 997], values[first : first + 997])
        bins.age()

    found = bins.series(0, 1 << 60)
    assert found.n.sum() == len(times) - 2  # the last bin is still open
    assert found.low_s.min() == values[:-2].min()
    assert found.high_s.max() == values[:-2].max()
    assert len(found.t_ns) <= 20_500
    assert (np.diff(found.t_ns) > 0).all()
    assert found.width_ns > 10
    assert bins.series(595_000, 1 << 60).width_ns == 10


@given(CHUNKS)
def test_bins_agree_with_the_samples_in_them(chunks):
    """Each closed bin holds lowest, highest, median and count of exactly its own samples."""
    bins = Bins(width_ns=10)
    t = 0
    by_bin = {}
    for chunk in chunks:
        times = np.arange(t, t + len(chunk)) * 3
        for time, value in zip(times.tolist(), chunk, strict=True):
            by_bin.setdefault(time // 10, []).append(value)
        bins.extend(times, np.array(chunk))
        t += len(chunk)

    closed = list(by_bin)[:-1]
    series = bins.series(0, 1 << 60)
    assert series.t_ns.tolist() == [10 * bin_id for bin_id in closed]
    assert series.low_s.tolist() == [min(by_bin[b]) for b in closed]
    assert series.high_s.tolist() == [max(by_bin[b]) for b in closed]
    assert series.median_s.tolist() == [float(np.median(by_bin[b])) for b in closed]
    assert series.n.tolist() == [len(by_bin[b]) for b in closed]


def test_bins_without_a_sample_are_absent():
    """A pause is a hole in the series, not a zero; unusable values leave no trace."""
    bins = Bins(width_ns=10)
    bins.extend(np.array([1, 2, 51, 95, 101]), np.array([1.0, np.nan, 2.0, 3.0, 4.0]))

    series = bins.series(0, 1000)

    assert series.t_ns.tolist() == [0, 50, 90]
    assert series.n.tolist() == [1, 1, 1]
    assert bins.series(50, 90).t_ns.tolist() == [50]


def test_bins_of_nothing():
    """Before the first sample, and when none is usable, there is nothing and no error."""
    bins = Bins(width_ns=10)
    bins.extend(np.array([1, 2]), np.array([np.nan, np.nan]))

    assert len(bins.series(0, 100).t_ns) == 0


def test_a_reading_becomes_numbers_and_gaps():
    """What a device does not report is NaN in the columns, never zero."""
    columns = TelemetryColumns()
    columns.add(Reading(device="x", at_ns=5, sm_mhz=1410.0, power_mw=0, reasons=4))
    columns.add(Reading(device="x", at_ns=15))

    assert columns.t_ns.view().tolist() == [5, 15]
    assert columns.fields["sm_mhz"].view().tolist() == pytest.approx([1410.0, np.nan], nan_ok=True)
    assert columns.fields["power_mw"].view()[0] == 0.0
    assert all(np.isnan(columns.fields[name].view()[1]) for name in READING_FIELDS)
    assert columns.reasons.view().tolist() == [4, -1]


def test_every_column_of_telemetry_is_a_field_of_a_reading():
    """A column that no reading can fill would stay empty for ever."""
    assert set(READING_FIELDS) <= set(Reading.__struct_fields__)


def test_accumulated_limits_are_summed_by_their_cause():
    """Counters of power and of all thermal causes; no counter is no number."""
    columns = TelemetryColumns()
    counters = {"power": 7, "thermal": 1, "hw_thermal": 2, "brake": 4}
    columns.add(Reading(device="x", at_ns=1, throttle_ns=counters))
    columns.add(Reading(device="x", at_ns=2))

    assert columns.throttle_ns["power"].view()[0] == 7
    assert columns.throttle_ns["thermal"].view()[0] == 7
    assert np.isnan(columns.throttle_ns["power"].view()[1])
    assert np.isnan(columns.throttle_ns["thermal"].view()[1])


def test_a_stretch_of_telemetry():
    """The readings within [from, to), as a slice."""
    columns = TelemetryColumns()
    for t in (10, 20, 30):
        columns.add(Reading(device="x", at_ns=t))

    assert columns.t_ns.view()[columns.between(10, 30)].tolist() == [10, 20]

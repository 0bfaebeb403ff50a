import math

from hypothesis import given
from hypothesis import strategies as st

from usv_tui.units import bytes_text, duration, in_unit, significant, time_unit

TIMES = st.floats(1e-9, 1e4)


@given(st.lists(TIMES, min_size=1, max_size=8))
def test_a_time_survives_being_shown(values):
    """Reading a column back in its unit gives every time to half of the last digit shown."""
    unit = time_unit(values)

    for value in values:
        shown = float(in_unit(value, unit, decimals=3))
        assert math.isclose(shown * unit.seconds, value, abs_tol=0.501e-3 * unit.seconds)


@given(st.lists(TIMES, min_size=1, max_size=8))
def test_the_smallest_of_a_column_is_at_least_one(values):
    """In the column's unit the smallest time is 1 or more, and below 1000 unless it is seconds."""
    unit = time_unit(values)

    smallest = min(values) / unit.seconds
    assert smallest >= 0.999999
    assert smallest < 1000.001 or unit.seconds == 1


@given(st.floats(1e-9, 1e12), st.integers(1, 8))
def test_significant_digits_are_kept(value, digits):
    """A value reads back to within half a unit of its last significant digit."""
    shown = float(significant(value, digits))

    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert abs(shown - value) <= 0.5000001 * max(unit, 0.0 if value < 10**digits else 1.0)


@given(st.integers(0, 10**7))
def test_a_duration_reads_back_to_the_second(seconds):
    """The parts of m:ss or h:mm:ss add up to the whole seconds."""
    total = 0
    for part in duration(seconds).split(":"):
        total = total * 60 + int(part)

    assert total == seconds


@given(st.integers(0, 2**50))
def test_a_size_is_shown_to_within_its_last_digit(size):
    """The number and its unit give the size to half a tenth of the unit."""
    number, unit = bytes_text(size).split()

    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert abs(float(number) * factor - size) <= 0.0501 * factor

import math

import pytest

from usv_tui.units import (
    DASH,
    MS,
    NS,
    US,
    S,
    bytes_text,
    count,
    duration,
    fixed,
    in_unit,
    percent,
    significant,
    time_unit,
    times,
    watts,
)

MISSING = (None, math.nan, math.inf, -math.inf)


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([2.0], S),
        ([1.0], S),
        ([0.999], MS),
        ([1e-3, 5.0], MS),
        ([3e-4], US),
        ([2e-9], NS),
        ([1e-12], NS),
        ([2e-3, None, math.nan], MS),
        ([], US),
        ([None, math.nan, 0.0, -1.0], US),
    ],
)
def test_a_column_has_one_unit_and_its_smallest_value_is_at_least_one(values, unit):
    """The unit of a column is the one in which its smallest time is 1 or more."""
    assert time_unit(values) is unit


@pytest.mark.parametrize("value", MISSING)
@pytest.mark.parametrize("text", [fixed, percent, significant])
def test_what_is_missing_is_a_dash_and_never_a_number(text, value):
    """None, NaN and infinities show as a dash: unavailable is not zero."""
    assert text(value) == DASH


def test_a_missing_time_power_or_size_is_a_dash():
    """The formatters of quantities agree on what is missing."""
    assert in_unit(None, MS) == in_unit(math.nan, MS) == DASH
    assert watts(None) == DASH
    assert bytes_text(None) == DASH


def test_zero_is_zero():
    """A true zero shows as one."""
    assert (fixed(0.0), significant(0), watts(0), bytes_text(0)) == ("0.00", "0", "0", "0 B")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1234.5, 3, "1234"),
        (12.345, 3, "12.3"),
        (0.0012345, 3, "0.00123"),
        (99.96, 3, "100"),
        (9.996, 3, "10.0"),
        (-0.5, 2, "-0.50"),
        (1e-7, 2, "0.00000010"),
    ],
)
def test_significant_digits_without_an_exponent(value, digits, text):
    """So many digits count, whatever the magnitude, also where rounding carries."""
    assert significant(value, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "00:00"),
        (59.9, "00:59"),
        (61, "01:01"),
        (3600, "1:00:00"),
        (90061, "25:01:01"),
        (-3, "00:00"),
    ],
)
def test_elapsed_time(seconds, text):
    """Minutes and seconds, hours when there are any, never negative."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_sizes_are_in_binary_units(value, text):
    """A size in the largest unit in which it is at least 1."""
    assert bytes_text(value) == text


def test_the_rest():
    """Counts have separators, power comes in watts, ratios in percent, times in their unit."""
    assert count(1234567) == "1,234,567"
    assert watts(70_499) == "70"
    assert watts(70_499, 1) == "70.5"
    assert percent(0.01234) == "1.23"
    assert in_unit(0.00123456, MS) == "1.235"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.9871, "0.987x"), (12.0, "12.000x"), (0.0042, "0.0042x"), (1.28e-6, "1.3e-06x")],
)
def test_a_small_ratio_is_never_shown_as_nothing(ratio, text):
    """A row a thousand times faster than its baseline has digits, too."""
    assert times(ratio) == text

import math

from hypothesis import given
from hypothesis import strategies as st

from usv_tui.tui.widgets.scale import Scale, decimals_for, nice_step

VALUES = st.floats(1e-9, 1e6)


@given(VALUES, VALUES)
def test_what_must_be_seen_is_on_the_axis(one, other):
    """The limits hold the values, with room to spare, however close they are."""
    scale = Scale(least_part=2e-3)

    scale.fit(min(one, other), max(one, other))

    assert scale.low <= min(one, other) <= max(one, other) <= scale.high
    assert scale.high > scale.low


@given(VALUES, VALUES, st.integers(1, 12))
def test_there_are_two_round_ticks_at_least(one, other, most):
    """However few are wanted, two ticks tell the scale, all of them on the axis."""
    scale = Scale(least_part=2e-3)
    scale.fit(min(one, other), max(one, other))

    ticks = scale.ticks(most)

    assert 2 <= len(ticks) <= max(most, 6)
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


def test_the_axis_stands_still_while_values_wander_a_little():
    """Small changes move nothing; a step out of the limits does; a much smaller range does."""
    scale = Scale()
    scale.fit(10.0, 11.0)
    limits = (scale.low, scale.high)

    scale.fit(10.05, 11.05)
    assert (scale.low, scale.high) == limits

    scale.fit(10.0, 14.0)
    assert scale.high > 14.0

    scale.fit(10.0, 10.2)
    assert scale.high < 11.0


def test_infinities_and_nan_are_not_taken():
    """What is not a number does not move the axis."""
    scale = Scale()
    scale.fit(1.0, 2.0)
    limits = (scale.low, scale.high)

    for bad in (math.nan, math.inf, -math.inf):
        scale.fit(1.0, bad)

    assert (scale.low, scale.high) == limits


def test_constant_values_get_an_axis():
    """All equal, zero too, is a normal state."""
    for value in (0.0, 5e-6):
        scale = Scale()
        scale.fit(value, value)
        assert scale.low < value < scale.high


def test_times_have_no_negative_axis():
    """A bottom holds: what cannot be below zero is not drawn on an axis that is."""
    scale = Scale(bottom=0.0)

    scale.fit(0.001, 0.06)

    assert scale.low == 0.0


def test_steps_are_round():
    """Steps are 1, 2 or 5 times a power of ten, never more than asked for."""
    assert [nice_step(x) for x in (0.9, 1.0, 3.0, 7.0, 49.0)] == [0.5, 1.0, 2.0, 5.0, 20.0]
    assert [decimals_for(s) for s in (20.0, 1.0, 0.5, 0.02)] == [0, 0, 1, 2]

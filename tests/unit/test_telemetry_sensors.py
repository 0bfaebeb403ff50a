"""The bookkeeping that all backends share: availability, back-off, ages, counters, reasons."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usv_tui.model import Reason, reason_words
from usv_tui.telemetry.sensors import (
    FAILING_RETRY_NS,
    MonotonicCounter,
    SensorBoard,
    confirmed_reasons,
)

MS = 1_000_000
S = 1_000_000_000


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_a_counter_never_goes_backwards(raws):
    """Whatever the device says, totals ascend and no step exceeds the counter's range."""
    for modulus in (None, 2**32):
        counter = MonotonicCounter(modulus)
        totals = [counter.feed(raw) for raw in raws]

        assert totals == sorted(totals)
        assert all(b - a < 2**32 for a, b in pairwise(totals))


def test_a_wrap_is_added_up_and_a_reset_restarts():
    """A fall by more than half of the range is a wrap, a smaller one is a reset."""
    counter = MonotonicCounter(2**32)
    assert [counter.feed(raw) for raw in (2**32 - 10, 5)] == [2**32 - 10, 2**32 + 5]
    assert counter.resets == 0

    counter = MonotonicCounter(2**32)
    assert [counter.feed(raw) for raw in (1000, 5, 25)] == [1000, 1000, 1020]
    assert counter.resets == 1


@pytest.mark.parametrize(
    ("previous", "current", "expected"),
    [
        (0, 0x8, 0),
        (None, 0x8, 0),
        (0x8, 0x8, 0x8),
        (0, 0x48, 0x48),
        (0, 0x88, 0x88),
        (0x8, 0x0, 0),
        (0, 0x20C, 0x204),
        (0, None, 0),
    ],
)
def test_a_hardware_slowdown_needs_two_witnesses(previous, current, expected):
    """A single blink of 0x8 at a change of state is not throttling."""
    assert confirmed_reasons(previous, current) == expected


def test_all_reason_bits_have_words_and_unknown_ones_show_as_hexadecimal():
    """0x200 and 0x400 are named, 0x800 is shown, none is dropped."""
    assert reason_words(0x200 | 0x400) == ["board limit", "reliability"]
    assert reason_words(0x800 | Reason.SW_POWER_CAP) == ["power cap", "0x800"]


def board():
    """A board with one quantity."""
    board = SensorBoard(["power_mw", "throttle_ns.power"])
    board.declare("power_mw", "source", "mW")
    return board


def test_gaps_are_asked_again_later_and_later():
    """0.2 s, 0.4 s ... at most 5 s; a value ends it."""
    sensors = board()
    waits, now = [], 0
    for _ in range(8):
        sensors.gap("power_mw", "busy", now)
        wait = next(w for w in range(0, 20 * S, 100 * MS) if sensors.wants("power_mw", now + w))
        waits.append(wait)
        now += wait
    sensors.begin(now)
    sensors.put("power_mw", 5)

    assert waits == [200 * MS, 400 * MS, 800 * MS, 1600 * MS, 3200 * MS, 5 * S, 5 * S, 5 * S]
    assert sensors.wants("power_mw", now)
    assert sensors.reason("power_mw") is None


def test_five_unexplained_failures_make_it_failing():
    """Then it is asked every 10 s only, and the reason says failing."""
    sensors = board()
    for _ in range(5):
        sensors.failed("power_mw", "unknown error", 0)

    assert sensors.reason("power_mw") == "failing: unknown error"
    assert not sensors.wants("power_mw", FAILING_RETRY_NS - 1)
    assert sensors.wants("power_mw", FAILING_RETRY_NS)


def test_parts_fill_a_dictionary_and_ages_are_the_oldest():
    """`throttle_ns.power` becomes an entry; a field not read this time carries its age."""
    sensors = board()
    sensors.begin(0)
    sensors.put("throttle_ns.power", 7)
    sensors.reading("d", 10)
    sensors.begin(100)
    sensors.put("power_mw", 5)
    reading = sensors.reading("d", 110)

    assert reading.throttle_ns == {"power": 7}
    assert reading.ages_ns == {"throttle_ns": 100}


def test_a_refresh_period_needs_looks_that_are_quick_enough():
    """A value that is new at every look gives no period; one that repeats does."""
    quick, slow = board(), board()
    for index in range(200):
        quick.begin(index * 20 * MS)
        quick.put("power_mw", index // 5)
        slow.begin(index * 100 * MS)
        slow.put("power_mw", index)

    assert quick.infos()["power_mw"].refresh_ns == 100 * MS
    assert slow.infos()["power_mw"].refresh_ns is None


def test_a_learned_period_outlives_the_quick_looks():
    """After the quick looks of the start, slower ones do not wash it out."""
    sensors = board()
    for index in range(100):
        sensors.begin(index * 20 * MS)
        sensors.put("power_mw", index // 5)
    for index in range(200):
        sensors.begin(2 * S + index * 100 * MS)
        sensors.put("power_mw", 1000 + index)

    assert sensors.infos()["power_mw"].refresh_ns == 100 * MS


def test_the_version_counts_changes_of_availability():
    """A front end need not compare reasons: the version grows when one changes."""
    sensors = board()
    sensors.begin(0)
    sensors.put("power_mw", 5)
    before = sensors.version
    sensors.put("power_mw", 6)
    assert sensors.version == before
    sensors.never("power_mw", "gone")

    assert sensors.version == before + 1

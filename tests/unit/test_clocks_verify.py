"""Whether a lock is held is told from readings under load, never from a return code."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usv_tui.clocks.verify import HoldWatch, foreign_lock_hint
from usv_tui.model import ClockHold, Reading, Reason

TENTH = 100_000_000
STEPS = list(range(345, 1981, 15))


def readings(clocks: list[float], reasons: int = 0, first: int = 0) -> list[Reading]:
    """Readings at 10 Hz under load."""
    return [
        Reading(device="g", at_ns=(first + i) * TENTH, sm_mhz=mhz, reasons=reasons, util_pct=98)
        for i, mhz in enumerate(clocks)
    ]


def fed(watch: HoldWatch, items: list[Reading]) -> HoldWatch:
    """A watch after these readings."""
    for item in items:
        watch.feed(item)
    return watch


def test_a_lock_is_pending_until_it_was_watched_for_ten_seconds_under_load() -> None:
    """`locked` is not claimed from what we asked for."""
    watch = fed(HoldWatch(1410, STEPS), readings([1410] * 60))

    assert watch.hold is ClockHold.PENDING
    assert fed(watch, readings([1410] * 60, first=60)).hold is ClockHold.LOCKED
    assert "1410 MHz in 100.0%" in watch.evidence


def test_one_step_of_deviation_is_still_the_locked_clock() -> None:
    """Drivers land on a neighbouring step at times."""
    watch = fed(HoldWatch(1410, STEPS), readings([1395, 1410, 1425] * 40))

    assert watch.hold is ClockHold.LOCKED


def test_on_a_fine_grid_one_percent_is_tolerated_and_more_is_not() -> None:
    """Steps of 5 MHz would make a lock of a clock that reads 1698."""
    grid = list(range(500, 2101, 5))

    near = fed(HoldWatch(1700, grid), readings([1686, 1700, 1712] * 40))
    far = fed(HoldWatch(1700, grid), readings([1680] * 120))

    assert near.hold is ClockHold.LOCKED
    assert far.hold is ClockHold.NOT_HELD


def test_a_clock_pulled_down_by_the_power_cap_is_not_held_and_says_why() -> None:
    """Locked at 1830, reads 1650-1830 with the power cap set."""
    clocks = [1650.0 + 15 * (i % 12) for i in range(120)]

    watch = fed(HoldWatch(1830, STEPS), readings(clocks, Reason.SW_POWER_CAP))

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.evidence.startswith("power cap: median 17")


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (Reason.SW_THERMAL, "temperature limit"),
        (Reason.HW_POWER_BRAKE | Reason.HW_SLOWDOWN, "power brake"),
        (Reason.HW_SLOWDOWN, "hardware slowdown"),
        (0, "runs below the lock, no limit reported"),
    ],
)
def test_the_reason_of_a_lost_lock_is_named(reasons: int, words: str) -> None:
    """Not held for which reason decides what to do."""
    watch = fed(HoldWatch(1830, STEPS), readings([1600] * 120, reasons))

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.evidence.startswith(words)


def test_a_clock_above_the_lock_means_that_the_lock_is_not_in_force() -> None:
    """A driver may answer success and do nothing."""
    watch = fed(HoldWatch(1410, STEPS), readings([1980] * 120))

    assert watch.hold is ClockHold.NOT_HELD
    assert "runs above the lock" in watch.evidence


@pytest.mark.parametrize("reasons", [0, Reason.SW_POWER_CAP, Reason.SW_THERMAL])
def test_no_limit_is_the_cause_of_a_clock_above_its_lock(reasons: int) -> None:
    """Limits bring a clock down: above a lock it is the driver that ignores it."""
    items = [
        msgspec.structs.replace(item, throttle_ns={"power": item.at_ns // 2})
        for item in readings([1725.0 + 15 * (i % 5) for i in range(120)], reasons)
    ]

    watch = fed(HoldWatch(1500, STEPS), items)

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.is_ignored
    assert "ignores" in watch.evidence
    assert not any(word in watch.evidence for word in ("power", "temperature", "limit"))


def test_a_lock_amid_the_clocks_that_the_limit_allows_is_ignored_too() -> None:
    """A clock that wanders to both sides of its lock, far above it at times, is not locked."""
    clocks = [1650.0 + 15 * (i % 14) for i in range(120)]

    watch = fed(HoldWatch(1740, STEPS), readings(clocks, Reason.SW_POWER_CAP))

    assert watch.is_ignored
    assert "power" not in watch.evidence


@pytest.mark.parametrize(
    "clocks",
    [
        [1530.0],
        [1500.0] * 8 + [1620.0],
        [1380.0, 1395.0],
        [1485.0, 1500.0, 1560.0],
    ],
    ids=["rounded up", "at it and far above", "below", "at it mostly"],
)
def test_a_lock_that_does_something_is_not_called_ignored(clocks: list[float]) -> None:
    """Rounded up by the driver, pulled down by a limit, or with some readings off."""
    assert not fed(HoldWatch(1500, STEPS), readings(clocks * 60)).is_ignored


@pytest.mark.parametrize("reason", [Reason.SW_POWER_CAP, Reason.SW_THERMAL, Reason.HW_SLOWDOWN])
def test_a_flag_alone_takes_no_lock_away(reason: Reason) -> None:
    """The clock is at the lock and no counter runs: it is held, and the flag is doubted."""
    watch = fed(HoldWatch(1830, STEPS), readings([1830] * 120, reason))

    assert watch.hold is ClockHold.LOCKED
    assert watch.evidence.endswith("flag stuck?")


@pytest.mark.parametrize("stray_mhz", [58.0, 705.0, 2800.0])
@pytest.mark.parametrize("every_ns", [TENTH, 5 * TENTH])
def test_one_reading_of_nonsense_does_not_decide(stray_mhz: float, every_ns: int) -> None:
    """Where few readings make a window, one of them is more than a hundredth of it."""
    watch = HoldWatch(1410, STEPS)
    for i in range(400):
        mhz = stray_mhz if i == 20 else 1410.0
        watch.feed(Reading(device="g", at_ns=i * every_ns, sm_mhz=mhz, util_pct=98))
        assert watch.hold is not ClockHold.NOT_HELD

    assert watch.hold is ClockHold.LOCKED


def test_a_single_slowdown_blink_does_not_lose_the_lock() -> None:
    """One reading in a hundred is a change of performance state."""
    items = readings([1410] * 120)
    items[60] = Reading(
        device="g", at_ns=60 * TENTH, sm_mhz=1410, reasons=Reason.HW_SLOWDOWN, util_pct=98
    )

    assert fed(HoldWatch(1410, STEPS), items).hold is ClockHold.LOCKED


def test_between_95_and_99_percent_the_word_does_not_flicker() -> None:
    """Hysteresis: gained at 99 %, lost below 95 %."""
    watch = fed(HoldWatch(1410, STEPS), readings([1410] * 130))
    for i in range(100):
        mhz = 1200 if i % 33 == 0 else 1410
        watch.feed(Reading(device="g", at_ns=(130 + i) * TENTH, sm_mhz=mhz, util_pct=98))
        assert watch.hold is ClockHold.LOCKED
    for i in range(100):
        mhz = 1200 if i % 10 == 0 else 1410
        watch.feed(Reading(device="g", at_ns=(230 + i) * TENTH, sm_mhz=mhz, util_pct=98))

    assert watch.hold is ClockHold.NOT_HELD


def test_a_throttle_counter_that_runs_loses_the_lock_even_between_readings() -> None:
    """Counters cannot miss an event between two polls."""
    watch = HoldWatch(1410, STEPS)
    for i in range(130):
        watch.feed(
            Reading(
                device="g",
                at_ns=i * TENTH,
                sm_mhz=1410,
                util_pct=98,
                throttle_ns={"thermal": i * TENTH // 20},
            )
        )

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.evidence.startswith("temperature limit")


def test_readings_that_say_nothing_are_not_counted() -> None:
    """Idle ones, repeated values and missing clocks verify nothing."""
    watch = HoldWatch(1410, STEPS)
    for i in range(150):
        at_ns = i * TENTH
        watch.feed(Reading(device="g", at_ns=at_ns, sm_mhz=345, reasons=Reason.IDLE))
        watch.feed(Reading(device="g", at_ns=at_ns, sm_mhz=345, util_pct=0))
        watch.feed(Reading(device="g", at_ns=at_ns, sm_mhz=1410, ages_ns={"sm_mhz": TENTH}))
        watch.feed(Reading(device="g", at_ns=at_ns))

    assert watch.hold is ClockHold.PENDING


def test_the_slowest_partition_counts() -> None:
    """A device with several clocks is held when all of them are."""
    watch = HoldWatch(1700)
    for i in range(130):
        watch.feed(Reading(device="g", at_ns=i * TENTH, sm_mhz=1700, sm_mhz_min=1500, util_pct=99))

    assert watch.hold is ClockHold.NOT_HELD


def test_a_clock_that_stands_still_below_the_maximum_hints_at_a_foreign_lock() -> None:
    """A free clock moves or sits at its maximum."""
    assert "1410 MHz" in foreign_lock_hint(readings([1410] * 40), STEPS)


@pytest.mark.parametrize(
    "items",
    [
        readings([1980] * 40),
        readings([1410, 1425] * 20),
        readings([1410] * 40, Reason.SW_POWER_CAP),
        readings([1410] * 5),
        [],
    ],
)
def test_a_free_limited_or_barely_watched_clock_is_no_hint(items: list[Reading]) -> None:
    """Suspicion needs evidence."""
    assert foreign_lock_hint(items, STEPS) == ""


@pytest.mark.parametrize(
    ("away", "side"),
    [(1485.0, "below"), (1620.0, "above")],
)
def test_the_side_is_that_of_the_readings_that_were_away(away: float, side: str) -> None:
    """With most readings at the lock their median tells nothing of where the others were."""
    clocks = [away if i % 10 == 0 else 1530.0 for i in range(120)]

    watch = fed(HoldWatch(1530, STEPS), readings(clocks))

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.evidence.startswith(f"runs {side} the lock")
    assert "1530 MHz in 90." in watch.evidence


def test_readings_on_both_sides_are_called_so() -> None:
    """Half above and half below is neither."""
    clocks = [1485.0 if i % 2 else 1575.0 for i in range(120)]

    watch = fed(HoldWatch(1530, STEPS), readings(clocks))

    assert watch.evidence.startswith("runs around the lock")


def test_a_counted_limit_with_the_clock_at_the_lock_is_told_apart_from_the_clock() -> None:
    """All readings were at 1530 MHz, and so it says; the limit has its own witness, a counter."""
    watch = HoldWatch(1530, STEPS)
    for item in readings([1530.0] * 120, Reason.SW_POWER_CAP):
        watch.feed(msgspec.structs.replace(item, throttle_ns={"power": item.at_ns // 2}))

    assert watch.hold is ClockHold.NOT_HELD
    assert (
        watch.evidence == "power cap reported by its counter, though 1530 MHz in 100.0% of readings"
    )


def test_a_slow_partition_is_named_where_the_fast_one_is_at_the_lock() -> None:
    """The lowest partition is below the lock: the words do not speak of above."""
    items = [
        Reading(device="g", at_ns=i * TENTH, sm_mhz=1530, sm_mhz_min=900, reasons=0, util_pct=98)
        for i in range(120)
    ]

    watch = fed(HoldWatch(1530, STEPS), items)

    assert watch.hold is ClockHold.NOT_HELD
    assert watch.evidence.startswith("runs below the lock, no limit reported: median 1530 MHz")
    assert "slowest partition 900 MHz" in watch.evidence


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1400.0, 1515.0, 1530.0, 1545.0, 1700.0]),
            st.sampled_from([0, int(Reason.SW_POWER_CAP), int(Reason.HW_SLOWDOWN)]),
        ),
        min_size=120,
        max_size=130,
    )
)
def test_the_words_never_contradict_the_readings(items: list[tuple[float, int]]) -> None:
    """The share at the lock is that of the clocks, and a side needs a reading on it."""
    watch = HoldWatch(1530, STEPS)
    for i, (mhz, reasons) in enumerate(items):
        watch.feed(Reading(device="g", at_ns=i * TENTH, sm_mhz=mhz, reasons=reasons, util_pct=98))

    kept = [mhz for mhz, _ in items[-101:]]
    if watch.hold is ClockHold.NOT_HELD:
        share = sum(abs(mhz - 1530) <= 15.3 for mhz in kept) / len(kept)
        assert f"1530 MHz in {share:.1%} of readings" in watch.evidence
    if "runs above" in watch.evidence:
        assert max(kept) > 1545
    if "runs below" in watch.evidence:
        assert min(kept) < 1515

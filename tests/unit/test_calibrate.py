import statistics

import pytest

from usv_tui.engine.calibrate import MAX_INNER, calibrate, prime, shared_inner
from usv_tui.timers.wall import ForeignTimer, GPUTimer, Slot, WallTimer
from usv_tui.timesource import ManualTime


class FakeDevice(GPUTimer):
    """A timer of a device in virtual time: `fn` returns how many seconds it takes."""

    def __init__(self, clock=None):
        self.clock = clock or ManualTime()
        self.calls = 0

    def synchronize(self):
        pass

    def open(self, fn, inner=1, before=None):
        if before is not None:
            before()
        total = sum(fn() for _ in range(inner))
        self.calls += inner
        self.clock.advance(max(0, round(total * 1e9)))
        return total / inner

    def value(self, handle):
        return handle


def calibrated(fn, target_s=1e-3, **slot):
    """Calibrate one callable on the fake device; returns the result and the number of calls."""
    device = FakeDevice()
    result = calibrate(
        ForeignTimer(device), Slot(0, fn, **slot), target_s, clock=device.clock.now_ns
    )
    return result, device.calls


@pytest.mark.parametrize("seconds", [5e-9, 3.7e-7, 2e-5, 4e-4, 9e-4])
def test_a_window_is_filled_to_the_target(seconds):
    """The calls of one window last about the target, whatever one call takes."""
    result, _ = calibrated(lambda: seconds)

    assert result.inner * seconds == pytest.approx(min(1e-3, MAX_INNER * seconds), rel=0.3)
    assert result.per_call_ns == pytest.approx(seconds * 1e9, rel=0.2)


def test_a_slow_callable_is_called_once_a_window_and_few_times_in_all():
    """A call longer than the target makes a window of its own; three suffice to know it."""
    result, calls = calibrated(lambda: 0.3)

    assert (result.inner, calls) == (1, 3)


def test_a_slow_first_call_does_not_spoil_the_estimate():
    """One late compilation among the calls leaves the median alone."""
    durations = iter([0.2])

    result, _ = calibrated(lambda: next(durations, 1e-5))

    assert result.inner == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_timer_that_shows_nothing_gives_one_call_and_no_estimate(seconds):
    """Zero and negative windows are never divided by, and end in a bounded number of calls."""
    result, calls = calibrated(lambda: seconds)

    assert (result.inner, result.per_call_ns, result.error) == (1, 0.0, None)
    assert calls < 10 * MAX_INNER


def test_trials_stop_when_they_cost_host_time_in_vain():
    """A clock that shows nothing while the host works for long ends the search early."""
    device = FakeDevice()

    def fn():
        device.clock.advance(100_000_000)
        return 0.0

    result = calibrate(ForeignTimer(device), Slot(0, fn), 1e-3, clock=device.clock.now_ns)

    assert result.inner == 1
    assert device.calls <= 5


def test_given_calls_are_kept_and_only_estimated():
    """An explicit inner is never overridden; the slot is left as it was."""
    device = FakeDevice()
    slot = Slot(0, lambda: 1e-6, inner=7)

    result = calibrate(ForeignTimer(device), slot, 1e-3, inner=7, clock=device.clock.now_ns)

    assert (result.inner, slot.inner) == (7, 7)
    assert result.per_call_ns == pytest.approx(1000, rel=0.2)


@pytest.mark.parametrize("extra", ["reset", "flush"])
def test_a_row_with_work_before_each_sample_keeps_one_call(extra):
    """The second call of a window would not find what reset or flush had prepared."""
    result, _ = calibrated(lambda: 1e-6, **{extra: lambda: None})

    assert result.inner == 1


def test_an_exception_comes_back_as_data():
    """A callable that raises while it is calibrated is reported, not raised."""

    def fn():
        raise RuntimeError("broken")

    result, _ = calibrated(fn)

    assert repr(result.error) == "RuntimeError('broken')"


def test_a_device_error_that_shows_when_windows_are_read_comes_back_as_data():
    """A device that is lost while a row is calibrated fails that row and raises nothing."""

    class Lost(FakeDevice):
        def synchronize(self):
            raise RuntimeError("device lost")

    result = calibrate(ForeignTimer(Lost()), Slot(0, lambda: 1e-3), 1e-3)

    assert repr(result.error) == "RuntimeError('device lost')"


def test_priming_reports_time_result_and_order():
    """The first call runs after reset and flush, its result is kept and its time is told."""
    time = ManualTime()
    done = []

    def fn():
        done.append("fn")
        time.advance(2_000_000_000)
        return 42

    slot = Slot(0, fn, reset=lambda: done.append("reset"), flush=lambda: done.append("flush"))
    result = prime(WallTimer(), slot, clock=time.now_ns)

    assert done == ["reset", "flush", "fn"]
    assert (result.seconds, result.error, result.result) == (2.0, None, 42)


def test_priming_a_failing_row_returns_its_error():
    """Even SystemExit from a benchmark file is a row's error and nothing more."""

    def fn():
        raise SystemExit(3)

    assert isinstance(prime(WallTimer(), Slot(0, fn)).error, SystemExit)


def test_real_wall_clock_work_is_calibrated():
    """On the real clock a pure Python callable gets a window near the target."""
    timer = WallTimer()
    slot = Slot(0, lambda: sum(range(200)))

    result = calibrate(timer, slot, 1e-3)
    slot.inner = result.inner
    timer.enqueue(0, [slot] * 9)
    (record,) = timer.harvest(wait=True)

    assert 0.2e6 < statistics.median(record.window_ns) < 20e6


# -- one number of calls for a group


def test_rows_of_about_the_same_speed_share_their_calls():
    """Estimates that a busy host spread by three make one number, for the target in the middle."""
    assert shared_inner([2e5, 4.5e5, 6e5], [None] * 3, 1e-3) == [3, 3, 3]
    assert shared_inner([1e4, 1e4], [None] * 2, 1e-3) == [100, 100]


def test_rows_of_very_different_speed_do_not():
    """A call of 1 us beside one of 1 ms: neither window is absurd."""
    assert shared_inner([1e3, 1.1e3, 1e6], [None] * 3, 1e-3) == [953, 953, 1]


@pytest.mark.parametrize("spread", [2.0, 10.0, 300.0, 1e5])
def test_windows_stay_near_the_target(spread):
    """No shared number makes a window over four targets, or under a quarter of one."""
    costs = [1e3 * spread ** (i / 6) for i in range(7)]

    for cost, inner in zip(costs, shared_inner(costs, [None] * 7, 1e-3), strict=True):
        assert inner == 1 or 0.2e6 < inner * cost < 4.8e6


def test_a_group_follows_the_row_that_pins_its_calls():
    """One row with `inner=8`: the rest of its group has 8 as well, another group has its own."""
    calls = shared_inner(
        [5e4, 5e4, 5e4], [8, None, None], 1e-3, groups=["g", "g", "h"], fewest_ns=1e4
    )

    assert calls == [8, 8, 20]


def test_a_group_does_not_follow_where_its_windows_would_be_too_short_or_long():
    """A pinned single call beside calls of 2 us that the timer cannot tell: they differ."""
    pins = [1, None, None]

    assert shared_inner([1e6, 2e3, 9e6], pins, 1e-3, groups=["g"] * 3, fewest_ns=1e4) == [1, 500, 1]


def test_two_pins_are_both_kept():
    """Rows that pin different numbers keep them: neither is overridden."""
    assert shared_inner([1e4, 1e4], [2, 8], 1e-3, groups=["g", "g"]) == [2, 8]

import dataclasses
import math
import random
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS, US
from tests.strategies import records
from usv_tui.model import (
    Advice,
    ClockHold,
    ClockState,
    DeviceInfo,
    Flag,
    Notice,
    Reading,
    Reason,
    RowState,
    SensorInfo,
    Skipped,
    Verdict,
)
from usv_tui.records import (
    Advised,
    Baseline,
    BenchError,
    Calibrated,
    Chosen,
    Clocks,
    Device,
    End,
    Fault,
    Gap,
    Mark,
    Noted,
    Output,
    Paced,
    ProbeClock,
    Samples,
    Skip,
    State,
    Telemetry,
    Window,
)
from usv_tui.report.columns import RATES
from usv_tui.session.row_store import BIN_NS
from usv_tui.session.snapshot import Snapshot
from usv_tui.session.store import Store
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.timesource import NS_PER_S

SHORT = int(Flag.WARMUP), int(Flag.RAMP)


def fold(*records):
    """A store that has seen these records (lists of them are flattened), at once."""
    store = Store()
    store.apply(flat(records))
    return store


def flat(records):
    """Records, with lists of them opened."""
    return [r for item in records for r in (item if isinstance(item, list) else [item])]


def view(store, bench=0, at_ns=BEGIN_NS + 100 * NS_PER_S):
    """One row of the snapshot."""
    return store.snapshot(at_ns).row(bench)


def noisy(n, seed=1, median=1e6):
    """Windows with 2 % of noise."""
    noise = random.Random(seed)
    return [round(median * (1 + 0.02 * noise.gauss(0, 1))) for _ in range(n)]


# -- nothing yet


def test_an_empty_store_has_a_snapshot():
    """Before the first record everything can be shown: no rows, no numbers, no error."""
    snapshot = Store().snapshot(123)

    assert snapshot.phase == "starting"
    assert snapshot.rows == ()
    assert (snapshot.rounds, snapshot.samples, snapshot.samples_per_s) == (0, 0, 0.0)
    assert snapshot.elapsed_s == 0.0
    assert (snapshot.timer, snapshot.device, snapshot.reading) == (None, None, None)
    assert snapshot.row(0) is None
    assert not snapshot.complete


def test_an_empty_snapshot_has_the_same_fields_as_one_of_a_store():
    """A front end may draw `Snapshot()` before there is a store."""
    empty = {field.name for field in dataclasses.fields(Snapshot())}

    assert empty == {field.name for field in dataclasses.fields(Store().snapshot(0))}


def test_series_of_nothing_are_empty():
    """A chart of a row that does not exist, or has no samples, is empty and no error."""
    store = fold(fake.start(), fake.row(0, "a"))

    for bench in (0, 99):
        assert len(store.curves.series(bench, 0, 1 << 60).t_ns) == 0
        assert len(store.curves.bins(bench, 0, 1 << 60).t_ns) == 0
    times, values = store.curves.telemetry("sm_mhz", 0, 1 << 60)
    assert len(times) == len(values) == 0


def test_a_row_without_samples_has_no_numbers():
    """Statistics of nothing are None, never zero."""
    row = view(fold(fake.start(), fake.row(0, "a", flops=1e9, bytes=1e6)))

    assert (row.n_all, row.rolling.n, row.whole.n) == (0, 0, 0)
    assert (row.rolling.median_s, row.rolling.std_s, row.rolling.rel_std) == (None, None, None)
    assert [rate.pick(row, row.rolling) for rate in RATES] == [None, None]
    assert row.state is RowState.WAITING


# -- samples


def test_samples_are_counted_per_row_and_round():
    """Blocks of interleaved rounds go to their rows; rounds and samples add up."""
    store = fold(fake.two_rows(10))
    snapshot = store.snapshot(store.last_ns)

    assert (snapshot.rounds, snapshot.samples) == (10, 20)
    assert [row.n_all for row in snapshot.rows] == [10, 10]
    assert [row.rolling.median_s for row in snapshot.rows] == [1e-3, 2e-3]
    assert store.rows[0].round.view().tolist() == list(range(10))


def test_a_window_holds_several_calls():
    """Times are per call; the raw window and its count are kept beside."""
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, [MS, 3 * MS], inner=[10, 20]))

    assert store.rows[0].seconds().tolist() == pytest.approx([1e-4, 1.5e-4])
    assert store.rows[0].window_ns.view().tolist() == [MS, 3 * MS]
    assert store.rows[0].inner.view().tolist() == [10, 20]


def test_statistics_are_those_of_the_samples():
    """The rolling window is exact; the whole epoch's quantiles are good to 0.1 %."""
    windows = noisy(3000)
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, windows))
    seconds = np.array(windows) / 1e9
    last = seconds[-1000:]

    row = view(store)

    assert row.rolling.n == 1000
    assert row.rolling.median_s == pytest.approx(np.median(last), rel=1e-12)
    assert row.rolling.std_s == pytest.approx(np.std(last, ddof=1), rel=1e-9)
    assert (row.rolling.min_s, row.rolling.max_s) == (last.min(), last.max())
    assert row.whole.n == 3000
    assert row.whole.median_s == pytest.approx(np.median(seconds), rel=1.1e-3)
    assert row.whole.mean_s == pytest.approx(seconds.mean(), rel=1e-9)
    assert row.whole.std_s == pytest.approx(seconds.std(ddof=1), rel=1e-6)


def test_the_rolling_window_can_be_changed():
    """A smaller window forgets sooner; the samples stay."""
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, [MS] * 50 + [2 * MS] * 10))

    store.apply([Window(BEGIN_NS, 10)])
    assert view(store).rolling.median_s == 2e-3
    store.apply([Window(BEGIN_NS, 1000)])

    assert view(store).rolling.median_s == 1e-3
    assert view(store).n_all == 60


@pytest.mark.parametrize("flag", SHORT)
def test_warm_up_and_ramp_are_kept_and_not_counted(flag):
    """Flagged samples are in the series, drawn dim, and in no statistic."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.series(0, [5 * MS] * 20, flag=flag),
        fake.series(0, [MS] * 30, BEGIN_NS + NS_PER_S, round_=20),
    )

    row = view(store)

    assert (row.n_all, row.n_excluded, row.rolling.n, row.whole.n) == (50, 20, 30, 30)
    assert (row.rolling.max_s, row.whole.max_s) == (1e-3, 1e-3)
    series = store.curves.series(0, 0, 1 << 60)
    assert series.excluded.tolist() == [True] * 20 + [False] * 30
    assert series.seconds[0] == pytest.approx(5e-3)


def test_windows_of_zero_or_less_are_flagged_and_never_divided_by():
    """Such a sample is kept raw, flagged, NaN per call, and in no statistic."""
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, [MS, 0, -5, MS]))

    assert store.rows[0].window_ns.view().tolist() == [MS, 0, -5, MS]
    assert [bool(f & Flag.NONPOSITIVE) for f in store.rows[0].flags.view().tolist()] == [
        False,
        True,
        True,
        False,
    ]
    assert np.isnan(store.curves.series(0, 0, 1 << 60).seconds).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert (view(store).rolling.n, view(store).n_excluded) == (2, 2)


def test_a_stall_is_marked_counted_and_left_out_of_the_spread():
    """One call of 50 ms among calls of 1 ms: the std does not jump, the stall stands there."""
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a"), fake.series(0, noisy(500))]))
    before = view(store).rolling.std_s

    store.apply(fake.series(0, [50 * MS, *noisy(20, seed=2)], BEGIN_NS + NS_PER_S, round_=500))

    row = view(store)
    assert row.stalls == 1
    assert row.rolling.std_s == pytest.approx(before, rel=0.05)
    assert (row.n_all, row.rolling.n) == (521, 520)
    assert store.rows[0].flags.view()[500] == Flag.STALL
    assert store.curves.series(0, 0, 1 << 60).seconds[500] == pytest.approx(0.05)


def test_a_stall_is_found_in_the_block_that_shows_the_median_too():
    """A session read in one go marks the same stall as one that was watched."""
    windows = noisy(520)
    windows[500] = 50 * MS

    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, windows))

    assert view(store).stalls == 1
    assert view(store).rolling.max_s < 2e-3


def test_a_lasting_slowdown_is_not_a_stall_for_ever():
    """When all calls take thirty times as long, that is the row's time and not its accidents."""
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a"), fake.series(0, [MS] * 200)]))
    for i in range(40):
        store.apply(
            fake.series(0, [30 * MS] * 50, BEGIN_NS + (i + 1) * NS_PER_S, round_=200 + 50 * i)
        )
        store.snapshot(BEGIN_NS + (i + 2) * NS_PER_S)

    assert view(store).rolling.median_s == pytest.approx(30e-3)


def test_the_mean_counts_what_the_spread_leaves_out():
    """Of calls of which 5 % take thirty times as long, the mean is 2.45 times the median."""
    windows = [MS] * 95 + [30 * MS] * 5
    windows = np.random.default_rng(3).permutation(windows * 10).tolist()
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a")]))
    for i in range(0, 1000, 100):
        store.apply(fake.series(0, windows[i : i + 100], BEGIN_NS + (i + 1) * NS_PER_S, round_=i))
        store.snapshot(BEGIN_NS + (i + 2) * NS_PER_S)

    row = view(store)

    assert row.whole.mean_s == pytest.approx(2.45e-3, rel=1e-6)
    assert row.rolling.mean_s == pytest.approx(2.45e-3, rel=1e-6)
    assert (row.whole.median_s, row.whole.max_s) == pytest.approx((1e-3, 1e-3), rel=1e-3)
    assert row.left_out == {"stalls": 50}


@pytest.mark.parametrize("at", [0, 5, 30, 60])
def test_a_straggler_leaves_the_std_wherever_it_comes(at):
    """The first sample of a run counts as little for the spread as the sixtieth."""
    windows = noisy(500)
    windows[at] = 900 * MS
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a")]))
    for i in range(0, 500, 10):
        store.apply(fake.series(0, windows[i : i + 10], BEGIN_NS + (i + 1) * NS_PER_S, round_=i))
        store.snapshot(BEGIN_NS + (i + 2) * NS_PER_S)

    row = view(store)

    assert row.whole.rel_std < 0.05
    assert row.rolling.rel_std < 0.05
    assert row.left_out == {"stalls": 1}


def test_a_verdict_that_is_taken_back_leaves_row_and_table():
    """The badge goes, and so does the note under the final table; the log keeps both events."""
    store = Store()
    found = {"after_end_ns": 10**6, "window_ns": 10**5}
    code = "work outside the stream"
    store.apply([fake.start(), fake.row(0, "a")])
    store.apply([fake.note(code, bench=0, level="warn", **found)])
    assert "outside stream" in view(store).badges
    assert store.snapshot(1).told

    gone = {"withdrawn": True}
    store.apply([fake.note(code, bench=0, level="info", **gone)])

    assert "outside stream" not in view(store).badges
    assert not store.snapshot(2).told
    assert "taken back" in store.snapshot(2).log[-1].text


def test_what_is_left_out_is_counted_by_cause():
    """Warm-up, ramp, windows of zero, stalls and gaps: each sample once, under its cause."""
    flags = [int(Flag.WARMUP)] * 7 + [int(Flag.RAMP)] * 5 + [int(Flag.STARVED)] * 4 + [0] * 100
    windows = [MS] * 116
    windows[3] = windows[50] = 0
    windows[60] = 90 * MS
    at_ns = [i * 100 * MS for i in range(116)]
    store = Store()
    store.apply([fake.start(), fake.row(0, "a")])
    store.apply([Samples(0, 1, BEGIN_NS, [0] * 116, at_ns, windows, [1], [], flags)])

    row = view(store)

    assert row.left_out == {
        "zero or negative": 2,
        "warm-up": 6,
        "ramp": 5,
        "stalls": 1,
        "starved": 4,
    }
    assert row.n_excluded == 13
    assert row.whole.n == 116 - 13 - 5


def test_few_samples_know_no_stalls():
    """Before twenty samples nobody can say what is usual."""
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a"), fake.series(0, [MS] * 10)]))
    store.apply(fake.series(0, [50 * MS], BEGIN_NS + NS_PER_S, round_=10))

    assert view(store).stalls == 0


def test_samples_of_an_unknown_row_are_harmless():
    """Samples of a row that was never announced are ignored."""
    store = fold(fake.start(), fake.row(0, "a"), fake.block([(0, MS), (7, MS)]))

    assert view(store).n_all == 1
    assert store.snapshot(0).samples == 1


def test_samples_of_a_phase_are_parts_and_not_more_samples():
    """The sample count and rate are those of the rows; phases do not inflate them."""
    store = fold(
        fake.start(),
        fake.row(0, "step"),
        fake.row(10_000, "forward", parent=0),
        fake.series(0, [3 * MS] * 4),
        fake.series(10_000, [MS] * 4),
    )

    assert store.snapshot(0).samples == 4
    assert (view(store).n_all, view(store, 10_000).n_all) == (4, 4)


def test_host_times_are_kept_where_they_differ():
    """A wall timer's host time is the window; an event timer's is its own, from the first on."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.series(0, [MS, MS]),
        fake.series(0, [MS, MS], BEGIN_NS + NS_PER_S, round_=2, host_ns=[30 * US, 40 * US]),
        fake.series(0, [2 * MS], BEGIN_NS + 2 * NS_PER_S, round_=4),
    )

    assert store.rows[0].host_ns.view().tolist() == [MS, MS, 30 * US, 40 * US, 2 * MS]


def test_throughput_is_that_of_the_rolling_median():
    """TFLOP/s and GB/s follow the median that stands beside them."""
    row = view(fold(fake.start(), fake.row(0, "a", flops=2e9, bytes=4e6), fake.series(0, [MS] * 5)))

    assert [rate.pick(row, row.rolling) for rate in RATES] == pytest.approx([2.0, 4.0])


def test_the_rate_is_that_of_the_last_seconds():
    """Samples a second are counted over about two seconds, and fall to zero in a pause."""
    store = fold(fake.start(), fake.row(0, "a"))
    store.snapshot(BEGIN_NS)
    for second in range(5):
        store.apply(fake.series(0, [MS] * 200, BEGIN_NS + second * NS_PER_S, round_=200 * second))
        store.snapshot(BEGIN_NS + (second + 1) * NS_PER_S)

    assert store.snapshot(BEGIN_NS + 6 * NS_PER_S).samples_per_s == pytest.approx(100, abs=101)
    assert store.snapshot(BEGIN_NS + 8 * NS_PER_S).samples_per_s == 0.0


@given(st.lists(records(), max_size=12))
@settings(max_examples=60)
def test_any_records_in_any_order_can_be_folded(batch):
    """A damaged or strange session gives a snapshot, not a crash; at once or one by one."""
    at_once, one_by_one = fold(*batch), Store()
    for record in batch:
        one_by_one.apply([record])

    a, b = at_once.snapshot(1 << 61), one_by_one.snapshot(1 << 61)

    assert [row.n_all for row in a.rows] == [row.n_all for row in b.rows]
    assert (a.samples, a.rounds, a.phase) == (b.samples, b.rounds, b.phase)


def test_the_fold_does_not_depend_on_how_records_arrive():
    """Live in many pieces and read back in one, a session has the same flags and statistics."""
    windows = [w if i % 97 else 40 * MS for i, w in enumerate(noisy(1500), start=1)]
    head = [fake.start(), fake.row(0, "a")]
    blocks = [
        fake.block([(0, w) for w in windows[i : i + 30]], BEGIN_NS + i * MS, round_=i, size=1)
        for i in range(0, 1500, 30)
    ]
    at_once, in_pieces = fold(head, blocks), fold(head)
    for i, block in enumerate(blocks):
        in_pieces.apply([block])
        if i % 7 == 0:
            in_pieces.snapshot(BEGIN_NS + (i + 1) * 30 * MS)

    assert at_once.rows[0].flags.view().tolist() == in_pieces.rows[0].flags.view().tolist()
    assert view(at_once).rolling == view(in_pieces).rolling
    assert view(at_once).stalls == view(in_pieces).stalls > 10


# -- series for the charts


def test_a_series_is_thinned_and_keeps_its_ends_in_time():
    """A chart asks for a bounded number of points of any stretch."""
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, [MS] * 1000))

    assert len(store.curves.series(0, 0, 1 << 60).t_ns) == 1000
    thin = store.curves.series(0, 0, 1 << 60, limit=100)
    assert len(thin.t_ns) == len(thin.seconds) == len(thin.excluded) == 100
    part = store.curves.series(0, BEGIN_NS + 10 * MS, BEGIN_NS + 20 * MS)
    assert len(part.t_ns) == 10
    assert part.t_ns[0] == BEGIN_NS + 10 * MS


def test_bins_close_as_time_goes_on():
    """A bin stands as soon as a later one has begun; the open one is not shown half."""
    store = fold(fake.start(), fake.row(0, "a"), fake.series(0, [10 * MS] * 25))

    bins = store.curves.bins(0, 0, 1 << 60)

    assert bins.n.tolist() == [10, 10]
    assert np.diff(bins.t_ns).tolist() == [BIN_NS]


def test_the_trend_has_holes_where_nothing_was_measured():
    """Sparkline bins: medians over the last minute, NaN in a pause."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.series(0, [10 * MS] * 200),
        fake.series(0, [20 * MS] * 100, BEGIN_NS + 8 * NS_PER_S, round_=200),
    )

    trend = view(store, at_ns=BEGIN_NS + 10 * NS_PER_S).trend

    assert len(trend) == 48
    assert trend[0] == pytest.approx(10e-3)
    assert trend[-3] == pytest.approx(20e-3)
    assert math.isnan(trend[20])


def test_telemetry_has_gaps_for_what_was_not_reported():
    """A reading without a clock is NaN in the strip, and the latest reading is shown whole."""
    store = fold(
        fake.start(),
        fake.reading(BEGIN_NS, sm_mhz=1410.0, temp_c=50.0),
        fake.reading(BEGIN_NS + NS_PER_S, temp_c=51.0),
    )

    times, clock = store.curves.telemetry("sm_mhz", 0, 1 << 60)

    assert times.tolist() == [BEGIN_NS, BEGIN_NS + NS_PER_S]
    assert clock[0] == 1410.0
    assert math.isnan(clock[1])
    assert store.snapshot(0).reading.temp_c == 51.0


def test_pauses_and_marks_are_found_by_time():
    """A chart asks for what lies in its stretch."""
    store = fold(
        fake.start(),
        Gap(BEGIN_NS + 10, BEGIN_NS + 20, "paused"),
        Gap(BEGIN_NS + 50, BEGIN_NS + 60, "pace"),
        fake.mark("a", BEGIN_NS + 15),
        fake.mark("b", BEGIN_NS + 55),
    )

    assert store.curves.gaps(BEGIN_NS + 18, BEGIN_NS + 40) == [
        (BEGIN_NS + 10, BEGIN_NS + 20, "paused")
    ]
    assert store.curves.marks(BEGIN_NS, BEGIN_NS + 30) == [(BEGIN_NS + 15, "a")]
    assert len(store.curves.gaps(0, 1 << 60)) == len(store.curves.marks(0, 1 << 60)) == 2


# -- rows


def test_states_calibration_and_badges_stand_on_the_row():
    """What the loop learned of a row is shown with it."""
    row = view(
        fold(
            fake.start(),
            fake.row(0, "a", group="g", params={"n": 1}),
            State(BEGIN_NS, 0, RowState.RUNNING, "fine"),
            Calibrated(BEGIN_NS, 0, 20, 50_000, "cold", 1 << 20, 1 << 19, "graph"),
            fake.note("CPU-bound", 0),
            fake.note("flush unavailable", 0),
            fake.note("long first call", 0),
        )
    )

    assert (row.state, row.detail) == (RowState.RUNNING, "fine")
    assert (row.inner, row.cache, row.mode) == (20, "cold", "graph")
    assert row.badges == ("CPU-bound", "no flush")


def test_a_failed_row_keeps_its_samples_and_its_traceback():
    """Error and traceback stand on the row, what was measured stays, the run is a failure."""
    store = fold(
        fake.two_rows(5),
        BenchError(BEGIN_NS, 1, "ValueError", "ValueError: no", "Traceback …"),
        State(BEGIN_NS, 1, RowState.FAILED, "ValueError: no"),
    )

    row = view(store, 1)

    assert (row.state, row.error, row.traceback) == (
        RowState.FAILED,
        "ValueError: no",
        "Traceback …",
    )
    assert row.n_all == 5
    assert store.course.has_failed
    assert store.course.fatal == ""
    assert store.snapshot(0).log[-1].text == "b: ValueError: no"


def test_a_lost_context_is_a_banner_that_names_the_row():
    """One clear sentence says after which row the device's context was lost."""
    store = fold(fake.two_rows(5), BenchError(BEGIN_NS, 1, "RuntimeError", "gone", "", fatal=True))

    assert "after b" in store.course.fatal


def test_a_row_that_is_tried_again_has_failed_no_more():
    """Its error is gone with the one failure of the run, and the run's fault with its worker."""
    again = fake.note("tried again", 1)
    fresh = fake.note("fresh worker", why="x")
    lost = [BenchError(BEGIN_NS, 1, "SIGSEGV", "lost", "stack"), Fault(BEGIN_NS, 4, "died", "")]
    store = fold(fake.two_rows(5), *lost, fresh, again)

    assert (view(store, 1).error, view(store, 1).traceback) == ("", "")
    assert not store.course.has_failed
    assert store.snapshot(BEGIN_NS).banner == ""

    store.apply([BenchError(BEGIN_NS, 0, "ValueError", "no"), again])
    assert store.course.has_failed


def test_phases_follow_their_row():
    """Sub-rows stand below the row that they are a part of, whatever came between."""
    store = fold(
        fake.start(),
        fake.row(0, "step"),
        fake.row(1, "other"),
        fake.row(10_000, "forward", parent=0),
        fake.row(10_001, "backward", parent=0),
    )

    rows = [row for row in store.snapshot(0).rows if row.name != "unaccounted"]
    assert [row.name for row in rows] == ["step", "forward", "backward", "other"]
    assert [row.parent for row in rows] == [None, 0, 0, None]


# -- the baseline


def group(*names, base=None, group_name="g", first=0):
    """Rows of one group."""
    return [
        fake.row(first + i, name, group=group_name, is_baseline=name == base)
        for i, name in enumerate(names)
    ]


def baselines(store):
    """Each row's baseline by name, empty for a baseline itself."""
    return {row.name: row.baseline_name for row in store.snapshot(0).rows}


def test_the_baseline_is_the_one_the_file_names():
    """Each group has its own; the baseline itself is marked and compared with nothing."""
    store = fold(
        fake.start(),
        group("a", "b", base="b"),
        group("c", "d", base="c", group_name="h", first=2),
    )

    assert baselines(store) == {"a": "b", "b": "", "c": "", "d": "c"}
    assert [row.is_baseline for row in store.snapshot(0).rows] == [False, True, True, False]


def test_without_a_named_baseline_it_is_the_groups_first_row():
    """A file that names none compares with its first row; a row alone with nothing."""
    store = fold(fake.start(), group("a", "b"), group("alone", group_name="h", first=2))

    assert baselines(store) == {"a": "", "b": "a", "alone": ""}


def test_a_baseline_that_the_user_chose_is_everybodys():
    """One key makes a row the baseline of all others, across groups, and back."""
    store = fold(fake.start(), group("a", "b", base="a"), group("c", group_name="h", first=2))

    store.apply([Baseline(BEGIN_NS, 1)])
    assert baselines(store) == {"a": "b", "b": "", "c": "b"}
    store.apply([Baseline(BEGIN_NS, None)])

    assert baselines(store) == {"a": "", "b": "a", "c": ""}


def test_a_ratio_is_never_shown_against_another_row_than_it_was_found_with():
    """A new baseline leaves no answer standing that was to the old one, not for a second."""
    rounds = [block for i in range(900) for block in pair(i)]
    store = fold(fake.start(), group("a", "b"), fake.phase("measuring"), rounds)
    before = view(store, 1).ratio

    store.apply([Baseline(store.last_ns, 1)])
    at_once = view(store, 0)
    store.apply([block for i in range(900, 1300) for block in pair(i)])
    later = view(store, 0).ratio

    assert before.ratio == pytest.approx(2, rel=0.01)
    assert (at_once.baseline_name, at_once.ratio) == ("b", None)
    assert later.ratio == pytest.approx(0.5, rel=0.01)


def pair(round_):
    """A round of two rows, the second twice as slow, 3 ms long."""
    noise = 1 + 1e-3 * math.sin(round_ * 1.7)
    windows = [(0, round(MS * noise)), (1, 2 * MS)]
    return [fake.block(windows, BEGIN_NS + round_ * 10 * MS, round_=round_, size=2)]


def test_a_badge_of_an_epoch_ends_with_it_and_one_of_the_row_stays():
    """What was judged from samples is of those samples; what set-up found holds for the row."""
    told = fake.note("CPU-bound", bench=0).notice
    of_epoch = Noted(msgspec.structs.replace(told, of_epoch=True, at_ns=BEGIN_NS + MS))
    store = fold(fake.start(), fake.row(0, "a"), fake.note("no flush", bench=0), of_epoch)
    store.apply(fake.series(0, [MS] * 10))
    assert view(store).badges == ("no flush", "CPU-bound")

    store.apply([fake.mark("x", BEGIN_NS + NS_PER_S)])
    assert view(store).badges == ("no flush",)

    store.conclude()  # nothing was counted since the mark: the figures and badges of before
    assert view(store).badges == ("no flush", "CPU-bound")


def test_a_control_row_is_compared_with_what_it_copies():
    """Whatever the baseline, the control's ratio is that to its own original."""
    store = fold(
        fake.start(),
        group("a", "b", base="a"),
        fake.row(2, "a (control)", group="g", control_of=0),
    )
    store.apply([Baseline(BEGIN_NS, 1)])

    assert baselines(store)["a (control)"] == "a"
    assert [row.control_of for row in store.snapshot(0).rows] == [None, None, 0]


def test_a_phase_has_no_baseline():
    """Parts of a step are not alternatives to each other."""
    store = fold(
        fake.start(), group("a", "b", base="a"), fake.row(10_000, "part", group="g", parent=1)
    )

    assert baselines(store)["part"] == ""
    assert not store.snapshot(0).row(10_000).is_baseline


# -- epochs


def test_a_mark_starts_statistics_afresh_and_keeps_the_samples():
    """Before and after a change are never mixed; the chart still shows both."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.series(0, [MS] * 60),
        fake.mark("locked", BEGIN_NS + NS_PER_S),
        fake.series(0, [2 * MS] * 20, BEGIN_NS + 2 * NS_PER_S, round_=60),
    )

    row = view(store)

    assert (row.n_all, row.whole.n, row.rolling.n) == (80, 20, 20)
    assert row.rolling.median_s == row.whole.min_s == 2e-3
    assert len(store.curves.series(0, 0, 1 << 60).t_ns) == 80
    first, second = store.snapshot(0).epochs
    assert (first.number, first.label, first.to_ns) == (0, "start", BEGIN_NS + NS_PER_S)
    assert (second.number, second.label, second.to_ns) == (1, "locked", None)


def test_a_mark_of_one_row_concerns_it_alone():
    """Toggling one row's cache mode leaves the others' statistics as they are."""
    store = fold(fake.two_rows(10), fake.mark("a cold", BEGIN_NS + NS_PER_S, bench=0))

    assert (view(store, 0).whole.n, view(store, 1).whole.n) == (0, 10)
    assert len(store.snapshot(0).epochs) == 1


def test_the_pace_follows_its_marks():
    """The header shows the pace in force, not the one of the command line."""
    store = fold(fake.start(pace="steady"), Paced(BEGIN_NS, "burst:10,20"), fake.mark("pace x"))

    assert store.snapshot(0).pace == "burst:10,20"


def test_sessions_of_schema_1_tell_the_pace_in_the_label_of_a_mark():
    """They have no other place for it."""
    first = msgspec.structs.replace(fake.start(pace="steady"), schema=1)

    assert fold(first, fake.mark("pace burst:10,20")).snapshot(0).pace == "burst:10,20"


def test_a_stall_counts_in_its_epoch():
    """Counts of accidents start afresh with the statistics."""
    store = Store()
    store.apply(flat([fake.start(), fake.row(0, "a"), fake.series(0, [MS] * 100)]))
    store.apply(fake.series(0, [50 * MS], BEGIN_NS + NS_PER_S, round_=100))
    assert view(store).stalls == 1

    store.apply([fake.mark("x", BEGIN_NS + 2 * NS_PER_S)])

    assert (view(store).stalls, view(store).n_excluded) == (0, 0)


# -- the session


def test_whether_a_lock_holds_is_what_its_watcher_says():
    """The advice climbs from a lock that is said to hold, and from no other."""
    asked = []
    store = fold(*fake.two_rows(10))
    store.verdicts._analyst._ladder.update = lambda *_, is_held: asked.append(is_held)
    for hold in (ClockHold.PENDING, ClockHold.LOCKED, ClockHold.NOT_HELD):
        store.apply([Clocks(store.last_ns, ClockState(hold=hold, locked_mhz=1410))])
        store.verdicts.ask(store, store.last_ns)

    assert asked == [None, True, False]


def test_the_head_of_the_session():
    """Suite, start, configuration, timer, device and clocks are what the records say."""
    store = fold(
        fake.start(iters=7, seed=42),
        Chosen(BEGIN_NS, "cuda:1", "asked for", {"uuid": "GPU-1"}),
        fake.timing("event", resolution_ns=32),
        Device(BEGIN_NS, DeviceInfo(uuid="GPU-1", name="H100", kind="nvidia", driver="550.1")),
        Clocks(BEGIN_NS, ClockState(hold=ClockHold.LOCKED, locked_mhz=1410, evidence="held")),
        Advised(BEGIN_NS, Advice(verdict=Verdict.LOCK, lock_mhz=1305)),
        Skip(BEGIN_NS, "c", "needs two GPUs"),
        fake.phase("measuring"),
    )

    snapshot = store.snapshot(BEGIN_NS + 3 * NS_PER_S)

    assert (snapshot.suite, snapshot.config.iters, snapshot.config.seed) == ("file.py", 7, 42)
    assert (snapshot.config.device, snapshot.config.device_reason) == ("cuda:1", "asked for")
    assert (snapshot.timer.name, snapshot.device.name) == ("event", "H100")
    assert (snapshot.clocks.locked_mhz, snapshot.advice.lock_mhz) == (1410, 1305)
    assert snapshot.skipped == (Skipped("c", "needs two GPUs"),)
    assert snapshot.elapsed_s == 3.0
    assert "H100 GPU-1 550.1" in [line.text for line in snapshot.log]
    assert "skipped c: needs two GPUs" in [line.text for line in snapshot.log]


def test_the_end_stops_the_clock_and_tells_why():
    """Elapsed time, reason and completeness are those of the last record."""
    store = fold(fake.two_rows(5), End(BEGIN_NS + 4 * NS_PER_S, "SIGTERM", complete=False))

    snapshot = store.snapshot(BEGIN_NS + 99 * NS_PER_S)

    assert (snapshot.elapsed_s, snapshot.stop_reason, snapshot.complete) == (4.0, "SIGTERM", False)
    assert store.course.has_ended


def test_a_worker_that_has_ended_is_not_a_session_that_has():
    """The worker's last word ends measuring; complete is only what was closed in order."""
    store = fold(fake.two_rows(5), fake.phase("ended", detail="max time 3 s"))

    assert store.course.has_ended
    assert store.course.stop_reason == "max time 3 s"
    assert not store.snapshot(0).complete


def test_limits_are_told_as_shares_of_the_readings():
    """Reasons as words with their share; being idle and user clocks are no limits."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.reading(BEGIN_NS, reasons=int(Reason.SW_POWER_CAP | Reason.IDLE)),
        fake.reading(BEGIN_NS + 1, reasons=int(Reason.SW_POWER_CAP | Reason.HW_THERMAL)),
        fake.reading(BEGIN_NS + 2, reasons=int(Reason.APP_CLOCKS)),
        fake.reading(BEGIN_NS + 3, reasons=0),
        fake.reading(BEGIN_NS + 4),
    )

    assert dict(view(store).throttled) == {"power cap": 0.5, "hw thermal": 0.25}


def test_the_log_is_bounded_and_numbered():
    """A chatty benchmark does not grow the program; the count tells what has gone."""
    store = fold(fake.start(), *[Output(BEGIN_NS, f"line {i}") for i in range(2500)])

    snapshot = store.snapshot(0)

    assert len(snapshot.log) == 2000
    assert snapshot.log_total == 2500
    assert (snapshot.log[-1].kind, snapshot.log[-1].text) == ("out", "line 2499")


def test_a_fault_is_an_error_in_the_log():
    """What ended the worker stands in the log with its way out."""
    store = fold(fake.start(), Fault(BEGIN_NS, 2, "file.py:3: bad", "mend it"))

    assert store.snapshot(0).log[-1][1:] == ("error", "file.py:3: bad (mend it)")


def test_a_snapshot_does_not_change_any_more():
    """A front end paints from one moment: later records leave an older snapshot as it was."""
    store = fold(fake.two_rows(5))
    before = store.snapshot(store.last_ns)
    rows, log, total = before.rows, before.log, before.log_total

    store.apply([*fake.two_rows(5)[-1:], Output(BEGIN_NS, "more"), fake.mark("x")])
    store.snapshot(store.last_ns)

    assert (before.rows, before.log, before.log_total) == (rows, log, total)
    assert before.row(0).n_all == 5


def test_the_latest_time_is_that_of_anything_recorded():
    """A session's length is known to its last sample or event, whichever is later."""
    store = fold(fake.two_rows(10))
    assert store.last_ns == BEGIN_NS + 30 * MS

    store.apply([fake.reading(BEGIN_NS + NS_PER_S)])

    assert store.last_ns == BEGIN_NS + NS_PER_S
    assert store.last_sample_ns == BEGIN_NS + 30 * MS


def test_a_block_that_was_cut_short_counts_what_it_has():
    """A row that raised in the middle of a round leaves the round's first samples."""
    store = fold(
        fake.start(),
        fake.row(0, "a"),
        fake.row(1, "b"),
        Samples(4, 2, BEGIN_NS, [0, 1, 1], [0, MS, 2 * MS], [MS] * 3, [1]),
    )

    assert store.rows[0].round.view().tolist() == [4]
    assert store.rows[1].round.view().tolist() == [4, 5]
    assert store.snapshot(0).rounds == 6


def test_the_streams_own_clock_stands_before_the_polled_one():
    """Samples near an in-stream reading carry it, the others the last polled one of a second."""
    store = Store()
    store.apply(
        [
            Telemetry(Reading(device="d", at_ns=NS_PER_S, sm_mhz=1500.0)),
            ProbeClock(0, [2 * NS_PER_S], [1605.0]),
        ]
    )
    starts = np.array([NS_PER_S // 2, NS_PER_S + 1, 2 * NS_PER_S - 1000, 4 * NS_PER_S])

    mhz, in_stream = store.sample_clock(starts)

    assert mhz.tolist()[1:3] == [1500.0, 1605.0]
    assert np.isnan(mhz[[0, 3]]).all()
    assert in_stream.tolist() == [False, False, True, False]


def test_a_change_of_level_is_told_with_its_size():
    """A row that becomes 5 % slower for good has one mark, near the moment, with its size."""
    store = Store()
    rng = random.Random(5)
    records = [fake.start(), fake.row(0, "a")]
    for i in range(600):
        level = 1.05 if i >= 300 else 1.0
        window = round(level * MS * rng.gauss(1, 0.003))
        at_ns = BEGIN_NS + i * NS_PER_S // 10
        records.append(Samples(i, 1, at_ns, [0], [0], [window], [1]))
    store.apply(records)

    [(at_ns, label)] = store.curves.changes(0, 0, 1 << 62)

    assert abs(at_ns - BEGIN_NS - 30 * NS_PER_S) < 2 * NS_PER_S
    assert label == "+5.0 %" or label in ("+4.9 %", "+5.1 %")
    assert store.curves.changes(7, 0, 1 << 62) == []


def test_figures_of_before_a_mark_are_kept_when_nothing_was_counted_after_it():
    """Locking and quitting within the ramp must not end with an empty table."""
    store = Store()
    store.apply([fake.start(), fake.row(0, "a")])
    store.apply([Samples(i, 1, BEGIN_NS + i * MS, [0], [0], [MS], [1]) for i in range(50)])
    store.apply([fake.mark("locked at 1500 MHz", BEGIN_NS + 60 * MS)])
    ramp = [
        Samples(60 + i, 1, BEGIN_NS + (60 + i) * MS, [0], [0], [MS], [1], [], [], int(Flag.RAMP))
        for i in range(5)
    ]
    store.apply(ramp)

    store.reopen_epoch()

    snapshot = store.snapshot(store.last_ns)
    assert snapshot.rows[0].whole.n == 50
    assert snapshot.rows[0].n_excluded == 5
    assert [epoch.label for epoch in snapshot.epochs] == ["start"]
    assert "locked at 1500 MHz" in snapshot.log[-1].text


def test_a_few_starved_windows_are_kept_and_leave_the_spread_alone():
    """The host came too late for them: they are counted on the row, as stalls are."""
    store = Store()
    store.apply([fake.start(), fake.row(0, "a")])
    windows = [MS] * 90 + [2 * MS] * 10
    flags = [0] * 90 + [int(Flag.STARVED)] * 10
    at_ns = [i * 3 * MS for i in range(100)]
    store.apply([Samples(0, 1, BEGIN_NS, [0] * 100, at_ns, windows, [1], [], flags)])

    row = store.snapshot(store.last_ns).rows[0]

    assert row.rolling.std_s == pytest.approx(0, abs=1e-12)
    assert row.n_all == 100
    store.verdicts.ask(store, store.last_ns)
    assert "10 starved" in store.snapshot(store.last_ns).rows[0].badges


def test_the_log_tells_an_advice_that_changes(monkeypatch):
    """A verdict that stays the same is told once, a new one again; asked for once a second."""
    looks = []
    advice = [Advice(verdict=Verdict.WAIT), Advice(verdict=Verdict.WAIT, std_now=0.01)]
    advice += [Advice(verdict=Verdict.LOCK, lock_mhz=1305)] * 9

    def update(_self, _rows, _telemetry, now_ns, **_):
        looks.append(now_ns)
        return Analysis(at_ns=now_ns, advice=advice[len(looks) - 1])

    monkeypatch.setattr(Analyst, "update", update)
    store = fold(fake.start(), fake.row(0, "a"), fake.phase("measuring"))
    for step in range(1, 45):
        store.apply([fake.reading(BEGIN_NS + step * NS_PER_S // 10)])

    told = [line.text for line in store.snapshot(0).log if line.text.startswith("advice")]
    assert told == ["advice: wait", "advice: lock at 1305 MHz"]
    assert looks == [BEGIN_NS + second * NS_PER_S for second in range(1, 5)]


def test_in_an_old_epoch_the_statistics_are_asked_less_often(monkeypatch):
    """A day is read back in minutes; a mark makes the looks frequent again."""
    looks = []

    def update(_self, _rows, _telemetry, now_ns, **_):
        looks.append(now_ns)
        return Analysis(at_ns=now_ns)

    monkeypatch.setattr(Analyst, "update", update)
    store = fold(fake.start(), fake.row(0, "a"), fake.phase("measuring"))
    for second in range(7200):
        store.apply([fake.reading(BEGIN_NS + second * NS_PER_S)])
    before = len(looks)
    store.apply([fake.mark("x", BEGIN_NS + 7200 * NS_PER_S)])
    store.apply([fake.reading(BEGIN_NS + (7200 + k) * NS_PER_S) for k in range(10)])

    steps = np.diff(looks[:before]) / NS_PER_S
    assert steps[:590].max() == 1
    assert steps[-100:].min() == steps.max() == 5
    assert before < 3000
    assert np.diff(looks[before - 1 :])[1:].max() == NS_PER_S


def test_a_nominal_clock_is_no_evidence_that_the_clock_stands():
    """A figure from a table never moves; the advice must not be built on it."""
    store = Store()
    info = DeviceInfo(
        uuid="cpu",
        name="CPU",
        kind="cpu",
        sensors={"sm_mhz": SensorInfo(source="/proc/cpuinfo", unit="MHz", label="nominal")},
    )
    store.apply([fake.start(), Device(BEGIN_NS, info), fake.row(0, "a")])
    rng = random.Random(1)
    for i in range(300):
        at_ns = BEGIN_NS + i * NS_PER_S // 10
        window = round(MS * rng.gauss(1, 0.05))
        store.apply([fake.reading(at_ns, sm_mhz=2600.0)])
        store.apply([Samples(i, 1, at_ns, [0], [0], [window], [1])])
        if i % 10 == 9:
            store.verdicts.ask(store, at_ns)

    assert store.snapshot(store.last_ns).advice.verdict is Verdict.UNKNOWN


def busy(second, row=0, share=0.4):
    """A warning that a look repeats with other figures."""
    return Noted(
        Notice(
            code="host busy",
            bench=row,
            at_ns=BEGIN_NS + second * NS_PER_S,
            level="warn",
            evidence={"share": share + second / 1000},
        )
    )


def test_a_warning_that_repeats_is_counted_on_its_line():
    """Not a wall of the same: one line with its count, written anew at the tenth time."""
    store = fold(fake.two_rows(5))
    written = store.log.total
    for second in range(12):
        store.apply([busy(second), busy(second, row=1)])

    lines = [line.text for line in store.log.lines if "busy" in line.text]
    assert len(lines) == 2
    assert all(text.endswith("(12 times)") for text in lines)
    assert lines[0] != lines[1]
    assert store.log.total == written + 4


def test_other_words_of_the_same_code_are_no_repetition():
    """What a note says is in its words: none is lost behind another."""
    store = fold(fake.two_rows(5))
    for at_s, reason in enumerate(["needs root", "another run holds them", "needs root"]):
        notice = Notice(
            code="lock note", at_ns=BEGIN_NS + at_s, level="warn", evidence={"reason": reason}
        )
        store.apply([Noted(notice)])

    said = [line.text for line in store.log.lines][-2:]
    assert said == ["needs root (2 times)", "another run holds them"]


def test_a_held_lock_is_told_with_what_it_did_to_the_spread():
    """One line in the log, and the std before the lock beside each row while its epoch lasts."""
    store = Store()
    store.apply([fake.start(), fake.row(0, "gemm")])
    wild = [(0, 100_000 + 3_000 * (i % 7)) for i in range(200)]
    calm = [(0, 100_000 + 30 * (i % 7)) for i in range(200)]
    store.apply([fake.block(wild, size=1)])
    store.apply([Clocks(1, ClockState(hold=ClockHold.PENDING, locked_mhz=1500))])
    at = store.last_ns + 1
    store.apply([Mark(at, "locked at 1500 MHz")])
    store.apply([fake.block(calm, at + 1, size=1)])
    store.apply([Clocks(at + 2, ClockState(hold=ClockHold.LOCKED, locked_mhz=1500))])
    snapshot = store.snapshot(store.last_ns)

    told = [line.text for line in snapshot.log if line.text.startswith("the lock is held")]
    assert len(told) == 1
    assert re.fullmatch(r"the lock is held: gemm std 5.\d+ % → 0.0\d %", told[0])
    assert snapshot.rows[0].before_lock > 0.05
    store.apply([Mark(store.last_ns + 1, "unlocked")])
    assert store.snapshot(store.last_ns).rows[0].before_lock is None

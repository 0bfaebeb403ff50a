"""What holds for all samples: symmetries, exactness, and that nothing breaks."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usv_tui.model import Answer
from usv_tui.stats import drift, modes
from usv_tui.stats.analysis import Analyst
from usv_tui.stats.duet import launch_ratio
from usv_tui.stats.inputs import RowData, TelemetryData
from usv_tui.stats.lock_choice import floor_clock
from usv_tui.stats.long_run import long_run
from usv_tui.stats.pair_tracker import CAPACITY, PairTracker
from usv_tui.stats.pairs import paired_ratio
from usv_tui.stats.rolling import LogHistogram, summary
from usv_tui.stats.segments import change_points
from usv_tui.stats.stopping import TargetKind, parse_until

S = 1_000_000_000
times = hnp.arrays(
    np.float64,
    st.integers(0, 120),
    elements=st.floats(1e-9, 1e3, allow_nan=False) | st.just(math.nan) | st.just(0.0),
)
log_ratios = hnp.arrays(np.float64, st.integers(0, 300), elements=st.floats(-3, 3))


@given(times)
def test_a_summary_is_numpys_on_what_is_usable(x: np.ndarray) -> None:
    """Order statistics are exact and lie in order, whatever is mixed in."""
    good = x[np.isfinite(x) & (x > 0)]
    s = summary(x)

    assert s.n == good.size
    if good.size:
        assert math.isclose(s.median_s or 0.0, np.quantile(good, 0.5), rel_tol=1e-12)
        assert s.min_s is not None
        assert s.max_s is not None
        assert s.mean_s is not None
        assert s.min_s <= s.median_s <= s.max_s
        assert s.min_s <= s.mean_s <= s.max_s


@given(times, st.integers(1, 7))
def test_a_histogram_does_not_care_for_the_batches(x: np.ndarray, parts: int) -> None:
    """Counts are the same however the samples arrive, and its median is within 0.1 % of one."""
    whole, split = LogHistogram(), LogHistogram()
    whole.add(x)
    for part in np.array_split(x, parts):
        split.add(part)

    assert whole.n == split.n
    assert whole.quantile(0.5) == split.quantile(0.5)
    middle = whole.quantile(0.5)
    if middle is not None:
        good = np.sort(x[np.isfinite(x) & (x > 0)])
        low, high = good[(good.size - 1) // 2], good[good.size // 2]
        assert low * 0.998 <= middle <= high * 1.002


@given(log_ratios)
def test_the_ratio_of_a_to_b_is_one_over_that_of_b_to_a(d: np.ndarray) -> None:
    """Estimate, interval and answer are mirrored."""
    forth, back = paired_ratio(d), paired_ratio(-d)

    if forth.ratio is not None and back.ratio is not None:
        assert math.isclose(forth.ratio * back.ratio, 1.0, rel_tol=1e-9)
    if forth.low is not None and back.high is not None:
        assert math.isclose(forth.low * back.high, 1.0, rel_tol=1e-9)
    mirrored = {Answer.FASTER: Answer.SLOWER, Answer.SLOWER: Answer.FASTER}
    assert back.answer is mirrored.get(forth.answer, forth.answer)


@given(log_ratios, st.floats(-1, 1))
def test_the_ratio_moves_with_a_common_factor(d: np.ndarray, shift: float) -> None:
    """Making every B so much slower multiplies the ratio by as much."""
    d = np.round(d, 9)  # what a shift would swallow makes other ties
    shift = round(shift, 9)
    plain, shifted = paired_ratio(d), paired_ratio(np.round(d + shift, 9))

    if plain.ratio is not None and shifted.ratio is not None:
        assert math.isclose(shifted.ratio, plain.ratio * math.exp(shift), rel_tol=1e-6)


@given(log_ratios)
def test_an_interval_holds_its_estimate_and_an_answer_its_interval(d: np.ndarray) -> None:
    """Low <= ratio <= high; faster lies below the band, slower above, same inside."""
    found = paired_ratio(d)

    if found.low is not None and found.high is not None and found.ratio is not None:
        assert found.low <= found.ratio * (1 + 1e-12)
        assert found.ratio <= found.high * (1 + 1e-12)
        if found.answer is Answer.FASTER:
            assert found.high < 1 / 1.005
        if found.answer is Answer.SLOWER:
            assert found.low > 1.005
    else:
        assert found.answer is Answer.UNDECIDED


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4000), max_size=12))
def test_a_tracker_does_not_care_for_the_batches(sizes: list[int]) -> None:
    """Every value kept is the mean of as many neighbouring rounds, from the first on."""
    tracker, at = PairTracker(), 0
    for size in sizes:
        tracker.add(np.arange(at, at + size, dtype=float))
        at += size
    kept = tracker.values
    stride = 1
    while at // stride >= CAPACITY:
        stride *= 2

    assert tracker.total == at
    assert kept.size == at // stride
    if kept.size:
        assert kept[0] == (stride - 1) / 2
        assert np.diff(kept).tolist() == [stride] * (kept.size - 1)


@given(hnp.arrays(np.float64, st.integers(0, 200), elements=st.floats(1e-9, 1e3)), st.floats(0, 1))
def test_trend_and_modes_never_break(x: np.ndarray, tick: float) -> None:
    """A finite answer or none."""
    found = drift.trend(x, tick)

    assert found is None or all(math.isfinite(v) for v in found)
    hint = modes.find_modes(x, tick)
    assert hint is None or hint.high > hint.low > 0


@given(st.floats(1e-6, 1e6), st.floats(0.1, 10.0))
def test_a_trend_does_not_depend_on_the_unit(scale: float, other: float) -> None:
    """Seconds or microseconds: the same relative change."""
    x = 1 + 0.01 * np.sin(np.arange(200.0))
    one, two = drift.trend(scale * x), drift.trend(scale * other * x)

    assert one is not None
    assert two is not None
    assert math.isclose(one.change, two.change, abs_tol=1e-9)


@given(st.floats(0, 5000), st.lists(st.integers(1, 4000), max_size=30))
def test_a_lock_is_never_above_what_was_asked(target: float, clocks: list[int]) -> None:
    """And it is a supported clock, the highest that fits."""
    found = floor_clock(target, sorted(set(clocks)))

    if found is not None:
        assert found <= target
        assert not clocks or found == max(c for c in clocks if c <= target)
    else:
        assert not any(c <= target for c in clocks)


@given(
    st.sampled_from(["", "ratio", "median", "Ratio "]),
    st.sampled_from(["±", "+-", "+/-", " ± ", ""]),
    st.decimals("0.01", "50", places=2),
)
def test_targets_round_trip(kind: str, sign: str, value: object) -> None:
    """Kind and width come back as written."""
    found = parse_until(f"{kind}{sign}{value}%")

    assert math.isclose(found.half_width, float(str(value)) / 100)
    assert (found.kind is TargetKind.RATIO) == ("ratio" in kind.lower())


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[RowData], TelemetryData]:
    """Rows and readings with anything in them that the types allow."""
    rows = []
    for bench in range(draw(st.integers(0, 3))):
        n = draw(st.integers(0, 90))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        odd = draw(st.booleans())
        rows.append(
            RowData(
                bench,
                np.sort(rng.integers(0, 30 * S, n)),
                rng.integers(-5 if odd else 1, 10**6, n),
                rng.integers(0 if odd else 1, 4, n).astype(np.int32),
                np.sort(rng.integers(0, 60, n)).astype(np.int32),
                (rng.integers(0, 256, n) if odd else np.zeros(n)).astype(np.uint8),
                draw(st.sampled_from([None, 0, 1, 9])),
                draw(st.booleans()),
                draw(st.sampled_from([0.0, 32.0, 1e9])),
                draw(st.booleans()),
            )
        )
    n = draw(st.integers(0, 90))
    rng = np.random.default_rng(n)
    odd = [math.nan, 0.0, -1.0, 1500.0, 1e12]
    return rows, TelemetryData(
        np.sort(rng.integers(0, 30 * S, n)),
        rng.choice(odd, n),
        rng.choice(odd, n),
        rng.integers(-1, 2048, n),
        rng.choice(odd, n),
        rng.choice(odd, n),
        None,
        draw(st.sampled_from([(), (1500,), (1000, 1500, 2000)])),
        draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(sessions(), st.integers(0, 40))
def test_an_analyst_answers_whatever_it_is_given(
    session: tuple[list[RowData], TelemetryData], second: int
) -> None:
    """Never an exception, never an interval upside down, an answer for every row."""
    rows, telemetry = session
    analyst = Analyst()
    for at in (second, second + 1, second + 30):
        found = analyst.update(rows, telemetry, at * S, locked_mhz=1500)

        assert set(found.rows) == {row.bench for row in rows}
        for known in found.rows.values():
            for value in (known.drift.change, known.effect.alpha, known.window.median_s):
                assert value is None or math.isfinite(value)
            if known.ratio is not None and known.ratio.low is not None:
                assert known.ratio.high is not None
                assert known.ratio.low <= known.ratio.high


@st.composite
def odd_series(draw: st.DrawFn) -> np.ndarray:
    """Series that no machine draws at random: constant, of two values, of rounding alone, ticks."""
    n = draw(st.sampled_from([1, 2, 3, 5, 8, 30, 60, 250, 1000]))
    base = 10.0 ** draw(st.floats(-9, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    shape = {
        "constant": np.ones(n),
        "two": np.where(rng.random(n) < draw(st.floats(0, 1)), 1.0, 2.0),
        "rounding": 1 + 1e-16 * rng.normal(0, 1, n),
        "ticks": 0.1 * np.maximum(1, np.round(10 * (1 + rng.normal(0, 0.1, n)))),
        "step": np.repeat([1.0, 1.1], n)[::2][:n],
        "line": 1 + 1e-4 * np.arange(n),
        "spikes": np.where(rng.random(n) < 0.02, 1e6, 1.0),
        "heavy": np.exp(0.3 * rng.standard_cauchy(n).clip(-30, 30)),
    }
    return np.asarray(base * shape[draw(st.sampled_from(sorted(shape)))])


@settings(max_examples=150)
@given(odd_series(), odd_series())
def test_nothing_breaks_on_odd_series(x: np.ndarray, y: np.ndarray) -> None:
    """No exception, no warning of numpy's, and no figure that is none."""
    n = min(x.size, y.size)
    d = np.log(x[:n]) - np.log(y[:n])
    t_ns = np.arange(x.size, dtype=np.int64) * S
    with np.errstate(all="raise", under="ignore"):
        found = [
            paired_ratio(d),
            long_run(d),
            launch_ratio(0, d, np.arange(n) % 2),
            modes.find_modes(x),
            drift.trend(x),
            change_points(t_ns, x),
            summary(x),
        ]
    assert "nan" not in repr(found)

import numpy as np
import pytest

from tests.unit.test_audit import Judged
from usv_tui.diagnosis.measured import Seen, measure_cpu, within
from usv_tui.diagnosis.roofline import Roofline
from usv_tui.diagnosis.series import Size, no_growth, time_falls, works_in_turns
from usv_tui.records import Noted

rng = np.random.default_rng(1)
US = 1_000


def noisy(times):
    """With the noise of a busy machine: some percent, and stragglers."""
    n = len(times)
    late = rng.random(n) < 0.03
    return np.asarray(times) * rng.lognormal(0, 0.05, n) * np.where(late, rng.uniform(2, 30, n), 1)


def steps(n, k, low, high):
    """Every k-th is high."""
    return np.where(np.arange(n) % k == 0, high, low).astype(float)


@pytest.mark.parametrize("k", [2, 3, 8, 50])
def test_work_in_every_kth_window_is_named(k):
    """The period is told, and how much of the time lies in it."""
    found = works_in_turns(steps(1000, k, 1_000, 900_000))

    if k == 2:  # half of them are high: the median lies between
        assert found is None
    else:
        assert found.evidence["period"] == k
        assert found.evidence["share"] > 0.9


@pytest.mark.parametrize(
    "times",
    [
        np.full(2000, 1e6),
        steps(2000, 4, 1e6, 2e6),
        steps(2000, 10, 1e6, 5e6),
        np.linspace(2e6, 1e6, 2000),
        np.concatenate([np.full(400, 3e6), np.full(1600, 1e6)]),
        np.concatenate([np.full(5, 90e6), np.full(1600, 1e6)]),
        np.repeat(rng.uniform(1e6, 3e6, 40), 50),
        rng.lognormal(13, 0.8, 2000),
    ],
)
def test_honest_series_are_not_named(times):
    """Steps of an optimiser, drift, modes, a boost that ends, a first call that compiles."""
    for _ in range(20):
        assert works_in_turns(noisy(times)) is None
        assert time_falls(noisy(times)) is None


def test_a_row_that_stops_working_is_named():
    """After sixty windows of a millisecond each takes a tenth of it."""
    found = time_falls(noisy(np.concatenate([np.full(60, 1e6), np.full(400, 1e5)])))

    assert found.code == "time falls"
    assert abs(found.evidence["window"] - 60) <= 2
    assert time_falls(noisy(np.concatenate([np.full(60, 1e5), np.full(400, 1e6)]))) is None


def test_no_growth_is_named_where_the_baseline_grows():
    """Sixteen times the work in the same time; overhead alone and slow baselines are let be."""
    small, large = Size(1, 1.0, 50 * US, 60 * US), Size(2, 64.0, 51 * US, 900 * US)

    (found,) = no_growth([small, large])
    assert found[0] == 2
    assert found[1].evidence["work"] == 64

    assert no_growth([small, large._replace(per_call_ns=80 * US)]) == []
    assert no_growth([small, large._replace(base_ns=120 * US)]) == []
    assert no_growth([small._replace(per_call_ns=1000), large._replace(per_call_ns=1000)]) == []


def test_rows_of_several_sizes_whose_results_nobody_checks_are_held_against_their_baselines():
    """A corner of a larger matrix is the same work; a row with a check is left to that."""
    loop = Judged()
    loop.benchmarks.clear()
    for n, cost in ((1, 50 * US), (64, 2000 * US)):
        same = {"group": f"g{n}", "inputs": None, "check": None, "flops": float(n)}
        loop.row(f"base[n={n}]", lambda c=cost: loop.time.advance(c), is_baseline=True, **same)
        loop.row(f"corner[n={n}]", lambda: loop.time.advance(40 * US), **same)
        honest = {**same, "check": lambda a, b: a == b}
        loop.row(f"checked[n={n}]", lambda: loop.time.advance(40 * US), **honest)
    loop.run()

    named = {r.notice.bench for r in loop.of(Noted) if r.notice.code == "no growth"}
    assert {loop.benchmarks[bench].name for bench in named} == {"corner[n=64]"}


def test_the_ceiling_is_the_lower_of_data_sheet_and_measurement():
    """In virtual time a product takes two milliseconds; nothing can be faster than is known."""
    ticks = iter(range(10**9))

    def clock():
        return next(ticks) * 1_000_000

    seen = measure_cpu(clock, clock)
    assert seen.flops == pytest.approx(2 * 384**3 / 2e-3)

    known = Roofline(1e15, None, "data sheet", 1e15)
    found = within(known, Seen(1e11, 1e11, 1e10), cores=2, narrow=4.0)
    assert found.flops_per_s == pytest.approx(1.2e12)
    assert found.cache_bytes_per_s == pytest.approx(1.2e12)
    assert "measured" in found.source
    assert within(Roofline(1e9, None, "x", 1e9), Seen(1e11, 1e11, 1e10)).flops_per_s == 1e9


def test_what_is_known_of_a_gpu_stands_before_what_was_measured():
    """Only an unknown card is held against its own product of matrices, generously."""
    seen = Seen(1e14, None, 1e12)

    assert within(Roofline(5e14, 2e12, "x"), seen).flops_per_s == 5e14
    unknown = within(Roofline(), seen)
    assert unknown.flops_per_s == pytest.approx(6e14)
    assert unknown.bytes_per_s == pytest.approx(1.3e12)

"""Rows that are built afresh in the midst of a run: when, which, and what may go wrong."""

import gc
import weakref
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tests.fakes.loop import MS, Loop
from usv_tui.model import Answer, Benchmark, Flag, Ratio, RunConfig
from usv_tui.records import BenchError, Noted, Rebuilt
from usv_tui.report.wording.rows import ratio_limits
from usv_tui.session.placement import PlacementAsk
from usv_tui.timesource import NS_PER_S


class Buffers(Loop):
    """A loop whose rows hold an array of their own, made anew by each set-up."""

    def __init__(self, **config):
        super().__init__(**({"max_time_s": 10.0} | config))
        self.built = []
        self.arrays = []

    def row(self, name, cost=MS, set_up=MS, **options):
        """A row; `cost` and `set_up` may be functions of how often it was built (from 1)."""
        count = 0

        def build(_device):
            nonlocal count
            count += 1
            mine = count
            self.built.append(name)
            self.time.advance(set_up(mine) if callable(set_up) else set_up)
            array = np.zeros(1 << 10)
            self.arrays.append(weakref.ref(array))

            def fn():
                self.calls.append(name)
                self.time.advance(cost(mine) if callable(cost) else cost)
                return array

            return fn

        self.benchmarks.append(Benchmark(name=name, build=build, **options))

    def builds(self, name):
        """How often a row was built after the first time."""
        return self.built.count(name) - 1

    def said(self, code):
        """Notices of one code."""
        return [r.notice for r in self.of(Noted) if r.notice.code == code]


def test_a_control_builds_all_rows_afresh_seven_times():
    """`--control` covers placement by itself, evenly over the run, and no sample is lost to it."""
    loop = Buffers(control=True)
    loop.row("base", is_baseline=True)
    loop.row("other")

    loop.run()

    # The control is the baseline's set-up once more.
    assert (loop.builds("other"), loop.builds("base")) == (7, 15)
    records = loop.of(Rebuilt)
    assert [r.benches for r in records] == [[0, 2, 1]] * 7
    gaps = np.diff([r.at_ns for r in records]) / NS_PER_S
    assert (gaps >= 1.0).all()
    assert loop.of(BenchError) == []


def test_samples_from_then_on_are_those_of_the_new_buffers():
    """Each set-up's callable is timed until the next; a short ramp comes before."""
    loop = Buffers(realloc=3)
    loop.row("a", cost=lambda built: built * MS)

    loop.run()

    cuts = [r.at_ns for r in loop.of(Rebuilt)]
    assert len(cuts) == 3
    for sample in loop.samples():
        built = 1 + sum(sample.start_ns >= at for at in cuts)
        assert sample.window_ns == built * MS
    ramp = [s for s in loop.samples() if s.flags & Flag.RAMP]
    assert 0 < len(ramp) < 0.1 * len(loop.samples())


def test_without_a_control_only_what_is_asked_for_is_built_afresh():
    """The session names the rows whose ratio is near 1; the others stay as they are."""
    loop = Buffers()
    loop.row("base", is_baseline=True)
    loop.row("near")
    loop.row("far")
    for bench in (0, 1):
        loop.at(2.0, "realloc", bench=bench)

    loop.run()

    assert (loop.builds("base"), loop.builds("near"), loop.builds("far")) == (7, 7, 0)


def test_never_is_never():
    """`--realloc 0` leaves all as it is, with a control, too."""
    loop = Buffers(realloc=0, control=True)
    loop.row("base", is_baseline=True)

    loop.run()

    assert (loop.of(Rebuilt), loop.built) == ([], ["base", "base"])


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), SystemExit(3)])
def test_a_set_up_that_fails_costs_only_the_rebuilding(error):
    """The row goes on with the buffers that it has, is told of, and is not tried again."""

    def fails(built):
        if built > 1:
            raise error
        return MS

    loop = Buffers(realloc=5)
    loop.row("a", set_up=fails)
    loop.row("b")

    loop.run()

    assert loop.of(BenchError) == []
    assert (loop.builds("a"), loop.builds("b")) == (1, 5)
    [notice] = loop.said("not built afresh")
    assert (notice.bench, notice.level) == (0, "warn")
    assert loop.samples(0)[-1].round == loop.samples(1)[-1].round


def test_a_fresh_callable_that_fails_leaves_the_old_one():
    """The new one is called once before the old one goes."""

    def fails(built):
        if built > 1:
            raise ValueError("not this time")
        return MS

    loop = Buffers(realloc=5)
    loop.row("a", cost=fails)

    loop.run()

    assert loop.of(BenchError) == []
    assert loop.of(Rebuilt) == []
    assert len(loop.counted(0)) > 9000


def test_a_slow_set_up_is_met_once_where_it_was_quick_before():
    """Nobody asked for it: one slow rebuilding, after which the row stays as it is."""
    loop = Buffers(control=True)
    loop.row("a", set_up=lambda built: 2 * NS_PER_S if built == 3 else MS, is_baseline=True)
    loop.row("b")

    loop.run()

    assert loop.builds("a") <= 10
    assert loop.builds("b") >= 5
    assert len(loop.counted(1)) > 1000


def test_a_slow_set_up_is_not_repeated_unasked():
    """What takes long is built once; where the user asks for it, it is."""
    unasked, asked = Buffers(control=True), Buffers(realloc=2)
    for loop in (unasked, asked):
        loop.row("a", set_up=NS_PER_S, is_baseline=True)
        loop.run()

    assert unasked.builds("a") == 1  # the control's own
    assert asked.builds("a") == 2


def test_the_same_buffers_again_are_no_allocation():
    """A set-up that hands out what its file holds gives no news, and none is told."""
    loop = Buffers(realloc=3)
    array = np.zeros(1 << 10)
    loop.benchmarks.append(
        Benchmark(name="a", build=lambda _device: lambda: (loop.time.advance(MS), array)[1])
    )

    loop.run()

    assert loop.of(Rebuilt) == []
    assert "same buffers" in loop.said("not built afresh")[0].evidence["reason"]


def test_old_buffers_go_at_the_end():
    """Small ones are kept while it runs, so that new ones lie elsewhere, and no longer."""
    loop = Buffers(realloc=3)
    loop.row("a")

    loop.run()
    gc.collect()

    assert len(loop.arrays) == 4
    assert sum(ref() is not None for ref in loop.arrays) <= 1


def test_samples_a_row_are_kept_to():
    """`--iters` counts through: each row has as many as asked for, in even stretches."""
    loop = Buffers(realloc=3, iters=400, max_time_s=None)
    loop.row("a")
    loop.row("b")

    loop.run()

    counts = {bench: len(loop.counted(bench)) for bench in (0, 1)}
    assert counts == {0: 400, 1: 400}
    assert len(loop.of(Rebuilt)) == 3


def _store(ratios):
    """What the session says of rows, as far as it matters here."""
    rows = {b: SimpleNamespace(ratio_to=0 if b else None) for b in ratios}
    said = {b: SimpleNamespace(ratio=r) for b, r in ratios.items()}
    verdicts = SimpleNamespace(analysis=SimpleNamespace(rows=said))
    return SimpleNamespace(rows=rows, verdicts=verdicts)


def test_the_session_asks_for_rows_whose_ratio_is_within_3_percent():
    """Each row and its baseline once; rows far from 1, or without rounds, not at all."""
    store = _store({0: None, 1: Ratio(ratio=1.02, n=100), 2: Ratio(ratio=1.5, n=100), 3: Ratio()})
    ask = PlacementAsk(RunConfig())

    assert ask.wanted(store) == [1, 0]
    store.verdicts.analysis.rows[3] = SimpleNamespace(ratio=Ratio(ratio=0.98, n=100))
    assert ask.wanted(store) == [3]
    for config in (RunConfig(control=True), RunConfig(realloc=0), RunConfig(realloc=4)):
        assert PlacementAsk(config).wanted(store) == []


def test_a_ratio_says_how_many_allocations_it_is_of():
    """One: not covered; more: how far they differ, unless by more than any placement does."""
    told = Ratio(ratio=1.01, answer=Answer.SLOWER)
    eight = msgspec.structs.replace(told, allocations=8, placement=0.012)

    assert ratio_limits(told) == ["one allocation: placement not covered"]
    assert ratio_limits(eight) == ["8 allocations, between which it changes by 1.2 %"]
    far = msgspec.structs.replace(eight, placement=0.4)
    assert ratio_limits(far) == ["8 allocations"]

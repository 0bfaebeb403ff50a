import gc
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.fakes.loop import BEGIN_NS, MS, Loop, QueueTimer
from usv_tui.gate import Gate
from usv_tui.model import Benchmark, CacheMode, Flag, RowState, Skipped
from usv_tui.records import (
    Bench,
    BenchError,
    Calibrated,
    Gap,
    Mark,
    Noted,
    Progress,
    Samples,
    Skip,
    State,
    Timing,
)
from usv_tui.timesource import NS_PER_S


def names_of(records):
    """Names by row id."""
    return {r.info.bench: r.info.name for r in records if isinstance(r, Bench)}


def raising(*failures):
    """The result of a call: raises at the calls that are given as (number, error)."""
    errors = dict(failures)

    def result(call):
        if call in errors:
            raise errors[call]

    return result


def orders(loop):
    """The rows of each whole round, in the order of time."""
    rounds = defaultdict(list)
    for sample in loop.samples():
        rounds[sample.round].append(sample.bench)
    return list(rounds.values())


def phases(loop):
    """What the worker said that it does."""
    return [record.phase for record in loop.of(Progress)]


def notes(loop):
    """The codes of what was noticed."""
    return [record.notice.code for record in loop.of(Noted)]


# -- the order of one sample


def test_a_sample_is_reset_then_flush_then_fn():
    """Before every window `reset`, then the flush; nothing else is called, before or between."""
    loop = Loop(iters=4, inner=None, cache=CacheMode.COLD)
    loop.flush_ns = 5 * MS
    loop.add("fn", MS, reset=loop.spend("reset", 2 * MS))

    loop.run()

    assert loop.calls == ["reset", "flush", "fn"] * (len(loop.calls) // 3)
    assert len(loop.calls) // 3 > len(loop.samples()) == 4


def test_only_fn_is_inside_the_window():
    """Reset and flush cost seven times as much as the call, and a window holds the call alone."""
    loop = Loop(iters=4, cache=CacheMode.COLD)
    loop.flush_ns = 5 * MS
    loop.add("fn", MS, reset=loop.spend("reset", 2 * MS))

    loop.run()

    assert {sample.window_ns for sample in loop.samples()} == {MS}


def test_a_cold_window_of_several_calls_flushes_before_each():
    """With a fixed inner of 3 the flush comes before each call, and none of it is timed."""
    loop = Loop(iters=2, cache=CacheMode.COLD)
    loop.flush_ns = 5 * MS
    loop.add("fn", MS, inner=3, reset=loop.spend("reset", 2 * MS))

    loop.run()

    window = ["reset", *(["flush", "fn"] * 3)]
    assert loop.calls[-14:] == window * 2
    assert {(s.window_ns, s.inner) for s in loop.samples()} == {(3 * MS, 3)}


def test_a_flush_that_cannot_be_had_is_said_on_the_row():
    """Asked for cold, measured warm: the row is told so, never silently."""
    loop = Loop(iters=2, cache=CacheMode.COLD)
    loop.add("fn")

    loop.run()

    notice = loop.of(Noted)[0].notice
    assert (notice.code, notice.bench) == ("flush unavailable", 0)
    assert notice.evidence["reason"] == "nothing to flush here"
    assert loop.of(Calibrated)[-1].cache == "unavailable"


def test_a_row_says_how_cold_it_is():
    """The cache mode, the bytes that a flush writes and the cache's own size are recorded."""
    loop = Loop(iters=2, cache=CacheMode.COLD)
    loop.flush_ns = MS
    loop.add("cold")
    loop.add("warm", cache=CacheMode.WARM)

    loop.run()

    cold, warm = loop.of(Calibrated)
    assert (cold.cache, cold.flush_bytes, cold.l2_bytes) == ("cold", 1 << 20, 1 << 19)
    assert (warm.cache, warm.flush_bytes) == ("warm", 0)


def test_calls_fill_the_window_that_was_asked_for():
    """With inner left to the run, a window of a quick call lasts about `target_window_s`."""
    loop = Loop(iters=3, inner=None, target_window_s=1e-3)
    loop.add("quick", 10_000)
    loop.add("slow", 5 * MS)

    loop.run()

    assert {s.window_ns for s in loop.samples(0)} == {MS}
    assert {s.inner for s in loop.samples(0)} == {100}
    assert {s.inner for s in loop.samples(1)} == {1}


def test_an_explicit_inner_is_never_overridden():
    """A callable that may run only twice in a row runs twice, whatever the run's setting."""
    loop = Loop(iters=3, inner=None)
    loop.add("in place", 10_000, inner=2)

    loop.run()

    assert {s.inner for s in loop.samples()} == {2}


# -- rounds


def test_each_round_has_each_row_once_in_a_shuffled_order():
    """Every row takes part in every round, in many different orders."""
    loop = Loop(iters=60)
    for name in "abc":
        loop.add(name)

    loop.run()

    assert all(sorted(order) == [0, 1, 2] for order in orders(loop))
    assert len({tuple(order) for order in orders(loop)}) == 6


def test_the_seed_decides_the_order():
    """The same seed gives the same run, another one another."""

    def order(seed):
        loop = Loop(iters=30, seed=seed)
        for name in "abcd":
            loop.add(name)
        loop.run()
        return [sample.bench for sample in loop.samples()]

    assert order(7) == order(7)
    assert order(7) != order(8)


def test_all_rows_span_the_whole_run():
    """Beside a row a hundred times slower, the quick one is never left alone at the end."""
    loop = Loop(max_time_s=3.0)
    loop.add("quick", MS // 10)
    loop.add("slow", 10 * MS)

    loop.run()

    assert all(sorted(order) == [0, 1] for order in orders(loop))
    first, last = orders(loop)[0], orders(loop)[-1]
    assert sorted(first) == sorted(last) == [0, 1]


@pytest.mark.parametrize("iters", [1, 7, 1000])
def test_each_row_gets_exactly_the_samples_asked_for(iters):
    """`--iters N` gives N counted samples a row, although rounds come in blocks."""
    loop = Loop(iters=iters, warmup_max_s=2.0)
    loop.add("a", MS // 20)
    loop.add("b", MS // 10)

    reason = loop.run()

    assert Counter(s.bench for s in loop.counted()) == {0: iters, 1: iters}
    assert reason == f"{iters} samples a row"


def test_time_is_up_within_a_block():
    """`--max-time` ends the run within a few milliseconds of the limit."""
    loop = Loop(max_time_s=2.0)
    loop.add("a", MS // 3)

    reason = loop.run()

    assert reason == "max time 2 s"
    began = loop.of(Progress)[1].at_ns
    assert 2.0 <= (loop.time.now_ns() - began) / NS_PER_S < 2.01


def test_samples_tell_when_they_began():
    """Start times are on the session's clock, ascend, and windows do not overlap."""
    loop = Loop(iters=50)
    loop.add("a", 3 * MS)
    loop.add("b", 2 * MS)

    loop.run()

    samples = loop.samples()
    assert samples[0].start_ns > BEGIN_NS
    assert all(a.start_ns + a.window_ns <= b.start_ns for a, b in pairwise(samples))


def test_the_session_is_told_what_there_is_before_it_is_measured():
    """Timer, skipped things with their reason, and rows come first; phases follow in order."""
    loop = Loop(iters=1, warmup_max_s=1.0)
    loop.skipped.append(Skipped("c", "needs a GPU"))
    loop.add("a", group="g", params={"n": 3, "shape": (1, 2)}, flops=5.0, is_baseline=True)

    loop.run()

    kinds = [type(record) for record in loop.records]
    assert kinds[:3] == [Timing, Skip, Bench]
    info = loop.of(Bench)[0].info
    assert (info.name, info.group, info.flops, info.is_baseline) == ("a", "g", 5.0, True)
    assert info.params == {"n": 3, "shape": "(1, 2)"}
    assert names_of(loop.records) == {0: "a"}
    assert phases(loop) == ["priming", "warming", "measuring", "ended"]


def test_the_garbage_collector_is_as_before_afterwards():
    """It is off while rows are timed, and on again at the end, even when a row fails."""
    seen = []
    gc.enable()
    loop = Loop(iters=5)
    loop.add("a", result=lambda call: seen.append(gc.isenabled()))
    loop.add("b", result=raising((4, ValueError("no"))))

    loop.run()

    assert seen[-1] is False
    assert gc.isenabled()


# -- failures


def test_one_failing_row_costs_only_itself():
    """Raising at call 61, a row retires with its traceback; the other runs to its end."""
    loop = Loop(iters=200)
    loop.add("good")
    loop.add("bad", result=raising((61, ValueError("at 61\nmore"))))

    reason = loop.run()

    [error] = loop.of(BenchError)
    assert (error.bench, error.kind, error.message) == (1, "ValueError", "ValueError: at 61")
    assert "at 61\nmore" in error.traceback
    assert not error.fatal
    assert len(loop.counted(0)) == 200
    assert 0 < len(loop.counted(1)) < 61
    assert loop.of(State)[-1] == State(error.at_ns, 1, RowState.FAILED, "ValueError: at 61")
    assert reason == "200 samples a row"


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__
)
def test_a_row_cannot_end_the_run_by_an_odd_exception(error):
    """`sys.exit()` inside a benchmark is its own failure and nobody else's."""
    loop = Loop(iters=20)
    loop.add("good")
    loop.add("bad", result=raising((9, error)))

    loop.run()

    assert loop.of(BenchError)[0].kind == type(error).__name__
    assert len(loop.counted(0)) == 20


class _Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def test_an_exception_that_cannot_be_printed_is_still_only_one_rows():
    """An error whose text raises is reported by its name."""
    loop = Loop(iters=20)
    loop.add("good")
    loop.add("bad", result=raising((9, _Unprintable())))

    loop.run()

    assert loop.of(BenchError)[0].message.startswith("_Unprintable")
    assert len(loop.counted(0)) == 20


def test_a_row_that_cannot_be_built_fails_before_it_is_timed():
    """An exception in the set-up, or a set-up without a callable, costs that row alone."""
    loop = Loop(iters=5)

    def broken(device):
        raise FileNotFoundError("weights.bin")

    loop.benchmarks.append(Benchmark(name="broken", build=broken))
    loop.benchmarks.append(Benchmark(name="nothing", build=lambda device: None))
    loop.add("good")

    loop.run()

    first, second = loop.of(BenchError)
    assert first.message == "FileNotFoundError: weights.bin"
    assert "NoneType" in second.message
    assert "callable" in second.message
    assert len(loop.counted(2)) == 5


def test_a_failing_reset_is_the_rows_failure():
    """What a benchmark does before its window may fail as well as what it does inside."""
    loop = Loop(iters=5)

    def reset():
        if len(loop.calls) > 6:
            raise OSError("gone")

    loop.add("a")
    loop.add("b", reset=reset)

    loop.run()

    assert [error.message for error in loop.of(BenchError)] == ["OSError: gone"]
    assert len(loop.counted(0)) == 5


def test_when_every_row_fails_the_run_ends_and_says_so():
    """Nothing is left to measure: no endless idling."""
    loop = Loop()
    loop.add("a", result=raising((20, ValueError("x"))))
    loop.add("b", result=raising((30, ValueError("y"))))

    assert loop.run() == "every benchmark failed"
    assert len(loop.of(BenchError)) == 2


def test_when_every_row_fails_at_once_nothing_is_measured():
    """Rows that fail at their first call end the run before it is warmed up."""
    loop = Loop()
    loop.add("a", result=raising((1, ValueError("x"))))

    assert loop.run() == "every benchmark failed"
    assert phases(loop) == ["priming", "ended"]
    assert loop.samples() == []


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.mark.parametrize("others", [1, 0])
@pytest.mark.parametrize("error", [OutOfMemoryError("2 GiB"), MemoryError()])
def test_running_out_of_memory_is_retried_once(error, others):
    """The row sits out the others' next block and comes back; so does a lone one."""
    loop = Loop(iters=100)
    loop.add("hungry", result=raising((40, error)))
    for _ in range(others):
        loop.add("other")

    loop.run()

    assert notes(loop) == ["out of memory, retrying"]
    assert loop.of(BenchError) == []
    assert len(loop.counted(0)) == 100


def test_out_of_memory_twice_is_a_failure_told_apart():
    """The second time the row retires, as `oom`; the others go on."""
    loop = Loop(iters=100)
    loop.add("hungry", result=raising((40, MemoryError()), (50, MemoryError())))
    loop.add("other")

    loop.run()

    assert [error.kind for error in loop.of(BenchError)] == ["oom"]
    assert len(loop.counted(1)) == 100


def test_a_lost_context_stops_the_run_and_keeps_the_samples():
    """Nothing can be timed any more: one fatal error names the row, and all is kept."""
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    loop = Loop()
    loop.add("innocent")
    loop.add("guilty", result=raising((121, lost)))

    reason = loop.run()

    assert reason == "the device's context is lost after guilty"
    [error] = loop.of(BenchError)
    assert (error.bench, error.fatal) == (1, True)
    assert len(loop.samples(0)) > 30
    assert phases(loop)[-1] == "ended"


async def _coroutine():
    return 1


def _generator():
    yield 1


@pytest.mark.parametrize(("make", "word"), [(_coroutine, "coroutine"), (_generator, "generator")])
def test_a_result_that_did_nothing_is_a_named_error(make, word):
    """A callable that only makes a coroutine or generator was not timed for what it does."""
    loop = Loop(iters=3)
    loop.add("lazy", result=lambda call: make())
    loop.add("good")

    loop.run()

    assert word in loop.of(BenchError)[0].message
    assert len(loop.counted(1)) == 3
    assert loop.samples(0) == []


# -- check


def compare(result, baseline):
    """A check as a user writes it."""
    return result == baseline


def test_a_wrong_result_fails_its_row():
    """A wrong kernel is not a fast kernel: the row is compared once and never timed."""
    loop = Loop(iters=3)
    loop.add("base", result=lambda call: 4, group="g", is_baseline=True, check=compare)
    loop.add("right", result=lambda call: 4, group="g", check=compare)
    loop.add("wrong", result=lambda call: 5, group="g", check=compare)

    loop.run()

    [error] = loop.of(BenchError)
    assert (error.bench, error.kind) == (2, "check")
    assert "differs from base" in error.message
    assert Counter(s.bench for s in loop.counted()) == {0: 3, 1: 3}


def test_a_failed_check_names_the_baseline_and_never_its_control():
    """The control is a copy: what a row differs from is the baseline itself."""
    loop = Loop(iters=5, control=True)
    loop.add("base", result=lambda call: 4, group="g", is_baseline=True)
    loop.add("wrong", result=lambda call: 5, group="g", check=lambda mine, base: mine == base)

    loop.run()

    [error] = loop.of(BenchError)
    assert "differs from base's" in error.message


def test_a_check_that_raises_says_what_it_raised():
    """An assertion inside a check is the row's error; a check that returns nothing has passed."""

    def asserting(result, baseline):
        assert abs(result - baseline) < 1, f"off by {abs(result - baseline)}"

    loop = Loop(iters=3)
    loop.add("base", result=lambda call: 1, is_baseline=True)
    loop.add("near", result=lambda call: 1.5, check=asserting)
    loop.add("far", result=lambda call: 9, check=asserting)

    loop.run()

    [error] = loop.of(BenchError)
    assert error.bench == 2
    assert error.message.startswith("AssertionError: off by 8: by up to 8 where the baseline")
    assert "reset" in error.message


# -- control row


def test_a_control_row_is_the_baseline_again():
    """`--control` times the baseline twice: a row of its own, in every round, marked as a copy."""
    loop = Loop(iters=5, control=True)
    loop.add("a")
    loop.add("base", is_baseline=True)

    loop.run()

    info = loop.of(Bench)[2].info
    assert (info.name, info.control_of, info.is_baseline) == ("base (control)", 1, False)
    assert all(sorted(order) == [0, 1, 2] for order in orders(loop))


# -- warm-up by state


def test_a_slow_first_phase_never_enters_the_counted_samples():
    """Half the clock for half a second: none of it is counted, all of it is kept, flagged."""
    loop = Loop(iters=200, warmup_max_s=10.0)
    slow_until = BEGIN_NS + NS_PER_S // 2
    for name in ("a", "b"):
        loop.add(name, lambda call: (2 if loop.time.now_ns() < slow_until else 1) * MS)

    loop.run()

    assert {s.window_ns for s in loop.counted()} == {MS}
    slow = [s for s in loop.samples() if s.window_ns == 2 * MS]
    assert len(slow) > 100
    assert {s.flags for s in slow} == {int(Flag.WARMUP)}
    assert notes(loop) == []


def test_a_ramp_is_waited_for():
    """Times that fall for two seconds and then stay: warm-up lasts about as long."""
    loop = Loop(iters=50, warmup_max_s=20.0)

    def cost(call):
        return round(MS * (1 + 0.5 * max(0.0, 1 - loop.time.seconds / 2)))

    loop.add("a", cost)

    loop.run()

    assert max(s.window_ns for s in loop.counted()) < 1.02 * MS
    assert loop.counted()[0].start_ns - BEGIN_NS < 6 * NS_PER_S


def test_a_row_that_never_levels_is_measured_and_said_so():
    """At the cap the run goes on, with a notice on the row that was still moving."""
    loop = Loop(iters=50, warmup_max_s=3.0)
    loop.add("flat")
    loop.add("moving", lambda call: round(MS * 1.001**call))

    loop.run()

    assert [(n.notice.code, n.notice.bench) for n in loop.of(Noted)] == [("not warmed up", 1)]
    assert len(loop.counted(1)) == 50


def test_warm_up_can_be_left_out():
    """`--warmup 0` counts from the first sample."""
    loop = Loop(iters=5, warmup_max_s=0.0)
    loop.add("a")

    loop.run()

    assert phases(loop) == ["priming", "measuring", "ended"]
    assert {s.flags for s in loop.samples()} == {0}


def test_the_first_call_is_shown_as_compiling_with_its_time():
    """A first call of 0.3 s is the prime's, never a sample's, and its cost stands there."""
    loop = Loop(iters=20)
    loop.add("jit", lambda call: 300 * MS if call == 1 else MS)

    loop.run()

    states = [(s.state, s.detail) for s in loop.of(State)]
    assert states[:3] == [
        (RowState.PREPARING, ""),
        (RowState.COMPILING, ""),
        (RowState.WAITING, "first call 0.3 s"),
    ]
    assert {s.window_ns for s in loop.samples()} == {MS}


# -- commands


def test_a_pause_is_a_gap_and_a_ramp_follows():
    """Paused from 1 s to 3 s: no sample in between, a gap on record, then a second of ramp."""
    loop = Loop(max_time_s=6.0)
    loop.add("a")
    loop.at(1.0, "pause")
    loop.at(3.0, "resume")

    loop.run()

    [gap] = loop.of(Gap)
    assert gap.reason == "paused"
    assert (gap.from_ns - BEGIN_NS) / NS_PER_S == pytest.approx(1.0, abs=0.01)
    assert (gap.to_ns - BEGIN_NS) / NS_PER_S == pytest.approx(3.0, abs=0.51)
    assert not any(gap.from_ns < s.start_ns < gap.to_ns for s in loop.samples())
    ramp = [s for s in loop.samples() if s.flags & Flag.RAMP]
    assert ramp[0].start_ns >= gap.to_ns
    assert (ramp[-1].start_ns - gap.to_ns) / NS_PER_S == pytest.approx(1.0, abs=0.01)
    assert {s.flags for s in loop.samples() if s.start_ns > gap.to_ns + 1.01 * NS_PER_S} == {0}
    assert phases(loop) == ["priming", "measuring", "paused", "measuring", "ended"]


def test_while_paused_everybody_may_pass_the_gate():
    """A paused worker has no windows to protect."""
    manned = []
    loop = Loop(max_time_s=4.0)
    loop.add("a")
    loop.at(1.0, "pause")
    loop.time.at(0.9, lambda: manned.append(loop.gate.is_manned))
    loop.time.at(2.0, lambda: manned.append(loop.gate.is_manned))
    loop.at(3.0, "resume")

    loop.run()

    assert manned == [True, False]
    assert not loop.gate.is_manned


def test_a_run_can_be_stopped_while_it_is_paused():
    """Quit works in every state."""
    loop = Loop()
    loop.add("a")
    loop.at(1.0, "pause")
    loop.at(2.0, "stop", "quit")

    assert loop.run() == "quit"
    assert loop.time.seconds < 3.1


def test_a_run_can_be_stopped_while_it_is_being_prepared():
    """Between two first calls a stop is heard: nothing more is built."""
    loop = Loop()
    loop.add("a", 2 * NS_PER_S)
    loop.add("b", 2 * NS_PER_S)
    loop.at(1.0, "stop", "quit")

    assert loop.run() == "quit"
    assert loop.calls == ["a"]
    assert loop.samples() == []


def test_a_run_can_be_stopped_while_it_warms_up():
    """A stop ends the warm-up and the run, with the samples kept."""
    loop = Loop(warmup_max_s=60.0)
    loop.add("a", lambda call: round(MS * 1.001**call))
    loop.at(2.0, "stop", "SIGTERM")

    assert loop.run() == "SIGTERM"
    assert len(loop.samples()) > 100
    assert loop.counted() == []


def test_a_mark_begins_an_epoch():
    """A user's mark is on record at its time, and nothing is flagged for it."""
    loop = Loop(max_time_s=2.0)
    loop.add("a")
    loop.at(1.0, "mark", "before the change")

    loop.run()

    [mark] = loop.of(Mark)
    assert (mark.label, mark.bench) == ("before the change", None)
    assert {s.flags for s in loop.samples()} == {0}


def test_a_row_alone_and_all_again():
    """`solo` times one row until `all` is asked for; each starts an epoch and a ramp."""
    loop = Loop(max_time_s=9.0)
    loop.add("a")
    loop.add("b")
    loop.at(2.0, "solo", bench=1)
    loop.at(5.0, "all")

    loop.run()

    solo, together = loop.of(Mark)
    assert (solo.label, together.label) == ("solo b", "all rows")
    alone = [s for s in loop.samples() if solo.at_ns < s.start_ns < together.at_ns]
    assert {s.bench for s in alone} == {1}
    after = [s for s in loop.samples() if s.start_ns > together.at_ns]
    assert {s.bench for s in after} == {0, 1}
    ramp = [s for s in loop.samples() if s.flags & Flag.RAMP]
    assert {round((s.start_ns - BEGIN_NS) / NS_PER_S) for s in ramp} <= {2, 3, 5, 6}


def test_a_row_can_be_switched_off_and_on():
    """Off rows leave the rounds at once; back on, only their own statistics start afresh."""
    loop = Loop(max_time_s=6.0)
    loop.add("a")
    loop.add("b")
    loop.at(2.0, "off", bench=0)
    loop.at(4.0, "on", bench=0)

    loop.run()

    [mark] = loop.of(Mark)
    assert (mark.label, mark.bench) == ("a on", 0)
    off = [s for s in loop.of(State) if s.state is RowState.OFF]
    assert [s.bench for s in off] == [0]
    between = [s for s in loop.samples() if off[0].at_ns < s.start_ns < mark.at_ns]
    assert {s.bench for s in between} == {1}
    assert any(s.start_ns > mark.at_ns for s in loop.samples(0))


def test_with_all_rows_off_the_loop_waits_for_one():
    """No live row: the worker idles with the gate open, and goes on when a row is switched on."""
    loop = Loop(max_time_s=6.0)
    loop.add("a")
    loop.at(1.0, "off", bench=0)
    loop.at(3.0, "on", bench=0)

    assert loop.run() == "max time 6 s"
    assert not any(1.01 < (s.start_ns - BEGIN_NS) / NS_PER_S < 2.99 for s in loop.samples())
    assert any((s.start_ns - BEGIN_NS) / NS_PER_S > 3 for s in loop.samples())


def test_a_rows_cache_mode_can_be_toggled():
    """Warm to cold in a run: flushed from then on, and only this row starts afresh."""
    loop = Loop(max_time_s=4.0)
    loop.flush_ns = MS
    loop.add("a")
    loop.add("b")
    loop.at(2.0, "cache", "cold", bench=1)

    loop.run()

    [mark] = loop.of(Mark)
    assert (mark.label, mark.bench) == ("b cold", 1)
    assert loop.of(Calibrated)[-1].cache == "cold"
    assert "flush" not in loop.calls[:100]
    tail = loop.calls[-40:]
    assert all(tail[i - 1] == "flush" for i, call in enumerate(tail) if call == "b" and i)
    assert {s.window_ns for s in loop.samples()} == {MS}


@pytest.mark.parametrize("verb", ["off", "on", "solo", "cache"])
def test_a_command_about_no_row_is_ignored(verb):
    """A key pressed on a row that the loop does not time (a phase, say) ends nothing."""
    loop = Loop(max_time_s=2.0)
    loop.add("a")
    loop.at(1.0, verb, "cold", bench=10_000)

    assert loop.run() == "max time 2 s"
    assert any((s.start_ns - BEGIN_NS) / NS_PER_S > 1.5 for s in loop.samples(0))


# -- pace


def test_bursts_leave_the_device_idle_between_them():
    """50 ms on, 150 ms off: a quarter of the time is measured, the rest is gaps on record."""
    loop = Loop(max_time_s=4.0, pace="burst:50,150")
    loop.add("a")

    loop.run()

    busy = sum(s.window_ns for s in loop.samples()) / NS_PER_S
    idle = sum(gap.to_ns - gap.from_ns for gap in loop.of(Gap)) / NS_PER_S
    assert busy == pytest.approx(1.0, rel=0.1)
    assert idle == pytest.approx(3.0, rel=0.1)
    assert {gap.reason for gap in loop.of(Gap)} == {"pace burst:50,150"}


def test_cool_waits_until_the_device_is_cool():
    """Above the limit nothing is timed; when it has cooled, measuring goes on."""
    loop = Loop(max_time_s=6.0, pace="cool:60")
    loop.add("a")
    loop.at(0.0, "temp", "50")
    loop.at(2.0, "temp", "75")
    loop.at(4.0, "temp", "60")

    loop.run()

    times = [(s.start_ns - BEGIN_NS) / NS_PER_S for s in loop.samples()]
    assert not any(2.01 < t < 3.99 for t in times)
    assert sum(t < 2 for t in times) > 1000
    assert sum(t > 4 for t in times) > 1000


def test_cool_says_what_it_waits_for_and_gives_up():
    """Temperature and target are told while it waits; after two minutes it measures on."""
    loop = Loop(max_time_s=130.0, pace="cool:60")
    loop.add("a")
    loop.at(0.0, "temp", "50")
    loop.at(2.0, "temp", "75")

    loop.run()

    said = [p.detail for p in loop.of(Progress) if p.phase == "cooling"]
    assert said[0] == "75 C, waits for 60 C"
    assert notes(loop) == ["does not cool"]
    times = [(s.start_ns - BEGIN_NS) / NS_PER_S for s in loop.samples()]
    assert not any(2.1 < t < 121 for t in times)
    assert any(t > 123 for t in times)


def test_cool_without_a_thermometer_says_so_once():
    """A pace that needs a temperature and gets none measures steadily, with one notice."""
    loop = Loop(max_time_s=2.0, pace="cool:60")
    loop.add("a")

    loop.run()

    assert notes(loop) == ["no thermometer"]
    assert len(loop.samples()) > 1000


def test_a_change_of_pace_starts_an_epoch_and_a_ramp():
    """Statistics split at the change, and the second after it is not counted."""
    loop = Loop(max_time_s=4.0)
    loop.add("a")
    loop.at(2.0, "pace", "burst:10,10")

    loop.run()

    [mark] = loop.of(Mark)
    assert mark.label == "pace burst:10,10"
    second = [s for s in loop.samples() if 0 <= s.start_ns - mark.at_ns < NS_PER_S]
    assert {s.flags for s in second} == {int(Flag.RAMP)}


def test_a_pace_that_makes_no_sense_is_refused_and_the_old_one_kept():
    """A mistyped pace in the running program is a notice, not an end."""
    loop = Loop(max_time_s=2.0)
    loop.add("a")
    loop.at(1.0, "pace", "gallop")

    assert loop.run() == "max time 2 s"
    assert notes(loop) == ["bad pace"]
    assert loop.of(Mark) == []


# -- the gate


class CountingGate(Gate):
    """A gate that a screen asks for at set times and leaves at once."""

    def __init__(self, loop):
        super().__init__(loop.time)
        self.loop = loop
        self.served = []

    def serve(self, bound_ns):
        self.served.append((len(self.loop.calls), self.loop.timer.queued_ns()))
        self.wanted = 0
        return True


def test_a_frame_is_let_through_between_two_windows_and_caches_are_called_back():
    """After a frame each quick row is called three times untimed before it is timed again."""
    loop = Loop(iters=50)
    loop.gate = CountingGate(loop)
    loop.add("a", MS // 10)
    loop.add("b", MS // 10)
    loop.time.at(0.003, lambda: setattr(loop.gate, "wanted", 1))

    loop.run()

    [(at, _)] = loop.gate.served
    assert loop.calls[at : at + 6] == ["a"] * 3 + ["b"] * 3
    assert Counter(s.bench for s in loop.counted()) == {0: 50, 1: 50}


def test_a_slow_row_is_not_called_untimed():
    """Calling back the caches costs a few milliseconds at most; long calls do it themselves."""
    loop = Loop(iters=20)
    loop.gate = CountingGate(loop)
    loop.add("slow", 100 * MS)
    loop.time.at(1.0, lambda: setattr(loop.gate, "wanted", 1))

    loop.run()

    calibration_and_prime = 4
    assert len(loop.gate.served) == 1
    assert len(loop.calls) == 20 + calibration_and_prime


def test_under_a_queue_the_gate_opens_while_work_covers_it():
    """On a device the frame is painted while 30 ms of work are queued: it never waits for it."""
    loop = Loop(max_time_s=2.0)
    loop.gate = CountingGate(loop)
    loop.timer = QueueTimer(loop.time, cost_ns=2 * MS)
    loop.add("a")
    loop.time.at(0.5, lambda: setattr(loop.gate, "wanted", 1))

    loop.run()

    [(_, queued)] = loop.gate.served
    assert queued >= 30 * MS
    assert {s.window_ns for s in loop.samples()} == {2 * MS}


def test_windows_under_a_forced_frame_are_flagged():
    """A frame that could not wait marks exactly the windows that it fell into; they are kept."""
    loop = Loop(iters=50)
    loop.add("a")
    begin, end = BEGIN_NS + 20 * MS + 1, BEGIN_NS + 29 * MS + 1

    def leave():
        del loop.gate.intruders["a frame"]
        loop.gate.forced.append((begin, end))

    loop.time.at(0.0201, lambda: loop.gate.intruders.update({"a frame": begin}))
    loop.time.at(0.0291, leave)

    loop.run()

    hit = [s for s in loop.samples() if s.start_ns < end and s.start_ns + s.window_ns > begin]
    flagged = [s for s in loop.samples() if s.flags & Flag.FRAME]
    assert flagged == hit
    assert len(hit) == 10
    assert len(loop.counted()) == 50


# -- a device that is ahead


def test_samples_of_a_queue_are_all_harvested_at_the_end():
    """What is still queued when the run ends is waited for: no sample is lost."""
    loop = Loop(iters=100)
    loop.timer = QueueTimer(loop.time, cost_ns=MS)
    loop.add("a")
    loop.add("b")

    loop.run()

    blocks = loop.of(Samples)
    rounds = sorted({s.round for s in loop.samples()})
    assert rounds == list(range(len(rounds)))
    assert all(block.host_ns for block in blocks)
    assert min(Counter(s.bench for s in loop.counted()).values()) >= 100


def test_a_lock_that_changed_something_is_followed_by_a_ramp():
    """`ramp` starts an epoch with the lock's own label, and a second that is not counted."""
    loop = Loop(max_time_s=4.0)
    loop.add("a")
    loop.at(2.0, "ramp", "locked 1305 MHz")

    loop.run()

    [mark] = loop.of(Mark)
    assert mark.label == "locked 1305 MHz"
    ramp = [s for s in loop.samples() if s.flags & Flag.RAMP]
    assert ramp[0].start_ns >= mark.at_ns
    assert (ramp[-1].start_ns - mark.at_ns) / NS_PER_S == pytest.approx(1.0, abs=0.01)


def test_warm_up_takes_at_most_half_of_a_bounded_run():
    """A row that never levels is measured in the other half, and said to be moving."""
    loop = Loop(max_time_s=1.5, warmup_max_s=30.0)
    loop.add("a", lambda call: round(MS * 1.001**call))

    assert loop.run() == "max time 1.5 s"
    first = loop.counted()[0].start_ns - loop.samples()[0].start_ns
    assert first / NS_PER_S == pytest.approx(0.75, abs=0.1)
    assert notes(loop) == ["not warmed up"]


def test_a_row_that_fails_while_caches_are_called_back_retires_alone():
    """An untimed call after a frame may be the one that raises: the others go on."""
    loop = Loop(iters=50)
    loop.gate = CountingGate(loop)
    failing = []
    loop.add("good", MS // 10)
    loop.add(
        "bad",
        MS // 10,
        reset=lambda: failing and 1 / 0,
    )

    def ask():
        loop.gate.wanted = 1

    loop.time.at(0.003, ask)
    serve = loop.gate.serve

    def serve_and_break(bound_ns):
        failing.append(True)
        return serve(bound_ns)

    loop.gate.serve = serve_and_break

    loop.run()

    assert [(e.bench, e.kind) for e in loop.of(BenchError)] == [(1, "ZeroDivisionError")]
    assert len(loop.counted(0)) == 50


def test_what_the_timer_finds_in_a_primed_row_is_noticed():
    """A timer's own diagnosis of a row stands in the record, on that row."""
    loop = Loop(iters=3)
    loop.add("a")
    loop.add("b")
    examine = loop.timer.examine
    loop.timer.examine = lambda slot: (
        [("synchronises", {"where": "fn"})] if slot.bench == 1 else examine(slot)
    )

    loop.run()

    [notice] = [record.notice for record in loop.of(Noted)]
    assert (notice.code, notice.bench, notice.level) == ("synchronises", 1, "warn")


def test_a_row_that_fails_in_calibration_is_not_timed():
    """Raising at its third call, before any sample: it retires, the other is measured."""
    loop = Loop(iters=10)
    loop.add("a")
    loop.add("b", result=raising((3, RuntimeError("third"))))

    loop.run()

    assert [e.message for e in loop.of(BenchError)] == ["RuntimeError: third"]
    assert loop.samples(1) == []
    assert len(loop.counted(0)) == 10


# -- rows that are too slow to be called untimed

S = NS_PER_S


def medians(loop):
    """Median seconds of the samples of each row that count."""
    rows = defaultdict(list)
    for sample in loop.counted():
        rows[sample.bench].append(sample.window_ns / sample.inner / S)
    return {bench: sorted(values)[len(values) // 2] for bench, values in sorted(rows.items())}


def test_a_slow_rows_first_calls_are_its_samples():
    """A call of 4 s with 3 s to measure: two calls in all, the second of them is the sample."""
    loop = Loop(max_time_s=3.0, warmup_max_s=10.0, inner=None)
    loop.add("slow", 4 * S)

    assert loop.run() == "max time 3 s"
    assert len(loop.calls) == 2
    assert loop.time.seconds < 8.1
    [sample] = loop.counted()
    assert (sample.window_ns, sample.flags) == (4 * S, Flag.FIRST)
    assert notes(loop) == ["slow row"]


@pytest.mark.parametrize("slow_s", [(2.0,), (4.0,), (2.0, 1.5), (4.0, 4.0, 4.0), (0.4, 0.6)])
@pytest.mark.parametrize("quick", [0, 1, 3])
@pytest.mark.parametrize("max_s", [1.0, 3.0, 10.0])
def test_every_row_has_a_sample_and_the_time_is_kept(slow_s, quick, max_s):
    """Beyond each row's first call the run takes its time, and one slow call, at the most."""
    loop = Loop(max_time_s=max_s, warmup_max_s=10.0, inner=None)
    for i in range(quick):
        loop.add(f"quick {i}", MS // 10)
    for i, seconds in enumerate(slow_s):
        loop.add(f"slow {i}", round(seconds * S))

    reason = loop.run()

    assert reason == f"max time {max_s:g} s"
    expected = [1e-4] * quick + list(slow_s)
    assert medians(loop) == pytest.approx(dict(enumerate(expected)))
    assert loop.time.seconds < sum(slow_s) + max_s + max(slow_s) + 1.0


def test_a_slow_reset_makes_a_slow_row():
    """What comes before a window costs the run as well: two resets, one sample."""
    loop = Loop(max_time_s=3.0, warmup_max_s=10.0, inner=None)
    loop.add("reset", MS, reset=loop.spend("slow reset", 4 * S))

    loop.run()

    assert loop.time.seconds < 8.1
    assert [sample.window_ns for sample in loop.counted()] == [MS]


def test_iters_of_a_slow_row_are_its_calls_after_the_first():
    """`--iters 3` of a call of 4 s: four calls, no warm-up of ten seconds."""
    loop = Loop(iters=3, warmup_max_s=10.0, inner=None)
    loop.add("slow", 4 * S)

    loop.run()

    assert len(loop.counted()) == 3
    assert len(loop.calls) == 4


def test_a_long_first_call_does_not_make_a_slow_row():
    """A compilation of 30 s before a call of 1 ms: the row is warmed up and has many samples."""
    loop = Loop(max_time_s=3.0, warmup_max_s=10.0, inner=None)
    loop.add("compiled", lambda call: 30 * S if call == 1 else MS)

    loop.run()

    assert len(loop.counted()) > 1000
    assert medians(loop) == {0: 1e-3}
    assert loop.time.seconds < 34


def test_a_row_that_compiles_twice_is_not_slow_for_good():
    """The second call may compile again: once calls are quick, the row begins afresh."""
    loop = Loop(max_time_s=20.0, inner=None)
    loop.add("recompiled", lambda call: 5 * S if call <= 2 else MS // 100)

    loop.run()

    assert [mark.bench for mark in loop.of(Mark)] == [0]
    assert loop.of(Calibrated)[-1].inner == 100


def test_many_rows_together_keep_to_the_time():
    """Three hundred rows of 50 ms in 3 s: all have a sample, if only their first call, flagged."""
    loop = Loop(max_time_s=3.0, warmup_max_s=10.0, inner=None)
    for i in range(300):
        loop.add(f"row {i}", 50 * MS)

    loop.run()

    assert sorted({sample.bench for sample in loop.counted()}) == list(range(300))
    assert loop.time.seconds < 300 * 0.15 + 5
    first = {s.bench for s in loop.counted() if s.flags & Flag.FIRST}
    assert len(first) == notes(loop).count("only a first call") > 200


def test_a_long_rest_ends_with_the_run():
    """A pace that rests for a minute does not hold a run of three seconds."""
    loop = Loop(max_time_s=3.0, pace="burst:100,60000")
    loop.add("a")

    assert loop.run() == "max time 3 s"
    assert loop.time.seconds < 3.2


def test_a_stop_is_heard_between_the_windows_of_a_long_round():
    """Ten rows of 2 s: a stop during one of them ends the run after it."""
    loop = Loop(inner=None)
    for i in range(10):
        loop.add(f"row {i}", 2 * S)
    loop.at(41.0, "stop", "quit")

    assert loop.run() == "quit"
    assert loop.time.seconds < 43


# -- the whole program stands still


def standing_still(asks):
    """A run in which the program is stopped for ten seconds; those who ask for the gate as told."""
    loop = Loop(max_time_s=20.0)

    def cost(n):
        if asks:
            with loop.gate.hold(0):
                pass
        if n == 3000:
            loop.time.advance(10 * NS_PER_S)
        return MS

    loop.add("row", cost)
    loop.run()
    return loop


def test_after_a_stop_a_gap_is_told_and_the_next_second_is_ramp():
    """ctrl+z or SIGSTOP: nobody asked for the gate either, so it was no slow call."""
    loop = standing_still(asks=True)
    [gap] = [g for g in loop.of(Gap) if g.reason == "the program stood still"]
    samples = [s for block in loop.of(Samples) for s in block.samples()]
    after = [s for s in samples if gap.from_ns < s.start_ns + s.window_ns]

    assert gap.to_ns - gap.from_ns > 9 * NS_PER_S
    assert all(s.flags & Flag.RAMP for s in after if s.start_ns < gap.to_ns + NS_PER_S)
    assert any(not s.flags & Flag.RAMP for s in after)
    assert max(s.window_ns for s in samples if not s.flags & Flag.RAMP) < 2 * MS


def test_one_slow_call_is_no_standstill():
    """Where nobody asks for the gate at all there is no telling: it stays a slow window."""
    loop = standing_still(asks=False)

    assert not [g for g in loop.of(Gap) if g.reason == "the program stood still"]


def test_a_row_with_warm_up_samples_never_shows_its_first_call():
    """The first call may hold compiling: it stands in for a row without any window, not here."""
    loop = Loop(max_time_s=0.5, warmup_max_s=10.0)
    loop.add("row", lambda n: 50 * MS if n == 1 else MS)

    loop.run()

    noted = [n.notice.code for n in loop.of(Noted)]
    firsts = [s for b in loop.of(Samples) for s in b.samples() if s.flags & Flag.FIRST]
    assert firsts == []
    assert "only a first call" not in noted

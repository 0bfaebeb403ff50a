import inspect
import itertools
import statistics
import sys
import types
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import usv
import usv.timer

import usv_tui
from usv_tui import BenchmarkFailed, GPUTimer, Measurement, do_bench, do_bench_many, get_timer
from usv_tui.errors import DeviceError, TimerError, UsageError
from usv_tui.library import group
from usv_tui.library import timer_selection as choice
from usv_tui.model import ClockHold, ClockState
from usv_tui.timers.cache import Flusher
from usv_tui.timers.wall import WallTimer


class Sim(usv.timer.GPUTimer):
    """A device in virtual time, in usv's own protocol: `fn` returns its seconds at full clock."""

    def __init__(self, clock=lambda t: 1.0):
        self.clock = clock
        self.now = 0.0
        self.in_flight = 0
        self.most_in_flight = 0

    def synchronize(self):
        pass

    def open(self, fn, inner=1, before=None):
        if before is not None:
            before()
        total = sum((fn() or 0.0) / self.clock(self.now) for _ in range(inner))
        self.now += total
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return total / inner

    def value(self, handle):
        self.in_flight -= 1
        return handle


def droop(t):
    """A clock that falls by 15 % with a time constant of 50 ms."""
    return 1.0 - 0.15 * (1 - 2.718281828 ** (-t / 0.05))


class FakeTime:
    """A clock for both libraries that only the timed work moves."""

    def __init__(self):
        self.ns = 0

    def perf_counter(self):
        return self.ns * 1e-9

    def perf_counter_ns(self):
        return self.ns

    def work(self, ns):
        """A callable that takes so long."""

        def fn():
            self.ns += ns

        return fn


# -- the same face as usv


@pytest.mark.parametrize("name", usv.__all__)
def test_every_name_of_usv_is_here_with_its_arguments_and_defaults(name):
    """A program written for usv 2026.1 finds each function, argument, kind and default."""
    theirs, ours = getattr(usv, name), getattr(usv_tui, name)
    mine = inspect.signature(ours).parameters

    for parameter in inspect.signature(theirs).parameters.values():
        assert parameter.name in mine
        assert mine[parameter.name].default == parameter.default
        assert mine[parameter.name].kind == parameter.kind


def test_a_measurement_has_all_that_usv_s_has():
    """Fields in the same places, and the same statistics of the same samples."""
    samples = np.array([3e-3, 1e-3, 2e-3, 7e-3])
    theirs = usv.Measurement(samples, "a", 2, 1e9, 1e6)
    ours = Measurement(samples, "a", 2, 1e9, 1e6)

    for name in ("n", "median", "mean", "std", "min", "max", "tflops", "gbps", "name", "inner"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.quantile(0.9) == theirs.quantile(0.9)
    assert set(dir(theirs)) - set(dir(ours)) <= {"__hash__", "__replace__"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"iters": 7, "warmup": 0},
        {"inner": 5},
        {"inner": "auto", "target_window_s": 2e-3},
        {"min_iters_time": 0.05},
        {"interleave": True},
        {"interleave": True, "min_iters_time": 0.05, "iters": 3},
    ],
)
@pytest.mark.parametrize("kind", ["sim", "wall"])
def test_both_libraries_measure_the_same(monkeypatch, options, kind):
    """On the same deterministic work both return the same counts, times and throughputs."""
    seconds = {"a": 1e-4, "b": 2.5e-4, "c": 1e-5}
    work = {"flops": {"a": 1e9}, "bytes": {"b": 1e6}}
    fake = FakeTime()
    monkeypatch.setattr(usv.timer, "time", fake)
    if kind == "sim":
        fns = {name: (lambda s=s: s) for name, s in seconds.items()}
        timers = Sim(), Sim()
    else:
        fns = {name: fake.work(round(s * 1e9)) for name, s in seconds.items()}
        timers = "wall", WallTimer(clock=fake.perf_counter_ns)

    theirs = usv.do_bench_many(fns, timer=timers[0], **work, **options)
    ours = do_bench_many(fns, timer=timers[1], **work, **options)

    assert list(ours) == list(theirs)
    for name, mine in ours.items():
        other = theirs[name]
        assert mine.inner == pytest.approx(other.inner, rel=0.05, abs=1)
        assert mine.n == pytest.approx(other.n, rel=0.05, abs=1)
        assert mine.median == pytest.approx(other.median, rel=1e-4)
        assert mine.std == pytest.approx(other.std, abs=1e-9)
        assert mine.tflops == pytest.approx(other.tflops, rel=1e-4)
        assert mine.gbps == pytest.approx(other.gbps, rel=1e-4)


def test_one_callable_is_measured_as_in_usv():
    """do_bench returns one measurement with its name and work."""
    theirs = usv.do_bench(lambda: 2e-4, timer=Sim(), name="x", flops=4e8, bytes=2e6, iters=9)
    ours = do_bench(lambda: 2e-4, timer=Sim(), name="x", flops=4e8, bytes=2e6, iters=9)

    assert (ours.name, ours.n, ours.inner) == (theirs.name, theirs.n, theirs.inner)
    assert ours.tflops == pytest.approx(theirs.tflops)
    assert ours.gbps == pytest.approx(theirs.gbps)


def test_real_work_on_the_real_wall_clock():
    """The wall timer times Python work, call by call, as usv does."""
    ours = do_bench(lambda: sum(range(2000)), timer="wall", iters=30, warmup=5)

    assert (ours.n, ours.timer, ours.cache, ours.seed) == (30, "wall", "warm", None)
    assert 1e-6 < ours.min <= ours.median <= ours.max < 1


@pytest.mark.parametrize("timer", [Sim(), WallTimer(), get_timer("wall")])
def test_any_timer_object_will_do(timer):
    """Usv's timers, the engine's and those of get_timer are all taken."""
    assert do_bench(lambda: 1e-3, timer=timer, iters=3, warmup=0).n == 3


# -- order


def order_of(fns, **options):
    """The names in the order in which their windows were opened, after priming and warm-up."""
    calls = []
    timed = {name: (lambda n=name, s=s: calls.append(n) or s) for name, s in fns.items()}
    results = do_bench_many(timed, timer=Sim(), warmup=0, cache="as-is", **options)
    return calls[-sum(m.n for m in results.values()) :]


def test_interleaving_visits_all_in_every_round():
    """Each round has every callable once, in an order that changes."""
    order = order_of({"a": 1e-4, "b": 1e-4, "c": 1e-4}, iters=40, interleave=True)
    rounds = [tuple(order[i : i + 3]) for i in range(0, len(order), 3)]

    assert len(rounds) == 40
    assert all(sorted(round_) == ["a", "b", "c"] for round_ in rounds)
    assert len(set(rounds)) == 6


def evicting(fake, name, state):
    """A callable that takes twice as long behind another one."""

    def fn():
        fake.ns += 10**6 if state.get("last") == name else 2 * 10**6
        state["last"] = name

    return fn


@pytest.mark.parametrize("cache", ["warm", "as-is"])
def test_interleaved_callables_are_warm_unless_asked_as_is(cache):
    """Behind another one's window each runs untimed first; as-is shows what the other one left."""
    fake, state = FakeTime(), {}
    fns = {name: evicting(fake, name, state) for name in "ab"}
    timer = WallTimer(clock=fake.perf_counter_ns)

    results = do_bench_many(fns, timer=timer, iters=50, interleave=True, cache=cache)

    cold = sum(s > 1.5e-3 for m in results.values() for s in m.samples)
    assert cold == 0 if cache == "warm" else cold > 40
    assert {m.cache for m in results.values()} == {cache}


def test_interleaved_callables_share_their_calls_a_window():
    """With inner="auto" callables of about one speed get one number, and a wrong mode is named."""
    found = do_bench_many(
        {"a": lambda: 1e-5, "b": lambda: 2e-5}, timer=Sim(), interleave=True, inner="auto", iters=3
    )

    assert found["a"].inner == found["b"].inner
    with pytest.raises(ValueError, match="as-is"):
        do_bench_many({"a": lambda: 1.0}, timer=Sim(), cache="lukewarm")


def test_without_interleaving_one_follows_the_other():
    """Each callable is timed to its end in turn."""
    order = order_of({"a": 1e-4, "b": 1e-4}, iters=5)

    assert order == ["a"] * 5 + ["b"] * 5


def test_a_fast_callable_is_never_alone_at_the_end():
    """With a time budget the fast one takes more samples in every round."""
    order = order_of({"fast": 1e-4, "slow": 1e-2}, min_iters_time=0.5, iters=1, interleave=True)
    runs = [len(list(group)) for name, group in itertools.groupby(order) if name == "fast"]

    assert (order.count("fast"), order.count("slow")) == (5000, 50)
    assert max(runs) <= 200


def test_the_seed_decides_the_order_and_is_kept():
    """The same seed repeats a run's order; measurements tell which it was."""
    fns = dict.fromkeys("abcdefgh", 1e-4)
    one, again, two = (order_of(fns, iters=9, interleave=True, seed=s) for s in (1, 1, 2))

    assert one == again != two
    assert do_bench_many({"a": lambda: 1e-4}, timer=Sim(), interleave=True, seed=5)["a"].seed == 5


def test_a_drifting_clock_makes_no_false_winner():
    """One after the other the second looks slower; interleaved the two are equal."""
    fns = {"a": lambda: 1e-3, "b": lambda: 1e-3}

    apart = do_bench_many(fns, timer=Sim(droop), warmup=0)
    mixed = do_bench_many(fns, timer=Sim(droop), warmup=0, interleave=True)

    assert apart["b"].median / apart["a"].median > 1.03
    assert mixed["b"].median / mixed["a"].median == pytest.approx(1, abs=0.003)


# -- counts and handles


def test_handles_in_flight_are_bounded():
    """A long run never holds more than a thousand or so unread samples."""
    sim = Sim()

    result = do_bench(lambda: 1e-6, timer=sim, iters=20_000)

    assert result.n == 20_000
    assert sim.in_flight == 0
    assert sim.most_in_flight < 1500


def test_a_time_budget_cannot_ask_for_endless_samples(monkeypatch):
    """10 s of a callable of 0.1 us are cut to a bound, with a warning that says so."""
    monkeypatch.setattr(group, "MOST_SAMPLES", 3000)

    with pytest.warns(UserWarning, match="10 s would take 100,000,000 samples; 3,000 are taken"):
        result = do_bench(lambda: 1e-7, timer=Sim(), min_iters_time=10, warmup=0)

    assert result.n == 3000


def test_a_timer_that_says_zero_still_ends():
    """No division by zero, the count falls back to iters, and a warning tells of the zeros."""
    with pytest.warns(UserWarning, match="100 of 100 windows are zero or negative"):
        result = do_bench(lambda: 0.0, timer=Sim(), min_iters_time=1, inner="auto")

    assert (result.n, result.inner, result.tflops) == (100, 1, None)


def test_warm_up_may_be_asked_for_in_seconds():
    """min_warmup_time is turned into calls by the estimate; iters stays a floor."""
    calls = itertools.count()

    do_bench(lambda: next(calls) * 0 + 1e-3, timer=Sim(), warmup=3, min_warmup_time=0.4, iters=0)

    assert next(calls) == pytest.approx(400, abs=10)


def test_nothing_to_do_is_no_error():
    """No callables, or no samples, give an empty result without a warning."""
    assert do_bench_many({}, timer=Sim()) == {}
    empty = do_bench(lambda: 1e-3, timer=Sim(), iters=0, flops=1e9)
    assert empty.n == 0
    assert np.isnan([empty.median, empty.mean, empty.std, empty.min, empty.max]).all()
    assert np.isnan(empty.quantile(0.5))
    assert (empty.tflops, empty.gbps) == (None, None)


def test_a_wrong_inner_is_named():
    """Inner takes a number or "auto"; zero means one, as in usv."""
    assert do_bench(lambda: 1e-3, timer=Sim(), inner=0, iters=2).inner == 1
    with pytest.raises(ValueError, match="inner='many'"):
        do_bench(lambda: 1e-3, timer=Sim(), inner="many")


# -- failures


def failing_at(call, error=None):
    """A callable that raises from that call on."""
    calls = itertools.count(1)

    def fn():
        if next(calls) >= call:
            raise error or RuntimeError("boom")
        return 1e-4

    return fn


@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize("call", [1, 2, 20, 61, 151])
def test_one_failing_callable_costs_only_itself(interleave, call):
    """The others' measurements are complete and come with the error that names the one."""
    fns = {"a": lambda: 1e-4, "bad": failing_at(call), "c": lambda: 2e-4}

    with pytest.raises(BenchmarkFailed) as caught:
        do_bench_many(fns, timer=Sim(), interleave=interleave, inner="auto")

    failed = caught.value
    assert {name: m.n for name, m in failed.results.items()} == {"a": 100, "c": 100}
    assert failed.results["c"].median == pytest.approx(2e-4)
    assert str(failed) == "1 of 3 failed: bad: RuntimeError: boom (the other 2 are in .results)"
    assert failed.__cause__ is failed.errors["bad"]


def test_a_failing_callable_is_not_called_again():
    """After it raised, no further call of it is made."""
    calls = []

    def fn():
        calls.append(1)
        if len(calls) > 80:
            raise ValueError
        return 1e-4

    with pytest.raises(BenchmarkFailed):
        do_bench_many({"a": lambda: 1e-4, "bad": fn}, timer=Sim(), interleave=True)

    assert len(calls) == 81


def test_a_single_callable_raises_its_own_exception():
    """do_bench passes on what the callable raised, so that it can be caught by its class."""
    error = KeyError("k")

    with pytest.raises(KeyError) as caught:
        do_bench(failing_at(70, error), timer="wall")

    assert caught.value is error


@pytest.mark.parametrize("call", [1, 20, 70])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_ends_everything_at_once(call, error):
    """What asks the program to stop is no benchmark's failure."""
    calls = []
    with pytest.raises(error):
        do_bench_many({"a": failing_at(call, error()), "b": lambda: calls.append(1)}, timer="wall")

    assert len(calls) <= 1


def test_a_device_that_is_lost_fails_the_rest():
    """An error that comes up when samples are read leaves no row without a reason."""

    class Lost(Sim):
        def synchronize(self):
            if self.now > 0.02:
                raise RuntimeError("device lost")

    with pytest.raises(BenchmarkFailed) as caught:
        do_bench_many({"a": lambda: 1e-3, "b": lambda: 1e-3}, timer=Lost(), warmup=0)

    assert {name: str(e) for name, e in caught.value.errors.items()} == {
        "a": "device lost",
        "b": "device lost",
    }


def test_a_callable_that_runs_nothing_is_warned_of():
    """A generator's creation is timed as asked, but a warning says that nothing ran."""
    with pytest.warns(UserWarning, match="lazy: fn returned a generator: nothing ran"):
        do_bench(lambda: (i for i in range(3)), timer="wall", name="lazy", iters=2)


# -- caches


@pytest.fixture
def flushes(monkeypatch):
    """Counts flushes instead of evicting a cache."""
    done = []
    monkeypatch.setattr(
        choice, "make_flusher", lambda config, torch: Flusher(lambda: done.append(1))
    )
    return done


def test_every_sample_is_flushed_before(flushes):
    """With cache_flush each sample is cold and the measurement says so."""
    result = do_bench(lambda: 1e-4, timer=Sim(), cache_flush=True, iters=10, warmup=4)

    assert result.cache == "cold"
    assert len(flushes) == 11  # the first call, too


def test_every_inner_call_is_cold(flushes):
    """A window of several calls is flushed before and timed at each of them."""
    calls = []
    do_bench(lambda: calls.append(len(flushes)), timer="wall", cache_flush=True, inner=5, iters=4)

    timed = calls[-20:]
    assert timed == list(range(timed[0], timed[0] + 20))


def test_a_foreign_timer_cannot_keep_several_calls_cold(flushes):
    """What would be cold only once in five is refused, not relabelled."""
    with pytest.raises(UsageError, match="only the first call would be cold"):
        do_bench(lambda: 1e-4, timer=Sim(), cache_flush=True, inner=5)
    assert do_bench(lambda: 1e-4, timer=Sim(), cache_flush=True, inner="auto").inner == 1


def test_a_cpu_is_flushed_for_real():
    """On a CPU a buffer is read and written before every sample, outside the window."""
    result = do_bench(lambda: None, timer="wall", cache_flush=True, flush_mb=4, iters=5, warmup=0)

    assert result.cache == "cold"
    assert result.min < 20e-6


def test_a_flush_that_cannot_be_had_is_told(monkeypatch):
    """A warning with the reason, and the measurement says unavailable."""
    monkeypatch.setattr(
        choice, "make_flusher", lambda config, torch: Flusher(None, reason="no room")
    )

    with pytest.warns(UserWarning, match="caches are not flushed: no room"):
        result = do_bench(lambda: 1e-4, timer=Sim(), cache_flush=True)

    assert result.cache == "unavailable"


# -- timers and clocks


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without a GPU, and a process that has not said so yet."""

    def choose(wanted, emit, clock):
        if wanted == "cuda":
            raise DeviceError("torch sees no GPU", "install one")
        return "cpu", "no GPU", {}, None

    monkeypatch.setattr(choice, "choose_device", choose)
    monkeypatch.setattr(choice, "_said_wall", False)


def test_auto_without_a_gpu_says_once_that_it_is_the_wall_clock(no_gpu):
    """The fallback is announced at the caller's line, once, and named in the result."""
    with pytest.warns(UserWarning, match="timing with the wall clock") as caught:
        first = do_bench(lambda: None, iters=2)

    assert first.timer == "wall"
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(get_timer(), GPUTimer)


def test_asking_for_events_without_a_gpu_is_an_error(no_gpu):
    """The name `torch` never becomes another timer; usv's RuntimeError still catches it."""
    for ask in (lambda: get_timer("torch"), lambda: do_bench(lambda: None, timer="torch")):
        with pytest.raises(TimerError, match="timer='torch': torch sees no GPU") as caught:
            ask()
        assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("ask", [get_timer, lambda name: do_bench(lambda: None, timer=name)])
@pytest.mark.parametrize("name", ["cuda", "", 3])
def test_an_unknown_timer_is_named(ask, name):
    """A name or an object that is no timer is a usage error, and usv's ValueError."""
    with pytest.raises(UsageError, match="no timer") as caught:
        ask(name)
    assert isinstance(caught.value, ValueError)


def test_the_wall_timer_object_speaks_usv_s_protocol():
    """get_timer("wall") opens, synchronises, reads, and takes n samples at once."""
    timer = get_timer("wall")
    before = []

    handle = timer.open(lambda: None, 3, lambda: before.append(1))
    timer.synchronize()

    assert 0 <= timer.value(handle) < 1
    assert before == [1]
    assert timer.record_n(lambda: None, 4, inner=2).shape == (4,)


@pytest.fixture
def fake_cuda(monkeypatch):
    """A torch in whose process a GPU is in use; the list tells what was done."""
    done = []
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        synchronize=lambda: done.append("sync"),
        current_device=lambda: 1,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    return done


def test_the_wall_clock_waits_for_a_gpu_in_use(fake_cuda):
    """With a device in use a window ends when the work has, not when it is launched."""
    timer = get_timer("wall")

    timer.open(lambda: fake_cuda.append("fn"), 2, lambda: fake_cuda.append("before"))

    assert fake_cuda == ["before", "sync", "fn", "fn", "sync"]


def test_do_bench_by_wall_clock_waits_for_a_gpu_in_use(fake_cuda):
    """Every window of do_bench has the device synchronised at both ends."""
    do_bench(lambda: fake_cuda.append("fn"), timer="wall", iters=3, warmup=0)

    assert fake_cuda[-9:] == ["sync", "fn", "sync"] * 3


def test_a_gpu_that_the_first_call_starts_is_waited_for(monkeypatch, fake_cuda):
    """Also when the device came up only in the first call."""
    cuda = sys.modules["torch"].cuda
    cuda.is_initialized = lambda: "fn" in fake_cuda

    do_bench(lambda: fake_cuda.append("fn"), timer="wall", iters=1, warmup=0)

    assert fake_cuda[0] == "fn"
    assert fake_cuda[-3:] == ["sync", "fn", "sync"]


def test_clocks_are_held_while_measuring_and_let_go_in_any_case(monkeypatch, fake_cuda):
    """lock_clocks holds the clocks of the device in use, also when a callable fails."""
    held = []

    @contextmanager
    def locked(*, device=0):
        held.append(("lock", device))
        try:
            yield ClockState(hold=ClockHold.PENDING, locked_mhz=1500)
        finally:
            held.append("unlock")

    clocks = types.ModuleType("usv_tui.library.fixed")
    clocks.clocks_locked_if_possible = locked
    monkeypatch.setitem(sys.modules, "usv_tui.library.fixed", clocks)

    m = do_bench(lambda: held.append("fn"), timer="wall", lock_clocks=True, iters=1, warmup=0)
    with pytest.raises(RuntimeError):
        do_bench(failing_at(1), timer="wall", lock_clocks=True)

    assert held == [("lock", 1), "fn", "fn", "unlock", ("lock", 1), "unlock"]
    assert m.clocks == "locked 1500 MHz"


def test_clocks_that_cannot_be_locked_are_told_and_the_measurement_goes_on():
    """Without a GPU (or the rights) it measures unlocked, warns, and the result is marked."""
    with pytest.warns(UserWarning, match="measuring unlocked"):
        m = do_bench(lambda: None, timer="wall", lock_clocks=True, iters=3)

    assert m.n == 3
    assert m.clocks.startswith("unlocked: ")


# -- one line


def test_a_measurement_is_one_line():
    """Median and spread in a fitting unit, count, calls, timer, and throughput where known."""
    m = Measurement([1e-6, 2e-6, 3e-6], "k", 4, 6e6, 2e3, timer="event", cache="cold")

    assert repr(m) == (
        "k: 2.000 ± 0.816 µs (n=3, inner=4, cache cold, event timer)  3 TFLOP/s  1 GB/s"
    )
    assert repr(Measurement([], "k")) == "k: — ± — µs (n=0)"
    assert repr(Measurement([0.5])) == "500.000 ± 0.000 ms (n=1)"


def test_statistics_are_numpy_s_own():
    """The standard deviation is the population's, as in usv; the median is the middle."""
    values = [1.0, 2.0, 4.0, 8.0]
    m = Measurement(values)

    assert m.std == pytest.approx(statistics.pstdev(values))
    assert m.quantile(0.25) == pytest.approx(np.quantile(values, 0.25))


@pytest.mark.parametrize(
    ("hip", "cuda", "tools", "vendor"),
    [
        ("6.2", None, (), "amd"),
        (None, "12.4", (), "nvidia"),
        (None, None, ("nvidia-smi", "amd-smi"), "nvidia"),
        (None, None, ("rocm-smi",), "amd"),
        (None, None, (), None),
    ],
)
def test_the_vendor_is_torch_s_or_a_tool_s(monkeypatch, hip, cuda, tools, vendor):
    """Torch's build decides, then the tools on the path."""
    monkeypatch.setattr(choice, "_torch_build", lambda: {"hip": hip, "cuda": cuda})
    monkeypatch.setattr(choice.shutil, "which", lambda name: name if name in tools else None)

    assert usv_tui.gpu_vendor() == vendor


def test_torch_s_build_is_read_without_importing_it(monkeypatch):
    """The build is the one that torch itself would tell."""
    torch = pytest.importorskip("torch")

    build = choice._torch_build()

    assert (build["cuda"], build["hip"]) == (torch.version.cuda, torch.version.hip)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    assert choice._torch_build() == {}

"""do_bench by device events, on a device in virtual time, beside usv on the same device."""

import itertools
import sys
import warnings

import pytest
import usv

from tests.fakes.fake_cuda import FakeTorch
from usv_tui import BenchmarkFailed, do_bench, do_bench_many, get_timer
from usv_tui.library import timer_selection as choice
from usv_tui.timers import events, torch_clock
from usv_tui.timers.cache import Flusher
from usv_tui.timers.torch_clock import TorchClock

US = 1_000


@pytest.fixture
def torch(monkeypatch):
    """The device that both libraries find."""
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(
        choice, "choose_device", lambda wanted, emit, clock: ("cuda:0", "", {}, fake)
    )
    for module in (events, torch_clock):
        monkeypatch.setattr(module, "MonotonicTime", lambda: fake.time)
    return fake


@pytest.mark.parametrize("inner", [1, 4])
def test_both_libraries_measure_the_same_on_a_device(torch, inner):
    """Kernels of known length are the same seconds per call in usv and here."""
    fns = {"long": lambda: torch.kernel(900 * US), "short": lambda: torch.kernel(150 * US)}
    options = dict.fromkeys(("timer",), "torch") | {"interleave": True, "inner": inner}

    theirs = usv.do_bench_many(fns, **options)
    ours = do_bench_many(fns, **options)

    for name in fns:
        assert ours[name].n == theirs[name].n == 100
        assert ours[name].median == pytest.approx(theirs[name].median, rel=0.005)
    assert ours["long"].timer == "event"


def test_auto_takes_events_without_a_word(torch):
    """Where there is a device its own events time it, and nothing is to be warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = do_bench(lambda: torch.kernel(300 * US), iters=20)

    assert (result.timer, result.n) == ("event", 20)
    assert isinstance(get_timer(), TorchClock)


@pytest.mark.parametrize("call", [3, 60, 128, 151])
def test_a_failure_between_queued_windows_loses_none_of_the_others(torch, call):
    """What was in flight when one callable raised is read, what was left out is timed."""
    calls = itertools.count(1)

    def bad():
        if next(calls) >= call:
            raise ValueError("no")
        torch.kernel(100 * US)

    fns = {"a": lambda: torch.kernel(100 * US), "bad": bad, "c": lambda: torch.kernel(200 * US)}
    with pytest.raises(BenchmarkFailed) as caught:
        do_bench_many(fns, interleave=True)

    assert {n: m.n for n, m in caught.value.results.items()} == {"a": 100, "c": 100}


def test_a_lost_device_ends_the_run_with_a_reason_for_every_row(torch):
    """After a sticky error nothing is timed for ever, and every row says why."""
    calls = itertools.count(1)

    def illegal():
        if next(calls) == 80:
            torch.lose("CUDA error: an illegal memory access was encountered")
        torch.kernel(100 * US)

    fns = {"a": lambda: torch.kernel(100 * US), "bad": illegal}
    with pytest.raises(BenchmarkFailed) as caught:
        do_bench_many(fns, interleave=True)

    assert caught.value.results == {}
    assert all("illegal memory access" in str(e) for e in caught.value.errors.values())


def test_several_cold_calls_in_a_window_are_timed_one_by_one(torch, monkeypatch):
    """With events, too, each call of a window finds flushed caches."""
    monkeypatch.setattr(
        choice, "make_flusher", lambda config, torch_: Flusher(lambda: torch.kernel(50 * US))
    )

    result = do_bench(lambda: torch.kernel(300 * US), cache_flush=True, inner=5, iters=10)

    assert (result.cache, result.inner) == ("cold", 5)
    assert result.median == pytest.approx(300e-6, rel=0.02)

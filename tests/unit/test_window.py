"""The length of a window: by what gives the narrowest ratio, and the same for a group."""

from random import Random

import pytest

from tests.fakes.loop import MS, Loop
from usv_tui.engine.window import DEFAULT_S, Trial, choose
from usv_tui.records import Calibrated, Noted
from usv_tui.report.wording.notices import sentence

SHORT, USUAL, LONG = 0.25e-3, DEFAULT_S, 4e-3
US = 1_000


def trials(short: float, usual: float, long: float, rounds: int = 60) -> list[Trial]:
    """Spreads of one round at each length; rounds take two windows."""
    return [
        Trial(length, spread, 2 * length, rounds)
        for length, spread in ((SHORT, short), (USUAL, usual), (LONG, long))
    ]


def test_the_narrowest_ratio_for_its_time_decides():
    """Four short windows in the time of one: twice the spread is as good, less is better."""
    assert choose(trials(0.02, 0.04, 0.05)) == SHORT
    assert choose(trials(0.08, 0.04, 0.01)) == LONG


def test_near_ties_leave_the_default():
    """What luck can explain changes nothing."""
    assert choose(trials(0.02, 0.01, 0.005)) == USUAL
    assert choose(trials(0.018, 0.01, 0.0045)) == USUAL


@pytest.mark.parametrize("bad", [trials(0.0, 0.0, 0.0), trials(0.001, 0.1, 0.1, rounds=5), []])
def test_too_little_or_no_spread_leaves_the_default(bad):
    """Few rounds, ratios that never vary, or no trial: a millisecond."""
    assert choose(bad) == USUAL


def busy(seed: int = 1, stall_ns: int = 3 * MS, every_ns: int = 2 * MS) -> Loop:
    """Two rows alike on a host where others take the CPU for a while, now and then."""
    loop = Loop(iters=50, inner=None, warmup_max_s=10.0)
    random = Random(seed)
    next_ns = [loop.time.now_ns()]

    def cost(_call: int) -> int:
        took = 20 * US
        if loop.time.now_ns() >= next_ns[0]:
            took += round(stall_ns * random.random())
            next_ns[0] = loop.time.now_ns() + took + round(random.expovariate(1 / every_ns))
        return took

    loop.add("base", cost, group="g", is_baseline=True)
    loop.add("mine", cost, group="g")
    return loop


def chosen(loop: Loop) -> list:
    """What was said of the length of a window."""
    return [r.notice for r in loop.of(Noted) if r.notice.code == "window chosen"]


def test_on_a_busy_host_windows_are_short():
    """Stalls in most windows of a millisecond make the shorter ones better: said, with why."""
    loop = busy()

    loop.run()

    [notice] = chosen(loop)
    assert notice.evidence["window_s"] == SHORT
    assert "windows of 0.25 ms" in sentence(notice)
    assert {s.inner for s in loop.counted()} == {12}
    assert {r.inner for r in loop.of(Calibrated)[-2:]} == {12}


def test_the_choice_is_the_same_for_the_same_data():
    """Seed and times decide, nothing else."""
    runs = [busy(), busy()]
    for loop in runs:
        loop.run()

    assert chosen(runs[0])[0].evidence == chosen(runs[1])[0].evidence


@pytest.mark.parametrize("config", [{"target_window_s": 1e-3}, {"inner": 50}, {"warmup_max_s": 0}])
def test_what_the_user_set_is_not_chosen_again(config):
    """A length or a number of calls that was asked for stays; without warm-up nothing is tried."""
    loop = busy()
    loop.config = type(loop.config)(
        **{"iters": 50, "inner": None, "warmup_max_s": 10.0, **config},
    )

    loop.run()

    assert chosen(loop) == []


def test_a_run_without_a_comparison_tries_no_lengths():
    """One row has no ratio to be narrow."""
    loop = Loop(iters=20, inner=None, warmup_max_s=10.0)
    loop.add("only", 20 * US)

    loop.run()

    assert chosen(loop) == []
    assert {s.inner for s in loop.counted()} == {50}


def test_a_group_and_its_control_have_the_same_calls_a_window():
    """Estimates that stalls spoiled do not give identical code two different windows."""
    loop = Loop(iters=20, inner=None, control=True)
    calls = [0]

    def slow_at_first(_call: int) -> int:
        calls[0] += 1
        return 700 * US if calls[0] < 8 else 250 * US

    loop.add("base", slow_at_first, group="g", is_baseline=True)
    loop.add("mine", 250 * US, group="g")

    loop.run()

    assert len({s.inner for s in loop.counted()}) == 1


def test_rows_whose_calls_a_window_differ_say_so():
    """A pinned row that its group cannot follow: the other one names both numbers."""
    loop = Loop(iters=5, inner=None)
    loop.add("base", 10 * MS, group="g", is_baseline=True, inner=2)
    loop.add("mine", 10 * MS, group="g", inner=8)

    loop.run()

    [notice] = [r.notice for r in loop.of(Noted) if r.notice.code == "inner differs"]
    assert (notice.bench, notice.evidence["inner"], notice.evidence["base_inner"]) == (1, 8, 2)
    assert "8 call(s) a window, and 2 in those of its baseline base" in sentence(notice)

"""`--until`: runs on the simulated card end when the precision is reached, and say why."""

import threading
from collections import deque
from types import SimpleNamespace

import pytest

from usv_tui.engine.worker import Prepared, work
from usv_tui.errors import UsageError
from usv_tui.gate import Gate
from usv_tui.model import Ratio, RowState, RunConfig, WorkRequest
from usv_tui.records import Command
from usv_tui.session.goal import Goal, target_of
from usv_tui.session.store import Store
from usv_tui.sim import load
from usv_tui.stats.pairs import Interval
from usv_tui.timers.cache import Flusher
from usv_tui.timesource import NS_PER_S, ManualTime


def simulate(scenario, text, seconds, max_time_s=None):
    """Measure a scenario in virtual time; look at the goal once a virtual second."""
    clock = ManualTime(1)
    session = load(scenario, "h100", seed=3, time_source=clock)
    store = Store()
    goal = Goal(target_of(text), max_time_s)
    outcome = None
    commands = deque()
    looked = [clock.now_ns()]
    pending = []

    def emit(record):
        nonlocal outcome
        pending.append(record)
        now_ns = clock.now_ns()
        if now_ns - looked[0] < NS_PER_S:
            return
        looked[0] = now_ns
        store.apply(pending)
        pending.clear()
        if store.course.phase == "measuring" and outcome is None:
            store.verdicts.ask(store, now_ns)
            outcome = goal.look(store, now_ns)
            if outcome is not None:
                commands.append(Command("stop", outcome.reason))

    request = WorkRequest(path="sim", config=RunConfig(max_time_s=seconds, seed=1))
    prepared = Prepared("sim:h100", "", {}, session.suite, session.timer, Flusher(None))
    work(request, emit, commands, threading.Event(), Gate(), clock, prepared)
    store.apply(pending)
    return outcome, goal, store


def test_a_ratio_on_a_quiet_card_is_known_in_seconds():
    """The run stops by itself, with the target and what was reached in the reason."""
    outcome, goal, store = simulate("steady", "ratio±0.5%", 60.0)

    assert outcome is not None
    assert outcome.is_met
    assert "target met" in store.course.stop_reason
    assert "±0.5 %" in goal.progress


def test_a_median_on_a_cold_card_is_not_believed():
    """While the card warms up no median is final: the time runs out instead, with the reason."""
    outcome, _, _ = simulate("cold-ramp", "±0.5%", 60.0, max_time_s=20.0)

    assert outcome is not None
    assert not outcome.is_met
    assert "not settled" in outcome.reason
    assert "not reached after 20 s" in outcome.reason


class Rows:
    """As much of a store as a goal looks at for a target on medians: one row."""

    def __init__(self, n, half_width, *, n_eff=1000.0, is_settled=True, untrusted=()):
        info = SimpleNamespace(name="softmax", parent=None, control_of=None)
        self.rows = {0: SimpleNamespace(info=info, state=RowState.RUNNING)}
        found = SimpleNamespace(window=SimpleNamespace(n=n), is_settled=is_settled, modes=None)
        self.verdicts = self
        self.analysis = SimpleNamespace(rows={0: found}, untrusted=untrusted)
        self._interval = None
        if half_width is not None:
            self._interval = Interval(0.0, -half_width, half_width, n, n_eff)

    def settled_interval(self, _row, _now_ns):
        """The interval that was given."""
        return self._interval


def test_a_target_that_is_met_when_the_time_runs_out_is_met():
    """Between two checks the time may run out: a reached width is never called not reached."""
    goal = Goal(target_of("±0.1%"), 20.0)

    first = goal.look(Rows(300, 0.00012), 0)
    progress = goal.progress
    last = goal.look(Rows(310, 0.00012), 20 * NS_PER_S)

    assert first is None
    assert "to be met at the next check too" in progress
    assert last.is_met
    assert last.reason == "target met: median ±0.1 %: now ±0.012 % (softmax)"


def test_a_target_is_not_met_while_the_control_differs():
    """However narrow the intervals are: the run goes on, and its end names the control."""
    goal = Goal(target_of("±0.1%"), 20.0)
    rows = [Rows(n, 0.00012, untrusted=(1,)) for n in (300, 400, 500, 600)]

    assert [goal.look(row, k * NS_PER_S) for k, row in enumerate(rows)] == [None] * 4
    last = goal.look(rows[-1], 20 * NS_PER_S)
    assert not last.is_met
    assert "the control differs from its baseline" in last.reason
    assert "target met" not in last.reason


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (Rows(300, 0.00012, n_eff=10.0), "now ±0.012 % (softmax), samples too correlated"),
        (Rows(100, 0.00012), "now ±0.012 % (softmax), too few samples"),
        (Rows(300, 0.00012, is_settled=False), "now ±0.012 % (softmax), not settled"),
        (Rows(300, None), "no interval yet (softmax), too few samples"),
        (Rows(300, 0.002), "now ±0.2 % (softmax)"),
        (Rows(300, 0.0010004), "now ±0.10004 % (softmax)"),
    ],
)
def test_what_is_missing_is_named(rows, says):
    """A target that is not met says by how much, or what else it lacks."""
    outcome = Goal(target_of("±0.1%"), 0.0).look(rows, 0)

    assert not outcome.is_met
    assert outcome.reason == f"median ±0.1 %: {says}, not reached after 0 s"


@pytest.mark.parametrize("text", ["", "fast", "±0%", "±-1%", "ratio", "±nan%", "±70%"])
def test_what_is_no_target_is_refused(text):
    """One line that says what can be written."""
    with pytest.raises(UsageError, match="--until"):
        target_of(text)


def test_a_target_waits_until_the_control_may_be_judged():
    """A row far from its baseline is known at once; the control beside it only after seconds."""
    rows = {b: SimpleNamespace(info=SimpleNamespace(name=str(b), control_of=None)) for b in (1, 2)}
    rows[2].info.control_of = 0
    found = {b: SimpleNamespace(ratio=ratio(b)) for b in rows}
    for row in rows.values():
        row.state = RowState.RUNNING
    verdicts = SimpleNamespace(analysis=SimpleNamespace(rows=found, untrusted=()))
    store = SimpleNamespace(rows=rows, verdicts=verdicts)

    outcome = Goal(target_of("ratio±0.1%"), 0.0).look(store, 0)

    assert not outcome.is_met
    assert "watched for too short a time" in outcome.reason


def ratio(bench):
    """A known ratio: of a row twice as slow, or of a control that is watched since a moment."""
    is_control = bench == 2
    factor = 1.0 if is_control else 2.0
    low, high = factor * 0.9999, factor * 1.0001
    return Ratio(ratio=factor, low=low, high=high, n=300, n_eff=300.0, is_short=is_control)

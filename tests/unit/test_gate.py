import threading
import time

import pytest

from usv_tui.gate import Gate
from usv_tui.timesource import NS_PER_S, ManualTime

LONG_NS = 20 * NS_PER_S
"""Longer than any of these tests takes: a wait that is meant to end by itself."""
SHORT_NS = NS_PER_S
"""A bound that is meant to pass; a thread on a busy machine wakes up within it."""


def until(condition):
    """Wait for what another thread is about to do."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


class Client:
    """A thread that holds the gate until it is let go."""

    def __init__(self, gate, timeout_ns=LONG_NS):
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.held = None
        self._thread = threading.Thread(target=self._run, args=(gate, timeout_ns), daemon=True)
        self._thread.start()

    def _run(self, gate, timeout_ns):
        with gate.hold(timeout_ns) as held:
            self.held = held
            self.entered.set()
            self.let_go.wait(20)

    def enter(self):
        """Wait until it is in."""
        assert self.entered.wait(20)

    def leave(self):
        """Let it go and wait until it is out."""
        self.let_go.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def gate():
    """A gate whose worker measures, on a clock that stands still."""
    gate = Gate(ManualTime(100))
    gate.man()
    return gate


def serving(gate, bound_ns=LONG_NS):
    """The worker serves in a thread of its own; the thread and its answer."""
    answer = []
    thread = threading.Thread(target=lambda: answer.append(gate.serve(bound_ns)), daemon=True)
    thread.start()
    return thread, answer


def test_without_a_worker_everybody_passes_at_once():
    """Before measuring begins nobody waits, and nothing is flagged."""
    gate = Gate()

    with gate.hold(0) as held:
        assert held

    assert not gate.is_manned
    assert gate.forced == []


def test_a_gate_that_nobody_opens_is_passed_by_force_and_noted():
    """When the worker does not open in time the body runs all the same; its interval is kept."""
    clock = ManualTime(100)
    gate = Gate(clock)
    gate.man()

    with gate.hold(1_000) as held:
        assert not held
        assert list(gate.intruders.values()) == [100]
        clock.advance(40)

    assert gate.forced == [(100, 140)]
    assert gate.intruders == {}
    assert gate.wanted == 0


def test_serving_nobody_costs_nothing(gate):
    """A worker that is not asked does not open."""
    assert gate.serve(LONG_NS) is False


def test_who_asked_passes_when_the_worker_serves_and_the_worker_waits_for_it(gate):
    """The screen waits for the gate, the worker for the screen; nothing is forced."""
    client = Client(gate)
    until(lambda: gate.wanted == 1)
    assert not client.entered.is_set()

    worker, answer = serving(gate)
    client.enter()
    assert worker.is_alive()
    client.leave()
    worker.join(20)

    assert answer == [True]
    assert client.held is True
    assert gate.forced == []


def test_after_serving_the_gate_is_shut_again(gate):
    """Who comes late waits for the next opening."""
    first = Client(gate)
    until(lambda: gate.wanted == 1)
    worker, _ = serving(gate)
    first.enter()
    first.leave()
    worker.join(20)

    with gate.hold(1_000) as held:
        assert not held


def test_two_clients_pass_in_one_opening(gate):
    """Screen and sensors use the same pause of the worker."""
    one, two = Client(gate), Client(gate)
    until(lambda: gate.wanted == 2)

    worker, answer = serving(gate)
    one.enter()
    two.enter()
    one.leave()
    assert worker.is_alive()
    two.leave()
    worker.join(20)

    assert answer == [True]
    assert (one.held, two.held) == (True, True)


def test_a_slow_holder_does_not_hold_up_the_worker(gate):
    """After the bound the worker goes on, and what the slow one still does is noted."""
    client = Client(gate)
    until(lambda: gate.wanted == 1)

    worker, answer = serving(gate, bound_ns=SHORT_NS)
    client.enter()
    worker.join(20)

    assert answer == [True]
    [(start, end)] = gate.forced
    assert start == 100
    assert end > start
    client.leave()


def test_who_hangs_is_not_waited_for_again(gate):
    """A holder that never returns (a driver call) delays one opening, not each of them."""
    hanging = Client(gate)
    until(lambda: gate.wanted == 1)
    worker, _ = serving(gate, bound_ns=SHORT_NS)
    hanging.enter()
    worker.join(20)

    other = Client(gate)
    until(lambda: gate.wanted == 1)
    worker, answer = serving(gate)
    other.enter()
    other.leave()
    worker.join(20)

    assert answer == [True]
    assert not worker.is_alive()
    hanging.leave()


def test_a_worker_that_ends_lets_everybody_through(gate):
    """Unmanned, those who wait pass at once."""
    client = Client(gate)
    until(lambda: gate.wanted == 1)

    gate.unman()
    client.enter()
    client.leave()

    assert client.held is True


def test_an_exception_inside_gives_the_gate_back(gate):
    """A frame that fails leaves no holder and no request behind."""
    gate.unman()

    with pytest.raises(ValueError, match="frame"), gate.hold(LONG_NS):
        raise ValueError("frame")

    gate.man()
    assert gate.serve(LONG_NS) is False


def test_no_body_runs_inside_a_window():
    """Two clients pass fifty times between a worker's windows: neither ever sees one open."""
    gate = Gate()
    gate.man()
    in_window = False
    seen = []
    stop = threading.Event()

    def client():
        while not stop.is_set():
            with gate.hold(LONG_NS) as held:
                seen.append((held, in_window))

    threads = [threading.Thread(target=client, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while len(seen) < 50 and time.monotonic() < deadline:
        in_window = True
        sum(range(2_000))
        in_window = False
        if gate.wanted:
            gate.serve(LONG_NS)
    stop.set()
    gate.unman()
    for thread in threads:
        thread.join(20)

    assert len(seen) >= 50
    assert set(seen) == {(True, False)}

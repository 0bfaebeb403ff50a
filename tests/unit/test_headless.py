import io
import os
import signal
import threading

import pytest

from tests.fakes import session as fake
from tests.fakes.live import open_session
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.cli import headless, voice
from usv_tui.errors import ExitCode
from usv_tui.model import RowState
from usv_tui.records import BenchError, Fault, Output, Progress, Skip, State
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S


class Told:
    """A narration and what it has said."""

    def __init__(self):
        self.out = io.StringIO()
        self.store = Store()
        self.narration = headless.Narration(self.out)

    def at(self, seconds, *records):
        """Fold records in and narrate; the new lines."""
        before = len(self.out.getvalue())
        self.store.apply(records)
        self.narration.tell(self.store.snapshot(BEGIN_NS + round(seconds * NS_PER_S)))
        return self.out.getvalue()[before:].splitlines()


# -- narration


def test_events_are_told_once_and_at_once():
    """Each event is one line with its time; user output is told apart by its mark."""
    told = Told()

    first = told.at(0.1, fake.start(), Skip(BEGIN_NS, "c", "no GPU"), Output(BEGIN_NS, "hello"))
    assert first == ["[00:00] * skipped c: no GPU", "[00:00] | hello"]
    assert told.at(0.2) == []
    later = told.at(65, Output(BEGIN_NS + 61 * NS_PER_S, "later"))

    assert later == ["[01:01] | later"]


def test_progress_is_told_each_second_and_later_every_five():
    """Phase, rounds, rate and the current medians, ever less often."""
    told = Told()
    told.at(0.0, *fake.two_rows(10))

    spoke = [t / 5 for t in range(1, 200) if told.at(t / 5)]

    assert spoke[:3] == pytest.approx([1.0, 2.0, 3.0])
    assert spoke[-1] - spoke[-2] == pytest.approx(5.0)
    assert len(spoke) < 18


def test_a_progress_line_has_the_medians_in_one_unit():
    """The rows' times share a unit, as in the table."""
    told = Told()
    told.at(0.0, *fake.two_rows(10)[:-1])

    [line] = told.at(1.0, *fake.two_rows(10)[-1:])

    assert line.startswith("[00:01] measuring  round 10  ")
    assert "a 1.000 ms  b 2.000 ms" in line


def test_a_progress_line_tells_failures_and_what_is_not_measured_yet():
    """A failed row says so on every line; a row without a sample shows its state."""
    told = Told()
    told.at(0.0, *fake.two_rows(10), fake.row(2, "c"))
    told.at(0.5, BenchError(BEGIN_NS, 1, "ValueError", "no"))

    [line] = told.at(1.5, State(BEGIN_NS, 2, RowState.PREPARING))

    assert "b FAILED" in line
    assert "c preparing" in line


def test_a_progress_line_stays_short():
    """With many rows the first six are named and the others counted; phases are not."""
    rows = [fake.row(i, f"row{i}") for i in range(10)]
    told = Told()
    told.at(0.0, fake.start(), *rows, fake.row(10_000, "part", parent=0), fake.phase("measuring"))

    [line] = told.at(2.0, fake.series(0, [MS] * 5)[0])

    assert "row5" in line
    assert "row6" not in line
    assert "part" not in line
    assert "and 4 more" in line


def test_a_progress_line_has_the_sensors_that_there_are():
    """Clock, temperature and power where they are reported; nothing stands for what is not."""
    told = Told()
    told.at(0.0, *fake.two_rows(10))

    [line] = told.at(1.0, fake.reading(BEGIN_NS, sm_mhz=1410.0, power_mw=70_000))

    assert line.endswith("1410 MHz 70 W")


def test_a_flood_of_events_is_not_told_twice():
    """When more happened than the log keeps, what it kept is told, and nothing again."""
    told = Told()
    told.at(0.0, fake.start())

    lines = told.at(0.1, *[Output(BEGIN_NS, f"line {i}") for i in range(3000)])

    assert len(lines) == 2000
    assert lines[-1] == "[00:00] | line 2999"
    assert told.at(0.2) == []


def test_a_reader_that_is_gone_does_not_end_the_run():
    """Stderr closed by its reader: measuring goes on."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    narration = headless.Narration(Gone())
    store = Store()
    store.apply(fake.two_rows(5))

    narration.tell(store.snapshot(BEGIN_NS + NS_PER_S))
    voice.say("text", Gone())


def test_what_came_late_is_told_at_the_end():
    """The last events, and output after the last tick, are not swallowed."""
    session, source, _ = open_session()
    out = io.StringIO()
    narration = headless.Narration(out)
    source.queue += [*fake.two_rows(5)[1:], Progress(BEGIN_NS, "ended", "quit")]
    session.close("")

    narration.tell_rest(session, ["the last print"])

    assert out.getvalue().splitlines()[-2:] == ["[00:00] * ended quit", "[00:00] | the last print"]


# -- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_kept_and_ends_the_wait(number):
    """The handler keeps the number and wakes the loop; afterwards the old one is back."""
    before = signal.getsignal(number)
    signals = headless.Signals()

    with signals.watch():
        os.kill(os.getpid(), number)
        assert signals.event.wait(10)

    assert signals.number == number
    assert signal.getsignal(number) is before


def test_the_first_signal_counts():
    """Ctrl-C and then an impatient TERM: the exit code is that of the first."""
    signals = headless.Signals()

    with signals.watch():
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.event.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)

    assert signals.number == signal.SIGINT


# -- the loop


class Ticks:
    """A clock whose waits are counted and can do something."""

    def __init__(self, clock, actions):
        self.clock = clock
        self.actions = dict(actions)
        self.n = 0

    def now_ns(self):
        return self.clock.now_ns()

    def wait(self, event, timeout_ns):
        self.n += 1
        self.actions.get(self.n, lambda: None)()
        return self.clock.wait(event, timeout_ns)


def test_the_loop_pumps_until_the_worker_has_ended():
    """Five times a second everything new is folded and told, and the end ends it."""
    session, source, clock = open_session()
    ticks = Ticks(
        clock,
        {
            2: lambda: source.queue.extend(fake.two_rows(10)[1:]),
            30: lambda: source.queue.append(Progress(clock.now_ns(), "ended", "max time 6 s")),
        },
    )
    out = io.StringIO()

    headless.run(session, headless.Narration(out), headless.Signals(), ticks)

    assert ticks.n == 30
    assert session.store.rows[1].t_ns.n == 10
    assert out.getvalue().splitlines()[-1] == "[00:05] * ended max time 6 s"


def test_the_loop_ends_at_a_signal():
    """A signal between two ticks ends the loop at the next, without a word from the worker."""
    session, _, clock = open_session()
    signals = headless.Signals()
    ticks = Ticks(clock, {3: signals.event.set})

    headless.run(session, headless.Narration(io.StringIO()), signals, ticks)

    assert ticks.n == 3
    assert not session.has_ended


def test_the_loop_holds_the_gate_while_it_folds():
    """No Python of ours runs while a window is open: folding and telling are inside the gate."""
    session, source, clock = open_session()
    inside = []
    drain = source.drain
    session.gate.man()

    def watched():
        inside.append((session.gate.wanted, len(session.gate._holders)))
        return drain()

    source.drain = watched
    stop = threading.Event()
    served = []

    def worker():
        while not stop.is_set():
            if session.gate.serve(20 * NS_PER_S):
                served.append(1)

    thread = threading.Thread(target=worker, daemon=True)
    thread.start()
    source.queue.append(Progress(BEGIN_NS, "ended", "quit"))
    headless.run(session, headless.Narration(io.StringIO()), headless.Signals(), clock)
    stop.set()
    thread.join(20)

    assert set(inside) == {(0, 1)}
    assert served
    assert session.gate.forced == []


# -- the exit code


@pytest.mark.parametrize(
    ("records", "number", "code"),
    [
        ([], 0, 0),
        ([], signal.SIGTERM, 143),
        ([], signal.SIGHUP, 129),
        ([], signal.SIGINT, 130),
        ([BenchError(BEGIN_NS, 0, "ValueError", "no")], 0, 1),
        ([BenchError(BEGIN_NS, 0, "ValueError", "no")], signal.SIGTERM, 143),
        ([Fault(BEGIN_NS, int(ExitCode.WORKER_LOST), "died")], signal.SIGTERM, 4),
    ],
)
def test_a_signal_is_told_in_the_exit_code(records, number, code):
    """128+n, unless something worse happened before."""
    session, source, _ = open_session()
    source.queue += [*fake.two_rows(5)[1:], *records]
    session.close("")

    assert headless.exit_code(session, number) == code

from collections import deque

import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.model import RowState, RunConfig, WorkRequest
from usv_tui.records import Bench, BenchError, Command, Fault, Gap, Noted, Progress, Samples, State
from usv_tui.session.live import Loss
from usv_tui.session.relay import MOST_WORKERS, Relay
from usv_tui.timesource import NS_PER_S, ManualTime


class FakeCarrier:
    """A worker that says what the test lets it say."""

    def __init__(self, request):
        self.request = request
        self.queue = deque()
        self.commands = []
        self.loss = None
        self.is_closed = False

    def start(self):
        pass

    def drain(self):
        found = list(self.queue)
        self.queue.clear()
        return found

    def command(self, command):
        self.commands.append(command)

    def current(self):
        return ()

    def tell_stack(self):
        pass

    def give_up(self, loss):
        self.loss = loss

    def close(self, timeout_s):
        self.is_closed = True
        return True


@pytest.fixture
def open_relay():
    """A relay, its clock and the workers that it has had."""

    def open_relay(**config):
        workers = []
        clock = ManualTime(BEGIN_NS)

        def make(request):
            workers.append(FakeCarrier(request))
            return workers[-1]

        request = WorkRequest(path="file.py", config=RunConfig(**config))
        return Relay(make, request, is_process=True, time_source=clock), clock, workers

    return open_relay


def rows(*names):
    """What a worker says of itself and its rows before it measures."""
    head = [fake.timing(), *(fake.row(i, name) for i, name in enumerate(names))]
    return [*head, fake.phase("measuring")]


def of(records, kind):
    """The records of one kind."""
    return [record for record in records if type(record) is kind]


SEGV = Loss("SIGSEGV", "signal SIGSEGV", 1)


def test_a_row_that_kills_its_worker_is_retired_and_the_others_go_on(open_relay):
    """The row and the signal are told; the next worker knows what must not be touched."""
    relay, clock, workers = open_relay(max_time_s=10.0, iters=100)
    workers[0].queue += [*rows("a", "b", "c"), fake.block([(0, MS), (1, MS), (2, MS)], round_=7)]
    relay.drain()
    clock.advance(4 * NS_PER_S)
    workers[0].loss = SEGV
    told = relay.drain()
    again = relay.drain()

    [error] = of(told, BenchError)
    assert (error.bench, error.kind, error.fatal) == (1, "SIGSEGV", False)
    assert error.message.startswith("signal SIGSEGV: the measuring process was lost")
    assert of(told, State)[-1].state is RowState.FAILED
    assert [n.notice.code for n in of(told, Noted)] == ["fresh worker"]
    assert again == []
    assert workers[0].is_closed
    request = workers[1].request
    assert (request.retired, request.done, request.first_round) == ([1], {0: 1, 1: 1, 2: 1}, 9)
    assert request.config.max_time_s == 6.0


def test_a_later_worker_adds_to_what_there_is(open_relay):
    """Its rows are the known ones, its phases too under whatever number, and the gap is marked."""
    relay, clock, workers = open_relay()
    phases = [fake.row(100, "load", parent=1), fake.row(101, "load", parent=2)]
    workers[0].queue += [*rows("a", "b", "c"), *phases]
    relay.drain()
    workers[0].loss = SEGV
    relay.drain()
    clock.advance(NS_PER_S)

    head = rows("a", "b", "c")
    head[-1] = fake.phase("measuring", clock.now_ns())
    workers[1].queue += [*head, fake.row(100, "load", parent=2), fake.row(101, "new", parent=2)]
    workers[1].queue += [fake.block([(0, MS), (100, MS), (101, MS)])]
    told = relay.drain()

    assert of(told, Gap)[0].to_ns - of(told, Gap)[0].from_ns == NS_PER_S
    assert [b.info.name for b in of(told, Bench)] == ["new"]
    new = of(told, Bench)[0].info.bench
    assert of(told, Samples)[0].bench == [0, 101, new]
    assert new not in (100, 101)


def test_a_lost_device_is_a_matter_of_one_row_in_a_process_of_its_own(open_relay):
    """A sticky error retires its row; the fresh process has a fresh context."""
    relay, _, workers = open_relay()
    lost = BenchError(BEGIN_NS, 0, "RuntimeError", "an illegal memory access", "", fatal=True)
    workers[0].queue += [*rows("a", "b"), lost, fake.phase("ended", detail="context lost")]

    told = relay.drain()

    assert [error.fatal for error in of(told, BenchError)] == [False]
    assert "ended" not in [p.phase for p in of(told, Progress)]
    assert workers[1].request.retired == [0]


def test_a_control_row_goes_with_its_double(open_relay):
    """The same callable would kill the next worker as well."""
    relay, _, workers = open_relay()
    workers[0].queue += [*rows("a", "b"), fake.row(2, "b (control)", control_of=1)]
    relay.drain()
    workers[0].loss = SEGV

    assert [error.bench for error in of(relay.drain(), BenchError)] == [1, 2]
    assert workers[1].request.retired == [1, 2]


@pytest.mark.parametrize("is_known", [True, False])
def test_without_a_row_to_blame_the_run_ends_with_a_fault(open_relay, is_known):
    """A process that dies at import, or between rows, would die again: one line, exit code 4."""
    relay, _, workers = open_relay()
    if is_known:
        workers[0].queue += rows("a")
    workers[0].loss = Loss("exit", "exit code 3")

    told = relay.drain()

    [fault] = of(told, Fault)
    assert (fault.exit_code, fault.message) == (4, "the measuring process died: exit code 3")
    assert told[-1].phase == "ended"
    assert len(workers) == 1


def test_the_number_of_workers_is_bounded(open_relay):
    """A file whose every row kills its worker does not go on for ever."""
    relay, _, workers = open_relay()
    names = [f"row {i}" for i in range(3 * MOST_WORKERS)]
    for i in range(2 * MOST_WORKERS):
        workers[-1].queue += rows(*names)
        relay.drain()
        workers[-1].loss = SEGV._replace(bench=i)
        relay.drain()

    assert len(workers) == MOST_WORKERS


def test_when_no_row_is_left_the_run_ends(open_relay):
    """The last row that could be measured is gone."""
    relay, _, workers = open_relay()
    workers[0].queue += rows("a", "b")
    workers[0].queue += [BenchError(BEGIN_NS, 0, "ValueError", "no")]
    workers[0].loss = SEGV
    relay.drain()

    assert relay.drain()[-1:] == []
    assert len(workers) == 1


def test_a_stop_is_the_last_word(open_relay):
    """A worker that dies after it was told to stop is not followed by another one."""
    relay, _, workers = open_relay()
    workers[0].queue += rows("a", "b")
    relay.drain()
    relay.command(Command("stop", "quit"))
    workers[0].loss = SEGV

    assert relay.drain()[-1].phase == "ended"
    assert len(workers) == 1


def test_what_was_asked_for_stays_asked_for(open_relay):
    """A pause, rows put off, the pace: the next worker hears of them before anything else."""
    relay, _, workers = open_relay()
    workers[0].queue += rows("a", "b", "c")
    asked = [Command("pace", "cool:60"), Command("off", "", 2), Command("pause"), Command("mark")]
    for command in asked:
        relay.command(command)
    relay.command(Command("resume"))
    relay.drain()
    workers[0].loss = SEGV
    relay.drain()

    assert [c.verb for c in workers[1].commands] == ["pace", "off", "resume"]


def test_on_request_lost_rows_are_tried_again(open_relay):
    """Those that took their worker with them and no others, in a worker after a gap."""
    relay, clock, workers = open_relay(max_time_s=60.0)
    relay.command(Command("pace", "steady"))
    workers[0].queue += [*rows("a", "b", "c"), BenchError(BEGIN_NS, 2, "ValueError", "no")]
    relay.drain()
    workers[0].loss = SEGV
    relay.drain()
    workers[1].queue += [*rows("a", "b", "c"), fake.block([(0, MS)]), fake.phase("ended")]
    clock.advance(NS_PER_S)

    assert relay.why_not_renew() == ""
    assert relay.renew() == ""

    told = relay.drain()
    assert workers[1].is_closed
    assert workers[2].request.retired == [2]
    assert [c.verb for c in workers[2].commands] == ["pace"]
    assert len(of(told, Samples)) == 1
    assert "ended" not in [p.phase for p in of(told, Progress)]
    notes = [(n.notice.code, n.notice.bench) for n in of(told, Noted)]
    assert notes == [("fresh worker", None), ("tried again", 1)]
    assert [(s.bench, s.state) for s in of(told, State)] == [(1, RowState.WAITING)]
    workers[2].queue += [fake.phase("measuring", clock.now_ns())]
    assert [gap.reason for gap in of(relay.drain(), Gap)] == ["a fresh worker on request"]
    assert relay.renew() == "no row was lost"


def test_a_run_that_was_given_up_goes_on_on_request(open_relay):
    """A file whose import killed the process is imported again, and what it says is heard."""
    relay, _, workers = open_relay()
    workers[0].loss = Loss("exit", "exit code 3")
    assert of(relay.drain(), Fault)

    assert relay.renew() == ""

    workers[1].queue += rows("a")
    assert len(of(told := relay.drain(), Bench)) == 1
    assert told[1] == fake.timing()


def test_a_request_gives_as_many_workers_as_a_run(open_relay):
    """Rows that die again are bounded anew, and the bound ends the run again."""
    relay, _, workers = open_relay()
    names = [f"row {i}" for i in range(5 * MOST_WORKERS)]

    def die_often():
        for i in range(2 * MOST_WORKERS):
            workers[-1].queue += rows(*names)
            relay.drain()
            workers[-1].loss = SEGV._replace(bench=i)
            relay.drain()

    die_often()
    assert relay.renew() == ""
    die_often()

    assert len(workers) == 2 * MOST_WORKERS


@pytest.mark.parametrize(
    ("config", "before", "why"),
    [
        ({}, None, "no row was lost"),
        ({}, Command("stop", "quit"), "the run has been ended"),
        ({"max_time_s": 0.5}, None, "the time of the run is over"),
    ],
)
def test_a_fresh_worker_is_refused_with_the_reason(open_relay, config, before, why):
    """Nothing lost, ended by the user, no time left: nothing is started."""
    relay, clock, workers = open_relay(**config)
    workers[0].queue += rows("a", "b")
    relay.drain()
    if config:
        workers[0].loss = SEGV
        relay.drain()
        clock.advance(NS_PER_S)
    if before is not None:
        relay.command(before)

    known = len(workers)
    assert relay.renew() == why
    assert len(workers) == known


def test_a_thread_cannot_be_replaced_on_request():
    """Without --isolate there is no fresh process to be had."""
    relay = Relay(FakeCarrier, WorkRequest(path="file.py", config=RunConfig()))

    assert relay.renew() == "only under --isolate can lost rows be tried again"


@pytest.mark.parametrize("is_process", [True, False])
def test_a_row_that_was_given_up_in_the_thread_still_runs(is_process):
    """Its thread cannot be ended: the row says so, and what would end it."""
    workers = []

    def make(request):
        workers.append(FakeCarrier(request))
        return workers[-1]

    request = WorkRequest(path="file.py", config=RunConfig())
    relay = Relay(make, request, is_process=is_process, time_source=ManualTime(BEGIN_NS))
    workers[0].queue += rows("a", "b")
    relay.drain()
    relay.give_up(Loss("hang", "one of its calls did not end within 5 s", 1))

    [error] = of(relay.drain(), BenchError)
    assert ("still runs" in error.message) is not is_process
    assert ("--isolate" in error.message) is not is_process

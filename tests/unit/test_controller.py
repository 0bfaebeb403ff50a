import threading
from itertools import pairwise

import pytest

from tests.fakes import session as fake
from tests.fakes.live import FakeWatcher, open_session
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.errors import ExitCode
from usv_tui.model import RowState, RunConfig
from usv_tui.records import (
    BenchError,
    Chosen,
    Command,
    End,
    Fault,
    Gap,
    Mark,
    Noted,
    Progress,
    Start,
    State,
    Watching,
)
from usv_tui.session import journal as journal_module
from usv_tui.session.capture import OutputCapture
from usv_tui.session.goal import Outcome
from usv_tui.session.journal import Journal, read
from usv_tui.session.store import Store
from usv_tui.session.views import where_it_stands
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.timesource import NS_PER_S

ENDED = Progress(BEGIN_NS, "ended", "20 samples a row")


@pytest.fixture
def journal(tmp_path):
    """A session file."""
    return Journal(tmp_path / "run.usv")


def measuring(source):
    """The worker has begun: two rows, ten rounds, still measuring."""
    source.queue += fake.two_rows(10)[1:]


def log(session, kind=None):
    """The texts of the event log."""
    lines = session.store.snapshot(0).log
    return [line.text for line in lines if kind in (None, line.kind)]


# -- the fold


def test_what_the_worker_says_is_folded_and_saved(journal):
    """Every record goes to the store and to the journal, the head first."""
    session, source, _ = open_session(journal=journal)
    measuring(source)

    assert session.pump()
    assert not session.pump()
    session.close("quit")

    assert session.store.rows[0].t_ns.n == 10
    saved = list(read(journal.path))
    assert isinstance(saved[0], Start)
    assert saved[1 : len(fake.two_rows(10))] == fake.two_rows(10)[1:]
    assert isinstance(saved[-1], End)


def test_the_journal_is_flushed_twice_a_second(journal):
    """Killed at any time, the file holds all but the last half second."""
    session, source, clock = open_session(journal=journal)
    clock.advance(NS_PER_S)
    measuring(source)
    session.pump()
    size = journal.path.stat().st_size

    source.queue += fake.two_rows(10)[-1:]
    clock.advance(NS_PER_S // 10)
    session.pump()
    assert journal.path.stat().st_size == size
    clock.advance(NS_PER_S // 2)
    session.pump()

    assert journal.path.stat().st_size > size
    assert len(list(read(journal.path))) == len(fake.two_rows(10)) + 1
    session.close("quit")


def test_the_journal_has_a_clock_of_its_own(journal):
    """However long the front end is busy, what the worker said is in the file in time, in order."""
    session, source, clock = open_session(journal=journal)
    measuring(source)
    session.pump()
    stop = threading.Event()
    sizes = []
    drain = source.drain

    def watched():
        sizes.append((clock.now_ns(), journal.path.stat().st_size))
        if len(sizes) == 4:
            stop.set()
        source.queue += fake.two_rows(10)[-1:]
        return drain()

    source.drain = watched
    session.keep_saving(stop)
    source.drain = drain
    session.mark("after")
    session.pump()

    moments, lengths = zip(*sizes, strict=True)
    assert all(0 < later - before <= 0.6 * NS_PER_S for before, later in pairwise(moments))
    assert list(lengths) == sorted(set(lengths))
    session.close("quit")
    again = Store()
    again.apply(read(journal.path))
    again.reopen_epoch()
    [epochs, replayed] = [s.snapshot(clock.now_ns()).epochs for s in (session.store, again)]
    assert epochs == replayed


def test_a_full_disk_is_said_once_and_the_run_goes_on(journal, monkeypatch):
    """The session drops its file with one line, measures on, and the exit code tells a script."""
    session, source, clock = open_session(journal=journal)
    clock.advance(NS_PER_S)

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module.os, "write", full)
    for _ in range(3):
        measuring(source)
        clock.advance(NS_PER_S)
        session.pump()
    source.last_words = [ENDED]
    session.close("")

    said = [text for text in log(session, "error") if "no longer saved" in text]
    assert said == [f"the session is no longer saved to {journal.path}: the disk is full"]
    assert session.journal_failure == said[0]
    assert session.store.rows[0].t_ns.n > 0
    assert session.exit_code() is ExitCode.USAGE


def test_user_output_becomes_lines_of_the_log(tmp_path):
    """What user code wrote stands in the log; a flood is cut and says where all of it is."""
    capture = OutputCapture(tmp_path / "run.log")
    session, _, _ = open_session(capture=capture)
    capture.start()
    try:
        print("hello")
        session.pump()
        for i in range(500):
            print(f"line {i}")
        session.pump()
    finally:
        capture.stop()

    out = log(session, "out")
    assert out[0] == "hello"
    assert len(out) == 1 + 200 + 1
    assert out[-1] == f"… 300 lines more in {capture.path}"


# -- telemetry


def test_watching_begins_when_the_device_is_known():
    """The watcher is made for the device that the worker chose, once."""
    made = []
    watcher = FakeWatcher()

    def make(chosen, emit, gate):
        made.append((chosen.device, emit, gate))
        return watcher

    session, source, _ = open_session(make_watcher=make)
    session.pump()
    assert made == []

    source.queue += [Chosen(BEGIN_NS, "cuda:1", "asked for", {"uuid": "GPU-1"})]
    session.pump()
    source.queue += [Chosen(BEGIN_NS, "cuda:1", "again", {})]
    session.pump()

    [(device, emit, gate)] = made
    assert (device, gate) == ("cuda:1", session.gate)
    assert watcher.calls == ["start"]
    emit(fake.reading(BEGIN_NS, temp_c=61.0, sm_mhz=1200.0))
    session.pump()
    assert session.store.snapshot(0).reading.temp_c == 61.0
    assert Command("temp", "61") in source.commands
    session.close("quit")
    assert watcher.calls[-1] == "stop"


def test_the_loop_hears_of_a_temperature_only_when_it_changes():
    """Ten readings of one temperature are one command."""
    session, source, _ = open_session()
    source.queue += [fake.reading(BEGIN_NS + i, temp_c=60.0) for i in range(10)]
    source.queue += [fake.reading(BEGIN_NS + 11), fake.reading(BEGIN_NS + 12, temp_c=60.5)]

    session.pump()

    assert source.commands == [Command("temp", "60"), Command("temp", "60.5")]


def test_polling_can_be_switched_off_and_on():
    """One key shows whether reading the sensors disturbs; what it says stands in the header."""
    watcher = FakeWatcher()
    session, source, _ = open_session(make_watcher=lambda *_: watcher)
    source.queue += [Chosen(BEGIN_NS, "cpu", "asked for")]
    session.pump()

    assert session.toggle_telemetry() is False
    watcher.text = "paused"
    session.pump()
    assert session.store.snapshot(0).telemetry_state == "paused"
    assert session.toggle_telemetry() is True

    assert watcher.calls == ["start", "pause", "resume"]


# -- a call that hangs


def test_a_row_that_hangs_is_named_after_ten_seconds():
    """No sample for 10 s inside one call: the row says stuck, with one warning."""
    session, source, clock = open_session()
    measuring(source)
    session.pump()
    source.running = (1,)

    clock.advance(9 * NS_PER_S)
    session.pump()
    assert session.store.rows[1].state is not RowState.STUCK
    for _ in range(4):
        clock.advance(NS_PER_S)
        session.pump()

    assert session.store.rows[1].state is RowState.STUCK
    assert session.store.rows[1].detail == "13 s"
    [warning] = log(session, "warn")
    assert warning.startswith("b: no sample for 11 s")
    assert session.store.rows[0].state is not RowState.STUCK


def test_a_row_that_comes_back_is_no_longer_stuck():
    """When samples come again the row runs again, and the badge is gone."""
    session, source, clock = open_session()
    measuring(source)
    session.pump()
    source.running = (1,)
    clock.advance(12 * NS_PER_S)
    session.pump()

    source.queue += [fake.block([(0, MS), (1, MS)], clock.now_ns(), round_=10)]
    session.pump()
    session.pump()

    assert session.store.rows[1].state is RowState.RUNNING
    assert session.store.snapshot(0).row(1).badges == ()


@pytest.mark.parametrize("why", ["paused", "not in a call", "priming"])
def test_standing_still_on_purpose_is_not_hanging(why):
    """A pause, a pace's rest and a long compile are no hang."""
    session, source, clock = open_session()
    measuring(source)
    if why == "priming":
        source.queue += [fake.phase("priming")]
    session.pump()
    source.running = () if why == "not in a call" else (1,)
    if why == "paused":
        session.toggle_pause()

    clock.advance(60 * NS_PER_S)
    session.pump()

    assert session.store.rows[1].state is not RowState.STUCK
    assert log(session, "warn") == []


# -- what a user may do


def test_commands_go_to_the_worker():
    """Pause toggles, and any other command is passed on as it is."""
    session, source, _ = open_session()

    assert session.toggle_pause() is True
    assert session.is_paused
    assert session.toggle_pause() is False
    session.command(Command("solo", bench=1))

    assert source.commands == [Command("pause"), Command("resume"), Command("solo", bench=1)]


def test_a_baseline_can_be_named_before_its_row_exists():
    """`--baseline NAME` takes effect as soon as the row is announced."""
    session, source, _ = open_session()
    session.want_baseline("b")
    session.pump()
    assert session.store.baseline is None

    measuring(source)
    session.pump()

    assert session.store.baseline == 1
    assert session.store.snapshot(0).row(0).baseline_name == "b"


def test_a_baseline_that_no_row_has_ends_the_run_with_the_names():
    """A mistyped baseline is a user's mistake: exit 2, and the line tells which names there are."""
    session, source, _ = open_session()
    session.want_baseline("c")
    measuring(source)
    session.pump()
    session.pump()

    assert session.exit_code() == 2
    assert session.fault.message == "--baseline c: no such row"
    assert session.fault.hint == "there is a, b"
    assert source.commands[-1].verb == "stop"


def test_a_call_that_outlives_the_runs_limit_ends_the_session():
    """A hang must not defeat --max-time: three seconds after it the session is over, and failed."""
    session, source, clock = open_session(config=RunConfig(max_time_s=10.0))
    measuring(source)
    session.pump()
    session.pump()
    clock.advance(12 * NS_PER_S)
    session.pump()
    early = session.has_ended
    clock.advance(4 * NS_PER_S)
    session.pump()
    session.pump()
    clock.advance(4 * NS_PER_S)
    session.pump()

    assert not early
    assert session.has_ended
    assert "still inside one call" in session.store.course.stop_reason
    assert session.exit_code() == 1


def test_a_mark_is_taken_at_once_and_saved(journal):
    """`m` begins an epoch on the screen and in the file."""
    session, _, clock = open_session(journal=journal)
    clock.advance(NS_PER_S)

    session.mark("after the fix")
    session.close("quit")

    assert session.store.snapshot(0).epochs[-1].label == "after the fix"
    assert Mark(BEGIN_NS + NS_PER_S, "after the fix") in list(read(journal.path))


@pytest.mark.parametrize(("asked", "got"), [(0, 3), (500, 500), (10**9, 10_000)])
def test_the_window_stays_within_what_is_kept(asked, got):
    """A rolling window has at least three samples and at most what the store holds."""
    session, _, _ = open_session()

    session.set_window(asked)

    assert session.store.window == got


# -- the end


def test_a_session_that_ran_to_its_end_is_complete(journal):
    """The worker's own reason is the session's, and the file says that it is whole."""
    session, source, _ = open_session(journal=journal)
    measuring(source)
    source.queue += [ENDED]
    session.pump()
    assert session.has_ended

    assert session.close("") is True

    end = list(read(journal.path))[-1]
    assert (end.reason, end.complete) == ("20 samples a row", True)
    assert session.final_snapshot().complete
    assert session.exit_code() is ExitCode.OK


def test_a_session_that_a_signal_ended_is_partial(journal):
    """The file says that it is not complete, and by what."""
    session, source, _ = open_session(journal=journal)
    measuring(source)
    source.last_words = [Progress(BEGIN_NS, "ended", "quit")]
    session.pump()

    session.close("SIGTERM")

    end = list(read(journal.path))[-1]
    assert (end.reason, end.complete) == ("SIGTERM", False)
    assert session.final_snapshot().stop_reason == "SIGTERM"


def test_a_worker_that_hangs_is_left_behind_and_its_samples_kept(journal):
    """Closing returns False, and the file has all samples and an end that is not complete."""
    session, source, _ = open_session(journal=journal)
    measuring(source)
    session.pump()
    source.is_over = False

    assert session.close("quit") is False

    saved = list(read(journal.path))
    assert (saved[-1].reason, saved[-1].complete) == ("quit", False)
    assert fake.two_rows(10)[-1] in saved


def test_what_comes_while_it_closes_is_not_lost(journal):
    """Samples that the worker gives on its way out are folded and saved before the end."""
    session, source, _ = open_session(journal=journal)
    measuring(source)
    session.pump()
    source.last_words = [*fake.two_rows(10)[-1:], ENDED]

    session.close("")
    session.close("again")

    assert session.store.rows[0].t_ns.n == 20
    assert sum(isinstance(r, End) for r in read(journal.path)) == 1


def test_an_error_while_closing_still_ends_the_file(journal, monkeypatch):
    """Whatever the last fold raises, the samples and the end are in the file."""
    session, source, _ = open_session(journal=journal)
    measuring(source)
    session.pump()

    def broken(*_, **__):
        raise ArithmeticError("a statistic went wrong")

    monkeypatch.setattr(session.store.verdicts, "ask", broken)

    session.close("")

    *_, told, end = read(journal.path)
    assert isinstance(end, End)
    assert told.notice.evidence["reason"] == "ArithmeticError: a statistic went wrong"


# -- the exit code


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], ExitCode.OK),
        ([BenchError(BEGIN_NS, 1, "ValueError", "no")], ExitCode.BENCH_FAILED),
        ([BenchError(BEGIN_NS, 1, "CUDA", "lost", "", fatal=True)], ExitCode.WORKER_LOST),
        ([Fault(BEGIN_NS, 2, "file.py:3: bad")], ExitCode.USAGE),
        ([Fault(BEGIN_NS, 3, "no such device")], ExitCode.NO_DEVICE),
        ([Fault(BEGIN_NS, 4, "died"), Fault(BEGIN_NS, 2, "later")], ExitCode.WORKER_LOST),
    ],
)
def test_the_exit_code_tells_what_went_wrong_first(records, code):
    """One number for a script: all well, a row failed, usage, device, or the worker lost."""
    session, source, _ = open_session()
    measuring(source)
    source.queue += [*records, ENDED]
    session.pump()
    session.close("")

    assert session.exit_code() is code


def test_a_run_without_a_sample_is_a_failure():
    """A script never takes an empty result for a good one."""
    session, source, _ = open_session()
    source.queue += [fake.row(0, "a"), ENDED]
    session.pump()
    session.close("")

    assert not session.has_samples
    assert session.exit_code() is ExitCode.BENCH_FAILED


def test_the_stuck_notice_is_on_record(journal):
    """A hang stands in the file as what it was, with the state of its row."""
    session, source, clock = open_session(journal=journal)
    measuring(source)
    session.pump()
    source.running = (0,)
    clock.advance(11 * NS_PER_S)
    session.pump()
    session.close("quit")

    saved = list(read(journal.path))
    assert [r.notice.code for r in saved if isinstance(r, Noted)] == ["stuck"]
    assert any(isinstance(r, State) and r.state is RowState.STUCK for r in saved)


def test_a_hang_in_the_first_window_is_named():
    """A row that never gave a sample is blamed as well, counted from when it began."""
    session, source, clock = open_session()
    source.queue += [*fake.two_rows(10)[1:-2], fake.phase("warming")]
    session.pump()
    source.running = (0,)

    for _ in range(12):
        clock.advance(NS_PER_S)
        session.pump()

    assert session.store.rows[0].state is RowState.STUCK
    assert len(log(session, "warn")) == 1


@pytest.mark.parametrize("why", ["paused", "pace"])
def test_the_first_call_after_standing_still_is_not_stuck(why):
    """A minute's pause or a pace's rest is not counted as a minute inside the call after it."""
    session, source, clock = open_session()
    measuring(source)
    session.pump()
    if why == "paused":
        session.toggle_pause()
        source.queue += [fake.phase("paused")]
        session.pump()
    clock.advance(60 * NS_PER_S)
    session.pump()

    if why == "paused":
        session.toggle_pause()
        source.queue += [fake.phase("measuring", clock.now_ns())]
    source.queue += [Gap(BEGIN_NS, clock.now_ns(), why)]
    source.running = (1,)
    session.pump()
    clock.advance(NS_PER_S)
    session.pump()

    assert session.store.rows[1].state is not RowState.STUCK
    assert log(session, "warn") == []


def seconds_told(session, code):
    """After how many seconds a notice of this code came, each time."""
    return [n.text for n in session.store.snapshot(0).log if code in n.text]


def test_a_hang_is_told_again_with_growing_intervals_and_its_stack_once():
    """At 10, 20 and 40 s, so that a hang for ever is neither silent nor a flood."""
    session, source, clock = open_session()
    measuring(source)
    session.pump()
    source.running = (1,)
    for _ in range(50):
        clock.advance(NS_PER_S)
        session.pump()

    told = seconds_told(session, "no sample for")
    seconds = [float(text.split(" for ")[1].split()[0]) for text in told]
    assert seconds == pytest.approx([10, 20, 40], abs=1)
    assert source.stacks == 1
    assert source.losses == []


@pytest.mark.parametrize("state", [RowState.PREPARING, RowState.COMPILING, RowState.WAITING])
def test_a_set_up_that_does_not_end_is_told_and_given_up(state):
    """Before measuring, too: told at 10 s with its row, given up when its time is over."""
    session, source, clock = open_session(config=RunConfig(row_timeout_s=30.0))
    source.queue += [fake.row(0, "a"), fake.phase("priming"), State(BEGIN_NS, 0, state)]
    session.pump()
    source.running = (0,)
    for _ in range(31):
        clock.advance(NS_PER_S)
        session.pump()

    assert len(seconds_told(session, "a: ")) == 2
    [loss] = source.losses
    assert (loss.bench, loss.kind) == (0, "hang")
    assert "did not end within 30 s" in loss.what


@pytest.mark.parametrize(
    ("detail", "words", "code"),
    [
        ("file.py", "the import of file.py has not returned", 2),
        ("the timer of xpu:0", "the timer of xpu:0 has not returned", 3),
    ],
)
def test_what_does_not_end_before_priming_is_told_and_given_up(detail, words, code):
    """The file is named, and its end is the file's mistake; a device that hangs is not."""
    session, source, clock = open_session(config=RunConfig(row_timeout_s=30.0))
    source.queue += [fake.phase("importing", detail=detail)]
    session.pump()
    for _ in range(31):
        clock.advance(NS_PER_S)
        session.pump()

    assert len(seconds_told(session, words)) == 2
    [loss] = source.losses
    assert (loss.bench, loss.exit_code) == (None, code)


def test_the_import_of_the_library_is_not_the_files():
    """The limit of a row does not bound it; it is told all the same, and bounded in the end."""
    session, source, clock = open_session(config=RunConfig(row_timeout_s=5.0))
    source.queue += [fake.phase("importing", detail="torch")]
    session.pump()
    for _ in range(60):
        clock.advance(NS_PER_S)
        session.pump()
    assert seconds_told(session, "the import of torch has not returned")
    assert source.losses == []

    clock.advance(300 * NS_PER_S)
    session.pump()
    assert len(source.losses) == 1


# -- what the statistics say


def test_the_watchers_state_is_on_record_and_its_age_once_a_second(journal):
    """An outage is told at once, how long it lasts once a second, and its end at once."""
    watcher = FakeWatcher()
    session, source, clock = open_session(journal=journal, make_watcher=lambda *_: watcher)
    source.queue += [Chosen(BEGIN_NS, "cuda:0", "the only one")]
    session.pump()
    for step in range(40):
        clock.advance(NS_PER_S // 10)
        watcher.text = f"stale {step / 10:.1f} s" if 5 <= step < 35 else ""
        session.pump()
    said = [session.store.snapshot(0).telemetry_state]
    session.close("quit")

    states = [r.state for r in read(journal.path) if isinstance(r, Watching)]
    assert states == ["", "stale 0.5 s", "stale 1.5 s", "stale 2.5 s", ""]
    assert said == [""]


def test_a_control_row_that_differs_is_said_once_and_spoils_the_run(monkeypatch):
    """When the baseline differs from itself no ratio can be trusted: an error, and exit 6."""
    session, source, clock = open_session()
    source.queue += [*fake.two_rows(10)[1:], fake.row(2, "a (control)", control_of=0)]
    source.queue += fake.series(2, [fake.MS] * 10)
    session.pump()
    monkeypatch.setattr(Analyst, "update", lambda *_, **__: Analysis(untrusted=(2,)))

    for _ in range(5):
        clock.advance(2 * NS_PER_S)
        source.queue += [fake.reading(clock.now_ns())]
        session.pump()
    source.last_words = [ENDED]
    session.close("")

    [error] = log(session, "error")
    assert error.startswith("a (control): the control row is the baseline again, and differs")
    assert session.exit_code() is ExitCode.INCONCLUSIVE


def test_a_target_is_not_met_where_the_last_look_finds_the_control_off(monkeypatch):
    """The reason that is kept, the outcome and the exit code all say so."""
    session, source, _ = open_session()
    measuring(source)
    session.outcome = Outcome("target met: ratio ±0.5 %: now ±0.04 % (a)", is_met=True)
    monkeypatch.setattr(Analyst, "update", lambda *_, **__: Analysis(untrusted=(0,)))
    met = "target met: ratio ±0.5 %: now ±0.04 % (a)"
    source.last_words = [Progress(BEGIN_NS, "ended", met)]
    session.close("")

    reason = session.final_snapshot().stop_reason
    assert "target met" not in reason
    assert reason.startswith("ratio ±0.5 %: now ±0.04 % (a), the control differs")
    assert not session.outcome.is_met
    assert session.exit_code() is ExitCode.INCONCLUSIVE


def test_a_row_without_a_sample_is_a_failure_that_is_named():
    """Samples of the others do not make up for a row that was never timed; one put off is fine."""
    session, source, _ = open_session()
    measuring(source)
    source.queue += [fake.row(7, "never"), fake.row(8, "put off")]
    source.queue += [State(BEGIN_NS, 8, RowState.OFF), ENDED]
    session.pump()
    session.close("")

    assert session.store.unsampled == ["never"]
    assert session.exit_code() is ExitCode.BENCH_FAILED


def test_a_run_without_a_sample_says_why():
    """The reason for the end and what the worker was at: never that it ended at the end."""
    session, source, _ = open_session()
    source.queue += [fake.row(0, "a"), fake.phase("priming"), fake.phase("ended", detail="quit")]
    session.pump()
    session.close("")

    assert where_it_stands(session.store) == ": quit (while priming)"


def test_a_fresh_worker_on_request_undoes_the_fault_of_the_one_before():
    """The exit code is then that of what is measured from there on."""
    session, source, _ = open_session()
    measuring(source)
    source.queue += [fake.block([(0, MS)] * 20), Fault(BEGIN_NS, 4, "the process died", "")]
    session.pump()
    assert (session.can_renew, session.renew()) == (False, "no row was lost")
    source.why_no_fresh_worker = ""

    assert (session.can_renew, session.renew(), source.renewed) == (True, "", 1)

    source.queue.append(fake.note("fresh worker", why="a fresh worker on request"))
    session.pump()
    assert session.fault is None

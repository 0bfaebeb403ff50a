"""Two versions as one session: launches, lost rows, checks, and the fold; in virtual time."""

import io
import itertools
import os
import time

import numpy as np
import pytest

from tests.fakes.duet import BEGIN_NS, LABELS, MS, DuetRun
from usv_tui.model import EXCLUDED, Answer, RowState
from usv_tui.records import (
    SCHEMA,
    Bench,
    BenchError,
    Command,
    Fault,
    Launch,
    Launched,
    Noted,
    Progress,
    Samples,
    Start,
    State,
    decode,
    encode,
)
from usv_tui.report import table
from usv_tui.session import export, samples
from usv_tui.session.live import Loss
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S
from usv_tui.tui.screens import detail


def stored(run, config=None):
    """The fold of what a run said, as a session's file would bring it back."""
    store = Store()
    start = Start(SCHEMA, BEGIN_NS, 0, "file.py", run.made[0][1].config)
    store.apply([decode(encode(record)) for record in [start, *run.records]])
    store.conclude()
    return store


def notices(run, code):
    """What was told under a code."""
    return [r.notice for r in run.records if isinstance(r, Noted) and r.notice.code == code]


def names(run):
    """Of all rows, with those of their versions."""
    return {r.info.bench: r.info.name for r in run.records if isinstance(r, Bench)}


@pytest.fixture(scope="module")
def slower():
    """`a` has 2 % more work in the new version, `b` is as it was; the machine slows all along."""
    rows = {"a": MS, "b": MS / 2}, {"a": 1.02 * MS, "b": MS / 2}
    run = DuetRun(rows, between=0.002, drift=lambda s: 1 + 0.05 * s)
    run.run()
    return run


def test_a_change_is_found_while_the_machine_drifts(slower):
    """The slower row is slower, by about as much as it is, and the other one the same."""
    report = slower.report()
    assert report["a"].answer is Answer.SLOWER
    assert report["a"].over.ratio == pytest.approx(1.02, abs=0.006)
    assert report["b"].answer is Answer.SAME
    assert [len(versus.launches) for versus in report.values()] == [5, 5]


def test_turns_are_paired_by_their_rounds_and_never_overlap(slower):
    """One has the device at a time, and the turns of a pair bear the same rounds."""
    spans = {0: [], 1: []}
    rounds = {0: set(), 1: set()}
    side_of = {r.info.bench: r.info.version for r in slower.records if isinstance(r, Bench)}
    for block in (r for r in slower.records if isinstance(r, Samples)):
        side = side_of[block.bench[0]]
        spans[side].append((block.t0_ns, block.end_ns))
        rounds[side] |= {s.round for s in block.samples() if not s.flags & EXCLUDED}
    merged = sorted((a, b, side) for side, own in spans.items() for a, b in own)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(merged))
    assert rounds[0] == rounds[1]


def test_each_launch_has_fresh_workers_with_the_calls_of_the_first(slower):
    """Later workers are told how many calls a window has, so that launches are alike."""
    assert [side for side, _ in slower.made] == [0, 1] * 5
    assert [asked.duet.number for _, asked in slower.made] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert set(slower.made[-1][1].duet.calls) == {"a", "b"}
    assert len({asked.duet.seed for _, asked in slower.made}) == 5


def test_everything_that_is_shown_is_a_fold_of_the_records(slower):
    """The store says what the duet says: ratios, launches, base figures; in table and JSON."""
    store = stored(slower)
    snapshot = store.snapshot(store.last_ns)
    lines = {row.plain_name: row for row in snapshot.lines}
    assert set(lines) == {"a", "b"}
    assert lines["a"].ratio.answer is Answer.SLOWER
    assert lines["a"].versus.over == slower.report()["a"].over
    assert lines["a"].base_whole.median_s < lines["a"].whole.median_s
    assert snapshot.duet.done == 5
    text = table.render(snapshot)
    assert "BASE" in text
    assert "5 of both versions" in text
    assert text.count(f"@{LABELS[0]}") == 0
    page = detail._launches(lines["a"])
    assert page.count("1.0") >= 5
    assert "alone: slower" in page
    data = export.as_dict(store, snapshot)
    row = next(r for r in data["rows"] if r["name"] == f"a @{LABELS[1]}")
    assert row["versus"]["raw"]["answer"] == row["versus"]["corrected"]["answer"] == "slower"
    assert len(row["versus"]["launches"]) == row["launches"] == 5
    assert row["versus"]["corrected"]["p"] >= row["versus"]["raw"]["p"]
    assert data["versions"]["correction"] == "holm"


def test_every_sample_bears_its_version_and_its_launch(slower):
    """In frames and CSV: warm-up is of the launch that it precedes."""
    store = stored(slower)
    columns = samples.columns(store)
    found = set(zip(columns["version"], columns["launch"].tolist(), strict=True))
    assert found == {(label, number) for label in LABELS for number in range(1, 6)}
    out = io.StringIO()
    export.write_csv(store, out)
    head = out.getvalue().splitlines()[0].split(",")
    assert {"version", "launch"} <= set(head)


def test_more_launches_are_made_only_while_an_interval_is_wide():
    """Launches that differ much lead to more of them, and at last to an end."""
    rows = {"a": MS}, {"a": MS}
    calm = DuetRun(rows, between=0.001, launch_s=0.4, seed=1)
    calm.run()
    wild = DuetRun(rows, between=0.05, launch_s=0.4, seed=1)
    wild.run()
    count = [sum(isinstance(r, Launched) for r in run.records) for run in (calm, wild)]
    assert count == [5, 12]
    assert DuetRun(rows, launches=2, launch_s=0.4).run()["a"].over.launches == 2


def test_one_launch_says_that_it_is_one():
    """Its interval is of this launch alone, and the note tells so."""
    versus = DuetRun(({"a": MS}, {"a": 1.1 * MS}), launches=1, launch_s=0.4).run()["a"]
    assert versus.ratio.note == "one launch"
    assert versus.ratio.answer is Answer.SLOWER


def test_rows_of_one_version_alone_are_named_and_the_others_compared():
    """A renamed row is lost under both names; nothing else is."""
    run = DuetRun(({"a": MS, "was": MS}, {"a": MS, "is": MS}), launches=2, launch_s=0.4)
    assert set(run.run()) == {"a"}
    told = {names(run)[n.bench] for n in notices(run, "only in one")}
    assert told == {f"was @{LABELS[0]}", f"is @{LABELS[1]}"}
    assert set(run.made[-1][1].duet.without) == {"was", "is"}
    store = stored(run)
    assert not store.course.has_failed
    assert not store.unsampled


def test_versions_without_a_common_row_end_in_failure():
    """Nothing can be compared: the run says so at once and does not go round in circles."""
    run = DuetRun(({"a": MS}, {"b": MS}), launches=3, launch_s=0.4)
    run.run()
    end = run.records[-1]
    assert end.is_failure
    assert "no row" in end.detail
    assert len(run.made) == 2


def test_a_row_that_raises_in_one_version_is_lost_in_both():
    """It is named with its error, its counterpart is switched off, the others go on."""

    def build(side, name):
        def broken():
            raise RuntimeError("boom")

        return broken if (side, name) == (1, "a") else None

    run = DuetRun(({"a": MS, "b": MS}, {"a": MS, "b": MS}), launches=2, launch_s=0.4, build=build)
    report = run.run()
    assert report["a"].over is None
    assert report["b"].over.launches == 2
    errors = [r for r in run.records if isinstance(r, BenchError)]
    assert [names(run)[e.bench] for e in errors] == [f"a @{LABELS[1]}"]
    off = {names(run)[r.bench] for r in run.records if isinstance(r, State) and r.state == "off"}
    assert f"a @{LABELS[0]}" in off
    assert stored(run).rows[errors[0].bench].state is RowState.FAILED


def test_a_row_without_memory_is_told_that_both_versions_hold_theirs():
    """What helps is said: fewer or smaller rows."""

    def build(side, name):
        def hungry():
            raise MemoryError("out of memory")

        return hungry if (side, name) == (1, "a") else None

    rows = {"a": MS, "b": MS}
    run = DuetRun((rows, rows), launches=1, launch_s=0.4, build=build)
    run.run()
    error = next(r for r in run.records if isinstance(r, BenchError))
    assert "both versions hold their inputs" in error.message


def test_a_wrong_result_is_wrong_and_never_faster(tmp_path):
    """The file's check holds the new version's results against the old one's."""

    def build(side, name):
        return lambda: 1.0 + 0.5 * side * (name == "a")

    run = DuetRun(
        ({"a": MS, "b": MS}, {"a": MS / 2, "b": MS}),
        launches=2,
        launch_s=0.4,
        build=build,
        check=lambda mine, base: mine == base,
        results=str(tmp_path),
    )
    report = run.run()
    assert report["a"].over is None
    assert report["a"].answer is Answer.UNDECIDED
    assert report["b"].over is not None
    error = next(r for r in run.records if isinstance(r, BenchError))
    assert error.kind == "check"
    assert "the other version's" in error.message


def test_a_stop_ends_both_workers_and_keeps_what_there_is():
    """Whoever waits for the turn hears it as well."""
    run = DuetRun(({"a": MS}, {"a": MS}), launches=3, launch_s=1e6)
    run.duet.start()
    while not any(isinstance(r, Launch) for r in run.records):
        run.records += run.duet.drain()
    run.duet.command(Command("stop", "q"))
    for _ in range(20_000):
        run.records += run.duet.drain()
        if run.is_over:
            break
        time.sleep(0.001)
    assert isinstance(run.records[-1], Progress)
    assert run.records[-1].detail == "stopped"
    assert run.duet.close(1.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_is_killed_in_no_row_costs_its_launch_alone():
    """A fresh launch takes its place; one that is killed again and again is given up."""
    lost = []

    def lose(run):
        run.duet.drain()
        lost.append(run.duet._carrier(1))
        lost[-1].give_up(Loss("SIGKILL", "signal SIGKILL", None))
        said = run.duet.drain()
        lost[-1]._thread.join(10)
        return said

    run = DuetRun(({"a": MS}, {"a": MS}), launches=1, launch_s=1e6)
    run.duet.start()
    while not any(isinstance(r, Launch) for r in run.records):
        run.records += run.duet.drain()
    said = lose(run)
    assert [r.notice.code for r in said if isinstance(r, Noted)][-1:] == ["fresh worker"]
    lose(run)
    said = lose(run)
    assert any(isinstance(r, Fault) and "SIGKILL" in r.message for r in said)
    assert said[-1].is_end
    run.duet.close(1.0)


class Silent:
    """A worker that is in an import for ever."""

    def __init__(self, ends):
        self.loss, self.ends = None, ends

    def start(self):
        """Nothing comes of it."""

    def drain(self):
        """It has nothing to say."""
        return []

    def command(self, command):
        """It does not hear."""

    def give_up(self, loss):
        """It is ended."""
        self.loss = loss

    def close(self, timeout_s):
        """Its ends of the pipes go with it."""
        ends, self.ends = self.ends, ()
        for fd in ends:
            os.close(fd)
        return False


def test_an_import_that_does_not_end_is_told_of_its_version():
    """The other one waits for its turn meanwhile, and the run ends with the reason."""
    run = DuetRun(({"a": MS}, {"a": MS}), row_timeout_s=3.0)
    make = run.duet._make
    run.duet._make = lambda side, asked, ends: Silent(ends) if side else make(side, asked, ends)
    run.duet.start()
    until = time.monotonic() + 20
    while not run.is_over and time.monotonic() < until:
        run.records += run.duet.drain()
        run.time.advance(NS_PER_S // 50)
        time.sleep(0.001)
    fault = next(r for r in run.records if isinstance(r, Fault))
    assert fault.message == "new: the import of file.py did not end within 3 s"
    assert "--row-timeout" in fault.hint
    run.duet.close(1.0)


def test_the_limit_of_a_run_ends_its_launch():
    """`--max-time` is kept within a launch, too."""
    run = DuetRun(({"a": MS}, {"a": MS}), launches=50, launch_s=0.5, max_time_s=1.2)
    run.run()
    assert run.records[-1].detail == "max time 1.2 s"
    assert run.duet.launches.done <= 3


def test_warm_up_is_in_no_ratio(slower):
    """Samples before the first turn are of no pair."""
    launch = next(r for r in slower.records if isinstance(r, Launch))
    early = [
        flag
        for r in slower.records
        if isinstance(r, Samples) and r.t0_ns < launch.at_ns
        for flag in r.all_flags()
    ]
    assert np.all(np.array(early) & int(EXCLUDED))

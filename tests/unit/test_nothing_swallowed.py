"""What went wrong is told when it happens and stands under the final table and in the JSON."""

import ast
import io
import json
import os
from pathlib import Path

import msgspec
import pytest

import usv_tui
from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS
from usv_tui.cli import headless
from usv_tui.codes import Code
from usv_tui.model import ClockState, Notice
from usv_tui.records import BenchError, Clocks, Fault, Noted
from usv_tui.report import table
from usv_tui.report.wording.notices import CODES, sentence
from usv_tui.session import export
from usv_tui.session.store import Store
from usv_tui.vendor.processes import describe, words

ROOT = Path(usv_tui.__file__).parent
LEVELS = ("warn", "error")
ALL = sorted(Code)


def told(*records):
    """A narration of a store that these records were folded into, its table and its JSON."""
    store, out = Store(), io.StringIO()
    store.apply([*fake.two_rows(10)])
    narration = headless.Narration(out)
    narration.tell(store.snapshot(BEGIN_NS + 1))
    before = len(out.getvalue())
    store.apply(records)
    snapshot = store.snapshot(BEGIN_NS + 2)
    narration.tell(snapshot)
    data = json.loads(json.dumps(export.as_dict(store, snapshot), allow_nan=False))
    return out.getvalue()[before:], table.render(snapshot), data["notices"]


def test_every_code_has_words():
    """A code without a sentence would be told as a bare word."""
    assert set(CODES) == set(Code)


def test_every_code_is_given_to_a_notice():
    """A code that no part of the program says is taken away, with its words."""
    tables = ("vocabulary.py", "notices.py", "findings.py")
    sources = [path for path in ROOT.rglob("*.py") if path.name not in tables]
    said = {
        node.attr
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "Code"
    }

    assert set(Code.__members__) == said


def test_a_code_of_another_version_is_kept_as_it_is():
    """A session's file opens although this version does not know all that it says."""
    known, foreign = Code("two modes"), Code("a code to come")
    notice = Notice(code=foreign, at_ns=1, evidence={"n": 3})

    again = msgspec.msgpack.decode(msgspec.msgpack.encode(notice), type=Notice)

    assert known is Code.TWO_MODES
    assert (again, again.code) == (notice, "a code to come")
    assert sentence(again) == "a code to come: n 3"
    assert foreign not in set(Code)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bench", [None, 1])
@pytest.mark.parametrize("code", ALL)
def test_every_warning_is_told_at_once_and_stands_in_the_notes(code, bench, level):
    """Whatever its code, a warning or an error reaches stderr, the table and the JSON."""
    notice = Notice(
        code=code, at_ns=BEGIN_NS, bench=bench, level=level, evidence={"reason": "so it is"}
    )
    said = sentence(notice)

    stderr, notes, notices = told(Noted(notice))

    [line] = [line for line in stderr.splitlines() if "] * " in line]
    assert said in line
    label = "ERROR" if level == "error" else "warning"
    assert any(line.startswith(label) and said in line for line in notes.splitlines())
    [data] = notices
    assert (data["code"], data["level"]) == (code, level)
    assert data["row"] == (None if bench is None else "b")
    assert data["evidence"] == {"reason": "so it is"}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (BenchError(BEGIN_NS, 1, "RuntimeError", "no", fatal=True), "context is lost after b"),
        (BenchError(BEGIN_NS, 99, "RuntimeError", "no such row"), "the worker: no such row"),
    ],
)
def test_a_lost_context_and_a_lost_worker_are_told_everywhere(record, words):
    """What ends the measuring is no less than a notice."""
    stderr, notes, notices = told(record)

    assert words in stderr
    assert words in notes
    assert any(words in notice["text"] for notice in notices)


def test_a_fault_stands_in_the_table_and_in_the_data():
    """The program's last line on stderr is the fault, so narration leaves it to that one."""
    stderr, notes, notices = told(Fault(BEGIN_NS, 4, "the worker died", "look there"))

    assert "the worker died" not in stderr
    assert "ERROR" in notes
    assert "the worker died (look there)" in notes
    assert notices[0]["evidence"] == {"exit_code": 4, "message": "the worker died"}


def test_the_same_thing_of_many_rows_is_one_note():
    """A code that concerns all rows names some of them and counts the others."""
    rows = [fake.row(i, f"row{i}") for i in range(2, 12)]
    notices = [
        Noted(Notice(code="bad pace", at_ns=BEGIN_NS, bench=i, level="warn", evidence={}))
        for i in range(2, 12)
    ]

    _, notes, _ = told(*rows, *notices)

    [line] = [line for line in notes.splitlines() if line.startswith("warning")]
    assert "row2" in line
    assert "and 5 more" in line


def test_a_warning_that_comes_again_is_counted():
    """One note with its count, however often it was told."""
    notice = Noted(Notice(code="telemetry lost", at_ns=BEGIN_NS, level="warn", evidence={}))

    _, notes, notices = told(*[notice] * 7)

    assert notes.count("telemetry lost") == 1
    assert "(7 times)" in notes
    assert notices[0]["count"] == 7


def test_a_flood_of_different_warnings_is_bounded_and_counted():
    """A thousand codes make no thousand notes, and what was left out is said."""
    flood = [
        Noted(Notice(code=f"code {i}", at_ns=BEGIN_NS, level="warn", evidence={}))
        for i in range(1000)
    ]

    _, notes, notices = told(*flood)

    assert len(notices) == 200
    assert "800 more" in notes


def test_an_error_is_told_before_the_warnings():
    """The worst stands first, whenever it came."""
    first = Notice(code="bad pace", at_ns=BEGIN_NS, level="warn", evidence={"reason": "small"})
    last = Notice(code="device lost", at_ns=BEGIN_NS, level="error", evidence={"reason": "big"})

    _, notes, _ = told(Noted(first), Noted(last))

    assert notes.index("ERROR") < notes.index("warning")


def test_an_info_is_no_note():
    """What is merely worth knowing stays in the log."""
    notice = Notice(code="lock note", at_ns=BEGIN_NS, level="info", evidence={"reason": "fine"})

    stderr, notes, notices = told(Noted(notice), Clocks(BEGIN_NS, ClockState()))

    assert "fine" in stderr
    assert "fine" not in notes
    assert notices == []


def test_everybody_who_used_the_device_stands_in_the_notes_and_in_the_data():
    """Pid, name, user and memory of all who came, also of those that have gone since."""
    bob = {"pid": 4711, "name": "train", "user": "bob", "memory_bytes": 3 << 29}
    eve = {"pid": 4712, "name": "infer", "user": "eve"}

    def shared(*processes, more=0):
        evidence = {"processes": list(processes), "more": more}
        return Noted(Notice(code="shared device", at_ns=BEGIN_NS, level="warn", evidence=evidence))

    stderr, notes, notices = told(shared(bob), shared(eve, more=7))

    assert "others use this device: train (pid 4711, user bob, 1.5 GiB)\n" in stderr
    assert "others use this device: infer (pid 4712, user eve), and 7 more" in stderr
    assert "train (pid 4711, user bob, 1.5 GiB), infer (pid 4712, user eve), and 7 more" in notes
    assert notices[0]["evidence"] == {"processes": [bob, eve], "more": 7}


@pytest.mark.parametrize(
    "evidence",
    [
        {"processes": ["x"], "more": 0},
        {"processes": [{"pid": [1]}], "more": 1},
        {"processes": {"pid": 1}, "more": "many"},
        {"processes": [{}], "more": None},
        {"pids": [4711]},
        {"pids": 3},
    ],
)
def test_neighbours_of_a_damaged_session_are_no_error(evidence):
    """Whatever stands there, a line comes of it."""
    notice = Notice(code="shared device", at_ns=1, level="warn", evidence=evidence)

    _, notes, notices = told(Noted(notice))

    assert "warning" in notes
    assert len(notices) == 1


def test_a_flood_of_neighbours_is_bounded():
    """Processes that come and go all the time do not grow the notes."""
    store = Store()
    for pid in range(1000):
        evidence = {"processes": [{"pid": pid}], "more": 0}
        notice = Notice(code="shared device", at_ns=1, level="warn", evidence=evidence)
        store.apply([Noted(notice)])

    snapshot = store.snapshot(1)

    assert len(snapshot.neighbours) == 32
    assert len(snapshot.told) == 1
    assert len(snapshot.told[0].text) < 300


def test_a_process_is_described_as_far_as_it_is_known():
    """Ours has a name and a user; one that does not exist has its pid alone."""
    mine = describe(os.getpid(), 1 << 30)

    assert mine["pid"] == os.getpid()
    assert mine["name"]
    assert mine["user"]
    assert words(mine).endswith("1.0 GiB)")
    assert words(describe(1 << 22)) == f"pid {1 << 22}"

"""Foreign text on every way out: nothing of it steers a terminal, a table or a spreadsheet."""

import argparse
import csv
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS
from usv_tui import plain
from usv_tui.cli import clocks as clocks_cli
from usv_tui.cli import doctor as doctor_cli
from usv_tui.cli import headless, voice
from usv_tui.cli import lie as lie_cli
from usv_tui.cli import main as cli
from usv_tui.cli.machine_report import Check, Report, Section, Status
from usv_tui.engine.lie import Lie, LieRow
from usv_tui.errors import UsageError, UsvError
from usv_tui.model import (
    ClockHold,
    ClockState,
    DeviceInfo,
    Notice,
    Reading,
    RowState,
    RunConfig,
    TimerInfo,
)
from usv_tui.records import (
    BenchError,
    Chosen,
    Clocks,
    Device,
    End,
    Fault,
    Mark,
    Noted,
    Output,
    Progress,
    Skip,
    Start,
    State,
    Telemetry,
    Timing,
)
from usv_tui.report import grid, table
from usv_tui.session import export
from usv_tui.session.store import Store
from usv_tui.tui import text as screen_text

NASTY = [
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31mred\x9c",
    "\u202egnp.exe\u2066\u2069",
    "a\u200bb\u200d\ufeff\u2060",
    "one\ntwo\r\nthree\x0b\x0c\x85\u2028\u2029four",
    "\ud800half",
    "\u3164\u2800\u115f",
    "x\u034f\ufe0f\U000e0041",
    "=cmd|' /C calc'!A0",
    "| a | b |\n| - | - |",
    "<script>alert(1)</script> &lt;b&gt; [x](javascript:1)",
    "`a``b`\\|",
    "=" * 5000,
    "\t=1+1",
    "",
    " ",
]
HOSTILE = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=40),
    st.text(alphabet=st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Cs", "Co"]), max_size=20),
)
HIDDEN = re.compile("[\u034f\u061c\u115f\u1160\u2800\u3164\ufe00-\ufe0f\U000e0000-\U000e0fff]")


def examples(test):
    """Every nasty text in turn, besides what hypothesis thinks of."""
    for words in NASTY:
        test = example(words)(test)
    return settings(max_examples=60, deadline=None)(test)


def assert_plain(out, widest=100_000):
    """Lines of characters that can be seen, and nothing else."""
    for line in out.split("\n"):
        assert line.isprintable(), repr(line)
        assert not HIDDEN.search(line), repr(line)
        assert len(line) <= widest


def session(words):
    """A store in which every text that others give is `words`."""
    store = Store()
    bad = BenchError(BEGIN_NS, 1, words, words, words)
    note = Notice(
        code=words or "x", at_ns=BEGIN_NS, level="error", evidence={"reason": words, words: words}
    )
    about = Notice(code="stuck", at_ns=BEGIN_NS, bench=1, level="warn", evidence={"seconds": words})
    state = ClockState(hold=ClockHold.STUCK, locked_mhz=1, evidence=words, reason=words)
    info = DeviceInfo(uuid=words, name=words, kind="nvidia", driver=words, note=words)
    store.apply(
        [
            Start(1, BEGIN_NS, 0, words, RunConfig(pace=words), {words: words}, words),
            Chosen(BEGIN_NS, words, words, {"name": words}),
            Timing(BEGIN_NS, TimerInfo(name=words, reason=words)),
            Device(BEGIN_NS, info),
            fake.row(0, words, group=words, is_baseline=True),
            fake.row(1, words + "2", group=words),
            *[fake.row(i, f"{words}{i}", group=words) for i in range(2, 5)],
            fake.phase("measuring"),
            fake.block([(0, 1000), (1, 2000), (2, 3000)]),
            State(BEGIN_NS, 2, RowState.COMPILING, words),
            Skip(BEGIN_NS, words, words),
            Noted(note),
            Noted(about),
            Noted(Notice(code="lock refused", at_ns=1, level="warn", evidence={"reason": words})),
            bad,
            Clocks(BEGIN_NS, state),
            Telemetry(Reading(device=words, at_ns=BEGIN_NS, sm_mhz=1.0)),
            Output(BEGIN_NS, words),
            Mark(BEGIN_NS, words),
            fake.block([(0, 1000), (1, 2000), (2, 3000)], BEGIN_NS + 10_000, round_=1),
            Fault(BEGIN_NS, 4, words, words, words),
            Progress(BEGIN_NS, "ended", words),
            End(BEGIN_NS, words),
        ]
    )
    return store


@examples
@given(HOSTILE)
def test_narration_table_and_markdown_are_plain(words):
    """Every text of a session that others gave, through all that headless writes."""
    store, out = session(words), io.StringIO()
    narration = headless.Narration(out)
    snapshot = store.snapshot(BEGIN_NS + 1)
    narration.tell(snapshot)
    narration.tell(replace(snapshot, phase="measuring", at_ns=BEGIN_NS + 10**10, progress=words))

    assert_plain(out.getvalue(), 1_100)
    assert_plain(table.render(snapshot))
    assert_plain(table.render(snapshot, width=80))
    assert_plain(table.render(snapshot, markdown=True))


@examples
@given(HOSTILE)
def test_csv_is_plain_and_json_is_true(words):
    """A reader of CSV gets cells without controls and formulas; JSON has the very text."""
    store = session(words)
    snapshot = store.snapshot(BEGIN_NS + 1)
    out = io.StringIO()
    export.write_csv(store, out)

    assert_plain(out.getvalue())
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(rows) == 6
    for row in rows:
        assert not row["name"].startswith(("=", "+", "-", "@", "\t", "\r")) or _is_number(
            row["name"]
        )
        assert int(row["window_ns"]) > 0
        assert float(row["seconds"]) > 0

    out = io.StringIO()
    export.write_json(store, snapshot, out)
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue())["rows"][0]["name"] == json.loads(json.dumps(words))


def _is_number(words):
    return re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", words) is not None


@examples
@given(HOSTILE)
def test_error_lines_of_the_program_are_one_plain_line(words):
    """Whatever an error quotes."""

    def fail(_argv):
        raise UsageError(words, words)

    err = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", err)
        patch.setitem(cli._COMMANDS, "list", fail)
        assert cli.main(["list"]) == 2
    assert err.getvalue().count("\n") == 1
    voice.say(words, err)

    assert_plain(err.getvalue())


@examples
@given(HOSTILE)
def test_lie_doctor_and_clocks_are_plain(words):
    """The other commands' texts, with a device, a row and an error of such names."""
    lie = Lie(
        (LieRow(words, error=words), LieRow("b", 1e-3, 1e-6, 1e-3, 1e-3)), words, words, words
    )
    assert_plain(plain.lines(lie_cli.text(lie, words, words)))

    check = Check(name=words, status=Status.NOTE, value=words, why=words, mend=words)
    report = Report(sections=[Section(title=words, checks=[check])])
    info = DeviceInfo(uuid=words, name=words, kind="nvidia")
    state = ClockState(evidence=words, reason=words, concerns=[words])
    for as_json in (False, True):
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(doctor_cli, "diagnose", lambda *_a, **_k: report)
            patch.setattr(clocks_cli, "_devices", lambda *_a: [info])
            patch.setattr(clocks_cli, "_status_of", lambda *_a: (info, state))
            doctor_cli.run("auto", as_json=as_json, out=out)
            args = argparse.Namespace(device="", json=as_json)
            clocks_cli.status(args, out, None, None)
        assert_plain(out.getvalue())


@examples
@given(HOSTILE)
def test_the_screen_uses_the_same_door(words):
    """One line of what can be seen, bounded."""
    assert screen_text.clean(words) == plain.line(words)
    assert_plain(plain.line(words), plain.MOST)
    assert_plain(plain.name(words), plain.MOST)
    assert "\n" not in plain.line(words)


@examples
@given(HOSTILE)
def test_a_markdown_cell_stays_one_cell(words):
    """Neither a pipe nor a line break nor a backtick ends a cell; no tag begins in it."""
    columns = [grid.Column("a", [words], is_code=True), grid.Column("b", [words])]

    lines = grid.markdown(columns).split("\n")

    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[2])) == 3
    assert not re.search(r"(?<!\\)(?:\\\\)*<", grid.escape(plain.line(words)))


@pytest.mark.parametrize(
    ("words", "cell"),
    [
        ("plain[n=1]", "plain[n=1]"),
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-O3", "'-O3"),
        ("@sum", "'@sum"),
        ("  =1", "'  =1"),
        ("\t=1", "'\\t=1"),
        ("\r=1", "'\\r=1"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("1=1", "1=1"),
        ("", ""),
        ("\uff1d1", "'\uff1d1"),
    ],
)
def test_what_a_spreadsheet_would_run_is_quoted(words, cell):
    """A formula is text; a number stays a number."""
    assert plain.cell(words) == cell


def test_what_is_too_long_says_how_long_it_was():
    """A line of a million characters costs a line."""
    shown = plain.line("x" * 10**6)

    assert len(shown) == plain.MOST
    assert shown.endswith("(1,000,000 characters)")
    assert len(plain.line("\x1b" * 10**6)) == plain.MOST
    assert "1,000,000" in plain.line("\x1b" * 10**6)


def test_names_that_look_alike_are_told_apart():
    """A hidden character is written out, so that two names never look the same."""
    hidden = ["a", "a\u200b", "a\ufe0f", "a\u3164", "a\x00", "a\u202c"]

    assert len({plain.name(name) for name in hidden}) == len(hidden)


def test_some_of_many_are_named_and_the_others_counted():
    """A list of thousands is a few words."""
    assert plain.some(range(3)) == "0, 1, 2"
    assert plain.some(range(20_000)) == "0, 1, 2, 3, 4, and 19,995 more"


def test_a_hostile_benchmark_file_is_listed_plainly(tmp_path, capsys):
    """`usv-tui list` on names, reasons and errors made to harm."""
    file = tmp_path / "file.py"
    file.write_text(
        "from usv_tui import benchmark\n"
        "BENCHMARKS = {'\\x1b[2J=x\\n\\u202e': lambda: 1, 'b\\x9b': 3}\n"
        "@benchmark(skip='no \\x1b[31mreason\\u2028 here')\n"
        "def bench_a(): return len\n"
    )
    try:
        cli.main(["list", str(file), "--device", "cpu"])
    except UsvError as error:
        raise AssertionError(error) from None
    done = capsys.readouterr()

    assert_plain(done.out)
    assert_plain(done.err)
    assert "\\x1b[2J=x\\n\\u202e" in done.out
    assert cli.main(["list", "no\x1b[2Jfile\u202e.py"]) == 2
    assert_plain(capsys.readouterr().err)

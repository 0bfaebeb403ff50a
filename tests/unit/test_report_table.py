from dataclasses import replace
from pathlib import Path

import pytest

from usv_tui.model import (
    Advice,
    Answer,
    ClockHold,
    ClockState,
    DeviceInfo,
    Drift,
    Ratio,
    RowState,
    RunConfig,
    Skipped,
    StateWord,
    TimerInfo,
    Verdict,
)
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.report.table import notes, render, table
from usv_tui.session.snapshot import EpochView, RowView, Snapshot
from usv_tui.stats.rolling import Stats

GOLDEN = Path(__file__).parent.parent / "golden"


def stats(n, median_s, std_s=None, min_s=None):
    """Statistics of a whole run."""
    return Stats(n=n, median_s=median_s, std_s=std_s, min_s=min_s)


MATH = RowView(
    bench=0,
    name="attention[seq=512,kind=math]",
    group="attention[seq=512]",
    state=RowState.RUNNING,
    whole=stats(1204, 1.2345e-3, 6.2e-6, 1.2001e-3),
    word=StateWord.SETTLED,
    is_baseline=True,
    flops=4.0e9,
    bytes=1.5e8,
)
FLASH = RowView(
    bench=1,
    name="attention[seq=512,kind=flash]",
    group="attention[seq=512]",
    state=RowState.RUNNING,
    whole=stats(1203, 0.9512e-3, 4.1e-6, 0.9400e-3),
    word=StateWord.DRIFTING,
    ratio=Ratio(answer=Answer.FASTER, ratio=0.7705, low=0.7668, high=0.7741, n=1203),
    baseline_name="attention[seq=512,kind=math]",
    flops=4.0e9,
    bytes=1.5e8,
    cache="cold",
    badges=("CPU-bound",),
    throttled=(("power cap", 0.12), ("idle", 0.001)),
    stalls=2,
)
OTHER = RowView(
    bench=2,
    name="copy|add",
    state=RowState.RUNNING,
    whole=stats(12, 15.75e-3, 0.25e-3, 15.5e-3),
    word=StateWord.STEADY,
    ratio=Ratio(answer=Answer.UNDECIDED, note="12 of 30 pairs"),
    baseline_name="attention[seq=512,kind=math]",
)
BROKEN = RowView(
    bench=3,
    name="attention[seq=512,kind=efficient]",
    state=RowState.FAILED,
    error="RuntimeError: no *kernel*\nfor this [device]",
)
PHASE = RowView(
    bench=10_000,
    name="forward",
    parent=2,
    state=RowState.RUNNING,
    whole=stats(12, 5.25e-3, 0.05e-3, 5.1e-3),
)
ROWS = (MATH, FLASH, OTHER, PHASE, BROKEN)
SNAPSHOT = Snapshot(
    suite="benchmarks/attn.py",
    config=RunConfig(device="cuda:0", device_reason="torch 2.13 sees 1 GPU(s)", seed=7),
    timer=TimerInfo(name="event", reason="torch.cuda events", resolution_ns=500, floor_ns=2300),
    device=DeviceInfo(uuid="GPU-1", name="H200", kind="nvidia"),
    clocks=ClockState(hold=ClockHold.LOCKED, locked_mhz=1410, evidence="held for 30 s"),
    elapsed_s=65.2,
    rounds=1204,
    samples=3632,
    rows=ROWS,
    advice=Advice(
        verdict=Verdict.LOCK,
        lock_mhz=1620,
        std_now=0.012,
        std_locked=0.0045,
        reason="clock-moves",
        evidence={"clock_spread": 0.023, "clock_median_mhz": 1700.0},
    ),
    stop_reason="q",
    complete=True,
    skipped=(
        Skipped("attention[seq=512,kind=cudnn]", "no cuDNN"),
        Skipped("sqrt", "no benchmark: imported from math"),
    ),
)


def golden(name, text):
    """The text, byte for byte, is the one in the file."""
    assert (text + "\n").encode() == (GOLDEN / name).read_bytes()


def test_the_whole_report_as_text():
    """Names, one unit a column, ratio with its interval and baseline, failures, facts."""
    golden("table_full.txt", render(SNAPSHOT))


def test_the_whole_report_as_markdown():
    """The same cells as a Markdown table: names are code, nothing else is markup."""
    golden("table_full.md", render(SNAPSHOT, markdown=True))


def test_long_notes_go_on_in_further_lines():
    """Nothing that was found about a row is cut from a narrow table."""
    busy = replace(FLASH, badges=("CPU-bound", "two modes", "memory grows", "synchronises"))

    words = " ".join(line[line.find("  ", 60) :] for line in table([busy], width=80).splitlines())

    for badge in busy.badges:
        assert all(part in words for part in badge.split())


def test_a_narrow_report_keeps_name_median_and_ratio():
    """Within 80 columns the lesser columns go first and long cells are cut in the middle."""
    text = table(ROWS, width=80)

    golden("table_80.txt", text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", range(20, 140, 7))
def test_no_line_is_wider_than_it_may_be(width):
    """Whatever the terminal's width, no row wraps."""
    assert max(map(len, table(ROWS, width=width).splitlines())) <= width


def test_cut_names_differ_wherever_the_names_do():
    """At 80 columns rows that differ in the middle of their names can still be told apart."""
    rows = [
        replace(FLASH, bench=i, name=f"attention[seq={seq},kind={kind}]")
        for i, (seq, kind) in enumerate((s, k) for s in (1024, 2048) for k in ("math", "flash"))
    ]
    long = [replace(r, name=r.name.replace("kind", "causal=False,kind")) for r in rows]

    lines = table(rows, width=80).splitlines()
    long_lines = table(long, width=80).splitlines()

    assert len({line.split("  ")[0] for line in lines[2:]} - {""}) == 4
    assert len({line.split("  ")[0] for line in long_lines[2:]} - {""}) == 4
    assert "std %" in lines[0]


def test_a_narrow_report_still_tells_why_a_row_failed():
    """The table may cut the reason; a line below it does not."""
    lines = render(SNAPSHOT, width=80).splitlines()

    assert lines[-1] == (
        "failed   attention[seq=512,kind=efficient]: RuntimeError: no *kernel* for this [device]"
    )


def test_phases_in_phases_are_told_apart():
    """Each depth is indented further, and the rest of an inner phase carries its name."""
    rows = [
        replace(OTHER, bench=0, name="step"),
        replace(PHASE, bench=1, name="bwd", parent=0),
        replace(PHASE, bench=2, name="dw", parent=1),
        replace(PHASE, bench=-2, name="unaccounted", parent=1),
        replace(PHASE, bench=-1, name="unaccounted", parent=0),
    ]

    assert _names(rows) == [
        "step",
        "  bwd",
        "    dw",
        "    bwd: unaccounted",
        "  unaccounted",
    ]


def _names(rows):
    """The first column of a table's rows."""
    head, _, *lines = table(rows).splitlines()
    return [line[: head.index("   n")].rstrip() for line in lines]


@pytest.mark.parametrize("badge", ["outside stream", "implausible"])
def test_a_time_that_is_none_gives_no_ratio_and_no_rate(badge):
    """A row that ran outside the timed stream is not pronounced faster, nor are rows against it."""
    wrong = replace(FLASH, badges=(badge,))
    base = replace(MATH, badges=(badge,))

    row = table([MATH, wrong]).splitlines()[-1]
    against = table([base, FLASH]).splitlines()

    assert f"invalid ({badge})" in row
    assert "faster" not in row
    assert row.count("—") == 2
    assert f"invalid ({badge})" in against[2]
    assert f"invalid (baseline {badge})" in against[3]


def test_an_open_drift_says_what_would_have_shown():
    """`undecided` only where nothing can be said; otherwise the least change that would show."""
    known = replace(MATH, word=StateWord.UNDECIDED, drift=Drift(detectable=0.012))
    fine = replace(known, drift=Drift(detectable=0.0004))
    unknown = replace(known, drift=Drift())

    ends = [line.split("  ")[-1] for line in table([known, fine, unknown]).splitlines()[2:]]

    assert ends == ["no drift seen above 1.2 %", "no drift seen above 0.04 %", "undecided"]


def test_a_note_is_said_once():
    """Two sources of one finding give one word."""
    row = replace(MATH, badges=("2 modes", "CPU-bound", "2 modes"))

    assert table([row]).splitlines()[-1].endswith("settled, 2 modes, CPU-bound")


def test_names_that_cannot_be_seen_are_escaped():
    """Control characters, zero-width ones and blanks in a name are shown for what they are."""
    rows = [replace(MATH, bench=i, name=n) for i, n in enumerate(("a\0b\n", "\u200b", "  "))]

    assert [line.split("  ")[0] for line in table(rows).splitlines()[2:4]] == [
        "a\\x00b\\n",
        "\\u200b",
    ]
    assert "'  '" in table(rows)


@pytest.mark.parametrize(
    ("during", "now", "words"),
    [
        (ClockHold.UNKNOWN, ClockHold.FREE, "free"),
        (ClockHold.LOCKED, ClockHold.LOCKED, "locked 1605 MHz and held while this was measured"),
        (
            ClockHold.LOCKED,
            ClockHold.FREE,
            "locked 1605 MHz and held while this was measured; given back at the end",
        ),
        (
            ClockHold.PENDING,
            ClockHold.FREE,
            "locking 1605 MHz, not verified; given back at the end",
        ),
        (ClockHold.NOT_HELD, ClockHold.FREE, "lock 1605 MHz NOT HELD; given back at the end"),
    ],
)
def test_the_clocks_are_those_of_the_numbers(during, now, words):
    """A lock that was given back at the end was in force while the numbers were taken."""
    snapshot = replace(
        SNAPSHOT,
        clocks=ClockState(hold=now, locked_mhz=1605),
        clocks_during=ClockState(hold=during, locked_mhz=1605),
    )

    assert dict(notes(snapshot))["clocks"] == words


def test_columns_without_content_are_left_out():
    """Without flops, bytes, ratios and notes there are no such columns."""
    row = RowView(bench=0, name="a", state=RowState.RUNNING, whole=stats(1, 2e-9, None, 2e-9))

    assert table([row]).splitlines() == [
        "benchmark  n    median       min",
        "--------------------------------",
        "a          1  2.000 ns  2.000 ns",
    ]


def test_an_empty_session_has_a_report_too():
    """No rows, no timer and no device are normal states of a run that was cut short."""
    text = render(Snapshot())

    assert text.splitlines()[0] == "no benchmarks"
    assert "timer   —" in text


def test_missing_and_impossible_values_are_dashes():
    """None, NaN and no samples never look like a number, and never raise."""
    row = replace(MATH, whole=stats(0, None), flops=1.0)
    odd = replace(FLASH, whole=stats(2, float("nan"), float("inf"), 0.0), ratio=Ratio())

    text = table([row, odd])

    assert "nan" not in text
    assert "inf" not in text
    assert "— not enough data" in text


def test_line_breaks_and_escapes_stay_inside_their_cell():
    """A name or error with control characters cannot tear the table."""
    text = table([replace(MATH, name="a\nb\x1b[31m"), BROKEN])

    assert len(text.splitlines()) == 4
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("base", "against"),
    [
        ("f[n=1,kind=a]", "kind=a"),
        ("f[n=2,kind=a]", "n=2,kind=a"),
        ("g[n=1,kind=a]", "g[n=1,kind=a]"),
        ("plain", "plain"),
        ("f[n=1]", "f[n=1]"),
    ],
)
def test_the_baseline_is_named_by_what_differs(base, against):
    """Rows of one factory name the baseline's parameters, others its whole name."""
    row = replace(FLASH, name="f[n=1,kind=b]", baseline_name=base)

    last = table([row]).splitlines()[-1]

    assert f"faster  {against}" in last


def test_ratios_have_the_digits_of_the_narrowest_interval():
    """An interval of 0.0004 shows four decimals in all rows, a wide one no less than two."""
    fine = replace(FLASH, ratio=Ratio(answer=Answer.SAME, ratio=1.0, low=0.9996, high=1.0004))
    wide = replace(FLASH, ratio=Ratio(answer=Answer.SLOWER, ratio=2.0, low=1.5, high=2.9))

    lost = replace(FLASH, ratio=Ratio(ratio=1.0, low=0.1, high=900.0, note="ratio wanders"))

    finest = replace(FLASH, ratio=Ratio(answer=Answer.SAME, ratio=1.0, low=0.99999, high=1.00001))

    assert "1.0000x ±<0.01% same" in table([finest])
    assert "1.0000x ±0.04% same" in table([fine, wide])
    assert "2.00x ±35.0% slower" in table([wide])
    assert "1.00x ±>99% not enough data (ratio wanders)" in table([lost])


def test_states_without_samples_are_words():
    """A row that is off, stuck or still compiling says so."""
    text = table(
        [
            replace(MATH, state=RowState.OFF, word=StateWord.NONE),
            replace(MATH, state=RowState.COMPILING, detail="12 s", word=StateWord.NONE),
            replace(MATH, mode="graph", word=StateWord.NONE, stalls=1),
        ]
    )

    assert [line.split("  ")[-1] for line in text.splitlines()[2:]] == [
        "off",
        "compiling",
        "graph, 1 stall",
    ]


def test_facts_tell_what_the_numbers_depend_on():
    """A partial, simulated, unlocked run after a mark says each of these."""
    snapshot = replace(
        SNAPSHOT,
        simulated="h100 steady",
        clocks=ClockState(reason="not permitted"),
        config=RunConfig(interleave=False),
        complete=False,
        telemetry_state="stale 4.2 s",
        epochs=(EpochView(0, "start", 0, 5), EpochView(1, "locked", 5, None)),
        rows=(replace(MATH, left_out={"warm-up": 1200, "zero or negative": 3, "stalls": 2}),),
    )

    facts = dict(notes(snapshot))

    assert facts["simulated"] == "h100 steady"
    assert facts["clocks"] == "unknown (not permitted)"
    assert facts["ended"] == "q (incomplete)"
    assert facts["telemetry"] == "stale 4.2 s"
    assert "one row after the other" in facts["run"]
    assert "1,200 warm-up, 3 zero or negative, 2 stalls (in the mean alone)" in facts["run"]
    assert "statistics since locked" in facts["run"]


def test_names_are_cut_in_the_middle_and_words_at_the_end():
    """The start and the end of a long name tell it from its neighbours; a sentence has a start."""
    name = Column("name", ["attention[kind=math]"], is_code=True, least=11)
    words = Column("notes", ["FAILED: out of memory"], least=9)

    assert grid.text([name, words], 22).splitlines()[-1] == "atten~math]  FAILED: ~"


def test_markdown_code_survives_backticks_and_pipes():
    """Names hold anything; a table cell must not end early."""
    column = Column("c", ["a`b", "x|y", "  sub", ""], is_code=True)

    assert grid.markdown([column]).splitlines()[2:] == [
        "| `` a`b `` |",
        "| `x\\|y` |",
        "| &nbsp;&nbsp;`sub` |",
        "|  |",
    ]

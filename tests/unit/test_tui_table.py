import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import screen as fake
from usv_tui.model import Answer, Drift, Ratio, RowState, StateWord
from usv_tui.report.table import one_row
from usv_tui.session.snapshot import RowView
from usv_tui.stats.rolling import Stats
from usv_tui.tui.look import ASCII, make_look
from usv_tui.tui.view import Scene, ViewState, key_of
from usv_tui.tui.widgets.cells import sparkline
from usv_tui.tui.widgets.table import Table

BLOCKS = "▁▂▃▄▅▆▇█"


def look(*, ascii_only=False):
    """The default look."""
    return make_look({}, is_ansi=True, is_dark=True, ascii_only=ascii_only, no_color=False)


def scene(rows, view=None, *, ascii_only=False, **changes):
    """Rows as the table is given them."""
    snapshot = fake.snapshot(rows=tuple(rows), **changes)
    view = view or ViewState()
    return Scene(snapshot, fake.FakeStore(), view, look(ascii_only=ascii_only), snapshot.at_ns)


def shown(rows, width=100, height=None, view=None, table=None, **options):
    """The table's lines as text."""
    made = scene(rows, view, **options)
    lines = (table or Table()).lines(made, width, len(rows) + 1 if height is None else height)
    assert all(line.cell_length == width for line in lines)
    return [line.text for line in lines]


def row(bench=0, name="copy", median_s=1e-4, **changes):
    """A running row with figures."""
    stats = Stats(
        n=1000,
        median_s=median_s,
        std_s=median_s * 0.005,
        min_s=median_s * 0.99,
        max_s=median_s * 2,
        p95_s=median_s * 1.01,
        p99_s=median_s * 1.02,
    )
    made = RowView(
        bench=bench, name=name, state=RowState.RUNNING, rolling=stats, whole=stats, n_all=1000
    )
    return replace(made, **changes)


MATH = row(0, "attn[kind=math]", 1.2345e-3, is_baseline=True, word=StateWord.SETTLED)
FLASH = row(
    1,
    "attn[kind=flash]",
    0.9512e-3,
    word=StateWord.STEADY,
    baseline_name="attn[kind=math]",
    ratio=Ratio(answer=Answer.FASTER, ratio=0.7705, low=0.7675, high=0.7735, n=900),
)


LITERAL = [
    "   benchmark last 1,000     median std %   min   all       trend vs attn[…math] state",
    "▸■ attn[kind=math]        1.234 ms  0.50 1.222 1.234                       base ✓ settled",
    " ■★attn[kind=flash]       951.2 µs  0.50 941.7 951.2             ▼ 0.770x ±0.4% ≈ steady",
]


def test_the_table_as_it_is_read():
    """Literal lines: heading with units and window, figures flush right, answer and state words."""
    assert [line.rstrip() for line in shown([MATH, FLASH], 90)] == LITERAL


def test_names_with_brackets_are_shown_as_written():
    """Markup is nobody's business here."""
    names = ["matmul[N=512]", "f[dtype=bf16,N=2]", "a[/b]", "[red]x[/red]", "sdpa[math]"]

    lines = shown([row(i, name) for i, name in enumerate(names)], 120)

    for name, line in zip(names, lines[1:], strict=True):
        assert name in line


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-300, 1e12])
def test_no_value_breaks_the_table(value):
    """None, NaN, infinities and absurd values are a dash or a number, never an exception."""
    fields = ("median_s", "std_s", "min_s", "p95_s", "p99_s", "max_s")
    bad = Stats(n=1, **dict.fromkeys(fields, value))
    ratio = Ratio(answer=Answer.UNDECIDED, ratio=value, low=value, high=value)
    rows = [
        row(0, "good"),
        row(
            1,
            "bad",
            rolling=bad,
            whole=bad,
            trend=(value or 0.0,) * 9,
            flops=value,
            bytes=value,
            ratio=ratio,
            drift=Drift(change=value),
            word=StateWord.DRIFTING,
        ),
    ]

    for columns in ("window", "whole", "tails"):
        for width in (1, 20, 80, 200):
            lines = shown(rows, width, view=ViewState(columns=columns))
            assert not any("nan" in line or "inf" in line for line in lines)


@pytest.mark.parametrize(
    ("median_s", "words"),
    [
        (2.031e-7, " 203.1 ns"),
        (4.8e-5, " 48.00 µs"),
        (5.0, " 5.000 s"),
        (9.99996e-7, " 1.000 µs"),
        (3e-13, " 0.0003000 ns"),
        (1234.5, " 1234 s"),
    ],
)
def test_every_row_has_a_unit_of_its_own(median_s, words):
    """A fast row beside a slow one reads in its own unit, with four digits and never as 0."""
    lines = shown([row(0, "it", median_s), row(1, "slow", 5.0)], 100)

    assert words in lines[1]
    assert " 5.000 s" in lines[2]


def test_the_unit_is_kept_once_chosen():
    """A row that gets a little faster than 1 µs does not turn into ns, and back."""
    table = Table()
    shown([row(0, "a", 1.05e-6)], table=table)

    assert "0.9500 µs" in shown([row(0, "a", 0.95e-6)], table=table)[1]
    assert "450.0 ns" in shown([row(0, "a", 0.45e-6)], table=table)[1]


def test_rates_have_the_prefix_of_their_size():
    """A tiny kernel's rate is no row of zeros, a large one's no row of digits."""
    small, large = row(0, "s", 1e-3, flops=2e3, bytes=4e5), row(1, "l", 1e-3, flops=8.24e11)

    lines = shown([small, large], 140)

    assert " 2.00 M " in lines[1]
    assert " 400 M " in lines[1]
    assert " 824 T " in lines[2]


def test_parameters_are_columns_under_their_common_name():
    """The name stands once, the values below one another; a row without keeps its own."""
    names = [f"attention[seq={n},kind={k}]" for n in (512, 16384) for k in ("math", "flash")]

    lines = shown([row(i, name) for i, name in enumerate([*names, "layernorm"])], 100, 8)

    assert lines[1].rstrip() == " attention[seq, kind]"
    assert [line[2:17].rstrip() for line in lines[2:7]] == [
        *("    512  math", "    512  flash", "  16384  math", "  16384  flash"),
        " layernorm",
    ]


@pytest.mark.parametrize("name", ["f[]", "[a=1]", "f[a]", "f[a=1", "f[a=1,]", "f[=]", "f[1=2]"])
def test_names_that_only_look_like_parameters_stay_whole(name):
    """A bracket alone is no parameter."""
    lines = shown([row(0, name), row(1, name + "x")], 100)

    assert name in lines[1]


def test_a_value_with_commas_is_one_value():
    """Only a comma before a name and an equals sign parts two parameters."""
    names = [f"f[shape=({n}, 4),kind=a]" for n in (1, 2)]

    lines = shown([row(i, name) for i, name in enumerate(names)], 100, 4)

    assert "  (1, 4)  a " in lines[2]


def test_the_winner_of_a_size_has_a_mark():
    """The fastest variant of each size, where its ratio leaves no doubt."""
    sure = Ratio(answer=Answer.FASTER, ratio=0.8, low=0.79, high=0.81)
    doubt = Ratio(answer=Answer.SAME, ratio=0.999, low=0.99, high=1.01)
    rows = []
    for size, ratio in ((512, sure), (1024, doubt)):
        base = f"f[n={size},kind=a]"
        rows.append(row(len(rows), base, 1e-3, is_baseline=True))
        rows.append(row(len(rows), f"f[n={size},kind=b]", 0.9e-3, baseline_name=base, ratio=ratio))

    lines = shown(rows, 100, 6)

    assert [line[2] for line in lines[2:]] == [" ", "★", " ", " "]


def test_what_all_rows_share_is_told_once():
    """Equal counts stand in the heading, badges of all rows above the table."""
    rows = [
        row(i, name, badges=("no flush", *own))
        for i, (name, own) in enumerate((("a", ()), ("b", ("CPU-bound",))))
    ]

    lines = shown(rows, 120)

    assert "last 1,000" in lines[0]
    assert " n " not in lines[0]
    assert not any("no flush" in line for line in lines)
    assert "CPU-bound" in lines[2]


def test_names_are_whole_before_lesser_columns():
    """Counts, least times and rates go before letters of a name do."""
    name = "a_rather_long_kernel_name_v2"
    rows = [
        row(0, name, n_all=10, rolling=Stats(n=10, median_s=1e-4, std_s=1e-6, min_s=1e-4)),
        row(1, "b"),
    ]

    narrow, wide = (shown(rows, width) for width in (70, 140))

    assert name in narrow[1]
    assert " min" not in narrow[0]
    assert name in wide[1]
    assert " min" in wide[0]


def test_the_selected_row_stays_in_sight():
    """With more rows than lines the table scrolls no further than the selection needs."""
    rows = [row(i, f"row{i}") for i in range(20)]
    view, table = ViewState(selected="row9"), Table()

    lines = shown(rows, 80, height=7, view=view, table=table)
    assert [line[3:9].strip() for line in lines[1:]] == [f"row{i}" for i in range(4, 10)]
    assert "5-10/20" in lines[0]

    view.selected = "row5"
    again = shown(rows, 80, height=7, view=view, table=table)
    assert [line[3:9].strip() for line in again[1:]] == [f"row{i}" for i in range(4, 10)]

    view.selected = "row0"
    first = shown(rows, 80, height=7, view=view, table=table)
    assert first[1].startswith("▸■ row0")


def test_selection_is_by_name():
    """Rows that come, go or change their order leave the selection on its name."""
    snapshot = fake.snapshot(rows=(row(0, "a"), row(1, "b"), row(2, "c")))
    view = ViewState(selected="b")
    later = replace(snapshot, rows=(row(7, "c"), row(8, "new"), row(9, "b"), row(3, "a")))

    assert view.selected_row(later).bench == 9

    view.move(later, 1)
    assert view.selected == "a"
    view.move(later, 5)
    assert view.selected == "a"
    view.move(later, -9)
    assert view.selected == "c"


def test_a_failed_row_tells_its_error():
    """The last line of the error, with a sign and a word, behind the figures that it has."""
    failed = row(1, "bad", state=RowState.FAILED, error="RuntimeError: [CUDA] out of memory")
    at_once = replace(failed, whole=Stats(), rolling=Stats())

    line = shown([row(0, "good"), failed], 80)[2]
    first = shown([row(0, "good"), at_once], 80)[2]

    assert "✗ failed: RuntimeError: [CUDA] out" in line
    assert "100.0 µs" in line
    assert "100.000" not in first
    assert "✗ failed: RuntimeError: [CUDA] out of memory" in first
    assert shown([failed], 30)[1].rstrip().endswith("…")


def test_phases_stand_below_their_row():
    """A phase is indented, and its identity holds its parent's name."""
    step = row(0, "step")
    forward = row(1, "forward", parent=0)
    snapshot = fake.snapshot(rows=(step, forward))

    assert "└ forward" in shown([step, forward], 80)[2]
    assert key_of(forward, snapshot) == "step/forward"


def test_phases_in_phases_are_indented_by_depth():
    """The rest of an inner phase carries its name, and each is selected by its whole path."""
    rows = [
        row(0, "step"),
        row(1, "bwd", parent=0),
        row(2, "dw", parent=1),
        row(-2, "unaccounted", parent=1),
        row(-1, "unaccounted", parent=0),
    ]

    lines = shown(rows, 100)

    assert [line[3:25].rstrip() for line in lines[2:]] == [
        "└ bwd",
        "  └ dw",
        "  └ bwd: unaccounted",
        "└ unaccounted",
    ]
    assert key_of(rows[2], fake.snapshot(rows=tuple(rows))) == "step/bwd/dw"


@pytest.mark.parametrize("badge", ["outside stream", "implausible"])
def test_no_ratio_and_no_rate_of_an_invalid_time(badge):
    """A row whose time is none is `invalid`, as is every row against it; nothing is faster."""
    wrong = replace(FLASH, badges=(badge,), flops=5.5e9, bytes=77e6)
    base = replace(MATH, badges=(badge,))

    line = shown([MATH, wrong], 140)[2]
    both = shown([base, FLASH], 140)

    assert " invalid " in line
    assert "0.770x" not in line
    assert "5.5" not in line
    assert "77.0" not in line
    assert all(" invalid " in line for line in both[1:])
    assert f"invalid ({badge})" in one_row(wrong, (MATH, wrong), "x")


def test_names_that_cannot_be_seen_are_escaped():
    """A control or zero-width character in a name is shown as what it is."""
    lines = shown([row(0, "a\0b"), row(1, "\u200b"), row(2, " ")], 100)

    assert [line[3:11].rstrip() for line in lines[1:]] == ["a\\x00b", "\\u200b", "' '"]


def test_names_are_cut_where_they_agree_and_never_within_a_number():
    """A narrow screen keeps what differs, with all its digits."""
    names = [f"attention(seq={n},kind=math)" for n in (512, 1024, 2048)]

    lines = shown([row(i, name) for i, name in enumerate(names)], 60)

    for size, line in zip((512, 1024, 2048), lines[1:], strict=True):
        assert f"{size},kind=math)" in line.split("  ")[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": RowState.WAITING}, "… waiting"),
        ({"state": RowState.COMPILING, "detail": "3.1 s"}, "… compiling 3.1 s"),
        ({"state": RowState.OFF}, "— off"),
        ({"state": RowState.STUCK, "detail": "12 s"}, "! stuck 12 s"),
        ({"word": StateWord.WARMING}, "… warming"),
        ({"word": StateWord.SETTLED}, "✓ settled"),
        ({"word": StateWord.SETTLED, "drift": Drift(to_come=0.0061)}, "✓ settled ±0.7%"),
        ({"word": StateWord.DRIFTING, "drift": Drift(change=0.012)}, "↑ drifting +1.2%"),
        ({"word": StateWord.DRIFTING, "drift": Drift(change=-0.02)}, "↓ drifting -2.0%"),
        ({"word": StateWord.THROTTLED, "throttled": (("power cap", 0.4),)}, "! throttled power"),
        ({"word": StateWord.STEADY, "badges": ("CPU-bound",)}, "≈ steady CPU-bound"),
        ({"word": StateWord.NONE}, "· running"),
        ({"word": StateWord.UNDECIDED}, "? undecided"),
        (
            {"word": StateWord.UNDECIDED, "drift": Drift(detectable=0.012)},
            "no drift seen above 1.2 %",
        ),
        ({"word": StateWord.STEADY, "badges": ("2 modes", "2 modes")}, "≈ steady 2 modes   "),
    ],
)
def test_every_state_has_a_sign_and_a_word(change, words):
    """Colour is never the only carrier of a state."""
    assert words in shown([row(**change)], 140)[1]


@pytest.mark.parametrize(
    ("answer", "ratio", "words"),
    [
        (Answer.FASTER, (0.97, 0.96, 0.98), "▼ 0.970x ±1.0%"),
        (Answer.SLOWER, (1.04, 1.03, 1.05), "▲ 1.040x ±1.0%"),
        (Answer.SAME, (1.001, 0.999, 1.003), "= 1.001x ±0.2%"),
        (Answer.UNDECIDED, (1.2, 0.1, 3.0), "? 1.200x ±>99%"),
        (Answer.UNDECIDED, (1.2, None, None), "? 1.200x "),
    ],
)
def test_every_answer_has_a_sign(answer, ratio, words):
    """Faster, slower, same and not enough data can be told without colour."""
    value, low, high = ratio
    given_ratio = Ratio(answer=answer, ratio=value, low=low, high=high)

    assert words in shown([MATH, row(1, "b", ratio=given_ratio)], 120)[2]


def test_ascii_mode_has_no_other_character():
    """Every cell of the table is ASCII where only ASCII can be shown."""
    rows = [MATH, FLASH, row(2, "näme", state=RowState.FAILED, error="µ"), row(3, "p", parent=0)]

    assert all(line.isascii() for line in shown(rows, 120, ascii_only=True))


def test_name_median_and_state_stay_down_to_thirty_columns():
    """What goes first when it gets narrow are the extra columns."""
    lines = shown([MATH, FLASH], 30)

    assert lines[0].split() == ["name", "median", "state"]
    assert "≈ steady" in lines[2]
    assert "951.2" in lines[2]


def test_cut_names_can_be_told_apart():
    """Other columns go before two rows' names look alike."""
    names = [f"attention(seq={n},kind={k})" for n in (128, 512) for k in ("naive", "math")]

    lines = shown([row(i, name) for i, name in enumerate(names)], 60)

    assert len({line[3:].split(" ")[0] for line in lines[1:]}) == 4


@given(st.integers(1, 250), st.integers(1, 30), st.integers(0, 25))
def test_any_size_gives_lines_of_that_size(width, height, count):
    """No width, height or number of rows breaks the table."""
    rows = [MATH, FLASH, *(row(i + 2, f"kernel[n={i}]") for i in range(count))]

    lines = shown(rows, width, height=height)

    assert len(lines) == height


def test_whole_run_values_by_a_key():
    """The same columns for every sample since the last mark, the last window beside it."""
    both = row(0, "a", 1e-3, whole=Stats(n=9000, median_s=1.5e-3, std_s=2e-4, min_s=0.9e-3))

    window = shown([both], 120, view=ViewState(columns="window"))
    whole = shown([both], 120, view=ViewState(columns="whole"))

    assert " all " in window[0]
    assert "1.500" in window[1]
    assert "whole 9,000" in whole[0]
    assert " now " in whole[0]


def test_a_trend_shows_gaps_and_holds_still_when_flat():
    """Missing bins are blank; noise far below a percent is drawn flat, a rise as a rise."""
    assert sparkline([1.0, math.nan, 2.0], 3, BLOCKS) == "▁ █"
    assert sparkline([1.0, 1.0001, 0.9999], 3, BLOCKS) == "▅▅▄"
    assert sparkline([1.0] * 4, 4, BLOCKS) == "▅▅▅▅"
    assert sparkline([0.0, 0.0], 4, BLOCKS).strip()
    assert sparkline([], 4, BLOCKS) == "    "
    assert sparkline([math.inf], 2, ASCII.blocks) == "  "
    assert sparkline(list(range(8)), 8, BLOCKS) == BLOCKS
    assert sparkline(list(range(100)), 3, BLOCKS)[-1] == "█"


def test_the_filter_says_when_nothing_is_left():
    """An empty table is never without a word."""
    lines = shown([MATH], 80, height=3, view=ViewState(pattern="zzz"))

    assert "no benchmark's name holds 'zzz'" in lines[1]


def test_a_row_can_be_copied_as_markdown():
    """The copied text is a whole Markdown table, with pipes in names escaped."""
    copied = one_row(row(0, "a|b", 1e-4), (), "a|b")

    head, rule, values = copied.strip().split("\n")
    assert head.startswith("| benchmark | n | median | std %")
    assert set(rule) <= set("|-: ")
    assert values.startswith("| `a\\|b` | 1,000 | 100.0 µs | 0.50 |")


def test_the_table_under_a_sweep_says_that_it_is_of_one_visit(monkeypatch):
    """Its figures are those of the last clock alone, easily taken for the result."""
    monkeypatch.setattr(fake.FakeStore, "steps", lambda _: ["a clock"])

    assert "benchmark last visit" in shown([MATH, FLASH])[0]


def test_nothing_is_selected_by_having_no_name():
    """A row whose name is empty is one like any other: the first row is the selected one."""
    shown = fake.snapshot(rows=fake.rows(names=("a", "", "b")))

    assert ViewState().selected_row(shown).bench == 0

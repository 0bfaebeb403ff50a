"""The one table of columns: each has a value, a place and a sentence, and shows it there."""

from dataclasses import replace

import pytest

from tests.fakes import screen as screens
from tests.fakes import session as fake
from tests.fakes.session import MS
from usv_tui.model import Answer, Ratio, RowState, StateWord
from usv_tui.report import table as final
from usv_tui.report.columns import COLUMNS, OF_ROWS, SETS, STATISTICS, Kind
from usv_tui.session import export
from usv_tui.session.store import Store
from usv_tui.stats.duet import LaunchRatio
from usv_tui.tui.look import make_look
from usv_tui.tui.screens import detail
from usv_tui.tui.screens import help as help_page
from usv_tui.tui.view import Scene, ViewState
from usv_tui.tui.widgets.table import Table
from usv_tui.units import DASH, row_unit

LOOK = make_look({}, is_ansi=True, is_dark=True, ascii_only=False, no_color=False)


def session():
    """A store with two rows of enough samples for every figure, and its snapshot."""
    store = Store()
    store.apply([fake.start(), *(fake.row(i, n, flops=2e9, bytes=4e6) for i, n in enumerate("ab"))])
    windows = [(bench, MS + 7 * (i * i % 101)) for i in range(200) for bench in (0, 1)]
    store.apply([fake.block(windows, size=2)])
    snapshot = store.snapshot(fake.BEGIN_NS + 10_000 * MS)
    base, other = snapshot.rows
    ratio = Ratio(answer=Answer.FASTER, ratio=0.9, low=0.89, high=0.91, n=200)
    base = replace(base, state=RowState.RUNNING, word=StateWord.SETTLED, ghost_s=1.1e-3)
    base = replace(base, trend=(1e-3, 1.1e-3))
    other = replace(base, bench=1, name="b", is_baseline=False, baseline_name="a", ratio=ratio)
    launch = LaunchRatio(1, 0.01, 0.001, 20)
    beside = {"base_rolling": base.rolling, "base_whole": base.whole}
    other = replace(other, version=1, rival=0, plain_name="b", launch_ratio=launch, **beside)
    return store, replace(snapshot, rows=(base, other))


STORE, SNAPSHOT = session()
ROW = SNAPSHOT.rows[1]


def scene(shown="window"):
    """The session as the screen draws it, with the second row selected."""
    view = ViewState(selected="b", columns=shown)
    return Scene(SNAPSHOT, screens.FakeStore(), view, LOOK, SNAPSHOT.at_ns)


def words_of(page):
    """A page's text, its wrapped lines joined."""
    lines = (line.text if hasattr(line, "text") else line[0] for line in page)
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.key)
def test_a_column_has_a_value_a_sentence_and_a_place(column):
    """None stays without words, without a figure on a run of 200 samples, or nowhere to be seen."""
    assert column.pick(ROW, ROW.rolling) is not None
    assert column.help.endswith(".")
    assert column.live or column.final is not None or column in STATISTICS
    assert set(column.live) <= set(SETS)


def test_keys_and_names_in_json_are_those_of_one_column():
    """No entry takes the place of another."""
    names = [column.json for column in COLUMNS if column.json]

    assert len({column.key for column in COLUMNS}) == len(COLUMNS)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("shown", SETS)
def test_the_live_table_shows_each_column_of_its_set(shown):
    """Every column that belongs to a set has its heading there, and no dash below it."""
    heading, _, line = (strip.text for strip in Table().lines(scene(shown), 400, 3))

    for column in COLUMNS:
        if shown in column.live and column.kind is not Kind.RATIO and column.key != "n":
            assert column.head in heading
    assert DASH not in line


@pytest.mark.parametrize("markdown", [False, True])
def test_the_final_table_shows_each_column_of_its_own(markdown):
    """Text and Markdown have every column with a place in the final table, and a value in it."""
    lines = final.table(SNAPSHOT.rows, markdown=markdown).split("\n")

    for column in COLUMNS:
        if column.final is not None:
            assert (column.title or column.head) in lines[0]
    assert DASH not in lines[-1]
    assert final.one_row(ROW, SNAPSHOT.rows, "b").split("\n")[0].count("|") >= 8


def test_detail_page_and_help_have_all_of_them():
    """Every statistic stands on the detail page, every column in the help."""
    page, help_text = (words_of(p.write(scene(), 400)) for p in (detail, help_page))

    for column in STATISTICS:
        value = column.text(column.pick(ROW, ROW.rolling), row_unit(ROW.whole.median_s, digits=5))
        assert f"{column.head} {value}" in page
    for column in COLUMNS:
        assert f"{column.heading} {column.help}" in help_text


def test_json_holds_every_figure_by_its_name():
    """Statistics stand with the window and with the run, figures of rows with the row."""
    row = export.as_dict(STORE, SNAPSHOT)["rows"][1]

    for part in ("statistics", "rolling"):
        assert list(row[part]) == [column.json for column in STATISTICS if column.json]
        assert None not in row[part].values()
    assert all(row[column.json] is not None for column in OF_ROWS if column.json)

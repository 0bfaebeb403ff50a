"""A session of two versions in every format, and under the screen: all say what the fold says."""

import pytest

from tests.fakes.duet import BEGIN_NS, MS, DuetRun
from usv_tui.cli.export import EXPORTS
from usv_tui.cli.main import main
from usv_tui.records import SCHEMA, End, Start
from usv_tui.report import table
from usv_tui.session.journal import Journal
from usv_tui.session.opened import open_session
from usv_tui.session.replay import Playhead, ReplaySession
from usv_tui.session.store import Store
from usv_tui.timesource import ManualTime


@pytest.fixture(scope="module")
def records():
    """Five launches of two rows, one of them 5 % slower."""
    run = DuetRun(({"a": 2 * MS, "b": 3 * MS}, {"a": 2.1 * MS, "b": 3 * MS}))
    run.run()
    made = [Start(SCHEMA, BEGIN_NS, 0, "file.py", run.made[0][1].config), *run.records]
    store = Store()
    store.apply(made)
    return [*made, End(store.last_ns, "done")]


@pytest.fixture(scope="module")
def path(records, tmp_path_factory):
    """Their file."""
    journal = Journal(tmp_path_factory.mktemp("ab") / "ab.usv")
    for i in range(0, len(records), 40):
        journal.add(records[i : i + 40])
        journal.flush()
    journal.close()
    return journal.path


@pytest.mark.parametrize("kind", EXPORTS)
def test_two_versions_can_be_exported(path, tmp_path, kind, capsys):
    """Every format takes both versions' rows, and none complains."""
    out = tmp_path / "out"

    assert main(["export", str(path), "--to", kind, "-o", str(out)]) == 0

    assert not capsys.readouterr().err
    files = [out] if out.is_file() else [p for p in out.rglob("*") if p.is_file()]
    content = b"".join(p.read_bytes() for p in files)
    assert b"a" in content
    if kind not in ("parquet", "nvbench"):
        assert b"old" in content


def test_two_versions_say_the_same_live_opened_and_replayed(records, path):
    """The table of the fold, of the file, and of a replay that was sought through."""
    live = Store()
    live.apply(records)
    said = table.render(live.snapshot(live.last_ns))
    replay = ReplaySession(path, Playhead(ManualTime(0)))

    assert table.render(open_session(path).snapshot) == said
    for way in ("back", "start", "end"):
        replay.seek(way)
    while replay.pump():
        pass
    assert table.render(replay.store.snapshot(live.last_ns)) == said
    assert "5.0" in said or "1.05" in said

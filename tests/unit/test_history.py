"""`usv-tui history`: what is kept, one benchmark over it, and pruning on request only."""

import os

import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.cli.main import main
from usv_tui.model import DeviceInfo, RunConfig
from usv_tui.records import SCHEMA, Device, End, Start
from usv_tui.session import history, journal
from usv_tui.timesource import NS_PER_S

DAY_NS = 86_400 * NS_PER_S


@pytest.fixture
def keep(tmp_path):
    """Keeps a session of one row, so many days after the first."""

    def write(name, *, day=0, by=1.0, row="a", is_whole=True):
        env = {"git": {"commit": "abcdef0123456789", "dirty": bool(day % 2)}}
        wall_ns = 1_700_000_000 * NS_PER_S + day * DAY_NS
        rng = np.random.default_rng(day)
        made = journal.Journal(tmp_path / f"{name}.usv")
        made.add(
            [
                Start(SCHEMA, BEGIN_NS, wall_ns, "bench.py", RunConfig(), env),
                Device(BEGIN_NS, DeviceInfo(uuid="GPU-1", name="H100", kind="nvidia")),
                fake.timing("event"),
                fake.row(0, row),
                *fake.series(0, [int(5 * MS * by * w) for w in rng.normal(1, 0.001, 200)]),
                *([End(BEGIN_NS + 1_100 * MS, "asked to")] if is_whole else []),
            ]
        )
        made.close()
        os.utime(made.path, ns=(wall_ns, wall_ns))
        return made.path

    return write


def said(capsys, *argv):
    """The exit code and what was printed."""
    code = main(["history", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out + err


def test_sessions_are_listed_newest_first(keep, tmp_path, capsys):
    """Date, file, suite, commit (+ for a dirty tree), device; one that is partial says so."""
    keep("old")
    keep("new", day=1, is_whole=False)
    (tmp_path / "notes.txt").write_text("not a session")

    code, out = said(capsys, tmp_path)
    first, second = out.splitlines()[2:]

    assert code == 0
    assert "new.usv" in first
    assert "partial" in first
    assert "abcdef01+" in first
    assert "old.usv" in second
    assert "abcdef01 " in second
    assert "H100" in second


def test_what_is_no_session_costs_nobody_its_line(keep, tmp_path, capsys):
    """It says why it cannot be read."""
    keep("good")
    (tmp_path / "bad.usv").write_text("hello")

    _, out = said(capsys, tmp_path)

    assert "is not a usv-tui session" in out
    assert "good.usv" in out


@pytest.mark.parametrize("argv", [["history"], ["show"], ["export"], ["compare"]])
def test_a_link_to_itself_is_one_line(tmp_path, capsys, argv):
    """It is no folder, no session, and not missing either."""
    loop = tmp_path / "loop.usv"
    loop.symlink_to(loop)

    assert main([*argv, str(loop), *([str(loop)] if argv == ["compare"] else [])]) == 2

    told = capsys.readouterr().err.strip()
    assert "Too many levels of symbolic links" in told
    assert "\n" not in told


def test_only_the_newest_are_opened(keep, tmp_path, capsys):
    """And how many more there are is said."""
    for day in range(3):
        keep(f"s{day}", day=day)

    _, out = said(capsys, tmp_path, "-n", 2)

    assert "s0.usv" not in out
    assert "and 1 older" in out


def test_one_benchmark_over_the_sessions(keep, tmp_path, capsys):
    """Oldest first, the slowest furthest to the right; sessions without it are left out."""
    for day, by in enumerate((1.0, 1.5, 1.2)):
        keep(f"s{day}", day=day, by=by)
    keep("other", day=4, row="b")

    code, out = said(capsys, tmp_path, "--plot", "a")
    places = [line.rindex("o") for line in out.splitlines()[3:]]

    assert code == 0
    assert len(places) == 3
    assert places[0] < places[2] < places[1]


def test_pruning_lists_and_deletes_only_when_told_to(keep, tmp_path, capsys):
    """By age: older than the limit; the newer one stays."""
    old, new = keep("old"), keep("new", day=5000)

    _, out = said(capsys, tmp_path, "--prune", "30d")
    assert "1 of 2 sessions" in out
    assert "would be deleted" in out
    assert old.exists()

    _, out = said(capsys, tmp_path, "--prune", "30d", "--yes")
    assert "deleted" in out
    assert not old.exists()
    assert new.exists()


def test_pruning_spares_what_is_being_written_and_what_is_no_session(keep, tmp_path, capsys):
    """Only sessions whose run is over go; a foreign file of that name, and a live one, stay."""
    over = keep("over")
    foreign = tmp_path / "foreign.usv"
    foreign.write_bytes(b"somebody else's work")
    live = journal.Journal(tmp_path / "live.usv")
    live.add([Start(SCHEMA, BEGIN_NS, 1, "bench.py", RunConfig(), {})])
    live.flush()
    for path in (foreign, live.path):
        os.utime(path, (0, 0))

    code, out = said(capsys, tmp_path, "--prune", "0d", "--yes")

    assert code == 0
    assert "1 of 1 sessions" in out
    assert "2 more stay" in out
    assert not over.exists()
    assert foreign.exists()
    assert live.path.exists()
    assert "being written" in said(capsys, tmp_path)[1]

    live.close()
    assert "partial" in said(capsys, tmp_path)[1]
    said(capsys, tmp_path, "--prune", "0d", "--yes")
    assert not live.path.exists()


@pytest.mark.parametrize("is_default", [True, False])
def test_pruning_takes_the_log_of_a_session_that_was_named_here(
    keep, tmp_path, capsys, monkeypatch, is_default
):
    """In the default folder the log goes too; beside a named session it may be the user's."""
    monkeypatch.setattr(
        journal, "sessions_dir", lambda: tmp_path if is_default else tmp_path / "other"
    )
    keep("old")
    log = tmp_path / "old.log"
    log.write_text("printed")

    said(capsys, tmp_path, "--prune", "0d", "--yes")

    assert log.exists() is not is_default


def test_a_file_that_is_no_session_has_no_length(tmp_path, capsys):
    """It took no 00:00: that is not known."""
    (tmp_path / "foreign.usv").write_bytes(b"somebody else's work")

    assert "00:00" not in said(capsys, tmp_path)[1]


def test_pruning_by_size_takes_the_oldest(keep, tmp_path):
    """The newest that fit stay."""
    paths = [keep(f"s{day}", day=day) for day in range(4)]
    sizes = [path.stat().st_size for path in paths]
    kept = history.kept_in(tmp_path)

    limit = f"{(sizes[3] + sizes[2] + 1) / 1e6:.9f}MB"

    assert [each.path for each in history.to_prune(kept, limit, 0)] == paths[:2]
    assert history.to_prune(kept, "1GB", 0) == []


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["none"], "there is no folder"),
        (["empty"], "holds no session"),
        (["full", "--plot", "z"], "times 'z'"),
        (["full", "--prune", "soon"], "is no age or size"),
        (["full", "--yes"], "goes with --prune"),
        (["full", "--prune", "1d", "--plot", "a"], "not allowed with argument"),
        (["full", "-n", "0"], "not a whole number above 0"),
    ],
)
def test_a_mistake_is_one_line(keep, tmp_path, capsys, argv, told):
    """What and how to mend it, and exit code 2."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    path = keep("s")
    path.rename(tmp_path / "full" / path.name)

    code, out = said(capsys, tmp_path / argv[0], *argv[1:])

    assert code == 2
    assert told in out
    assert out.count("\n") == 1

"""`usv-tui compare`: saved sessions against the first, and only where they may be compared."""

import json

import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS, US
from usv_tui.cli.main import main
from usv_tui.model import DeviceInfo, Flag
from usv_tui.records import Chosen, Device, End
from usv_tui.session.journal import Journal

N = 1200


@pytest.fixture
def saved(tmp_path):
    """Writes a session of two rows on one card, at one clock, and gives its path."""

    def write(name, *, by=1.0, mhz=1500.0, uuid="GPU-1", cache=None, rows=("a", "b"), seed=0, n=N):
        path = tmp_path / f"{name}.usv"
        rng = np.random.default_rng(seed)
        records = [
            fake.start(),
            Chosen(BEGIN_NS, "cuda:0", "asked for", {}),
            Device(BEGIN_NS, DeviceInfo(uuid=uuid, name="card", kind="nvidia", driver="580")),
            fake.timing("event"),
            *(fake.row(i, row) for i, row in enumerate(rows)),
        ]
        at_ns = BEGIN_NS
        for round_ in range(n):
            windows = [int(5 * MS * by * w) for w in rng.normal(1, 0.001, len(rows))]
            records.append(fake.block(list(enumerate(windows)), at_ns, round_=round_))
            at_ns += sum(windows) + 100 * US
            if round_ % 10 == 0:
                records.append(fake.reading(at_ns, sm_mhz=mhz, temp_c=50.0, reasons=0))
        records.append(End(at_ns, "asked to"))
        journal = Journal(path)
        journal.add(records)
        journal.close()
        assert not journal.failure
        return path

    return write


def compare(capsys, *argv):
    """The exit code and the JSON of a comparison."""
    code = main(["compare", *map(str, argv), "--to", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


def test_equal_sessions_are_the_same_and_a_slower_one_is_slower(saved, capsys):
    """Single runs: same within 1 %, or slower by more."""
    code, same = compare(capsys, saved("one"), saved("two", seed=1))
    assert code == 0
    assert [row["answer"] for row in same["rows"]] == ["same", "same"]

    code, slow = compare(capsys, saved("three"), saved("four", by=1.03, seed=1))
    assert [row["answer"] for row in slow["rows"]] == ["slower", "slower"]
    assert slow["rows"][0]["ratio"] == pytest.approx(1.03, abs=0.001)


@pytest.mark.parametrize(
    ("by", "condition", "code"),
    [
        (1.03, "slower>2%", 1),
        (1.03, "slower", 1),
        (1.03, "slower > 5 %", 0),
        (0.97, "faster>2%", 1),
        (0.97, "slower>2%", 0),
        (1.01, "slower>2%", 6),
    ],
)
def test_a_condition_decides_the_exit_code(saved, capsys, by, condition, code):
    """1 when a row is beyond it, 6 when there is no answer, else 0."""
    argv = [saved("one"), saved("two", by=by, seed=1), "--fail-on", condition]

    assert compare(capsys, *argv)[0] == code


@pytest.mark.parametrize(
    ("other", "reason"),
    [({"mhz": 1400.0}, "clock"), ({"uuid": "GPU-2"}, "card"), ({"n": 120}, "few-readings")],
)
def test_what_may_not_be_compared_is_said_and_has_no_answer(saved, capsys, other, reason):
    """Another clock, another card, too little: no `slower` for 3 % more time; the code is 6."""
    argv = [saved("one"), saved("two", by=1.03, **other), "--fail-on", "slower>2%"]
    code, found = compare(capsys, *argv)

    assert code == 6
    for row in found["rows"]:
        assert row["answer"] == "not enough data"
        assert row["claim"] == "may not be compared"
        assert reason in row["reasons"]
        assert row["words"].startswith("may not be compared: ")


def test_another_card_on_purpose_has_an_answer(saved, capsys):
    """`--across card`."""
    argv = [saved("one"), saved("two", by=1.03, uuid="GPU-2"), "--across", "card"]

    assert compare(capsys, *argv)[1]["rows"][0]["answer"] == "slower"


def test_folders_are_repeated_runs(saved, capsys, tmp_path):
    """Three sessions a side get an interval over runs."""
    for side, by in (("old", 1.0), ("new", 1.004)):
        (tmp_path / side).mkdir()
        for k, noise in enumerate((0.9998, 1.0, 1.0002)):
            path = saved(f"{side}{k}", by=by * noise, seed=k)
            path.rename(tmp_path / side / path.name)

    _, found = compare(capsys, tmp_path / "old", tmp_path / "new")

    for row in found["rows"]:
        assert row["claim"] == "repeated runs"
        assert row["runs"] == [3, 3]
        assert row["low"] < 1.004 < row["high"]


def test_rows_of_one_side_only_are_listed(saved, capsys):
    """And several sessions are each held against the first."""
    argv = [saved("one"), saved("two", rows=("b", "c")), saved("three", rows=("a",), by=1.5)]
    main(["compare", *map(str, argv)])
    out = capsys.readouterr().out

    assert "only in two: c" in out
    assert "lacking in two: a" in out
    assert "lacking in three: b" in out
    assert "slower" in out


def test_nothing_in_common_is_said(saved, capsys):
    """And is no success for who asked for an answer."""
    argv = [saved("one"), saved("two", rows=("c", "d")), "--fail-on", "slower"]

    assert main(["compare", *map(str, argv)]) == 6
    assert "no row is in both" in capsys.readouterr().out


def test_warm_up_does_not_count(tmp_path, capsys, saved):
    """A row whose samples were all left out has nothing to be compared."""
    path = tmp_path / "warm.usv"
    journal = Journal(path)
    flags = int(Flag.WARMUP)
    warm = fake.series(0, [5 * MS] * 100, flag=flags)
    journal.add([fake.start(), fake.timing("event"), fake.row(0, "a"), *warm])
    journal.close()

    _, found = compare(capsys, path, saved("one"))

    assert found["rows"][0]["reasons"] == ["no-samples"]
    assert "warm is partial" in found["caveats"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["one.usv"], "give two or more"),
        (["one.usv", "none.usv"], "cannot read"),
        (["one.usv", "."], "holds no session"),
        (["one.usv", "text.usv"], "is not a usv-tui session"),
        (["one.usv", "one.usv", "--fail-on", "fast"], "is not like slower>2%"),
        (["one.usv", "one.usv", "--across", "weather"], "is none of card"),
        (["one.usv", "one.usv", "-o", "one.usv"], "the name is a session's"),
    ],
)
def test_a_mistake_is_one_line(saved, capsys, tmp_path, monkeypatch, argv, told):
    """What, where, and exit code 2."""
    saved("one", n=60)
    (tmp_path / "text.usv").write_text("hello, this is no session")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)

    arguments = [str(tmp_path / a) if a.endswith(".usv") else a for a in argv]

    assert main(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_equal_rows_of_a_session_with_itself_are_the_same(saved, capsys):
    """The time between two sessions plays no part in it."""
    path = saved("one")
    _, found = compare(capsys, path, path)

    assert [row["ratio"] for row in found["rows"]] == [1.0, 1.0]


def test_another_sessions_values_stand_beside_and_are_not_paired(saved, capsys, tmp_path):
    """`--baseline OLD.usv`: two columns of their own, a note on what they are, kept in the file."""
    old = saved("old", by=1.2, rows=("gemm", "other"))
    new = tmp_path / "new.usv"

    run = ["demo", "steady", "--headless", "--iters", "60", "--baseline", str(old)]
    assert main([*run, "--save", str(new)]) == 0
    out = capsys.readouterr().out
    main(["export", str(new)])
    data = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in data["rows"]}

    assert "x before" in out
    assert "before     old.usv, card" in out
    assert "not paired" in out
    assert rows["gemm"]["before_s"] == pytest.approx(6e-3, rel=0.01)
    assert rows["gemm"]["over_before"] == pytest.approx(1.3 / 6, rel=0.05)
    assert rows["copy"]["before_s"] is None


def test_a_baseline_session_that_cannot_be_read_ends_the_run_at_once(tmp_path, capsys):
    """Nothing is measured against nothing."""
    argv = ["demo", "steady", "--headless", "--iters", "5", "--no-save"]
    assert main([*argv, "--baseline", str(tmp_path / "none.usv")]) == 2
    assert "cannot read" in capsys.readouterr().err

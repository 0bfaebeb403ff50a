from pathlib import Path

import pytest

from tests.fakes import session as fake
from usv_tui.cli.main import main
from usv_tui.records import End
from usv_tui.session import outputs
from usv_tui.session.journal import Journal

KINDS = ("json", "csv", "table", "markdown")


@pytest.fixture
def session(tmp_path):
    """A saved session of two rows."""
    path = tmp_path / "run.usv"
    journal = Journal(path)
    journal.add([*fake.two_rows(50), End(fake.BEGIN_NS + 1, "quit")])
    journal.close()
    return path


def export(session, kind, target):
    """The exit code of an export."""
    return main(["export", str(session), "--to", kind, "-o", str(target)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_earlier_output_of_its_kind_is_replaced(session, tmp_path, kind):
    """The second export to the same name succeeds: what it replaces is its own."""
    target = tmp_path / "out.txt"

    assert export(session, kind, target) == 0
    first = target.read_bytes()
    assert export(session, kind, target) == 0

    assert target.read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.txt", "run.usv"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"my notes\n"),
        ("package.json", b'{"name": "something else"}'),
        ("data.csv", b"a,b\n1,2\n"),
        ("bench.py", b"BENCHMARKS = {}\n"),
        ("empty.py", b""),
        ("other.usv", b"USVJ\x01\r\n\x1a"),
        ("blob.bin", bytes(range(256))),
        ("README.md", b"# benchmark\n\nthe median of it\n"),
    ],
)
def test_what_somebody_else_wrote_stays(session, tmp_path, capsys, kind, name, content):
    """Exit 2, one line that names the file, and its bytes as they were."""
    target = tmp_path / name
    target.write_bytes(content)

    assert export(session, kind, target) == 2

    assert target.read_bytes() == content
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_never_replaced_by_its_export(session, tmp_path, kind):
    """Neither by its name nor through a symbolic or a hard link."""
    before = session.read_bytes()
    (tmp_path / "soft.json").symlink_to(session)
    (tmp_path / "hard.json").hardlink_to(session)

    for target in (session, tmp_path / "soft.json", tmp_path / "hard.json"):
        assert export(session, kind, target) == 2

    assert session.read_bytes() == before


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_a_run_does_not_begin_when_its_output_would_replace_its_benchmark(tmp_path, capsys, option):
    """The benchmark file under another name is refused before anything is imported."""
    ran = tmp_path / "ran"
    bench = tmp_path / "bench.txt"
    bench.write_text(f"open({str(ran)!r}, 'w')\nBENCHMARKS = {{'a': lambda: 1}}\n")

    code = main([str(bench), "--headless", "--no-save", option, str(bench)])

    assert code == 2
    assert "not replaced" in capsys.readouterr().err
    assert "BENCHMARKS" in bench.read_text()
    assert not ran.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--json", "same.out", "--csv", "same.out"],
        ["--json", "same.out", "--save", "same.out"],
        ["--csv", "./same.out", "--save", "same.out"],
    ],
)
def test_two_outputs_of_one_name_are_refused(tmp_path, monkeypatch, capsys, options):
    """Whichever came last would destroy the other: both options are named."""
    monkeypatch.chdir(tmp_path)
    Path("bench.py").write_text("BENCHMARKS = {'a': lambda: 1}\n")

    assert main(["bench.py", "--headless", *options]) == 2

    said = capsys.readouterr().err
    assert options[0] in said
    assert options[2] in said
    assert [p.name for p in tmp_path.iterdir()] == ["bench.py"]


def test_devices_and_pipes_are_written_to_as_they_are(session):
    """/dev/null stays a device, and several outputs may go there."""
    assert export(session, "json", "/dev/null") == 0
    outputs.check_apart({"--json": Path("/dev/null"), "--csv": Path("/dev/null")})

    assert not Path("/dev/null").is_file()


def test_outputs_lie_where_the_user_stood(tmp_path, monkeypatch, capsys):
    """Also when the benchmark file changes the working directory, or leaves one that is gone."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "moves.py").write_text(
        "import os\nos.chdir('gone')\nos.rmdir(os.getcwd())\n"
        "BENCHMARKS = {'a': lambda: sum(range(100))}\n"
    )
    monkeypatch.chdir(tmp_path)
    argv = ["--headless", "--device", "cpu", "--iters", "3", "--warmup", "0"]
    outputs = ["--save", "s.usv", "--json", "s.json", "--csv", "s.csv"]

    assert main(["moves.py", *argv, *outputs]) == 0

    assert "session saved: s.usv" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} >= {"s.usv", "s.json", "s.csv"}


def test_a_current_directory_that_is_gone_is_one_line(tmp_path, monkeypatch, capsys):
    """Paths cannot be found from there: what to do, and exit code 2."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert main(["history", "none"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "usv-tui: the current directory is gone (cd to one that is there)"
    ]

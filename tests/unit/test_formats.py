"""Sessions as neighbours read them: every format, and the neighbours' own readers where present."""

import importlib.util
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS, US
from usv_tui.cli.export import EXPORTS
from usv_tui.cli.main import main
from usv_tui.model import DeviceInfo, Flag
from usv_tui.records import Device, End
from usv_tui.report.formats import FORMATS
from usv_tui.session.journal import Journal

ROUNDS = 400
FREE_MHZ = 1500.0


def installed(name):
    """Whether a neighbour is here."""
    return importlib.util.find_spec(name) is not None


@pytest.fixture
def saved(tmp_path):
    """Writes a session of compute-bound rows: `work` in cycles, at a clock; gives its path."""

    def write(name, *, work=1.0, mhz=FREE_MHZ, seed=0, rows=None):
        rng = np.random.default_rng(seed)
        rows = rows or [("a[n=1,x=lo]", {"n": 1, "x": "lo"}), ("a[n=2,x=hi]", {"n": 2, "x": "hi"})]
        records = [
            fake.start(),
            Device(BEGIN_NS, DeviceInfo(uuid="GPU-1", name="card", kind="nvidia")),
            fake.timing("event"),
            *(fake.row(i, n, params=params, group="a") for i, (n, params) in enumerate(rows)),
            *fake.series(0, [9 * MS], flag=int(Flag.WARMUP)),
        ]
        at_ns = BEGIN_NS + 20 * MS
        for round_ in range(1, ROUNDS + 1):
            spread = rng.normal(1, 0.002, len(rows))
            windows = [int(5 * MS * work * FREE_MHZ / mhz * w) for w in spread]
            records.append(fake.block(list(enumerate(windows)), at_ns, round_=round_))
            at_ns += sum(windows) + 100 * US
            records.append(fake.reading(at_ns - 10 * MS, sm_mhz=mhz, temp_c=50.0, power_mw=300_000))
        journal = Journal(tmp_path / f"{name}.usv")
        journal.add([*records, End(at_ns, "asked to")])
        journal.close()
        return journal.path

    return write


def export(session, kind, output):
    """The written file."""
    assert main(["export", str(session), "--to", kind, "-o", str(output)]) == 0
    return output


def test_every_format_can_be_asked_for():
    """The command line and the table of formats agree."""
    assert set(EXPORTS) == {"json", "csv", "table", "markdown", *FORMATS}


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_may_replace_its_like_and_nothing_else(saved, tmp_path, kind, capsys):
    """Twice to one name is well; a session, a Python file or somebody's text stays."""
    needs = {"parquet": "pyarrow", "svg": "matplotlib", "html": "plotly"}
    if kind in needs:
        pytest.importorskip(needs[kind])
    session = saved("one")
    output = export(session, kind, tmp_path / "out.x")
    first = output.read_bytes()
    export(session, kind, output)
    assert len(output.read_bytes()) == len(first)
    mine = tmp_path / "mine.x"
    mine.write_text("my own words\n")

    for other in (session, tmp_path / "suite.py", mine):
        assert main(["export", str(session), "--to", kind, "-o", str(other)]) == 2

    assert mine.read_text() == "my own words\n"
    assert session.read_bytes()[:4] == b"USVJ"
    capsys.readouterr()


@pytest.mark.parametrize("kind", [k for k, f in FORMATS.items() if f.is_binary or f.has_folders])
def test_what_stdout_cannot_hold_is_one_line(saved, kind, capsys):
    """With the option to give."""
    assert main(["export", str(saved("one")), "--to", kind]) == 2
    assert "-o FILE" in capsys.readouterr().err


def referee(*files):
    """What nvbench's own comparer says of two files."""
    script = "cuda.bench.scripts.nvbench_compare_robust"
    done = subprocess.run(
        [sys.executable, "-m", script, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return [w for w in ("SAME", "SLOW", "FAST", "AMBG", "UNKNOWN") if f"{w}\x1b" in done.stdout]


@pytest.mark.skipif(not installed("cuda.bench") if installed("cuda") else True, reason="no nvbench")
@pytest.mark.parametrize(
    ("changes", "said"),
    [({}, ["SAME"]), ({"mhz": 1365.0}, ["AMBG"]), ({"work": 1.1}, ["SLOW"])],
    ids=["same code", "same code at a lower clock", "10 % more cycles"],
)
def test_nvbenchs_own_comparer_reads_ours(saved, tmp_path, changes, said):
    """SAME for equal code, SLOW for more work, and never SLOW for equal code at a lower clock."""
    one = export(saved("one"), "nvbench", tmp_path / "one.json")
    two = export(saved("two", seed=1, **changes), "nvbench", tmp_path / "two.json")

    assert referee(one, two) == said


def test_nvbenchs_bulk_files_hold_every_counted_sample(saved, tmp_path):
    """Seconds and hertz as float32; the warm-up is not in them."""
    data = json.loads(export(saved("one"), "nvbench", tmp_path / "one.json").read_text())
    [bench] = data["benchmarks"]
    summary = {s["tag"]: s["data"] for s in bench["states"][0]["summaries"]}
    [name, size] = summary["nv/json/bin:nv/cold/sample_times"]
    times = np.fromfile(tmp_path / name["value"], "<f4")

    assert int(size["value"]) == times.size == ROUNDS
    assert times.mean() == pytest.approx(5e-3, rel=0.01)
    assert [axis["name"] for axis in bench["axes"]] == ["n", "x"]
    assert bench["axes"][0]["values"][1]["value"] == 2


def test_a_folder_of_somebody_elses_is_not_touched(saved, tmp_path, capsys):
    """`FILE-bin` with other things in it."""
    folder = tmp_path / "one.json-bin"
    folder.mkdir()
    (folder / "thesis.txt").write_text("all of it")

    argv = ["export", str(saved("one")), "--to", "nvbench", "-o", str(tmp_path / "one.json")]
    assert main(argv) == 2
    assert "holds thesis.txt" in capsys.readouterr().err
    assert (folder / "thesis.txt").exists()


@pytest.mark.skipif(not installed("pytest_benchmark"), reason="no pytest-benchmark")
def test_pytest_benchmark_compares_ours(saved, tmp_path):
    """Its `compare` reads two of our files from its storage."""
    storage = tmp_path / "storage" / "machine"
    storage.mkdir(parents=True)
    export(saved("one"), "pytest-benchmark", storage / "0001_one.json")
    export(saved("two", work=1.1), "pytest-benchmark", storage / "0002_two.json")

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest_benchmark",
            "--storage",
            f"file://{storage.parent}",
            "compare",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr
    assert "a[n=1,x=lo] (0001_one)" in done.stdout
    assert "a[n=1,x=lo] (0002_two)" in done.stdout


def test_usvs_load_results_reads_ours(saved, tmp_path):
    """Every sample of every row."""
    usv = pytest.importorskip("usv")
    path = export(saved("one"), "usv", tmp_path / "usv.json")

    rows = usv.load_results(str(path))["results"]

    assert len(rows["a[n=1,x=lo]"]["times"]) == ROUNDS


def test_bencher_and_the_action_get_medians_in_nanoseconds(saved, tmp_path):
    """With what is known of them."""
    session = saved("one")
    bencher = json.loads(export(session, "bencher", tmp_path / "b.json").read_text())
    action = json.loads(export(session, "action", tmp_path / "a.json").read_text())

    latency = bencher["a[n=1,x=lo]"]["latency"]
    assert latency["lower_value"] < latency["value"] < latency["upper_value"]
    assert latency["value"] == pytest.approx(5e6, rel=0.01)
    assert [(e["name"], e["unit"]) for e in action] == [
        ("a[n=1,x=lo]", "ns"),
        ("a[n=2,x=hi]", "ns"),
    ]


def test_parquet_and_csv_lose_no_sample_and_have_parameter_columns(saved, tmp_path):
    """Also the warm-up; what is not known is null."""
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [("a[n=1]", {"n": 1}), ("b", {})]
    session = saved("one", rows=rows)
    table = parquet.read_table(export(session, "parquet", tmp_path / "s.parquet"))
    text = export(session, "csv", tmp_path / "s.csv").read_text()

    assert table.num_rows == 2 * ROUNDS + 1 == len(text.splitlines()) - 1
    assert table.column("param:n").to_pylist().count(None) == ROUNDS
    assert table.column("sm_mhz").null_count > 0
    assert text.splitlines()[0].endswith(",param:n")


HOSTILE = "</script><script>alert(1)</script> $x$ <b>\x1b[2J"


@pytest.mark.parametrize(("kind", "needs"), [("svg", "matplotlib"), ("html", "plotly")])
def test_pictures_hold_the_rows_and_no_foreign_markup(saved, tmp_path, kind, needs):
    """A name is text, whatever is in it."""
    pytest.importorskip(needs)
    session = saved("one", rows=[(HOSTILE, {}), ("calm", {})])
    text = export(session, kind, tmp_path / f"page.{kind}").read_text()

    assert "calm" in text
    assert "<script>alert" not in text
    assert "\x1b" not in text


def test_an_empty_session_can_be_exported(tmp_path):
    """Nothing was timed: an empty list of rows, in every text format."""
    journal = Journal(tmp_path / "none.usv")
    journal.add([fake.start(), End(BEGIN_NS + MS, "q")])
    journal.close()

    for kind in ("nvbench", "pytest-benchmark", "bencher", "action", "usv", "csv"):
        export(journal.path, kind, tmp_path / f"out-{kind}")
    assert json.loads((tmp_path / "out-action").read_text()) == []
    assert io.StringIO((tmp_path / "out-csv").read_text()).readline().startswith("name,round")

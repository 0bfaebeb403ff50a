"""Sessions and ratios in Python: what `load` and `ratios` give."""

import numpy as np
import pytest

import usv_tui
from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui import Measurement
from usv_tui.errors import UsageError
from usv_tui.model import Answer, DeviceInfo, Flag
from usv_tui.records import Device, End
from usv_tui.session.journal import Journal

ROUNDS = 300


@pytest.fixture
def path(tmp_path):
    """A session of two rows with a warm-up sample; b takes 2 % longer."""
    rng = np.random.default_rng(0)
    records = [
        fake.start(seed=7),
        Device(BEGIN_NS, DeviceInfo(uuid="GPU-1", name="card", kind="nvidia")),
        fake.timing("event"),
        fake.row(0, "a[n=1]", group="g", params={"n": 1}, flops=1e9, is_baseline=True),
        fake.row(1, "b", group="g"),
        *fake.series(0, [50 * MS], flag=int(Flag.WARMUP)),
    ]
    at_ns = BEGIN_NS + 60 * MS
    for round_ in range(1, ROUNDS + 1):
        a, b = (
            int(5 * MS * f * w) for f, w in zip((1, 1.02), rng.normal(1, 0.001, 2), strict=True)
        )
        records.append(fake.block([(0, a), (1, b)], at_ns, round_=round_))
        at_ns += a + b + MS // 10
        records.append(fake.reading(at_ns, sm_mhz=1500.0))
    journal = Journal(tmp_path / "s.usv")
    journal.add([*records, End(at_ns, "asked to")])
    journal.close()
    return journal.path


def test_a_session_has_rows_samples_readings_ratios_and_advice(path):
    """As numpy arrays, by name, with what the table says."""
    session = usv_tui.load(path)
    a, b = session.rows["a[n=1]"], session.rows["b"]

    assert session.complete
    assert session.device.uuid == "GPU-1"
    assert a.params == {"n": 1}
    assert a.columns["seconds"].size == ROUNDS + 1
    assert a.counted.sum() == ROUNDS == a.measurement.n
    assert a.measurement.tflops == pytest.approx(1e9 / a.measurement.median / 1e12)
    assert a.columns["flags"][0] == "warmup"
    assert session.readings["sm_mhz"].tolist() == [1500.0] * ROUNDS
    assert session.readings["t_s"].size == ROUNDS
    assert set(session.ratios) == {"b"}
    assert b.baseline == "a[n=1]"
    assert b.ratio.low < 1.02 < b.ratio.high
    assert session.advice.verdict


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_samples_come_as_a_frame(path, library):
    """One line a sample, parameters as columns."""
    pytest.importorskip(library)
    frame = usv_tui.load(path).frame(library)

    assert len(frame) == 2 * ROUNDS + 1
    assert {"name", "seconds", "sm_mhz", "param:n"} <= set(frame.columns)


def test_a_frame_of_nothing_installed_says_what_to_install(path, monkeypatch):
    """One line with the command."""
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(UsageError, match=r"needs pandas or polars.*pip install pandas"):
        usv_tui.load(path).frame()
    with pytest.raises(UsageError, match="no frames of 'excel'"):
        usv_tui.load(path).frame("excel")


def test_a_session_that_is_not_whole_warns(path):
    """What can be read of it is given, and a warning says what is not."""
    path.write_bytes(path.read_bytes() * 2)

    with pytest.warns(UserWarning, match="ANOTHER SESSION FOLLOWS"):
        session = usv_tui.load(path)

    assert not session.complete
    assert len(session.rows) == 2


def test_what_is_no_session_is_refused(tmp_path):
    """With the reason."""
    (tmp_path / "x.usv").write_text("nothing of the kind")
    with pytest.raises(UsageError, match="is not a usv-tui session"):
        usv_tui.load(tmp_path / "x.usv")


def result(seconds, seed=0):
    """What `do_bench_many` gives for one callable."""
    return Measurement(np.asarray(seconds), seed=seed)


def test_interleaved_results_have_paired_ratios_with_intervals():
    """A drift that falls on all alike does not widen them."""
    rng = np.random.default_rng(1)
    drift = np.linspace(1, 1.3, 400)
    base = result(1e-3 * drift * rng.normal(1, 0.002, 400))
    slow = result(1.05e-3 * drift * rng.normal(1, 0.002, 400))
    found = usv_tui.ratios({"base": base, "slow": slow})

    assert set(found) == {"slow"}
    assert found["slow"].answer is Answer.SLOWER
    assert found["slow"].low < 1.05 < found["slow"].high
    assert found["slow"].high / found["slow"].low < 1.005


def test_intervals_of_results_cover_what_they_should():
    """One look at one result: 95 of 100, within the error of so many trials."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        pair = {k: result(1e-3 * rng.normal(1, 0.01, 200)) for k in "ab"}
        found = usv_tui.ratios(pair)["b"]
        covered += found.low <= 1 <= found.high

    assert 0.92 <= covered / 300 <= 1


def test_results_that_were_not_interleaved_have_no_interval():
    """One after the other: a drift between them would be taken for a difference."""
    found = usv_tui.ratios({"a": result([1.0] * 9, None), "b": result([2.0] * 9, None)})["b"]

    assert found.ratio == 2.0
    assert found.low is None
    assert found.answer is Answer.UNDECIDED
    assert found.note == "not interleaved: no interval"


def test_a_baseline_that_is_not_there_is_refused():
    """By name, with those that are."""
    with pytest.raises(UsageError, match=r"no result is named 'c'.*a, b"):
        usv_tui.ratios({"a": result([1.0]), "b": result([1.0])}, "c")
    with pytest.raises(UsageError, match="has no samples"):
        usv_tui.ratios({"a": result([]), "b": result([1.0])})
    assert usv_tui.ratios({}) == {}


def test_real_results_have_ratios():
    """Of callables that were timed here."""
    fns = {"one": lambda: sum(range(200)), "three": lambda: sum(range(600))}
    results = usv_tui.do_bench_many(
        fns, iters=60, warmup=5, inner="auto", target_window_s=2e-4, interleave=True, timer="wall"
    )

    assert usv_tui.ratios(results)["three"].ratio > 1.3

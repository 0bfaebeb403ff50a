import json
from importlib import resources

import pytest

from usv_tui.cli import explain
from usv_tui.diagnosis.vocabulary import BADGES, DISBELIEVED
from usv_tui.errors import UsageError
from usv_tui.model import Answer, Ratio
from usv_tui.report.formats import verdicts
from usv_tui.report.wording.codes import CODES, NOT_BELIEVABLE, code_of
from usv_tui.session.snapshot import RowView, Snapshot, Told
from usv_tui.stats.rolling import Stats

BASE = RowView(0, "base", "g", is_baseline=True, whole=Stats(n=100, median_s=1e-3))


def row(answer=Answer.FASTER, **options):
    """A row of group g that is half as long as its baseline."""
    ratio = Ratio(answer=answer, ratio=0.5, low=0.49, high=0.51, n=100)
    whole = Stats(n=100, median_s=5e-4)
    options = {"whole": whole, "ratio": ratio, "baseline_name": "base"} | options
    return RowView(1, "mine", "g", **options)


def told(code, name="mine"):
    """Something that nobody may overlook, of a row."""
    return Told(code, "error", name, 0, 1, "words", {"badge": "x", "window_ns": 5})


def lines(*rows, **options):
    """What is written, read again and held against the schema."""
    found = [json.loads(s) for s in verdicts.text_of(Snapshot(rows=rows, **options)).splitlines()]
    text = resources.files("usv_tui.report.formats").joinpath("verdicts.schema.json").read_text()
    kinds = {k["properties"]["kind"]["const"]: k for k in json.loads(text)["oneOf"]}
    for line in found:
        schema = kinds[line["kind"]]
        assert set(schema["required"]) == set(schema["properties"]) == set(line)
        assert line["schema"] == verdicts.VERSION == schema["properties"]["schema"]["const"]
    answers = set(kinds["row"]["properties"]["verdict"]["enum"])
    assert {line["verdict"] for line in found if line["kind"] == "row"} <= answers
    return found


@pytest.mark.parametrize(
    ("answer", "verdict", "code"),
    [
        (Answer.FASTER, "faster", "measured"),
        (Answer.SLOWER, "slower", "measured"),
        (Answer.SAME, "same", "measured"),
        (Answer.MOVING, "not_enough_data", "still-moves"),
        (Answer.UNDECIDED, "not_enough_data", "undecided"),
    ],
)
def test_each_answer_has_a_verdict(answer, verdict, code):
    """A line a row and one of the run; a ratio stands only beside an answer."""
    base, mine, run = lines(BASE, row(answer))

    assert (base["verdict"], base["code"]) == ("same", "baseline")
    assert (mine["verdict"], mine["code"]) == (verdict, code)
    assert (mine["ratio"] is None) == (verdict == "not_enough_data")
    assert run["kind"] == "run"


@pytest.mark.parametrize("name", DISBELIEVED)
def test_what_is_not_believable_is_never_faster(name):
    """A finding that takes the row's time away stands before any ratio, with its evidence."""
    _, mine, _ = lines(BASE, row(), told=(told(name),))

    assert (mine["verdict"], mine["code"]) == ("not_believable", code_of(name))
    assert mine["ratio"] is mine["interval"] is None
    assert mine["evidence"] == {"window_ns": 5}


def test_a_baseline_that_is_not_believable_takes_the_verdicts_of_its_group():
    """No row is compared with a time that is no time of its work."""
    _, mine, _ = lines(BASE, row(), told=(told("faster again", "base"),))

    assert (mine["verdict"], mine["code"]) == ("not_believable", "baseline-not-believable")


@pytest.mark.parametrize("kind", ["check", "wrong result", "stale result"])
def test_a_wrong_result_is_not_believable(kind):
    """A failed check is a verdict, and a crash is none."""
    _, wrong, _ = lines(BASE, row(error="differs", error_kind=kind))
    _, crashed, _ = lines(BASE, row(error="no memory", error_kind="oom"))

    assert (wrong["verdict"], wrong["code"]) == ("not_believable", code_of(kind))
    assert (crashed["verdict"], crashed["code"]) == ("not_enough_data", "failed")


def test_a_run_that_is_not_trusted_has_no_verdicts():
    """Where the control differs from its baseline, no row is faster."""
    _, mine, run = lines(BASE, row(), untrusted=(3,))

    assert (mine["verdict"], mine["code"]) == ("not_enough_data", "control-differs")
    assert run["trusted"] is False


def test_every_code_is_explained():
    """What a finding or a verdict is called can be looked up, with what to do."""
    assert {code_of(name) for name in BADGES} <= set(CODES)
    assert set(CODES) >= NOT_BELIEVABLE
    assert all(code.meaning and code.remedy for code in CODES.values())


def test_explain_says_what_a_code_means_and_what_to_do():
    """Given as in a verdict or as under a table; a wrong one names its neighbours."""
    said = []
    assert explain.run(explain.parser().parse_args(["stale-result"]), said.append) == 0
    assert explain.run(explain.parser().parse_args(["stale", "result"]), said.append) == 0
    assert said[0] == said[1]
    assert "not believable" in said[0]
    assert "What to do" in said[0]
    with pytest.raises(UsageError, match="stale-reslt"):
        explain.run(explain.parser().parse_args(["stale-reslt"]), said.append)

import pytest

from usv_tui.model import Notice
from usv_tui.report.wording.notices import sentence


def said(code, row="", **evidence):
    """The sentence of a notice."""
    return sentence(Notice(code=code, at_ns=0, evidence=evidence), row)


def test_a_notice_is_a_sentence_about_its_row():
    """A known code becomes words, with the row's name before them."""
    assert said("stuck", "a[n=1]", seconds=12.3) == (
        "a[n=1]: no sample for 12 s: still inside one call"
    )
    assert said("bad pace", reason="--pace x: no such pace") == "--pace x: no such pace"


def test_a_name_that_is_long_or_blank_is_shown_so_that_it_can_be_told():
    """The middle of a long one is left out, and a blank one is quoted."""
    said_long = said("stuck", "a" * 4000 + "[n=1]", seconds=12.3)

    assert len(said_long) < 160
    assert "aaa…aaa" in said_long
    assert "[n=1]: no sample" in said_long
    assert said("stuck", " ", seconds=12.3).startswith("' ': no sample")


def test_an_unknown_code_shows_its_evidence():
    """A session of a later version is readable: nothing is hidden for want of words."""
    assert said("warp core", value=1.23456, unit="x", badge="warp") == (
        "warp core: value 1.235, unit x"
    )
    assert said("warp core") == "warp core"


@pytest.mark.parametrize("evidence", [{}, {"seconds": None}, {"seconds": "soon"}])
def test_evidence_that_is_missing_or_odd_is_no_error(evidence):
    """A damaged notice still gives a line."""
    assert "\n" not in said("stuck", **evidence)


def test_both_ways_of_being_not_warm_have_words():
    """Still moving at the cap of the warm-up, or seen afterwards in the first windows."""
    assert said("not warmed up", warmup_max_s=10.0) == (
        "still moving after 10 s of warm-up: see its state word"
    )
    assert said("not warmed up", difference=0.0312, windows=40, z=9.0) == (
        "its first 40 windows differ by +3.12% from the rest: a longer --warmup"
    )

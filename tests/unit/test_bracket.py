"""The parent's own bracket of a worker's clock."""

from usv_tui.codes import Code
from usv_tui.model import BenchInfo
from usv_tui.records import AnyRecord, Bench, Noted, Samples
from usv_tui.report.wording.notices import sentence
from usv_tui.session.bracket import Bracket
from usv_tui.timesource import NS_PER_S

MS = 1_000_000


def told(
    rate: float = 1.0, *, seconds: int = 20, stood_s: int = 0, late_ns: int = 0
) -> list[Noted]:
    """A run whose clock goes at a rate after two seconds; in the middle it may stand still."""
    bracket, found = Bracket(), list[AnyRecord]()
    begin = [Bench(0, BenchInfo(bench=b, name=f"row {b}", group="g")) for b in (0, 1)]
    found += bracket.look(begin, 0)
    for i in range(seconds * 20):
        now_ns = i * 50 * MS + (stood_s * NS_PER_S if i > seconds * 10 else 0)
        theirs_ns = (
            now_ns if now_ns < 2 * NS_PER_S else 2 * NS_PER_S + (now_ns - 2 * NS_PER_S) * rate
        )
        delay_ns = (i % 7) * 10 * MS + (late_ns if i % 5 else 0)
        block = Samples(i, 2, round(theirs_ns) - 2 * MS, [0, 1], [0, MS], [MS, MS], [1])
        found += bracket.look([block], now_ns + delay_ns)
    assert all(isinstance(record, Noted) for record in found)
    return found  # type: ignore[return-value]


def test_clocks_that_go_together_are_told_nothing() -> None:
    """Nor is a worker that stands still, or a program that is late now and then."""
    assert told() == []
    assert told(stood_s=60) == []
    assert told(late_ns=3 * NS_PER_S) == []


def test_a_slow_clock_is_told_once_for_each_row() -> None:
    """Within seconds at half the rate, and later at nine tenths."""
    for rate in (0.5, 0.9):
        found = told(rate)
        assert [(n.notice.code, n.notice.bench) for n in found] == [
            (Code.CLOCK_PARTED, 0),
            (Code.CLOCK_PARTED, 1),
        ]
        assert "behind" in sentence(found[0].notice)


def test_a_sample_of_the_future_is_told() -> None:
    """Nothing ends later than it comes."""
    found = told(1.5)
    assert len(found) == 2
    assert "ahead of" in sentence(found[0].notice)

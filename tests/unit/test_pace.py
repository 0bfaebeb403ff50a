import pytest

from usv_tui.engine.pace import Pace
from usv_tui.errors import UsageError

MS = 1_000_000


@pytest.mark.parametrize("spec", ["steady", " steady "])
def test_steady_never_rests(spec):
    """Back to back: no rest at any time or temperature."""
    pace = Pace.parse(spec)

    assert [pace.rest_ns(t, 99.0) for t in (0, 10, 10**12)] == [0, 0, 0]


def test_bursts_alternate():
    """On for 20 ms, off for 50 ms, again and again, counted from the first look."""
    pace = Pace.parse("burst:20,50")

    assert pace.rest_ns(1 * MS, None) == 0
    assert pace.rest_ns(20 * MS, None) == 0
    assert pace.rest_ns(21 * MS, None) == 50 * MS
    assert pace.rest_ns(71 * MS, None) == 0
    assert pace.rest_ns(90 * MS, None) == 0
    assert pace.rest_ns(91 * MS, None) == 50 * MS


@pytest.mark.parametrize("spec", ["cool:60", "cool:≤60", "cool:<=60", "cool:60.0"])
def test_cool_rests_above_its_limit_only(spec):
    """At the limit it goes on; without a temperature it cannot wait for one."""
    pace = Pace.parse(spec)

    assert pace.rest_ns(0, 60.0) == 0
    assert pace.rest_ns(0, 60.5) > 0
    assert pace.rest_ns(0, None) == 0


@pytest.mark.parametrize(
    "spec",
    [
        *("", "steady:1", "gallop", "burst", "burst:", "burst:5", "burst:1,2,3", "burst:0,5"),
        *("burst:5,-1", "burst:a,b", "cool", "cool:", "cool:warm"),
        *("cool:nan", "cool:inf", "cool:-5", "cool:0", "cool:1e9", "burst:nan,1", "burst:1,inf"),
        *("burst:1e400,1", "burst:1,1e300"),
    ],
)
def test_anything_else_is_refused_with_the_choices(spec):
    """A pace that makes no sense is one line with what there is."""
    with pytest.raises(UsageError, match=r"no such pace \(steady, burst:ON_MS,OFF_MS or cool:"):
        Pace.parse(spec)

"""The checks over a running session: every fault is told once, from the fold's own figures."""

import numpy as np
import pytest

from usv_tui.diagnosis.roofline import Roofline
from usv_tui.diagnosis.while_running import Diagnosis
from usv_tui.model import BenchInfo, Flag, Notice, TimerInfo
from usv_tui.records import AnyRecord, Bench, Calibrated, Mark, Noted, Samples, Timing
from usv_tui.session.evidence import watched
from usv_tui.session.store import Store
from usv_tui.stats.analysis import Analysis, RowAnalysis
from usv_tui.stats.modes import Modes

US = 1_000
NOTHING = RowAnalysis(bench=0)
MS = 1_000_000


class Watching:
    """A fold, and the diagnosis that looks at it."""

    def __init__(self) -> None:
        self.store = Store()
        self._diagnosis = Diagnosis()

    def apply(self, record: AnyRecord) -> None:
        """One more record."""
        self.store.apply([record])

    def look(self, now_ns: int, most: int = 1) -> list[Notice]:
        """What is told now; the fold hears of it."""
        roofline = Roofline(1e15, 1e12, "test")
        found = self._diagnosis.look(now_ns, watched(self.store, roofline), most)
        self.store.apply([Noted(notice) for notice in found])
        return found


def session(name: str = "event", rows: int = 1, **info: object) -> Watching:
    """A diagnosis whose fold knows its timer and rows."""
    diagnosis = Watching()
    diagnosis.apply(Timing(0, TimerInfo(name=name, resolution_ns=32, floor_ns=1300)))
    for bench in range(rows):
        diagnosis.apply(Bench(0, BenchInfo(bench=bench, name=f"row {bench}", **info)))
    return diagnosis


def block(
    rng: np.random.Generator,
    rounds: int,
    *,
    rows: int = 1,
    window_ns: int = 500 * US,
    host_ns: int = 10 * US,
    flag: int = 0,
    spikes: dict[int, int] | None = None,
) -> Samples:
    """Rounds of windows with a little noise."""
    n = rounds * rows
    windows = (window_ns * np.exp(rng.normal(0, 0.01, n))).astype(int).tolist()
    for at, length in (spikes or {}).items():
        windows[at] = length
    benches = list(range(rows)) * rounds
    return Samples(0, rows, 0, benches, list(range(n)), windows, [1], [host_ns] * n, [], flag)


def codes(diagnosis: Watching, rows: int = 1) -> list[tuple[int | None, str]]:
    """What is told at a look."""
    return [(n.bench, n.code) for n in diagnosis.look(1, rows)]


def test_a_fault_is_told_once() -> None:
    """Starved windows make one notice, not one each second."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    told = []
    for _ in range(10):
        diagnosis.apply(block(rng, 300, window_ns=9 * US, host_ns=10 * US, flag=int(Flag.STARVED)))
        told += codes(diagnosis)

    assert told == [(0, "CPU-bound")]


def test_what_no_longer_shows_is_taken_back() -> None:
    """A row that was CPU-bound while the host was busy, and is not any more, is told so once."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    told = []
    for i in range(30):
        starved = int(Flag.STARVED) if i < 10 else 0
        diagnosis.apply(block(rng, 300, window_ns=9 * US, host_ns=10 * US, flag=starved))
        told += [(n.code, n.level, n.evidence.get("withdrawn", False)) for n in diagnosis.look(1)]

    assert told == [("CPU-bound", "warn", False), ("CPU-bound", "info", True)]


def test_a_row_is_not_judged_by_one_half_of_its_windows() -> None:
    """A level near that of an empty window in one half alone is no property of the row."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    for window_ns in (9 * US, 9 * US, 3 * US, 3 * US, 3 * US):
        diagnosis.apply(block(rng, 300, window_ns=window_ns, host_ns=US))

    assert "below timer floor" not in [code for _, code in codes(diagnosis)]


@pytest.mark.parametrize(("few", "is_told"), [(400, False), (500, True)])
def test_cpu_bound_is_said_exactly_where_the_statistics_are_of_starved_windows(
    few: int, is_told: bool
) -> None:
    """Where the windows with a gap are left out, nobody is told that the median holds them."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    starved = int(Flag.STARVED)
    diagnosis.apply(block(rng, 500, window_ns=9 * US, host_ns=10 * US))
    diagnosis.apply(block(rng, few, window_ns=20 * US, host_ns=10 * US, flag=starved))

    told = {code for _, code in codes(diagnosis)}
    assert ("CPU-bound" in told) is is_told
    assert ("starved" in diagnosis.store.rows[0].left_out) is not is_told


def test_stalls_are_those_of_the_statistics() -> None:
    """The notice counts what the row's own figures count, however long ago the first one was."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    diagnosis.apply(block(rng, 3000, spikes={100: 30 * MS, 200: 30 * MS, 2900: 60 * MS}))

    (found,) = [n for n in diagnosis.look(1) if n.code == "stalls"]
    assert found.evidence["count"] == diagnosis.store.rows[0].stalls == 3


def test_two_modes_are_those_of_the_statistics() -> None:
    """Told, shown once, and taken back as the statistics see them."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    seen = RowAnalysis(bench=0, modes=Modes(500e-6, 560e-6, 0.3))
    told, shown = [], []
    for analysis in (seen, NOTHING, seen, NOTHING, NOTHING):
        diagnosis.store.verdicts.analysis = Analysis(rows={0: analysis})
        diagnosis.apply(block(rng, 300))
        told.append([(n.code, n.evidence.get("low_ns")) for n in diagnosis.look(1)])
        shown.append(diagnosis.store.rows[0].all_badges)

    assert told == [[("two modes", pytest.approx(500 * US))], [], [], [], [("two modes", None)]]
    assert shown == [("2 modes",)] * 4 + [()]


def test_a_clean_session_is_silent() -> None:
    """Thirty looks at eight clean rows say nothing."""
    rng = np.random.default_rng(1)
    diagnosis = session(rows=8)
    for _ in range(30):
        diagnosis.apply(block(rng, 300, rows=8))
        assert codes(diagnosis, rows=8) == []


def test_counts_that_grow_are_news_again() -> None:
    """The first stall is told, and the next ones when there are four times as many."""
    rng = np.random.default_rng(2)
    diagnosis = session()
    told = []
    for spikes in ({50: 30 * MS}, {50: 30 * MS}, dict.fromkeys(range(40, 50), 30 * MS)):
        diagnosis.apply(block(rng, 300, spikes=spikes))
        told.append(codes(diagnosis))

    assert told == [[(0, "stalls")], [], [(0, "stalls")]]


def test_warm_up_does_not_hide_the_start() -> None:
    """However long the warm-up was, the first windows that count are the start."""
    rng = np.random.default_rng(4)
    diagnosis = session()
    diagnosis.apply(block(rng, 5000, window_ns=700 * US, flag=int(Flag.WARMUP)))
    assert codes(diagnosis) == []
    for i in range(5):
        diagnosis.apply(block(rng, 100, window_ns=(540 if i == 0 else 500) * US))

    assert codes(diagnosis) == [(0, "not warmed up")]


def test_the_start_of_a_row_is_judged_only_at_its_start() -> None:
    """A level that changes long after the start is drift, and none of this diagnosis' business."""
    rng = np.random.default_rng(3)
    diagnosis = session()
    for i in range(40):
        diagnosis.apply(block(rng, 300, window_ns=500 * US + i * 2 * US))
        if i > 8:
            assert codes(diagnosis) == []


def test_a_slow_start_is_told() -> None:
    """A row that begins 8 % slower than it goes on was not warmed up."""
    rng = np.random.default_rng(4)
    diagnosis = session()
    for i in range(5):
        diagnosis.apply(block(rng, 100, window_ns=(540 if i == 0 else 500) * US))

    assert codes(diagnosis) == [(0, "not warmed up")]


def test_one_row_is_looked_at_in_each_turn() -> None:
    """A look costs one row's checks, whatever the number of rows; all get their turn."""
    rng = np.random.default_rng(5)
    diagnosis = session(rows=3)
    diagnosis.apply(block(rng, 300, rows=3, window_ns=3 * US, host_ns=US))

    turns = [codes(diagnosis) for _ in range(4)]

    assert turns == [
        [(0, "below timer floor")],
        [(1, "below timer floor")],
        [(2, "below timer floor")],
        [],
    ]


def test_a_mark_starts_afresh() -> None:
    """After a mark the row's earlier windows do not count, and its new start is a start."""
    rng = np.random.default_rng(6)
    diagnosis = session()
    diagnosis.apply(block(rng, 3000))
    assert codes(diagnosis) == []
    diagnosis.apply(Mark(1, "lock", None))
    diagnosis.apply(block(rng, 100, window_ns=600 * US))
    diagnosis.apply(block(rng, 400))

    assert codes(diagnosis) == [(0, "not warmed up")]


def test_what_still_holds_after_a_mark_is_told_again() -> None:
    """A badge ends with its epoch, so that the next one has to earn it anew."""
    rng = np.random.default_rng(0)
    diagnosis = session()
    starved = {"window_ns": 9 * US, "host_ns": 10 * US, "flag": int(Flag.STARVED)}
    found = []
    for at_ns in (1, 2):
        diagnosis.apply(Mark(at_ns, "x", None))
        diagnosis.apply(block(rng, 300, **starved))
        found += diagnosis.look(at_ns)

    assert [n.code for n in found] == ["CPU-bound", "CPU-bound"]
    assert all(n.of_epoch for n in found)


def test_the_cache_mode_and_the_work_of_a_row_are_known() -> None:
    """A cold row that moves more bytes than DRAM can is implausible, a warm one is cached."""
    found = []
    for cache in ("warm", "cold"):
        diagnosis = session(bytes=500e-6 * 3e12)
        diagnosis.apply(Calibrated(0, 0, 1, 500 * US, cache, 1 << 40, 1 << 40))
        diagnosis.apply(block(np.random.default_rng(7), 300))
        found += codes(diagnosis)

    assert found == [(0, "fits in cache"), (0, "faster than roofline")]


def test_a_wall_clock_is_never_called_cpu_bound() -> None:
    """On the host the host's time is the time."""
    diagnosis = session("wall")
    diagnosis.apply(block(np.random.default_rng(8), 500, host_ns=500 * US))

    assert codes(diagnosis) == []


def test_a_look_takes_the_newest_windows_alone() -> None:
    """However many there are, two thousand of a row are looked at."""
    diagnosis = session(rows=2)
    diagnosis.apply(block(np.random.default_rng(9), 10_000, rows=2))

    (row, _) = watched(diagnosis.store, None)

    assert row.look().window_ns.size == 2000
    assert not row.look().is_start


@pytest.mark.parametrize("n", [0, 1, 59])
def test_few_windows_are_not_judged(n: int) -> None:
    """A row is looked at when there is something to see."""
    diagnosis = session()
    if n:
        diagnosis.apply(block(np.random.default_rng(0), n, window_ns=2 * US))

    assert codes(diagnosis) == []

import threading

import pytest

from benchmarks.self.catalogue import HONEST, TRICKS, agree, draw
from tests.fakes.loop import MS, Loop
from usv_tui.model import Benchmark
from usv_tui.records import BenchError, Noted
from usv_tui.report.wording.codes import NOT_BELIEVABLE, code_of


class Timed:
    """The catalogue's world in virtual time: work costs a millisecond."""

    def __init__(self, time):
        self._time = time

    def work(self, a, b):
        """A product, for its price."""
        self._time.advance(MS)
        return a @ b

    def later(self, call):
        """It happens when a while has passed."""
        self._time.at((self._time.now_ns() - 100 * 10**9) / 1e9 + 1e-3, call)


def said_of(rows, seed):
    """Codes of disbelief by row name, after a run of them all against an honest baseline."""
    loop = Loop(max_time_s=2.0, seed=seed)
    world = Timed(loop.time)
    rows = {"base": (lambda w: w.work, {}), **rows}
    for name, (make, options) in rows.items():
        fn = make(world)

        def timed(*args, fn=fn):
            loop.time.advance(1000)
            return fn(*args)

        timed.__dict__.update(getattr(fn, "__dict__", {}))
        loop.benchmarks.append(
            Benchmark(
                name=name,
                build=lambda _device, timed=timed: timed,
                is_baseline=name == "base",
                **({"inputs": draw, "check": agree, "group": "g"} | options),
            )
        )
    loop.run()
    names = list(rows)
    found = {name: set() for name in names}
    for record in loop.records:
        if isinstance(record, BenchError):
            found[names[record.bench]].add(code_of(record.kind))
        elif isinstance(record, Noted) and record.notice.bench is not None:
            found[names[record.notice.bench]].add(code_of(record.notice.code))
    return {name: codes & NOT_BELIEVABLE for name, codes in found.items()}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small matrices: their price is virtual."""
    monkeypatch.setattr("benchmarks.self.catalogue.SIZE", 16)


@pytest.mark.parametrize("name", TRICKS)
def test_each_trick_is_named_by_its_code(name):
    """What does not do its work in the window is not believed, for a reason that is true."""
    make, codes = TRICKS[name]
    found = said_of({name: (make, {})}, seed=3)

    assert found["base"] == set()
    assert found[name]
    assert found[name] <= codes


def test_there_are_enough_of_either_kind():
    """Twenty tricks and forty honest ones at least."""
    assert len(TRICKS) >= 20
    assert len(HONEST) >= 40


@pytest.mark.parametrize("seed", range(20))
def test_no_honest_callable_is_accused(seed):
    """In-place, random, stateful, with buffers, views or a slow first call: nothing is said."""
    before = threading.active_count()
    found = said_of(HONEST, seed)

    assert {name: codes for name, codes in found.items() if codes} == {}
    assert threading.active_count() == before

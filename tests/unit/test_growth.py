import sys
from types import SimpleNamespace

import numpy as np

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS
from usv_tui.diagnosis.growth import Growth
from usv_tui.diagnosis.while_running import Diagnosis
from usv_tui.model import TimerInfo
from usv_tui.records import Timing
from usv_tui.session.evidence import watched
from usv_tui.session.store import Store


def test_modules_and_graphs_that_came_in_are_counted_once(monkeypatch):
    """A compilation leaves one or the other behind; without either there is nothing to say."""
    counters = {"stats": {"unique_graphs": 2}}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=counters))
    growth = Growth()
    assert growth.look() is None
    counters["stats"]["unique_graphs"] = 3
    monkeypatch.setitem(sys.modules, "some.kernel.of.this.test", SimpleNamespace())

    found = growth.look()

    assert found is not None
    assert (found["modules"], found["graphs"]) == (1, 1)
    assert growth.look() is None


def codes(*, is_loaded):
    """What is said of a row with one window in which the host was busy for long."""
    store = Store()
    store.apply([Timing(BEGIN_NS, TimerInfo(name="event")), fake.row(0, "a")])
    rng = np.random.default_rng(1)
    times = [int(t) for t in MS * (1 + 0.01 * rng.standard_normal(400))]
    times[200] = 300 * MS
    store.apply([fake.block([(0, t) for t in times])])
    if is_loaded:
        store.apply([fake.note("code loaded", level="info", modules=3, graphs=0)])
    return {notice.code for notice in Diagnosis().look(BEGIN_NS, watched(store, None))}


def test_a_stall_is_called_compiling_only_where_code_came_in():
    """A host that was held up leaves no modules and no graphs behind: then it is a stall."""
    assert "compiling inside" not in codes(is_loaded=False)
    assert "stalls" in codes(is_loaded=False)
    assert "compiling inside" in codes(is_loaded=True)

"""Memory that stays flat, and raw samples that come back from the file."""

import csv
import io
import json

import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS, NS_PER_S
from usv_tui.model import Reading
from usv_tui.records import End, Mark, Samples, Telemetry, Window
from usv_tui.session import export, raw, samples
from usv_tui.session import store as store_module
from usv_tui.session.journal import Journal
from usv_tui.session.opened import open_session
from usv_tui.session.store import Store

SECONDS = 40
EACH = 100
"""Samples of each row in a second."""


def a_second(second, rng):
    """Two rows in turn, with a stall now and then, and ten readings."""
    windows = rng.normal(4e6, 4e4, 2 * EACH).astype(int)
    if second % 7 == 3:
        windows[50] *= 40
    start_ns = BEGIN_NS + second * NS_PER_S
    block = Samples(
        second * EACH,
        2,
        start_ns,
        [0, 1] * EACH,
        [i * 5 * MS for i in range(2 * EACH)],
        windows.tolist(),
        [2],
        (windows // 3).tolist(),
    )
    readings = [
        Telemetry(
            Reading(device="d", at_ns=start_ns + i * 100 * MS, sm_mhz=1700.0 + second, temp_c=50.0)
        )
        for i in range(10)
    ]
    return [block, *readings]


def records(seconds=SECONDS):
    """A session that is marked once amid."""
    rng = np.random.default_rng(4)
    made = [fake.start(), fake.row(0, "a"), fake.row(1, "b"), fake.phase("measuring")]
    made.append(Window(BEGIN_NS, 500))
    for second in range(seconds):
        made += a_second(second, rng)
        if second == seconds // 2:
            made.append(Mark(BEGIN_NS + second * NS_PER_S + 996 * MS, "x"))
    return [*made, End(BEGIN_NS + seconds * NS_PER_S, "done")]


def saved(path, made):
    """A file of them."""
    journal = Journal(path)
    for i in range(0, len(made), 12):
        journal.add(made[i : i + 12])
        journal.flush()
    journal.close()
    return path


def folded(made, path=None, room=1 << 30):
    """A store of them."""
    store = Store(room=room)
    store.archive = path
    for i in range(0, len(made), 12):
        store.apply(made[i : i + 12])
    return store


def text(kind, store):
    """An export."""
    out = io.StringIO()
    export.write(kind, store, store.snapshot(store.last_ns), out)
    return out.getvalue()


@pytest.fixture
def both(tmp_path, monkeypatch):
    """One session in a store with all room, and in one that has dropped most of it."""
    monkeypatch.setattr(store_module, "_LEAST_ROOM", 1000)
    monkeypatch.setattr(store_module, "_LEAST_SPILL", 200)
    monkeypatch.setattr(raw, "_ROOM", 1000)
    made = records()
    path = saved(tmp_path / "s.usv", made)
    return folded(made), folded(made, path, room=2000)


def test_old_samples_leave_memory_and_come_back_from_the_file(both):
    """An export of a session whose samples were dropped is that of one that kept them all."""
    everything, little = both
    assert little.n_dropped > 3000

    one, other = (json.loads(text("json", store)) for store in both)
    for a, b in zip(one["rows"], other["rows"], strict=True):
        assert a["samples"] == b["samples"]
        assert len(a["samples"]["t_s"]) == SECONDS * EACH
        assert b["samples_not_kept"] == 0
    assert ["stall"] in one["rows"][0]["samples"]["flags"]
    assert one["telemetry"] == other["telemetry"]
    assert text("csv", everything) == text("csv", little)


def test_statistics_go_on_over_dropped_samples(both):
    """What is said of the whole epoch does not depend on what is still in memory."""
    everything, little = (store.snapshot(store.last_ns) for store in both)

    for a, b in zip(everything.rows, little.rows, strict=True):
        assert (a.whole, a.rolling, a.left_out) == (b.whole, b.rolling, b.left_out)
        assert (a.n_all, a.stalls, a.trend) == (b.n_all, b.stalls, b.trend)


def test_without_a_file_what_was_dropped_is_counted(both):
    """The JSON of a run that keeps no file says how many of its samples it does not have."""
    _, little = both
    little.archive = None

    row = json.loads(text("json", little))["rows"][0]

    assert row["samples_not_kept"] == little.rows[0].t_ns.first > 0
    assert row["samples_not_kept"] + len(row["samples"]["t_s"]) == SECONDS * EACH


def test_a_file_that_ended_early_is_completed_from_memory(both):
    """When the disk was full amid a run, an export still has what memory holds."""
    _, little = both
    path = little.archive
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 9 // 10])

    one, other = (
        [line for line in csv.reader(io.StringIO(text("csv", store))) if line[0] == "a"]
        for store in both
    )
    assert [line[:8] for line in other] == [line[:8] for line in one]


def test_a_series_of_dropped_samples_is_thin_and_ordered(both):
    """A chart of the whole session has points from its beginning to its end."""
    _, little = both

    series = little.series(0, 0, 1 << 62, limit=500)

    assert (np.diff(series.t_ns) > 0).all()
    assert 250 <= len(series.t_ns) <= 1000
    assert series.t_ns[0] == BEGIN_NS
    assert series.t_ns[-1] > BEGIN_NS + (SECONDS - 1) * NS_PER_S


def test_an_opened_session_gives_all_its_samples(both, monkeypatch):
    """Formats, comparisons and `load` have every sample of the epoch, however many were dropped."""
    everything, little = both
    whole = raw.whole(little, 1)

    kept = everything.rows[1].data(None, 0.0)
    for name in ("t_ns", "window_ns", "inner", "rounds", "flags"):
        assert getattr(whole, name).tolist() == getattr(kept, name).tolist(), name
    assert len(samples.of_row(little, little.rows[1])["seconds"]) == SECONDS * EACH
    opened = open_session(little.archive)
    assert opened.store.samples == 2 * SECONDS * EACH

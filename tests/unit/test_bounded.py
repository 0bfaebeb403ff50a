"""Memory that stays flat, and raw samples that come back from the file."""

import csv
import gc
import io
import json
import re
import tracemalloc
import typing
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.fakes import session as fake
from tests.fakes.session import BEGIN_NS, MS, NS_PER_S
from usv_tui.model import Reading
from usv_tui.records import SCHEMA, AnyRecord, End, Mark, Samples, Telemetry, Window, time_of
from usv_tui.session import export, image, raw, samples, verdicts
from usv_tui.session import store as store_module
from usv_tui.session.journal import Journal, Reader
from usv_tui.session.opened import open_session
from usv_tui.session.replay import Playhead, ReplaySession
from usv_tui.session.store import Store
from usv_tui.timesource import ManualTime

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

    series = little.curves.series(0, 0, 1 << 62, limit=500)

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


def with_image(path, made):
    """A file that ends with the image of its fold."""
    store = folded(made)
    journal = Journal(path)
    for i in range(0, len(made), 12):
        journal.add(made[i : i + 12])
        journal.flush()
    journal.add(image.records_of(store))
    journal.close()
    return path


def test_a_session_opens_from_its_image(tmp_path, monkeypatch):
    """Nothing is folded again, and all exports are those of the fold."""
    made = records()
    path = with_image(tmp_path / "s.usv", made)
    monkeypatch.setattr(Store, "apply", lambda *_: pytest.fail("folded again"))

    opened = open_session(path)

    monkeypatch.undo()
    plain = folded(made)
    assert opened.snapshot == plain.snapshot(plain.last_ns)
    for kind in ("json", "csv"):
        assert text(kind, opened.store) == text(kind, plain)


@pytest.mark.parametrize("what", ["flip", "cut", "other version", "torn image"])
def test_an_image_counts_only_in_a_sound_file_of_the_same_version(tmp_path, monkeypatch, what):
    """Damage before it, or another version: the records are folded."""
    path = with_image(tmp_path / "s.usv", records(4))
    content = bytearray(path.read_bytes())
    if what == "flip":
        content[len(content) // 2] ^= 4
    elif what == "cut":
        del content[-3:]
    elif what == "torn image":
        monkeypatch.setattr(image, "_pack", lambda _: {"no": "store"})
        path.unlink()
        with_image(path, records(4))
        content = path.read_bytes()
    else:
        monkeypatch.setattr(image, "program", lambda: "another")
    path.write_bytes(content)

    assert image.restored(path)[0] is None
    assert open_session(path).snapshot.rows[0].n_all in (3 * EACH, 4 * EACH)


def killed(path, made, behind=1):
    """A session with images amid, whose writer was killed within a frame."""
    store, journal = Store(), Journal(path)
    for i in range(0, len(made) - behind, 12):
        store.apply(made[i : i + 12])
        journal.add(made[i : i + 12])
        journal.flush()
        if i % 60 == 48:
            journal.add(image.records_of(store))
            journal.flush()
    journal.close()
    path.write_bytes(path.read_bytes()[:-5])
    return path


def test_a_session_whose_writer_was_killed_opens_from_its_last_image(tmp_path, monkeypatch):
    """Only what came after it is folded, and the figures are those of a fold of everything."""
    path = killed(tmp_path / "s.usv", records())
    plain = Store()
    plain.apply(r for batch in Reader(path).batches() for r in batch)
    plain.conclude()
    folded_again = []
    apply = Store.apply
    monkeypatch.setattr(
        Store, "apply", lambda self, made: apply(self, folded_again.extend(made) or made)
    )

    opened = open_session(path)

    assert 0 < len(folded_again) < 80
    assert opened.snapshot == plain.snapshot(plain.last_ns)
    assert not opened.snapshot.complete


def test_what_is_joined_behind_an_image_is_told(tmp_path):
    """The first session is opened from its image, and the rest is not whole."""
    path = with_image(tmp_path / "s.usv", records(4))
    path.write_bytes(path.read_bytes() * 2)

    opened = open_session(path)

    assert opened.snapshot.told[-1].code == "joined sessions"
    assert not opened.snapshot.complete


@pytest.mark.parametrize("piece", [9, 64, 1000])
@pytest.mark.parametrize("harm", ["none", "flip", "cut", "zeros", "joined"])
def test_a_file_reads_the_same_in_pieces(tmp_path, monkeypatch, piece, harm):
    """However little of it is held at once."""
    content = bytearray(saved(tmp_path / "s.usv", records(3)).read_bytes())
    if harm == "flip":
        content[len(content) // 2] ^= 16
    elif harm == "cut":
        del content[-7:]
    elif harm == "zeros":
        content += bytes(5000)
    elif harm == "joined":
        content = content * 2
    (tmp_path / "s.usv").write_bytes(content)
    whole = list(Reader(tmp_path / "s.usv").records())

    monkeypatch.setattr("usv_tui.session.journal._PIECE", piece)

    assert list(Reader(tmp_path / "s.usv").records()) == whole
    assert len(whole) > 20


def test_a_long_session_is_shown_before_it_is_folded(tmp_path, monkeypatch):
    """The screen says how far it is, and comes to what a fold comes to."""
    made = records(12)
    path = saved(tmp_path / "s.usv", made)
    monkeypatch.setattr("usv_tui.session.replay._OPENING_S", 0.0)
    monkeypatch.setattr("usv_tui.session.replay._LOOK_S", 0.0)

    replay = ReplaySession(path, Playhead(ManualTime(0)))

    assert re.fullmatch(r"reading \d+%", replay.snapshot(0).progress)
    while replay.pump():
        pass
    plain = folded(made)
    assert replay.snapshot(0).rows == plain.snapshot(plain.last_ns).rows
    assert "stopped" in replay.snapshot(0).progress


@pytest.mark.parametrize("has_images", [True, False])
def test_seeking_goes_on_from_what_is_kept(tmp_path, monkeypatch, has_images):
    """To and fro from stops in memory or images in the file: each moment is as the fold had it."""
    monkeypatch.setattr("usv_tui.session.replay._OPENING_S", 60.0)
    monkeypatch.setattr("usv_tui.session.replay._STOP_S", 0.0)
    monkeypatch.setattr("usv_tui.session.replay._MOST_STOPS", 4)
    made = records(30)
    path = tmp_path / "s.usv"
    killed(path, made, 0) if has_images else saved(path, made)
    replay = ReplaySession(path, Playhead(ManualTime(0)))
    applied = []
    for way in ("back", "back", "forward", "back", "back", "start", "forward", "forward", "back"):
        apply = Store.apply
        with monkeypatch.context() as patch:
            patch.setattr(Store, "apply", lambda s, m, a=apply: a(s, applied.extend(m) or m))
            replay.seek(way)
        at_ns = replay.at_ns(0)
        plain = Store()
        plain.apply(r for r in made if (time_of(r) or getattr(r, "t0_ns", 0)) <= at_ns)
        assert replay.snapshot(0).rows == plain.snapshot(at_ns).rows, way
    assert len(applied) < 6 * len(made)


@pytest.mark.parametrize(
    "name", ["os:system", "usv_tui.session.journal:Journal.add", "builtins:eval"]
)
def test_an_image_makes_nothing_but_what_a_fold_is_made_of(name):
    """A file from anywhere cannot name other code."""
    raw_state = msgspec.msgpack.encode(["object", name, []])

    assert image.unpacked([zlib.compress(raw_state)]) is None


def test_a_replay_opens_at_its_end_from_the_image_and_seeks_in_the_records(tmp_path):
    """At the end it shows what the fold shows; going back reads the records."""
    made = records(12)
    path = with_image(tmp_path / "s.usv", made)
    head = Playhead(ManualTime(0))
    replay = ReplaySession(path, head)
    plain = folded(made)
    assert replay.snapshot(0).rows == plain.snapshot(plain.last_ns).rows

    replay.seek("back")

    assert replay.store.last_ns < plain.last_ns
    assert replay.snapshot(0).samples < plain.samples
    replay.seek("end")
    assert replay.snapshot(0).rows == plain.snapshot(plain.last_ns).rows


def test_a_file_grows_to_what_may_be_kept_and_says_so(tmp_path):
    """`--keep`: the file stops below its size with a notice; it reads, and is partial."""
    path = tmp_path / "s.usv"
    journal = Journal(path, 20_000)
    for record in records():
        journal.add([record])
        journal.flush()
    journal.close()

    assert "--keep allows" in journal.full
    assert not journal.failure
    assert 10_000 < path.stat().st_size <= 20_000
    opened = open_session(path)
    assert opened.snapshot.told[-1].code == "keep reached"
    assert not opened.snapshot.complete


def test_the_format_is_described_record_by_record():
    """FORMAT.md has a line for every record there is, and names this schema."""
    page = (Path(__file__).parents[2] / "FORMAT.md").read_text(encoding="utf-8")

    tags = {kind.__struct_config__.tag for kind in typing.get_args(AnyRecord)}
    described = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert described == tags
    assert f"schema {SCHEMA}" in page
    for kind in typing.get_args(AnyRecord):
        tag = kind.__struct_config__.tag
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{tag}` |")]
        fields = [name for name in kind.__struct_fields__ if f"`{name}`" not in line]
        assert not fields, f"{tag} lacks {fields}"


def test_memory_is_flat_once_there_is_no_more_room(tmp_path, monkeypatch):
    """A fold and its file hold no more however long it goes on: nothing grows for ever."""
    monkeypatch.setattr(store_module, "_LEAST_ROOM", 500)
    for name, most in (("_MOST_BINS", 300), ("_MOST_READINGS", 400), ("_MOST_THINNED", 200)):
        monkeypatch.setattr(f"usv_tui.session.columns.{name}", most)
    monkeypatch.setattr(verdicts, "_SLOWEST_NS", 1 << 60)  # the statistics have their own bounds
    monkeypatch.setattr(verdicts, "_SLOWER", 1)
    rng = np.random.default_rng(4)
    store, journal = Store(room=0), Journal(tmp_path / "s.usv", 1 << 20)
    head = [fake.start(), fake.row(0, "a"), fake.row(1, "b"), fake.phase("measuring")]
    store.apply(head)
    held = []
    tracemalloc.start()
    for second in range(160):
        made = a_second(second, rng)
        store.apply(made)
        journal.add(made)
        journal.flush()
        store.snapshot(store.last_ns)
        if second % 40 == 39:
            del made
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    journal.close()

    assert store.samples == 160 * 2 * EACH
    assert max(held[1:]) - held[1] < 100_000, held

"""What was shown while it ran, the table at its end, the export, a fold and its image agree."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fakes.virtual_run import KeptJournal, VirtualRun, facts
from usv_tui.records import Command, Image
from usv_tui.session import image
from usv_tui.session.store import Store
from usv_tui.sim import SCENARIOS

SECONDS = 8.0
DEEDS: dict[str, Callable[[VirtualRun], object]] = {
    "pause or go on": lambda run: run.session.toggle_pause(),
    "mark": lambda run: run.session.mark("x"),
    "compare with b": lambda run: run.session.set_baseline(1),
    "compare as the file says": lambda run: run.session.set_baseline(None),
    "window": lambda run: run.session.set_window(100),
    "long window": lambda run: run.session.set_window(5000),
    "burst": lambda run: run.session.command(Command("pace", "burst:50,100")),
    "steady": lambda run: run.session.command(Command("pace", "steady")),
    "solo": lambda run: run.session.command(Command("solo", bench=1)),
    "all": lambda run: run.session.command(Command("all")),
    "off": lambda run: run.session.command(Command("off", bench=2)),
    "on": lambda run: run.session.command(Command("on", bench=2)),
    "lock": lambda run: run.lock(1410),
    "unlock": lambda run: run.unlock(),
    "stop": lambda run: run.session.command(Command("stop", "enough")),
}


def folded(run: VirtualRun, *, lots: int = 1 << 30) -> Store:
    """The file read back; so many records at a time."""
    store = Store()
    records = run.journal.read()
    for first in range(0, len(records), lots):
        store.apply(records[first : first + lots])
    return store


def assert_one_truth(run: VirtualRun) -> None:
    """The end, and every moment that was looked at, follow from the file alone."""
    records, store, again = run.journal.read(), run.session.store, Store()
    done = 0
    for shown in run.shown:
        again.apply(records[done : shown.records])
        done = shown.records
        assert facts(again, shown.at_ns) == shown.facts
    again.apply(records[done:])
    again.conclude()
    told = facts(store, store.last_ns)
    assert facts(again, again.last_ns) == told
    kept = image.unpacked([record.state for record in image.records_of(again)])
    all_but_json = [i for i in range(len(told)) if i != 2]  # no file here has the raw samples
    found = facts(kept, kept.last_ns)
    assert [found[i] for i in all_but_json] == [told[i] for i in all_but_json]


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_a_fold_says_what_the_run_said(scenario):
    """In every scenario: at a moment amid the run and at its end, to the last digit."""
    run = VirtualRun(scenario, SECONDS)
    run.look_at([7.4])
    run.run()

    assert_one_truth(run)


def test_a_long_run_says_the_same_when_it_is_read_back():
    """Words that need their time to come (settled, steady) are not lost with the file."""
    run = VirtualRun("steady", 60.0)
    run.look_at([31.0])
    store = run.run()

    assert_one_truth(run)
    snapshot = store.snapshot(store.last_ns)
    assert snapshot.advice.verdict == "steady"
    assert "settled" in {row.word for row in snapshot.rows}


def test_an_image_goes_on_as_the_fold_would_have():
    """What is folded into an image comes to what it comes to in the fold that it is of."""
    run = VirtualRun("attention", 7.0)
    run.run()
    records = run.journal.read()
    half = len(records) // 2
    fold = Store()
    fold.apply(records[:half])

    kept = image.unpacked([record.state for record in image.records_of(fold)])
    for store in (fold, kept):
        store.apply(records[half:])

    assert facts(kept, kept.last_ns) == facts(fold, fold.last_ns)


def test_images_that_a_run_brings_to_its_file_are_folds_of_what_is_before_them(monkeypatch):
    """So that a session whose writer is killed opens as it stood."""
    monkeypatch.setattr("usv_tui.session.controller.IMAGE_NS", 2 * 10**9)
    monkeypatch.setattr("usv_tui.session.controller.IMAGE_BYTES", 0)
    monkeypatch.setattr(KeptJournal, "bytes_written", 1 << 40, raising=False)
    monkeypatch.setattr("usv_tui.session.image._LEAST_LOOKS", 1)
    run = VirtualRun("attention", 7.0)
    run.at(3.0, lambda: run.session.mark("x"))
    run.run()
    records, n = run.journal.read(), 0

    for i, record in enumerate(records):
        if isinstance(record, Image) and record.part == record.parts - 1:
            n += 1
            first = i - record.part
            kept = image.unpacked([part.state for part in records[first : i + 1]])
            plain = Store()
            plain.apply(records[:first])
            if first < len(records) // 2:
                kept.apply(records[i + 1 :])
                plain.apply(records[i + 1 :])
            assert facts(kept, kept.last_ns)[:2] == facts(plain, plain.last_ns)[:2]
    assert n >= 2
    assert_one_truth(run)


@pytest.mark.parametrize("lots", [1, 7])
def test_it_does_not_matter_in_what_lots_records_come(lots):
    """One by one or all at once: the fold has no memory of how it was fed, nor of who looked."""
    run = VirtualRun("attention", 6.0)
    run.at(4.0, lambda: run.session.mark("x"))
    run.run()

    one, other = folded(run), folded(run, lots=lots)

    assert facts(one, one.last_ns) == facts(other, other.last_ns)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    st.sampled_from(sorted(SCENARIOS)),
    st.lists(st.tuples(st.floats(0.2, 6.0), st.sampled_from(sorted(DEEDS))), max_size=9),
    st.lists(st.floats(0.5, 6.5), max_size=2),
)
def test_whatever_a_user_does_is_in_the_file(scenario, script, moments):
    """Random keys at random moments of any scenario: live, exported and folded agree."""
    run = VirtualRun(scenario, 7.0)
    for seconds, deed in script:
        run.at(seconds, lambda deed=deed: DEEDS[deed](run))
    run.at(6.6, lambda: run.session.is_paused and run.session.toggle_pause())
    run.look_at(moments)
    run.run()

    assert_one_truth(run)

"""Whatever the order of events, the words about a lock are those of its outcome."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import session as fake
from tests.unit.test_desk import INFO, Card, desk_over, settle
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState
from usv_tui.records import Clocks, Noted
from usv_tui.report.wording.rows import clock_words, clocks_line
from usv_tui.session.desk import ClockDesk
from usv_tui.session.store import Store
from usv_tui.timesource import ManualTime

EVENTS = st.lists(
    st.sampled_from(
        ["lock 1500", "lock 1605", "unlock", "no lock", "no undo", "may lock", "may undo", "odd"]
    ),
    max_size=8,
)


class MoodyCard(Card):
    """A card whose undo can also fail in a way that no driver announces."""

    is_odd = False

    def undo(self, undo):
        """As told."""
        if self.is_odd:
            raise RuntimeError("a vendor library in a mood")
        super().undo(undo)


def play(desk, card, event):
    """One event, and the records that came of it."""
    verb, _, what = event.partition(" ")
    if event == "odd":
        card.is_odd = not card.is_odd
    elif what in ("lock", "undo") and verb in ("no", "may"):
        if what == "lock":
            card.refuses = "needs root" if verb == "no" else ""
        else:
            card.undo_fails = verb == "no"
    else:
        try:
            desk.lock(int(what)) if verb == "lock" else desk.unlock()
        except ClockError:
            return []
    return settle(desk)[0]


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_no_order_of_events_makes_a_success_of_a_failure(events):
    """After the end the words say free exactly when the card is free."""
    card = MoodyCard()
    desk = desk_over(card)
    store = Store()
    store.apply([*fake.two_rows(5)])
    for event in events:
        store.apply(play(desk, card, event))
    assert desk.close()
    store.apply(settle(desk)[0])

    snapshot = store.snapshot(store.last_ns)
    words = clocks_line(snapshot.clocks_during, snapshot.clocks)
    is_stuck = card.locked is not None
    assert bool(desk.failure) == is_stuck
    assert (snapshot.clocks.hold is ClockHold.STUCK) == is_stuck
    assert ("NOT GIVEN BACK" in words) == is_stuck
    if is_stuck:
        assert "given back at the end" not in words
        assert "free" not in words
        assert any(told.level == "error" for told in snapshot.told)


@pytest.mark.parametrize("during", list(ClockHold))
@pytest.mark.parametrize("now", list(ClockHold))
def test_every_pair_of_states_has_words_and_only_free_is_given_back(during, now):
    """One function words all of them; success is said of a free clock alone."""
    line = clocks_line(
        ClockState(hold=during, locked_mhz=1500), ClockState(hold=now, locked_mhz=1500)
    )

    assert clock_words(ClockState(hold=now))
    if now is not ClockHold.FREE:
        assert "given back at the end" not in line
    if now is ClockHold.STUCK:
        assert "NOT GIVEN BACK" in line


class HangingCard(Card):
    """A card whose driver does not come back from the undo, or from the lock."""

    def __init__(self, *, hangs_in):
        super().__init__()
        self.hangs_in = hangs_in
        self.entered = threading.Event()
        self.back = threading.Event()

    def _hang(self, verb):
        if verb == self.hangs_in:
            self.entered.set()
            assert self.back.wait(30)

    def lock(self, sm_mhz, mem_mhz=None):
        """Lock, perhaps never."""
        self._hang("lock")
        super().lock(sm_mhz, mem_mhz)

    def undo(self, undo):
        """Undo, perhaps never."""
        self._hang("undo")
        super().undo(undo)


@pytest.mark.parametrize("hangs_in", ["lock", "undo"])
def test_a_driver_that_hangs_is_left_behind_and_told(hangs_in):
    """The end waits a bounded time, says which call hangs, and reports a failure."""
    card = HangingCard(hangs_in=hangs_in)
    desk = desk_over(card)
    desk.lock(1500)
    if hangs_in == "undo":
        settle(desk)
    else:
        assert card.entered.wait(10)

    assert desk.close(timeout_s=0.2) is False

    records, _ = desk.drain()
    card.back.set()
    [state] = [r.state for r in records if isinstance(r, Clocks)][-1:]
    assert state.hold is ClockHold.STUCK
    assert "does not answer" in desk.failure
    assert any(isinstance(r, Noted) and r.notice.code == "unlock failed" for r in records)


def test_whoever_is_in_a_hurry_waits_for_no_driver():
    """A second Ctrl-C ends the wait at once."""
    card = HangingCard(hangs_in="undo")
    desk = desk_over(card)
    desk.lock(1500)
    settle(desk)
    hurry = threading.Event()
    hurry.set()

    assert desk.close(timeout_s=60, hurry=hurry) is False

    card.back.set()


def test_a_long_wait_is_told_while_it_lasts():
    """After a second somebody is told what the end waits for, once."""
    card = HangingCard(hangs_in="undo")
    desk = desk_over(card)
    desk.lock(1500)
    settle(desk)
    told = []
    desk.on_wait = lambda: told.append(1) or card.back.set()

    assert desk.close()

    assert told == [1]
    assert not desk.failure


def test_a_lock_that_lands_while_the_run_ends_is_undone():
    """The end waits for the lock that is being made, and gives it back."""
    card = HangingCard(hangs_in="lock")
    desk = desk_over(card)
    desk.lock(1500)
    assert card.entered.wait(10)
    threading.Timer(0.1, card.back.set).start()

    assert desk.close()

    assert card.locked is None
    assert not desk.failure


def test_a_failed_undo_is_tried_once_more_at_the_end():
    """What was refused in the middle of the run may be granted at its end."""
    card = Card(undo_fails=True)
    desk = desk_over(card)
    desk.lock(1500)
    settle(desk)
    desk.unlock()
    settle(desk)
    assert desk.failure
    card.undo_fails = False

    desk.close()

    assert card.locked is None
    assert not desk.failure


def test_a_refused_change_leaves_the_lock_as_the_news():
    """The state goes on telling of the lock that is in force; the refusal is a notice."""
    card = Card()
    desk = desk_over(card)
    desk.lock(1500)
    settle(desk)
    card.refuses = "not now"

    desk.lock(1605)
    records, _ = settle(desk)

    assert not [r for r in records if isinstance(r, Clocks)]
    assert any(isinstance(r, Noted) and r.notice.code == "lock refused" for r in records)


def noted(store):
    """What stands under the final table."""
    return {told.code for told in store.snapshot(store.last_ns).told}


def test_a_refusal_is_taken_back_by_the_lock_that_came_after_it():
    """Consent was given: `clocks not locked` would be untrue. A refused change stays told."""
    card = Card(concerns=["somebody else computes here"])
    desk = desk_over(card)
    store = Store()
    store.apply([*fake.two_rows(5)])
    desk.lock(1500)
    store.apply(settle(desk)[0])
    assert noted(store) == {"lock refused"}
    assert clock_words(store.clocks) == "unlocked"

    desk.lock(1500)
    store.apply(settle(desk)[0])
    assert noted(store) == set()

    card.refuses = "not now"
    desk.lock(1605)
    store.apply(settle(desk)[0])
    store.apply([Clocks(store.last_ns, store.clocks)])
    assert noted(store) == {"lock refused"}


def test_a_job_that_raises_anything_is_told():
    """No thread of the desk dies in silence."""

    def make(_info):
        raise OSError("the disk is gone")

    desk = ClockDesk(make, time_source=ManualTime(1))
    desk.on_device(INFO)
    records, _ = settle(desk)

    assert any(
        "the disk is gone" in str(r.notice.evidence) for r in records if isinstance(r, Noted)
    )


class Lease:
    """A lease whose guardian dies when the test says so."""

    sm_mhz = 1500
    keep = False
    state = ClockState(hold=ClockHold.LOCKED, locked_mhz=1500)

    def __init__(self, *, can_rearm=True):
        self.notes = []
        self.is_guarded = True
        self.can_rearm = can_rearm
        self.armed = 0

    def rearm(self):
        """Another guardian, or none."""
        if not self.can_rearm:
            raise ClockRefused("no process can be started")
        self.armed += 1
        self.is_guarded = True


def guarded(lease):
    """A desk that holds this lease."""
    desk = desk_over(Card())
    desk._lease = lease
    return desk


def codes(desk):
    """Codes of the notices so far, with the job done."""
    first, _ = desk.drain()
    second, _ = settle(desk)
    return [r.notice.code for r in [*first, *second] if isinstance(r, Noted)]


def test_a_guardian_that_died_is_told_and_replaced_a_few_times():
    """Each death is told; a guardian that keeps dying is not started for ever."""
    lease = Lease()
    desk = guarded(lease)
    assert codes(desk) == []

    seen = []
    for _ in range(5):
        lease.is_guarded = False
        seen += codes(desk)

    assert seen == [*["guardian died", "guardian renewed"] * 3, "guardian died", "no guardian"]
    assert lease.armed == 3


def test_a_guardian_that_cannot_be_replaced_is_an_error():
    """It is said once, with what to do after a crash."""
    lease = Lease(can_rearm=False)
    desk = guarded(lease)
    lease.is_guarded = False

    assert codes(desk) == ["guardian died", "no guardian"]
    assert codes(desk) == []

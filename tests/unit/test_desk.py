"""Locking during a session: wishes become jobs, and what came of them becomes records."""

import math

import msgspec
import pytest

from usv_tui.clocks.target import FOREIGN_WORDS
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import Advice, ClockHold, ClockState, ClockUndo, DeviceInfo, Reading, Verdict
from usv_tui.records import Clocks, Noted
from usv_tui.report.wording.advice import advice_line
from usv_tui.report.wording.rows import clock_words, clocks_line, cost_words
from usv_tui.session.advised import heeding
from usv_tui.session.desk import ClockDesk
from usv_tui.sim import CARDS, find_card, find_scenario, load, trace
from usv_tui.timesource import NS_PER_S, ManualTime

SUPPORTED = list(range(1200, 1981, 15))
INFO = DeviceInfo(uuid="sim-0", name="card", kind="sim", base_sm_mhz=1590, simulated=True)


class Card:
    """A controller that keeps what was asked of it."""

    uuid = "sim-0"
    kind = "sim"

    def __init__(self, *, refuses="", concerns=(), undo_fails=False):
        self.locked = None
        self.refuses = refuses
        self.concerns = list(concerns)
        self.undo_fails = undo_fails

    def state(self):
        """What can be read."""
        return ClockState(
            hold=ClockHold.UNKNOWN,
            can_lock=True,
            supported_mhz=SUPPORTED,
            concerns=self.concerns,
        )

    def plan_undo(self):
        """Nothing to remember."""
        return ClockUndo(uuid=self.uuid, kind=self.kind)

    def lock(self, sm_mhz, mem_mhz=None):
        """Lock, or refuse as told."""
        if self.refuses:
            raise ClockRefused(self.refuses)
        self.locked = sm_mhz

    def undo(self, undo):
        """Unlock, or fail as told."""
        if self.undo_fails:
            raise ClockError("cannot be undone: type this")
        self.locked = None

    def supported_mhz(self):
        """The steps."""
        return SUPPORTED


def desk_over(card, **options):
    """A desk whose device is known, with its first look done."""
    desk = ClockDesk(lambda _: card, time_source=ManualTime(1), **options)
    desk.on_device(INFO)
    settle(desk)
    return desk


def settle(desk):
    """Wait for the job, take what came of it."""
    job = desk._job
    if job is not None:
        job.join(10)
    return desk.drain()


def test_a_wish_locks_begins_an_epoch_and_is_undone_at_the_end():
    """The card is locked, the worker is told, and closing the desk gives the clocks back."""
    card = Card()
    desk = desk_over(card)

    desk.lock(1500)
    records, commands = settle(desk)

    assert card.locked == 1500
    assert [c.verb for c in commands] == ["ramp"]
    assert any(isinstance(r, Clocks) and r.state.locked_mhz == 1500 for r in records)
    desk.close()
    assert card.locked is None
    assert not desk.failure


def test_a_step_in_between_is_rounded_down_and_said():
    """1507 MHz is no step: the next lower one is taken, and a note says so."""
    card = Card()
    desk = desk_over(card)

    desk.lock(1507)
    records, _ = settle(desk)

    assert card.locked == 1500
    notes = [r.notice.evidence["reason"] for r in records if isinstance(r, Noted)]
    assert any("1507" in note and "1500" in note for note in notes)


@pytest.mark.parametrize("mhz", [0, 10**6])
def test_a_clock_out_of_range_is_refused_in_a_line(mhz):
    """Nothing is locked, and the refusal stands in the clock state and the log."""
    card = Card()
    desk = desk_over(card)

    desk.lock(mhz)
    records, commands = settle(desk)

    assert card.locked is None
    assert not commands
    assert any(isinstance(r, Noted) and r.notice.code == "lock refused" for r in records)
    assert any(isinstance(r, Clocks) and "refused" in r.state.evidence for r in records)


def test_what_the_driver_refuses_leaves_the_run_unlocked():
    """Without rights the run goes on, and says so once."""
    card = Card(refuses="needs root")
    desk = desk_over(card, wanted="1500")

    records, commands = settle(desk)

    assert not commands
    assert card.locked is None
    desk.close()
    assert not desk.failure
    assert records is not None


def test_concerns_are_asked_about_and_a_second_wish_goes_ahead():
    """A suspected foreign lock stops the first wish; the same wish again is consent."""
    card = Card(concerns=["somebody else computes here"])
    desk = desk_over(card)

    desk.lock(1500)
    settle(desk)
    first = card.locked
    desk.lock(1500)
    settle(desk)

    assert first is None
    assert card.locked == 1500


def test_another_clock_after_a_refusal_is_not_consent():
    """Consent is to what was refused, not to everything."""
    card = Card(concerns=["somebody else computes here"])
    desk = desk_over(card)

    desk.lock(1500)
    settle(desk)
    desk.lock(1515)
    settle(desk)

    assert card.locked is None


def test_base_is_locked_as_soon_as_the_device_is_known():
    """`--lock base` needs no key."""
    card = Card()
    desk_over(card, wanted="base")

    assert card.locked == 1590


VAIN = {"worth": False}


def advised(mhz, **changes):
    """A sound advice to lock there."""
    numbers = {"std_now": 0.02, "std_locked": 0.004, "std_locked_low": 0.002, **changes}
    return Advice(verdict=Verdict.LOCK, lock_mhz=mhz, **numbers)


def watched(desk, second, mhz, *, util_pct=98.0):
    """One second of readings, ten of them."""
    desk._time.advance((second + 1) * NS_PER_S - desk._time.now_ns())
    for i in range(10):
        at_ns = second * NS_PER_S + i * NS_PER_S // 10
        desk.on_reading(
            Reading(device="sim-0", at_ns=at_ns, sm_mhz=mhz(i), util_pct=util_pct, reasons=4)
        )


def told(desk):
    """What has been said so far, in one text."""
    records, _ = settle(desk)
    return " | ".join(str(r.notice.evidence) for r in records if isinstance(r, Noted))


def dithering(i):
    """A clock that moves about 1650 MHz."""
    return 1635.0 + 15 * (i % 3)


def test_an_advice_that_has_stood_at_a_settled_clock_is_taken_once():
    """`--lock advice` waits for the same advice over seconds, and does not follow the next one."""
    card = Card()
    desk = desk_over(card, wanted="advice")
    for second in range(10):
        watched(desk, second, dithering)
        desk.on_advice(Advice(verdict=Verdict.WAIT))
    desk.on_advice(advised(1620))
    settle(desk)
    assert card.locked is None

    for second in range(10, 17):
        watched(desk, second, dithering)
        desk.on_advice(advised(1620))
    words = told(desk)
    desk.on_advice(advised(1500))
    settle(desk)

    assert card.locked == 1620
    assert "as advised" in words
    assert "std 2.00 %" in words


def test_an_advice_whose_clock_hardly_moves_is_one_advice():
    """A step to and fro is the noise of the evidence, and the lock is made at what stands then."""
    card = Card()
    desk = desk_over(card, wanted="advice")
    for second in range(12):
        watched(desk, second, dithering)
        desk.on_advice(advised(1605 + 15 * (second % 2)))
    settle(desk)

    assert card.locked in (1605, 1620)


@pytest.mark.parametrize(
    ("advice", "mhz", "util_pct"),
    [
        (lambda s: advised(1560 + 60 * (s % 2)), dithering, 98.0),
        (lambda s: advised(705), dithering, 98.0),
        (lambda s: advised(1620), dithering, 0.0),
        (
            lambda s: msgspec.structs.replace(advised(1620), evidence={"worth": False}),
            dithering,
            98,
        ),
        (lambda s: Advice(verdict=Verdict.WAIT), dithering, 98.0),
    ],
    ids=["jumps", "another clock than the readings'", "idle", "not worth it", "wait"],
)
def test_an_advice_that_is_not_borne_out_is_not_taken(advice, mhz, util_pct):
    """It jumps, is of another clock, of an idle device, or costs more than it gains: no lock."""
    card = Card()
    desk = desk_over(card, wanted="advice")

    for second in range(30):
        watched(desk, second, mhz, util_pct=util_pct)
        desk.on_advice(advice(second))
    settle(desk)

    assert card.locked is None
    desk.close()
    assert desk.unmet == "advice"
    assert "refused" not in told(desk)


def test_a_clock_that_climbs_is_not_locked_at():
    """After an idle gap the clock climbs: what is advised of that is not taken."""
    card = Card()
    desk = desk_over(card, wanted="advice")

    for second in range(8):
        watched(desk, second, lambda i, s=second: 705.0 + 120 * s + 12 * i)
        desk.on_advice(advised(705))
    settle(desk)

    assert card.locked is None


def test_a_lock_tells_what_it_costs_of_the_free_clock():
    """The clock of before is remembered with the lock."""
    desk = desk_over(Card())
    for second in range(3):
        watched(desk, second, dithering)

    desk.lock(1500)
    records, _ = settle(desk)

    state = [r.state for r in records if isinstance(r, Clocks)][-1]
    assert state.cost == pytest.approx(1 - 1500 / 1650)
    assert "9.1 % below the free clock (1650 MHz)" in cost_words(state)


def test_a_lock_that_the_driver_ignores_is_known_from_then_on():
    """No limit lifts a clock above its lock; the advice says so instead of proposing another."""
    desk = desk_over(Card())
    desk.lock(1500)
    records, _ = settle(desk)
    for second in range(14):
        watched(desk, second, dithering)
    records += settle(desk)[0]
    desk.unlock()
    records += settle(desk)[0]

    states = [r.state for r in records if isinstance(r, Clocks)]
    assert [s.is_ignored for s in states] == [False, True, True]
    assert "power cap" not in states[1].evidence
    assert clock_words(states[1]) == "lock 1500 MHz IGNORED"
    advice = heeding(advised(1620), states[2])
    assert advice.verdict is Verdict.CANNOT_LOCK
    assert advice.lock_mhz is None
    assert "MHz" not in advice_line(advice)
    unknown = heeding(Advice(reason="short", evidence={"needs": {"short": 8}}), states[2])
    assert advice_line(unknown) == "CANNOT LOCK: the driver ignores locks here"
    steady = Advice(verdict=Verdict.STEADY)
    assert heeding(steady, states[2]).verdict is Verdict.STEADY


def test_consent_that_comes_late_or_to_another_clock_is_asked_for_in_other_words():
    """A second wish after half a minute is refused in words that say so."""
    desk = desk_over(Card(concerns=["somebody else computes here"]))
    desk.lock(1500)
    first = told(desk)
    desk._time.advance(31 * NS_PER_S)
    desk.lock(1500)
    late = told(desk)
    desk.lock(1515)
    other = told(desk)

    assert "ask again within 30 s" in first
    assert "asked 31 s ago" in late
    assert "not to 1515 MHz" in other


def test_somebody_elses_lock_is_set_free_not_given_back():
    """It cannot be put back, and the end says that it is gone."""
    card = Card(concerns=[f"{FOREIGN_WORDS} (it stands still): it cannot be put back"])
    desk = desk_over(card, force=True)
    desk.lock(1500)
    records, _ = settle(desk)
    during = [r.state for r in records if isinstance(r, Clocks)][-1]
    desk.unlock()
    records, _ = settle(desk)
    after = [r.state for r in records if isinstance(r, Clocks)][-1]

    assert after.hold is ClockHold.FREE
    line = clocks_line(during, after)
    assert line.endswith("set free; the other lock is gone")
    assert "given back" not in line


def test_a_starved_device_has_no_foreign_lock():
    """A clock that falls for want of work stands still as well, and is nobody's lock."""
    desk = desk_over(Card())
    for second in range(20):
        watched(desk, second, lambda i: 1185.0)
    for second in range(20, 40):
        desk.is_starved = True
        desk.on_reading(Reading(device="sim-0", at_ns=second * NS_PER_S, sm_mhz=1185.0, reasons=0))

    records, _ = desk.drain()
    assert ClockHold.FOREIGN not in [r.state.hold for r in records if isinstance(r, Clocks)][-1:]


def test_changing_the_clock_moves_the_one_lease():
    """A second wish changes the lock; there is still one thing to undo."""
    card = Card()
    desk = desk_over(card)

    desk.lock(1500)
    settle(desk)
    desk.lock(1600 - 1600 % 15)
    settle(desk)
    desk.unlock()
    settle(desk)

    assert card.locked is None


def test_a_lock_that_cannot_be_undone_is_loud():
    """The failure is kept for the exit code and the user's terminal."""
    card = Card(undo_fails=True)
    desk = desk_over(card)

    desk.lock(1500)
    settle(desk)
    desk.close()

    assert "type this" in desk.failure


def test_keep_leaves_the_lock_on():
    """`--keep-lock` is the user's wish, and the state says how to undo it."""
    card = Card()
    desk = desk_over(card, keep=True)

    desk.lock(1500)
    settle(desk)
    desk.close()

    assert card.locked == 1500
    assert "undo" in desk._state.evidence


def test_a_device_without_clock_control_says_why():
    """The dialog has its reason, and a wish is answered with it."""

    def refuse(_):
        raise ClockRefused("the clock of a CPU is the governor's")

    desk = ClockDesk(refuse, time_source=ManualTime(1))
    desk.on_device(msgspec.structs.replace(INFO, kind="cpu"))
    records, _ = settle(desk)

    assert any(isinstance(r, Clocks) and "governor" in r.state.reason for r in records)
    with pytest.raises(ClockError, match="governor"):
        desk.lock(1500)


def test_a_clock_that_is_not_held_is_told():
    """Readings under load below the lock turn the state into `not held`."""
    card = Card()
    desk = desk_over(card)
    desk.lock(1800)
    settle(desk)

    for i in range(300):
        desk.on_reading(
            Reading(device="sim-0", at_ns=i * 100_000_000, sm_mhz=1650.0, util_pct=100.0, reasons=4)
        )
    records, _ = desk.drain()

    holds = [r.state.hold for r in records if isinstance(r, Clocks)]
    assert holds[-1] is ClockHold.NOT_HELD


def watch_scenario(name, card, seconds):
    """A desk that sees the sensors of a scenario's run; the states it told, as records."""
    session = load(name, card, seed=1, time_source=ManualTime(1))
    desk = ClockDesk(lambda _: session.clocks, time_source=ManualTime(1))
    desk.on_device(session.telemetry.info())
    records, _ = settle(desk)
    run = trace(name, card, seed=1, duration_s=seconds, poll_hz=10.0)
    for at_ns, mhz, reasons in zip(run.read_ns, run.sm_mhz, run.reasons, strict=True):
        known = None if math.isnan(reasons) else int(reasons)
        desk.on_reading(
            Reading(device=session.clocks.uuid, at_ns=int(at_ns), sm_mhz=mhz, reasons=known)
        )
    return [*records, *desk.drain()[0]]


def test_a_clock_that_stands_still_is_called_a_foreign_lock():
    """Where a lock cannot be read back, readings under load show somebody else's."""
    records = watch_scenario("foreign-lock", "h100", 14.0)

    state = [r.state for r in records if isinstance(r, Clocks)][-1]
    assert state.hold is ClockHold.FOREIGN
    assert "1590 MHz" in state.evidence
    assert state.can_lock
    assert state.supported_mhz == find_card("h100").supported_mhz


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", ["steady", "attention", "power-cap", "cold-ramp"])
def test_no_foreign_lock_is_seen_where_there_is_none(name, card):
    """Free clocks move, stand at the top or say what limits them."""
    records = watch_scenario(name, card, 24.0)

    assert ClockHold.FOREIGN not in [r.state.hold for r in records if isinstance(r, Clocks)]


@pytest.mark.parametrize(("seconds", "is_refused"), [(5, False), (14, True)])
def test_a_lock_is_refused_exactly_while_a_foreign_one_is_shown(seconds, is_refused):
    """What the screen says of the clock is what a wish to lock is judged by."""
    card = Card()
    desk = desk_over(card)
    for i in range(seconds * 10):
        desk.on_reading(Reading(device="sim-0", at_ns=i * 100_000_000, sm_mhz=1485.0, reasons=0))
    shown = [r.state.hold for r in desk.drain()[0] if isinstance(r, Clocks)][-1:]

    desk.lock(1500)
    settle(desk)

    assert (ClockHold.FOREIGN in shown) is is_refused
    assert (card.locked is None) is is_refused


def test_a_foreign_lock_that_goes_is_taken_back():
    """When the clock moves again the state is what it was before the suspicion."""
    desk = desk_over(Card())

    for i in range(240):
        mhz = 1500.0 if i < 150 else 1700.0 + i % 3
        desk.on_reading(Reading(device="sim-0", at_ns=i * 100_000_000, sm_mhz=mhz, reasons=0))
    records, _ = desk.drain()

    holds = [r.state.hold for r in records if isinstance(r, Clocks)]
    assert holds == [ClockHold.FOREIGN, ClockHold.UNKNOWN]


def test_an_idle_clock_is_no_foreign_lock():
    """Without load, or without a word on load, a clock that stands still proves nothing."""
    desk = desk_over(Card())

    for i in range(240):
        is_mute = i < 120
        desk.on_reading(
            Reading(
                device="sim-0",
                at_ns=i * 100_000_000,
                sm_mhz=1500.0,
                util_pct=None if is_mute else 0.0,
                reasons=None if is_mute else 0,
            )
        )

    assert desk.drain()[0] == []


@pytest.mark.parametrize("card", ["h100", "mi300"])
@pytest.mark.parametrize(
    ("name", "hold"),
    [
        ("locked", ClockHold.LOCKED),
        ("lock-not-held", ClockHold.NOT_HELD),
        ("lock-ignored", ClockHold.NOT_HELD),
    ],
)
def test_the_lock_of_a_scenario_becomes_ours(name, hold, card):
    """A lock that is on from the start needs no consent, is followed, and is given back."""
    session = load(name, card, seed=1, time_source=ManualTime(1))
    wanted = find_scenario(name).initial_lock_mhz(session.card)
    desk = ClockDesk(lambda _: session.clocks, wanted=str(wanted), time_source=ManualTime(1))
    desk.on_device(session.telemetry.info())
    settle(desk)

    run = trace(name, card, seed=1, duration_s=14.0, poll_hz=10.0)
    for at_ns, mhz, reasons in zip(run.read_ns, run.sm_mhz, run.reasons, strict=True):
        desk.on_reading(
            Reading(device=session.clocks.uuid, at_ns=int(at_ns), sm_mhz=mhz, reasons=int(reasons))
        )
    records, _ = desk.drain()
    desk.close()

    assert [r.state.hold for r in records if isinstance(r, Clocks)][-1] is hold
    assert session.gpu.truth().lock_mhz is None

"""Clock sweeps: which clocks are visited, in which order, and what is made of the visits."""

import itertools
import random

import pytest

from tests.fakes import session as fake
from usv_tui.cli.main import main
from usv_tui.errors import ClockRefused, UsageError
from usv_tui.model import ClockHold, ClockState
from usv_tui.records import Clocks, Device, End, Progress, Telemetry, Visit
from usv_tui.report import sweep as report
from usv_tui.seams import Tier
from usv_tui.session import export
from usv_tui.session.store import Store
from usv_tui.session.sweep import HELD, Plan, Sweep, clocks_of, marks, points
from usv_tui.sim.device import load
from usv_tui.timers.wall import Slot
from usv_tui.timesource import NS_PER_S, ManualTime

STEPS = list(range(300, 2001, 15))


# -- which clocks


def test_clocks_are_even_and_on_the_device_s_steps():
    """From half of the highest clock to the highest, unless told otherwise."""
    assert clocks_of(Plan(steps=3), STEPS) == [1005, 1500, 1995]
    assert clocks_of(Plan(from_mhz=600, to_mhz=900, steps=2), STEPS) == [600, 900]
    assert clocks_of(Plan(from_mhz=900, to_mhz=900), STEPS) == [900]
    assert clocks_of(Plan(from_mhz=500, to_mhz=700, steps=3), []) == [500, 600, 700]


@pytest.mark.parametrize(
    ("plan", "supported", "kind"),
    [
        (Plan(), [], UsageError),
        (Plan(to_mhz=900), [], UsageError),
        (Plan(from_mhz=1500, to_mhz=900), STEPS, UsageError),
        (Plan(from_mhz=100), STEPS, ClockRefused),
        (Plan(to_mhz=9000), STEPS, ClockRefused),
    ],
)
def test_a_range_that_cannot_be_visited_is_refused(plan, supported, kind):
    """Unknown, empty, or beyond what the device has."""
    with pytest.raises(kind):
        clocks_of(plan, supported)


# -- the way through them


class Card:
    """Clocks that are set at once, or not as told; keeps what was asked of it."""

    def __init__(self, store, *, refuses=(), can_lock=True):
        self.is_busy = False
        self.asked = []
        self._store = store
        self._refuses = refuses
        self._tell(None, can_lock=can_lock)

    def _tell(self, mhz, *, can_lock=True, evidence=""):
        hold = ClockHold.FREE if mhz is None else ClockHold.PENDING
        state = ClockState(
            hold=hold,
            locked_mhz=mhz,
            can_lock=can_lock,
            supported_mhz=STEPS,
            evidence=evidence,
            reason="" if can_lock else "needs root",
        )
        self._store.apply([Clocks(1, state)])

    def lock(self, sm_mhz):
        """Set it, or leave a refusal."""
        self.asked.append(sm_mhz)
        if sm_mhz in self._refuses:
            self._tell(None, evidence=f"refused: {sm_mhz}")
        else:
            self._tell(sm_mhz)

    def unlock(self):
        """Give it back."""
        self.asked.append(None)
        self._tell(None)


def walk(sweep, card, store, seconds=10_000):
    """Let it run until it is over; returns the visits."""
    store.apply([fake.start(), Progress(1, "measuring")])
    now_ns, found = 10 * NS_PER_S, []
    for _ in range(seconds * 2):
        done = sweep.look(store, card, now_ns)
        store.apply(done)
        found += done
        if sweep.is_over:
            return found
        now_ns += NS_PER_S // 2
    raise AssertionError


def test_each_clock_and_the_free_one_are_visited_as_often_in_random_order():
    """Every turn holds each clock once, shuffled by the seed; visits do not overlap."""
    orders = []
    for seed in (1, 2):
        store = Store()
        card = Card(store)
        visits = walk(Sweep(Plan(steps=4, visits=3, seconds=2), seed), card, store)
        orders.append([visit.mhz for visit in visits])
        turns = [orders[-1][i : i + 5] for i in range(0, 15, 5)]
        assert len(visits) == 15
        assert all(set(turn) == {1005, 1335, 1665, 1995, None} for turn in turns)
        assert all(a.to_ns <= b.from_ns for a, b in itertools.pairwise(visits))
        assert all(visit.to_ns - visit.from_ns == 2 * NS_PER_S for visit in visits)

    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [({"can_lock": False}, "needs root"), ({"refuses": STEPS}, "refused: ")],
    ids=["no rights", "refused"],
)
def test_a_sweep_that_cannot_lock_ends_with_the_reason(options, why):
    """At once, and as a refused lock."""
    store = Store()
    sweep = Sweep(Plan(steps=3, visits=1), 1)

    walk(sweep, Card(store, **options), store)

    assert why in sweep.failure
    assert why in str(sweep.fault())
    assert sweep.progress == ""


# -- on a simulated card


class SimCard(Card):
    """A simulated session's clocks."""

    def __init__(self, store, session):
        self._session = session
        self._undo = None
        super().__init__(store)

    def lock(self, sm_mhz):
        """Lock the simulated card."""
        self._undo = self._undo or self._session.clocks.plan_undo()
        self._session.clocks.lock(sm_mhz)
        self._told(sm_mhz)

    def unlock(self):
        """Free the simulated card."""
        self._session.clocks.undo(self._undo)
        self._told(None)

    def _tell(self, mhz, *, can_lock=True, evidence=""):
        self._told(mhz)

    def _told(self, mhz):
        steps = self._session.clocks.supported_mhz()
        hold = ClockHold.FREE if mhz is None else ClockHold.PENDING
        state = ClockState(hold=hold, locked_mhz=mhz, can_lock=True, supported_mhz=list(steps))
        self._store.apply([Clocks(1, state)])


def swept(scenario, plan, seed=1, card="h100", heat_s=15):
    """A whole sweep in virtual time."""
    time = ManualTime(NS_PER_S)
    session = load(scenario, card, seed, time)
    slots = [Slot(i, b.build("sim")) for i, b in enumerate(session.suite.benchmarks)]
    store = Store()
    rows = [fake.row(i, b.name) for i, b in enumerate(session.suite.benchmarks)]
    store.apply([fake.start(), *rows, Progress(1, "measuring")])
    store.apply([Device(1, session.telemetry.open())])
    clocks, sweep, round_, poll_ns = SimCard(store, session), Sweep(plan, seed), 0, 0
    begin_ns = time.now_ns() + heat_s * NS_PER_S
    while not sweep.is_over:
        assert session.timer.enqueue(round_, slots) is None
        round_ += 1
        store.apply(session.timer.harvest(wait=False))
        now_ns = time.now_ns()
        if now_ns >= poll_ns:
            poll_ns = now_ns + NS_PER_S // 10
            store.apply([Telemetry(session.telemetry.read(Tier.ALL))])
        if now_ns > begin_ns:
            store.apply(sweep.look(store, clocks, now_ns))
    return store, sweep


@pytest.fixture(scope="module")
def capped():
    """A sweep over a card whose power cap moves the clock."""
    return swept("power-cap", Plan(steps=4, visits=1, seconds=2.0))


def test_the_fastest_clock_that_holds_is_found_between_the_steps(capped):
    """The clock offered holds, the next one that was visited does not, and they are near."""
    store, _ = capped
    chosen = marks(points(store.steps()))
    above = [s for s in store.steps() if s.mhz is not None and s.mhz > chosen.fastest.step.mhz]

    assert chosen.fastest.step.held >= HELD
    assert above[0].held < HELD
    assert above[0].mhz - chosen.fastest.step.mhz < 100


def test_a_clock_that_holds_takes_the_spread_away_and_the_free_one_is_the_reference(capped):
    """The free clock is 1 by definition; locked at the fastest clock that holds, std falls."""
    store, _ = capped
    found = points(store.steps())
    free, chosen = found[-1], marks(found)

    assert free.step.mhz is None
    assert (free.time, free.energy) == (1.0, 1.0)
    assert chosen.fastest.std < free.std / 2
    assert chosen.thriftiest.energy < 0.9
    assert chosen.thriftiest.step.mhz <= chosen.fastest.step.mhz


def test_the_report_says_the_marks_and_what_the_free_clock_costs(capped):
    """In words, as text and as Markdown, for all rows and for one."""
    store, _ = capped
    names = {bench: row.info.name for bench, row in store.rows.items()}
    chosen = marks(points(store.steps()))

    text = report.render(store.steps(), names)

    assert f"{chosen.fastest.step.mhz} MHz; the free clock takes" in text
    assert all(mark in text for mark in ("fastest that holds", "least std", "least energy"))
    assert "| clock |" in report.render(store.steps(), names, markdown=True)
    assert "median" in report.render(store.steps(), names, bench=0).splitlines()[1]
    assert [step["mhz"] for step in report.as_data(store.steps(), names)][-1] is None


def test_visits_too_short_for_samples_are_no_clocks():
    """Nothing is concluded from nothing."""
    store = Store()
    store.apply([fake.start(), fake.row(0, "a"), Visit(1, 2, 900), Visit(3, 4, None)])

    assert points(store.steps()) == []
    assert report.render(store.steps(), {0: "a"}) == "sweep: no clock was visited long enough"


def test_no_clock_that_holds_is_said():
    """Then the range was too high."""
    store, _ = swept("power-cap", Plan(from_mhz=1900, steps=2, visits=1, seconds=2.0))
    names = {bench: row.info.name for bench, row in store.rows.items()}

    assert marks(points(store.steps())) == (None, None, None)
    assert "sweep lower" in report.render(store.steps(), names)


def test_the_random_order_is_the_seed_s_alone():
    """Whoever reseeds the global generator does not change it."""
    orders = []
    for _ in range(2):
        store = Store()
        random.seed(len(orders))
        visits = walk(Sweep(Plan(steps=5, visits=2, seconds=1), 9), Card(store), store)
        orders.append([visit.mhz for visit in visits])

    assert orders[0] == orders[1]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_sweep_without_a_gpu_is_refused_before_the_file_is_run(
    device, tmp_path, capsys, monkeypatch
):
    """Exit 7 and one line, at once: no set-up, no session, no table."""
    monkeypatch.setattr("usv_tui.engine.choice.sees_gpu", lambda: False)
    file = tmp_path / "suite.py"
    file.write_text("raise AssertionError('it was run')\n")

    assert main(["clocks", "sweep", str(file), "--device", device]) == 7
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "nothing to sweep" in err


def test_a_sweep_that_may_not_lock_ends_before_anything_is_measured():
    """Refused rights are known as soon as the device is: no warm-up is waited for."""
    store = Store()
    store.apply([fake.start(), fake.phase("priming")])
    sweep = Sweep(Plan(steps=3, visits=1), 1)
    card = Card(store, can_lock=False)

    sweep.look(store, card, 1)

    assert "needs root" in sweep.failure


def test_locks_that_the_card_runs_above_are_not_called_too_high():
    """A driver that ignores locks is named as such; a lower clock would not be held either."""
    store, _ = swept("lock-ignored", Plan(from_mhz=900, to_mhz=1200, steps=2, visits=1, seconds=1))

    said = report.render(store.steps(), {bench: row.info.name for bench, row in store.rows.items()})

    assert "no clock held: locked at 900 MHz the card ran at " in said
    assert "sweep lower" not in said


def test_a_sweep_that_was_ended_early_says_so_under_its_table(capped):
    """Its marks hold for what was visited until then."""
    store, _ = capped
    store.apply([End(1 << 40, "SIGINT", False)])

    assert export.sweep_text(store).endswith("NOT FINISHED: SIGINT")


def test_a_range_upside_down_is_a_usage_error_before_anything_runs(capsys):
    """Exit 2 and one line, as for any other mistake on the command line."""
    code = main(["clocks", "sweep", "--device", "sim:h100", "--from", "1500", "--to", "1000"])

    assert code == 2
    assert "--from 1500 is above --to 1000" in capsys.readouterr().err

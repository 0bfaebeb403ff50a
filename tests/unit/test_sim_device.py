"""The simulated card behind the seams of the device layer: sensors, clock control, sessions."""

from dataclasses import replace

import numpy as np
import pytest

from usv_tui.clocks.verify import HoldWatch, foreign_lock_hint
from usv_tui.errors import ClockError, ClockRefused, DeviceLost, TelemetryOff, UsageError
from usv_tui.model import ClockHold, Reading, Reason
from usv_tui.records import Telemetry, decode, encode
from usv_tui.seams import ClockController, TelemetrySource, Tier
from usv_tui.sim.device import SimClocks, SimSession, SimTelemetry, load
from usv_tui.sim.profiles import CARDS
from usv_tui.sim.scenarios import SCENARIOS, describe, find_scenario, parse_spec
from usv_tui.telemetry.poller import Poller
from usv_tui.timers.wall import Slot, Timer
from usv_tui.timesource import ManualTime


def session_of(scenario: str, card: str = "h100") -> tuple[SimSession, ManualTime]:
    """A session in virtual time."""
    time = ManualTime(1_000)
    return load(scenario, card, 0, time), time


def busy(
    session: SimSession, time: ManualTime, seconds: float, hz: float = 10.0, tiers: Tier = Tier.ALL
) -> list[Reading]:
    """Readings while the session's kernels run back to back."""
    slots = [Slot(i, b.build("sim")) for i, b in enumerate(session.suite.benchmarks)]
    end_ns = time.now_ns() + round(seconds * 1e9)
    due_ns = time.now_ns()
    readings = []
    while time.now_ns() < end_ns:
        assert session.timer.enqueue(0, slots) is None
        session.timer.harvest(wait=False)
        if time.now_ns() >= due_ns:
            readings.append(session.telemetry.read(tiers))
            due_ns += round(1e9 / hz)
    return readings


def test_the_parts_of_a_session_fill_the_seams():
    """Timer, telemetry and clock control can be passed where the engine and devices want theirs."""
    session, _ = session_of("steady")
    timer: Timer = session.timer
    telemetry: TelemetrySource = session.telemetry
    clocks: ClockController = session.clocks

    assert timer.info.name == "sim-event"
    assert telemetry.open().simulated
    assert clocks.kind == "sim"


def test_a_session_says_that_it_is_simulated():
    """Card and scenario stand in the label, the device and its note: nobody mistakes it."""
    session, _ = session_of("power-cap", "mi300")
    info = session.telemetry.open()

    assert session.label.startswith("SIMULATED")
    assert session.spec == "sim:mi300:power-cap"
    assert "simulated" in info.name
    assert info.note.startswith("SIMULATED")
    assert info.kind == "sim"


def test_readings_follow_the_true_state():
    """Clock, power, temperature and reasons are those of the card under a power cap."""
    session, time = session_of("power-cap")
    last = busy(session, time, 3.0)[-1]
    truth = session.gpu.truth()

    assert last.sm_mhz == pytest.approx(truth.mhz, rel=0.05)
    assert last.power_mw == pytest.approx(session.card.cap_w * 1e3, rel=0.05)
    assert last.temp_c == pytest.approx(truth.temp_c, abs=1.0)
    assert last.reasons == Reason.SW_POWER_CAP
    assert last.util_pct == 100.0
    assert last.throttle_ns["power"] > 2.5e9
    assert decode(encode(Telemetry(last))) == Telemetry(last)


def test_the_energy_counter_is_the_integral_of_power():
    """Joules between two readings are mean power times the time between them."""
    session, time = session_of("power-cap")
    readings = busy(session, time, 5.0, hz=20.0)[5:]
    joules = (readings[-1].energy_mj - readings[0].energy_mj) * 1e-3
    seconds = (readings[-1].at_ns - readings[0].at_ns) * 1e-9
    mean_w = np.mean([r.power_mw for r in readings]) * 1e-3

    assert joules / seconds == pytest.approx(mean_w, rel=0.01)


def test_only_the_asked_tiers_are_read_and_the_rest_has_an_age():
    """Fields of other tiers repeat their last value and say how old it is."""
    session, time = session_of("steady")
    busy(session, time, 0.5)
    time.advance(300_000_000)
    reading = session.telemetry.read(Tier.FAST)

    assert "sm_mhz" not in reading.ages_ns
    assert reading.ages_ns["temp_c"] >= 300_000_000
    assert reading.temp_c is not None


def test_a_field_that_was_never_read_is_none():
    """Before its first read a field has no value, rather than a zero."""
    session, _ = session_of("steady")
    reading = session.telemetry.read(Tier.FAST)

    assert reading.sm_mhz is not None
    assert reading.temp_c is None
    assert reading.others is None


@pytest.mark.parametrize("card", sorted(CARDS))
def test_missing_sensors_are_none_and_say_why(card):
    """What a card does not report is None in every reading, with a reason in its device."""
    session, time = session_of("steady", card)
    info = session.telemetry.open()
    reading = busy(session, time, 0.3)[-1]

    for name, sensor in info.sensors.items():
        value = getattr(reading, name)
        if sensor.reason is None:
            assert value is not None, name
        else:
            assert sensor.reason
            assert value in (None, {}), name
    assert {n for n, s in info.sensors.items() if s.reason} == set(CARDS[card].missing)


def test_sensors_that_stop_leave_none_and_a_reason():
    """After the loss the fields are None with a reason, and the others go on."""
    session, time = session_of("sensor-loss")
    before = session.telemetry.read(Tier.ALL)
    time.advance(12_100_000_000)
    after = session.telemetry.read(Tier.ALL)
    sensors = session.telemetry.info().sensors

    assert before.sm_mhz is not None
    assert (after.sm_mhz, after.power_mw, after.temp_c) == (None, None, None)
    assert after.energy_mj is not None
    assert "stopped" in sensors["temp_c"].reason


def test_a_lost_card_is_never_read_again():
    """After the loss every read raises DeviceLost."""
    session, time = session_of("gpu-lost")
    assert session.telemetry.read(Tier.ALL).sm_mhz is not None
    time.advance(12_100_000_000)

    for _ in range(2):
        with pytest.raises(DeviceLost):
            session.telemetry.read(Tier.FAST)


def test_without_telemetry_opening_says_why():
    """A card without a management library is off for good, and timing still works."""
    session, _ = session_of("no-telemetry")
    with pytest.raises(TelemetryOff, match="not installed"):
        session.telemetry.open()

    slots = [Slot(i, b.build("sim")) for i, b in enumerate(session.suite.benchmarks)]
    assert session.timer.enqueue(0, slots) is None
    assert len(session.timer.harvest(wait=True)) == 1


def test_a_stalled_sensor_blocks_its_reader_once():
    """One look takes four seconds; the next ones are quick again."""
    session, time = session_of("sensor-stall")
    time.advance(8_100_000_000)
    costs = []
    for _ in range(3):
        before_ns = time.now_ns()
        session.telemetry.read(Tier.FAST)
        costs.append(time.now_ns() - before_ns)

    assert costs == [4_000_000_000, 0, 0]


def test_closing_lets_a_stalled_reader_go():
    """A reader that hangs in a stall returns when the source is closed: quitting never waits."""
    session, time = session_of("sensor-stall")
    time.advance(8_100_000_000)
    session.telemetry.close()
    before_ns = time.now_ns()
    session.telemetry.read(Tier.FAST)

    assert time.now_ns() == before_ns


def test_the_poller_reads_a_simulated_card():
    """The poller that serves real cards gets its readings, losses and reasons from this one."""
    session, time = session_of("gpu-lost")
    records: list = []
    poller = Poller(session.telemetry, records.append, time, learn_s=0.0)
    for _ in range(400):
        if poller.is_gone:
            break
        time.advance(poller.tick())

    readings = [r for r in records if isinstance(r, Telemetry)]
    assert poller.is_gone
    assert 100 < len(readings) < 140
    assert readings[5].reading.sm_mhz is not None


def test_other_processes_are_named_while_they_are_there():
    """A neighbour's pid is listed when it computes, and the list is empty when it does not."""
    session, time = session_of("noisy-neighbour")
    seen = {tuple(r.others) for r in busy(session, time, 15.0, hz=4.0)}

    assert seen == {(), (4711,)}


def test_a_lock_is_honoured_and_undone():
    """The clock stands on the lock under load and boosts again after the undo."""
    session, time = session_of("steady")
    clocks = session.clocks
    undo = clocks.plan_undo()
    clocks.lock(1500)
    locked = {r.sm_mhz for r in busy(session, time, 1.0)[5:]}
    assert clocks.state().locked_mhz == 1500
    assert clocks.state().hold is ClockHold.PENDING
    clocks.undo(undo)
    free = {r.sm_mhz for r in busy(session, time, 3.0)[-5:]}

    assert locked == {1500.0}
    assert free == {1980.0}
    assert session.gpu.truth().lock_mhz is None


@pytest.mark.parametrize(
    ("scenario", "mhz", "hold"),
    [
        ("steady", 1500, ClockHold.LOCKED),
        ("lock-not-held", 1980, ClockHold.NOT_HELD),
        ("lock-ignored", 1200, ClockHold.NOT_HELD),
    ],
)
def test_whether_a_lock_is_held_shows_in_the_readings(scenario, mhz, hold):
    """The watch on readings tells a held lock from one under a cap and from an ignored one."""
    session, time = session_of(scenario)
    session.clocks.lock(mhz)
    watch = HoldWatch(mhz, session.clocks.supported_mhz())
    for reading in busy(session, time, 14.0):
        watch.feed(reading)

    assert watch.hold is hold


def test_a_refused_lock_changes_nothing():
    """Where the driver refuses, the error says what it takes and the card is as before."""
    session, _ = session_of("lock-refused")
    with pytest.raises(ClockRefused, match="refuses"):
        session.clocks.lock(1500)

    assert session.gpu.truth().lock_mhz is None
    assert not session.clocks.state().can_lock
    assert session.clocks.state().reason


@pytest.mark.parametrize("mhz", [0, 1_000_000, 1501])
def test_a_clock_that_the_card_does_not_have_is_refused(mhz):
    """0 MHz, 10^6 MHz and a value between two steps are refused with the range."""
    session, _ = session_of("steady")
    with pytest.raises(ClockRefused, match="210 to 1980"):
        session.clocks.lock(mhz)

    assert session.gpu.truth().lock_mhz is None


def test_a_memory_clock_that_cannot_be_set_is_noted_and_the_core_lock_stands():
    """An unsupported memory clock does not undo the core lock; the controller tells why."""
    session, _ = session_of("steady")
    session.clocks.lock(1500, 999)

    assert "999" not in session.clocks.mem_refusal
    assert "2619" in session.clocks.mem_refusal
    assert session.gpu.truth().lock_mhz == 1500


def test_a_foreign_lock_is_suspected_from_readings_under_load():
    """A clock that stands on its base under a light load looks locked by somebody else."""
    foreign, time = session_of("foreign-lock")
    free, other_time = session_of("steady")

    assert "1590" in foreign_lock_hint(busy(foreign, time, 4.0), foreign.card.supported_mhz)
    assert not foreign_lock_hint(busy(free, other_time, 4.0), free.card.supported_mhz)


def test_a_foreign_lock_shows_on_an_idle_card():
    """Before anything runs the idle clock tells; on AMD-like cards the level does."""
    for card, word in (("h100", "idle at 1590"), ("mi300", "perf_determinism")):
        session, time = session_of("foreign-lock", card)
        time.advance(3_000_000_000)
        state = session.clocks.state()
        free, free_time = session_of("steady", card)
        free_time.advance(3_000_000_000)

        assert state.hold is ClockHold.FOREIGN
        assert word in state.evidence
        assert free.clocks.state().hold is not ClockHold.FOREIGN


def test_a_lock_that_can_be_read_is_put_back():
    """On an AMD-like card the undo restores the lock that was there; elsewhere it resets."""
    readable, _ = session_of("foreign-lock", "mi300")
    blind, _ = session_of("foreign-lock", "h100")
    for session, wanted in ((readable, 1500), (blind, None)):
        undo = session.clocks.plan_undo()
        session.clocks.lock(session.card.min_mhz + 40 * session.card.step_mhz)
        session.clocks.undo(undo)

        assert session.gpu.truth().lock_mhz == wanted


def test_an_undo_for_another_device_is_refused():
    """An undo plan names its device, and no other one obeys it."""
    one, _ = session_of("steady", "h100")
    other, _ = session_of("steady", "mi300")
    other.clocks.lock(1500)
    with pytest.raises(ClockError, match="not for"):
        other.clocks.undo(one.clocks.plan_undo())

    assert other.gpu.truth().lock_mhz == 1500


def test_the_ground_truth_of_kernels_can_be_asked_for():
    """Alpha and ratio at a clock come from the kernels' own numbers."""
    session, _ = session_of("power-cap")
    gpu = session.gpu
    gemm, copy = gpu.kernel("gemm"), gpu.kernel("copy")

    assert gpu.true_alpha("gemm", session.card.base_mhz) == pytest.approx(0.95)
    assert gpu.true_alpha("copy", session.card.base_mhz) == pytest.approx(0.05)
    assert gpu.true_ratio("copy", "gemm", 1700) == copy.seconds(session.card, 1700) / gemm.seconds(
        session.card, 1700
    )
    with pytest.raises(KeyError):
        gpu.kernel("nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sim", ("h100", "attention")),
        ("sim:mi300", ("mi300", "attention")),
        ("sim:rtx:power-cap", ("rtx", "power-cap")),
        ("sim::cold-ramp", ("h100", "cold-ramp")),
    ],
)
def test_a_device_spec_names_card_and_scenario(text, expected):
    """`sim`, `sim:CARD` and `sim:CARD:SCENARIO` are understood, with defaults."""
    assert parse_spec(text) == expected


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("sim:h101", "mi300"),
        ("sim:h100:warm", "cold-ramp"),
        ("cuda:0", "sim:CARD"),
        ("sim:a:b:c", ""),
        ("sim:", "sim:CARD"),
        ("sim::", "sim:CARD"),
        ("sim:h100:", "sim:CARD"),
    ],
)
def test_an_unknown_card_or_scenario_lists_what_exists(text, listed):
    """A mistake in the spec is a usage error that names the choices."""
    with pytest.raises(UsageError) as caught:
        parse_spec(text)

    assert listed in caught.value.hint
    assert caught.value.exit_code == 2


def test_loading_an_unknown_scenario_or_card_lists_what_exists():
    """`load` refuses what it does not know, with the list."""
    with pytest.raises(UsageError, match="cold-ramp"):
        load("nothing")
    with pytest.raises(UsageError, match="mi300"):
        load("steady", "nothing")


def test_every_scenario_says_what_it_is_and_what_to_look_for():
    """The demo's list has one line each of what it is and of what to look for, under 90 columns."""
    for name, summary, look_for in describe():
        assert name in SCENARIOS
        assert 20 < len(summary) < 90
        assert 20 < len(look_for) < 90


def test_the_scenarios_that_were_promised_exist():
    """Each situation of the design has a scenario of its own."""
    promised = {
        "cold-ramp", "thermal-saturation", "power-cap", "noisy-neighbour", "locked",
        "lock-not-held", "memory-bound", "two-modes", "sensor-loss", "gpu-lost", "foreign-lock",
        "steady", "throttled", "two-identical", "attention",
    }  # fmt: skip

    assert promised <= set(SCENARIOS)


def test_a_suite_has_a_row_for_each_kernel_with_flops_params_and_baseline():
    """The demo's rows carry what the table shows: group, parameters, work and baseline."""
    session, _ = session_of("attention")
    rows = session.suite.benchmarks

    assert [r.name for r in rows] == [k.name for k in find_scenario("attention").kernels]
    assert {r.params["kind"] for r in rows} == {"math", "efficient", "flash"}
    assert sum(r.is_baseline for r in rows) == 2
    for row in rows:
        assert row.flops / session.card.peak_flops < 1.0
        assert row.group == f"attention[seq={row.params['seq']}]"


@pytest.mark.parametrize("card", ["h100", "mi300", "rtx"])
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_no_kernel_is_faster_than_its_card_could_be(scenario, card):
    """Flops and bytes of every kernel stay below the card's peaks at its highest clock."""
    session, _ = session_of(scenario, card)
    for k in session.scenario.kernels:
        seconds = k.seconds(session.card, session.card.max_mhz)

        assert (k.flops or 0.0) / seconds < session.card.peak_flops
        assert (k.bytes or 0.0) / seconds < session.card.peak_bytes_per_s


def test_looking_costs_no_virtual_time():
    """Sensors and truth can be read at any time without moving the clock."""
    session, time = session_of("steady")
    before_ns = time.now_ns()
    SimTelemetry(session.gpu).read(Tier.ALL)
    SimClocks(session.gpu).state()
    session.gpu.truth()

    assert time.now_ns() == before_ns


def test_a_compiling_kernel_costs_its_first_call():
    """The first launch of a kernel that compiles takes the host that long, the second does not."""
    session, time = session_of("steady")
    k = replace(session.scenario.kernels[0], name="jit", compile_ns=500_000_000)
    costs = []
    for _ in range(2):
        before_ns = time.now_ns()
        session.gpu.launch(k)
        costs.append(time.now_ns() - before_ns)

    assert costs == [500_000_000 + session.card.launch_ns, session.card.launch_ns]

"""What a device cannot read is refused, and what real ones do read is not."""

from collections import deque

import pytest

from tests.fakes.nvml_fake import H100, FakeNvml, forget_library
from usv_tui.model import DeviceInfo, SensorInfo
from usv_tui.records import Noted, Telemetry
from usv_tui.report.wording.notices import CODES, sentence
from usv_tui.seams import Tier
from usv_tui.telemetry.energy import RowWindows, energy_per_call
from usv_tui.telemetry.nvidia import NvmlTelemetry
from usv_tui.telemetry.plausible import EnergyWitness, Judge, sane_info
from usv_tui.telemetry.poller import Poller
from usv_tui.telemetry.sensors import SensorBoard
from usv_tui.timesource import ManualTime

np = pytest.importorskip("numpy")
S = 1_000_000_000
CARD = DeviceInfo(
    uuid="GPU-1",
    name="Card",
    kind="nvidia",
    max_sm_mhz=1980,
    supported_sm_mhz=[210, 1980],
    power_limit_mw=120_000,
    temp_limits_c={"shutdown": 95.0, "slowdown": 92.0},
)


def judge(info=CARD) -> Judge:
    """One that knows the card."""
    one = Judge()
    one.know(info)
    return one


def refuse(one, name, *values, step_ns=S // 10, start_ns=100 * S, **others):
    """Feed values; returns the reason for the last one."""
    why = ""
    for index, value in enumerate(values):
        why = one.refuse(name, value, start_ns + index * step_ns, others)
    return why


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power_mw", 4_000_000_000), ("power_mw", 593_000), ("power_mw", -5), ("power_mw", 0),
        ("sm_mhz", 4000), ("sm_mhz", 65_535), ("sm_mhz", 0), ("sm_mhz", -1),
        ("temp_c", 0), ("temp_c", -1), ("temp_c", -274), ("temp_c", 255), ("temp_c", 120),
        ("mem_temp_c", 65_535), ("mem_mhz", 65_535), ("mem_mhz", 0), ("util_pct", 255),
        ("util_pct", -1), ("fan_pct", 65_535), ("pstate", 32), ("power_limit_mw", 0),
        ("power_limit_mw", 2**32 - 2), ("energy_mj", 0), ("energy_mj", -1),
    ],
)  # fmt: skip
def test_what_no_card_can_read_is_refused_with_its_figure(name, value):
    """A first reading is held against the card's limits, or any card's."""
    why = refuse(judge(), name, value)

    assert why.startswith("implausible: ")
    assert any(character.isdigit() for character in why)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("power_mw", [60_000, 230_000, 90_000]),  # an excursion over 120 W
        ("sm_mhz", [345, 1980, 2055, 210]),  # a bin over the listed maximum
        ("temp_c", [61, 93, 70, 97]),  # a load step; hotter than slowdown
        ("temp_c", [3, 2, 1, 0, -1, -2]),  # an unheated room in winter
        ("util_pct", [0, 100]), ("fan_pct", [0, 120]), ("mem_mhz", [405, 14_001]),
        ("energy_mj", [5, 5, 20_000, 31_000]), ("pstate", [0, 15]),
        ("throttle_ns.power", [0, 10**8, 2 * 10**8]),
    ],
)  # fmt: skip
def test_rare_but_true_values_pass(name, values):
    """What real cards show now and then is shown."""
    one = judge()

    assert [refuse(one, name, value, start_ns=(100 + i) * S) for i, value in enumerate(values)] == [
        ""
    ] * len(values)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temp_c", [61, 0]), ("temp_c", [61, -1]), ("temp_c", [35, 95]),
        ("energy_mj", [1000, 2**40]), ("throttle_ns.power", [0, 10**14]),
    ],
)  # fmt: skip
def test_jumps_that_physics_does_not_make_are_refused(name, values):
    """History is the second witness."""
    assert refuse(judge(), name, *values).startswith("implausible: ")


def test_a_temperature_that_jumped_and_stays_there_is_believed():
    """A cold card under its first load; a sensor that falls to 0 is never believed."""
    assert refuse(judge(), "temp_c", 30, 85, step_ns=S) != ""
    assert refuse(judge(), "temp_c", 30, 85, 86, 87, step_ns=S) == ""
    assert refuse(judge(), "temp_c", 61, *[0] * 30, step_ns=S) != ""


def test_a_lowered_limit_counts_only_after_the_means_of_before_have_passed():
    """A mean over a second still holds what was drawn under the old limit."""
    one = judge()
    refuse(one, "power_limit_mw", 50_000)

    assert refuse(one, "power_mw", 200_000, start_ns=101 * S) == ""
    assert refuse(one, "power_mw", 200_000, start_ns=130 * S) != ""


def test_limits_that_cannot_be_true_judge_nothing():
    """A maximum of 65535 MHz or a limit of 0 W is no witness, and is not shown."""
    odd = DeviceInfo(
        uuid="GPU-1", name="Odd", kind="nvidia", max_sm_mhz=65_535, power_limit_mw=0,
        supported_sm_mhz=[0, 210, 1980, 65_535], temp_limits_c={"shutdown": 65_535.0},
    )  # fmt: skip
    one = judge(odd)

    assert refuse(one, "sm_mhz", 1980) == ""
    assert refuse(one, "power_mw", 700_000) == ""
    assert sane_info(odd) == {
        "max_sm_mhz": None, "power_limit_mw": None, "supported_sm_mhz": [210, 1980],
        "temp_limits_c": {},
    }  # fmt: skip


def test_an_idle_amd_chip_may_read_no_watt_and_a_busy_one_may_not():
    """Its tables have whole watts."""
    amd = DeviceInfo(uuid="amd", name="APU", kind="amd")

    assert refuse(judge(amd), "power_mw", 0, util_pct=1) == ""
    assert refuse(judge(amd), "power_mw", 0, util_pct=90) != ""


def test_a_counter_that_jumped_for_good_goes_on_without_the_jump():
    """The jump is nobody's energy; what is counted after it is."""
    from usv_tui.telemetry.sensors import MonotonicCounter

    board = SensorBoard(("energy_mj", "power_mw", "temp_c", "util_pct"))
    board.know(CARD)
    counter, values = MonotonicCounter(), []
    for look in range(20):
        jump = 10**15 if look >= 5 else 0
        board.begin(100 * S + look * S // 10)
        board.put("energy_mj", 1000 + 10_000 * look + jump, counter=counter)
        values.append(board.value("energy_mj"))

    assert values[4] == 41_000
    assert values[5:8] == [None] * 3
    assert values[-1] == 41_000 + 10_000 * 12
    assert board.infos()["energy_mj"].refused == 3


def test_an_energy_counter_that_disagrees_with_power_again_and_again_is_given_up():
    """Two witnesses, several periods."""
    witness, liar = EnergyWitness(3.0, 3), EnergyWitness(3.0, 3)
    told = [witness.feed(look * 30_000, 250_000.0, look * S // 10) for look in range(400)]
    lies = [liar.feed(look * 100, 250_000.0, look * S // 10) for look in range(400)]

    assert not any(told)
    first = next(look for look, why in enumerate(lies) if why)
    assert 290 < first < 320
    assert lies[first] == "the counter says 1 W where power reads 250 W"


def test_a_temperature_that_stands_still_while_power_moves_is_doubted():
    """Not in a steady state, where a die keeps its degree for hours."""
    board = SensorBoard(("energy_mj", "power_mw", "temp_c", "util_pct"))
    for look in range(200):
        board.begin(100 * S + look * S)
        board.put("temp_c", 61)
        board.put("power_mw", 300_000 + look)
        board.watch_stuck()
    steady = board.infos()["temp_c"].doubt
    for look in range(200, 400):
        board.begin(100 * S + look * S)
        board.put("temp_c", 61)
        board.put("power_mw", 100_000 if look % 7 else 400_000)
        board.watch_stuck()

    assert steady == ""
    assert board.infos()["temp_c"].doubt.startswith("stuck")


# --- through a driver


@pytest.fixture
def fake():
    """Two healthy GPUs."""
    library = FakeNvml()
    yield library
    forget_library()


@pytest.mark.parametrize(
    ("script", "good", "field"),
    [
        ("0.power=4000000000", "0.power=305123", "power_mw"),
        ("0.sm=65535", "0.sm=1410", "sm_mhz"),
        ("0.temp=0", "0.temp=61", "temp_c"),
    ],
)
def test_a_lying_driver_is_refused_counted_and_told_once(fake, script, good, field):
    """The figure is missing for as long as it lies, with the reason, and comes back."""
    time = ManualTime(start_ns=100 * S)
    fake("stamps=0")
    records = deque()
    poller = Poller(NvmlTelemetry(H100, fake.path, time), records.append, time, learn_s=0)

    def run(looks):
        for _ in range(looks):
            time.advance(S // 10)
            poller.tick()
        return next(r.reading for r in reversed(records) if isinstance(r, Telemetry))

    assert getattr(run(25), field) is not None
    fake(script)
    lied = run(15)
    fake(good)
    after = run(25)
    notices = [r.notice for r in records if isinstance(r, Noted)]

    assert getattr(lied, field) is None
    assert getattr(after, field) is not None
    assert [n.code for n in notices] == ["sensor refused"]
    assert field in sentence(notices[0])
    assert notices[0].code in CODES


def test_a_driver_that_lies_from_the_start_gives_no_first_value(fake):
    """Nothing is taken for true because it came first."""
    fake("0.power=4000000000,0.sm=4000,0.temp=0,0.max=1980")
    source = NvmlTelemetry(H100, fake.path, ManualTime(start_ns=100 * S))
    source.open()
    reading = source.read(Tier.ALL)
    sensors = source.info().sensors
    source.close()

    assert (reading.power_mw, reading.sm_mhz, reading.temp_c) == (None, None, None)
    assert sensors["sm_mhz"].reason == "implausible: 4000 MHz, the device's maximum is 1980"
    assert sensors["power_mw"].refused == 1


def test_a_stuck_power_sensor_gives_no_energy():
    """What stands still cannot be integrated."""
    row = RowWindows(np.array([0, S]), np.array([S, S]), np.array([1, 1]))
    t_ns, power = np.array([0, S, 2 * S]), np.array([3e5, 3e5, 3e5])
    none = np.full(3, np.nan)
    doubted = SensorInfo(doubt="stuck: the same for 10 s under load")

    assert energy_per_call(row, t_ns, none, power, None, SensorInfo()).joules is not None
    assert energy_per_call(row, t_ns, none, power, None, doubted) == (
        None,
        "power is stuck: the same for 10 s under load",
    )

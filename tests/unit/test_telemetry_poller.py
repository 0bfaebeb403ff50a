"""The poller: deadlines, tiers, back-off, losses, hangs; in virtual time where no thread is."""

import threading
from collections import Counter, deque
from itertools import pairwise

import pytest

from usv_tui.errors import DeviceLost, SensorGap, TelemetryError, TelemetryOff
from usv_tui.gate import Gate
from usv_tui.model import DeviceInfo, Reading, SensorInfo
from usv_tui.records import Device, Noted, Telemetry, encode
from usv_tui.report.wording.notices import sentence
from usv_tui.seams import Tier
from usv_tui.telemetry.poller import Poller
from usv_tui.timesource import ManualTime
from usv_tui.vendor.processes import MOST

MS = 1_000_000
S = 1_000_000_000


class FakeSource:
    """A source whose behaviour is a function of the look's number; each call takes `cost_ns`."""

    name = "fake"

    def __init__(self, time, cost_ns=0):
        self.time = time
        self.cost_ns = cost_ns
        self.looks = []
        self.opens = 0
        self.closes = 0
        self.on_open = lambda n: None
        self.on_read = lambda n: None
        self.fields = lambda n: {"sm_mhz": 1000.0 + n}
        self.note = ""

    def open(self):
        self.opens += 1
        self.on_open(self.opens)
        return self.info()

    def read(self, tiers):
        self.looks.append((self.time.now_ns(), tiers))
        if isinstance(self.time, ManualTime):
            self.time.advance(self.cost_ns)
        self.on_read(len(self.looks))
        return Reading(device="GPU-1", at_ns=self.time.now_ns(), **self.fields(len(self.looks)))

    def info(self):
        sensors = {"sm_mhz": SensorInfo(source="fake", label=self.note)}
        return DeviceInfo(uuid="GPU-1", name="Fake", kind="sim", sensors=sensors)

    def close(self):
        self.closes += 1


def run(poller, time, seconds):
    """Tick through virtual time."""
    end_ns = time.now_ns() + round(seconds * S)
    while time.now_ns() < end_ns:
        time.advance(max(1, min(poller.tick(), end_ns - time.now_ns())))


def make(cost_ns=0, **options):
    """A virtual clock, a source on it, the emitted records and the poller."""
    time = ManualTime(start_ns=5 * S)
    source = FakeSource(time, cost_ns)
    records = deque()
    options.setdefault("learn_s", 0)
    return time, source, records, Poller(source, records.append, time, **options)


def codes(records):
    """The codes of all notices."""
    return [r.notice.code for r in records if isinstance(r, Noted)]


def readings(records):
    """All readings."""
    return [r.reading for r in records if isinstance(r, Telemetry)]


def raiser(error):
    """A behaviour that always fails."""

    def raise_it(n):
        raise error

    return raise_it


def test_each_tier_has_its_own_rate():
    """In 30 s: 10 fast looks a second, 3.3 of the reasons, 1 slow, one rare every 10 s."""
    time, source, _, poller = make()

    run(poller, time, 30)

    counts = Counter(t for _, tiers in source.looks for t in Tier if t in tiers and t != Tier.ALL)
    assert 298 <= counts[Tier.FAST] <= 301
    assert 98 <= counts[Tier.REASONS] <= 102
    assert 29 <= counts[Tier.SLOW] <= 31
    assert 3 <= counts[Tier.RARE] <= 4


def test_deadlines_are_absolute_and_jittered():
    """Looks stay within 10 % of a period of the grid and never drift from it."""
    time, source, _, poller = make()

    run(poller, time, 60)

    phases = [((at - 5 * S + 50 * MS) % (100 * MS)) - 50 * MS for at, _ in source.looks[1:]]
    assert max(map(abs, phases)) <= 10 * MS
    assert max(phases) > 3 * MS
    assert min(phases) < -3 * MS


def test_the_device_comes_first_and_again_when_a_sensor_changes():
    """A `Device` record opens the stream and is repeated when a label or a reason changes."""
    time, source, records, poller = make()
    run(poller, time, 5)
    assert isinstance(records[0], Device)
    assert sum(isinstance(r, Device) for r in records) == 1

    source.note = "nominal"
    run(poller, time, 2)

    devices = [r for r in records if isinstance(r, Device)]
    assert [d.info.sensors["sm_mhz"].label for d in devices] == ["", "nominal"]


def test_a_sensor_that_stops_is_told_and_so_is_its_return():
    """Two looks without a value are a loss; one that never had any, or one bad look, is none."""
    time, source, records, poller = make()
    reasons = {"sm_mhz": None, "power_mw": None, "fan_pct": "no fan"}
    source.info = lambda: DeviceInfo(
        uuid="GPU-1",
        name="Fake",
        kind="sim",
        sensors={name: SensorInfo(source="fake", reason=why) for name, why in reasons.items()},
    )
    run(poller, time, 3)
    reasons["power_mw"] = "busy"
    run(poller, time, 1)
    reasons["power_mw"] = None
    run(poller, time, 2)
    assert codes(records) == []

    reasons.update(sm_mhz="stopped", power_mw="stopped")
    run(poller, time, 5)
    reasons.update(sm_mhz=None)
    run(poller, time, 3)

    told = [sentence(r.notice) for r in records if isinstance(r, Noted)]
    assert told == [
        "no longer reported: sm_mhz, power_mw (stopped); the timing goes on",
        "reported again: sm_mhz",
    ]


def test_slow_calls_take_at_most_a_tenth_of_the_time_and_no_burst_follows():
    """Calls of 50 ms each: the duty is at most 10 %, and a recovery brings no backlog."""
    time, source, _, poller = make(cost_ns=50 * MS)
    run(poller, time, 60)
    assert len(source.looks) * 50 * MS <= 0.1 * 60 * S + 50 * MS
    assert len(source.looks) > 100

    source.cost_ns = 0
    before = len(source.looks)
    run(poller, time, 30)

    gaps = [b[0] - a[0] for a, b in pairwise(source.looks[before:])]
    assert min(gaps) >= 40 * MS
    assert len(gaps) <= 300
    assert poller.dropped_looks > 0


def test_one_slow_look_is_no_reason_to_go_blind():
    """A single look of 3 s among quick ones costs its own time only."""
    time, source, _, poller = make(cost_ns=MS // 10)
    run(poller, time, 5)
    source.on_read = lambda n: time.advance(3 * S) if n == 60 else None
    run(poller, time, 10)

    gaps = [b[0] - a[0] for a, b in pairwise(source.looks)]
    assert max(gaps) < 3.2 * S


def test_a_pause_of_the_machine_gives_one_gap_and_no_backlog():
    """After 60 s of sleep the grid goes on; missed looks are not made up for."""
    time, source, records, poller = make()
    run(poller, time, 2)
    time.advance(60 * S)
    before = len(source.looks)
    run(poller, time, 1)

    assert 9 <= len(source.looks) - before <= 11
    times = [r.at_ns for r in readings(records)]
    assert times == sorted(times)
    assert sum(b - a > S for a, b in pairwise(times)) == 1


def test_a_gap_is_an_empty_reading_and_recovery_comes_by_itself():
    """Nothing to read for a second: one empty reading, later and later tries, then values again."""
    time, source, records, poller = make()
    run(poller, time, 1)
    source.on_read = raiser(SensorGap("busy"))
    first = len(source.looks)
    run(poller, time, 5)
    tries = [at for at, _ in source.looks[first:]]
    source.on_read = lambda n: None
    run(poller, time, 5)

    assert sum(r.sm_mhz is None for r in readings(records)) == 1
    spans = [b - a for a, b in pairwise(tries)]
    assert spans == sorted(spans)
    assert spans[-1] >= 4 * spans[0]
    assert readings(records)[-1].sm_mhz is not None
    assert poller.state() == ""
    assert codes(records) == []


def test_gaps_that_last_are_a_loss():
    """Ten seconds of gaps: lost, closed, and opened again 30 s later."""
    time, source, records, poller = make()
    run(poller, time, 1)
    source.on_read = raiser(SensorGap("busy"))
    run(poller, time, 20)
    assert codes(records) == ["telemetry lost"]
    assert poller.state() == "lost: busy"

    source.on_read = lambda n: None
    run(poller, time, 40)

    assert codes(records) == ["telemetry lost", "telemetry recovered"]
    assert source.opens == 2
    assert poller.state() == ""


def test_a_loss_is_noted_once_and_opened_again_every_30_s():
    """Errors of the whole layer: one notice, a try every 30 s, the recovery noted."""
    time, source, records, poller = make()
    run(poller, time, 1)
    source.on_read = raiser(TelemetryError("unknown error"))
    source.on_open = raiser(TelemetryError("still gone"))
    run(poller, time, 100)
    assert source.opens == 4
    assert codes(records) == ["telemetry lost"]
    assert poller.state() == "lost: still gone"

    source.on_read = source.on_open = lambda n: None
    run(poller, time, 30)

    assert codes(records) == ["telemetry lost", "telemetry recovered"]
    recovered = [r.notice for r in records if isinstance(r, Noted)][-1]
    assert recovered.evidence["after_s"] == pytest.approx(120, abs=1)


def test_a_lost_device_is_told_once_and_looked_for_every_30_s():
    """The GPU fell off the bus: one error notice, an empty reading, and no call in between."""
    time, source, records, poller = make()
    run(poller, time, 1)
    source.on_read = raiser(DeviceLost("GPU is lost"))
    run(poller, time, 0.2)
    looks = len(source.looks)
    run(poller, time, 29)
    assert len(source.looks) == looks
    source.on_open = raiser(TelemetryOff("no such GPU"))
    run(poller, time, 91)

    assert len(source.looks) == looks
    assert source.opens == 1 + 4
    assert codes(records) == ["device lost"]
    assert readings(records)[-1].sm_mhz is None
    assert poller.is_gone
    assert poller.state() == "GPU is lost"


def test_no_library_is_tried_once():
    """`TelemetryOff` on opening: the reason is the state, and it is told once."""
    time, source, records, poller = make()
    source.on_open = raiser(TelemetryOff("NVML library not found"))
    run(poller, time, 120)

    assert source.opens == 1
    assert poller.state() == "NVML library not found"
    assert codes(records) == ["telemetry off"]


@pytest.mark.parametrize("error", [KeyError("libamd_smi.so"), AttributeError("x"), OSError("y")])
def test_anything_that_a_library_raises_is_a_reason_not_a_crash(error):
    """A vendor library may raise what it likes: the state names it, and a retry follows."""
    time, source, _, poller = make()
    source.on_open = raiser(error)
    run(poller, time, 1)
    assert poller.state().startswith(f"lost: {type(error).__name__}: ")

    source.on_open = lambda n: None
    run(poller, time, 31)

    assert poller.state() == ""


def test_pausing_stops_all_calls():
    """Between `pause` and `resume` nothing is read, and the state says so."""
    time, source, _, poller = make()
    run(poller, time, 1)
    poller.pause()
    before = len(source.looks)
    run(poller, time, 30)
    assert len(source.looks) == before
    assert poller.state() == "paused"

    poller.resume()
    run(poller, time, 1)

    assert len(source.looks) > before + 5


def test_told_to_be_quiet_it_reads_the_fast_tier_only():
    """While a block is timed without a gate, slow and rare sensors wait; they catch up after."""
    time, source, _, poller = make()
    run(poller, time, 0.5)
    poller.quiet(True)
    before = len(source.looks)
    run(poller, time, 20)
    assert {tiers for _, tiers in source.looks[before:]} == {Tier.FAST}

    poller.quiet(False)
    run(poller, time, 0.2)

    assert any(tiers == Tier.ALL for _, tiers in source.looks[before:])


def test_stale_readings_show_their_age():
    """When looks stop coming, the state is the age of the last good one."""
    time, _, _, poller = make()
    run(poller, time, 1)
    time.advance(4 * S)

    assert poller.state().startswith("stale 4.")


def test_others_on_the_device_are_named_once():
    """New foreign pids make one notice, their leaving another."""
    time, source, records, poller = make()
    source.fields = lambda n: {"others": [4711] if 20 < n < 60 else []}
    run(poller, time, 10)

    notes = [r.notice for r in records if isinstance(r, Noted)]
    assert [n.code for n in notes] == ["shared device", "no longer shared"]
    [process] = notes[0].evidence["processes"]
    assert process["pid"] == 4711
    assert notes[0].evidence["more"] == 0


def test_of_thousands_on_the_device_the_largest_are_named():
    """20,000 pids make a short record, a short notice and a count."""
    time, source, records, poller = make()
    pids = list(range(100_000, 120_000))
    sizes = [None if pid % 2 else pid for pid in pids]
    source.fields = lambda _: {"others": pids, "others_bytes": sizes}
    run(poller, time, 5)

    readings = [r for r in records if isinstance(r, Telemetry)]
    assert max(len(encode(record)) for record in records) < 1_000
    assert all(r.reading.others_more == len(pids) - MOST for r in readings)
    assert sum(bool(r.reading.others_bytes) for r in readings) == 1
    [note] = [r.notice for r in records if isinstance(r, Noted)]
    assert [p["pid"] for p in note.evidence["processes"]] == list(range(119_984, 120_000, 2))
    assert note.evidence["processes"][-1]["memory_bytes"] == 119_998
    assert len(sentence(note)) < 1_000
    assert sentence(note).endswith("and 19,992 more")


def test_refresh_periods_are_learned_from_quick_looks_that_are_not_passed_on():
    """The first 1.5 s are read every 20 ms, but records come at the normal rate."""
    time, source, records, poller = make(learn_s=1.5)
    run(poller, time, 1.5)
    quick = len(source.looks)
    run(poller, time, 1.5)

    assert quick > 60
    assert len(source.looks) - quick < 20
    assert len(readings(records)) < 40


def test_nothing_is_learned_while_a_worker_measures():
    """With a manned gate the quick looks of the start are left out."""
    time, source, _, poller = make(learn_s=1.5, gate=(gate := Gate()))
    gate.man()
    served = threading.Event()

    def serve():
        while not served.wait(0.0005):
            gate.serve(20 * MS)

    worker = threading.Thread(target=serve)
    worker.start()
    try:
        run(poller, time, 1.5)
    finally:
        served.set()
        worker.join()

    assert 14 <= len(source.looks) <= 17


def test_without_the_gate_only_the_fast_tier_is_read_and_the_interval_is_noted():
    """A worker that does not open the gate in time is read past, cheaply, and can flag it."""
    time, source, _, poller = make(gate=(gate := Gate()))
    gate.man()

    poller.tick()
    time.advance(10 * MS)
    poller.tick()

    assert source.opens == 1
    assert [tiers for _, tiers in source.looks] == [Tier.FAST]
    assert len(gate.forced) == 2


def test_a_holder_that_hangs_costs_the_worker_one_bound_only():
    """A look that hangs while it holds the gate is given up on; later frames pass at once."""
    gate = Gate()
    gate.man()
    hang = threading.Event()
    entered = threading.Event()

    def hung():
        with gate.hold(5 * S):
            entered.set()
            hang.wait(30)

    thread = threading.Thread(target=hung, daemon=True)
    thread.start()
    while not gate.wanted:
        hang.wait(0.001)
    assert gate.serve(30 * MS)
    assert entered.is_set()
    assert len(gate.forced) == 1

    def frame():
        with gate.hold(5 * S) as held:
            frames.append(held)

    frames = []
    painter = threading.Thread(target=frame)
    painter.start()
    while not gate.wanted:
        hang.wait(0.001)
    gate.serve(5 * S)
    painter.join(5)
    hang.set()
    thread.join(5)

    assert frames == [True]
    assert len(gate.forced) == 1


def test_costs_are_kept_by_what_was_read():
    """Median, p99 and maximum of a look, apart for each set of tiers."""
    time, _, _, poller = make(cost_ns=2 * MS)
    run(poller, time, 20)

    costs = poller.costs()
    assert costs["fast"].p50_ns == 2 * MS
    assert costs["fast"].max_ns == 2 * MS
    assert "fast+reasons" in costs


def wait_for(condition, seconds=5):
    """Wait for a condition of another thread, bounded."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if condition():
            return True
        pause.wait(0.005)
    return False


@pytest.mark.parametrize("where", ["open", "read"])
def test_a_call_that_hangs_blocks_neither_the_state_nor_the_quit(where):
    """A hang in init or later: `stalled` within 2 s, and `stop` comes back at once."""
    import time as real_time

    hang = threading.Event()
    source = FakeSource(real_time)
    source.time = type("T", (), {"now_ns": staticmethod(real_time.perf_counter_ns)})()
    setattr(source, f"on_{where}", lambda n: hang.wait(30))
    poller = Poller(source, deque().append, learn_s=0)
    start = real_time.perf_counter()
    poller.start()

    assert wait_for(lambda: poller.state().startswith("stalled"), 3)
    assert real_time.perf_counter() - start < 2
    start = real_time.perf_counter()
    assert poller.stop() is False
    assert real_time.perf_counter() - start < 0.5
    hang.set()
    poller._thread.join(5)
    assert source.closes >= 1


def test_a_stall_that_ends_is_noted_with_its_length():
    """After a call of 30 s the log says what took so long."""
    time, source, records, poller = make()
    run(poller, time, 1)
    source.on_read = lambda n: time.advance(30 * S) if n == 15 else None
    run(poller, time, 35)

    notes = [r.notice for r in records if isinstance(r, Noted)]
    assert [n.code for n in notes] == ["telemetry stalled"]
    assert notes[0].evidence["seconds"] == 30.0


def test_the_thread_owns_the_source():
    """Opening, reading and closing happen in one thread, which is a daemon."""
    import time as real_time

    seen = set()
    source = FakeSource(type("T", (), {"now_ns": staticmethod(real_time.perf_counter_ns)})())
    source.on_open = source.on_read = lambda n: seen.add(threading.current_thread())
    original = source.close
    source.close = lambda: (seen.add(threading.current_thread()), original())
    records = deque()
    poller = Poller(source, records.append, rate_hz=100, learn_s=0)
    poller.start()
    assert wait_for(lambda: len(readings(records)) >= 3)

    assert poller.stop(timeout_s=5) is True
    assert len(seen) == 1
    assert seen.pop().daemon
    assert source.closes == 1


def test_a_library_that_raises_systemexit_switches_telemetry_off():
    """Even SystemExit from a vendor library ends in a reason, not in silence."""
    import time as real_time

    source = FakeSource(type("T", (), {"now_ns": staticmethod(real_time.perf_counter_ns)})())
    source.on_read = raiser(SystemExit(3))
    records = deque()
    poller = Poller(source, records.append, learn_s=0)
    poller.start()

    assert wait_for(lambda: "telemetry off" in codes(records))
    assert poller.state() == "telemetry ended: SystemExit: 3"
    assert poller.stop(timeout_s=5)

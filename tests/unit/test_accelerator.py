"""An accelerator that is none of torch's own kinds: timed by its events, held against its log."""

import itertools
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes.fake_accelerator import Accelerator, Event, FakeTorch, Stream, accelerator
from usv_tui import do_bench, get_timer
from usv_tui.engine.choice import choose_device
from usv_tui.engine.worker import make_timer, work
from usv_tui.errors import DeviceError, TimerError, UsageError
from usv_tui.gate import Gate
from usv_tui.library.timer_selection import NoDevice
from usv_tui.model import RunConfig, WorkRequest
from usv_tui.records import AnyRecord, BenchError, Chosen, Fault, Noted, Samples, Timing
from usv_tui.report.wording.notices import sentence
from usv_tui.timers.cache import make_flusher
from usv_tui.timers.event_pool import EventPool
from usv_tui.timers.events import EventTimer
from usv_tui.timers.families.mps import UNPROVEN
from usv_tui.timers.spin import Filler
from usv_tui.timers.wall import Slot
from usv_tui.timesource import MonotonicTime

US = 1_000
NEAR = 0.04


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    """The only torch of this process."""
    with accelerator() as fake:
        monkeypatch.setitem(sys.modules, "torch", fake)
        yield fake


def windows(timer: Any, slot: Slot, blocks: int = 5, size: int = 10) -> list[int]:
    """Some windows of a row."""
    found: list[int] = []
    for i in range(blocks):
        assert timer.enqueue(i, [slot] * size, 1) is None
        found += [w for s in timer.harvest(wait=i == blocks - 1) for w in s.window_ns]
    return found


def task(torch: FakeTorch, us: int, **where: Any) -> Callable[[], object]:
    """A row that launches one task."""
    return lambda: torch.task(f"{us} us", us * US, **where)


@pytest.mark.parametrize("us", [50, 200, 1000, 5000])
@pytest.mark.parametrize(
    "options",
    [{}, {"has_adds": False}, {"kind": "mps", "has_stream_query": False}],
    ids=["with additions", "without", "streams that tell nothing"],
)
def test_event_times_are_those_of_the_device_s_own_log(us: int, options: dict[str, Any]) -> None:
    """Short and long tasks read within a few per cent of what the device really did."""
    with accelerator(**options) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        slot = Slot(0, task(torch, us))
        slot.fn()
        found = windows(timer, slot, blocks=2 if us > 1000 else 5)
        true = torch.took_ns(f"{us} us")
    assert statistics.median(found) == pytest.approx(statistics.median(true), rel=NEAR)


def test_windows_on_a_stream_of_their_own_neither_hang_nor_overlap(torch: FakeTorch) -> None:
    """Streams wait for each other by events that nobody reuses while somebody waits for them."""
    timer = EventTimer(torch, torch.kind, probe=False)
    side = torch.Stream()
    slots = [Slot(0, task(torch, 300, stream=side), stream=side), Slot(1, task(torch, 100))]
    done = threading.Event()

    def run() -> None:
        for i in range(30):
            timer.enqueue(i, slots * 2, 2)
            found.extend(timer.harvest(wait=False))
        found.extend(timer.harvest(wait=True))
        done.set()

    found: list[Samples] = []
    threading.Thread(target=run, daemon=True).start()
    assert done.wait(60), "it hangs"
    rows = {
        bench: [s.window_ns for r in found for s in r.samples() if s.bench == bench]
        for bench in (0, 1)
    }
    assert statistics.median(rows[0]) == pytest.approx(300 * US, rel=NEAR)
    assert statistics.median(rows[1]) == pytest.approx(100 * US, rel=NEAR)
    log = sorted(t for t in torch.log if t.name in ("300 us", "100 us"))
    ordered = sorted(log, key=lambda t: t.begin_ns)
    assert all(b.begin_ns >= a.end_ns for a, b in itertools.pairwise(ordered))


def test_an_event_is_free_only_when_nobody_waits_for_it() -> None:
    """Given back while it is pending, it is not taken again before it has been reached."""
    with accelerator() as torch:
        timer_api = EventTimer(torch, torch.kind, probe=False)._gpu
        pool = EventPool(timer_api)
        event = pool.take()
        torch.task("long", 30_000 * US)
        event.record()
        pool.give_each(event)
        others = [pool.take() for _ in range(3)]
        assert event not in others
        torch.accelerator.synchronize()
        pool.reserve(1)
        assert event in pool.free


def test_a_row_that_fails_gives_its_events_back_when_the_device_has_passed_them(
    torch: FakeTorch,
) -> None:
    """The start event of a window that broke off is still in the stream."""
    timer = EventTimer(torch, torch.kind, probe=False)
    torch.task("long", 20_000 * US)

    def fails() -> None:
        raise ValueError("no")

    failure = timer.enqueue(0, [Slot(0, fails)])
    assert failure is not None
    assert all(event.query() for event in timer._pool.free)


def test_additions_hold_the_device_and_the_floor_is_taken_while_it_is_busy(
    torch: FakeTorch,
) -> None:
    """Without a spin kernel a filler stands in; the floor is then the device's own."""
    timer = EventTimer(torch, torch.kind, probe=False, blocker=True)
    assert isinstance(timer._spin, Filler)
    assert not timer.info.is_floor_host
    assert timer.info.floor_ns == pytest.approx(800, abs=50)
    slot = Slot(0, task(torch, 50))
    assert statistics.median(windows(timer, slot)) == pytest.approx(50 * US, rel=NEAR)


def test_a_floor_without_anything_to_hold_the_device_is_called_the_host_s() -> None:
    """Where not even additions work, the timer says whose floor it is, and what is lacking."""
    with accelerator(has_adds=False) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        assert timer.info.is_floor_host
        said = [sentence(r.notice) for r in timer.beside() if isinstance(r, Noted)]
    assert any("no spin kernel" in line and "the floor is the host's" in line for line in said)


@pytest.mark.parametrize("has_adds", [True, False])
def test_what_is_wrong_with_a_row_is_found_on_any_accelerator(*, has_adds: bool) -> None:
    """Work elsewhere is found with and without a filler, waiting with one; clean rows are clean."""
    with accelerator(has_adds=has_adds) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        side = torch.Stream()

        def elsewhere() -> None:
            torch.task("here", 100 * US)
            side.wait_stream(torch.accelerator.current_stream())
            torch.task("there", 2000 * US, stream=side)

        def waits() -> None:
            torch.task("here", 300 * US)
            torch.accelerator.synchronize()

        said = [
            {code for code, _ in timer.examine(Slot(i, fn))}
            for i, fn in enumerate((task(torch, 200), elsewhere, waits))
        ]
    assert said[0] == set()
    assert said[1] == {"work outside the stream"}
    assert said[2] == ({"synchronises"} if has_adds else set())


FILE = """
import torch
from usv_tui import phase

def phased():
    with phase("first"):
        torch.task("first", 100_000)
    with phase("second"):
        torch.task("second", 300_000)

BENCHMARKS = {
    "short": lambda: torch.task("short", 200_000),
    "long": lambda: torch.task("long", 1_000_000),
    "phased": phased,
}
"""


def run(tmp_path: Path, text: str = FILE, device: str = "auto", **options: Any) -> list[AnyRecord]:
    """A whole run; its records."""
    path = tmp_path / "bench.py"
    path.write_text(text, encoding="utf-8")
    config = RunConfig(iters=30, warmup_max_s=0.1, max_time_s=20.0, **options)
    records: list[AnyRecord] = []
    request = WorkRequest(path=str(path), device=device, config=config)
    work(request, records.append, deque(), threading.Event(), Gate())
    assert not [r for r in records if isinstance(r, Fault)]
    return records


def medians(records: list[AnyRecord]) -> dict[int, float]:
    """The median time of a call of each row, in us."""
    times: dict[int, list[float]] = {}
    for record in records:
        if isinstance(record, Samples) and not record.flag:
            for s in record.samples():
                times.setdefault(s.bench, []).append(s.window_ns / s.inner / US)
    return {bench: statistics.median(each) for bench, each in times.items()}


@pytest.mark.parametrize("device", ["auto", "fakeacc", "fakeacc:0"])
def test_a_run_takes_the_accelerator_and_its_times_are_true(
    torch: FakeTorch, tmp_path: Path, device: str
) -> None:
    """From choosing the device to phases: everything is timed in its stream."""
    records = run(tmp_path, device=device)
    chosen = next(r for r in records if isinstance(r, Chosen))
    timing = next(r for r in records if isinstance(r, Timing))
    found = medians(records)
    assert chosen.device == "fakeacc:0"
    assert timing.info.name == "event"
    assert "torch.Event on fakeacc" in timing.info.reason
    for bench, us in ((0, 200), (1, 1000), (2, 400), (10_000, 100), (10_001, 300)):
        assert found[bench] == pytest.approx(us, rel=0.06)


def test_a_cold_row_is_flushed_on_the_accelerator(torch: FakeTorch, tmp_path: Path) -> None:
    """The flush writes a buffer there before each window."""
    flusher = make_flusher("fakeacc:0", flush_mb=4, torch=torch)
    assert flusher.flush is not None
    flusher.flush()
    torch.accelerator.synchronize()
    assert len(torch.took_ns("zero")) == 1


def test_a_device_that_is_not_here_is_refused_by_what_is(torch: FakeTorch) -> None:
    """A name that torch does not know is a mistake; an index too high names what there is."""

    def choose(wanted: str) -> str:
        return choose_device(wanted, lambda _: None, MonotonicTime())[0]

    with pytest.raises(UsageError, match="no such device"):
        choose("nonsense")
    with pytest.raises(UsageError, match="no such device"):
        choose("fakeacc:x")
    with pytest.raises(DeviceError, match="no such device") as caught:
        choose("fakeacc:3")
    assert "fakeacc:0 Fake accelerator" in str(caught.value.hint)
    with pytest.raises(DeviceError, match="sees no GPU"):
        choose("cuda")


def test_events_that_tell_no_time_leave_the_host_s_clock_which_waits(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen by itself, and said; who asked for events gets an error instead."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Backend doesn't support events.")

    monkeypatch.setattr(torch, "Event", refuse)
    timer = make_timer(RunConfig(device="fakeacc:0"), torch)
    assert timer.info.name == "wall"
    assert "no events on fakeacc" in timer.info.reason
    assert "synchronised at both ends" in timer.info.reason
    slot = Slot(0, task(torch, 2000))
    assert statistics.median(windows(timer, slot, 1)) >= 2000 * US
    with pytest.raises(TimerError, match="support events"):
        make_timer(RunConfig(device="fakeacc:0", timer="torch"), torch)


def test_the_library_times_by_events_on_any_accelerator(torch: FakeTorch) -> None:
    """`do_bench` and `get_timer` find it by themselves."""
    measured = do_bench(task(torch, 2000), iters=20, warmup=2)
    assert measured.median == pytest.approx(2e-3, rel=NEAR)
    timer = get_timer()
    assert statistics.median(timer.record_n(task(torch, 500), 20)) == pytest.approx(
        500e-6, rel=NEAR
    )
    walled = do_bench(task(torch, 2000), iters=5, warmup=0, timer="wall")
    assert walled.median >= 2e-3


def test_events_without_an_accelerator_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing that they could be recorded on."""
    with accelerator() as torch:
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
        monkeypatch.delattr(torch, torch.kind)
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(NoDevice):
            get_timer("torch")


def test_kinds_that_nobody_has_tried_say_so() -> None:
    """Apple's stamps are the host's, and no figure of it was ever checked."""
    with accelerator(kind="mps", has_stream_query=False) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        said = [sentence(r.notice) for r in timer.beside() if isinstance(r, Noted)]
    assert "host times of a callback" in timer.info.reason
    assert any(UNPROVEN in line for line in said)


def test_a_failing_row_costs_only_itself(torch: FakeTorch, tmp_path: Path) -> None:
    """The others are measured on the accelerator all the same."""
    text = FILE + 'BENCHMARKS["bad"] = lambda: 1 / 0\n'
    records = run(tmp_path, text)
    failed = [r.bench for r in records if isinstance(r, BenchError)]
    assert failed == [3]
    assert {0, 1, 2} <= set(medians(records))


def test_a_row_of_python_alone_is_told_on_any_accelerator(torch: FakeTorch) -> None:
    """Behind a filler its window is an empty one, and the host's time is beside it."""
    timer = EventTimer(torch, torch.kind, probe=False)

    def python() -> None:
        end = time.perf_counter() + 300e-6
        while time.perf_counter() < end:
            pass

    [(code, evidence)] = timer.examine(Slot(0, python))
    assert code == "host only"
    assert evidence["host_ns"] > 100 * evidence["window_ns"]


def in_units(event: type, factor: float) -> Callable[..., float]:
    """Times as they are, in another unit than milliseconds."""
    true = event.elapsed_time  # type: ignore[attr-defined]
    return lambda start, end: factor * true(start, end)


def refuse(*_: object) -> None:
    """What an unfinished backend does."""
    raise NotImplementedError("not yet")


def stamp_at_launch(event: Any, patch: Any) -> None:
    """Events that are reached in their turn, and stamped when they are put in."""
    record = event.record

    def stamped(self: Any, stream: Any = None) -> None:
        self.asked_ns = time.perf_counter_ns()
        record(self, stream)

    patch(event, "record", stamped)
    patch(event, "elapsed_time", lambda a, b: float((b.asked_ns - a.asked_ns) * 1e-6))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda e, s: s(e, "query", None), "TypeError"),
        (lambda e, s: s(e, "synchronize", lambda _: None), "returns before its work is done"),
        (lambda e, s: s(Accelerator, "synchronize", lambda *_: None), "returns before its work"),
        (lambda e, s: s(e, "elapsed_time", in_units(e, 1e3)), "event timing does not work"),
        (lambda e, s: s(e, "elapsed_time", in_units(e, 1e-3)), "event timing does not work"),
        (lambda e, s: s(e, "elapsed_time", lambda *_: 0.0), "event timing does not work"),
        (lambda e, s: s(e, "elapsed_time", refuse), "tell no time"),
        (stamp_at_launch, "stamped when they are launched"),
        (lambda e, s: s(Stream, "put_wait", refuse), ""),
    ],
    ids=["query", "wait", "synchronise", "us", "s", "zero", "refuses", "launch", "no waits"],
)
def test_events_that_would_lie_are_refused(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, spoil: Any, words: str
) -> None:
    """Whatever a backend lacks or gets wrong: one line for who asked for events, and no figure."""
    spoil(Event, monkeypatch.setattr)
    config = RunConfig(device="fakeacc:0", timer="torch")
    if not words:
        assert make_timer(config, torch).info.name == "event"
        return
    with pytest.raises(TimerError, match=words):
        make_timer(config, torch)


FAR = """
import torch
class Far:
    device = type("Device", (), {"type": "otheracc", "index": 1})()
    def data_ptr(self): return 4096
    detach = copy_ = dtype = None
far, near = Far(), torch.zeros(4, device="fakeacc")
class Model:
    def __init__(self, *held): self.held = {"weights": [*held]}
    def __call__(self): torch.task("work", 200_000)
def returns():
    torch.task("work", 200_000)
    return far
BENCHMARKS = {"returns": returns, "holds": Model(far), "both": Model(far, near)}
"""


def test_work_on_another_device_is_refused_or_named(torch: FakeTorch, tmp_path: Path) -> None:
    """Events of one device see nothing of another one."""
    records = run(tmp_path, FAR)
    failed = {r.bench: r for r in records if isinstance(r, BenchError)}
    assert {bench: error.kind for bench, error in failed.items()} == {
        0: "other device",
        1: "other device",
    }
    assert "its tensors are on otheracc:1" in failed[0].message
    [told] = [r.notice for r in records if isinstance(r, Noted) and r.notice.code == "other device"]
    assert told.bench == 2
    assert "tensors on otheracc:1" in sentence(told)


REGISTERED = """
import sys, torch
torch.appear("newacc")
BENCHMARKS = {"row": lambda: torch.task("work", 2_000_000)}
"""


@pytest.mark.parametrize("device", ["auto", "newacc", "newacc:0"])
def test_a_backend_that_only_the_file_registers_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str
) -> None:
    """Torch hears of it while the file is imported, and the device is chosen then."""
    with accelerator() as torch:
        hide(torch, monkeypatch)
        records = run(tmp_path, REGISTERED, device=device)
    chosen = [r.device for r in records if isinstance(r, Chosen)]
    assert chosen[-1] == "newacc:0"
    assert medians(records)[0] == pytest.approx(2000, rel=0.06)


def test_a_kind_that_not_even_the_file_brings_is_no_such_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is a mistake after the import as it was before."""
    path = tmp_path / "bench.py"
    path.write_text("BENCHMARKS = {'row': lambda: None}")
    records: list[AnyRecord] = []
    request = WorkRequest(path=str(path), device="newac", config=RunConfig(iters=5))
    with accelerator() as torch:
        hide(torch, monkeypatch)
        work(request, records.append, deque(), threading.Event(), Gate())
    [fault] = [r for r in records if isinstance(r, Fault)]
    assert "--device newac: no such device" in fault.message
    assert not [r for r in records if isinstance(r, Chosen)]


def hide(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no accelerator, until the file says `torch.appear(name)`."""
    kind, there = torch.kind, torch.accelerator
    module = getattr(torch, kind)
    delattr(torch, kind)
    torch.accelerator = SimpleNamespace(is_available=lambda: False)  # type: ignore[assignment]

    def appear(name: str) -> None:
        torch.kind, torch.accelerator = name, there
        setattr(torch, name, module)

    monkeypatch.setattr(torch, "appear", appear, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch)

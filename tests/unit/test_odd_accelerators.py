"""Accelerators that lack something, or lie: no clock times a row whose work it does not see."""

import functools
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fakes.fake_accelerator import Event, FakeTorch, Tensor, accelerator
from usv_tui import BenchmarkFailed, do_bench, get_timer
from usv_tui.cli import machine
from usv_tui.diagnosis.checks import BenchFault, event_fault
from usv_tui.engine import choice
from usv_tui.engine.worker import make_timer, work
from usv_tui.errors import DeviceError, TimerError
from usv_tui.gate import Gate
from usv_tui.model import EXCLUDED, RunConfig, WorkRequest
from usv_tui.records import AnyRecord, BenchError, Fault, Mark, Noted, Samples
from usv_tui.report.wording.notices import sentence
from usv_tui.suite.reach import objects
from usv_tui.timers.events import EventTimer
from usv_tui.timers.host_clock import HostClock
from usv_tui.timers.stream_clock import check_events
from usv_tui.timers.wall import Slot, WallTimer
from usv_tui.timesource import ManualTime
from usv_tui.vendor.kinds import Access

US = 1_000
AUTO = RunConfig(device="fakeacc:0")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    """The only torch of this process."""
    with accelerator() as fake:
        monkeypatch.setitem(sys.modules, "torch", fake)
        yield fake


def run(tmp_path: Path, text: str, device: str = "auto", **options: Any) -> list[AnyRecord]:
    """A whole run; its records."""
    path = tmp_path / "bench.py"
    path.write_text(text, encoding="utf-8")
    wanted = {"iters": 5, "warmup_max_s": 0.01, "max_time_s": 20.0} | options
    config = RunConfig(**wanted)
    records: list[AnyRecord] = []
    request = WorkRequest(path=str(path), device=device, config=config)
    work(request, records.append, deque(), threading.Event(), Gate())
    return records


def counted(records: list[AnyRecord]) -> list[float]:
    """Times of the windows that count, in ns."""
    samples = [s for r in records if isinstance(r, Samples) for s in r.samples()]
    return [s.window_ns / s.inner for s in samples if not s.flags & EXCLUDED]


def device_tensor(torch: FakeTorch, kind: str, index: int = 0) -> Tensor:
    """A tensor somewhere."""
    made = torch.zeros(4, device=torch.kind)
    made.device = SimpleNamespace(type=kind, index=index)
    return made


# -- rows that work elsewhere than where the timer looks


@pytest.mark.parametrize(("kind", "index"), [("fakeacc", 1), ("otheracc", 0)])
@pytest.mark.parametrize("make", [EventTimer, lambda t, k, **_: get_timer("torch")])
def test_a_row_on_another_device_than_the_timer_s_is_refused(
    torch: FakeTorch, kind: str, index: int, make: Any
) -> None:
    """Another number, or another kind: its events would time nothing."""
    timer = make(torch, torch.kind, probe=False)
    x = device_tensor(torch, kind, index)
    with pytest.raises(BenchFault, match=f"its tensors are on {kind}:{index}") as caught:
        timer.meet(Slot(0, lambda: x), None)
    assert f"--device {kind}:{index}" in caught.value.hint


def test_a_row_on_two_devices_is_heard_on_both(torch: FakeTorch) -> None:
    """Work that goes on there after the end event here is work outside of the stream."""
    timer = EventTimer(torch, torch.kind, probe=False)
    here, there = device_tensor(torch, "fakeacc", 0), device_tensor(torch, "fakeacc", 1)
    far: list[int] = []
    waits = torch.accelerator.synchronize

    def synchronize(device: object = None) -> None:
        waits()
        if device == 1 and far:
            far.clear()
            threading.Event().wait(0.003)

    timer._gpu.synchronize = synchronize
    torch.accelerator.synchronize = synchronize  # type: ignore[method-assign]

    def fn() -> tuple[Tensor, Tensor]:
        torch.task("here", 100 * US)
        far.append(1)
        return here, there

    slot = Slot(0, fn)
    timer.meet(slot, fn())
    assert "work outside the stream" in dict(timer.examine(slot))


def test_a_row_on_the_timer_s_own_device_is_met_in_silence(torch: FakeTorch) -> None:
    """Tensors without a number are on the current device."""
    timer = EventTimer(torch, torch.kind, probe=False)
    x, y = device_tensor(torch, "fakeacc"), device_tensor(torch, "cpu")
    y.device.index = None
    timer.meet(Slot(0, lambda: (x, y)), None)


# -- accelerators that come into use late


def test_an_accelerator_that_is_first_used_after_priming_is_waited_for(
    torch: FakeTorch, tmp_path: Path
) -> None:
    """The windows in which it came up count for nothing, and all later ones are true."""
    text = """
import torch
calls = []
def fn():
    calls.append(1)
    if len(calls) > 40:
        torch.task("late", 2_000_000)
BENCHMARKS = {"row": fn}
"""
    records = run(tmp_path, text, "cpu", iters=200)
    assert any("waits for it" in sentence(r.notice) for r in records if isinstance(r, Noted))
    [mark] = [i for i, r in enumerate(records) if isinstance(r, Mark)]
    after = counted(records[mark:])
    assert after
    assert min(after) >= 2000 * US


def test_a_library_that_is_loaded_late_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An import inside of the callable, at its second call."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    text = """
import sys, types
calls = []
def fn():
    calls.append(1)
    if len(calls) > 2:
        sys.modules.setdefault("jax", types.ModuleType("jax"))
BENCHMARKS = {"row": fn}
"""
    records = run(tmp_path, text, "cpu")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert any("jax is loaded" in sentence(r.notice) for r in records if isinstance(r, Noted))


def test_get_timer_s_wall_clock_waits_for_what_comes_up_in_a_sample(torch: FakeTorch) -> None:
    """It is taken again, with a wait."""
    clock = get_timer("wall")
    assert clock.value(clock.open(lambda: torch.task("work", 2_000_000))) >= 2e-3


# -- waits that do not wait


def nothing(*_: object, **__: object) -> None:
    """A wait that returns at once."""


@pytest.mark.parametrize("timer", ["auto", "torch", "wall"])
@pytest.mark.parametrize("has_events", [True, False])
def test_a_synchronise_that_returns_at_once_refuses_the_row(
    torch: FakeTorch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    timer: str,
    *,
    has_events: bool,
) -> None:
    """By an event, or by the stream; whatever clock was chosen, there is no figure."""
    monkeypatch.setattr(torch.accelerator, "synchronize", nothing)
    if not has_events:
        monkeypatch.setattr(torch, "Event", None)
    text = "import torch\nBENCHMARKS = {'row': lambda: torch.task('work', 2_000_000)}\n"
    records = run(tmp_path, text, timer=timer)
    assert not counted(records)
    if timer != "torch":
        [failed] = [r for r in records if isinstance(r, BenchError)]
        assert failed.kind == "host clock"
        assert "returns before the device is done" in failed.message
    else:
        assert [r for r in records if isinstance(r, BenchError | Fault)]


def test_an_event_s_synchronise_that_returns_at_once_refuses_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where nothing else holds the device, so that only a row's own work can show it."""
    with accelerator(has_adds=False) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        monkeypatch.setattr(Event, "synchronize", nothing)
        slot = Slot(0, lambda: torch.task("work", 2_000_000))
        timer.examine(slot)
        with pytest.raises(TimerError, match="returns before its work is done"):
            slot.fn()


def test_do_bench_refuses_a_wait_that_does_not_wait(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library, too."""
    torch.task("first", 10)
    monkeypatch.setattr(torch.accelerator, "synchronize", nothing)
    with pytest.raises((BenchFault, BenchmarkFailed), match="returns before the device is done"):
        do_bench(lambda: torch.task("work", 2_000_000), timer="wall", iters=2, warmup=0)


def test_a_wait_of_which_nothing_tells_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither events nor a stream that can be asked: it is waited for, and the notice says so."""
    with accelerator(has_stream_query=False) as torch:
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(torch, "Event", None)
        torch.task("up", 10)
        [found] = HostClock(names_loaded=False).look(lambda: torch.task("work", 10_000), None)
    assert found.evidence == {"kinds": ["fakeacc"], "unsure": ["fakeacc"]}


# -- backends that lack parts of events


def without_query(monkeypatch: pytest.MonkeyPatch, _: FakeTorch) -> None:
    """Events that cannot be asked."""
    monkeypatch.delattr(Event, "query")


def strange_event(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    """A constructor that takes something else."""

    def refuse(*_: object, **__: object) -> None:
        raise TypeError("Event() takes no keyword arguments")

    monkeypatch.setattr(torch, "Event", refuse)


def broken_event(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    """A constructor that fails in its own way."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("lazy init failed")

    monkeypatch.setattr(torch, "Event", refuse)


def without_elapsed(monkeypatch: pytest.MonkeyPatch, _: FakeTorch) -> None:
    """Events without times."""
    monkeypatch.delattr(Event, "elapsed_time")


def without_stream_argument(monkeypatch: pytest.MonkeyPatch, _: FakeTorch) -> None:
    """Events that are recorded in the current stream only."""
    record = Event.record

    def record_here(self: Event) -> None:
        record(self)

    monkeypatch.setattr(Event, "record", record_here)


LACKS = (without_query, strange_event, broken_event, without_elapsed, without_stream_argument)


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.__name__)
def test_a_backend_without_usable_events_is_waited_for_and_says_so(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Any
) -> None:
    """By itself the host's clock, which waits; whoever asked for events gets one clear line."""
    lack(monkeypatch, torch)
    text = "import torch\nBENCHMARKS = {'row': lambda: torch.task('work', 2_000_000)}\n"
    records = run(tmp_path, text)
    assert not [r for r in records if isinstance(r, Fault)]
    assert min(counted(records)) >= 2000 * US
    with pytest.raises(TimerError, match=r"fakeacc|events tell no time") as caught:
        make_timer(RunConfig(device="fakeacc:0", timer="torch"), torch)
    assert "--timer wall" in caught.value.hint
    with pytest.raises(TimerError):
        do_bench(lambda: torch.task("work", 2_000_000), timer="torch", iters=2)


def test_a_stream_that_has_no_query_is_not_asked(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that is missing is like one that refuses."""
    monkeypatch.delattr("tests.fakes.fake_accelerator.Stream.query")
    timer = EventTimer(torch, torch.kind, probe=False)
    slot = Slot(0, lambda: torch.task("work", 300 * US))
    assert timer.enqueue(0, [slot] * 5, 1) is None
    found = [w for s in timer.harvest(wait=True) for w in s.window_ns]
    assert statistics.median(found) == pytest.approx(300 * US, rel=0.1)


# -- events with another clock


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e-6, 0.5, 2.0])
def test_events_in_another_unit_are_refused(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """Seconds or microseconds for milliseconds: the host saw how long it was."""
    elapsed = Event.elapsed_time
    monkeypatch.setattr(Event, "elapsed_time", lambda a, b: elapsed(a, b) * factor)
    timer = make_timer(AUTO, torch)
    assert isinstance(timer, WallTimer)
    assert "event timing does not work here" in timer.info.reason
    with pytest.raises(TimerError, match="event timing does not work here"):
        EventTimer(torch, torch.kind)


def test_events_that_are_stamped_when_they_are_asked_for_refuse_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They time the launch: on an idle device nothing shows it, beside work the host does."""
    with accelerator(has_adds=False) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        record, elapsed = Event.record, Event.elapsed_time
        asked: dict[int, int] = {}

        def stamp(self: Event, stream: Any = None) -> None:
            asked[id(self)] = timer._clock()
            record(self, stream)

        def host_time(self: Event, end: Event) -> float:
            elapsed(self, end)
            return (asked[id(end)] - asked[id(self)]) * 1e-6

        monkeypatch.setattr(Event, "record", stamp)
        monkeypatch.setattr(Event, "elapsed_time", host_time)
        slot = Slot(0, lambda: torch.task("work", 5_000 * US))
        timer.examine(slot)
        with pytest.raises(BenchFault, match="stamped when they were asked for"):
            slot.fn()


@pytest.mark.parametrize(
    ("window_ns", "host_ns", "bracket_ns", "is_false"),
    [
        (200_000, 10_000, 230_000, False),
        (5_000, 10_000, 400_000, False),
        (60_000, 3_000_000, 3_100_000, False),
        (3_060_000, 3_000_000, 3_100_000, False),
        (20_000_000, 10_000, 5_100_000, True),
        (10_000, 10_000, 5_100_000, True),
        (5, 10_000, 5_100_000, True),
    ],
)
def test_what_a_window_can_be(
    window_ns: int, host_ns: int, bracket_ns: int, *, is_false: bool
) -> None:
    """It lies within what the host saw, and fills it but for the way there and back."""
    assert (event_fault(window_ns, host_ns, bracket_ns) is not None) == is_false


def test_a_host_that_is_held_up_between_two_events_does_not_condemn_them(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bracket grows with it."""
    timer = EventTimer(torch, torch.kind, probe=False)
    synchronize = Event.synchronize

    def late(self: Event) -> None:
        synchronize(self)
        threading.Event().wait(0.01)

    monkeypatch.setattr(Event, "synchronize", late)
    check_events(timer._gpu, timer._pool, timer._clock)


def test_a_bound_method_of_a_tensor_leads_to_it() -> None:
    """`x.add_` alone, or in a partial, holds x."""
    x = np.zeros(4)
    assert any(item is x for item in objects(functools.partial(x.fill, 1.0)))


# -- backends from outside of torch


class Entry:
    """What a package has entered for torch."""

    def __init__(self, name: str, called: list[str], error: Exception | None = None) -> None:
        self.name, self._called, self._error = name, called, error

    def load(self) -> Any:
        """The function that registers the backend."""
        return self._autoload

    def _autoload(self) -> None:
        self._called.append(self.name)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("name", ["newacc", "torch_newacc"])
def test_a_backend_that_is_entered_for_torch_is_loaded(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where its package has another name, and torch was told to load none by itself."""
    called: list[str] = []
    entries = [Entry(name, called), Entry("other", called)]
    monkeypatch.setattr(choice, "entry_points", lambda group: entries)
    choice.load_backend("newacc")
    assert called == [name]


def test_a_backend_that_cannot_be_loaded_says_why_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it raised, and where to look."""
    error = OSError("libnewacc.so: cannot open shared object file")
    monkeypatch.setattr(choice, "entry_points", lambda group: [Entry("newacc", [], error)])
    with pytest.raises(DeviceError, match="torch_newacc cannot be loaded") as caught:
        choice.load_backend("newacc")
    assert "libnewacc.so" in caught.value.message
    assert "--device cpu" in caught.value.hint


def test_the_doctor_loads_a_backend_as_a_run_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its devices are listed then; one that nobody brings is called so."""
    with accelerator(kind="newacc") as torch:
        there, module = torch.accelerator, torch.newacc
        del torch.newacc
        torch.accelerator = SimpleNamespace(is_available=lambda: False)  # type: ignore[assignment]

        def bring(kind: str) -> None:
            if kind == "newacc":
                torch.accelerator, torch.newacc = there, module

        monkeypatch.setattr(machine, "load_backend", bring)
        torch.kind = "newacc"

        def said(device: str) -> list[Any]:
            report = machine.diagnose(
                device,
                torch_loader=lambda: torch,
                time_source=ManualTime(),
                state_dir=tmp_path,
                access=Access(str(tmp_path), "no such library"),
            )
            return report.sections[0].checks

        assert [c.name for c in said("other") if c.status is machine.Status.FAIL] == ["other"]
        assert [c.name for c in said("newacc")] == ["torch", "newacc:0"]


def test_get_timer_refuses_events_that_are_stamped_when_they_are_asked_for(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 ms of work read as microseconds would be a figure of the launch."""
    record, elapsed = Event.record, Event.elapsed_time
    asked: dict[int, int] = {}

    def stamp(self: Event, stream: Any = None) -> None:
        asked[id(self)] = time.perf_counter_ns()
        record(self, stream)

    def host_time(self: Event, end: Event) -> float:
        elapsed(self, end)
        return (asked[id(end)] - asked[id(self)]) * 1e-6

    monkeypatch.setattr(Event, "record", stamp)
    monkeypatch.setattr(Event, "elapsed_time", host_time)
    with pytest.raises(TimerError, match="stamped when they are launched"):
        get_timer("torch")

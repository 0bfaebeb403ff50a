"""The gate under events: frames are painted under cover of queued work, in no window."""

from collections import deque
from collections.abc import Callable, Mapping

import pytest

from tests.fakes.fake_cuda import FakeTorch
from usv_tui.engine.runner import Runner
from usv_tui.model import Benchmark, Flag, RunConfig, Suite
from usv_tui.records import AnyRecord, Command, Samples
from usv_tui.timers.events import EventTimer
from usv_tui.timesource import ManualTime

US = 1_000
MS = 1_000_000
FRAME_NS = 6 * MS
EVERY_NS = 100 * MS


class PaintingGate:
    """Asks for the gate ten times a second and paints for 6 ms of virtual time inside it."""

    def __init__(self, time: ManualTime, is_in_call: Callable[[], bool]) -> None:
        self.forced: list[tuple[int, int]] = []
        self.intruders: dict[int, int] = {}
        self.frames: list[tuple[int, int]] = []
        self.late_ns: list[int] = []
        self._time = time
        self._is_in_call = is_in_call
        self._due_ns = time.now_ns() + EVERY_NS

    @property
    def wanted(self) -> int:
        """One when a frame is due."""
        return int(self._time.now_ns() >= self._due_ns)

    def man(self) -> None:
        """A worker measures: until now frames were painted without asking."""
        self._due_ns = self._time.now_ns() + EVERY_NS

    def unman(self) -> None:
        """Nobody measures."""

    def serve(self, bound_ns: int) -> bool:
        """Paint, when a frame is due."""
        if not self.wanted:
            return False
        assert not self._is_in_call()
        start_ns = self._time.now_ns()
        self.late_ns.append(start_ns - self._due_ns)
        self._time.advance(FRAME_NS)
        self.frames.append((start_ns, start_ns + FRAME_NS))
        self._due_ns = start_ns + EVERY_NS
        return True


class Session:
    """The real runner on the fake device, for half a second of measuring in virtual time."""

    def __init__(self, kernels: Mapping[str, tuple[int, int]], **options: object) -> None:
        self.torch = torch = FakeTorch()
        self.inside = 0
        self.gate = PaintingGate(torch.time, lambda: self.inside > 0)
        self.records: list[AnyRecord] = []
        benchmarks = tuple(
            Benchmark(name, self._build(device_ns, host_ns))
            for name, (device_ns, host_ns) in kernels.items()
        )
        config = RunConfig(
            device="cuda:0",
            max_time_s=1.0,
            warmup_max_s=0.3,
            inner=1,
            **options,
        )
        timer = EventTimer(torch, time_source=torch.time, probe=False)
        runner = Runner(
            Suite("test.py", benchmarks),
            config,
            timer,
            self.records.append,
            commands=deque[Command](),
            gate=self.gate,
            time_source=torch.time,
        )
        self.reason = runner.run()

    def _build(self, device_ns: int, host_ns: int) -> Callable[[str], Callable[[], object]]:
        def fn() -> None:
            self.inside += 1
            self.torch.host_work(host_ns)
            self.torch.kernel(device_ns)
            self.inside -= 1

        return lambda _device: fn

    def idle_during_frames_ns(self) -> int:
        """Device time without work while a frame was painted."""
        return sum(
            max(0, min(end, b) - max(begin, a))
            for begin, end in self.torch.idle_gaps()
            for a, b in self.gate.frames
        )


ROWS = {
    "kernels of a millisecond": {"a": (MS, 0), "b": (MS // 2, 0)},
    "short and long": {"short": (200 * US, 0), "long": (8 * MS, 0)},
    "a busy host": {"python": (400 * US, 150 * US), "launch": (300 * US, 20 * US)},
}


@pytest.mark.parametrize("rows", list(ROWS))
def test_device_never_idles_because_of_a_frame(rows: str) -> None:
    """While a frame is painted the device always has queued work."""
    session = Session(ROWS[rows])

    assert len(session.gate.frames) >= 5
    assert session.idle_during_frames_ns() == 0


@pytest.mark.parametrize("rows", list(ROWS))
def test_no_window_contains_a_frame(rows: str) -> None:
    """No frame falls between a window's first and last call, and none makes a window longer."""
    session = Session(ROWS[rows])

    windows: dict[int, list[int]] = {}
    for record in session.records:
        if isinstance(record, Samples) and record.round >= 0:
            for sample in record.samples():
                if not sample.flags & (Flag.WARMUP | Flag.STARVED):
                    windows.setdefault(sample.bench, []).append(sample.window_ns)
    assert len(windows) == 2
    for bench, (device_ns, _) in enumerate(ROWS[rows].values()):
        assert max(windows[bench]) <= device_ns + 2 * session.torch.costs.event_ns
        assert len(windows[bench]) > 20


HARD = {
    "nothing covers": {"tiny": (5 * US, 30 * US)},
    "cover beyond the launch queue": {"tiny": (20 * US, 0)},
}


@pytest.mark.parametrize("rows", [*ROWS, *HARD])
def test_a_frame_is_served_soon(rows: str) -> None:
    """Building the cover does not keep the screen waiting, also where there can be none."""
    session = Session((ROWS | HARD)[rows])

    assert max(session.gate.late_ns) < EVERY_NS


def test_frames_cost_no_samples_their_place() -> None:
    """Hardly any window is starved, though a frame is painted ten times a second."""
    session = Session(ROWS["kernels of a millisecond"])

    flags = [
        sample.flags
        for record in session.records
        if isinstance(record, Samples) and record.round >= 0
        for sample in record.samples()
        if not sample.flags & Flag.WARMUP
    ]
    assert sum(bool(flag & Flag.STARVED) for flag in flags) <= 0.01 * len(flags)

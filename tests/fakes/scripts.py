"""Scripts of other people, run in this process against a loop that only keeps what it is asked."""

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from usv_tui.engine.guest import GuestRunner
from usv_tui.foreign.calls import Answer, Call, Stopped
from usv_tui.foreign.host import Ending, Host
from usv_tui.foreign.surroundings import Surroundings
from usv_tui.model import RunConfig, Suite
from usv_tui.records import AnyRecord
from usv_tui.timers.wall import WallTimer
from usv_tui.timesource import NS_PER_S, ManualTime


class KeptLoop:
    """A conductor without a clock: the time of a call is what `time_of` says of its result."""

    def __init__(self, time_of: Callable[[Any], float] | None = None) -> None:
        self.met: list[str] = []
        self.groups: list[list[str]] = []
        """Names of what was timed together."""
        self.results: dict[str, Any] = {}
        """What each callable returned when its group was timed."""
        self.why: dict[str, str] = {}
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.calls: dict[str, Call] = {}
        self.room_bytes = 1 << 40
        self.stop_after = 0
        self.is_stopped = False
        self._time_of = time_of or (lambda _: 1e-3)

    def meet(self, call: Call) -> BaseException | None:
        call.bench = len(self.met)
        self.met.append(call.full_name)
        self.calls[call.full_name] = call
        try:
            call.first_result = call.fn()
        except Exception as error:
            return error
        return None

    def measure(self, calls: Sequence[Call], *, sequential: str = "") -> list[Answer]:
        if self.stop_after and len(self.groups) >= self.stop_after:
            raise Stopped
        self.groups.append([call.full_name for call in calls])
        answers = []
        before = Surroundings.now()
        for call in calls:
            if call.surroundings is not None:
                call.surroundings.enter()
            if call.reset is not None:
                call.reset()
            self.results[call.full_name] = result = call.fn()
            self.why[call.full_name] = sequential
            answers.append(Answer([self._time_of(result)] * 3))
        if before is not None:
            before.enter()
        return answers

    def timed_elsewhere(self, call: Call, windows_s: Sequence[float], reason: str) -> None:
        self.met.append(call.full_name)
        self.why[call.full_name] = reason

    def tell(self, code: str, evidence: Mapping[str, Any], call: Call | None = None) -> None:
        self.told.append((code, dict(evidence)))


def run_script(
    folder: Path, source: str, *arguments: str, loop: Any = None, name: str = "script.py"
) -> tuple[Ending, Any]:
    """Run a script's text as `__main__`; how it ended, and the loop that it ran against."""
    path = folder / name
    path.write_text(source)
    loop = loop or KeptLoop()
    modules = set(sys.modules)
    try:
        return Host(loop, path, arguments).run(), loop
    finally:
        for module in set(sys.modules) - modules:
            if module.startswith(("triton", "flashinfer", "tritonbench", "beside")):
                del sys.modules[module]


class KnownDevice:
    """Virtual time, which a script's calls of `take(seconds)` let pass."""

    def __init__(self) -> None:
        self.time = ManualTime(NS_PER_S)
        self.source = ""

    def now_s(self) -> float:
        """Its clock."""
        return self.time.now_ns() / NS_PER_S

    def take(self, seconds: float) -> None:
        """Work for so long."""
        self.time.advance(round(seconds * NS_PER_S))


def measured(folder: Path, device: KnownDevice) -> list[AnyRecord]:
    """What the loop itself says of a script that finds the device in `beside_device`."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(device.source))
    module = ModuleType("beside_device")
    vars(module)["take"] = device.take
    sys.modules["beside_device"] = module
    records: list[AnyRecord] = []
    runner = GuestRunner(
        Suite("script.py", ()),
        RunConfig(device="cpu", warmup_max_s=0.1),
        WallTimer(clock=device.time.now_ns),
        records.append,
        time_source=device.time,
    )
    ending = runner.run_script(lambda _: Host(runner, path).run(), "script.py")
    assert (ending.code, ending.said) == (0, "")
    return records

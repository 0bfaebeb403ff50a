"""The measuring thread's (or process's) whole life: device, file, timer, runner.

Every error becomes a record: what is the user's mistake as a `Fault` with its exit code, what is
ours as a `Fault` with a traceback. Nothing is raised out of `work`.
"""

import importlib
import importlib.util
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy, no_copies
from usv_tui.diagnosis.checks import distortions
from usv_tui.diagnosis.ear import listening
from usv_tui.diagnosis.growth import Growth
from usv_tui.diagnosis.host_watch import HostWatch
from usv_tui.diagnosis.measured import measure_cpu, measure_gpu, within
from usv_tui.diagnosis.roofline import (
    Roofline,
    cpu_roofline,
    facts_of,
    narrow_over_single,
    roofline_from,
)
from usv_tui.engine import guest
from usv_tui.engine.attendant import Attendant
from usv_tui.engine.choice import LIBRARY, DeviceChoice, Emit
from usv_tui.engine.imports import Imports
from usv_tui.engine.memory import MemoryWatch, watch_memory
from usv_tui.engine.references import References
from usv_tui.engine.row import Resumed
from usv_tui.engine.runner import Runner
from usv_tui.engine.stage import LeftBehind
from usv_tui.engine.turns import Turns
from usv_tui.engine.where import Where
from usv_tui.errors import ExitCode, TimerError, UsvError, one_line
from usv_tui.foreign.host import Ending, Host, nothing_called
from usv_tui.gate import Gate
from usv_tui.model import Notice, RunConfig, RunPhase, Suite, WorkRequest
from usv_tui.records import Chosen, Command, Fault, Noted, Progress
from usv_tui.suite.discovery import load_suite, select_rows
from usv_tui.timers.abilities import ask
from usv_tui.timers.cache import Flusher
from usv_tui.timers.devices import family_of, waits_for
from usv_tui.timers.host_clock import HostClock
from usv_tui.timers.wall import Timer, WallTimer
from usv_tui.timesource import MonotonicTime, TimeSource


class Prepared(NamedTuple):
    """A device that brings its own timer: a simulated one."""

    device: str
    reason: str
    identity: dict[str, Any]
    suite: Suite | None
    """Its own benchmarks; None for those of the file."""
    timer: Timer
    flusher: Flusher


def work(
    request: WorkRequest,
    emit: Emit,
    commands: deque[Command],
    wake: threading.Event,
    gate: Gate,
    time_source: TimeSource | None = None,
    prepared: Prepared | None = None,
    where: Where | None = None,
    turns: Turns | None = None,
) -> None:
    """Measure `request` until it is done or stopped. Always ends with a `Progress("ended")`."""
    clock = time_source or MonotonicTime()
    try:
        with no_copies():
            reason = _work(request, emit, commands, wake, gate, clock, prepared, where, turns)
    except LeftBehind:
        raise
    except UsvError as error:
        leave_if_copy(error)
        emit(Fault(clock.now_ns(), int(error.exit_code), error.message, error.hint))
        reason = error.message
    except BaseException as error:  # noqa: BLE001  the front end must hear of it, whatever it is
        leave_if_copy(error)
        text = traceback.format_exc()
        reason = " ".join(f"internal error: {type(error).__name__}: {error}".split())
        hint = "please report this with the traceback"
        emit(Fault(clock.now_ns(), int(ExitCode.WORKER_LOST), reason, hint, text))
    emit(Progress(clock.now_ns(), RunPhase.ENDED, reason))
    if turns is not None:
        turns.close()
    gate.unman()


def _work(
    request: WorkRequest,
    emit: Emit,
    commands: deque[Command],
    wake: threading.Event,
    gate: Gate,
    clock: TimeSource,
    prepared: Prepared | None,
    where: Where | None,
    turns: Turns | None,
) -> str:
    references = References()
    chosen: DeviceChoice | Prepared = prepared or DeviceChoice(request.device, emit, clock)
    told = ""

    def device_now() -> str:
        """To be asked when the file has been imported."""
        nonlocal told
        references.mend_early()
        if isinstance(chosen, DeviceChoice) and told != chosen.after_import():
            told = chosen.device
            _tell_choice(chosen, emit, clock)
        return chosen.device

    references.take()
    if isinstance(chosen, Prepared) or chosen.is_made or request.script is not None:
        told = chosen.device if isinstance(chosen, Prepared) else chosen.after_import()
        _tell_choice(chosen, emit, clock)
    if request.script is not None:
        return _run_script(request, emit, commands, wake, gate, clock, where, chosen)
    if prepared is not None and prepared.suite is not None:
        suite = select_rows(prepared.suite, request.select)
    else:
        emit(Progress(clock.now_ns(), RunPhase.IMPORTING, request.path))
        imports = Imports()
        try:
            with _told_apart(request.path, emit, clock, references.take):
                suite = load_suite(
                    [request.path, *request.more], device_now, request.select or None
                )
        finally:
            imports.mend()
        leave_if_copy()
    if request.duet is not None:
        _tell_foreign(request.duet.foreign, emit, clock)
    _tell_distortions(emit, clock)
    device, torch = chosen.device, getattr(chosen, "torch", None)
    config = msgspec.structs.replace(request.config, device=device, device_reason=chosen.reason)
    if prepared is None and device != "cpu":
        emit(Progress(clock.now_ns(), RunPhase.IMPORTING, f"the timer of {device}"))
    timer = prepared.timer if prepared is not None else make_timer(config, torch, clock)
    runner = Runner(
        suite,
        config,
        timer,
        emit,
        commands=commands,
        wake=wake,
        gate=gate,
        time_source=clock,
        where=where,
        references=references,
        resumed=Resumed(frozenset(request.retired), request.done, request.first_round),
        make_flusher=lambda: prepared.flusher if prepared else make_flusher(config, torch),
        attendant=None if prepared is not None else make_attendant(config, torch, clock),
        turns=turns,
    )
    _tell_threads(emit, clock)
    if prepared is None and any(row.flops or row.bytes for row in suite.benchmarks):
        _tell_roofline(chosen, emit, clock)

    def warned(bench: int | None, evidence: dict[str, Any]) -> None:
        at_ns = clock.now_ns()
        found = Notice(code=Code.WARNED, at_ns=at_ns, bench=bench, level="warn", evidence=evidence)
        emit(Noted(found))

    with listening(warned):
        return runner.run()


def _tell_choice(chosen: DeviceChoice | Prepared, emit: Emit, clock: TimeSource) -> None:
    identity = chosen.identity
    if chosen.device == "cpu":
        identity = {**identity, **facts_of(cpu_roofline())}
    emit(Chosen(clock.now_ns(), chosen.device, chosen.reason, identity))


def _tell_roofline(chosen: DeviceChoice | Prepared, emit: Emit, clock: TimeSource) -> None:
    """What the device does when it is measured: work is stated, which is held against it."""
    known = roofline_from(chosen.identity) or Roofline()
    try:
        if chosen.device == "cpu":
            seen = measure_cpu()
            cores, narrow = len(os.sched_getaffinity(0)), narrow_over_single()
            found = within(cpu_roofline(), seen, cores=cores, narrow=narrow)
        elif known.flops_per_s and known.bytes_per_s:
            return
        else:
            torch, kind = getattr(chosen, "torch", None), chosen.device.partition(":")[0]
            wait = waits_for(torch, kind)
            if wait is None:
                return
            seen = measure_gpu(torch, chosen.device, wait)
            found = within(known, seen)
    except Exception as error:  # noqa: BLE001  torch or BLAS may refuse anything; it is told
        evidence: dict[str, Any] = {"reason": one_line(error)}
    else:
        evidence = {**facts_of(found), **seen._asdict()}
    emit(Noted(Notice(code=Code.ROOFLINE_MEASURED, at_ns=clock.now_ns(), evidence=evidence)))


def _run_script(
    request: WorkRequest,
    emit: Emit,
    commands: deque[Command],
    wake: threading.Event,
    gate: Gate,
    clock: TimeSource,
    where: Where | None,
    chosen: DeviceChoice | Prepared,
) -> str:
    """Somebody else's script, whose calls are timed while it runs."""
    device = chosen.device
    torch: Any = sys.modules.get("torch")
    config = msgspec.structs.replace(request.config, device=device, device_reason=chosen.reason)
    runner = guest.GuestRunner(
        Suite(request.path, ()),
        config,
        make_timer(config, torch, clock),
        emit,
        commands=commands,
        wake=wake,
        gate=gate,
        time_source=clock,
        where=where,
        make_flusher=lambda: make_flusher(config, torch),
        attendant=make_attendant(config, torch, clock),
    )
    _tell_threads(emit, clock)
    host = Host(runner, Path(request.path), request.script or [])
    module = request.path if not Path(request.path).exists() else ""
    ending = runner.run_script(lambda _: host.run(module), request.path)
    if runner.is_stopped:
        return runner.stop_words
    if ending.said:
        raise ScriptFailed(ending)
    if not runner.counted and not ending.is_own:
        raise nothing_called(request.path)
    return f"the script ended, exit code {ending.code}"


class ScriptFailed(UsvError):
    """A script that died: its exit code is the run's."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.said, ending.hint)
        self.exit_code = ending.code  # type: ignore[assignment]


class _Library:
    """Tells when the library's own import begins and ends inside that of a file."""

    def __init__(self, tell: Callable[[str], object], path: str) -> None:
        self._tell, self._path = tell, path

    def find_spec(self, name: str, *_: object) -> Any:
        """Not ours to find; the loader that will be found is followed."""
        if name != LIBRARY:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        load = getattr(getattr(found, "loader", None), "exec_module", None)
        if found is None or load is None:
            return found

        def follow(module: ModuleType) -> None:
            self._tell(LIBRARY)
            try:
                load(module)
            finally:
                self._tell(self._path)

        found.loader.exec_module = follow  # type: ignore[method-assign, union-attr]
        return found


@contextmanager
def _told_apart(
    path: str, emit: Emit, clock: TimeSource, take: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Within, an import of the library is a phase of its own, at whose end `take` is called."""

    def tell(what: str) -> None:
        if what == path:
            take()
        emit(Progress(clock.now_ns(), RunPhase.IMPORTING, what))

    finder = _Library(tell, path)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


def make_attendant(config: RunConfig, torch: Any, clock: TimeSource) -> Attendant:
    """What watches beside the windows of this device."""
    is_cpu = config.device == "cpu"

    gpu = None if is_cpu else family_of(torch, config.device.partition(":")[0]).gpu

    def on_device() -> int:
        return int(ask(gpu, "memory_allocated", default=0))

    has_size = not is_cpu and ask(gpu, "memory_allocated") is not None
    memory = MemoryWatch(clock.now_ns, read_device=on_device if has_size else None)
    return Attendant(memory, HostWatch() if is_cpu else None, Growth())


def _tell_threads(emit: Emit, clock: TimeSource) -> None:
    """How many threads torch computes with, where the file has imported it."""
    torch = sys.modules.get("torch")
    counts = {
        name: ask(torch, f"get_num_{name}") for name in ("threads", "interop_threads") if torch
    }
    known = {f"torch_{name}": n for name, n in counts.items() if isinstance(n, int)}
    if known:
        emit(Noted(Notice(code=Code.THREADS, at_ns=clock.now_ns(), evidence=known)))


def _tell_foreign(folder: str, emit: Emit, clock: TimeSource) -> None:
    """Modules that come from the other version's folder: then it is no other version."""
    if not folder:
        return
    files = {
        name: str(getattr(module, "__file__", None) or "")
        for name, module in list(sys.modules.items())
    }
    names = sorted(
        name
        for name, file in files.items()
        if file.startswith(f"{folder}{os.sep}")
        and "site-packages" not in file
        and not name.startswith("usv_tui")
    )
    if names:
        evidence = {"modules": names[:8], "count": len(names), "folder": folder}
        notice = Notice(
            code=Code.FOREIGN_CODE, at_ns=clock.now_ns(), level="error", evidence=evidence
        )
        emit(Noted(notice))


def _tell_distortions(emit: Emit, clock: TimeSource) -> None:
    """Launch blocking, a profiler or anomaly detection make every number describe them."""
    torch = sys.modules.get("torch")
    found = distortions(
        os.environ,
        is_profiling=sys.getprofile() is not None,
        is_anomaly=torch is not None and bool(ask(torch, "is_anomaly_enabled")),
    )
    for code, evidence in found:
        notice = Notice(code=code, at_ns=clock.now_ns(), level="error", evidence=evidence)
        emit(Noted(notice))


def make_timer(config: RunConfig, torch: Any, time_source: TimeSource | None = None) -> Timer:
    """The timer that was asked for, never another.

    Raises:
        TimerError: it cannot be had here.
    """
    kind = config.device.partition(":")[0]
    is_cpu = kind == "cpu"
    wanted = config.timer
    for flag, is_on in (("--graph", config.graph), ("--blocker", config.blocker)):
        if is_on and (wanted == "wall" or is_cpu):
            where = config.device if is_cpu else "the wall clock"
            raise TimerError(f"{flag} works with device events only, not with {where}")
    if is_cpu and wanted in ("wall", "auto"):
        why = "asked for" if wanted == "wall" else "no GPU: the work is on the host"
        return WallTimer(why, watch=watch_memory, host=HostClock())
    if is_cpu:
        raise TimerError(f"--timer {wanted} needs a GPU, and this is {config.device}")
    if wanted == "wall":
        return _synced("asked for", torch, kind)
    # Only device events can be captured in a graph or held back by a blocker.
    events = importlib.import_module("usv_tui.timers.events")
    try:
        timer: Timer = events.event_timer(
            torch,
            kind,
            graph=config.graph,
            blocker=config.blocker,
            probe=config.probe,
            reason="events of the device" if wanted == "auto" else "asked for",
            time_source=time_source,
        )
    except TimerError as error:
        if wanted != "auto" or kind == "cuda" or config.graph or config.blocker:
            raise
        return _synced(f"no events on {kind}: {error.message.rstrip('.')}", torch, kind)
    return timer


def _synced(why: str, torch: Any, kind: str) -> WallTimer:
    """The host's clock, which waits for the device."""
    sync = waits_for(torch, kind)
    if sync is None:
        raise TimerError(
            f"nothing here can time {kind}: {why}, and torch.{kind}.synchronize is not here, "
            "without which the host's clock would time launches",
            f"only the maker of {kind}'s backend can mend that",
        )
    return WallTimer(
        f"host clock, the device synchronised at both ends; {why}",
        sync,
        host=HostClock({kind: sync}),
    )


def make_flusher(config: RunConfig, torch: Any) -> Flusher:
    """What evicts the cache of the measured device."""
    cache = importlib.import_module("usv_tui.timers.cache")
    found: Flusher = cache.make_flusher(config.device, flush_mb=config.flush_mb, torch=torch)
    return found

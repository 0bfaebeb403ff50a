"""The measuring thread's (or process's) whole life: device, file, timer, runner.

Every error becomes a record: what is the user's mistake as a `Fault` with its exit code, what is
ours as a `Fault` with a traceback. Nothing is raised out of `work`.
"""

import importlib
import importlib.util
import os
import re
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

from usv_tui import plain
from usv_tui.copies import leave_if_copy, no_copies
from usv_tui.diagnosis.checks import distortions
from usv_tui.diagnosis.ear import listening
from usv_tui.diagnosis.growth import Growth
from usv_tui.diagnosis.host_watch import HostWatch
from usv_tui.diagnosis.roofline import cpu_roofline, facts_of, roofline_of
from usv_tui.engine import guest
from usv_tui.engine.attendant import Attendant
from usv_tui.engine.imports import Imports
from usv_tui.engine.memory import MemoryWatch, watch_memory
from usv_tui.engine.references import References
from usv_tui.engine.runner import LeftBehind, Resumed, Runner
from usv_tui.engine.turns import Turns
from usv_tui.engine.where import Where
from usv_tui.errors import DeviceError, ExitCode, TimerError, UsageError, UsvError, one_line
from usv_tui.foreign.host import Ending, Host, nothing_called
from usv_tui.gate import Gate
from usv_tui.model import Notice, RunConfig, RunPhase, Suite, WorkRequest
from usv_tui.records import AnyRecord, Chosen, Command, Fault, Noted, Progress
from usv_tui.suite.discovery import load_suite, select_rows
from usv_tui.telemetry.identity import FRAMEWORKS, device_facts
from usv_tui.timers.abilities import ask, is_hip
from usv_tui.timers.cache import Flusher
from usv_tui.timers.devices import (
    Family,
    count,
    current_kind,
    device_name,
    family_of,
    is_here,
    is_known,
    waits_for,
)
from usv_tui.timers.host_clock import HostClock
from usv_tui.timers.wall import Timer, WallTimer
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.nvml import silence_deprecation

Emit = Callable[[AnyRecord], object]
LIBRARY = "torch"
"""Its import takes long, and is not the benchmark file's."""


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
    torch: Any = None
    references = References()
    if prepared is not None:
        device, reason, identity = prepared.device, prepared.reason, prepared.identity
    else:
        device, reason, identity, torch = choose_device(request.device, emit, clock)
    if device == "cpu":
        identity = {**identity, **facts_of(cpu_roofline())}
    references.take()
    emit(Chosen(clock.now_ns(), device, reason, identity))
    if request.script is not None:
        return _run_script(request, emit, commands, wake, gate, clock, where, (device, reason))
    if prepared is not None and prepared.suite is not None:
        suite = select_rows(prepared.suite, request.select)
    else:
        emit(Progress(clock.now_ns(), RunPhase.IMPORTING, request.path))
        imports = Imports()
        try:
            with _told_apart(request.path, emit, clock, references.take):
                suite = load_suite(request.path, device, request.select or None)
        finally:
            imports.mend()
        leave_if_copy()
    if request.duet is not None:
        _tell_foreign(request.duet.foreign, emit, clock)
    _tell_distortions(emit, clock)
    config = msgspec.structs.replace(request.config, device=device, device_reason=reason)
    if prepared is None and device != "cpu":
        emit(Progress(clock.now_ns(), RunPhase.IMPORTING, f"the timer of {device}"))
    timer = prepared.timer if prepared is not None else make_timer(config, torch)
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

    def warned(bench: int | None, evidence: dict[str, Any]) -> None:
        at_ns = clock.now_ns()
        found = Notice(code="warned", at_ns=at_ns, bench=bench, level="warn", evidence=evidence)
        emit(Noted(found))

    with listening(warned):
        return runner.run()


def _run_script(
    request: WorkRequest,
    emit: Emit,
    commands: deque[Command],
    wake: threading.Event,
    gate: Gate,
    clock: TimeSource,
    where: Where | None,
    chosen: tuple[str, str],
) -> str:
    """Somebody else's script, whose calls are timed while it runs."""
    device, reason = chosen
    torch: Any = sys.modules.get("torch")
    config = msgspec.structs.replace(request.config, device=device, device_reason=reason)
    runner = guest.GuestRunner(
        Suite(request.path, ()),
        config,
        make_timer(config, torch),
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
        emit(Noted(Notice(code="threads", at_ns=clock.now_ns(), evidence=known)))


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
        notice = Notice(code="foreign code", at_ns=clock.now_ns(), level="error", evidence=evidence)
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


def choose_device(
    wanted: str, emit: Emit, clock: TimeSource
) -> tuple[str, str, dict[str, Any], Any]:
    """The device, the reason for it, what identifies it, and torch (None when not needed).

    Raises:
        UsageError: not the name of a device.
        DeviceError: not here, with what torch says of it.
    """
    if wanted == "cpu":
        return "cpu", "asked for", {}, None
    kind, colon, number = wanted.partition(":")
    if not _IS_KIND(kind) or (colon and not number.isdecimal()) or kind in _NO_KINDS:
        raise _no_such(wanted)
    emit(Progress(clock.now_ns(), RunPhase.IMPORTING, LIBRARY))
    silence_deprecation()
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        if wanted == "auto":
            return "cpu", f"torch cannot be imported ({type(error).__name__})", {}, None
        raise DeviceError(
            f"--device {wanted}: torch cannot be imported: {error}", "install torch"
        ) from error
    version = str(getattr(torch, "__version__", "of no known version"))
    found = _kind(wanted, kind, torch, version)
    if found is None:
        return "cpu", _no_accelerator(torch, version), {"torch": version}, torch
    family = family_of(torch, found)
    index = int(number) if number else _current_index(family)
    total = count(family)
    if index >= total:
        there = ", ".join(f"{found}:{i} {device_name(family, i)}".strip() for i in range(total))
        raise DeviceError(f"--device {wanted}: no such device", f"there is {there}")
    _set_device(index, family)
    reason = "asked for"
    if wanted == "auto":
        what = "GPU" if found == "cuda" else f"{found} device"
        reason = f"torch {version} sees {total} {what}(s)"
    return f"{found}:{index}", reason, {"torch": version} | _facts(index, family, torch), torch


def sees_gpu() -> bool:
    """Whether torch shows an accelerator to this process."""
    silence_deprecation()
    try:
        torch = importlib.import_module("torch")
    except Exception:  # noqa: BLE001  whatever is wrong with it, it shows none
        return False
    return current_kind(torch) is not None


_IS_KIND = re.compile(r"[a-z_][a-z0-9_]*").fullmatch
_NO_KINDS = ("meta", "sim", "gpu", "rocm", "hip", "nvidia", "amd", "intel", "metal")
"""What people write and torch has no device of."""


def _no_such(wanted: str) -> UsageError:
    return UsageError(
        f"--device {plain.line(wanted, 40).strip() or repr(wanted)}: no such device",
        "cpu, cuda, cuda:N, xpu, mps, another accelerator of torch's, or sim:CARD (demo --list)",
    )


def _kind(wanted: str, kind: str, torch: Any, version: str) -> str | None:
    """The kind of accelerator to use; None for the CPU.

    Raises:
        UsageError: torch has never heard of it.
        DeviceError: it is not here.
    """
    if wanted == "auto":
        return current_kind(torch)
    if kind != "cuda" and not is_known(torch, kind):
        _load_backend(kind)
        if not is_known(torch, kind):
            raise _no_such(wanted)
    if is_here(torch, kind):
        return kind
    current = current_kind(torch)
    if kind == "cuda" or current is None:
        hint = "use --device cpu, or install a torch build for your GPU"
        raise DeviceError(f"--device {wanted}: {_no_accelerator(torch, version)}", hint)
    raise DeviceError(f"--device {wanted}: torch {version} sees none", f"there is {current}")


def _load_backend(kind: str) -> None:
    """Backends from outside of torch are packages of this name, where torch does not load them."""
    package = f"torch_{kind}"
    if importlib.util.find_spec(package) is None:
        return
    try:
        importlib.import_module(package)
    except Exception as error:
        raise DeviceError(
            f"--device {kind}: {package} cannot be imported: {error}", "use --device cpu"
        ) from error


def _no_accelerator(torch: Any, version: str) -> str:
    has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
    build = "ROCm" if is_hip(torch) else "CUDA" if has_cuda else "CPU-only"
    return f"torch {version} is a {build} build and sees no GPU"


def _facts(index: int, family: Family, torch: Any) -> dict[str, Any]:
    """What identifies a device, and its peak rates where they are known."""
    if family.kind != "cuda":
        facts: dict[str, Any] = {"ordinal": index, "kind": family.kind}
        name = device_name(family, index)
        if family.kind in FRAMEWORKS:
            facts = device_facts(index, torch, family.kind) | facts
        return facts | ({"name": name} if name else {})
    properties = ask(family.gpu, "get_device_properties", index)
    return device_facts(index, torch) | facts_of(roofline_of(properties, is_amd=is_hip(torch)))


def _current_index(family: Family) -> int:
    return int(ask(family.gpu, "current_device", default=0))


def _set_device(index: int, family: Family) -> None:
    """Make a device the thread's own, where it is not already."""
    try:
        family.gpu.set_device(index)
    except (AttributeError, RuntimeError) as error:
        if index == _current_index(family):
            return
        raise DeviceError(
            f"--device {family.kind}:{index}: {family.module} does not choose it: {error}",
            f"make it the only one with CUDA_VISIBLE_DEVICES={index}"
            if family.kind == "cuda"
            else f"make it the only {family.kind} device that torch sees",
        ) from error


def make_timer(config: RunConfig, torch: Any) -> Timer:
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
        timer: Timer = events.EventTimer(
            torch,
            kind,
            graph=config.graph,
            blocker=config.blocker,
            probe=config.probe,
            reason="events of the device" if wanted == "auto" else "asked for",
        )
    except (TimerError, RuntimeError, NotImplementedError) as error:
        if wanted != "auto" or kind == "cuda" or config.graph or config.blocker:
            raise
        return _synced(f"no events on {kind}: {one_line(error)}", torch, kind)
    return timer


def _synced(why: str, torch: Any, kind: str) -> WallTimer:
    """The host's clock, which waits for the device."""
    sync = waits_for(torch, kind)
    if sync is None:
        raise TimerError(f"--timer wall needs torch.{kind}.synchronize, which is not here")
    return WallTimer(
        f"{why}: host clock, the device synchronised at both ends",
        sync,
        host=HostClock({kind: sync}),
    )


def make_flusher(config: RunConfig, torch: Any) -> Flusher:
    """What evicts the cache of the measured device."""
    cache = importlib.import_module("usv_tui.timers.cache")
    found: Flusher = cache.make_flusher(config.device, flush_mb=config.flush_mb, torch=torch)
    return found

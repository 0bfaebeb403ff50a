"""What was found on this machine and what was not, why, and how to mend it: `usv-tui doctor`.

Everything is asked in the same way as in a run, by the same code, so that its answer is the run's.
Whatever a library does, the report comes: every question that may hang has a time limit.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import platformdirs

from usv_tui.cli.machine_report import Check, Report, Section, Status
from usv_tui.clocks.controllers import controller_for
from usv_tui.clocks.inventory import list_devices
from usv_tui.clocks.lease_files import LeaseDirectory
from usv_tui.clocks.target import MAY_LOCK, NEEDS_RIGHTS, lock_command
from usv_tui.engine.choice import load_backend
from usv_tui.errors import UsvError
from usv_tui.model import ClockHold, DeviceInfo, Reading, SensorInfo
from usv_tui.seams import ClockController, Identity, TelemetrySource, Tier
from usv_tui.telemetry.identity import (
    FRAMEWORKS,
    device_facts,
    find_telemetry,
    load_torch,
    watch,
)
from usv_tui.telemetry.poller import LEARN_PERIOD_NS
from usv_tui.timers import devices as accelerators
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.amd_smi import load_amdsmi
from usv_tui.vendor.bounded import NoAnswer, within
from usv_tui.vendor.kinds import DIRECT, Access, Vendor
from usv_tui.vendor.nvml import Nvml, pynvml_versions

ANSWER_S = 10.0
"""How long one question may take before it counts as hanging."""
LOOKS = 50
"""Looks at a device, 20 ms apart: refresh periods and costs are learned from them."""
FEW_LOOKS = 10
"""The same for a card that no run measures."""
MIN_FREE_BYTES = 100 << 20

T = TypeVar("T")


Find = Callable[..., tuple[TelemetrySource, str]]


class _Answer(NamedTuple, Generic[T]):
    """What a question brought: a value, or why there is none and how to mend it."""

    value: T | None
    why: str = ""
    mend: str = ""


def diagnose(
    device: str = "auto",
    *,
    terminal: Sequence[Check] = (),
    state_dir: Path | None = None,
    torch_loader: Callable[[], Any] = load_torch,
    find: Find = find_telemetry,
    controller: Callable[[DeviceInfo], ClockController] = controller_for,
    time_source: TimeSource | None = None,
    access: Access = DIRECT,
    answer_s: float = ANSWER_S,
) -> Report:
    """Look at everything that a run needs.

    Args:
        device: the device that a run is to measure: auto, cpu, or one of torch's (cuda:1, xpu …).
        terminal: what the caller found out about the terminal.
        state_dir: where sessions are kept; the user's own when None.
        torch_loader: imports torch.
        find: finds a device's telemetry (`find_telemetry`).
        controller: makes a device's clock control (`controller_for`).
        time_source: the clock to wait on between looks.
        access: how the devices are reached.
        answer_s: how long one question may take.
    """
    ask = _Asker(answer_s)
    clock = time_source or MonotonicTime()
    torch, checks = _torch(ask, torch_loader)
    if torch is not None:
        checks += _backend(ask, torch, device.partition(":")[0])
    devices = _devices(ask, torch)
    cards, why, _ = ask(lambda: list_devices(access))
    sections = [
        Section(title="torch", checks=checks + _wanted(device, devices)),
        Section(title="libraries", checks=[*_libraries(ask, access), _seen(cards or [], why)]),
    ]
    watched = [
        (name, facts)
        for name, facts in devices.items()
        if device in ("auto", name.partition(":")[0], name)
    ]
    is_elsewhere = not watched or device in ("auto", "cpu")
    if not watched or device == "cpu":
        watched = [("cpu", {})]
    known: set[str] = set()
    for name, facts in watched:
        info, checks = _telemetry(ask, clock, find, name, facts)
        sections.append(Section(title=f"telemetry of {name}", checks=checks))
        if info is not None:
            known |= {info.uuid, info.pci or info.uuid}
            checks = _clocks(ask, controller, info)
            sections.append(Section(title=f"clock control of {name}", checks=checks))
    for card in cards or [] if is_elsewhere else []:
        if known.isdisjoint({card.uuid, card.pci or card.uuid}):
            sections += _unmeasured(ask, clock, controller, card, access)
    sections.append(Section(title="state", checks=_state(state_dir)))
    if terminal:
        sections.append(Section(title="terminal", checks=list(terminal)))
    return Report(sections=sections)


def _unmeasured(
    ask: "_Asker",
    clock: TimeSource,
    controller: Callable[[DeviceInfo], ClockController],
    card: DeviceInfo,
    access: Access,
) -> list[Section]:
    """A card that the drivers show and torch does not: its sensors and its clocks all the same."""

    def find(*_: object, **__: object) -> tuple[TelemetrySource, str]:
        identity = Identity(vendor=card.kind, ordinal=card.index or 0, uuid=card.uuid, pci=card.pci)
        source, how = watch(identity, access, clock)
        return source, f"{how}; torch has it not"

    info, checks = _telemetry(ask, clock, find, card.uuid, {}, looks=FEW_LOOKS)
    title = f"{card.name} ({card.pci or card.uuid})"
    return [
        Section(title=f"telemetry of {title}", checks=checks),
        Section(title=f"clock control of {title}", checks=_clocks(ask, controller, info or card)),
    ]


class _Asker:
    """Puts questions to libraries that may hang or raise anything."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s

    def __call__(self, question: Callable[[], T]) -> _Answer[T]:
        """Ask in a thread of its own, and wait no longer than the limit."""
        try:
            return _Answer(within(self._answer_s, question, "usv-doctor"))
        except NoAnswer as error:
            return _Answer(None, str(error), "the driver hangs: reboot")
        except UsvError as error:
            return _Answer(None, error.message, error.hint)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a library may raise even SystemExit
            first = str(error).strip().split("\n", 1)[0]
            return _Answer(None, f"{type(error).__name__}: {first}")


# --- torch


def _torch(ask: _Asker, loader: Callable[[], Any]) -> tuple[Any, list[Check]]:
    torch, why, _ = ask(loader)
    if torch is None:
        check = Check(
            name="torch",
            status=Status.FAIL,
            value="cannot be imported",
            why=why,
            mend="pip install torch (the build for your GPU: see pytorch.org)",
        )
        return None, [check]
    hip, cuda = torch.version.hip, torch.version.cuda
    build = f"ROCm {hip}" if hip else f"CUDA {cuda}" if cuda else "CPU-only"
    version = str(torch.__version__)
    facts = {"version": version, "hip": hip, "cuda": cuda}
    value = f"{version} ({build})"
    return torch, [Check(name="torch", status=Status.OK, value=value, facts=facts)]


def _backend(ask: _Asker, torch: Any, kind: str) -> list[Check]:
    """A backend from outside of torch is loaded, as a run would load it; what went wrong there."""
    if kind in ("auto", "cpu") or accelerators.is_known(torch, kind):
        return []
    _, why, _ = ask(lambda: load_backend(kind))
    return [Check(name=kind, status=Status.FAIL, value="not loaded", why=why)] if why else []


def _devices(ask: _Asker, torch: Any) -> dict[str, dict[str, Any]]:
    """What identifies each of torch's devices, by torch's name of it."""
    if torch is None:
        return {}
    names, _, _ = ask(lambda: accelerators.names(torch))
    devices = {}
    for name in names or ():
        facts, why, _ = ask(lambda name=name: _facts(torch, name))  # type: ignore[misc]
        ordinal = int(name.partition(":")[2])
        devices[name] = facts or {"ordinal": ordinal, "error": why}
    return devices


def _facts(torch: Any, name: str) -> dict[str, Any]:
    """What a run would know of a device."""
    kind, _, number = name.partition(":")
    if kind == "cuda":
        return device_facts(int(number), torch)
    family = accelerators.family_of(torch, kind)
    facts = {"ordinal": int(number), "name": accelerators.device_name(family, int(number))}
    if kind in FRAMEWORKS:
        facts = device_facts(int(number), torch, kind) | facts
    return facts | {"kind": kind, "timer": family.clock, "unproven": family.unproven}


def _wanted(device: str, devices: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    checks = [
        Check(
            name=name,
            status=Status.NOTE if facts.get("error") or facts.get("unproven") else Status.OK,
            value=str(facts.get("name", "")),
            why=str(facts.get("error") or facts.get("timer", "")),
            mend=str(facts.get("unproven", "")),
            facts=dict(facts),
        )
        for name, facts in devices.items()
    ]
    kind = device.partition(":")[0]
    if not devices and kind not in ("auto", "cpu", "cuda"):
        checks.append(
            Check(
                name=device,
                status=Status.FAIL,
                value="no such device",
                why=f"neither torch nor an installed package torch_{kind} brings it",
                mend="install its backend for this Python; a benchmark file may also bring it",
            )
        )
    elif not devices:
        checks.append(
            Check(
                name="GPU",
                status=Status.MISSING if device in ("auto", "cpu") else Status.FAIL,
                value="torch sees none",
                why="a CPU-only build, no driver, or CUDA_VISIBLE_DEVICES hides it"
                + _variables("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
                mend="benchmarks run on the CPU; for a GPU install torch's build for it",
            )
        )
    elif device not in ("auto", "cpu", *devices, *(name.partition(":")[0] for name in devices)):
        checks.append(
            Check(
                name=device,
                status=Status.FAIL,
                value="no such device",
                mend=f"there is {', '.join(devices)}",
            )
        )
    return checks


def _variables(*names: str) -> str:
    found = [f"{name}={os.environ[name]!r}" for name in names if name in os.environ]
    return f" ({', '.join(found)})" if found else ""


# --- libraries


def _libraries(ask: _Asker, access: Access) -> list[Check]:
    return [_nvml(ask, access), _amdsmi(ask)]


def _nvml(ask: _Asker, access: Access) -> Check:
    nvml = Nvml(access.nvml_library)
    _, why, mend = ask(nvml.open)
    name, facts = "NVML", {"pynvml": pynvml_versions()}
    if why:
        return Check(name=name, status=Status.MISSING, value=why, mend=mend, facts=facts)
    version = nvml.ask("nvmlSystemGetDriverVersion")
    nvml.close()
    return Check(
        name=name,
        status=Status.OK,
        value=f"driver {version or 'of unknown version'}",
        facts=facts | {"driver": version},
    )


def _amdsmi(ask: _Asker) -> Check:
    smi, why, mend = ask(load_amdsmi)
    if smi is None:
        return Check(name="amdsmi", status=Status.MISSING, value=why, mend=mend)
    smi.close()
    return Check(
        name="amdsmi",
        status=Status.OK,
        value=f"{smi.version} with libamd_smi {smi.library_major}",
        why=f"it printed: {smi.said}" if smi.said else "",
    )


def _seen(found: Sequence[DeviceInfo], why: str) -> Check:
    """Every GPU that the drivers show, whether torch has it or not."""
    if not found:
        return Check(name="GPUs seen", status=Status.MISSING, value="none", why=why)
    names = ", ".join(f"{info.name} {info.uuid}" for info in found)
    return Check(
        name="GPUs seen",
        status=Status.OK,
        value=names,
        facts={info.uuid: {"name": info.name, "pci": info.pci} for info in found},
    )


# --- telemetry


def _telemetry(
    ask: _Asker,
    clock: TimeSource,
    find: Find,
    name: str,
    facts: Mapping[str, Any],
    looks: int = LOOKS,
) -> tuple[DeviceInfo | None, list[Check]]:
    """The mapping and every sensor of one device."""
    found, why, _ = ask(lambda: find(name, facts or None, time_source=clock))
    if found is None:
        return None, [Check(name="mapping", status=Status.MISSING, value="none", why=why)]
    source, how = found
    answer, why, mend = ask(lambda: _looks(source, clock, looks))
    ask(source.close)
    if answer is None:
        value = f"none: {why}"
        check = Check(name="mapping", status=Status.NOTE, value=value, why=how, mend=mend)
        return None, [check]
    info, reading, cost_ns = answer
    if info.found_by:
        how += f", found by {info.found_by}"
    mapping = Check(
        name="mapping",
        status=Status.NOTE if info.note else Status.OK,
        value=f"{info.name}, {info.slice or info.uuid}",
        why=", ".join(word for word in (how, info.pci or "", info.note) if word),
        facts={"uuid": info.uuid, "pci": info.pci, "driver": info.driver, "note": info.note},
    )
    cost = Check(
        name="one fast look",
        status=Status.OK,
        value=f"{cost_ns / 1000:.0f} µs",
        why="median of its duration, ten times a second",
        facts={"cost_ns": cost_ns},
    )
    sensors = [_sensor(field, sensor, reading) for field, sensor in info.sensors.items()]
    return info, [mapping, *_limits(info), cost, *sensors]


def _limits(info: DeviceInfo) -> Iterable[Check]:
    """What the device itself says that it can do."""
    if info.kind == Vendor.CPU:
        return
    steps, top = info.supported_sm_mhz, info.max_sm_mhz
    parts = [f"{steps[0]} to {steps[-1]} MHz in {len(steps)} steps"] if steps else []
    parts += [f"maximum {top} MHz"] if top else []
    watts = None if info.power_limit_mw is None else info.power_limit_mw / 1000
    told = {
        "core clocks": ", ".join(parts),
        "power limit": "" if watts is None else f"{watts:g} W",
        "temperature limits": ", ".join(f"{n} {c:g} °C" for n, c in info.temp_limits_c.items()),
        "driver": info.driver or "",
    }
    for name, value in told.items():
        status = Status.OK if value else Status.MISSING
        yield Check(name=name, status=status, value=value, why="" if value else "not told")


def _looks(
    source: TelemetrySource, clock: TimeSource, looks: int
) -> tuple[DeviceInfo, Reading, int]:
    """Open a source and look at it as a run would; the last reading and the median cost."""
    source.open()
    never = threading.Event()
    source.read(Tier.ALL)
    costs = []
    for _ in range(looks):
        clock.wait(never, LEARN_PERIOD_NS)
        start_ns = clock.now_ns()
        source.read(Tier.FAST)
        costs.append(clock.now_ns() - start_ns)
    reading = source.read(Tier.ALL)
    return source.info(), reading, sorted(costs)[len(costs) // 2]


def _sensor(field: str, sensor: SensorInfo, reading: Reading) -> Check:
    name, _, part = field.partition(".")
    value = getattr(reading, name, None)
    if part:
        value = value.get(part) if value else None
    is_missing = value is None or value == {}
    details = [sensor.label, sensor.source]
    if sensor.window_ns:
        details.append(f"mean over {sensor.window_ns / 1e9:g} s")
    if sensor.refresh_ns:
        details.append(f"new every {sensor.refresh_ns / 1e6:.0f} ms")
    if sensor.cost_ns:
        details.append(f"{sensor.cost_ns / 1000:.0f} µs a call")
    if sensor.refused:
        details.append(f"{sensor.refused} values refused ({sensor.refusal})")
    details.append(sensor.doubt)
    words = ", ".join(word for word in details if word)
    return Check(
        name=field,
        status=Status.MISSING if is_missing else Status.OK,
        value="" if is_missing else f"{_plain(value)} {sensor.unit}".strip(),
        why=(sensor.reason or "") if is_missing else words,
        facts={"value": value, **msgspec.to_builtins(sensor)},
    )


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


# --- clock control


def _clocks(
    ask: _Asker, controller: Callable[[DeviceInfo], ClockController], info: DeviceInfo
) -> list[Check]:
    """Whether the clocks may be locked, and whether somebody has locked them already."""
    made, why, mend = ask(lambda: controller(info))
    if made is None:
        return [Check(name="lock", status=Status.MISSING, value="no", why=why, mend=mend)]
    state, why, mend = ask(made.state)
    with contextlib.suppress(Exception):
        made.close()  # type: ignore[attr-defined]
    if state is None:
        return [Check(name="lock", status=Status.MISSING, value="no", why=why, mend=mend)]
    clocks = state.supported_mhz
    example = lock_command(info, clocks[len(clocks) // 2]) if clocks else ""
    checks = [
        Check(
            name="lock",
            status=Status.OK if state.can_lock else Status.NOTE,
            value="rights" if state.can_lock else "no",
            why=MAY_LOCK if state.can_lock else state.reason,
            mend=example if NEEDS_RIGHTS in state.reason else "",
            facts={"can_lock": state.can_lock, "supported_mhz": list(clocks)},
        ),
        Check(
            name="held now",
            status=Status.NOTE if state.hold is ClockHold.FOREIGN else Status.OK,
            value=str(state.hold),
            why=state.evidence,
            mend="somebody else has locked it, perhaps: ask before you change it"
            if state.hold is ClockHold.FOREIGN
            else "",
        ),
    ]
    if clocks:
        span = f"{clocks[0]} to {clocks[-1]} MHz, {len(clocks)} steps"
        checks.append(Check(name="supported clocks", status=Status.OK, value=span))
    return checks


# --- state directory


def _state(state_dir: Path | None) -> list[Check]:
    path = state_dir or Path(platformdirs.user_state_path("usv-tui", appauthor=False))
    nearest = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(nearest).free
    is_writable = os.access(nearest, os.W_OK | os.X_OK)
    enough = free >= MIN_FREE_BYTES
    return [
        Check(
            name="sessions",
            status=Status.OK if is_writable and enough else Status.NOTE,
            value=str(path),
            why="" if is_writable else f"{nearest} is not writable: runs are not kept",
            mend="" if is_writable and enough else "set XDG_STATE_HOME, or use --save PATH",
            facts={"path": str(path), "writable": is_writable, "free_bytes": free},
        ),
        Check(
            name="free space",
            status=Status.OK if enough else Status.NOTE,
            value=f"{free / (1 << 30):.1f} GiB",
        ),
        _leases(),
    ]


def _leases() -> Check:
    """Locks of runs that have ended without putting the clocks back."""
    try:
        directory = LeaseDirectory.open(create=False)
        uuids = directory.uuids()
        directory.close()
    except (UsvError, OSError) as error:
        return Check(name="locks left behind", status=Status.NOTE, value="unknown", why=str(error))
    if not uuids:
        return Check(name="locks left behind", status=Status.OK, value="none")
    return Check(
        name="locks left behind",
        status=Status.NOTE,
        value=", ".join(uuids),
        why="a run has locked these devices; it may still be running",
        mend="usv-tui clocks restore",
    )

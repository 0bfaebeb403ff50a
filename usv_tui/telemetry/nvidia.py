"""Telemetry of an NVIDIA GPU through NVML.

Every quantity has a list of ways to read it, best first: a field id, a newer call, an older call.
What a driver does not know moves the quantity on to its next way, once and for good. One call
fetches all field values of a look; each entry has its own return code.
"""

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from usv_tui.errors import DeviceLost, SensorGap, TelemetryError, TelemetryOff
from usv_tui.model import REASON_WORDS, DeviceInfo, Reading
from usv_tui.seams import Identity, Tier
from usv_tui.telemetry.plausible import EnergyWitness, sane_info
from usv_tui.telemetry.sensors import MonotonicCounter, S, SensorBoard
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor.kinds import Access, Vendor
from usv_tui.vendor.nvml import (
    COMPUTE_PROCESSES,
    GPU_IS_LOST,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNINITIALIZED,
    FieldBlock,
    Nvml,
    XidEvents,
    nvml_code,
    short_pci,
)
from usv_tui.vendor.processes import Others, foreign_pids

_NEVER = {
    INVALID_ARGUMENT: "not known to this driver",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "needs more rights",
    13: "absent from this driver",
    14: "the board's InfoROM is corrupt",
    17: "blocked by the operating system (container?)",
    25: "this driver knows an older form only",
    26: "withdrawn by this driver",
}
"""Codes after which a source is never asked again."""
_GAP = {
    NOT_FOUND: "nothing there just now",
    INSUFFICIENT_SIZE: "the list kept growing",
    8: "insufficient external power: check the GPU's power cables",
    10: "timed out",
    11: "the GPU's interrupt has a problem",
    19: "in use",
    20: "out of memory",
    21: "no data yet",
    23: "out of resources",
    27: "not ready",
}
"""Codes that pass: ask again, later and later."""
_NO_VALUE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""What a driver writes for an absent number of 32 and of 64 bits."""
SECOND_LOOK_NS = 60 * S
"""When what was not supported at first is asked for once more."""
_UNCORRECTED, _VOLATILE = 1, 0
LOST_LOOKS = 5
"""Looks in a row in which every sensor failed for no known reason."""
STALE_NS = 2 * S
"""A power or energy value that the driver has not refreshed for so long is no value."""

_LIMITS = ((0, "shutdown"), (1, "slowdown"), (2, "memory max"), (3, "gpu max"))
_LIMIT_MARGINS = ((193, "shutdown"), (194, "slowdown"), (195, "memory max"), (196, "gpu max"))
_PUBLISHED_SHARES = {"A100": 25, "H100": 25, "V100": 50}
"""Percent of the time that one power reading looks at (published for these boards, not measured
here: arXiv 2312.02741)."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to read a quantity: a field id or a call."""

    source: str
    unit: str
    field: tuple[int, int] | None = None
    """Field id and scope."""
    call: Callable[[], Any] | None = None
    label: str = ""
    window_ns: int | None = None


class _Quantity:
    """One sensor with its ways, best first, and the one in use."""

    def __init__(
        self,
        name: str,
        tier: Tier,
        ways: list[_Way],
        check: Callable[[Any], str | None] | None = None,
        *,
        is_counter: bool = False,
    ) -> None:
        self.name = name
        self.tier = int(tier)
        self.ways = ways
        self.check = check
        self.counter = MonotonicCounter() if is_counter else None

    @property
    def way(self) -> _Way:
        return self.ways[0]


class NvmlTelemetry:
    """One NVIDIA GPU as a watched device."""

    name = "nvml"

    def __init__(
        self,
        identity: Identity | str,
        library_path: str | Path | None = None,
        time_source: TimeSource | None = None,
        own_pids: Iterable[int] = (),
    ) -> None:
        """Watch the device of this identity (or UUID); nothing is loaded before `open`.

        Args:
            identity: which device; a text is its UUID.
            library_path: another libnvidia-ml.so.1 than the system's.
            time_source: the session's clock.
            own_pids: processes beside this one whose work on the device is ours.
        """
        if isinstance(identity, str):
            identity = Identity(vendor=Vendor.NVIDIA, ordinal=0, uuid=identity)
        self._identity = identity
        self._nvml = Nvml(library_path)
        self._time = time_source or MonotonicTime()
        self._own_pids = own_pids
        self._board = SensorBoard(_FIELDS)
        self._quantities: list[_Quantity] = []
        self._handle: Any = None
        self._info: DeviceInfo | None = None
        self._has_reopened = False
        self._bad_looks = 0
        self._block: FieldBlock | None = None
        self._witness = EnergyWitness(factor=3.0, periods=3)
        self._events = XidEvents(None, None)
        self._given_up: set[str] = set()
        """What is not asked again whatever the driver says."""
        self._second_look_ns: int | None = None

    def open(self) -> DeviceInfo:
        """Load NVML, find the device and learn what it is; its sensors are learned by reading.

        Raises:
            TelemetryOff: no library, no driver, or no such device.
            TelemetryError: NVML failed now.
        """
        self.close()
        self._nvml.open()
        handle = self._nvml.find(self._identity)
        is_mig = self._nvml.is_mig(handle)
        part = handle if is_mig else None
        if is_mig:
            board = self._nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
            if board is None:
                raise TelemetryOff("the board behind this MIG device cannot be opened")
            handle = board
        self._handle = handle
        self._bad_looks = 0
        self._info = self._describe(part)
        self._block = None
        self._board = SensorBoard(_FIELDS)
        self._board.know(self._info)
        self._witness = EnergyWitness(factor=3.0, periods=3)
        self._events = XidEvents(self._nvml.api, handle)
        self._quantities = self._plan(is_mig=is_mig)
        for quantity in self._quantities:
            self._declare(quantity)
        planned = {quantity.name for quantity in self._quantities}
        for name in _FIELDS:
            if name not in planned:
                self._board.never(name, _NOT_TOLD.get(name, "NVML does not tell it"))
        self._given_up = {"util_pct"} if is_mig else set()
        self._second_look_ns = None if is_mig else self._time.now_ns() + SECOND_LOOK_NS
        if is_mig:
            self._drop("util_pct", "not reported under MIG")
        return self.info()

    def info(self) -> DeviceInfo:
        """The device and what is known of its sensors now."""
        info = self._info or DeviceInfo(uuid=self._identity.uuid or "", name="", kind=Vendor.NVIDIA)
        return msgspec.structs.replace(info, sensors=self._board.infos())

    def close(self) -> None:
        """Release NVML. Never raises."""
        self._events.close()
        self._nvml.close()
        self._handle = None

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers; each answers or fails by itself.

        Raises:
            SensorGap: another component shut NVML down; it was opened again.
            TelemetryOff: that happened once too often.
            TelemetryError: every sensor fails.
            DeviceLost: the GPU fell off the bus or needs a reset.
        """
        if self._handle is None or self._info is None:
            raise SensorGap("NVML is not open")
        start_ns = self._time.now_ns()
        self._board.begin(start_ns)
        # Plain integers: an operation on an IntFlag costs half a microsecond.
        asked, wants = int(tiers), self._board.wants
        due = [q for q in self._quantities if q.tier & asked and wants(q.name, start_ns)]
        self._read_fields([q for q in due if q.way.field is not None])
        for quantity in due:
            if quantity.ways and quantity.way.call is not None:
                self._read_call(quantity)
        if tiers & Tier.FAST:
            self._compare_energy(start_ns)
        if tiers & Tier.SLOW:
            self._watch_power(start_ns)
            self._ask_again(start_ns)
        self._count_failures([q.name for q in due])
        at_ns = (start_ns + self._time.now_ns()) // 2
        return self._board.reading(self._info.uuid, at_ns)

    # --- what there is to read

    def _plan(self, *, is_mig: bool) -> list[_Quantity]:
        """All quantities of this device with the ways to read them."""
        api, handle = self._nvml.api, self._handle
        whole = "whole board" if is_mig else ""

        def call(function: str, *args: Any) -> Callable[[], Any]:
            # By name at each call: a binding may lack the function, which is an answer too.
            return lambda: getattr(api, function)(handle, *args)

        def field(field_id: int, unit: str, label: str = "", scope: int = 0) -> _Way:
            text = f"nvml field {field_id}" + (f" scope {scope}" if scope else "")
            return _Way(text, unit, field=(field_id, scope), label=_join(whole, label))

        def getter(function: str, unit: str, *args: Any, label: str = "") -> _Way:
            return _Way(function, unit, call=call(function, *args), label=_join(whole, label))

        def violation(policy: int) -> _Way:
            ask = call("nvmlDeviceGetViolationStatus", policy)
            return _Way(
                "nvmlDeviceGetViolationStatus", "ns", call=lambda: ask().violationTime, label=whole
            )

        share = next((s for n, s in _PUBLISHED_SHARES.items() if n in self._info_name()), None)
        instant = "instant" + (f", sees {share} % of the time" if share else "")
        mean = _join(whole, "1 s mean")
        fast, slow = Tier.FAST, Tier.SLOW
        utilisation = call("nvmlDeviceGetUtilizationRates")
        return [
            _Quantity(
                "sm_mhz", fast,
                [getter("nvmlDeviceGetClockInfo", "MHz", 1),
                 getter("nvmlDeviceGetClockInfo", "MHz", 0, label="graphics clock")],
            ),
            _Quantity(
                "power_mw", fast,
                [field(186, "mW", instant),
                 _Way("nvml field 185", "mW", field=(185, 0), label=mean, window_ns=S),
                 field(186, "mW", "instant, whole module", scope=1),
                 self._legacy_power(call("nvmlDeviceGetPowerUsage"), whole, instant)],
            ),
            _Quantity(
                "energy_mj", fast,
                [field(83, "mJ", "since driver load"),
                 getter("nvmlDeviceGetTotalEnergyConsumption", "mJ", label="since driver load")],
                is_counter=True,
            ),
            _Quantity("throttle_ns.power", fast, [field(74, "ns"), violation(0)], is_counter=True),
            _Quantity(
                "throttle_ns.thermal", fast,
                [field(269, "ns"), field(75, "ns"), violation(1)], is_counter=True,
            ),
            _Quantity("throttle_ns.hw_thermal", fast, [field(270, "ns")], is_counter=True),
            _Quantity("throttle_ns.brake", fast, [field(271, "ns")], is_counter=True),
            _Quantity(
                "reasons", Tier.REASONS,
                [getter("nvmlDeviceGetCurrentClocksEventReasons", "", label=self._blind_spots()),
                 getter("nvmlDeviceGetCurrentClocksThrottleReasons", "")],
            ),
            _Quantity(
                "temp_c", slow,
                [getter("nvmlDeviceGetTemperatureV", "°C", 0, label="core"),
                 getter("nvmlDeviceGetTemperature", "°C", 0, label="core")],
            ),
            _Quantity("mem_temp_c", slow, [field(82, "°C", "memory")], _check_memory_temperature),
            _Quantity("mem_mhz", slow, [getter("nvmlDeviceGetClockInfo", "MHz", 2)]),
            _Quantity("pstate", slow, [getter("nvmlDeviceGetPerformanceState", "")]),
            _Quantity(
                "util_pct", slow,
                [_Way("nvmlDeviceGetUtilizationRates", "%", call=lambda: utilisation().gpu,
                      label="a kernel was resident")],
            ),
            _Quantity(
                "fan_pct", slow, [getter("nvmlDeviceGetFanSpeed_v2", "%", 0, label="intended")],
            ),
            _Quantity(
                "power_limit_mw", slow,
                [getter("nvmlDeviceGetEnforcedPowerLimit", "mW", label="enforced"),
                 field(190, "mW", "enforced")],
            ),
            _Quantity(
                "others", Tier.RARE,
                [_Way(name, "pid", call=functools.partial(self._read_others, name))
                 for name in COMPUTE_PROCESSES],
            ),
            _Quantity(
                "uncorrected", Tier.RARE,
                [getter("nvmlDeviceGetTotalEccErrors", "", _UNCORRECTED, _VOLATILE,
                        label="since driver load")],
            ),
            _Quantity(
                "xids", Tier.SLOW,
                [_Way("nvmlEventSetWait_v2", "", call=self._events.poll,
                      label="driver errors (Xid) since the start")],
            ),
        ]  # fmt: skip

    def _info_name(self) -> str:
        return self._info.name if self._info is not None else ""

    def _legacy_power(self, call: Callable[[], Any], whole: str, instant: str) -> _Way:
        """The old power call: instant up to GA100, a mean over one second on what came after."""
        capability = self._nvml.ask("nvmlDeviceGetCudaComputeCapability", self._handle)
        is_mean = capability is None or tuple(capability) > (8, 0)
        return _Way(
            "nvmlDeviceGetPowerUsage",
            "mW",
            call=call,
            label=_join(whole, "1 s mean" if is_mean else instant),
            window_ns=S if is_mean else None,
        )

    def _blind_spots(self) -> str:
        """Which of the throttle reasons this device cannot report at all."""
        mask = self._nvml.ask("nvmlDeviceGetSupportedClocksEventReasons", self._handle)
        if mask is None:
            mask = self._nvml.ask("nvmlDeviceGetSupportedClocksThrottleReasons", self._handle)
        if mask is None:
            return ""
        words = [word for bit, word in REASON_WORDS.items() if bit <= 0x80 and not mask & bit]
        return f"cannot tell: {', '.join(words)}" if words else ""

    def _describe(self, part: Any) -> DeviceInfo:
        """What the board is, under the name of the part that is measured (a MIG instance)."""
        ask, handle = self._nvml.ask, self._handle
        memory = ask("nvmlDeviceGetMemoryInfo", handle if part is None else part)
        pci = ask("nvmlDeviceGetPciInfo", handle)
        mem_clocks = ask("nvmlDeviceGetSupportedMemoryClocks", handle) or []
        clocks = mem_clocks and ask("nvmlDeviceGetSupportedGraphicsClocks", handle, max(mem_clocks))
        notes = [] if part is None else ["telemetry and clocks are the whole board's (MIG)"]
        if ask("nvmlDeviceGetPersistenceMode", handle) == 0:
            notes.append("persistence mode off")
        notes += self._memory_repairs()
        margins = self._limit_margins()
        limits = {
            name: float(limit)
            for which, name in _LIMITS
            if (limit := ask("nvmlDeviceGetTemperatureThreshold", handle, which))
        }
        if not limits and margins:
            notes.append("temperature limits as margins only: " + margins)
        info = DeviceInfo(
            uuid=ask("nvmlDeviceGetUUID", handle) or self._identity.uuid or "",
            name=ask("nvmlDeviceGetName", handle if part is None else part)
            or self._identity.name
            or "NVIDIA GPU",
            slice="" if part is None else ask("nvmlDeviceGetUUID", part) or "MIG",
            kind=Vendor.NVIDIA,
            pci=short_pci(pci.busId) if pci else self._identity.pci,
            driver=ask("nvmlSystemGetDriverVersion"),
            index=ask("nvmlDeviceGetIndex", handle),
            memory_bytes=memory.total if memory and memory.total else None,
            power_limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit", handle),
            max_sm_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, 1),
            supported_sm_mhz=sorted(set(clocks or [])),
            temp_limits_c=limits,
            found_by=self._nvml.found_by,
            note=", ".join(notes),
        )
        return msgspec.structs.replace(info, **sane_info(info))

    def _memory_repairs(self) -> list[str]:
        """What the board's memory waits for, or has given up on."""
        ask, handle = self._nvml.ask, self._handle
        rows = ask("nvmlDeviceGetRemappedRows", handle)
        pages = ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
        notes = []
        if (rows and rows[2]) or pages:
            notes.append("faulty memory waits to be mapped out: reset the GPU")
        if rows and rows[3]:
            notes.append("faulty memory could not be mapped out")
        return notes

    def _limit_margins(self) -> str:
        """The newer limits are distances, not temperatures: they are told, not drawn."""
        ids = [(field_id, 0) for field_id, _ in _LIMIT_MARGINS]
        try:
            values = FieldBlock(self._nvml.api, ids).fetch(self._handle)
        except Exception:  # noqa: BLE001  a vendor binding may raise anything
            return ""
        known = [
            f"{name} {value.number}"
            for value, (_, name) in zip(values, _LIMIT_MARGINS, strict=True)
            if value.code == 0
        ]
        return ", ".join(known)

    # --- reading

    def _read_fields(self, quantities: list[_Quantity]) -> None:
        """One call for all field values of this look."""
        if not quantities:
            return
        ids = tuple(q.way.field for q in quantities if q.way.field is not None)
        if self._block is None or self._block.ids != ids:
            self._block = FieldBlock(self._nvml.api, ids)
        start_ns = self._time.now_ns()
        try:
            values = self._block.fetch(self._handle)
        except Exception as error:  # noqa: BLE001  a vendor binding may raise anything
            for quantity in quantities:
                self._fail(quantity, nvml_code(error), _first_line(error))
            return
        share_ns = (self._time.now_ns() - start_ns) // len(quantities)
        for quantity, (code, number, stamp_us, latency_us) in zip(quantities, values, strict=True):
            if code:
                self._fail(quantity, code, "")
            elif number is None:
                self._fail(quantity, NOT_SUPPORTED, "a value type that is not known here")
            else:
                cost_ns = latency_us * 1000 if 0 < latency_us < 1_000_000 else share_ns
                self._take(quantity, number, cost_ns, stamp_us * 1000 if stamp_us > 0 else None)

    def _read_call(self, quantity: _Quantity) -> None:
        call = quantity.way.call
        if call is None:
            return
        start_ns = self._time.now_ns()
        try:
            value = call()
        except _Unknowable as error:
            self._board.absent(quantity.name, str(error))
        except Exception as error:  # noqa: BLE001  a vendor binding may raise anything
            self._fail(quantity, nvml_code(error), _first_line(error))
            if quantity.ways and quantity.way.call not in (None, call):
                self._read_call(quantity)
        else:
            self._take(quantity, value, self._time.now_ns() - start_ns, None)

    def _take(self, quantity: _Quantity, value: Any, cost_ns: int, stamp_ns: int | None) -> None:
        name = quantity.name
        self._board.cost(name, cost_ns)
        if value in _NO_VALUE:
            self._board.absent(name, "the driver says: no value")
            return
        why_not = quantity.check(value) if quantity.check is not None else None
        if why_not is not None:
            self._board.absent(name, why_not)
            return
        self._board.put(name, value, stamp_ns, quantity.counter)

    def _fail(self, quantity: _Quantity, code: int, text: str) -> None:
        """React to a return code: next way, later, or the end of the device.

        Raises:
            DeviceLost, SensorGap, TelemetryOff: codes that are about more than one sensor.
        """
        now_ns = self._time.now_ns()
        if code in (GPU_IS_LOST, RESET_REQUIRED):
            words = "GPU is lost" if code == GPU_IS_LOST else "the GPU needs a reset"
            raise DeviceLost(words, "reboot, or reset it with nvidia-smi -r")
        if code == UNINITIALIZED:
            self._reopen()
        if code in _NEVER:
            reason = f"{quantity.way.source}: {_NEVER[code]}"
            if len(quantity.ways) > 1:
                quantity.ways.pop(0)
                self._declare(quantity)
            else:
                self._drop(quantity.name, reason)
        elif code in _GAP:
            self._board.gap(quantity.name, _GAP[code], now_ns)
        else:
            self._board.failed(quantity.name, text or f"code {code}", now_ns)

    def _declare(self, quantity: _Quantity) -> None:
        way = quantity.way
        self._board.declare(
            quantity.name, way.source, way.unit, label=way.label, window_ns=way.window_ns
        )

    def _drop(self, name: str, reason: str) -> None:
        self._quantities = [q for q in self._quantities if q.name != name]
        self._board.never(name, reason)

    def _ask_again(self, now_ns: int) -> None:
        """One "not supported" may have been the moment's (asleep, resetting): a second look."""
        if self._second_look_ns is None or now_ns < self._second_look_ns:
            return
        self._second_look_ns = None
        known = {quantity.name for quantity in self._quantities}
        missing = [q for q in self._plan(is_mig=False) if q.name not in known | self._given_up]
        for quantity in missing:
            self._quantities.append(quantity)
            self._declare(quantity)

    def _reopen(self) -> None:
        """Another component shut NVML down for the whole process: open it again, once."""
        if self._has_reopened:
            raise TelemetryOff("NVML was shut down again by another component")
        self._has_reopened = True
        self.open()
        raise SensorGap("NVML was shut down by another component; opened again")

    def _count_failures(self, names: list[str]) -> None:
        """When all sensors fail at every look, it is the library that is lost, not a sensor.

        Waiting for events needs no device.
        """
        names = [name for name in names if name != "xids"]
        if not names:
            return
        failing = [name for name in names if self._board.is_failing(name)]
        if len(failing) < len(names):
            self._bad_looks = 0
            return
        self._bad_looks += 1
        if self._bad_looks >= LOST_LOOKS:
            raise TelemetryError(f"every sensor fails: {self._board.reason(failing[0])}")

    def _watch_power(self, now_ns: int) -> None:
        """Mark power and energy that the driver no longer refreshes, or that never move."""
        for name in ("power_mw", "energy_mj"):
            age_ns = self._board.age_ns(name, now_ns)
            if age_ns is not None and age_ns > STALE_NS:
                self._board.absent(name, "not refreshed by the driver any more")
        self._board.watch_stuck()

    def _compare_energy(self, now_ns: int) -> None:
        """Give the energy counter up when it disagrees with power again and again."""
        energy, power = self._board.value("energy_mj"), self._board.value("power_mw")
        if why := self._witness.feed(energy, power, now_ns):
            self._given_up.add("energy_mj")
            self._drop("energy_mj", why)

    def _read_others(self, name: str) -> Others:
        """Foreign compute processes on the device."""
        call = getattr(self._nvml.api, name)
        for attempt in range(4):
            try:
                rows = call(self._handle)
                break
            except Exception as error:
                code = nvml_code(error)
                if code == NOT_FOUND:
                    rows = []
                    break
                if code != INSUFFICIENT_SIZE or attempt == 3:
                    raise
        total = self._info.memory_bytes if self._info is not None else None
        pids = [(row.pid, row.usedGpuMemory) for row in rows]
        found, reason = foreign_pids(pids, frozenset((os.getpid(), *self._own_pids)), total)
        if found is None:
            raise _Unknowable(reason)
        return Others.of(found, pids)


class _Unknowable(Exception):
    """A quantity that cannot be known here, though the call succeeds."""


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return text if hasattr(error, "value") else f"{type(error).__name__}: {text}"


def _join(*words: str) -> str:
    return ", ".join(word for word in words if word)


def _check_memory_temperature(value: Any) -> str | None:
    return None if 0 < value < 150 else "reads 0: this board has no memory sensor"


_NOT_TOLD = {
    "sm_mhz_min": "NVML tells one clock for the whole GPU",
    "steal_pct": "a figure of the host",
}
_FIELDS = (
    "sm_mhz", "sm_mhz_min", "mem_mhz", "power_mw", "temp_c", "mem_temp_c", "energy_mj",
    "util_pct", "steal_pct", "fan_pct", "power_limit_mw", "pstate", "reasons",
    "throttle_ns.power", "throttle_ns.thermal", "throttle_ns.hw_thermal", "throttle_ns.brake",
    "others", "uncorrected", "xids",
)  # fmt: skip


def watch(
    identity: Identity, access: Access, time_source: TimeSource | None, own_pids: Iterable[int]
) -> NvmlTelemetry:
    """The telemetry of the board of this identity."""
    return NvmlTelemetry(identity, access.nvml_library, time_source, own_pids)

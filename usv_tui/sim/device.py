"""The simulated GPU behind the seams of the device layer, and whole sessions on it.

The seams are structural, so nothing of the device layer is imported.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from usv_tui.errors import ClockError, ClockRefused, DeviceLost, TelemetryOff
from usv_tui.model import (
    Benchmark,
    ClockHold,
    ClockState,
    ClockUndo,
    DeviceInfo,
    Reading,
    Reason,
    SensorInfo,
    Suite,
)
from usv_tui.sim.gpu import SimCall, SimGpu, activate
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.profiles import DEFAULT_CARD, Card, find_card
from usv_tui.sim.scenarios import DEFAULT_SCENARIO, Scenario, find_scenario
from usv_tui.sim.timer import SimTimer
from usv_tui.timesource import TimeSource
from usv_tui.vendor.kinds import Vendor

_FAST, _REASONS, _SLOW, _RARE = 1, 2, 4, 8
"""The bits of `seams.Tier`."""
_FIELDS: dict[str, tuple[int, str]] = {
    "sm_mhz": (_FAST, "MHz"),
    "sm_mhz_min": (_FAST, "MHz"),
    "power_mw": (_FAST, "mW"),
    "energy_mj": (_FAST, "mJ"),
    "throttle_ns": (_FAST, "ns"),
    "reasons": (_REASONS, ""),
    "temp_c": (_SLOW, "°C"),
    "mem_temp_c": (_SLOW, "°C"),
    "mem_mhz": (_SLOW, "MHz"),
    "util_pct": (_SLOW, "%"),
    "fan_pct": (_SLOW, "%"),
    "power_limit_mw": (_SLOW, "mW"),
    "pstate": (_SLOW, ""),
    "others": (_RARE, ""),
}
"""Tier and unit of every field of a reading that this source knows."""
_LOST = "the sensor stopped answering"


def _uuid(gpu: SimGpu) -> str:
    return f"SIM-{gpu.card.key}-{gpu.seed}"


class SimTelemetry:
    """The sensors of a simulated GPU, as late, coarse and incomplete as a card's."""

    def __init__(self, gpu: SimGpu) -> None:
        self.name = "sim"
        self._gpu = gpu
        has_parts = gpu.card.chiplets > 1
        self._fields = {k: v for k, v in _FIELDS.items() if has_parts or k != "sm_mhz_min"}
        self._values: dict[str, Any] = {}
        self._read_ns: dict[str, int] = {}
        self._closing = threading.Event()
        self._has_stalled = False

    def open(self) -> DeviceInfo:
        """The device and its sensors.

        Raises:
            TelemetryOff: the scenario has no telemetry.
        """
        why = self._gpu.scenario.faults.no_telemetry
        if why:
            raise TelemetryOff(f"no telemetry: {why}", "timing works without it")
        return self.info()

    def info(self) -> DeviceInfo:
        """The device and what is known of its sensors now."""
        card = self._gpu.card
        return DeviceInfo(
            uuid=_uuid(self._gpu),
            name=f"{card.name} (simulated)",
            kind=Vendor.SIM,
            driver="simulated",
            index=0,
            memory_bytes=card.memory_bytes,
            power_limit_mw=None if "power_limit_mw" in card.missing else round(card.cap_w * 1e3),
            max_sm_mhz=card.max_mhz,
            base_sm_mhz=card.base_mhz,
            supported_sm_mhz=card.supported_mhz,
            temp_limits_c={"slowdown": card.t_sw_c, "hw slowdown": card.t_hw_c},
            sensors={name: self._sensor(name) for name in self._fields},
            simulated=True,
            note=f"SIMULATED: {self._gpu.scenario.summary}",
        )

    def _sensor(self, name: str) -> SensorInfo:
        card = self._gpu.card
        label = {"power_mw": card.power_label, "temp_c": card.hot_label}.get(name, "")
        return SensorInfo(
            source="simulated",
            unit=_FIELDS[name][1],
            reason=self._missing(name),
            label=label,
            refresh_ns=card.refresh_ns,
            window_ns=card.power_window_ns if name == "power_mw" else None,
            lag_ns=card.lag_ns,
        )

    def _missing(self, name: str) -> str | None:
        """Why a field is not reported, now."""
        gpu = self._gpu
        faults = gpu.scenario.faults
        is_lost = (
            faults.sensors_lost_s is not None
            and name in faults.lost_sensors
            and gpu.elapsed_s() >= faults.sensors_lost_s
        )
        return _LOST if is_lost else gpu.card.missing.get(name)

    def read(self, tiers: IntFlag) -> Reading:
        """Read the sensors of the given tiers; the others repeat their last value with its age.

        Raises:
            DeviceLost: the card has fallen off the bus.
        """
        gpu = self._gpu
        start_ns = gpu.time.now_ns()
        if gpu.is_lost:
            raise DeviceLost("the GPU has fallen off the bus", "simulated")
        self._stall()
        fresh = self._look()
        at_ns = (start_ns + gpu.time.now_ns()) // 2
        for name, (tier, _) in self._fields.items():
            if self._missing(name) is not None:
                self._values.pop(name, None)
            elif tiers & tier:
                self._values[name] = fresh[name]
                self._read_ns[name] = at_ns
        ages_ns = {
            name: at_ns - self._read_ns[name]
            for name in self._values
            if self._read_ns[name] != at_ns
        }
        return Reading(device=_uuid(gpu), at_ns=at_ns, ages_ns=ages_ns, **self._values)

    def _stall(self) -> None:
        """Once, when the scenario says so: a call that does not come back for seconds."""
        faults = self._gpu.scenario.faults
        if faults.stall_s is None or self._has_stalled:
            return
        if self._gpu.elapsed_s() >= faults.stall_s:
            self._has_stalled = True
            self._gpu.time.wait(self._closing, round(faults.stall_for_s * 1e9))

    def _look(self) -> dict[str, Any]:
        gpu = self._gpu
        card = gpu.card
        sensed, util_pct, pids = gpu.sense()
        return {
            "sm_mhz": sensed.sm_mhz,
            "sm_mhz_min": sensed.sm_mhz_min,
            "power_mw": sensed.power_mw,
            "energy_mj": sensed.energy_mj,
            "throttle_ns": {
                "power": sensed.power_capped_ns,
                "thermal": sensed.thermal_ns,
                "hw_thermal": sensed.hw_thermal_ns,
                "brake": 0,
            },
            "reasons": sensed.reasons,
            "temp_c": sensed.temp_c,
            "mem_temp_c": sensed.mem_temp_c,
            "mem_mhz": float(card.mem_mhz),
            "util_pct": util_pct,
            "fan_pct": sensed.fan_pct,
            "power_limit_mw": round(card.cap_w * 1e3),
            "pstate": sensed.pstate,
            "others": pids,
        }

    def close(self) -> None:
        """Let a stalled call go."""
        self._closing.set()


class SimClocks:
    """Clock control of a simulated GPU: honours, half-honours, ignores or refuses a lock."""

    kind: str = Vendor.SIM

    def __init__(self, gpu: SimGpu) -> None:
        self.uuid = _uuid(gpu)
        self.mem_refusal = ""
        """Why the memory clock was not locked although asked for; the core lock stands."""
        self._gpu = gpu
        lock = gpu.scenario.lock
        self._ours: int | None = None if lock is None else lock(gpu.card)

    def supported_mhz(self) -> Sequence[int]:
        """The boost table."""
        return self._gpu.card.supported_mhz

    def state(self) -> ClockState:
        """What the vendor's interface would show: a level on AMD-like cards, little on others."""
        is_refused = self._gpu.scenario.lock_policy == "refuses"
        hold, evidence, level, concerns = self._evidence()
        return ClockState(
            hold=ClockHold.PENDING if self._ours is not None else hold,
            locked_mhz=self._ours,
            evidence=evidence,
            can_lock=not is_refused,
            reason="needs root (simulated)" if is_refused else "",
            supported_mhz=self._gpu.card.supported_mhz,
            level=level,
            concerns=[] if self._ours is not None else concerns,
        )

    def _evidence(self) -> tuple[ClockHold, str, str | None, list[str]]:
        gpu = self._gpu
        card = gpu.card
        if card.vendor == Vendor.AMD:
            locked = gpu.truth().lock_mhz
            level = "auto" if locked is None else "perf_determinism"
            text = f"performance level {level}" + (
                "" if locked is None else f", limit {locked} MHz"
            )
            hold = ClockHold.FREE if locked is None else ClockHold.FOREIGN
            return hold, text, level, []
        sensed, _, pids = gpu.sense()
        concerns = [f"another process computes on it (pid {pid})" for pid in pids]
        is_odd = 1.5 * card.min_mhz < sensed.sm_mhz < card.max_mhz - card.step_mhz
        if sensed.reasons & Reason.IDLE and is_odd and sensed.sm_mhz != card.idle_mhz:
            text = f"idle at {sensed.sm_mhz:.0f} MHz, lowest {card.min_mhz} MHz"
            concerns.insert(0, f"somebody else may have locked it ({text}): it cannot be put back")
            return ClockHold.FOREIGN, text, None, concerns
        return ClockHold.UNKNOWN, "a lock cannot be read back", None, concerns

    def plan_undo(self) -> ClockUndo:
        """A reset; where another's lock can be read, as on AMD-like cards, that lock again."""
        locked = self._gpu.truth().lock_mhz
        is_foreign = locked is not None and self._ours is None
        is_readable = self._gpu.card.vendor == Vendor.AMD and is_foreign
        actions = [["lock", str(locked)]] if is_readable else [["reset"]]
        return ClockUndo(uuid=self.uuid, kind=self.kind, actions=actions)

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Fix the core clock, as the scenario lets one; a refused memory clock is only noted.

        Raises:
            ClockRefused: no rights, or not a clock of this card; nothing was changed.
        """
        card = self._gpu.card
        policy = self._gpu.scenario.lock_policy
        self.mem_refusal = ""
        if policy == "refuses":
            raise ClockRefused("the driver refuses to lock clocks", "needs root (simulated)")
        if sm_mhz not in card.supported_mhz:
            raise ClockRefused(
                f"{sm_mhz} MHz is not a clock of this card",
                f"{card.min_mhz} to {card.max_mhz} MHz in steps of {card.step_mhz:g}",
            )
        if mem_mhz not in (None, card.mem_mhz):
            self.mem_refusal = f"memory clock not locked: this card has only {card.mem_mhz} MHz"
        self._ours = sm_mhz
        if policy != "ignores":
            self._gpu.set_lock(sm_mhz)

    def undo(self, undo: ClockUndo) -> None:
        """Put the clocks back.

        Raises:
            ClockError: not a plan for this device.
        """
        if undo.kind != self.kind or undo.uuid != self.uuid:
            raise ClockError(f"this undo is for {undo.kind} {undo.uuid}, not for {self.uuid}")
        for verb, *arguments in undo.actions:
            if verb not in ("reset", "lock"):
                raise ClockError(f"unknown step {verb!r} in the undo of {self.uuid}")
            self._gpu.set_lock(int(arguments[0]) if verb == "lock" else None)
        self._ours = None


@dataclass(frozen=True, slots=True)
class SimSession:
    """A scenario on a card, ready to be measured: what a composition root needs."""

    scenario: Scenario
    card: Card
    """As the scenario has it."""
    seed: int
    suite: Suite
    gpu: SimGpu
    timer: SimTimer
    telemetry: SimTelemetry
    clocks: SimClocks

    @property
    def spec(self) -> str:
        """The device as `--device` takes it."""
        return f"sim:{self.card.key}:{self.scenario.name}"

    @property
    def label(self) -> str:
        """What headers and journals say of it."""
        return f"SIMULATED {self.card.name}, scenario {self.scenario.name}"


def load(
    scenario: str = DEFAULT_SCENARIO,
    card: str = DEFAULT_CARD,
    seed: int = 0,
    time_source: TimeSource | None = None,
    *,
    blocker: bool = False,
) -> SimSession:
    """A session on a simulated GPU, whose time starts now; `kernel` calls go to this GPU.

    Raises:
        UsageError: unknown scenario or card; the message lists what exists.
    """
    plan = find_scenario(scenario)
    fitted = plan.fit(find_card(card))
    gpu = SimGpu(fitted, plan, seed, time_source)
    activate(gpu)
    return SimSession(
        plan,
        fitted,
        seed,
        make_suite(plan, gpu),
        gpu,
        SimTimer(gpu, blocker=blocker),
        SimTelemetry(gpu),
        SimClocks(gpu),
    )


def make_suite(scenario: Scenario, gpu: SimGpu) -> Suite:
    """The benchmarks of a scenario."""
    return Suite(
        f"sim:{gpu.card.key}:{scenario.name}",
        tuple(_benchmark(kernel, gpu) for kernel in scenario.kernels),
    )


def _benchmark(kernel: SimKernel, gpu: SimGpu) -> Benchmark:
    return Benchmark(
        name=kernel.name,
        build=lambda _device: SimCall(kernel, gpu),
        group=kernel.group or gpu.scenario.name,
        params=kernel.params,
        flops=kernel.flops,
        bytes=kernel.bytes,
        is_baseline=kernel.is_baseline,
    )

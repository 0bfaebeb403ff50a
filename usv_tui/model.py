"""The nouns. Frozen; units are in the names; `None` means "not reported".

Raw quantities are integers (nanoseconds, milliwatts, MHz), derived ones SI floats. Nothing here
knows a device, a file, a screen or a statistic.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from usv_tui.codes import Code

Ns = Annotated[int, msgspec.Meta(ge=-(1 << 60), le=1 << 60)]
"""Nanoseconds of 36 years at most: a few of them still add up within 64 bits."""
Index = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""Bounds of what a record may hold: numpy can take in whatever a file says."""


class Flag(IntFlag):
    """Why a sample is special. A flagged sample is kept and drawn, never dropped."""

    WARMUP = 1
    """Taken before the row and the clock had levelled."""
    RAMP = 2
    """Taken within a second of a pause, a lock or a change of pace."""
    STARVED = 4
    """The device had drained before this window's work was enqueued: the window holds a gap."""
    NONPOSITIVE = 8
    """The timer returned zero or less; never divided by."""
    FRAME = 16
    """A frame had to be painted while this window was open."""
    SHARED = 32
    """Another process was using the device."""
    STALL = 64
    """Longer than 20 times the row's median."""
    FIRST = 128
    """One of the first calls of a row that is too slow to be called untimed: nothing warmed it."""

    @property
    def is_excluded(self) -> bool:
        """True when statistics leave the sample out."""
        return bool(self & EXCLUDED)


EXCLUDED = Flag.WARMUP | Flag.RAMP | Flag.NONPOSITIVE
"""Samples with any of these flags are shown and saved, and left out of statistics."""


class Sample(NamedTuple):
    """One timed window, raw."""

    bench: int
    round: int
    slot: int
    """Position within its round."""
    start_ns: int
    """Start of the window on the session's clock."""
    window_ns: int
    """Length of the window: `inner` calls."""
    inner: int
    host_ns: int
    """Time the host spent enqueueing the window (equal to window_ns for a wall timer)."""
    flags: int


class RowState(StrEnum):
    """What a row is doing, in the word that the screen shows."""

    WAITING = "waiting"
    PREPARING = "preparing"
    COMPILING = "compiling"
    WARMING = "warming"
    RUNNING = "running"
    OFF = "off"
    DONE = "done"
    """A script's row that has what it was asked for."""
    FAILED = "failed"
    STUCK = "stuck"


class RunPhase(StrEnum):
    """What the worker as a whole does."""

    STARTING = "starting"
    IMPORTING = "importing"
    PRIMING = "priming"
    TUNING = "tuning"
    WARMING = "warming"
    MEASURING = "measuring"
    PAUSED = "paused"
    SCRIPT = "script"
    """A script's own code runs, between its benchmarks."""
    ENDED = "ended"


AT_WORK = (RunPhase.WARMING, RunPhase.MEASURING)
"""Rows are being timed."""


class CacheMode(StrEnum):
    """What the caches hold when a window opens."""

    WARM = "warm"
    """What the row's own calls leave: it runs untimed right before its window."""
    AS_IS = "as-is"
    """Whatever the neighbours left."""
    COLD = "cold"
    ROTATING = "rotating"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One row to be timed: what to build, what to call, and what one call is worth.

    `build(device)` does the untimed set-up in the timing thread and returns the timed callable of
    no arguments.
    """

    name: str
    build: Callable[[str], Callable[[], object]]
    group: str = ""
    """The factory's name; rows of one group share a baseline."""
    params: Mapping[str, Any] = field(default_factory=dict)
    flops: float | None = None
    """Floating-point operations of one call."""
    bytes: float | None = None
    """Bytes read and written by one call."""
    is_baseline: bool = False
    setup: Callable[[], object] | None = None
    """Once, untimed, after `build`."""
    reset: Callable[[], object] | None = None
    """Before every sample, untimed."""
    check: Callable[[Any, Any], object] | None = None
    """`check(result, baseline_result)` once, untimed; False or an exception fails the row."""
    inner: int | None = None
    """Calls per window; None leaves it to the run's setting. Never overridden when given."""
    cache: CacheMode | None = None
    stream: Any = None
    """The stream that does the work, where it is not the current one (CUDA and ROCm)."""
    inputs: Callable[[], Any] | None = None
    """Draws a fresh set of arguments for the callable; None: it takes none."""


NO_BENCHMARK = "no benchmark: "
"""The reasons of names begin with this that nobody meant to be timed: imports, helpers."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a file that is not timed, and why."""

    name: str
    reason: str
    is_refused: bool = False
    """It was asked for, and cannot be timed: the run is no success."""

    @property
    def is_meant(self) -> bool:
        """False for what nobody meant to be timed: imports, helpers."""
        return not self.reason.startswith(NO_BENCHMARK)

    @property
    def word(self) -> str:
        """What a reader is told that it is."""
        return "not timed" if self.is_refused else "skipped"


@dataclass(frozen=True, slots=True)
class Suite:
    """The benchmarks of one file."""

    path: str
    benchmarks: tuple[Benchmark, ...]
    skipped: tuple[Skipped, ...] = ()


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure. Travels to the worker and into the journal, so plain data only."""

    device: str = "cpu"
    device_reason: str = ""
    """Why this device, in the words that the header shows."""
    timer: str = "auto"
    """auto, torch (events), wall, or sim."""
    iters: int | None = None
    """Samples a row, after warm-up; None runs until stopped."""
    max_time_s: float | None = None
    inner: int | None = None
    """Calls per window; None calibrates to `target_window_s`."""
    target_window_s: float | None = None
    """None takes 1 ms, or what gives the narrowest ratio on this machine."""
    row_timeout_s: float = 300.0
    """Seconds that an import, a set-up or one call may take before its row is given up."""
    warmup_max_s: float = 10.0
    """Warm-up ends when rows and clock have levelled, and at the latest after this."""
    seed: int = 0
    cache: CacheMode = CacheMode.WARM
    flush_mb: int | None = None
    pace: str = "steady"
    """steady, burst:ON_MS,OFF_MS or cool:DEGREES_C."""
    interleave: bool = True
    graph: bool = False
    """Capture each callable in a CUDA/HIP graph after warm-up and time replays."""
    blocker: bool = False
    """Hold the device with a spin kernel while a window's work is enqueued."""
    control: bool = False
    """Add the baseline a second time as a control row."""
    realloc: int | None = None
    """How often rows are built afresh in a run; None: with a control, and where it is asked for."""
    gate: bool = True
    """False lets frames fall into windows: only to show what the gate is worth."""
    probe: bool = True
    """Time the clock inside the stream where a probe kernel can be had."""


class DuetPart(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's part in a comparison of two versions that take turns on the device."""

    side: int
    """0 measures the version that the other one, 1, is compared with."""
    number: int = 1
    """Of the launch."""
    seed: int = 0
    """Of the order of turns; both have the same."""
    launch_s: float = 4.0
    """Seconds that both together measure."""
    least_pairs: int = 20
    handover_ns: Ns = 0
    """What a handover cost on the mean in the launch before."""
    calls: dict[str, list[int]] = {}
    """Calls a window and untimed ones before it, by row, as an earlier launch had them."""
    without: list[str] = []
    """Rows that cannot be compared, by name."""
    results: str = ""
    """Folder in which version 0 leaves what its rows return, for the other's checks; or empty."""
    foreign: str = ""
    """Folder from which no module of this version may come: the other version's."""


class WorkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to measure; plain data, so that it can be a process of its own."""

    path: str
    """The benchmark file; empty when the device is simulated and brings its own suite."""
    more: list[str] = []
    """Further benchmark files."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or sim:CARD[:SCENARIO]."""
    select: list[str] = []
    config: RunConfig
    retired: list[int] = []
    """Rows that must not be touched: a worker before this one died or hung in them."""
    done: dict[int, int] = {}
    """Samples that rows have from a worker before this one, where they are counted."""
    first_round: int = 0
    duet: DuetPart | None = None
    """This worker is one of two that hand each other the turn."""
    script: list[str] | None = None
    """The arguments of a script of somebody else's, which is run as it is; None: a suite."""


class BenchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A row as the session knows it."""

    bench: Index
    name: str
    group: str = ""
    params: dict[str, Any] = {}
    flops: float | None = None
    bytes: float | None = None
    is_baseline: bool = False
    parent: Index | None = None
    """The row that this one is a phase of."""
    control_of: Index | None = None
    """The row that this one duplicates as a control."""
    version: Index | None = None
    """Where two versions are compared: which one it is of, 0 or 1."""
    rival: Index | None = None
    """Of version 1: the same row of version 0."""
    plain_name: str = ""
    """Its name without that of the version."""


class TimerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the timer is and what it can resolve."""

    name: str
    """wall, event, sim-event, or the class name of a user's timer."""
    reason: str = ""
    """Why this timer."""
    resolution_ns: int | None = None
    """Smallest step between two different windows."""
    floor_ns: int | None = None
    """Median length of an empty window."""
    is_floor_host: bool = False
    """The device could not be kept busy for it: it is how fast the host puts events in."""


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A device that can be measured or watched; keyed by UUID."""

    uuid: str
    name: str
    kind: str
    """nvidia, amd, intel, cpu or sim."""
    pci: str | None = None
    driver: str | None = None
    index: int | None = None
    """Ordinal in the telemetry library: for display only, never an identity."""
    memory_bytes: int | None = None
    power_limit_mw: int | None = None
    max_sm_mhz: int | None = None
    base_sm_mhz: int | None = None
    supported_sm_mhz: list[Index] = []
    """Ascending; empty when the device does not tell."""
    temp_limits_c: dict[str, float] = {}
    sensors: dict[str, "SensorInfo"] = {}
    simulated: bool = False
    slice: str = ""
    """UUID of the part of the board that is measured (MIG); the clocks are the whole board's."""
    found_by: str = ""
    """What it was found by among the driver's devices: `UUID`, `PCI address`, …"""
    note: str = ""


NOMINAL = "nominal"
"""The label of a figure that is from a table and no measurement."""


class SensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where one quantity comes from, or why there is none."""

    source: str = ""
    """The call or file, for example `nvml field 186`."""
    unit: str = ""
    reason: str | None = None
    """Why it is unavailable; None when it is available."""
    label: str = ""
    """Extra words to be shown beside it: `nominal`, `1 s mean`, `hotspot`, `whole board`."""
    refresh_ns: int | None = None
    window_ns: int | None = None
    """Averaging window behind one value."""
    lag_ns: int | None = None
    cost_ns: int | None = None
    """Median duration of one call."""
    refused: int = 0
    """How many of its values could not be true."""
    refusal: str = ""
    """Why the last of these was refused."""
    doubt: str = ""
    """Why the values that it gives may be wrong: `stuck …`."""

    @property
    def is_nominal(self) -> bool:
        """True when nothing may be concluded from its standing still."""
        return NOMINAL in self.label


class Reason(IntFlag):
    """Clock-event reasons, in NVML's bit layout; other vendors are mapped onto it."""

    IDLE = 0x1
    APP_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY = 0x100
    BOARD_LIMIT = 0x200
    RELIABILITY = 0x400


REASON_WORDS: Mapping[int, str] = {
    Reason.IDLE: "idle",
    Reason.APP_CLOCKS: "app clocks",
    Reason.SW_POWER_CAP: "power cap",
    Reason.HW_SLOWDOWN: "hw slowdown",
    Reason.SYNC_BOOST: "sync boost",
    Reason.SW_THERMAL: "sw thermal",
    Reason.HW_THERMAL: "hw thermal",
    Reason.HW_POWER_BRAKE: "power brake",
    Reason.DISPLAY: "display clocks",
    Reason.BOARD_LIMIT: "board limit",
    Reason.RELIABILITY: "reliability",
}
POWER_REASONS = Reason.SW_POWER_CAP | Reason.HW_POWER_BRAKE | Reason.BOARD_LIMIT
THERMAL_REASONS = Reason.SW_THERMAL | Reason.HW_THERMAL


def reason_words(mask: int) -> list[str]:
    """The set bits as words, unknown bits as hexadecimal; none are dropped."""
    words = [word for bit, word in REASON_WORDS.items() if mask & bit]
    unknown = mask & ~sum(REASON_WORDS)
    if unknown:
        words.append(f"{unknown:#x}")
    return words


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look at a device. Fields that were not read this time repeat the last value and its time.

    `at_ns` is the middle of the call on the session's clock. A field is None when the device does
    not report it (see `DeviceInfo.sensors` for the reason) or when this look failed.
    """

    device: str
    at_ns: Ns
    sm_mhz: float | None = None
    sm_mhz_min: float | None = None
    """Slowest partition, where a device has several clocks (AMD XCDs)."""
    mem_mhz: float | None = None
    power_mw: int | None = None
    temp_c: float | None = None
    mem_temp_c: float | None = None
    energy_mj: int | None = None
    """Counter since driver load, millijoules."""
    util_pct: float | None = None
    steal_pct: float | None = None
    """Share of time that a hypervisor gave to somebody else (CPU of a virtual machine)."""
    fan_pct: float | None = None
    power_limit_mw: int | None = None
    pstate: int | None = None
    reasons: int | None = None
    """Clock-event reasons (`Reason`), None when unknown."""
    throttle_ns: dict[str, Ns] = {}
    """Accumulated time under a limit: power, thermal, hw_thermal, brake."""
    others: list[Index] | None = None
    """Pids of other processes on the device, of many the largest; None when it cannot be known."""
    others_bytes: list[int | None] = []
    """Device memory of each of them, with the look that found a change; empty elsewhere."""
    others_more: int = 0
    """How many more there are."""
    uncorrected: Index | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""
    xids: list[Index] = []
    """The driver's error events (Xid) since the telemetry began, in order."""
    ages_ns: dict[str, Ns] = {}
    """Age at `at_ns` of the fields that are older than this look."""


class ClockHold(StrEnum):
    """What is known about the clocks."""

    FREE = "free"
    LOCKED = "locked"
    """Ours and verified under load."""
    PENDING = "locking"
    """Ours, not yet verified."""
    NOT_HELD = "not held"
    """Ours, but the device runs at another clock."""
    KEPT = "left locked"
    """Ours, and left in place on purpose when its run ended."""
    STUCK = "not given back"
    """Ours, and as far as is known still there: it could not be undone."""
    FOREIGN = "foreign lock?"
    UNKNOWN = "unknown"


class ClockState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a device's clock control."""

    hold: ClockHold = ClockHold.UNKNOWN
    locked_mhz: int | None = None
    mem_locked_mhz: int | None = None
    evidence: str = ""
    can_lock: bool = False
    reason: str = ""
    """Why it cannot be locked, and what it would take."""
    supported_mhz: list[Index] = []
    """Ascending."""
    level: str | None = None
    """AMD performance level, which can be read back."""
    concerns: list[str] = []
    """Whom a lock would disturb or what it would undo; it then takes the user's consent."""
    is_ignored: bool = False
    """The driver takes a lock and does nothing: the device ran faster than a lock allows."""
    replaces_other: bool = False
    """Somebody else's lock went for ours: the clocks can be set free, not given back."""
    is_unmet: bool = False
    """A lock was wished for and did not come about; the evidence says why."""
    free_mhz: float | None = None
    """Median clock under load before the lock; None where that is not known."""

    @property
    def cost(self) -> float | None:
        """Share of the free clock that a lock of ours gives up; None where it does not work."""
        works = self.hold in (ClockHold.LOCKED, ClockHold.PENDING) and not self.is_ignored
        if not works or self.locked_mhz is None or not self.free_mhz:
            return None
        return 1 - self.locked_mhz / self.free_mhz

    @property
    def is_ours(self) -> bool:
        """True while a lock of ours is meant to be in force."""
        return self.hold in (ClockHold.LOCKED, ClockHold.PENDING, ClockHold.NOT_HELD)

    @property
    def in_force_mhz(self) -> int | None:
        """The clock that a lock of ours holds the device to, as far as is known."""
        return self.locked_mhz if self.is_ours or self.hold is ClockHold.STUCK else None

    @property
    def is_held(self) -> bool | None:
        """Whether a lock of ours holds, by the readings under load; None: not known."""
        return {ClockHold.LOCKED: True, ClockHold.NOT_HELD: False}.get(self.hold)


class ClockUndo(msgspec.Struct, frozen=True, kw_only=True):
    """How to put a device's clocks back, as data: written to disk before the lock is set."""

    uuid: str
    kind: str
    """nvidia, amd or sim."""
    pci: str | None = None
    actions: list[list[str]] = []
    """Controller-specific steps, each a verb and its arguments."""


LOCKED_AT = "locked at "
"""So begins the label of the mark that a lock of ours sets."""
WITHDRAWN = "withdrawn"
"""In the evidence of a notice: what its code says does not hold any more."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something a user should know, as a code and its evidence; wording is made at the edge."""

    code: Code
    at_ns: Ns
    bench: Index | None = None
    level: str = "info"
    """info, warn or error."""
    evidence: dict[str, Any] = {}
    of_epoch: bool = False
    """Judged from the samples since the last mark: at the next one its badge goes."""

    @property
    def is_withdrawn(self) -> bool:
        """It takes back what was said before with the same code."""
        return bool(self.evidence.get(WITHDRAWN))


class StateWord(StrEnum):
    """A row's statistical state."""

    NONE = ""
    WARMING = "warming"
    DRIFTING = "drifting"
    STEADY = "steady"
    """Flat so far; not yet proven to last."""
    SETTLED = "settled"
    UNDECIDED = "undecided"
    THROTTLED = "throttled"


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The trend of a series over one window."""

    word: StateWord = StateWord.NONE
    change: float | None = None
    """Relative change between the outer thirds of the window (0.01 = +1 %)."""
    z: float | None = None
    detectable: float | None = None
    """Smallest relative change that this window could have shown."""
    window_s: float | None = None
    temp_change_c: float | None = None
    slope_per_s: float | None = None
    """Relative change per second (Theil-Sen)."""
    within: float | None = None
    """Half of the relative range in which the row's level has kept for …"""
    held_s: float | None = None
    """… the last so many seconds."""
    to_come: float | None = None
    """Of a settled row: relative change to be expected within the next five minutes, at most."""


class ClockEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a row's spread the clock explains."""

    status: str = "refused"
    """ok, ok-trend, confounded or refused."""
    reason: str = ""
    alpha: float | None = None
    """log t = c - alpha log f: 1 compute bound, 0 memory bound."""
    alpha_se: float | None = None
    clock_spread: float | None = None
    """Relative spread of the clock, p97.5 - p2.5."""
    lag_ns: int | None = None
    explained: float | None = None
    """Share of the variance that a lock would remove."""
    std_now: float | None = None
    """Relative standard deviation now."""
    std_locked: float | None = None
    """Predicted relative standard deviation after locking, at most."""
    std_locked_low: float | None = None
    """The same, at least."""


class Answer(StrEnum):
    """Is B faster than A?"""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    MOVING = "still moves"
    UNDECIDED = "not enough data"


PLACEMENT = 0.03
"""Differences up to this much have been seen between equal rows in other buffers."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A row against its baseline, paired within rounds: ratio of times, below 1 is faster."""

    answer: Answer = Answer.UNDECIDED
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    n_eff: float | None = None
    band: float = 0.005
    """Differences inside this relative band count as the same."""
    note: str = ""
    moves: bool = False
    """The ratio itself changes in the run, as where the rows follow the clock differently."""
    is_short: bool = False
    """So near to 1 it has not been watched for long enough: a slow mode or clock may fake it."""
    at_clock: "ClockRatio | None" = None
    """The ratio at one clock, where it changes with the clock."""
    allocations: int = 1
    """How often both rows have been built, each time with other buffers."""
    placement: float | None = None
    """Relative standard deviation between them, beyond noise; None with one allocation."""


class ClockRatio(msgspec.Struct, frozen=True, kw_only=True):
    """What a ratio is at one clock of the device: an estimate from how both rows followed it."""

    mhz: float
    ratio: float
    low: float
    high: float


class Verdict(StrEnum):
    """Should the clocks be locked?"""

    UNKNOWN = "unknown"
    STEADY = "steady"
    WAIT = "wait"
    LOCK = "lock"
    THROTTLED_POWER = "throttled: power"
    THROTTLED_THERMAL = "throttled: thermal"
    CANNOT_LOCK = "cannot lock"
    """The driver ignores locks, where one would help, or may."""
    NOT_CLOCK = "not the clock"
    HIDDEN = "slower than its clock"
    """The device has slowed and its reported clock has not moved."""


SLOW_SENSOR = "sensor-slow-power"
"""The reason of an advice whose clock sensor is too slow to tell what a lock would leave."""
_NOTHING, _MUCH = 0.8, 0.5
"""A lock that leaves more than the first of a std does next to nothing, less than the second much.
"""


def tells_gain(now: float | None, low: float | None, high: float | None) -> bool:
    """Whether a promise says anything: not that of 5.2 % one is left between 0.2 % and 5.1 %."""
    if not now or high is None:
        return False
    return high <= _NOTHING * now or (low is not None and low >= _MUCH * now)


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, its evidence in numbers, and what to do."""

    verdict: Verdict = Verdict.UNKNOWN
    lock_mhz: int | None = None
    std_now: float | None = None
    std_locked: float | None = None
    """Of the row that gains most: what it has left, at most …"""
    std_locked_low: float | None = None
    """… and at least."""
    evidence: dict[str, Any] = {}
    reason: str = ""
    """A code for the rule that decided."""
    power_coupled: bool = False
    since_ns: int | None = None

    @property
    def is_gain_known(self) -> bool:
        """False for a promise that holds whether a lock does much or nothing."""
        return self.reason != SLOW_SENSOR and tells_gain(
            self.std_now, self.std_locked_low, self.std_locked
        )


def is_usable(value: float | None) -> bool:
    """True for a finite number."""
    return value is not None and math.isfinite(value)

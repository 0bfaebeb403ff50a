"""What a front end may see: one frozen `Snapshot`, and read-only series for the charts.

The store makes them; the screen, the headless front end and the reports only read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import (
    Advice,
    ClockEffect,
    ClockState,
    DeviceInfo,
    Drift,
    Ratio,
    Reading,
    RowState,
    RunConfig,
    RunPhase,
    Skipped,
    StateWord,
    TimerInfo,
)
from usv_tui.session.launches import Versus
from usv_tui.stats.duet import LaunchRatio
from usv_tui.stats.rolling import Stats

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowView:
    """One row of the table."""

    bench: int
    name: str
    group: str = ""
    parent: int | None = None
    """The row that this one is a phase of."""
    control_of: int | None = None
    state: RowState = RowState.WAITING
    detail: str = ""
    """What the state is about: seconds of compiling, the error's last line …"""
    rolling: Stats = Stats()
    """The last `Snapshot.window` samples of the epoch."""
    whole: Stats = Stats()
    """All samples of the epoch that count."""
    n_all: int = 0
    """Every sample since the start, excluded ones too."""
    n_excluded: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Samples of the epoch that statistics leave out, by cause; stalls and starved ones are in the
    mean all the same."""
    stalls: int = 0
    trend: tuple[float, ...] = ()
    """Medians of equal time bins, oldest first, NaN where there was no sample; seconds."""
    word: StateWord = StateWord.NONE
    drift: Drift = Drift()
    effect: ClockEffect = ClockEffect()
    ratio: Ratio | None = None
    """Against the baseline of its group (or the one the user chose); None for the baseline."""
    is_baseline: bool = False
    baseline_name: str = ""
    ghost_s: float | None = None
    """Median of the row of this name in another session (`Snapshot.ghosts`): not paired."""
    flops: float | None = None
    bytes: float | None = None
    inner: int = 1
    cache: str = "warm"
    refill: int = 0
    """Untimed calls right before each window."""
    here_s: float | None = None
    """One call beside its neighbours when that was looked at, before measuring; and alone."""
    alone_s: float | None = None
    mode: str = "eager"
    badges: tuple[str, ...] = ()
    """Self-diagnosis in a word or two each: `CPU-bound`, `synchronises`, `2 modes` …"""
    energy_j: float | None = None
    """Joules per call."""
    energy_label: str = ""
    before_lock: float | None = None
    """Its std, in parts of the median, right before the lock that this epoch is measured under."""
    throttled: tuple[tuple[str, float], ...] = ()
    """Reason words with the share of samples taken under each."""
    version: int | None = None
    """Where two versions are compared: which one it is of."""
    plain_name: str = ""
    """Its name without that of the version."""
    rival: int | None = None
    """The same row of the version that this one is compared with; it has no line of its own."""
    is_beside: bool = False
    """It stands on the line of the same row of the later version."""
    base_rolling: Stats = Stats()
    """Of the rival: the last window, …"""
    base_whole: Stats = Stats()
    """… and all samples of the epoch."""
    versus: Versus | None = None
    """Against the rival, over launches."""
    launch_ratio: LaunchRatio | None = None
    """Against the rival, in the launch that runs."""
    error: str = ""
    error_kind: str = ""
    """The exception's class, or check, hang, oom, wrong result …"""
    traceback: str = ""


class DuetView(NamedTuple):
    """Two versions that are compared."""

    labels: tuple[str, str]
    what: tuple[str, str]
    launch: int
    """Which one runs, or ran last."""
    done: int
    """Launches that have ended."""
    rows: int
    """That both versions have."""
    handover_ns: int | None
    """Median cost of one handover in the last launch."""
    handover_share: float | None


class LogLine(NamedTuple):
    """One line of the event log."""

    at_ns: int
    kind: str
    """event, warn, error, out (the user's code) or mark."""
    text: str


class Told(NamedTuple):
    """What nobody may overlook: a warning, an error, a fault; once for each code and row."""

    code: str
    level: str
    """warn or error."""
    row: str
    """Name of the row that it is about; empty for the run."""
    at_ns: int
    """When it was told first."""
    times: int
    text: str
    """The latest wording, without the row's name."""
    evidence: Mapping[str, Any]


class EpochView(NamedTuple):
    """A stretch of the run between two marks."""

    number: int
    label: str
    from_ns: int
    to_ns: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a front end shows, at one moment. Plain data; an empty one is valid."""

    at_ns: int = 0
    start_ns: int = 0
    wall_unix_ns: int = 0
    """Calendar time of `start_ns`."""
    suite: str = ""
    config: RunConfig = field(default_factory=RunConfig)
    environment: dict[str, object] = field(default_factory=dict)
    simulated: str = ""
    timer: TimerInfo | None = None
    device: DeviceInfo | None = None
    reading: Reading | None = None
    """The latest one; None until the first."""
    telemetry_state: str = ""
    """`` when all is well, else why there is none or `stale 4.2 s`."""
    clocks: ClockState = field(default_factory=ClockState)
    clocks_during: ClockState = field(default_factory=ClockState)
    """The lock of ours that was in force while the current epoch was measured, also after it was
    given back; UNKNOWN when there was none."""
    phase: str = RunPhase.STARTING
    phase_detail: str = ""
    pace: str = "steady"
    elapsed_s: float = 0.0
    rounds: int = 0
    samples: int = 0
    samples_per_s: float = 0.0
    window: int = 1000
    """Size of the rolling window, in samples."""
    rows: tuple[RowView, ...] = ()
    baseline: int | None = None
    """The row every ratio refers to when the user chose one; None: each group's own."""
    duet: DuetView | None = None
    """Where two versions are compared: which, and how far that is."""
    ghosts: str = ""
    """The session that ghost values are from, and what of it differs."""
    advice: Advice = field(default_factory=Advice)
    untrusted: tuple[int, ...] = ()
    """Control rows that differ from the row they copy: then no ratio of this run can be trusted."""
    solo_low_mhz: dict[int, float] = field(default_factory=dict)
    """5th percentile of the clock while a row ran alone, as far as tried in this epoch."""
    log: tuple[LogLine, ...] = ()
    log_total: int = 0
    told: tuple[Told, ...] = ()
    """Everything of level warn or error, in the order in which it came."""
    not_told: int = 0
    """How many more there were than are kept."""
    neighbours: tuple[Mapping[str, Any], ...] = ()
    """Other processes that used the device: pid, name, user, memory_bytes, as far as known."""
    epochs: tuple[EpochView, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    progress: str = ""
    """How far a finite run is: `iters 120/500`, `ratio ±0.8 % -> ±0.5 %` …"""
    stop_reason: str = ""
    """Why the session ended; empty while it runs."""
    complete: bool = False
    banner: str = ""
    """What makes the numbers worthless or ended the run; shown first and in alarm."""

    @property
    def lines(self) -> tuple[RowView, ...]:
        """The rows that have a line of their own in a table."""
        return tuple(row for row in self.rows if not row.is_beside)

    def row(self, bench: int | None) -> RowView | None:
        """The row with this id."""
        return next((row for row in self.rows if row.bench == bench), None)


class Series(NamedTuple):
    """Samples of one row in a stretch of time, oldest first. Views: do not write."""

    t_ns: IntArray
    seconds: FloatArray
    """Per call; NaN where the window was zero or negative."""
    excluded: NDArray[np.bool_]
    """Warm-up, ramp and stalls, which the statistics leave out: drawn dim."""


class BinSeries(NamedTuple):
    """The same, reduced on arrival to equal bins, so that a chart's cost does not grow."""

    t_ns: IntArray
    """Start of each bin; bins without a sample are absent."""
    low_s: FloatArray
    high_s: FloatArray
    median_s: FloatArray
    n: IntArray
    """Samples in each bin."""
    width_ns: int

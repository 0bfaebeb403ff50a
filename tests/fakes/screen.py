"""A session for the screen: synthetic samples and sensors, and snapshots of any moment of it."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from usv_tui.gate import Gate
from usv_tui.model import (
    Advice,
    Answer,
    ClockEffect,
    ClockHold,
    ClockState,
    DeviceInfo,
    Drift,
    Ratio,
    Reading,
    Reason,
    RowState,
    RunConfig,
    SensorInfo,
    StateWord,
    TimerInfo,
    Verdict,
)
from usv_tui.session.faults import Faults
from usv_tui.session.shown import ShownSession
from usv_tui.session.snapshot import BinSeries, LogLine, RowView, Series, Snapshot
from usv_tui.stats.rolling import Stats

S = 1_000_000_000
START_NS = 1_000 * S
WALL_UNIX_NS = 1_700_000_000 * S
NAMES = (
    "matmul[n=512]",
    "matmul[n=1024]",
    "matmul[n=2048]",
    "softmax[4096]",
    "layernorm",
    "flash_attn[seq=2048,causal=True]",
)
MEDIANS_S = (12.5e-6, 35.6e-6, 199.8e-6, 47.8e-6, 21.5e-6, 385.1e-6)
BIN_NS = S // 10


@dataclass
class Track:
    """One row's samples."""

    t_ns: np.ndarray
    seconds: np.ndarray
    excluded: np.ndarray


@dataclass
class FakeStore:
    """What the screen asks, from arrays; `snapshot` is a given one, or made by `at`."""

    given: Snapshot = field(default_factory=Snapshot)
    tracks: dict[int, Track] = field(default_factory=dict)
    sensors: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    mark_list: list[tuple[int, str]] = field(default_factory=list)
    change_list: list[tuple[int, str]] = field(default_factory=list)
    gap_list: list[tuple[int, int, str]] = field(default_factory=list)
    limit_list: list[Any] = field(default_factory=list)
    is_moving: bool = False

    has_ended: bool = False
    archive: Any = None

    @property
    def curves(self):
        """It stands for these as well."""
        return self

    @property
    def course(self):
        """And for this."""
        return self

    def snapshot(self, now_ns):
        return self.at(now_ns) if self.is_moving else self.given

    def at(self, now_ns):
        """The session as of a moment, its statistics from the samples until then."""
        given = self.given
        rows = tuple(self._row(row, now_ns) for row in given.rows)
        elapsed = (now_ns - given.start_ns) / S
        rounds = max((r.n_all for r in rows), default=0)
        reading = given.reading
        if reading is not None:
            latest: dict[str, Any] = {}
            for name, (t, v) in self.sensors.items():
                index = int(np.searchsorted(t, now_ns)) - 1
                if index >= 0 and np.isfinite(v[index]):
                    latest[name] = int(v[index]) if name == "power_mw" else float(v[index])
            reading = Reading(
                device=reading.device, at_ns=now_ns, reasons=reading.reasons, **latest
            )
        return replace(
            given,
            at_ns=now_ns,
            elapsed_s=elapsed,
            rounds=rounds,
            samples=sum(r.n_all for r in rows),
            samples_per_s=sum(r.n_all for r in rows) / max(elapsed, 0.1),
            rows=rows,
            reading=reading,
        )

    def _row(self, row, now_ns):
        track = self.tracks.get(row.bench)
        if track is None:
            return row
        end = int(np.searchsorted(track.t_ns, now_ns))
        window = track.seconds[max(0, end - self.given.window) : end]
        window = window[np.isfinite(window)]
        trend = track.seconds[max(0, end - 480) : end]
        parts = [p for p in np.array_split(trend, 48) if len(p)]
        stats = stats_of(window)
        return replace(
            row,
            rolling=stats,
            whole=replace(stats, n=end),
            n_all=end,
            trend=tuple(float(np.median(p)) for p in parts),
        )

    def steps(self):
        """No clock sweep."""
        return []

    def series(self, bench, from_ns, to_ns, limit):
        track = self.tracks.get(bench)
        if track is None:
            return Series(np.empty(0, np.int64), np.empty(0), np.empty(0, bool))
        a, b = np.searchsorted(track.t_ns, (from_ns, to_ns))
        step = max(1, -(-(int(b) - int(a)) // limit))
        return Series(track.t_ns[a:b:step], track.seconds[a:b:step], track.excluded[a:b:step])

    def bins(self, bench, from_ns, to_ns):
        track = self.tracks.get(bench)
        empty = np.empty(0)
        none = np.empty(0, np.int64)
        if track is None or not len(track.t_ns):
            return BinSeries(none, empty, empty, empty, none, BIN_NS)
        a, b = np.searchsorted(track.t_ns, (from_ns, to_ns))
        t, v = track.t_ns[a:b], track.seconds[a:b]
        fine = np.isfinite(v)
        t, v = t[fine], v[fine]
        if not len(t):
            return BinSeries(none, empty, empty, empty, none, BIN_NS)
        ids = t // BIN_NS
        starts = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1))
        n = np.diff(np.concatenate((starts, [len(t)])))
        medians = v[starts + n // 2]
        return BinSeries(
            ids[starts] * BIN_NS,
            np.minimum.reduceat(v, starts),
            np.maximum.reduceat(v, starts),
            medians,
            n,
            BIN_NS,
        )

    def telemetry(self, name, from_ns, to_ns):
        t, v = self.sensors.get(name, (np.empty(0, np.int64), np.empty(0)))
        a, b = np.searchsorted(t, (from_ns, to_ns))
        return t[a:b], v[a:b]

    def marks(self, from_ns, to_ns):
        return [m for m in self.mark_list if from_ns <= m[0] < to_ns]

    def changes(self, bench, from_ns, to_ns):
        """Level changes of a row."""
        return [c for c in self.change_list if from_ns <= c[0] < to_ns]

    def limits(self, from_ns, to_ns):
        """What held the numbers back."""
        return [s for s in self.limit_list if s.from_ns < to_ns and s.to_ns > from_ns]

    def gaps(self, from_ns, to_ns):
        return [g for g in self.gap_list if g[0] < to_ns and g[1] > from_ns]


class FakeController(ShownSession):
    """Notes what the screen asked for."""

    def __init__(self, store=None):
        self.store: Any = store or FakeStore()
        self.gate = Gate()
        self.calls = []
        self.pumps = 0
        self.is_paused = False
        self.telemetry_on = True
        self.is_lost = False
        self.desk = None
        self.told: list[Any] = []
        self.faults = Faults(lambda *words: self.told.append(words))

    def pump(self):
        self.pumps += 1
        return True

    def command(self, command):
        self.calls.append(command)

    def toggle_pause(self):
        self.is_paused = not self.is_paused
        self.calls.append("pause" if self.is_paused else "resume")
        return self.is_paused

    def toggle_telemetry(self):
        self.telemetry_on = not self.telemetry_on
        self.calls.append("telemetry")
        return self.telemetry_on

    @property
    def can_renew(self):
        return self.is_lost

    def renew(self):
        self.calls.append("renew")
        return "" if self.is_lost else "no row was lost"

    def set_baseline(self, bench):
        self.calls.append(("baseline", bench))
        self.store.given = replace(self.store.given, baseline=bench)

    def show_ghosts(self, ghosts):
        self.calls.append(ghosts)

    def set_window(self, samples):
        self.calls.append(("window", samples))
        self.store.given = replace(self.store.given, window=samples)

    def mark(self, label):
        self.calls.append(("mark", label))


def stats_of(values):
    """Statistics of an array."""
    n = len(values)
    if n == 0:
        return Stats()
    p05, p50, p95, p99 = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95, 0.99)))
    return Stats(
        n=n,
        median_s=p50,
        mean_s=float(values.mean()),
        std_s=float(values.std(ddof=1)) if n > 2 else None,
        madn_s=float(np.median(np.abs(values - p50)) * 1.4826),
        min_s=float(values.min()),
        max_s=float(values.max()),
        p05_s=p05,
        p95_s=p95,
        p99_s=p99,
        severe=3,
    )


def device(**sensors):
    """A GPU whose sensors are all there, but for those given a reason."""
    infos = {
        "sm_mhz": SensorInfo(source="nvml clock", unit="MHz"),
        "temp_c": SensorInfo(source="nvml temperature", unit="C"),
        "power_mw": SensorInfo(source="nvml field 186", unit="mW"),
    }
    infos.update({k: SensorInfo(reason=v) for k, v in sensors.items()})
    return DeviceInfo(
        uuid="GPU-1234",
        name="H200",
        kind="nvidia",
        driver="570.86",
        base_sm_mhz=1500,
        max_sm_mhz=1980,
        supported_sm_mhz=list(range(345, 1996, 15)),
        sensors=infos,
    )


def tracks(seconds=120.0, rate_hz=10.0, names=NAMES, medians=MEDIANS_S, seed=0):
    """Rows that follow a falling clock, with stragglers; the first 4 s are warm-up."""
    rng = np.random.default_rng(seed)
    n = int(seconds * rate_hz)
    out = {}
    for bench in range(len(names)):
        t_ns = START_NS + np.arange(n) * int(S / rate_hz) + bench * 1_000_000
        age = np.arange(n) / rate_hz
        level = 1 + 0.02 * (1 - np.exp(-age / 20)) + 0.05 * np.exp(-age / 1.5)
        noise = 1 + 0.004 * rng.standard_normal(n)
        noise += 0.06 * rng.random(n) * (rng.random(n) > 0.985)
        out[bench] = Track(t_ns, medians[bench % len(medians)] * level * noise, age < 4)
    return out


def sensors(seconds=120.0, rate_hz=10.0, seed=1):
    """Clock, temperature and power of a card that warms up."""
    rng = np.random.default_rng(seed)
    n = int(seconds * rate_hz)
    t_ns = START_NS + np.arange(n) * int(S / rate_hz)
    age = np.arange(n) / rate_hz
    warm = 1 - np.exp(-age / 25)
    clock = np.round((1980 - 45 * warm + 8 * rng.standard_normal(n)) / 15) * 15
    temp = np.round(44 + 18 * warm + 0.3 * rng.standard_normal(n))
    power = 545_000 + 9_000 * rng.standard_normal(n)
    return {
        "sm_mhz": (t_ns, clock),
        "temp_c": (t_ns, temp),
        "power_mw": (t_ns, np.round(power)),
    }


def ratio(value, half=0.004, answer=Answer.FASTER):
    """A ratio with its interval."""
    return Ratio(
        answer=answer, ratio=value, low=value - half, high=value + half, n=1200, n_eff=400.0
    )


LOG = (
    LogLine(START_NS, "event", "priming 6 rows"),
    LogLine(START_NS + 2 * S, "out", "compiling with max-autotune [this is not markup]"),
    LogLine(START_NS + 4 * S, "event", "warm-up done: 250 calls, 1.2 s"),
    LogLine(START_NS + 20 * S, "warn", "layernorm: CPU-bound, host 31 us of 21 us"),
    LogLine(START_NS + 60 * S, "mark", "mark 1"),
)
ANSWERS = (
    None,
    ratio(0.972),
    ratio(1.043, answer=Answer.SLOWER),
    ratio(1.001, answer=Answer.SAME),
    ratio(1.002, 0.02, Answer.UNDECIDED),
    ratio(0.511, 0.001),
)
LOCK_ADVICE = Advice(
    verdict=Verdict.LOCK,
    lock_mhz=1890,
    std_now=0.0065,
    std_locked=0.004,
    reason="clock-moves",
    evidence={
        "window_s": 20.0,
        "rounds": 400,
        "readings": 200,
        "clock_spread": 0.023,
        "clock_gate": 0.011,
        "clock_median_mhz": 1935.0,
        "power_share": 0.12,
        "thermal_share": 0.0,
        "temp_change_c": 0.4,
        "step_mhz": 15,
        "lock_from": "mixture",
        "clock_cost": 0.023,
        "rows": [{"bench": 2, "alpha": 0.94, "gain": 0.4, "causes": []}],
    },
)


def rows(names=NAMES, word=StateWord.STEADY, state=RowState.RUNNING):
    """Rows without figures yet; `FakeStore.at` fills them."""
    return tuple(
        RowView(
            bench=bench,
            name=name,
            state=state,
            word=word,
            flops=2e9 * (bench + 1),
            bytes=1e6 * (bench + 1),
            ratio=ANSWERS[bench % len(ANSWERS)],
            is_baseline=bench == 0,
            baseline_name="" if bench == 0 else names[0],
            effect=ClockEffect(
                status="ok",
                alpha=0.94,
                alpha_se=0.03,
                clock_spread=0.023,
                explained=0.64,
                std_now=0.0065,
                std_locked=0.004,
            ),
            drift=Drift(word=word, change=0.002, z=1.0, detectable=0.004, window_s=20.0),
        )
        for bench, name in enumerate(names)
    )


def snapshot(**changes):
    """A run in full swing; `changes` replace fields."""
    made = Snapshot(
        at_ns=START_NS + 120 * S,
        start_ns=START_NS,
        wall_unix_ns=WALL_UNIX_NS,
        suite="benchmarks/attn.py",
        config=RunConfig(device="cuda:0", device_reason="torch has CUDA"),
        timer=TimerInfo(name="event", reason="CUDA events", resolution_ns=500, floor_ns=1800),
        device=device(),
        reading=Reading(
            device="GPU-1234",
            at_ns=START_NS,
            sm_mhz=1935.0,
            temp_c=62.0,
            power_mw=551_000,
            reasons=int(Reason.SW_POWER_CAP),
        ),
        clocks=ClockState(
            hold=ClockHold.FREE, can_lock=True, supported_mhz=list(range(345, 1996, 15))
        ),
        phase="measuring",
        rows=rows(),
        advice=LOCK_ADVICE,
        log=LOG,
        log_total=len(LOG),
    )
    return replace(made, **changes)


def session(
    seconds=120.0, rate_hz=10.0, names=NAMES, has_sensors=True, medians=MEDIANS_S, **changes
):
    """A controller over a whole synthetic session, looked at at its end."""
    changes.setdefault("rows", rows(names))
    store = FakeStore(
        given=snapshot(**changes),
        tracks=tracks(seconds, rate_hz, names, medians),
        sensors=sensors(seconds) if has_sensors else {},
        mark_list=[(START_NS + int(seconds / 2) * S, "mark 1")],
    )
    store.given = replace(store.at(START_NS + int(seconds * S)), **_kept(changes))
    return FakeController(store)


def _kept(changes):
    """What was asked for explicitly stays as it was asked for."""
    return {k: v for k, v in changes.items() if k in ("rounds", "samples", "reading", "elapsed_s")}

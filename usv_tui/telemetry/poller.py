"""The one thread that owns a telemetry source: when to read what, and what to do when it fails.

A driver call may be slow, may hang for ever, and takes the interpreter's lock for its Python part.
So all calls are made from one raw daemon thread (it cannot keep the process alive), on absolute
deadlines, behind the gate, at most a tenth of the time; the screen asks `state()` and never waits.
"""

import random
import statistics
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec

from usv_tui.codes import Code
from usv_tui.errors import DeviceLost, SensorGap, TelemetryError, TelemetryOff
from usv_tui.gate import Gate
from usv_tui.model import DeviceInfo, Notice, Reading
from usv_tui.records import Device, Noted, Telemetry
from usv_tui.seams import TelemetrySource, Tier
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource
from usv_tui.vendor.processes import Others, describe

MS = 1_000_000

SLOWER_TIERS = ((Tier.REASONS, 300 * MS), (Tier.SLOW, NS_PER_S), (Tier.RARE, 10 * NS_PER_S))
"""The tiers that ride on a fast tick, with their periods."""
REOPEN_NS = 30 * NS_PER_S
"""After a loss the source is opened again this often."""
LOST_AFTER_NS = 10 * NS_PER_S
"""Gaps for so long are a loss."""
FIRST_GAP_NS, LAST_GAP_NS = 200 * MS, 5 * NS_PER_S
DUTY = 0.1
"""The largest share of time that calls may take."""
JITTER = 0.1
"""Deadlines move by this share of a period, so as not to beat with a sensor's own period."""
PATIENCE_NS = 250 * MS
"""How long to ask for the gate before reading without it."""
STALLED_NS = 1500 * MS
"""A call that takes longer is called stalled."""
LEARN_PERIOD_NS = 20 * MS
COSTS_KEPT = 512
_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68})
"""Xids that a faulty program causes; the device is none the worse."""
_GONE = 2
"""So many looks without a value, a second apart, and a sensor is lost."""
OFF_WAIT_NS = 3600 * NS_PER_S

PollerRecord = Device | Telemetry | Noted
T = TypeVar("T")


class Cost(NamedTuple):
    """How long one look of some tiers took, nanoseconds."""

    looks: int
    p50_ns: int
    p99_ns: int
    max_ns: int


class _Phase(Enum):
    CLOSED = "closed"
    ON = "on"
    LOST = "lost"
    OFF = "off"
    GONE = "gone"


class Poller:
    """Reads one source and emits `Device`, `Telemetry` and `Noted` records.

    `start` runs it in its own thread; tests call `tick` instead. `emit` is called from that thread
    and must be as cheap and as safe as `deque.append`.
    """

    def __init__(
        self,
        source: TelemetrySource,
        emit: Callable[[PollerRecord], object],
        time_source: TimeSource | None = None,
        gate: Gate | None = None,
        rate_hz: float = 10.0,
        *,
        learn_s: float = 1.5,
    ) -> None:
        """Get ready; nothing is opened yet.

        Args:
            source: what to read; all its methods are called from the poller's thread.
            emit: takes the records.
            time_source: the session's clock.
            gate: asked before every look; looks that do not get it read the fast tier only.
            rate_hz: looks a second (the fast tier).
            learn_s: for how long after opening the refresh periods are learned from looks 20 ms
                apart; only while nothing is measured.
        """
        self.dropped_looks = 0
        """Fast ticks skipped because calls were slow or the machine slept."""
        self._source = source
        self._emit = emit
        self._time = time_source or MonotonicTime()
        self._gate = gate
        self._period_ns = round(NS_PER_S / rate_hz)
        self._learn_ns = round(learn_s * NS_PER_S)
        self._random = random.Random(0)
        self._phase = _Phase.CLOSED
        self._reason = ""
        self._paused = False
        self._quiet = False
        self._stopping = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._info: DeviceInfo | None = None
        self._call: tuple[str, int] | None = None
        self._costs: dict[Tier, deque[int]] = {}
        self._origin_ns = 0
        self._next_ns = 0
        self._wait_ns = self._period_ns
        self._due: dict[Tier, int] = {}
        self._learn_until_ns = 0
        self._last_good_ns: int | None = None
        self._last_emit_ns: int | None = None
        self._lost_ns = 0
        self._is_lost = False
        """Between the notice of a loss and the first values after it."""
        self._is_gone_told = False
        self._gaps = 0
        self._gap_ns = 0
        self._looks = 0
        self._others: list[int] = []
        self._uncorrected: int | None = None
        self._xids = 0
        self._doubts_told: set[tuple[str, str]] = set()
        self._missing: dict[str, int] = {}
        """Looks without a value since the last with one, of sensors that ever had one."""

    # --- the owner's side: any thread, never blocks

    def start(self) -> None:
        """Start the thread; it opens the source, reads until stopped, and closes it."""
        self._thread = threading.Thread(target=self._run, name="usv-telemetry", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 0.3) -> bool:
        """Ask the thread to close the source and end; True when it did within the timeout.

        A thread that hangs in a driver call is left behind: it is a daemon.
        """
        self._stopping = True
        self._wake.set()
        if self._thread is None:
            self._source.close()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Make no calls until `resume`: shows whether telemetry disturbs, lets a GPU sleep."""
        self._paused = True

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        self._wake.set()

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._paused

    def quiet(self, is_quiet: bool) -> None:
        """A block is being timed without a gate: read the fast tier only."""
        self._quiet = is_quiet

    def state(self) -> str:
        """Empty when all is well.

        Else `opening`, `stalled 4.2 s`, `stale 4.2 s`, `paused`, or the reason why there is none.
        """
        now_ns = self._time.now_ns()
        call = self._call
        if call is not None and now_ns - call[1] > STALLED_NS:
            return f"stalled {(now_ns - call[1]) / NS_PER_S:.1f} s"
        if self._paused:
            return "paused"
        if self._phase is not _Phase.ON:
            return self._reason or "opening"
        if self._last_good_ns is None:
            return self._reason
        age_ns = now_ns - self._last_good_ns
        if age_ns > max(NS_PER_S, 3 * self._wait_ns):
            return f"stale {age_ns / NS_PER_S:.1f} s"
        return ""

    @property
    def is_gone(self) -> bool:
        """True while the device is lost: the run's numbers must say so."""
        return self._phase is _Phase.GONE

    def costs(self) -> dict[str, Cost]:
        """What the looks cost so far, by the tiers that they read."""
        result = {}
        for tiers, costs in list(self._costs.items()):
            ordered = sorted(costs)
            if ordered:
                p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
                name = "+".join(t.name or "" for t in Tier if t in tiers and t is not Tier.ALL)
                median = round(statistics.median(ordered))
                result[name.lower()] = Cost(len(ordered), median, p99, ordered[-1])
        return result

    # --- the poller's side: one thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                wait_ns = self.tick()
                if self._time.wait(self._wake, wait_ns):
                    self._wake.clear()
        except BaseException as error:  # noqa: BLE001  even a SystemExit from a vendor library
            self._switch_off(f"telemetry ended: {_why(error)}")
        finally:
            self._source.close()

    def tick(self) -> int:
        """Do what is due now; returns the nanoseconds until the next deadline."""
        now_ns = self._time.now_ns()
        if self._phase is _Phase.OFF:
            return OFF_WAIT_NS
        if self._paused:
            return self._period_ns
        if now_ns >= self._next_ns:
            if self._phase is _Phase.ON:
                self._look(now_ns)
            else:
                self._open(now_ns)
        return max(0, self._next_ns - self._time.now_ns())

    def _open(self, now_ns: int) -> None:
        try:
            with self._turn():
                info = self._timed("open", self._source.open)
        except Exception as error:  # noqa: BLE001  a vendor library may raise anything
            if self._phase is _Phase.GONE:
                # Told already. A device that was reset comes back, so the door stays open.
                self._next_ns = self._time.now_ns() + REOPEN_NS
            elif isinstance(error, TelemetryOff):
                self._switch_off(str(error))
            elif isinstance(error, DeviceLost):
                self._lose_device(str(error))
            else:
                self._lose(_why(error), now_ns)
        else:
            self._phase = _Phase.ON
            self._reason = ""
            self._start_schedule()
            self._emit_info(info)

    def _start_schedule(self) -> None:
        now_ns = self._time.now_ns()
        self._origin_ns = self._next_ns = now_ns
        self._due = {tier: now_ns for tier, _ in SLOWER_TIERS}
        self._learn_until_ns = now_ns + self._learn_ns
        self._gaps = self._looks = 0
        self._last_good_ns = None
        self._costs.clear()

    def _turn(self) -> AbstractContextManager[bool]:
        """Our turn to run: True when nothing is being timed meanwhile."""
        if self._gate is None:
            return nullcontext(not self._quiet)
        return self._gate.hold(PATIENCE_NS)

    def _timed(self, what: str, call: Callable[[], T]) -> T:
        """Make a call that may hang: `state()` can see since when."""
        start_ns = self._time.now_ns()
        self._call = (what, start_ns)
        try:
            return call()
        finally:
            self._call = None
            took_ns = self._time.now_ns() - start_ns
            if took_ns > STALLED_NS:
                seconds = round(took_ns / NS_PER_S, 1)
                self._note(Code.TELEMETRY_STALLED, "warn", during=what, seconds=seconds)

    def _look(self, now_ns: int) -> None:
        tiers = Tier.FAST
        for tier, _ in SLOWER_TIERS:
            if now_ns + self._period_ns // 2 >= self._due[tier]:
                tiers |= tier
        info: DeviceInfo | None = None
        reading: Reading | None = None
        try:
            with self._turn() as is_ours:
                # Without the turn a window may be open: only what is cheap and needed.
                tiers = tiers if is_ours else Tier.FAST
                start_ns = self._time.now_ns()
                reading = self._timed("read", lambda: self._source.read(tiers))
                end_ns = self._time.now_ns()
                if self._is_learnt(end_ns) or tiers & Tier.SLOW:
                    info = self._source.info()
        except DeviceLost as error:
            self._lose_device(str(error))
            return
        except SensorGap as error:
            self._miss(str(error))
            return
        except TelemetryOff as error:
            self._switch_off(str(error))
            return
        except Exception as error:  # noqa: BLE001  a vendor library may raise anything
            self._lose(_why(error), now_ns)
            return
        if self._is_lost and _has_values(reading):
            self._is_lost = self._is_gone_told = False
            gone_s = round((end_ns - self._lost_ns) / NS_PER_S, 1)
            self._note(Code.TELEMETRY_RECOVERED, "info", after_s=gone_s)
        self._gaps = 0
        self._reason = ""
        self._last_good_ns = end_ns
        self._emit_reading(reading, tiers)
        if info is not None:
            self._emit_info(info)
        self._plan(now_ns, end_ns, tiers, end_ns - start_ns)

    def _is_learnt(self, now_ns: int) -> bool:
        """True once, when the time for learning the refresh periods is over."""
        is_over = 0 < self._learn_until_ns <= now_ns
        if is_over:
            self._learn_until_ns = 0
        return is_over

    def _is_learning(self) -> bool:
        if not self._learn_until_ns or self._quiet:
            return False
        return self._gate is None or not self._gate.is_manned

    def _plan(self, now_ns: int, end_ns: int, tiers: Tier, cost_ns: int) -> None:
        """Set the next deadline: on the grid, with jitter, and not too soon after a dear look."""
        self.dropped_looks += max(0, now_ns - self._next_ns) // self._period_ns
        for tier, tier_ns in SLOWER_TIERS:
            if tiers & tier:
                self._due[tier] = self._after(now_ns, tier_ns)
        period_ns = LEARN_PERIOD_NS if self._is_learning() else self._period_ns
        grid_ns = self._after(now_ns, period_ns)
        jitter_ns = round(self._random.uniform(-JITTER, JITTER) * period_ns)
        self._looks += 1
        rest_ns = self._rest_ns(tiers, cost_ns)
        planned_ns = max(grid_ns + jitter_ns, end_ns + rest_ns)
        self.dropped_looks += max(0, (planned_ns - grid_ns) // self._period_ns)
        self._wait_ns = max(period_ns, rest_ns)
        self._next_ns = planned_ns

    def _after(self, now_ns: int, period_ns: int) -> int:
        """The grid point after the one that is nearest to now; missed ones are skipped."""
        passed = (now_ns - self._origin_ns + period_ns // 2) // period_ns
        return self._origin_ns + (passed + 1) * period_ns

    def _rest_ns(self, tiers: Tier, cost_ns: int) -> int:
        """How long to leave the driver alone, so that calls take at most a tenth of the time.

        The median of the last five looks of the same kind decides: one slow look is no reason to
        go blind. The very first look pays for waking things up and does not count.
        """
        costs = self._costs.setdefault(tiers, deque(maxlen=COSTS_KEPT))
        if self._looks > 1:
            costs.append(cost_ns)
        recent = list(costs)[-5:]
        return round(statistics.median(recent) * (1 / DUTY - 1)) if recent else 0

    def _miss(self, reason: str) -> None:
        """Nothing this time: say so once with an empty reading, and ask later and later."""
        now_ns = self._time.now_ns()
        self._reason = reason
        if not self._gaps:
            self._emit_gap(now_ns)
            self._gap_ns = now_ns
        self._gaps += 1
        if now_ns - self._gap_ns > LOST_AFTER_NS:
            self._lose(reason, now_ns)
            return
        self._next_ns = now_ns + min(FIRST_GAP_NS << min(self._gaps - 1, 8), LAST_GAP_NS)

    def _lose(self, reason: str, now_ns: int) -> None:
        """The source failed as a whole: close it and open it again every 30 s."""
        if not self._is_lost:
            self._is_lost = True
            self._lost_ns = self._gap_ns if self._gaps else now_ns
            self._emit_gap(self._time.now_ns())
            self._note(Code.TELEMETRY_LOST, "warn", reason=reason, retry_s=REOPEN_NS // NS_PER_S)
        self._phase = _Phase.LOST
        self._reason = f"lost: {reason}"
        self._source.close()
        self._next_ns = self._time.now_ns() + REOPEN_NS

    def _lose_device(self, reason: str) -> None:
        """The device is gone: say so once, and see every 30 s whether it is back."""
        now_ns = self._time.now_ns()
        self._phase = _Phase.GONE
        self._reason = reason
        self._emit_gap(now_ns)
        if not self._is_gone_told:
            self._lost_ns = self._lost_ns if self._is_lost else now_ns
            self._is_lost = self._is_gone_told = True
            self._note(Code.DEVICE_LOST, "error", reason=reason)
        self._source.close()
        self._next_ns = self._time.now_ns() + REOPEN_NS

    def _switch_off(self, reason: str) -> None:
        self._phase = _Phase.OFF
        self._reason = reason
        self._emit_gap(self._time.now_ns())
        self._note(Code.TELEMETRY_OFF, "warn", reason=reason)
        self._source.close()

    def _emit_reading(self, reading: Reading, tiers: Tier) -> None:
        """Pass a reading on; the quick looks of the learning phase are thinned out."""
        is_early = (
            tiers == Tier.FAST
            and self._last_emit_ns is not None
            and reading.at_ns - self._last_emit_ns < self._period_ns * 3 // 4
        )
        others = Others(reading.others or [], reading.others_bytes)
        few, more = others.largest()
        is_news = others.pids != self._others
        if reading.others:
            sizes = few.used_bytes if is_news else []
            changes = {"others": few.pids, "others_bytes": sizes, "others_more": more}
            reading = msgspec.structs.replace(reading, **changes)
        if not is_early:
            self._last_emit_ns = reading.at_ns
            self._emit(Telemetry(reading))
        self._tell_errors(reading)
        if is_news:
            self._others = others.pids
            self._tell_others(few, more)

    def _tell_others(self, few: Others, more: int) -> None:
        if not few.pids:
            self._note(Code.NO_LONGER_SHARED, "info")
            return
        with self._turn():
            is_real = self._info is None or not self._info.simulated
            told = zip(few.pids, few.used_bytes, strict=True)
            processes = [describe(*row) if is_real else {"pid": row[0]} for row in told]
        self._note(Code.SHARED_DEVICE, "warn", processes=processes, more=more)

    def _tell_errors(self, reading: Reading) -> None:
        """Memory errors and driver errors that came since the last look; old ones are no news."""
        before, now = self._uncorrected, reading.uncorrected
        if now is not None:
            self._uncorrected = now
            if before is not None and now > before:
                self._note(Code.MEMORY_ERRORS, "error", errors=now - before)
        for xid in reading.xids[self._xids :]:
            level = "warn" if xid in _APPLICATION_XIDS else "error"
            self._note(Code.DRIVER_ERROR, level, xid=xid)
        self._xids = max(self._xids, len(reading.xids))

    def _emit_gap(self, now_ns: int) -> None:
        """An empty reading, so that a chart shows a gap instead of a line across it."""
        if self._info is not None:
            self._emit(Telemetry(Reading(device=self._info.uuid, at_ns=now_ns)))

    def _emit_info(self, info: DeviceInfo) -> None:
        """Pass the device on when something other than a cost has changed."""
        self._tell_doubts(info)
        self._tell_losses(info)
        if self._info is None or _essence(info) != _essence(self._info):
            self._info = info
            self._emit(Device(self._time.now_ns(), info))

    def _tell_losses(self, info: DeviceInfo) -> None:
        """Say which sensors gave values and have none for two looks, and which came back."""
        lost: dict[str, list[str]] = {}
        back = []
        for name, sensor in info.sensors.items():
            if sensor.refused:
                continue  # told as that
            if not sensor.reason:
                if self._missing.get(name, 0) >= _GONE:
                    back.append(name)
                self._missing[name] = 0
            elif name in self._missing:
                self._missing[name] += 1
                if self._missing[name] == _GONE:
                    lost.setdefault(sensor.reason, []).append(name)
        for reason, names in lost.items():
            self._note(Code.SENSORS_LOST, "warn", sensors=names, reason=reason)
        if back:
            self._note(Code.SENSORS_BACK, "info", sensors=back)

    def _tell_doubts(self, info: DeviceInfo) -> None:
        """Say once of each sensor that it gives values that cannot be true, or stands still."""
        for name, sensor in info.sensors.items():
            if sensor.refused and (name, "refused") not in self._doubts_told:
                self._doubts_told.add((name, "refused"))
                self._note(Code.SENSOR_REFUSED, "warn", sensor=name, reason=sensor.refusal)
            if sensor.doubt and (name, "doubt") not in self._doubts_told:
                self._doubts_told.add((name, "doubt"))
                self._note(Code.SENSOR_DOUBTED, "warn", sensor=name, reason=sensor.doubt)

    def _note(self, code: Code, level: str, **evidence: object) -> None:
        notice = Notice(code=code, at_ns=self._time.now_ns(), level=level, evidence=evidence)
        self._emit(Noted(notice))


def _essence(info: DeviceInfo) -> object:
    """What of a device is worth a record when it changes: not the figures that wobble."""
    sensors = {
        name: (
            sensor.source,
            sensor.label,
            # What was refused has figures in its reason that change with every look.
            bool(sensor.reason) if sensor.refused else sensor.reason,
            sensor.refresh_ns is None,
            sensor.doubt,
        )
        for name, sensor in info.sensors.items()
    }
    return info.uuid, info.name, info.driver, info.power_limit_mw, info.note, sensors


def _has_values(reading: Reading) -> bool:
    """True when the device itself was read, not only some statistic."""
    values = (reading.sm_mhz, reading.power_mw, reading.temp_c, reading.energy_mj)
    return any(value is not None for value in values)


def _why(error: BaseException) -> str:
    """One line about any exception."""
    if isinstance(error, TelemetryError):
        return str(error)
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

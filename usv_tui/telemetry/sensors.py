"""The sensors of one device: last values and their times, availability, cost and refresh period.

Every backend answers the same questions for every quantity (is it offered, did it fail just now,
how old is it, how often does it change, what does one call cost), so that bookkeeping lives here.
A quantity is in one of three states: it has a value, it is not offered (never asked again), or it
is missing for the moment (asked again, later and later).
"""

import statistics
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from usv_tui.model import DeviceInfo, Reading, Reason, SensorInfo
from usv_tui.telemetry.plausible import Judge
from usv_tui.vendor.processes import Others

MS = 1_000_000
S = 1_000_000_000

FIRST_BACK_OFF_NS = 200 * MS
LAST_BACK_OFF_NS = 5 * S
FAILING_AFTER = 5
"""Unexplained failures in a row after which a quantity counts as failing."""
FAILING_RETRY_NS = 10 * S
MEMORY = 64
"""How many calls and changes the cost and the refresh period are learned from."""

ENOUGH_STEPS = 5
LOOKS_STAMPED, LOOKS_UNSTAMPED = 1.5, 2.5
"""Looks between two changes from which a refresh period can be learned: the device's own stamps
are exact, times of looks are off by up to one look."""

STUCK_NS = 10 * S
"""Power that does not change by a milliwatt for so long, while the device works."""
STUCK_TEMPERATURE_NS = 60 * S
MOVED = 2.0
"""Power has moved by this factor while the temperature stood still."""
BUSY_PCT = 50.0

NOT_READ = "not read yet"

CLOCK_EVENT_WITNESSES = Reason.HW_THERMAL | Reason.HW_POWER_BRAKE


def confirmed_reasons(previous: int | None, current: int | None) -> int:
    """The clock-event reasons that may be called throttling, of two successive masks.

    A hardware slowdown may blink while the performance state changes: it counts only when seen
    twice in a row, or together with the thermal or power-brake bit that explains it.
    """
    if current is None:
        return 0
    is_witnessed = bool(current & CLOCK_EVENT_WITNESSES) or bool(
        (previous or 0) & Reason.HW_SLOWDOWN
    )
    return current if is_witnessed else current & ~int(Reason.HW_SLOWDOWN)


class MonotonicCounter:
    """A counter that never goes backwards: wraps are added up, resets restart the difference."""

    def __init__(self, modulus: int | None = None, *, from_zero: bool = False) -> None:
        """Count from the first raw value, or from zero.

        Args:
            modulus: where the raw counter wraps to 0; None when it is too wide to wrap, so that a
                decrease means that it was reset.
            from_zero: count what was added since the first raw value only.
        """
        self.resets = 0
        self._modulus = modulus
        self._from_zero = from_zero
        self._last: int | None = None
        self._total = 0

    def start_over(self, raw: int) -> None:
        """Count on from this raw value: what lies before it was no counting."""
        self._last = raw

    def feed(self, raw: int) -> int:
        """The total so far, after this raw value.

        A wrap can be told from a reset only by size: a counter that fell by less than half of its
        range has not wrapped.
        """
        if self._last is None:
            self._total = 0 if self._from_zero else raw
        elif raw >= self._last:
            self._total += raw - self._last
        elif self._modulus is not None and self._last - raw > self._modulus // 2:
            self._total += raw + self._modulus - self._last
        else:
            self.resets += 1
        self._last = raw
        return self._total


class _Sensor:
    """What is known of one quantity."""

    __slots__ = (
        "at_ns", "changed_ns", "costs", "doubt", "failures", "field", "info", "is_final", "last",
        "look", "looks_since", "new_ns", "part", "reason", "refresh_ns", "refusal", "refused",
        "retry_ns", "stamp_ns", "steps", "value",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.field, _, self.part = name.partition(".")
        self.info = SensorInfo()
        self.value: Any = None
        self.last: Any = None
        """The last value seen, even if it was given up since."""
        self.at_ns = 0
        self.stamp_ns: int | None = None
        self.changed_ns: int | None = None
        """When the value last changed, on the device's clock where it stamps its values."""
        self.new_ns: int | None = None
        """The same on the session's clock."""
        self.reason: str | None = NOT_READ
        self.is_final = False
        self.failures = 0
        self.retry_ns = 0
        self.look = 0
        self.looks_since = 0
        self.refresh_ns: int | None = None
        self.steps: deque[tuple[int, int]] = deque(maxlen=MEMORY)
        self.costs: deque[int] = deque(maxlen=MEMORY)
        self.refused, self.refusal, self.doubt = 0, "", ""

    def note_change(self, when_ns: int) -> None:
        """The value is a new one, first seen (or stamped by the device) at `when_ns`."""
        if self.changed_ns is not None:
            self.steps.append((when_ns - self.changed_ns, self.looks_since))
        self.changed_ns = when_ns
        self.looks_since = 0
        if len(self.steps) >= ENOUGH_STEPS:
            self._learn_refresh()

    def _learn_refresh(self) -> None:
        """Median time between two changes, as long as looks come often enough to see it.

        A value that is new at every look only says that it changes at least as often as it is
        read; what was learned from quicker looks before stays.
        """
        looks = statistics.fmean(looks for _, looks in self.steps)
        if looks >= (LOOKS_STAMPED if self.stamp_ns is not None else LOOKS_UNSTAMPED):
            self.refresh_ns = round(statistics.median(step for step, _ in self.steps))


class SensorBoard:
    """All sensors of one device, keyed by the field of `Reading` that they fill.

    A key `field.part` fills one entry of a field that is a dictionary.
    """

    def __init__(self, fields: Iterable[str], reason: str = NOT_READ) -> None:
        """Know these fields; each starts as unavailable for `reason`."""
        self.version = 0
        """Grows when a sensor's availability, source or label changes."""
        self._look = 0
        self._look_ns = 0
        self._judge = Judge()
        self._power_span: tuple[float, float] | None = None
        """Least and most power since the temperature last changed."""
        self._sensors = {name: _Sensor(name) for name in fields}
        for sensor in self._sensors.values():
            sensor.reason = reason

    def know(self, info: DeviceInfo) -> None:
        """The device's own limits, against which its readings are held."""
        self._judge.know(info)

    def declare(
        self,
        name: str,
        source: str,
        unit: str,
        *,
        label: str = "",
        window_ns: int | None = None,
        lag_ns: int | None = None,
    ) -> None:
        """Say where a quantity comes from; it is asked for from now on."""
        sensor = self._sensors[name]
        info = SensorInfo(source=source, unit=unit, label=label, window_ns=window_ns, lag_ns=lag_ns)
        if sensor.info == info and not sensor.is_final:
            return
        sensor.info = info
        sensor.is_final = False
        sensor.reason = NOT_READ
        sensor.retry_ns = 0
        sensor.failures = 0
        self.version += 1

    def label_of(self, name: str) -> str:
        """The words beside a quantity."""
        return self._sensors[name].info.label

    def label(self, name: str, text: str) -> None:
        """Change the words beside a quantity."""
        sensor = self._sensors[name]
        if sensor.info.label != text:
            sensor.info = msgspec.structs.replace(sensor.info, label=text)
            self.version += 1

    def never(self, name: str, reason: str) -> None:
        """The device does not offer this quantity: it is not asked for again."""
        sensor = self._sensors[name]
        sensor.is_final = True
        self._lose(sensor, reason)

    def gap(self, name: str, reason: str, now_ns: int) -> None:
        """Nothing this time: ask again after 0.2 s, then twice as long each time, at most 5 s."""
        sensor = self._sensors[name]
        wait_ns = min(FIRST_BACK_OFF_NS << min(sensor.failures, 10), LAST_BACK_OFF_NS)
        sensor.failures += 1
        sensor.retry_ns = now_ns + wait_ns
        self._lose(sensor, reason)

    def failed(self, name: str, reason: str, now_ns: int) -> None:
        """It failed for no known reason: a gap, and after five in a row asked every 10 s only."""
        sensor = self._sensors[name]
        if sensor.failures < FAILING_AFTER - 1:
            self.gap(name, reason, now_ns)
            return
        sensor.failures += 1
        sensor.retry_ns = now_ns + FAILING_RETRY_NS
        self._lose(sensor, f"failing: {reason}")

    def absent(self, name: str, reason: str) -> None:
        """No value at this look, for a reason that is no failure; it is asked again next time."""
        self._lose(self._sensors[name], reason)

    def _lose(self, sensor: _Sensor, reason: str) -> None:
        sensor.value = None
        if sensor.reason != reason:
            sensor.reason = reason
            self.version += 1

    def is_offered(self, name: str) -> bool:
        """False once the quantity is known not to exist here."""
        return not self._sensors[name].is_final

    def is_failing(self, name: str) -> bool:
        """True while the last look at the quantity failed."""
        return self._sensors[name].failures > 0

    def wants(self, name: str, now_ns: int) -> bool:
        """True when the quantity should be asked for now."""
        sensor = self._sensors[name]
        return not sensor.is_final and now_ns >= sensor.retry_ns

    def begin(self, now_ns: int) -> None:
        """A new look at the device begins."""
        self._look += 1
        self._look_ns = now_ns

    def cost(self, name: str, cost_ns: int) -> None:
        """One call for this quantity took so long."""
        self._sensors[name].costs.append(cost_ns)

    def put(
        self,
        name: str,
        value: Any,
        stamp_ns: int | None = None,
        counter: MonotonicCounter | None = None,
    ) -> None:
        """A value of this look, unless it cannot be true.

        Args:
            name: the sensor.
            value: what the driver says.
            stamp_ns: the device's own time of it, where it has one.
            counter: makes a total of the raw values of a counter.
        """
        sensor = self._sensors[name]
        others = {"util_pct": self._value("util_pct")} if name != "util_pct" else {}
        if refusal := self._judge.refuse(name, value, self._look_ns, others):
            sensor.refused += 1
            sensor.refusal = refusal
            if counter is not None and self._judge.is_new_start(name):
                counter.start_over(int(value))
            self._lose(sensor, refusal)
            return
        if counter is not None:
            value = counter.feed(int(value))
        sensor.looks_since += 1
        is_new = value != sensor.last or (stamp_ns is not None and stamp_ns != sensor.stamp_ns)
        sensor.last, sensor.stamp_ns = value, stamp_ns
        if stamp_ns is None or is_new:
            sensor.look = self._look
        elif sensor.value is None:
            return  # the very measurement that was given up as too old
        # The same stamp again is the same measurement: its age goes on growing.
        if is_new:
            sensor.note_change(self._look_ns if stamp_ns is None else stamp_ns)
            sensor.new_ns = self._look_ns
        sensor.value = value
        sensor.failures = 0
        sensor.retry_ns = 0
        if sensor.reason is not None:
            sensor.reason = None
            self.version += 1

    def value(self, name: str) -> Any:
        """The last value, None when there is none."""
        return self._sensors[name].value

    def reason(self, name: str) -> str | None:
        """Why there is no value; None when there is one."""
        return self._sensors[name].reason

    def age_ns(self, name: str, now_ns: int) -> int | None:
        """How old the measurement is by the device's own stamps; None without a value or stamps."""
        sensor = self._sensors[name]
        if sensor.value is None or sensor.stamp_ns is None or sensor.new_ns is None:
            return None
        return now_ns - sensor.new_ns

    def watch_stuck(self) -> None:
        """Doubt what stands exactly still while the device works and its other sensors move."""
        is_busy = (self._value("util_pct") or 0) >= BUSY_PCT
        power = self._value("power_mw")
        self._doubt("power_mw", STUCK_NS if is_busy and power else None)
        span = self._power_span
        if power is None or span is None or self.unchanged_ns("temp_c") == 0:
            self._power_span = None if power is None else (power, power)
            self._doubt("temp_c", None)
            return
        self._power_span = low, high = min(span[0], power), max(span[1], power)
        self._doubt("temp_c", STUCK_TEMPERATURE_NS if high > MOVED * low else None)

    def _value(self, name: str) -> Any:
        return self._sensors[name].value if name in self._sensors else None

    def _doubt(self, name: str, after_ns: int | None) -> None:
        sensor = self._sensors[name]
        is_stuck = after_ns is not None and self.unchanged_ns(name) > after_ns
        words = f"stuck: the same for {(after_ns or 0) // S} s under load" if is_stuck else ""
        if sensor.doubt != words:
            sensor.doubt = words
            self.version += 1

    def unchanged_ns(self, name: str) -> int:
        """For how long the value has been the same, at this look."""
        new_ns = self._sensors[name].new_ns
        return 0 if new_ns is None else self._look_ns - new_ns

    def reading(self, device: str, at_ns: int) -> Reading:
        """End a look whose middle was `at_ns`: all values, with the ages of those of earlier looks.

        The reading has no value of a quantity whose last look failed.
        """
        values: dict[str, Any] = {}
        ages: dict[str, int] = {}
        for sensor in self._sensors.values():
            if sensor.value is None:
                continue
            field = sensor.field
            if sensor.part:
                values.setdefault(field, {})[sensor.part] = sensor.value
            else:
                values[field] = sensor.value
            if sensor.look == self._look:
                sensor.at_ns = at_ns
            else:
                ages[field] = max(ages.get(field, 0), at_ns - sensor.at_ns)
        if isinstance(others := values.get("others"), Others):
            values |= {"others": others.pids, "others_bytes": others.used_bytes}
        return Reading(device=device, at_ns=at_ns, ages_ns=ages, **values)

    def infos(self) -> dict[str, SensorInfo]:
        """What is known of every sensor now."""
        return {
            name: msgspec.structs.replace(
                sensor.info,
                reason=sensor.reason,
                refused=sensor.refused,
                refusal=sensor.refusal,
                doubt=sensor.doubt,
                refresh_ns=sensor.refresh_ns,
                cost_ns=round(statistics.median(sensor.costs)) if sensor.costs else None,
            )
            for name, sensor in self._sensors.items()
        }

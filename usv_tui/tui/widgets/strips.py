"""Clock, temperature and power over the same time axis as the samples."""

from dataclasses import dataclass

import numpy as np
from rich.style import Style
from textual.strip import Strip

from usv_tui.model import Reading, SensorInfo, is_usable, reason_words
from usv_tui.session.snapshot import FloatArray, IntArray, Snapshot
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene, TimeAxis
from usv_tui.tui.widgets.chart import GUTTER
from usv_tui.tui.widgets.columns import Index, by_column, filled
from usv_tui.tui.widgets.raster import Raster, RowCache
from usv_tui.tui.widgets.scale import Scale

HOLD_NS = 3_000_000_000
"""How long a value stays drawn when no newer one comes."""
_NONE, _LINE, _DIM = range(3)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something a device tells, as it is drawn."""

    field: str
    name: str
    unit: str
    factor: float
    """From the reading's unit to the shown one."""
    least: float
    """Smallest extent of its axis, in the shown unit."""
    least_part: float


QUANTITIES = (
    Quantity("sm_mhz", "clock", "MHz", 1.0, 30.0, 0.02),
    Quantity("temp_c", "temp", "°C", 1.0, 4.0, 0.0),
    Quantity("power_mw", "power", "W", 1e-3, 4.0, 0.04),
    Quantity("util_pct", "util", "%", 1.0, 20.0, 0.0),
)
NEEDED = QUANTITIES[:3]
"""Those whose absence is told."""
_NEAR = 0.85
"""A limit is drawn when the values come to this part of it."""


def value_of(quantity: Quantity, reading: Reading | None) -> float | None:
    """The quantity's value in its shown unit."""
    raw: float | None = None if reading is None else getattr(reading, quantity.field)
    return None if raw is None or not is_usable(raw) else raw * quantity.factor


def value_text(quantity: Quantity, snapshot: Snapshot) -> str:
    """`1948 MHz`, or `617 / 700 W` where there is a limit; empty without a value."""
    value, limit = value_of(quantity, snapshot.reading), limit_of(quantity, snapshot)
    if value is None:
        return ""
    shown = "" if limit is None or quantity.field == "sm_mhz" else f" / {limit:.0f}"
    return f"{value:.0f}{shown} {quantity.unit}"


def limit_of(quantity: Quantity, snapshot: Snapshot) -> float | None:
    """What the quantity cannot pass: the power limit, the slowdown temperature, a lock of ours."""
    device, reading = snapshot.device, snapshot.reading
    found: float | None = None
    if quantity.field == "sm_mhz":
        found = snapshot.clocks.in_force_mhz
    elif quantity.field == "power_mw":
        found = reading.power_limit_mw if reading is not None else None
        found = found or (device.power_limit_mw if device is not None else None)
    elif quantity.field == "temp_c" and device is not None:
        found = min(device.temp_limits_c.values(), default=None)
    return None if found is None or not is_usable(found) else found * quantity.factor


def sensor_of(quantity: Quantity, snapshot: Snapshot) -> SensorInfo | None:
    """What the device says about the quantity's sensor."""
    return None if snapshot.device is None else snapshot.device.sensors.get(quantity.field)


def drawn(scene: Scene) -> list[Quantity]:
    """The quantities that have values now, or had some on the chart; the others take no room."""
    return [q for q in QUANTITIES if _is_offered(q, scene.snapshot) or _was_seen(q, scene)]


def _was_seen(quantity: Quantity, scene: Scene) -> bool:
    axis = scene.axis(2)
    _, values = scene.store.curves.telemetry(quantity.field, axis.from_ns, axis.to_ns)
    return bool(np.isfinite(values).any())


def _is_offered(quantity: Quantity, snapshot: Snapshot) -> bool:
    if value_of(quantity, snapshot.reading) is not None:
        return True
    sensor = sensor_of(quantity, snapshot)
    return sensor is not None and sensor.reason is None and snapshot.reading is not None


def missing_text(snapshot: Snapshot) -> str:
    """One short line: which quantities there are not, and why. Empty when all are there."""
    absent = [q for q in NEEDED if not _is_offered(q, snapshot)]
    if not absent:
        return ""
    if len(absent) == len(NEEDED):
        why = snapshot.telemetry_state or _first_reason(absent, snapshot) or "no reading yet"
        return f"no clock, temperature or power: {why}"
    by_reason: dict[str, list[str]] = {}
    for quantity in absent:
        sensor = sensor_of(quantity, snapshot)
        reason = (sensor.reason if sensor else None) or snapshot.telemetry_state or "not reported"
        by_reason.setdefault(reason, []).append(quantity.name)
    return "; ".join(f"no {', '.join(names)}: {why}" for why, names in by_reason.items())


def _first_reason(absent: list[Quantity], snapshot: Snapshot) -> str:
    sensors = (sensor_of(q, snapshot) for q in absent)
    return next((s.reason for s in sensors if s is not None and s.reason), "")


def numbers_text(snapshot: Snapshot) -> str:
    """All values on one line, for where there is no room to draw them."""
    values = (value_text(q, snapshot) for q in QUANTITIES)
    return "  ".join(v for v in values if v)


def limits_text(snapshot: Snapshot) -> str:
    """The active clock limits in words, idle and the like left out; empty when there are none."""
    reading = snapshot.reading
    if reading is None or not reading.reasons:
        return ""
    harmless = {"idle", "app clocks", "display clocks", "sync boost"}
    return ", ".join(w for w in reason_words(reading.reasons) if w not in harmless)


class Strips:
    """Draws the quantities that there are, one below the other."""

    def __init__(self) -> None:
        self._scales: dict[tuple[str, int], Scale] = {}
        self._caches: dict[str, RowCache] = {}
        self._look: Look | None = None
        self._styles: tuple[Style, ...] = ()

    def lines(
        self, scene: Scene, axis: TimeAxis, width: int, each: int, most: int | None = None
    ) -> list[Strip]:
        """`each` lines for every quantity that has values, of the first `most` of these."""
        out: list[Strip] = []
        for quantity in drawn(scene)[:most]:
            out.extend(self._one(scene, quantity, axis, width, each))
        return out

    def _one(
        self, scene: Scene, quantity: Quantity, axis: TimeAxis, width: int, height: int
    ) -> list[Strip]:
        key = (quantity.field, axis.span_s)
        scale = self._scales.setdefault(
            key, Scale(least=quantity.least, least_part=quantity.least_part)
        )
        raster = Raster(max(1, width - GUTTER), height)
        t_ns, values = scene.store.curves.telemetry(quantity.field, axis.from_ns, axis.to_ns)
        values = values * quantity.factor
        fine = np.isfinite(values)
        limit = limit_of(quantity, scene.snapshot)
        seen = _draw(t_ns[fine], values[fine], axis, raster, scale, limit)
        if limit is not None and scale.is_set and scale.low <= limit <= scale.high:
            _draw_limit(scene, limit, scale, raster)
        _draw_label(scene, quantity, raster)
        heads = _heads(scene, quantity, seen, min(width, GUTTER), height)
        if width <= GUTTER:
            return [text.strip([head], width, scene.look.base) for head in heads]
        cache = self._caches.setdefault(quantity.field, RowCache())
        return cache.strips(heads, raster, self._styles_of(scene.look), scene.look.glyphs)

    def _styles_of(self, look: Look) -> tuple[Style, ...]:
        """The same tuple for the same look, so that rows can be kept."""
        if self._look is not look:
            self._look, self._styles = look, (look.base, look.info, look.dim)
        return self._styles


def _draw(
    t_ns: IntArray,
    values: FloatArray,
    axis: TimeAxis,
    raster: Raster,
    scale: Scale,
    limit: float | None,
) -> tuple[float, float] | None:
    """The range of each column as a bar, joined with its neighbours; returns what was seen."""
    if not len(values):
        return None
    columns = by_column(t_ns, axis)
    if not len(columns.x):
        return None
    least, most = columns.smallest(values), columns.largest(values)
    seen = (float(least.min()), float(most.max()))
    is_near = limit is not None and _NEAR * limit <= seen[1]
    scale.fit(seen[0], max(seen[1], limit) if is_near and limit is not None else seen[1])
    x, low, high = _held(columns.x, least, most, values[columns.end - 1], axis)
    rows = 4 * raster.height
    last = rows - 1
    top = np.minimum(np.maximum((1 - _part(high, scale)) * rows, 0), last).astype(np.intp)
    bottom = np.minimum(np.maximum((1 - _part(low, scale)) * rows, 0), last).astype(np.intp)
    follows = np.diff(x) == 1
    reach_up = np.minimum(top[1:], bottom[:-1])
    reach_down = np.maximum(bottom[1:], top[:-1])
    top[1:] = np.where(follows, reach_up, top[1:])
    bottom[1:] = np.where(follows, reach_down, bottom[1:])
    dot_x, dot_y = filled(top, bottom, x, rows)
    raster.dots(dot_x, dot_y, _LINE)
    return seen


def _draw_limit(scene: Scene, limit: float, scale: Scale, raster: Raster) -> None:
    """A dotted line where nothing else is drawn."""
    row = min(int((1 - scale.part(limit)) * raster.height), raster.height - 1)
    free = (raster.bits[row] == 0) & (raster.over[row] == 0)
    raster.over[row, free] = ord(scene.look.glyphs.dotted)
    raster.owner[row, free] = _DIM


def _part(values: FloatArray, scale: Scale) -> FloatArray:
    return (values - scale.low) / (scale.high - scale.low)


def _held(
    x: Index, least: FloatArray, most: FloatArray, last: FloatArray, axis: TimeAxis
) -> tuple[Index, FloatArray, FloatArray]:
    """Columns without a reading repeat the last value, for at most `HOLD_NS`."""
    every = np.arange(int(x[0]), axis.columns)
    index = np.searchsorted(x, every, side="right") - 1
    is_own = x[index] == every
    keep = (every - x[index]) * axis.step_ns <= HOLD_NS
    every, index, is_own = every[keep], index[keep], is_own[keep]
    low = np.where(is_own, least[index], last[index])
    high = np.where(is_own, most[index], last[index])
    return every, low, high


def _draw_label(scene: Scene, quantity: Quantity, raster: Raster) -> None:
    """What the sensor's label says (`nominal`, `1 s mean`), at the left of the plot."""
    sensor = sensor_of(quantity, scene.snapshot)
    label = scene.look.text(sensor.label) if sensor is not None else ""
    if not label or len(label) + 2 > raster.width or text.width_of(label) != len(label):
        return
    cells = slice(0, len(label) + 1)
    raster.over[0, cells] = [ord(c) if ord(c) < 0x10000 else 0x3F for c in f"{label} "]
    raster.owner[0, cells] = _DIM


def _heads(
    scene: Scene,
    quantity: Quantity,
    seen: tuple[float, float] | None,
    width: int,
    height: int,
) -> list[tuple[str, Style]]:
    """Value now, name, and the range on the plot: as many as there are lines."""
    look = scene.look
    now = look.own(value_text(quantity, scene.snapshot)) or look.glyphs.dash
    span = "" if seen is None else f"{seen[0]:.0f}-{seen[1]:.0f}"
    labels = [now, quantity.name, span]
    is_stale = scene.snapshot.telemetry_state != ""
    first = look.warn if is_stale else look.base
    if width < 2:
        return [("", look.base)] * height
    return [
        (
            text.right(labels[i] if i < len(labels) else "", width - 1) + look.glyphs.axis,
            first if i == 0 else look.dim,
        )
        for i in range(height)
    ]

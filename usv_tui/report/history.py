"""The sessions that are kept as a table, and one benchmark over them as a plot in text."""

import datetime as dt
from collections.abc import Sequence

from usv_tui import plain
from usv_tui.report.grid import Column, text
from usv_tui.report.wording.advice import short_text
from usv_tui.session.history import Point, Told
from usv_tui.units import DASH, bytes_text, duration, fixed, in_unit, time_unit

_LEAST_PLOT = 16


def when(unix_ns: int) -> str:
    """Local date and time; a dash for none."""
    if not unix_ns:
        return DASH
    return dt.datetime.fromtimestamp(unix_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")


def table(told: Sequence[Told], width: int | None = None) -> str:
    """One line a session, newest first."""
    columns = [
        Column("date", [when(t.started_unix_ns) for t in told]),
        Column("session", [t.kept.path.name for t in told], least=16, is_code=True),
        Column("benchmarks", [t.suite for t in told], least=10, drop=2, is_code=True),
        Column("commit", [t.commit for t in told], drop=3),
        Column("device", [t.device for t in told], least=10, drop=1),
        Column(
            "took",
            [duration(t.elapsed_s) if t.started_unix_ns else DASH for t in told],
            is_number=True,
            drop=5,
        ),
        Column("size", [bytes_text(t.kept.size_bytes) for t in told], is_number=True, drop=6),
        Column("rows", [t.states for t in told], least=10, drop=4),
        Column("advice", [t.problem or short_text(t.advice) for t in told], least=12),
    ]
    return text([c for c in columns if not c.is_empty], width)


def plot(name: str, points: Sequence[Point], width: int | None = None) -> str:
    """One benchmark's median in each session, oldest first, with its 95 % interval as a bar."""
    unit = time_unit([p.row.median_s for p in points])
    middles = [(p.row.median_s or 0.0) for p in points]
    lows = [m * (1 - p.row.half) for m, p in zip(middles, points, strict=True)]
    highs = [m * (1 + p.row.half) for m, p in zip(middles, points, strict=True)]
    low, high = min(lows), max(highs)
    columns = [
        Column("date", [when(p.told.started_unix_ns) for p in points]),
        Column("commit", [p.told.commit for p in points]),
        Column(f"median {unit.name}", [in_unit(m, unit) for m in middles], is_number=True),
        Column("± %", [fixed(p.row.half * 100) for p in points], is_number=True),
        Column("clock MHz", [_clock(p) for p in points], is_number=True),
        Column("device", [p.told.device for p in points], least=10, drop=1),
    ]
    shown = [c for c in columns if not c.is_empty]
    lines = text(shown).splitlines()
    room = max(_LEAST_PLOT, min(60, (width or 120) - len(lines[0]) - 4))
    head = f"{in_unit(low, unit)} .. {in_unit(high, unit)}"
    bars = [head, "-" * room]
    for a, m, b in zip(lows, middles, highs, strict=True):
        bars.append(_bar([_place(v, low, high, room) for v in (a, m, b)], room))
    wide = max(len(line) for line in lines)
    body = [f"{line:<{wide}}  {bar}".rstrip() for line, bar in zip(lines, bars, strict=True)]
    return "\n".join([plain.name(name), *body])


def _clock(point: Point) -> str:
    clock = point.row.clock
    return DASH if clock is None else fixed(clock.median_mhz, 0)


def _place(value: float, low: float, high: float, room: int) -> int:
    return round((value - low) / (high - low) * (room - 1)) if high > low else room // 2


def _bar(places: Sequence[int], room: int) -> str:
    cells = [" "] * room
    for i in range(places[0], places[2] + 1):
        cells[i] = "-"
    cells[places[1]] = "o"
    return "".join(cells).rstrip()

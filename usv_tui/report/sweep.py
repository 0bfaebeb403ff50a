"""What a clock sweep found: time, spread, power and energy against the clock, and three marks."""

from collections.abc import Mapping, Sequence

from usv_tui import plain
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.session.sweep import HELD, Marks, Point, RowAt, StepAt, marks, points, words
from usv_tui.units import DASH, fixed, in_unit, percent, significant, time_unit, watts

FASTEST, CALMEST, THRIFTIEST = "fastest that holds", "least std", "least energy"
_LETTER = {FASTEST: "F", CALMEST: "S", THRIFTIEST: "E"}
"""How the table marks them; the sentences below it spell them out."""


_ABOVE = 1.02
"""A card that ran so many times faster than its lock was not held by it."""


def render(
    steps: Sequence[StepAt],
    names: Mapping[int, str],
    *,
    bench: int | None = None,
    markdown: bool = False,
    width: int | None = None,
) -> str:
    """All rows together, or one of them, as text or Markdown; then what the marks mean.

    Within `width`, lesser columns are left out.

    Times and energies are against the free clock (the highest one where that was not visited).
    """
    found = points(steps, bench)
    if not found:
        return "sweep: no clock was visited long enough"
    chosen = marks(found)
    columns = _columns(found, chosen, bench)
    body = grid.markdown(columns) if markdown else grid.text(columns, width)
    said = [_title(found, names, bench), body, *sentences(found, chosen)]
    if bench is None and len(names) > 1:
        said += _each(steps, names)
    return "\n".join([said[0], "", *said[1:]] if markdown else said)


def _title(found: Sequence[Point], names: Mapping[int, str], bench: int | None) -> str:
    whom = plain.name(names[bench]) if bench is not None else f"{len(names)} rows"
    if bench is None and len(names) == 1:
        whom = plain.name(next(iter(names.values())))
    visits = sum(point.step.visits for point in found)
    return (
        f"clock sweep of {whom}: {visits} visits in random order; time and energy against "
        f"{_reference(found)}"
    )


def _reference(found: Sequence[Point]) -> str:
    mhz = found[-1].step.mhz
    return "the free clock" if mhz is None else f"{mhz} MHz"


def _columns(found: Sequence[Point], chosen: Marks, bench: int | None) -> list[Column]:
    steps = [point.step for point in found]
    only = bench
    if only is None and len({b for step in steps for b in step.rows}) == 1:
        only = next(iter(steps[0].rows))
    columns = [
        Column("clock", [words(step.mhz) for step in steps]),
        Column("held %", [_share(step) for step in steps], is_number=True),
        Column("ran at MHz", [fixed(step.ran_mhz, 0) for step in steps], is_number=True, drop=4),
        Column("power W", [_watts(step) for step in steps], is_number=True, drop=3),
        Column("temp C", [fixed(step.temp_c, 0) for step in steps], is_number=True, drop=7),
    ]
    if only is not None:
        columns.append(_times([step.rows.get(only) for step in steps]))
    columns += [
        Column("time", [f"{point.time:.3f}x" for point in found], is_number=True),
        Column("+- %", [percent(point.apart, 2) for point in found], is_number=True, drop=6),
        Column("std %", [percent(point.std, 2) for point in found], is_number=True),
        Column("energy", [_times_text(point.energy) for point in found], is_number=True),
        Column(
            "best", ["".join(_LETTER[label] for label in _labels(point, chosen)) for point in found]
        ),
    ]
    return [c for c in columns if not c.is_empty or c.title in ("clock", "held %")]


def _times(rows: Sequence[RowAt | None]) -> Column:
    times = [row.time_s if row is not None else None for row in rows]
    unit = time_unit(times)
    cells = [DASH if t is None else in_unit(t, unit) for t in times]
    return Column(f"median {unit.name}", cells, is_number=True, drop=2)


def _share(step: StepAt) -> str:
    return DASH if step.held is None else fixed(step.held * 100, 1)


def _watts(step: StepAt) -> str:
    return DASH if step.power_mw is None else watts(round(step.power_mw))


def _times_text(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}x"


def _labels(point: Point, chosen: Marks) -> list[str]:
    labels = (
        (FASTEST, chosen.fastest),
        (CALMEST, chosen.calmest),
        (THRIFTIEST, chosen.thriftiest),
    )
    return [label for label, mark in labels if mark is point]


def sentences(found: Sequence[Point], chosen: Marks) -> list[str]:
    """Each mark in words, and what the free clock costs or gains against it."""
    free = found[-1] if found[-1].step.mhz is None else None
    said = []
    for mark in dict.fromkeys(m.step.mhz for m in chosen if m is not None):
        point = next(p for p in found if p.step.mhz == mark)
        against = "" if free is None else f"; {_against(free, point)}"
        labels = ", ".join(f"{_LETTER[label]} {label}" for label in _labels(point, chosen))
        said.append(f"{labels}: {mark} MHz{against}")
    if chosen.fastest is None:
        said.append(_none_held(found))
    elif chosen.thriftiest is None:
        said.append("energy is not known here: no power sensor that can be trusted")
    return said


def _none_held(found: Sequence[Point]) -> str:
    """A range that is too high, or a lowest lock that the card simply ran above."""
    low = min((p.step for p in found if p.step.mhz), key=lambda s: s.mhz or 0, default=None)
    if low is not None and low.mhz and (low.ran_mhz or 0.0) > _ABOVE * low.mhz:
        return f"no clock held: locked at {low.mhz} MHz the card ran at {low.ran_mhz:.0f} MHz"
    return f"no clock of this range held in {HELD:.0%} of the readings: sweep lower"


def _against(free: Point, mark: Point) -> str:
    """The free clock seen from a mark."""
    apart = max(free.apart, mark.apart)
    change = free.time / mark.time - 1
    if abs(change) <= apart:
        speed = f"the free clock takes as long (within {percent(apart, 1)} %)"
    else:
        less = "more" if change > 0 else "less"
        speed = f"the free clock takes {percent(abs(change), 1)} % {less} time"
    parts = [
        speed,
        f"its std {significant(free.std * 100)} % against {significant(mark.std * 100)} %",
    ]
    if free.energy and mark.energy:
        change = free.energy / mark.energy - 1
        parts.append(f"its energy {percent(abs(change), 1)} % {'more' if change > 0 else 'less'}")
    return ", ".join(parts)


def _each(steps: Sequence[StepAt], names: Mapping[int, str]) -> list[str]:
    """The marks of each row, where they differ from row to row."""
    lines = {}
    for bench, name in names.items():
        chosen = marks(points(steps, bench))
        clocks = [None if mark is None else mark.step.mhz for mark in chosen]
        lines[name] = tuple(DASH if mhz is None else f"{mhz}" for mhz in clocks)
    if len(set(lines.values())) < 2:
        return ["the marks are the same for every row"]
    titles = (FASTEST, CALMEST, THRIFTIEST)
    cells = [Column("row", list(lines), is_code=True)]
    cells += [
        Column(f"{title} MHz", [line[i] for line in lines.values()], is_number=True)
        for i, title in enumerate(titles)
    ]
    return ["", grid.text(cells)]


def as_data(steps: Sequence[StepAt], names: Mapping[int, str]) -> list[dict[str, object]]:
    """Every clock with every row, for JSON."""
    return [
        {
            "mhz": step.mhz,
            "visits": step.visits,
            "held": step.held,
            "ran_mhz": step.ran_mhz,
            "power_mw": step.power_mw,
            "temp_c": step.temp_c,
            "rows": [{"name": names[bench], **row._asdict()} for bench, row in step.rows.items()],
        }
        for step in steps
    ]

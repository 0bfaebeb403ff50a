"""The lie as a table: one row a benchmark, the four times side by side."""

from collections.abc import Callable

from usv_tui.engine.lie import Lie, LieRow
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.units import DASH, in_unit, significant, time_unit


def render(lie: Lie, width: int | None = None) -> str:
    """The table, and under it what this device can show and what it cannot."""
    rows = lie.rows
    unit = time_unit(s for row in rows for s in (row.nod_s, row.synced_s, row.timed_s))

    def times(pick: Callable[[LieRow], float | None]) -> list[str]:
        return [in_unit(pick(row), unit) for row in rows]

    columns = [
        Column("benchmark", [row.name for row in rows], is_code=True, least=20),
        Column(f"no sync {unit.name}", times(lambda row: row.nod_s), is_number=True),
        Column(f"one sync {unit.name}", times(lambda row: row.synced_s), is_number=True),
        Column(f"{lie.timer} {unit.name}", times(lambda row: row.timed_s), is_number=True),
        Column(f"first call {unit.name}", times(lambda row: row.first_s), is_number=True),
        Column("work / nod", [_factor(row) for row in rows], is_number=True),
        Column("failed", [row.error for row in rows], least=16),
    ]
    lines = [grid.text([c for c in columns if not c.is_empty], width), ""]
    lines.append(f"shows  {lie.shows}")
    if lie.lacks:
        lines.append(f"lacks  {lie.lacks}")
    return "\n".join(lines)


def _factor(row: LieRow) -> str:
    return DASH if row.factor is None else f"{significant(row.factor, 2)}x"

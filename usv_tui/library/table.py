"""usv's `format_table` for measurements of `do_bench`."""

from collections.abc import Iterable, Mapping

from usv_tui.library.arguments import BadKind
from usv_tui.library.measurement import Measurement
from usv_tui.report import grid
from usv_tui.report.grid import Column
from usv_tui.units import DASH, count, fixed, in_unit, time_unit


def format_table(measurements: Iterable[Measurement]) -> str:
    """An aligned table, sorted by name, in one unit of time; throughput where it is known."""
    if isinstance(measurements, Measurement):
        measurements = [measurements]
    if isinstance(measurements, Mapping):
        measurements = measurements.values()
    if not isinstance(measurements, Iterable):
        raise BadKind(f"measurements is {measurements!r}", "give a list of measurements")
    ms = list(measurements)
    if any(not isinstance(m, Measurement) for m in ms):
        raise BadKind("not all of these are measurements", "give what do_bench returns")
    ms.sort(key=lambda m: m.name)
    if not ms:
        return "(no measurements)"
    unit = time_unit(m.median for m in ms)

    def times(pick: str) -> Column:
        cells = [in_unit(getattr(m, pick), unit) for m in ms]
        return Column(f"{pick} {unit.name}", cells, is_number=True)

    columns = [
        Column("benchmark", [m.name for m in ms]),
        *(times(pick) for pick in ("median", "mean", "std", "min")),
        Column("n", [count(m.n) for m in ms], is_number=True),
        Column("TFLOP/s", [fixed(m.tflops) for m in ms], is_number=True, drop=1),
        Column("GB/s", [fixed(m.gbps, 1) for m in ms], is_number=True, drop=1),
        Column("cache", _unless(("warm",), [m.cache for m in ms]), drop=1),
        Column("timer", [m.timer or DASH for m in ms], drop=1),
    ]
    return grid.text([c for c in columns if not (c.drop and c.is_empty)])


def _unless(usual: tuple[str, ...], words: list[str]) -> list[str]:
    """Nothing when every word is the usual one."""
    return [""] * len(words) if all(word in usual for word in words) else words

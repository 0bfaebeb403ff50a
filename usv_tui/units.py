"""Numbers to text. One unit a column: pick it once with `time_unit`, then format all with it."""

import math
from collections.abc import Iterable
from typing import NamedTuple

DASH = "—"
DIGITS = 4
"""Significant digits of a median."""


class Unit(NamedTuple):
    """A unit of time: how many seconds it is and what it is called."""

    seconds: float
    name: str


NS = Unit(1e-9, "ns")
US = Unit(1e-6, "µs")
MS = Unit(1e-3, "ms")
S = Unit(1.0, "s")
_UNITS = (S, MS, US, NS)


def time_unit(values_s: Iterable[float | None]) -> Unit:
    """The unit in which the smallest of the values is at least 1 (ns when there is none)."""
    usable = [v for v in values_s if v is not None and math.isfinite(v) and v > 0]
    if not usable:
        return US
    smallest = min(usable)
    return next((u for u in _UNITS if smallest >= u.seconds), NS)


def fixed(value: float | None, decimals: int = 2, dash: str = DASH) -> str:
    """A number with fixed decimals; a dash for None, NaN and infinities."""
    if value is None or not math.isfinite(value):
        return dash
    return f"{value:.{decimals}f}"


def in_unit(value_s: float | None, unit: Unit, decimals: int = 3) -> str:
    """A time in the column's unit."""
    return fixed(None if value_s is None else value_s / unit.seconds, decimals)


class RowUnit(NamedTuple):
    """How the times of one row are written: its unit, and the decimals of its median."""

    unit: Unit
    decimals: int

    def bare(self, value_s: float | None, dash: str = DASH) -> str:
        """A time without its unit; a small one keeps two digits instead of becoming 0."""
        if value_s is None or not math.isfinite(value_s):
            return dash
        value = value_s / self.unit.seconds
        if 0 < abs(value) < 10.0 ** (1 - self.decimals):
            return significant(value, 2)
        return fixed(value, self.decimals)

    def text(self, value_s: float | None, dash: str = DASH) -> str:
        """A time with its unit."""
        bare = self.bare(value_s, dash)
        return bare if bare == dash else f"{bare} {self.unit.name}"


def row_unit(median_s: float | None, kept: Unit | None = None, digits: int = DIGITS) -> RowUnit:
    """The unit of a row's times, and decimals that give its median so many digits.

    Args:
        median_s: the row's median.
        kept: the unit that it had; it stays while the median reads well in it.
        digits: significant digits of the median.
    """
    usable = median_s is not None and math.isfinite(median_s) and median_s > 0
    if not usable or median_s is None:
        return RowUnit(kept or US, digits - 1)
    reads_well = kept is not None and 0.8 <= median_s / kept.seconds < 2000
    rounded = float(f"{median_s:.{digits - 1}e}")  # 999.99 ns to four digits is 1.000 µs
    unit = kept if kept is not None and reads_well else time_unit([rounded])
    exponent = int(f"{median_s / unit.seconds:.{digits - 1}e}".partition("e")[2])
    return RowUnit(unit, max(0, digits - 1 - exponent))


def time_text(value_s: float | None, digits: int = DIGITS) -> str:
    """A time alone, in the unit that suits it: `203.1 ns`, `48.02 µs`, `5.001 s`."""
    return row_unit(value_s, digits=digits).text(value_s)


_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def scaled(value: float | None, digits: int = 3, dash: str = DASH) -> str:
    """A rate with the prefix of its size: `82.4 T`, `413 G`."""
    if value is None or not math.isfinite(value):
        return dash
    step = 0
    while abs(value) >= 999.5 and step < len(_PREFIXES) - 1:
        value, step = value / 1000, step + 1
    return f"{significant(value, digits)} {_PREFIXES[step]}".rstrip()


def percent(value: float | None, decimals: int = 2) -> str:
    """A ratio as a percentage without the sign."""
    return fixed(None if value is None else value * 100, decimals)


def share_text(value: float | None, dash: str = DASH) -> str:
    """A part of one in percent, without the sign; a small one never becomes 0."""
    if value is not None and 0 < abs(value) < 0.000_05:
        return "<.01"
    return fixed(None if value is None else value * 100, 2, dash)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    # The exponent after rounding: 9.996 to three digits is 10.0, not 10.00.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:.{decimals}f}"


def times(ratio: float) -> str:
    """A ratio of times; a very small one keeps its digits."""
    return f"{ratio:.3f}x" if ratio >= 0.01 or ratio <= 0 else f"{ratio:.2g}x"


def duration(seconds: float) -> str:
    """Elapsed time as m:ss or h:mm:ss."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes:02d}:{secs:02d}"


def count(value: int) -> str:
    """A count with thousands separators."""
    return f"{value:,}"


def watts(power_mw: int | None, decimals: int = 0) -> str:
    """Milliwatts as watts."""
    return fixed(None if power_mw is None else power_mw / 1000, decimals)


def bytes_text(value: float | None) -> str:
    """A size in binary units."""
    if value is None:
        return DASH
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"

"""Decodes the amdgpu driver's binary `gpu_metrics` table (kernel header kgd_pp_interface.h).

Only what is shown is taken out of it. Offsets are computed from the C structs' fields with natural
alignment; the size in the header must agree, so that a table of an unknown or truncated form is
refused instead of misread.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple


class Metrics(NamedTuple):
    """One table, in the driver's units; None is a value that the driver marks as absent."""

    version: str
    stamp_ns: int | None
    """Firmware's time stamp, or the driver's where the firmware has none."""
    edge_c: int | None = None
    hotspot_c: int | None = None
    mem_c: int | None = None
    power_w: int | None = None
    is_power_average: bool = True
    energy_count: int | None = None
    """In units of 2^-16 J."""
    activity_pct: int | None = None
    gfx_mhz: tuple[int, ...] = ()
    """Core clock of each die that reports one."""
    is_clock_average: bool = False
    """True where only the mean of the last milliseconds is told."""
    mem_mhz: int | None = None
    throttle: int | None = None
    """Bits whose meaning does not depend on the ASIC (`SMU_THROTTLER_*`)."""
    residency: tuple[int, int, int, int] | None = None
    """Cycles so far: all, under the power limit, under a thermal limit, under PROCHOT."""


class MetricsError(ValueError):
    """The table cannot be decoded; the text says why."""


# Each table as the kernel's C struct has it after its header of four bytes: `name:COUNTCODE`, with
# the codes of the module `struct`. A count of 0 only aligns, as a nested struct does.
_ASIDE = "averages:6H gfx:H soc:H uclk:H video:4H status:I fan:H"
_V1_0 = (
    "clock:Q edge:H hotspot:H mem:H vr:3H activity:H busy:2H power:H energy32:I gfx_average:H "
    f"{_ASIDE} pcie:2B"
)
_V1_1 = (
    "edge:H hotspot:H mem:H vr:3H activity:H busy:2H power:H energy:Q clock:Q gfx_average:H "
    f"{_ASIDE} pcie:2H pad:H activity_acc:2I hbm:4H"
)
_V1_2 = f"{_V1_1} firmware:Q"
_V1_3 = f"{_V1_2} voltages:3H pad1:H throttle:Q"
# From v1.4 on (MI300 and later) every die has its own clock; later, throttling counts in cycles.
_MI300 = "hotspot:H mem:H vr:H power_now:H activity:H umc:H"
_LINKS = "lock:I pcie:2H xgmi:2H activity_acc:2I pcie_acc:5Q"
_NAKS = "naks:2I"
_XGMI = "xgmi_acc:16Q"
_CLOCKS = "firmware:Q gfx:8H soc:4H vclk:4H dclk:4H uclk:H"
_PARTITION = "partition:0Q busy:8I jpeg:32H vcn:4H busy_acc:8Q"
_PARTITION_1_2 = "partition:0Q busy:8I jpeg:40H vcn:4H busy_acc:8Q"
_CYCLES = "residency:6I"
_V1_4 = f"{_MI300} vcn:4H energy:Q clock:Q asic_throttle:I {_LINKS} {_XGMI} {_CLOCKS} pad:H"
_V1_5 = (
    f"{_MI300} vcn:4H jpeg:32H energy:Q clock:Q asic_throttle:I {_LINKS} {_NAKS} {_XGMI} "
    f"{_CLOCKS} pad:H"
)
_V1_6_FIRST = (
    f"{_MI300} vcn:4H jpeg:32H energy:Q clock:Q {_CYCLES} asic_throttle:I {_LINKS} {_NAKS} "
    f"{_XGMI} {_CLOCKS} pad:H"
)
"""Before partitions were added under the same number; the sizes differ."""
_V1_6 = (
    f"{_MI300} energy:Q clock:Q {_CYCLES} {_LINKS} {_NAKS} {_XGMI} {_CLOCKS} partitions:H "
    f"{' '.join([_PARTITION] * 8)} recovery:I"
)
_V1_7_HEAD = (
    f"{_MI300} bandwidth:Q energy:Q clock:Q {_CYCLES} {_LINKS} {_NAKS} {_XGMI} links:8H pad:H "
    f"{_CLOCKS} partitions:H"
)
_V1_7 = f"{_V1_7_HEAD} {' '.join([f'{_PARTITION} limit:8Q'] * 8)} recovery:I"
_V1_8 = f"{_V1_7_HEAD} {' '.join([f'{_PARTITION_1_2} limits:32Q'] * 8)} recovery:I"
# The tables of APUs. Their temperatures, powers and activities have other units on every chip, so
# these come from hwmon, whose units are fixed.
_APU_CLOCKS = (
    "gfx_average:H averages:5H gfx:H soc:H uclk:H others:3H core_mhz:8H l3_mhz:2H status:I fan:H"
)
_APU_POWERS = "powers:4H core_powers:8H"
_V2_0 = f"clock:Q temperatures:12H activities:2H {_APU_POWERS} {_APU_CLOCKS} pad:H"
_V2_1 = f"temperatures:12H activities:2H clock:Q {_APU_POWERS} {_APU_CLOCKS} pad:3H"
_V2_2 = f"{_V2_1} throttle:Q"
_V2_3 = f"{_V2_2} average_temperatures:12H"
_V2_4 = f"{_V2_3} voltages:3H currents:3H"
_V3_0 = (
    "temperatures:19H activities:26H bandwidths:4H clock:Q socket_power:I ipu_power:H powers:4I "
    "core_powers:16H system_power:H limits:2H gfx_average:H averages:5H uclk:H mpipu:H "
    "core_mhz:16H maxima:2H residencies:7I filter:I"
)


class Layout(NamedTuple):
    """Where the fields of one table are."""

    size: int
    offsets: dict[str, tuple[int, str]]
    """Offset and struct codes, by name."""


def layout_of(fields: str) -> Layout:
    """Lay a struct out as a C compiler does: every field on a multiple of its own size."""
    offset, widest = 4, 2  # the header: H, B, B
    offsets: dict[str, tuple[int, str]] = {}
    for field in fields.split():
        name, _, form = field.partition(":")
        count, width = int(form[:-1] or 1), struct.calcsize(f"<{form[-1]}")
        offset += -offset % width
        offsets[name] = (offset, form)
        offset += count * width
        widest = max(widest, width)
    return Layout(offset + -offset % widest, offsets)


_SHOWN = frozenset({
    "activity", "asic_throttle", "clock", "edge", "energy", "firmware", "gfx", "gfx_average", "hbm",
    "hotspot", "mem", "power", "power_now", "residency", "throttle", "uclk",
})  # fmt: skip
_BITS = {"H": 16, "I": 32, "Q": 64}
_Unpack = Callable[[bytes, int], tuple[int, ...]]


def _prepared(layout: Layout) -> list[tuple[str, _Unpack, int, int]]:
    """For each shown field its name, how to unpack it, its offset and the mark for absent."""
    return [
        (name, struct.Struct(f"<{form}").unpack_from, offset, (1 << _BITS[form[-1]]) - 1)
        for name, (offset, form) in layout.offsets.items()
        if name in _SHOWN
    ]


TABLES = (
    (1, 0, _V1_0), (1, 1, _V1_1), (1, 2, _V1_2), (1, 3, _V1_3), (1, 4, _V1_4), (1, 5, _V1_5),
    (1, 6, _V1_6_FIRST), (1, 6, _V1_6), (1, 7, _V1_7), (1, 8, _V1_8), (2, 0, _V2_0),
    (2, 1, _V2_1), (2, 2, _V2_2), (2, 3, _V2_3), (2, 4, _V2_4), (3, 0, _V3_0),
)  # fmt: skip
"""Format, content revision and fields."""
_LAYOUTS = {
    (form, content, layout.size): _prepared(layout)
    for form, content, fields in TABLES
    for layout in (layout_of(fields),)
}
"""By format, content revision and size."""

# v1.9 is a list of attributes, each with its own encoded type; these are the ones that are shown.
_ATTRIBUTES = {
    0: "hotspot", 1: "mem", 3: "power_now", 4: "activity", 7: "energy", 8: "clock",
    9: "cycles", 10: "prochot", 11: "ppt", 12: "socket", 13: "vr", 14: "hbm_limit",
    32: "firmware", 33: "gfx", 37: "uclk", 48: "hbm",
}  # fmt: skip
_ATTRIBUTE_TYPES = "BbHhIiQq"

_ASIC_THROTTLE = {0: 47, 1: 0, 2: 32, 3: 38, 4: 34}
"""MI300's own throttle bits to the common ones: PROCHOT, power, socket, regulator, memory."""


def decode(data: bytes) -> Metrics:
    """The table's values.

    Raises:
        MetricsError: truncated, or of a form that is not known here.
    """
    if len(data) < 4:
        raise MetricsError("gpu_metrics is empty")
    size, form, content = struct.unpack_from("<HBB", data)
    version = f"{form}.{content}"
    if form == 0 or len(data) < size:
        raise MetricsError(f"gpu_metrics is truncated ({len(data)} bytes)")
    if (form, content) == (1, 9):
        return _metrics(version, _attributes(data[:size]))
    layout = _LAYOUTS.get((form, content, size))
    if layout is None:
        raise MetricsError(f"gpu_metrics {version} of {size} bytes is not known here")
    raw = {name: unpack(data, offset) for name, unpack, offset, _ in layout}
    values = {name: [n for n in raw[name] if n != absent] for name, _, _, absent in layout}
    if "residency" in raw and len(values["residency"]) == 6:
        names = ("cycles", "prochot", "ppt", "socket", "vr", "hbm_limit")
        values |= {name: [value] for name, value in zip(names, raw["residency"], strict=True)}
    return _metrics(version, values)


def _attributes(data: bytes) -> dict[str, list[int]]:
    """The attributes of a v1.9 table that are known here.

    Raises:
        MetricsError: the list does not fit its size.
    """
    values: dict[str, list[int]] = {}
    offset = 8
    try:
        (count,) = struct.unpack_from("<i", data, 4)
        for _ in range(count):
            (encoding,) = struct.unpack_from("<Q", data, offset)
            kind, identity, instances = (
                encoding >> 20 & 0xF, encoding >> 10 & 0x3FF, encoding & 0x3FF,
            )  # fmt: skip
            code = _ATTRIBUTE_TYPES[kind]
            numbers = struct.unpack_from(f"<{instances}{code}", data, offset + 8)
            width = struct.calcsize(f"<{code}")
            offset += 8 + instances * width
            if identity in _ATTRIBUTES:
                absent = (1 << width * 8) - 1
                values[_ATTRIBUTES[identity]] = [n for n in numbers if n != absent]
    except (struct.error, IndexError) as error:
        raise MetricsError(f"gpu_metrics 1.9 is malformed: {error}") from error
    return values


def _metrics(version: str, values: dict[str, list[int]]) -> Metrics:
    def first(name: str) -> int | None:
        return next(iter(values.get(name, ())), None)

    firmware, clock = first("firmware"), first("clock")
    hbm = values.get("hbm", [])
    now = values.get("gfx", [])
    gfx = now or values.get("gfx_average", [])
    power_now = first("power_now")
    return Metrics(
        version=version,
        stamp_ns=firmware * 10 if firmware else clock,
        edge_c=first("edge"),
        hotspot_c=first("hotspot"),
        mem_c=first("mem") or max(hbm, default=None),
        power_w=first("power") if power_now is None else power_now,
        is_power_average="power_now" not in values,
        energy_count=first("energy"),
        activity_pct=first("activity"),
        gfx_mhz=tuple(gfx),
        is_clock_average=bool(gfx) and not now,
        mem_mhz=first("uclk"),
        throttle=_throttle(first("throttle"), first("asic_throttle")),
        residency=_residency({name: first(name) for name in _RESIDENCIES}),
    )


_RESIDENCIES = ("cycles", "ppt", "socket", "vr", "hbm_limit", "prochot")


def _throttle(common: int | None, asic: int | None) -> int | None:
    if asic is None:
        return common
    return sum(1 << to for bit, to in _ASIC_THROTTLE.items() if asic >> bit & 1)


def _residency(counts: dict[str, int | None]) -> tuple[int, int, int, int] | None:
    cycles, power, prochot = counts["cycles"], counts["ppt"], counts["prochot"]
    thermal = [counts[name] for name in ("socket", "vr", "hbm_limit")]
    if cycles is None or power is None or prochot is None:
        return None
    return cycles, power, max((t for t in thermal if t is not None), default=0), prochot

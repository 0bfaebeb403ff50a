"""Decodes the amdgpu driver's binary `gpu_metrics` table (kernel header kgd_pp_interface.h).

Only what is shown is taken out of it. Offsets are those of the C structs with natural alignment;
each version has its own, and the size in the header must agree, so that a table of an unknown or
truncated form is refused instead of misread.
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
    mem_mhz: int | None = None
    throttle: int | None = None
    """Bits whose meaning does not depend on the ASIC (`SMU_THROTTLER_*`)."""
    residency: tuple[int, int, int, int] | None = None
    """Cycles so far: all, under the power limit, under a thermal limit, under PROCHOT."""


class MetricsError(ValueError):
    """The table cannot be decoded; the text says why."""


_U16, _U32, _U64 = "H", "I", "Q"
_Fields = dict[str, tuple[int, str]]

# v1.0 has its time stamp in front; from v1.1 on the table grows at its end.
_V1_0: _Fields = {
    "clock": (8, _U64), "edge": (16, _U16), "hotspot": (18, _U16), "mem": (20, _U16),
    "activity": (28, _U16), "power": (34, _U16), "gfx_average": (40, _U16), "gfx": (54, _U16),
    "uclk": (58, _U16),
}  # fmt: skip
_V1_1: _Fields = {
    "edge": (4, _U16), "hotspot": (6, _U16), "mem": (8, _U16), "activity": (16, _U16),
    "power": (22, _U16), "energy": (24, _U64), "clock": (32, _U64), "gfx_average": (40, _U16),
    "gfx": (54, _U16), "uclk": (58, _U16), "hbm": (88, "4H"),
}  # fmt: skip
_V1_2: _Fields = _V1_1 | {"firmware": (96, _U64)}
_V1_3: _Fields = _V1_2 | {"throttle": (112, _U64)}
# From v1.4 on (MI300 and later) every die has its own clock, and throttling is counted in cycles.
_MI300: _Fields = {
    "hotspot": (4, _U16), "mem": (6, _U16), "power_now": (10, _U16), "activity": (12, _U16),
}  # fmt: skip
_V1_4: _Fields = _MI300 | {
    "energy": (24, _U64), "clock": (32, _U64), "asic_throttle": (40, _U32),
    "firmware": (232, _U64), "gfx": (240, "8H"), "uclk": (280, _U16),
}  # fmt: skip
_V1_5: _Fields = _MI300 | {
    "energy": (56, _U64), "clock": (64, _U64), "asic_throttle": (72, _U32),
    "firmware": (272, _U64), "gfx": (280, "8H"), "uclk": (320, _U16),
}  # fmt: skip
_V1_6: _Fields = _MI300 | {
    "energy": (16, _U64), "clock": (24, _U64), "residency": (32, "6I"),
    "firmware": (256, _U64), "gfx": (264, "8H"), "uclk": (304, _U16),
}  # fmt: skip
_V1_7: _Fields = _MI300 | {
    "energy": (24, _U64), "clock": (32, _U64), "residency": (40, "6I"),
    "firmware": (288, _U64), "gfx": (296, "8H"), "uclk": (336, _U16),
}  # fmt: skip
_Unpack = Callable[[bytes, int], tuple[int, ...]]


def _prepared(fields: _Fields) -> list[tuple[str, _Unpack, int, int]]:
    """For each field its name, how to unpack it, its offset and the driver's mark for absent."""
    return [
        (name, struct.Struct(f"<{code}").unpack_from, offset, (1 << _BITS[code[-1]]) - 1)
        for name, (offset, code) in fields.items()
    ]


_BITS = {"H": 16, "I": 32, "Q": 64}
_LAYOUTS = {
    (1, 0, 80): _prepared(_V1_0),
    (1, 1, 96): _prepared(_V1_1),
    (1, 2, 104): _prepared(_V1_2),
    (1, 3, 120): _prepared(_V1_3),
    (1, 4, 288): _prepared(_V1_4),
    (1, 5, 328): _prepared(_V1_5),
    (1, 6, 1664): _prepared(_V1_6),
    (1, 7, 2208): _prepared(_V1_7),
    (1, 8, 3360): _prepared(_V1_7),
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
    gfx = values.get("gfx", []) or values.get("gfx_average", [])
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

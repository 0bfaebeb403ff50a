"""What a card cannot exceed, and what a call that does exceed it says of its timing."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding, finding

_SPARE = 1.1
"""Clocks and sizes are read to about this; a rate must exceed a peak by more to be impossible."""
_CACHE_OVER_DRAM = 12.0
"""No cache level that a kernel reads through is faster than DRAM by more."""
_NOT_CACHED = ("cold", "unavailable", "rotating")
_ANY_FLOPS = 1e17
_ANY_BYTES = 1e15
"""Per second: above what any single device has, for cards whose peaks are not known."""


class Roofline(NamedTuple):
    """What a card cannot exceed. None where it is not known."""

    flops_per_s: float | None = None
    """Dense peak of its narrowest type, doubled for sparsity: generous on purpose."""
    bytes_per_s: float | None = None
    """Of its DRAM."""
    source: str = ""
    cache_bytes_per_s: float | None = None
    """Of its nearest cache: above it nothing reads or writes. None: a multiple of the DRAM's."""


_NVIDIA_FLOPS: Mapping[tuple[int, int], int] = {
    (7, 0): 1024,
    (7, 5): 4096,
    (8, 0): 8192,
    (8, 6): 4096,
    (8, 9): 4096,
    (9, 0): 8192,
    (10, 0): 36_864,
    (10, 3): 53_248,
    (12, 0): 8192,
}
"""Dense operations of one SM in one clock, in the narrowest type of its tensor cores."""
_AMD_FLOPS: Mapping[str, int] = {
    "gfx908": 1024,
    "gfx90a": 1024,
    "gfx942": 4096,
    "gfx950": 16_384,
}
"""The same of one compute unit."""


def roofline_of(properties: Any, *, is_amd: bool) -> Roofline:
    """The ceilings of a card from torch's device properties, as far as they tell."""
    units = getattr(properties, "multi_processor_count", None)
    clock_khz = getattr(properties, "clock_rate", None)
    if is_amd:
        arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
        per_clock = _AMD_FLOPS.get(arch)
    else:
        version = (getattr(properties, "major", 0), getattr(properties, "minor", 0))
        arch = "sm_{}{}".format(*version)
        per_clock = _NVIDIA_FLOPS.get(version)
    flops = None
    if units and clock_khz and per_clock:
        flops = 2.0 * units * per_clock * clock_khz * 1e3
    memory_khz = getattr(properties, "memory_clock_rate", None)
    width_bits = getattr(properties, "memory_bus_width", None)
    bytes_per_s = None
    if memory_khz and width_bits:
        # Two transfers a clock; AMD reports HBM3 at half of the clock that this is true for.
        bytes_per_s = memory_khz * 1e3 * width_bits / 8 * (4 if is_amd else 2)
    return Roofline(flops, bytes_per_s, f"{arch}, torch device properties")


_ANY_CPU_MHZ = 6500.0
"""No CPU runs faster: for those whose highest clock is not told, as in most virtual machines."""
_CPU_UNITS: tuple[tuple[str, str, int, int], ...] = (
    ("amx_int8", "AMX", 2048 + 256, 192),
    ("amx_bf16", "AMX", 2048 + 256, 192),
    ("avx512_vnni", "AVX-512 VNNI", 256, 192),
    ("avx512f", "AVX-512", 256, 192),
    ("avx_vnni", "AVX-VNNI", 256, 128),
    ("avx2", "AVX2", 192, 128),
    ("avx", "AVX", 96, 96),
    ("sse2", "SSE", 48, 48),
    ("sme", "SME", 8192, 512),
    ("sve", "SVE", 1024, 384),
    ("i8mm", "NEON i8mm", 512, 128),
    ("asimd", "NEON", 256, 128),
)
"""Flag of a CPU, its name, operations of one core in one clock in the narrowest type, and bytes
that its nearest cache takes and gives in one clock. Generous: the widest core that has it."""
_ANY_UNIT = ("", "unknown vector unit", 8192, 512)
_SINGLE: Mapping[str, int] = {
    "amx_int8": 64,
    "amx_bf16": 64,
    "avx512_vnni": 64,
    "avx512f": 64,
    "avx_vnni": 32,
    "avx2": 32,
    "avx": 16,
    "sse2": 8,
    "sme": 64,
    "sve": 32,
    "i8mm": 16,
    "asimd": 16,
}
"""What one core with this unit does at least in one clock in single precision."""


def cpu_roofline(root: Path = Path("/")) -> Roofline:
    """What the CPUs that this process may use cannot exceed, whatever they compute on and where.

    No figure of the DRAM: what fits into a cache may be faster, and honestly so.
    """
    cpus = os.sched_getaffinity(0)
    flags = _cpu_flags(root / "proc/cpuinfo")
    _, unit, operations, width = next((u for u in _CPU_UNITS if u[0] in flags), _ANY_UNIT)
    known_mhz = [mhz for cpu in cpus if (mhz := _highest_mhz(root, cpu)) is not None]
    mhz = max(known_mhz) if len(known_mhz) == len(cpus) else _ANY_CPU_MHZ
    clocks_per_s = len(cpus) * mhz * 1e6
    return Roofline(
        flops_per_s=clocks_per_s * operations,
        source=f"{len(cpus)} CPUs x {mhz:.0f} MHz x {operations} a clock, {unit}",
        cache_bytes_per_s=clocks_per_s * width,
    )


def narrow_over_single(root: Path = Path("/")) -> float:
    """How many times as much these CPUs do in their narrowest type as in single precision."""
    flags = _cpu_flags(root / "proc/cpuinfo")
    name, _, operations, _ = next((u for u in _CPU_UNITS if u[0] in flags), _ANY_UNIT)
    return operations / _SINGLE.get(name, 16)


def _cpu_flags(cpuinfo: Path) -> set[str]:
    """What the kernel says that the first CPU can do; empty when it does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    names = ("flags", "features")
    found = (line.partition(":")[2] for line in lines if line.lower().startswith(names))
    return set(next(found, "").split())


def _highest_mhz(root: Path, cpu: int) -> float | None:
    """The highest clock that the kernel knows of a CPU, boost included."""
    file = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"
    try:
        return int(file.read_text()) / 1e3 or None
    except (OSError, ValueError):
        return None


def facts_of(roofline: Roofline) -> dict[str, Any]:
    """A roofline as it travels with the device's identity."""
    return {
        "peak_flops_per_s": roofline.flops_per_s,
        "peak_bytes_per_s": roofline.bytes_per_s,
        "peak_cache_bytes_per_s": roofline.cache_bytes_per_s,
        "peak_source": roofline.source,
    }


def roofline_from(facts: Mapping[str, Any]) -> Roofline | None:
    """The inverse of `facts_of`; None where nothing is known."""
    found = Roofline(
        facts.get("peak_flops_per_s"),
        facts.get("peak_bytes_per_s"),
        str(facts.get("peak_source") or facts.get("name", "")),
        facts.get("peak_cache_bytes_per_s"),
    )
    return found if any((found.flops_per_s, found.bytes_per_s, found.cache_bytes_per_s)) else None


def faster_than_roofline(
    seconds: float,
    *,
    flops: float | None,
    bytes_: float | None,
    roofline: Roofline | None,
    cache: str = "warm",
    cache_bytes: int | None = None,
) -> Finding | None:
    """A call that does more than the card can: the timing, or the stated work, is wrong.

    Bytes may come from a cache when the row is warm and they fit in it; that has its own finding.
    """
    if seconds <= 0:
        return None
    top = roofline or Roofline()
    if flops:
        limit = (top.flops_per_s or _ANY_FLOPS) * _SPARE
        if flops / seconds > limit:
            return finding(
                Code.FASTER_THAN_ROOFLINE,
                tflops=flops / seconds / 1e12,
                limit_tflops=limit / 1e12,
                source=top.source if top.flops_per_s else "no single device has more",
            )
    if not bytes_:
        return None
    rate = bytes_ / seconds
    if top.cache_bytes_per_s is not None and rate > top.cache_bytes_per_s * _SPARE:
        return finding(
            Code.FASTER_THAN_ROOFLINE,
            gbps=rate / 1e9,
            limit_gbps=top.cache_bytes_per_s * _SPARE / 1e9,
            source=top.source,
        )
    dram = top.bytes_per_s
    fits = cache_bytes is None or bytes_ <= cache_bytes  # of an unknown size: in its favour
    if dram is not None and rate > dram * _SPARE and not cache.startswith(_NOT_CACHED) and fits:
        if rate <= dram * _CACHE_OVER_DRAM:
            if cache_bytes is None:
                return None
            return finding(
                Code.FITS_IN_CACHE,
                gbps=rate / 1e9,
                dram_gbps=dram / 1e9,
                bytes=round(bytes_),
                cache_bytes=cache_bytes,
            )
        dram *= _CACHE_OVER_DRAM
    limit = (dram or _ANY_BYTES) * _SPARE
    if rate > limit:
        return finding(
            Code.FASTER_THAN_ROOFLINE,
            gbps=rate / 1e9,
            limit_gbps=limit / 1e9,
            source=top.source if dram else "no single device has more",
        )
    return None

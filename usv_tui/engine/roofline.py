"""What a card cannot exceed, and what a call that does exceed it says of its timing."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from usv_tui.engine.findings import Finding, finding

_SPARE = 1.1
"""Clocks and sizes are read to about this; a rate must exceed a peak by more to be impossible."""
_CACHE_OVER_DRAM = 12.0
"""No cache level that a kernel reads through is faster than DRAM by more."""
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
                "faster than roofline",
                tflops=flops / seconds / 1e12,
                limit_tflops=limit / 1e12,
                source=top.source if top.flops_per_s else "no single device has more",
            )
    if not bytes_:
        return None
    rate = bytes_ / seconds
    dram = top.bytes_per_s
    fits = cache_bytes is not None and bytes_ <= cache_bytes
    if dram is not None and rate > dram * _SPARE and cache == "warm" and fits:
        if rate <= dram * _CACHE_OVER_DRAM:
            return finding(
                "fits in cache",
                gbps=rate / 1e9,
                dram_gbps=dram / 1e9,
                bytes=round(bytes_),
                cache_bytes=cache_bytes,
            )
        dram *= _CACHE_OVER_DRAM
    limit = (dram or _ANY_BYTES) * _SPARE
    if rate > limit:
        return finding(
            "faster than roofline",
            gbps=rate / 1e9,
            limit_gbps=limit / 1e9,
            source=top.source if dram else "no single device has more",
        )
    return None

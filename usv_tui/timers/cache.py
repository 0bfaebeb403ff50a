"""What the caches hold when a window opens: sizes, a flush that truly evicts, rotation badges.

A flush that cannot be had says why; nothing is called cold that is not. Sizes come from the device
(CUDA, ROCm, xpu) or from the kernel (CPU), and are None where nobody tells.
"""

import functools
import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usv_tui.diagnosis.checks import cold_that_is_warm, fits_in_cache
from usv_tui.diagnosis.vocabulary import Finding
from usv_tui.timers.devices import cache_bytes as device_cache_bytes

_MIB = 1 << 20
_UNKNOWN_CACHE_BYTES = 256 * _MIB
"""Flushed where the size of the cache is not known: more than any L2 of today."""
_CPU_CACHES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Flusher:
    """How to empty the caches of a device, or why that cannot be done."""

    flush: Callable[[], object] | None
    flush_bytes: int = 0
    l2_bytes: int | None = None
    """The cache to be emptied: L2 (or what is behind it) of a GPU, last level of a CPU."""
    reason: str = ""
    """Why there is no flush."""

    def doubt(self, inner: int, *, is_cold_each: bool) -> Finding | None:
        """What speaks against calling a row cold that uses this flush; None when nothing does."""
        return cold_that_is_warm(
            inner=inner,
            is_cold_each=is_cold_each,
            flush_bytes=self.flush_bytes,
            cache_bytes=self.l2_bytes,
        )


def make_flusher(device: str, *, flush_mb: int | None = None, torch: Any = None) -> Flusher:
    """The flush of a device as torch names it: `cpu`, `cuda:1`, `xpu` … Allocates its buffer once.

    `torch` is needed for a GPU; on a CPU it lets the flush run on the threads that torch's own
    kernels use, whose private caches it could not reach otherwise.
    """
    if flush_mb is not None and flush_mb <= 0:
        return Flusher(None, reason=f"a flush of {flush_mb} MB is none")
    if device == "cpu":
        return _cpu_flusher(flush_mb, torch)
    if device.startswith("sim"):
        return Flusher(None, reason=f"{device} has no cache that can be flushed")
    return _gpu_flusher(device, flush_mb, torch)


# -- GPU


def _gpu_flusher(device: str, flush_mb: int | None, torch: Any) -> Flusher:
    if torch is None:
        return Flusher(None, reason="torch is needed to flush a GPU's cache")
    cache = device_cache_bytes(torch, device)
    size = _flush_bytes(flush_mb, cache)
    try:
        scratch = torch.empty(size, dtype=torch.uint8, device=device)
    except RuntimeError as error:  # torch's OutOfMemoryError is one
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return Flusher(None, 0, cache, f"no {size // _MIB} MiB for the flush buffer: {why}")
    return Flusher(scratch.zero_, size, cache)


def _flush_bytes(flush_mb: int | None, cache: int | None) -> int:
    """As asked for, or twice the cache, so that its associativity keeps nothing."""
    if flush_mb is not None:
        return flush_mb * _MIB
    return 2 * cache if cache else _UNKNOWN_CACHE_BYTES


# -- CPU


def _cpu_flusher(flush_mb: int | None, torch: Any) -> Flusher:
    threads = int(torch.get_num_threads()) if torch is not None else 1
    cache = cpu_cache_bytes(threads)
    size = _flush_bytes(flush_mb, cache)
    try:
        return Flusher(_cpu_flush(size, torch), size, cache)
    except (MemoryError, RuntimeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return Flusher(None, 0, cache, f"no {size // _MIB} MiB for the flush buffer: {why}")


def _cpu_flush(size: int, torch: Any) -> Callable[[], object]:
    """Read and write every line of a buffer: plain fills may go around the caches."""
    n = max(1, size // 8)
    if torch is None:
        numbers = np.zeros(n, dtype=np.int64)
        one = np.int64(1)

        def flush() -> None:
            np.add(numbers, one, out=numbers)

        return flush
    tensor = torch.zeros(n, dtype=torch.int64)

    def flush_by_torch() -> None:
        with torch.inference_mode():
            tensor.add_(1)

    return flush_by_torch


def cpu_cache_bytes(threads: int = 1, root: Path = _CPU_CACHES) -> int | None:
    """Last-level cache that so many threads may use; None when the kernel does not tell.

    CPUs with several last-level caches (one for each group of cores) count one for every thread.
    """
    domains = _domains(root)
    if domains:
        return sum(sorted(domains.values(), reverse=True)[: max(1, threads)])
    for name in ("SC_LEVEL4_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        try:
            size = os.sysconf(name)
        except (ValueError, OSError):
            continue
        if size > 0:
            return size
    return None


def _domains(root: Path) -> dict[str, int]:
    """Each last-level cache of the CPUs that this process may use: who shares it, bytes."""
    found: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        best: tuple[int, str, int] | None = None
        for index in (root / f"cpu{cpu}" / "cache").glob("index*"):
            try:
                level = int((index / "level").read_text())
                kind = (index / "type").read_text().strip()
                size = _size((index / "size").read_text().strip())
                shared = (index / "shared_cpu_list").read_text().strip()
            except (OSError, ValueError):
                continue
            if kind != "Instruction" and size and (best is None or level > best[0]):
                best = (level, shared, size)
        if best is not None:
            found[best[1]] = best[2]
    return found


def _size(text: str) -> int:
    """Bytes of `32768K`, `8M`, `1G` or a plain number."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


# -- rotation


def rotation_badge(
    sets: Sequence[Sequence[object]], cache_bytes: int | None
) -> tuple[str, Finding | None]:
    """The badge of a row that rotates its inputs, and why it is not called rotating.

    `sets` are the items of each rotation. A set that together is smaller than twice the cache
    stays in it: the row is warm. Unknown sizes are taken at their word.
    """
    if not sets:
        return "warm", None
    count = min(len(items) for items in sets)
    known = distinct_bytes(item for items in sets for item in items)
    doubt = fits_in_cache(known, cache_bytes)
    if doubt is not None or count < 2:
        return "warm", doubt
    return f"rotating({count})", None


def distinct_bytes(items: Iterable[object]) -> int | None:
    """Bytes of memory behind arrays and tensors, each storage once; None when nothing tells.

    The same tensor twice, or two views of one buffer, do not make a rotation any larger.
    """
    found = storages(_leaves(items))
    return sum(found.values()) if found else None


def storages(leaves: Iterable[object]) -> dict[int, int]:
    """Where the memory behind each array or tensor among these begins, and its bytes."""
    found: dict[int, int] = {}
    for leaf in leaves:
        storage = _storage(leaf)
        if storage is not None:
            found[storage[0]] = max(storage[1], found.get(storage[0], 0))
    return found


def _leaves(value: object, depth: int = 5) -> Iterable[object]:
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, types.FunctionType):
        value = [cell.cell_contents for cell in value.__closure__ or ()]
    elif isinstance(value, functools.partial):
        value = [value.func, *value.args, *value.keywords.values()]
    if depth and isinstance(value, Iterable) and not hasattr(value, "nbytes"):
        if isinstance(value, str | bytes):
            return
        for item in value:
            yield from _leaves(item, depth - 1)
    else:
        yield value


def _storage(leaf: object) -> tuple[int, int] | None:
    """Where the memory behind an array or tensor begins, and its bytes."""
    untyped = getattr(leaf, "untyped_storage", None)
    if untyped is not None:
        storage = untyped()
        return int(storage.data_ptr()), int(storage.nbytes())
    base = leaf
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = base.base
    if isinstance(base, np.ndarray):
        return int(base.__array_interface__["data"][0]), int(base.nbytes)
    size = getattr(leaf, "nbytes", None)
    return (id(leaf), size) if isinstance(size, int) else None

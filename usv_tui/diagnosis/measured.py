"""What a device was seen to do: a product of matrices and copies, measured once, in no window.

From what one core does in single precision follows a ceiling of them all in the narrowest type.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from usv_tui.diagnosis.roofline import Roofline
from usv_tui.timesource import NS_PER_S

_SIZE = 384
_GPU_SIZE = 4096
_TIMES = 5
_SMALL = 1 << 12
"""Elements of a copy that stays in the nearest cache."""
_LARGE = 1 << 23
_SMALL_COPIES = 200
_MARGIN = 1.5
"""Above what was seen: a product of this size, on a machine that has other things to do."""
_CACHE_MARGIN = 6.0
"""A copy by numpy is far from what the nearest cache can give."""
_GPU_MARGIN = 6.0
"""Half precision was measured: a quarter of it is four times as fast, sparse twice that."""
_DRAM_MARGIN = 1.3


class Seen(NamedTuple):
    """Rates of this device, a second."""

    flops: float
    """In single precision of one core of a CPU, in half precision of a whole GPU."""
    cache_bytes: float | None
    """Read and written by one core in its nearest cache."""
    dram_bytes: float


def measure_cpu(
    wall_ns: Callable[[], int] = time.perf_counter_ns,
    busy_ns: Callable[[], int] = time.process_time_ns,
) -> Seen:
    """The best of a few tries each: some 50 ms in all."""
    a = np.full((_SIZE, _SIZE), 0.5, np.float32)
    small, large = np.zeros(_SMALL, np.float32), np.zeros(_LARGE, np.float32)
    made, other, big = np.empty_like(a), np.empty_like(small), np.empty_like(large)

    def copies() -> None:
        for _ in range(_SMALL_COPIES):
            np.copyto(other, small)

    # Of CPU time, which other processes take nothing of, where the work is spread over threads.
    product_ns = _least(lambda: np.matmul(a, a, out=made), wall_ns, busy_ns)
    copies_ns = _least(copies, wall_ns, busy_ns)
    large_ns = _least(lambda: np.copyto(big, large), wall_ns, wall_ns)
    return Seen(
        2.0 * _SIZE**3 / product_ns * NS_PER_S,
        2.0 * _SMALL_COPIES * small.nbytes / copies_ns * NS_PER_S,
        2.0 * large.nbytes / large_ns * NS_PER_S,
    )


def _least(do: Callable[[], object], wall_ns: Callable[[], int], busy_ns: Callable[[], int]) -> int:
    """Ns of one core's time that it takes at least."""
    do()
    best = None
    for _ in range(_TIMES):
        wall, busy = wall_ns(), busy_ns()
        do()
        wall, busy = wall_ns() - wall, busy_ns() - busy
        # A clock of CPU time may be too coarse for it, and then says 0.
        took = min(wall, busy) if busy > 0 else wall
        best = took if best is None else min(best, took)
    return max(1, best or 0)


def measure_gpu(torch: Any, device: str, wait: Callable[[], object]) -> Seen:
    """The best of a few products and copies, each waited for; needs some 300 MB of the device.

    Raises:
        Exception: whatever torch raises where it can do none of this.
    """
    a = torch.full((_GPU_SIZE, _GPU_SIZE), 0.5, dtype=torch.float16, device=device)
    large = torch.zeros(_LARGE * 4, dtype=torch.float32, device=device)
    made, big = torch.empty_like(a), torch.empty_like(large)

    def least(do: Callable[[], object]) -> int:
        def waited() -> None:
            do()
            wait()

        return _least(waited, time.perf_counter_ns, time.perf_counter_ns)

    product_ns = least(lambda: torch.mm(a, a, out=made))
    large_ns = least(lambda: big.copy_(large))
    return Seen(
        2.0 * _GPU_SIZE**3 / product_ns * NS_PER_S,
        None,
        2.0 * large.nbytes / large_ns * NS_PER_S,
    )


def within(known: Roofline, seen: Seen, *, cores: int = 1, narrow: float = 1.0) -> Roofline:
    """The lower of what the data sheet and what the measurement allow.

    `narrow` is how many times as much a core does in its narrowest type. Where `seen` has no cache
    it is of a GPU, and stands in only for what is not known of it.
    """
    if seen.cache_bytes is None:
        return known._replace(
            flops_per_s=known.flops_per_s or seen.flops * _GPU_MARGIN,
            bytes_per_s=known.bytes_per_s or seen.dram_bytes * _DRAM_MARGIN,
            source=known.source if known.flops_per_s else "measured on this device",
        )
    flops = seen.flops * cores * narrow * _MARGIN
    cache = seen.cache_bytes * cores * _CACHE_MARGIN
    is_lower = flops < (known.flops_per_s or flops + 1)
    words = f"measured: {seen.flops / 1e9:.3g} GFLOP/s of one core, x {cores * narrow * _MARGIN:g}"
    return known._replace(
        flops_per_s=min(flops, known.flops_per_s or flops),
        cache_bytes_per_s=min(cache, known.cache_bytes_per_s or cache),
        source=words if is_lower else known.source,
    )

"""Memory traffic: copy, add and sum, within the caches and beyond them.

usv-tui benchmarks/memory.py
usv-tui benchmarks/memory.py --cache cold
"""

import torch

from usv_tui import benchmark

MIB = 2**20
ARRAYS = {"copy": 2, "add": 3, "sum": 1}
"""How many arrays of the row's size are read or written once."""


@benchmark(
    params=lambda device: {
        "mib": [1, 32] if device == "cpu" else [8, 1024],
        "op": list(ARRAYS),
    },
    baseline={"op": "copy"},
    bytes=lambda mib, op: ARRAYS[op] * mib * MIB,
)
def memory(mib, op, device):
    """One pass over arrays of `mib` MiB of single-precision numbers."""
    n = mib * MIB // 4
    a, b = torch.randn(n, device=device), torch.randn(n, device=device)
    out = torch.empty_like(a)
    if op == "copy":
        return lambda: out.copy_(a)
    if op == "add":
        return lambda: torch.add(a, b, out=out)
    return lambda: torch.sum(a)

"""A benchmark file for the simulated GPU: kernels described by numbers instead of code.

    usv-tui --device sim:h100 benchmarks/sim_demo.py
    usv-tui --device sim:mi300:power-cap benchmarks/sim_demo.py

The scenario decides how the card starts and who disturbs it; this file decides what runs.
"""

from usv_tui import benchmark
from usv_tui.sim import kernel

# Microseconds at the card's base clock, the share that follows the clock, and the power drawn.
KINDS = {
    "tiled": (900.0, 0.95, 1.0),
    "split-k": (860.0, 0.80, 0.9),
    "streamed": (1010.0, 0.40, 0.7),
}


@benchmark(
    params={"kind": list(KINDS), "n": [4096, 6144]},
    flops=lambda n: 2.0 * n**3,
    bytes=lambda n: 3.0 * 2 * n**2,
    baseline={"kind": "tiled"},
)
def matmul(kind, n):
    """An n by n matrix product, computed in three ways."""
    us, alpha, activity = KINDS[kind]
    return kernel(f"matmul-{kind}-{n}", us=us * (n / 6144) ** 3, alpha=alpha, activity=activity)


@benchmark(params={"mib": [512]}, bytes=lambda mib: 2.0 * mib * 2**20)
def copy(mib):
    """A copy: memory bound, so that the clock hardly matters."""
    return kernel(f"copy-{mib}", us=0.85 * mib, alpha=0.05, activity=0.5)

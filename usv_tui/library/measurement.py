"""The result of timing one callable, and the error of a group in which some failed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usv_tui.errors import ExitCode, UsvError, one_line
from usv_tui.units import in_unit, time_unit


@dataclass(eq=False)
class Measurement:
    """Samples of one callable in seconds per call, and the statistics derived from them.

    Statistics of no samples are NaN, and throughputs None.
    """

    samples: NDArray[np.float64]
    """Seconds per call: each window divided by its calls."""
    name: str = ""
    inner: int = 1
    """Calls in each window."""
    flops: float | None = None
    """Floating-point operations of one call."""
    bytes: float | None = None
    """Bytes read and written by one call."""
    timer: str = ""
    """What timed it: wall, event, or the class of the caller's timer."""
    cache: str = "warm"
    """warm, cold (flushed before every call), or unavailable (a flush that could not be had)."""
    clocks: str = ""
    """With `lock_clocks`: `locked 1500 MHz`, or `unlocked: ` and why. Empty when not asked for."""
    seed: int | None = None
    """Decides the order of interleaved rounds; None when it was not interleaved."""

    def __post_init__(self) -> None:
        self.samples = np.asarray(self.samples, dtype=np.float64)

    @property
    def n(self) -> int:
        """How many samples there are."""
        return int(self.samples.size)

    @property
    def median(self) -> float:
        """Seconds per call."""
        return float(np.median(self.samples)) if self.n else math.nan

    @property
    def mean(self) -> float:
        """Seconds per call."""
        return float(self.samples.mean()) if self.n else math.nan

    @property
    def std(self) -> float:
        """Population standard deviation (ddof=0), in seconds per call."""
        return float(self.samples.std(ddof=0)) if self.n else math.nan

    @property
    def min(self) -> float:
        """Seconds per call."""
        return float(self.samples.min()) if self.n else math.nan

    @property
    def max(self) -> float:
        """Seconds per call."""
        return float(self.samples.max()) if self.n else math.nan

    def quantile(self, q: float) -> float:
        """The q-quantile (0 to 1), linearly interpolated, in seconds per call."""
        return float(np.quantile(self.samples, q)) if self.n else math.nan

    @property
    def tflops(self) -> float | None:
        """Operations per second at the median, in 10^12; None without `flops`."""
        return self.flops / self.median / 1e12 if self.flops and self.median > 0 else None

    @property
    def gbps(self) -> float | None:
        """Bytes per second at the median, in 10^9; None without `bytes`."""
        return self.bytes / self.median / 1e9 if self.bytes and self.median > 0 else None

    def __repr__(self) -> str:
        unit = time_unit([self.median])
        median, std = in_unit(self.median, unit), in_unit(self.std, unit)
        facts = [f"n={self.n}"]
        if self.inner > 1:
            facts.append(f"inner={self.inner}")
        if self.cache != "warm":
            facts.append(f"cache {self.cache}")
        if self.timer:
            facts.append(f"{self.timer} timer")
        parts = [f"{median} ± {std} {unit.name} ({', '.join(facts)})"]
        if self.tflops is not None:
            parts.append(f"{self.tflops:.4g} TFLOP/s")
        if self.gbps is not None:
            parts.append(f"{self.gbps:.4g} GB/s")
        return (f"{self.name}: " if self.name else "") + "  ".join(parts)


class BenchmarkFailed(UsvError):
    """Some callables of a group raised; the others were measured to the end.

    Attributes:
        results: measurements of the callables that did not fail, by name.
        errors: the exception of each that did, by name; the first one is also the cause.
    """

    exit_code = ExitCode.BENCH_FAILED

    def __init__(
        self, results: Mapping[str, Measurement], errors: Mapping[str, BaseException]
    ) -> None:
        said = "; ".join(f"{name}: {one_line(error)}" for name, error in errors.items())
        hint = f"the other {len(results)} are in .results" if results else ""
        super().__init__(f"{len(errors)} of {len(errors) + len(results)} failed: {said}", hint)
        self.results = dict(results)
        self.errors = dict(errors)

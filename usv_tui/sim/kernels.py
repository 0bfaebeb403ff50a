"""Simulated kernels: what one call costs, as data, and its seeded noise."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.sim.profiles import Card

FloatArray = NDArray[np.float64]
_CHUNK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SimKernel:
    """One kernel: t(f) = t0 * ((1 - alpha) + alpha * f0 / f), times its noise."""

    name: str
    t0_ns: float
    """Time of one call at the reference clock on a card of time scale 1."""
    alpha: float = 0.95
    """Share of that time which goes with the clock: 1 compute bound, 0 memory bound."""
    ref_mhz: float | None = None
    """The reference clock; None is the card's base clock."""
    activity: float = 1.0
    """Share of the card's maximum dynamic power while it runs."""
    flops: float | None = None
    bytes: float | None = None
    group: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    is_baseline: bool = False

    noise: float = 0.002
    """Standard deviation of log time, call by call."""
    noise_phi: float = 0.0
    """Correlation of that noise from call to call, AR(1)."""
    jitter_ns: float = 0.0
    """Mean of a gamma-distributed addition to each call, not scaled by the card."""
    straggler_p: float = 0.0
    straggler_gain: float = 0.0
    """A straggler takes 1 + Exp(gain) times as long."""
    mode_p: float = 0.0
    """Share of the calls in the second mode."""
    mode_gain: float = 0.0
    """The second mode takes 1 + gain times as long."""
    mode_dwell: float = 0.0
    """Mean number of calls between two changes of mode; 0 draws each call anew."""
    warm_gain: float = 0.0
    """Extra time at the session's start that is not the clock's: 1 + gain * exp(-t / tau)."""
    warm_tau_s: float = 10.0

    host_ns: int | None = None
    """Host time of one call; None is the card's launch cost."""
    compile_ns: int = 0
    """Host time of the first call on top: a just-in-time compiler."""
    cold_gain: float = 0.0
    """A call that finds nothing of its own in the cache takes 1 + gain times as long."""
    footprint_bytes: int = 0
    """What it touches: neighbours evict it, it evicts them. 0: it is cold after a flush only."""
    refill_calls: int = 1
    """Calls that it takes to bring an evicted footprint back."""
    side_stream: bool = False
    """The work goes to another stream than the one that is timed."""
    synchronises: bool = False
    """The call waits for the device before it returns."""
    raises_at: int | None = None
    """This call, counted from 0, raises."""

    def split(self, card: Card) -> tuple[float, float]:
        """(seconds that the clock does not touch, MHz times seconds that it divides)."""
        time_s = self.t0_ns * 1e-9 * card.time_scale
        ref_mhz = self.ref_mhz or card.base_mhz
        return time_s * (1.0 - self.alpha), time_s * self.alpha * ref_mhz

    def seconds(self, card: Card, mhz: float) -> float:
        """Noise-free time of one call at a clock."""
        fixed_s, cycles = self.split(card)
        return fixed_s + cycles / mhz

    def local_alpha(self, card: Card, mhz: float) -> float:
        """-d log t / d log f at a clock: what an attribution should find."""
        fixed_s, cycles = self.split(card)
        return cycles / (cycles + fixed_s * mhz)


class Draws(NamedTuple):
    """The noise of a stretch of calls: factors on the whole call and seconds on top."""

    factor: FloatArray
    extra_s: FloatArray


class KernelNoise:
    """The noise of one kernel, call after call: depends on seed, name and call number only."""

    def __init__(self, kernel: SimKernel, seed: int) -> None:
        self._kernel = kernel
        self._rng = np.random.default_rng([seed, 2, zlib.crc32(kernel.name.encode())])
        self._last = 0.0
        self._in_second = False
        self._dwell_left = 0
        self._factors: list[float] = []
        self._extras: list[float] = []

    def next(self) -> tuple[float, float]:
        """(factor, extra seconds) of the next call."""
        if not self._factors:
            draws = self._chunk()
            self._factors = draws.factor[::-1].tolist()
            self._extras = draws.extra_s[::-1].tolist()
        return self._factors.pop(), self._extras.pop()

    def take(self, n: int) -> Draws:
        """The next `n` calls at once; not to be mixed with `next`."""
        chunks = [self._chunk() for _ in range(-(-n // _CHUNK))]
        if not chunks:
            return Draws(np.empty(0), np.empty(0))
        return Draws(
            np.concatenate([c.factor for c in chunks])[:n],
            np.concatenate([c.extra_s for c in chunks])[:n],
        )

    def _chunk(self) -> Draws:
        """One chunk; a feature that is off draws nothing, one that is on always as much."""
        kernel, rng = self._kernel, self._rng
        log_noise = rng.standard_normal(_CHUNK)
        if kernel.noise_phi:
            log_noise = self._correlate(log_noise)
        factor = np.exp(kernel.noise * log_noise)
        if kernel.straggler_p:
            hit = rng.random(_CHUNK) < kernel.straggler_p
            factor *= 1.0 + hit * rng.exponential(kernel.straggler_gain, _CHUNK)
        if kernel.mode_p:
            factor *= 1.0 + kernel.mode_gain * self._modes()
        extra_s = np.zeros(_CHUNK)
        if kernel.jitter_ns:
            extra_s = rng.gamma(2.0, kernel.jitter_ns / 2.0, _CHUNK) * 1e-9
        return Draws(factor, extra_s)

    def _correlate(self, white: FloatArray) -> FloatArray:
        phi = self._kernel.noise_phi
        kick = (1.0 - phi * phi) ** 0.5
        last = self._last
        out = []
        for value in white.tolist():
            last = phi * last + kick * value
            out.append(last)
        self._last = last
        return np.array(out)

    def _modes(self) -> NDArray[np.bool_]:
        """Which calls are in the second mode."""
        kernel, rng = self._kernel, self._rng
        if kernel.mode_dwell <= 0:
            return np.asarray(rng.random(_CHUNK) < kernel.mode_p)
        second = np.zeros(_CHUNK, dtype=bool)
        at = 0
        while at < _CHUNK:
            if self._dwell_left == 0:
                # Sojourns in the two modes stand in the ratio that gives mode_p on the whole.
                self._in_second = not self._in_second
                share = kernel.mode_p if self._in_second else 1.0 - kernel.mode_p
                self._dwell_left = int(rng.geometric(min(1.0, 0.5 / (kernel.mode_dwell * share))))
            stretch = min(self._dwell_left, _CHUNK - at)
            second[at : at + stretch] = self._in_second
            self._dwell_left -= stretch
            at += stretch
        return second

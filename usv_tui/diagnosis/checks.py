"""Self-diagnosis: evidence in, a finding out. Pure functions: no device, no wording.

Each check stays silent on clean samples and names one way in which a number can lie.
"""

import inspect
import itertools
import math
import statistics
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usv_tui.codes import Code
from usv_tui.diagnosis.roofline import Roofline, faster_than_roofline
from usv_tui.diagnosis.series import time_falls, works_in_turns
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.errors import UsvError
from usv_tui.model import EXCLUDED, Flag
from usv_tui.stats.basics import correlation_time, madn
from usv_tui.stats.inputs import STARVED_SHARE
from usv_tui.stats.modes import Modes, implausible
from usv_tui.timesource import NS_PER_S

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_MIN_N = 20
_FLOOR_FACTOR = 3
_COMPILE_NS = 50_000_000
"""Little compiles in less; a shorter spike is a stall."""
_HEAD_SHARE = 0.2
_HEAD_MIN = 40
_HEAD_MAX = 200
_HEAD_DIFFERENCE = 0.01
_HEAD_Z = 5.0
_MAJOR_SHARE = 0.35
"""With a minor mode this large the median is no stable target."""
_SYNC_JITTER = 0.1
OUTSIDE_LEAST_NS = 20_000
"""Less work after the end event than this is not told from a synchronise that is a little late."""
_EMPTY = 1.5
"""A window up to so many empty ones holds no kernel: the shortest takes as long as an event."""
_NO_KERNEL_NS = 1_000
"""No kernel is shorter; an empty window may be far below it."""
_BRACKET = 1.5
LAG_NS = 1_000_000
"""The way to the device and back takes less, and so much of a window may be rounding."""
_HOST_ONLY = 20
"""So many empty windows of host time are more than any launch takes."""


# -- what the samples themselves show


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEvidence:
    """What was seen of one row: one entry a window, in the order of time."""

    window_ns: IntArray
    inner: IntArray
    host_ns: IntArray
    flags: IntArray
    is_async: bool = True
    """A stream of device work that the host runs ahead of; False for a wall clock."""
    is_start: bool = True
    """The windows are the row's first ones, not a later stretch."""
    floor_ns: int | None = None
    resolution_ns: int | None = None
    flops: float | None = None
    """Of one call."""
    bytes: float | None = None
    roofline: Roofline | None = None
    cache: str = "warm"
    cache_bytes: int | None = None
    starved_share: float | None = None
    """Of the epoch's windows, as the statistics count them; None: of these windows."""
    n_stalls: int | None = None
    """In the epoch; None: those of these windows."""
    modes: Modes | None = None
    """What the statistics have found, in seconds."""
    has_loaded: bool | None = None
    """Modules were loaded or graphs compiled meanwhile; None: nobody looked."""

    def counted(self) -> "RowEvidence":
        """The windows that statistics take."""
        keep = (self.flags & EXCLUDED) == 0
        return self if bool(keep.all()) else self.only(keep)

    def only(self, which: slice | NDArray[np.bool_]) -> "RowEvidence":
        """Some of the windows."""
        return replace(
            self,
            window_ns=self.window_ns[which],
            inner=self.inner[which],
            host_ns=self.host_ns[which],
            flags=self.flags[which],
        )


def diagnose(evidence: RowEvidence) -> list[Finding]:
    """Every check that needs only samples, on those that count; nothing below 20 of them."""
    row = evidence.counted()
    if row.window_ns.size < _MIN_N:
        return []
    per_call = row.window_ns / row.inner
    once = (
        not_warmed_up(per_call) if row.is_start else None,
        # On a host timer every stall of the machine would look like a compilation.
        compiling_inside(row.window_ns, row.host_ns, row.flags)
        if row.is_async and row.has_loaded is not False
        else None,
        stalling(row),
        # Where something was compiled it is known why.
        time_falls(per_call) if not row.has_loaded else None,
    )
    return [f for f in once if f is not None] + _lasting(row)


def _lasting(row: RowEvidence) -> list[Finding]:
    """What a row is, as far as either half of its windows shows it too."""
    found = [f for f in (check(row) for check in LASTING.values()) if f is not None]
    if any(f.code == Code.HOST_ONLY for f in found):  # which explains why they are so short
        found = [f for f in found if f.code not in (Code.BELOW_TIMER_FLOOR, Code.CACHED_RESULT)]
    middle = row.window_ns.size // 2
    halves = [row.only(slice(None, middle)), row.only(slice(middle, None))]
    for code in [f.code for f in found]:
        check = LASTING.get(code, _roof)
        if middle >= _MIN_N and not all(_shows(check, half, code) for half in halves):
            found = [f for f in found if f.code != code]
    return found


def _shows(check: "Check", row: RowEvidence, code: str) -> bool:
    seen = check(row)
    return seen is not None and seen.code == code


def _roof(row: RowEvidence) -> Finding | None:
    return faster_than_roofline(
        float(np.median(row.window_ns / row.inner)) / NS_PER_S,
        flops=row.flops,
        bytes_=row.bytes,
        roofline=row.roofline,
        cache=row.cache,
        cache_bytes=row.cache_bytes,
    )


Check = Callable[[RowEvidence], Finding | None]
LASTING: Mapping[str, Check] = {
    Code.CPU_BOUND: lambda r: cpu_bound(r) if r.is_async else None,
    Code.HOST_ONLY: lambda r: nothing_in_stream(r),  # noqa: PLW0108  it is defined below
    Code.BELOW_TIMER_FLOOR: lambda r: below_floor(r.window_ns, r.inner, r.floor_ns),
    Code.TWO_MODES: lambda r: two_modes(r.modes),
    Code.CACHED_RESULT: lambda r: cached_result(r.window_ns, r.floor_ns),
    Code.FASTER_THAN_ROOFLINE: _roof,
    Code.WORKS_IN_TURNS: lambda r: works_in_turns(r.window_ns / r.inner),
}
"""Checks of what a row is, and not of what happened to it once: they can end, too."""
IS_LASTING = frozenset((*LASTING, Code.FITS_IN_CACHE))


def not_warmed_up(per_call: FloatArray) -> Finding | None:
    """The first windows that count differ from the rest by 1 % and by five standard errors.

    The error is the rest's own, widened by how long its values stay alike, so that slow noise is
    not taken for a start.
    """
    n = per_call.size
    head = min(_HEAD_MAX, int(n * _HEAD_SHARE))
    if head < _HEAD_MIN or np.any(per_call <= 0):
        return None
    y = np.log(per_call)
    first, rest = y[:head], y[head:]
    difference = float(np.median(first) - np.median(rest))
    # Both halves of what follows: a level that wanders by itself wanders between these too.
    middle = rest.size // 2
    wander = abs(float(np.median(rest[:middle]) - np.median(rest[middle:])))
    spread = max(madn(rest), float(np.std(np.clip(rest, *np.quantile(rest, [0.02, 0.98])))))
    tau = correlation_time(rest)
    error = 1.2533 * spread * math.sqrt(tau / head + tau / rest.size)
    if abs(difference) < max(_HEAD_DIFFERENCE, _HEAD_Z * error, 2 * wander):
        return None
    return finding(Code.NOT_WARMED_UP, difference=difference, windows=head, z=difference / error)


def compiling_inside(window_ns: IntArray, host_ns: IntArray, flags: IntArray) -> Finding | None:
    """One to three stalls in which the host itself was busy."""
    spikes = [int(i) for i in np.flatnonzero(flags & int(Flag.STALL))]
    late = [i for i in spikes if window_ns[i] >= _COMPILE_NS and host_ns[i] >= 0.5 * window_ns[i]]
    if not late or len(late) > 3:
        return None
    longest = max(late, key=lambda i: int(window_ns[i]))
    return finding(
        Code.COMPILING_INSIDE, windows=len(late), at=longest, longest_ns=int(window_ns[longest])
    )


def cpu_bound(row: RowEvidence) -> Finding | None:
    """Most windows hold a gap in which the device waited for the host, and a gap that matters.

    So many of them that the statistics are made of such windows: else these are left out.
    """
    share = row.starved_share
    if share is None:
        share = float(((row.flags & int(Flag.STARVED)) != 0).mean())
    host, window = float(np.median(row.host_ns)), float(np.median(row.window_ns))
    if share < STARVED_SHARE or host < 0.1 * window:
        return None
    return finding(
        Code.CPU_BOUND,
        starved_share=share,
        host_ns=round(host),
        window_ns=round(window),
        remedy="inner=auto, --graph or --blocker",
    )


def below_floor(window_ns: IntArray, inner: IntArray, floor_ns: int | None) -> Finding | None:
    """The median window is within three times an empty one."""
    window = float(np.median(window_ns))
    if not floor_ns or window >= _FLOOR_FACTOR * floor_ns:
        return None
    return finding(
        Code.BELOW_TIMER_FLOOR,
        window_ns=round(window),
        floor_ns=floor_ns,
        inner=int(np.median(inner)),
        remedy="more inner calls",
    )


def is_host_only(host_ns: float, window_ns: float, floor_ns: float) -> bool:
    """A window as short as an empty one, and a host that took far longer to ask for it."""
    is_empty = window_ns <= max(_EMPTY * floor_ns, _NO_KERNEL_NS)
    return is_empty and host_ns >= _HOST_ONLY * max(floor_ns, _NO_KERNEL_NS)


def host_only(host_ns: float, window_ns: float, floor_ns: float) -> Finding:
    """The row's time is the host's: the device gets nothing to do that could be told from none."""
    return finding(
        Code.HOST_ONLY, host_ns=round(host_ns), window_ns=round(window_ns), floor_ns=round(floor_ns)
    )


def nothing_in_stream(row: RowEvidence) -> Finding | None:
    """Most windows are empty ones, and the host needed far longer for each."""
    if not row.is_async or not row.floor_ns:
        return None
    host, window = float(np.median(row.host_ns)), float(np.median(row.window_ns))
    if not is_host_only(host, window, row.floor_ns):
        return None
    calls = float(np.median(row.inner))
    return host_only(host / calls, window / calls, row.floor_ns)


def stalling(row: RowEvidence) -> Finding | None:
    """The windows that are flagged as stalls: how often of late, how many in all."""
    spikes = np.flatnonzero(row.flags & int(Flag.STALL))
    if not spikes.size:
        return None
    return finding(
        Code.STALLS,
        count=int(spikes.size) if row.n_stalls is None else row.n_stalls,
        share=float(spikes.size / row.window_ns.size),
        longest_ns=int(row.window_ns[spikes].max()),
    )


def two_modes(modes: Modes | None) -> Finding | None:
    """Two peaks with a valley between them."""
    if modes is None:
        return None
    return finding(
        Code.TWO_MODES,
        low_ns=modes.low * NS_PER_S,
        high_ns=modes.high * NS_PER_S,
        share_high=modes.share_high,
        is_median_stable=modes.minor_share < _MAJOR_SHARE,
    )


def cached_result(window_ns: IntArray, floor_ns: int | None) -> Finding | None:
    """Most windows are as short as empty ones: an answer is kept, or nothing is done."""
    signs = implausible(window_ns.astype(np.float64), float(floor_ns or 0))
    if signs is None:
        return None
    return finding(
        Code.CACHED_RESULT, share_at_floor=signs.share_at_floor, first_ratio=signs.first_ratio
    )


# -- the caches


def cold_that_is_warm(
    *, inner: int, is_cold_each: bool, flush_bytes: int, cache_bytes: int | None
) -> Finding | None:
    """Cold was asked for, but most calls find what the one before left, or the flush is small."""
    if inner > 1 and not is_cold_each:
        return finding(Code.COLD_THAT_IS_WARM, reason=f"1 of {inner} calls is flushed", inner=inner)
    if cache_bytes is not None and flush_bytes < cache_bytes:
        return finding(
            Code.COLD_THAT_IS_WARM,
            reason="the flush is smaller than the cache",
            flush_bytes=flush_bytes,
            cache_bytes=cache_bytes,
        )
    return None


def fits_in_cache(rotated_bytes: int | None, cache_bytes: int | None) -> Finding | None:
    """A rotation set below twice the cache: it stays in it, so the row is warm."""
    if rotated_bytes is None or cache_bytes is None or rotated_bytes >= 2 * cache_bytes:
        return None
    return finding(Code.FITS_IN_CACHE, rotated_bytes=rotated_bytes, cache_bytes=cache_bytes)


# -- what priming shows


class Longer(NamedTuple):
    """How some looks compare with those at a baseline."""

    chance: float
    """Of seeing so many long ones, were there no difference (Fisher's exact test, one-sided)."""
    is_more_often: bool
    """Whether long ones are more frequent than in the baseline."""


def longer(looks_ns: Sequence[float], base_ns: Sequence[float], limit_ns: float) -> Longer:
    """Whether looks exceed the least of the baseline by `limit_ns` more often than the baseline.

    A busy host makes any of them long, but either kind alike.
    """
    limit = min(base_ns) + limit_ns
    long = sum(ns > limit for ns in looks_ns)
    of_base = sum(ns > limit for ns in base_ns)
    n, m = len(looks_ns), len(base_ns)
    all_long = long + of_base
    ways = sum(
        math.comb(n, k) * math.comb(m, all_long - k) for k in range(long, min(n, all_long) + 1)
    )
    return Longer(ways / math.comb(n + m, all_long), long * m > of_base * n)


def outside_limit(base_ns: Sequence[float], calls: int) -> float:
    """What a synchronise must take beyond the least of the baseline to tell of work elsewhere."""
    low, quarter = (float(q) for q in np.quantile(base_ns, [0.0, 0.25]))
    return max(calls * OUTSIDE_LEAST_NS, _SYNC_JITTER * low, 3 * (quarter - low))


def outside_stream(
    after_end_ns: Sequence[float], window_ns: float, base_ns: Sequence[float], calls: int = 1
) -> Finding:
    """Work went on after the end event: it ran on another stream, outside the window.

    `after_end_ns` are synchronises after the end of so many calls, `base_ns` others after work that
    was all in the stream.
    """
    low = min(base_ns)
    return finding(
        Code.WORK_OUTSIDE_THE_STREAM,
        after_end_ns=round(statistics.median(after_end_ns) - low),
        window_ns=round(window_ns),
        sync_ns=round(low),
        calls=calls,
        looks=len(after_end_ns),
    )


def synchronises(
    warned: int, host_ns: float, host_behind_ns: float | None, spin_ns: float
) -> Finding | None:
    """A callable that waits for the device.

    Either torch's sync-debug mode named calls, or the callable took longer on the host by about
    the spin that had been put before it.
    """
    if warned:
        return finding(Code.SYNCHRONISES, calls=warned, seen_by="torch's sync debug mode")
    if host_behind_ns is None or host_behind_ns - host_ns < 0.7 * spin_ns:
        return None
    return finding(
        Code.SYNCHRONISES,
        host_ns=round(host_ns),
        host_behind_spin_ns=round(host_behind_ns),
        spin_ns=round(spin_ns),
        seen_by="host time behind a spin",
    )


def memory_grows(allocated: Sequence[int], calls: int = 1) -> Finding | None:
    """Allocated bytes, each `calls` calls after the one before: every time more was left behind."""
    steps = [b - a for a, b in itertools.pairwise(allocated)]
    if len(steps) < 3 or min(steps) <= 0:
        return None
    return finding(Code.MEMORY_GROWS, bytes_per_call=min(steps) // calls, calls=calls * len(steps))


# -- the surroundings


def distortions(
    environ: Mapping[str, str], *, is_profiling: bool, is_anomaly: bool
) -> list[Finding]:
    """What makes every number describe something else: it belongs into a banner."""
    found = []
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        value = environ.get(name, "")
        if value not in ("", "0"):
            found.append(finding(Code.LAUNCH_BLOCKING, variable=name, value=value))
    if is_profiling:
        found.append(finding(Code.PROFILER_ON))
    if is_anomaly:
        found.append(finding(Code.ANOMALY_DETECTION))
    return found


# -- callables that cannot be timed for what they do


class BenchFault(UsvError):
    """A callable that measures nothing, or that would spoil the rows beside it."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind
        """In a word or two: coroutine, generator, changes device …"""


def event_fault(window_ns: float, host_ns: float, bracket_ns: float) -> BenchFault | None:
    """Whether a window cannot be true of a call that the host saw begin and end.

    The bracket begins before the start event was asked for, and ends when the end event was waited
    for: a window cannot be longer, and what of it is neither window nor the host's own time is the
    way to the device and back.
    """
    lost_ns = bracket_ns - host_ns - window_ns
    if window_ns > _BRACKET * bracket_ns + LAG_NS:
        words = "more than there was"
    elif lost_ns > LAG_NS and lost_ns > _BRACKET * window_ns:
        words = "as if they were stamped when they were asked for"
    else:
        return None
    return BenchFault(
        "event times",
        f"the device's events read {window_ns / 1e6:.4g} ms of a call that the host saw end after "
        f"{bracket_ns / 1e6:.4g} ms: {words}",
        "--timer wall takes the host's clock, which waits for the device",
    )


def vet_result(result: object) -> BenchFault | None:
    """What a callable returned tells whether anything ran; None when it did."""
    if inspect.iscoroutine(result):
        result.close()
        return BenchFault("coroutine", "fn returned a coroutine: nothing ran", "run it inside fn")
    if isinstance(result, types.GeneratorType | types.AsyncGeneratorType):
        return BenchFault("generator", "fn returned a generator: nothing ran", "exhaust it in fn")
    if isinstance(result, map | filter | zip):
        name = type(result).__name__
        return BenchFault("lazy", f"fn returned a {name} object: nothing ran", "exhaust it in fn")
    if inspect.isawaitable(result):
        return BenchFault("awaitable", "fn returned an awaitable: its work is not waited for")
    return None


class DeviceState(NamedTuple):
    """What a callable must leave as it found it: it is per thread and shared by all rows."""

    device: int
    stream: int
    is_capturing: bool
    is_grad_enabled: bool


def vet_state(before: DeviceState, after: DeviceState, kind: str = "cuda") -> BenchFault | None:
    """Whether a call has changed what the rows beside it depend on."""
    is_cuda = kind == "cuda"
    if after.is_capturing and not before.is_capturing:
        return BenchFault(
            "leaves a capture open",
            "fn left its stream capturing a graph: nothing runs any more",
            "end the capture inside fn",
        )
    if after.device != before.device:
        return BenchFault(
            "changes device",
            f"fn changed the current device from {before.device} to {after.device}",
            f"use `with torch.{'cuda.device' if is_cuda else 'accelerator.device_index'}(...)`",
        )
    if after.stream != before.stream:
        return BenchFault(
            "changes stream",
            "fn changed the current stream",
            f"use `with {'torch.cuda.stream(...)' if is_cuda else 'stream:'}`, "
            "and give the benchmark its `stream`",
        )
    if after.is_grad_enabled != before.is_grad_enabled:
        return BenchFault(
            "changes grad mode",
            f"fn left grad mode {'on' if after.is_grad_enabled else 'off'} for all rows",
            "use `with torch.no_grad()`",
        )
    return None


_GONE = ("setstorage", "storage of size 0", "storage has been freed", "data is not allocated")


def failure_kind(error: BaseException, good_calls: int = 0) -> str:
    """The kind of a row's failure: the class of the exception, or what is behind it.

    After good calls, an input that is gone says that the callable consumed it.
    """
    if isinstance(error, BenchFault) or isinstance(getattr(error, "kind", None), str):
        return str(error.kind)  # type: ignore[attr-defined]
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "oom"
    try:
        text = str(error).lower()
    except Exception:  # noqa: BLE001  the text is made by the user's class
        text = ""
    is_gone = isinstance(error, NameError | ReferenceError | IndexError | KeyError) or any(
        sign in text for sign in _GONE
    )
    if good_calls and is_gone:
        return "frees its inputs"
    return type(error).__name__

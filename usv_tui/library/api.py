"""`do_bench` and `do_bench_many`: usv's functions, run by the same timers as the screen.

One thread, the caller's, does all of it: prime, calibrate, warm up, then blocks of samples whose
handles in flight the timer bounds.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from usv_tui.library import arguments
from usv_tui.library.arguments import BadValue
from usv_tui.library.group import Group
from usv_tui.library.measurement import BenchmarkFailed, Measurement
from usv_tui.library.timer_selection import Place, engine_timer, flusher, warn


def do_bench(
    fn: Callable[[], object],
    *,
    warmup: int = 50,
    iters: int = 100,
    inner: int | str = 1,
    target_window_s: float = 1e-3,
    min_warmup_time: float | None = None,
    min_iters_time: float | None = None,
    cache_flush: bool = False,
    flush_mb: int | None = None,
    lock_clocks: bool = False,
    timer: Any = "auto",
    name: str = "",
    flops: float | None = None,
    bytes: float | None = None,  # noqa: A002  usv's name for it
) -> Measurement:
    """Time one callable; the arguments are those of `do_bench_many`.

    Raises:
        Exception: whatever the callable raises.
    """
    try:
        results = do_bench_many(
            {name: fn},
            warmup=warmup,
            iters=iters,
            inner=inner,
            target_window_s=target_window_s,
            min_warmup_time=min_warmup_time,
            min_iters_time=min_iters_time,
            cache_flush=cache_flush,
            flush_mb=flush_mb,
            lock_clocks=lock_clocks,
            timer=timer,
            flops=None if flops is None else {name: flops},
            bytes=None if bytes is None else {name: bytes},
        )
    except BenchmarkFailed as failed:
        error = failed.errors[name]
    else:
        return results[name]
    raise error


def _lock(stack: contextlib.ExitStack, place: Place) -> str:
    """Hold the clocks of the device while the stack is open, where that can be done; how it is."""
    if place.kind in ("cpu", "cuda"):
        fixed = importlib.import_module("usv_tui.library.fixed")
        state = stack.enter_context(fixed.clocks_locked_if_possible(device=place.ordinal))
        mhz, reason = state.locked_mhz, state.reason
    else:
        mhz, reason = None, f"the clocks of {place.kind} cannot be held"
    if mhz is not None:
        return f"locked {mhz} MHz"
    warn(f"lock_clocks: measuring unlocked: {reason}")
    return f"unlocked: {reason}"


def do_bench_many(
    fns: Mapping[str, Callable[[], object]],
    *,
    warmup: int = 50,
    iters: int = 100,
    inner: int | str = 1,
    target_window_s: float = 1e-3,
    min_warmup_time: float | None = None,
    min_iters_time: float | None = None,
    interleave: bool = False,
    cache_flush: bool = False,
    flush_mb: int | None = None,
    lock_clocks: bool = False,
    timer: Any = "auto",
    flops: Mapping[str, float] | None = None,
    bytes: Mapping[str, float] | None = None,  # noqa: A002  usv's name for it
    seed: int = 0,
    cache: str = "warm",
) -> dict[str, Measurement]:
    """Time several callables, each `iters` samples of `inner` calls; the first call is discarded.

    Args:
        fns: what to time, by name.
        warmup: untimed calls of each before its samples.
        iters: samples of each.
        inner: calls in one timed window; "auto" fills `target_window_s`.
        target_window_s: length of a window that "auto" aims at, in seconds.
        min_warmup_time: warm up for at least so many seconds of work.
        min_iters_time: sample for at least so many seconds of work; a fast callable then takes
            more samples, up to `MOST_SAMPLES` (a warning says so).
        interleave: take samples in shuffled rounds in which every callable takes part until the
            end, so that a drift of the clock falls on all alike; otherwise one after the other.
        cache_flush: evict the caches before each call. A window of several calls is then timed
            call by call, or refused where the timer cannot.
        flush_mb: how much to write for that, in MiB; default: twice the last-level cache.
        lock_clocks: hold the GPU's clocks while measuring, and put them back in any case. Without
            the rights it measures unlocked: a warning and the measurements' `clocks` say so.
        timer: "auto" (device events where there is a GPU, else the wall clock, with a warning),
            "torch", "wall", or an object with usv's open, value and synchronize.
        flops: floating-point operations of one call, by name.
        bytes: bytes read and written by one call, by name.
        seed: decides the order of the rounds; kept in the measurements.
        cache: what an interleaved callable finds: "warm" (it runs untimed right before each window,
            until it is as it is alone), or "as-is" (whatever its neighbours left).

    Raises:
        BenchmarkFailed: a callable raised; the others' measurements are in its `results`.
        BadKind, BadValue: a wrong argument (a TypeError, a ValueError).
        UsvError: the timer or the flush cannot be had.
    """
    arguments.callables(fns)
    warmup, iters = arguments.whole("warmup", warmup, 0), arguments.whole("iters", iters, 0)
    if flush_mb is not None:
        flush_mb = arguments.whole("flush_mb", flush_mb, 1)
    for name, value in (
        ("target_window_s", target_window_s),
        ("min_warmup_time", min_warmup_time),
        ("min_iters_time", min_iters_time),
    ):
        arguments.seconds(name, value)
    arguments.work("flops", flops)
    arguments.work("bytes", bytes)
    seed = arguments.whole("seed", seed, 0)
    if cache not in ("warm", "as-is"):
        raise BadValue(f"cache={cache!r}", '"warm" or "as-is"; cache_flush=True makes it cold')
    engine, place = engine_timer(timer)
    clocks = ""
    with contextlib.ExitStack() as stack:
        if lock_clocks:
            clocks = _lock(stack, place)
        flush, label = flusher(place, flush_mb) if cache_flush else (None, cache)
        group = Group(engine, fns, flush)
        group.prime()
        wants_warm = interleave and cache == "warm" and not cache_flush
        timed = (
            wants_warm
            or inner == "auto"
            or min_warmup_time is not None
            or min_iters_time is not None
        )
        group.set_inner(inner, target_window_s, estimate=timed, is_shared=interleave)
        warmups = group.counts(warmup, min_warmup_time, per_window=False)
        samples = group.counts(iters, min_iters_time, per_window=True)
        if wants_warm:
            group.make_warm(samples, seed)
        group.measure(warmups, samples, seed if interleave else None)
    return group.results(flops or {}, bytes or {}, label, seed if interleave else None, clocks)

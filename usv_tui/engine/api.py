"""`do_bench` and `do_bench_many`: usv's functions, run by the same timers as the screen.

One thread, the caller's, does all of it: prime, calibrate, warm up, then blocks of samples whose
handles in flight the timer bounds.
"""

import contextlib
import gc
import importlib
import importlib.util
import itertools
import math
import runpy
import shutil
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from usv_tui.engine.calibrate import calibrate, prime
from usv_tui.engine.checks import vet_result
from usv_tui.engine.measurement import BenchmarkFailed, Measurement
from usv_tui.engine.schedule import spread
from usv_tui.engine.timers import ForeignTimer, GPUTimer, Slot, Timer, WallClock, WallTimer
from usv_tui.engine.worker import choose_device, make_flusher
from usv_tui.errors import DeviceError, TimerError, UsageError
from usv_tui.model import RunConfig
from usv_tui.records import AnyRecord
from usv_tui.timesource import MonotonicTime

MOST_SAMPLES = 1_000_000
"""Most samples (or warm-up calls) of one callable that a time budget may ask for."""
_MAX_BLOCK = 256
_BLOCK_NS = 20_000_000
"""Blocks grow while they take less than this: a longer one would answer Ctrl-C late."""
_NS_PER_S = 1_000_000_000
_TIMERS = "auto, torch or wall, or an object with open, value and synchronize"


class _BadValue(UsageError, ValueError):
    """A wrong argument, also for programs that catch usv's ValueError."""


class _NoDevice(TimerError, RuntimeError):
    """No device for the timer, also for programs that catch usv's RuntimeError."""


# -- the two functions


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
        lock_clocks: hold the GPU's clocks while measuring, and put them back in any case.
        timer: "auto" (device events where there is a GPU, else the wall clock, with a warning),
            "torch", "wall", or an object with usv's open, value and synchronize.
        flops: floating-point operations of one call, by name.
        bytes: bytes read and written by one call, by name.
        seed: decides the order of the rounds; kept in the measurements.

    Raises:
        BenchmarkFailed: a callable raised; the others' measurements are in its `results`.
        UsvError: the timer, the flush or the lock cannot be had.
    """
    engine, place = _engine_timer(timer)
    with contextlib.ExitStack() as stack:
        if lock_clocks:
            clocks = importlib.import_module("usv_tui.device.fixed")
            stack.enter_context(clocks.fixed_clocks(device=place.ordinal))
        flush, cache = _flusher(place, flush_mb) if cache_flush else (None, "warm")
        group = _Group(engine, fns, flush)
        group.prime()
        if timer == "wall" and place.sync is None and (sync := device_sync()) is not None:
            # The first call brought the device up: from here on the wall clock waits for it.
            group.timer = WallTimer(engine.info.reason, sync)
        timed = inner == "auto" or min_warmup_time is not None or min_iters_time is not None
        group.set_inner(inner, target_window_s, estimate=timed)
        warmups = group.counts(warmup, min_warmup_time, per_window=False)
        samples = group.counts(iters, min_iters_time, per_window=True)
        group.measure(warmups, samples, seed if interleave else None)
    label = cache if flush is None else "cold"
    return group.results(flops or {}, bytes or {}, label, seed if interleave else None)


# -- timers


class _Place(NamedTuple):
    """Where the work is."""

    device: str
    torch: Any = None
    sync: Callable[[], object] | None = None

    @property
    def ordinal(self) -> int:
        """The number that torch gives the GPU; 0 for a CPU."""
        return int(self.device.partition(":")[2] or 0)


_said_wall = False


def get_timer(backend: str = "auto") -> GPUTimer:
    """A timer by name: "torch" (device events), "wall", or "auto" for the better of the two.

    Raises:
        TimerError: "torch" without a GPU.
        UsageError: no such name.
    """
    if backend not in ("auto", "torch", "wall"):
        raise _BadValue(f"no timer is named {backend!r}", _TIMERS)
    if backend != "wall":
        place = _gpu_or_none(backend)
        if place is not None:
            torch_clock = importlib.import_module("usv_tui.engine.torch_clock")
            clock: GPUTimer = torch_clock.TorchClock(place.torch)
            return clock
    return DeviceWallClock()


def device_sync() -> Callable[[], object] | None:
    """What waits for the GPU that this process uses; None when it uses none (yet)."""
    torch = sys.modules.get("torch")  # who has work on a GPU has imported torch already
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    wait: Callable[[], object] = cuda.synchronize
    return wait


class DeviceWallClock(WallClock):
    """The wall clock behind usv's protocol; it waits for a GPU in use at both ends of a window."""

    def synchronize(self) -> None:
        """Wait for the device, when one is in use."""
        (device_sync() or _nothing)()

    def open(
        self,
        fn: Callable[[], object],
        inner: int = 1,
        before: Callable[[], object] | None = None,
    ) -> float:
        """Time one sample at once."""
        sync = device_sync()
        if sync is None:
            return super().open(fn, inner, before)
        if before is not None:
            before()
        sync()
        start = time.perf_counter_ns()
        for _ in itertools.repeat(None, inner):
            fn()
        sync()
        return (time.perf_counter_ns() - start) / inner * 1e-9


def gpu_vendor() -> str | None:
    """The vendor that torch was built for, else whose tool is installed: nvidia, amd or None."""
    build = _torch_build()
    if build.get("hip"):
        return "amd"
    if build.get("cuda") or shutil.which("nvidia-smi"):
        return "nvidia"
    return "amd" if shutil.which("amd-smi") or shutil.which("rocm-smi") else None


def _torch_build() -> dict[str, Any]:
    """`torch.version` without importing torch, which would take a second and start a device."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    file = Path(spec.origin).with_name("version.py")
    return runpy.run_path(str(file)) if file.is_file() else {}


def _choose(wanted: str) -> _Place:
    device, _, _, torch = choose_device(wanted, _ignore, MonotonicTime())
    return _Place(device, torch)


def _ignore(record: AnyRecord) -> None:
    """There is no session to tell."""


def _nothing() -> None:
    pass


def _gpu_or_none(backend: str) -> _Place | None:
    """The GPU for "torch" and "auto"; for "auto" None and a warning when there is none."""
    if backend == "torch":
        try:
            return _choose("cuda")
        except DeviceError as error:
            raise _NoDevice(f"timer='torch': {error.message}", error.hint) from error
    place = _choose("auto")
    if place.device != "cpu":
        return place
    global _said_wall  # noqa: PLW0603  once a process is enough
    if not _said_wall:
        _said_wall = True
        _warn("no GPU in use: timing with the wall clock (timer='wall' says so without warning)")
    return None


def _engine_timer(timer: Any) -> tuple[Timer, _Place]:
    """The engine's timer for what the caller asked for, and where the work is.

    Raises:
        UsageError: no such timer.
        TimerError: it cannot be had here.
    """
    if isinstance(timer, str) and timer in ("auto", "torch"):
        place = _gpu_or_none(timer)
        if place is not None:
            events = importlib.import_module("usv_tui.engine.events")
            return events.EventTimer(torch=place.torch, probe=False), place
        return WallTimer("no GPU: the work is on the host"), _Place("cpu")
    here = _place_in_use()
    if timer == "wall":
        return WallTimer("asked for", here.sync), here
    if all(hasattr(timer, name) for name in ("enqueue", "harvest", "info")):
        return timer, here
    if all(hasattr(timer, name) for name in ("open", "value", "synchronize")):
        return ForeignTimer(timer), here
    raise _BadValue(f"no timer is {timer!r}", _TIMERS)


def _place_in_use() -> _Place:
    sync = device_sync()
    if sync is None:
        return _Place("cpu")
    torch = sys.modules["torch"]
    return _Place(f"cuda:{torch.cuda.current_device()}", torch, sync)


def _flusher(place: _Place, flush_mb: int | None) -> tuple[Callable[[], object] | None, str]:
    """What evicts the caches, or None and the word `unavailable` with a warning why."""
    found = make_flusher(RunConfig(device=place.device, flush_mb=flush_mb), place.torch)
    if found.flush is None:
        _warn(f"caches are not flushed: {found.reason}")
        return None, "unavailable"
    return found.flush, "cold"


def _warn(message: str) -> None:
    """A UserWarning at the line that called into this package."""
    level = 2
    frame = sys._getframe(1)  # noqa: SLF001  the only way to find the caller's line before 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("usv_tui."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


# -- one group


class _Row:
    """One callable while it is measured."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.name = name
        self.slot = slot
        self.per_call_ns = 0.0
        self.windows = array("q")
        self.error: BaseException | None = None


class _Group:
    """The callables of one call of `do_bench_many`."""

    def __init__(
        self,
        timer: Timer,
        fns: Mapping[str, Callable[[], object]],
        flush: Callable[[], object] | None,
    ) -> None:
        self.timer = timer
        self.rows = [
            _Row(name, Slot(i, fn, flush=flush)) for i, (name, fn) in enumerate(fns.items())
        ]
        self._enqueued = 0
        self._collected = 0

    @property
    def _live(self) -> list[_Row]:
        return [row for row in self.rows if row.error is None]

    def _fail(self, row: _Row, error: BaseException) -> None:
        """Retire a row; what is no `Exception` (Ctrl-C, exit) ends everything."""
        if not isinstance(error, Exception):
            raise error
        row.error = error

    def prime(self) -> None:
        """The first call of each row, discarded."""
        for row in self.rows:
            first = prime(self.timer, row.slot)
            if first.error is not None:
                self._fail(row, first.error)
            elif (fault := vet_result(first.result)) is not None:
                _warn(f"{row.name or 'the callable'}: {fault}")

    def set_inner(self, inner: int | str, target_s: float, *, estimate: bool) -> None:
        """Calls in a window of each row, and what one call takes when that is needed."""
        try:
            fixed = None if inner == "auto" else max(1, int(inner))
        except ValueError:
            raise _BadValue(f"inner={inner!r}", 'a whole number from 1, or "auto"') from None
        if fixed is not None and fixed > 1 and any(row.slot.flush for row in self.rows):
            if isinstance(self.timer, ForeignTimer):
                raise _BadValue(
                    f"cache_flush with inner={fixed}: only the first call would be cold",
                    "use inner=1, or a timer of this package, which times each call by itself",
                )
            for row in self.rows:
                row.slot.cold_each = True
        for row in self._live:
            row.slot.inner = fixed or 1
            if not estimate:
                continue
            found = calibrate(self.timer, row.slot, target_s, inner=fixed)
            if found.error is not None:
                self._fail(row, found.error)
                continue
            row.slot.inner = found.inner
            row.per_call_ns = found.per_call_ns

    def counts(self, floor: int, min_s: float | None, *, per_window: bool) -> dict[Slot, int]:
        """How many windows (or single calls) each live row takes: `floor`, or for `min_s`."""
        found: dict[Slot, int] = {}
        for row in self._live:
            found[row.slot] = max(0, int(floor))
            unit_ns = row.per_call_ns * (row.slot.inner if per_window else 1)
            if min_s is None or unit_ns <= 0:
                continue
            wanted = math.ceil(min_s * _NS_PER_S / unit_ns)
            if wanted > MOST_SAMPLES:
                _warn(
                    f"{row.name or 'the callable'}: {min_s:g} s would take {wanted:,} samples; "
                    f"{MOST_SAMPLES:,} are taken (inner='auto' makes each longer)"
                )
            found[row.slot] = max(found[row.slot], min(wanted, MOST_SAMPLES))
        return found

    def measure(self, warmups: dict[Slot, int], samples: dict[Slot, int], seed: int | None) -> None:
        """Warm up and sample: all together with a seed, else one after the other."""
        if seed is not None:
            self._warm_up(warmups, seed)
            self._sample(spread(samples, seed))
            return
        for row in self.rows:
            slot = row.slot
            if row.error is None:
                self._warm_up({slot: warmups[slot]}, 0)
            if row.error is None:
                self._sample([slot] for _ in range(samples[slot]))

    def _warm_up(self, counts: dict[Slot, int], seed: int) -> None:
        for order in spread(counts, seed):
            for slot in order:
                row = self.rows[slot.bench]
                if row.error is not None:
                    continue
                try:
                    slot.fn()
                except BaseException as error:  # noqa: BLE001  a callable may raise anything
                    self._fail(row, error)
        try:
            self.timer.synchronize()
        except Exception as error:  # noqa: BLE001  a device's error comes to light here
            self._lose_device(error)

    def _sample(self, rounds: Iterator[list[Slot]]) -> None:
        """Blocks of windows, longer and longer while they are quick."""
        order = itertools.chain.from_iterable(rounds)
        size, queue = 1, list[Slot]()
        while True:
            queue += itertools.islice(order, size - len(queue))
            if not queue:
                break
            start = time.perf_counter_ns()
            queue = self._block([s for s in queue if self.rows[s.bench].error is None])
            is_quick = time.perf_counter_ns() - start < _BLOCK_NS
            size = min(_MAX_BLOCK, size * 2) if is_quick else max(1, size // 2)
        self._collect(wait=True)

    def _block(self, slots: list[Slot]) -> list[Slot]:
        """Time these; returns the ones that a failure among them left out."""
        if not slots:
            return []
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            failure = self.timer.enqueue(0, slots)
        finally:
            if was_enabled:
                gc.enable()
        if failure is None:
            self._enqueued += len(slots)
            self._collect(wait=False)
            return []
        slot, error = failure
        if self.rows[slot.bench].error is not None:
            self._lose_device(error)  # a row that is not timed any more: so nothing is
            return []
        self._fail(self.rows[slot.bench], error)
        self._collect(wait=True)
        done = self._collected - self._enqueued
        self._enqueued = self._collected
        return slots[done + 1 :]

    def _collect(self, *, wait: bool) -> None:
        try:
            records = self.timer.harvest(wait=wait)
        except Exception as error:  # noqa: BLE001  a device's error comes to light here
            self._lose_device(error)
            return
        for record in records:
            self._collected += len(record.bench)
            for bench, window_ns in zip(record.bench, record.window_ns, strict=True):
                self.rows[bench].windows.append(window_ns)

    def _lose_device(self, error: BaseException) -> None:
        """Nothing more can be read: every row that is not failed yet has this error."""
        for row in self._live:
            row.error = error

    def results(
        self,
        flops: Mapping[str, float],
        bytes_: Mapping[str, float],
        cache: str,
        seed: int | None,
    ) -> dict[str, Measurement]:
        """The measurements by name.

        Raises:
            BenchmarkFailed: with these measurements, when a row failed.
        """
        found = {
            row.name: Measurement(
                samples=np.array(row.windows, dtype=np.float64) / row.slot.inner / _NS_PER_S,
                name=row.name,
                inner=row.slot.inner,
                flops=flops.get(row.name),
                bytes=bytes_.get(row.name),
                timer=self.timer.info.name,
                cache=cache,
                seed=seed,
            )
            for row in self._live
        }
        for measurement in found.values():
            _warn_of_empty_windows(measurement)
        errors = {row.name: row.error for row in self.rows if row.error is not None}
        if errors:
            raise BenchmarkFailed(found, errors) from next(iter(errors.values()))
        return found


def _warn_of_empty_windows(measurement: Measurement) -> None:
    empty = int((measurement.samples <= 0).sum())
    if empty:
        _warn(
            f"{measurement.name or 'the callable'}: {empty} of {measurement.n} windows are zero or "
            "negative: the timer cannot resolve them (raise inner)"
        )

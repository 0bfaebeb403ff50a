"""The callables of one call of `do_bench_many`: primed, calibrated, warmed up and sampled."""

import gc
import itertools
import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from usv_tui.diagnosis.checks import vet_result
from usv_tui.engine.calibrate import calibrate, prime, shared_inner
from usv_tui.engine.schedule import spread
from usv_tui.engine.warmth import Patient, first_refill, look
from usv_tui.library.arguments import BadValue, whole
from usv_tui.library.measurement import BenchmarkFailed, Measurement
from usv_tui.library.timer_selection import warn
from usv_tui.records import Noted
from usv_tui.report.wording.notices import sentence
from usv_tui.timers.wall import ForeignTimer, Slot, Timer

MOST_SAMPLES = 1_000_000
"""Most samples (or warm-up calls) of one callable that a time budget may ask for."""
_MAX_BLOCK = 256
_BLOCK_NS = 20_000_000
"""Blocks grow while they take less than this: a longer one would answer Ctrl-C late."""
_LOOK_SHARE = 0.1
"""Share of the sampling's time that looking for what the neighbours evict may take."""
_NS_PER_S = 1_000_000_000


_INNER = 'a whole number from 1, or "auto"'


class _Row:
    """One callable while it is measured."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.name = name
        self.slot = slot
        self.per_call_ns = 0.0
        self.windows = array("q")
        self.error: BaseException | None = None
        self.is_warm = True
        """False when its neighbours' windows leave it slower than it is alone, or may do so."""


class Group:
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
                warn(f"{row.name or 'the callable'}: {fault}")
        for record in self.timer.beside():
            if isinstance(record, Noted) and record.notice.level == "warn":
                warn(sentence(record.notice))

    def set_inner(
        self, inner: int | str, target_s: float, *, estimate: bool, is_shared: bool = False
    ) -> None:
        """Calls in a window of each row, and what one call takes when that is needed."""
        fixed = None if inner == "auto" else max(1, whole("inner", inner, 0, _INNER))
        if fixed is not None and fixed > 1 and any(row.slot.flush for row in self.rows):
            if isinstance(self.timer, ForeignTimer):
                raise BadValue(
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
        if is_shared and fixed is None:
            self._share_inner(target_s)

    def _share_inner(self, target_s: float) -> None:
        """Identical code gets identical windows; a flush or a timer that shows nothing keeps 1."""
        rows = self._live
        pins = [1 if row.slot.flush else None for row in rows]
        costs = [row.per_call_ns for row in rows]
        for row, calls in zip(rows, shared_inner(costs, pins, target_s), strict=True):
            row.slot.inner = calls

    def make_warm(self, samples: Mapping[Slot, int], seed: int) -> None:
        """Let each row run untimed before its windows, since those of others lie between them."""
        patients = [Patient(row.slot, row.per_call_ns) for row in self._live]
        if len(patients) < 2 or any(row.slot.flush for row in self.rows):
            return
        for patient in patients:
            patient.slot.set_refill(first_refill(patient.slot, patient.per_call_ns))
            patient.wants_warm = patient.slot.refill > 0
        work_ns = sum(p.per_call_ns * p.slot.inner * samples[p.slot] for p in patients)
        failure = look(
            self.timer,
            patients,
            time.perf_counter_ns,
            budget_ns=min(_NS_PER_S, _LOOK_SHARE * work_ns),
            seed=seed,
        )
        if failure is not None:
            self._fail(self.rows[failure[0].bench], failure[1])
        for patient in patients:
            row = self.rows[patient.slot.bench]
            row.is_warm = patient.wants_warm and (patient.excess or 0.0) <= 0

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
                warn(
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
            queue += itertools.islice(order, max(0, size - len(queue)))
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
        add = [row.windows.append for row in self.rows]
        for record in records:
            self._collected += len(record.bench)
            for bench, window_ns in zip(record.bench, record.window_ns, strict=True):
                add[bench](window_ns)

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
        clocks: str = "",
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
                cache=cache if row.is_warm or cache != "warm" else "not warm",
                clocks=clocks,
                seed=seed,
            )
            for row in self._live
        }
        for measurement in found.values():
            _tell_empty_windows(measurement)
        errors = {row.name: row.error for row in self.rows if row.error is not None}
        if errors:
            raise BenchmarkFailed(found, errors) from next(iter(errors.values()))
        return found


def _tell_empty_windows(measurement: Measurement) -> None:
    empty = int((measurement.samples <= 0).sum())
    if empty:
        warn(
            f"{measurement.name or 'the callable'}: {empty} of {measurement.n} windows are zero or "
            "negative: the timer cannot resolve them (raise inner)"
        )

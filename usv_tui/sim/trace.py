"""A whole run at once, as arrays, with the truth beside it: the test bed of the statistics."""

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from usv_tui.model import Flag
from usv_tui.sim.kernels import KernelNoise, SimKernel
from usv_tui.sim.machine import Item, Machine
from usv_tui.sim.physics import equilibrium, nearest_index
from usv_tui.sim.profiles import Card, find_card
from usv_tui.sim.scenarios import Scenario, find_scenario
from usv_tui.sim.sensors import Sensors

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_COLUMNS = (
    ("sm_mhz", "sm_mhz", 1.0),
    ("low_mhz", "sm_mhz_min", 1.0),
    ("temp_c", "temp_c", 1.0),
    ("power_w", "power_mw", 1e-3),
    ("reasons", "reasons", 1.0),
    ("power_capped_ns", "power_capped_ns", 1.0),
    ("thermal_ns", "thermal_ns", 1.0),
    ("hw_thermal_ns", "hw_thermal_ns", 1.0),
)
"""(column of a trace, field of a look at the sensors, factor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Samples in time order, sensor readings, and what was true. Missing readings are NaN."""

    card: Card
    """As the scenario has it."""
    scenario: Scenario
    kernels: tuple[SimKernel, ...]
    seed: int

    round: IntArray
    bench: IntArray
    """Index into `kernels`."""
    slot: IntArray
    t_ns: IntArray
    """Start of the window."""
    window_ns: IntArray
    """As the event timer reports it, quantised."""
    inner: IntArray
    flags: IntArray
    seconds: FloatArray
    """Per call, from `window_ns`."""
    clock_mhz: FloatArray
    """True mean clock during the window."""

    read_ns: IntArray
    sm_mhz: FloatArray
    low_mhz: FloatArray
    """Of the slowest chiplet."""
    temp_c: FloatArray
    power_w: FloatArray
    reasons: FloatArray
    power_capped_ns: FloatArray
    """Counter: time under the power cap, as the sensors show it."""
    thermal_ns: FloatArray
    hw_thermal_ns: FloatArray

    tick_ns: int
    """Length of a governor tick; tick i covers [i, i + 1) of these."""
    true_mhz: FloatArray
    true_temp_c: FloatArray
    true_power_w: FloatArray
    true_reasons: IntArray

    def row(self, bench: int) -> tuple[IntArray, IntArray, FloatArray]:
        """(round, t_ns, seconds) of one kernel."""
        mine = self.bench == bench
        return self.round[mine], self.t_ns[mine], self.seconds[mine]

    def local_alpha(self, bench: int) -> float:
        """True -d log t / d log f of a kernel at the run's median clock."""
        return self.kernels[bench].local_alpha(self.card, float(np.median(self.clock_mhz)))

    def true_ratio(self, bench: int, baseline: int, mhz: float | None = None) -> float:
        """Noise-free time of a kernel over that of another at one clock (default: the median)."""
        at_mhz = float(np.median(self.clock_mhz)) if mhz is None else mhz
        one, other = self.kernels[bench], self.kernels[baseline]
        return one.seconds(self.card, at_mhz) / other.seconds(self.card, at_mhz)


def build_machine(card: Card, scenario: Scenario, seed: int, *, keep_all: bool = False) -> Machine:
    """A machine in a scenario's initial state; `card` is already fitted to the scenario."""
    machine = Machine(card, seed, scenario.neighbours, keep_all=keep_all)
    board = machine.board
    locked = scenario.lock or scenario.foreign_lock
    if locked is not None:
        board.lock_index = nearest_index(card, locked(card))
    if scenario.warm:
        always_w = sum(
            n.power * card.cap_w
            for n in scenario.neighbours
            if n.start_s == 0.0 and math.isinf(n.on_s)
        )
        board.warm(scenario.activity(card), always_w)
    return machine


def trace(
    scenario: str | Scenario,
    card: str | Card = "h100",
    seed: int = 0,
    duration_s: float | None = None,
    *,
    kernels: Sequence[SimKernel] | None = None,
    interleave: bool = True,
    inner: int = 1,
    lock_mhz: int | None = None,
    poll_hz: float = 20.0,
    poll_jitter: float = 0.2,
) -> Trace:
    """Run a scenario for `duration_s` (default: the scenario's own) and return everything.

    With `interleave` every round visits each kernel once, in a shuffled order; without it each
    kernel's samples are taken in one block after the other. `lock_mhz` is a lock that takes
    effect, whatever the scenario says of locks.

    Raises:
        UsageError: unknown scenario or card.
    """
    plan = find_scenario(scenario) if isinstance(scenario, str) else scenario
    fitted = plan.fit(find_card(card) if isinstance(card, str) else card)
    if kernels is not None:
        plan = replace(plan, kernels=tuple(kernels))
    if lock_mhz is not None:
        plan = replace(plan, lock=lambda _card: lock_mhz, foreign_lock=None)
    span_s = plan.duration_s if duration_s is None else duration_s
    # As many samples as a lasting load would take; more, from the start, where they ran out.
    lasting_mhz = 1.1 * equilibrium(fitted, plan.activity(fitted)).mhz
    with _no_collection():
        for mhz in (min(lasting_mhz, fitted.max_mhz), fitted.max_mhz):
            order = _order(plan.kernels, fitted, seed, span_s, mhz, inner, interleave=interleave)
            machine = build_machine(fitted, plan, seed, keep_all=True)
            items = _items(plan.kernels, fitted, seed, order, inner)
            machine.streams[0].queue.extend(items)
            machine.advance(span_s)
            if machine.streams[0].queue or not interleave:
                break
        poll = _Poll(span_s, poll_hz, poll_jitter)
        return _harvest(machine, plan, seed, order, items, inner, poll)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A hundred thousand live objects and no cycle: the collector would only look in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Poll:
    span_s: float
    hz: float
    jitter: float


def _order(
    kernels: Sequence[SimKernel],
    card: Card,
    seed: int,
    span_s: float,
    mhz: float,
    inner: int,
    *,
    interleave: bool,
) -> IntArray:
    """Which kernel each sample is of: enough of them to fill the time at a clock."""
    count = len(kernels)
    if interleave:
        rounds = math.ceil(1.05 * span_s / _round_s(kernels, card, mhz, inner)) + 4
        shuffled = np.random.default_rng([seed, 4]).random((rounds, count)).argsort(axis=1)
        return shuffled.astype(np.int64).ravel()
    # Blocks of equal number: the one clock that is known beforehand is the base clock.
    rounds = max(1, math.floor(0.97 * span_s / _round_s(kernels, card, card.base_mhz, inner)))
    return np.repeat(np.arange(count, dtype=np.int64), rounds)


def _round_s(kernels: Sequence[SimKernel], card: Card, mhz: float, inner: int) -> float:
    """Nominal time of a round at a clock: the device's, or the host's where that is longer."""
    event_s = 2e-9 * card.event_ns
    device_s = sum(inner * k.seconds(card, mhz) + event_s for k in kernels)
    host_s = sum(inner * _host_s(k, card) + 2e-9 * card.record_ns for k in kernels)
    return max(device_s, host_s)


def _host_s(kernel: SimKernel, card: Card) -> float:
    return (card.launch_ns if kernel.host_ns is None else kernel.host_ns) * 1e-9


def _items(
    kernels: Sequence[SimKernel], card: Card, seed: int, order: IntArray, inner: int
) -> list[Item]:
    """Start stamp, work and end stamp of every sample, in order."""
    n = len(order)
    fixed_s, cycles, activity, host_s = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    warm: list[tuple[float, float] | None] = [None] * len(kernels)
    for bench, kernel in enumerate(kernels):
        where = np.flatnonzero(order == bench)
        draws = KernelNoise(kernel, seed).take(len(where) * inner)
        factor = draws.factor.reshape(-1, inner).sum(axis=1)
        extra_s = draws.extra_s.reshape(-1, inner).sum(axis=1)
        kernel_fixed_s, kernel_cycles = kernel.split(card)
        fixed_s[where] = kernel_fixed_s * factor + extra_s
        cycles[where] = kernel_cycles * factor
        activity[where] = kernel.activity
        host_s[where] = inner * _host_s(kernel, card)
        if kernel.warm_gain:
            warm[bench] = (kernel.warm_gain, kernel.warm_tau_s)
    record_s, event_s = card.record_ns * 1e-9, card.event_ns * 1e-9
    end_host_s = np.cumsum(host_s + 2 * record_s)
    opened_s = end_host_s - record_s - host_s + card.latency_ns * 1e-9
    launched_s = opened_s + host_s
    closed_s = launched_s + record_s
    items: list[Item] = []
    add = items.append
    for opened, launched, closed, fixed, cycle, act, warmth in zip(
        opened_s.tolist(),
        launched_s.tolist(),
        closed_s.tolist(),
        fixed_s.tolist(),
        cycles.tolist(),
        activity.tolist(),
        map(warm.__getitem__, order.tolist()) if any(warm) else repeat(None, n),
        strict=True,
    ):
        add(Item(opened, event_s))
        add(Item(launched, fixed, cycle, act, warmth))
        add(Item(closed, event_s))
    return items


def _harvest(
    machine: Machine,
    plan: Scenario,
    seed: int,
    order: IntArray,
    items: list[Item],
    inner: int,
    poll: _Poll,
) -> Trace:
    card = machine.card
    count = len(plan.kernels)
    starts_s = np.array([item.start_s for item in items]).reshape(-1, 3)
    ends_s = np.array([item.end_s for item in items[2::3]])
    busy_s = np.array([item.busy_s for item in items]).reshape(-1, 3)
    done = int(np.count_nonzero(ends_s >= 0.0))
    is_blocked = bool(len(order) > 1 and (np.diff(order) >= 0).all() and count > 1)
    if not is_blocked:
        done -= done % count
    starts_s, busy_s, order = starts_s[:done], busy_s[:done], order[:done]
    opened_s, closed_s = starts_s[:, 0], starts_s[:, 2]
    tick_s = card.tick_ns * 1e-9
    window_ns = (
        np.floor(closed_s / tick_s).astype(np.int64) - np.floor(opened_s / tick_s).astype(np.int64)
    ) * card.tick_ns
    gap_s = closed_s - opened_s - (busy_s[:, 1] - busy_s[:, 0]) - card.event_ns * 1e-9
    rounds, slots = np.divmod(np.arange(done, dtype=np.int64), count)
    if is_blocked:
        firsts = np.searchsorted(order, np.arange(count))
        rounds, slots = np.arange(done, dtype=np.int64) - firsts[order], np.zeros(done, np.int64)
    rows = machine.rows
    mhz = np.array([row.mhz for row in rows])
    edges_s = np.arange(len(rows) + 1) * machine.dt_s
    turns = np.concatenate([[0.0], np.cumsum(mhz) * machine.dt_s])
    cycles = np.interp(closed_s, edges_s, turns) - np.interp(opened_s, edges_s, turns)
    read_ns, columns = _readings(machine, plan, seed, poll)
    return Trace(
        card=card,
        scenario=plan,
        kernels=plan.kernels,
        seed=seed,
        round=rounds,
        bench=order,
        slot=slots,
        t_ns=np.rint(opened_s * 1e9).astype(np.int64),
        window_ns=window_ns,
        inner=np.full(done, inner, dtype=np.int64),
        flags=np.where(gap_s > tick_s, int(Flag.STARVED), 0).astype(np.int64),
        seconds=window_ns / inner * 1e-9,
        clock_mhz=cycles / (closed_s - opened_s),
        read_ns=read_ns,
        **columns,
        tick_ns=card.governor_ns,
        true_mhz=mhz,
        true_temp_c=np.array([row.temp_c for row in rows]),
        true_power_w=np.array([row.power_w for row in rows]),
        true_reasons=np.array([row.reasons for row in rows], dtype=np.int64),
    )


def _readings(
    machine: Machine, plan: Scenario, seed: int, poll: _Poll
) -> tuple[IntArray, dict[str, FloatArray]]:
    """The sensors as a poller with some jitter would read them; NaN where there is nothing."""
    card, faults = machine.card, plan.faults
    count = 0 if faults.no_telemetry else math.floor(poll.span_s * poll.hz)
    jitter = np.random.default_rng([seed, 5]).random(count) * poll.jitter
    at_s = (np.arange(count) + jitter) / poll.hz
    sensors = Sensors(card, seed)
    sensed = [sensors.sense(machine.rows, machine.first_row, t) for t in at_s.tolist()]
    columns: dict[str, FloatArray] = {}
    for column, name, scale in _COLUMNS:
        field = "throttle_ns" if name.endswith("_ns") else name
        values = np.array([getattr(s, name) for s in sensed], dtype=np.float64) * scale
        if field in card.missing:
            values = np.full(count, np.nan)
        elif faults.sensors_lost_s is not None and field in faults.lost_sensors:
            values[at_s >= faults.sensors_lost_s] = np.nan
        columns[column] = values
    return np.rint(at_s * 1e9).astype(np.int64), columns

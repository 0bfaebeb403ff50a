"""What a run settles before it measures: calls a window, its length, and what makes a row warm."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from usv_tui.codes import Code
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.engine.calibrate import fewest_window_ns, shared_inner
from usv_tui.engine.warmth import Patient, first_refill, look
from usv_tui.engine.window import DEFAULT_S, LENGTHS_S, Choice, try_lengths
from usv_tui.model import CacheMode
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.engine.row import Row

_MOST_NS = NS_PER_S
"""Longest time for each of the two looks."""
_WARMUP_SHARE = 0.1
_RUN_SHARE = 0.05


def budget_ns(warmup_max_s: float, max_time_s: float | None) -> float:
    """How long one look may last: a part of the warm-up and of the run that are allowed."""
    longest_ns = min(_MOST_NS, _WARMUP_SHARE * warmup_max_s * NS_PER_S)
    if max_time_s is not None:
        longest_ns = min(longest_ns, _RUN_SHARE * max_time_s * NS_PER_S)
    return longest_ns


# -- calls a window


def share_inner(timer: Timer, rows: Sequence["Row"], target_window_s: float) -> dict[int, int]:
    """Calls a window by row: one number for a group and for a control row, where that can be."""
    calls = shared_inner(
        [row.per_call_ns for row in rows],
        [row.slot.inner if row.is_slow and row.slot else row.pinned for row in rows],
        target_window_s,
        groups=[row.bench if row.is_slow else row.benchmark.group or row.name for row in rows],
        fewest_ns=fewest_window_ns(timer),
    )
    found = {row.bench: inner for row, inner in zip(rows, calls, strict=True)}
    for row in rows:
        if row.control_of in found and not row.is_slow:
            found[row.bench] = found[row.control_of]
    return found


def different_inner(row: "Row", base: "Row | None") -> Finding | None:
    """A row whose windows hold another number of calls than its baseline's."""
    if base is None or row.slot is None or base.slot is None or row.slot.inner == base.slot.inner:
        return None
    return finding(
        Code.INNER_DIFFERS, inner=row.slot.inner, base_inner=base.slot.inner, base=base.name
    )


def choose_window(
    timer: Timer,
    rows: Sequence["Row"],
    bases: dict[int, int],
    clock: Callable[[], int],
    *,
    longest_ns: float,
    seed: int,
) -> Choice:
    """Try window lengths on the rows that are compared; `bases` gives each one's baseline."""
    quick = {row.bench for row in rows if not row.is_slow}
    bases = {row: base for row, base in bases.items() if {row, base} <= quick}
    paired = [r for r in rows if r.bench in bases or r.bench in bases.values()]
    if not bases or longest_ns <= 0:
        return Choice(DEFAULT_S)
    return try_lengths(
        timer,
        [row.slot for row in paired if row.slot is not None],
        list(bases.items()),
        {length: share_inner(timer, rows, length) for length in LENGTHS_S},
        clock,
        budget_ns=longest_ns,
        seed=seed,
    )


def window_finding(choice: Choice) -> Finding:
    """The length that was chosen, and what each gave: standard error of a ratio after 1 s."""
    widths = {f"{t.window_s * 1e3:g} ms": t.width for t in choice.trials}
    return finding(Code.WINDOW_CHOSEN, window_s=choice.window_s, widths=widths)


# -- warm


_WARM = (CacheMode.WARM, CacheMode.ROTATING)


def begin_warm(row: "Row", slot: Slot, mode: CacheMode) -> None:
    """The refilling calls that a row has beside neighbours, before anything was looked at."""
    row.warmth = None
    row.not_warm = ""
    row.refill = 0 if row.is_slow or mode not in _WARM else first_refill(slot, row.per_call_ns)
    if mode in _WARM and not row.refill:
        seconds = max(row.cost_ns, row.per_call_ns) / NS_PER_S
        row.not_warm = f"{seconds:.2g} s are too long to go untimed before each window"


def look_warm(
    timer: Timer,
    rows: Sequence["Row"],
    mode_of: Callable[["Row"], CacheMode],
    clock: Callable[[], int],
    *,
    longest_ns: float,
    seed: int,
) -> Failure | None:
    """Compare each row beside the others with itself alone, and refill more where that helps."""
    patients: list[tuple[Row, Patient]] = []
    for row in rows:
        if row.slot is not None and not row.is_slow:
            wants_warm = mode_of(row) in _WARM and row.refill > 0
            is_neighbour = row.slot.flush is not None
            patients.append(
                (row, Patient(row.slot, row.per_call_ns, wants_warm, is_neighbour=is_neighbour))
            )
    if len(patients) < 2 or longest_ns <= 0:
        return None
    failure = look(timer, [p for _, p in patients], clock, budget_ns=longest_ns, seed=seed)
    for row, patient in patients:
        row.refill = patient.slot.refill
        row.warmth = patient.warmth
        excess = patient.excess
        row.is_unlike_alone = excess is not None
        if patient.wants_warm and excess is not None and excess > 0:
            row.not_warm = f"it is {excess:.1%} slower beside the others than alone"
    return failure


def warmth_finding(row: "Row") -> Finding | None:
    """A row that is not as it is alone: a claim of warm that does not hold, or as-is shown."""
    here_ns, alone_ns = row.warmth or (None, None)
    facts = {"refill": row.refill, "here_ns": here_ns, "alone_ns": alone_ns}
    if row.not_warm:
        return finding(Code.CACHE_NOT_WARM, reason=row.not_warm, **facts)
    return finding(Code.NOT_AS_ALONE, **facts) if row.is_unlike_alone else None

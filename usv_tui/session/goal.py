"""`--until`: how well the rows are known, held against a target, and what is said of it."""

from typing import NamedTuple

from usv_tui import plain
from usv_tui.errors import UsageError
from usv_tui.model import RowState
from usv_tui.session.store import Store
from usv_tui.stats.pairs import half_width
from usv_tui.stats.stopping import (
    Block,
    Precision,
    Stop,
    StopRule,
    Target,
    TargetKind,
    parse_until,
)
from usv_tui.timesource import NS_PER_S


def target_of(text: str) -> Target:
    """Read a target.

    Raises:
        UsageError: it is none.
    """
    try:
        return parse_until(text)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None


class Outcome(NamedTuple):
    """The end of a run with a target."""

    reason: str
    is_met: bool


class Goal:
    """A target and the way towards it."""

    def __init__(self, target: Target, max_time_s: float | None = None) -> None:
        self._target = target
        self._rule = StopRule(target, max_time_s)
        self._began_ns: int | None = None
        self.progress = f"{self._name}: no interval yet"

    @property
    def _name(self) -> str:
        return f"{self._target.kind} ±{self._target.half_width * 100:g} %"

    def look(self, store: Store, now_ns: int) -> Outcome | None:
        """After an analysis: None to go on, else why to stop."""
        if self._began_ns is None:
            self._began_ns = now_ns
        elapsed_s = (now_ns - self._began_ns) / NS_PER_S
        rows = _ratios(store) if self._target.kind is TargetKind.RATIO else _medians(store, now_ns)
        if not rows and self._target.kind is TargetKind.RATIO and store.verdicts.analysis.rows:
            failed = sum(bool(row.error) for row in store.rows.values())
            why = f" ({failed} of {len(store.rows)} rows failed)" if failed else ""
            return Outcome(f"{self._name}: there is no pair to compare{why}", is_met=False)
        is_off = bool(store.verdicts.analysis.untrusted)
        stop = self._rule.update(rows, elapsed_s, is_off=is_off)
        self.progress = f"{self._name}: {self._where(stop, store)}"
        if not stop.is_done:
            return None
        is_met = stop.reason == "target"
        if stop.reason == "time" and rows and stop.block is Block.NONE:
            # Every row is known well enough; only the second checkpoint was still to come.
            is_met = True
        if is_met:
            width = self._width(stop, store)
            return Outcome(f"target met: {self._name}: {width}", is_met=True)
        why = {
            "time": f"not reached after {elapsed_s:.0f} s",
            "refused": "two even modes: a median is no stable target",
        }[stop.reason]
        return Outcome(f"{self.progress}, {why}", is_met=False)

    def _where(self, stop: Stop, store: Store) -> str:
        """How far it is, and what is missing where the width alone does not tell."""
        lacks = str(stop.block)
        if stop.block is Block.NONE:
            lacks = "to be met at the next check too"
        elif stop.block in (Block.WIDE, Block.CORRELATED) and stop.reached is None:
            lacks = str(Block.FEW)
        elif stop.block is Block.WIDE:
            lacks = ""
        if stop.bench is None:
            lacks = ""
        return f"{self._width(stop, store)}{lacks and f', {lacks}'}"

    def _width(self, stop: Stop, store: Store) -> str:
        at = "no interval yet"
        if stop.reached is not None:
            # As exactly as it takes to tell it from the target.
            target = self._target.half_width
            digits = next((d for d in (2, 3, 4) if _told_apart(stop.reached, target, d)), 6)
            at = f"now ±{stop.reached * 100:.{digits}g} %"
        name = "" if stop.bench is None else f" ({plain.name(store.rows[stop.bench].info.name)})"
        return f"{at}{name}"


def _told_apart(reached: float, target: float, digits: int) -> bool:
    """Whether so many digits show that a width is above its target, when it is."""
    return reached <= target or float(f"{reached:.{digits}g}") > target


def _ratios(store: Store) -> list[Precision]:
    controls = (found for b, found in store.verdicts.analysis.rows.items() if _is_control(store, b))
    # Until it is known whether the control differs, no target is met.
    is_control_short = any(found.ratio is not None and found.ratio.is_short for found in controls)
    return [
        Precision(
            bench,
            half_width(found.ratio),
            found.ratio.n,
            found.ratio.n_eff or 0.0,
            moves=found.ratio.moves,
            is_short=found.ratio.is_short or is_control_short,
        )
        for bench, found in store.verdicts.analysis.rows.items()
        if found.ratio is not None
        and not _is_control(store, bench)
        and store.rows[bench].state not in (RowState.FAILED, RowState.OFF)
    ]


def _is_control(store: Store, bench: int) -> bool:
    return store.rows[bench].info.control_of is not None


def _medians(store: Store, now_ns: int) -> list[Precision]:
    rows = []
    for bench, found in store.verdicts.analysis.rows.items():
        row = store.rows[bench]
        if row.info.parent is not None or row.state in (RowState.FAILED, RowState.OFF):
            continue
        interval = store.verdicts.settled_interval(store.rows[bench], now_ns)
        rows.append(
            Precision(
                bench,
                None if interval is None else interval.half_width,
                found.window.n if interval is None else interval.n,
                0.0 if interval is None else interval.n_eff,
                found.is_settled,
                found.modes.minor_share if found.modes is not None else 0.0,
            )
        )
    return rows

"""When is enough? `--until "ratio±0.5%"` stops on the interval that is shown, and says why.

Checkpoints at 200 samples and then every 20 % more; a target must be met at two in a row. Stopping
on the spread of the data instead would never end on short kernels, or end on noise.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

FIRST_CHECK = 200
GROWTH = 1.2
IN_A_ROW = 2
MIN_EFFECTIVE = {"ratio": 30.0, "median": 50.0}
"""Independent samples; the interval of a ratio already carries what fewer of them hide."""
RATIO_BUDGET_S = 60.0
MEDIAN_BUDGET_S = 150.0
EVEN_MODES = 0.35
"""With a smaller mode this large a median jumps between the two."""

_TARGET = re.compile(
    r"^\s*(?P<kind>ratio|median)?\s*(?:±|\+/-|\+-)?\s*(?P<value>\d+(?:\.\d+)?|\.\d+)\s*%\s*$",
    re.IGNORECASE,
)


class TargetKind(StrEnum):
    """What is to be known so precisely."""

    RATIO = "ratio"
    MEDIAN = "median"


class Target(NamedTuple):
    """A precision to reach."""

    kind: TargetKind
    half_width: float
    """Relative: 0.005 is +-0.5 %."""

    @property
    def budget_s(self) -> float:
        """How long to try where the user gave no limit."""
        return RATIO_BUDGET_S if self.kind is TargetKind.RATIO else MEDIAN_BUDGET_S


def parse_until(text: str) -> Target:
    """`±0.5%` (a median's interval) or `ratio±0.5%`; `+-` and `+/-` are read as `±`.

    Raises:
        ValueError: not of that form, or not between 0 and 50 %; the message is for the user.
    """
    found = _TARGET.match(text)
    if found is None:
        raise ValueError(f"not a target: {text!r}; write ±0.5%, or ratio±0.5%")
    value = float(found["value"]) / 100
    if not 0 < value <= 0.5:
        raise ValueError(f"a target must lie above 0 % and at most at 50 %: {text!r}")
    return Target(TargetKind((found["kind"] or "median").lower()), value)


class Precision(NamedTuple):
    """How well one row's target quantity is known."""

    bench: int
    half_width: float | None
    """In log units (0.005 is +-0.5 %); None when there is no interval yet."""
    n: int
    n_eff: float
    is_settled: bool = True
    """A median of a row that is not settled would converge on a wrong value."""
    minor_mode: float = 0.0
    """Share of the smaller of two modes; a median between two even modes is no stable target."""
    moves: bool = False
    """The ratio itself changes; however narrow, its interval holds for no one state."""
    is_short: bool = False
    """Watched for too short a time for a ratio so near to 1."""


class Block(StrEnum):
    """What keeps a target from being met."""

    NONE = ""
    WIDE = "interval too wide"
    FEW = "too few samples"
    SHORT = "watched for too short a time"
    CORRELATED = "samples too correlated"
    UNSETTLED = "not settled"
    MOVING = "still moves"
    MODES = "two modes"
    CONTROL = "the control differs from its baseline"


class Stop(NamedTuple):
    """Whether to stop, and how far it is."""

    is_done: bool = False
    reason: str = ""
    """target (met), time (out), refused (a median of two even modes); empty while it runs."""
    reached: float | None = None
    """Half width of the row that is known worst; None where a row has no interval."""
    bench: int | None = None
    """That row."""
    block: Block = Block.NONE
    """What it lacks."""


class StopRule:
    """Decides when a run has reached its target. Feed it after each analysis."""

    def __init__(self, target: Target, max_time_s: float | None = None) -> None:
        self.target = target
        self.max_time_s = target.budget_s if max_time_s is None else max_time_s
        self._next = float(FIRST_CHECK)
        self._met = 0

    def update(self, rows: Sequence[Precision], elapsed_s: float, *, is_off: bool = False) -> Stop:
        """`rows` are all that the target is about; with none the run only ends by time.

        While a copy of the baseline differs from it (`is_off`) no ratio can be known.
        """
        worst, block = self._worst(rows)
        if is_off and block is Block.NONE:
            block = Block.CONTROL
        reached = None if worst is None else worst.half_width
        bench = None if worst is None else worst.bench
        least = min((row.n for row in rows), default=0)
        if least >= self._next:
            # The next checkpoint is 20 % on from where we are, however many were skipped.
            self._next = GROWTH * least
            self._met = self._met + 1 if block is Block.NONE else 0
        if self._met >= IN_A_ROW and block is Block.NONE:
            return Stop(True, "target", reached, bench)
        if block is Block.MODES and all(self._block(row) in (Block.NONE, block) for row in rows):
            return Stop(True, "refused", reached, bench, block)
        if elapsed_s >= self.max_time_s:
            return Stop(True, "time", reached, bench, block)
        return Stop(False, "", reached, bench, block)

    def _worst(self, rows: Sequence[Precision]) -> tuple[Precision | None, Block]:
        """The row that is furthest from its target, and what it lacks."""
        if not rows:
            return None, Block.FEW
        order = list(Block)

        def badness(row: Precision) -> tuple[bool, float, int]:
            lacks = self._block(row)
            width = float("inf") if row.half_width is None else row.half_width
            return lacks is not Block.NONE, width, order.index(lacks)

        worst = max(rows, key=badness)
        return worst, self._block(worst)

    def _block(self, row: Precision) -> Block:
        if self.target.kind is TargetKind.MEDIAN:
            if row.minor_mode >= EVEN_MODES:
                return Block.MODES
            if not row.is_settled:
                return Block.UNSETTLED
        if row.n < FIRST_CHECK:
            return Block.FEW
        if row.is_short:
            return Block.SHORT
        if row.moves:
            return Block.MOVING
        if row.n_eff < MIN_EFFECTIVE[self.target.kind]:
            return Block.CORRELATED
        if row.half_width is None or row.half_width > self.target.half_width:
            return Block.WIDE
        return Block.NONE

"""What the tables of all parts share: sizes, seeds, and how a table is printed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from usv_tui.stats.analysis import Analysis

CARDS = ("h100", "mi300", "rtx")
FIRST_SEED = 1000


class Size(NamedTuple):
    """How much to run."""

    seeds: int
    """Seeds a scenario and card."""
    runs: int
    """Runs of a noise."""
    conditions: int
    """Random conditions."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def percent(hits: float, of: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * hits / of:.{digits}f} %" if of else "-"


def wilson(hits: int, of: int) -> str:
    """A share with its 95 % interval (Wilson's)."""
    if not of:
        return "-"
    z = 1.96
    p = hits / of
    centre = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return f"{100 * p:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def rng_for(*key: int) -> np.random.Generator:
    """A generator of the reported part."""
    return np.random.default_rng([FIRST_SEED, *key])


def last(steps: Sequence[Analysis] | None) -> Analysis:
    """The last analysis of a run."""
    assert steps
    return steps[-1]

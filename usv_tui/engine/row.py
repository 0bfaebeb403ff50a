"""One benchmark while it is measured."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from usv_tui.codes import Code
from usv_tui.engine.audit import Subject
from usv_tui.engine.warmup import Levelling
from usv_tui.model import (
    Benchmark,
    CacheMode,
)
from usv_tui.records import (
    Samples,
)
from usv_tui.timers.wall import Slot


class Row:
    """One benchmark while it is measured."""

    def __init__(self, bench: int, benchmark: Benchmark, control_of: int | None = None) -> None:
        self.bench = bench
        self.benchmark = benchmark
        self.control_of = control_of
        self.name = benchmark.name if control_of is None else f"{benchmark.name} (control)"
        self.slot: Slot | None = None
        self.check: Callable[[Any, Any], object] | None = None
        self.subject: Subject | None = None
        """What is audited of it; None: nothing can be."""
        self.rotated: list[Sequence[object]] = []
        """The sets of inputs that it takes in turn."""
        self.n = 0
        """Samples after warm-up."""
        self.is_on = True
        self.is_failed = False
        self.retries = 1
        """How often it may still come back after running out of memory."""
        self.per_call_ns = 0.0
        self.cost_ns = 0
        """Host time of one window with all that comes before it, as far as it is known."""
        self.is_slow = False
        """Too slow for untimed calls: no warm-up, and its first calls are its samples."""
        self.first_call: Samples | None = None
        """Its first call as a sample, for a run that ends before there is another one."""
        self.pinned: int | None = None
        """Calls a window that are not for the run to choose."""
        self.refill = 0
        """Untimed calls before each of its windows while other rows take part."""
        self.warmth: tuple[int, int] | None = None
        """ns of one call beside the others, and alone; None: not looked at."""
        self.is_unlike_alone = False
        self.not_warm = ""
        """Why it is not called warm although it was to be."""
        self.doubts: set[Code] = set()
        """What its examination found."""
        self.cache: CacheMode | None = None
        """What the user chose while it runs; None: as its file or the run says."""
        self.levelling = Levelling()
        self.build_ns = 0
        """Of its last set-up with the first call."""
        self.built_bytes = 0
        """By how much memory grew in it."""

    @property
    def is_live(self) -> bool:
        """True when it takes part in rounds."""
        return self.slot is not None and self.is_on and not self.is_failed


def bases_of(rows: Sequence[Row]) -> dict[int, int]:
    """The baseline of each row that has one among these."""
    by_group = {
        r.benchmark.group: r.bench for r in rows if r.benchmark.is_baseline and r.control_of is None
    }
    found = {r.bench: by_group[r.benchmark.group] for r in rows if r.benchmark.group in by_group}
    found |= {r.bench: r.control_of for r in rows if r.control_of is not None}
    return {row: base for row, base in found.items() if row != base}


class Resumed(NamedTuple):
    """What a worker before this one, which died or hung, leaves to it."""

    retired: frozenset[int] = frozenset()
    done: Mapping[int, int] = MappingProxyType({})
    first_round: int = 0

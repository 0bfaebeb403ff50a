"""Phases of a step: `with phase("forward"): ...` inside a timed callable.

A phase is bracketed by two marks of the timer in use: events in the stream, or the wall clock.
Marks are read after the block of rounds, never inside it, and become samples of sub-rows. A row
whose callable uses no phase pays nothing: only a callable that was seen to use one is wrapped.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from usv_tui import plain
from usv_tui.model import BenchInfo
from usv_tui.records import Bench, Samples

if TYPE_CHECKING:
    from usv_tui.timers.wall import Slot

Path = tuple[str, ...]
"""A phase by the names of those around it, outermost first."""
Read = Callable[[Any, Any], tuple[int, int]]
"""Two marks to (start on the session's clock, length), in ns."""
FIRST_ROW = 10_000
"""Rows of phases are numbered from here on; those of a suite from 0."""


class _Null:
    """What `phase` is when nobody times: it does nothing, and is shared by all."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NULL = _Null()


class _Uses:
    """Which collector listens, and how often `phase` was called while none did."""

    __slots__ = ("active", "idle")

    def __init__(self) -> None:
        self.active: PhaseCollector | None = None
        self.idle = 0


_uses = _Uses()


def phase(name: str) -> AbstractContextManager[None]:
    """Bracket a part of a timed callable; it shows as a sub-row of the callable's row.

    Phases may nest and repeat: what repeats within a call is added up. Outside a timed window, and
    in another thread than the one that times, nothing happens.

    Raises:
        TypeError: the name is no text (looked at outside of timed windows only).
    """
    active = _uses.active
    if active is None or active.thread != threading.get_ident():
        if not isinstance(name, str):
            raise TypeError(f"phase({plain.value(name)}): give it a name")
        _uses.idle += 1
        return _NULL
    return _Span(active, name)


class _Span:
    """One bracket while it is open, and its marks afterwards."""

    __slots__ = ("_collector", "_name", "begin", "end", "path")

    def __init__(self, collector: "PhaseCollector", name: str) -> None:
        self._collector = collector
        self._name = name

    def __enter__(self) -> None:
        collector = self._collector
        collector.stack += (self._name,)
        self.path: Path = collector.stack
        self.begin = collector.mark()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        collector = self._collector
        self.end = collector.mark()
        collector.stack = collector.stack[:-1]
        collector.spans.append(self)


class PhasedCall:
    """A callable that uses phases, with the collector listening while it runs."""

    __slots__ = ("_bench", "_collector", "fn")

    def __init__(self, fn: Callable[[], object], bench: int, collector: "PhaseCollector") -> None:
        self.fn = fn
        self._bench = bench
        self._collector = collector

    def __call__(self) -> object:
        """Call it; its phases are kept only when it returns."""
        collector = self._collector
        collector.stack = ()
        collector.spans = []
        _uses.active = collector
        try:
            result = self.fn()
        finally:
            _uses.active = None
        collector.calls.append((self._bench, collector.spans))
        return result

    def around(self, fn: Callable[[], object]) -> "PhasedCall":
        """The same for another callable of the same row."""
        return PhasedCall(fn, self._bench, self._collector)


def unwrap(fn: Callable[[], object]) -> Callable[[], object]:
    """The callable itself, without the wrapper that listens to its phases."""
    return fn.fn if isinstance(fn, PhasedCall) else fn


class PhaseSample(NamedTuple):
    """One phase of one window: all its occurrences in `inner` calls together."""

    bench: int
    """The row that the phase is a part of."""
    path: Path
    round: int
    start_ns: int
    """Where its first occurrence began."""
    window_ns: int
    inner: int
    flags: int


Calls = list[tuple[int, list[_Span]]]


class PhaseCollector:
    """Listens to `phase` for one timer, whose marks it takes."""

    def __init__(self, mark: Callable[[], Any]) -> None:
        self.mark = mark
        self.thread = threading.get_ident()
        self.stack: Path = ()
        self.spans: list[_Span] = []
        self.calls: Calls = []
        """Calls since the last `take`, in order. Empty for ever when no row uses phases."""
        self._done: list[PhaseSample] = []
        self._book = PhaseBook()

    def adopt(self, slot: "Slot") -> bool:
        """Wrap a row's callable when it uses phases; True when it does.

        To be called after the row's first call: `phase` was used since the last look, or not.
        """
        if isinstance(slot.fn, PhasedCall):
            return True
        was_used = self.saw_use()
        if was_used:
            self.thread = threading.get_ident()
            slot.fn = PhasedCall(slot.fn, slot.bench, self)
        return was_used

    def saw_use(self) -> bool:
        """True when `phase` was called since the last look, with nobody listening."""
        was_used, _uses.idle = _uses.idle > 0, 0
        return was_used

    def take(self) -> Calls:
        """The calls since the last time: to be kept beside their block until it is complete."""
        calls, self.calls = self.calls, []
        return calls

    def settle(self, calls: Calls, block: Samples, read: Read) -> None:
        """Read the marks of a complete block, whose samples tell the windows."""
        if block.round < 0:
            return
        spans_of: dict[int, list[list[_Span]]] = {}
        for bench, spans in calls:
            spans_of.setdefault(bench, []).append(spans)
        seen: Counter[int] = Counter()
        for sample in block.samples():
            mine = spans_of.get(sample.bench)
            if mine is None:
                continue
            first = seen[sample.bench]
            seen[sample.bench] += sample.inner
            window = [span for spans in mine[first : first + sample.inner] for span in spans]
            for path, (start_ns, window_ns) in _add_up(window, read).items():
                self._done.append(
                    PhaseSample(
                        sample.bench,
                        path,
                        sample.round,
                        start_ns,
                        window_ns,
                        sample.inner,
                        sample.flags,
                    )
                )

    def drain(self) -> list[PhaseSample]:
        """What was settled since the last time, oldest first."""
        done, self._done = self._done, []
        return done

    def records(self) -> list[Bench | Samples]:
        """What was settled since the last time, as rows and their samples."""
        return self._book.records(self.drain()) if self._done else []


def _add_up(spans: Iterable[_Span], read: Read) -> dict[Path, tuple[int, int]]:
    """Start of the first and length of all spans of each path, outer phases before inner ones."""
    sums: dict[Path, tuple[int, int]] = {}
    for span in spans:
        start_ns, window_ns = read(span.begin, span.end)
        known = sums.get(span.path)
        if known is None:
            sums[span.path] = (start_ns, window_ns)
        else:
            sums[span.path] = (min(known[0], start_ns), known[1] + window_ns)
    return dict(sorted(sums.items(), key=lambda item: item[1][0]))


class PhaseBook:
    """Gives every phase a row of its own, and turns phase samples into that row's samples.

    A phase inside another one is a sub-row of that one, so that the rows of each level add up to
    the row above them.
    """

    def __init__(self, first_row: int = FIRST_ROW) -> None:
        self._next = first_row
        self._rows: dict[tuple[int, Path], int] = {}

    def records(self, samples: Sequence[PhaseSample]) -> list[Bench | Samples]:
        """The new rows first, then the samples, one record a stretch of rounds alike."""
        fresh: list[Bench | Samples] = []
        by_round: dict[int, list[tuple[int, PhaseSample]]] = {}
        for sample in samples:
            row = self._row(sample.bench, sample.path, fresh, sample.start_ns)
            by_round.setdefault(sample.round, []).append((row, sample))
        return fresh + list(_stretches(by_round))

    def _row(self, bench: int, path: Path, fresh: list[Bench | Samples], at_ns: int) -> int:
        key = (bench, path)
        known = self._rows.get(key)
        if known is not None:
            return known
        parent = bench if len(path) == 1 else self._row(bench, path[:-1], fresh, at_ns)
        row = self._rows[key] = self._next
        self._next += 1
        fresh.append(Bench(at_ns, BenchInfo(bench=row, name=str(path[-1]), parent=parent)))
        return row


def _stretches(by_round: dict[int, list[tuple[int, PhaseSample]]]) -> Iterable[Samples]:
    """Consecutive rounds with equally many samples, each stretch as one record."""
    stretch: list[tuple[int, PhaseSample]] = []
    first = size = 0
    for round_, entries in sorted(by_round.items()):
        if stretch and (len(entries) != size or round_ != first + len(stretch) // size):
            yield _record(first, size, stretch)
            stretch = []
        if not stretch:
            first, size = round_, len(entries)
        stretch = stretch + entries
    if stretch:
        yield _record(first, size, stretch)


def _record(first: int, size: int, entries: list[tuple[int, PhaseSample]]) -> Samples:
    t0_ns = min(sample.start_ns for _, sample in entries)
    return Samples(
        first,
        size,
        t0_ns,
        [row for row, _ in entries],
        [sample.start_ns - t0_ns for _, sample in entries],
        [sample.window_ns for _, sample in entries],
        [sample.inner for _, sample in entries],
        [],
        [sample.flags for _, sample in entries],
        0,
    )

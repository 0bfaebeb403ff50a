"""Does a row do its work? Looked at in windows of its own, timed as all are, at random moments.

A look asks for windows one after the other; the runner times them where and as it times all others,
so that a callable sees no difference: not in its arguments, its place or its stack. Right before a
window opens, after the row's own reset, the row gets inputs that nobody has seen, and what it
returned last is overwritten. The baseline is called on the same inputs afterwards: before, there is
no right result that could be found in memory. No window of a look is in any statistic.
"""

import random
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat, starmap
from typing import Any, NamedTuple

import numpy as np

from usv_tui.codes import Code
from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.checks import vet_result
from usv_tui.diagnosis.difference import difference
from usv_tui.engine.again import has_no_work, medians
from usv_tui.errors import one_line
from usv_tui.suite import values
from usv_tui.suite.inputs import Inputs
from usv_tui.suite.reach import reachable
from usv_tui.timers.phases import PhasedCall, unwrap
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S

_SHARE = 0.03
"""Of a run's time at most, beside the first looks and the last."""
_APART_NS = NS_PER_S // 2
_MOST_BYTES = 1 << 28
"""Larger results are neither copied nor overwritten."""
_MOST_KEPT_BYTES = 1 << 24
"""Smaller results are kept, to tell an old result from a wrong one."""
_ENOUGH = 3
"""Looks at each row, after which its times can be judged."""
_PAIRS = 4
"""Pairs of times in one look: of fresh inputs, and of the same again."""
_FEWEST_PAIRS = 6
_MOST_PAIRS = 15
_SIGHTINGS = 2
"""A result is called wrong when it was so as often."""
_OUTSIDE = 6
"""So many windows in a row with work beside them are no chance."""
_REASON = 120
"""Characters of a reason: torch's are pages long."""
_LEAST_NS = 20_000
_OUTSIDE_NS = 100_000
_LATE_NS = 2_000_000
"""At least so long after a window its result is looked at again."""
_AHEAD_NS = 3_000_000
"""Time for a thread that works ahead on inputs that it has seen."""
_MOST_LATE_NS = 50_000_000
_MOST_CALLS = 8
"""In one window of a look, where the row's own have several."""

Said = tuple[Code, dict[str, Any]]


class Wrong(NamedTuple):
    """Why a row is not to be believed; its row is retired."""

    code: str
    message: str
    evidence: Mapping[str, Any]


class Window(NamedTuple):
    """What the runner answers to a slot that a look asks it to time."""

    window_ns: int
    ended_ns: int
    """When the timer had returned."""
    failure: Failure | None = None


Found = tuple[list[Said | Wrong], Failure | None]
Asking = Generator[Slot, Window, Any]
"""Yields slots to be timed, once each and at once."""


@dataclass(eq=False)
class Subject:
    """One row as it is audited."""

    slot: Slot
    inputs: Inputs | None = None
    check: Callable[[Any, Any], object] | None = None
    known: frozenset[int] | None = None
    """Where the memory is that it could reach before its first call; None: no telling."""
    kept: Any = None
    """What it returned last, to be overwritten."""
    first_sets: list[Any] = field(default_factory=list)
    """Copies of the inputs that it has had from the start."""
    wanted_before: list[Any] = field(default_factory=list)
    """What the baseline made of earlier inputs."""
    times_ns: list[tuple[int, int]] = field(default_factory=list)
    """Of a call on fresh inputs, and of the next one on the same."""
    outside_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_OUTSIDE))
    """Beside each of the last windows: between what comes before it and its end, but not in it."""
    sightings: dict[str, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    looks: int = 0
    elements: int | None = None
    """Figures in the inputs that it drew first; None: it draws none."""
    is_watched: bool = False
    """Its first result holds tensors or arrays: they can be overwritten and looked at again."""

    is_closed: bool = False
    """Its results or inputs cannot be copied or compared: it is let be."""

    def saw(self, code: str) -> bool:
        """Note a sighting; True at the one that makes it sure."""
        self.sightings[code] = self.sightings.get(code, 0) + 1
        return self.sightings[code] >= _SIGHTINGS and code not in self.told


class _Seen(NamedTuple):
    """One window and its result."""

    result: Any
    """A copy, taken right after the window."""
    window_ns: int
    signs: tuple[Code, ...] = ()
    """Codes of what was odd about the result."""
    failure: Failure | None = None
    is_compared: bool = True
    is_plain: bool = True


class Auditor:
    """The runner's: asked between windows."""

    def __init__(
        self, timer: Timer, now_ns: Callable[[], int], wait_ns: Callable[[int], object], seed: int
    ) -> None:
        """Audit with this timer; `wait_ns` lets time pass for work that is late."""
        self._timer = timer
        self._now_ns = now_ns
        self._wait_ns = wait_ns
        # Moments and inputs that nobody can know beforehand would not be the same in a second run.
        self._random = random.Random(seed ^ 0x5EED)
        self._due_ns = 0
        self.spent_ns = 0
        self.looks = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether the random moment has come."""
        return now_ns >= self._due_ns

    def plan(self, took_ns: int) -> None:
        """Draw the next moment: the later the more this round of looks has taken."""
        mean_ns = max(_APART_NS, took_ns / _SHARE)
        self._due_ns = self._now_ns() + round(mean_ns * self._random.uniform(0.3, 1.7))

    def shuffle(self, rows: list[Any]) -> None:
        """Nobody can know who is next."""
        self._random.shuffle(rows)

    def meet(self, subject: Subject) -> None:
        """A row before its first call: what memory it has from its set-up."""
        inputs = subject.inputs
        if inputs is not None:
            subject.elements = sum(int(np.prod(x.shape)) for x in values.leaves(inputs.sets[0]))
        subject.known = reachable(*((unwrap(subject.slot.fn),) if inputs is None else (inputs.fn,)))
        if inputs is not None and subject.check is not None and not subject.first_sets:
            subject.first_sets = [
                values.clone(s) for s in inputs.sets if values.size_bytes(s) <= _MOST_KEPT_BYTES
            ]

    def last_ns(self, rows: int) -> int:
        """How long before the end of a run its last looks must begin."""
        return round(2 * rows * self.spent_ns / max(1, self.looks))

    def missing(self, row: Subject) -> int:
        """How many looks it takes until its times are judged; one, where they are not."""
        return max(1, _ENOUGH - row.looks) if row.inputs is not None else 1

    def lacks(self, row: Subject) -> bool:
        """Whether it was looked at too seldom for a kept result to be found out."""
        inputs = row.inputs
        is_timed = inputs is not None and not inputs.is_restored and not row.is_closed
        return is_timed and len(row.times_ns) < _FEWEST_PAIRS

    def can_tell(self, row: Subject, base: Subject | None) -> bool:
        """Whether a look at this row can show anything."""
        if row.is_closed:
            return False
        return (
            row.inputs is not None
            or (row.check is not None and base is not None)
            or (row.is_watched)
        )

    def look(
        self, row: Subject, base: Subject | None, *, is_timed: bool = True
    ) -> Generator[Slot, Window, Found]:
        """Look at one row, and call its baseline on the same inputs where there is one.

        Unless `is_timed`, at its results alone.
        """
        began_ns = self._now_ns()
        said: list[Said | Wrong] = []
        failure = None
        try:
            for _ in range(2 * _SIGHTINGS):
                found, failure = yield from self._look(row, base, is_timed)
                said += [f for f in found if f[0] not in row.told]
                row.told.update(f[0] for f in found)
                is_open = any(n < _SIGHTINGS for n in row.sightings.values())
                if failure is not None or not is_open or any(isinstance(f, Wrong) for f in said):
                    break
        except Exception as error:  # noqa: BLE001  results are strangers' objects
            leave_if_copy(error)
            row.is_closed = True
            said.append((Code.NOT_AUDITED, {"reason": one_line(error)[:_REASON]}))
        finally:
            self.spent_ns += self._now_ns() - began_ns
            self.looks += 1
        return said, failure

    def _look(
        self, row: Subject, base: Subject | None, is_timed: bool
    ) -> Generator[Slot, Window, Found]:
        row.looks += 1
        which, fresh = self._draw(row, base)
        mine = yield from self._witness(row, which, fresh)
        if mine.failure is not None:
            return [], mine.failure
        wanted = None
        if base is not None:
            wanted = yield from self._witness(base, which, fresh)
            if wanted.failure is not None:
                return [], wanted.failure
            yield from self._remember(row, base)
        found: list[Said | Wrong] = list(self._judge(row, mine, wanted))
        if which is not None and is_timed:
            for subject in (row, base) if base is not None else (row,):
                failure = yield from self._time_pairs(subject)
                if failure is not None:
                    return found, failure
            found += self._judge_times(row, base)
        found += self._judge_outside(row, base)
        return found, None

    def _remember(self, row: Subject, base: Subject) -> Asking:
        """What the baseline makes of the inputs that the row had from the start."""
        first, row.first_sets = row.first_sets, []
        for held in first if base.inputs is not None else ():
            seen = yield from self._witness(base, 0, held)
            if values.size_bytes(seen.result) <= _MOST_KEPT_BYTES:
                row.wanted_before.append(seen.result)

    def _draw(self, row: Subject, base: Subject | None) -> tuple[int | None, Any]:
        """Fresh inputs, and which of the sets shall have them."""
        if row.inputs is None:
            return None, None
        count = len(row.inputs.sets)
        if base is not None and base.inputs is not None:
            count = min(count, len(base.inputs.sets))
        return self._random.randrange(count), row.inputs.draw(self._random.getrandbits(31))

    # -- one window

    def _bind(
        self, row: Subject, which: int | None, calls: int, *last: Callable[[], object] | None
    ) -> tuple[Slot, deque[Any], deque[int]]:
        """The row with its last result kept; `last` comes right before its window.

        Neither a frame nor a function of ours stands between the timer and the callable.
        """
        slot, kept, marks = row.slot.twin(), deque[Any](maxlen=1), deque[int](maxlen=1)
        if row.inputs is None or which is None:
            results: Iterator[object] = starmap(unwrap(slot.fn), repeat(()))
        else:
            results = row.inputs.calls_up_to(which, calls)
            if row.inputs.is_restored:
                slot.reset = row.inputs.own_reset  # the set is written anew
        fn: Callable[[], object] = map(kept.append, results).__next__
        if isinstance(slot.fn, PhasedCall):
            fn = slot.fn.around(fn)
        slot.fn, slot.inner, slot.flush, slot.cold_each = fn, calls, None, False
        slot.set_refill(0)
        ready = map(marks.append, starmap(self._now_ns, repeat(()))).__next__
        slot.before = (*slot.before, *(f for f in last if f is not None), ready)
        return slot, kept, marks

    def _put(self, row: Subject, which: int | None, fresh: Any) -> Callable[[], object] | None:
        """Hands the fresh inputs over: after a reset, which may have looked at the old ones."""
        inputs = row.inputs
        if which is None or inputs is None:
            return None
        copy = values.clone(fresh)

        def put() -> None:
            inputs.renew(which, copy)
            self._timer.synchronize()

        return put

    def _witness(
        self, row: Subject, which: int | None, fresh: Any
    ) -> Generator[Slot, Window, _Seen]:
        most = row.slot.inner if row.inputs is not None and not row.inputs.is_restored else 1
        calls = self._random.randint(1, min(_MOST_CALLS, most)) if most > 1 else 1
        poison, held, saved = self._poisoned(row)
        is_after_reset = poison is not None and row.slot.reset is not None and row.looks % 2 == 0
        lay = None if poison is None else self._lay(held, poison)
        if lay is not None and not is_after_reset:
            lay()
        put = self._put(row, which, fresh)
        slot, kept, marks = self._bind(row, which, calls, put, lay if is_after_reset else None)
        window = yield slot
        result = kept.pop() if kept else None
        if window.failure is not None:
            return _Seen(None, 0, failure=(row.slot, window.failure[1]))
        fault = vet_result(result)
        if fault is not None:
            return _Seen(None, 0, failure=(row.slot, fault))
        window_ns = window.window_ns // calls
        self._see_outside(row, marks, window)
        is_plain = values.is_plain(result)
        signs = [] if is_plain or not self._is_lazy(result, window_ns) else [Code.LAZY_RESULT]
        if values.size_bytes(result) > _MOST_BYTES:
            return _Seen(None, window_ns, tuple(signs), is_compared=False)
        copy = values.clone(result)
        if poison is not None and values.equal(held, poison):
            if values.places(result) == values.places(held):
                signs.append(Code.NOTHING_WRITTEN)
                copy = saved
            values.overwrite(held, saved)
        if self._is_late(result, copy, window_ns):
            signs.append(Code.UNFINISHED_RESULT)
        row.kept = result
        # What a reset has laid ready for adding up may be overwritten too: that is not judged.
        return _Seen(copy, window_ns, tuple(signs), None, not is_after_reset, is_plain)

    def _see_outside(self, row: Subject, marks: deque[int], window: Window) -> None:
        if marks and self._timer.info.name == "wall":
            row.outside_ns.append(window.ended_ns - marks[0] - window.window_ns)

    def _is_lazy(self, result: Any, window_ns: int) -> bool:
        """Whether having its figures for the first time did the work."""
        first_ns, second_ns = (self._reading_ns(result) for _ in range(2))
        return first_ns - second_ns > max(_LEAST_NS, window_ns / 2, second_ns)

    def _reading_ns(self, result: Any) -> int:
        began_ns = self._now_ns()
        values.read(result)
        self._timer.synchronize()
        return self._now_ns() - began_ns

    def _is_late(self, result: Any, copy: Any, window_ns: int) -> bool:
        """Whether the result changes after its window, or says that it is not there yet."""
        done = getattr(result, "done", None)
        if callable(done) and hasattr(result, "result") and not done():
            return True
        if not any(True for _ in values.leaves(result)):
            return False
        self._wait_ns(min(_MOST_LATE_NS, max(_LATE_NS, window_ns)))
        self._timer.synchronize()
        return not values.equal(result, copy)

    def _poisoned(self, row: Subject) -> tuple[Any, Any, Any]:
        """What to overwrite the row's last result with, where nothing else of it is touched."""
        held, row.kept = row.kept, None
        if row.known is None or not values.is_array(held):
            return None, None, None
        if values.places(held) & (row.known | values.places(row.inputs and row.inputs.sets)):
            return None, None, None
        saved = values.clone(held)
        poison = values.poisoned(saved)
        if poison is None or values.overwrite(held, saved) is not held:
            return None, None, None
        return poison, held, saved

    def _lay(self, held: Any, poison: Any) -> Callable[[], object]:
        def lay() -> None:
            values.overwrite(held, poison)
            self._timer.synchronize()

        return lay

    def _time_pairs(self, row: Subject) -> Generator[Slot, Window, Failure | None]:
        """Calls on fresh inputs, each followed by one on the same: there is as much work in it."""
        inputs = row.inputs
        if inputs is None or inputs.is_restored or len(row.times_ns) >= _MOST_PAIRS:
            return None
        for _ in range(_PAIRS):
            which = self._random.randrange(len(inputs.sets))
            other = (which + 1) % len(inputs.sets)
            fresh = inputs.draw(self._random.getrandbits(31))
            warm = inputs.calls_up_to(other, 1).__next__
            same = self._put(row, other, inputs.sets[other])
            pair = []
            for put in (self._put(row, which, fresh), same):
                if put is same:
                    self._wait_ns(_AHEAD_NS)
                slot, _, marks = self._bind(row, which, 1, warm, put)
                window = yield slot
                if window.failure is not None:
                    return row.slot, window.failure[1]
                self._see_outside(row, marks, window)
                pair.append(window.window_ns)
            row.times_ns.append((pair[0], pair[1]))
        return None

    # -- what it means

    def _judge(self, row: Subject, mine: _Seen, wanted: _Seen | None) -> Iterator[Said | Wrong]:
        for code in mine.signs:
            if row.saw(code):
                yield code, {"window_ns": mine.window_ns, "looks": row.looks}
        if row.check is None or wanted is None or not (mine.is_compared and wanted.is_compared):
            return
        if mine.result is None and wanted.result is not None:
            if row.saw(Code.NO_RESULT):
                yield Code.NO_RESULT, {"looks": row.looks}
            return
        if not mine.is_plain and wanted.is_plain:
            mine = mine._replace(result=values.plain(mine.result, wanted.result))
        is_right, is_lazy = self._compare(row.check, mine, wanted.result)
        if is_lazy and row.saw(Code.LAZY_RESULT):
            yield Code.LAZY_RESULT, {"window_ns": mine.window_ns, "looks": row.looks}
        earlier = row.wanted_before
        if values.size_bytes(wanted.result) <= _MOST_KEPT_BYTES:
            row.wanted_before = [*earlier[-5:], wanted.result]
        if is_right:
            return
        is_stale = any(_passes(row.check, mine.result, old) for old in earlier)
        fault = "stale result" if is_stale and row.inputs is not None else "wrong result"
        if Code.NOTHING_WRITTEN not in mine.signs and row.saw(fault):
            words = difference(mine.result, wanted.result)
            yield Wrong(fault, words, {"difference": words, "looks": row.looks})

    def _compare(
        self, check: Callable[[Any, Any], object], mine: _Seen, wanted: Any
    ) -> tuple[bool, bool]:
        """Whether it passes, and whether a result of no known kind was worked out meanwhile."""
        times_ns = []
        is_right = False
        for _ in range(1 if mine.is_plain else 2):
            began_ns = self._now_ns()
            is_right = _passes(check, mine.result, wanted)
            times_ns.append(self._now_ns() - began_ns)
        first_ns, second_ns = times_ns[0], times_ns[-1]
        return is_right, first_ns - second_ns > max(_LEAST_NS, mine.window_ns / 2, second_ns)

    def _judge_times(self, row: Subject, base: Subject | None) -> Iterator[Said]:
        if has_no_work(row.times_ns, [] if base is None else base.times_ns):
            fresh_ns, again_ns = medians(row.times_ns)
            yield (
                Code.FASTER_AGAIN,
                {"fresh_ns": fresh_ns, "again_ns": again_ns, "looks": len(row.times_ns)},
            )

    def _judge_outside(self, row: Subject, base: Subject | None) -> Iterator[Said]:
        """Time that goes by with each window and is not in it."""
        beside = min(row.outside_ns) if len(row.outside_ns) == _OUTSIDE else 0
        if base is not None and len(base.outside_ns) == _OUTSIDE:
            beside -= max(0, *base.outside_ns)
        usual_ns = medians(row.times_ns)[0] if row.times_ns else 0
        if beside > max(_OUTSIDE_NS, usual_ns / 2):
            yield Code.WORK_OUTSIDE_THE_WINDOW, {"outside_ns": beside, "window_ns": usual_ns}


def _passes(check: Callable[[Any, Any], object], mine: Any, wanted: Any) -> bool:
    try:
        verdict = check(mine, wanted) is not False
    except AssertionError:
        verdict = False
    except Exception:  # noqa: BLE001  a check may raise anything: then it does not pass
        verdict = False
    leave_if_copy()
    return verdict

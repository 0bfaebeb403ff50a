"""Does a row do its work? Looked at in windows of its own, timed as all are, at random moments.

Such a window differs from the others in nothing that a callable is told: the same timer takes it.
Before it, the row gets inputs that nobody has seen, and what it returned last is overwritten; after
it the result is held against the baseline's on the same inputs. None of it is inside a window, and
no window of it is in any statistic.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from usv_tui.copies import leave_if_copy
from usv_tui.diagnosis.difference import difference
from usv_tui.errors import one_line
from usv_tui.suite import values
from usv_tui.suite.inputs import Inputs
from usv_tui.suite.reach import reachable
from usv_tui.timers.phases import unwrap
from usv_tui.timers.wall import Failure, Slot, Timer
from usv_tui.timesource import NS_PER_S

_ROUND = -1
_SHARE = 0.03
"""Of a run's time at most, beside the first looks and the last."""
_APART_NS = NS_PER_S // 2
_MOST_BYTES = 1 << 28
"""Larger results are neither copied nor overwritten."""
_MOST_KEPT_BYTES = 1 << 24
"""Smaller results are kept, to tell an old result from a wrong one."""
_ENOUGH = 3
"""Looks after which times are judged."""
_SIGHTINGS = 2
"""A result is called wrong when it was so as often."""
_FASTER_AGAIN = 6.0
"""A repeated call that is faster by more, where the baseline's is not, had no work left."""
_REASON = 120
"""Characters of a reason: torch's are pages long."""
_OFTEN = 6
_OFTEN_AGAIN = 3.5
"""After so many looks less is enough."""
_LEAST_NS = 20_000
_LATE_NS = 2_000_000
"""At least so long after a window its result is looked at again."""
_MOST_LATE_NS = 50_000_000
_LAZY = 8.0
"""Copying a result the first time takes so many times as long as the second: it was not there."""

Said = tuple[str, dict[str, Any]]


class Wrong(NamedTuple):
    """Why a row is not to be believed; its row is retired."""

    code: str
    message: str
    evidence: Mapping[str, Any]


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
    wanted_before: list[Any] = field(default_factory=list)
    """What the baseline made of earlier inputs."""
    times_ns: list[tuple[int, int]] = field(default_factory=list)
    """Of a call on fresh inputs, and of the next one on the same."""
    sightings: dict[str, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    looks: int = 0
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
    signs: tuple[str, ...] = ()
    """Codes of what was odd about the result."""
    failure: Failure | None = None


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

    def plan(self) -> None:
        """Draw the next moment: the later the more the looks so far have cost."""
        mean_ns = max(_APART_NS, self.spent_ns / max(1, self.looks) / _SHARE)
        self._due_ns = self._now_ns() + round(mean_ns * self._random.uniform(0.3, 1.7))

    def meet(self, subject: Subject) -> None:
        """A row before its first call: what memory it has from its set-up."""
        inputs = subject.inputs
        subject.known = reachable(*((unwrap(subject.slot.fn),) if inputs is None else (inputs.fn,)))

    def last_ns(self, rows: int) -> int:
        """How long before the end of a run its last looks must begin."""
        return round(2 * rows * self.spent_ns / max(1, self.looks))

    def missing(self, row: Subject) -> int:
        """How many looks it takes until its times are judged; one, where they are not."""
        return max(1, _ENOUGH - row.looks) if row.inputs is not None else 1

    def can_tell(self, row: Subject, base: Subject | None) -> bool:
        """Whether a look at this row can show anything."""
        if row.is_closed:
            return False
        return (
            row.inputs is not None
            or (row.check is not None and base is not None)
            or (row.is_watched)
        )

    def look(self, row: Subject, base: Subject | None) -> tuple[list[Said | Wrong], Failure | None]:
        """Look at one row, and call its baseline on the same inputs where there is one."""
        began_ns = self._now_ns()
        said: list[Said | Wrong] = []
        failure = None
        try:
            for _ in range(2 * _SIGHTINGS):
                found, failure = self._look(row, base)
                said += [f for f in found if f[0] not in row.told]
                row.told.update(f[0] for f in found)
                is_open = any(n < _SIGHTINGS for n in row.sightings.values())
                if failure is not None or not is_open or any(isinstance(f, Wrong) for f in said):
                    break
        except Exception as error:  # noqa: BLE001  results are strangers' objects
            leave_if_copy(error)
            row.is_closed = True
            said.append(("not audited", {"reason": one_line(error)[:_REASON]}))
        finally:
            self.spent_ns += self._now_ns() - began_ns
            self.looks += 1
        return said, failure

    def _look(
        self, row: Subject, base: Subject | None
    ) -> tuple[list[Said | Wrong], Failure | None]:
        row.looks += 1
        self._remember(row, base)
        which = self._renew(row, base)
        wanted = None
        if base is not None:
            wanted = self._witness(base, which)
            if wanted.failure is not None:
                return [], wanted.failure
        mine = self._witness(row, which)
        if mine.failure is not None:
            return [], mine.failure
        found: list[Said | Wrong] = list(self._judge(row, mine, wanted))
        if which is not None:
            for subject, seen in ((row, mine), (base, wanted)):
                if subject is not None and seen is not None:
                    failure = self._time_again(subject, which, seen.window_ns)
                    if failure is not None:
                        return found, failure
            found += self._judge_times(row, base)
        return found, None

    def _remember(self, row: Subject, base: Subject | None) -> None:
        """What the baseline makes of the inputs that the row has had so far."""
        if row.wanted_before or row.check is None or base is None:
            return
        if base.inputs is None or row.inputs is None:
            return
        for which in range(min(len(base.inputs.sets), len(row.inputs.sets))):
            base.inputs.renew(which, values.clone(row.inputs.sets[which]))
            seen = self._witness(base, which)
            if values.size_bytes(seen.result) <= _MOST_KEPT_BYTES:
                row.wanted_before.append(seen.result)

    def _renew(self, row: Subject, base: Subject | None) -> int | None:
        """Fresh inputs for both; which of the sets has them."""
        if row.inputs is None:
            return None
        fresh = row.inputs.draw(self._random.getrandbits(31))
        which = self._random.randrange(len(row.inputs.sets))
        if base is not None and base.inputs is not None:
            which = min(which, len(base.inputs.sets) - 1)
            base.inputs.renew(which, values.clone(fresh))
        row.inputs.renew(which, fresh)
        return which

    # -- one window

    def _bind(self, row: Subject, which: int | None) -> tuple[Slot, list[Any]]:
        """The row with one call a window, whose result is kept."""
        slot = row.slot.twin()
        fn = unwrap(slot.fn) if which is None else row.inputs.bound(which)  # type: ignore[union-attr]
        kept: list[Any] = [None]

        def call() -> None:
            kept[0] = fn()

        slot.fn, slot.inner, slot.flush, slot.cold_each = call, 1, None, False
        if row.inputs is not None and row.inputs.is_restored:
            slot.reset = None  # the set was written just now
        slot.set_refill(0)
        return slot, kept

    def _witness(self, row: Subject, which: int | None) -> _Seen:
        slot, kept = self._bind(row, which)
        poison, held, saved = self._poison(row)
        window_ns, failure = self._window(slot)
        if failure is not None:
            return _Seen(None, 0, failure=(row.slot, failure[1]))
        result, kept[0] = kept[0], None
        if values.size_bytes(result) > _MOST_BYTES:
            return _Seen(None, window_ns)
        signs = []
        copy, is_lazy = self._copied(result, window_ns)
        if is_lazy:
            signs.append("lazy result")
        if poison is not None and values.equal(held, poison):
            if values.places(result) == values.places(held):
                signs.append("nothing written")
                copy = saved
            values.overwrite(held, saved)
        if self._is_late(result, copy, window_ns):
            signs.append("unfinished result")
        row.kept = result
        return _Seen(copy, window_ns, tuple(signs))

    def _window(self, slot: Slot) -> tuple[int, Failure | None]:
        failure = self._timer.enqueue(_ROUND, [slot])
        leave_if_copy(None if failure is None else failure[1])
        if failure is not None:
            return 0, failure
        found = [r for r in self._timer.harvest(wait=True) if r.round == _ROUND]
        return (max(0, found[-1].window_ns[-1]) if found else 0), None

    def _copied(self, result: Any, window_ns: int) -> tuple[Any, bool]:
        """A copy, and whether making it the first time did the work."""
        strange = list(values.strange(result))
        first_ns, second_ns = (self._reading_ns(strange) for _ in range(2)) if strange else (0, 0)
        is_lazy = first_ns > max(_LEAST_NS, window_ns / 2, _LAZY * second_ns)
        return values.clone(result), is_lazy

    def _reading_ns(self, strange: list[Any]) -> int:
        began_ns = self._now_ns()
        for each in strange:
            values.read(each)
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

    def _poison(self, row: Subject) -> tuple[Any, Any, Any]:
        """Overwrite what the row returned last, where nothing else of the row's is touched."""
        held, row.kept = row.kept, None
        if row.known is None or not (
            values.is_tensor(held) or hasattr(held, "__array_interface__")
        ):
            return None, None, None
        if values.places(held) & (row.known | values.places(row.inputs and row.inputs.sets)):
            return None, None, None
        saved = values.clone(held)
        poison = values.poisoned(saved)
        if poison is None or values.overwrite(held, poison) is not held:
            return None, None, None
        self._timer.synchronize()
        return poison, held, saved

    def _time_again(self, row: Subject, which: int, fresh_ns: int) -> Failure | None:
        """The same inputs once more: there is as much work in it, or there was none."""
        if row.inputs is not None and row.inputs.is_restored:
            return None
        slot, _ = self._bind(row, which)
        again_ns, failure = self._window(slot)
        if failure is None:
            row.times_ns.append((fresh_ns, again_ns))
        return failure

    # -- what it means

    def _judge(self, row: Subject, mine: _Seen, wanted: _Seen | None) -> Iterator[Said | Wrong]:
        for code in mine.signs:
            if row.saw(code):
                yield code, {"window_ns": mine.window_ns, "looks": row.looks}
        if row.check is None or wanted is None or mine.result is None:
            return
        is_right = _passes(row.check, mine.result, wanted.result)
        earlier = row.wanted_before
        if values.size_bytes(wanted.result) <= _MOST_KEPT_BYTES:
            row.wanted_before = [*earlier[-5:], wanted.result]
        if is_right:
            return
        is_stale = any(_passes(row.check, mine.result, old) for old in earlier)
        code = "stale result" if is_stale and row.inputs is not None else "wrong result"
        if "nothing written" not in mine.signs and row.saw(code):
            words = difference(mine.result, wanted.result)
            yield Wrong(code, words, {"difference": words, "looks": row.looks})

    def _judge_times(self, row: Subject, base: Subject | None) -> Iterator[Said]:
        usual = 1.0 if base is None else statistics.median(_faster_again(base.times_ns) or [1.0])
        if not _has_no_work(_faster_again(row.times_ns), max(1.0, usual)):
            return
        fresh_ns, again_ns = (round(statistics.median(t)) for t in zip(*row.times_ns, strict=True))
        yield (
            "faster again",
            {"fresh_ns": fresh_ns, "again_ns": again_ns, "looks": len(row.times_ns)},
        )


def _faster_again(times_ns: list[tuple[int, int]]) -> list[float]:
    """By how much each second call on the same inputs was faster: 1 where it hardly was."""
    return [
        fresh / max(1, again) if fresh - again > _LEAST_NS else 1.0 for fresh, again in times_ns
    ]


def _has_no_work(quotients: list[float], usual: float) -> bool:
    """Far faster in each of a few looks, or clearly so in most of many."""
    if len(quotients) < _ENOUGH:
        return False
    least, middle = min(quotients), statistics.median(quotients)
    low = statistics.quantiles(quotients, n=4)[0]
    is_often = len(quotients) >= _OFTEN and middle >= _OFTEN_AGAIN * usual and low > 2 * usual
    return least >= _FASTER_AGAIN * usual or is_often


def _passes(check: Callable[[Any, Any], object], mine: Any, wanted: Any) -> bool:
    try:
        verdict = check(mine, wanted) is not False
    except AssertionError:
        verdict = False
    except Exception:  # noqa: BLE001  a check may raise anything: then it does not pass
        verdict = False
    leave_if_copy()
    return verdict

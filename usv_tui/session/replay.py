"""A saved session under the screen: played, paused, sought through; or watched while it grows.

Everything on the screen is a fold of the records up to the playhead, looked at on the session's own
clock, so that a replay stopped at t shows what the screen showed at t.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from usv_tui.codes import Code
from usv_tui.errors import UsageError
from usv_tui.gate import Gate
from usv_tui.model import AT_WORK, Notice
from usv_tui.records import (
    AnyRecord,
    Baseline,
    BenchError,
    Clocks,
    Command,
    Fault,
    Gap,
    Ghosts,
    Mark,
    Noted,
    Progress,
    Visit,
    Window,
    time_of,
)
from usv_tui.session import image, journal
from usv_tui.session.faults import Faults
from usv_tui.session.row_store import MAX_WINDOW
from usv_tui.session.shown import ShownSession
from usv_tui.session.snapshot import Snapshot
from usv_tui.session.store import Store
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource
from usv_tui.units import duration

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
Chosen = Baseline | Window | Ghosts
"""What a viewer chooses."""
STEP_NS = 10 * NS_PER_S
_EVENTS = (Mark, Gap, BenchError, Clocks, Fault, Visit, Progress)
_BEFORE_EVENT_NS = NS_PER_S // 10
"""The playhead stops just behind an event, so that it is seen."""


_OPENING_S, _LOOK_S = 1.0, 0.15
"""How long one folds before one shows how far one is: when one goes to a moment, and at a look."""
_STOP_S = 1.0
"""After so long a fold is kept from which one can go on …"""
_MOST_STOPS = 24
"""… and when there are so many, every other one goes."""


class _Frame(NamedTuple):
    """Some records of the file."""

    span: journal.Span
    end: int
    """Where the file goes on."""
    first_ns: int
    last_ns: int
    """When the first and the last of them are due."""
    records: list[AnyRecord] | None
    """What stands for damage, which is nowhere in the file."""


class _Stop(NamedTuple):
    """A moment from which the fold can go on."""

    at_ns: int
    frame: int
    """The frame that comes next."""
    make: Callable[[], Store | None]


class Playhead:
    """A moment of a session that moves with the time of the day, at a speed, while it plays."""

    def __init__(self, time_source: TimeSource | None = None) -> None:
        self.at_ns = 0
        self.speed = 1.0
        self.is_playing = False
        self._time = time_source or MonotonicTime()
        self._seen_ns = self._time.now_ns()

    def now_ns(self) -> int:
        """Where it is."""
        return self.at_ns

    def wait(self, event: threading.Event, timeout_ns: int) -> bool:
        """Wait in real time."""
        return self._time.wait(event, timeout_ns)

    def move(self) -> None:
        """Catch up with what has passed since the last time."""
        now_ns = self._time.now_ns()
        if self.is_playing:
            self.at_ns += int((now_ns - self._seen_ns) * self.speed)
        self._seen_ns = now_ns


class ReplaySession(ShownSession):
    """Folds recorded records up to a playhead."""

    why_fixed = "this is a saved session: nothing is measured"

    def __init__(
        self, path: Path, playhead: Playhead, *, at_end: bool = True, follow: bool = False
    ) -> None:
        """Open it at its end, or at its first sample and playing.

        A long one is not folded to its end at once: `pump` goes on with it, and says how far it is.

        Args:
            path: the session file.
            playhead: the screen's clock from now on.
            at_end: show the whole session at first.
            follow: look for what is appended to the file, and stay at its end.

        Raises:
            UsageError: it cannot be read, is no session, or is from a newer version.
        """
        self.path = path
        self.gate = Gate()
        self.faults = Faults(self._tell_fault)
        self._playhead = playhead
        self._follows = follow
        self._is_at_edge = follow
        self._frames: list[_Frame] = []
        """Where everything is: made when somebody wants to see what was before the end."""
        self._stops: list[_Stop] = []
        """Moments from which the fold can go on, in the order of the file."""
        self._events: list[int] = []
        self._work_ns = 0
        self._own: list[Chosen] = []
        """What the viewer chose, which is in no file."""
        self._is_own = False
        """Something of the viewer's is in the fold."""
        self._position = (0, 0)
        """The frame and the record in it that come next."""
        self._loaded: tuple[int, list[AnyRecord], list[int]] = (-1, [], [])
        self._index = journal.Reader(path)
        self._is_behind = True
        """The fold has not come to the playhead yet."""
        self._folding_s = 0.0
        """For how long it was folded since the last stop."""
        self._is_tip = at_end or follow
        """All that is in the file is shown as it is read."""
        store, self._tip = image.restored(path) if self._is_tip else (None, self._index)
        self.store = self._new_store() if store is None else self._known(store)
        if self._is_tip:
            self._fold(_OPENING_S)
        else:
            self._read_all()
        if not self.store.start_ns and not self._frames:
            raise UsageError(f"{path} holds no session yet", "it was cut before its first frame")
        playhead.at_ns = self.end_ns if self._is_tip else self._first_ns
        playhead.is_playing = not at_end or follow
        if not self._is_tip:
            self._fold(_OPENING_S)

    @property
    def start_ns(self) -> int:
        """When the session began."""
        return self._frames[0].first_ns if self._frames else self.store.start_ns

    @property
    def end_ns(self) -> int:
        """The time of the last record that is known."""
        return self._frames[-1].last_ns if self._frames else self.store.last_ns

    # -- reading and folding

    def _new_store(self) -> Store:
        store = Store(self.faults.note)
        store.archive = self.path
        return store

    def _known(self, store: Store) -> Store:
        store.on_fault(self.faults.note)
        return store

    def _read(self) -> None:
        """What is new in the file, by where it is."""
        for batch in self._index.batches():
            before_ns = self._frames[-1].last_ns if self._frames else 0
            times = _due(batch, before_ns)
            if not times:
                continue
            kept = None if self._index.span.end else list(batch)
            self._frames.append(_Frame(self._index.span, self._index.at, times[0], times[-1], kept))
            for record, due_ns in zip(batch, times, strict=True):
                is_told = isinstance(record, Noted) and record.notice.level in ("warn", "error")
                if is_told or isinstance(record, _EVENTS):
                    self._events.append(due_ns)
                if isinstance(record, Progress) and record.phase in AT_WORK:
                    self._work_ns = self._work_ns or record.at_ns

    @property
    def _first_ns(self) -> int:
        """When rows began to be warmed or measured."""
        return self._work_ns or self.start_ns

    def _read_all(self) -> None:
        """One wants to see what was before the end: from now on the playhead says what is shown."""
        if self._frames:
            return
        self._read()
        if self._is_tip:
            self._is_tip = False
            ends = [frame.end for frame in self._frames]
            for found in reversed(list(image.kept(self.path))):
                after = bisect_right(ends, found.end.end)
                if after and ends[after - 1] == found.end.end:
                    self._stops.append(_Stop(self._frames[after - 1].last_ns, after, found.make))
            # All of the file that was shown is behind; what the tip has not read comes again.
            self._position = (bisect_right(ends, self._tip.at), 0)

    def _fold(self, budget_s: float) -> bool:
        """Fold what is due, for about so long; true when there was something."""
        begin_s = time.perf_counter()
        way = self._fold_tip if self._is_tip else self._fold_frames
        was_over = self.store.last_ns, self._position
        self._is_behind = True
        for _ in way():
            spent_s = time.perf_counter() - begin_s
            if spent_s > budget_s:
                break
        else:
            self._is_behind = False
            if not self._follows and (self._is_tip or self._position[0] == len(self._frames)):
                self.store.conclude()
        self._folding_s += time.perf_counter() - begin_s
        return was_over != (self.store.last_ns, self._position)

    def _fold_tip(self) -> Iterator[None]:
        for batch in self._tip.batches():
            self.store.apply(batch)
            yield

    def _fold_frames(self) -> Iterator[None]:
        index, first = self._position
        while index < len(self._frames) and self._frames[index].first_ns <= self._playhead.at_ns:
            records, times = self._load(index)
            upto = bisect_right(times, self._playhead.at_ns)
            self.store.apply(records[first:upto])
            if upto < len(records):
                self._position = (index, max(upto, first))
                return
            index, first = index + 1, 0
            self._position = (index, 0)
            yield
            self._keep_stop(index)

    def _load(self, index: int) -> tuple[list[AnyRecord], list[int]]:
        if self._loaded[0] != index:
            frame = self._frames[index]
            records = frame.records or journal.records_at(self.path, frame.span)
            before_ns = self._frames[index - 1].last_ns if index else 0
            self._loaded = (index, records, _due(records, before_ns))
        return self._loaded[1:]

    def _keep_stop(self, index: int) -> None:
        """So that going back is quick, too: the fold as it is here, in bounded memory."""
        last = self._stops[-1].frame if self._stops else 0
        if self._folding_s < _STOP_S or index <= last or self._is_own:
            return
        self._folding_s = 0.0
        parts = [record.state for record in image.records_of(self.store)]
        at_ns = self._frames[index - 1].last_ns
        self._stops.append(_Stop(at_ns, index, partial(image.unpacked, parts, self.path)))
        if len(self._stops) > _MOST_STOPS:
            del self._stops[1::2]

    def pump(self) -> bool:
        """Move the playhead and fold in what it has passed."""
        head = self._playhead
        if self._frames and self._follows:
            self._read()
        at_ns = head.at_ns
        head.move()
        if self._is_behind:
            head.at_ns = at_ns
        if self._is_tip:
            has_news = self._fold(_LOOK_S)
            head.at_ns = max(head.at_ns, self.end_ns) if self._is_at_edge else self.end_ns
            head.is_playing = head.is_playing and self._is_at_edge
            if has_news and not self._is_behind:
                self._tell_own()
            return has_news
        if self._is_at_edge:
            head.at_ns = max(head.at_ns, self.end_ns)
        elif head.at_ns >= self.end_ns:
            head.at_ns = self.end_ns
            head.is_playing = False
        return self._fold(_LOOK_S)

    def _go_to(self, at_ns: int) -> None:
        self._read_all()
        at_ns = min(max(at_ns, self.start_ns), self.end_ns)
        self._is_at_edge = self._follows and at_ns == self.end_ns
        is_back = at_ns < self._playhead.at_ns
        self._start_from(at_ns, 0 if is_back else self._position[0] + 1)
        self._playhead.at_ns = at_ns
        self._fold(_OPENING_S)
        self._tell_own()

    def _start_from(self, at_ns: int, least: int) -> None:
        """Fold on from the last stop before a moment, or from the beginning when that is back."""
        for stop in reversed(self._stops):
            if stop.at_ns <= at_ns and stop.frame >= least and (found := stop.make()) is not None:
                self.store, self._position = self._known(found), (stop.frame, 0)
                self._is_own = False
                return
        if not least:
            self.store, self._position, self._is_own = self._new_store(), (0, 0), False

    def _tell_own(self) -> None:
        self.store.apply([_at(record, self.store.last_ns) for record in self._own])
        self._is_own = self._is_own or bool(self._own)

    def at_ns(self, now_ns: int) -> int:  # noqa: ARG002  the playhead is the clock
        """The playhead, wherever it was a moment ago."""
        return self._playhead.at_ns

    def snapshot(self, now_ns: int) -> Snapshot:
        """As it was, with where the playhead is."""
        return replace(self.store.snapshot(now_ns), progress=self._where())

    def _where(self) -> str:
        head = self._playhead
        at_s, all_s = ((t - self.start_ns) / 1e9 for t in (head.at_ns, self.end_ns))
        if self._is_behind and self._is_tip:
            return f"reading {self._tip.at / max(1, self._tip.size):.0%}"
        if self._is_behind:
            return f"reading {self._position[0] / max(1, len(self._frames)):.0%}"
        if self._is_at_edge:
            return "watching"
        state = f"{head.speed:g}x" if head.is_playing else "stopped"
        return f"replay {state} {duration(max(0.0, at_s))} of {duration(all_s)}"

    # -- what a viewer may do

    def toggle_pause(self) -> bool:
        """Play or stop; at the end, play from the beginning."""
        head = self._playhead
        head.move()
        if self._is_at_edge:
            self._read_all()
            self._is_at_edge, head.is_playing = False, False
        elif not head.is_playing and head.at_ns >= self.end_ns and not self._follows:
            self._read_all()
            self._go_to(self._first_ns)
            head.is_playing = True
        else:
            head.is_playing = not head.is_playing
        return not head.is_playing

    def command(self, command: Command) -> None:
        """Nobody is there to take one."""

    def set_baseline(self, bench: int | None) -> None:
        """For this view only."""
        self._choose(Baseline(self.store.last_ns, bench))

    def show_ghosts(self, ghosts: Ghosts) -> None:
        """For this view only."""
        self._choose(ghosts)

    def set_window(self, samples: int) -> None:
        """For this view only."""
        self._choose(Window(self.store.last_ns, max(3, min(samples, MAX_WINDOW))))

    def mark(self, label: str) -> None:
        """For this view only, until one goes back."""
        self._is_own = True
        self.store.apply([Mark(self._playhead.at_ns, label)])

    def _choose(self, record: Chosen) -> None:
        self._own = [r for r in self._own if type(r) is not type(record)] + [record]
        self._is_own = True
        self.store.apply([record])

    def seek(self, action: str) -> str:
        """slower, faster, back, forward, next_event, previous_event, start or end."""
        head = self._playhead
        head.move()
        if action in ("slower", "faster"):
            index = SPEEDS.index(head.speed) + (1 if action == "faster" else -1)
            head.speed = SPEEDS[min(max(index, 0), len(SPEEDS) - 1)]
            return f"speed {head.speed:g}x"
        self._read_all()
        target = self._target(action)
        if target is None:
            return "no event further on"
        self._go_to(target)
        return f"at {duration((head.at_ns - self.start_ns) / 1e9)}"

    def _target(self, action: str) -> int | None:
        at_ns = self._playhead.at_ns
        fixed = {
            "start": self.start_ns,
            "end": self.end_ns,
            "back": at_ns - STEP_NS,
            "forward": at_ns + STEP_NS,
        }
        if action in fixed:
            return fixed[action]
        stops: Sequence[int] = [t + _BEFORE_EVENT_NS for t in self._events]
        if action == "next_event":
            return next((t for t in stops if t > at_ns), None)
        return next((t for t in reversed(stops) if t < at_ns - 2 * _BEFORE_EVENT_NS), None)

    def _tell_fault(self, part: str, reason: str, where: str) -> None:
        evidence = {"part": part, "reason": reason, "where": where}
        at_ns = self._playhead.at_ns
        self.store.apply(
            [Noted(Notice(code=Code.OWN_FAULT, at_ns=at_ns, level="error", evidence=evidence))]
        )


def _due(records: Sequence[AnyRecord], last_ns: int) -> list[int]:
    """When each is due: no earlier than those before it."""
    times: list[int] = []
    for record in records:
        last_ns = max(last_ns, time_of(record) or getattr(record, "t0_ns", 0) or last_ns)
        times.append(last_ns)
    return times


def _at(record: Chosen, at_ns: int) -> Chosen:
    """The same record, at another time."""
    return msgspec.structs.replace(record, at_ns=at_ns)

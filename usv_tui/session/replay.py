"""A saved session under the screen: played, paused, sought through; or watched while it grows.

Everything on the screen is a fold of the records up to the playhead, looked at on the session's own
clock, so that a replay stopped at t shows what the screen showed at t.
"""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

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
        self.store = self._new_store()
        self._playhead = playhead
        self._follows = follow
        self._is_at_edge = follow
        self._reader = journal.Reader(path)
        self._records: list[AnyRecord] = []
        self._times: list[int] = []
        """When each is due: no earlier than those before it."""
        self._events: list[int] = []
        self._own: list[Chosen] = []
        """What the viewer chose, which is in no file."""
        self._position = 0
        self._is_read = True
        """False while an image of the end stands for the records."""
        if at_end and not follow and (kept := image.restored(path)) is not None:
            self.store, self._is_read = kept, False
        else:
            self._read()
        if self._is_read and not self._records:
            raise UsageError(f"{path} holds no session yet", "it was cut before its first frame")
        playhead.at_ns = self.end_ns if at_end or follow else self._first_ns()
        playhead.is_playing = not at_end or follow
        self._fold()

    @property
    def start_ns(self) -> int:
        """When the session began."""
        return self._times[0] if self._is_read else self.store.start_ns

    @property
    def end_ns(self) -> int:
        """The time of the last record that is known."""
        return self._times[-1] if self._is_read else self.store.last_ns

    def _first_ns(self) -> int:
        """When rows began to be warmed or measured."""
        self._read_all()
        for record in self._records:
            if isinstance(record, Progress) and record.phase in AT_WORK:
                return record.at_ns
        return self.start_ns

    # -- reading and folding

    def _new_store(self) -> Store:
        store = Store(self.faults.note)
        store.archive = self.path
        return store

    def _read(self) -> bool:
        fresh = self._reader.more()
        for record in fresh:
            last_ns = self._times[-1] if self._times else 0
            due_ns = max(last_ns, time_of(record) or getattr(record, "t0_ns", 0) or last_ns)
            self._records.append(record)
            self._times.append(due_ns)
            is_told = isinstance(record, Noted) and record.notice.level in ("warn", "error")
            if is_told or isinstance(record, _EVENTS):
                self._events.append(due_ns)
        return bool(fresh)

    def _read_all(self) -> None:
        """The records that an image stood for: one wants to see what was before the end."""
        if not self._is_read:
            self._read()
            self._is_read, self._position = True, len(self._records)

    def _fold(self) -> bool:
        upto = bisect_right(self._times, self._playhead.at_ns)
        if upto <= self._position:
            return False
        self.store.apply(self._records[self._position : upto])
        self._position = upto
        if self._is_over and not self._follows:
            self.store.conclude()
        return True

    @property
    def _is_over(self) -> bool:
        return self._position == len(self._records)

    def pump(self) -> bool:
        """Move the playhead and fold in what it has passed."""
        if self._follows:
            self._read()
        self._playhead.move()
        if self._is_at_edge:
            self._playhead.at_ns = max(self._playhead.at_ns, self.end_ns)
        elif self._playhead.at_ns >= self.end_ns:
            self._playhead.at_ns = self.end_ns
            self._playhead.is_playing = False
        return self._fold()

    def _go_to(self, at_ns: int) -> None:
        self._read_all()
        at_ns = min(max(at_ns, self.start_ns), self.end_ns)
        self._is_at_edge = self._follows and at_ns == self.end_ns
        if at_ns < self._playhead.at_ns:
            self.store = self._new_store()
            self._position = 0
        self._playhead.at_ns = at_ns
        self._fold()
        self.store.apply([_at(record, self.store.last_ns) for record in self._own])

    def at_ns(self, now_ns: int) -> int:  # noqa: ARG002  the playhead is the clock
        """The playhead, wherever it was a moment ago."""
        return self._playhead.at_ns

    def snapshot(self, now_ns: int) -> Snapshot:
        """As it was, with where the playhead is."""
        return replace(self.store.snapshot(now_ns), progress=self._where())

    def _where(self) -> str:
        head = self._playhead
        at_s, all_s = ((t - self.start_ns) / 1e9 for t in (head.at_ns, self.end_ns))
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
            self._is_at_edge, head.is_playing = False, False
        elif not head.is_playing and head.at_ns >= self.end_ns and not self._follows:
            self._go_to(self._first_ns())
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
        self.store.apply([Mark(self._playhead.at_ns, label)])

    def _choose(self, record: Chosen) -> None:
        self._own = [r for r in self._own if type(r) is not type(record)] + [record]
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
            [Noted(Notice(code="own fault", at_ns=at_ns, level="error", evidence=evidence))]
        )


def _at(record: Chosen, at_ns: int) -> Chosen:
    """The same record, at another time."""
    return msgspec.structs.replace(record, at_ns=at_ns)

"""The log: events, notices and what the user's code printed; follows until it is scrolled."""

import time
from collections.abc import Callable
from itertools import islice

from rich.style import Style
from textual.strip import Strip

from usv_tui.session.snapshot import LogLine, Snapshot
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene

TITLED = 4
"""From so many lines on it is said whether these are the events or the output."""
_SIGNS = {"warn": "!", "error": "x", "mark": "^", "out": "|"}


class Log:
    """Draws the last lines, or those around where the user stopped to read."""

    def __init__(self, to_local: Callable[[float], time.struct_time] = time.localtime) -> None:
        self._to_local = to_local
        self._known: dict[tuple[LogLine, int], Strip] = {}
        self._look: Look | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Strip]:
        """`height` lines of events, or of output; the last one tells of newer ones."""
        if height < TITLED:
            return self._lines(scene, width, height)
        return [_title(scene, width), *self._lines(scene, width, height - 1)]

    def _lines(self, scene: Scene, width: int, height: int) -> list[Strip]:
        look, snapshot = scene.look, scene.snapshot
        if look is not self._look:
            self._look, self._known = look, {}
        first_number = snapshot.log_total - len(snapshot.log)
        end = scene.view.log_end
        is_scrolled = end is not None and end < snapshot.log_total and height > 1
        shown_until = end if is_scrolled and end is not None else snapshot.log_total
        body = height - 1 if is_scrolled else height
        stop = max(0, shown_until - first_number)
        is_wanted = (lambda kind: kind == "out") if is_of_output(scene) else _is_event
        fitting = (line for line in reversed(snapshot.log[:stop]) if is_wanted(line.kind))
        shown = [*islice(fitting, body)][::-1]
        out = [self._line(line, snapshot, width) for line in shown]
        out = text.exactly(out, width, body, look.base)
        if is_scrolled:
            newer = f" {snapshot.log_total - shown_until} new {look.glyphs.down} page down"
            out.append(text.strip([(newer, look.warn)], width, look.base))
        self._forget()
        return out

    def _line(self, line: LogLine, snapshot: Snapshot, width: int) -> Strip:
        assert self._look is not None
        known = self._known.get((line, width))
        if known is None:
            known = self._known[line, width] = self._draw(line, snapshot, width, self._look)
        return known

    def _draw(self, line: LogLine, snapshot: Snapshot, width: int, look: Look) -> Strip:
        sign = _SIGNS.get(line.kind, " ")
        style = _style_of(line.kind, look)
        head = f" {self._clock(line.at_ns, snapshot)} " if width >= 30 else " "
        room = width - len(head) - 2
        words = text.clip(look.text(line.text), room, look.glyphs.ellipsis)
        return text.strip([(head, look.dim), (f"{sign} ", style), (words, style)], width, look.base)

    def _clock(self, at_ns: int, snapshot: Snapshot) -> str:
        """Time of day where the session knows it, else time since the start."""
        since_ns = at_ns - snapshot.start_ns
        if snapshot.wall_unix_ns:
            local = self._to_local((snapshot.wall_unix_ns + since_ns) / 1e9)
            return time.strftime("%H:%M:%S", local)
        seconds = max(0, since_ns // 1_000_000_000)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def _forget(self) -> None:
        if len(self._known) > 1000:
            self._known.clear()


def is_of_output(scene: Scene) -> bool:
    """The user looks at what the code printed, not at the events."""
    return scene.view.pane == "output"


def _is_event(kind: str) -> bool:
    return kind != "out"


def _title(scene: Scene, width: int) -> Strip:
    """Which of the two it is, and how much there is of the other."""
    look, output = scene.look, sum(line.kind == "out" for line in scene.snapshot.log)
    counts = {"events": len(scene.snapshot.log) - output, "output": output}
    shown = "output" if is_of_output(scene) else "events"
    runs: list[text.Run] = [(" ", look.base)]
    for name, n in counts.items():
        style = look.strong if name == shown else look.dim
        told = f" {n:,}" if n else " none"
        runs.append((f"{name}{told}  ", style))
    hint = "tab: the other" if shown == "events" and output else ""
    runs.append((hint, look.dim))
    return text.strip(runs, width, look.base)


def scroll(scene: Scene, lines: int) -> None:
    """Move by so many lines (negative: back); following again at the end."""
    snapshot, view = scene.snapshot, scene.view
    first = snapshot.log_total - len(snapshot.log)
    end = snapshot.log_total if view.log_end is None else view.log_end
    end = max(min(end + lines, snapshot.log_total), first + 1)
    view.log_end = None if end >= snapshot.log_total else end


def _style_of(kind: str, look: Look) -> Style:
    return {"warn": look.warn, "error": look.bad, "mark": look.info, "out": look.dim}.get(
        kind, look.base
    )

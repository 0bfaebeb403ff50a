"""The lock dialog: what is known, what is advised, what it takes, and what it did."""

from collections.abc import Sequence

from textual.strip import Strip

from usv_tui.clocks.target import offered_mhz
from usv_tui.errors import ClockError
from usv_tui.model import ClockState
from usv_tui.report.wording.advice import is_idle
from usv_tui.report.wording.rows import clock_words, cost_words
from usv_tui.session.desk import ClockDesk
from usv_tui.session.snapshot import Snapshot
from usv_tui.tui import text
from usv_tui.tui.keys import LOCK
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets import bar
from usv_tui.tui.widgets.strips import QUANTITIES, value_of
from usv_tui.units import fixed, percent, row_unit

NOT_AVAILABLE = "clock control is not available in this session"


class LockDialog:
    """Chooses a clock among the supported ones; keeps what was before the lock."""

    def __init__(self, desk: ClockDesk | None) -> None:
        self._desk = desk
        self._chosen: int | None = None
        self._said = ""
        self._said_at: ClockState | None = None
        """What was known when it was said: news make it old."""
        self._asked: Snapshot | None = None
        """As it was when a lock was asked for, until it is there."""
        self._before: Snapshot | None = None

    def open(self) -> None:
        """Start from the advised clock again."""
        self._chosen = None
        self._said = ""

    def refusal(self, snapshot: Snapshot) -> str:
        """Why nothing can be locked; empty when it can be tried."""
        if self._desk is None:
            return NOT_AVAILABLE
        clocks = snapshot.clocks
        return "" if clocks.can_lock else clocks.reason or NOT_AVAILABLE

    def choice(self, snapshot: Snapshot) -> int | None:
        """The clock that Enter would lock at."""
        if self._chosen is not None:
            return self._chosen
        advice = snapshot.advice
        tried = advice.evidence.get("try_mhz")
        advised = tried or advice.lock_mhz or snapshot.clocks.locked_mhz
        if advised is not None:
            return advised
        base = None if snapshot.device is None else snapshot.device.base_sm_mhz
        offered = offered_mhz(snapshot.device, snapshot.clocks.supported_mhz)
        return base or (offered[len(offered) // 2] if offered else None)

    def act(self, action: str, snapshot: Snapshot) -> bool:
        """Do what a key says; False when it says to leave."""
        if action == "close":
            return False
        if action in ("more", "less"):
            self._step(snapshot, 1 if action == "more" else -1)
        elif action == "advised":
            self._chosen = None
        elif action == "lock":
            self._lock(snapshot)
        elif action == "unlock":
            self._unlock()
        if action in ("lock", "unlock"):
            self._said_at = snapshot.clocks
        return True

    def _step(self, snapshot: Snapshot, direction: int) -> None:
        offered = offered_mhz(snapshot.device, snapshot.clocks.supported_mhz)
        current = self.choice(snapshot)
        if not offered or current is None:
            return
        if direction > 0:
            self._chosen = next((mhz for mhz in offered if mhz > current), offered[-1])
        else:
            self._chosen = next((mhz for mhz in reversed(offered) if mhz < current), offered[0])

    def _lock(self, snapshot: Snapshot) -> None:
        refusal = self.refusal(snapshot)
        chosen = self.choice(snapshot)
        if refusal or chosen is None or self._desk is None:
            self._said = refusal or "no clock to lock at is known"
            return
        try:
            self._desk.lock(chosen)
        except ClockError as error:
            self._said = str(error)
        else:
            self._asked = snapshot
            self._said = f"asked for {chosen} MHz"

    def _unlock(self) -> None:
        if self._desk is None:
            self._said = NOT_AVAILABLE
            return
        try:
            self._desk.unlock()
        except ClockError as error:
            self._said = str(error)
        else:
            self._said = "asked to unlock"

    def lines(self, scene: Scene, width: int, height: int) -> list[tuple[Strip, ...]]:
        """The dialog on the whole screen."""
        look = scene.look
        head = text.strip([(" Lock the clocks", look.bar)], width, look.bar)
        body: list[Strip] = []
        for words, style in self._content(scene, width):
            wrapped = text.wrap(look.own(words), max(1, width - 2))
            body.extend(text.strip([(f" {line}", style)], width, look.base) for line in wrapped)
        body += self._comparison(scene, width)
        out = [head, *text.exactly(body, width, max(0, height - 2), look.base)]
        out.append(bar.footer(LOCK, look, width))
        return [(line,) for line in out[:height]]

    def _content(self, scene: Scene, width: int) -> list[text.Run]:
        look, snapshot = scene.look, scene.snapshot
        clocks, advice = snapshot.clocks, snapshot.advice
        now = value_of(QUANTITIES[0], snapshot.reading)
        running = "" if now is None else f", running at {now:.0f} MHz"
        evidence = f" ({look.text(clocks.evidence)})" if clocks.evidence else ""
        evidence += cost_words(clocks)
        out = [(f"now      {clock_words(clocks)}{running}{evidence}", look.base)]
        tried = advice.evidence.get("try_mhz")
        if tried is not None:
            out.append((f"advised  {tried} MHz: the lock has held, try a step up", look.base))
        elif advice.lock_mhz is not None:
            worth = ", not worth it" if is_idle(advice) else ""
            out.append((f"advised  {advice.lock_mhz} MHz{worth}, see w for why", look.base))
        else:
            out.append(("advised  no clock: see w for why", look.dim))
        chosen = self.choice(snapshot)
        if chosen is not None:
            out += [("", look.base), (f"lock at  {chosen} MHz", look.strong)]
            offered = offered_mhz(snapshot.device, clocks.supported_mhz)
            out.append((_slider(offered, chosen, width - 2, look.glyphs.is_ascii), look.info))
            if not clocks.supported_mhz:
                out.append(("the device lists no clocks: any in its range may be tried", look.dim))
        concerns = [words for words in clocks.concerns if words not in clocks.evidence]
        out += [(f"takes care: {look.text(words)}", look.warn) for words in concerns]
        refusal = self.refusal(snapshot)
        if refusal and refusal not in clocks.evidence:
            out += [("", look.base), (f"cannot lock here: {look.text(refusal)}", look.warn)]
        if self._desk is not None and chosen is not None:
            command = self._desk.command(chosen)
            if command:
                out.append((f"with the rights: {look.text(command)}", look.dim))
        is_news = self._said_at is clocks and self._said not in clocks.evidence
        if self._said and is_news:
            out += [("", look.base), (look.text(self._said), look.strong)]
        out.append(("", look.base))
        return out

    def _comparison(self, scene: Scene, width: int) -> list[Strip]:
        """Median and std of every row before the lock and now."""
        now, look = scene.snapshot, scene.look
        asked, clocks = self._asked, now.clocks
        if asked is not None and clocks.is_ours and _is_other(asked.clocks, clocks):
            self._before, self._asked = asked, None
        before = self._before
        if before is None or not clocks.is_ours:
            return []
        head = f" {'since the lock':<28}{'median':>24}{'std %':>20}"
        out = [text.strip([(head, look.dim)], width, look.base)]
        arrow = look.glyphs.arrow
        clock = [value_of(QUANTITIES[0], s.reading) for s in (before, now)]
        shown = f" {arrow} ".join(fixed(mhz, 0, look.glyphs.dash) for mhz in clock)
        out.append(text.strip([(f" {'clock MHz':<28}{shown:>24}", look.base)], width, look.base))
        for row in now.rows:
            old = before.row(row.bench)
            if old is None:
                continue
            name = text.left(text.clip_middle(scene.name(row), 28, look.glyphs.ellipsis), 28)
            unit = row_unit(row.rolling.median_s)
            median = look.own(
                f"{unit.bare(old.rolling.median_s)} {arrow} {unit.text(row.rolling.median_s)}"
            )
            std = f"{percent(old.rolling.rel_std)} {arrow} {percent(row.rolling.rel_std)}"
            runs = [(f" {name}", look.base), (f"{median:>24}{std:>20}", look.base)]
            out.append(text.strip(runs, width, look.base))
        return out


def _is_other(before: ClockState, now: ClockState) -> bool:
    """The lock that is in force now was not before."""
    return not before.is_ours or before.locked_mhz != now.locked_mhz


def _slider(supported: Sequence[int], chosen: int, width: int, is_ascii: bool) -> str:
    """Where the choice lies among the supported clocks; empty where a line has no room for it."""
    if len(supported) < 2:
        return ""
    low, high = supported[0], supported[-1]
    room = min(40, width - len(f"{low}  {high} MHz") - 1)
    if room < 1:
        return ""
    at = round((min(max(chosen, low), high) - low) / (high - low) * room)
    bar_, knob = ("-", "O") if is_ascii else ("─", "●")
    return f"{low} {bar_ * at}{knob}{bar_ * (room - at)} {high} MHz"

"""The lock dialog: what is known, what is advised, what it takes, and what it did."""

from collections.abc import Sequence

from textual.strip import Strip

from usv_tui.clocks.target import offered_mhz
from usv_tui.clocks.verify import WINDOW_NS
from usv_tui.errors import ClockError
from usv_tui.model import ClockHold, ClockState
from usv_tui.report.wording.advice import gain_words, is_idle
from usv_tui.report.wording.rows import clock_words, cost_words
from usv_tui.session.desk import ClockDesk
from usv_tui.session.lane import LOCK as LOCK_STRETCH
from usv_tui.session.snapshot import Snapshot
from usv_tui.tui import text
from usv_tui.tui.keys import LOCK
from usv_tui.tui.layout import Layout
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets import bar
from usv_tui.tui.widgets.advice import names_of
from usv_tui.tui.widgets.strips import QUANTITIES, value_of
from usv_tui.units import fixed, percent, row_unit

Line = tuple[Strip, ...]
"""A line of the screen: strips side by side."""
OVERLAY_LEAST = 18
"""Below so many lines the dialog takes the whole screen."""
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
        body = text.exactly(self._body(scene, width), width, max(0, height - 2), scene.look.base)
        out = [self._head(scene, width), *body, bar.footer(LOCK, scene.look, width)]
        return [(line,) for line in out[:height]]

    def over(self, lines: list[Line], scene: Scene, layout: Layout) -> list[Line]:
        """The dialog over the lower part of a screen, or over its right column; the chart lives."""
        width, height = layout.width, layout.height
        if height < OVERLAY_LEAST:
            return self.lines(scene, width, height)
        own = layout.right or width
        body = self._body(scene, own)
        rows = layout.rows if layout.right else min(layout.rows, 3)
        room = height - 1 - layout.header - layout.heading - rows
        tall = room if layout.right else min(len(body) + 1, max(room // 2, 8))
        shown = [self._head(scene, own), *text.exactly(body, own, tall - 1, scene.look.base)]
        first = height - 1 - tall
        out = list(lines[: height - 1])
        for index, strip in enumerate(shown):
            above = out[first + index]
            out[first + index] = (above[0], above[1], strip) if layout.right else (strip,)
        return [*out, (bar.footer(LOCK, scene.look, width),)]

    def _head(self, scene: Scene, width: int) -> Strip:
        return text.strip([(" Lock the clocks", scene.look.bar)], width, scene.look.bar)

    def _body(self, scene: Scene, width: int) -> list[Strip]:
        look = scene.look
        body: list[Strip] = []
        for words, style in self._content(scene, width):
            wrapped = text.wrap(look.own(words), max(1, width - 2))
            body.extend(text.strip([(f" {line}", style)], width, look.base) for line in wrapped)
        return body + self._comparison(scene, width)

    def _content(self, scene: Scene, width: int) -> list[text.Run]:
        look, snapshot = scene.look, scene.snapshot
        clocks = snapshot.clocks
        now = value_of(QUANTITIES[0], snapshot.reading)
        running = "" if now is None else f", running at {now:.0f} MHz"
        evidence = f" ({look.text(clocks.evidence)})" if clocks.evidence else ""
        evidence += cost_words(clocks)
        out = [(f"now      {clock_words(clocks)}{running}{evidence}", look.base)]
        out += self._progress(scene, width)
        out.append(self._advised(scene))
        chosen = self.choice(snapshot)
        if chosen is not None:
            out.append((f"lock at  {chosen} MHz{self._price(snapshot, chosen)}", look.strong))
            offered = offered_mhz(snapshot.device, clocks.supported_mhz)
            out.append((_slider(offered, chosen, width - 2, look.glyphs.is_ascii), look.info))
            if not clocks.supported_mhz:
                out.append(("the device lists no clocks: any in its range may be tried", look.dim))
        return out + self._obstacles(scene, chosen)

    def _advised(self, scene: Scene) -> text.Run:
        look, advice = scene.look, scene.snapshot.advice
        tried = advice.evidence.get("try_mhz")
        if tried is not None:
            return (f"advised  {tried} MHz: the lock has held, try a step up", look.base)
        if advice.lock_mhz is None:
            return ("advised  no clock: see w for why", look.dim)
        worth = ", not worth it" if is_idle(advice) else ""
        gain = gain_words(advice, names_of(scene))
        gain = f": {gain}" if gain else ", see w for why"
        return (f"advised  lock at {advice.lock_mhz} MHz{worth}{gain}", look.base)

    def _price(self, snapshot: Snapshot, chosen: int) -> str:
        """What a step costs of the clock as it is without a lock, and whether it is the advised."""
        free = snapshot.clocks.free_mhz or snapshot.advice.evidence.get("clock_median_mhz")
        words = ", as advised" if chosen == snapshot.advice.lock_mhz else ""
        if isinstance(free, int | float) and free > 0:
            cost = (1 - chosen / free) * 100
            side = "costs" if cost >= 0 else "gains"
            words += f", {side} {abs(cost):.1f} % of the free clock ({free:.0f} MHz)"
        return words

    def _progress(self, scene: Scene, width: int) -> list[text.Run]:
        """How far the verification is, and the std on its way down, from the first second on."""
        look, clocks = scene.look, scene.snapshot.clocks
        if not clocks.is_ours:
            return []
        out: list[text.Run] = []
        begun = [
            s.from_ns
            for s in scene.store.curves.limits(0, scene.now_ns + 1)
            if s.kind == LOCK_STRETCH
        ]
        if clocks.hold is ClockHold.PENDING and begun:
            done = min(1.0, max(0, scene.now_ns - begun[-1]) / WINDOW_NS)
            cells = max(4, min(30, width - 40))
            full = round(done * cells)
            rest = "." if look.glyphs.is_ascii else "░"
            drawn = look.glyphs.blocks[-1] * full + rest * (cells - full)
            said = f"{done * WINDOW_NS / 1e9:.0f} of {WINDOW_NS / 1e9:.0f} s"
            out.append((f"verify   {drawn} {said}", look.info))
        row = scene.row
        if row is not None and row.before_lock:
            std = row.rolling.rel_std
            after = "counting" if std is None else f"{std * 100:.2f} %"
            words = f"std      {row.before_lock * 100:.2f} % → {after}  {scene.name(row)}"
            out.append((f"{words}, {row.rolling.n:,} samples", look.strong))
        return out

    def _obstacles(self, scene: Scene, chosen: int | None) -> list[text.Run]:
        look, clocks = scene.look, scene.snapshot.clocks
        concerns = [words for words in clocks.concerns if words not in clocks.evidence]
        out = [(f"takes care: {look.text(words)}", look.warn) for words in concerns]
        refusal = self.refusal(scene.snapshot)
        if refusal and refusal not in clocks.evidence:
            out.append((f"cannot lock here: {look.text(refusal)}", look.warn))
        if self._desk is not None and chosen is not None:
            command = self._desk.command(chosen)
            if command:
                out.append((f"with the rights: {look.text(command)}", look.dim))
        is_news = self._said_at is clocks and self._said not in clocks.evidence
        if self._said and is_news:
            out.append((look.text(self._said), look.strong))
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
        names = max(8, min(28, width - 46))
        head = f" {'since the lock':<{names}}{'median':>25}{'std %':>18}"
        out = [text.strip([(head, look.dim)], width, look.base)]
        arrow = look.glyphs.arrow
        clock = [value_of(QUANTITIES[0], s.reading) for s in (before, now)]
        shown = f" {arrow} ".join(fixed(mhz, 0, look.glyphs.dash) for mhz in clock)
        words = f" {'clock MHz':<{names}}{shown:>25}"
        out.append(text.strip([(words, look.base)], width, look.base))
        for row in now.rows:
            old = before.row(row.bench)
            if old is None:
                continue
            name = text.clip_middle(scene.name(row), names, look.glyphs.ellipsis)
            unit = row_unit(row.rolling.median_s)
            median = look.own(
                f"{unit.bare(old.rolling.median_s)} {arrow} {unit.text(row.rolling.median_s)}"
            )
            was = row.before_lock or old.rolling.rel_std
            std = f"{percent(was)} {arrow} {percent(row.rolling.rel_std)}"
            runs = [(f" {text.left(name, names)}", look.base)]
            out.append(text.strip([*runs, (f"{median:>25}{std:>18}", look.base)], width, look.base))
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

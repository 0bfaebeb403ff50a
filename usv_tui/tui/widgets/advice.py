"""The advice: the verdict's word, its evidence in a few lines, and what to do."""

from collections.abc import Sequence

from rich.style import Style
from textual.strip import Strip

from usv_tui.model import Advice, Verdict
from usv_tui.report.wording.advice import AdviceText, advice_text, short_text
from usv_tui.tui import text
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene


def verdict_style(verdict: Verdict, look: Look) -> Style:
    """Colour of the verdict's word."""
    return {
        Verdict.STEADY: look.good,
        Verdict.LOCK: look.warn,
        Verdict.WAIT: look.info,
        Verdict.THROTTLED_POWER: look.bad,
        Verdict.THROTTLED_THERMAL: look.bad,
        Verdict.NOT_CLOCK: look.strong,
        Verdict.HIDDEN: look.bad,
        Verdict.CANNOT_LOCK: look.bad,
    }.get(verdict, look.dim)


def names_of(scene: Scene) -> dict[int, str]:
    """The rows' names by their ids, safe to show."""
    return {row.bench: scene.name(row) for row in scene.snapshot.rows}


class AdvicePanel:
    """Draws the advice; the same advice gives the same lines without work."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._said = advice_text(Advice())
        self._lines: dict[tuple[int, int], tuple[Strip, ...]] = {}

    def lines_wanted(self, scene: Scene) -> int:
        """How many lines the whole panel takes."""
        self._look_at(scene)
        return 1 + len(self._said.evidence) + (1 if _what_to_do(scene) else 0)

    def lines(self, scene: Scene, width: int, height: int) -> Sequence[Strip]:
        """One line with the gist, or a panel with evidence and command."""
        self._look_at(scene)
        known = self._lines.get((width, height))
        if known is None:
            lines = _draw(scene, self._said, width, height)
            known = self._lines[width, height] = tuple(lines)
        return known

    def _look_at(self, scene: Scene) -> None:
        snapshot = scene.snapshot
        seen = (snapshot.advice, snapshot.clocks, scene.look)
        known = len(self._seen) == 5 and all(a is b for a, b in zip(seen, self._seen, strict=False))
        rest = (scene.command, len(snapshot.rows))
        if not known or rest != self._seen[3:]:
            self._seen = (*seen, *rest)
            self._said = advice_text(snapshot.advice, names_of(scene))
            self._lines.clear()


def _draw(scene: Scene, said: AdviceText, width: int, height: int) -> list[Strip]:
    look, advice = scene.look, scene.snapshot.advice
    ellipsis = look.glyphs.ellipsis
    head: list[text.Run] = [
        (" ADVICE  ", look.dim),
        (said.word, verdict_style(advice.verdict, look)),
    ]
    room = width - sum(text.width_of(run[0]) for run in head) - 2
    gist = short_text(advice) if height < 3 else said.meaning
    head.append(("  " + text.clip(look.own(gist), room, ellipsis), look.base))
    out = [text.strip(head, width, look.base)]
    command = _what_to_do(scene)
    room_for_facts = height - 1 - (1 if command else 0)
    for fact in said.evidence[: max(0, room_for_facts)]:
        words = text.clip(look.own(fact), width - 3, ellipsis)
        out.append(text.strip([(f"  {words}", look.base)], width, look.base))
    if command and height > 1:
        words = text.clip(look.own(command), width - 3, ellipsis)
        out.append(text.strip([(f"  {words}", look.dim)], width, look.base))
    return text.exactly(out, width, height, look.base)


def _what_to_do(scene: Scene) -> str:
    """The key, and the command for somebody with the rights."""
    advice, clocks = scene.snapshot.advice, scene.snapshot.clocks
    if advice.lock_mhz is None or scene.is_replay:
        return ""
    if clocks.can_lock:
        return "press l to lock, w for the evidence"
    if scene.command:
        return f"with the rights: {scene.command}"
    return f"cannot lock here: {scene.look.text(clocks.reason)}" if clocks.reason else ""

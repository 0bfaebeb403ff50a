"""The advice: the verdict's word, its evidence in a few lines, and what to do."""

from rich.style import Style
from textual.strip import Strip

from usv_tui.model import Verdict
from usv_tui.report.advice_text import advice_text, short_text
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
    }.get(verdict, look.dim)


def names_of(scene: Scene) -> dict[int, str]:
    """The rows' names by their ids, safe to show."""
    return {row.bench: scene.look.text(row.name) for row in scene.snapshot.rows}


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """One line with the gist, or a panel with evidence and command."""
    look, advice = scene.look, scene.snapshot.advice
    ellipsis = look.glyphs.ellipsis
    said = advice_text(advice, names_of(scene))
    head: list[text.Run] = [
        (" ADVICE  ", look.dim),
        (said.word, verdict_style(advice.verdict, look)),
    ]
    room = width - sum(text.width_of(run[0]) for run in head) - 2
    gist = short_text(advice) if height < 3 else said.meaning
    head.append(("  " + text.clip(look.own(gist), room, ellipsis), look.base))
    out = [text.strip(head, width, look.base)]
    if height < 2:
        return text.exactly(out, width, height, look.base)
    command = _what_to_do(scene)
    room_for_facts = height - 1 - (1 if command else 0)
    for fact in said.evidence[: max(0, room_for_facts)]:
        words = text.clip(look.own(fact), width - 3, ellipsis)
        out.append(text.strip([(f"  {words}", look.base)], width, look.base))
    if command:
        words = text.clip(look.own(command), width - 3, ellipsis)
        out.append(text.strip([(f"  {words}", look.dim)], width, look.base))
    return text.exactly(out, width, height, look.base)


def lines_wanted(scene: Scene) -> int:
    """How many lines the whole panel takes."""
    said = advice_text(scene.snapshot.advice)
    return 1 + len(said.evidence) + (1 if _what_to_do(scene) else 0)


def _what_to_do(scene: Scene) -> str:
    """The key, and the command for somebody with the rights."""
    advice, clocks = scene.snapshot.advice, scene.snapshot.clocks
    if advice.lock_mhz is None:
        return ""
    if clocks.can_lock:
        return "press l to lock, w for the evidence"
    if scene.command:
        return f"with the rights: {scene.command}"
    return f"cannot lock here: {scene.look.text(clocks.reason)}" if clocks.reason else ""

"""Why is it noisy: the culprits with what to do, as a pane and at the head of a page."""

from collections.abc import Sequence

from textual.strip import Strip

from usv_tui.report.wording.noise import NOBODY, culprits
from usv_tui.tui import text
from usv_tui.tui.view import Scene


def paragraphs(scene: Scene) -> Sequence[text.Run]:
    """A title, then two lines for each culprit."""
    look = scene.look
    out: list[text.Run] = [("why is it noisy", look.strong)]
    found = culprits(scene.snapshot)
    if not found:
        return [*out, (f"  {NOBODY}", look.dim)]
    for culprit in found:
        out.append((f"{look.glyphs.alert} {look.own(look.text(culprit.what))}", look.warn))
        if culprit.remedy:
            arrow = look.glyphs.arrow
            out.append((f"  {arrow} {look.own(look.text(culprit.remedy))}", look.base))
    return out


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """As much as fits, wrapped."""
    look = scene.look
    out: list[Strip] = []
    for words, style in paragraphs(scene):
        wrapped = text.wrap(words, max(1, width - 2))
        out += [text.strip([(f" {line}", style)], width, look.base) for line in wrapped]
    return text.exactly(out, width, height, look.base)

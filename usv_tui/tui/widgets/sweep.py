"""A clock sweep while it runs: every clock that was visited, for the selected row."""

from textual.strip import Strip

from usv_tui.report import sweep
from usv_tui.tui import text
from usv_tui.tui.view import Scene


def lines(scene: Scene, width: int, height: int) -> list[Strip]:
    """The report of the selected row, and the marks so far."""
    look, row = scene.look, scene.row
    steps = scene.store.steps()
    if row is None or not steps:
        words = " no clock visited yet" if scene.snapshot.progress else " no clock sweep"
        told = [text.strip([(words, look.dim)], width, look.base)]
        return text.exactly(told, width, height, look.base)
    names = {row.bench: scene.name(row)}
    said = sweep.render(steps, names, bench=row.bench, width=width - 2).splitlines()
    table = 3 + len(steps)
    runs: list[text.Run] = []
    for i, line in enumerate(said):
        style = look.strong if i == 0 else look.dim if i < 3 else look.base
        parts = [line] if 0 < i < table else text.wrap(line, width - 2)
        runs += [(f" {look.own(part)}", style) for part in parts]
    shown = [text.strip([run], width, look.base) for run in runs]
    return text.exactly(shown, width, height, look.base)

"""The command line behind `:`, which is the palette too: verbs, completion, history."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from textual.strip import Strip

from usv_tui.tui import text
from usv_tui.tui.keys import Key
from usv_tui.tui.look import Look

MOST_SHOWN = 8
_MOST_HISTORY = 100
_MOST_TYPED = 400


class Verb(NamedTuple):
    """Something to type: its name, what follows it, and what it does."""

    name: str
    argument: str
    help: str


VERBS: tuple[Verb, ...] = (
    Verb("lock", "MHZ", "lock the clocks, at the advised clock where none is given"),
    Verb("unlock", "", "give the clocks back"),
    Verb("window", "SAMPLES", "the rolling window"),
    Verb("base", "NAME", "what ratios refer to; without a name: each group's own"),
    Verb("filter", "WORDS", "rows whose names hold all words; not a !word"),
    Verb("sort", "COLUMN", "sort rows; without a column: as in the file"),
    Verb("zoom", "SECONDS", "time on the charts, or all"),
    Verb("columns", "SET", "window, whole or tails"),
    Verb("pane", "NAME", "what the lower pane shows"),
    Verb("mark", "LABEL", "a new epoch: statistics begin afresh"),
    Verb("save", "FILE.usv", "a copy of the session so far"),
    Verb("export", "KIND FILE", "md, html, svg … beside the session where no file is given"),
)


def palette(live: Sequence[Key]) -> dict[str, str]:
    """Every action by a name to type, with its key in front of its sentence."""
    found = {v.name: f"{v.argument}  {v.help}".strip() for v in VERBS}
    for key in live:
        name = key.action.replace("_", "-")
        if key.help and name not in found:
            found[name] = f"[{key.display}] {key.help}"
    return found


class Candidate(NamedTuple):
    """One way to complete what is typed."""

    line: str
    """The whole line with it."""
    help: str


class CommandLine:
    """What is typed, what it may become, and what was typed before."""

    def __init__(self) -> None:
        self.typed = ""
        self.is_open = False
        self._chosen = -1
        self._stem = ""
        self._history: list[str] = []
        self._at = 0

    @property
    def stem(self) -> str:
        """What was typed, before a candidate was put in its place."""
        return self._stem

    def open(self) -> None:
        """Begin a line."""
        self.typed = self._stem = ""
        self.is_open, self._chosen, self._at = True, -1, len(self._history)

    def press(
        self, key: str, character: str | None, complete: Callable[[str], Sequence[Candidate]]
    ) -> str | None:
        """A key; returns the line to run, or None while there is none."""
        if key == "enter":
            self.is_open = False
            return self._enter(complete)
        if key == "escape" or (key in ("backspace", "ctrl+h") and not self.typed):
            self.is_open = False
        elif key in ("tab", "shift+tab"):
            self._cycle(complete(self._stem), 1 if key == "tab" else -1)
        elif key in ("up", "down"):
            self._recall(-1 if key == "up" else 1)
        elif key in ("backspace", "ctrl+h"):
            self._type(self.typed[:-1])
        elif key == "ctrl+u":
            self._type("")
        elif character and character.isprintable():
            self._type((self.typed + character)[:_MOST_TYPED])
        return None

    def paste(self, words: str) -> None:
        """Pasted text is typed text, of one line."""
        safe = "".join(c for c in words if c.isprintable())
        self._type((self.typed + safe)[:_MOST_TYPED])

    def _type(self, line: str) -> None:
        self.typed = self._stem = line
        self._chosen = -1

    def _cycle(self, found: Sequence[Candidate], step: int) -> None:
        if found:
            first = 0 if step > 0 else len(found) - 1
            self._chosen = (self._chosen + step) % len(found) if self._chosen >= 0 else first
            self.typed = found[self._chosen].line

    def _recall(self, step: int) -> None:
        self._at = min(max(self._at + step, 0), len(self._history))
        self._type(self._history[self._at] if self._at < len(self._history) else "")

    def _enter(self, complete: Callable[[str], Sequence[Candidate]]) -> str:
        line = self.typed.strip()
        found = complete(line) if line and " " not in line else []
        if len(found) == 1:  # what can mean one thing only means it
            line = found[0].line.strip()
        if line and line not in self._history[-1:]:
            self._history = [*self._history, line][-_MOST_HISTORY:]
        return line

    def lines(self, look: Look, width: int, found: Sequence[Candidate], most: int) -> list[Strip]:
        """The candidates, the chosen one marked, above the line that is typed."""
        first = max(0, min(self._chosen - most + 1, len(found) - most))
        shown = found[first : first + most]
        names = max((text.width_of(c.line) for c in shown), default=0)
        out = []
        for index, candidate in enumerate(shown, start=first):
            is_chosen = index == self._chosen
            mark = look.glyphs.cursor if is_chosen else " "
            name = text.left(look.text(candidate.line), min(names, width // 2))
            style = look.strong if is_chosen else look.key
            runs = [(f"{mark} {name}  ", style), (look.own(look.text(candidate.help)), look.dim)]
            out.append(text.strip(runs, width, look.base))
        hint = "   tab completes  enter runs  esc leaves"
        runs = [(" :", look.dim), (f"{look.text(self.typed)}_", look.strong), (hint, look.dim)]
        return [*out, text.strip(runs, width, look.base)]


def candidates(
    line: str, names: Mapping[str, str], arguments: Callable[[str], Sequence[str]]
) -> list[Candidate]:
    """What a line may become: a verb, or a verb's argument.

    Args:
        line: what is typed.
        names: verbs and actions with their sentences.
        arguments: what may follow a verb.
    """
    verb, space, rest = line.partition(" ")
    if not space:
        begins = [name for name in names if name.startswith(verb)]
        holds = [name for name in names if verb in name and name not in begins]
        return [Candidate(name, names[name]) for name in (*begins, *holds)]
    wanted = rest.strip().casefold()
    offered = arguments(verb)
    begins = [word for word in offered if word.casefold().startswith(wanted)]
    holds = [word for word in offered if wanted in word.casefold() and word not in begins]
    return [Candidate(f"{verb} {word}", names.get(verb, "")) for word in (*begins, *holds)]


def nearest(verb: str, names: Sequence[str]) -> str:
    """What was meant, perhaps; empty for nothing near."""
    from difflib import get_close_matches  # noqa: PLC0415  only for a mistake

    return next(iter(get_close_matches(verb, names, n=1)), "")

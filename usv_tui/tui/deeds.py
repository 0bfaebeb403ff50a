"""What the verbs of the command line do to a session."""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from usv_tui import plain
from usv_tui.clocks.target import offered_mhz
from usv_tui.errors import UsvError
from usv_tui.report import formats
from usv_tui.report.columns import COLUMNS, SETS
from usv_tui.report.table import render
from usv_tui.session import outputs
from usv_tui.session.opened import Opened
from usv_tui.tui import keys
from usv_tui.tui.command import VERBS, nearest
from usv_tui.tui.rows import sortable
from usv_tui.tui.view import PANES, WINDOWS

if TYPE_CHECKING:
    from usv_tui.tui.presenter import Presenter

GATE_NS = 250_000_000
MARKDOWN = "md"
_LONGEST_SPAN_S = 30 * 86400


class Refused(Exception):
    """What was typed cannot be done; the message says why."""


class Deeds:
    """One method for each verb; each says what it did."""

    def __init__(self, presenter: "Presenter") -> None:
        self._on = presenter

    def arguments(self, verb: str) -> Sequence[str]:
        """What may follow a verb."""
        shown = self._on.shown
        clocks = offered_mhz(shown.device, shown.clocks.supported_mhz)
        return {
            "lock": [str(mhz) for mhz in reversed(clocks)],
            "window": [str(n) for n in WINDOWS],
            "base": [plain.name(row.name) for row in shown.rows if row.parent is None],
            "sort": ["name", *(c.key for c in sortable(self._on.view.columns))],
            "zoom": ["10", "60", "300", "all"],
            "columns": list(SETS),
            "pane": list(PANES),
            "export": [MARKDOWN, *formats.FORMATS],
        }.get(verb, [])

    def run(self, line: str, now_ns: int) -> str:
        """Do what a line says; returns what only the app can do, else an empty string."""
        verb, _, rest = line.partition(" ")
        deed: Callable[[str, int], None] | None = getattr(self, f"do_{verb}", None)
        try:
            if deed is not None and verb in {v.name for v in VERBS}:
                self._may(verb)
                deed(rest.strip(), now_ns)
                return ""
            return self._act(verb, now_ns)
        except (Refused, UsvError) as error:
            self._on.say(f"{verb}: {error}", now_ns)
        except OSError as error:
            self._on.say(f"{verb}: {error.strerror or error}", now_ns)
        return ""

    def _may(self, verb: str) -> None:
        why = self._on.why_not({"unlock": "lock"}.get(verb, verb))
        if why:
            raise Refused(why)

    def _act(self, verb: str, now_ns: int) -> str:
        """An action of a key, by its name."""
        action = verb.replace("-", "_")
        known = {key.action: key for key in keys.LIVE}
        if action not in known:
            names = [*(v.name for v in VERBS), *(name.replace("_", "-") for name in known)]
            near = nearest(verb, names)
            hint = f"did you mean :{near}?" if near else "tab lists what there is"
            raise Refused(f"no such command; {hint}")
        return self._on.press(known[action].keys[0], None, now_ns)

    # -- the verbs

    def do_lock(self, rest: str, now_ns: int) -> None:
        """Lock at a clock, or as advised."""
        desk, advised = self._on.desk, self._on.shown.advice.lock_mhz
        if desk is None:
            raise Refused("clock control is not available in this session")
        if not rest and advised is None:
            raise Refused("no clock is advised; give one in MHz")
        asked = _number(rest.lower().removesuffix("mhz"), "a clock in MHz") if rest else advised
        assert asked is not None
        desk.lock(asked)
        self._on.say(f"asked for {asked} MHz", now_ns)

    def do_unlock(self, _rest: str, now_ns: int) -> None:
        """Give the clocks back."""
        if self._on.desk is None:
            raise Refused("clock control is not available in this session")
        self._on.desk.unlock()
        self._on.say("asked to unlock", now_ns)

    def do_window(self, rest: str, now_ns: int) -> None:
        """The rolling window."""
        samples = _number(rest.replace(",", ""), "a number of samples")
        if not WINDOWS[0] // 10 <= samples <= WINDOWS[-1]:
            raise Refused(f"from {WINDOWS[0] // 10} to {WINDOWS[-1]:,} samples")
        self._on.set_window(samples, now_ns)

    def do_base(self, rest: str, now_ns: int) -> None:
        """What ratios refer to."""
        if not rest:
            self._on.compare_with(None, now_ns)
            return
        tops = [row for row in self._on.shown.rows if row.parent is None]
        names = {plain.name(row.name): row for row in tops}
        holding = [row for name, row in names.items() if rest.casefold() in name.casefold()]
        row = names.get(rest) or (holding[0] if len(holding) == 1 else None)
        if row is None:
            raise Refused(f"{len(holding)} rows are named like {plain.line(rest)}")
        self._on.compare_with(row, now_ns)

    def do_filter(self, rest: str, _now_ns: int) -> None:
        """Which rows are shown."""
        self._on.view.pattern = rest

    def do_sort(self, rest: str, now_ns: int) -> None:
        """By a column's key or heading."""
        keys_ = ["name", *(c.key for c in sortable(self._on.view.columns))]
        headed = {c.heading.casefold(): c.key for c in COLUMNS if c.key in keys_}
        key = rest if rest in keys_ else headed.get(rest.casefold(), "")
        if rest and not key:
            raise Refused(f"no column {plain.line(rest)}; there are {', '.join(keys_)}")
        self._on.sort_by(key, now_ns)

    def do_zoom(self, rest: str, _now_ns: int) -> None:
        """Time on the charts."""
        whole = rest.casefold() in ("", "all")
        span_s = None if whole else _number(rest.removesuffix("s").strip(), "seconds, or all")
        if span_s is not None and not 1 <= span_s <= _LONGEST_SPAN_S:
            raise Refused("from 1 s to 30 days")
        self._on.view.span_s = span_s
        self._on.view.cursor_ns = None

    def do_columns(self, rest: str, _now_ns: int) -> None:
        """The set of columns."""
        self._on.view.columns = _one_of(rest, SETS)

    def do_pane(self, rest: str, _now_ns: int) -> None:
        """The lower pane."""
        self._on.view.pane = _one_of(rest, PANES)

    def do_mark(self, rest: str, now_ns: int) -> None:
        """A new epoch, with a name of its own."""
        self._on.mark(plain.cut(plain.line(rest), 60), now_ns)

    def do_save(self, rest: str, now_ns: int) -> None:
        """A copy of the session's file."""
        source = self._on.store.archive
        if source is None:
            raise Refused("this session is not kept in a file (--no-save)")
        target = Path(rest or f"{source.stem}-copy").expanduser().with_suffix(".usv")
        if target.exists():
            raise Refused(f"{target} exists already")
        with self._on.gate.hold(GATE_NS):
            shutil.copyfile(source, target)
        self._on.say(f"saved {target}", now_ns)

    def do_export(self, rest: str, now_ns: int) -> None:
        """The session as another tool reads it."""
        kind, _, name = rest.partition(" ")
        kind = kind or MARKDOWN
        if kind != MARKDOWN and kind not in formats.FORMATS:
            raise Refused(f"no format {plain.line(kind)}: {', '.join(self.arguments('export'))}")
        suffix = ".md" if kind == MARKDOWN else formats.FORMATS[kind].suffix
        source = self._on.store.archive or Path("usv-tui.usv")
        path = Path(name.strip()).expanduser() if name.strip() else source.with_suffix(suffix)
        with self._on.gate.hold(GATE_NS):
            self._export(kind, path)
        self._on.say(f"wrote {path}", now_ns)

    def _export(self, kind: str, path: Path) -> None:
        shown, store = self._on.shown, self._on.store
        if kind == MARKDOWN:
            outputs.check(path, "markdown")
            words = render(shown, markdown=True) + "\n"
            outputs.write_whole(path, "markdown", lambda out: out.write(words))
            return
        formats.write(kind, Opened(path, store, shown), path, io.StringIO())


def _number(words: str, what: str) -> int:
    digits = words.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise Refused(f"{plain.line(words) or 'nothing'} is not {what}")
    return int(digits)


def _one_of(word: str, offered: Sequence[str]) -> str:
    found = [o for o in offered if o.startswith(word.casefold())] if word else []
    if len(found) != 1:
        raise Refused(f"one of {', '.join(offered)}")
    return found[0]

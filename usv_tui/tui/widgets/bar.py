"""Header and footer: what runs and under which conditions; which keys there are."""

from collections.abc import Sequence
from pathlib import PurePath

from rich.style import Style
from textual.strip import Strip

from usv_tui.model import ClockHold, RunPhase
from usv_tui.report.wording.rows import clock_words, common_badges
from usv_tui.session.snapshot import Snapshot
from usv_tui.tui import text
from usv_tui.tui.keys import Key
from usv_tui.tui.look import Look
from usv_tui.tui.view import Scene
from usv_tui.tui.widgets.strips import limits_text, missing_text, numbers_text
from usv_tui.units import count, duration

SIM = "SIM"
"""What is left of SIMULATED where there is no room."""
_SHORT_REASON = 10
"""Columns that are left, at least, of why the clocks are not locked; the table has all of it."""
Item = tuple[int, str, Style]
"""Rank (the lower, the longer it stays), text and style."""


def header(scene: Scene, width: int, height: int) -> list[Strip]:
    """One or two lines."""
    look = scene.look
    if height <= 0:
        return []
    mode = _mode(scene)
    if height == 1:
        return [_line([*_run_items(scene), *_short_condition_items(scene)], mode, width, look)]
    first = _line(_run_items(scene), mode, width, look)
    banner = scene.snapshot.banner
    if banner:
        words = text.clip(
            f" {look.glyphs.alert} {look.own(look.text(banner))}", width, look.glyphs.ellipsis
        )
        return [first, text.strip([(words, look.bad)], width, look.bad)]
    return [first, _line(_condition_items(scene, width), None, width, look, fill=look.base)]


def _line(
    items: list[Item],
    end: tuple[str, Style] | None,
    width: int,
    look: Look,
    fill: Style | None = None,
) -> Strip:
    """The items that fit, in their order, and something flush right."""
    base = look.bar if fill is None else fill
    room = width - (text.width_of(end[0]) + 2 if end else 0) - 1
    kept: set[int] = set()
    for index in sorted(range(len(items)), key=lambda i: items[i][0]):
        cells = text.width_of(items[index][1]) + (2 if kept else 0)
        if cells <= room:
            kept.add(index)
            room -= cells
    runs: list[text.Run] = [(" ", base)]
    for position, index in enumerate(sorted(kept)):
        if position:
            runs.append(("  ", base))
        runs.append((items[index][1], base + items[index][2] if fill is None else items[index][2]))
    if end is not None:
        used = sum(text.width_of(words) for words, _ in runs)
        words = text.clip(end[0], max(min(width, len(SIM)), width - 2), look.glyphs.ellipsis)
        if words and words != end[0] and end[0].startswith("SIMULATED") and width < 12:
            words, runs, used = SIM[:width], [], 0
        pad = width - used - text.width_of(words) - 1
        runs += [(" " * max(0, pad), base), (words, base + end[1])]
    return text.strip(runs, width, base)


def _mode(scene: Scene) -> tuple[str, Style]:
    """The one word on the right."""
    snapshot = scene.snapshot
    look = scene.look
    bold = Style(bold=True)
    simulated = "SIMULATED " if snapshot.simulated else ""
    if scene.is_frozen:
        return f"{simulated}FROZEN +{scene.waiting:,} samples, f goes on", bold
    if snapshot.phase == RunPhase.MEASURING:
        word = "REPLAY" if scene.is_replay else "SOLO" if scene.view.solo else "LIVE"
        return f"{simulated}{word}", bold
    if snapshot.phase == RunPhase.PAUSED:
        return f"{simulated}PAUSED, space goes on", bold
    if snapshot.phase == RunPhase.ENDED:
        why = look.text(snapshot.stop_reason)
        return f"{simulated}ENDED{': ' + why if why else ''}", bold
    detail = look.text(snapshot.phase_detail)
    if snapshot.phase == RunPhase.PRIMING or snapshot.phase_detail == snapshot.suite != "":
        detail += f" (--row-timeout {snapshot.config.row_timeout_s:g} s)"
    return f"{simulated}{snapshot.phase} {detail}".rstrip() + look.glyphs.ellipsis, bold


def _run_items(scene: Scene) -> list[Item]:
    look, snapshot = scene.look, scene.snapshot
    plain, bold = Style(), Style(bold=True)
    suite = look.text(PurePath(snapshot.suite).name)
    items: list[Item] = (
        [(2, "usv-tui", bold), (3, suite, plain)] if suite else [(2, "usv-tui", bold)]
    )
    if snapshot.elapsed_s:
        items.append((4, duration(snapshot.elapsed_s), plain))
    if snapshot.rounds:
        items.append((5, f"round {count(snapshot.rounds)}", plain))
        items.append((11, f"{count(snapshot.samples)} samples", plain))
        items.append((7, f"{_rate(snapshot.samples_per_s)}/s", plain))
    if snapshot.progress:
        items.append((6, look.own(look.text(snapshot.progress)), plain))
    if snapshot.simulated:
        items.append((10, look.text(snapshot.simulated), plain))
    if scene.ui_share:
        items.append((12, f"ui {scene.ui_share * 100:.1f} %", plain))
    return items


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"


def _clock_item(rank: int, scene: Scene, width: int = 0) -> Item:
    look, clocks = scene.look, scene.snapshot.clocks
    is_bad = clocks.hold in (ClockHold.NOT_HELD, ClockHold.STUCK, ClockHold.FOREIGN)
    style = look.bad if is_bad else look.good if clocks.hold is ClockHold.LOCKED else look.base
    words = clock_words(clocks)
    if clocks.is_unmet:
        room = max(_SHORT_REASON, width // 3 - _SHORT_REASON)
        words += f" ({text.clip(look.text(clocks.evidence), room, look.glyphs.ellipsis)})"
        style = look.warn
    plain = (ClockHold.FREE, ClockHold.LOCKED, ClockHold.UNKNOWN)
    return (rank, f"clocks {words}" if clocks.hold in plain else words, style)


def _short_condition_items(scene: Scene) -> list[Item]:
    """What must be told even where there is one line only."""
    look, snapshot = scene.look, scene.snapshot
    items: list[Item] = [(8, look.text(_device_name(snapshot)), Style())]
    items += _common_items(4, scene, Style(bold=True))
    clocks = snapshot.clocks
    is_told = clocks.is_unmet or clocks.hold not in (ClockHold.FREE, ClockHold.UNKNOWN)
    rank, words, _ = _clock_item(1 if is_told else 6, scene)
    # A lock is told without its evidence, which would not fit.
    short = words.partition(" (")[0] if is_told else words
    items.append((rank, short, Style(bold=True) if is_told else Style()))
    limits = limits_text(snapshot)
    if limits:
        items.append((1, f"{look.glyphs.alert} {limits}", Style(bold=True)))
    return items


def _common_items(rank: int, scene: Scene, style: Style) -> list[Item]:
    """What is said of every row."""
    badges = common_badges(scene.snapshot.rows)
    words = ", ".join(scene.look.text(badge) for badge in badges)
    return [(rank, f"all rows: {words}", style)] if badges else []


def _condition_items(scene: Scene, width: int) -> list[Item]:
    look, snapshot = scene.look, scene.snapshot
    items: list[Item] = [(1, look.text(_device_name(snapshot)), look.base)]
    items += _common_items(2, scene, look.warn)
    numbers = numbers_text(snapshot)
    if numbers:
        items.append((4, look.own(numbers), look.base))
    limits = limits_text(snapshot)
    if limits:
        items.append((2, f"{look.glyphs.alert} {limits}", look.bad))
    if scene.view.quiet:
        items.append((5, "sensors paused", look.warn))
    elif snapshot.telemetry_state:
        items.append((6, look.text(snapshot.telemetry_state), look.warn))
    items.append(_clock_item(3, scene, width))
    if snapshot.timer is not None:
        why = look.text(snapshot.timer.reason)
        items.append((5, f"timer {look.text(snapshot.timer.name)}", look.base))
        if why:
            items.append((9, f"({why})", look.dim))
    if snapshot.config.device_reason:
        items.append(
            (10, look.text(f"{snapshot.config.device}: {snapshot.config.device_reason}"), look.dim)
        )
    items.append((8, _cache_words(scene), look.dim))
    items.append((11, f"pace {look.text(snapshot.pace)}", look.dim))
    return items


def _cache_words(scene: Scene) -> str:
    modes = sorted({scene.look.text(row.cache) for row in scene.snapshot.rows})
    return f"cache {'/'.join(modes)}" if modes else ""


def _device_name(snapshot: Snapshot) -> str:
    if snapshot.device is None:
        return snapshot.config.device
    return f"{snapshot.config.device} {snapshot.device.name}"


def with_sim(line: Strip, look: Look) -> Strip:
    """A line that is the first of the screen, in want of a header, with SIM at its end."""
    cells = min(line.cell_length, len(SIM))
    rest = line.crop(0, line.cell_length - cells)
    return Strip.join([rest, text.strip([(SIM, look.bar)], cells, look.bar)])


def telemetry_line(scene: Scene, width: int, *, is_drawn: bool) -> Strip:
    """Numbers where there is no room for drawings; what is missing, and why."""
    look = scene.look
    numbers = "" if is_drawn else numbers_text(scene.snapshot)
    parts = [numbers, missing_text(scene.snapshot)]
    words = "  ".join(look.own(look.text(p)) for p in parts if p)
    clipped = text.clip(f" {words}", width, look.glyphs.ellipsis)
    return text.strip([(clipped, look.dim)], width, look.base)


def footer(keys: Sequence[Key], look: Look, width: int) -> Strip:
    """Keys with their labels; those of high rank go first when it is narrow."""
    runs: list[text.Run] = [(" ", look.base)]
    for key in _fitting(keys, width):
        runs += [(key.display, look.key), (f" {key.label}  ", look.dim)]
    return text.strip(runs, width, look.base)


def key_at(keys: Sequence[Key], width: int, x: int) -> str:
    """The name of the key whose label is at a cell of the footer; empty for none."""
    at = 1
    for key in _fitting(keys, width):
        end = at + len(key.display) + len(key.label) + 3
        if at <= x < end:
            return key.keys[0]
        at = end
    return ""


def _fitting(keys: Sequence[Key], width: int) -> list[Key]:
    labelled = [key for key in keys if key.label]
    room = width - 1
    kept: set[Key] = set()
    for key in sorted(labelled, key=lambda k: k.rank):
        cells = len(key.display) + len(key.label) + 3
        if cells <= room:
            kept.add(key)
            room -= cells
    return [key for key in labelled if key in kept]


def message(words: str, look: Look, width: int) -> Strip:
    """Something to tell, in the footer's place."""
    clipped = text.clip(f" {look.own(look.text(words))}", width, look.glyphs.ellipsis)
    return text.strip([(clipped, look.strong)], width, look.base)


def prompt(label: str, typed: str, look: Look, width: int) -> Strip:
    """A line that is being typed, in the footer's place."""
    shown = look.text(typed)
    runs: list[text.Run] = [
        (f" {label}", look.dim),
        (shown, look.strong),
        ("_", look.strong),
        ("   enter keep  esc drop", look.dim),
    ]
    return text.strip(runs, width, look.base)

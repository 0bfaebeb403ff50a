"""Everything about one row: figures side by side, what was found, and its error."""

from collections.abc import Sequence

from usv_tui import plain
from usv_tui.report.columns import RATES, STATISTICS
from usv_tui.report.wording.rows import (
    has_valid_time,
    invalid_reason,
    left_out_words,
    missing_baseline,
    ratio_limits,
)
from usv_tui.session.snapshot import RowView
from usv_tui.tui import text
from usv_tui.tui.screens.page import Paragraph, pairs
from usv_tui.tui.view import Scene, key_of
from usv_tui.tui.widgets.cells import answer_sign, interval_text
from usv_tui.units import fixed, row_unit, scaled, significant, time_text


def write(scene: Scene, width: int) -> Sequence[Paragraph]:
    """The page's content for the selected row."""
    look, row = scene.look, scene.row
    if row is None:
        return [("no row is selected", look.dim)]
    out: list[Paragraph] = [
        (look.plain_name(key_of(row, scene.snapshot)), look.strong),
        (f"state {row.state.value} {row.word.value} {look.text(row.detail)}".rstrip(), look.base),
    ]
    if row.error or row.traceback:
        out += [("", look.base), (look.text(row.error or "failed"), look.bad)]
        out += [(look.text(line) or " ", look.base) for line in row.traceback.splitlines()]
        out.append(("", look.base))
    out += _figures(scene, row, width)
    out += [("", look.base), *_findings(scene, row, width)]
    return out


def _figures(scene: Scene, row: RowView, width: int) -> list[Paragraph]:
    """Last window and whole run side by side."""
    look = scene.look
    unit = row_unit(row.whole.median_s or row.rolling.median_s, digits=5)
    head = f"{'':<15}{f'last {scene.snapshot.window:,}':>16}{'since mark':>16}"
    out: list[Paragraph] = [text.strip([(f" {head}", look.dim)], width, look.base)]
    for column in STATISTICS:
        both = (look.own(column.text(column.pick(row, s), unit)) for s in (row.rolling, row.whole))
        line = f" {column.head:<15}" + "".join(f"{words:>16}" for words in both)
        out.append(text.strip([(look.own(line), look.base)], width, look.base))
    return out


def _findings(scene: Scene, row: RowView, width: int) -> list[Paragraph]:
    look = scene.look
    facts = [
        ("samples", f"{row.n_all:,} in all"),
        ("left out", left_out_words(row.left_out)),
        ("window", f"{row.inner:,} calls a sample, {row.mode}"),
        ("cache", _cache(row)),
        ("rate", _rate(row)),
        ("ratio", _ratio(scene, row)),
        ("launches", _launches(row)),
        ("drift", _drift(row)),
        ("clock", _effect(row)),
        (
            "energy",
            ""
            if row.energy_j is None
            else f"{significant(row.energy_j)} J a call {row.energy_label}",
        ),
        ("limited", ", ".join(f"{word} {share * 100:.0f} %" for word, share in row.throttled)),
        ("badges", ", ".join(dict.fromkeys(row.badges))),
    ]
    return pairs(scene, [(name, look.text(what)) for name, what in facts if what], width, 10)


def _cache(row: RowView) -> str:
    """What it finds in the caches, by what, and what it takes alone."""
    parts = [row.cache]
    if row.refill:
        parts.append(f"{row.refill:,} untimed before each window")
    if row.here_s is not None and row.alone_s is not None:
        here, alone = (time_text(s) for s in (row.here_s, row.alone_s))
        parts.append(f"before measuring {here} here, {alone} alone")
    return ", ".join(parts)


def _rate(row: RowView) -> str:
    if not has_valid_time(row):
        return ""
    rates = ((c.pick(row, row.rolling), c) for c in RATES)
    return ", ".join(
        f"{scaled(rate * c.scale, 4)}{c.heading}" for rate, c in rates if rate is not None
    )


def _ratio(scene: Scene, row: RowView) -> str:
    ratio = row.ratio
    invalid = invalid_reason(row, scene.snapshot.rows)
    if invalid:
        return f"invalid ({invalid})"
    if row.is_baseline:
        return "this row is the baseline"
    if ratio is None or ratio.ratio is None:
        return missing_baseline(row, scene.snapshot.rows)
    sign, _ = answer_sign(ratio, scene.look)
    interval = f" [{fixed(ratio.low, 4)}, {fixed(ratio.high, 4)}]"
    rounds = f" from {ratio.n:,} rounds"
    if row.versus is not None:
        rounds = f" over {ratio.n:,} launch{'es' if ratio.n > 1 else ''}"
    effective = (
        ""
        if row.versus is not None or ratio.n_eff is None
        else f", worth {ratio.n_eff:,.0f} independent ones"
    )
    note = "".join(f"; {part}" for part in (ratio.note, *ratio_limits(ratio)) if part)
    baseline = plain.name(row.baseline_name) if row.baseline_name else "the baseline"
    half = interval_text(ratio, scene.look.glyphs)
    return (
        f"{sign} {ratio.answer.value}: {ratio.ratio:.4f}x{half}{interval} against "
        f"{baseline}{rounds}{effective}{note}"
    )


def _launches(row: RowView) -> str:
    """Where two versions are compared: each launch's ratio, and what the family of rows makes."""
    versus = row.versus
    if versus is None or not versus.launches:
        return ""
    each = ", ".join(f"{one.ratio:.4f}" for one in versus.launches)
    family = ""
    if versus.family is not None:
        low, high = versus.family
        family = f"; for all rows together [{fixed(low, 4)}, {fixed(high, 4)}], alone: {versus.raw}"
    return f"{each}{family}"


def _drift(row: RowView) -> str:
    drift = row.drift
    if drift.change is None:
        return ""
    window = "" if drift.window_s is None else f" within {drift.window_s:.0f} s"
    least = "" if drift.detectable is None else f", detectable from {drift.detectable * 100:.2f} %"
    heat = "" if drift.temp_change_c is None else f", temperature {drift.temp_change_c:+.1f} C"
    held = ""
    if drift.within is not None and drift.held_s:
        held = f", level within ±{drift.within * 100:.2f} % over the last {drift.held_s:.0f} s"
    if drift.to_come is not None:
        held += f", at most ±{drift.to_come * 100:.2f} % expected in the next five minutes"
    return f"{drift.change * 100:+.2f} %{window}{least}{heat}{held}"


def _effect(row: RowView) -> str:
    effect = row.effect
    if effect.status == "refused":
        return effect.reason
    parts = [{"ok": "", "ok-trend": "from a common trend"}.get(effect.status, effect.status)]
    if effect.alpha is not None:
        error = "" if effect.alpha_se is None else f" ±{effect.alpha_se:.2f}"
        parts.append(f"exponent {effect.alpha:.2f}{error}")
    if effect.explained is not None:
        parts.append(f"explains {effect.explained * 100:.0f} % of the variance")
    if effect.std_now is not None and effect.std_locked is not None:
        parts.append(
            f"std {effect.std_now * 100:.2f} % → about {effect.std_locked * 100:.2f} % when locked"
        )
    return ", ".join(part for part in parts if part)

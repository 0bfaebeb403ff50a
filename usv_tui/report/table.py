"""The final table: what stays on stdout after a run, as text or Markdown.

One unit a column; a failed row keeps its place with the reason; what the numbers depend on (timer,
device, clocks, seed, cache, pace) stands under them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from usv_tui import plain
from usv_tui.codes import Code
from usv_tui.model import Answer, Ratio, RowState, StateWord, TimerInfo
from usv_tui.report import columns, grid, parameters
from usv_tui.report.columns import COLUMNS, Kind
from usv_tui.report.grid import Column
from usv_tui.report.versions import facts as versions_facts
from usv_tui.report.wording.advice import advice_line
from usv_tui.report.wording.rows import (
    best_cut,
    clock_words,
    clocks_line,
    depth_of,
    has_valid_time,
    interval_words,
    invalid_reason,
    left_out_words,
    missing_baseline,
    name_of,
    ratio_limits,
    state_words,
)
from usv_tui.session.snapshot import RowView, Snapshot, Told
from usv_tui.stats.rolling import Stats
from usv_tui.units import DASH, count, duration, fixed, row_unit, scaled, time_text, times

WINNER = "★ "
"""Before the median of the fastest of its size."""
_LEVELS = {"error": "ERROR", "warn": "warning"}
_MOST_NAMES = 4
_MIN_SHARE = 0.005
"""Reasons that were active for less of the samples are not mentioned."""
_OF_BEFORE = 3.0
"""A std of the whole run this much above that of the last window tells of something past."""
_NAME_LEAST = 14
_NAME_ENOUGH = 20
_NAME_WISH = 32
"""Lesser columns go before names are cut below this."""
_NAME_MOST = 40
"""Cut names take no more than this to be told apart."""


def render(snapshot: Snapshot, *, markdown: bool = False, width: int | None = None) -> str:
    """The table of a session with everything that the numbers depend on under it."""
    body = table(snapshot.lines, markdown=markdown, width=width)
    facts = notes(snapshot)
    if width is not None and not markdown:  # a narrow table may cut the reason
        facts += [
            ("failed", f"{plain.name(r.name)}: {_error(r)}") for r in snapshot.rows if r.error
        ]
    facts = [(label, plain.line(text)) for label, text in facts]
    if markdown:
        lines = [f"- {label}: {grid.escape(text)}" for label, text in facts]
    else:
        widest = max((len(label) for label, _ in facts), default=0)
        lines = [f"{label:<{widest}}  {text}" for label, text in facts]
    return "\n".join([body, "", *lines])


def table(rows: Sequence[RowView], *, markdown: bool = False, width: int | None = None) -> str:
    """The rows alone. Columns in which no row has anything are left out."""
    if not rows:
        return "no benchmarks"
    names = [_name(row, rows) for row in rows]
    shown = _columns(rows, rows, [row.whole for row in rows], names)
    return grid.markdown(shown) if markdown else grid.text(shown, width)


def one_row(row: RowView, rows: Sequence[RowView], name: str) -> str:
    """One of the rows as a Markdown table of its own, with the figures of the last window."""
    return grid.markdown(_columns([row], rows, [row.rolling], [name])) + "\n"


def verdict(row: RowView, snapshot: Snapshot) -> str:
    """One row's answer in one line of Markdown, with what it holds for."""
    rows = snapshot.rows
    name = grid.code(plain.name(row.name))
    bases = {other.baseline_name for other in rows if other.ratio is not None}
    answer = _ratio(row, rows, bases, _ratio_decimals([row.ratio]))
    said = f"{name} {time_text(row.whole.median_s)}"
    if answer and row.baseline_name:
        said += f", {grid.escape(answer)} against {grid.code(plain.name(row.baseline_name))}"
    lock = snapshot.clocks_during
    packages = snapshot.environment.get("packages")
    version = packages.get("usv-tui", "") if isinstance(packages, dict) else ""
    device = snapshot.simulated or (snapshot.device.name if snapshot.device else "")
    facts = [
        grid.escape(plain.line(device or str(snapshot.config.device))),
        f"clocks {clock_words(lock if lock.is_ours else snapshot.clocks)}",
        state_words(row),
        f"{count(snapshot.rounds)} rounds",
        f"usv-tui {version}".rstrip(),
    ]
    return f"{said} ({', '.join(fact for fact in facts if fact)})"


def _columns(
    shown: Sequence[RowView], rows: Sequence[RowView], stats: Sequence[Stats], names: Sequence[str]
) -> list[Column]:
    """What the final table has of some of the rows; empty ones are left out."""
    units = [row_unit(s.median_s) for s in stats]
    best = parameters.clear_winners(rows, lambda row: row.whole)
    marks = [WINNER if row.bench in best else "" for row in shown]
    bases = {row.baseline_name for row in rows if row.ratio is not None}
    decimals = _ratio_decimals(row.ratio for row in rows)
    words: dict[Kind, Callable[[RowView], str]] = {
        Kind.RATIO: lambda row: _ratio(row, rows, bases, decimals),
        Kind.AGAINST: _against,
        Kind.STATE: _remarks,
    }
    found = [Column("benchmark", names, is_code=True, least=_telling_width(names), wish=_NAME_WISH)]
    for column in (c for c in COLUMNS if c.final is not None):
        values = [column.pick(row, s) for row, s in zip(shown, stats, strict=True)]
        if column.kind in words:
            cells = [words[column.kind](row) for row in shown]
        elif column.kind is Kind.RATE:
            cells = _rates(column, shown, values)
        else:
            cells = [column.text(v, unit) for v, unit in zip(values, units, strict=True)]
        if column.key == "median":
            cells = [mark + cell for mark, cell in zip(marks, cells, strict=True)]
        found.append(
            Column(
                column.title or column.head,
                cells,
                is_number=column.kind.is_number,
                drop=column.final or 0,
                is_code=column.kind is Kind.AGAINST,
                least={Kind.RATIO: 22, Kind.STATE: 16}.get(column.kind, 0),
                wraps=column.kind is Kind.STATE,
                wish=24 if column.kind is Kind.STATE else 0,
            )
        )
    return [c for c in found if not (c.drop and c.is_empty)]


def _name(row: RowView, rows: Sequence[RowView]) -> str:
    return "  " * depth_of(row, rows) + name_of(row, rows)


def _telling_width(names: Sequence[str]) -> int:
    """The fewest characters at which no two cut names look alike."""
    longest = max(map(len, names))
    for width in range(_NAME_LEAST, min(_NAME_MOST, longest)):

        def cut(name: str, head: int, width: int = width) -> str:
            return grid.cut_name(name, width, head)

        if best_cut(names, width - 1, cut).is_clear:
            return width
    return min(_NAME_ENOUGH, longest)


def _rates(
    column: columns.Column, rows: Sequence[RowView], rates: Sequence[float | None]
) -> list[str]:
    """With the prefix of their size; none of a time that is not that of the work."""
    usable = zip(rows, rates, strict=True)
    return [
        scaled(rate * column.scale) if rate is not None and has_valid_time(row) else DASH
        for row, rate in usable
    ]


def _decimals(smallest: float, digits: int) -> int:
    return max(0, min(4, digits - 1 - math.floor(math.log10(smallest))))


def _half_width(ratio: Ratio | None) -> float | None:
    if ratio is None or ratio.ratio is None or ratio.low is None or ratio.high is None:
        return None
    half = max(ratio.high - ratio.ratio, ratio.ratio - ratio.low)
    return half if math.isfinite(half) else None


def _ratio_decimals(ratios: Iterable[Ratio | None]) -> int:
    """As many as the narrowest interval deserves."""
    widths = [w for w in map(_half_width, ratios) if w is not None and w > 0]
    return max(2, _decimals(min(widths), digits=1)) if widths else 3


def _ratio(row: RowView, rows: Sequence[RowView], bases: set[str], decimals: int) -> str:
    """`0.771x ±0.5% faster`, or what stands in for it."""
    ratio = row.ratio
    invalid = invalid_reason(row, rows)
    if invalid and (ratio is not None or row.name in bases):
        return f"invalid ({invalid})"
    if ratio is None:
        return "baseline" if row.name in bases else ""
    if ratio.ratio is None:
        return f"{DASH} {missing_baseline(row, rows) or ratio.answer}"
    half = interval_words(ratio)
    spread = f" ±{half}" if half else ""
    note = f" ({ratio.note})" if ratio.note and ratio.answer is Answer.UNDECIDED else ""
    factor = times(ratio.ratio) if ratio.ratio < 0.01 else f"{ratio.ratio:.{decimals}f}x"
    return f"{factor}{spread} {ratio.answer}{note}"


def _against(row: RowView) -> str:
    """The baseline's name, or of a like name only the parameters that differ."""
    base = plain.name(row.baseline_name)
    if row.ratio is None or not row.baseline_name:
        return ""
    if row.rival is not None:
        return base.rpartition("@")[2]
    head, _, inside = base.partition("[")
    own_head, _, own_inside = plain.name(row.name).partition("[")
    if head != own_head or not inside.endswith("]") or not own_inside.endswith("]"):
        return base
    own = set(own_inside[:-1].split(","))
    return ",".join(part for part in inside[:-1].split(",") if part not in own) or base


def _remarks(row: RowView) -> str:
    """State, findings and limits of a row, in words."""
    if row.error:
        return f"FAILED: {_error(row)}"
    words = [row.state.value] if row.state is not RowState.RUNNING and row.detail else []
    if row.state in (RowState.OFF, RowState.STUCK, RowState.FAILED) and not words:
        words.append(row.state.value)
    if row.word:
        words.append(state_words(row) + _std_now(row))
    if row.cache != "warm":
        words.append(f"cache {row.cache}")
    if row.mode != "eager":
        words.append(row.mode)
    words += row.badges
    words += ratio_limits(row.ratio)
    words += [f"{word} {share:.0%}" for word, share in row.throttled if share >= _MIN_SHARE]
    if row.stalls:
        words.append(f"{count(row.stalls)} stall{'s' if row.stalls > 1 else ''}")
    return ", ".join(dict.fromkeys(words))


def _std_now(row: RowView) -> str:
    """The spread that a flat row has now, where that of the whole run is about the time before."""
    before, now = row.whole.rel_std, row.rolling.rel_std
    is_flat = row.word in (StateWord.SETTLED, StateWord.STEADY)
    if not is_flat or before is None or now is None or before < _OF_BEFORE * now:
        return ""
    return f" (std now {fixed(now * 100, 2)} %)"


def _error(row: RowView) -> str:
    return plain.line(" ".join(row.error.split()))


# -- what the numbers depend on


def notes(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Labelled facts: suite, device, timer, clocks, run, and what was skipped or cut short."""
    facts = [("file", snapshot.suite or DASH)]
    if snapshot.simulated:
        facts.append(("simulated", snapshot.simulated))
    facts += versions_facts(snapshot)
    facts += [
        ("device", _device(snapshot)),
        ("timer", _timer(snapshot.timer)),
        ("clocks", clocks_line(snapshot.clocks_during, snapshot.clocks)),
        ("advice", advice_line(snapshot.advice, _names(snapshot.rows))),
        ("run", _run(snapshot)),
    ]
    if not snapshot.untrusted:
        found = parameters.fastest_lines(snapshot.rows, lambda row: row.whole)
        facts += [("fastest", line) for line in found]
    if snapshot.ghosts:
        facts.append(("before", snapshot.ghosts))
    if snapshot.telemetry_state:
        facts.append(("telemetry", snapshot.telemetry_state))
    if snapshot.stop_reason:
        cut = "" if snapshot.complete else " (incomplete)"
        facts.append(("ended", f"{snapshot.stop_reason}{cut}"))
    elif snapshot.samples and not snapshot.complete:
        facts.append(("ended", "it has no end: the process was cut off (incomplete)"))
    meant = [item for item in snapshot.skipped if item.is_meant]
    facts += [(item.word, f"{plain.name(item.name)}: {item.reason}") for item in meant]
    said = (Code.LOCK_REFUSED, Code.NOT_ADVISED) if snapshot.clocks.is_unmet else ()
    return facts + told_facts(snapshot, without=said)


def told_facts(snapshot: Snapshot, without: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Whatever was told of level warn or error, the worst first; one line for each code."""
    codes: dict[str, list[Told]] = {}
    for told in sorted(snapshot.told, key=lambda told: told.level != "error"):
        if told.code not in without:
            codes.setdefault(told.code, []).append(told)
    facts = [(_LEVELS.get(group[0].level, "warning"), _told(group)) for group in codes.values()]
    if snapshot.not_told:
        facts.append(("warning", f"{count(snapshot.not_told)} more, see the log"))
    return facts


def _told(group: Sequence[Told]) -> str:
    """The first of several that differ in their rows, and whom else it is about."""
    first, others = group[0], [told.row for told in group[1:]]
    head = f"{plain.name(first.row)}: " if first.row else ""
    also = f" (also {plain.some(map(plain.name, others), _MOST_NAMES)})" if others else ""
    times = f" ({count(first.times)} times)" if first.times > 1 and not others else ""
    return f"{head}{first.text}{also}{times}"


def _device(snapshot: Snapshot) -> str:
    config, info = snapshot.config, snapshot.device
    name = f" {info.name}" if info is not None and info.name else ""
    why = f" ({config.device_reason})" if config.device_reason else ""
    return f"{config.device}{name}{why}"


def _timer(info: TimerInfo | None) -> str:
    if info is None:
        return DASH
    parts = [f"{info.name} ({info.reason})" if info.reason else info.name]
    if info.resolution_ns is not None:
        parts.append(f"resolution {info.resolution_ns} ns")
    if info.floor_ns is not None:
        parts.append(f"floor {info.floor_ns} ns" + " (the host's)" * info.is_floor_host)
    return ", ".join(parts)


def _names(rows: Sequence[RowView]) -> dict[int, str]:
    return {row.bench: name_of(row, rows) for row in rows}


def _run(snapshot: Snapshot) -> str:
    config = snapshot.config
    left_out = sum((Counter(row.left_out) for row in snapshot.rows), Counter[str]())
    parts = [
        f"{count(snapshot.rounds)} rounds",
        f"{count(snapshot.samples)} samples in {duration(snapshot.elapsed_s)}",
    ]
    if left_out:
        parts.append(f"left out: {left_out_words(left_out)}")
    if len(snapshot.epochs) > 1:
        parts.append(f"statistics since {snapshot.epochs[-1].label}")
    parts += [
        f"seed {config.seed}" if config.interleave else "one row after the other",
        f"cache {config.cache}",
        f"pace {snapshot.pace}",
    ]
    return ", ".join(parts)

"""What every front end says of a row and of the clocks, in one set of words."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from usv_tui import plain
from usv_tui.diagnosis.vocabulary import BADGES, DISBELIEVED
from usv_tui.model import PLACEMENT, Answer, ClockHold, ClockState, Ratio, StateWord

if TYPE_CHECKING:  # numpy behind it must not be imported before the first paint
    from usv_tui.session.snapshot import RowView

INVALID = tuple(BADGES[code] for code in DISBELIEVED)
"""Badges under which a row's time is no time of its work."""
MEAN_ALONE = ("stalls", "starved")
"""Causes for which a sample is in no statistic but the mean."""
_ALREADY_SURE = 1.0
"""A window that could not even show a change of 100 % tells nothing."""


# -- names


def depth_of(row: "RowView", rows: "Sequence[RowView]") -> int:
    """How many rows this one is a phase of, one within the other."""
    depth, seen = 0, {row.bench}
    parent = row.parent
    while parent is not None and parent not in seen:
        depth += 1
        seen.add(parent)
        parent = next((r.parent for r in rows if r.bench == parent), None)
    return depth


def name_of(row: "RowView", rows: "Sequence[RowView]") -> str:
    """The row's name; the rest of a phase is told from that of the row around it."""
    if row.parent is not None and row.bench < 0:
        parent = next((r for r in rows if r.bench == row.parent), None)
        if parent is not None and parent.parent is not None:
            return f"{plain.name(parent.name)}: {plain.name(row.name)}"
    return plain.name(row.plain_name if row.rival is not None else row.name)


class Cut(NamedTuple):
    """How names that are too long are cut, and how well that went."""

    head: int
    """Leading characters that stay."""
    is_clear: bool
    """No two different names look alike, and no number lost a part of its digits."""


def best_cut(names: Sequence[str], room: int, cut: Callable[[str, int], str]) -> Cut:
    """Where to cut names so that as many as can be look different: where they agree.

    Args:
        names: all of them, those that fit as well.
        room: characters that stay of a name that is too long, front and end together.
        cut: gives a name with so many leading characters kept.
    """
    wanted = len(set(names))
    best, best_score = room // 2, (0, 0)
    for head in sorted(range(room + 1), key=lambda h: abs(h - room // 2)):
        shown = [cut(name, head) for name in names]
        different = len(set(shown))
        if different < best_score[0]:
            continue
        score = (different, -sum(map(_splits_number, names, shown)))
        if score > best_score:
            best, best_score = head, score
        if best_score == (wanted, 0):
            break
    return Cut(best, best_score == (wanted, 0))


def _splits_number(name: str, shown: str) -> bool:
    """True when what is cut out of a name begins or ends amid the digits of a number."""
    if shown == name:
        return False
    front = _same(name, shown)
    end = len(name) - _same(name[::-1], shown[::-1])
    return any(0 < at < len(name) and name[at - 1 : at + 1].isdigit() for at in (front, end))


def _same(one: str, other: str) -> int:
    """How many leading characters two texts share."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# -- ratios

_LEAST_SPREAD = 0.0005
"""Allocations that differ by less are not worth a word."""


def ratio_limits(ratio: Ratio | None) -> list[str]:
    """What an answer does not hold for: another clock, where it moves with it; other buffers."""
    if ratio is None or ratio.ratio is None:
        return []
    words = []
    at = ratio.at_clock
    if at is not None:
        half = (at.high - at.low) / 2
        words.append(f"at {at.mhz:.0f} MHz {at.ratio:.4f}x ±{half:.4f}")
    if abs(ratio.ratio - 1) <= PLACEMENT:
        words += _placement_words(ratio)
    if ratio.is_short and ratio.answer is not Answer.UNDECIDED:
        words.append("short run: slower changes not covered")
    return words


def _placement_words(ratio: Ratio) -> list[str]:
    if ratio.allocations == 1:
        is_told = ratio.answer in (Answer.FASTER, Answer.SLOWER)
        return ["one allocation: placement not covered"] if is_told else []
    spread = ratio.placement or 0.0
    differ = (
        f", between which it changes by {spread * 100:.2g} %"
        if _LEAST_SPREAD < spread <= PLACEMENT
        else ""
    )
    return [f"{ratio.allocations} allocations{differ}"]


def interval_words(ratio: Ratio) -> str:
    """Half the interval's width in percent of the ratio; empty without an interval."""
    if ratio.low is None or ratio.high is None or not ratio.ratio:
        return ""
    half = (ratio.high - ratio.low) / 2 / ratio.ratio * 100
    if not math.isfinite(half):
        return ""
    if half >= 99.95:
        return ">99%"
    if half >= 0.095:
        return f"{half:.1f}%"
    return f"{half:.2f}%" if half >= 0.005 else "<0.01%"


# -- states and times


def common_badges(rows: "Sequence[RowView]") -> list[str]:
    """What every one of several rows that run has: it is said once, above them."""
    tops = [row for row in rows if row.parent is None and not row.error and row.n_all]
    if len(tops) < 2:
        return []
    return [b for b in dict.fromkeys(tops[0].badges) if all(b in row.badges for row in tops)]


def invalid_reason(row: "RowView", rows: "Sequence[RowView]") -> str:
    """Why no ratio of this row can be told: its own time, or its baseline's, is no such thing."""
    own = _invalid_badge(row)
    if own or row.ratio is None or not row.baseline_name:
        return own
    base = next((r for r in rows if r.parent is None and r.name == row.baseline_name), None)
    words = "" if base is None else _invalid_badge(base)
    return f"baseline {words}" if words else ""


def missing_baseline(row: "RowView", rows: "Sequence[RowView]") -> str:
    """Why there is no ratio, where it is its baseline that failed before it had a sample."""
    base = next((r for r in rows if r.parent is None and r.name == row.baseline_name), None)
    return "baseline failed" if base is not None and base.error and not base.n_all else ""


def _invalid_badge(row: "RowView") -> str:
    return next((badge for badge in INVALID if badge in row.badges), "")


def has_valid_time(row: "RowView") -> bool:
    """False when the row's time is not that of its work, so that rates mean nothing."""
    return not _invalid_badge(row)


def undecided_words(row: "RowView", *, is_short: bool = False) -> str:
    """What can be said of a row whose drift cannot be told: the least that would have shown."""
    least = row.drift.detectable
    if least is None or not 0 < least < _ALREADY_SURE:
        return "undecided"
    shown = max(least * 100, 0.01)
    size = f"{shown:.{0 if shown >= 9.95 else 1 if shown >= 0.95 else 2}f}"
    return f"no drift >{size}%" if is_short else f"no drift seen above {size} %"


def state_words(row: "RowView", sign: str = "±") -> str:
    """The state word with what it stands for, where that is a number."""
    if row.word is StateWord.UNDECIDED:
        return undecided_words(row)
    bound = row.drift.to_come
    if row.word is not StateWord.SETTLED or bound is None:
        return row.word.value
    # What may still come within five minutes, at most.
    return f"{row.word.value} {sign}{math.ceil(bound * 1000 - 1e-6) / 10:.1f}%"


def left_out_words(left_out: Mapping[str, int]) -> str:
    """What the statistics leave out, by cause; of some the mean counts all the same."""
    words = [f"{n:,} {cause}" for cause, n in left_out.items() if cause not in MEAN_ALONE]
    aside = [f"{n:,} {cause}" for cause, n in left_out.items() if cause in MEAN_ALONE]
    if aside:
        words.append(f"{' and '.join(aside)} (in the mean alone)")
    return ", ".join(words)


def std_change(before: float, now: float) -> str:
    """`std 3.35 % → 0.19 %`: what a lock did to a row."""
    return f"std {before * 100:.2f} % → {now * 100:.2f} %"


# -- clocks


def clock_words(clocks: ClockState) -> str:
    """What is known about the clocks, e.g. `locked 1410 MHz` or `lock 1410 MHz NOT HELD`."""
    at = "" if clocks.locked_mhz is None else f" {clocks.locked_mhz} MHz"
    if clocks.is_unmet and clocks.hold in (ClockHold.UNKNOWN, ClockHold.FREE):
        return "unlocked"
    if clocks.is_ignored and clocks.hold in (ClockHold.NOT_HELD, ClockHold.FREE):
        return f"lock{at} IGNORED" if at else "free, locks are ignored"
    return {
        ClockHold.FREE: "free",
        ClockHold.LOCKED: f"locked{at}",
        ClockHold.PENDING: f"locking{at}",
        ClockHold.NOT_HELD: f"lock{at} NOT HELD",
        ClockHold.KEPT: f"left locked{at}",
        ClockHold.STUCK: f"lock{at} NOT GIVEN BACK",
        ClockHold.FOREIGN: "foreign lock?",
        ClockHold.UNKNOWN: "unknown",
    }[clocks.hold]


def cost_words(clocks: ClockState) -> str:
    """What a lock of ours costs in speed, where the clock without it is known."""
    cost = clocks.cost
    if cost is None or not clocks.free_mhz:
        return ""
    side = "below" if cost >= 0 else "above"
    return f", {abs(cost) * 100:.1f} % {side} the free clock ({clocks.free_mhz:.0f} MHz)"


def clocks_line(during: ClockState, now: ClockState) -> str:
    """What was in force while the numbers were taken, and what has become of it since.

    Args:
        during: the lock of ours in the measured stretch; not ours where there was none.
        now: the latest state. Only this one says whether the clocks were given back.
    """
    state = during if during.is_ours else now
    held = state.hold is ClockHold.LOCKED and during.is_ours
    unsure = state.hold is ClockHold.PENDING and not state.evidence
    words = (
        f"{clock_words(state)}{' and held while this was measured' if held else ''}"
        f"{', not verified' if unsure else ''}{_behind(state)}{cost_words(state)}"
    )
    if now.is_ours or not during.is_ours:
        return words
    if now.hold is ClockHold.FREE and now.replaces_other:
        return f"{words}; {now.evidence}"
    if now.hold is ClockHold.FREE:
        return f"{words}; given back at the end{_behind(now, unless='given back')}"
    return f"{words}; now {clock_words(now)}{_behind(now)}"


def _behind(state: ClockState, unless: str = "") -> str:
    """The evidence of a state, in brackets."""
    told = state.evidence or (state.reason if state.hold is ClockHold.UNKNOWN else "")
    return f" ({told})" if told and told != unless else ""

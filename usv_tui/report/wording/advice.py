"""The lock advice in words. The advice itself is data (`model.Advice`); wording is made here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usv_tui.model import SLOW_SENSOR, Advice, Verdict, tells_gain

LINES = 4
"""Lines of evidence at most."""


@dataclass(frozen=True, slots=True)
class AdviceText:
    """What a front end shows of an advice."""

    word: str
    """The verdict, in capitals."""
    meaning: str
    """What it means, in one sentence."""
    evidence: tuple[str, ...]
    """At most `LINES` lines, each a fact with its number."""


_WORDS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.UNKNOWN: ("NOT KNOWN YET", "too little to say whether a lock would help"),
    Verdict.STEADY: ("STEADY", "clock and times stand still; no lock is needed"),
    Verdict.WAIT: ("WAIT", "still moving; a lock chosen now would not hold"),
    Verdict.LOCK: ("LOCK", "the clock moves, the times follow"),
    Verdict.THROTTLED_POWER: ("THROTTLED: POWER", "the power limit moves the clock"),
    Verdict.THROTTLED_THERMAL: ("THROTTLED: THERMAL", "heat limits the clock; cool, or lock lower"),
    Verdict.HIDDEN: (
        "SLOWER THAN ITS CLOCK",
        "the card slowed and its reported clock did not move; a lock cannot mend that",
    ),
    Verdict.CANNOT_LOCK: (
        "CANNOT LOCK",
        "the driver took a lock on this device, and the clock ran above it all the same",
    ),
    Verdict.NOT_CLOCK: ("NOT THE CLOCK", "a lock would not make the times steadier"),
}

_REASONS: Mapping[str, str] = {
    "thermal-limit": "",
    "power-limit": "",
    "clock-moves": "",
    "clock-still": "the clock does not move",
    "drift": "a benchmark's times drift",
    "clock-drift": "the clock itself drifts",
    "warming": "the temperature still changes",
    "confirming": "a first verdict is being confirmed: a few seconds more",
    "shared": "another process uses the device",
    "spread-too-small": "even if times followed the clock fully, it could not explain the spread",
    "hidden-slow": "",
    "sensor-slow": "the times move together, quicker than the clock sensor shows",
    SLOW_SENSOR: "what a lock would leave cannot be told: "
    "the clock sensor is too slow for how the times move",
    "locks-ignored": "the driver ignores locks here",
    "quiet": "clock and times move less than half a percent",
    "cannot-attribute": "the clock moves, but its effect cannot be told from the noise",
    "rows-do-not-follow": "the clock moves, and the times do not follow it",
}

_NEEDS: Mapping[str, str] = {
    "no-rows": "no benchmark has a sample that counts yet",
    "no-telemetry": "there are no clock readings",
    "idle-readings": "all clock readings were taken idle ({:.0f} in this window)",
    "readings-apart": "none of the {:.0f} clock readings was taken while a benchmark ran",
    "stale-telemetry": "the clock was last read {:.1f} s ago",
    "short": "{:.0f} s more of the run are needed",
    "few-rounds": "{:.0f} more rounds are needed",
    "few-readings": "{:.0f} more clock readings are needed",
    "no-clock": "the device does not tell its clock",
}


def advice_text(advice: Advice, names: Mapping[int, str] | None = None) -> AdviceText:
    """Verdict, meaning and evidence; `names` are those of the rows by their ids."""
    word, meaning = _WORDS[advice.verdict]
    return AdviceText(word, meaning, tuple(all_facts(advice, names or {})[:LINES]))


def short_text(advice: Advice) -> str:
    """What fits behind the verdict on its own line."""
    if advice.lock_mhz is not None:
        at = f"at {advice.lock_mhz} MHz{_behind(', ', gain_words(advice))}"
        if is_idle(advice):
            return f"not worth it {at}{_behind(', ', _cost(advice.evidence))}"
        return at if advice.verdict is Verdict.LOCK else f"lock {at}"
    facts = all_facts(advice, {})
    return facts[0] if facts else _WORDS[advice.verdict][1]


def advice_line(advice: Advice, names: Mapping[int, str] | None = None) -> str:
    """The whole advice as one line: verdict, clock to lock at, what it buys, one or two facts."""
    word, meaning = _WORDS[advice.verdict]
    facts = all_facts(advice, names or {})
    if advice.lock_mhz is not None:
        at = " at" if advice.verdict is Verdict.LOCK else ", lock at"
        word = f"{word}{at} {advice.lock_mhz} MHz{_behind(': ', gain_words(advice, names))}"
        if is_idle(advice):
            unknown = _REASONS[SLOW_SENSOR] if advice.reason == SLOW_SENSOR else ""
            return f"{word}: not worth it, {_cost(advice.evidence)}{_behind('; ', unknown)}"
        return "; ".join([word, *[f for f in facts if not f.startswith("lock at ")][:2]])
    return f"{word}: {'; '.join(facts[:2]) or meaning}"


def all_facts(advice: Advice, names: Mapping[int, str]) -> list[str]:
    """Every fact of the evidence as a line, the weightiest first."""
    evidence = advice.evidence
    facts: list[str] = []
    if advice.lock_mhz is not None:
        gain = gain_words(advice, names)
        worth = "not worth it: " if is_idle(advice) else ""
        facts.append(f"{worth}lock at {advice.lock_mhz} MHz{_behind(': ', gain)}")
    needs = evidence.get("needs") or {}
    for code, n in needs.items():
        if code in _NEEDS:
            # What is still lacking is never said to be 0.
            amount = float(n) if code == "stale-telemetry" else math.ceil(float(n))
            facts.append(_NEEDS[code].format(amount))
    facts.append(_REASONS.get(advice.reason, "") + _trial(advice))
    facts += [
        _next(evidence),
        _hidden(evidence),
        _fall(evidence),
        _stuck(evidence),
        _flutter(evidence),
        _clock(evidence),
        _limits(evidence),
        _cost(evidence),
    ]
    facts += [_others(advice, names), *_rows(advice, names)]
    if advice.power_coupled:
        facts.append("under a power cap the rows share one budget: solo shows a row's own time")
    change_c = _number(evidence.get("temp_change_c"))
    if change_c is not None and abs(change_c) >= 1:
        facts.append(f"temperature changed by {change_c:+.1f} C in the window")
    return [fact for fact in facts if fact]


def _behind(separator: str, text: str) -> str:
    return separator + text if text else ""


def is_idle(advice: Advice) -> bool:
    """The lock costs more than it brings: of a clock that stands still anyhow it brings nothing."""
    evidence = advice.evidence
    if evidence.get("worth") is False:
        return True
    spread, gate = _number(evidence.get("clock_spread")), _number(evidence.get("clock_gate"))
    is_still = spread is not None and gate is not None and spread < gate
    return advice.lock_mhz is not None and advice.std_locked is None and is_still


def gain_words(advice: Advice, names: Mapping[int, str] | None = None) -> str:
    """What the lock does to the row that gains most."""
    now, high = _number(advice.std_now), _number(advice.std_locked)
    if now is None or high is None or advice.reason == SLOW_SENSOR:
        return ""
    name = (names or {}).get(int(advice.evidence.get("gain_bench", -1)), "")
    if not advice.is_gain_known:
        return f"gain not known yet ({_ahead(name)}std {now * 100:.2f} %)"
    left = _range(_number(advice.std_locked_low), high)
    return f"{_ahead(name)}std {now * 100:.2f} % \N{RIGHTWARDS ARROW} {left}"


def _ahead(name: str) -> str:
    return f"{name} " if name else ""


def _range(low: float | None, high: float) -> str:
    """A promise: `about` one figure, or two where they are apart."""
    if low is None or high < 1.5 * low:
        return f"about {high * 100:.2f} %"
    return f"{low * 100:.2f} to {high * 100:.2f} %"


def _others(advice: Advice, names: Mapping[int, str]) -> str:
    """What the lock does to the other rows, where it does something else to them."""
    if advice.lock_mhz is None or not advice.std_now or advice.std_locked is None:
        return ""
    share = advice.std_locked / advice.std_now
    parts = []
    for row in advice.evidence.get("rows") or ():
        now, high = _number(row.get("std")), _number(row.get("std_locked"))
        bench = int(row.get("bench", -1))
        if not now or high is None or bench == advice.evidence.get("gain_bench"):
            continue
        if abs(high / now - share) > 0.1:
            low = _number(row.get("std_locked_low"))
            left = _range(low, high) if tells_gain(now, low, high) else "not known yet"
            name = names.get(bench, f"row {bench}")
            parts.append(f"{name} {now * 100:.2f} \N{RIGHTWARDS ARROW} {left}")
    return f"other rows: {', '.join(parts)}" if parts else ""


def _trial(advice: Advice) -> str:
    """Where only trying would tell: not where a lock is in force already, or none ever is."""
    is_open = advice.reason == "sensor-slow" and advice.evidence.get("locked_mhz") is None
    return ": lock, and see" if is_open and not advice.evidence.get("locks_ignored") else ""


def _next(evidence: Mapping[str, Any]) -> str:
    mhz = evidence.get("try_mhz")
    return "" if mhz is None else f"held for 10 s: `l` then `a` tries {mhz} MHz"


def _hidden(evidence: Mapping[str, Any]) -> str:
    found = evidence.get("hidden")
    if not isinstance(found, Mapping):
        return ""
    return (
        f"measured in the stream: {found['measured_mhz']:.0f} MHz, reported: "
        f"{found['reported_mhz']:.0f} MHz, for {found['share'] * 100:.0f} % of the time"
    )


def _flutter(evidence: Mapping[str, Any]) -> str:
    return "the clock readings flutter, and no row follows them" if evidence.get("flutters") else ""


def _fall(evidence: Mapping[str, Any]) -> str:
    if not evidence.get("may_fall"):
        return ""
    return "the clock falls on from its lowest, too: a lock may not hold"


def _clock(evidence: Mapping[str, Any]) -> str:
    spread = _number(evidence.get("clock_spread"))
    middle = _number(evidence.get("clock_median_mhz"))
    gate = _number(evidence.get("clock_gate"))
    if spread is None:
        return ""
    where = "" if middle is None else f" around {middle:.0f} MHz"
    limit = "" if gate is None else f", limit {gate * 100:.1f} %"
    return f"clock spreads {spread * 100:.1f} %{where}{limit}"


def _limits(evidence: Mapping[str, Any]) -> str:
    shares = (
        ("power cap", _number(evidence.get("power_share"))),
        ("heat", _number(evidence.get("thermal_share"))),
    )
    words = [f"{word} {share * 100:.0f} %" for word, share in shares if share]
    return f"limited by {', '.join(words)} of the time" if words else ""


def _stuck(evidence: Mapping[str, Any]) -> str:
    flags = " and ".join(str(code) for code in evidence.get("stuck") or ())
    if not flags:
        return ""
    return f"flag stuck? the driver says {flags} limit, and no clock, power or temperature does"


def _cost(evidence: Mapping[str, Any]) -> str:
    cost = _number(evidence.get("clock_cost"))
    basis = {
        "solo": "found with rows alone",
        "single": "",
        "mixture": "found with all rows mixed",
    }.get(str(evidence.get("lock_from")), "")
    if cost is None:
        return ""
    return f"costs {cost * 100:.1f} % of the median clock{_behind('; ', basis)}"


def _rows(advice: Advice, names: Mapping[int, str]) -> list[str]:
    """How many rows follow the clock, which follows most, and what else spreads them."""
    rows = [row for row in advice.evidence.get("rows") or () if isinstance(row, Mapping)]
    facts: list[str] = []
    told = [(a, row) for row in rows if (a := _number(row.get("alpha"))) is not None]
    if told:
        alpha, most = max(told, key=lambda pair: pair[0])
        name = names.get(int(most.get("bench", -1)), "")
        facts.append(
            f"clock exponent up to {alpha:.2f}{_behind(' in ', name)} "
            f"(1 follows the clock, 0 does not)"
        )
    causes = sorted({str(c) for row in rows for c in row.get("causes") or ()})
    if causes:
        facts.append(f"seen in the spread: {', '.join(causes)}")
    drifts = [(abs(c), row) for row in rows if (c := _number(row.get("change"))) is not None]
    if drifts and advice.verdict is Verdict.WAIT:
        change, row = max(drifts, key=lambda pair: pair[0])
        name = names.get(int(row.get("bench", -1)), "a row")
        facts.insert(0, f"{name} changed by {change * 100:.1f} % within the window")
    return facts


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None

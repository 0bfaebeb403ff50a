import math

import pytest

from usv_tui.model import Advice, ClockEffect, Verdict
from usv_tui.report.wording.advice import LINES, advice_line, advice_text, all_facts, short_text
from usv_tui.stats.advice import AdviceInputs, ClockEvidence, RowEvidence, advise


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_word_and_a_meaning(verdict):
    """However little is known, the panel says something, without a number that nobody measured."""
    said = advice_text(Advice(verdict=verdict))

    assert said.word.isupper()
    assert said.meaning
    assert said.evidence == ()
    assert short_text(Advice(verdict=verdict))


def test_what_is_lacking_is_counted_down():
    """UNKNOWN tells what it waits for."""
    advice = Advice(evidence={"needs": {"short": 5.4, "few-rounds": 12, "unheard-of": 1}})

    assert advice_text(advice).evidence == (
        "6 s more of the run are needed",
        "12 more rounds are needed",
    )


def test_a_lock_is_told_with_what_it_would_buy():
    """X, the std now and then, and the weightiest facts, at most four lines."""
    evidence = {
        "clock_spread": 0.023,
        "clock_gate": 0.011,
        "clock_median_mhz": 1935.0,
        "power_share": 0.12,
        "thermal_share": 0.0,
        "clock_cost": 0.023,
        "lock_from": "mixture",
        "rows": [{"bench": 7, "alpha": 0.94}, {"bench": 8, "alpha": None}],
    }
    advice = Advice(
        verdict=Verdict.LOCK,
        lock_mhz=1890,
        std_now=0.0065,
        std_locked=0.004,
        reason="clock-moves",
        evidence=evidence,
    )

    assert advice_text(advice, {7: "attn[math]"}).evidence == (
        "lock at 1890 MHz: std 0.65 % → about 0.40 %",
        "clock spreads 2.3 % around 1935 MHz, limit 1.1 %",
        "limited by power cap 12 % of the time",
        "costs 2.3 % of the median clock; found with all rows mixed",
    )
    assert "clock exponent up to 0.94 in attn[math] (1 follows the clock, 0 does not)" in (
        all_facts(advice, {7: "attn[math]"})
    )
    assert short_text(advice) == "at 1890 MHz, std 0.65 % → about 0.40 %"
    assert advice_line(advice) == (
        "LOCK at 1890 MHz: std 0.65 % → about 0.40 %; "
        "clock spreads 2.3 % around 1935 MHz, limit 1.1 %; limited by power cap 12 % of the time"
    )


def test_an_advice_without_a_lock_is_one_line_too():
    """The final table's line: the verdict with its reason, or what is lacking for one."""
    steady = Advice(verdict=Verdict.STEADY, reason="clock-still")
    hot = Advice(verdict=Verdict.THROTTLED_POWER, lock_mhz=1500, evidence={"power_share": 0.3})

    assert advice_line(steady) == "STEADY: the clock does not move"
    assert advice_line(hot) == (
        "THROTTLED: POWER, lock at 1500 MHz; limited by power cap 30 % of the time"
    )
    assert advice_line(Advice(evidence={"needs": {"no-clock": 1}})) == (
        "NOT KNOWN YET: the device does not tell its clock"
    )


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, "x", [], {}])
def test_no_evidence_breaks_the_words(bad):
    """A saved session of another version may hold anything."""
    keys = (
        "clock_spread",
        "clock_gate",
        "clock_median_mhz",
        "power_share",
        "thermal_share",
        "clock_cost",
        "temp_change_c",
        "locked_mhz",
        "below_lock_share",
        "lock_from",
    )
    evidence = dict.fromkeys(keys, bad) | {"rows": [{"alpha": bad, "change": bad}, bad]}
    for verdict in Verdict:
        facts = all_facts(Advice(verdict=verdict, evidence=evidence), {})
        assert not any("nan" in fact or "inf" in fact for fact in facts)


def test_what_the_statistics_give_can_be_said():
    """The evidence of a real evaluation becomes lines, with the row that drifts in front."""
    effect = ClockEffect(
        status="ok", alpha=0.95, clock_spread=0.03, std_now=0.012, std_locked=0.004, explained=0.9
    )
    clock = ClockEvidence(
        readings=200,
        age_s=0.1,
        spread=0.03,
        median_mhz=1800.0,
        low_mhz=1750.0,
        step_mhz=15.0,
        power_share=0.1,
        thermal_share=0.0,
        temp_change_c=0.2,
        supported_mhz=tuple(range(900, 1996, 15)),
    )
    rows = (RowEvidence(bench=0, trend=None, effect=effect, rel_std=0.012, gain=0.6),)
    advice = advise(AdviceInputs(window_s=20.0, rounds=400, rows=rows, clock=clock))

    said = advice_text(advice, {0: "attn"})

    assert advice.verdict is Verdict.LOCK
    assert said.word == "LOCK"
    assert said.evidence[0].startswith(f"lock at {advice.lock_mhz} MHz")
    assert len(said.evidence) == LINES


def test_codes_of_the_statistics_are_all_known():
    """Every reason and every need that the advice can give has its words."""
    import re
    from pathlib import Path

    from usv_tui.report.wording import advice as words
    from usv_tui.stats import advice as stats

    source = Path(stats.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'Verdict\.[A-Z_]+, "([a-z-]+)"', source))
    needs = set(re.findall(r'missing\["([a-z-]+)"\]', source))
    needs |= set(re.findall(r'{"([a-z-]+)": (?:clock|MIN)', source))

    assert len(reasons) > 5
    assert len(needs) > 4
    assert reasons <= set(words._REASONS)
    assert needs <= set(words._NEEDS)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.0021, 0.0520, "gain not known yet"),
        (0.0500, 0.0520, "std 5.27 %"),
        (0.0021, 0.0030, "std 5.27 %"),
        (0.0100, 0.0300, "std 5.27 %"),
    ],
)
def test_a_promise_of_anything_or_nothing_is_called_unknown(low, high, says):
    """A range that holds whether the lock takes all of the std or none of it is no promise."""
    advice = Advice(
        verdict=Verdict.THROTTLED_POWER,
        lock_mhz=1605,
        std_now=0.0527,
        std_locked_low=low,
        std_locked=high,
    )

    assert says in advice_line(advice)
    assert says in short_text(advice)
    assert ("to 5.20" not in advice_line(advice)) or says.startswith("std")


def test_a_lock_of_a_clock_that_stands_still_anyhow_is_not_worth_it():
    """A thermal limit holds the clock at one value: a lock below it would only cost."""
    evidence = {"clock_spread": 0.0, "clock_gate": 0.013, "clock_cost": 0.053}
    advice = Advice(
        verdict=Verdict.THROTTLED_THERMAL, lock_mhz=1620, std_now=0.008, evidence=evidence
    )

    assert "not worth it" in advice_line(advice)
    assert "costs 5.3 %" in advice_line(advice)


def test_what_a_slow_sensor_cannot_tell_is_not_promised():
    """Beside `cannot be told` stands no figure of what a lock would leave."""
    advice = Advice(
        verdict=Verdict.THROTTLED_POWER,
        lock_mhz=1575,
        std_now=0.0027,
        std_locked=0.0022,
        std_locked_low=0.0021,
        reason="sensor-slow-power",
    )

    assert "std" not in advice_line(advice)
    assert "cannot be told" in advice_line(advice)
    assert not advice.is_gain_known

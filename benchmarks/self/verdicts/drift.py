"""Drift, the settled state and the clock's share."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from benchmarks.self.verdicts.tables import (
    CARDS,
    FIRST_SEED,
    Size,
    last,
    percent,
    rng_for,
    table,
    wilson,
)
from tests.fakes import noise
from tests.fakes.traces import S, follow
from usv_tui.model import StateWord
from usv_tui.sim.odd_scenarios import chassis
from usv_tui.sim.profiles import Card
from usv_tui.sim.scenarios import SCENARIOS, Scenario
from usv_tui.sim.trace import Trace, trace
from usv_tui.stats import drift


def fired(values: np.ndarray, tick: float) -> bool:
    """One evaluation's verdict on one window."""
    found = drift.trend(values, tick)
    return found is not None and drift.fires(found, None)


def drift_power(size: Size) -> None:
    """False positives and detection of 1, 2 and 5 % linear drift in one window."""
    rows = []
    for n in (500, 1000, 2000, 5000):
        for k, (name, make) in enumerate(noise.SHAPES.items()):
            tick = 0.05 if name.startswith("tick") else 0.0
            cells: list[object] = [n, name]
            for change in (0.0, 0.01, 0.02, 0.05):
                hits = 0
                for run in range(size.runs):
                    rng = rng_for(4, n, k, round(1000 * change), run)
                    hits += fired(make(rng, n) * noise.line(n, change), tick)
                cells.append(percent(hits, size.runs))
            rows.append(cells)
    print("### Drift, one evaluation of one window (noise sd 1 %)\n")
    table(("n", "noise", "false", "1 %", "2 %", "5 %"), rows)


def walk(values: np.ndarray, per_second: int, seconds: int, tick: float = 0.0) -> list[StateWord]:
    """A tracker's word at each second of a series with the given rate, window 20 s, level heat."""
    tracker = drift.DriftTracker()
    words = []
    for second in range(1, seconds + 1):
        window = values[max(0, (second - 20) * per_second) : second * per_second]
        y = drift.batch_locations(window, tick)
        span = min(second, 20)
        look = drift.Look(
            second * S,
            float(span),
            None if y is None else drift.trends(y)[0],
            None if y is None else float(y[-8:].mean()),
            0.0,
        )
        words.append(tracker.update(look).word)
    return words


MOVING = (StateWord.DRIFTING, StateWord.WARMING)


def drift_delay(size: Size) -> None:
    """How soon a drift that begins at 30 s is seen, and false alarms before it."""
    rows = []
    per_second = 100
    total = 80
    for sd in (0.003, 0.01):
        for text, shape in (
            ("step 1 %", lambda t: np.where(t < 30, 1.0, 1.01)),
            ("step 2 %", lambda t: np.where(t < 30, 1.0, 1.02)),
            ("step 5 %", lambda t: np.where(t < 30, 1.0, 1.05)),
            ("ramp 1 % in 20 s", lambda t: 1 + 0.01 * np.clip((t - 30) / 20, 0, 1)),
            ("ramp 2 % in 20 s", lambda t: 1 + 0.02 * np.clip((t - 30) / 20, 0, 1)),
            ("ramp 5 % in 20 s", lambda t: 1 + 0.05 * np.clip((t - 30) / 20, 0, 1)),
        ):
            t = np.arange(total * per_second) / per_second
            delays, early = [], 0
            for run in range(size.runs):
                x = noise.iid(rng_for(5, round(1000 * sd), run), t.size, sd) * shape(t)
                words = walk(x, per_second, total)
                early += any(w in MOVING for w in words[:30])
                seen = [i - 30 + 1 for i, w in enumerate(words) if i >= 30 and w in MOVING]
                delays.append(seen[0] if seen else math.inf)
            found = [d for d in delays if math.isfinite(d)]
            rows.append(
                (
                    text,
                    f"{100 * sd:.1f} %",
                    percent(len(found), size.runs),
                    f"{np.median(found):.0f}, {np.quantile(found, 0.95):.0f}" if found else "-",
                    percent(early, size.runs),
                )
            )
    print("### Drift that begins at 30 s, 100 samples/s, one evaluation a second\n")
    table(("change", "noise", "seen", "delay, s (median, 95 %)", "false before"), rows)


def ever(size: Size) -> None:
    """False alarms of the two-in-a-row rule over 96 looks."""
    rows = []
    for k, (name, make) in enumerate(noise.SHAPES.items()):
        tick = 0.05 if name.startswith("tick") else 0.0
        hits = 0
        for run in range(size.runs):
            x = make(rng_for(6, k, run), 11_600)
            hits += any(w in MOVING for w in walk(x, 100, 116, tick)[20:])
        rows.append((name, percent(hits, size.runs)))
    print("### Drift word ever shown in 96 looks at noise without drift\n")
    table(("noise", "ever"), rows)


def _two_sinks(seed: int) -> Scenario:
    """The chassis with other time constants for every seed."""
    rng = rng_for(9, seed)
    tau_sink_s, tau_case_s = float(rng.uniform(15, 50)), float(rng.uniform(90, 400))

    def adapt(card: Card) -> Card:
        return replace(chassis(card), tau_sink_s=tau_sink_s, tau_case_s=tau_case_s)

    return replace(SCENARIOS["chassis"], name="two sinks", adapt=adapt)


AFTER_S = 310
"""Settled promises five minutes: so long a run goes on after it, at least."""


def _left(run: Trace, at_ns: int) -> float:
    """Change of row 0 over five minutes, from half-minute means: dither does not count."""
    _, t_ns, seconds = run.row(0)
    now = np.abs(t_ns - at_ns) < 15 * S
    end = np.abs(t_ns - at_ns - 300 * S) < 15 * S
    return math.log(np.mean(seconds[end]) / np.mean(seconds[now]))


def settled(size: Size) -> None:
    """When a cold card is called settled, and what was still to come."""
    rows, kept, all_left = [], 0, 0
    for name, span_s in (("two sinks", 1000), ("chassis", 1000), ("cold-ramp", 720)):
        for card in CARDS:
            when, left, seeds = [], [], max(1, size.seeds // 15)
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                plan = _two_sinks(seed) if name == "two sinks" else SCENARIOS[name]
                run = trace(plan, card, seed, float(span_s), poll_hz=10.0)
                looks = follow(run, to_s=int(run.t_ns[-1] / S) - AFTER_S)
                at = next((a.at_ns for a in looks if a.rows[0].is_settled), None)
                if at is not None:
                    when.append(at / S)
                    left.append(_left(run, at))
            kept += sum(abs(x) <= drift.DELTA for x in left)
            all_left += len(left)
            rows.append(
                (
                    name,
                    card,
                    f"{len(when)} of {seeds}",
                    ", ".join(f"{s:.0f} s" for s in when) or "-",
                    ", ".join(f"{100 * x:+.2f} %" for x in left) or "-",
                )
            )
    print("### Settled, row 0: when, and true change in the five minutes after it\n")
    print(f"- at most 0.5 % was still to come: {wilson(kept, all_left)} of {all_left} runs\n")
    table(("scenario", "card", "settled", "at", "still to come"), rows)


def attribution(size: Size) -> None:
    """Error of alpha, and the predicted against the simulated std after locking at X."""
    rows = []
    names = ("power-cap", "power-neighbour", "cold-ramp", "throttled", "steady", "noisy-neighbour")
    for name in names:
        for card in CARDS:
            errors: list[float] = []
            statuses: Counter[str] = Counter()
            predicted: list[float] = []
            below: list[float] = []
            now: list[float] = []
            for seed in range(FIRST_SEED, FIRST_SEED + max(3, size.seeds // 10)):
                run = trace(name, card, seed, 40.0)
                found = last(list(follow(run, from_s=33, to_s=40, is_shared=False)))
                for bench, row in found.rows.items():
                    statuses[row.effect.status] += 1
                    if row.effect.alpha is not None:
                        errors.append(row.effect.alpha - run.local_alpha(bench))
                x = found.advice.lock_mhz
                effect = found.rows[0].effect
                if x is None or effect.std_locked is None or effect.std_now is None:
                    continue
                locked = trace(name, card, seed + 500, 40.0, lock_mhz=x)
                seconds = locked.row(0)[2][locked.row(0)[1] > 20 * S]
                actual = float(np.log(seconds).std())
                predicted.append(effect.std_locked / actual)
                now.append(effect.std_now / actual)
                late = locked.true_mhz[20 * S // locked.tick_ns :]
                below.append(float((late < x - 1).mean()))
            rows.append(
                (
                    name,
                    card,
                    ", ".join(f"{k} {v}" for k, v in statuses.most_common()),
                    f"{max(map(abs, errors)):.3f}" if errors else "-",
                    f"{np.median(now):.2f} -> {np.median(predicted):.2f}" if predicted else "-",
                    f"{100 * np.mean(below):.1f} %, {100 * max(below):.1f} %" if below else "-",
                )
            )
    print("### The clock's share: alpha, and std after locking at X (1 = as simulated)\n")
    table(
        (
            "scenario",
            "card",
            "status",
            "worst error of alpha",
            "std now -> predicted, over actual",
            "time below X (mean, worst)",
        ),
        rows,
    )

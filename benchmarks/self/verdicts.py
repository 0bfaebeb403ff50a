"""Error rates of the statistics on noise and on simulated cards whose truth is known.

    python -m benchmarks.self.verdicts [--quick] [--only advice,drift,…] [--seeds N]

Thresholds were chosen on seeds below 1000; what is printed comes from seeds above. The random
conditions are labelled from the true clock, temperature and drift, not by scenario.
"""

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tests.fakes import noise
from tests.fakes.traces import S, follow
from usv_tui.model import Answer, Reason, StateWord, Verdict
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.profiles import find_card
from usv_tui.sim.scenarios import SCENARIOS, Scenario
from usv_tui.sim.trace import Trace, trace
from usv_tui.stats import drift, pairs
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.basics import correlation_time
from usv_tui.stats.inputs import RowData, TelemetryData
from usv_tui.stats.modes import find_modes
from usv_tui.stats.stopping import Precision, StopRule, parse_until

CARDS = ("h100", "mi300", "rtx")
FIRST_SEED = 1000


class Size(NamedTuple):
    """How much to run."""

    seeds: int
    """Seeds a scenario and card."""
    runs: int
    """Runs of a noise."""
    conditions: int
    """Random conditions."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def percent(hits: float, of: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * hits / of:.{digits}f} %" if of else "-"


def rng_for(*key: int) -> np.random.Generator:
    """A generator of the reported part."""
    return np.random.default_rng([FIRST_SEED, *key])


# --- advice -------------------------------------------------------------------------------------

WORDS = {
    Verdict.STEADY: "STEADY",
    Verdict.WAIT: "WAIT",
    Verdict.LOCK: "LOCK",
    Verdict.THROTTLED_POWER: "THROTTLED",
    Verdict.THROTTLED_THERMAL: "THROTTLED",
    Verdict.NOT_CLOCK: "NOT CLOCK",
    Verdict.UNKNOWN: "UNKNOWN",
}
ORDER = ("STEADY", "WAIT", "LOCK", "THROTTLED", "NOT CLOCK", "UNKNOWN")
UNKNOWN_TRUTH = ("too-short", "no-telemetry")
"""Scenarios in which the right answer is that nobody can know."""


def without_reasons(run: Trace) -> Trace:
    """The same run on a card that does not tell why its clock moves."""
    nan = np.full_like(run.reasons, np.nan)
    return replace(run, reasons=nan, power_capped_ns=nan, thermal_ns=nan, hw_thermal_ns=nan)


def advice_cases() -> list[tuple[str, str, Callable[[str, int], Trace]]]:
    """(name, truth, run) of every case of the confusion matrix."""
    cases: list[tuple[str, str, Callable[[str, int], Trace]]] = []
    for name, scenario in SCENARIOS.items():
        if scenario.verdict is Verdict.UNKNOWN and name not in UNKNOWN_TRUTH:
            continue
        cases.append((name, WORDS[scenario.verdict], lambda c, s, n=name: trace(n, c, s)))
    cases.extend(
        (f"{name}, no reasons", "LOCK", lambda c, s, n=name: without_reasons(trace(n, c, s)))
        for name in ("power-cap", "power-neighbour")
    )
    return cases


def last(steps: Sequence[Analysis] | None) -> Analysis:
    """The last analysis of a run."""
    assert steps
    return steps[-1]


def advice(size: Size) -> None:
    """Confusion matrix, time to the right verdict, and flips."""
    matrix: Counter[tuple[str, str]] = Counter()
    wrong: Counter[str] = Counter()
    first: dict[str, list[int]] = {}
    flips: dict[str, list[float]] = {}
    for name, truth, run in advice_cases():
        for card in CARDS:
            for seed in range(FIRST_SEED, FIRST_SEED + size.seeds):
                is_followed = truth == "WAIT" or seed < FIRST_SEED + max(size.seeds // 3, 1)
                told = run(card, seed)
                # What does not change needs no following but for its delay and its flips.
                begin = 1 if is_followed else max(1, int(told.t_ns[-1] / S) - 7)
                said = [WORDS[a.advice.verdict] for a in follow(told, from_s=begin)]
                matrix[truth, said[-1]] += 1
                if said[-1] != truth:
                    wrong[f"{name} on {card}: {said[-1]}"] += 1
                if not is_followed:
                    continue
                if said[-1] == truth:
                    first.setdefault(name, []).append(said.index(truth) + 1)
                known = [w for w in said if w != "UNKNOWN"]
                changes = sum(a != b for a, b in pairwise(known))
                flips.setdefault(name, []).append(60 * changes / max(len(known), 1))
    total = sum(matrix.values())
    right = sum(count for (truth, said), count in matrix.items() if truth == said)
    print(f"### Verdicts: {right} of {total} right ({percent(right, total)})\n")
    table(
        ("truth \\ said", *ORDER),
        [(t, *(matrix[t, s] or "" for s in ORDER)) for t in ORDER],
    )
    for text, count in wrong.most_common(12):
        print(f"- wrong {count}x: {text}")
    print()
    table(
        ("scenario", "right after, s (median, worst)", "changes a minute (median, worst)"),
        [
            (
                name,
                f"{np.median(first[name]):.0f}, {max(first[name])}" if name in first else "never",
                f"{np.median(flips[name]):.1f}, {max(flips[name]):.1f}",
            )
            for name in flips
        ],
    )


# --- advice under random conditions ---------------------------------------------------------------


class Truth(NamedTuple):
    """What was true in the last 20 s of a run."""

    power: float
    thermal: float
    drift: float
    """Largest true change between the outer thirds of any row's noise-free times, where it stands
    out of what the clock's dither does to them."""
    warming_c: float
    spread: float
    gate: float
    worst_std: float
    effects: tuple[tuple[float, float], ...]
    """(alpha x spread, share of the std that a lock takes away), a row."""


THRESHOLDS = {
    "power": 0.5,
    "thermal": 0.05,
    "drift": 0.005,
    "warming": 4.0,
    "effect": 0.005,
    "gain": 0.25,
    "spread": 1.0,
    "std": 0.01,
}


def thirds(values: np.ndarray) -> float:
    """Mean of the last third minus that of the first."""
    h = len(values) // 3
    return float(values[-h:].mean() - values[:h].mean()) if h else 0.0


def truth_of(run: Trace, window_s: float = 20.0) -> Truth:
    """The truth of a run's last window, from the true clock and temperature."""
    end = int(run.t_ns[-1])
    start = end - int(window_s * S)
    ticks = slice(max(0, start // run.tick_ns), end // run.tick_ns)
    reasons = run.true_reasons[ticks]
    power = float(((reasons & int(Reason.SW_POWER_CAP)) != 0).mean())
    hot = int(Reason.SW_THERMAL | Reason.HW_THERMAL)
    thermal = float(((reasons & hot) != 0).mean())
    log_mhz = np.log(run.true_mhz[ticks])
    low, high = np.quantile(log_mhz, (0.025, 0.975))
    drifts, effects, stds = [], [], []
    for bench, kernel in enumerate(run.kernels):
        mine = (run.bench == bench) & (run.t_ns >= start) & (run.seconds > 0)
        # The true clock is known for whole ticks: the last sample may have outrun them.
        mine &= run.t_ns + run.window_ns < len(run.true_mhz) * run.tick_ns
        log_t, log_f = np.log(run.seconds[mine]), np.log(run.clock_mhz[mine])
        clean = np.log([kernel.seconds(run.card, f) for f in run.clock_mhz[mine]])
        if kernel.warm_gain:
            t_s = run.t_ns[mine] / S
            clean = clean + np.log1p(kernel.warm_gain * np.exp(-t_s / kernel.warm_tau_s))
        found = drift.trend(np.exp(clean))
        is_drift = found is not None and abs(found.z) >= drift.Z_FIRE
        drifts.append(abs(thirds(clean)) if is_drift else 0.0)
        alpha = run.local_alpha(bench)
        now, locked = float(log_t.std()), float((log_t + alpha * log_f).std())
        effects.append((alpha * float(high - low), 1 - locked / now if now else 0.0))
        stds.append(now)
    return Truth(
        power,
        thermal,
        max(drifts),
        abs(thirds(run.true_temp_c[ticks])),
        float(high - low),
        max(0.005, 1.5 * run.card.step_mhz / float(np.exp(log_mhz.mean()))),
        max(stds),
        tuple(effects),
    )


def label(truth: Truth, scale: dict[str, float]) -> str:
    """The verdict that the truth asks for; `scale` moves single thresholds."""
    limit = {name: value * scale.get(name, 1.0) for name, value in THRESHOLDS.items()}
    if truth.thermal >= limit["thermal"]:
        return "THROTTLED"
    if truth.drift >= limit["drift"] or truth.warming_c >= limit["warming"]:
        return "WAIT"
    if any(e >= limit["effect"] and g >= limit["gain"] for e, g in truth.effects):
        return "THROTTLED" if truth.power >= limit["power"] else "LOCK"
    still = truth.spread < truth.gate * limit["spread"]
    return "STEADY" if still and truth.worst_std <= limit["std"] else "NOT CLOCK"


def is_clear(truth: Truth) -> bool:
    """No single threshold moved by a factor 1.5 changes the label."""
    plain = label(truth, {})
    return all(
        label(truth, {name: factor}) == plain for name in THRESHOLDS for factor in (1.5, 1 / 1.5)
    )


def random_run(seed: int) -> Trace:
    """A run under random conditions."""
    rng = np.random.default_rng([7, seed])
    card = find_card(str(rng.choice(CARDS)))
    base = SCENARIOS["power-cap"].kernels
    scale = float(rng.uniform(0.25, 1.0))
    sd = float(np.exp(rng.uniform(np.log(0.001), np.log(0.02))))
    drifting = rng.random() < 0.3
    kernels = tuple(
        replace(
            k,
            noise=sd,
            activity=k.activity * scale,
            warm_gain=float(rng.uniform(0.01, 0.05)) if drifting else 0.0,
            warm_tau_s=float(rng.uniform(8, 40)),
        )
        for k in base
    )
    neighbours = ()
    if rng.random() < 0.25:
        neighbours = (Neighbour(power=float(rng.uniform(0.05, 0.2)), on_s=2.5, off_s=3.5),)
    cap = float(rng.uniform(0.65, 1.1))
    scenario = Scenario(
        name="random",
        summary="",
        look_for="",
        kernels=kernels,
        adapt=lambda c: replace(c, cap_w=cap * c.cap_w),
        warm=bool(rng.random() < 0.6),
        neighbours=neighbours,
    )
    poll_hz = float(rng.choice([10.0, 20.0, 50.0]))
    return trace(scenario, card, seed, float(rng.uniform(22.0, 60.0)), poll_hz=poll_hz)


def conditions(size: Size) -> None:
    """The advice under random conditions, by how clear the truth is."""
    matrix: Counter[tuple[str, str]] = Counter()
    tally: Counter[tuple[bool, bool]] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + size.conditions):
        run = random_run(seed)
        truth = truth_of(run)
        want = label(truth, {})
        said = WORDS[last(list(follow(run, from_s=int(run.t_ns[-1] / S) - 3))).advice.verdict]
        clear = is_clear(truth)
        tally[clear, said == want] += 1
        if clear:
            matrix[want, said] += 1
    print("### Verdicts under random conditions, labelled from the true state\n")
    for clear, text in ((True, "clear cases"), (False, "within 1.5x of a threshold")):
        right, of = tally[clear, True], tally[clear, True] + tally[clear, False]
        print(f"- {text}: {right} of {of} right ({percent(right, of)})")
    print()
    table(
        ("truth \\ said (clear)", *ORDER),
        [(t, *(matrix[t, s] or "" for s in ORDER)) for t in ORDER[:5]],
    )


# --- ratios -----------------------------------------------------------------------------------

PAIRED: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "iid 0.3 %": lambda r, n: noise.iid(r, n, 0.003),
    "heavy tails": lambda r, n: noise.heavy(r, n, 0.003),
    "two modes 30 %": lambda r, n: noise.bimodal(r, n, 0.003),
    "two modes 50 %": lambda r, n: noise.bimodal(r, n, 0.003, 0.5),
}


def common(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """A disturbance that both rows of a round share."""
    if kind == "ramp 5 %":
        return noise.saturating(n, 0.05)
    if kind == "step 4 %":
        return noise.step(n, 0.04, 0.6)
    if kind == "clock dither":
        return noise.ar1(rng, n, 0.012, 0.97)
    return np.ones(n)


def log_ratios(name: str, rng: np.random.Generator, n: int, ratio: float) -> np.ndarray:
    """Per-round log ratios of two rows under a noise; `ratio` is the truth."""
    if name in PAIRED:
        a, b = PAIRED[name](rng, n), ratio * PAIRED[name](rng, n)
    elif name.startswith("tick"):
        a = noise.quantised(rng, 20e-6 * noise.iid(rng, n, 0.003), 0.5e-6)
        b = noise.quantised(rng, 20e-6 * ratio * noise.iid(rng, n, 0.003), 0.5e-6)
    elif name.startswith("AR"):
        phi = float(name.split()[1])
        return math.log(ratio) + 0.01 * noise.ar1_normal(rng, n, phi)
    else:
        shared = common(name, rng, n)
        a, b = shared * noise.iid(rng, n, 0.003), ratio * shared * noise.iid(rng, n, 0.003)
    return np.log(b) - np.log(a)


RATIO_NOISES = (
    *PAIRED,
    "ramp 5 %",
    "step 4 %",
    "clock dither",
    "tick 0.5 us on 20 us",
    "AR .5",
    "AR .9",
    "AR .97",
)


def coverage(size: Size) -> None:
    """Coverage and width of the ratio's interval at 1000 rounds."""
    rows = []
    for k, name in enumerate(RATIO_NOISES):
        cells: list[object] = [name]
        for any_time in (True, False):
            hit, widths = 0, []
            for run in range(size.runs):
                d = log_ratios(name, rng_for(1, k, run), 1000, 1.02)
                tick = 0.5e-6 / 20e-6 if name.startswith("tick") else None
                r = pairs.paired_ratio(d, any_time=any_time, resolution=tick)
                if r.low is not None and r.high is not None:
                    hit += r.low <= 1.02 <= r.high
                    widths.append(pairs.half_width(r) or math.nan)
            cells += [percent(hit, size.runs), f"±{100 * float(np.median(widths)):.3f} %"]
        rows.append(cells)
    print("### Interval of the ratio at 1000 rounds, truth 1.02\n")
    table(("noise", "live: covers", "width", "one look: covers", "width"), rows)


def peeking(size: Size) -> None:
    """False verdicts of A/A when the verdict is read after every round."""
    rows = []
    rounds = 2000
    for k, name in enumerate(RATIO_NOISES):
        false_band = false_zero = 0
        for run in range(size.runs):
            d = log_ratios(name, rng_for(2, k, run), rounds, 1.0)
            tick = 0.5e-6 / 20e-6 if name.startswith("tick") else None
            hits = look_each_round(d, tick)
            false_band += hits[0]
            false_zero += hits[1]
        rows.append((name, percent(false_band, size.runs), percent(false_zero, size.runs)))
    print(f"### A/A, verdict read after each of {rounds} rounds: ever FASTER or SLOWER\n")
    table(("noise", "band ±0.5 % (as shipped)", "no band at all"), rows)


def look_each_round(d: np.ndarray, resolution: float | None) -> tuple[bool, bool]:
    """Whether any look was wrong, with the band and without."""
    tracker = pairs.PairTracker()
    wrong = [False, False]
    for i in range(d.size):
        tracker.add(d[i : i + 1])
        if i < 20:
            continue
        ratio = tracker.ratio(band=0.0, resolution=resolution)
        if ratio.answer in (Answer.FASTER, Answer.SLOWER):
            wrong[1] = True
            ratio = tracker.ratio(resolution=resolution)
            if ratio.answer in (Answer.FASTER, Answer.SLOWER):
                wrong[0] = True
                break
    return wrong[0], wrong[1]


def decisions(size: Size) -> None:
    """Rounds until the answer is right, by true difference."""
    rows = []
    for ratio, want in ((1.0, Answer.SAME), (1.01, Answer.SLOWER), (1.02, Answer.SLOWER)):
        for sd in (0.003, 0.01):
            needed, wrong = [], 0
            for run in range(size.runs):
                rng = rng_for(3, round(ratio * 100), round(sd * 1000), run)
                d = np.log(noise.iid(rng, 8000, sd) / noise.iid(rng, 8000, sd) * ratio)
                found = first_answer(d)
                wrong += found is not None and found[1] is not want
                needed.append(8000 if found is None else found[0])
            rows.append(
                (
                    f"{ratio:.2f}",
                    f"{100 * sd:.1f} %",
                    want.value,
                    f"{np.median(needed):.0f}",
                    f"{np.quantile(needed, 0.95):.0f}",
                    percent(wrong, size.runs),
                )
            )
    print("### Rounds until there is an answer\n")
    table(("true ratio", "noise a side", "answer", "median", "95 %", "wrong"), rows)


def first_answer(d: np.ndarray) -> tuple[int, Answer] | None:
    """(rounds, answer) of the first answer when read every 10 rounds."""
    tracker = pairs.PairTracker()
    for i in range(0, d.size, 10):
        tracker.add(d[i : i + 10])
        found = tracker.ratio().answer
        if found is not Answer.UNDECIDED:
            return i + 10, found
    return None


# --- drift ------------------------------------------------------------------------------------


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


def settled(size: Size) -> None:
    """When a cold card is called settled, and what was still to come."""
    rows = []
    for name in ("cold-ramp", "power-cap", "steady", "non-clock-warmup"):
        for card in CARDS:
            when, left = [], []
            for seed in range(FIRST_SEED, FIRST_SEED + max(2, size.seeds // 4)):
                run = trace(name, card, seed, 180.0)
                at = next(
                    (a.at_ns for a in follow(run, to_s=170) if a.rows[0].is_settled),
                    None,
                )
                if at is None:
                    continue
                when.append(at / S)
                _, t_ns, seconds = run.row(0)
                now = (t_ns > at - 10 * S) & (t_ns <= at)
                end = t_ns > t_ns[-1] - 10 * S
                left.append(math.log(np.median(seconds[end]) / np.median(seconds[now])))
            rows.append(
                (
                    name,
                    card,
                    f"{np.median(when):.0f} s" if when else "never",
                    f"{100 * np.mean(left):+.2f} %" if left else "-",
                    f"{100 * min(left):+.2f} .. {100 * max(left):+.2f} %" if left else "-",
                )
            )
    print("### Settled, row 0: when, and true change from then to 180 s\n")
    table(("scenario", "card", "settled at", "still to come", "range"), rows)


# --- clock effect -----------------------------------------------------------------------------


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
            for seed in range(FIRST_SEED, FIRST_SEED + max(3, size.seeds // 3)):
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


# --- stopping and modes -------------------------------------------------------------------------


def stopping(size: Size) -> None:
    """Coverage, precision and length of runs that end by --until "ratio±0.5%"."""
    rows = []
    target = parse_until("ratio±0.5%")
    for k, (name, phi) in enumerate(
        (("iid 1 %", 0.0), ("AR .9", 0.9), ("AR .97", 0.97), ("AR .99", 0.99))
    ):
        ends, covered, within, never = [], 0, 0, 0
        for run in range(size.runs):
            rng = rng_for(8, k, run)
            d = 0.01 * (noise.ar1_normal(rng, 30_000, phi) if phi else rng.standard_normal(30_000))
            end = run_until(d, StopRule(target))
            if end is None:
                never += 1
                continue
            n, ratio = end
            ends.append(n)
            covered += (ratio.low or 1) <= 1 <= (ratio.high or 1)
            within += abs(math.log(ratio.ratio or 1)) <= target.half_width
        done = size.runs - never
        rows.append(
            (
                name,
                percent(covered, done),
                percent(within, done),
                f"{np.median(ends):.0f}" if ends else "-",
                percent(never, size.runs),
            )
        )
    print('### `--until "ratio±0.5%"`: the interval at the end of the run\n')
    table(
        ("noise of the log ratio", "covers", "error within ±0.5 %", "rounds", "not reached"), rows
    )


def run_until(d: np.ndarray, rule: StopRule) -> tuple[int, pairs.Ratio] | None:
    """(rounds, ratio) when the rule ends a run that is looked at every 20 rounds."""
    tracker = pairs.PairTracker()
    for i in range(0, d.size, 20):
        tracker.add(d[i : i + 20])
        ratio = tracker.ratio()
        precision = Precision(1, pairs.half_width(ratio), ratio.n, ratio.n_eff or 0.0)
        if rule.update([precision], 0.0).is_done:
            return i + 20, ratio
    return None


def modes(size: Size) -> None:
    """How often two modes are hinted at."""
    shapes: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
        "iid": (lambda r, n: noise.iid(r, n, 0.005), 0),
        "heavy": (lambda r, n: noise.heavy(r, n, 0.005), 0),
        "AR .97": (lambda r, n: noise.ar1(r, n, 0.01, 0.97), 0),
        "ramp 3 %": (lambda r, n: noise.iid(r, n, 0.005) * noise.line(n, 0.03), 0),
        "tick 0.5 us on 20 us": (
            lambda r, n: noise.quantised(r, 20e-6 * noise.iid(r, n, 0.005), 0.5e-6) / 20e-6,
            0.025,
        ),
        "two, 3 sd apart": (lambda r, n: noise.bimodal(r, n, 0.005, 0.5, 0.015), 0),
        "two, 4 sd apart": (lambda r, n: noise.bimodal(r, n, 0.005, 0.5, 0.02), 0),
        "4 sd, 30 %": (lambda r, n: noise.bimodal(r, n, 0.005, 0.3, 0.02), 0),
        "5 sd, 10 %": (lambda r, n: noise.bimodal(r, n, 0.005, 0.1, 0.025), 0),
        "8 sd, 10 %": (lambda r, n: noise.bimodal(r, n, 0.005, 0.1, 0.04), 0),
        "8 sd, 5 %": (lambda r, n: noise.bimodal(r, n, 0.005, 0.05, 0.04), 0),
        "sticky, dwell 50": (lambda r, n: noise.sticky(r, n, 0.005, 50), 0),
    }
    rows = []
    for k, (name, (make, tick)) in enumerate(shapes.items()):
        hits = 0
        for run in range(size.runs):
            x = make(rng_for(9, k, run), 1000)
            hits += find_modes(x, tick, 1000 / correlation_time(x)) is not None
        rows.append((name, percent(hits, size.runs)))
    print("### Two modes hinted at, 1000 samples\n")
    table(("samples", "hinted"), rows)


# --- cost -------------------------------------------------------------------------------------


def million(rows: int = 20, n: int = 1_000_000, span_s: int = 100) -> list[RowData]:
    """Rows of a million samples each."""
    rng = rng_for(10)
    t = np.linspace(0, span_s * S, n).astype(np.int64)
    rounds, inner, flags = np.arange(n, dtype=np.int32), np.full(n, 10, np.int32), np.zeros(n, "u1")
    noises = [rng.standard_normal(n) for _ in range(2)]
    return [
        RowData(
            b,
            t,
            (1e6 * (1 + 0.003 * noises[b % 2])).astype(np.int64) + b,
            inner,
            rounds,
            flags,
            None if b == 0 else 0,
            tick_ns=32,
        )
        for b in range(rows)
    ]


def readings(span_s: int) -> TelemetryData:
    """A clock that dithers under a power cap, 20 readings a second."""
    n = 20 * span_s
    mhz = 1700 * np.exp(0.01 * noise.ar1_normal(rng_for(11), n, 0.97))
    return TelemetryData(
        np.linspace(0, span_s * S, n).astype(np.int64),
        np.round(mhz / 15) * 15,
        np.full(n, 60.0),
        np.full(n, int(Reason.SW_POWER_CAP), np.int64),
        np.linspace(0, span_s * S, n),
        np.zeros(n),
        None,
        tuple(range(210, 1981, 15)),
    )


def cost(_size: Size) -> None:
    """Time of one update of everything, for 20 rows."""
    rows = []
    for n in (10_000, 100_000, 1_000_000):
        data, telemetry = million(n=n), readings(100)
        analyst = Analyst()
        times = []
        for second in range(70, 95):
            now = second * S
            k = n * second // 100
            part = [
                replace(
                    r,
                    t_ns=r.t_ns[:k],
                    window_ns=r.window_ns[:k],
                    inner=r.inner[:k],
                    rounds=r.rounds[:k],
                    flags=r.flags[:k],
                )
                for r in data
            ]
            cut = telemetry.cut(0, now)
            start = time.perf_counter()
            analyst.update(part, cut, now)
            times.append(1e3 * (time.perf_counter() - start))
        quick, typical, slow = np.quantile(times[1:], (0.1, 0.5, 0.9))
        rows.append((f"{n:,}", f"{quick:.1f} ms", f"{typical:.1f} ms", f"{slow:.1f} ms"))
    print("### One update of everything, 20 rows, clock dithering, 24 updates\n")
    table(("samples a row", "10 %", "median", "90 %"), rows)


SECTIONS: dict[str, Callable[[Size], None]] = {
    "advice": advice,
    "conditions": conditions,
    "peeking": peeking,
    "coverage": coverage,
    "decisions": decisions,
    "drift": drift_power,
    "delay": drift_delay,
    "ever": ever,
    "settled": settled,
    "attribution": attribution,
    "stopping": stopping,
    "modes": modes,
    "cost": cost,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--only", help=f"some of: {', '.join(SECTIONS)}")
    parser.add_argument("--seeds", type=int, default=30, help="seeds a scenario and card")
    options = parser.parse_args()
    size = Size(3, 20, 30) if options.quick else Size(options.seeds, 200, 300)
    for name in options.only.split(",") if options.only else SECTIONS:
        start = time.perf_counter()
        SECTIONS[name](size)
        print(f"({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()

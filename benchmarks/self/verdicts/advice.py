"""The advice: on scenarios, and under random conditions labelled from the true state."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.self.verdicts.tables import CARDS, FIRST_SEED, Size, last, percent, table
from tests.fakes.traces import S, follow
from usv_tui.model import Reason, Verdict
from usv_tui.sim.machine import Neighbour
from usv_tui.sim.profiles import find_card
from usv_tui.sim.scenarios import SCENARIOS, Scenario
from usv_tui.sim.trace import Trace, trace
from usv_tui.stats import drift

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

"""The advice on families of simulated runs, labelled from the state and from simulated locks."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.self.verdicts.families import HELD_OUT, TRIED, Case, Rng
from benchmarks.self.verdicts.tables import FIRST_SEED, Size, table, wilson
from tests.fakes.traces import S, follow
from usv_tui.model import Reason, Verdict
from usv_tui.sim.trace import Trace
from usv_tui.stats.analysis import Analysis
from usv_tui.stats.lock_choice import floor_clock

WORDS = {
    Verdict.STEADY: "STEADY",
    Verdict.WAIT: "WAIT",
    Verdict.LOCK: "LOCK",
    Verdict.THROTTLED_POWER: "THROTTLED",
    Verdict.THROTTLED_THERMAL: "THROTTLED",
    Verdict.NOT_CLOCK: "NOT CLOCK",
    Verdict.HIDDEN: "SLOWER",
    Verdict.UNKNOWN: "NOT KNOWN",
}
ORDER = ("STEADY", "WAIT", "LOCK", "THROTTLED", "NOT CLOCK", "NOT KNOWN")
WINDOW_S = 20.0
LIMITS = {
    "power": 0.5,
    "thermal": 0.05,
    "drift": 0.005,
    "warming": 4.0,
    "gain": 0.25,
    "std": 0.01,
}


class Truth(NamedTuple):
    """What was true in the last 20 s of a run."""

    power: float
    thermal: float
    drift: float
    """Largest change of any row's noise-free times between the window's outer thirds, averaged
    over runs of the same situation with other seeds: dither averages out and drift does not."""
    warming_c: float
    spread: float
    """True clock, p97.5 - p2.5, over the gate below which it counts as still."""
    worst_std: float
    gain: float
    """Largest share of a row's std that a lock really took away, in a run under that lock."""


def thirds(values: np.ndarray) -> float:
    """Mean of the last third minus that of the first."""
    h = len(values) // 3
    return float(values[-h:].mean() - values[:h].mean()) if h else 0.0


def ticks_of(run: Trace) -> slice:
    """The governor ticks of the last window."""
    end = int(run.t_ns[-1])
    return slice(max(0, (end - int(WINDOW_S * S)) // run.tick_ns), end // run.tick_ns)


def clean_change(run: Trace) -> np.ndarray:
    """Change of each row's noise-free log time over the last window."""
    start = int(run.t_ns[-1]) - int(WINDOW_S * S)
    out = []
    for bench, kernel in enumerate(run.kernels):
        mine = (run.bench == bench) & (run.t_ns >= start)
        mine &= run.t_ns + run.window_ns < len(run.true_mhz) * run.tick_ns
        fixed_s, cycles = kernel.split(run.card)
        clean = np.log(fixed_s + cycles / run.clock_mhz[mine])
        if kernel.warm_gain:
            clean += np.log1p(kernel.warm_gain * np.exp(-run.t_ns[mine] / S / kernel.warm_tau_s))
        out.append(thirds(clean))
    return np.array(out)


def stds(run: Trace) -> np.ndarray:
    """Std of log time of each row over the last window."""
    start = int(run.t_ns[-1]) - int(WINDOW_S * S)
    return np.array(
        [
            np.log(run.seconds[(run.bench == b) & (run.t_ns >= start)]).std()
            for b in range(len(run.kernels))
        ]
    )


def truth_of(case: Case, run: Trace) -> Truth:
    """The truth of a run: from its state, from runs with other seeds, and from a run locked."""
    ticks = ticks_of(run)
    reasons, mhz = run.true_reasons[ticks], run.true_mhz[ticks]
    others = [case.run(seed) for seed in (case.seed + 1, case.seed + 2, case.seed + 3)]
    changes = np.array([clean_change(one) for one in (run, *others)])
    drift, error = changes.mean(axis=0), changes.std(axis=0, ddof=1) / 2
    x = floor_clock(0.985 * float(np.quantile(mhz, 0.03)), run.card.supported_mhz)
    locked = stds(case.run(case.seed + 4, lock_mhz=x))
    low, high = np.quantile(np.log(mhz), (0.025, 0.975))
    gate = max(0.005, 1.5 * run.card.step_mhz / float(np.median(mhz)))
    return Truth(
        # What a card does not tell of its limits cannot be asked of the advice.
        power=case.has_reasons * float(((reasons & int(Reason.SW_POWER_CAP)) != 0).mean()),
        thermal=float(((reasons & int(Reason.SW_THERMAL | Reason.HW_THERMAL)) != 0).mean()),
        drift=float(np.abs(np.where(np.abs(drift) > 2 * error, drift, 0.0)).max()),
        warming_c=abs(thirds(run.true_temp_c[ticks])),
        spread=float(high - low) / gate,
        worst_std=float(stds(run).max()),
        gain=float((1 - locked / stds(run)).max()),
    )


def label(truth: Truth, scale: dict[str, float]) -> str:
    """The verdict that the truth asks for; `scale` moves single limits."""
    limit = {name: value * scale.get(name, 1.0) for name, value in LIMITS.items()}
    if truth.drift >= limit["drift"] or truth.warming_c >= limit["warming"]:
        return "WAIT"
    if truth.thermal >= limit["thermal"]:
        return "THROTTLED"
    if truth.gain >= limit["gain"]:
        return "THROTTLED" if truth.power >= limit["power"] else "LOCK"
    return "STEADY" if truth.worst_std <= limit["std"] else "NOT CLOCK"


def same(want: str, said: str, truth: Truth) -> str:
    """What was said, where it means the same: a quiet run whose clock moves is both."""
    is_both = want == "STEADY" and said == "NOT CLOCK" and truth.spread >= 1.0
    return want if is_both else said


def is_clear(truth: Truth) -> bool:
    """No single limit moved by a factor 1.5 changes the label."""
    return {label(truth, {n: f}) for n in LIMITS for f in (1.5, 1 / 1.5)} == {label(truth, {})}


class Tally:
    """What was said of the cases of one part."""

    def __init__(self) -> None:
        self.matrix: Counter[tuple[str, str]] = Counter()
        self.near: Counter[str] = Counter()
        self.first: Counter[str] = Counter()
        self.promised = self.kept = 0
        self.widths: list[float] = []
        self.below: list[float] = []
        self.warned: list[float] = []
        """The same of locks that are called not worth it, or that may not hold."""

    def outcome(self, truth: str, said: str) -> str:
        """right, not known or wrong."""
        return "right" if truth == said else "not known" if said == "NOT KNOWN" else "wrong"


def check_promise(case: Case, found: Analysis, tally: Tally) -> None:
    """Lock where the advice says, and hold each row's std against what was promised of it."""
    x = found.advice.lock_mhz
    if x is None:
        return
    locked = case.run(case.seed + 5, lock_mhz=x)
    actual = stds(locked)
    evidence = found.advice.evidence
    is_warned = evidence.get("worth") is False or evidence.get("may_fall")
    below = float((locked.true_mhz[ticks_of(locked)] < x - 1).mean())
    (tally.warned if is_warned else tally.below).append(below)
    for row in found.advice.evidence["rows"]:
        low, high = row["std_locked_low"], row["std_locked"]
        if low is None or high is None:
            continue
        tally.promised += 1
        tally.kept += low / 1.2 <= actual[row["bench"]] <= 1.2 * high
        tally.widths.append(high / low)


def judge(make: Callable[[Rng], Case], number: int, seeds: int, tally: Tally) -> list[str]:
    """The outcomes of a family's clear cases."""
    outcomes = []
    for k in range(seeds):
        case = make(np.random.default_rng([FIRST_SEED, 12, number, k]))
        run = case.run()
        truth = truth_of(case, run)
        want = label(truth, {})
        steps = list(follow(run))
        said = [same(want, WORDS[a.advice.verdict], truth) for a in steps]
        outcome = tally.outcome(want, said[-1])
        if not is_clear(truth):
            tally.near[outcome] += 1
            continue
        outcomes.append(outcome)
        tally.matrix[want, said[-1]] += 1
        first = next((w for w in said if w != "NOT KNOWN"), "NOT KNOWN")
        # Warming up is true of the beginning of most runs.
        tally.first["right" if first in (want, "WAIT") else tally.outcome(want, first)] += 1
        check_promise(case, steps[-1], tally)
    return outcomes


def advice(size: Size) -> None:
    """Verdicts of the families that set thresholds."""
    _families("families that were looked at while the rules were made", TRIED, 0, size)


def held_out(size: Size) -> None:
    """Verdicts of the families that no rule was tried on."""
    _families(
        "families held out: controllers and sensors that no rule was tried on", HELD_OUT, 200, size
    )


def _families(
    title: str, families: dict[str, Callable[[Rng], Case]], offset: int, size: Size
) -> None:
    tally, rows = Tally(), []
    for number, (name, make) in enumerate(families.items()):
        found = Counter(judge(make, number + offset, max(2, size.seeds // 3), tally))
        n = sum(found.values())
        rows.append((name, n, found["right"], found["not known"], found["wrong"]))
    _report(title, tally, rows)


def _report(title: str, tally: Tally, rows: list[tuple[object, ...]]) -> None:
    n = sum(tally.matrix.values())
    right = sum(c for (t, s), c in tally.matrix.items() if t == s)
    unknown = sum(c for (t, s), c in tally.matrix.items() if t != s and s == "NOT KNOWN")
    wrong = n - right - unknown
    print(f"### Verdicts: {title}\n")
    print(f"- clear cases: {n}; right {wilson(right, n)}, wrong {wilson(wrong, n)}, ", end="")
    print(f"not known {wilson(unknown, n)}")
    near = sum(tally.near.values())
    print(f"- within 1.5x of a limit: {near}; wrong {wilson(tally.near['wrong'], near)}")
    print(f"- the first word of a run wrong: {wilson(tally.first['wrong'], n)}")
    print(
        f"- promises of a lock kept, give or take a fifth: {wilson(tally.kept, tally.promised)} "
        f"of {tally.promised} rows; upper over lower end, median {np.median(tally.widths):.2f}"
    )
    print("- locks below which the clock fell for over 1 % of the time: ", end="")
    print(f"{_left(tally.below)}; of those called not worth it or doubtful {_left(tally.warned)}\n")
    table(("family", "clear cases", "right", "not known", "wrong"), rows)
    table(
        ("truth \\ said", *ORDER),
        [(t, *(tally.matrix[t, s] or "" for s in ORDER)) for t in ORDER[:-1]],
    )


def _left(below: list[float]) -> str:
    over = sum(share > 0.01 for share in below)
    return f"{wilson(over, len(below))} of {len(below)}"

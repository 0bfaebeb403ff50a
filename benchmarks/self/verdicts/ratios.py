"""Ratios, runs that stop on them, and modes: coverage, false answers, time to an answer."""

import math
from collections.abc import Callable

import numpy as np

from benchmarks.self.verdicts.tables import Size, percent, rng_for, table
from tests.fakes import noise
from usv_tui.model import Answer
from usv_tui.stats import pairs
from usv_tui.stats.basics import correlation_time
from usv_tui.stats.modes import find_modes
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.stopping import Precision, StopRule, parse_until

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
    tracker = PairTracker()
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
    tracker = PairTracker()
    for i in range(0, d.size, 10):
        tracker.add(d[i : i + 10])
        found = tracker.ratio().answer
        if found is not Answer.UNDECIDED:
            return i + 10, found
    return None


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
    tracker = PairTracker()
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

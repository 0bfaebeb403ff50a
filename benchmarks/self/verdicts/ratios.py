"""Ratios, runs that stop on them, and modes: coverage, false answers, time to an answer."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from benchmarks.self.verdicts.ratio_noises import HELD_OUT, TUNED_ON, Family, independent
from benchmarks.self.verdicts.tables import Size, percent, rng_for, table, wilson
from tests.fakes import noise
from usv_tui.model import Answer
from usv_tui.stats import pairs
from usv_tui.stats.basics import correlation_time
from usv_tui.stats.modes import find_modes
from usv_tui.stats.pair_tracker import PairTracker
from usv_tui.stats.stopping import Precision, StopRule, parse_until

SECOND = 100
"""Rounds between two looks."""
LONGEST = 4000


def ratio_noise(size: Size) -> None:
    """One look and any look, on families that set thresholds and on families held out."""
    for title, families in (
        ("families that set thresholds", TUNED_ON),
        ("families held out", HELD_OUT),
    ):
        one, live = [], []
        for k, (name, family) in enumerate(families.items()):
            one.append((name, *one_look(family, k, size.runs)))
            live.append((name, *any_look(family, k, size.runs)))
        print(f"### Ratio of equal rows, one look, {size.runs} runs each: {title}\n")
        head = [
            f"{n} rounds: {what}"
            for n in (1000, LONGEST)
            for what in (
                "given",
                "covers the rounds so far",
                "given and misses them, of all runs",
                "covers the long run",
                "±",
            )
        ]
        table(("noise", *head), one)
        print(
            f"### Ratio of equal rows, {LONGEST // SECOND} looks {SECOND} rounds (1 s) apart, "
            f"{size.runs} runs each: {title}\n"
        )
        table(
            (
                "noise",
                "ever faster/slower, not true of the rounds so far",
                "not true in the long run",
                "ever an answer whose interval misses the long run",
                "looks: same",
                "still moves",
                "not enough data",
                "width changes by at most",
            ),
            live,
        )


def one_look(family: Family, k: int, runs: int) -> list[str]:
    """Share of runs with enough independent rounds, and how many of their intervals hold."""
    cells = []
    for n in (1000, LONGEST):
        so_far, long_run, widths = 0, 0, []
        for run in range(runs):
            made = family.make(rng_for(21, k, n, run), n)
            r = pairs.paired_ratio(made.d, any_time=False, resolution=family.resolution)
            if (r.n_eff or 0) < pairs.MIN_EFFECTIVE or r.moves:
                continue
            so_far += holds(r, float(made.level.mean()))
            long_run += holds(r, 0.0)
            widths.append(pairs.half_width(r) or math.nan)
        given = len(widths)
        width = f"{100 * float(np.median(widths)):.3f} %" if widths else "-"
        cells += [percent(given, runs, 0), wilson(so_far, given), wilson(given - so_far, runs)]
        cells += [wilson(long_run, given), width]
    return cells


def holds(ratio: pairs.Ratio, log_truth: float) -> bool:
    """The interval holds the truth."""
    return (ratio.low or 1) <= math.exp(log_truth) <= (ratio.high or 1)


def any_look(family: Family, k: int, runs: int) -> list[str]:
    """What is said over a run, and how often it is ever wrong."""
    wrong = np.zeros(3, int)
    said: Counter[Answer] = Counter()
    change = 1.0
    for run in range(runs):
        made = family.make(rng_for(22, k, run), LONGEST)
        so_far = np.cumsum(made.level) / np.arange(1, LONGEST + 1)
        tracker, last, seen = PairTracker(), None, np.zeros(3, bool)
        for end in range(SECOND, LONGEST + 1, SECOND):
            tracker.add(made.d[end - SECOND : end])
            r = tracker.ratio(resolution=family.resolution, is_limited=family.is_limited)
            said[r.answer] += 1
            sign = {Answer.FASTER: -1, Answer.SLOWER: 1}.get(r.answer, 0)
            differs = sign != 0
            seen |= [
                differs and sign * so_far[end - 1] < math.log1p(pairs.BAND),
                differs,
                (differs or r.answer is Answer.SAME) and not holds(r, 0.0),
            ]
            width = pairs.half_width(r)
            if width and last:
                change = max(change, width / last, last / width)
            last = width
        wrong += seen
    looks = said.total()
    return [
        *(wilson(int(count), runs) for count in wrong),
        *(percent(said[a], looks, 0) for a in (Answer.SAME, Answer.MOVING, Answer.UNDECIDED)),
        f"{change:.2f}x",
    ]


def peeking(size: Size) -> None:
    """False verdicts of A/A when the verdict is read after every round, without a band."""
    rows = []
    rounds = 2000
    for k, (name, family) in enumerate(TUNED_ON.items()):
        wrong = 0
        for run in range(size.runs):
            d = family.make(rng_for(13, k, run), rounds).d
            wrong += look_often(d, family.resolution)
        rows.append((name, wilson(wrong, size.runs)))
    print(f"### A/A without any band, read after every 5th of {rounds} rounds: ever wrong\n")
    table(("noise", "ever FASTER or SLOWER"), rows)


def look_often(d: np.ndarray, resolution: float | None) -> bool:
    """Whether any look is wrong when there is no band at all."""
    tracker = PairTracker()
    slow = np.arange(d.size) * 1_000_000_000
    for i in range(0, d.size, 5):
        tracker.add(d[i : i + 5], None, slow[i : i + 5])
        ratio = tracker.ratio(band=0.0, resolution=resolution)
        if ratio.answer in (Answer.FASTER, Answer.SLOWER):
            return True
    return False


def decisions(size: Size) -> None:
    """Rounds until there is an answer, beside an interval of order statistics for one look."""
    rows = []
    for ratio, want in ((1.0, Answer.SAME), (1.01, Answer.SLOWER), (1.02, Answer.SLOWER)):
        for sd in (0.003, 0.01, 0.03):
            needed, order, wrong = [], [], 0
            for run in range(size.runs):
                rng = rng_for(3, round(ratio * 100), round(sd * 1000), run)
                d = math.log(ratio) + independent(rng, 8000, sd)
                found = first_answer(lambda n, d=d: pairs.paired_ratio(d[:n]).answer)
                wrong += found[1] not in (want, Answer.UNDECIDED)
                needed.append(found[0])
                order.append(first_answer(lambda n, d=d: order_answer(d[:n]))[0])
            rows.append(
                (
                    f"{ratio:.2f}",
                    f"{100 * sd:.1f} %",
                    want.value,
                    f"{np.mean(needed):.0f}",
                    f"{np.quantile(needed, 0.95):.0f}",
                    f"{np.mean(order):.0f}",
                    f"{np.mean(needed) / np.mean(order):.1f}x",
                    wilson(wrong, size.runs),
                )
            )
    print("### Rounds until the interval gives an answer, however long they take\n")
    head = (
        "true ratio",
        "noise a side",
        "answer",
        "mean",
        "95 %",
        "one look, order",
        "quotient",
        "wrong",
    )
    table(head, rows)


def order_answer(d: np.ndarray) -> Answer:
    """What a median between order statistics says that is right for a single look only."""
    found = pairs.median_interval(d, any_time=False, tau=1.0)
    assert found is not None
    return pairs.answer(found.low, found.high, found.n_eff)


SAID = (Answer.FASTER, Answer.SLOWER, Answer.SAME)


def first_answer(look: Callable[[int], Answer], most: int = 8000) -> tuple[int, Answer]:
    """(rounds, answer) of the first answer when read at every 5 % more rounds."""
    n = 20
    while n < most:
        said = look(n)
        if said in SAID:
            return n, said
        n += max(5, n // 20)
    return most, Answer.UNDECIDED


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
    """(rounds, ratio) when the rule ends a run that is looked at every 100 rounds."""
    tracker = PairTracker()
    for i in range(0, d.size, 100):
        tracker.add(d[i : i + 100])
        ratio = tracker.ratio()
        precision = Precision(
            1,
            pairs.half_width(ratio),
            ratio.n,
            ratio.n_eff or 0.0,
            moves=ratio.moves,
            is_short=ratio.is_short,
        )
        if rule.update([precision], 0.0).is_done:
            return i + 100, ratio
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
        "one step of 8 sd": (lambda r, n: noise.iid(r, n, 0.005) * noise.step(n, 0.04), 0),
        "one step of 4 sd": (lambda r, n: noise.iid(r, n, 0.005) * noise.step(n, 0.02, 0.7), 0),
    }
    rows = []
    for k, (name, (make, tick)) in enumerate(shapes.items()):
        cells: list[object] = [name]
        for n in (1000, LONGEST):
            hits = 0
            for run in range(size.runs):
                x = make(rng_for(9, k, n, run), n)
                hits += find_modes(x, tick, n / correlation_time(x)) is not None
            cells.append(wilson(hits, size.runs))
        rows.append(cells)
    print("### Two modes hinted at\n")
    table(("samples", "of 1000", f"of {LONGEST}"), rows)

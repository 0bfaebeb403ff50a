"""How fast the simulated GPU is: a minute of truth, and 500 rounds in virtual time.

    python benchmarks/self/sim_speed.py

Prints, for each card, host seconds for a 60 s trace and for 500 interleaved rounds through the
timer, each the best of three, with the samples they gave.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from usv_tui.sim import load, trace
from usv_tui.timers.wall import Slot
from usv_tui.timesource import ManualTime

ROUNDS = 500


def rounds(card: str) -> int:
    """500 rounds of a scenario through the asynchronous timer; returns the samples."""
    session = load("power-cap", card, 0, ManualTime())
    slots = [Slot(i, b.build(session.spec)) for i, b in enumerate(session.suite.benchmarks)]
    count = 0
    for round_ in range(ROUNDS):
        failure = session.timer.enqueue(round_, slots)
        if failure is not None:
            raise failure[1]
        count += sum(len(r.bench) for r in session.timer.harvest(wait=False))
    return count + sum(len(r.bench) for r in session.timer.harvest(wait=True))


def best(call, *args):
    """(best of three in seconds, result)."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = call(*args)
        times.append(time.perf_counter() - start)
    return min(times), result


def main() -> None:
    """Measure and print the table."""
    print(f"{'card':8} {'60 s trace':>12} {'samples':>9} {'500 rounds':>12} {'samples':>9}")
    for card in ("h100", "mi300", "rtx"):
        trace_s, result = best(trace, "power-cap", card, 0, 60.0)
        rounds_s, samples = best(rounds, card)
        print(
            f"{card:8} {trace_s:>10.3f} s {len(result.bench):>9} "
            f"{rounds_s * 1e3:>9.1f} ms {samples:>9}"
        )


if __name__ == "__main__":
    main()

"""Error rates of the statistics on noise and on simulated cards whose truth is known.

    python -m benchmarks.self.verdicts [--quick] [--only advice,drift,…] [--seeds N]

Verdicts are labelled from the simulation's own state and by really simulating the lock, never by
the product's own tests. Noises of the other tables use seeds that set no threshold.
"""

import argparse
import time
from collections.abc import Callable

from benchmarks.self.verdicts.advice import advice, held_out
from benchmarks.self.verdicts.cost import cost
from benchmarks.self.verdicts.drift import attribution, drift_delay, drift_power, ever, settled
from benchmarks.self.verdicts.ratios import decisions, modes, peeking, ratio_noise, stopping
from benchmarks.self.verdicts.tables import Size

SECTIONS: dict[str, Callable[[Size], None]] = {
    "advice": advice,
    "held": held_out,
    "peeking": peeking,
    "ratios": ratio_noise,
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

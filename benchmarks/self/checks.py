"""False alarms and misses of the checks, on a fake device in real time beside busy processes.

The device of the tests (`tests/fakes/fake_cuda.py`) runs on the machine's own clock, so that the
host is preempted as a real one is; what is wrong with a row is known. Each row of the table is a
check on rows with and without its fault, at 0, 1, 2 and 4 busy processes.

    PYTHONPATH=. python benchmarks/self/checks.py [--n 60] [--write]
"""

import argparse
import contextlib
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.fakes.fake_cuda import Costs, FakeTorch
from usv_tui.engine.events import EventTimer
from usv_tui.engine.timers import Slot

US = 1_000
MS = 1_000_000
LOADS = (0, 1, 2, 4)
OUTSIDE, SYNCS = "work outside the stream", "synchronises"


class RealTime:
    """The machine's clock for the fake: what takes time really takes it."""

    def now_ns(self) -> int:
        """Now."""
        return time.perf_counter_ns()

    def advance(self, ns: int) -> None:
        """Let time pass: asleep when it is long, as a host that waits for a device is."""
        end = time.perf_counter_ns() + ns
        if ns > 200 * US:
            time.sleep((ns - 60 * US) / 1e9)
        while time.perf_counter_ns() < end:
            pass


class Case(NamedTuple):
    """Rows of one kind, and what a check should say of them."""

    check: str
    rows: str
    is_faulty: bool
    fn: Callable[[FakeTorch], Callable[[], object]]
    costs: Costs = Costs()


def _elsewhere(torch: FakeTorch, here_ns: int, there_ns: int) -> Callable[[], object]:
    side = torch.cuda.Stream()

    def fn() -> None:
        torch.kernel(here_ns)
        side.wait_stream(torch.cuda.current_stream())
        torch.kernel(there_ns, stream=side)

    return fn


def _waiting(torch: FakeTorch, ns: int) -> Callable[[], object]:
    def fn() -> None:
        torch.kernel(ns)
        torch.cuda.synchronize()

    return fn


def _slow_host(torch: FakeTorch, host_ns: int, ns: int) -> Callable[[], object]:
    def fn() -> None:
        torch.host_work(host_ns)
        torch.kernel(ns)

    return fn


def _kernel(ns: int) -> Callable[[FakeTorch], Callable[[], object]]:
    return lambda torch: lambda: torch.kernel(ns)


SLOW = Costs(sync_ns=1 * MS)
EXAMINED = (
    Case(OUTSIDE, "clean, 20 us", False, _kernel(20 * US)),
    Case(OUTSIDE, "clean, 200 us", False, _kernel(200 * US)),
    Case(OUTSIDE, "clean, 5 ms", False, _kernel(5 * MS)),
    Case(OUTSIDE, "clean, 200 us, a synchronise takes 1 ms", False, _kernel(200 * US), SLOW),
    Case(OUTSIDE, "0.1 ms elsewhere", True, lambda t: _elsewhere(t, 200 * US, 100 * US)),
    Case(OUTSIDE, "1 ms elsewhere", True, lambda t: _elsewhere(t, 200 * US, MS)),
    Case(
        OUTSIDE,
        "1 ms elsewhere, a synchronise takes 1 ms",
        True,
        lambda t: _elsewhere(t, 200 * US, MS),
        SLOW,
    ),
    Case(SYNCS, "3 ms of Python, 50 us", False, lambda t: _slow_host(t, 3 * MS, 50 * US)),
    Case(SYNCS, "clean, 20 us", False, _kernel(20 * US)),
    Case(SYNCS, "waits for 300 us", True, lambda t: _waiting(t, 300 * US)),
)


def examined(case: Case) -> bool:
    """Whether the check fires on one row of the case, on a timer of its own."""
    torch = FakeTorch(time=RealTime(), costs=case.costs, keeps_history=False)  # type: ignore[arg-type]
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    fn = case.fn(torch)
    fn()
    torch.cuda.synchronize()
    return case.check in dict(timer.examine(Slot(0, fn)))


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that only compute."""
    workers = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _compute() -> None:
    x = 0
    while True:
        x += random.getrandbits(3)


def _cell(case: Case, n: int) -> tuple[int, int]:
    wrong = sum(examined(case) != case.is_faulty for _ in range(n))
    return wrong, n


def main(arguments: list[str] | None = None) -> int:
    """Measure all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args(arguments)
    cases = [c for c in EXAMINED if options.only in f"{c.check} {c.rows}"]
    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for load in LOADS:
        with busy(load):
            for i, case in enumerate(cases):
                cells[i, load] = _cell(case, options.n)
                print(load, case.check, case.rows, *cells[i, load], file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

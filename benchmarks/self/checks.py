"""False alarms and misses of the checks, on fake devices in real time beside busy processes.

The devices of the tests run on the machine's clock, so that the host is preempted as a real one is;
what is wrong with a row is known. `fake_cuda.py` has a spin kernel; `fake_accelerator.py`, whose
streams are threads, has additions at most. Each row of the table is a check on rows with and
without its fault, at 0, 1, 2 and 4 busy processes.

    PYTHONPATH=. python benchmarks/self/checks.py [--n 40] [--write]
"""

import argparse
import contextlib
import itertools
import mmap
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.fakes.fake_accelerator import FakeTorch as FakeAccelerator
from tests.fakes.fake_accelerator import accelerator
from tests.fakes.fake_cuda import Costs, FakeTorch
from usv_tui.diagnosis.host_watch import HostWatch
from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot

US = 1_000
MS = 1_000_000
LOADS = (0, 1, 2, 4)
OUTSIDE, SYNCS, HOST = "work outside the stream", "synchronises", "host only"


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


def _python(host_ns: int, ns: int) -> Callable[[FakeTorch], Callable[[], object]]:
    def make(torch: FakeTorch) -> Callable[[], object]:
        def fn() -> None:
            torch.host_work(host_ns)
            if ns:
                torch.kernel(ns)

        return fn

    return make


class Anywhere:
    """A fake accelerator under the names by which the rows above use a fake CUDA."""

    def __init__(self, torch: FakeAccelerator) -> None:
        self._torch = torch
        self.cuda = SimpleNamespace(
            Stream=torch.Stream,
            synchronize=torch.accelerator.synchronize,
            current_stream=torch.accelerator.current_stream,
        )

    def kernel(self, ns: int, stream: Any = None) -> None:
        """Launch work."""
        self._torch.task("kernel", ns, stream)

    def host_work(self, ns: int) -> None:
        """Python between launches."""
        end = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < end:
            pass


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
    Case(HOST, "20 us of Python, 5 us", False, _python(20 * US, 5 * US)),
    Case(HOST, "300 us of Python, 5 us", False, _python(300 * US, 5 * US)),
    Case(HOST, "300 us of Python alone", True, _python(300 * US, 0)),
)
ANYWHERE = tuple(case for case in EXAMINED if case.costs is not SLOW)
"""What is asked of an accelerator of another kind."""


def examined(case: Case) -> bool:
    """Whether the check fires on one row of the case, on a timer of its own."""
    torch = FakeTorch(time=RealTime(), costs=case.costs, keeps_history=False)  # type: ignore[arg-type]
    timer = EventTimer(torch, probe=False, time_source=torch.time)
    fn = case.fn(torch)
    fn()
    torch.cuda.synchronize()
    return case.check in dict(timer.examine(Slot(0, fn)))


def examined_anywhere(case: Case, *, has_adds: bool) -> bool:
    """The same on an accelerator that torch knows nothing special of."""
    with accelerator(has_adds=has_adds) as torch:
        timer = EventTimer(torch, torch.kind, probe=False)
        fn = case.fn(Anywhere(torch))  # type: ignore[arg-type]
        fn()
        torch.accelerator.synchronize()
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


class HostCase(NamedTuple):
    """Rows on the CPU, and what must and what may be said of them at a load."""

    rows: str
    fn: Callable[[], object]
    code: str
    """What is to be said; empty for a clean row."""


def _spin() -> None:
    end = time.perf_counter_ns() + MS
    while time.perf_counter_ns() < end:
        pass


def _fresh_pages() -> None:
    block = mmap.mmap(-1, 16 << 20)
    for at in range(0, len(block), mmap.PAGESIZE):
        block[at] = 1
    block.close()


HOSTED = (
    HostCase("clean, 1 ms", _spin, ""),
    HostCase("sleeps for 1 ms", lambda: time.sleep(1e-3), "off the CPU"),
    HostCase("touches 4096 new pages", _fresh_pages, "page faults"),
)


def hosted(case: HostCase) -> bool:
    """Whether what is said of forty windows of a row is wrong; a busy host may be called so."""
    watch = HostWatch()
    for _ in range(40):
        watch.begin()
        case.fn()
        watch.end(0)
    said = {code for code, _, _ in watch.look()} - {"host busy"}
    return said != ({case.code} if case.code else set())


def called_busy() -> bool | None:
    """Whether `host busy` is wrong of a clean row; None where either answer is right.

    The windows are apart, as in a run. What the row lost is seen from inside of them: what happens
    between windows is in no figure.
    """
    watch = HostWatch()
    lost: list[float] = []

    def row() -> None:
        before = time.thread_time_ns(), time.perf_counter_ns()
        _spin()
        cpu_ns, wall_ns = time.thread_time_ns() - before[0], time.perf_counter_ns() - before[1]
        lost.append(1 - cpu_ns / wall_ns)

    for _ in range(40):
        time.sleep(0.02)
        watch.begin()
        row()
        watch.end(0)
    is_said = "host busy" in {code for code, _, _ in watch.look()}
    halves = [sum(lost[part::2]) / len(lost[part::2]) for part in (0, 1)]
    if max(halves) < 0.05:
        return is_said
    return not is_said if min(halves) > 0.2 else None


def _rows(n: int, only: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """Check, rows, what would be wrong, and wrong of n at each load."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for load in LOADS:
        with busy(load):
            for case in EXAMINED:
                if only in case.check:
                    wrong = sum(examined(case) != case.is_faulty for _ in range(n))
                    what = "missed" if case.is_faulty else "false alarm"
                    cells.setdefault((case.check, case.rows, what), []).append(f"{wrong}/{n}")
            for case, has_adds in itertools.product(ANYWHERE, (True, False)):
                where = "filler" if has_adds else "no filler"
                if only not in f"{case.check} {where}" or (case.is_faulty and not has_adds):
                    continue
                wrong = sum(
                    examined_anywhere(case, has_adds=has_adds) != case.is_faulty for _ in range(n)
                )
                what = "missed" if case.is_faulty else "false alarm"
                key = (case.check, f"{case.rows} ({where})", what)
                cells.setdefault(key, []).append(f"{wrong}/{n}")
            for host in HOSTED:
                if only in "the host":
                    wrong = sum(hosted(host) for _ in range(n))
                    key = ("off the CPU, page faults", host.rows, "wrong word")
                    cells.setdefault(key, []).append(f"{wrong}/{n}")
            answers = [called_busy() for _ in range(n)]
            known = [a for a in answers if a is not None]
            key = ("host busy", "clean, by the CPU time its windows got", "wrong")
            cells.setdefault(key, []).append(f"{sum(known)}/{len(known)}")
    for (check, rows, what), each in cells.items():
        yield check, rows, what, each


def table(n: int, only: str = "") -> str:
    """The table in Markdown."""
    heads = ["check", "rows", "counted", *(f"{load} busy" for load in LOADS)]
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    for check, rows, what, cells in _rows(n, only):
        lines.append("| " + " | ".join([check, rows, what, *cells]) + " |")
    return "\n".join(lines)


HEAD = """# How often the checks are wrong

Rows with a known fault or none, on the fake devices of the tests in real time (those with a filler
or none: an accelerator without a spin kernel), beside so many busy processes on a virtual machine
with two shared cores (which others used, too: 0 busy was not idle).
Each cell: wrong of n. Made by `PYTHONPATH=. python benchmarks/self/checks.py --write`; the versions
in virtual time are tests: `test_examine.py`, `test_host_watch.py`, `test_memory_watch.py`.

"""


def main(arguments: list[str] | None = None) -> int:
    """Measure all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true", help="into checks.md beside this file")
    options = parser.parse_args(arguments)
    text = table(options.n, options.only)
    print(text)
    if options.write:
        Path(__file__).with_suffix(".md").write_text(HEAD + text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the host takes from a row: explained where it explains the time, silent elsewhere."""

import time

import numpy as np
import pytest

from usv_tui.diagnosis.host_watch import HostWatch, Usage, explain, read_usage
from usv_tui.model import Notice
from usv_tui.report.wording.notices import sentence

MS = 1_000_000


def looks(n: int = 40, **usual: float) -> list[Usage]:
    """Windows of a millisecond, by what their thread was given."""
    rng = np.random.default_rng(0)
    values = {"cpu": 1.0, "waited": 0.0, "preempted": 0.0, "faults": 2.0, "disk": 0.0} | usual
    found = []
    for _ in range(n):
        wall = MS * float(np.exp(rng.normal(0, 0.05)))
        found.append(
            Usage(
                round(wall),
                round(wall * values["cpu"]),
                int(rng.poisson(values["waited"])),
                int(rng.poisson(values["preempted"])),
                int(rng.poisson(values["faults"])),
                int(rng.poisson(values["disk"])),
            )
        )
    return found


@pytest.mark.parametrize(
    ("usual", "codes"),
    [
        ({}, []),
        ({"cpu": 0.97, "preempted": 0.3}, []),
        ({"cpu": 0.96, "waited": 1.0}, []),
        ({"faults": 100.0}, []),
        ({"cpu": 0.5, "waited": 2.0}, ["off the CPU"]),
        ({"cpu": 0.05, "waited": 1.0}, ["off the CPU"]),
        ({"cpu": 0.6, "preempted": 1.5}, ["host busy"]),
        ({"cpu": 0.7}, ["host busy"]),
        ({"faults": 600.0}, ["page faults"]),
        ({"disk": 1.0}, ["page faults"]),
        ({"cpu": 0.6, "preempted": 1.0, "faults": 900.0}, ["host busy", "page faults"]),
    ],
)
def test_what_explains_the_time_is_named(usual: dict[str, float], codes: list[str]) -> None:
    """Sleep, other processes and page faults are told apart, and little of either says nothing."""
    assert [f.code for f in explain(looks(**usual))] == codes


def test_one_long_pause_is_no_busy_host() -> None:
    """A single window that lost 200 ms is a stall, not the state of the machine."""
    seen = looks()
    seen[7] = Usage(200 * MS, MS, 0, 1, 2, 0)

    assert explain(seen) == []


def test_what_holds_in_one_half_only_is_not_said() -> None:
    """Looks are held against each other: every other one alone does not decide."""
    seen = looks()
    seen[::2] = looks(20, cpu=0.4, preempted=2.0)

    assert explain(seen) == []


def feed(watch: HostWatch, bench: int, seen: list[Usage], script: list[Usage]) -> None:
    """Let a watch see these windows of a row."""
    for usage in seen:
        script += [Usage(0, 0, 0, 0, 0, 0), usage]
        watch.begin()
        watch.end(bench)


def test_a_verdict_needs_many_looks_and_is_taken_back() -> None:
    """Nothing is said of a row before twenty looks; when the host is quiet again, that is said."""
    script = [Usage(0, 0, 0, 0, 0, 0)]
    watch = HostWatch(lambda: script.pop(0))

    feed(watch, 0, looks(19, cpu=0.5, preempted=1.0), script)
    assert watch.look() == []
    feed(watch, 0, looks(21, cpu=0.5, preempted=1.0), script)
    first = watch.look()
    feed(watch, 0, looks(60), script)
    then = watch.look()

    assert [(code, bench) for code, bench, _ in first] == [("host busy", 0)]
    assert [(code, e["withdrawn"]) for code, _, e in then] == [("host busy", True)]
    assert watch.look() == []


def test_looks_come_a_few_times_a_second() -> None:
    """One round in a tenth of a second is taken apart, not each."""
    watch = HostWatch()

    due = [watch.is_due(round(t * MS)) for t in range(1, 1001)]

    assert sum(due) <= 11


def test_a_system_without_these_counters_is_let_alone() -> None:
    """Where a thread's counters cannot be had, nothing is looked at."""
    assert not HostWatch(lambda: None).is_due(1)


def test_a_real_sleep_is_off_the_cpu() -> None:
    """A row that sleeps half of its time is seen as what it is, and in words."""
    if read_usage() is None:
        pytest.skip("no counters by thread here")
    watch = HostWatch()
    for _ in range(24):
        watch.begin()
        time.sleep(0.002)
        watch.end(3)

    said = watch.look()

    assert [(code, bench) for code, bench, _ in said] == [("off the CPU", 3)]
    assert "sleeps" in sentence(Notice(code=said[0][0], at_ns=0, evidence=dict(said[0][2])))

"""What the host did to a row's windows: time off the CPU, switches and page faults of its thread.

Looked at for whole windows, a few times a second, between them: two system calls a look.
"""

import resource
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from usv_tui.codes import Code
from usv_tui.diagnosis.crowd import crowd
from usv_tui.diagnosis.vocabulary import Finding, finding
from usv_tui.model import WITHDRAWN
from usv_tui.timesource import NS_PER_S

_EVERY_NS = NS_PER_S // 10
_KEEP = 60
_ENOUGH = 20
"""Looks at a row before anything is said of it."""
_AGAIN = 20
"""New looks before what was said is looked at again."""
_OFF_SHARE = 0.1
"""Less time off the CPU than this explains nothing."""
_OFTEN = 0.1
"""Share of the windows that must have lost time."""
_FAULT_NS = 500.0
"""A page fault takes about as long: the kernel finds a page and clears it."""
_FAULT_SHARE = 0.1
_PARTS = 2
"""What is said must hold in each half of the looks."""


class Usage(NamedTuple):
    """One reading of this thread's counters."""

    wall_ns: int
    cpu_ns: int
    waited: int
    """Voluntary switches: it slept, or waited for something."""
    preempted: int
    """Involuntary switches: somebody else was given its CPU."""
    faults: int
    disk_faults: int

    def since(self, before: "Usage") -> "Usage":
        """What has come on."""
        return Usage(*(a - b for a, b in zip(self, before, strict=True)))


def read_usage() -> Usage | None:
    """This thread's counters; None where the system does not keep them by thread."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    if who is None:
        return None
    used = resource.getrusage(who)
    return Usage(
        time.perf_counter_ns(),
        time.thread_time_ns(),
        used.ru_nvcsw,
        used.ru_nivcsw,
        used.ru_minflt,
        used.ru_majflt,
    )


class HostWatch:
    """Rows' windows against what their thread was given. The thread that times calls it."""

    def __init__(
        self,
        read: Callable[[], Usage | None] = read_usage,
        who: Callable[[], dict[str, Any]] = crowd,
    ) -> None:
        """`read` reads the counters; `who` tells who else runs, when the host is found busy."""
        self._read = read
        self._who = who
        self._is_on = read() is not None
        self._due_ns = 0
        self._looks: dict[int, deque[Usage]] = {}
        self._fresh: dict[int, int] = {}
        self._told: dict[int, set[Code]] = {}
        self._before: Usage | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether the next round is to be looked at, window by window."""
        if not self._is_on or now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + _EVERY_NS
        return True

    def begin(self) -> None:
        """Right before a window."""
        self._before = self._read()

    def end(self, bench: int) -> None:
        """Right after a window of a row."""
        now = self._read()
        if now is None or self._before is None:
            return
        self._looks.setdefault(bench, deque(maxlen=_KEEP)).append(now.since(self._before))
        self._fresh[bench] = self._fresh.get(bench, 0) + 1

    def look(self) -> list[tuple[Code, int | None, dict[str, object]]]:
        """What is new of the rows that were looked at often enough; what no longer holds, too."""
        said: list[tuple[Code, int | None, dict[str, object]]] = []
        for bench, fresh in self._fresh.items():
            told = self._told.setdefault(bench, set())
            if len(self._looks[bench]) < _ENOUGH or (told and fresh < _AGAIN):
                continue
            self._fresh[bench] = 0
            found = {f.code: f for f in explain(list(self._looks[bench]))}
            for code, news in found.items():
                if code not in told:
                    also = self._who() if code == Code.HOST_BUSY else {}
                    said.append((code, bench, news.evidence | also))
            gone = told - set(found)
            said += [(code, bench, {WITHDRAWN: True}) for code in sorted(gone)]
            self._told[bench] = set(found)
        return said


def explain(looks: list[Usage]) -> list[Finding]:
    """What takes a good part of a row's time, in either half of the looks at it."""
    halves = [looks[i::_PARTS] for i in range(_PARTS)]
    everywhere = set.intersection(*({f.code for f in _explain(half)} for half in halves))
    return [f for f in _explain(looks) if f.code in everywhere]


def _explain(looks: list[Usage]) -> list[Finding]:
    table = np.array(looks, np.float64)
    wall, cpu, waited, preempted, faults, disk = table.sum(axis=0)
    found: list[Finding] = []
    if wall <= 0:
        return found
    off_share = max(0.0, 1 - cpu / wall)
    # In how many windows: one long sleep of the machine is a stall, and has its own name.
    often = float((1 - table[:, 1] / np.maximum(table[:, 0], 1) > _OFF_SHARE / 2).mean())
    if off_share > _OFF_SHARE and often > _OFTEN:
        # A thread that is kept waiting by others gives its CPU up itself; nobody asks one that is
        # preempted, and a hypervisor takes it without any switch.
        is_own = waited >= len(looks) / 2 and waited >= preempted
        found.append(
            finding(
                Code.OFF_THE_CPU if is_own else Code.HOST_BUSY,
                off_share=float(off_share),
                waited_per_window=float(waited / len(looks)),
                preempted_per_window=float(preempted / len(looks)),
            )
        )
    fault_share = min(1.0, faults * _FAULT_NS / max(cpu, 1.0))
    if fault_share > _FAULT_SHARE or disk >= len(looks) / 4:
        found.append(
            finding(
                Code.PAGE_FAULTS,
                faults_per_window=float(faults / len(looks)),
                from_disk=int(disk),
                share=float(fault_share),
            )
        )
    return found

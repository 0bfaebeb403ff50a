"""Who else is on a device: which pids of a driver's list are somebody else's, if that can be known.

A driver reports pids of the host. Inside a container they name nobody, or somebody else, so an
empty list proves nothing there: the answer is then "unknown", never "nobody".
"""

import functools
import pwd
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from usv_tui.units import bytes_text

MOST = 8
"""So many of the others are named; the rest are counted."""
MAX_PID = 1 << 22
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number of the first pid namespace: anything else is a container's."""


def in_container(namespace_link: str = "/proc/self/ns/pid") -> bool:
    """True when this process lives in a pid namespace of its own, or where that cannot be told."""
    try:
        return str(Path(namespace_link).readlink()) != INITIAL_PID_NAMESPACE
    except OSError:
        return True


def foreign_pids(
    rows: Iterable[tuple[int, int | None]],
    own: Collection[int],
    memory_bytes: int | None,
    *,
    is_contained: bool | None = None,
) -> tuple[list[int] | None, str]:
    """The pids that are not ours, or None and why they cannot be known.

    Args:
        rows: pid and bytes of each process, as the driver tells them; None is not told.
        own: our processes.
        memory_bytes: the device's memory; a row that claims more than that is garbage.
        is_contained: for tests; found out when None.
    """
    pids = []
    for pid, used in rows:
        is_absurd = not 0 < pid <= MAX_PID or (
            used is not None and memory_bytes is not None and used > memory_bytes
        )
        if is_absurd:
            return None, "unknown (the driver's process list is malformed)"
        pids.append(pid)
    if is_contained is None:
        is_contained = in_container()
    # Seeing ourselves under our own pid shows that the driver's pids are ours too.
    if is_contained and not any(pid in own for pid in pids):
        return None, "unknown (container)"
    return sorted({pid for pid in pids if pid not in own}), ""


class Others(NamedTuple):
    """The other processes on a device, and the device memory of each where it is told."""

    pids: list[int]
    used_bytes: list[int | None]

    @classmethod
    def of(cls, pids: Sequence[int], rows: Iterable[tuple[int, int | None]]) -> Self:
        """Those of the driver's rows that are somebody else's."""
        used = dict(rows)
        return cls(list(pids), [used.get(pid) for pid in pids])

    def largest(self) -> tuple["Others", int]:
        """The few that take most memory, in the order of their pids, and the number of the rest."""
        used = [*self.used_bytes, *[None] * (len(self.pids) - len(self.used_bytes))]
        rows = sorted(zip(self.pids, used, strict=False), key=lambda row: -(row[1] or 0))
        kept = sorted(rows[:MOST], key=lambda row: row[0])
        few = Others([pid for pid, _ in kept], [size for _, size in kept])
        return few, max(0, len(self.pids) - MOST)


def describe(pid: int, used_bytes: int | None = None) -> dict[str, Any]:
    """A process as plain data: pid, name, user and device memory, as far as they are known."""
    facts: dict[str, Any] = {"pid": pid}
    folder = Path("/proc") / str(pid)
    try:
        facts["name"] = (folder / "comm").read_text(errors="replace").strip()
        facts["user"] = _user(folder.stat().st_uid)
    except OSError:
        return facts | _memory(used_bytes)  # it has gone, or it is not ours to see
    return facts | _memory(used_bytes)


def _memory(used_bytes: int | None) -> dict[str, int]:
    return {} if used_bytes is None else {"memory_bytes": used_bytes}


@functools.cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def words(process: Mapping[str, Any]) -> str:
    """`python3 (pid 4711, user bob, 1.2 GiB)`, without what is not known."""
    facts = [f"pid {process.get('pid')}"]
    if process.get("user"):
        facts.append(f"user {process['user']}")
    if process.get("memory_bytes") is not None:
        facts.append(bytes_text(process["memory_bytes"]))
    name = process.get("name")
    return f"{name} ({', '.join(facts)})" if name else ", ".join(facts)

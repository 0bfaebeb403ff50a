"""Who else is on a device: which pids of a driver's list are somebody else's, if that can be known.

A driver reports pids of the host. Inside a container they name nobody, or somebody else, so an
empty list proves nothing there: the answer is then "unknown", never "nobody".
"""

from collections.abc import Collection, Iterable
from pathlib import Path

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

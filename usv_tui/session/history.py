"""The sessions that are kept: which there are, what they say, and which are old."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from usv_tui.errors import UsageError
from usv_tui.model import Advice
from usv_tui.session import journal
from usv_tui.session.comparison import saved_rows
from usv_tui.session.opened import Opened, open_session, sessions_in
from usv_tui.stats.compare import SavedRow
from usv_tui.timesource import NS_PER_S

_DAY_NS = 86_400 * NS_PER_S
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(d|w|mb|gb)", re.IGNORECASE)
_UNITS = {"d": _DAY_NS, "w": 7 * _DAY_NS, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True, slots=True)
class Kept:
    """A session file."""

    path: Path
    size_bytes: int
    changed_unix_ns: int
    log: Path | None = None
    """What its benchmarks printed; None beside a session that the user named (`--save`), where a
    file of that name may be the user's."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one session says in a line."""

    kept: Kept
    started_unix_ns: int
    suite: str
    commit: str
    """Eight digits, with a + where the tree had changes; empty outside a repository."""
    device: str
    elapsed_s: float
    states: str
    advice: Advice
    problem: str
    """Why it cannot be read, or that it is partial."""


@dataclass(frozen=True, slots=True)
class Point:
    """One benchmark in one session."""

    told: Told
    row: SavedRow


def kept_in(folder: Path) -> list[Kept]:
    """The sessions of a folder, newest first.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    found = []
    is_ours = os.path.realpath(folder) == os.path.realpath(journal.sessions_dir())
    for path in sessions_in(folder):
        log = path.with_suffix(".log")
        with suppress(FileNotFoundError):  # pruned meanwhile
            status = path.stat()
            has_log = is_ours and log.is_file()
            size = status.st_size + (log.stat().st_size if has_log else 0)
            found.append(Kept(path, size, status.st_mtime_ns, log if has_log else None))
    return sorted(found, key=lambda kept: (kept.changed_unix_ns, kept.path), reverse=True)


def prunable(kept: Iterable[Kept]) -> list[Kept]:
    """Those that may be deleted at all: sessions, by how they begin, whose run is over."""
    return [each for each in kept if _is_session(each.path) and not journal.is_written(each.path)]


def _is_session(path: Path) -> bool:
    try:
        journal.check(path)
    except UsageError:
        return False
    return True


def tell(kept: Kept) -> Told:
    """Open a session and put it in a line; one that cannot be read says why."""
    try:
        return _told(kept, open_session(kept.path))
    except UsageError as error:
        return Told(kept, 0, "", "", "", 0.0, "", Advice(), error.message)


def _told(kept: Kept, session: Opened) -> Told:
    snapshot = session.snapshot
    words = Counter("failed" if v.error else str(v.word) or str(v.state) for v in session.rows)
    device = snapshot.device.name if snapshot.device else str(snapshot.config.device)
    return Told(
        kept,
        snapshot.wall_unix_ns,
        snapshot.suite,
        _commit(snapshot.environment.get("git")),
        snapshot.simulated or device,
        snapshot.elapsed_s,
        ", ".join(f"{n} {word}" for word, n in words.most_common()),
        snapshot.advice,
        "" if snapshot.complete else _why_partial(session),
    )


def _why_partial(session: Opened) -> str:
    if not session.store.course.is_whole:
        return "damaged"
    return "being written" if session.store.course.is_written else "partial"


def _commit(git: object) -> str:
    if not isinstance(git, dict):
        return ""
    return f"{str(git.get('commit'))[:8]}{'+' if git.get('dirty') else ''}"


def points(kept: Sequence[Kept], name: str) -> list[Point]:
    """One benchmark over the sessions that have it and can be read, oldest first."""
    return sorted(_points(kept, name), key=lambda point: point.told.started_unix_ns)


def _points(kept: Sequence[Kept], name: str) -> Iterator[Point]:
    for each in kept:
        try:
            session = open_session(each.path)
        except UsageError:
            continue
        row = saved_rows(session).get(name)
        if row is not None and row.median_s:
            yield Point(_told(each, session), row)


def to_prune(kept: Sequence[Kept], limit: str, now_unix_ns: int) -> list[Kept]:
    """The sessions beyond a limit, oldest first: older than `30d`, or beyond `2GB` in all.

    Raises:
        UsageError: the limit is neither.
    """
    found = _LIMIT.fullmatch(limit.strip())
    if found is None:
        raise UsageError(f"{limit!r} is no age or size", "like 30d, 8w, 500MB or 2GB")
    unit = found[2].lower()
    most = float(found[1]) * _UNITS[unit]
    if unit in ("d", "w"):
        old = [each for each in kept if now_unix_ns - each.changed_unix_ns > most]
        return sorted(old, key=lambda each: each.changed_unix_ns)
    beyond, total = [], 0
    for each in sorted(kept, key=lambda each: -each.changed_unix_ns):
        total += each.size_bytes
        if total > most:
            beyond.append(each)
    return beyond[::-1]

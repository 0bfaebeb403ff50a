"""A saved session, opened: folded and looked at once as a whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from usv_tui.errors import UsageError
from usv_tui.session import image, journal
from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.session.store import Store


@dataclass(frozen=True, slots=True)
class Opened:
    """What a session file holds, at its end."""

    path: Path
    store: Store
    snapshot: Snapshot

    @property
    def rows(self) -> Iterator[RowView]:
        """The rows that were timed themselves: no phases of others."""
        return (v for v in self.snapshot.rows if v.bench in self.store.rows and v.parent is None)


def open_session(path: Path) -> Opened:
    """Read a session, finished or not.

    Raises:
        UsageError: it cannot be read, is none, is from a newer version, or holds nothing yet.
    """
    store, rest = image.restored(path)
    if store is None:
        store = Store()
        store.archive = path.absolute()
    for batch in rest.batches():
        store.apply(batch)
    store.course.is_written = journal.is_written(path)
    if not store.start_ns:
        raise UsageError(f"{path} holds no session yet", "it was cut before its first frame")
    store.conclude()  # it may have been cut before its end
    return Opened(path, store, store.snapshot(store.last_ns))


def session_files(path: Path) -> Sequence[Path]:
    """The session itself, or all that lie in a folder, by name.

    Raises:
        UsageError: a folder without a session.
    """
    if not path.is_dir():
        return [path]
    found = sessions_in(path)
    if not found:
        raise UsageError(f"{path} holds no session", "sessions end in .usv")
    return found


def sessions_in(folder: Path) -> list[Path]:
    """The files of a folder that are named as sessions are, by name.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".usv" and path.is_file())
    except FileNotFoundError:
        raise UsageError(f"there is no folder {folder}", "no session has been kept there") from None
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from None

"""A temporary folder for other versions of a project, which is gone when its owner is.

Whatever end the owner comes to, a small process that watches it removes the folder and takes the
worktrees in it out of their repository's books; what even that one left (a power cut) goes at the
next start. Run as a script this file is that process: nothing but the standard library is imported.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "usv-tui-ab-"
_OWNER = "owner"
_BOOKS = "repository"
_WAIT_S = 20.0


class Den:
    """The folder; `close` has it removed, and so does any end of this process."""

    def __init__(self) -> None:
        clean_up()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._owner = (self.path / _OWNER).open("w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        self._watcher = subprocess.Popen(  # its standard input ends when this process does
            [sys.executable, "-I", str(Path(__file__).resolve()), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def note_repository(self, repository: Path) -> None:
        """From now on worktrees of it may lie here."""
        (self.path / _BOOKS).write_text(str(repository), encoding="utf-8")

    def root_of(self, path: str) -> Path:
        """The folder in the den that a file of it lies in: a worktree, or a frozen copy."""
        return self.path / Path(path).relative_to(self.path).parts[0]

    def close(self) -> None:
        """Have it removed, and wait for that."""
        self._owner.close()
        pipe = self._watcher.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._watcher.wait(_WAIT_S)
        if self.path.exists():
            remove(self.path)


def remove(folder: Path) -> None:
    """The folder with all that is in it, and the worktrees in it from their repository's books."""
    repository = ""
    with contextlib.suppress(OSError):
        repository = (folder / _BOOKS).read_text(encoding="utf-8")
    for tree in sorted(folder.glob("*/.git")) if repository else ():
        _git(repository, "worktree", "remove", "--force", "--force", str(tree.parent))
    shutil.rmtree(folder, ignore_errors=True)
    if repository:
        _git(repository, "worktree", "prune")


def _git(repository: str, *arguments: str) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            ["git", "-C", repository, *arguments],  # noqa: S607  the user's git
            check=False,
            capture_output=True,
            timeout=_WAIT_S,
        )


def left_behind() -> Iterator[Path]:
    """Folders of this user's whose owner is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            with (folder / _OWNER).open("r") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield folder


def clean_up() -> None:
    """Remove what earlier ones have left."""
    for folder in left_behind():
        remove(folder)


def main(folder: str) -> None:
    """Wait for the owner's end, then remove its folder."""
    while os.read(0, 4096):
        pass
    remove(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])

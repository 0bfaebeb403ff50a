"""What a user names as a version: a git revision, a folder, a file or an interpreter.

Each becomes a file to run, a folder whose modules come first, and an interpreter.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from usv_tui.errors import UsageError, one_line
from usv_tui.session.worktrees import Den

if TYPE_CHECKING:
    from usv_tui.session.saves import Saves

WORKING = "working tree"
_RANGE = re.compile(r"(?P<base>.*?[^.])?(?P<dots>\.{2,3})(?P<head>[^.].*)?")
_GIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Resolved:
    """A version that can be run."""

    label: str
    what: str
    path: str
    """The benchmark file."""
    root: str = ""
    """Its modules come before those that are installed."""
    folder: str = ""
    """Where it is run."""
    python: str = sys.executable
    commit: str = ""
    is_dirty: bool = False
    is_frozen: bool = False
    """It is a copy of what was saved."""
    beside: str = ""
    """Where modules are looked for that the root does not have."""
    foreign: str = ""
    """A folder from which nothing of it may come: that of the other version."""

    @property
    def environment(self) -> dict[str, str]:
        """What its process has beside this one's: the version's own modules first."""
        if not self.root:
            return {}
        paths = [self.root, str(Path(self.root) / "src")]
        if self.beside:
            paths += [self.beside, str(Path(self.beside) / "src")]
        paths.append(os.environ.get("PYTHONPATH", ""))
        return {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def split(words: Sequence[str]) -> tuple[list[str], str]:
    """(the versions that are named, the benchmark file or nothing).

    Raises:
        UsageError: too many of them, or none.
    """
    words = list(words)
    file = ""
    if words and words[-1].endswith(".py"):
        are_both = len(words) == 2 and words[0].endswith(".py")
        file = "" if are_both else words.pop()
    if len(words) > 2:
        raise UsageError("two versions and one file at most", "usv-tui ab BASE [HEAD] [FILE]")
    found = _RANGE.fullmatch(words[0]) if words and not Path(words[0]).exists() else None
    if found is not None:
        if len(words) > 1:
            raise UsageError(f"{words[0]} names both versions already", "leave the other one out")
        base = found["base"] or "HEAD"
        words = [base, found["head"] or "HEAD"]
        if found["dots"] == "...":
            words[0] = "...".join(words)
    return words, file


class Finder:
    """Makes versions out of words; worktrees go into the den."""

    def __init__(self, den: Den, file: str) -> None:
        self._den = den
        self._file = Path(file) if file else None
        self._count = 0

    def base_and_head(
        self, words: Sequence[str], base_python: str, head_python: str
    ) -> tuple[Resolved, Resolved]:
        """Both, with labels that differ.

        Raises:
            UsageError: one is none, has no file, or nothing tells them apart.
        """
        if not words and not (base_python or head_python):
            raise UsageError("which version?", "usv-tui ab main FILE; usv-tui ab OLD.py NEW.py")
        base = self._version(words[0]) if words else self._working()
        head = self._version(words[1]) if len(words) > 1 else self._working()
        base, head = _with_python(base, base_python), _with_python(head, head_python)
        if (base.path, base.root, base.python) == (head.path, head.root, head.python):
            raise UsageError("both versions are the same", "name two, or another --base-python")
        if base.label == head.label:
            base = replace(base, label=f"{base.label} (BASE)")
            head = replace(head, label=f"{head.label} (HEAD)")
        return self._apart(base, head), self._apart(head, base)

    def watched(
        self, words: Sequence[str], saves: "Saves", base_python: str, head_python: str
    ) -> tuple[Resolved, Resolved]:
        """What was named, or the file as it is now, and what will be saved.

        Raises:
            UsageError: what was named is no version.
        """
        first = saves.first
        assert first is not None
        if first.broken is not None:
            b = first.broken
            raise UsageError(f"{b.file}:{b.line}: {b.message}", "it is not valid Python")
        root = str(saves.project.root)
        start = Resolved(
            "start",
            "as it was when this began",
            str(first.path),
            str(first.root),
            is_frozen=True,
            beside=root,
            foreign=root,
        )
        base = replace(self._version(words[0]), foreign=root) if words else start
        head = replace(start, label="save 0", what="as it was when this began")
        return _with_python(base, base_python), _with_python(head, head_python)

    @staticmethod
    def _apart(one: Resolved, other: Resolved) -> Resolved:
        return replace(one, foreign=other.root if other.root != one.root else "")

    def _version(self, word: str) -> Resolved:
        path = Path(word)
        is_path = os.sep in word or word.startswith(".")
        if not is_path:
            commit = self._commit(word)
            if commit:
                return self._revision(word, commit)
        if path.suffix == ".py" and path.is_file():
            return self._of_file(path)
        python = python_of(path)
        if python:
            return replace(self._working(), label=_env_label(path), python=python)
        if path.is_dir():
            return self._of_folder(path)
        commit = self._commit(word) if is_path else ""
        if commit:
            return self._revision(word, commit)
        where = "" if self.repository() else " (this is no git repository)"
        raise UsageError(
            f"{word} is no revision, folder, file or interpreter{where}",
            "usv-tui ab BASE [HEAD] [FILE], as in: usv-tui ab main benchmarks/attn.py",
        )

    def _needed_file(self) -> Path:
        if self._file is None:
            raise UsageError("which benchmark file?", "usv-tui ab BASE [HEAD] FILE")
        return self._file

    def _of_file(self, path: Path) -> Resolved:
        if self._file is not None and self._file != path:
            raise UsageError(f"{path} and {self._file} are both files", "usv-tui ab OLD.py NEW.py")
        full = path.resolve()
        return Resolved(str(path), str(full), str(full), str(full.parent))

    def _of_folder(self, path: Path) -> Resolved:
        """A copy of the project: its own file where it has it, else the one that is here."""
        root = path.resolve()
        file = self._needed_file()
        top = self.repository()
        inside = [root / file] if not file.is_absolute() else []
        if top is not None and file.resolve().is_relative_to(top):
            inside.append(root / file.resolve().relative_to(top))
        own = next((p for p in inside if p.is_file()), file.resolve())
        return self._in_root(path.name or str(root), str(root), root, own)

    def _working(self) -> Resolved:
        """What lies here now, with all that is in no commit."""
        file = self._needed_file().resolve()
        top = self.repository()
        if top is None:
            return Resolved(WORKING, f"{file.parent}, no git repository", str(file))
        commit = self._commit("HEAD")
        changed = _git(top, "status", "--porcelain").splitlines() if commit else []
        dirt = f", {len(changed)} files changed since" if changed else ", nothing changed since"
        what = f"{self._described(top, commit)}{dirt}" if commit else "no commit yet"
        made = self._in_root(WORKING, what, top, file)
        return replace(made, commit=commit, is_dirty=bool(changed), folder="")

    def _revision(self, word: str, commit: str) -> Resolved:
        top = self.repository()
        assert top is not None
        file = self._needed_file().resolve()
        self._count += 1
        tree = self._den.path / f"{self._count}-{re.sub(r'[^A-Za-z0-9._-]', '_', word)[:40]}"
        self._den.note_repository(top)
        try:
            _git(top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        except UsageError as error:
            raise UsageError(f"cannot check out {word}: {error.message}") from None
        own = tree / file.relative_to(top) if file.is_relative_to(top) else file
        what = self._described(top, commit)
        if not own.is_file():
            own, what = file, f"{what}; {file.name} is not in it: that of the working tree is used"
        label = commit[:8] if "..." in word else word
        made = self._in_root(label, what, tree, own)
        return replace(made, commit=commit)

    def _in_root(self, label: str, what: str, root: Path, file: Path) -> Resolved:
        if not file.is_file():
            raise UsageError(f"{file}: no such file", f"{label} has no such benchmark file")
        folder, top = root, self.repository()
        here = Path.cwd().resolve()
        if top is not None and here.is_relative_to(top) and (root / here.relative_to(top)).is_dir():
            folder = root / here.relative_to(top)
        return Resolved(label, what, str(file), str(root), str(folder))

    # -- git

    def repository(self) -> Path | None:
        """The repository of the benchmark file, or of this folder."""
        beside = self._file.resolve().parent if self._file is not None else Path.cwd()
        if not shutil.which("git"):
            return None
        while not beside.is_dir() and beside != beside.parent:
            beside = beside.parent
        try:
            top = _git(beside, "rev-parse", "--show-toplevel").strip()
        except UsageError:
            return None
        return Path(top).resolve() if top else None

    def _commit(self, word: str) -> str:
        """The commit that a revision stands for; empty where it is none."""
        top = self.repository()
        if top is None:
            return ""
        try:
            if "..." in word:
                one, other = word.split("...")
                return _git(top, "merge-base", one, other).strip()
            full = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}"]
            return _git(top, *full).split()[-1]
        except (UsageError, IndexError):
            return ""

    @staticmethod
    def _described(top: Path, commit: str) -> str:
        subject = _git(top, "log", "-1", "--format=%s", commit).strip()
        return f"{commit[:10]} {subject[:60]}".strip()


def python_of(path: Path) -> str:
    """The interpreter that a path stands for: itself, or that of an environment; else nothing."""
    if path.is_dir():
        inside = path / "bin" / "python"
        is_environment = (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()
        return str(inside.absolute()) if is_environment and os.access(inside, os.X_OK) else ""
    is_one = path.is_file() and os.access(path, os.X_OK) and path.name.startswith("python")
    return str(path.absolute()) if is_one else ""


def _env_label(path: Path) -> str:
    if path.is_dir():
        return path.name or str(path)
    return str(path.parent.parent.name or path)


def _with_python(one: Resolved, python: str) -> Resolved:
    if not python:
        return one
    found = python_of(Path(python)) or shutil.which(python) or ""
    if not found:
        raise UsageError(f"{python} is no interpreter", "the path of a python, or of a venv")
    label = f"{one.label} in {_env_label(Path(found))}"
    return replace(one, python=str(Path(found).absolute()), label=label)


def probe_python(one: Resolved) -> str:
    """The interpreter's version, when it has what measures.

    Raises:
        UsageError: it cannot be run, is too old, or lacks a package.
    """
    code = (
        "import sys\n"
        "assert sys.version_info >= (3, 11), 'Python 3.11 or newer is needed'\n"
        "import msgspec, numpy, psutil\n"
        "print(sys.version.split()[0])"
    )
    try:
        done = subprocess.run(
            [one.python, "-c", code], capture_output=True, text=True, timeout=_GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{one.python} cannot be run: {one_line(error)}") from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UsageError(
            f"{one.label}: {one.python} cannot measure: {why[0]}",
            "pip install usv-tui into that environment",
        )
    return done.stdout.strip()


def _git(folder: Path, *arguments: str) -> str:
    """What git says.

    Raises:
        UsageError: with git's own last line.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607  the user's git
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git: {one_line(error)}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"git: {said[-1]}")
    return done.stdout

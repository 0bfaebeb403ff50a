"""Frozen copies of a benchmark file and of the project's modules that it imports.

What runs is a copy that nobody edits: a file that is saved while it is being imported cannot give
the text of one version with the source lines of another. A copy in which anything was saved while
it was made is thrown away and made again.
"""

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TRIES = 20
_MOST_FILES = 5000
_NOT_OURS = ("site-packages", "__pycache__", ".git", "node_modules")

Stamp = dict[Path, tuple[int, int, int]]
"""When each file was changed, its size and its number."""


class Broken(NamedTuple):
    """A file that is no Python, as it was saved."""

    file: str
    line: int
    message: str
    text: str


class Project:
    """A benchmark file with what it imports from the folder around it."""

    def __init__(self, file: Path, root: Path) -> None:
        """`root` is the project's folder; the file's own one where the file is not in it."""
        self.file = file.resolve()
        self.root = root.resolve()
        if not self.file.is_relative_to(self.root):
            self.root = self.file.parent

    def files(self) -> list[Path]:
        """The file, and the project's modules that it imports, and those that these do."""
        seen: set[Path] = set()
        pending = [self.file]
        while pending and len(seen) < _MOST_FILES:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            for name in _imported(path):
                pending += [found for found in self._module(name, path) if found not in seen]
        return sorted(seen)

    def _module(self, name: str, importer: Path) -> list[Path]:
        """The files of a top-level module, all of a package; none where it is not the project's."""
        for folder in (self.file.parent, self.root, self.root / "src", importer.parent):
            module, package = folder / f"{name}.py", folder / name
            if module.is_file():
                return [module]
            if package.is_dir() and folder.is_relative_to(self.root):
                found = sorted(package.rglob("*.py"))
                own = [path for path in found if not _is_alien(path.relative_to(self.root))]
                if own:
                    return own
        return []

    def stamp(self) -> Stamp:
        """What tells whether anything of it has been saved since."""
        return {path: mark for path in self.files() if (mark := _mark(path)) is not None}

    def freeze(self, folder: Path) -> tuple[Path, Stamp] | None:
        """Copy it there, as it was at one moment; None where it never holds still."""
        for _ in range(_TRIES):
            before = self.stamp()
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self._copy(list(before), folder)
            except OSError:
                continue  # replaced while it was copied
            if before == self.stamp() and self.file in before:
                return folder / self.file.relative_to(self.root), before
        return None

    def _copy(self, files: list[Path], folder: Path) -> None:
        for path in files:
            target = folder / path.relative_to(self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        for inside in {path.parent for path in files}:
            self._link_others(inside, folder / inside.relative_to(self.root))

    def _link_others(self, folder: Path, copy: Path) -> None:
        """What is no Python and lies beside it: data, libraries that were built."""
        for entry in os.scandir(folder):
            target = copy / entry.name
            if target.exists() or entry.name.endswith(".py") or entry.name in _NOT_OURS:
                continue
            if not (entry.is_dir() and any(Path(entry.path).glob("*.py"))):
                target.symlink_to(entry.path)


def broken(project: Project, copy: Path) -> Broken | None:
    """The first file of a copy that does not compile."""
    root = copy
    for _ in project.file.relative_to(project.root).parts:
        root = root.parent
    for path in sorted(root.rglob("*.py")):
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            name = str(path.relative_to(root))
            text = (error.text or "").strip()
            return Broken(name, error.lineno or 1, str(error.msg), text)
        except ValueError as error:
            return Broken(str(path.relative_to(root)), 1, str(error), "")
    return None


def changed(before: Stamp, after: Stamp) -> list[Path]:
    """The files that differ, by name."""
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_alien(path: Path) -> bool:
    return any(part in _NOT_OURS or part.startswith(".venv") for part in path.parts)


def _imported(path: Path) -> Iterator[str]:
    """Top-level names that a file imports; none of one that is no Python now."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]

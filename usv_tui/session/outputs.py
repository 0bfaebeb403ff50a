"""Files that a run or an export writes: whole or not at all, and never in the place of another.

An output may replace nothing but an earlier output of its own kind. A benchmark file, a session or
anything else of the user's stays, whatever name was typed.
"""

import io
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from usv_tui.errors import UsageError

_OURS = {
    "json": rb'\{"schema": \d',
    "json-lines": rb'\{"schema": \d+, "kind": "r',
    "csv": rb"name,round,t_s,",
    "table": rb"(?m)^benchmark +.*\bmedian\b",
    "markdown": rb"(?m)^\| benchmark \|.*\bmedian\b",
    "nvbench": rb'\{"meta": \{"argv": ',
    "pytest-benchmark": rb'\{"machine_info": ',
    "bencher": rb'\{\}|\{"[^\n]*?": \{"latency": ',
    "action": rb'\[\]|\[\{"name": ',
    "usv": rb'\{\s*"commit_hash": ',
    "parquet": rb"PAR1",
    "svg": rb"<\?xml [^\n]*>\n<!-- usv-tui ",
    "html": rb"<!doctype html>\n<!-- usv-tui ",
}
"""How each kind of output begins; a table may have a line above its heading."""
_HEAD_BYTES = 2000
_NAMES = {".py": "a Python file's", ".usv": "a session's"}


def check(path: Path, kind: str) -> None:
    """Raise unless an output of this kind (json, csv, table, svg …) may be written there.

    Raises:
        UsageError: no such folder, not writable, or it would replace something else.
    """
    target = Path(os.path.realpath(path))
    if _is_special(target):
        return
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no directory {path.parent}")
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"cannot write {path}", "give a path in a writable directory")
    if target.suffix in _NAMES:
        raise UsageError(f"cannot write {kind} to {path}: the name is {_NAMES[target.suffix]}")
    if target.exists() and not _is_ours(target, kind):
        raise UsageError(
            f"{path} exists and is no {kind} that usv-tui wrote: it is not replaced",
            "give another name, or remove it first",
        )


def check_apart(paths: dict[str, Path]) -> None:
    """Raise when two outputs (by option) would be one file.

    Raises:
        UsageError: naming both options.
    """
    seen: dict[str, str] = {}
    for option, path in paths.items():
        real = os.path.realpath(path)
        other = seen.setdefault(real, option)
        if other != option and not _is_special(Path(real)):
            raise UsageError(f"{other} and {option} both write {path}", "give one another name")


def _is_special(target: Path) -> bool:
    """A pipe or a device: written to as it is, never replaced."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _is_ours(target: Path, kind: str) -> bool:
    try:
        with target.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    pattern = _OURS[kind]
    found = re.search(pattern, head) if pattern.startswith(b"(?m)") else re.match(pattern, head)
    return not head or found is not None


def write_whole(path: Path, kind: str, write: Callable[[IO[str]], object]) -> None:
    """Write beside the final name and rename: a reader never sees half a file.

    Raises:
        UsageError: the path cannot be written, or holds something else.
    """

    def encoded(out: IO[bytes]) -> None:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        write(text)
        text.flush()
        text.detach()

    _write(path, kind, encoded)


def write_bytes(path: Path, kind: str, data: bytes) -> None:
    """`write_whole` for what is no text."""
    _write(path, kind, lambda out: out.write(data))


def _write(path: Path, kind: str, write: Callable[[IO[bytes]], object]) -> None:
    check(path, kind)
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        if _is_special(target):
            with target.open("wb") as out:
                write(out)
            return
        fd, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
        with os.fdopen(fd, "wb") as out:
            write(out)
        Path(temporary).chmod(_mode_of_a_new_file())
        Path(temporary).replace(target)
        temporary = ""
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _mode_of_a_new_file() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask

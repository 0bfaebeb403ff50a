"""What one version's rows return, for the checks of the other: in files, by the row's name.

Outside of all windows, once, after the first calls.
"""

import hashlib
import pickle
import sys
from pathlib import Path
from typing import Any

from usv_tui.diagnosis.difference import difference, hint


def leave(folder: str, name: str, result: Any) -> None:
    """Keep what a row returned. Raises whatever its type has against being written."""
    path = _path(folder, name)
    part = path.with_suffix(".part")
    torch = sys.modules.get("torch")
    with part.open("wb") as out:
        if torch is not None:
            torch.save(result, out)
        else:
            pickle.dump(result, out)
    part.rename(path)  # whole or not at all


def fetch(folder: str, name: str) -> list[Any]:
    """What the row of this name returned, in a list; an empty one where nothing was kept."""
    path = _path(folder, name)
    if not path.exists():
        return []
    torch = sys.modules.get("torch")
    with path.open("rb") as kept:
        if torch is not None and kept.read(2) == b"PK":
            kept.seek(0)
            return [torch.load(kept, weights_only=False)]
        kept.seek(0)
        return [pickle.load(kept)]  # noqa: S301  our own folder, which nobody else may write


def _path(folder: str, name: str) -> Path:
    return Path(folder) / hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]


def told_apart(error: BaseException, mine: Any, wanted: Any) -> BaseException:
    """A failed check, with how much the results differ and what may be behind it."""
    if not isinstance(error, AssertionError):
        return error
    words = difference(mine, wanted)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "check failed")
    told = AssertionError(f"{said}: {words} ({hint(mine, wanted)})" if words else said)
    told.__cause__ = error
    return told

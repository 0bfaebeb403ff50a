"""Edit, save, see: which version is to be measured next, from what is saved in a project.

Looked at some times a second, without waiting: a save is taken when the files have held still for a
moment, however they were written (in place, or as a new file under the old name).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from usv_tui.codes import Code
from usv_tui.model import Notice, WorkRequest
from usv_tui.records import AnyRecord, Fault, Noted, Progress, Version
from usv_tui.session.duet import Carrier, Head
from usv_tui.session.frozen import Broken, Project, Stamp, broken, changed
from usv_tui.timesource import NS_PER_S

_STILL_NS = NS_PER_S // 4
"""Editors write several times in a save: so long nothing must have changed."""
_LOOK_NS = NS_PER_S // 10


class Save(NamedTuple):
    """A version that was saved: frozen, or no Python."""

    number: int
    path: Path
    """Of the frozen benchmark file."""
    root: Path
    """Of the frozen copy."""
    files: tuple[str, ...]
    """What was saved."""
    broken: Broken | None = None


class Saves:
    """Watches a project; `look` tells of a save, once."""

    def __init__(self, project: Project, den: Path, now_ns: Callable[[], int]) -> None:
        self.project, self._den, self._now_ns = project, den, now_ns
        self._number = 0
        self._known: Stamp = {}
        self._seen: Stamp = {}
        self._seen_ns = self._looked_ns = 0
        self.first = self._freeze(())
        """As it is at the beginning."""

    def look(self) -> Save | None:
        """The newest save, when there is one that nobody was told of and that holds still."""
        now_ns = self._now_ns()
        if now_ns - self._looked_ns < _LOOK_NS:
            return None
        self._looked_ns = now_ns
        seen = self.project.stamp()
        if seen != self._seen:
            self._seen, self._seen_ns = seen, now_ns
        if self.project.file not in seen or not changed(self._known, seen):
            return None
        if now_ns - self._seen_ns < _STILL_NS:
            return None
        root = self.project.root
        names = [str(path.relative_to(root)) for path in changed(self._known, seen)]
        return self._freeze(tuple(names))

    def _freeze(self, files: tuple[str, ...]) -> Save | None:
        root = self._den / f"save-{self._number}"
        made = self.project.freeze(root)
        if made is None:
            return None
        path, self._known = made
        self._seen = dict(self._known)
        save = Save(self._number, path, root, files, broken(self.project, path))
        self._number += 1
        return save


class Scouted:
    """Saved versions that a scout has imported and called once, while the old one is measured.

    So what cannot be imported costs nothing but a line in the log, and what compilers keep on disk
    is there when the version joins.
    """

    def __init__(
        self,
        saves: Saves,
        request: WorkRequest,
        make_scout: Callable[[WorkRequest], Carrier] | None,
        now_ns: Callable[[], int],
    ) -> None:
        """`request` is that of any version but for the path; without `make_scout` nobody scouts."""
        self._saves, self._request, self._make = saves, request, make_scout
        self._now_ns = now_ns
        self._scout: Carrier | None = None
        self._began_ns = 0
        self._save: Save | None = None
        self.frozen: dict[str, Save] = {}
        """Every version that there was, by its file."""

    def look(self) -> tuple[list[AnyRecord], Head | None]:
        """See `SavedVersions`."""
        records: list[AnyRecord] = []
        save = self._saves.look()
        if save is not None:
            records.append(self._said(save))
            if save.broken is None:
                self._send(save)
        if self._save is None:
            return records, None
        why = "" if self._scout is None else self._heard(self._scout)
        if why is None:
            return records, None
        save, self._save = self._save, None
        self._dismiss()
        if why:
            records.append(self._note(Code.VERSION_REFUSED, save, "error", why=why))
            return records, None
        return records, self._head(save)

    def _said(self, save: Save) -> AnyRecord:
        if save.broken is None:
            return self._note(Code.VERSION_SAVED, save, "info", files=", ".join(save.files))
        b = save.broken
        why = f"{b.file}:{b.line}: {b.message}" + (f": {b.text}" if b.text else "")
        return self._note(Code.VERSION_REFUSED, save, "error", why=why)

    def _note(self, code: Code, save: Save, level: str, **evidence: Any) -> AnyRecord:
        evidence = {"number": save.number, **evidence}
        return Noted(Notice(code=code, at_ns=self._now_ns(), level=level, evidence=evidence))

    def _send(self, save: Save) -> None:
        """A newer save takes the place of one that is being tried."""
        self._dismiss()
        self._save, self._began_ns = save, self._now_ns()
        self.frozen[str(save.path)] = save
        if self._make is not None:
            config = msgspec.structs.replace(
                self._request.config, max_time_s=1e-3, warmup_max_s=0.0, iters=None, realloc=0
            )
            path = str(save.path)
            asked = msgspec.structs.replace(self._request, path=path, config=config)
            self._scout = self._make(asked)
            self._scout.start()

    def _heard(self, scout: Carrier) -> str | None:
        """Why the version cannot be measured; empty when it can; None: not known yet."""
        loss = scout.loss
        for record in scout.drain():
            if isinstance(record, Fault):
                return record.message
            if isinstance(record, Progress) and record.is_end:
                return ""
        if loss is not None:
            # A row that ends its process is found, and named, when the version is measured.
            return "" if loss.bench is not None else loss.what
        if self._now_ns() - self._began_ns > self._request.config.row_timeout_s * NS_PER_S:
            return f"it was not imported within {self._request.config.row_timeout_s:g} s"
        return None

    def _head(self, save: Save) -> Head:
        what = f"saved {', '.join(save.files)}"
        version = Version(self._now_ns(), save.number + 1, f"save {save.number}", what)
        return Head(version, msgspec.structs.replace(self._request, path=str(save.path)))

    def _dismiss(self) -> None:
        if self._scout is not None:
            self._scout.close(0.2)
            self._scout = None

    def close(self) -> None:
        """See `SavedVersions`."""
        self._save = None
        self._dismiss()

"""Putting clocks back: what was written down before a lock is carried out, whoever is left.

Shared by the lease and the guardian. Standard library only at import time, and a vendor's door is
loaded when a device of it is prepared, because the guardian must be ready within a fraction of a
second and must not drag torch or Textual along.
"""

import select
from collections.abc import Callable, Sequence
from typing import Any

from usv_tui.errors import ClockError
from usv_tui.vendor.kinds import (
    BACKENDS,
    PCI_PATTERN,
    UUID_PATTERN,
    Access,
    Vendor,
    VendorError,
    load,
)

_ATTEMPTS = 3
_RETRY_S = 0.2


def door(kind: str) -> Any:
    """The module that sets the clocks of this kind of device; None for a kind that has none."""
    backend = BACKENDS.get(Vendor(kind)) if kind in set(Vendor) else None
    return load(backend.door) if backend is not None else None


class Restorer:
    """Carries out an undo that was written down before. Knows a closed set of steps.

    Actions come from a file, so everything in them is checked before it is used.
    """

    def __init__(
        self,
        kind: str,
        uuid: str,
        pci: str | None,
        actions: Sequence[Sequence[str]],
        access: Access,
    ) -> None:
        self.kind = kind
        self.uuid = uuid
        self.pci = pci
        self.actions = [[str(word) for word in action] for action in actions]
        found = door(kind)
        if found is None or not UUID_PATTERN.fullmatch(uuid) or not self.actions:
            raise ClockError(f"cannot undo: {kind!r} device {uuid!r} is not understood")
        for action in self.actions:
            if not found.Undoer.knows(action):
                raise ClockError(f"cannot undo: step {action!r} is not understood")
        if found.Undoer.NEEDS_PCI and not (pci and PCI_PATTERN.fullmatch(pci)):
            raise ClockError(f"cannot undo: {pci!r} is not a PCI address")
        self._undoer = found.Undoer(uuid, pci, access)

    def prepare(self) -> None:
        """Find the device and what the undo needs, before anything is locked.

        Raises:
            VendorError: it could not be undone from here.
        """
        self._undoer.prepare()

    def run(self) -> None:
        """Put the clocks back; passing trouble is tried three times.

        Raises:
            ClockError: it could not be done; the message has the command to type.
        """
        failures = [
            f"{action[0]}: {error}"
            for action in self.actions
            if (error := self._persist(self._undoer.step(action))) is not None
        ]
        if failures:
            raise ClockError(
                f"clocks of {self.uuid} could not be put back: {'; '.join(failures)}",
                f"type: {self.command()}",
            )

    def _persist(self, step: Callable[[], None]) -> VendorError | None:
        failure: VendorError | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                select.select([], [], [], _RETRY_S)
            try:
                step()
            except VendorError as error:
                failure = error
                if error.code in self._undoer.FINAL:
                    break
            else:
                return None
        return failure

    def command(self) -> str:
        """What somebody with root rights can type to the same effect."""
        return undo_command(self.kind, self.uuid, self.pci, self.actions)

    def close(self) -> None:
        """Release the vendor library."""
        self._undoer.close()


def undo_command(kind: str, uuid: str, pci: str | None, actions: Sequence[Sequence[str]]) -> str:
    """The shell line that does what `actions` say."""
    return str(door(kind).undo_command(uuid, pci, actions))

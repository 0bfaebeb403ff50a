"""What of a lock outlives its process: the device's locked file, the journal, the guardian."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from usv_tui.clocks.guardian import Guardian
from usv_tui.clocks.lease_files import Entry, LeaseDirectory
from usv_tui.errors import ClockRefused
from usv_tui.vendor.kinds import Access

Arm = Callable[[Mapping[str, Any], Access, int, int, str], Guardian]
"""`guardian.arm`, or what stands in for it."""


class Paper:
    """What outlives the process for one lease: the locked file, the journal, the guardian."""

    def __init__(
        self,
        directory: LeaseDirectory,
        lock_fd: int,
        entry: Entry,
        kept: Entry | None,
        access: Access,
        arm_: Arm,
    ) -> None:
        """Write the entry and arm the guardian; `kept` is the entry that it takes the place of."""
        self._directory = directory
        self._lock_fd = lock_fd
        self._entry = entry
        self._kept = kept
        self._access = access
        self._arm = arm_
        directory.write(entry)
        try:
            self.guard = self._armed()
        except BaseException:
            with contextlib.suppress(ClockRefused):  # nothing was locked: the refusal is the news
                self.cancel()
            raise

    def _armed(self) -> Guardian:
        undo = msgspec.to_builtins(self._entry.undo)
        name = self._directory.entry_name(self._entry.uuid)
        return self._arm(undo, self._access, self._lock_fd, self._directory.fd, name)

    def rearm(self) -> None:
        """Another guardian in place of one that died.

        Raises:
            ClockRefused: none could be started.
        """
        self.guard.leave()
        self.guard = self._armed()

    def cancel(self) -> None:
        """Nothing was locked: the record is what it was before."""
        if self._kept is None:
            self.forget()
        else:
            self.rewrite(self._kept)

    def note(self, **changes: Any) -> None:
        """Change the journal entry."""
        self.rewrite(msgspec.structs.replace(self._entry, **changes))

    def rewrite(self, entry: Entry) -> None:
        """Put another entry in its place."""
        self._entry = entry
        self._directory.write(entry)

    def forget(self) -> None:
        """Remove the journal entry."""
        self._directory.remove(self._entry.uuid)

    def close(self) -> None:
        """Let the device's file and the directory go.

        A guardian that is still at work keeps the device: nobody may lock it before it is done.
        """
        if not self.guard.is_alive():
            # A child that was forked meanwhile has the same lock open: let it go for all.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        os.close(self._lock_fd)
        self._directory.close()

"""What a screen shows, and what it may ask of it: a measurement in progress or a saved one."""

from abc import ABC, abstractmethod

from usv_tui.gate import Gate
from usv_tui.records import Command, Ghosts
from usv_tui.session.desk import ClockDesk
from usv_tui.session.faults import Faults
from usv_tui.session.snapshot import Snapshot
from usv_tui.session.store import Store


class ShownSession(ABC):
    """A session under a screen. All methods belong to the screen's thread."""

    store: Store
    gate: Gate
    faults: Faults
    desk: ClockDesk | None = None
    why_fixed = ""
    """Why nothing here can be measured, locked or read any more; empty while it can."""

    @abstractmethod
    def pump(self) -> bool:
        """Take in everything new; True when there was something."""

    def snapshot(self, now_ns: int) -> Snapshot:
        """All that is shown, at a moment of the session's clock."""
        return self.store.snapshot(now_ns)

    def at_ns(self, now_ns: int) -> int:
        """The moment that is shown when the screen's clock says `now_ns`."""
        return now_ns

    @abstractmethod
    def toggle_pause(self) -> bool:
        """Pause or go on; True when it is paused now."""

    @abstractmethod
    def set_baseline(self, bench: int | None) -> None:
        """Compare all rows with this one; None: with their group's own."""

    @abstractmethod
    def show_ghosts(self, ghosts: Ghosts) -> None:
        """Show another session's values beside."""

    @abstractmethod
    def set_window(self, samples: int) -> None:
        """Size of the rolling window."""

    @abstractmethod
    def mark(self, label: str) -> None:
        """Begin a new epoch."""

    @abstractmethod
    def command(self, command: Command) -> None:
        """Pass a command on to the worker, where there is one."""

    def toggle_telemetry(self) -> bool:
        """Stop or resume polling; True when it is on now."""
        return False

    @property
    def can_renew(self) -> bool:
        """True when `renew` would start a fresh worker."""
        return False

    def renew(self) -> str:
        """Try lost rows again in a fresh worker; returns why not, else an empty string."""
        return self.why_fixed

    def seek(self, action: str) -> str:
        """Move in a saved session (see `keys.REPLAY`); what to say of it."""
        return f"no {action}: this is measured now"

"""How far a run is, and how it ended, as its records tell it."""

from usv_tui.model import RunPhase
from usv_tui.records import End, Progress


class Course:
    """From the first phase to the last word."""

    def __init__(self) -> None:
        self.phase: str = RunPhase.STARTING
        self.detail = ""
        """More of what the worker does: the file that it imports."""
        self.last_phase: str = RunPhase.STARTING
        """What it was at before it ended."""
        self.end: End | None = None
        self._has_script = False
        self.script_exit: int | None = None
        """How a script ended that was run as it is."""
        self.has_failed = False
        """A row or the device failed."""
        self.fatal = self.fault = self.distortion = ""
        self.headway = ""
        """How near the wanted precision is."""
        self.is_whole = True
        """False for a file that lacks a part of its session, or holds more than one."""
        self.is_written = False
        """The run that writes these records goes on, in another process."""

    def on_progress(self, record: Progress) -> None:
        """The worker's next phase."""
        self.phase, self.detail = record.phase, record.detail
        self._has_script = self._has_script or record.phase == RunPhase.SCRIPT
        self.has_failed = self.has_failed or record.is_failure
        if record.phase != RunPhase.ENDED:
            self.last_phase = record.phase

    def is_within_script(self, record: Progress) -> bool:
        """A script warms up and measures group after group: that is no news but the first time."""
        is_script = self._has_script or record.phase == RunPhase.SCRIPT
        return is_script and not record.detail and record.phase != RunPhase.ENDED

    @property
    def has_ended(self) -> bool:
        """True after the worker's last record, or the session's."""
        return self.end is not None or self.phase == RunPhase.ENDED

    @property
    def is_complete(self) -> bool:
        """It came to its own end, and all of it is here."""
        return self.end is not None and self.end.complete and self.is_whole

    @property
    def stop_reason(self) -> str:
        """Why it ended."""
        if self.end is not None:
            return self.end.reason
        if self.phase == RunPhase.ENDED:
            return self.detail
        return "it is still being written" if self.is_written else ""

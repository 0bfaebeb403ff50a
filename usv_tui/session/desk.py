"""Locking during a session: asked for by a key or a flag, done off the screen's thread.

Making a lock takes up to a few seconds (a guardian is started first), so each wish is a job in a
thread of its own, one at a time; what came of it arrives as records like everything else.
"""

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from usv_tui.device.base import ClockController
from usv_tui.device.clock_choice import lock_command, parse_target
from usv_tui.device.hold import foreign_lock_hint, is_loaded
from usv_tui.device.lease import ClockLease, acquire
from usv_tui.device.lease_repair import known_state, restore_all, unlock
from usv_tui.errors import ClockError, UsvError
from usv_tui.model import Advice, ClockHold, ClockState, DeviceInfo, Notice, Reading
from usv_tui.records import AnyRecord, Clocks, Command, Noted
from usv_tui.timesource import MonotonicTime, TimeSource

MakeController = Callable[[DeviceInfo], ClockController]
_OBSERVED = 200
_AGAIN_NS = 30_000_000_000
"""A second wish for the same clock within this time goes ahead in spite of concerns."""
_HINT_EVERY_NS = 2_000_000_000
_HINT_SPAN_NS = 10_000_000_000
"""A clock must stand still for so long before it is called somebody else's lock."""


class ClockDesk:
    """Owns at most one lease. All methods but the jobs belong to the front end's thread."""

    def __init__(
        self,
        make_controller: MakeController,
        *,
        wanted: str = "",
        keep: bool = False,
        force: bool = False,
        time_source: TimeSource | None = None,
    ) -> None:
        """Get ready.

        Args:
            make_controller: clock control of a device; raises ClockRefused where there is none.
            wanted: what to lock at without being asked again: MHz, `base` or `advice`.
            keep: leave the lock in place at the end.
            force: lock in spite of a suspected foreign lock or other processes.
            time_source: the session's clock.
        """
        self.failure = ""
        """Why the clocks could not be given back; empty when they were."""
        self._make = make_controller
        self._wanted = wanted
        self._keep = keep
        self._force = force
        self._time = time_source or MonotonicTime()
        self._out: deque[AnyRecord] = deque()
        self._commands: deque[Command] = deque()
        self._job: threading.Thread | None = None
        self._controller: ClockController | None = None
        self._info: DeviceInfo | None = None
        self._lease: ClockLease | None = None
        self._state = ClockState()
        self._observed: deque[Reading] = deque(maxlen=_OBSERVED)
        self._free: ClockState | None = None
        """What was known before readings hinted at a foreign lock; None while they do not."""
        self._hinted_ns = 0
        self._refused: tuple[int, int] | None = None
        self._advice = Advice()

    # -- the session's side

    def drain(self) -> tuple[list[AnyRecord], list[Command]]:
        """New records for the session and commands for the worker."""
        records = [self._out.popleft() for _ in range(len(self._out))]
        commands = [self._commands.popleft() for _ in range(len(self._commands))]
        return records, commands

    @property
    def is_busy(self) -> bool:
        """True while a job runs."""
        return self._job is not None and self._job.is_alive()

    def on_device(self, info: DeviceInfo) -> None:
        """The watched device is known: say what is known of its clocks, lock when asked to."""
        if self._info is not None:
            return
        self._info = info
        self._start(lambda: self._look(info))

    def begin(self) -> None:
        """At the start of every session: give back what a run that died left locked."""
        self._start(self._repair)

    def on_reading(self, reading: Reading) -> None:
        """Follow our lock, or keep what may show somebody else's."""
        lease = self._lease
        if lease is None:
            self._observed.append(reading)
            if not self.is_busy and reading.at_ns - self._hinted_ns >= _HINT_EVERY_NS:
                self._hinted_ns = reading.at_ns
                self._look_for_foreign(reading.at_ns)
        elif not self.is_busy:
            self._tell(lease.feed(reading))

    def _look_for_foreign(self, now_ns: int) -> None:
        """Say so when the clock stands like a locked one, and take it back when it moves again."""
        state, info = self._state, self._info
        is_open = state.hold in (ClockHold.UNKNOWN, ClockHold.FREE) and state.level is None
        if info is None or not (is_open or self._free is not None):
            return
        recent = [
            reading
            for reading in self._observed
            if reading.at_ns >= now_ns - _HINT_SPAN_NS and reading.reasons is not None
        ]
        loaded = [reading for reading in recent if is_loaded(reading)]
        if not loaded:
            return  # an idle clock tells nothing, neither for nor against
        hint = ""
        if loaded[-1].at_ns - loaded[0].at_ns >= _HINT_SPAN_NS - _HINT_EVERY_NS:
            hint = foreign_lock_hint(loaded, state.supported_mhz or info.supported_sm_mhz)
        if hint:
            self._free = self._free or state
            self._tell(msgspec.structs.replace(state, hold=ClockHold.FOREIGN, evidence=hint))
        elif self._free is not None and len({reading.sm_mhz for reading in loaded}) > 1:
            before, self._free = self._free, None
            self._tell(before)

    def on_advice(self, advice: Advice) -> None:
        """Lock at the advised clock when that was asked for, once."""
        self._advice = advice
        if self._wanted == "advice" and advice.lock_mhz is not None and not self.is_busy:
            self._wanted = ""
            self.lock(advice.lock_mhz)

    def close(self, timeout_s: float = 1.0) -> None:
        """Give the clocks back. `failure` says when that was not possible.

        A job that hangs in the driver is left behind: when this process ends, the guardian undoes
        whatever it still does.
        """
        job = self._job
        if job is not None:
            job.join(timeout_s)
        if self._wanted == "advice":
            why = "no clock was advised while this run lasted"
            self._say("lock refused", why)
            if self._lease is None:
                self._tell(msgspec.structs.replace(self._state, evidence=f"refused: {why}"))
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            lease.release()
        except ClockError as error:
            self.failure = str(error)
        self._tell(lease.state)

    # -- the user's side

    def lock(self, sm_mhz: int) -> None:
        """Ask for a lock; what came of it arrives as a record.

        Raises:
            ClockError: an earlier wish is still being seen to, or there is nothing to lock.
        """
        controller = self._controller
        if self.is_busy:
            raise ClockError("still busy with the last wish")
        if controller is None:
            raise ClockError(self._state.reason or "there is no device whose clocks can be set")
        now_ns = self._time.now_ns()
        refused, self._refused = self._refused, None
        insists = refused is not None and refused[0] == sm_mhz and now_ns - refused[1] < _AGAIN_NS
        self._start(lambda: self._lock(controller, sm_mhz, force=self._force or insists))

    def unlock(self) -> None:
        """Give the clocks back.

        Raises:
            ClockError: an earlier wish is still being seen to.
        """
        if self.is_busy:
            raise ClockError("still busy with the last wish")
        self._start(self._unlock)

    def command(self, sm_mhz: int) -> str:
        """What somebody with the rights would type; empty when there is nothing."""
        return "" if self._info is None else lock_command(self._info, sm_mhz)

    # -- jobs

    def _start(self, job: Callable[[], None]) -> None:
        before = self._job

        def run() -> None:
            if before is not None:
                before.join()
            job()

        self._job = threading.Thread(target=run, name="usv-clocks", daemon=True)
        self._job.start()

    def _repair(self) -> None:
        try:
            results = restore_all()
        except ClockError as error:
            self._say("lock note", str(error), "warn")
            return
        for result in results:
            self._say("lock note", result.message, "error" if result.is_failure else "warn")

    def _look(self, info: DeviceInfo) -> None:
        try:
            controller = self._make(info)
            self._tell(known_state(controller))
        except UsvError as error:
            evidence = f"not locked: {error}" if self._wanted else ""
            self._tell(ClockState(reason=str(error), evidence=evidence))
            if self._wanted:
                self._say("lock refused", str(error))
            return
        self._controller = controller
        wanted = self._wanted
        if not wanted or wanted == "advice":
            return
        self._wanted = ""
        try:
            choice = parse_target(wanted, info, list(controller.supported_mhz()))
        except UsvError as error:
            self._say("lock refused", str(error))
            self._tell(msgspec.structs.replace(self._state, evidence=f"refused: {error}"))
            return
        self._lock(controller, choice.mhz, force=self._force)

    def _lock(self, controller: ClockController, sm_mhz: int, *, force: bool) -> None:
        try:
            if self._lease is not None:
                self._lease.change(sm_mhz)
                lease = self._lease
            else:
                lease = acquire(
                    controller,
                    sm_mhz,
                    force=force,
                    keep=self._keep,
                    observed=tuple(self._observed),
                )
        except ClockError as error:
            self._on_refusal(error, sm_mhz)
            return
        self._lease = lease
        self._free = None
        for note in lease.notes:
            self._say("lock note", note, level="info")
        lease.notes.clear()
        self._tell(lease.state)
        self._commands.append(Command("ramp", f"locked at {lease.sm_mhz} MHz"))

    def _on_refusal(self, error: ClockError, sm_mhz: int) -> None:
        text = error.message
        if "--force" in error.hint:
            self._refused = (sm_mhz, self._time.now_ns())
            text += " (ask again to lock in spite of that)"
        elif error.hint:
            text += f" ({error.hint})"
        command = self.command(sm_mhz)
        if command and command not in text:
            text += f"; with the rights: {command}"
        self._say("lock refused", text)
        self._tell(msgspec.structs.replace(self._state, evidence=f"refused: {text}"))

    def _unlock(self) -> None:
        lease, self._lease = self._lease, None
        controller = self._controller
        try:
            if lease is not None:
                lease.keep = False
                lease.release()
            elif self.failure and controller is not None:
                self._say("lock note", unlock(controller), level="info")
            else:
                self._say("lock note", "there is no lock of ours to undo", level="info")
                return
        except ClockError as error:
            self.failure = str(error)
            self._say("unlock failed", str(error), level="error")
            return
        self.failure = ""
        if lease is not None:
            self._tell(lease.state)
        self._observed.clear()
        self._commands.append(Command("ramp", "unlocked"))

    # -- records

    def _tell(self, state: ClockState) -> None:
        before, self._state = self._state, state
        was = (before.hold, before.locked_mhz, before.can_lock, before.reason)
        now = (state.hold, state.locked_mhz, state.can_lock, state.reason)
        if now != was or state.evidence.startswith("refused"):
            self._out.append(Clocks(self._time.now_ns(), state))

    def _say(self, code: str, text: str, level: str = "warn") -> None:
        notice = Notice(
            code=code, at_ns=self._time.now_ns(), level=level, evidence={"reason": text}
        )
        self._out.append(Noted(notice))

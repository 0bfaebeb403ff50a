"""Locking during a session: asked for by a key or a flag, done off the screen's thread.

Making a lock takes up to a few seconds (a guardian is started first), so each wish is a job in a
thread of its own, one at a time; what came of it arrives as records like everything else.
"""

import statistics
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from usv_tui.clocks.lease import ClockLease, acquire
from usv_tui.clocks.lease_repair import known_state, restore_all, unlock
from usv_tui.clocks.target import NEEDS_RIGHTS, lock_command, parse_target
from usv_tui.clocks.verify import foreign_lock_hint, is_loaded
from usv_tui.codes import Code
from usv_tui.errors import ClockError, ClockRefused, UsvError
from usv_tui.model import LOCKED_AT, Advice, ClockHold, ClockState, DeviceInfo, Notice, Reading
from usv_tui.records import AnyRecord, Clocks, Command, Noted
from usv_tui.report.wording.advice import advice_line, is_idle
from usv_tui.seams import ClockController
from usv_tui.session.advised import AdvisedLock
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource

MakeController = Callable[[DeviceInfo], ClockController]
GIVE_BACK_S = 5.0
"""How long the end of a run waits for the driver; then the guardian has the clocks."""
_SLICE_S = 0.05
_SLICES_UNTOLD = 20
_MOST_GUARDIANS = 3
"""So many guardians are started anew for one lock, and no more."""
_OBSERVED = 200
_AGAIN_S = 30
"""A second wish for the same clock within this time goes ahead in spite of concerns."""
_NEWS = ("hold", "locked_mhz", "can_lock", "reason", "is_ignored")
"""What is worth a record of a state of the clocks."""
_FEWEST = 10
"""Readings under load that tell the free clock."""
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
        self.unmet = wanted
        """What was to be locked from the start and has not been; empty once it was."""
        self.on_wait: Callable[[], object] = lambda: None
        """Called when the end has waited for the driver for a second."""
        self._make = make_controller
        self._wanted = wanted
        self._keep = keep
        self._force = force
        self._time = time_source or MonotonicTime()
        self._out: deque[AnyRecord] = deque()
        self._commands: deque[Command] = deque()
        self._job: threading.Thread | None = None
        self._doing = ""
        """What the job is at: looking, repairing, locking, giving back; empty when it is idle."""
        self._guardians = 0
        """How many took the place of one that died."""
        self._is_watched = True
        """False once nothing more can be done for a guardian."""
        self._controller: ClockController | None = None
        self._info: DeviceInfo | None = None
        self._lease: ClockLease | None = None
        self._state = ClockState()
        self._observed: deque[Reading] = deque(maxlen=_OBSERVED)
        self._free: ClockState | None = None
        """What was known before readings hinted at a foreign lock; None while they do not."""
        self._hinted_ns = 0
        self._refused: tuple[int, int] | None = None
        """The clock for which consent was asked, and when."""
        self._advised = AdvisedLock()
        self._has_told_vain = False
        """It was said that an advised lock costs more than it brings."""
        self.is_starved = False
        """The rows leave the device waiting: a low clock is for want of work, nobody's lock."""

    # -- the session's side

    def drain(self) -> tuple[list[AnyRecord], list[Command]]:
        """New records for the session and commands for the worker."""
        self._look_at_guardian()
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
        self._start("looking", lambda: self._look(info))

    def begin(self) -> None:
        """At the start of every session: give back what a run that died left locked."""
        self._start("repairing", self._repair)

    def on_notice(self, notice: Notice) -> None:
        """Without telemetry nothing tells which device's clocks are meant."""
        if notice.code == Code.TELEMETRY_OFF:
            self._give_up(str(notice.evidence.get("reason", "")))

    def _give_up(self, why: str) -> None:
        if self._wanted and self._info is None:
            self._wanted = ""
            self._refuse(f"no device to lock ({why})")

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
        if self.is_starved:
            self._no_foreign_lock()
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
            self._no_foreign_lock()

    def _no_foreign_lock(self) -> None:
        if self._free is not None:
            before, self._free = self._free, None
            self._tell(before)

    def on_advice(self, advice: Advice) -> None:
        """Lock at the advised clock when that was asked for, once, and when it is sure."""
        if self._wanted != "advice" or self.is_busy or self._controller is None:
            return
        mhz = self._advised.look(advice, self._observed, self._time.now_ns())
        if is_idle(advice) and not self._has_told_vain:
            self._has_told_vain = True
            self._say(Code.LOCK_NOTE, f"not locked: {self._advised.why}", "info")
        if mhz is not None:
            self._wanted = ""
            self._say(Code.LOCK_NOTE, f"locking as advised: {advice_line(advice)}", "info")
            self.lock(mhz)

    def close(self, timeout_s: float = GIVE_BACK_S, hurry: threading.Event | None = None) -> bool:
        """Give the clocks back; `failure` says when that was not possible.

        Never longer than that, and not once `hurry` is set: a driver that hangs is left to the
        guardian, and the job to the end of this process. False when a job was left behind.
        """
        self._is_watched = False  # from here on nobody needs another guardian
        if self._wanted == "advice":
            self._say(Code.NOT_ADVISED, self._advised.why)
            self._leave_unlocked(self._advised.why)
        self._give_up("it never became known")
        if self._lease is not None or self.failure or self.is_busy:
            self._start("giving back", self._end)
        if self._job is None or self._has_ended(self._job, timeout_s, hurry):
            return True
        self._abandon()
        return False

    def _has_ended(
        self, job: threading.Thread, timeout_s: float, hurry: threading.Event | None
    ) -> bool:
        """Wait for a job, in slices: between them a signal is heard."""
        for slice_ in range(round(timeout_s / _SLICE_S)):
            if slice_ == _SLICES_UNTOLD:
                self.on_wait()
            job.join(_SLICE_S)
            if not job.is_alive() or (hurry is not None and hurry.is_set()):
                break
        return not job.is_alive()

    def _abandon(self) -> None:
        """The driver hangs: say in which call, and who goes on."""
        silent = f"the driver does not answer ({self._doing})"
        lease = self._lease
        if lease is not None:
            lease.abandon(silent)
            state = lease.state
        elif self._doing in ("locking", "giving back"):
            why = f"{silent}; should a lock come of it, the guardian undoes it"
            state = msgspec.structs.replace(self._state, hold=ClockHold.STUCK, evidence=why)
        else:
            self._say(Code.LOCK_NOTE, silent)
            return
        self._stuck(state)

    def _stuck(self, state: ClockState) -> None:
        self.failure = state.evidence
        self._say(Code.UNLOCK_FAILED, state.evidence, "error")
        self._tell(state)

    def _refuse(self, why: str) -> None:
        """A wish that came to nothing; where a lock is in force, or stuck, that stays the news."""
        self._say(Code.LOCK_REFUSED, why)
        self._leave_unlocked(f"refused: {why}")

    def _leave_unlocked(self, evidence: str) -> None:
        if self._lease is None and self._state.hold is not ClockHold.STUCK:
            self._state = msgspec.structs.replace(self._state, evidence=evidence, is_unmet=True)
            self._out.append(Clocks(self._time.now_ns(), self._state))

    # -- the guardian

    def _look_at_guardian(self) -> None:
        """A guardian that was killed is missed at once, and another one takes its place."""
        lease = self._lease
        if lease is None or self.is_busy or not self._is_watched or lease.is_guarded:
            return
        self._say(Code.GUARDIAN_DIED, f"at {lease.sm_mhz} MHz")
        self._start("arming", lambda: self._rearm(lease))

    def _rearm(self, lease: ClockLease) -> None:
        try:
            if self._guardians >= _MOST_GUARDIANS:
                raise ClockRefused(f"{self._guardians + 1} have died")
            lease.rearm()
        except ClockError as error:
            self._is_watched = False
            self._say(Code.NO_GUARDIAN, str(error), "error")
            return
        self._guardians += 1
        self._say(Code.GUARDIAN_RENEWED, "", "info")
        self._state = lease.state
        self._out.append(Clocks(self._time.now_ns(), lease.state))

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
        asked, self._refused = self._refused, None
        stale = "" if asked is None else self._why_stale(asked, sm_mhz)
        force = self._force or (asked is not None and not stale)
        self._start("locking", lambda: self._lock(controller, sm_mhz, force=force, stale=stale))

    def _why_stale(self, asked: tuple[int, int], sm_mhz: int) -> str:
        """Why a second wish is not the consent that was asked for; empty when it is."""
        mhz, at_ns = asked
        if mhz != sm_mhz:
            return f"that consent would be to {mhz} MHz, not to {sm_mhz} MHz"
        waited_s = (self._time.now_ns() - at_ns) / NS_PER_S
        return f"asked {waited_s:.0f} s ago, which is too long" if waited_s > _AGAIN_S else ""

    def unlock(self) -> None:
        """Give the clocks back.

        Raises:
            ClockError: an earlier wish is still being seen to.
        """
        if self.is_busy:
            raise ClockError("still busy with the last wish")
        self._start("giving back", self._unlock)

    def command(self, sm_mhz: int) -> str:
        """What to type where only rights are missing; empty where that would not help."""
        if self._info is None or NEEDS_RIGHTS not in self._state.reason:
            return ""
        return lock_command(self._info, sm_mhz)

    # -- jobs

    def _start(self, doing: str, job: Callable[[], None]) -> None:
        before = self._job

        def run() -> None:
            if before is not None:
                before.join()
            self._doing = doing
            try:
                job()
            except Exception as error:  # noqa: BLE001  a vendor library or a disk may raise anything
                self._say(Code.CLOCKS, f"{doing}: {type(error).__name__}: {error}", "error")
            self._doing = ""

        self._job = threading.Thread(target=run, name="usv-clocks", daemon=True)
        self._job.start()

    def _repair(self) -> None:
        try:
            results = restore_all()
        except ClockError as error:
            self._say(Code.LOCK_NOTE, str(error), "warn")
            return
        for result in results:
            self._say(Code.LOCK_NOTE, result.message, "error" if result.is_failure else "warn")

    def _look(self, info: DeviceInfo) -> None:
        try:
            controller = self._make(info)
            self._tell(known_state(controller))
        except UsvError as error:
            self._tell(ClockState(reason=str(error)))
            if self._wanted:
                self._wanted = ""
                self._refuse(str(error))
            return
        self._controller = controller
        wanted = self._wanted
        if not wanted or wanted == "advice":
            return
        self._wanted = ""
        try:
            choice = parse_target(wanted, info, list(controller.supported_mhz()))
        except UsvError as error:
            self._refuse(str(error))
            return
        self._doing = "locking"
        self._lock(controller, choice.mhz, force=self._force)

    def _lock(
        self, controller: ClockController, sm_mhz: int, *, force: bool, stale: str = ""
    ) -> None:
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
                    foreign=self._state.evidence if self._free is not None else "",
                )
        except ClockError as error:
            self._on_refusal(error, sm_mhz, stale)
            return
        if lease is not self._lease:
            if not lease.replaces_other:
                lease.free_mhz = self._free_mhz()
            self._lease, self._guardians, self._is_watched = lease, 0, True
        self._free = None
        self.failure = self.unmet = ""
        self._tell_notes(lease)
        self._tell(lease.state)
        self._commands.append(Command("ramp", f"{LOCKED_AT}{lease.sm_mhz} MHz"))

    def _free_mhz(self) -> float | None:
        """The clock without a lock, in the middle of the readings under load."""
        loaded = [r.sm_mhz for r in self._observed if r.sm_mhz is not None and is_loaded(r)]
        return statistics.median(loaded) if len(loaded) >= _FEWEST else None

    def _on_refusal(self, error: ClockError, sm_mhz: int, stale: str = "") -> None:
        text = error.message.removeprefix("not locked: ")
        if "--force" in error.hint:
            self._refused = (sm_mhz, self._time.now_ns())
            again = f"{stale}: ask once more" if stale else "ask again"
            text += f" ({again} within {_AGAIN_S} s to lock in spite of that)"
        elif error.hint:
            text += f" ({error.hint})"
        self._refuse(text)

    def _unlock(self) -> None:
        if self._lease is None and not self.failure:
            self._say(Code.LOCK_NOTE, "there is no lock of ours to undo", level="info")
            return
        if self._lease is not None:
            self._lease.keep = False
        self._give_back()
        if not self.failure:
            self._observed.clear()
            self._commands.append(Command("ramp", "unlocked"))

    def _end(self) -> None:
        """The last chance: give back what is locked, or was not given back before."""
        if self._lease is not None or self.failure:
            self._give_back()

    def _give_back(self) -> None:
        """Undo the lock, or try once more where that failed before; tell what came of it."""
        lease, controller = self._lease, self._controller
        if lease is not None:
            self._release(lease)
        elif controller is not None:
            self._try_again(controller)

    def _release(self, lease: ClockLease) -> None:
        trouble = ""
        try:
            lease.release()
        except Exception as error:  # noqa: BLE001  whatever it was, the lease knows the outcome
            trouble = str(error)
        self._tell_notes(lease, "warn")
        self._lease = None
        if lease.state.hold is ClockHold.STUCK:
            self._stuck(lease.state)
            return
        self.failure = ""
        if trouble:
            self._say(Code.LOCK_NOTE, trouble)
        self._tell(lease.state)

    def _try_again(self, controller: ClockController) -> None:
        changes: dict[str, Any] = {"hold": ClockHold.FREE, "locked_mhz": None, "is_unmet": False}
        try:
            self._say(Code.LOCK_NOTE, unlock(controller), level="info")
        except ClockError as error:
            changes = {"hold": ClockHold.STUCK, "evidence": str(error)}
            self._stuck(msgspec.structs.replace(self._state, **changes))
            return
        self.failure = ""
        self._tell(msgspec.structs.replace(self._state, evidence="given back", **changes))

    # -- records

    def _tell(self, state: ClockState) -> None:
        before = self._state
        if before.is_ignored and state.hold is not ClockHold.LOCKED:
            state = msgspec.structs.replace(state, is_ignored=True)  # until a lock is seen to work
        self._state = state
        if any(getattr(state, f) != getattr(before, f) for f in _NEWS):
            self._out.append(Clocks(self._time.now_ns(), state))

    def _tell_notes(self, lease: ClockLease, level: str = "info") -> None:
        for note in lease.notes:
            self._say(Code.LOCK_NOTE, note, level)
        lease.notes.clear()

    def _say(self, code: Code, text: str, level: str = "warn") -> None:
        notice = Notice(
            code=code, at_ns=self._time.now_ns(), level=level, evidence={"reason": text}
        )
        self._out.append(Noted(notice))

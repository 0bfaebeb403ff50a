"""The lease: a lock on a device's clocks that is always given back.

plan the undo, write it to disk, arm the guardian, lock; later undo, verify, forget, dismiss the
guardian. A failure at any step leaves the clocks as they were, or says loudly what to type.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from usv_tui.clocks.controllers import HardwareClocks
from usv_tui.clocks.guardian import arm
from usv_tui.clocks.lease_files import Entry, LeaseDirectory
from usv_tui.clocks.lease_paper import Arm, Paper
from usv_tui.clocks.lease_repair import known_state, restore_all, settle_old, unlock
from usv_tui.clocks.target import concerns_of, is_foreign, nearest_supported
from usv_tui.clocks.verify import HoldWatch
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState, ClockUndo, Reading
from usv_tui.seams import ClockController
from usv_tui.vendor.restore import undo_command

GIVEN_BACK = "given back"
SET_FREE = "set free; the other lock is gone"
_UNANSWERED = "the driver has not answered yet"


class ClockLease:
    """A lock in force. Release it, or leave its `with` block. One thread owns it."""

    def __init__(
        self,
        controller: ClockController,
        sm_mhz: int,
        supported: Sequence[int],
        notes: Sequence[str],
        paper: Paper | None,
        *,
        undo: ClockUndo,
        mem_mhz: int | None,
        keep: bool,
    ) -> None:
        self.controller = controller
        self.keep = keep
        """Leave the lock in place at an orderly end; a crash still undoes it."""
        self.notes = list(notes)
        """What the user should know: rounded clocks, a refused memory lock, a repaired crash."""
        self.free_mhz: float | None = None
        """Median clock under load before the lock, where that was watched."""
        self.replaces_other = False
        """A lock of somebody else's, that cannot be put back, went for this one."""
        self._supported = supported
        self._paper = paper
        self._undo = undo
        self._mem_mhz = mem_mhz
        self._end: tuple[ClockHold, str] | None = None
        """What became of the lock, and the evidence; None while it is in force."""
        self._pid = os.getpid()
        self.watch = HoldWatch(sm_mhz, supported)

    @property
    def sm_mhz(self) -> int:
        """The clock that was asked for."""
        return self.watch.locked_mhz

    @property
    def is_guarded(self) -> bool:
        """True while the lock would be undone if this process died now."""
        return self._paper is None or self._paper.guard.is_alive()

    @property
    def state(self) -> ClockState:
        """What is known about the lock."""
        if self._end is not None:
            hold, evidence = self._end
            return ClockState(
                hold=hold,
                locked_mhz=None if hold is ClockHold.FREE else self.sm_mhz,
                evidence=evidence,
                can_lock=True,
                supported_mhz=list(self._supported),
                is_ignored=self.watch.is_ignored,
                free_mhz=self.free_mhz,
                replaces_other=self.replaces_other,
            )
        evidence = self.watch.evidence
        if not self.is_guarded:
            evidence += "; its guardian died: a crash would leave the lock on"
        return ClockState(
            hold=self.watch.hold,
            locked_mhz=self.sm_mhz,
            mem_locked_mhz=self._mem_mhz,
            evidence=evidence,
            can_lock=True,
            supported_mhz=list(self._supported),
            is_ignored=self.watch.is_ignored,
            free_mhz=self.free_mhz,
            replaces_other=self.replaces_other,
        )

    @property
    def undo_command(self) -> str:
        """What somebody with root rights types to undo the lock."""
        undo = self._undo
        return undo_command(undo.kind, undo.uuid, undo.pci, undo.actions)

    def feed(self, reading: Reading) -> ClockState:
        """Follow the lock through one reading; those of other devices are ignored."""
        if self._end is None and reading.device == self.controller.uuid:
            self.watch.feed(reading)
        return self.state

    def change(self, sm_mhz: int) -> None:
        """Move the lock to another clock.

        Raises:
            ClockRefused: the old lock stays in force.
        """
        if self._end is not None:
            raise ClockRefused("the clocks were given back already")
        choice = nearest_supported(sm_mhz, self._supported)
        old_mhz = self.sm_mhz
        if self._paper is not None:
            self._paper.note(requested_mhz=choice.mhz)
        try:
            self.controller.lock(choice.mhz, self._mem_mhz)
        except ClockRefused:
            if self._paper is not None:
                with contextlib.suppress(ClockRefused):  # the driver's refusal is the news
                    self._paper.note(requested_mhz=old_mhz)
            raise
        if choice.note:
            self.notes.append(choice.note)
        self.watch = HoldWatch(choice.mhz, self._supported)

    def release(self) -> None:
        """Put the clocks back, or leave them with `keep`. A second call does nothing.

        Raises:
            ClockError: they could not be put back; the message has the command to type, and the
                journal stays for the next start.
        """
        if self._end is not None or os.getpid() != self._pid:
            return  # a forked child has no say
        self._end = (ClockHold.STUCK, _UNANSWERED)
        try:
            if not self.keep:
                self._put_back()
            else:
                self._leave()
        except BaseException as error:
            if self._end == (ClockHold.STUCK, _UNANSWERED):
                self._end = (ClockHold.STUCK, self._who_goes_on(str(error)))
            raise
        finally:
            if self._paper is not None:
                self._paper.close()
            _close(self.controller)

    def abandon(self, why: str) -> None:
        """Leave the undo to the guardian, from any thread: `release` hangs in the driver."""
        if self._paper is not None:
            self._paper.guard.leave()
        self._end = (ClockHold.STUCK, self._who_goes_on(why))

    def rearm(self) -> None:
        """Start another guardian in place of one that died.

        Raises:
            ClockRefused: none could be started; a crash would leave the lock on.
        """
        if self._paper is not None:
            self._paper.rearm()

    def _who_goes_on(self, why: str) -> str:
        """Why the clocks are not back, and who may yet put them back."""
        if self._paper is None:
            return why
        if self._paper.guard.is_alive():
            return f"{why}; the guardian goes on trying"
        command = self.undo_command
        how = "" if command in why else f", to undo: {command}"
        return f"{why}; no guardian is left to try{how}"

    def _leave(self) -> None:
        """Keep the lock, on record; without a record it may not stay."""
        if self._paper is not None:
            try:
                self._paper.note(keep=True)
            except ClockRefused as error:
                self.keep = False
                self._put_back()
                raise ClockRefused(f"the lock was undone, not kept: {error.message}") from error
            self._paper.guard.dismiss()
        self._end = (ClockHold.KEPT, f"kept; to undo: {self.undo_command}")

    def _put_back(self) -> None:
        try:
            self.controller.undo(self._undo)
        except BaseException as error:
            # The guardian was started with the rights of then; they may have been dropped since.
            if self._paper is None or not self._paper.guard.fire():
                raise
            self._end = (ClockHold.FREE, f"{self._outcome('')}by the guardian, because: {error}")
            self.notes.append(f"put back by the guardian, because: {error}")
            if not isinstance(error, ClockError):
                raise
        else:
            self._end = (ClockHold.FREE, self._outcome(GIVEN_BACK))
            if self._paper is not None:
                self._forget(self._paper)

    def _outcome(self, otherwise: str) -> str:
        return f"{SET_FREE}{'' if otherwise else '; '}" if self.replaces_other else otherwise

    def _forget(self, paper: Paper) -> None:
        """The clocks are back: a record that cannot be removed is worth a note, no more."""
        try:
            paper.forget()
        except ClockRefused as error:
            self.notes.append(str(error))
        paper.guard.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _close(controller: ClockController) -> None:
    if isinstance(controller, HardwareClocks):
        controller.close()


def acquire(
    controller: ClockController,
    sm_mhz: int,
    mem_mhz: int | None = None,
    *,
    force: bool = False,
    keep: bool = False,
    foreign: str = "",
    path: Path | None = None,
    arm: Arm = arm,
) -> ClockLease:
    """Lock the core clock (and the memory clock, where given) until released.

    Takes up to a few seconds (it starts a process and initialises the vendor library), so call it
    off the screen's thread. `foreign` is what readings under load have shown of somebody else's
    lock. `force` goes ahead in spite of `ClockState.concerns`. A simulated device ends
    with this process, so it needs neither journal nor guardian.

    Raises:
        ClockRefused: with one line of why; nothing was changed.
        ClockBusy: another usv-tui holds this device's clocks.
        ClockError: an earlier lock, or a half-made one, could not be undone.
    """
    supported = list(controller.supported_mhz())
    choice = nearest_supported(sm_mhz, supported)
    notes = [choice.note] if choice.note else []
    if not isinstance(controller, HardwareClocks):
        concerns = _concerns(controller.state(), foreign)
        _consent(concerns, force=force)
        undo = controller.plan_undo()
        controller.lock(choice.mhz, mem_mhz)
        lease = _lease(controller, choice.mhz, supported, notes, None, undo, mem_mhz, keep)
        lease.replaces_other = is_foreign(concerns)
        return lease
    with contextlib.ExitStack() as stack:
        stack.callback(controller.close)
        directory = LeaseDirectory.open(path)
        stack.callback(directory.close)
        lock_fd = directory.take(controller.uuid)
        stack.callback(os.close, lock_fd)
        kept = settle_old(directory, controller.uuid, controller.access, notes)
        if kept is None:
            concerns = _concerns(controller.state(), foreign)
        else:
            # The lock that shows is our own, and so is no foreign one.
            concerns = [*([] if keep else _kept_worry(kept)), *controller.state().concerns]
        _consent(concerns, force=force)
        undo = _plan(controller, kept, with_memory=mem_mhz is not None)
        entry = Entry.of_this_process(controller.info, undo, choice.mhz, mem_mhz)
        paper = Paper(directory, lock_fd, entry, kept, controller.access, arm)
        _lock(controller, paper, undo, choice.mhz, mem_mhz)
        stack.pop_all()
    lease = _lease(controller, choice.mhz, supported, notes, paper, undo, mem_mhz, keep)
    lease.replaces_other = is_foreign(concerns)
    return lease


def _plan(controller: HardwareClocks, kept: Entry | None, *, with_memory: bool) -> ClockUndo:
    """The undo to arm: of the present state, or of the state before a lock that was kept.

    The memory clock is reset only where it was locked by us.
    """
    plan = controller.plan_undo()
    memory = [step for step in plan.actions if step[0].startswith("mem-")]
    if kept is None:
        actions = [step for step in plan.actions if step not in memory or with_memory]
    else:
        actions = list(kept.undo.actions)
        actions += [step for step in memory if with_memory and step not in actions]
    return msgspec.structs.replace(plan, actions=actions)


def _lease(
    controller: ClockController,
    sm_mhz: int,
    supported: Sequence[int],
    notes: list[str],
    paper: Paper | None,
    undo: ClockUndo,
    mem_mhz: int | None,
    keep: bool,
) -> ClockLease:
    """The lease of a lock that was just made, with the memory clock as it really is."""
    if refusal := getattr(controller, "mem_refusal", ""):
        notes.append(refusal)
        mem_mhz = None
    return ClockLease(
        controller, sm_mhz, supported, notes, paper, undo=undo, mem_mhz=mem_mhz, keep=keep
    )


def _lock(
    controller: HardwareClocks,
    paper: Paper,
    undo: ClockUndo,
    sm_mhz: int,
    mem_mhz: int | None,
) -> None:
    """The deed, with its undo already armed."""
    try:
        controller.lock(sm_mhz, mem_mhz)
    except ClockRefused:
        # By contract nothing was changed: a kept lock of before is still in force.
        with contextlib.suppress(ClockRefused):  # the driver's refusal is the news
            paper.cancel()
        paper.guard.dismiss()
        raise
    except BaseException as error:
        try:
            controller.undo(undo)
        except ClockError:
            if not paper.guard.fire():
                raise
        else:
            with contextlib.suppress(ClockRefused):  # the next start puts them back once more
                paper.forget()
            paper.guard.dismiss()
        if isinstance(error, ClockError):
            raise ClockRefused(f"{error.message}; undone at the second try") from error
        raise


def _kept_worry(kept: Entry) -> list[str]:
    return [f"usv-tui left it locked at {kept.requested_mhz} MHz; that lock would go"]


def _consent(concerns: Sequence[str], *, force: bool) -> None:
    """Refuse what would disturb somebody, unless told to go ahead."""
    if concerns and not force:
        raise ClockRefused(f"not locked: {'; '.join(concerns)}", "--force goes ahead")


def _concerns(state: ClockState, foreign: str) -> list[str]:
    """The state's concerns, and a foreign lock seen in readings."""
    if foreign and state.hold is not ClockHold.FOREIGN and state.level is None:
        state = msgspec.structs.replace(state, hold=ClockHold.FOREIGN, evidence=foreign)
    return concerns_of(state)


__all__ = ["ClockLease", "acquire", "known_state", "restore_all", "unlock"]

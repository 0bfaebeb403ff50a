"""The lease: a lock on a device's clocks that is always given back.

plan the undo, write it to disk, arm the guardian, lock; later undo, verify, forget, dismiss the
guardian. A failure at any step leaves the clocks as they were, or says loudly what to type.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from usv_tui.device.base import ClockController
from usv_tui.device.clock_choice import concerns_of, nearest_supported
from usv_tui.device.clocks import HardwareClocks
from usv_tui.device.guardian import Guard, arm
from usv_tui.device.hold import HoldWatch, foreign_lock_hint
from usv_tui.device.lease_files import Entry, LeaseDirectory
from usv_tui.device.lease_repair import known_state, restore_all, settle_old, unlock
from usv_tui.device.restore import Access, undo_command
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState, ClockUndo, Reading

Arm = Callable[[Mapping[str, Any], Access, int, int, str], Guard]


class ClockLease:
    """A lock in force. Release it, or leave its `with` block. One thread owns it."""

    def __init__(
        self,
        controller: ClockController,
        sm_mhz: int,
        supported: Sequence[int],
        notes: Sequence[str],
        paper: "_Paper | None",
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
        self._supported = supported
        self._paper = paper
        self._undo = undo
        self._mem_mhz = mem_mhz
        self._is_held = True
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
        if not self._is_held:
            kept = f"kept; to undo: {self.undo_command}" if self.keep else "given back"
            hold = ClockHold.PENDING if self.keep else ClockHold.FREE
            return ClockState(
                hold=hold,
                locked_mhz=self.sm_mhz if self.keep else None,
                evidence=kept,
                can_lock=True,
                supported_mhz=list(self._supported),
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
        )

    @property
    def undo_command(self) -> str:
        """What somebody with root rights types to undo the lock."""
        undo = self._undo
        return undo_command(undo.kind, undo.uuid, undo.pci, undo.actions)

    def feed(self, reading: Reading) -> ClockState:
        """Follow the lock through one reading; those of other devices are ignored."""
        if self._is_held and reading.device == self.controller.uuid:
            self.watch.feed(reading)
        return self.state

    def change(self, sm_mhz: int) -> None:
        """Move the lock to another clock.

        Raises:
            ClockRefused: the old lock stays in force.
        """
        if not self._is_held:
            raise ClockRefused("the clocks were given back already")
        choice = nearest_supported(sm_mhz, self._supported)
        old_mhz = self.sm_mhz
        if self._paper is not None:
            self._paper.note(requested_mhz=choice.mhz)
        try:
            self.controller.lock(choice.mhz, self._mem_mhz)
        except ClockRefused:
            if self._paper is not None:
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
        if not self._is_held or os.getpid() != self._pid:
            return  # a forked child has no say
        self._is_held = False
        try:
            if self._paper is None:
                if not self.keep:
                    self.controller.undo(self._undo)
            elif self.keep:
                self._leave(self._paper)
            else:
                self._put_back(self._paper)
        finally:
            if self._paper is not None:
                self._paper.close()
            _close(self.controller)

    def _leave(self, paper: "_Paper") -> None:
        """Keep the lock, on record; without a record it may not stay."""
        try:
            paper.note(keep=True)
        except ClockRefused as error:
            self.keep = False
            self._put_back(paper)
            raise ClockRefused(f"the lock was undone, not kept: {error.message}") from error
        paper.guard.dismiss()

    def _put_back(self, paper: "_Paper") -> None:
        try:
            self.controller.undo(self._undo)
        except ClockError as error:
            # The guardian was started with the rights of then; they may have been dropped since.
            if not paper.guard.fire():
                raise
            self.notes.append(f"put back by the guardian, because: {error.message}")
        except BaseException:
            paper.guard.fire()
            raise
        else:
            paper.forget()
            paper.guard.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Paper:
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
        directory.write(entry)
        undo = msgspec.to_builtins(entry.undo)
        try:
            self.guard = arm_(undo, access, lock_fd, directory.fd, directory.entry_name(entry.uuid))
        except BaseException:
            self.cancel()
            raise

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
        """Let the device's file and the directory go."""
        # A child that was forked meanwhile has the same lock open: let it go for all.
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        os.close(self._lock_fd)
        self._directory.close()


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
    observed: Sequence[Reading] = (),
    path: Path | None = None,
    arm: Arm = arm,
) -> ClockLease:
    """Lock the core clock (and the memory clock, where given) until released.

    Takes up to a few seconds (it starts a process and initialises the vendor library), so call it
    off the screen's thread. `observed` are readings under load without our lock: they may show a
    foreign one. `force` goes ahead in spite of `ClockState.concerns`. A simulated device ends
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
        _consent(_concerns(controller.state(), observed, supported), force=force)
        undo = controller.plan_undo()
        controller.lock(choice.mhz, mem_mhz)
        return _lease(controller, choice.mhz, supported, notes, None, undo, mem_mhz, keep)
    with contextlib.ExitStack() as stack:
        stack.callback(controller.close)
        directory = LeaseDirectory.open(path)
        stack.callback(directory.close)
        lock_fd = directory.take(controller.uuid)
        stack.callback(os.close, lock_fd)
        kept = settle_old(directory, controller.uuid, controller.access, notes)
        if kept is None:
            concerns = _concerns(controller.state(), observed, supported)
        else:
            # The lock that shows is our own, and so is no foreign one.
            concerns = [*([] if keep else _kept_worry(kept)), *controller.state().concerns]
        _consent(concerns, force=force)
        undo = _plan(controller, kept, with_memory=mem_mhz is not None)
        entry = Entry.of_this_process(controller.info, undo, choice.mhz, mem_mhz)
        paper = _Paper(directory, lock_fd, entry, kept, controller.access, arm)
        _lock(controller, paper, undo, choice.mhz, mem_mhz)
        stack.pop_all()
    return _lease(controller, choice.mhz, supported, notes, paper, undo, mem_mhz, keep)


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
    paper: _Paper | None,
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
    paper: _Paper,
    undo: ClockUndo,
    sm_mhz: int,
    mem_mhz: int | None,
) -> None:
    """The deed, with its undo already armed."""
    try:
        controller.lock(sm_mhz, mem_mhz)
    except ClockRefused:
        # By contract nothing was changed: a kept lock of before is still in force.
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
            paper.forget()
            paper.guard.dismiss()
        if isinstance(error, ClockError):
            raise ClockRefused(f"{error.message}; undone at the second try") from error
        raise


def _kept_worry(kept: Entry) -> list[str]:
    return [f"it was left locked at {kept.requested_mhz} MHz on purpose; that lock would go"]


def _consent(concerns: Sequence[str], *, force: bool) -> None:
    """Refuse what would disturb somebody, unless told to go ahead."""
    if concerns and not force:
        raise ClockRefused(f"not locked: {'; '.join(concerns)}", "--force goes ahead")


def _concerns(
    state: ClockState, observed: Sequence[Reading], supported: Sequence[int]
) -> list[str]:
    """The state's concerns, and a foreign lock seen in readings."""
    hint = foreign_lock_hint(observed, supported) if state.hold is not ClockHold.FOREIGN else ""
    if hint and state.level is None:
        state = msgspec.structs.replace(state, hold=ClockHold.FOREIGN, evidence=hint)
    return concerns_of(state)


__all__ = ["ClockLease", "acquire", "known_state", "restore_all", "unlock"]

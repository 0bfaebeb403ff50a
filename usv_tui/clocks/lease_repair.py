"""What the journal of locks says of other runs: repair, release, or just tell."""

import contextlib
import os
from pathlib import Path

import msgspec

from usv_tui.clocks.controllers import HardwareClocks
from usv_tui.clocks.lease_files import Entry, LeaseDirectory, Owner, owner_of
from usv_tui.errors import ClockBusy, ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState, ClockUndo
from usv_tui.seams import ClockController
from usv_tui.vendor.kinds import DIRECT, Access
from usv_tui.vendor.restore import Restorer


def settle_old(
    directory: LeaseDirectory, uuid: str, access: Access, notes: list[str]
) -> Entry | None:
    """Deal with an earlier entry of this device, whose file we hold; returns a kept one.

    Raises:
        ClockBusy: a live process, or another machine, is behind it.
        ClockError: what a dead one left locked could not be put back.
    """
    entry = directory.read(uuid)
    if entry is None:
        return None
    owner = owner_of(entry)
    if owner is Owner.ELSEWHERE:
        raise ClockBusy(f"the journal says that {entry.host} holds the clocks of {uuid}")
    if owner is Owner.LIVE and entry.pid != os.getpid() and not entry.keep:
        raise ClockBusy(f"another usv-tui (pid {entry.pid}) has locked the clocks of {uuid}")
    if owner is Owner.OLD_BOOT:
        directory.remove(uuid)
        return None
    if entry.keep:
        return entry
    restorer = Restorer(entry.kind, entry.uuid, entry.pci, entry.undo.actions, access)
    try:
        restorer.run()
    finally:
        restorer.close()
    notes.append(_repaired(entry))
    try:
        directory.remove(uuid)
    except ClockRefused as error:
        notes[-1] += f"; {error}"
    return None


def _repaired(entry: Entry) -> str:
    return (
        f"{entry.name or entry.uuid} was left locked at {entry.requested_mhz} MHz by a run that"
        f" died (pid {entry.pid}); its clocks were put back"
    )


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one entry of the journal."""

    uuid: str
    outcome: str
    """restored, live, kept, discarded or failed."""
    message: str

    @property
    def is_failure(self) -> bool:
        """True when a device is still locked and should not be."""
        return self.outcome == "failed"


def restore_all(*, path: Path | None = None, access: Access = DIRECT) -> list[Restored]:
    """Put back what runs that died left locked; call it at every start.

    Live and kept locks are respected, entries of an earlier boot discarded: a reboot unlocks. A
    failing device does not keep the others from being restored, and its journal stays.
    """
    with contextlib.closing(LeaseDirectory.open(path, create=False)) as directory:
        return [_restore_one(directory, uuid, access) for uuid in directory.uuids()]


def _restore_one(directory: LeaseDirectory, uuid: str, access: Access) -> Restored:
    try:
        lock_fd = directory.take(uuid)
    except ClockBusy as error:
        return Restored(uuid=uuid, outcome="live", message=error.message)
    except ClockError as error:
        return Restored(uuid=uuid, outcome="failed", message=str(error))
    try:
        return _restore_taken(directory, uuid, access)
    except ClockBusy as error:
        return Restored(uuid=uuid, outcome="live", message=str(error))
    except ClockError as error:
        tried = directory.last_failure(uuid)
        message = f"{error}; the guardian had failed too: {tried}" if tried else str(error)
        return Restored(uuid=uuid, outcome="failed", message=message)
    finally:
        os.close(lock_fd)


def _restore_taken(directory: LeaseDirectory, uuid: str, access: Access) -> Restored:
    notes: list[str] = []
    before = directory.read(uuid)
    kept = settle_old(directory, uuid, access, notes)
    if kept is not None:
        text = f"{kept.name or uuid} is kept at {kept.requested_mhz} MHz, as it was left"
        return Restored(uuid=uuid, outcome="kept", message=text)
    if notes:
        return Restored(uuid=uuid, outcome="restored", message=notes[0])
    name = before.name if before is not None and before.name else uuid
    text = f"{name}: the journal of an earlier boot was dropped; a reboot unlocks"
    return Restored(uuid=uuid, outcome="discarded", message=text)


def known_state(controller: ClockController, *, path: Path | None = None) -> ClockState:
    """The controller's state with what the journal knows of locks made by usv-tui."""
    state = controller.state()
    if not isinstance(controller, HardwareClocks):
        return state
    with contextlib.closing(LeaseDirectory.open(path, create=False)) as directory:
        entry = directory.read(controller.uuid)
    if entry is None or owner_of(entry) is Owner.OLD_BOOT:
        return state
    who = {
        Owner.LIVE: f"by usv-tui, pid {entry.pid}",
        Owner.DEAD: f"by a run that died, pid {entry.pid}: `usv-tui clocks restore` undoes it",
        Owner.ELSEWHERE: f"by usv-tui on {entry.host}",
    }[owner_of(entry)]
    if entry.keep:
        who = "by usv-tui and left so: `usv-tui clocks unlock` undoes it"
    return msgspec.structs.replace(
        state,
        hold=ClockHold.PENDING,
        locked_mhz=entry.requested_mhz,
        mem_locked_mhz=entry.mem_mhz,
        evidence=f"locked at {entry.requested_mhz} MHz {who}",
    )


def unlock(controller: ClockController, *, path: Path | None = None) -> str:
    """Undo a kept or left-over lock; without any on record, reset the device all the same.

    Returns what was done, in a line.

    Raises:
        ClockBusy: a live run holds it.
        ClockError: it could not be done; the message has the command to type.
    """
    if not isinstance(controller, HardwareClocks):
        controller.undo(controller.plan_undo())
        return "unlocked"
    with contextlib.ExitStack() as stack:
        stack.callback(controller.close)
        directory = stack.enter_context(contextlib.closing(LeaseDirectory.open(path)))
        stack.callback(os.close, directory.take(controller.uuid))
        notes: list[str] = []
        kept = settle_old(directory, controller.uuid, controller.access, notes)
        if notes:
            return notes[0]
        if kept is None:
            return _reset_unrecorded(controller)
        controller.undo(kept.undo)
        done = f"{controller.info.name}: unlocked from {kept.requested_mhz} MHz"
        try:
            directory.remove(controller.uuid)
        except ClockRefused as error:
            return f"{done}; {error}"
        return done


def _reset_unrecorded(controller: HardwareClocks) -> str:
    """Let go what may have been locked by other means; nothing of ours is on record.

    Raises:
        ClockError: a foreign lock shows, and could not be undone.
    """
    name, nothing = controller.info.name, "nothing of ours was locked"
    state = controller.state()
    if state.hold is ClockHold.FREE:
        return f"{name}: {nothing}, its clocks are free"
    try:
        controller.undo(_plain_reset(controller))
    except ClockError as error:
        if state.hold is ClockHold.FOREIGN:
            raise
        return f"{name}: {nothing}; a reset all the same was refused: {error.message}"
    return f"{name}: {nothing}; reset all the same"


def _plain_reset(controller: HardwareClocks) -> ClockUndo:
    return ClockUndo(
        uuid=controller.uuid,
        kind=controller.kind,
        pci=controller.info.pci and controller.info.pci.lower(),
        actions=controller.plan_reset(),
    )

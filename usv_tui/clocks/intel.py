"""Clock control of Intel's GPUs: lower and upper limit at one clock, as xe and i915 take them."""

from collections.abc import Sequence
from pathlib import Path

from usv_tui.clocks.controllers import HardwareClocks
from usv_tui.clocks.target import NEEDS_RIGHTS, lock_command, unlock_command
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState, ClockUndo, DeviceInfo
from usv_tui.vendor.intel import Gt, IntelCard, Span, device_name, gpu_devices, grid
from usv_tui.vendor.kinds import BACKENDS, DIRECT, Access, Vendor, VendorError
from usv_tui.vendor.sysfs import RIGHTS, uevent

NO_FILES = "the driver offers no clock limits (a virtual function has none)"
_RIGHTS = f"{NEEDS_RIGHTS} and a writable /sys"

_Before = list[tuple[Gt, Span, int | None]]
"""Each unit with its limits and its boost clock."""


def intel_devices(access: Access) -> list[DeviceInfo]:
    """The GPUs of xe and i915."""
    return [
        DeviceInfo(
            uuid=f"intel-{pci}",
            name=device_name(device),
            kind=Vendor.INTEL,
            pci=pci,
            driver=uevent(device).get("DRIVER"),
            index=index,
            supported_sm_mhz=grid(IntelCard(pci, access.sysfs)),
            note=BACKENDS[Vendor.INTEL].unproven,
        )
        for index, (pci, device) in enumerate(gpu_devices(Path(access.sysfs)).items())
    ]


class IntelClocks(HardwareClocks):
    """Fixes lower and upper limit; what was there before can be read, and is put back as it was."""

    kind: str = Vendor.INTEL

    def __init__(self, info: DeviceInfo, access: Access = DIRECT) -> None:
        super().__init__(info, access)

    def _card(self) -> IntelCard:
        return IntelCard((self.info.pci or "").lower(), self.access.sysfs)

    def _units(self, card: IntelCard) -> _Before:
        return [(gt, card.limits(gt), card.boost_mhz(gt)) for gt in card.gts()]

    def supported_mhz(self) -> Sequence[int]:
        """A grid between the lowest and the highest clock; empty when the driver tells none."""
        try:
            return grid(self._card())
        except VendorError:
            return []

    def state(self) -> ClockState:
        """The limits in force; a foreign setting is known, and can be put back."""
        try:
            card = self._card()
            units = self._units(card)
            bounds = [card.bounds(gt) for gt, _, _ in units]
        except VendorError as error:
            return ClockState(evidence="the clock files cannot be read", reason=str(error))
        if not units:
            return ClockState(evidence=NO_FILES, reason=NO_FILES)
        spans = [span for _, span, _ in units]
        words = ", ".join(dict.fromkeys(f"{low}-{high} MHz" for low, high in spans))
        reason = _RIGHTS if card.why_not_writable() else ""
        return ClockState(
            hold=_hold(spans, bounds),
            evidence=f"limits {words}",
            can_lock=not reason,
            reason=reason,
            supported_mhz=list(self.supported_mhz()),
            level=words,
        )

    def plan_undo(self) -> ClockUndo:
        """The limits as they read now.

        Raises:
            ClockRefused: they cannot be read, so they could not be put back.
        """
        try:
            units = self._units(self._card())
        except VendorError as error:
            raise ClockRefused(
                f"{self.info.name}: what is set now cannot be read: {error}"
            ) from error
        if not units:
            raise ClockRefused(f"{self.info.name}: {NO_FILES}")
        actions = [_action(gt, span, boost_mhz) for gt, span, boost_mhz in units]
        pci = (self.info.pci or "").lower()
        return ClockUndo(uuid=self.uuid, kind=self.kind, pci=pci, actions=actions)

    def plan_reset(self) -> list[list[str]]:
        """All that there is between the lowest and the highest clock.

        Raises:
            ClockError: these cannot be read.
        """
        try:
            card = self._card()
            return [
                _action(gt, card.bounds(gt), boost and card.bounds(gt)[1])
                for gt, _, boost in self._units(card)
            ]
        except VendorError as error:
            raise ClockError(f"{self.info.name}: {error}") from error

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Fix the core clock; the memory clock is left alone (see `mem_refusal`).

        Raises:
            ClockRefused: nothing was changed, or all of it was rolled back.
            ClockError: a half-made set could not be rolled back.
        """
        self.mem_refusal = ""
        try:
            card = self._card()
            before = self._units(card)
        except VendorError as error:
            raise ClockRefused(f"{self.info.name}: {error}") from error
        if not before:
            raise ClockRefused(f"{self.info.name}: {NO_FILES}")
        if card.why_not_writable():
            raise self._no_rights(sm_mhz)
        try:
            for gt, _, boost_mhz in before:
                card.set_limits(gt, (sm_mhz, sm_mhz), boost_mhz and sm_mhz)
        except VendorError as error:
            self._roll_back(card, before)
            if error.code in RIGHTS:
                raise self._no_rights(sm_mhz) from error
            raise ClockRefused(f"{self.info.name} did not lock: {error}") from error
        if mem_mhz is not None:
            self.mem_refusal = "memory clock not locked: Intel's drivers do not offer it"

    def _no_rights(self, mhz: int) -> ClockRefused:
        command = lock_command(self.info, mhz)
        return ClockRefused(f"locking clocks {_RIGHTS}", f"type: {command}")

    def _roll_back(self, card: IntelCard, before: _Before) -> None:
        try:
            for gt, span, boost_mhz in before:
                if (card.limits(gt), card.boost_mhz(gt)) != (span, boost_mhz):
                    card.set_limits(gt, span, boost_mhz)
        except VendorError as error:
            raise ClockError(
                f"{self.info.name}: a half-made lock could not be rolled back: {error}",
                f"type: {unlock_command(self.info)}",
            ) from error


def _action(gt: Gt, span: Span, boost_mhz: int | None) -> list[str]:
    low, high = span
    return ["range", gt.name, str(low), str(high), "" if boost_mhz is None else str(boost_mhz)]


def _hold(spans: Sequence[Span], bounds: Sequence[Span]) -> ClockHold:
    """Whether somebody has narrowed the limits; a lower limit may be raised by default."""
    if any(high < top for (_, high), (_, top) in zip(spans, bounds, strict=True)):
        return ClockHold.FOREIGN
    # Some parts for servers stand at their maximum by default.
    is_fixed = any(low >= high for low, high in spans)
    return ClockHold.UNKNOWN if is_fixed else ClockHold.FREE

"""Clock control of real devices, raw: `clocks.lease` makes it safe.

NVIDIA goes through NVML by UUID; AMD through the kernel's files by PCI address. Neither touches
persistence mode, and the memory clock only when told.
"""

import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from usv_tui.clocks.target import lock_command, unlock_command
from usv_tui.clocks.verify import LIMITING
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockHold, ClockState, ClockUndo, DeviceInfo, Reason
from usv_tui.seams import ClockController
from usv_tui.timesource import MonotonicTime, TimeSource
from usv_tui.vendor import nvml
from usv_tui.vendor.amdgpu import (
    LEVEL_FILE,
    LEVEL_PATTERN,
    TABLE_FILE,
    AmdCard,
    Span,
    kfd_ids,
    kfd_processes,
)
from usv_tui.vendor.kinds import BACKENDS, DIRECT, Access, Vendor, VendorError, load
from usv_tui.vendor.nvml import NvmlDevice
from usv_tui.vendor.restore import Restorer
from usv_tui.vendor.sysfs import RIGHTS

AMD_GRID_MHZ = 5
"""AMD takes any whole MHz in its range; this is how finely it is offered."""
_CAP_SYS_ADMIN = 21
_FIRST_LOCKABLE = (7, 0)
"""Compute capability of Volta, whose clocks were the first that could be locked."""
_VGPU = 2
"""NVML's virtualisation mode of a guest's virtual GPU."""
_LOOK_NS = 100_000_000


class HardwareClocks(ABC):
    """Clock control of a device whose state outlives this process."""

    kind: str

    def __init__(self, info: DeviceInfo, access: Access) -> None:
        self.info = info
        self.uuid = info.uuid
        self.access = access
        self.mem_refusal = ""
        """Why the memory clock was not locked although asked for; the core lock stands."""

    @abstractmethod
    def state(self) -> ClockState:
        """What can be read: supported clocks, rights, whom a lock would disturb."""

    @abstractmethod
    def plan_undo(self) -> ClockUndo:
        """How to put back what is there now; touches nothing.

        Steps whose verb begins with `mem-` are for a memory lock only.
        """

    @abstractmethod
    def plan_reset(self) -> list[list[str]]:
        """The steps that let the clocks go where nothing is on record."""

    @abstractmethod
    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Fix the core clock, and the memory clock where given (see `mem_refusal`)."""

    @abstractmethod
    def supported_mhz(self) -> Sequence[int]:
        """Core clocks that can be asked for, ascending; empty when unknown."""

    def undo(self, undo: ClockUndo) -> None:
        """Put the clocks back and, where the device allows it, read them back.

        Raises:
            ClockError: it could not be done; the message has the command to type.
        """
        restorer = Restorer(undo.kind, undo.uuid, undo.pci, undo.actions, self.access)
        try:
            restorer.run()
        finally:
            restorer.close()

    def close(self) -> None:  # noqa: B027  most have nothing to release
        """Release the vendor library."""


class NvidiaClocks(HardwareClocks):
    """Locks through NVML, by UUID. Works on the whole board also for a MIG instance."""

    kind: str = Vendor.NVIDIA

    def __init__(
        self,
        info: DeviceInfo,
        access: Access = DIRECT,
        time_source: TimeSource | None = None,
    ) -> None:
        super().__init__(info, access)
        self._time = time_source or MonotonicTime()
        self._opened: NvmlDevice | None = None

    def _device(self) -> NvmlDevice:
        if self._opened is None:
            self._opened = NvmlDevice(self.uuid, self.access.nvml_library)
        return self._opened

    def supported_mhz(self) -> Sequence[int]:
        """The steps at the highest memory clock, where compute work runs."""
        if self.info.supported_sm_mhz:
            return self.info.supported_sm_mhz
        try:
            device = self._device()
        except VendorError:
            return []
        memory = self.supported_mem_mhz()
        if not memory:
            return []
        return sorted(device.ask("nvmlDeviceGetSupportedGraphicsClocks", memory[-1]) or [])

    def supported_mem_mhz(self) -> Sequence[int]:
        """Memory clocks that can be asked for, ascending; empty when unknown."""
        try:
            return sorted(self._device().ask("nvmlDeviceGetSupportedMemoryClocks") or [])
        except VendorError:
            return []

    def state(self) -> ClockState:
        """NVML cannot read a lock back, so the hold is unknown unless a foreign one shows."""
        try:
            device = self._device()
        except VendorError as error:
            return ClockState(evidence="NVML cannot be used", reason=str(error))
        supported = list(self.supported_mhz())
        hint = self._foreign_hint(device, supported)
        concerns = []
        if self.info.slice or self.uuid.startswith("MIG-"):
            concerns.append("a MIG instance shares its clock with the whole board")
        elif (device.ask("nvmlDeviceGetMigMode") or [0])[0] == 1:
            concerns.append("the board is divided (MIG): its clock is that of every instance")
        concerns += process_concern(self._compute_pids(device))
        allowed = has_capability(_CAP_SYS_ADMIN)
        reason = "" if allowed else "needs root (CAP_SYS_ADMIN)"
        if never := self._why_never(device):
            allowed, reason = False, never
        return ClockState(
            hold=ClockHold.FOREIGN if hint else ClockHold.UNKNOWN,
            evidence=hint or "NVML cannot read a lock back",
            can_lock=allowed,
            reason=reason,
            supported_mhz=supported,
            concerns=concerns,
        )

    def _why_never(self, device: NvmlDevice) -> str:
        """Why no rights would help; empty where only a try can show it."""
        capability = device.ask("nvmlDeviceGetCudaComputeCapability")
        is_old = capability is not None and tuple(capability) < _FIRST_LOCKABLE
        if is_old or device.ask("nvmlDeviceGetVirtualizationMode") == _VGPU:
            return f"cannot be locked: {self._why_unsupported()}"
        if not device.has("nvmlDeviceSetGpuLockedClocks"):
            return "cannot be locked: this driver is too old"
        return ""

    def _foreign_hint(self, device: NvmlDevice, supported: Sequence[int]) -> str:
        """Evidence of a lock on an idle device: three equal clocks between floor and maximum.

        A free device drops to its floor when idle, or stays at its maximum while somebody holds a
        context.
        """
        if len(supported) < 4:
            return ""
        clocks = set()
        never = threading.Event()
        for look in range(3):
            if look:
                self._time.wait(never, _LOOK_NS)
            clock = device.ask("nvmlDeviceGetClockInfo", 1)
            reasons = device.ask("nvmlDeviceGetCurrentClocksEventReasons")
            if reasons is None:
                reasons = device.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
            clocks.add(clock)
            if not reasons or not reasons & Reason.IDLE or reasons & LIMITING:
                return ""
            if clock is None or not 1.5 * supported[0] < clock < supported[-2]:
                return ""
        if len(clocks) != 1:
            return ""
        return f"idle at {clocks.pop()} MHz, lowest {supported[0]} MHz"

    @staticmethod
    def _compute_pids(device: NvmlDevice) -> list[int] | None:
        processes = device.compute_processes()
        return None if processes is None else [int(process.pid) for process in processes]

    def plan_undo(self) -> ClockUndo:
        """The resets: what was set before cannot be read."""
        return ClockUndo(
            uuid=self.uuid,
            kind=self.kind,
            pci=self.info.pci,
            actions=[["reset-sm"], ["mem-reset"]],
        )

    def plan_reset(self) -> list[list[str]]:
        """The core clock's."""
        return [["reset-sm"]]

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Lock the core clock; a refused memory lock is noted in `mem_refusal`.

        Raises:
            ClockRefused: the core clock could not be locked; nothing was changed.
        """
        self.mem_refusal = ""
        try:
            self._device().call("nvmlDeviceSetGpuLockedClocks", sm_mhz, sm_mhz)
        except VendorError as error:
            raise self._refused(error, sm_mhz) from error
        if mem_mhz is None:
            return
        try:
            self._device().call("nvmlDeviceSetMemoryLockedClocks", mem_mhz, mem_mhz)
        except VendorError as error:
            is_older = error.code in {nvml.NOT_SUPPORTED, nvml.FUNCTION_NOT_FOUND}
            why = "this GPU or driver does not offer it" if is_older else str(error)
            self.mem_refusal = f"memory clock not locked: {why}"

    def _refused(self, error: VendorError, mhz: int) -> ClockRefused:
        """Why, by the driver's code; what to type only where rights are what is missing."""
        name, code = self.info.name, error.code
        if code in nvml.RIGHTS:
            where = "" if code == nvml.NO_PERMISSION else ", and outside a container's limits"
            return ClockRefused(
                f"locking clocks needs root (CAP_SYS_ADMIN){where}",
                f"type: {lock_command(self.info, mhz)}",
            )
        if code == nvml.NOT_SUPPORTED:
            return ClockRefused(f"{name} does not lock its clocks here: {self._why_unsupported()}")
        if code == nvml.FUNCTION_NOT_FOUND:
            return ClockRefused(f"{name}: this driver cannot lock clocks", "update the driver")
        if code in {2, 24}:
            steps = self.supported_mhz()
            known = f"it supports {steps[0]}-{steps[-1]} MHz" if steps else ""
            return ClockRefused(f"{name} does not take {mhz} MHz", known)
        if code in nvml.LOST:
            return ClockRefused(f"{name} is lost: {error}", "it needs a reset or a reboot")
        return ClockRefused(f"{name} did not lock: {error} (NVML's code {code})")

    def _why_unsupported(self) -> str:
        """What is known of a device whose driver says "not supported"; no more than that."""
        if self.info.slice or self.uuid.startswith("MIG-"):
            return "it is a MIG instance"
        capability = self._device().ask("nvmlDeviceGetCudaComputeCapability")
        if capability is not None and tuple(capability) < _FIRST_LOCKABLE:
            return "it needs Volta or newer"
        if self._device().ask("nvmlDeviceGetVirtualizationMode") == _VGPU:
            return "it is a virtual GPU, and its clocks are the host's"
        return "the driver says 'not supported' (seen on virtual GPUs, laptops and in containers)"

    def close(self) -> None:
        """Balance NVML's initialisation."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


Method = Callable[[int], None]


class AmdClocks(HardwareClocks):
    """Caps the core clock: determinism where the device has it, else the upper limit.

    Both are soft maxima, so only `HoldWatch` can say whether the clock stands there. A set that
    fails halfway is rolled back; level and limits can be read and are restored as they were.
    """

    kind: str = Vendor.AMD

    def __init__(self, info: DeviceInfo, access: Access = DIRECT) -> None:
        super().__init__(info, access)
        self.method = ""
        """How the last lock was made: perf_determinism or clk_limit."""

    def _card(self) -> AmdCard:
        return AmdCard((self.info.pci or "").lower(), self.access.sysfs)

    def supported_mhz(self) -> Sequence[int]:
        """The accepted range on a grid of 5 MHz; empty when the card takes no limits."""
        try:
            card = self._card()
            card.read(TABLE_FILE)
        except VendorError:
            return []
        span = card.span()
        if span is None:
            return []
        low, high = span
        return sorted({*range(low, high, AMD_GRID_MHZ), high})

    def state(self) -> ClockState:
        """Level and limits in force; a foreign setting is known, and can be put back."""
        try:
            card = self._card()
            level = card.level()
        except VendorError as error:
            return ClockState(evidence="the clock files cannot be read", reason=str(error))
        table = card.table()
        limits = f", limits {table[0]}-{table[1]} MHz" if table else ""
        is_free = level == "auto"
        concerns = process_concern(self._compute_pids())
        if (partition := card.word("current_compute_partition")) not in {"", "SPX"}:
            concerns.append(f"partitions ({partition}) of one device share its clock")
        reason = self._missing(card)
        return ClockState(
            hold=ClockHold.FREE if is_free else ClockHold.FOREIGN,
            evidence=f"performance level {level}{limits}",
            can_lock=not reason,
            reason=reason,
            supported_mhz=list(self.supported_mhz()),
            level=level,
            concerns=concerns,
        )

    def _missing(self, card: AmdCard) -> str:
        """Why nothing can be set from here; empty when it can."""
        try:
            card.read(TABLE_FILE)
        except VendorError:
            return "this card takes no clock limits (overdrive is off: amdgpu.ppfeaturemask)"
        if not (card.is_writable(LEVEL_FILE) and card.is_writable(TABLE_FILE)):
            return "needs root and a writable /sys"
        return ""

    def _compute_pids(self) -> list[int] | None:
        """Processes with memory on the device, from the kernel's compute driver."""
        sysfs = Path(self.access.sysfs)
        ids = list(kfd_ids(sysfs, (self.info.pci or "").lower()))
        return [pid for pid, _ in kfd_processes(sysfs, ids)] if ids else None

    def plan_undo(self) -> ClockUndo:
        """Level and limits as they read now.

        Raises:
            ClockRefused: they cannot be read, so they could not be put back.
        """
        try:
            card = self._card()
            level, table = card.level(), card.table()
        except VendorError as error:
            raise ClockRefused(
                f"{self.info.name}: what is set now cannot be read: {error}"
            ) from error
        if not LEVEL_PATTERN.fullmatch(level):
            raise ClockRefused(f"{self.info.name}: performance level {level!r} is not understood")
        low, high = (str(table[0]), str(table[1])) if table else ("", "")
        return ClockUndo(
            uuid=self.uuid,
            kind=self.kind,
            pci=(self.info.pci or "").lower(),
            actions=[["level", level, low, high]],
        )

    def plan_reset(self) -> list[list[str]]:
        """The level that a free card has."""
        return [["level", "auto", "", ""]]

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Cap the core clock; the memory clock is left alone (see `mem_refusal`).

        Raises:
            ClockRefused: nothing was changed, or all of it was rolled back.
            ClockError: a half-made set could not be rolled back.
        """
        self.mem_refusal = ""
        try:
            card = self._card()
            before = card.level(), card.table()
        except VendorError as error:
            raise ClockRefused(f"{self.info.name}: {error}") from error
        if missing := self._missing(card):
            raise ClockRefused(missing, f"type: {lock_command(self.info, sm_mhz)}")
        failures = []
        for name, method in self._methods(card):
            try:
                method(sm_mhz)
                _verify_cap(card, sm_mhz)
            except VendorError as error:
                failures.append(f"{name}: {error}")
                self._roll_back(card, *before)
                if error.code in RIGHTS:
                    raise ClockRefused(
                        "locking clocks needs root and a writable /sys",
                        f"type: {lock_command(self.info, sm_mhz)}",
                    ) from error
            else:
                self.method = name
                break
        else:
            raise ClockRefused(f"{self.info.name} did not lock: {'; '.join(failures)}")
        if mem_mhz is not None:
            self.mem_refusal = "memory clock not locked: AMD devices keep theirs"

    def _methods(self, card: AmdCard) -> list[tuple[str, Method]]:
        def determinism(mhz: int) -> None:
            card.write(LEVEL_FILE, "perf_determinism")
            card.set_table(None, mhz)

        def limit(mhz: int) -> None:
            card.write(LEVEL_FILE, "manual")
            card.set_table(None, mhz)

        return [("perf_determinism", determinism), ("clk_limit", limit)]

    def _roll_back(self, card: AmdCard, level: str, table: Span | None) -> None:
        try:
            card.put_back(level, table)
        except VendorError as error:
            raise ClockError(
                f"{self.info.name}: a half-made lock could not be rolled back: {error}",
                f"type: {unlock_command(self.info)}",
            ) from error


def _verify_cap(card: AmdCard, mhz: int) -> None:
    """The table reads back what was written, where it can be read."""
    table = card.table()
    if table is not None and table[1] != mhz:
        raise VendorError(errno.EIO, f"the upper limit reads {table[1]} MHz")


def has_capability(bit: int) -> bool:
    """True when this process has the Linux capability of this number."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return os.geteuid() == 0
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return os.geteuid() == 0


def process_concern(pids: Iterable[int] | None) -> list[str]:
    """A concern when processes that are not ours compute on the device.

    A pid that does not exist here belongs to another pid namespace, so it may be our own: that is
    "cannot tell", not "somebody else".
    """
    if pids is None:
        return []
    others = [pid for pid in sorted(set(pids)) if _is_other(pid)]
    if not others:
        return []
    names = ", ".join(f"{pid}" for pid in others[:5])
    return [f"other processes compute on it (pid {names})"]


def _is_other(pid: int) -> bool:
    """True for a live process that is neither this one nor a descendant of it."""
    if _parent(pid) is None:
        return False
    ancestor: int | None = pid
    while ancestor:
        if ancestor == os.getpid():
            return False
        ancestor = _parent(ancestor)
    return True


def _parent(pid: int) -> int | None:
    """The parent of a live process (0 for the first one); None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name, in parentheses, may hold anything.
    return int(text.rpartition(")")[2].split()[1])


CPU_CLOCK = "the clock of a CPU is the governor's: see `cpupower frequency-set`"


def controller_for(
    info: DeviceInfo, *, sim: ClockController | None = None, access: Access = DIRECT
) -> ClockController:
    """The clock control of a device; `sim` is the simulated device's own.

    Raises:
        ClockRefused: a device whose clocks cannot be controlled, with the reason.
    """
    if info.kind in set(BACKENDS):
        made: ClockController = load(BACKENDS[Vendor(info.kind)].controller)(info, access)
        return made
    if info.kind == Vendor.SIM or info.simulated:
        if sim is None:
            raise ClockRefused(f"the simulated device {info.name} came without its clocks")
        return sim
    if info.kind == Vendor.CPU:
        raise ClockRefused(CPU_CLOCK)
    raise ClockRefused(f"the clocks of {info.name} ({info.kind}) cannot be controlled")

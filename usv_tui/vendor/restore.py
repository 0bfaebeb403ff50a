"""Putting clocks back: the one place that knows how, shared by the lease and the guardian.

Standard library only at import time (pynvml is imported when an NVIDIA device is opened), because
the guardian must be ready within a fraction of a second and must not drag torch or Textual along.
"""

import contextlib
import ctypes
import errno
import os
import re
import select
import shlex
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from usv_tui.errors import ClockError
from usv_tui.vendor.kinds import Vendor

UUID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
PCI_PATTERN = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SHAPES: dict[str, dict[str, int]] = {
    Vendor.NVIDIA: {"reset-sm": 1, "mem-reset": 1},
    Vendor.AMD: {"level": 4},
}
"""Steps of an undo, and how many words each has."""
LEVEL_PATTERN = re.compile(r"[a-z_]{2,24}")

NVML_UNINITIALIZED = 1
NVML_NOT_SUPPORTED = 3
NVML_FUNCTION_NOT_FOUND = 13
NVML_UNKNOWN = 999
NVML_NO_PERMISSION = 4
NVML_RIGHTS = frozenset({NVML_NO_PERMISSION, 17})
"""NO_PERMISSION, and OPERATING_SYSTEM: a control group keeps us from the device."""
NVML_LOST = frozenset({15, 16})
"""GPU_IS_LOST and RESET_REQUIRED."""
_FINAL = NVML_RIGHTS | NVML_LOST | {NVML_NOT_SUPPORTED, NVML_FUNCTION_NOT_FOUND}

COMPUTE_PROCESSES = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""Newest first. The name without a version hides which one is missing."""

_ATTEMPTS = 3
_RETRY_S = 0.2


class Access(NamedTuple):
    """How to reach the devices; only tests differ from the defaults."""

    sysfs: str = "/sys"
    nvml_library: str | None = None
    """Path of the NVML library; None lets pynvml find it."""


DIRECT = Access()


class VendorError(Exception):
    """A vendor library or the kernel said no: its code and its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# --- NVIDIA --------------------------------------------------------------------------------------


def nvml_code(error: BaseException) -> int:
    """The NVML return code behind whatever a binding raised; 999 for what is none of them.

    A symbol that a library lacks comes as an NVMLError, as another exception of the binding, or as
    an AttributeError where the binding itself lacks the function.
    """
    value = getattr(error, "value", None)
    if isinstance(value, int):
        return value
    is_absent = isinstance(error, AttributeError) or "LibraryMismatch" in type(error).__name__
    return NVML_FUNCTION_NOT_FOUND if is_absent else NVML_UNKNOWN


def _vendor_error(error: Exception, what: str = "") -> "VendorError":
    code = nvml_code(error)
    text = str(error).strip().split("\n", 1)[0] or type(error).__name__
    if code == NVML_FUNCTION_NOT_FOUND:
        text = "this driver is too old: it lacks the call"
    return VendorError(code, f"{what}: {text}" if what else text)


def load_nvml(library: str | None) -> types.ModuleType:
    """The initialised `pynvml` module.

    Raises:
        VendorError: no usable binding, no library or no driver.
    """
    try:
        with warnings.catch_warnings():
            # The deprecated `pynvml` distribution warns on every import of the name.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml  # noqa: PLC0415  the vendor library is loaded where it is used
    except Exception as error:
        raise VendorError(-1, f"pynvml cannot be imported: {error}") from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise VendorError(-1, "this `pynvml` is not the one of nvidia-ml-py")
    try:
        if library is not None and getattr(pynvml.nvmlLib, "_name", None) != library:
            pynvml.nvmlLib = ctypes.CDLL(library)
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  no public way to choose
        pynvml.nvmlInit()
    except OSError as error:
        raise VendorError(-1, f"NVML cannot be loaded: {error}") from error
    except Exception as error:
        raise _vendor_error(error, "NVML does not start") from error
    module: types.ModuleType = pynvml
    return module


class NvmlDevice:
    """One NVIDIA device, by UUID; a MIG instance stands for the whole board."""

    def __init__(self, uuid: str, library: str | None = None) -> None:
        self._uuid = uuid
        self._library = library
        self._nvml = load_nvml(library)
        self._handle = self._find()

    def _find(self) -> Any:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            if self._uuid.startswith("MIG-"):
                handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        except Exception as error:
            raise _vendor_error(error, self._uuid) from error
        return handle

    def call(self, name: str, *args: Any) -> Any:
        """Call `nvmlDevice…(handle, *args)`; after a foreign shutdown initialise once more.

        Raises:
            VendorError: with NVML's code.
        """
        try:
            return self._call(name, *args)
        except VendorError as error:
            if error.code != NVML_UNINITIALIZED:
                raise
        self._nvml = load_nvml(self._library)
        self._handle = self._find()
        return self._call(name, *args)

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *args)
        except Exception as error:
            raise _vendor_error(error) from error

    def ask(self, name: str, *args: Any) -> Any:
        """The same for a getter: None when the device does not answer."""
        try:
            return self.call(name, *args)
        except VendorError:
            return None

    def has(self, name: str) -> bool:
        """True when the driver has this call; nothing is called."""
        try:
            return self._nvml._nvmlGetFunctionPointer(name) is not None  # noqa: SLF001
        except Exception:  # noqa: BLE001  a binding may raise anything
            return False

    def compute_processes(self) -> list[Any] | None:
        """The processes that compute on it; drivers before 510 know an older form of the call."""
        for name in COMPUTE_PROCESSES:
            if (rows := self.ask(name)) is not None:
                return list(rows)
        return None

    def close(self) -> None:
        """Balance the initialisation. Never raises: there is nobody to mend it."""
        with contextlib.suppress(Exception):
            self._nvml.nvmlShutdown()


# --- AMD -----------------------------------------------------------------------------------------

LEVEL_FILE = "power_dpm_force_performance_level"
TABLE_FILE = "pp_od_clk_voltage"

_TABLE_LINE = re.compile(r"\s*\d+:\s*(\d+)\s*mhz", re.IGNORECASE)
_RANGE_LINE = re.compile(r"\s*sclk:\s*(\d+)\s*mhz\s+(\d+)\s*mhz", re.IGNORECASE)

Span = tuple[int, int]
"""Lowest and highest core clock, MHz."""


class AmdCard:
    """The clock files of one AMD device in sysfs, by PCI address."""

    def __init__(self, pci: str, sysfs: str = "/sys") -> None:
        if not PCI_PATTERN.fullmatch(pci):
            raise VendorError(errno.EINVAL, f"{pci!r} is not a PCI address")
        self.path = f"{sysfs}/bus/pci/devices/{pci}"

    def read(self, name: str) -> str:
        """A file's text, stripped.

        Raises:
            VendorError: with the errno.
        """
        try:
            with open(f"{self.path}/{name}", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                return file.read().strip()
        except OSError as error:
            raise VendorError(error.errno or errno.EIO, f"{name}: {error.strerror}") from error

    def write(self, name: str, text: str) -> None:
        """Write a file in one system call: sysfs takes each write as one command.

        Raises:
            VendorError: with the errno.
        """
        try:
            fd = os.open(
                f"{self.path}/{name}", os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            )
            try:
                os.write(fd, f"{text}\n".encode("ascii"))
            finally:
                os.close(fd)
        except OSError as error:
            raise VendorError(error.errno or errno.EIO, f"{name}: {error.strerror}") from error

    def is_writable(self, name: str) -> bool:
        """True when this process may write the file; false on a read-only mount, also for root."""
        return os.access(f"{self.path}/{name}", os.W_OK)

    def level(self) -> str:
        """The performance level."""
        return self.read(LEVEL_FILE)

    def table(self) -> Span | None:
        """Core clock limits in force; None when the card has no (readable) table."""
        try:
            text = self.read(TABLE_FILE)
        except VendorError:
            return None
        section = ""
        values: list[int] = []
        for line in text.splitlines():
            if line.rstrip().endswith(":") and not _TABLE_LINE.match(line):
                section = line.strip().rstrip(":").upper()
            elif section in {"OD_SCLK", "GFXCLK"} and (found := _TABLE_LINE.match(line)):
                values.append(int(found.group(1)))
        # Older kernels list the current clock between the two limits.
        return (values[0], values[-1]) if len(values) >= 2 else None

    def span(self) -> Span | None:
        """Core clocks that the kernel accepts, from OD_RANGE or else the DPM steps."""
        for name, pattern in ((TABLE_FILE, _RANGE_LINE), ("pp_dpm_sclk", _TABLE_LINE)):
            try:
                text = self.read(name)
            except VendorError:
                continue
            found = [match for line in text.splitlines() if (match := pattern.match(line))]
            if found and pattern is _RANGE_LINE:
                return int(found[0].group(1)), int(found[0].group(2))
            if len(found) >= 2:
                steps = sorted(int(match.group(1)) for match in found)
                return steps[0], steps[-1]
        return None

    def set_table(self, low_mhz: int | None, high_mhz: int) -> None:
        """Write the limits and commit them."""
        if low_mhz is not None:
            self.write(TABLE_FILE, f"s 0 {low_mhz}")
        self.write(TABLE_FILE, f"s 1 {high_mhz}")
        self.write(TABLE_FILE, "c")

    def put_back(self, level: str, table: Span | None) -> None:
        """Restore level and limits, and read both back.

        Level first, table after: the kernel takes table writes only in `manual` and
        `perf_determinism`, and resets the table on the way to the other levels.

        Raises:
            VendorError: a write was refused, or a file reads differently afterwards.
        """
        self.write(LEVEL_FILE, level)
        if table is not None and self.table() not in {table, None}:
            if level == "perf_determinism":
                self.set_table(None, table[1])
            else:
                if level != "manual":
                    self.write(LEVEL_FILE, "manual")
                self.set_table(*table)
                if level != "manual":
                    self.write(LEVEL_FILE, level)
        if self.level() != level:
            raise VendorError(errno.EIO, f"{LEVEL_FILE} reads {self.level()!r}, not {level!r}")
        if table is not None and self.table() not in {table, None}:
            raise VendorError(errno.EIO, f"core clock limits read {self.table()}, not {table}")


# --- Both ----------------------------------------------------------------------------------------


class Restorer:
    """Carries out an undo that was written down before. Knows a closed set of verbs.

    NVIDIA: `reset-sm`, `mem-reset`. AMD: `level WORD LOW HIGH`, the limits empty where unknown.
    Actions come from a file, so everything in them is checked before it is used.
    """

    def __init__(
        self,
        kind: str,
        uuid: str,
        pci: str | None,
        actions: Sequence[Sequence[str]],
        access: Access,
    ) -> None:
        self.kind = kind
        self.uuid = uuid
        self.pci = pci
        self.actions = [[str(word) for word in action] for action in actions]
        self._access = access
        self._nvml: NvmlDevice | None = None
        self._check()

    def _check(self) -> None:
        shapes = _SHAPES.get(self.kind)
        if shapes is None or not UUID_PATTERN.fullmatch(self.uuid) or not self.actions:
            raise ClockError(f"cannot undo: {self.kind!r} device {self.uuid!r} is not understood")
        for action in self.actions:
            if not action or shapes.get(action[0]) != len(action):
                raise ClockError(f"cannot undo: step {action!r} is not understood")
            if action[0] == "level":
                _, word, low, high = action
                if not LEVEL_PATTERN.fullmatch(word) or not all(
                    n == "" or (n.isascii() and n.isdigit()) for n in (low, high)
                ):
                    raise ClockError(f"cannot undo: step {action!r} is not understood")
        if self.kind == Vendor.AMD and not (self.pci and PCI_PATTERN.fullmatch(self.pci)):
            raise ClockError(f"cannot undo: {self.pci!r} is not a PCI address")

    def prepare(self) -> None:
        """Find the device and what the undo needs, before anything is locked.

        Raises:
            VendorError: it could not be undone from here.
        """
        if self.kind == Vendor.NVIDIA:
            if self._nvml is None:
                self._nvml = NvmlDevice(self.uuid, self._access.nvml_library)
            return
        card = self._card()
        card.level()
        if not card.is_writable(LEVEL_FILE):
            raise VendorError(errno.EACCES, f"{card.path}/{LEVEL_FILE} is not writable")

    def _card(self) -> AmdCard:
        assert self.pci is not None
        return AmdCard(self.pci, self._access.sysfs)

    def run(self) -> None:
        """Put the clocks back; passing trouble is tried three times.

        Raises:
            ClockError: it could not be done; the message has the command to type.
        """
        failures = [
            f"{action[0]}: {error}"
            for action in self.actions
            if (error := self._persist(self._step(action))) is not None
        ]
        if failures:
            raise ClockError(
                f"clocks of {self.uuid} could not be put back: {'; '.join(failures)}",
                f"type: {self.command()}",
            )

    def _persist(self, step: Callable[[], None]) -> VendorError | None:
        failure: VendorError | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                select.select([], [], [], _RETRY_S)
            try:
                step()
            except VendorError as error:
                failure = error
                if error.code in self._final():
                    break
            else:
                return None
        return failure

    def _final(self) -> frozenset[int]:
        """Codes for which a second try is of no use."""
        if self.kind == Vendor.NVIDIA:
            return _FINAL
        return frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENODEV})

    def _step(self, action: list[str]) -> Callable[[], None]:
        if action[0] == "level":
            return lambda: self._put_level_back(*action[1:])
        if action[0] == "mem-reset":
            return self._reset_memory
        return lambda: self._device().call("nvmlDeviceResetGpuLockedClocks")

    def _device(self) -> NvmlDevice:
        self.prepare()
        assert self._nvml is not None
        return self._nvml

    def _reset_memory(self) -> None:
        try:
            self._device().call("nvmlDeviceResetMemoryLockedClocks")
        except VendorError as error:
            # A board that cannot lock its memory clock cannot have it locked either.
            if error.code not in {NVML_NOT_SUPPORTED, NVML_FUNCTION_NOT_FOUND}:
                raise

    def _put_level_back(self, level: str, low: str, high: str) -> None:
        table = (int(low), int(high)) if low and high else None
        self._card().put_back(level, table)

    def command(self) -> str:
        """What somebody with root rights can type to the same effect."""
        return undo_command(self.kind, self.uuid, self.pci, self.actions)

    def close(self) -> None:
        """Release the vendor library."""
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


def undo_command(kind: str, uuid: str, pci: str | None, actions: Sequence[Sequence[str]]) -> str:
    """The shell line that does what `actions` say."""
    verbs = {action[0] for action in actions if action}
    if kind == Vendor.NVIDIA:
        flags = ["-rgc"] + (["-rmc"] if "mem-reset" in verbs else [])
        return "; ".join(f"sudo nvidia-smi -i {shlex.quote(uuid)} {flag}" for flag in flags)
    level, low, high = next((a[1:4] for a in actions if a and a[0] == "level"), ("auto", "", ""))
    card = f"/sys/bus/pci/devices/{pci}"
    lines = [f"echo {shlex.quote(level)} | sudo tee {card}/{LEVEL_FILE}"]
    if level in {"manual", "perf_determinism"} and low and high:
        steps = [f"s 0 {low}"] * (level == "manual") + [f"s 1 {high}", "c"]
        lines += [f"echo {shlex.quote(step)} | sudo tee {card}/{TABLE_FILE}" for step in steps]
    return "; ".join(lines)

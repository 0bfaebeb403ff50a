"""The NVML library: loading it, starting it, finding the handle of one given GPU, letting it go.

The one door for telemetry, clock control and the guardian; standard library only at import time.
`pynvml` may be an old fork or the deprecated distribution of that name, the library may be missing
or of another version than the driver, and its order of GPUs is not the framework's; each of these
ends in one clear line.
"""

import contextlib
import ctypes
import importlib
import shlex
import struct
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from usv_tui.errors import TelemetryError, TelemetryOff
from usv_tui.vendor.kinds import Access, VendorError

if TYPE_CHECKING:
    from usv_tui.model import DeviceInfo
    from usv_tui.seams import Identity

INSTALL_HINT = "pip install nvidia-ml-py, and remove `pynvml` and `nvidia-ml-py3`"

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 1, 2, 3, 4
NOT_FOUND, INSUFFICIENT_SIZE = 6, 7
GPU_IS_LOST, RESET_REQUIRED = 15, 16
FUNCTION_NOT_FOUND, UNKNOWN = 13, 999
RIGHTS = frozenset({NO_PERMISSION, 17})
"""NO_PERMISSION, and OPERATING_SYSTEM: a control group keeps us from the device."""
LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED})

COMPUTE_PROCESSES = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""Newest first. The name without a version hides which one is missing."""


_INIT_OFF = {
    NO_PERMISSION: ("no permission to use NVML", "in a container: start it with the GPU"),
    9: ("NVIDIA driver not loaded", "modprobe nvidia, or reboot"),
    12: (
        "NVML library not found",
        "libnvidia-ml.so.1 comes with the NVIDIA driver (Debian: libnvidia-ml1)",
    ),
    13: ("this NVML library is too old", "update the NVIDIA driver"),
    17: ("the operating system blocks NVML", "in a container: start it with the GPU"),
    18: (
        "NVIDIA driver and NVML library do not match",
        "the driver was updated: reboot, or reload it",
    ),
    28: ("no NVIDIA GPU found", ""),
}
MEMORY_TOLERANCE = 0.05


def nvml_code(error: BaseException) -> int:
    """The NVML return code behind whatever a binding raised; 999 for what is none of them.

    A symbol that a library lacks comes as an NVMLError, as another exception of the binding, or as
    an AttributeError where the binding itself lacks the function.
    """
    value = getattr(error, "value", None)
    if isinstance(value, int):
        return value
    is_absent = isinstance(error, AttributeError) or "LibraryMismatch" in type(error).__name__
    return FUNCTION_NOT_FOUND if is_absent else UNKNOWN


def _vendor_error(error: Exception, what: str = "") -> VendorError:
    code = nvml_code(error)
    text = str(error).strip().split("\n", 1)[0] or type(error).__name__
    if code == FUNCTION_NOT_FOUND:
        text = "this driver is too old: it lacks the call"
    return VendorError(code, f"{what}: {text}" if what else text)


def silence_deprecation() -> None:
    """Keep the deprecated `pynvml` distribution from printing a FutureWarning.

    Process-wide on purpose: torch imports `pynvml` too, from another thread.
    """
    warnings.filterwarnings(
        "ignore", message=".*pynvml package is deprecated.*", category=FutureWarning
    )


def load_pynvml(library_path: str | Path | None = None) -> Any:
    """The `pynvml` module, with its library replaced when a path is given.

    Raises:
        TelemetryOff: no module, one that is no NVML binding, or no library at that path.
    """
    silence_deprecation()
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except Exception as error:
        raise TelemetryOff(f"pynvml cannot be imported: {error}", INSTALL_HINT) from error
    if not all(hasattr(pynvml, name) for name in _NEEDED):
        raise TelemetryOff(f"unsuitable pynvml {pynvml_versions()}", INSTALL_HINT)
    if library_path is not None and getattr(pynvml.nvmlLib, "_name", None) != str(library_path):
        try:
            pynvml.nvmlLib = ctypes.CDLL(str(library_path))
        except OSError as error:
            raise TelemetryOff(f"NVML library not found: {error}") from error
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  holds the old library's
    return pynvml


_NEEDED = ("_nvmlGetFunctionPointer", "nvmlDeviceGetFieldValues", "nvmlDeviceGetHandleByUUID")


def pynvml_versions() -> str:
    """Which distributions put a module `pynvml` on the path."""
    # Late: it brings much along, and the guardian needs this module without it.
    metadata = importlib.import_module("importlib.metadata")
    found = []
    for name in ("nvidia-ml-py", "pynvml", "nvidia-ml-py3"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return ", ".join(found) or "of unknown origin"


class Nvml:
    """An initialised NVML library, and the way from an identity to a handle."""

    def __init__(self, library_path: str | Path | None = None) -> None:
        self.library_path = library_path
        self.api: Any = None
        self.found_by = ""
        """What the last device was found by: `UUID`, `PCI address`, or that it is the only one."""

    def open(self) -> None:
        """Load the library and initialise it.

        Raises:
            TelemetryOff: there is none, or it will not work until something is mended.
            TelemetryError: it failed now.
        """
        api = load_pynvml(self.library_path)
        try:
            api.nvmlInit()
        except Exception as error:
            code = nvml_code(error)
            if code in _INIT_OFF:
                raise TelemetryOff(*_INIT_OFF[code]) from error
            raise TelemetryError(f"NVML does not start: {error} ({code})") from error
        self.api = api

    def close(self) -> None:
        """Balance `open`. Never raises: there is nobody to mend it."""
        api, self.api = self.api, None
        if api is not None:
            with contextlib.suppress(Exception):
                api.nvmlShutdown()

    def find(self, identity: "Identity") -> Any:
        """The handle of exactly this device.

        By UUID, then by PCI address; by being the only one last. The names and memory sizes of
        both sides must agree.

        Raises:
            TelemetryOff: it cannot be told which device it is, or another one was found.
        """
        handle = self._handle(identity)
        self._verify(handle, identity)
        return handle

    def _handle(self, identity: "Identity") -> Any:
        api = self.api
        refusals = []
        for what, name in _names(identity):
            ask = api.nvmlDeviceGetHandleByUUID if what == "UUID" else _by_pci(api)
            try:
                handle = ask(name)
            except Exception as error:
                code = nvml_code(error)
                if code in (NO_PERMISSION, 17):
                    raise TelemetryOff(
                        f"no permission for {name}", "in a container: give it this GPU"
                    ) from error
                if code in (GPU_IS_LOST, RESET_REQUIRED):
                    raise TelemetryOff(f"{name}: {error}") from error
                refusals.append(f"{what} {name}: {error}")
            else:
                self.found_by = what
                return handle
        if identity.is_only and not refusals:
            return self._only()
        why = "; ".join(refusals) or "the framework tells neither UUID nor PCI address"
        raise TelemetryOff(f"cannot tell which GPU is device {identity.ordinal}", why)

    def _only(self) -> Any:
        api = self.api
        try:
            count = api.nvmlDeviceGetCount()
            if count == 1:
                self.found_by = "being the only GPU"
                return api.nvmlDeviceGetHandleByIndex(0)
        except Exception as error:
            raise TelemetryOff(f"NVML cannot open its only GPU: {error}") from error
        raise TelemetryOff("cannot tell which GPU is measured", f"NVML sees {count}")

    def handles(self) -> Iterable[tuple[int, Any]]:
        """Index and handle of every device that may be opened; the others are passed over."""
        api = self.api
        try:
            count = api.nvmlDeviceGetCount()
        except Exception as error:
            raise TelemetryError(f"NVML cannot count its GPUs: {error}") from error
        for index in range(count):
            if (handle := self.ask("nvmlDeviceGetHandleByIndex", index)) is not None:
                yield index, handle

    def ask(self, call: str, *args: Any) -> Any:
        """The answer to one call, None when there is none: for facts that are asked for once."""
        try:
            return getattr(self.api, call)(*args)
        except Exception:  # noqa: BLE001  a binding may raise anything
            return None

    def _verify(self, handle: Any, identity: "Identity") -> None:
        if self.is_mig(handle):
            return  # a slice's name and memory are not the board's
        name = self.ask("nvmlDeviceGetName", handle)
        if identity.name and name and _plain(name) != _plain(identity.name):
            raise TelemetryOff(f"NVML found {name} where the framework has {identity.name}")
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle)
        if identity.memory_bytes and memory and memory.total:
            ratio = identity.memory_bytes / memory.total
            if abs(ratio - 1) > MEMORY_TOLERANCE:
                raise TelemetryOff(
                    f"NVML found {memory.total} bytes where the framework has "
                    f"{identity.memory_bytes}"
                )

    def is_mig(self, handle: Any) -> bool:
        """True when the handle is a slice of a GPU (MIG)."""
        answer = self.ask("nvmlDeviceIsMigDeviceHandle", handle)
        return bool(getattr(answer, "value", answer))


class NvmlDevice:
    """One NVIDIA device, by UUID; a MIG instance stands for the whole board."""

    def __init__(self, uuid: str, library: str | None = None) -> None:
        self._uuid = uuid
        self._nvml = Nvml(library)
        self._open()

    def _open(self) -> None:
        """Start the library and find the device, or find it once more.

        Raises:
            VendorError: with NVML's code; -1 where there is no usable library.
        """
        try:
            self._nvml.open()
        except TelemetryError as error:
            is_told = error.__cause__ is not None and hasattr(error.__cause__, "value")
            code = nvml_code(error.__cause__) if is_told and error.__cause__ is not None else -1
            raise VendorError(code, str(error)) from error
        api = self._nvml.api
        try:
            handle = api.nvmlDeviceGetHandleByUUID(self._uuid)
            if self._uuid.startswith("MIG-"):
                handle = api.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        except Exception as error:
            raise _vendor_error(error, self._uuid) from error
        self._handle = handle

    def call(self, name: str, *args: Any) -> Any:
        """Call `nvmlDevice…(handle, *args)`; after a foreign shutdown initialise once more.

        Raises:
            VendorError: with NVML's code.
        """
        try:
            return self._call(name, *args)
        except VendorError as error:
            if error.code != UNINITIALIZED:
                raise
        self._open()
        return self._call(name, *args)

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml.api, name)(self._handle, *args)
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
            return self._nvml.api._nvmlGetFunctionPointer(name) is not None  # noqa: SLF001
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
        self._nvml.close()


class Undoer:
    """Lets the clocks of a board go: `reset-sm`, `mem-reset`."""

    FINAL = RIGHTS | LOST | {NOT_SUPPORTED, FUNCTION_NOT_FOUND}
    """Codes for which a second try is of no use."""
    NEEDS_PCI = False

    def __init__(self, uuid: str, pci: str | None, access: Access) -> None:  # noqa: ARG002  by UUID
        self._uuid = uuid
        self._library = access.nvml_library
        self._opened: NvmlDevice | None = None

    @staticmethod
    def knows(action: Sequence[str]) -> bool:
        """True for a step that is understood."""
        return list(action) in (["reset-sm"], ["mem-reset"])

    def prepare(self) -> None:
        """Find the device.

        Raises:
            VendorError: it could not be undone from here.
        """
        self._device()

    def _device(self) -> NvmlDevice:
        if self._opened is None:
            self._opened = NvmlDevice(self._uuid, self._library)
        return self._opened

    def step(self, action: Sequence[str]) -> Callable[[], None]:
        """What carries a step out."""
        if action[0] == "mem-reset":
            return self._reset_memory
        return lambda: self._device().call("nvmlDeviceResetGpuLockedClocks")

    def _reset_memory(self) -> None:
        try:
            self._device().call("nvmlDeviceResetMemoryLockedClocks")
        except VendorError as error:
            # A board that cannot lock its memory clock cannot have it locked either.
            if error.code not in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
                raise

    def close(self) -> None:
        """Release the library."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def undo_command(uuid: str, pci: str | None, actions: Sequence[Sequence[str]]) -> str:  # noqa: ARG001  one form for all
    """The shell line that does what `actions` say."""
    verbs = {action[0] for action in actions if action}
    flags = ["-rgc"] + (["-rmc"] if "mem-reset" in verbs else [])
    return "; ".join(f"sudo nvidia-smi -i {shlex.quote(uuid)} {flag}" for flag in flags)


def lock_command(info: "DeviceInfo", mhz: int) -> str:
    """What somebody with root rights types to lock the core clock."""
    return f"sudo nvidia-smi -i {shlex.quote(info.uuid)} -lgc {mhz},{mhz}"


def unlock_command(info: "DeviceInfo") -> str:
    """What somebody with root rights types to let the core clock go."""
    return undo_command(info.uuid, info.pci, [["reset-sm"]])


def _names(identity: "Identity") -> Iterable[tuple[str, str]]:
    if identity.uuid:
        uuid = identity.uuid
        if uuid.startswith(("GPU-", "MIG-")):
            yield "UUID", uuid
        else:
            yield "UUID", f"GPU-{uuid}"
            yield "UUID", f"MIG-{uuid}"
    if identity.pci:
        yield "PCI address", _long_pci(identity.pci)


def _long_pci(pci: str) -> str:
    """`0000:17:00.0` as NVML writes it, with eight digits of domain."""
    domain, _, rest = pci.partition(":")
    return f"{int(domain, 16):08x}:{rest}"


def _by_pci(api: Any) -> Callable[[str], Any]:
    return lambda name: api.nvmlDeviceGetHandleByPciBusId(name.encode())


def _plain(name: str) -> str:
    return name.casefold().removeprefix("nvidia ").strip()


def short_pci(bus_id: str) -> str:
    """`00000000:17:00.0` as the kernel writes it."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


class Field(NamedTuple):
    """One entry of a FieldValues answer."""

    code: int
    """Its own return code."""
    number: int | float | None
    """The value by its type; None for a type that is not known."""
    stamp_us: int
    """The driver's time of it; 0 when it has none."""
    latency_us: int


class FieldBlock:
    """A FieldValues call prepared for always the same ids.

    pynvml builds the structs anew for every call and reads them through Python properties; ten
    times a second that is most of what a look costs.
    """

    _ENTRY = struct.Struct("<IIqqii8s")
    """id, scope, time stamp, latency, value type, return code, value."""
    _TYPES = tuple(struct.Struct(f"<{code}") for code in "dIQQqiH")

    def __init__(self, api: Any, ids: Sequence[tuple[int, int]]) -> None:
        """Prepare for these ids and scopes."""
        self.ids = tuple(ids)
        self._api = api
        self._count = ctypes.c_int(len(self.ids))
        request = b"".join(self._ENTRY.pack(i, scope, 0, 0, 0, 0, b"") for i, scope in self.ids)
        self._buffer = ctypes.create_string_buffer(request, len(request))

    def fetch(self, handle: Any) -> list[Field]:
        """The values now, in the order of the ids.

        Raises:
            NVMLError: of pynvml: the call as a whole failed.
        """
        api = self._api
        function = api._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")  # noqa: SLF001
        failed = function(handle, self._count, self._buffer)
        if failed:
            raise api.NVMLError(failed)
        return [
            Field(code, self._number(kind, data), stamp, latency)
            for _, _, stamp, latency, kind, code, data in self._ENTRY.iter_unpack(self._buffer.raw)
        ]

    def _number(self, kind: int, data: bytes) -> int | float | None:
        if not 0 <= kind < len(self._TYPES):
            return None
        number: int | float = self._TYPES[kind].unpack_from(data)[0]
        return number


class XidEvents:
    """The driver's error events of one device, collected without ever waiting for one."""

    XID = 8
    """NVML's event type for a critical error (Xid)."""
    TIMEOUT = 10
    MOST = 100

    def __init__(self, api: Any, handle: Any) -> None:
        """Nothing is registered before the first `poll`."""
        self._api, self._handle = api, handle
        self._set: Any = None
        self._xids: list[int] = []

    def poll(self) -> list[int]:
        """All numbers so far.

        Raises:
            NVMLError: of pynvml: this device or driver has no such events.
        """
        api = self._api
        if self._set is None:
            events = api.nvmlEventSetCreate()
            try:
                api.nvmlDeviceRegisterEvents(self._handle, self.XID, events)
            except Exception:
                self._free(events)
                raise
            self._set = events
        while len(self._xids) < self.MOST and (xid := self._next()) is not None:
            self._xids.append(xid)
        return list(self._xids)

    def _next(self) -> int | None:
        try:
            event = self._api.nvmlEventSetWait_v2(self._set, 0)
        except Exception as error:
            if nvml_code(error) == self.TIMEOUT:
                return None
            raise
        return int(event.eventData) if event.eventType == self.XID else None

    def close(self) -> None:
        """Give the event set back. Never raises."""
        events, self._set = self._set, None
        if events is not None:
            self._free(events)

    def _free(self, events: Any) -> None:
        with contextlib.suppress(Exception):
            self._api.nvmlEventSetFree(events)

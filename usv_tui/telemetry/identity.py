"""From a framework's device to the telemetry of exactly that device.

Ordinals are worthless for this: torch numbers by CUDA_VISIBLE_DEVICES and speed, NVML by PCI
order, and a container hides some of both. So a device is known by its UUID, else by its PCI
address, else there is no telemetry: another GPU's figures would be worse than none.
"""

import ctypes
import importlib
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from usv_tui.errors import SensorGap, TelemetryOff
from usv_tui.model import DeviceInfo, Reading
from usv_tui.seams import Identity, TelemetrySource, Tier
from usv_tui.telemetry.host import HostTelemetry
from usv_tui.timesource import TimeSource
from usv_tui.vendor.kinds import BACKENDS, DIRECT, Access, Vendor, load
from usv_tui.vendor.nvml import silence_deprecation

PROPERTIES = (
    "name", "uuid", "total_memory", "multi_processor_count", "L2_cache_size", "pci_domain_id",
    "pci_bus_id", "pci_device_id", "gcnArchName", "major", "minor",
)  # fmt: skip
"""What torch tells of a device; each came with another version, so each may be absent."""

_DRIVERS: dict[str, tuple[str, str, str, str]] = {
    Vendor.NVIDIA: ("libcuda.so.1", "cuInit", "cuDeviceGet", "cuDeviceGetPCIBusId"),
    Vendor.AMD: ("libamdhip64.so", "hipInit", "hipDeviceGet", "hipDeviceGetPCIBusId"),
}


def properties_facts(properties: Any, *, ordinal: int, vendor: str) -> dict[str, Any]:
    """What a framework's property object tells, as plain data that can cross a pipe."""
    facts: dict[str, Any] = {"ordinal": ordinal, "vendor": vendor}
    for name in PROPERTIES:
        value = getattr(properties, name, None)
        if value is not None:
            facts[name] = value if isinstance(value, int | str) else str(value)
    return facts


def load_torch() -> Any:
    """Import torch. What it raises is the caller's to tell: any kind of exception."""
    silence_deprecation()  # torch imports `pynvml`, of whatever distribution
    return importlib.import_module("torch")


FRAMEWORKS = {backend.framework: vendor for vendor, backend in reversed(BACKENDS.items())}
"""Whose devices a kind of torch's are, for want of better knowledge: of two, the first."""


def device_facts(ordinal: int, torch: Any = None, kind: str = "cuda") -> dict[str, Any]:
    """What identifies torch's device: its properties, and the driver's PCI address if they lack it.

    Call it where torch's devices live (the measuring thread or process): the driver answers for
    that process's visible devices and their order.
    """
    torch = torch or load_torch()
    is_hip = kind == "cuda" and getattr(getattr(torch, "version", None), "hip", None)
    vendor = Vendor.AMD if is_hip else FRAMEWORKS[kind]
    try:
        properties = getattr(torch, kind).get_device_properties(ordinal)
    except (AttributeError, RuntimeError):
        properties = None  # the driver may know the device's address all the same
    facts = properties_facts(properties, ordinal=ordinal, vendor=vendor)
    if "uuid" not in facts and "pci_bus_id" not in facts:
        pci = driver_pci(vendor, ordinal)
        if pci is not None:
            facts["pci"] = pci
    return facts


def driver_pci(vendor: str, ordinal: int, library: str | None = None) -> str | None:
    """The PCI address of the driver's device, `dddd:bb:dd.f`; None when it cannot be had."""
    if vendor not in _DRIVERS:
        return None
    name, init, get, address = _DRIVERS[vendor]
    try:
        driver = ctypes.CDLL(library or name)
        device = ctypes.c_int()
        text = ctypes.create_string_buffer(64)
        failed = (
            getattr(driver, init)(0)
            or getattr(driver, get)(ctypes.byref(device), ordinal)
            or getattr(driver, address)(text, len(text), device)
        )
    except (OSError, AttributeError):
        return None
    return None if failed else text.value.decode("ascii", "replace").lower()


def identity_from(facts: Mapping[str, Any]) -> Identity:
    """The identity in what a framework told (`device_facts`, or the record `Chosen`)."""
    vendor = str(facts.get("vendor") or FRAMEWORKS.get(str(facts.get("kind")), Vendor.NVIDIA))
    uuid = _uuid(facts.get("uuid"), vendor)
    pci = str(facts["pci"]).lower() if facts.get("pci") else _pci(facts)
    if vendor == Vendor.INTEL:
        # The kernel knows no UUID of these; the framework's has the address in it, or nothing.
        uuid, pci = None, pci or _address_in(uuid)
    memory = facts.get("total_memory")
    return Identity(
        vendor=vendor,
        ordinal=int(facts.get("ordinal", 0)),
        name=str(facts.get("name", "")),
        uuid=uuid,
        pci=pci,
        memory_bytes=int(memory) if memory else None,
        is_only=uuid is None and pci is None,
    )


def _pci(facts: Mapping[str, Any]) -> str | None:
    bus, device = facts.get("pci_bus_id"), facts.get("pci_device_id")
    if bus is None or device is None:
        return None
    domain = int(facts.get("pci_domain_id") or 0)
    text = f"{domain:04x}:{int(bus):02x}:{int(device):02x}.0"
    # All zeros is what some releases answer when they do not know.
    return text if text.strip("0:.") else None


def _address_in(uuid: str | None) -> str | None:
    """The PCI address in a UUID of Intel's drivers, whose bytes some tools turn round.

    Maker, device and revision of two bytes each, then domain, bus, device and function.
    """
    try:
        data = bytes.fromhex((uuid or "").replace("-", ""))
    except ValueError:
        return None
    if data[-2:] == b"\x80\x86":
        data = data[::-1]
    if len(data) != 16 or data[:2] != b"\x86\x80":
        return None
    domain, bus, device, function = struct.unpack_from("<HBBB", data, 6)
    text = f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
    return text if text.strip("0:.") else None


def _uuid(value: Any, vendor: str) -> str | None:
    """The UUID in the form that the vendor's own tools use.

    HIP puts the sixteen hexadecimal digits of AMD's unique number as text into the sixteen bytes
    of a UUID, so torch shows the digits' character codes.
    """
    if not value:
        return None
    text = str(value)
    if not text.replace("-", "").strip("0"):
        return None
    if vendor != Vendor.AMD:
        return text
    try:
        decoded = bytes.fromhex(text.removeprefix("GPU-").replace("-", "")).decode("ascii")
        int(decoded, 16)
    except (ValueError, UnicodeDecodeError):
        return text
    return decoded.lower()


class NoTelemetry:
    """Stands for a device without telemetry: opening it tells why."""

    name = "none"

    def __init__(self, reason: str, hint: str = "") -> None:
        self._reason, self._hint = reason, hint

    def open(self) -> DeviceInfo:
        """There is nothing to open.

        Raises:
            TelemetryOff: always, with the reason.
        """
        raise TelemetryOff(self._reason, self._hint)

    def read(self, tiers: Tier) -> Reading:
        """There is nothing to read.

        Raises:
            SensorGap: always.
        """
        raise SensorGap(f"{self._reason} ({tiers.name})")

    def info(self) -> DeviceInfo:
        """Nothing is known."""
        return DeviceInfo(uuid="", name="", kind="none", note=self._reason)

    def close(self) -> None:
        """Nothing is held."""


def find_telemetry(
    device: str,
    facts: Mapping[str, Any] | None = None,
    *,
    own_pids: Iterable[int] = (),
    time_source: TimeSource | None = None,
    library_path: str | Path | None = None,
    sys_root: str | Path = "/sys",
) -> tuple[TelemetrySource, str]:
    """The telemetry of a device, and where it comes from; nothing is loaded or opened yet.

    What it was found by is known when it is open: `DeviceInfo.found_by`.

    Args:
        device: as torch names it: `cpu`, `cuda`, `cuda:1`.
        facts: what the framework told of it (`device_facts`); asked of torch here when None.
        own_pids: other processes that measure for us.
        time_source: the session's clock.
        library_path: another libnvidia-ml.so.1 than the system's.
        sys_root: where sysfs is.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return HostTelemetry(time_source=time_source), "the measured device is the CPU"
    if kind not in FRAMEWORKS:
        why = f"no telemetry for device {device!r}"
        return NoTelemetry(why), why
    if facts is None:
        try:
            facts = device_facts(int(number or 0), kind=kind)
        except Exception as error:  # noqa: BLE001  torch raises many kinds of things
            first = str(error).strip().split("\n", 1)[0]
            why = f"torch does not tell which GPU {device} is: {first}"
            return NoTelemetry(why), why
    identity = identity_from(facts)
    access = Access(str(sys_root), None if library_path is None else str(library_path))
    return watch(identity, access, time_source, own_pids)


def watch(
    identity: Identity,
    access: Access = DIRECT,
    time_source: TimeSource | None = None,
    own_pids: Iterable[int] = (),
) -> tuple[TelemetrySource, str]:
    """The telemetry of the device of an identity, and where it comes from."""
    backend = BACKENDS.get(Vendor(identity.vendor)) if identity.vendor in set(Vendor) else None
    if backend is None:
        why = f"no telemetry for a device of {identity.vendor}"
        return NoTelemetry(why), why
    source: TelemetrySource = load(backend.telemetry)(identity, access, time_source, own_pids)
    return source, backend.told_by

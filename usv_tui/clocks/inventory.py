"""Which devices have clocks to control, found without torch, and which of them is meant."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from usv_tui.errors import DeviceError, TelemetryError
from usv_tui.model import DeviceInfo
from usv_tui.seams import Identity
from usv_tui.vendor.amdgpu import LEVEL_FILE, gpu_devices
from usv_tui.vendor.kinds import BACKENDS, DIRECT, Access, Vendor, load
from usv_tui.vendor.nvml import Nvml, short_pci
from usv_tui.vendor.sysfs import read_text

MIN_PREFIX = 6
"""Shortest beginning of a UUID that may stand for it."""


def list_devices(access: Access = DIRECT) -> list[DeviceInfo]:
    """The devices of every vendor in turn; one that we may not open is left out."""
    return [info for backend in BACKENDS.values() for info in load(backend.devices)(access)]


def nvidia_devices(access: Access) -> list[DeviceInfo]:
    """The boards that NVML shows."""
    nvml = Nvml(access.nvml_library)
    try:
        nvml.open()
    except TelemetryError:
        return []
    try:
        driver = nvml.ask("nvmlSystemGetDriverVersion")
        return [
            info
            for index, handle in nvml.handles()
            if (info := _nvidia_info(nvml, index, handle, driver)) is not None
        ]
    except TelemetryError:
        return []
    finally:
        nvml.close()


def _nvidia_info(nvml: Nvml, index: int, handle: Any, driver: str | None) -> DeviceInfo | None:
    """What one board is; None without a UUID, by which alone it could be meant."""
    ask = nvml.ask
    uuid, pci = ask("nvmlDeviceGetUUID", handle), ask("nvmlDeviceGetPciInfo", handle)
    if not uuid:
        return None
    return DeviceInfo(
        uuid=_text(uuid),
        name=_text(ask("nvmlDeviceGetName", handle) or "NVIDIA GPU"),
        kind=Vendor.NVIDIA,
        pci=short_pci(_text(pci.busId)) if pci else None,
        driver=driver and _text(driver),
        index=index,
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def amd_devices(access: Access) -> list[DeviceInfo]:
    """The cards of the amdgpu driver that have a performance level."""
    cards = [
        card for card in gpu_devices(Path(access.sysfs)).values() if (card / LEVEL_FILE).exists()
    ]
    return [_amd_info(index, card) for index, card in enumerate(cards)]


def _amd_info(index: int, card: Path) -> DeviceInfo:
    unique = read_text(card / "unique_id")
    return DeviceInfo(
        uuid=f"GPU-{unique}" if unique else f"amd-{card.name}",
        name=read_text(card / "product_name") or f"AMD GPU {card.name}",
        kind=Vendor.AMD,
        pci=card.name,
        driver="amdgpu",
        index=index,
    )


def select(text: str, devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """The device named by UUID (or its unique beginning) or PCI address; the only one if empty.

    Raises:
        DeviceError: none, or several; the message lists what there is.
    """
    if not devices:
        raise DeviceError("no GPU with clocks to control was found", "usv-tui doctor says why")
    known = ", ".join(f"{device.uuid} ({device.name})" for device in devices)
    if not text:
        if len(devices) > 1:
            raise DeviceError("which device?", f"--device takes one of {known}")
        return devices[0]
    word = text.lower()
    exact = [d for d in devices if word in {d.uuid.lower(), (d.pci or "").lower()}]
    begun = [
        d
        for d in devices
        if len(word) >= MIN_PREFIX
        and (
            d.uuid.lower().startswith(word) or d.uuid.lower().removeprefix("gpu-").startswith(word)
        )
    ]
    found = exact or begun
    if len(found) != 1:
        raise DeviceError(f"{text!r} names {len(found) or 'no'} device", f"there are: {known}")
    return found[0]


def match(identity: Identity, devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """The device that a framework measures: by UUID, then by PCI address, else none.

    Raises:
        DeviceError: it cannot be told which one it is.
    """
    ours = [device for device in devices if device.kind == identity.vendor]
    if identity.uuid:
        uuid = _bare(identity.uuid)
        for device in ours:
            if _bare(device.uuid) == uuid:
                return device
        if identity.vendor == Vendor.NVIDIA:
            # A slice of a board has a UUID of its own, and the PCI address of the whole.
            part = f"MIG-{uuid}"
            for device in ours:
                if device.pci and device.pci == identity.pci:
                    return msgspec.structs.replace(device, name=identity.name, slice=part)
            return DeviceInfo(uuid=part, name=identity.name, kind=Vendor.NVIDIA, slice=part)
    if identity.pci and identity.pci.strip("0:."):
        for device in ours:
            if device.pci == identity.pci:
                return device
    if identity.is_only and len(ours) == 1 and not identity.uuid and not identity.pci:
        return ours[0]
    raise DeviceError(
        f"cannot tell which GPU is device {identity.ordinal}",
        f"there are: {', '.join(device.uuid for device in ours) or 'none to control'}",
    )


def _bare(uuid: str) -> str:
    """A UUID without what the vendors' tools put in front of it."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-").removeprefix("0x")

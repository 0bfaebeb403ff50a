"""Which devices have clocks to control, found without torch."""

from pathlib import Path

from usv_tui.device.restore import DIRECT, LEVEL_FILE, Access, VendorError, load_nvml
from usv_tui.model import DeviceInfo


def list_devices(access: Access = DIRECT) -> list[DeviceInfo]:
    """NVIDIA devices, then AMD ones; a device that we may not open is left out."""
    return [*_list_nvidia(access), *_list_amd(access)]


def _list_nvidia(access: Access) -> list[DeviceInfo]:
    try:
        nvml = load_nvml(access.nvml_library)
    except VendorError:
        return []
    found = []
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        driver = None
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = (
                _text(nvml.nvmlDeviceGetUUID(handle)),
                _text(nvml.nvmlDeviceGetName(handle)),
            )
        except nvml.NVMLError:
            continue
        found.append(DeviceInfo(uuid=uuid, name=name, kind="nvidia", driver=driver, index=index))
    nvml.nvmlShutdown()
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _list_amd(access: Access) -> list[DeviceInfo]:
    root = Path(access.sysfs) / "bus/pci/devices"
    found = []
    for index, level_file in enumerate(sorted(root.glob(f"*/{LEVEL_FILE}"))):
        card = level_file.parent
        try:
            vendor = (card / "vendor").read_text().strip()
        except OSError:
            continue
        if vendor != "0x1002":
            continue
        try:
            serial = (card / "unique_id").read_text().strip()
        except OSError:
            serial = ""
        found.append(
            DeviceInfo(
                uuid=f"GPU-{serial}" if serial else f"AMD-{card.name}",
                name=_amd_name(card),
                kind="amd",
                pci=card.name,
                driver="amdgpu",
                index=index,
            )
        )
    return found


def _amd_name(card: Path) -> str:
    try:
        return (card / "product_name").read_text().strip() or f"AMD {card.name}"
    except OSError:
        return f"AMD {card.name}"

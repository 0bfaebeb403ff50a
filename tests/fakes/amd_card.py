"""A sysfs tree with AMD cards, as the amdgpu driver would show them."""

import struct
from pathlib import Path

NONE16, NONE32, NONE64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def metrics_v1_3(*, stamp=1000, **values):
    """A Radeon's or an MI200's table, 120 bytes."""
    v = {
        "edge": 55, "hotspot": 68, "mem": 62, "activity": 97, "power": 250, "energy": 1 << 20,
        "gfx": 1700, "uclk": 1600, "throttle": 0, "firmware": stamp, "clock": stamp * 10,
    } | values  # fmt: skip
    data = bytearray(b"\xff" * 120)
    struct.pack_into("<HBB", data, 0, 120, 1, 3)
    struct.pack_into("<HHH", data, 4, v["edge"], v["hotspot"], v["mem"])
    struct.pack_into("<H", data, 16, v["activity"])
    struct.pack_into("<H", data, 22, v["power"])
    struct.pack_into("<QQ", data, 24, v["energy"], v["clock"])
    struct.pack_into("<H", data, 54, v["gfx"])
    struct.pack_into("<H", data, 58, v["uclk"])
    struct.pack_into("<Q", data, 96, v["firmware"])
    struct.pack_into("<Q", data, 112, v["throttle"])
    return bytes(data)


def metrics_v1_7(*, stamp=1000, gfx=(2100, 2050, 1990, 2100, 2100, 2100), residency=None, **values):
    """An MI300's table, 2208 bytes: a clock for each die, throttling in cycles."""
    v = {"hotspot": 71, "mem": 60, "power": 700, "activity": 100, "energy": 1 << 24} | values
    data = bytearray(b"\xff" * 2208)
    struct.pack_into("<HBB", data, 0, 2208, 1, 7)
    struct.pack_into("<HHHHH", data, 4, v["hotspot"], v["mem"], 50, v["power"], v["activity"])
    struct.pack_into("<QQ", data, 24, v["energy"], stamp * 10)
    struct.pack_into("<6I", data, 40, *(residency or (stamp, 0, 0, 0, 0, 0)))
    struct.pack_into("<Q", data, 288, stamp)
    struct.pack_into(f"<{len(gfx)}H", data, 296, *gfx)
    struct.pack_into("<H", data, 336, 1300)
    return bytes(data)


def metrics_v1_9(*, stamp=1000, gfx=(2100, 2000), power=650):
    """The newest form: a list of attributes with their types."""

    def attribute(identity, code, *numbers):
        kind = "BbHhIiQq".index(code)
        head = struct.pack("<Q", kind << 20 | identity << 10 | len(numbers))
        return head + struct.pack(f"<{len(numbers)}{code}", *numbers)

    parts = [
        attribute(0, "H", 66), attribute(1, "H", 58), attribute(3, "H", power),
        attribute(4, "H", 90), attribute(7, "Q", 1 << 22), attribute(17, "H", 320),
        attribute(9, "I", 5000), attribute(10, "I", 0), attribute(11, "I", 100),
        attribute(12, "I", 0), attribute(13, "I", 0), attribute(14, "I", 0),
        attribute(32, "Q", stamp), attribute(33, "H", *gfx), attribute(37, "H", 1300),
    ]  # fmt: skip
    body = b"".join(parts)
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(parts)) + body


class FakeCard:
    """One card in a tree; files are written where the driver has them."""

    def __init__(self, sys_root: Path, number: int = 0, pci: str = "0000:03:00.0", **facts) -> None:
        self.root = sys_root
        self.pci = pci
        self.device = sys_root / "bus/pci/devices" / pci
        (self.device / f"drm/renderD{128 + number}").mkdir(parents=True)
        self.hwmon = self.device / f"hwmon/hwmon{number}"
        self.hwmon.mkdir(parents=True)
        (self.device / "power").mkdir()
        files = {
            "vendor": "0x1002\n",
            "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={pci}\n",
            "unique_id": facts.get("unique_id", f"fedcba987654321{number}") + "\n",
            "product_name": facts.get("name", "AMD Instinct MI210") + "\n",
            "power/runtime_status": "active\n",
            "pp_dpm_sclk": "0: 500Mhz\n1: 1200Mhz *\n2: 1700Mhz\n",
            "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz *\n",
            "power_dpm_force_performance_level": "auto\n",
            "mem_info_vram_total": str(64 << 30) + "\n",
            "gpu_busy_percent": "96\n",
        }
        for name, text in files.items():
            self.write(name, text)
        sensors = {
            "temp1_input": "61000", "temp1_label": "edge", "temp1_crit": "100000",
            "temp2_input": "73000", "temp2_label": "junction", "temp2_crit": "110000",
            "temp3_input": "66000", "temp3_label": "mem", "temp3_emergency": "115000",
            "power1_average": "245000000", "power1_cap": "300000000", "freq1_input": "1650000000",
            "freq2_input": "1600000000", "pwm1": "51",
        }  # fmt: skip
        for name, text in sensors.items():
            (self.hwmon / name).write_text(text + "\n")
        self.metrics(metrics_v1_3())

    def write(self, name: str, text: str) -> None:
        """Write a file of the device."""
        (self.device / name).write_text(text)

    def metrics(self, data: bytes) -> None:
        """Replace the metrics table in place, so that open descriptors see it."""
        with (self.device / "gpu_metrics").open("wb") as file:
            file.write(data)

    def process(self, pid: int, used: int, gpu_id: int = 7777) -> None:
        """A process that holds memory on the card, in the compute driver's list."""
        folder = self.root / f"class/kfd/kfd/proc/{pid}"
        folder.mkdir(parents=True)
        (folder / f"vram_{gpu_id}").write_text(f"{used}\n")

    def kfd_node(self, gpu_id: int = 7777) -> None:
        """The card's node in the compute driver's topology."""
        bus = int(self.pci.split(":")[1], 16)
        node = self.root / "class/kfd/kfd/topology/nodes/1"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu_id}\n")
        (node / "properties").write_text(f"simd_count 416\nlocation_id {bus << 8}\ndomain 0\n")

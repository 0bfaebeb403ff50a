"""A real accelerator backend outside of torch, timed by its events and held against its own log.

`backend.cpp` is compiled (a C++ compiler and ninja are needed) and becomes torch's accelerator:
what torch does for any backend (`torch.accelerator`, `torch.Event`, `torch.Stream`) is then real,
and only the device is made up. For each length of task: what the timer reads and what the device
did; then what is said of rows with a known fault.

    PYTHONPATH=. python benchmarks/self/backend.py
"""

import statistics
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.cpp_extension import load

from usv_tui.timers.events import EventTimer
from usv_tui.timers.wall import Slot

NAME = "ownacc"
LENGTHS_US = (50, 200, 1000, 5000)
OTHER = 90


def backend() -> Any:
    """Compile it, and make it the accelerator of this process."""
    compiled = load("own_backend", [str(Path(__file__).with_suffix(".cpp"))], extra_cflags=["-O1"])
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True  # type: ignore[attr-defined]
    module.device_count = lambda: 1  # type: ignore[attr-defined]
    module.current_device = lambda: 0  # type: ignore[attr-defined]
    torch._register_device_module(NAME, module)  # noqa: SLF001  the documented way
    compiled.begin()
    return compiled


def windows(timer: EventTimer, slot: Slot, n: int) -> list[int]:
    """So many windows of a row."""
    found: list[int] = []
    for i in range(0, n, 10):
        timer.enqueue(i, [slot] * 10, 1)
        found += [w for s in timer.harvest(wait=i + 10 >= n) for w in s.window_ns]
    return found


def rows(device: Any) -> dict[str, Callable[[], object]]:
    """Rows whose fault is known."""
    side = torch.Stream(device=NAME)

    def elsewhere() -> None:
        device.task(200_000, OTHER)
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            device.task(1_000_000, OTHER)

    def waits() -> None:
        device.task(300_000, OTHER)
        torch.accelerator.synchronize()

    def python() -> None:
        sum(range(20_000))

    return {
        "clean": lambda: device.task(200_000, OTHER),
        "1 ms elsewhere": elsewhere,
        "waits": waits,
        "Python alone": python,
    }


def main() -> int:
    """Print both tables."""
    device = backend()
    timer = EventTimer(torch, probe=False)
    print(f"{timer.info.reason}; floor {timer.info.floor_ns} ns")
    print("task us   read us   log us   ratio")
    for us in LENGTHS_US:
        slot = Slot(us, lambda us=us: device.task(us * 1000, us))  # type: ignore[misc]
        read = statistics.median(windows(timer, slot, 200 if us < 5000 else 40)) / 1e3
        true = statistics.median(e - b for tag, b, e in device.log() if tag == us) / 1e3
        print(f"{us:7} {read:9.2f} {true:8.2f} {read / true:7.4f}")
    for name, fn in rows(device).items():
        fn()
        torch.accelerator.synchronize()
        said = [code for code, _ in timer.examine(Slot(0, fn))]
        print(f"{name}: {', '.join(said) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

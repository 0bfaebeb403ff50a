"""usv-tui on the CPU, with the fake NVIDIA board as its watched device: locks in whole runs.

Run as a program, with the environment of `FakeBoard` and usv-tui's arguments.
"""

import sys

from tests.fakes.clocks import NVIDIA
from usv_tui.cli import main as cli
from usv_tui.cli import watch
from usv_tui.model import DeviceInfo, Reading
from usv_tui.seams import Tier
from usv_tui.timesource import MonotonicTime


class Board:
    """Sensors of the fake board: always at the clock that the tests lock it to."""

    name = "fake board"

    def open(self) -> DeviceInfo:
        """There."""
        return NVIDIA

    def info(self) -> DeviceInfo:
        """As it was opened."""
        return NVIDIA

    def read(self, tiers: Tier) -> Reading:
        """Under load, at 1410 MHz."""
        now_ns = MonotonicTime().now_ns()
        return Reading(device=NVIDIA.uuid, at_ns=now_ns, sm_mhz=1410.0, reasons=0, util_pct=99.0)

    def close(self) -> None:
        """Nothing is held."""


if __name__ == "__main__":
    real = watch.watcher_for
    setattr(watch, "watcher_for", lambda _source=None, own_pids=(): real(Board(), own_pids))  # noqa: B010
    sys.exit(cli.main())

"""The seams to devices. Each has a simulated twin in `usv_tui.sim.device`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Protocol

from usv_tui.model import ClockState, ClockUndo, DeviceInfo, Reading


@dataclass(frozen=True, slots=True)
class Identity:
    """Which physical device a framework's ordinal means, in terms that other libraries know."""

    vendor: str
    """nvidia, amd or intel."""
    ordinal: int
    """The framework's own number: for messages only."""
    name: str = ""
    uuid: str | None = None
    """As the framework spells it, without a `GPU-` or `MIG-` prefix."""
    pci: str | None = None
    """`dddd:bb:dd.f` in lower case."""
    memory_bytes: int | None = None
    is_only: bool = False
    """True when the framework sees one device and nothing narrows what it may see."""


class Tier(IntFlag):
    """What to read this time; each tier has its own rate (see `telemetry.poller`)."""

    FAST = 1
    """Clock, power, energy, throttle counters."""
    REASONS = 2
    """Clock-event reasons: the dearest of the light calls."""
    SLOW = 4
    """Temperatures, memory clock, utilisation, fan, limits."""
    RARE = 8
    """Other processes, links; never while a timed block runs."""
    ALL = 15


class TelemetrySource(Protocol):
    """One watched device. All calls come from one thread, the poller's."""

    name: str

    def open(self) -> DeviceInfo:
        """Load the library, find the device, learn its sensors.

        Raises:
            TelemetryError: no telemetry here; the message says why and how to mend it.
        """
        ...

    def read(self, tiers: Tier) -> Reading:
        """Read the sensors of the given tiers; the others repeat their last value with its age.

        Raises:
            SensorGap: nothing this time.
            DeviceLost: never again.
        """
        ...

    def info(self) -> DeviceInfo:
        """The device and what is known of its sensors now (costs and refresh are learned)."""
        ...

    def close(self) -> None:
        """Release the library. Never raises."""
        ...


class ClockController(Protocol):
    """Clock control of one device, by UUID. Raw: `clocks.lease` makes it safe."""

    uuid: str
    kind: str

    def state(self) -> ClockState:
        """What can be read: supported clocks, rights, AMD level."""
        ...

    def plan_undo(self) -> ClockUndo:
        """How to put back what is there now; touches nothing."""
        ...

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        """Fix the core clock (and the memory clock when given).

        Raises:
            ClockRefused: with the reason; the device is as it was before.
        """
        ...

    def undo(self, undo: ClockUndo) -> None:
        """Put the clocks back.

        Raises:
            ClockError: it could not be done; the message has the command to type.
        """
        ...

    def supported_mhz(self) -> Sequence[int]:
        """Core clocks that can be asked for, ascending; empty when unknown."""
        ...

"""Whatever step of a lease fails, the clocks are back, or an error and the journal say not."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from usv_tui.clocks.controllers import HardwareClocks
from usv_tui.clocks.lease import acquire
from usv_tui.errors import ClockError, ClockRefused
from usv_tui.model import ClockState, ClockUndo, DeviceInfo
from usv_tui.vendor.kinds import DIRECT

INFO = DeviceInfo(uuid="GPU-1234", name="Fake", kind="nvidia")
STEPS = [
    "state", "plan", "arm", "lock refused", "lock broken", "interrupted", "change", "body",
    "undo", "undo later", "fire",
]  # fmt: skip


class World:
    """A device, its guardian, and which steps fail."""

    def __init__(self, faults: set[str]) -> None:
        self.faults = faults
        self.locked: int | None = None
        self.is_armed = False
        self.undone = 0

    def maybe(self, step: str, error: BaseException) -> None:
        if step in self.faults:
            raise error

    # The guardian's side.
    def arm(self, undo: Mapping[str, Any], *_: object) -> "World":
        assert self.locked is None
        self.maybe("arm", ClockRefused("no guardian"))
        self.is_armed = True
        return self

    def dismiss(self) -> None:
        self.is_armed = False

    def fire(self) -> bool:
        if "fire" in self.faults:
            return False
        self.is_armed = False
        self.locked = None
        return True

    def leave(self) -> None:
        """Act without being waited for."""
        self.fire()

    def is_alive(self) -> bool:
        return self.is_armed


class Clocks(HardwareClocks):
    """Fails where the world says so."""

    kind = "nvidia"

    def __init__(self, world: World) -> None:
        super().__init__(INFO, DIRECT)
        self.world = world

    def state(self) -> ClockState:
        self.world.maybe("state", ClockRefused("no driver"))
        return ClockState()

    def plan_undo(self) -> ClockUndo:
        self.world.maybe("plan", ClockRefused("cannot be read"))
        return ClockUndo(uuid=INFO.uuid, kind="nvidia", actions=[["reset-sm"]])

    def plan_reset(self) -> list[list[str]]:
        return [["reset-sm"]]

    def lock(self, sm_mhz: int, mem_mhz: int | None = None) -> None:
        assert self.world.is_armed, "never without a guardian"
        self.world.maybe("lock refused", ClockRefused("no rights"))
        if self.world.locked is not None:
            self.world.maybe("change", ClockRefused("busy"))
        self.world.locked = sm_mhz
        self.world.maybe("lock broken", ClockError("half made"))
        self.world.maybe("interrupted", KeyboardInterrupt())

    def undo(self, undo: ClockUndo) -> None:
        self.world.undone += 1
        if self.world.undone == 1:
            self.world.maybe("undo", ClockError("not now"))
        else:
            self.world.maybe("undo later", ClockError("not now either"))
        self.world.locked = None

    def supported_mhz(self) -> list[int]:
        return [500, 1000, 1500]


class Failure(Exception):
    """The user's code."""


@given(st.sets(st.sampled_from(STEPS)))
def test_a_lease_that_fails_anywhere_leaves_nothing_locked_in_silence(faults: set[str]) -> None:
    """Unlocked with nothing left over, or an error with the journal kept for the next start."""
    world = World(faults)
    error: BaseException | None = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clocks"
        try:
            with acquire(Clocks(world), 1000, path=path, arm=world.arm) as lease:
                lease.change(1500)
                world.maybe("body", Failure())
        except (ClockError, Failure, KeyboardInterrupt) as raised:
            error = raised
        is_on_record = (path / "GPU-1234.json").exists()

    if world.locked is None:
        assert not world.is_armed
    else:
        assert isinstance(error, ClockError)
        assert not isinstance(error, ClockRefused), "a refusal promises that nothing was changed"
        assert is_on_record
    if not faults:
        assert error is None
        assert world.locked is None
        assert not is_on_record

"""Which clock to lock at, and what to type where we may not."""

from collections.abc import Sequence
from typing import NamedTuple

from usv_tui.errors import ClockRefused, UsageError
from usv_tui.model import Advice, ClockHold, ClockState, DeviceInfo
from usv_tui.vendor.restore import door

PLAUSIBLE_MHZ = (10, 20_000)
"""Bounds for a device that does not list its clocks."""
UNLISTED_STEP_MHZ, UNLISTED_TOP_MHZ = 15, 3000
"""What is offered where a device lists no clocks; the driver rounds, or refuses."""
SUSTAINABLE_SHARE = 0.75
"""Share of the maximum that power-capped boards were seen to hold; for want of better knowledge."""
MAY_LOCK = "the rights are there; only trying shows whether the driver takes it"
NEEDS_RIGHTS = "needs root"
"""In the reason of a device that only more rights keep from being locked."""
FOREIGN_WORDS = "somebody else may have locked it"


class Choice(NamedTuple):
    """A clock to ask for, and why it is this one."""

    mhz: int
    note: str = ""


def nearest_supported(mhz: int, supported: Sequence[int]) -> Choice:
    """The highest supported clock not above `mhz`; the note says so when that is another one.

    Raises:
        ClockRefused: zero, negative, or outside what the device supports.
    """
    if mhz <= 0:
        raise ClockRefused(f"{mhz} MHz is not a clock")
    if not supported:
        low, high = PLAUSIBLE_MHZ
        if not low <= mhz <= high:
            raise ClockRefused(f"{mhz} MHz is no plausible clock ({low}-{high} MHz)")
        return Choice(mhz, "the device does not list its clocks: taken as asked for")
    low, high = min(supported), max(supported)
    if not low <= mhz <= high:
        raise ClockRefused(f"{mhz} MHz is outside what the device supports ({low}-{high} MHz)")
    chosen = max(step for step in supported if step <= mhz)
    if chosen == mhz:
        return Choice(chosen)
    return Choice(chosen, f"{mhz} MHz is not a step of this device: rounded down to {chosen} MHz")


def offered_mhz(info: DeviceInfo | None, supported: Sequence[int]) -> Sequence[int]:
    """The clocks to choose among: those that are listed, else a grid up to the maximum."""
    if supported:
        return supported
    top = (info.max_sm_mhz if info is not None else None) or UNLISTED_TOP_MHZ
    return range(UNLISTED_STEP_MHZ * 20, top + 1, UNLISTED_STEP_MHZ)


def sustainable(info: DeviceInfo, supported: Sequence[int], advice: Advice | None = None) -> Choice:
    """The clock to propose: advised from the run, else the base clock, else a share of the maximum.

    Never the maximum: a power-capped board then swings, which is what a lock should end.

    Raises:
        ClockRefused: nothing is known of the device's clocks.
    """
    if advice is not None and advice.lock_mhz is not None:
        return Choice(advice.lock_mhz, "advised from this run: held while it was watched")
    if info.base_sm_mhz:
        return Choice(nearest_supported(info.base_sm_mhz, supported).mhz, "the base clock")
    top = supported[-1] if supported else info.max_sm_mhz
    if not top:
        raise ClockRefused(f"{info.name} does not tell its clocks: say how many MHz")
    share = int(top * SUSTAINABLE_SHARE)
    mhz = nearest_supported(share, supported).mhz
    return Choice(mhz, f"base clock unknown: {SUSTAINABLE_SHARE:.0%} of the maximum {top} MHz")


def parse_target(
    text: str, info: DeviceInfo, supported: Sequence[int], advice: Advice | None = None
) -> Choice:
    """`MHZ`, `base` or `advice` as a supported clock.

    Raises:
        UsageError: neither of them.
        ClockRefused: the clock is not known or not supported.
    """
    word = text.strip().lower()
    if word == "base":
        if not info.base_sm_mhz:
            raise ClockRefused(f"the base clock of {info.name} is not known: say how many MHz")
        return sustainable(info, supported)
    if word == "advice":
        if advice is None or advice.lock_mhz is None:
            raise ClockRefused("there is no advised clock yet", "it comes out of a watched run")
        return sustainable(info, supported, advice)
    number = word.removesuffix("mhz").strip()
    if not (number.isascii() and number.lstrip("-").isdigit()):
        raise UsageError(f"{text!r} is not a clock", "give a number of MHz, base or advice")
    return nearest_supported(int(number), supported)


def lock_command(info: DeviceInfo, mhz: int) -> str:
    """What somebody with root rights types to lock the core clock."""
    found = door(info.kind)
    return "" if found is None else str(found.lock_command(info, mhz))


def unlock_command(info: DeviceInfo) -> str:
    """What somebody with root rights types to let the core clock go."""
    found = door(info.kind)
    return "" if found is None else str(found.unlock_command(info))


def is_foreign(concerns: Sequence[str]) -> bool:
    """One of the concerns is somebody else's lock, which could not be put back."""
    return any(concern.startswith(FOREIGN_WORDS) for concern in concerns)


def concerns_of(state: ClockState) -> list[str]:
    """What takes the user's consent before locking a device in this state.

    A foreign lock that can be read (AMD) can also be put back, so it is no concern.
    """
    is_open = state.hold is ClockHold.FOREIGN and state.level is None
    if not is_open or is_foreign(state.concerns):
        return list(state.concerns)
    return [f"{FOREIGN_WORDS} ({state.evidence}): it cannot be put back", *state.concerns]

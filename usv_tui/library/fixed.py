"""Clocks fixed for a block of code: the library's face of the lease."""

import contextlib
import importlib
from collections.abc import Callable, Iterator

from usv_tui import plain
from usv_tui.clocks.controllers import controller_for
from usv_tui.clocks.inventory import list_devices, match, select
from usv_tui.clocks.lease import ClockLease, acquire
from usv_tui.clocks.target import sustainable
from usv_tui.errors import ClockBusy, ClockRefused, DeviceError
from usv_tui.library.arguments import BadValue
from usv_tui.model import ClockState, DeviceInfo
from usv_tui.vendor.kinds import BACKENDS, Vendor

Resolver = Callable[[int | str], DeviceInfo]


@contextlib.contextmanager
def fixed_clocks(
    *,
    device: int | str = 0,
    vendor: str = "auto",
    sm_mhz: int | None = None,
    force: bool = False,
    resolver: Resolver | None = None,
) -> Iterator[ClockLease]:
    """Lock a device's core clock for the block; the lease says at which clock and why.

    `device` is torch's ordinal or a UUID, and the device that is measured is the one that is
    locked. Unlike usv's function of this name it does not take the maximum, which power-capped
    boards cannot hold, but `sm_mhz`, else the base clock, else a share of the maximum.

    Raises:
        BadValue: no such vendor.
        DeviceError: it cannot be told which GPU is meant.
        ClockRefused: no rights or no such control; the message has the command to type.
        ClockError: the clocks could not be put back.
    """
    vendors = ("auto", *map(str, Vendor))
    if vendor not in vendors:
        raise BadValue(f"vendor is {plain.value(vendor)}", f"one of {', '.join(vendors)}")
    info = (resolver or _resolve)(device)
    if vendor not in {"auto", info.kind}:
        raise ClockRefused(f"device {device} is {info.kind}, not {vendor}")
    controller = controller_for(info)
    notes = []
    if sm_mhz is None:
        choice = sustainable(info, list(controller.supported_mhz()))
        sm_mhz = choice.mhz
        notes.append(f"locked at {choice.mhz} MHz: {choice.note}")
    with acquire(controller, sm_mhz, force=force) as lease:
        lease.notes += notes
        yield lease


@contextlib.contextmanager
def clocks_locked_if_possible(
    *, device: int | str = 0, sm_mhz: int | None = None, resolver: Resolver | None = None
) -> Iterator[ClockState]:
    """The same for `lock_clocks=True`: a refusal is a state, not an exception.

    Without rights the block runs unlocked, and the state says so with the command to type.
    """
    with contextlib.ExitStack() as stack:
        try:
            lease = stack.enter_context(
                fixed_clocks(device=device, sm_mhz=sm_mhz, resolver=resolver)
            )
            state = lease.state
        except (ClockRefused, ClockBusy, DeviceError) as error:
            state = ClockState(evidence="not locked", reason=str(error))
        yield state


def _resolve(device: int | str) -> DeviceInfo:
    """Torch's device by UUID or PCI address, never by its ordinal; or a UUID as it is.

    Raises:
        DeviceError: it cannot be told which device is meant.
    """
    text = f"cuda:{device}" if str(device).isdecimal() else str(device)
    kind, _, number = text.partition(":")
    if kind not in {backend.framework for backend in BACKENDS.values()}:
        return select(text, list_devices())
    # Only here: it brings the telemetry modules along.
    identity = importlib.import_module("usv_tui.telemetry.identity")
    try:
        named = {} if kind == "cuda" else {"kind": kind}
        facts = identity.device_facts(int(number or 0), **named)
    except Exception as error:
        first = str(error).strip().split("\n", 1)[0]
        raise DeviceError(f"torch does not tell which GPU device {device} is: {first}") from error
    return match(identity.identity_from(facts), list_devices())

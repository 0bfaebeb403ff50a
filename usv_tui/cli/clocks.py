"""`usv-tui clocks`: state, lock, unlock and restore from the command line.

stdout is data, stderr the rest. Errors leave as exceptions; the caller turns them into a line and
an exit code.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from usv_tui import plain
from usv_tui.cli.options import Parser
from usv_tui.clocks.controllers import HardwareClocks, controller_for
from usv_tui.clocks.inventory import list_devices, select
from usv_tui.clocks.lease import acquire, known_state, restore_all, unlock
from usv_tui.clocks.lease_repair import Restored
from usv_tui.clocks.target import (
    MAY_LOCK,
    NEEDS_RIGHTS,
    concerns_of,
    lock_command,
    parse_target,
    unlock_command,
)
from usv_tui.errors import ClockError, DeviceError, ExitCode, UsageError, UsvError
from usv_tui.model import ClockState, DeviceInfo
from usv_tui.seams import ClockController
from usv_tui.vendor.bounded import NoAnswer, within
from usv_tui.vendor.kinds import DIRECT, Access

ANSWER_S = 60.0
"""How long one command may take: many GPUs are initialised one after the other, and a guardian is
started."""


def parser() -> Parser:
    """The arguments of `usv-tui clocks`."""
    top = Parser(
        prog="usv-tui clocks",
        description="Core clocks: what is known, fix them, let them go, repair what a crash left.",
    )
    actions = top.add_subparsers(dest="action", metavar="ACTION")
    for name, text in (
        ("status", "what is known of the clocks (the default)"),
        ("lock", "fix the core clock and leave it fixed"),
        ("unlock", "let the clocks go"),
        ("restore", "put back what runs that died left locked"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--json", action="store_true", help="machine-readable")
        if name != "restore":
            action.add_argument(
                "--device", default="", metavar="D", help="UUID, its beginning, or PCI address"
            )
        if name == "lock":
            action.add_argument("mhz", metavar="MHZ", help="a number of MHz, or base")
            action.add_argument("--mem", type=int, default=None, metavar="MHZ", help="memory too")
            action.add_argument("--force", action="store_true", help="in spite of concerns")
    actions.add_parser("sweep", help="which clock to lock at, by measuring: sweep --help")
    return top


def main(
    argv: Sequence[str],
    *,
    out: TextIO | None = None,
    access: Access = DIRECT,
    path: Path | None = None,
    answer_s: float = ANSWER_S,
) -> ExitCode:
    """Run one action; `path` is the journal's directory when it is not the usual one.

    Raises:
        UsvError: what is wrong, in one line; also when the driver does not answer in time.
    """
    args = parser().parse_args(list(argv) or ["status"])
    if args.action is None:
        raise UsageError("what about the clocks?", "status, lock, unlock, restore or sweep")
    action = _ACTIONS[args.action]
    stream = out or sys.stdout
    try:
        return within(answer_s, lambda: action(args, stream, access, path), "usv-clocks")
    except NoAnswer as error:
        raise _HUNG[args.action](
            f"the driver hangs: {error}", "dmesg may say why; reboot"
        ) from error


def _print(out: TextIO, text: str) -> None:
    print(plain.lines(text), file=out, flush=True)


def _print_json(out: TextIO, value: Any) -> None:
    print(json.dumps(msgspec.to_builtins(value), indent=2), file=out, flush=True)


def _devices(text: str, access: Access) -> list[DeviceInfo]:
    """All devices, or the one that is named."""
    if text.partition(":")[0] == "sim":
        raise UsageError(
            "a simulated GPU's clock ends with its session", "usv-tui demo, then press l"
        )
    found = list_devices(access)
    return [select(text, found)] if text else found


# --- status --------------------------------------------------------------------------------------


def status(args: argparse.Namespace, out: TextIO, access: Access, path: Path | None) -> ExitCode:
    """Tell what is known of each device's clocks, and the commands for somebody with rights."""
    rows = [_status_of(info, access, path) for info in _devices(args.device, access)]
    if args.json:
        _print_json(out, [{"device": info, "clocks": state} for info, state in rows])
    elif not rows:
        _print(out, "no GPU with clocks to control was found (usv-tui doctor says why)")
    for info, state in [] if args.json else rows:
        _print(out, "\n".join(_status_lines(info, state)))
    return ExitCode.OK


def _status_of(
    info: DeviceInfo, access: Access, path: Path | None
) -> tuple[DeviceInfo, ClockState]:
    controller = controller_for(info, access=access)
    try:
        return info, known_state(controller, path=path)
    except ClockError as error:
        return info, msgspec.structs.replace(controller.state(), reason=str(error))
    finally:
        _close(controller)


def _status_lines(info: DeviceInfo, state: ClockState) -> list[str]:
    steps = state.supported_mhz
    span = f"{steps[0]}-{steps[-1]} MHz in {len(steps)} steps" if steps else "not told"
    middle = steps[len(steps) // 2] if steps else 0
    is_ours = state.locked_mhz is not None
    pairs = [
        ("clocks", state.evidence if is_ours else f"{state.hold.value}: {state.evidence}"),
        ("range", span),
        ("locking", MAY_LOCK if state.can_lock else state.reason),
        *[("concern", concern) for concern in concerns_of(state)],
    ]
    # Typed by somebody else it would break a lock that is in force, or mend nothing.
    if middle and not is_ours and (state.can_lock or NEEDS_RIGHTS in state.reason):
        pairs.append(("to lock", f"{lock_command(info, middle)}   (for {middle} MHz)"))
        pairs.append(("to unlock", unlock_command(info)))
    head = f"{plain.name(info.name)}  {plain.name(info.uuid)}"
    return [head, *[f"  {name:<10}{plain.line(text)}" for name, text in pairs]]


def _close(controller: ClockController) -> None:
    if isinstance(controller, HardwareClocks):
        controller.close()


# --- lock, unlock, restore -----------------------------------------------------------------------


def lock(args: argparse.Namespace, out: TextIO, access: Access, path: Path | None) -> ExitCode:
    """Lock one device and leave it locked, on record, until `unlock`."""
    info = select(args.device, _devices(args.device, access))
    controller = controller_for(info, access=access)
    choice = parse_target(args.mhz, info, controller.supported_mhz())
    lease = acquire(controller, choice.mhz, args.mem, force=args.force, keep=True, path=path)
    lease.release()
    notes = [choice.note] * bool(choice.note) + lease.notes
    if args.json:
        _print_json(out, {"device": info, "clocks": lease.state, "notes": notes})
        return ExitCode.OK
    for note in notes:
        _print(out, plain.line(note))
    _print(
        out, f"{plain.name(info.name)}: locked at {lease.sm_mhz} MHz, not yet verified under load"
    )
    _print(out, f"it stays locked until: usv-tui clocks unlock --device {info.uuid}")
    return ExitCode.OK


def release(args: argparse.Namespace, out: TextIO, access: Access, path: Path | None) -> ExitCode:
    """Let one device go."""
    info = select(args.device, _devices(args.device, access))
    text = unlock(controller_for(info, access=access), path=path)
    if args.json:
        _print_json(out, {"device": info, "done": text})
    else:
        _print(out, plain.line(text))
    return ExitCode.OK


def restore(args: argparse.Namespace, out: TextIO, access: Access, path: Path | None) -> ExitCode:
    """Repair what runs that died left; exit code 5 when a device is still locked."""
    results = restore_all(path=path, access=access)
    if args.json:
        _print_json(out, results)
    else:
        for line in [_restored_line(result) for result in results] or ["nothing to restore"]:
            _print(out, line)
    is_bad = any(result.is_failure for result in results)
    return ExitCode.CLOCKS_NOT_RESTORED if is_bad else ExitCode.OK


def _restored_line(result: Restored) -> str:
    return plain.line(f"{result.outcome}: {result.message}")


Action = Callable[[argparse.Namespace, TextIO, Access, Path | None], ExitCode]
_HUNG: dict[str, type[UsvError]] = {
    "status": DeviceError,
    "lock": ClockError,
    "unlock": ClockError,
    "restore": ClockError,
}
"""What a hanging driver means: whether the clocks are free cannot be known after a try to set."""
_ACTIONS: dict[str, Action] = {
    "status": status,
    "lock": lock,
    "unlock": release,
    "restore": restore,
}

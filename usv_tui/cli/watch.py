"""Telemetry for a session: which source watches the device that the worker chose."""

from collections.abc import Callable, Iterable

from usv_tui.gate import Gate
from usv_tui.records import AnyRecord, Chosen
from usv_tui.seams import TelemetrySource
from usv_tui.session.controller import MakeWatcher
from usv_tui.telemetry.identity import find_telemetry
from usv_tui.telemetry.poller import Poller


def watcher_for(source: TelemetrySource | None = None, own_pids: Iterable[int] = ()) -> MakeWatcher:
    """A factory that the session calls once the device is known; `source` when it is already.

    `own_pids` are other processes that measure for us.
    """

    def make(chosen: Chosen, emit: Callable[[AnyRecord], object], gate: Gate) -> Poller | None:
        watched = source
        if watched is None:
            watched, _ = find_telemetry(chosen.device, chosen.identity, own_pids=own_pids)
        return Poller(watched, emit, gate=gate)

    return make

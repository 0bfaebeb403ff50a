"""Telemetry for a session: which source watches the device that the worker chose."""

from collections.abc import Callable

from usv_tui.device.base import TelemetrySource
from usv_tui.device.host import HostTelemetry
from usv_tui.device.poller import Poller
from usv_tui.engine.gate import Gate
from usv_tui.records import AnyRecord, Chosen
from usv_tui.session.controller import MakeWatcher, Watcher


def watcher_for(source: TelemetrySource | None = None) -> MakeWatcher:
    """A factory that the session calls once the device is known; `source` when it is already."""

    def make(chosen: Chosen, emit: Callable[[AnyRecord], object], gate: Gate) -> Watcher | None:
        return Poller(source or HostTelemetry(), emit, gate=gate)

    return make

"""One simulated card for several processes: one governor, one temperature, one power cap.

The process that watches it keeps the card and serves it; each measuring process has a `RemoteGpu`
in its place. What that enqueues goes over in one message with the moments at which it was enqueued,
when it looks at the device: a look costs a message, a launch costs none.
"""

import pickle
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from usv_tui.sim.gpu import MAIN, SIDE, ContextLost, SimGpu, wait_on_host
from usv_tui.sim.kernels import SimKernel
from usv_tui.sim.machine import Item
from usv_tui.sim.profiles import Card
from usv_tui.sim.scenarios import Scenario
from usv_tui.timesource import MonotonicTime

_LENGTH = struct.Struct("<I")
_LEAST_WAIT_NS = 1_000
_LOOK_NS = 5_000_000
"""So long one may enqueue without a look at how much is queued."""
_GONE = "simulated: the process that keeps the card is gone"


class Hello(NamedTuple):
    """What a measuring process is told of the card at first."""

    card: Card
    scenario: Scenario
    origin_ns: int
    flush_bytes: int


class Look(NamedTuple):
    """The device as one who looks sees it."""

    done: list[tuple[int, float, float, float]]
    """Stamps that were passed: number, start, end, and how busy the stream had been by then."""
    queued_ns: int
    items: int
    error: str
    """What a launch raised; empty when none did."""
    is_lost: bool
    finished_ns: int


def _send(channel: socket.socket, value: object) -> None:
    data = pickle.dumps(value)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive(channel: socket.socket) -> Any:
    head = _exactly(channel, _LENGTH.size)
    return pickle.loads(_exactly(channel, _LENGTH.unpack(head)[0]))  # noqa: S301  our own process


def _exactly(channel: socket.socket, n: int) -> bytes:
    parts = bytearray()
    while len(parts) < n:
        part = channel.recv(n - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


class CardServer:
    """Keeps a card for others; a thread for each that is connected."""

    def __init__(self, gpu: SimGpu) -> None:
        self._gpu = gpu

    def connect(self) -> int:
        """A descriptor for a measuring process, over which it has the card."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(ours,), name="usv-card", daemon=True).start()
        return theirs.detach()

    def _serve(self, channel: socket.socket) -> None:
        gpu = self._gpu
        waiting: dict[int, Item] = {}
        try:
            _send(channel, Hello(gpu.card, gpu.scenario, gpu.origin_ns, gpu.flush_bytes))
            error = ""
            while True:
                told, is_asked = _receive(channel)
                for number, verb, what, at_ns in told:
                    try:
                        self._take(waiting, number, verb, what, at_ns)
                    except RuntimeError as raised:
                        error = error or str(raised)
                if is_asked:
                    _send(channel, self._look(waiting, error))
                    error = ""
        except (EOFError, OSError):
            channel.close()

    def _take(
        self, waiting: dict[int, Item], number: int, verb: str, what: Any, at_ns: int
    ) -> None:
        gpu = self._gpu
        if verb == "launch":
            gpu.put(what, at_ns)
        elif verb == "stamp":
            waiting[number] = gpu.stamp(what, at_ns)
        elif verb == "flush":
            gpu.put_flush(at_ns)
        else:
            gpu.put_spin(what, at_ns)

    def _look(self, waiting: dict[int, Item], error: str) -> Look:
        gpu = self._gpu
        queued_ns, items = gpu.depth()
        done = []
        for number in [n for n, item in waiting.items() if item.end_s >= 0.0]:
            item = waiting.pop(number)
            done.append((number, item.start_s, item.end_s, item.busy_s))
        finished_ns = gpu.finished_ns() if not items and done else 0
        return Look(done, queued_ns, items, error, gpu.is_lost, finished_ns)


class RemoteGpu:
    """A card that another process keeps, as the timer and the kernels of this one see it."""

    def __init__(self, fd: int) -> None:
        self.time = MonotonicTime()
        self._channel = socket.socket(fileno=fd)
        hello: Hello = _receive(self._channel)
        self.card, self.scenario = hello.card, hello.scenario
        self.origin_ns, self.flush_bytes = hello.origin_ns, hello.flush_bytes
        self.launches = 0
        self.is_lost = False
        self._told: list[tuple[int, str, Any, int]] = []
        self._stamps: dict[int, Item] = {}
        self._number = self._since = self._looked_ns = 0
        self._compiled: set[str] = set()
        self._finished_ns = 0

    # -- the host's side

    def launch(self, kernel: SimKernel) -> None:
        """Enqueue one call; costs host time and returns before the device has done it.

        Raises:
            ContextLost: the card is gone, or the process that keeps it.
            RuntimeError: the kernel is one that fails, and it is time.
        """
        start_ns = self.time.now_ns()
        host_ns = self.card.launch_ns if kernel.host_ns is None else kernel.host_ns
        if kernel.name not in self._compiled:
            self._compiled.add(kernel.name)
            host_ns += kernel.compile_ns
        self._told.append((0, "launch", kernel, start_ns + host_ns))
        self.launches += 1
        self.spend(start_ns, host_ns)
        if kernel.synchronises:
            self.synchronize()
        elif len(self._told) > self.card.queue_depth // 4:
            self.make_room(sys.maxsize)

    def record(self, stream: int = MAIN) -> Item:
        """Enqueue a time stamp; its `start_s` is the time, once the device has passed it."""
        start_ns = self.time.now_ns()
        self._number += 1
        item = self._stamps[self._number] = Item(0.0, 0.0)
        self._told.append((self._number, "stamp", SIDE if stream else MAIN, start_ns))
        self.spend(start_ns, self.card.record_ns)
        return item

    def flush(self) -> None:
        """Enqueue a write of twice the cache."""
        self._enqueue("flush", None)

    def spin(self, span_ns: int) -> None:
        """Enqueue a kernel that only holds the device."""
        self._enqueue("spin", span_ns)

    def _enqueue(self, verb: str, what: Any) -> None:
        start_ns = self.time.now_ns()
        self._told.append((0, verb, what, start_ns))
        self.spend(start_ns, self.card.launch_ns)

    def spend(self, since_ns: int, span_ns: int) -> None:
        """Let the host be busy until `span_ns` after `since_ns`."""
        wait_on_host(self.time, since_ns + span_ns - self.time.now_ns())

    # -- looking at the device

    def settle(self) -> None:
        """Stamps that the device has passed show their times."""
        self._look()

    def queued_ns(self) -> int:
        """About how much work is queued."""
        return self._look().queued_ns

    def synchronize(self) -> None:
        """Wait until every stream is empty."""
        self._wait(lambda look: not look.items, 0)

    def make_room(self, depth_ns: int) -> None:
        """Wait while more than `depth_ns` of work is queued, or more launches than fit."""
        depth = self.card.queue_depth
        self._since += len(self._told)
        if self._since < depth // 4 and self.time.now_ns() - self._looked_ns < _LOOK_NS:
            self._tell(is_asked=False)
            return
        look = self._look()
        if look.queued_ns > depth_ns or look.items >= depth:
            half_ns = depth_ns // 2
            self._wait(lambda now: now.queued_ns <= half_ns and now.items <= depth // 2, half_ns)

    def _wait(self, is_done: Callable[[Look], bool], most_ns: int) -> None:
        while not is_done(look := self._look()):
            if look.is_lost:
                raise ContextLost("simulated: the card fell off the bus")
            wait_on_host(self.time, max(look.queued_ns - most_ns, _LEAST_WAIT_NS))

    def _look(self) -> Look:
        self._tell(is_asked=True)
        try:
            look: Look = _receive(self._channel)
        except (EOFError, OSError) as error:
            raise ContextLost(_GONE) from error
        self._since, self._looked_ns = 0, self.time.now_ns()
        for number, start_s, end_s, busy_s in look.done:
            item = self._stamps.pop(number)
            item.start_s, item.end_s, item.busy_s = start_s, end_s, busy_s
        self.is_lost = look.is_lost
        self._finished_ns = look.finished_ns or self._finished_ns
        if look.error:
            raise (ContextLost if look.is_lost else RuntimeError)(look.error)
        return look

    def _tell(self, *, is_asked: bool) -> None:
        told, self._told = self._told, []
        try:
            _send(self._channel, (told, is_asked))
        except OSError as error:
            raise ContextLost(_GONE) from error

    def finished_ns(self) -> int:
        """When the last work of all streams ended; call when idle."""
        return self._finished_ns

    def close(self) -> None:
        """It is not needed any more."""
        self._channel.close()

    def on_clock_ns(self, device_s: float) -> int:
        """A device time on the session's clock."""
        return self.origin_ns + round(device_s * 1e9)

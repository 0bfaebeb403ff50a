"""Two workers on one device that hand each other the turn.

A turn is a block of rounds of one version; two turns make a pair. Which of them is first is drawn
by a seed that both know, as often one way as the other in every four pairs, so that what drifts
meets both alike. The token goes straight from worker to worker: nobody's screen stands between.

One launch goes so. Version 0 takes the token, prepares and warms its rows, and hands it on with
its calls a window, which version 1 takes over: identical code at two numbers of calls differs.
Version 1 prepares, tries what handing over costs, chooses the length of a turn and begins. Whoever
ends the last turn of four pairs looks whether the launch is over, and says so.
"""

import contextlib
import math
import os
import select
import statistics
import struct
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from usv_tui.model import DuetPart
from usv_tui.timesource import NS_PER_S

BLOCK_PAIRS = 4
"""In so many pairs each order comes up equally often."""
TURN_NS = 20_000_000
"""A turn is about this long: short enough that two of them meet the same clock …"""
LONGEST_TURN_NS = 5 * TURN_NS
HANDOVER_SHARE = 0.005
"""… and so long that handing over costs at most this share of it."""
_PINGS = 16
_LATE = 8
"""A launch whose rounds are long ends after so many times its length with fewer pairs."""
_FRAME = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What is handed over."""

    kind: str
    """prepare, ping, pong, go or end."""
    number: int = 0
    """Of the turn."""
    sent_ns: int = 0
    base: int = 0
    """The round that turn 0 begins with."""
    rounds: int = 1
    """Of a turn."""
    calls: dict[str, list[int]] = {}
    """Calls a window, and untimed ones before it, by the row's name."""


_tokens = msgspec.msgpack.Decoder(Token)


def is_turn_of(side: int, seed: int, number: int) -> bool:
    """Whether turn `number` is that of this version."""
    pair, second = divmod(number, 2)
    block, place = divmod(pair, BLOCK_PAIRS)
    firsts = [0] * (BLOCK_PAIRS // 2) + [1] * (BLOCK_PAIRS // 2)
    Random(f"{seed}:{block}").shuffle(firsts)
    return firsts[place] ^ second == side


class Line:
    """One worker's ends of the two pipes on which the token goes."""

    def __init__(self, take_fd: int, give_fd: int) -> None:
        self._take_fd, self._give_fd = take_fd, give_fd
        for fd in (take_fd, give_fd):
            os.set_inheritable(fd, False)
        self.is_cut = False
        """The other worker is gone."""

    def give(self, token: Token) -> None:
        """Hand it over; to one that is gone it is lost."""
        data = _encoder.encode(token)
        view = memoryview(_FRAME.pack(len(data)) + data)
        try:
            while view:
                view = view[os.write(self._give_fd, view) :]
        except OSError:
            self.is_cut = True

    def take(self, timeout_s: float) -> Token | None:
        """The token, when it comes within the time."""
        watched = [] if self.is_cut else [self._take_fd]
        if not select.select(watched, [], [], timeout_s)[0]:
            return None
        head = self._read(_FRAME.size)
        data = self._read(_FRAME.unpack(head)[0]) if head else b""
        return _tokens.decode(data) if data else None

    def _read(self, n: int) -> bytes:
        parts = bytearray()
        while len(parts) < n:
            part = os.read(self._take_fd, n - len(parts))
            if not part:
                self.is_cut = True
                return b""
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """The other worker sees that this one is gone."""
        self.is_cut = True
        for fd in (self._take_fd, self._give_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def lines() -> tuple[tuple[int, int], tuple[int, int]]:
    """The descriptors of both workers' ends; the token lies ready for the first."""
    (take_0, give_1), (take_1, give_0) = os.pipe(), os.pipe()
    data = _encoder.encode(Token("prepare"))
    os.write(give_1, _FRAME.pack(len(data)) + data)
    return (take_0, give_0), (take_1, give_1)


class Handovers(NamedTuple):
    """What handing over has cost one version."""

    turns: int
    rounds: int
    median_ns: float
    p99_ns: float
    total_ns: int
    elapsed_ns: int


class Turns:
    """One worker's side of the protocol."""

    def __init__(
        self,
        part: DuetPart,
        line: Line,
        now_ns: Callable[[], int],
    ) -> None:
        """What was said stays until the next turn: telling it would cost the handover."""
        self.part = part
        self.poll: Callable[[], bool] = lambda: True
        """Hears the user; False when there is nothing to wait for any more."""
        self._line, self._now_ns = line, now_ns
        self._base, self._rounds = 0, 1
        self._number = -1
        """The turn that is mine, or was last."""
        self._is_mine = False
        self._began_ns = 0
        self._costs_ns: list[int] = []
        self.left = 0
        """Rounds of my turn that are still to come."""
        self.calls: dict[str, list[int]] = dict(part.calls)
        self.is_over = False
        """The launch has come to its end."""
        self.opening = Opening()
        self._heard_round = 0

    @property
    def is_mine(self) -> bool:
        """A turn of mine is on, or has just ended."""
        return self._is_mine

    @property
    def has_begun(self) -> bool:
        """The first turn has."""
        return self._began_ns > 0

    @property
    def base(self) -> int:
        """The round that the first turn begins with."""
        return self._base

    @property
    def rounds(self) -> int:
        """Of a turn."""
        return self._rounds

    @property
    def index(self) -> int:
        """Which round of my turn is next."""
        return self._rounds - self.left

    @property
    def first_round(self) -> int:
        """Of my turn: that of the other version in this pair has the same rounds."""
        return self._base + self._number // 2 * self._rounds

    def wait_to_prepare(self) -> bool:
        """Until the device is mine to prepare on; False when there is nothing more to do."""
        token = self._wait("prepare")
        if token is None:
            return False
        self.calls = {**token.calls, **self.calls}
        self._heard_round = token.base
        return True

    def ready(self, calls: dict[str, list[int]], next_round: int, round_ns: float) -> None:
        """All is warm: version 0 hands the device on; version 1 begins the first turn."""
        if self.part.side == 0:
            self._line.give(Token("prepare", base=next_round, calls=calls))
            return
        self._base = max(next_round, self._heard_round)
        cost_ns = self._try()
        cost_ns = max(cost_ns, self.part.handover_ns)
        length_ns = min(max(TURN_NS, cost_ns / HANDOVER_SHARE), LONGEST_TURN_NS)
        self._rounds = max(1, round(length_ns / max(round_ns, 1.0)))
        self._go_on(0)

    def next(self) -> bool:
        """Whether a turn of mine has begun; waits for it, but not for ever."""
        token = self._line.take(0.05)
        if token is None:
            self.poll()
        elif token.kind == "ping":
            self._line.give(Token("pong", sent_ns=token.sent_ns))
        elif token.kind == "end":
            self.is_over = True
        elif token.kind == "go":
            self._costs_ns.append(self._now_ns() - token.sent_ns)
            self._base, self._rounds = token.base, token.rounds
            self._begin(token.number)
        return self.left > 0

    def spend(self, rounds: int) -> None:
        """So many rounds of my turn are done."""
        self.left -= rounds

    def done(self) -> None:
        """My turn is over and the device idle: it is handed on, goes on, or the launch ends."""
        number = self._number + 1
        if number % (2 * BLOCK_PAIRS) == 0 and self._is_enough(number // 2):
            self.is_over, self._is_mine = True, False
            self._line.give(Token("end"))
            return
        self._go_on(number)

    def close(self) -> None:
        """Nothing more is taken or given."""
        self._line.close()

    def handovers(self) -> Handovers | None:
        """What they cost; None before the first turn."""
        if not self._began_ns:
            return None
        costs = sorted(self._costs_ns) or [0]
        return Handovers(
            self._number + 1,
            self._rounds,
            statistics.median(costs),
            costs[math.ceil(0.99 * len(costs)) - 1],
            sum(costs),
            self._now_ns() - self._began_ns,
        )

    def _is_enough(self, pairs: int) -> bool:
        elapsed_s = (self._now_ns() - self._began_ns) / NS_PER_S
        if elapsed_s < self.part.launch_s:
            return False
        return pairs >= self.part.least_pairs or elapsed_s > _LATE * self.part.launch_s

    def _go_on(self, number: int) -> None:
        if is_turn_of(self.part.side, self.part.seed, number):
            self._begin(number)
        else:
            now_ns = self._now_ns()
            self._began_ns = self._began_ns or now_ns
            self._is_mine = False
            self._line.give(Token("go", number, now_ns, self._base, self._rounds))

    def _begin(self, number: int) -> None:
        self._began_ns = self._began_ns or self._now_ns()
        self._number, self.left, self._is_mine = number, self._rounds, True

    def _try(self) -> float:
        """What handing over costs, by the slower of a few tries: half of there and back."""
        costs: list[int] = []
        for _ in range(_PINGS):
            sent_ns = self._now_ns()
            self._line.give(Token("ping", sent_ns=sent_ns))
            if self._wait("pong") is None:
                break
            costs.append(self._now_ns() - sent_ns)
        return sorted(costs)[len(costs) * 3 // 4] / 2 if costs else 0.0

    def _wait(self, kind: str) -> Token | None:
        while self.poll():
            token = self._line.take(0.05)
            if token is not None and token.kind == "end":
                self.is_over = True
                return None
            if token is not None and token.kind == kind:
                return token
        return None


class Opening:
    """How many of a turn's first rounds differ from its others, for the device had a pause."""

    _TURNS, _MOST, _LEAST = 12, 3, 0.005

    def __init__(self) -> None:
        self.rounds = 0
        """So many are flagged at the beginning of each turn."""
        self._seen: dict[int, list[list[float]]] = {}
        self._turns = 0
        self._turn: dict[int, list[float]] = {}

    @property
    def is_open(self) -> bool:
        """It is not known yet."""
        return self._turns < self._TURNS

    def add(self, bench: int, per_call_ns: float) -> None:
        """A window of the turn that runs, in order."""
        if per_call_ns > 0:
            self._turn.setdefault(bench, []).append(math.log(per_call_ns))

    def close(self) -> bool:
        """The turn is over; True when it is now known how many differ."""
        if not self.is_open:
            return False
        for bench, values in self._turn.items():
            if len(values) >= 2 * self._MOST:
                level = statistics.median(values[self._MOST :])
                self._seen.setdefault(bench, []).append([v - level for v in values[: self._MOST]])
        self._turn.clear()
        self._turns += 1
        if self.is_open:
            return False
        self.rounds = max((self._slow(looks) for looks in self._seen.values()), default=0)
        return True

    def _slow(self, looks: list[list[float]]) -> int:
        """The last of the first rounds that is off by more than its noise, counted from 1."""
        last = 0
        for place in range(self._MOST):
            values = [look[place] for look in looks]
            middle = statistics.median(values)
            spread = 1.4826 * statistics.median(abs(v - middle) for v in values)
            if abs(middle) > max(self._LEAST, 4 * 1.2533 * spread / math.sqrt(len(values))):
                last = place + 1
        return last

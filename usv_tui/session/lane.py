"""What held the numbers back, and when: power, heat, a neighbour, a lock, a pause."""

from typing import NamedTuple

from usv_tui.codes import Code
from usv_tui.model import POWER_REASONS, THERMAL_REASONS, ClockState, Notice, Reading, Reason

POWER, THERMAL, OTHER = "power cap", "thermal", "slowed"
NEIGHBOUR, LOCK, PAUSE = "neighbour", "lock", "pause"
KINDS = (POWER, THERMAL, OTHER, NEIGHBOUR, LOCK, PAUSE)
"""Every kind, that which comes first is drawn on top of nothing else."""
_HELD_NS = 3_000_000_000
"""A state that readings tell is over when none has told it for so long."""
_MERGED_NS = 300_000_000
_MOST = 2000
_SHARED, _ALONE = Code.SHARED_DEVICE, Code.NO_LONGER_SHARED
_MASKS = (
    (POWER, int(POWER_REASONS)),
    (THERMAL, int(THERMAL_REASONS)),
    (OTHER, int(Reason.HW_SLOWDOWN | Reason.RELIABILITY)),
)


class Stretch(NamedTuple):
    """Something that was in force from one moment to another."""

    from_ns: int
    to_ns: int
    kind: str
    detail: str = ""


class Lane:
    """The fold of what limits a run; bounded, the oldest goes first."""

    def __init__(self) -> None:
        self._done: list[Stretch] = []
        self._open: dict[str, Stretch] = {}
        self._last_ns: dict[str, int] = {}
        self._gaps: list[tuple[int, int, str]] = []
        self.before_lock: dict[int, float] = {}
        """The rows' std right before the lock that the epoch is measured under."""

    def on_reading(self, reading: Reading) -> None:
        """The confirmed reasons of one look at the device."""
        if reading.reasons is None:
            return
        for kind, mask in _MASKS:
            is_on = bool(reading.reasons & mask)
            known = self._open.get(kind)
            last_ns = self._last_ns.get(kind, 0)
            if known is not None and reading.at_ns - last_ns > (_HELD_NS if is_on else _MERGED_NS):
                self._close(kind, last_ns + _MERGED_NS)
                known = None
            if is_on:
                self._last_ns[kind] = reading.at_ns
                if known is None:
                    self._open[kind] = Stretch(reading.at_ns, reading.at_ns, kind)

    def on_clocks(self, at_ns: int, state: ClockState) -> None:
        """A lock of ours begins, changes or ends."""
        self._close(LOCK, at_ns)
        if state.is_ours and state.locked_mhz is not None:
            words = f"{state.locked_mhz} MHz"
            self._open[LOCK] = Stretch(at_ns, at_ns, LOCK, words)

    def on_notice(self, notice: Notice) -> None:
        """Somebody else on the device comes or goes."""
        if notice.code not in (_SHARED, _ALONE):
            return
        self._close(NEIGHBOUR, notice.at_ns)
        if notice.code == _SHARED:
            processes = notice.evidence.get("processes")
            named = processes if isinstance(processes, list) else []
            pids = [f"pid {p['pid']}" for p in named if isinstance(p, dict) and "pid" in p]
            self._open[NEIGHBOUR] = Stretch(
                notice.at_ns, notice.at_ns, NEIGHBOUR, ", ".join(pids[:3])
            )

    def on_gap(self, from_ns: int, to_ns: int, reason: str) -> None:
        """Nothing was measured."""
        self._gaps.append((from_ns, to_ns, reason))
        self._add(Stretch(from_ns, to_ns, PAUSE, reason))

    def _close(self, kind: str, at_ns: int) -> None:
        known = self._open.pop(kind, None)
        if known is not None and at_ns > known.from_ns:
            self._add(known._replace(to_ns=at_ns))

    def _add(self, stretch: Stretch) -> None:
        self._done.append(stretch)
        if len(self._done) > _MOST:
            del self._done[: _MOST // 10]

    def between(self, from_ns: int, to_ns: int) -> list[Stretch]:
        """What was in force in a stretch of time; what still is lasts to its end."""
        found = [s for s in self._done if s.to_ns > from_ns and s.from_ns < to_ns]
        for kind, known in self._open.items():
            until_ns = to_ns if kind in (LOCK, NEIGHBOUR) else self._last_ns[kind] + _MERGED_NS
            if known.from_ns < to_ns and until_ns > from_ns:
                found.append(known._replace(to_ns=min(until_ns, to_ns)))
        return found

    def gaps(self, from_ns: int, to_ns: int) -> list[tuple[int, int, str]]:
        """Times of standing still that touch a stretch of time."""
        found = []
        for gap in reversed(self._gaps):
            if gap[1] <= from_ns:
                break
            if gap[0] < to_ns:
                found.append(gap)
        return found[::-1]

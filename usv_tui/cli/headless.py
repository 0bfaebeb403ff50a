"""The front end without a screen: data on stdout, narration on stderr."""

from typing import IO

from usv_tui import plain
from usv_tui.errors import ExitCode
from usv_tui.model import AT_WORK
from usv_tui.session.controller import LiveSession
from usv_tui.session.snapshot import RowView, Snapshot
from usv_tui.signals import Signals
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource
from usv_tui.units import MS, US, Unit, count, duration, fixed, time_unit, watts

_TICK_NS = NS_PER_S // 5
_GATE_NS = NS_PER_S // 4
_FIRST_LINES_NS = NS_PER_S
_LINES_NS = 5 * NS_PER_S
_MOST_ROWS = 6


def run(
    session: LiveSession,
    narration: "Narration",
    signals: Signals,
    time_source: TimeSource | None = None,
) -> None:
    """Measure until the session ends or a signal comes."""
    clock = time_source or MonotonicTime()
    while not session.has_ended and not signals.event.is_set():
        clock.wait(signals.event, _TICK_NS)
        with session.gate.hold(_GATE_NS):
            with session.faults.around("taking in what is new"):
                session.pump()
            with session.faults.around("the narration"):
                narration.tell(session.store.snapshot(clock.now_ns()))


class Narration:
    """One line about once a second at first and every five later, and every event at once."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._told = 0
        self._next_ns = 0
        self._unit: Unit = US

    def tell(self, snapshot: Snapshot) -> None:
        """Say what is new since the last time."""
        new = snapshot.log_total - self._told
        if new > 0:
            self._told = snapshot.log_total
            # A fault ends the run: it is the last line that the program says.
            last_words = {told.text for told in snapshot.told if told.code == "fault"}
            for line in snapshot.log[-new:]:
                if line.kind == "error" and line.text in last_words:
                    continue
                mark = "|" if line.kind == "out" else "*"
                self._say(snapshot, f"{mark} {line.text}", line.at_ns)
        if snapshot.at_ns < self._next_ns or snapshot.phase not in AT_WORK:
            return
        early = snapshot.elapsed_s < 10
        self._next_ns = snapshot.at_ns + (_FIRST_LINES_NS if early else _LINES_NS)
        self._say(snapshot, self._summary(snapshot), snapshot.at_ns)

    def tell_rest(self, session: LiveSession, late_output: list[str]) -> None:
        """After the end: events and output that came too late for a tick."""
        snapshot = session.final_snapshot()
        self._next_ns = snapshot.at_ns + 1
        self.tell(snapshot)
        for line in late_output:
            self._say(snapshot, f"| {line}", snapshot.at_ns)

    def _say(self, snapshot: Snapshot, text: str, at_ns: int) -> None:
        seconds = max(0, at_ns - snapshot.start_ns) / NS_PER_S
        try:
            self._out.write(f"[{duration(seconds)}] {plain.line(text)}\n")
            self._out.flush()
        except (OSError, ValueError):
            # The reader of the narration is gone; the data still goes to stdout.
            return

    def _summary(self, snapshot: Snapshot) -> str:
        rows = [row for row in snapshot.lines if row.parent is None]
        self._unit = time_unit(row.rolling.median_s for row in rows)
        parts = [
            (
                f"{snapshot.phase}  round {count(snapshot.rounds)}  "
                f"{fixed(snapshot.samples_per_s, 0)} samples/s"
            )
        ]
        parts += [self._row(row) for row in rows[:_MOST_ROWS]]
        if len(rows) > _MOST_ROWS:
            parts.append(f"and {len(rows) - _MOST_ROWS} more")
        if snapshot.progress:
            parts.append(snapshot.progress)
        reading = snapshot.reading
        if reading is not None:
            sensors = [
                f"{reading.sm_mhz:.0f} MHz" if reading.sm_mhz is not None else "",
                f"{reading.temp_c:.0f} C" if reading.temp_c is not None else "",
                f"{watts(reading.power_mw)} W" if reading.power_mw is not None else "",
            ]
            parts.append(" ".join(s for s in sensors if s))
        return "  ".join(part for part in parts if part)

    def _row(self, row: RowView) -> str:
        name = plain.name(row.plain_name if row.rival is not None else row.name)
        if row.error:
            return f"{name} FAILED"
        median = row.rolling.median_s
        if median is None:
            return f"{name} {row.state}"
        decimals = 3 if self._unit in (US, MS) else 1
        against = "" if row.launch_ratio is None else f" {row.launch_ratio.ratio:.3f}x"
        return f"{name} {median / self._unit.seconds:.{decimals}f} {self._unit.name}{against}"


def exit_code(session: LiveSession, signal_number: int) -> int:
    """128+n after a signal, else what the session is worth."""
    code = session.exit_code()
    if signal_number and code in (ExitCode.OK, ExitCode.BENCH_FAILED, ExitCode.CLOCKS_REFUSED):
        return 128 + signal_number
    return int(code)

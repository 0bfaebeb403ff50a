"""What the statistics say of a session's epoch, asked at beats of its own clock."""

import dataclasses
from typing import TYPE_CHECKING

from usv_tui.codes import Code
from usv_tui.model import Advice, Notice, Verdict
from usv_tui.report.wording.advice import is_idle
from usv_tui.session.advised import heeding
from usv_tui.session.row_store import RowStore
from usv_tui.stats.analysis import Analysis, Analyst, RowAnalysis
from usv_tui.stats.pairs import Interval
from usv_tui.telemetry.energy import energy_per_call
from usv_tui.timesource import NS_PER_S

if TYPE_CHECKING:
    from usv_tui.session.store import Store

_ENERGY_NS = 60 * NS_PER_S
_ENERGY_ROWS = 4
_LOOK_BACK_NS = 60 * NS_PER_S
_SLOWER = 600
"""They are asked every second, or every 600th of an epoch's age, when that is longer …"""
_SLOWEST_NS = 5 * NS_PER_S
"""… and at least this often: a day is read back in minutes."""


class Verdicts:
    """The latest answers, and when to ask again. Knows the fold only while it is asked."""

    def __init__(self) -> None:
        self.looks = 0
        """How often the statistics were asked."""
        self.analysis = Analysis()
        self.advice = Advice()
        self._analyst = Analyst()
        self._due_ns = 0
        self._concluded: tuple[object, ...] = ()
        """What had been measured when the end's figures were made."""
        self._told_advice = (Advice().verdict, Advice().lock_mhz)
        self._has_told_untrusted = False
        self._energy_turn = 0

    def forget(self) -> None:
        """What they said was of the epoch before."""
        self._due_ns = 0
        self._analyst.reset()
        self.analysis = Analysis(solo_low_mhz=self.analysis.solo_low_mhz)
        self.advice = Advice()
        self._has_told_untrusted = False

    def is_due(self, now_ns: int, beat_ns: int, age_ns: int) -> bool:
        """Whether to ask at the beat that began then, of an epoch of this age."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = beat_ns + min(max(NS_PER_S, age_ns // _SLOWER), _SLOWEST_NS)
        return True

    def are_concluded(self, known: tuple[object, ...]) -> bool:
        """Whether the end's figures are those of all that is known; from now on they are."""
        before, self._concluded = self._concluded, known
        return before == known

    def settled_interval(self, row: RowStore, now_ns: int) -> Interval | None:
        """Interval of a settled row's log median; None while it has not settled."""
        return self._analyst.settled_median(row.data(None, 0.0), now_ns)

    def ask(self, store: "Store", now_ns: int, *, is_final: bool = False) -> Analysis:
        """Ask the statistics; once a second is enough. The answers stand in the next snapshot."""
        self.looks += 1
        tick_ns = float(store.timer.resolution_ns or 0) if store.timer else 0.0
        against: dict[int, int | None] = {}
        for bench, row in store.rows.items():
            base = store.baseline_of(row)
            against[bench] = None if base is None else base.info.bench
        analysis = self._analyst.update(
            [row.data(against[bench], tick_ns) for bench, row in store.rows.items()],
            store.readings(now_ns, now_ns - _LOOK_BACK_NS),
            now_ns,
            epoch_ns=store.epoch_ns,
            locked_mhz=store.clocks.in_force_mhz,
            is_held=store.clocks.is_held,
            whole=store.readings(now_ns, store.epoch_ns) if is_final else None,
        )
        self._weigh_energy(store, now_ns, everything=is_final)
        for bench, found in analysis.rows.items():
            row = store.rows[bench]
            _give(row, found, against[bench])
            if row.info.version is not None:
                versus = store.duet.report().get(bench)
                row.ratio = None if versus is None else versus.ratio
            row.found = _found(row, found)
        analysis = dataclasses.replace(analysis, advice=heeding(analysis.advice, store.clocks))
        self.analysis = analysis
        self.advise(store, now_ns, analysis.advice)
        if analysis.untrusted and not self._has_told_untrusted:
            self._has_told_untrusted = True
            store.notice(_untrusted(store.rows[analysis.untrusted[0]], now_ns))
        return analysis

    def advise(self, store: "Store", at_ns: int, advice: Advice) -> None:
        """The log tells when it changes."""
        self.advice = advice
        told = (advice.verdict, advice.lock_mhz)
        if told != self._told_advice:
            self._told_advice = told
            lock = "" if advice.verdict is Verdict.LOCK else ", lock"
            at = f"{lock} at {advice.lock_mhz} MHz" if advice.lock_mhz is not None else ""
            at += ", not worth it" if is_idle(advice) else ""
            store.log.line(at_ns, "event", f"advice: {advice.verdict}{at}")

    def _weigh_energy(self, store: "Store", now_ns: int, *, everything: bool) -> None:
        """Energy per call of a few rows in turn (of all at the end), from the last minute."""
        columns, device = store.telemetry_columns, store.device
        if device is None or not columns.t_ns.n:
            return
        rows = [row for row in store.rows.values() if row.info.parent is None and row.t_ns.n]
        count = len(rows) if everything else min(_ENERGY_ROWS, len(rows))
        part = columns.between(now_ns - _ENERGY_NS, now_ns + 1)
        for k in range(count):
            row = rows[(self._energy_turn + k) % len(rows)]
            row.energy = energy_per_call(
                row.windows(now_ns - _ENERGY_NS),
                columns.t_ns.view()[part],
                columns.fields["energy_mj"].view()[part],
                columns.fields["power_mw"].view()[part],
                device.sensors.get("energy_mj"),
                device.sensors.get("power_mw"),
            )
        self._energy_turn += count


def _give(row: RowStore, found: RowAnalysis, against: int | None) -> None:
    row.word, row.drift, row.effect = found.word, found.drift, found.effect
    row.ratio, row.ratio_to = found.ratio, against


def _found(row: RowStore, said: RowAnalysis) -> dict[str, str]:
    """Words for its badges."""
    found: dict[str, str] = {}
    if row.starved_words:
        found["starved"] = row.starved_words
    if row.ratio is not None and row.ratio.moves:
        found["ratio moves"] = "ratio moves"
    if said.is_timer_limited:
        found["timer limited"] = "timer-limited"
    return found


def _untrusted(row: RowStore, at_ns: int) -> Notice:
    """A control row differs from what it copies."""
    values = {} if row.ratio is None else {"low": row.ratio.low, "high": row.ratio.high}
    return Notice(
        code=Code.CONTROL_DIFFERS,
        at_ns=at_ns,
        bench=row.info.bench,
        level="error",
        evidence=values,
        of_epoch=True,
    )

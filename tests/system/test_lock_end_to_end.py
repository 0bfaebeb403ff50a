"""The whole way on a simulated GPU: watch, advise, lock, and see whether it was worth it."""

from collections.abc import Callable

import numpy as np
import pytest

from usv_tui.clocks.lease import ClockLease, acquire
from usv_tui.clocks.verify import foreign_lock_hint
from usv_tui.errors import ClockRefused
from usv_tui.model import Advice, ClockHold, Reading, Sample, Verdict
from usv_tui.records import Samples
from usv_tui.seams import Tier
from usv_tui.sim.device import SimSession, load
from usv_tui.stats.analysis import Analysis, Analyst
from usv_tui.stats.inputs import RowData, TelemetryData
from usv_tui.timers.wall import Slot
from usv_tui.timesource import ManualTime

S = 1_000_000_000
POLL_NS = S // 20


class Watch:
    """Measures a simulated session in virtual time and analyses it once a second."""

    def __init__(self, scenario: str, card: str = "h100", seed: int = 1) -> None:
        self.time = ManualTime(S)
        self.session: SimSession = load(scenario, card, seed, self.time)
        self.slots = [
            Slot(bench, benchmark.build("sim"))
            for bench, benchmark in enumerate(self.session.suite.benchmarks)
        ]
        self.session.telemetry.open()
        self.samples: list[Samples] = []
        self.readings: list[Reading] = []
        self.analyst = Analyst()
        self.analysis = Analysis()
        self.epoch_ns = self.time.now_ns()
        self.lease: ClockLease | None = None
        self._round = 0
        self._seen = 0
        self._rows: list[list[Sample]] = [[] for _ in self.slots]

    def run(self, seconds: float) -> Analysis:
        """Measure on; returns the last analysis."""
        end_ns = self.time.now_ns() + int(seconds * S)
        poll_ns = update_ns = 0
        while (now_ns := self.time.now_ns()) < end_ns:
            assert self.session.timer.enqueue(self._round, self.slots) is None
            self._round += 1
            self.samples += self.session.timer.harvest(wait=False)
            if now_ns >= poll_ns:
                poll_ns = now_ns + POLL_NS
                self._poll()
            if now_ns >= update_ns and self.samples:
                update_ns = now_ns + S
                self._analyse()
        self.session.timer.synchronize()
        self.samples += self.session.timer.harvest(wait=True)
        self._analyse()
        return self.analysis

    def _poll(self) -> None:
        reading = self.session.telemetry.read(Tier.ALL)
        self.readings.append(reading)
        if self.lease is not None:
            self.lease.feed(reading)

    def lock(self, mhz: int) -> ClockLease:
        """Lock as a user would, at the start of a new epoch."""
        hint = foreign_lock_hint(self.readings, self.session.clocks.supported_mhz())
        self.lease = acquire(self.session.clocks, mhz, foreign=hint)
        self.mark()
        return self.lease

    def mark(self) -> None:
        """A new epoch begins."""
        self.analyst.reset()
        self.epoch_ns = self.time.now_ns()

    def rel_std(self, bench: int, from_ns: int) -> float:
        """Relative standard deviation of a row since a time."""
        row = self._columns()[bench]
        values = (row.window_ns / row.inner)[row.t_ns >= from_ns]
        return float(np.std(values, ddof=1) / np.median(values))

    def _columns(self) -> list[RowData]:
        """All samples so far, by row."""
        for record in self.samples[self._seen :]:
            for sample in record.samples():
                self._rows[sample.bench].append(sample)
        self._seen = len(self.samples)
        columns = []
        for bench, samples in enumerate(self._rows):
            table = np.array(samples, np.int64)
            columns.append(
                RowData(
                    bench=bench,
                    rounds=table[:, 1],
                    t_ns=table[:, 3],
                    window_ns=table[:, 4],
                    inner=table[:, 5],
                    flags=table[:, 7],
                    baseline=0 if bench else None,
                )
            )
        return columns

    def _analyse(self) -> None:
        self.analysis = self.analyst.update(
            self._columns(),
            self._telemetry(),
            self.time.now_ns(),
            epoch_ns=self.epoch_ns,
            locked_mhz=None if self.lease is None else self.lease.sm_mhz,
        )

    def _telemetry(self) -> TelemetryData:
        def column(get: Callable[[Reading], float | None]) -> np.ndarray:
            return np.array([np.nan if get(r) is None else get(r) for r in self.readings], float)

        return TelemetryData(
            t_ns=np.array([r.at_ns for r in self.readings], np.int64),
            sm_mhz=column(lambda r: r.sm_mhz),
            temp_c=column(lambda r: r.temp_c),
            reasons=np.array(
                [-1 if r.reasons is None else r.reasons for r in self.readings], np.int64
            ),
            power_ns=column(lambda r: r.throttle_ns.get("power")),
            thermal_ns=column(lambda r: r.throttle_ns.get("thermal")),
            supported_mhz=tuple(self.session.clocks.supported_mhz()),
        )


def advised(advice: Advice) -> int:
    """The clock of an advice that has one."""
    assert advice.lock_mhz is not None, advice
    return advice.lock_mhz


@pytest.mark.parametrize("card", ["h100", "mi300", "rtx"])
def test_the_advised_lock_brings_the_spread_down_to_what_was_predicted(card: str) -> None:
    """Advise, lock, verify: the std falls to within 20 % of the prediction."""
    watch = Watch("power-cap", card)
    before = watch.run(25)
    assert before.advice.verdict in {Verdict.LOCK, Verdict.THROTTLED_POWER}
    effects = {bench: row.effect for bench, row in before.rows.items()}
    hot = effects[0]
    assert hot.std_now is not None
    assert hot.std_locked is not None

    lease = watch.lock(advised(before.advice))
    start_ns = watch.time.now_ns() + 2 * S
    watch.run(15)

    assert lease.state.hold is ClockHold.LOCKED, lease.state.evidence
    measured = watch.rel_std(0, start_ns)
    assert measured == pytest.approx(hot.std_locked, rel=0.2)
    assert measured < hot.std_now / 3
    lease.release()
    assert watch.session.gpu.truth().lock_mhz is None


def test_a_lock_at_the_maximum_under_a_power_cap_is_not_held() -> None:
    """What usv does, and why it does not help."""
    watch = Watch("power-cap")
    watch.run(3)

    lease = watch.lock(watch.session.card.max_mhz)
    watch.run(13)

    assert lease.state.hold is ClockHold.NOT_HELD
    assert lease.state.evidence.startswith("power cap: median ")
    lease.release()


def test_a_driver_that_accepts_and_ignores_a_lock_is_found_out() -> None:
    """Success means that the wish was noted, no more."""
    watch = Watch("lock-ignored")
    watch.run(3)

    lease = watch.lock(1200)
    watch.run(13)

    assert lease.state.hold is ClockHold.NOT_HELD
    lease.release()


def test_a_refused_lock_is_one_line_and_the_measurement_goes_on() -> None:
    """Without rights."""
    watch = Watch("lock-refused")
    watch.run(3)

    with pytest.raises(ClockRefused, match="needs root"):
        watch.lock(1200)

    watch.run(1)
    assert watch.session.gpu.truth().lock_mhz is None


def test_a_foreign_lock_is_suspected_under_load_and_refused_without_force() -> None:
    """It could not be put back."""
    watch = Watch("foreign-lock")
    watch.run(5)

    with pytest.raises(ClockRefused, match="somebody else may have locked it"):
        watch.lock(1200)
